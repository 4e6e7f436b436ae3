"""Breaks down what a device does with its time: computation, communication, copies, idle, as unions of intervals.

Classes of a device event, each event in exactly one:
    computation     kernels that are neither communication nor a copy kernel, and sets of memory (memset)
    communication   collective and peer kernels, by the wide or the narrow rule of the recording's columns
    memcpy          copies, and copies that run as a kernel
Nothing is rounded: integer nanoseconds throughout.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec import Struct

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.frames import profiler_time
from tb_sol_plugin.metrics.time.scope import Scope, extent
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.engines import iteration_of
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints, Mask, Places
from tb_sol_plugin.tables.table import Table, as_table, frame_of

Rule: TypeAlias = Literal["wide", "narrow"]

COMPUTATION: Final = 0
COMMUNICATION: Final = 1
MEMCPY: Final = 2
CLASSES: Final = ("computation", "communication", "memcpy")


def device_word(capture: Capture) -> str:
    """Returns what to call the device in a sentence: a GPU where the recorder's vendor makes one, else plainly "device"."""
    return "GPU" if capture.facts.vendor in ("nvidia", "amd", "xpu") else "device"


def device_extent(capture: Capture) -> tuple[int, int]:
    """Returns the first start and the last end of device events, of which there are some."""

    def make() -> tuple[int, int]:
        start = capture.device["start_ns"].to_numpy()
        return int(start.min()), int((start + capture.device["duration_ns"].to_numpy()).max())

    return memo(capture, ("device_extent",), make)


def classes(capture: Capture, rule: Rule = "wide") -> npt.NDArray[np.int8]:
    """Returns the index into CLASSES per device row."""
    return memo(capture, ("classes", rule), lambda: _classes(capture, rule))


def _classes(capture: Capture, rule: Rule) -> npt.NDArray[np.int8]:
    kind = capture.numbers("device", "kind")
    is_kernel = kind == S.KERNEL
    out = np.full(len(kind), COMPUTATION, np.int8)
    out[is_kernel & capture.numbers("device", "communication" if rule == "wide" else "communication_narrow")] = COMMUNICATION
    out[(kind == S.MEMCPY) | (is_kernel & capture.numbers("device", "copy_kernel"))] = MEMCPY
    return out


def linked(capture: Capture) -> Mask:
    """Returns device rows that found their launch, by correlation or by flow."""
    link = capture.device["link"].to_numpy()
    return np.asarray((link == S.BY_CORRELATION) | (link == S.BY_FLOW), np.bool_)


class Layers(Struct, frozen=True, dict=True):
    """The union of intervals of each class. They overlap; `exclusive` takes them apart in this order."""

    computation: iv.Spans
    communication: iv.Spans
    memcpy: iv.Spans

    @cached_property
    def busy(self) -> iv.Spans:
        return iv.merge(self.computation, self.communication, self.memcpy)

    @property
    def busy_ns(self) -> int:
        return iv.length(self.busy)

    @cached_property
    def exclusive(self) -> tuple[iv.Spans, iv.Spans, iv.Spans]:
        """Computation; communication outside it; copies outside both. Their lengths add up to the busy time."""
        computation, communication, memcpy = iv.exclusive([self.computation, self.communication, self.memcpy])
        return computation, communication, memcpy


def spans_of(capture: Capture, rows: Mask | Places) -> iv.Spans:
    """Returns the union of the intervals of some device rows: a mask, or their places."""
    start = capture.device["start_ns"].to_numpy()[rows]
    return iv.union(start, start + capture.device["duration_ns"].to_numpy()[rows])


def layers(capture: Capture, rows: Mask, *, rule: Rule = "wide") -> Layers:
    """Returns the three layers over some device rows; over all of them once per recording."""
    if rows.all():
        return memo(capture, ("breakdown.layers", rule), lambda: _layers_of(capture, rows, rule))
    return _layers_of(capture, rows, rule)


def _layers_of(capture: Capture, rows: Mask, rule: Rule) -> Layers:
    at = np.flatnonzero(rows)
    kind = classes(capture, rule)[at]
    return Layers(*(spans_of(capture, at[kind == k]) for k in (COMPUTATION, COMMUNICATION, MEMCPY)))


