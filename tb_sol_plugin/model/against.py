"""Sets a report against the same report of another recording, the baseline: its numbers and the differences beside every number.

Differences are those of the report that is shown less the baseline. Rows are matched by what names them; rows that are single events or
single steps have no counterpart and stay as they are. What is unknown on one side has no difference. A row that one side does not have
counts as 0 there only in columns whose rows add up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tb_sol_plugin.model.columns import MANY_ROWS, Indices, Mask, Numbers, Values, columned, text_of
from tb_sol_plugin.model.report import (
    AnySection,
    Column,
    FactsSection,
    FigureSection,
    FindingsSection,
    Mark,
    Notice,
    Report,
    Scalar,
    Sort,
    TableSection,
)
from tb_sol_plugin.model.rows import ADDED_UP, TableRows
from tb_sol_plugin.units import how_many, signed_percent

BASE: Final = "_base"
DELTA: Final = "_delta"
CHANGE: Final = "_change"
"""Endings of the columns beside one: the baseline's, the difference, and the difference as part of the baseline's."""
VERDICT: Final = "_verdict"
"""Ending of the column that says whether a difference is more than noise."""
SIDE: Final = "in_base"
"""The column that says on which side a row is."""
NAMING: Final = ("code", "symbol", "tree", "shapes", "badge")
"""Columns that name the rows of a table without a key."""
SHOWN: Final = (*ADDED_UP, "efficiency")
"""Ways to show a column of numbers."""
WHOLE: Final = 12
"""Columns of the page."""
RANKED: Final = 5
"""A table as narrow as this is a list with one bar per row: it has no room for further columns."""
SINGLE: Final = "Single events and steps have no counterpart in the baseline: these rows are not set against it."
ROWS_BY: Final = {"kernels": ("kernel", "short_name"), "operators": ("operator", "name")}
"""Tables, each on the page of its name, whose rows a comparison of steps judges: by which grouping, and the column that names them."""
METRICS_OF: Final = {
    "gpu_breakdown": ("device_busy", "idle", "exposed_communication", "exposed_memcpy"), "idle": ("idle", "syncs"),
    "steps": ("host_time", "device_busy", "dataloader", "mfu"), "overview": ("efficiency", "device_busy", "idle", "syncs"),
    "kernels": ("kernel_time", "launches"), "operators": ("host_time", "kernel_time", "launches"),
    "roofline": ("efficiency", "mfu", "kernel_time"),
    "launches": ("launches", "syncs", "host_time"), "memcpy": ("exposed_memcpy", "copied_bytes"), "critical_path": ("device_busy", "idle"),
    "memory": ("peak_memory", "allocations"), "phases": ("host_time", "kernel_time"), "modules": ("host_time", "kernel_time"),
}  # fmt: skip
"""Numbers of a step that a page is about."""
JUDGED: Final = "of its time per step: worse, better: more than noise; same: alike; inconclusive: within the noise; unknown: too few steps"
OUTCOME: Final = "slower, faster, more, less: more than noise; no change: within 1 %; no change shown: the difference is within the noise"
Array: TypeAlias = "npt.NDArray[np.int64] | npt.NDArray[np.float64]"


class Steps(Struct, frozen=True):
    """Which steps of two recordings are set against each other. here, base: as a query names them. note: what was chosen, "" as asked."""

    here: str
    base: str
    note: str = ""


def steps_alike(asked: str, here: Sequence[int], base: Sequence[int], names: tuple[str, str]) -> Steps:
    """Returns as many steps of both: sums over a recording of ten steps say nothing beside those over five.

    asked: the query's field. here, base: numbers of the complete steps. names: of both. The steps asked for, where the baseline has them
    too; else the last ones of each, as many as the shorter one has. Without steps on a side both stay whole.
    """
    wanted = _within(asked, here)
    if not wanted or not base or (not asked and len(here) == len(base)) or (asked and set(wanted) <= set(base)):
        return Steps(asked, asked)
    count = min(len(wanted), len(base))
    ours, theirs = (f"{s[-count]}-{s[-1]}" if count > 1 else str(s[-1]) for s in (wanted, base))
    both = " and ".join(f"{steps.replace('-', '–')} of {name}" for steps, name in zip((ours, theirs), names, strict=True))
    return Steps(ours, theirs, f"Both over the last {how_many(count, 'step')} that each has: {both}.")


def _within(asked: str, steps: Sequence[int]) -> list[int]:
    low, dash, high = asked.strip().partition("-")
    if not asked.strip():
        return list(steps)
    if not low.isdecimal() or (dash and not high.isdecimal()):
        return []
    return [n for n in steps if int(low) <= n <= int(high or low)]


def against(here: Report, base: Report, names: tuple[str, str], change: Report | None = None) -> Report:
    """Returns a report with the numbers of the baseline beside its own. names: of both. change: the comparison of the steps of both, by
    the rows that `ROWS_BY` says; None: not known.
    """
    there = {s.id: s for s in base.sections}
    sections: list[AnySection] = []
    notices: list[Notice] = []
    for section in _with_room(here.sections, there):
        other = there.get(section.id)
        if isinstance(section, TableSection) and isinstance(other, TableSection):
            joined = _table(section, other, names[1])
            judged = _verdicts(change) if section.id in ROWS_BY else {}
            sections.append(_judged(joined, ROWS_BY[section.id][1], judged) if judged else joined)
        elif isinstance(section, FactsSection) and isinstance(other, FactsSection):
            known = {n: v for n, v in other.values.items() if n in section.values and v is not None}
            sections.append(msgspec.structs.replace(section, base=known))
        elif isinstance(section, FigureSection) and isinstance(other, FigureSection):
            sections += _figures(section, other, names)
        else:
            sections.append(section)
            if isinstance(section, FindingsSection) and isinstance(other, FindingsSection):
                notices += _findings(section, other, names[1])
    quoted = names[1].replace("`", "'")
    warned = [n for n in base.notices if n.level != "info" and n not in here.notices]
    notices += [msgspec.structs.replace(n, text=f"`{quoted}`: {n.text}") for n in warned]
    return msgspec.structs.replace(here, sections=sections, notices=[*notices, *here.notices])


def _with_room(sections: Sequence[AnySection], there: Mapping[str, AnySection]) -> list[AnySection]:
    """Returns sections so that both figures of a pair share a row of the page: what stood beside the one has the next row."""
    rows: list[list[AnySection]] = []
    for section in sections:
        if not rows or sum(s.span for s in rows[-1]) + section.span > WHOLE:
            rows.append([])
        rows[-1].append(section)
    out: list[AnySection] = []
    for row in rows:
        pairs = [isinstance(s, FigureSection) and isinstance(there.get(s.id), FigureSection) for s in row]
        if any(pairs):
            span = WHOLE // max(len(row) - sum(pairs), 1)
            row = [msgspec.structs.replace(s, span=WHOLE // 2 if pair else span) for s, pair in zip(row, pairs, strict=True)]
        out += row
    return out


def _findings(here: FindingsSection, base: FindingsSection, name: str) -> list[Notice]:
    """Returns which findings came and went."""
    ours, theirs = ({f.rule: f.title for f in s.findings} for s in (here, base))
    came, gone = [ours[r] for r in ours if r not in theirs], [theirs[r] for r in theirs if r not in ours]
    name = name.replace("`", "'")
    out = [f"New against `{name}`: {'; '.join(came)}."] if came else []
    out += [f"Only in `{name}`: {'; '.join(gone)}."] if gone else []
    return [Notice(" ".join(out), "info")] if out else []


def _figures(here: FigureSection, base: FigureSection, names: tuple[str, str]) -> list[FigureSection]:
    """Returns both figures beside each other. That of the baseline selects nothing: its points are not rows of this page."""
    ours, theirs = (" · ".join(filter(None, (name, s.subtitle))) for name, s in zip(names, (here, base), strict=True))
    other = msgspec.structs.replace(
        base, id=f"{base.id}{BASE}", subtitle=theirs, span=here.span, height=here.height, table="", notes={}, zoom=None, stretches={},
        links=[],
    )  # fmt: skip
    return [msgspec.structs.replace(here, subtitle=ours), other]


# -- Verdicts ----------------------------------------------------------------------------------------------------------


def verdict_row(change: Report, page: str, name: str) -> FactsSection | None:
    """Returns whether the step, and each number of it that a page is about, is more or less than in the baseline, and how sure that is.

    change: the comparison of the steps of both; None where it has no numbers. name: of the baseline.
    """
    found = next((s for s in change.sections if isinstance(s, TableSection) and s.id == "metrics"), None)
    if found is None:
        return None
    rows = {str(metric): i for i, metric in enumerate(found.data["name"])}
    own = {metric: rows[metric] for metric in ("step_time", *METRICS_OF.get(page, ())) if metric in rows}
    facts = {f"verdict_{metric}": i for metric, i in own.items()}
    return FactsSection(
        id="verdict", title=f"Against {name}", style="tiles", subtitle="medians over the steps of both",
        values={fact: _outcome(found, i) for fact, i in facts.items()},
        labels={fact: str(found.data["metric"][i]) for fact, i in facts.items()},
        notes={fact: _how_sure(found, i) for fact, i in facts.items()}, docs=dict.fromkeys(facts, OUTCOME),
    )  # fmt: skip


def _outcome(found: TableSection, i: int) -> str:
    """Returns `slower, +8.0 %`, or `no change shown`."""
    outcome, change, verdict = (found.data[c][i] for c in ("outcome", "change", "verdict"))
    if verdict not in ("worse", "better") or not isinstance(change, float):
        return str(outcome)
    return f"{outcome}, {signed_percent(change)}"


def _how_sure(found: TableSection, i: int) -> str:
    """Returns both medians, and the interval of the change where it is known."""
    low, high, a, b = (found.data[c][i] for c in ("low", "high", "a_text", "b_text"))
    sizes = f"{a} → {b}"
    known = isinstance(low, float) and isinstance(high, float) and low != high
    return f"{sizes}; 95 % interval {signed_percent(low)} to {signed_percent(high)}" if known else sizes  # type: ignore[arg-type]


def _verdicts(change: Report | None) -> dict[str, tuple[Scalar, Scalar, Scalar]]:
    """Returns (verdict, low_ns, high_ns) of each row of a comparison, by name."""
    rows = next((s for s in change.sections if isinstance(s, TableSection) and s.id == "rows"), None) if change is not None else None
    if rows is None:
        return {}
    name, verdict, low, high = (rows.data[c] for c in ("name", "verdict", "low_ns", "high_ns"))
    return {str(n): (verdict[i], low[i], high[i]) for i, n in enumerate(name)}


def _judged(section: TableSection, naming: str, known: Mapping[str, tuple[Scalar, Scalar, Scalar]]) -> TableSection:
    """Returns a table with what the comparison of steps says of its rows. naming: the column with their names."""
    names = [str(v) for v in section.data.get(naming, ())]
    times = Counter(names)
    names = [name if times[name] == 1 else "" for name in names]  # several rows of a name: it says nothing of one
    main = section.sort.column.removesuffix(DELTA) if section.sort is not None else ""
    place = max((i for i, c in enumerate(section.columns) if c.name in (f"{main}{BASE}", f"{main}{DELTA}", f"{main}{CHANGE}")), default=-1)
    if place < 0 or all(known[name][0] == "unknown" for name in names if name in known):  # too few steps, which the page says above
        return section
    rare = "not among the names with most time, or several rows of one name"
    added = (
        Column(f"{main}{VERDICT}", "Verdict", doc=JUDGED, show="badge", missing=rare),
        Column(f"{main}_low", "From", "ns", "lower end of the 95 % interval of the difference per step", rank=2, missing="too few steps"),
        Column(f"{main}_high", "To", "ns", "upper end of the 95 % interval of the difference per step", rank=2, missing="too few steps"),
    )  # fmt: skip
    none: tuple[Scalar, Scalar, Scalar] = (None, None, None)
    data = dict(section.data) | {c.name: [known.get(n, none)[k] for n in names] for k, c in enumerate(added)}
    columns = [*section.columns[: place + 1], *added, *section.columns[place + 1 :]]
    return msgspec.structs.replace(section, columns=columns, data=data, filters=[*section.filters, added[0].name])


# -- Tables -----------------------------------------------------------------------------------------------------------


class _Matched(Struct, frozen=True):
    """Rows of both tables in the order of the joined one. here, base: the row of each, -1 none."""

    here: Indices
    base: Indices

    @property
    def extra(self) -> Indices:
        """Rows of the baseline that are not here: they stand at the end."""
        return self.base[self.here < 0]


def _table(here: TableSection, base: TableSection, name: str) -> TableSection:
    """Returns a table with the baseline's columns beside its own, and rows that only the baseline has."""
    if here.span <= RANKED or here.error or base.error:
        return here
    whole = not here.truncated and not base.truncated
    rows = _matched(here, base, whole)
    if rows is None:
        return msgspec.structs.replace(here, footer=" ".join(filter(None, (here.footer, SINGLE))))
    both = {c.name: (columned(here.data[c.name]), columned(base.data[c.name])) for c in here.columns if c.name in base.data}
    compared = _numbers_of(here, both)
    main = _main(here, compared)
    if main is None:
        return here
    zero = _added_up(here, base, main) if whole else set()
    data: dict[str, Sequence[Scalar]] = {c.name: _joined(here, c, both.get(c.name), rows) for c in here.columns}
    beside = {c.name: _beside(c, main, name) for c in compared}
    total, marks = dict(here.total or {}), dict(here.marks)
    for column in compared:
        added = beside[column.name]
        found = _differences(both[column.name], rows, column.name in zero)
        data |= {c.name: _held(*v) for c, v in zip(added, found, strict=False)}
        total |= _of_total(column, here, base, added)
        marks |= _marks(column, here, base, rows, added)
    shown = [c for column in here.columns for c in (column, *beside.get(column.name, ()))]
    sides = _sides(rows) if whole else None
    if sides is not None:
        shown.append(Column(SIDE, "In", doc=f"both; new: not in {name}; baseline only: no more here", show="badge", rank=2))
        data[SIDE] = sides
    return msgspec.structs.replace(
        here, columns=shown, data=data, total=total if here.total is not None else None, marks=marks,
        adds=[*here.adds, *(n for n in data if n.removesuffix(BASE).removesuffix(DELTA) in here.adds and n not in here.adds)],
        last=list(dict.fromkeys([*here.last, *base.last])), sort=Sort(f"{main.name}{DELTA}") if here.sort is not None else None,
        filters=[*here.filters, *([SIDE] if sides is not None else [])],
    )  # fmt: skip


