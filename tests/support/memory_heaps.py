"""Snapshots of allocators in known trouble, in the plain dicts that torch writes: every byte can be added up by hand.

`fragmented`, `out_of_memory`, `expandable`, `private_pool` and `old` answer the value of a pickle; `write` of `memory_snapshot` stores it.
"""

from __future__ import annotations

from typing import Any

from tests.support.memory_snapshot import MIB, STACK, block, entry, segment

A, B, C, D = 0x7F0000000000, 0x7F1000000000, 0x7F2000000000, 0x7F3000000000
TOTAL = 80 * 1024 * MIB
INSIDE = {"filename": "/venv/lib/python3.11/site-packages/torch/nn/functional.py", "line": 9, "name": "linear"}
NATIVE = {"filename": "??", "line": 0, "name": "at::native::empty_cuda"}
ASKED = [NATIVE, INSIDE, {"filename": "/home/me/train.py", "line": 31, "name": "loss"}, {"filename": "/home/me/train.py", "line": 60, "name": "main"}]


def used(size: int, requested: int | None = None) -> dict[str, Any]:
    return block(size, size if requested is None else requested, "active_allocated", STACK)


def free(size: int) -> dict[str, Any]:
    return block(size, 0, "inactive")


def snapshot(segments: list[dict[str, Any]], history: list[dict[str, Any]] | None = None, **settings: Any) -> dict[str, Any]:
    own = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False, **settings}
    return {"segments": segments, "device_traces": [history or []], "allocator_settings": own, "external_annotations": []}


def fragmented(history: list[dict[str, Any]] | None = None, **settings: Any) -> dict[str, Any]:
    """Device 0, in MiB. Two large segments of 100: 60 used in 30 | 10 free | 30 | 30 free, and 40 used in 40 | 60 free; a free one of 20.

    Reserved 220 + a small segment of 2 with 512 B asked as 500 and 1 KiB awaiting; used 100 + 512 B; free in split segments
    100 + 2 - 1.5 KiB, 20 could go back; rounding 1 MiB - 12 B ... of the block of 40, asked as 39, and 12 B.
    """
    return snapshot(
        [
            segment(A, "large", [used(30 * MIB), free(10 * MIB), used(30 * MIB), free(30 * MIB)]),
            segment(B, "large", [used(40 * MIB, 39 * MIB), free(60 * MIB)], stream=7),
            segment(C, "large", [free(20 * MIB)]),
            segment(D, "small", [used(512, 500), block(1024, 1000, "active_pending_free"), free(2 * MIB - 1536)]),
        ],
        history, **settings,
    )  # fmt: skip


def out_of_memory(asked: int, device_free: int, **settings: Any) -> dict[str, Any]:
    """The same, whose history ends with an allocation of `asked` bytes that failed while the device had so much free."""
    return fragmented([entry("oom", device_free, asked, 90, ASKED), entry("snapshot", 0, 0, 95)], **settings)


def expandable() -> dict[str, Any]:
    """One expandable segment of 100 MiB in pages of 20: 25 used | 55 free | 5 used | 15 free, so that pages 2 and 3 are free as a whole.

    Free are 25..80 and 85..100: the pages 40..60 and 60..80, 40 MiB. A small one of 4 MiB in pages of 2: 1 used | 3 free: 2 MiB.
    """
    return snapshot(
        [
            segment(A, "large", [used(25 * MIB), free(55 * MIB), used(5 * MIB), free(15 * MIB)], is_expandable=True),
            segment(D, "small", [used(1 * MIB), free(3 * MIB)], is_expandable=True),
        ],
        expandable_segments=True,
    )  # fmt: skip


def private_pool() -> dict[str, Any]:
    """A common segment of 40 MiB, 30 used; one of a graph's pool of 60 MiB, all of it free; it stays with the pool."""
    return snapshot([
        segment(A, "large", [used(30 * MIB), free(10 * MIB)]), segment(B, "large", [free(60 * MIB)], segment_pool_id=(0, 3)),
    ])  # fmt: skip


def old() -> dict[str, Any]:
    """As torch before 2.0 wrote it: a list of segments without pools and settings, blocks without what was asked for. 20 MiB, 5 used."""
    blocks = [{"size": 5 * MIB, "state": "active_allocated"}, {"size": 15 * MIB, "state": "inactive"}]
    return {"segments": [{
        "device": 0, "address": A, "total_size": 20 * MIB, "allocated_size": 5 * MIB, "active_size": 5 * MIB, "stream": 0,
        "segment_type": "large", "blocks": blocks,
    }]}  # fmt: skip
