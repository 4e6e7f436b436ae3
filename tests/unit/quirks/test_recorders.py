"""Recordings of other machines and modes: each holds every invariant, and the figures worked out beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin.ingest import read
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import UnavailableReport
from tests.support.captures import report
from tests.support.check_capture import check_capture
from tests.support.trace_builder import TraceBuilder


def put(t: TraceBuilder, folder: Path) -> Capture:
    return check_capture(t.write(folder / "w.1.pt.trace.json"), folder / "cache")


def busy(c: Capture) -> dict[str, int]:
    table = report(c, "gpu_breakdown").table("devices")
    return dict(zip(table["device"].astype(str), table["busy_ns"].astype(int), strict=True))


def test_a_rocm_trace_without_operators_has_linked_kernels(tmp_path: Path) -> None:
    # GIVEN only HIP calls and, on stream 0 of device 2, five kernels of 300 ns and one copy kernel of 100
    t = TraceBuilder(device="AMD Instinct MI300X")
    amd = {"stream": 0, "device": 2, "occupancy": None, "blocks_per_sm": None, "warps_per_sm": None}
    for i in range(5):
        t.launch("Cijk_Ailk", at=1_000 * i, start=1_000 * i + 400, duration=300, api="hipExtModuleLaunchKernel", **amd)
    t.launch("__amd_rocclr_copyBuffer", at=6_000, start=6_100, duration=100, api="hipMemcpyAsync", **amd)
    c = put(t, tmp_path)
    # THEN device 2 is busy 1,600 ns, all linked, the copy is among the copies, and operators say why they are not there
    assert c.facts.vendor == "amd" and busy(c) == {"all": 1_600, "2": 1_600}
    assert (c.device["link"] == S.BY_CORRELATION).all() and c.device["stream"].tolist() == [0] * 6
    assert report(c, "memcpy").table("copies")["time_ns"].tolist() == [100]
    assert isinstance(c.analyze("operators"), UnavailableReport)


def test_a_trace_of_device_events_alone_has_its_busy_time(tmp_path: Path) -> None:
    # GIVEN devices 3 and 5, each with streams 7 and 13: 500 ns from 307 and 313, and from 507 and 513
    t = TraceBuilder(device="")
    for device in (3, 5):
        for stream in (7, 13):
            t.kernel("gemm", 100 * device + stream, 500, device=device, stream=stream, correlation=10 * device + stream)
    # THEN a device is busy 506 ns, both together 307..1013 = 706
    c = put(t, tmp_path)
    assert busy(c) == {"all": 706, "3": 506, "5": 506}
    assert (c.device["link"] == S.NO_RECORD).all()


def test_a_hundred_devices_of_four_streams_are_merged_by_device(tmp_path: Path) -> None:
    t = TraceBuilder(device="")
    for device in range(100):
        for stream in range(4):
            t.kernel("k", 10 * device, 100, device=device, stream=stream)
    found = busy(put(t, tmp_path))
    assert len(found) == 101 and found["all"] == 99 * 10 + 100 and {v for k, v in found.items() if k != "all"} == {100}


@pytest.mark.parametrize(("category", "call"), [
    ("hpu_op", "mtia_runtime"), ("mtia_ccp_events", "privateuse1_driver"), ("kernel", "xpu_runtime"), ("Kernel", "Runtime"),
    ("kernel", "somebody_runtime"),
])  # fmt: skip
def test_categories_of_other_devices(tmp_path: Path, category: str, call: str) -> None:
    # GIVEN one launch of 50 ns inside an operator, and a device event of 20 ns without correlation
    t = TraceBuilder(device="")
    t.op("aten::mm", 0, 1_000)
    t.call("launch", 100, 20, correlation=7, category=call)
    t.kernel("fc", 300, 50, correlation=7, category=category)
    t.kernel("other", 500, 20, category=category)
    table = report(put(t, tmp_path), "operators").table("operators").set_index("name")["device_self_ns"]
    # THEN the operator has its 50 and the row outside the other 20
    assert table["aten::mm"] == 50 and int(table.sum()) == 70


def test_requests_of_mtia_are_copies(tmp_path: Path) -> None:
    t = TraceBuilder(device="")
    for i in range(3):
        t.kernel("dma_request", 20 * i, 10, category="mtia_ccp_events", args={"direction": "DEVICE_TO_HOST", "size": 100})
    row = report(put(t, tmp_path), "memcpy").table("copies").iloc[0]
    assert (row["direction"], row["count"], row["bytes"], row["time_ns"]) == ("DtoH", 3, 300, 30)


def test_graph_replay_and_driver_calls_inside_runtime_calls(tmp_path: Path) -> None:
    # GIVEN a graph launch of 20 kernels; a driver call with the correlation inside a runtime call with another; one correlation
    # on both; a kernel with correlation 0; one whose correlation is smaller than that of any call
    t = TraceBuilder()
    t.op("aten::g", 0, 500)
    graph = t.call("cudaGraphLaunch", 100, 50)
    for i in range(20):
        t.kernel("in graph", 1_000 + 100 * i, 100, correlation=graph)
    t.op("aten::a", 3_000, 200)
    t.call("cudaLaunchKernelExC", 3_010, 50, correlation=778)
    t.call("cuLaunchKernelEx", 3_020, 10, correlation=777, category="cuda_driver")
    t.kernel("a", 4_000, 30, correlation=777)
    t.op("aten::b", 5_000, 200)
    t.call("cudaLaunchKernel", 5_010, 50, correlation=900)
    t.call("cuLaunchKernel", 5_020, 10, correlation=900, category="cuda_driver")
    t.kernel("b", 6_000, 40, correlation=900)
    t.kernel("zero", 7_000, 7, correlation=0)
    t.kernel("early", 50, 3, correlation=1)
    c = put(t, tmp_path)
    table = report(c, "operators").table("operators").set_index("name")["device_self_ns"]
    # THEN all 20 are the graph's and so aten::g's, driver launches count, and the last two stand in rows of their own
    assert (table["aten::g"], table["aten::a"], table["aten::b"]) == (2_000, 30, 40) and int(table.sum()) == 2_080
    assert c.device["graph"].sum() == 20
    links = dict(zip(c.device["name"].astype(str), c.device["link"], strict=True))
    assert links["zero"] == S.NO_RECORD and links["early"] == S.BEFORE_WINDOW


def test_categories_of_torch_1_8(tmp_path: Path) -> None:
    # GIVEN the old spellings: thread ids as text, "stream 7", `external id`, `Input dims`, flow `async`
    t = TraceBuilder(device="", header={"baseTimeNanoseconds": None})
    for category, name, tid, ts, dur, args in (
        ("Operator", "ProfilerStep#1", "25738", 0, 1_000, {"external id": 1}),
        ("Operator", "aten::mm", "25738", 10, 100, {"external id": 2, "Input dims": [[8, 4], [4, 2]], "Input type": ["float", "float"]}),
        ("Runtime", "cudaLaunchKernel", "25738", 20, 10, {"external id": 2, "correlation": 5}),
    ):
        t.add({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args})  # type: ignore[dict-item]
    args = {"external id": 2, "correlation": 5, "context": 1}
    t.add({"ph": "X", "cat": "Kernel", "name": "volta_sgemm", "pid": 0, "tid": "stream 7", "ts": 50, "dur": 30, "args": args})
    c = put(t, tmp_path)
    # THEN the step is a step, stream and shapes are read, and the 30 µs are the operator's
    assert c.steps["number"].tolist() == [1] and (c.device["device"][0], c.device["stream"][0]) == (0, 7)
    row = report(c, "operators", group_by="name_shape").table("operators").set_index("name").loc["aten::mm"]
    assert row["device_self_ns"] == 30_000 and "8" in str(row["input_shapes"])


def test_replicas_on_threads_share_a_module(tmp_path: Path) -> None:
    # GIVEN DataParallel: module Net_0 called on three threads, with 100, 200 and 300 ns of device work
    t = TraceBuilder(devices=3)
    for i in range(3):
        t.module("Net_0", 10 * i, 5_000, module_id=0, thread=50 + i)
        t.launch("k", at=10 * i + 200, start=10 * i + 1_000, duration=100 * (i + 1), thread=50 + i, device=i)
    row = report(put(t, tmp_path), "modules").table("modules").iloc[0]
    assert (row["calls"], row["device_total_ns"], row["host_total_ns"]) == (3, 600, 15_000)


def test_a_module_that_calls_itself(tmp_path: Path) -> None:
    # GIVEN an instance that calls itself 300 deep, each call 20 ns shorter than the one around it
    t = TraceBuilder()
    above = None
    for i in range(300):
        above = t.module("Tree_0", 10 * i, 10_000 - 20 * i, module_id=0, parent=above)
    t.launch("k", at=4_000, start=20_000, duration=70)
    table = report(put(t, tmp_path), "modules").table("modules")
    # THEN the one launch is the innermost call's own, and host time is counted once
    assert int(table["device_self_ns"].sum()) == 70 and int(table["host_self_ns"].sum()) == 10_000 and int(table["calls"].sum()) == 300


def test_deep_stacks_of_frames_keep_their_modules(tmp_path: Path) -> None:
    # GIVEN 40 stacks of 100 frames, every tenth a module, with one launch of 500 ns in the innermost
    t = TraceBuilder()
    for block in range(40):
        at = 400_000 * block
        for d in range(100):
            add = t.frame if d % 10 else lambda name, *a, n=d: t.module(f"M{n}_0", *a, module_id=n)
            add(f"file.py({d}): f", at + 10 * d, 300_000 - 1_000 * d)
        t.launch("gemm", at=at + 2_100, start=at + 5_000, duration=500)
    c = put(t, tmp_path)
    table = report(c, "modules").table("modules").set_index("name")
    assert (c.host["kind"] == S.FRAME).sum() == 3_600 and len(table) >= 10
    assert int(table.loc["M90_0", "device_self_ns"]) == int(table.loc["M0_0", "device_total_ns"]) == 40 * 500


ODD = ["a/b/c", "///", "#", "a#b", "ProfilerStep#", "ProfilerStep#x", "ProfilerStep#1#2", "\u202e\u2028", '"', "a\\b", "x" * 20_000, "\U0001f389",
       "\x01\x1f", "<script>alert(1)</script>", "{{x}}", "=1+1", "a|b", "../../etc", "%s%n", "null", "NaN", ""]  # fmt: skip


def test_odd_names_survive_and_are_no_steps(tmp_path: Path) -> None:
    # GIVEN ranges, operators and kernels of odd names, each launching 7 ns
    t = TraceBuilder()
    for i, name in enumerate(ODD):
        t.annotation(name, 1_000 * i, 900)
        t.op(name, 1_000 * i + 10, 500)
        t.launch(name, at=1_000 * i + 20, start=1_000 * i + 600, duration=7)
    c = put(t, tmp_path)
    # THEN all are there, the empty one as (unnamed), and none of them is a step
    names = set(report(c, "operators").table("operators")["name"])
    assert names == {n or "(unnamed)" for n in ODD} and c.facts.pseudo_step
    assert int(report(c, "kernels").table("kernels")["total_ns"].sum()) == 7 * len(ODD)


def test_collectives_by_name_by_range_and_without_kernels(tmp_path: Path) -> None:
    # GIVEN an nccl kernel with arguments, one without, a plain kernel inside `nccl:broadcast`, and a range without a kernel
    t = TraceBuilder(rank=0, world_size=2)
    t.annotation("nccl:all_reduce", 0, 100)
    t.op("record_param_comms", 10, 50, shapes=[[[4, 4], [2]], []], types=["TensorList", "Int"])
    t.collective("allreduce", 100, 50, elements=18, correlation=t.call("cudaLaunchKernel", 20, 5))
    t.kernel("ncclKernel_AllReduce_RING", 300, 60, correlation=t.call("cudaLaunchKernel", 200, 5), stream=20)
    t.annotation("nccl:broadcast", 400, 100)
    t.kernel("vec_copy", 520, 20, correlation=t.call("cudaLaunchKernel", 420, 5))
    t.annotation("gloo:all_reduce", 700, 100)
    c = put(t, tmp_path)
    # THEN by the wide rule 130 ns are communication, by the narrow one 110
    for rule, expected in (("wide", 130), ("narrow", 110)):
        assert int(report(c, "gpu_breakdown", communication_rule=rule).table("devices")["communication_ns"][0]) == expected


@pytest.mark.parametrize("ts", ["-50", "-0.001", "1700000000000001", "1700000000000001.007", "0", "1.7e15", '"12.5"'])
def test_times_of_every_spelling_give_the_same_duration(tmp_path: Path, ts: str) -> None:
    # GIVEN one kernel of 3 µs at a negative, an absolute, a quoted or an exponent time WHEN read THEN it takes 3 µs
    path = tmp_path / "w.1.pt.trace.json"
    path.write_text(f'[{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":{ts},"dur":3}}]')
    c = read(str(path))
    assert busy(c) == {"all": 3_000, "0": 3_000} and c.facts.absolute == (ts.startswith("17") or ts.startswith("1.7"))
