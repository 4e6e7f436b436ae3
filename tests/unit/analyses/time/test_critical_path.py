"""The page of the critical path, against a recording worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin.ingest import read
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import TimelineSection
from tests.support.captures import report
from tests.support.trace_builder import TraceBuilder

US = 1_000


def plain(text: str) -> str:
    """A text with plain spaces before its units."""
    return text.replace("\u202f", " ")


@pytest.fixture(scope="module")
def two_steps(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """Two steps of 200 µs. Each: 40 of aten::mm on the host, a launch of 5, a kernel of 100, a wait that returns after 1, 49 of aten::add,
    and 5 after it. A copy of 20 on another stream is hidden behind the kernel."""
    t = TraceBuilder()
    for step in (0, 1):
        at = 200 * US * step
        t.step(step + 1, at, 200 * US)
        t.op("aten::mm", at, 45 * US)
        t.launch("gemm_kernel", at=at + 40 * US, start=at + 45 * US, duration=100 * US, call_duration=2 * US)
        t.copy("HtoD", at + 50 * US, 20 * US, src="Pinned", dst="Device", call=(at + 43 * US, US), stream=9)
        t.call("cudaStreamSynchronize", at + 50 * US, 96 * US)
        t.op("aten::add", at + 146 * US, 49 * US)
    return read(str(t.write(tmp_path_factory.mktemp("critical") / "w.pt.trace.json")))


def test_parts_and_classes_are_those_of_the_step(two_steps: Capture) -> None:
    # GIVEN the steps above WHEN their path is asked for THEN host 40 + 49 + 5, launch 5, kernel 100 and the return of the wait add up to it
    answer = report(two_steps, "critical_path")
    facts = answer.facts
    expected = {"host_ns": 94_000, "latency_ns": 5_000, "kernel_ns": 100_000, "wait_ns": 1_000}
    assert {name: facts[name] for name in expected} == expected
    assert (facts["duration_ns"], facts["path_ns"], facts["steps"], facts["grade"], facts["dropped_edges"]) == (200_000, 200_000, 2, "good", 0)
    assert facts["blind_error"] == 0.005  # launches take 5 µs of the kernel and 7 of the copy: their median is 1 off
    classes = dict(zip(answer.table("classes")["class"], answer.table("classes")["time_ns"], strict=True))
    assert classes == {
        "Operators on the host": 89_000, "Other host code": 5_000, "Launch latency": 5_000, "Matrix kernels": 100_000,
        "Return of a synchronizing call": 1_000,
    }  # fmt: skip
    assert plain(answer.headline).startswith(
        "A step of 200.0 µs is bound by **the GPU, 50.0 %** of its critical path: kernels 50.0 %, host code 47.0 %"
    )
    steps = answer.table("steps")
    assert steps["step"].tolist() == [1, 2] and steps["duration_ns"].tolist() == [200_000, 200_000]
    segments = answer.table("segments")
    assert int(segments["duration_ns"].sum()) == 400_000 and segments["order"].tolist() == list(range(1, len(segments) + 1))
    shown = answer.section("stretch")
    assert isinstance(shown, TimelineSection) and [(s, e) for s, e, _ in shown.highlight] == [(200_000, 240_000), (346_000, 400_000)]


def test_items_say_what_is_saved(two_steps: Capture) -> None:
    # GIVEN the kernel on the path and a copy behind it WHEN items are replayed THEN half of the kernel saves half of it, and the copy nothing
    items = report(two_steps, "critical_path").table("items").set_index("name")
    kernel = items.loc["gemm_kernel"]
    assert kernel[["time_ns", "total_ns", "share_of_total", "saved_half_ns"]].tolist() == [100_000, 100_000, 1.0, 50_000]
    # at 0 the host holds the step: it comes to the wait at 50, which costs 2 by itself, in place of 146; the copy is of another stream
    assert kernel["saved_zero_ns"] == 94_000
    assert "Memcpy HtoD (Pinned -> Device)" not in items.index and items.loc["aten::add"]["saved_zero_ns"] == 49_000


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("operator", {"aten::mm": 140_000, "aten::add": 49_000, "(no operator)": 5_000}),
        ("phase", {"ProfilerStep#1": 97_000, "ProfilerStep#2": 97_000}),
        ("thread", {"thread 4242": 94_000, "device 0, stream 7": 100_000}),
        ("class", {"Matrix kernels": 100_000, "Operators on the host": 89_000}),
    ],
)
def test_items_by(two_steps: Capture, by: str, expected: dict[str, int]) -> None:
    items = report(two_steps, "critical_path", by=by).table("items")
    found = dict(zip(items["name"], items["time_ns"], strict=True))
    assert {name: found.get(name) for name in expected} == expected and int(items["time_ns"].sum()) == 200_000


def test_one_step_alone(two_steps: Capture) -> None:
    answer = report(two_steps, "critical_path", step="2")
    assert answer.facts["steps"] == 1 and answer.facts["duration_ns"] == 200_000
    assert "steps" not in [s.id for s in answer.sections]


def test_a_recording_of_the_host_alone(tmp_path: Path) -> None:
    # GIVEN no device THEN the path is host code, and nothing of a device is said
    t = TraceBuilder(device="")
    t.op("aten::mm", 0, 60 * US)
    t.op("aten::add", 70 * US, 30 * US)
    answer = report(read(str(t.write(tmp_path / "w.pt.trace.json"))), "critical_path")
    assert answer.facts["host_ns"] == 100 * US and "kernel_ns" not in answer.facts
    assert plain(answer.headline).startswith("The recording of 100.0 µs is bound by **the host, 100.0 %**")


def test_a_recording_of_the_device_alone(tmp_path: Path) -> None:
    # GIVEN kernels without any call THEN the stream holds them; nothing is known of what came before the first
    t = TraceBuilder()
    t.kernel("first", 10 * US, 20 * US)
    t.kernel("second", 40 * US, 20 * US)
    answer = report(read(str(t.write(tmp_path / "w.pt.trace.json"))), "critical_path")
    assert answer.facts["kernel_ns"] == 40 * US and answer.facts["path_ns"] == 50 * US
