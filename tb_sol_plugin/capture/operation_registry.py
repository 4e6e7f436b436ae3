"""Names what the capture library records: kinds of operations, data types, and the records of single operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class OpType(Enum):
    """Names the kind of an operation."""

    MATMUL = "matmul"
    ATTENTION = "attention"
    LAYERNORM = "layernorm"
    EMBEDDING = "embedding"
    SOFTMAX = "softmax"
    CONV = "conv"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    MEMORY = "memory"
    OPTIMIZER = "optimizer"
    COMMUNICATION = "communication"
    OTHER = "other"


class DataType(Enum):
    """Names the element type that an operation computes in."""

    FP64 = "fp64"
    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8_E4M3 = "fp8_e4m3"
    FP8_E5M2 = "fp8_e5m2"
    FP4_E2M1 = "fp4_e2m1"
    INT8 = "int8"
    UINT8 = "uint8"
    INT32 = "int32"
    INT64 = "int64"
    BOOL = "bool"
    OTHER = "other"


class BoundType(Enum):
    """Names what sets the least time of an operation."""

    COMPUTE_BOUND = "compute"
    MEMORY_BOUND = "memory"
    UNKNOWN = "unknown"


Shape = tuple[int, ...]


@dataclass
class CapturedOp:
    """Sums the work of one supported layer in one direction. Times in µs, None where not timed; flops and bytes of all `count` calls."""

    layer_name: str
    layer_type: str
    op_type: OpType
    input_shapes: list[Shape]
    output_shapes: list[Shape]
    dtype: DataType
    measured_time_us: float | None
    phase: str
    flops: int | None = 0
    bytes: int | None = 0
    direction: str = "fwd"
    is_recompute: bool = False
    count: int = 1
    source: str = "dispatch"
    estimated: bool = False


@dataclass
class CapturedFunctionalOp:
    """Sums the work of one patched function (`F.linear`) in one direction; fields as in `CapturedOp`."""

    func_name: str
    op_type: OpType
    input_shapes: list[Shape]
    output_shapes: list[Shape]
    dtype: DataType
    measured_time_us: float | None
    phase: str
    module_context: str
    flops: int | None = 0
    bytes: int | None = 0
    direction: str = "fwd"
    is_recompute: bool = False
    count: int = 1
    source: str = "dispatch"
    estimated: bool = False


@dataclass
class OpRecord:
    """Sums calls that are alike in operator, sizes, types, labels, direction: one row of the ledger. flops, bytes: of all `count` calls.

    flops: matrix class, flops_vector: everything else that computes; None is unknown. bytes: least traffic to device memory. flops_again:
    the part of flops that these calls do a second time themselves, the scores of a fused attention's backward.
    layer_name: path of the innermost supported layer, layer_type its class, "" outside. module_context: path of the innermost module,
    module_class its class.
    func_name: the outermost patched function, "". phase: innermost pushed name, `(no phase)`. forward_phase: of backward work, that
    of its forward operator. measured_time_us: of all `count` calls, None when not timed. source: dispatch, hook, patch, trace.
    """

    name: str
    op_type: OpType
    input_shapes: list[Shape] = field(default_factory=list)
    output_shapes: list[Shape] = field(default_factory=list)
    input_dtypes: list[str] = field(default_factory=list)
    stride0_mask: list[tuple[bool, ...]] = field(default_factory=list)
    dtype: DataType = DataType.OTHER
    flops: int | None = None
    flops_vector: int | None = None
    bytes: int | None = None
    count: int = 1
    direction: str = "fwd"
    is_recompute: bool = False
    layer_name: str = ""
    layer_type: str = ""
    func_name: str = ""
    phase: str = "(no phase)"
    module_context: str = ""
    measured_time_us: float | None = None
    source: str = "dispatch"
    estimated: bool = False
    forward_phase: str = ""
    reason: str = ""
    compiled: bool = False
    flops_again: int = 0
    module_class: str = ""
