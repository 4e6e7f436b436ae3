"""The largest batch: a straight line through the peaks of two batch sizes, or what to record."""

from __future__ import annotations

import numpy as np
import pytest

from tb_sol_plugin.metrics.memory import expected as B
from tb_sol_plugin.metrics.memory.curves import whole
from tb_sol_plugin.metrics.memory.summary import Amount, Headroom
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts

GB = 10**9


def room(total: int | None, base: int | None) -> Headroom:
    none = Amount(None, "")
    return Headroom(Amount(total, "no total"), Amount(base, "no base"), none, none, none, None, none, none, none, ())


def test_the_largest_batch_by_hand() -> None:
    # GIVEN 20 GB at 4 samples and 32 GB at 8: 3 GB a sample over 8 GB. 80 GB, 2 beside, 22 reserved at 4: 56 left
    found = B.estimated([B.Point(8, 32 * GB, 40 * GB, 1), B.Point(4, 20 * GB, 22 * GB, 1)], room(80 * GB, 2 * GB))
    # THEN 56 / 3 = 18.67 more than 4: 22 fit
    assert (found.per_sample, found.fixed, found.largest) == (3 * GB, 8 * GB, 22) and found.why == B.WHY
    assert [p.batch for p in found.points] == [4, 8]


def test_without_reserved_memory_the_peak_counts() -> None:
    found = B.estimated([B.Point(4, 20 * GB, -1, 1), B.Point(8, 32 * GB, -1, 1)], room(80 * GB, 2 * GB))
    assert found.largest == 4 + 58 // 3


@pytest.mark.parametrize(("points", "total", "base", "why"), [
    ([(4, 20)], 80, 2, B.ONE_BATCH),
    ([(4, 20), (8, 20)], 80, 2, B.NOT_GROWING),
    ([(4, 20), (8, 19)], 80, 2, B.NOT_GROWING),
    ([(4, 20), (8, 32)], None, 2, "no total"),
    ([(4, 20), (8, 32)], 80, None, "no base"),
])  # fmt: skip
def test_no_estimate_has_a_reason(points: list[tuple[int, int]], total: int | None, base: int | None, why: str) -> None:
    found = B.estimated([B.Point(b, p * GB, -1, 1) for b, p in points], room(total and total * GB, base and base * GB))
    assert found.largest is None and found.why == why


def test_batch_sizes_come_from_the_tracker() -> None:
    # GIVEN 6 iterations with batches of 4 and 8 alternating, peaks of 20 and 32 GB, recorded per iteration
    number = np.arange(6)
    columns = {
        "device": [0] * 6, "iteration": number, "time_ns": number * 10, "allocated": [8 * GB] * 6, "since": ["iteration"] * 6,
        "max_allocated": [20 * GB, 32 * GB] * 3, "reserved": [22 * GB, 40 * GB] * 3, "total": [80 * GB] * 6, "device_used": [24 * GB, 42 * GB] * 3,
    }  # fmt: skip
    records = S.MEMORY_RECORDS.frame(columns)
    iterations = S.ITERATIONS.frame({"number": number, "batch": [4, 8] * 3})
    c = Capture(Facts("sol_capture", "x", 0), {"memory_records": records, "iterations": iterations})
    found = B.maximum_batch(c, whole(c)[0])
    assert [(p.batch, p.peak, p.count) for p in found.points] == [(4, 20 * GB, 3), (8, 32 * GB, 3)] and found.largest == 4 + 56 // 3
    # AND without samples, or without peaks of iterations, it says what to record
    none = Capture(c.facts, {"memory_records": records})
    assert B.maximum_batch(none, whole(none)[0]).why == B.NO_BATCH
    whole_process = Capture(c.facts, {"memory_records": S.MEMORY_RECORDS.frame(columns | {"since": ["process"] * 6}), "iterations": iterations})
    assert B.maximum_batch(whole_process, whole(whole_process)[0]).why == B.NO_PEAKS
