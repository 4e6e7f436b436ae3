"""Interval algebra against a bitmap, and by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.tables import intervals as I
from tb_sol_plugin.tables.compiled import Loop

SIZE = 48
PAIRS = st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)), max_size=12)


def spans(pairs):
    return I.union([a for a, _ in pairs], [b for _, b in pairs])


def bitmap(pairs) -> np.ndarray:
    out = np.zeros(SIZE, bool)
    for a, b in pairs:
        out[a:b] = True
    return out


def bits_of(found) -> np.ndarray:
    return bitmap(list(zip(*[x.tolist() for x in found], strict=True)))


def is_clean(found) -> bool:
    start, end = found
    return bool((end > start).all() and (start[1:] > end[:-1]).all())


@given(PAIRS)
def test_union_covers_what_a_bitmap_covers(pairs):
    found = spans(pairs)
    assert is_clean(found)
    assert (bits_of(found) == bitmap(pairs)).all()
    assert I.length(found) == bitmap(pairs).sum()


@given(PAIRS)
def test_joining_before_the_sort_covers_the_same(pairs):
    # GIVEN intervals in any order, empty ones among them
    start, end = np.array([a for a, _ in pairs], np.int64), np.array([b for _, b in pairs], np.int64)
    # WHEN those that begin inside of the one before are joined, as `union` does with many
    first, last = I.join_kernel(start, end)
    # THEN no empty one is left, and the union is the same
    assert (last > first).all()
    assert (bits_of((first, last)) == bitmap(pairs)).all()


@given(PAIRS, PAIRS)
def test_the_cover_of_many_intervals_is_that_of_each(pairs, cover):
    # GIVEN intervals in any order, empty ones among them
    start, end = np.array([a for a, _ in pairs], np.int64), np.array([b for _, b in pairs], np.int64)
    # WHEN they are gone through in one pass, as `overlap_with` does with many, THEN each is covered as the bitmap says
    wanted = [int(bitmap(cover)[a:b].sum()) for a, b in pairs]
    assert I.cover_kernel(start, end, *spans(cover)).tolist() == wanted
    with pytest.MonkeyPatch.context() as patch:
        for few, all_of_them in itertools.product((0, I.MANY), (0, SIZE)):
            patch.setattr(I, "MANY", few)
            patch.setattr(I, "A_CALL", all_of_them)  # at 0, what lies apart from the others is left out even of few
            assert I.overlap_with(start, end, spans(cover)).tolist() == wanted


def test_a_union_of_many_is_that_of_its_parts():
    # GIVEN more intervals than are sorted at once, most inside of the one before, a few far back
    number = np.arange(I.MANY + 2_000)
    start = (number // 4) * 10 - np.where(number % 1_000 == 7, 5_000, 0)
    end = start + 9 - number % 4
    # WHEN their union is made in one go, THEN it is what the unions of short parts give
    whole = I.union(start, end)
    parts = I.merge(*(I.union(start[at : at + 500], end[at : at + 500]) for at in range(0, len(start), 500)))
    assert is_clean(whole) and all((a == b).all() for a, b in zip(whole, parts, strict=True))


@pytest.fixture(scope="module", params=["compiled", "numpy"])
def way(request):
    """How loops run: compiled, or as of few rows in a process that has loaded none."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Loop, "of", lambda loop, size, pays: loop if request.param == "compiled" else loop._plain)
        yield request.param


@given(PAIRS, PAIRS, st.sampled_from((0, SIZE)))
def test_set_operations_match_a_bitmap(way, a, b, all_of_them):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(I, "A_CALL", all_of_them)  # at 0, what lies apart from the other set is left out even of few
        _match(a, b)


def _match(a, b):
    for operation, expected in (
        (I.intersect, bitmap(a) & bitmap(b)),
        (I.subtract, bitmap(a) & ~bitmap(b)),
        (I.merge, bitmap(a) | bitmap(b)),
    ):
        found = operation(spans(a), spans(b))
        assert is_clean(found) and all(x.dtype == np.int64 and x.flags.writeable for x in found)
        assert (bits_of(found) == expected).all()


@given(PAIRS, st.integers(0, SIZE), st.integers(0, SIZE))
def test_clip_and_gaps_share_a_window_between_them(pairs, low, high):
    inside, outside = I.clip(spans(pairs), low, high), I.gaps(spans(pairs), low, high)
    window = bitmap([(low, high)])
    assert (bits_of(inside) == (bitmap(pairs) & window)).all()
    assert (bits_of(outside) == (~bitmap(pairs) & window)).all()
    assert I.length(inside) + I.length(outside) == max(high - low, 0)


@given(st.lists(PAIRS, max_size=5))
def test_exclusive_layers_are_disjoint_and_add_up(layers):
    found = I.exclusive([spans(p) for p in layers])
    left = np.ones(SIZE, bool)
    for pairs, layer in zip(layers, found, strict=True):
        assert (bits_of(layer) == (bitmap(pairs) & left)).all()
        left &= ~bitmap(pairs)
    assert sum(I.length(x) for x in found) == (~left).sum()


@given(PAIRS, PAIRS)
def test_overlap_of_each_interval_matches_a_bitmap(pairs, cover):
    found = I.overlap_with([a for a, _ in pairs], [b for _, b in pairs], spans(cover))
    assert found.tolist() == [int(bitmap([p])[bitmap(cover)].sum()) for p in pairs]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, SIZE), st.integers(0, SIZE)), max_size=14))
def test_union_within_is_the_union_of_each_group(way, rows):
    group, start, end = I.union_within([r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows])
    for code in range(4):
        mine = (start[group == code], end[group == code])
        expected = spans([(a, b) for g, a, b in rows if g == code])
        assert [x.tolist() for x in mine] == [x.tolist() for x in expected]
    assert (np.diff(group) >= 0).all()


def test_touching_intervals_merge_and_empty_ones_vanish():
    # GIVEN [0,5) [5,7) that touch, an empty [9,9), a negative [20,11) and [10,12) inside [10,14)
    start, end = I.union([5, 0, 9, 20, 10, 10], [7, 5, 9, 11, 14, 12])
    # THEN two members remain
    assert start.tolist() == [0, 10] and end.tolist() == [7, 14]


def test_large_times_stay_exact():
    # GIVEN epoch nanoseconds, which float64 cannot hold
    base = 1_715_000_000_000_000_001
    found = I.union([base, base + 3], [base + 2, base + 4])
    assert I.length(found) == 3
    assert I.covered_until(found, [base, base + 1, base + 3, base + 9]).tolist() == [0, 1, 2, 3]


def test_empty_sets_give_empty_sets():
    assert I.length(I.empty()) == 0
    assert I.length(I.merge()) == 0
    assert I.length(I.intersect(I.empty(), I.one(0, 5))) == 0
    assert I.length(I.one(5, 5)) == 0
    assert I.overlap_with([1], [4], I.empty()).tolist() == [0]
    assert I.exclusive([]) == []


def test_unequal_lengths_are_refused():
    with pytest.raises(ValueError, match=r"\(2,\) starts and \(1,\) ends"):
        I.union([1, 2], [3])
