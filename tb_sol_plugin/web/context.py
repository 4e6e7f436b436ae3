"""What all routes share: the context of their app, the parameters that name recordings, and the answer that one is still being read."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass

from flask import Response, current_app, request

from tb_sol_plugin.errors import BadQuery, SolError, StillLoading
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query, parse
from tb_sol_plugin.model.recordings import OtherNames, Recording
from tb_sol_plugin.model.rows import TableRows
from tb_sol_plugin.store.options import Memo
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web import wire
from tb_sol_plugin.web.answers import KeptAnswers
from tb_sol_plugin.web.http import Packed, WarmUp, body_of, pack_json, reply
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.tiles import Block

BASE = ("base", "base_worker", "base_span")
"""Parameters that name the baseline of a report; no analysis may have a query field of such a name."""
LONGEST_WAIT = 30.0
TILE_BYTES = 32_000_000
"""Tiles of timelines that are kept in memory."""


class Gathering(StillLoading):
    """Workers of a run are being read; carries how far that is."""

    def __init__(self, progress: wire.LoadProgress) -> None:
        super().__init__("the workers of this run are being read", hint="ask again in a moment")
        self.progress = progress


@dataclass(frozen=True)
class Context:
    """What the routes of one app share. rows: of large tables, by version of their report and section. kept: answers on disk.

    tiles: of the timeline."""

    store: Store
    options: WebOptions
    memo: Memo[Packed]
    rows: Memo[TableRows]
    faults: dict[object, wire.ErrorBody]
    warm_up: WarmUp
    kept: KeptAnswers
    tiles: Memo[Block]

    def place(self, version: str, section: str) -> tuple[str, str, int]:
        """Returns the name under which the columns of a table are kept: another one once cache files were changed below them."""
        return version, section, self.store.loader.cache.replaced


def context() -> Context:
    """Returns the context of the app that answers this request."""
    found = current_app.extensions["sol"]
    assert isinstance(found, Context)
    return found


# -- parameters ------------------------------------------------------------------------------------------------------


def recording_asked() -> Recording:
    """Returns the recording that run, worker and span of the request name, its graph launches named by what `capture` names."""
    values = {**request.form, **request.args} if request.method == "POST" else request.args
    store = context().store
    found = store.recording(values.get("run", ""), values.get("worker", ""), values.get("span", ""))
    return store.with_graph_capture(found, values.get("capture", ""))


def capture_asked(recording: Recording) -> Capture:
    """Returns an opened recording; StillLoading where it is not there within the time that the request waits."""
    c = context()
    return c.store.capture(recording, wait_asked())


def wait_asked() -> float:
    """Returns seconds that the request waits for a recording."""
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


def required(name: str) -> str:
    """Returns a parameter that must be there. BadQuery without it."""
    value = request.args.get(name, "")
    if not value:
        raise BadQuery(f"parameter {name!r} is missing", hint="see api/v1/openapi.json", field=name)
    return value


def limits_asked() -> str:
    """Returns the device limits that the request names."""
    return parse(Query, {"device_limits": request.args.get("device_limits", "")}).device_limits


def only(*names: str) -> None:
    """Raises BadQuery for a parameter of another name."""
    for name in request.args:
        if name not in names:
            raise BadQuery(f"unknown parameter {name[:40]!r}", hint=f"known: {', '.join(names)}", field=name[:40])


def file_name(recording: Recording | None, analysis_name: str, section: str) -> str:
    """Returns a name, without its ending, for what is downloaded."""
    parts = [*((recording.run, recording.worker) if recording is not None else ()), analysis_name, section]
    return "_".join(filter(None, (re.sub(r"[^A-Za-z0-9.-]+", "_", p).strip("_") for p in parts)))[:150] or "table"


def _reading() -> wire.LoadProgress | None:
    """Returns how far the read of the recording that is asked for is, or of its baseline; None where neither is being read."""
    shown, store = recording_asked(), context().store
    of, found = "", store.progress(shown)
    base = OtherNames(*(request.args.get(k, "").strip() for k in BASE))
    if found is None and base != OtherNames():
        two = store.paired(shown, base)
        of, found = two.names[1], store.progress(two.other)
    if found is None:
        return None
    return wire.LoadProgress(found.bytes, found.total, found.events, found.stage, found.elapsed_s, found.queue_position, of)


def still_loading(error: StillLoading) -> Response:
    """Answers 409 with how far the read is; 202 for who says `Prefer: respond-async`, so that a browser logs no failure."""
    progress = None
    if isinstance(error, Gathering):
        progress = error.progress
    else:
        with contextlib.suppress(SolError):
            progress = _reading()
    status = 202 if takes_early_answers() else error.status
    response = reply(pack_json(wire.Error(body_of(error), progress)), request, status=status, cache="no-store")
    response.headers["Retry-After"] = "1"
    response.headers["Vary"] = "Prefer, Accept-Encoding"
    return response


def takes_early_answers() -> bool:
    """Whether the request takes an answer before everything was read."""
    return "respond-async" in request.headers.get("Prefer", "")
