"""Builds the module tree: calls of `nn.Module` merged into nodes by their path, with host, device and modeled work per node.

A node is a module instance below the node that called it; calls of the same instance at the same place are one node. Where one
instance is called from two places it is two nodes, and their sums add up to the instance's own. A call straight inside a call of the
same instance belongs to that node: its time is in the outer call's.
Nodes stand in preorder, children by the time of their first call; `end` is one past the last node of the subtree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.devices.limits import devices_in_use
from tb_sol_plugin.metrics import memo, memo_under
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time import scope
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.trees.module_tree import ModuleTree, module_tree
from tb_sol_plugin.metrics.work.joined import iterations_of
from tb_sol_plugin.metrics.work.ownership import recomputed
from tb_sol_plugin.metrics.work.sums import VALUES, Calls, calls_of, subtree_sums, summed
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask, Places, Rows

# -- Work of operator calls credited to module nodes -----------------------------------------------------------------
# forward work by containment, backward work through its forward operator.
#
# Every call counts at one node, the innermost; a node holds its own calls and those of the nodes below it. Forward work that runs again
# inside the backward pass is forward work: of the module call around it, or where none was recorded there, of its forward operator's.
# A call that a SOL capture counted carries its module itself, backward work that of its forward operator.


Direction = Literal["forward", "backward", "both"]
Nodes = npt.NDArray[np.int32]

OUTSIDE: Final = -1
LEFT_OUT: Final = -2


@dataclass(frozen=True)
class ModuleWork:
    """Work of operator calls per node of the module tree.

    node: per call its node, OUTSIDE every module, or LEFT_OUT by the direction. own, inclusive: sums of VALUES per node.
    """

    calls: Calls
    node: Nodes
    own: dict[str, Floats]
    inclusive: dict[str, Floats]


def module_work(
    capture: Capture,
    part: Scope,
    of_host: Nodes,
    end: Nodes,
    direction: Direction = "both",
    limits: str = "",
    *,
    of_label: Nodes | None = None,
) -> ModuleWork:
    """Returns the work per node. of_host: node per host row that is a module call, -1 for others; of_label in its place: per row of
    `labels`. end: one past the subtree, per node in preorder.

    forward: backward work of a trace counts outside, that of a ledger, which tells every call's direction, is left out; backward:
    forward work inside modules is left out, of a ledger all of it.
    """
    calls = calls_of(capture, part, limits)
    node, backward = _credited(capture, calls, of_host, of_label)
    if direction != "both" and (of_label is not None or calls.done.from_ledger):
        node = np.where(backward == (direction == "backward"), node, LEFT_OUT)
    elif direction == "forward":
        node = np.where(backward, OUTSIDE, node)
    elif direction == "backward":
        node = np.where(~backward & (node >= 0), LEFT_OUT, node)
    own = summed(calls.values, node, len(end))
    return ModuleWork(calls, node.astype(np.int32), own, subtree_sums(own, end))


def _credited(capture: Capture, calls: Calls, of_host: Nodes, of_label: Nodes | None) -> tuple[Nodes, npt.NDArray[np.bool_]]:
    """Returns (node per call, whether it is backward work of that node)."""
    if of_label is not None:
        label = capture.tables["ledger"]["module"].to_numpy()[calls.ops["ledger"].to_numpy()]
        return of_label[label].astype(np.int32), arrays.coded(calls.ops["direction"]).codes == 1
    h = at.host(capture)
    if not len(h.start) or not len(of_host):
        return np.full(len(calls.host), OUTSIDE, np.int32), np.zeros(len(calls.host), bool)
    if calls.done.from_ledger:
        own = calls.ops["module"].to_numpy()
        return np.where(own >= 0, of_host[np.maximum(own, 0)], OUTSIDE).astype(np.int32), arrays.coded(calls.ops["direction"]).codes == 1
    around = at.nearest(capture, S.MODULE, calls.host)
    forward, root = at.module_forward_rows(capture, calls.host)
    linked = at.nearest(capture, S.MODULE, forward)
    again = calls.ops["recompute"].to_numpy() | (around > root)
    backward = (forward >= 0) & ~again
    row = np.where((linked >= 0) & (backward | (around < 0)), linked, around)
    device = _device_module(capture, calls)
    row = np.where((row >= 0) | (calls.host < 0), row, device)
    return np.where(row >= 0, of_host[np.maximum(row, 0)], OUTSIDE).astype(np.int32), backward


def _device_module(capture: Capture, calls: Calls) -> Nodes:
    """Returns per call the module call around the launch of its first device event, -1 where there is none."""

    def make() -> Nodes:
        owner = calls.done.owner
        out = np.full(len(calls.done.ops), -1, np.int32)
        rows = np.flatnonzero(owner >= 0)[::-1]
        out[owner[rows]] = capture.device["module"].to_numpy()[rows] if len(rows) else -1
        return out

    return memo(capture, ("module_work.device",), make)[calls.rows]


OWN: Final = "own_"
"""Prefix of the columns that hold a node's own work, without that of the modules inside."""
WORK: Final = (*VALUES, *(OWN + name for name in VALUES))
SUMS: Final = (
    "calls",
    "host_total_ns",
    "host_self_ns",
    "device_total_ns",
    "device_self_ns",
    "device_events",
    "backward_device_ns",
    "backward_self_ns",
    "again_device_ns",
)
"""Columns of a node that add up over merged nodes."""
Columns: TypeAlias = dict[str, npt.NDArray[Any]]
"""Rows of modules by column."""
BY_NODE: Final = ("calls", "host_self_ns", "device_self_ns", "backward_self_ns")
"""Those of them that leave out the nodes below."""