def _sides(rows: _Matched) -> list[Scalar] | None:
    """Returns on which side each row is; None where all are on both."""
    gone, new = rows.here < 0, rows.base < 0
    return np.where(gone, "baseline only", np.where(new, "new", "both")).tolist() if (gone | new).any() else None


def _matched(here: TableSection, base: TableSection, whole: bool) -> _Matched | None:
    """Returns which rows of two tables are of the same thing; None where nothing names them. whole: no row of either was left out."""
    ours, theirs = _names_of(here), _names_of(base)
    if ours is None or theirs is None:
        return None
    known = {key: i for i, key in enumerate(theirs)}
    partner = np.array([known.get(key, -1) for key in ours], np.int64)
    missing = np.setdiff1d(np.arange(len(theirs)), partner) if whole else np.zeros(0, np.int64)
    return _Matched(np.concatenate([np.arange(len(ours)), np.full(len(missing), -1)]), np.concatenate([partner, missing]))


def _names_of(section: TableSection) -> list[str] | None:
    """Returns what names each row, once; None where rows are single events or steps, or nothing names them."""
    if section.timeline is not None and not section.timeline.what:
        return None
    if section.key:
        keys = [text_of(v) for v in section.data.get(section.key, ())]
        return keys if len(set(keys)) == len(keys) and not (keys and all(k.isdecimal() for k in keys)) else None
    naming = [c for c in section.columns if c.show in NAMING] or [c for c in section.columns if c.show == "text"][:1]
    if not naming or section.tree is not None:
        return None
    times: dict[str, int] = {}
    out = []
    for values in zip(*(section.data[c.name] for c in naming), strict=True):
        text = "\0".join(map(text_of, values))
        times[text] = times.get(text, 0) + 1
        out.append(f"{text}\0{times[text]}")
    return out


