"""Describes the REST interface in OpenAPI 3.1, from the registry of analyses and the wire types.

`python -m tb_sol_plugin.web.openapi` writes it to `web/openapi.json`; a test proves the file fresh.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec

from tb_sol_plugin.metrics.timeline.timeline import Layout
from tb_sol_plugin.model.query import Field
from tb_sol_plugin.model.registry import registry
from tb_sol_plugin.model.report import Report, TablePage, UnavailableReport
from tb_sol_plugin.version import __version__
from tb_sol_plugin.web import tables, timeline, wire
from tb_sol_plugin.web import timeline_wire as shapes

FILE = Path(__file__).with_name("openapi.json")
Node = dict[str, Any]
"""A part of the document: JSON objects as OpenAPI defines them."""


@cache
def document() -> Node:
    """Returns the whole document."""
    types = [
        wire.Runs, wire.Run, wire.Analyses, wire.Found, wire.Summaries, wire.Done, wire.Health, wire.Error, Report, UnavailableReport,
        TablePage, shapes.TimelineShape, shapes.NamesShape, shapes.TilesShape, shapes.DetailShape, shapes.EventsShape, shapes.HitsShape,
        shapes.FlowsShape,
    ]  # fmt: skip
    _, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}", schema_hook=_anything)
    for kind, there in ((Report, True), (UnavailableReport, False)):  # an answer is one of both, and says which
        own = schemas[kind.__name__]
        own["properties"]["available"] = {"const": there}
        own["required"] = sorted({*own["required"], "available"})
    paths: Node = {
        "/api/v1/runs": {"get": _get("runs", "All runs, the state of the scan, and what was not taken", [], _json(wire.Runs))},
        "/api/v1/run": {"get": _get("run", "One run, with what is known of recordings that were read", [_RUN], _json(wire.Run))},
        "/api/v1/analyses": {
            "get": _get("analyses", "What can be asked of a recording", [*_WHICH, _LIMITS, _WAIT], _json(wire.Analyses), loads=True)
        },
        "/api/v1/table/{name}": _table(),
        "/api/v1/search": {
            "get": _get("search", "Kernels, operators, modules and findings by words of their names", [*_WHICH, _WORDS, _LIMITS, _WAIT],
                        _json(wire.Found), loads=True)
        },
        "/api/v1/summaries": {"get": _get("summaries", "What is known of each run without opening it", [], _json(wire.Summaries))},
        "/api/v1/trace": {"get": _get("trace", "The recording's own bytes; 403 where switched off", _WHICH, _bytes())},
        "/api/v1/export": {
            "get": _get("export", "A recording in the form of another tool", [*_WHICH, _FORM, _BY, *_SAVED, _WAIT],
                        {**_profile(), "text/html": {"schema": {"type": "string"}}}, loads=True)
        },
        "/api/v1/cancel": {"post": _get("cancel", "Stop reading a recording", _WHICH, _json(wire.Done))},
        "/api/v1/leave": {"post": _get("leave", "Wait no more for the workers of runs", [], _json(wire.Done))},
        "/api/v1/rescan": {"post": _get("rescan", "Look for new, grown and vanished files now", [], _json(wire.Done))},
        "/api/v1/health": {"get": _get("health", "Whether the server is up", [], _json(wire.Health))},
        "/api/v1/openapi.json": {"get": _get("openapi", "This document", [], {"application/json": {"schema": {"type": "object"}}})},
    }
    for name, (summary, parameters, content) in _TIMELINE.items():
        path = f"/api/v1/timeline/{name}".rstrip("/")
        common = [*_WHICH_SEVERAL, *parameters, _ALIGNMENT, _LAYOUT, _FINGERPRINT, _WAIT]
        paths[path] = {"get": _get(f"timeline_{name}".rstrip("_"), summary, common, content, loads=True)}
    for name, item in registry().items():
        which = _WHICH_IF_ANY if item.without_recording is not None else _WHICH
        parameters = [*which, *(_AGAINST if item.compares else ()), *(_field(f) for f in item.fields), _FORMAT, _SECTION, _TABLES, _WAIT]
        operation = _get(f"analysis_{name}", f"{item.title}: {item.question}", parameters, _report(), loads=True)
        operation["description"] = item.help
        paths[f"/api/v1/analysis/{name}"] = {"get": operation}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tb_sol_plugin",
            "version": __version__,
            "description": "Relative to `data/plugin/sol/` in TensorBoard or `/` in `tb-sol serve`. Times are ns, sizes bytes, work FLOP.",
        },
        "paths": paths,
        "components": {"schemas": schemas},
    }


def text() -> str:
    """Returns the document as it is committed."""
    return json.dumps(document(), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _anything(kind: type) -> Node:
    """Allows anything: Plotly's figure dictionaries hold what Plotly defines."""
    if kind is object:
        return {"description": "what Plotly defines"}
    raise NotImplementedError(kind)


