"""Sums and quantiles of times by group, against plain loops over single rows."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.tables import grouped

TIME = st.one_of(st.integers(0, 3), st.integers(0, 2**40))
ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(-(2**40), 2**40), TIME), max_size=60)
NONE = np.zeros(0, np.int64)


@given(ROWS, st.data())
def test_times_are_cut_to_a_window_and_added_up_by_group(rows: list[tuple[int, int, int]], data: st.DataObject) -> None:
    # GIVEN rows of a table, some of them chosen, with time of their own and amounts inside of them
    chosen = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1)))) if rows else []
    own = [data.draw(st.integers(0, t)) for _, _, t in rows]
    amount = [data.draw(st.integers(0, 9)) for _ in rows]
    last = [data.draw(st.integers(i + 1, len(rows))) for i in range(len(rows))]
    # every chosen row reaches into the window
    begin = min((rows[i][1] + rows[i][2] for i in chosen), default=0)
    end = max(max((rows[i][1] for i in chosen), default=0), begin)
    start, duration = (np.array([r[k] for r in rows], np.int64) for k in (1, 2))
    before = np.concatenate(([0], np.cumsum(np.array(amount, np.int64)))).astype(np.int64)
    of = grouped.Times(start, duration, np.array(own, np.int64), before, np.array(last, np.int32))
    group = np.array([rows[i][0] for i in chosen], np.int32)

    # WHEN they are added THEN each group has what plain loops find
    sums = grouped.Sums(6)
    time = sums.add(np.array(chosen, np.int64), group, of, begin, end)
    want = [min(rows[i][1] + rows[i][2], end) - max(rows[i][1], begin) for i in chosen]
    assert time.tolist() == want
    for g in range(6):
        mine = [k for k, i in enumerate(chosen) if rows[i][0] == g]
        assert sums.count[g] == len(mine) and sums.total[g] == sum(want[k] for k in mine)
        assert sums.own[g] == sum(own[chosen[k]] for k in mine)
        assert sums.inside[g] == sum(sum(amount[chosen[k] : last[chosen[k]]]) for k in mine)
        if mine:
            assert (sums.low[g], sums.high[g]) == (min(want[k] for k in mine), max(want[k] for k in mine))


def test_rows_without_time_of_their_own_count_whole_and_tables_add_up() -> None:
    # GIVEN two tables whose rows enclose nothing
    sums = grouped.Sums(2)
    for times in ([5, 7], [11]):
        column = np.array(times, np.int64)
        of = grouped.Times(np.zeros_like(column), column, NONE, NONE, np.zeros(0, np.int32))
        sums.add(np.arange(len(times)), np.full(len(times), 1, np.int32), of, -grouped.EVER, grouped.EVER)
    assert (sums.count.tolist(), sums.total.tolist(), sums.own.tolist(), sums.inside.tolist()) == ([0, 3], [0, 23], [0, 23], [0, 0])
    assert (sums.low[1], sums.high[1]) == (5, 11)


@pytest.mark.parametrize("many", [1, 4, grouped.MANY])
@given(st.lists(st.tuples(st.integers(0, 3), st.one_of(TIME, st.just(2**62)), st.booleans()), max_size=40))
def test_quantiles_are_values_of_the_group_by_rank(many: int, rows: list[tuple[int, int, bool]]) -> None:
    # GIVEN groups small and large, values small and too large to be sorted together with their group
    group, value = np.array([r[0] for r in rows], np.int32), np.array([r[1] for r in rows], np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouped, "MANY", many)
        found = grouped.quantiles(group, value, np.bincount(group, minlength=4), (0.5, 0.95))
    for share, got in zip((0.5, 0.95), found, strict=True):
        for g in range(4):
            mine = sorted(r[1] for r in rows if r[0] == g)
            assert got[g] == (mine[ceil(share * len(mine)) - 1] if mine else 0)
