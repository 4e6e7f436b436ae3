"""Asks a graph what a step would take with other durations or fewer waits: the new schedule, its own critical path, and an interval.

A change scales the time of some work or latency, or takes waits away. The answer is a replay of every dependency: other work takes the
place of what became faster. Naive and first-order savings stand beside it, because they differ: the first subtracts the whole time of what
changes, the second what of it is on the critical path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from tb_sol_plugin.metrics.critical import passes
from tb_sol_plugin.metrics.critical.edges import EVENT, SYNC
from tb_sol_plugin.metrics.critical.items import By, edge_items, keys_of
from tb_sol_plugin.metrics.critical.parts import PARTS, class_sums, mean_of
from tb_sol_plugin.metrics.critical.path import OF_HOST, PLACE, Path, Walked, path_of, sums_along
from tb_sol_plugin.metrics.critical.replay import trust_of
from tb_sol_plugin.metrics.critical.window import Window, window_of_steps
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables.arrays import Ints, Mask, Rows

Change: TypeAlias = Literal[
    "item", "kernels", "host", "launches", "dataloader", "copies", "communication", "syncs", "overlap", "cuda_graph"
]
CLASSES_OF: Final[dict[str, tuple[str, ...]]] = {
    "kernels": PARTS["kernel_ns"][3], "host": tuple(c for c in OF_HOST if c not in ("host_runtime", "dataloader")),
    "launches": ("launch", "host_runtime"), "dataloader": ("dataloader",), "copies": ("copy", "memset"),
    "communication": ("communication",), "cuda_graph": ("host_operator", "host_runtime", "launch"),
}  # fmt: skip
"""Classes whose time each change scales; `cuda_graph` takes it away."""
DROPS: Final = {"syncs": SYNC, "overlap": EVENT}
"""Kinds of dependencies that a change takes away."""
FAR: Final = 2**61
"""A lag that no other one is below."""


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


def selected(capture: Capture, where: Scope, change: Change, by: By = "kernel", name: str = "") -> Mask:
    """Returns the dependencies of the window of a selection that a change is about. name: of an item, as `items` names it."""
    window = window_of_steps(capture, where)
    if change in DROPS:
        into = np.diff(window.first)[window.target]
        return np.asarray((window.kind == DROPS[change]) & (into > 1), np.bool_)  # what nothing else holds stays
    if change == "item":
        keys = keys_of(capture, by)
        code = keys.code(name)
        return np.asarray(edge_items(capture, window, keys, by) == (-2 if code is None else code), np.bool_)
    of_class = edge_items(capture, window, keys_of(capture, "class"), "class")
    return np.isin(of_class, [PLACE[c] for c in CLASSES_OF[change]])


def lags(window: Window, chosen: Mask, change: Change, scale: float) -> Ints:
    """Returns the lags after a change of the chosen dependencies."""
    out = window.lag.copy()
    if change in DROPS:
        out[chosen] = -FAR
    elif change == "cuda_graph":
        out[chosen] = 0
    else:
        out[chosen] = np.rint(out[chosen] * scale).astype(np.int64)
    return out


def outcome(capture: Capture, where: Scope, chosen: Mask, change: Change, scale: float) -> Outcome:
    """Returns what a change of the chosen dependencies gives over the steps of a selection."""
    path, window = path_of(capture, where), window_of_steps(capture, where)
    steps = len(path.rows)
    begin, end = int(path.begin.min()), int(path.end.max())
    whole = end - begin
    lag = lags(window, chosen, change, scale)
    time = window.times(lag)
    saved, most = window.earlier_ns(time), window.moved_ns(lags(window, chosen, change, 0.0))
    part = 1.0 if change in DROPS or change == "cuda_graph" else 1.0 - scale
    naive, first, before = _before(capture, window, chosen, path, begin, end)
    binding = passes.held_by(window.part.node[window.order], window.first, window.source, lag, time, window.binding)
    after, _ = sums_along(capture, _walked(window, time, lag, binding), window.last(time), begin, end - saved)
    return Outcome(
        round(whole / steps), round(saved / steps), round(most / steps), round(first * part / steps), round(naive * part / steps),
        round(trust_of(capture, where).error * whole / steps), int((chosen & window.inside).sum()),
        mean_of(before, steps), mean_of(after, steps),
    )  # fmt: skip


def _walked(window: Window, time: Ints, lag: Ints, binding: Rows) -> Walked:
    """Returns the window as a path goes over it, at other times."""
    return Walked(window.graph, time, window.source, lag, binding, window.nodes, window.edges)


def _before(capture: Capture, window: Window, chosen: Mask, path: Path, begin: int, end: int) -> tuple[int, int, Ints]:
    """Returns the time of the chosen dependencies, that of those on the path, and the sums of the path by class: all without the change."""
    inside = chosen & window.inside
    last = window.last(window.time)
    if len(path.rows) == 1 and path.ends[0] == window.in_graph(np.array([last]))[0]:
        sums, on_path = class_sums(path), window.edge_places(path.edge)
    else:
        sums, on_path = sums_along(capture, _walked(window, window.time, window.lag, window.binding), last, begin, end)
    held = np.zeros(len(chosen) + 1, np.bool_)
    held[on_path] = True
    return int(window.lag[inside].sum()), int(window.lag[inside & held[:-1]].sum()), sums
