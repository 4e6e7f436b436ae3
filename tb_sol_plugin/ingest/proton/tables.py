"""Frames of a profile to the tables of a Capture: scopes become labels, kernels rows of the ledger, copies rows of `copies`."""

from __future__ import annotations

import re
from functools import cache
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from tb_sol_plugin.ingest.columns import Interner
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.ingest.kineto import rules
from tb_sol_plugin.ingest.proton.tree import OWN_WORK, ROOT, Frames
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.units import human

# -- Which frames are copies or sets of memory -----------------------------------------------------------------------
# by the type of the frame, or by its whole name. A kernel may have `memcpy` in its name.


_TYPES: Final = {"memcpy": False, "gpu_memcpy": False, "memset": True, "gpu_memset": True}
_NAME: Final = re.compile(
    r"\[?(?:(?:cuda|hip|gpu|hsa)[ _]?)?(?:(memset|memory[ _]?fill|fillbuffer)|memcpy|memory[ _]?copy|copy)"
    r"[ _:]*([A-Za-z][\w-]*)?\s*(\(.*\))?\]?",
    re.IGNORECASE,
)
_ENDS: Final = re.compile(r"(?:memcpy|memory copy)(?:\s+\w+)?\s*\([^()]*->[^()]*\)", re.IGNORECASE)
"""`Memcpy XtoY (A -> B)`: a copy, whatever the kinds are called."""
_BARE: Final = re.compile(r"(?:[hdp]to[hdp]|(?:host|device|peer)[ _]?to[ _]?(?:host|device|peer))", re.IGNORECASE)


class Copied(NamedTuple):
    """As in the tables `device` and `copies`."""

    direction: str
    src_kind: str
    dst_kind: str


@cache
def copied(name: str, kind: str) -> Copied | None:
    """What a frame copies, by its name and the type of the frame; None where it is no copy. An unknown direction is `Unknown`."""
    if kind.lower() == "kernel":
        return None
    text = name.replace("-to-", "To").strip()
    found = _NAME.fullmatch(text)
    is_set = _TYPES.get(kind.lower(), False) or (found is not None and found[1] is not None)
    if kind.lower() not in _TYPES and not _BARE.fullmatch(text) and not _ENDS.fullmatch(text) and not (found and _says(found, text)):
        return None
    return Copied(*rules.copy_of(text, is_set, (found[2] or "") if found else ""))


def _says(found: re.Match[str], text: str) -> bool:
    """Whether a name of the right form says that it copies: a direction, or `memcpy` alone; `copy` and `memcpy_kernel` may be anything."""
    word = (found[2] or "").lower()
    if word and word != "unknown":
        return bool(rules.direction_of(found[2])) or (found[1] is not None and word in ("d8", "d16", "d32", "async", "device"))
    return not text.lower().lstrip("[").startswith("copy")


WHATS: Final = ("module", "phase", "function")
_WHAT: Final = {"module": 0, "operator": 2}
"""Types of frames of our own export; every other scope is a phase."""
DEEPEST: Final = 200
"""Levels of scopes that are told apart."""
MOST_LEVELS: Final = 4_000_000
"""Sum of the levels of all scopes: their paths stay within memory."""
SEVERAL: Final = "work in several widths: time and bytes are shared among them"
NOT_STATED: Final = "no launch hook stated its work"
BY_SCOPE: Final = "work that a scope states, without a time of its own"
NO_FP8: Final = ("70", "72", "75", "80", "86", "87", "gfx906", "gfx908", "gfx90a")
"""Architectures whose 8-bit products are INT8."""


class Row(NamedTuple):
    """A row of the ledger before it is a column. flop, bytes, time_ns are those of all `calls`.

    calls is 0 for work that a scope states, and for further types of the same calls: its amounts then stand as they are.
    """

    frame: int
    dtype: str
    flop: float
    bytes: float
    time_ns: float
    calls: int
    estimated: bool
    reason: str


