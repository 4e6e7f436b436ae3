"""Copies that say the same twice: uploads that every step repeats, data that goes to the host and back, or around by the host.

Contents are not recorded: these are candidates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics.copies import counted
from tb_sol_plugin.metrics.copies.bandwidth import OVER
from tb_sol_plugin.metrics.copies.records import COPY_KERNEL, NAMES
from tb_sol_plugin.metrics.rules.copies.context import Case, outermost_operator
from tb_sol_plugin.metrics.rules.engine import CopyFinding
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Mask, Places
from tb_sol_plugin.units import human

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


# -- Large copies that nothing hides ---------------------------------------------------------------------------------


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


# -- Findings that rest on the kind of memory ------------------------------------------------------------------------
# loading from pageable memory, and unified memory that moves on demand.


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


# -- Copies that are mostly latency ----------------------------------------------------------------------------------
# many tiny ones in a step, and several in a row that could be one.


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


# -- Copies that hold the host ---------------------------------------------------------------------------------------
# reads of single values, small and large copies to the host, copies to the device, sets of host memory.
#
# The saving is the time in which the device runs dry for it (see `blocking`): what the host loses behind a busy device shortens no step.


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


# -- Copies inside of a device ---------------------------------------------------------------------------------------
# the same bytes back to back, gradients that are stored by copying, inputs that a graph has copied in.


def duplicates(case: Case) -> list[CopyFinding]:
    """Copies of the same size by the same chain of operators (`contiguous`, `clone`, `copy_`) with nothing between them on their stream.

    Told where those of one chain take more than 5 % of the step; the saving is their exposed time.
    """
    named = case.under(operator=r"aten::(contiguous|clone|copy_)$")
    rows = np.flatnonzero(case.inside & (case.direction == "DtoD") & (case.bytes > 0) & named)
    if len(rows) < 2:
        return []
    at = case.position[rows]
    rows, at = rows[np.argsort(at)], np.sort(at)
    lane = case.found[["device", "stream"]].to_numpy()[rows]
    same = (np.diff(at) == 1) & (lane[1:] == lane[:-1]).all(axis=1) & (case.bytes[rows][1:] == case.bytes[rows][:-1])
    same &= (case.path[rows][1:] == case.path[rows][:-1]) & (case.step[rows][1:] == case.step[rows][:-1])
    rows = rows[np.append(same, False) | np.insert(same, 0, False)]
    if not len(rows):
        return []
    code, _ = pd.factorize(case.path[rows])
    least = case.at.layout_share * iv.length(case.windows)
    enough = np.flatnonzero(np.bincount(code, case.duration[rows]) > least)
    large = [g for g in enough.tolist() if iv.length(_time(case, rows[code == g])) > least]
    rows = np.sort(rows[np.isin(code, large)])
    return case.finding(
        "duplicate_copies", rows, "The same bytes are copied inside of the device again and again",
        "# one layout from the producer on: leave out .contiguous() and .clone() where the reader takes strided tensors",
        spans=case.on_device(rows), candidate=True, note="one size and one chain of operators, back to back",
    )  # fmt: skip


def _time(case: Case, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> iv.Spans:
    return iv.intersect(iv.union(case.start[rows], case.end[rows]), case.windows)


def gradients(case: Case) -> list[CopyFinding]:
    """Copies inside of `AccumulateGrad`: into the buckets of data parallelism, or because a gradient cannot be taken as it is."""
    stored = case.under(operator=r"(autograd::engine::\S+ )?torch::autograd::AccumulateGrad")
    rows = np.flatnonzero(case.inside & (case.direction == "DtoD") & stored)
    if not len(rows):
        return []
    cloned = case.under(operator=r"aten::clone$")[rows]
    time = case.duration[rows]
    if 2 * int(time[cloned].sum()) > int(time.sum()):
        title = "Gradients are cloned when they are stored"
        fix = "# give backward dense gradients in their parameter's layout: no .expand(), .t() or channels_last on one side only"
        note = "a gradient in another layout than its parameter, or one that others hold, is cloned"
    else:
        title = "Gradients are copied again when they are accumulated"
        parallel = _has(case, "DistributedDataParallel")
        fix = "DistributedDataParallel(model, gradient_as_bucket_view=True)" if parallel else "optimizer.zero_grad(set_to_none=True)"
        note = "data parallelism copies each into a bucket" if parallel else "each is copied into the one that is there"
    return case.finding("gradient_copies", rows, title, fix, spans=case.on_device(rows), candidate=True, note=note)


def graph_inputs(case: Case) -> list[CopyFinding]:
    """Copies that a compiled function makes before it launches its graph: inputs go to the place where the graph reads them.

    Its clones are results that must outlive the next launch, and no inputs.
    """
    if not _has(case, "cudaGraphLaunch") and not _has(case, "hipGraphLaunch"):
        return []
    mask = case.inside & (case.direction == "DtoD") & case.under(operator=r"CompiledFunction(Backward)?$")
    mask &= case.under(operator=r"aten::copy_$") & ~case.under(operator=r"aten::clone$")
    rows = np.flatnonzero(mask & ~case.found["graph"].to_numpy())
    return case.finding(
        "graph_inputs", rows, "Inputs are copied to where a graph reads them",
        "torch._dynamo.mark_static_address(tensor)  # parameters and buffers that stay where they are need no copy",
        spans=case.on_device(rows), candidate=True, note="copies of a compiled function outside of its graph",
    )  # fmt: skip


def _has(case: Case, start: str) -> bool:
    return bool(arrays.where(case.capture.host["name"], lambda n: n.startswith(start)).any()) if len(case.capture.host) else False


# -- What counted copies tell of waiting -----------------------------------------------------------------------------
# numbers that the host reads, pageable memory, copies that were asked to block.
#
# What a copy costs is not known without its time on the device; the rules say how often it happens, where, and how long the host was in
# the calls while copies were counted, which is no saving.


LAYOUT_BYTES: Final = 1 << 20
"""Bytes per step from which copies into another layout are worth a word."""
PLACES: Final = 2
NO_PLACE: Final = ("(", "Memcpy ")
"""Beginnings of what names no place: `(no module)`, and copies that another profiler names by their direction."""


@dataclass(frozen=True)
class CountedFinding:
    """Copies of one sort in the selected steps.

    rule: reads, pageable, blocking, layout. direction: of the copies. copies, sized_bytes, unsized: sums (unsized: copies without a size).
    waits: copies that the host waited for, 0 also where that is not known. call_ns: of the host inside the calls, time_ns: on the device;
    NaN unknown. operators, modules, phases: where most of
    them are made, the most first. candidate: may be meant.
    """

    rule: str
    direction: str
    copies: int
    sized_bytes: int
    unsized: int
    waits: int
    call_ns: float
    time_ns: float
    operators: tuple[str, ...]
    modules: tuple[str, ...]
    phases: tuple[str, ...]
    candidate: bool = False


def findings(capture: Capture, where: Scope | None = None) -> list[CountedFinding]:
    """What to look at, by the host's time inside the calls; where that is unknown, by the time on the device, then by number.

    From pageable memory every copy makes the host wait, so those count also where nobody knows of the waiting (a profile of Proton).
    """
    rows = counted.counted(capture, where)
    if not len(rows):
        return []
    at = np.arange(len(rows))
    direction, src, dst = (arrays.pick(rows[c], at) for c in ("direction", "src_kind", "dst_kind"))
    waits, unknown = rows["blocking"].to_numpy() > 0, rows["blocking"].to_numpy() < 0
    timed = np.isfinite(rows["time_ns"].to_numpy(np.float64))
    crosses = (direction == "HtoD") | (direction == "DtoH")
    host_kind = np.where(direction == "HtoD", src, dst)
    reads = waits & (direction == "DtoH") & (host_kind == "")
    out = []
    if reads.any():
        out.append(_finding(capture, rows, reads, "reads", "DtoH"))
    for one in ("HtoD", "DtoH"):
        mine = crosses & (direction == one)
        for rule, kind, held in (("pageable", "Pageable", waits | (unknown & timed)), ("blocking", "Pinned", waits)):
            chosen = mine & held & (host_kind == kind)
            if chosen.any():
                out.append(_finding(capture, rows, chosen, rule, one))
    layout = direction == COPY_KERNEL
    moved = int(rows["bytes"].to_numpy()[layout].sum())
    if moved >= LAYOUT_BYTES * counted.iterations(capture, where):
        out.append(_finding(capture, rows, layout, "layout", COPY_KERNEL))
    return sorted(out, key=lambda f: (f.candidate, -np.nan_to_num(f.call_ns), -np.nan_to_num(f.time_ns), -f.copies))


def _finding(capture: Capture, rows: pd.DataFrame, chosen: npt.NDArray[np.bool_], rule: str, direction: str) -> CountedFinding:
    mine = rows[chosen].reset_index(drop=True)
    count = mine["count"].to_numpy()

    def most(by: str) -> tuple[str, ...]:
        label = counted.labels(capture, mine, by)
        sums = pd.Series(count).groupby(label, sort=False).sum().sort_values(ascending=False, kind="stable")
        return tuple(str(name) for name in sums.index if not str(name).startswith(NO_PLACE))[:PLACES]

    return CountedFinding(
        rule,
        direction,
        int(count.sum()),
        int(mine["bytes"].sum()),
        int(mine["without_bytes"].sum()),
        int(np.maximum(mine["blocking"].to_numpy(), 0).sum()),
        float(mine["call_ns"].to_numpy(np.float64).sum()),
        float(mine["time_ns"].to_numpy(np.float64).sum()),
        most("operator"),
        most("module"),
        most("phase"),
        rule == "layout",
    )
