"""The registry of analyses: how one registers, what it needs, and how it is answered."""

from __future__ import annotations

import hashlib
import importlib
import json
import pkgutil
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar

import msgspec

from tb_sol_plugin.errors import BadQuery, NotFound, Unavailable
from tb_sol_plugin.model.query import Field, PairQuery, Query, fields, parse
from tb_sol_plugin.model.recordings import BesideFile, Lack, Made, Side, WorkerPart, facts_of
from tb_sol_plugin.model.report import Column, Fact, FieldNow, Notice, Reading, Report, UnavailableReport
from tb_sol_plugin.units import human

if TYPE_CHECKING:
    from tb_sol_plugin.model.capture import Capture


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
    needs: what the recording must hold (`Capture.missing`). tables: columns by section id. facts: what its single values are.
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
    facts: tuple[Fact, ...]
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


# -- Registration -----------------------------------------------------------------------------------------------------


Q = TypeVar("Q", bound=Query)
A = TypeVar("A", bound=PairQuery)
P = TypeVar("P", bound=msgspec.Struct)

ONE_WORKER: Final = Lack(
    "one worker here: this compares the workers of a run",
    "let every rank record into one folder, under a name of its own",
    'on_trace_ready=torch.profiler.tensorboard_trace_handler(logdir, worker_name=f"rank{rank}")',
)
"""What an analysis over workers says of a run with one."""
ALONE: Final = Lack(
    "one recording here: this compares two recordings",
    "let several ranks record, or put a second run into the logdir",
    'run.analyze(name, other_run="...", other_worker="...")',
)
"""What an analysis over two recordings says of one."""

_FOUND: dict[str, Analysis] = {}


def analysis(
    *,
    title: str,
    question: str,
    group: str,
    order: int,
    needs: tuple[str, ...] = (),
    query: type[Q],
    tables: Mapping[str, tuple[Column, ...]] | None = None,
    facts: Sequence[Fact] = (),
    icon: str = "",
    count: Callable[[Capture], int] | None = None,
    counted: Callable[[Capture], bool] | None = None,
    under: str = "",
) -> Callable[[Callable[[Capture, Q], Report]], Callable[[Capture, Q], Report]]:
    """Register a function as the analysis named after its module (`analyses/kernels.py` is `kernels`)."""

    def register(function: Callable[[Capture, Q], Report]) -> Callable[[Capture, Q], Report]:
        module = importlib.import_module(function.__module__)
        name = module.__name__.rpartition(".")[2]
        _FOUND[name] = Analysis(
            name,
            title,
            question,
            group,
            order,
            icon or name,
            needs,
            query,
            tables or {},
            tuple(facts),
            function,  # type: ignore[arg-type]
            (module.__doc__ or "").strip(),
            count,
            counted,
            under,
        )
        return function

    return register


def over_workers(
    *,
    part: Callable[[Capture, Q], P],
    title: str,
    question: str,
    group: str,
    order: int,
    query: type[Q],
    fields: tuple[str, ...] = ("step",),
    version: int = 1,
    least: int = 2,
    beside: bool = False,
    needs: tuple[str, ...] = (),
    counted: Callable[[Capture], bool] | None = None,
    tables: Mapping[str, tuple[Column, ...]] | None = None,
    facts: Sequence[Fact] = (),
    icon: str = "",
    under: str = "",
) -> Callable[[Callable[[Sequence[WorkerPart[P]], Q], Report]], Callable[[Sequence[WorkerPart[P]], Q], Report]]:
    """Register a function over the workers of a run, as `analysis` does one of a capture. See `Over` for part, fields, version, least."""

    def register(function: Callable[[Sequence[WorkerPart[P]], Q], Report]) -> Callable[[Sequence[WorkerPart[P]], Q], Report]:
        module = importlib.import_module(function.__module__)
        name = module.__name__.rpartition(".")[2]
        over = Over(part, fields, version, beside, report=function, least=least)  # type: ignore[arg-type]

        def of_one(capture: Capture, asked: Query) -> Report:
            return over.report([worker_of(name, over, capture, asked)], asked)

        _FOUND[name] = Analysis(
            name, title, question, group, order, icon or name, needs, query, tables or {}, tuple(facts), of_one,
            (module.__doc__ or "").strip(), counted=counted, under=under, over=over,
        )  # fmt: skip
        return function

    return register


