"""Operators of serving engines that move or convert: quantisation, writes into the key/value cache.

A quantisation reads its input once and writes result and scales; 2 FLOP per element (find the largest, scale), 1 where the scale is
given. A cache write touches the slots of its tokens only, never the cache.
Source: operator schemas of vLLM, sgl-kernel and aiter.
Limits: a cache in another layout than its tokens moves whole sectors.
"""

from __future__ import annotations

from tb_sol_plugin.cost.inputs import Inputs, Tensor, size_of
from tb_sol_plugin.cost.model import Cost, model
from tb_sol_plugin.cost.parts import like, moved, read, vector


def _quantised(out: Tensor | None, x: Tensor | None, *scales: Tensor | None, per_element: int) -> Cost | None:
    if out is None or x is None or not 1 <= x.numel // max(out.numel, 1) <= 2:
        return None
    return vector(x.dtype, per_element * x.numel, *read(out, x, *scales))


@model("_C::static_scaled_fp8_quant", "_C::static_scaled_int8_quant", "aiter::static_per_tensor_quant", kind="elementwise")
def static_quantisation(call: Inputs) -> Cost | None:
    """static_scaled_fp8_quant(out, x, scale): n FLOP."""
    return _quantised(call.tensor(0), call.tensor(1), call.tensor(2), per_element=1)


@model("_C::dynamic_scaled_fp8_quant", "_C::dynamic_per_token_scaled_fp8_quant", "_C::dynamic_scaled_int8_quant",
       "aiter::dynamic_per_token_scaled_quant", "aiter::dynamic_per_tensor_quant", kind="elementwise")  # fmt: skip
def dynamic_quantisation(call: Inputs) -> Cost | None:
    """dynamic_per_token_scaled_fp8_quant(out, x, scales, ...): 2 n FLOP."""
    return _quantised(call.tensor(0), call.tensor(1), call.tensor(2), per_element=2)


@model("_C::scaled_fp4_quant", "sgl_kernel::scaled_fp4_quant", kind="elementwise")
def fp4_quantisation(call: Inputs) -> Cost | None:
    """scaled_fp4_quant(out, x, block scales, scale): two numbers per byte written; 2 n FLOP."""
    return _quantised(call.tensor(0), call.tensor(1), call.tensor(2), per_element=2)


@model("sgl_kernel::sgl_per_token_group_quant_8bit", "sgl_kernel::sgl_per_token_group_quant_fp8", "sgl_kernel::sgl_per_token_quant_fp8",
       "sgl_kernel::sgl_per_tensor_quant_fp8", "_C::per_token_group_fp8_quant", "_C::per_token_group_quant_int8",
       kind="elementwise")  # fmt: skip
def group_quantisation(call: Inputs) -> Cost | None:
    """sgl_per_token_group_quant_8bit(x, out, scales, ...): the input comes first; 2 n FLOP."""
    return _quantised(call.tensor(1), call.tensor(0), call.tensor(2), per_element=2)


@model("primus_turbo::quantize_fp8_tensorwise", "primus_turbo_cpp_extension::quantize_fp8_tensorwise", kind="elementwise")
def new_quantisation(call: Inputs) -> Cost | None:
    """quantize_fp8_tensorwise(x, ...): a new result of one byte per element; 2 n FLOP. The pass that finds the scale is not counted."""
    x = call.tensor(0)
    return None if x is None else vector(x.dtype, 2 * x.numel, x.bytes, x.numel)


@model("primus_turbo::quantize_mxfp4_dual", "primus_turbo_cpp_extension::quantize_mxfp4_dual", "primus::quantize_mxfp4_dual",
       kind="elementwise")  # fmt: skip
def dual_quantisation(call: Inputs) -> Cost | None:
    """quantize_mxfp4_dual(x, ...): two new results, by rows and by columns, half a byte per element and a byte per 32; 4 n FLOP."""
    x = call.tensor(0)
    return None if x is None else vector(x.dtype, 4 * x.numel, x.bytes, 2 * (-(-x.numel // 2) + -(-x.numel // 32)))


@model("aten::fake_quantize_per_tensor_affine", "aten::fake_quantize_per_channel_affine", kind="elementwise", wrapper=True)
def fake_quantisation(call: Inputs) -> Cost | None:
    """fake_quantize_per_tensor_affine(x, scale, zero, low, high), where nothing below it was recorded: 4 n FLOP."""
    x = call.tensor(0)
    return None if x is None else vector(x.dtype, 4 * x.numel, x.bytes, like(x))


@model("aten::fake_quantize_per_tensor_affine_cachemask", "aten::fake_quantize_per_channel_affine_cachemask",
       "aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", kind="elementwise")  # fmt: skip
def fake_quantisation_with_mask(call: Inputs) -> Cost | None:
    """fake_quantize_per_tensor_affine_cachemask(x, ...): a mask of one byte per element as well; 4 n FLOP."""
    x = call.tensor(0)
    return None if x is None else vector(x.dtype, 4 * x.numel, x.bytes, like(x), x.numel)


@model("_C_cache_ops::reshape_and_cache_flash", "_C_cache_ops::reshape_and_cache", "aiter::reshape_and_cache",
       "aiter::reshape_and_cache_flash", kind="other")  # fmt: skip
def cache_write(call: Inputs) -> Cost | None:
    """reshape_and_cache_flash(key, value, key_cache, value_cache, slots, ...): tokens read, the same elements written into the cache."""
    key, value, cache = call.tensor(0), call.tensor(1), call.tensor(2)
    if key is None or value is None or cache is None:
        return None
    return moved(key.dtype, key.bytes, value.bytes, size_of(key.numel + value.numel, cache.dtype), *read(call.tensor(4)))


@model("_C_cache_ops::concat_and_cache_mla", kind="other")
def latent_cache_write(call: Inputs) -> Cost | None:
    """concat_and_cache_mla(latent, rope part, cache, slots, ...): both read and written side by side."""
    latent, turned, cache = call.tensor(0), call.tensor(1), call.tensor(2)
    if latent is None or turned is None or cache is None:
        return None
    return moved(latent.dtype, latent.bytes, turned.bytes, size_of(latent.numel + turned.numel, cache.dtype), *read(call.tensor(3)))
