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
from tb_sol_plugin.metrics.memory.attribution import GROUPINGS, By, answers, holders
from tb_sol_plugin.metrics.memory.curves import Curves, steps, thin, within
from tb_sol_plugin.metrics.memory.fragmentation import heap
from tb_sol_plugin.metrics.memory.labels import color, label
from tb_sol_plugin.metrics.memory.leaks import sums_of_steps
from tb_sol_plugin.metrics.memory.owners import own_line, owners
from tb_sol_plugin.metrics.memory.sources import SOURCES
from tb_sol_plugin.metrics.memory.summary import look
from tb_sol_plugin.metrics.report.notes import setting
from tb_sol_plugin.metrics.trees.module_tree import module_instance
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.recordings import Side
from tb_sol_plugin.model.report import Column, Scalar, Sort, TableSection, make_table
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.units import how_many, human

# -- What one recording gives to be set beside another in detail -----------------------------------------------------
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
    return [_listed_facts(found[0], name, str), _listed_facts(found[1], name, module_instance), none]


def _of_history(capture: Capture, row: Ints) -> list[_Texts]:
    """No operator, no module, and the line, of rows of `memory_events`."""
    none = _Texts(np.zeros(len(row), np.int64), [""])
    frames = capture.tables[S.MEMORY_EVENTS.name]["frames"]
    return [none, none, _listed_facts(arrays.codes(frames)[row], frames, own_line)]


def _listed_facts(code: Ints, column: pd.Series, text: Callable[[str], str]) -> _Texts:
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


class ComparePart(msgspec.Struct, frozen=True):
    """One recording, of the memory of its device with most in use. Bytes; None is unknown, as in `metrics.memory.summary`.

    growth: bytes per step where a line through the steps was made. held: by grouping, rows that add up to peak. notes: of each grouping.
    whole: since the first step's begin, else the recording's; of_step: the step with the peak since its begin, None where no step holds it.
    setting: how the recording was made. base: used on the device beside the allocator. worst: most that was held and not in use at once.
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


def part(capture: Capture, query: Query) -> ComparePart:
    """The part of one recording. Unavailable where no device's allocator was recorded."""
    looked = look(capture, query)
    memory, every, window, curve = looked.memory, looked.every, looked.window, looked.curve
    found, room = looked.found, looked.room
    blocks = None if memory.host else heap(capture, memory.number)
    held: dict[str, tuple[Row, ...]] = {}
    notes: dict[str, tuple[str, ...]] = {}
    for by in GROUPINGS:
        if by in answers(capture, every):
            held[by], notes[by] = _rows(capture, curve, by)
    return ComparePart(
        device=memory.label, source=SOURCES[every.source], relative=found.relative, peak=found.peak, reserved=found.reserved,
        reserved_at_peak=found.reserved_at_peak, fragmentation=found.fragmentation, before=found.before, end=found.end,
        capacity=room.total.bytes, left=room.left.bytes if room.left.bytes is not None else found.left,
        growth=looked.growth,
        failures=looked.failures,
        held=held, notes=notes, whole=_whole(capture, curve), of_step=_of_step(capture, every, curve), setting=setting(capture),
        base=room.base.bytes, worst=_worst(curve), free=blocks.free if blocks is not None else None,
        split=blocks.split if blocks is not None else None, largest=blocks.largest if blocks is not None else None,
        operators=operators_of(capture, memory.teller(every, ("events",)), window),
        kinds=kinds_of(capture, memory.teller(every, ("events", "snapshot")), window), per_step=steps_of(capture, every),
    )  # fmt: skip


def _worst(curve: Curves) -> int | None:
    """Most that was held and not in use at one moment; None without levels of both."""
    if curve.allocated is None or curve.reserved is None or curve.relative:
        return None
    known = (curve.reserved >= 0) & (curve.allocated >= 0)
    gap = int((curve.reserved - curve.allocated)[known].max()) if known.any() else -1
    return gap if gap >= 0 else None


def _rows(capture: Capture, curve: Curves, by: By) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """The largest rows, the others as one; they add up to the peak."""
    found = holders(capture, curve, by)
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
    """From the begin of the first step that the curve reaches, else of the recording."""
    table = steps(capture)
    inside = table[(table["end_ns"] > curve.time_ns[0]) & (table["start_ns"] <= curve.time_ns[-1])]
    start = int(inside["start_ns"].min()) if len(inside) else min(int(capture.facts.extent_ns[0]), int(curve.time_ns[0]))
    return _line(curve, start, int(curve.time_ns[-1]), None)


