"""Attention of other packages: flash-attn 2 and 3, serving engines' builds of them, AMD's aiter, and paged attention.

FLOP, bytes and limits as in `attention.py`; causal masks are aligned bottom-right, layouts are [B, S, H, D] or packed [T, H, D].
Source: the operator schemas the packages register (flash-attn 2.7 and 3, vLLM 0.4 to 0.11, sgl-kernel 0.1 to 0.3, aiter 2025).
Limits: attention over a paged cache has key lengths in device memory, a recording has only the cache's size. It has a model only where
the serving engine names its step by them.
"""

from __future__ import annotations

import re
from typing import Final

from tb_sol_plugin.cost.attention import PAGED, Places, fused
from tb_sol_plugin.cost.inputs import Inputs, compute_dtype, size_of, total
from tb_sol_plugin.cost.model import Cost, Direction, model, pattern, unknown

BSHD = Places(aligned="bottom_right", sequence_first=True)


@model("flash_attn::_flash_attn_forward", kind="attention")
def flash_attn_forward(call: Inputs) -> Cost | None:
    """_flash_attn_forward(q 0, k 1, v 2, dropout 3, scale 4, causal 5, window_left 6, window_right 7, ...)."""
    return fused(call, BSHD._replace(causal=5, window=6))


@model("flash_attn::_flash_attn_backward", kind="attention")
def flash_attn_backward(call: Inputs) -> Cost | None:
    """_flash_attn_backward(dO 0, q 1, k 2, v 3, O 4, logsumexp 5, dq 6, dk 7, dv 8, dropout 9, scale 10, causal 11, window 12 and 13)."""
    return fused(call, BSHD._replace(first=1, causal=11, window=12, direction="bwd"))


@model("flash_attn::_flash_attn_varlen_forward", kind="attention")
def flash_attn_varlen(call: Inputs) -> Cost | None:
    """_flash_attn_varlen_forward(q 0, k 1, v 2, cum_q 3, cum_k 4, max_q 5, max_k 6, dropout 7, scale 8, causal 9, window 10 and 11,
    softcap 12, alibi 13, return_softmax 14, block_table 15, leftpad 16, used_k 17)."""
    return fused(call, BSHD._replace(causal=9, window=10, cumulative=3, longest=5, paged=(15, 17)))


@model("flash_attn::_flash_attn_varlen_backward", kind="attention")
def flash_attn_varlen_backward(call: Inputs) -> Cost | None:
    """_flash_attn_varlen_backward(dO 0, q 1, k 2, v 3, O 4, logsumexp 5, dq 6, dk 7, dv 8, cum_q 9, cum_k 10, max_q 11, max_k 12,
    dropout 13, scale 14, causal 15, window 16 and 17)."""
    return fused(call, BSHD._replace(first=1, causal=15, window=16, cumulative=9, longest=11, direction="bwd"))


@model("flash_attn_3::fwd", "flash_attn_3::_flash_attn_forward", "sgl_kernel::fwd", "_vllm_fa3_C::fwd", kind="attention")
def flash3_forward(call: Inputs) -> Cost | None:
    """fwd(q 0, k 1, v 2, new k 3, new v 4, q_v 5, out 6, cum_q 7, cum_k 8, cum_k_new 9, used_q 10, used_k 11, max_q 12, max_k 13,
    page_table 14, ..., scale 23, causal 24, window 25 and 26). FP8 operands run against the FP8 peak."""
    return fused(call, BSHD._replace(causal=24, window=25, cumulative=7, longest=12, paged=(11, 14)))


@model("flash_attn_3::_flash_attn_backward", kind="attention")
def flash3_backward(call: Inputs) -> Cost | None:
    """_flash_attn_backward(dO 0, q 1, k 2, v 3, O 4, logsumexp 5, cum_q 6, cum_k 7, used_q 8, used_k 9, max_q 10, max_k 11, dq 12,
    dk 13, dv 14, scale 15, causal 16, window 17 and 18)."""
    return fused(call, BSHD._replace(first=1, causal=16, window=17, cumulative=6, longest=10, paged=(8, 9), direction="bwd"))


@model("flash_attn_3::bwd", kind="attention")
def flash3_plain_backward(call: Inputs) -> Cost | None:
    """bwd(dO 0, q 1, k 2, v 3, O 4, logsumexp 5, dq 6, dk 7, dv 8, cum_q 9, cum_k 10, used_q 11, used_k 12, max_q 13, max_k 14,
    scale 15, causal 16, window 17 and 18)."""
    return fused(call, BSHD._replace(first=1, causal=16, window=17, cumulative=9, longest=13, paged=(11, 12), direction="bwd"))


@model("_vllm_fa2_C::varlen_fwd", kind="attention")
def vllm_varlen(call: Inputs) -> Cost | None:
    """varlen_fwd(q 0, k 1, v 2, out 3, cum_q 4, cum_k 5, used_k 6, leftpad 7, block_table 8, alibi 9, max_q 10, max_k 11, dropout 12,
    scale 13, zero 14, causal 15, window 16 and 17)."""
    return fused(call, BSHD._replace(causal=15, window=16, cumulative=4, longest=10, paged=(6, 8)))


def _by_flags(call: Inputs, nth: int, direction: Direction, first: int, cumulative: int | None) -> Cost | None:
    """Versions differ in where the causal flag stands: it is the n-th boolean, and the window follows it."""
    flags = [at for at, value in enumerate(call.values) if isinstance(value, bool)]
    causal = flags[nth] if len(flags) > nth else None
    at = BSHD._replace(first=first, causal=causal, window=None if causal is None else causal + 1, direction=direction)
    if cumulative is not None:
        tables = tuple(i for i, slot in enumerate(call.shapes) if i > cumulative + 3 and call.types[i : i + 1] == ["int"] and slot)
        at = at._replace(cumulative=cumulative, longest=cumulative + 2, paged=tables)
    return fused(call, at)


