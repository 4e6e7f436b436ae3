"""Why nothing runs on the device: which idle time is launching, and which follows or passes in a call that blocks the host.

    launch    gaps up to `LAUNCH_NS` in which the host prepares the next launch, and hand-overs from one launched kernel to the next
    blocked   gaps that follow a call in which the host waited for the device, and gaps that pass in other runtime or driver calls

A whole gap has one cause. What is neither: the host does something else, or the device waits for something that no record explains.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics import attribution as at
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.scope import extent
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv

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


@dataclass(frozen=True)
class Waits:
    """Clean sets of intervals that exclude each other."""

    launch: iv.Spans
    blocked: iv.Spans


def waits(capture: Capture) -> Waits:
    """The gaps of the whole recording by cause, those before the first and after the last device event included.

    A gap is time in which no device of the recording runs anything.
    """
    return memo(capture, ("waits",), lambda: _waits(capture))


def _waits(capture: Capture) -> Waits:
    start = capture.device["start_ns"].to_numpy()
    stop = start + capture.device["duration_ns"].to_numpy()
    low, high = iv.gaps(iv.union(start, stop), *extent(capture))
    launch, blocked = _causes(capture, low, high, start, stop)
    return Waits((low[launch], high[launch]), (low[blocked], high[blocked]))


def _causes(
    capture: Capture, low: npt.NDArray[np.int64], high: npt.NDArray[np.int64], start: npt.NDArray[np.int64], stop: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """(launch, blocked) per gap."""
    full = np.flatnonzero(stop > start)
    if not len(full):
        return np.zeros(len(low), bool), np.zeros(len(low), bool)
    full = full[np.argsort(start[full], kind="stable")]
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
    """(calls that wait for the device, calls that are no launch or take longer than one), as clean sets over all threads."""
    h = at.host(capture)
    name = capture.host["name"]
    call = h.kind == S.CALL
    waiting = call & arrays.where(name, lambda n: WAITING.match(n) is not None)
    launching = arrays.where(name, lambda n: LAUNCHING.search(n) is not None)
    busy = call & (~launching | (h.duration > LAUNCH_NS))
    return iv.union(h.start[waiting], h.stop[waiting]), iv.union(h.start[busy], h.stop[busy])
