"""Declares the tables of a Capture. Missing integers are -1, missing floats NaN, missing strings "".

Times are int64 ns on the recording's own clock, less `Facts.origin_ns` (the earliest start), so they begin near 0.

Host rows stand in preorder: by thread, start, longest first. A row's subtree is rows `[row, end)`;
`parent` is the deepest row that contains its start, -1 at a root. Device rows stand by start, then file order.
A column named after another table's noun (`call`, `operator`, `module`, `annotation`, `frame`, `thread`, `step`) holds its row.
"""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.tables.schema import Field as F
from tb_sol_plugin.tables.schema import Schema

# kind of a host row -------------------------------------------------------------------------------------------
OPERATOR: Final = 0
ANNOTATION: Final = 1
CALL: Final = 2
FRAME: Final = 3
MODULE: Final = 4
OTHER: Final = 5
HOST_KINDS: Final = ("operator", "annotation", "call", "frame", "module", "other")
"""operator = cpu_op; annotation = user range; call = runtime or driver API; frame = python function; module = nn.Module call."""

# kind of a device row -----------------------------------------------------------------------------------------
KERNEL: Final = 0
MEMCPY: Final = 1
MEMSET: Final = 2
DEVICE_KINDS: Final = ("kernel", "memcpy", "memset")

# how a device row found its launch ----------------------------------------------------------------------------
BY_CORRELATION: Final = 0
BY_FLOW: Final = 1
BEFORE_WINDOW: Final = 2
NO_RECORD: Final = 3
LINKS: Final = ("correlation", "flow", "launched before the window", "no launch record")

TREE = {
    "parent": F("int32", "", "row of the deepest host event that contains its start; -1 at a root"),
    "depth": F("int32", "", "0 at a root"),
    "end": F("int32", "", "one past the last row of its subtree"),
}

THREADS = Schema(
    "threads",
    "a host thread",
    {
        "process": F("category", "", "pid as written"),
        "thread": F("category", "", "tid as written"),
        "process_name": F("category"),
        "thread_name": F("category"),
    },
)

HOST = Schema(
    "host",
    "a complete host event",
    {
        "name": F("category"),
        "category": F("category", "", "as written in the file"),
        "kind": F("int8", "", "index into HOST_KINDS"),
        "thread": F("int32"),
        "start_ns": F("int64", "ns"),
        "duration_ns": F("int64", "ns"),
        **TREE,
        "clipped": F("bool", "", "ends after its parent: kept, its surplus does not count against the parent"),
        "index": F("int64", "", "position in traceEvents"),
    },
)

OPERATORS = Schema(
    "operators",
    "arguments of an operator event (host rows of kind operator that carry any)",
    {
        "host": F("int32", "", "its host row"),
        "sequence": F("int64", "", "Sequence number; -1 none, 0 is valid"),
        "forward_thread": F("int64", "", "Fwd thread id; > 0 marks a backward operator, -1 none"),
        "external_id": F("int64"),
        "shapes": F("category", "", "Input Dims as compact JSON"),
        "types": F("category", "", "Input type as compact JSON"),
        "strides": F("category", "", "Input Strides as compact JSON"),
        "concrete": F("category", "", "Concrete Inputs as compact JSON"),
        "extra": F("category", "", "call stack, module hierarchy, triton arguments, root of a collective … as compact JSON"),
    },
)

CALLS = Schema(
    "calls",
    "a runtime or driver call",
    {
        "host": F("int32"),
        "correlation": F("int64", "", "-1 none"),
        "external_id": F("int64"),
        "cbid": F("int64"),
        "kernel": F("category", "", "name of the kernel that it launches, where the recorder of calls writes it (roctracer)"),
        "grid": F("category", "", "[x,y,z] of that launch, where it is recorded too"),
        "block": F("category"),
    },
)

FRAMES = Schema(
    "frames",
    "a python frame or module call",
    {
        "host": F("int32"),
        "python_id": F("int64"),
        "python_parent_id": F("int64"),
        "module_id": F("int64", "", "-1 for a plain frame"),
    },
)

