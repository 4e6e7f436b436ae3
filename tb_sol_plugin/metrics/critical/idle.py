"""Says why devices idle, and how long the launch queues are.

A gap of a device is time in which none of its streams runs. Where it waits for the host, the time until the launch is split by what the
launching thread did in it, exactly; the rest is launch latency. Where the work was launched before, it waits for another stream, for the
start of a collective, or for something that no record explains. All causes together are the idle time of the device.

The queue of a stream holds what was launched and has not started. Work launched before the recording stands in it from the begin on: no
queue is ever shorter than empty.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.critical import passes
from tb_sol_plugin.metrics.critical.edges import EVENT, HANDOFF, QUEUE_FULL, SYNC
from tb_sol_plugin.metrics.critical.graph import Graph, graph_of
from tb_sol_plugin.metrics.critical.path import CLASSES, OF_HOST, PLACE, host_classes
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time import breakdown as B
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Mask, Objects

CAUSES: Final = {
    "host_python": "Python", "host_operator": "operators on the host", "host_runtime": "runtime calls", "host_other": "other host code",
    "dataloader": "data loading",
    "sync": "the host waited for the device", "handoff": "another thread worked", "launch": "launch latency",
    "kernel_wait": "hand-over between kernels", "event_wait": "another stream", "collective_wait": "start of a collective",
    "unexplained": "no recorded cause", "unknown": "no launch record",
}  # fmt: skip
"""Causes of idle time of a device, and what a page calls them."""
ON_HOST: Final = (*OF_HOST, "sync", "handoff")
"""What the launching thread does in the time before a launch."""


def idle(capture: Capture, rows: Mask, *, kernel_wait_ns: int = B.KERNEL_WAIT_NS) -> dict[str, Ints]:
    """Returns the columns of the gaps of `breakdown.gaps`, and one per cause of CAUSES, ns, which add up to each gap's duration."""
    found = B.gaps(capture, rows, kernel_wait_ns=kernel_wait_ns)
    start, length, cause, row = (found[c].to_numpy() for c in ("start_ns", "duration_ns", "cause", "next"))
    out = {name: np.zeros(len(found), np.int64) for name in CAUSES}
    late = np.flatnonzero(cause == B.CAUSES.index("host_wait"))
    call = capture.device["call"].to_numpy()[row[late]]
    until = np.clip(at.host(capture).start[call], start[late], (start + length)[late])
    for name, ns in zip(ON_HOST, thread_time(capture, at.host(capture).thread[call], start[late], until), strict=True):
        out[name][late] = ns
    out["launch"][late] = (start + length)[late] - until
    graph = graph_of(capture)
    other = cause == B.CAUSES.index("other")
    bound = graph.binding[graph.nodes.device_start(row)] if len(row) else row
    waits = other & (graph.edges.kinds(bound) == EVENT)
    collective = other & ~waits & (B.classes(capture)[row] == B.COMMUNICATION)
    for name, mask in (
        ("kernel_wait", cause == B.CAUSES.index("kernel_wait")), ("event_wait", waits), ("collective_wait", collective),
        ("unexplained", other & ~waits & ~collective), ("unknown", cause == B.CAUSES.index("unknown")),
    ):  # fmt: skip
        out[name][mask] = length[mask]
    return {name: found[name].to_numpy() for name in ("device", "start_ns", "duration_ns", "next")} | out


def thread_time(capture: Capture, thread: np.ndarray, begin: Ints, end: Ints) -> list[Ints]:
    """Returns ns of each window by what its thread does in it: one array per name of ON_HOST; they add up to the window."""
    graph = graph_of(capture)
    nodes = graph.nodes
    doing, bounds_of = _doing(capture, graph), np.append(np.flatnonzero(nodes.begins), nodes.hosts)
    threads = at.host(capture).thread[nodes.row[bounds_of[:-1]]]  # ascending, as the nodes stand
    out = [np.zeros(len(begin), np.int64) for _ in ON_HOST]
    by_thread = np.argsort(thread, kind="stable")
    bounds = np.flatnonzero(np.diff(thread[by_thread], prepend=-1, append=-1))
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        mine = by_thread[first:last]
        place = int(np.searchsorted(threads, thread[mine[0]]))
        if place < len(threads) and threads[place] == thread[mine[0]]:
            own = nodes.time[bounds_of[place] : bounds_of[place + 1]]
            low = max(int(np.searchsorted(own, begin[mine].min(), side="right")) - 1, 0)
            high = int(np.searchsorted(own, end[mine].max(), side="right"))
            some = slice(int(bounds_of[place]) + low, int(bounds_of[place]) + high)
            moments = np.concatenate((begin[mine], end[mine]))
            each = passes.doing_until(nodes.time[some], doing[some], moments, len(ON_HOST), ON_HOST.index("host_other"))
            for code, took in enumerate(each[:, len(mine) :] - each[:, : len(mine)]):
                out[code][mine] = took
    return out


