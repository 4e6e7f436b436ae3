"""Aligns the trees of two steps: which phase, module and operator of the one is which of the other.

From the step down, the children of a matched pair are two sequences of keys, of which the longest common subsequence is matched (Myers
1986, all diagonals of a distance at once; memory grows with the square of the differences, which are bounded, never with the product of
the lengths). What is left in a gap is tried again as a guess: the same place and shapes or nearly the same name is `renamed`, one in the
place of several `fused` or `split`. What is left after that is looked for in the rest of its parent, then in the rest of the tree: `moved`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, TypeAlias

import numpy as np

from tb_sol_plugin.metrics.compare.differences import Side
from tb_sol_plugin.metrics.compare.matching import ALIKE, alike, key_of
from tb_sol_plugin.metrics.compare.step_tree import StepTree, columns_of
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables.arrays import Ints

How = Literal["same", "moved", "fused", "split", "renamed", "only"]
GUESSES: Final[tuple[How, ...]] = ("fused", "split", "renamed")
MOST_EDITS: Final = 1_000
"""Differences of two sequences that are looked at together; behind so many the search begins anew."""
MOST_OF_ONE: Final = 8
"""Nodes that one may stand in the place of."""


@dataclass(frozen=True)
class Nodes:
    """A tree of a step with its names as text. times: of each node itself, ns. inputs: elements of each tensor that an operator takes."""

    name: list[str]
    key: list[str]
    kind: list[int]
    parent: list[int]
    children: list[list[int]]
    shapes: list[int]
    times: Ints
    cut: int
    inputs: list[tuple[int, ...]]

    def __len__(self) -> int:
        return len(self.name)

    def subtree(self, node: int) -> list[int]:
        """Returns a node and all below it, parents first."""
        out = [node]
        for one in out:
            out += self.children[one]
        return out


def nodes_of(found: StepTree, *, device: bool) -> Nodes:
    """Returns the nodes of a tree. device: whether times are those of the device, else of the host."""
    columns = columns_of(found)
    name = [found.names[i] for i in columns["name"].tolist()]
    parent, kind = columns["parent"].tolist(), columns["kind"].tolist()
    children: list[list[int]] = [[] for _ in name]
    for node, above in enumerate(parent[1:], 1):
        children[above].append(node)
    keys = {n: key_of(n, "operator") for n in found.names}
    key = [keys[n] if k == S.OPERATOR else n for n, k in zip(name, kind, strict=True)]
    key[0] = "step"
    inputs = [found.inputs[i] for i in columns["inputs"].tolist()]
    times = columns["device_ns" if device else "host_ns"]
    return Nodes(name, key, kind, parent, children, columns["shapes"].tolist(), times, found.cut, inputs)


@dataclass(frozen=True)
class Alignment:
    """Which node of A is which of B. partner_a, partner_b: its node on the other side, -1 none; of several that one stands for, each has
    it, and it has the first. how_a, how_b: by what it was found.
    """

    a: Nodes
    b: Nodes
    partner_a: list[int]
    partner_b: list[int]
    how_a: list[How]
    how_b: list[How]

    @property
    def shares(self) -> tuple[float | None, float | None]:
        """Part of the time of each side that has a partner; None where there is no time."""
        return _share(self.a, self.how_a), _share(self.b, self.how_b)

    def counts(self) -> dict[str, int]:
        """Returns how many nodes were found by what, each pair once; `only_a` and `only_b` have no partner."""
        ours, theirs = (how[1:] for how in (self.how_a, self.how_b))
        out = {how: theirs.count(how) for how in ("same", "moved", "renamed", "fused")}
        return out | {"split": ours.count("split"), "only_a": ours.count("only"), "only_b": theirs.count("only")}

    def pair(self, i: int, j: int, how: How) -> None:
        """Notes that a node of A is one of B."""
        self.partner_a[i], self.partner_b[j], self.how_a[i], self.how_b[j] = j, i, how, how


def aligned(a: Nodes, b: Nodes) -> Alignment:
    """Aligns two trees of steps."""
    out = Alignment(a, b, [-1] * len(a), [-1] * len(b), ["only"] * len(a), ["only"] * len(b))
    out.pair(0, 0, "same")
    _below(out, [(0, 0)])
    _moved_elsewhere(out)
    return out


@dataclass(frozen=True)
class Trees:
    """The aligned trees of the first runs of two sides. device: whether their times are of the device. steps: numbers of the two steps."""

    found: Alignment
    device: bool
    steps: tuple[int, int]

    @staticmethod
    def of(a: Side, b: Side) -> Trees | None:
        """Aligns a step of each side; None where one has no operators."""
        ours, theirs = a.runs[0].tree, b.runs[0].tree
        if ours is None or theirs is None:
            return None
        device = any(columns_of(one)["device_ns"][1:].any() for one in (ours, theirs))
        return Trees(aligned(nodes_of(ours, device=device), nodes_of(theirs, device=device)), device, (ours.step, theirs.step))


def _share(side: Nodes, how: Sequence[How]) -> float | None:
    total = int(side.times[1:].sum())
    return float(side.times[1:][np.array([h != "only" for h in how[1:]], np.bool_)].sum()) / total if total else None


def _below(out: Alignment, pairs: list[tuple[int, int]]) -> None:
    """Aligns what is below pairs that are matched."""
    a, b = out.a, out.b
    while pairs:
        i, j = pairs.pop()
        ours = [n for n in a.children[i] if out.partner_a[n] < 0]
        theirs = [n for n in b.children[j] if out.partner_b[n] < 0]
        if not ours or not theirs:
            continue
        found = common([a.key[n] for n in ours], [b.key[n] for n in theirs])
        for x, y in found:
            out.pair(ours[x], theirs[y], "same")
            pairs.append((ours[x], theirs[y]))
        edges = [(-1, -1), *found, (len(ours), len(theirs))]
        for (x, y), (x_end, y_end) in pairwise(edges):
            if x_end - x > 1 and y_end - y > 1:
                pairs += _in_gap(out, ours[x + 1 : x_end], theirs[y + 1 : y_end])
        left: dict[str, list[int]] = {}
        for n in reversed([n for n in ours if out.partner_a[n] < 0]):
            left.setdefault(a.key[n], []).append(n)
        for n in theirs:
            if out.partner_b[n] < 0 and left.get(b.key[n]):
                one = left[b.key[n]].pop()
                out.pair(one, n, "moved")
                pairs.append((one, n))


def _in_gap(out: Alignment, ours: list[int], theirs: list[int]) -> list[tuple[int, int]]:
    """Guesses what goes with what between two matched neighbors; returns pairs that are to be aligned further down."""
    a, b = out.a, out.b
    if {a.key[n] for n in ours} & {b.key[n] for n in theirs}:  # these crossed: they moved
        return []
    if len(ours) == len(theirs):
        found = [(i, j) for i, j in zip(ours, theirs, strict=True) if _renamed(a, i, b, j)]
        for i, j in found:
            out.pair(i, j, "renamed")
        return found
    if len(theirs) == 1:
        _in_one(out.b, theirs[0], (out.partner_b, out.how_b), out.a, ours, (out.partner_a, out.how_a), "fused")
    elif len(ours) == 1:
        _in_one(out.a, ours[0], (out.partner_a, out.how_a), out.b, theirs, (out.partner_b, out.how_b), "split")
    return []


_Found: TypeAlias = "tuple[list[int], list[How]]"


def _in_one(side: Nodes, one: int, found_one: _Found, others: Nodes, several: Sequence[int], found: _Found, how: How) -> None:
    """Notes that one node does what several did, where it may: operators, and what the one takes, where recorded, the several take too.

    Every tensor that goes into the one goes into one of the several at least, if as a view of another shape: they have one with as many
    elements for each of it.
    """
    if len(several) > MOST_OF_ONE or side.kind[one] != S.OPERATOR or any(others.kind[n] != S.OPERATOR for n in several):
        return
    taken = [size for n in several for size in others.inputs[n]]
    if taken and Counter(side.inputs[one]) - Counter(taken):
        return
    for n in side.subtree(one):
        found_one[0][n], found_one[1][n] = several[0], how
    for n in (below for top in several for below in others.subtree(top)):
        found[0][n], found[1][n] = one, how


def _renamed(a: Nodes, i: int, b: Nodes, j: int) -> bool:
    """Whether two nodes of one place are one under another name: of one kind, and of the same shapes or nearly alike by name."""
    same_shapes = a.shapes[i] != 0 and a.shapes[i] == b.shapes[j]
    return a.kind[i] == b.kind[j] and (same_shapes or alike(a.key[i], b.key[j]) >= ALIKE)


def _moved_elsewhere(out: Alignment) -> None:
    """Matches subtrees that stand elsewhere in the tree, equal ones first, then modules of one name."""
    ids: dict[tuple[object, ...], int] = {}
    signs = _signatures(out.a, ids), _signatures(out.b, ids)
    for by in (signs, tuple([k if n == S.MODULE else None for k, n in zip(s.key, s.kind, strict=True)] for s in (out.a, out.b))):
        left: dict[object, list[int]] = {}
        for n in range(len(out.a) - 1, 0, -1):
            if out.partner_a[n] < 0 and by[0][n] is not None:
                left.setdefault(by[0][n], []).append(n)
        for n in range(1, len(out.b)):
            there = left.get(by[1][n], []) if out.partner_b[n] < 0 else []
            while there and out.partner_a[there[-1]] >= 0:
                there.pop()
            if there:
                one = there.pop()
                out.pair(one, n, "moved")
                _below(out, [(one, n)])


def _signatures(side: Nodes, ids: dict[tuple[object, ...], int]) -> list[int]:
    """Returns a number per node that is the same for subtrees of the same keys. ids: those that are known, of both trees."""
    out = [0] * len(side)
    for n in range(len(side) - 1, -1, -1):
        out[n] = ids.setdefault((side.key[n], *(out[c] for c in side.children[n])), len(ids))
    return out


# -- Sequences --------------------------------------------------------------------------------------------------------


def common(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """Returns places of a longest common subsequence of two sequences, ascending; of very different ones a long one."""
    least, head, tail = min(len(a), len(b)), 0, 0
    while head < least and a[head] == b[head]:
        head += 1
    while tail < least - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    end_a, end_b = len(a) - tail, len(b) - tail
    ends = [(i, i) for i in range(head)], [(end_a + i, end_b + i) for i in range(tail)]
    if head in (end_a, end_b):
        return [*ends[0], *ends[1]]
    return [*ends[0], *((head + x, head + y) for x, y in _between(a[head:end_a], b[head:end_b])), *ends[1]]


def _between(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """Returns the same of two sequences that neither begin nor end alike."""
    number = {key: i for i, key in enumerate(dict.fromkeys([*a, *b]))}
    ours, theirs = (np.array([number[k] for k in side], np.int64) for side in (a, b))
    out: list[tuple[int, int]] = []
    x = y = 0
    while x < len(ours) and y < len(theirs):
        found, (dx, dy) = _furthest(ours[x:], theirs[y:])
        out += [(x + i, y + j) for i, j in found]
        x, y = x + dx, y + dy
    return out


def _furthest(a: Ints, b: Ints) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    """Returns (pairs, where they end): to the end of both sequences, or as far as `MOST_EDITS` differences reach."""
    n, m = len(a), len(b)
    reach = np.zeros(1, np.int64)  # per diagonal -d, -d + 2, ..., d: the place in a, that in b is it less the diagonal
    trail: list[Ints] = []
    for d in range(min(n + m, MOST_EDITS) + 1):
        x = np.maximum(*_moves(reach)) if d else reach
        y = x - np.arange(-d, d + 1, 2)
        lanes = np.flatnonzero((x < n) & (y < m) & (y >= 0))
        while len(lanes):
            lanes = lanes[a[x[lanes]] == b[y[lanes]]]
            x[lanes] += 1
            y[lanes] += 1
            lanes = lanes[(x[lanes] < n) & (y[lanes] < m)]
        trail.append(x)
        reach = x
        ended = np.flatnonzero((x == n) & (y == m))
        if len(ended):
            return _back(trail, int(ended[0])), (n, m)
    best = int(np.argmax(np.where((x <= n) & (y <= m) & (y >= 0), x + y, -1)))
    return _back(trail, best), (int(x[best]), int(y[best]))


def _moves(reach: Ints) -> tuple[Ints, Ints]:
    """Returns where one difference more leads on each diagonal: by leaving out one of b, and one of a."""
    return np.append(reach, -1), np.insert(reach + 1, 0, -1)


def _back(trail: Sequence[Ints], lane: int) -> list[tuple[int, int]]:
    """Returns the pairs on the way to a lane of the last round."""
    out: list[tuple[int, int]] = []
    for d in range(len(trail) - 1, -1, -1):
        x, k = int(trail[d][lane]), 2 * lane - d
        skips_b = int(trail[d - 1][lane]) if d and lane < d else -1
        skips_a = int(trail[d - 1][lane - 1]) + 1 if d and lane else -1
        begin = max(skips_b, skips_a) if d else 0
        out += [(i, i - k) for i in range(x - 1, begin - 1, -1)]
        lane -= skips_a > skips_b
    return out[::-1]