DEVICE = Schema(
    "device",
    "a complete device event: kernel, copy or set",
    {
        "name": F("category"),
        "category": F("category"),
        "kind": F("int8", "", "index into DEVICE_KINDS"),
        "device": F("int64", "", "device id as recorded; -1 unknown"),
        "stream": F("int64", "", "stream id as recorded; -1 unknown, 0 is valid"),
        "start_ns": F("int64", "ns"),
        "duration_ns": F("int64", "ns"),
        "communication": F("bool", "", "a collective or peer kernel, wide rule"),
        "communication_narrow": F("bool", "", "nccl, rccl or cross_device_reduce in the name"),
        "copy_kernel": F("bool", "", "a copy that runs as a kernel (rocclr)"),
        "correlation": F("int64", "", "-1 none"),
        "external_id": F("int64"),
        "bytes": F("int64", "B", "-1 not recorded"),
        "bandwidth": F("float64", "GB/s", "as recorded, for a check only"),
        "direction": F("category", "", 'HtoD, DtoH, DtoD, HtoH, PtoP, Memset, Unknown; "" for kernels'),
        "src_kind": F("category", "", "Pageable, Pinned, Device, Host, Managed …"),
        "dst_kind": F("category"),
        "grid": F("category", "", "[x,y,z]"),
        "block": F("category"),
        "registers": F("int64"),
        "shared_memory": F("int64", "B"),
        "blocks_per_sm": F("float64"),
        "warps_per_sm": F("float64"),
        "occupancy_pct": F("float64", "%"),
        "context": F("int64"),
        "graph_node": F("int64"),
        "call": F("int32", "", "host row of the launching call; -1"),
        "link": F("int8", "", "index into LINKS"),
        "graph": F("bool", "", "launched by a graph launch"),
        "operator": F("int32", "", "host row of the innermost operator around the launch"),
        "module": F("int32", "", "host row of the innermost module call around the launch"),
        "annotation": F("int32", "", "host row of the innermost user annotation around the launch"),
        "step": F("int32", "", "row of the step its launch starts in; by time where there is no launch; -1 outside every step"),
        "index": F("int64"),
    },
)

STEPS = Schema(
    "steps",
    "a ProfilerStep#N, an iteration of a serving engine where there is none, or the one pseudo-step",
    {
        "number": F("int64", "", "of an iteration its place, from 1; -1 for the pseudo-step"),
        "name": F("category"),
        "host": F("int32", "", "its host row; -1 for the pseudo-step"),
        "host_start_ns": F("int64", "ns"),
        "host_end_ns": F("int64", "ns"),
        "start_ns": F("int64", "ns", "GPU-aware: not before the end of any earlier step, nor of work launched before the recording"),
        "end_ns": F("int64", "ns", "GPU-aware: last device event launched inside"),
        "device_events": F("int64"),
        "complete": F("bool"),
        "engine": F("category", "", "that wrote the annotation of the iteration; empty for any other step, as what follows is unknown"),
        "kind": F("category", "", "prefill, decode, mixed, diffusion step or other"),
        "requests": F("int64", "", "-1 unknown, as in the columns below"),
        "context_tokens": F("int64", "", "of requests in prefill"),
        "generation_tokens": F("int64", "", "of requests in decode"),
        "batch": F("int64", "", "what a captured graph is chosen by: requests of decode, tokens of any other"),
        "key_tokens": F("int64", "", "lengths of the keys that its queries see, summed"),
    },
)

BACKWARD = Schema(
    "backward",
    "a link from a forward operator to a backward root",
    {
        "forward": F("int32", "", "host row"), "backward": F("int32", "", "host row of the evaluate_function wrapper, or the op itself"),
        "method": F("int8", "", "0 flow, 1 sequence number"),
    },
)  # fmt: skip

