"""Serves the routes of `api/v1`, and makes the web application: the same under TensorBoard and under `tb-sol serve`.

Requests name recordings by run, worker and span, never by path.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from flask import Blueprint, Flask, Response, request, send_file

from tb_sol_plugin.errors import BadInput, BadQuery, Changed, NotFound, ReadOnlyView, SolError, StillLoading, Unavailable
from tb_sol_plugin.model.answer import AnalysisRequest, Inputs, collect
from tb_sol_plugin.model.query import parse
from tb_sol_plugin.model.recordings import OtherNames, Recording
from tb_sol_plugin.model.registry import get, registry
from tb_sol_plugin.model.report import Report, TableSection, UnavailableReport
from tb_sol_plugin.model.rows import TableRows
from tb_sol_plugin.store import files
from tb_sol_plugin.store.cache import cache_key
from tb_sol_plugin.store.options import Memo
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.version import __version__
from tb_sol_plugin.web import http, tables, wire
from tb_sol_plugin.web.answers import KeptAnswers, key_on_disk
from tb_sol_plugin.web.bounds import bounded
from tb_sol_plugin.web.context import (
    BASE,
    TILE_BYTES,
    Context,
    Gathering,
    capture_asked,
    context,
    file_name,
    limits_asked,
    only,
    recording_asked,
    required,
    still_loading,
    takes_early_answers,
    wait_asked,
)  # fmt: skip
from tb_sol_plugin.web.http import Packed, WarmUp, fault_body, pack, pack_json, pages, reply
from tb_sol_plugin.web.listings import catalog, listed_runs, notes, offered_analyses, offered_without, workers
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.perfetto import perfetto_pages
from tb_sol_plugin.web.search import search as find
from tb_sol_plugin.web.summaries import note_overview, summaries
from tb_sol_plugin.web.tiles import Block
from tb_sol_plugin.web.timeline import prepare
from tb_sol_plugin.web.timeline_export import TIMELINE
from tb_sol_plugin.web.wire import csv_of

api = Blueprint("api", __name__, url_prefix="/api/v1")

ReportRequest: TypeAlias = tuple[str, str, str, tuple[tuple[str, str], ...]]
"""Name of an analysis, format, section, query fields."""
V = TypeVar("V")
WHICH = ("run", "worker", "span", "capture")
"""Parameters that name a recording, and what names its graph launches."""
LONGEST_RUN = 4_096
"""Characters of the name of a run: those of a path."""
MOST_FAULTS = 200
"""Faults remembered, so that each is logged once; beyond them they are forgotten together."""


@api.get("/runs")
def runs() -> Response:
    """Returns all runs, the state of the scan, the files that were not taken and why."""
    c = context()
    state, listing = c.store.listing(c.options.first_wait)
    answer = listed_runs(c.store, c.options, state, listing)
    states = {span.state for run in answer.runs for worker in run.workers for span in worker.spans}
    if "new" in states:
        c.store.loader.warm()
    if states:
        c.warm_up.start()
    return reply(pack_json(answer), request)


@api.get("/run")
def run() -> Response:
    """Returns one run, with the facts of the recordings that were read."""
    c = context()
    recordings = c.store.recordings(required("run"))
    return reply(pack_json(wire.Run(recordings[0].run, workers(c.store, recordings, facts=True))), request)


@api.get("/analyses")
def analyses() -> Response:
    """Returns what can be asked of a recording; without `run` the catalog alone."""
    c = context()
    only(*WHICH, "wait", "device_limits")
    if not request.args.get("run"):
        return reply(pack_json(catalog()), request)
    recording = recording_asked()
    workers, limits = c.store.worker_count(recording), limits_asked()
    try:
        capture = capture_asked(recording)
    except BadInput as error:
        if workers < 2:
            raise
        return reply(pack_json(offered_without(error, workers)), request)  # its run has others to show
    others = c.store.has_other(recording)
    key = ("analyses", cache_key(recording), limits, capture.devices.fingerprint, capture.attached_state, workers, others)
    made = c.memo.get(key, lambda: pack_json(offered_analyses(capture, limits, workers, others)))
    return reply(made, request)


@api.get("/analysis/<name>")
def analysis(name: str) -> Response:
    """Returns one report, as JSON, with its large tables in pages, or, for its tables, CSV."""
    form, section = request.args.get("format", "json"), request.args.get("section", "")
    if form not in ("json", "csv", "file"):
        raise BadQuery(f"no format {form[:40]!r}", hint="choose json, csv, or file with the id of one as section", field="format")
    tables_as = request.args.get("tables", "whole")
    if tables_as not in ("whole", "pages") or (tables_as == "pages" and form != "json"):
        raise BadQuery(f"tables {tables_as[:40]!r} do not fit", hint="choose whole, or pages with format=json", field="tables")
    asked = _asked_report(name, ("format", "section", "tables"), early=form == "json")
    form = "pages" if tables_as == "pages" else form
    response = _answer((name, form, section, asked.raw), asked)
    if asked.inputs.partial:
        response.headers["Vary"] = "Prefer, Accept-Encoding"
    return response


@dataclass(frozen=True)
class AskedReport:
    """A report that a request asks for or that its rows are of. key: of its state, whatever form it is sent in."""

    name: str
    raw: tuple[tuple[str, str], ...]
    recording: Recording | None
    inputs: Inputs
    key: Hashable

    @property
    def kept(self) -> bool:
        """Whether the same key means the same report."""
        return self.inputs.kept and not self.inputs.waiting

    @property
    def version(self) -> str:
        """A short text that changes with the report."""
        return hashlib.blake2b(repr((self.name, self.raw, self.key)).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()

    def report(self) -> Report | UnavailableReport:
        """Returns the report; StillLoading carries how far its recordings are."""
        try:
            with context().warm_up.paused():
                return self.inputs.report()
        except StillLoading:
            if not self.inputs.waiting:
                raise
            raise _gathering(self.inputs) from None


def _asked_report(name: str, more: Sequence[str], *, early: bool) -> AskedReport:
    """Returns the report that the parameters of the request ask for, apart from `more` of them. StillLoading where its recordings are
    being read. early: it may be of those that have been read, for who takes that.
    """
    item = get(name)
    raw = {k: v for k, v in request.args.items() if k not in (*WHICH, "wait", *BASE, *more)}
    base = tuple((k, v) for k in BASE if (v := request.args.get(k, "")))
    for field in ("run", "capture", *BASE):
        if len(text := request.args.get(field, "")) > LONGEST_RUN:
            what = "recording" if field == "capture" else "run"
            raise NotFound(f"no {what} {text[:40]!r}", hint=f"a name has at most {LONGEST_RUN:,} characters", field=field)
    run = request.args.get("run", "")
    parse(item.query, raw)
    local = next((n for n in item.query.LOCAL if raw.get(n)), "")
    if local:
        hint = f"use the command line: tb-sol analyze {name} --{local} FILE, or lay the file beside the runs"
        raise BadQuery("a server reads no file that a request names", hint=hint, field=local)
    names_one = item.scope != "runs" and (item.scope != "none" or any(request.args.get(k) for k in WHICH))
    recording = recording_asked() if names_one else None
    against = OtherNames(*(request.args.get(k, "").strip() for k in BASE)) if base else None
    inputs = collect(AnalysisRequest(name, raw, recording, run, base=against), context().store.source(wait_asked()))
    early = early and inputs.partial and takes_early_answers() and inputs.waiting < len(inputs.ranks)
    if inputs.waiting and not early:
        raise _gathering(inputs)
    state = hashlib.blake2b(inputs.state.encode(), digest_size=16).digest()
    shown = (cache_key(recording), recording.file) if recording is not None else ()
    return AskedReport(name, (*sorted(raw.items()), *base), recording, inputs, (shown, state, tuple(inputs.names.items())))


def _gathering(inputs: Inputs) -> Gathering:
    """Returns how many of the recordings that an answer needs have been read, by their sizes."""
    sizes = {r.file: r.size for run in dict.fromkeys(w.run for w in inputs.ranks if w.file) for r in context().store.recordings(run)}
    waiting = {w.file for w in inputs.ranks if w.state == "waiting"}
    wanted = {w.file for w in inputs.ranks if w.file}
    done, total = sum(sizes.get(file, 0) for file in wanted - waiting), sum(sizes.get(file, 0) for file in wanted)
    what = "workers" if inputs.partial else "recordings"
    stage = f"{len(inputs.ranks) - inputs.waiting:,} of {len(inputs.ranks):,} {what}"
    return Gathering(wire.LoadProgress(done, total, 0, stage, 0.0, 0))


def _answer(report_request: ReportRequest, asked: AskedReport) -> Response:
    """Returns a report as requested. It is remembered where it is kept."""
    c = context()
    name, form, section, fields = report_request
    key = (report_request, asked.key)

    def packed() -> Packed:
        report = asked.report()
        plain = not fields and not request.args.get("capture")
        if name == "overview" and plain and asked.recording is not None and isinstance(report, Report):
            note_overview(c.store, asked.recording, report)
        if form == "csv" and isinstance(report, Report):
            return pack(csv_of(report, section).encode(), "text/csv")
        if form == "file" and isinstance(report, Report):
            one = report.file(section)
            return pack(one.text.encode(), one.mimetype)
        if form == "pages" and isinstance(report, Report):
            body, paged = tables.in_pages(report, asked.version)
            for rows in paged.values() if asked.kept else ():
                c.rows.put(c.place(asked.version, rows.id), rows)
            return pack(body)
        return pack(bounded(report))

    def kept_or_packed() -> Packed:
        place = key_on_disk(key, asked.inputs) if form in ("json", "pages") and asked.kept else ""
        found = c.kept.load(place) if place else None
        if found is None:
            found = packed()
            if place and asked.recording is not None:
                c.kept.save(place, found, asked.recording)
        return found

    answer = _unless_broken(key, name, lambda: c.memo.get(key, kept_or_packed) if asked.kept else packed())
    if isinstance(answer, Response):
        return answer
    response = reply(answer, request, cache="no-cache" if asked.kept else "no-store")
    if answer.mimetype == "text/csv":
        response.headers["Content-Disposition"] = f'attachment; filename="{file_name(asked.recording, name, section)}.csv"'
    return response


def _unless_broken(key: Hashable, name: str, make: Callable[[], V]) -> V | Response:
    """Returns what `make` makes, or the answer that the analysis broke: one must not cost the others. Logged once, shown by its id."""
    faults = context().faults
    known = faults.get(key)
    if known is None:
        try:
            return make()
        except SolError:
            raise
        except Exception as error:
            if len(faults) >= MOST_FAULTS:
                faults.clear()
            known = faults[key] = fault_body(error, f"the analysis {name}")
    return reply(pack_json(wire.Error(known)), request, status=500, cache="no-store")


@api.route("/table/<name>", methods=["GET", "POST"])
def table(name: str) -> Response:
    """Returns rows of one table of a report, in a chosen order, of those that pass the filters; as JSON one page, as CSV all of them.

    The body of a POST may name the rows that alone may pass, and those of a tree that are open or closed unlike the others:
    `{"picked": [KEY, ...], "toggled": [ID, ...]}`.
    """
    if (request.content_length or 0) > tables.MOST_BODY:
        raise BadQuery("the body of the request is too large", hint=f"send at most {tables.MOST_BODY:,} bytes", field="picked")
    wanted = tables.rows_request(request.args, *(tables.chosen_in(request.get_data()) if request.method == "POST" else ()))
    c = context()
    asked = _asked_report(name, tables.NAMES, early=True)
    if wanted.version not in ("", asked.version):
        raise Changed("the recording has changed since these rows were shown", hint="request the report again")

    def made() -> TableRows:
        report = asked.report()
        if isinstance(report, UnavailableReport):
            raise NotFound(f"{name} has no tables here: {report.because}", hint=report.record_it_with, field="section")
        there = {s.id: s for s in report.sections if isinstance(s, TableSection)}
        if wanted.section not in there:
            raise BadQuery(f"no table {wanted.section[:40]!r} in this report", hint=f"there is: {', '.join(there)}", field="section")
        return tables.rows_of(report, there[wanted.section], asked.version)

    place = c.place(asked.version, wanted.section)
    rows = _unless_broken(("table", *place), name, lambda: c.rows.get(place, made) if asked.kept else made())
    if isinstance(rows, Response):
        return rows
    if wanted.form == "csv":
        response = Response(tables.as_csv(rows, wanted), content_type="text/csv; charset=utf-8", headers={"Cache-Control": "no-store"})
        response.headers["Content-Disposition"] = f'attachment; filename="{file_name(asked.recording, name, wanted.section)}.csv"'
        request.environ["sol.content_type"] = response.content_type
        return response
    page = tables.page_within(rows, wanted.choice, offset=wanted.offset, limit=wanted.limit, key=wanted.key)
    return reply(pack_json(page), request, cache="no-cache" if asked.kept else "no-store")


@api.get("/search")
def search() -> Response:
    """Returns kernels, operators, modules and findings of a recording by words of their names."""
    only(*WHICH, "q", "wait", "device_limits")
    capture = capture_asked(recording_asked())
    return reply(pack_json(find(capture, request.args.get("q", ""), limits_asked())), request)


@api.get("/summaries")
def run_summaries() -> Response:
    """Returns what is known of each run without opening it."""
    only()
    return reply(pack_json(wire.Summaries(summaries(context().store))), request)


@api.get("/export")
def export() -> Response:
    """Returns a recording in another form: `hatchet`, the tree that Proton writes, or `html`, its pages as one file."""
    from tb_sol_plugin.metrics.hatchet import hatchet

    only(*WHICH, "form", "by", "pages", "step", "device_limits", "live", "wait")
    form, by = request.args.get("form", "hatchet"), request.args.get("by", "auto")
    if form == "html":
        return _html_page()
    if form != "hatchet":
        raise BadQuery(f"no form {form[:40]!r}", hint="choose hatchet or html", field="form")
    recording = recording_asked()
    try:
        pieces = hatchet(capture_asked(recording), by)
    except Unavailable as error:  # a download is a file or an error, never a page
        raise NotFound(error.message, hint=error.hint) from None
    response = Response(pieces, mimetype="application/json", headers={"Cache-Control": "no-store"})
    response.headers["Content-Disposition"] = f'attachment; filename="{file_name(recording, recording.span, "")}.hatchet"'
    return response


def _html_page() -> Response:
    """Returns pages of a recording as one HTML file."""
    from tb_sol_plugin.web.html_file import html_file

    recording = recording_asked()
    capture = capture_asked(recording)
    c = context()
    source = c.store.source(wait_asked())
    made = html_file(
        capture, request.args.get("pages", "all").split(","), step=request.args.get("step", ""), device=limits_asked(),
        workers=c.store.worker_count(recording), ranks=lambda name, raw: collect(AnalysisRequest(name, raw, recording), source).report(),
        live=request.args.get("live", ""),
    )  # fmt: skip
    response = Response(made, content_type="text/html; charset=utf-8", headers={"Cache-Control": "no-store"})
    request.environ["sol.content_type"] = response.content_type
    response.headers["Content-Disposition"] = f'attachment; filename="{file_name(recording, "report", "")}.html"'
    return response


@api.get("/trace")
def trace() -> Response:
    """Returns the recording's own bytes; of a SOL capture that goes on in further files, theirs after each other, as it can be read too."""
    c = context()
    if not c.options.original:
        hint = "start the server with --sol_serve_original on"
        raise ReadOnlyView("this server does not give out the original files", hint=hint)
    recording = recording_asked()
    gzipped = recording.file.endswith(".gz")
    kind = "application/gzip" if gzipped else "application/json"
    request.environ["sol.content_type"] = kind
    name = recording.file.rpartition("/")[2]
    try:
        found = [(_own(path, recording), size) for path, size, _ in files.files_of(recording.path, c.store.options.fs_options)]
        if "://" not in recording.path and len(found) == 1:
            return send_file(Path(found[0][0]), mimetype=kind, as_attachment=True, download_name=name, conditional=True, max_age=0)
        stream = _chunks(found, c.store)
    except OSError:
        raise BadInput("the file is not there any more", hint="scan the logdir again", file=recording.file) from None
    response = Response(stream, mimetype=kind, headers={"Content-Length": str(sum(size for _, size in found))})
    response.headers["Content-Disposition"] = f'attachment; filename="{re.sub(r"[^A-Za-z0-9._-]+", "_", name)}"'
    return response