def breakdown(capture: Capture, where: Scope, *, rule: Rule = "wide", only_linked: bool = False) -> pd.DataFrame:
    """Returns the breakdown of each device of a scope, first the row `all`: the union over all devices on one clock.

    Columns: device (id as text), events, total_ns (last end - first start of the device's events), busy_ns, idle_ns,
    computation_ns, communication_ns, exposed_communication_ns (not behind computation), memcpy_ns,
    exposed_memcpy_ns (behind neither), overlap_ns (communication behind computation), kernel_ns (union of kernels),
    window_ns (first step's start to last step's end; the extent where no step was recorded), utilization and
    kernel_utilization (busy and kernel time inside the window over it), sm_efficiency and occupancy_pct (NaN where the
    recorder gave no launch figures). total = busy + idle; busy = computation + exposed communication + exposed memcpy.
    """
    rows = where.device & linked(capture) if only_linked else where.device
    ids = capture.device["device"].to_numpy()
    every, there = _row(capture, "all", rows, where, rule), np.unique(ids[rows]).tolist()
    each = [every | {"device": str(i)} if len(there) == 1 else _row(capture, str(i), rows & (ids == i), where, rule) for i in there]
    return frame_of({name: [one[name] for one in (every, *each)] for name in every})


def steps_window(capture: Capture, where: Scope) -> tuple[int, int]:
    """Returns the first start to last end (GPU-aware) of the scope's steps; the scope's window where there are none.

    Of the whole recording, where all device work counts, the first step starts on the host: work launched before it runs there too.
    """
    if not where.rows:
        return where.window_ns
    chosen, first = list(where.rows), "host_start_ns" if where.whole else "start_ns"
    return int(capture.steps[first].to_numpy()[chosen].min()), int(capture.steps["end_ns"].to_numpy()[chosen].max())


def _row(capture: Capture, name: str, rows: Mask, where: Scope, rule: Rule) -> dict[str, str | int | float]:
    device = capture.device
    found = layers(capture, rows, rule=rule)
    at = np.flatnonzero(rows)
    start = device["start_ns"].to_numpy()[at]
    end = start + device["duration_ns"].to_numpy()[at]
    total = int(end.max() - start.min()) if len(start) else 0
    busy = found.busy
    _, exposed_communication, exposed_memcpy = found.exclusive
    kernel_rows = at[device["kind"].to_numpy()[at] == S.KERNEL]
    kernels = spans_of(capture, kernel_rows)
    low, high = steps_window(capture, where)
    window = high - low
    return {
        "device": name,
        "events": len(start),
        "total_ns": total,
        "busy_ns": found.busy_ns,
        "idle_ns": total - found.busy_ns,
        "computation_ns": iv.length(found.computation),
        "communication_ns": iv.length(found.communication),
        "exposed_communication_ns": iv.length(exposed_communication),
        "memcpy_ns": iv.length(found.memcpy),
        "exposed_memcpy_ns": iv.length(exposed_memcpy),
        "overlap_ns": iv.length(found.communication) - iv.length(exposed_communication),
        "kernel_ns": iv.length(kernels),
        "window_ns": window,
        "utilization": iv.length(iv.clip(busy, low, high)) / window if window else np.nan,
        "kernel_utilization": iv.length(iv.clip(kernels, low, high)) / window if window else np.nan,
        "sm_efficiency": sm_efficiency(capture, kernel_rows, low, high),
        "occupancy_pct": occupancy(capture, kernel_rows, low, high),
    }


def sm_efficiency(capture: Capture, rows: Mask | Places, low: int, high: int) -> float:
    """Estimates the share of multiprocessors with work over a window: the integral of min(blocks per SM of the running kernels, 1).

    NaN where no kernel carries `blocks per SM` (AMD's tracer, old recorders).
    """
    device = capture.device
    blocks, start, length = (device[name].to_numpy()[rows] for name in ("blocks_per_sm", "start_ns", "duration_ns"))
    known = np.isfinite(blocks)
    if high <= low or not known.any():
        return float("nan")
    if not known.all():
        blocks, start, length = blocks[known], start[known], length[known]
    at = np.concatenate((np.clip(start, low, high), np.clip(start + length, low, high)))
    order = np.argsort(at, kind="stable")
    level = np.cumsum(np.concatenate((blocks, -blocks))[order])
    length = np.diff(at[order], append=at[order][-1])
    return float((np.clip(level, 0.0, 1.0) * length).sum() / (high - low))


