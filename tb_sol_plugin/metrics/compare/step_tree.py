"""Takes the tree of one step from a recording: its phases, modules and operators in the order in which they ran, with their times.

Where a device recorded, only what launched device work is in it, each node with the time of what it launched itself; else every operator
with its time on the host. Operators of a backward pass stand in the step by their time, on whichever thread they ran.
"""

from __future__ import annotations

import math
import zlib
from typing import Final

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.trees.module_tree import module_class_name, module_instance, phase_name
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables.arrays import Ints, Mask
from tb_sol_plugin.tables.packed import Packed, pack, unpack

MOST_NODES: Final = 20_000
"""Nodes of a tree: of a larger one the levels nearest to the step are kept, with the times of what is below them."""
NAME: Final = 240
COLUMNS: Final = dict.fromkeys(("name", "parent", "kind", "shapes", "inputs", "device_ns", "host_ns"), "i8")
MOST_SIZES: Final = 50_000
"""Sizes of inputs that a tree holds; of operators beyond them, the rarest, they count as not recorded."""
OUTSIDE: Final = "(outside of these)"
KINDS: Final = (S.ANNOTATION, S.MODULE, S.OPERATOR)


class StepTree(msgspec.Struct, frozen=True):
    """The tree of a step. Node 0 is the step itself; a parent stands before what is inside it, siblings in the order of time.

    step: its number. names: texts, by the column `name`. nodes: `COLUMNS` of each: name (place in names),
    parent (-1 of node 0), kind (index into HOST_KINDS), shapes (checksum of those of the first input, 0 not recorded), inputs (place in
    inputs), device_ns, host_ns (of the node itself). inputs: elements of each tensor that an operator takes, those of a list one by one,
    without single numbers; the first is () of what is not recorded. cut: nodes below `MOST_NODES` levels that were left out.
    """

    step: int
    names: tuple[str, ...]
    nodes: Packed
    cut: int = 0
    inputs: tuple[tuple[int, ...], ...] = ((),)


def step_tree(capture: Capture, number: int, on_device: Mask, on_host: Mask) -> StepTree | None:
    """Returns the tree of a step; None where no operator was recorded in it. on_device, on_host: which rows are of the step."""
    h = at.host(capture)
    use = on_host & np.logical_or.reduce([at.is_of_kind(capture, kind) for kind in KINDS])
    annotations = at.of_kind(capture, S.ANNOTATION)
    use[_steps_themselves(capture, annotations[on_host[annotations]])] = False
    operators = at.of_kind(capture, S.OPERATOR)
    operators = operators[on_host[operators]]
    if not len(operators):
        return None
    launched = np.flatnonzero(on_device)
    call = at.launches(capture)
    rows, moments = call.call[launched].astype(np.int32), call.time[launched]
    if len(launched):
        use &= _around(use, h, tree.nearest(use, h.parent, h.stop, rows, moments, h.end).astype(np.int64))
    nodes, above, cut = _kept(use, h)
    if not len(nodes):
        return None
    mask = at.mask_of(capture, nodes)
    place = np.full(len(h.kind) + 1, 0, np.int64)  # what belongs to no node is the step's own
    place[nodes] = np.arange(1, len(nodes) + 1)
    owner = tree.nearest(mask, h.parent, h.stop, rows, moments, h.end)
    device = at.sum_by(place[owner], capture.device["duration_ns"].to_numpy()[launched], len(nodes) + 1)
    own = at.self_among(capture, (S.OPERATOR,))
    holder = tree.nearest(mask, h.parent, h.stop, operators.astype(np.int32), h.start[operators], h.end)
    host = at.sum_by(place[holder], own[operators], len(nodes) + 1)
    parent = np.concatenate([[-1], place[above]])
    name, names = _names(capture, nodes, h.kind[nodes].astype(np.int64), parent[1:], f"step {number}")
    kind = np.concatenate([[S.ANNOTATION], h.kind[nodes]])
    inputs, sizes = _sizes(capture, nodes)
    columns = {
        "name": name, "parent": parent, "kind": kind, "shapes": np.concatenate([[0], _shapes(capture, nodes)]),
        "inputs": np.concatenate([[0], inputs]), "device_ns": device, "host_ns": host,
    }  # fmt: skip
    return StepTree(number, names, pack(columns, COLUMNS), cut, sizes)


def columns_of(found: StepTree) -> dict[str, Ints]:
    """Returns the columns of a tree by name."""
    return unpack(found.nodes, COLUMNS)


def _steps_themselves(capture: Capture, rows: Ints) -> Ints:
    """Returns which annotations are the steps' own."""
    names = arrays.coded(capture.host["name"])
    used = np.unique(names.codes[rows])
    steps = [c for c in used.tolist() if phase_name(str(names.categories[c])) == "ProfilerStep"]
    return rows[np.isin(names.codes[rows], steps)]


def _around(use: Mask, h: at.Host, owners: Ints) -> Mask:
    """Returns which rows have one of `owners` in their subtree."""
    owns = np.zeros(len(use) + 1, np.bool_)
    owns[1:][owners[owners >= 0]] = True
    before = np.cumsum(owns)
    rows = np.flatnonzero(use)
    out = np.zeros(len(use), np.bool_)
    out[rows] = before[h.end[rows]] > before[rows]
    return out