def over_runs(
    *,
    part: Callable[[Capture, Q], P],
    title: str,
    question: str,
    group: str,
    order: int,
    query: type[Q],
    files: tuple[str, ...] = (),
    choose: Callable[[Sequence[str], str, Q], Sequence[str]] | None = None,
    alone: Callable[[Q], Report] | None = None,
    fields: tuple[str, ...] = (),
    version: int = 1,
    beside: bool = False,
    tables: Mapping[str, tuple[Column, ...]] | None = None,
    facts: Sequence[Fact] = (),
    icon: str = "",
    under: str = "",
) -> Callable[
    [Callable[[Sequence[WorkerPart[P]], Sequence[BesideFile], Q], Report]],
    Callable[[Sequence[WorkerPart[P]], Sequence[BesideFile], Q], Report],
]:
    """Register a function over the workers of all runs, as `over_workers` does one of a run. See `Runs` for part, files, choose.

    alone: what it answers without a recording, where it can.
    """

    def register(
        function: Callable[[Sequence[WorkerPart[P]], Sequence[BesideFile], Q], Report],
    ) -> Callable[[Sequence[WorkerPart[P]], Sequence[BesideFile], Q], Report]:
        module = importlib.import_module(function.__module__)
        name = module.__name__.rpartition(".")[2]
        runs = Runs(part, fields, version, beside, report=function, files=files, choose=choose)  # type: ignore[arg-type]

        def of_one(capture: Capture, asked: Query) -> Report:
            return runs.report([worker_of(name, runs, capture, asked)], (), asked)

        _FOUND[name] = Analysis(
            name, title, question, group, order, icon or name, (), query, tables or {}, tuple(facts), of_one,
            (module.__doc__ or "").strip(), under=under, runs=runs, alone=alone,  # type: ignore[arg-type]
        )  # fmt: skip
        return function

    return register


def over_pair(
    *,
    part: Callable[[Capture, A], P],
    title: str,
    question: str,
    group: str,
    order: int,
    query: type[A],
    fields: tuple[str, ...] = ("step",),
    version: int = 1,
    beside: bool = False,
    needs: tuple[str, ...] = (),
    tables: Mapping[str, tuple[Column, ...]] | None = None,
    facts: Sequence[Fact] = (),
    icon: str = "",
    under: str = "",
) -> Callable[[Callable[[Side[P], Side[P], A], Report]], Callable[[Side[P], Side[P], A], Report]]:
    """Register a function over two recordings, the one that is shown and another, as `analysis` does one of a capture. See `Parts`.

    needs: what each of the two must hold.
    """

    def register(function: Callable[[Side[P], Side[P], A], Report]) -> Callable[[Side[P], Side[P], A], Report]:
        module = importlib.import_module(function.__module__)
        name = module.__name__.rpartition(".")[2]
        pair = Pair(part, fields, version, beside, report=function)  # type: ignore[arg-type]

        def of_one(capture: Capture, asked: Query) -> Report:
            raise Unavailable(ALONE.because, hint=f"{ALONE.record_it_with}; then {ALONE.argument}")

        _FOUND[name] = Analysis(
            name, title, question, group, order, icon or name, needs, query, tables or {}, tuple(facts), of_one,
            (module.__doc__ or "").strip(), under=under, pair=pair,
        )  # fmt: skip
        return function

    return register


def without_recording(
    *,
    title: str,
    question: str,
    group: str,
    order: int,
    query: type[Q],
    recorded: Callable[[Capture, Q], Report] | None = None,
    tables: Mapping[str, tuple[Column, ...]] | None = None,
    facts: Sequence[Fact] = (),
    icon: str = "",
    under: str = "",
) -> Callable[[Callable[[Q], Report]], Callable[[Q], Report]]:
    """Register a function `query -> Report` that needs no recording, as `analysis` does one of a capture.

    recorded: what it answers where a recording is named all the same; without it the recording makes no difference.
    """

    def register(function: Callable[[Q], Report]) -> Callable[[Q], Report]:
        module = importlib.import_module(function.__module__)
        name = module.__name__.rpartition(".")[2]

        def of_capture(capture: Capture, asked: Q) -> Report:
            return recorded(capture, asked) if recorded is not None else function(asked)

        _FOUND[name] = Analysis(
            name, title, question, group, order, icon or name, (), query, tables or {}, tuple(facts), of_capture,  # type: ignore[arg-type]
            (module.__doc__ or "").strip(), under=under, alone=function,  # type: ignore[arg-type]
        )  # fmt: skip
        return function

    return register


