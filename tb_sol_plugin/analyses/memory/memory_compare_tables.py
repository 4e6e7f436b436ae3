"""What the comparison needs of one recording: numbers of its memory, who held it at the peak, its curve, how it was made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics.memory import allocations as L
from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.metrics.memory.allocations import by_operator
from tb_sol_plugin.metrics.memory.attribution import GROUPINGS, By, attribution, groupings_of
from tb_sol_plugin.metrics.memory.categories import own_line, owners
from tb_sol_plugin.metrics.memory.curves import Curves, steps, thin, within
from tb_sol_plugin.metrics.memory.fragmentation import heap
from tb_sol_plugin.metrics.memory.labels import color, label
from tb_sol_plugin.metrics.memory.leaks import sums_of_steps
from tb_sol_plugin.metrics.memory.sources import SOURCES
from tb_sol_plugin.metrics.memory.summary import memory_summary
from tb_sol_plugin.metrics.report.notes import setting
from tb_sol_plugin.metrics.trees.module_tree import module_instance
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints

# -- Reduction of one recording ---------------------------------------------------------------------------------------
# its operators, its kinds of allocations, its steps; each list bounded.


MOST_LISTED: Final = 200
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
    """Returns operators of a window (ns; None all) with most self increase and most allocated; "" is outside of every one.

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
    found = L.allocations_of(capture, curve)
    if found is None:
        return None
    start, row, size = found["start_ns"].to_numpy(), found["row"].to_numpy(), found["bytes"].to_numpy()
    subset = row >= 0
    if window is not None:
        subset &= (start >= window[0]) & (start <= window[1])
    row, size = row[subset], size[subset]
    reported = found["known"].to_numpy()[subset]
    kept = reported & (found["end_ns"].to_numpy()[subset] == L.NEVER)
    who = _of_trace(capture, row) if curve.source == "events" else _of_history(capture, row)
    of = arrays.together(*(w.code for w in who), size)
    groups = int(of.max()) + 1 if len(of) else 0
    first = arrays.first_of(of, groups)
    numbers = np.zeros((groups, len(KIND)), np.int64)
    for column, values in enumerate((size, np.ones(len(row), np.int64), kept, ~reported)):
        np.add.at(numbers[:, column], of, values.astype(np.int64))
    keep = _largest(numbers, (KIND.index("bytes"),))
    names = [(*(w.names[w.code[i]] for w in who), str(size[i])) for i in first[keep].tolist()]
    return _listing(names, numbers, keep, curve.source)


class _Texts(NamedTuple):
    """A code per row into distinct names."""

    code: Ints
    names: list[str]


def _of_trace(capture: Capture, row: Ints) -> list[_Texts]:
    """Returns operator, module, and no line, of rows of `memory`."""
    own = owners(capture)
    none = _Texts(np.zeros(len(row), np.int64), [""])
    if not len(capture.host):
        return [none, none, none]
    name = capture.host["name"]
    codes = arrays.codes(name)
    operator, module = (own[c].to_numpy()[row] for c in ("operator", "module"))
    found = [np.where(rows >= 0, codes[rows.clip(0)], -1) for rows in (operator, module)]
    return [_listed_facts(found[0], name, str), _listed_facts(found[1], name, module_instance), none]


def _of_history(capture: Capture, row: Ints) -> list[_Texts]:
    """Returns no operator, no module, and the line, of rows of `memory_events`."""
    none = _Texts(np.zeros(len(row), np.int64), [""])
    frames = capture.tables[S.MEMORY_EVENTS.name]["frames"]
    return [none, none, _listed_facts(arrays.codes(frames)[row], frames, own_line)]


def _listed_facts(code: Ints, column: pd.Series, text: Callable[[str], str]) -> _Texts:
    """Returns the texts of codes of a column, -1 is ""; those that become the same are one."""
    used, place = np.unique(code, return_inverse=True)
    categories = column.cat.categories
    shown = [text(str(categories[c]))[:NAME] if c >= 0 else "" for c in used.tolist()]
    distinct = {name: at for at, name in enumerate(dict.fromkeys(shown))}
    return _Texts(np.array([distinct[n] for n in shown], np.int64)[place.reshape(-1)], list(distinct))