def _of_step(capture: Capture, every: Curves, curve: Curves) -> Line | None:
    """The step in which most was in use."""
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


# -- Operators, kinds of allocations and steps of two recordings as tables -------------------------------------------
# delta first, then both; what one of them lacks is said.


OUTSIDE: Final = "(no operator)"
BOTH: Final = "both"
CUT: Final = "among the smaller ones of this recording, or not there"
INSIDE: Final = "with what runs inside, so that rows overlap and have no sum"
UNTOLD: Final = "which free ends one is not recorded"
NUMBERS: Final = {
    "self_size_increase_bytes": ("self_size_increase", "Self increase", "B", "bytes of events whose innermost operator it is, frees count "
                                 "negative", (1, 1, 1)),
    "allocated_bytes": ("allocated_bytes", "Allocated", "B", "bytes of the allocations inside its calls, freed or not", (2, 2, 2)),
    "allocation_count": ("allocations", "Allocations", "count", "allocations inside its calls", (2, 2, 2)),
    "calls": ("calls", "Calls", "count", "its calls", (2, 3, 3)),
    "size_increase_bytes": ("size_increase", "Increase", "B", "what its calls added to memory in use, with what runs inside", (2, 3, 3)),
    "self_allocated_bytes": ("self_allocated_bytes", "Self allocated", "B", "bytes of allocations directly in it", (3, 3, 3)),
    "self_allocation_count": ("self_allocations", "Self allocations", "count", "allocations directly in it", (3, 3, 3)),
}  # fmt: skip
"""Of operators: by name of the columns the number of the part, label, unit, meaning, and ranks of the difference, A and B."""
KINDS: Final = {
    "bytes": ("bytes", "Bytes", "B", "sum of the bytes of such allocations", (1, 1, 1)),
    "kept": ("kept", "Kept", "count", "such allocations that were not freed while recording", (2, 3, 3)),
    "count": ("count", "Count", "count", "such allocations", (2, 3, 3)),
}
_MADE_OF: Final = {  # inclusive numbers, and the ones that add up to all
    "size_increase_bytes": "self_size_increase", "allocated_bytes": "self_allocated_bytes", "allocation_count": "self_allocations",
}  # fmt: skip
STEPS: Final = {
    "peak_bytes": ("peak", "In use at most", "B", "most that was in use at once during the step", (1, 1, 1)),
    "end_bytes": ("end", "At its end", "B", "in use when the step ends", (2, 2, 2)),
    "allocated_bytes": ("allocated", "Allocated", "B", "sum of all allocations in the step", (2, 2, 2)),
}
Numbers = dict[str, tuple[str, str, str, str, tuple[int, int, int]]]


def _columns(numbers: Numbers, missing: str) -> list[Column]:
    """Difference, A and B of each number."""
    out = []
    for name, (_, text, unit, doc, ranks) in numbers.items():
        lacks = UNTOLD if name == "kept" else missing
        out += [
            Column(f"{name}_delta", f"{text}, difference", unit, f"{doc}: B less A", rank=ranks[0], missing=f"not known of both: {lacks}"),
            Column(f"{name}_a", f"{text}, A", unit, f"{doc}, in A", rank=ranks[1], missing=lacks),
            Column(f"{name}_b", f"{text}, B", unit, f"{doc}, in B", rank=ranks[2], missing=lacks),
        ]
    return out


_ONLY: Final = Column("only", "Recorded in", doc="both, or the one recording that has it", show="text")
_SIZE: Final = Column("abs_delta", "Size of it", "B", "size of the first difference; where that is not known, at least so much", rank=3)
_KEY: Final = Column("key", "Id", doc="stable key of the row", rank=3)
OPERATORS: Final = (
    Column("name", "Operator", doc="name of the operator; (no operator): events outside of every one", show="code"),
    *_columns(NUMBERS, f"{CUT}, or {INSIDE}"), _ONLY, _SIZE, _KEY,
)  # fmt: skip
ALLOCATIONS: Final = (
    Column("operator", "Operator", doc="innermost operator around the allocations", show="code", missing="no operator around them"),
    Column("module", "Module", doc="innermost module around them", show="code", missing="no module around them"),
    Column("frame", "Python line", doc="line of the program, where a snapshot tells them", show="code", missing="not told by this source"),
    Column("size_bytes", "Size", "B", "bytes of each of them", missing="of several sizes"),
    *_columns(KINDS, CUT), _ONLY, _SIZE, _KEY,
)  # fmt: skip
PER_STEP: Final = (
    Column("place", "Place", "count", "place among the steps of each recording, from 1"),
    Column("step_a", "Step, A", doc="number in ProfilerStep#N", show="code", missing="this recording has fewer steps"),
    Column("step_b", "Step, B", doc="number in ProfilerStep#N", show="code", missing="this recording has fewer steps"),
    *_columns(STEPS, "this recording has fewer steps, or its source tells levels at some moments only"),
)  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """A row: what it is, its numbers in A and B (None: not known), in: both, a, b, and the size of the first difference, at least."""

    name: tuple[str, ...]
    a: tuple[int, ...] | None
    b: tuple[int, ...] | None
    only: str
    least: int


