"""Operators, allocations and steps of two recordings beside each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
import pandas as pd

from tb_sol_plugin.analyses.memory.memory_compare_tables import BOTH, KIND, OPERATOR, SMALLER, Listing, ReducedMemory, Steps
from tb_sol_plugin.metrics.report.settings import named
from tb_sol_plugin.model.recordings import Compared
from tb_sol_plugin.model.report import Column, Scalar, Sort, TableSection, make_table
from tb_sol_plugin.units import how_many, human

OUTSIDE: Final = "(no operator)"
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
    """Returns difference, A and B of each number."""
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
    Column("frame", "Python line", doc="line of the program, where a snapshot has it", show="code", missing="not recorded by this source"),
    Column("size_bytes", "Size", "B", "bytes of each of them", missing="of several sizes"),
    *_columns(KINDS, CUT), _ONLY, _SIZE, _KEY,
)  # fmt: skip
PER_STEP: Final = (
    Column("place", "Place", "count", "place among the steps of each recording, from 1"),
    Column("step_a", "Step, A", doc="number in ProfilerStep#N", show="code", missing="this recording has fewer steps"),
    Column("step_b", "Step, B", doc="number in ProfilerStep#N", show="code", missing="this recording has fewer steps"),
    *_columns(STEPS, "this recording has fewer steps, or its source has levels at some moments only"),
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
    """Returns rows matched by name, largest difference of the first of the numbers `by` first.

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
    by: tuple[int, ...], here: Compared[ReducedMemory], there: Compared[ReducedMemory], *, first: str, footer: str, subtitle: str,
) -> TableSection:  # fmt: skip
    a, b = sides
    pairs = matched(a, b, by)
    rest = _rest(pairs, a, "a"), _rest(pairs, b, "b")
    rows = [
        _cells(numbers, order, p.a, p.b) | _key_cells(p, section_id) | {"only": _in(p, here, there), "abs_delta": p.least} for p in pairs
    ]
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
    reported: set[str] = {n for n in ("operator", "module", "frame") if n in names and frame[n].notna().any()}
    shown = [_ranked(c, same, reported) for c in named(columns, (here.name, there.name))]
    cut = " The smaller ones are one row; values that are not listed are unknown." if open_ else ""
    return make_table(
        section_id, title, frame, shown, key="key", sort=Sort("abs_delta"), total={n: total.get(n) for n in names},
        last=["rest"] if open_ else [], filters=[] if same else ["only"], subtitle=subtitle, footer=f"{footer}{cut}",
        empty="No memory event in either recording.",
    )  # fmt: skip


def _key_cells(pair: Pair, section_id: str) -> dict[str, Scalar]:
    if section_id == "operators":
        none: dict[str, Scalar] = {} if pair.name[0] else {f"calls_{w}": None for w in ("delta", "a", "b")}  # no operator, no calls
        return {"name": pair.name[0] or OUTSIDE, "key": f"row:{pair.name[0]}"} | none
    operator, module, frame, size = pair.name
    return {"operator": operator or None, "module": module or None, "frame": frame or None, "size_bytes": int(size),
            "key": f"row:{'|'.join(pair.name)}"}  # fmt: skip


def _in(pair: Pair, here: Compared[ReducedMemory], there: Compared[ReducedMemory]) -> str:
    if pair.only == BOTH:
        return "both"
    subset, other = (here, there) if pair.only == "a" else (there, here)
    unknown = pair.a is None or pair.b is None
    return f"{subset.name}; not known of {other.name}" if unknown else f"only {subset.name}"


def _ranked(column: Column, same: bool, known: set[str]) -> Column:
    """Hides columns that say nothing."""
    silent = (column.name == "only" and same) or (column.name in ("operator", "module", "frame") and column.name not in known)
    return msgspec.structs.replace(column, rank=3) if silent else column


def _nothing(section_id: str, title: str, columns: tuple[Column, ...], why: str) -> TableSection:
    return TableSection(id=section_id, title=title, columns=list(columns), data={c.name: [] for c in columns}, key="key", empty=why)


def _lacks(sides: tuple[Listing | None, Listing | None], here: Compared[ReducedMemory], there: Compared[ReducedMemory], what: str) -> str:
    """Returns why two lists cannot be compared; "" where they can."""
    lacking = [s.name for s, found in zip((here, there), sides, strict=True) if found is None]
    if lacking:
        lead = "Neither recording tells" if len(lacking) > 1 else f"The recording of {lacking[0]} does not tell"
        return f"{lead} {what}. Record a trace with profile(profile_memory=True)."
    a, b = sides
    if a is not None and b is not None and a.source != b.source:
        return f"A trace tells {what} by operator, a snapshot by line of the program: the two do not compare."
    return ""


def operators(here: Compared[ReducedMemory], there: Compared[ReducedMemory], a: ReducedMemory, b: ReducedMemory) -> TableSection:
    """Builds the table of operators; empty, with the reason, where a source records none."""
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


def allocations(here: Compared[ReducedMemory], there: Compared[ReducedMemory], a: ReducedMemory, b: ReducedMemory) -> TableSection:
    """Builds the table of allocations; empty, with the reason, where a source has none or the two record different things."""
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


def _lengths(here: Compared[ReducedMemory], there: Compared[ReducedMemory], a: ReducedMemory, b: ReducedMemory) -> str:
    """Says that sums are over recordings of different lengths."""
    counts = [p.per_step.count if p.per_step is not None else 0 for p in (a, b)]
    if counts[0] == counts[1]:
        return ""
    text = [f"{how_many(n, 'step')} of {s.name}" for n, s in zip(counts, (here, there), strict=True)]
    return f" Sums are over all that was recorded, {text[0]} and {text[1]}, unless a step is chosen."


def per_step(here: Compared[ReducedMemory], there: Compared[ReducedMemory], a: Steps | None, b: Steps | None) -> TableSection | None:
    """Builds the table of steps, the first of A and of B in one row, and so on; None where one of them has no steps."""
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
    reported = {c.name for c in PER_STEP if bool(frame[c.name].notna().any())}
    columns = named(PER_STEP, (here.name, there.name))
    columns = [c if c.name in reported else msgspec.structs.replace(c, rank=3) for c in columns]
    left = max(a.count, b.count) - len(rows)
    more = "" if a.count == b.count else f"; {human(a.count, 'count')} and {human(b.count, 'count')} of them"
    return make_table(
        "per_step", "Steps", frame, columns, key="place", sort=Sort("place", descending=False),
        subtitle=f"paired in order: first with first, second with second{more}", truncated=left,
    )  # fmt: skip
