"""Asks a graph what a step would take with other durations or fewer waits: the new schedule, its own critical path, and an interval.

Several changes are made at once, each of what those before it left. The answer is a replay of every dependency: other work takes the place
of what became faster. Naive and first-order savings stand beside it, because they differ: the first subtracts the whole time of what
changes, the second what of it is on the critical path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec
import numpy as np

from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.metrics.critical.edges import HOST
from tb_sol_plugin.metrics.critical.layout import Amounts, Chosen, Layout, Part, kept, layout_of, of_classes, of_edges
from tb_sol_plugin.metrics.critical.parts import mean_of
from tb_sol_plugin.metrics.critical.path import LABELS
from tb_sol_plugin.metrics.critical.replay import trust_of
from tb_sol_plugin.metrics.critical.selection import CLASSES_OF, Kind, What, above_limits, edges_of, removed_with, undropped, waits_of
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Ints

WHOLE: Final = ("cuda_graph", "roofline")
"""Changes that take all of their time away: the launches of a graph, what kernels take above their limits."""
DROPS: Final = ("syncs", "overlap")
"""Changes that take waits away."""
MOST: Final = 16
"""Changes at once."""


class Change(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One change: what of the steps, and what becomes of its time: `scale` of it, or `set_ns` for each of its events, or none of it.

    remove: it is not there: its launches, and the time between it and the work before it on its stream, go with it.
    """

    change: Kind = "item"
    by: What = "kernel"
    item: str = ""
    inside: str = ""
    scale: float = 0.5
    set_ns: float | None = None
    remove: bool = False

    @property
    def how(self) -> Literal["gone", "remove", "set", "scale"]:
        """What becomes of it; `gone` where the change itself says so."""
        if self.change in (*WHOLE, *DROPS):
            return "gone"
        return "remove" if self.remove else "set" if self.set_ns is not None else "scale"

    @property
    def about(self) -> tuple[str, ...]:
        """What it is about, whatever the scale or the time that is set."""
        return (self.change, *((self.by, self.item) if self.change == "item" else ("", "")), self.inside, self.how)

    def amount(self, times: float, each: float) -> tuple[float, float]:
        """Returns what becomes of a time that was multiplied by `times`, with `each` ns for each event."""
        if self.how == "scale":
            return times * self.scale, each * self.scale
        return 0.0, float(self.set_ns or 0) if self.how == "set" else 0.0


