"""Connects moments of the device: launches, the order of each stream, and what makes work of one stream wait for another.

An event of a stream that the recording names is taken as it is. Where the recording has no such rows, calls say it by their order on a
thread; where there are none either, an event of another stream that ended right before is taken for the cause of an unexplained start.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics.critical.edges import CALL_ORDER, DEVICE, EVENT, INFERRED, LAUNCH, RECORDED, STREAM, Edges, edges
from tb_sol_plugin.metrics.critical.nodes import Nodes
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time import breakdown as B
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Mask

CHEAP: Final = 0.05
"""What a launch or a hand-over on a stream costs at least: this quantile of those that nothing else held up."""
LAUNCH_NS: Final = 5_000
"""What a launch costs at least where none found its stream idle."""
GAP_NS: Final = 1_000
"""What a hand-over on a stream costs at least where no work was ready in its queue: no stream is busy without a gap."""
QUEUED_NS: Final = 20_000
"""Work launched this long before it began was ready in its queue."""
EVENT_NS: Final = 1_000
"""What waiting for another stream costs at least; where rows of the recording state the waits, what those show that took least."""
UNEXPLAINED_NS: Final = 2_000
"""A start that is later than this after all that it is known to wait for waits for something else."""
NEAR_NS: Final = 30_000
"""So long before a start the work of another stream may have ended that held it up."""
STREAM_WAIT: Final = re.compile(r"^(cuda|hip|cu|musa)StreamWaitEvent")
EVENT_RECORD: Final = re.compile(r"^(cuda|hip|cu|musa)EventRecord")
LOOKS_BACK: Final = 8
"""Ends of work that are looked at for the last one of another stream."""


@dataclass(frozen=True)
class Work:
    """Device events in the order of their nodes, as columns: start, end, stream number, device, launching call's row (-1) and its start.

    launch_end: when that call returned; -1 none. ready: when all that each is known to wait for allows it to start.
    """

    start: Ints
    end: Ints
    stream: Ints
    device: Ints
    call: Ints
    launch: Ints
    launch_end: Ints


def work_of(capture: Capture, nodes: Nodes) -> Work:
    """Returns the device events of a recording in the order of their nodes."""
    h = at.host(capture)
    rows = nodes.device
    start = nodes.time[nodes.hosts :: 2]
    call = capture.device["call"].to_numpy()[rows].astype(np.int64)
    if len(nodes.start):
        call = np.where(nodes.start[np.maximum(call, 0)] >= 0, call, -1)
        launch, done = (np.where(call >= 0, c[np.maximum(call, 0)], -1) for c in (h.start, h.start + h.duration))
    else:
        call = launch = done = np.full(len(rows), -1, np.int64)
    return Work(start, nodes.time[nodes.hosts + 1 :: 2], nodes.stream, capture.device["device"].to_numpy()[rows], call, launch, done)


def device_edges(capture: Capture, nodes: Nodes, work: Work) -> list[Edges]:
    """Returns the edges into moments of the device, those that contradict their times too."""
    first = nodes.hosts + 2 * np.arange(len(work.start))
    out = [edges(first, first + 1, DEVICE, RECORDED, work.end - work.start)]
    launches, ready = _launches(nodes, work)
    streams, free = _streams(nodes, work)
    events = _recorded(capture, nodes, work)
    if not len(events):
        events = _called(capture, nodes, work)
    ready = np.maximum(ready, free)
    at_start = (events.target - nodes.hosts) // 2
    np.maximum.at(ready, at_start, nodes.time[events.source] + events.least)
    known = np.zeros(len(work.start), np.bool_)
    known[at_start] = True
    return [*out, launches, streams, events, _inferred(nodes, work, ready, known)]


def _launches(nodes: Nodes, work: Work) -> tuple[Edges, Ints]:
    """Returns the edges from calls to the first of their work on each stream, and until when each event waits for its launch."""
    before = _before(work)
    launched = np.flatnonzero(work.call >= 0)
    _, first = arrays.factorize([work.call[launched], work.stream[launched]])
    rows = launched[np.sort(first)]
    delay = work.start[rows] - work.launch[rows]
    dry = (delay >= 0) & (work.launch[rows] >= np.where(before[rows] >= 0, work.end[np.maximum(before[rows], 0)], np.iinfo(np.int64).min))
    usual = _cheap(delay[dry]) if dry.any() else min(_cheap(delay[delay >= 0]), LAUNCH_NS)
    least = np.minimum(np.maximum(delay, 0), usual)
    ready = np.full(len(work.start), np.iinfo(np.int64).min, np.int64)
    ready[rows] = work.launch[rows] + least
    return edges(nodes.start[work.call[rows]], nodes.hosts + 2 * rows, LAUNCH, RECORDED, np.where(delay < 0, delay, least)), ready


def _streams(nodes: Nodes, work: Work) -> tuple[Edges, Ints]:
    """Returns the edges along each stream, and until when each event waits for it."""
    before = _before(work)
    rows = np.flatnonzero(before >= 0)
    past = before[rows]
    gap = work.start[rows] - work.end[past]
    follows = gap >= 0
    queued = follows & (work.launch[rows] >= 0) & (work.launch_end[rows] + QUEUED_NS <= work.end[past])
    usual = _cheap(gap[queued]) if queued.any() else GAP_NS
    least = np.where(follows, np.minimum(gap, usual), 0)
    source = nodes.hosts + 2 * past + follows
    ready = np.full(len(work.start), np.iinfo(np.int64).min, np.int64)
    ready[rows] = nodes.time[source] + least
    return edges(source, nodes.hosts + 2 * rows, STREAM, RECORDED, least), ready


def _before(work: Work) -> Ints:
    """Returns the event before each one on its stream, -1 for none."""
    place = np.arange(len(work.start), dtype=np.int64)
    same = np.concatenate((np.zeros(min(len(place), 1), np.bool_), work.stream[1:] == work.stream[:-1]))
    return np.where(same, place - 1, -1)


def _cheap(values: Ints) -> int:
    return int(np.quantile(values, CHEAP, method="lower")) if len(values) else 0


# -- Waits for other streams ------------------------------------------------------------------------------------------


def _recorded(capture: Capture, nodes: Nodes, work: Work) -> Edges:
    """Returns the edges that rows of the recording state: the work before a record of an event -> the work after a wait for it."""
    sync = capture.tables["sync"]
    if not len(sync):
        return _of_events(nodes, work, *_nothing(), RECORDED)
    named = arrays.where(sync["name"], lambda n: n.lower().replace("_", " ") == "stream wait event")
    rows = np.flatnonzero(named & (sync["wait_on_stream"].to_numpy() >= 0))
    stream, awaited, device = (sync[c].to_numpy()[rows] for c in ("stream", "wait_on_stream", "device"))
    waits, records = (call_rows(capture, sync[c].to_numpy()[rows]) for c in ("correlation", "event_record_correlation"))
    when = np.where(waits >= 0, at.host(capture).start[np.maximum(waits, 0)], sync["start_ns"].to_numpy()[rows])
    until = np.where(records >= 0, at.host(capture).start[np.maximum(records, 0)], when)
    of = stream_numbers(capture, nodes)
    source = _last_launched(work, _numbers(of, device, awaited), until)
    target = _next_launched(work, _numbers(of, device, stream), when)
    return _of_events(nodes, work, source, target, RECORDED)


def _called(capture: Capture, nodes: Nodes, work: Work) -> Edges:
    """Returns the edges that the order of calls on a thread states; without such calls, of collectives on a stream of their own."""
    h = at.host(capture)
    waits = at.named(capture, S.CALL, lambda n: STREAM_WAIT.match(n) is not None)
    if not len(waits):
        return _collectives(capture, nodes, work)
    records = at.named(capture, S.CALL, lambda n: EVENT_RECORD.match(n) is not None)
    launches, of_call = _first_of_calls(work)
    bound = _next_of_thread(h.thread, launches, waits)
    recorded = _last_of_thread(h.thread, records, waits)
    good = (bound >= 0) & (recorded >= 0)
    target, since = of_call[np.maximum(bound[good], 0)], h.start[records[recorded[good]]]
    source = _last_on_other(work, work.device[target], work.stream[target], since)
    return _of_events(nodes, work, source, target, CALL_ORDER)


def _collectives(capture: Capture, nodes: Nodes, work: Work) -> Edges:
    """Returns for each collective on a stream without computation the last computation that its thread launched before it."""
    kind = B.classes(capture)[nodes.device]
    computes = np.bincount(work.stream[kind == B.COMPUTATION], minlength=int(work.stream.max(initial=-1)) + 1)
    target = np.flatnonzero((kind == B.COMMUNICATION) & (work.call >= 0) & (computes[work.stream] == 0)) if len(computes) else _nothing()[0]
    rows = np.flatnonzero((kind == B.COMPUTATION) & (work.call >= 0))
    order = rows[np.argsort(work.call[rows], kind="stable")]
    place = np.searchsorted(work.call[order], work.call[target], side="left") - 1
    source = np.where(place >= 0, order[np.maximum(place, 0)] if len(order) else -1, -1)
    thread = at.host(capture).thread
    if len(thread):
        same = thread[work.call[np.maximum(source, 0)]] == thread[work.call[target]]
        source = np.where(same, source, -1)
    return _of_events(nodes, work, source, target, CALL_ORDER)


def _inferred(nodes: Nodes, work: Work, ready: Ints, known: Mask) -> Edges:
    """Returns for starts that nothing explains the event of another stream of the device that ended last, right before."""
    target = np.flatnonzero(~known & (work.start - np.maximum(ready, work.start - 2 * NEAR_NS) > UNEXPLAINED_NS))
    order = np.lexsort((work.end, work.device))
    device, end = work.device[order], work.end[order]
    source = np.full(len(target), -1, np.int64)
    if not len(target) or len(np.unique(work.stream)) < 2:
        return _of_events(nodes, work, source, target, INFERRED)
    place = places_within(device, end, work.device[target], work.start[target], "right") - 1
    for _ in range(LOOKS_BACK):
        found = order[np.maximum(place, 0)]
        fits = (place >= 0) & (source < 0) & (work.device[found] == work.device[target]) & (work.stream[found] != work.stream[target])
        fits &= (work.start[found] < work.start[target]) & (work.end[found] > work.start[found])
        fits &= work.end[found] > np.maximum(ready[target], work.start[target] - NEAR_NS)
        source = np.where(fits, found, source)
        place = place - 1
    return _of_events(nodes, work, source, target, INFERRED)


def _of_events(nodes: Nodes, work: Work, source: Ints, target: Ints, evidence: int) -> Edges:
    """Returns edges from ends of events to starts of others; those without a source, or within one stream, are none."""
    good = (source >= 0) & (target >= 0)
    source, target = source[good], target[good]
    other = work.stream[source] != work.stream[target]
    source, target = source[other], target[other]
    lag = work.start[target] - work.end[source]
    usual = min(_cheap(lag[lag >= 0]), EVENT_NS) if evidence == RECORDED else EVENT_NS
    return edges(nodes.hosts + 2 * source + 1, nodes.hosts + 2 * target, EVENT, evidence, np.minimum(lag, usual))


def _nothing() -> tuple[Ints, Ints]:
    return np.zeros(0, np.int64), np.zeros(0, np.int64)


# -- Which work is before or after a call -----------------------------------------------------------------------------


def call_rows(capture: Capture, correlation: Ints) -> Ints:
    """Returns the host row of the call with each correlation, -1 for none; of several the last."""
    table = capture.tables["calls"]
    own, host = table["correlation"].to_numpy(), table["host"].to_numpy().astype(np.int64)
    if not len(own):
        return np.full(len(correlation), -1, np.int64)
    order = np.argsort(own, kind="stable")
    place = np.searchsorted(own[order], correlation, side="right") - 1
    row = order[np.maximum(place, 0)]
    return np.where((place >= 0) & (correlation > 0) & (own[row] == correlation), host[row], -1)


def stream_numbers(capture: Capture, nodes: Nodes) -> dict[tuple[int, int], int]:
    """Returns the number of each stream by device and id."""
    device, stream = (capture.device[c].to_numpy()[nodes.device] for c in ("device", "stream"))
    first = np.flatnonzero(np.concatenate((np.ones(min(len(device), 1), np.bool_), nodes.stream[1:] != nodes.stream[:-1])))
    return {(int(device[i]), int(stream[i])): int(nodes.stream[i]) for i in first.tolist()}


def _numbers(of: dict[tuple[int, int], int], device: Ints, stream: Ints) -> Ints:
    """Returns the numbers of streams by device and id, -1 for one without work."""
    return np.array([of.get(pair, -1) for pair in zip(device.tolist(), stream.tolist(), strict=True)], np.int64)


def _last_launched(work: Work, stream: Ints, until: Ints) -> Ints:
    """Returns the last work launched on each stream before a time, -1 for none."""
    return _by_launch(work, stream, until, -1)


def _next_launched(work: Work, stream: Ints, since: Ints) -> Ints:
    """Returns the first work launched on each stream after a time, -1 for none."""
    return _by_launch(work, stream, since, 0)


def _by_launch(work: Work, stream: Ints, moment: Ints, offset: int) -> Ints:
    launched = np.flatnonzero(work.call >= 0)
    order = launched[np.lexsort((work.start[launched], work.launch[launched], work.stream[launched]))]
    number = work.stream[order]
    place = places_within(number, work.launch[order], stream, moment, "left") + offset
    there = (place >= 0) & (place < len(order))
    safe = np.clip(place, 0, max(len(order) - 1, 0))
    out = np.full(len(stream), -1, np.int64)
    if len(order):
        good = there & (number[safe] == stream) & (stream >= 0)
        out[good] = order[safe[good]]
    return out


def places_within(group: Ints, value: Ints, wanted: Ints, at: Ints, side: Literal["left", "right"]) -> Ints:
    """Returns how many pairs (group, value), which ascend, stand before each (wanted, at); right: equal ones too. O(n log n)."""
    count = len(group)
    later = np.repeat((0, 1) if side == "right" else (1, 0), (count, len(wanted)))
    order = np.lexsort((later, np.concatenate((value, at)), np.concatenate((group, wanted))))
    asked = order >= count
    out = np.empty(len(wanted), np.int64)
    out[order[asked] - count] = np.cumsum(~asked)[asked]
    return out


def _last_on_other(work: Work, device: Ints, stream: Ints, until: Ints) -> Ints:
    """Returns the last work launched before a time on another stream of a device, -1 for none."""
    launched = np.flatnonzero(work.call >= 0)
    order = launched[np.lexsort((work.start[launched], work.launch[launched], work.device[launched]))]
    out = np.full(len(device), -1, np.int64)
    if not len(order):
        return out
    of = work.device[order]
    place = places_within(of, work.launch[order], device, until, "left") - 1
    safe = np.maximum(place, 0)
    same = work.stream[order[safe]] == stream
    safe = np.where(same, _last_other(work.stream[order])[safe], safe)
    good = (place >= 0) & (safe >= 0) & (of[np.maximum(safe, 0)] == device)
    out[good] = order[safe[good]]
    return out


def _last_other(stream: Ints) -> Ints:
    """Returns the last place before each whose stream differs, -1 for none."""
    changes = np.concatenate(([False], stream[1:] != stream[:-1]))
    last = np.maximum.accumulate(np.where(changes, np.arange(len(stream)), 0))
    return last - 1


def _first_of_calls(work: Work) -> tuple[Ints, Ints]:
    """Returns (host rows of launching calls, ascending; the first work of each)."""
    rows = np.flatnonzero(work.call >= 0)
    call, first = np.unique(work.call[rows], return_index=True)
    return call, rows[first]


def _next_of_thread(thread: npt.NDArray[np.int32], among: Ints, rows: Ints) -> Ints:
    """Returns the place of the first of `among` after each row on its thread, -1 for none; both ascend."""
    place = np.searchsorted(among, rows, side="right")
    safe = np.minimum(place, len(among) - 1)
    good = (place < len(among)) & (thread[among[safe]] == thread[rows]) if len(among) else np.zeros(len(rows), np.bool_)
    return np.where(good, safe, -1)


def _last_of_thread(thread: npt.NDArray[np.int32], among: Ints, rows: Ints) -> Ints:
    """Returns the place of the last of `among` before each row on its thread, -1 for none; both ascend."""
    place = np.searchsorted(among, rows, side="left") - 1
    safe = np.maximum(place, 0)
    good = (place >= 0) & (thread[among[safe]] == thread[rows]) if len(among) else np.zeros(len(rows), np.bool_)
    return np.where(good, safe, -1)

