"""Finds why the device has no work: batches, host syncs, first use of code, launches that come too slowly, the rest.

The idle time of the waterfall is given out in this order; each rule takes what it can prove and leaves the rest to the next. What a
launch gap is stands in `metrics.time.breakdown`: the bars of the waterfall and these findings speak of the same gaps.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.copies import bandwidth, records
from tb_sol_plugin.metrics.copies.thresholds import DEFAULT
from tb_sol_plugin.metrics.rules.copies import KEYS, Asked, copy_context, findings_without
from tb_sol_plugin.metrics.rules.copies.context import CopyContext
from tb_sol_plugin.metrics.rules.copies.patterns import upload_fix
from tb_sol_plugin.metrics.rules.engine import LEAST, Answer, Finding, count_text, rule, subject_verb, time_text, times_text
from tb_sol_plugin.metrics.rules.time.collectives import link_text, unclaimed
from tb_sol_plugin.metrics.rules.time.context import Claim, Gaps, TimeContext
from tb_sol_plugin.metrics.rules.time.first_use import calls_named
from tb_sol_plugin.metrics.rules.time.fusion import fused_fix
from tb_sol_plugin.metrics.rules.time.host_code import inside_text
from tb_sol_plugin.metrics.rules.time.recorded import (
    NOT_FUSED,
    busiest_line,
    collective,
    collectives,
    compiled_rows,
    launching,
    most_of,
    recorder_text,
)
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.breakdown import (
    HAND_OVER_NS,
    LAUNCH_NS,
    WAITING,
    device_extent,
    device_word,
    host_idle,
    launched,
)
from tb_sol_plugin.metrics.time.kernel_names import plain_name
from tb_sol_plugin.metrics.time.reaching import calls_reaching, operators_reaching
from tb_sol_plugin.metrics.time.waterfall import NO_KIND
from tb_sol_plugin.metrics.trees.module_tree import phase_name
from tb_sol_plugin.metrics.work.ownership import link_bytes
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Floats, Ints
from tb_sol_plugin.units import human

STRETCH: Final = 8
"""Fewer kernels than this are not worth a graph."""


@rule("input_wait", page="phases", label="The loads among the phases", color="host")
def input_wait(context: TimeContext) -> Answer:
    """Finds idle time while a batch is being fetched; on a recording of the host the loading itself."""
    waterfall = context.waterfall
    spans = iv.intersect(waterfall.loading, waterfall.windows)
    spans = spans if context.on_host else context.ledger.take_idle(spans)
    ns = iv.length(spans)
    if not ns:
        return None
    rows, own = _loads(context)
    count = len(rows)
    unit = device_word(context.capture)
    batches = "One batch loads" if count == 1 else f"{human(count, 'count')} batches load"
    if context.on_host:
        title, evidence = "The step waits for the input pipeline", f"{batches} {own} for {time_text(ns)}."
    else:
        mean = time_text(float(at.host(context.capture).duration[rows].mean())) if count else "—"
        title = f"The {unit} waits for the input pipeline"
        evidence = f"{batches} {own}, {mean} each; the {unit} has no work for {time_text(ns)} of that time."
    text, function = inside_text(context.capture, spans, np.unique(at.host(context.capture).thread[rows]))
    evidence = evidence.removesuffix(".") + (text or ".")
    fix = "DataLoader(num_workers=4, persistent_workers=True)" if "process" in own else "DataLoader(num_workers=…, prefetch_factor=4)"
    fix += f"  # or a faster {function}()" if function else ""
    return context.finding(evidence, idle=spans, title=title, fix=fix, names=context.phases_of(rows))


def _loads(context: TimeContext) -> tuple[npt.NDArray[np.intp], str]:
    """Returns host rows that fetch a batch inside the windows, and where the loading happens in words.

    The call that finds the loader exhausted brings no batch: the last of its thread, without an operator where others have some, in less
    than a tenth of their time.
    """
    h = at.host(context.capture)
    name = context.capture.host["name"]
    rows = np.flatnonzero(at.where_named(context.capture, lambda n: n.startswith(("enumerate(DataLoader)#", "enumerate(DataPipe)#"))))
    rows = rows[h.kind[rows] != S.FRAME]
    operators = at.of_kind(context.capture, S.OPERATOR)
    works = np.searchsorted(operators, h.end[rows]) - np.searchsorted(operators, np.minimum(rows + 1, h.end[rows]))
    last = np.zeros(len(rows), np.bool_)
    last[len(rows) - 1 - np.unique(h.thread[rows][::-1], return_index=True)[1]] = True
    usual = float(np.median(h.duration[rows[~last]])) if (~last).any() else 0.0
    works_usually = bool((works[~last] > 0).any())
    rows = rows[~(last & (10 * h.duration[rows] < usual) & ~((works > 0) & works_usually))]
    rows = rows[iv.overlap_with(h.start[rows], h.stop[rows], context.waterfall.windows) > 0]
    single = bool(arrays.where(name.iloc[rows], lambda n: "SingleProcess" in n).any())
    return rows, "in the training process" if single else "too slowly in the workers"


# -- gaps and what ends them ----------------------------------------------------------------------------------


def _gaps(context: TimeContext) -> Gaps:
    """Returns the gaps with unclaimed idle time that end with device work; found again only when some was claimed.

    What the profiler does in a gap does not divide it: it is in the gap, and in no ledger.
    """
    known = context.gaps
    if known is not None and known[0] is context.idle:
        return known[1]
    start, stop = context.idle
    free = stop - start
    if len(context.recorder[0]):
        start, stop = iv.merge(context.idle, context.recorder)
        free = iv.overlap_with(start, stop, context.idle)
        start, stop, free = (x[free > 0] for x in (start, stop, free))
    order, first = at.in_order(context.capture)
    slot = np.minimum(np.searchsorted(first, stop), len(first) - 1) if len(first) else np.zeros(0, np.int64)
    ends = first[slot] == stop if len(first) else np.zeros(len(stop), bool)
    found = Gaps(start[ends], stop[ends], free[ends], order[slot[ends]] if len(first) else np.zeros(0, np.int64))
    context.gaps = context.idle, found
    return found


@rule("host_sync", page="gpu_breakdown", label="Idle causes", color="host")
def host_sync(context: TimeContext) -> Answer:
    """Finds gaps that begin while the host waits for the device: it cannot launch ahead. A wait can cost no more than its own length."""
    start, stop, _, ended = _gaps(context)
    h = at.host(context.capture)
    calls = calls_named(context, WAITING)
    if not len(start) or not len(calls):
        return None
    calls = calls[np.argsort(h.stop[calls], kind="stable")]
    slot = np.searchsorted(h.stop[calls], stop, side="right") - 1  # the last wait to return inside or before the gap
    call = calls[np.maximum(slot, 0)]
    hit = (slot >= 0) & (h.stop[call] >= start) & (h.start[call] <= start)
    launch = at.launches(context.capture)
    hit &= (launch.call[ended] < 0) | (launch.time[ended] >= h.stop[call])
    if not hit.any():
        return None
    lost = np.minimum(stop[hit] - start[hit], h.duration[call[hit]])
    idle = context.ledger.take_idle(iv.union(stop[hit] - lost, stop[hit]))
    ns = iv.length(idle)
    operator = at.nearest(context.capture, S.OPERATOR, call[hit])
    name = context.capture.host["name"]
    (who,), most = arrays.largest([name], operator[operator >= 0], lost[operator >= 0].astype(np.float64))
    (api,), _ = arrays.largest([name], call[hit], lost.astype(np.float64))
    inside = 2 * most > ns
    unit = device_word(context.capture)
    where = f"in `{who}`" if inside else f"in `{api}`"
    often = times_text(len(np.unique(call[hit]))).capitalize()
    return context.finding(
        f"{often} the host waits until all work is done, most of it {where}, and launches the next "
        f"kernel only then: {time_text(ns)} without work.",
        idle=idle,
        title=f"The host stops for the {unit}, and the {unit} then waits for the host",
        fix=next(fix for pattern, fix in _SYNC_FIXES.items() if re.search(pattern, who if inside else api)),
        page="operators" if inside else "",
        label=f"`{who}` among the operators" if inside else "",
        names=[who] if inside else [],
    )


_SYNC_FIXES: Final = {
    r"item|_local_scalar_dense|is_nonzero|equal": "total += loss.detach()  # on the device; .item() once in many steps",
    r"nonzero|masked_select|unique|index|repeat_interleave": "torch.where(mask, x, 0)  # a fixed size needs no answer from the device",
    r"copy_|to$|_to_copy|cpu": "x.to(device, non_blocking=True)  # from pinned memory; read results a step later",
    r"DeviceSynchronize": "# take torch.cuda.synchronize() out of the step; measure with torch.cuda.Event",
    "": "torch.cuda.set_sync_debug_mode('warn')  # names the lines that wait",
}
"""Ways out of a wait by the operator (else the call) that waits; the last fits any."""


LONG_RUN: Final = 10
SHORT_RUN_NS: Final = 100_000
"""Work that runs longer than this and so many times longer than the wait behind it, a replayed graph for one, is not bound by launches."""


@rule(
    "launch_bound", title="The host launches more slowly than the kernels run", page="gpu_breakdown", label="Idle causes", color="host",
)  # fmt: skip
def launch_bound(context: TimeContext) -> Answer:
    """Finds gaps that end when the host has launched the next kernel, while the device was idle already."""
    start, stop, free, ended = _gaps(context)
    late, _ = launched(context.capture, start, ended)
    before = np.concatenate((start[:1], stop[:-1]))  # end of the gap before: where the work between two gaps begins
    hit = late & (free <= LAUNCH_NS) & (start - before <= np.maximum(LONG_RUN * free, SHORT_RUN_NS))
    if int(hit.sum()) < STRETCH:
        return None
    run, wait = (time_text(float(np.median(x[hit]))) for x in (start - before, free))
    edge = np.flatnonzero(np.diff(np.concatenate(([False], hit, [False])).astype(np.int8)))
    stretches = int((edge[1::2] - edge[::2] >= STRETCH).sum())
    kernel = context.capture.device["kind"].to_numpy() == S.KERNEL
    every, here = int(kernel[context.waterfall.own > 0].sum()), int(kernel[ended[hit]].sum())
    idle = context.ledger.take_idle((start[hit], stop[hit]))
    where = f", in {count_text(stretches, 'stretch', 'stretches')} of {STRETCH} or more," if stretches else ""
    graphs = {"amd": "HIP", "nvidia": "CUDA"}.get(context.vendor, "")
    unit = device_word(context.capture)
    return context.finding(
        f"{human(here, 'count')} of {human(every, 'count')} kernels{where} are launched only when the {unit} is idle already: "
        f"the median runs {run} and waits {wait}; {time_text(iv.length(idle))} pass without work."
        + recorder_text(context.capture, ended[hit]),
        idle=idle,
        fix=launching(context, ended[hit], graphs),
    )


@rule("handover", page="gpu_breakdown", label="Idle causes", color="host")
def handover(context: TimeContext) -> Answer:
    """Finds gaps between kernels that were queued in time: the device's own change from one to the next."""
    start, stop, _, ended = _gaps(context)
    _, ready = launched(context.capture, start, ended)
    hit = ready & (stop - start <= HAND_OVER_NS)
    if not hit.any():
        return None
    each = time_text(float((stop - start)[hit].mean()))
    idle = context.ledger.take_idle((start[hit], stop[hit]))
    unit = device_word(context.capture)
    return context.finding(
        f"{times_text(int(hit.sum())).capitalize()} the next kernel is queued and the {unit} still needs {each} to change over: "
        f"{time_text(iv.length(idle))}.",
        idle=idle,
        title=f"The {unit} changes kernels too often",
        fix=launching(context, ended[hit], ""),
    )


