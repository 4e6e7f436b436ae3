"""B and E events, as other tools write them, in a bare list."""

from __future__ import annotations

import json
from pathlib import Path

from tb_sol_plugin.model.capture import Capture
from tests.support.captures import report
from tests.support.check_capture import check_capture


def put(folder: Path, events: list[dict[str, object]]) -> Capture:
    path = folder / "w.1.pt.trace.json"
    path.write_text(json.dumps(events))
    return check_capture(path, folder / "cache")


def test_of_two_with_one_start_and_end_the_first_begun_is_outside(tmp_path: Path) -> None:
    host = {"cat": "cpu_op", "pid": 1, "tid": 2}
    c = put(tmp_path, [
        {"ph": "B", "name": "outer", "ts": 0, **host}, {"ph": "B", "name": "inner", "ts": 0, **host},
        {"ph": "E", "ts": 5, **host}, {"ph": "E", "ts": 5, **host},
    ])  # fmt: skip
    assert list(zip(c.host["name"].astype(str), c.host["parent"], strict=True)) == [("outer", -1), ("inner", 0)]


def test_begin_and_end_events_of_a_device_are_device_work(tmp_path: Path) -> None:
    # GIVEN a kernel of 6 µs on (device 1, "stream 7") and a copy of 2 µs on (1, 9) that overlaps its last µs
    c = put(tmp_path, [
        {"ph": "B", "name": "k", "cat": "kernel", "pid": 1, "tid": "stream 7", "ts": 3}, {"ph": "E", "pid": 1, "tid": "stream 7", "ts": 9},
        {"ph": "B", "name": "Memcpy DtoH (Device -> Pinned)", "cat": "gpu_memcpy", "pid": 1, "tid": 9, "ts": 8},
        {"ph": "E", "pid": 1, "tid": 9, "ts": 10},
    ])  # fmt: skip
    # THEN it stands in the device table, and busy is 6 µs of computation and 1 of exposed copy
    assert len(c.host) == 0 and list(zip(c.device["device"], c.device["stream"], strict=True)) == [(1, 7), (1, 9)]
    whole = report(c, "gpu_breakdown").table("devices").iloc[0]
    assert (whole["busy_ns"], whole["computation_ns"], whole["exposed_memcpy_ns"]) == (7_000, 6_000, 1_000)
