"""Forward work that runs again inside the backward pass (activation checkpointing): time bought with memory."""

from __future__ import annotations

import numpy as np

from tb_sol_plugin.metrics.levers.case import Case
from tb_sol_plugin.metrics.levers.lever import Lever, acting, took
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.units import human


def recompute(case: Case) -> Lever | None:
    """All time of recomputed calls could go, if their activations were kept."""
    rows = np.flatnonzero(case.ops["recompute"].to_numpy() & (case.left > 0))
    if not len(rows):
        return None
    cost = float(case.left[rows].sum())
    matrix = case.of_kind("gemm", "attention", "conv")[rows]
    heavy = float(case.left[rows][matrix].sum())
    (layer,), most = arrays.largest([case.ops["layer"]], rows, case.left[rows])
    claimed = case.claim(rows, case.left[rows])
    where = f", {took(most)} of it in `{layer}`" if layer else ""
    return Lever(
        "recompute",
        "Forward work runs a second time in the backward pass",
        f"{acting(len(rows), 'recomputed call', 'takes')} {took(cost)}{where}; {human(heavy / cost, 'ratio')} of that are products, "
        "convolutions and attention, whose results are worth keeping. Keeping them costs memory.",
        case.each(float(claimed.sum())),
        "checkpoint(block, x, use_reentrant=False, context_fn=partial(create_selective_checkpoint_contexts, ops_to_save))",
        "other",
        "modules",
        "Modules",
        rows=rows,
        claimed=claimed,
    )
