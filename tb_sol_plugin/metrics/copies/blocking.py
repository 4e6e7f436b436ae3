"""Finds copies that blocked the host: for how long, and how much of that time the device was idle.

What CUDA documents decides before any measure: copies within a device or between devices never block the host; copies between
two places of the host, and those with an end in unified memory, always do; "asynchronous" copies to or from pageable memory do too.
Reasons, the first that holds:

    tiny_read    up to 64 bytes to the host, inside of an operator that needs the value: `aten::item`, `aten::nonzero` …
    sync_api     the call is synchronous by its name, or for the kinds of memory it copies between
    pageable     the call is asynchronous by its name, but an end is pageable
    waits        the call outlasts the copy by more than 50 us or ends after it; or the host's next act is to wait for it
    managed_set  memory of the host or unified memory is set by a synchronous call

Host time is that of the call, the drain of the stream included, and of a wait (`cudaStreamSynchronize` and the like) that follows at
once and holds the end of the copy. Launches of graphs do not block for a copy inside of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import kept_with, memo
from tb_sol_plugin.metrics.copies.records import COPY_API, COPY_KERNEL, api_name, copies, family_of, memory_kinds, waits_by_name
from tb_sol_plugin.metrics.copies.thresholds import DEFAULT, Thresholds
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.breakdown import SYNCHRONIZE, host_idle
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints, Mask, Places
from tb_sol_plugin.tables.table import as_table, frame_of

REASONS: Final = {
    "tiny_read": "Reads a value",
    "sync_api": "Synchronous call",
    "pageable": "Pageable memory",
    "waits": "The host waits for it",
    "managed_set": "Set of host memory",
}
"""Reasons in the order in which they are tried, as a page shows them."""
READS: Final = re.compile(
    r"^aten::(item|_local_scalar_dense|is_nonzero|nonzero(_numpy)?|argwhere|equal|allclose|masked_select|_?unique\w*|repeat_interleave)$"
)
"""Operators whose result the host needs before it can go on."""
SCALAR: Final = frozenset(("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero"))
"""Of those the ones that only ever copy to the host. AMD's tracer records their copy as one inside of the device."""
WITHIN: Final = ("DtoD", "PtoP")
UNSURE: Final = (COPY_KERNEL, "Unknown")
"""Copies whose ends are not known: only their times show whether they blocked the host."""
ON_HOST: Final = ("Pinned", "Pageable", "Managed", "Managed Static")
COLUMNS: Final = ("reason", "host_ns", "lost_ns", "idle_ns", "wait", "from_ns", "pause_ns", "resume_ns", "until_ns", "idle_until_ns")


def blocking(capture: Capture, found: pd.DataFrame, thresholds: Thresholds = DEFAULT) -> pd.DataFrame:
    """Returns per copy of `found` (see `records.copies`), in its order:

    reason ("" for a copy that did not block), host_ns (its call and the wait after it; 0 without a reason), lost_ns (the same, each
    nanosecond of a thread once over all copies), idle_ns (of the time from the call to the next work of the device that in which the
    device was idle, no more than the host was blocked, each nanosecond once over all copies), wait (host row of the wait, -1),
    from_ns, until_ns (when the host was blocked, both 0 without a reason), pause_ns, resume_ns (when it was not between the call and the
    wait; both the end of the call where there is no wait), idle_until_ns (until when the device may be idle because of it).
    """
    key = ("copies.blocked", thresholds.outlast_ns, thresholds.read_bytes)
    return kept_with(found, key, lambda: as_table(_blocking(capture, found, thresholds)))


def _blocking(capture: Capture, found: pd.DataFrame, thresholds: Thresholds) -> pd.DataFrame:
    if not len(found) or not len(capture.host):
        out = pd.DataFrame({c: np.zeros(len(found), np.int64) for c in COLUMNS})
        return out.assign(reason=np.full(len(found), "", object), wait=np.full(len(found), -1, np.int64))
    wait = _waits(capture, found)
    reason = _reasons(capture, found, wait, thresholds)
    blocked = reason != ""
    wait = np.where(blocked, wait, -1)
    h = at.host(capture)
    start, length = found["call_start_ns"].to_numpy(), found["call_ns"].to_numpy()
    second = np.where(wait >= 0, h.duration[np.maximum(wait, 0)], 0)
    until = np.where(wait >= 0, h.stop[np.maximum(wait, 0)], start + length)
    first = np.flatnonzero(blocked)
    more = np.flatnonzero(wait >= 0)
    place = np.concatenate((first, more))
    rows = np.concatenate((found["call"].to_numpy()[first], wait[more]))
    lost = np.zeros(len(found), np.int64)
    np.add.at(lost, place, _once(h.thread[rows], h.start[rows], h.stop[rows]))
    pause = start + length
    resume = np.where(wait >= 0, h.start[np.maximum(wait, 0)], pause)
    late = np.zeros(len(found), np.int64)
    late[blocked] = _until(capture, start[blocked], pause[blocked], resume[blocked], until[blocked])
    idle = np.zeros(len(found), np.int64)
    parts = np.concatenate((start[first], resume[first])), np.concatenate((pause[first], late[first]))
    np.add.at(idle, np.concatenate((first, first)), _idle_once(host_idle(capture), *parts))
    return frame_of({
        "reason": reason, "host_ns": np.where(blocked, length + second, 0), "lost_ns": lost,
        "idle_ns": idle, "wait": wait, "from_ns": np.where(blocked, start, 0), "pause_ns": np.where(blocked, pause, 0),
        "resume_ns": np.where(blocked, resume, 0), "until_ns": np.where(blocked, until, 0), "idle_until_ns": late,
    })  # fmt: skip