def _ref(kind: type) -> Node:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _json(kind: type) -> Node:
    return {"application/json": {"schema": _ref(kind)}}


def _bytes() -> Node:
    return {"application/gzip": {"schema": {"type": "string", "format": "binary"}}, "application/json": {"schema": {}}}


def _profile() -> Node:
    return {"application/json": {"schema": {"type": "array", "description": "[root frame, devices]"}}}


def _table() -> Node:
    """Describes the rows of a table; a POST names row keys besides."""
    content = {**_json(TablePage), "text/csv": {"schema": {"type": "string"}}}
    summary = "Rows of a table in one report: a page as JSON, or all of them as CSV. Query fields of the report as well"
    parameters = [_NAME, *_WHICH, *_AGAINST, *_ROWS, _WAIT]
    texts = {"type": "array", "items": {"type": "string"}}
    keys = {"type": "object", "minProperties": 1, "properties": {"picked": texts, "toggled": texts}}
    doc = "picked: keys of the rows that alone may pass; toggled: ids of a tree's rows that are open or closed unlike the others"
    body = {"description": doc, "content": {"application/json": {"schema": keys}}}
    return {
        "get": _get("table", summary, parameters, content, loads=True),
        "post": _get("table_picked", summary, parameters, content, loads=True) | {"requestBody": body},
    }


def _report() -> Node:
    either = {"oneOf": [_ref(Report), _ref(UnavailableReport)]}
    return {"application/json": {"schema": either}, "text/csv": {"schema": {"type": "string"}}}


def _query(name: str, doc: str, schema: Node, required: bool = False) -> Node:
    return {"name": name, "in": "query", "required": required, "description": doc, "schema": schema}


