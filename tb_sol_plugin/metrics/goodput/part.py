"""Reads what one recording contributes to the points of a job: steps, batch, place, and what the program recorded about itself."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final, TypedDict

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.goodput.job import Identity, identity_of
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.breakdown import COMMUNICATION, COMPUTATION, classes, spans_of
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as I
from tb_sol_plugin.tables.arrays import Ints, Mask
from tb_sol_plugin.tables.table import frame_of

# -- batch -----------------------------------------------------------------------------------------------------------


BATCH_KEYS: Final = ("atomic_bsz", "micro_batch_size", "per_device_batch_size", "plan.micro_batch")
"""Names under which a recording's metadata may have it, the most specific first."""
LOOSE: Final = "batch_size"
"""A name that may also mean the batch of all replicas."""
EMBEDDINGS: Final = ("aten::embedding", "aten::embedding_bag")
CONVOLUTIONS: Final = ("aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::convolution", "aten::cudnn_convolution")
_MOST: Final = 2**31


@dataclass(frozen=True)
class Batch:
    """The batch size of a recording and where it is from.

    samples: 0 unknown. source: words for a person. guessed: worked out from sizes of an input, not recorded by the program.
    """

    samples: int = 0
    source: str = ""
    guessed: bool = False


def batch_of(capture: Capture) -> Batch:
    """Returns the batch size of the metadata; else as a SOL capture counted it.

    Without either it is the first size of what the model's first layer is given.
    """
    for name in BATCH_KEYS:
        for key, value in capture.facts.metadata.items():
            if (key == name or key.rpartition(".")[2] == name) and (found := _whole(value)):
                return Batch(found, f"`{key}` in the recording's metadata")
    loose = next((v for k, v in capture.facts.metadata.items() if k.rpartition(".")[2] == LOOSE), "")
    counted = capture.tables["iterations"]["batch"].to_numpy()
    known = counted[counted > 0]
    if len(known):
        return Batch(int(np.median(known)), "samples of an iteration, as the SOL capture counted them")
    if found := _whole(loose):
        return Batch(found, f"`{LOOSE}` in the recording's metadata, taken as that of one replica", guessed=True)
    return _guess(capture)


def _whole(value: str) -> int:
    try:
        found = int(value)
    except ValueError:
        return 0
    return found if 0 < found < _MOST else 0


def _guess(capture: Capture) -> Batch:
    """Guesses the batch size from the first embedding or convolution with recorded sizes."""
    table = capture.tables["operators"]
    host = table["host"].to_numpy()
    names = capture.host["name"]
    for wanted, argument in ((EMBEDDINGS, 1), (CONVOLUTIONS, 0)):
        hit = at.where_named(capture, wanted.__contains__)
        rows = np.flatnonzero(hit[host]) if len(host) and len(hit) else np.zeros(0, np.int64)
        if not len(rows):
            continue
        start = capture.host["start_ns"].to_numpy()[host[rows]]
        rows = rows[np.argsort(start, kind="stable")][:64]
        read: set[str] = set()
        for row, shapes in zip(rows.tolist(), arrays.pick(table["shapes"], rows).tolist(), strict=True):
            samples = 0 if shapes in read else _first_size(shapes, argument)
            read.add(shapes)
            if samples:
                name = str(arrays.pick(names, [host[row]])[0])
                return Batch(samples, f"first size of the input of `{name}`", guessed=True)
    return Batch()


def _first_size(shapes: str, argument: int) -> int:
    try:
        sizes = json.loads(shapes)
    except (ValueError, RecursionError):
        return 0
    one = sizes[argument] if isinstance(sizes, list) and len(sizes) > argument else None
    first = one[0] if isinstance(one, list) and one else 0
    return first if isinstance(first, int) and not isinstance(first, bool) and 0 < first < _MOST else 0


# -- Steps of a data-parallel job in one worker's trace --------------------------------------------------------------
# how long each lasts, and how long it only waits for gradients to be reduced.


REDUCES: Final = re.compile(r"all_?reduce|reduce_?scatter", re.IGNORECASE)
"""Names of collectives that reduce gradients; others (all-gather of sharded parameters) are no part of it."""
ON_HOST: Final = re.compile(r"(gloo|mpi|ucc):(all_?reduce|reduce_?scatter)", re.IGNORECASE)
"""Ranges in which a backend of the host works."""
BACKWARD: Final = re.compile(r"autograd::engine::evaluate_function")
_WAITS: Final = re.compile(r"autograd::engine::evaluate_function: torch::autograd::AccumulateGrad|c10d::|aten::wait_tensor")
"""Ranges of the host that a reduction may end inside of: waiting in them is no computing."""

