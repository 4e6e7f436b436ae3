"""Small recordings for tests of the store and of everything above it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10, "dur": 20, "args": {"External id": 1}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 12, "dur": 2, "args": {"correlation": 7}},
    {
        "ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 20, "dur": 30,
        "args": {"correlation": 7, "device": 0, "stream": 7},
    },
]  # fmt: skip


def trace(path: Path, events: list[dict[str, object]] | None = None, **header: object) -> Path:
    """Write a recording of three events: an operator of 20 µs that launches a kernel of 30 µs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = json.dumps({"schemaVersion": 1, **header, "traceEvents": EVENTS if events is None else events}).encode()
    path.write_bytes(gzip.compress(body) if path.suffix == ".gz" else body)
    return path
