"""Sums and quantiles of times by group, against plain loops over single rows."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.tables import arrays, grouped

TIME = st.one_of(st.integers(0, 3), st.integers(0, 2**40))
ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(-(2**40), 2**40), TIME), max_size=60)


def runs_of(rows: list[int], split: set[int], label: int = 0) -> grouped.Runs:
    """Rows as runs: those that follow each other in one, unless they are split there."""
    begins = [i for k, i in enumerate(rows) if not k or rows[k - 1] != i - 1 or i in split]
    ends = [i + 1 for k, i in enumerate(rows) if k + 1 == len(rows) or rows[k + 1] != i + 1 or i + 1 in split]
    return grouped.Runs(np.array(begins, np.int64), np.array(ends, np.int64), np.full(len(begins), label, np.int64))


def keys_of(group: list[int]) -> grouped.Keys:
    """Groups of rows by a code for each, the last one without a text, and one kind."""
    most = max(group, default=0)
    lookup = np.arange(most + 1, dtype=np.int32).reshape(-1, 1)
    return grouped.Keys(np.array([-1 if g == most else g for g in group], np.int32), np.zeros(1, np.uint8), lookup)


@given(ROWS, st.data())
def test_times_are_cut_to_a_window_and_added_up_by_group(rows: list[tuple[int, int, int]], data: st.DataObject) -> None:
    # GIVEN rows of a table that enclose each other, some of them chosen, and some with an amount
    chosen = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1)))) if rows else []
    depth: list[int] = []
    for _ in rows:
        depth.append(data.draw(st.integers(0, depth[-1] + 1 if depth else 0)))
    parent = [max((j for j in range(i) if depth[j] == depth[i] - 1), default=-1) for i in range(len(rows))]
    last = [next((j for j in range(i + 1, len(rows)) if depth[j] <= depth[i]), len(rows)) for i in range(len(rows))]
    amounts = sorted((data.draw(st.integers(0, len(rows) - 1)), data.draw(st.integers(0, 9))) for _ in range(5)) if rows else []
    # every chosen row reaches into the window
    begin = min((rows[i][1] + rows[i][2] for i in chosen), default=0)
    end = max(max((rows[i][1] for i in chosen), default=0), begin)
    start, duration, at = (np.array(values, np.int64) for values in ([r[1] for r in rows], [r[2] for r in rows], [a for a, _ in amounts]))
    before = np.cumsum([0, *(amount for _, amount in amounts)]).astype(np.int64)
    inside = grouped.Inside(*(np.array(one, np.int32) for one in (parent, last)), at.astype(np.int32), before)
    of = grouped.Times(start, duration, inside)
    runs = runs_of(chosen, data.draw(st.sets(st.sampled_from(chosen))) if chosen else set())
    assert runs.rows.tolist() == chosen and runs.of(start).tolist() == start[chosen].tolist()

    def cut(row: int) -> tuple[int, int]:
        return max(rows[row][1], begin), min(rows[row][1] + rows[row][2], end)

    # WHEN they are added THEN each group has what plain loops find
    sums = grouped.Sums(6, len(chosen))
    sums.add(runs, keys_of([r[0] for r in rows]), of, begin, end)
    want = [cut(i)[1] - cut(i)[0] for i in chosen]
    own = [
        w - sum(max(min(cut(c)[1], cut(i)[1]) - max(cut(c)[0], cut(i)[0]), 0) for c in chosen if parent[c] == i)
        for i, w in zip(chosen, want, strict=True)
    ]
    assert sums.time.tolist() == want and sums.group.tolist() == [rows[i][0] for i in chosen]
    for g in range(6):
        mine = [k for k, i in enumerate(chosen) if rows[i][0] == g]
        assert sums.count[g] == len(mine) and sums.total[g] == sum(want[k] for k in mine)
        assert sums.own[g] == sum(own[k] for k in mine)
        assert sums.inside[g] == sum(amount for k in mine for row, amount in amounts if chosen[k] <= row < last[chosen[k]])
        if mine:
            assert (sums.low[g], sums.high[g]) == (min(want[k] for k in mine), max(want[k] for k in mine))


def test_rows_without_time_of_their_own_count_whole_and_tables_add_up() -> None:
    # GIVEN two tables whose rows enclose nothing, and one whose own time is known
    sums = grouped.Sums(2, 4)
    for times in ([5, 7], [11]):
        column = np.array(times, np.int64)
        of = grouped.Times(np.zeros_like(column), column)
        sums.add(runs_of(list(range(len(times))), set()), keys_of([1] * len(times)), of, -grouped.EVER, grouped.EVER)
    assert (sums.count.tolist(), sums.total.tolist(), sums.own.tolist(), sums.inside.tolist()) == ([0, 3], [0, 23], [0, 23], [0, 0])
    assert (sums.low[1], sums.high[1]) == (5, 11)
    known = grouped.Times(np.zeros(1, np.int64), np.array([9]), own=np.array([4]))
    sums.add(runs_of([0], set()), keys_of([0]), known, -grouped.EVER, grouped.EVER)
    assert sums.own.tolist() == [4, 23] and sums.time.tolist() == [5, 7, 11, 9]


def test_rows_are_added_up_by_the_labels_of_their_runs() -> None:
    # GIVEN two runs of one table with a label each THEN these are the groups, and the time of each key in them, and a ns per row, is known
    sums = grouped.Sums(3, 4, keys=2)
    runs = grouped.Runs(np.array([0, 3]), np.array([3, 4]), np.array([2, 1]))
    of = grouped.Times(np.zeros(4, np.int64), np.array([1, 2, 4, 8]))
    sums.add(runs, keys_of([0, 1, 1, 0]), of, -grouped.EVER, grouped.EVER)
    assert sums.total.tolist() == [0, 8, 7] and sums.by_key.tolist() == [[0, 0], [9, 0], [2, 8]]
    # AND of many runs the rows are gathered at once
    many = runs_of(list(range(0, 2_000, 2)), set())
    assert many.of(np.arange(2_000)).tolist() == many.rows.tolist() == list(range(0, 2_000, 2))


@given(st.lists(st.tuples(st.integers(0, 3), st.one_of(TIME, st.just(2**62))), max_size=60), st.sampled_from([1, 10, 60]))
def test_quantiles_are_values_of_the_group_by_rank(few: list[tuple[int, int]], times: int) -> None:
    # GIVEN groups small and large, values alike, close together and far apart
    rows = [(group, value + i % 3) for i in range(times) for group, value in few]
    group, value = np.array([r[0] for r in rows], np.int32), np.array([r[1] for r in rows], np.int64)
    found = grouped.quantiles(group, value, np.bincount(group, minlength=4), (0.5, 0.95))
    for share, got in zip((0.5, 0.95), found, strict=True):
        for g in range(4):
            mine = sorted(r[1] for r in rows if r[0] == g)
            assert got[g] == (mine[ceil(share * len(mine)) - 1] if mine else 0)


@pytest.mark.parametrize("rows", [50, 2 * grouped.LOADING_PAYS])
def test_medians_of_many_values_are_those_of_a_sort(rows: int) -> None:
    rng = np.random.default_rng(rows)
    group, value = rng.integers(0, 9, rows).astype(np.int32) * 2, rng.integers(0, 10**6, rows) ** 2
    found = grouped.medians(group, value, 18)
    assert np.isnan(found[1::2]).all()
    assert found[::2].tolist() == [float(np.median(value[group == one])) for one in range(0, 18, 2)]
    assert np.array_equal(found, arrays.medians(group, value, 18), equal_nan=True)


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(-3, 3), st.integers(0, 3), st.booleans()), max_size=40))
def test_totals_are_those_of_a_plain_loop_compiled_or_not(rows: list[tuple[int, int, int, bool]]) -> None:
    # GIVEN rows of a table, some in no group
    code, start, duration = (np.array([row[k] for row in rows], np.int64) for k in range(3))
    flags, wanted = np.array([row[3] for row in rows], np.bool_), np.flatnonzero(code >= 0)
    # WHEN those in groups are added up, in numpy and in the compiled loop
    grouped.load()
    compiled = grouped.totals(wanted, code.astype(np.int32), start, duration, flags, (start, duration * 2**50), 4)
    out, longest = np.zeros((4, 5), np.int64), np.full(4, -1, np.int64)
    grouped._totals(wanted, code, start, duration, flags, (start, duration * 2**50), out, longest)
    # THEN both are what a loop over the rows of each group finds
    for group in range(4):
        mine = [i for i in wanted.tolist() if code[i] == group]
        best = min(mine, key=lambda i: (-duration[i], start[i], i), default=-1)
        sums = [len(mine), *(sum(int(v[i]) for i in mine) for v in (flags, duration, start)), sum(int(duration[i]) * 2**50 for i in mine)]
        found = [int(v[group]) for v in (compiled.count, compiled.flagged, compiled.total, *compiled.more)]
        assert found == out[group].tolist() == sums and compiled.longest[group] == longest[group] == best