@rule("host_wait", page="gpu_breakdown", label="Idle causes", color="host")
def host_wait(context: TimeContext) -> Answer:
    """Finds the wait for the host that no other rule explains, with the phase, the call or the operator in which most of it passes."""
    by_host = host_idle(context.capture)
    idle = iv.intersect(context.idle, by_host)
    ns = iv.length(idle)
    if not ns:
        return None
    unit = device_word(context.capture)
    phase, in_phase = _phase_of(context, idle)
    rest = ns < iv.length(iv.intersect(context.waterfall.idle, by_host))
    evidence = f"The {unit} idles {'another ' if rest else ''}{time_text(ns)} with {count_text(len(idle[0]), 'gap')}"
    ends = _at_the_ends(context, idle)
    if 4 * ends > ns:
        evidence += f"; {time_text(ends)} of it before the first or after the last event on the {unit}"
    call, blocked = _call_of(context, idle)
    if 4 * blocked > ns:
        evidence += f"; {time_text(blocked)} pass in `{call}`"
    operator, running = _operator_of(context, idle)
    if 4 * running > ns:
        evidence += f"; {time_text(running)} in `{operator}`"
    if phase and 2 * in_phase > ns:
        evidence += f"; for {time_text(in_phase)} of it the host is in `{phase}`"
    line, in_line, frames = busiest_line(context.capture, idle)
    if 4 * in_line > ns:
        evidence += f"; {time_text(in_line)} at `{line}`"
    stacks = len(at.of_kind(context.capture, S.FRAME)) > 0
    title = f"The {unit} waits for the host"
    fix = 'with record_function("…"):  # mark the parts of the step, to see which one the gaps lie in'
    fix = fix if stacks else "profile(with_stack=True)  # shows which Python runs in the gaps"
    if phase and 2 * in_phase > ns:
        title = f"The {unit} waits while the host is in {phase}"
        fix = fused_fix(context, idle) or f'with record_function("{phase}/…"):  # mark its parts, to see which one blocks'
    if 4 * in_line > ns:
        fix = _line_fix(context, line, iv.intersect(idle, _spans(context, frames)), in_line)
    if 2 * blocked > ns:
        fix = _copy_fix(context, call, idle) or fix
    # The profiler waits for the device when it starts, and what runs then is not recorded: of several steps only the ends wait.
    edge = len(context.part.rows) != 1 and 2 * ends > ns
    return context.finding(evidence + ".", idle=context.ledger.take_idle(idle), title=title, fix=fix, candidate=edge)