COLLECTIVES = Schema(
    "collectives",
    "a communication kernel with recorded arguments",
    {
        "device": F("int32", "", "its device row"),
        "name": F("category"),
        "dtype": F("category"),
        "in_elements": F("int64"),
        "out_elements": F("int64"),
        "group_size": F("int64"),
        "process_group": F("category"),
        "process_group_description": F("category"),
        "ranks": F("category"),
        "in_split": F("category"),
        "out_split": F("category"),
        "communicator": F("category", "", "Comms Id as written, the same on all ranks: of the communicator; with a sequence of the call"),
        "sequence": F("int64", "", "Seq: number of the call in its group; -1 not recorded"),
        "source_rank": F("int64", "", "of a send or receive the rank that sends; -1"),
        "target_rank": F("int64", "", "of a send or receive the rank that receives; -1"),
        "rank_start": F("int64", "", "first rank of the group, where its ranks are spaced evenly; -1"),
        "rank_stride": F("int64", "", "distance of its ranks; -1"),
    },
)

MESSAGES = Schema(
    "messages", "a send or receive as the host operator that asked for it recorded it (record_param_comms)",
    {"host": F("int32", "", "its host row"), "receives": F("bool"), "peer": F("int64", "", "the rank at the other end; -1 not recorded"),
     "elements": F("int64"), "dtype": F("category"), **{name: COLLECTIVES.fields[name] for name in (
         "group_size", "process_group", "process_group_description", "ranks", "communicator", "sequence", "rank_start", "rank_stride")}},
)  # fmt: skip

PROCESS_GROUPS = Schema(
    "process_groups",
    "a process group as the header of a trace names it (pg_config)",
    {
        "name": F("category"),
        "description": F("category"),
        "ranks": F("category", "", "its ranks as START:STRIDE:COUNT, several with a comma between, in the order of the group"),
        "size": F("int64", "", "-1 not recorded"),
    },
)

MEMORY = Schema(
    "memory",
    "a [memory] instant",
    {
        "time_ns": F("int64", "ns"),
        "thread": F("int32"),
        "device_type": F("int64"),
        "device_id": F("int64"),
        "address": F("int64"),
        "bytes": F("int64", "B", "> 0 allocation, < 0 free"),
        "total_allocated": F("int64", "B"),
        "total_reserved": F("int64", "B"),
        "index": F("int64"),
    },
)

PEERS = Schema(
    "peers",
    "a copy between two devices as the recorder names them",
    {
        "device": F("int32", "", "its device row"),
        "from_device": F("int64", "", "-1 unknown"),
        "to_device": F("int64", "", "-1 unknown"),
    },
)

FLOWS = Schema(
    "flows",
    "half of a flow",
    {
        "category": F("category"),
        "phase": F("category"),
        "id": F("int64"),
        "thread": F("int32"),
        "time_ns": F("int64", "ns"),
    },
)

ANNOTATIONS_DEVICE = Schema(
    "annotations_device",
    "a GPU copy of a user annotation; never GPU work",
    {
        "name": F("category"),
        "device": F("int64"),
        "stream": F("int64"),
        "start_ns": F("int64", "ns"),
        "duration_ns": F("int64", "ns"),
        "external_id": F("int64"),
    },
)

SYNC = Schema(
    "sync",
    "a synchronization record; not GPU work",
    {
        "name": F("category"),
        "device": F("int64"),
        "stream": F("int64"),
        "start_ns": F("int64", "ns"),
        "duration_ns": F("int64", "ns"),
        "correlation": F("int64"),
        "event_record_correlation": F("int64"),
        "wait_on_stream": F("int64"),
    },
)

INSTANTS = Schema(
    "instants",
    "an instant or a counter sample that is not memory",
    {
        "name": F("category"),
        "category": F("category"),
        "phase": F("category"),
        "thread": F("int32"),
        "time_ns": F("int64", "ns"),
        "args": F("category", "", "compact JSON"),
    },
)

CATEGORIES = Schema(
    "categories",
    "events of one category and phase",
    {
        "category": F("category"),
        "phase": F("category"),
        "count": F("int64"),
    },
)

ISSUES = Schema(
    "issues",
    "one kind of oddity met while reading",
    {
        "reason": F("category"),
        "count": F("int64"),
        "example": F("category"),
        "effect": F("category"),
    },
)

