"""Finds what is wrong with collectives: buffers broadcast in every step, many tiny ones, large ones far below the link.

Each takes the time in which its collectives run and nothing computes, which no finding before it has taken; what is left is
`exposed_communication`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from tb_sol_plugin.metrics.rules.engine import Answer, Finding, rule, subject_verb, time_text
from tb_sol_plugin.metrics.rules.time.context import TimeContext
from tb_sol_plugin.metrics.rules.time.recorded import collectives
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.breakdown import device_word, host_idle
from tb_sol_plugin.metrics.work.ownership import link_bytes
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables import tree
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask
from tb_sol_plugin.units import human

PAGE: Final = "gpu_breakdown"
LABEL: Final = "Overlap by device"
DDP: Final = "DistributedDataParallel.forward"
TINY: Final = 64 * 1024
"""Below 64 KiB a collective is mostly latency."""
MANY: Final = 64
"""So many tiny all-reduces in a step are worth packing."""
LARGE: Final = 1 << 20
"""From 1 MiB on the link, not the latency, decides on the time of a collective."""
SLOW: Final = 0.25
"""Below a quarter of the link in every single call, waits for slower ranks are not all of it."""
NODE: Final = 8
"""More ranks than this are on several nodes: what lies between these is not recorded."""
REDUCING: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def unclaimed(context: TimeContext) -> tuple[Ints, Floats]:
    """Returns (device rows of communication that run while nothing computes and that no finding holds, ns of each)."""
    device = context.capture.device
    own = context.waterfall.own.astype(np.float64)
    free = device["communication"].to_numpy() & (device["kind"].to_numpy() == S.KERNEL) & (own > 0)
    for found in context.reported:
        free[found.events] = False
    rows = np.flatnonzero(free)
    return rows, own[rows]


def _below(context: TimeContext, rows: Ints, name: str) -> Mask:
    """Tells which device rows are launched inside of a range whose name contains `name`."""
    h = at.host(context.capture)
    call = context.capture.device["call"].to_numpy()[rows].astype(np.int64)
    if not len(h.start):
        return np.zeros(len(rows), np.bool_)
    named = at.where_named(context.capture, lambda n: name in n)
    return np.asarray(tree.nearest(named, h.parent, h.stop, np.asarray(call, np.int32), h.start[np.maximum(call, 0)], h.end) >= 0, np.bool_)


def _step(context: TimeContext, rows: Ints) -> Ints:
    """Returns the number of steps that begin before each device row does."""
    start = np.sort(context.capture.steps["start_ns"].to_numpy())
    return np.searchsorted(start, context.capture.device["start_ns"].to_numpy()[rows], side="right")


def _taken(found: Finding, rows: Ints, ns: Floats) -> Finding:
    some = ns > 0
    return replace(found, events=rows[some], events_ns=ns[some])


@rule(
    "buffer_broadcasts", title="Buffers are broadcast in every forward pass",
    fix="DistributedDataParallel(model, broadcast_buffers=False)  # where every rank may keep its own batch norm statistics", page=PAGE,
    label=LABEL, color="communication",
)  # fmt: skip
def buffer_broadcasts(context: TimeContext) -> Answer:
    """Finds broadcasts that DistributedDataParallel makes of its buffers in at least two steps, and idle time while it packs these.

    A broadcast in one step of several is that of the parameters, at the begin.
    """
    device = context.capture.device
    every = np.flatnonzero(device["communication"].to_numpy() & (device["kind"].to_numpy() == S.KERNEL))
    every = every[collectives(context.capture, every) == "broadcast"]
    every = every[_below(context, every, DDP)] if len(every) else every
    inside = np.unique(_step(context, every))
    if len(inside) < 2 or 2 * len(inside) <= context.waterfall.steps:
        return None
    rows, own = unclaimed(context)
    use = np.isin(rows, every)
    h = at.host(context.capture)
    packs = at.where_named(context.capture, lambda n: n in PACKING) & (h.kind == S.OPERATOR)
    calls = np.flatnonzero(packs)
    forward = at.where_named(context.capture, lambda n: DDP in n)
    calls = calls[tree.nearest(forward, h.parent, h.stop, np.asarray(calls, np.int32), h.start[calls], h.end) >= 0]
    waits = iv.intersect(iv.union(h.start[calls], h.stop[calls]), host_idle(context.capture))
    idle = context.ledger.take_idle(waits)
    unit = device_word(context.capture)
    beside = f"; the {unit} has no work for {time_text(iv.length(idle))} while the host packs and unpacks them" if len(idle[0]) else ""
    found = context.finding(
        f"{subject_verb(len(every), 'broadcast', 'runs')} inside of `{DDP}`, {time_text(own[use].sum())} of it while nothing "
        f"computes{beside}.",
        ns=float(own[use].sum()), idle=idle,
    )  # fmt: skip
    return _taken(found, rows[use], own[use])


PACKING: Final = ("aten::flatten_dense_tensors", "aten::unflatten_dense_tensors", "c10d::broadcast_")
"""What the host runs to broadcast buffers."""


@rule(
    "tiny_all_reduces", title="Many tiny all-reduces, each mostly latency", page=PAGE, label=LABEL, color="communication", candidate=True,
)  # fmt: skip
def tiny_all_reduces(context: TimeContext) -> Answer:
    """Finds many all-reduces of little data in a training step: packed into one they take no more than the longest of them.

    Those of synchronized batch norm need each result before the next, as those of tensor parallelism without a backward pass do.
    """
    rows, own = unclaimed(context)
    steps = context.waterfall.steps
    if len(rows) < MANY * steps or not len(context.capture.tables["backward"]):
        return None
    size = link_bytes(context.capture)[rows]
    use = (size > 0) & (size <= TINY)
    use &= collectives(context.capture, rows) == "all_reduce"
    use &= ~_below(context, rows, "SyncBatchNorm")
    rows, own, size = rows[use], own[use], size[use]
    if len(rows) < MANY * steps:
        return None
    step = _step(context, rows)
    longest = np.zeros(int(step.max()) + 1)
    np.maximum.at(longest, step, own)
    saved = float(own.sum() - longest.sum())
    part = saved / float(own.sum())
    each = human(float(np.median(size)), "B")
    wrapped = at.any_named(context.capture, lambda n: DDP in n)
    found = context.finding(
        f"{subject_verb(len(rows), 'all-reduce', 'sends')} {each} or so and {'takes' if len(rows) == 1 else 'take'} "
        f"{time_text(own.sum())} while nothing computes, {time_text(float(np.median(own)))} each; packed into one of a step they would "
        f"take no more than the longest, {time_text(longest.max())}. Whether a result is needed before the next one is not recorded.",
        ns=saved,
        fix="DistributedDataParallel(model, bucket_cap_mb=25)  # gradients in buckets; further values in one tensor" if wrapped
        else "dist.all_reduce(torch.cat([g.flatten() for g in gradients]))  # one collective for many tensors",
    )  # fmt: skip
    return _taken(found, rows, own * part)


def link_text(context: TimeContext) -> str:
    """Returns what large collectives inside of a node reach of the link, where every one of them stays below a quarter of it; else "".

    It is a part of the evidence, no saving: the time inside of a collective is also that of waiting for slower ranks, and the ranks of one
    group may be on several nodes.
    """
    spec = context.spec
    link = (spec.link_bytes_per_s or spec.pcie_bytes_per_s) if spec is not None else None
    table = context.capture.tables["collectives"]
    if spec is None or not link or not len(table):
        return ""
    ranks = table["group_size"].to_numpy()
    rows = table["device"].to_numpy()[(ranks > 1) & (ranks <= NODE)].astype(np.int64)
    size, time = link_bytes(context.capture)[rows], context.capture.device["duration_ns"].to_numpy()[rows].astype(np.float64)
    use = (size >= LARGE) & (time > 0) & (context.waterfall.own[rows] > 0)
    use &= np.isin(collectives(context.capture, rows), REDUCING)
    size, time = size[use], time[use]
    if len(size) < FEWEST or float((size / time).max()) * 1e9 > SLOW * link:
        return ""
    kinds = {"nvlink": "NVLink", "xgmi": "xGMI"}
    name = kinds.get(spec.link_kind, "the link between devices") if spec.link_bytes_per_s else "PCIe"
    fastest, average = (human(float(x) * 1e9, "B/s") for x in ((size / time).max(), size.sum() / time.sum()))
    return (
        f" {subject_verb(len(size), 'large one', 'runs', 'large ones')} at {average} bus bandwidth, the fastest at {fastest}, waits for "
        f"slower ranks included; {name} carries {human(link, 'B/s')}. NCCL_DEBUG=INFO shows the path that they take."
    )


FEWEST: Final = 4
"""Fewer calls may all have waited for a slower rank."""
