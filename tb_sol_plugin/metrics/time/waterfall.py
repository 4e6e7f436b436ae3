"""Splits measured steps down to the speed of light: every nanosecond of the selected windows is in exactly one part.

    total = waits for input + launch gaps + waits for a blocked host + other waits + exposed communication + exposed copies
          + per kind (time of modeled work above its limit) + recomputed work above its limit + time without a cost model
          + speed of light (limits of compute-bound, of memory-bound and of recomputed work)

Parts of the device's time are exclusive: what several events cover at once counts for the one that computes first, communication
counts where nothing computes, copies where neither runs. The limit of an operator is the one of `metrics.work.calls`. With several devices
the time is that in which any of them runs, and the limit that of the one with most to do. A recording without device work is split by the
host's operators instead (`metrics.waterfall_host`), a SOL capture by the times in its ledger (`metrics.waterfall_ledger`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cost.roofline import BOUNDS
from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.metrics import kept_with, memo, memo_under
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time import scope
from tb_sol_plugin.metrics.time.breakdown import COMMUNICATION, COMPUTATION, MEMCPY, classes, host_idle, loading_rows, waits
from tb_sol_plugin.metrics.time.graph_launches import graph_launches
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.work.costs import KINDS
from tb_sol_plugin.metrics.work.work import Work, achievable_limits, work
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.graph_capture import graph_sets
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask

# -- The host's time in exclusive parts, for a recording without device work -----------------------------------------
#     window = loading of batches + modeled operators + operators without a model + framework + outside every operator
#
# Framework is the time in operators that themselves do nothing but call others (dispatch, autograd nodes). Where several threads run,
# a moment counts once, in this order.


@dataclass(frozen=True)
class HostSplit:
    """Time of the host split into operators, loading and the rest.

    own: exclusive ns per row of Work.ops, 0 for one without a model. busy: when any operator runs outside loading; busy_ns its length.

    total_ns: length of the windows; the parts add up to it. scaled: times of operators are on another clock than they were taken on.
    """

    own: Ints
    busy: iv.Spans
    busy_ns: int
    total_ns: int
    loading_ns: int
    unmodelled_ns: int
    framework_ns: int
    outside_ns: int
    communication_ns: int = 0
    scaled: bool = False


def split_host(capture: Capture, done: Work, windows: iv.Spans) -> HostSplit:
    """Returns the parts of `windows` by the operators of `done`."""
    h = at.host(capture)
    named = np.flatnonzero(done.ops["host"].to_numpy() >= 0)
    rows = np.concatenate((done.ops["host"].to_numpy()[named].astype(np.int64), done.replaced[0]))
    op = np.concatenate((named, done.replaced[1]))
    modeled = done.ops["modeled"].to_numpy()[op]
    free = iv.subtract(windows, loading_spans(capture))
    own = np.zeros(len(rows), np.int64)
    modeled_rows = np.flatnonzero(modeled)
    modeled_rows = modeled_rows[np.argsort(h.start[rows[modeled_rows]], kind="stable")]
    if len(modeled_rows):
        start, stop = h.start[rows[modeled_rows]], h.stop[rows[modeled_rows]]
        reach = np.concatenate((start[:1], np.maximum.accumulate(stop)[:-1]))
        first = np.maximum(start, reach)
        own[modeled_rows] = iv.overlap_with(first, np.maximum(stop, first), free)
    flag = np.zeros(len(h.start), np.int64)
    flag[rows[modeled]] = 1
    calls_others = np.asarray(tree.subtree_sum(flag, h.end), np.int64)[rows] > 0
    leaf = rows[~modeled & ~calls_others]
    operators = np.flatnonzero(h.kind == S.OPERATOR)
    layers = [iv.union(h.start[r], h.stop[r]) for r in (rows[modeled], leaf, operators)]
    parts = [iv.intersect(layer, free) for layer in iv.exclusive(layers)]
    busy = iv.merge(*parts)
    return HostSplit(
        at.sum_by(op, own, len(done.ops)),
        busy,
        iv.length(busy),
        iv.length(windows),
        iv.length(windows) - iv.length(free),
        iv.length(parts[1]),
        iv.length(parts[2]),
        iv.length(free) - iv.length(busy),
    )


def loading_spans(capture: Capture) -> iv.Spans:
    """Returns when some thread fetches a batch: `enumerate(DataLoader)#….__next__` and the like."""

    def make() -> iv.Spans:
        h = at.host(capture)
        rows = loading_rows(capture, S.ANNOTATION, S.OPERATOR)
        return iv.union(h.start[rows], h.stop[rows])

    return memo(capture, ("waterfall.loading",), make)


# -- The steps of a SOL capture in exclusive parts -------------------------------------------------------------------
# by the times in its ledger.
#
#     steps = modeled operators + operators without a model + communication + everything else
#
# Counting makes the host slower, so a step lasts as long as the iterations of the same inputs in which nothing was counted (their median);
# where there are none, as long as the sampled ones. Of a device it is the time between the events at both ends. The recorder times the
# operators of a CPU one by one, so their times add up where they run one after another; everything else is Python, dispatch and what the
# recorder does not see. The parts of a sampled step are set against that step, and then scaled to the length of the others: an operator
# takes the same part of both. Operators of several threads at once that add up to more than their step share it by their times. A device's
# operators are not timed: its steps stay whole.


SCALED: Final = "scaled from sampled steps"
"""Of times that were taken while work was counted, and are set against steps in which it was not."""


def split_ledger(capture: Capture, done: Work, windows: iv.Spans, rows: tuple[int, ...]) -> HostSplit:
    """Returns the parts of the steps `rows`, whose bounds are `windows`."""
    ops = done.ops
    time = np.nan_to_num(ops["measured_ns"].to_numpy(dtype=np.float64))
    if rows:
        time[~np.isin(ops["step"].to_numpy(), rows)] = 0.0
    whole = scope.is_profile(capture)  # sums of a whole profile: nothing is known of what lies between
    usual = scope.step_time(capture, rows)
    factor = np.ones(len(ops)) if whole or not done.timed else _factors(capture, time, ops["step"].to_numpy(), rows, windows)
    scaled = bool((factor[time > 0] != 1).any())
    time = _whole(time * factor) if scaled else np.rint(time)
    modeled, apart = ops["modeled"].to_numpy(), ops["collective"].to_numpy()
    own = np.where(modeled, time, 0.0).astype(np.int64)
    unmodeled = round(float(time[~modeled & ~apart].sum()))
    moving = round(float(time[~modeled & apart].sum()))
    busy = int(own.sum()) + unmodeled + moving
    total = busy if whole else iv.length(windows)
    if usual is not None:
        total = round(usual.length_ns * len(rows))
    return HostSplit(
        own=own,
        busy=iv.empty(),
        busy_ns=busy,
        total_ns=total,
        loading_ns=0,
        unmodelled_ns=unmodeled,
        framework_ns=0,
        outside_ns=total - busy if done.timed else 0,
        communication_ns=moving,
        scaled=scaled,
    )


def _whole(time: Floats) -> Floats:
    """Returns times in whole ns, each within one of its own, that add up to their sum: thousands of calls lose no part of a step."""
    return np.diff(np.floor(np.cumsum(time)), prepend=0.0)


def _factors(capture: Capture, time: Floats, step: Ints, rows: tuple[int, ...], windows: iv.Spans) -> Floats:
    """Returns per operator call the length that its step is shown with over the length that it was timed in.

    time: of each call; step: the row of `steps` of each call. The length that it was timed in is that of the sampled step, or of all its
    operators where these take longer.
    """
    if not rows:
        busy = float(time.sum())
        return np.full(len(time), min(1.0, iv.length(windows) / busy) if busy else 1.0)
    start, end = (capture.steps[c].to_numpy()[list(rows)].astype(np.float64) for c in ("start_ns", "end_ns"))
    usual = scope.step_time(capture, rows)
    shown = end - start if usual is None else np.array(usual.each_ns)
    place = np.full(len(capture.steps), -1, np.int64)
    place[list(rows)] = np.arange(len(rows))
    of = np.where(step >= 0, place[step], -1) if len(step) else np.zeros(0, np.int64)
    busy_ns = np.bincount(of[of >= 0], time[of >= 0], minlength=len(rows))
    timed_in = np.maximum(end - start, busy_ns)
    factor = np.divide(shown, timed_in, out=np.ones(len(rows)), where=timed_in > 0)
    return np.asarray(np.where(of >= 0, factor[of], 1.0), np.float64)


NO_KIND: Final = len(KINDS)
"""Kind of device time that no cost model covers."""


@dataclass(frozen=True)
class Limits:
    """Sums of limits in ns of the counted calls. compute, memory: of first-time work, by its bound; again: of recomputed work.

    by_kind: all of it by kind; again_by_kind: the recomputed part. achievable: all of it at the achievable matrix rate, None where none
    is known.
    """

    by_kind: Mapping[str, float]
    again_by_kind: Mapping[str, float]
    compute: float
    memory: float
    again: float
    achievable: float | None


@dataclass(frozen=True)
class Waterfall:
    """All times in ns, summed over `steps` windows of `windows`.

    own: per device row its exclusive part inside the windows. kind: index into KINDS per device row, NO_KIND without a model.
    op_own: per row of Work.ops its exclusive part. kind_ns: exclusive time of modeled work by kind; again_ns: the part of it that is
    recomputed work. limits: what that work takes at the limits. inside: per row of Work.ops, whether it is modeled work of the windows;
    counted: and its limit is known.
    host_wait_ns: all idle time but the waits for input; launch_gap_ns and blocked_ns are parts of it (`breakdown.waits`), and so is
    device_wait_ns: the next work was launched before, or its launch is not recorded, or the profiler works, so the device does not wait for
    the program; graph_start_ns is the part of that between the launch of a graph and its first event.
    By host time only: framework_ns, operators that only call others; outside_ns, time in no operator (of a SOL capture all that is not
    in an operator it timed).
    unsplit_ns: the whole, where no call has a time (a SOL capture of a GPU).
    devices: how many the modeled work ran on. parallel: limits of all work over those of the device with most of it, 1 to `devices`: what
    to divide the limit of a call by, so that the limits of all calls sum up to that device's. scaled: times of operators are those of
    sampled steps, scaled to the length of the others. captured: launches that became nodes of graphs and did not run, where they are more
    than the device events: then the work of the recording is not the work of the program.
    """

    windows: iv.Spans
    steps: int
    stepped: bool
    total_ns: int
    busy_ns: int
    input_wait_ns: int
    host_wait_ns: int
    launch_gap_ns: int
    blocked_ns: int
    device_wait_ns: int
    graph_start_ns: int
    exposed_communication_ns: int
    exposed_copies_ns: int
    unmodelled_ns: int
    framework_ns: int
    outside_ns: int
    kind_ns: dict[str, int]
    again_ns: dict[str, int]
    limits: Limits
    own: Ints
    op_own: Ints
    kind: npt.NDArray[np.int8]
    idle: iv.Spans
    loading: iv.Spans
    inside: Mask
    counted: Mask
    devices: int
    parallel: float
    work: Work
    unsplit_ns: int = 0
    scaled: bool = False
    captured: int = 0

    @property
    def limit_ns(self) -> Mapping[str, float]:
        """Limit of the modeled work by kind, recomputed work included."""
        return self.limits.by_kind

    @property
    def sol_ns(self) -> float:
        """Sum of the limits of all modeled work, recomputed work included."""
        return sum(self.limits.by_kind.values())

    @property
    def measured_parts(self) -> dict[str, int]:
        """The exclusive parts of the measured time; they add up to `total_ns`."""
        return {
            "input_wait": self.input_wait_ns,
            "launch_gaps": self.launch_gap_ns,
            "blocked": self.blocked_ns,
            "other_waits": self.host_wait_ns - self.launch_gap_ns - self.blocked_ns,
            "exposed_communication": self.exposed_communication_ns,
            "exposed_copies": self.exposed_copies_ns,
            "unmodelled": self.unmodelled_ns,
            "framework": self.framework_ns,
            "outside": self.outside_ns,
            "unsplit": self.unsplit_ns,
            **self.kind_ns,
        }

    @property
    def modeled_kernel_share(self) -> float | None:
        """Part of the device's own work (communication and copies over a link set aside) that a cost model covers; None without any.

        By time; by calls where these have none.
        """
        if not self.work.timed:
            own = ~self.work.ops["collective"].to_numpy()
            return float(self.inside.sum() / own.sum()) if own.any() else None
        known = sum(self.kind_ns.values())
        return known / (known + self.unmodelled_ns) if known + self.unmodelled_ns else None

    @property
    def ratio(self) -> float | None:
        """Speed of light over the measured time; None without limits."""
        return self.sol_ns / self.total_ns if self.has_limits and self.total_ns else None

    @property
    def has_limits(self) -> bool:
        """Whether the device's limits are known, memory bandwidth among them, and any work has one."""
        return self.work.spec is not None and bool(self.counted.any())


