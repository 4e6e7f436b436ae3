"""Builds the tree of modules: calls of `nn.Module` merged into nodes by their path, or labels of counted work where no call was timed.

A node is a module instance below the node that called it; calls of the same instance at the same place are one node, with those that the
instance makes of itself.
Nodes stand in preorder, children by the time of their first call; `end` is one past the last node of the subtree.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec import Struct

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time import scope
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.engines import iteration_of
from tb_sol_plugin.tables import arrays, tree

# -- Names of modules and phases as a person reads them --------------------------------------------------------------


_NUMBER = re.compile(r"_\d+$")
_STEP = re.compile(r"#\d+$")


def module_instance(name: str) -> str:
    """Returns `nn.Module: ViTModel_0` as `ViTModel_0`."""
    return name.removeprefix("nn.Module: ").strip()


def module_class_name(name: str) -> str:
    """Returns `nn.Module: ViTModel_0` or `ViTModel_0` as `ViTModel`."""
    return _NUMBER.sub("", module_instance(name))


def phase_name(name: str) -> str:
    """Returns a user range without its decoration: `ProfilerStep#12` is `ProfilerStep`, `## forward ##` is `forward`, and the annotation
    of an iteration of a serving engine its kind.
    """
    plain = name.strip()
    iteration = iteration_of(plain)
    if iteration is not None:
        return iteration.kind
    if plain.startswith("##") and plain.endswith("##") and len(plain) > 4:
        plain = plain[2:-2].strip()
    return _STEP.sub("", plain) or name


def phase_parts(name: str) -> list[str]:
    """Returns the levels that a phase name asks for: `train/forward` is two. A name with empty levels (a path, a URL) stays one."""
    plain = phase_name(name)
    parts = [part.strip() for part in plain.split("/")]
    return parts if all(parts) else [plain]


class ModuleTree(Struct, frozen=True):
    """The tree of modules over the whole recording, in preorder.

    node: node per host row, -1 outside every module call's own row. name, class_name, parent, end, depth: per node.

    of_label: node per row of `labels`, and once more for -1, of a tree made from these; None for a tree of calls.
    """

    node: npt.NDArray[np.int32]
    name: list[str]
    class_name: list[str]
    parent: npt.NDArray[np.int32]
    end: npt.NDArray[np.int32]
    depth: npt.NDArray[np.int32]
    of_label: npt.NDArray[np.int32] | None = None


def module_tree(capture: Capture) -> ModuleTree:
    """Returns the tree over the whole recording, so that a node keeps its number whatever is selected.

    A SOL capture that counted work in modules, but timed no call of one (compiled code), has the tree of its labels.
    """
    return memo(capture, ("modules.tree",), lambda: _label_tree(capture) if labels_alone(capture) else _tree(capture))


def labels_alone(capture: Capture) -> bool:
    """Returns whether the modules of a SOL capture are known by the labels of its work alone."""
    if not scope.is_capture(capture) or (capture.host["kind"].to_numpy() == S.MODULE).any():
        return False
    return bool((capture.tables["ledger"]["module"].to_numpy() >= 0).any())


def _label_tree(capture: Capture) -> ModuleTree:
    """Returns labels of modules with work in or below them; a label that names what another at its place names is the same node."""
    labels = capture.tables["labels"]
    up, what, name, kind = (labels[c].tolist() for c in ("parent", "what", "name", "class_name"))
    wanted: set[int] = set()
    for label in np.unique(capture.tables["ledger"]["module"].to_numpy()).tolist():
        while label >= 0 and label not in wanted:
            wanted.add(label)
            label = up[label]
    place: dict[tuple[int, str, str], int] = {}
    of_label = np.full(len(labels) + 1, -1, np.int32)
    parent: list[int] = []
    named: list[tuple[str, str]] = []
    for label in sorted(wanted):  # parents stand before what is inside them
        if what[label] == "module":
            above, own = int(of_label[up[label]]), (str(name[label]), str(kind[label]))
            if above >= 0 and named[above] == own:  # a module that calls itself
                of_label[label] = above
                continue
            of_label[label] = place.setdefault((above, *own), len(place))
            if len(place) > len(parent):
                parent.append(above)
                named.append(own)
    order, depth, end = _preorder(np.array(parent, np.int64))
    rank = np.full(len(order) + 1, -1, np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    names_seen = list(place)
    classes = [names_seen[i][2] or "Module" for i in order.tolist()]
    known: dict[str, dict[str, int]] = {}
    names = []
    for i, class_name in zip(order.tolist(), classes, strict=True):
        of_class = known.setdefault(class_name, {})
        names.append(f"{class_name}_{of_class.setdefault(names_seen[i][1], len(of_class))}")
    ups = np.array([parent[i] for i in order.tolist()], np.int64)
    return ModuleTree(
        np.full(len(capture.host), -1, np.int32),
        names,
        classes,
        rank[ups] if len(ups) else ups.astype(np.int32),
        end,
        depth,
        rank[of_label],
    )


def _tree(capture: Capture) -> ModuleTree:
    h = at.host(capture)
    rows = np.flatnonzero(h.kind == S.MODULE)
    above = at.nearest(capture, S.MODULE, rows, strict=True)
    name = arrays.codes(capture.host["name"])[rows]
    module_id = np.full(len(h.start), -1, np.int64)
    frames = capture.tables["frames"]
    module_id[frames["host"].to_numpy()] = frames["module_id"].to_numpy()
    place = np.full(len(h.start), -1, np.int64)
    place[rows] = np.arange(len(rows))
    parent = np.where(above >= 0, place[np.maximum(above, 0)], -1)
    own = arrays.together(name, module_id[rows])
    _adopt(capture, rows, place, parent, own)
    parent = _folded(parent, own)
    node, node_parent, first = _nodes(parent, own, h.start[rows])
    texts = capture.host["name"].cat.categories
    names = [module_instance(str(texts[c])) for c in name[first].tolist()]
    order, depth, end = _preorder(node_parent)
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    of_host = np.full(len(h.start), -1, np.int32)
    of_host[rows] = rank[node] if len(order) else -1
    up = node_parent[order]
    names = [names[i] for i in order.tolist()]
    return ModuleTree(
        of_host,
        names,
        [module_class_name(n) for n in names],
        np.where(up >= 0, rank[np.maximum(up, 0)] if len(rank) else up, -1).astype(np.int32),
        end,
        depth,
    )


def _folded(parent: npt.NDArray[np.int64], own: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns the parents with every call straight inside a call of its own instance placed where the outer call is: they are one node.

    Recorders number instances by class, so that the parts of a compiled model are all `GraphModule_0`, inside `GraphModule_0`.
    """
    out = parent.copy()
    while True:
        inside = np.flatnonzero((out >= 0) & (own[np.maximum(out, 0)] == own)) if len(out) else out
        if not len(inside):
            return out
        out[inside] = out[out[inside]]


