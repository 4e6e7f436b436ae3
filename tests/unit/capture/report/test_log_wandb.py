"""Metrics and tables in a run of Weights & Biases, in its offline mode, read back from the files it writes."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tb_sol_plugin.capture.report.analysis import analyze, scalars
from tb_sol_plugin.capture.report.loggers import log_wandb
from tests.conftest import ROOT
from tests.support.sol_step import device, records, step

EXPECTED = scalars(analyze(records(), step(), device()))
"""By hand in `test_log_tensorboard.py`."""
START = """
import os, wandb
from tb_sol_plugin.capture.report.analysis import analyze, carry
from tb_sol_plugin.capture.report.loggers import log_wandb
from tests.support.sol_step import device, records, step
found = analyze(records(), step(), device())

def begin(folder):
    os.makedirs(folder, exist_ok=True)
    return wandb.init(mode="offline", dir=folder, project="p", settings=wandb.Settings(console="off", silent=True))
"""
LOOPS = {
    "once per iteration": """
for i in range(1, 4):
    assert log_wandb(found, i)
    wandb.log({"loss": 1.0 / i})
assert run.step == 3
""",
    "with steps of its own": """
for i in range(6):
    log_wandb(found, i)
    if i == 3:
        wandb.log({"epoch": 1}, step=1)
    if i == 5:
        wandb.log({"loss": 0.25}, step=600)
""",
    "with rows of ours": "for i in range(5, 8): log_wandb(found, i, commit=True)",
    "logging nothing": "log_wandb(found, 7); log_wandb(carry(found, step(8)), 8)",
    "with tables": "log_wandb(found, 7, tables=True)",
    "with unknown cells": "log_wandb(analyze(records(timed=False), step(), None), 7, tables=True)",
}
"""Loops that log, each in a run of its own."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of the runs of all loops, which one process made one after the other."""
    pytest.importorskip("wandb")
    root = tmp_path_factory.mktemp("wandb")
    parts = [f"run = begin({name!r})\n{body}\nrun.finish()" for name, body in LOOPS.items()]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "WANDB_ERROR_REPORTING": "false"}
    command = [sys.executable, "-c", "\n".join((START, *parts))]
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "step" not in done.stderr.lower(), done.stderr  # it warns of rows that it drops
    return {name: root / name for name in LOOPS}


def history(folder: Path) -> list[dict[str, Any]]:
    """The rows of the history of a run, in order."""
    return [row for kind, row in read(folder) if kind == "history"]


