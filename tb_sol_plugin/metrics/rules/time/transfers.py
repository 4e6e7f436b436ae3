"""Communication while nothing computes, and copies: those that block the host, those that nothing hides, those that need not be.

What is wrong with copies is found by the rules of `rules.copies`; here a finding takes from the ledger what no other one has taken: the
idle time while its copies block the host, and the exclusive time of the copies themselves.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import numpy as np

from tb_sol_plugin.metrics.copies import bandwidth, records
from tb_sol_plugin.metrics.rules.copies import KEYS, copy_findings
from tb_sol_plugin.metrics.rules.engine import Answer, Finding, acting, rule, took
from tb_sol_plugin.metrics.rules.time.context import Claim, TimeContext
from tb_sol_plugin.metrics.time.kernel_names import plain_name
from tb_sol_plugin.metrics.time.waterfall import NO_KIND
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.units import human


@rule(
    "exposed_communication", title="Communication is not hidden behind computation", page="gpu_breakdown", label="Overlap by device",
    color="communication",
)  # fmt: skip
def communication(context: TimeContext) -> Answer:
    """Collectives while nothing computes."""
    exposed = context.fall.exposed_communication_ns
    if not exposed:
        return None
    device = context.capture.device
    rows = np.flatnonzero(device["communication"].to_numpy() & (device["kind"].to_numpy() == S.KERNEL))
    start = device["start_ns"].to_numpy()[rows]
    stop = start + device["duration_ns"].to_numpy()[rows]
    whole = iv.length(iv.intersect(iv.union(start, stop), context.fall.windows))
    (kernel,), most = arrays.largest([device["name"]], rows, context.fall.own[rows])
    name = plain_name(kernel)
    advices = _HIDE if len(context.capture.tables["backward"]) else _HIDE_SERVING
    return context.finding(
        f"{took(exposed)} of {took(whole)} of communication run while nothing computes, {took(most)} of it in `{name}`.",
        ns=exposed,
        fix=next(advice for pattern, advice in advices.items() if re.search(pattern, name, re.IGNORECASE)),
    )


_HIDE: Final = {
    r"all_?reduce": "DistributedDataParallel(model, gradient_as_bucket_view=True, bucket_cap_mb=100)",
    r"all_?gather|reduce_?scatter": "fully_shard(layer)  # per layer, so that the next gather runs during this layer",
    "": "dist.all_to_all_single(…, async_op=True)  # wait() after other work",
}
"""Ways to hide a collective in training, by its name; the last fits any."""
_HIDE_SERVING: Final = {
    r"all_?reduce|all_?gather|reduce_?scatter": "torch._inductor.config._micro_pipeline_tp = True  # overlap tensor-parallel collectives",
    "": "dist.all_to_all_single(…, async_op=True)  # wait() after other work",
}
"""The same without a backward pass."""
_HIDE_COPIES: Final = {
    "HtoD": "with torch.Stream(device) as side: batch = batch.to(device, non_blocking=True)",
    "DtoH": "pinned.copy_(tensor, non_blocking=True)  # read it a step later",
    "DtoD": "torch.compile(model)  # fuses clone() and contiguous() away",
}
COPY_RULES: Final = tuple(f"copies_{key}" for key in KEYS)
"""Findings about copies, by the names that the page of waits and patterns has for them."""


@rule(*COPY_RULES)
def copies_inside(context: TimeContext) -> Answer:
    """Copies inside of the device: gradients stored by copying, inputs of graphs, the same bytes again, tiny ones."""
    return _claimed(context, [f for f in _findings(context) if f.direction == "DtoD" and not f.host])


@rule(*COPY_RULES)
def copies(context: TimeContext) -> Answer:
    """Copies that block the host while the device is idle, and copies over a link that nothing hides, each by its cause."""
    return _claimed(context, [f for f in _findings(context) if f.direction != "DtoD" or f.host])


@rule("exposed_copies", title="Copies are not hidden behind computation", page="memcpy", label="Memory copies", color="memcpy")
def other_copies(context: TimeContext) -> Answer:
    """Exposed copies that no other finding speaks for."""
    device = context.capture.device
    rows = np.flatnonzero(context.ledger.copies > 0)
    if not len(rows):
        return None
    left = context.ledger.copies[rows]
    worst = arrays.largest([device["direction"]], rows, left)[0][0] or "Unknown"
    size, duration = device["bytes"].to_numpy()[rows], device["duration_ns"].to_numpy()[rows]
    known = (size >= 0) & (duration > 0)
    rate = f"; {human(float(size[known].sum()) / float(duration[known].sum()) * 1e9, 'B/s')} on average" if known.any() else ""
    return context.finding(
        f"{acting(len(rows), 'copy', 'runs', 'copies')} {took(left.sum())} while nothing computes, most of it {worst}{rate}.",
        ns=float(left.sum()),
        fix=_HIDE_COPIES.get(worst, _HIDE_COPIES["HtoD"]),
    )


def _findings(context: TimeContext) -> list[Finding]:
    """What is proven first, then the candidates; the largest first. What would not be shown claims nothing."""
    found = copy_findings(context.capture, context.part, bandwidth.peaks(context.spec))
    return sorted((f for f in found if f.saving >= context.least), key=lambda f: f.candidate)


def _claimed(context: TimeContext, found: list[Finding]) -> list[Finding]:
    """The same findings, with what no other one has taken."""
    if not found:
        return []
    row = records.copies(context.capture, context.part.device)["row"].to_numpy()
    out = []
    for f in found:
        idle = context.ledger.take_idle(iv.intersect(f.spans, context.idle))
        most = max(float(f.saving * context.fall.steps) - idle, 0.0)
        calls, own = _claim(context, row[[] if f.host else f.rows], 0.0 if f.host else most)
        out.append(replace(
            f, saving=context.each(idle + own), label="Waits and patterns", rows=calls.rows, claimed=calls.ns, spans=iv.empty()
        ))  # fmt: skip
    return out


def _claim(context: TimeContext, rows: Ints, most: float) -> tuple[Claim, float]:
    """Take up to `most` ns of the exclusive time of some device rows: (what was taken of operator calls, what was taken in all).

    A copy that is the work of a modeled call stands in that call's time, any other in the exposed copies of the waterfall.
    """
    left = context.ledger.copies
    owner, modeled = context.fall.work.owner, context.fall.kind[rows] != NO_KIND
    free, mine = rows[~modeled], rows[modeled & (owner[rows] >= 0)] if len(owner) == len(left) else rows[:0]
    calls, place = np.unique(owner[mine].astype(np.int64), return_inverse=True)
    wanted = np.minimum(np.bincount(place, context.fall.own[mine], minlength=len(calls)), context.left[calls])
    there = float(left[free].sum() + wanted.sum())
    part = min(1.0, most / there) if there > 0 else 0.0
    taken = context.ledger.take_copies(free, part)
    claim = context.claim(calls, wanted * part)
    return claim, taken + claim.total