def _numbers_of(section: TableSection, both: Mapping[str, tuple[Values, Values]]) -> list[Column]:
    """Returns the columns that are compared."""
    return [c for c in section.columns if c.name in both and _are_numbers(c, both[c.name])]


def _are_numbers(column: Column, both: tuple[Values, Values]) -> bool:
    """Whether a column shows numbers on both sides, and is no moment in time: these are each recording's own."""
    shown = column.rank <= 2 and column.show in SHOWN and not column.name.startswith(("start", "end_"))
    return shown and all(isinstance(v, Numbers) for v in both)


def _main(section: TableSection, compared: Sequence[Column]) -> Column | None:
    """Returns the column that a table is about: the one it is sorted by, else the first with a bar, else the first."""
    named = next((c for c in compared if section.sort is not None and c.name == section.sort.column), None)
    return named or next((c for c in compared if c.show == "bar"), None) or next(iter(compared), None)


def _added_up(here: TableSection, base: TableSection, main: Column) -> set[str]:
    """Returns the columns in which a row that is not there counts as 0."""
    if here.tree is not None:  # a row holds those below it: what is absent has none of it
        return {main.name}
    return set(TableRows(here).additive) & set(TableRows(base).additive)


def _beside(column: Column, main: Column, name: str) -> list[Column]:
    """Returns the columns beside one: the baseline's, the difference, and the difference as part of the baseline's."""
    is_main, rank = column is main, 1 if column is main else 3
    of = "" if is_main else f"{column.label}, "
    part = column.unit in ("ratio", "%")
    out = [
        Column(f"{column.name}{BASE}", f"{of}baseline" if of else "Baseline", column.unit, f"{column.doc or column.label}, of {name}",
               rank=rank, missing=f"not in {name}", per=column.per),
        Column(f"{column.name}{DELTA}", f"{of}difference" if of else "Difference", column.unit,
               f"{column.label} here less that of {name}{', in points' if part else ''}", rank=rank, missing="unknown on one side",
               per=column.per),
    ]  # fmt: skip
    if not part:
        label, doc, missing = f"{of}change" if of else "Change", f"difference over what {name} has", f"0 or unknown in {name}"
        out.append(Column(f"{column.name}{CHANGE}", label, "ratio", doc, rank=rank, missing=missing))
    return out


