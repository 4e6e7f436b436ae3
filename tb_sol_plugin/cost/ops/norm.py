"""Normalization: vector FLOP per element, inputs and outputs once, statistics and parameters where they are there.

Forward in training 8 FLOP per element, backward twice that; with fixed statistics 2 forward (one scale, one shift) and 4 backward.
Statistics that a forward pass keeps are FP32 at least. Gradients that `output_mask` leaves out are neither computed nor written;
the FLOP of a backward pass stay 16 per element as long as the input gradient is asked for, else 8.
Source: counts per element of the definitions (mean, variance, normalize, scale and shift), Ioffe and Szegedy (2015), Ba et al. (2016).
Limits: a kernel that reads its input twice moves more than this; other tools count 5 per element.

Normalization in libraries for serving and training: one pass, residual added on the way, result quantized where the name says so.

8 FLOP per element as for the plain norms, 1 more for the residual. What is read and written follows from the places of the tensors.
Autograd nodes of Python functions record only the incoming gradient: the saved input is as large, which is marked.
Source: operator schemas of vLLM, sgl-kernel, aiter, Apex and Transformer Engine; counts as in `norm.py`.
Limits: a result whose type is not recorded is taken in the type of the input.
"""

from __future__ import annotations

from math import prod
from typing import Final

import msgspec

from tb_sol_plugin.cost.inputs import Inputs, Tensor, size_of
from tb_sol_plugin.cost.model import Cost, Direction, model, unknown
from tb_sol_plugin.cost.ops.pointwise import count, like, read, vector, wide
from tb_sol_plugin.units import human

FORWARD: Final = 8
BACKWARD: Final = 16
FIXED: Final = 2
FIXED_BACKWARD: Final = 4
SOFTMAX: Final = 5
SOFTMAX_BACKWARD: Final = 4


def normal(x: Tensor, per_element: int, traffic: list[int | None], direction: Direction = "fwd", reason: str = "") -> Cost:
    """A cost of kind norm: operations per element of x, and bytes."""
    return vector(x.dtype, per_element * x.numel, *traffic, kind="norm", direction=direction, reason=reason)


def _rows(call: Inputs, at: int, x: Tensor, *parameters: Tensor | None) -> int | None:
    """Rows that are normalized, from `normalized_shape` or else from the size of a parameter."""
    shape = call.ints(at)
    width = prod(shape) if shape is not None else next((p.numel for p in parameters if p is not None and p.numel), 0)
    return x.numel // width if width > 0 else None


def _layer(call: Inputs, x: Tensor | None, weight: Tensor | None, bias: Tensor | None, statistics: int) -> Cost | None:
    if x is None:
        return None
    rows = _rows(call, 1, x, weight, bias)
    reason = "" if rows is not None else "normalized sizes not recorded: statistics left out"
    kept = [wide(x, statistics * rows)] if rows is not None else []
    return normal(x, FORWARD, [x.bytes, like(x), *read(weight, bias), *kept], reason=reason)


@model("aten::native_layer_norm", kind="norm")
def native_layer_norm(call: Inputs) -> Cost | None:
    """native_layer_norm(x, shape, weight, bias, eps): mean and 1/std per row are written; 8 n FLOP."""
    return _layer(call, call.tensor(0), call.tensor(2), call.tensor(3), 2)


@model("aten::layer_norm", kind="norm", wrapper=True)
def layer_norm(call: Inputs) -> Cost | None:
    """layer_norm(x, shape, weight, bias, eps, cudnn), where no native one was recorded below it."""
    return native_layer_norm(call)


@model("aten::_fused_rms_norm", kind="norm")
def fused_rms_norm(call: Inputs) -> Cost | None:
    """_fused_rms_norm(x, shape, weight, eps): 1/rms per row is written; 8 n FLOP."""
    return _layer(call, call.tensor(0), call.tensor(2), None, 1)


@model("aten::rms_norm", kind="norm", wrapper=True)
def rms_norm(call: Inputs) -> Cost | None:
    """rms_norm(x, shape, weight, eps), where the parts were not recorded below it. One fused pass: statistics are kept."""
    return fused_rms_norm(call)


@model("aten::native_group_norm", kind="norm")
def native_group_norm(call: Inputs) -> Cost | None:
    """native_group_norm(x, weight, bias, N, C, HxW, groups, eps): mean and 1/std per sample and group; 8 n FLOP."""
    x, batch, groups = call.tensor(0), count(call, 3), count(call, 6)
    if x is None:
        return None
    kept = [wide(x, 2 * batch * groups)] if batch is not None and groups is not None else []
    reason = "" if kept else "groups not recorded: statistics left out"
    return normal(x, FORWARD, [x.bytes, like(x), *read(call.tensor(1), call.tensor(2)), *kept], reason=reason)


