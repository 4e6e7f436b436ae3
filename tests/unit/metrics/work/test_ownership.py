"""Ownership against a walk that visits one node after the other."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.metrics.work.ownership import above, outermost, owners


@st.composite
def forests(draw: st.DrawFn) -> tuple[list[int], list[bool], list[bool], list[int]]:
    """(parent, modeled, wrapper, time) per row in preorder."""
    size = draw(st.integers(1, 30))
    parent = [-1]
    for row in range(1, size):
        chain = [row - 1]
        while chain[-1] >= 0:
            chain.append(parent[chain[-1]])
        parent.append(draw(st.sampled_from(chain)))
    flags = st.lists(st.booleans(), min_size=size, max_size=size)
    return parent, draw(flags), draw(flags), draw(st.lists(st.integers(0, 5), min_size=size, max_size=size))


def _naive(parent: list[int], modeled: list[bool], wrapper: list[bool], time: list[int]) -> list[int]:
    """Owner of each row: recursion from the roots, straight from the rule."""
    children: dict[int, list[int]] = {}
    for row, up in enumerate(parent):
        children.setdefault(up, []).append(row)

    def total(row: int) -> int:
        return time[row] + sum(total(c) for c in children.get(row, []))

    def explained(row: int) -> int:
        if modeled[row] and not wrapper[row] and total(row) > 0:
            return total(row)
        return sum(explained(c) for c in children.get(row, []))

    owner = [-1] * len(parent)

    def walk(row: int, held: int) -> None:
        if held < 0 and modeled[row] and total(row) > 0 and (not wrapper[row] or 2 * explained(row) < total(row)):
            held = row
        owner[row] = held
        for child in children.get(row, []):
            walk(child, held)

    for root in children.get(-1, []):
        walk(root, -1)
    return owner


@settings(max_examples=200, deadline=None)
@given(forests())
def test_owners_agree_with_a_slow_walk_over_the_tree(forest: tuple[list[int], list[bool], list[bool], list[int]]) -> None:
    parent, modeled, wrapper, time = forest
    size = len(parent)
    end = np.arange(1, size + 1, dtype=np.int32)
    for row in range(size - 1, -1, -1):
        if parent[row] >= 0:
            end[parent[row]] = max(end[parent[row]], end[row])
    found = owners(end, np.array(modeled), np.array(wrapper), np.array(time, np.int64), np.zeros(size))
    assert above(found, end, np.arange(size)).tolist() == _naive(parent, modeled, wrapper, time)


def test_outermost_of_no_rows_is_empty() -> None:
    end = np.array([3, 2, 3], np.int32)
    assert outermost(np.zeros(0, np.int64), end).tolist() == []
    assert outermost(np.array([0, 1, 2]), end).tolist() == [0]
    assert outermost(np.array([1, 2]), end).tolist() == [1, 2]
    assert above(np.zeros(0, np.int64), end, np.array([0, -1])).tolist() == [-1, -1]
    assert above(np.array([0]), end, np.array([-1, 0, 2])).tolist() == [-1, 0, 0]
