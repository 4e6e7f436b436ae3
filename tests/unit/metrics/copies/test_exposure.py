"""Exposure per step and the engine lanes of a window, against hand-made times and a bitmap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.metrics.copies import exposure, groups
from tb_sol_plugin.metrics.time.scope import Scope, scope
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tb_sol_plugin.model.query import Query

K, M, Z = S.KERNEL, S.MEMCPY, S.MEMSET


def recording(rows: list[tuple], steps: list[tuple[int, int]], *, extent: int = 10_000) -> Capture:
    """rows: kind, direction, device, start, duration, bytes, step, communication. steps: bounds; numbered from 5."""
    rows = sorted(rows, key=lambda r: r[3])
    c = list(zip(*rows, strict=True)) if rows else [[]] * 8
    return Capture(
        Facts("test", "x", 0, extent_ns=(0, extent)),
        {
            "device": S.DEVICE.frame({
                "kind": list(c[0]), "direction": list(c[1]), "device": list(c[2]), "start_ns": list(c[3]), "duration_ns": list(c[4]),
                "bytes": list(c[5]), "step": list(c[6]), "communication": list(c[7]), "stream": [7] * len(rows), "link": [0] * len(rows),
            }),
            "steps": S.STEPS.frame({
                "number": [5 + i for i in range(len(steps))], "host_start_ns": [s for s, _ in steps], "host_end_ns": [e for _, e in steps],
                "start_ns": [s for s, _ in steps], "end_ns": [e for _, e in steps], "complete": [True] * len(steps),
            }),
        },
    )  # fmt: skip


def whole(capture: Capture) -> Scope:
    return scope(capture, Query())


TWO = [
    (K, "", 0, 100, 100, -1, 0, False),  # computes 100..200
    (K, "", 0, 300, 100, -1, 0, True),  # communicates 300..400
    (M, "HtoD", 0, 150, 200, 64, 0, False),  # 150..350: 50 hidden, 150 exposed, of which 50 behind communication
    (M, "DtoH", 0, 160, 20, 8, 0, False),  # 160..180: hidden, inside the one before
    (M, "HtoD", 0, 1100, 50, 64, 1, False),  # 50 exposed
    (Z, "Memset", 0, 1140, 20, 8, 1, False),  # 1140..1160: 10 beyond the copy
    (M, "HtoD", 0, 5000, 30, 64, -1, False),  # outside every step
]


def test_each_step_has_its_directions_and_their_union() -> None:
    # GIVEN two steps of 1 us, a hidden, a half hidden and bare copies, and one copy outside WHEN asked step by step
    table = exposure.per_step(recording(TWO, [(0, 1000), (1000, 2000)]), whole(recording(TWO, [(0, 1000), (1000, 2000)])))
    rows = {(r.step, r.direction): r for r in table.itertuples()}

    # THEN worked out by hand: count, plain sum, union, hidden, exposed, exposed behind nothing
    def of(*key: object) -> tuple[int, ...]:
        return tuple(int(getattr(rows[key], n)) for n in ("count", "time_ns", "union_ns", "hidden_ns", "exposed_ns", "idle_exposed_ns"))

    assert of(0, "HtoD") == (1, 200, 200, 50, 150, 100)
    assert of(0, "DtoH") == (1, 20, 20, 20, 0, 0)
    assert of(0, "all") == (2, 220, 200, 50, 150, 100)
    assert of(1, "all") == (2, 70, 60, 0, 60, 60)
    assert of(-1, "all") == (1, 30, 30, 0, 30, 30)
    assert rows[0, "all"].share == pytest.approx(0.15) and rows[0, "all"].step_ns == 1000
    assert rows[-1, "all"].step_ns == -1 and np.isnan(rows[-1, "all"].share)
    assert exposure.worst_step(table) == 0


def test_the_worst_step_is_none_where_all_is_hidden_and_the_first_of_equals() -> None:
    # GIVEN a copy behind a kernel THEN no step is the worst
    hidden = recording([(K, "", 0, 0, 100, -1, 0, False), (M, "HtoD", 0, 10, 20, 8, 0, False)], [(0, 1000)])
    assert exposure.worst_step(exposure.per_step(hidden, whole(hidden))) is None
    # GIVEN the same exposed time in two steps THEN the first of them
    equal = recording([(M, "HtoD", 0, 10, 20, 8, 0, False), (M, "HtoD", 0, 1010, 20, 8, 1, False)], [(0, 1000), (1000, 2000)])
    assert exposure.worst_step(exposure.per_step(equal, whole(equal))) == 0
    # GIVEN copies outside every step alone THEN none: there is no step to show
    outside = recording([(M, "HtoD", 0, 10, 20, 8, -1, False)], [])
    assert exposure.worst_step(exposure.per_step(outside, whole(outside))) is None


def test_a_recording_without_copies_has_no_rows() -> None:
    empty = recording([], [])
    assert not len(exposure.per_step(empty, whole(empty))) and exposure.lanes(empty, (0, 100)) is None


EVENT = st.tuples(
    st.sampled_from([(K, "", False), (K, "", True), (M, "HtoD", False), (M, "DtoH", False), (M, "DtoD", False), (Z, "Memset", False)]),
    st.integers(0, 1), st.integers(0, 390), st.integers(0, 60), st.integers(-1, 2),
)  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(st.lists(EVENT, max_size=16))
def test_parts_add_up_and_agree_with_a_bitmap(events: list[tuple]) -> None:
    # GIVEN any events on two devices
    rows = [(k[0], k[1], device, start, length, 8, step, k[2]) for k, device, start, length, step in events]
    capture = recording(rows, [(0, 150), (150, 300), (300, 450)])
    table = exposure.per_step(capture, whole(capture))
    # THEN hidden and exposed add up, and the directions of all steps to the groups of the table
    assert (table["hidden_ns"] + table["exposed_ns"] == table["union_ns"]).all()
    by_step = groups.table(capture, whole(capture).device, "step")
    single = table[table["direction"] != "all"]
    for name in ("count", "time_ns", "union_ns", "hidden_ns", "exposed_ns", "idle_exposed_ns"):
        assert single[name].sum() == by_step[name].sum(), name
    # AND each row to what a picture of one bit per ns says
    for row in table.itertuples():
        union = hidden = idle = 0
        for device in (0, 1):
            bits = {n: np.zeros(460, bool) for n in ("copy", "work", "talk")}
            for kind, direction, d, start, length, _, step, talks in rows:
                if d != device:
                    continue
                if kind == K:
                    bits["talk" if talks else "work"][start : start + length] = True
                elif step == row.step and row.direction in ("all", direction):
                    bits["copy"][start : start + length] = True
            union += bits["copy"].sum()
            hidden += (bits["copy"] & bits["work"]).sum()
            idle += (bits["copy"] & ~bits["work"] & ~bits["talk"]).sum()
        assert (row.union_ns, row.hidden_ns, row.idle_exposed_ns) == (union, hidden, idle)


def test_lanes_show_events_of_the_window_cut_at_its_ends() -> None:
    # GIVEN the first step's window WHEN its lanes are asked THEN compute, communication and one lane per direction, in this order
    found = exposure.lanes(recording(TWO, [(0, 1000), (1000, 2000)]), (0, 340))
    assert found is not None and list(found.shapes) == ["compute", "communication", "HtoD", "DtoH"]
    # the copy 150..350 is cut at 340: 50 hidden behind 100..200, 140 bare; communication covers nothing here
    assert found.totals["HtoD"] == (190, 50, 140) and found.totals["DtoH"] == (20, 20, 0)
    assert found.totals["communication"] == (40, -1, -1)
    assert {name: ends.tolist() for name, ends in found.exposed["HtoD"].items()} == {"start_ns": [200], "end_ns": [340]}
    copy = {name: values[0] for name, values in found.shapes["HtoD"].items()}
    assert (copy["start_ns"], copy["end_ns"], copy["count"], copy["bytes"]) == (150, 340, 1, 64) and copy["row"] >= 0


def test_lanes_are_of_the_device_with_the_most_exposed_copies() -> None:
    rows = [(M, "HtoD", 0, 0, 10, 8, 0, False), (M, "HtoD", 3, 0, 40, 8, 0, False), (K, "", 0, 5, 5, -1, 0, False)]
    found = exposure.lanes(recording(rows, [(0, 100)]), (0, 100))
    assert found is not None and (found.device, found.devices) == (3, 2)
    assert found.totals["HtoD"][2] == 40 and "compute" not in found.shapes


def test_shapes_below_a_pixel_are_one_and_their_number_is_bounded() -> None:
    # GIVEN 5 000 copies of 1 ns, 2 ns apart, in a window of 10 000 ns drawn in 100 slots WHEN laid out
    rows = [(M, "DtoD", 0, 2 * i, 1, 4 if i else -1, 0, False) for i in range(5000)]
    found = exposure.lanes(recording(rows, [(0, 10_000)]), (0, 10_000), slots=100)
    # THEN they are one shape that still counts them all, without bytes as one has none; and nothing is lost of the exposed time
    assert found is not None
    shapes = found.shapes["DtoD"]
    assert [shapes[name].tolist() for name in ("count", "busy_ns", "bytes")] == [[5000], [5000], [-1]] and list(found.shapes) == ["DtoD"]
    assert found.totals["DtoD"][2] == 5000
    # GIVEN many long copies on top of each other THEN at most twice as many shapes as slots
    piled = [(M, "DtoD", 0, i, 500, 4, 0, False) for i in range(3000)]
    found = exposure.lanes(recording(piled, [(0, 10_000)]), (0, 10_000), slots=100)
    assert found is not None and len(found.shapes["DtoD"]["count"]) <= 200 and found.shapes["DtoD"]["count"].sum() == 3000
