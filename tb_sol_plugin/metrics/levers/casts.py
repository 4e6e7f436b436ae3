"""Weights that are kept in FP32 and cast for every step: autocast reads the wide copy and writes the narrow one before each use."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_sol_plugin.cost import Inputs
from tb_sol_plugin.metrics.levers.case import Case
from tb_sol_plugin.metrics.levers.lever import Lever, acting, over, took
from tb_sol_plugin.metrics.levers.products import product
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints

NARROW: Final = ("bf16", "fp16", "fp8_e4m3", "fp8_e5m2")


def weight_casts(case: Case) -> Lever | None:
    """Copies from FP32 to a narrow type over exactly the size of a weight that a product or a convolution takes in that type."""
    if case.spec is None:
        return None
    rows = np.flatnonzero(case.named("aten::copy_".__eq__) & case.known & (case.left == case.time))
    users = np.flatnonzero(case.of_kind("gemm", "conv") & case.of_type("bf16", "fp16", "fp8"))
    if not len(rows) or not len(users):
        return None
    code, read = case.by_signature(rows)
    weights = _weights(case, users)
    hit = np.array([_cast(call) in weights for _, call in read], bool)[code]
    rows = rows[hit]
    if not len(rows):
        return None
    claimed = case.claim(rows, case.left[rows])
    (name, shapes), most = arrays.largest([case.ops["name"], case.ops["shapes"]], rows, claimed)
    trains = len(case.capture.tables["backward"]) > 0
    return Lever(
        "weight_casts",
        "Weights are cast from FP32 in every step",
        f"{acting(len(rows), 'cast', 'takes')} {took(claimed.sum())}, {took(most)} of it in {over(name, shapes)}: each has the size of "
        "a weight that a product takes in the narrow type.",
        case.each(float(claimed.sum())),
        "fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))  # or weights in BF16, FP32 in the optimizer"
        if trains
        else "model = model.to(torch.bfloat16)  # in place of autocast: weights are cast once",
        "other",
        "roofline",
        "Copies on the roofline",
        find=name,
        candidate=True,
        rows=rows,
        claimed=claimed,
    )


def _cast(call: Inputs) -> tuple[int, ...]:
    """Sizes of a tensor that is cast from FP32 to a narrow type as it stands; (0,) for any other copy."""
    to, of = call.tensor(0), call.tensor(1)
    fits = to is not None and of is not None and to.shape == of.shape and of.dtype == "fp32" and to.dtype in NARROW
    return to.shape if fits and to is not None else (0,)


def _weights(case: Case, rows: Ints) -> set[tuple[int, ...]]:
    """Sizes of the weights of some products and convolutions, as modules keep them: (out, in), or of a convolution as recorded."""
    out: set[tuple[int, ...]] = set()
    for name, call in case.by_signature(rows)[1]:
        found = product(name, call)
        weight = call.tensor(1)
        if found is not None and found.batch == 1:
            out.add((found.n, found.k))
        elif "conv" in name and weight is not None and len(weight.shape) > 2:
            out.add(weight.shape)
    return out