def _spans(context: TimeContext, rows: Ints) -> iv.Spans:
    h = at.host(context.capture)
    return iv.union(h.start[rows], h.stop[rows])


def _line_fix(context: TimeContext, line: str, spans: iv.Spans, in_line: int) -> str:
    """Returns the advice for a Python line; where it mostly calls one operator, that is what takes the time, not the line."""
    operator, running = _operator_of(context, spans)
    if 2 * running <= in_line:
        return f"# {line} runs meanwhile: shorten it, or move it out of the step"
    later = "; a recording of later steps shows whether it does so again" if context.waterfall.steps == 1 else ""
    return f"# {operator}, called at {line}, holds the host before it launches{later}"


def _copy_fix(context: TimeContext, call: str, idle: iv.Spans) -> str:
    """Returns the advice for a call that copies while the device idles, by the recorded ends of its copies; "" for any other call."""
    h = at.host(context.capture)
    found = records.copies(context.capture, context.part.device)
    made = found["call"].to_numpy().astype(np.int64)
    named = at.mask_of(context.capture, at.named(context.capture, S.CALL, call.__eq__))
    inside = iv.overlap_with(h.start[made], h.stop[made], idle) > 0 if len(made) else np.zeros(0, np.bool_)
    rows = np.flatnonzero((made >= 0) & named[np.maximum(made, 0)] & inside) if len(made) else made
    if not len(rows):
        return _HOLDS if "Memcpy" in call else ""
    copies = copy_context(context.capture, context.part, bandwidth.peaks(context.spec))
    time = h.duration[made[rows]].astype(np.float64)
    if 2 * float(time[copies.pageable[rows]].sum()) <= float(time.sum()):
        return _HOLDS
    up = copies.direction[rows] == "HtoD"
    if 2 * float(time[up].sum()) <= float(time.sum()):
        return _HIDE_COPIES["DtoH"]
    return upload_fix(copies, rows[up], "x.pin_memory().to(device, non_blocking=True)  # copies from pageable memory hold the host")


