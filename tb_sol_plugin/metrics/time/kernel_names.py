"""Judges a kernel by its name: whether it runs on matrix units, and what kind of work it does.

Both judgments are tables of rules, tried in order; the first that matches decides and is shown beside the answer.
A name that no rule knows is unknown, which is a class of its own: it is neither "uses" nor "does not use".
Sources: kernel names of cuBLAS, cuBLASLt, cuDNN, CUTLASS, FlashAttention, TensorRT-LLM, Triton, Tensile, Composable Kernel and MIOpen
as they stand in recordings; the first rows of the NVIDIA part are the names that the former TensorBoard plugin knew (2021).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.tables.table import frame_of

# -- A short name for a kernel ---------------------------------------------------------------------------------------
# what a person calls it, without parameters and most template arguments.
#
# The full name stays the key everywhere; two kernels may share a short name.


ANONYMOUS: Final = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\(anonymous class\)::|_GLOBAL__N__(?:(?!_GLOBAL__N__)\w)+::")
LAMBDA: Final = re.compile(r"::(\{lambda|operator\(\)|\'lambda).*", re.DOTALL)
DULL: Final = re.compile(
    r"^-?\d\w*$|^\(.*\)-?\d\w*$|^(true|false|nullptr|decltype\(nullptr\))$"
    r"|^(unsigned )?(bool|char|short|int|long|long long|float|double|signed char|unsigned|void)[ *&]*(const[ *&]*)?$"
    r"|^(\w+::)*(Half|BFloat16|half|half_t|bfloat16_t|__nv_bfloat16|__half|float2|float4|half2|__hip_bfloat16|tfloat32_t|Float8\w*|complex)"
    r"(<.*>)?( const)?[ *&]*$"
    r"|^(\w+::)*(Array|array|OffsetCalculator|TrivialOffsetCalculator|TensorListMetadata|LoadWithoutCast|StoreWithoutCast|integer_sequence)(<.*>)?$"
)
"""Template arguments that do not tell kernels apart for a person."""
WRAPPERS: Final = frozenset(
    ("gpu_kernel_impl", "gpu_kernel_impl_nocast", "BinaryFunctor", "AUnaryFunctor", "BUnaryFunctor", "ReduceOp", "func_wrapper_t")
)
"""Names that say nothing by themselves: the argument within speaks for them."""
BARE: Final = frozenset(("Kernel", "Kernel2", "device_kernel", "kernel", "run_kernel", "kernel_impl"))
"""Entry points whose first argument is the kernel."""
LONGEST: Final = 96
KEPT: Final = 4_096
"""Names whose reading is kept: more than a recording of a training step has, and few enough that hostile ones do not fill the memory."""
MANY: Final = 1_000
"""Names from which on the patterns are searched in many of them at once, by RE2."""
AT_ONCE: Final = 50_000
"""Names that are handed to RE2 together: copies of no more than these are in memory."""


def short_name(name: str) -> str:
    """Shortens `void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, …>(int, …)` to
    `vectorized_elementwise_kernel<CUDAFunctor_add>`; a name that is no C++ stays, cut in the middle when very long."""
    text = plain_name(name)
    if len(text) <= LONGEST:
        return text
    return text[: LONGEST // 2] + "…" + text[-(LONGEST // 2 - 1) :]


@lru_cache(maxsize=KEPT)
def plain_name(name: str) -> str:
    """Returns the short name, uncut."""
    text = _mangled(name.strip()) if name.startswith("_Z") else name.strip()
    text = ANONYMOUS.sub("", text) if "::" in text else text
    if "(" in text or "<" in text:
        text = _short(_RETURNED.sub("", text) if text.startswith(RETURNED) else text, 0) or text
    return text


def plain_names(names: Sequence[str]) -> list[str]:
    """Returns `plain_name` of each, without keeping them: of many, a few that are kept cost more than they save."""
    out, inner_of = [], dict[str, str | None]()
    for name in names:
        head, opened, rest = name.partition("<")
        plain = head.isidentifier() and not head.startswith("_Z") and not head.endswith("operator") and "::" not in rest
        if not plain or head in BARE or head in WRAPPERS:
            out.append(plain_name.__wrapped__(name))
        elif not opened:
            out.append(head)
        else:
            if rest not in inner_of:
                inner_of[rest] = _templated(opened + rest, 0)[1]
            inner = inner_of[rest]
            out.append(f"{head}<{inner}>" if inner else head)
    return out


RETURNED: Final = ("void", "std::enable_if", "static")
_RETURNED: Final = re.compile(r"^(void|std::enable_if<.*?>::type|static) +")
_BRACKET: Final = re.compile(r"[<({\[>)}\],]")
_OPENING: Final = re.compile(r"\(|(?<!operator)<")


def _short(text: str, depth: int) -> str:
    if "lambda" in text or "operator()" in text:
        text = LAMBDA.sub("", text) if not text.startswith("{") else text
    found = _OPENING.search(text)
    if found is None:
        return text.rpartition("::")[2].strip() or text
    head, inner = text[: found.start()], None
    if found[0] == "<":
        member, inner = _templated(text[found.start() :], depth)
        head = head if member is None else member
    base = head.rpartition("::")[2].strip() or head
    if inner is None:
        return base
    if base in BARE and inner.endswith(("Params", "ParamsEx")):  # the argument is no kernel: the namespace tells more
        return "::".join(head.split("::")[-2:])
    if base in WRAPPERS or base in BARE:
        return inner
    return f"{base}<{inner}>" if depth == 0 and inner else base


@lru_cache(maxsize=KEPT)
def _templated(text: str, depth: int) -> tuple[str | None, str | None]:
    """Returns what follows a name from its first template list on: (the name of a member of the template; the short name of the first
    argument that tells kernels apart), None where there is none. Many names share what follows: it is kept.
    """
    start, at, members = 0, 0, (0, 0)
    while True:
        end = _closing(text, at)
        if text[at + 1 : end].replace(",", "").strip():
            members = at + 1, end
        if not text.startswith("::", end + 1):
            break
        start = end + 3  # a member of a template: its own name counts
        found = _OPENING.search(text, start)
        at = found.start() if found else len(text)
        if found is None or found[0] == "(":
            break
    inner = next((a for a in _members(text, *members) if not DULL.match(a)), "") if depth <= 3 else ""
    return (text[start:at] if start else None), _short(inner, depth + 1) if inner else None


def _closing(text: str, at: int) -> int:
    """Returns where the template list that opens at a place ends; the length of the text if nowhere."""
    depth, start, end = 0, at, text.find(">", at)
    while end >= 0:
        depth += text.count("<", start, end)
        if text[end - 1] != "-":
            depth -= 1
            if depth == 0:
                return end
        start, end = end + 1, text.find(">", end + 1)
    return len(text)


def _members(text: str, start: int, end: int) -> Iterator[str]:
    """Yields the members of a list between two places of a text, those that are not empty."""
    depth = 0
    for found in _BRACKET.finditer(text, start, end) if text.find(",", start, end) >= 0 else ():
        char = found[0]
        if char != ",":
            depth += 1 if char in "<({[" else -1
        elif depth == 0:
            if member := text[start : found.start()].strip():
                yield member
            start = found.end()
    if member := text[start:end].strip():
        yield member


def _mangled(name: str) -> str:
    """Returns the nested name of an Itanium-mangled symbol, with the first template argument where the name alone says nothing;
    the symbol itself where it does not parse."""
    found = _NESTED.match(name)
    parts, at = _identifiers(name, found.end() if found else 2)
    if not parts:
        return name
    if parts[-1] in BARE or parts[-1] == "kentry":
        for inner in _ARGUMENT.finditer(name, at):
            inner_name, _ = _identifiers(name, inner.end())
            if inner_name:
                return inner_name[-1]
    return "::".join(parts)


_NESTED: Final = re.compile(r"_ZN?K?")
_ARGUMENT: Final = re.compile(r"N(?:S\w?_)?(?=\d)")
_LENGTH: Final = re.compile(r"\d{1,9}", re.ASCII)


def _identifiers(name: str, at: int) -> tuple[list[str], int]:
    """Returns the length-prefixed identifiers from a position on, and where they end."""
    parts = []
    while number := _LENGTH.match(name, at):
        length, at = int(number[0]), number.end()
        parts.append(name[at : at + length])
        at += length
    return [p for p in parts if p and not p.startswith("_GLOBAL__N")], at


class Rule(NamedTuple):
    """A rule that knows the matrix unit of kernels by their names.

    uses: True matrix units, False none. vendor and generation: whose unit, first generation that has it. why: in words.
    """

    pattern: str
    uses: bool
    vendor: str
    generation: str
    why: str


class Match(NamedTuple):
    """What a rule says about one kernel name.

    tensor_core: None where no rule knows the name.
    """

    tensor_core: bool | None
    unit: str
    rule: str


MATRIX: Final = (
    # what looks like a matrix kernel and is none
    Rule(r"_simt|_ffma|simt_|sm\d+_simt|fmha_cutlass[FB]_\w*_sm(50|60)\b", False, "", "", "plain multiply-add"),
    Rule(r"splitKreduce|split_?k_?reduce|ReduceSplitK"
         r"|splitkv_combine|flash_bwd_(dot_do_o|convert|preprocess)", False, "", "", "reduction after a split"),
    Rule(r"fmhaReduction|computeOffsets|computeBOffsets"
         r"|computeWgrad\w*Offsets|_scatter_bf16|finalize_matmul", False, "", "", "helper of a matrix kernel"),
    Rule(r"reshape_and_cache|rotary_embedding|concat_and_cache", False, "", "", "cache or position update"),
    # NVIDIA
    Rule(r"h884|s884|d884|i8832|volta_\w*h884", True, "nvidia", "Volta", "mma 8x8x4"),
    Rule(r"[hsic]1688|i8816|imma8816", True, "nvidia", "Turing", "mma 16x8x8"),
    Rule(r"16816|161616|i16832|tensor16x8x(8|16|32)", True, "nvidia", "Ampere", "mma 16x8x16"),
    Rule(r"wgmma|gmma|sm90_xmma|cutlass3x_sm90|sm90_\w*(gemm|mma)|[Ss]m90\w*(Gemm|Mma)|MainloopSm90", True, "nvidia", "Hopper", "wgmma"),
    Rule(r"tcgen05|utc\w*mma|umma|cutlass3x_sm1[02]0|sm1[02]0\w*_(gemm|mma|xmma)|MainloopSm1[02]0", True, "nvidia", "Blackwell", "tcgen05"),
    Rule(r"nvjet", True, "nvidia", "Hopper", "nvjet of cuBLASLt"),
    Rule(r"^(void )?(bmm|gemm)_(\w*?)(Bfloat16|Fp16|Fp32|E4m3|E2m1|MxE4m3|MxE2m1|MxInt4|Int8)",
         True, "nvidia", "Blackwell", "batched GEMM of TensorRT-LLM"),
    Rule(r"fmhaSm\d+|fmha_v2|fmha_\w*sm(70|75|80|86|89|90|100|120)|fmha_cutlass[FB]", True, "nvidia", "Volta", "fused attention"),
    Rule(r"hmma|imma|bmma|qmma|dmma|tensorop|wmma|cutlass3x", True, "nvidia", "Volta", "tensor operation in the name"),
    Rule(r"xmma_(gemm|sparse_gemm|implicit_gemm|sparse_conv|warp_specialized_implicit_gemm|fprop|dgrad|wgrad)",
         True, "nvidia", "Volta", "xmma of cuDNN and cuBLAS"),
    Rule(r"dgrad_1x1_stride_2x2|first_layer_wgrad_kernel"
         r"|conv1x1|conv2d_c1_k1|direct_group", True, "nvidia", "Volta", "cuDNN kernel of the 2021 list"),
    Rule(r"flash_(fwd|bwd)|FlashAttn(Fwd|Bwd)|flash::|flash_attn"
         r"|flash_mla|AttentionKernel<|cudnn_generated_fort_native_sdpa", True, "", "Ampere", "flash attention"),
    Rule(r"deep_gemm|marlin|machete|BatchPrefill|SinglePrefill|cutlass::gemm|MmaTensorOp", True, "nvidia", "Ampere", "GEMM library"),
    # AMD
    Rule(r"mfma|xdlops|_xdl|[a-z]Xdl|Xdl[A-Z]|igemm_(fwd|bwd|wrw)_gtc", True, "amd", "CDNA", "MFMA in the name"),
    Rule(r"Cijk_\w*_MI\d+x\d+x\d+", True, "amd", "CDNA", "Tensile matrix instruction tile"),
    Rule(r"ck_tile\w*(Gemm|Fmha|gemm|fmha)|ck_fused_attention"
         r"|FmhaFwd|FmhaBwd|aiter\w*(fmha|gemm|mla)|fmha_(fwd|bwd)", True, "amd", "CDNA", "Composable Kernel or AITER"),
    Rule(r"Cijk_", False, "amd", "", "Tensile without a matrix instruction tile"),
    # Triton
    Rule(r"^triton_tem_", True, "", "", "Triton template with a dot"),
    Rule(r"^triton_(poi|red|per|for|mix)_", False, "", "", "Triton without a dot"),
    Rule(r"^_?(p_)?matmul_(kernel|ogs)|^_?attn_(fwd|bwd)|fused_moe_kernel"
         r"|unified_attention|^_(fwd|bwd)_kernel|grouped_gemm|_gemm_\w*kernel$", True, "", "", "Triton dot kernel"),
    # neither
    Rule(r"nccl|rccl|cross_device_reduce|multimem_|nvshmem|all_?reduce|all_?gather|reduce_?scatter", False, "", "", "communication"),
    Rule(r"(kepler|maxwell|pascal|volta|turing|ampere|hopper)_\w*gemm"
         r"|sgemm|gemv|gemmk1|cublasDot|dp4a", False, "", "", "plain multiply-add"),
    Rule(r"scudnn|implicit_convolve_sgemm|wgrad_alg\d_engine|dgrad_engine"
         r"|dgrad2d|winograd|Winograd|miopenSp3|fft\d?d?_|cudnn::cnn::", False, "", "", "plain convolution"),
    Rule(r"^(void )?(at::native|at_cuda_detail|thrust|cub|hipcub|rocprim|fbgemm_gpu|moe::dev|cudnn::(bn|ops))",
         False, "", "", "elementwise, reduction or index"),
    Rule(r"elementwise|softmax|SoftMax|[Nn]orm(aliz|_|\b|[A-Z]|\d)|reduce"
         r"|multi_tensor_apply|embedding|quantize|[Tt]op_?[Kk]"
         r"|routing|scan|sort|histogram", False, "", "", "elementwise, reduction or index"),
    Rule(r"[Cc]opy|[Mm]emset|[Ff]ill|[Cc]at[A-Z]|[Tt]ranspose|[Pp]ermute|index|[Ss]catter|[Gg]ather"
         r"|nchwToNhwc|nhwcToNchw|max_pool"
         r"|avg_pool|dropout|_act_|silu|gelu|relu|globalKernel", False, "", "", "elementwise, reduction or index"),
)  # fmt: skip
"""Rules of the matrix-unit judgment."""

KINDS: Final = (
    ("communication", r"nccl|rccl|cross_device_reduce|multimem_|nvshmem|deep_?ep|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all"),
    ("attention", r"flash|fmha|[Aa]ttention|attn_|sdpa|mla_"),
    ("conv", r"[Cc]onv($|[^e]|e($|[^r]|r($|[^t])))|scudnn|wgrad|dgrad|fprop|[Ww]inograd|miopen|igemm_"),
    ("norm", r"[Ss]oft_?[Mm]ax|[Nn]orm($|[^a]|a($|[^l]|l($|[^_])))|bn_(fw|bw)|RowwiseMoments|GammaBeta"),
    ("gemm", r"gemm|gemv|Cijk_|nvjet|^(void )?bmm_|matmul|splitKreduce|cublas|tensorop|fused_moe|_MI\d+x\d+|triton_tem_|marlin|machete"),
    ("elementwise", r"elementwise|multi_tensor_apply|triton_poi|[Cc]opy|[Ff]ill|[Cc]at[A-Z]|dropout|_act_|silu|gelu|rotary|quantize"
                    r"|globalKernel|Functor"),
)  # fmt: skip
"""Kind of work by name, first match; everything else is `other`. The kinds are members of the palette."""

UNITS: Final = {"nvidia": "Tensor Core", "amd": "Matrix Core", "xpu": "XMX"}
"""What the vendor calls its matrix unit."""


@cache
def _kinds() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((kind, _bounded(pattern)) for kind, pattern in KINDS)


@cache
def _bounded(pattern: str) -> re.Pattern[str]:
    """Returns the pattern with at most 300 characters between two parts of it: without a bound some names take quadratic time."""
    return re.compile(pattern.replace(r"\w*", r"\w{0,300}"), re.ASCII)


def unit_name(vendor: str) -> str:
    """Returns the vendor's word for a matrix unit."""
    return UNITS.get(vendor, "matrix unit")


