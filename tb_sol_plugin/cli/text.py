"""Prints a Report in a terminal: facts, tables and findings with the same units as the page; figures by their one sentence."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.copies import counted, records
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import (
    AnySection,
    Column,
    FactsSection,
    FigureSection,
    FindingsSection,
    Report,
    Scalar,
    TableSection,
    UnavailableReport,
)
from tb_sol_plugin.units import NARROW, digits, how_many, human, number, scale_of, side_by_side, signed_percent

MARKUP = re.compile(r"\*\*(.+?)\*\*|`([^`]+)`")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_STATES = {"estimated": "≈ ", "lower_bound": "≥ "}
_AFTER = {"unverified": " ?", "flagged": " ⚑", "incomplete": " …", "partial": " …"}
_SPOKEN = {"incomplete": " (incomplete)", "partial": " (in part)"}
"""The same marks behind a single value, where no column explains the sign."""
LONGEST = 64
"""Characters of a name in a table."""
SIZES = 30
"""Characters of tensor sizes in a table."""
GLUE = "\ue000"
"""Stands for a no-break space while lines are broken: a character of private use, which rich takes for a letter."""


class Terminal(Console):
    """Prints without a line break inside of a number or between a number and its unit.

    rich breaks lines at any space, no-break spaces included; text carries GLUE in their place until it is rendered.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yields the segments of a renderable, with no-break spaces where the text has GLUE."""
        for segment in super().render(renderable, options):
            yield segment._replace(text=segment.text.replace(GLUE, NARROW)) if GLUE in segment.text else segment


def console() -> Console:
    """Returns a console on stdout: colors only on a terminal, 140 columns where there is none."""
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Terminal(highlight=False, soft_wrap=False, width=140 if piped else None)


def plain(text: str) -> str:
    """Returns text from a recording without control characters: a name must not steer the terminal."""
    return _CONTROL.sub("�", text.replace("\n", " ").replace("\t", " "))


def contents(capture: Capture) -> str:
    """Returns what a recording holds: its events, or its iterations; of a trace with a SOL capture both."""
    facts, iterations = capture.facts, capture.tables["iterations"]
    own = how_many(facts.total_events, "record" if facts.source == "sol_capture" else "event")
    sampled = int(iterations["sampled"].to_numpy().sum())
    if not len(iterations) and facts.source != "sol_capture":
        return own
    return f"{own}, {how_many(len(iterations), 'iteration')}, {human(sampled, 'count')} sampled"


def prose(text: str, style: str = "") -> Text:
    """Returns report text with its two kinds of markup; numbers and units hold together on a Terminal."""
    out, at = Text(style=style), 0
    text = plain(text).replace(NARROW, GLUE)
    for match in MARKUP.finditer(text):
        out.append(text[at : match.start()])
        out.append(match.group(1) or match.group(2), "bold" if match.group(1) else "cyan")
        at = match.end()
    out.append(text[at:])
    return out


def print_report(out: Console, report: Report | UnavailableReport, *, rows: int = 30, section: str = "") -> None:
    """Print a report, or one section of it. BadQuery names the sections there are."""
    if isinstance(report, UnavailableReport):
        out.print(unavailable(report))
        return
    chosen = [s for s in report.sections if section in ("", s.id)]
    if not chosen:
        raise BadQuery(
            f"no section {section!r} in this report", hint=f"there is: {', '.join(s.id for s in report.sections)}", field="section"
        )
    out.print(Text(plain(report.title), "bold underline"))
    if report.headline:
        out.print(prose(report.headline, "bold"))
    for notice in report.notices:
        out.print(prose(f"! {notice.text}", "yellow"))
    for part in chosen:
        out.print()
        print_section(out, part, rows)


def unavailable(report: UnavailableReport) -> Text:
    """Returns why an analysis has no answer, and how to record for it."""
    return prose(f"{report.title}: not available, {report.because} — {report.record_it_with}", "dim")


def print_section(out: Console, section: AnySection, rows: int) -> None:
    """Print one section of any kind."""
    heading = Text(plain(section.title), "bold")
    if section.subtitle:
        heading.append("  ").append_text(prose(section.subtitle, "dim"))
    out.print(heading)
    if section.error:
        out.print(prose(f"failed: {section.error}", "red"))
    if isinstance(section, FactsSection):
        out.print(facts(section))
    elif isinstance(section, TableSection):
        for part in table(section, rows, out.width):
            out.print(part)
    elif isinstance(section, FindingsSection):
        findings(out, section)
    elif isinstance(section, FigureSection):
        out.print(prose(section.summary or "a figure", "dim"))
    else:
        out.print(Text("a timeline: see it on the page", "dim"))


def facts(section: FactsSection) -> RenderableType:
    """Returns label, value and note, one line each."""
    grid = Table.grid(padding=(0, 2))
    for name in section.values:
        if name in section.hidden:
            continue
        shown = fact_text(section, name)
        label = section.labels.get(name) or name.replace("_", " ").capitalize()
        grid.add_row(Text(plain(label), "dim"), Text(shown), Text(base_text(section, name)), prose(section.notes.get(name, ""), "dim"))
    return Group(prose(section.text), grid) if section.text else grid


def base_text(section: FactsSection, name: str) -> str:
    """Returns what a fact was in the baseline, and its change: `was 4.1 ms (+3.2 %)`; nothing where that is not known."""
    was, now, unit = section.base.get(name), section.values.get(name), section.units.get(name, "")
    if was is None or was == now:
        return ""
    if isinstance(was, bool) or not isinstance(was, int | float) or isinstance(now, bool) or not isinstance(now, int | float):
        return f"was {plain(str(was))}"
    change = f" ({signed_percent((now - was) / abs(was))})" if was and unit not in ("ratio", "%") else ""
    return f"was {human(was, unit)}{change}"


def fact_text(section: FactsSection, name: str) -> str:
    """Returns the value of a fact with the sign of its mark: `≥ 0.7 %` for a lower bound."""
    mark = section.marks.get(name)
    state = mark.state if mark else ""
    return _marked(value_text(section.values[name], section.units.get(name, "")), state, _SPOKEN.get(state))


def value_text(value: Scalar, unit: str) -> str:
    """Returns a single value as a person reads it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return plain(value) or "—"
    return human(value, unit)


