"""What is wrong with the copies of a recording, as candidates for a finding: which copies, and what fixing them could save.

Host time is the time of the calls that issue blocking copies, the drain of the stream included, but no more than the device
waits: what the host loses behind a busy device shortens no step. Device time is exposed time or latency. Savings of different
rules can overlap.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics.memcpy.link import LARGE, latency_fit
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import intervals as iv

SMALL: Final = 64 << 10
"""Copies below 64 KiB are tiny."""
TINY_PER_STEP: Final = 32
MARGIN_NS: Final = 50_000
"""A call that outlasts its copy by more than 50 us waited for something."""
LONG_NS: Final = 100_000
"""Copies below 100 us are not worth hiding."""
ASYNC: Final = re.compile(r"Async|WithStream", re.IGNORECASE)
COPY_CALL: Final = re.compile(r"^(cuda|hip)Mem(cpy|Prefetch)|^cuMem(cpy|Prefetch)")
PAGEABLE: Final = ("Pageable",)


@dataclass(frozen=True)
class CopyFinding:
    """rows: positions in the frame of `copies`. saving_ns: per step, at most. host: whether that is host time. worst_ns: longest single.

    behind_work: the calls hold the host for longer than the device waits, so that most of their time is no saving.
    """

    rule: str
    direction: str
    rows: npt.NDArray[np.intp]
    saving_ns: int
    host: bool
    worst_ns: int
    behind_work: bool = False


def idle_ns(capture: Capture, window_ns: tuple[int, int]) -> int:
    """Time of a window in which the busiest device has nothing to do: what waiting less can save at most."""
    start = capture.device["start_ns"].to_numpy()
    end = start + capture.device["duration_ns"].to_numpy()
    device = capture.device["device"].to_numpy()
    busy = [iv.length(iv.clip(iv.union(start[device == d], end[device == d]), *window_ns)) for d in np.unique(device).tolist()]
    return window_ns[1] - window_ns[0] - max(busy, default=0)


def blocking(capture: Capture, found: pd.DataFrame) -> pd.DataFrame:
    """Per copy: call_ns (length of the issuing host call, 0 without one) and blocks (the call held the host for the copy).

    A copy blocks when its call is synchronous; when an asynchronous call has a pageable end; or when the call outlasts the copy
    by more than 50 us or ends after it. Copies without a recorded copy call, and sets, never block.
    """
    call = capture.device["call"].to_numpy()[found["row"].to_numpy()]
    has = (call >= 0) & (found["direction"].to_numpy() != "Memset") if len(capture.host) else np.zeros(len(found), bool)
    at = np.where(has, call, 0)
    if not has.any():
        return pd.DataFrame({"call_ns": np.zeros(len(found), np.int64), "blocks": np.zeros(len(found), bool)})
    names = capture.host["name"]
    texts = [str(c) for c in names.cat.categories]
    code = names.cat.codes.to_numpy()[at]
    copies = has & np.array([COPY_CALL.search(t) is not None for t in texts])[code]
    waits = ~np.array([ASYNC.search(t) is not None for t in texts])[code]
    start, length = capture.host["start_ns"].to_numpy()[at], capture.host["duration_ns"].to_numpy()[at]
    end = found["start_ns"].to_numpy() + found["duration_ns"].to_numpy()
    pageable = found["src_kind"].isin(PAGEABLE).to_numpy() | found["dst_kind"].isin(PAGEABLE).to_numpy()
    late = (length > found["duration_ns"].to_numpy() + MARGIN_NS) | ((start <= end) & (end <= start + length))
    return pd.DataFrame({"call_ns": np.where(copies, length, 0), "blocks": copies & (waits | pageable | late)})


def findings(capture: Capture, found: pd.DataFrame, steps: int, idle: int | None = None) -> list[CopyFinding]:
    """Candidates, largest saving first. `found` is `copies(...)`; `steps` divides to a saving per step.

    idle: `idle_ns` of the window that the steps lie in; savings of the host stay below it and the copies' own exposed time.
    """
    held = blocking(capture, found)
    size, direction = found["bytes"].to_numpy(), found["direction"].to_numpy(object)
    blocks, call = held["blocks"].to_numpy(), held["call_ns"].to_numpy()
    out = [
        *_of("small_to_host", "DtoH", blocks & (direction == "DtoH") & (size >= 0) & (size < SMALL), call, steps, host=True),
        *_of("blocking_to_device", "HtoD", blocks & (direction == "HtoD"), call, steps, host=True),
        *_of("blocking_to_host", "DtoH", blocks & (direction == "DtoH") & ~((size >= 0) & (size < SMALL)), call, steps, host=True),
    ]
    exposed, duration = found["exposed_ns"].to_numpy(), found["duration_ns"].to_numpy()
    if idle is not None:
        out = [_waited(f, (idle + int(exposed[f.rows].sum())) // steps) for f in out]
    for one in ("HtoD", "DtoH", "PtoP"):
        large = (direction == one) & (size >= LARGE) & (duration > LONG_NS) & (2 * exposed > duration)
        out += _of("exposed", one, large, exposed, steps, host=False)
    for one in ("HtoD", "DtoH", "DtoD"):
        out += _tiny(found, one, (direction == one) & (size >= 0) & (size < SMALL), steps)
    return sorted((f for f in out if f.saving_ns > 0), key=lambda f: -f.saving_ns)


def _of(
    rule: str, direction: str, chosen: npt.NDArray[np.bool_], cost: npt.NDArray[np.int64], steps: int, *, host: bool
) -> list[CopyFinding]:
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return []
    return [CopyFinding(rule, direction, rows, int(cost[rows].sum()) // steps, host, int(cost[rows].max()))]


def _waited(f: CopyFinding, most: int) -> CopyFinding:
    return f if f.saving_ns <= most else replace(f, saving_ns=most, behind_work=2 * most < f.saving_ns)


def _tiny(found: pd.DataFrame, direction: str, chosen: npt.NDArray[np.bool_], steps: int) -> list[CopyFinding]:
    """At least 32 copies below 64 KiB per step: one copy of the sum would cost one latency instead of n."""
    rows = np.flatnonzero(chosen)
    fit = latency_fit(found, direction)
    if len(rows) < TINY_PER_STEP * steps or fit is None:
        return []
    latency, rate = fit
    each, total = len(rows) / steps, float(found["bytes"].to_numpy()[rows].sum()) / steps
    saving = each * latency - (latency + total / rate * 1e9)
    longest = int(found["duration_ns"].to_numpy()[rows].max())
    return [
        CopyFinding("tiny", direction, rows, min(round(saving), int(found["duration_ns"].to_numpy()[rows].sum()) // steps), False, longest)
    ]


def parents(capture: Capture, found: pd.DataFrame, rows: npt.NDArray[np.intp]) -> list[str]:
    """Names of the operators that launched some copies, most frequent first."""
    operator = capture.device["operator"].to_numpy()[found["row"].to_numpy()[rows]]
    operator = operator[operator >= 0]
    if not len(operator):
        return []
    codes, count = np.unique(capture.host["name"].cat.codes.to_numpy()[operator], return_counts=True)
    return [str(capture.host["name"].cat.categories[c]) for c in codes[np.argsort(-count, kind="stable")].tolist()]


def kinds(found: pd.DataFrame, rows: npt.NDArray[np.intp]) -> str:
    """Kinds of memory of some copies as a person reads them: `Pinned → Device`; "" where none was recorded."""
    pairs = found.iloc[rows][["src_kind", "dst_kind"]].drop_duplicates()
    said = sorted(f"{a or '?'} → {b or '?'}" for a, b in pairs.itertuples(index=False) if a or b)
    return ", ".join(said)
