"""Findings on recordings of real programs: what must be said, what must not, and how large it may be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin.metrics.rules.engine import Finding
from tb_sol_plugin.metrics.rules.time import time_findings
from tb_sol_plugin.metrics.time.breakdown import CAUSES, gaps, host_idle
from tb_sol_plugin.metrics.time.scope import extent, scope
from tb_sol_plugin.metrics.time.waterfall import Waterfall, waterfall
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables import intervals as iv
from tests.support.captures import capture

pytestmark = pytest.mark.real
T, H = "tracelens", "hta"
FILES = {
    "owlv2": f"{T}/h100/google_owlv2-large-patch14-ensemble__1016001.json.gz",
    "bert": f"{T}/h100/gaunernst_bert-small-uncased__1016001.json.gz",
    "Qwen": f"{T}/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "b200": f"{T}/b200/eager_trace.json.gz",
    "mi300/bert": f"{T}/mi300/gaunernst_bert-small-uncased__1016001.json.gz",
    "triton": f"{T}/torch_compile_triton/trace.json.gz",
    "vllm": f"{T}/inference/vllm_decode_full/graph_execution.json.gz",
    "normalization": f"{T}/perf_model/normalization/normalization_layer_test.json.gz",
    "negative_queue": f"{H}/negative_queue_length_values_check/rank0.json.gz",
    "control": f"{H}/trace_diff/control/control.json.gz",
    "test": f"{H}/trace_diff/test/test.json.gz",
    "event_sync": f"{H}/critical_path/cuda_event_sync/event_sync_trace.json.gz",
    "simple_add": f"{H}/critical_path/simple_add/benchmark_result_493459_1694039959_trace.json.gz",
    "ns_resolution": f"{H}/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "nccl_data": f"{H}/nccl_parser_config/nccl_data.json.gz",
    "amd_trace": f"{H}/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "mtia": f"{H}/mtia_trace_single_rank/mtia_rank_0.json.gz",
    "inference_rank_1": f"{H}/trace_file_list/inference_rank_1.json.gz",
    "cpu": f"{H}/rank_non_gpu/rank_non_gpu.json.gz",
    "resnet50": "kineto/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz",
}
Found = tuple[dict[str, Finding], Waterfall]


@pytest.fixture(scope="module")
def found(traces: Path) -> Callable[[str], Found]:
    def of(name: str) -> Found:
        c = capture(traces / FILES[name])
        part = scope(c, Query())
        fall = waterfall(c, part)
        return {f.id: f for f in time_findings(c, part, fall)}, fall

    return of


@pytest.mark.parametrize("name", [n for n in FILES if n != "cpu"])
def test_the_host_is_blamed_for_no_gap_that_the_device_explains(traces: Path, found: Callable[[str], Found], name: str) -> None:
    # GIVEN the gaps of a recording by cause, as the page of GPU time has them: by when the next work was launched
    c = capture(traces / FILES[name])
    every = gaps(c, np.ones(len(c.device), np.bool_))
    alone = len(c.device["device"].unique()) == 1
    start, stop = c.device["start_ns"].to_numpy(), (c.device["start_ns"] + c.device["duration_ns"]).to_numpy()
    edges = iv.merge(iv.one(extent(c)[0], int(start.min())), iv.one(int(stop.max()), extent(c)[1]))
    call = c.device["call"].to_numpy()[every["next"]]
    same = (call >= 0) & (c.host["start_ns"].to_numpy()[np.maximum(call, 0)] == every["start_ns"])  # recordings in whole microseconds
    late = every[(every["cause"] == CAUSES.index("host_wait")) | same]
    allowed = iv.merge(iv.union(late["start_ns"], late["start_ns"] + late["duration_ns"]), edges)
    # THEN the host answers for none of which the next work was launched before, or without a launch record
    assert not alone or not iv.length(iv.subtract(host_idle(c), allowed))
    # AND the findings about it take no more than that
    got, fall = found(name)
    blaming = sum(got[r].saving for r in ("input_wait", "warm_up", "device_allocation", "host_sync", "launch_bound", "host_wait") if r in got)
    assert blaming * fall.steps <= iv.length(iv.intersect(fall.windows, host_idle(c))) + 6 * fall.steps


@pytest.mark.parametrize(("name", "first"), [
    ("owlv2", "input_wait"), ("bert", "launch_bound"), ("mi300/bert", "launch_bound"), ("b200", "launch_bound"), ("Qwen", "fusable_chains"),
    ("normalization", "warm_up"), ("simple_add", "warm_up"), ("amd_trace", "warm_up"), ("control", "exposed_communication"),
    ("resnet50", "fp32_matrix"), ("nccl_data", "launch_bound"), ("triton", "gemm_above_limit"), ("negative_queue", "exposed_communication"),
])  # fmt: skip
def test_the_first_thing_to_fix(found: Callable[[str], Found], name: str, first: str) -> None:
    assert next(iter(found(name)[0])) == first


def test_a_detector_that_loads_in_its_own_process_and_writes_its_scores(found: Callable[[str], Found]) -> None:
    # GIVEN six batches loaded in the training process, and 16 heads over 5185 patches
    got, fall = found("owlv2")
    assert got["input_wait"].saving == fall.input_wait_ns and "num_workers" in got["input_wait"].fix
    # THEN attention is told from 120 image layers and 60 text layers; softmax and products take 491.7 ms of the image layers alone
    attention = got["unfused_attention"]
    assert ", 180 times" in attention.evidence and "16×5185×5185, 120 times" in attention.evidence and 470e6 < attention.saving < 492e6
    # AND the products it takes are not told again that their rows are odd
    assert "misaligned_products" not in got and "norm_above_limit" not in got


@pytest.mark.parametrize("name", ["mi300/bert", "vllm", "triton", "owlv2", "Qwen", "b200", "bert"])
def test_models_in_bf16_are_not_told_to_leave_fp32(found: Callable[[str], Found], name: str) -> None:
    got, _ = found(name)
    assert not {"fp32_matrix", "plain_units"} & set(got)
    assert not any("autocast" in f.fix or "matmul_precision" in f.fix for f in got.values())


@pytest.mark.parametrize("name", ["inference_rank_1", "cpu"])
def test_no_advice_without_ground(found: Callable[[str], Found], name: str) -> None:
    # GIVEN four kernels without operators; a recording of the host without limits THEN nothing is said
    assert found(name)[0] == {}


def test_a_resnet_in_fp32_on_a_v100(found: Callable[[str], Found]) -> None:
    # GIVEN convolutions on plain units of a V100, which has FP16 matrix units and neither TF32 nor BF16
    got, fall = found("resnet50")
    fp32 = got["fp32_matrix"]
    assert "float16" in fp32.fix and "in FP16" in fp32.evidence and "TF32" not in fp32.evidence and "BF16" not in fp32.evidence
    assert fp32.saving <= (fall.kind_ns["conv"] + fall.kind_ns["gemm"]) / fall.steps
    # AND its optimizer: SGD with momentum over the 25 557 032 parameters of a ResNet-50
    assert "25\u202f557\u202f032 elements" in got["unfused_optimizer"].evidence and "5 arrays" in got["unfused_optimizer"].evidence


def test_a_data_parallel_step_without_shapes(found: Callable[[str], Found]) -> None:
    # GIVEN a recording without shapes THEN communication and layout kernels are seen all the same, and nothing that needs a limit
    got, fall = found("nccl_data")
    # AND what is exposed is told once, the broadcasts of buffers by their own finding
    told = [got[rule].events_ns.sum() for rule in ("exposed_communication", "buffer_broadcasts")]
    assert sum(told) == fall.exposed_communication_ns
    assert "channels_last" in got["layout_kernels"].fix and "nchwToNhwcKernel" in got["layout_kernels"].evidence
    assert not any(r.endswith("_above_limit") for r in got)


@pytest.mark.parametrize("name", ["mi300/bert", "triton", "amd_trace", "normalization", "vllm"])
def test_amd_devices_are_spoken_of_in_their_words(found: Callable[[str], Found], name: str) -> None:
    text = " ".join(f"{f.title} {f.evidence} {f.fix}" for f in found(name)[0].values())
    assert not any(word in text for word in ("cuBLAS", "cuDNN", "Tensor Core", "CUDA graphs", "CUDNN_ATTENTION", "TF32", " SMs"))


@pytest.mark.parametrize("name", FILES)
def test_old_recommendations_that_make_no_sense_are_not_repeated(found: Callable[[str], Found], name: str) -> None:
    text = " ".join(f"{f.title} {f.evidence} {f.fix}" for f in found(name)[0].values())
    assert "batch size" not in text and "memory usage" not in text
    # AND no device is told to use the module of torch that belongs to others
    assert name != "mtia" or ("torch.cuda" not in text and "torch.mtia" in text)
