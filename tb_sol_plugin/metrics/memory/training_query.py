"""Fields that ask about a transformer in training: a model, how it is spread, how it is trained."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from tb_sol_plugin.model.query import Query

MODEL: Final = (
    "preset", "hidden", "layers", "vocab", "ffn", "heads", "kv_heads", "channels", "experts", "experts_per_token", "gated", "rms_norm",
    "tied",
)  # fmt: skip
LAYOUT: Final = ("tp", "pp", "dp", "micro_batch", "vpp", "cp", "ep", "etp", "world")
TRAINING: Final = (
    "seq", "recompute", "dtype", "optimizer", "sharding", "sequence_parallel", "microbatches", "distributed_optimizer",
    "embedding_placement", "head_placement",
)  # fmt: skip
"""Fields by what they are of, in the order of a page."""


class TrainingQuery(Query, kw_only=True, frozen=True):
    """A model and how it is trained.

    preset: sizes of a published model
    hidden: width of the model, h
    layers: transformer layers, L
    vocab: words of the vocabulary as padded for tensor parallelism, V
    ffn: width of the feed-forward, f
    heads: attention heads, a
    kv_heads: heads of keys and values, g (0 = as many as heads)
    channels: channels of a head (0 = h / a)
    gated: the feed-forward has three matrices (SwiGLU), else two
    rms_norm: norms of one vector each, else of two
    tied: the head is the embedding
    experts: experts of a layer (0 = a dense feed-forward)
    experts_per_token: experts that a token goes through
    tp: tensor parallel size
    pp: pipeline stages
    dp: data parallel size
    micro_batch: samples of a microbatch, b
    vpp: chunks of layers per pipeline stage (1 = not interleaved)
    cp: context parallel size
    ep: expert parallel size
    etp: tensor parallel size of the experts (0 = as tp)
    world: devices in all; gives the data parallel size where that is left open
    seq: tokens of a sequence, s
    microbatches: per step and pipeline (0 = at least as many as there are stages)
    sequence_parallel: tensor parallel ranks divide the sequence outside of matrix products
    recompute: what the backward pass computes again: nothing, attention scores (what fused attention does too), or whole layers
    dtype: type of parameters and activations; bf16 and fp16 train with FP32 master weights and main gradients
    optimizer: what the state per parameter follows from
    distributed_optimizer: data parallel ranks divide master weights and optimizer state (the same as sharding = optimizer)
    sharding: what data parallel ranks divide: nothing, optimizer state (ZeRO-1), gradients too (ZeRO-2), parameters too (ZeRO-3, FSDP)
    embedding_placement: own: on the first stage, over tp; all: on every stage, over tp; all_full: whole on every rank
    head_placement: own: on the last stage, over tp; all: on every stage, over tp; all_full: whole on every rank
    """

    preset: Literal["", "llama-7b", "llama-13b", "llama-70b", "gpt3-175b"] = ""
    hidden: int | None = None
    layers: int | None = None
    vocab: int | None = None
    ffn: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    channels: int | None = None
    gated: bool | None = None
    rms_norm: bool | None = None
    tied: bool | None = None
    experts: int | None = None
    experts_per_token: int | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    micro_batch: int | None = None
    vpp: int | None = None
    cp: int | None = None
    ep: int | None = None
    etp: int | None = None
    world: int | None = None
    seq: int | None = None
    microbatches: int | None = None
    sequence_parallel: bool | None = None
    recompute: Literal["", "none", "selective", "full"] = ""
    dtype: Literal["", "bf16", "fp16", "fp32"] = ""
    optimizer: Literal["", "adam", "adam8bit", "sgd", "sgd_momentum", "lion"] = ""
    distributed_optimizer: bool | None = None
    sharding: Literal["", "none", "optimizer", "gradients", "full"] = ""
    embedding_placement: Literal["", "own", "all", "all_full"] = ""
    head_placement: Literal["", "own", "all", "all_full"] = ""

    LABELS: ClassVar[dict[str, str]] = {
        "hidden": "Hidden size", "vocab": "Vocabulary", "ffn": "Feed-forward", "kv_heads": "KV heads", "channels": "Channels per head",
        "gated": "Gated feed-forward", "rms_norm": "RMS norm", "tied": "Tied embedding", "experts_per_token": "Experts per token",
        "tp": "Tensor parallel", "pp": "Pipeline stages", "dp": "Data parallel", "micro_batch": "Micro-batch", "vpp": "Chunks per stage",
        "cp": "Context parallel", "ep": "Expert parallel", "etp": "Expert tensor parallel", "world": "Devices in all", "seq": "Sequence",
        "microbatches": "Microbatches", "sequence_parallel": "Sequence parallel", "dtype": "Type", "embedding_placement": "Embedding",
        "head_placement": "Head", "distributed_optimizer": "Distributed optimizer", "sharding": "Sharding",
    }  # fmt: skip
    SELDOM: ClassVar[tuple[str, ...]] = (
        "vpp", "cp", "ep", "etp", "world", "microbatches", "distributed_optimizer", "embedding_placement", "head_placement", "channels",
        "experts", "experts_per_token", "gated", "rms_norm", "tied",
    )  # fmt: skip
