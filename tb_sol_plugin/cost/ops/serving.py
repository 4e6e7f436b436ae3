"""Operators of serving engines and kernel libraries (vLLM, SGLang, aiter, Transformer Engine): products, rotary embedding, sampling.

Products: 2 M N K FLOP over logical sizes. Bytes: every tensor of the call read once at its stored size, the result written in its own
type. Weights stand as [N, K] or [K, N]; which one follows from the inner size of the activations.
Source: the operator schemas the packages register (vLLM 0.4 to 0.11, sgl-kernel 0.1 to 0.3, aiter 2025, FBGEMM 1, Transformer Engine 2);
counts as in `gemm.py`. Limits: a result type that is not recorded is assumed to be BF16 where the operands are 8 bit or less, and
marked; packed weights count logical sizes only where scales or values tell them.

Rotary position embedding: 3 FLOP per turned element; queries and keys read and written, one row of the table per position.

Source: Su et al., RoFormer (2021): two multiplications and one addition per element.
Limits: the sine and cosine tables are taken as computed before.
"""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Tensor, compute_dtype, size_of, total
from tb_sol_plugin.cost.model import Cost, Direction, model, pattern, unknown
from tb_sol_plugin.cost.ops.gemm import ASSUMED, batched, contradict, matrix, product, transposed_weight, weight_only
from tb_sol_plugin.cost.ops.pointwise import count, like, read, vector

SMALL = frozenset(("fp8", "fp8_e4m3", "fp8_e5m2", "fp4x2", "int8", "uint8"))


@model(
    "vllm::rocm_unquantized_gemm", "vllm::rocm_unquantized_gemm_impl", "vllm::unquantized_gemm", "vllm::cpu_unquantized_gemm",
    "aiter::gemm_a16w16", "aiter::gemm_a16w16_", "aiter::tgemm_mm", "vllm::rocm_aiter_tuned_gemm", kind="gemm", wrapper=True,
)  # fmt: skip
def linear(call: Inputs) -> Cost | None:
    """gemm(x[...,K] 0, weight[N,K] 1, bias 2): 2 N K per row of x. Owns the work only where no product was recorded below it."""
    return transposed_weight(call.tensor(0), call.tensor(1), call.tensor(2))


@model(
    "_rocm_C::wvSplitK", "_rocm_C::LLMM1", "aiter::wvSpltK", "aiter::wv_splitk_small_fp16_bf16", "aiter::LLMM1",
    kind="gemm",
)  # fmt: skip
def skinny(call: Inputs) -> Cost | None:
    """wvSplitK(weight[N,K] 0, x[M,K] 1): 2 M N K."""
    return transposed_weight(call.tensor(1), call.tensor(0))


@model("_rocm_C::wvSplitKQ", kind="gemm")
def skinny_scaled(call: Inputs) -> Cost | None:
    """wvSplitKQ(weight[N,K] 0, x[M,K] 1, out 2, scale_a 3, scale_b 4): 2 M N K."""
    out = call.tensor(2)
    return _either(call.tensor(1), call.tensor(0), (call.tensor(3), call.tensor(4)), "" if out is None else out.dtype)


def _either(
    x: Tensor | None, weight: Tensor | None, extra: tuple[Tensor | None, ...], out_dtype: str, *, packed: int = 1, dtype: str = ""
) -> Cost | None:
    """x[..., K] times [N, K] or [K, N]. packed: numbers per stored element of both along K."""
    if x is None or weight is None or not x.shape or len(weight.shape) != 2:
        return None
    inner = x.shape[-1]
    if inner not in weight.shape:
        return contradict(inner, weight.shape[1])
    columns = weight.shape[0] if weight.shape[1] == inner else weight.shape[1]
    rows = x.numel // inner if inner else 0
    assumed = not out_dtype and (x.dtype in SMALL)
    written = out_dtype or ("bf16" if assumed else x.dtype)
    return product(
        x, weight, rows * inner * packed * columns, rows * columns, extra=extra, out_dtype=written, dtype=dtype,
        reason=ASSUMED if assumed else "",
    )  # fmt: skip


@model("_C::cutlass_scaled_mm", "_C::cutlass_scaled_mm_azp", kind="gemm")
def cutlass_scaled_mm(call: Inputs) -> Cost | None:
    """cutlass_scaled_mm(out 0, a[M,K] 1, b[K,N] 2, scale_a 3, scale_b 4, bias 5): 2 M N K."""
    out = call.tensor(0)
    return matrix(call.tensor(1), call.tensor(2), extra=tuple(call.tensor(i) for i in (3, 4, 5)), out_dtype=out.dtype if out else "")


