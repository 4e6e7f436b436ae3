"""What can be asked of expected memory, and what its tables hold."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from tb_sol_plugin.metrics import peers
from tb_sol_plugin.model.report import Column
from tb_sol_plugin.model.selection import Query


class MemoryExpectedQuery(Query, kw_only=True, frozen=True):
    """Sizes of the model and its layout. What is left open is as recorded; what is said here stands over it.

    preset: sizes of a published model in place of the recorded ones
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
    GROUPS: ClassVar[dict[str, tuple[str, ...]]] = {
        "Model": (
            "preset", "hidden", "layers", "vocab", "ffn", "heads", "kv_heads", "channels", "experts", "experts_per_token", "gated",
            "rms_norm", "tied",
        ),
        "Layout": ("tp", "pp", "dp", "micro_batch", "vpp", "cp", "ep", "etp", "world"),
        "Training": (
            "seq", "recompute", "dtype", "optimizer", "sharding", "sequence_parallel", "microbatches", "distributed_optimizer",
            "embedding_placement", "head_placement",
        ),
    }  # fmt: skip
    SELDOM: ClassVar[tuple[str, ...]] = (
        "vpp", "cp", "ep", "etp", "world", "microbatches", "distributed_optimizer", "embedding_placement", "head_placement", "channels",
        "experts", "experts_per_token", "gated", "rms_norm", "tied", "sequence_parallel",
    )  # fmt: skip


