"""Traces of Proton: streams by lane, kernels at the scope of their call stack; traces of cycles are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.errors import BadInput, NotATrace
from tb_sol_plugin.ingest import classify
from tb_sol_plugin.model import schemas as S
from tests.support.check_capture import check_capture

Event = dict[str, object]


def kernel(name: str, ts: float, dur: float, lane: int, stack: list[str], **more: object) -> Event:
    return {"name": name, "cat": "kernel", "ph": "X", "ts": ts, "dur": dur, "tid": lane, "args": {"call_stack": [*stack, name]}, **more}


def scope(name: str, ts: float, dur: float, stack: list[str]) -> Event:
    return {"name": name, "cat": "scope", "ph": "X", "ts": ts, "dur": dur, "pid": 0, "tid": 1, "args": {"call_stack": [*stack, name]}}


def flow(number: int, at: float, lane: int, kernel_at: float) -> list[Event]:
    both = {"name": "launch->kernel", "cat": "flow", "pid": 0, "id": number, "bp": "e"}
    return [{**both, "ph": "s", "tid": 1, "ts": at}, {**both, "ph": "f", "tid": lane, "ts": kernel_at}]


def write(path: Path, *traces: list[Event]) -> Path:
    path.write_text("\n".join(json.dumps({"displayTimeUnit": "us", "traceEvents": t}) for t in traces) + "\n", encoding="utf-8")
    return path


LANES = [{"ph": "M", "pid": 0, "tid": 100, "name": "thread_name", "args": {"name": "GPU Stream 7"}}]
STEP = ["ROOT", "step"]
NEW: list[Event] = [
    *LANES,  # type: ignore[list-item]
    scope("step", 0, 100, ["ROOT"]),
    scope("mlp", 10, 20, STEP),
    scope("mlp", 50, 20, STEP),
    *flow(4, 50, 100, 70),
    kernel("first", 20, 10, 100, [*STEP, "mlp"], pid=0),
    kernel("second", 70, 10, 100, [*STEP, "mlp"], pid=0),
    kernel("third", 90, 5, 100, STEP, pid=0),
]


def test_kernels_belong_to_the_scope_that_launched_them(tmp_path: Path) -> None:
    # GIVEN two calls of one scope, a flow from the second, and a kernel of the scope around them WHEN read
    c = ingest.read(str(write(tmp_path / "t.chrome_trace", NEW)))
    # THEN the flow decides, else the last scope of that call stack before the kernel
    host, device = c.host, c.device
    where = host["name"].astype(str) + " " + host["start_ns"].astype(str)
    assert where.iloc[device["annotation"].to_numpy()].tolist() == ["mlp 10000", "mlp 50000", "step 0"]
    assert device["stream"].tolist() == [7, 7, 7] and (device["device"] == -1).all(), "the lane names the stream; no event names a device"
    assert (device["link"] == S.BY_CORRELATION).all() and device["duration_ns"].tolist() == [10_000, 10_000, 5_000]
    assert c.facts.source == "kineto" and c.facts.total_events == len(NEW) and c.facts.metadata["profiler"] == "proton"
    # AND the phases hold the kernels' time
    rows = c.analyze("phases").table("phases").set_index("path")["device_sum_ns"]  # type: ignore[union-attr]
    assert rows["step"] == 25_000 and rows["step/mlp"] == 20_000


def test_a_launch_is_not_given_to_a_scope_that_begins_with_it(tmp_path: Path) -> None:
    # GIVEN a scope inside that begins at the very moment of the outer one WHEN the outer one launches THEN the kernel is the outer one's
    events = [scope("outer", 0, 100, ["ROOT"]), scope("inner", 0, 40, ["ROOT", "outer"]), kernel("k", 60, 5, 9, ["ROOT", "outer"], pid=0)]
    c = ingest.read(str(write(tmp_path / "t.chrome_trace", events)))
    assert c.host["name"].iloc[c.device["annotation"].to_numpy()].tolist() == ["outer"]


def test_older_traces_hold_one_object_per_stream(tmp_path: Path) -> None:
    # GIVEN one object per stream, one after the other, without scopes WHEN read THEN all kernels are there, without a launch
    first = [kernel("a", 0, 10.5, 7, ["ROOT", "f"]), kernel("b", 20, 5, 7, ["ROOT", "f"])]
    c = ingest.read(str(write(tmp_path / "t.chrome_trace", first, [kernel("c", 3, 2, 13, ["ROOT"])])))
    assert c.device["name"].tolist() == ["a", "c", "b"] and c.device["stream"].tolist() == [7, 13, 7]
    assert (c.device["link"] == S.NO_RECORD).all() and any("no scopes" in w for w in c.facts.warnings)


@pytest.mark.parametrize("events", [NEW, [kernel("a", 0, 10, 7, ["ROOT"])], [scope("alone", 0, 5, ["ROOT"])]])
def test_every_invariant_holds_for_a_proton_trace(tmp_path: Path, events: list[Event]) -> None:
    check_capture(write(tmp_path / "t.chrome_trace", events), tmp_path / "cache")


def test_cycles_inside_of_kernels_are_refused_with_the_reason(tmp_path: Path) -> None:
    # GIVEN a trace of warps, whose times are cycles WHEN opened THEN it is recognized and not opened
    args = {"Finalization Time (ns)": 100, "Frequency (MHz)": 1000.0, "call_stack": ["ROOT"]}
    events: list[Event] = [{"name": "load", "cat": "k", "ph": "X", "pid": "k Core1 CTA2", "tid": "warp 0", "ts": 0.0, "dur": 0.1, "args": args}]
    path = write(tmp_path / "t.chrome_trace", events)
    assert classify(path.read_bytes(), path.name).kind == "proton_cycles"
    with pytest.raises(NotATrace, match="inside of kernels") as found:
        ingest.read(str(path))
    assert "Perfetto" in found.value.hint


def test_a_cut_trace_has_a_health_notice(tmp_path: Path) -> None:
    path = write(tmp_path / "t.chrome_trace", NEW)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(BadInput, match="ends or breaks") as found:
        ingest.read(str(path))
    assert found.value.hint and found.value.file == "t.chrome_trace"


def test_odd_events_do_not_hide_the_others(tmp_path: Path) -> None:
    # GIVEN events with stacks, lanes, times and ids of wrong kinds WHEN read THEN the good kernel stays
    odd: list[Event] = [
        kernel("k", 5, 5, 100, STEP, pid=0),
        {"ph": "X", "cat": "kernel", "name": "x", "ts": "a", "dur": 1, "tid": [1], "args": {"call_stack": 7}},
        {"ph": "X", "cat": "scope", "name": "s", "ts": None, "dur": "b", "tid": {}, "args": []},
        {"ph": "s", "name": "launch->kernel", "id": [1], "tid": 1, "ts": 1},
        {"ph": "M", "name": "thread_name", "tid": {}, "args": {"name": "GPU Stream 9"}},
    ]
    c = ingest.read(str(write(tmp_path / "t.chrome_trace", odd)))
    assert "k" in c.device["name"].tolist()
