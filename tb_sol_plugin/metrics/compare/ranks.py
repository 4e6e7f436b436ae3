"""Takes several ranks of one run for one: a step is as long as that of its slowest rank. Ranks are no samples of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from tb_sol_plugin.metrics.compare.samples import Grouping, PathParts, Samples, pack, per_step
from tb_sol_plugin.tables.arrays import Ints

OVER_RANKS: Final = ("peak_memory",)
"""Metrics that are the largest of all ranks, whichever is the slowest."""
GRADES: Final = ("good", "fair", "poor")
"""Of critical paths, the best first."""


class Slowest(NamedTuple):
    """A run of several ranks. rank: the place of the one that was the slowest most often."""

    samples: Samples
    rank: int


def slowest(ranks: Sequence[Samples]) -> Slowest:
    """Returns, of each step that all ranks have, the numbers of the rank whose step is the longest.

    Steps are matched by their numbers. Where the ranks have none in common, the rank whose median step is the longest stands for all.
    """
    times = [np.asarray(r.values["step_time"], np.int64) for r in ranks]
    worst = int(np.argmax([np.median(t) for t in times]))
    common = sorted(set.intersection(*(set(r.steps) for r in ranks)))
    if len(ranks) == 1 or not common or common == [-1] or len({tuple(sorted(r.parts)) for r in ranks}) > 1:
        return Slowest(ranks[worst], worst)
    place = [{step: i for i, step in enumerate(r.steps)} for r in ranks]
    at = np.array([[p[step] for step in common] for p in place], np.int64)  # ranks x steps
    choice = np.asarray(np.argmax([t[a] for t, a in zip(times, at, strict=True)], axis=0), np.int64)
    values = _values([r.values for r in ranks], at, choice)
    parts = _values([r.parts for r in ranks], at, choice)
    row_steps, groupings, path = _rows(ranks, common, at, choice)
    found = msgspec.structs.replace(
        ranks[worst], steps=tuple(common), values=values, parts=parts, row_steps=row_steps, groupings=groupings,
        incomplete=max(r.incomplete for r in ranks), warm=ranks[0].warm, path=path,
    )  # fmt: skip
    return Slowest(found, int(np.bincount(choice, minlength=len(ranks)).argmax()))


def _values(ranks: Sequence[Mapping[str, Sequence[int]]], at: Ints, choice: Ints) -> dict[str, tuple[int, ...]]:
    """Returns each number that all ranks know, of the chosen rank of each step. at: ranks x steps, the place of a step in its rank."""
    step = np.arange(len(choice))
    out = {}
    for name in (n for n in ranks[0] if all(n in r for r in ranks)):
        every = np.array([np.asarray(r[name], np.int64)[a] for r, a in zip(ranks, at, strict=True)])
        out[name] = tuple((every.max(0) if name in OVER_RANKS else every[choice, step]).tolist())
    return out


def _rows(
    ranks: Sequence[Samples], common: Sequence[int], at: Ints, choice: Ints
) -> tuple[tuple[int, ...], dict[str, Grouping], PathParts | None]:  # fmt: skip
    """Returns places of the steps whose chosen rank has rows of them, these rows, and the critical paths of the chosen ranks."""
    columns = [{r.steps[s]: i for i, s in enumerate(r.row_steps)} for r in ranks]  # by the number of a step
    shown = [i for i, r in enumerate(choice.tolist()) if common[i] in columns[r]]
    known = [by for by in ranks[0].groupings if all(by in r.groupings for r in ranks)] if shown else []
    column = np.array([columns[choice[i]][common[i]] for i in shown], np.int64)
    steps = [len(r.row_steps) for r in ranks]
    rows = {by: _joined([r.groupings[by] for r in ranks], steps, choice[shown], column) for by in known}
    paths = [r.path for r in ranks if r.path is not None]
    if not known or len(paths) < len(ranks):
        return tuple(shown) if known else (), rows, None
    parts, items = _values([p.parts for p in paths], at, choice), _joined([p.items for p in paths], steps, choice[shown], column)
    grade = max((p.grade for p in paths), key=GRADES.index)
    return tuple(shown), rows, PathParts(grade, parts, items, max(p.silent for p in paths))


def _joined(found: Sequence[Grouping], steps: Sequence[int], choice: Ints, column: Ints) -> Grouping:
    """Returns the rows of all ranks, each step with those of its slowest rank. steps: columns of each; column: that of each step."""
    names = {n: o for g in found for n, o in zip(g.names, g.of, strict=True)}
    place = {n: i for i, n in enumerate(names)}
    packed = []
    for name in ("calls", "host", "device", "work"):
        wide = np.zeros((len(names), len(choice)), np.int64)
        for r, grouping in enumerate(found):
            mine = np.flatnonzero(choice == r)
            rows = np.array([place[n] for n in grouping.names], np.int64)
            wide[np.ix_(rows, mine)] = per_step(grouping, name, steps[r])[:, column[mine]]
        packed.append(pack(wide))
    cut = max(g.cut for g in found)
    return Grouping(tuple(names), tuple(names.values()), packed[0], packed[1], packed[2], cut, packed[3] if found[0].work else b"")