def _adopt(
    capture: Capture, rows: npt.NDArray[np.intp], place: npt.NDArray[np.int64], parent: npt.NDArray[np.int64], own: npt.NDArray[np.int64]
) -> None:
    """Give calls of a forward pass that runs again inside the backward pass, on a thread without the modules around, their place.

    Such a call hangs where the call of the same instance around its forward operator hangs, else below the module of that operator.
    """
    lost = np.flatnonzero(parent < 0)
    if scope.is_capture(capture):
        _adopt_recomputed(capture, rows, lost, parent, own)
        return
    forward, _ = at.forward_rows(capture, rows[lost])
    lost = lost[forward >= 0]
    around = at.nearest(capture, S.MODULE, forward[forward >= 0])
    for call, start in zip(lost.tolist(), around.tolist(), strict=True):
        up = nearest = int(place[start]) if start >= 0 else -1
        while up >= 0 and own[up] != own[call]:
            up = int(parent[up])
        if up != call and nearest != call:
            parent[call] = parent[up] if up >= 0 else nearest


def _adopt_recomputed(
    capture: Capture, rows: npt.NDArray[np.intp], lost: npt.NDArray[np.int64], parent: npt.NDArray[np.int64], own: npt.NDArray[np.int64]
) -> None:
    """Does the same in a SOL capture, where a name is one module of the model and the ledger tells what is recomputed.

    A call outside every module hangs where another call of its module hangs, unless forward work was counted in such a call that is not
    recomputed: then the program calls it there itself.
    """
    ledger, end = capture.tables["ledger"], capture.host["end"].to_numpy()
    host, again = ledger["module_host"].to_numpy(), ledger["recompute"].to_numpy(dtype=bool)
    first_time = (ledger["direction"].to_numpy() == 0) & (host >= 0) & ~again
    before = np.concatenate(([0], np.cumsum(np.bincount(host[first_time], minlength=len(end)))))
    working = (before[end[rows[lost]]] - before[rows[lost]]) > 0
    names = set(own[lost].tolist()) - set(own[lost[working]].tolist())
    first: dict[int, int] = {}
    for call in np.flatnonzero(parent >= 0).tolist():
        first.setdefault(int(own[call]), int(parent[call]))
    for call in lost.tolist():
        up = around = first.get(int(own[call]), -1)
        while up >= 0 and own[up] != own[call]:
            up = int(parent[up])
        if int(own[call]) in names and around >= 0 and up < 0:
            parent[call] = around