_HOLDS: Final = "tensor.to(device, non_blocking=True)  # the call holds the host; nothing shows that its memory is pageable"


def _at_the_ends(context: TimeContext, idle: iv.Spans) -> int:
    """Returns idle time before the first and after the last device event."""
    return iv.length(idle) - iv.length(iv.clip(idle, *device_extent(context.capture)))


def _phase_of(context: TimeContext, idle: iv.Spans) -> tuple[str, int]:
    """Returns the top phase below the step (or without steps, the top phase) in which the device idles longest, and for how long.

    Only a phase that explains something: one that is a part of the whole and in which the device idles most of the time.
    """
    capture, waterfall = context.capture, context.waterfall
    h = at.host(capture)
    rows, group, names = memo(capture, ("idle.top_phases",), lambda: _top_phases(capture))
    if not len(rows):
        return "", 0
    start, stop = h.start[rows], h.stop[rows]
    spans = iv.overlap_with(start, stop, idle), iv.overlap_with(start, stop, waterfall.windows)
    idling, whole = (arrays.exact_sums(group, ns, len(names)) for ns in spans)
    telling = np.flatnonzero((2 * idling > whole) & (whole < 0.9 * waterfall.total_ns))
    if not len(telling):
        return "", 0
    most = telling[int(idling[telling].argmax())]
    return str(names[most]), int(idling[most])


