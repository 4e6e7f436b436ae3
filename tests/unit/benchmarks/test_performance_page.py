"""The page of measured times: what it compares, and what it says of a figure that was not measured."""

from __future__ import annotations

from typing import Any

from benchmarks.performance_page import floor, page

FIRST = {
    "MB": 850.0, "events": 2_000_000, "gunzip alone": 0.25, "cpu gunzip alone": 0.25, "read + decode": 1.5, "cpu read + decode": 2.5,
    "trees + links": 0.5, "cpu trees + links": 0.5, "cache write": 0.0, "cpu cache write": 0.0, "analyses": 1.0, "cpu analyses": 1.2,
    "first open": 3.0, "cpu first open": 4.2, "peak MB": 900.0, "largest answer MB": 0.66, "analysis kernels": 0.7,
    "cpu analysis kernels": 0.7, "analysis <steps>": 0.3, "cpu analysis <steps>": 0.5,
}  # fmt: skip
THEIRS = {"first open": 60.0, "cpu first open": 63.0, "peak MB": 4000.0}
FIGURES: dict[str, Any] = {
    "machine": "a CPU", "cores": 2, "python": "3.11.7", "date": "2026-01-01", "repeats": 5,
    "files": {"1GB": {"first": FIRST, "second": {"second open": 0.1}, "theirs": THEIRS}, "lone": {"first": FIRST, "second": {}}},
    "grow": {"1GB": {"first": FIRST, "second": {}}},
}  # fmt: skip


def rows() -> dict[str, list[str]]:
    lines = (line.strip("| ").split(" | ") for line in page(FIGURES).splitlines() if line.startswith("| "))
    return {line[0]: line[1:] for line in lines}


def test_times_stand_beside_those_of_the_other_profiler_and_the_lower_bound() -> None:
    # GIVEN 850 MB that unpack in 0.25 s THEN a parser of 0.85 GB/s needs 1 s more
    assert floor(FIRST) == 1.25
    # AND the ratios are of wall clock, 60 to 3, and of work, 63 to 4.2
    assert rows()["times faster"] == ["20.0", "—"]
    assert rows()["times less work"] == ["15.0", "—"]
    assert rows()["tb-sol, s"][0] == "3.00 (4.20)"


def test_what_was_not_measured_is_a_dash() -> None:
    # GIVEN a file without the other profiler and without a second opening THEN a dash stands there, no zero
    assert rows()["torch-tb-profiler, s"] == ["60.00 (63.00)", "—"]
    assert rows()["second open"] == ["0.100", "—"]


def test_analyses_stand_in_the_order_of_their_cost() -> None:
    # GIVEN two analyses THEN the slower stands first
    names = list(rows())
    assert names.index("`kernels`") < names.index("`<steps>`")
