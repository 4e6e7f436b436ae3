"""Products that the same device does faster elsewhere in the same recording."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics import texts
from tb_sol_plugin.metrics.kernel_name import short_name
from tb_sol_plugin.metrics.levers.case import Case
from tb_sol_plugin.metrics.levers.lever import Ints, Lever, acting, over, took

LARGE_NS: Final = 20_000
"""A product whose limit is below 20 µs ends before the clocks and caches settle: its time says little about its kernel."""
LEAST_CALLS: Final = 3
"""The median of fewer calls is chance."""
SLOWER: Final = 1.15
"""Kernels within 15 % of each other are alike."""


def slower_kernel(case: Case) -> Lever | None:
    """Large products whose kernel is slower than another kernel that ran for the same sizes and type."""
    if case.on_host:
        return None
    whole = case.known & (case.left == case.time) & (case.main >= 0)
    rows = np.flatnonzero(case.of_kind("gemm", "conv") & whole & (case.limit >= LARGE_NS))
    if len(rows) < 2 * LEAST_CALLS:
        return None
    frame = pd.DataFrame(
        {
            "sizes": _sizes(case, rows),
            "kernel": texts.codes(case.capture.device["name"])[case.main[rows]],
            "time": case.time[rows],
        }
    )
    kernels = frame.groupby(["sizes", "kernel"])["time"].agg(["median", "size"]).reset_index()
    kernels = kernels[kernels["size"] >= LEAST_CALLS]
    best = kernels.loc[kernels.groupby("sizes")["median"].idxmin()].set_index("sizes") if len(kernels) else kernels
    known = frame["sizes"].isin(best.index).to_numpy() if len(kernels) else np.zeros(len(frame), bool)
    if not known.any():
        return None
    reference = best["median"].reindex(frame["sizes"]).to_numpy(dtype=np.float64)
    other = best["kernel"].reindex(frame["sizes"]).to_numpy(dtype=np.float64) != frame["kernel"].to_numpy()
    slow = np.flatnonzero(known & other & (frame["time"].to_numpy() > SLOWER * reference))
    if not len(slow):
        return None
    claimed = case.claim(rows[slow], frame["time"].to_numpy()[slow] - reference[slow])
    (name, shapes), most = texts.largest([case.ops["name"], case.ops["shapes"]], rows[slow], claimed)
    worst = int(claimed.argmax())
    row = int(rows[slow][worst])
    fast = str(case.capture.device["name"].cat.categories[int(best["kernel"].loc[frame["sizes"].iloc[slow[worst]]])])
    ratio = float(frame["time"].iloc[slow[worst]] / reference[slow[worst]])
    return Lever(
        "slower_kernel",
        "The same product runs faster elsewhere in this recording",
        f"{acting(len(slow), 'call', 'takes')} up to {ratio:.2f}× as long as the same sizes elsewhere: {took(most)} more in "
        f"{over(name, shapes)}, where `{short_name(case.kernel_name(row))}` ran instead of `{short_name(fast)}`.",
        case.each(float(claimed.sum())),
        "torch.cuda.tunable.enable()  # TunableOp picks one kernel per size"
        if case.vendor == "amd"
        else 'torch.compile(model, mode="max-autotune")  # one kernel per size, by measurement',
        "gemm",
        "kernels",
        "The kernel",
        find=short_name(case.kernel_name(row)),
        rows=rows[slow],
        claimed=claimed,
    )


def _sizes(case: Case, rows: Ints) -> Ints:
    return case.by_signature(rows)[0]
