"""Splits the memory of a device at each record into categories that add up to what is in use, exactly.

The categories are those of a record of the program itself: context and NCCL as recorded before the first iteration, what was
found of parameters, gradients and optimizer state, what the allocator reserves and does not use, and what is left: unknown, shown also
when 0.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Mask

AROUND: Final = ("base_context", "nccl", "others")
"""In use, but not by torch's allocator. base_context: at the first record of the device; nccl: what the records before the first
iteration gained since; others: other processes, where the driver tells them apart."""
PARTS: Final = ("params", "buffers", "grads", "main_grads", "master_weights", "exp_avg", "exp_avg_sq", "other_optimizer")
"""What a record found of a model and its optimizer."""
UNSEEN: Final = ("activations", "inputs", "temporary", "autograd_detail")
"""What no record of the program tells apart: it is within `unknown`."""
CATEGORIES: Final = (*AROUND, *PARTS, *UNSEEN, "fragmentation", "unknown")
OF: Final = ("device_used", "allocated", "process_used", "parts")
"""What the categories add up to, best first: memory in use on the device; by the allocator, where the former is unknown; of the host, the
memory of the process; where none is known, what was found, so that nothing is left over."""
TOLERANCE: Final = 0.05
"""Share of the whole above which what is unknown is flagged."""


def budget(capture: Capture) -> pd.DataFrame:
    """Returns the table record (row of `memory_records`), category, bytes, known: each category of each record, without those of phases.

    Of each record the bytes add up to `total` of `totals`, exactly. known is False for what this record does not tell: its bytes are 0,
    and whatever it is lies within `unknown`. `unknown` is negative where parts are counted twice.
    """
    rows, table, known, _, _ = memo(capture, ("memory.budget",), lambda: _made(capture))
    category = pd.Categorical.from_codes(np.tile(np.arange(len(CATEGORIES)), len(rows)), pd.Index(CATEGORIES))
    return pd.DataFrame({
        "record": np.repeat(rows, len(CATEGORIES)).astype(np.int32), "category": category, "bytes": table.reshape(-1),
        "known": known.reshape(-1),
    })  # fmt: skip


def totals(capture: Capture) -> pd.DataFrame:
    """Returns the table record, of (see `OF`), total (bytes), unknown (bytes), flag: `negative`, `large` (above 5 % of the total) or ""."""
    rows, table, _, total, of = memo(capture, ("memory.budget",), lambda: _made(capture))
    unknown = table[:, CATEGORIES.index("unknown")]
    flag = np.where(unknown < 0, "negative", np.where(unknown > TOLERANCE * total, "large", ""))
    return pd.DataFrame({
        "record": rows.astype(np.int32), "of": pd.Categorical.from_codes(of, pd.Index(OF)), "total": total, "unknown": unknown,
        "flag": flag,
    })  # fmt: skip


def base_records(capture: Capture, device: int) -> Ints:
    """Returns rows of the records that say what was in use on a device before the first iteration, and of no model, in order of time."""
    records = capture.tables[S.MEMORY_RECORDS.name]
    own = (records["device"].to_numpy() == device) & (records["iteration"].to_numpy() < 0) & _of_a_device(records)
    walked = np.unique(capture.tables[S.MEMORY_PARTS.name]["record"].to_numpy())
    rows = np.setdiff1d(np.flatnonzero(own), walked)
    return np.asarray(rows[np.argsort(records["time_ns"].to_numpy()[rows], kind="stable")], np.int64)


def _of_a_device(records: pd.DataFrame) -> Mask:
    """Tells which rows are records, rather than the peak of a phase or parts of one on another device."""
    alone = (records[["total", "device_used", "process_used", "allocated", "reserved"]].to_numpy() < 0).all(axis=1)
    return np.asarray(arrays.where(records["since"], lambda s: s != "phase") & ~alone, np.bool_)


def _made(capture: Capture) -> tuple[Ints, Ints, Mask, Ints, Ints]:
    """Returns (rows, bytes and known by row and category, total, what it is of)."""
    records = capture.tables[S.MEMORY_RECORDS.name]
    rows = np.flatnonzero(arrays.where(records["since"], lambda s: s != "phase"))
    size, known = _found(capture, len(records))
    size, known = size[rows], known[rows]
    device, used, own, allocated, reserved = (
        records[name].to_numpy()[rows] for name in ("device", "device_used", "process_used", "allocated", "reserved")
    )
    host = device < 0
    counted = size.sum(axis=1)
    of = np.select([~host & (used >= 0), ~host & (allocated >= 0), host & (own >= 0)], [0, 1, 2], 3)
    total = np.choose(of, [used, allocated, own, counted]).astype(np.int64)
    _around(capture, rows, of, size, known)
    gap = (of == 0) & (allocated >= 0) & (reserved >= 0)
    at = CATEGORIES.index("fragmentation")
    size[gap, at] = (reserved - allocated)[gap]
    known[gap, at] = True
    size[:, -1] = total - size.sum(axis=1)
    known[:, -1] = True
    return np.asarray(rows, np.int64), size, known, total, np.asarray(of, np.int64)


def _found(capture: Capture, records: int) -> tuple[Ints, Mask]:
    """Returns the bytes of parts, and which of them were looked for, by record and category."""
    parts = capture.tables[S.MEMORY_PARTS.name]
    size, known = np.zeros((records, len(CATEGORIES)), np.int64), np.zeros((records, len(CATEGORIES)), np.bool_)
    place = np.array([CATEGORIES.index(c) if c in PARTS else -1 for c in map(str, parts["category"].cat.categories)] + [-1], np.int64)
    column = place[arrays.codes(parts["category"])]
    record = parts["record"].to_numpy().astype(np.int64)
    use = (column >= 0) & (record >= 0) & (record < records)
    np.add.at(size, (record[use], column[use]), parts["bytes"].to_numpy()[use])
    known[record[use], column[use]] = True
    return size, known


def _around(capture: Capture, rows: Ints, of: Ints, size: Ints, known: Mask) -> None:
    """Fills in what is in use besides the allocator: of a device by its context, of the host by what the process used at first."""
    records = capture.tables[S.MEMORY_RECORDS.name]
    names = ("device", "time_ns", "device_used", "process_used", "reserved")
    device, time, used, own, reserved = (records[name].to_numpy() for name in names)
    for one in np.unique(device[rows]).tolist():
        of_device = np.flatnonzero((device[rows] == one) & ((of == 2) if one < 0 else (of == 0) & (reserved[rows] >= 0)))
        if not len(of_device):
            continue
        reported = one >= 0 and bool((own[rows[of_device]] >= 0).all())
        outside = own if one < 0 else (own if reported else used) - reserved
        if reported:
            size[of_device, AROUND.index("others")] = (used - own)[rows[of_device]]
            known[of_device, AROUND.index("others")] = True
        base = np.intersect1d(base_records(capture, one), rows[of_device])
        base = base[np.argsort(time[base], kind="stable")]
        if not len(base):
            if one >= 0:  # the context as it is, without the part that came later
                size[of_device, 0] = outside[rows[of_device]]
                known[of_device, 0] = True
            continue
        size[of_device, 0] = outside[base[0]]
        known[of_device, 0] = True
        if one >= 0 and len(base) > 1:
            last = np.searchsorted(time[base], time[rows[of_device]], side="right") - 1
            gained = outside[base[last.clip(0)]] - outside[base[0]]
            sure = (last > 0) & (gained >= 0)
            size[of_device, 1] = np.where(sure, gained, 0)
            known[of_device, 1] = sure
