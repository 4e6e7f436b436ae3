"""Advice follows what was recorded: names of collectives, operators of others, compiled code, Python lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.findings import call, found, step
from tests.support.trace_builder import TraceBuilder

MS = 1_000_000
SEND = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"


def communicates(kernel: str, *around: str, extra: str = "", argument: str = "", training: bool = True) -> TraceBuilder:
    """A kernel for 0.5 ms, and a collective alone for 0.5 ms, launched inside of the ranges `around` (the outermost first)."""
    t = step()
    t.op("aten::mm", 1_000, 5_000)
    t.launch("k", at=2_000, start=3_000, duration=497_000)
    for i, name in enumerate(around):
        t.op(name, 10_000 + i, 50_000 - 2 * i)
    number = t.call("cudaLaunchKernel", 20_000, 1_000, flow=True)
    if argument:
        t.collective(argument, 500_000, 500_000, elements=1 << 20, kernel=kernel, correlation=number)
    else:
        t.kernel(kernel, 500_000, 500_000, correlation=number, stream=20, flow=True)
    if extra:
        t.op(extra, 70_000, 1_000)
    if training:
        t.op("autograd::engine::evaluate_function: MmBackward0", 29_000, 5_000, thread=9)
        t.forward_backward(1_000, 29_000, backward_thread=9)
    return t


@pytest.mark.parametrize(("around", "kind", "advice"), [
    (("c10d::allreduce_", "record_param_comms", "nccl:all_reduce"), "all_reduce", "dist.all_reduce("),
    (("## reduce_scatter_base_bw (all_gather) ##", "c10d::_allgather_base_"), "all_gather", "dist.all_gather_into_tensor("),
    (("c10d::_reduce_scatter_base_", "nccl:_reduce_scatter_base"), "reduce_scatter", "dist.reduce_scatter_tensor("),
    (("c10d::alltoall_base_", "nccl:all_to_all"), "all_to_all", "dist.all_to_all_single("),
    (("c10d::broadcast_", "nccl:broadcast"), "broadcast", "dist.broadcast("),
])  # fmt: skip
def test_a_collective_has_the_name_of_the_operator_that_launched_it(around: tuple[str, ...], kind: str, advice: str, tmp_path: Path) -> None:
    # GIVEN a kernel named SendRecv, in which NCCL runs any collective, launched by one that is recorded
    finding = found(communicates(SEND, *around), tmp_path)["exposed_communication"]
    # THEN the collective is named, and the advice is for it and for no other
    assert f"({kind})" in finding.evidence and finding.fix.startswith(advice) and finding.saving == 500_000


def test_a_collective_has_the_name_among_its_arguments_first(tmp_path: Path) -> None:
    finding = found(communicates(SEND, "nccl:all_to_all", argument="allreduce"), tmp_path)["exposed_communication"]
    assert "(all_reduce)" in finding.evidence and "dist.all_reduce(" in finding.fix


def test_a_collective_without_a_name_gets_no_name(tmp_path: Path) -> None:
    # GIVEN the same kernel, and nothing that names its collective
    finding = found(communicates(SEND), tmp_path)["exposed_communication"]
    assert finding.fix.startswith("work = collective(") and "all_to_all" not in finding.fix


def test_advice_about_data_parallelism_needs_data_parallelism(tmp_path: Path) -> None:
    reduce = ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "nccl:all_reduce")
    plain = found(communicates(*reduce), tmp_path / "a")["exposed_communication"]
    parallel = found(communicates(*reduce, extra="DistributedDataParallel.forward"), tmp_path / "b")["exposed_communication"]
    assert "DistributedDataParallel" not in plain.fix and "bucket_cap_mb" in parallel.fix
    gather = ("ncclDevKernel_AllGather_RING_LL", "nccl:_all_gather_base")
    plain = found(communicates(*gather), tmp_path / "c")["exposed_communication"]
    sharded = found(communicates(*gather, extra="FSDP::all_gather"), tmp_path / "d")["exposed_communication"]
    assert "fully_shard" not in plain.fix and "fully_shard" in sharded.fix
    serving = found(communicates(*reduce, training=False), tmp_path / "e")["exposed_communication"]
    assert "dist.all_reduce(half" in serving.fix


# -- Compiled code -------------------------------------------------------------------------------------------------------


def launches(*, region: str = "", kernel: str = "k", api: str = "cudaLaunchKernel") -> TraceBuilder:
    """Ten kernels of 5 us, each launched 40 us after the one before it ended, inside of a range where one is given."""
    t = step(500_000)
    if region:
        t.op(region, 0, 500_000)
    for i in range(10):
        t.op("aten::mm", 50_000 * i, 20_000)
        t.launch(f"{kernel}{i}", at=50_000 * i + 5_000, start=50_000 * i + 45_000, duration=5_000, call_duration=30_000, api=api)
    return t


def test_launches_of_compiled_code_are_not_told_to_compile(tmp_path: Path) -> None:
    # GIVEN kernels that the host launches too slowly WHEN none, all by their region, or all by their names are compiled
    eager = found(launches(), tmp_path / "a")["launch_bound"]
    region = found(launches(region="Torch-Compiled Region: 0/0"), tmp_path / "b")["launch_bound"]
    names = found(launches(kernel="triton_poi_fused_add_"), tmp_path / "c")["launch_bound"]
    graphs = found(launches(region="CompiledFunction", api="cudaGraphLaunch"), tmp_path / "d")["launch_bound"]
    # THEN the rule fires each time, and only the first is told to compile
    assert 'torch.compile(model, mode="reduce-overhead")' in eager.fix
    assert "triton.cudagraphs = True" in region.fix and "torch.compile(" not in region.fix + names.fix + graphs.fix
    assert names.fix == region.fix and "graph_breaks" in graphs.fix
    assert eager.saving == region.saving == names.saving == graphs.saving


def slow(name: str, region: str = "") -> TraceBuilder:
    """An elementwise call of 1 ms over 1 Mi elements: far above its limit."""
    t = step()
    if region:
        t.op(region, 0, 900)
    call(t, name, 10_000, 990_000, [[1 << 20], [1 << 20]], kernel="elementwise")
    return t


@pytest.mark.parametrize(("region", "advice"), [
    ("", "torch.compile(model)"), ("CompiledFunction", "# compiled already: TORCH_LOGS"), ("Torch-Compiled Region: 0/1", "# compiled already"),
    ("autograd::engine::evaluate_function: CompiledFunctionBackward", "# compiled already"), ("MyFunction", "torch.compile(model)"),
])  # fmt: skip
def test_work_of_compiled_code_is_not_told_to_compile(region: str, advice: str, tmp_path: Path) -> None:
    assert found(slow("aten::mul", region), tmp_path)["elementwise_above_limit"].fix.startswith(advice)


def test_kernels_that_the_compiler_wrote_are_tuned(tmp_path: Path) -> None:
    got = found(slow("triton_poi_fused_mul_0"), tmp_path)
    (finding,) = [f for name, f in got.items() if name.endswith("_above_limit")]
    assert finding.fix.startswith("torch._inductor.config.coordinate_descent_tuning")


# -- Python lines --------------------------------------------------------------------------------------------------------


def waits(*, stacks: bool, deep: bool = True) -> TraceBuilder:
    """A step of 10 ms whose only kernel [9, 10) ms is launched at 8.99 ms, after `preprocess` at data.py:12 [1, 8) ms."""
    t = step(10 * MS)
    t.annotation("forward", 8_900_000, 100_000)
    t.op("aten::mm", 8_950_000, 50_000)
    t.launch("k", at=8_990_000, start=9 * MS, duration=MS)
    if stacks:
        outer = t.frame("train.py(80): main", 0, 10 * MS)
        if deep:
            own = t.frame("data.py(12): preprocess", MS, 7 * MS, parent=outer)
            t.frame("torch/functional.py(3): stft", 2 * MS, 5 * MS, parent=own)
            t.frame("wait.py(1): poll", 0, 10 * MS, thread=77)
    return t


def test_a_python_line_is_named_where_stacks_name_it(tmp_path: Path) -> None:
    # GIVEN stacks WHEN 7 of the 9 ms pass in one line of the program, 5 of them in torch below it, and a thread that launches nothing polls
    got = found(waits(stacks=True), tmp_path / "a")
    # THEN that line has a finding, the advice on the rest names its line and is not to mark the parts of the step
    assert "`data.py:12 preprocess`; of that 5.00\u202fms in `torch/functional.py:3 stft`" in got["python_wait"].evidence
    assert got["python_wait"].saving == 7 * MS and got["host_wait"].saving == 2 * MS
    assert got["host_wait"].fix.startswith("# train.py:80 main runs meanwhile") and "record_function" not in got["host_wait"].fix
    # AND without stacks the advice is to record them
    bare = found(waits(stacks=False), tmp_path / "b")["host_wait"]
    assert bare.saving == 9 * MS and "with_stack=True" in bare.fix and "preprocess" not in bare.evidence


def test_stacks_that_slow_the_launches_down_are_said_to(tmp_path: Path) -> None:
    # GIVEN ten launches 50 µs apart, recorded with two Python calls before each, without stacks, and with a single frame around them all;
    # and with stacks, 10 µs apart
    with_stacks, fast, one = launches(), step(100_000), launches()
    for i in range(10):
        fast.launch("k", at=10_000 * i, start=10_000 * i + 5_000, duration=2_000)
    for t in (with_stacks, fast, one):
        t.frame("train.py(80): main", 0, 600_000)
    for t, apart in ((with_stacks, 50_000), (fast, 10_000)):
        for i in range(20):
            t.frame("torch/_ops.py(1): __call__", i * apart // 2, apart // 4)
    made = {"a": with_stacks, "b": launches(), "c": fast, "d": one}
    slow, *others = (found(t, tmp_path / n)["launch_bound"] for n, t in made.items())
    # THEN only the first has the caveat, with the calls that are recorded, and none saves less for it
    assert "needs 50.00\u202fµs from one launch to the next, and 2 Python calls are recorded meanwhile" in slow.evidence
    assert not any("recorder" in f.evidence for f in others) and slow.saving == others[0].saving


# -- Attention of others ---------------------------------------------------------------------------------------------------


def attention(name: str, sizes: list[list[int]]) -> TraceBuilder:
    """An attention call of 900 us in BF16, in a step as vLLM names it: 32 requests of one token over 55,086 cached ones."""
    t = step()
    t.annotation("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)", 0, 5_000)
    call(t, name, 100_000, 900_000, sizes, types="c10::BFloat16", kernel="kernel_unified_attention_3d")
    return t


def test_attention_of_others_is_not_told_to_choose_a_backend_of_pytorch(tmp_path: Path) -> None:
    # GIVEN attention far above its limit by an operator of vLLM, and by one of PyTorch
    paged = [[32, 64, 64], [32, 8, 64], [32, 8, 64], [32, 64, 64]]
    others = found(attention("vllm::unified_attention_with_output", paged), tmp_path / "a")["attention_above_limit"]
    own = found(attention("aten::_scaled_dot_product_flash_attention", [[4, 8, 512, 64]] * 3), tmp_path / "b")["attention_above_limit"]
    # THEN both are findings, and only PyTorch's has backends to choose from
    assert "sdpa_kernel" not in others.fix and "vllm::unified_attention_with_output" in others.evidence
    assert "sdpa_kernel" in own.fix