LABELS = Schema(
    "labels",
    "a module, phase or function that a SOL capture or a profile without events names; a tree over `parent`",
    {
        "what": F("category", "", "module, phase or function"),
        "parent": F("int32", "", "row of the label around it; -1 at a root"),
        "name": F("category", "", "of a module its qualified name, of a phase the name that was pushed"),
        "class_name": F("category", "", "of a module"),
    },
)

LEDGER = Schema(
    "ledger",
    "alike calls of one sampled iteration, or of a whole profile without events: operator or kernel, sizes, labels, direction",
    {
        "iteration": F("int64"),
        "step": F("int32", "", "row of `steps`; -1 where that iteration has none"),
        "name": F("category"),
        "shapes": F("category", "", "as in `operators`"),
        "types": F("category"),
        "strides": F("category"),
        "concrete": F("category"),
        "out_shapes": F("category", "", "sizes of the results as compact JSON"),
        "flop": F("float64", "FLOP", "matrix class, of one call, as counted while recording; NaN unknown"),
        "flop_vector": F("float64", "FLOP"),
        "bytes": F("float64", "B", "of one call"),
        "dtype": F("category", "", "what it computes in"),
        "kind": F("category", "", "class of work as the cost models name it"),
        "direction": F("int8", "", "0 forward, 1 backward"),
        "recompute": F("bool"),
        "estimated": F("bool"),
        "compiled": F("bool", "", "work of a compiled region, counted by running it eagerly"),
        "reason": F("category"),
        "count": F("int64", "", "calls"),
        "time_ns": F("float64", "ns", "summed over the calls; NaN not timed"),
        "device": F("int64", "", "index of the device that it ran on; -1 not told apart"),
        "module": F("int32", "", "row of `labels`; -1"),
        "phase": F("int32", "", "row of `labels`; -1"),
        "forward_phase": F("int32", "", "row of `labels`; of backward work the phase of its forward operator; -1"),
        "function": F("int32", "", "row of `labels`; -1"),
        "module_host": F("int32", "", "host row of the first call of its module in that iteration; -1"),
        "phase_host": F("int32", "", "host row of the innermost range around it, the step's at least; -1"),
    },
)

ITERATIONS = Schema(
    "iterations",
    "one iteration of a training loop as a SOL capture saw it, sampled or not",
    {
        "number": F("int64"),
        "start_ns": F("int64", "ns"),
        "duration_ns": F("int64", "ns", "on the host, less the recorder's own measured work"),
        "device_ns": F("float64", "ns", "between events on the device's stream; NaN not timed"),
        "sampled": F("bool", "", "its work was counted"),
        "signature": F("category", "", "of the sizes of the model's inputs: iterations of one signature do the same work"),
        "batch": F("int64", "", "samples; -1 unknown"),
        "tokens": F("int64", "", "-1 unknown"),
        "overhead_ns": F("int64", "ns", "the recorder's own measured work inside of it"),
        "before_ns": F("int64", "ns", "the same between the end of the iteration before and its start"),
        "ops": F("int64", "", "calls counted; -1 where it was not sampled"),
        "flop": F("float64", "FLOP"),
        "flop_vector": F("float64", "FLOP"),
        "bytes": F("float64", "B"),
        "sol_ns": F("float64", "ns", "at the limits in use while recording"),
        "unknown": F("int64", "", "calls without a cost; -1 where it was not sampled"),
        "evaluation_ns": F("int64", "ns", "of a sampled one that trains: time in which it evaluated the model; -1 where it has no record"),
    },
)

LABEL_TIMES = Schema(
    "label_times",
    "a range of a phase or module as a SOL capture timed it",
    {
        "iteration": F("int64"),
        "label": F("int32", "", "row of `labels`"),
        "start_ns": F("int64", "ns"),
        "duration_ns": F("int64", "ns"),
        "device_ns": F("float64", "ns", "NaN not timed"),
        "count": F("int64", "", "ranges summed up in this row"),
    },
)

