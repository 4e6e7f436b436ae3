"""What a timeline, or a recorder's look at parameters, gradients and optimizer, says of who held memory at a moment."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.held import By, Groups, summed
from tb_sol_plugin.metrics.names import module_instance
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints

TIMELINE: Final = {
    "parameter": "params", "optimizer_state": "optimizer", "input": "inputs", "temporary": "temporary", "activation": "activations",
    "gradient": "grads", "autograd_detail": "autograd_detail",
}  # fmt: skip
"""Categories of a timeline by their names here; what it calls unknown is the rest."""
NO_MODULE: Final = "(no module)"


def of_timeline(curve: Curves, position: int) -> Groups:
    """Categories of a timeline's curve at one of its points."""
    found = {TIMELINE[name]: int(level[position]) for name, level in curve.categories.items() if name in TIMELINE}
    held = {name: size for name, size in found.items() if size}
    return Groups(list(held), np.array(list(held.values()), np.int64), np.full(len(held), -1, np.int64))


def held_throughout(curve: Curves) -> dict[str, int]:
    """Of every category of a timeline's curve the least that it ever holds: of what was there before, what is never freed.

    The first level would not do: it holds what was allocated at the very first moment too.
    """
    return {TIMELINE[name]: int(level.min()) for name, level in curve.categories.items() if name in TIMELINE and len(level)}


def records_with_parts(capture: Capture, device: int) -> Ints:
    """Rows of `memory_records` of a device that looked at what holds memory, in order of time."""
    records, parts = capture.tables[S.MEMORY_RECORDS.name], capture.tables[S.MEMORY_PARTS.name]
    rows = np.unique(parts["record"].to_numpy()).astype(np.int64)
    rows = rows[(rows >= 0) & (rows < len(records))]
    rows = rows[records["device"].to_numpy()[rows] == device]
    return np.asarray(rows[np.argsort(records["time_ns"].to_numpy()[rows], kind="stable")], np.int64)


def nearest(capture: Capture, rows: Ints, time_ns: int) -> int:
    """Of `rows` of memory_records the one nearest to a time, the earlier of two."""
    time = capture.tables[S.MEMORY_RECORDS.name]["time_ns"].to_numpy()[rows]
    return int(rows[int(np.argmin(np.abs(time - time_ns)))])


def of_record(capture: Capture, record: int, by: By) -> Groups:
    """The parts of one record by category or module; for allocations stand tensors."""
    parts = capture.tables[S.MEMORY_PARTS.name]
    own = np.flatnonzero(parts["record"].to_numpy() == record)
    size, tensors = parts["bytes"].to_numpy()[own], parts["tensors"].to_numpy()[own]
    if by == "category":
        names = [str(c) for c in parts["category"].cat.categories]
        code = arrays.codes(parts["category"])[own]
    else:
        label = parts["module"].to_numpy()[own].astype(np.int64)
        names = [module_instance(n) for n in arrays.pick(capture.tables["labels"]["name"], np.arange(len(capture.tables["labels"])))]
        code = np.where((label >= 0) & (label < len(names)), label, -1)
        seen: dict[str, int] = {}  # two labels of one name are one row
        of = np.array([seen.setdefault(name, len(seen)) for name in names], np.int64)
        code, names = np.where(code >= 0, of[code.clip(0)], -1) if len(of) else code, list(seen)
    code = np.where(code >= 0, code, len(names))
    out = summed(code, [*names, NO_MODULE], size)
    count = np.zeros(len(names) + 1, np.int64)
    np.add.at(count, code, tensors)
    tensors = count[np.unique(code)]
    kept = np.flatnonzero(out.bytes)  # tensors in storages that another row counts hold nothing
    return Groups([out.names[i] for i in kept.tolist()], out.bytes[kept], tensors[kept])


def when(capture: Capture, record: int, time_ns: int) -> tuple[str, ...]:
    """When the record that was asked looked, said where that is another moment."""
    records = capture.tables[S.MEMORY_RECORDS.name]
    away = int(records["time_ns"].to_numpy()[record]) - int(time_ns)
    if not away:
        return ()
    tag = str(arrays.pick(records["tag"], [record])[0])
    return (f"parts as the record {tag!r} found them, {abs(away) / 1e6:,.1f} ms {'later' if away > 0 else 'earlier'}",)
