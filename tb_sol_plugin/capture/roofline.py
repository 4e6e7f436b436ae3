"""The least time of an operation on a device, and what sets it.

    t_sol = max(F / P, Fv / Pv, Q / W)      AI = F / Q      ridge = P / W      efficiency = t_sol / t_measured

F, P: matrix FLOP and dense peak of their type; Fv, Pv: vector FLOP and peak; Q, W: bytes and memory bandwidth. The arithmetic is
that of `tb_sol_plugin.cost.roofline`, without arrays: the capture library needs no numpy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tb_sol_plugin.capture.device_specs import DeviceSpec
from tb_sol_plugin.capture.operation_registry import BoundType, CapturedFunctionalOp, CapturedOp, DataType, OpRecord, OpType

TOLERATED: Final = 1.02
"""An efficiency above this is flagged, never cut off: a wrong type or peak, or data that never left the cache."""
LAUNCH_BOUND_US: Final = 20.0
"""Events around operations shorter than this measure how fast they are launched."""
MATRIX: Final = frozenset((OpType.MATMUL, OpType.ATTENTION, OpType.CONV))


@dataclass(frozen=True)
class Precision:
    """How FP32 products run. matmul: as `torch.get_float32_matmul_precision()` says. cudnn_tf32: whether convolutions use TF32."""

    matmul: str = "highest"
    cudnn_tf32: bool = False

    def compute_type(self, dtype: DataType, op_type: OpType) -> DataType:
        """The type whose matrix peak holds."""
        if dtype is not DataType.FP32:
            return dtype
        tf32 = self.cudnn_tf32 if op_type is OpType.CONV else self.matmul != "highest"
        return DataType.TF32 if tf32 else dtype


@dataclass
class RooflineResult:
    """The least time of an operation (of all its calls) and how close it came.

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


FLAGS: Final[dict[str, str]] = {}


def roofline(
    record: OpRecord | CapturedOp | CapturedFunctionalOp, spec: DeviceSpec | None, *, precision: Precision | None = None, events: bool = False
) -> RooflineResult:
    """One record against the limits. events: its time was measured by device events, not by kernel or wall clock."""
    return RooflineResult(None, BoundType.UNKNOWN, None, None, None)