COLUMNS: Final = ("number", "duration_ns", "sync_ns", "reduce_ns", "reduces", "complete")


def steps(capture: Capture, *, replicas: int = 0) -> pd.DataFrame:
    """Returns one row per `ProfilerStep#`, in order; none where no step was recorded.

    number; duration_ns (a step ends with the last device event that it launched); reduce_ns: union of the reductions of gradients
    (all-reduce and reduce-scatter, begun after the step's backward pass began); sync_ns: the part of it that no
    computation overlaps, which is what the step lasts longer for it; reduces: whether there was one; complete.
    replicas: data-parallel size, where it differs from the world's: then collectives of groups of another size are left out, if the
    recording has sizes.
    """
    table = capture.steps
    if capture.facts.pseudo_step or not len(table):
        return pd.DataFrame({name: np.zeros(0, bool if name in ("reduces", "complete") else np.int64) for name in COLUMNS})
    start, end = table["start_ns"].to_numpy(), table["end_ns"].to_numpy()
    begun = _backward_starts(capture)
    on_device = _device_reductions(capture, begun, replicas)
    if on_device.any() or not _host_names(capture, ON_HOST).any():
        spans, busy = spans_of(capture, on_device), spans_of(capture, classes(capture) == COMPUTATION)
    else:
        spans, busy = _host_reductions(capture), _host_computation(capture)
    reduce = I.overlap_with(start, end, spans)
    return frame_of({
        "number": table["number"].to_numpy(), "duration_ns": end - start, "sync_ns": I.overlap_with(start, end, I.subtract(spans, busy)),
        "reduce_ns": reduce, "reduces": reduce > 0, "complete": table["complete"].to_numpy(),
    })  # fmt: skip


def _backward_starts(capture: Capture) -> Ints:
    """Returns per step the host time at which its backward pass began; the step's start where none is recorded."""
    table = capture.steps
    first, last = table["host_start_ns"].to_numpy(), table["host_end_ns"].to_numpy()
    roots = np.sort(capture.host["start_ns"].to_numpy()[_host_names(capture, BACKWARD)])
    if not len(roots):
        return first.copy()
    where = np.searchsorted(roots, first)
    found = roots[np.minimum(where, len(roots) - 1)]
    return np.where((where < len(roots)) & (found < last), found, first)


def _device_reductions(capture: Capture, begun: Ints, replicas: int) -> Mask:
    """Returns device rows that reduce gradients: launched (or, unlinked, begun) in a step after its backward pass began."""
    device = capture.device
    out = (classes(capture) == COMMUNICATION) & _reducing(capture)
    if replicas > 0:
        sizes = np.full(len(device), -1, np.int64)
        collectives = capture.tables["collectives"]
        sizes[collectives["device"].to_numpy()] = collectives["group_size"].to_numpy()
        if (out & (sizes == replicas)).any():
            out &= (sizes == replicas) | (sizes <= 0)
    launched = at.launches(capture)
    time = np.where(launched.call >= 0, launched.time, device["start_ns"].to_numpy())
    step = device["step"].to_numpy()
    return np.asarray(out & (step >= 0) & (time >= begun[np.maximum(step, 0)]), np.bool_)


def _reduces(name: str) -> bool:
    return "reduce" in name.lower() and REDUCES.search(name) is not None  # most names are told apart ten times faster without a pattern


def _reducing(capture: Capture) -> Mask:
    """Returns device rows whose kernel, or whose recorded collective, is a reduction over ranks."""
    out = arrays.where(capture.device["name"], _reduces)
    collectives = capture.tables["collectives"]
    named = arrays.where(collectives["name"], _reduces)
    out[collectives["device"].to_numpy()[named]] = True
    return out


def _host_names(capture: Capture, pattern: re.Pattern[str]) -> Mask:
    """Returns host rows whose name holds a pattern."""
    key = ("goodput.part.host_names", pattern.pattern)
    return memo(capture, key, lambda: at.where_named(capture, lambda name: pattern.search(name) is not None))