def matched(a: Listing, b: Listing, by: tuple[int, ...]) -> list[Pair]:
    """Rows matched by name, largest difference of the first of the numbers `by` first.

    A list that was cut may hold a row that it does not name. Such a row of the other one is left to the smaller ones where it is as
    small as they are by all of `by`, and else stands with one side unknown.
    """
    left, right = ({r.name: r.numbers for r in side.rows} for side in (a, b))
    out = []
    for name in dict.fromkeys([*left, *right]):
        x, y = left.get(name), right.get(name)
        if x is not None and y is not None:
            out.append(Pair(name, x, y, BOTH, abs(y[by[0]] - x[by[0]])))
            continue
        there, cut, only = (x, b.cut, "a") if x is not None else (y, a.cut, "b")
        assert there is not None
        size = abs(there[by[0]])
        if cut is None:
            none = (0,) * len(there)
            out.append(Pair(name, there if only == "a" else none, none if only == "a" else there, only, size))
        elif any(abs(there[i]) > cut[i] for i in by):
            out.append(Pair(name, x, y, only, max(size - cut[by[0]], 0)))
    last = by[-1]
    further = {p.name: abs((p.b or p.a or ())[last] - (p.a or p.b or ())[last]) for p in out}
    return sorted(out, key=lambda p: (-p.least, -further[p.name]))


def _rest(pairs: list[Pair], listing: Listing, side: str) -> tuple[int, ...]:
    """Sums of what stands in no row."""
    own = [n for p in pairs if (n := p.a if side == "a" else p.b) is not None]
    return tuple(total - sum(n[i] for n in own) for i, total in enumerate(listing.total))


def _cells(numbers: Numbers, order: tuple[str, ...], a: tuple[int, ...] | None, b: tuple[int, ...] | None) -> dict[str, Scalar]:
    row: dict[str, Scalar] = {}
    for name, (field, *_) in numbers.items():
        at = order.index(field)
        x, y = (None if side is None or (field == "kept" and side[KIND.index("unknown")]) else side[at] for side in (a, b))
        row |= {f"{name}_delta": y - x if x is not None and y is not None else None, f"{name}_a": x, f"{name}_b": y}
    return row


def _table(
    section_id: str, title: str, columns: tuple[Column, ...], numbers: Numbers, order: tuple[str, ...], sides: tuple[Listing, Listing],
    by: tuple[int, ...], here: Side[ComparePart], there: Side[ComparePart], *, first: str, footer: str, subtitle: str,
) -> TableSection:  # fmt: skip
    a, b = sides
    pairs = matched(a, b, by)
    rest = _rest(pairs, a, "a"), _rest(pairs, b, "b")
    rows = [_cells(numbers, order, p.a, p.b) | _said(p, section_id) | {"only": _in(p, here, there), "abs_delta": p.least} for p in pairs]
    open_ = a.cut is not None or b.cut is not None
    inclusive = section_id == "operators"
    if open_:
        cells = _cells(numbers, order, *rest)
        left: dict[str, Scalar] = {first: SMALLER, "key": "rest", "only": "both"}
        if inclusive:
            cells |= {f"{n}_{w}": None for n in _MADE_OF for w in ("delta", "a", "b")}
        at = abs(rest[1][by[0]] - rest[0][by[0]])
        rows.append(left | {"abs_delta": at} | cells)
    total = _cells(numbers, order, a.total, b.total)
    if inclusive:
        for name, field in _MADE_OF.items():
            x, y = (s.total[order.index(field)] for s in sides)
            total |= {f"{name}_delta": y - x, f"{name}_a": x, f"{name}_b": y}
        total |= {f"calls_{w}": None for w in ("delta", "a", "b")}
    total |= {first: "all of them", "abs_delta": abs(b.total[by[0]] - a.total[by[0]])}
    names = [c.name for c in columns]
    frame = pd.DataFrame([{n: r.get(n) for n in names} for r in rows], columns=names, dtype=object)
    same = not any(str(o) != "both" for o in frame["only"])
    told: set[str] = {n for n in ("operator", "module", "frame") if n in names and frame[n].notna().any()}
    shown = [_ranked(_named(c, here, there), same, told) for c in columns]
    cut = " The smaller ones are one row; what stands there is unknown where it is not named." if open_ else ""
    return make_table(
        section_id, title, frame, shown, key="key", sort=Sort("abs_delta"), total={n: total.get(n) for n in names},
        last=["rest"] if open_ else [], filters=[] if same else ["only"], subtitle=subtitle, footer=f"{footer}{cut}",
        empty="No memory event in either recording.",
    )  # fmt: skip