_RUN = _query("run", "name of a run", {"type": "string"}, True)
_CAPTURE = _query(
    "capture",
    "what names the kernels that graph launches replay: a recording of graph captures, a folder of such, or a trace of an eager run, by "
    "its file; none; those beside the trace if absent",
    {"type": "string"},
)
_WHICH = [
    _query("run", "name of a run; the first if absent", {"type": "string"}),
    _query("worker", "name of a worker; the first if absent", {"type": "string"}),
    _query("span", "name of a span; the first if absent", {"type": "string"}),
    _CAPTURE,
]
_AGAINST = [
    _query("base", "name of a run whose numbers stand beside, as a baseline; none if these three are absent", {"type": "string"}),
    _query("base_worker", "its worker; the same one if absent", {"type": "string"}),
    _query("base_span", "its span; the one in the same place if absent", {"type": "string"}),
]
_WHICH_IF_ANY = [
    _query("run", "name of a run that fills in what is left open; none if run, worker, span are absent", {"type": "string"}),
    *_WHICH[1:],
]  # fmt: skip
"""For an analysis that needs no recording."""
_WAIT = _query("wait", "seconds to wait for a file that is being read, up to 30", {"type": "number", "minimum": 0, "maximum": 30})
_LIMITS = _query("device_limits", "key of the device limits to measure against", {"type": "string"})
_FORMAT = _query("format", "json, or csv for tables", {"type": "string", "enum": ["json", "csv"], "default": "json"})
_WORDS = _query("q", "words that a name holds, in any case; none for the largest of each kind", {"type": "string"})
_FORM = _query(
    "form",
    "hatchet: the tree that Proton writes; html: pages as one file",
    {"type": "string", "enum": ["hatchet", "html"], "default": "hatchet"},
)
_SAVED = [
    _query("pages", "with html: names of analyses as NAME?FIELD=VALUE, joined by commas", {"type": "string", "default": "all"}),
    _query("step", "with html: one step or a range", {"type": "string"}),
    _query("live", "with html: address of the page that shows the same, for readers who may open it", {"type": "string"}),
    _LIMITS,
]
_BY = _query(
    "by",
    "with hatchet: what the tree is made of",
    {"type": "string", "enum": ["auto", "module", "phase", "operator"], "default": "auto"},
)
_SECTION = _query("section", "with csv: id of one table", {"type": "string"})
_TABLES = _query(
    "tables",
    "with json: pages leaves the further rows of large tables to api/v1/table",
    {"type": "string", "enum": ["whole", "pages"], "default": "whole"},
)
_NAME = {"name": "name", "in": "path", "required": True, "description": "name of an analysis", "schema": {"type": "string"}}
_EACH = {"type": "array", "items": {"type": "string"}, "maxItems": tables.MOST_FILTERS}
_ROWS = [
    _query("section", "id of the table", {"type": "string"}, True),
    _query("offset", "first row of the page", {"type": "integer", "minimum": 0, "default": 0}),
    _query(
        "limit", "rows of the page; fewer come where they would take more than 1 MB",
        {"type": "integer", "minimum": 1, "maximum": tables.MOST_ROWS, "default": tables.FIRST_ROWS},
    ),
    _query("sort", "a column, after - in descending order; the order the table opens in if absent", {"type": "string"}),
    _query("find", "words that the texts of a row hold, each of them", {"type": "string", "maxLength": tables.MOST_TEXT}),
    _query("keep", "COLUMN:VALUE,VALUE: rows with one of these values; once per column", _EACH),
    _query("range", "COLUMN:ABOVE~BELOW: rows with a number between, one end may be left out; once per column", _EACH),
    _query("key", "key of a row: the page around it, and where it stands", {"type": "string"}),
    _query("open", "of a tree: d the heaviest branches, a all, n none", {"type": "string", "enum": ["d", "a", "n"], "default": "d"}),
    _query("columns", "with csv: names of columns, joined by commas; all if absent", {"type": "string"}),
    _query("version", "of the report that the rows belong to; 409 if it has changed", {"type": "string"}),
    _FORMAT,
]  # fmt: skip
_WHOLE: Node = {"type": "integer"}
_TEXT: Node = {"type": "string"}
_WHICH_SEVERAL = [
    _WHICH[0],
    *(
        _query(name, f"{doc}; several stand under each other", {"type": "array", "items": _TEXT, "maxItems": timeline.MOST_WORKERS})
        for name, doc in (("worker", "name of a worker"), ("span", "name of a span, in the order of the workers"))
    ),
    _CAPTURE,
]
_ALIGNMENT = _query("al", "clocks of several workers: clock, none, step, step:NUMBER, manual:NS,NS (one per worker) or collective", _TEXT)
_LAYOUT = _query("lay", "compact: the streams of each device as one track", {"type": "string", "enum": list(get_args(Layout))})
_FINGERPRINT = _query("fp", "fingerprint of the timeline; 409 if it has changed", _TEXT)
_WINDOW = [
    _query("start_ns", "begin of the window, ns after the origin of the timeline; of everything if absent", _WHOLE),
    _query("end_ns", "end of the window", _WHOLE),
]
_SOME_TRACKS = _query("tracks", "numbers and ranges of tracks, as 0-5,9; all if absent", _TEXT)
_MANY: Node = {"type": "integer", "minimum": 1, "maximum": timeline.MOST_EVENTS}
_SWITCH: Node = {"type": "string", "enum": ["0", "1"]}
_TIMELINE: dict[str, tuple[str, list[Node], Node]] = {
    "": ("Tracks, steps, phases and categories of the timeline", [], _json(shapes.TimelineShape)),
    "names": ("Distinct names of events, by id", [], _json(shapes.NamesShape)),
    "tiles": (
        "Merged events of some tracks in stretches of 1,024 buckets",
        [
            _query("z", "level: a bucket is 2^z ns", {"type": "integer", "minimum": 0, "maximum": timeline.COARSEST}, True),
            _query("i", f"number of the tile, or a range of at most {timeline.MOST_TILES}", _TEXT),
            _query("tracks", f"numbers and ranges of at most {timeline.MOST_TRACKS} tracks, as 0-5,9", _TEXT, True),
            _query("format", "binary, or json", {"type": "string", "enum": ["binary", "json"], "default": "binary"}),
        ],
        {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}, **_json(shapes.TilesShape)},
    ),
    "event": (
        "All that is known of one event: named by its id, or by start and duration",
        [
            _query("track", "number of its track", _WHOLE, True), _query("event", "its id", _WHOLE), _WINDOW[0],
            _query("duration_ns", "its duration", _WHOLE), _LIMITS,
        ],
        _json(shapes.DetailShape),
    ),
    "events": (
        "Exact events of a track in a window, in order of time",
        [
            _query("track", "number of the track", _WHOLE, True), _query("lane", "one lane of it", _WHOLE), *_WINDOW,
            _query("cursor", "where the page begins, from the answer before", _TEXT), _query("limit", "events of the page", _MANY),
        ],
        _json(shapes.EventsShape),
    ),
    "search": (
        "Events by name: how many, where, and the next ones from a time on",
        [
            _query("names", "ids of names, as 1,5-9", _TEXT), _query("text", "part of a name, in any case", _TEXT), *_WINDOW, _SOME_TRACKS,
            _query("after_ns", "where the next hits begin", _WHOLE),
            _query("direction", "which way to go on", {"type": "string", "enum": ["next", "previous"], "default": "next"}),
            _query("limit", "hits", _MANY),
        ],
        _json(shapes.HitsShape),
    ),
    "export": (
        "A window of the timeline as a trace file; several workers as one",
        [
            *_WINDOW, _SOME_TRACKS, _query("flows", "1: with links between events", _SWITCH),
            _query("clip", "1: events are cut to the window", _SWITCH),
            _query("split_overlaps", "1: overlapping device events go to threads of their own, as some viewers drop them", _SWITCH),
            _query("path", "1: with the critical path", _SWITCH), _query("size", "1: only how large the file will be", _SWITCH),
        ],
        {"application/gzip": {"schema": {"type": "string", "format": "binary"}}, **_json(shapes.ExportSize)},
    ),
    "flows": (
        "Links between events: launch to device work, forward to backward; the longest latencies first",
        [
            _query("events", "TRACK:EVENT, joined by commas; the window if absent", _TEXT), *_WINDOW,
            _query("kind", "one kind; all if absent", {"type": "string", "enum": ["launch", "backward", "path"]}),
        ],
        _json(shapes.FlowsShape),
    ),
}  # fmt: skip
"""By route below `timeline`: summary, parameters, content."""
_KINDS = {"text": "string", "choice": "string", "number": "number", "flag": "boolean", "rows": "string"}


def _field(field: Field) -> Node:
    schema: Node = {"type": _KINDS[field.type]}
    if field.choices:
        schema["enum" if field.type == "choice" else "examples"] = list(field.choices)
    if field.default not in ("", "None"):
        schema["default"] = msgspec.convert(field.default, {"number": float, "flag": bool}.get(field.type, str), strict=False)
    return _query(field.name, field.doc, schema)


def _get(operation: str, summary: str, parameters: list[Node], content: Node, loads: bool = False) -> Node:
    failed = {"description": "An error", "content": _json(wire.Error)}
    responses: Node = {"200": {"description": "The answer", "content": content}, "default": failed}
    if loads:
        responses["409"] = {"description": "The recording is being read; ask again", "content": _json(wire.Error)}
    return {"operationId": operation, "summary": summary, "parameters": parameters, "responses": responses}


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
