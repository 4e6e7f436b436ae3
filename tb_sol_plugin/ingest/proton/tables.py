"""Lays the frames of a profile out as columns, and those as the tables of a Capture.

    [root, device information]; a frame: {"frame": {"name", "type"}, "metrics": {...}, "children": [...]}

A metric stands at the frame that it was measured at and counts for that frame alone; sums over a subtree are made by the reader.
Kernels carry `time (ns)`, `count`, `device_id` and `device_type`; work that a launch hook or a scope states is `flops8` to `flops64`,
`flops` and `bytes`. Frames are walked without recursion. Scopes become labels, kernels rows of the ledger, copies rows of `copies`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from tb_sol_plugin.errors import BadInput, NotATrace
from tb_sol_plugin.ingest.columns import Interner
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.ingest.kineto import rules
from tb_sol_plugin.ingest.proton.decode import amount, whole
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.units import human

# -- frames as columns: parent, name, type and metrics ---------------------------------------------------------------


MOST_FRAMES: Final = 2_000_000
MOST_METRICS: Final = 400
"""Different names of metrics that are told apart; further ones count together."""
LONGEST: Final = 4_000
ROOT: Final = "ROOT"
OWN_WORK: Final = "__proton_launch_metadata"
"""Scope in which Proton runs the functions that describe a launch: its own work, which its viewer leaves out too."""
UNITS: Final = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "sec": 1e9}
_TIME: Final = re.compile(r"(cpu_)?time \((ns|us|µs|ms|s|sec)\)")
_FLOPS: Final = re.compile(r"flops(\d{1,3})?")
_TEXTS: Final = ("device_id", "device_type")
OPEN: Final = "open the file that proton.finalize() writes (*.hatchet)"


@dataclass
class Frames:
    """One entry per frame, a parent before its children. Times in ns, None where a metric is not there.

    flops: (row, width in bits, 0 not stated, amount). other: metrics that are not understood, with the frames that have one.
    copies: sizes and counts of our own export: copies of a frame that carry no size.
    """

    parent: list[int] = field(default_factory=list)
    name: list[int] = field(default_factory=list)
    type: list[int] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    time: list[float | int | None] = field(default_factory=list)
    cpu_time: list[float | int | None] = field(default_factory=list)
    count: list[int | None] = field(default_factory=list)
    bytes: list[float | int | None] = field(default_factory=list)
    without_bytes: list[int] = field(default_factory=list)
    device: list[int] = field(default_factory=list)
    device_type: list[str] = field(default_factory=list)
    flops: list[tuple[int, int, float | int]] = field(default_factory=list)
    cycles: int = 0
    names: Interner = field(default_factory=Interner)
    types: Interner = field(default_factory=Interner)
    other: dict[str, int] = field(default_factory=dict)
    deepest: int = 0

    def __len__(self) -> int:
        return len(self.parent)


def frames_of(value: object, health: Health, file: str) -> tuple[Frames, object]:
    """Returns (the frames, the device information or None). NotATrace where `value` is no profile."""
    roots, info = _parts(value, file)
    out = Frames()
    stack: list[tuple[Iterator[object], int, int]] = [(iter(roots), -1, 0)]
    while stack:
        rest, parent, depth = stack[-1]
        item = next(rest, stack)
        if item is stack:
            stack.pop()
            continue
        if not isinstance(item, dict) or not ("frame" in item or "children" in item or "metrics" in item):
            health.add("malformed frame", 1, _shown(item))
            continue
        if len(out) >= MOST_FRAMES:
            hint = "profile a shorter part, or use proton.start(context='shadow')"
            raise BadInput(f"the profile has more than {MOST_FRAMES:,} frames", hint=hint, file=file)
        row = _add(out, item, parent, health)
        out.deepest = max(out.deepest, depth + 1)
        below = item.get("children")
        if isinstance(below, list) and below:
            stack.append((iter(below), row, depth + 1))
        elif below is not None and not isinstance(below, list):
            health.add("malformed frame", 1, _shown(below))
    return out, info


def _parts(value: object, file: str) -> tuple[list[object], object]:
    if isinstance(value, str):
        hint = "let Proton write it as text: proton.finalize(output_format='chrome_trace')"
        raise NotATrace("this is a text inside MessagePack: a trace of Proton, not its tree", hint=hint, file=file)
    entries: list[object] = list(value) if isinstance(value, list) else [value]
    roots: list[object] = [e for e in entries if isinstance(e, dict) and ("frame" in e or "children" in e)]
    info: object = next((e for e in entries if isinstance(e, dict) and not ("frame" in e or "children" in e)), None)
    if not roots:
        raise NotATrace("this holds no frames: a profile of Proton is [root, devices]", hint=OPEN, file=file)
    return roots, info


def _add(out: Frames, item: dict[object, object], parent: int, health: Health) -> int:
    row = len(out.parent)
    frame = item.get("frame")
    frame = frame if isinstance(frame, dict) else {}
    name = frame.get("name")
    if not isinstance(name, str) or not name:
        health.add("frame without a name")
    kind = frame.get("type")
    out.parent.append(parent)
    out.name.append(out.names[name[:LONGEST] if isinstance(name, str) and name else "(unnamed)"])
    out.type.append(out.types[kind[:40] if isinstance(kind, str) else ""])
    out.children.append(0)
    if parent >= 0:
        out.children[parent] += 1
    for column in (out.time, out.cpu_time, out.bytes):
        column.append(None)
    out.count.append(None)
    out.without_bytes.append(0)
    out.device.append(-1)
    out.device_type.append("")
    metrics = item.get("metrics")
    if isinstance(metrics, dict):
        for key, value in metrics.items():
            _metric(out, row, key if isinstance(key, str) else str(key), value, health)
    elif metrics is not None:
        health.add("metrics that are no object", 1, _shown(metrics))
    return row


def _metric(out: Frames, row: int, key: str, value: object, health: Health) -> None:
    if key in _TEXTS:
        _device(out, row, key, value, health)
        return
    timed, flops = _TIME.fullmatch(key), _FLOPS.fullmatch(key)
    if timed is None and flops is None and key not in ("count", "bytes", "without_bytes"):
        _other(out, key, value)
        return
    if value is None:
        return  # how the writer puts NaN
    found, fault = amount(value)
    if fault == "text":
        health.add("number written as text", 1, f"{key}: {_shown(value)}")
    elif fault:
        health.add(f"metric that is {'no number' if fault == 'no number' else fault}", 1, f"{key}: {_shown(value)}")
    if found is None:
        return
    if timed is not None:
        column = out.cpu_time if timed[1] else out.time
        factor = UNITS[timed[2]]
        column[row] = found if factor == 1.0 else found * factor
    elif flops is not None:
        if found > 0:
            out.flops.append((row, int(flops[1] or 0), found))
    elif key == "bytes":
        out.bytes[row] = found
    elif found != int(found):
        health.add("count that is no whole number", 1, f"{key}: {_shown(value)}")
    elif key == "count":
        out.count[row] = int(found)
    else:
        out.without_bytes[row] = int(found)


def _device(out: Frames, row: int, key: str, value: object, health: Health) -> None:
    if key == "device_type":
        out.device_type[row] = value[:40] if isinstance(value, str) else ""
        return
    number = whole(value)
    if number is None or number >= 2**31:
        health.add("device index that is no number", 1, _shown(value))
    else:
        out.device[row] = number


def _other(out: Frames, key: str, value: object) -> None:
    """Counts metrics that are not understood, by name. Cycles tell a profile of the inside of kernels."""
    if key in ("cycles", "normalized_cycles") and isinstance(value, int | float) and value > 0:
        out.cycles += 1
    key = key[:80] if key[:80] in out.other or len(out.other) < MOST_METRICS else "(others)"
    out.other[key] = out.other.get(key, 0) + 1


def _shown(value: object) -> str:
    return str(value)[:60] if isinstance(value, str | int | float | bool) or value is None else type(value).__name__


# -- which frames are copies or sets of memory -----------------------------------------------------------------------


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


@lru_cache(maxsize=4096)
def copied(name: str, kind: str) -> Copied | None:
    """Returns what a frame copies, by its name and the type of the frame; None where it is no copy. An unknown direction is `Unknown`."""
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
    """Returns all tables. arch: architecture by (type, index) of a device."""
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
    """Returns per frame what it copies; the root and frames with others below them copy nothing."""
    names, types = [str(n) for n in frames.names], [str(t) for t in frames.types]
    return [
        None if below or (time is None and count is None and data is None) else copied(names[n], types[t])
        for n, t, below, time, count, data in zip(
            frames.name, frames.type, frames.children, frames.time, frames.count, frames.bytes, strict=True
        )
    ]


def _own_work(frames: Frames) -> list[bool]:
    """Returns per frame whether it is, or is below, the scope of the profiler's own work."""
    own = frames.names.get(OWN_WORK, -1)
    out: list[bool] = []
    for row, parent in enumerate(frames.parent):
        out.append(frames.name[row] == own or (parent >= 0 and out[parent]))
    return out


def _labels(frames: Frames, kinds: list[Copied | None], skipped: list[bool], health: Health) -> tuple[Ints, Ints, pd.DataFrame]:
    """Returns (label of each frame that is a scope, -1; per frame the innermost label of each of WHATS around it, 3 columns, -1; the
    table).

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
    """Returns time of scopes on the host, where the profiler took it; a profile does not say when."""
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
    """Returns the rows of one frame: one, or one per width where it states several."""
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
    """Returns the type that work of so many bits runs in; "" where the width is not stated.

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
    without = np.array([frames.without_bytes[row] for row in moved], np.int64)
    size = np.array([int(frames.bytes[row] or 0) for row in moved], np.int64)
    unsized = np.where(known, np.minimum(without, count), count)
    health.add("copy without bytes", int(unsized.sum()))
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
            "without_bytes": unsized,
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
    """Returns one pseudo-step: a profile has no steps."""
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