COPIES = Schema(
    "copies",
    "alike copies that were counted without being recorded as events: by a SOL capture at the dispatcher, or by another profiler",
    {
        "iteration": F("int64", "", "-1 where it is of no one iteration"),
        "step": F("int32", "", "row of `steps`; -1"),
        "name": F("category", "", "operator or frame that copies, as recorded"),
        "direction": F("category", "", "as in `device`"),
        "src_kind": F("category", "", 'as in `device`; "" not known'),
        "dst_kind": F("category"),
        "src_device": F("int64", "", "index of the device; -1 the host or unknown"),
        "dst_device": F("int64"),
        "count": F("int64", "", "copies"),
        "bytes": F("int64", "B", "of those that carry a size, summed"),
        "without_bytes": F("int64", "", "copies without a size"),
        "time_ns": F("float64", "ns", "on the device, summed; NaN not timed"),
        "call_ns": F("float64", "ns", "on the host, inside the calls, summed; NaN not timed"),
        "blocking": F("int64", "", "copies for which the host waited; -1 unknown"),
        "module": F("int32", "", "row of `labels`; -1"),
        "phase": F("int32", "", "row of `labels`; -1"),
        "function": F("int32", "", "row of `labels`; -1"),
    },
)

MEMORY_RECORDS = Schema(
    "memory_records",
    "memory of one device as a recorder in the program read it at one moment",
    {
        "tag": F("category", "", "name that the caller gave"),
        "iteration": F("int64", "", "-1 before the first"),
        "time_ns": F("int64", "ns"),
        "device": F("int64", "", "index of the device; -1 the host"),
        "total": F("int64", "B", "of the device; -1 unknown, as in all columns"),
        "device_used": F("int64", "B", "used on the device, by whatever process"),
        "process_used": F("int64", "B", "by this process, as the driver says"),
        "allocated": F("int64", "B"),
        "reserved": F("int64", "B"),
        "max_allocated": F("int64", "B", "at most, in the time of `since`"),
        "max_reserved": F("int64", "B"),
        "since": F("category", "", "of the maxima: process (its start, or a reset by the script), reset, iteration, phase"),
        "phase": F("int32", "", "row of `labels` in which the peak fell; -1. Of a row of `since` phase, the phase that it is of"),
    },
)

MEMORY_PARTS = Schema(
    "memory_parts",
    "what a record found among parameters, gradients and the state of optimizers: one category, type and module",
    {
        "record": F("int32", "", "row of `memory_records`"),
        "category": F("category", "", "params, buffers, grads, main_grads, master_weights, exp_avg, exp_avg_sq, other_optimizer"),
        "dtype": F("category"),
        "module": F("int32", "", "row of `labels`; -1"),
        "tensors": F("int64"),
        "bytes": F("int64", "B", "of storages that no row before counted"),
        "view_bytes": F("int64", "B", "of the tensors themselves"),
    },
)

PROFILE = Schema(
    "profile",
    "steps of one configuration as the program counted them, since its process began",
    {
        "num_nodes": F("int64"),
        "num_replicas": F("int64", "", "of the whole model"),
        "atomic_bsz": F("int64", "", "samples of one micro-step on one replica"),
        "accum_count": F("int64", "", "micro-steps that only accumulate gradients"),
        "accum_time_ns": F("int64", "ns", "of these"),
        "optim_count": F("int64", "", "micro-steps that synchronize gradients and update"),
        "optim_time_ns": F("int64", "ns", "of these"),
        "sync_time_ns": F("int64", "ns", "of that, the wait for gradients; -1 unknown, then not 0"),
        "grad_sqr": F("float64", "", "squared norm of the gradient, as it is and so perhaps below 0; NaN unknown; the same in all rows"),
        "grad_var": F("float64", "", "variance of the gradient at init_batch_size; NaN unknown"),
        "grad_biased": F("bool", "", "both from differences of successive steps"),
        "init_batch_size": F("int64", "", "-1 unknown, as in the columns below"),
        "max_batch_size": F("int64"),
        "least_atomic_bsz": F("int64"),
        "most_atomic_bsz": F("int64"),
        "gradient_accumulation": F("bool", "", "whether the program may accumulate"),
    },
)