PACKAGE: Final = "tb_sol_plugin.analyses"
"""Where analyses stand: one module each, `ROOM/NAME.py`, beside the modules of their tables and figures."""


@cache
def _modules() -> Mapping[str, str]:
    """The module of each file below the rooms of analyses, by its last name."""
    rooms = importlib.import_module(PACKAGE).__path__
    found = (info.name for info in pkgutil.walk_packages(rooms, f"{PACKAGE}.") if not info.ispkg)
    return {name.rpartition(".")[2]: name for name in found}


@cache
def registry() -> Mapping[str, Analysis]:
    """All analyses by name, in page order."""
    for module in _modules().values():
        importlib.import_module(module)
    groups = ("", "Time", "Speed of light", "Run", "foot")
    return dict(sorted(_FOUND.items(), key=lambda item: (groups.index(item[1].group), item[1].order)))


def get(name: str) -> Analysis:
    """The analysis of that name; NotFound lists the names there are."""
    try:
        return registry()[name]
    except KeyError:
        raise NotFound(f"no analysis {name!r}", hint=f"there are: {', '.join(registry())}", field="name") from None


def availability(item: Analysis, capture: Capture, workers: int = 1, others: bool = True) -> tuple[str, str, str] | None:
    """None if the capture has what the analysis needs; else (because, record it with, argument).

    workers: of its run. others: whether there is another recording to set beside it.
    """
    if item.alone is not None:
        return None
    if item.pair is not None and not others:
        return ALONE.because, ALONE.record_it_with, ""
    if item.over is not None and workers < item.over.least:
        return ONE_WORKER.because, ONE_WORKER.record_it_with, ONE_WORKER.argument
    if item.counted is not None:
        if item.counted(capture):
            return None
        lack = capture.missing("work") if capture.facts.source == "sol_capture" else None
        if lack is not None:
            return lack
    for need in item.needs:
        lack = capture.missing(need)
        if lack is not None:
            return lack
    return None


def run_analysis(name: str, capture: Capture, raw: dict[str, str]) -> Report | UnavailableReport:
    """Parse the query, check the needs, run. BadQuery and NotFound pass through."""
    item = get(name)
    query = parse(item.query, raw)
    selection = {k: v for k, v in (("run", capture.run), ("worker", capture.worker), ("span", capture.span)) if v}
    selection |= {f.name: raw[f.name] for f in item.fields if raw.get(f.name)}
    lack = availability(item, capture)
    if lack is None:
        try:
            report = item.run(capture, query)
        except Unavailable as error:
            lack = (error.message, error.hint, "")
        else:
            report.selection = dict(selection)
            return report
    because, record, argument = lack
    return UnavailableReport(
        analysis=name, title=item.title, because=because, record_it_with=record, argument=argument, selection=dict(selection)
    )


def run_alone(name: str, raw: dict[str, str]) -> Report | UnavailableReport:
    """The report of an analysis without a recording. BadQuery where it needs one, and NotFound, pass through."""
    item = get(name)
    query = parse(item.query, raw)
    if item.alone is None:
        raise BadQuery(f"{name} needs a recording", hint="name the logdir or the file of one", field="path")
    selection = {f.name: raw[f.name] for f in item.fields if raw.get(f.name)}
    try:
        report = item.alone(query)
    except Unavailable as error:
        return UnavailableReport(
            analysis=name, title=item.title, because=error.message, record_it_with=error.hint, selection=dict(selection)
        )
    report.selection = dict(selection)
    return report


class AnalysisInfo(TypedDict):
    """What the registry says of one analysis. columns by section id; facts: one sentence each."""

    title: str
    question: str
    needs: tuple[str, ...]
    fields: tuple[Field, ...]
    sections: tuple[str, ...]
    columns: Mapping[str, tuple[Column, ...]]
    facts: Mapping[str, str]


def described() -> dict[str, AnalysisInfo]:
    """Every analysis by name: title, question, needs, query fields, section ids, columns."""
    return {
        name: AnalysisInfo(
            title=item.title,
            question=item.question,
            needs=item.needs,
            fields=item.fields,
            sections=tuple(item.tables),
            columns=item.tables,
            facts={f.name: f.doc for f in item.facts},
        )
        for name, item in registry().items()
    }


# -- Analyses over several recordings --------------------------------------------------------------------------------
# their parts, and their reports out of these.


