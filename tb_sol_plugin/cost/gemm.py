"""Matrix products: 2 M N K FLOP; operands read and the result written once, each at its own element size."""

from __future__ import annotations

from math import prod

from tb_sol_plugin.cost.inputs import Inputs, Tensor, broadcast, compute_dtype, size_of, total
from tb_sol_plugin.cost.model import Cost, model


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


def _matrix(
    a: Tensor | None, b: Tensor | None, *, extra: tuple[Tensor | None, ...] = (), out_dtype: str = "", reason: str = ""
) -> Cost | None:
    """[M, K] times [K, N]. Packed FP4 holds two numbers per stored element along K."""
    if a is None or b is None or len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
        return None
    packed = 2 if a.dtype == b.dtype == "fp4x2" else 1
    macs = a.shape[0] * a.shape[1] * b.shape[1] * packed
    return product(a, b, macs, a.shape[0] * b.shape[1], extra=extra, out_dtype=out_dtype, reason=reason)


@model("aten::mm", kind="gemm")
def mm(call: Inputs) -> Cost | None:
    """mm(a[M,K], b[K,N])."""
    return _matrix(call.tensor(0), call.tensor(1))


@model("aten::addmm", "aten::addmm_", "aten::_addmm_activation", kind="gemm")
def addmm(call: Inputs) -> Cost | None:
    """addmm(bias, a[M,K], b[K,N]): the bias adds bytes, no FLOP."""
    return _matrix(call.tensor(1), call.tensor(2), extra=(call.tensor(0),))


def _batched(a: Tensor | None, b: Tensor | None, extra: tuple[Tensor | None, ...] = ()) -> Cost | None:
    if a is None or b is None or len(a.shape) != 3 or len(b.shape) != 3 or a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        return None
    out = a.shape[0] * a.shape[1] * b.shape[2]
    return product(a, b, out * a.shape[2], out, extra=extra)


@model("aten::bmm", kind="gemm")
def bmm(call: Inputs) -> Cost | None:
    """bmm(a[B,M,K], b[B,K,N])."""
    return _batched(call.tensor(0), call.tensor(1))


@model("aten::baddbmm", "aten::baddbmm_", kind="gemm")
def baddbmm(call: Inputs) -> Cost | None:
    """baddbmm(self, a[B,M,K], b[B,K,N]); self is read unless beta is recorded as 0."""
    beta = call.value(3)
    return _batched(call.tensor(1), call.tensor(2), () if beta == 0 and not isinstance(beta, bool) else (call.tensor(0),))


@model("aten::addbmm", "aten::addbmm_", kind="gemm")
def addbmm(call: Inputs) -> Cost | None:
    """addbmm(self, a[B,M,K], b[B,K,N]): the batch is summed into one [M,N]."""
    a, b, base = call.tensor(1), call.tensor(2), call.tensor(0)
    if a is None or b is None or len(a.shape) != 3 or len(b.shape) != 3 or a.shape[2] != b.shape[1]:
        return None
    return product(a, b, prod(a.shape) * b.shape[2], a.shape[1] * b.shape[2], extra=(base,))


def transposed_weight(x: Tensor | None, weight: Tensor | None, bias: Tensor | None = None, *, out_dtype: str = "") -> Cost | None:
    """x[..., K] times weight[N, K] transposed, as a linear layer stores it."""
    if x is None or weight is None or not x.shape or len(weight.shape) not in (1, 2) or x.shape[-1] != weight.shape[-1]:
        return None
    rows, columns = prod(x.shape[:-1]), prod(weight.shape[:-1])
    return product(x, weight, rows * columns * x.shape[-1], rows * columns, extra=(bias,), out_dtype=out_dtype)


@model(
    "aten::linear", "vllm::rocm_unquantized_gemm", "vllm::rocm_unquantized_gemm_impl", "vllm::unquantized_gemm", "aiter::gemm_a16w16",
    "aiter::gemm_a16w16_", "aiter::tgemm_mm", "mkl::_mkl_linear", "mkldnn::_linear_pointwise", kind="gemm", wrapper=True,
)  # fmt: skip
def linear(call: Inputs) -> Cost | None:
    """linear(x[..., K], weight[N, K], bias)."""
    return transposed_weight(call.tensor(0), call.tensor(1), call.tensor(2))


@model("_rocm_C::wvSplitK", "_rocm_C::LLMM1", kind="gemm")
def skinny(call: Inputs) -> Cost | None:
    """wvSplitK(weight[N, K], x[M, K])."""
    return transposed_weight(call.tensor(1), call.tensor(0))


@model("aten::matmul", kind="gemm", wrapper=True)
def matmul(call: Inputs) -> Cost | None:
    """matmul with broadcast batches; used only where no leaf product was recorded below it."""
    a, b = call.tensor(0), call.tensor(1)
    if a is None or b is None or not a.shape or not b.shape:
        return None
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    batch = broadcast(left[:-2], right[:-2])
    if batch is None or left[-1] != right[-2]:
        return None
    out = prod(batch) * left[-2] * right[-1]
    return product(a, b, out * left[-1], out)


@model("aten::mv", kind="gemm")
def mv(call: Inputs) -> Cost | None:
    """mv(a[M,K], x[K]): 2 M K."""
    a, x = call.tensor(0), call.tensor(1)
    return product(a, x, prod(a.shape), a.shape[0]) if a is not None and x is not None and len(a.shape) == 2 else None


@model("aten::addmv", "aten::addmv_", kind="gemm")
def addmv(call: Inputs) -> Cost | None:
    """addmv(self, a[M,K], x[K]): 2 M K."""
    a, x = call.tensor(1), call.tensor(2)
    return (
        product(a, x, prod(a.shape), a.shape[0], extra=(call.tensor(0),)) if a is not None and x is not None and len(a.shape) == 2 else None
    )