def occupancy(capture: Capture, rows: Mask | Places, low: int, high: int) -> float:
    """Estimates achieved occupancy in percent over a window, weighted by the kernels' time inside it; NaN where not recorded."""
    device = capture.device
    percent, start, length = (device[name].to_numpy()[rows] for name in ("occupancy_pct", "start_ns", "duration_ns"))
    known = np.isfinite(percent)
    if not known.all():
        percent, start, length = percent[known], start[known], length[known]
    weight = np.clip(start + length, low, high) - np.clip(start, low, high)
    return float((percent * weight).sum() / weight.sum()) if weight.sum() > 0 else float("nan")


def use_over_time(found: Layers, window: tuple[int, int], bins: int = 100) -> dict[str, Ints]:
    """Returns exclusive time of each class in equal parts of a window.

    By column: start_ns, end_ns, computation_ns, exposed_communication_ns, exposed_memcpy_ns, idle_ns; a part adds up to its length.
    """
    low, high = window
    count = max(1, min(bins, high - low))
    each, rest = divmod(high - low, count)  # apart, so that a window of decades does not overflow
    slot = np.arange(count + 1, dtype=np.int64)
    edges = low + each * slot + rest * slot // count
    parts = [np.diff(iv.covered_until(layer, edges)) for layer in found.exclusive]
    length = np.diff(edges)
    return {
        "start_ns": edges[:-1], "end_ns": edges[1:], "computation_ns": parts[0], "exposed_communication_ns": parts[1],
        "exposed_memcpy_ns": parts[2], "idle_ns": length - parts[0] - parts[1] - parts[2],
    }  # fmt: skip


# -- Why a device idles ----------------------------------------------------------------------------------------------
# the gaps between its work, by length and by cause.


CAUSES: Final = ("host_wait", "kernel_wait", "other", "unknown")
"""host_wait: the work that ends the gap was launched after the gap began, so the device was idle, waiting for the next launch.
kernel_wait: launched before, and the gap is shorter than `kernel_wait_ns`: the hand-over between two kernels.
other: launched before, and the device still took longer (a dependency, a sync, the launch itself).
unknown: the work that ends the gap has no recorded launch."""


KERNEL_WAIT_NS: Final = 30
"""A hand-over from one kernel to the next takes less than this."""


def gaps(capture: Capture, rows: Mask, *, kernel_wait_ns: int = KERNEL_WAIT_NS) -> Table:
    """Returns gaps of each device in which none of its streams runs, between its first and its last event; those found last are kept.

    Columns: device, start_ns, duration_ns, cause (index into CAUSES), next (the device row that ends the gap).
    """
    last: list[tuple[Mask, int, Table]] = memo(capture, ("breakdown.gaps",), list)
    for known, waits, found in last:  # pages of one selection follow each other
        if waits == kernel_wait_ns and np.array_equal(known, rows):
            return found
    ids = capture.device["device"].to_numpy()
    parts = [_of_device(capture, rows & (ids == i), int(i), kernel_wait_ns) for i in np.unique(ids[rows]).tolist()]
    columns = ("device", "start_ns", "duration_ns", "cause", "next")
    kinds = (np.int64, np.int64, np.int64, np.int8, np.int32)
    whole = (np.concatenate([np.zeros(0, kind), *(part[i] for part in parts)]) for i, kind in enumerate(kinds))
    found = as_table(frame_of(dict(zip(columns, whole, strict=True))))
    last[:] = [(rows, kernel_wait_ns, found)]
    return found


def _of_device(capture: Capture, rows: Mask, device_id: int, kernel_wait_ns: int) -> tuple[npt.NDArray[np.integer], ...]:
    device = capture.device
    start, end = spans_of(capture, rows)
    opened, closed = end[:-1], start[1:]
    full = np.flatnonzero(rows & (device["duration_ns"].to_numpy() > 0))
    full = full[np.argsort(device["start_ns"].to_numpy()[full], kind="stable")]
    following = full[np.searchsorted(device["start_ns"].to_numpy()[full], closed, side="left")]
    call = device["call"].to_numpy()[following]
    host_start = capture.host["start_ns"].to_numpy()
    launched = np.where(call >= 0, host_start[np.maximum(call, 0)] if len(host_start) else 0, 0)
    cause = np.select(
        [call < 0, launched > opened, closed - opened < kernel_wait_ns],
        [CAUSES.index("unknown"), CAUSES.index("host_wait"), CAUSES.index("kernel_wait")],
        CAUSES.index("other"),
    )
    return np.full(len(opened), device_id, np.int64), opened, closed - opened, cause.astype(np.int8), following.astype(np.int32)