def read(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Records of the run's file: a header of 7 bytes, then blocks of 32 KiB with records of (checksum, length, part) and content."""
    from wandb.proto import wandb_internal_pb2 as protocol

    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    data, at, content = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, size, part = struct.unpack("<IHB", data[at : at + 7])
        content += data[at + 7 : at + 7 + size]
        at += 7 + size
        if part in (1, 4):  # whole, or the last part
            record = protocol.Record()
            record.ParseFromString(content)
            content = b""
            kind = record.WhichOneof("record_type")
            if kind == "history":
                yield kind, {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            elif kind == "metric":
                yield kind, {"name": record.metric.name or record.metric.glob_name, "axis": record.metric.step_metric}


def tables(folder: Path) -> dict[str, dict[str, Any]]:
    files = folder.glob("wandb/offline-run-*/files/media/table/sol/*.table.json")
    return {path.name.rsplit("_", 2)[0]: json.loads(path.read_text(encoding="utf-8")) for path in files}


def test_figures_join_the_row_that_the_loop_logs(folders: dict[str, Path]) -> None:
    # GIVEN a loop that logs once per iteration and counts its steps itself
    folder = folders["once per iteration"]
    # THEN there is one row per call of the loop's own, with all scalars and the iteration
    rows = history(folder)
    assert [(row["_step"], row["loss"], row["sol/iteration"]) for row in rows] == [(0, 1.0, 1), (1, 0.5, 2), (2, 1 / 3, 3)]
    for row in rows:
        ours = {name: value for name, value in row.items() if name.startswith("sol") and name != "sol/iteration"}
        assert ours == pytest.approx(EXPECTED)
    assert [m for kind, m in read(folder) if kind == "metric"] == [
        {"name": "sol/iteration", "axis": ""},
        *({"name": f"{prefix}/*", "axis": "sol/iteration"} for prefix in ("sol", "sol_layer", "sol_func", "sol_phase")),
    ]


def test_every_run_of_a_process_gets_an_axis_of_its_own(folders: dict[str, Path]) -> None:
    for folder in folders.values():
        assert sum(kind == "metric" for kind, _ in read(folder)) == 5


def test_a_loop_with_steps_of_its_own_loses_nothing(folders: dict[str, Path]) -> None:
    # GIVEN a loop whose steps are samples, logged every second iteration, and an epoch that ends at step 1: a row of ours would drop it
    rows = history(folders["with steps of its own"])
    assert {row["_step"]: row["epoch"] for row in rows if "epoch" in row} == {1: 1}
    assert {row["_step"]: row["loss"] for row in rows if "loss" in row} == {600: 0.25}
    assert [row["sol/iteration"] for row in rows if "sol/iteration" in row] == [3, 5]


def test_a_loop_that_logs_nothing_itself_can_have_rows_of_ours(folders: dict[str, Path]) -> None:
    rows = history(folders["with rows of ours"])
    assert [(row["_step"], row["sol/iteration"]) for row in rows] == [(0, 5), (1, 6), (2, 7)]


def test_a_loop_that_logs_nothing_itself_keeps_the_last_figures(folders: dict[str, Path]) -> None:
    # GIVEN a sampled step and one that was not counted
    (row,) = history(folders["logging nothing"])
    assert (row["sol/iteration"], row["sol/capture_age_iters"], row["sol_layer/Linear/count"]) == (8, 1, 7)


def test_the_four_tables(folders: dict[str, Path]) -> None:
    (row,) = history(folders["with tables"])
    assert {name.rsplit("/", 1)[0] for name in row if name.endswith("/path")} == {
        "sol/by_layer_type", "sol/by_function", "sol/by_phase", "sol/top_operations",
    }  # fmt: skip
    found = tables(folders["with tables"])

    groups = ["name", "count", "estimated_ms", "share_pct", "measured_ms", "efficiency_pct", "tflops", "memory_gb", "bound"]
    assert found["by_layer_type"]["columns"] == found["by_function"]["columns"] == found["by_phase"]["columns"] == groups
    assert [row[0] for row in found["by_phase"]["data"]] == ["train/backward", "train/forward", "(no phase)"]
    assert found["by_layer_type"]["data"][0] == [
        "Linear", 7, pytest.approx(0.07), pytest.approx(700 / 9), 0.11, pytest.approx(700 / 11), 0.007, 0.035, "compute",
    ]  # fmt: skip
    top = found["top_operations"]
    assert top["columns"] == [
        "rank", "name", "layer_name", "phase", "direction", "shapes", "dtype", "count", "flops", "bytes", "arithmetic_intensity",
        "estimated_us", "measured_us", "efficiency_pct", "bound", "flags",
    ]  # fmt: skip
    assert top["data"][0] == [
        1, "aten::mm", "net.a", "train/backward", "bwd", "[8, 4] [4, 8]", "bf16", 4, 4_000_000_000, 20_000_000, 200.0, pytest.approx(40.0),
        50.0, pytest.approx(80.0), "compute", "",
    ]  # fmt: skip
    assert top["data"][5][8:] == [None, None, None, None, 5.0, None, "unknown", "no_model"]


def test_unknown_cells_in_every_row_are_empty(folders: dict[str, Path]) -> None:
    assert [row[2:6] for row in tables(folders["with unknown cells"])["by_layer_type"]["data"]] == [[None] * 4] * 3


# -- without a run -----------------------------------------------------------------------------------------------------


def test_without_the_package_nothing_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (None, SimpleNamespace(run=None), SimpleNamespace()):
        monkeypatch.setitem(sys.modules, "wandb", module)
        assert log_wandb(analyze(records(), step(), device()), 7, tables=True) is False
    monkeypatch.delitem(sys.modules, "wandb")
    assert log_wandb(analyze(records(), step(), device()), 7) is False
    assert "wandb" not in sys.modules