def work_of(capture: Capture, part: Scope, direction: Direction = "both", limits: str = "") -> ModuleWork:
    """Returns the work per node of `module_tree`, see `module_work`."""

    def make() -> ModuleWork:
        tree = module_tree(capture)
        return module_work(capture, part, tree.node, tree.end, direction, limits, of_label=tree.of_label)

    key = ("module_work", part.whole, part.rows, direction)
    return memo_under(capture, calls_of(capture, part, limits).done.spec, key, make)


def module_times(capture: Capture, part: Scope, direction: Direction = "both", limits: str = "") -> Columns:
    """Returns the columns of one row per node called in the selection, in preorder.

    Columns: node, parent (node, -1 at a root), depth, name, class_name, calls (inner ones of a module that calls itself among them),
    host_total_ns (of the outermost calls), host_self_ns (less the modules inside), device_total_ns (device events whose launch
    starts inside a call), device_self_ns (less those inside an inner module), device_events, backward_device_ns (device events of
    backward operators linked to forward operators inside a call, launched outside it), backward_self_ns, again_device_ns (device events
    of recomputed forward work of the node that no call of it contains),
    and the sums of VALUES in `direction`, with those of the node's own calls under `own_`.
    """
    tree = module_tree(capture)
    h = at.host(capture)
    size = len(tree.name)
    node = np.where(part.host, tree.node, -1).astype(np.int32)
    rows = np.flatnonzero(node >= 0)
    code = node[rows]
    launch = at.launches(capture)
    device = capture.device
    module = device["module"].to_numpy()
    duration = device["duration_ns"].to_numpy()
    use = np.flatnonzero(part.device)
    innermost = np.where(module[use] >= 0, tree.node[np.maximum(module[use], 0)], -1) if len(h.start) else module[use]
    ones = np.ones(len(use), np.int64)

    def around(rows_: Rows, times: Ints, values: Ints) -> Ints:
        out = np.zeros(size, values.dtype)
        found = at.inclusive(capture, rows_, times, values, tree.node)
        out[: len(found)] = found
        return out

    forward, root = at.module_forward_rows(capture, launch.call[use], launch.time[use])
    # A module call nested in the backward root is a recomputed forward: that work is the call's own, not backward of the outer one.
    forward = np.where((forward >= 0) & (module[use] > root), -1, forward).astype(np.int32)
    when = np.where(forward >= 0, h.start[np.maximum(forward, 0)], 0) if len(h.start) else launch.time[use]
    operator = device["operator"].to_numpy()[use]
    again = (forward >= 0) & (operator >= 0) & recomputed(capture)[np.maximum(operator, 0)] if len(h.start) else forward >= 0
    owner = at.nearest(capture, S.MODULE, forward)
    owner_node = np.where(owner >= 0, tree.node[np.maximum(owner, 0)], -1) if len(h.start) else owner

    def linked(chosen: Mask) -> Ints:
        values = np.where(chosen, duration[use], 0)
        twice: Ints = _counted_twice(tree, owner_node, innermost, values)
        return around(forward, when, values) - twice

    contained = around(launch.call[use], launch.time[use], duration[use])
    work = work_of(capture, part, direction, limits)
    columns: dict[str, npt.NDArray[Any]] = {
        "node": np.arange(size),
        "parent": tree.parent,
        "depth": tree.depth,
        "name": np.array(tree.name, object),
        "class_name": np.array(tree.class_name, object),
        "calls": at.sum_by(code, np.ones(len(rows), np.int64), size),
        "host_total_ns": at.sum_by(np.where(_within_itself(capture, node, rows), -1, code), h.duration[rows], size),
        "host_self_ns": at.sum_by(code, at.self_among(capture, (S.MODULE,))[rows], size),
        "device_total_ns": contained,
        "device_self_ns": at.sum_by(innermost, duration[use], size),
        "device_events": around(launch.call[use], launch.time[use], ones),
        "backward_device_ns": linked(~again),
        "backward_self_ns": at.sum_by(owner_node, np.where(again, 0, duration[use]), size),
        "again_device_ns": linked(again) + _beyond(tree, innermost, duration[use], contained),
        **work.inclusive,
        **{OWN + name: values for name, values in work.own.items()},
    }
    seen = np.logical_or.reduce([columns[name] > 0 for name in ("calls", "backward_device_ns", "device_total_ns", "again_device_ns")])
    if tree.of_label is not None:
        seen = np.logical_or.reduce([~np.isnan(columns[name]) for name in ("flop", "bytes", "owned_sum_ns")])
    return {name: values[seen] for name, values in columns.items()}