def build(frames: Frames, arch: dict[tuple[str, int], str], health: Health) -> dict[str, pd.DataFrame]:
    """All tables. arch: architecture by (type, index) of a device."""
    size = len(frames)
    kinds = _kinds(frames)
    skipped = _own_work(frames)
    label, around, labels = _labels(frames, kinds, skipped, health)
    work, moved = [], []
    own_time, own_calls = 0.0, 0
    flops: dict[int, list[tuple[int, float]]] = {}
    for row, width, value in frames.flops:
        flops.setdefault(row, []).append((width, float(value)))
    for row in range(size):
        time, count = frames.time[row], frames.count[row]
        runs = bool(time) or bool(count) or frames.device[row] >= 0
        if skipped[row]:
            own_time, own_calls = own_time + (time or 0), own_calls + (count or 0)
        elif kinds[row] is not None:
            moved.append(row)
        elif runs or row in flops or frames.bytes[row]:
            work += _rows(frames, row, flops.get(row, []), runs, arch, health)
    if own_calls or own_time:
        text = f"{human(own_calls, 'count')} launches, {human(round(own_time), 'ns')}"
        health.add("work of the profiler itself", own_calls, text, "left out, as Proton's viewer does")
    return {
        "labels": labels,
        "label_times": _label_times(frames, label),
        "ledger": _ledger(frames, work, around),
        "copies": _copies(frames, moved, kinds, around, health),
        "steps": _whole(),
    }


def _kinds(frames: Frames) -> list[Copied | None]:
    """Per frame what it copies; the root and frames with others below them copy nothing."""
    names, types = [str(n) for n in frames.names], [str(t) for t in frames.types]
    return [
        None if below or (time is None and count is None and data is None) else copied(names[n], types[t])
        for n, t, below, time, count, data in zip(
            frames.name, frames.type, frames.children, frames.time, frames.count, frames.bytes, strict=True
        )
    ]


def _own_work(frames: Frames) -> list[bool]:
    """Per frame whether it is, or is below, the scope of the profiler's own work."""
    own = frames.names.get(OWN_WORK, -1)
    out: list[bool] = []
    for row, parent in enumerate(frames.parent):
        out.append(frames.name[row] == own or (parent >= 0 and out[parent]))
    return out


def _labels(frames: Frames, kinds: list[Copied | None], skipped: list[bool], health: Health) -> tuple[Ints, Ints, pd.DataFrame]:
    """(label of each frame that is a scope, -1; per frame the innermost label of each of WHATS around it, 3 columns, -1; the table).

    A scope is a frame with others below it, or one that has neither time nor launches. The root itself names nothing.
    """
    size = len(frames)
    types = [_WHAT.get(str(t).lower(), 1) for t in frames.types]
    nameless = {frames.names.get(name, -1) for name in (ROOT, "<root>")}
    label, around = np.full(size, -1, np.int64), np.full((size, 3), -1, np.int64)
    what: list[int] = []
    parent: list[int] = []
    name: list[int] = []
    inner = np.full(size, -1, np.int64)
    depth: list[int] = []
    levels = folded = 0
    for row, above in enumerate(frames.parent):
        if above >= 0:
            around[row] = around[above]
            if label[above] >= 0:
                around[row, what[label[above]]] = label[above]
            inner[row] = label[above] if label[above] >= 0 else inner[above]
        leaf = not frames.children[row]
        ran = frames.time[row] is not None or frames.count[row] is not None
        root = above < 0 and frames.name[row] in nameless
        if root or skipped[row] or kinds[row] is not None or (leaf and ran):
            continue
        level = depth[inner[row]] + 1 if inner[row] >= 0 else 0
        if level >= DEEPEST or levels + level > MOST_LEVELS:
            label[row] = inner[row]  # work there counts at the scope around it
            folded += 1
            continue
        levels += level
        label[row] = len(what)
        depth.append(level)
        what.append(types[frames.type[row]])
        parent.append(int(inner[row]))
        name.append(frames.name[row])
    health.add(f"scope below {DEEPEST} others", folded, effect="its work counts at the scope around it")
    table = S.LABELS.frame(
        {
            "what": pd.Categorical.from_codes(np.array(what, np.int8), categories=pd.Index(WHATS, dtype=object)),  # type: ignore[arg-type]
            "parent": np.array(parent, np.int32),
            "name": frames.names.categorical(np.array(name, np.int32)),
            "class_name": pd.Categorical.from_codes(np.zeros(len(what), np.int8), categories=pd.Index([""], dtype=object)),  # type: ignore[arg-type]
        }
    )
    own = np.flatnonzero(label >= 0)
    around[own, np.array(what, np.int64)[label[own]]] = label[own]  # work at a scope is inside it
    return label, around, table


