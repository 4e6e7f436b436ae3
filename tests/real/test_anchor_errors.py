"""Numbers that other tools get wrong on the handed-in recordings, required right here.

Each row names its anchor (E-nn), the recording and the value; microseconds, tolerance 0.01 unless the row says otherwise.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Report
from tests.support.captures import capture, report

pytestmark = pytest.mark.real
T, H = "tracelens", "hta"
FILES = {
    "h100/owlv2": f"{T}/h100/google_owlv2-large-patch14-ensemble__1016001.json.gz",
    "h100/bert": f"{T}/h100/gaunernst_bert-small-uncased__1016001.json.gz",
    "h100/Qwen": f"{T}/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "b200": f"{T}/b200/eager_trace.json.gz",
    "mi300/bert": f"{T}/mi300/gaunernst_bert-small-uncased__1016001.json.gz",
    "triton": f"{T}/torch_compile_triton/trace.json.gz",
    "vllm": f"{T}/inference/vllm_decode_full/graph_execution.json.gz",
    "normalization": f"{T}/perf_model/normalization/normalization_layer_test.json.gz",
    "negative_queue": f"{H}/negative_queue_length_values_check/rank0.json.gz",
    "diff/control": f"{H}/trace_diff/control/control.json.gz",
    "diff/test": f"{H}/trace_diff/test/test.json.gz",
    "cuda_event_sync": f"{H}/critical_path/cuda_event_sync/event_sync_trace.json.gz",
    "simple_add": f"{H}/critical_path/simple_add/benchmark_result_493459_1694039959_trace.json.gz",
    "ns_resolution": f"{H}/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "nccl_data": f"{H}/nccl_parser_config/nccl_data.json.gz",
    "amd_trace": f"{H}/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "rank_unavailable": f"{H}/rank_unavailable/rank_not_found.json.gz",
    "inference_rank_1": f"{H}/trace_file_list/inference_rank_1.json.gz",
    "resnet50": "kineto/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz",
}


@pytest.fixture
def load(traces: Path):  # type: ignore[no-untyped-def]
    return lambda name: capture(traces / FILES[name])


def near(value: object) -> object:
    return pytest.approx(value, abs=0.01)


# -- 1: device time of operators --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("anchor", "name", "linked", "before_window"),
    [
        ("E-01", "h100/owlv2", 566_759.477, 0), ("E-02", "h100/bert", 309.437, 0), ("E-03", "b200", 11_665.760, 0),
        ("E-04", "h100/Qwen", 31_905.473, 13_741.827), ("E-05", "negative_queue", 390_237, 59_526), ("E-06", "diff/control", 501_567, 0),
        ("E-07", "diff/test", 907_245, 56_517), ("E-08", "cuda_event_sync", 51, 0), ("E-09", "simple_add", 49_816, 0),
        ("E-10", "ns_resolution", 472_454.441, 0), ("E-11", "nccl_data", 165_185.838, 0), ("E-12", "mi300/bert", 390.748, 0),
        ("E-13", "amd_trace", 149.042, 0), ("E-14", "triton", 12_549.021, 0), ("E-15", "vllm", 10_717.708, 0),
        ("E-16", "normalization", 1_018.632, 0), ("E-17", "resnet50", 603_558, 0),
    ],
)  # fmt: skip
def test_operators_hold_all_device_work(load, anchor: str, name: str, linked: float, before_window: float) -> None:  # type: ignore[no-untyped-def]
    # GIVEN a recording on which other tools lose device time
    answer = report(load(name), "operators")
    table, facts = answer.table("operators"), answer.facts
    # THEN operators and "no operator" hold the linked work, and work launched before the window has its own row
    whole = float(table["device_self_ns"].sum()) / 1e3
    before = float(facts["before_window_ns"] or 0) / 1e3  # type: ignore[arg-type]
    assert before == near(before_window) and whole - before == near(linked), anchor


# -- 2: modules and backward ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("anchor", "name", "modules", "device_us"),
    [
        ("E-21", "h100/owlv2", ("Owlv2ForObjectDetection_0",), 552_216.162), ("E-22", "h100/bert", ("BertLMHeadModel_0",), 309.437),
        ("E-23", "b200", ("GptOssForCausalLM_0",), 11_575.199), ("E-24", "vllm", ("LogitsProcessor_0",), 276.678),
        ("E-25", "h100/Qwen", ("Qwen2Model_0",), 31_905.473), ("E-26", "normalization", ("Net_0", "MSELoss_0"), 474.553),
    ],
)  # fmt: skip
def test_module_device_time(load, anchor: str, name: str, modules: tuple[str, ...], device_us: float) -> None:  # type: ignore[no-untyped-def]
    # GIVEN a recording with module calls WHEN device time is attributed by launch THEN driver launches count and nothing is given away
    table = report(load(name), "modules").table("modules")
    rows = table[table["name"].isin(modules)]
    assert len(rows) >= len(modules), f"{anchor}: {sorted(table['name'].head(5))}"
    assert float(rows["device_total_ns"].sum()) / 1e3 == pytest.approx(device_us, abs=0.05), anchor


def test_modules_have_backward_time(load) -> None:  # type: ignore[no-untyped-def]
    # GIVEN E-26: a recording whose backward other tools leave out of the module table
    table = report(load("normalization"), "modules").table("modules")
    assert float(table["backward_device_ns"].fillna(0).sum()) > 0


@pytest.mark.parametrize(
    ("anchor", "name", "links"),
    [
        ("E-29", "nccl_data", 543), ("E-29", "ns_resolution", 905), ("E-29", "normalization", 51), ("E-29", "amd_trace", 4),
        ("E-30", "negative_queue", 345), ("E-30", "diff/control", 2_382), ("E-30", "diff/test", 738),
    ],
)  # fmt: skip
def test_backward_links(load, anchor: str, name: str, links: int) -> None:  # type: ignore[no-untyped-def]
    # GIVEN flows under a new name, or none at all THEN every backward number finds its forward operator
    assert report(load(name), "links").facts["backward_linked"] == links, anchor


# -- 3: steps, metrics, other views -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("anchor", "name", "steps", "complete"),
    [("E-31", "h100/Qwen", [6], [True]), ("E-31", "h100/bert", [6], [True]), ("E-31", "mi300/bert", [6], [True]),
     ("E-32", "amd_trace", [1, 2], [True, False])],
)  # fmt: skip
def test_steps_are_those_of_the_host(load, anchor: str, name: str, steps: list[int], complete: list[bool]) -> None:  # type: ignore[no-untyped-def]
    # GIVEN a GPU copy of a step's annotation THEN it is no step; an unfinished last step is marked, not dropped
    table = report(load(name), "steps").table("steps")
    assert (table["step"].tolist(), table["complete"].tolist()) == (steps, complete), anchor


@pytest.mark.parametrize(
    ("anchor", "name", "total", "busy"),
    [("E-33", "inference_rank_1", 1_629, 30), ("E-39", "triton", 12_939.993, None)],
)
def test_one_pseudo_step(load, anchor: str, name: str, total: float, busy: float | None) -> None:  # type: ignore[no-untyped-def]
    # GIVEN a recording without ProfilerStep THEN it has one pseudo-step, as long as all complete events reach
    c = load(name)
    assert c.facts.pseudo_step and len(c.steps) == 1, anchor
    if busy is None:
        low, high = c.facts.extent_ns
        assert (high - low) / 1e3 == near(total) == float(c.steps["end_ns"].iloc[0] - c.steps["start_ns"].iloc[0]) / 1e3
    else:
        row = report(c, "gpu_breakdown").table("devices").set_index("device").loc["all"]
        assert (float(row["total_ns"]) / 1e3, float(row["busy_ns"]) / 1e3) == (near(total), near(busy))


@pytest.mark.parametrize(("anchor", "name", "value"), [("E-38", "vllm", 0.5585), ("E-39", "triton", 0.9698)])
def test_kernel_utilization(load, anchor: str, name: str, value: float) -> None:  # type: ignore[no-untyped-def]
    # GIVEN work by graphs and drivers THEN utilization is that of the device, not of what one call could claim
    facts = report(load(name), "gpu_breakdown").facts
    assert facts["kernel_utilization"] == pytest.approx(value, abs=5e-5), anchor


def test_kernels_by_operator_hold_all_kernels(load) -> None:  # type: ignore[no-untyped-def]
    # GIVEN E-34 WHEN kernels are grouped by operator THEN their sum is that of all kernels
    table = report(load("h100/owlv2"), "kernels", group_by="name_op").table("kernels")
    assert float(table["total_ns"].sum()) / 1e3 == near(551_451.628)


def test_tensor_cores_are_known_by_today(load) -> None:  # type: ignore[no-untyped-def]
    # GIVEN E-36: a B200, whose kernels have new names (bmm_*, nvjet_*, fmhaSm100aKernel_*)
    c = load("b200")
    table = report(c, "kernels").table("kernels")
    on = table["tensor_core"].fillna(False).astype(bool)
    # THEN more than 60 % of computing kernel time is on tensor cores; the all-reduces are no computation
    communication = float(c.device.loc[c.device["communication"], "duration_ns"].sum())
    assert float(table.loc[on, "total_ns"].sum()) / (float(table["total_ns"].sum()) - communication) > 0.60
    assert on[table["name"].str.match("bmm_|nvjet_|fmhaSm100aKernel_")].all()


@pytest.mark.parametrize("name", ["mi300/bert", "vllm", "triton"])
def test_no_advice_to_use_amp(load, name: str) -> None:  # type: ignore[no-untyped-def]
    # GIVEN E-37: models that run in bf16 on matrix units THEN no finding asks for mixed precision
    c = load(name)
    for finding in report(c, "overview").findings:
        assert "amp" not in finding.rule.lower() and "autocast" not in finding.fix.lower()


@pytest.mark.parametrize(("name", "instants"), [("mi300/bert", 234), ("normalization", 415)])
def test_hip_memory_is_read(load, name: str, instants: int) -> None:  # type: ignore[no-untyped-def]
    # GIVEN E-40: instants of device type 6 (HIP) THEN they are all there
    memory = load(name).tables["memory"]
    assert int((memory["device_type"] == 6).sum()) == instants


def test_a_recording_without_host_events_has_an_empty_tree_with_a_reason(load) -> None:  # type: ignore[no-untyped-def]
    # GIVEN E-41: kernels and calls only
    answer = load("inference_rank_1").analyze("operators")
    assert not isinstance(answer, Report) and answer.because and answer.record_it_with


def test_children_are_not_dropped_by_rounding(load) -> None:  # type: ignore[no-untyped-def]
    # GIVEN E-48: absolute times with nanosecond digits THEN no operator's end lies behind its parent's, and all are kept
    c = load("ns_resolution")
    assert int((c.host["kind"] == S.OPERATOR).sum()) == 23_910 and not c.host["clipped"].any()


# -- 4 and 5: breakdowns ----------------------------------------------------------------------------------------


def whole(c: Capture, rule: str = "narrow", scope: str = "all") -> dict[str, float]:
    row = report(c, "gpu_breakdown", communication_rule=rule, scope=scope).table("devices").set_index("device").loc["all"]
    return {k: float(v) / 1e3 for k, v in row.items() if str(k).endswith("_ns")}


@pytest.mark.parametrize(
    ("anchor", "name", "expected"),
    [
        ("E-60", "h100/bert", {"computation_ns": 307.197, "idle_ns": 3_598.388}),
        ("E-61", "mi300/bert", {"computation_ns": 388.344, "idle_ns": 3_105.228}),
        ("E-62", "amd_trace", {"computation_ns": 110.881, "idle_ns": 8_762.845}),
        ("E-63", "b200", {"computation_ns": 10_771.685, "idle_ns": 72_890.696}),
        ("E-64", "h100/owlv2", {"idle_ns": 511_528.902}),
        ("E-65", "vllm", {"computation_ns": 10_674.517, "idle_ns": 25.473}),
        ("E-67", "h100/Qwen", {"busy_ns": 45_647.300, "total_ns": 49_652.832, "idle_ns": 4_005.532}),
        ("E-70", "simple_add", {"total_ns": 16_025_575, "idle_ns": 15_975_817, "memcpy_ns": 39_080}),
        ("E-71", "cuda_event_sync", {"memcpy_ns": 2, "idle_ns": 212}),
        ("E-73", "nccl_data", {"total_ns": 660_551.005, "computation_ns": 116_046.564}),
        ("E-91", "normalization", {"computation_ns": 1_018.632}),
        ("E-92", "negative_queue", {"busy_ns": 438_424, "communication_ns": 187_870}),
        ("E-93", "diff/test", {"busy_ns": 717_943, "idle_ns": 27_296}),
    ],
)  # fmt: skip
def test_breakdown(load, anchor: str, name: str, expected: dict[str, float]) -> None:  # type: ignore[no-untyped-def]
    # GIVEN a recording on which rounding, sync records or lost launches spoil the breakdown THEN it is right to the nanosecond
    row = whole(load(name))
    assert {k: row[k] for k in expected} == {k: near(v) for k, v in expected.items()}, anchor


def test_matrix_kernels_alone(load) -> None:  # type: ignore[no-untyped-def]
    # GIVEN E-66: kernels without memsets
    c = load("normalization")
    kernels = c.device[c.device["kind"] == S.KERNEL]
    assert float(kernels["duration_ns"].sum()) / 1e3 == pytest.approx(991.996, abs=0.01)


@pytest.mark.parametrize(("anchor", "name", "percent"), [("E-73", "nccl_data", 15.6735), ("E-74", "diff/test", 71.2108)])
def test_overlap(load, anchor: str, name: str, percent: float) -> None:  # type: ignore[no-untyped-def]
    row = whole(load(name))
    assert 100 * row["overlap_ns"] / row["communication_ns"] == pytest.approx(percent, abs=5e-5), anchor


def test_multimem_is_communication(load) -> None:  # type: ignore[no-untyped-def]
    # GIVEN E-103: an all-reduce whose name has neither nccl nor rccl WHEN the wide rule is used
    row = whole(load("b200"), rule="wide")
    # THEN it is communication, and busy and idle are unchanged
    assert row["communication_ns"] == near(2_141.501) and row["computation_ns"] == near(8_652.137)
    assert row["busy_ns"] == near(11_596.482) and row["idle_ns"] == near(72_890.696)


def test_new_nccl_names_are_communication(load) -> None:  # type: ignore[no-untyped-def]
    # GIVEN E-76 THEN kernels spelled ncclDevKernel_* are found
    for name in ("nccl_data", "b200"):
        c = load(name)
        mine = c.device["name"].astype(str).str.startswith("nccl")
        assert mine.any() and c.device.loc[mine, "communication"].all()


def test_one_product_is_counted_once(load) -> None:  # type: ignore[no-untyped-def]
    # GIVEN E-94: a sheet of 146 products, each with a wrapper operator around it, 155.961803 GFLOP and 2,461.111 us THEN they are half
    table = report(load("vllm"), "roofline", by="op_shape").table("ops")
    rows = table[table["kind"].str.contains("gemm", case=False) & ~table["name"].str.contains("moe")]  # the sheet has no products of experts
    assert int(rows["calls"].sum()) == 73 and float(rows["flop"].sum()) / 1e9 == pytest.approx(155.961803 / 2, rel=1e-4)  # adds of a bias are no product
    assert float(rows["measured_ns"].sum()) / 1e3 == pytest.approx(2_461.111 / 2, rel=1e-4)


def test_convolution_without_bias(load) -> None:  # type: ignore[no-untyped-def]
    # GIVEN E-99: a patch convolution that has no bias THEN none is counted
    table = report(load("h100/owlv2"), "roofline", by="op_shape").table("ops")
    rows = table[table["kind"].str.contains("conv", case=False)]
    assert int(rows["calls"].sum()) == 5
    assert float(rows["flop"].sum()) / 5e9 == pytest.approx(6.242697216, rel=1e-6)


def test_rates_are_totals(load) -> None:  # type: ignore[no-untyped-def]
    # GIVEN E-100: 141x2048x512 on MI300 THEN the rate is total over total
    table = report(load("mi300/bert"), "roofline", by="op_shape").table("ops")
    chosen = table[(table["name"] == "aten::addmm") & (table["input_shapes"] == "2048 141×512 512×2048")]
    rate = float(chosen["flop"].sum()) / float(chosen["measured_ns"].sum()) / 1e3
    # 2 x 141 x 2048 x 512 FLOP in each of 4 calls of 33.794 us together: a bias is bytes here, the anchor's 35.03 has its add
    assert rate == pytest.approx(4 * 2 * 141 * 2048 * 512 / 33_794 / 1e3, rel=1e-9)
    assert float(chosen["achieved_flop_per_s"].iloc[0]) / 1e12 == pytest.approx(rate, rel=1e-9)


def test_graph_kernels_have_rows_of_their_own(load) -> None:  # type: ignore[no-untyped-def]
    # GIVEN E-109: 421 kernels under one graph launch THEN each is kept, under the launch, and the kernel table names them
    c = load("vllm")
    assert int(c.device["graph"].sum()) == 421 and c.device.loc[c.device["graph"], "call"].nunique() == 1
    assert len(report(c, "kernels").table("kernels")) > 1


@pytest.mark.parametrize(("name", "rank"), [("rank_unavailable", None), ("inference_rank_1", 1)])
def test_missing_ranks_load(load, name: str, rank: int | None) -> None:  # type: ignore[no-untyped-def]
    # GIVEN E-78 and E-81: no rank in the header THEN it is the file name's, or unknown, never 0
    assert load(name).facts.rank == rank


def test_what_a_graph_replays_has_the_operators_of_its_capture(load) -> None:  # type: ignore[no-untyped-def]
    # GIVEN E-82: one graph launch of 421 kernels, 10,388.482 of 10,717.708 us, with the recording of the capture beside it
    c = load("vllm")
    # WHEN it is opened THEN the launch is aligned in order and 97 % and more of the device time has an operator and a module
    (launch,) = c.tables["graph_launches"].to_dict("records")
    assert (launch["how"], launch["events"], launch["captured_batch"], launch["device_ns"]) == (0, 421, 32, 10_388_482)
    time = c.device["duration_ns"].to_numpy()
    for owner in ("operator", "module"):
        assert time[c.device[owner].to_numpy() >= 0].sum() >= 0.97 * time.sum()
    table = report(c, "modules").table("modules").set_index("name")["device_total_ns"]
    # and E-38: the recording lasts 19,114.059 us; its one iteration is a step, which says what it decoded
    assert c.facts.extent_ns[1] - c.facts.extent_ns[0] == 19_114_059
    (step,) = c.steps.to_dict("records")
    assert (step["kind"], step["requests"], step["context_tokens"], step["generation_tokens"]) == ("decode", 32, 0, 32)
    assert (step["batch"], step["key_tokens"], step["device_events"], step["complete"]) == (32, 55_086, 434, True)
    assert table["GptOssForCausalLM_0"] == 10_388_482 and table["LogitsProcessor_0"] == 276_678
