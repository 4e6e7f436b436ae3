"""Who held memory at a moment: by hand, and against a slow replay with a map of addresses, on any stream of events."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.memory.attribution import BEFORE, GROUPINGS, UNKNOWN, Attribution, By, attribution, groupings_of
from tb_sol_plugin.metrics.memory.curves import Curves, curves
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tests.support.trace_builder import TraceBuilder
from tests.unit.metrics.memory.test_replay import recorded


def bytes_by_name(found: Attribution) -> dict[str, int]:
    return dict(zip(found.rows["name"], found.rows["bytes"].tolist(), strict=True))


def first(capture: Capture) -> Curves:
    return curves(capture)[0]


def test_live_allocations_at_the_peak_are_attributed_by_every_grouping(tmp_path: Path) -> None:
    # GIVEN 1,000 B from before, then 100 B by an empty inside addmm, 40 B by addmm itself: the peak, 1,140 B
    c = recorded(tmp_path)
    curve = first(c)
    # WHEN asked who held it THEN both allocations have their innermost operator, and what was there before stands apart
    found = attribution(c, curve, "operator")
    assert (found.time_ns, found.total, found.notes) == (curve.peak_ns, 1_140, ())
    assert bytes_by_name(found) == {"aten::empty": 100, "aten::addmm": 40, BEFORE: 1_000, UNKNOWN: 0}
    assert found.rows["kind"].tolist() == ["row", "row", "before", "unknown"]
    assert found.rows["allocations"].tolist() == [1, 1, -1, -1] and not found.rows["estimated"].any()
    names = c.host["name"].astype(str).to_numpy()
    assert [names[i] for i in found.rows["host_row"].tolist() if i >= 0] == ["aten::empty", "aten::addmm"]
    # AND by module, line and phase they are one row
    assert bytes_by_name(attribution(c, curve, "module")) == {"Linear_0": 140, BEFORE: 1_000, UNKNOWN: 0}
    assert bytes_by_name(attribution(c, curve, "frame")) == {"model.py(7): forward": 140, BEFORE: 1_000, UNKNOWN: 0}
    assert bytes_by_name(attribution(c, curve, "phase")) == {"ProfilerStep/forward": 140, BEFORE: 1_000, UNKNOWN: 0}
    assert set(groupings_of(c, curve)) >= {"operator", "module", "frame", "phase"}


def test_live_allocations_at_another_time(tmp_path: Path) -> None:
    # GIVEN the same recording WHEN asked after 300 B from before were freed, and after everything of the window was
    c = recorded(tmp_path)
    assert bytes_by_name(attribution(c, first(c), "operator", 7_000)) == {"aten::empty": 100, BEFORE: 700, UNKNOWN: 0}
    assert bytes_by_name(attribution(c, first(c), "operator", 12_000)) == {BEFORE: 700, UNKNOWN: 0}
    # AND before the first event THEN all that was in use was there before
    assert bytes_by_name(attribution(c, first(c), "operator", 0)) == {BEFORE: 1_000, UNKNOWN: 0}


def made(rows: list[tuple[int, int, int, int]], device: tuple[int, int] = (1, 0)) -> Capture:
    """(time, address, bytes, total) per event of one device."""
    columns = np.array(rows, np.int64).reshape(-1, 4)
    count = len(columns)
    table = S.MEMORY.frame({
        "time_ns": columns[:, 0], "device_type": np.full(count, device[0]), "device_id": np.full(count, device[1]),
        "address": columns[:, 1], "bytes": columns[:, 2], "total_allocated": columns[:, 3], "index": np.arange(count),
    })  # fmt: skip
    return Capture(Facts("kineto", "x", 0), {"memory": table})


def test_memory_of_an_address_that_is_reused_without_a_free_is_unknown() -> None:
    # GIVEN 10 B whose address is allocated again without a free: totals still hold them WHEN asked at the end THEN they are unknown
    c = made([(1, 7, 10, 10), (2, 7, 30, 40)])
    found = attribution(c, first(c), "operator", 5)
    assert bytes_by_name(found) == {"(no operator)": 30, UNKNOWN: 10} and found.unknown == 10
    assert found.notes == ("25% of what was in use is unknown",)


def test_more_rows_than_were_in_use_is_a_negative_rest() -> None:
    # GIVEN a total that says 5 B while 30 B were allocated since WHEN asked THEN the rest is -25 B and it is said
    c = made([(1, 1, 20, 20), (2, 2, 10, 5)])
    found = attribution(c, first(c), "operator", 2)
    assert found.total == 5 and found.unknown == -25 and "counted twice" in found.notes[0]


def test_without_totals_what_was_freed_from_before_counts_negative() -> None:
    # GIVEN no totals, 50 B allocated and 80 B of before freed WHEN asked at the end THEN the level is -30 B: 50 B less 80 B
    c = made([(1, 1, 50, -1), (2, 2, -80, -1)])
    found = attribution(c, first(c), "operator", 3)
    assert found.total == -30 and bytes_by_name(found) == {"(no operator)": 50, BEFORE: -80, UNKNOWN: 0}
    assert any("counts negative" in note for note in found.notes)


def test_without_addresses_nothing_has_an_owner() -> None:
    # GIVEN an older trace without addresses WHEN asked THEN no grouping answers, and all of it is unknown
    c = made([(1, -1, 50, 50), (2, -1, -20, 30)])
    assert groupings_of(c, first(c)) == ()
    assert bytes_by_name(attribution(c, first(c), "module", 1)) == {UNKNOWN: 50}


def test_an_unknown_grouping_is_refused() -> None:
    c = made([(1, 1, 50, 50)])
    with pytest.raises(ValueError, match="colour"):
        attribution(c, first(c), "colour")  # type: ignore[arg-type]


OPS = ("aten::mm", "aten::add", "aten::relu")
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 5),  # what to do: 0-2 allocate, 3-4 free, 5 free what was never seen
        st.integers(1, 3),  # address
        st.integers(1, 60),  # bytes
        st.integers(0, 3),  # operator, 3 none
        st.integers(0, 1),  # device
        st.booleans(),  # whether the total is written
    ),
    max_size=16,
)


@pytest.fixture(scope="module")
def operators_only(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """Three operators, each of 90 us from 100, 200 and 300 us on."""
    t = TraceBuilder()
    for i, name in enumerate(OPS):
        t.op(name, (i + 1) * 100_000, 90_000)
    t.memory(0, 1, allocated=1, reserved=1)
    return read(str(t.write(tmp_path_factory.mktemp("ops") / "a.pt.trace.json")))


@given(EVENTS, st.integers(0, 500), st.integers(0, 1))
@settings(max_examples=30, deadline=None)
def test_rows_add_up_and_equal_a_slow_replay(
    operators_only: Capture, stream: list[tuple[int, int, int, int, int, bool]], base: int, known: int
) -> None:
    # GIVEN any events of two devices: addresses used again, frees of what was never allocated, some totals missing (known 0: all)
    start = int(operators_only.host["start_ns"].iloc[0]) - 100_000
    live: dict[tuple[int, int], tuple[str, int]] = {}
    total, lost = [base + 10_000, base + 10_000], [0, 0]
    rows: list[tuple[int, int, int, int, int]] = []
    at: list[list[tuple[int, int, dict[str, int]]]] = [[], []]
    seen = [False, False]
    for n, (what, address, size, op, device, has_total) in enumerate(sorted(stream, key=lambda e: e[3])):
        key = (device, address)
        if what < 3:
            lost[device] += live.get(key, ("", 0))[1]
            live[key] = (OPS[op] if op < 3 else "(no operator)", size)
        elif what < 5 and key in live:
            size = -live.pop(key)[1]
        elif what == 5:
            address, size = 100 + n, -size
        else:
            continue
        total[device] += size
        time = start + ((op + 1) * 100_000 if op < 3 else 900_000) + n + 1
        rows.append((time, device, address, size, total[device] if known and (has_total or not seen[device]) else -1))
        seen[device] = True
        held: dict[str, int] = {}
        for (of, _), (name, bytes_) in live.items():
            if of == device:
                held[name] = held.get(name, 0) + bytes_
        at[device].append((time, lost[device], held))
    columns = np.array(rows, np.int64).reshape(-1, 5).T
    table = S.MEMORY.frame({
        "time_ns": columns[0], "thread": np.zeros(len(rows), np.int32), "device_type": np.ones(len(rows)), "device_id": columns[1],
        "address": columns[2], "bytes": columns[3], "total_allocated": columns[4], "index": np.arange(len(rows)),
    })  # fmt: skip
    c = Capture(operators_only.facts, {**operators_only.tables, "memory": table})
    # WHEN asked after every event THEN rows sum to the level, and by operator they are those of the slow replay; at the peak and in the
    # middle they sum to the level by everything
    for curve in curves(c, most=10_000):
        device = int(curve.device.split()[1])
        for time, gone, wanted in at[device]:
            level = int(curve.allocated[np.searchsorted(curve.time_ns, time, side="right") - 1])  # type: ignore[index]
            by_operator = attribution(c, curve, "operator", time)
            assert by_operator.total == level == int(by_operator.rows["bytes"].sum())
            names = by_operator.rows[by_operator.rows["kind"] == "row"]
            assert dict(zip(names["name"], names["bytes"].tolist(), strict=True)) == wanted
            assert by_operator.unknown == gone
        for by in GROUPINGS:
            found = attribution(c, curve, by)
            assert int(found.rows["bytes"].sum()) == curve.peak == found.total
            middle = attribution(c, curve, by, at[device][len(at[device]) // 2][0])
            assert int(middle.rows["bytes"].sum()) == middle.total


def test_the_order_of_lines_in_the_file_does_not_matter(tmp_path: Path) -> None:
    # GIVEN the recording of three events, its lines written last first
    t = TraceBuilder()
    t.op("aten::mm", 1_000, 5_000)
    t.memory(4_000, -10, address=1, allocated=120, reserved=1_000)
    t.memory(3_000, 20, address=2, allocated=130, reserved=1_000)
    t.memory(2_000, 10, address=1, allocated=110, reserved=1_000)
    c = read(str(t.write(tmp_path / "a.pt.trace.json")))
    # WHEN asked THEN the first in time comes first: 100 B before, both alive at the peak, one at the end
    assert bytes_by_name(attribution(c, first(c), "operator")) == {"aten::mm": 30, BEFORE: 100, UNKNOWN: 0}
    assert bytes_by_name(attribution(c, first(c), "operator", 10**9)) == {"aten::mm": 20, BEFORE: 100, UNKNOWN: 0}


def test_every_grouping_is_named() -> None:
    assert set(GROUPINGS) == set(By.__args__)  # type: ignore[attr-defined]
