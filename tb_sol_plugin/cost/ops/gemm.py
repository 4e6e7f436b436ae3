"""Matrix products of PyTorch: 2 M N K FLOP; operands read and the result written once, each at its own element size.

A bias adds bytes, no FLOP; an expanded operand counts the elements that stand in memory. The compute type is the wider one of both
operands. Source: BLAS operation counts, one multiply-add as 2 FLOP; equal to torch.utils.flop_counter where that has a formula.
Limits: no account of padding to tiles, of split-K partial sums, or of a transposing copy; complex products count as real ones.

Products of quantized operands: FP8, FP4, int8, weights alone quantized, groups, 2:4 sparse.

FLOP: 2 M N K over logical sizes; a packed FP4 byte holds two numbers along K. Bytes: every operand at its stored size, scales read,
the result in its own type. Compute type: FP8 and FP4 by family, int8 for int8 operands, that of the activations where only the weight
is quantized. Source: native_functions.yaml of PyTorch 2.5 to 2.13 for the positions; counts as above.
Limits: dequantizing is not counted; a result type that was not recorded is assumed to be BF16 and marked.
"""

from __future__ import annotations

import re
from math import prod
from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Tensor, broadcast, compute_dtype, size_of, total
from tb_sol_plugin.cost.model import Cost, model, unknown


def product(
    a: Tensor,
    b: Tensor,
    macs: int,
    out: int,
    *,
    extra: tuple[Tensor | None, ...] = (),
    out_dtype: str = "",
    dtype: str = "",
    reason: str = "",
) -> Cost:
    """The cost of a product: `macs` multiply-adds, `out` result elements, `extra` tensors that are only read (bias, scales)."""
    compute = dtype or compute_dtype(a, b)
    written = size_of(out, out_dtype or (a.dtype if a.dtype == b.dtype else ""))
    read = [a.bytes, b.bytes, *(t.bytes for t in extra if t is not None)]
    return Cost(flop=2 * macs, bytes=total(*read, written), dtype=compute, kind="gemm", estimated=bool(reason), reason=reason)


def contradict(k: int, other: int) -> Cost:
    """The answer for operands whose inner sizes differ."""
    return unknown(f"sizes contradict: K {k} and {other}")


def matrix(
    a: Tensor | None, b: Tensor | None, *, extra: tuple[Tensor | None, ...] = (), out_dtype: str = "", reason: str = "", dtype: str = ""
) -> Cost | None:
    """[M, K] times [K, N]. Packed FP4 holds two numbers per stored element along K."""
    if a is None or b is None or len(a.shape) != 2 or len(b.shape) != 2:
        return None
    if a.shape[1] != b.shape[0]:
        return contradict(a.shape[1], b.shape[0])
    packed = 2 if a.dtype == b.dtype == "fp4x2" else 1
    macs = a.shape[0] * a.shape[1] * b.shape[1] * packed
    return product(a, b, macs, a.shape[0] * b.shape[1], extra=extra, out_dtype=out_dtype, reason=reason, dtype=dtype)


def _given(call: Inputs, at: int) -> str:
    """Element type of a result: a tensor or a dtype that stands at `at`, "" if neither does."""
    out = call.tensor(at)
    return out.dtype if out is not None else call.dtype(at)


@model("aten::mm", kind="gemm")
def mm(call: Inputs) -> Cost | None:
    """mm(a[M,K] 0, b[K,N] 1, out or out_dtype 2): 2 M N K."""
    return matrix(call.tensor(0), call.tensor(1), out_dtype=_given(call, 2))


def _read_base(call: Inputs, beta: int, base: Tensor | None) -> tuple[Tensor | None, ...]:
    """The matrix that is added, unless the recorded beta is 0: then it is not read."""
    value = call.value(beta)
    return () if value == 0 and not isinstance(value, bool) else (base,)