def _within_itself(capture: Capture, node: Nodes, rows: npt.NDArray[np.intp]) -> Mask:
    """Returns per module call of `rows` whether it runs in a selected call of its own node. node: per host row, -1 not selected."""
    around = at.nearest(capture, S.MODULE, rows, strict=True)
    return np.asarray((around >= 0) & (node[np.maximum(around, 0)] == node[rows]))


def _beyond(tree: ModuleTree, innermost: npt.NDArray[np.integer], values: npt.NDArray[np.int64], contained: Ints) -> Ints:
    """Returns per node the values of nodes below it in the tree whose launch no call of the node contains: recomputed on another thread."""
    prefix = np.zeros(len(contained) + 1, np.int64)
    np.cumsum(at.sum_by(innermost, values, len(contained)), out=prefix[1:])
    out: Ints = np.maximum(prefix[tree.end] - prefix[:-1] - contained, 0)
    return out


def _counted_twice(tree: ModuleTree, forward: npt.NDArray[np.integer], launched: npt.NDArray[np.integer], values: npt.NDArray[np.int64]):  # type: ignore[no-untyped-def]
    """Returns per node the values whose forward and whose launch both lie in it (a backward pass run inside a module call)."""
    out = np.zeros(len(tree.name), np.int64)
    both = np.flatnonzero((forward >= 0) & (launched >= 0))
    a, b, value = forward[both].copy(), launched[both].copy(), values[both]
    while len(a):
        deeper = tree.depth[a] > tree.depth[b]
        level = tree.depth[a] == tree.depth[b]
        same = a == b
        np.add.at(out, a[same], value[same])
        up_a = np.where(deeper | level, tree.parent[a], a)
        up_b = np.where(~deeper, tree.parent[b], b)
        keep = (up_a >= 0) & (up_b >= 0)
        a, b, value = up_a[keep], up_b[keep], value[keep]
    return out


# -- merging --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MergedRow:
    """A row that stands for one node or for several equal siblings. `parent` is the position of its row, -1 at a root."""

    nodes: tuple[int, ...]
    parent: int
    class_name: str
    name: str

    @property
    def merged(self) -> bool:
        return len(self.nodes) > 1


def merge_siblings(frame: Columns) -> list[MergedRow]:
    """Returns rows of `module_times` with equal siblings merged, in preorder.

    Siblings are equal when class and structure below are. Three or more are merged, two only below a merged row, where the
    names no longer tell them apart. `nodes` are positions in `frame`.
    """
    position = {int(n): i for i, n in enumerate(frame["node"].tolist())}
    parents = [position.get(int(p), -1) for p in frame["parent"].tolist()]
    children: dict[int, list[int]] = {}
    for i, up in enumerate(parents):
        children.setdefault(up, []).append(i)
    classes = frame["class_name"].tolist()
    names = frame["name"].tolist()
    shape = _shapes(classes, children, len(parents))
    out: list[MergedRow] = []
    stack = [(group, -1) for group in reversed(_equal(children.get(-1, []), shape, False))]
    while stack:
        nodes, up = stack.pop()
        at_row = len(out)
        out.append(MergedRow(nodes, up, classes[nodes[0]], names[nodes[0]]))
        below = [c for n in nodes for c in children.get(n, [])]
        stack.extend((group, at_row) for group in reversed(_equal(below, shape, len(nodes) > 1)))
    return out


