"""Registers analyses: what each requires, which there are, and why one failed to load.

A module below `tb_sol_plugin/analyses/ROOM/` that decorates one function with `@analysis(...)` is the analysis of its own name. One that
cannot be imported, or registers wrongly, is kept as failed with the reason; all others work.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pkgutil
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeAlias, TypedDict, TypeVar

import msgspec
from msgspec import Struct

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.errors import NotFound
from tb_sol_plugin.model.query import Field, PairQuery, Query, fields
from tb_sol_plugin.model.recordings import Missing, RecordingReduction
from tb_sol_plugin.model.report import Column, Fact, Report
from tb_sol_plugin.model.requirements import REQUIREMENTS, Requirement
from tb_sol_plugin.redact import text

if TYPE_CHECKING:
    from tb_sol_plugin.model.capture import Capture

Scope: TypeAlias = Literal["capture", "ranks", "pair", "runs", "none"]
"""What an analysis looks at: one recording, all ranks of a run, two recordings, all ranks of all runs, or its query alone."""
Group: TypeAlias = Literal["", "Time", "Speed of light", "Run", "Experimental", "foot"]
"""Headings of the page list, in order: "" stands above them, "foot" below."""

SCOPES: Final[tuple[Scope, ...]] = typing.get_args(Scope)
GROUPS: Final[tuple[Group, ...]] = typing.get_args(Group)
TAKES: Final[Mapping[Scope, tuple[str, ...]]] = {
    "capture": ("capture", "query"),
    "ranks": ("ranks", "query"),
    "pair": ("shown", "other", "query"),
    "runs": ("ranks", "files", "query"),
    "none": ("query",),
}
"""What the function of an analysis is given, by scope."""

Q = TypeVar("Q", bound=Query)
P = TypeVar("P", bound=msgspec.Struct)
F = TypeVar("F", bound=Callable[..., Report])


@dataclass(frozen=True)
class Reduction(Generic[Q, P]):
    """What an analysis over several recordings takes from each of them.

    of: reduces one recording to a small `msgspec.Struct` (at most 2 MiB encoded). Its query has only the `fields` named here, the others
    stand at their defaults; so a reduction serves every value of the others. version: raised when the same struct means something else.
    sol_log: `of` reads what a trace has from the SOL log of its process.

    Of scope "ranks": least: ranks it takes. Of scope "runs": files: names of small text files that it reads where a person laid them
    beside the recordings. choose: of the names of all runs those that are read, for the run that is shown ("" none) and the query; None:
    all. alike: whether a recording may be of one job with one of the run that is shown; of a run whose first recording is not, the others
    are not read. None: all are. without_recording: what it answers out of the query alone, where it can.
    """

    of: Callable[[Capture, Q], P]
    fields: tuple[str, ...] = ("step",)
    version: int = 1
    sol_log: bool = False
    least: int = 2
    files: tuple[str, ...] = ()
    choose: Callable[[Sequence[str], str, Q], Sequence[str]] | None = None
    alike: Callable[[RecordingReduction[P], RecordingReduction[P]], bool] | None = None
    without_recording: Callable[[Q], Report] | None = None

    @cached_property
    def kind(self) -> type[P]:
        """The struct that `of` returns."""
        found: type[P] = typing.get_type_hints(self.of)["return"]
        return found

    @cached_property
    def decode(self) -> Callable[[bytes], P]:
        """An encoded reduction, read again. ValidationError if it is none."""
        return msgspec.msgpack.Decoder(self.kind).decode


class Analysis(Struct, frozen=True):
    """What the registry knows of an analysis.

    function: takes what `TAKES` says of its scope. group: heading in the page list. order: place in its group. requirements: what a
    recording must hold (`Capture.missing`). counted: whether work that a SOL log counted will do in place of them. tables: columns by
    section id. facts: what its single values are. count: how many things the page has to tell of a capture, where its entry in the page
    list says so. under: the analysis that it is a further view of ("" none): the page list names that one alone, and both stand as tabs of
    one page. reduce: of an analysis over several recordings. with_recording: what one of scope "none" answers where a recording is named.
    joins: of an analysis of one recording, the one over ranks whose reductions it takes where they are there ("" none): its function
    takes those of all ranks as `ranks`, where all were made before.
    """

    name: str
    scope: Scope
    function: Callable[..., Report]
    title: str
    question: str
    group: Group
    order: int
    query: type[Query]
    help: str = ""
    requirements: tuple[Requirement, ...] = ()
    counted: Callable[[Capture], bool] | None = None
    tables: Mapping[str, tuple[Column, ...]] = msgspec.field(default_factory=dict)
    facts: tuple[Fact, ...] = ()
    count: Callable[[Capture], int] | None = None
    under: str = ""
    reduce: Reduction[Query, msgspec.Struct] | None = None
    with_recording: Callable[[Capture, Query], Report] | None = None
    joins: str = ""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of its query."""
        return fields(self.query)

    @property
    def compares(self) -> bool:
        """Whether its reports can be set against those of a baseline. One of a pair is that from the baseline to the recording shown; over
        runs it compares by itself.
        """
        return self.scope in ("capture", "ranks", "pair")

    @property
    def icon(self) -> str:
        """Name of its mark in the page list: a further view has that of the first."""
        return self.under or self.name

    @property
    def reduction(self) -> Reduction[Query, msgspec.Struct]:
        """What it takes from each recording; only of an analysis over several."""
        assert self.reduce is not None
        return self.reduce

    @property
    def without_recording(self) -> Callable[[Query], Report] | None:
        """What it answers out of its query alone; None where it needs a recording."""
        if self.scope == "none":
            return self.function
        return self.reduce.without_recording if self.reduce is not None else None