@model("_C::cutlass_scaled_fp4_mm", "sgl_kernel::cutlass_scaled_fp4_mm", kind="gemm")
def cutlass_fp4(call: Inputs) -> Cost | None:
    """cutlass_scaled_fp4_mm(out 0, a[M,K/2] 1, b[N,K/2] 2, scales_a 3, scales_b 4, alpha 5): 2 M N K; a stored byte is two numbers."""
    out = call.tensor(0)
    extra = tuple(call.tensor(i) for i in (3, 4, 5))
    return _either(call.tensor(1), call.tensor(2), extra, out.dtype if out else "", packed=2, dtype="fp4")


@model("vllm::flashinfer_mm_fp4", "aiter::gemm_a4w4", "aiter::gemm_a4w4_asm", "aiter::gemm_a4w4_blockscale", kind="gemm")
def fp4(call: Inputs) -> Cost | None:
    """mm_fp4(a[M,K/2] 0, b[N,K/2] 1, scales_a 2, scales_b 3, ...): 2 M N K; a stored byte is two numbers."""
    return _either(call.tensor(0), call.tensor(1), (call.tensor(2), call.tensor(3)), "", packed=2, dtype="fp4")


@model(
    "sgl_kernel::int8_scaled_mm", "sgl_kernel::fp8_scaled_mm", "sgl_kernel::fp8_blockwise_scaled_mm", "aiter::gemm_a8w8",
    "aiter::gemm_a8w8_CK", "aiter::gemm_a8w8_asm", "aiter::gemm_a8w8_bpreshuffle", "aiter::gemm_a8w8_blockscale",
    "aiter::gemm_a8w8_blockscale_bpreshuffle", "vllm::rocm_aiter_gemm_a8w8", "vllm::rocm_aiter_gemm_w8a8",
    "vllm::rocm_aiter_gemm_a8w8_blockscale", "vllm::rocm_aiter_gemm_w8a8_blockscale", "vllm::rocm_aiter_triton_gemm_a8w8_blockscale",
    "aiter::gemm_a8w8_ck", "aiter::gemm_a8w8_blockscale_ck", "aiter::gemm_a8w8_blockscale_cktile", "aiter::gemm_a8w8_bpreshuffle_ck",
    "aiter::gemm_a8w8_bpreshuffle_cktile", "aiter::flatmm_a8w8_blockscale_asm", "sglang::w8a8_block_fp8_matmul_deepgemm",
    "vllm::w8a8_block_fp8_matmul", "vllm::w8a8_triton_block_scaled_mm_func", "vllm::padded_cutlass", kind="gemm",
)  # fmt: skip
def scaled(call: Inputs) -> Cost | None:
    """scaled_mm(a[M,K] 0, b[N,K] or [K,N] 1, scale_a 2, scale_b 3, out_dtype 4 or out 4, bias 5): 2 M N K."""
    out = call.tensor(4)
    written = out.dtype if out is not None and len(out.shape) == 2 else call.dtype(4)
    return _either(call.tensor(0), call.tensor(1), (call.tensor(2), call.tensor(3), call.tensor(5)), written)


@model("vllm::rocm_per_tensor_float_w8a8_scaled_mm_impl", kind="gemm")
def scaled_by_tensor(call: Inputs) -> Cost | None:
    """rocm_per_tensor_float_w8a8_scaled_mm_impl(a[M,K] 0, b[K,N] 1, out_dtype 2, scale_a 3, scale_b 4, bias 5): 2 M N K."""
    return _either(call.tensor(0), call.tensor(1), (call.tensor(3), call.tensor(4), call.tensor(5)), call.dtype(2))


@model("aiter::gemm_a16w16_asm", kind="gemm")
def assembled(call: Inputs) -> Cost | None:
    """gemm_a16w16_asm(a[M,K] 0, b[N,K] 1, out[M,N] 2, ...): 2 M N K."""
    out = call.tensor(2)
    return _either(call.tensor(0), call.tensor(1), (), out.dtype if out is not None else "")


