"""Prints `tb-sol --help-all`: every command, analysis, column and exit status on one page of text, for people and agents alike."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tb_sol_plugin.model.query import Field, Query, fields
from tb_sol_plugin.model.registry import Analysis, registry
from tb_sol_plugin.model.report import Column, Fact
from tb_sol_plugin.version import __version__

STATUSES: Final = (
    (0, "answered"), (1, "bad input: no such file, run, worker or analysis, or one that cannot be read"),
    (2, "bad usage, or a field that does not fit"), (3, "the recording lacks what the analysis needs"), (4, "check: regression"),
    (5, "check: inconclusive"), (130, "interrupted"),
)  # fmt: skip
OVER: Final = {
    "capture": "one recording", "ranks": "all workers of a run", "pair": "two recordings", "runs": "all runs", "none": "no recording",
}  # fmt: skip
UNITS: Final = (
    "Units: ns nanoseconds, B bytes (1 kB is 1000 B), FLOP two per multiply-add, ratio from 0 to 1, count. An empty cell of a CSV, and "
    "null in JSON, is unknown, never 0."
)


def help_all(commands: Mapping[str, argparse.ArgumentParser]) -> str:
    """Returns the page. commands: their parsers by name."""
    return "\n".join(_lines(commands)) + "\n"


def _lines(commands: Mapping[str, argparse.ArgumentParser]) -> Iterator[str]:
    yield f"tb-sol {__version__}: how close a PyTorch job runs to the speed of light of its hardware"
    yield ""
    yield "EXIT STATUS"
    for number, meaning in STATUSES:
        yield f"  {number:>3}  {meaning}"
    yield ""
    yield UNITS
    yield ""
    yield "EVERY ANALYSIS TAKES"
    yield from _options(fields(Query))
    for name, parser in commands.items():
        yield ""
        yield f"COMMAND tb-sol {name}"
        yield from (f"  {line}".rstrip() for line in parser.format_help().splitlines())
    for item in registry().values():
        yield ""
        yield f"ANALYSIS {item.name}: {item.title}. {item.question}"
        yield from _analysis(item)


def _analysis(item: Analysis) -> Iterator[str]:
    yield f"  of {OVER[item.scope]}: tb-sol analyze {item.name} {'' if item.scope == 'none' else 'PATH '}[--format json|csv|text]".rstrip()
    yield from _options([field for field in item.fields if field.name not in Query.__struct_fields__])
    yield from _numbers("fact", item.facts)
    for table, columns in item.tables.items():
        yield f"  table {table}"
        yield from _numbers("  column", columns)


def _options(given: Sequence[Field]) -> Iterator[str]:
    for field in given:
        values = ", ".join(c if c else repr(c) for c in field.choices or field.rows) or field.type
        default = f", default {field.default}" if field.default not in ("", "None") else ""
        yield f"  option --{field.name.replace('_', '-')} ({values}{default}): {field.doc}"


def _numbers(what: str, numbers: Sequence[Fact | Column]) -> Iterator[str]:
    for one in numbers:
        yield f"  {what} {one.name}{f' [{one.unit}]' if one.unit else ''}: {one.doc or one.label}"
