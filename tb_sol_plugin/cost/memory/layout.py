"""The sizes of a transformer, and how it is spread over devices."""

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
    "gpt3-175b": Model(hidden=12288, layers=96, vocab=51200, ffn=49152, heads=96, gated=False, rms_norm=False, tied=True),
}
"""Published sizes; the vocabulary of GPT-3 as padded for tensor parallel training."""