def by_cause(found: pd.DataFrame) -> dict[str, int]:
    """Returns idle ns per cause, every cause present."""
    total = np.bincount(found["cause"].to_numpy().astype(np.int64), weights=found["duration_ns"].to_numpy(), minlength=len(CAUSES))
    return {name: round(float(value)) for name, value in zip(CAUSES, total, strict=True)}


def by_length(found: pd.DataFrame, threshold_ns: int) -> tuple[int, int]:
    """Returns idle ns in gaps shorter than a threshold, and in the others."""
    duration = found["duration_ns"].to_numpy()
    short = duration < threshold_ns
    return int(duration[short].sum()), int(duration[~short].sum())


# -- Why nothing runs on the device ----------------------------------------------------------------------------------
# which idle time is launching, and which follows or passes in a call that blocks the host.
#
#     launch    gaps up to `LAUNCH_NS` in which the host prepares the next launch, and hand-overs from one launched kernel to the next
#     blocked   gaps that follow a call in which the host waited for the device, and gaps that pass in other runtime or driver calls
#
# A whole gap has one cause. What is neither: the host does something else, or the device waits for something that no record explains.


LAUNCH_NS: Final = 1_000_000
"""A host that only prepares its next launch is done within 1 ms; a longer gap has another cause."""
HAND_OVER_NS: Final = 20_000
"""A device that has its next kernel already starts it within 20 µs, else it waits for something."""
WAITING: Final = re.compile(
    r"^(cuda|hip|cu|musa)\w*Synchronize|^(cuda|hip)Memcpy(WithStream|2D|ToSymbol|FromSymbol)?$|^cuMemcpy(HtoD|DtoH|DtoD)(_v2)?$"
)
"""Calls that return when the device has done its work."""
LAUNCHING: Final = re.compile(r"Launch|MemcpyAsync|MemsetAsync|memcpyAsync|memsetAsync")
"""Calls that hand work to the device. In a gap they count as preparation, unless one of them alone takes longer than `LAUNCH_NS`."""


class Waits(Struct, frozen=True):
    """Clean sets of intervals that exclude each other."""

    launch: iv.Spans
    blocked: iv.Spans


def waits(capture: Capture) -> Waits:
    """Returns the gaps of the whole recording by cause, those before the first and after the last device event included.

    A gap is time in which no device of the recording runs anything.
    """
    return memo(capture, ("waits",), lambda: _waits(capture))


def _waits(capture: Capture) -> Waits:
    start = capture.device["start_ns"].to_numpy()
    stop = start + capture.device["duration_ns"].to_numpy()
    low, high = _idle(capture)
    launch, blocked = _causes(capture, low, high, start, stop)
    recorder = iv.subtract(recorder_time(capture), _idle_causes(capture)[1])
    return Waits(iv.subtract((low[launch], high[launch]), recorder), iv.intersect((low[blocked], high[blocked]), host_idle(capture)))


def _idle(capture: Capture) -> iv.Spans:
    """Returns when no device of the recording runs anything, found once."""

    def make() -> iv.Spans:
        start = capture.device["start_ns"].to_numpy()
        return iv.gaps(iv.union(start, start + capture.device["duration_ns"].to_numpy()), *extent(capture))

    return memo(capture, ("breakdown.idle",), make)


def _working(capture: Capture) -> Ints:
    """Returns the device rows that take time, in order of their start; found once."""

    def make() -> Ints:
        order, _ = at.in_order(capture)
        return order[capture.device["duration_ns"].to_numpy()[order] > 0]

    return memo(capture, ("breakdown.working",), make)