def _following(capture: Capture, moment: Ints) -> Ints:
    """Returns the device row that starts at or next after each moment, -1 after the last."""
    order, first = at.in_order(capture)
    place = np.searchsorted(first, moment)
    return np.asarray(np.append(order, -1)[place], np.int64)


def inside_rows(capture: Capture, found: pd.DataFrame, mask: Mask) -> Mask:
    """Returns per copy whether its call is inside of a host row of `mask`."""
    h = at.host(capture)
    if not len(h.start):
        return np.zeros(len(found), bool)
    call = found["call"].to_numpy()
    above = tree.nearest(mask, h.parent, h.stop, np.asarray(call, np.int32), h.start[np.maximum(call, 0)], h.end)
    return np.asarray(above >= 0, np.bool_)


def _reasons(capture: Capture, found: pd.DataFrame, wait: Ints, thresholds: Thresholds) -> npt.NDArray[np.object_]:
    size, duration, call_ns = (found[c].to_numpy() for c in ("bytes", "duration_ns", "call_ns"))
    kinds = memory_kinds(found)
    api, names = pd.factorize(found["api"].to_numpy(object))
    of_api = [m[1] if (m := COPY_API.match(name)) is not None else "" for name in names]
    copies, sets = (np.array([group == wanted for group in of_api], np.bool_)[api] for wanted in ("cpy", "set"))
    synchronous = found["is_async"].to_numpy() == 0
    managed = kinds.having(lambda _, src, dst: src.startswith("Managed") or dst.startswith("Managed"))
    pageable = kinds.having(lambda _, src, dst: "Pageable" in (src, dst))
    within = kinds.having(lambda direction, *_: direction in WITHIN) & ~managed
    unsure = kinds.having(lambda direction, *_: direction in UNSURE)
    down, between, memset = (kinds.having(lambda direction, *_, one=one: direction == one) for one in ("DtoH", "HtoH", "Memset"))
    small = (size >= 0) & (size <= thresholds.read_bytes)
    reads, scalar = (_under_operators(capture, found, test) for test in (lambda n: READS.match(n) is not None, SCALAR.__contains__))
    start, end = found["call_start_ns"].to_numpy(), found["start_ns"].to_numpy() + duration
    late = (call_ns > duration + thresholds.outlast_ns) | ((start <= end) & (end <= start + call_ns)) | (wait >= 0)
    moves = copies & ~memset & ~within
    known = moves & ~unsure
    answers = {
        "tiny_read": copies & small & ((down & reads) | ((within | unsure) & scalar & synchronous)),
        "sync_api": known & (synchronous | managed | (between & ~pageable)),
        "pageable": known & pageable,
        "waits": moves & late,
        "managed_set": sets & memset & synchronous & kinds.having(lambda _, src, dst: src in ON_HOST or dst in ON_HOST),
    }
    names = np.array([*REASONS, ""], object)
    return np.asarray(names[np.select([answers[r] for r in REASONS], range(len(REASONS)), len(REASONS))], object)


def _under_operators(capture: Capture, found: pd.DataFrame, test: Callable[[str], bool]) -> Mask:
    return inside_rows(capture, found, at.mask_of(capture, at.named(capture, S.OPERATOR, test)))


