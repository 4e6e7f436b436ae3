"""Makes profiles as Proton writes them: `[root, devices]`, metrics at the frames that were measured."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Frame: TypeAlias = "dict[str, Json]"

H100: dict[str, Json] = {"arch": "90", "num_sms": 132, "clock_rate": 1_980_000, "memory_clock_rate": 2_619_000, "bus_width": 5120}
"""An H100 SXM as the driver tells it: 2 x 5120 bit x 2.619 GHz / 8 = 3.35 TB/s."""
ONE: dict[str, Json] = {"CUDA": {"0": H100}}


def scope(name: str, children: Iterable[Frame] = (), metrics: Mapping[str, Json] | None = None, *, kind: str = "function") -> Frame:
    """A frame without launches of its own."""
    return {"frame": {"name": name, "type": kind}, "metrics": dict(metrics or {}), "children": list(children)}


def kernel(name: str, time_ns: Json, count: Json = 1, *, device: Json = "0", of: Json = "CUDA", **metrics: Json) -> Frame:
    """A kernel with its launches; `flops16` and the like are metrics."""
    return scope(name, (), {"time (ns)": time_ns, "count": count, "device_id": device, "device_type": of, **metrics})


def root(*children: Frame) -> Frame:
    """The root with the zeros that Proton puts there."""
    return scope("ROOT", children, {"count": 0, "time (ns)": 0})


def write(path: Path, tree: Json, devices: Json = ONE) -> Path:
    """As Hatchet JSON or, by the ending of the path, MessagePack."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".hatchet_msgpack":
        path.write_bytes(msgspec.msgpack.encode([tree, devices]))
    else:
        path.write_text("\n" + json.dumps([tree, devices], indent=4) + "\n", encoding="utf-8")
    return path


def serving() -> Frame:
    """A small profile with everything in it: scopes, work in several widths, copies with and without sizes, the profiler's own work."""
    return root(
        scope(
            "forward",
            [
                scope(
                    "attention",
                    [
                        kernel("_attn_fwd", 4_000_000, 32, flops16=2.0e12, bytes=4.0e8),
                        kernel("Memcpy DtoD (Device -> Device)", 100_000, 32, bytes=67_108_864),
                    ],
                ),
                scope(
                    "mlp",
                    [
                        kernel("matmul_kernel", 9_000_000, 64, flops16=6.0e12, bytes=1.2e9),
                        kernel("silu_kernel", 800_000, 32, bytes=2.0e9),
                    ],
                ),
                scope("__proton_launch_metadata", [kernel("elementwise_kernel", 50_000, 10)]),
            ],
        ),
        scope(
            "load",
            [
                kernel("Memcpy HtoD (Pinned -> Device)", 3_000_000, 16, bytes=67_108_864),
                kernel("Memcpy HtoD (Pageable -> Device)", 500_000, 4),
                kernel("Memcpy DtoH (Device -> Pinned)", 120_000, 16, bytes=64),
                kernel("Memset (Device)", 20_000, 8, bytes=1 << 20),
            ],
            {"cpu_time (ns)": 9_000_000},
        ),
        kernel("cuda_kernel", 4_064, 1),
    )
