"""Frames of a profile as columns: parent, name, type and what their metrics say.

    [root, device information]; a frame: {"frame": {"name", "type"}, "metrics": {...}, "children": [...]}

A metric stands at the frame that it was measured at and counts for that frame alone; sums over a subtree are made by the reader.
Kernels carry `time (ns)`, `count`, `device_id` and `device_type`; work that a launch hook or a scope states is `flops8` to `flops64`,
`flops` and `bytes`. Frames are walked without recursion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tb_sol_plugin.errors import BadInput, NotATrace
from tb_sol_plugin.ingest.columns import Interner
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.ingest.proton.decode import amount, whole

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
    """(the frames, the device information or None). NotATrace where `value` is no profile."""
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
            health.add("entry that is no frame", 1, _shown(item))
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
            health.add("entry that is no frame", 1, _shown(below))
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
        health.add("device that is no number", 1, _shown(value))
    else:
        out.device[row] = number


def _other(out: Frames, key: str, value: object) -> None:
    """Metrics that are not understood: counted by name. Cycles tell a profile of the inside of kernels."""
    if key in ("cycles", "normalized_cycles") and isinstance(value, int | float) and value > 0:
        out.cycles += 1
    key = key[:80] if key[:80] in out.other or len(out.other) < MOST_METRICS else "(others)"
    out.other[key] = out.other.get(key, 0) + 1


def _shown(value: object) -> str:
    return str(value)[:60] if isinstance(value, str | int | float | bool) or value is None else type(value).__name__
