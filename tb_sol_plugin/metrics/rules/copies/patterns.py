"""Finds patterns of copies that cost time: copies that block the host, that nothing hides, that are made twice, that are latency."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.copies.bandwidth import OVER
from tb_sol_plugin.metrics.copies.records import NAMES
from tb_sol_plugin.metrics.rules.copies.context import CopyContext, outermost_operator
from tb_sol_plugin.metrics.rules.engine import Answer, rule
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Mask, Places
from tb_sol_plugin.units import human

APART: Final = r"enumerate\(Data(Loader|Pipe)|Optimizer\."
"""Ranges in which every step brings new data of the same size."""


def _both(context: CopyContext, rows: Places) -> iv.Spans:
    return iv.merge(context.on_device(rows), context.on_host(rows))


# -- Copies that are made twice --------------------------------------------------------------------------------------
# uploads that every step repeats, data that goes to the host and back, or between devices by the host. Contents are not recorded.


@rule(
    "redundant_upload", title="The same copy goes to the device in every step",
    fix="self.register_buffer('constant', value)  # moves to the device once, with the module", candidate=True,
)  # fmt: skip
def redundant(context: CopyContext) -> Answer:
    """Finds copies to the device of one size from one place (module, chain of operators) in each of at least 3 steps in a row.

    Outside of data loading and the optimizer. A batch has the same size in every step too: copies outside of every module count only
    where the recording names no modules, and then those that come after the step's first kernel on a stream that computes.
    Copies that came from the device in the same step are no constants.
    """
    ours = np.flatnonzero(context.inside & context.going("HtoD") & (context.bytes > 0) & (context.step >= 0))
    if not len(ours) or len(context.where.rows) < context.thresholds.again_steps:
        return None
    rows = ours[~context.under(annotation=APART)[ours]]
    module = context.columns.module
    named = bool((context.capture.device["module"].to_numpy() >= 0).any())
    rows = rows[module[rows] >= 0] if named else rows[_after_first_kernel(context, rows)]
    if not len(rows):
        return None
    name = arrays.codes(context.capture.host["name"])[np.maximum(module[rows], 0)] if len(context.capture.host) else module[rows]
    place = arrays.together(np.where(module[rows] >= 0, name, -1), context.path[rows], context.bytes[rows])
    rows = rows[_in_a_row(place, context.step[rows], context.thresholds.again_steps)[place]]
    note = "one size from one place in every step; contents are not recorded"
    return context.finding(rows, spans=_both(context, rows), note=note)


def _in_a_row(place: Places, step: np.ndarray[tuple[int], np.dtype[np.int64]], least: int) -> Mask:
    """Returns per place whether it has copies in at least `least` steps with none missing between."""
    many = int(step.max()) + 1
    seen, at = np.divmod(pd.unique(place.astype(np.int64) * many + step), many)
    order = np.lexsort((at, seen))
    seen, at = seen[order], at[order]
    first = np.flatnonzero(np.concatenate(([True], (np.diff(seen) != 0) | (np.diff(at) != 1))))
    length = np.diff(np.append(first, len(seen)))
    out = np.zeros(int(place.max()) + 1, bool)
    out[seen[first[length >= least]]] = True
    return out


def _after_first_kernel(context: CopyContext, rows: Places) -> Mask:
    """Returns which copies start after the first kernel of their step, on a stream on which kernels run."""
    device = context.capture.device
    kernel = np.flatnonzero(device["kind"].to_numpy() == S.KERNEL)
    step = device["step"].to_numpy()[kernel]
    start = device["start_ns"].to_numpy()[kernel]
    first = np.full(max(int(step.max(initial=-1)), int(context.step.max(initial=-1))) + 2, np.iinfo(np.int64).max)
    np.minimum.at(first, step, start)
    stream, streams = pd.factorize(np.concatenate((device["stream"].to_numpy()[kernel], context.copies["stream"].to_numpy()[rows])))
    lane = np.concatenate((device["device"].to_numpy()[kernel], context.columns.device[rows])).astype(np.int64) * len(streams) + stream
    computes = np.isin(lane[len(kernel) :], pd.unique(lane[: len(kernel)]))
    return np.asarray((context.start[rows] > first[context.step[rows]]) & computes, np.bool_)


@rule(
    "ping_pong", title="Data goes to the host and comes back",
    fix="# compute this part on the device: torch operators instead of .cpu() … .to(device)", candidate=True,
)  # fmt: skip
def ping_pong(context: CopyContext) -> Answer:
    """Finds copies to the host and back of one size on one device, at most 10 ms apart and in turns, at least 2 round trips in a step."""
    order, group = _sizes(context, "device")
    if not len(order):
        return None
    back = context.going("HtoD")[order]
    turns = (group[1:] == group[:-1]) & (back[1:] != back[:-1])
    turns &= context.start[order][1:] - context.end[order][:-1] <= context.thresholds.trip_gap_ns
    opens = np.flatnonzero(np.concatenate(([True], ~turns)))
    length = np.diff(np.append(opens, len(order)))
    skip = back[opens].astype(np.int64)  # what comes back first has not been sent
    trips = (length - skip) // 2
    trips[trips < max(context.thresholds.trip_count, 1)] = 0
    run = np.cumsum(np.concatenate(([True], ~turns))) - 1
    place = np.arange(len(order)) - (opens + skip)[run]
    rows = np.sort(order[(place >= 0) & (place < 2 * trips[run])])
    note = f"{human(int(trips.sum()), 'count')} round trips in all; contents are not recorded"
    return context.finding(rows, spans=_both(context, rows), note=note, direction="DtoH")


@rule("through_host", title="Copies between devices go around by the host", candidate=True)
def through_host(context: CopyContext) -> Answer:
    """Finds a copy to the host from one device, and within 5 ms one of the same size to another device."""
    order, group = _sizes(context, "")
    if not len(order):
        return None
    device, down = context.columns.device[order], context.going("DtoH")[order]
    last = np.maximum.accumulate(np.where(down, np.arange(len(order)), -1))  # the copy to the host before each
    safe = np.maximum(last, 0)
    fits = ~down & (last >= 0) & (group[safe] == group) & (device != device[safe])
    fits &= context.start[order] - context.end[order][safe] <= context.thresholds.relay_gap_ns
    on = np.flatnonzero(fits)
    on = on[np.unique(last[on], return_index=True)[1]]  # the first after it
    rows = np.sort(np.concatenate((order[last[on]], order[on])))
    if not len(rows):
        return None
    ids, at = np.unique(device, return_inverse=True)
    ways, often = np.unique(at[last[on]] * len(ids) + at[on], return_counts=True)
    source, target = (int(ids[i]) for i in divmod(int(ways[often.argmax()]), len(ids)))
    note = f"{len(on)} pairs of one size; contents are not recorded"
    fix = f"tensor.to('cuda:{target}', non_blocking=True)  # straight from the other device; "
    fix += f"torch.cuda.can_device_access_peer({source}, {target})"
    return context.finding(rows, spans=_both(context, rows), note=note, direction="DtoH", fix=fix)


def _sizes(context: CopyContext, by: str) -> tuple[Places, Places]:
    """Returns copies between host and device, those together that share a step and a size, in order of start; and the group of each.

    Those that are read as values are left out, and so are groups of one direction.
    """
    ours = context.inside & (context.bytes > context.thresholds.read_bytes) & (context.step >= 0)
    if not (ours & context.going("HtoD")).any() or not (ours & context.going("DtoH")).any():
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    rows = np.flatnonzero(ours & context.going("HtoD", "DtoH"))
    rows = rows[np.argsort(context.start[rows], kind="stable")]
    code = arrays.together(context.step[rows], context.bytes[rows], *([context.copies[by].to_numpy()[rows]] if by else []))
    down = context.going("DtoH")[rows]
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


@rule(*(f"exposed_{direction}" for direction in HIDE))
def exposed(context: CopyContext) -> Answer:
    """Finds copies over a link that take more than 100 us, more than half of it exposed. The saving is when they run and no kernel does.
    """
    long = long_exposed(context)
    out = []
    for direction, fix in HIDE.items():
        rows = np.flatnonzero(long & context.going(direction))
        size, time = context.bytes[rows], context.duration[rows]
        known = size >= 0
        peak = context.peaks.get(direction)
        if not len(rows):
            continue
        note = ""
        if peak and known.any() and time[known].sum():
            reached = float(size[known].sum()) / float(time[known].sum()) * 1e9
            over = reached > OVER * peak[0]
            of = f"{peak[1]}, {human(peak[0], 'B/s')}"
            note = f"faster than {of}: the link assumption is wrong" if over else f"{human(reached / peak[0], 'ratio')} of {of}"
        title = f"Large copies run while nothing computes ({NAMES[direction].lower()})"
        fix = upload_fix(context, rows, fix) if direction == "HtoD" else fix
        out.append(context.finding(rows, spans=context.on_device(rows), note=note, title=title, fix=fix))
    return [found for found in out if found is not None]


# -- Findings that rest on the kind of memory ------------------------------------------------------------------------
# loading from pageable memory, and unified memory that moves on demand.


@rule("pageable_loading")
def pageable_loading(context: CopyContext) -> Answer:
    """Finds that at least 80 % of the bytes to the device come from pageable memory.

    Saving: bytes (1 / measured rate - 1 / (80 % of the limit)) for the faster copy, and what of the rest is exposed, since a copy from
    pinned memory can run behind computation; together never more than the exposed time. The host's wait for them comes on top, where
    the device is idle meanwhile.
    """
    up = context.inside & context.going("HtoD") & (context.bytes >= 0)
    rows = np.flatnonzero(up & context.pageable)
    if len(rows):
        context.settle()
    if not len(rows) or not context.shows(_both(context, rows)):
        return None
    often = up & ~context.once
    which = ""
    if often.any() and 10 * int(context.bytes[often].sum()) >= int(context.bytes[up].sum()):  # what comes once is left to others
        up, which = often, " that come in every step" if (up & ~often).any() else ""
    rows = np.flatnonzero(up & context.pageable)
    total, moved = int(context.bytes[up].sum()), int(context.bytes[rows].sum())
    if not moved or moved < context.thresholds.pageable_share * total:
        return None
    note = f"{human(moved / total, 'ratio')} of the bytes to the device{which}"
    faster = faster_ns(context, moved, int(context.duration[rows].sum()))
    if faster > 0:
        less = human(round(faster / context.steps), "ns")
        note += f"; at {human(context.thresholds.pinned_share, 'ratio')} of the link they would take {less} less"
    title, fix = "Data is loaded from pageable memory", "DataLoader(pin_memory=True); tensor.to(device, non_blocking=True)"
    if int(context.bytes[rows].max()) < context.thresholds.tiny_bytes:  # values, no batches
        title, fix = "Small copies to the device come from pageable memory", "torch.full((), value, device=device)  # made on the device"
    elif context.mostly_once(rows):
        title, fix = "Data goes to the device once, from pageable memory", upload_fix(context, rows, fix)
    return context.finding(rows, spans=_both(context, rows), note=note, title=title, fix=fix)


def long_exposed(context: CopyContext) -> Mask:
    """Returns unclaimed copies over a link that take long, more than half of it while nothing computes."""
    exposed = context.columns.exposed
    long = context.inside & (context.duration > context.thresholds.long_ns) & context.going(*HIDE)
    return np.asarray(long & (exposed > context.thresholds.exposed_share * context.duration), np.bool_)


def upload_fix(context: CopyContext, rows: Places, fix: str) -> str:
    """Returns the advice for copies to the device: `fix`, but for data that is not uploaded in every step."""
    if not context.mostly_once(rows):
        return fix
    if context.where.rows:
        return "# not in every step, so no cost of each: record later steps"
    return "# once in this recording: with prof.step() at the end of each step it shows whether every step does it"


def faster_ns(context: CopyContext, moved: int, time_ns: int) -> float:
    """Returns what pinned memory saves of the copies' own time over all steps, 0 where no limit of the link is known or they reach it."""
    peak = context.peaks.get("HtoD")
    return max(time_ns - moved / (context.thresholds.pinned_share * peak[0]) * 1e9, 0.0) if peak else 0.0


