"""Memory per operator: what its calls added to memory in use, and what they allocated, with what runs inside them and alone.

Size increase is the sum of bytes of all events inside, allocations and frees; "self" counts the events whose innermost operator it is.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics import attribution as at
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory.owners import owners
from tb_sol_plugin.metrics.memory.replay import Device, replay
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Mask


def by_operator(capture: Capture, device: Device, window: tuple[int, int] | None = None) -> pd.DataFrame:
    """One row per operator name with a memory event of the device inside, and one with the name "" for events outside of every operator.

    name, calls (that start in the window; 0 of ""), size_increase, self_size_increase (bytes, frees count negative), allocations,
    self_allocations (events that allocate), allocated_bytes, self_allocated_bytes. window: start and end in ns of the events and calls to
    count, all if None.
    """
    return memo(capture, ("memory.operators", device, window), lambda: _by_operator(capture, device, window))


def _by_operator(capture: Capture, device: Device, window: tuple[int, int] | None) -> pd.DataFrame:
    r = replay(capture, device)
    keep: Mask = np.ones(len(r.row), bool) if window is None else (r.time_ns >= window[0]) & (r.time_ns <= window[1])
    row, size = r.row[keep], r.bytes[keep]
    owner = owners(capture)
    operator = owner["operator"].to_numpy()[row]
    time = capture.tables["memory"]["time_ns"].to_numpy()[row]
    h = at.host(capture)
    name = arrays.codes(capture.host["name"]) if len(h.start) else np.zeros(0, np.int64)
    group = np.where(h.kind == S.OPERATOR, name, -1).astype(np.int32)
    called = group if window is None else np.where((h.start >= window[0]) & (h.start <= window[1]), group, -1)
    names = len(capture.host["name"].cat.categories)
    gain = size > 0
    out: dict[str, Ints] = {"calls": np.bincount(called[called >= 0], minlength=names).astype(np.int64)}
    own = np.where(operator >= 0, name[operator.clip(0)], -1) if len(name) else np.full(len(row), -1)
    outside = operator < 0
    alone = {}
    for column, values in (("size_increase", size), ("allocations", gain.astype(np.int64)), ("allocated_bytes", np.where(gain, size, 0))):
        whole = at.inclusive(capture, operator, time, values, group)
        out[column] = np.pad(whole, (0, names - len(whole)))
        out[f"self_{column}"] = at.sum_by(own, values, names)
        alone[column] = int(values[outside].sum())
    seen = np.zeros(names, np.int64)
    inside = at.inclusive(capture, operator, time, np.ones(len(row), np.int64), group)
    seen[: len(inside)] = inside
    kept = np.flatnonzero(seen)
    frame = pd.DataFrame({"name": np.array(capture.host["name"].cat.categories, object)[kept], **{k: v[kept] for k, v in out.items()}})
    if outside.any():
        last = {"name": "", "calls": 0} | alone | {f"self_{k}": v for k, v in alone.items()}
        frame = pd.concat([frame, pd.DataFrame([last])], ignore_index=True) if len(frame) else pd.DataFrame([last])
    order = ["name", "calls", "size_increase", "self_size_increase", "allocations", "self_allocations", "allocated_bytes"]
    return frame[[*order, "self_allocated_bytes"]].sort_values("self_size_increase", ascending=False, kind="stable", ignore_index=True)
