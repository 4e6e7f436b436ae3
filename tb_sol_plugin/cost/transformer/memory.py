"""Computes the memory of a transformer from its sizes and its layout over devices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Placement: TypeAlias = Literal["own", "all", "all_full"]
"""own: on the stage that needs it, split over tensor parallel ranks. all: so on every stage. all_full: whole on every rank."""
Recompute: TypeAlias = Literal["none", "selective", "full"]
Number: TypeAlias = Literal["bf16", "fp16", "fp32"]
Optimizer: TypeAlias = Literal["adam", "adam8bit", "sgd", "sgd_momentum", "lion"]
Sharding: TypeAlias = Literal["none", "optimizer", "gradients", "full"]


@dataclass(frozen=True, kw_only=True)
class Model:
    """hidden h, layers L, vocab V, ffn f, heads a, kv_heads g, channels per head c (0: h / a), experts (0: a dense feed-forward).

    gated: the feed-forward has three matrices (SwiGLU), else two. rms_norm: norms of one vector each, else of two. tied: the head is the
    embedding. experts_per_token: experts a token goes through; shared_experts: as large as these, through which each token goes.
    dense_layers: first layers with a dense feed-forward of width dense_ffn (0: ffn) in a model with experts. positions: learned positions.
    bias: attention and dense feed-forward have biases; qkv_bias: queries, keys and values alone have. qk_norm: a norm of the channels of a
    head for queries and one for keys. kv_rank: width of what keys and values are made from (multi-head latent attention; 0: attention
    with matrices of its own for each), q_rank: the same of queries (0: none), rope_channels: channels of a head beside `channels` that
    have rotary positions, whose keys all heads share.

    Sources: Vaswani et al. 2017; DeepSeek-V2 (2024), section 2.1 and appendix C, for latent attention and shared experts.
    """

    hidden: int
    layers: int
    vocab: int
    ffn: int
    heads: int
    kv_heads: int = 0
    channels: int = 0
    gated: bool = True
    rms_norm: bool = True
    tied: bool = False
    experts: int = 0
    experts_per_token: int = 2
    shared_experts: int = 0
    dense_layers: int = 0
    dense_ffn: int = 0
    positions: int = 0
    bias: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    q_rank: int = 0
    kv_rank: int = 0
    rope_channels: int = 0

    @property
    def attention(self) -> int:
        """Parameters of the attention of one layer that tensor parallel ranks divide: `2 h² (1 + g/a) (c a / h)`.

        With biases those of queries, keys and values too. Of latent attention: `q a (c + r) + 2 v a c + a c h`.
        """
        if self.kv_rank:
            made = (self.q_rank or self.hidden) * self.heads * (self.head + self.rope_channels)
            return made + self.hidden * self.width + self.keys_and_values
        return 2 * self.hidden * self.width + (self.width if self.bias or self.qkv_bias else 0) + self.keys_and_values

    @property
    def head(self) -> int:
        """Channels of a head, c."""
        return self.channels or self.hidden // self.heads

    @property
    def width(self) -> int:
        """Channels of all query heads: h, unless the channels of a head are given."""
        return self.head * self.heads

    @property
    def keys_and_values(self) -> int:
        """Parameters of what makes keys and values in one layer: `2 h² (g/a) (c a / h)`; of latent attention `2 v a c`."""
        if self.kv_rank:
            return 2 * self.kv_rank * self.width
        return 2 * (self.hidden + (1 if self.bias or self.qkv_bias else 0)) * self.head * (self.kv_heads or self.heads)

    @property
    def latent(self) -> int:
        """Parameters of what queries, and keys and values, are made from in one layer: `h q + h (v + r)`; 0 without latent attention."""
        return self.hidden * (self.q_rank + self.kv_rank + self.rope_channels) if self.kv_rank else 0

    @property
    def feed_forward(self) -> int:
        """Parameters of one feed-forward (of one expert): `2 h f`, times 3/2 if gated; with biases those of width f too."""
        return self._feed_forward(self.ffn)

    @property
    def dense_feed_forward(self) -> int:
        """The same of the first layers of a model with experts."""
        return self._feed_forward(self.dense_ffn or self.ffn)

    def _feed_forward(self, width: int) -> int:
        matrices = 3 if self.gated else 2
        return matrices * self.hidden * width + ((matrices - 1) * width if self.bias else 0)

    @property
    def norm(self) -> int:
        """Parameters of one norm."""
        return self.hidden if self.rms_norm else 2 * self.hidden

    @property
    def vectors(self) -> int:
        """Parameters of one layer that each tensor parallel rank has whole: norms, and biases of width h."""
        of_attention = (2 * self.head if self.qk_norm else 0) + (self.q_rank + self.kv_rank if self.kv_rank else 0)
        return 2 * self.norm + of_attention + (2 * self.hidden if self.bias else 0)

    @property
    def router(self) -> int:
        """Parameters of the router of one layer; 0 without experts."""
        return self.hidden * self.experts

    @property
    def layer(self) -> int:
        """Parameters of one layer with its norms; in a model with experts of one that has them."""
        forward = self.feed_forward * ((self.experts + self.shared_experts) or 1)
        return self.attention + self.latent + forward + self.router + self.vectors

    @property
    def dense_layer(self) -> int:
        """Parameters of one of the first layers of a model with experts, which has none."""
        return self.attention + self.latent + self.dense_feed_forward + self.vectors

    @property
    def without_experts(self) -> int:
        """First layers without experts in a model that has them."""
        return min(self.dense_layers, self.layers) if self.experts else 0

    @property
    def parameters(self) -> int:
        """Parameters of the whole model: layers, embedding, positions, head unless tied, final norm."""
        layers = self.layer * (self.layers - self.without_experts) + self.dense_layer * self.without_experts
        return layers + self.hidden * (self.vocab * (1 if self.tied else 2) + self.positions) + self.norm


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a model is spread and run. tp, pp, dp, cp, ep: tensor, pipeline, data, context, expert parallel size; vpp: chunks per stage.

    microbatches: per step and pipeline (0: as many as there are stages, so that the first stage holds all it ever can). etp: tensor
    parallel size of the experts (0: tp). sharding: what data parallel ranks divide among them: nothing, optimizer (ZeRO-1, the
    distributed optimizer), gradients too (ZeRO-2), or parameters too (ZeRO-3, FSDP).
    """

    seq: int = 2048
    micro_batch: int = 1
    microbatches: int = 0
    tp: int = 1
    pp: int = 1
    vpp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 0
    sequence_parallel: bool = True
    recompute: Recompute = "selective"
    number: Number = "bf16"
    optimizer: Optimizer = "adam"
    sharding: Sharding = "none"
    embedding_placement: Placement = "own"
    head_placement: Placement = "own"

    @property
    def world(self) -> int:
        """Devices of the job."""
        return self.tp * self.pp * self.dp * self.cp

    @property
    def held(self) -> int:
        """Microbatches of a step, as far as any stage could hold them."""
        return self.microbatches or self.pp


