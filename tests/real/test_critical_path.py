"""The critical path of recordings made by others, against what their makers and the specification say of them."""

from __future__ import annotations

import numpy as np
import pytest

from tb_sol_plugin.metrics.critical import edges as E
from tb_sol_plugin.metrics.critical.graph import graph_of
from tb_sol_plugin.metrics.critical.path import CLASSES, device_classes
from tb_sol_plugin.metrics.time import attribution as at
from tests.support.captures import capture, report
from tests.support.recordings import path_of

SIMPLE_ADD = "hta/critical_path/simple_add/benchmark_result_493459_1694039959_trace.json.gz"
OWL = "tracelens/h100/google_owlv2-large-patch14-ensemble__1016001.json.gz"
CONTROL = "hta/trace_diff/control/control.json.gz"

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        (CONTROL, 149_872), ("hta/trace_diff/test/test.json.gz", 136_646), (OWL, 208_310), ("hta/nccl_parser_config/nccl_data.json.gz", 53_804),
        ("hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", 90_808),
    ],
)  # fmt: skip
def test_every_event_has_two_moments(name: str, nodes: int) -> None:
    assert len(graph_of(capture(path_of(name))).time) == nodes


@pytest.mark.parametrize(
    ("name", "idle", "host_wait"),
    [
        (OWL, 511_528_902, 504_745_140), ("tracelens/b200/eager_trace.json.gz", 72_890_696, 72_470_093), (CONTROL, 76_007_000, 66_571_000),
    ],
)  # fmt: skip
def test_idle_time_of_a_device_by_cause(name: str, idle: int, host_wait: int) -> None:
    # GIVEN values found by a prototype WHEN gaps are explained THEN what waits for the host is its part until the launch and the launch
    facts = report(capture(path_of(name)), "idle").facts
    assert facts["idle_ns"] == idle and int(facts["host_ns"]) + int(facts["launch_ns"]) == host_wait  # type: ignore[arg-type]


def test_example_of_hta() -> None:
    # GIVEN HTA's example of an addition WHEN its graph is built THEN a launch into an idle stream takes the 27 µs that HTA shows, calls that
    # synchronize after all work has ended did not wait, those of streams did, as recorded, and waits between streams are edges
    graph = graph_of(c := capture(path_of(SIMPLE_ADD)))
    edges, held = graph.edges, graph.binding[graph.binding >= 0]
    assert 27_000 in graph.lag[held][edges.kind[held] == E.LAUNCH]
    names = c.host["name"].astype(str).to_numpy()
    late, waits = (graph.binding[graph.nodes.end[np.flatnonzero(names == n)]] for n in ("cudaDeviceSynchronize", "cudaStreamSynchronize"))
    assert (edges.kind[late] == E.HOST).all()
    own = waits[edges.kind[waits] == E.SYNC]
    assert len(own) and (edges.evidence[own] == E.RECORDED).all()
    assert (edges.kind == E.EVENT).any() and (edges.evidence[edges.kind == E.EVENT] == E.RECORDED).all()
    # AND the first relu_ of the second `measure` is nested as HTA shows it: relu_, clamp_min_, the call, and back, in 15, 14, 17, 15, 32 us
    starts = c.host["start_ns"].to_numpy()
    measured = starts[[i for i, n in enumerate(names) if n.endswith("measure|forward]")]][1]
    row = int(np.flatnonzero((names == "aten::relu_") & (starts >= measured))[0])
    inside = np.arange(graph.nodes.start[row], graph.nodes.end[row] + 1)
    assert names[graph.nodes.row[inside[:3]]].tolist() == ["aten::relu_", "aten::clamp_min_", "cudaLaunchKernel"]
    assert np.diff(graph.time[inside]).tolist() == [15_000, 14_000, 17_000, 15_000, 32_000]
    assert (edges.kind[graph.binding[inside[1:]]] == E.HOST).all()
    # AND two kernels of a stream are 7 us apart: the launch holds the later one, so that the stream costs its least and the rest is slack
    gap = np.flatnonzero((edges.kind == E.STREAM) & (graph.time[edges.target] - graph.time[edges.source] == 7_000))
    assert len(gap) and (graph.lag[gap] < 7_000).all() and (edges.kind[graph.binding[edges.target[gap]]] == E.LAUNCH).all()