def _waits(capture: Capture, found: pd.DataFrame) -> Ints:
    """Returns per copy the call that waits for it: the thread's next act for the device after the copy's call, and the copy ends within it.

    A wait for another stream, where the recording names it, is none.
    """
    out = np.full(len(found), -1, np.int64)
    h = at.host(capture)
    call = found["call"].to_numpy().astype(np.int64)
    acts, waiting = memo(capture, ("copies.acts",), lambda: _acts(capture))
    able = (call >= 0) & (found["is_async"].to_numpy() == 1)
    able &= ~memory_kinds(found).having(lambda direction, *_: direction in (*WITHIN, "Memset"))
    able &= ~found["graph"].to_numpy()
    if not waiting.any() or not able.any():
        return out
    place = np.searchsorted(acts, call, side="right")
    there = np.minimum(place, len(acts) - 1)
    following, waits = np.where(place < len(acts), acts[there], -1), (place < len(acts)) & waiting[there]
    end = found["start_ns"].to_numpy() + found["duration_ns"].to_numpy()
    safe = np.maximum(following, 0)
    hit = able & waits & (h.thread[safe] == h.thread[np.maximum(call, 0)])
    hit &= (h.start[safe] >= h.stop[np.maximum(call, 0)]) & (h.start[safe] <= end) & (end <= h.stop[safe])
    stream = _stream_of(capture, following[hit])
    own = found["stream"].to_numpy()[hit]
    hit[hit] = (stream < 0) | (own < 0) | (stream == own)
    place = np.flatnonzero(hit)
    place = place[np.lexsort((end[place], following[place]))]  # of several copies of one call the last
    last = np.append(following[place][1:] != following[place][:-1], True) if len(place) else np.zeros(0, bool)
    out[place[last]] = following[place[last]]
    return out


def _acts(capture: Capture) -> tuple[Ints, Mask]:
    """Returns (host rows that wait for the device or launch work, ascending; which of them wait)."""
    waits = at.mask_of(capture, at.named(capture, S.CALL, lambda n: SYNCHRONIZE.match(n) is not None))
    acts = waits.copy()
    acts[at.launching_calls(capture)] = True
    rows = np.flatnonzero(acts)
    return rows, waits[rows]


def _stream_of(capture: Capture, rows: Ints) -> Ints:
    """Returns the stream that a wait waits for, -1 for all streams, or where the recording does not name it."""
    sync, calls = capture.tables["sync"], capture.tables["calls"]
    one = sync[arrays.where(sync["name"], lambda n: n.lower().startswith("stream sync"))] if len(sync) else sync
    if not len(one) or not len(calls) or not len(rows):
        return np.full(len(rows), -1, np.int64)
    calls = calls[calls["host"].isin(rows)]
    number = dict(zip(calls["host"].tolist(), calls["correlation"].tolist(), strict=True))
    stream = dict(zip(one["correlation"].tolist(), one["stream"].tolist(), strict=True))
    stream.pop(-1, None)
    return np.array([stream.get(number.get(r, -1), -1) for r in rows.tolist()], np.int64)


def _once(group: npt.NDArray[np.integer], start: Ints, stop: Ints) -> Ints:
    """Returns per interval what of it no earlier one of its group covers: the parts of a group add up to its union."""
    out = np.zeros(len(start), np.int64)
    order = np.lexsort((start, group))
    for one in np.unique(group).tolist():
        in_group = order[group[order] == one]
        reach = np.maximum.accumulate(stop[in_group])
        before = np.concatenate((start[in_group][:1], reach[:-1]))
        out[in_group] = np.maximum(stop[in_group] - np.maximum(start[in_group], before), 0)
    return out


def _until(capture: Capture, start: Ints, pause: Ints, resume: Ints, stop: Ints) -> Ints:
    """Returns per time for which the host was blocked, [start, pause) and [resume, stop), until when the device may be idle because of it.

    That is its end; or, where the device has no work then and gets the next only by a later launch, as much later as the device was
    not idle while the host was blocked: had the host gone on, that launch would have come earlier by as long as it was blocked.
    """
    low, high = host_idle(capture)
    if not len(low):
        return stop
    inside = iv.overlap_with(start, pause, (low, high)) + iv.overlap_with(resume, stop, (low, high))
    slot = np.searchsorted(low, stop, side="right") - 1
    safe = np.maximum(slot, 0)
    idle = (slot >= 0) & (stop < high[safe])
    following = _following(capture, high[safe])
    launch = at.launches(capture)
    later = (following >= 0) & ((launch.call[following] < 0) | (launch.time[following] >= stop))
    return np.asarray(np.where(idle & later, np.minimum(high[safe], stop + (pause - start + stop - resume - inside)), stop), np.int64)


def _idle_once(idle: iv.Spans, start: Ints, until: Ints) -> Ints:
    """Returns idle time per interval, each nanosecond counted in the first interval that covers it."""
    out = np.zeros(len(start), np.int64)
    order = np.argsort(start, kind="stable")
    reach = np.maximum.accumulate(until[order]) if len(order) else until
    before = np.concatenate((start[order][:1], reach[:-1]))
    out[order] = iv.overlap_with(np.maximum(start[order], before), until[order], idle)
    return out


# -- api_calls -------------------------------------------------------------------------------------------------------
# Which calls: runtime, driver and HIP functions by one expression (`records.COPY_API`), so that a new form of `cudaMemcpy…` needs no new
# line here; and any other call that a copy is joined to (a graph launch, a call of another vendor), so that nothing joined is left out.
# Where a recorder writes a runtime call and the driver call inside of it, both are rows of their own: host time is per row, not to be
# summed.


