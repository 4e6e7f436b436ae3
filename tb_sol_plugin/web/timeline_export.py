"""Serves a window of the timeline as a trace file, and says beforehand how large that file will be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from flask import Response, request

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.timeline.export import export, export_together
from tb_sol_plugin.metrics.timeline.selection import select
from tb_sol_plugin.metrics.timeline.timeline import Timeline
from tb_sol_plugin.metrics.timeline.window import EVERYTHING, Place, Window, rows_of
from tb_sol_plugin.web import timeline_wire as shapes
from tb_sol_plugin.web.context import only
from tb_sol_plugin.web.http import pack_json, reply
from tb_sol_plugin.web.timeline import WHICH, shown, timeline_api, tracks_asked, whole

__all__ = ["timeline_api"]
BYTES_PER_EVENT: Final = 280
"""Of the text that is written: 250 to 400 in recordings of training, inference and Python frames."""
TIMELINE: Final = timeline_api
"""All routes of the timeline: those of `timeline`, and that of this module."""
Part = tuple[Timeline, Window, Place]


@timeline_api.get("/export")
def export_window() -> Response:
    """Returns a window of the timeline as a trace file, gzip: for Perfetto, and, of one worker, to be read again.

    size: not the file, but how large it will be.
    """
    only(*WHICH, "start_ns", "end_ns", "tracks", "flows", "clip", "split_overlaps", "path", "size")
    seen = shown()
    w = seen.workers
    begin, end = (whole("start_ns", *EVERYTHING, EVERYTHING[0]), whole("end_ns", *EVERYTHING, EVERYTHING[1]))
    if end < begin:
        raise BadQuery("the window ends before it begins", hint="give end_ns at or after start_ns", field="end_ns")
    wanted = tracks_asked(w, w.track_count)
    flows = _switch("flows", True)
    clip, split, path, size = (_switch(name, False) for name in ("clip", "split_overlaps", "path", "size"))
    parts: list[Part] = []
    for worker, (one, moved) in enumerate(zip(w.timelines, w.alignment, strict=True)):
        mine = None if wanted is None else [local for at, local in map(w.worker_of, wanted) if at == worker]
        if mine == []:
            continue
        place = Place(worker, one.tracks[0].label if one.tracks else one.capture.worker, moved.offset_ns)
        parts.append((one, Window(begin - moved.offset_ns, end - moved.offset_ns, rows_of(one, mine), flows, clip, split, path), place))
    if size:
        return reply(pack_json(_size(parts)), request)
    first = w.timelines[0].capture
    if len(w.timelines) == 1:
        body, name = export(*parts[0][:2], seen.fingerprint), f"{first.worker or 'worker'}.{first.span or 'timeline'}"
    else:
        body, name = export_together(parts, w.origin_ns, seen.fingerprint), f"{len(parts)} workers"
    response = Response(body, mimetype="application/gzip", headers={"Cache-Control": "no-store"})
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:100]
    response.headers["Content-Disposition"] = f'attachment; filename="{name}.pt.trace.json.gz"'
    return response


def _size(parts: Sequence[Part]) -> shapes.ExportSize:
    """Counts the events that overlap the windows; where they lie is known of each lane, so none but those at the edges is read."""
    chosen = (select(t, window.start_ns, window.end_ns, [i for i in window.tracks if t.tracks[i].lanes]) for t, window, _ in parts)
    events = sum(sum(one.counts.values()) for one in chosen)
    return shapes.ExportSize(events, events * BYTES_PER_EVENT)


def _switch(field: str, default: bool) -> bool:
    text = request.args.get(field, "")
    if text not in ("", "0", "1"):
        raise BadQuery(f"parameter {field!r} does not fit: {text[:40]!r}", hint="give 0 or 1", field=field)
    return default if not text else text == "1"
