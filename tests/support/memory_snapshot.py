"""Snapshots of a caching allocator in the documented structure, small enough to add up by hand."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

MIB = 1 << 20
T0 = 1_700_000_000_000_000
"""Microseconds since 1970."""
INNER = {"filename": "train.py", "line": 12, "name": "forward"}
OUTER = {"filename": "train.py", "line": 40, "name": "main"}
STACK = [INNER, OUTER]


def block(size: int, requested: int | None, state: str, frames: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    out: dict[str, Any] = {"size": size, "state": state, **more}
    if requested is not None:
        out |= {"requested_size": requested, "frames": frames if frames is not None else []}
    return out


def segment(address: int, kind: str, blocks: list[dict[str, Any]], device: int = 0, **more: Any) -> dict[str, Any]:
    at = address
    for b in blocks:
        b["address"] = at
        at += b["size"]
    return {
        "device": device, "address": address, "total_size": sum(b["size"] for b in blocks), "stream": 0, "segment_type": kind,
        "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
        "allocated_size": sum(b["size"] for b in blocks if b["state"] == "active_allocated"),
        "active_size": sum(b["size"] for b in blocks if b["state"] != "inactive"),
        "requested_size": sum(b.get("requested_size", 0) for b in blocks if b["state"] == "active_allocated"),
        "blocks": blocks, **more,
    }  # fmt: skip


def entry(action: str, address: int, size: int, at: int, frames: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    where = "device_free" if action == "oom" else "addr"
    return {"action": action, where: address, "size": size, "stream": 0, "time_us": T0 + at, "frames": frames if frames is not None else []}


def snapshot() -> dict[str, Any]:
    """Two devices. Device 0 holds 3 MiB of a 20 MiB segment and 512 B of a small one; one allocation failed.

    History of device 0: 1,000 B allocated and freed again, 3 MiB - 100 B allocated, an allocation of 80 GiB with 6 MiB free failed.
    """
    a, b, c = 0x7F0000000000, 0x7F0010000000, 0x7F0020000000
    return {
        "segments": [
            segment(a, "large", [block(3 * MIB, 3 * MIB - 100, "active_allocated", STACK), block(17 * MIB, 0, "inactive")]),
            segment(b, "small", [block(512, 500, "active_allocated"), block(1024, 1000, "active_pending_free"), block(2 * MIB - 1536, 0, "inactive")]),
            segment(c, "large", [block(20 * MIB, 0, "inactive")], device=1, segment_pool_id=(0, 1)),
        ],
        "device_traces": [
            [
                entry("segment_alloc", b, 2 * MIB, 0),
                entry("alloc", b + 512, 1000, 10, STACK),
                entry("segment_alloc", a, 20 * MIB, 20),
                entry("alloc", a, 3 * MIB - 100, 25, STACK),
                entry("free_requested", b + 512, 1000, 30),
                entry("oom", 6 * MIB, 80 << 30, 40, [OUTER]),
                entry("snapshot", 0, 0, 50),
            ],
            [entry("segment_alloc", c, 20 * MIB, 15)],
        ],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False", "max_split_size": -1, "roundup": {"a": 1}},
        "external_annotations": [{"name": "step 1", "stage": "START", "device": 0, "time_us": T0 + 5}],
    }  # fmt: skip


def write(path: Path, value: object, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(value, protocol))
    return path
