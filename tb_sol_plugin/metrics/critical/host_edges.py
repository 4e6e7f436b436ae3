"""Connects moments of the host: the work and waits of each thread, and the hand-overs between the caller and the engine of autograd.

Between two moments of a thread the program works, as long as measured. It waits only where that is seen: an interval of more than
`WAIT_NS` whose innermost event is none, an annotation, or a frame known to wait, in which another thread finished or handed over work.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.critical.edges import HANDOFF, HOST, INFERRED, RECORDED, Edges, edges
from tb_sol_plugin.metrics.critical.nodes import Nodes
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Mask

WAIT_NS: Final = 20_000
"""Threads that wait for each other are silent for longer than this."""
HAND_OVER_NS: Final = 1_000
"""A hand-over between threads costs at least this much."""
WAITING_FRAME: Final = re.compile(r"run_backward|\block\b.*acquire|acquire.*\block\b|queue\.py\(\d+\): get|\bpoll\b|\bselect\b")
"""Python frames in which a thread waits for another one."""
BACKWARD_FRAME: Final = re.compile(r"run_backward")
MOST_ENGINES: Final = 64
"""Threads of autograd that are looked at per process: those with most operators; it has one per device."""
ENGINE: Final = re.compile(r"^autograd::engine::evaluate_function")


def host_edges(capture: Capture, nodes: Nodes, waited: npt.NDArray[np.integer], returns_ns: int) -> list[Edges]:
    """Returns the edges between moments of threads.

    waited: nodes at which a call ended that waited for the device: of the time before them only `returns_ns` is work of the host.
    """
    target = np.flatnonzero(~nodes.begins)
    time = nodes.time[: nodes.hosts]
    least = time[target] - time[target - 1]
    handed, free = _handoffs(capture, nodes)
    cost = np.full(nodes.hosts, np.iinfo(np.int64).max, np.int64)
    cost[waited] = returns_ns
    cost[free] = HAND_OVER_NS
    return [edges(target - 1, target, HOST, RECORDED, np.minimum(least, cost[target])), handed]


def _handoffs(capture: Capture, nodes: Nodes) -> tuple[Edges, Ints]:
    """Returns (hand-overs between the threads of each process, the nodes that come after a wait for one)."""
    found: list[tuple[Ints, Ints, Mask]] = []
    for main, engines in threads_of(capture, nodes):
        for engine in engines:
            found += [_wakes(capture, nodes, main, engine), _wakes(capture, nodes, engine, main)]
    none = np.zeros(0, np.int64)
    source, target = (np.concatenate([none, *(pair[i] for pair in found)]) for i in (0, 1))
    known = np.concatenate([np.zeros(0, np.bool_), *(pair[2] for pair in found)])
    return edges(source, target, HANDOFF, np.where(known, RECORDED, INFERRED), HAND_OVER_NS), target


def _wakes(capture: Capture, nodes: Nodes, waker: tuple[int, int], sleeper: tuple[int, int]) -> tuple[Ints, Ints, Mask]:
    """Returns (the last node of one thread inside each wait of another, where it begins to wait itself; that after it; if recorded)."""
    time = nodes.time
    wake = np.arange(sleeper[0] + 1, sleeper[1])
    wake = wake[(time[wake] - time[wake - 1] > WAIT_NS) & _may_wait(capture, nodes, wake - 1)]
    wake = np.concatenate(([sleeper[0]], wake))
    since = np.where(wake > sleeper[0], time[wake - 1], np.iinfo(np.int64).min)
    last = waker[0] + np.searchsorted(time[waker[0] : waker[1]], time[wake], side="left") - 1
    there = last >= waker[0]
    safe = np.maximum(last, waker[0])
    following = np.minimum(safe + 1, waker[1] - 1)
    rests = (safe == waker[1] - 1) | (time[following] - time[safe] > WAIT_NS)
    good = there & (time[safe] > since) & rests & ((safe == waker[1] - 1) | _may_wait(capture, nodes, safe))
    source, target = safe[good], wake[good]
    recorded = np.zeros(len(source), np.bool_)
    frames = _frames(capture, BACKWARD_FRAME)
    for node in (source, target - 1):
        row = nodes.inside[np.maximum(node, 0)]
        recorded |= (row >= 0) & frames[np.maximum(row, 0)]
    return source, target, recorded


def _may_wait(capture: Capture, nodes: Nodes, node: npt.NDArray[np.integer]) -> Mask:
    """Returns whether what is innermost after each node may be a wait: nothing, an annotation, or a frame known to wait."""
    row = nodes.inside[node]
    kind = at.host(capture).kind[np.maximum(row, 0)]
    frames = _frames(capture, WAITING_FRAME)
    return np.asarray((row < 0) | (kind == S.ANNOTATION) | frames[np.maximum(row, 0)], np.bool_)


def _frames(capture: Capture, pattern: re.Pattern[str]) -> Mask:
    """Returns per host row whether it is a Python frame whose name has a pattern."""

    def make() -> Mask:
        return at.mask_of(capture, at.named(capture, S.FRAME, lambda n: pattern.search(n) is not None))

    return memo(capture, ("critical.frames", pattern.pattern), make)


def threads_of(capture: Capture, nodes: Nodes) -> list[tuple[tuple[int, int], list[tuple[int, int]]]]:
    """Returns per process (nodes of its main thread, those of each engine of autograd), as begin and end.

    The main thread has the steps, else the most operators that are not of an engine.
    """
    h = at.host(capture)
    begins = np.flatnonzero(nodes.begins)
    if not len(begins):
        return []
    ends = np.append(begins[1:], nodes.hosts)
    thread = h.thread[nodes.row[begins]]
    count = int(h.thread.max()) + 1
    engine = np.bincount(h.thread[at.named(capture, S.OPERATOR, lambda n: ENGINE.match(n) is not None)], minlength=count)
    table = capture.tables["operators"]
    backward = table["host"].to_numpy()[table["forward_thread"].to_numpy() > 0]
    engine = engine + np.bincount(h.thread[backward], minlength=count)
    steps = capture.steps["host"].to_numpy()
    stepped = np.bincount(h.thread[steps[steps >= 0]], minlength=count)
    operators = np.bincount(h.thread[at.of_kind(capture, S.OPERATOR)], minlength=count) - engine
    process = arrays.codes(capture.tables["threads"]["process"])[thread]
    order = np.argsort(process, kind="stable")
    out = []
    for own in np.split(order, np.flatnonzero(np.diff(process[order])) + 1):
        main = own[np.lexsort((operators[thread[own]], stepped[thread[own]]))[-1]]
        busy = own[(engine[thread[own]] > 0) & (own != main)]
        engines = busy[np.argsort(-engine[thread[busy]], kind="stable")][:MOST_ENGINES].tolist()
        out.append(((int(begins[main]), int(ends[main])), [(int(begins[i]), int(ends[i])) for i in engines]))
    return out
