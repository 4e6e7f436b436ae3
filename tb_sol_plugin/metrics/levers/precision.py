"""Matrix work that leaves the matrix units idle: FP32 where TF32 or a 16-bit type would do, and 16-bit types on plain units."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_sol_plugin.metrics.kernel_class import unit_name
from tb_sol_plugin.metrics.kernel_name import short_name
from tb_sol_plugin.metrics.levers.case import Case
from tb_sol_plugin.metrics.levers.lever import Lever, acting, over, took
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Ints

MATRIX_KINDS: Final = ("gemm", "conv", "attention")
WORTH: Final = 1.5
"""A type is offered when its peak is at least half again the present one."""
WORDS: Final = {"tf32": "TF32", "bf16": "BF16", "fp16": "FP16", "fp32": "FP32", "fp8": "FP8", "int8": "INT8"}
PLAIN_PEAK: Final = 2.1
"""Plain units compute FP16 at no more than twice their FP32 rate; what is faster than 2.1 times cannot have run on them."""


def fp32_matrix(case: Case) -> Lever | None:
    """FP32 products and convolutions on plain units (or FP32 matrix units), against the limit in a type with a higher peak."""
    spec = case.spec
    fp32 = spec.matrix_peak("fp32") if spec is not None else None
    if spec is None or not fp32 or spec.memory_bandwidth is None:
        return None
    better = [t for t in ("tf32", "bf16", "fp16") if spec.matrix.get(t, 0.0) >= WORTH * fp32 and t not in spec.unsupported]
    if case.vendor != "nvidia":
        better = [t for t in better if t != "tf32"]
    if not better:
        return None
    use = case.of_kind(*MATRIX_KINDS) & case.of_type("fp32") & case.known & (case.flop > 0)
    if case.vendor == "nvidia":
        use &= case.matrix_unit == 0  # a matrix kernel on FP32 operands already uses TF32 or emulates FP32
    rows = np.flatnonzero(use & (case.left > 0))
    if not len(rows):
        return None
    limits = {t: _limit(case, rows, t) for t in better}
    chosen = better[0]
    spent = case.left[rows]
    gain = spent > limits[chosen]
    if not gain.any():
        return None
    total = float(spent[gain].sum())
    claimed = case.claim(rows[gain], (spent - limits[chosen])[gain])
    rows = rows[gain]
    said = " and ".join(f"{took(limits[t][gain].sum())} in {WORDS[t]}" for t in better[:2])
    (name, shapes), most = arrays.largest([case.ops["name"], case.ops["shapes"]], rows, claimed)
    (kind,), _ = arrays.largest([case.ops["kind"]], rows, claimed)
    unit = unit_name(case.vendor)
    title = "Matrix work runs in FP32" if case.vendor in ("cpu", "amd") else f"Matrix work runs in FP32 and leaves the {unit}s unused"
    return Lever(
        "fp32_matrix",
        title,
        f"{acting(len(rows), 'call', 'computes')} in FP32 for {took(total)}; the limit of the same work is {said}. "
        f"Largest: {over(name, shapes)}, {took(most)} above that. Results differ by rounding.",
        case.each(float(claimed.sum())),
        _precision_fix(case, chosen, kind),
        kind,
        "roofline",
        "FP32 work on the roofline",
        find=name,
        rows=rows,
        claimed=claimed,
    )  # fmt: skip


def _limit(case: Case, rows: Ints, dtype: str) -> Floats:
    """ns per call at the peak of another type. A 16-bit type halves the traffic; TF32 keeps it."""
    assert case.spec is not None and case.spec.memory_bandwidth is not None
    data = np.nan_to_num(case.bytes[rows]) * (1.0 if dtype == "tf32" else 0.5)
    seconds = np.maximum(case.flop[rows] / case.spec.matrix[dtype], data / case.spec.memory_bandwidth)
    return np.asarray(seconds * 1e9 / case.fall.parallel, np.float64)


def _precision_fix(case: Case, dtype: str, kind: str) -> str:
    if dtype == "tf32":
        if kind == "conv":
            return 'torch.backends.cudnn.conv.fp32_precision = "tf32"  # before torch 2.9: torch.backends.cudnn.allow_tf32 = True'
        return 'torch.set_float32_matmul_precision("high")  # or torch.autocast("cuda", torch.bfloat16)'
    place = "cpu" if case.on_host else "cuda"
    scaler = "  # with torch.amp.GradScaler() in training" if dtype == "fp16" else ""
    return f'with torch.autocast("{place}", torch.{"float16" if dtype == "fp16" else "bfloat16"}):{scaler}'


def plain_units(case: Case) -> Lever | None:
    """Products and convolutions in a type that matrix units take, whose kernel is known to run on plain units."""
    spec = case.spec
    vector = spec.vector_peak("fp32") if spec is not None else None
    if spec is None or not vector or spec.memory_bandwidth is None or case.on_host:
        return None
    types = [t for t in ("fp16", "bf16", "fp8", "int8") if spec.matrix.get(t, 0.0) >= WORTH * vector]
    use = case.of_kind(*MATRIX_KINDS) & case.of_type(*types) & (case.matrix_unit == 0) & case.known & (case.flop > 0)
    data = np.nan_to_num(case.bytes) / spec.memory_bandwidth
    use &= case.flop / vector > data  # where memory is the wall anyway (a product with a vector), the unit does not matter
    with np.errstate(divide="ignore", invalid="ignore"):
        use &= ~(case.flop / np.where(case.time > 0, case.time, np.nan) * 1e9 > PLAIN_PEAK * vector)
    rows = np.flatnonzero(use & (case.left > case.limit))
    if not len(rows):
        return None
    spent, least = float(case.left[rows].sum()), float(case.limit[rows].sum())
    claimed = case.claim(rows, case.left[rows] - case.limit[rows])
    (name, shapes), _ = arrays.largest([case.ops["name"], case.ops["shapes"]], rows, claimed)
    (dtype,), _ = arrays.largest([case.ops["dtype"]], rows, claimed)
    kernel = case.kernel_name(int(rows[int(claimed.argmax())]))
    unit = unit_name(case.vendor)
    return Lever(
        "plain_units",
        f"Matrix work in {WORDS[dtype]} misses the {unit}s",
        f"{acting(len(rows), 'call', 'runs')} {took(spent)} in kernels that do not use them (`{short_name(kernel)}`), most in "
        f"{over(name, shapes)}; on {unit}s the limit is {took(least)}.",
        case.each(float(claimed.sum())),
        "# make every size a multiple of 16 bytes: pad vocabulary and channels to multiples of 8",
        "gemm",
        "kernels",
        "The kernel",
        find=short_name(kernel),
        rows=rows,
        claimed=claimed,
    )