PRESETS: Final[dict[str, Model]] = {
    "llama-7b": Model(hidden=4096, layers=32, vocab=32000, ffn=11008, heads=32),
    "llama-13b": Model(hidden=5120, layers=40, vocab=32000, ffn=13824, heads=40),
    "llama-70b": Model(hidden=8192, layers=80, vocab=32000, ffn=28672, heads=64, kv_heads=8),
    "llama3-8b": Model(hidden=4096, layers=32, vocab=128256, ffn=14336, heads=32, kv_heads=8),
    "llama3-70b": Model(hidden=8192, layers=80, vocab=128256, ffn=28672, heads=64, kv_heads=8),
    "llama3-405b": Model(hidden=16384, layers=126, vocab=128256, ffn=53248, heads=128, kv_heads=8),
    "mistral-7b": Model(hidden=4096, layers=32, vocab=32000, ffn=14336, heads=32, kv_heads=8),
    "mixtral-8x7b": Model(hidden=4096, layers=32, vocab=32000, ffn=14336, heads=32, kv_heads=8, experts=8),
    "qwen2.5-7b": Model(hidden=3584, layers=28, vocab=152064, ffn=18944, heads=28, kv_heads=4, qkv_bias=True),
    "qwen2.5-72b": Model(hidden=8192, layers=80, vocab=152064, ffn=29568, heads=64, kv_heads=8, qkv_bias=True),
    "qwen3-8b": Model(hidden=4096, layers=36, vocab=151936, ffn=12288, heads=32, kv_heads=8, channels=128, qk_norm=True),
    "qwen3-32b": Model(hidden=5120, layers=64, vocab=151936, ffn=25600, heads=64, kv_heads=8, channels=128, qk_norm=True),
    "qwen3-30b-a3b": Model(
        hidden=2048, layers=48, vocab=151936, ffn=768, heads=32, kv_heads=4, channels=128, qk_norm=True, experts=128, experts_per_token=8
    ),
    "deepseek-v3": Model(
        hidden=7168, layers=61, vocab=129280, ffn=2048, heads=128, channels=128, q_rank=1536, kv_rank=512, rope_channels=64, experts=256,
        experts_per_token=8, shared_experts=1, dense_layers=3, dense_ffn=18432,
    ),
    "gpt2": Model(
        hidden=768, layers=12, vocab=50257, ffn=3072, heads=12, gated=False, rms_norm=False, tied=True, bias=True, positions=1024
    ),
    "gpt3-175b": Model(
        hidden=12288, layers=96, vocab=50257, ffn=49152, heads=96, gated=False, rms_norm=False, tied=True, bias=True, positions=2048
    ),
}  # fmt: skip
"""Published sizes, by the papers and configurations in `SOURCES`."""
_HUB: Final = "https://huggingface.co/{}/blob/main/config.json"
SOURCES: Final[dict[str, str]] = {
    "llama-7b": "https://arxiv.org/abs/2302.13971",
    "llama-13b": "https://arxiv.org/abs/2302.13971",
    "llama-70b": "https://arxiv.org/abs/2307.09288",
    "llama3-8b": "https://arxiv.org/abs/2407.21783",
    "llama3-70b": "https://arxiv.org/abs/2407.21783",
    "llama3-405b": "https://arxiv.org/abs/2407.21783",
    "mistral-7b": "https://arxiv.org/abs/2310.06825",
    "mixtral-8x7b": "https://arxiv.org/abs/2401.04088",
    "qwen2.5-7b": _HUB.format("Qwen/Qwen2.5-7B"),
    "qwen2.5-72b": _HUB.format("Qwen/Qwen2.5-72B"),
    "qwen3-8b": _HUB.format("Qwen/Qwen3-8B"),
    "qwen3-32b": _HUB.format("Qwen/Qwen3-32B"),
    "qwen3-30b-a3b": _HUB.format("Qwen/Qwen3-30B-A3B"),
    "deepseek-v3": _HUB.format("deepseek-ai/DeepSeek-V3"),
    "gpt2": _HUB.format("openai-community/gpt2"),
    "gpt3-175b": "https://arxiv.org/abs/2005.14165",
}
"""Where the sizes of each preset are published: a paper (of Llama 3 its table 3, of GPT-3 its table 2.1), or a configuration."""


