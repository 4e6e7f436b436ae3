"""A small timeline shows the longest of the spans it is about, with room, and marks those in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tb_sol_plugin import ingest
from tb_sol_plugin.metrics.report.stretch import MOST_MARKED, stretch
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import FindingsSection, Report, TableSection, TimelineSection
from tests.support.trace_builder import TraceBuilder


def recording(folder: Path) -> Capture:
    t = TraceBuilder()
    t.step(1, 0, 4_000_000)
    for at in range(0, 3_000_000, 500_000):
        t.op("aten::mm", at, 300_000, shapes=[[8, 8], [8, 8]], types=["float", "float"])
        t.launch("gemm", at=at + 100_000, start=at + 250_000, duration=40_000)
    return ingest.read(str(t.write(folder / "w.1.pt.trace.json")))


def test_the_longest_span_is_shown_with_room_and_its_neighbors_marked(tmp_path: Path) -> None:
    # GIVEN spans of 100 to 400 µs, one of them far away
    c = recording(tmp_path)
    starts = np.array([0, 1_000_000, 1_500_000, 90_000_000])
    ends = starts + np.array([100_000, 400_000, 200_000, 100_000])
    found = stretch(c, "when", "When", (starts, ends), "idle")
    # THEN the window is twice the longest one to each side of it, and the word stands at that one alone
    assert found is not None and (found.start_ns, found.end_ns) == (200_000, 2_200_000)
    assert found.highlight == [(1_000_000, 1_400_000, "idle"), (1_500_000, 1_700_000, "")]
    # AND of very many the longest are marked, in order of time
    many = np.arange(1_000) * 1_000
    marked = stretch(c, "when", "When", (many, many + 1 + np.arange(1_000) % 7))
    assert marked is not None and len(marked.highlight) <= MOST_MARKED and marked.highlight == sorted(marked.highlight)
    # AND nothing is shown of nothing
    assert stretch(c, "when", "When", (np.zeros(0, np.int64), np.zeros(0, np.int64))) is None


def test_a_finding_shows_the_stretch_that_proves_it(tmp_path: Path) -> None:
    # GIVEN a recording whose device waits for the host WHEN one finding is asked for THEN its timeline lies where its rows are
    c = recording(tmp_path)
    page = c.analyze("findings")
    assert isinstance(page, Report)
    rules = [f.rule for s in page.sections if isinstance(s, FindingsSection) for f in s.findings if f.rows is not None]
    assert rules
    for rule in rules:
        one = c.analyze("findings", rule=rule)
        assert isinstance(one, Report)
        (when,) = [s for s in one.sections if isinstance(s, TimelineSection)]
        tables = [s for s in one.sections if isinstance(s, TableSection)]
        assert when.start_ns is not None and when.end_ns is not None and tables
        inside = [r for s in tables for r in s.data["recorded_ns"] if r is not None]
        marked = [(a, b) for a, b, _ in when.highlight]
        assert all(when.start_ns < b and a < when.end_ns for a, b in marked)
        if any(s.id == "gaps" for s in tables):
            assert any(a == r for a, _ in marked for r in inside)
