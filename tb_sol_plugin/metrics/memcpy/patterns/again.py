"""Copies that say the same twice: uploads that every step repeats, data that goes to the host and back, or around by the host.

Contents are not recorded: these are candidates.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.memcpy.patterns.case import Case
from tb_sol_plugin.metrics.memcpy.patterns.finding import CopyFinding
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Mask, Places

APART: Final = r"enumerate\(Data(Loader|Pipe)|Optimizer\."
"""Ranges in which every step brings new data of the same size."""


def _both(case: Case, rows: Places) -> iv.Spans:
    return iv.merge(case.on_device(rows), case.on_host(rows))


def redundant(case: Case, apart: Mask) -> list[CopyFinding]:
    """Copies to the device of one size from one place (module, chain of operators) in each of at least 3 steps in a row.

    Outside of data loading and the optimizer. A batch has the same size in every step too: copies outside of every module count only
    where the recording names no modules, and then those that come after the step's first kernel on a stream that computes.
    apart: copies that come from the device in the same step, which are no constants.
    """
    ours = case.inside & ~apart & (case.direction == "HtoD") & (case.bytes > 0) & (case.step >= 0)
    rows = np.flatnonzero(ours & ~case.under(annotation=APART))
    module = case.found["module"].to_numpy()
    named = bool((case.capture.device["module"].to_numpy() >= 0).any())
    rows = rows[module[rows] >= 0] if named else rows[_after_first_kernel(case)[rows]]
    if not len(rows) or len(case.where.rows) < case.at.again_steps:
        return []
    name = arrays.codes(case.capture.host["name"])[np.maximum(module[rows], 0)] if len(case.capture.host) else module[rows]
    place = arrays.together(np.where(module[rows] >= 0, name, -1), case.path[rows], case.bytes[rows])
    rows = rows[_in_a_row(place, case.step[rows], case.at.again_steps)[place]]
    if not len(rows):
        return []
    note = "one size from one place in every step; contents are not recorded"
    fix = "self.register_buffer('constant', value)  # moves to the device once, with the module"
    return case.finding(
        "redundant_upload", rows, "The same copy goes to the device in every step", fix, spans=_both(case, rows), candidate=True, note=note
    )


def _in_a_row(place: Places, step: np.ndarray[tuple[int], np.dtype[np.int64]], least: int) -> Mask:
    """Per place whether it has copies in at least `least` steps with none missing between."""
    many = int(step.max()) + 1
    seen, at = np.divmod(pd.unique(place.astype(np.int64) * many + step), many)
    order = np.lexsort((at, seen))
    seen, at = seen[order], at[order]
    first = np.flatnonzero(np.concatenate(([True], (np.diff(seen) != 0) | (np.diff(at) != 1))))
    length = np.diff(np.append(first, len(seen)))
    out = np.zeros(int(place.max()) + 1, bool)
    out[seen[first[length >= least]]] = True
    return out


def _after_first_kernel(case: Case) -> Mask:
    """Copies that start after the first kernel of their step, on a stream on which kernels run."""
    device = case.capture.device
    kernel = device["kind"].to_numpy() == S.KERNEL
    step = device["step"].to_numpy()[kernel]
    start = device["start_ns"].to_numpy()[kernel]
    first = np.full(max(int(step.max(initial=-1)), int(case.step.max(initial=-1))) + 2, np.iinfo(np.int64).max)
    np.minimum.at(first, step, start)
    both = (np.concatenate((device[c].to_numpy()[kernel], case.found[c].to_numpy())) for c in ("device", "stream"))
    lane = arrays.together(*both)
    computes = np.zeros(int(lane.max(initial=-1)) + 1, np.bool_)
    computes[lane[: len(step)]] = True
    return np.asarray((case.start > first[case.step]) & computes[lane[len(step) :]], np.bool_)


def ping_pong(case: Case) -> list[CopyFinding]:
    """Copies to the host and back of one size on one device, at most 10 ms apart and in turns, at least 2 round trips in a step."""
    order, group = _sizes(case, "device")
    if not len(order):
        return []
    back = case.direction[order] == "HtoD"
    turns = (group[1:] == group[:-1]) & (back[1:] != back[:-1])
    turns &= case.start[order][1:] - case.end[order][:-1] <= case.at.trip_gap_ns
    opens = np.flatnonzero(np.concatenate(([True], ~turns)))
    length = np.diff(np.append(opens, len(order)))
    skip = back[opens].astype(np.int64)  # what comes back first has not been sent
    trips = (length - skip) // 2
    trips[trips < max(case.at.trip_count, 1)] = 0
    run = np.cumsum(np.concatenate(([True], ~turns))) - 1
    place = np.arange(len(order)) - (opens + skip)[run]
    rows = np.sort(order[(place >= 0) & (place < 2 * trips[run])])
    if not len(rows):
        return []
    note = f"{int(trips.sum())} round trips in all; contents are not recorded"
    fix = "# compute this part on the device: torch operators instead of .cpu() … .to(device)"
    return case.finding(
        "ping_pong", rows, "Data goes to the host and comes back", fix, spans=_both(case, rows), candidate=True, note=note, direction="DtoH"
    )


def through_host(case: Case) -> list[CopyFinding]:
    """A copy to the host from one device, and within 5 ms one of the same size to another device."""
    order, group = _sizes(case, "")
    if not len(order):
        return []
    device, down = case.found["device"].to_numpy()[order], case.direction[order] == "DtoH"
    last = np.maximum.accumulate(np.where(down, np.arange(len(order)), -1))  # the copy to the host before each
    safe = np.maximum(last, 0)
    fits = ~down & (last >= 0) & (group[safe] == group) & (device != device[safe])
    fits &= case.start[order] - case.end[order][safe] <= case.at.relay_gap_ns
    on = np.flatnonzero(fits)
    on = on[np.unique(last[on], return_index=True)[1]]  # the first after it
    rows = np.sort(np.concatenate((order[last[on]], order[on])))
    if not len(rows):
        return []
    ids, at = np.unique(device, return_inverse=True)
    ways, often = np.unique(at[last[on]] * len(ids) + at[on], return_counts=True)
    source, target = (int(ids[i]) for i in divmod(int(ways[often.argmax()]), len(ids)))
    note = f"{len(on)} pairs of one size; contents are not recorded"
    return case.finding(
        "through_host", rows, "Copies between devices go around by the host",
        f"tensor.to('cuda:{target}', non_blocking=True)  # straight from the other device; "
        f"torch.cuda.can_device_access_peer({source}, {target})",
        spans=_both(case, rows), candidate=True, note=note, direction="DtoH",
    )  # fmt: skip


def _sizes(case: Case, by: str) -> tuple[Places, Places]:
    """Copies between host and device, those together that share a step and a size, in order of start; and the group of each.

    Those that are read as values are left out, and so are groups of one direction.
    """
    ours = case.inside & np.isin(case.direction, ("HtoD", "DtoH")) & (case.bytes > case.at.read_bytes) & (case.step >= 0)
    rows = np.flatnonzero(ours)
    rows = rows[np.argsort(case.start[rows], kind="stable")]
    if not len(rows):
        return rows, rows
    code = arrays.together(case.step[rows], case.bytes[rows], *([case.found[by].to_numpy()[rows]] if by else []))
    down = case.direction[rows] == "DtoH"
    groups = int(code.max()) + 1
    both = (np.bincount(code[down], minlength=groups) > 0) & (np.bincount(code[~down], minlength=groups) > 0)
    rows, code = rows[both[code]], code[both[code]]
    order = np.argsort(code, kind="stable")
    return rows[order], code[order]
