"""Runs `tb-sol report`: everything about one recording on one page of the terminal, in an order one can paste into a chat.

The sentence that matters, from the measured step to the speed of light, what to fix first, the operators above their limit, the limits
by layer, operator and phase; then one sentence of every other page.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec
import pandas as pd
from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from tb_sol_plugin.cli.text import contents, fact_text, plain, print_section, prose, unavailable
from tb_sol_plugin.cost.roofline import TOLERATED
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.report.console import ConsoleReport, console_report
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.work.sums import FLAGGED
from tb_sol_plugin.model.answer import answer_capture
from tb_sol_plugin.model.capture import Capture, recorded_ns
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import registry
from tb_sol_plugin.model.report import FactsSection, FindingsSection, Report, Scalar, TableSection, UnavailableReport
from tb_sol_plugin.units import human, side_by_side
from tb_sol_plugin.web.bounds import row_count

# -- The console form of the speed-of-light analysis -----------------------------------------------------------------
# rules, one line per group, three views of the same work.


RULE: Final = 90
TITLE: Final = "SOL (Speed of Light) Analysis"
NAME: Final = 40
Unit: TypeAlias = tuple[float, str]
MS: Final[Unit] = (1e6, "ms")
US: Final[Unit] = (1e3, "µs")
LEAST_MS: Final = 1e6
"""ns of the limit from which the table is in ms; a smaller one is in µs, where its rows do not round to nothing."""
WIDE: Final = 108
"""Columns that a full line takes; narrower terminals get shorter names and shorter brackets."""


def sol_lines(report: ConsoleReport, width: int = 120, rows: int = 0) -> list[str]:
    """Returns the lines of the report. rows: at most that many per view, the rest in one line; 0 is all of them.

    A row: two spaces, name in 40, count in 8, `ops`, limit in ms in 8.2, share in 5.1 %, then measured time and efficiency; `!` after
    an efficiency above 102 %, which is never cut.
    """
    rule = min(RULE, max(width, 40))
    each = " per step" if report.stepped else ""
    unit = MS if report.sol_ns >= LEAST_MS else US
    head = f"Device: {report.device} | Ops: {_count(report.ops)} | Total: {_limit(report.sol_ns, unit)} {unit[1]} estimated{each}"
    if report.measured_ns > 0:
        efficiency = 100 * report.sol_ns / report.measured_ns
        whole = f"{head} [meas: {_measured(report.measured_ns, unit)}, eff: {efficiency:.1f}%]"
        head = whole if len(whole) <= width else head
    out = ["=" * rule, (" " * 27 + TITLE)[:rule].rstrip() if width >= RULE else TITLE.center(rule).rstrip(), "=" * rule, plain(head)]
    for title, frame in report.views:
        out += ["-" * rule, f"{title}:", *_view(frame, width, rows, unit)]
    flagged = any(line.endswith("] !") for line in out)
    return [*out, "=" * rule, *(textwrap.wrap(f"! {FLAGGED}", width) if flagged else [])]


def _view(frame: pd.DataFrame, width: int, rows: int, unit: Unit) -> list[str]:
    shown = frame if rows <= 0 or len(frame) <= rows + 1 else frame.head(rows)
    columns = (shown[c].tolist() for c in ("name", "ops", "sol_ns", "share", "measured_ns", "efficiency"))
    out = [_row(name, *numbers, width=width, unit=unit) for name, *numbers in zip(*columns, strict=True)]
    rest = frame.iloc[len(shown) :]
    if len(rest):
        measured, sol = float(rest["measured_ns"].sum()), float(rest["sol_ns"].sum())
        efficiency = sol / measured if measured > 0 else None
        numbers = (float(rest["ops"].sum()), sol, float(rest["share"].sum()), measured, efficiency)
        out.append(_row(f"({len(rest)} more)", *numbers, width=width, unit=unit))
    return out


def _row(
    name: str, ops: float, sol_ns: float, share: float, measured_ns: float, efficiency: float | None, *, width: int, unit: Unit
) -> str:
    full = width >= WIDE
    room = NAME if full else max(min(width - 68, NAME), 0)
    brackets, count = ("meas: {}, eff: {}%", 8)
    if room < 30:
        brackets, count, room = "{}, {}%", 6, max(min(width - 55, NAME), 12)
    line = f"  {_cut(plain(name), room):<{room}} {_count(ops):>{count}} ops, {_limit(sol_ns, unit):>8} {unit[1]} ({100 * share:5.1f}%)"
    if not measured_ns > 0 or efficiency is None or efficiency != efficiency:
        return line
    flag = " !" if efficiency > TOLERATED else ""
    return f"{line} [{brackets.format(_measured(measured_ns, unit), f'{100 * efficiency:.1f}')}]{flag}"


def _count(ops: float) -> str:
    return f"{ops:.0f}" if float(ops).is_integer() else f"{ops:.1f}"


def _limit(ns: float, unit: Unit) -> str:
    """Returns two decimals; what rounds to nothing says so."""
    return "< 0.01" if 0 < ns / unit[0] < 0.005 else f"{ns / unit[0]:.2f}"


def _measured(ns: float, unit: Unit) -> str:
    value = ns / unit[0]
    return (f"{value:.1f}" if value >= 0.1 else "< 0.01" if 0 < value < 0.005 else f"{value:.2f}") + unit[1]


def _cut(text: str, longest: int) -> str:
    """Returns shortened in the middle."""
    if len(text) <= longest:
        return text
    half = max((longest - 1) // 2, 1)
    return f"{text[:half]}…{text[-(longest - half - 1) :]}"


FIRST: Final = "overview"
SERVING: Final = "serving"
"""Told as a whole too, where an engine ran: its iterations are what a reader asks about."""
_OF_SERVING: Final = ("findings", "by_kind", "by_batch", "phases_of_iteration")
LEFT_OUT: Final = ("links",)
BLOCKS: Final = " ▏▎▍▌▋▊▉█"
MORE_FACTS: Final = ("gpu_busy", "mfu", "hfu", "bandwidth_utilisation", "modelled_share")


def print_story(out: Console, capture: Capture, *, rows: int = 8, device: str = "") -> None:
    """Print the story of a capture; what has no answer comes last, with the reason. device: device limits to measure against."""
    _heading(out, capture)
    lacking: list[UnavailableReport] = []
    others: list[Report] = []
    for name, answer in _answers(out, capture, device):
        if isinstance(answer, UnavailableReport):
            lacking.append(answer)
        elif name == FIRST:
            _overview(out, answer, rows)
            _limits(out, capture, device, rows)
        elif name == SERVING:
            _serving(out, answer, rows)
        else:
            others.append(answer)
    if others:
        out.print()
        out.print(Rule(Text("Every page in a sentence", "bold"), align="left", style="dim"))
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(ratio=1)
        for report in others:
            grid.add_row(Text(plain(report.title), "bold"), prose(report.headline or "—"))
        out.print(grid)
    if lacking:
        out.print()
        out.print(Rule(Text("Not in this recording", "dim"), align="left", style="dim"))
        alike: dict[tuple[str, str], list[UnavailableReport]] = {}
        for missing in lacking:
            alike.setdefault((missing.because, missing.record_it_with), []).append(missing)
        for group in alike.values():
            out.print(unavailable(msgspec.structs.replace(group[0], title=", ".join(m.title for m in group))))


def _answers(out: Console, capture: Capture, device: str) -> Iterator[tuple[str, Report | UnavailableReport]]:
    """Yields every analysis with its answer, the overview first, then serving."""
    first = (FIRST, SERVING)
    for name, item in sorted(registry().items(), key=lambda pair: first.index(pair[0]) if pair[0] in first else len(first)):
        if name in LEFT_OUT or item.scope != "capture":  # this is the story of one recording
            continue
        raw = {"device_limits": device} if device and "device_limits" in item.query.__struct_fields__ else {}
        try:
            yield name, answer_capture(name, capture, raw)
        except BadQuery:
            raise
        except Exception as error:  # one broken analysis must not cost the rest of the story
            out.print(prose(f"{item.title} failed: {type(error).__name__}", "red"))


def _heading(out: Console, capture: Capture) -> None:
    facts = capture.facts
    names = [n for n in (capture.run, capture.worker, capture.span) if n]
    devices = ", ".join(dict.fromkeys(d.name for d in facts.devices if d.name)) or facts.vendor or "no device"
    world = f"rank {facts.rank} of {facts.world_size}" if facts.rank is not None and facts.world_size else ""
    versions = ", ".join(f"{k.removesuffix('_version').replace('_', ' ')} {v}" for k, v in facts.versions.items() if k != "schemaVersion")
    about = [devices, world, human(recorded_ns(capture), "ns"), contents(capture), versions]
    out.print(Text(plain(" · ".join(names) or facts.file), "bold"))
    out.print(Text(plain(" · ".join(a for a in about if a)), "dim"))


# -- the overview ----------------------------------------------------------------------------------------------------


def _overview(out: Console, report: Report, rows: int) -> None:
    out.print()
    out.print(Rule(Text(plain(report.title), "bold"), align="left", style="dim"))
    if report.headline:
        out.print(prose(report.headline, "bold"))
    for notice in report.notices:
        out.print(prose(f"! {notice.text}", "yellow"))
    sections = {s.id: s for s in report.sections}
    answer = sections.get("answer")
    if isinstance(answer, FactsSection) and answer.style == "equation":
        out.print(_equation(answer))
    parts = sections.get("parts")
    if isinstance(parts, TableSection) and {"part", "time_ns", "share"} <= set(parts.data):
        out.print()
        out.print(Text(plain(parts.title.removesuffix(", as a table")), "bold"))
        for line in waterfall(parts, out.width):
            out.print(Text(line), no_wrap=True, overflow="ignore", crop=False)
    else:
        for section in report.sections:
            if isinstance(section, FactsSection) and section.id in ("answer", "split"):
                out.print()
                print_section(out, section, rows)
    for section in report.sections:
        if isinstance(section, FindingsSection):
            out.print()
            print_section(out, section, rows)
        elif isinstance(section, TableSection) and section.id == "operators":
            out.print()
            print_section(out, _with_shapes(section, out.width), rows)


def _serving(out: Console, report: Report, rows: int) -> None:
    """Print the sentence of a serving engine, what to change in it, its iterations by kind and batch, and what they are spent on."""
    out.print()
    out.print(Rule(Text(plain(report.title), "bold"), align="left", style="dim"))
    out.print(prose(report.headline, "bold"))
    for notice in report.notices:
        if notice.link is None or notice.link.analysis != "health":  # the overview says already what names the replays
            out.print(prose(f"! {notice.text}", "yellow"))
    for section in report.sections:
        if section.id in _OF_SERVING and not (isinstance(section, TableSection) and section.id == "by_batch" and row_count(section) < 2):
            out.print()
            print_section(out, section, rows)


def _with_shapes(section: TableSection, width: int) -> TableSection:
    """Returns the table with the sizes behind the name: rows of one operator are distinguished by them. Sizes are cut, names are not."""
    if not {"name", "shapes"} <= set(section.data):
        return section
    room = max(28, int(width * 0.42)) if width < 140 else 64
    names = []
    for name, shapes in zip(section.data["name"], section.data["shapes"], strict=True):
        short = str(name).removeprefix("aten::")
        left = room - len(short) - 1
        sizes = str(shapes or "")
        names.append(short if not sizes or left < 6 else f"{short} {sizes if len(sizes) <= left else sizes[: left - 1] + '…'}")
    columns = [c for c in section.columns if c.name not in ("shapes", "kind")]
    return msgspec.structs.replace(section, columns=columns, data={**section.data, "name": names})


def _equation(section: FactsSection) -> Text:
    """Returns `33.3 % of the speed of light = 98.6 % GPU busy × 33.8 % efficiency while busy`, then MFU and the like."""
    text = Text()

    def term(name: str, style: str) -> None:
        label = plain(section.labels.get(name, name))
        text.append(fact_text(section, name), style).append(f" {label[:1].lower() + label[1:] if label[1:2].islower() else label}", "dim")

    names = list(section.values)
    first = names[: 1 + _factors(list(section.values.values()))] if names and section.values[names[0]] is not None else []
    for i, name in enumerate(first):
        text.append(("", " = ", " × ")[min(i, 2)])
        term(name, "bold")
    more = [n for n in names[len(first) :] if n in MORE_FACTS and section.values[n] is not None and n not in section.hidden]
    for i, name in enumerate(more):
        text.append(("\n" if first else "") if i == 0 else "  ·  ", "dim")
        term(name, "")
    return text


def _factors(values: list[Scalar]) -> int:
    """Returns how many values behind the first multiply to it, at least two; 0 where they do not: then the first stands alone."""
    product = 1.0
    for i, value in enumerate(values[1:]):
        if not isinstance(value, int | float) or not isinstance(values[0], int | float):
            return 0
        product *= value
        if i and math.isclose(product, values[0], rel_tol=0.01, abs_tol=1e-6):
            return i + 1
    return 0


def waterfall(parts: TableSection, width: int) -> list[str]:
    """Returns a line per part: name, its bar at its place between the measured time and zero, time, share.

    The first part is the whole; every other begins where the one before ends, from the right, so that the limits stand at the left.
    """
    names = [plain(str(n)) for n in parts.data["part"]]
    times = [float(v) if isinstance(v, int | float) else 0.0 for v in parts.data["time_ns"]]
    shares = parts.data["share"]
    if not times or times[0] <= 0:
        return []
    whole = times[0]
    texts = side_by_side(times, "ns")
    most = max(map(len, texts))
    longest = min(max(len(n) for n in names), max(width // 3, 32))
    room = max(width - longest - most - 16, 10)
    out: list[str] = []
    left = whole
    for i, (name, time, share, written) in enumerate(zip(names, times, shares, texts, strict=True)):
        start = 0.0 if i == 0 else max(left - time, 0.0)
        left = left if i == 0 else start
        bar = _bar(start / whole, (start + time) / whole, room)
        label = name if len(name) <= longest else name[: longest - 1] + "…"
        percent = human(share, "ratio") if isinstance(share, int | float) else "—"
        out.append(f"  {label:<{longest}}  {bar}  {written:>{most}}  {percent:>7}".rstrip())
    return out


def _bar(start: float, end: float, room: int) -> str:
    """Returns a bar between two parts of the room, at least a sliver wide, in eighths of a character at its right end."""
    first = min(int(start * room + 0.5), room - 1)
    eighths = max(round((end - start) * room * 8), 1)
    full, rest = divmod(eighths, 8)
    drawn = "█" * full + (BLOCKS[rest] if rest else "")
    return (" " * first + drawn)[: room + 1].ljust(room + 1)


# -- limits by layer, operator and phase -----------------------------------------------------------------------------


def _limits(out: Console, capture: Capture, device: str, rows: int) -> None:
    sol_report = console_report(capture, scope(capture, Query()), device)
    if sol_report is None:
        return
    out.print()
    for line in sol_lines(sol_report, out.width, rows):
        out.print(Text(line), no_wrap=True, overflow="ignore", crop=False)
