"""Trees as arrays, against a naive stack and naive walks."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.metrics.work.ownership import above, outermost
from tb_sol_plugin.tables import tree
from tests.support.cpu_time import least

EVENT = st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 25), st.integers(0, 2))
"""(thread, start, duration, rank)"""


def arrays(events: list[tuple[int, int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    thread = np.array([e[0] for e in events], np.int32)
    start = np.array([e[1] for e in events], np.int64)
    end = start + np.array([e[2] for e in events], np.int64)
    rank = np.array([e[3] for e in events], np.int8)
    return thread, start, end, rank


def naive(thread: np.ndarray, start: np.ndarray, end: np.ndarray) -> list[int]:
    """The deepest earlier row whose interval contains the start, by looking at all of them: a plain stack."""
    parent, stacks = [], {}
    for i in range(len(start)):
        stack = stacks.setdefault(int(thread[i]), [])
        while stack and end[stack[-1]] <= start[i]:
            stack.pop()
        parent.append(stack[-1] if stack else -1)
        stack.append(i)
    return parent


@given(st.lists(EVENT, max_size=60))
@settings(max_examples=300, deadline=None)
def test_order_and_nesting_agree_with_a_naive_stack(events: list[tuple[int, int, int, int]]) -> None:
    # GIVEN events in any order, some of them overlapping in part, some of length 0
    thread, start, end, rank = arrays(events)
    # WHEN they are put in preorder and nested
    order = tree.preorder(thread, start, end, rank)
    # THEN the order is (thread, start, end descending, rank, position)
    expected = sorted(range(len(events)), key=lambda i: (thread[i], start[i], -end[i], rank[i], i))
    assert order.tolist() == expected
    t, s, e = thread[order], start[order], end[order]
    parent, depth, last, clipped = tree.nest(t, s, e)
    # AND parents are those of the naive stack; depth, range and clipping follow from them
    assert parent.tolist() == naive(t, s, e)
    for i, p in enumerate(parent.tolist()):
        assert depth[i] == (0 if p < 0 else depth[p] + 1)
        assert clipped[i] == (p >= 0 and e[i] > e[p])
        below = [j for j in range(len(parent)) if j == i or _is_below(parent, j, i)]
        assert below == list(range(i, int(last[i])))


def _is_below(parent: np.ndarray, row: int, above: int) -> bool:
    while row >= 0:
        row = int(parent[row])
        if row == above:
            return True
    return False


@given(st.lists(EVENT, min_size=1, max_size=40), st.data())
@settings(max_examples=200, deadline=None)
def test_sums_and_walks_agree_with_loops(events: list[tuple[int, int, int, int]], data: st.DataObject) -> None:
    thread, start, end, rank = arrays(events)
    order = tree.preorder(thread, start, end, rank)
    t, s, e = thread[order], start[order], end[order]
    parent, _, last, _ = tree.nest(t, s, e)
    values = np.array(data.draw(st.lists(st.integers(0, 9), min_size=len(s), max_size=len(s))), np.int64)
    # THEN a subtree's sum is the sum over its rows
    assert tree.subtree_sum(values, last).tolist() == [int(values[i : last[i]].sum()) for i in range(len(s))]
    # AND self time is never negative and never more than the duration
    own = tree.self_time_by_columns(s, e - s, parent)
    assert ((own >= 0) & (own <= e - s)).all()
    for i in range(len(s)):
        inside = sum(min(int(e[j]), int(e[i])) - int(s[j]) for j in np.flatnonzero(parent == i) if s[j] < e[i])
        assert own[i] == max(int(e[i] - s[i]) - inside, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree, "FEW", 0)  # compiled
        assert tree.self_time(s, e - s, parent).tolist() == own.tolist()
    # AND where nothing is clipped, self times of a tree sum to its root's duration
    if not tree.nest(t, s, e)[3].any():
        total = tree.subtree_sum(own, last)
        assert total[parent < 0].tolist() == (e - s)[parent < 0].tolist()
    # AND a value reaches exactly the ancestors (itself included) whose interval contains its time
    row = data.draw(st.integers(0, len(s) - 1))
    moment = int(s[row])
    got = tree.sum_to_ancestors(np.array([row], np.int32), np.array([moment]), np.array([7]), parent, e, last)
    chain, i = [], row
    while i >= 0:
        chain.append(i)
        i = int(parent[i])
    assert got.tolist() == [7 if i in chain and e[i] > moment else 0 for i in range(len(s))]
    # AND the nearest row of a mask is the first of that chain that is in the mask and contains the time
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(s), max_size=len(s))))
    wanted = [next((i for i in chain if mask[i] and e[i] > moment), -1), -1]
    rows, moments = np.array([row, -1], np.int32), np.array([moment, moment])
    assert tree.nearest_by_level(mask, parent, e, rows, moments).tolist() == wanted
    assert tree.nearest_by_mask(mask, parent, e, rows, moments, last).tolist() == wanted
    # compiled or not
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree, "FEW", 0)
        assert tree.nearest(mask, parent, e, rows, moments).tolist() == wanted
    # AND however few levels are walked one by one
    for levels in (0, 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tree, "LEVELS", levels)
            assert tree.nearest_by_level(mask, parent, e, rows, moments).tolist() == wanted
            assert tree.nearest_by_mask(mask, parent, e, rows, moments, last).tolist() == wanted
            patch.setattr(tree, "FEW", 0)
            assert tree.nearest(mask, parent, e, rows, moments).tolist() == wanted


@given(st.lists(EVENT, min_size=1, max_size=40), st.data())
@settings(max_examples=200, deadline=None)
def test_sums_and_outermost_rows_are_the_same_at_any_depth(events: list[tuple[int, int, int, int]], data: st.DataObject) -> None:
    # GIVEN values at rows and times, some of ranges that are over, and groups that nest in themselves
    thread, start, end, rank = arrays(events)
    order = tree.preorder(thread, start, end, rank)
    t, s, e = thread[order], start[order], end[order]
    parent, _, last, _ = tree.nest(t, s, e)
    many = st.lists(st.tuples(st.integers(-1, len(s) - 1), st.integers(0, 3), st.integers(-9, 9)), min_size=1, max_size=20)
    drawn = data.draw(many)
    rows = np.array([r for r, _, _ in drawn], np.int32)
    times = np.array([int(s[max(r, 0)]) + later for r, later, _ in drawn], np.int64)
    values = np.array([v for _, _, v in drawn], np.int64)
    group = np.array(data.draw(st.lists(st.integers(-1, 3), min_size=len(s), max_size=len(s))), np.int32)
    by_row, by_group = np.zeros(len(s), np.int64), np.zeros(int(group.max()) + 1, np.int64)
    top = []
    for row, moment, value in zip(rows.tolist(), times.tolist(), values.tolist(), strict=True):
        chain = []
        while row >= 0:
            chain.append(row)
            row = int(parent[row])
        around = [i for i in chain if e[i] > moment]
        by_row[around] += value
        by_group[sorted({int(group[i]) for i in around} - {-1})] += value
        top.append(next((i for i in reversed(chain) if group[i] == 0), -1))
    # WHEN chains of ancestors are walked, and where none may be THEN the sums and rows are those of the loop
    for levels in (tree.LEVELS, 1, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tree, "LEVELS", levels)
            assert tree.sum_to_ancestors(rows, times, values, parent, e, last).tolist() == by_row.tolist()
            assert tree.sum_to_ancestors(rows, times, values, parent, e, last, group).tolist() == by_group.tolist()
    assert above(outermost(np.flatnonzero(group == 0), last), last, rows).tolist() == top


def test_sums_of_rows_nested_in_one_another_take_near_linear_time() -> None:
    def seconds(depth: int) -> float:
        rows = np.arange(depth, dtype=np.int32)
        end, last = np.arange(2 * depth, depth, -1, dtype=np.int64), np.full(depth, depth, np.int32)
        times, ones = rows.astype(np.int64), np.ones(depth, np.int64)
        began = time.process_time()
        found = tree.sum_to_ancestors(rows, times, ones, rows - 1, end, last)
        grouped = tree.sum_to_ancestors(rows, times, ones, rows - 1, end, last, rows % 7)
        top = above(outermost(rows[1::2], last), last, rows)
        spent = time.process_time() - began
        # THEN each row has the values of those below it, each of the first groups all that are in it or below
        assert (found == depth - rows).all() and grouped.tolist() == [depth - g for g in range(7)] and (top[1:] == 1).all()
        return spent

    seconds(100)
    # AND 100,000 levels take what walks (some 1e10 steps) never could
    assert least(lambda: [seconds(100_000)], lambda taken: taken[0] < 3)[0] < 3


def test_an_ancestor_that_is_over_gets_nothing() -> None:
    # GIVEN A [0, 10), B [5, 15) that outlives it, and a launch at 12 under B
    start, end = np.array([0, 5, 12], np.int64), np.array([10, 15, 13], np.int64)
    parent, _, last, _ = tree.nest(np.zeros(3, np.int32), start, end)
    assert parent.tolist() == [-1, 0, 1]
    # WHEN 7 ns are credited THEN the launch and B get them, A does not
    assert tree.sum_to_ancestors(np.array([2], np.int32), np.array([12]), np.array([7]), parent, end, last).tolist() == [0, 7, 7]


def test_a_group_that_nests_in_itself_counts_a_value_once() -> None:
    # GIVEN a module (group 0) that calls itself, and a launch in the inner call
    start, end = np.array([0, 2, 3], np.int64), np.array([10, 8, 4], np.int64)
    parent, _, last, _ = tree.nest(np.zeros(3, np.int32), start, end)
    group = np.array([0, 0, -1], np.int32)
    # THEN the group's sum is 5, not 10
    assert tree.sum_to_ancestors(np.array([2], np.int32), np.array([3]), np.array([5]), parent, end, last, group).tolist() == [5]


def test_missing_rows_add_nothing() -> None:
    parent, end, last = np.array([-1], np.int32), np.array([10], np.int64), np.array([1], np.int32)
    assert tree.sum_to_ancestors(np.array([-1], np.int32), np.array([3]), np.array([5]), parent, end, last).tolist() == [0]
    assert tree.preorder(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int8)).tolist() == []


@pytest.mark.parametrize("compiled", [False, True])
def test_the_nearest_row_is_found_in_near_linear_time_at_any_depth(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN rows nested in one another, only the outermost of a mask, so that every walk leads to the top
    monkeypatch.setattr(tree, "FEW", 0 if compiled else tree.FEW)

    def seconds(depth: int) -> float:
        rows = np.arange(depth, dtype=np.int32)
        mask, end = rows == 0, np.arange(2 * depth, depth, -1, dtype=np.int64)
        began = time.process_time()
        found = tree.nearest(mask, rows - 1, end, rows, rows.astype(np.int64))
        spent = time.process_time() - began
        # THEN all of them find it
        assert (found == 0).all()
        return spent

    seconds(100)
    # AND 100,000 levels take what a walk level by level (some 5e9 steps) never could
    assert least(lambda: [seconds(100_000)], lambda taken: taken[0] < 1.5)[0] < 1.5


@given(st.lists(st.integers(-1, 30), max_size=30))
def test_levels_are_those_of_a_walk_from_the_roots(ups: list[int]) -> None:
    # GIVEN parents in any order, some of them themselves or in a circle THEN each row that a root reaches is in the level of its depth
    parent = np.array([up if up < len(ups) else -1 for up in ups], np.int64)
    expected, level = [], [i for i, up in enumerate(parent) if up < 0]
    while level:
        expected.append(level)
        level = sorted(i for i, up in enumerate(parent) if up in level)
    assert [found.tolist() for found in tree.levels(parent)] == expected