@model("vllm::fp8_gemm_nt_op", "deep_gemm::fp8_gemm_nt", "sglang::deep_gemm_fp8_fp8_bf16_nt", kind="gemm")
def deep_gemm(call: Inputs) -> Cost | None:
    """fp8_gemm_nt(a[M,K] 0, scale_a 1, b[N,K] 2, scale_b 3, out 4): 2 M N K."""
    out = call.tensor(4)
    return _either(call.tensor(0), call.tensor(2), (call.tensor(1), call.tensor(3)), out.dtype if out else "")


@model("vllm::apply_w8a8_block_fp8_linear", kind="gemm", wrapper=True)
def block_linear(call: Inputs) -> Cost | None:
    """apply_w8a8_block_fp8_linear(x[...,K] 0, weight fp8 [N,K] 1, block 2, weight_scale 3, ...): 2 N K per row, computed in FP8."""
    x = call.tensor(0)
    return _either(x, call.tensor(1), (call.tensor(3),), "" if x is None else x.dtype, dtype="fp8")


@pattern(r"(fbgemm|mslk)::f8f8bf16(_rowwise|_blockwise|_tensorwise)?", kind="gemm")
def fbgemm_product(call: Inputs) -> Cost | None:
    """f8f8bf16_rowwise(a[M,K] 0, b[N,K] 1, scale_a 2, scale_b 3, bias 4, ...): 2 M N K in FP8, written as BF16."""
    return _either(call.tensor(0), call.tensor(1), tuple(call.tensor(i) for i in (2, 3, 4)), "bf16")


@model("sgl_kernel::bmm_fp8", "flashinfer::bmm_fp8", "vllm::bmm_fp8", kind="gemm")
def bmm_fp8(call: Inputs) -> Cost | None:
    """bmm_fp8(a[B,M,K] 0, b[B,K,N] 1, out 2, scales 3 and 4): 2 B M N K."""
    out = call.tensor(2)
    return batched(call.tensor(0), call.tensor(1), (call.tensor(3), call.tensor(4)), out.dtype if out else "bf16")


@model("aiter::batched_gemm_a8w8", "aiter::batched_gemm_bf16", kind="gemm")
def batched_rows(call: Inputs) -> Cost | None:
    """batched_gemm(a[B,M,K] 0, b[B,N,K] 1, ...): 2 B M N K. The result is BF16 or of the type of a."""
    a, b = call.tensor(0), call.tensor(1)
    if a is None or b is None or len(a.shape) != 3 or len(b.shape) != 3:
        return None
    turned = Tensor((b.shape[0], b.shape[2], b.shape[1]), b.dtype)
    return batched(a, turned, (call.tensor(2), call.tensor(3)), "bf16" if a.dtype in SMALL else a.dtype)


@model("_C::dsv3_fused_a_gemm", "sgl_kernel::dsv3_fused_a_gemm", "sgl_kernel::dsv3_router_gemm", "_moe_C::dsv3_router_gemm", kind="gemm")
def into(call: Inputs) -> Cost | None:
    """gemm(out[M,N] 0, a[M,K] 1, b[N,K] or [K,N] 2): 2 M N K."""
    out = call.tensor(0)
    return _either(call.tensor(1), call.tensor(2), (), out.dtype if out else "")


@model("aiter::hipb_mm", "aiter::rocb_mm", kind="gemm")
def library_mm(call: Inputs) -> Cost | None:
    """hipb_mm(a[M,K] 0, b[K,N] 1, ...): 2 M N K. An 8-bit product is written as BF16."""
    a = call.tensor(0)
    small = a is not None and a.dtype in SMALL
    return matrix(a, call.tensor(1), out_dtype="bf16" if small else "", reason=ASSUMED if small else "")


@model("_C::gptq_gemm", "sgl_kernel::gptq_gemm", kind="gemm")
def gptq(call: Inputs) -> Cost | None:
    """gptq_gemm(x[M,K] 0, packed[K/pack,N] 1, zeros 2, scales 3, order 4): 2 M N K, computed in the type of x."""
    packed = call.tensor(1)
    columns = packed.shape[1] if packed is not None and len(packed.shape) == 2 else None
    return weight_only(call.tensor(0), packed, columns, tuple(call.tensor(i) for i in (2, 3, 4)))


@model("_C::awq_gemm", kind="gemm")
def awq(call: Inputs) -> Cost | None:
    """awq_gemm(x[M,K] 0, packed[K,N/8] 1, scales[K/group,N] 2, zeros 3): 2 M N K, computed in the type of x."""
    scales = call.tensor(2)
    columns = scales.shape[1] if scales is not None and len(scales.shape) == 2 else None
    return weight_only(call.tensor(0), call.tensor(1), columns, (scales, call.tensor(3)))