# -- Bytes per parameter ---------------------------------------------------------------------------------------------


STATE: Final[dict[Optimizer, int]] = {"adam": 8, "adam8bit": 2, "sgd": 0, "sgd_momentum": 4, "lion": 4}
"""Bytes of optimizer state per parameter beside a master weight: two FP32 moments, two in 8 bits, none, one, one."""
WIDTH: Final[dict[Number, int]] = {"bf16": 2, "fp16": 2, "fp32": 4}


@dataclass(frozen=True)
class PerParameter:
    """Bytes per parameter of a rank, as fractions where data parallel ranks divide them. gradient: as the backward pass writes it.

    main_gradient: the FP32 copy that is reduced and given to the optimizer. master: the FP32 weight the optimizer updates.
    """

    parameter: float
    gradient: float
    main_gradient: float
    master: float
    optimizer: float

    @property
    def total(self) -> float:
        return self.parameter + self.gradient + self.main_gradient + self.master + self.optimizer


def per_parameter(layout: Layout, ranks: int = 0) -> PerParameter:
    """Returns bytes per parameter. ranks: that divide the sharded parts (0: dp × cp).

    bf16: 2 + main gradient 4 + master 4 + state; gradients go straight into the main gradient. fp16: 2 + 2, main gradient 4, master 4,
    state. fp32: 4 + 4 + state. The distributed optimizer divides master and state (with fp16 the main gradient too, which it makes).
    """
    d = ranks or layout.dp * layout.cp
    shard = ("none", "optimizer", "gradients", "full").index(layout.sharding)
    of_optimizer, of_gradients, of_parameters = (1 / d if shard >= level else 1.0 for level in (1, 2, 3))
    width, state = WIDTH[layout.number], STATE[layout.optimizer]
    if layout.number == "fp32":
        return PerParameter(4 * of_parameters, 4 * of_gradients, 0.0, 0.0, state * of_optimizer)
    if layout.number == "bf16":
        return PerParameter(width * of_parameters, 0.0, 4 * of_gradients, 4 * of_optimizer, state * of_optimizer)
    return PerParameter(width * of_parameters, 2 * of_gradients, 4 * of_optimizer, 4 * of_optimizer, state * of_optimizer)


