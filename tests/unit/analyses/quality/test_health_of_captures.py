"""Trace health of SOL captures: what their recorder noted and lost is told, alone and beside a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.model.report import FactsSection, Report
from tests.support.sol_builder import SolBuilder, small
from tests.support.tiny import trace


def noted() -> SolBuilder:
    """`small` with a note given three times, and an iteration that lost two calls."""
    b = small()
    b.note("shared", "two modules share a name", 3)
    b.iteration(3, 30_000_000, 8_000_000, lost={"symbolic sizes": 2})
    return b


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    noted().write(tmp_path / noted().name)
    trace(tmp_path / "node1_4242.1700000000000000000.pt.trace.json")
    return tmp_path


def health(path: Path) -> Report:
    report = sol.open_capture(str(path)).analyze("health")
    assert isinstance(report, Report)
    return report


def lines(report: Report) -> list[tuple[str, str]]:
    log = report.table("log")
    return list(zip(log["level"].tolist(), log["message"].tolist(), strict=True))


def recorder(report: Report) -> FactsSection:
    found = next(s for s in report.sections if s.id == "recorder")
    assert isinstance(found, FactsSection)
    return found


def test_a_sol_capture_without_a_trace_reports_its_recorder(folder: Path) -> None:
    # GIVEN a capture with a note and lost calls WHEN its health is asked THEN both are told, and what it counts by size is not missing
    report = health(folder / noted().name)
    assert ("recorder", "two modules share a name (3 times)") in lines(report)
    assert recorder(report).values["lost_calls"] == 2 and "lost_calls" not in recorder(report).hidden
    what = dict(zip(report.table("recorded")["what"], report.table("recorded")["recorded"], strict=True))
    assert what["Work (FLOP and bytes)"] == "yes" and what["Operators"] == "no"
    assert "Input shapes" not in what and "Backward pass" not in what


def test_a_trace_reports_the_recorder_of_its_sol_capture(folder: Path) -> None:
    # GIVEN a trace of the same process beside it WHEN the trace's health is asked
    report = health(folder / "node1_4242.1700000000000000000.pt.trace.json")
    # THEN the recorder's lines stand in its log, and how the capture was made beside what the file held
    assert ("recorder", "two modules share a name (3 times)") in lines(report)
    assert ("recorder", "not recorded: symbolic sizes (2 times)") in lines(report)
    assert recorder(report).title == "The SOL capture of this worker"
    assert recorder(report).values["mode"] == "dispatch" and recorder(report).notes["sampled"] == "the first two, then one in 100"


def test_a_trace_alone_has_no_such_lines(tmp_path: Path) -> None:
    # GIVEN a trace without a capture WHEN its health is asked THEN nothing is said by a recorder
    path = tmp_path / "node1_4242.1700000000000000000.pt.trace.json"
    trace(path)
    assert [level for level, _ in lines(health(path)) if level == "recorder"] == []
