"""Why a row runs faster than its limit: the likeliest cause, from what the recording says."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.units import human

WINOGRAD: Final = re.compile(r"winograd", re.IGNORECASE)
FFT: Final = re.compile(r"(?:^|[^a-z])c?fft|fft2d|cgemm_|_cgemm", re.IGNORECASE)
CLOCK: Final = 1.1
"""A rate up to this much over a compute limit can come from a clock above the one of the table."""
SMALL: Final = 32e6
"""Bytes of a call that some cache may hold where its size is not known, as on a CPU."""
NARROWER: Final = {
    "fp64": ("fp32",),
    "fp32": ("tf32", "bf16", "fp16"),
    "tf32": ("bf16", "fp16"),
    "bf16": ("fp8", "int8"),
    "fp16": ("fp8", "int8"),
    "fp8": ("fp4",),
}
"""Per type the faster ones that may have done the work."""


class Case(NamedTuple):
    """One row above its limit.

    kernels: names of all its device events. bytes: of all calls, NaN where unknown. reason: what had to be assumed, "" for nothing.
    """

    kind: str
    dtype: str
    bound: str
    kernels: str
    calls: int
    bytes: float
    efficiency: float
    reason: str


def likely_cause(case: Case, spec: DeviceSpec) -> str:
    """One sentence without a full stop. Order: what the kernel's name proves, then what the numbers fit, then what was assumed."""
    if case.kind == "conv" and WINOGRAD.search(case.kernels):
        return "Winograd convolution: fewer operations than the definition counts"
    if case.kind == "conv" and FFT.search(case.kernels):
        return "FFT convolution: fewer operations than the definition counts"
    if case.bound == "memory":
        return _memory(case, spec)
    if case.reason:
        return f"its work is an estimate: {case.reason}"
    peak = spec.matrix_peak(case.dtype)
    if case.efficiency <= CLOCK:
        return "the clock was above the one that the limit holds at"
    for dtype in NARROWER.get(case.dtype, ()):
        faster = spec.matrix_peak(dtype)
        if peak and faster and case.efficiency * peak <= faster * CLOCK:
            return f"likely computed in {dtype}: within its limit of {human(faster, 'FLOP/s')}"
    if spec.sparse_factor and case.efficiency <= spec.sparse_factor * CLOCK:
        return "structured sparsity, or fewer operations by the algorithm"
    return "fewer operations by the algorithm, another type than recorded, or a wrong limit"


def _memory(case: Case, spec: DeviceSpec) -> str:
    each = case.bytes / case.calls if case.calls else float("nan")
    cache = spec.l2_bytes
    if cache and each <= cache:
        return f"its data stayed in cache: {human(each, 'B')} a call, L2 holds {human(cache, 'B')}"
    if not cache and each <= SMALL:
        return f"its data may have stayed in a cache: {human(each, 'B')} a call"
    if case.reason:
        return f"its work is an estimate: {case.reason}"
    if cache and each <= 3 * cache:
        return f"part of its data stayed in cache: {human(each, 'B')} a call, L2 holds {human(cache, 'B')}"
    return "it touched less data than its sizes say, its data stayed in cache, or the bandwidth of the limit is too low"
