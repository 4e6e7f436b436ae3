"""What is left of a device with where each number is from, and why allocations failed."""

from __future__ import annotations

from typing import Any

import pytest

from tb_sol_plugin.devices.spec import DeviceProps
from tb_sol_plugin.ingest.memory.snapshot import capture_of
from tb_sol_plugin.metrics.memory import summary as H
from tb_sol_plugin.metrics.memory.curves import whole
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tests.support import memory_heaps as heaps
from tests.support.memory_snapshot import MIB

GB = 10**9


def records(**columns: list[Any]) -> Capture:
    count = len(next(iter(columns.values())))
    table = S.MEMORY_RECORDS.frame({"device": [0] * count, "time_ns": list(range(count)), "since": ["process"] * count, **columns})
    return Capture(Facts("sol_capture", "x", 0), {"memory_records": table})


def of(c: Capture) -> H.Headroom:
    return H.headroom(c, whole(c)[0])


def test_headroom_is_total_less_base_less_most_reserved() -> None:
    # GIVEN 80 GB; beside the allocator 1 GB before and 3 GB after the process group; reserved 60 GB now and 70 GB at most
    h = of(records(
        tag=["start", "process group", "end"], total=[80 * GB] * 3, device_used=[1 * GB, 13 * GB, 63 * GB], reserved=[0, 10 * GB, 60 * GB],
        allocated=[0, 9 * GB, 50 * GB], max_reserved=[0, 10 * GB, 70 * GB], max_allocated=[0, 9 * GB, 66 * GB],
    ))  # fmt: skip
    # THEN 80 - 3 - 70 = 7 GB are left, which is more than a twentieth
    assert (h.total.bytes, h.base.bytes, h.max_reserved.bytes, h.left.bytes) == (80 * GB, 3 * GB, 70 * GB, 7 * GB)
    assert h.share == 7 / 80 and not h.near and "process group" in h.base.why and h.at_most is None
    # AND at the last record 10 GB could be freed, while no snapshot tells what would go back
    assert h.freeable.bytes == 10 * GB and h.returnable.bytes is None and h.max_allocated.bytes == 66 * GB


def test_headroom_below_a_twentieth_is_near_the_limit() -> None:
    h = of(records(tag=["a"], total=[80 * GB], device_used=[78 * GB], reserved=[75 * GB], allocated=[70 * GB], max_reserved=[75 * GB]))
    assert h.left.bytes == 2 * GB and h.near


def test_memory_outside_of_the_allocator_is_never_assumed() -> None:
    # GIVEN records that do not tell what is used on the device WHEN asked THEN headroom is unknown, with at most 20 GB
    h = of(records(tag=["a"], total=[80 * GB], reserved=[60 * GB], allocated=[50 * GB], max_reserved=[60 * GB]))
    assert h.left.bytes is None and h.left.why == H.NO_BASE and "record_base_memory" in H.NO_BASE and h.at_most == 20 * GB
    assert h.share is None and not h.near


def test_other_processes_are_named_where_the_driver_tells_ours() -> None:
    h = of(records(tag=["a"], total=[80 * GB], device_used=[66 * GB], process_used=[61 * GB], reserved=[60 * GB], allocated=[50 * GB]))
    assert h.base.bytes == 6 * GB and "5 GB" in h.base.why.replace("\u202f", " ").replace(".00", "") and "other processes" in h.base.why


def with_total(value: dict[str, Any], total: int = heaps.TOTAL, vendor: str = "nvidia") -> Capture:
    c = capture_of(value, file="m")
    facts = Facts("memory_snapshot", "m", 0, devices=(DeviceProps(0, "GPU", total),), vendor=vendor, metadata=c.facts.metadata, pseudo_step=True)
    return Capture(facts, c.tables)


def failure(value: dict[str, Any], vendor: str = "nvidia") -> H.Failure:
    (found,) = of(with_total(value, vendor=vendor)).failures
    return found


def test_a_failed_allocation_shows_memory_outside_of_the_allocator() -> None:
    # GIVEN 80 GiB, 6 MiB free and 222 MiB reserved when it failed WHEN asked THEN the rest is beside the allocator, and nothing but 6 is left
    h = of(with_total(heaps.out_of_memory(70 * MIB, 6 * MIB)))
    assert h.base.bytes == heaps.TOTAL - 6 * MIB - 222 * MIB and h.left.bytes == 6 * MIB and h.near


def test_an_allocation_that_fails_with_enough_free_in_pieces_is_fragmentation() -> None:
    # GIVEN 120 MiB of free large blocks, the largest 60, and 6 MiB free on the device WHEN 70 MiB are asked for
    f = failure(heaps.out_of_memory(70 * MIB, 6 * MIB))
    # THEN growing segments help, and who asked is the line of the program, not torch's
    assert (f.requested, f.free, f.unused, f.largest, f.reserved) == (70 * MIB, 6 * MIB, 120 * MIB, 60 * MIB, 222 * MIB)
    assert "fragmented" in f.verdict and "132.1" in f.verdict  # 126 MiB
    assert f.setting == "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" and "max_split_size_mb:64" in f.advice
    assert f.where == "/home/me/train.py(31): loss" and len(f.stack) == 4 and f.later == 0
    assert failure(heaps.out_of_memory(70 * MIB, 6 * MIB), "amd").setting.startswith("PYTORCH_HIP_ALLOC_CONF=")


@pytest.mark.parametrize(("asked", "free", "settings", "word", "setting"), [
    (200 * MIB, 6 * MIB, {}, "short by", ""),  # 126 MiB are there in all
    (126 * MIB, 6 * MIB, {}, "fragmented", "expandable"),  # just enough in all
    (126 * MIB + 1, 6 * MIB, {}, "short by", ""),  # one byte more
    (70 * MIB, 6 * MIB, {"expandable_segments": True}, "fragmented", ""),  # nothing left to set
    (70 * MIB, 6 * MIB, {"max_split_size": 64 * MIB}, "fragmented", "expandable"),
    (70 * MIB, 90 * MIB, {}, "a limit of this process", "set_per_process_memory_fraction"),
    (50 * MIB, 6 * MIB, {}, "after the failure", ""),  # a block of 60 MiB is there
])  # fmt: skip
def test_the_reason_of_a_failed_allocation(asked: int, free: int, settings: dict[str, Any], word: str, setting: str) -> None:
    f = failure(heaps.out_of_memory(asked, free, **settings))
    assert word in f.verdict and (setting in f.setting if setting else f.setting == "")


def test_without_blocks_fragmentation_is_not_claimed() -> None:
    # GIVEN a history alone WHEN an allocation failed THEN what lies unused is unknown
    value = heaps.out_of_memory(70 * MIB, 6 * MIB)
    value["segments"] = []
    f = failure(value)
    assert (f.largest, f.unused, f.setting) == (-1, -1, "") and "no blocks" in f.advice


def test_memory_of_the_host_has_no_headroom() -> None:
    table = S.MEMORY.frame({"time_ns": [1], "device_type": [0], "device_id": [-1], "bytes": [5], "total_allocated": [5], "address": [1]})
    h = of(Capture(Facts("kineto", "x", 0), {"memory": table}))
    assert h.left.bytes is None and h.base.why == H.HEADROOM_OF_THE_HOST and h.max_allocated.bytes == 5
