"""Reads what one rank held of each part that a plan of its memory names: as its program recorded it, else by a trace or timeline.

A part that nobody recorded is unknown, with the reason; one that is worked out from something else is estimated, with how.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory import budget as B
from tb_sol_plugin.metrics.memory.attribution import attribution
from tb_sol_plugin.metrics.memory.curves import Curves, whole
from tb_sol_plugin.metrics.memory.fragmentation import unthinned
from tb_sol_plugin.metrics.memory.leaks import line_through, per_step, warm_up
from tb_sol_plugin.metrics.memory.sources import is_host, number_of
from tb_sol_plugin.metrics.memory.summary import Headroom, headroom, of_device
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.units import human

PARTS: Final[dict[str, tuple[str, ...]]] = {
    "parameters": ("params",),
    "main_parameters": ("master_weights",),
    "gradients": ("grads",),
    "main_gradients": ("main_grads",),
    "optimizer_state": ("exp_avg", "exp_avg_sq", "other_optimizer"),
}
"""Parts of a plan that a record counts, and their categories there."""
ROWS: Final = (*PARTS, "activations", "logits", "total", "base", "other")
"""All parts, in the order of the page. total: in use at most; base: context and NCCL, or the process before the model; other: what is in
none of them: buffers, fragmentation, other processes, and what is unknown."""
NOTHING: Final = "record memory in the program: sol.capture(..., memory=True, optimizer=optimizer)"
NO_GRADIENTS: Final = 'no record between backward and optimizer: tracker.record_memory("after backward")'
NO_OPTIMIZER: Final = "the optimizer was not given: sol.capture(..., memory=True, optimizer=optimizer)"
NO_PEAK: Final = "no peak was recorded: of a CPU a trace has it, with profile(profile_memory=True)"
WITHIN: Final = "recorded together with activations"
HOST: Final = -1
REST: Final = {
    "buffers": "buffers", "others": "other processes", **{name: name for name in B.UNSEEN}, "fragmentation": "reserved but not in use",
    "unknown": "unknown",
}  # fmt: skip
"""Categories of a record that no other part has."""
_WIDE: Final = ("fp32", "fp64")


@dataclass(frozen=True)
class Amount:
    """The bytes of one part, or why they are unknown.

    bytes: None unknown, then `why` says what would tell. estimated: how it was worked out, "" where it was read. source: from where.
    """

    bytes: int | None
    source: str = ""
    estimated: str = ""
    why: str = ""


@dataclass(frozen=True)
class Actual:
    """What one rank held of each part of a plan.

    device: index, -1 the host. parts: an amount for each of ROWS. unknown: bytes of `other` that nothing explains, and the
    whole that they are of (see `budget.OF`); flag: negative, large or "". parameters: numbers of the model on this rank; dtype: of most.
    optimizer: adam where both of its moments were seen in FP32, "" unknown.

    master_weight_bytes, main_grad_bytes: FP32 master weights and main gradients, the largest of all records; None where not looked for.
    """

    device: int
    parts: dict[str, Amount]
    unknown: int | None
    of: str
    whole: int | None
    flag: str
    parameters: int | None
    dtype: str
    optimizer: str
    master_weight_bytes: int | None
    main_grad_bytes: int | None


def actual(capture: Capture) -> Actual:
    """Returns what the rank of a capture held. Of parts that come and go it is the most that a record saw."""
    device, sizes = _model_device(capture)
    found: dict[str, Amount] = {name: _of_records(sizes, name) for name in PARTS}
    if found["gradients"].bytes == 0 and not found["main_gradients"].bytes:
        found["gradients"] = Amount(None, why=NO_GRADIENTS)
    curves = [c for c in whole(capture) if sizes.empty or _same(c, device)]
    _of_timeline(capture, curves, found)
    found["total"] = _peak(capture, curves, device, sizes)
    found["activations"] = _activations(capture, curves, device, sizes, found["total"])
    found["logits"] = Amount(None, why=WITHIN)
    found["base"] = _base(capture, device)
    rest, left, of, total, flag = _rest(capture, device)
    found["other"] = rest
    count, dtype = _parameters(capture, device)
    masters, main_gradients = (_wide(capture, device, name) for name in ("master_weights", "main_grads"))
    moments = [_wide(capture, device, name) for name in ("exp_avg", "exp_avg_sq")]
    kind = "adam" if all(moments) and moments[0] == moments[1] else ""
    parts = {name: found[name] for name in ROWS}
    return Actual(device, parts, left, of, total, flag, count, dtype, kind, masters, main_gradients)


# -- a recorder in the program ------------------------------------------------------------------------------------


def _model_device(capture: Capture) -> tuple[int, pd.DataFrame]:
    """Returns the device that most of the model lies on, and bytes by record (index: its row) and category there.

    NaN where not looked for.
    """
    parts, records = capture.tables[S.MEMORY_PARTS.name], capture.tables[S.MEMORY_RECORDS.name]
    device = records["device"].to_numpy()
    if not len(parts):
        known = device[device >= 0]
        return (int(known[0]) if len(known) else HOST), pd.DataFrame()
    row = parts["record"].to_numpy().astype(np.int64)
    at = device[row]
    size = parts["bytes"].to_numpy()
    sums = {int(d): int(size[at == d].sum()) for d in np.unique(at)}
    most = max(sums, key=lambda d: sums[d])
    own = at == most
    frame = pd.DataFrame({"record": row[own], "category": parts["category"].astype(str).to_numpy()[own], "bytes": size[own]})
    return most, frame.pivot_table(index="record", columns="category", values="bytes", aggfunc="sum")


def _of_records(sizes: pd.DataFrame, name: str) -> Amount:
    """Returns the most of a part that one record saw."""
    wanted = [c for c in PARTS[name] if c in sizes.columns]
    if not wanted:
        return Amount(None, why=NOTHING if sizes.empty or name in ("parameters", "gradients") else NO_OPTIMIZER)
    return Amount(int(sizes[wanted].sum(axis=1).max()), "recorded in the program")


def _parameters(capture: Capture, device: int) -> tuple[int | None, str]:
    """Returns (numbers of all parameters on this rank, type that most bytes have) of the record that saw most of them."""
    parts, records = capture.tables[S.MEMORY_PARTS.name], capture.tables[S.MEMORY_RECORDS.name]
    own = (arrays.where(parts["category"], lambda c: c == "params")) & (records["device"].to_numpy()[parts["record"].to_numpy()] == device)
    frame = parts[own]
    if not len(frame) or not int(frame["tensors"].sum()):
        return None, ""
    last = frame[frame["record"] == int(frame.groupby("record")["view_bytes"].sum().idxmax())]
    by = last.groupby(last["dtype"].astype(str))["view_bytes"].sum()
    widths = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
    if not set(by.index) <= set(widths):
        return None, str(by.idxmax())
    return sum(int(size) // widths[str(name)] for name, size in by.items()), str(by.idxmax())


def _wide(capture: Capture, device: int, category: str) -> int | None:
    """Returns bytes of a category in FP32 (or wider), the most that one record saw; None where it was not looked for."""
    parts, records = capture.tables[S.MEMORY_PARTS.name], capture.tables[S.MEMORY_RECORDS.name]
    own = parts[arrays.where(parts["category"], lambda c: c == category)]
    own = own[records["device"].to_numpy()[own["record"].to_numpy()] == device]
    if not len(own):
        return None
    size = own["bytes"].where(arrays.where(own["dtype"], lambda d: d in _WIDE), 0)
    return int(size.groupby(own["record"].to_numpy()).sum().max())


def _same(curve: Curves, device: int) -> bool:
    """Returns whether a curve may be of the device that the model lies on; one that names none may."""
    if is_host(curve.device):
        return device < 0
    number = number_of(curve.device)
    return number == device or (number < 0 and curve.source == "timeline")


# -- over time ----------------------------------------------------------------------------------------------------


def _of_timeline(capture: Capture, curves: list[Curves], found: dict[str, Amount]) -> None:
    """Fills in what no record reports from the categories of a timeline at its peak."""
    curve = next((c for c in curves if c.source == "timeline"), None)
    if curve is None:
        return
    sizes = {str(n): int(b) for n, b in zip(*(attribution(capture, curve, "category").rows[c] for c in ("name", "bytes")), strict=True)}
    names = {"parameters": "params", "gradients": "grads", "optimizer_state": "optimizer"}
    for part, name in names.items():
        if found[part].bytes is None and sizes.get(name):
            found[part] = Amount(sizes[name], "memory timeline, at its peak", "as torch recorded what tensors are for")


def _peak(capture: Capture, curves: list[Curves], device: int, sizes: pd.DataFrame) -> Amount:
    """Returns the peak in use: as the allocator reports it, else of a curve with levels; of the host what was counted and a trace."""
    records = capture.tables[S.MEMORY_RECORDS.name]
    most = records["max_allocated"].to_numpy()[(records["device"].to_numpy() == device) & (records["device"].to_numpy() >= 0)]
    if len(most) and int(most.max()) >= 0:
        return Amount(int(most.max()), "the allocator's own peak, recorded in the program")
    named = {"events": "memory events of the trace, at their peak", "snapshot": "allocator snapshot, at its peak",
             "timeline": "memory timeline, at its peak"}  # fmt: skip
    for curve in curves:
        if curve.source in named and not curve.relative and (not is_host(curve.device) or curve.source == "timeline"):
            return Amount(curve.peak, named[curve.source])
    for curve in curves:
        if curve.source == "events" and is_host(curve.device) and not sizes.empty:
            # Totals of the host begin at 0 with the first profiler, so that they lack what the program held before.
            times = records["time_ns"].to_numpy()[sizes.index.to_numpy()]
            begin = int(curve.time_ns[0])
            before = np.flatnonzero(times <= begin)
            near = int(before[np.argmax(times[before])]) if len(before) else int(np.argmin(times))
            by_name = int(sizes.iloc[near].sum())
            return Amount(
                by_name + curve.peak - max(curve.before, 0), "records of the program and the trace",
                "what the program counted before, and what the trace saw added since its beginning",
            )  # fmt: skip
    return Amount(None, why=NO_PEAK)


def _activations(capture: Capture, curves: list[Curves], device: int, sizes: pd.DataFrame, total: Amount) -> Amount:
    """Returns what is kept for the backward pass at the peak: as a timeline or a trace reports it, else what is left of the peak."""
    for source, name in (("timeline", "memory timeline, at its peak"), ("events", "trace, at its peak")):
        curve = next((c for c in curves if c.source == source), None)
        if curve is None:
            continue
        rows = attribution(capture, curve, "category").rows
        by_name = rows[rows["name"] == "activations"]
        if len(by_name):
            guess = bool(by_name["estimated"].any())
            return Amount(int(by_name["bytes"].sum()), name, "worked out from where memory was allocated and freed" if guess else "")
    stays = [c for c in ("params", "buffers", "main_grads", *PARTS["main_parameters"], *PARTS["optimizer_state"]) if c in sizes.columns]
    if device >= 0 and total.bytes is not None and stays:
        left = total.bytes - int(sizes[stays].sum(axis=1).max())
        return Amount(left, "records of the program", "what is left of the peak without what stays; gradients may be in it")
    return Amount(None, why="a trace with profile(profile_memory=True) records them, or a memory timeline")


# -- outside, and what is left ---------------------------------------------------------------------------------------


def _base(capture: Capture, device: int) -> Amount:
    records, unknown = capture.tables[S.MEMORY_RECORDS.name], Amount(None, why='record it before the model: record_base_memory("start")')
    if not len(records):
        return unknown
    found = B.budget(capture)
    own = found[(records["device"].to_numpy()[found["record"].to_numpy()] == device) & found["known"].to_numpy()]
    around = own[own["category"].isin(("base_context", "nccl"))]
    if not len(around):
        return unknown
    size = int(around.groupby("record")["bytes"].sum().iloc[-1])
    return Amount(size, "the process before the model" if device < 0 else "context, and what the process group added")


def _rest(capture: Capture, device: int) -> tuple[Amount, int | None, str, int | None, str]:
    """Returns (all in no other part, what is unknown of it, what the parts add up to, that, flag) of the largest record with parts."""
    if not len(capture.tables[S.MEMORY_RECORDS.name]):
        return Amount(None, why=NOTHING), None, "", None, ""
    whole_of, parts = B.totals(capture), capture.tables[S.MEMORY_PARTS.name]
    records = capture.tables[S.MEMORY_RECORDS.name]
    row = whole_of["record"].to_numpy()
    seen = np.isin(row, parts["record"].to_numpy()) & (records["device"].to_numpy()[row] == device)
    with_parts = whole_of[seen & (whole_of["of"].astype(str).to_numpy() != "parts")]
    if not len(with_parts):
        return Amount(None, why=NOTHING), None, "", None, ""
    one = with_parts.loc[with_parts["total"].idxmax()]
    found = B.budget(capture)
    own = found[found["record"] == one["record"]]
    rest = own[own["category"].isin(REST)]
    iteration = int(records["iteration"].iloc[int(one["record"])])
    where = f"record of iteration {iteration}" if iteration >= 0 else "record before the first iteration"
    made = [f"{REST[str(c)]} {human(int(b), 'B')}" for c, b in zip(rest["category"], rest["bytes"], strict=True) if b or c == "unknown"]
    amount = Amount(int(rest["bytes"].sum()), f"{where}: {', '.join(made)}")
    return amount, int(one["unknown"]), str(one["of"]), int(one["total"]), str(one["flag"])


# -- batch -----------------------------------------------------------------------------------------------------------
#     peak = a + b x batch        largest = batch + headroom / b, headroom at the smallest batch of those recorded
#
# a holds parameters and the state of optimizers, b the activations of one sample. It is an estimate: workspaces, fragmentation and
# lengths of
# sequences do not grow in a straight line.


WHY: Final = "a straight line through the peaks of the recorded batch sizes"
NO_BATCH: Final = "batch sizes were not recorded: track the loop with sol.capture(logdir, model=model, memory=True, memory_peaks=True)"
ONE_BATCH: Final = "one batch size was recorded: record a few iterations with another one, larger or smaller, in the same run"
NO_PEAKS: Final = (
    "peaks of single iterations were not recorded: record them with sol.capture(..., memory_peaks=True), or a trace of these iterations"
)
NOT_GROWING: Final = "memory in use does not grow with the batch"


@dataclass(frozen=True)
class Point:
    """Peak of memory in use (bytes) of iterations with one batch size; reserved: at most in them, -1 unknown; count: of iterations."""

    batch: int
    peak: int
    reserved: int
    count: int


@dataclass(frozen=True)
class Batch:
    """A line through memory peaks by batch size, and the largest batch that fits.

    points: by batch size, ascending. fixed, per_sample: a and b in bytes; largest: samples, None unknown, and `why`.
    """

    points: tuple[Point, ...]
    fixed: float | None
    per_sample: float | None
    largest: int | None
    why: str


def maximum_batch(capture: Capture, curve: Curves, *, limits: str = "") -> Batch:
    """Estimates the largest batch for the device of a curve, by the source that knows the peaks of most batch sizes."""
    room = headroom(capture, curve, limits=limits)
    every = [points_of(capture, c) for c in of_device(capture, curve) if not c.relative]
    points = max(every, key=len) if every else ()
    if not points:
        known = bool((capture.tables[S.ITERATIONS.name]["batch"].to_numpy() > 0).any())
        return Batch((), None, None, None, NO_PEAKS if known else NO_BATCH)
    return estimated(points, room)


def points_of(capture: Capture, curve: Curves) -> tuple[Point, ...]:
    """Returns peaks by batch size, of steps in which a tracker counted samples. First iterations that stand apart are left out."""
    return memo(capture, ("memory.batch", curve.device, curve.source), lambda: _points_of(capture, unthinned(capture, curve)))


def _points_of(capture: Capture, curve: Curves) -> tuple[Point, ...]:
    table = capture.tables[S.ITERATIONS.name]
    batches = dict(zip(table["number"].tolist(), table["batch"].tolist(), strict=True))
    steps = per_step(capture, curve)
    steps = steps[steps["most"].to_numpy() >= 0]
    if not len(steps) or not batches:
        return ()
    steps = steps.iloc[min(warm_up(steps["least"].to_numpy(np.float64)), max(len(steps) - 2, 0)) :]
    batch = np.array([batches.get(n, -1) for n in steps["step"].tolist()], np.int64)
    out = []
    for size in np.unique(batch[batch > 0]).tolist():
        own = steps[batch == size]
        sizes = [_reserved(curve, a, b) for a, b in zip(own["start_ns"].tolist(), own["end_ns"].tolist(), strict=True)]
        out.append(Point(size, int(own["most"].max()), min(sizes), len(own)))
    return tuple(out)


def _reserved(curve: Curves, start: int, end: int) -> int:
    if curve.reserved is None:
        return -1
    return int(curve.reserved[curve.at(start) : curve.at(end) + 1].max())


def estimated(points: Sequence[Point], room: Headroom) -> Batch:
    """Fits the line through the points, and where it meets what the device has left."""
    found = tuple(sorted(points, key=lambda p: p.batch))
    if len(found) < 2:
        return Batch(found, None, None, None, ONE_BATCH)
    x, y = np.array([p.batch for p in found], np.float64), np.array([p.peak for p in found], np.float64)
    per_sample, _ = line_through(x, y)
    fixed = float(y.mean() - per_sample * x.mean())
    if not per_sample > 0:
        return Batch(found, fixed, None, None, NOT_GROWING)
    first = found[0]
    if room.total.bytes is None or room.base.bytes is None:
        return Batch(found, fixed, per_sample, None, room.total.why if room.total.bytes is None else room.base.why)
    left = room.total.bytes - room.base.bytes - max(first.reserved, first.peak)
    return Batch(found, fixed, per_sample, max(first.batch + int(left // per_sample), 0), WHY)


# -- Where a rank stands in a job that splits its work ---------------------------------------------------------------
# stage of the pipeline, part of tensors, replica, as the recorder wrote it.


GROUPS: Final = ("pp", "tp", "dp", "ep", "cp")
_OF: Final = re.compile(r"(\d{1,9}) of (\d{1,9})")


def place(capture: Capture) -> dict[str, tuple[int, int]]:
    """Returns (position, size) of a rank by group: pp, tp, dp, ep, cp, as far as the SOL capture of the worker says.

    {} where there is none.
    """
    out = {}
    for name in GROUPS:
        stated = capture.facts.metadata.get(f"sol_capture.groups.{name}", "") or capture.facts.metadata.get(f"groups.{name}", "")
        found = _OF.fullmatch(stated)
        if found is not None and int(found[1]) < int(found[2]):
            out[name] = int(found[1]), int(found[2])
    return out


# -- Fields that ask about a transformer in training -----------------------------------------------------------------
# a model, how it is spread, how it is trained.


MODEL: Final = (
    "preset", "hidden", "layers", "vocab", "ffn", "heads", "kv_heads", "channels", "experts", "experts_per_token", "shared_experts",
    "dense_layers", "dense_ffn", "gated", "rms_norm", "tied", "bias", "qkv_bias", "qk_norm", "positions", "kv_rank", "q_rank",
    "rope_channels",
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
    vocab: words of the vocabulary, V; padded where tp does not divide them
    ffn: width of the feed-forward, f
    heads: attention heads, a
    kv_heads: heads of keys and values, g (0 = as many as heads)
    channels: channels of a head (0 = h / a)
    gated: the feed-forward has three matrices (SwiGLU), else two
    rms_norm: norms of one vector each, else of two
    tied: the head is the embedding
    experts: experts of a layer (0 = a dense feed-forward)
    experts_per_token: experts that a token goes through
    shared_experts: experts beside these that each token goes through
    dense_layers: first layers without experts in a model that has them
    dense_ffn: width of their feed-forward (0 = f)
    bias: attention and dense feed-forward have biases
    qkv_bias: queries, keys and values alone have biases
    qk_norm: queries and keys have a norm over the channels of a head
    positions: learned positions (0 = none, as with rotary ones)
    kv_rank: width of what keys and values are made from, in multi-head latent attention (0 = attention without)
    q_rank: the same of queries (0 = none)
    rope_channels: rotary channels of a head beside the others, in latent attention
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

    preset: Literal[
        "", "llama-7b", "llama-13b", "llama-70b", "llama3-8b", "llama3-70b", "llama3-405b", "mistral-7b", "mixtral-8x7b", "qwen2.5-7b",
        "qwen2.5-72b", "qwen3-8b", "qwen3-32b", "qwen3-30b-a3b", "deepseek-v3", "gpt2", "gpt3-175b",
    ] = ""  # fmt: skip
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
    shared_experts: int | None = None
    dense_layers: int | None = None
    dense_ffn: int | None = None
    bias: bool | None = None
    qkv_bias: bool | None = None
    qk_norm: bool | None = None
    positions: int | None = None
    kv_rank: int | None = None
    q_rank: int | None = None
    rope_channels: int | None = None
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
        "shared_experts": "Shared experts", "dense_layers": "Dense layers", "dense_ffn": "Dense feed-forward", "bias": "Biases",
        "qkv_bias": "Biases of Q, K, V", "qk_norm": "Norm of Q and K", "positions": "Learned positions", "kv_rank": "Latent KV rank",
        "q_rank": "Latent Q rank", "rope_channels": "Rotary channels",
        "tp": "Tensor parallel", "pp": "Pipeline stages", "dp": "Data parallel", "micro_batch": "Micro-batch", "vpp": "Chunks per stage",
        "cp": "Context parallel", "ep": "Expert parallel", "etp": "Expert tensor parallel", "world": "Devices in all", "seq": "Sequence",
        "microbatches": "Microbatches", "sequence_parallel": "Sequence parallel", "dtype": "Type", "embedding_placement": "Embedding",
        "head_placement": "Head", "distributed_optimizer": "Distributed optimizer", "sharding": "Sharding",
    }  # fmt: skip
    SELDOM: ClassVar[tuple[str, ...]] = (
        "vpp", "cp", "ep", "etp", "world", "microbatches", "distributed_optimizer", "embedding_placement", "head_placement", "channels",
        "experts", "experts_per_token", "shared_experts", "dense_layers", "dense_ffn", "gated", "rms_norm", "tied", "bias", "qkv_bias",
        "qk_norm", "positions", "kv_rank", "q_rank", "rope_channels",
    )  # fmt: skip
