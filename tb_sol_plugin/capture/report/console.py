"""Writes the report of a step as plain text, 90 characters wide."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TextIO

from tb_sol_plugin.capture.loop.schedule import CopyRow
from tb_sol_plugin.capture.operation_registry import BoundType
from tb_sol_plugin.capture.report.analysis import Analysis, TopOperation, shapes_text
from tb_sol_plugin.capture.roofline import FLAGS
from tb_sol_plugin.capture.work.sums import Group
from tb_sol_plugin.roofline import exceeds_limit

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text


WIDTH: Final = 90
NAME_WIDTH: Final = 40
ROWS: Final = 60
"""Rows of one section; more are summed up in a line."""
REPORTED_FLAGS: Final = ("above_limit", "launch_bound_timing", "forward_only", "eager_capture", "no_peak", "sparse", "unverified_peak")
"""Flags that get a line, in this order. Estimated, recomputed and unmodeled work is nothing unusual in a group."""
UNKNOWN: Final = "—"


def console_report(analysis: Analysis) -> str:
    """Writes the report as text, without a newline at its end. What is not known is a dash, or left out; notes at the end say why.

    Of a step whose work was not counted, the report of the last one whose work was.
    """
    age, analysis = analysis.age, analysis.reported
    thick, thin = "=" * WIDTH, "-" * WIDTH
    lines = [thick, f"{'':27}SOL (Speed of Light) Analysis", thick, _head(analysis)]
    sections = [("By Layer Type:", analysis.layers), ("By Function:", analysis.functions), ("By Phase:", analysis.phases)]
    for title, groups in sections:
        if groups:
            lines += [thin, title, *_rows(groups)]
    notes = notes_of(analysis, age)
    if notes:
        lines += [thin, *(line for note in notes for line in _wrapped(note))]
    return "\n".join([*lines, thick])


def _head(analysis: Analysis) -> str:
    total = analysis.total
    device = analysis.device or "no limits"
    return f"Device: {device} | Ops: {total.count} | Total: {_ms(total.estimated_us)} ms estimated"


def _ms(time_us: float | None) -> str:
    return UNKNOWN if time_us is None else f"{time_us / 1e3:.2f}"


def _rows(groups: Sequence[Group]) -> list[str]:
    lines = [_row(group) for group in groups[:ROWS]]
    if len(groups) > ROWS:
        lines.append(f"  ... and {len(groups) - ROWS} more")
    return lines


def _row(group: Group) -> str:
    share = UNKNOWN if group.share is None else f"{group.share * 100:.1f}"
    line = f"  {shortened(group.name):<{NAME_WIDTH}} {group.count:>8} ops, {_ms(group.estimated_us):>8} ms ({share:>5}%)"
    if group.measured_us is None:
        return line
    ms = group.measured_us / 1e3
    efficiency = "" if group.efficiency is None else f", eff: {group.efficiency * 100:.1f}%"
    return f"{line} [meas: {ms:.{1 if ms >= 0.1 else 2}f}ms{efficiency}]"


def shortened(name: str, width: int = NAME_WIDTH) -> str:
    """Shortens a name to one line of at most `width` characters; a longer one loses its middle."""
    name = " ".join(name.split())
    if len(name) <= width:
        return name
    head = (width - 3) // 2
    return f"{name[:head]}...{name[len(name) - (width - 3 - head) :]}"


def notes_of(analysis: Analysis, age: int = 0) -> list[str]:
    """Lists in sentences what a reader must know of the figures; nothing in the plain case. age: iterations since the analyzed one."""
    total, notes = analysis.total, []
    if age:
        notes.append(f"Counted and timed in iteration {analysis.iteration}, {age} iteration{'s' if age > 1 else ''} ago.")
    if analysis.reason:
        notes.append(f"No limits: {analysis.reason}.")
        matrix, vector = amount(total.flops, "FLOP"), amount(total.flops_vector, "FLOP")
        notes.append(f"Work: {matrix} matrix, {vector} vector, {amount(total.bytes, 'B')}.")
    elif total.unknown:
        notes.append(f"{total.unknown} of {total.count} ops have no estimate: their work is not known.")
    notes += [note[:1].upper() + note[1:] + "." for note in analysis.notes]
    for flag in REPORTED_FLAGS:
        every = (*analysis.layers, *analysis.functions, *analysis.phases)
        names = list(dict.fromkeys(group.name for group in every if flag in group.flags))
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            notes.append(f"{', '.join(shortened(n) for n in names[:3])}{more}: {FLAGS[flag]}.")
    return notes


def amount(value: int | None, unit: str) -> str:
    """Formats a decimal amount with three digits, as `753 MFLOP`."""
    if value is None:
        return UNKNOWN
    steps = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
    for factor, prefix in steps:
        if value >= 0.9995 * factor:
            scaled = value / factor
            return f"{scaled:.{2 if scaled < 9.995 else 1 if scaled < 99.95 else 0}f} {prefix}{unit}"
    return f"{value} {unit}"


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, WIDTH, initial_indent="* ", subsequent_indent="  ", break_long_words=True)


# -- report_rich -----------------------------------------------------------------------------------------------------


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
RICH_ROWS: Final = 20
TOP: Final = 10


def print_rich(analysis: Analysis, *, file: TextIO | None = None, width: int | None = None) -> None:
    """Print tables to a terminal, the plain report to anything else.

    width: columns; given, tables are printed whatever `file` is (without colors where it is no terminal).
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
    """Makes a console for the stream; None where there is no rich, no terminal, or too little room."""
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

    rule = Rule(Text("Speed of light", style="bold"), style="dim")
    parts: list[RenderableType] = [rule, _rich_head(analysis, 4 if width >= HEAD_WIDE else 3)]
    every = (*analysis.layers[:RICH_ROWS], *analysis.functions[:RICH_ROWS], *analysis.phases[:RICH_ROWS])
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