POSSIBLE: Final = "Possible, not proven"
HIDDEN: Final = "Hidden behind other work: fixing one of these alone saves next to nothing"
"""Headings of findings that are not proven, and of those that other work hides."""


def findings(out: Console, section: FindingsSection) -> None:
    """Shows saving, cause, evidence and fix of each finding; those that are possible, or that other work hides, stand apart below."""
    if not section.findings:
        out.print(prose(section.empty or "nothing stands out", "dim"))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    memory = section.saves == "memory"
    savings = side_by_side([f.saving_bytes if memory else f.saving_ns for f in section.findings], "B" if memory else "ns")
    last = ""
    for finding, amount in zip(section.findings, savings, strict=True):
        heading = HIDDEN if finding.hidden else POSSIBLE if finding.candidate else ""
        if heading != last:
            grid.add_row("", Text(heading, "dim"))
        last = heading
        saving = "" if (finding.saving_bytes if memory else finding.saving_ns) is None else f"−{amount}"
        share = "" if finding.share is None else f" ({human(finding.share, 'ratio')})"
        line = prose(("Possible: " if finding.candidate else "") + finding.title)
        line.append("\n").append_text(prose(finding.evidence, "dim"))
        if finding.fix:
            line.append(f"\n{plain(finding.fix)}", "cyan")
        grid.add_row(Text(f"  {saving}{share}", "bold"), line)
    out.print(grid)
    if section.combined_ns is not None:
        each = " per step" if "per step" in section.subtitle else ""
        basis = "by replay" if any(f.removed_ns is not None for f in section.findings) else "at most"
        out.print(Text(f"  together {basis} {human(section.combined_ns, 'ns')}{each}", "dim"))


