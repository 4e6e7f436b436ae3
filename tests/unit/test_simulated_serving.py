"""The simulated serving sample against the truth that its script wrote beside it: what the product reads is what was put in."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from samples.simulate_serving import FOLDER, TRACE, main
from tb_sol_plugin.model.capture import Capture
from tests.support.captures import capture, report

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / FOLDER
TRUTH: dict[str, Any] = json.loads((SAMPLE / "truth.json").read_text())


@pytest.fixture
def served() -> Capture:
    return capture(SAMPLE / TRACE)


def test_the_script_makes_the_committed_files(tmp_path: Path) -> None:
    # GIVEN the script WHEN it runs THEN it writes what is committed, byte by byte once it is unpacked
    main(tmp_path)
    made, committed = _texts(tmp_path), _texts(SAMPLE)
    assert sorted(made) == sorted(committed) and [name for name, text in made.items() if text != committed[name]] == []


def _texts(folder: Path) -> dict[str, bytes]:
    packed = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return {name: gzip.decompress(body) if name.endswith(".gz") else body for name, body in packed.items()}


def test_every_graph_launch_has_its_graph(served: Capture) -> None:
    table = served.tables["graph_launches"]
    found = table[["mode", "batch", "captured_batch", "events", "device_ns"]].astype({"mode": str}).to_dict("records")
    assert found == TRUTH["launches"] and table["how"].tolist() == [0] * len(table) and not served.facts.warnings


def test_iterations_are_steps(served: Capture) -> None:
    names = ["kind", "requests", "context_tokens", "generation_tokens", "batch", "device_events"]
    found = served.steps[names].astype({"kind": str}).to_dict("records")
    assert found == [{name: one[name] for name in names} for one in TRUTH["iterations"]]
    assert (served.steps["host_end_ns"] - served.steps["host_start_ns"]).tolist() == [one["wall_ns"] for one in TRUTH["iterations"]]


def test_operators_and_modules_have_the_time_of_eager_and_replayed_work(served: Capture) -> None:
    table = report(served, "operators").table("operators")
    assert {r["name"]: {k: r[k] for k in ("calls", "device_self_ns")} for r in table.to_dict("records")} == TRUTH["operators"]
    table = report(served, "modules").table("modules").set_index("name")
    for name, one in TRUTH["modules"].items():
        assert {k: table.loc[name, k] for k in one} == one
    assert len(served.device) == TRUTH["device_events"] and int(served.device["duration_ns"].sum()) == TRUTH["device_ns"]