@rule(
    "managed_copies", title="Copies from or to unified memory",
    fix="tensor = tensor.to(device)  # a plain device tensor; or cudaMemPrefetchAsync before the first use",
)  # fmt: skip
def managed(context: CopyContext) -> Answer:
    """Finds copies with an end in unified memory: they block the host, and pages move when they are touched."""
    rows = np.flatnonzero(context.inside & context.managed & ~context.going("Memset"))
    if not len(rows):
        return None
    return context.finding(rows, spans=_both(context, rows), note="copies of unified memory wait for the host")


# -- Copies that are mostly latency ----------------------------------------------------------------------------------
# many tiny ones in a step, and several in a row that could be one.


MOVES: Final = ("HtoD", "DtoH", "DtoD", "PtoP")
PACK: Final = {
    "HtoD": "packed = torch.cat(parts).pin_memory().to(device, non_blocking=True); parts = packed.split(sizes)",
    "DtoH": "packed = torch.cat(parts).to('cpu', non_blocking=True); parts = packed.split(sizes)",
    "": "torch._foreach_copy_(destinations, sources)  # one kernel for many small copies",
}


@rule(*(f"tiny_{direction}" for direction in MOVES), candidate=True)
def tiny(context: CopyContext) -> Answer:
    """Finds directions with at least 32 copies below 64 KiB in a step: n latencies would become one.

    Saving per step n t0 - (t0 + bytes / rate) with the fitted latency t0 and rate; never more than all but the longest copy, nor than
    the time in which they are exposed. Without a fit these two alone bound it.
    """
    small = context.inside & (context.bytes >= 0) & (context.bytes < context.thresholds.tiny_bytes)
    out = []
    for direction in MOVES:
        rows = np.flatnonzero(small & context.going(direction))
        if len(rows) < context.thresholds.tiny_count:
            continue
        steps, place, count = np.unique(context.step[rows], return_inverse=True, return_counts=True)
        many = count >= context.thresholds.tiny_count
        rows, place = rows[many[place]], place[many[place]]
        if not len(rows):
            continue
        total = np.bincount(place, context.bytes[rows], minlength=len(steps))[many]
        most = _without_longest(context, rows, place, len(steps))[many]
        spans = context.on_device(rows)
        if context.saving(spans, float(most.sum())) < context.least:
            continue
        fit = context.fit(direction)
        if fit is not None:
            most = np.minimum(most, np.maximum((count[many] - 1) * fit[0] - total / fit[1] * 1e9, 0))
        note = f"each waits about {human(round(fit[0]), 'ns')} before its first byte" if fit else "too few sizes to fit their latency"
        title = f"Many tiny copies, each mostly latency ({NAMES[direction].lower()})"
        fix = PACK.get(direction, PACK[""])
        fix = upload_fix(context, rows, fix) if direction == "HtoD" else fix
        out.append(context.finding(rows, spans=spans, most_ns=float(most.sum()), note=note, title=title, fix=fix))
    return [found for found in out if found is not None]