@model("_C::gptq_marlin_gemm", "_C::marlin_gemm", "sgl_kernel::gptq_marlin_gemm", "_C::gptq_marlin_24_gemm", kind="gemm")
def marlin(call: Inputs) -> Cost | None:
    """marlin_gemm(x[M,K] 0, ..., packed weight, scales, ..., size_m, size_n, size_k, ...): 2 M N K, computed in the type of x.
    Versions differ in their positions: the three sizes are the values M, N, K in a row that agree with x."""
    x = call.tensor(0)
    if x is None or len(x.shape) != 2:
        return None
    values = call.values
    for at in range(len(values) - 2):
        m, n, k = values[at : at + 3]
        whole = all(isinstance(v, int) and not isinstance(v, bool) for v in (m, n, k))
        if whole and (m, k) == x.shape and isinstance(n, int) and n > 0:
            others = [t.bytes for t in call.flat]
            return Cost(
                flop=2 * x.numel * n, bytes=total(*others, size_of(x.shape[0] * n, x.dtype)), dtype=compute_dtype(x), kind="gemm"
            )  # fmt: skip
    return unknown("logical sizes of the packed weight not recorded")


@model("_C::machete_mm", kind="gemm")
def machete(call: Inputs) -> Cost | None:
    """machete_mm(x[M,K] 0, packed[K/pack,N] 1, type 2, out_type 3, scales 4, zeros 5, ...): 2 M N K, computed in the type of x."""
    packed = call.tensor(1)
    columns = packed.shape[1] if packed is not None and len(packed.shape) == 2 else None
    return weight_only(call.tensor(0), packed, columns, tuple(call.tensor(i) for i in (4, 5, 7, 8)))


@model("_C::allspark_w8a16_gemm", kind="gemm")
def allspark(call: Inputs) -> Cost | None:
    """allspark_w8a16_gemm(x[M,K] 0, packed 1, scales 2, zeros 3, N 4, ...): 2 M N K, computed in the type of x."""
    columns = call.value(4)
    known = isinstance(columns, int) and not isinstance(columns, bool) and columns > 0
    return weight_only(call.tensor(0), call.tensor(1), columns if known else None, (call.tensor(2), call.tensor(3)))  # type: ignore[arg-type]


@model("_C::ggml_mul_mat_a8", "_C::ggml_mul_mat_vec_a8", kind="gemm")
def ggml(call: Inputs) -> Cost | None:
    """ggml_mul_mat_a8(packed 0, x[M,K] 1, type 2, N 3): 2 M N K, computed in the type of x."""
    columns = call.value(3)
    known = isinstance(columns, int) and not isinstance(columns, bool) and columns > 0
    return weight_only(call.tensor(1), call.tensor(0), columns if known else None, ())  # type: ignore[arg-type]


MATCHED = "an autograd function known by its name and sizes; computed in the recorded type"


@model("_Linear", kind="gemm", wrapper=True)
def te_linear(call: Inputs) -> Cost | None:
    """Transformer Engine's _Linear(weight[N,K] 0, x[...,K] 1, bias 2): 2 N K per row. An FP8 recipe is not recorded: the type is that
    of the tensors. Owns the work only where no product was recorded below it."""
    return _marked(transposed_weight(call.tensor(1), call.tensor(0), call.tensor(2)))


@model("_LayerNormLinear", kind="gemm", wrapper=True)
def te_norm_linear(call: Inputs) -> Cost | None:
    """Transformer Engine's _LayerNormLinear(x[...,K] 0, norm weight[K] 1, norm bias 2, weight[N,K] 3, bias 4): 2 N K per row, 8 K
    vector operations per row."""
    x, gamma = call.tensor(0), call.tensor(1)
    found = _marked(transposed_weight(x, _weight(call, 2), None))
    if found is None or found.flop is None or x is None:
        return found
    extra = total(found.bytes, gamma.bytes if gamma is not None else 0)
    return Cost(
        flop=found.flop, flop_vector=8 * x.numel, bytes=extra, dtype=found.dtype, kind="gemm", estimated=True, reason=MATCHED
    )  # fmt: skip