@model("aiter::mha_fwd", "aiter::fmha_v3_fwd", kind="attention")
def aiter_forward(call: Inputs) -> Cost | None:
    """mha_fwd(q 0, k 1, v 2, dropout 3, scale 4, causal, window left and right, ...); causal is the first flag."""
    return _by_flags(call, 0, "fwd", 0, None)


@model("aiter::mha_bwd", "aiter::fmha_v3_bwd", kind="attention")
def aiter_backward(call: Inputs) -> Cost | None:
    """mha_bwd(dO 0, q 1, k 2, v 3, O 4, logsumexp 5, dropout 6, scale 7, causal, window left and right, ...); the first flag."""
    return _by_flags(call, 0, "bwd", 1, None)


@model("aiter::mha_varlen_fwd", "aiter::fmha_v3_varlen_fwd", kind="attention")
def aiter_varlen(call: Inputs) -> Cost | None:
    """mha_varlen_fwd(q 0, k 1, v 2, cum_q 3, cum_k 4, max_q 5, max_k 6, ..., zero, causal, window, ..., block_table); causal is the
    second flag. An integer tensor behind the offsets is a page table."""
    return _by_flags(call, 1, "fwd", 0, 3)


@model("aiter::mha_varlen_bwd", "aiter::fmha_v3_varlen_bwd", kind="attention")
def aiter_varlen_backward(call: Inputs) -> Cost | None:
    """mha_varlen_bwd(dO 0, q 1, k 2, v 3, O 4, logsumexp 5, cum_q 6, cum_k 7, max_q 8, max_k 9, ..., zero, causal, window, ...)."""
    return _by_flags(call, 1, "bwd", 1, 6)


LENGTHS: Final = re.compile(
    r"context_\d{1,9}\(sq(\d{1,15})sk(\d{1,15})sqsq(\d{1,18})sqsk(\d{1,18})\)"
    r"_generation_\d{1,9}\(sq(\d{1,15})sk(\d{1,15})sqsq(\d{1,18})sqsk(\d{1,18})\)"
)
"""Sums over the requests of a step, as vLLM names the step: queries, keys, queries squared, queries x keys; prefill, then decode."""
FROM_STEP: Final = "key lengths from the name of the step; the whole context counted, in the type of the keys"
READS_LENGTHS: Final = ("vllm::unified_attention", "vllm::unified_attention_with_output")
"""Operators that look for such a name around their call."""


@model(*READS_LENGTHS, kind="attention")
def paged_step(call: Inputs) -> Cost | None:
    """unified_attention(q[T,H,D] 0, k[T,G,D] 1, v[T,G,D] 2, out 3, ...) over a paged cache. Key lengths stand in device memory; where
    vLLM names the step by the sums of its requests' lengths, P = sum(sq sk) - sum(sq^2 - sq)/2 pairs (half of the square for a prefill
    without cached keys), and sum(sk) keys and values are read. Otherwise unknown: the least that the sizes allow, one key per query,
    would be no limit to compare with. A layer's sliding window is not recorded and then shows as above the limit. FP8 queries meet an FP8
    cache: new keys are converted as they are written to it."""
    q, k, v = (call.tensor(at) for at in range(3))
    told = LENGTHS.search(call.around)
    if told is None:
        return unknown(PAGED)
    if q is None or k is None or v is None or not len(q.shape) == len(k.shape) == len(v.shape) == 3:
        return None
    sums = [int(number) for number in told.groups()]
    if sums[0] + sums[4] > q.shape[0]:
        return unknown("sizes contradict: fewer tokens than the name of the step says")
    seen = every = keys = 0
    for sq, sk, sqsq, sqsk in (sums[:4], sums[4:]):
        if not sq <= sqsq <= sqsk:
            if sq or sk or sqsk:
                return unknown("lengths in the name of the step contradict")
            continue
        whole = sqsk == sqsq and sqsq > sq
        seen += sqsk - (sqsq if whole else sqsq - sq) // 2
        every += sqsk
        keys += sk
    each = 2 * q.shape[1] * (q.shape[2] + v.shape[2])
    out = call.tensor(3)
    cache = q.dtype if q.dtype.startswith("fp8") else k.dtype
    traffic = [q.bytes, size_of(q.shape[0] * q.shape[1] * v.shape[2], q.dtype if out is None else out.dtype)]
    traffic += [size_of(keys * t.shape[1] * t.shape[2], cache) for t in (k, v)]
    compute = compute_dtype(q) if q.dtype.startswith("fp8") else compute_dtype(q, k, v)
    return Cost(
        flop=each * seen, flop_dense=each * every, bytes=total(*traffic), dtype=compute, kind="attention", estimated=True, reason=FROM_STEP
    )


@model(
    "vllm::unified_mla_attention",
    "vllm::unified_mla_attention_with_output", "_C::paged_attention_v1", "_C::paged_attention_v2", "_rocm_C::paged_attention",
    "aiter::pa_fwd_asm", "aiter::paged_attention_v1", "aiter::paged_attention_rocm", "_C::sm100_cutlass_mla_decode",
    "sgl_kernel::cutlass_mla_decode", "_vllm_fa2_C::fwd_kvcache", kind="attention",
)  # fmt: skip
@pattern(r"flashinfer::\w*paged\w*", kind="attention")
def paged(call: Inputs) -> Cost | None:
    """Attention over a paged key cache: reads nothing. A query meets as many keys as its sequence is long, and that length is data;
    the least that the sizes allow, one key per query, would be no limit to compare with."""
    return unknown(PAGED)
