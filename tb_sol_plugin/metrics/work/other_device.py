"""Computes limits of recorded work on another device, or with matrix work in another type. Bounds only: nothing here predicts a time.

    limit there = max(F / P'[d'], Fv / Pv', Q' / W')

F, Fv, Q: work as recorded; d': the chosen type where the call is eligible, else the recorded one; Q': bytes of an eligible call,
times the ratio of the element sizes. Eligible are matrix products, convolutions and attention in floating types that the new type
can stand for. Other work keeps its type and its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cost.roofline import limit, ratio
from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.time.waterfall import windows_of
from tb_sol_plugin.metrics.trees.phases import STEP, phase_tree
from tb_sol_plugin.metrics.work.sums import Calls, calls_of, nodes_of, unowned_ns
from tb_sol_plugin.metrics.work.work import launches_of
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask

Dtype: TypeAlias = Literal["recorded", "bf16", "fp16", "fp8", "tf32", "fp32"]

LEAST_NS: Final = 1.0
"""A limit below this is shown as 0; a ratio to it would say nothing."""
BYTES: Final = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
"""Bytes of an element; TF32 is stored in 4 bytes, only the arithmetic is shorter."""
STANDS_FOR: Final[dict[str, tuple[str, ...]]] = {
    "tf32": ("fp32",),
    "bf16": ("fp32", "tf32", "fp16"),
    "fp16": ("fp32", "tf32", "bf16"),
    "fp8": ("fp32", "tf32", "bf16", "fp16"),
    "fp32": ("tf32", "bf16", "fp16"),
}
"""The chosen type, and the recorded types of the matrix work that changes to it. FP64 and integers never change."""
OUTSIDE: Final = "(outside every phase)"
PASSES: Final = ("Forward", "Backward", "Forward, run again")
MOST_PHASES: Final = 12


@dataclass(frozen=True)
class Selected:
    """Modeled calls of the complete selected steps (of everything where no step was recorded).

    steps: what sums are divided by; window_ns: length of these steps; spent_ns: time of all their calls, with and without a model;
    phase: label per call, the pass where only the step is around it; by_pass: there are no phases to tell apart, only passes.
    demand: what the calls ask of a device.
    """

    calls: Calls
    use: npt.NDArray[np.int64]
    ops: pd.DataFrame
    steps: int
    window_ns: int
    spent_ns: int
    phase: pd.Categorical
    by_pass: bool
    demand: Demand


def selected(capture: Capture, part: Scope, limits: str = "") -> Selected:
    """Returns the calls that a limit can be stated for: with a cost model, a measured time, and matrix work or bytes that are known.

    A call whose time is not known (a SOL capture of a GPU) is among them, its time is in no sum.
    """
    calls = calls_of(capture, part, limits)
    windows, rows = windows_of(capture, part)
    inside = calls.ops["step"].isin(rows).to_numpy() if rows else np.ones(len(calls.ops), bool)
    flop, data = (calls.ops[c].to_numpy(dtype=np.float64) for c in ("flop", "bytes"))
    good = (
        inside
        & calls.ops["modeled"].to_numpy()
        & ~(calls.ops["measured_ns"].to_numpy(dtype=np.float64) <= 0)
        & ((flop > 0) | np.isfinite(data))
    )
    use = np.flatnonzero(good)
    ops = calls.ops.iloc[use].reset_index(drop=True)
    phase, names = _phases(capture, calls)
    phase = phase[use]
    by_pass = len(np.unique(phase)) < 2
    passes = _passes(ops)
    if by_pass:
        phase, names = passes, [*PASSES]
    else:
        phase = np.where(np.array([name == STEP for name in names])[phase], len(names) + passes, phase)
        names += PASSES
    return Selected(
        calls=calls,
        use=use,
        ops=ops,
        steps=max(len(rows), 1),
        window_ns=iv.length(windows),
        spent_ns=round(float(np.nansum(calls.values["owned_sum_ns"][inside]))) + _alone(capture, calls, part, rows),
        phase=arrays.labels(phase, names),
        by_pass=by_pass,
        demand=demand(ops),
    )


def _alone(capture: Capture, calls: Calls, part: Scope, rows: tuple[int, ...]) -> int:
    """Returns the device time in the selection that no operator owns."""
    among = part.device & np.isin(capture.device["step"].to_numpy(), rows) if rows else part.device
    return unowned_ns(capture, calls.done, among)


def _phases(capture: Capture, calls: Calls) -> tuple[Ints, list[str]]:
    """Returns the phase right below the step around each call, or the outermost phase where it has no step; places among names."""
    tree = phase_tree(capture)
    names = pd.factorize(np.array([*tree.name, OUTSIDE], object))
    top = np.arange(len(tree.name) + 1)
    top[-1] = len(tree.name)
    for i, up in enumerate(tree.parent.tolist()):
        if up >= 0:
            top[i] = i if tree.name[up] == STEP and tree.parent[up] < 0 else top[up]
    node = nodes_of(capture, calls)
    return np.asarray(names[0][top[np.where(node >= 0, node, len(tree.name))]], np.int64), [str(n) for n in names[1]]


def _passes(ops: pd.DataFrame) -> Ints:
    """Returns the place of each call's pass in PASSES."""
    backward = (ops["direction"] == "bwd").to_numpy()
    return np.where(ops["recompute"].to_numpy(), 2, backward.astype(np.int64))