def unmerged(frame: Columns) -> list[MergedRow]:
    """Returns every node as a row of its own."""
    position = {int(n): i for i, n in enumerate(frame["node"].tolist())}
    return [
        MergedRow((i,), position.get(int(p), -1), c, n)
        for i, (p, c, n) in enumerate(zip(frame["parent"].tolist(), frame["class_name"].tolist(), frame["name"].tolist(), strict=True))
    ]


def _shapes(classes: list[str], children: dict[int, list[int]], size: int) -> list[int]:
    """Returns a number per node, equal for equal class and equal structure below. Children come after their parents."""
    known: dict[tuple[str, tuple[int, ...]], int] = {}
    shape = [0] * size
    for i in reversed(range(size)):
        key = (classes[i], tuple(sorted(shape[c] for c in children.get(i, []))))
        shape[i] = known.setdefault(key, len(known))
    return shape


def _equal(nodes: list[int], shape: list[int], always: bool) -> list[tuple[int, ...]]:
    groups: dict[int, list[int]] = {}
    for n in nodes:
        groups.setdefault(shape[n], []).append(n)
    out = [tuple(g) for g in groups.values() if always or len(g) >= 3]
    if not always:
        out += [(n,) for g in groups.values() if len(g) < 3 for n in g]
    return sorted(out, key=lambda g: g[0])


def merged_sums(frame: Columns, rows: list[MergedRow]) -> Columns:
    """Returns sums of `SUMS` and `WORK` per merged row; a row of 24 equal layers is named `Layer 24×`."""
    return {
        "name": np.array([f"{r.class_name} {len(r.nodes)}×" if r.merged else r.name for r in rows], object),
        "class_name": np.array([r.class_name for r in rows], object),
        "instances": np.array([len(r.nodes) for r in rows], np.int64),
        "parent": np.array([r.parent for r in rows], np.int64),
        **_sums_of({name: frame[name] for name in (*SUMS, *WORK)}, rows),
    }


def _sums_of(columns: Mapping[str, npt.NDArray[Any]], rows: list[MergedRow]) -> dict[str, npt.NDArray[Any]]:
    """Returns the sum of each column over the nodes of each row; NaN where nothing is known of a row."""
    node = np.array([node for row in rows for node in row.nodes], np.int64)
    group = np.repeat(np.arange(len(rows)), [len(row.nodes) for row in rows])
    values = {name: column[node] for name, column in columns.items()}
    whole = {name: at.sum_by(group, column, len(rows)) for name, column in values.items() if column.dtype.kind != "f"}
    return whole | summed({name: column for name, column in values.items() if name not in whole}, group, len(rows))


def class_rows(frame: Columns) -> list[MergedRow]:
    """Returns a row per class of `module_times`, in order of first appearance, of the nodes with no node of the same instance above."""
    return _by_class(frame, np.flatnonzero(~_below_itself(frame)))


def _by_class(frame: Columns, nodes: Places) -> list[MergedRow]:
    code, classes = pd.factorize(frame["class_name"][nodes])
    parts = np.split(nodes[np.argsort(code, kind="stable")], np.cumsum(np.bincount(code))[:-1])
    return [MergedRow(tuple(own.tolist()), -1, str(c), str(c)) for c, own in zip(classes, parts, strict=False)]


def _below_itself(frame: Columns) -> Mask:
    """Returns per row of `module_times` whether a node of the same instance stands above it."""
    nodes, ups, names = (frame[c].tolist() for c in ("node", "parent", "name"))
    out = np.zeros(len(nodes), bool)
    around: list[int] = []
    """Rows above the present one: rows are in preorder."""
    inside: dict[str, int] = {}
    for i, up in enumerate(ups):
        while around and nodes[around[-1]] != up:
            inside[names[around.pop()]] -= 1
        out[i] = inside.get(names[i], 0) > 0
        around.append(i)
        inside[names[i]] = inside.get(names[i], 0) + 1
    return out


def by_class(frame: Columns, rows: list[MergedRow]) -> Columns:
    """Returns sums per class over all instances, each over its outermost calls; two instances of a class, one in the other, both count.

    rows: `class_rows` of the frame. Columns: class_name, instances (distinct names), SUMS, WORK.
    """
    names = frame["name"].tolist()
    of_nodes = {name: name in BY_NODE or name.startswith(OWN) for name in (*SUMS, *WORK)}
    outermost = _sums_of({name: frame[name] for name, every in of_nodes.items() if not every}, rows)
    each = _sums_of({name: frame[name] for name, every in of_nodes.items() if every}, _by_class(frame, np.arange(len(names))))
    classes = np.array([row.class_name for row in rows], object)
    counts = np.array([len({names[node] for node in row.nodes}) for row in rows], np.int64)
    return {"name": classes, "class_name": classes, "instances": counts, **outermost, **each}


