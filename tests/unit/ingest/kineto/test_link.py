"""How device work finds its launch and owners, backward its forward, events their step."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from tb_sol_plugin.ingest import read
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tests.support.trace_builder import TraceBuilder


def load(t: TraceBuilder, folder: Path) -> Capture:
    return read(str(t.write(folder / "w.pt.trace.json")))


def owner(c: Capture, column: str) -> list[str]:
    """Name of the host row each device event points to, "" for none."""
    names = c.host["name"].astype(str).tolist()
    return [names[r] if r >= 0 else "" for r in c.device[column].tolist()]


def test_correlation_then_containment_on_the_launching_thread(tmp_path: Path) -> None:
    # GIVEN an operator in a module in an annotation on one thread, and an operator that covers the same time on another
    t = TraceBuilder()
    t.annotation("forward", 0, 10_000)
    t.module("Linear_0", 500, 9_000, module_id=0)
    t.op("aten::linear", 1_000, 8_000)
    t.op("aten::addmm", 2_000, 5_000)
    t.launch("gemm", at=3_000, start=20_000, duration=700)
    t.op("other thread", 0, 100_000, thread=7)
    # WHEN linked
    c = load(t, tmp_path)
    # THEN the innermost of each kind on the launching thread owns the kernel, however late it runs
    assert owner(c, "call") == ["cudaLaunchKernel"] and c.device["link"].tolist() == [S.BY_CORRELATION]
    assert owner(c, "operator") == ["aten::addmm"]
    assert owner(c, "module") == ["nn.Module: Linear_0"]
    assert owner(c, "annotation") == ["forward"]


@pytest.mark.parametrize("category", ["cuda_driver", "cuda_runtime", "xpu_runtime", "privateuse1_driver", "mtia_runtime"])
def test_every_runtime_and_driver_category_launches(tmp_path: Path, category: str) -> None:
    t = TraceBuilder()
    t.op("aten::mm", 0, 1_000)
    t.launch("k", at=100, start=500, duration=10, api="launch", api_category=category)
    assert owner(load(t, tmp_path), "operator") == ["aten::mm"]


def test_equal_external_ids_link_nothing(tmp_path: Path) -> None:
    # GIVEN a recorder that writes the correlation as external id, and by chance an operator with that id elsewhere
    t = TraceBuilder()
    t.op("aten::right", 0, 1_000, external_id=9_001)
    t.call("cudaLaunchKernel", 100, 50, correlation=77, external_id=77)
    t.kernel("k", 500, 10, correlation=77, external_id=77)
    t.op("aten::wrong", 5_000, 1_000, external_id=77)
    # THEN the launch decides
    c = load(t, tmp_path)
    assert owner(c, "operator") == ["aten::right"] and c.facts.external_id_regime == 2


def test_kernels_launched_before_the_window_and_without_a_record_are_told_apart(tmp_path: Path) -> None:
    # GIVEN calls with correlations from 100 on, a kernel with 40 (launched before), one with 5 000 and one with none
    t = TraceBuilder()
    t.launch("linked", at=100, start=500, duration=10)
    t.kernel("early", 300, 20, correlation=40)
    t.kernel("lost", 600, 30, correlation=5_000)
    t.kernel("bare", 700, 40)
    c = load(t, tmp_path)
    # THEN nothing is dropped and each says how it was linked
    found = dict(zip(c.device["name"].astype(str), c.device["link"].tolist(), strict=True))
    assert found == {"linked": S.BY_CORRELATION, "early": S.BEFORE_WINDOW, "lost": S.NO_RECORD, "bare": S.NO_RECORD}
    issues = dict(zip(c.tables["issues"]["reason"].astype(str), c.tables["issues"]["count"].tolist(), strict=True))
    assert issues["launched before the window"] == 1 and issues["no launch record"] == 2


def test_a_flow_links_an_event_without_correlation(tmp_path: Path) -> None:
    # GIVEN a call with a flow, and a kernel that has the flow's other half but no correlation
    t = TraceBuilder()
    t.op("aten::mm", 0, 1_000)
    number = t.call("hipLaunchKernel", 100, 50, flow=True)
    t.kernel("k", 500, 10)
    t._flow_half("f", "ac2g", number, 0, 7, 500)
    c = load(t, tmp_path)
    assert c.device["link"].tolist() == [S.BY_FLOW] and owner(c, "operator") == ["aten::mm"]


def test_a_flow_without_its_end_does_not_stop_the_correlation(tmp_path: Path) -> None:
    # GIVEN a memset whose flow has only the device's half
    t = TraceBuilder()
    t.op("aten::zero_", 0, 1_000)
    number = t.call("hipMemsetAsync", 100, 50)
    t.memset(500, 10, correlation=number)
    t._flow_half("f", "ac2g", number, 0, 7, 500)
    assert owner(load(t, tmp_path), "operator") == ["aten::zero_"]


def test_a_graph_launch_owns_all_its_kernels(tmp_path: Path) -> None:
    # GIVEN one cudaGraphLaunch and three kernels of its correlation
    t = TraceBuilder()
    t.annotation("decode", 0, 1_000)
    number = t.call("cudaGraphLaunch", 100, 50)
    for i in range(3):
        t.kernel(f"k{i}", 500 + 20 * i, 10, correlation=number)
    c = load(t, tmp_path)
    assert c.device["graph"].tolist() == [True] * 3 and owner(c, "annotation") == ["decode"] * 3


def test_gpu_copies_and_sync_records_are_no_gpu_work(tmp_path: Path) -> None:
    # GIVEN a step with its GPU copy, a sync record with stream and correlation, and one kernel
    t = TraceBuilder()
    t.step(3, 0, 1_000, gpu=(400, 5_000))
    t.launch("k", at=100, start=500, duration=10)
    t.sync("Stream Sync", 600, 9_000, correlation=100)
    c = load(t, tmp_path)
    assert len(c.device) == 1 and len(c.steps) == 1 and len(c.tables["sync"]) == 1
    # AND the extent is that of host and device work alone
    assert c.facts.extent_ns == (0, 1_000)


def test_a_kernel_is_in_the_step_of_its_launch_and_a_cut_step_is_marked(tmp_path: Path) -> None:
    # GIVEN three steps of 5, 5 and 1 kernels; the first step's last kernel runs into the second step
    t = TraceBuilder()
    for number, kernels in ((10, 5), (11, 5), (12, 1)):
        begin = (number - 10) * 10_000
        t.step(number, begin, 10_000)
        for i in range(kernels):
            late = number == 10 and i == 4
            t.launch(f"k{number}_{i}", at=begin + 100 + 200 * i, start=12_000 if late else begin + 300 + 200 * i, duration=50)
    c = load(t, tmp_path)
    # THEN each kernel is in the step that launched it; bounds reach to its last device event and steps do not overlap
    assert c.steps["number"].tolist() == [10, 11, 12] and c.steps["device_events"].tolist() == [5, 5, 1]
    assert c.steps["start_ns"].tolist() == [0, 12_050, 20_000]
    assert c.steps["end_ns"].tolist() == [12_050, 20_000, 30_000]
    assert c.steps["complete"].tolist() == [True, True, False]


def cut(before: int) -> TraceBuilder:
    """Three equal steps of 10 µs each on the device, whose recording begins while the device still has `before` ns of earlier work."""
    t = TraceBuilder()
    t.call("cudaStreamIsCapturing", 10, 5)
    t.kernel("earlier", 50, before // 2, correlation=40)
    t.kernel("earlier", 50 + before // 2, before // 2, correlation=41)
    for n in range(3):
        t.step(n, 1_000 * n, 1_000)
        t.launch("k", at=1_000 * n + 100, start=max(50 + before, 1_000) + 10_000 * n, duration=10_000)
    return t


def test_the_first_step_of_a_cut_recording_begins_when_the_work_before_it_ends(tmp_path: Path) -> None:
    # GIVEN three steps of one kernel of 10 µs, and 30 µs of work that was launched before the recording, up to 30.05 µs
    c = load(cut(30_000), tmp_path)
    # THEN that work is in no step, and each step has the 10 µs that it launched
    assert c.device["link"].tolist()[:2] == [S.BEFORE_WINDOW] * 2 and c.device["step"].tolist() == [-1, -1, 0, 1, 2]
    assert c.steps["start_ns"].tolist() == [30_050, 40_050, 50_050] and c.steps["end_ns"].tolist() == [40_050, 50_050, 60_050]
    assert c.steps["device_events"].tolist() == [1, 1, 1]


def test_work_without_a_recorded_launch_behind_recorded_work_stays_in_its_step(tmp_path: Path) -> None:
    # GIVEN step 0 from 0 to 10 µs, and three kernels without a recorded launch: one that starts before it, one with a correlation below
    # all others on the same stream behind a kernel of the step, and one without any correlation between those of the step
    t = TraceBuilder()
    t.step(0, 0, 10_000)
    t.kernel("earlier", -50, 200)
    t.launch("own", at=500, start=1_000, duration=100)
    t.kernel("reused", 2_000, 100, correlation=40)
    t.kernel("lost", 3_000, 100)
    t.launch("own", at=4_000, start=5_000, duration=100)
    c = load(t, tmp_path)
    # THEN only the first was launched before the recording; the step begins at its end, 200 ns after its start, and has the others by time
    assert c.device["step"].tolist() == [-1, 0, 0, 0, 0]
    assert c.steps["start_ns"].tolist() == [200] and c.steps["end_ns"].tolist() == [10_050]


def test_no_step_gives_one_pseudo_step_over_everything(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.op("aten::a", 0, 1_000)
    t.launch("k", at=100, start=5_000, duration=10)
    c = load(t, tmp_path)
    assert c.facts.pseudo_step and c.steps["number"].tolist() == [-1]
    assert (c.steps["start_ns"].iloc[0], c.steps["end_ns"].iloc[0]) == (0, 5_010) and c.device["step"].tolist() == [0]


def training(flows: bool) -> TraceBuilder:
    """Two layers; sequence 0 and 1; the inner op repeats the outer op's number; backward on thread 99."""
    t = TraceBuilder()
    for i in (0, 1):
        t.op(f"aten::linear_{i}", 1_000 * i, 900, sequence=i)
        t.op(f"aten::addmm_{i}", 1_000 * i + 100, 700, sequence=i)
    for place, i in enumerate((1, 0)):
        begin = 5_000 + 1_000 * place
        t.op(f"autograd::engine::evaluate_function: AddmmBackward{i}", begin, 800, thread=99, sequence=i, forward_thread=1)
        t.op(f"AddmmBackward{i}", begin + 50, 600, thread=99, sequence=i, forward_thread=1)
        if flows:
            t.forward_backward(1_000 * i + 100, begin + 50, backward_thread=99)
    t.op("autograd::engine::evaluate_function: AccumulateGrad", 9_000, 100, thread=99)
    return t