@lru_cache(maxsize=KEPT)
def matrix_of(name: str, vendor: str = "") -> Match:
    """Returns whether a kernel of that name runs on matrix units of `vendor` ("" unknown), with the rule that says so."""
    for rule in MATRIX:
        if _asked(rule, vendor) and _bounded(rule.pattern).search(name):
            return _match(rule, vendor)
    return UNKNOWN


UNKNOWN: Final = Match(None, "", "")


def _asked(rule: Rule, vendor: str) -> bool:
    return not (rule.vendor and vendor and rule.vendor != vendor)


def _match(rule: Rule, vendor: str) -> Match:
    unit = " ".join(filter(None, (unit_name(rule.vendor or vendor), f"({rule.generation} or newer)" if rule.generation else "")))
    return Match(rule.uses, unit if rule.uses else "", f"{rule.why}: {rule.pattern}")


def kind_of(name: str) -> str:
    """Returns the kind of work: gemm, attention, conv, norm, elementwise, communication or other. Judged without the parameters' types."""
    return _kind_of_plain(plain_name(name))


@lru_cache(maxsize=KEPT)
def _kind_of_plain(plain: str) -> str:
    return next((kind for kind, pattern in _kinds() if pattern.search(plain)), "other")


# -- Many names at once ----------------------------------------------------------------------------------------------


