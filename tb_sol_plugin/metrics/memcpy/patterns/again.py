"""Copies that say the same twice: uploads that every step repeats, data that goes to the host and back, or around by the host.

Contents are not recorded: these are candidates.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics import texts
from tb_sol_plugin.metrics.groups import factorize
from tb_sol_plugin.metrics.memcpy.patterns.case import Case, Mask, Places
from tb_sol_plugin.metrics.memcpy.patterns.finding import CopyFinding
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables import intervals as iv

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
    name = texts.codes(case.capture.host["name"])[np.maximum(module[rows], 0)] if len(case.capture.host) else module[rows]
    place = _alike(np.where(module[rows] >= 0, name, -1), case.path[rows], case.bytes[rows])
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
    seen = np.unique(np.stack((place.astype(np.int64), step)), axis=1)
    first = np.flatnonzero(np.concatenate(([True], (np.diff(seen[0]) != 0) | (np.diff(seen[1]) != 1))))
    length = np.diff(np.append(first, seen.shape[1]))
    out = np.zeros(int(place.max()) + 1, bool)
    out[seen[0][first[length >= least]]] = True
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
    lane = _alike(*both)
    count = int(np.count_nonzero(kernel))
    return np.asarray((case.start > first[case.step]) & np.isin(lane[count:], np.unique(lane[:count])), np.bool_)


def _alike(*columns: np.ndarray[tuple[int], np.dtype[np.integer]]) -> Places:
    """A number per row, the same for rows that agree in all columns."""
    return factorize([pd.factorize(c)[0].astype(np.int64) for c in columns])[0].astype(np.intp)


def ping_pong(case: Case) -> list[CopyFinding]:
    """Copies to the host and back of one size on one device, at most 10 ms apart and in turns, at least 2 round trips in a step."""
    ours, code = _sizes(case, "device")
    if not len(ours):
        return []
    back = case.direction[ours] == "HtoD"
    near = case.start[ours][1:] - case.end[ours][:-1] <= case.at.trip_gap_ns
    first = np.flatnonzero(np.append(True, (code[1:] != code[:-1]) | ~near | (back[1:] == back[:-1])))  # of each alternation
    first, stop = first + back[first], np.append(first[1:], len(ours))  # a copy to the host comes first
    each = (stop - first) // 2
    each[each < max(case.at.trip_count, 1)] = 0
    trips = int(each.sum())
    if not trips:
        return []
    edge = np.zeros(len(ours) + 1, np.int64)
    np.add.at(edge, first, (each > 0).astype(np.int64))
    np.add.at(edge, first + 2 * each, -(each > 0).astype(np.int64))
    rows = np.sort(ours[np.cumsum(edge)[:-1] > 0])
    note = f"{trips} round trips in all; contents are not recorded"
    fix = "# compute this part on the device: torch operators instead of .cpu() … .to(device)"
    return case.finding(
        "ping_pong", rows, "Data goes to the host and comes back", fix, spans=_both(case, rows), candidate=True, note=note, direction="DtoH"
    )


def through_host(case: Case) -> list[CopyFinding]:
    """A copy to the host from one device, and within 5 ms one of the same size to another device."""
    chosen: list[int] = []
    device = case.found["device"].to_numpy()
    ours, code = _sizes(case, "") if device.min() < device.max() else (np.zeros(0, np.intp), np.zeros(0, np.intp))
    for own in np.split(ours, np.flatnonzero(np.diff(code)) + 1):
        last = -1
        for i in own.tolist():
            if case.direction[i] == "DtoH":
                last = i
            elif last >= 0 and device[i] != device[last] and case.start[i] - case.end[last] <= case.at.relay_gap_ns:
                chosen += [last, i]
                last = -1
    if not chosen:
        return []
    ways = [(int(device[a]), int(device[b])) for a, b in zip(chosen[::2], chosen[1::2], strict=True)]
    source, target = Counter(sorted(ways)).most_common(1)[0][0]
    rows = np.array(sorted(chosen), np.intp)
    note = f"{len(ways)} pairs of one size; contents are not recorded"
    return case.finding(
        "through_host", rows, "Copies between devices go around by the host",
        f"tensor.to('cuda:{target}', non_blocking=True)  # straight from the other device; "
        f"torch.cuda.can_device_access_peer({source}, {target})",
        spans=_both(case, rows), candidate=True, note=note, direction="DtoH",
    )  # fmt: skip


def _sizes(case: Case, by: str) -> tuple[Places, Places]:
    """Copies between host and device, those of one step and size together, in order of start, and the number of each such group.

    Those that are read as values are left out.
    """
    ours = case.inside & np.isin(case.direction, ("HtoD", "DtoH")) & (case.bytes > case.at.read_bytes) & (case.step >= 0)
    rows = np.flatnonzero(ours)
    rows = rows[np.argsort(case.start[rows], kind="stable")]
    code = _alike(case.step[rows], case.bytes[rows], *([case.found[by].to_numpy()[rows]] if by else []))
    order = np.argsort(code, kind="stable")
    return rows[order], code[order]
