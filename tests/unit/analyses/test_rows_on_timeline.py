"""Rows that sum calls lead to the longest of these calls on the timeline."""

from __future__ import annotations

import numpy as np
import pytest

from tb_sol_plugin.metrics.report.longest import START, TIME, longest
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import TableSection
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back

MS = 1_000_000


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """Two steps of 10 ms. In the first `forward` of 2 ms with a Linear of 1 ms around an `aten::mm` of 0.2 ms, whose kernel takes 3 ms; in
    the second `forward` of 4 ms, Linear 3 ms, mm 0.9 ms, kernel 1 ms. The device works in [2, 5), [6, 7) and [12, 13) ms.
    """
    t = TraceBuilder()
    for number, (begin, phase, module, call, kernel) in enumerate(((0, 2.0, 1.0, 0.2, 3.0), (10, 4.0, 3.0, 0.9, 1.0))):
        t.step(number, begin * MS, 10 * MS)
        t.annotation("forward", begin * MS, round(phase * MS))
        t.module("Linear_0", begin * MS + 1000, round(module * MS), module_id=0)
        t.op("aten::mm", begin * MS + 2000, round(call * MS), shapes=[[64, 64], [64, 64]], types=["float", "float"])
        t.launch("ampere_sgemm", at=begin * MS + 3000, start=(begin + 2) * MS, duration=round(kernel * MS))
    t.launch("late", at=round(5.9 * MS), start=6 * MS, duration=1 * MS)
    return read_back(t, tmp_path_factory.mktemp("rows"))


def stretches(capture: Capture, page: str, section: str, column: str, **query: str) -> dict[str, tuple[int | None, int | None]]:
    """(start, duration) of each row of a table by the text of a column, ns after the begin of the timeline."""
    table = capture.analyze(page, **query).section(section)
    assert isinstance(table, TableSection) and table.timeline is not None
    on, data = table.timeline, table.data
    shift = [None if v is None else int(v) + on.offset_ns for v in data[on.start]]  # type: ignore[arg-type]
    return dict(zip(map(str, data[column]), zip(shift, data[on.duration], strict=True), strict=True))  # type: ignore[arg-type]


def test_the_longest_call_of_a_row_is_where_it_was(capture: Capture) -> None:
    # WHEN pages sum calls by name THEN each row knows the start and the duration of its longest call
    assert stretches(capture, "operators", "operators", "name")["aten::mm"] == (10 * MS + 2000, 900_000)
    assert stretches(capture, "modules", "modules", "name")["Linear_0"] == (10 * MS + 1000, 3 * MS)
    assert stretches(capture, "modules", "classes", "class_name")["Linear"] == (10 * MS + 1000, 3 * MS)
    phases = stretches(capture, "phases", "phases", "name")
    assert phases["forward"] == (10 * MS, 4 * MS) and phases["ProfilerStep"] == (0, 10 * MS)
    assert stretches(capture, "kernels", "kernels", "name")["ampere_sgemm"] == (2 * MS, 3 * MS)
    # AND a point of the roofline the host call whose device time is the longest, or its longest kernel
    assert stretches(capture, "roofline", "ops", "name")["aten::mm"] == (2000, 200_000)
    assert stretches(capture, "roofline", "ops", "name", by="kernel")["ampere_sgemm"] == (2 * MS, 3 * MS)
    assert stretches(capture, "overview", "operators", "name")["aten::mm"] == (2000, 200_000)
    # AND a cause of idle time its longest gap: [7, 12) before the kernel launched at 10
    assert (7 * MS, 5 * MS) in stretches(capture, "gpu_breakdown", "idle", "cause").values()


def test_only_the_calls_of_the_selection_count(capture: Capture) -> None:
    assert stretches(capture, "operators", "operators", "name", step="0")["aten::mm"] == (2000, 200_000)
    assert stretches(capture, "modules", "modules", "name", step="0")["Linear_0"] == (1000, 1 * MS)


def test_ties_take_the_earliest_call_and_rows_without_calls_are_unknown() -> None:
    # GIVEN calls of rows 1, 1, 1, none and 2, the first two equally long
    row, start = np.array([1, 1, 1, -1, 2]), np.array([50, 20, 5, 0, 7])
    found = longest(row, start, np.array([9, 9, 3, 100, 0]), 4)
    assert found[START].isna().tolist() == [True, False, False, True]
    assert found[START][1] == 20 and found[TIME][1] == 9 and found[TIME][2] == 0
    # AND by another measure another call
    by = longest(row, start, np.array([9, 9, 3, 100, 0]), 4, np.array([0.5, 0.1, 0.7, 9.0, 0.0]))
    assert by[START][1] == 5 and by[TIME][1] == 3
    assert longest(row[:0], start[:0], start[:0], 2)[START].isna().all()
