"""Products that the same device does faster elsewhere in the same recording."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.cost.roofline import TOLERATED
from tb_sol_plugin.metrics.kernel_name import short_name
from tb_sol_plugin.metrics.levers.case import Case
from tb_sol_plugin.metrics.levers.lever import Lever, acting, over, took
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.units import human

LARGE_NS: Final = 20_000
"""A product whose limit is below 20 µs ends before the clocks and caches settle: its time says little about its kernel."""
LEAST_CALLS: Final = 3
"""The median of fewer calls is chance."""
BEHIND: Final = 0.8
"""A product within a fifth of the best rate of its type is as good as it gets."""
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
            "kernel": arrays.codes(case.capture.device["name"])[case.main[rows]],
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
    (name, shapes), most = arrays.largest([case.ops["name"], case.ops["shapes"]], rows[slow], claimed)
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


def behind_the_best(case: Case) -> Lever | None:
    """Large compute-bound products of one type that reach far less of their limit than others of that type in the recording."""
    if case.on_host:
        return None
    large = case.of_kind("gemm") & case.known & (case.limit >= LARGE_NS) & arrays.where(case.ops["bound"], "compute".__eq__)
    rows = np.flatnonzero(large & (case.left == case.time))
    if len(rows) < 2 * LEAST_CALLS:
        return None
    frame = pd.DataFrame({"type": arrays.codes(case.ops["dtype"])[rows], "sizes": _sizes(case, rows), "time": case.time[rows]})
    frame["limit"] = case.limit[rows]
    groups = frame.groupby(["type", "sizes"]).agg(calls=("time", "size"), time=("time", "median"), limit=("limit", "median")).reset_index()
    groups["reached"] = groups["limit"] / groups["time"]
    fair = groups[(groups["calls"] >= LEAST_CALLS) & (groups["reached"] <= TOLERATED)]
    best = fair.loc[fair.groupby("type")["reached"].idxmax()].set_index("type") if len(fair) else fair
    reach = best["reached"].reindex(frame["type"]).to_numpy(dtype=np.float64) if len(best) else np.full(len(frame), np.nan)
    own = groups.set_index("sizes")["reached"].reindex(frame["sizes"]).to_numpy(dtype=np.float64)
    slow = np.flatnonzero(own < BEHIND * reach)
    wanted = (frame["time"] - frame["limit"] / reach).to_numpy()[slow]
    if not (wanted > 0).any():
        return None
    claimed = case.claim(rows[slow], np.maximum(wanted, 0.0))
    worst = int(claimed.argmax())
    (name, shapes), most = arrays.largest([case.ops["name"], case.ops["shapes"]], rows[slow], claimed)
    dtype = frame["type"].iloc[slow[worst]]
    model = rows[int(np.flatnonzero(frame["sizes"].to_numpy() == best.loc[dtype, "sizes"])[0])]
    good, good_shapes = (str(arrays.pick(case.ops[c], [model])[0]) for c in ("name", "shapes"))
    return Lever(
        "behind_the_best",
        "Some large products reach far less of their limit than others here",
        f"{acting(len(slow), 'product', 'takes')} {took(frame['time'].to_numpy()[slow].sum())}; {over(name, shapes)} reaches "
        f"{human(float(own[slow][worst]), 'ratio')} of its limit where {over(good, good_shapes)} reaches "
        f"{human(float(reach[slow][worst]), 'ratio')}: {took(most)} more than at that rate.",
        case.each(float(claimed.sum())),
        "torch.cuda.tunable.enable()  # TunableOp tries other kernels per size"
        if case.vendor == "amd"
        else 'torch.compile(model, mode="max-autotune")  # tries other kernels per size',
        "gemm",
        "roofline",
        "The product on the roofline",
        find=name,
        candidate=True,
        rows=rows[slow],
        claimed=claimed,
    )


def _sizes(case: Case, rows: Ints) -> Ints:
    """A number per call, alike for the same arguments in the same type: FP32 operands may run in FP32 and in TF32."""
    dtype = arrays.codes(case.ops["dtype"])[rows]
    return case.by_signature(rows)[0] * (int(dtype.max(initial=0)) + 2) + dtype + 1