@rule(*(f"coalescable_{direction}" for direction in MOVES), candidate=True)
def coalescable(context: CopyContext) -> Answer:
    """Finds at least 3 copies below 1 MiB one after another: one direction, stream and step, less than 1 ms between, no other work.

    Saving (n - 1) t0 per run with the fitted latency, and never more than all but the longest copy.
    """
    run = runs(context)
    out = []
    for direction in MOVES:
        rows = np.flatnonzero((run >= 0) & context.going(direction))
        if not len(rows):
            continue
        ids, place, count = np.unique(run[rows], return_inverse=True, return_counts=True)
        most = _without_longest(context, rows, place, len(ids))
        spans = context.on_device(rows)
        if context.saving(spans, float(most.sum())) < context.least:
            continue
        fit = context.fit(direction)
        if fit is not None:
            most = np.minimum(most, (count - 1) * fit[0])
        note = f"{human(len(ids), 'count')} {'run' if len(ids) == 1 else 'runs'} of up to {human(int(count.max()), 'count')}"
        title = f"Copies in a row could be one ({NAMES[direction].lower()})"
        fix = PACK.get(direction, PACK[""])
        fix = upload_fix(context, rows, fix) if direction == "HtoD" else fix
        out.append(context.finding(rows, spans=spans, most_ns=float(most.sum()), note=note, title=title, fix=fix))
    return [found for found in out if found is not None]