@model("_LayerNormMLP", kind="gemm", wrapper=True)
def te_norm_mlp(call: Inputs) -> Cost | None:
    """Transformer Engine's _LayerNormMLP(x[...,h] 0, norm weight 1, norm bias 2, fc1[f,h] 3, ..., fc2[h,f] ...): 2 products, the first
    twice as wide when gated: 2 M (fc1 + fc2 elements); 8 h vector operations per row and one per activation."""
    x = call.tensor(0)
    weights = [t for t in call.flat[1:] if len(t.shape) == 2]
    if x is None or not x.shape or len(weights) < 2:
        return None
    first, second = weights[:2]
    hidden = x.shape[-1]
    if first.shape[1] != hidden or second.shape[0] != hidden or first.shape[0] not in (second.shape[1], 2 * second.shape[1]):
        return unknown("sizes contradict: input and weights")
    rows = x.numel // hidden if hidden else 0
    return Cost(
        flop=2 * rows * (first.numel + second.numel), flop_vector=8 * x.numel + rows * second.shape[1],
        bytes=total(x.bytes, first.bytes, second.bytes, size_of(x.numel, x.dtype)), dtype=compute_dtype(x, first, second), kind="gemm",
        estimated=True, reason=MATCHED,
    )  # fmt: skip


def _weight(call: Inputs, start: int) -> Tensor | None:
    return next((t for at in range(start, len(call.slots)) if (t := call.tensor(at)) is not None and len(t.shape) == 2), None)


def _marked(found: Cost | None) -> Cost | None:
    if found is None or found.flop is None:
        return found
    return Cost(flop=found.flop, bytes=found.bytes, dtype=found.dtype, kind="gemm", estimated=True, reason=MATCHED)


# -- rotary position embedding ---------------------------------------------------------------------------------------


def _turned(tensors: list[Tensor], *table: int | None, direction: Direction = "fwd") -> Cost | None:
    if not tensors:
        return None
    return vector(
        tensors[0].dtype, 3 * sum(t.numel for t in tensors), *read(*tensors), *(like(t) for t in tensors), *table, direction=direction
    )


def _there(*tensors: Tensor | None) -> list[Tensor]:
    return [t for t in tensors if t is not None]


@model("_C::rotary_embedding", "_C::batched_rotary_embedding", "sgl_kernel::rotary_embedding", "vllm::flashinfer_rotary_embedding",
       "vllm::rocm_aiter_triton_rotary_embedding", kind="elementwise")  # fmt: skip
