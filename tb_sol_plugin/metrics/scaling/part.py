"""What one worker brings to the points of a job: its steps, its batch, where it ran, and what the program recorded about itself."""

from __future__ import annotations

import re
from typing import Final, TypedDict

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.scaling.batch import batch_of
from tb_sol_plugin.metrics.scaling.steps import steps
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query

MOST_STEPS: Final = 2_000
"""Steps that a part carries at most, the last ones."""
_OF: Final = re.compile(r"\d+ of (\d+)")
_NAMED: Final = re.compile(r"(.+)_\d+$")
"""`host_process`, as torch's trace handler names workers."""


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One step. sync_ns: the part of its reduction of gradients behind which nothing is computed. reduces: whether there was one.

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
    """One worker. steps: complete ones but for the first, which has one-time costs; left: steps that are not among them.

    host: where it ran, "" unknown; host_guessed: read off the worker's name. batch: samples per micro-step and replica, 0 unknown.
    tensor, pipeline: parallel sizes; nodes, replicas: as the program told; 0 unknown.
    counted: what the program recorded; sqr, var: gradient statistics, None unknown.
    biased: these are from differences of successive steps. accumulation: allowed; None unknown.
    initial, most: initial and largest total batch size (0 unknown), bounds of the atomic one (0, 0 unknown).
    parameters: of the model, 0 unknown. reserved, memory: most bytes that a device's allocator held, and the device's; -1 unknown.
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
    parameters: int = 0


def part(capture: Capture, query: Query) -> ScalingPart:
    """The part of one worker, whatever is asked."""
    return part_of(capture)


def part_of(capture: Capture) -> ScalingPart:
    """The same."""
    meta = capture.facts.metadata
    tensor, pipeline = _size(meta, "tp", "tensor_parallel_size"), _size(meta, "pp", "pipeline_parallel_size")
    world = capture.facts.world_size or 0
    model = max(tensor, 1) * max(pipeline, 1)
    if capture.facts.source == "sol_capture":
        table = _iterations(capture)
    else:
        table = steps(capture, replicas=world // model if model > 1 and world % model == 0 else 0).assign(batch=0)
    use = table["complete"].to_numpy().copy()
    use[:1] = False
    kept = table[use].iloc[-MOST_STEPS:]
    rows = zip(*(kept[name].tolist() for name in ("number", "duration_ns", "sync_ns", "reduces", "batch")), strict=True)
    host, guessed = _host(capture)
    batch = batch_of(capture)
    reserved, memory = _memory(capture)
    return ScalingPart(
        tuple(Step(*row) for row in rows), len(table) - len(kept), host, guessed, batch.samples, batch.source, batch.guessed,
        tensor, pipeline, _size(meta, "", "num_nodes"), _size(meta, "", "num_replicas"), reserved=reserved, memory=memory,
        parameters=int(told) if (told := meta.get("model.parameters", "")).isascii() and told.isdigit() and len(told) < 16 else 0,
        **_recorded(capture),
    )  # fmt: skip


def _iterations(capture: Capture) -> pd.DataFrame:
    """Iterations of a SOL capture as steps: with their own samples, without those whose work was counted, and without synchronisation."""
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
    """What the program recorded of itself, see `tb_sol_plugin.capture.profile_step_commit`."""
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
    """A parallel size: of the recorder's groups, of its plan, or as other metadata names it; 0 unknown."""
    found = _OF.fullmatch(meta.get(f"groups.{group}", "")) if group else None
    if found:
        return int(found[1])
    texts = [meta.get(f"plan.{group}", "") if group else "", *(v for k, v in meta.items() if k.rpartition(".")[2] == name)]
    return next((int(t) for t in texts if t.isdigit() and 0 < int(t) < 2**31), 0)


def _memory(capture: Capture) -> tuple[int, int]:
    """(most bytes held by the allocator of one device, memory of that device), each -1 if unknown."""
    records = capture.tables["memory_records"]
    records = records[records["device"].to_numpy() >= 0]
    most = int(records[["max_reserved", "reserved"]].to_numpy().max(initial=-1)) if len(records) else -1
    events = capture.tables["memory"]
    events = events[events["device_id"].to_numpy() >= 0]
    most = max(most, int(events["total_reserved"].to_numpy().max(initial=-1)))
    total = int(records["total"].to_numpy().max(initial=-1)) if len(records) else -1
    if total <= 0:
        total = max((d.memory_bytes for d in capture.facts.devices), default=0) or -1
    return (most if most > 0 else -1), total