def matrix_places(names: Sequence[str], vendor: str = "") -> tuple[npt.NDArray[np.int8], Sequence[Match]]:
    """Returns `matrix_of` each name by its place in what follows, and what a name may match."""
    if len(names) < MANY:
        place: dict[Match, int] = {}
        return np.array([place.setdefault(matrix_of(n, vendor), len(place)) for n in names], np.int8), [*place]
    rules = [rule for rule in MATRIX if _asked(rule, vendor)]
    return _first_matches(names, [rule.pattern for rule in rules]), [*(_match(rule, vendor) for rule in rules), UNKNOWN]


KIND_NAMES: Final = (*(kind for kind, _ in KINDS), "other")
"""Kinds of work as `kind_of` names them."""


def kind_places(plain: Sequence[str]) -> npt.NDArray[np.int8]:
    """Returns `kind_of` each name by its place in KIND_NAMES, given the plain names."""
    if len(plain) < MANY:
        return np.array([KIND_NAMES.index(_kind_of_plain(n)) for n in plain], np.int8)
    return _first_matches(plain, [pattern for _, pattern in KINDS])


def kinds_of(plain: Sequence[str]) -> list[str]:
    """Returns `kind_of` each name, given the plain names."""
    return [KIND_NAMES[place] for place in kind_places(plain).tolist()]


