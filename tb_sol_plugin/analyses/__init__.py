"""LAYER 4: analyses, one pure file each, never importing each other.

A module in this package that calls `@analysis(...)` on a function `(capture, query) -> Report` is an analysis:
its route, CLI subcommand, CSV, OpenAPI entry and page follow. The module's docstring is its help.

One that compares the workers of a run calls `@over_workers(part=...)` on a function `(parts, query) -> Report` instead: `part` is made
of every worker where its capture is opened, and the report of all the parts.

One that sets two recordings beside each other calls `@over_pair(part=...)` on a function `(here, there, query) -> Report`, where both are
a `Side`; the same machinery makes the part of each. Its query is a `PairQuery`.

One over the workers of all runs of a logdir calls `@over_runs(part=...)`; small files that a person lays beside the runs come with them.

One that needs no recording calls `@without_recording(...)` on a function `query -> Report`; where a recording is named all the same, it
may take from it what the query leaves open (`recorded=`). Such an analysis is always available.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import Final, TypedDict, TypeVar

import msgspec

from tb_sol_plugin.errors import BadQuery, NotFound, Unavailable
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Field, PairQuery, Query, parse
from tb_sol_plugin.model.recordings import BesideFile, Lack, Side, WorkerPart
from tb_sol_plugin.model.registry import Analysis as Analysis
from tb_sol_plugin.model.registry import Over, Pair, Runs
from tb_sol_plugin.model.report import Column, Report, UnavailableReport

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
    facts: Mapping[str, str] | None = None,
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
            facts or {},
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
    facts: Mapping[str, str] | None = None,
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
            name, title, question, group, order, icon or name, needs, query, tables or {}, facts or {}, of_one,
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
    facts: Mapping[str, str] | None = None,
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
            name, title, question, group, order, icon or name, (), query, tables or {}, facts or {}, of_one,
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
    facts: Mapping[str, str] | None = None,
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
            name, title, question, group, order, icon or name, needs, query, tables or {}, facts or {}, of_one,
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
    facts: Mapping[str, str] | None = None,
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
            name, title, question, group, order, icon or name, (), query, tables or {}, facts or {}, of_capture,  # type: ignore[arg-type]
            (module.__doc__ or "").strip(), under=under, alone=function,  # type: ignore[arg-type]
        )  # fmt: skip
        return function

    return register


@cache
def registry() -> Mapping[str, Analysis]:
    """All analyses by name, in page order."""
    for info in pkgutil.iter_modules(__path__):
        if not info.name.startswith("_"):
            importlib.import_module(f"{__name__}.{info.name}")
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
            facts=item.facts,
        )
        for name, item in registry().items()
    }


class _Callable(ModuleType):
    """Lets `tb_sol_plugin.analyses()` answer the registry: this package and that function share their name."""

    def __call__(self) -> dict[str, AnalysisInfo]:
        return described()


sys.modules[__name__].__class__ = _Callable


# Below what it needs of this module: how analyses over several recordings are answered.
from tb_sol_plugin.analyses._several import PartMaker as PartMaker  # noqa: E402
from tb_sol_plugin.analyses._several import nothing_beside as nothing_beside  # noqa: E402
from tb_sol_plugin.analyses._several import part_maker as part_maker  # noqa: E402
from tb_sol_plugin.analyses._several import run_over as run_over  # noqa: E402
from tb_sol_plugin.analyses._several import run_pair as run_pair  # noqa: E402
from tb_sol_plugin.analyses._several import run_runs as run_runs  # noqa: E402
from tb_sol_plugin.analyses._several import runs_of as runs_of  # noqa: E402
from tb_sol_plugin.analyses._several import worker_of  # noqa: E402
