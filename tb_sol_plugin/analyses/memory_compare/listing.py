"""What one recording gives to be set beside another in detail: its operators, its kinds of allocations, its steps; each list bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics.memory import allocations as L
from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.metrics.memory.allocations import by_operator
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.leaks import sums_of_steps
from tb_sol_plugin.metrics.memory.owners import own_line, owners
from tb_sol_plugin.metrics.trees.module_tree import module_instance
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints

MOST: Final = 200
"""Rows of a list by each of its numbers."""
MOST_STEPS: Final = 1000
NAME: Final = 240
"""Characters of a name."""
OPERATOR: Final = (
    "calls", "size_increase", "self_size_increase", "allocations", "allocated_bytes", "self_allocations", "self_allocated_bytes",
)  # fmt: skip
"""Numbers of an operator, as `metrics.memory.operators` has them."""
KIND: Final = ("bytes", "count", "kept", "unknown")
"""Numbers of a kind of allocation: sum of their bytes, how many, how many were not freed while recording, of how many that is not told."""



class Item(msgspec.Struct, frozen=True, array_like=True):
    """One row of a list: what it is matched by, and its numbers."""

    name: tuple[str, ...]
    numbers: tuple[int, ...]


class Listing(msgspec.Struct, frozen=True):
    """The largest rows. total: sums of each number over all rows, those that were cut among them.

    cut: how large each number (its size) is at most in a row that is not listed; None where all rows are. source: where they are from.
    """

    rows: tuple[Item, ...]
    total: tuple[int, ...]
    cut: tuple[int, ...] | None
    source: str


class Step(msgspec.Struct, frozen=True, array_like=True):
    """number; peak, end: bytes in use at most, and at its end; allocated: in the step, -1 where the source has samples only."""

    number: int
    peak: int
    end: int
    allocated: int


class Steps(msgspec.Struct, frozen=True):
    """The first steps that the curve reaches, in order, and how many there are. source: where their numbers are from."""

    rows: tuple[Step, ...]
    count: int
    source: str


def operators_of(capture: Capture, curve: Curves, window: tuple[int, int] | None) -> Listing | None:
    """Operators of a window (ns; None all) with most self increase and most allocated; "" is outside of every one.

    None of a source that knows no operators.
    """
    if curve.source != "events":
        return None
    device = next(d for d in R.devices(capture) if d.label == curve.device)
    frame = by_operator(capture, device, window)
    numbers = frame[list(OPERATOR)].to_numpy(np.int64)
    keep = _largest(numbers, (OPERATOR.index("self_size_increase"), OPERATOR.index("allocated_bytes")))
    names = frame["name"].tolist()
    return _listing([(str(n)[:NAME],) for n in (names[i] for i in keep.tolist())], numbers, keep, curve.source)


def kinds_of(capture: Capture, curve: Curves, window: tuple[int, int] | None) -> Listing | None:
    """Allocations that begin in a window by (operator, module, Python line, size): of a trace the line is "", of a snapshot the first two.

    None where the source tells no single allocations.
    """
    found = L.lives(capture, curve)
    if found is None:
        return None
    start, row, size = found["start_ns"].to_numpy(), found["row"].to_numpy(), found["bytes"].to_numpy()
    mine = row >= 0
    if window is not None:
        mine &= (start >= window[0]) & (start <= window[1])
    row, size = row[mine], size[mine]
    told = found["known"].to_numpy()[mine]
    kept = told & (found["end_ns"].to_numpy()[mine] == L.NEVER)
    who = _of_trace(capture, row) if curve.source == "events" else _of_history(capture, row)
    of = arrays.together(*(w.code for w in who), size)
    groups = int(of.max()) + 1 if len(of) else 0
    first = arrays.first_of(of, groups)
    numbers = np.zeros((groups, len(KIND)), np.int64)
    for column, values in enumerate((size, np.ones(len(row), np.int64), kept, ~told)):
        np.add.at(numbers[:, column], of, values.astype(np.int64))
    keep = _largest(numbers, (KIND.index("bytes"),))
    names = [(*(w.names[w.code[i]] for w in who), str(size[i])) for i in first[keep].tolist()]
    return _listing(names, numbers, keep, curve.source)


class _Texts(NamedTuple):
    """A code per row into distinct names."""

    code: Ints
    names: list[str]


def _of_trace(capture: Capture, row: Ints) -> list[_Texts]:
    """Operator, module, and no line, of rows of `memory`."""
    own = owners(capture)
    none = _Texts(np.zeros(len(row), np.int64), [""])
    if not len(capture.host):
        return [none, none, none]
    name = capture.host["name"]
    codes = arrays.codes(name)
    operator, module = (own[c].to_numpy()[row] for c in ("operator", "module"))
    found = [np.where(rows >= 0, codes[rows.clip(0)], -1) for rows in (operator, module)]
    return [_said(found[0], name, str), _said(found[1], name, module_instance), none]


def _of_history(capture: Capture, row: Ints) -> list[_Texts]:
    """No operator, no module, and the line, of rows of `memory_events`."""
    none = _Texts(np.zeros(len(row), np.int64), [""])
    frames = capture.tables[S.MEMORY_EVENTS.name]["frames"]
    return [none, none, _said(arrays.codes(frames)[row], frames, own_line)]


def _said(code: Ints, column: pd.Series, text: Callable[[str], str]) -> _Texts:
    """Texts of codes of a column, -1 is ""; those that become the same are one."""
    used, place = np.unique(code, return_inverse=True)
    categories = column.cat.categories
    shown = [text(str(categories[c]))[:NAME] if c >= 0 else "" for c in used.tolist()]
    distinct = {name: at for at, name in enumerate(dict.fromkeys(shown))}
    return _Texts(np.array([distinct[n] for n in shown], np.int64)[place.reshape(-1)], list(distinct))


def steps_of(capture: Capture, curve: Curves) -> Steps | None:
    """None where no step was recorded with a part of the curve. curve: whole."""
    frame = sums_of_steps(capture, curve)
    if not len(frame):
        return None
    columns = (frame[c].tolist()[:MOST_STEPS] for c in ("step", "peak", "end", "allocated"))
    return Steps(tuple(Step(*map(int, values)) for values in zip(*columns, strict=True)), len(frame), curve.source)


def _largest(numbers: Ints, by: tuple[int, ...]) -> npt.NDArray[np.intp]:
    """Rows that are among the largest by the size of one of these numbers, largest by the first of them first."""
    if len(numbers) > MOST:
        keep = np.unique(np.concatenate([np.argsort(-np.abs(numbers[:, c]), kind="stable")[:MOST] for c in by]))
    else:
        keep = np.arange(len(numbers))
    return keep[np.argsort(-np.abs(numbers[keep, by[0]]), kind="stable")]


def _listing(names: list[tuple[str, ...]], numbers: Ints, keep: npt.NDArray[np.intp], source: str) -> Listing:
    dropped = np.ones(len(numbers), bool)
    dropped[keep] = False
    cut = tuple(int(v) for v in np.abs(numbers[dropped]).max(axis=0).tolist()) if dropped.any() else None
    rows = (Item(n, tuple(int(v) for v in values)) for n, values in zip(names, numbers[keep].tolist(), strict=True))
    return Listing(tuple(rows), tuple(int(v) for v in numbers.sum(axis=0).tolist()), cut, source)
