"""What is per step is of the copies that steps launched: an upload before the first step is in the sums, and in no step."""

from __future__ import annotations

from pathlib import Path

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import FactsSection, FigureSection, Report
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back

US = 1_000


def recording(*, rank: int | None = None) -> TraceBuilder:
    """A synchronous upload [0, 900) us of 90 MB before two steps of 1 ms, each with one of 1 MB in 100 us; a kernel hides 20 us of that."""
    t = TraceBuilder(**({} if rank is None else {"rank": rank, "world_size": 2}))  # type: ignore[arg-type]
    t.copy("HtoD", 0, 900 * US, src="Pinned", bytes=90_000_000, call=(0, 901 * US), api="cudaMemcpy")
    for i in (1, 2):
        at = i * 1000 * US
        t.step(i, at, 1000 * US)
        t.launch("gemm", at=at + 90 * US, start=at + 200 * US, duration=20 * US, stream=9)
        t.copy("HtoD", at + 200 * US, 100 * US, src="Pinned", bytes=1_000_000, call=(at + 100 * US, 201 * US), api="cudaMemcpy")
    return t


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    return read_back(recording(), tmp_path_factory.mktemp("trace"))


def test_figures_per_step_of_the_summary(capture: Capture) -> None:
    found = capture.analyze("memcpy")
    assert isinstance(found, Report)
    facts = found.facts
    # THEN the sums are of all three copies, 900 + 2 x 100 us; a step has 100 us, 80 of them exposed
    assert (facts["count"], facts["time_ns"], facts["exposed_ns"], facts["steps"]) == (3, 1_100 * US, 1_060 * US, 2)
    assert (facts["time_per_step_ns"], facts["exposed_per_step_ns"]) == (100 * US, 80 * US)
    assert found.headline.startswith("The copies of a step take **100.0\u202fµs**, 80.00\u202fµs of it exposed; outside of every step one takes 900.0\u202fµs.")
    # AND one step by itself says the same
    one = capture.analyze("memcpy", step="1")
    assert isinstance(one, Report) and one.facts["time_ns"] == 100 * US and one.headline.startswith("All copies together take **100.0")


def test_figures_per_step_of_the_waits(capture: Capture) -> None:
    found = capture.analyze("memcpy_findings")
    assert isinstance(found, Report)
    # 901 us and twice 201 us held; 201 us in each step
    assert (found.facts["held"], found.facts["held_ns"]) == (3, 1_303 * US)
    tiles = found.section("answer")
    assert isinstance(tiles, FactsSection) and tiles.notes["held_ns"] == "201.0\u202fµs per step"


def test_figures_per_step_of_the_ranks(tmp_path: Path) -> None:
    for rank in range(2):
        recording(rank=rank).write(tmp_path / "job" / f"rank{rank}.1.pt.trace.json")
    found = sol.open(str(tmp_path / "job"), cache=False).analyze("memcpy_ranks")
    assert isinstance(found, Report)
    row = found.table("ranks").iloc[0]
    assert (row["count"], row["bytes"], row["time_ns"], row["exposed_ns"]) == (3, 92_000_000, 1_100 * US, 1_060 * US)
    assert (row["count_per_step"], row["bytes_per_step"], row["time_per_step_ns"]) == (1.0, 1_000_000, 100 * US)
    assert (row["exposed_per_step_ns"], row["host_per_step_ns"]) == (80 * US, 201 * US)
    assert found.facts["time_per_step_ns"] == 100 * US and found.facts["bytes_per_step"] == 1_000_000


def test_copies_side_by_side_run_once_in_the_words_beside_the_engines(tmp_path: Path) -> None:
    # GIVEN a copy up [100, 200) us and one back [150, 250) us, a kernel [100, 120) us
    t = TraceBuilder()
    t.step(1, 0, 1000 * US)
    t.launch("gemm", at=50 * US, start=100 * US, duration=20 * US, stream=9)
    t.copy("HtoD", 100 * US, 100 * US, src="Pinned", bytes=1 << 20, call=(60 * US, US))
    t.copy("DtoH", 150 * US, 100 * US, dst="Pinned", bytes=1 << 20, call=(70 * US, US), stream=8)
    found = read_back(t, tmp_path).analyze("memcpy")
    # THEN the lanes are 100 us each, together they run for 150 us of which 130 are bare
    assert isinstance(found, Report)
    engines = found.section("engines")
    assert isinstance(engines, FigureSection)
    assert engines.summary == "Copies of step 1 run for 150.0\u202fµs, 130.0\u202fµs of it behind no computation, in 1.00\u202fms."
