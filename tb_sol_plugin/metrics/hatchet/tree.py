"""Frames of an exported profile: merged by place, name and device, and written as JSON however deep they stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

Number = int | float
ROOT: Final = "ROOT"
TIME: Final = "time (ns)"
HOST_TIME: Final = "cpu_time (ns)"
WIDTHS: Final = {"fp4": 4, "fp8": 8, "int8": 8, "fp16": 16, "bf16": 16, "tf32": 32, "fp32": 32, "fp64": 64}
"""Bits of a type, by which Proton tells work apart."""
SUMMED: Final = (TIME, HOST_TIME, "count", "bytes", "without_bytes", *(f"flops{w}" for w in (4, 8, 16, 32, 64)), "flops", "flops_estimated")
"""Metrics in the order in which they are written. Each stands at the frame it belongs to and counts for that frame alone."""


@dataclass
class Tree:
    """One entry per frame; frame 0 is the root. device: index as text, "" where the frame is a scope."""

    name: list[str] = field(default_factory=lambda: [ROOT])
    type: list[str] = field(default_factory=lambda: ["function"])
    device: list[str] = field(default_factory=lambda: [""])
    children: list[list[int]] = field(default_factory=lambda: [[]])
    metrics: list[dict[str, Number]] = field(default_factory=lambda: [{TIME: 0, "count": 0}])
    _known: dict[tuple[int, str, str, str], int] = field(default_factory=dict)

    def at(self, parent: int, name: str, kind: str, device: str = "") -> int:
        """The frame of that name below `parent`, made on first use."""
        key = parent, name, kind, device
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.name)
            self.name.append(name)
            self.type.append(kind)
            self.device.append(device)
            self.children.append([])
            self.metrics.append({})
            self.children[parent].append(found)
        return found

    def add(self, frame: int, metrics: Mapping[str, Number | None]) -> None:
        """Add to the metrics of a frame; None is unknown and adds nothing."""
        own = self.metrics[frame]
        for name, value in metrics.items():
            if value is not None:
                own[name] = own.get(name, 0) + value


def device_type(vendor: str) -> str:
    """What Proton calls the devices of a vendor."""
    return {"nvidia": "CUDA", "amd": "HIP", "xpu": "XPU"}.get(vendor, vendor.upper() or "CPU")


def chunks(tree: Tree, info: object, kind: str) -> Iterator[bytes]:
    """The profile `[root, device information]` as JSON, piece by piece. kind: type of the devices."""
    for name in {n for metrics in tree.metrics for n in metrics}:
        tree.metrics[0].setdefault(name, 0)  # Hatchet sums up the metrics that the root has
    yield b"["
    stack: list[tuple[int, int]] = [(0, 0)]
    while stack:
        frame, done = stack.pop()
        below = tree.children[frame]
        if not done:
            yield _head(tree, frame, kind)
        if done < len(below):
            if done:
                yield b","
            stack += [(frame, done + 1), (below[done], 0)]
        else:
            yield b"]}"
    yield b",\n" + msgspec.json.encode(info) + b"]\n"


def _head(tree: Tree, frame: int, kind: str) -> bytes:
    metrics: dict[str, object] = {n: _plain(tree.metrics[frame][n]) for n in SUMMED if n in tree.metrics[frame]}
    if tree.device[frame]:
        metrics |= {"device_id": tree.device[frame], "device_type": kind}
    head = msgspec.json.encode({"frame": {"name": tree.name[frame], "type": tree.type[frame]}, "metrics": metrics})
    return b"\n" + head[:-1] + b',"children":['


def _plain(value: Number) -> Number:
    """Whole amounts as integers: FLOP are large, and exact below 2^53."""
    return int(value) if float(value).is_integer() and abs(value) < 2**63 else value