def _host_reductions(capture: Capture) -> I.Spans:
    return _host_spans(capture, _host_names(capture, ON_HOST))


def _host_computation(capture: Capture) -> I.Spans:
    """Returns operators at work on threads that compute: innermost ones, but for waiting and for the reduction itself."""
    h = at.host(capture)
    operator = h.kind == S.OPERATOR
    waits = _host_names(capture, _WAITS) | _host_names(capture, ON_HOST) | _host_names(capture, BACKWARD)
    threads = np.unique(h.thread[_host_names(capture, ON_HOST)])
    return _host_spans(capture, operator & ~waits & ~np.isin(h.thread, threads))


def _host_spans(capture: Capture, rows: Mask) -> I.Spans:
    h = at.host(capture)
    return I.union(h.start[rows], h.stop[rows])


MOST_STEPS: Final = 2_000
"""Steps that a part carries at most, the last ones."""
_OF: Final = re.compile(r"\d+ of (\d+)")
_NAMED: Final = re.compile(r"(.+)_\d+$")
"""`host_process`, as torch's trace handler names workers."""


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One step. sync_ns: the part of its reduction of gradients that no computation overlaps. reduces: whether there was one.

    batch: its samples, 0 where they are those of the worker.
    """

    number: int
    duration_ns: int
    sync_ns: int
    reduces: bool
    batch: int = 0


class Counted(msgspec.Struct, frozen=True):
    """Sums of a configuration that the program recorded, in seconds; counts are of steps that accumulate and of those that update.

    optim_sync_time: None where the wait for gradients is not known.
    """

    num_nodes: int
    num_replicas: int
    atomic_bsz: int
    accum_step_time: float
    accum_count: int
    optim_step_time: float
    optim_sync_time: float | None
    optim_count: int


class ScalingPart(msgspec.Struct, frozen=True):
    """What one recording contributes to the points of a job.

    steps: complete ones but for the first, which has one-time costs; left: steps that are not among them.

    host: where it ran, "" unknown; host_guessed: read off the worker's name. batch: samples per micro-step and replica, 0 unknown.
    tensor, pipeline: parallel sizes; nodes, replicas: as the program recorded; 0 unknown.
    counted: what the program recorded; sqr, var: gradient statistics, None unknown.
    biased: these are from differences of successive steps. accumulation: allowed; None unknown.
    initial, most: initial and largest total batch size (0 unknown), bounds of the atomic one (0, 0 unknown).
    job: what it shows of its model and optimizer. reserved, memory: most bytes that a device's allocator reserved, and the device's; -1
    unknown.
    """

    steps: tuple[Step, ...]
    left: int
    host: str
    host_guessed: bool
    batch: int
    batch_source: str
    batch_guessed: bool
    tensor: int
    pipeline: int
    nodes: int = 0
    replicas: int = 0
    counted: tuple[Counted, ...] = ()
    sqr: float | None = None
    var: float | None = None
    initial: int = 0
    most: int = 0
    bounds: tuple[int, int] = (0, 0)
    biased: bool = False
    accumulation: bool | None = None
    reserved: int = -1
    memory: int = -1
    job: Identity = Identity()


def part(capture: Capture, query: Query) -> ScalingPart:
    """Reads what one recording brings to the model of step time, whatever the query."""
    return part_of(capture)


def part_of(capture: Capture) -> ScalingPart:
    """Reads the part of one recording, as `part`."""
    return memo(capture, ("goodput.part",), lambda: _part_of(capture))


def _part_of(capture: Capture) -> ScalingPart:
    meta = capture.facts.metadata
    tensor, pipeline = _size(meta, "tp", "tensor_parallel_size"), _size(meta, "pp", "pipeline_parallel_size")
    world = capture.facts.world_size or 0
    model = max(tensor, 1) * max(pipeline, 1)
    if capture.facts.source == "sol_capture":
        table = _iterations(capture)
    else:
        table = steps(capture, replicas=world // model if model > 1 and world % model == 0 else 0)
    use = table["complete"].to_numpy().copy()
    use[:1] = False
    kept = np.flatnonzero(use)[-MOST_STEPS:]
    names = [name for name in ("number", "duration_ns", "sync_ns", "reduces", "batch") if name in table]
    rows = zip(*(table[name].to_numpy()[kept].tolist() for name in names), strict=True)
    host, guessed = _host(capture)
    batch = batch_of(capture)
    reserved, memory = _memory(capture)
    return ScalingPart(
        tuple(Step(*row) for row in rows), len(table) - len(kept), host, guessed, batch.samples, batch.source, batch.guessed,
        tensor, pipeline, _size(meta, "", "num_nodes"), _size(meta, "", "num_replicas"), reserved=reserved, memory=memory,
        job=identity_of(capture), **_recorded(capture),
    )  # fmt: skip


def _iterations(capture: Capture) -> pd.DataFrame:
    """Returns iterations of a SOL capture as steps with their own samples.

    Those whose work was counted are left out; synchronization is unknown.
    """
    table = capture.tables["iterations"]
    return pd.DataFrame({
        "number": table["number"].to_numpy(), "duration_ns": table["duration_ns"].to_numpy(), "sync_ns": np.zeros(len(table), np.int64),
        "reduces": np.zeros(len(table), bool), "batch": table["batch"].to_numpy().clip(min=0), "complete": ~table["sampled"].to_numpy(),
    })  # fmt: skip


class _Recorded(TypedDict, total=False):
    counted: tuple[Counted, ...]
    sqr: float | None
    var: float | None
    biased: bool
    initial: int
    most: int
    bounds: tuple[int, int]
    accumulation: bool | None


def _recorded(capture: Capture) -> _Recorded:
    """Returns what the program recorded of itself, see `tb_sol_plugin.capture.profile_step_commit`."""
    table = capture.tables["profile"]
    if not len(table):
        return {}
    rows = table.to_dict("records")
    last = rows[-1]
    counted = tuple(
        Counted(
            int(r["num_nodes"]), int(r["num_replicas"]), int(r["atomic_bsz"]), r["accum_time_ns"] / 1e9, int(r["accum_count"]),
            r["optim_time_ns"] / 1e9, r["sync_time_ns"] / 1e9 if r["sync_time_ns"] >= 0 else None, int(r["optim_count"]),
        )
        for r in rows
    )  # fmt: skip
    known = bool(np.isfinite(last["grad_sqr"]) and np.isfinite(last["grad_var"]))
    low, high = int(last["least_atomic_bsz"]), int(last["most_atomic_bsz"])
    return {
        "counted": counted, "sqr": float(last["grad_sqr"]) if known else None, "var": float(last["grad_var"]) if known else None,
        "biased": known and bool(last["grad_biased"]), "initial": max(int(last["init_batch_size"]), 0),
        "most": max(int(last["max_batch_size"]), 0), "bounds": (low, high) if 0 < low <= high else (0, 0),
        "accumulation": bool(last["gradient_accumulation"]),
    }  # fmt: skip


def _host(capture: Capture) -> tuple[str, bool]:
    if capture.facts.host_name:
        return capture.facts.host_name, False
    found = _NAMED.fullmatch(capture.worker)
    return (found[1], True) if found and not re.search(r"rank[-_]?$", found[1], re.IGNORECASE) else ("", False)


def _size(meta: dict[str, str], group: str, name: str) -> int:
    """Returns a parallel size: of the recorder's groups, of its plan, or as other metadata names it; 0 unknown."""
    found = _OF.fullmatch(meta.get(f"groups.{group}", "")) if group else None
    if found:
        return int(found[1])
    texts = [meta.get(f"plan.{group}", "") if group else "", *(v for k, v in meta.items() if k.rpartition(".")[2] == name)]
    return next((int(t) for t in texts if t.isdigit() and 0 < int(t) < 2**31), 0)


def _memory(capture: Capture) -> tuple[int, int]:
    """Returns (most bytes reserved by the allocator of one device, memory of that device), each -1 if unknown."""
    records = capture.tables["memory_records"]
    records = records[records["device"].to_numpy() >= 0] if len(records) else records
    most = int(records[["max_reserved", "reserved"]].to_numpy().max(initial=-1)) if len(records) else -1
    events = capture.tables["memory"]
    most = max(most, int(events["total_reserved"].to_numpy()[events["device_id"].to_numpy() >= 0].max(initial=-1)))
    total = int(records["total"].to_numpy().max(initial=-1)) if len(records) else -1
    if total <= 0:
        total = max((d.memory_bytes for d in capture.facts.devices), default=0) or -1
    return (most if most > 0 else -1), total