def _label_times(frames: Frames, label: Ints) -> pd.DataFrame:
    """Time of scopes on the host, where the profiler took it; a profile does not say when."""
    rows = [row for row in np.flatnonzero(label >= 0).tolist() if frames.cpu_time[row]]
    return S.LABEL_TIMES.frame(
        {
            "label": label[np.array(rows, np.int64)].astype(np.int32),
            "duration_ns": np.array([round(frames.cpu_time[row] or 0) for row in rows], np.int64),
            "count": np.ones(len(rows), np.int64),
        }
    )


def _rows(
    frames: Frames, row: int, flops: list[tuple[int, float]], runs: bool, arch: dict[tuple[str, int], str], health: Health
) -> list[Row]:
    """The rows of one frame: one, or one per width where it states several."""
    count = frames.count[row]
    time = frames.time[row]
    if runs and not count:
        health.add("work without a count", effect="taken as one launch")
    calls = max(count or 1, 1) if runs else 0
    data = frames.bytes[row]
    own_arch = arch.get((frames.device_type[row], frames.device[row]), "").partition(":")[0]
    spent = float(time) if time is not None and runs else float("nan")
    size = float("nan") if data is None else float(data)
    reason = "" if runs else BY_SCOPE
    if len(flops) < 2:
        width, flop = flops[0] if flops else (0, float("nan"))
        reason = reason if flops or size == size else NOT_STATED
        return [Row(row, dtype_of(width, own_arch, frames.device_type[row]), flop, size, spent, calls, False, reason)]
    weights = np.array([flop * max(width, 1) for width, flop in flops])
    share = weights / weights.sum()
    cuts = np.floor(np.cumsum(share) * spent) if spent == spent else np.full(len(share), np.nan)
    whole = np.floor(np.cumsum(share) * size) if size == size else np.full(len(share), np.nan)
    cuts[-1], whole[-1] = spent, size  # the parts add up exactly
    times, sizes = np.diff(cuts, prepend=0.0), np.diff(whole, prepend=0.0)
    return [
        Row(
            row, dtype_of(width, own_arch, frames.device_type[row]), flop, float(sizes[i]), float(times[i]),
            calls if i == 0 else 0, True, SEVERAL,
        )
        for i, (width, flop) in enumerate(flops)
    ]  # fmt: skip


def dtype_of(width: int, arch: str, device_type: str) -> str:
    """The type that work of so many bits runs in; "" where the width is not stated.

    As Proton's viewer counts it, 32-bit products run on the matrix units: TF32 where there is one.
    """
    if width == 8:
        return "int8" if arch in NO_FP8 else "fp8"
    if width == 32:
        plain = arch in ("70", "72", "75", "gfx906", "gfx908", "gfx90a", "gfx950")
        return "fp32" if plain else "tf32"
    return {4: "fp4", 16: "fp16", 64: "fp64"}.get(width, "")


