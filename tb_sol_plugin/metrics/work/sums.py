"""Sums work of operator calls as columns that add up over any grouping, and makes ratios from the sums.

A call counts once, in the group of the call that owns the work, so the sums over all groups of any page are the totals of the
roofline. Calls without a host row (work launched before the window and known by its kernel) carry -1: their group is the caller's choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec import Struct

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.cost.roofline import TOLERATED, ratio
from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.metrics import kept_with, memo, memo_under
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.trees.phases import STEP, device_owners, phase_tree
from tb_sol_plugin.metrics.work.work import Work, work
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.columns import Numbers, columned
from tb_sol_plugin.model.report import Mark
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask, exact_sums
from tb_sol_plugin.tables.compiled import compiled, fixed
from tb_sol_plugin.tables.table import with_columns

VALUES: Final = (
    "flop",
    "bytes",
    "sol_ns",
    "measured_ns",
    "timed_sol_ns",
    "compute_limit_ns",
    "modelled_sum_ns",
    "owned_sum_ns",
    "recompute_ns",
    "backward_flop",
    "estimated_calls",
)
"""Columns that add up; NaN is unknown.

flop (matrix), bytes: of calls with a cost model; backward_flop: the part of flop of the backward pass. sol_ns: of calls with a limit;
measured_ns: their time where it is known; timed_sol_ns: the limit of those with a known time; compute_limit_ns: the part of sol_ns that
arithmetic sets. modelled_sum_ns: plain sum of the device time of calls with a model, owned_sum_ns of all calls,
recompute_ns of forward calls run again in the backward pass. estimated_calls: calls with a limit that rests on an assumption.
"""
FLAGGED: Final = "above the limit: data that stayed in cache, an algorithm with fewer operations, or a wrong type"
RATIOS: Final = ("wasted_ns", "efficiency", "bound", "flags", "recompute_share")


class Calls(Struct, frozen=True, dict=True):
    """The calls of one selection. host: their host rows, -1 where none. rows: their rows in `done.ops`. values: one array per VALUES."""

    host: npt.NDArray[np.int32]
    rows: npt.NDArray[np.int64]
    values: dict[str, Floats]
    ops: pd.DataFrame
    done: Work

    @cached_property
    def total(self) -> dict[str, Any]:
        """The sum of each of VALUES over all calls, NaN where none has one, and RATIOS of these."""
        whole = summed(self.values, np.zeros(len(self.values["flop"]), np.intp), 1)
        return {name: column[0] for name, column in (whole | ratios_of(whole)).items()}


def calls_of(capture: Capture, part: Scope, limits: str = "") -> Calls:
    """Returns calls of the selected steps under the matched limits or those named by `limits` (BadQuery for an unknown device).

    As on the roofline: all calls for the whole recording, else those whose work was launched in a selected step.
    """
    done = work(capture, device_for(capture, limits))
    return memo_under(capture, done.spec, ("work_sums.calls", part.whole, part.rows), lambda: _calls(done, part))


def _calls(done: Work, part: Scope) -> Calls:
    ops = done.ops
    rows = np.arange(len(ops)) if part.whole else np.flatnonzero(ops["step"].isin(part.rows).to_numpy())
    chosen = ops if part.whole else ops.iloc[rows]
    values = done.values if part.whole else {name: column[rows] for name, column in done.values.items()}
    return Calls(chosen["host"].to_numpy(dtype=np.int32), rows.astype(np.int64), values, chosen, done)


def unowned_by_step(capture: Capture, done: Work) -> Ints:
    """Returns the sum of the device events that no operator owns, per row of `steps` and last those of no step."""
    step, count = capture.device["step"].to_numpy(), len(capture.steps)
    if done.by_host_time or done.from_ledger:
        return np.zeros(count + 1, np.int64)
    free = np.flatnonzero(done.owner < 0)
    return exact_sums(np.where(step[free] < 0, count, step[free]), capture.device["duration_ns"].to_numpy()[free], count + 1)


def unowned_ns(capture: Capture, done: Work, among: Mask) -> int:
    """Returns the sum of the device events of a mask that no operator owns; 0 where operators have no device work."""
    if done.by_host_time or done.from_ledger:
        return 0
    return int(capture.device["duration_ns"].to_numpy()[among & (done.owner < 0)].sum())


def sums(values: dict[str, Floats], code: npt.NDArray[np.integer], size: int) -> pd.DataFrame:
    """Returns the columns of `summed` as a table."""
    return pd.DataFrame(summed(values, code, size), copy=False)


def summed(values: dict[str, Floats], code: npt.NDArray[np.integer], size: int) -> dict[str, Floats]:
    """Returns per group 0..size-1 (-1 is left out) the sum of each of VALUES over its calls; NaN where no call has one."""
    group = fixed(code, np.int64)
    nothing = np.full(size, np.nan)  # one for all columns that nothing is known of
    out: dict[str, Floats] = {}
    loop = add_known_kernel if add_known_kernel.loaded or len(code) > LOADING_PAYS else add_known
    for name, column in values.items():
        total, known = np.zeros(size), np.zeros(size, np.bool_)
        some = loop(group, fixed(column, np.float64), total, known)
        if some:
            total[~known] = np.nan
        out[name] = total if some else nothing
    return out


def add_known(group: Ints, values: Floats, total: Floats, known: Mask) -> bool:
    """Does the same as the compiled loop, in numpy: it adds in the same order."""
    rows = np.flatnonzero((group >= 0) & np.isfinite(values))
    if len(rows):
        into = group[rows]
        total[:] = np.bincount(into, values[rows], len(total))
        known[into] = True
    return len(rows) > 0


LOADING_PAYS: Final = 10_000
"""Calls up to which numpy costs less than loading the compiled loop."""


def load() -> None:
    """Loads the compiled loop ahead of time, as `tree.load` does."""
    none = np.zeros(0)
    add_known_kernel(fixed(none, np.int64), fixed(none, np.float64), none.copy(), np.zeros(0, np.bool_))


@compiled()
def add_known_kernel(group, values, total, known):  # type: ignore[no-untyped-def]
    """Adds to each group what is known of its values, and marks groups with any; returns whether there is one. -1 is no group."""
    some = False
    for i in range(len(values)):
        at = group[i]
        if at >= 0 and np.isfinite(values[i]):
            total[at] += values[i]
            known[at] = some = True
    return some


def subtree_sums(own: Mapping[str, Floats], end: npt.NDArray[np.int32]) -> dict[str, Floats]:
    """Returns per node in preorder the sums over its subtree, up to row `end`; NaN where no node in it has a value."""
    out: dict[str, Floats] = {}
    for name, values in own.items():
        known = np.isfinite(values)
        total, count = (np.concatenate(([0.0], np.cumsum(v))) for v in (np.where(known, values, 0.0), known.astype(np.float64)))
        some = (count[end] - count[:-1]) > 0
        out[name] = np.where(some, np.maximum(total[end] - total[:-1], 0.0), np.nan)
    return out


def ratios(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns `frame` with the columns of `ratios_of` its sums (VALUES)."""
    return with_columns(frame, ratios_of({name: frame[name].to_numpy(dtype=np.float64) for name in _DIVIDED}))


