"""The host's time in exclusive parts, for a recording without device work.

    window = loading of batches + modelled operators + operators without a model + framework + outside every operator

Framework is the time in operators that themselves do nothing but call others (dispatch, autograd nodes). Where several threads run,
a moment counts once, in this order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_sol_plugin.metrics import attribution as at
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.step_split import DATALOADER
from tb_sol_plugin.metrics.work.calls import Work
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints


@dataclass(frozen=True)
class HostSplit:
    """own: exclusive ns per row of Work.ops, 0 for one without a model. busy: when any operator runs outside loading; busy_ns its length.

    total_ns: length of the windows; the parts add up to it.
    """

    own: Ints
    busy: iv.Spans
    busy_ns: int
    total_ns: int
    loading_ns: int
    unmodelled_ns: int
    framework_ns: int
    outside_ns: int
    communication_ns: int = 0


def split_host(capture: Capture, done: Work, windows: iv.Spans) -> HostSplit:
    """The parts of `windows` by the operators of `done`."""
    h = at.host(capture)
    named = np.flatnonzero(done.ops["host"].to_numpy() >= 0)
    rows = np.concatenate((done.ops["host"].to_numpy()[named].astype(np.int64), done.replaced[0]))
    op = np.concatenate((named, done.replaced[1]))
    modelled = done.ops["modelled"].to_numpy()[op]
    free = iv.subtract(windows, loading_spans(capture))
    own = np.zeros(len(rows), np.int64)
    mine = np.flatnonzero(modelled)
    mine = mine[np.argsort(h.start[rows[mine]], kind="stable")]
    if len(mine):
        start, stop = h.start[rows[mine]], h.stop[rows[mine]]
        reach = np.concatenate((start[:1], np.maximum.accumulate(stop)[:-1]))
        first = np.maximum(start, reach)
        own[mine] = iv.overlap_with(first, np.maximum(stop, first), free)
    flag = np.zeros(len(h.start), np.int64)
    flag[rows[modelled]] = 1
    calls_others = np.asarray(tree.subtree_sum(flag, h.end), np.int64)[rows] > 0
    leaf = rows[~modelled & ~calls_others]
    operators = np.flatnonzero(h.kind == S.OPERATOR)
    layers = [iv.union(h.start[r], h.stop[r]) for r in (rows[modelled], leaf, operators)]
    parts = [iv.intersect(layer, free) for layer in iv.exclusive(layers)]
    busy = iv.merge(*parts)
    return HostSplit(
        at.sum_by(op, own, len(done.ops)),
        busy,
        iv.length(busy),
        iv.length(windows),
        iv.length(windows) - iv.length(free),
        iv.length(parts[1]),
        iv.length(parts[2]),
        iv.length(free) - iv.length(busy),
    )


def loading_spans(capture: Capture) -> iv.Spans:
    """When some thread fetches a batch: `enumerate(DataLoader)#….__next__` and the like."""

    def make() -> iv.Spans:
        name = capture.host["name"]
        h = at.host(capture)
        rows = arrays.where(name, lambda n: DATALOADER.match(n) is not None) & np.isin(h.kind, (S.ANNOTATION, S.OPERATOR))
        return iv.union(h.start[rows], h.stop[rows])

    return memo(capture, ("waterfall.loading",), make)
