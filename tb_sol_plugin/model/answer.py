"""Answers a request: an analysis, its query and what is selected, from whatever opens recordings.

`collect` opens or reduces the recordings that the scope of the analysis asks for; `Inputs.report` makes the report of them. A notebook and
the command line wait for all of it, a server may answer while recordings are still being read: both go this way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.errors import BadQuery, NotFound, StillLoading, Unavailable
from tb_sol_plugin.model.against import ROWS_BY, Steps, against, steps_alike, verdict_row
from tb_sol_plugin.model.query import Query, as_text, parse
from tb_sol_plugin.model.recordings import (
    Compared,
    Missing,
    OtherNames,
    Recording,
    RecordingReduction,
    Reduced,
    Sidecar,
    facts_of,
    natural,
)
from tb_sol_plugin.model.registry import ONE_RANK, ONE_RECORDING, Analysis, availability, get, of_process
from tb_sol_plugin.model.report import FieldNow, Link, Notice, Reading, Report, UnavailableReport
from tb_sol_plugin.process import give_back
from tb_sol_plugin.tables.strings import python_strings
from tb_sol_plugin.units import human

if TYPE_CHECKING:
    from tb_sol_plugin.model.capture import Capture
    from tb_sol_plugin.model.report import Report, UnavailableReport


Ranks: TypeAlias = Sequence[RecordingReduction[msgspec.Struct]]
"""Ranks in natural order, each with what was reduced from its recording."""
MANY_NAMES: Final = 50_000
"""Different names of device work, from which on a report leaves much memory behind that is free."""
COMPARE: Final = "compare"
"""The analysis that says what changed from one recording to another: its sentence stands above a report that is set against a baseline."""


def _quiet(done: int, total: int) -> None:
    """Tells nobody how far it is."""


# -- What is reduced from each of several recordings ------------------------------------------------------------------


class AnalysisReducer(Struct, frozen=True, dict=True):
    """Reduces one capture for an analysis over several: a plain value, so that it can go to a process that reads recordings.

    raw: the query fields that the reduction depends on, where they are not at their defaults.
    """

    analysis: str
    raw: tuple[tuple[str, str], ...] = ()

    @cached_property
    def key(self) -> str:
        """Changes with the reducing function, its version and struct, what it requires, and what it depends on of the query.

        Analyses that reduce with the same function share what was reduced.
        """
        item = of_process(self.analysis)
        reduce = item.reduction
        function = f"{reduce.of.__module__}.{reduce.of.__qualname__}"
        counted = item.counted is not None and f"{item.counted.__module__}.{item.counted.__qualname__}"
        layout = json.dumps(msgspec.json.schema(reduce.kind), sort_keys=True)
        text = json.dumps([function, item.requirements, counted, reduce.version, layout, self.raw])
        return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()

    def __call__(self, capture: Capture) -> Reduced:
        """Returns what is reduced from a capture; what is missing and a step that it does not have are answers too."""
        item, facts = of_process(self.analysis), facts_of(capture)
        missing = availability(item, capture, ranks=item.reduction.least)
        if missing is not None:
            return Reduced(facts, missing=missing)
        try:
            found = item.reduction.of(capture, parse(item.query, dict(self.raw)))
        except Unavailable as error:
            return Reduced(facts, missing=Missing(error.message, error.hint))
        except BadQuery as error:
            return Reduced(facts, missing=Missing(error.message, error.hint, error=True, field=error.field))
        capture.shrink()
        return Reduced(facts, msgspec.msgpack.encode(found))


def reducer_of(name: str, raw: Mapping[str, str]) -> AnalysisReducer:
    """Returns what reduces recordings for an analysis over several, and a query. BadQuery where the query does not parse."""
    item = get(name)
    query = parse(item.query, dict(raw))
    values = {f.name: (f.default, str(getattr(query, f.name)).strip()) for f in item.fields if f.name in item.reduction.fields}
    return AnalysisReducer(name, tuple((n, value) for n, (default, value) in values.items() if value != default))


# -- What is asked, and of whom ---------------------------------------------------------------------------------------


class AnalysisRequest(Struct, frozen=True, dict=True):
    """An analysis by name, its query fields as text, and what is selected.

    shown: the recording that is selected; None for an analysis without one, and over all runs. run: name of the run that is selected, for
    an analysis over all runs. other: recordings of a run to compare it with that is not of this place. base: the recording that the report
    is set against; None: none. progress: called with (recordings done, recordings in all) while they are reduced.
    """

    name: str
    raw: Mapping[str, str]
    shown: Recording | None = None
    run: str = ""
    other: Sequence[Recording] = ()
    base: OtherNames | None = None
    progress: Callable[[int, int], None] = _quiet

    @cached_property
    def item(self) -> Analysis:
        """The analysis. NotFound where there is none of the name."""
        return get(self.name)

    @cached_property
    def query(self) -> Query:
        """The query. BadQuery names the field that is unknown or does not fit."""
        return parse(self.item.query, dict(self.raw))

    @cached_property
    def reducer(self) -> AnalysisReducer:
        """What reduces recordings for this request."""
        return reducer_of(self.name, self.raw)

    @property
    def joined(self) -> AnalysisRequest:
        """The request for the ranks of the run, of an analysis of one recording that takes them where they are there."""
        fields = get(self.item.joins).reduction.fields
        return AnalysisRequest(self.item.joins, {n: text for n in fields if (text := self.raw.get(n, ""))}, self.shown)

    @property
    def recording(self) -> Recording:
        """The recording that is selected. BadQuery where none is."""
        if self.shown is None:
            raise BadQuery(f"{self.name} needs a recording", hint="name the logdir or the file of one", field="path")
        return self.shown

    def chosen(self, runs: Sequence[str]) -> Sequence[str]:
        """Chooses among the names of all runs those that an analysis over runs reads."""
        choose = self.item.reduction.choose
        return runs if choose is None else choose(runs, self.run, self.query)

    def selection(self, names: Mapping[str, str]) -> dict[str, str]:
        """Returns what a report says that it is of: names that are known, and the query fields that were given."""
        return {k: v for k, v in names.items() if v} | {f.name: self.raw[f.name] for f in self.item.fields if self.raw.get(f.name)}


class KnownRanks(NamedTuple):
    """What was reduced from all ranks of a run before. keys: change with it; none where some rank was not reduced. fetch: returns it."""

    keys: tuple[str, ...] = ()
    fetch: Callable[[], Ranks] = tuple


class RecordingSource(Protocol):
    """What opens and reduces recordings. Those it is still reading stand among what it returns, with the state `waiting`."""

    def open(self, recording: Recording) -> Capture:
        """Returns one recording."""
        ...

    def ranks(self, request: AnalysisRequest) -> Ranks:
        """Returns every rank of the run of the recording that is shown, each with the recording that goes with that one."""
        ...

    def known_ranks(self, request: AnalysisRequest) -> KnownRanks:
        """Returns what `ranks` does where all of it was made before, else none. Reads no recording."""
        ...

    def pair(self, request: AnalysisRequest) -> tuple[Compared[msgspec.Struct], Compared[msgspec.Struct], Mapping[str, FieldNow]]:
        """Returns the recording that is shown, the one that the query compares it with, and how the fields stand that name it.

        Unavailable where there is no other recording; NotFound where a name is not there.
        """
        ...

    def base(self, request: AnalysisRequest) -> BaseRecording:
        """Returns the recording that the report of the one shown is set against. Raises as `pair` does."""
        ...

    def runs(self, request: AnalysisRequest) -> tuple[Ranks, Sequence[Sidecar]]:
        """Returns every rank of the runs that the request chooses with its latest recording, and the small files next to them."""
        ...


class BaseRecording(Struct, frozen=True):
    """The recording that a report is set against. names: what tells the one shown and this one apart. source: opens it, and reduces it."""

    recording: Recording
    names: tuple[str, str]
    source: RecordingSource


class Inputs(Struct, frozen=True):
    """What a request is answered from.

    make: makes the report, or says what is missing for one. names: run, worker and span that it is of. capture: of an analysis of one
    recording. ranks: what was reduced from several. partial: whether it may be answered while some of them are still being read.
    state: changes with what the report depends on besides the request. fields: how query fields stand, whatever the report says.
    chosen: a line that says what was chosen where the query leaves it open. kept: whether the same state means the same report.
    """

    request: AnalysisRequest
    names: Mapping[str, str]
    make: Callable[[], Report | Missing]
    capture: Capture | None = None
    ranks: Ranks = ()
    partial: bool = False
    state: str = ""
    fields: Mapping[str, FieldNow] = msgspec.field(default_factory=dict)
    chosen: str = ""
    kept: bool = True

    @property
    def waiting(self) -> int:
        """How many recordings are still being read."""
        return sum(rank.state == "waiting" for rank in self.ranks)

    def report(self) -> Report | UnavailableReport:
        """Returns the report, or why there is none. BadQuery where the query does not fit what was recorded.

        While recordings are waiting it is of those that are there, and `reading` says how many; where these make no report, StillLoading:
        what is missing may be in the others.
        """
        selection = self.request.selection(self.names)
        try:
            with python_strings():
                made = self.make()
        except Unavailable as error:
            made = Missing(error.message, error.hint)
        if isinstance(made, Report):
            made.selection = dict(selection)
            if self.fields:
                made.fields = {**self.fields, **made.fields}
            made.notices = [*self._notices(), *made.notices]
            if self.waiting:
                made.reading = Reading(len(self.ranks) - self.waiting, len(self.ranks))
            return made
        if made.error:
            raise BadQuery(made.because, hint=made.record_it_with, field=made.field)
        if self.waiting:
            raise StillLoading("the recordings of this run are being read", hint="ask again in a moment")
        item = self.request.item
        return UnavailableReport(
            analysis=item.name, title=item.title, because=made.because, record_it_with=made.record_it_with,
            argument=made.argument, selection=dict(selection), fields=dict(self.fields),
        )  # fmt: skip

    def _notices(self) -> list[Notice]:
        if self.chosen:
            return [Notice(self.chosen, "info")]
        if not self.waiting:
            return []
        done, every = human(len(self.ranks) - self.waiting, "count"), human(len(self.ranks), "count")
        return [Notice(f"{done} of {every} workers are read. Every number here is of those; the others are being read.", "info")]


def answer(request: AnalysisRequest, source: RecordingSource | None = None) -> Report | UnavailableReport:
    """Returns the report of a request, when all that it needs has been read. source None: without a recording."""
    return collect(request, source).report()


def collect(request: AnalysisRequest, source: RecordingSource | None = None) -> Inputs:
    """Returns what a request is answered from. source None: without a recording.

    NotFound where there is no such analysis, run, worker or span; BadQuery where the query does not parse, or a recording is needed.
    """
    scope, _ = request.item.scope, request.query
    if request.base is not None:
        return from_base(request, source)
    if source is None or (scope == "none" and request.shown is None):
        return from_query(request)
    if scope == "runs":
        return from_runs(request, *source.runs(request))
    if scope == "ranks":
        return from_ranks(request, source.ranks(request))
    if scope == "pair":
        try:
            return from_pair(request, *source.pair(request))
        except Unavailable:
            return _without_other(request)
    capture = source.open(request.recording)
    return from_capture(request, capture, source.known_ranks(request.joined) if request.item.joins else NO_RANKS)


# -- By scope ---------------------------------------------------------------------------------------------------------


def answer_capture(name: str, capture: Capture, raw: Mapping[str, str]) -> Report | UnavailableReport:
    """Returns the report of one capture alone."""
    return from_capture(AnalysisRequest(name, raw), capture).report()


def answer_query(name: str, raw: Mapping[str, str]) -> Report | UnavailableReport:
    """Returns the report of an analysis without a recording. BadQuery where it needs one."""
    return answer(AnalysisRequest(name, raw))


def from_query(request: AnalysisRequest) -> Inputs:
    """Returns an analysis out of its query alone."""
    function, query = request.item.without_recording, request.query
    if function is None:
        raise BadQuery(f"{request.name} needs a recording", hint="name the logdir or the file of one", field="path")
    return Inputs(request, {}, lambda: function(query))


NO_RANKS: Final = KnownRanks()


def from_capture(request: AnalysisRequest, capture: Capture, ranks: KnownRanks = NO_RANKS) -> Inputs:
    """Returns one capture. An analysis over several takes it for all there is, if it takes so few. ranks: of its run, to join it with."""
    item, query = request.item, request.query
    names = {"run": capture.run, "worker": capture.worker, "span": capture.span}
    state = "\0".join((capture.devices.fingerprint, capture.attached_state, *ranks.keys))
    make = lambda: availability(item, capture) or _of_one(request, capture, query, ranks)
    return Inputs(request, names, make, capture=capture, state=state)


def _of_one(request: AnalysisRequest, capture: Capture, query: Query, known: KnownRanks) -> Report:
    item = request.item
    if item.scope == "capture":
        capture.let_go()  # what was looked at to write the answer before this one
        report = item.function(capture, query, known.fetch()) if known.keys else item.function(capture, query)
        capture.shrink()
        if len(capture.device["name"].array.categories) > MANY_NAMES:
            give_back()  # of many names as much text as the table holds was made and left by the way, of some megabytes each time
        return report
    if item.scope == "none":
        return item.function(query) if item.with_recording is None else item.with_recording(capture, query)
    if item.scope == "pair":
        raise Unavailable(ONE_RECORDING.because, hint=f"{ONE_RECORDING.record_it_with}; then {ONE_RECORDING.argument}")
    reduced = request.reducer(capture)
    missing = reduced.missing
    if missing is not None:
        if missing.error:
            raise BadQuery(missing.because, hint=missing.record_it_with, field=missing.field)
        raise Unavailable(missing.because, hint=missing.record_it_with)
    rank = RecordingReduction(
        capture.worker, capture.span, capture.facts.file, "read", reduced.facts.rank, reduced.facts, run=capture.run,
        body=lambda: reduced.body, decode=item.reduction.decode,
    )  # fmt: skip
    return item.function([rank], query) if item.scope == "ranks" else item.function([rank], (), query)


def from_ranks(request: AnalysisRequest, ranks: Ranks) -> Inputs:
    """Returns the ranks of a run."""
    item, query, shown = request.item, request.query, request.shown
    names = {"run": shown.run, "worker": shown.worker, "span": shown.span} if shown is not None else {}
    missing: Missing | None = ONE_RANK if len(ranks) < item.reduction.least else None
    if missing is None and ranks and all(rank.state in ("failed", "lacking") for rank in ranks):
        missing = _of_none(ranks)
    state = repr([(r.worker, r.file, r.state, r.problem, r.key) for r in ranks])
    return Inputs(request, names, lambda: missing or item.function(ranks, query), ranks=ranks, partial=True, state=state)


def _of_none(ranks: Ranks) -> Missing:
    """Returns why nothing was reduced from any rank: what the first one lacks that could be read, else why the first cannot be read."""
    missing = next((rank.missing for rank in ranks if rank.missing is not None), None)
    if missing is not None:
        return missing
    return Missing(f"none of the {human(len(ranks), 'count')} workers can be read; {ranks[0].file}: {ranks[0].problem}", ranks[0].hint)


def from_runs(request: AnalysisRequest, ranks: Ranks, files: Sequence[Sidecar]) -> Inputs:
    """Returns the ranks of all runs, and the small files next to them."""
    item, query = request.item, request.query
    ranks = [replace(r, shown=True) if request.run and r.run == request.run else r for r in ranks]
    state = repr([(r.run, r.worker, r.file, r.state, r.problem, r.key) for r in ranks])
    state += "".join(f"{f.file}\0{f.problem}\0{f.text}\0" for f in files)
    return Inputs(request, {"run": request.run}, lambda: item.function(ranks, files, query), ranks=ranks, partial=True, state=state)


def from_pair(
    request: AnalysisRequest, shown: Compared[msgspec.Struct], other: Compared[msgspec.Struct], fields: Mapping[str, FieldNow]
) -> Inputs:
    """Returns two recordings. Where nothing could be reduced from one it says which, and why. fields: how those stand that name the
    other.
    """
    item, query = request.item, request.query
    here = request.shown
    names = {"run": here.run, "worker": here.worker, "span": here.span} if here is not None else {}
    missing = next((_of_side(side) for side in (shown, other) if side.of.state in ("failed", "lacking")), None)
    state = repr([(s.name, s.run, s.chosen, s.of.worker, s.of.file, s.of.state, s.of.problem, s.of.key) for s in (shown, other)])
    state += repr(sorted(fields.items()))
    chosen = f"Beside it stands `{other.name}`, {other.chosen}. Another one can be chosen." if other.chosen else ""
    return Inputs(
        request, names, lambda: missing or item.function(shown, other, query), ranks=(shown.of, other.of), state=state, fields=fields,
        chosen=chosen,
    )  # fmt: skip


def _of_side(side: Compared[msgspec.Struct]) -> Missing:
    """Returns why nothing was reduced from one of two recordings, with its name."""
    missing = side.of.missing
    if missing is not None and missing.error:
        return msgspec.structs.replace(missing, because=f"{side.name}: {missing.because}")
    return Missing(f"{side.name}: {side.of.problem}", side.of.hint, missing.argument if missing is not None else "")


def from_base(request: AnalysisRequest, source: RecordingSource | None) -> Inputs:
    """Returns the inputs of a report that is set against that of a baseline, with what changed between both above it.

    BadQuery for an analysis that has no baseline. Of single recordings as many steps of both are taken.
    """
    item = request.item
    if not item.compares or source is None:
        known = "it compares by itself" if item.scope == "runs" else "it is of no recording"
        raise BadQuery(f"{item.name} has no baseline: {known}", hint="choose an analysis of one run", field="base")
    if item.scope == "pair":
        return _from_base_to_shown(request, source)
    base = source.base(request)
    other, names = base.recording, base.names
    asked = request.raw.get("step", "")
    steps = Steps(asked, asked)
    if item.scope == "capture":
        both = source.open(request.recording), base.source.open(other)
        numbers = [c.steps["number"].to_numpy()[c.steps["complete"].to_numpy()].tolist() for c in both]
        steps = steps_alike(asked, numbers[0], numbers[1], names)
        here, there = (
            from_capture(msgspec.structs.replace(request, base=None, raw={**request.raw, "step": step}, shown=shown), capture)
            for step, shown, capture in zip((steps.here, steps.base), (request.recording, other), both, strict=True)
        )
    else:
        here = collect(msgspec.structs.replace(request, base=None), source)
        there = collect(msgspec.structs.replace(request, base=None, shown=other, run=other.run, other=()), base.source)
    change = _change(request, source)

    def make() -> Report | Missing:
        mine = here.make()
        if not isinstance(mine, Report):
            return mine
        try:
            theirs = there.make()
        except Unavailable as error:
            theirs = Missing(error.message, error.hint)
        changed = change.make() if change is not None else None
        changed = changed if isinstance(changed, Report) else None
        notices = [*_sentence(changed, request, other), *([Notice(steps.note, "info")] if steps.note else [])]
        if isinstance(theirs, Report):
            found = against(mine, theirs, names, changed)
            row = verdict_row(changed, request.name, names[1]) if changed is not None else None
            sections = [row, *found.sections] if row is not None else found.sections
            return msgspec.structs.replace(found, notices=[*notices, *found.notices], sections=sections)
        quoted = names[1].replace("`", "'")
        nothing = Notice(f"Nothing of `{quoted}` stands beside it: {theirs.because}.")
        return msgspec.structs.replace(mine, notices=[*notices, nothing, *mine.notices])

    inputs = [here, there, *([change] if change is not None else [])]
    named = {"base": other.run, "base_worker": other.worker, "base_span": other.span}
    state = repr((other.path, other.size, other.mtime, names, steps, [i.state for i in inputs]))
    return Inputs(
        request, {**here.names, **named}, make, ranks=[rank for i in inputs for rank in i.ranks], state=state,
        kept=all(i.kept for i in inputs),
    )  # fmt: skip


def _from_base_to_shown(request: AnalysisRequest, source: RecordingSource) -> Inputs:
    """Returns the pair from the baseline to the recording that is shown, as pages against a baseline have it: B is the one shown. A
    recording that the query names stands in place of the baseline.
    """
    named = OtherNames.of(request.raw) != OtherNames()
    raw = {**request.raw, **({} if named else (request.base or OtherNames()).fields)}
    asked = msgspec.structs.replace(request, raw={k: v for k, v in raw.items() if v}, base=None)
    try:
        shown, base, fields = source.pair(asked)
    except Unavailable:
        return _without_other(request)
    return from_pair(asked, base, shown, fields)


def _change(request: AnalysisRequest, source: RecordingSource) -> Inputs | None:
    """Returns the comparison from the baseline to the recording that is shown; None where the two have none."""
    raw = {"step": request.raw.get("step", ""), "by": ROWS_BY.get(request.name, ("",))[0], **(request.base or OtherNames()).fields}
    asked = AnalysisRequest(COMPARE, {k: v for k, v in raw.items() if v}, request.shown, other=request.other, progress=request.progress)
    try:
        shown, base, _ = source.pair(asked)
    except (NotFound, Unavailable):
        return None
    return from_pair(asked, base, shown, {})


def _sentence(made: Report | None, request: AnalysisRequest, base: Recording) -> list[Notice]:
    """Returns what changed and why, with the way to all of it; nothing where the recordings do not say."""
    if made is None or not made.headline:
        return []
    shown = request.recording
    query = {"run": base.run, "worker": base.worker, "span": base.span, "other_run": shown.run, "other_worker": shown.worker}
    return [Notice(made.headline, "info", Link(COMPARE, query | {"other_span": shown.span}, "Compare"))]


def _without_other(request: AnalysisRequest) -> Inputs:
    """Returns an analysis over two recordings where there is no second one. It may come at any time: the answer is not kept."""
    here = request.recording
    names = {"run": here.run, "worker": here.worker, "span": here.span}
    missing = Missing(ONE_RECORDING.because, ONE_RECORDING.record_it_with)
    return Inputs(request, names, lambda: missing, kept=False)


# -- a run: the recordings of one job, and the analyses over them ----------------------------------------------------


class Run:
    """Recordings in natural order (worker, then span). source: opens them on demand, and reduces them for analyses over several."""

    def __init__(self, name: str, recordings: Sequence[Recording], source: RecordingSource) -> None:
        self.name = name
        self.recordings = sorted(recordings, key=lambda r: (natural(r.worker), natural(r.span)))
        self.source = source

    @property
    def workers(self) -> list[str]:
        """Worker names in natural order."""
        return list(dict.fromkeys(r.worker for r in self.recordings))

    def spans(self, worker: str) -> list[str]:
        """Returns span names of a worker in natural order."""
        return [r.span for r in self.recordings if r.worker == worker]

    def open(self, recording: Recording) -> Capture:
        """Returns one of the recordings, without opening the others."""
        return self.source.open(recording)

    @cached_property
    def captures(self) -> list[Capture]:
        """One per worker and span. Opens all of them."""
        return [self.source.open(r) for r in self.recordings]

    @property
    def first(self) -> Capture:
        """The first recording, a trace before others, opened."""
        return self.source.open(self._first)

    def analyze(self, name: str, *, other: Run | str = "", against: Run | str = "", **query: object) -> Report | UnavailableReport:
        """Returns an analysis over all workers of the run, each with its latest recording; of another analysis that of the first
        recording, a trace before what is read together with it.

        other: for an analysis over two recordings, the run to compare this one with: itself, its name, or its path. against: of another
        analysis, the run whose numbers stand beside those of this one, as a baseline.
        """
        raw, scope = {k: as_text(v) for k, v in query.items()}, get(name).scope
        elsewhere: Sequence[Recording] = ()
        if scope == "pair" and isinstance(other, Run):
            elsewhere = other.recordings
        elif scope == "pair":
            raw |= {"other_run": str(other)} if other else {}
        elif scope != "runs":
            raw |= {"other": str(other)} if other else {}  # which no other analysis takes
        shown = self._latest if scope in ("ranks", "pair", "runs") else self._first
        base = None
        if isinstance(against, Run):
            base, elsewhere = OtherNames(), against.recordings
        elif against:
            base = OtherNames(against)
        return answer(AnalysisRequest(name, raw, shown, self.name, elsewhere, base), self.source)

    def show(self, name: str = "overview", **query: object) -> Report | UnavailableReport:
        """Returns the Report of one analysis, the overview where none is named: a notebook shows it where it ends a cell."""
        return self.analyze(name, **query)  # type: ignore[arg-type]

    @property
    def _first(self) -> Recording:
        """The first recording, a trace before others."""
        return next((r for r in self.recordings if r.kind == "kineto"), self.recordings[0])

    @property
    def _latest(self) -> Recording:
        """The latest recording of the first worker, a trace before others."""
        traces = [r for r in self.recordings if r.kind == "kineto"] or self.recordings
        return [r for r in traces if r.worker == traces[0].worker][-1]