def _top_phases(capture: Capture) -> tuple[Ints, Ints, list[str]]:
    """Returns (host rows of the top phases below steps, the place of each one's name, the names)."""
    rows = at.of_kind(capture, S.ANNOTATION)
    if not len(rows):
        return rows, rows, []
    above = at.nearest(capture, S.ANNOTATION, rows, strict=True)
    own = capture.steps["host"].to_numpy()
    steps = at.mask_of(capture, own[own >= 0])
    rows = rows[((above < 0) | steps[np.maximum(above, 0)]) & ~steps[rows]]
    text = arrays.coded(capture.host["name"])
    used, place = np.unique(text.codes[rows], return_inverse=True)
    names, group = np.unique([phase_name(str(text.categories[code]) if code >= 0 else "") for code in used.tolist()], return_inverse=True)
    return rows, group.reshape(-1)[place.reshape(-1)] if len(rows) else rows, names.tolist()


def _operator_of(context: TimeContext, idle: iv.Spans) -> tuple[str, int]:
    """Returns the outermost operator during which the device idles longest, and for how long."""
    h, rows = at.host(context.capture), operators_reaching(context.capture).within(idle)
    same, most = most_of(context.capture, rows, iv.overlap_with(h.start[rows], h.stop[rows], idle))
    return str(arrays.pick(context.capture.host["name"], same[:1])[0]) if len(same) else "", round(most)