# -- tables ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cells:
    """The first columns and rows of a table as text: a heading and whether it holds words per column, the total, rows, and how many there
    are."""

    headings: list[str]
    texts: list[bool]
    total: list[str]
    rows: list[list[str]]
    of: int


def table_cells(section: TableSection, rows: int, width: int) -> Cells | None:
    """Returns what of a table fits into lines of `width` characters, one unit per column; None where it has no rows. rows: 0 for all."""
    count = len(next(iter(section.data.values()), []))
    if not count:
        return None
    order = _order(section, count)
    shown = order if rows <= 0 else order[:rows]
    longest = LONGEST if width >= 140 else max(28, int(width * 0.42))
    depth = _depths(section, count)
    columns = _fitting(section, width, shown, longest, depth)
    units = _units(section, columns, shown)
    total: list[str] = []
    if section.total:
        known = [(c, section.total.get(c.name), scale) for c, (_, scale) in zip(columns, units, strict=True)]
        total = ["" if v is None and _is_text(section, c) else _cell(v, scale, _longest(c, longest)) for c, v, scale in known]
    out = []
    for row in shown:
        cells = []
        for column, (_, scale) in zip(columns, units, strict=True):
            mark = section.marks.get(column.name, {}).get(str(row))
            indent = min(2 * depth[row], longest // 2) if column.show == "tree" else 0
            text = _marked(_cell(section.data[column.name][row], scale, _longest(column, longest) - indent), mark.state if mark else "")
            cells.append(" " * indent + text)
        out.append(cells)
    headings = [_heading(column, unit) for column, (unit, _) in zip(columns, units, strict=True)]
    return Cells(headings, [_is_text(section, c) for c in columns], total, out, count + section.truncated)


def table(section: TableSection, rows: int, width: int) -> list[RenderableType]:
    """Returns the table's first columns and rows, one unit per column; says how much is not shown."""
    cells = table_cells(section, rows, width)
    if cells is None:
        return [prose(section.empty or "no rows", "dim")]
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for heading, text in zip(cells.headings, cells.texts, strict=True):
        grid.add_column(heading, justify="left" if text else "right", no_wrap=True, overflow="ellipsis")
    if cells.total:
        grid.add_row(*(Text(c, "bold") for c in cells.total), end_section=True)
    for row in cells.rows:
        grid.add_row(*(Text(c) for c in row))
    out: list[RenderableType] = [grid]
    if len(cells.rows) < cells.of:
        out.append(Text(f"  {human(len(cells.rows), 'count')} of {human(cells.of, 'count')} rows", "dim"))
    return out


def _heading(column: Column, unit: str) -> str:
    """Returns label and unit; the unit alone where the label is the unit (`FLOP/s` in TFLOP/s)."""
    return unit if unit and column.label == column.unit else plain(column.label) + (f" {unit}" if unit else "")


def _longest(column: Column, longest: int) -> int:
    """Returns characters of a text: sizes give way to numbers."""
    return min(longest, SIZES) if column.show == "shapes" else longest


Scale = tuple[str, float, int]
"""Unit of the column, divisor, decimals."""


def _numbers(section: TableSection, column: Column) -> list[float]:
    """Returns known numbers of a column, without those of rows that set no scale."""
    apart = set(section.apart)
    keys = section.data[section.key] if apart else ()
    found = [v for i, v in enumerate(section.data[column.name]) if not (apart and str(keys[i]) in apart)]
    return [v for v in found if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)]


def _column(section: TableSection, column: Column) -> tuple[str, Scale]:
    values = _numbers(section, column)
    if not values and column.unit not in ("ratio", "%"):
        return "", (column.unit, 1.0, 0)
    most = max((abs(v) for v in values), default=0.0)
    if column.unit in ("ratio", "%"):
        return "%", (column.unit, 0.01 if column.unit == "ratio" else 1.0, 1)
    if column.unit == "count" or not column.unit:
        whole = all(float(v).is_integer() for v in values)
        return "", (column.unit, 1.0, 0 if whole else digits(most))
    factor, name = scale_of(float(most), column.unit)
    if column.unit == "B/s" and most < 10 * factor and _quarter(values) < 0.1 * factor:  # a slow link beside a fast memory
        factor, name = scale_of(float(most) / 1000, column.unit)
    decimals = 0 if factor == 1.0 and column.unit in ("ns", "B") else max(digits(most / factor), 1)
    return name, (column.unit, factor, decimals)


