"""Asks a graph what a step would take with other durations or fewer waits: the new schedule, its own critical path, and an interval.

A change scales the time of some work or latency, or takes waits away. The answer is a replay of every dependency: other work takes the
place of what became faster. Naive and first-order savings stand beside it, because they differ: the first subtracts the whole time of what
changes, the second what of it is on the critical path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.metrics.critical.edges import DEVICE, EVENT, SYNC
from tb_sol_plugin.metrics.critical.items import By, edge_items, keys_of
from tb_sol_plugin.metrics.critical.layout import Chosen, Layout, kept, layout_of, of_classes, of_edges
from tb_sol_plugin.metrics.critical.parts import PARTS, mean_of
from tb_sol_plugin.metrics.critical.path import LABELS, OF_HOST
from tb_sol_plugin.metrics.critical.replay import trust_of
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.work.work import work
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables.arrays import Ints

Change: TypeAlias = Literal[
    "item", "kernels", "host", "launches", "dataloader", "copies", "communication", "syncs", "overlap", "cuda_graph", "roofline"
]
CLASSES_OF: Final[dict[str, tuple[str, ...]]] = {
    "kernels": PARTS["kernel_ns"][3], "host": tuple(c for c in OF_HOST if c not in ("host_runtime", "dataloader")),
    "launches": ("launch", "host_runtime"), "dataloader": ("dataloader",), "copies": ("copy", "memset"),
    "communication": ("communication",), "cuda_graph": ("host_operator", "host_runtime", "launch"),
}  # fmt: skip
"""Classes whose time each change scales; `cuda_graph` takes it away."""
WHOLE: Final = ("cuda_graph", "roofline")
"""Changes that take all of their time away: the launches of a graph, what kernels take above their limits."""
DROPS: Final = {"syncs": SYNC, "overlap": EVENT}
"""Kinds of dependencies that a change takes away."""


@dataclass(frozen=True)
class Outcome:
    """What a change gives, per step, ns. window: from the first start to the last end of the steps, over their number.

    saved: less than the window; at most: where what changes costs nothing. first_order: what of it is on the path, naive: all of it.
    error: of a saving. changed: dependencies in the steps that change. before, after: time of each class on the path; they add up to the
    window and to what is left of it.
    """

    window: int
    saved: int
    at_most: int
    first_order: int
    naive: int
    error: int
    changed: int
    before: Ints
    after: Ints


def selected(
    capture: Capture, where: Scope, change: Change, by: By = "kernel", name: str = "", spec: DeviceSpec | None = None
) -> Chosen:  # fmt: skip
    """Returns what of the graph of a selection a change is about. name: of an item, as `items` names it. spec: the limits of `roofline`."""
    key = (change, by, name, spec.fingerprint if spec is not None and change == "roofline" else "")
    return kept(capture, where, key, lambda: _selected(capture, layout_of(capture, where), change, by, name, spec))


def _selected(capture: Capture, layout: Layout, change: Change, by: By, name: str, spec: DeviceSpec | None) -> Chosen:
    window = layout.window
    if change == "roofline":
        runs = np.flatnonzero(window.kind == DEVICE)
        above = above_limits(capture, spec)[window.graph.nodes.device_rows(window.in_graph(window.target[runs]))]
        return of_edges(capture, layout, runs[above > 0], above[above > 0])
    if change in DROPS:
        return dropped(capture, layout, np.flatnonzero(window.kind == DROPS[change]))
    if change != "item":
        return of_classes(layout, CLASSES_OF[change])
    if by == "class":
        return of_classes(layout, tuple(c for c, label in LABELS.items() if label == name))
    keys = keys_of(capture, by)
    code = keys.code(name)
    return of_edges(capture, layout, np.flatnonzero(edge_items(capture, window, keys, by) == (-2 if code is None else code)))


def dropped(capture: Capture, layout: Layout, edges: Ints) -> Chosen:
    """Returns edges of the window to take away; those stay without which a moment waits for nothing."""
    window = layout.window
    target = window.target[edges]
    taken = np.bincount(target, minlength=len(window.time)) if len(edges) else np.zeros(len(window.time), np.int64)
    return of_edges(capture, layout, edges[np.diff(window.first)[target] > taken[target]])


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


def factor(change: Change, scale: float) -> float | None:
    """Returns what a change scales its time by; None where it takes waits away."""
    return None if change in DROPS else 0.0 if change in WHOLE else scale


def outcome(capture: Capture, where: Scope, chosen: Chosen, change: Change, scale: float) -> Outcome:
    """Returns what a change gives over the steps of a selection."""
    layout, by = chosen.layout, factor(change, scale)
    steps, whole = layout.steps, layout.end - layout.begin
    saved, after = chosen.then(by)
    part = 1.0 if by is None else 1.0 - by
    most = saved if by is None else int(chosen.saved_at((0.0,))[0])
    now = round(whole / steps)  # what is saved is what is left of it: the classes then add up to that
    return Outcome(
        now, now - round((whole - saved) / steps), now - round((whole - most) / steps), round(chosen.first_order * part / steps),
        round(chosen.naive * part / steps), round(trust_of(capture, where).error * whole / steps), chosen.changed,
        mean_of(layout.before, steps), mean_of(after, steps),
    )  # fmt: skip