def windows_of(capture: Capture, part: Scope) -> tuple[iv.Spans, tuple[int, ...]]:
    """Returns (GPU-aware bounds of the selected steps, their rows); incomplete steps are left out where there are others.

    Without a recorded step the window of the selection, and no rows.
    """
    if not part.rows:
        return iv.one(*part.window_ns), ()

    def make() -> tuple[iv.Spans, tuple[int, ...]]:
        complete = capture.steps["complete"].to_numpy()
        rows = tuple(r for r in part.rows if complete[r]) or part.rows
        chosen = list(rows)
        return iv.union(capture.steps["start_ns"].to_numpy()[chosen], capture.steps["end_ns"].to_numpy()[chosen]), rows

    return memo(capture, ("windows_of", part.rows), make)


def captured_launches(capture: Capture) -> int:
    """Counts the launches that were captured into graphs while this was recorded, and so did not run."""

    def make() -> int:
        if not at.any_named(capture, lambda name: "StreamBeginCapture" in name):
            return 0
        return sum(len(graph.names) for one in graph_sets(capture, "")[0] for graph in one.graphs)

    return memo(capture, ("captured_launches",), make)


def waterfall(capture: Capture, part: Scope, limits: str = "") -> Waterfall:
    """Returns the split of the selected steps under the matched limits, or those of the device named by `limits` (BadQuery if unknown)."""
    spec = device_for(capture, limits)
    key = ("waterfall", part.label, part.rows, part.window_ns)
    return memo_under(capture, spec, key, lambda: _waterfall(capture, part, work(capture, spec)))