# -- over the workers of a run ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartMaker:
    """Makes the part of one capture that an analysis over workers needs: a plain value, so that it can go to a reading process.

    raw: the query fields that the part depends on, where they are not at their defaults.
    """

    analysis: str
    raw: tuple[tuple[str, str], ...] = ()

    @property
    def parts(self) -> Parts:
        """How the analysis is made; its module is loaded, the others are not."""
        if self.analysis not in _FOUND:
            importlib.import_module(_modules()[self.analysis])
        found = _FOUND[self.analysis].parts
        assert found is not None
        return found

    @cached_property
    def key(self) -> str:
        """Changes with what makes a part and what it needs, its version and layout, and what it depends on of the query.

        Analyses whose parts the same function makes share them.
        """
        parts, item = self.parts, _FOUND[self.analysis]
        maker = f"{parts.part.__module__}.{parts.part.__qualname__}"
        counted = item.counted is not None and f"{item.counted.__module__}.{item.counted.__qualname__}"
        layout = json.dumps(msgspec.json.schema(parts.kind), sort_keys=True)
        text = json.dumps([maker, item.needs, counted, parts.version, layout, self.raw])
        return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()

    def __call__(self, capture: Capture) -> Made:
        """The part of a capture; what it lacks and a step that it does not have are answers too."""
        parts, facts = self.parts, facts_of(capture)
        item = _FOUND[self.analysis]
        lack = availability(item, capture, item.over.least if item.over is not None else 1)
        if lack is not None:
            return Made(facts, lack=Lack(*lack))
        try:
            part = parts.part(capture, parse(item.query, dict(self.raw)))
        except Unavailable as error:
            return Made(facts, lack=Lack(error.message, error.hint))
        except BadQuery as error:
            return Made(facts, lack=Lack(error.message, error.hint, error=True, field=error.field))
        return Made(facts, msgspec.msgpack.encode(part))


def part_maker(name: str, raw: Mapping[str, str]) -> PartMaker:
    """What makes the parts that an analysis over several recordings needs for a query. BadQuery where the query does not parse."""
    item = get(name)
    assert item.parts is not None
    query = parse(item.query, dict(raw))
    values = {f.name: (f.default, str(getattr(query, f.name)).strip()) for f in item.fields if f.name in item.parts.fields}
    return PartMaker(name, tuple((n, value) for n, (default, value) in values.items() if value != default))


def run_over(
    name: str, parts: Sequence[WorkerPart[msgspec.Struct]], raw: Mapping[str, str], selection: Mapping[str, str]
) -> Report | UnavailableReport:
    """The report over the workers of a run. While some are waiting it is of those that are there, and `reading` says how many.

    selection: run, worker and span that were asked for. Unavailable where there are too few workers or none has a part; BadQuery where
    the query fits none.
    """
    item = get(name)
    assert item.over is not None
    query = parse(item.query, dict(raw))
    shown = {k: v for k, v in selection.items() if v} | {f.name: raw[f.name] for f in item.fields if raw.get(f.name)}
    lack: Lack | None = ONE_WORKER if len(parts) < item.over.least else None
    waiting = sum(p.state == "waiting" for p in parts)
    if lack is None and not waiting and all(p.state != "read" for p in parts):
        lack = _of_none(parts)
    if lack is None:
        try:
            report = item.over.report(parts, query)
        except Unavailable as error:
            lack = Lack(error.message, error.hint)
        else:
            report.selection = dict(shown)
            _so_far(report, parts)
            return report
    if lack.error:
        raise BadQuery(lack.because, hint=lack.record_it_with, field=lack.field)
    return UnavailableReport(
        analysis=name, title=item.title, because=lack.because, record_it_with=lack.record_it_with, argument=lack.argument,
        selection=dict(shown),
    )  # fmt: skip


def runs_of(name: str, raw: Mapping[str, str], shown: str) -> Callable[[Sequence[str]], Sequence[str]]:
    """Which of all runs an analysis over runs reads, for the run that is shown and a query."""
    item = get(name)
    assert item.runs is not None
    choose, query = item.runs.choose, parse(item.query, dict(raw))
    return (lambda names: names) if choose is None else lambda names: choose(names, shown, query)


def run_runs(
    name: str,
    parts: Sequence[WorkerPart[msgspec.Struct]],
    files: Sequence[BesideFile],
    raw: Mapping[str, str],
    selection: Mapping[str, str],
) -> Report | UnavailableReport:
    """The report over the workers of all runs, and of the files beside them; in all else as `run_over`."""
    item = get(name)
    assert item.runs is not None
    query = parse(item.query, dict(raw))
    shown = {k: v for k, v in selection.items() if v} | {f.name: raw[f.name] for f in item.fields if raw.get(f.name)}
    try:
        report = item.runs.report(parts, files, query)
    except Unavailable as error:
        return UnavailableReport(analysis=name, title=item.title, because=error.message, record_it_with=error.hint, selection=dict(shown))
    report.selection = dict(shown)
    _so_far(report, parts)
    return report


