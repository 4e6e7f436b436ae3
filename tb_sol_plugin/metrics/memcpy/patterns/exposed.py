"""Large copies that nothing hides."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_sol_plugin.metrics.memcpy.link import OVER
from tb_sol_plugin.metrics.memcpy.patterns.case import Case
from tb_sol_plugin.metrics.memcpy.patterns.finding import CopyFinding
from tb_sol_plugin.metrics.memcpy.words import NAMES
from tb_sol_plugin.tables.arrays import Mask
from tb_sol_plugin.units import human

HIDE: Final = {
    "HtoD": "with torch.cuda.stream(copy_stream): next_batch = next_batch.to(device, non_blocking=True)",
    "DtoH": "with torch.cuda.stream(copy_stream): pinned.copy_(tensor, non_blocking=True)",
    "PtoP": "with torch.cuda.stream(copy_stream): tensor = tensor.to('cuda:1', non_blocking=True)",
}


def exposed(case: Case, apart: Mask) -> list[CopyFinding]:
    """Copies over a link that take more than 100 us, more than half of it exposed. The saving is when they run and no kernel does.

    apart: copies that a more specific finding speaks for.
    """
    shown = case.found["exposed_ns"].to_numpy()
    long = case.inside & ~apart & (case.duration > case.at.long_ns) & (shown > case.at.exposed_share * case.duration)
    out: list[CopyFinding] = []
    for direction, fix in HIDE.items():
        rows = np.flatnonzero(long & (case.direction == direction))
        size, time = case.bytes[rows], case.duration[rows]
        known = size >= 0
        peak = case.limits.get(direction)
        if not len(rows):
            continue
        note = ""
        if peak and known.any() and time[known].sum():
            reached = float(size[known].sum()) / float(time[known].sum()) * 1e9
            over = reached > OVER * peak[0]
            of = f"{peak[1]}, {human(peak[0], 'B/s')}"
            note = f"faster than {of}: the link assumption is wrong" if over else f"{human(reached / peak[0], 'ratio')} of {of}"
        out += case.finding(
            "exposed", rows, f"Large copies run while nothing computes ({NAMES[direction].lower()})", fix, spans=case.on_device(rows),
            several=True, note=note,
        )  # fmt: skip
    return out