def _joined(here: TableSection, column: Column, both: tuple[Values, Values] | None, rows: _Matched) -> Sequence[Scalar]:
    """Returns a column of the page with the rows that only the baseline has: their texts, and no numbers of this side."""
    own = here.data[column.name]
    if not len(rows.extra):
        return own
    names = {here.key, *((here.tree.id, here.tree.parent) if here.tree is not None else ())}
    keeps = both is not None and (column.name in names or column.show not in SHOWN)
    return [*own, *(both[1].at(rows.extra) if keeps and both is not None else [None] * len(rows.extra))]


def _differences(both: tuple[Values, Values], rows: _Matched, zero: bool) -> list[tuple[Array, Mask]]:
    """Returns (values, known) of the baseline's column, of the difference, and of the change. zero: an absent row counts as 0."""
    (ours, known), (theirs, known_base) = (_placed(v, at) for v, at in zip(both, (rows.here, rows.base), strict=True))
    both_known = known & known_base
    if zero:
        both_known |= (known & (rows.base < 0)) | (known_base & (rows.here < 0))
    delta = ours - theirs
    part = np.divide(delta, theirs, out=np.zeros(len(delta)), where=theirs != 0)
    return [(theirs, known_base), (delta, both_known), (part, both_known & (theirs != 0))]