def _quarter(values: list[float]) -> float:
    """Returns the magnitude that a quarter of the values other than 0 lie below; infinite without any."""
    known = sorted(abs(v) for v in values if v)
    return known[len(known) // 4] if known else math.inf


def _units(section: TableSection, columns: list[Column], shown: list[int]) -> list[tuple[str, Scale]]:
    """Returns unit and scale per column. Columns of times, and of bytes, compare: one whose largest value is a hundredth of the largest
    unit among them or more takes that unit. Those of single calls keep their own.
    """
    out = [_column(section, column) for column in columns]
    compared = [at for at, column in enumerate(columns) if column.unit in ("ns", "B") and not column.per]
    widest = {columns[at].unit: out[at] for at in sorted(compared, key=lambda at: out[at][1][1])}
    for at in compared:
        column = columns[at]
        shared, (unit, factor, _) = widest[column.unit]
        most = max(map(abs, _numbers(section, column)), default=0.0)
        if factor > out[at][1][1] and (most >= 0.01 * factor or not most):
            out[at] = (shared, (unit, factor, 4 if 0 < most < 0.1 * factor else max(digits(most / factor), 2)))
    return out


def _cell(value: Scalar, scale: Scale, longest: int = LONGEST) -> str:
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return shortened(plain(value), longest)
    unit, factor, decimals = scale
    if not value or (not unit and isinstance(value, int)):
        return str(int(value))
    scaled = value / factor
    smallest = 0.5 * 10**-decimals
    if 0 < abs(scaled) < smallest:
        return f"<{NARROW}{number(10**-decimals, decimals)}"
    return number(scaled, decimals)


def shortened(text: str, longest: int = LONGEST) -> str:
    """Cut in the middle: both ends of a kernel's name tell it from its neighbors."""
    half = max(longest // 2, 2)
    return text if len(text) <= longest else f"{text[:half]}…{text[-half + 1 :]}"


def _marked(text: str, state: str, after: str | None = None) -> str:
    return _STATES.get(state, "") + text + (_AFTER.get(state, "") if after is None else after)


def _is_text(section: TableSection, column: Column) -> bool:
    return any(isinstance(v, str) for v in section.data[column.name][:50])


def _fitting(section: TableSection, width: int, shown: list[int], longest: int, depth: list[int]) -> list[Column]:
    """Returns columns of the first rank, then of the second, as they fit."""
    room = max(width, 60)
    chosen: list[Column] = []
    for column in sorted(section.columns, key=lambda c: c.rank):
        if column.rank > 2 and chosen:
            break
        values = section.data[column.name]
        texts = [(str(values[i]), 2 * depth[i] if column.show == "tree" else 0) for i in shown if isinstance(values[i], str)]
        total = (section.total or {}).get(column.name)
        widest = max((len(v) + extra for v, extra in [*texts, *([(total, 0)] if isinstance(total, str) else [])]), default=8)
        unit = _column(section, column)[0]
        need = max(len(_heading(column, unit)), min(widest, _longest(column, longest))) + 3
        if chosen and need > room:
            continue
        chosen.append(column)
        room -= need
    return [c for c in section.columns if c in chosen]


def _order(section: TableSection, count: int) -> list[int]:
    if section.tree is not None or section.sort is None or section.sort.column not in section.data:
        return list(range(count))
    values = section.data[section.sort.column]
    known = [i for i in range(count) if values[i] is not None]
    known.sort(key=lambda i: values[i] if not isinstance(values[i], str) else str(values[i]), reverse=section.sort.descending)  # type: ignore[arg-type,return-value]
    order = known + [i for i in range(count) if values[i] is None]
    if section.last and section.key in section.data:
        keys = section.data[section.key]
        order = [i for i in order if str(keys[i]) not in section.last] + [i for i in order if str(keys[i]) in section.last]
    return order


def _depths(section: TableSection, count: int) -> list[int]:
    if section.tree is None:
        return [0] * count
    ids, parents = section.data[section.tree.id], section.data[section.tree.parent]
    depth: dict[Scalar, int] = {}
    for own, parent in zip(ids, parents, strict=True):
        depth[own] = 0 if parent is None else depth.get(parent, -1) + 1
    return [min(depth[own], 24) for own in ids]


# -- `tb-sol analyze memcpy --format text` ---------------------------------------------------------------------------
# the short summary above the report, in the form of Proton's memory copies.
#
#     Memory copy operations detected: 4
#     - HostToDevice: 2 operations, total 8.0 MB
#     - DeviceToHost: 1 operations, total 4.0 MB
#     - DeviceToDevice: 1 operations, total 4.0 MB
#
# `MB` is 1,048,576 bytes there; `--unit mb` makes it 1,000,000. Sets of memory are no copies. Copies that ran as a kernel (ROCm) are
# copies
# whose direction is not recorded; those that a SOL capture counted stay within their device. A direction without a copy is left out.
# Copies
# without a size are told behind the sum.


UNITS: Final = {"mib": float(1 << 20), "mb": 1e6}
"""Bytes of what is written `MB`."""
NOTES: Final = {"mib": "MB above is 1,048,576 bytes (--unit mb: 1,000,000), and 1,000,000 below.\n\n", "mb": ""}
"""What stands between the summary and the report, which counts in decimal units."""
WORDS: Final = {
    "HtoD": "HostToDevice", "DtoH": "DeviceToHost", "DtoD": "DeviceToDevice", "HtoH": "HostToHost", "PtoP": "PeerToPeer",
}  # fmt: skip
UNKNOWN: Final = "Unknown"
ORDER: Final = (*WORDS.values(), UNKNOWN)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the option of this summary."""
    text = "with text: what `MB` of the summary is: 1,048,576 bytes (mib, as Proton has it) or 1,000,000 (mb) (default: mib)"
    parser.add_argument("--unit", choices=tuple(UNITS), default="mib", help=text)


def summary(capture: Capture, query: Query, unit: str) -> str:
    """Returns the lines of the summary, without an end of line behind the last."""
    found = totals(capture, query)
    lines = [f"Memory copy operations detected: {sum(count for count, _, _ in found.values())}"]
    for word in ORDER:
        count, size, unsized = found.get(word, (0, 0, 0))
        if count:
            rest = f", {unsized} carry no size" if unsized else ""
            lines.append(f"- {word}: {count} operations, total {amount(size / UNITS[unit])} MB{rest}")
    return "\n".join(lines)


def totals(capture: Capture, query: Query) -> dict[str, tuple[int, int, int]]:
    """Returns (copies, bytes, copies without a size) by direction in full words, sets left out."""
    where = scope(capture, query)
    out: dict[str, tuple[int, int, int]] = {}
    words = WORDS
    if len(capture.device):
        found = records.copies(capture, where.device)
        size = found["bytes"].to_numpy()
        rows = zip(found["direction"].tolist(), [1] * len(found), size.clip(min=0).tolist(), (size < 0).astype(int).tolist(), strict=True)
    else:
        words = WORDS | {records.COPY_KERNEL: WORDS["DtoD"]}
        table = counted.counted(capture, where)
        rows = zip(*(table[c].tolist() for c in ("direction", "count", "bytes", "without_bytes")), strict=True)
    for direction, count, data, unsized in rows:
        if direction != "Memset":
            word = words.get(str(direction), UNKNOWN)
            before = out.get(word, (0, 0, 0))
            out[word] = before[0] + int(count), before[1] + int(data), before[2] + int(unsized)
    return out


def amount(value: float) -> str:
    """Returns one decimal, as Proton writes it; small amounts with two digits that count."""
    if value == 0 or value >= 0.05:
        return f"{value:.1f}"
    return f"{value:.{min(1 - math.floor(math.log10(value)), 9)}f}"
