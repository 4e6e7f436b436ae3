"""The console form of the speed-of-light analysis: rules, one line per group, three views of the same work."""

from __future__ import annotations

import textwrap
from typing import Final

import pandas as pd

from tb_sol_plugin.cli_text import plain
from tb_sol_plugin.cost.roofline import TOLERATED
from tb_sol_plugin.metrics.report.console import ConsoleReport
from tb_sol_plugin.metrics.work.sums import FLAGGED

RULE: Final = 90
TITLE: Final = "SOL (Speed of Light) Analysis"
NAME: Final = 40
WIDE: Final = 108
"""Columns that a full line takes; narrower terminals get shorter names and shorter brackets."""


def sol_lines(report: ConsoleReport, width: int = 120, rows: int = 0) -> list[str]:
    """The lines of the report. rows: at most that many per view, the rest in one line; 0 is all of them.

    A row: two spaces, name in 40, count in 8, `ops`, limit in ms in 8.2, share in 5.1 %, then measured time and efficiency; `!` after
    an efficiency above 102 %, which is never cut.
    """
    rule = min(RULE, max(width, 40))
    each = " per step" if report.stepped else ""
    head = f"Device: {report.device} | Ops: {_count(report.ops)} | Total: {report.sol_ns / 1e6:.2f} ms estimated{each}"
    if report.measured_ns > 0:
        whole = f"{head} [meas: {_ms(report.measured_ns)}ms, eff: {100 * report.sol_ns / report.measured_ns:.1f}%]"
        head = whole if len(whole) <= width else head
    out = ["=" * rule, (" " * 27 + TITLE)[:rule].rstrip() if width >= RULE else TITLE.center(rule).rstrip(), "=" * rule, plain(head)]
    for title, frame in report.views:
        out += ["-" * rule, f"{title}:", *_view(frame, width, rows)]
    flagged = any(line.endswith("] !") for line in out)
    return [*out, "=" * rule, *(textwrap.wrap(f"! {FLAGGED}", width) if flagged else [])]


def _view(frame: pd.DataFrame, width: int, rows: int) -> list[str]:
    shown = frame if rows <= 0 or len(frame) <= rows + 1 else frame.head(rows)
    columns = (shown[c].tolist() for c in ("name", "ops", "sol_ns", "share", "measured_ns", "efficiency"))
    out = [_row(name, ops, sol, share, time, reached, width) for name, ops, sol, share, time, reached in zip(*columns, strict=True)]
    rest = frame.iloc[len(shown) :]
    if len(rest):
        measured, sol = float(rest["measured_ns"].sum()), float(rest["sol_ns"].sum())
        efficiency = sol / measured if measured > 0 else None
        out.append(_row(f"({len(rest)} more)", float(rest["ops"].sum()), sol, float(rest["share"].sum()), measured, efficiency, width))
    return out


def _row(name: str, ops: float, sol_ns: float, share: float, measured_ns: float, efficiency: float | None, width: int) -> str:
    full = width >= WIDE
    room = NAME if full else max(min(width - 68, NAME), 0)
    brackets, count = ("meas: {}ms, eff: {}%", 8)
    if room < 30:
        brackets, count, room = "{}ms, {}%", 6, max(min(width - 55, NAME), 12)
    line = f"  {_cut(plain(name), room):<{room}} {_count(ops):>{count}} ops, {sol_ns / 1e6:8.2f} ms ({100 * share:5.1f}%)"
    if not measured_ns > 0 or efficiency is None or efficiency != efficiency:
        return line
    flag = " !" if efficiency > TOLERATED else ""
    return f"{line} [{brackets.format(_ms(measured_ns), f'{100 * efficiency:.1f}')}]{flag}"


def _count(ops: float) -> str:
    return f"{ops:.0f}" if float(ops).is_integer() else f"{ops:.1f}"


def _ms(ns: float) -> str:
    value = ns / 1e6
    return f"{value:.1f}" if value >= 0.1 else f"{value:.2f}"


def _cut(text: str, longest: int) -> str:
    """Shortened in the middle."""
    if len(text) <= longest:
        return text
    half = max((longest - 1) // 2, 1)
    return f"{text[:half]}…{text[-(longest - half - 1) :]}"