@model("aten::group_norm", kind="norm", wrapper=True)
def group_norm(call: Inputs) -> Cost | None:
    """group_norm(x, groups, weight, bias, ...), where no native one was recorded below it."""
    x, groups = call.tensor(0), count(call, 1)
    if x is None:
        return None
    kept = [wide(x, 2 * x.shape[0] * groups)] if groups is not None and x.shape else []
    reason = "" if kept else "groups not recorded: statistics left out"
    return normal(x, FORWARD, [x.bytes, like(x), *read(call.tensor(2), call.tensor(3)), *kept], reason=reason)


def _batch(call: Inputs, training: bool | None, *, channels: int | None = None) -> Cost | None:
    """(x, weight, bias, running_mean, running_var, ...): training reads and writes the running statistics and saves its own."""
    x = call.tensor(0)
    if x is None or len(x.shape) < 2:
        return None
    running = read(call.tensor(3), call.tensor(4))
    traffic = [x.bytes, like(x), *read(call.tensor(1), call.tensor(2)), *running]
    if training is False:
        return normal(x, FIXED, traffic)
    saved = wide(x, 2 * (x.shape[1] if channels is None else channels))
    return normal(
        x, FORWARD, [*traffic, *running, saved], reason="" if training else "training or not was not recorded: training assumed"
    )


@model("aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm", kind="norm")
def native_batch_norm(call: Inputs) -> Cost | None:
    """cudnn_batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps): 8 n FLOP in training, 2 n else."""
    return _batch(call, call.flag(5))


@model("aten::_native_batch_norm_legit", "aten::_native_batch_norm_legit_functional", kind="norm")
def batch_norm_legit(call: Inputs) -> Cost | None:
    """_native_batch_norm_legit(x, weight, bias, [running_mean, running_var,] training, momentum, eps)."""
    return _batch(call, call.flag(5 if len(call.slots) > 6 else 3))


@model("aten::_batch_norm_with_update", "aten::_batch_norm_with_update_functional", kind="norm")
def batch_norm_training(call: Inputs) -> Cost | None:
    """_batch_norm_with_update(x, weight, bias, running_mean, running_var, momentum, eps): always training."""
    return _batch(call, True)


@model("aten::_native_batch_norm_legit_no_training", "aten::_batch_norm_no_update", kind="norm")
def batch_norm_fixed(call: Inputs) -> Cost | None:
    """_batch_norm_no_update(x, weight, bias, running_mean, running_var, momentum, eps): fixed statistics, 2 n FLOP."""
    return _batch(call, False)


@model("aten::batch_norm", "aten::_batch_norm_impl_index", kind="norm", wrapper=True)
def batch_norm(call: Inputs) -> Cost | None:
    """batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps, cudnn), where nothing below it is known."""
    return _batch(call, call.flag(5))


@model("aten::instance_norm", kind="norm", wrapper=True)
def instance_norm(call: Inputs) -> Cost | None:
    """instance_norm(x[N, C, ...], weight, bias, running_mean, running_var, use_input_stats, ...): a batch norm of N C channels."""
    x = call.tensor(0)
    return _batch(call, call.flag(5), channels=prod(x.shape[:2])) if x is not None and len(x.shape) > 2 else None


@model("aten::batch_norm_stats", kind="norm")
def batch_norm_stats(call: Inputs) -> Cost | None:
    """batch_norm_stats(x, eps): x read, mean and 1/std per channel written; 4 n FLOP (synchronized batch norm, first half)."""
    x = call.tensor(0)
    return normal(x, 4, [x.bytes, wide(x, 2 * x.shape[1])]) if x is not None and len(x.shape) > 1 else None


@model("aten::batch_norm_elemt", kind="norm")
def batch_norm_elemt(call: Inputs) -> Cost | None:
    """batch_norm_elemt(x, weight, bias, mean, invstd, eps): 4 n FLOP (synchronized batch norm, second half)."""
    x = call.tensor(0)
    return None if x is None else normal(x, 4, [x.bytes, like(x), *read(*(call.tensor(i) for i in (1, 2, 3, 4)))])