@model("aten::addmm", "aten::addmm_", "aten::_addmm_activation", kind="gemm")
def addmm(call: Inputs) -> Cost | None:
    """addmm(bias 0, a[M,K] 1, b[K,N] 2, beta 3, alpha 4): 2 M N K; the bias is read unless beta is 0. With an out_dtype at 3 beta
    stands at 4."""
    typed = len(call.slots) > 5 and call.tensor(5) is None
    extra = _read_base(call, 4 if typed else 3, call.tensor(0))
    return matrix(call.tensor(1), call.tensor(2), extra=extra, out_dtype=call.dtype(3) if typed else "")


def batched(a: Tensor | None, b: Tensor | None, extra: tuple[Tensor | None, ...] = (), out_dtype: str = "", dtype: str = "") -> Cost | None:
    """[B, M, K] times [B, K, N]."""
    if a is None or b is None or len(a.shape) != 3 or len(b.shape) != 3:
        return None
    if a.shape[0] != b.shape[0]:
        return unknown(f"sizes contradict: batches of {a.shape[0]} and {b.shape[0]}")
    if a.shape[2] != b.shape[1]:
        return contradict(a.shape[2], b.shape[1])
    out = a.shape[0] * a.shape[1] * b.shape[2]
    return product(a, b, out * a.shape[2], out, extra=extra, out_dtype=out_dtype, dtype=dtype)


@model("aten::bmm", kind="gemm")
def bmm(call: Inputs) -> Cost | None:
    """bmm(a[B,M,K] 0, b[B,K,N] 1, out or out_dtype 2): 2 B M N K."""
    return batched(call.tensor(0), call.tensor(1), out_dtype=_given(call, 2))


@model("aten::baddbmm", "aten::baddbmm_", kind="gemm")
def baddbmm(call: Inputs) -> Cost | None:
    """baddbmm(self 0, a[B,M,K] 1, b[B,K,N] 2, beta 3, alpha 4): 2 B M N K; self is read unless beta is 0."""
    return batched(call.tensor(1), call.tensor(2), _read_base(call, 3, call.tensor(0)))


@model("aten::addbmm", "aten::addbmm_", kind="gemm")
def addbmm(call: Inputs) -> Cost | None:
    """addbmm(self 0, a[B,M,K] 1, b[B,K,N] 2, beta 3): 2 B M N K; the batch is summed into one [M,N]."""
    a, b = call.tensor(1), call.tensor(2)
    if a is None or b is None or len(a.shape) != 3 or len(b.shape) != 3:
        return None
    if a.shape[0] != b.shape[0]:
        return unknown(f"sizes contradict: batches of {a.shape[0]} and {b.shape[0]}")
    if a.shape[2] != b.shape[1]:
        return contradict(a.shape[2], b.shape[1])
    return product(a, b, a.numel * b.shape[2], a.shape[1] * b.shape[2], extra=_read_base(call, 3, call.tensor(0)))


def transposed_weight(x: Tensor | None, weight: Tensor | None, bias: Tensor | None = None, *, out_dtype: str = "") -> Cost | None:
    """x[..., K] times weight[N, K] transposed, as a linear layer stores it."""
    if x is None or weight is None or not x.shape or len(weight.shape) not in (1, 2):
        return None
    if x.shape[-1] != weight.shape[-1]:
        return contradict(x.shape[-1], weight.shape[-1])
    rows, columns = prod(x.shape[:-1]), prod(weight.shape[:-1])
    return product(x, weight, rows * columns * x.shape[-1], rows * columns, extra=(bias,), out_dtype=out_dtype)


@model("aten::linear", "aten::mkldnn_linear", "mkldnn::_linear_pointwise", kind="gemm", wrapper=True)
def linear(call: Inputs) -> Cost | None:
    """linear(x[...,K] 0, weight[N,K] 1, bias 2): 2 N K per row of x. Owns the work only where no product was recorded below it."""
    return transposed_weight(call.tensor(0), call.tensor(1), call.tensor(2))


