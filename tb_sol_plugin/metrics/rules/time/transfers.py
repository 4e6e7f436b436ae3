"""Communication while nothing computes, and copies: those that hold the host, those that nothing hides, those that need not be.

What is wrong with copies is found in `metrics.memcpy.patterns`; here a finding takes from the ledger what no other one has taken: the
idle time for which its copies hold the host, and the exclusive time of the copies themselves.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from tb_sol_plugin.metrics.copies import bandwidth, records
from tb_sol_plugin.metrics.rules.copies import KEYS, copy_findings
from tb_sol_plugin.metrics.rules.engine import LEAST, CopyFinding, Lever, acting, took
from tb_sol_plugin.metrics.rules.time.context import Case
from tb_sol_plugin.metrics.time.kernel_names import plain_name
from tb_sol_plugin.metrics.time.waterfall import NO_KIND
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Floats, Ints
from tb_sol_plugin.units import human


def communication(case: Case) -> Lever | None:
    """Collectives while nothing computes."""
    exposed = case.fall.exposed_communication_ns
    if not exposed:
        return None
    device = case.capture.device
    rows = np.flatnonzero(device["communication"].to_numpy() & (device["kind"].to_numpy() == S.KERNEL))
    start = device["start_ns"].to_numpy()[rows]
    stop = start + device["duration_ns"].to_numpy()[rows]
    whole = iv.length(iv.intersect(iv.union(start, stop), case.fall.windows))
    (kernel,), most = arrays.largest([device["name"]], rows, case.fall.own[rows])
    name = plain_name(kernel)
    advices = _HIDE if len(case.capture.tables["backward"]) else _HIDE_SERVING
    return Lever(
        "exposed_communication",
        "Communication is not hidden behind computation",
        f"{took(exposed)} of {took(whole)} of communication run while nothing computes, {took(most)} of it in `{name}`.",
        case.each(exposed),
        next(advice for pattern, advice in advices.items() if re.search(pattern, name, re.IGNORECASE)),
        "communication",
        "gpu_breakdown",
        "Overlap by device",
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


def copies_inside(case: Case) -> list[Lever]:
    """Copies inside of the device: gradients stored by copying, inputs of graphs, the same bytes again, tiny ones."""
    return _levers(case, [f for f in _findings(case) if f.direction == "DtoD" and not f.host])


def copies(case: Case) -> list[Lever]:
    """Copies that hold the host while the device runs dry, and copies over a link that nothing hides, each by its cause."""
    return _levers(case, [f for f in _findings(case) if f.direction != "DtoD" or f.host])


def other_copies(case: Case) -> Lever | None:
    """Exposed copies that no other finding speaks for."""
    device = case.capture.device
    rows = np.flatnonzero(case.copy_left > 0)
    if not len(rows):
        return None
    left = case.copy_left[rows]
    worst = arrays.largest([device["direction"]], rows, left)[0][0] or "Unknown"
    size, duration = device["bytes"].to_numpy()[rows], device["duration_ns"].to_numpy()[rows]
    known = (size >= 0) & (duration > 0)
    rate = f"; {human(float(size[known].sum()) / float(duration[known].sum()) * 1e9, 'B/s')} on average" if known.any() else ""
    return Lever(
        "exposed_copies",
        "Copies are not hidden behind computation",
        f"{acting(len(rows), 'copy', 'runs', 'copies')} {took(left.sum())} while nothing computes, most of it {worst}{rate}.",
        case.each(float(left.sum())),
        _HIDE_COPIES.get(worst, _HIDE_COPIES["HtoD"]),
        "memcpy",
        "memcpy",
        "Memory copies",
    )


def _findings(case: Case) -> list[CopyFinding]:
    """What is proven first, then the candidates; the largest first. What would not be shown claims nothing."""
    least = LEAST * case.fall.total_ns / case.fall.steps
    found = copy_findings(case.capture, case.part, bandwidth.peaks(case.spec))
    return sorted((f for f in found if f.saving_ns >= least), key=lambda f: f.candidate)


def _levers(case: Case, findings: list[CopyFinding]) -> list[Lever]:
    if not findings:
        return []
    row = records.copies(case.capture, case.part.device)["row"].to_numpy()
    out = []
    for f in findings:
        most = float(f.saving_ns * f.steps)
        idle = case.claim_idle(iv.intersect(f.spans, case.idle))
        calls, claimed, own = (np.zeros(0, np.int64), np.zeros(0), 0.0) if f.host else _claim(case, row[f.rows], max(most - idle, 0.0))
        out.append(Lever(
            f"copies_{f.key}", f.title, f.evidence, case.each(idle + own), f.fix, f.color, "memcpy_findings", "Waits and patterns",
            query=(("rule", f.key),), candidate=f.candidate, rows=calls, claimed=claimed, per_step=True,
        ))  # fmt: skip
    return out


def _claim(case: Case, rows: Ints, most: float) -> tuple[Ints, Floats, float]:
    """Take up to `most` ns of the exclusive time of some device rows: (operator calls, what was taken of each, what was taken in all).

    A copy that is the work of a modelled call stands in that call's time, any other in the exposed copies of the waterfall.
    """
    owner, modelled = case.fall.work.owner, case.fall.kind[rows] != NO_KIND
    free, mine = rows[~modelled], rows[modelled & (owner[rows] >= 0)] if len(owner) == len(case.copy_left) else rows[:0]
    calls, place = np.unique(owner[mine], return_inverse=True)
    wanted = np.minimum(np.bincount(place, case.fall.own[mine], minlength=len(calls)), case.left[calls])
    there = float(case.copy_left[free].sum() + wanted.sum())
    part = min(1.0, most / there) if there > 0 else 0.0
    taken = case.copy_left[free] * part
    case.copy_left[free] -= taken
    claimed = case.claim(calls.astype(np.int64), wanted * part)
    return calls.astype(np.int64), claimed, float(taken.sum() + claimed.sum())
