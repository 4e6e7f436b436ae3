"""Operators of serving engines and of the inductor compiler, where their recorded arguments suffice.

Triton kernels of the compiler list their buffers: each is counted once. A buffer that is read and written counts once too, so
bytes are a lower bound. Their FLOP are unknown; templates (`triton_tem_*`: products, attention) have no model.
"""

from __future__ import annotations

from tb_sol_plugin.cost.inputs import Inputs, size_of, total
from tb_sol_plugin.cost.model import Cost, model, pattern


@pattern(r"triton_(poi|red|per)_.*", kind="other")
def triton(call: Inputs) -> Cost | None:
    """triton_poi_fused_...(buffers..., sizes...)."""
    buffers = call.flat
    if not buffers:
        return None
    return Cost(
        flop_vector=None, bytes=total(*(t.bytes for t in buffers)), dtype=buffers[0].dtype, kind="elementwise", estimated=True,
        reason="a compiled kernel: each buffer counted once, operations unknown",
    )  # fmt: skip


@model("_C::rms_norm", kind="norm")
def rms_norm(call: Inputs) -> Cost | None:
    """rms_norm(out, x, weight, eps)."""
    out, x, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    if out is None or x is None or weight is None:
        return None
    return Cost(flop_vector=8 * x.numel, bytes=total(out.bytes, x.bytes, weight.bytes), dtype=x.dtype, kind="norm")


@model("_C::fused_add_rms_norm", kind="norm")
def fused_add_rms_norm(call: Inputs) -> Cost | None:
    """fused_add_rms_norm(x, residual, weight, eps): both are read and written in place."""
    x, residual, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    if x is None or residual is None or weight is None:
        return None
    return Cost(
        flop_vector=9 * x.numel, bytes=total(x.bytes, x.bytes, residual.bytes, residual.bytes, weight.bytes), dtype=x.dtype, kind="norm"
    )


@model("_C::rotary_embedding", kind="elementwise")
def rotary(call: Inputs) -> Cost | None:
    """rotary_embedding(positions, query, key, head_size, cos_sin[P, R], neox): query and key in place, one table row per position."""
    positions, query, key, table = call.tensor(0), call.tensor(1), call.tensor(2), call.tensor(4)
    if positions is None or query is None or table is None:
        return None
    turned = [t for t in (query, key) if t is not None]
    row = size_of(positions.numel * table.shape[-1], table.dtype) if table.shape else 0
    return Cost(
        flop_vector=3 * sum(t.numel for t in turned), bytes=total(positions.bytes, row, *(t.bytes for t in turned * 2)),
        dtype=query.dtype, kind="elementwise",
    )  # fmt: skip


@model(
    "_C::static_scaled_fp8_quant",
    "_C::dynamic_scaled_fp8_quant",
    "_C::silu_and_mul",
    "_C::gelu_and_mul",
    "_C::gelu_tanh_and_mul",
    kind="elementwise",
)
def out_and_in(call: Inputs) -> Cost | None:
    """silu_and_mul(out, x), static_scaled_fp8_quant(out, x, scale): x read, out written."""
    out, x = call.tensor(0), call.tensor(1)
    if out is None or x is None:
        return None
    return Cost(flop_vector=x.numel, bytes=total(out.bytes, x.bytes), dtype=x.dtype, kind="elementwise")


@model("_C_cache_ops::reshape_and_cache_flash", "_C_cache_ops::reshape_and_cache", kind="other")
def cache_write(call: Inputs) -> Cost | None:
    """reshape_and_cache_flash(key, value, key_cache, value_cache, slots, ...): tokens read, the same elements written into the cache."""
    key, value, cache = call.tensor(0), call.tensor(1), call.tensor(2)
    if key is None or value is None or cache is None:
        return None
    written = size_of(key.numel + value.numel, cache.dtype)
    return Cost(bytes=total(key.bytes, value.bytes, written), dtype=key.dtype, kind="other")