# -- Modules of a trace that recorded none, from the SOL capture beside it -------------------------------------------
# a capture of the sampled iterations that do the work of its steps.
#
# The view holds what the SOL capture knows of those iterations and nothing of the trace but its device: their ledger, the times of their
# modules and labels. Whatever reads a SOL capture whose modules are labels alone reads the view.


MOST_NAMED: Final = 4


@dataclass(frozen=True)
class CaptureModules:
    """The work by module that a SOL capture counted for the steps of a trace.

    capture: the view. iterations: sampled ones that are its steps. steps: how many are selected; alike: of how many these iterations
    do the work; where that is none, the last iteration that was sampled stands in. file: name of the SOL capture."""

    capture: Capture
    iterations: tuple[int, ...]
    steps: int
    alike: int
    file: str

    @property
    def words(self) -> str:
        """`iteration 20`, `iterations 20, 40`, of many `12 iterations from 20 to 240`."""
        if len(self.iterations) > MOST_NAMED:
            return f"{len(self.iterations)} iterations from {self.iterations[0]} to {self.iterations[-1]}"
        return f"iteration{'s' if len(self.iterations) > 1 else ''} {', '.join(map(str, self.iterations))}"


def capture_has_modules(capture: Capture) -> bool:
    """Returns whether a trace has no module calls and the SOL capture joined to it counted work in modules."""
    if scope.source_of(capture) != "both" or (capture.host["kind"].to_numpy() == S.MODULE).any():
        return False
    return bool((capture.tables["ledger"]["module"].to_numpy() >= 0).any())


def capture_modules(capture: Capture, part: Scope) -> CaptureModules | None:
    """Returns the view for the selected steps of a trace; None where `capture_has_modules` is false."""
    if not capture_has_modules(capture):
        return None
    pairs = iterations_of(capture)
    found = [pairs[row] for row in part.rows if row in pairs]
    chosen = tuple(sorted(set(found))) or (int(capture.tables["ledger"]["iteration"].to_numpy().max()),)
    view = memo(capture, ("modules.capture", chosen), lambda: _view(capture, chosen))
    name = (capture.facts.metadata.get("sol_capture", "") or "a SOL capture of this run").replace("\\", "/").rpartition("/")[2]
    return CaptureModules(view, chosen, len(part.rows), len(found), name)


def _view(capture: Capture, chosen: tuple[int, ...]) -> Capture:
    table, ledger, times = (capture.tables[n] for n in ("iterations", "ledger", "label_times"))
    number = table["number"].to_numpy()
    last = {int(n): row for row, n in enumerate(number.tolist())}  # of a number that ran twice the later one
    kept = [n for n in chosen if n in last]
    rows = np.array([last[n] for n in kept], np.int64)
    start, length = table["start_ns"].to_numpy()[rows], table["duration_ns"].to_numpy()[rows]
    steps = S.STEPS.frame(
        {
            "number": np.array(kept, np.int64),
            "name": [f"ProfilerStep#{n}" for n in kept],
            "host": np.full(len(kept), -1, np.int32),
            "host_start_ns": start,
            "host_end_ns": start + length,
            "start_ns": start,
            "end_ns": start + length,
            "device_events": np.zeros(len(kept), np.int64),
            "complete": np.ones(len(kept), bool),
        }
    )
    place = {n: i for i, n in enumerate(kept)}
    ledger = ledger[np.isin(ledger["iteration"].to_numpy(), chosen)].reset_index(drop=True)
    none = np.full(len(ledger), -1, np.int32)
    own = np.fromiter((place.get(n, -1) for n in ledger["iteration"].tolist()), np.int32, len(ledger))
    ledger = ledger.assign(step=own, module_host=none, phase_host=none)
    timed = bool(np.isfinite(ledger["time_ns"].to_numpy(dtype=np.float64)).any())
    facts = msgspec.structs.replace(
        capture.facts,
        source=scope.SOL_CAPTURE,
        devices=() if timed else tuple(devices_in_use(capture)) or capture.facts.devices,
        pseudo_step=not kept,
        extent_ns=(int(start.min()), int((start + length).max())) if kept else (0, 0),
        warnings=(),
    )
    tables = {"labels": capture.tables["labels"], "iterations": table, "ledger": ledger, "label_times": times, "steps": steps}
    return Capture(facts, tables, run=capture.run, worker=capture.worker, span=capture.span, devices=capture.devices)
