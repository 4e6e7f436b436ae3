"""What a collective of one rank waited for, and the part of it that nothing hides: by hand, and against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.metrics.ranks.own_time import CAUSES, MOST_PIECES, Activity, Pieces, Work, dependencies, exposed, exposed_until, own_time
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.tables.packed import Packed, pack, unpack

US = 1_000


def array(*values: int) -> Ints:
    return np.array(values, np.int64)


def work(*events: tuple[int, int, int]) -> Work:
    return Work(*(np.array(column, np.int64) * US for column in zip(*events, strict=True)))


def spans(*pairs: tuple[int, int]) -> iv.Spans:
    return iv.union(*(np.array(side, np.int64) * US for side in zip(*pairs, strict=True)))


def test_own_time_has_one_cause_at_a_time() -> None:
    # GIVEN 100 us: computing to 30, a copy 20 to 40, another collective 35 to 50, loading 45 to 70 and 90 to 95, idle before a launch 60 to 80
    activity = Activity(spans((0, 30)), spans((20, 40)), spans((35, 50)), spans((45, 70), (90, 95)), spans((60, 80)))
    found = dict(zip(CAUSES, own_time(array(0), array(100 * US), activity)[0].tolist(), strict=True))
    # THEN each microsecond counts once: what computes first, then copies, collectives, loading, late launches
    assert found == {"kernel": 30_000, "copy": 10_000, "comm": 10_000, "dataloader": 25_000, "host": 10_000, "other": 15_000}


def test_a_blocking_collective_binds_and_a_bucket_does_not() -> None:
    # GIVEN computation to 100, a collective to 150, computation 150 to 300, 300 to 400; buckets launched at 290 and 295 run 300 to 380 and
    # 380 to 420; computation goes on at 425, and a last collective begins at 500
    kernels = work((0, 100, 0), (150, 300, 10), (300, 400, 296), (425, 500, 298))
    rows = work((100, 150, 20), (300, 380, 290), (380, 420, 295), (500, 520, 299))
    stream = array(20, 24, 24, 20)
    busy = Activity(iv.union(kernels.start, kernels.end), iv.empty(), iv.union(rows.start, rows.end), iv.empty(), iv.empty())
    found = dependencies(rows, stream, np.zeros(4, np.bool_), kernels, busy, 0)
    # THEN the first has computed from the begin; the bucket waited for the collective, at whose end nothing ran; the second bucket was
    # ready when the same computation was done, and waited for its stream; the last waited for that bucket, at whose end nothing ran
    assert found.pred_row.tolist() == [-1, 0, 0, 2]
    assert (found.pred_lag_ns // US).tolist() == [100, 150, 150, 80]
    assert found.stream_row.tolist() == [-1, -1, 1, 0] and found.stream_lag_ns.tolist() == [-1, -1, 0, -1]
    assert (found.own_ns[:, 0] // US).tolist() == [100, 150, 150, 75] and (found.own_ns.sum(axis=1) == found.pred_lag_ns).all()


def test_exposed_stretches_and_their_first_part() -> None:
    # GIVEN a collective of 100 us, hidden from 20 to 50 and from 80 on THEN it is exposed at 0 to 20 and 50 to 80
    pieces = exposed(work((1000, 1100, 0)), spans((1020, 1050), (1080, 1200)))
    assert [column.tolist() for column in pieces] == [[0, 0], [0, 50 * US], [20 * US, 30 * US]]
    # AND of its first 60 us 30 are exposed, of all of it 50
    assert [exposed_until(pieces, array(until * US)).tolist() for until in (0, 10, 60, 100)] == [[0], [10_000], [30_000], [50_000]]
    assert all(len(column) == 0 for column in exposed(Work(array(), array(), array()), iv.empty()))


def test_many_stretches_are_kept_by_parts() -> None:
    # GIVEN a collective of 3,200 us of which every second microsecond is hidden THEN its 32 parts of 100 us have 50 each
    low = np.arange(0, 3200, 2, dtype=np.int64) * US
    pieces = exposed(work((0, 3200, 0), (5000, 5001, 0)), (low, low + US))
    assert len(pieces.row) == MOST_PIECES + 1 and set(pieces.length_ns[:-1].tolist()) == {50_000}
    assert pieces.row.tolist() == [0] * MOST_PIECES + [1] and pieces.offset_ns[:3].tolist() == [0, 100_000, 200_000]


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=20),
)
def test_exposed_is_what_a_loop_counts(rows: list[tuple[int, int]], hidden: list[tuple[int, int]]) -> None:
    start = np.sort(np.array([a for a, _ in rows], np.int64))
    end = start + np.array([b for _, b in rows], np.int64)
    covered = iv.union(np.array([a for a, _ in hidden], np.int64), np.array([a + b for a, b in hidden], np.int64))
    pieces: Pieces = exposed(Work(start, end, start), covered)
    free = [t for t in range(100) if not any(a <= t < a + b for a, b in hidden)]
    for until in (5, 1_000):
        expected = [sum(s <= t < min(e, s + until) for t in free) for s, e in zip(start.tolist(), end.tolist(), strict=True)]
        assert exposed_until(pieces, np.full(len(start), until)).tolist() == expected


def test_columns_come_back() -> None:
    types = {"a": "i8", "b": "i1", "c": "?"}
    packed = pack({"a": [1, -(2**60)], "b": [3, -1], "c": [True, False]}, types)
    back = unpack(packed, types)
    assert [back[name].tolist() for name in types] == [[1, -(2**60)], [3, -1], [True, False]]
    with pytest.raises(ValueError, match="different lengths"):
        pack({"a": [1], "b": [1, 2]}, {"a": "i8", "b": "i1"})
    with pytest.raises(ValueError, match="column 'a': not 2 values"):
        unpack(packed, {"a": "i4"})
    with pytest.raises(ValueError, match="column 'a': damaged bytes"):
        unpack(Packed(2, {"a": b"\xff" * 9}), types)