# -- Registration -----------------------------------------------------------------------------------------------------


_FOUND: dict[str, Analysis] = {}
_FAILED: dict[str, str] = {}


def analysis(
    *,
    scope: Scope = "capture",
    title: str,
    question: str,
    group: Group,
    order: int,
    query: type[Q],
    requirements: tuple[Requirement, ...] = (),
    counted: Callable[[Capture], bool] | None = None,
    tables: Mapping[str, tuple[Column, ...]] | None = None,
    facts: Sequence[Fact] = (),
    count: Callable[[Capture], int] | None = None,
    under: str = "",
    reduce: Reduction[Q, P] | None = None,
    with_recording: Callable[[Capture, Q], Report] | None = None,
    joins: str = "",
) -> Callable[[F], F]:
    """Register a function as the analysis named after its module: `analyses/time/kernels.py` is `kernels`.

    The function takes what its scope gives (`TAKES`) and returns a `Report`. Over several recordings (ranks, pair, runs) `reduce` says
    what is taken from each of them. See `Analysis` for the rest. ValueError where what is given does not fit.
    """

    def register(function: F) -> F:
        module = importlib.import_module(function.__module__)
        name = module.__name__.rpartition(".")[2]
        item = Analysis(
            name, scope, function, title, question, group, order, query, (module.__doc__ or "").strip(), requirements, counted,
            tables or {}, tuple(facts), count, under, reduce, with_recording, joins,  # type: ignore[arg-type]
        )  # fmt: skip
        _check(item)
        known = _FOUND.get(name)
        if known is not None and not _same(known.function, function):
            raise ValueError(f"analysis {name!r} is registered already, by {known.function.__module__}.{known.function.__qualname__}")
        _FOUND[name] = item
        return function

    return register


def _check(item: Analysis) -> None:
    """Raises ValueError, with what there is to choose from, where an analysis cannot be what it says."""

    def wrong(what: str) -> ValueError:
        return ValueError(f"analysis {item.name!r}: {what}")

    def one_of(field: str, value: str, known: tuple[str, ...]) -> None:
        if value not in known:
            raise wrong(f"{field} {value!r} is none of {', '.join(map(repr, known))}")

    one_of("scope", item.scope, SCOPES)
    one_of("group", item.group, GROUPS)
    for requirement in item.requirements:
        one_of("requirement", requirement, tuple(REQUIREMENTS))
    several = item.scope in ("ranks", "pair", "runs")
    if several != (item.reduce is not None):
        raise wrong(f"scope {item.scope!r} {'needs' if several else 'takes no'} reduce=Reduction(...)")
    if item.with_recording is not None and item.scope != "none":
        raise wrong(f"with_recording= is for scope 'none', not {item.scope!r}")
    if item.scope == "pair" and not issubclass(item.query, PairQuery):
        raise wrong("the query of scope 'pair' is a PairQuery: its fields name the other recording")
    if item.joins and item.scope != "capture":
        raise wrong(f"joins= is for scope 'capture', not {item.scope!r}")
    of_runs = item.reduce is not None and (item.reduce.files or item.reduce.choose or item.reduce.alike or item.reduce.without_recording)
    if of_runs and item.scope != "runs":
        raise wrong("files, choose, alike and without_recording of a reduction are for scope 'runs'")
    takes = (*TAKES[item.scope], *(["ranks"] if item.joins else []))
    try:
        inspect.signature(item.function).bind(*takes)
    except TypeError:
        raise wrong(f"the function of scope {item.scope!r} takes ({', '.join(takes)})") from None


