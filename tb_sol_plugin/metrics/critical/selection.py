"""Finds what of the graph of a selection a change is about: work, latencies or waits, of all of it or inside of some host events."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.critical.edges import DEVICE, EVENT, HANDOFF, HOST, LAUNCH, QUEUE_FULL, STREAM, SYNC
from tb_sol_plugin.metrics.critical.items import By, edge_items, keys_of
from tb_sol_plugin.metrics.critical.layout import Layout
from tb_sol_plugin.metrics.critical.parts import PARTS
from tb_sol_plugin.metrics.critical.path import LABELS, OF_HOST, PLACE
from tb_sol_plugin.metrics.critical.window import Window
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.work.work import work
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints, Mask

Kind: TypeAlias = Literal[
    "item", "kernels", "host", "launches", "dataloader", "copies", "communication", "syncs", "overlap", "cuda_graph", "roofline"
]
What: TypeAlias = Literal[By, "event"]
CLASSES_OF: Final[dict[str, tuple[str, ...]]] = {
    "kernels": PARTS["kernel_ns"][3], "host": tuple(c for c in OF_HOST if c not in ("host_runtime", "dataloader")),
    "launches": ("launch", "host_runtime"), "dataloader": ("dataloader",), "copies": ("copy", "memset"),
    "communication": ("communication",), "cuda_graph": ("host_operator", "host_runtime", "launch"),
}  # fmt: skip
"""Classes whose time each change is about."""
WAITS: Final = (EVENT, SYNC, QUEUE_FULL, HANDOFF)
"""Kinds of edges that one waits for: they can be taken away, and not only their time."""
EVENT_ROW: Final = re.compile(r"^\s*(device|host)\s+(\d{1,12})\s*$")


def class_edges(capture: Capture, window: Window, classes: tuple[str, ...]) -> Ints:
    """Returns the edges whose time is of some classes."""
    return np.flatnonzero(np.isin(edge_items(capture, window, keys_of(capture, "class"), "class"), [PLACE[c] for c in classes]))


def edges_of(capture: Capture, layout: Layout, change: Kind, by: What = "kernel", name: str = "", inside: str = "") -> Ints:
    """Returns the edges of the window that a change is about. name: of an item. inside: name of host events, "" for all."""
    window = layout.window
    if change == "roofline":
        found = np.flatnonzero(window.kind == DEVICE)
    elif change in ("syncs", "overlap"):
        found = np.flatnonzero(window.kind == (SYNC if change == "syncs" else EVENT))
    elif change != "item":
        found = class_edges(capture, window, CLASSES_OF[change])
    elif by == "event":
        found = _of_rows(capture, window, name)
    elif by == "class":
        found = class_edges(capture, window, tuple(c for c, label in LABELS.items() if label == name))
    else:
        keys = keys_of(capture, by)
        code = keys.code(name)
        found = np.flatnonzero(edge_items(capture, window, keys, by) == (-2 if code is None else code))
    if inside:
        found = found[np.append(rows_inside(capture, inside), False)[host_rows(window, found)]]
    return found[~_first_of_graphs(capture, layout, found, inside)] if change == "cuda_graph" else found


def host_rows(window: Window, edges: npt.NDArray[np.integer]) -> Ints:
    """Returns the host row that the time of each edge of a window belongs to: of device work its launching call; -1 none."""
    graph = window.graph
    nodes, node = graph.nodes, window.in_graph(window.target[edges]).astype(np.int64)
    out = np.full(len(edges), -1, np.int64)
    on_device = node >= nodes.hosts
    out[on_device] = graph.work.call[(node[on_device] - nodes.hosts) // 2]
    works = window.kind[edges] == HOST
    out[works] = nodes.inside[node[works] - 1]
    others = ~on_device & ~works
    out[others] = nodes.row[node[others]]
    return out


def rows_inside(capture: Capture, name: str) -> Mask:
    """Returns the host rows in events of a name, with these; on threads of a backward pass those in the time of such of its caller."""

    def make() -> Mask:
        h, names = at.host(capture), arrays.coded(capture.host["name"])
        own = np.flatnonzero(np.append(names.categories == name, False)[names.codes])
        inside = np.zeros(len(h.start) + 1, np.int64)
        np.add.at(inside, own, 1)
        np.subtract.at(inside, h.end[own], 1)
        out = np.cumsum(inside)[:-1] > 0
        for thread, issuer in at.issuing_threads(capture).items() if len(own) else ():
            mine = own[h.thread[own] == issuer]
            low, high = np.searchsorted(h.thread, (thread, thread + 1)).tolist()
            begin, end = iv.union(h.start[mine], h.stop[mine])
            place = np.searchsorted(begin, h.start[low:high], side="right") - 1
            out[low:high] |= (place >= 0) & (h.start[low:high] < np.append(end, 0)[place])
        return out

    return memo(capture, ("critical.inside", name), make)


def _first_of_graphs(capture: Capture, layout: Layout, edges: Ints, inside: str) -> Mask:
    """Returns which of some edges are of the first launch of each step, or of each event of a name: that of the graph in their place."""
    window, h = layout.window, at.host(capture)
    row = host_rows(window, edges)
    launched = np.unique(window.graph.work.call[window.graph.work.call >= 0])
    if inside:
        launched = launched[rows_inside(capture, inside)[launched]]
        own = at.where_named(capture, lambda n: n == inside)
        begin, _ = iv.union(h.start[own], h.stop[own])
    else:
        begin = np.unique(layout.begins)
    launched = launched[np.argsort(h.start[launched], kind="stable")]
    _, first = np.unique(np.searchsorted(begin, h.start[launched], side="right"), return_index=True)
    return np.isin(row, launched[first])


def waits_of(window: Window, edges: Ints) -> Ints:
    """Returns those of some edges that can be taken away."""
    return edges[np.isin(window.kind[edges], WAITS)]


def removed_with(capture: Capture, window: Window, edges: Ints) -> Ints:
    """Returns the edges that go with device work that is not there: its launches, calls that launch nothing else, and gaps before it."""
    graph = window.graph
    gone: Ints = window.target[edges[window.kind[edges] == DEVICE]].astype(np.int64) - 1
    if not len(gone):
        return gone
    starts = np.zeros(len(window.time), np.bool_)
    starts[gone] = True
    into = np.flatnonzero(np.isin(window.kind, (LAUNCH, STREAM)) & starts[window.target])
    place = (window.in_graph(gone).astype(np.int64) - graph.nodes.hosts) // 2
    calls = graph.work.call[place]
    known = calls[calls >= 0]
    size = len(capture.host)
    here = np.bincount(known, minlength=size)
    alone = (here > 0) & (here == np.bincount(graph.work.call[graph.work.call >= 0], minlength=size))
    works = np.flatnonzero((window.kind == HOST) & window.works)
    row = graph.nodes.inside[window.in_graph(window.target[works]) - 1]
    return np.concatenate((into, works[np.append(alone, False)[row]]))


def undropped(window: Window, edges: Ints) -> Ints:
    """Returns which edges of a window can be taken away: those stay without which a moment waits for nothing."""
    target = window.target[edges]
    taken = np.bincount(target, minlength=len(window.time)) if len(edges) else np.zeros(len(window.time), np.int64)
    return edges[np.diff(window.first)[target] > taken[target]]


def above_limits(capture: Capture, spec: DeviceSpec | None) -> Ints:
    """Returns ns of each device row above its part of the limit of its operator call; 0 where the call has no limit."""
    done, duration = work(capture, spec), capture.device["duration_ns"].to_numpy()
    out = np.zeros(len(duration), np.int64)
    if done.from_ledger or len(done.owner) != len(duration) or spec is None:
        return out
    limit, took = (done.ops[c].to_numpy(dtype=np.float64) for c in ("sol_ns", "device_sum_ns"))
    with np.errstate(invalid="ignore", divide="ignore"):
        over = np.append(np.where((took > 0) & np.isfinite(limit), np.clip(1 - limit / took, 0.0, 1.0), 0.0), 0.0)
    out[:] = np.rint(over[done.owner] * duration)
    return out


def event_rows(text: str) -> dict[str, list[int]] | None:
    """Returns rows of events by table from a text such as "device 12, host 7"; None where it is no such text."""
    out: dict[str, list[int]] = {"device": [], "host": []}
    for part in text.split(","):
        found = EVENT_ROW.match(part)
        if found is None:
            return None
        out[found[1]].append(int(found[2]))
    return out


def _of_rows(capture: Capture, window: Window, text: str) -> Ints:
    """Returns the edges of some rows: device work, and the own time of host events."""
    rows = event_rows(text) or {"device": [], "host": []}
    nodes = window.graph.nodes
    runs, works = np.flatnonzero(window.kind == DEVICE), np.flatnonzero((window.kind == HOST) & window.works)
    own = nodes.device_rows(window.in_graph(window.target[runs]))
    inside = nodes.inside[window.in_graph(window.target[works]) - 1]
    return np.concatenate((runs[np.isin(own, rows["device"])], works[np.isin(inside, rows["host"])]))
