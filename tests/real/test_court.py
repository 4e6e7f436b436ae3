"""Findings of recordings of real programs keep the laws of all findings."""

from __future__ import annotations

from tests.court.laws import broken
from tests.support.captures import capture
from tests.support.recordings import SAMPLES, TRACES, over, path_of


@over(TRACES, SAMPLES)
def test_findings_keep_the_laws(name: str) -> None:
    # GIVEN a recording THEN no finding saves more than its step, nor all of them together; evidence is of the recording and its own
    # rows, and the host is blamed for no edge and no gap that its late launches do not explain
    assert broken(capture(path_of(name))) == []