def _call_of(context: TimeContext, idle: iv.Spans) -> tuple[str, int]:
    """Returns the runtime or driver call during which the device idles longest, and for how long (union over threads)."""
    capture, h = context.capture, at.host(context.capture)
    rows = calls_reaching(capture).within(idle)
    same, _ = most_of(capture, rows, iv.overlap_with(h.start[rows], h.stop[rows], idle))
    if not len(same):
        return "", 0
    name = str(arrays.pick(capture.host["name"], same[:1])[0])
    return name, iv.length(iv.intersect(iv.union(h.start[same], h.stop[same]), idle))


# -- Communication while nothing computes, and copies ----------------------------------------------------------------
# those that block the host, those that nothing hides, those that need not be.
#
# What is wrong with copies is found by the rules of `rules.copies`; here a finding takes from the ledger what no other one has taken: the
# idle time while its copies block the host, and the exclusive time of the copies themselves.


@rule(
    "exposed_communication", title="Communication is not hidden behind computation", page="gpu_breakdown", label="Overlap by device",
    color="communication",
)  # fmt: skip
def communication(context: TimeContext) -> Answer:
    """Finds collectives while nothing computes."""
    rows, own = unclaimed(context)
    if not len(rows):
        return None
    exposed, device = float(own.sum()), context.capture.device
    start = device["start_ns"].to_numpy()[rows]
    stop = start + device["duration_ns"].to_numpy()[rows]
    whole = iv.length(iv.intersect(iv.union(start, stop), context.waterfall.windows))
    kinds = collectives(context.capture, rows)
    code, names = pd.factorize(kinds)
    kind = str(names[int(np.bincount(code, own).argmax())])
    same = kinds == kind
    (kernel,), most = arrays.largest([device["name"]], rows[same], own[same])
    name = plain_name(kernel)
    spoken = f" ({kind})" if kind and collective(name) != kind else ""
    found = context.finding(
        f"{time_text(exposed)} of {time_text(whole)} of communication run while nothing computes, {time_text(most)} of it in "
        f"`{name}`{spoken}.{link_text(context)}",
        ns=exposed,
        fix=_hide(context, kind, rows[same]),
    )
    return replace(found, events=rows, events_ns=own)


def _hide(context: TimeContext, kind: str, rows: Ints) -> str:
    """Returns how to hide a collective, by its recorded name and by what runs it. rows: device rows of the exposed ones."""

    def recorded(*words: str) -> bool:
        return at.any_named(context.capture, lambda n: any(w in n.lower() for w in words))

    if not len(context.capture.tables["backward"]):
        if kind == "all_reduce":
            return "dist.all_reduce(half, async_op=True)  # in two halves of the batch: one is reduced while the other computes"
        if kind in ("all_gather", "reduce_scatter"):
            return "torch._inductor.config._micro_pipeline_tp = True  # with torch.compile: such collectives run inside of their products"
    elif kind == "all_reduce" and recorded("distributeddataparallel", "ddp"):
        return _buckets(context, rows)
    elif kind == "broadcast" and recorded("distributeddataparallel"):
        return "DistributedDataParallel(model, broadcast_buffers=False)  # where every rank may keep its own buffers"
    elif kind in ("all_gather", "reduce_scatter") and recorded("fsdp", "fullysharded"):
        return "fully_shard(layer)  # per layer, so that the next gather runs during this layer"
    return f"{_START.get(kind, 'work = collective(…, async_op=True)')}  # wait() after other work"


def _buckets(context: TimeContext, rows: Ints) -> str:
    """Returns how to hide or shorten the all-reduces of DistributedDataParallel, by how many there are in a step and how large they are."""
    if len(rows) <= FEW_BUCKETS * context.waterfall.steps:
        return "DistributedDataParallel(model, bucket_cap_mb=10)  # more buckets: the first ones run behind the backward pass"
    size = link_bytes(context.capture)[rows]
    if (size > 0).any() and float(np.median(size[size > 0])) < SMALL_BUCKET:
        return "DistributedDataParallel(model, gradient_as_bucket_view=True, bucket_cap_mb=100)  # fewer, larger buckets"
    half = arrays.where(context.capture.device["name"], lambda n: re.search(r"f16|float16|half", n, re.IGNORECASE) is not None)[rows]
    if half.any():
        return "with model.no_sync():  # accumulate gradients of several batches, reduce them once"
    return "model.register_comm_hook(dist.group.WORLD, default_hooks.bf16_compress_hook)  # half the bytes; results differ by rounding"


