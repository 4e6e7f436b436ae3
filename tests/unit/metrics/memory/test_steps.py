"""Memory step by step against a slow count over every moment; what stands as a stack adds up."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.metrics.memory import allocations as L
from tb_sol_plugin.metrics.memory import curves as C
from tb_sol_plugin.metrics.memory.leaks import sums_of_steps
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40), st.booleans()), min_size=1, max_size=16),
    st.lists(st.tuples(st.integers(0, 70), st.integers(1, 20)), min_size=1, max_size=4),
    st.integers(0, 50),
)
@settings(max_examples=60, deadline=None)
def test_steps_equal_a_slow_count(choices: list[tuple[int, int, bool]], spans: list[tuple[int, int]], before: int) -> None:
    # GIVEN any events over `before` bytes, and any steps
    level, events = before, []
    for time, size, gain in sorted(choices):
        change = size if gain else -min(size, level)
        level += change
        events.append((time, change, level))
    begin = sorted(dict(spans).items())
    table = S.MEMORY.frame({
        "time_ns": [t for t, _, _ in events], "device_type": [1] * len(events), "device_id": [0] * len(events), "address": [-1] * len(events),
        "bytes": [b for _, b, _ in events], "total_allocated": [a for _, _, a in events],
    })  # fmt: skip
    steps = S.STEPS.frame({"number": range(len(begin)), "host_start_ns": [s for s, _ in begin], "host_end_ns": [s + e for s, e in begin]})
    c = Capture(Facts("kineto", "x", 0), {"memory": table, "steps": steps})
    (curve,) = C.whole(c)
    # WHEN each is summed up THEN peak, end and sums are those of walking through the events that start <= time < end
    found = sums_of_steps(c, curve).set_index("step")
    for number, (start, length) in enumerate(begin):
        inside = [(b, a) for t, b, a in events if start <= t < start + length]
        if number not in found.index:
            assert start > events[-1][0] or start + length <= min(events[0][0], 0)
            continue
        earlier = [a for t, _, a in events if t < start]
        first = earlier[-1] if earlier else before
        row = found.loc[number]
        assert row["peak"] == max([first, *(a for _, a in inside)]) and row["end"] == (inside[-1][1] if inside else first)
        assert row["allocated"] == sum(b for b, _ in inside if b > 0) and row["freed"] == -sum(b for b, _ in inside if b < 0)


def test_a_record_at_the_end_of_a_step_is_of_that_step() -> None:
    # GIVEN records at 10, 20 and 25 ns, steps of 10 ns with a gap of 2 between the second and the third
    records = S.MEMORY_RECORDS.frame({
        "time_ns": [10, 20, 32], "device": [0] * 3, "allocated": [5, 6, 7], "max_allocated": [50, 60, 70], "since": ["iteration"] * 3,
    })  # fmt: skip
    steps = S.STEPS.frame({"number": [0, 1, 2], "host_start_ns": [0, 10, 22], "host_end_ns": [10, 20, 32]})
    c = Capture(Facts("sol_capture", "x", 0), {"memory_records": records, "steps": steps})
    # THEN each step has the peak that its own record tells, and its level
    found = sums_of_steps(c, C.whole(c)[0])
    assert found[["peak", "end"]].values.tolist() == [[50, 5], [60, 6], [70, 7]] and found["allocated"].tolist() == [-1] * 3


def test_a_curve_outside_of_all_steps_has_no_step() -> None:
    records = S.MEMORY_RECORDS.frame({"time_ns": [10], "device": [0], "allocated": [5], "max_allocated": [5], "since": ["process"]})
    steps = S.STEPS.frame({"number": [0], "host_start_ns": [50], "host_end_ns": [60]})
    c = Capture(Facts("sol_capture", "x", 0), {"memory_records": records, "steps": steps})
    assert not len(sums_of_steps(c, C.whole(c)[0]))


def test_a_history_pairs_like_events_do() -> None:
    # GIVEN a history: 10 B taken and given back at one address, 20 B taken twice there, a free of what was there before
    table = S.MEMORY_EVENTS.frame({
        "device": [0] * 6, "action": ["alloc", "free_requested", "free_completed", "alloc", "alloc", "free_requested"],
        "address": [1, 1, 1, 1, 2, 3], "bytes": [10, 10, 10, 20, 30, 40], "time_ns": [1, 2, 3, 4, 5, 6], "frames": [""] * 6,
    })  # fmt: skip
    c = Capture(Facts("memory_snapshot", "x", 0), {"memory_events": table})
    found = L.allocations_of(c, C.whole(c)[0])
    # THEN each has its life: a request to free ends it, not its completion
    assert found is not None
    assert found[["bytes", "start_ns", "end_ns"]].values.tolist() == [[10, 1, 2], [20, 4, L.NEVER], [30, 5, L.NEVER], [40, -1, 6]]
    assert L.states(found, None) == ["freed", "never freed", "never freed", "from before"]
    assert L.states(found, (2, 5)) == ["from before", "never freed", "never freed", "from before"]
    assert L.allocations_in(found, (2, 5)).tolist() == [0, 1, 2] and L.allocations_in(found, (2, 5), 25).tolist() == [2]
    assert L.lifetimes(found).tolist() == [1, -1, -1, -1]


def test_windows_of_a_curve_of_records_leave_the_peak_before_them_out() -> None:
    # GIVEN a record at 10 ns that tells of a peak of 99 B before it WHEN the window begins at 15 ns THEN that peak is not of it
    records = S.MEMORY_RECORDS.frame({
        "time_ns": [10, 20], "device": [0, 0], "allocated": [5, 6], "max_allocated": [99, 30], "since": ["iteration"] * 2,
    })  # fmt: skip
    (curve,) = C.whole(Capture(Facts("sol_capture", "x", 0), {"memory_records": records}))
    part = C.within(curve, (15, 25))
    assert (curve.peak, part.peak, part.peak_ns) == (99, 30, 20) and part.highest is not None and part.highest.tolist() == [-1, 30]
    assert np.array_equal(part.time_ns, [15, 20])