def steps_of(capture: Capture, curve: Curves) -> Steps | None:
    """Returns the levels of each step; None where no step was recorded with a part of the curve. curve: whole."""
    frame = sums_of_steps(capture, curve)
    if not len(frame):
        return None
    columns = (frame[c].tolist()[:MOST_STEPS] for c in ("step", "peak", "end", "allocated"))
    return Steps(tuple(Step(*map(int, values)) for values in zip(*columns, strict=True)), len(frame), curve.source)


def _largest(numbers: Ints, by: tuple[int, ...]) -> npt.NDArray[np.intp]:
    """Returns the rows that are among the largest by the size of one of these numbers, largest by the first of them first."""
    if len(numbers) > MOST_LISTED:
        keep = np.unique(np.concatenate([np.argsort(-np.abs(numbers[:, c]), kind="stable")[:MOST_LISTED] for c in by]))
    else:
        keep = np.arange(len(numbers))
    return keep[np.argsort(-np.abs(numbers[keep, by[0]]), kind="stable")]


def _listing(names: list[tuple[str, ...]], numbers: Ints, keep: npt.NDArray[np.intp], source: str) -> Listing:
    dropped = np.ones(len(numbers), bool)
    dropped[keep] = False
    cut = tuple(int(v) for v in np.abs(numbers[dropped]).max(axis=0).tolist()) if dropped.any() else None
    rows = (Item(n, tuple(int(v) for v in values)) for n, values in zip(names, numbers[keep].tolist(), strict=True))
    return Listing(tuple(rows), tuple(int(v) for v in numbers.sum(axis=0).tolist()), cut, source)


POINTS: Final = 600
"""Points of a curve."""
MOST: Final = 1500
"""Rows of who held memory, by each grouping; the smaller ones are one row."""
REST: Final = "rest"
SMALLER: Final = "smaller ones"


class Row(msgspec.Struct, frozen=True, array_like=True):
    """Who held memory. kind: row, before, unknown, or rest: the smaller rows together. allocations: -1 unknown."""

    name: str
    bytes: int
    allocations: int
    kind: str
    estimated: bool


class Line(msgspec.Struct, frozen=True):
    """A curve. time_ns: since its begin; end_ns: how far it reaches. reserved: None where the source has none. step: None for all."""

    time_ns: tuple[int, ...]
    end_ns: int
    allocated: tuple[int, ...]
    reserved: tuple[int, ...] | None
    step: int | None


class ReducedMemory(msgspec.Struct, frozen=True):
    """One recording, of the memory of its device with most in use. Bytes; None is unknown, as in `metrics.memory.summary`.

    growth: bytes per step where a line through the steps was made. held: by grouping, rows that add up to peak. notes: of each grouping.
    whole: since the first step's begin, else the recording's; of_step: the step with the peak since its begin, None where no step holds it.
    setting: how the recording was made. base: used on the device outside of the allocator. worst: most reserved and unused at once.
    Of a snapshot: free: held in free blocks, split: of these in segments in use, largest: the largest free block. operators, kinds: of the
    window that is shown; per_step: of all steps.
    """

    device: str
    source: str
    relative: bool
    peak: int
    reserved: int | None
    reserved_at_peak: int | None
    fragmentation: int | None
    before: int | None
    end: int
    capacity: int | None
    left: int | None
    growth: float | None
    failures: int | None
    held: dict[str, tuple[Row, ...]]
    notes: dict[str, tuple[str, ...]]
    whole: Line
    of_step: Line | None
    setting: dict[str, str]
    base: int | None = None
    worst: int | None = None
    free: int | None = None
    split: int | None = None
    largest: int | None = None
    operators: Listing | None = None
    kinds: Listing | None = None
    per_step: Steps | None = None


