"""Reserved, not in use: block by block by hand, over time, and what each source can tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin import ingest
from tb_sol_plugin.ingest.memory.snapshot import capture_of
from tb_sol_plugin.metrics.memory import fragmentation as F
from tb_sol_plugin.metrics.memory.curves import whole
from tests.support import memory_heaps as heaps
from tests.support.memory_snapshot import MIB, block, segment, write
from tests.support.trace_builder import TraceBuilder

KIB = 1024


def heap_of(value: dict[str, Any]) -> F.Heap:
    found = F.heap(capture_of(value, file="m"), 0)
    assert found is not None
    return found


def test_a_fragmented_heap_adds_up_by_hand() -> None:
    # GIVEN the heap of `fragmented` WHEN added up
    h = heap_of(heaps.fragmented())
    # THEN states are those of the blocks, and make up what is reserved
    assert (h.reserved, h.used, h.awaiting) == (222 * MIB, 100 * MIB + 512, 1024)
    assert h.free == 122 * MIB - 1536 and h.other == 0 and h.active == 100 * MIB + 1536
    # AND the segment that is free as a whole could go back, the rest of the free blocks lie beside used ones
    assert h.returnable == 20 * MIB and h.split == 102 * MIB - 1536 and h.largest == 60 * MIB
    # AND rounding is 1 MiB of the block of 40 and 12 B of the small one
    assert h.rounding == MIB + 12 and h.expandable is False and h.private == 0


def test_pools_are_separate_by_stream_and_size_class() -> None:
    # GIVEN the same WHEN by pool THEN stream 7 has its own segment, whose largest free block is 60 MiB; stream 0 has 30
    p = heap_of(heaps.fragmented()).pools
    large = p[p["kind"] == "large"].set_index("stream")
    assert large.loc[0, ["segments", "reserved", "largest", "returnable"]].tolist() == [2, 120 * MIB, 30 * MIB, 20 * MIB]
    assert large.loc[7, ["segments", "reserved", "used", "free", "largest"]].tolist() == [1, 100 * MIB, 40 * MIB, 60 * MIB, 60 * MIB]
    assert int(p["reserved"].sum()) == 222 * MIB


def test_whole_free_pages_of_expandable_segments_are_returnable() -> None:
    # GIVEN free blocks from 25 to 80 and from 85 to 100 MiB of pages of 20, and 1 to 4 MiB of pages of 2 WHEN asked what goes back
    h = heap_of(heaps.expandable())
    # THEN the pages 40..60 and 60..80 and the small page 2..4, and none of the others
    assert h.expandable is True and h.returnable == 42 * MIB and h.split == h.free == 73 * MIB


def test_a_private_pool_keeps_its_segments() -> None:
    # GIVEN a free segment of 60 MiB in the pool of a graph WHEN asked THEN it does not go back, and serves no other request
    h = heap_of(heaps.private_pool())
    assert (h.private, h.returnable, h.largest) == (60 * MIB, 0, 60 * MIB)
    assert F.largest_for(h, 20 * MIB) == 10 * MIB and F.largest_for(h, 100) == 0


def test_fields_that_an_old_snapshot_lacks_are_unknown() -> None:
    # GIVEN a snapshot without pools, requested sizes and settings THEN rounding and settings are unknown, the rest is there
    h = heap_of(heaps.old())
    assert (h.reserved, h.used, h.free, h.rounding, h.expandable) == (20 * MIB, 5 * MIB, 15 * MIB, -1, None)
    assert not h.pools["private"].any() and F.largest_for(h, 2 * MIB) == 15 * MIB


def test_settings_are_read_from_either_form() -> None:
    # GIVEN the setting as a flag, as text, and by what the history shows
    def of(**more: Any) -> bool | None:
        value = heaps.fragmented()
        value["allocator_settings"] = more
        return F.expandable(capture_of(value, file="m"))

    assert of(expandable_segments=True) is True
    assert of(PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:64, expandable_segments:True") is True
    assert of(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:False") is False
    assert of() is None
    value = heaps.fragmented([{"action": "segment_map", "addr": 1, "size": 2 * MIB, "stream": 0, "time_us": 5}])
    value["allocator_settings"] = {}
    assert F.expandable(capture_of(value, file="m")) is True


@given(st.lists(st.lists(st.tuples(st.integers(1, 50), st.sampled_from(["active_allocated", "active_awaiting_free", "inactive"])),
                         min_size=1, max_size=6), min_size=1, max_size=8))  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_used_free_and_split_bytes_add_up_to_reserved(shape: list[list[tuple[int, str]]]) -> None:
    # GIVEN any heap WHEN added up block by block, slowly
    segments = [
        segment(heaps.A + i * (1 << 30), "large" if i % 2 else "small", [block(n * KIB, n * KIB, s) for n, s in blocks])
        for i, blocks in enumerate(shape)
    ]
    h = heap_of({"segments": segments, "device_traces": []})
    slow = {s: sum(n * KIB for blocks in shape for n, state in blocks if state == s) for s in ("active_allocated", "active_awaiting_free", "inactive")}
    whole_free = sum(sum(n * KIB for n, _ in blocks) for blocks in shape if all(s == "inactive" for _, s in blocks))
    # THEN states, what goes back and what does not are those sums, by pool and in all
    assert (h.used, h.awaiting, h.free) == tuple(slow.values()) and h.other == 0
    assert h.returnable == whole_free and h.split == h.free - whole_free
    for name, value in (("used", h.used), ("free", h.free), ("split", h.split), ("returnable", h.returnable), ("reserved", h.reserved)):
        assert int(h.pools[name].sum()) == value
    assert h.largest == max([n * KIB for blocks in shape for n, s in blocks if s == "inactive"], default=0)


def test_fragmentation_over_time_and_at_the_peak(tmp_path: Path) -> None:
    # GIVEN in use 100, 400, 200 while 500, 500, 900 are reserved WHEN drawn THEN 100 of 500 lie unused at the peak, 700 at most
    t = TraceBuilder()
    t.op("aten::empty", 0, 1_000)
    for at, size, address, total, held in ((200, 100, 1, 100, 500), (300, 300, 2, 400, 500), (400, -200, 2, 200, 900)):
        t.memory(at, size, address=address, allocated=total, reserved=held)
    c = ingest.read(str(t.write(tmp_path / "a.pt.trace.json")))
    f = F.fragmentation(c, whole(c)[0])
    assert f is not None and (f.peak_gap, f.reserved_at_peak, f.peak_ns) == (100, 500, 300) and f.share == 0.2
    assert (f.worst_gap, f.worst_ns, f.max_reserved, f.max_allocated) == (700, 400, 900, 400) and f.heap is None
    assert f.gap.tolist() == [500, 400, 100, 700]


def test_a_source_without_reserved_memory_has_no_fragmentation(tmp_path: Path) -> None:
    # GIVEN memory of the host, and a timeline WHEN asked THEN there is no answer, not 0
    t = TraceBuilder()
    t.memory(200, 100, address=1, allocated=100, reserved=0, device_type=0, device_id=-1)
    c = ingest.read(str(t.write(tmp_path / "a.pt.trace.json")))
    assert F.fragmentation(c, whole(c)[0]) is None
    path = tmp_path / "m.json"
    path.write_text("[[-1, 1, 10, 0], [1000, 2, 0, 5]]")
    c = ingest.read(str(path))
    assert F.fragmentation(c, whole(c)[0]) is None


def test_a_snapshot_has_the_curve_and_the_heap(tmp_path: Path) -> None:
    # GIVEN the fragmented heap as a file WHEN read THEN its curve and its blocks tell the same reserved memory
    c = ingest.read(str(write(tmp_path / "m.pickle", heaps.fragmented())))
    f = F.fragmentation(c, whole(c)[0])
    assert f is not None and f.heap is not None and f.requested
    assert int(f.reserved[-1]) == f.heap.reserved and int(f.gap[-1]) == f.heap.reserved - f.heap.used + f.heap.rounding
    assert np.all(f.gap == f.reserved - f.allocated)