def runs(context: CopyContext) -> Places:
    """Returns the number of the run per copy, -1 outside."""
    out = np.full(len(context.copies), -1, np.intp)
    own = context.inside & context.going(*MOVES) & (context.bytes >= 0) & (context.bytes < context.thresholds.merge_bytes)
    rows = np.flatnonzero(own)
    at = context.position[rows]
    rows, at = rows[np.argsort(at)], np.sort(at)
    if not len(rows):
        return out
    lane, direction = context.columns.lane[rows], context.columns.directions[0][rows]
    follows = (np.diff(at) == 1) & (lane[1:] == lane[:-1]) & (direction[1:] == direction[:-1])
    follows &= (context.start[rows][1:] - context.end[rows][:-1] < context.thresholds.merge_gap_ns) & (
        context.step[rows][1:] == context.step[rows][:-1]
    )
    number = np.concatenate(([0], np.cumsum(~follows)))
    long = np.bincount(number)[number] >= context.thresholds.merge_count
    out[rows[long]] = number[long]
    return out


def _without_longest(context: CopyContext, rows: Places, place: Places, groups: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Returns per group the time of its copies less the longest of them: what merging leaves takes at least that."""
    time = np.bincount(place, context.duration[rows], minlength=groups)
    longest = np.zeros(groups, np.int64)
    np.maximum.at(longest, place, context.duration[rows])
    return np.asarray(time - longest, np.float64)


# -- Copies that block the host --------------------------------------------------------------------------------------
# reads of single values, small and large copies to the host, copies to the device, sets of host memory.
#
# The saving is the time in which the device is idle for it (see `blocking`): what passes behind a busy device shortens no step.


READS: Final = {
    r"nonzero|argwhere|masked_select|unique|repeat_interleave|where|index": "torch.where(mask, x, 0)  # a fixed size needs no answer",
    r"equal|allclose": "same = (a == b).all()  # stays on the device; ask for it once in many steps",
    "": "total += loss.detach()  # on the device; .item() once in many steps",
}
"""Ways out of reading a value, by the operator that reads most; the last fits any."""


@rule("scalar_reads", "small_to_host", "blocking_to_host", "blocking_to_device", "blocking_sets", "blocking_other")
def waiting(context: CopyContext) -> Answer:
    """Finds copies that block the host, by what they are; those that run alone for longer than the device idles for them are left."""
    reason = context.waits["reason"].to_numpy(object)
    alone = long_exposed(context) & (context.columns.exposed > context.waits["idle_ns"].to_numpy())
    blocks = context.inside & (reason != "") & ~alone
    read, small = reason == "tiny_read", (context.bytes >= 0) & (context.bytes < context.thresholds.tiny_bytes)
    back, forth, sets = (context.going(d) for d in ("DtoH", "HtoD", "Memset"))
    masks = {
        "scalar_reads": blocks & read,
        "small_to_host": blocks & back & small & ~read,
        "blocking_to_host": blocks & back & ~small & ~read,
        "blocking_to_device": blocks & forth,
        "blocking_sets": blocks & sets,
    }
    masks["blocking_other"] = blocks & ~np.logical_or.reduce(list(masks.values()))
    out = []
    for name, mask in masks.items():
        rows = np.flatnonzero(mask)
        spans = context.on_host(rows) if len(rows) else iv.empty()
        if name == "blocking_to_device" and len(rows):
            context.settle()
        if context.shows(spans):
            title, fix = _WORDS[name]
            fix = _read_fix(context, rows) if name == "scalar_reads" else fix
            if name == "blocking_to_device" and (context.copies["src_kind"].to_numpy(object)[rows] == "Pinned").all():
                fix = "tensor.to(device, non_blocking=True)  # its memory is pinned already"
            elif name == "blocking_to_device":
                fix = upload_fix(context, rows, fix)
            out.append(context.finding(rows, spans=spans, host=True, rule=name, title=title, fix=fix))
    return [found for found in out if found is not None]


_WORDS: Final = {
    "scalar_reads": ("Reading single values blocks the host", ""),
    "small_to_host": (
        "Small copies to the host drain the stream",
        "pinned.copy_(small, non_blocking=True); event.record()  # read it a step later, after event.synchronize()",
    ),
    "blocking_to_host": ("Copies to the host hold it", "pinned.copy_(tensor, non_blocking=True)  # event.synchronize() where it is read"),
    "blocking_to_device": ("Copies to the device block the host", "tensor.pin_memory().to(device, non_blocking=True)"),
    "blocking_sets": ("Setting host or unified memory blocks the host", "buffer.zero_()  # on a tensor of the device"),
    "blocking_other": ("Copies block the host", "dst.copy_(src, non_blocking=True)  # from or to pinned memory"),
}


def _read_fix(context: CopyContext, rows: Places) -> str:
    outer = outermost_operator(context.capture, context.copies["operator"].to_numpy()[rows])
    (name,), _ = arrays.largest([context.capture.host["name"]], outer, context.waits["host_ns"].to_numpy()[rows].astype(np.float64))
    return next(fix for pattern, fix in READS.items() if re.search(pattern, name))


# -- Copies inside of a device ---------------------------------------------------------------------------------------
# the same bytes back to back, gradients that are stored by copying, inputs that a graph has copied in.


@rule(
    "duplicate_copies", title="The same bytes are copied inside of the device again and again",
    fix="# one layout from the producer on: leave out .contiguous() and .clone() where the reader takes strided tensors",
    candidate=True,
)  # fmt: skip
def duplicates(context: CopyContext) -> Answer:
    """Finds copies of one size by one chain of operators (`contiguous`, `clone`, `copy_`) with nothing between them on their stream.

    Reported where those of one chain take more than 5 % of the step; the saving is their exposed time.
    """
    rows = np.flatnonzero(context.inside & context.going("DtoD") & (context.bytes > 0))
    rows = rows[context.under(operator=r"aten::(contiguous|clone|copy_)$")[rows]] if len(rows) >= 2 else rows
    if len(rows) < 2:
        return None
    at = context.position[rows]
    rows, at = rows[np.argsort(at)], np.sort(at)
    lane = context.columns.lane[rows]
    same = (np.diff(at) == 1) & (lane[1:] == lane[:-1]) & (context.bytes[rows][1:] == context.bytes[rows][:-1])
    same &= (context.path[rows][1:] == context.path[rows][:-1]) & (context.step[rows][1:] == context.step[rows][:-1])
    rows = rows[np.append(same, False) | np.insert(same, 0, False)]
    if not len(rows):
        return None
    code, _ = pd.factorize(context.path[rows])
    least = context.thresholds.layout_share * iv.length(context.windows)
    enough = np.flatnonzero(np.bincount(code, context.duration[rows]) > least)
    large = [g for g in enough.tolist() if iv.length(_time(context, rows[code == g])) > least]
    rows = np.sort(rows[np.isin(code, large)])
    return context.finding(rows, spans=context.on_device(rows), note="one size and one chain of operators, back to back")


def _time(context: CopyContext, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> iv.Spans:
    return iv.intersect(iv.union(context.start[rows], context.end[rows]), context.windows)


@rule("gradient_copies")
def gradients(context: CopyContext) -> Answer:
    """Finds copies of gradients: into the buckets of data parallelism and back, or because a gradient cannot be stored as it is.

    Those back out of a bucket prove themselves: only data parallelism without views of its buckets makes them.
    """
    inside = context.inside & context.going("DtoD")
    if not inside.any():
        return None
    stored = context.under(operator=r"(autograd::engine::\S+ )?torch::autograd::AccumulateGrad")
    back = context.under(operator=r"torch\.distributed\.ddp\.reducer::copy_bucket_to_grad$")
    rows = np.flatnonzero(inside & (stored | back))
    if not len(rows):
        return None
    cloned = context.under(operator=r"aten::clone$")[rows]
    time = context.duration[rows]
    proven = 2 * int(time[back[rows]].sum()) > int(time.sum())
    if proven:
        title = "Gradients are copied out of the buckets of data parallelism"
        fix = "DistributedDataParallel(model, gradient_as_bucket_view=True)"
        note = "gradients that are views of their buckets stay there"
    elif 2 * int(time[cloned].sum()) > int(time.sum()):
        title = "Gradients are cloned when they are stored"
        fix = "# give backward dense gradients in their parameter's layout: no .expand(), .t() or channels_last on one side only"
        note = "a gradient in another layout than its parameter, or one that others hold, is cloned"
    else:
        title = "Gradients are copied again when they are accumulated"
        parallel = _has(context, "DistributedDataParallel")
        fix = "DistributedDataParallel(model, gradient_as_bucket_view=True)" if parallel else "optimizer.zero_grad(set_to_none=True)"
        note = "data parallelism copies each into a bucket" if parallel else "each is copied into the one that is there"
    found = context.finding(rows, spans=context.on_device(rows), note=note, title=title, fix=fix)
    return replace(found, candidate=not proven) if found is not None else None


@rule(
    "graph_inputs", title="Inputs are copied to where a graph reads them",
    fix="torch._dynamo.mark_static_address(tensor)  # parameters and buffers that stay where they are need no copy", candidate=True,
)  # fmt: skip
def graph_inputs(context: CopyContext) -> Answer:
    """Finds copies that a compiled function makes before it launches its graph: inputs go to the place where the graph reads them.

    Its clones are results that must outlive the next launch, and no inputs.
    """
    mask = context.inside & context.going("DtoD")
    if not mask.any() or not (_has(context, "cudaGraphLaunch") or _has(context, "hipGraphLaunch")):
        return None
    mask &= context.under(operator=r"CompiledFunction(Backward)?$")
    mask &= context.under(operator=r"aten::copy_$") & ~context.under(operator=r"aten::clone$")
    rows = np.flatnonzero(mask & ~context.copies["graph"].to_numpy())
    return context.finding(rows, spans=context.on_device(rows), note="copies of a compiled function outside of its graph")


def _has(context: CopyContext, start: str) -> bool:
    return at.any_named(context.capture, lambda n: n.startswith(start))