def ratios_of(of: Mapping[str, Floats]) -> dict[str, npt.NDArray[Any]]:
    """Returns RATIOS of groups, made from their sums (VALUES).

    wasted_ns: measured less limit. bound: what sets the larger part of the limit (compute, memory, None unknown). flags: words, "" none.
    Ratios of times are over the calls whose time is known.
    """
    sol, least, measured, compute, guessed, again, owned = (of[name] for name in _DIVIDED)
    known = np.isfinite(least) & np.isfinite(measured) & (measured > 0)
    efficiency = ratio(np.where(known, least, np.nan), measured)
    return {
        "wasted_ns": np.where(known, measured - least, np.nan),
        "efficiency": efficiency,
        "bound": _SIDES[np.where(np.isfinite(sol) & (sol > 0), 1 + (2 * compute >= sol), 0)],
        "flags": _WORDS[(efficiency > TOLERATED) + 2 * (guessed > 0)],
        "recompute_share": ratio(again, owned),
    }


_DIVIDED: Final = ("sol_ns", "timed_sol_ns", "measured_ns", "compute_limit_ns", "estimated_calls", "recompute_ns", "owned_sum_ns")
_SIDES: Final = np.array([None, "memory", "compute"], object)
_WORDS: Final = np.array(["", "above limit", "estimated", "above limit, estimated"], object)


def partial(share: object) -> Mark | None:
    """Returns the mark of a ratio over a part of the time only (below 95 %); None for one over all of it, or of which that is unknown."""
    known = isinstance(share, int | float) and share < 0.95
    return Mark("partial", f"covers {100 * share:.1f} % of the time") if known else None  # type: ignore[operator]


