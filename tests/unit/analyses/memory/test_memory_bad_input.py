"""Recordings of memory that are hostile, damaged, old or odd: what the page and the doctor say of each."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.cli import command, doctor
from tb_sol_plugin.errors import BadInput
from tb_sol_plugin.metrics.memory.sources import memories
from tb_sol_plugin.model.report import Report, to_plain
from tests.support import memory_snapshot as M
from tests.support.trace_builder import TraceBuilder
from tests.unit.ingest.memory.test_memory_hostile import gadgets

Capsys = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TB_SOL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(doctor, "_installed", lambda out: 0)


def told(folder: Path, capsys: Capsys) -> tuple[int, str]:
    """(exit status, text) of `tb-sol doctor`, in one line."""
    status = command.main(["doctor", str(folder)])
    return status, " ".join(capsys.readouterr().out.split())


def page(path: Path, **query: str) -> Report:
    """The report of memory; as JSON it holds no NaN."""
    report = sol.open_capture(str(path), cache=False).analyze("memory", **query)
    assert isinstance(report, Report), report
    json.dumps(to_plain(report), allow_nan=False)
    return report


def test_hostile_pickles_end_in_words_everywhere_and_run_nothing(tmp_path: Path, capsys: Capsys) -> None:
    # GIVEN a logdir of pickles that look like snapshots and run a command where they are loaded
    folder = tmp_path / "logs"
    folder.mkdir()
    for i, body in enumerate(gadgets(tmp_path / "mark").values()):
        (folder / f"bad{i}.pickle").write_bytes(body)
    # WHEN each is opened, and all are examined THEN every one has its sentence, and nothing has run
    for path in sorted(folder.iterdir()):
        with pytest.raises(BadInput) as error:
            sol.open_capture(str(path), cache=False)
        assert error.value.message and error.value.hint
    status, text = told(folder, capsys)
    assert status == 1 and all(f"bad{i}" in text for i in range(len(list(folder.iterdir())))) and "pickle" in text
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.9, 0.999])
def test_a_cut_snapshot_ends_in_words(tmp_path: Path, capsys: Capsys, keep: float) -> None:
    # GIVEN a snapshot of which the end is missing WHEN opened and examined THEN it says so
    body = pickle.dumps(M.snapshot())
    path = tmp_path / "logs" / "rank0.pickle"
    path.parent.mkdir()
    path.write_bytes(body[: int(len(body) * keep)])
    with pytest.raises(BadInput) as error:
        sol.open_capture(str(path), cache=False)
    status, text = told(path.parent, capsys)
    assert status == 1 and " ".join(error.value.message.split()) in text


def older() -> object:
    """As versions of torch before 2.0 gave it: segments alone, without what was asked for, without addresses of blocks."""
    segments = copy.deepcopy(M.snapshot()["segments"])
    for segment in segments:
        for block in segment["blocks"]:
            for key in ("requested_size", "frames", "address"):
                block.pop(key, None)
    return segments


def without_times() -> object:
    value = M.snapshot()
    for entry in value["device_traces"][0]:
        del entry["time_us"]
    return value


def history_alone() -> object:
    return {"segments": [], "device_traces": M.snapshot()["device_traces"]}


def contradicting() -> object:
    """Frees of more than was ever there."""
    value = M.snapshot()
    value["device_traces"][0] += [M.entry("alloc", 1 << 40, 1 << 40, 60)]
    return value


def backwards() -> object:
    value = M.snapshot()
    value["device_traces"][0][3]["time_us"] -= 24
    return value


@pytest.mark.parametrize("made", [older, without_times, history_alone, contradicting, backwards])
def test_odd_snapshots_have_a_page_that_says_what_is_unknown(tmp_path: Path, capsys: Capsys, made: Callable[[], object]) -> None:
    # GIVEN a snapshot of an older version, without times, without blocks, with a history that contradicts its blocks, out of order
    (tmp_path / "logs").mkdir()
    path = M.write(tmp_path / "logs" / "rank0.pickle", made())
    # WHEN shown THEN the page is there, and who holds memory adds up to what is in use, the unknown with it
    for by in ("auto", "frame", "category"):
        held = page(path, by=by).table("peak")
        capture = sol.open_capture(str(path), cache=False)
        assert int(held["bytes"].sum()) == memories(capture)[0].best.peak
    status, text = told(path.parent, capsys)
    assert status == 0 and "memory snapshot" in text


def test_a_history_that_contradicts_its_blocks_shows_changes_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    report = page(M.write(tmp_path / "logs" / "rank0.pickle", contradicting()), device="device 0")
    assert any("no totals" in n.text for n in report.notices)


def odd_trace(path: Path) -> Path:
    """Two devices: one begun with memory in use, whose frees have no allocation; one whose events carry neither totals nor addresses."""
    t = TraceBuilder()
    t.op("aten::mm", 1_000, 50_000)
    t.memory(2_000, -4_000, address=9, allocated=6_000, reserved=1 << 20)
    t.memory(3_000, 500, address=1, allocated=6_500, reserved=1 << 20)
    t.memory(4_000, 700, address=None, device_id=1)
    t.memory(5_000, -900, address=None, device_id=1)
    return t.write(path)


def test_a_trace_that_begins_with_memory_in_use(tmp_path: Path, capsys: Capsys) -> None:
    # GIVEN such a trace WHEN its first device is shown THEN 10,000 B were there before; none is made up for the second
    path = odd_trace(tmp_path / "a.pt.trace.json")
    held = page(path, device="CUDA 0").table("peak")
    assert held.loc[held["name"].str.contains("before"), "bytes"].tolist() == [10_000]
    assert any("no totals" in n.text for n in page(path, device="CUDA 1").notices)
    status, _ = told(tmp_path, capsys)
    assert status == 0
