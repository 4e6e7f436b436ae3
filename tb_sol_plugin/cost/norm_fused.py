"""Normalisation in libraries for serving and training: one pass, residual added on the way, result quantised where the name says so.

8 FLOP per element as for the plain norms, 1 more for the residual. What is read and written follows from the places of the tensors.
Autograd nodes of Python functions record only the incoming gradient: the saved input is as large, which is marked.
Source: operator schemas of vLLM, sgl-kernel, aiter, Apex and Transformer Engine; counts as in `norm.py`.
Limits: a result whose type is not recorded is taken in the type of the input.
"""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Tensor
from tb_sol_plugin.cost.model import Cost, model
from tb_sol_plugin.cost.norm import BACKWARD, FORWARD, normal
from tb_sol_plugin.cost.parts import count, like, read, vector

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
def rms_norm_quantised(call: Inputs) -> Cost | None:
    """_C::rms_norm_static_fp8_quant(out, x, weight, scale, eps): the result in one byte per element; `dynamic` writes the scales.

    rms_norm_dynamic_per_token_quant(out, x, weight, scales, eps, bound, residual): a residual is read and written.
    """
    out, x, residual = call.tensor(0), call.tensor(1), call.tensor(6)
    if out is None or x is None:
        return None
    extra = (call.tensor(2), call.tensor(3))
    return _added(x, residual, like(out), *extra) if residual is not None else _norm(x, like(out), *extra)


@model("_C::fused_add_rms_norm_static_fp8_quant", kind="norm")
def add_rms_norm_quantised(call: Inputs) -> Cost | None:
    """_C::fused_add_rms_norm_static_fp8_quant(out, x, residual, weight, scale, eps): the residual in place, a byte per result."""
    out, x, residual = call.tensor(0), call.tensor(1), call.tensor(2)
    return None if out is None or x is None else _added(x, residual, like(out), call.tensor(3), call.tensor(4))


@model("aiter::layernorm2d_fwd", "aiter::layernorm2d_fwd_", kind="norm")
def layer_norm_new(call: Inputs) -> Cost | None:
    """aiter::layernorm2d_fwd(x, weight, bias, eps): the result is new."""
    x = call.tensor(0)
    return None if x is None else _norm(x, like(x), call.tensor(1), call.tensor(2))


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