@dataclass(frozen=True)
class Demand:
    """What calls ask of a device, each distinct demand once: FLOP, vector FLOP, bytes, and the place of the type in `types`.

    of: per call the place of its demand.
    """

    flop: Floats
    flop_vector: Floats
    data: Floats
    type: Ints
    types: tuple[str, ...]
    of: Ints


def demand(ops: pd.DataFrame) -> Demand:
    """Returns what calls (rows of `Work.ops`) ask of a device. Many calls ask the same, so devices are tried on few rows."""
    names = ops["dtype"].cat.categories
    code = arrays.codes(ops["dtype"])
    flop, vector, data = (np.ascontiguousarray(ops[c].to_numpy(dtype=np.float64)) for c in ("flop", "flop_vector", "bytes"))
    of, first = arrays.numbered(arrays.together(code, *(c.view(np.int64) for c in (flop, vector, data))))  # by bits: NaN is a value
    return Demand(flop[first], vector[first], data[first], code[first], tuple(str(n) for n in names), of)


@dataclass(frozen=True)
class Limits:
    """Per call: sol_ns (NaN unknown), compute (arithmetic sets it), lacking (the device has no rate for its type), dtype.

    dtype: place of the type that it computes in among `types`, -1 unknown.
    """

    sol_ns: Floats
    compute: Mask
    lacking: Mask
    dtype: Ints
    types: tuple[str, ...]


def limits(asked: Demand, spec: DeviceSpec, dtype: Dtype = "recorded") -> Limits:
    """Returns limits of calls on a device, with eligible matrix work in `dtype`."""
    names = (*asked.types, dtype)
    can = np.array([dtype != "recorded" and name in STANDS_FOR.get(dtype, ()) for name in names])
    changed = can[asked.type] & (asked.flop > 0)
    after = np.where(changed, len(asked.types), asked.type)
    data = asked.data
    if changed.any():
        size = np.array([BYTES.get(name, 0) for name in names], np.float64)[asked.type]
        data = np.where(changed, data * BYTES[dtype] / np.where(size > 0, size, 1.0), data)
    peak = np.array([*(spec.matrix_peak(n) or np.nan for n in names), np.nan])[after]
    vector_peak = np.array([*(spec.vector_peak(n) or np.nan for n in names), np.nan])[after]
    lacking = (asked.flop > 0) & np.isnan(peak)
    sol, bound = limit(asked.flop, asked.flop_vector, data, peak, vector_peak, spec.memory_bandwidth or np.nan)
    return Limits(sol[asked.of], (bound == 1)[asked.of], lacking[asked.of], after[asked.of], names)