def test_calls_that_wait_for_events_and_devices_are_held_by_their_work() -> None:
    # GIVEN HTA's recording with rows of synchronization THEN its waits for an event and for the device are edges, as recorded
    graph = graph_of(c := capture(path_of("hta/critical_path/cuda_event_sync/event_sync_trace.json.gz")))
    sync = graph.edges.kind == E.SYNC
    names = c.host["name"].astype(str).to_numpy()[graph.nodes.row[graph.edges.target[sync]]]
    assert {"cudaEventSynchronize", "cudaDeviceSynchronize"} <= set(names.tolist())
    assert (graph.edges.evidence[sync] == E.RECORDED).all()


def test_every_kernel_of_a_graph_launch_has_moments() -> None:
    # GIVEN 434 device events, 421 of them of a graph THEN each has two moments, and the graph's launch leads to the first on each stream
    c = capture(path_of("tracelens/inference/vllm_decode_full/graph_execution.json.gz"))
    graph = graph_of(c)
    assert len(graph.work.start) == 434 and len(graph.time) - graph.nodes.hosts == 868


def test_a_step_whose_launches_are_not_explained_is_graded_poor() -> None:
    answer = report(capture(path_of("hta/trace_diff/test/test.json.gz")), "critical_path", step="1009")
    assert answer.facts["grade"] == "poor" and "not well explained" in answer.notices[0].text


@pytest.mark.parametrize(
    ("name", "rule", "saving", "replayed"),
    [
        # the host holds every step: nothing of the device is worth a step
        ("tracelens/b200/eager_trace.json.gz", "exposed_communication", 2_142_000, 0),
        # a third of the step loads data, and the device waits: faster products wait longer
        ("kineto/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz", "fp32_matrix", 59_656_000, 2_706_000),
        # the device holds the step: all of it is saved
        ("hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", "fp32_kernels", 54_631_000, 54_577_000),
        (OWL, "unfused_attention", 479_149_000, 358_482_000),
    ],
)
def test_savings_of_findings_by_replay(name: str, rule: str, saving: int, replayed: int) -> None:
    row = report(capture(path_of(name)), "findings").table("findings").set_index("rule").loc[rule]
    assert row["removed_ns"] == pytest.approx(saving, rel=1e-3) and row["saving_ns"] == pytest.approx(replayed, rel=1e-3, abs=1_000)
    assert row["basis"] == ("replay" if replayed else "hidden")


def test_a_range_holds_the_backward_pass_of_its_caller() -> None:
    # GIVEN a range on the thread that calls the backward pass, which runs on another one WHEN its kernels take no time THEN these are the ones
    # that the attribution of device work puts into it; five steps of 870 kernels each
    c = capture(path_of("hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"))
    launch = at.launches(c)
    around, _ = at.annotation_around(c, launch.call, launch.time)
    inside = (np.append(c.host["name"].astype(str).to_numpy(), "")[around] == "## backward ##") & (c.device["step"].to_numpy() >= 0)
    inside &= np.char.startswith([CLASSES[k] for k in device_classes(c)], "kernel_")
    facts = report(c, "what_if", change="kernels", inside="## backward ##", scale="0").facts
    assert facts["dependencies"] == int(inside.sum()) > 2_000
    assert facts["naive_ns"] == pytest.approx(int(c.device["duration_ns"].to_numpy()[inside].sum()) / 5, abs=1)
    assert report(c, "what_if", change="kernels", inside="ProfilerStep#103").facts["dependencies"] == 870