@pytest.mark.parametrize("flows", [True, False], ids=["flows", "sequence numbers"])
def test_backward_operators_are_linked_to_their_forward_operators(tmp_path: Path, flows: bool) -> None:
    # GIVEN a backward pass with autograd flows, or with nothing but sequence numbers (0 among them)
    c = load(training(flows), tmp_path)
    names = c.host["name"].astype(str).tolist()
    links = c.tables["backward"]
    pairs = {(names[f], names[b]) for f, b in zip(links["forward"].tolist(), links["backward"].tolist(), strict=True)}
    # THEN the latest forward operator of a number meets the evaluate_function wrapper, by the same rule both ways
    assert pairs == {(f"aten::addmm_{i}", f"autograd::engine::evaluate_function: AddmmBackward{i}") for i in (0, 1)}
    assert set(links["method"].tolist()) == {0 if flows else 1}
    # AND links are extra: the host tree is what it was
    assert len(c.host) == 9 and np.array_equal(np.sort(c.host["index"].to_numpy()), np.sort(c.host["index"].unique()))


@pytest.mark.parametrize("seed", range(12))
def test_links_by_number_are_those_of_a_search_for_each_root(tmp_path: Path, seed: int) -> None:
    # GIVEN operators of two or three threads whose numbers repeat within and across threads, and roots of several forward threads
    random = Random(seed)
    t = TraceBuilder()
    forwards = [(random.randrange(40) * 100, random.choice((1, 2, 3)), random.randrange(6)) for _ in range(30)]
    for i, (at, thread, number) in enumerate(forwards):
        t.op(f"f{i}", at, random.choice((50, 100)), thread=thread, sequence=number)
    for i in range(20):
        t.op(f"b{i}", 1_000 + 150 * i, 40, thread=99, sequence=random.randrange(8), forward_thread=random.choice((1, 2)))
    c = load(t, tmp_path)
    ops, host = c.tables["operators"], c.host.iloc[c.tables["operators"]["host"].to_numpy()]
    every = list(zip(ops["host"].tolist(), ops["sequence"].tolist(), ops["forward_thread"].tolist(), host["thread"].tolist(),
                     host["start_ns"].tolist(), strict=True))  # fmt: skip
    # WHEN for each root and thread the latest operator of its number before it is looked for
    found: dict[tuple[int, int], int] = {}
    start = {row: begun for row, _, _, _, begun in every}
    number_of = {row: forward for row, _, forward, _, _ in every if forward > 0}
    for root, sequence, forward, _, at in every:
        for _, row, thread in sorted((begun, row, thread) for row, other, back, thread, begun in every if other == sequence and back <= 0):
            if forward > 0 and start[row] < at:
                found[root, thread] = row  # the last one stays
    # AND each forward thread number stands for the thread with most of them, of several the one with the first operator, each given once
    votes: dict[tuple[int, int], list[int]] = {}
    for (root, thread), row in found.items():
        votes.setdefault((number_of[root], thread), []).append(start[row])
    home: dict[int, int] = {}
    most = {n: max(len(v) for (m, _), v in votes.items() if m == n) for n, _ in votes}
    for n in sorted(most, key=lambda n: (-most[n], n)):
        those = [t for _, t in sorted((min(v), t) for (m, t), v in votes.items() if m == n and len(v) == most[n])]
        home[n] = next((t for t in those if t not in home.values()), those[0])
    # THEN these are the links
    links = c.tables["backward"]
    assert set(zip(links["backward"].tolist(), links["forward"].tolist(), strict=True)) == {
        (root, row) for (root, thread), row in found.items() if home[number_of[root]] == thread
    }
    assert len(links) > 3