def _own(path: str, recording: Recording) -> str:
    """Returns the file that a path of a recording leads to. ReadOnlyView where that lies outside the logdirs: a link to any file of the
    machine may have the name of a recording.
    """
    real = files.inside(path, [root.url for root in context().store.roots])
    if real is None:
        hint = "name the folder that the link leads to as a logdir too"
        raise ReadOnlyView("the original is a link that leads out of the logdir", hint=hint, file=recording.file)
    return real


def _chunks(wanted: list[tuple[str, int]], store: Store) -> Iterator[bytes]:
    """Yields the first `size` bytes of each (path, size): a file may grow while it is sent."""
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
    recording = recording_asked()
    return reply(pack_json(wire.Done(c.store.cancel(recording))), request)


@api.post("/leave")
def leave() -> Response:
    """A page that waited for the workers of runs was closed, or shows something else: what nobody else waits for need not be read."""
    context().store.leave()
    return reply(pack_json(wire.Done(True)), request)


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
    return reply(pack_json(wire.Health("ok", __version__, state, len(registry()), notes(c.store))), request)


@api.get("/openapi.json")
def openapi() -> Response:
    """Returns the description of this interface."""
    from tb_sol_plugin.web.openapi import document

    return reply(pack_json(document()), request)


# -- the application -------------------------------------------------------------------------------------------------


def create_app(store: Store, options: WebOptions | None = None) -> Flask:
    """Returns a WSGI app over a store. It starts nothing; the first request does."""
    options = options or WebOptions()
    app = Flask("tb_sol_plugin.web", static_folder=None)
    app.url_map.merge_slashes = False
    answers: Memo[Packed] = Memo(options.memo_bytes, lambda packed: packed.size)
    rows: Memo[TableRows] = Memo(options.rows_bytes, lambda rows: rows.nbytes)
    tiles: Memo[Block] = Memo(TILE_BYTES, lambda block: block.size)
    app.extensions["sol"] = Context(store, options, answers, rows, {}, WarmUp(prepare), KeptAnswers(store), tiles)
    app.register_blueprint(api)
    app.register_blueprint(TIMELINE)
    app.register_blueprint(perfetto_pages)
    app.register_blueprint(pages)
    http.install(app, options)
    app.register_error_handler(StillLoading, still_loading)
    return app