@dataclass(frozen=True)
class Outcome:
    """What changes give, per step, ns. window: from the first start to the last end of the steps, over their number.

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


@dataclass(frozen=True, eq=False)
class Plan:
    """What some changes are about. members: of each group of time the places of the changes that it is of."""

    chosen: Chosen
    members: tuple[tuple[int, ...], ...]

    def amounts(self, changes: Sequence[Change]) -> Amounts:
        """Returns what becomes of each group, one change after the other."""
        out = np.ones((2, self.chosen.groups))
        out[1] = 0.0
        for group, places in enumerate(self.members):
            times, each = 1.0, 0.0
            for place in places:
                times, each = changes[place].amount(times, each)
            out[:, group] = times, each
        return Amounts(out[0], out[1])


def plan_of(capture: Capture, where: Scope, changes: Sequence[Change], spec: DeviceSpec | None = None) -> Plan:
    """Returns what of the graph of a selection changes. spec: the limits of `roofline`."""
    limits = spec.fingerprint if spec is not None and any(c.change == "roofline" for c in changes) else ""
    key = (tuple(c.about for c in changes), limits)
    return kept(capture, where, key, lambda: _plan(capture, layout_of(capture, where), changes, spec))


def _plan(capture: Capture, layout: Layout, changes: Sequence[Change], spec: DeviceSpec | None) -> Plan:
    if len(changes) == 1:
        one = changes[0]
        classes = CLASSES_OF.get(one.change, ()) if one.change != "cuda_graph" else ()
        if one.change == "item" and one.by == "class":
            classes = tuple(c for c, label in LABELS.items() if label == one.item)
        if classes and one.how == "scale" and not one.inside:
            return Plan(of_classes(layout, classes), ((0,),))  # the layout knows them: no edge is looked at
    window = layout.window
    size = len(window.lag)
    of, dropped, above = np.zeros(size, np.int64), np.zeros(size, np.bool_), np.zeros(size, np.int64)
    limited = next((i for i, c in enumerate(changes) if c.change == "roofline"), -1)
    for place, one in enumerate(changes):
        edges = edges_of(capture, layout, one.change, one.by, one.item, one.inside)
        if one.change == "roofline":  # several are one: no kernel goes below its limit
            over = above_limits(capture, spec)[window.graph.nodes.device_rows(window.in_graph(window.target[edges]))]
            edges, place = edges[over > 0], limited
            above[edges] = over[over > 0]
        elif one.change in DROPS:
            dropped[edges] = True
        elif one.how == "remove":
            dropped[waits_of(window, edges)] = True
            edges = np.concatenate((edges, removed_with(capture, window, edges)))
        of[edges] |= 1 << place
    drops = undropped(window, np.flatnonzero(dropped))
    dropped[drops] = False
    of[dropped] = 0
    edges = np.flatnonzero(of)
    sets = any(c.how == "set" for c in changes)
    every, bits, part = _with_limits(layout, edges, of[edges], above[edges], limited, sets)
    known, group = np.unique(bits, return_inverse=True)
    members = tuple(tuple(p for p in range(len(changes)) if bit >> p & 1) for bit in known.tolist())
    return Plan(of_edges(capture, layout, every, group.astype(np.int64), len(members), part, drops), members)


def _with_limits(layout: Layout, edges: Ints, bits: Ints, above: Ints, limited: int, sets: bool) -> tuple[Ints, Ints, Part | None]:
    """Returns (edges, the changes that each is of, what of it counts): of a kernel above its limit that and the rest apart.

    limited: the change that takes away what is above. sets: whether events are to be counted.
    """
    events = _events(layout, edges) if sets else None
    over = np.flatnonzero(above)
    if not len(over):
        return edges, bits, Part(np.full(len(edges), -1), np.ones(len(edges), np.int64), events) if sets else None
    rest = over[bits[over] != 1 << limited]
    ns = np.concatenate((np.where(above > 0, above, -1), layout.window.lag[edges[rest]] - above[rest]))
    count = np.concatenate((np.ones(len(edges), np.int64), np.zeros(len(rest), np.int64)))
    if events is not None:
        more = events[rest]
        events[over] = 0.0
        events = np.concatenate((events, more))
    others = bits[rest] & ~(1 << limited)
    return np.concatenate((edges, edges[rest])), np.concatenate((bits, others)), Part(ns, count, events)


def _events(layout: Layout, edges: Ints) -> Floats:
    """Returns how many events each edge is the time of: host events are parts of several, in proportion to their lengths."""
    window = layout.window
    out = np.ones(len(edges))
    mine = np.flatnonzero(window.kind[edges] == HOST)
    if len(mine):
        row = window.graph.nodes.inside[window.in_graph(window.target[edges[mine]]) - 1].astype(np.int64)
        ns = window.lag[edges[mine]]
        _, first, place = np.unique(row, return_index=True, return_inverse=True)
        own = arrays.exact_sums(place, ns, len(first))[place]
        out[mine] = np.where(own > 0, ns / np.maximum(own, 1), 0.0)
        out[mine[first[own[first] == 0]]] = 1.0
    return out


def outcome(capture: Capture, where: Scope, changes: Sequence[Change], spec: DeviceSpec | None = None) -> Outcome:
    """Returns what some changes give over the steps of a selection. spec: the limits of `roofline`."""
    plan = plan_of(capture, where, changes, spec)
    chosen, amounts = plan.chosen, plan.amounts(changes)
    layout = chosen.layout
    steps, whole = layout.steps, layout.end - layout.begin
    saved, after = chosen.then(amounts)
    first_order, naive = chosen.less(amounts)
    now = round(whole / steps)  # what is saved is what is left of it: the classes then add up to that
    return Outcome(
        now, now - round((whole - saved) / steps), now - round((whole - chosen.saved_ns(chosen.scaled(0.0))) / steps),
        round(first_order / steps), round(naive / steps), round(trust_of(capture, where).error * whole / steps), chosen.changed,
        mean_of(layout.before, steps), mean_of(after, steps),
    )  # fmt: skip
