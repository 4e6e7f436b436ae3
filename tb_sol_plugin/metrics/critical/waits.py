"""Finds the calls that waited for the device, and for which of its work: synchronizing calls, copies, and launches into a full queue."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics.critical.device_edges import LOOKS_BACK, Work, call_rows, places_within, stream_numbers
from tb_sol_plugin.metrics.critical.edges import INFERRED, QUEUE_FULL, RECORDED, SYNC, Edges, edges
from tb_sol_plugin.metrics.critical.nodes import Nodes
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.breakdown import SYNCHRONIZE, WAITING
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints

RETURNS_NS: Final = 1_000
"""A call that waited returns this long after the device at least."""
CALL_NS: Final = 2_000
"""What a call that waits costs the host by itself, at most."""
NOT_NAMED: Final = -2
MOST_STREAMS: Final = 64
"""Streams of a recording up to which a call for a whole device is told to wait for each of them."""
WHOLE_DEVICE: Final = re.compile(r"^(cuda|hip|musa)DeviceSynchronize|^(cu|hip)CtxSynchronize")
OF_MEMORY: Final = re.compile(
    r"^(cuda|hip|cu|musa)(Free(Host)?|HostAlloc|MallocHost|HostMalloc|HostFree|MemAllocHost|MemFree\w*|Module(Load|Unload)\w*)$"
)
"""Calls that wait for the device where they have to: they release memory, pin some, or load code."""
LEAST_QUEUE: Final = 990
"""A queue of fewer commands is not full."""
SLOW_LAUNCH_NS: Final = 30_000
SLOW_LAUNCHES: Final = 5
"""A launch that found the queue full takes longer than the first, and than the second times the median."""
PLATEAU: Final = 1.05
"""A full queue takes no more: never are more than so many times the commands outstanding at which launches are slow."""


def wait_edges(capture: Capture, nodes: Nodes, work: Work) -> tuple[list[Edges], Ints]:
    """Returns (edges from the device to the ends of calls that waited for it, the nodes of those ends)."""
    if not len(work.start) or not nodes.hosts:
        return [], np.zeros(0, np.int64)
    waited, besides = _synchronizing(capture, nodes, work)
    found = [waited, _copying(capture, nodes, work), _full(nodes, work, capture)]
    return [*found, besides], np.unique(np.concatenate([e.target for e in found])).astype(np.int64)


def _edges(nodes: Nodes, work: Work, source: Ints, call: Ints, kind: int, evidence: npt.NDArray[np.integer] | int) -> Edges:
    """Returns edges from the ends of work to the ends of calls that began before them; of the others the calls did not wait."""
    good = source >= 0
    source, call = source[good], call[good]
    evidence = np.broadcast_to(np.asarray(evidence, np.int8), len(good))[good]
    began, ended = nodes.time[nodes.start[call]], nodes.time[nodes.end[call]]
    waited = (work.end[source] > began) & (work.end[source] <= ended)
    source, call = source[waited], call[waited]
    lag = ended[waited] - work.end[source]
    return edges(nodes.hosts + 2 * source + 1, nodes.end[call], kind, evidence[waited], np.minimum(lag, RETURNS_NS))


def _synchronizing(capture: Capture, nodes: Nodes, work: Work) -> tuple[Edges, Edges]:
    """Returns the edges into calls that synchronize, as rows of the recording say for what, else by what ended last inside of each; and
    those of work that a call for a whole device would have waited for, too, had it ended later.

    Which of several devices a call without a row waited for is not recorded: it is the one whose work ended last before it returned.
    """
    h = at.host(capture)
    call = at.named(capture, S.CALL, lambda n: SYNCHRONIZE.match(n) is not None or OF_MEMORY.match(n) is not None)
    call = call[nodes.end[call] >= 0]
    began, ended = h.start[call], h.start[call] + h.duration[call]
    stream, context = _named_streams(capture, nodes, call)
    whole = context != NOT_NAMED
    everywhere = at.mask_of(capture, at.named(capture, S.CALL, lambda n: WHOLE_DEVICE.match(n) is not None))[call]
    device = np.where(context >= 0, context, _device_of_thread(capture, work, call))
    source = _last_ended(work, work.device, device, began, ended)
    if (work.device != work.device[0]).any():
        unsure = everywhere & (context < 0)
        anywhere = np.zeros(len(work.device), np.int64)
        source[unsure] = _last_ended(work, anywhere, anywhere[:1].repeat(int(unsure.sum())), began[unsure], ended[unsure])
        whole, everywhere = whole & ~unsure, everywhere & ~unsure
    named = stream >= 0
    source[named] = _last_ended(work, work.stream, stream[named], began[named], ended[named])
    besides = _ended_before(nodes, work, call[everywhere & ~named], device[everywhere & ~named])
    return _edges(nodes, work, source, call, SYNC, np.where(named | whole | everywhere, RECORDED, INFERRED)), besides


def _ended_before(nodes: Nodes, work: Work, call: Ints, device: Ints) -> Edges:
    """Returns edges to calls that wait for a whole device from the last work of each of its streams, where that ended before they returned.

    They hold no call as it was, and those whose work became longer.
    """
    began, ended = nodes.time[nodes.start[call]], nodes.time[nodes.end[call]]
    sources, calls = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    first = np.flatnonzero(np.diff(work.stream, prepend=-1))
    if len(first) <= MOST_STREAMS:
        for low, high in zip(first.tolist(), [*first[1:].tolist(), len(work.stream)], strict=True):
            mine = np.flatnonzero(device == work.device[low])
            launched = np.maximum.accumulate(work.launch[low:high])
            place = np.searchsorted(launched, began[mine], side="right") - 1
            source = low + np.maximum(place, 0)
            there = (place >= 0) & (work.call[source] >= 0) & (work.end[source] <= ended[mine])
            sources.append(source[there])
            calls.append(call[mine[there]])
    source, target = np.concatenate(sources), nodes.end[np.concatenate(calls)]
    lag = np.minimum(nodes.time[target] - work.end[source], RETURNS_NS)
    return edges(nodes.hosts + 2 * source + 1, target, SYNC, RECORDED, lag)


def _named_streams(capture: Capture, nodes: Nodes, call: Ints) -> tuple[Ints, Ints]:
    """Returns per call (number of the stream that a row of the recording says it waited for, -1 none; the device of the whole context that
    it says, -1 of one whose device is not known, NOT_NAMED none)."""
    sync = capture.tables["sync"]
    stream, context = np.full(len(call), -1, np.int64), np.full(len(call), NOT_NAMED, np.int64)
    if not len(sync) or not len(call):
        return stream, context
    row = call_rows(capture, sync["correlation"].to_numpy())
    place = np.searchsorted(call, row)
    there = (row >= 0) & (call[np.minimum(place, len(call) - 1)] == row)
    of_context = arrays.where(sync["name"], lambda n: n.lower().startswith("context"))
    device, number = sync["device"].to_numpy(), stream_numbers(capture, nodes)
    context[place[there & of_context]] = np.maximum(device[there & of_context], -1)
    waited, own = sync["wait_on_stream"].to_numpy(), sync["stream"].to_numpy()
    for i in np.flatnonzero(there & ~of_context).tolist():
        stream[place[i]] = number.get((int(device[i]), int(waited[i] if waited[i] >= 0 else own[i])), -1)
    return stream, context


def _copying(capture: Capture, nodes: Nodes, work: Work) -> Edges:
    """Returns the edges from copies to the ends of the calls that made them and returned after them."""
    table = capture.device
    name = capture.host["name"]
    copies = np.flatnonzero((table["kind"].to_numpy()[nodes.device] == S.MEMCPY) & (work.call >= 0))
    pageable = np.zeros(len(copies), np.bool_)
    for column in ("src_kind", "dst_kind"):
        pageable |= arrays.per_text(table[column], nodes.device[copies], lambda kind: kind == "Pageable")
    waiting = arrays.per_text(name, work.call[copies], lambda n: WAITING.match(n) is not None)
    rows = copies[pageable | waiting]
    return _edges(nodes, work, rows, work.call[rows], SYNC, RECORDED)


def _device_of_thread(capture: Capture, work: Work, call: Ints) -> Ints:
    """Returns the device that each call's thread launched on last, else the first one."""
    thread = at.host(capture).thread
    rows = np.flatnonzero(work.call >= 0)
    rows = rows[np.argsort(work.call[rows], kind="stable")]
    place = np.searchsorted(work.call[rows], call, side="left") - 1
    if not len(rows):
        return np.full(len(call), work.device[0], np.int64)
    last = rows[np.maximum(place, 0)]
    same = (place >= 0) & (thread[work.call[last]] == thread[call])
    return np.where(same, work.device[last], work.device[rows[0]])


