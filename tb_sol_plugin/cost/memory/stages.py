"""Expected memory of each pipeline stage's ranks: parameters, gradients, optimizer state, activations, logits.

Parameters: attention and feed-forward are divided over tensor parallel ranks, norms and routers are not; experts over ep × etp.
Activations, bytes per layer and microbatch in 16 bits, for s tokens of b samples (after Korthikanti et al., Reducing Activation
Recomputation in Large Transformer Models, 2022, equations 2 and 4, with the feed-forward's real width f):
with sequence parallel `s b h (18 + 4 f/h) / tp`, without `s b h (10 + 24/tp)`; attention scores, where nothing recomputes them and no
fused attention avoids them, `5 a s² b / tp` more; with full recompute the layer's input alone, `2 s b h`, and one layer while it runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from tb_sol_plugin.cost.memory.layout import Layout, Model, Placement
from tb_sol_plugin.cost.memory.state import per_parameter

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
    """What a rank of every pipeline stage is expected to hold, first to last."""
    return [stage(model, layout, k) for k in range(layout.pp)]


def stage(model: Model, layout: Layout, k: int) -> Stage:
    """What a rank of stage k (0-based) is expected to hold."""
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


def _etp(layout: Layout) -> int:
    return layout.etp or layout.tp


def expert_ranks(layout: Layout) -> int:
    """Ranks that hold the same experts: the data parallel size of experts."""
    return max(layout.dp * layout.cp * layout.tp // (layout.ep * _etp(layout)), 1)


def parameters(model: Model, layout: Layout, k: int) -> tuple[int, int]:
    """(parameters that all data parallel ranks share, parameters of experts) on a rank of stage k."""
    layers = model.layers // layout.pp
    queries = model.attention - model.keys_and_values
    split = (queries + (0 if model.experts else model.feed_forward)) // layout.tp
    split += model.keys_and_values // min(layout.tp, model.kv_heads or model.heads)  # beyond one head a rank they are repeated
    dense = layers * (split + 2 * model.norm + model.router)
    dense += sum(tables(model, layout, k)) + (model.norm if k == layout.pp - 1 else 0)
    return dense, layers * model.feed_forward * model.experts // (layout.ep * _etp(layout))


def tables(model: Model, layout: Layout, k: int) -> tuple[int, int]:
    """(parameters of the embedding, of the head) on a rank of stage k. A tied head is the embedding where both stand on one stage."""
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
    """Microbatches of whole stages whose activations stage k holds at once: 1F1B, with vpp > 1 interleaved (counted in chunks).

    1F1B: min(m, pp - k). Interleaved: min(m vpp, 2 (pp - k - 1) + (vpp - 1) pp + 1) chunks of a stage's layers / vpp.
    """
    m = layout.held if layout.vpp == 1 else layout.microbatches or 2 * layout.pp
    if layout.vpp == 1:
        return min(m, layout.pp - k)
    return min(m * layout.vpp, 2 * (layout.pp - k - 1) + (layout.vpp - 1) * layout.pp + 1) / layout.vpp


def per_layer(model: Model, layout: Layout) -> float:
    """Bytes of activations of one layer for one microbatch while nothing recomputes it (`none` and `selective`)."""
    return layout.micro_batch * _per_layer(model, layout)


def _per_layer(model: Model, layout: Layout) -> float:
    """`per_layer` of one sample."""
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
    """What a rank of stage k keeps per sample of a micro-batch. Everything here grows with the micro-batch in proportion."""
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
    """Bytes of activations on a rank of stage k, without logits."""
    sample = activations_of_a_sample(model, layout, k)
    return round(layout.micro_batch * (sample.each * in_flight(layout, k) + sample.once))


def logits(model: Model, layout: Layout, k: int) -> int:
    """Bytes of the FP32 logits and their gradient on a rank of stage k: `2 · 4 s b V / tp` on the last stage, whole with a full head."""
    if k != layout.pp - 1:
        return 0
    split = 1 if layout.head_placement == "all_full" else layout.tp
    return round(2 * 4 * layout.seq / layout.cp * layout.micro_batch * model.vocab / split)