@model("aten::dot", "aten::vdot", kind="gemm")
def dot(call: Inputs) -> Cost | None:
    """dot(x[K], y[K]): 2 K."""
    x, y = call.tensor(0), call.tensor(1)
    return product(x, y, x.numel, 1) if x is not None and y is not None else None


@model("aten::_scaled_mm", kind="gemm")
def scaled_mm(call: Inputs) -> Cost | None:
    """_scaled_mm(a, b, scale_a, scale_b, bias, scale_result, out_dtype): operands at their own size, scales read."""
    a = call.tensor(0)
    out = call.dtype(6)
    reason = ""
    if not out and a is not None:
        given = call.has_values and call.value(6) is None
        out, reason = (a.dtype, "") if given else ("bf16", "type of the result not recorded: BF16 assumed")
    return _matrix(a, call.tensor(1), extra=tuple(call.tensor(i) for i in (2, 3, 4)), out_dtype=out, reason=reason)


@model("_C::cutlass_scaled_mm", kind="gemm")
def cutlass_scaled_mm(call: Inputs) -> Cost | None:
    """cutlass_scaled_mm(out, a[M,K], b[K,N], scale_a, scale_b, bias)."""
    out = call.tensor(0)
    return _matrix(call.tensor(1), call.tensor(2), extra=tuple(call.tensor(i) for i in (3, 4, 5)), out_dtype=out.dtype if out else "")


@model("aten::_int_mm", kind="gemm")
def int_mm(call: Inputs) -> Cost | None:
    """_int_mm(a int8, b int8): the result is int32."""
    return _matrix(call.tensor(0), call.tensor(1), out_dtype="int32")


@model("aten::_weight_int8pack_mm", kind="gemm")
def int8_weight(call: Inputs) -> Cost | None:
    """_weight_int8pack_mm(x[M,K], weight int8 [N,K], scales[N]): computed in the type of x."""
    x, weight = call.tensor(0), call.tensor(1)
    if x is None or weight is None or len(x.shape) != 2 or len(weight.shape) != 2:
        return None
    macs = x.shape[0] * x.shape[1] * weight.shape[0]
    return product(x, weight, macs, x.shape[0] * weight.shape[0], extra=(call.tensor(2),), out_dtype=x.dtype, dtype=compute_dtype(x))


@model("aten::_weight_int4pack_mm", kind="gemm")
def int4_weight(call: Inputs) -> Cost | None:
    """_weight_int4pack_mm(x[M,K], packed, group, scales_and_zeros[K/group, N, 2]): packed bytes as recorded."""
    x, packed, scales = call.tensor(0), call.tensor(1), call.tensor(3)
    if x is None or packed is None or scales is None or len(x.shape) != 2 or len(scales.shape) != 3:
        return None
    columns = scales.shape[1]
    macs = x.shape[0] * x.shape[1] * columns
    return product(x, packed, macs, x.shape[0] * columns, extra=(scales,), out_dtype=x.dtype, dtype=compute_dtype(x))


def _grouped(a: Tensor | None, b: Tensor | None, groups: Tensor | None, out_dtype: str, extra: tuple[Tensor | None, ...]) -> Cost | None:
    """Groups lie along M ([M,K] x [G,K,N]), N ([G,M,K] x [K,N]), K ([M,K] x [K,N], one result per group) or the batch."""
    if a is None or b is None or not 2 <= len(a.shape) <= 3 or not 2 <= len(b.shape) <= 3 or a.shape[-1] != b.shape[-2]:
        return None
    both = len(a.shape) == len(b.shape)
    rows, columns = a.shape[-2], b.shape[-1]
    batch = a.shape[0] if both and len(a.shape) == 3 else 1
    results = batch * rows * columns
    if both and len(a.shape) == 2:
        results *= groups.numel if groups is not None else 1
    return product(a, b, batch * rows * columns * a.shape[-1], results, extra=(*extra, groups), out_dtype=out_dtype)


@model("aten::_grouped_mm", kind="gemm")
def grouped_mm(call: Inputs) -> Cost | None:
    """_grouped_mm(a, b, offsets, bias, out_dtype): 2 M K N with M over all groups."""
    return _grouped(call.tensor(0), call.tensor(1), call.tensor(2), call.dtype(4), (call.tensor(3),))


@model("aten::_scaled_grouped_mm", kind="gemm")
def scaled_grouped_mm(call: Inputs) -> Cost | None:
    """_scaled_grouped_mm(a, b, scale_a, scale_b, offsets, bias, scale_result, out_dtype)."""
    return _grouped(
        call.tensor(0), call.tensor(1), call.tensor(4), call.dtype(7) or "bf16", (call.tensor(2), call.tensor(3), call.tensor(5))
    )


@model("aten::linear_backward", kind="gemm", wrapper=True)
def linear_backward(call: Inputs) -> Cost | None:
    """linear_backward(x, grad, weight, output_mask): one product per gradient that is asked for."""
    x, grad, weight, mask = call.tensor(0), call.tensor(1), call.tensor(2), call.flags(3)
    if x is None or grad is None or weight is None or len(weight.shape) != 2:
        return None
    wanted = mask if mask is not None and len(mask) == 3 else (True, True, True)
    macs = prod(x.shape) * weight.shape[0]
    parts = [t for on, pair in ((wanted[0], (grad, weight, x)), (wanted[1], (grad, x, weight))) if on for t in pair]
    return Cost(
        flop=2 * macs * (wanted[0] + wanted[1]), bytes=total(*(t.bytes for t in parts)), dtype=compute_dtype(x, weight), kind="gemm",
        direction="bwd", estimated=mask is None, reason="" if mask is not None else "gradients asked for not recorded: all assumed",
    )  # fmt: skip