def _placed(values: Values, at: Indices) -> tuple[Array, Mask]:
    """Returns the numbers of a side in the order of the joined rows, 0 where unknown, and which are known."""
    assert isinstance(values, Numbers)
    if not len(values):
        return np.zeros(len(at), np.int64), np.zeros(len(at), np.bool_)
    place = np.maximum(at, 0)
    known = values.known[place] & (at >= 0)
    return np.where(known, values.values[place], 0), known


def _held(values: Array, known: Mask) -> Sequence[Scalar]:
    """Returns numbers as a table holds them: of many rows as arrays."""
    found = Numbers(values, known)
    return found if len(values) > MANY_ROWS else found.tolist()


def _of_total(column: Column, here: TableSection, base: TableSection, added: Sequence[Column]) -> dict[str, Scalar]:
    """Returns the totals of the columns beside one."""
    ours, theirs = ((s.total or {}).get(column.name) for s in (here, base))
    if isinstance(ours, bool) or isinstance(theirs, bool) or not isinstance(theirs, int | float):
        return {}
    if not isinstance(ours, int | float):
        return {added[0].name: theirs}
    values: list[Scalar] = [theirs, ours - theirs, (ours - theirs) / theirs if theirs else None]
    return {c.name: v for c, v in zip(added, values, strict=False)}


def _marks(
    column: Column, here: TableSection, base: TableSection, rows: _Matched, added: Sequence[Column]
) -> Mapping[str, dict[str, Mark]]:
    """Returns the marks of the columns beside one: a difference of an estimated number is estimated."""
    ours, theirs = here.marks.get(column.name, {}), base.marks.get(column.name, {})
    if not ours and not theirs:
        return {}
    place = {str(b): str(i) for i, b in enumerate(rows.base.tolist()) if b >= 0} | {"total": "total"}
    moved = {place[at]: mark for at, mark in theirs.items() if at in place}
    doubtful: Collection[str] = ("estimated", "partial", "unverified")
    either = {at: m for at, m in (*ours.items(), *moved.items()) if m.state in doubtful}
    found = {added[0].name: moved} | {c.name: either for c in added[1:]}
    return {name: entries for name, entries in found.items() if entries}
