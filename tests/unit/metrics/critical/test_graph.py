"""The edges of small recordings made by hand: what holds each moment, and the negative of each rule. Times in µs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.critical.edges import CALL_ORDER, EVIDENCE, INFERRED, KINDS, RECORDED
from tb_sol_plugin.metrics.critical.graph import Graph, graph_of
from tb_sol_plugin.metrics.critical.path import CLASSES, path_of
from tb_sol_plugin.metrics.critical.path import Path as CriticalPath
from tb_sol_plugin.metrics.critical.waits import outstanding_at
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tests.support.trace_builder import TraceBuilder

US = 1_000
ENGINE = 77


class Trace(TraceBuilder):
    """A builder in µs."""

    def runs(self, name: str, at: float, start: float, duration: float, *, stream: int = 7, call: float = 2, **more: object) -> int:
        """A launch at a time, and its kernel."""
        return self.launch(
            name, at=round(at * US), start=round(start * US), duration=round(duration * US), stream=stream,
            call_duration=round(call * US), **more,
        )  # fmt: skip

    def calls(self, name: str, start: float, duration: float, **more: int) -> int:
        return self.call(name, round(start * US), round(duration * US), **more)

    def works(self, name: str, start: float, duration: float, **more: int) -> int:
        return self.op(name, round(start * US), round(duration * US), **more)


def opened(trace: TraceBuilder, folder: Path) -> tuple[Capture, Graph]:
    """The recording and its graph, which keeps every promise."""
    capture = read(str(trace.write(folder / "w.pt.trace.json")))
    graph = graph_of(capture)
    assert graph.replay().tolist() == graph.time.tolist() and not graph.cut
    return capture, graph


def holds(capture: Capture, graph: Graph, name: str, *, end: bool = False) -> tuple[str, str, str, bool]:
    """What holds the start (or end) of an event: (kind of edge, evidence, event that its other end is of, whether of its end)."""
    device = capture.device["name"].astype(str)
    if (device == name).any():
        node = int(graph.nodes.device_start(np.flatnonzero(device == name)[:1])[0]) + end
    else:
        row = int(np.flatnonzero(capture.host["name"].astype(str) == name)[0])
        node = int((graph.nodes.end if end else graph.nodes.start)[row])
    edge = int(graph.binding[node])
    if edge < 0:
        return "", "", "", False
    source = int(graph.edges.source[edge])
    hosts = graph.nodes.hosts
    other = (
        str(capture.device["name"].iloc[int(graph.nodes.device[(source - hosts) // 2])])
        if source >= hosts
        else str(capture.host["name"].iloc[int(graph.nodes.row[source])])
    )
    at_end = bool((source - hosts) % 2) if source >= hosts else not bool(graph.nodes.opens[source])
    return KINDS[int(graph.edges.kind[edge])], EVIDENCE[int(graph.edges.evidence[edge])], other, at_end


def classes(path: CriticalPath) -> dict[str, int]:
    return {CLASSES[k]: int(v) for k, v in enumerate(np.bincount(path.kind, path.duration, minlength=len(CLASSES))) if v}


def test_a_launch_holds_work_on_a_dry_stream_and_the_stream_work_that_queues(tmp_path: Path) -> None:
    # GIVEN a launch at 10 that starts at 15, and one at 12 whose kernel starts at 26, right after the first ends at 25
    t = Trace()
    t.runs("first", 10, 15, 10)
    t.runs("second", 13, 26, 10)
    capture, graph = opened(t, tmp_path)
    assert holds(capture, graph, "first") == ("launch", "recorded", "cudaLaunchKernel", False)
    assert holds(capture, graph, "second") == ("stream", "recorded", "first", True)
    path = path_of(capture, scope(capture, Query()))
    # the recording begins with the call: 5 to the start, 10 and 10 in kernels, 1 between
    assert classes(path) == {"launch": 5_000, "kernel_other": 20_000, "kernel_gap": 1_000}


def test_a_kernel_that_starts_before_its_launch_contradicts_the_clock(tmp_path: Path) -> None:
    # GIVEN a kernel that starts before its call does THEN that edge is dropped and counted, and the kernel stays where it is
    t = Trace()
    t.works("aten::mm", 0, 40)
    t.runs("early", 20, 15, 5)
    capture, graph = opened(t, tmp_path)
    assert graph.dropped == {"launch": 1} and holds(capture, graph, "early") == ("", "", "", False)


def test_overlap_on_a_stream_is_an_edge_from_start_to_start(tmp_path: Path) -> None:
    t = Trace()
    t.runs("first", 0, 10, 20)
    t.runs("overlaps", 1, 25, 20)
    capture, graph = opened(t, tmp_path)
    kind, _, other, at_end = holds(capture, graph, "overlaps")
    assert (kind, other, at_end) in {("stream", "first", False), ("launch", "cudaLaunchKernel", False)}
    assert not graph.dropped


def synchronized(t: Trace, name: str = "cudaStreamSynchronize") -> int:
    t.works("aten::mm", 0, 8)
    t.runs("long", 2, 10, 50)
    own = t.calls(name, 20, 41)  # returns at 61, a microsecond after the kernel
    t.works("aten::add", 70, 10)
    return own


@pytest.mark.parametrize(
    ("name", "evidence"), [("cudaStreamSynchronize", INFERRED), ("cudaDeviceSynchronize", RECORDED), ("hipStreamSynchronize", INFERRED),
                           ("cudaFree", INFERRED)],
)  # fmt: skip
def test_a_call_that_waits_is_held_by_what_ended_inside_of_it(name: str, evidence: int, tmp_path: Path) -> None:
    t = Trace()
    synchronized(t, name)
    capture, graph = opened(t, tmp_path)
    assert holds(capture, graph, name, end=True) == ("sync", EVIDENCE[evidence], "long", True)
    path = path_of(capture, scope(capture, Query()))
    assert classes(path)["sync_return"] == US


def test_a_row_of_the_recording_names_the_stream_that_a_call_waited_for(tmp_path: Path) -> None:
    # GIVEN work on two streams that ends inside of a wait for the one that ends first THEN that one holds it, as recorded
    t = Trace()
    own = synchronized(t)
    t.runs("elsewhere", 4, 12, 48.5, stream=9)
    t.sync("Stream Sync", 20 * US, 41 * US, stream=7, correlation=own)
    capture, graph = opened(t, tmp_path)
    assert holds(capture, graph, "cudaStreamSynchronize", end=True) == ("sync", "recorded", "long", True)


@pytest.mark.parametrize("name", ["cudaStreamQuery", "cudaEventQuery", "cudaEventRecord"])
def test_other_calls_do_not_wait(name: str, tmp_path: Path) -> None:
    t = Trace()
    synchronized(t, name)
    capture, graph = opened(t, tmp_path)
    assert holds(capture, graph, name, end=True)[0] == "host"


def test_a_call_does_not_wait_for_what_ended_before_it(tmp_path: Path) -> None:
    t = Trace()
    t.runs("short", 0, 5, 5)
    t.calls("cudaDeviceSynchronize", 20, 30)
    capture, graph = opened(t, tmp_path)
    assert holds(capture, graph, "cudaDeviceSynchronize", end=True)[0] == "host"


def test_a_copy_to_pageable_memory_holds_its_own_call(tmp_path: Path) -> None:
    for dst, kind in (("Pageable", "sync"), ("Pinned", "host")):
        t = Trace()
        t.copy("DtoH", 15 * US, 20 * US, src="Device", dst=dst, call=(10 * US, 30 * US))
        t.works("aten::add", 50, 5)
        capture, graph = opened(t, tmp_path / dst)
        assert holds(capture, graph, "cudaMemcpyAsync", end=True)[0] == kind


def two_streams(t: Trace) -> None:
    """Work on stream 7 until 60, and work on stream 9 that starts at 61 though it was launched at 30."""
    t.runs("produces", 0, 10, 50)
    t.runs("before", 2, 8, 2, stream=9)
    t.calls("cudaEventRecord", 20, 1, correlation=900)
    t.runs("later", 22, 61, 30)


def test_an_event_that_a_row_names_holds_work_of_another_stream(tmp_path: Path) -> None:
    t = Trace()
    two_streams(t)
    wait = t.calls("cudaStreamWaitEvent", 25, 1)
    t.runs("consumes", 30, 61, 10, stream=9)
    row = t.sync("Stream Wait Event", 25 * US, US, stream=9, correlation=wait)
    row["args"] |= {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 900}  # type: ignore[operator]
    capture, graph = opened(t, tmp_path)
    assert holds(capture, graph, "consumes") == ("event", "recorded", "produces", True)


def test_calls_by_their_order_hold_work_of_another_stream(tmp_path: Path) -> None:
    t = Trace()
    two_streams(t)
    t.calls("cudaStreamWaitEvent", 25, 1)
    t.runs("consumes", 30, 61, 10, stream=9)
    capture, graph = opened(t, tmp_path)
    assert holds(capture, graph, "consumes") == ("event", EVIDENCE[CALL_ORDER], "produces", True)


def test_without_such_calls_a_late_start_is_held_by_what_ended_right_before(tmp_path: Path) -> None:
    # GIVEN a start 31 µs after its launch, a microsecond after work of another stream ended; and one 40 µs after any end
    t = Trace()
    two_streams(t)
    t.runs("consumes", 30, 61, 10, stream=9)
    t.runs("lonely", 130, 180, 10, stream=9)
    capture, graph = opened(t, tmp_path)
    assert holds(capture, graph, "consumes") == ("event", EVIDENCE[INFERRED], "produces", True)
    assert holds(capture, graph, "lonely")[0] == "launch"


def test_a_collective_of_its_own_stream_waits_for_computation_launched_before(tmp_path: Path) -> None:
    t = Trace()
    t.runs("backward", 0, 10, 50)
    t.runs("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, 61, 30, stream=20)
    capture, graph = opened(t, tmp_path)
    assert holds(capture, graph, "ncclDevKernel_AllReduce_Sum_f32_RING_LL") == ("event", EVIDENCE[CALL_ORDER], "backward", True)


def backward(t: Trace) -> None:
    """The caller sleeps from 100 to 300 in the backward pass; the engine works from 110 to 290."""
    t.step(1, 0, 400 * US)
    t.works("aten::mm", 10, 90)
    t.works("autograd::engine::evaluate_function: MmBackward0", 110, 180, thread=ENGINE)
    t.works("Optimizer.step", 300, 50)


def test_the_engine_is_woken_by_the_caller_and_wakes_it(tmp_path: Path) -> None:
    t = Trace()
    backward(t)
    capture, graph = opened(t, tmp_path)
    assert holds(capture, graph, "autograd::engine::evaluate_function: MmBackward0") == ("handoff", "inferred", "aten::mm", True)
    kind, evidence, other, at_end = holds(capture, graph, "Optimizer.step")
    assert (kind, evidence, at_end) == ("handoff", "inferred", True) and other.startswith("autograd::engine")
    path = path_of(capture, scope(capture, Query()))
    assert classes(path) == {"host_operator": 90_000 + 180_000 + 50_000, "host_other": 60_000, "handoff": 20_000}


def test_a_frame_that_runs_the_backward_pass_is_a_record_of_the_hand_over(tmp_path: Path) -> None:
    t = Trace()
    backward(t)
    t.frame("<built-in method run_backward of torch._C._EngineBase object at 0x7f>", 100 * US, 199 * US)
    capture, graph = opened(t, tmp_path)
    assert holds(capture, graph, "autograd::engine::evaluate_function: MmBackward0")[:2] == ("handoff", "recorded")


def test_a_caller_that_works_waits_for_nobody(tmp_path: Path) -> None:
    t = Trace()
    backward(t)
    t.works("aten::relu", 100, 199)
    capture, graph = opened(t, tmp_path)
    assert holds(capture, graph, "Optimizer.step")[0] == "host"


def queue(t: Trace, depth: int, slow_us: float, launches: int = 1_100) -> None:
    """Launches of 2 µs each into a device that takes 50 µs for each kernel: from `depth` outstanding on they take `slow_us`."""
    at, free = 0.0, 5.0
    started: list[float] = []
    for i in range(launches):
        waiting = sum(1 for s in started[-depth - 5 :] if s >= at) if i > 900 else 0
        full = waiting >= depth
        call = slow_us if full else 2.0
        start = max(free, at + 3)
        t.runs(f"k{i}", at, start, 50, call=call)
        started.append(start)
        free = start + 50
        at += call + 0.5


def test_a_queue_that_takes_any_number_has_no_such_edges(tmp_path: Path) -> None:
    # GIVEN a slow launch at 1,000 outstanding, and quick ones at far more
    t = Trace()
    queue(t, 1_000, 50, launches=1_010)
    at = 3_000.0
    for i in range(300):
        t.runs(f"more{i}", at + i * 2.5, 60_000 + 50 * i, 50)
    _, graph = opened(t, tmp_path)
    assert not (graph.edges.kind == KINDS.index("queue_full")).any()


def test_commands_outstanding_are_never_negative() -> None:
    # GIVEN commands launched at 0, 10, 20, of which the second seems to start before its launch
    launched, started = np.array([0, 10, 20], np.int64), np.array([15, 5, 30], np.int64)
    assert outstanding_at(launched, started, np.array([0, 1, 11, 16, 25, 31], np.int64)).tolist() == [0, 1, 1, 0, 1, 0]


def test_events_that_do_not_nest_keep_their_times(tmp_path: Path) -> None:
    # GIVEN an operator that ends after the one around it THEN no moment is moved, and it is counted
    t = Trace()
    t.works("aten::outer", 0, 50)
    t.works("aten::late", 40, 20)
    _, graph = opened(t, tmp_path)
    assert graph.nodes.unordered == 1 and sorted(graph.time.tolist()) == [0, 40_000, 50_000, 60_000]


def test_two_processes_have_graphs_of_their_own(tmp_path: Path) -> None:
    t = Trace()
    backward(t)
    t.pid = t.thread = 99
    t.works("aten::other", 0, 5)
    capture, graph = opened(t, tmp_path)
    assert holds(capture, graph, "aten::other") == ("", "", "", False)


def test_many_streams_and_large_ids(tmp_path: Path) -> None:
    # GIVEN work on 200 streams whose ids are as large as numbers get THEN each is a stream of its own
    t = Trace()
    for i in range(200):
        t.runs("k", i * 5, i * 5 + 4, 1, stream=2**62 + i)
    _, graph = opened(t, tmp_path)
    assert len(np.unique(graph.nodes.stream)) == 200 and not (graph.edges.kind == KINDS.index("stream")).any()


def test_a_step_cut_by_the_recording_begins_outside_of_it(tmp_path: Path) -> None:
    # GIVEN kernels launched before the recording began, and a wait for them THEN the path begins with them, and before the first is nothing
    t = Trace()
    t.kernel("earlier", 10 * US, 30 * US, correlation=5)
    t.runs("later", 12, 41, 10)
    t.calls("cudaDeviceSynchronize", 20, 33)
    capture, graph = opened(t, tmp_path)
    assert holds(capture, graph, "earlier") == ("", "", "", False)
    assert holds(capture, graph, "later") == ("stream", "recorded", "earlier", True)
    found = classes(path_of(capture, scope(capture, Query())))
    assert found == {"kernel_other": 40_000, "kernel_gap": 1_000, "sync_return": 2_000}
