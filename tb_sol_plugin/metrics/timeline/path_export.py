"""Writes the critical path into a trace file: a row of its own with every stretch, and links along it between the events that hold it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from tb_sol_plugin.metrics.critical.path import CLASSES, LABELS
from tb_sol_plugin.metrics.timeline.critical import stretches_of
from tb_sol_plugin.metrics.timeline.timeline import Timeline
from tb_sol_plugin.metrics.timeline.window import Place, Window

CATEGORY: Final = "critical_path"
_IDS: Final = 5 * 10**9
"""Numbers of links of a path begin here, above those of launches."""
_BLOCK: Final = 50_000


def path_lines(timeline: Timeline, window: Window, place: Place, where: Callable[[int, int], str]) -> Iterator[list[str]]:
    """Yields the critical paths of the complete steps inside a window as events of a trace file, some at a time.

    where: process and thread of a host row and device row, one of them -1, as JSON. Links are left out where the window has none.
    """
    every = stretches_of(timeline.capture)
    found, count = every.longest(window.start_ns, window.end_ns, len(every))
    if not count:
        return
    process = place.process(json.dumps("critical path"))
    yield [f'{{"ph": "M", "name": "process_name", "pid": {process}, "tid": 0, "ts": 0, "args": {{"name": "Critical path"}}}}']
    names = timeline.events.names.text
    name = [json.dumps(names[i]) for i in timeline.events.name_ids(found.events(timeline).astype(np.uint32)).tolist()]
    start, end = found.start, found.end
    if window.clip:
        start, end = np.maximum(start, window.start_ns), np.minimum(end, window.end_ns)
    words = [json.dumps(LABELS[c]) for c in CLASSES]
    shown = zip(name, start.tolist(), (end - start).tolist(), found.kind.tolist(), strict=True)
    own = f'"cat": "{CATEGORY}", "pid": {process}, "tid": 0'
    out = [
        f'{{"ph": "X", {own}, "name": {text}, "ts": {trace_time(at + place.offset_ns)}, "dur": {trace_time(ns)}, '
        f'"args": {{"class": {words[kind]}}}}}'
        for text, at, ns, kind in shown
    ]
    for at in range(0, len(out), _BLOCK):
        yield out[at : at + _BLOCK]
    if not window.flows:
        return
    at_event = [f'"cat": "{CATEGORY}", {where(h, d)}' for h, d in zip(found.host.tolist(), found.device.tolist(), strict=True)]
    times = [trace_time(ns) for ns in (start + place.offset_ns).tolist()]
    follows = np.flatnonzero(found.start[1:] == found.end[:-1]).tolist()
    first = _IDS + 2 * _IDS * (place.number + 1)
    for at in range(0, len(follows), _BLOCK):
        lines = []
        for i in follows[at : at + _BLOCK]:
            lines.append(f'{{"ph": "s", "id": {first + i}, "name": "{CATEGORY}", {at_event[i]}, "ts": {times[i]}}}')
            lines.append(f'{{"ph": "f", "bp": "e", "id": {first + i}, "name": "{CATEGORY}", {at_event[i + 1]}, "ts": {times[i + 1]}}}')
        yield lines


def trace_time(ns: int) -> str:
    """Returns ns as a number of µs, exactly."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"
