"""Computes the cost of a call by the package's cost models, which are loaded on first use and may be missing.

Without them, and where no model knows an operator, work is unknown (None) with a reason; it is never 0.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from tb_sol_plugin.capture.operation_registry import DataType, OpType

if TYPE_CHECKING:
    from types import ModuleType

    from tb_sol_plugin.capture.work.signatures import Signature

NO_MODELS: Final = "the cost models are not installed"
COLLECTIVES: Final = frozenset(("c10d", "_c10d_functional", "c10d_functional", "_c10d_functional_autograd", "symm_mem", "_dtensor"))
"""Namespaces of operators that communicate."""


class CallCost(NamedTuple):
    """Has the work of one call. flop: matrix class, flop_vector: everything else that computes, bytes: least traffic to device memory.

    None is unknown, and `reason` says why. flop_again: the part of flop that the call does a second time, see `cost.Cost`. dtype: what it
    computes in, as the cost models name it. kind: class of work (gemm, conv, …).
    """

    flop: int | None = None
    flop_vector: int | None = None
    bytes: int | None = None
    dtype: str = ""
    kind: str = "other"
    direction: str = "fwd"
    estimated: bool = False
    reason: str = ""
    flop_again: int = 0


@cache
def models() -> ModuleType | None:
    """Imports `tb_sol_plugin.cost`; None where it or what it needs is missing."""
    try:
        import tb_sol_plugin.cost as cost
    except ImportError:
        return None
    return cost


@cache
def has_model(op: str) -> bool:
    """Returns whether a cost model knows an operator."""
    found = models()
    return found is not None and found.model_for(op) is not None


def cost_of(signature: Signature) -> CallCost:
    """Computes the cost of one call, once per signature: `Signature` keeps the answer."""
    if signature.communication:
        return CallCost(0, 0, 0)  # its traffic is on links, not in the memory of the device
    if signature.odd:
        return CallCost(reason=f"{signature.odd}: its sizes do not tell its work")
    found = models()
    if found is None:
        return CallCost(reason=NO_MODELS)
    texts = signature.shapes, signature.types, signature.strides, signature.concrete
    try:
        answer = found.estimate(signature.op, found.Inputs(*texts))
        if answer is None:
            answer = found.estimate(signature.op, found.Inputs(*texts, result=_first_result(signature)))
        if answer is None:
            return CallCost(reason=found.explain(signature.op, found.Inputs(*texts)) or "not enough is known of its arguments")
        traffic = answer.bytes
        if traffic is not None and signature.twice and answer.kind in ("gemm", "elementwise"):
            tensors = [found.Inputs(*texts).tensor(at) for at in signature.twice]
            traffic -= sum(t.bytes or 0 for t in tensors if t is not None)
    except Exception as problem:  # a model of another package may raise anything; the training loop must not feel it
        return CallCost(reason=f"the cost model failed: {type(problem).__name__}")
    return CallCost(
        answer.flop, answer.flop_vector, traffic, answer.dtype, answer.kind, answer.direction, answer.estimated, answer.reason,
        answer.flop_again,
    )  # fmt: skip


def _first_result(signature: Signature) -> tuple[int, ...] | None:
    shapes = json.loads(signature.out_shapes)
    return tuple(shapes[0]) if shapes and all(isinstance(size, int) for size in shapes[0]) else None


_DATA_TYPES: Final = {
    "fp64": DataType.FP64, "fp32": DataType.FP32, "tf32": DataType.TF32, "fp16": DataType.FP16, "bf16": DataType.BF16,
    "fp8": DataType.FP8_E4M3, "fp8_e4m3": DataType.FP8_E4M3, "fp8_e5m2": DataType.FP8_E5M2, "fp4": DataType.FP4_E2M1,
    "fp4_e2m1": DataType.FP4_E2M1,
    "fp4x2": DataType.FP4_E2M1, "int8": DataType.INT8, "uint8": DataType.UINT8, "int32": DataType.INT32, "int64": DataType.INT64,
    "bool": DataType.BOOL,
}  # fmt: skip


def data_type_of(dtype: str) -> DataType:
    """Returns the element type of a short name of the cost models."""
    return _DATA_TYPES.get(dtype, DataType.OTHER)


_KINDS: Final = {"gemm": OpType.MATMUL, "attention": OpType.ATTENTION, "conv": OpType.CONV, "norm": OpType.LAYERNORM}
_MATMULS: Final = frozenset(
    ("mm", "addmm", "bmm", "baddbmm", "addbmm", "matmul", "linear", "einsum", "scaled_mm", "int_mm", "grouped_mm", "mv", "addmv", "dot",
     "vdot", "addr", "scaled_grouped_mm")
)  # fmt: skip
_MEMORY: Final = frozenset(
    ("copy", "clone", "to_copy", "cat", "stack", "fill", "zero", "gather", "scatter", "scatter_add", "index", "index_select", "index_put",
     "index_put_impl", "index_add", "index_copy", "masked_select", "masked_fill", "slice_backward", "select_backward", "repeat", "roll",
     "flip", "constant_pad_nd", "pad", "contiguous", "reshape", "arange", "local_scalar_dense", "unsafe_index", "nonzero", "tril", "triu",
     "foreach_copy", "foreach_zero", "resize", "pin_memory", "split_with_sizes_copy", "chunk_cat")
)  # fmt: skip
_REDUCTIONS: Final = frozenset(
    ("sum", "mean", "max", "min", "amax", "amin", "aminmax", "argmax", "argmin", "norm", "std", "var", "var_mean", "std_mean", "prod",
     "any", "all", "logsumexp", "median", "nansum", "topk", "sort", "foreach_norm", "nll_loss_forward", "nll_loss2d_forward",
     "count_nonzero")
)  # fmt: skip
_WORDS: Final[tuple[tuple[OpType, Callable[[str], bool]], ...]] = (
    (OpType.OPTIMIZER, lambda op: op.startswith("_fused_") and any(w in op for w in ("adam", "sgd", "adagrad", "lamb", "lion"))),
    (OpType.EMBEDDING, lambda op: "embedding" in op),
    (OpType.SOFTMAX, lambda op: "softmax" in op),
    (OpType.ATTENTION, lambda op: "attention" in op and "dropout" not in op),
    (OpType.LAYERNORM, lambda op: "norm" in op and any(w in op for w in ("layer", "rms", "group", "batch", "instance"))),
    (OpType.CONV, lambda op: "convolution" in op or op.startswith(("conv1d", "conv2d", "conv3d", "_conv"))),
    (OpType.MATMUL, lambda op: op.strip("_") in _MATMULS),
    (OpType.MEMORY, lambda op: op.strip("_") in _MEMORY or op.startswith(("empty", "new_empty", "zeros", "ones", "full", "new_"))),
    (OpType.REDUCTION, lambda op: op.strip("_") in _REDUCTIONS or op.startswith(("linalg_vector_norm", "cum", "logcum"))),
)


@cache
def op_type_of(op: str, kind: str = "other") -> OpType:
    """Returns the kind of an operator by its name (`aten::mm`) and the class of work its cost model gives (`gemm`, else "other")."""
    space, _, name = op.partition("::")
    if space in COLLECTIVES:
        return OpType.COMMUNICATION
    for answer, fits in _WORDS:
        if fits(name or op):
            return answer
    if kind in _KINDS:
        return _KINDS[kind]
    return OpType.ELEMENTWISE if kind == "elementwise" else OpType.OTHER