def _first_matches(names: Sequence[str], patterns: Sequence[str]) -> npt.NDArray[np.int8]:
    """Returns for each name the place of the first pattern that it matches; their number where none does.

    A letter outside ASCII is `?` here: no pattern names one, and in none of them is it part of a word.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    out = np.full(len(names), len(patterns), np.int8)
    together = math.isqrt(len(patterns)) + 1  # searched as one: which of them a name matches is asked where it matches any
    for begin in range(0, len(names), AT_ONCE):
        piece = names[begin : begin + AT_ONCE]
        first = out[begin : begin + AT_ONCE]
        rest, left = pa.array([n.encode("ascii", "replace").removesuffix(b"\n") for n in piece], pa.large_binary()), np.arange(len(piece))
        for group in range(0, len(patterns), together):
            some = patterns[group : group + together]
            found = pc.match_substring_regex(rest, "|".join(f"(?:{pattern})" for pattern in some)).to_numpy(zero_copy_only=False)
            few, of = rest.filter(pa.array(found)), left[found]
            rest, left = rest.filter(pa.array(~found)), left[~found]
            for place, pattern in enumerate(some if len(of) else (), group):
                found = pc.match_substring_regex(few, pattern).to_numpy(zero_copy_only=False)
                first[of[found]] = place
                few, of = few.filter(pa.array(~found)), of[~found]
    return out


def classify(names: Iterable[object], vendor: str) -> pd.DataFrame:
    """Returns one row per name of a kernel.

    Columns: name, plain (see `plain_name`), tensor_core (1 yes, 0 no, -1 unknown), unit, rule, kind.
    """
    found = [str(n) for n in names]
    plain = [*map(plain_name, found)] if len(found) < MANY else plain_names(found)
    place, known = matrix_places(found, vendor)
    matches = [known[i] for i in place.tolist()]
    code: npt.NDArray[np.int8] = np.array([-1 if m.tensor_core is None else int(m.tensor_core) for m in matches], np.int8)
    return frame_of({
        "name": found, "plain": plain, "tensor_core": code, "unit": [m.unit for m in matches], "rule": [m.rule for m in matches],
        "kind": kinds_of(plain),
    })  # fmt: skip


# -- What names of kernels say about the type that they compute in ---------------------------------------------------


TF32: Final = re.compile(r"tf32|_s1688(gemm|fprop|dgrad|wgrad)|xf32", re.IGNORECASE)
"""Names of kernels that multiply FP32 operands in TF32."""
TF32_HINTS: Final = ("tf32", "xf32", "_s1688")
"""What `TF32` matches holds one of these in lower case."""


def in_tf32(name: str) -> bool:
    """Tells whether the name of a kernel says that it multiplies FP32 operands in TF32."""
    lower = name.lower()  # looking for what the expression needs is ten times faster
    return any(hint in lower for hint in TF32_HINTS) and TF32.search(name) is not None

