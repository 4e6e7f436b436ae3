"""The routes of `api/v1`. Requests name recordings by run, worker and span, never by path."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from flask import Blueprint, Response, current_app, request, send_file

from tb_sol_plugin.errors import BadInput, BadQuery, NotFound, ReadOnlyView, SolError, StillLoading, Unavailable
from tb_sol_plugin.model.answer import AnalysisRequest, Inputs, collect
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import parse
from tb_sol_plugin.model.recordings import Recording
from tb_sol_plugin.model.registry import get, registry
from tb_sol_plugin.model.report import Report, encode
from tb_sol_plugin.store import files
from tb_sol_plugin.store.cache import cache_key
from tb_sol_plugin.store.options import Memo
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.version import __version__
from tb_sol_plugin.web import answers, wire
from tb_sol_plugin.web.csv_text import csv_of
from tb_sol_plugin.web.http import body_of, fault_body
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.responses import Packed, Warmth, pack, pack_json, reply

api = Blueprint("api", __name__, url_prefix="/api/v1")

Asked: TypeAlias = tuple[str, str, str, tuple[tuple[str, str], ...]]
"""Name of an analysis, format, section, query fields."""
LONGEST_WAIT = 30.0
MOST_FAULTS = 200
"""Faults remembered, so that each is logged once; beyond them they are forgotten together."""


class Gathering(StillLoading):
    """Workers of a run are being read; carries how far that is."""

    def __init__(self, progress: wire.LoadProgress) -> None:
        super().__init__("the workers of this run are being read", hint="ask again in a moment")
        self.progress = progress


@dataclass(frozen=True)
class Context:
    """What the routes of one app share."""

    store: Store
    options: WebOptions
    memo: Memo[Packed]
    faults: dict[object, wire.ErrorBody]
    warmth: Warmth


def context() -> Context:
    """The context of the app that answers this request."""
    found = current_app.extensions["sol"]
    assert isinstance(found, Context)
    return found


@api.get("/runs")
def runs() -> Response:
    """All runs, the state of the scan, the files that were not taken and why."""
    c = context()
    state, listing = c.store.listing(c.options.first_wait)
    answer = answers.runs(c.store, c.options, state, listing)
    states = {span.state for run in answer.runs for worker in run.workers for span in worker.spans}
    if "new" in states:
        c.store.loader.warm()
    if states:
        c.warmth.start()
    return reply(pack_json(answer), request)


@api.get("/run")
def run() -> Response:
    """One run, with the facts of the recordings that were read."""
    c = context()
    recordings = c.store.recordings(_required("run"))
    return reply(pack_json(wire.Run(recordings[0].run, answers.workers(c.store, recordings, facts=True))), request)


@api.get("/analyses")
def analyses() -> Response:
    """What can be asked of a recording; without `run` the catalog alone."""
    c = context()
    _only("run", "worker", "span", "wait", "device_limits")
    if not request.args.get("run"):
        return reply(pack_json(answers.catalog()), request)
    recording = _recording()
    capture = _capture(recording)
    limits = request.args.get("device_limits", "")
    workers, others = c.store.worker_count(recording), c.store.another(recording)
    key = ("analyses", cache_key(recording), limits, capture.devices.fingerprint, capture.beside, workers, others)
    made = c.memo.get(key, lambda: pack_json(answers.analyses(capture, limits, workers, others)))
    return reply(made, request)


@api.get("/analysis/<name>")
def analysis(name: str) -> Response:
    """One report, as JSON or, for its tables, CSV."""
    item = get(name)
    raw = {k: v for k, v in request.args.items() if k not in ("run", "worker", "span", "format", "section", "wait")}
    parse(item.query, raw)
    local = next((n for n in item.query.LOCAL if raw.get(n)), "")
    if local:
        hint = f"use the command line: tb-sol analyze {name} --{local} FILE, or lay the file beside the runs"
        raise BadQuery("a server reads no file that a request names", hint=hint, field=local)
    form, section = request.args.get("format", "json"), request.args.get("section", "")
    if form not in ("json", "csv", "file"):
        raise BadQuery(f"no format {form[:40]!r}", hint="choose json, csv, or file with the id of one as section", field="format")
    asked = (name, form, section, tuple(sorted(raw.items())))
    names_one = item.scope != "runs" and (item.scope != "none" or any(request.args.get(k) for k in ("run", "worker", "span")))
    recording = _recording() if names_one else None
    inputs = collect(AnalysisRequest(name, raw, recording, request.args.get("run", "")), context().store.source(_wait()))
    early = inputs.partial and form == "json" and _takes_early_answers() and inputs.waiting < len(inputs.ranks)
    if inputs.waiting and not early:
        raise _gathering(inputs)
    state = hashlib.blake2b(inputs.state.encode(), digest_size=16).digest()
    shown = (cache_key(recording), recording.file) if recording is not None else ()
    key = (asked, shown, state, tuple(inputs.names.items()))
    response = _answer(asked, recording, key, inputs, keep=inputs.kept and not inputs.waiting)
    if inputs.partial:
        response.headers["Vary"] = "Prefer, Accept-Encoding"
    return response


def _gathering(inputs: Inputs) -> Gathering:
    """How many of the recordings that an answer needs have been read, by their sizes."""
    sizes = {r.file: r.size for run in dict.fromkeys(w.run for w in inputs.ranks if w.file) for r in context().store.recordings(run)}
    waiting = {w.file for w in inputs.ranks if w.state == "waiting"}
    wanted = {w.file for w in inputs.ranks if w.file}
    done, total = sum(sizes.get(file, 0) for file in wanted - waiting), sum(sizes.get(file, 0) for file in wanted)
    what = "workers" if inputs.partial else "recordings"
    stage = f"{len(inputs.ranks) - inputs.waiting:,} of {len(inputs.ranks):,} {what}"
    return Gathering(wire.LoadProgress(done, total, 0, stage, 0.0, 0))


def _answer(asked: Asked, recording: Recording | None, key: Hashable, inputs: Inputs, *, keep: bool) -> Response:
    """A report as it was asked for. keep: it is remembered under its key, as what broke in making it is."""
    c = context()
    name, form, section, _ = asked

    def packed() -> Packed:
        try:
            report = inputs.report()
        except StillLoading:
            if not inputs.waiting:
                raise
            raise _gathering(inputs) from None
        if form == "csv" and isinstance(report, Report):
            return pack(csv_of(report, section).encode(), "text/csv")
        if form == "file" and isinstance(report, Report):
            one = report.file(section)
            return pack(one.text.encode(), one.mimetype)
        return pack(encode(report))

    known = c.faults.get(key)
    if known is None:
        try:
            answer = c.memo.get(key, packed) if keep else packed()
        except SolError:
            raise
        except Exception as error:  # one broken analysis must not cost the others; logged once, shown by its id
            if len(c.faults) >= MOST_FAULTS:
                c.faults.clear()
            known = c.faults[key] = fault_body(error, f"the analysis {name}")
    if known is not None:
        return reply(pack_json(wire.Error(known)), request, status=500, cache="no-store")
    response = reply(answer, request, cache="no-cache" if keep else "no-store")
    if answer.mimetype == "text/csv":
        response.headers["Content-Disposition"] = f'attachment; filename="{_file_name(recording, name, section)}.csv"'
    return response


@api.get("/export")
def export() -> Response:
    """A recording in the form of another tool: `hatchet`, the tree that Proton writes."""
    from tb_sol_plugin.metrics.hatchet import hatchet

    _only("run", "worker", "span", "form", "by", "wait")
    form, by = request.args.get("form", "hatchet"), request.args.get("by", "auto")
    if form != "hatchet":
        raise BadQuery(f"no form {form[:40]!r}", hint="choose hatchet", field="form")
    recording = _recording()
    try:
        pieces = hatchet(_capture(recording), by)
    except Unavailable as error:  # a download is a file or an error, never a page
        raise NotFound(error.message, hint=error.hint) from None
    response = Response(pieces, mimetype="application/json", headers={"Cache-Control": "no-store"})
    response.headers["Content-Disposition"] = f'attachment; filename="{_file_name(recording, recording.span, "")}.hatchet"'
    return response


@api.get("/trace")
def trace() -> Response:
    """The recording's own bytes; of a SOL capture that goes on in further files, theirs after each other, as it can be read too."""
    c = context()
    if not c.options.original:
        hint = "start the server with --sol_serve_original on"
        raise ReadOnlyView("this server does not give out the original files", hint=hint)
    recording = _recording()
    gzipped = recording.file.endswith(".gz")
    kind = "application/gzip" if gzipped else "application/json"
    request.environ["sol.content_type"] = kind
    name = recording.file.rpartition("/")[2]
    try:
        found = files.files_of(recording.path, c.store.options.fs_options)
        if "://" not in recording.path and len(found) == 1:
            return send_file(Path(recording.path), mimetype=kind, as_attachment=True, download_name=name, conditional=True, max_age=0)
        stream = _chunks([(path, size) for path, size, _ in found], c.store)
    except OSError:
        raise BadInput("the file is not there any more", hint="scan the logdir again", file=recording.file) from None
    response = Response(stream, mimetype=kind, headers={"Content-Length": str(sum(size for _, size, _ in found))})
    response.headers["Content-Disposition"] = f'attachment; filename="{re.sub(r"[^A-Za-z0-9._-]+", "_", name)}"'
    return response


