"""Products of quantized operands: FP8, FP4, int8, weights alone quantized, groups, 2:4 sparse.

FLOP: 2 M N K over logical sizes; a packed FP4 byte holds two numbers along K. Bytes: every operand at its stored size, scales read,
the result in its own type. Compute type: FP8 and FP4 by family, int8 for int8 operands, that of the activations where only the weight
is quantized. Source: native_functions.yaml of PyTorch 2.5 to 2.13 for the positions; counts as in `gemm.py`.
Limits: dequantizing is not counted; a result type that was not recorded is assumed to be BF16 and marked.
"""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Tensor, compute_dtype
from tb_sol_plugin.cost.model import Cost, model
from tb_sol_plugin.cost.ops.gemm import contradict, matrix, product

ASSUMED: Final = "type of the result not recorded: BF16 assumed"


def result_type(call: Inputs, at: int, given: str) -> tuple[str, str]:
    """(element type of the result, reason if assumed): the dtype argument at `at`, `given` where it was left out."""
    out = call.dtype(at)
    if out:
        return out, ""
    return (given, "") if call.has_values and call.value(at) is None else ("bf16", ASSUMED)


@model("aten::_scaled_mm", kind="gemm")
def scaled_mm(call: Inputs) -> Cost | None:
    """_scaled_mm(a[M,K] 0, b[K,N] 1, scale_a 2, scale_b 3, bias 4, scale_result 5, out_dtype 6): 2 M N K."""
    a = call.tensor(0)
    out, reason = result_type(call, 6, a.dtype if a is not None else "")
    return matrix(a, call.tensor(1), extra=tuple(call.tensor(i) for i in (2, 3, 4)), out_dtype=out, reason=reason)


@model("aten::_scaled_mm_v2", kind="gemm")
def scaled_mm_v2(call: Inputs) -> Cost | None:
    """_scaled_mm_v2(a[M,K] 0, b[K,N] 1, scales_a 2, recipe_a 3, swizzle_a 4, scales_b 5, recipe_b 6, swizzle_b 7, bias 8,
    out_dtype 9): 2 M N K. The scales are tensor lists: their types are not recorded and their bytes left out."""
    a = call.tensor(0)
    out, reason = result_type(call, 9, a.dtype if a is not None else "")
    return matrix(a, call.tensor(1), extra=(call.tensor(8),), out_dtype=out, reason=reason)


@model("aten::_int_mm", kind="gemm")
def int_mm(call: Inputs) -> Cost | None:
    """_int_mm(a int8 [M,K] 0, b int8 [K,N] 1): 2 M N K; the result is int32."""
    return matrix(call.tensor(0), call.tensor(1), out_dtype="int32")


def weight_only(x: Tensor | None, packed: Tensor | None, columns: int | None, scales: tuple[Tensor | None, ...]) -> Cost | None:
    """x[..., K] times a packed weight of `columns` columns, computed and written in the type of x; the weight as it is stored."""
    if x is None or packed is None or columns is None or not x.shape:
        return None
    rows = x.numel // x.shape[-1] if x.shape[-1] else 0
    return product(x, packed, x.numel * columns, rows * columns, extra=scales, out_dtype=x.dtype, dtype=compute_dtype(x))


@model("aten::_weight_int8pack_mm", kind="gemm")
def int8_weight(call: Inputs) -> Cost | None:
    """_weight_int8pack_mm(x[M,K] 0, weight int8 [N,K] 1, scales[N] 2): 2 M N K, computed in the type of x."""
    x, weight = call.tensor(0), call.tensor(1)
    if x is None or weight is None or len(x.shape) != 2 or len(weight.shape) != 2:
        return None
    if x.shape[1] != weight.shape[1]:
        return contradict(x.shape[1], weight.shape[1])
    return weight_only(x, weight, weight.shape[0], (call.tensor(2),))


@model("aten::_weight_int4pack_mm", "aten::_weight_int4pack_mm_for_cpu", kind="gemm")
def int4_weight(call: Inputs) -> Cost | None:
    """_weight_int4pack_mm(x[M,K] 0, packed 1, group 2, scales_and_zeros[K/group,N,2] 3): 2 M N K; packed bytes as recorded."""
    scales = call.tensor(3)
    columns = scales.shape[1] if scales is not None and len(scales.shape) == 3 else None
    return weight_only(call.tensor(0), call.tensor(1), columns, (scales,))


@model("aten::_weight_int4pack_mm_with_scales_and_zeros", kind="gemm")
def int4_weight_apart(call: Inputs) -> Cost | None:
    """_weight_int4pack_mm_with_scales_and_zeros(x[M,K] 0, packed 1, group 2, scales[K/group,N] 3, zeros 4): 2 M N K."""
    scales = call.tensor(3)
    columns = scales.shape[1] if scales is not None and len(scales.shape) == 2 else None
    return weight_only(call.tensor(0), call.tensor(1), columns, (scales, call.tensor(4)))