def _kept(use: Mask, h: at.Host) -> tuple[Ints, Ints, int]:
    """Returns (rows of the nodes by their start, the row of the node around each, -1 none, nodes that were left out)."""
    rows = np.flatnonzero(use)
    rows = rows[np.argsort(h.start[rows], kind="stable")]
    up = tree.nearest(use, h.parent, h.stop, h.parent[rows].astype(np.int32), h.start[rows], h.end).astype(np.int64)
    if len(rows) <= MOST_NODES:
        return rows, up, 0
    above = np.full(len(use) + 1, -1, np.int64)
    above[rows] = up
    depth, there = np.zeros(len(rows), np.int64), up.copy()
    while (there >= 0).any():
        depth += there >= 0
        there = np.where(there >= 0, above[there], -1)
    levels = np.cumsum(np.bincount(depth))
    most = int(np.searchsorted(levels, MOST_NODES, side="right")) - 1
    keep = np.flatnonzero(depth <= max(most, 0))[:MOST_NODES]
    return rows[keep], up[keep], len(rows) - len(keep)


def _names(capture: Capture, nodes: Ints, kind: Ints, parent: Ints, root: str) -> tuple[Ints, tuple[str, ...]]:
    """Returns (the place of each node's name, the root's first; the names, in order of first use).

    Modules are called by class and place among those of one class in their parent, as `Layer[3]`.
    """
    names = arrays.coded(capture.host["name"])
    code = names.codes[nodes].astype(np.int64)
    used, place = arrays.in_order(2 * code + (kind == S.ANNOTATION))
    texts = arrays.spelled(names.categories, used // 2)
    words = [root, *((phase_name(text) if one % 2 else text)[:NAME] for one, text in zip(used.tolist(), texts, strict=True))]
    place = np.append(0, place + 1)
    module = np.flatnonzero(kind == S.MODULE)
    called: dict[int, tuple[str, str]] = {}
    instances: dict[tuple[int, str], dict[str, int]] = {}
    first = len(words)
    for one, up in zip((place[module + 1] - 1).tolist(), parent[module].tolist(), strict=True):
        if one not in called:
            called[one] = module_instance(texts[one]), module_class_name(texts[one])
        instance, of = called[one]
        seen = instances.setdefault((up, of), {})
        words.append(f"{of[: NAME - 12]}[{seen.setdefault(instance, len(seen))}]"[:NAME])
    place[module + 1] = np.arange(first, len(words))
    number: dict[str, int] = {}
    alike = np.array([number.setdefault(word, len(number)) for word in words], np.int64)
    name, order = pd.factorize(alike[place])
    distinct = [*number]
    return name.astype(np.int64), tuple(distinct[i] for i in order.tolist())


def _shapes(capture: Capture, nodes: Ints) -> Ints:
    """Returns a checksum of the shapes of each node's first input, 0 where they are not recorded."""
    shapes, code = _spelled_shapes(capture, nodes)
    sums, used = np.zeros(len(shapes) + 1, np.int64), arrays.in_use(code, len(shapes))
    sums[used] = [zlib.crc32(t.partition("],")[0].encode()) if len(t) > 2 else 0 for t in map(str, shapes.take(used))]
    return sums[code]


def _spelled_shapes(capture: Capture, nodes: Ints) -> tuple[pd.Index, Ints]:
    """Returns (texts of shapes, the code of each node's, -1 none)."""
    shapes, own = arrays.coded(capture.tables["operators"]["shapes"]), capture.operator_of_host[nodes]
    code = np.full(len(nodes), -1, np.int64)
    code[own >= 0] = shapes.codes[own[own >= 0]]
    return shapes.categories, code


def _sizes(capture: Capture, nodes: Ints) -> tuple[Ints, tuple[tuple[int, ...], ...]]:
    """Returns per node a place in the sizes of inputs, and these: elements of each tensor; 0 and () where they are not recorded."""
    shapes, code = _spelled_shapes(capture, nodes)
    found: dict[tuple[int, ...], int] = {(): 0}
    place, left = np.zeros(len(shapes) + 1, np.int64), MOST_SIZES
    often = np.bincount(code[code >= 0])
    used = np.flatnonzero(often)
    for c in used[np.argsort(-often[used], kind="stable")].tolist():
        sizes = sizes_of(str(shapes[c]))
        if sizes not in found:
            left -= len(sizes)
            if left < 0:
                continue
        place[c] = found.setdefault(sizes, len(found))
    return place[code], tuple(found)


def sizes_of(shapes: str) -> tuple[int, ...]:
    """Returns the elements of each tensor of shapes as `[[64,512],[[8],[8]],[]]`, without single numbers; () where they are none."""
    try:
        found = msgspec.json.decode(shapes, type=list[list[int | list[int]]])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return ()
    tensors = [one for shape in found for one in (shape if shape and isinstance(shape[0], list) else [shape])]
    counts = (math.prod(n for n in one if isinstance(n, int)) if isinstance(one, list) else 1 for one in tensors)
    return tuple(n for n in counts if 1 < n < 1 << 62)