PARTS: Final = (
    Column("rank", "Rank", doc="rank of the worker, as recorded or as its name says", missing="not known"),
    Column("stage", "Stage", doc="pipeline stage of the rank, from 0", missing="not known"),
    Column("part", "Part", doc="what is held; main parameters are the FP32 master weights", show="text"),
    Column("expected_bytes", "Expected", "B", "by formula, of a rank of this stage",
           missing="there is no formula for it, or sizes for it are not known"),
    Column("actual_bytes", "Actual", "B", "as recorded", missing="not recorded: the last column says how to"),
    Column("difference_bytes", "Difference", "B", "actual less expected", missing="one of the two is not known"),
    Column("of_expected", "Difference", "ratio", "difference over expected",
           missing="one of the two is not known, or nothing is expected"),
    Column("verdict", "Verdict", doc="ok: at most 5 % apart; more; less; not recorded; no expectation", show="badge"),
    Column("formula", "Formula", doc="how the expected bytes are worked out; the table of formulas has all steps", show="code",
           missing="no formula"),
    Column("inputs", "Inputs", doc="what was put in", show="code", rank=3, missing="no formula"),
    Column("source", "Actual from", doc="where the actual bytes are from, or what would tell them", show="text", rank=2),
    Column("worker", "Worker", doc="name of the worker", show="code", rank=3),
    Column("tp", "TP", doc="tensor parallel rank and size", rank=3, missing="not recorded"),
    Column("dp", "DP", doc="data parallel rank and size", rank=3, missing="not recorded"),
    Column("id", "Id", doc="stable key of the row", rank=3),
)  # fmt: skip
CAPTURED: Final = (
    Column("rank", "Rank", doc="rank of the worker", missing="not known"),
    Column("Actual_Captured_Master_Weight_MB", "Actual_Captured_Master_Weight_MB",
           doc="FP32 master weights on this rank, in MiB, as Megatron prints them", missing="no optimizer was looked at"),
    Column("Actual_Captured_Main_Grad_Mem_MB", "Actual_Captured_Main_Grad_Mem_MB", doc="FP32 main gradients on this rank, in MiB",
           missing="no optimizer was looked at"),
    Column("parameters", "Parameters", "count", "parameters that the program counted on this rank", missing="the model was not looked at"),
    Column("expected_parameters", "By formula", "count", "parameters that the formula gives a rank of its stage",
           missing="sizes of the model are not known"),
    Column("parameters_verdict", "Verdict", doc="ok: at most 5 % apart; more; less; not recorded; no expectation", show="badge"),
    Column("unknown_bytes", "Unknown", "B", "of all that was in use at the largest record, what nothing explains; negative: something is "
           "counted twice", missing="not recorded"),
    Column("in_all_bytes", "In all", "B", "what was in use at that record, which its categories add up to", rank=2, missing="not recorded"),
    Column("in_all_of", "Of", doc="what that is: device_used, allocated, or process_used (of a CPU)", show="code", rank=2,
           missing="not recorded"),
    Column("Actual_Captured_Master_Weight_bytes", "Master weights", "B", "FP32 master weights, exactly", rank=3,
           missing="no optimizer was looked at"),
    Column("Actual_Captured_Main_Grad_Mem_bytes", "Main gradients", "B", "FP32 main gradients, exactly", rank=3,
           missing="no optimizer was looked at"),
    Column("worker", "Worker", doc="name of the worker", show="code", rank=3),
)  # fmt: skip
RECORDS: Final = (
    Column("rank", "Rank", doc="rank of the worker", missing="not known"),
    Column("tag", "Record", doc="name that the program gave the record; iteration: made at the end of one", show="code"),
    Column("iteration", "Iteration", "", "iteration that ran", missing="before the first one"),
    Column("total_bytes", "In use", "B", "what the categories add up to, exactly", show="stack",
           parts=("base_context_bytes", "nccl_bytes", "others_bytes", "params_bytes", "gradients_bytes", "master_weights_bytes",
                  "optimizer_bytes", "buffers_bytes", "fragmentation_bytes", "unknown_bytes"),
           part_colors=("host", "DtoD", "memset", "compute", "communication", "conv", "norm", "gemm", "bar-ink", "idle")),
    Column("of", "Of", doc="device_used: the device; allocated: the allocator; process_used: the process, of a CPU", show="code", rank=2),
    Column("base_context_bytes", "Base", "B", "context of the device; of a CPU the process before the model", missing="not recorded"),
    Column("nccl_bytes", "NCCL", "B", "what came with the process group: the gain between records before the first iteration", rank=2,
           missing="no second record before the first iteration"),
    Column("others_bytes", "Others", "B", "other processes on the device", rank=2, missing="the driver does not tell"),
    Column("params_bytes", "Parameters", "B", "parameters", missing="not looked at"),
    Column("buffers_bytes", "Buffers", "B", "buffers of the model", rank=3, missing="not looked at"),
    Column("gradients_bytes", "Gradients", "B", "gradients and main gradients", missing="not looked at"),
    Column("master_weights_bytes", "Master", "B", "master weights", missing="no optimizer was looked at"),
    Column("optimizer_bytes", "Optimizer", "B", "both moments and other state of the optimizer", missing="no optimizer was looked at"),
    Column("fragmentation_bytes", "Held", "B", "reserved by the allocator, and not in use", rank=2, missing="not recorded"),
    Column("unknown_bytes", "Unknown", "B", "the rest, activations among it; negative: something is counted twice"),
    Column("worker", "Worker", doc="name of the worker", show="code", rank=3),
)  # fmt: skip
SIZES: Final = (
    Column("name", "Size", doc="as it is called in the plan", show="code"),
    Column("value", "Value", doc="what the formulas are given"),
    Column("from", "From", doc="asked for, recorded (and where it stood), of the preset, or assumed since nobody says", show="text"),
)
FORMULAS: Final = (
    Column("figure", "Figure", doc="what is worked out", show="text"),
    Column("stage", "Stage", doc="pipeline stage it is of", missing="it is of the whole model"),
    Column("formula", "Formula", doc="how; each letter stands among the inputs", show="code"),
    Column("inputs", "Inputs", doc="what is put in", show="code"),
    Column("count", "Result", "count", "the result where it is a number of things", missing="the result is in bytes"),
    Column("bytes", "Result", "B", "the result where it is bytes", missing="the result is a number of things"),
)
TABLES: Final = {"parts": PARTS, "captured": CAPTURED, "records": RECORDS, "sizes": SIZES, "formulas": FORMULAS, "left_out": peers.LEFT_OUT}
FACTS: Final = {
    "workers": "workers of the run",
    "workers_read": "those whose recording could be read",
    "expected_bytes": "expected on the rank whose actual total is the largest (of all ranks where none has one), by formula",
    "actual_bytes": "in use at most on that rank",
    "difference_bytes": "actual less expected",
    "parts_compared": "parts of all ranks that have both an expected and an actual number",
    "parts_ok": "of these, at most 5 % apart",
    "worst_part": "the part whose actual and expected bytes lie farthest apart",
    "worst_rank": "its rank",
    "worst_difference_bytes": "its actual less expected bytes",
    "model_parameters": "parameters of the whole model by formula",
    "Actual_Captured_Master_Weight_MB": "FP32 master weights in MiB, the most of any rank",
    "Actual_Captured_Main_Grad_Mem_MB": "FP32 main gradients in MiB, the most of any rank",
}
