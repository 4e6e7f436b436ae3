"""Attention over a paged key cache: lengths stand in device memory, and a recording has only the cache's size.

It has a model only where the serving engine names its step by the lengths, or where one sequence leaves no choice. Work and bytes as in
`attention.py`. Multi-head latent attention: keys and values are one latent row per token, of which every head makes its own.
Source: the operator schemas the packages register (vLLM 0.4 to 0.11, sgl-kernel 0.1 to 0.3, aiter 2025); DeepSeek-V2 (2024).
Limits: a sliding window of a layer is not recorded and then shows as above the limit.
"""

from __future__ import annotations

import re
from math import prod
from typing import Final, NamedTuple

import msgspec

from tb_sol_plugin.cost.inputs import Inputs, Tensor, compute_dtype, size_of, total
from tb_sol_plugin.cost.model import Cost, model, pattern, unknown
from tb_sol_plugin.cost.ops.attention import (
    ALIGNMENT,
    EVERYWHERE,
    PAGED,
    Mask,
    Sizes,
    fused_cost,
    packed_cost,
    unknown_keys,
    window_of,
    work,
)

LENGTHS: Final = re.compile(
    r"context_\d{1,9}\(sq(\d{1,15})sk(\d{1,15})sqsq(\d{1,18})sqsk(\d{1,18})\)"
    r"_generation_\d{1,9}\(sq(\d{1,15})sk(\d{1,15})sqsq(\d{1,18})sqsk(\d{1,18})\)"
)
"""Sums over the requests of a step, as vLLM names the step: queries, keys, queries squared, queries x keys; prefill, then decode."""
FROM_STEP: Final = "key lengths from the name of the step; the whole context counted, in the type of the keys"
ONE_SEQUENCE: Final = "one sequence: as many keys as the longest has"
UNIFIED: Final = ("vllm::unified_attention", "vllm::unified_attention_with_output")
LATENT: Final = ("vllm::unified_mla_attention", "vllm::unified_mla_attention_with_output")
READS_LENGTHS: Final = (*UNIFIED, *LATENT, "aiter::mha_batch_prefill")
"""Operators that look for such a name around their call."""


class Phase(NamedTuple):
    """Prefill or decode of a step, summed over its requests. seen: (query, key) pairs that a causal mask leaves; every: all pairs."""

    queries: int
    seen: int
    every: int
    keys: int