def _chunks(wanted: list[tuple[str, int]], store: Store) -> Iterator[bytes]:
    """The first `size` bytes of each (path, size): a file may grow while it is sent."""
    streams = [(files.opener(path, store.options.fs_options)(), size) for path, size in wanted]

    def read() -> Iterator[bytes]:
        for stream, left in streams:
            with stream:
                while left > 0 and (chunk := stream.read(min(left, 1 << 20))):
                    left -= len(chunk)
                    yield chunk

    return read()


@api.post("/cancel")
def cancel() -> Response:
    """Stop reading a recording, and the other workers of its run."""
    c = context()
    recording = _recording()
    return reply(pack_json(wire.Done(c.store.cancel(recording))), request)


@api.post("/rescan")
def rescan() -> Response:
    """Look for new, grown and vanished files now; files that failed may be tried again."""
    c = context()
    state, _ = c.store.rescan(min(c.store.options.scan_seconds or 30.0, 5.0))
    c.faults.clear()
    return reply(pack_json(wire.Done(True, state)), request)


@api.get("/health")
def health() -> Response:
    """Whether the server is up, and what it works with."""
    c = context()
    state, _ = c.store.listing()
    return reply(pack_json(wire.Health("ok", __version__, state, len(registry()), answers.notes(c.store))), request)


