"""Which memory and which source is meant; numbers at a glance; windows as readers write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.devices.spec import DeviceProps
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.memory import sources as W
from tb_sol_plugin.metrics.memory.sources import chosen_memory, is_host, memories, number_of
from tb_sol_plugin.metrics.memory.summary import capacity, summary
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts

GB = 10**9


def events(*rows: tuple[int, int, int, int, int]) -> dict[str, object]:
    """(device type, device, time, bytes, total) per memory event."""
    kind, device, time, size, total = zip(*rows, strict=True)
    return {
        "time_ns": time, "device_type": kind, "device_id": device, "address": range(1, len(rows) + 1), "bytes": size,
        "total_allocated": total, "total_reserved": [t if k else 0 for t, k in zip(total, kind, strict=True)],
    }  # fmt: skip


def recording(**more: object) -> Capture:
    """CUDA 0 peaks at 10 B, CUDA 1 at 30 B, the host at 90 B; records of device 1 and a timeline of cuda:1 too."""
    memory = S.MEMORY.frame(events((1, 0, 1, 10, 10), (1, 1, 2, 30, 30), (0, -1, 3, 90, 90)))
    records = S.MEMORY_RECORDS.frame({
        "time_ns": [5], "device": [1], "allocated": [20], "reserved": [25], "max_allocated": [28], "total": [80 * GB], "since": ["process"],
    })  # fmt: skip
    timeline = S.MEMORY_TIMELINE.frame({"time_ns": [1], "device": ["cuda:1"], "category": ["parameter"], "bytes": [7]})
    facts = Facts("kineto", "x", 0, devices=(DeviceProps(0, "NVIDIA A100-SXM4-80GB", 85 * GB), DeviceProps(1, "other", 40 * GB)))
    return Capture(facts, {"memory": memory, "memory_records": records, "memory_timeline": timeline, **more})  # type: ignore[dict-item]


def test_sources_of_one_memory_stand_together() -> None:
    # GIVEN three sources of device 1, two names for it WHEN listed THEN they are one memory; the host is last though it holds most
    found = memories(recording())
    assert [(m.label, m.number, m.host) for m in found] == [("CUDA 1", 1, False), ("CUDA 0", 0, False), ("CPU", -1, True)]
    assert [c.source for c in found[0].curves] == ["events", "timeline", "recorder"]


@pytest.mark.parametrize(
    ("device", "source", "label", "of"),
    [
        ("", "auto", "CUDA 1", "events"), ("CUDA 0", "auto", "CUDA 0", "events"), ("cuda:1", "auto", "CUDA 1", "events"),
        ("device 1", "recorder", "CUDA 1", "recorder"), ("1", "timeline", "CUDA 1", "timeline"), ("cpu", "auto", "CPU", "events"),
        ("", "timeline", "CUDA 1", "timeline"),
    ],
)  # fmt: skip
def test_a_memory_is_found_by_any_of_its_names(device: str, source: str, label: str, of: str) -> None:
    memory, curve = chosen_memory(recording(), device, source)  # type: ignore[arg-type]
    assert (memory.label, curve.source) == (label, of)


def test_an_unknown_memory_or_source_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadQuery) as caught:
        chosen_memory(recording(), "CUDA 9")
    assert caught.value.field == "device" and "CUDA 1, CUDA 0, CPU" in caught.value.hint
    with pytest.raises(BadQuery) as caught:
        chosen_memory(recording(), "CUDA 1", "snapshot")
    assert caught.value.field == "source" and "events, timeline, recorder" in caught.value.hint


def test_a_timeline_without_a_name_belongs_to_the_only_device() -> None:
    # GIVEN a timeline whose file names no device WHEN one device is recorded beside it THEN it is that one's; beside two it stands alone
    timeline = S.MEMORY_TIMELINE.frame({"time_ns": [1], "device": [""], "category": ["parameter"], "bytes": [7]})
    one = Capture(Facts("kineto", "x", 0), {"memory": S.MEMORY.frame(events((1, 0, 1, 10, 10))), "memory_timeline": timeline})
    assert [[c.source for c in m.curves] for m in memories(one)] == [["events", "timeline"]]
    two = events((1, 0, 1, 10, 10), (1, 1, 2, 30, 30))
    three = memories(Capture(Facts("kineto", "x", 0), {"memory": S.MEMORY.frame(two), "memory_timeline": timeline}))
    assert [m.label for m in three] == ["CUDA 1", "CUDA 0", "the device"]


def test_a_source_with_levels_is_chosen_before_one_with_changes_only() -> None:
    # GIVEN events without totals, and records with levels, of one device WHEN a source is chosen for the reader THEN it is the levels
    memory = S.MEMORY.frame({"time_ns": [1], "device_type": [1], "device_id": [0], "bytes": [10]})
    records = S.MEMORY_RECORDS.frame({"time_ns": [5], "device": [0], "allocated": [20], "max_allocated": [20], "since": ["process"]})
    _, curve = chosen_memory(Capture(Facts("kineto", "x", 0), {"memory": memory, "memory_records": records}))
    assert curve.source == "recorder"


def test_the_number_of_a_device_is_read_from_its_name() -> None:
    assert [number_of(n) for n in ("CUDA 12", "cuda:3", "device 0", "CPU", "")] == [12, 3, 0, -1, -1]
    assert [is_host(n) for n in ("CPU", "cpu:0", "CUDA 0", "")] == [True, True, False, False]


def test_the_memory_of_a_device_is_that_of_the_program_then_of_the_trace_then_of_its_limits() -> None:
    c = recording()
    # GIVEN records of device 1 (80 GB) and properties of both WHEN asked THEN records go first, the host has none
    assert capacity(c, "CUDA 1").bytes == 80 * GB and not capacity(c, "CUDA 1").estimated
    assert capacity(c, "CUDA 0").bytes == 85 * GB and capacity(c, "CPU").bytes is None and "host" in capacity(c, "CPU").why
    # AND limits that a reader chose go before all: an H100 of the table has 80 GiB
    assert capacity(c, "CUDA 0", "h100_sxm").bytes == 80 << 30 and "chosen" in capacity(c, "CUDA 0", "h100_sxm").why
    assert capacity(Capture(Facts("kineto", "x", 0), {}), "CUDA 0").bytes is None


def test_the_summary_of_a_memory_by_hand() -> None:
    # GIVEN CUDA 1, 30 B at most, reserved 30 B of 80 GB WHEN summed up THEN nothing beside is held, and the rest is left
    found = summary(recording())
    assert found is not None and (found.device, found.peak, found.before, found.fragmentation) == ("CUDA 1", 30, 0, 0)
    assert found.left == 80 * GB - 30 and summary(Capture(Facts("kineto", "x", 0), {})) is None


# -- windows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("12.5ms-40ms", (12_500_000, 40_000_000)), ("12.5-40ms", (12_500_000, 40_000_000)), ("1000-2000", (1_000, 2_000)),
        ("2.1us-3.2us", (2_100, 3_200)), ("-3ms-9ms", (-3_000_000, 9_000_000)), ("1s-2s", (10**9, 2 * 10**9)),
        ("1 ms – 2 ms", (10**6, 2 * 10**6)), ("46.527053ms-46.527059ms", (46_527_053, 46_527_059)),
    ],
)  # fmt: skip
def test_windows_of_time_are_read_in_every_unit(text: str, ns: tuple[int, int]) -> None:
    assert W.span(text) == ns


@pytest.mark.parametrize("text", ["5", "5ms", "a-b", "1e3-2e3", "5ms-5ms", "9-3", "1h-2h", "1-2-3", "99999999999999s-999999999999999s"])
def test_a_text_that_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(BadQuery) as caught:
        W.span(text)
    assert caught.value.field == "window" and caught.value.hint


@given(st.integers(0, 10**15), st.integers(1, 10**15), st.sampled_from([("ns", 0), ("us", 3), ("ms", 6), ("s", 9)]))
def test_a_window_in_any_unit_is_exact_to_the_nanosecond(start: int, length: int, unit: tuple[str, int]) -> None:
    # GIVEN two moments in ns WHEN written out in a unit THEN they are read back exactly
    name, digits = unit

    def said(ns: int) -> str:
        whole, part = divmod(ns, 10**digits)
        return f"{whole}.{part:0{digits}d}{name}" if digits else f"{ns}{name}"

    assert W.span(f"{said(start)}-{said(start + length)}") == (start, start + length)


def test_moments_are_read_in_every_unit() -> None:
    assert (W.moment(""), W.moment("7us"), W.moment("12"), W.moment("-1ms")) == (None, 7_000, 12, -1_000_000)
    with pytest.raises(BadQuery):
        W.moment("later")