def part(capture: Capture, query: Query) -> ReducedMemory:
    """Reduces one recording to what is compared. Unavailable where no device's allocator was recorded."""
    memory_numbers = memory_summary(capture, query)
    memory, every, window, curve = memory_numbers.memory, memory_numbers.every, memory_numbers.window, memory_numbers.curve
    found, room = memory_numbers.found, memory_numbers.room
    blocks = None if memory.host else heap(capture, memory.number)
    held: dict[str, tuple[Row, ...]] = {}
    notes: dict[str, tuple[str, ...]] = {}
    for by in GROUPINGS:
        if by in groupings_of(capture, every):
            held[by], notes[by] = _rows(capture, curve, by)
    return ReducedMemory(
        device=memory.label, source=SOURCES[every.source], relative=found.relative, peak=found.peak, reserved=found.reserved,
        reserved_at_peak=found.reserved_at_peak, fragmentation=found.fragmentation, before=found.before, end=found.end,
        capacity=room.total.bytes, left=room.left.bytes if room.left.bytes is not None else found.left,
        growth=memory_numbers.growth,
        failures=memory_numbers.failures,
        held=held, notes=notes, whole=_whole(capture, curve), of_step=_of_step(capture, every, curve), setting=setting(capture),
        base=room.base.bytes, worst=_worst(curve), free=blocks.free if blocks is not None else None,
        split=blocks.split if blocks is not None else None, largest=blocks.largest if blocks is not None else None,
        operators=operators_of(capture, memory.teller(every, ("events",)), window),
        kinds=kinds_of(capture, memory.teller(every, ("events", "snapshot")), window), per_step=steps_of(capture, every),
    )  # fmt: skip


def _worst(curve: Curves) -> int | None:
    """Returns the most that was reserved and not in use at one moment; None without levels of both."""
    if curve.allocated is None or curve.reserved is None or curve.relative:
        return None
    known = (curve.reserved >= 0) & (curve.allocated >= 0)
    gap = int((curve.reserved - curve.allocated)[known].max()) if known.any() else -1
    return gap if gap >= 0 else None


