"""The first step of real recordings that begin in the middle of a step, against sums over the raw files."""

from __future__ import annotations

import gzip
import json
import re
from statistics import median

import pytest

import tb_sol_plugin as sol
from tests.support.raw_trace import Device, ns, union
from tests.support.recordings import path_of

pytestmark = pytest.mark.real

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
CUT = {
    "hta/negative_queue_length_values_check/rank0.json.gz": 872,
    "hta/trace_diff/test/test.json.gz": 614,
    "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": 509,
}
"""Recording: its device events whose launch was not recorded; all of them come before the work of the first step on their stream."""


@pytest.mark.parametrize("name", CUT)
def test_the_first_step_begins_when_the_work_before_the_recording_ends(name: str) -> None:
    # GIVEN the raw events: calls by correlation, the first ProfilerStep, device work without a call
    events = [e for e in json.loads(gzip.decompress(path_of(name).read_bytes()))["traceEvents"] if e.get("ph") == "X"]
    calls = {e["args"]["correlation"]: ns(e["ts"]) for e in events if str(e.get("cat")).startswith("cuda_") and "correlation" in e["args"]}
    marks = [e for e in events if re.match(r"ProfilerStep#", e["name"]) and e.get("cat") in ("user_annotation", "cpu_op")]
    first = min(marks, key=lambda e: ns(e["ts"]))
    low, high = ns(first["ts"]), ns(first["ts"]) + ns(first["dur"])
    work = [(e["args"]["correlation"], ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])) for e in events if e.get("cat") in DEVICE]
    before = [(start, end) for number, start, end in work if number not in calls]
    own = [end for number, _, end in work if number in calls and low <= calls[number] < high]
    # WHEN the first step lasts from the end of that work to the end of the last work it launched
    length = max([high, *own]) - max([low, *(end for _, end in before)])
    found = sol.open_capture(str(path_of(name))).analyze("steps")
    durations = found.table("steps")["duration_ns"].tolist()
    # THEN the page has the same, and counts what it leaves out
    assert durations[0] == length
    assert (found.facts["before_events"], found.facts["before_ns"]) == (CUT[name], union([Device(start, end, 0, ()) for start, end in before])) and CUT[name] == len(before)
    # AND the first step is as long as the others (it was 1.3 and 1.7 times as long with that work)
    assert len(durations) == 1 or abs(durations[0] / median(durations[1:]) - 1) < 0.02