def formula(layout: Layout) -> str:
    """Returns the bytes per parameter as an expression: `6 + 12/d`."""
    one, many = per_parameter(layout, 1).total, per_parameter(layout, 1 << 40).total
    whole, divided = round(many), round(one - many)
    return " + ".join([*[str(whole)] * bool(whole or not divided), *[f"{divided}/d"] * bool(divided)])


# -- Expected memory of each pipeline stage's ranks ------------------------------------------------------------------


SLACK = 1.05
"""What is added to activations without sequence parallel for the parts the formula leaves out."""


@dataclass(frozen=True)
class Stage:
    """One pipeline stage's rank. Bytes; parameters is a count. microbatches: those whose activations it holds at once."""

    stage: int
    layers: int
    microbatches: float
    parameters: int
    parameter_bytes: int
    gradient_bytes: int
    main_gradient_bytes: int
    master_bytes: int
    optimizer_bytes: int
    activation_bytes: int
    logits_bytes: int

    @property
    def state_bytes(self) -> int:
        """What stays from step to step: parameters, gradients, master weights and optimizer state."""
        return self.parameter_bytes + self.gradient_bytes + self.main_gradient_bytes + self.master_bytes + self.optimizer_bytes

    @property
    def total_bytes(self) -> int:
        return self.state_bytes + self.activation_bytes + self.logits_bytes


def stages(model: Model, layout: Layout) -> list[Stage]:
    """Returns what a rank of every pipeline stage is expected to hold, first to last."""
    return [stage(model, layout, k) for k in range(layout.pp)]


def stage(model: Model, layout: Layout, k: int) -> Stage:
    """Returns what a rank of stage k (0-based) is expected to hold."""
    dense, experts = parameters(model, layout, k)
    per, of_experts = per_parameter(layout), per_parameter(layout, expert_ranks(layout))

    def size(name: str) -> int:
        of_dense: float = getattr(per, name)
        of_expert: float = getattr(of_experts, name)
        return round(dense * of_dense + experts * of_expert)

    return Stage(
        k, model.layers // layout.pp, in_flight(layout, k), dense + experts, size("parameter"), size("gradient"), size("main_gradient"),
        size("master"), size("optimizer"), activations(model, layout, k), logits(model, layout, k),
    )  # fmt: skip


def expert_tensor_size(layout: Layout) -> int:
    """Returns the tensor parallel size of experts: `etp`, else that of the other layers."""
    return layout.etp or layout.tp


