"""Defines the SOL log on disk: what the capture library writes and `ingest/sol/reader.py` reads. Standard library only.

One file per rank and process start, `<host>_rank<rank>_<pid>_<start_ns>.sol.jsonl`, beside the traces of its run. Each line is one JSON
object in UTF-8 with a `kind`; files only grow, so a killed process loses at most the record it was writing. A file that reaches its
cap goes on in `<stem>.part<k>.sol.jsonl`, which has a header and definitions of its own.

Times are integers in ns on the recorder's clock: `time.perf_counter_ns` less `monotonic_ns` of the header, less the measured work of the
recorder itself. `wall_ns` is the time of day at 0. Unknown is null; NaN and infinity are not written.

    header       first line: format, version [major, minor], library, torch, cuda, hip, convention, rank, world_size,
                 groups {"tp": [rank, size]}, host, pid, wall_ns, monotonic_ns, part,
                 device {type, key, name, memory_bytes, units, limits, provenance},
                 precision {matmul, cudnn_tf32}, mode (dispatch, hooks, off), every_n_steps, time_source (cpu, event),
                 copies (whether copies are counted in sampled steps),
                 plan {name of PLAN: [value, where it is from]}: sizes of the model and its layout, as far as they are certain,
                 model {class, parameters, trainable, parameter_bytes, modules, compiled}
                 device.limits are those in use while recording: {peak_flops, peak_flops_vector, peak_flops_achievable: {dtype: FLOP/s},
                 memory_bandwidth_bytes_per_sec, l2_bytes, link_bytes_per_sec, pcie_bytes_per_sec, memory_bytes, num_units},
                 dtypes as fp32, bf16, fp8; device.provenance says of each where it is from
    sig          id, op (aten::mm), in, types, strides, concrete: the arguments as a profiler trace writes them (`Input Dims` …):
                 lists, or texts that hold them as JSON; out, out_types: the results; flop, flop_vector, bytes, dtype, class, direction,
                 estimated, reason: the cost of one call, null where unknown
    label        id, what (module, phase, function), parent (id, -1 at a root), name, class
    ledger       iteration, rows: LEDGER_ROW. One row per signature, labels and flags
    step         iteration, start_ns, duration_ns, device_ns, sampled, signature (of the sizes of the model's inputs), batch, tokens,
                 overhead_ns (measured own work inside of it), before_ns (the same since the end of the one before),
                 totals {ops, flop, flop_vector, bytes, sol_ns, unknown}, lost {reason: count},
                 compiled (true: the model is compiled, its work was counted by running it eagerly: the times are not its own),
                 evaluation_ns (of a sampled step that trains: time in which it evaluated the model; its work is in the ledger too)
    copies       iteration, rows: COPY_ROW. Copies between memories in a sampled step, one row per sort of copy and labels
    phase_time   iteration, rows: TIME_ROW of phase labels
    module_time  iteration, rows: TIME_ROW of module labels; of every call in a sampled step
    packed       bytes, data: lines of other records, compressed by zlib and written as base64; `bytes` of text, PACKED_BYTES at most. It
                 stands for these lines
    memory       tag, time_ns, iteration, device (-1 the host), total, device_used, process_used, allocated, reserved, max_allocated,
                 max_reserved, context (device_used - reserved), since (what the maxima cover), phase (label in which the peak fell),
                 phases: PEAK_ROW, parts: PART_ROW, Actual_Captured_Master_Weight_MB, Actual_Captured_Main_Grad_Mem_MB (MiB), the same
                 with _bytes in place of _MB, left_out {reason: tensors}, problem. Bytes; what is not known is left out
    profile      wall_ns, rows: PROFILE_ROW, grad_sqr, grad_var, grad_biased (true: from differences of successive steps), init_batch_size,
                 max_batch_size, local_bsz_bounds [least, most], gradient_accumulation. Sums since the process began: the last record
                 stands for all before it. What is not known is null
    note         code, text, count
    close        wall_ns, iterations, before_ns (own work since the end of the last iteration)

A label or signature stands before its first use. Version 2 is version 1 with packed records. A reader refuses a major version that it does
not know, and passes over kinds and fields it does not know.
"""

from __future__ import annotations

import json
import re
from typing import Final

FORMAT: Final = "tb-sol-capture"
VERSION: Final = (2, 0)
READABLE: Final = (1, 2)
"""Major versions that are read."""
SUFFIX: Final = ".sol.jsonl"
NAME: Final = re.compile(r"^(?P<host>.+)_rank(?P<rank>\d+)_(?P<pid>\d+)_(?P<start>\d+)(?:\.part(?P<part>\d+))?\.sol\.jsonl(?:\.gz)?$")
"""File names as the capture library gives them. The worker is `<host>_rank<rank>`, the span `<start>`."""
PART: Final = re.compile(r"(?:\.part(?P<part>\d{1,3}))?(?P<ending>\.sol\.jsonl(?:\.gz)?)$")
"""The end of a file's name, also of one that was renamed."""