def _phases(lengths: re.Match[str], tokens: int) -> tuple[Phase, Phase] | str:
    """Returns (prefill, decode) of a step; what is wrong with the lengths in its name for a call of so many tokens."""
    sums = [int(number) for number in lengths.groups()]
    if sums[0] + sums[4] > tokens:
        return "sizes contradict: fewer tokens than the name of the step says"
    out = []
    for sq, sk, sqsq, sqsk in (sums[:4], sums[4:]):
        if not sq <= sqsq <= sqsk:
            return "lengths in the name of the step contradict"
        whole = sqsk == sqsq and sqsq > sq
        out.append(Phase(sq, sqsk - (sqsq if whole else sqsq - sq) // 2, sqsk, sk))
    return out[0], out[1]


def _by_step(lengths: re.Match[str], q: Tensor, k: Tensor, v: Tensor, out: Tensor | None) -> Cost:
    """q[T, H, D]; k and v[..., G, D]: a row of the cache. lengths: sums over the requests of a step, out of its name."""
    found = _phases(lengths, q.shape[0])
    if isinstance(found, str):
        return unknown(found)
    seen, every, keys = (sum(part) for part in zip(*(phase[1:] for phase in found), strict=True))
    each = 2 * q.shape[1] * (q.shape[2] + v.shape[-1])
    cache = q.dtype if q.dtype.startswith("fp8") else k.dtype
    traffic = [q.bytes, size_of(q.shape[0] * q.shape[1] * v.shape[-1], q.dtype if out is None else out.dtype)]
    traffic += [size_of(keys * t.shape[-2] * t.shape[-1], cache) for t in (k, v)]
    compute = compute_dtype(q) if q.dtype.startswith("fp8") else compute_dtype(q, k, v)
    done = Cost(flop=each * seen, flop_dense=each * every, bytes=total(*traffic), dtype=compute, kind="attention")
    return msgspec.structs.replace(done, estimated=True, reason=FROM_STEP)


@model(*UNIFIED, kind="attention")
def paged_step(call: Inputs) -> Cost | None:
    """unified_attention(q[T,H,D] 0, k[T,G,D] 1, v[T,G,D] 2, out 3, ...) over a paged cache. Key lengths stand in device memory; where
    vLLM names the step by the sums of its requests' lengths, P = sum(sq sk) - sum(sq^2 - sq)/2 pairs (half of the square for a prefill
    without cached keys), and sum(sk) keys and values are read. Otherwise unknown: the least that the sizes allow, one key per query,
    would be no limit to compare with. A layer's sliding window is not recorded and then shows as above the limit. FP8 queries meet an FP8
    cache: new keys are converted as they are written to it."""
    q, k, v = (call.tensor(at) for at in range(3))
    if q is None or k is None or v is None or not len(q.shape) == len(k.shape) == len(v.shape) == 3:
        return None
    lengths = LENGTHS.search(call.around)
    if lengths is None:
        return unknown_keys(q, k, v)
    return _by_step(lengths, q, k, v, call.tensor(3))


LATENT_WEIGHTS: Final = "the weights of the latent rows in the type of the queries"


@model(*LATENT, kind="attention")
def latent_step(call: Inputs) -> Cost | None:
    """unified_mla_attention(q[T,H,Dn+Dr] 0, latent rows[T,L] 1, rotated part[T,1,Dr] 2, out[T,H Dv] 3, ...): a decode pair costs
    2 (2 L + Dr) FLOP per head, over the latent row itself; a prefill pair 2 (Dn + Dr + Dv), over keys and values made of it; either way
    2 H L (Dn + Dv) per token turn queries and results into the latent space or rows out of it. Bytes: L + Dr elements of the cache per
    key, queries and results, the weights H L (Dn + Dv) once. Lengths as for `unified_attention`; keys made of cached rows in prefill
    are left out."""
    q, latent, turned, out = (call.tensor(at) for at in range(4))
    lengths = LENGTHS.search(call.around)
    if lengths is None:
        return unknown(PAGED)
    if q is None or latent is None or turned is None or out is None or len(q.shape) != 3 or len(latent.shape) != 2 or 0 in q.shape:
        return None
    (tokens, heads, width), rank, rotated = q.shape, latent.shape[1], turned.shape[-1] if turned.shape else 0
    value, rest = divmod(out.numel, tokens * heads)
    if rest or not 0 < rotated < width or not value:
        return unknown("sizes contradict: queries, rotated part and result")
    found = _phases(lengths, tokens)
    if isinstance(found, str):
        return unknown(found)
    prefill, decode = found
    made = heads * rank * (width - rotated + value)
    turning = 2 * made * (prefill.queries + decode.queries)
    seen, every = (
        2 * heads * ((width + value) * first + (2 * rank + rotated) * then) + turning
        for first, then in ((prefill.seen, decode.seen), (prefill.every, decode.every))
    )
    cached = size_of((prefill.keys + decode.keys) * (rank + rotated), latent.dtype)
    return Cost(
        flop=seen, flop_dense=every, bytes=total(q.bytes, size_of(out.numel, out.dtype), cached, size_of(made, q.dtype)),
        dtype=compute_dtype(q, latent), kind="attention", estimated=True, reason=f"{FROM_STEP}; {LATENT_WEIGHTS}",
    )  # fmt: skip


def _linear_cache(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether rows of [key heads, width] stand last in both caches, and the heads fit."""
    fits = len(q.shape) == 3 and len(k.shape) in (3, 4) and k.shape[:-1] == v.shape[:-1] and k.shape[-1] == q.shape[-1]
    return fits and all((*k.shape, *v.shape)) and q.shape[1] % k.shape[-2] == 0


def _one_sequence(call: Inputs, q: Tensor, k: Tensor, v: Tensor, keys: int, mask: Mask) -> Cost:
    """A sequence of known keys; of a window those rows that some query sees. The log-sum-exp is the flag behind the window (and sinks)."""
    window, (queries, heads, width) = window_of(call, 13), q.shape
    touched = min(keys, queries + window[0]) if window[0] >= 0 and mask != "none" else keys
    seen_k, seen_v = (t._replace(shape=(touched, *t.shape[-2:]), strides=None) for t in (k, v))
    kept = call.flag(15 if isinstance(call.value(15), bool) else 16)
    return fused_cost(
        q, seen_k, seen_v, work(Sizes(1, heads, queries, keys, width, v.shape[-1]), mask, "fwd", window),
        out=queries * heads * v.shape[-1], logsumexp=queries * heads if kept else 0, direction="fwd", reason=ONE_SEQUENCE,
    )  # fmt: skip


@model("aiter::mha_batch_prefill", kind="attention")
def batch_prefill(call: Inputs) -> Cost | None:
    """mha_batch_prefill(q[T,H,D] 0, k 1 and v 2 of the cache [tokens,G,D] or [pages,page,G,D], offsets of queries 3, of pages 4, pages 5,
    max_q 6, max_k 7, dropout 8, scale 9, softcap 10, zero 11, causal 12, window 13 and 14, ...): causal bottom-right. Key lengths stand in
    device memory. Known are they where the engine names its step by them, as for `unified_attention`, and for a single sequence, whose
    longest keys are its keys; of several fresh sequences (as many keys as queries, no cache) the longest is: a lower bound. Else unknown.
    Bytes: the keys and values that the queries see, the page table left out."""
    q, k, v, offsets = (call.tensor(at) for at in range(4))
    if q is None or k is None or v is None or offsets is None:
        return None
    if not _linear_cache(q, k, v):
        return unknown("layout of the key cache not known")
    lengths = LENGTHS.search(call.around)
    if lengths is not None and window_of(call, 13) == EVERYWHERE:
        return _by_step(lengths, q, k, v, None)
    causal, most, keys, pages = call.flag(12), call.value(6), call.value(7), call.tensor(5)
    if causal is None or not isinstance(keys, int) or isinstance(keys, bool) or keys < 1:
        return unknown(f"{PAGED}; longest sequence and mask not recorded")
    queries, mask = q.shape[0], ALIGNMENT[2 if causal else 0]
    if offsets.numel == 2 and most == queries and keys <= prod(k.shape[:-2]):
        return _one_sequence(call, q, k, v, keys, mask)
    if k.shape[:-2] == (queries,) and pages is not None and pages.numel == queries and most == keys:
        return packed_cost(q, k, v, offsets, (most, keys), mask, window_of(call, 13), "fwd")
    return unknown_keys(q, k, v, pages)


@model(
    "sglang::unified_attention_with_output", "_C::paged_attention_v1", "_C::paged_attention_v2", "_rocm_C::paged_attention",
    "aiter::pa_fwd_asm", "aiter::pa_fwd", "aiter::paged_attention_v1", "aiter::paged_attention_rocm", "aiter::paged_attention_ragged",
    "_C::sm100_cutlass_mla_decode", "sgl_kernel::cutlass_mla_decode", "_vllm_fa2_C::fwd_kvcache", "_flashmla_C::fwd_kvcache_mla",
    "aiter::mla_decode_fwd", "aiter::mla_decode_stage1_asm_fwd", "aiter::mla_prefill_asm_fwd", "aiter::mla_prefill_ps_asm_fwd",
    "vllm::rocm_aiter_mla_decode_fwd", kind="attention",
)  # fmt: skip
@pattern(r"flashinfer::(?=\w*paged)\w*", kind="attention")
def paged(call: Inputs) -> Cost | None:
    """Attention over a paged key cache: reads no lengths. A query meets as many keys as its sequence is long, and that length is data;
    the least that the sizes allow, one key per query, would be no limit to compare with. Where queries [T, H, D], caches
    [pages, page, G, D] and a page table are recorded, the reason has the range of bytes: of that least, and of every page in the table."""
    tensors = [t for at in range(len(call.slots)) if (t := call.tensor(at)) is not None]
    caches = [t for t in tensors if len(t.shape) == 4 and not t.dtype.startswith(("int", "uint32"))]
    queries = [t for t in tensors if len(t.shape) == 3 and not t.dtype.startswith("int")]
    if not queries or len(caches) < 2 or caches[0].shape != caches[1].shape or queries[-1].shape[-1] != caches[0].shape[-1]:
        return unknown(PAGED)
    table = next((t for t in tensors if len(t.shape) == 2 and t.dtype.startswith("int")), None)
    return unknown_keys(queries[-1], caches[0], caches[1], table)
