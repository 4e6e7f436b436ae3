"""The report of a step as tables for a terminal. Needs `rich`; without it the plain report is printed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TextIO

from tb_sol_plugin.capture.analysis import Analysis, TopOperation
from tb_sol_plugin.capture.groups import Group
from tb_sol_plugin.capture.log_values import shapes_text
from tb_sol_plugin.capture.operation_registry import BoundType
from tb_sol_plugin.capture.report_console import UNKNOWN, amount, console_report, notes_of, shortened
from tb_sol_plugin.capture.roofline import TOLERATED

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

NARROWEST: Final = 70
"""Columns of a terminal; a narrower one gets the plain report."""
WIDE: Final = 120
WIDEST: Final = 150
"""From these widths on tables show work and what bounds it; and the sizes of operands."""
HEAD_WIDE: Final = 96
BAR: Final = 8
GROUP_NARROW: Final = 56
GROUP_WIDE: Final = 98
"""Columns that all but the name take in a table of groups."""
ROWS: Final = 20
TOP: Final = 10


def print_rich(analysis: Analysis, *, file: TextIO | None = None, width: int | None = None) -> None:
    """Print tables to a terminal, the plain report to anything else.

    width: columns; given, tables are printed whatever `file` is (without colours where it is no terminal).
    """
    stream = sys.stdout if file is None else file
    console = _console(stream, width)
    if console is None:
        print(console_report(analysis), file=stream, flush=True)
        return
    shown = analysis.reported
    for part in _parts(shown, analysis.age, console.width):
        console.print(part)


def _console(stream: TextIO, width: int | None) -> Console | None:
    """A console for the stream; None where there is no rich, no terminal, or too little room."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(file=stream, width=width, highlight=False, soft_wrap=False)
    fits = console.width >= NARROWEST and (width is not None or console.is_terminal)
    return console if fits and _writes(stream, "─━…—") else None


def _writes(stream: TextIO, marks: str) -> bool:
    try:
        marks.encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _parts(analysis: Analysis, age: int, width: int) -> list[RenderableType]:
    from rich.padding import Padding
    from rich.rule import Rule
    from rich.text import Text

    parts: list[RenderableType] = [Rule(Text("Speed of light", style="bold"), style="dim"), _head(analysis, 4 if width >= HEAD_WIDE else 3)]
    every = (*analysis.layers[:ROWS], *analysis.functions[:ROWS], *analysis.phases[:ROWS])
    wide = width >= WIDE
    room = min(max([16, *(len(group.name) for group in every)]), width - (GROUP_WIDE if wide else GROUP_NARROW))
    for title, groups in (("Layer type", analysis.layers), ("Function", analysis.functions), ("Phase", analysis.phases)):
        if groups:
            parts += ["", _groups(title, groups, room, wide)]
    if analysis.top:
        parts += ["", _top(analysis.top, width)]
    notes = notes_of(analysis, age)
    if notes:
        parts += ["", *(Padding(Text(note, style="dim"), (0, 1)) for note in notes)]
    return parts


def _head(analysis: Analysis, per_row: int) -> Table:
    from rich.table import Table

    total = analysis.total
    facts = [
        ("Iteration", str(analysis.iteration)),
        ("Limits of", analysis.device or UNKNOWN),
        ("Least time", _time(total.estimated_us)),
        ("Measured", _time(total.measured_us)),
        ("Efficiency", _efficiency(total.efficiency).plain),
        ("Step", _time(analysis.step_us)),
        ("MFU", _percent(analysis.mfu)),
        ("HFU", _percent(analysis.hfu) if analysis.hfu != analysis.mfu else ""),
        ("Matrix work", amount(total.flops, "FLOP")),
        ("Traffic", amount(total.bytes, "B")),
        ("Operations", f"{total.count:,}"),
    ]
    told = [(name, value) for name, value in facts if value and value != UNKNOWN]
    table = Table.grid(padding=(0, 2))
    for _ in range(per_row):
        table.add_column(style="dim", no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
    for at in range(0, len(told), per_row):
        row = told[at : at + per_row]
        table.add_row(*(cell for fact in row for cell in fact))
    return table


def _table() -> Table:
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False, header_style="dim", expand=False)