KINDS: Final = (
    "header", "sig", "label", "ledger", "copies", "step", "phase_time", "module_time", "memory", "profile", "packed", "note", "close",
)  # fmt: skip
LEDGER_ROW: Final = ("sig", "module", "phase", "forward_phase", "function", "flags", "count", "time_ns")
"""Ids of a signature and four labels (-1 none), flags, calls, and the summed time of those calls (null: not timed).

forward_phase: of backward work, the phase of its forward operator.
"""
COPY_ROW: Final = (
    "op", "direction", "src_kind", "dst_kind", "src_device", "dst_device", "non_blocking", "module", "phase", "function", "count", "bytes",
    "without_bytes", "blocking", "call_ns",
)  # fmt: skip
"""Alike copies. direction: HtoD, DtoH, DtoD, PtoP, HtoH, or copy kernel for one within a device that a kernel does. Kinds: Pageable,
Pinned, Device, or "" unknown. Devices by index, -1 the host. non_blocking: as it was called. Ids of three labels (-1 none). Copies, the
bytes of those that have a size, copies without a size; for how many the host waited, and its time inside the calls (null: unknown).

Since 1.1. A sampled step whose record has no rows had no copies; one without a record did not count them."""
TIME_ROW: Final = ("label", "start_ns", "duration_ns", "device_ns", "count")
"""One range, or `count` ranges summed up where there were too many: then start_ns is that of the first. device_ns null: not timed."""

PLAN: Final = (
    "hidden", "layers", "vocab", "ffn", "heads", "kv_heads", "channels", "gated", "rms_norm", "tied", "experts", "experts_per_token",
    "shared_experts", "dense_layers", "dense_ffn", "bias", "qkv_bias", "qk_norm", "positions", "kv_rank", "q_rank", "rope_channels",
    "seq", "micro_batch", "microbatches", "tp", "pp", "vpp", "dp", "cp", "ep", "etp", "sequence_parallel", "recompute", "dtype",
    "optimizer", "sharding", "embedding_placement", "head_placement",
)  # fmt: skip
"""Sizes of a model and its layout in the header, as the memory plan names them: whole numbers, true or false, or a word."""
PEAK_ROW: Final = ("label", "max_allocated", "max_reserved")
"""Largest use of memory while that phase (-1 none) was the innermost one."""
PART_ROW: Final = ("category", "dtype", "module", "device", "tensors", "bytes", "view_bytes")
"""Tensors of a model and its optimizer. category: params, buffers, grads, main_grads, master_weights, exp_avg, exp_avg_sq, other_optimizer.
Id of a label (-1 none), index of the device (-1 the host), tensors, bytes of storages (each byte in one row only), bytes of the tensors
themselves. A row with 0 tensors says that there are none of its category; a category without a row was not looked for."""

PROFILE_ROW: Final = (
    "num_nodes", "num_replicas", "atomic_bsz", "accum_count", "accum_time_ns", "optim_count", "optim_time_ns", "sync_time_ns",
)  # fmt: skip
"""Steps of one configuration. atomic_bsz: samples of one micro-step on one replica. Micro-steps that only accumulate, and their time; those
that synchronize gradients and update, and their time; of that, the wait for the gradients (null: not told)."""

BACKWARD: Final = 1
RECOMPUTE: Final = 2
ESTIMATED: Final = 4
COMPILED: Final = 8
"""Flags of a ledger row: backward work; forward work run again in the backward pass; counts estimated by the fallback mode; work of a
compiled region, counted by running it eagerly for one step."""

MOST_PARTS: Final = 1000
PACKED_BYTES: Final = 8 << 20
"""Most bytes of text in one packed record."""
CAP_BYTES: Final = 256 << 20
"""Size at which a file is continued in the next part."""

STARTING: Final = 3
"""Iterations in which a run starts up: libraries are loaded, kernels chosen, code compiled, and work is counted."""
DOMINATES: Final = 0.5
"""Share of the time of a run from which its start-up is said to dominate, by the recorder and on the page."""


_encoder: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def encode(record: dict[str, object]) -> bytes:
    """Returns one line. ValueError for NaN or infinity, which JSON cannot hold."""
    return _encoder.encode(record).encode("utf-8", "replace") + b"\n"


def file_name(host: str, rank: int, pid: int, start_ns: int, part: int = 0) -> str:
    """Returns the name of a capture file; `host` is reduced to letters, digits, `.`, `-` and `_`."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", host).strip(".-") or "host"
    return f"{safe}_rank{rank}_{pid}_{start_ns}{f'.part{part}' if part else ''}{SUFFIX}"
