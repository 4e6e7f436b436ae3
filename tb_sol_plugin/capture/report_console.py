"""The report of a step as plain text, 90 characters wide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tb_sol_plugin.capture.analysis import Analysis
from tb_sol_plugin.capture.groups import Group
from tb_sol_plugin.capture.roofline import FLAGS

WIDTH: Final = 90
NAME_WIDTH: Final = 40
ROWS: Final = 60
"""Rows of one section; more are summed up in a line."""
TOLD: Final = ("above_limit", "launch_bound_timing", "forward_only", "eager_capture", "no_peak", "sparse", "unverified_peak")
"""Flags that get a line, in this order. Estimated, recomputed and unmodelled work is nothing unusual in a group."""
UNKNOWN: Final = "—"


def console_report(analysis: Analysis) -> str:
    """The report as text, without a newline at its end. What is not known is a dash, or left out; notes at the end say why.

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
    """A name without line breaks, in at most `width` characters: a longer one loses its middle."""
    name = " ".join(name.split())
    if len(name) <= width:
        return name
    head = (width - 3) // 2
    return f"{name[:head]}...{name[len(name) - (width - 3 - head) :]}"


def notes_of(analysis: Analysis, age: int = 0) -> list[str]:
    """What a reader has to know of the figures, in sentences; nothing in the plain case. age: iterations since the analysed one."""
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
    for flag in TOLD:
        every = (*analysis.layers, *analysis.functions, *analysis.phases)
        names = list(dict.fromkeys(group.name for group in every if flag in group.flags))
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            notes.append(f"{', '.join(shortened(n) for n in names[:3])}{more}: {FLAGS[flag]}.")
    return notes


def amount(value: int | None, unit: str) -> str:
    """A decimal amount with three digits, as `753 MFLOP`."""
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
