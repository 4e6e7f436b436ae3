"""Categories of a trace's memory with a recorder or a timeline beside it: when they are taken, and when they do not fit."""

from __future__ import annotations

import numpy as np
import pytest

from tb_sol_plugin.metrics.memory.allocations import with_categories
from tb_sol_plugin.metrics.memory.attribution import BEFORE, UNKNOWN, attribution
from tb_sol_plugin.metrics.memory.curves import whole
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tests.unit.metrics.memory.test_attribution import bytes_by_name, made

CUDA, HOST = (1, 0), (0, -1)


def beside(device: tuple[int, int], **tables: object) -> Capture:
    """1,000 B before, then 50 B made and 20 B of it freed: outside of every operator, so that what they are for is unknown."""
    c = made([(10, 1, 30, 1_030), (20, 2, 20, 1_050), (30, 2, -20, 1_030)], device)
    return Capture(Facts("kineto", "x", 0), {**c.tables, **tables})  # type: ignore[dict-item]


def records(device: int, size: int, at: int = 25) -> dict[str, object]:
    """A record, 5 ns after the peak where not said otherwise, that found parameters of so many bytes."""
    record = S.MEMORY_RECORDS.frame({
        "tag": ["here"], "time_ns": [at], "device": [device], "allocated": [1_050], "reserved": [2_048], "max_allocated": [1_050],
        "since": ["process"], "phase": np.full(1, -1, np.int32),
    })  # fmt: skip
    part = S.MEMORY_PARTS.frame({
        "record": [0], "category": ["params"], "dtype": ["float32"], "module": [-1], "tensors": [2], "bytes": [size], "view_bytes": [size],
    })  # fmt: skip
    return {"memory_records": record, "memory_parts": part}


def test_parts_of_a_record_replace_the_category_before() -> None:
    # GIVEN a record of 900 B of parameters on the device WHEN asked at the peak THEN they stand for themselves, and the rest is unknown
    c = beside(CUDA, **records(0, 900))
    found = attribution(c, whole(c)[0], "category")
    assert bytes_by_name(found) == {"params": 900, UNKNOWN: 150} and not found.rows["estimated"].any()
    assert "the record 'here' found them" in found.notes[0]


def test_parts_larger_than_the_memory_before_are_ignored() -> None:
    # GIVEN more parameters than were in use WHEN asked THEN the trace's own estimate stands
    c = beside(CUDA, **records(0, 1_051))
    assert bytes_by_name(attribution(c, whole(c)[0], "category")) == {BEFORE: 1_000, UNKNOWN: 50}


def test_memory_of_the_host_from_before_is_in_no_total_and_no_category() -> None:
    # GIVEN the same on the host, whose totals count from the first profiler on WHEN asked THEN a record's parameters are not among them
    c = beside(HOST, **records(-1, 900))
    assert bytes_by_name(attribution(c, whole(c)[0], "category")) == {BEFORE: 1_000, UNKNOWN: 50}


@pytest.mark.parametrize(
    ("device", "name", "wanted"),
    [
        (CUDA, "device 0", {"params": 900, "activations": 40, UNKNOWN: 110}),
        # a host's totals leave out the 900 B that were there before
        (HOST, "cpu", {"activations": 40, UNKNOWN: 1_010}),
    ],
)
def test_a_timeline_of_the_same_rank_replaces_estimated_categories(device: tuple[int, int], name: str, wanted: dict[str, int]) -> None:
    # GIVEN a timeline of 900 B of parameters from the beginning, and 40 B of activations from 10 ns to 30 ns
    table = S.MEMORY_TIMELINE.frame({
        "time_ns": [0, 10, 30], "device": [name] * 3, "category": ["parameter", "activation", "activation"], "bytes": [900, 40, 0],
    })  # fmt: skip
    c = beside(device, memory_timeline=table)
    curve = next(x for x in whole(c) if x.source == "events")
    # WHEN asked at the peak THEN categories are those of the timeline, measured, and add up to what the trace says
    found = attribution(c, curve, "category")
    assert bytes_by_name(found) == wanted and not found.rows["estimated"].any()
    # AND 30 ns in the activations are gone
    assert "activations" not in bytes_by_name(attribution(c, curve, "category", 30))


def test_the_stack_over_time_is_that_of_the_timeline() -> None:
    # GIVEN the same timeline beside the trace of the device WHEN drawn as a stack THEN it is measured, and adds up at every point
    table = S.MEMORY_TIMELINE.frame({
        "time_ns": [0, 10, 30], "device": ["device 0"] * 3, "category": ["parameter", "activation", "activation"], "bytes": [900, 40, 0],
    })  # fmt: skip
    c = beside(CUDA, memory_timeline=table)
    curve = next(x for x in whole(c) if x.source == "events")
    found = with_categories(c, curve)
    assert found.measured and {n: level.tolist() for n, level in found.categories.items()} == {
        "params": [900, 900, 900, 900], "activations": [0, 40, 40, 0], "unknown": [100, 90, 110, 130],
    }  # fmt: skip
    # AND one that holds more than was in use is not taken
    more = table.assign(bytes=[2_000, 40, 0])
    other = beside(CUDA, memory_timeline=more)
    assert not with_categories(other, curve).measured


@pytest.mark.parametrize(
    ("size", "at", "wanted"),
    [
        (900, 0, {"params": [900] * 4, "before": [100] * 4, "unknown": [0, 30, 50, 30]}),
        (1_001, 0, {}),  # more than was there
        (900, 1, {}),  # what a later record found may have come since
    ],
)
def test_what_was_there_before_is_divided_by_the_last_record_until_then(size: int, at: int, wanted: dict[str, list[int]]) -> None:
    # GIVEN 1,000 B when the recording begins, and a record of parameters WHEN drawn as a stack THEN they stand apart where they fit
    c = beside(CUDA, **records(0, size, at))
    curve = next(x for x in whole(c) if x.source == "events")
    found = with_categories(c, curve)
    assert {n: level.tolist() for n, level in found.categories.items()} == wanted and not found.measured