def test_overlapping_host_events_keep_their_calls(tmp_path: Path) -> None:
    # GIVEN B that starts in A and outlives it, with a launch after A's end
    t = TraceBuilder()
    t.op("A", 0, 1_000)
    t.op("B", 500, 1_000)
    t.launch("k", at=1_200, start=2_000, duration=10, call_duration=50)
    c = load(t, tmp_path)
    # THEN the launch belongs to B; A, which is over, is not its owner although it is B's parent
    assert owner(c, "operator") == ["B"]
    assert c.host["clipped"].tolist() == [False, True, False]


def test_iterations_of_an_engine_are_steps(tmp_path: Path) -> None:
    # GIVEN a kernel launched before the first iteration, three decode iterations of one kernel each, the last without any, and a prefill
    t = TraceBuilder()
    t.launch("before", at=0, start=500, duration=2_000)
    decode = "execute_context_0(0)_generation_4(4)"
    for k in range(3):
        t.annotation(decode, 10_000 * k + 1_000, 8_000)
        if k < 2:
            t.launch("kernel", at=10_000 * k + 2_000, start=10_000 * k + 3_000, duration=1_000 + k)
    t.annotation("execute_context_1(64_4096)_generation_0(0)", 31_000, 8_000)
    t.launch("kernel", at=32_000, start=33_000, duration=9_000)
    t.annotation("step[DECODE bs=9]", 41_000, 1_000)  # of another engine, which is not the first one
    # WHEN the trace is read
    c = read(str(t.write(tmp_path / "w.pt.trace.json")))
    # THEN they are its steps, with what the annotations say; work before the first one is of none, and the one that was cut is incomplete
    assert c.steps["number"].tolist() == [1, 2, 3, 4] and c.steps["kind"].tolist() == ["decode"] * 3 + ["prefill"]
    assert set(c.steps["engine"]) == {"vLLM"} and not c.facts.pseudo_step
    assert c.steps["requests"].tolist() == [4, 4, 4, 1] and c.steps["batch"].tolist() == [4, 4, 4, 64]
    assert c.steps["context_tokens"].tolist() == [0, 0, 0, 64] and c.steps["generation_tokens"].tolist() == [4, 4, 4, 0]
    assert c.device["step"].tolist() == [-1, 0, 1, 3]
    assert c.steps["start_ns"].tolist() == [2_500, 11_000, 21_000, 31_000] and c.steps["end_ns"].iloc[-1] == 42_000
    assert c.steps["complete"].tolist() == [True, True, False, True]


