"""LAYER 4: analyses, one pure file each, never importing each other.

A module in this package that calls `@analysis(...)` on a function `(capture, query) -> Report` is an analysis:
its route, CLI subcommand, CSV, OpenAPI entry and page follow. The module's docstring is its help.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import TypedDict, TypeVar

from tb_sol_plugin.errors import NotFound, Unavailable
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Column, Report, UnavailableReport
from tb_sol_plugin.model.selection import Field, Query, fields, parse

Q = TypeVar("Q", bound=Query)


@dataclass(frozen=True)
class Analysis:
    """What the registry knows of an analysis.

    group: heading in the page list ("", "Time", "Speed of light", "Run", "foot"). order: place in its group.
    needs: what the recording must hold (`Capture.missing`). tables: columns by section id. facts: one sentence per fact.
    count: how many things the page has to tell of a capture, where its entry in the page list says so.
    counted: whether work that a SOL capture counted will do in place of what it needs.
    under: the analysis that it is a further view of ("" none): the page list names that one alone, and both stand as tabs of one page.
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

    @property
    def fields(self) -> tuple[Field, ...]:
        return fields(self.query)


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
        name = function.__module__.rpartition(".")[2]
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
            (importlib.import_module(function.__module__).__doc__ or "").strip(),
            count,
            counted,
            under,
        )
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


def availability(item: Analysis, capture: Capture) -> tuple[str, str, str] | None:
    """None if the capture has what the analysis needs; else (because, record it with, argument)."""
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
