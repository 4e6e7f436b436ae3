"""Merged levels: every event in exactly one item of every level, windows equal to plain loops over single events."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.tables import pyramid as P
from tests.support.timeline_reference import Event, merged, window

P.load()

GAPS_AND_LENGTHS = st.lists(
    st.tuples(st.sampled_from([0, 0, 1, 3, 40, 700]), st.one_of(st.sampled_from([0, 1, 2, 900, 5000]), st.integers(0, 130))), max_size=80
)
LANES = st.lists(GAPS_AND_LENGTHS, min_size=1, max_size=4)


def events_of(lanes: list[list[tuple[int, int]]], base: int = 0) -> list[list[Event]]:
    """Events of each lane that do not overlap, ids in order over all of them."""
    out, number = [], 0
    for lane in lanes:
        at, events = base, []
        for gap, length in lane:
            at += gap
            events.append((at, length, number))
            at += length
            number += 1
        out.append(events)
    return out


def made(lanes: list[list[Event]]) -> P.Pyramid:
    flat = [e for lane in lanes for e in lane]
    start, duration = (np.array([e[i] for e in flat], np.int64) for i in (0, 1))
    order = np.arange(len(flat), dtype=np.uint32)
    bounds = np.concatenate(([0], np.cumsum([len(lane) for lane in lanes]))).astype(np.int64)
    levels = P.build(order, bounds, start, duration)
    return P.Pyramid(order, bounds, levels, lambda ids: (start[ids], duration[ids]), int((start + duration).max(initial=0)))


def rows(items: P.Items) -> list[tuple[int, ...]]:
    columns = (items.start, items.end, items.event, items.count, items.busy)
    return list(zip(*(c.tolist() for c in columns), strict=True))


def window_of(pyramid: P.Pyramid, lane: int, z: int, begin: int, end: int) -> list[tuple[int, ...]]:
    """The items of one lane in a window."""
    return rows(pyramid.windows(range(lane, lane + 1), z, begin, end)[0])


@given(LANES, st.integers(0, 14), st.integers(0, 40), st.sampled_from([0, -(2**40), 2**60]))
def test_a_window_holds_what_plain_loops_find(lanes: list[list[tuple[int, int]]], z: int, at: int, base: int) -> None:
    # GIVEN lanes of any events, at any distance from time 0
    events = events_of(lanes, base)
    pyramid = made(events)
    q = 1 << z
    begin = (base >> z << z) + at * q
    for lane, own in enumerate(events):
        # THEN a window has the merged items that reach into it
        want = window(merged(own, z), begin, begin + 5 * q)
        assert window_of(pyramid, lane, z, begin, begin + 5 * q) == want
        # AND those of a wider window, where it is asked for
        assert window(want, begin + q, begin + 2 * q) == window_of(pyramid, lane, z, begin + q, begin + 2 * q)
        # AND the single events of any window are those of the lane
        low, high = begin + 3, begin + 3 + 4 * q
        single, _ = pyramid.events(range(lane, lane + 1), low, high)
        assert list(zip(single.start.tolist(), single.event.tolist(), strict=True)) == [
            (s, e) for s, d, e in own if (s + d > low and s < high) or (d == 0 and s == low)
        ]


@given(LANES, st.integers(0, 14), st.integers(0, 40), st.sampled_from([0, -(2**40)]), st.integers(0, 3))
def test_many_lanes_at_once_hold_what_each_alone_does(
    lanes: list[list[tuple[int, int]]], z: int, at: int, base: int, first: int
) -> None:  # fmt: skip
    # GIVEN some of the lanes WHEN looked at in one pass, as thousands are, and one after the other THEN the same
    pyramid = made(events_of(lanes, base))
    asked = range(min(first, len(lanes) - 1), len(lanes))
    begin = (base >> z << z) + (at << z)
    end = begin + (3 << z)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(P, "MANY_LANES", 0)
        found, single = pyramid.windows(asked, z, begin, end), pyramid.events(asked, begin + 3, end + 1)
    one, few = pyramid.windows(asked, z, begin, end), pyramid.events(asked, begin + 3, end + 1)
    for (items, counts), (wanted, each) in ((found, one), (single, few)):
        assert rows(items) == rows(wanted) and counts.tolist() == each.tolist()
    assert rows(one[0]) == [row for lane in asked for row in window_of(pyramid, lane, z, begin, end)]
    assert few[1].tolist() == [len(pyramid.events(range(lane, lane + 1), begin + 3, end + 1)[0]) for lane in asked]


EDGES = st.lists(st.integers(-5, 40), min_size=2, max_size=5, unique=True)


@given(LANES, st.integers(0, 12), EDGES, st.sampled_from([0, 3, -(2**40), 2**60]))
def test_windows_in_a_row_are_those_of_each_alone(lanes: list[list[tuple[int, int]]], z: int, places: list[int], base: int) -> None:
    # GIVEN some edges, on those of buckets or (a worker that is moved in time) beside them WHEN the windows between are looked for at once
    events = events_of(lanes, base)
    pyramid = made(events)
    edges = [base + (at << z) for at in sorted(places)]
    # THEN each holds the merged items of plain loops that reach into it, lane after lane
    level = [merged(own, z) for own in events]
    assert len(pyramid.split(range(len(lanes)), z, edges)) == len(edges) - 1
    for (items, counts), low, high in zip(pyramid.split(range(len(lanes)), z, edges), edges, edges[1:], strict=False):
        want = [window(own, low, high) for own in level]
        assert rows(items) == [item for own in want for item in own] and counts.tolist() == [len(own) for own in want]


@given(LANES)
def test_every_event_is_in_one_item_of_every_level(lanes: list[list[tuple[int, int]]]) -> None:
    events = events_of(lanes)
    pyramid = made(events)
    flat = [e for lane in events for e in lane]
    for level in pyramid.levels:
        items = level.items(slice(None), len(flat))
        assert int(items.count.sum()) == len(flat) and int(items.busy.sum()) == sum(d for _, d, _ in flat)
    # AND the coarsest level fits into one tile, the finest has at most half as many items as events
    if pyramid.levels:
        assert pyramid.levels[-1].z + P.TILE >= (pyramid.span - 1).bit_length()
        assert 2 * len(pyramid.levels[0]) <= len(flat)
        assert [b.z - a.z for a, b in zip(pyramid.levels, pyramid.levels[1:], strict=False)] == [P.STRIDE] * (len(pyramid.levels) - 1)


@given(LANES, st.sampled_from([0, -(2**40), 2**60, -3]))
def test_compiled_loops_build_the_same_levels_bit_for_bit(lanes: list[list[tuple[int, int]]], base: int) -> None:
    # GIVEN lanes of any events WHEN their levels are built by columns and by compiled loops THEN every column is the same
    flat = [e for lane in events_of(lanes, base) for e in lane]
    start, duration = (np.array([e[i] for e in flat], np.int64) for i in (0, 1))
    bounds = np.concatenate(([0], np.cumsum([len(lane) for lane in lanes]))).astype(np.int64)
    order = np.arange(len(flat), dtype=np.uint32)[::-1].copy()
    compiled = P.build(order, bounds, start, duration)
    assert compiled == () or P.join_kernel.signatures, "compiled loops are not used in this process"
    assert P.joined_at(start, duration).tolist() == P.joined_at(start, duration, compiled_pays=False).tolist() if flat else True
    columns = P.levels_by_columns(order, bounds, start, duration, [level.z for level in compiled])
    for one, other in zip(compiled, columns, strict=True):
        for name in ("start", "end", "event", "first", "busy", "bounds"):
            a, b = getattr(one, name), getattr(other, name)
            assert a.dtype == b.dtype and a.tolist() == b.tolist(), (one.z, name)


@given(GAPS_AND_LENGTHS, st.integers(0, 12))
def test_a_level_follows_from_the_one_below(lane: list[tuple[int, int]], z: int) -> None:
    ((*events,),) = (events_of([lane])[0],)
    start, duration = (np.array([e[i] for e in events], np.int64) for i in (0, 1))
    one = P.single(start, duration, np.arange(len(events), dtype=np.uint32))
    same = np.zeros(len(events), np.int8)
    below = P.merged(one, same, duration, z)
    assert rows(P.merged(*below, z + 1)[0]) == rows(P.merged(one, same, duration, z + 1)[0]) == merged(events, z + 1)


@pytest.mark.parametrize("lanes", [[[]], [[(0, 0)]], [[(5, 10**9)]], [[], [(0, 1)]]])
def test_few_events(lanes: list[list[tuple[int, int]]]) -> None:
    events = events_of(lanes)
    pyramid = made(events)
    for lane, own in enumerate(events):
        assert window_of(pyramid, lane, 20, 0, 1 << 31) == merged(own, 20)


def test_ten_thousand_events_at_one_moment_are_one_item() -> None:
    pyramid = made([[(7, 0, i) for i in range(10_000)] + [(8, 4, 10_000)]])
    assert window_of(pyramid, 0, 0, 0, 1024) == [(7, 7, 0, 10_000, 0), (8, 12, 10_000, 1, 4)]
    assert window_of(pyramid, 0, 3, 0, 1024) == [(7, 7, 0, 10_000, 0), (8, 12, 10_000, 1, 4)]
    assert window_of(pyramid, 0, 4, 0, 1024) == [(7, 12, 10_000, 10_001, 4)]
