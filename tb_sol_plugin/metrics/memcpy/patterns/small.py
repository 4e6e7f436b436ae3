"""Copies that are mostly latency: many tiny ones in a step, and several in a row that could be one."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_sol_plugin.metrics.memcpy.patterns.case import Case
from tb_sol_plugin.metrics.memcpy.patterns.finding import CopyFinding
from tb_sol_plugin.metrics.memcpy.words import NAMES
from tb_sol_plugin.tables.arrays import Places
from tb_sol_plugin.units import human

MOVES: Final = ("HtoD", "DtoH", "DtoD", "PtoP")
PACK: Final = {
    "HtoD": "packed = torch.cat(parts).pin_memory().to(device, non_blocking=True); parts = packed.split(sizes)",
    "DtoH": "packed = torch.cat(parts).to('cpu', non_blocking=True); parts = packed.split(sizes)",
    "": "torch._foreach_copy_(destinations, sources)  # one kernel for many small copies",
}


def tiny(case: Case) -> list[CopyFinding]:
    """Directions with at least 32 copies below 64 KiB in a step: n latencies would become one.

    Saving per step n t0 - (t0 + bytes / rate) with the fitted latency t0 and rate; never more than all but the longest copy, nor than
    the time in which they are exposed. Without a fit these two alone bound it.
    """
    small = case.inside & (case.bytes >= 0) & (case.bytes < case.at.tiny_bytes)
    out: list[CopyFinding] = []
    for direction in MOVES:
        rows = np.flatnonzero(small & (case.direction == direction))
        steps, place, count = np.unique(case.step[rows], return_inverse=True, return_counts=True)
        many = count >= case.at.tiny_count
        rows, place = rows[many[place]], place[many[place]]
        if not len(rows):
            continue
        fit = case.fit(direction)
        total = np.bincount(place, case.bytes[rows], minlength=len(steps))[many]
        most = _without_longest(case, rows, place, len(steps))[many]
        if fit is not None:
            most = np.minimum(most, np.maximum((count[many] - 1) * fit[0] - total / fit[1] * 1e9, 0))
        note = f"each waits about {human(round(fit[0]), 'ns')} before its first byte" if fit else "too few sizes to fit their latency"
        out += case.finding(
            "tiny", rows, f"Many tiny copies, each mostly latency ({NAMES[direction].lower()})", PACK.get(direction, PACK[""]),
            spans=case.on_device(rows), most_ns=float(most.sum()), candidate=True, several=True, note=note,
        )  # fmt: skip
    return out


def coalescable(case: Case, packed: list[CopyFinding]) -> list[CopyFinding]:
    """At least 3 copies below 1 MiB one after another: one direction, one stream, one step, less than 1 ms between, no other work.

    Saving (n - 1) t0 per run with the fitted latency, and never more than all but the longest copy. Runs of which every copy is in a
    finding of tiny copies are left to that one.
    """
    run = runs(case)
    known = np.zeros(len(run), bool)
    for f in packed:
        known[f.rows] = True
    out: list[CopyFinding] = []
    for direction in MOVES:
        rows = np.flatnonzero((run >= 0) & (case.direction == direction))
        fresh = np.unique(run[rows[~known[rows]]])
        rows = rows[np.isin(run[rows], fresh)]
        if not len(rows):
            continue
        ids, place, count = np.unique(run[rows], return_inverse=True, return_counts=True)
        most = _without_longest(case, rows, place, len(ids))
        fit = case.fit(direction)
        if fit is not None:
            most = np.minimum(most, (count - 1) * fit[0])
        note = f"{human(len(ids), 'count')} {'run' if len(ids) == 1 else 'runs'} of up to {human(int(count.max()), 'count')}"
        out += case.finding(
            "coalescable", rows, f"Copies in a row could be one ({NAMES[direction].lower()})", PACK.get(direction, PACK[""]),
            spans=case.on_device(rows), most_ns=float(most.sum()), candidate=True, several=True, note=note,
        )  # fmt: skip
    return out


def runs(case: Case) -> Places:
    """Number of the run per copy, -1 outside."""
    out = np.full(len(case.found), -1, np.intp)
    own = case.inside & np.isin(case.direction, MOVES) & (case.bytes >= 0) & (case.bytes < case.at.merge_bytes)
    rows = np.flatnonzero(own)
    at = case.position[rows]
    rows, at = rows[np.argsort(at)], np.sort(at)
    if not len(rows):
        return out
    lane = case.found[["device", "stream"]].to_numpy()[rows]
    follows = (np.diff(at) == 1) & (lane[1:] == lane[:-1]).all(axis=1) & (case.direction[rows][1:] == case.direction[rows][:-1])
    follows &= (case.start[rows][1:] - case.end[rows][:-1] < case.at.merge_gap_ns) & (case.step[rows][1:] == case.step[rows][:-1])
    number = np.concatenate(([0], np.cumsum(~follows)))
    long = np.bincount(number)[number] >= case.at.merge_count
    out[rows[long]] = number[long]
    return out


def _without_longest(case: Case, rows: Places, place: Places, groups: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Per group the time of its copies less the longest of them: what merging leaves takes at least that."""
    time = np.bincount(place, case.duration[rows], minlength=groups)
    longest = np.zeros(groups, np.int64)
    np.maximum.at(longest, place, case.duration[rows])
    return np.asarray(time - longest, np.float64)