def _same(one: Callable[..., Report], other: Callable[..., Report]) -> bool:
    """Whether two functions are the same place of the source: a module may be imported again."""
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)


# -- What there is ----------------------------------------------------------------------------------------------------


PACKAGE: Final = "tb_sol_plugin.analyses"
"""Where analyses stand: one module each, `ROOM/NAME.py`, beside the modules of their tables and figures."""


@cache
def _modules() -> tuple[pkgutil.ModuleInfo, ...]:
    """Returns the rooms of analyses and the modules below them. A room that cannot be imported stands there without its modules."""
    rooms = importlib.import_module(PACKAGE).__path__
    return tuple(pkgutil.walk_packages(rooms, f"{PACKAGE}.", onerror=lambda name: None))


@cache
def registry() -> Mapping[str, Analysis]:
    """Returns all analyses by name, in page order. What fails to import or to register is left out, see `failures`."""
    _FAILED.clear()
    for module in _modules():
        try:
            importlib.import_module(module.name)
        except Exception as error:  # one broken analysis must not cost the others; reported by `failures`
            name = module.name.rpartition(".")[2]
            _FAILED[name] = _reason(error)
            if name in _FOUND and _FOUND[name].function.__module__ == module.name:
                del _FOUND[name]
    return dict(sorted(_FOUND.items(), key=lambda item: (GROUPS.index(item[1].group), item[1].order)))


def _reason(error: Exception) -> str:
    """Returns one line without local folders: what is said of an error may name the file that it came from."""
    line = re.sub(r"(?:[A-Za-z]:)?[\\/](?:[^\s'\"()]+[\\/])+", "", f"{type(error).__name__}: {error}")
    return text(" ".join(line.split()))


def failures() -> Mapping[str, str]:
    """Returns the modules of analyses that could not be imported or registered, by name: why."""
    registry()
    return dict(_FAILED)


def get(name: str) -> Analysis:
    """Returns the analysis of that name, importing no other; NotFound lists the names there are."""
    if name not in _FAILED:
        with contextlib.suppress(Exception):  # a name that is none, or one that fails: said below, from all that there are
            return of_process(name)
    try:
        return registry()[name]
    except KeyError:
        if name in _FAILED:
            raise NotFound(f"the analysis {name!r} failed to load: {_FAILED[name]}", hint="see tb-sol doctor", field="name") from None
        raise NotFound(f"no analysis {name!r}", hint=f"there are: {', '.join(registry())}", field="name") from None


def of_process(name: str) -> Analysis:
    """Returns the analysis of that name in a process that reads recordings: its module is imported, the others are not."""
    if name not in _FOUND:
        at = next((m.name for m in _modules() if not m.ispkg and m.name.rpartition(".")[2] == name), None)
        if at is None:
            raise KeyError(name)
        importlib.import_module(at)
    return _FOUND[name]


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
    """Returns every analysis by name: title, question, needs, query fields, section ids, columns."""
    return {
        name: AnalysisInfo(
            title=item.title,
            question=item.question,
            needs=item.requirements,
            fields=item.fields,
            sections=tuple(item.tables),
            columns=item.tables,
            facts={f.name: f.doc for f in item.facts},
        )
        for name, item in registry().items()
    }


# -- What a recording lacks -------------------------------------------------------------------------------------------


ONE_RANK: Final = Missing(
    "one worker here: this compares the workers of a run",
    "let every rank record into one folder, under a name of its own",
    'on_trace_ready=torch.profiler.tensorboard_trace_handler(logdir, worker_name=f"rank{rank}")',
)
"""What an analysis over ranks says of a run with one."""
ONE_RECORDING: Final = Missing(
    "one recording here: this compares two recordings",
    "let several ranks record, or put a second run into the logdir",
    'run.analyze(name, other_run="...", other_worker="...")',
)
"""What an analysis over two recordings says of one."""


def availability(item: Analysis, capture: Capture, ranks: int = 1, others: bool = True) -> Missing | None:
    """Returns what is missing for an analysis; None if the capture has what it requires.

    ranks: of its run. others: whether there is another recording to compare it with.
    """
    if item.without_recording is not None:
        return None
    if item.scope == "pair" and not others:
        return Missing(ONE_RECORDING.because, ONE_RECORDING.record_it_with)
    if item.scope == "ranks" and ranks < item.reduction.least:
        return ONE_RANK
    if item.counted is not None:
        if item.counted(capture):
            return None
        missing = capture.missing("work") if capture.facts.source == "sol_capture" else None
        if missing is not None:
            return Missing(*missing)
    for requirement in item.requirements:
        missing = capture.missing(requirement)
        if missing is not None:
            return Missing(*missing)
    return None
