"""Findings that rest on the kind of memory: loading from pageable memory, and unified memory that moves on demand."""

from __future__ import annotations

import numpy as np

from tb_sol_plugin.metrics.memcpy.patterns.case import Case
from tb_sol_plugin.metrics.memcpy.patterns.finding import CopyFinding
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.units import human


def pageable_loading(case: Case) -> list[CopyFinding]:
    """At least 80 % of the bytes to the device come from pageable memory.

    Saving: bytes (1 / measured rate - 1 / (80 % of the limit)) for the faster copy, and what of the rest is exposed, since a copy from
    pinned memory can run behind computation; together never more than the exposed time. The host's wait for them comes on top, where
    the device runs dry meanwhile.
    """
    up = case.inside & (case.direction == "HtoD") & (case.bytes >= 0)
    rows = np.flatnonzero(up & case.pageable)
    total, moved = int(case.bytes[up].sum()), int(case.bytes[rows].sum())
    if not moved or moved < case.at.pageable_share * total:
        return []
    note = f"{human(moved / total, 'ratio')} of the bytes to the device"
    faster = faster_ns(case, moved, int(case.duration[rows].sum()))
    if faster > 0:
        note += f"; at {human(case.at.pinned_share, 'ratio')} of the link they would take {human(round(faster / case.steps), 'ns')} less"
    title, fix = "Data is loaded from pageable memory", "DataLoader(pin_memory=True); tensor.to(device, non_blocking=True)"
    if int(case.bytes[rows].max()) < case.at.tiny_bytes:  # values, no batches
        title, fix = "Small copies to the device come from pageable memory", "torch.full((), value, device=device)  # made on the device"
    return case.finding(
        "pageable_loading", rows, title, fix,
        spans=iv.merge(case.on_device(rows), case.on_host(rows)), note=note,
    )  # fmt: skip


def faster_ns(case: Case, moved: int, time_ns: int) -> float:
    """What pinned memory saves of the copies' own time over all steps, 0 where no limit of the link is known or they reach it."""
    peak = case.limits.get("HtoD")
    return max(time_ns - moved / (case.at.pinned_share * peak[0]) * 1e9, 0.0) if peak else 0.0


def managed(case: Case) -> list[CopyFinding]:
    """Copies with an end in unified memory: they hold the host, and pages move when they are touched."""
    rows = np.flatnonzero(case.inside & case.managed & (case.direction != "Memset"))
    return case.finding(
        "managed_copies", rows, "Copies from or to unified memory",
        "tensor = tensor.to(device)  # a plain device tensor; or cudaMemPrefetchAsync before the first use",
        spans=iv.merge(case.on_device(rows), case.on_host(rows)), note="copies of unified memory wait for the host",
    )  # fmt: skip