def marks_of(efficiency: Sequence[object], flags: Sequence[object], share: Sequence[object] | None = None) -> dict[str, Mark]:
    """Returns marks of an efficiency column by row: above the limit, on an assumption, or over a part of the time (below 95 %) only."""
    out: dict[str, Mark] = {}
    rows: Sequence[int] = range(len(efficiency))
    if isinstance(efficiency, Numbers):  # of many rows most may have none
        some = np.flatnonzero(efficiency.known)
        rows, efficiency, flags = some.tolist(), efficiency.at(some), columned(flags).at(some)  # type: ignore[arg-type]
        share = columned(share).at(some) if share is not None else None  # type: ignore[arg-type]
    for place, (row, value, words) in enumerate(zip(rows, efficiency, flags, strict=True)):
        if not isinstance(value, int | float) or value != value:
            continue
        covered = share[place] if share is not None else None
        if value > TOLERATED:
            out[str(row)] = Mark("flagged", FLAGGED)
        elif (part := partial(covered)) is not None:
            out[str(row)] = part
        elif isinstance(words, str) and "estimated" in words:
            out[str(row)] = Mark("estimated", "some of this work rests on an assumption about sizes")
    return out


# -- How much of the device a stretch of time used -------------------------------------------------------------------
# model FLOP utilization, hardware FLOP utilization, bandwidth utilization.
#
#     MFU = sum over types d of F[d] / P[d], over the time; F without work that is done again
#     HFU = the same with all work that ran
#     bandwidth utilization = least bytes / (time x bandwidth)
#
# F: matrix FLOP (products, convolutions, attention; causal-aware). P: dense matrix peak. The definitions of MFU and HFU are those of
# Chowdhery et al., PaLM (2022), appendix B; with several types the time at the peak of each is summed. Done again are the forward calls
# that run a second time in the backward pass, and the scores that a fused attention computes a second time in its own: MFU counts
# twice the forward for it, HFU the five products that ran.


class Utilization(Struct, frozen=True):
    """How much of a device's peak a stretch of time used.

    mfu, hfu, bandwidth_utilisation: ratios, None where the peak, the work or the time is unknown.

    model_flop, recompute_flop: matrix FLOP without and of what is done again, None without any matrix work. without_peak_flop: the part in
    types without a peak, which is in no ratio. dtype: the type that holds most of the matrix work, "" without.
    """

    mfu: float | None
    hfu: float | None
    model_flop: int | None
    recompute_flop: int | None
    bandwidth_utilisation: float | None
    dtype: str
    without_peak_flop: int = 0


class Performed(NamedTuple):
    """What calls do that the use of a device follows from: matrix FLOP, the part of it that is done again, its type, and traffic.

    type: place in `types`, the last for unknown. data: bytes of modeled calls, NaN unknown.
    """

    flop: Floats
    again: Floats
    type: npt.NDArray[np.integer]
    data: Floats
    types: tuple[str, ...]

    def take(self, rows: npt.NDArray[np.integer] | slice) -> Performed:
        """Returns the same of some of the calls."""
        return self._replace(flop=self.flop[rows], again=self.again[rows], type=self.type[rows], data=self.data[rows])


def performed(ops: pd.DataFrame) -> Performed:
    """Returns what the calls `ops` (rows of `Work.ops`) do; of a table found once."""
    return kept_with(ops, "work.performed", lambda: _performed(ops))


def _performed(ops: pd.DataFrame) -> Performed:
    codes = arrays.coded(ops["dtype"]).codes
    names = (*ops["dtype"].cat.categories.astype(str), "")
    return Performed(
        flop=np.nan_to_num(ops["flop"].to_numpy(dtype=np.float64)),
        again=ops["flop_again"].to_numpy(dtype=np.float64),
        type=np.where(codes < 0, len(names) - 1, codes),
        data=np.where(ops["modeled"].to_numpy(), ops["bytes"].to_numpy(dtype=np.float64), np.nan),
        types=names,
    )


def utilization(ops: pd.DataFrame, spec: DeviceSpec | None, time_ns: int, *, devices: int = 1) -> Utilization:
    """Returns the use of `devices` equal devices over `time_ns` by the calls `ops` (rows of `Work.ops`)."""
    return use_of(performed(ops), spec, time_ns, devices=devices)


