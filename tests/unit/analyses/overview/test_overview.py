"""The overview: the answer in words and numbers, the waterfall, and what it says where something is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import FactsSection, FigureSection, Report, TableSection
from tb_sol_plugin.units import side_by_side
from tests.support.captures import answered, capture
from tests.support.recordings import JSON, over, path_of
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back, training

NARROW = "\u202f"
H100_FP32, H100_BF16, H100_BANDWIDTH = 66.9e12, 989.4e12, 3.35e12


def overview(c: Capture, **query: str) -> Report:
    answer = c.analyze("overview", **query)
    assert isinstance(answer, Report), answer
    return answer


def plain(text: str) -> str:
    return text.replace(NARROW, " ").replace("**", "")


def one_step(length: int = 1_000_000, device: str = "NVIDIA H100 80GB HBM3") -> TraceBuilder:
    t = TraceBuilder(device=device)
    t.step(1, 0, length)
    return t


def product(t: TraceBuilder, *, at: int, start: int, duration: int, n: int = 512, dtype: str = "float", name: str = "aten::mm") -> None:
    """A product of n x n matrices whose kernel runs `duration` from `start`."""
    t.op(name, at, 5_000, shapes=[[n, n], [n, n]], types=[dtype, dtype])
    t.launch("gemm", at=at + 1_000, start=start, duration=duration)


def facts_of(answer: Report, section_id: str) -> FactsSection:
    section = answer.section(section_id)
    assert isinstance(section, FactsSection)
    return section


def table_of(answer: Report, section_id: str) -> TableSection:
    section = answer.section(section_id)
    assert isinstance(section, TableSection)
    return section


# -- the numbers ------------------------------------------------------------------------------------------------


def test_the_ratio_is_busy_times_efficiency(tmp_path: Path) -> None:
    # GIVEN one step of 1 ms with one product of 2 * 512**3 FLOP that runs 200 us on an H100 (66.9 TFLOP/s in FP32)
    t = one_step()
    product(t, at=0, start=100_000, duration=200_000)
    answer = overview(read_back(t, tmp_path))
    facts = answer.facts
    limit = 2 * 512**3 / H100_FP32 * 1e9
    assert facts["gpu_busy"] == 0.2 and facts["modelled_share"] == 1.0
    assert facts["efficiency_while_busy"] == pytest.approx(limit / 200_000, rel=1e-6)
    assert facts["speed_of_light"] == pytest.approx(0.2 * limit / 200_000, rel=1e-6)
    # THEN model and hardware FLOP utilization are the same, as nothing is recomputed, and only one of them is shown
    assert facts["mfu"] == facts["hfu"] == pytest.approx(limit / 1e6, rel=1e-6)
    assert "hfu" in facts_of(answer, "answer").hidden
    # the product reads two matrices and writes one: 3 * 512**2 * 4 bytes
    assert facts["bandwidth_utilisation"] == pytest.approx(3 * 512**2 * 4 / (1e-3 * H100_BANDWIDTH))
    assert facts["traffic_bytes"] == 3 * 512**2 * 4
    assert facts["compute_limit_ns"] == round(limit) and facts["memory_limit_ns"] == 0


def test_every_number_of_the_headline_has_its_formula(tmp_path: Path) -> None:
    # GIVEN two products in BF16, of 2 * 4096**3 FLOP each, in a step of 1 ms
    t = one_step()
    for i in range(2):
        product(t, at=i * 10_000, start=100_000 + i * 200_000, duration=200_000, n=4096, dtype="c10::BFloat16")
    section = facts_of(overview(read_back(t, tmp_path)), "answer")
    docs = {k: plain(v) for k, v in section.docs.items()}
    # THEN the values stand in the formulas: 2 * 137.4 GFLOP, 2 * 138.9 us at 989.4 TFLOP/s, and the rate that products reach
    assert "277.8 µs / 1.00 ms" in docs["speed_of_light"] and "an H100 SXM" in docs["speed_of_light"]
    assert "At the rates that products reach in practice (bf16 794.0 TFLOP/s): 34.6 %, 346.2 µs." in docs["speed_of_light"]
    assert "274.9 GFLOP / 989.4 TFLOP/s of bf16 / 1.00 ms." in docs["mfu"]
    assert "400.0 µs / 1.00 ms" in docs["gpu_busy"] and "277.8 µs / 400.0 µs" in docs["efficiency_while_busy"]
    assert "201.3 MB / (1.00 ms × 3.35 TB/s)" in docs["bandwidth_utilisation"]
    assert section.values["speed_of_light_achievable"] == pytest.approx(2 * 2 * 4096**3 / 794e12 / 1e-3, rel=1e-3)


def test_the_formula_of_several_types_adds_their_times(tmp_path: Path) -> None:
    # GIVEN a product of 2 * 4096**3 FLOP in BF16 and one of 2 * 512**3 FLOP in FP32
    t = one_step()
    product(t, at=0, start=100_000, duration=200_000, n=4096, dtype="c10::BFloat16")
    product(t, at=10_000, start=300_000, duration=200_000)
    section = facts_of(overview(read_back(t, tmp_path)), "answer")
    said = plain(section.docs["mfu"])
    assert "(137.4 GFLOP / 989.4 TFLOP/s of bf16 + 268.4 MFLOP / 66.90 TFLOP/s of fp32) / 1.00 ms." in said
    assert section.values["mfu"] == pytest.approx((2 * 4096**3 / H100_BF16 + 2 * 512**3 / H100_FP32) / 1e-3)


def test_recomputed_work_counts_for_the_hardware_only(tmp_path: Path) -> None:
    # GIVEN a forward product, and the same product run again below a node of the backward pass, 200 us each
    t = one_step()
    t.op("aten::mm", 0, 5_000, shapes=[[512, 512], [512, 512]], types=["float", "float"], sequence=1)
    t.launch("gemm", at=1_000, start=100_000, duration=200_000)
    back = {"thread": 77, "sequence": 1, "forward_thread": 1}
    t.op("autograd::engine::evaluate_function: CheckpointFunctionBackward", 400_000, 300_000, **back)
    t.op("CheckpointFunctionBackward", 401_000, 298_000, **back)
    t.op("aten::mm", 410_000, 50_000, thread=77, sequence=2, shapes=[[512, 512], [512, 512]], types=["float", "float"])
    t.launch("gemm", at=420_000, start=500_000, duration=200_000, thread=77)
    answer = overview(read_back(t, tmp_path))
    limit = 2 * 512**3 / H100_FP32 * 1e9
    assert answer.facts["mfu"] == pytest.approx(limit / 1e6) and answer.facts["hfu"] == pytest.approx(2 * limit / 1e6)
    assert answer.facts["recompute_ns"] == 200_000 and facts_of(answer, "answer").labels["hfu"] == "HFU"
    # THEN the waterfall has its time above the limit, and its limit, as parts of their own
    parts = answer.table("parts").set_index("part")["time_ns"]
    assert parts["Recomputed work above limit"] == round(200_000 - limit) == parts["GEMM above limit"]
    assert parts["Speed of light, recomputed"] == round(limit) == parts["Speed of light, compute-bound"]
    assert parts.iloc[1:].sum() == pytest.approx(parts.iloc[0], abs=len(parts))
    shown = answer.table("operators").set_index("name")
    assert shown.loc["aten::mm", "recompute"] == 0.5


# -- the sentence -----------------------------------------------------------------------------------------------


def test_the_loading_of_input_limits_and_its_fix_is_the_first(tmp_path: Path) -> None:
    # GIVEN a step of 1 ms that loads for 600 us while the device idles, and a product of 300 us
    t = one_step()
    t.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 600_000)
    product(t, at=600_000, start=610_000, duration=300_000)
    said = plain(overview(read_back(t, tmp_path)).headline)
    assert said == (
        "Step 1 takes 1.00 ms; the same work at the limits of an H100 SXM takes 0.00401 ms. "
        "The GPU waits 60 % of the step for input; fixing that saves 600.0 µs."
    )


def test_launch_overhead_is_named_as_what_limits(tmp_path: Path) -> None:
    # GIVEN twenty kernels of 5 us, each launched 40 us after the end of the one before
    t = one_step(20 * 50_000)
    for i in range(20):
        product(t, at=i * 50_000, start=i * 50_000 + 2_000, duration=5_000, n=64)
    said = plain(overview(read_back(t, tmp_path)).headline)
    assert "The GPU waits 90 % of the step for the host to launch the next kernel; " in said and " saves " in said


def test_a_blocked_host_is_named_as_what_limits(tmp_path: Path) -> None:
    # GIVEN a host that sits in cudaFree for most of the step, and a kernel after it
    t = one_step()
    product(t, at=0, start=10_000, duration=10_000)
    t.call("cudaFree", 20_000, 900_000)
    product(t, at=925_000, start=930_000, duration=70_000)
    assert "of the step while the host is blocked in runtime calls" in plain(overview(read_back(t, tmp_path)).headline)


def test_work_that_starts_late_is_no_wait_for_the_host(tmp_path: Path) -> None:
    # GIVEN a second kernel that is launched at 15 us, while the first one runs, and starts at 900 us; the host in a copy all the while
    t = one_step()
    product(t, at=0, start=10_000, duration=10_000)
    product(t, at=15_000, start=900_000, duration=100_000)
    t.call("cudaMemcpyAsync", 18_000, 950_000)
    got = overview(read_back(t, tmp_path))
    # THEN the headline does not name the host, the waterfall has the wait as a part of its own, and no finding takes it
    assert "The GPU waits 89 % of the step, mostly for something other than the host." in plain(got.headline)
    parts = dict(zip(got.table("parts")["part"], got.table("parts")["time_ns"], strict=True))
    assert parts["GPU waits, not for the host"] == 880_000
    assert sum(f.saving_ns or 0 for f in got.findings) <= 120_000


def test_a_graph_that_starts_late_is_named(tmp_path: Path) -> None:
    # GIVEN a kernel until 20 us, and a graph that is launched at 15 us and starts at 900 us; the host in a copy all the while
    t = one_step()
    product(t, at=0, start=10_000, duration=10_000)
    t.launch("replayed", at=15_000, start=900_000, duration=100_000, api="cudaGraphLaunch")
    t.call("cudaMemcpyAsync", 18_000, 950_000)
    got = overview(read_back(t, tmp_path))
    # THEN the time from the call to the first event is a part of its own, and the sentence names what the device waits for
    parts = dict(zip(got.table("parts")["part"], got.table("parts")["time_ns"], strict=True))
    assert parts["Graph launch latency"] == 880_000 and "GPU waits, not for the host" not in parts
    assert "The GPU waits 89 % of the step for a graph to start after its launch" in plain(got.headline)


def test_a_cause_of_most_of_the_waiting_is_called_that(tmp_path: Path) -> None:
    # GIVEN twenty kernels of 5 us with 45 us of launching before each, 900 us in all, and then 300 us of which nothing is recorded
    t = one_step(20 * 50_000 + 300_000)
    for i in range(20):
        product(t, at=i * 50_000, start=i * 50_000 + 45_000, duration=5_000, n=64)
    assert "The GPU waits 92 % of the step for the host, mostly for its next launch" in plain(overview(read_back(t, tmp_path)).headline)


def test_copies_are_named_as_what_limits(tmp_path: Path) -> None:
    t = one_step()
    t.copy("HtoD", 0, 800_000, bytes=8_000_000, src="Pageable", call=(0, 2_000))
    product(t, at=5_000, start=800_000, duration=200_000)
    t.call("cudaDeviceSynchronize", 6_000, 994_000)  # without the copy the product would start with its launch, at 6 us
    assert "For 80 % of the step the GPU only copies. The first fix saves 794.0 µs: data is loaded from pageable memory." in plain(
        overview(read_back(t, tmp_path)).headline
    )


def test_the_largest_finding_about_copies_has_a_line_of_its_own(tmp_path: Path) -> None:
    # GIVEN a step of 10 ms: 2 ms of loading, 2 ms of communication alone, 0.9 ms in cudaMalloc, 0.3 ms of waiting, 0.15 ms of a copy alone
    t = one_step(10_000_000)
    t.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 0, 2_000_000)
    t.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", at=1_990_000, start=2_000_000, duration=2_000_000, stream=20)
    t.launch("a", at=1_995_000, start=4_000_000, duration=500_000)
    t.launch("a", at=1_995_500, start=4_500_000, duration=500_000)  # kernels need no gap between them
    t.call("cudaStreamSynchronize", 1_996_000, 3_004_000)
    t.call("cudaMalloc", 5_100_000, 900_000)
    t.launch("b", at=6_100_000, start=6_200_000, duration=3_300_000)
    t.copy("HtoD", 9_500_000, 150_000, bytes=2 << 20, src="Pinned", call=(6_150_000, 1_000), stream=21)
    t.launch("a", at=6_160_000, start=9_650_000, duration=350_000)
    t.call("cudaDeviceSynchronize", 6_300_000, 3_700_000)
    # WHEN four findings are shown THEN that about the copy is the fifth
    found = overview(read_back(t, tmp_path)).findings
    assert [f.rule for f in found] == ["input_wait", "exposed_communication", "device_allocation", "host_wait", "copies_exposed_HtoD"]
    assert found[-1].saving_ns == 150_000


def test_time_above_the_limits_names_the_kind(tmp_path: Path) -> None:
    # GIVEN a product that runs nearly all the step at 0.4 % of its limit
    t = one_step()
    product(t, at=0, start=3_000, duration=997_000)
    t.call("cudaDeviceSynchronize", 6_000, 994_000)
    said = plain(overview(read_back(t, tmp_path)).headline)
    assert "Time above the limits takes 99 % of the step, most of it matrix products." in said
    assert "The first fix saves 992.0 µs: " in said  # of 993: the wait begins at 6 us, and waiting costs 2


def test_a_step_at_its_limits_says_so(tmp_path: Path) -> None:
    # GIVEN an add of 3 * 4 * 4096**2 bytes (60.1 us at 3.35 TB/s) that fills 65 of a step's 70 us
    t = one_step(70_000)
    t.op("aten::add", 0, 5_000, shapes=[[4096, 4096], [4096, 4096], []], types=["float", "float", "Scalar"])
    t.launch("add", at=1_000, start=5_000, duration=65_000)
    said = plain(overview(read_back(t, tmp_path)).headline)
    assert "The GPU's own limits, mostly memory bandwidth, take 86 % of the step." in said


def test_without_shapes_the_time_still_says_what_limits(tmp_path: Path) -> None:
    # GIVEN two kernels without operators' sizes: convolution 600 us, a copy-like kernel 200 us
    t = one_step()
    t.header["record_shapes"] = 0
    t.op("aten::conv2d", 0, 5_000)
    t.launch("implicit_convolve_sgemm", at=1_000, start=100_000, duration=600_000)
    t.launch("elementwise_kernel", at=2_000, start=700_000, duration=200_000)
    answer = overview(read_back(t, tmp_path))
    said = plain(answer.headline)
    assert "Kernels take 80 % of the step, most of it convolutions." in said and said.endswith(
        "No speed of light: recorded without shapes."
    )
    assert answer.facts["speed_of_light"] is None
    parts = answer.table("parts").set_index("part")["time_ns"]
    assert parts["Convolution kernels"] == 600_000 and parts["Elementwise kernels"] == 200_000


def test_an_uncovered_ratio_says_what_lacks(tmp_path: Path) -> None:
    # GIVEN 300 us with a model, 100 us of an operator nobody knows and 200 us of a product whose sizes were not recorded
    t = one_step()
    product(t, at=0, start=100_000, duration=300_000)
    t.op("custom::thing", 50_000, 5_000, shapes=[[8]], types=["float"])
    t.launch("thing", at=51_000, start=400_000, duration=100_000)
    t.op("aten::bmm", 60_000, 5_000, shapes=[[], []], types=["", ""])
    t.launch("thing", at=61_000, start=500_000, duration=200_000)
    answer = overview(read_back(t, tmp_path))
    assert answer.facts["speed_of_light"] is None
    assert "a cost model covers 50.0 % of the work, less than the 80 % that a ratio needs" in plain(answer.headline)
    notice = plain(answer.notices[0].text)
    assert notice.startswith("50.0 % of the GPU work has no limit: `aten::bmm` (") and "`custom::thing` (no cost model)" in notice
    mark = facts_of(answer, "answer").marks["speed_of_light"]
    assert mark.state == "unknown" and "less than the 80" in mark.why
    # THEN what is known comes first: how busy the device is; what is not known stands in the sentence and is data only
    head = facts_of(answer, "answer")
    shown = [name for name in head.values if name not in head.hidden]
    assert shown == ["gpu_busy", "mfu", "bandwidth_utilisation", "modelled_share"]
    assert head.values["gpu_busy"] == pytest.approx(0.6)
    assert "efficiency_while_busy" in head.values and head.values["efficiency_while_busy"] is None


def test_a_partly_modeled_ratio_is_marked(tmp_path: Path) -> None:
    # GIVEN a cost model for 450 of 500 us
    t = one_step()
    product(t, at=0, start=100_000, duration=450_000)
    t.op("custom::thing", 50_000, 5_000)
    t.launch("thing", at=51_000, start=550_000, duration=50_000)
    answer = overview(read_back(t, tmp_path))
    assert answer.facts["speed_of_light"] is not None and " takes about " in plain(answer.headline)
    assert facts_of(answer, "answer").marks["speed_of_light"].state == "partial"


def test_without_a_memory_bandwidth_there_is_no_ratio(tmp_path: Path) -> None:
    # GIVEN a device that is in no table: its peaks are derived, its bandwidth is not known
    t = one_step(device="AMD Instinct MI300X")
    t.header["deviceProperties"] = [
        {"id": 0, "name": "AMD Radeon Graphics", "computeMajor": 9, "computeMinor": 0, "numSms": 104, "warpSize": 64}
    ]
    t.op("aten::mm", 0, 20_000, shapes=[[512, 512], [512, 512]], types=["float", "float"])
    t.launch("Cijk_gemm", at=1_000, start=100_000, duration=200_000, api="hipLaunchKernel")
    answer = overview(read_back(t, tmp_path))
    assert answer.facts["speed_of_light"] is None and "the memory bandwidth of an AMD Radeon Graphics is not known" in answer.headline
    assert facts_of(answer, "device").marks["matrix_peak"].state == "estimated"
    # THEN the matrix rate is still known, as an estimate: 104 units of CDNA2 at 256 FLOP per clock and 1.7 GHz
    assert answer.facts["mfu"] == pytest.approx(2 * 512**3 / (104 * 256 * 1.7e9) / 1e-3)
    assert facts_of(answer, "answer").marks["mfu"].state == "estimated" and answer.facts["bandwidth_utilisation"] is None


def test_device_names_get_the_right_article() -> None:
    from tb_sol_plugin.metrics.report.headline import a_device

    names = (
        "H100 SXM",
        "A100 SXM 80 GB",
        "V100 SXM2 32 GB",
        "B200",
        "GB200",
        "MI300X",
        "L40S",
        "RTX 4090",
        "T4",
        "Gaudi3",
        "AMD Radeon Graphics",
    )
    said = [a_device(DeviceSpec(key=n, name=n)).split()[0] for n in names]
    assert said == ["an", "an", "a", "a", "a", "an", "an", "an", "a", "a", "an"]


def test_a_program_of_two_steps_speaks_of_the_mean(tmp_path: Path) -> None:
    # GIVEN 140 000 of 156 000 ns per step without a model (only addmm and relu carry shapes)
    answer = overview(read_back(training(), tmp_path))
    assert answer.facts["step_ns"] == 999_000 and plain(answer.headline).startswith("A step takes 999.0 µs; the GPU is busy for ")
    assert answer.facts["speed_of_light"] is None and answer.facts["efficiency_while_busy"] is None
    one = overview(read_back(training(), tmp_path), step="1")
    assert plain(one.headline).startswith("Step 1 takes ")


# -- the waterfall ----------------------------------------------------------------------------------------------


def test_work_faster_than_its_limit_adds_time_and_is_flagged(tmp_path: Path) -> None:
    # GIVEN a product of 2 * 4096**3 FLOP in FP32 (2.05 ms at its limit) that took 1 ms
    t = one_step(1_100_000)
    product(t, at=0, start=50_000, duration=1_000_000, n=4096)
    answer = overview(read_back(t, tmp_path))
    parts = answer.table("parts").set_index("part")
    limit = 2 * 4096**3 / H100_FP32 * 1e9
    assert parts.loc["GEMM below limit", "time_ns"] == round(1_000_000 - limit) < 0
    assert parts["time_ns"].iloc[1:].sum() == pytest.approx(1_100_000, abs=len(parts))
    assert facts_of(answer, "answer").marks["speed_of_light"].state == "flagged"
    assert answer.facts["speed_of_light"] == pytest.approx(limit / 1_100_000)  # never clamped
    assert "It ran faster than its limits: data stayed in a cache, or the limits or the work are wrong." in answer.headline
    assert table_of(answer, "operators").marks["efficiency"]["0"].state == "flagged"
    # THEN the axis still holds every bar, and the label of this one adds
    figure = answer.section("waterfall")
    assert isinstance(figure, FigureSection)
    high = figure.figure["layout"]["xaxis"]["range"][1]  # type: ignore[index]
    for bar in figure.figure["data"]:  # type: ignore[attr-defined]
        assert bar["base"][0] >= 0 and bar["base"][0] + bar["x"][0] <= high
    assert any(n["text"].startswith("<b>+") for n in figure.figure["layout"]["annotations"])  # type: ignore[index]


@pytest.mark.parametrize("busy", [50, 500, 950])
def test_labels_stay_inside_the_axis(tmp_path: Path, busy: int) -> None:
    # GIVEN steps that are nearly idle, half busy and nearly full
    t = one_step()
    product(t, at=0, start=2_000, duration=busy * 1_000)
    figure = overview(read_back(t, tmp_path)).section("waterfall")
    assert isinstance(figure, FigureSection)
    layout = figure.figure["layout"]
    high = layout["xaxis"]["range"][1]  # type: ignore[index]
    for note in layout["annotations"]:  # type: ignore[index]
        # THEN a label that runs to the right begins in the left 70 %, one that runs to the left ends in the right 70 %
        assert note["x"] <= 0.7 * high if note["xanchor"] == "left" else note["x"] >= 0.3 * high


def test_a_selected_point_is_a_row_of_the_table(tmp_path: Path) -> None:
    t = one_step()
    product(t, at=0, start=100_000, duration=200_000)
    answer = overview(read_back(t, tmp_path))
    figure = answer.section("waterfall")
    assert isinstance(figure, FigureSection) and figure.table == "parts"
    keys = [bar["customdata"][0] for bar in figure.figure["data"]]  # type: ignore[attr-defined]
    assert keys == answer.table("parts")["part"].tolist()


def test_the_pieces_of_the_limit_are_named_where_there_is_room(tmp_path: Path) -> None:
    # GIVEN a product in BF16 (138.9 us at its limit, compute-bound) and an add (60.1 us, memory-bound)
    def labels(length: int) -> list[str]:
        t = one_step(length)
        product(t, at=0, start=2_000, duration=200_000, n=4096, dtype="c10::BFloat16")
        t.op("aten::add", 20_000, 5_000, shapes=[[4096, 4096], [4096, 4096], []], types=["float", "float", "Scalar"])
        t.launch("add", at=21_000, start=202_000, duration=70_000)
        figure = overview(read_back(t, tmp_path / str(length))).section("waterfall")
        assert isinstance(figure, FigureSection)
        return [plain(n["text"]) for n in figure.figure["layout"]["annotations"]]  # type: ignore[index]

    # WHEN the limits are 20 % of the step THEN both pieces stand beside the bar; WHEN they are 73 % THEN only their sum
    assert labels(990_000)[-1] == "<b>199.0</b> µs  138.9 compute · 60.10 memory"
    assert labels(272_000)[-1] == "<b>199.0</b> µs"


def test_causes_too_small_to_see_are_one_wait(tmp_path: Path) -> None:
    # GIVEN 8 us of launch gaps in a step of 1 ms, and 2 us at its end
    t = one_step()
    product(t, at=0, start=4_000, duration=490_000)
    product(t, at=495_000, start=498_000, duration=500_000)
    parts = overview(read_back(t, tmp_path)).table("parts").set_index("part")["time_ns"]
    assert parts["GPU waits for the host"] == 10_000 and "Launch gaps" not in parts.index


def test_names_of_parts_are_their_keys(tmp_path: Path) -> None:
    # GIVEN a copy on the device, a kind "other", of 100 us, and a product of 5 us: one large kind and one that is too small to see
    t = one_step()
    t.op("aten::copy_", 0, 5_000, shapes=[[64, 64], [64, 64]], types=["float", "float"])
    t.launch("copy_kernel", at=1_000, start=100_000, duration=100_000)
    product(t, at=10_000, start=200_000, duration=5_000, n=64)
    product(t, at=20_000, start=205_000, duration=5_000, n=64, name="custom::thing")
    names = overview(read_back(t, tmp_path)).table("parts")["part"].tolist()
    assert len(names) == len(set(names)) and "Other operators above limit" in names and "Small kinds above limit" in names


# -- the host ---------------------------------------------------------------------------------------------------


def host_step(folder: Path) -> Capture:
    """A step of 1 ms: a product of 2 * 64**3 FLOP for 400 us, 70 us of an operator nobody knows, 100 us of loading."""
    t = one_step(device="")
    t.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 100_000)
    t.op("aten::mm", 100_000, 400_000, shapes=[[64, 64], [64, 64]], types=["float", "float"])
    t.op("custom::thing", 600_000, 70_000)
    return read_back(t, folder)


def test_a_recording_of_the_host_says_how_to_get_limits(tmp_path: Path) -> None:
    answer = overview(host_step(tmp_path))
    said = plain(answer.headline)
    assert said.startswith("Step 1 takes 1.00 ms on the host. Operators take 47 % of the step, most of it matrix products.")
    assert said.endswith("the limits of this CPU are not known; `tb-sol doctor --measure` measures them.")
    assert "ProfilerActivity.CUDA" in answer.notices[0].text
    assert {s.id for s in answer.sections} == {"answer", "waterfall", "levers", "device", "split", "operators", "parts"}
    assert set(answer.facts) & {"kernel_ns", "memcpy_ns", "gpu_busy"} == set()
    parts = answer.table("parts").set_index("part")["time_ns"]
    assert parts.to_dict() == {
        "Step time, measured": 1_000_000, "Loading of batches": 100_000, "Outside operators": 430_000, "GEMM": 400_000,
        "Operators without a model": 70_000,
    }  # fmt: skip


def test_a_measured_cpu_gets_the_whole_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN rates of the CPU: 10 GFLOP/s, so that the product takes 52 428.8 ns at its limit
    cpu = DeviceSpec(key="CPU", name="a CPU", vendor="cpu", matrix={"fp32": 1e10}, vector={"fp32": 1e10}, memory_bandwidth=1e11)
    monkeypatch.setattr("tb_sol_plugin.metrics.time.waterfall.device_for", lambda capture, limits: cpu)
    answer = overview(host_step(tmp_path))
    assert "the same work at the limits of this CPU takes" in plain(answer.headline)
    assert answer.facts["speed_of_light"] == pytest.approx(0.0524288) and answer.facts["mfu"] == pytest.approx(0.0524288)
    # 400 us of modeled, 70 us of other operators
    assert answer.facts["gpu_busy"] == pytest.approx(0.47) and facts_of(answer, "answer").labels["gpu_busy"] == "Host busy"
    parts = answer.table("parts").set_index("part")["time_ns"]
    assert parts["GEMM above limit"] == 400_000 - 52_429 and parts["No cost model"] == 70_000


def test_nothing_but_ranges_on_the_host(tmp_path: Path) -> None:
    assert "No operator was recorded in it." in plain(overview(read_back(one_step(device=""), tmp_path)).headline)


# -- recordings -------------------------------------------------------------------------------------------------


@over(JSON)
def test_every_recording_says_what_limits_it(name: str) -> None:
    """The sentence holds the time, a share of it, and the saving of the first finding; the parts add up."""
    answer = answered(capture(path_of(name)), "overview")
    assert isinstance(answer, Report), answer
    said = answer.headline
    assert said.endswith(".") and "—" not in said and "nan" not in said, (name, said)
    assert " takes **" in said and ("%**" in said or "No operator" in said), (name, said)
    assert ("No speed of light: " in said) == (answer.facts.get("speed_of_light") is None), (name, said)
    # AND what is not known stands in the sentence: no fact is a dash, no table is empty
    for section in answer.sections:
        if isinstance(section, FactsSection):
            assert all(v is not None or n in section.hidden for n, v in section.values.items()), (name, section.id)
        elif isinstance(section, TableSection):
            assert any(len(v) for v in section.data.values()), (name, section.id)
    first = re.search(r"saves (?:at most )?\*\*(.+?)\*\*", said)
    assert "faster than its limits" in said or (first is not None) == bool(answer.findings), (name, said)
    parts = answer.table("parts")["time_ns"]
    assert parts.iloc[1:].sum() == pytest.approx(parts.iloc[0], abs=len(parts)), name
    # AND the split is of steps only where some were recorded
    for split in (s for s in answer.sections if s.id == "split"):
        assert split.title == ("Where the recording goes" if said.startswith("The recording") else "Where the step goes"), name
    # AND a time is written alike wherever it stands: the step in the sentence and on its bar, the saving in the sentence and in the list
    bar = next(s for s in answer.sections if s.id == "waterfall")
    assert isinstance(bar, FigureSection)
    written = re.sub("</?b>", "", bar.figure["layout"]["annotations"][0]["text"])
    assert f" takes **{plain(written)}**" in said.replace(NARROW, " "), (name, written, said)
    assert first is None or first[1] in side_by_side([f.saving_ns for f in answer.findings], "ns"), (name, first)