def _without(spans: iv.Spans, *others: iv.Spans) -> iv.Spans:
    """Returns what none of the others covers; they may be of the whole recording."""
    return iv.subtract(spans, iv.merge(*(iv.facing(one, spans) for one in others)))


def _waterfall(capture: Capture, part: Scope, done: Work) -> Waterfall:
    windows, rows = windows_of(capture, part)
    ops = done.ops
    of = kept_with(ops, "waterfall.device_work", lambda: _device_work(capture, done))
    own, busy = exclusive_parts(of.start, of.stop, of.layer, windows)
    there = np.flatnonzero(own)
    own_there, layer_there, kind_there = own[there], of.layer[there], of.kind[there]
    modeled_there = kind_there != NO_KIND
    op_own = np.zeros(len(ops), np.int64)
    np.add.at(op_own, of.owner[there[modeled_there]], own_there[modeled_there])
    loading = loading_spans(capture)
    host: HostSplit | None = None
    if done.from_ledger:
        host = split_ledger(capture, done, windows, rows)
        loading = iv.empty()
    elif done.by_host_time:
        host = split_host(capture, done, windows)
    if host is not None:
        op_own = host.own
        busy = host.busy
    total = iv.length(windows) if host is None else host.total_ns
    idle = iv.subtract(windows, busy) if not done.from_ledger else iv.empty()
    if host is None:  # what was launched early waits for the device, whatever the host does meanwhile
        loading = iv.intersect(loading, host_idle(capture))
    wait = iv.subtract(idle, loading) if host is None else iv.empty()
    why = waits(capture) if host is None else None
    alone = _without(wait, why.launch, why.blocked, host_idle(capture)) if why else iv.empty()
    inside = _inside(part, done, rows, op_own)
    known = done.spec is not None and done.spec.memory_bandwidth is not None
    counted = inside & known & np.isfinite(ops["sol_ns"].to_numpy(dtype=np.float64))
    parallel = _parallel(ops, counted, of.owner, capture.device["device"].to_numpy(), of.kind != NO_KIND) if of.devices > 1 else 1.0
    calls = np.flatnonzero(op_own)
    code = np.where(ops["modeled"].to_numpy()[calls], arrays.coded(ops["kind"]).codes[calls], -1)
    again = np.where(ops["recompute"].to_numpy()[calls], code, -1)
    by_kind, again_by_kind = (
        dict(zip(KINDS, at.sum_by(kinds, op_own[calls], len(KINDS)).tolist(), strict=True)) for kinds in (code, again)
    )
    return Waterfall(
        windows=windows,
        steps=max(len(rows), 1),
        stepped=bool(rows),
        total_ns=total,
        busy_ns=iv.length(busy) if host is None else host.busy_ns,
        input_wait_ns=host.loading_ns if host else iv.length(iv.intersect(idle, loading)),
        host_wait_ns=iv.length(wait),
        launch_gap_ns=iv.length(iv.intersect(wait, why.launch)) if why else 0,
        blocked_ns=iv.length(iv.intersect(wait, why.blocked)) if why else 0,
        device_wait_ns=iv.length(alone),
        graph_start_ns=iv.length(iv.intersect(alone, graph_launches(capture).waits)),
        exposed_communication_ns=int(own_there[layer_there == COMMUNICATION].sum()) + (host.communication_ns if host else 0),
        exposed_copies_ns=int(own_there[layer_there == MEMCPY].sum()),
        unmodelled_ns=host.unmodelled_ns if host else int(own_there[(layer_there == COMPUTATION) & ~modeled_there].sum()),
        framework_ns=host.framework_ns if host else 0,
        outside_ns=host.outside_ns if host else 0,
        kind_ns=by_kind,
        again_ns=again_by_kind,
        limits=_limits(done, counted, parallel),
        own=own,
        op_own=op_own,
        kind=of.kind,
        idle=idle,
        loading=loading,
        inside=inside,
        counted=counted,
        devices=of.devices or 1,
        parallel=parallel,
        work=done,
        unsplit_ns=0 if done.timed else total,
        scaled=host is not None and host.scaled,
        captured=count if (count := captured_launches(capture)) > len(of.start) else 0,
    )