@model("mkl::_mkl_linear", kind="gemm", wrapper=True)
def mkl_linear(call: Inputs) -> Cost | None:
    """_mkl_linear(x[...,K] 0, packed weight 1, weight[N,K] 2, bias 3, batch 4): 2 N K per row of x."""
    return transposed_weight(call.tensor(0), call.tensor(2), call.tensor(3))


@model("aten::matmul", kind="gemm", wrapper=True)
def matmul(call: Inputs) -> Cost | None:
    """matmul(a 0, b 1) with broadcast batches: 2 K per result. Owns the work only where no product was recorded below it."""
    a, b = call.tensor(0), call.tensor(1)
    if a is None or b is None or not a.shape or not b.shape:
        return None
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    if left[-1] != right[-2]:
        return contradict(left[-1], right[-2])
    batch = broadcast(left[:-2], right[:-2])
    if batch is None:
        return unknown("sizes contradict: the batches do not broadcast")
    out = prod(batch) * left[-2] * right[-1]
    return product(a, b, out * left[-1], out)


@model("aten::mv", kind="gemm")
def mv(call: Inputs) -> Cost | None:
    """mv(a[M,K] 0, x[K] 1): 2 M K."""
    return _vector(call.tensor(0), call.tensor(1))


@model("aten::addmv", "aten::addmv_", kind="gemm")
def addmv(call: Inputs) -> Cost | None:
    """addmv(self 0, a[M,K] 1, x[K] 2, beta 3): 2 M K; self is read unless beta is 0."""
    return _vector(call.tensor(1), call.tensor(2), _read_base(call, 3, call.tensor(0)))


def _vector(a: Tensor | None, x: Tensor | None, extra: tuple[Tensor | None, ...] = ()) -> Cost | None:
    if a is None or x is None or len(a.shape) != 2 or len(x.shape) != 1:
        return None
    return product(a, x, a.numel, a.shape[0], extra=extra) if a.shape[1] == x.shape[0] else contradict(a.shape[1], x.shape[0])


@model("aten::dot", "aten::vdot", kind="gemm")
def dot(call: Inputs) -> Cost | None:
    """dot(x[K] 0, y[K] 1): 2 K."""
    x, y = call.tensor(0), call.tensor(1)
    if x is None or y is None:
        return None
    return product(x, y, x.numel, 1) if x.numel == y.numel else contradict(x.numel, y.numel)


@model("aten::ger", kind="gemm")
def ger(call: Inputs) -> Cost | None:
    """ger(x[M] 0, y[N] 1): M N, one multiplication per result."""
    x, y = call.tensor(0), call.tensor(1)
    return None if x is None or y is None else _outer(x, y, 1, ())


@model("aten::addr", "aten::addr_", kind="gemm")
def addr(call: Inputs) -> Cost | None:
    """addr(self 0, x[M] 1, y[N] 2, beta 3): 2 M N; self is read unless beta is 0."""
    x, y = call.tensor(1), call.tensor(2)
    return None if x is None or y is None else _outer(x, y, 2, _read_base(call, 3, call.tensor(0)))


def _outer(x: Tensor, y: Tensor, each: int, base: tuple[Tensor | None, ...]) -> Cost:
    out = x.numel * y.numel
    read = [x.bytes, y.bytes, *(t.bytes for t in base if t is not None)]
    written = size_of(out, x.dtype if x.dtype == y.dtype else "")
    return Cost(flop=each * out, bytes=total(*read, written), dtype=compute_dtype(x, y), kind="gemm")


