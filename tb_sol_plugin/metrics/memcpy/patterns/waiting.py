"""Copies that hold the host: reads of single values, small and large copies to the host, copies to the device, sets of host memory.

The saving is the time in which the device runs dry for it (see `blocking`): what the host loses behind a busy device shortens no step.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from tb_sol_plugin.metrics.memcpy.patterns.case import Case
from tb_sol_plugin.metrics.memcpy.patterns.finding import CopyFinding
from tb_sol_plugin.metrics.memcpy.patterns.say import outermost_operator
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Mask, Places

READS: Final = {
    r"nonzero|argwhere|masked_select|unique|repeat_interleave|where|index": "torch.where(mask, x, 0)  # a fixed size needs no answer",
    r"equal|allclose": "same = (a == b).all()  # stays on the device; ask for it once in many steps",
    "": "total += loss.detach()  # on the device; .item() once in many steps",
}
"""Ways out of reading a value, by the operator that reads most; the last fits any."""


def waiting(case: Case, apart: Mask) -> list[CopyFinding]:
    """The findings. apart: copies that a more specific finding speaks for."""
    reason = case.held["reason"].to_numpy(object)
    held = case.inside & (reason != "") & ~apart
    read, small = reason == "tiny_read", (case.bytes >= 0) & (case.bytes < case.at.tiny_bytes)
    back, forth, sets = (case.direction == d for d in ("DtoH", "HtoD", "Memset"))
    masks = {
        "scalar_reads": held & read,
        "small_to_host": held & back & small & ~read,
        "blocking_to_host": held & back & ~small & ~read,
        "blocking_to_device": held & forth,
        "blocking_sets": held & sets,
    }
    masks["blocking_other"] = held & ~np.logical_or.reduce(list(masks.values()))
    out: list[CopyFinding] = []
    for rule, mask in masks.items():
        rows = np.flatnonzero(mask)
        if len(rows):
            title, fix = _WORDS[rule]
            fix = _read_fix(case, rows) if rule == "scalar_reads" else fix
            if rule == "blocking_to_device" and (case.found["src_kind"].to_numpy(object)[rows] == "Pinned").all():
                fix = "tensor.to(device, non_blocking=True)  # its memory is pinned already"
            out += case.finding(rule, rows, title, fix, spans=case.on_host(rows), host=True)
    return out


_WORDS: Final = {
    "scalar_reads": ("Reading single values holds the host", ""),
    "small_to_host": (
        "Small copies to the host drain the stream",
        "pinned.copy_(small, non_blocking=True); event.record()  # read it a step later, after event.synchronize()",
    ),
    "blocking_to_host": ("Copies to the host hold it", "pinned.copy_(tensor, non_blocking=True)  # event.synchronize() where it is read"),
    "blocking_to_device": ("Copies to the device hold the host", "tensor.pin_memory().to(device, non_blocking=True)"),
    "blocking_sets": ("Setting host or unified memory holds the host", "buffer.zero_()  # on a tensor of the device"),
    "blocking_other": ("Copies hold the host", "dst.copy_(src, non_blocking=True)  # from or to pinned memory"),
}


def _read_fix(case: Case, rows: Places) -> str:
    outer = outermost_operator(case.capture, case.found[["operator"]].iloc[rows])
    (name,), _ = arrays.largest([case.capture.host["name"]], outer, case.held["host_ns"].to_numpy()[rows].astype(np.float64))
    return next(fix for pattern, fix in READS.items() if re.search(pattern, name))