def _rows(capture: Capture, curve: Curves, by: By) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Returns the largest rows, the others as one; they add up to the peak."""
    found = attribution(capture, curve, by)
    columns = (found.rows[c].tolist() for c in ("name", "bytes", "allocations", "kind", "estimated"))
    rows = [
        Row(str(name)[:NAME], int(size), int(many), str(kind), bool(guess)) for name, size, many, kind, guess in zip(*columns, strict=True)
    ]
    named = sorted((r for r in rows if r.kind == "row"), key=lambda r: -r.bytes)
    small = named[MOST:]
    out = [*named[:MOST], *(r for r in rows if r.kind != "row")]
    if small:
        size, many = sum(r.bytes for r in small), sum(r.allocations for r in small)
        out.append(Row(SMALLER, size, many, REST, any(r.estimated for r in small)))
    return tuple(out), found.notes


def _whole(capture: Capture, curve: Curves) -> Line:
    """Returns the curve since the start of the first step that it reaches, else of the recording."""
    table = steps(capture)
    inside = table[(table["end_ns"] > curve.time_ns[0]) & (table["start_ns"] <= curve.time_ns[-1])]
    start = int(inside["start_ns"].min()) if len(inside) else min(int(capture.facts.extent_ns[0]), int(curve.time_ns[0]))
    return _line(curve, start, int(curve.time_ns[-1]), None)


def _of_step(capture: Capture, every: Curves, curve: Curves) -> Line | None:
    """Returns the curve of the step in which most was in use."""
    table = steps(capture)
    at = np.flatnonzero((table["start_ns"].to_numpy() <= curve.peak_ns) & (curve.peak_ns < table["end_ns"].to_numpy()))
    if not len(at):
        return None
    start, end = int(table["start_ns"].iloc[at[0]]), int(table["end_ns"].iloc[at[0]])
    return _line(within(every, (start, end)), start, end, int(table["number"].iloc[at[0]]))


def _line(curve: Curves, start: int, end: int, step: int | None) -> Line:
    thinned = thin(curve, POINTS)
    assert thinned.allocated is not None
    reserved = tuple(thinned.reserved.tolist()) if thinned.reserved is not None else None
    return Line(tuple((thinned.time_ns - start).tolist()), end - start, tuple(thinned.allocated.tolist()), reserved, step)


# -- Tables of two recordings -----------------------------------------------------------------------------------------
# delta first, then both; what one of them lacks is said.


BOTH: Final = "both"


# -- Memory at both peaks, matched by name ----------------------------------------------------------------------------
# matched by name, with their difference; sums stay exact.


_LAST: Final = ("before", "unknown")


@dataclass(frozen=True)
class Differences:
    """frame: one row per name: name, key (as the source has it), a, b, delta, abs_delta (bytes), allocations_a, allocations_b, only ("a",
    "b", both), kind, color, estimated. Its a and b add up to the peaks, so delta does to their difference.
    """

    frame: pd.DataFrame

    def largest(self, *, falls: bool) -> list[tuple[str, int]]:
        """Returns (name, delta) of the rows that fell (or rose) most, largest first, rows that nobody can name left out."""
        rows = [(str(n), int(d)) for n, d, k in zip(self.frame["name"], self.frame["delta"], self.frame["kind"], strict=True) if k != REST]
        subset = [r for r in rows if (r[1] < 0) == falls and r[1]]
        return sorted(subset, key=lambda r: -abs(r[1]))


def grouping(a: ReducedMemory, b: ReducedMemory, asked: str) -> tuple[str, str]:
    """Returns (the grouping to show, "" where there is none; why it is another than asked for)."""
    both = [by for by in GROUPINGS if by in a.held and by in b.held]
    if asked in both:
        return asked, ""
    first = both[0] if both else ""
    if asked == "auto":
        return first, "" if both else "No grouping is known of both recordings."
    can = f"; both can by {', '.join(both)}" if both else ""
    return first, f"Not both recordings can be grouped by {asked}{can}."


def differences(a: Sequence[Row], b: Sequence[Row], by: str) -> Differences:
    """Rows matched by name. Of a list that was cut, a name that it lacks may be among its smaller ones: such rows are added to these."""
    left, right = _by_key(a), _by_key(b)
    least = {side: min((r.bytes for r in rows if r.kind == "row"), default=0) if any(r.kind == REST for r in rows) else -1
             for side, rows in (("a", a), ("b", b))}  # fmt: skip
    out: list[dict[str, object]] = []
    small = [0, 0]
    for key in dict.fromkeys([*left, *right]):
        x, y = left.get(key), right.get(key)
        one = x or y
        assert one is not None
        if one.kind == REST or (y is None and one.bytes <= least["b"]) or (x is None and one.bytes <= least["a"]):
            small[0] += x.bytes if x is not None else 0
            small[1] += y.bytes if y is not None else 0
            continue
        out.append(_row(one, x, y, by))
    if any(r.kind == REST for r in (*a, *b)):
        rest = Row(SMALLER, 0, -1, REST, False)
        sides = (Row(SMALLER, size, -1, REST, False) for size in small)
        out.append(_row(rest, next(sides), next(sides), by))
    columns = ["name", "key", "a", "b", "delta", "abs_delta", "allocations_a", "allocations_b", "only", "kind", "color", "estimated"]
    frame = pd.DataFrame(out, columns=columns)
    empty = (frame["kind"] == "unknown") & (frame["a"] == 0) & (frame["b"] == 0)
    return Differences(frame[~empty].sort_values("abs_delta", ascending=False, kind="stable", ignore_index=True))


def _by_key(rows: Sequence[Row]) -> dict[tuple[str, str], Row]:
    return {(r.kind if r.kind != "row" else "", r.name): r for r in rows}


def _row(one: Row, x: Row | None, y: Row | None, by: str) -> dict[str, object]:
    a, b = (r.bytes if r is not None else 0 for r in (x, y))
    category = by == "category" and one.kind == "row"
    shown = label(one.name) if category else one.name
    plain = {"before": "host", "unknown": "idle", REST: "other"}.get(one.kind, "compute")
    return {
        "name": shown, "key": f"{one.kind}:{one.name}", "a": a, "b": b, "delta": b - a, "abs_delta": abs(b - a),
        "allocations_a": _known(x), "allocations_b": _known(y),
        "only": BOTH if one.kind != "row" or (x is not None and y is not None) else "a" if x is not None else "b", "kind": one.kind,
        "color": color(one.name) if category else plain, "estimated": any(r is not None and r.estimated for r in (x, y)),
    }  # fmt: skip


def _known(row: Row | None) -> int | None:
    """Returns the number of allocations: 0 of a name that is not there, None where the source does not count them."""
    return 0 if row is None else row.allocations if row.allocations >= 0 else None