def _so_far(report: Report, parts: Sequence[WorkerPart[msgspec.Struct]]) -> None:
    """Say in a report of how many workers it is, while some are waiting."""
    waiting = sum(p.state == "waiting" for p in parts)
    if waiting:
        done = len(parts) - waiting
        report.reading = Reading(done, len(parts))
        so_far, every = human(done, "count"), human(len(parts), "count")
        text = f"{so_far} of {every} workers are read. Every number here is of those; the others are being read."
        report.notices = [Notice(text, "info"), *report.notices]


def _of_none(parts: Sequence[WorkerPart[msgspec.Struct]]) -> Lack:
    """Why no worker of a run has a part: what the first one lacks that could be read, else why the first cannot be read."""
    lacking = next((p.lack for p in parts if p.lack is not None), None)
    if lacking is not None:
        return lacking
    return Lack(f"none of the {human(len(parts), 'count')} workers can be read; {parts[0].file}: {parts[0].problem}", parts[0].hint)


def worker_of(name: str, over: Parts, capture: Capture, query: Query) -> WorkerPart[msgspec.Struct]:
    raw = {f.name: str(value) for f in fields(type(query)) if (value := getattr(query, f.name)) is not None}
    made = part_maker(name, raw)(capture)
    if made.lack is not None:
        if made.lack.error:
            raise BadQuery(made.lack.because, hint=made.lack.record_it_with, field=made.lack.field)
        raise Unavailable(made.lack.because, hint=made.lack.record_it_with)
    return WorkerPart(
        capture.worker, capture.span, capture.facts.file, "read", made.facts.rank, made.facts, run=capture.run, body=lambda: made.body,
        decode=over.decode,
    )  # fmt: skip


# -- over two recordings ---------------------------------------------------------------------------------------------


def run_pair(
    name: str,
    here: Side[msgspec.Struct],
    there: Side[msgspec.Struct],
    raw: Mapping[str, str],
    selection: Mapping[str, str],
    stands: Mapping[str, FieldNow],
) -> Report | UnavailableReport:
    """The report over two recordings whose parts were made. Where one has none it says which, and why.

    selection: run, worker and span that were asked for. stands: how the fields that name the other one stand. BadQuery where the query
    does not fit one of them.
    """
    item = get(name)
    assert item.pair is not None
    query = parse(item.query, dict(raw))
    shown = {k: v for k, v in selection.items() if v} | {f.name: raw[f.name] for f in item.fields if raw.get(f.name)}
    because = record = argument = ""
    lacking = next((side for side in (here, there) if side.of.state != "read"), None)
    if lacking is not None:
        lack = lacking.of.lack
        if lack is not None and lack.error:
            raise BadQuery(f"{lacking.name}: {lack.because}", hint=lack.record_it_with, field=lack.field)
        because, record = f"{lacking.name}: {lacking.of.problem}", lacking.of.hint
        argument = lack.argument if lack is not None else ""
    else:
        try:
            report = item.pair.report(here, there, query)
        except Unavailable as error:
            because, record = error.message, error.hint
        else:
            report.selection = dict(shown)
            report.fields = {**stands, **report.fields}
            if there.chosen:
                text = f"Beside it stands `{there.name}`, {there.chosen}. Another one can be chosen."
                report.notices = [Notice(text, "info"), *report.notices]
            return report
    return UnavailableReport(
        analysis=name, title=item.title, because=because, record_it_with=record, argument=argument, selection=dict(shown),
        fields=dict(stands),
    )  # fmt: skip


def nothing_beside(name: str, raw: Mapping[str, str], selection: Mapping[str, str]) -> UnavailableReport:
    """The answer of an analysis over two recordings where there is no second one. BadQuery where the query does not parse."""
    item = get(name)
    parse(item.query, dict(raw))
    shown = {k: v for k, v in selection.items() if v} | {f.name: raw[f.name] for f in item.fields if raw.get(f.name)}
    return UnavailableReport(
        analysis=name, title=item.title, because=ALONE.because, record_it_with=ALONE.record_it_with, selection=dict(shown)
    )