def _doing(capture: Capture, graph: Graph) -> npt.NDArray[np.int8]:
    """Returns the place in ON_HOST of what each thread does after each of its nodes, until the next."""

    def make() -> npt.NDArray[np.int8]:
        nodes = graph.nodes
        of_class = np.full(len(CLASSES), ON_HOST.index("host_other"), np.int8)
        for name in OF_HOST:
            of_class[PLACE[name]] = ON_HOST.index(name)
        out = of_class[host_classes(capture)[nodes.inside]]
        bound = np.append(graph.edges.kind, np.int8(-1))[graph.binding[: nodes.hosts]]
        for name, kinds in (("sync", (SYNC, QUEUE_FULL)), ("handoff", (HANDOFF,))):
            ended = np.flatnonzero(np.logical_or.reduce([bound == kind for kind in kinds]) & ~nodes.begins)
            out[ended - 1] = ON_HOST.index(name)
        return out

    return memo(capture, ("critical.doing",), make)


def streams(capture: Capture, rows: Mask, *, kernel_wait_ns: int = B.KERNEL_WAIT_NS) -> dict[str, Objects]:
    """Returns the columns of one row per stream with work in a selection.

    Columns: device, stream, events, busy_ns, idle_ns (between its events), host_wait, kernel_wait, other, unknown (idle_ns by cause, as
    `breakdown.CAUSES`), queue_mean (over time from its first launch to its last start), queue_max, empty_ns (with nothing in its queue).
    """
    graph = graph_of(capture)
    work = graph.work
    ids, numbers = (capture.device[name].to_numpy() for name in ("device", "stream"))
    chosen = rows[graph.nodes.device]
    out = []
    bounds = np.flatnonzero(np.diff(work.stream, prepend=-1, append=-1))
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        mine = low + np.flatnonzero(chosen[low:high])
        if not len(mine):
            continue
        row = int(graph.nodes.device[low])
        ends = np.maximum.accumulate(work.end[mine])
        start, free, launch = work.start[mine][1:], ends[:-1], work.launch[mine][1:]
        gap = np.maximum(start - free, 0)
        cause = np.select(
            [work.call[mine][1:] < 0, launch > free, gap < kernel_wait_ns],
            [B.CAUSES.index("unknown"), B.CAUSES.index("host_wait"), B.CAUSES.index("kernel_wait")], B.CAUSES.index("other"),
        )  # fmt: skip
        sums = arrays.exact_sums(cause, gap, len(B.CAUSES))
        mean, most, empty = _queue(capture, graph, mine)
        out.append((
            int(ids[row]), int(numbers[row]), len(mine), int(ends[-1] - work.start[mine[0]] - gap.sum()),
            int(gap.sum()), *sums.tolist(), mean, most, empty,
        ))  # fmt: skip
    names = ["device", "stream", "events", "busy_ns", "idle_ns", *B.CAUSES, "queue_mean", "queue_max", "empty_ns"]
    return {name: np.array([one[i] for one in out], object) for i, name in enumerate(names)}


def _queue(capture: Capture, graph: Graph, mine: Ints) -> tuple[float, int, int]:
    """Returns (mean length of a stream's queue over time, the greatest, ns in which it is empty); NaN and 0 where no launch is known."""
    work = graph.work
    early = capture.device["link"].to_numpy()[graph.nodes.device[mine]] == S.BEFORE_WINDOW
    known = mine[(work.call[mine] >= 0) | early]
    if not len(known):
        return float("nan"), 0, 0
    first = int(min(work.launch[known][work.call[known] >= 0].min(initial=np.iinfo(np.int64).max), work.start[known].min()))
    launched = np.where(work.call[known] >= 0, work.launch[known], first)
    started = np.maximum(work.start[known], launched)
    moment = np.concatenate((launched, started))
    order = np.lexsort((np.repeat((0, 1), len(known)), moment))
    length = np.cumsum(np.repeat((1, -1), len(known))[order])
    span = np.diff(moment[order], append=moment[order][-1])
    whole = int(span.sum())
    mean = float((length * span).sum() / whole) if whole else 0.0
    return mean, int(length.max()), int(span[length == 0].sum())