FEW_BUCKETS: Final = 4
"""With fewer all-reduces than this in a step little of them can run behind the backward pass."""
SMALL_BUCKET: Final = 4 << 20
"""Below 4 MiB an all-reduce does not reach the rate of its link."""
_START: Final = {
    "all_reduce": "dist.all_reduce(…, async_op=True)",
    "all_gather": "dist.all_gather_into_tensor(…, async_op=True)",
    "reduce_scatter": "dist.reduce_scatter_tensor(…, async_op=True)",
    "all_to_all": "dist.all_to_all_single(…, async_op=True)",
    "broadcast": "dist.broadcast(…, async_op=True)",
    "send": "dist.batch_isend_irecv(…)",
}
"""How to start a collective without waiting for it."""
_HIDE_COPIES: Final = {
    "HtoD": "with torch.Stream(device) as side: batch = batch.to(device, non_blocking=True)",
    "DtoH": "pinned.copy_(tensor, non_blocking=True)  # read it a step later",
    "DtoD": "torch.compile(model)  # fuses clone() and contiguous() away",
}
COPY_RULES: Final = tuple(f"copies_{key}" for key in KEYS)
"""Findings about copies, by the names that the page of waits and patterns has for them."""


@rule(*COPY_RULES)
def copies_inside(context: TimeContext) -> Answer:
    """Finds copies inside of the device: gradients stored by copying, inputs of graphs, the same bytes again, tiny ones."""
    return _claimed(context, _findings(context, lambda direction, host: direction == "DtoD" and not host))


@rule(*COPY_RULES)
def copies(context: TimeContext) -> Answer:
    """Finds copies that block the host while the device is idle, and copies over a link that nothing hides, each by its cause."""
    return _claimed(context, _findings(context, lambda direction, host: direction != "DtoD" or host))


@rule("exposed_copies", title="Copies are not hidden behind computation", page="memcpy", label="Memory copies", color="memcpy")
def other_copies(context: TimeContext) -> Answer:
    """Finds exposed copies that no other finding covers: those of every step, else possibly uploads that are not in every step."""
    device = context.capture.device
    rows = np.flatnonzero(context.ledger.copies > 0)
    if not len(rows):
        return None
    copies = copy_context(context.capture, context.part, bandwidth.peaks(context.spec))
    once = np.isin(rows, copies.copies["row"].to_numpy()[copies.once & (copies.direction == "HtoD")])
    regular = rows[~once]
    possible = bool(once.any()) and context.each(context.ledger.copies[regular].sum()) < context.least
    rows = rows[once] if possible else regular
    left = context.ledger.copies[rows]
    worst = arrays.largest([device["direction"]], rows, left)[0][0] or "Unknown"
    made = compiled_rows(context.capture, rows[(device["direction"] == worst).to_numpy()[rows]])
    size, duration = device["bytes"].to_numpy()[rows], device["duration_ns"].to_numpy()[rows]
    known = (size >= 0) & (duration > 0)
    rate = f"; {human(float(size[known].sum()) / float(duration[known].sum()) * 1e9, 'B/s')} on average" if known.any() else ""
    found = context.finding(
        f"{subject_verb(len(rows), 'copy', 'runs', 'copies')} {time_text(left.sum())} while nothing computes, most of it {worst}{rate}.",
        ns=context.ledger.take_copies(rows, 1.0),
        fix=NOT_FUSED if worst == "DtoD" and made.all() else _hide_copies(copies, rows, str(worst)),
        candidate=possible,
    )
    return replace(found, copies=rows, events=rows, events_ns=left)