class _DeviceWork(NamedTuple):
    """Device work by what it is, whatever is selected, per device row: when it runs, whose call it is (-1 none), index into `CLASSES`, and
    into KINDS, NO_KIND without a model. devices: how many the modeled work ran on.

    A copy that is the work of a modeled call computes.
    """

    start: Ints
    stop: Ints
    owner: npt.NDArray[np.int32]
    layer: npt.NDArray[np.int8]
    kind: npt.NDArray[np.int8]
    devices: int


def _device_work(capture: Capture, done: Work) -> _DeviceWork:
    device, ops = capture.device, done.ops
    owner = done.owner if len(done.owner) == len(device) else np.full(len(device), -1, np.int32)
    kinds = np.where(ops["modeled"].to_numpy(), arrays.coded(ops["kind"]).codes, NO_KIND)
    kind = np.append(kinds, NO_KIND).astype(np.int8)[owner]
    layer = classes(capture).copy()
    layer[(layer == MEMCPY) & (kind != NO_KIND)] = COMPUTATION
    kind[layer != COMPUTATION] = NO_KIND
    start = device["start_ns"].to_numpy()
    ids = device["device"].to_numpy()
    several = len(ids) > 0 and bool((ids != ids[0]).any())
    devices = len(np.unique(ids[kind != NO_KIND])) if several else int((kind != NO_KIND).any())
    return _DeviceWork(start, start + device["duration_ns"].to_numpy(), owner, layer, kind, devices)