def _rich_head(analysis: Analysis, per_row: int) -> Table:
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
    shown = [(name, value) for name, value in facts if value and value != UNKNOWN]
    table = Table.grid(padding=(0, 2))
    for _ in range(per_row):
        table.add_column(style="dim", no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
    for at in range(0, len(shown), per_row):
        row = shown[at : at + per_row]
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
    for group in groups[:RICH_ROWS]:
        cells: list[str | Text] = [Text(shortened(group.name, room)), f"{group.count:,}", _time(group.estimated_us), _percent(group.share)]
        if wide:
            cells.append(Text(bar(group.share, BAR), style="cyan"))
        cells += [_time(group.measured_us), _efficiency(group.efficiency)]
        if wide:
            cells += [amount(group.flops, "FLOP"), amount(group.bytes, "B"), _bound(group.bound)]
        table.add_row(*cells)
    if len(groups) > RICH_ROWS:
        table.add_row(Text(f"and {len(groups) - RICH_ROWS} more", style="dim"))
    return table


def _top(operations: Sequence[TopOperation], width: int) -> Table:
    """Makes the table of single operations, with their layers and sizes as far as there is room."""
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
    """Draws a bar of `width` characters at most, in eighths; a share above 0 shows as something."""
    if not share or share <= 0:
        return ""
    eighths = max(1, round(min(share, 1.0) * width * 8))
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def _efficiency(value: float | None) -> Text:
    from rich.text import Text

    if exceeds_limit(value):
        return Text(f"{_percent(value)} !", style="yellow")
    return Text(_percent(value))


def _bound(bound: BoundType) -> str:
    return UNKNOWN if bound is BoundType.UNKNOWN else bound.value


def _time(time_us: float | None) -> str:
    """Formats a time with three digits: ms, below 1 ms µs."""
    if time_us is None:
        return UNKNOWN
    value, unit = (time_us / 1e3, "ms") if time_us >= 999.5 else (time_us, "µs")
    return f"{value:,.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"


def _percent(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"{100 * ratio:.1f} %"


# -- Copies of a sampled iteration in one sentence, for the reports --------------------------------------------------


WAYS: Final = {"HtoD": "to the device", "DtoH": "to the host", "PtoP": "between devices"}


def sentence(rows: Sequence[CopyRow]) -> str:
    """Describes the copies of an iteration in one sentence.

    As `Copies: 12 to the device (48.0 MB, 3 from pageable memory), 2 to the host (2 numbers read); the host waits for 5.`
    "" where nothing crosses between the host and a device, or between devices.
    """
    parts = []
    waits = 0
    for direction, words in WAYS.items():
        matching = [row for row in rows if row[1] == direction]
        if not matching:
            continue
        count, size = (sum(row[at] for row in matching) for at in (10, 11))  # type: ignore[misc]
        pageable = sum(row[10] for row in matching if "Pageable" in row[2:4])
        read = sum(row[10] for row in matching if direction == "DtoH" and not row[3])
        waits += sum(row[13] or 0 for row in matching)
        more = [amount(size, "B")] if size and read < count else []
        more += [f"{pageable} {'from' if direction == 'HtoD' else 'to'} pageable memory"] if pageable else []
        more += [f"{read} {'number' if read == 1 else 'numbers'} read"] if read else []
        parts.append(f"{count} {words}" + (f" ({', '.join(more)})" if more else ""))
    return f"Copies: {', '.join(parts)}; the host waits for {waits or 'none'}." if parts else ""