def test_the_first_and_the_last_iteration_are_compared_with_one_like_them(tmp_path: Path) -> None:
    # GIVEN five kernels in a decode iteration, and a first and a last one with three and four of them, after and before prefills of one
    t = TraceBuilder()
    at = 0
    for name, kernels in (("decode[bs=2]", 3), ("prefill[bs=1 tok=9]", 1), ("decode[bs=2]", 5), ("prefill[bs=1 tok=9]", 1), ("decode[bs=2]", 4)):
        t.annotation(name, at, 9_000)
        for k in range(kernels):
            t.launch("kernel", at=at + 1_000 + k * 500, start=at + 1_100 + k * 500, duration=300)
        at += 10_000
    c = read(str(t.write(tmp_path / "w.pt.trace.json")))
    assert c.steps["complete"].tolist() == [False, True, True, True, True]


def test_numbers_of_profiler_steps_go_before_iterations(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.step(7, 0, 5_000)
    t.annotation("decode[bs=2]", 100, 1_000)
    t.launch("kernel", at=200, start=300, duration=100)
    c = read(str(t.write(tmp_path / "w.pt.trace.json")))
    assert c.steps["number"].tolist() == [7] and c.steps["kind"].tolist() == [""] and c.steps["batch"].tolist() == [-1]