API_KINDS: Final = {"cpy": "copy", "set": "set", "Prefetch": "prefetch", "Advise": "advise"}
OTHER: Final = "other"
MANAGED: Final = ("Managed", "Managed Static")
"""Kinds of memory that the driver moves between host and device by itself."""


def calls(capture: Capture, host: Mask) -> dict[str, npt.NDArray[Any]]:
    """Returns the calls among some host rows (a mask over `host`), by function, longest host time first.

    Arrays by name: api (name without version and stream suffixes), family ("runtime", "driver", "hip", "" other), what (copy, set,
    prefetch, advise; other: a call of another sort that copies are joined to), is_async (1 yes; 0: it waits, by its name; -1 unknown by
    it), calls, without_device (calls without a device row; prefetch and advice never have one), host_ns (sum of their durations),
    waited (calls that returned after their last copy had ended), copies (device rows joined, sets included), bytes (NaN where none was
    recorded), without_bytes, device_ns (plain sum), managed (copies with an end in managed memory).
    """
    found = copies(capture, np.ones(len(capture.device), bool))
    launched = np.flatnonzero(found["call"].to_numpy() >= 0)
    call = found["call"].to_numpy()[launched]
    chosen = _chosen(capture, host, call)
    rows = np.flatnonzero(chosen)
    names = arrays.coded(capture.host["name"])
    used, code = np.unique(names.codes[rows], return_inverse=True)
    spelled = [str(names.categories[c]) for c in used.tolist()]
    api, place = np.unique(np.array([api_name(n) for n in spelled], object).astype(str), return_inverse=True)
    api_of = place[code] if len(rows) else np.zeros(0, np.int64)
    texts = api.tolist()
    joined = launched[chosen[call]] if len(chosen) else launched[:0]
    out = {
        "api": np.array(texts, object),
        "family": np.array([family_of(t) for t in texts], object),
        "what": np.array([api_kind(t) for t in texts], object),
        "is_async": np.array([-1 if api_kind(t) == OTHER else 0 if waits_by_name(t) else 1 for t in texts], np.int8),
        **_sums(capture, rows, api_of, found, joined, len(texts)),
    }
    order = np.argsort(-out["host_ns"], kind="stable")  # equal ones stay in the order of their names
    return {name: values[order] for name, values in out.items()}


def api_kind(api: str) -> str:
    """Returns copy, set, prefetch or advise; other for a call that is none of them."""
    found = COPY_API.match(api)
    return API_KINDS[found[1]] if found else OTHER


def _chosen(capture: Capture, host: Mask, joined: npt.NDArray[np.int32]) -> Mask:
    """Returns calls among the rows whose name says that they copy, or that a copy is joined to."""
    if not len(capture.host):
        return np.zeros(0, bool)
    chosen = at.mask_of(capture, at.named(capture, S.CALL, lambda name: COPY_API.match(name) is not None))
    chosen[joined] = True
    return np.asarray(chosen & host, np.bool_)


def _sums(
    capture: Capture, rows: npt.NDArray[np.intp], api: npt.NDArray[np.integer], found: pd.DataFrame, joined: Places, count: int
) -> dict[str, npt.NDArray[np.generic]]:
    """Returns the sums per function. joined: the rows of `found` that are joined to a call of one."""
    h = at.host(capture)
    call, start, duration, size = (found[c].to_numpy()[joined] for c in ("call", "start_ns", "duration_ns", "bytes"))
    last = np.full(len(h.start), -1, np.int64)
    np.maximum.at(last, call, start + duration)
    place = np.zeros(len(h.start), np.int64)
    place[rows] = api
    of_copy = place[call]
    known = size >= 0
    with_size = at.sum_by(of_copy[known], size[known], count)
    copied, sizeless = _count(of_copy, count), _count(of_copy[~known], count)
    ends = [found[c].to_numpy(object)[joined] for c in ("src_kind", "dst_kind")]
    managed = np.logical_or.reduce([end == kind for end in ends for kind in MANAGED])
    return {
        "calls": _count(api, count),
        "without_device": _count(api[last[rows] < 0], count),
        "host_ns": at.sum_by(api, h.duration[rows], count),
        "waited": _count(api[(last[rows] >= 0) & (h.stop[rows] >= last[rows])], count),
        "copies": copied,
        "bytes": np.where(sizeless < copied, with_size.astype(np.float64), np.nan),
        "without_bytes": sizeless,
        "device_ns": at.sum_by(of_copy, duration, count),
        "managed": _count(of_copy[managed], count),
    }


def _count(code: npt.NDArray[np.integer], count: int) -> Ints:
    return np.bincount(code, minlength=count).astype(np.int64)