def _hide_copies(copies: CopyContext, rows: Ints, direction: str) -> str:
    """Returns how to hide some copies, most of them of one direction; data that is not uploaded in every step is no batch."""
    fix = _HIDE_COPIES.get(direction, "tensor.to(device, non_blocking=True)  # on a stream of its own, from or to pinned memory")
    if direction != "HtoD":
        return fix
    of = np.isin(copies.copies["row"].to_numpy(), rows) & (copies.direction == direction)
    return upload_fix(copies, np.flatnonzero(of), fix)


def _findings(context: TimeContext, asked: Asked) -> list[Finding]:
    """Returns the findings asked for about copies that no other finding holds and time that none has claimed."""
    copies = records.copies(context.capture, context.part.device)
    row, owner = copies["row"].to_numpy(), context.waterfall.work.owner
    call = owner[row].astype(np.int64) if len(owner) == len(context.ledger.copies) else np.full(len(row), -1)
    modeled = (context.waterfall.kind[row] != NO_KIND) & (call >= 0)
    held = np.where(modeled, context.left[np.maximum(call, 0)] == 0, context.ledger.copies[row] == 0) if len(context.left) else modeled
    held &= context.waterfall.own[row] > 0  # what runs behind other work has no time to claim
    limits, least = bandwidth.peaks(context.spec), replace(DEFAULT, least_share=LEAST)
    taken = iv.subtract(context.waterfall.idle, context.idle)
    found = findings_without(context.capture, context.part, limits, least, claimed=np.flatnonzero(held), taken=taken, asked=asked)
    return [f for f in found if f.saving >= context.least]


def _claimed(context: TimeContext, found: list[Finding]) -> list[Finding]:
    """Returns the same findings with what they claim: idle time, operator calls, copies of their own."""
    if not found:
        return []
    row = records.copies(context.capture, context.part.device)["row"].to_numpy()
    out = []
    for f in found:
        idle = context.ledger.take_idle(iv.intersect(f.spans, context.idle))
        most = max(float(f.saving * context.waterfall.steps) - iv.length(idle), 0.0)
        calls, own, copies, parts = _claim(context, row[f.rows], 0.0 if f.host else most)
        context.ledger.copies[copies] = 0.0
        if f.host:  # the copies that block the host: what they cost is idle time
            copies_shown, parts = row[f.rows], np.zeros(len(f.rows))
        else:
            copies_shown, parts = copies[parts > 0], parts[parts > 0]
        out.append(replace(
            f, saving=context.each(iv.length(idle) + own), label="Waits and patterns", rows=calls.rows, claimed=calls.ns, spans=iv.empty(),
            idle=idle, copies=copies, events=copies_shown, events_ns=parts,
        ))  # fmt: skip
    return out


def _claim(context: TimeContext, rows: Ints, most: float) -> tuple[Claim, float, Ints, Floats]:
    """Take up to `most` ns of the exclusive time of some device rows: (what was taken of calls, how much in all, copies taken of no call,
    ns of each).

    A copy that is the work of a modeled call stands in that call's time, any other in the exposed copies of the waterfall.
    """
    left = context.ledger.copies
    owner, modeled = context.waterfall.work.owner, context.waterfall.kind[rows] != NO_KIND
    free, owned = rows[~modeled], rows[modeled & (owner[rows] >= 0)] if len(owner) == len(left) else rows[:0]
    calls, place = np.unique(owner[owned].astype(np.int64), return_inverse=True)
    wanted = np.minimum(np.bincount(place, context.waterfall.own[owned], minlength=len(calls)), context.left[calls])
    there = float(left[free].sum() + wanted.sum())
    part = min(1.0, most / there) if there > 0 else 0.0
    parts = left[free] * part
    taken = context.ledger.take_copies(free, part)
    claim = context.claim(calls, wanted * part)
    return claim, taken + claim.total, free, parts