@api.get("/openapi.json")
def openapi() -> Response:
    """This interface, described."""
    from tb_sol_plugin.web.openapi import document

    return reply(pack_json(document()), request)


# -- parameters ------------------------------------------------------------------------------------------------------


def _recording() -> Recording:
    values = {**request.form, **request.args} if request.method == "POST" else request.args
    return context().store.recording(values.get("run", ""), values.get("worker", ""), values.get("span", ""))


def _capture(recording: Recording) -> Capture:
    c = context()
    return c.store.capture(recording, _wait())


def _wait() -> float:
    given = request.args.get("wait", "")
    if not given:
        return context().options.first_wait
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_WAIT:
        raise BadQuery(f"parameter 'wait' does not fit: {given[:40]!r}", hint="give seconds from 0 to 30", field="wait")
    return seconds


def _required(name: str) -> str:
    value = request.args.get(name, "")
    if not value:
        raise BadQuery(f"parameter {name!r} is missing", hint="see api/v1/openapi.json", field=name)
    return value


def _only(*names: str) -> None:
    for name in request.args:
        if name not in names:
            raise BadQuery(f"unknown parameter {name[:40]!r}", hint=f"known: {', '.join(names)}", field=name[:40])


def _file_name(recording: Recording | None, analysis_name: str, section: str) -> str:
    parts = [*((recording.run, recording.worker) if recording is not None else ()), analysis_name, section]
    return "_".join(filter(None, (re.sub(r"[^A-Za-z0-9.-]+", "_", p).strip("_") for p in parts)))[:150] or "table"


@api.errorhandler(StillLoading)
def still_loading(error: StillLoading) -> Response:
    """409 with how far the read is; 202 for who says `Prefer: respond-async`, so that a browser logs no failure."""
    progress = None
    if isinstance(error, Gathering):
        progress = error.progress
    else:
        try:
            found = context().store.progress(_recording())
        except SolError:
            found = None
        if found is not None:
            progress = wire.LoadProgress(found.bytes, found.total, found.events, found.stage, found.elapsed_s, found.queue_position)
    status = 202 if _takes_early_answers() else error.status
    response = reply(pack_json(wire.Error(body_of(error), progress)), request, status=status, cache="no-store")
    response.headers["Retry-After"] = "1"
    response.headers["Vary"] = "Prefer, Accept-Encoding"
    return response


def _takes_early_answers() -> bool:
    return "respond-async" in request.headers.get("Prefer", "")
