"""What is known of an analysis, and how one over several recordings is made."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Field, Query, fields
from tb_sol_plugin.model.recordings import BesideFile, Side, WorkerPart
from tb_sol_plugin.model.report import Column, Report


@dataclass(frozen=True)
class Parts:
    """What an analysis over several recordings needs of each.

    part: of one recording, what the report needs of it: a small `msgspec.Struct` (at most 2 MiB encoded). Its query has only the `fields`
    named here, the others stand at their defaults; so a part serves every value of the others. version: raised when `part` answers
    something else. beside: `part` reads what a trace has from the SOL capture beside it.
    """

    part: Callable[[Capture, Query], msgspec.Struct]
    fields: tuple[str, ...]
    version: int
    beside: bool

    @cached_property
    def kind(self) -> type[msgspec.Struct]:
        """What `part` answers."""
        found: type[msgspec.Struct] = typing.get_type_hints(self.part)["return"]
        return found

    @cached_property
    def decode(self) -> Callable[[bytes], msgspec.Struct]:
        """An encoded part, read again. ValidationError if it is none."""
        return msgspec.msgpack.Decoder(self.kind).decode


@dataclass(frozen=True)
class Over(Parts):
    """How an analysis over the workers of a run is made.

    report: of all workers, those without a part included, in natural order. least: workers it takes.
    """

    report: Callable[[Sequence[WorkerPart[msgspec.Struct]], Query], Report]
    least: int


@dataclass(frozen=True)
class Runs(Parts):
    """How an analysis over the workers of all runs is made.

    report: of all workers of all runs, in natural order, those without a part included, and of the files beside them.
    files: names of small text files that it reads where a person laid them beside the recordings.
    choose: of the names of all runs those that are read, for the run that is shown ("" none) and the query; None: all.
    """

    report: Callable[[Sequence[WorkerPart[msgspec.Struct]], Sequence[BesideFile], Query], Report]
    files: tuple[str, ...]
    choose: Callable[[Sequence[str], str, Query], Sequence[str]] | None = None


@dataclass(frozen=True)
class Pair(Parts):
    """How an analysis over two recordings is made. report: of the one that is shown and the one beside it."""

    report: Callable[[Side[msgspec.Struct], Side[msgspec.Struct], Query], Report]


@dataclass(frozen=True)
class Analysis:
    """What the registry knows of an analysis.

    group: heading in the page list ("", "Time", "Speed of light", "Run", "foot"). order: place in its group.
    needs: what the recording must hold (`Capture.missing`). tables: columns by section id. facts: one sentence per fact.
    count: how many things the page has to tell of a capture, where its entry in the page list says so.
    counted: whether work that a SOL capture counted will do in place of what it needs.
    under: the analysis that it is a further view of ("" none): the page list names that one alone, and both stand as tabs of one page.
    over: of an analysis over the workers of a run, how it is made; `run` then takes one capture for a run of one worker.
    pair: of an analysis over two recordings, how it is made; `run` then says that one capture is not enough.
    alone: of an analysis that answers without a recording, how: it takes the query alone.
    runs: of an analysis over all runs, how it is made; `run` then takes one capture for all there is.
    """

    name: str
    title: str
    question: str
    group: str
    order: int
    icon: str
    needs: tuple[str, ...]
    query: type[Query]
    tables: Mapping[str, tuple[Column, ...]]
    facts: Mapping[str, str]
    run: Callable[[Capture, Query], Report]
    help: str = field(default="")
    count: Callable[[Capture], int] | None = None
    counted: Callable[[Capture], bool] | None = None
    under: str = ""
    over: Over | None = None
    alone: Callable[[Query], Report] | None = None
    pair: Pair | None = None
    runs: Runs | None = None

    @property
    def parts(self) -> Parts | None:
        """What it needs of each of several recordings; None for an analysis of one."""
        return self.over or self.pair or self.runs

    @property
    def fields(self) -> tuple[Field, ...]:
        return fields(self.query)
