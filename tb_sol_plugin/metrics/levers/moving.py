"""Communication and copies while nothing computes: the exposed parts of the waterfall."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from tb_sol_plugin.metrics import texts
from tb_sol_plugin.metrics.kernel_name import plain_name
from tb_sol_plugin.metrics.levers.case import Case
from tb_sol_plugin.metrics.levers.lever import Lever, acting, took
from tb_sol_plugin.metrics.waterfall import NO_KIND
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables import intervals as iv
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
    (kernel,), most = texts.largest([device["name"]], rows, case.fall.own[rows])
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


def copies(case: Case) -> list[Lever]:
    """Exposed copies: those from or to pageable memory, and the others."""
    device = case.capture.device
    own = case.fall.own
    rows = np.flatnonzero((device["kind"].to_numpy() == S.MEMCPY) & (own > 0) & (case.fall.kind == NO_KIND))
    if not len(rows):
        return []
    pageable = np.any([texts.where(device[c], lambda kind: kind == "Pageable")[rows] for c in ("src_kind", "dst_kind")], axis=0)
    out = []
    for mask, rule in ((pageable, "pageable_copies"), (~pageable, "exposed_copies")):
        if not mask.any():
            continue
        chosen = rows[mask]
        time = int(own[chosen].sum())
        worst = texts.largest([device["direction"]], chosen, own[chosen])[0][0] or "Unknown"
        size, duration = device["bytes"].to_numpy()[chosen], device["duration_ns"].to_numpy()[chosen]
        known = (size >= 0) & (duration > 0)
        rate = f"; {human(float(size[known].sum()) / float(duration[known].sum()) * 1e9, 'B/s')} on average" if known.any() else ""
        evidence = f"{acting(len(chosen), 'copy', 'runs', 'copies')} {took(time)} while nothing computes, most of it {worst}{rate}"
        if rule == "pageable_copies":
            title = f"{'All host copies use' if mask.all() else 'Copies use'} pageable memory"
            evidence += "; pageable memory blocks the host and needs a second copy"
            fix = "DataLoader(pin_memory=True); tensor.to(device, non_blocking=True)"
        else:
            title, fix = "Copies are not hidden behind computation", _HIDE_COPIES.get(worst, _HIDE_COPIES["HtoD"])
        query = (("by", "kind"),) if rule == "pageable_copies" else ()
        out.append(Lever(rule, title, evidence + ".", case.each(time), fix, "memcpy", "memcpy", "Memory copies", query=query))
    return out
