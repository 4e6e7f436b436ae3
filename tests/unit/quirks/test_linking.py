"""Flows, threads and steps of recorders whose files were not at hand: links and steps worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin.ingest import read
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tests.support.captures import report
from tests.support.check_capture import check_capture
from tests.support.trace_builder import Json, TraceBuilder


def put(t: TraceBuilder, folder: Path) -> Capture:
    return check_capture(t.write(folder / "w.1.pt.trace.json"), folder / "cache")


def flow(t: TraceBuilder, category: str, own: Json, start: tuple[int, int], end: tuple[int, int], *, pid: int | None = None) -> None:
    """Both halves of a flow: (thread, time) of the start on the host, of the end on the host or, with `pid`, on a device."""
    t.add({"ph": "s", "id": own, "pid": t.pid, "tid": start[0], "ts": t.ts(start[1]), "cat": category, "name": category})
    where = t.pid if pid is None else pid
    t.add({"ph": "f", "bp": "e", "id": own, "pid": where, "tid": end[0], "ts": t.ts(end[1]), "cat": category, "name": category})


def pairs(c: Capture) -> list[tuple[str, str]]:
    """(forward, backward) names of all links."""
    names, links = c.host["name"].astype(str).to_numpy(), c.tables["backward"]
    return sorted((names[f], names[b]) for f, b in zip(links["forward"], links["backward"], strict=True))


@pytest.mark.parametrize("style", ["launch-{}", "0x{}f", "{}"])
def test_flows_with_text_as_id(tmp_path: Path, style: str) -> None:
    # GIVEN three kernels without a correlation, each at the end of a flow whose id is a text
    t = TraceBuilder()
    for i in range(3):
        t.op(f"op{i}", 1_000 * i, 500)
        t.call("cudaLaunchKernel", 1_000 * i + 100, 10, correlation=0)
        t.kernel(f"op{i}", 1_000 * i + 300, 20)
        flow(t, "ac2g", style.format(i + 1), (t.thread, 1_000 * i + 100), (7, 1_000 * i + 300), pid=0)
    c = put(t, tmp_path)
    # WHEN linked THEN each kernel belongs to the operator of its own flow
    assert c.device["link"].tolist() == [S.BY_FLOW] * 3
    assert c.host["name"].astype(str).to_numpy()[c.device["operator"]].tolist() == ["op0", "op1", "op2"]


def test_a_flow_without_id_links_nothing(tmp_path: Path) -> None:
    # GIVEN two kernels without correlation and flows without id
    t = TraceBuilder()
    for i in range(2):
        t.call("cudaLaunchKernel", 1_000 * i, 10, correlation=0)
        t.kernel("k", 1_000 * i + 300, 20)
        flow(t, "ac2g", None, (t.thread, 1_000 * i), (7, 1_000 * i + 300), pid=0)
    # WHEN linked THEN nothing is
    assert put(t, tmp_path).device["link"].tolist() == [S.NO_RECORD] * 2


def test_a_flow_of_another_event_at_the_same_moment(tmp_path: Path) -> None:
    # GIVEN a kernel with correlation 9 and its flow 9, and a copy without correlation that starts at the same ns
    t = TraceBuilder()
    t.call("cudaLaunchKernel", 0, 10, correlation=9, flow=True)
    t.kernel("k", 300, 20, correlation=9, flow=True)
    t.copy("DtoD", 300, 50, bytes=8, stream=8, correlation=0)
    c = put(t, tmp_path)
    # WHEN linked THEN the copy has no launch record; the flow is the kernel's
    assert dict(zip(c.device["name"].astype(str), c.device["link"], strict=True)) == {
        "k": S.BY_CORRELATION, "Memcpy DtoD (Device -> Device)": S.NO_RECORD,
    }  # fmt: skip


def test_ids_of_flows_used_again_in_every_step(tmp_path: Path) -> None:
    # GIVEN autograd flows with ids 1 and 2 in each of three steps, and launch flows with the same ids
    t = TraceBuilder()
    for step in range(3):
        for i in range(2):
            at = 100_000 * step + 1_000 * i
            t.op(f"forward{step}{i}", at, 500)
            t.op(f"backward{step}{i}", at + 50_000, 500, thread=5)
            flow(t, "fwdbwd", i + 1, (t.thread, at), (5, at + 50_000))
            flow(t, "ac2g", i + 1, (t.thread, at), (7, at + 50_000), pid=0)
    # WHEN linked THEN each backward has the forward of its own step
    assert pairs(put(t, tmp_path)) == [(f"forward{s}{i}", f"backward{s}{i}") for s in range(3) for i in range(2)]


def test_flows_as_many_as_operators_with_text_ids_are_linear(tmp_path: Path) -> None:
    # GIVEN 5,000 autograd flows with texts as ids WHEN linked THEN there are 5,000 links, not 25,000,000
    t = TraceBuilder()
    for i in range(5_000):
        t.op("forward", 1_000 * i, 500)
        t.op("backward", 10**8 + 1_000 * i, 500, thread=5)
        flow(t, "fwdbwd", f"a{i}", (t.thread, 1_000 * i), (5, 10**8 + 1_000 * i))
    assert len(read(str(t.write(tmp_path / "w.1.pt.trace.json"))).tables["backward"]) == 5_000


def test_sequence_numbers_of_replicas_run_on_threads(tmp_path: Path) -> None:
    # GIVEN DataParallel: two threads run the same model, each counts its sequence numbers from 0, no flows
    t = TraceBuilder()
    for number, (forward, backward) in enumerate(((11, 21), (12, 22)), start=1):
        for i in range(4):
            t.op(f"forward{number}{i}", 1_000 * i + 10 * number, 300, thread=forward, sequence=i)
            t.op(f"backward{number}{i}", 50_000 - 1_000 * i + 10 * number, 300, thread=backward, sequence=i, forward_thread=number)
    # WHEN linked THEN each replica's backward is the backward of its own forward
    assert pairs(put(t, tmp_path)) == [(f"forward{n}{i}", f"backward{n}{i}") for n in (1, 2) for i in range(4)]


def test_backward_on_the_thread_of_forward(tmp_path: Path) -> None:
    # GIVEN a CPU training step: everything on one thread, nested operators repeat the number of the outer one
    t = TraceBuilder(device="")
    t.op("aten::linear", 0, 1_000, sequence=3)
    t.op("aten::addmm", 100, 800, sequence=3)
    t.op("autograd::engine::evaluate_function: AddmmBackward0", 5_000, 2_000, sequence=3, forward_thread=1)
    t.op("AddmmBackward0", 5_100, 1_800, sequence=3, forward_thread=1)
    t.op("aten::mm", 5_200, 700)
    c = put(t, tmp_path)
    # WHEN linked THEN the innermost forward operator goes to the outermost backward one
    assert pairs(c) == [("aten::addmm", "autograd::engine::evaluate_function: AddmmBackward0")]


def test_steps_whose_work_outlasts_the_next_step(tmp_path: Path) -> None:
    # GIVEN three steps of 1 µs; work of step 0 runs to 5.5 µs, that of step 1 to 1.3, that of step 2 to 8.2
    t = TraceBuilder()
    for n, (start, duration) in enumerate(((500, 5_000), (1_200, 100), (2_200, 6_000))):
        t.step(n, 1_000 * n, 1_000)
        t.launch("k", at=1_000 * n + 10, start=start, duration=duration, stream=7 + n)
    steps = report(put(t, tmp_path), "steps").table("steps")
    # WHEN bounded by device work THEN no moment belongs to two steps: [0, 5.5], [5.5, 5.5], [5.5, 8.2]
    assert steps["start_ns"].tolist() == [0, 5_500, 5_500]
    assert steps["duration_ns"].tolist() == [5_500, 0, 2_700]
    assert steps["kernel_ns"].tolist() == [5_000, 0, 2_700]


def test_steps_within_a_step(tmp_path: Path) -> None:
    # GIVEN step 0 over 100 µs, steps 1 and 2 of 10 µs inside it, and launches before, in, between and after those
    t = TraceBuilder()
    for number, start, duration in ((0, 0, 100_000), (1, 10_000, 10_000), (2, 30_000, 10_000)):
        t.step(number, start, duration)
    for at in (5_000, 15_000, 25_000, 35_000, 50_000):
        t.launch("k", at=at, start=at + 500, duration=1_000)
    c = put(t, tmp_path)
    # WHEN assigned THEN each kernel belongs to the innermost step that holds its launch, and step time is counted once
    assert c.device["step"].tolist() == [0, 1, 0, 2, 0]
    assert int(report(c, "steps").table("steps")["duration_ns"].sum()) == 100_000


def test_steps_marked_on_two_threads_and_out_of_order_in_the_file(tmp_path: Path) -> None:
    # GIVEN ProfilerStep#2 before #1 in the file, each also marked, shorter, on another thread
    t = TraceBuilder()
    for n in (2, 1):
        t.step(n, 10_000 * n, 9_000)
        t.annotation(f"ProfilerStep#{n}", 10_000 * n + 100, 8_000, thread=77)
        t.launch("k", at=10_000 * n + 500, start=10_000 * n + 1_000, duration=100 * n)
    steps = report(put(t, tmp_path), "steps").table("steps")
    # WHEN read THEN there are two steps, in order, with the longer bounds
    assert steps["step"].astype(str).tolist() == ["1", "2"]
    assert steps["duration_ns"].tolist() == [9_000, 9_000] and steps["kernel_ns"].tolist() == [100, 200]