def _nodes(parent: npt.NDArray[np.int64], own: npt.NDArray[np.int64], start: npt.NDArray[np.int64]):  # type: ignore[no-untyped-def]
    """Returns (node per call, parent per node, first call per node): one node per (parent's node, own), level by level from the roots.

    Nodes are numbered so that of two siblings the one called first has the lower number.
    """
    node = np.full(len(parent), -1, np.int64)
    node_parent: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
    first: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
    owns = int(own.max(initial=0)) + 1
    count = 0
    levels = list(tree.levels(parent))
    if len(levels) > DEEP:
        return _deep_nodes(parent, own, start, levels)
    for level in levels:
        level = level[np.argsort(start[level], kind="stable")]
        up = np.where(parent[level] >= 0, node[np.maximum(parent[level], 0)], -1)
        code, unique = pd.factorize((up + 1) * owns + own[level])
        node[level] = code + count
        at_first = np.full(len(unique), len(level), np.int64)
        np.minimum.at(at_first, code, np.arange(len(level)))
        node_parent.append(up[at_first])
        first.append(level[at_first])
        count += len(unique)
    return node, np.concatenate(node_parent), np.concatenate(first)


NO_CALL: Final = np.zeros(0, np.int64)
DEEP: Final = 500
"""Levels from which on calls are looked at one by one: few are on each."""


def _deep_nodes(
    parent: npt.NDArray[np.int64], own: npt.NDArray[np.int64], start: npt.NDArray[np.int64], levels: list[npt.NDArray[np.int64]]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns what `_nodes` does."""
    node = [-1] * len(parent)
    node_parent: list[int] = []
    first: list[int] = []
    seen: dict[tuple[int, int], int] = {}
    ups, owns = parent.tolist(), own.tolist()
    depth = np.repeat(np.arange(len(levels)), [len(level) for level in levels])
    calls = np.concatenate([NO_CALL, *levels])
    for call in calls[np.lexsort((start[calls], depth))].tolist():
        up = node[ups[call]] if ups[call] >= 0 else -1
        node[call] = seen.setdefault((up, owns[call]), len(seen))
        if len(seen) > len(first):
            first.append(call)
            node_parent.append(up)
    return np.array(node, np.int64), np.array(node_parent, np.int64), np.array(first, np.int64)


def _preorder(parent: npt.NDArray[np.int64]):  # type: ignore[no-untyped-def]
    """Returns (order, depth, subtree end) of nodes; children keep the order of their numbers. depth and end are per position."""
    children: dict[int, list[int]] = {}
    for i, up in enumerate(parent.tolist()):
        children.setdefault(up, []).append(i)
    order: list[int] = []
    depths: list[int] = []
    stack = [(i, 0) for i in reversed(children.get(-1, []))]
    while stack:
        i, depth = stack.pop()
        order.append(i)
        depths.append(depth)
        stack.extend((c, depth + 1) for c in reversed(children.get(i, [])))
    end = np.arange(1, len(order) + 1, dtype=np.int32)
    last: list[tuple[int, int]] = []
    for position, depth in enumerate([*depths, -1]):
        while last and last[-1][1] >= depth:
            end[last.pop()[0]] = position
        last.append((position, depth))
    return np.array(order, np.int64), np.array(depths, np.int32), end