def _causes(
    capture: Capture, low: npt.NDArray[np.int64], high: npt.NDArray[np.int64], start: npt.NDArray[np.int64], stop: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Returns (launch, blocked) per gap."""
    full = _working(capture)
    if not len(full):
        return np.zeros(len(low), bool), np.zeros(len(low), bool)
    place = np.searchsorted(start[full], high, side="left")
    ends = place < len(full)
    following = full[np.minimum(place, len(full) - 1)]
    call = np.where(ends, capture.device["call"].to_numpy()[following], -1)
    before = ends & (capture.device["link"].to_numpy()[following] == S.BEFORE_WINDOW)
    length = high - low
    if not len(capture.host):
        return before & (length <= HAND_OVER_NS), np.zeros(len(low), bool)
    h = at.host(capture)
    launched = np.maximum(call, 0)
    ready = before | ((call >= 0) & (h.stop[launched] <= low))
    late = (call >= 0) & ~ready
    waited, busy = _calls(capture)
    after_wait = iv.overlap_with(low - 1, low + 1, waited) > 0
    in_calls = 2 * iv.overlap_with(low, high, busy) >= length
    blocked = (late & after_wait) | (in_calls & (ready | late) & (length > np.where(ready, HAND_OVER_NS, 0)))
    launch = ~blocked & ((ready & (length <= HAND_OVER_NS)) | (late & (length <= LAUNCH_NS)))
    return launch, blocked


def _calls(capture: Capture) -> tuple[iv.Spans, iv.Spans]:
    """Returns (calls that wait for the device, calls that are no launch or take longer than one), as clean sets over all threads."""
    h = at.host(capture)
    waiting = at.named(capture, S.CALL, lambda n: WAITING.match(n) is not None)
    busy = at.named(capture, S.CALL, lambda n: LAUNCHING.search(n) is None)
    launching = at.named(capture, S.CALL, lambda n: LAUNCHING.search(n) is not None)
    busy = np.concatenate((busy, launching[h.duration[launching] > LAUNCH_NS]))
    return iv.union(h.start[waiting], h.stop[waiting]), iv.union(h.start[busy], h.stop[busy])


# -- For what idle time the host answers -----------------------------------------------------------------------------
# judged by launches: until the next work is handed over the device waits for the host, from then on the host for the device.
#
# Work that waits for earlier work on its stream starts late, whatever the host does: that earlier work may lie before the recording or in
# another process's file. Where a launch is not recorded, nothing tells who waited.


STARTS_NS: Final = 100_000
"""An idle device starts what is launched within 100 µs, copies that the host waits for included; else it waits for something."""
SYNCHRONIZE: Final = re.compile(r"^(cuda|hip|cu|musa)\w*Synchronize")
RECORDER: Final = frozenset(("Activity Buffer Request", "Buffer Flush", "Instrumentation", "Resource"))
"""The profiler's own work, as Kineto names CUPTI's records of it (category `overhead`): it costs no step that nobody records."""


def host_idle(capture: Capture) -> iv.Spans:
    """Returns idle time of the whole recording in which the device waits for the host: it has nothing to do until the host launches.

    A gap counts where the work that ends it was launched in it: to its end where that starts within `STARTS_NS` of the launch, else until
    the launch. Waits of the host for the device that outlast its last work by over `LAUNCH_NS` wait for work that was not recorded and do
    not count. After the last device event the time counts in which anything else runs on the host, until a launch without recorded work;
    none where no launch was recorded. The profiler's own work, its Python frames among it, is never the host's.
    """
    return _idle_causes(capture)[0]


def explained_idle(capture: Capture, idle: iv.Spans) -> iv.Spans:
    """Returns what of idle time has a recorded cause: `host_idle`, or the hand-overs from one queued event to the next."""
    return iv.intersect(idle, iv.merge(*(iv.facing(one, idle) for one in _idle_causes(capture))))


def launched(capture: Capture, start: Ints, rows: Ints) -> tuple[Mask, Mask]:
    """Splits gaps that begin at `start` and end with device rows: (work launched in the gap, work launched before it); else unknown."""
    launch = at.launches(capture)
    known = launch.call[rows] >= 0
    late = known & (launch.time[rows] >= start)
    return late, (capture.device["link"].to_numpy()[rows] == S.BEFORE_WINDOW) | (known & ~late)


def _idle_causes(capture: Capture) -> tuple[iv.Spans, iv.Spans]:
    """Returns (idle time for which the host answers, hand-overs of the device)."""
    return memo(capture, ("idle_causes",), lambda: _find_idle_causes(capture))


def _find_idle_causes(capture: Capture) -> tuple[iv.Spans, iv.Spans]:
    device = capture.device
    start = device["start_ns"].to_numpy()
    stop = start + device["duration_ns"].to_numpy()
    full = _working(capture)
    if not len(full):
        return iv.empty(), iv.empty()
    gap = _idle(capture)
    last = int(stop[full].max())
    low, high = iv.clip(gap, extent(capture)[0], last)
    following = full[np.searchsorted(start[full], high, side="left")]
    late, before = launched(capture, low, following)
    ready = before & (high - low <= HAND_OVER_NS)
    handed = low[ready], high[ready]
    if not len(capture.host):
        return iv.empty(), handed
    until = _handed_over(capture, following)
    end = np.where(high - until <= STARTS_NS, high, until)
    answered = iv.merge(iv.union(low[late], end[late]), _tail(capture, last))
    h = at.host(capture)
    waits = _synchronizes(capture)
    first, past = iv.intersect(gap, iv.union(h.start[waits], h.stop[waits]))
    outlast = past - first > LAUNCH_NS
    spared = iv.merge((first[outlast], past[outlast]), recorder_time(capture))
    return iv.subtract(answered, spared), handed


def recorder_time(capture: Capture) -> iv.Spans:
    """Returns when the profiler itself works on the host: its own records of that, and its Python frames on threads that launch."""

    def make() -> iv.Spans:
        h = at.host(capture)
        own = at.named(capture, S.OTHER, RECORDER.__contains__)
        return iv.merge(iv.union(h.start[own], h.stop[own]), profiler_time(capture))

    return memo(capture, ("recorder_time",), make)


def _handed_over(capture: Capture, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Returns when the host had handed over some launched device rows: the end of a launch, the start of a call that waits for its copy."""
    device, h = capture.device, at.host(capture)
    call = np.maximum(device["call"].to_numpy()[rows], 0)
    start = device["start_ns"].to_numpy()[rows]
    moved = device["kind"].to_numpy()[rows] != S.KERNEL
    waited = moved & (h.stop[call] >= start + device["duration_ns"].to_numpy()[rows])
    return np.asarray(np.where(waited, h.start[call], np.minimum(h.stop[call], start)), np.int64)


def _synchronizes(capture: Capture) -> Ints:
    """Returns the host rows of calls that wait for the device."""
    return at.named(capture, S.CALL, lambda n: SYNCHRONIZE.match(n) is not None)


def _tail(capture: Capture, last: int) -> iv.Spans:
    """Returns time after the last device event in which something runs on the host but a wait for the device."""
    h = at.host(capture)
    if (capture.device["call"].to_numpy() < 0).all():
        return iv.empty()  # no launch was recorded: the program may have launched what runs later
    launch = h.start[at.named(capture, S.CALL, lambda n: LAUNCHING.search(n) is not None)]
    launch = launch[launch >= last]
    until = int(launch.min()) if len(launch) else int(h.stop.max())
    busy = np.setdiff1d(np.flatnonzero(h.stop > last), _synchronizes(capture), assume_unique=True)
    return iv.clip(iv.union(h.start[busy], h.stop[busy]), last, until)


# -- Where the time of a step goes -----------------------------------------------------------------------------------
# an exclusive split by priority, device work first, then the host.
#
# Each category gets the part of the window that no category before it covers, so the categories add up to the window exactly.
# DataLoader, for example, is only the loading time that is not hidden behind device work or runtime calls.


CATEGORIES: Final = ("kernel_ns", "memcpy_ns", "memset_ns", "communication_ns", "runtime_ns", "dataloader_ns", "cpu_exec_ns", "other_ns")
"""In order of priority; `other_ns` is what none of them covers."""
PARTS: Final = {
    "kernel_ns": ("Kernels", "compute", "kernels that are neither communication nor copies, over all streams and devices"),
    "memcpy_ns": ("Copies", "memcpy", "copies not behind kernels"),
    "memset_ns": ("Memset", "memset", "sets of memory not behind kernels or copies"),
    "communication_ns": ("Communication", "communication", "communication kernels not behind other device work"),
    "runtime_ns": ("Runtime calls", "bar-ink", "runtime and driver calls while the device does nothing"),
    "dataloader_ns": ("DataLoader", "host", "loading of the next batch that nothing above hides"),
    "cpu_exec_ns": ("CPU execution", "line-strong", "operators, annotations and python frames that nothing above hides"),
    "other_ns": ("Other", "idle", "nothing recorded runs"),
}
"""Label, color and definition of each exclusive part, in order of priority."""

DATALOADER: Final = re.compile(r"enumerate\(DataLoader\)#.*\.__next__|enumerate\(DataPipe\)#")
STEP_RANGE: Final = re.compile(r"ProfilerStep#\d+$")


def loading_rows(capture: Capture, *kinds: int) -> Ints:
    """Returns the host rows of some kinds that fetch a batch: `enumerate(DataLoader)#….__next__` and the like; of one kind found once."""

    def loads(name: str) -> bool:  # few names begin so
        return name.startswith("enumerate(") and DATALOADER.match(name) is not None

    def of(kind: int) -> Ints:
        return memo(capture, ("loading_rows", kind), lambda: at.named(capture, kind, loads))

    return np.concatenate([of(kind) for kind in kinds])


def split_windows(capture: Capture, start: npt.ArrayLike, end: npt.ArrayLike, *, rule: Rule = "wide") -> pd.DataFrame:
    """Returns the split of each window `[start, end)` in ns; a column per category, which add up to the window's length.

    kernel: kernels that are neither communication nor copies. memcpy: copies, copy kernels among them. runtime: runtime and driver
    calls of any thread. dataloader: `enumerate(DataLoader)#….__next__` and `enumerate(DataPipe)#…`. cpu_exec: operators,
    user annotations (not the step's own), modules and python frames of any thread.
    """
    return pd.DataFrame(_split(capture, np.asarray(start, np.int64), np.asarray(end, np.int64), rule), copy=False)


def _split(capture: Capture, first: Ints, last: Ints, rule: Rule) -> dict[str, Ints]:
    layers = memo(capture, ("step_split.layers", rule), lambda: iv.exclusive(_layers(capture, rule)))
    out = {name: iv.overlap_with(first, last, layer) for name, layer in zip(CATEGORIES, layers, strict=False)}
    out["other_ns"] = np.maximum(last - first, 0) - np.sum(list(out.values()), axis=0, dtype=np.int64)
    return out


def split_steps(capture: Capture, *, rule: Rule = "wide") -> Table:
    """Returns every row of `steps` with its split over the GPU-aware bounds; made once per capture.

    Columns: step (number, -1 for the pseudo-step), start_ns, duration_ns, complete, device_events, host_ns (the host's own
    length), and the categories, which add up to duration_ns.
    """
    return memo(capture, ("step_split.steps", rule), lambda: as_table(frame_of(_split_steps(capture, rule))))


def _split_steps(capture: Capture, rule: Rule) -> dict[str, npt.NDArray[np.generic]]:
    steps = capture.steps
    start, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    return {
        "step": steps["number"].to_numpy(), "start_ns": start, "duration_ns": end - start, "complete": steps["complete"].to_numpy(),
        "device_events": steps["device_events"].to_numpy(), "host_ns": steps["host_end_ns"].to_numpy() - steps["host_start_ns"].to_numpy(),
        **_split(capture, start, end, rule),
    }  # fmt: skip


def average(frame: pd.DataFrame | Mapping[str, Ints]) -> dict[str, int]:
    """Returns the mean duration and categories over the rows, in whole ns.

    What rounding leaves over goes to `other_ns`, so the sum stays exact.
    """
    count = max(len(frame["duration_ns"]), 1)
    out = {"duration_ns": round(int(frame["duration_ns"].sum()) / count)}
    out |= {name: int(frame[name].sum()) // count for name in CATEGORIES[:-1]}
    out["other_ns"] = out["duration_ns"] - sum(out[name] for name in CATEGORIES[:-1])
    return out


def _layers(capture: Capture, rule: Rule) -> list[iv.Spans]:
    kind = classes(capture, rule)
    is_set = capture.device["kind"].to_numpy() == S.MEMSET
    device = [(kind == COMPUTATION) & ~is_set, kind == MEMCPY, is_set, kind == COMMUNICATION]
    h, kinds = at.host(capture), (S.OPERATOR, S.ANNOTATION, S.FRAME, S.MODULE)
    loads = loading_rows(capture, *kinds)
    steps = np.concatenate([at.named(capture, k, lambda n: bool(STEP_RANGE.match(n)) or iteration_of(n) is not None) for k in kinds])
    works = np.zeros(max(*kinds, int(h.kind.max(initial=0))) + 1, np.bool_)
    works[[*kinds]] = True
    left = works[h.kind]
    left[loads] = left[steps] = False
    host = [at.of_kind(capture, S.CALL), np.sort(loads), left]
    return [spans_of(capture, rows) for rows in device] + [iv.union(h.start[rows], h.stop[rows]) for rows in host]