@model("aten::linear_backward", "aten::mkldnn_linear_backward", kind="gemm", wrapper=True)
def linear_backward(call: Inputs) -> Cost | None:
    """linear_backward(x[...,K] 0, grad[...,N] 1, weight[N,K] 2, output_mask 3): 2 N K per row for each of dx and dw that is asked for.
    The bias gradient is one vector add per element of the gradient. That is read once, however many gradients are made of it, as every
    tensor of one call is: bytes are a lower bound."""
    x, grad, weight, mask = call.tensor(0), call.tensor(1), call.tensor(2), call.flags(3)
    if x is None or grad is None or weight is None or len(weight.shape) != 2 or not x.shape or not grad.shape:
        return None
    if x.shape[-1] != weight.shape[1] or grad.shape[-1] != weight.shape[0] or x.shape[:-1] != grad.shape[:-1]:
        return unknown("sizes contradict: input, gradient and weight")
    wanted = mask if mask is not None and len(mask) == 3 else (True, True, True)
    macs = x.numel * weight.shape[0]
    traffic = [t.bytes for t in (*[grad] * any(wanted), *[weight] * (wanted[0] + wanted[1]), *[x] * (wanted[0] + wanted[1]))]
    if wanted[2]:
        traffic.append(size_of(weight.shape[0], weight.dtype))
    return Cost(
        flop=2 * macs * (wanted[0] + wanted[1]), flop_vector=grad.numel if wanted[2] else 0, bytes=total(*traffic),
        dtype=compute_dtype(x, weight), kind="gemm", direction="bwd", estimated=mask is None,
        reason="" if mask is not None else "gradients asked for not recorded: all assumed",
    )  # fmt: skip


EQUATION: Final = re.compile(r"\s*[A-Za-z.,\s]{1,400}(->[A-Za-z.\s]{0,200})?")


@model("aten::einsum", kind="gemm", wrapper=True)
def einsum(call: Inputs) -> Cost | None:
    """einsum(equation 0, operands 1): 2 x the product of all index extents, used only where no product was recorded below it.
    For more than two operands an upper bound: a good order of products needs less. PyTorch records the equation rarely."""
    equation, operands = call.value(0), call.tensors(1)
    if not operands:
        return None
    if not isinstance(equation, str) or not EQUATION.fullmatch(equation):
        return unknown("equation not recorded")
    sizes = _extents(equation, operands)
    if sizes is None:
        return unknown("sizes do not fit the equation")
    extents, result = sizes
    macs = prod(extents.values()) if len(operands) > 1 else 0
    written = size_of(prod(extents[i] for i in result), operands[0].dtype)
    notes = ["element type of the operands taken from their kernel"] if call.hint else []
    notes += ["all operands multiplied at once: an upper bound"] if len(operands) > 2 else []
    return Cost(
        flop=2 * macs, bytes=total(*(t.bytes for t in operands), written), dtype=compute_dtype(*operands), kind="gemm",
        estimated=bool(notes), reason="; ".join(notes),
    )  # fmt: skip


def _extents(equation: str, operands: tuple[Tensor, ...]) -> tuple[dict[str, int], list[str]] | None:
    """Size of every index (dimensions behind `...` are counted from the right) and the indices of the result."""
    text = "".join(equation.split())
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        return None
    extents: dict[str, int] = {}
    seen: list[str] = []
    for term, operand in zip(terms, operands, strict=True):
        names = _indices(term, len(operand.shape))
        if names is None:
            return None
        for name, size in zip(names, operand.shape, strict=True):
            if size != 1 and extents.get(name, 1) not in (1, size):
                return None
            extents[name] = size if size != 1 else extents.get(name, 1)
        seen += names
    hidden = sorted((n for n in extents if n.startswith("~")), reverse=True)
    result = _indices(right, len(right.replace("...", "")) + len(hidden)) if arrow else None
    implicit = hidden + sorted(n for n in extents if n not in hidden and seen.count(n) == 1)
    found = implicit if result is None else result
    return (extents, found) if all(n in extents for n in found) else None


def _indices(term: str, rank: int) -> list[str] | None:
    """Names of the dimensions of one operand: letters, and `~3`, `~2`, `~1` for those behind `...`, from the right."""
    before, dots, after = term.partition("...")
    free = rank - len(before) - len(after)
    if "." in before + after or free < 0 or (free and not dots):
        return None
    return [*before, *(f"~{at:02d}" for at in range(free, 0, -1)), *after]


# -- products of quantized operands ----------------------------------------------------------------------------------


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
