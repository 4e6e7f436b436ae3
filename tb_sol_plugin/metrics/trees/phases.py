"""Builds the phase tree: user ranges and steps merged by path, with host and device time per node.

A phase below another is one that runs inside it; `/` in a name makes further levels. `ProfilerStep#7` and `ProfilerStep#8` are one
node, `ProfilerStep`. Nodes stand in preorder, children by the time of their first range; `end` is one past the subtree.
A device event belongs to the innermost range around its launch. Where an autograd thread has no range around a launch, the range that
was open at that moment on the thread that issued the backward pass owns it; such time is counted as `by_time_ns`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec import Struct

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time import scope
from tb_sol_plugin.metrics.time.breakdown import COMMUNICATION, COMPUTATION, MEMCPY, classes, layers
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.trees.module_tree import phase_parts
from tb_sol_plugin.metrics.work.counted import counted_rows
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints, Rows
from tb_sol_plugin.tables.table import as_table, frame_of

LONGEST: Final = 2_048
"""Characters of a path of phases that is written in full."""
STEP: Final = "ProfilerStep"


class PhaseTree(Struct, frozen=True):
    """The tree of phases over the whole recording, in preorder.

    node: node per host row that is a user range, -1 for others. path, name, parent, depth, end: per node, in preorder.
    """

    node: npt.NDArray[np.int32]
    path: list[str]
    name: list[str]
    parent: npt.NDArray[np.int32]
    depth: npt.NDArray[np.int32]
    end: npt.NDArray[np.int32]


def phase_tree(capture: Capture) -> PhaseTree:
    """Returns the tree over the whole recording, so that a node keeps its number whatever is selected."""
    return memo(capture, ("phases.tree",), lambda: _tree(capture))


def _tree(capture: Capture) -> PhaseTree:
    h = at.host(capture)
    rows = np.flatnonzero(h.kind == S.ANNOTATION)
    above, _ = at.annotation_around(capture, rows, strict=True)
    place = np.full(len(h.start), -1, np.int64)
    place[rows] = np.arange(len(rows))
    parent = np.where(above >= 0, place[np.maximum(above, 0)], -1)
    name = arrays.codes(capture.host["name"])[rows]
    texts = capture.host["name"].cat.categories
    nodes = _Nodes()
    node = np.full(len(rows), -1, np.int64)
    for level in tree.levels(parent):
        up = np.where(parent[level] >= 0, node[np.maximum(parent[level], 0)], -1)
        code, unique = pd.factorize((up + 1) * len(texts) + name[level])
        earliest = np.full(len(unique), np.iinfo(np.int64).max)
        np.minimum.at(earliest, code, h.start[rows[level]])
        target = np.zeros(len(unique), np.int64)
        for i, key in enumerate(unique.tolist()):
            above_node, text = key // len(texts) - 1, key % len(texts)
            target[i] = nodes.below(above_node, phase_parts(str(texts[text])), int(earliest[i]))
        node[level] = target[code]
    return _ordered(capture, rows, node, nodes)


def below(base: tuple[str, ...], parts: list[str]) -> tuple[str, ...]:
    """Returns `parts` below `base`; levels that a name repeats from a range around it (`train/forward` inside `train`) are not doubled."""
    for shared in range(min(len(parts) - 1, len(base)), 0, -1):
        again = tuple(parts[:shared])
        if any(base[i : i + shared] == again for i in range(len(base) - shared + 1)):
            return base + tuple(parts[shared:])
    return base + tuple(parts)


class _Nodes:
    """Nodes in the order in which they were met: parent (-1 at a root), name, and the start of the first range."""

    def __init__(self) -> None:
        self.parent: list[int] = []
        self.name: list[str] = []
        self.start: list[int] = []
        self._of: dict[tuple[int, str], int] = {}

    def below(self, base: int, parts: list[str], start: int) -> int:
        """Returns the node of `parts` below `base` (-1: at the root), made with its levels where it is not there."""
        if len(parts) > 1 and base >= 0:
            path = self._path(base)
            parts = list(below(path, parts)[len(path) :])
        for part in parts:
            node = self._of.setdefault((base, part), len(self.name))
            if node == len(self.name):
                self.parent.append(base)
                self.name.append(part)
                self.start.append(start)
            base = node
        return base

    def _path(self, node: int) -> tuple[str, ...]:
        out = []
        while node >= 0:
            out.append(self.name[node])
            node = self.parent[node]
        return tuple(reversed(out))


def _path(above: str, name: str, node: int) -> str:
    """Returns the path of a node: of more than `LONGEST` characters its beginning, the number of the node and its name, so that thousands
    of levels do not make paths that grow with their square.
    """
    path = f"{above}/{name}"
    return path if len(path) <= LONGEST else f"{path[: LONGEST // 2]}…{node}…/{name}"


def _ordered(capture: Capture, rows: npt.NDArray[np.intp], node: npt.NDArray[np.int64], nodes: _Nodes) -> PhaseTree:
    """Returns nodes in preorder, siblings by first start."""
    count = len(nodes.name)
    children: dict[int, list[int]] = {}
    for i in sorted(range(count), key=lambda i: (nodes.start[i], nodes.name[i]), reverse=True):
        children.setdefault(nodes.parent[i], []).append(i)
    rank, end = np.zeros(count, np.int32), np.zeros(count, np.int32)
    order: list[int] = []
    waiting = list(children.get(-1, ()))
    while waiting:
        i = waiting.pop()
        if i < 0:
            end[rank[~i]] = len(order)
            continue
        rank[i] = len(order)
        order.append(i)
        waiting.append(~i)
        waiting += children.get(i, ())
    of_host = np.full(len(capture.host), -1, np.int32)
    of_host[rows] = rank[node] if count else -1
    parent = np.full(count, -1, np.int32)
    depth = np.zeros(count, np.int32)
    path: list[str] = []
    for at_rank, i in enumerate(order):
        up = nodes.parent[i]
        if up >= 0:
            parent[at_rank], depth[at_rank] = rank[up], depth[rank[up]] + 1
        path.append(_path(path[rank[up]], nodes.name[i], at_rank) if up >= 0 else nodes.name[i])
    return PhaseTree(of_host, path, [nodes.name[i] for i in order], parent, depth, end)


class Owners(Struct, frozen=True):
    """The phase of every device row.

    node: phase node per device row, -1 outside every phase. by_time: found by time on the issuing thread.
    """

    node: npt.NDArray[np.int32]
    by_time: npt.NDArray[np.bool_]


def device_owners(capture: Capture) -> Owners:
    """Returns the innermost phase of every device row."""

    def make() -> Owners:
        launch = at.launches(capture)
        row, by_time = at.annotation_around(capture, launch.call, launch.time)
        return Owners(_node(phase_tree(capture), row), by_time)

    return memo(capture, ("phases.owners",), make)


def _node(tree: PhaseTree, rows: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    if not len(tree.node):
        return np.full(len(rows), -1, np.int32)
    return np.where(rows >= 0, tree.node[np.maximum(rows, 0)], -1).astype(np.int32)


def phase_times(capture: Capture, part: Scope) -> pd.DataFrame:
    """Returns one row per phase with a range or device work in the selection, in preorder.

    Columns: node, parent, depth, end, path, name, count (ranges of that very path), host_ns (sum of their durations; of a level that
    only names make, the sum of the levels below), host_self_ns, device_events, device_sum_ns (plain sum), device_ns (union of intervals),
    compute_ns (union), exposed_communication_ns (not behind any computation of the device), exposed_memcpy_ns (behind neither),
    by_time_ns (plain sum of device time found by time), ops (operator calls inside; of a SOL capture those that it counted).
    """
    key = ("phase_times", part.label, part.rows, part.window_ns, part.whole)
    return memo(capture, key, lambda: as_table(_phase_times(capture, part)))


def _phase_times(capture: Capture, part: Scope) -> pd.DataFrame:
    tree = phase_tree(capture)
    h = at.host(capture)
    size = len(tree.name)
    rows = memo(capture, ("phases.rows",), lambda: np.flatnonzero(tree.node >= 0))
    rows = rows[part.host[rows]]
    code = tree.node[rows]
    count = at.sum_by(code, np.ones(len(rows), np.int64), size)
    own_host = at.sum_by(code, h.duration[rows], size)
    around, calls = _counted(capture, part) if scope.is_capture(capture) else _operators(capture, part)
    columns: dict[str, npt.NDArray[Any]] = {
        "node": np.arange(size),
        "parent": tree.parent,
        "depth": tree.depth,
        "end": tree.end,
        "path": np.array(tree.path, object),
        "name": np.array(tree.name, object),
        "count": count,
        "host_ns": _virtual(tree, count, own_host),
        "host_self_ns": at.sum_by(code, at.self_among(capture, (S.ANNOTATION,))[rows], size),
        **_device(capture, part, tree, device_owners(capture)),
        "ops": _subtree(tree, at.sum_by(_node(tree, around), calls, size)),
    }
    use = (_subtree(tree, count) > 0) | (columns["device_events"] > 0)
    shown = {name: values[use] for name, values in columns.items()}
    return frame_of(shown)


def _operators(capture: Capture, part: Scope) -> tuple[Rows, Ints]:
    """Returns (user range around each operator of the selection, 1 each)."""
    ops = at.of_kind(capture, S.OPERATOR)
    around = at.annotation_of_operators(capture)
    around = around if part.host.all() else around[part.host[ops]]
    return around, np.ones(len(around), np.int64)


def _counted(capture: Capture, part: Scope) -> tuple[Rows, Ints]:
    """Returns the same of a SOL capture: per row of its ledger the range around it, and its calls."""
    ledger = capture.tables["ledger"]
    rows = counted_rows(capture)
    rows = rows if part.whole else rows[np.isin(ledger["step"].to_numpy()[rows], part.rows)]
    return ledger["phase_host"].to_numpy()[rows].astype(np.int32), ledger["count"].to_numpy()[rows].clip(min=0)


def _subtree(tree: PhaseTree, values: npt.NDArray[at.Number]) -> npt.NDArray[at.Number]:
    prefix = np.zeros(len(values) + 1, values.dtype)
    np.cumsum(values, out=prefix[1:])
    out: npt.NDArray[at.Number] = prefix[tree.end] - prefix[:-1]
    return out


def _virtual(tree: PhaseTree, count: Ints, own: Ints) -> Ints:
    """Returns the host time per node; a level without ranges of its own takes the sum of its children."""
    out = own.copy()
    below = np.zeros(len(out), out.dtype)
    for i in reversed(range(len(out))):
        if count[i] == 0:
            out[i] = below[i]
        if tree.parent[i] >= 0:
            below[tree.parent[i]] += out[i]
    return out


def _device(capture: Capture, part: Scope, tree: PhaseTree, owners: Owners) -> dict[str, Ints]:
    """Returns device columns per node: rows are sorted by node once, so that a subtree is a slice."""
    size = len(tree.name)
    device = capture.device
    chosen = np.flatnonzero(part.device & (owners.node >= 0))
    chosen = chosen[np.argsort(owners.node[chosen], kind="stable")]
    node = owners.node[chosen]
    start = device["start_ns"].to_numpy()[chosen]
    duration = device["duration_ns"].to_numpy()[chosen]
    stop = start + duration
    kind = classes(capture)[chosen]
    everything = layers(capture, part.device)
    behind = iv.merge(everything.computation, everything.communication)
    low = np.searchsorted(node, np.arange(size))
    high = np.searchsorted(node, tree.end)
    out = {name: np.zeros(size, np.int64) for name in ("device_ns", "compute_ns", "exposed_communication_ns", "exposed_memcpy_ns")}
    before = -1, -1, 0
    for i in range(size):
        own = slice(int(low[i]), int(high[i]))
        if low[i] == high[i]:
            continue
        if before[:2] == (own.start, own.stop):  # the same rows as the node above it
            for column in out.values():
                column[i] = column[before[2]]
            continue
        before = own.start, own.stop, i
        spans = {k: iv.union(start[own][kind[own] == k], stop[own][kind[own] == k]) for k in (COMPUTATION, COMMUNICATION, MEMCPY)}
        out["device_ns"][i] = iv.length(iv.merge(*spans.values()))
        out["compute_ns"][i] = iv.length(spans[COMPUTATION])
        out["exposed_communication_ns"][i] = iv.length(iv.subtract(spans[COMMUNICATION], everything.computation))
        out["exposed_memcpy_ns"][i] = iv.length(iv.subtract(spans[MEMCPY], behind))
    ones = np.ones(len(chosen), np.int64)
    return {
        "device_events": _subtree(tree, at.sum_by(node, ones, size)),
        "device_sum_ns": _subtree(tree, at.sum_by(node, duration, size)),
        "by_time_ns": _subtree(tree, at.sum_by(node, np.where(owners.by_time[chosen], duration, 0), size)),
        **out,
    }


class Share(Struct, frozen=True):
    """One part of an average step on the host: a top phase below the step, in order of time."""

    name: str
    path: str
    host_ns: float


def host_shares(frame: pd.DataFrame, steps: int) -> list[Share]:
    """Returns the phases right below the step (without any, the step; without steps, the top phases), per step, in order of time.

    A single level that only a `/` in names makes gives way to the phases in it. Ranges outside of every step are no part of one.
    """
    node, parent, path, name, count, host = (frame[c].tolist() for c in ("node", "parent", "path", "name", "count", "host_ns"))
    below: dict[int, list[int]] = {}
    for row, up in enumerate(parent):
        below.setdefault(up, []).append(row)
    tops = below.get(-1, [])
    step = [row for row in tops if path[row] == STEP]
    inside = (below.get(node[step[0]]) or step) if step else tops
    while len(inside) == 1 and not count[inside[0]] and node[inside[0]] in below:  # a level that only names make
        inside = below[node[inside[0]]]
    return [Share(name[row], path[row], float(host[row]) / max(steps, 1)) for row in inside]