def _said(pair: Pair, section_id: str) -> dict[str, Scalar]:
    if section_id == "operators":
        none: dict[str, Scalar] = {} if pair.name[0] else {f"calls_{w}": None for w in ("delta", "a", "b")}  # no operator, no calls
        return {"name": pair.name[0] or OUTSIDE, "key": f"row:{pair.name[0]}"} | none
    operator, module, frame, size = pair.name
    return {"operator": operator or None, "module": module or None, "frame": frame or None, "size_bytes": int(size),
            "key": f"row:{'|'.join(pair.name)}"}  # fmt: skip


def _in(pair: Pair, here: Side[ComparePart], there: Side[ComparePart]) -> str:
    if pair.only == BOTH:
        return "both"
    mine, other = (here, there) if pair.only == "a" else (there, here)
    unknown = pair.a is None or pair.b is None
    return f"{mine.name}; not known of {other.name}" if unknown else f"only {mine.name}"


def _named(column: Column, here: Side[ComparePart], there: Side[ComparePart]) -> Column:
    """A and B by their names."""
    label = column.label
    for letter, side in (("A", here), ("B", there)):
        label = f"{label.removesuffix(f', {letter}')}, {side.name}" if column.label.endswith(f", {letter}") else label
    return msgspec.structs.replace(column, label=label)


def _ranked(column: Column, same: bool, told: set[str]) -> Column:
    """Columns that say nothing are hidden."""
    silent = (column.name == "only" and same) or (column.name in ("operator", "module", "frame") and column.name not in told)
    return msgspec.structs.replace(column, rank=3) if silent else column


def _nothing(section_id: str, title: str, columns: tuple[Column, ...], why: str) -> TableSection:
    return TableSection(id=section_id, title=title, columns=list(columns), data={c.name: [] for c in columns}, key="key", empty=why)


def _lacks(sides: tuple[Listing | None, Listing | None], here: Side[ComparePart], there: Side[ComparePart], what: str) -> str:
    """Why two lists cannot be set beside each other; "" where they can."""
    lacking = [s.name for s, found in zip((here, there), sides, strict=True) if found is None]
    if lacking:
        lead = "Neither recording tells" if len(lacking) > 1 else f"The recording of {lacking[0]} does not tell"
        return f"{lead} {what}. Record a trace with profile(profile_memory=True)."
    a, b = sides
    if a is not None and b is not None and a.source != b.source:
        return f"A trace tells {what} by operator, a snapshot by line of the program: the two do not compare."
    return ""


def operators(here: Side[ComparePart], there: Side[ComparePart], a: ComparePart, b: ComparePart) -> TableSection:
    """Empty, with the reason, where a source knows no operators."""
    title, why = "Operators", _lacks((a.operators, b.operators), here, there, "operators")
    if why or a.operators is None or b.operators is None:
        return _nothing("operators", title, OPERATORS, why)
    by = OPERATOR.index("self_size_increase"), OPERATOR.index("allocated_bytes")
    return _table(
        "operators", title, OPERATORS, NUMBERS, OPERATOR, (a.operators, b.operators), by, here, there, first="name",
        subtitle="what they added to memory in use, and what they allocated",
        footer="Self increase is allocations less frees directly in an operator, and adds up. Numbers without “self” hold what runs "
        "inside, so that rows overlap; their first row counts each event once."
        + _lengths(here, there, a, b),
    )  # fmt: skip