def _groups(title: str, groups: Sequence[Group], room: int, wide: bool) -> Table:
    from rich.text import Text

    table = _table()
    table.add_column(title, overflow="ellipsis", no_wrap=True, width=room)
    for name, size in (("Ops", 7), ("Least time", 10), ("Share", 7)):
        table.add_column(name, justify="right", no_wrap=True, width=size)
    if wide:
        table.add_column("", width=BAR, no_wrap=True)
    for name, size in (("Measured", 10), ("Efficiency", 10), *((("Matrix work", 11), ("Traffic", 8)) if wide else ())):
        table.add_column(name, justify="right", no_wrap=True, width=size)
    if wide:
        table.add_column("Bound", no_wrap=True, width=7)
    for group in groups[:ROWS]:
        cells: list[str | Text] = [Text(shortened(group.name, room)), f"{group.count:,}", _time(group.estimated_us), _percent(group.share)]
        if wide:
            cells.append(Text(bar(group.share, BAR), style="cyan"))
        cells += [_time(group.measured_us), _efficiency(group.efficiency)]
        if wide:
            cells += [amount(group.flops, "FLOP"), amount(group.bytes, "B"), _bound(group.bound)]
        table.add_row(*cells)
    if len(groups) > ROWS:
        table.add_row(Text(f"and {len(groups) - ROWS} more", style="dim"))
    return table


def _top(operations: Sequence[TopOperation], width: int) -> Table:
    """Single operations; with their layers and sizes as far as there is room."""
    from rich.text import Text

    operations = operations[:TOP]
    timed = any(one.measured_us is not None for one in operations)
    layers = width >= WIDE and any(one.layer_name for one in operations)
    sizes = width >= WIDEST
    taken = sum(size + 2 for size in (8, 6, 10, 7, *((10,) if timed else ()), *((10,) if timed and layers else ())))
    texts = (width - taken) // (1 + layers + sizes) - 2
    table = _table()
    for name, shown in (("Operation", True), ("Layer", layers), ("Sizes", sizes)):
        if shown:
            table.add_column(name, overflow="ellipsis", no_wrap=True, max_width=texts)
    table.add_column("Type", no_wrap=True, max_width=8)
    table.add_column("Calls", justify="right", no_wrap=True)
    table.add_column("Least time", justify="right", no_wrap=True)
    if timed and layers:
        table.add_column("Measured", justify="right", no_wrap=True)
    if timed:
        table.add_column("Efficiency", justify="right", no_wrap=True)
    table.add_column("Bound", no_wrap=True)
    for one in operations:
        back = " ←" if one.direction == "bwd" else ""
        cells: list[str | Text] = [Text(shortened(one.name, texts - len(back)) + back)]
        cells += [Text(shortened(one.layer_name, texts))] if layers else []
        cells += [Text(shapes_text(one.shapes, texts))] if sizes else []
        cells += [one.dtype.value, f"{one.count:,}", _time(one.estimated_us)]
        cells += [_time(one.measured_us)] if timed and layers else []
        cells += [_efficiency(one.efficiency)] if timed else []
        table.add_row(*cells, _bound(one.bound))
    return table


def bar(share: float | None, width: int) -> str:
    """A bar of `width` characters at most, in eighths; a share above 0 shows as something."""
    if not share or share <= 0:
        return ""
    eighths = max(1, round(min(share, 1.0) * width * 8))
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def _efficiency(value: float | None) -> Text:
    from rich.text import Text

    if value is not None and value > TOLERATED:
        return Text(f"{_percent(value)} !", style="yellow")
    return Text(_percent(value))


def _bound(bound: BoundType) -> str:
    return UNKNOWN if bound is BoundType.UNKNOWN else bound.value


def _time(time_us: float | None) -> str:
    """A time with three digits: ms, below 1 ms µs."""
    if time_us is None:
        return UNKNOWN
    value, unit = (time_us / 1e3, "ms") if time_us >= 999.5 else (time_us, "µs")
    return f"{value:,.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"


def _percent(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"{100 * ratio:.1f} %"