def rotary(call: Inputs) -> Cost | None:
    """rotary_embedding(positions, query, key, head_size, cos_sin[P, R], neox): in place, one table row per position.

    Only R columns of each head turn; the rest of the query is not touched where the head is wider and its size is recorded.
    """
    positions, query, key, table = call.tensor(0), call.tensor(1), call.tensor(2), call.tensor(4)
    if positions is None or query is None or table is None or not table.shape:
        return None
    head, width = count(call, 3), table.shape[-1]
    share = (width, head) if head is not None and head > width > 0 else (1, 1)
    parts = [Tensor((t.numel * share[0] // share[1],), t.dtype) for t in _there(query, key)]
    return _turned(parts, positions.bytes, size_of(min(positions.numel, table.numel // max(width, 1)) * width, table.dtype))


@model("sgl_kernel::apply_rope_pos_ids_cos_sin_cache", "flashinfer::apply_rope_pos_ids_cos_sin_cache", kind="elementwise")
def rope_cached(call: Inputs) -> Cost | None:
    """apply_rope_pos_ids_cos_sin_cache(q, k, q_out, k_out, table[P, R], positions, ...): one table row per position."""
    query, key, table, positions = call.tensor(0), call.tensor(1), call.tensor(4), call.tensor(5)
    if query is None or table is None or positions is None or not table.shape:
        return None
    return _turned(_there(query, key), positions.bytes, size_of(positions.numel * table.shape[-1], table.dtype))


@model("aiter::rope_cached_positions_2c_fwd_impl", "aiter::rope_cached_2c_fwd_impl", "aiter::rope_cached_positions_offsets_2c_fwd_impl",
       kind="elementwise")  # fmt: skip
def rope_two(call: Inputs) -> Cost | None:
    """rope_cached_positions_2c_fwd_impl(out_x, out_y, x, y, cos, sin, positions, ...): two tensors turned into new ones."""
    x, y = call.tensor(2), call.tensor(3)
    positions = call.tensor(6)
    if x is None or y is None:
        return None
    rows = [_rows(call.tensor(at), positions) for at in (4, 5)]
    return _turned([x, y], *rows, *read(positions))


@model("aiter::rope_cached_positions_fwd_impl", "aiter::rope_cached_fwd_impl", kind="elementwise")
def rope_one(call: Inputs) -> Cost | None:
    """rope_cached_fwd_impl(out, x, cos, sin, [positions,] ...): one tensor turned into a new one."""
    x, positions = call.tensor(1), call.tensor(4)
    if x is None:
        return None
    return _turned([x], *(_rows(call.tensor(at), positions) for at in (2, 3)), *read(positions))


def _rows(table: Tensor | None, positions: Tensor | None) -> int | None:
    """Bytes of the table rows that positions pick; the whole table without positions."""
    if table is None:
        return 0
    if positions is None or not table.shape:
        return table.bytes
    return size_of(min(positions.numel * table.shape[-1], table.numel), table.dtype)


@model("aiter::rope_fwd_impl", "FusedRoPEFunc", "ApplyRotaryEmb", "ApplyRotaryEmbQKV_", "ApplyRotaryEmbKV_", kind="elementwise")
def rope_function(call: Inputs) -> Cost | None:
    """ApplyRotaryEmb(x, cos, sin, ...), FusedRoPEFunc(x, frequencies, ...); aiter::rope_fwd_impl names its result first.

    The tables are read as they stand. In packed QKV the values are not turned: counted as a whole, since the split is not recorded.
    """
    first = call.tensor(0)
    if first is None:
        return None
    second = call.tensor(1)
    shifted = second is not None and second.shape == first.shape and len(first.shape) > 2
    x = second if shifted and second is not None else first
    tables = [t for t in (call.tensor(2 if shifted else 1), call.tensor(3 if shifted else 2)) if t is not None and t.numel <= x.numel]
    return _turned([x], *read(*tables))


@model("LigerRopeFunction", kind="elementwise")
def rope_pair(call: Inputs) -> Cost | None:
    """LigerRopeFunction(q, k, cos, sin, ...): both turned."""
    query, key = call.tensor(0), call.tensor(1)
    return None if query is None or key is None else _turned([query, key], *read(call.tensor(2), call.tensor(3)))


@model("LigerRopeFunctionBackward", "ApplyRotaryEmbBackward", "FusedRoPEFuncBackward", kind="elementwise")
def rope_backward(call: Inputs) -> Cost | None:
    """ApplyRotaryEmbBackward(gradients): turned back; the tables are not recorded and left out."""
    found = _turned(call.flat, direction="bwd")
    if found is None:
        return None
    return vector(found.dtype, found.flop_vector, found.bytes, direction="bwd", reason="tables not recorded: left out, a lower bound")


# -- sampling and merging ----------------------------------------------------------------------------------------------


ONE_PASS: Final = "one pass counted: a lower bound"


@pattern(r"(sgl_kernel|flashinfer|aiter)::(((top_k_)?top_[kp]|min_p)_sampling_from_probs|sampling_from_(probs|logits)|top_[kp]_renorm_probs)"
         r"|aiter::(greedy|random|mixed)_sample", kind="norm")  # fmt: skip
def sampling(call: Inputs) -> Cost | None:
    """top_k_top_p_sampling_from_probs(probabilities[T, V], ...): every recorded argument once, one FLOP per probability. A draw that is
    refused reads them again, and results that are returned new are left out: a lower bound."""
    tensors = call.flat
    if not tensors:
        return None
    largest = max(tensors, key=lambda t: t.numel)
    return vector(largest.dtype, largest.numel, *read(*tensors), kind="norm", reason=ONE_PASS)


@model("_C::apply_repetition_penalties_", kind="elementwise")
def repetition_penalties(call: Inputs) -> Cost | None:
    """apply_repetition_penalties_(logits[T, V] 0, mask of the prompt 1, of the output 2, penalties[T] 3): logits read and written in place;
    2 FLOP per logit."""
    logits = call.tensor(0)
    return None if logits is None else vector(logits.dtype, 2 * logits.numel, like(logits), *read(*call.flat))


@model("_C::merge_attn_states", "sgl_kernel::merge_state", "sgl_kernel::merge_state_v2", kind="elementwise")
def merge_states(call: Inputs) -> Cost | None:
    """merge_attn_states(out, log-sum-exp, part, its log-sum-exp, other part, its log-sum-exp): every tensor once, 3 FLOP per element of
    the result (two products and their sum)."""
    tensors = call.flat
    if len(tensors) < 3:
        return None
    largest = max(tensors, key=lambda t: t.numel)
    return vector(largest.dtype, 3 * largest.numel, *read(*tensors))