def _inside(part: Scope, done: Work, rows: tuple[int, ...], op_own: Ints) -> Mask:
    """Returns modeled calls of the windows: launched in a selected step, or inside the selection where none was recorded.

    A call launched before the recording counts where it ran. By host time a call inside the loading of a batch does not count.
    """
    ops = done.ops
    if done.from_ledger:
        chosen = np.isin(ops["step"].to_numpy(), rows) if rows else np.ones(len(ops), bool)
        return np.asarray(chosen & ops["modeled"].to_numpy(), np.bool_)
    host = ops["host"].to_numpy()
    inside = np.isin(ops["step"].to_numpy(), rows) if rows else part.host[host] if len(part.host) else np.zeros(len(ops), bool)
    inside = np.where(host < 0, op_own > 0, inside)
    if done.by_host_time:
        inside &= (op_own > 0) | (ops["measured_ns"].to_numpy() == 0)
    return np.asarray(inside & ops["modeled"].to_numpy(), np.bool_)


def _parallel(ops: pd.DataFrame, counted: Mask, owner: npt.NDArray[np.int32], device: Ints, ran: Mask) -> float:
    """Returns limits of all counted calls over those of the device with most of them; a call belongs to the device of its last event.

    owner, device, ran: per device row its call, its device, and whether it is modeled work. Calls without an event are on that device.
    """
    ids, code = np.unique(device[ran], return_inverse=True)
    if len(ids) < 2:
        return 1.0
    place = np.full(len(ops), -1, np.int64)
    place[owner[ran]] = code
    sol = np.where(counted, ops["sol_ns"].to_numpy(dtype=np.float64), 0.0)
    each = np.bincount(place[place >= 0], sol[place >= 0], minlength=len(ids))
    most = float(each.max()) + float(sol[place < 0].sum())
    return float(sol.sum()) / most if most > 0 else 1.0


