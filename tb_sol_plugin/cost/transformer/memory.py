"""Computes the memory of a transformer from its sizes and its layout over devices."""

from __future__ import annotations

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
    """hidden h, layers L, vocab V (padded), ffn f, heads a, kv_heads g, channels per head (0: h / a), experts (0: a dense feed-forward).

    gated: the feed-forward has three matrices (SwiGLU), else two. rms_norm: norms of one vector each, else of two. tied: the head is the
    embedding. experts_per_token: experts a token goes through.
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

    @property
    def attention(self) -> int:
        """Parameters of the attention of one layer: `2 h² (1 + g/a) (kv a / h)`."""
        return 2 * self.hidden * self.width + self.keys_and_values

    @property
    def width(self) -> int:
        """Channels of all query heads: h, unless the channels of a head are given."""
        return (self.channels or self.hidden // self.heads) * self.heads

    @property
    def keys_and_values(self) -> int:
        """Parameters of what makes keys and values in one layer: `2 h² (g/a) (kv a / h)`."""
        return 2 * self.hidden * self.width * (self.kv_heads or self.heads) // self.heads

    @property
    def feed_forward(self) -> int:
        """Parameters of one feed-forward (of one expert): `2 h f`, times 3/2 if gated."""
        return (3 if self.gated else 2) * self.hidden * self.ffn

    @property
    def norm(self) -> int:
        """Parameters of one norm."""
        return self.hidden if self.rms_norm else 2 * self.hidden

    @property
    def router(self) -> int:
        """Parameters of the router of one layer; 0 without experts."""
        return self.hidden * self.experts

    @property
    def layer(self) -> int:
        """Parameters of one layer with its two norms."""
        return self.attention + self.feed_forward * max(self.experts, 1) + self.router + 2 * self.norm

    @property
    def parameters(self) -> int:
        """Parameters of the whole model: layers, embedding, head unless tied, final norm."""
        return self.layer * self.layers + self.hidden * self.vocab * (1 if self.tied else 2) + self.norm


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
    "gpt3-175b": Model(hidden=12288, layers=96, vocab=51200, ffn=49152, heads=96, gated=False, rms_norm=False, tied=True),
}
"""Published sizes; the vocabulary of GPT-3 as padded for tensor parallel training.

Sources: Touvron et al. 2023 (LLaMA, Llama 2 70B); Llama team 2024, table 3 (Llama 3); Jiang et al. 2023 and 2024 (Mistral 7B, Mixtral
8x7B); Brown et al. 2020 (GPT-3).
"""


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


def parameters(model: Model, layout: Layout, k: int) -> tuple[int, int]:
    """Returns (parameters that all data parallel ranks share, parameters of experts) on a rank of stage k."""
    layers = model.layers // layout.pp
    queries = model.attention - model.keys_and_values
    split = (queries + (0 if model.experts else model.feed_forward)) // layout.tp
    split += model.keys_and_values // min(layout.tp, model.kv_heads or model.heads)  # beyond one head a rank they are repeated
    dense = layers * (split + 2 * model.norm + model.router)
    dense += sum(tables(model, layout, k)) + (model.norm if k == layout.pp - 1 else 0)
    return dense, layers * model.feed_forward * model.experts // (layout.ep * expert_tensor_size(layout))


def tables(model: Model, layout: Layout, k: int) -> tuple[int, int]:
    """Returns (parameters of the embedding, of the head) on a rank of stage k. A tied head is the embedding where both stand on one
    stage.
    """
    table = model.hidden * model.vocab
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


def per_layer(model: Model, layout: Layout) -> float:
    """Returns bytes of activations of one layer for one microbatch while nothing recomputes it (`none` and `selective`)."""
    return layout.micro_batch * _per_layer(model, layout)


def _per_layer(model: Model, layout: Layout) -> float:
    """Returns `per_layer` of one sample."""
    s, h, t = layout.seq / layout.cp, model.hidden, layout.tp
    wide = 2 if layout.number == "fp32" else 1
    width = model.ffn * (model.experts_per_token if model.experts else 1)
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
    one = _per_layer(model, layout)
    kept = 2 * s * h / split if layout.recompute == "full" else one
    each = kept * model.layers / layout.pp
    once = one if layout.recompute == "full" else 0.0
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
    return round(2 * 4 * layout.seq / layout.cp * layout.micro_batch * model.vocab / split)
