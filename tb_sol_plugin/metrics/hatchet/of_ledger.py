"""Counted work and counted copies as frames, of recordings without events: a SOL capture, or a profile of Proton."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics.hatchet.of_events import copy_name
from tb_sol_plugin.metrics.hatchet.tree import HOST_TIME, TIME, WIDTHS, Number, Tree
from tb_sol_plugin.metrics.time import scope
from tb_sol_plugin.metrics.work.work import launches_of, work
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays

ONLY_COPY = frozenset({"aten::copy_", "aten::_to_copy", "aten::_local_scalar_dense", "aten::_pin_memory"})
"""Operators that do nothing but copy; others (`aten::nonzero`) also compute."""
_LABEL_TYPES = {"module": "module", "phase": "phase", "function": "operator"}


def add_ledger(tree: Tree, capture: Capture, by: str) -> None:
    """Rows of the ledger below their labels. by: of a SOL capture module or phase; a profile keeps its own tree.

    An operator that only copied to or from a device stands as that copy (see `add_copies`): count and bytes are the copy's, only a time
    that was measured stays here.
    """
    profile = scope.is_profile(capture)
    frames = _Labels(tree, capture, by)
    ops = work(capture).ops
    if not len(ops):
        return
    table = capture.tables[S.LEDGER.name]
    rows = ops["ledger"].to_numpy()
    names, dtypes = arrays.pick(ops["name"], np.arange(len(ops))), arrays.pick(ops["dtype"], np.arange(len(ops)))
    label = frames.label_of(table)[rows]
    count = launches_of(ops)
    numbers = {n: ops[n].to_numpy(dtype=np.float64) for n in ("measured_ns", "flop", "bytes")}
    device = table["device"].to_numpy()[rows]
    on_host = scope.on_cpu(capture) and not profile
    copied = Counter[tuple[int, str]]() if profile else _copied(capture, frames)
    for i in range(len(ops)):
        where = "" if on_host else str(max(int(device[i]), 0))
        stated = profile and not count[i] and numbers["measured_ns"][i] != numbers["measured_ns"][i]
        place = frames.of(int(label[i]))
        key, calls = (int(label[i]), str(names[i])), int(count[i])
        moved = min(copied[key], calls)
        copied[key] -= moved
        rest = (calls - moved) / calls if calls else 1.0  # calls of a row are alike in size
        if not rest and _whole(numbers["measured_ns"][i]) is None:
            continue
        frame = place if stated else tree.at(place, str(names[i]), "kernel" if profile else "operator", where)
        width = WIDTHS.get(str(dtypes[i]))
        tree.add(
            frame,
            {
                (HOST_TIME if on_host else TIME): _whole(numbers["measured_ns"][i]),
                "count": calls - moved or None,
                "bytes": _whole(numbers["bytes"][i] * rest) if rest else None,
                f"flops{width or ''}": _whole(numbers["flop"][i]) or None,
            },
        )


def _copied(capture: Capture, frames: _Labels) -> Counter[tuple[int, str]]:
    """Counted copies with an end on a device, by label and operator, of operators that only copy."""
    table = capture.tables[S.COPIES.name]
    on_device = np.maximum(table["src_device"].to_numpy(), table["dst_device"].to_numpy()) >= 0
    on_device &= arrays.where(table["name"], ONLY_COPY.__contains__)
    out: Counter[tuple[int, str]] = Counter()
    names = arrays.pick(table["name"], np.arange(len(table)))
    for label, name, count, use in zip(frames.label_of(table).tolist(), names, table["count"].tolist(), on_device.tolist(), strict=True):
        if use:
            out[label, str(name)] += count
    return out


def add_copies(tree: Tree, capture: Capture, by: str) -> None:
    """Rows of `copies` below their labels. What a SOL capture counted within the host's memory is an operator of its ledger already."""
    table = capture.tables[S.COPIES.name]
    frames = _Labels(tree, capture, by)
    label = frames.label_of(table)
    words = {c: arrays.pick(table[c], np.arange(len(table))) for c in ("direction", "src_kind", "dst_kind")}
    columns = {c: table[c].tolist() for c in ("count", "bytes", "without_bytes", "time_ns", "call_ns", "src_device", "dst_device")}
    counted = not scope.is_profile(capture)
    for i in range(len(table)):
        if counted and max(columns["src_device"][i], columns["dst_device"][i]) < 0:
            continue
        direction = str(words["direction"][i])
        name = copy_name(direction, str(words["src_kind"][i]), str(words["dst_kind"][i]))
        where = max(columns["src_device"][i], columns["dst_device"][i], 0)
        frame = tree.at(frames.of(int(label[i])), name, "memset" if direction == "Memset" else "memcpy", str(where))
        without_bytes = columns["without_bytes"][i]
        tree.add(
            frame,
            {
                TIME: _whole(columns["time_ns"][i]),
                HOST_TIME: _whole(columns["call_ns"][i]),
                "count": columns["count"][i],
                "bytes": columns["bytes"][i] if without_bytes < columns["count"][i] else None,
                "without_bytes": without_bytes or None,
            },
        )


class _Labels:
    """Frames of labels, made with those around them on first use."""

    def __init__(self, tree: Tree, capture: Capture, by: str) -> None:
        labels = capture.tables[S.LABELS.name]
        self.tree = tree
        self.every = scope.is_profile(capture)
        self.by = by if by in ("module", "phase") else "phase"
        self.what = [str(w) for w in arrays.pick(labels["what"], np.arange(len(labels)))]
        self.name = [str(n) for n in arrays.pick(labels["name"], np.arange(len(labels)))]
        self.parent = labels["parent"].tolist()
        self.made: dict[int, int] = {-1: 0}

    def label_of(self, table: pd.DataFrame) -> npt.NDArray[np.int32]:
        """Per row of `ledger` or `copies` the innermost label that makes a frame."""
        out: npt.NDArray[np.int32] = table["phase" if self.every else self.by].to_numpy()
        for column in ("module", "function") if self.every else ():
            out = np.maximum(out, table[column].to_numpy())
        return out

    def of(self, label: int) -> int:
        way = []
        while label not in self.made:
            way.append(label)
            label = self.parent[label]
        frame = self.made[label]
        for inner in reversed(way):
            if self.every or self.what[inner] == self.by:
                frame = self.tree.at(frame, self.name[inner] or f"({self.what[inner]})", _LABEL_TYPES.get(self.what[inner], "scope"))
            self.made[inner] = frame
        return frame


def _whole(value: float) -> Number | None:
    return None if value != value else round(value)
