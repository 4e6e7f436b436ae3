"""Attention of PyTorch itself: `scaled_dot_product_attention`, its backends forward and backward, and flex attention.

FLOP, bytes, source and limits as in `attention.py`. Layouts differ: `_scaled_dot_product_*` is [B, H, S, D],
`_flash_attention_*` and `_efficient_attention_*` are [B, S, H, D]. A causal mask of a rectangle is aligned top-left in
`_scaled_dot_product_*`, bottom-right in `_flash_attention_*`; `_efficient_attention_*` says which.
Source: argument positions of native_functions.yaml, PyTorch 2.0 to 2.13.
Limits: the backward passes count dQ, dK and dV whether or not all are asked for, and no gradient of a bias.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tb_sol_plugin.cost.attention import EVERYWHERE, Mask, Places, fused, plain
from tb_sol_plugin.cost.inputs import Inputs
from tb_sol_plugin.cost.model import Cost, Direction, model, pattern


@model("aten::scaled_dot_product_attention", kind="attention", wrapper=True)
def sdpa(call: Inputs) -> Cost | None:
    """scaled_dot_product_attention(q 0, k 1, v 2, mask 3, dropout 4, is_causal 5): where no leaf was recorded below it."""
    return fused(call, Places(causal=5, bias=3, logsumexp=False))


@model("aten::_scaled_dot_product_attention_math", "aten::_scaled_dot_product_attention_math_for_mps", kind="attention", wrapper=True)
def math(call: Inputs) -> Cost | None:
    """_scaled_dot_product_attention_math(q 0, k 1, v 2, mask 3, ...): products and a softmax of their own, which own the work where
    they were recorded. It computes every pair, masked or not. Bytes: of a fused call, a lower bound."""
    q, k, v = (call.tensor(at) for at in range(3))
    return None if q is None or k is None or v is None else plain(q, k, v, "none", Places(logsumexp=False), bias=call.tensor(3))


@model("aten::_scaled_dot_product_flash_attention", kind="attention")
def flash(call: Inputs) -> Cost | None:
    """_scaled_dot_product_flash_attention(q 0, k 1, v 2, dropout 3, is_causal 4, ...); the quantised form has three scales at 3 to 5
    and is_causal at 7."""
    quantised = any(call.tensor(at) is not None for at in (3, 4, 5))
    return fused(call, Places(causal=7 if quantised else 4))


@model("aten::_scaled_dot_product_flash_attention_for_cpu", kind="attention")
def flash_cpu(call: Inputs) -> Cost | None:
    """_scaled_dot_product_flash_attention_for_cpu(q 0, k 1, v 2, dropout 3, is_causal 4, mask 5, ...)."""
    return fused(call, Places(causal=4, bias=5))


@model("aten::_scaled_dot_product_efficient_attention", "aten::_scaled_dot_product_cudnn_attention", kind="attention")
def efficient(call: Inputs) -> Cost | None:
    """_scaled_dot_product_efficient_attention(q 0, k 1, v 2, bias 3, compute_logsumexp 4, dropout 5, is_causal 6, ...)."""
    return fused(call, Places(causal=6, bias=3, logsumexp=call.flag(4) is not False))


@model("aten::_scaled_dot_product_fused_attention_overrideable", kind="attention")
def overrideable(call: Inputs) -> Cost | None:
    """_scaled_dot_product_fused_attention_overrideable(q 0, k 1, v 2, bias 3, dropout 4, is_causal 5, ...)."""
    return fused(call, Places(causal=5, bias=3))


@model("aten::_triton_scaled_dot_attention", kind="attention")
def triton_sdpa(call: Inputs) -> Cost | None:
    """_triton_scaled_dot_attention(q 0, k 1, v 2, dropout 3): no mask."""
    q, k, v = (call.tensor(at) for at in range(3))
    return None if q is None or k is None or v is None else plain(q, k, v, "none", Places(logsumexp=False))


@model("aten::_scaled_dot_product_flash_attention_backward", kind="attention")
def flash_backward(call: Inputs) -> Cost | None:
    """_scaled_dot_product_flash_attention_backward(dO 0, q 1, k 2, v 3, O 4, logsumexp 5, cum_q 6, cum_k 7, max_q 8, max_k 9,
    dropout 10, is_causal 11, ...)."""
    return fused(call, Places(1, causal=11, direction="bwd"))


@model("aten::_scaled_dot_product_flash_attention_for_cpu_backward", kind="attention")
def flash_cpu_backward(call: Inputs) -> Cost | None:
    """_scaled_dot_product_flash_attention_for_cpu_backward(dO 0, q 1, k 2, v 3, O 4, logsumexp 5, dropout 6, is_causal 7, mask 8)."""
    return fused(call, Places(1, causal=7, bias=8, direction="bwd"))


@model("aten::_scaled_dot_product_efficient_attention_backward", kind="attention")
def efficient_backward(call: Inputs) -> Cost | None:
    """_scaled_dot_product_efficient_attention_backward(dO 0, q 1, k 2, v 3, bias 4, O 5, logsumexp 6, seed 7, offset 8, dropout 9,
    grad_mask 10, is_causal 11, ...)."""
    return fused(call, Places(1, causal=11, bias=4, direction="bwd"))


@model("aten::_scaled_dot_product_cudnn_attention_backward", "aten::_cudnn_attention_backward", kind="attention")
def cudnn_backward(call: Inputs) -> Cost | None:
    """_scaled_dot_product_cudnn_attention_backward(dO 0, q 1, k 2, v 3, O 4, logsumexp 5, seed 6, offset 7, bias 8, cum_q 9, cum_k 10,
    max_q 11, max_k 12, dropout 13, is_causal 14, ...)."""
    packed = None if _ranks(call, 1) == 4 else 9
    return fused(call, Places(1, causal=14, bias=8, cumulative=packed, longest=11, direction="bwd"))


@model("aten::_scaled_dot_product_fused_attention_overrideable_backward", kind="attention")
def overrideable_backward(call: Inputs) -> Cost | None:
    """_scaled_dot_product_fused_attention_overrideable_backward(dO 0, q 1, k 2, v 3, bias 4, grad_mask 5, O 6, logsumexp 7, cum_q 8,
    cum_k 9, max_q 10, max_k 11, dropout 12, is_causal 13, ...)."""
    return fused(call, Places(1, causal=13, bias=4, direction="bwd"))


@model("aten::_cudnn_attention_forward", kind="attention")
def cudnn_forward(call: Inputs) -> Cost | None:
    """_cudnn_attention_forward(q 0, k 1, v 2, bias 3, cum_q 4, cum_k 5, max_q 6, max_k 7, logsumexp 8, dropout 9, is_causal 10, ...)."""
    return fused(call, Places(causal=10, bias=3, cumulative=4, longest=6, logsumexp=call.flag(8) is not False))


@model("aten::_flash_attention_forward", kind="attention")
def flash_forward(call: Inputs) -> Cost | None:
    """_flash_attention_forward(q 0, k 1, v 2, cum_q 3, cum_k 4, max_q 5, max_k 6, dropout 7, is_causal 8, debug 9, scale 10,
    window_left 11, window_right 12, used_k 13, alibi 14, block_table 15); packed sequences where cum_q is a tensor."""
    return fused(
        call, Places(causal=8, window=11, cumulative=3, longest=5, paged=(13, 15), aligned="bottom_right", sequence_first=True)
    )  # fmt: skip


@model("aten::_flash_attention_backward", kind="attention")
def flash_attention_backward(call: Inputs) -> Cost | None:
    """_flash_attention_backward(dO 0, q 1, k 2, v 3, O 4, logsumexp 5, cum_q 6, cum_k 7, max_q 8, max_k 9, dropout 10, is_causal 11,
    rng 12, unused 13, scale 14, window_left 15, window_right 16)."""
    return fused(
        call, Places(1, 11, 15, 6, 8, aligned="bottom_right", sequence_first=True, direction="bwd")
    )  # fmt: skip


_ALIGNMENT: Final[dict[int, Mask]] = {0: "none", 1: "top_left", 2: "bottom_right"}


@model("aten::_efficient_attention_forward", kind="attention")
def efficient_forward(call: Inputs) -> Cost | None:
    """_efficient_attention_forward(q 0, k 1, v 2, bias 3, cum_q 4, cum_k 5, max_q 6, max_k 7, dropout 8, mask_type 9, logsumexp 10,
    scale 11, used_k 12, window 13); mask_type 0 none, 1 causal top-left, 2 causal bottom-right."""
    return _by_mask_type(call, Places(cumulative=4, longest=6, paged=(12,), bias=3, logsumexp=call.flag(10) is not False), 9, 13)


@model("aten::_efficient_attention_backward", kind="attention")
def efficient_attention_backward(call: Inputs) -> Cost | None:
    """_efficient_attention_backward(dO 0, q 1, k 2, v 3, bias 4, O 5, cum_q 6, cum_k 7, max_q 8, max_k 9, logsumexp 10, dropout 11,
    seed 12, offset 13, mask_type 14, bias_requires_grad 15, scale 16, splits 17, window 18)."""
    return _by_mask_type(call, Places(1, cumulative=6, longest=8, bias=4, direction="bwd"), 14, 18)


def _by_mask_type(call: Inputs, at: Places, mask_type: int, window: int) -> Cost | None:
    kind = call.value(mask_type)
    mask: Mask = _ALIGNMENT.get(kind, "unknown") if isinstance(kind, int) else "unknown"
    reach = call.value(window)
    if call.tensor(at.cumulative or 0) is not None:
        return fused(call, at._replace(causal=mask_type if mask != "unknown" else None, aligned=mask, sequence_first=True))
    q, k, v = (call.tensor(at.first + i) for i in range(3))
    if q is None or k is None or v is None:
        return None
    band = (reach - 1, 0) if isinstance(reach, int) and reach > 0 else EVERYWHERE
    return plain(q, k, v, mask, at._replace(sequence_first=True), window=band, bias=None if at.bias is None else call.tensor(at.bias))


def _ranks(call: Inputs, at: int) -> int:
    q = call.tensor(at)
    return 0 if q is None else len(q.shape)


FLEX: Final = "block mask not recorded: every pair counted"


def _flex(call: Inputs, direction: Direction) -> Cost | None:
    tensors = call.flat[:3]
    if len(tensors) < 3 or any(len(t.shape) != 4 for t in tensors):
        return None
    found = plain(tensors[0], tensors[1], tensors[2], "unknown", Places(direction=direction))
    return found if found.flop is None else msgspec.structs.replace(found, reason=FLEX)


@pattern(r"(higher_order::)?flex_attention|triton_tem_\w*flex_attention(?!\w*backward)\w*", kind="attention")
def flex(call: Inputs) -> Cost | None:
    """flex_attention(q 0, k 1, v 2, ...) and the template kernel that the compiler makes of it: q, k, v [B, H, S, D] stand first.
    The block mask is data: every pair is counted, an upper bound."""
    return _flex(call, "fwd")


@pattern(r"(higher_order::)?flex_attention_backward|triton_tem_\w*flex_attention_backward\w*", kind="attention")
def flex_backward(call: Inputs) -> Cost | None:
    """flex_attention_backward(q 0, k 1, v 2, ...): as forward, five products."""
    return _flex(call, "bwd")