@model("aten::_dyn_quant_matmul_4bit", kind="gemm")
def dynamic_int4(call: Inputs) -> Cost | None:
    """_dyn_quant_matmul_4bit(x[...,K] 0, packed 1, block 2, K 3, N 4): 2 M N K; the sizes of the weight stand as values."""
    columns = call.value(4)
    return weight_only(call.tensor(0), call.tensor(1), columns if _count(columns) else None, ())  # type: ignore[arg-type]


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@model("aten::_mixed_dtypes_linear", kind="gemm")
def mixed_linear(call: Inputs) -> Cost | None:
    """_mixed_dtypes_linear(x[...,K] 0, weight[K,N] or its half 1, scales[N] 2, bias 3): 2 M N K, computed in the type of x."""
    scales = call.tensor(2)
    return weight_only(call.tensor(0), call.tensor(1), scales.numel if scales is not None else None, (scales, call.tensor(3)))


def _grouped(a: Tensor | None, b: Tensor | None, groups: Tensor | None, out_dtype: str, extra: tuple[Tensor | None, ...]) -> Cost | None:
    """Groups lie along M ([M,K] x [G,K,N]), N ([G,M,K] x [K,N]), K ([M,K] x [K,N], one result per group) or the batch."""
    if a is None or b is None or not 2 <= len(a.shape) <= 3 or not 2 <= len(b.shape) <= 3:
        return None
    if a.shape[-1] != b.shape[-2]:
        return contradict(a.shape[-1], b.shape[-2])
    both = len(a.shape) == len(b.shape)
    rows, columns = a.shape[-2], b.shape[-1]
    packed = 2 if a.dtype == b.dtype == "fp4x2" else 1
    batch = a.shape[0] if both and len(a.shape) == 3 else 1
    results = batch * rows * columns
    if both and len(a.shape) == 2:
        results *= groups.numel if groups is not None else 1
    return product(a, b, batch * rows * columns * a.shape[-1] * packed, results, extra=(*extra, groups), out_dtype=out_dtype)


@model("aten::_grouped_mm", kind="gemm")
def grouped_mm(call: Inputs) -> Cost | None:
    """_grouped_mm(a 0, b 1, offsets 2, bias 3, out_dtype 4): 2 M K N with M over all groups. Bytes: weights of every group."""
    return _grouped(call.tensor(0), call.tensor(1), call.tensor(2), call.dtype(4), (call.tensor(3),))


@model("aten::_scaled_grouped_mm", kind="gemm")
def scaled_grouped_mm(call: Inputs) -> Cost | None:
    """_scaled_grouped_mm(a 0, b 1, scale_a 2, scale_b 3, offsets 4, bias 5, scale_result 6, out_dtype 7): 2 M K N over all groups."""
    extra = (call.tensor(2), call.tensor(3), call.tensor(5))
    return _grouped(call.tensor(0), call.tensor(1), call.tensor(4), call.dtype(7) or "bf16", extra)


@model("aten::_scaled_grouped_mm_v2", kind="gemm")
def scaled_grouped_mm_v2(call: Inputs) -> Cost | None:
    """_scaled_grouped_mm_v2(a 0, b 1, scales_a 2, ..., scales_b 5, ..., offsets 8, bias 9, out_dtype 10): 2 M K N over all groups;
    the scales are lists and left out."""
    return _grouped(call.tensor(0), call.tensor(1), call.tensor(8), call.dtype(10) or "bf16", (call.tensor(9),))


@model("aten::_sparse_semi_structured_mm", kind="gemm")
def sparse_mm(call: Inputs) -> Cost | None:
    """_sparse_semi_structured_mm(a[M,K/2] 0, meta 1, b[K,N] 2): 2 x stored elements x N, the products that are computed. Half of the
    dense count, to be held against the dense peak."""
    return _sparse(call.tensor(0), call.tensor(2), (call.tensor(1),), call.dtype(3))


@model("aten::_sparse_semi_structured_addmm", kind="gemm")
def sparse_addmm(call: Inputs) -> Cost | None:
    """_sparse_semi_structured_addmm(bias 0, a[M,K/2] 1, meta 2, b[K,N] 3): as `_sparse_semi_structured_mm`, the bias read."""
    return _sparse(call.tensor(1), call.tensor(3), (call.tensor(0), call.tensor(2)), "")


@model("aten::_sparse_semi_structured_linear", kind="gemm")
def sparse_linear(call: Inputs) -> Cost | None:
    """_sparse_semi_structured_linear(x[...,K] 0, weight[N,K/2] 1, meta 2, bias 3): 2 x stored elements x rows."""
    x, weight = call.tensor(0), call.tensor(1)
    if x is None or weight is None or not x.shape or len(weight.shape) != 2:
        return None
    if x.shape[-1] != 2 * weight.shape[1]:
        return contradict(x.shape[-1], 2 * weight.shape[1])
    rows = x.numel // x.shape[-1] if x.shape[-1] else 0
    return product(x, weight, rows * weight.numel, rows * weight.shape[0], extra=(call.tensor(2), call.tensor(3)))


def _sparse(a: Tensor | None, b: Tensor | None, extra: tuple[Tensor | None, ...], out_dtype: str) -> Cost | None:
    if a is None or b is None or len(a.shape) != 2 or len(b.shape) != 2:
        return None
    if b.shape[0] != 2 * a.shape[1]:
        return contradict(2 * a.shape[1], b.shape[0])
    return product(a, b, a.numel * b.shape[1], a.shape[0] * b.shape[1], extra=extra, out_dtype=out_dtype)
