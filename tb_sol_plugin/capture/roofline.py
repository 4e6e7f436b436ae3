"""Computes the roofline of recorded operations: `tb_sol_plugin.roofline` with the work of a record and the limits of its device."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from tb_sol_plugin.capture.device_specs import DeviceSpec
from tb_sol_plugin.capture.operation_registry import BoundType, CapturedFunctionalOp, CapturedOp, DataType, OpRecord, OpType
from tb_sol_plugin.roofline import TOLERATED as TOLERATED
from tb_sol_plugin.roofline import Bound, efficiency, exceeds_limit, intensity, limit, quotient, ridge

_BOUND: Final[dict[Bound, BoundType]] = {
    "none": BoundType.UNKNOWN, "compute": BoundType.COMPUTE_BOUND, "memory": BoundType.MEMORY_BOUND,
}  # fmt: skip
LAUNCH_BOUND_US: Final = 20.0
"""Events around operations shorter than this measure how fast they are launched."""
MATRIX: Final = frozenset((OpType.MATMUL, OpType.ATTENTION, OpType.CONV))


@dataclass(frozen=True)
class Precision:
    """Describes how FP32 products run. matmul: of `torch.get_float32_matmul_precision()`. cudnn_tf32: whether convolutions use TF32."""

    matmul: str = "highest"
    cudnn_tf32: bool = False

    def compute_type(self, dtype: DataType, op_type: OpType) -> DataType:
        """Returns the type whose matrix peak applies."""
        if dtype is not DataType.FP32:
            return dtype
        tf32 = self.cudnn_tf32 if op_type is OpType.CONV else self.matmul != "highest"
        return DataType.TF32 if tf32 else dtype

    def on(self, spec: DeviceSpec | None) -> Precision:
        """Returns what applies on a device: other vendors than NVIDIA compute FP32 in FP32 whatever these settings are."""
        return self if spec is None or spec.vendor in ("nvidia", "") else Precision()


def current_precision() -> Precision:
    """Reads how FP32 products of this process run now; as FP32 where torch does not say."""
    torch = sys.modules.get("torch")
    if torch is None:
        return Precision()
    return Precision(_first(torch, ("get_float32_matmul_precision", "backends.cuda.matmul.fp32_precision")), _cudnn_tf32(torch))


def _first(torch: object, names: tuple[str, ...]) -> str:
    """Return the first setting that torch answers for; it refuses the older one where a process used the newer."""
    for name in names:
        try:
            value: object = attrgetter(name)(torch)
            text = str(value() if callable(value) else value)
        except (AttributeError, RuntimeError):
            continue
        return {"tf32": "high", "ieee": "highest", "none": "highest"}.get(text, text)
    return "highest"


def _cudnn_tf32(torch: object) -> bool:
    try:
        return bool(attrgetter("backends.cudnn.allow_tf32")(torch))
    except (AttributeError, RuntimeError):
        return False


@dataclass
class RooflineResult:
    """Compares an operation (all its calls) with its least time.

    Times in µs, achieved_flops, peak_used and bandwidth_used per second, arithmetic_intensity and ridge_point in FLOP per byte,
    efficiency a ratio. None is unknown. flags: see `FLAGS`.
    """

    estimated_time_us: float | None
    bound_type: BoundType
    arithmetic_intensity: float | None
    achieved_flops: float | None
    efficiency: float | None
    ridge_point: float | None = None
    flags: list[str] = field(default_factory=list)
    peak_used: float | None = None
    bandwidth_used: float | None = None


FLAGS: Final = {
    "above_limit": "above the limit: data that stayed in cache, or a wrong type or peak",
    "communication": "bound by a link, not by this device: it has no estimate",
    "no_model": "its work is not known",
    "no_peak": "the device has no peak for its type",
    "estimated": "a size, type or mask was assumed",
    "recompute": "forward work run again in the backward pass",
    "launch_bound_timing": "events around work this short measure how fast it is launched",
    "eager_capture": "compiled work, counted by running it eagerly for one step",
    "sparse": "measured against 2:4 sparse peaks",
    "unverified_peak": "the peak of its type is not confirmed",
    "forward_only": "its time is that of forward calls, its efficiency that of their work",
}
"""What a flag says."""


def least_time(
    flops: float | None, flops_vector: float | None, data: float | None, *, dtype: DataType, spec: DeviceSpec
) -> tuple[float | None, BoundType]:
    """Computes (µs, what sets it) of matrix FLOP, vector FLOP and bytes as `tb_sol_plugin.roofline.limit`; (None, UNKNOWN) if unknown."""
    seconds, bound = limit(
        flops, flops_vector, data, peak=spec.matrix_peak(dtype), vector_peak=spec.vector_peak(dtype),
        bandwidth=spec.memory_bandwidth_bytes_per_sec,
    )  # fmt: skip
    return None if seconds is None else seconds * 1e6, _BOUND[bound]


def work_of(record: OpRecord | CapturedOp | CapturedFunctionalOp) -> tuple[int | None, int | None, int | None]:
    """Returns (matrix FLOP, vector FLOP, bytes) of all calls; records of layers and functions have one sort of FLOP, by their kind."""
    if isinstance(record, OpRecord):
        return record.flops, record.flops_vector, record.bytes
    if record.op_type in MATRIX:
        return record.flops, 0, record.bytes
    return 0, record.flops, record.bytes


def roofline(
    record: OpRecord | CapturedOp | CapturedFunctionalOp,
    spec: DeviceSpec | None,
    *,
    precision: Precision | None = None,
    events: bool = False,
) -> RooflineResult:
    """Compares one record with the limits. events: its time was measured by device events, not by kernel or wall clock.

    precision: how FP32 products run; without it they run in FP32. A record without time has no efficiency.
    """
    flops, vector, data = work_of(record)
    dtype = (precision or Precision()).on(spec).compute_type(record.dtype, record.op_type)
    link = record.op_type is OpType.COMMUNICATION
    arithmetic = flops if flops or vector is None else vector
    measured = record.measured_time_us if record.measured_time_us and record.measured_time_us > 0 else None
    peak = bandwidth = estimate = None
    bound = BoundType.UNKNOWN
    if spec is not None and not link:
        peak = spec.matrix_peak(dtype) if flops else spec.vector_peak(dtype)
        bandwidth = spec.memory_bandwidth_bytes_per_sec
        estimate, bound = least_time(flops, vector, data, dtype=dtype, spec=spec)
    reached = efficiency(estimate, measured)
    rate = quotient(arithmetic, measured)
    found = _work_flags(record, known=bool(flops) or data is not None, whole=estimate is None or bool(data is not None and bandwidth))
    if spec is not None:
        found |= _peak_flags(spec, dtype, matrix=bool(flops), missing=bool(flops) and not peak and not link, bound=bound)
    if exceeds_limit(reached):
        found.add("above_limit")
    if events and measured is not None and measured < LAUNCH_BOUND_US * max(record.count, 1):
        found.add("launch_bound_timing")
    return RooflineResult(
        estimated_time_us=estimate,
        bound_type=bound,
        arithmetic_intensity=intensity(arithmetic, data),
        achieved_flops=None if rate is None else rate * 1e6,
        efficiency=reached,
        ridge_point=ridge(peak, bandwidth),
        flags=[flag for flag in FLAGS if flag in found],
        peak_used=peak,
        bandwidth_used=bandwidth,
    )


def _work_flags(record: OpRecord | CapturedOp | CapturedFunctionalOp, *, known: bool, whole: bool) -> set[str]:
    """Returns the flags of the work of a record. known: some of it is known. whole: an estimate has both of its sides."""
    is_set = {
        "communication": record.op_type is OpType.COMMUNICATION,
        "no_model": not known and record.op_type is not OpType.COMMUNICATION,
        "estimated": record.estimated or not whole,
        "recompute": record.is_recompute,
        "eager_capture": isinstance(record, OpRecord) and record.compiled,
    }
    return {flag for flag, is_so in is_set.items() if is_so}


def _peak_flags(spec: DeviceSpec, dtype: DataType, *, matrix: bool, missing: bool, bound: BoundType) -> set[str]:
    """Returns the flags of the peak that the work is compared with. missing: it needs one that the device does not have."""
    is_set = {
        "no_peak": missing,
        "sparse": matrix and spec.assume_sparsity and dtype in spec.peak_flops_sparse,
        "unverified_peak": bound is BoundType.COMPUTE_BOUND and spec.is_unverified(dtype, vector=not matrix),
    }
    return {flag for flag, is_so in is_set.items() if is_so}
