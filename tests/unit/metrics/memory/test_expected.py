"""What a worker held, from whatever was recorded of it: records of the program, memory events, a timeline, or some of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tb_sol_plugin.metrics.memory import expected as B
from tb_sol_plugin.metrics.memory.curves import whole
from tb_sol_plugin.metrics.memory.expected import NO_GRADIENTS, NO_OPTIMIZER, NO_PEAK, NOTHING, ROWS, actual
from tb_sol_plugin.metrics.memory.summary import Amount, Headroom
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tests.unit.metrics.memory.test_attribution import made
from tests.unit.metrics.memory.test_budget import capture_of

LEVELS = [(10, 0x10, 100, 1_100), (20, 0x20, 300, 1_400), (30, 0x20, -300, 1_100)]
"""(time, address, bytes, total): 1,000 bytes from before, at most 1,400."""


def beside(records: Capture, events: Capture, **tables: pd.DataFrame) -> Capture:
    """Records of a program with the memory events of a trace."""
    return Capture(events.facts, {**events.tables, **{n: records.tables[n] for n in ("memory_records", "memory_parts")}, **tables})


def timeline(device: str = "") -> pd.DataFrame:
    """Parameters 400, activations 50 and then 150 bytes, gradients 30 at the second moment."""
    rows = [(5, "parameter", 400), (5, "activation", 50), (9, "activation", 150), (9, "gradient", 30)]
    return S.MEMORY_TIMELINE.frame({
        "time_ns": np.array([r[0] for r in rows], np.int64), "device": pd.Categorical([device] * len(rows)),
        "category": pd.Categorical([r[1] for r in rows]), "bytes": np.array([r[2] for r in rows], np.int64),
    })  # fmt: skip


def bytes_of(capture: Capture) -> dict[str, int | None]:
    found = actual(capture)
    assert tuple(found.parts) == ROWS
    for one in found.parts.values():  # whatever is unknown says why, whatever is known says from where
        assert bool(one.why) == (one.bytes is None) and bool(one.source) == (one.bytes is not None)
    return {name: one.bytes for name, one in found.parts.items()}


def test_a_part_that_nobody_recorded_is_unknown_and_not_zero() -> None:
    found = actual(capture_of([]))
    assert {one.bytes for one in found.parts.values()} == {None}
    assert found.parts["parameters"].why == NOTHING and found.parts["total"].why == NO_PEAK
    assert (found.parameters, found.master_weight_bytes, found.unknown, found.flag) == (None, None, None, "")


def test_a_part_is_the_largest_of_several_records() -> None:
    # GIVEN gradients between the steps, and moments after the first one
    parts = [(0, "params", 40), (0, "grads", 0), (0, "exp_avg", 0), (1, "params", 40), (1, "grads", 40), (1, "exp_avg", 80), (1, "exp_avg_sq", 80),
             (2, "params", 40), (2, "grads", 0), (2, "exp_avg", 80), (2, "exp_avg_sq", 80)]  # fmt: skip
    found = bytes_of(capture_of([{"iteration": k} for k in range(3)], parts))
    assert (found["parameters"], found["gradients"], found["optimizer_state"]) == (40, 40, 160)
    # AND what no record looked for is not known
    assert found["main_parameters"] is None


def test_gradients_that_no_record_met_are_not_known() -> None:
    c = capture_of([{"iteration": 0}], [(0, "params", 40), (0, "grads", 0), (0, "main_grads", 0), (0, "master_weights", 0)])
    assert actual(c).parts["gradients"].why == NO_GRADIENTS and actual(c).parts["optimizer_state"].why == NO_OPTIMIZER
    # AND with main gradients beside them, there are none
    c = capture_of([{"iteration": 0}], [(0, "params", 40), (0, "grads", 0), (0, "main_grads", 80)])
    assert bytes_of(c)["gradients"] == 0


def test_two_moments_per_parameter_identify_adam() -> None:
    both = [(0, "exp_avg", 80), (0, "exp_avg_sq", 80)]
    assert actual(capture_of([{"iteration": 0}], both)).optimizer == "adam"
    assert actual(capture_of([{"iteration": 0}], both[:1])).optimizer == ""
    assert actual(capture_of([{"iteration": 0}], [*both[:1], (0, "exp_avg_sq", 40)])).optimizer == ""


def test_the_allocators_own_peak_comes_before_a_trace() -> None:
    # GIVEN a record with a peak of 2,000 bytes THEN that is in use at most, and what stays of it is no activation
    events = made(LEVELS)
    records = capture_of([{"device": 0, "iteration": 0, "max_allocated": 2_000}], [(0, "params", 1_000), (0, "buffers", 100), (0, "grads", 5)])
    assert bytes_of(records)["total"] == 2_000 == bytes_of(beside(records, events))["total"]
    found = actual(records).parts["activations"]
    assert found.bytes == 900 and "what is left of the peak" in found.estimated
    # AND without the record it is the trace's
    assert bytes_of(events)["total"] == 1_400


def test_memory_of_the_host_is_what_was_counted_plus_what_was_added() -> None:
    # GIVEN a host whose totals begin at 0 with the profiler, at 100 ns, and records before and after it
    host = made([(110, 0x10, 100, 100), (120, 0x20, 300, 400), (130, 0x20, -300, 100)], device=(0, -1))
    records = capture_of(
        [{"iteration": 0, "time_ns": 50, "process_used": 9_000}, {"iteration": 1, "time_ns": 200, "process_used": 9_000}],
        [(0, "params", 40), (0, "exp_avg", 80), (1, "params", 40), (1, "exp_avg", 80), (1, "grads", 999)],
    )
    # THEN in use at most are the 120 bytes that were counted before it and the 400 that it saw
    total = actual(beside(records, host)).parts["total"]
    assert (total.bytes, total.source) == (520, "records of the program and the trace") and total.estimated
    # AND of the host alone nothing is said
    assert bytes_of(host)["total"] is None


def test_a_timeline_fills_in_what_no_record_has() -> None:
    # GIVEN a timeline alone THEN its categories at its peak, and its peak
    alone = capture_of([])
    alone.tables["memory_timeline"] = timeline()
    found = bytes_of(alone)
    assert (found["parameters"], found["gradients"], found["activations"], found["total"]) == (400, 30, 150, 580)
    assert actual(alone).parts["parameters"].estimated and not actual(alone).parts["activations"].estimated
    # AND beside records only what these do not tell
    records = capture_of([{"iteration": 0}], [(0, "params", 40), (0, "grads", 0)])
    records.tables["memory_timeline"] = timeline("cpu")
    found = bytes_of(records)
    assert (found["parameters"], found["gradients"], found["activations"], found["optimizer_state"]) == (40, 30, 150, None)


@pytest.mark.parametrize(("device", "total"), [(0, 1_400), (1, None)])
def test_a_trace_of_another_device_is_not_used(device: int, total: int | None) -> None:
    records = capture_of([{"device": device, "iteration": 0}], [(0, "params", 1_000)])
    found = actual(beside(records, made(LEVELS)))
    assert found.device == device and found.parts["total"].bytes == total


# -- The largest batch: a straight line through the peaks of two batch sizes, or what to record ----------------------


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
