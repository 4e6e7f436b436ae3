"""Analyses over several recordings: their parts, and their reports out of these."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from tb_sol_plugin.analyses import _FOUND, ALONE, ONE_WORKER, availability, get
from tb_sol_plugin.errors import BadQuery, Unavailable
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query, fields, parse
from tb_sol_plugin.model.recordings import BesideFile, Lack, Made, Side, WorkerPart, facts_of
from tb_sol_plugin.model.registry import Parts
from tb_sol_plugin.model.report import FieldNow, Notice, Reading, Report, UnavailableReport
from tb_sol_plugin.units import human

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
        importlib.import_module(f"tb_sol_plugin.analyses.{self.analysis}")
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
        return UnavailableReport(
            analysis=name, title=item.title, because=error.message, record_it_with=error.hint, selection=dict(shown)
        )
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