def _last_ended(work: Work, code: Ints, wanted: Ints, since: Ints, until: Ints) -> Ints:
    """Returns of the work of each wanted code, launched before `since`, what ended last up to `until`; -1 for none after `since`."""
    out = np.full(len(wanted), -1, np.int64)
    order = np.lexsort((work.end, code))
    place = places_within(code[order], work.end[order], wanted, until, "right") - 1
    for _ in range(LOOKS_BACK):
        row = order[np.maximum(place, 0)]
        fits = (place >= 0) & (out < 0) & (code[row] == wanted) & (work.end[row] > since) & (work.launch[row] <= since)
        out = np.where(fits, row, out)
        place = place - 1
    return out


def _full(nodes: Nodes, work: Work, capture: Capture) -> Edges:
    """Returns the edges into launches that found their device's queue full: to each the work that ended last inside of it.

    How many commands a queue takes is read from the recording: at that many, launches are slow, and never there are more. A device that
    takes any number has no such edges.
    """
    found = [np.zeros((2, 0), np.int64)]
    h = at.host(capture)
    for device in np.unique(work.device).tolist():
        rows = np.flatnonzero((work.device == device) & (work.call >= 0))
        call, first = np.unique(work.call[rows], return_index=True)  # rows are by stream: the first work of each call on one of them
        duration = h.duration[call]
        slow = np.flatnonzero(duration > max(SLOW_LAUNCH_NS, SLOW_LAUNCHES * float(np.median(duration)) if len(duration) else 0))
        outstanding = outstanding_at(h.start[call], work.start[rows[first]], h.start[call])
        deep = slow[outstanding[slow] >= LEAST_QUEUE]
        if not len(deep) or outstanding.max() > PLATEAU * float(np.median(outstanding[deep])):
            continue
        until = h.start[call[deep]] + duration[deep]
        mine = np.flatnonzero(work.device == device)
        mine = mine[arrays.stable_order(work.end[mine])]
        place = np.searchsorted(work.end[mine], until, side="right") - 1
        found.append(np.stack((np.where(place >= 0, mine[np.maximum(place, 0)], -1), call[deep])))
    source, call = np.concatenate(found, axis=1)
    return _edges(nodes, work, source, call, QUEUE_FULL, INFERRED)


def outstanding_at(launched: Ints, started: Ints, times: Ints) -> Ints:
    """Returns how many commands were launched before each time and had not started: never negative. launched, started: of each command."""
    begun = np.maximum(started, launched)  # clocks that disagree start no command before its launch
    return np.searchsorted(np.sort(launched), times, side="left") - np.searchsorted(np.sort(begun), times, side="left")