def expert_ranks(layout: Layout) -> int:
    """Returns ranks that hold the same experts: the data parallel size of experts."""
    return max(layout.dp * layout.cp * layout.tp // (layout.ep * expert_tensor_size(layout)), 1)


def dense_on(model: Model, layout: Layout, k: int) -> int:
    """Returns how many of the first layers without experts stand on stage k; with chunks, each stage has one of every pp chunks."""
    size = model.layers // (layout.pp * layout.vpp)
    starts = [(chunk * layout.pp + k) * size for chunk in range(layout.vpp)] if model.without_experts else []
    return sum(min(max(model.without_experts - start, 0), size) for start in starts)


def parameters(model: Model, layout: Layout, k: int) -> tuple[int, int]:
    """Returns (parameters that all data parallel ranks share, parameters of experts) on a rank of stage k."""
    dense_layers = dense_on(model, layout, k)
    layers = model.layers // layout.pp - dense_layers
    queries = model.attention - model.keys_and_values
    # beyond one head a rank keys and values are repeated
    whole = model.keys_and_values // min(layout.tp, model.kv_heads or model.heads) + model.vectors + model.latent
    divided = model.feed_forward * (model.shared_experts if model.experts else 1)
    dense = layers * ((queries + divided) // layout.tp + whole + model.router)
    dense += dense_layers * ((queries + model.dense_feed_forward) // layout.tp + whole)
    dense += sum(tables(model, layout, k)) + (model.norm if k == layout.pp - 1 else 0)
    dense += model.hidden * model.positions if k == 0 else 0
    return dense, layers * model.feed_forward * model.experts // (layout.ep * expert_tensor_size(layout))


def padded_vocab(model: Model, layout: Layout) -> int:
    """Returns the words of the vocabulary; where tp does not divide them, padded to a multiple of 128 and tp, as frameworks do."""
    step = math.lcm(128, layout.tp)
    return model.vocab if model.vocab % layout.tp == 0 else -(-model.vocab // step) * step


def tables(model: Model, layout: Layout, k: int) -> tuple[int, int]:
    """Returns (parameters of the embedding, of the head) on a rank of stage k. A tied head is the embedding where both stand on one
    stage.
    """
    table = model.hidden * padded_vocab(model, layout)
    first, last = k == 0, k == layout.pp - 1
    embedding = _placed(layout.embedding_placement, table, layout.tp, first)
    shared = model.tied and first and layout.embedding_placement == "own" and layout.head_placement == "own"
    if (shared and last) or (model.tied and layout.pp == 1):
        return embedding, 0
    return embedding, _placed(layout.head_placement, table, layout.tp, last)  # tied: a last stage apart from the first keeps a copy


def _placed(placement: Placement, table: int, tp: int, here: bool) -> int:
    if placement == "all_full":
        return table
    return table // tp if placement == "all" or here else 0


def in_flight(layout: Layout, k: int) -> float:
    """Returns microbatches of whole stages whose activations stage k holds at once: 1F1B, with vpp > 1 interleaved (counted in chunks).

    1F1B: min(m, pp - k). Interleaved: min(m vpp, 2 (pp - k - 1) + (vpp - 1) pp + 1) chunks of a stage's layers / vpp.
    """
    m = layout.held if layout.vpp == 1 else layout.microbatches or 2 * layout.pp
    if layout.vpp == 1:
        return min(m, layout.pp - k)
    return min(m * layout.vpp, 2 * (layout.pp - k - 1) + (layout.vpp - 1) * layout.pp + 1) / layout.vpp


def per_layer(model: Model, layout: Layout, *, dense: bool = False) -> float:
    """Returns bytes of activations of one layer for one microbatch while nothing recomputes it (`none` and `selective`).

    dense: of one of the first layers of a model with experts, which has none.
    """
    return layout.micro_batch * _per_layer(model, layout, dense=dense)


def _per_layer(model: Model, layout: Layout, *, dense: bool = False) -> float:
    """Returns `per_layer` of one sample."""
    s, h, t = layout.seq / layout.cp, model.hidden, layout.tp
    wide = 2 if layout.number == "fp32" else 1
    width = model.ffn * (model.experts_per_token + model.shared_experts if model.experts else 1)
    width = (model.dense_ffn or model.ffn) if dense else width
    body = (18 + 4 * width / h) / t if layout.sequence_parallel else (10 + 24 / t) * SLACK
    scores = 5 * model.heads * s / h / t if layout.recompute == "none" else 0.0
    return s * h * (body + scores) * wide


@dataclass(frozen=True)
class Activations:
    """Bytes of activations, without logits, for one sample: of each microbatch that a stage holds, and once whatever it holds."""

    each: float
    once: float


def activations_of_a_sample(model: Model, layout: Layout, k: int) -> Activations:
    """Returns what a rank of stage k keeps per sample of a micro-batch. Everything here grows with the micro-batch in proportion."""
    s, h = layout.seq / layout.cp, model.hidden
    split = layout.tp if layout.sequence_parallel else 1
    one, others = _per_layer(model, layout), dense_on(model, layout, k)
    other = _per_layer(model, layout, dense=True) if others else 0.0
    kept = 2 * s * h / split if layout.recompute == "full" else one
    each = kept * model.layers / layout.pp
    if others and layout.recompute != "full":
        each = (model.layers // layout.pp - others) * one + others * other
    once = max(one, other) if layout.recompute == "full" else 0.0
    if k == 0:  # ids of tokens, and the mask of the dropout behind the embedding
        each += (8 * s + s * h) * (1 / layout.tp if layout.sequence_parallel else SLACK)
    if k == layout.pp - 1:  # input of the loss: the final norm's result, and its copy in FP32 or for the head's gradient
        once += 4 * s * h / split
    return Activations(each, once)


def activations(model: Model, layout: Layout, k: int) -> int:
    """Returns bytes of activations on a rank of stage k, without logits."""
    sample = activations_of_a_sample(model, layout, k)
    return round(layout.micro_batch * (sample.each * in_flight(layout, k) + sample.once))


def logits(model: Model, layout: Layout, k: int) -> int:
    """Returns bytes of the FP32 logits and their gradient on a rank of stage k: `2 · 4 s b V / tp` on the last stage, whole with a full
    head.
    """
    if k != layout.pp - 1:
        return 0
    split = 1 if layout.head_placement == "all_full" else layout.tp
    return round(2 * 4 * layout.seq / layout.cp * layout.micro_batch * padded_vocab(model, layout) / split)