@model("aten::batch_norm_backward_reduce", kind="norm")
def batch_norm_backward_reduce(call: Inputs) -> Cost | None:
    """batch_norm_backward_reduce(grad, x, mean, invstd, weight, ...): both read, four sums per channel written; 8 n FLOP."""
    grad, x = call.tensor(0), call.tensor(1)
    if grad is None or x is None or len(x.shape) < 2:
        return None
    return normal(x, 8, [grad.bytes, x.bytes, *read(call.tensor(2), call.tensor(3)), wide(x, 4 * x.shape[1])], "bwd")


@model("aten::batch_norm_backward_elemt", kind="norm")
def batch_norm_backward_elemt(call: Inputs) -> Cost | None:
    """batch_norm_backward_elemt(grad, x, mean, invstd, weight, sum_dy, sum_dy_xmu, count): 8 n FLOP."""
    grad, x = call.tensor(0), call.tensor(1)
    if grad is None or x is None:
        return None
    return normal(x, 8, [grad.bytes, x.bytes, like(x), *read(*(call.tensor(i) for i in (2, 3, 4, 5, 6)))], "bwd")


def backward(
    call: Inputs, x: Tensor | None, grad: Tensor | None, saved: tuple[int, ...], parameters: tuple[Tensor | None, ...], mask_at: int,
    per_element: int = BACKWARD,
) -> Cost | None:  # fmt: skip
    """Gradient, input, weight (the first parameter) and saved statistics read; input gradient and one per parameter written.

    mask_at: place of the output mask, (input, weight, bias) or (input, weight); where it is not recorded, everything is asked for.
    """
    if x is None or grad is None:
        return None
    mask = call.flags(mask_at) if mask_at >= 0 else None
    wanted = (mask or ()) + (True,) * (3 - len(mask or ()))
    written = [like(x)] if wanted[0] else []
    written += [size_of(p.numel, p.dtype) for p, on in zip(parameters, wanted[1:], strict=False) if p is not None and on]
    traffic = [grad.bytes, x.bytes, *written, *read(*(call.tensor(i) for i in saved), parameters[0])]
    return normal(x, per_element if wanted[0] else per_element // 2, traffic, "bwd")


@model("aten::native_layer_norm_backward", kind="norm")
def layer_norm_backward(call: Inputs) -> Cost | None:
    """native_layer_norm_backward(grad, x, shape, mean, rstd, weight, bias, mask): 16 n FLOP."""
    return backward(call, call.tensor(1), call.tensor(0), (3, 4), (call.tensor(5), call.tensor(6)), 7)


@model("aten::_fused_rms_norm_backward", kind="norm")
def rms_norm_backward(call: Inputs) -> Cost | None:
    """_fused_rms_norm_backward(grad, x, shape, rstd, weight, mask): 16 n FLOP."""
    return backward(call, call.tensor(1), call.tensor(0), (3,), (call.tensor(4),), 5)


@model("aten::native_group_norm_backward", kind="norm")
def group_norm_backward(call: Inputs) -> Cost | None:
    """native_group_norm_backward(grad, x, mean, rstd, weight, N, C, HxW, groups, mask): weight and bias are of one size."""
    weight = call.tensor(4)
    return backward(call, call.tensor(1), call.tensor(0), (2, 3), (weight, weight), 9)


@model("aten::native_batch_norm_backward", "aten::batch_norm_backward", kind="norm")
def batch_norm_backward(call: Inputs) -> Cost | None:
    """native_batch_norm_backward(grad, x, weight, running_mean, running_var, mean, invstd, training, eps, mask).

    16 n FLOP and the saved statistics in training; 4 n and the running ones where it was not.
    """
    fixed, weight = call.flag(7) is False, call.tensor(2)
    return backward(
        call, call.tensor(1), call.tensor(0), (3, 4) if fixed else (5, 6), (weight, weight), 9, FIXED_BACKWARD if fixed else BACKWARD
    )


@model("aten::cudnn_batch_norm_backward", "aten::miopen_batch_norm_backward", kind="norm")
def vendor_batch_norm_backward(call: Inputs) -> Cost | None:
    """cudnn_batch_norm_backward(x, grad, weight, running_mean, running_var, mean, var, eps, ...): 16 n FLOP, all gradients."""
    weight = call.tensor(2)
    return backward(call, call.tensor(0), call.tensor(1), (5, 6), (weight, weight), -1)


@model("aten::_weight_norm_interface", "aten::_weight_norm", kind="norm")
def weight_norm(call: Inputs) -> Cost | None:
    """_weight_norm_interface(v, g, dim): w = g v / |v|; v and g read, w and one norm per element of g written; 3 n FLOP."""
    v, g = call.tensor(0), call.tensor(1)
    return None if v is None or g is None else normal(v, 3, [v.bytes, g.bytes, like(v), wide(g, g.numel)])


@model("aten::_weight_norm_interface_backward", kind="norm")
def weight_norm_backward(call: Inputs) -> Cost | None:
    """_weight_norm_interface_backward(grad, v, g, norms, dim): gradients of v and g written; 6 n FLOP."""
    grad, v, g, norms = (call.tensor(i) for i in range(4))
    if grad is None or v is None or g is None:
        return None
    return normal(v, 6, [*read(grad, v, g, norms), like(v), like(g)], "bwd")


# -- Normalization in libraries for serving and training -------------------------------------------------------------


SAVED: Final = "saved input taken as large as the gradient; parameters left out"


def _norm(x: Tensor | None, out: int | None, *extra: Tensor | None) -> Cost | None:
    return None if x is None else normal(x, FORWARD, [x.bytes, out, *read(*extra)])


def _added(x: Tensor | None, residual: Tensor | None, out: int | None, *extra: Tensor | None) -> Cost | None:
    """x and residual read; the result and the sum (as large as the residual) written."""
    if x is None or residual is None or x.numel != residual.numel:
        return None
    return normal(x, FORWARD + 1, [x.bytes, residual.bytes, out, like(residual), *read(*extra)])


@model("_C::rms_norm", "_C::layer_norm", "sgl_kernel::rmsnorm", "sgl_kernel::gemma_rmsnorm", "flashinfer::rmsnorm",
       "flashinfer::gemma_rmsnorm", "aiter::rms_norm_cu", "aiter::rmsnorm2d_fwd_ck", "aiter::rmsnorm", kind="norm")  # fmt: skip
def rms_norm_out(call: Inputs) -> Cost | None:
    """_C::rms_norm(out, x, weight, eps): x and weight read, out written."""
    out, x, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    return None if out is None or weight is None else _norm(x, like(out), weight)


@model("aiter::rms_norm", "aiter::rms_norm_", "aiter::rmsnorm2d_fwd", "aiter::rmsnorm2d_fwd_", "vllm::rocm_aiter_rms_norm",
       "vllm::rocm_aiter_rms_norm_impl", "quack::_rmsnorm_fwd", kind="norm")  # fmt: skip
def rms_norm_new(call: Inputs) -> Cost | None:
    """aiter::rms_norm(x, weight, eps): the result is new."""
    x, weight = call.tensor(0), call.tensor(1)
    return None if x is None or weight is None else _norm(x, like(x), weight)


@model("LigerRMSNormFunction", "FusedRMSNormAffineFunction", "FusedRMSNormAffineMixedDtypesFunction", "FusedLayerNormAffineFunction",
       "FusedLayerNormAffineMixedDtypesFunction", "LigerLayerNormFunction", "_RMSNorm", "_LayerNorm", "FusedLayerNormFunction",
       "FusedRMSNormFunction", kind="norm")  # fmt: skip
def norm_function(call: Inputs) -> Cost | None:
    """FusedLayerNormAffineFunction(x, weight, bias, ...): the result is new; statistics are left out, small against x."""
    x = call.tensor(0)
    extra = [t for t in (call.tensor(1), call.tensor(2)) if t is not None and x is not None and t.numel <= x.numel]
    return _norm(x, like(x), *extra) if x is not None else None


@model("LigerRMSNormFunctionBackward", "FusedRMSNormAffineFunctionBackward", "FusedRMSNormAffineMixedDtypesFunctionBackward",
       "FusedLayerNormAffineFunctionBackward", "FusedLayerNormAffineMixedDtypesFunctionBackward", "LigerLayerNormFunctionBackward",
       "_RMSNormBackward", "_LayerNormBackward", "FusedLayerNormFunctionBackward", "FusedRMSNormFunctionBackward", kind="norm")  # fmt: skip
def norm_function_backward(call: Inputs) -> Cost | None:
    """LigerRMSNormFunctionBackward(grad): gradient and saved input read, input gradient written; 16 n FLOP."""
    grad = call.tensor(0)
    return None if grad is None else normal(grad, BACKWARD, [grad.bytes] * 3, "bwd", SAVED)


@model("_C::fused_add_rms_norm", "sgl_kernel::fused_add_rmsnorm", "sgl_kernel::gemma_fused_add_rmsnorm", "flashinfer::fused_add_rmsnorm",
       "flashinfer::gemma_fused_add_rmsnorm", kind="norm")  # fmt: skip
def add_rms_norm_in_place(call: Inputs) -> Cost | None:
    """_C::fused_add_rms_norm(x, residual, weight, eps): both are read and written in place."""
    x, residual, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    return None if x is None or weight is None else _added(x, residual, like(x), weight)


@model("vllm::flashinfer_trtllm_fused_allreduce_norm", "sglang::flashinfer_allreduce_residual_rmsnorm", kind="norm")
def all_reduced_norm(call: Inputs) -> Cost | None:
    """flashinfer_trtllm_fused_allreduce_norm(x, residual, weight, eps, world size, ...): the norm of x summed over ranks and the residual,
    both written. A lower bound: what the ranks exchange, 2 (n - 1) / n of x each at least, is told as a range and not counted."""
    x, residual, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    found = None if x is None or weight is None else _added(x, residual, like(x), weight)
    if found is None or x is None or x.bytes is None:
        return found
    link = f"{human(x.bytes, 'B')} (2 ranks) to {human(2 * x.bytes, 'B')} (many) cross the link per rank and are not counted: a lower bound"
    return msgspec.structs.replace(found, estimated=True, reason=link)


@model("aiter::rmsnorm2d_fwd_with_add", "aiter::rmsnorm2d_fwd_with_add_ck", "aiter::add_rmsnorm",
       "aiter::layernorm2d_fwd_with_add", kind="norm")  # fmt: skip
def add_rms_norm_out(call: Inputs) -> Cost | None:
    """aiter::rmsnorm2d_fwd_with_add(out, x, residual_in, residual_out, weight, [bias,] eps): x and residual read, two results written."""
    out, x, residual = call.tensor(0), call.tensor(1), call.tensor(2)
    return None if out is None or x is None else _added(x, residual, like(out), call.tensor(4), call.tensor(5))


@model("vllm::rocm_aiter_rmsnorm2d_fwd_with_add", "vllm::rocm_aiter_rmsnorm2d_fwd_with_add_impl", kind="norm")
def add_rms_norm_new(call: Inputs) -> Cost | None:
    """rocm_aiter_rmsnorm2d_fwd_with_add(x, residual, weight, eps): both results are new."""
    return add_rms_norm_in_place(call)


@model("_C::rms_norm_static_fp8_quant", "_C::rms_norm_dynamic_per_token_quant", "aiter::rmsnorm2d_fwd_with_dynamicquant",
       "aiter::rmsnorm2d_fwd_with_dynamicquant_ck", "aiter::rmsnorm_quant", kind="norm")  # fmt: skip
def rms_norm_quantized(call: Inputs) -> Cost | None:
    """_C::rms_norm_static_fp8_quant(out, x, weight, scale, eps): the result in one byte per element; `dynamic` writes the scales.

    rms_norm_dynamic_per_token_quant(out, x, weight, scales, eps, bound, residual): a residual is read and written.
    """
    out, x, residual = call.tensor(0), call.tensor(1), call.tensor(6)
    if out is None or x is None:
        return None
    extra = (call.tensor(2), call.tensor(3))
    return _added(x, residual, like(out), *extra) if residual is not None else _norm(x, like(out), *extra)


@model("_C::fused_add_rms_norm_static_fp8_quant", kind="norm")
def add_rms_norm_quantized(call: Inputs) -> Cost | None:
    """_C::fused_add_rms_norm_static_fp8_quant(out, x, residual, weight, scale, eps): the residual in place, a byte per result."""
    out, x, residual = call.tensor(0), call.tensor(1), call.tensor(2)
    return None if out is None or x is None else _added(x, residual, like(out), call.tensor(3), call.tensor(4))


@model("aiter::rmsnorm2d_fwd_with_add_dynamicquant", "aiter::rmsnorm2d_fwd_with_add_dynamicquant_ck", kind="norm")
def add_rms_norm_dynamic(call: Inputs) -> Cost | None:
    """rmsnorm2d_fwd_with_add_dynamicquant(out, x, residual, sum, scales, weight, eps): x and residual read; a byte per result, the sum and
    the scales written."""
    out, x, residual = call.tensor(0), call.tensor(1), call.tensor(2)
    return None if out is None or x is None else _added(x, residual, like(out), call.tensor(4), call.tensor(5))


@model("aiter::rmsnorm2d_fwd_with_smoothquant", "aiter::rmsnorm2d_fwd_with_smoothquant_ck", kind="norm")
def rms_norm_smooth(call: Inputs) -> Cost | None:
    """rmsnorm2d_fwd_with_smoothquant(out, x, scale of x, scales of the result, weight, eps): a byte per result and its scales written."""
    out, x = call.tensor(0), call.tensor(1)
    return None if out is None or x is None else _norm(x, like(out), *(call.tensor(at) for at in (2, 3, 4)))


@model("vllm::rocm_aiter_rmsnorm_fused_dynamic_quant", kind="norm")
def rms_norm_by_row(call: Inputs) -> Cost | None:
    """rocm_aiter_rmsnorm_fused_dynamic_quant(x, weight, eps, type): a byte per result and an FP32 scale per row, both new."""
    x, weight = call.tensor(0), call.tensor(1)
    return None if x is None or weight is None else _norm(x, x.numel + _group_scales(x, None), weight)


@model("vllm::rocm_aiter_rmsnorm_fused_add_dynamic_quant", kind="norm")
def add_rms_norm_by_row(call: Inputs) -> Cost | None:
    """rocm_aiter_rmsnorm_fused_add_dynamic_quant(x, residual, weight, eps, type): the sum is written too."""
    x, residual, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    return None if x is None or weight is None else _added(x, residual, x.numel + _group_scales(x, None), weight)


@model("aiter::layernorm2d_fwd", "aiter::layernorm2d_fwd_", kind="norm")
def layer_norm_new(call: Inputs) -> Cost | None:
    """aiter::layernorm2d_fwd(x, weight, bias, eps): the result is new."""
    x = call.tensor(0)
    return None if x is None else _norm(x, like(x), call.tensor(1), call.tensor(2))


@model("aiter::_groupnorm_run", "aiter::groupnorm_run", kind="norm")
def group_norm_new(call: Inputs) -> Cost | None:
    """aiter::_groupnorm_run(x[N, C, ...], groups, weight[C], bias[C], eps): the result is new. Later versions give the result and scratch
    memory first: (y, scratch, x, groups, weight, bias, eps). No statistics are kept; the scratch memory is left out, 32 KiB at most."""
    first = 2 if call.tensor(1) is not None else 0
    x, weight, bias = (call.tensor(first + at) for at in (0, 2, 3))
    if x is None or len(x.shape) < 2:
        return None
    groups, channels = count(call, first + 1), x.shape[1]
    if any(t is not None and t.numel != channels for t in (weight, bias)):
        return unknown("sizes contradict: channels, weight and bias")
    if groups is not None and (groups == 0 or channels % groups):
        return unknown(f"sizes contradict: {channels} channels in {groups} groups")
    out = call.tensor(0) if first else None
    if out is not None and out.numel != x.numel:
        return unknown("sizes contradict: input and result")
    return _norm(x, like(x) if out is None else like(out), weight, bias)


def _group_scales(x: Tensor, group: int | None) -> int:
    """Bytes of one FP32 scale per group along the rows; per row where the group is not recorded."""
    width = x.shape[-1] if x.shape else 1
    return 4 * (x.numel // max(group or width, 1))


@model("vllm::rocm_aiter_rmsnorm_fp8_group_quant", kind="norm")
def rms_norm_grouped(call: Inputs) -> Cost | None:
    """rocm_aiter_rmsnorm_fp8_group_quant(x, weight, eps, group): a byte per result and an FP32 scale per group are written."""
    x, weight = call.tensor(0), call.tensor(1)
    return None if x is None or weight is None else _norm(x, x.numel + _group_scales(x, count(call, 3)), weight)


@model("vllm::rocm_aiter_rmsnorm_with_add_fp8_group_quant", kind="norm")
def add_rms_norm_grouped(call: Inputs) -> Cost | None:
    """rocm_aiter_rmsnorm_with_add_fp8_group_quant(x, residual, weight, eps, group): the sum is written too."""
    x, residual, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    return None if x is None or weight is None else _added(x, residual, x.numel + _group_scales(x, count(call, 4)), weight)


@model("aiter::_fused_qk_rmsnorm", kind="norm")
def query_key_norm(call: Inputs) -> Cost | None:
    """_fused_qk_rmsnorm(q, weight of q, eps, k, weight of k, eps): two norms in one kernel, two new results."""
    q, k = call.tensor(0), call.tensor(3)
    if q is None or k is None:
        return None
    parts = [q.bytes, like(q), k.bytes, like(k), *read(call.tensor(1), call.tensor(4))]
    return vector(q.dtype, FORWARD * (q.numel + k.numel), *parts, kind="norm")
