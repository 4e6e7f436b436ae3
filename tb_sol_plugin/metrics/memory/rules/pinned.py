"""Pinned memory of the host that no copy uses.

No recording holds how much of the host's memory is pinned at a moment. What is known is what a step pins (`pin_memory` of this thread,
as a SOL capture counts it or a trace shows it) and what copies read from pinned memory.
"""

from __future__ import annotations

import json
from math import prod
from typing import Final

import numpy as np

from tb_sol_plugin.cost.inputs import first_dtype
from tb_sol_plugin.metrics.memory.rules.case import Answer, Case, Lack, MemoryFinding
from tb_sol_plugin.metrics.memory.rules.limits import PINNED_BYTES, PINNED_USED
from tb_sol_plugin.metrics.memory.rules.walked import WIDTHS
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.units import human

PINS: Final = ("aten::_pin_memory",)
NO_RECORD: Final = Lack(
    "pinned_unused", "what is pinned was not recorded: traces and snapshots hold the copies from pinned memory, not the memory itself",
    "count it: sol.capture(logdir, model=model, copies=True)",
)  # fmt: skip


def pinned_unused(case: Case) -> Answer:
    """Pinned per step, against what copies to the device read from pinned memory."""
    found = counted(case.capture) or recorded(case.capture)
    if found is None:
        return NO_RECORD
    pinned, moved, steps = found
    if pinned < PINNED_BYTES * steps or moved >= PINNED_USED * pinned:
        return None
    saving = round((pinned - moved) / steps)
    said = (
        f"{human(round(pinned / steps), 'B')} of the host's memory are pinned per step, and copies to the device read "
        f"{human(round(moved / steps), 'B')} from pinned memory. Pinned pages cannot be swapped, and pinning them takes time. What other "
        "threads pin is not recorded."
    )
    fix = "DataLoader(..., pin_memory=False)  # or .to(device, non_blocking=True) from it"
    return MemoryFinding(
        "pinned_unused", "Host memory is pinned and not copied from", said, fix, saving, None, "memcpy", "Memory copies", color="HtoD",
    )  # fmt: skip


def counted(capture: Capture) -> tuple[int, int, int] | None:
    """(bytes pinned, bytes copied from pinned memory to a device, iterations) as a SOL capture counted; None where nothing was pinned."""
    table = capture.tables[S.COPIES.name]
    if not len(table):
        return None
    size = table["bytes"].to_numpy().clip(min=0)
    into = arrays.where(table["direction"], lambda d: d == "HtoH") & arrays.where(table["dst_kind"], lambda k: k == "Pinned")
    out = arrays.where(table["direction"], lambda d: d == "HtoD") & arrays.where(table["src_kind"], lambda k: k == "Pinned")
    pinned = int(size[into].sum())
    return (pinned, int(size[out].sum()), max(len(np.unique(table["iteration"].to_numpy()[into])), 1)) if pinned else None


def recorded(capture: Capture) -> tuple[int, int, int] | None:
    """The same of a trace: operators that pin, by their sizes, and device copies; None where none is recorded."""
    host, table = capture.host, capture.tables[S.OPERATORS.name]
    pins = np.zeros(0, np.int64)
    if len(table):
        pins = np.flatnonzero(arrays.where(host["name"], lambda n: n in PINS)[table["host"].to_numpy()])
    if not len(pins):
        return None
    shapes, types = arrays.pick(table["shapes"], pins), arrays.pick(table["types"], pins)
    sizes = [_bytes(str(s), str(t)) for s, t in zip(shapes, types, strict=True)]
    device = capture.device
    out = arrays.where(device["direction"], lambda d: d == "HtoD") & arrays.where(device["src_kind"], lambda k: k == "Pinned")
    steps = 1 if capture.facts.pseudo_step else max(len(capture.steps), 1)
    return (sum(sizes), int(device["bytes"].to_numpy()[out].clip(min=0).sum()), steps) if all(sizes) else None


def _bytes(shapes: str, types: str) -> int:
    """Bytes of the first tensor, 0 unknown."""
    try:
        first = json.loads(shapes)[0]
    except (ValueError, IndexError, TypeError):
        return 0
    width = WIDTHS.get(first_dtype(types), 0)
    return prod(int(n) for n in first) * width if isinstance(first, list) and all(isinstance(n, int) for n in first) else 0