MEMORY_EVENTS = Schema(
    "memory_events",
    "one entry of an allocator's history",
    {
        "device": F("int64"),
        "action": F("category", "", "alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, oom …"),
        "address": F("int64"),
        "bytes": F("int64", "B", "as the program asked for them, or of a segment"),
        "device_free": F("int64", "B", "free on the device, of an oom entry; -1 unknown"),
        "stream": F("int64"),
        "time_ns": F("int64", "ns", "-1 unknown"),
        "frames": F("category", "", 'call stack as a compact JSON list of [file, line, function], innermost first; "" none'),
    },
)

MEMORY_BLOCKS = Schema(
    "memory_blocks",
    "one block of an allocator's segments at the moment of the snapshot",
    {
        "device": F("int64"),
        "segment": F("int64", "", "address of its segment"),
        "segment_bytes": F("int64", "B"),
        "segment_type": F("category"),
        "pool": F("category"),
        "stream": F("int64"),
        "address": F("int64"),
        "bytes": F("int64", "B"),
        "requested": F("int64", "B", "-1 unknown"),
        "state": F("category", "", "active_allocated, active_awaiting_free, inactive"),
        "frames": F("category", "", "as in `memory_events`"),
    },
)

MEMORY_TIMELINE = Schema(
    "memory_timeline",
    "bytes of one category from one moment on, as a memory timeline says",
    {
        "time_ns": F("int64", "ns"),
        "device": F("category", "", "as the file names it"),
        "category": F("category", "", "parameter, optimizer_state, input, temporary, activation, gradient, autograd_detail, unknown"),
        "bytes": F("int64", "B"),
    },
)

GRAPH_LAUNCHES = Schema(
    "graph_launches",
    "a graph launch whose replayed events were looked up in the recording of the graph's capture",
    {
        "host": F("int32", "", "host row of the launching call"),
        "rows": F("int32", "", "host rows of the capture that were put below it: rows (host, host + rows]; they take no time"),
        "events": F("int64", "", "device events that it replayed"),
        "device_ns": F("int64", "ns", "of these, summed"),
        "how": F("int8", "", "index into ALIGNMENTS; -1 not aligned"),
        "batch": F("int64", "", "of the iteration that launched it; -1 unknown"),
        "captured_batch": F("int64", "", "that its graph was captured for; -1 unknown"),
        "mode": F("category", "", 'FULL or PIECEWISE; "" where an eager run stands in for the capture'),
        "file": F("category", "", "recording of the capture, or of an eager run"),
        "eager": F("bool", "", "named by kernels that ran eagerly, not by a capture"),
        "why": F("category", "", "what differs, of one that is not aligned"),
    },
)
ALIGNMENTS: Final = ("in order", "dispatches left out", "by name", "by stream")
"""How a replay was aligned with a capture: same names in order; in order with captured calls that replayed nothing left out; the n-th of
each name; first in first out per stream."""

REPLAYS = Schema(
    "replays",
    "a device event of a graph replay that was aligned with a call recorded while the graph was captured",
    {
        "device": F("int32", "", "its device row"),
        "origin": F("int32", "", "host row, from the capture, of what was innermost around that call"),
    },
)

ALL: Final = {
    s.name: s
    for s in (
        THREADS,
        HOST,
        OPERATORS,
        CALLS,
        FRAMES,
        DEVICE,
        STEPS,
        BACKWARD,
        COLLECTIVES, MESSAGES, PROCESS_GROUPS,
        PEERS,
        MEMORY,
        FLOWS,
        ANNOTATIONS_DEVICE,
        SYNC,
        INSTANTS,
        CATEGORIES,
        ISSUES,
        LABELS,
        LEDGER,
        ITERATIONS,
        LABEL_TIMES,
        COPIES,
        MEMORY_RECORDS,
        MEMORY_PARTS,
        PROFILE,
        MEMORY_EVENTS,
        MEMORY_BLOCKS,
        MEMORY_TIMELINE,
        GRAPH_LAUNCHES,
        REPLAYS,
    )
}
