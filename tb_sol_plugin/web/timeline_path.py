"""Serves the critical path of recordings as links of the timeline: from each stretch on one thread or stream to the next."""

from __future__ import annotations

from collections.abc import Callable

from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics.critical.path import CLASSES, LABELS
from tb_sol_plugin.metrics.timeline.critical import stretches_of
from tb_sol_plugin.metrics.timeline.workers import Workers
from tb_sol_plugin.web.timeline_wire import EventShape, FlowEnd, FlowShape, FlowsShape


def flows(
    w: Workers, begin_ns: int, end_ns: int, most: int, events: Callable[[Workers, int, list[int]], list[EventShape]]
) -> FlowsShape:  # fmt: skip
    """Returns the critical paths inside a window, in order of time; of more than `most` stretches the longest ones.

    kind of a link: the class of time that its source is. total: stretches in the window. events: describes events by their ids.
    """
    out: list[FlowShape] = []
    total = 0
    for worker, timeline in enumerate(w.timelines):
        offset = w.alignment[worker].offset_ns
        try:
            every = stretches_of(timeline.capture)
        except Unavailable:
            continue
        found, count = every.longest(begin_ns - offset, end_ns - offset, most + 1 if worker == 0 else most + 1 - len(out))
        total += count
        shown = events(w, worker, found.events(timeline).tolist())
        times = zip((found.start + offset).tolist(), (found.end + offset).tolist(), strict=True)
        ends = [FlowEnd(e.event, e.track, e.lane, start, end, e.name) for e, (start, end) in zip(shown, times, strict=True)]
        words = [LABELS[CLASSES[k]] for k in found.kind.tolist()]
        if len(ends) == 1:
            ends, words = ends * 2, words * 2
        out += [FlowShape(word, a, b, b.start_ns - a.start_ns) for word, a, b in zip(words, ends, ends[1:], strict=False)]
    return FlowsShape(out[:most], total)