def _ledger(frames: Frames, work: list[Row], around: Ints) -> pd.DataFrame:
    at = np.array([w.frame for w in work], np.int64)
    count = np.array([w.calls for w in work], np.int64)
    each = np.maximum(count, 1)
    dtypes, reasons = Interner(), Interner()
    dtype = dtypes.codes(w.dtype for w in work)
    reason = reasons.codes(w.reason for w in work)
    columns = around[at] if len(at) else np.zeros((0, 3), np.int64)
    return S.LEDGER.frame(
        {
            "iteration": np.full(len(at), -1, np.int64),
            "name": frames.names.categorical(np.array(frames.name, np.int32)[at]),
            "flop": np.array([w.flop for w in work], np.float64) / each,
            "bytes": np.array([w.bytes for w in work], np.float64) / each,
            "dtype": dtypes.categorical(dtype),
            "direction": np.zeros(len(at), np.int8),
            "estimated": np.array([w.estimated for w in work], bool),
            "reason": reasons.categorical(reason),
            "count": count,
            "time_ns": np.array([w.time_ns for w in work], np.float64),
            "module": columns[:, 0].astype(np.int32),
            "phase": columns[:, 1].astype(np.int32),
            "function": columns[:, 2].astype(np.int32),
            "device": np.array(frames.device, np.int64)[at],
        }
    )


def _copies(frames: Frames, moved: list[int], kinds: list[Copied | None], around: Ints, health: Health) -> pd.DataFrame:
    at = np.array(moved, np.int64)
    found = [k for k in (kinds[row] for row in moved) if k is not None]
    count = np.array([max(frames.count[row] or 1, 1) for row in moved], np.int64)
    known = np.array([frames.bytes[row] is not None for row in moved], bool)
    said = np.array([frames.without_bytes[row] for row in moved], np.int64)
    size = np.array([int(frames.bytes[row] or 0) for row in moved], np.int64)
    bare = np.where(known, np.minimum(said, count), count)
    health.add("copy without bytes", int(bare.sum()))
    health.add("unknown copy direction", int(count[[k.direction == "Unknown" for k in found]].sum()) if found else 0)
    device = np.array(frames.device, np.int64)[at] if len(at) else np.zeros(0, np.int64)
    direction = [k.direction for k in found]
    words = [Interner() for _ in range(3)]
    codes = [w.codes(k[i] for k in found) for i, w in enumerate(words)]
    reads = np.array([d in ("DtoH", "DtoD", "PtoP") for d in direction], bool)
    writes = np.array([d in ("HtoD", "DtoD", "Memset") for d in direction], bool)
    columns = around[at] if len(at) else np.zeros((0, 3), np.int64)
    return S.COPIES.frame(
        {
            "iteration": np.full(len(at), -1, np.int64),
            "name": frames.names.categorical(np.array(frames.name, np.int32)[at] if len(at) else np.zeros(0, np.int32)),
            "direction": words[0].categorical(codes[0]),
            "src_kind": words[1].categorical(codes[1]),
            "dst_kind": words[2].categorical(codes[2]),
            "src_device": np.where(reads, device, -1),
            "dst_device": np.where(writes, device, -1),
            "count": count,
            "bytes": size,
            "without_bytes": bare,
            "time_ns": np.array([_nan(frames.time[row]) for row in moved], np.float64),
            "call_ns": np.array([_nan(frames.cpu_time[row]) for row in moved], np.float64),
            "module": columns[:, 0].astype(np.int32),
            "phase": columns[:, 1].astype(np.int32),
            "function": columns[:, 2].astype(np.int32),
        }
    )


def _nan(value: float | int | None) -> float:
    return float("nan") if value is None else float(value)


def _whole() -> pd.DataFrame:
    """One pseudo-step: a profile has no steps."""
    return S.STEPS.frame(
        {
            "number": [-1],
            "name": pd.Categorical(["whole profile"]),
            "host": [-1],
            **{name: [0] for name in ("host_start_ns", "host_end_ns", "start_ns", "end_ns")},
            "device_events": [0],
            "complete": [True],
        }
    )