def use_of(done: Performed, spec: DeviceSpec | None, time_ns: int, *, devices: int = 1) -> Utilization:
    """Returns the same for calls of which only this is known."""
    flop, names = done.flop, done.types
    both, again = (np.bincount(done.type, values, minlength=len(names)) for values in (flop, done.again))
    if not both.sum() > 0:
        return Utilization(None, None, None, None, _bandwidth(done.data, spec, time_ns, devices), "")
    peaks = np.array([(spec.matrix_peak(name) or np.nan) if spec is not None else np.nan for name in names])
    lost = np.isnan(peaks)

    def ratio(work: np.ndarray) -> float | None:
        seconds = float((work[~lost] / peaks[~lost]).sum())
        return seconds * 1e9 / (time_ns * devices) if time_ns > 0 and both[~lost].sum() > 0 else None

    return Utilization(
        ratio(both - again),
        ratio(both),
        round(float((both - again).sum())),
        round(float(again.sum())),
        _bandwidth(done.data, spec, time_ns, devices),
        names[int(np.argmax(both))],
        round(float(both[lost].sum())) if spec is not None else 0,
    )


def _bandwidth(data: Floats, spec: DeviceSpec | None, time_ns: int, devices: int) -> float | None:
    good = np.isfinite(data)
    if spec is None or not spec.memory_bandwidth or time_ns <= 0 or not good.any():
        return None
    return float(data[good].sum()) * 1e9 / (time_ns * devices * spec.memory_bandwidth)


# -- Work of operator calls by phase ---------------------------------------------------------------------------------
# each call counts once, at the innermost phase around the launch of its device work.
#
# A call that a SOL capture counted carries its phase itself.


Nodes = npt.NDArray[np.int32]
NO_PHASE: Final = "(no phase)"


class PhaseWork(Struct, frozen=True, dict=True):
    """Work of operator calls per node of the phase tree.

    node: per call its phase node, -1 outside every phase. own, inside: sums of VALUES per node, and `ops`, calls with a limit; alone and
    with those of the phases in it.
    """

    calls: Calls
    node: Nodes
    own: dict[str, Floats]
    inside: dict[str, Floats]

    @cached_property
    def inclusive(self) -> pd.DataFrame:
        """What is inside of each node as a table."""
        return pd.DataFrame(self.inside, copy=False)


def phase_work(capture: Capture, part: Scope, limits: str = "") -> PhaseWork:
    """Returns the work per node of `phase_tree`. A call without device work belongs to the phase around itself."""
    calls = calls_of(capture, part, limits)
    return memo_under(capture, calls.done.spec, ("phase_work", part.whole, part.rows), lambda: _phase_work(capture, calls))


def _phase_work(capture: Capture, calls: Calls) -> PhaseWork:
    tree = phase_tree(capture)
    size = len(tree.name)
    node = nodes_of(capture, calls)
    own = summed(calls.values, node, size)
    limited = (node >= 0) & np.isfinite(calls.values["sol_ns"])
    own["ops"] = np.bincount(node[limited], minlength=size).astype(np.float64)
    return PhaseWork(calls, node, own, subtree_sums(own, tree.end))


def in_a_phase(paths: list[str]) -> npt.NDArray[np.bool_]:
    """Returns per phase node, and once more for -1, whether work there is in a phase of the program: a step is none."""
    return np.array([*(path != STEP for path in paths), False], bool)


def nodes_of(capture: Capture, calls: Calls) -> Nodes:
    """Returns the phase node per call, -1 outside every phase."""

    def make() -> Nodes:
        owner = calls.done.owner
        first = np.full(len(calls.done.ops), -1, np.int32)
        rows = np.flatnonzero(owner >= 0)[::-1]
        if len(rows):
            first[owner[rows]] = device_owners(capture).node[rows]
        host = calls.done.ops["host"].to_numpy()
        around, _ = at.annotation_around(capture, host)
        counted = (host < 0) & (calls.done.ops["annotation"].to_numpy() >= 0)
        around = np.where(counted, calls.done.ops["annotation"].to_numpy(), around)
        tree = phase_tree(capture)
        by_host = np.where(around >= 0, tree.node[np.maximum(around, 0)], -1) if len(tree.node) else np.full(len(host), -1)
        return np.where((first >= 0) & ~counted, first, by_host).astype(np.int32)

    return memo(capture, ("phase_work.nodes",), make)[calls.rows]
