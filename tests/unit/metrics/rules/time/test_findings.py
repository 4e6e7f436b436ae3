"""Findings: what is named, with which numbers, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin.metrics.rules.engine import to_report
from tb_sol_plugin.metrics.rules.time import time_findings
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.time.waterfall import waterfall
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import Link
from tests.support.findings import H100_BANDWIDTH, H100_BF16, H100_FP32, call, found, step
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back

MILLION = 1 << 20


def test_data_loading_while_the_device_idles_is_a_finding(tmp_path: Path) -> None:
    # GIVEN two loads of 300 us in the training process, during one of which a kernel runs for 100 us
    t = step()
    for at in (0, 500_000):
        t.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, 300_000)
    t.launch("k", at=400_000, start=500_000, duration=100_000)
    finding = found(t, tmp_path)["input_wait"]
    # THEN it could save 600 - 100 us, and the fix is about worker processes
    assert finding.saving == 500_000 and finding.fix.startswith("DataLoader(num_workers=")
    assert (
        "2 batches load in the training process, 300.0\u202fµs each" in finding.evidence
        and finding.title == "The GPU waits for the input pipeline"
    )


LOAD = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def test_the_call_that_ends_a_loader_is_no_batch(tmp_path: Path) -> None:
    # GIVEN two loads of 300 us that stack their samples, and a third of 2 us that only finds the loader exhausted
    t = step()
    for at in (0, 500_000):
        t.annotation(LOAD, at, 300_000)
        t.op("aten::stack", at + 1_000, 10_000)
    t.annotation(LOAD, 900_000, 2_000)
    t.launch("k", at=400_000, start=500_000, duration=100_000)
    # THEN two batches are counted, and their mean is theirs
    assert "2 batches load in the training process, 300.0\u202fµs each" in found(t, tmp_path)["input_wait"].evidence


def test_a_last_batch_that_is_quick_is_a_batch(tmp_path: Path) -> None:
    # GIVEN a third load of 20 us that stacks samples too, and one that is the only one
    t = step()
    for at, length in ((0, 300_000), (500_000, 300_000), (900_000, 20_000)):
        t.annotation(LOAD, at, length)
        t.op("aten::stack", at + 1_000, 10_000)
    t.launch("k", at=400_000, start=500_000, duration=100_000)
    assert "3 batches load" in found(t, tmp_path / "a")["input_wait"].evidence
    t = step()
    t.annotation(LOAD, 0, 300_000)
    t.launch("k", at=400_000, start=500_000, duration=100_000)
    assert "One batch loads" in found(t, tmp_path / "b")["input_wait"].evidence


def test_the_waterfall_and_the_finding_tell_one_wait_for_input(tmp_path: Path) -> None:
    # GIVEN a load of 400 us, during which the device is idle, but its next kernel was launched before: it waits for something else
    t = step()
    t.op("aten::mm", 0, 1_000)
    t.launch("a", at=100, start=0, duration=10_000)
    t.launch("b", at=500, start=600_000, duration=100_000)
    t.annotation(LOAD, 100_000, 400_000)
    # AND one of 200 us before a kernel that is launched late
    t.annotation(LOAD, 700_000, 200_000)
    t.launch("c", at=900_000, start=905_000, duration=95_000)
    c = read_back(t, tmp_path)
    part = scope(c, Query())
    fall = waterfall(c, part)
    (finding,) = [f for f in time_findings(c, part, fall) if f.id == "input_wait"]
    # THEN both have the second one alone, and the first is a wait of the device
    assert fall.input_wait_ns == finding.saving == 200_000 and fall.device_wait_ns >= 400_000


def test_the_phase_in_which_the_device_idles_is_named(tmp_path: Path) -> None:
    # GIVEN the phase `exchange`, 600 us long, with a kernel only in its last 50 us, and `math` that keeps the device busy
    t = step()
    t.annotation("## exchange ##", 0, 600_000)
    t.launch("k", at=500_000, start=550_000, duration=50_000)
    t.annotation("## math ##", 600_000, 300_000)
    t.launch("k", at=600_000, start=600_000, duration=300_000)
    finding = found(t, tmp_path)["host_wait"]
    # THEN of 650 us of idle time 550 lie in it
    assert finding.saving == 650_000
    assert (
        finding.title == "The GPU waits while the host is in exchange"
        and "for 550.0\u202fµs of it the host is in `exchange`" in finding.evidence
    )


def test_many_short_kernels_ask_for_graphs(tmp_path: Path) -> None:
    # GIVEN ten kernels of 5 us, one every 100 us
    t = step()
    for i in range(10):
        t.launch("k", at=100_000 * i, start=100_000 * i + 1_000, duration=5_000)
    got = found(t, tmp_path)
    # THEN the nine gaps of 95 us between them are the launches', the 1 us before the first and the 94 us after the last the host's
    finding = got["launch_bound"]
    assert finding.saving == 9 * 95_000 + 1_000 and "reduce-overhead" in finding.fix and "CUDA graphs" in finding.fix
    assert (
        "10 of 10 kernels, in one stretch of 8 or more," in finding.evidence and "runs 5.00\u202fµs and waits 95.00\u202fµs" in finding.evidence
    )
    assert got["host_wait"].saving == 94_000


def test_exposed_communication_and_copies_from_pageable_memory(tmp_path: Path) -> None:
    # GIVEN an all-reduce [0, 200) us half under a kernel [100, 900), a pageable copy [200, 250) hidden by it and another [900, 1000)
    t = step()
    t.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", at=0, start=0, duration=200_000, stream=20)
    t.launch("k", at=5_000, start=100_000, duration=800_000)
    t.copy("HtoD", 200_000, 50_000, bytes=1_000, src="Pageable", call=(10_000, 1_000), stream=21)
    t.copy("HtoD", 900_000, 100_000, bytes=1_000_000, src="Pageable", call=(20_000, 1_000), stream=21)
    got = found(t, tmp_path)
    assert got["exposed_communication"].saving == 100_000
    assert (
        "100.0\u202fµs of 200.0\u202fµs" in got["exposed_communication"].evidence
        and "dist.all_reduce(half" in got["exposed_communication"].fix
    )
    # THEN of the 150 us of copies from pageable memory the 100 us are saved that nothing hides
    loading = got["copies_pageable_loading"]
    assert loading.saving == 100_000 and "100.0\u202f% of the bytes" in loading.evidence and "pin_memory" in loading.fix
    assert (loading.id, loading.page, loading.candidate) == ("copies_pageable_loading", "memcpy_findings", False)
    assert to_report(loading, pages=("memcpy_findings",)).link == Link("memcpy_findings", {"rule": "pageable_loading"}, "Waits and patterns")
    assert "exposed_copies" not in got and "copies_exposed_HtoD" not in got and "host_wait" not in got


def attention(t: TraceBuilder, at: int, product: str = "aten::bmm") -> None:
    """bmm 8x256x32 by 8x32x256, softmax, bmm 8x256x256 by 8x256x32: 40, 30 and 40 us."""
    types = ["float", "float"]
    t.op(product, at, 20_000, shapes=[[8, 256, 32], [8, 32, 256]], types=types)
    t.launch("gemm", at=at + 1_000, start=at + 20_000, duration=40_000)
    t.op(
        "aten::_softmax",
        at + 20_000,
        20_000,
        shapes=[[8, 256, 256], [], []],
        types=["float", "Scalar", "Scalar"],
        concrete=["", "-1", "False"],
    )
    t.launch("softmax", at=at + 21_000, start=at + 60_000, duration=30_000)
    t.op("aten::bmm", at + 40_000, 20_000, shapes=[[8, 256, 256], [8, 256, 32]], types=types)
    t.launch("gemm", at=at + 41_000, start=at + 90_000, duration=40_000)


def test_attention_that_writes_its_score_matrix_is_a_finding(tmp_path: Path) -> None:
    # GIVEN product, softmax, product over one 8x256x256 score matrix
    t = step(200_000)
    attention(t, 0)
    got = found(t, tmp_path)
    finding = got["unfused_attention"]
    # THEN fused: 2 * 2 * 8*256*256*32 FLOP and 4 tensors of 8*256*32 floats; the larger of both times is the limit
    flop, data = 4 * 8 * 256 * 256 * 32, 4 * 8 * 256 * 32 * 4
    limit = max(flop / H100_FP32, data / H100_BANDWIDTH) * 1e9
    assert finding.saving == pytest.approx(110_000 - limit, abs=2)
    assert "8×256×256" in finding.evidence and finding.fix == "F.scaled_dot_product_attention(q, k, v)"
    # AND the same time is not offered again as products above their limit
    assert "gemm_above_limit" not in got and "norm_above_limit" not in got


def test_attention_over_two_sizes_counts_each_size_with_its_own_calls(tmp_path: Path) -> None:
    # GIVEN three chains over 8x256x256 scores, and one over 8x64x64 ones
    t = step(2_000_000)
    for i in range(3):
        attention(t, 200_000 * i)
    at, types = 700_000, ["float", "float"]
    for name, shapes in (("aten::bmm", [[8, 64, 32], [8, 32, 64]]), ("aten::_softmax", [[8, 64, 64]]), ("aten::bmm", [[8, 64, 64], [8, 64, 32]])):
        t.op(name, at, 20_000, shapes=shapes, types=types[: len(shapes)])
        t.launch("k", at=at + 1_000, start=at + 60_000, duration=15_000)
        at += 20_000
    evidence = found(t, tmp_path)["unfused_attention"].evidence
    # THEN the sentence counts four chains in all, and three over the larger size
    assert ", 4 times; fused" in evidence and "above it: 8×256×256, 3 times." in evidence and "8×64×64" not in evidence


def test_a_softmax_over_another_matrix_is_no_attention(tmp_path: Path) -> None:
    # GIVEN the same three operators, but the softmax goes over a matrix of another size
    t = step(200_000)
    attention(t, 0)
    for event in t.events:
        if event["name"] == "aten::_softmax":
            event["args"]["Input Dims"] = [[8, 256, 100], [], []]  # type: ignore[index, call-overload]
    got = found(t, tmp_path)
    assert "unfused_attention" not in got and "gemm_above_limit" in got


def test_products_far_above_their_limit_are_a_finding(tmp_path: Path) -> None:
    # GIVEN a product of 2 * 512**3 FLOP (4.0 us at 66.9 TFLOP/s) that runs 100 us in FP32
    t = step(200_000)
    t.op("aten::mm", 0, 20_000, shapes=[[512, 512], [512, 512]], types=["float", "float"])
    t.launch("gemm", at=1_000, start=20_000, duration=100_000)
    finding = found(t, tmp_path)["gemm_above_limit"]
    assert finding.saving == pytest.approx(100_000 - 2 * 512**3 / H100_FP32 * 1e9, abs=2)
    assert "set_float32_matmul_precision" in finding.fix and "`aten::mm` over 512×512 512×512" in finding.evidence and set(finding.query) == {"t.ops.c.id"}


BF16 = "c10::BFloat16"
KINDS = {
    "elementwise": ("aten::relu", [[MILLION]], "float", None, 2 * 4 * MILLION / H100_BANDWIDTH),
    "other": ("aten::copy_", [[MILLION], [MILLION]], "float", None, 2 * 4 * MILLION / H100_BANDWIDTH),
    "norm": ("aten::_softmax", [[1024, 1024], [], []], "float", None, 2 * 4 * MILLION / H100_BANDWIDTH),
    "attention": (
        "aten::_scaled_dot_product_flash_attention", [[8, 16, 1024, 64]] * 3 + [[], []], BF16, ["", "", "", "0.", "False"],
        4 * 8 * 16 * 1024 * 1024 * 64 / H100_BF16,
    ),
    "conv": (
        "aten::cudnn_convolution", [[8, 64, 56, 56], [64, 64, 3, 3], [], [], [], []], "float", ["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"],
        2 * 8 * 64 * 56 * 56 * 64 * 9 / H100_FP32,
    ),
}  # fmt: skip
"""One call per kind of work: name, sizes, type, values, and its limit in s: two arrays through memory, or its FLOP at the peak."""


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("slow", [True, False])
def test_each_kind_of_work_has_one_finding_for_the_rest_above_its_limit(tmp_path: Path, kind: str, slow: bool) -> None:
    # GIVEN one call of a kind, 50 us above its limit or just at it
    name, shapes, dtype, values, limit = KINDS[kind]
    duration = round(limit * 1e9) + (50_000 if slow else 1)
    t = step(10_000 + duration)
    call(t, name, 10_000, duration, shapes, types=dtype, concrete=values)
    # THEN those 50 us are all there is to save
    finding = found(t, tmp_path).get(f"{kind}_above_limit")
    assert (finding.saving if finding else None) == (pytest.approx(50_000, abs=2) if slow else None)


def test_the_copies_of_a_sharded_model_are_not_for_a_compiler(tmp_path: Path) -> None:
    # GIVEN the copy that FSDP makes before it gathers, far above its limit
    t = step(600_000)
    call(t, "fsdp::split_with_sizes_copy", 10_000, 500_000, [[1 << 20], [], [], [[1 << 20]]], types="float", concrete=["", "", "", ""])
    got = [finding for rule, finding in found(t, tmp_path).items() if rule.endswith("_above_limit")]
    # THEN the advice is about sharding
    assert [finding.fix.partition("(")[0] for finding in got] == ["fully_shard"]


def test_exposed_copies_that_have_no_finding_of_their_own(tmp_path: Path) -> None:
    # GIVEN a copy of 100 us that nothing runs beside (too short to be a large one), and another that a kernel hides
    t = step()
    t.launch("k", at=1_000, start=1_000, duration=899_000)
    t.copy("HtoD", 200_000, 100_000, bytes=2_000_000, src="Pinned", call=(10_000, 1_000), stream=21)
    t.copy("HtoD", 900_000, 100_000, bytes=2_000_000, src="Pinned", call=(20_000, 1_000), stream=21)
    got = found(t, tmp_path)
    assert got["exposed_copies"].saving == 100_000 and "20.00\u202fGB/s" in got["exposed_copies"].evidence
    assert not [r for r in got if r.startswith("copies_")] and "non_blocking" in got["exposed_copies"].fix


def test_an_upload_that_no_other_step_repeats_is_not_the_next_batch(tmp_path: Path) -> None:
    # GIVEN three steps of 500 us, and 90 us of exposed upload in the first alone
    t = TraceBuilder()
    for i in range(3):
        t.step(i + 1, 500_000 * i, 500_000)
        t.launch("k", at=500_000 * i + 1_000, start=500_000 * i + 100_000, duration=390_000)
    t.copy("HtoD", 5_000, 90_000, bytes=2_000_000, src="Pinned", call=(2_000, 1_000), stream=21)
    finding = found(t, tmp_path)["exposed_copies"]
    # THEN the finding is only possible, and its advice speaks of no batch
    assert finding.candidate and "batch" not in finding.fix and finding.fix.startswith("# not in every step")


def test_a_large_exposed_copy_is_reported_once(tmp_path: Path) -> None:
    # GIVEN a pinned copy of 101 us beside nothing, and 20 us of a short one
    t = step()
    t.launch("k", at=1_000, start=0, duration=879_000)
    t.copy("DtoH", 879_000, 20_000, bytes=2_000_000, dst="Pinned", call=(10_000, 1_000), stream=21)
    t.copy("HtoD", 899_000, 101_000, bytes=2_000_000, src="Pinned", call=(20_000, 1_000), stream=21)
    got = found(t, tmp_path)
    # THEN the large one has its finding, the short one is what is left
    assert got["copies_exposed_HtoD"].saving == 101_000 and "19.80\u202fGB/s" in got["copies_exposed_HtoD"].evidence
    assert got["exposed_copies"].saving == 20_000 and "DtoH" in got["exposed_copies"].evidence


def test_the_copy_that_blocks_the_host_is_named_instead_of_the_wait(tmp_path: Path) -> None:
    # GIVEN .item() whose copy blocks the host in [100, 405) us, kernel [10, 390), copy [400, 402), next kernel [460, 1000) launched at 450
    t = step()
    t.op("aten::relu", 0, 5_000)
    t.launch("a", at=1_000, start=10_000, duration=380_000)
    t.op("aten::item", 95_000, 320_000)
    t.op("aten::_local_scalar_dense", 96_000, 318_000)
    t.copy("DtoH", 400_000, 2_000, bytes=4, dst="Pageable", call=(100_000, 305_000))
    t.launch("b", at=450_000, start=460_000, duration=540_000)
    got = found(t, tmp_path)
    # THEN the copy was queued when the kernel ended (a hand-over of 10 us), and the device is idle from 402 to 460 us: 58 us
    finding = got["copies_scalar_reads"]
    assert finding.saving == 58_000 and "`aten::item`" in finding.evidence and ".item()" in finding.fix
    assert "host_sync" not in got and got["host_wait"].saving == got["handover"].saving == 10_000


def test_gradients_that_are_copied_take_their_time_from_the_calls(tmp_path: Path) -> None:
    # GIVEN a copy of 50 us inside of AccumulateGrad, which a cost model covers
    t = step()
    t.launch("k", at=1_000, start=0, duration=950_000)
    t.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 10_000, 5_000)
    t.op("aten::copy_", 11_000, 3_000, shapes=[[1 << 20], [1 << 20], []], types=["float", "float", "Scalar"])
    t.copy("DtoD", 950_000, 50_000, bytes=4 << 20, call=(12_000, 1_000))
    got = found(t, tmp_path)
    finding = got["copies_gradient_copies"]
    # THEN all of it can go, and nothing of it is offered again
    assert finding.saving == 50_000 and finding.claimed.sum() == pytest.approx(50_000) and finding.candidate
    assert not {"exposed_copies", "other_above_limit", "elementwise_above_limit"} & set(got)


def test_findings_below_half_a_percent_of_the_step_are_left_out(tmp_path: Path) -> None:
    # GIVEN a step of 1 ms full of one kernel, but for 1 us
    t = step()
    t.launch("k", at=0, start=0, duration=999_000)
    assert found(t, tmp_path) == {}


def test_savings_are_per_step_and_the_evidence_says_over_how_many(tmp_path: Path) -> None:
    # GIVEN two steps of 100 us with 60 us of idle time each
    t = TraceBuilder()
    for n in range(2):
        t.step(n, 100_000 * n, 100_000)
        t.launch("k", at=100_000 * n, start=100_000 * n, duration=40_000)
    finding = found(t, tmp_path)["host_wait"]
    assert finding.saving == 60_000 and finding.evidence.startswith("In 2 steps: The GPU idles 120.0\u202fµs")


def test_a_recording_of_the_host_names_only_the_loading(tmp_path: Path) -> None:
    t = TraceBuilder(device="")
    t.step(1, 0, 1_000)
    t.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 100, 250)
    got = found(t, tmp_path)
    assert list(got) == ["input_wait"] and got["input_wait"].saving == 250