def allocations(here: Side[ComparePart], there: Side[ComparePart], a: ComparePart, b: ComparePart) -> TableSection:
    """Empty, with the reason, where a source tells no single allocations, or the two tell different things of them."""
    title, why = "Allocations", _lacks((a.kinds, b.kinds), here, there, "single allocations")
    if why or a.kinds is None or b.kinds is None:
        return _nothing("allocations", title, ALLOCATIONS, why)
    who = "operator, module and size" if a.kinds.source == "events" else "line of the program and size"
    return _table(
        "allocations", title, ALLOCATIONS, KINDS, KIND, (a.kinds, b.kinds), (KIND.index("bytes"),), here, there,
        first="operator" if a.kinds.source == "events" else "frame", subtitle=f"of the same {who} together",
        footer="Those that begin in what is shown. Kept are those that were not freed while recording."
        + (" The history of a snapshot holds its last entries only." if a.kinds.source == "snapshot" else "") + _lengths(here, there, a, b),
    )  # fmt: skip


def _lengths(here: Side[ComparePart], there: Side[ComparePart], a: ComparePart, b: ComparePart) -> str:
    """That sums are over recordings of other lengths."""
    counts = [p.per_step.count if p.per_step is not None else 0 for p in (a, b)]
    if counts[0] == counts[1]:
        return ""
    said = [f"{how_many(n, 'step')} of {s.name}" for n, s in zip(counts, (here, there), strict=True)]
    return f" Sums are over all that was recorded, {said[0]} and {said[1]}, unless a step is chosen."


def per_step(here: Side[ComparePart], there: Side[ComparePart], a: Steps | None, b: Steps | None) -> TableSection | None:
    """The first step of A beside the first of B, and so on; None where one of them has no steps."""
    if a is None or b is None:
        return None
    rows: list[dict[str, Scalar]] = []
    for at in range(max(len(a.rows), len(b.rows))):
        x, y = (s.rows[at] if at < len(s.rows) else None for s in (a, b))
        row: dict[str, Scalar] = {
            "place": at + 1, "step_a": str(x.number) if x is not None else None, "step_b": str(y.number) if y is not None else None,
        }  # fmt: skip
        for name, (field, *_) in STEPS.items():
            u, v = (n if s is not None and ((n := int(getattr(s, field))) >= 0 or field != "allocated") else None for s in (x, y))
            row |= {f"{name}_delta": v - u if u is not None and v is not None else None, f"{name}_a": u, f"{name}_b": v}
        rows.append(row)
    frame = pd.DataFrame(rows, columns=[c.name for c in PER_STEP], dtype=object)
    told = {c.name for c in PER_STEP if bool(frame[c.name].notna().any())}
    columns = [_named(c, here, there) for c in PER_STEP]
    columns = [c if c.name in told else msgspec.structs.replace(c, rank=3) for c in columns]
    left = max(a.count, b.count) - len(rows)
    more = "" if a.count == b.count else f"; {human(a.count, 'count')} and {human(b.count, 'count')} of them"
    return make_table(
        "per_step", "Steps", frame, columns, key="place", sort=Sort("place", descending=False),
        subtitle=f"first beside first, second beside second{more}", truncated=left,
    )  # fmt: skip


# -- Two lists of who held memory as one -----------------------------------------------------------------------------
# matched by name, with their difference; sums stay exact.


_LAST: Final = ("before", "unknown")


@dataclass(frozen=True)
class Differences:
    """frame: one row per name: name, key (as the source has it), a, b, delta, abs_delta (bytes), allocations_a, allocations_b, only ("a",
    "b", both), kind, color, estimated. Its a and b add up to the peaks, so delta does to their difference.
    """

    frame: pd.DataFrame

    def largest(self, *, falls: bool) -> list[tuple[str, int]]:
        """(name, delta) of the rows that fell (or rose) most, largest first, rows that nobody can name left out."""
        rows = [(str(n), int(d)) for n, d, k in zip(self.frame["name"], self.frame["delta"], self.frame["kind"], strict=True) if k != REST]
        mine = [r for r in rows if (r[1] < 0) == falls and r[1]]
        return sorted(mine, key=lambda r: -abs(r[1]))


def grouping(a: ComparePart, b: ComparePart, asked: str) -> tuple[str, str]:
    """(the grouping to show, "" where there is none; why it is another than asked for)."""
    both = [by for by in GROUPINGS if by in a.held and by in b.held]
    if asked in both:
        return asked, ""
    first = both[0] if both else ""
    if asked == "auto":
        return first, "" if both else "No grouping is known of both recordings."
    can = f"; both can by {', '.join(both)}" if both else ""
    return first, f"Not both recordings tell it by {asked}{can}."


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
    """Allocations: none of a name that is not there, unknown where the source does not count them."""
    return 0 if row is None else row.allocations if row.allocations >= 0 else None