def _limits(done: Work, counted: Mask, parallel: float) -> Limits:
    ops, rows = done.ops, np.flatnonzero(counted)
    code, bound, again = arrays.coded(ops["kind"]).codes, arrays.coded(ops["bound"]).codes, ops["recompute"].to_numpy()
    sol = np.where(counted, ops["sol_ns"].to_numpy(dtype=np.float64), 0.0) / parallel
    best = achievable_limits(ops, done.spec) if done.spec is not None else None
    there, repeated = np.bincount(code[rows], minlength=len(KINDS)) > 0, bool(again[rows].any())
    first = ~again if repeated else np.ones(1, np.bool_)

    def total(use: Mask, some: bool = True) -> float:
        return float(sol[use].sum()) if some else 0.0

    return Limits(
        by_kind={k: total(code == i, bool(there[i])) for i, k in enumerate(KINDS)},
        again_by_kind={k: total(again & (code == i), repeated and bool(there[i])) for i, k in enumerate(KINDS)},
        compute=total(first & (bound == BOUNDS.index("compute"))),
        memory=total(first & (bound != BOUNDS.index("compute"))),
        again=total(again, repeated),
        achievable=None if best is None else float(np.where(counted, best, 0.0).sum()) / parallel,
    )


def exclusive_parts(start: Ints, stop: Ints, layer: npt.NDArray[np.int8], windows: iv.Spans) -> tuple[Ints, iv.Spans]:
    """Returns (exclusive part per row inside the windows, busy time inside them). Layers take precedence in the order of their numbers.

    Within a layer an event owns what no earlier one covers: its interval after the furthest end so far.
    """
    own = np.zeros(len(start), np.int64)
    free = windows
    if not len(windows[0]):
        return own, windows
    reaches = np.flatnonzero((stop > windows[0][0]) & (start < windows[1][-1]) & (stop > start))
    level_of = layer[reaches]
    for level in (COMPUTATION, COMMUNICATION, MEMCPY):
        rows = reaches[level_of == level]
        if not len(rows):
            continue
        rows = rows[np.argsort(start[rows], kind="stable")]
        reach = np.concatenate((np.full(1, np.iinfo(np.int64).min), np.maximum.accumulate(stop[rows])[:-1]))
        first = np.maximum(start[rows], reach)
        last = np.maximum(stop[rows], first)
        own[rows] = iv.overlap_with(first, last, free)
        free = iv.subtract(free, iv.union(start[rows], stop[rows]))
    return own, iv.subtract(windows, free)