def eligible(ops: pd.DataFrame, dtype: Dtype) -> Mask:
    """Returns calls whose matrix work would change to `dtype`."""
    if dtype == "recorded":
        return np.zeros(len(ops), bool)
    floating = arrays.where(ops["dtype"], STANDS_FOR[dtype].__contains__)
    return np.asarray(floating & (ops["flop"].to_numpy(dtype=np.float64) > 0))


Columns: TypeAlias = dict[str, npt.NDArray[Any]]
"""Columns of rows, by name."""


def rows(keys: pd.Categorical, ops: pd.DataFrame, now: Limits | None, then: Limits | None, steps: int) -> Columns:
    """Returns the columns of one row per key, longest measured first (largest limit where nothing is measured); per step.

    Columns: name, calls, measured_ns, sol_ns, sol_then_ns, ratio (now over then), headroom (measured over then), bound, bound_then,
    lacking (types that the other device has no rate for, "" none), share (of the measured time of all rows). None is unknown.
    A limit is stated for a row only where every call in it has one.
    """
    codes, names = pd.factorize(keys)
    size = len(names)
    measured = ops["measured_ns"].to_numpy(dtype=np.float64)
    timed = np.isfinite(measured)
    spent = np.bincount(codes[timed], measured[timed], minlength=size) / steps
    time = np.where(np.bincount(codes[timed], minlength=size) > 0, spent, np.nan)
    (sol, bound), (least, bound_then) = (_sum(codes, size, found, steps) for found in (now, then))
    after = np.where(least >= LEAST_NS, least, np.nan)
    columns: Columns = {
        "name": np.asarray(names, object),
        "calls": np.bincount(codes, launches_of(ops), minlength=size) / steps,
        "measured_ns": time,
        "sol_ns": sol,
        "bound": bound,
        "sol_then_ns": least,
        "bound_then": bound_then,
        "lacking": np.array(_lacking(codes, size, then), object),
        "ratio": ratio(sol, after),
        "headroom": ratio(time, after),
        "share": ratio(time, np.full(size, np.nansum(time))),
    }
    by = time if timed.any() else sol if np.isfinite(sol).any() else least
    order = np.argsort(-by, kind="stable")  # unknown last
    return {name: values[order] for name, values in columns.items()}


def _sum(codes: npt.NDArray[np.integer], size: int, found: Limits | None, steps: int) -> tuple[Floats, npt.NDArray[np.object_]]:
    if found is None:
        return np.full(size, np.nan), np.full(size, None, object)
    known = np.isfinite(found.sol_ns)
    sol = found.sol_ns if known.all() else np.where(known, found.sol_ns, 0.0)
    total = np.bincount(codes, sol, minlength=size) / steps
    compute = np.bincount(codes, np.where(found.compute, sol, 0.0), minlength=size) / steps
    whole = np.bincount(codes[~known], minlength=size) == 0
    side = np.array([None, "memory", "compute"], object)[np.where(whole & (total > 0), 1 + (2 * compute >= total), 0)]
    return np.where(whole, total, np.nan), side


def _lacking(codes: npt.NDArray[np.integer], size: int, found: Limits | None) -> list[str]:
    words: list[set[str]] = [set() for _ in range(size)]
    if found is not None:
        many = len(found.types) + 1
        pairs = codes[found.lacking].astype(np.int64) * many + found.dtype[found.lacking]
        for pair in np.unique(pairs).tolist():
            words[pair // many].add(found.types[pair % many])
    return [", ".join(sorted(w)) for w in words]


@dataclass(frozen=True)
class Total:
    """The limit of all calls per step: sol_ns is None where some call has none; lacking names the types without a rate."""

    sol_ns: float | None
    compute_share: float | None
    lacking: str


def total(found: Limits, steps: int) -> Total:
    """Sum over all calls."""
    if not len(found.sol_ns):
        return Total(None, None, "")
    every = np.zeros(len(found.sol_ns), np.int64)
    (sol,), _ = _sum(every, 1, found, steps)
    (words,) = _lacking(every, 1, found)
    if not np.isfinite(sol):
        return Total(None, None, words)
    compute = float(found.sol_ns[found.compute].sum()) / steps
    return Total(float(sol), compute / float(sol) if sol > 0 else None, words)
