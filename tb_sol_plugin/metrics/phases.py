"""The phase tree: user ranges and steps merged by path, with host and device time per node.

A phase below another is one that runs inside it; `/` in a name makes further levels. `ProfilerStep#7` and `ProfilerStep#8` are one
node, `ProfilerStep`. Nodes stand in preorder, children by the time of their first range; `end` is one past the subtree.
A device event belongs to the innermost range around its launch. Where an autograd thread has no range around a launch, the range that
was open at that moment on the thread that issued the backward pass owns it; such time is counted as `by_time_ns`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import attribution as at
from tb_sol_plugin.metrics import memo, source
from tb_sol_plugin.metrics.breakdown import COMMUNICATION, COMPUTATION, MEMCPY, classes, layers
from tb_sol_plugin.metrics.names import phase_parts
from tb_sol_plugin.metrics.scope import Scope
from tb_sol_plugin.metrics.work.ledger import rows_looked_at
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import intervals as iv

STEP: Final = "ProfilerStep"


@dataclass(frozen=True)
class PhaseTree:
    """node: node per host row that is a user range, -1 for others. path, name, parent, depth, end: per node, in preorder."""

    node: npt.NDArray[np.int32]
    path: list[str]
    name: list[str]
    parent: npt.NDArray[np.int32]
    depth: npt.NDArray[np.int32]
    end: npt.NDArray[np.int32]


def phase_tree(capture: Capture) -> PhaseTree:
    """The tree over the whole recording, so that a node keeps its number whatever is selected."""
    return memo(capture, ("phases.tree",), lambda: _tree(capture))


def _tree(capture: Capture) -> PhaseTree:
    h = at.host(capture)
    rows = np.flatnonzero(h.kind == S.ANNOTATION)
    above, _ = at.annotation_around(capture, rows, strict=True)
    place = np.full(len(h.start), -1, np.int64)
    place[rows] = np.arange(len(rows))
    parent = np.where(above >= 0, place[np.maximum(above, 0)], -1)
    name = capture.host["name"].cat.codes.to_numpy()[rows]
    texts = capture.host["name"].cat.categories
    paths: dict[tuple[str, ...], int] = {}
    first: list[int] = []

    def node_of(path: tuple[str, ...], start: int) -> int:
        for length in range(1, len(path) + 1):
            if path[:length] not in paths:
                paths[path[:length]] = len(first)
                first.append(start)
        return paths[path]

    node = np.full(len(rows), -1, np.int64)
    known: list[tuple[str, ...]] = []
    level = np.flatnonzero(parent < 0)
    while len(level):
        up = np.where(parent[level] >= 0, node[np.maximum(parent[level], 0)], -1)
        code, unique = pd.factorize(pd.MultiIndex.from_arrays([up, name[level]]))
        earliest = np.full(len(unique), np.iinfo(np.int64).max)
        np.minimum.at(earliest, code, h.start[rows[level]])
        target = np.zeros(len(unique), np.int64)
        for i, (above_node, text) in enumerate(unique.tolist()):
            base = known[above_node] if above_node >= 0 else ()
            target[i] = node_of(below(base, phase_parts(str(texts[text]))), int(earliest[i]))
        known = list(paths)
        node[level] = target[code]
        placed = node >= 0
        level = np.flatnonzero(~placed & (parent >= 0) & placed[np.maximum(parent, 0)])
    return _ordered(capture, rows, node, list(paths), first)


def below(base: tuple[str, ...], parts: list[str]) -> tuple[str, ...]:
    """`parts` below `base`; levels that a name repeats from a range around it (`train/forward` inside `train`) are not doubled."""
    for shared in range(min(len(parts) - 1, len(base)), 0, -1):
        again = tuple(parts[:shared])
        if any(base[i : i + shared] == again for i in range(len(base) - shared + 1)):
            return base + tuple(parts[shared:])
    return base + tuple(parts)


def _ordered(
    capture: Capture, rows: npt.NDArray[np.intp], node: npt.NDArray[np.int64], paths: list[tuple[str, ...]], first: list[int]
) -> PhaseTree:
    """Nodes in preorder, siblings by first start."""
    start = {path: first[i] for i, path in enumerate(paths)}
    keys = [tuple((start[path[: k + 1]], path[k]) for k in range(len(path))) for path in paths]
    order = sorted(range(len(paths)), key=keys.__getitem__)
    rank = np.zeros(len(paths), np.int32)
    rank[order] = np.arange(len(paths), dtype=np.int32)
    where = {paths[i]: int(rank[i]) for i in range(len(paths))}
    ordered = [paths[i] for i in order]
    depth = np.array([len(p) - 1 for p in ordered], np.int32)
    end = np.zeros(len(ordered), np.int32)
    for i in range(len(ordered)):
        below = i + 1
        while below < len(ordered) and depth[below] > depth[i]:
            below += 1
        end[i] = below
    of_host = np.full(len(capture.host), -1, np.int32)
    of_host[rows] = rank[node] if len(rank) else -1
    parent = np.array([where.get(p[:-1], -1) for p in ordered], np.int32)
    return PhaseTree(of_host, ["/".join(p) for p in ordered], [p[-1] for p in ordered], parent, depth, end)


@dataclass(frozen=True)
class Owners:
    """node: phase node per device row, -1 outside every phase. by_time: found by time on the issuing thread."""

    node: npt.NDArray[np.int32]
    by_time: npt.NDArray[np.bool_]


def device_owners(capture: Capture) -> Owners:
    """The innermost phase of every device row."""

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
    """One row per phase with a range or device work in the selection, in preorder.

    Columns: node, parent, depth, end, path, name, count (ranges of that very path), host_ns (sum of their durations; of a level that
    only names make, the sum of the levels below), host_self_ns, device_events, device_sum_ns (plain sum), device_ns (union of intervals),
    compute_ns (union), exposed_communication_ns (not behind any computation of the device), exposed_memcpy_ns (behind neither),
    by_time_ns (plain sum of device time found by time), ops (operator calls inside; of a SOL capture those that it counted).
    """
    tree = phase_tree(capture)
    h = at.host(capture)
    size = len(tree.name)
    rows = np.flatnonzero((tree.node >= 0) & part.host)
    code = tree.node[rows]
    count = at.sum_by(code, np.ones(len(rows), np.int64), size)
    own_host = at.sum_by(code, h.duration[rows], size)
    frame = pd.DataFrame(
        {
            "node": np.arange(size),
            "parent": tree.parent,
            "depth": tree.depth,
            "end": tree.end,
            "path": tree.path,
            "name": tree.name,
            "count": count,
            "host_ns": _virtual(tree, count, own_host),
            "host_self_ns": at.sum_by(code, at.self_among(capture, (S.ANNOTATION,))[rows], size),
        }
    )
    owners = device_owners(capture)
    frame = frame.assign(**_device(capture, part, tree, owners))
    around, calls = _counted(capture, part) if source.is_capture(capture) else _operators(capture, part)
    frame["ops"] = _subtree(tree, at.sum_by(_node(tree, around), calls, size))
    use = (_subtree(tree, count) > 0) | (frame["device_events"].to_numpy() > 0)
    kept: pd.DataFrame = frame[use].reset_index(drop=True)
    return kept


def _operators(capture: Capture, part: Scope) -> tuple[at.Rows, at.Ints]:
    """(user range around each operator of the selection, 1 each)."""
    ops = np.flatnonzero((at.host(capture).kind == S.OPERATOR) & part.host)
    around, _ = at.annotation_around(capture, ops)
    return around, np.ones(len(ops), np.int64)


def _counted(capture: Capture, part: Scope) -> tuple[at.Rows, at.Ints]:
    """The same of a SOL capture: per row of its ledger the range around it, and its calls."""
    ledger = capture.tables["ledger"]
    rows = rows_looked_at(capture)
    rows = rows if part.whole else rows[np.isin(ledger["step"].to_numpy()[rows], part.rows)]
    return ledger["phase_host"].to_numpy()[rows].astype(np.int32), ledger["count"].to_numpy()[rows].clip(min=0)


def _subtree(tree: PhaseTree, values: npt.NDArray[at.Number]) -> npt.NDArray[at.Number]:
    prefix = np.zeros(len(values) + 1, values.dtype)
    np.cumsum(values, out=prefix[1:])
    out: npt.NDArray[at.Number] = prefix[tree.end] - prefix[:-1]
    return out


def _virtual(tree: PhaseTree, count: at.Ints, own: at.Ints) -> at.Ints:
    """Host time per node; a level without ranges of its own takes the sum of its children."""
    out = own.copy()
    below = np.zeros(len(out), out.dtype)
    for i in reversed(range(len(out))):
        if count[i] == 0:
            out[i] = below[i]
        if tree.parent[i] >= 0:
            below[tree.parent[i]] += out[i]
    return out


def _device(capture: Capture, part: Scope, tree: PhaseTree, owners: Owners) -> dict[str, at.Ints]:
    """Device columns per node: rows are sorted by node once, so that a subtree is a slice."""
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
    for i in range(size):
        own = slice(int(low[i]), int(high[i]))
        if low[i] == high[i]:
            continue
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


@dataclass(frozen=True)
class Share:
    """One part of an average step on the host: a top phase below the step, in order of time."""

    name: str
    path: str
    host_ns: float


def host_shares(frame: pd.DataFrame, steps: int) -> list[Share]:
    """The phases right below the step (or, without any, the top phases), per step, in order of time.

    A single level that only a `/` in names makes gives way to the phases in it.
    """
    tops = frame[frame["parent"] == -1]
    step = tops[tops["path"] == STEP]
    inside = frame[frame["parent"] == int(step["node"].iloc[0])] if len(step) else tops
    inside = inside if len(inside) else tops
    while len(inside) == 1 and not int(inside["count"].iloc[0]):  # a level that only names make
        below = frame[frame["parent"] == int(inside["node"].iloc[0])]
        if not len(below):
            break
        inside = below
    rows = zip(inside["name"], inside["path"], inside["host_ns"], strict=True)
    return [Share(str(n), str(p), float(v) / max(steps, 1)) for n, p, v in rows]
