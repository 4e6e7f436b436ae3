"""A logdir full of trouble: each file gives its own message, and the good recording loads all the same."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.errors import BadInput, SolError
from tb_sol_plugin.model.answer import Run
from tb_sol_plugin.model.recordings import Recording
from tb_sol_plugin.model.report import Report
from tests.support.trace_builder import TraceBuilder


def good() -> TraceBuilder:
    t = TraceBuilder()
    t.op("aten::mm", 0, 1_000)
    t.launch("k", at=100, start=500, duration=123)
    return t


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    """Good recordings under odd names, between files that are broken in every way."""
    root = tmp_path / "logs"
    good().write(root / "job <script>alert('x')</script> & 100%" / "w.1.pt.trace.json.gz")
    good().write(root / "行列 — ядро" / 'quote "me".2.pt.trace.json')
    data = good().data()
    bad = root / "bad"
    bad.mkdir()
    (bad / "empty.1.pt.trace.json").write_bytes(b"")
    (bad / "text.1.pt.trace.json").write_text("this is no trace")
    (bad / "cut.1.pt.trace.json").write_bytes(data[: len(data) * 2 // 3])
    (bad / "cutgz.1.pt.trace.json.gz").write_bytes(gzip.compress(data)[:-40])
    (bad / "numbers.json").write_text("[1, 2, 3]")
    (bad / "dir.1.pt.trace.json").mkdir()
    os.symlink(bad / "nowhere.json", bad / "dangling.1.pt.trace.json")
    os.symlink(root, bad / "loop")
    return root


def test_runs_with_odd_names_open(logdir: Path) -> None:
    # GIVEN runs whose names hold markup, quotes, % and other scripts WHEN each is opened by its name
    for name in ("job <script>alert('x')</script> & 100%", "行列 — ядро"):
        run = sol.open(str(logdir), run=name)
        # THEN its one recording is there with all it holds
        (capture,) = run.captures
        answer = capture.analyze("gpu_breakdown")
        assert isinstance(answer, Report) and answer.facts["busy_ns"] == 123
        assert answer.selection["run"] == name


def test_each_broken_file_has_its_own_message_and_costs_nothing_else(logdir: Path) -> None:
    # GIVEN the run of broken files WHEN every recording of it is opened in turn
    run = sol.open(str(logdir), run="bad")
    outcome = {recording.worker: what_happens(run, recording, logdir) for recording in run.recordings}
    # THEN the cut ones give what they hold, the others say what is wrong; the directory and the dangling link are no recordings
    assert set(outcome) == {"empty", "text", "cut", "cutgz"}
    assert outcome["cut"].endswith("events") and outcome["cutgz"].endswith("events")
    assert "empty" in outcome["empty"] and "not JSON" in outcome["text"]


def what_happens(run: Run, recording: Recording, logdir: Path) -> str:
    """The message of a recording that cannot be opened, or how many events it gives."""
    try:
        capture = Run("one", [recording], run.source).captures[0]
    except SolError as error:
        assert isinstance(error, BadInput) and error.hint and str(logdir) not in error.line()
        return error.message
    assert capture.facts.truncated and capture.facts.warnings
    return f"{capture.facts.total_events} events"


def test_a_grown_file_is_read_again(tmp_path: Path) -> None:
    # GIVEN a recording that is opened while only half of it is written
    t = good()
    path = tmp_path / "w.1.pt.trace.json"
    path.write_bytes(t.data()[:900])
    half = sol.open_capture(str(path))
    # WHEN the rest arrives THEN the next opening sees the whole, not the cached half
    path.write_bytes(t.data())
    whole = sol.open_capture(str(path))
    assert half.facts.truncated and not whole.facts.truncated
    assert whole.facts.total_events == len(t.events) > half.facts.total_events
