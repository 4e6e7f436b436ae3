"""The roofline report over recordings with known work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.registry import registry
from tb_sol_plugin.model.report import FigureSection, Report, TableSection, UnavailableReport, encode
from tests.support.trace_builder import TraceBuilder

BF16 = "c10::BFloat16"
MM = 2 * 1024**3
LIMIT = max(MM / 989.4e12, 3 * 2 * 1024**2 / 3350e9) * 1e9
"""ns at the speed of light of one product of 1024^3 in BF16 on an H100."""


def _mm(t: TraceBuilder, start: int, device_start: int, duration: int, kernel: str = "gemm") -> None:
    square = [1024, 1024]
    t.op("aten::mm", start, 900, shapes=[square, square], types=[BF16, BF16])
    t.launch(kernel, at=start + 100, start=device_start, duration=duration)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """Two steps; in each a product in `Block_0` and forward: 10 us, then 30 us. A fill of 2 us, an unmodeled operator of 5 us, a kernel
    launched by no operator of 4 us, one launched before the window of 3 us."""
    t = TraceBuilder()
    t.kernel("before", 1, 3000, correlation=1)
    for step in (0, 1):
        base = 100_000 * step
        t.step(step, base, 90_000)
        t.annotation("forward", base + 10, 5000)
        t.module("Block_0", base + 20, 4000, module_id=0)
        _mm(t, base + 100, base + 10_000, 10_000 + 20_000 * step)
    t.op("aten::fill_", 120_000, 900, shapes=[[4096], []], types=[BF16, "Scalar"])
    t.launch("fill", at=120_100, start=150_000, duration=2000)
    t.op("my::op", 130_000, 900)
    t.launch("mine", at=130_100, start=160_000, duration=5000)
    t.launch("alone", at=140_000, start=170_000, duration=4000)
    return read(str(t.write(tmp_path_factory.mktemp("roofline") / "t.pt.trace.json")))


def answer(capture: Capture, **query: str) -> Report:
    found = capture.analyze("roofline", **query)
    assert isinstance(found, Report)
    json.loads(encode(found))
    return found


def test_rows_add_up_to_all_device_time(capture: Capture) -> None:
    table = answer(capture).table("ops")
    assert table["measured_ns"].sum() == 54_000 == capture.device["duration_ns"].sum()
    assert table["name"].tolist() == ["aten::mm", "my::op", "aten::fill_", at.NO_OPERATOR, at.BEFORE]
    assert table.set_index("name")["measured_ns"].tolist() == [40_000, 5000, 2000, 4000, 3000]


def test_a_row_sums_before_it_divides(capture: Capture) -> None:
    row = answer(capture).table("ops").iloc[0]
    assert (row["calls"], row["flop"], row["bytes"]) == (2, 2 * MM, 2 * 3 * 2 * 1024**2)
    assert row["sol_ns"] == round(2 * LIMIT)
    assert row["efficiency"] == pytest.approx(2 * LIMIT / 40_000)
    assert row["wasted_ns"] == round(40_000 - 2 * LIMIT)
    assert row["achieved_flop_per_s"] == pytest.approx(2 * MM / 40e-6)
    assert row["achieved_bytes_per_s"] == pytest.approx(2 * 6 * 1024**2 / 40e-6)
    assert row["intensity_flop_per_byte"] == pytest.approx(1024 / 3)
    assert (row["bound"], row["dtype"], row["kind"], row["input_shapes"]) == ("compute", "bf16", "gemm", "1024×1024 1024×1024")


def test_the_total_row_divides_totals(capture: Capture) -> None:
    total = answer(capture).section("ops").total  # type: ignore[union-attr]
    data = 2 * 6 * 1024**2 + 8192
    assert total["intensity_flop_per_byte"] == pytest.approx(2 * MM / data)
    assert total["achieved_flop_per_s"] == pytest.approx(2 * MM / 42e-6)
    assert total["achieved_bytes_per_s"] == pytest.approx(data / 42e-6)


def test_unknown_is_not_zero(capture: Capture) -> None:
    table = answer(capture).table("ops").set_index("name")
    for column in ("flop", "bytes", "sol_ns", "efficiency", "wasted_ns", "achieved_flop_per_s"):
        assert table.loc["my::op", column] is None or table[column].isna()["my::op"], column
    # a fill has no arithmetic: no FLOP rate, but a bandwidth
    assert table.loc["aten::fill_", "flop"] == 0
    assert table["achieved_flop_per_s"].isna()["aten::fill_"]
    assert table.loc["aten::fill_", "achieved_bytes_per_s"] == pytest.approx(8192 / 2e-6)


def test_facts_hold_the_device_its_peaks_and_the_totals(capture: Capture) -> None:
    facts = answer(capture).facts
    assert (facts["device"], facts["limits_from"]) == ("H100 SXM", "exact")
    assert facts["peak_flop_per_s"] == facts["peak_flop_per_s_bf16"] == 989.4e12
    assert facts["peak_bytes_per_s"] == 3350e9
    assert facts["total_flop"] == 2 * MM
    assert (facts["device_ns"], facts["measured_ns"], facts["unmodelled_ns"], facts["no_operator_ns"]) == (54_000, 42_000, 12_000, 7000)
    assert facts["modelled_share"] == pytest.approx(42 / 54)
    assert facts["efficiency"] == pytest.approx((2 * LIMIT + 8192 / 3350) / 42_000, rel=1e-6)
    assert set(facts) <= {f.name for f in registry()["roofline"].facts}


def test_a_step_shows_its_own_work(capture: Capture) -> None:
    table = answer(capture, step="0").table("ops")
    # work that was launched before the recording belongs to no step
    assert table["name"].tolist() == ["aten::mm"]
    assert table["measured_ns"].tolist() == [10_000]
    assert answer(capture, step="1").facts["device_ns"] == 30_000 + 2000 + 5000 + 4000
    with pytest.raises(BadQuery):
        capture.analyze("roofline", step="9")


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("op", ["aten::mm", "my::op", "aten::fill_"]),
        ("module", ["Block_0", "(outside every module)"]),
        ("phase", ["forward", "ProfilerStep"]),
        ("kernel", ["gemm", "mine", "fill"]),
    ],
)
def test_other_rows_hold_the_same_time(capture: Capture, by: str, names: list[str]) -> None:
    table = answer(capture, by=by).table("ops")
    assert table["name"].tolist() == [*names, at.NO_OPERATOR, at.BEFORE]
    assert table["measured_ns"].sum() == 54_000
    assert table["flop"].sum() == 2 * MM


def test_kernels_share_the_work_of_their_operator_by_time(tmp_path: Path) -> None:
    # GIVEN one product by two kernels of 3 and 1 us
    t = TraceBuilder()
    t.op("aten::mm", 0, 900, shapes=[[1024, 1024], [1024, 1024]], types=[BF16, BF16])
    t.launch("main", at=100, start=1000, duration=3000)
    t.launch("reduce", at=300, start=5000, duration=1000)
    table = answer(read(str(t.write(tmp_path / "t.json"))), by="kernel").table("ops").set_index("name")
    assert table["flop"].to_dict() == {"main": MM * 3 // 4, "reduce": MM // 4}
    assert set(table["flags"]) == {"above limit, estimated"} or set(table["flags"]) == {"estimated"}


def test_kernels_stand_by_their_short_names_where_these_tell_them_apart(tmp_path: Path) -> None:
    # GIVEN an addition, and two multiplications whose short names are the same
    full = "void at::native::vectorized_elementwise_kernel<4, at::native::{}<float>, std::array<char*, {}>>(int, float)"
    names = [full.format("CUDAFunctor_add", 3), full.format("MulFunctor", 2), full.format("MulFunctor", 3)]
    t = TraceBuilder()
    for i, name in enumerate(names):
        t.op("aten::add", 2000 * i, 900, shapes=[[1024], [1024]], types=["float", "float"])
        t.launch(name, at=2000 * i + 100, start=2000 * i + 300, duration=500 - i)
    # WHEN rows are kernels THEN each is short, the last two with what tells them apart
    table = answer(read(str(t.write(tmp_path / "t.json"))), by="kernel").table("ops")
    brief = [f"vectorized_elementwise_kernel<{text}" for text in ("CUDAFunctor_add>", "MulFunctor> · 2", "MulFunctor> · 3")]
    assert table["name"].tolist() == brief


def test_the_list_ranks_time_above_the_limit(capture: Capture) -> None:
    above = answer(capture).table("above")
    assert above["name"].tolist() == ["aten::mm", "aten::fill_"]
    assert above["running_share"].iloc[-1] == pytest.approx(1.0)
    assert above["running_share"].iloc[0] == pytest.approx((40_000 - 2 * LIMIT) / (42_000 - 2 * LIMIT - 8192 / 3350), rel=1e-4)


def test_figure_marks_carry_the_keys_of_the_table(capture: Capture) -> None:
    found = answer(capture)
    figure, table = found.section("roofline"), found.section("ops")
    assert isinstance(figure, FigureSection) and isinstance(table, TableSection)
    marks = [trace for trace in figure.figure["data"] if trace.get("customdata")]  # type: ignore[attr-defined]
    keys = [key for trace in marks for key in trace["customdata"]]
    assert set(keys) <= set(table.data["id"])
    assert len(set(table.data["id"])) == len(table.data["id"])
    # the product stands at its intensity and rate; the fill in the strip, by bandwidth
    product = next(trace for trace in marks if trace["name"] == "gemm")
    assert (product["x"], product["y"]) == ([pytest.approx(1024 / 3)], [pytest.approx(2 * MM / 40e-6)])
    strip = next(trace for trace in marks if trace["name"] == "other")
    assert strip["xaxis"] == "x2" and strip["x"] == [pytest.approx(8192 / 2e-6)]
    names = [note["text"] for note in figure.figure["layout"]["annotations"]]  # type: ignore[index]
    assert any("bf16 matrix 989.4" in name for name in names) and any("achievable" in name for name in names)
    found.figure("roofline").to_json()


def test_other_limits_change_every_efficiency(capture: Capture) -> None:
    found = answer(capture, device_limits="A100")
    row = found.table("ops").iloc[0]
    assert row["sol_ns"] == round(2 * MM / 312e12 * 1e9)
    assert found.facts["limits_from"] == "override"
    with pytest.raises(BadQuery) as error:
        capture.analyze("roofline", device_limits="nonsense")
    assert error.value.field == "device_limits"


def test_above_the_limit_is_flagged_and_never_clamped(tmp_path: Path) -> None:
    t = TraceBuilder()
    _mm(t, 0, 2000, 1000)
    found = answer(read(str(t.write(tmp_path / "t.json"))))
    row, table = found.table("ops").iloc[0], found.section("ops")
    assert row["efficiency"] == pytest.approx(LIMIT / 1000) and row["efficiency"] > 2
    assert row["flags"] == "above limit" and row["wasted_ns"] < 0
    assert isinstance(table, TableSection) and table.marks["efficiency"]["0"].state == "flagged"


def test_an_unknown_device_has_rates_and_no_efficiency(tmp_path: Path) -> None:
    t = TraceBuilder(device="Some Accelerator", header={"deviceProperties": [{"id": 0, "name": "Some Accelerator"}]})
    _mm(t, 0, 2000, 10_000)
    found = answer(read(str(t.write(tmp_path / "t.json"))))
    row = found.table("ops").iloc[0]
    assert row["achieved_flop_per_s"] == pytest.approx(MM / 10e-6)
    assert row["efficiency"] is None or row["efficiency"] != row["efficiency"]
    assert found.facts["efficiency"] is None and found.facts["device"] == "Some Accelerator"
    assert any("Some Accelerator" in notice.text for notice in found.notices)
    assert "not known" in found.headline


def test_a_cpu_recording_shows_rates_over_host_time(tmp_path: Path) -> None:
    t = TraceBuilder(device="")
    t.op("aten::mm", 0, 10_000, shapes=[[1024, 1024], [1024, 1024]], types=["float", "float"])
    found = answer(read(str(t.write(tmp_path / "t.json"))))
    row = found.table("ops").iloc[0]
    assert (row["measured_ns"], row["flop"], row["bound"]) == (10_000, MM, "none")
    assert row["achieved_flop_per_s"] == pytest.approx(MM / 10e-6)
    assert found.facts["device"] == "CPU" and found.facts["efficiency"] is None
    assert "host time" in found.headline
    assert [s.id for s in found.sections] == ["roofline", "ops", "kinds", "facts", "unmodelled"]


def test_a_measured_cpu_has_limits_over_host_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN rates of the CPU: 1 TFLOP/s, so that a product of 2 x 1024^3 FLOP takes at least 2.147 ms of the 10 ms that it ran
    cpu = DeviceSpec(key="CPU", name="Some CPU", vendor="cpu", matrix={"fp32": 1e12}, vector={"fp32": 1e11}, memory_bandwidth=1e11)
    monkeypatch.setattr("tb_sol_plugin.analyses.efficiency.roofline.device_for", lambda capture, limits: cpu)
    t = TraceBuilder(device="")
    t.step(1, 0, 40_000_000)
    t.op("aten::mm", 1000, 10_000_000, shapes=[[1024, 1024], [1024, 1024]], types=["float", "float"])
    t.op("my::op", 20_000_000, 5_000_000)
    found = answer(read(str(t.write(tmp_path / "t.json"))))
    assert "Limits are known for **66.7\u202f%** of host time; that part runs at 21.5\u202f% of what the Some CPU allows." in found.headline
    assert found.facts["efficiency"] == pytest.approx(MM / 1e12 / 10e-3)
    assert found.facts["mfu"] == pytest.approx(MM / 1e12 / 40e-3)
    assert found.table("kinds").set_index("id")["device_ns"].to_dict() == {"gemm": 10_000_000, "(no cost model)": 5_000_000}
    assert found.section("kinds").subtitle == "adds up to all host time of operators"
    figure = found.section("roofline")
    assert isinstance(figure, FigureSection) and [note.text for note in figure.notes.values()] == ["4.7× below its limit"]


def test_without_shapes_it_says_how_to_record_them(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.op("aten::mm", 0, 900)
    t.launch("gemm", at=100, start=2000, duration=500)
    found = read(str(t.write(tmp_path / "t.json"))).analyze("roofline")
    assert isinstance(found, UnavailableReport) and "record_shapes" in found.record_it_with


def test_names_from_the_file_are_escaped_in_the_chart(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.op("aten::mm", 0, 900, shapes=[[64, 64], [64, 64]], types=[BF16, BF16])
    t.launch("<script>alert(1)</script>", at=100, start=2000, duration=5000)
    found = answer(read(str(t.write(tmp_path / "t.json"))), by="kernel").section("roofline")
    assert isinstance(found, FigureSection)
    text = json.dumps([trace.get("hovertext") for trace in found.figure["data"]])  # type: ignore[attr-defined]
    assert "<script>" not in text and "&lt;script&gt;" in text


def test_a_selection_without_calls_shows_what_there_is(tmp_path: Path) -> None:
    # GIVEN two steps of which the second launches nothing from an operator; THEN its page holds that work and nothing else
    t = TraceBuilder()
    t.step(0, 0, 5000)
    _mm(t, 100, 1500, 1000)
    t.step(1, 10_000, 5000)
    t.launch("alone", at=10_100, start=12_000, duration=700)
    found = answer(read(str(t.write(tmp_path / "t.json"))), step="1")
    assert found.table("ops")["name"].tolist() == [at.NO_OPERATOR]
    assert (found.facts["device_ns"], found.facts["total_flop"], found.facts["efficiency"]) == (700, None, None)
    for by in ("op", "module", "phase", "kernel"):
        answer(read(str(t.write(tmp_path / "t.json"))), step="1", by=by)


def test_copies_and_communication_stand_apart(tmp_path: Path) -> None:
    t = TraceBuilder()
    _mm(t, 0, 2000, 10_000)
    t.op("aten::copy_", 2000, 400, shapes=[[1024], [1024]], types=["float", "float"])
    t.copy("HtoD", 20_000, 300, src="Pinned", bytes=4096, call=(2100, 50))
    t.collective("ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)", 30_000, 5000, elements=1024)
    facts = answer(read(str(t.write(tmp_path / "t.json")))).facts
    assert (facts["device_ns"], facts["unmodelled_ns"], facts["apart_ns"]) == (15_300, 5300, 5300)


# -- what is selected, and where every nanosecond goes ---------------------------------------------------------------


def _backward(t: TraceBuilder, start: int, device_start: int, duration: int) -> None:
    """A product of 512^3 below an autograd node."""
    t.op("autograd::engine::evaluate_function: MmBackward0", start, 900, sequence=7, forward_thread=1, thread=99)
    t.op("aten::mm", start + 50, 800, shapes=[[512, 512], [512, 512]], types=[BF16, BF16], thread=99)
    t.launch("gemm_backward", at=start + 100, start=device_start, duration=duration, thread=99)


@pytest.fixture
def mixed(tmp_path: Path) -> Capture:
    """10 us of a product forward, 4 us of one backward; 5 us without a model, 3 us by no operator, 2 us from before the window,
    6 us of communication, 0.3 us of a copy over the link. The product's two kernels run side by side for 1 us."""
    t = TraceBuilder()
    t.kernel("before", 1, 2000, correlation=1)
    t.op("aten::mm", 1000, 900, shapes=[[1024, 1024]] * 2, types=[BF16, BF16])
    t.launch("gemm", at=1100, start=10_000, duration=8000)
    t.launch("gemm_tail", at=1300, start=17_000, duration=2000, stream=9)
    _backward(t, 3000, 30_000, 4000)
    t.op("my::op", 5000, 900, shapes=[[8]], types=["float"])
    t.launch("mine", at=5100, start=40_000, duration=5000)
    t.launch("alone", at=7000, start=50_000, duration=3000)
    t.op("aten::copy_", 8000, 400, shapes=[[64], [64]], types=["float", "float"])
    t.copy("HtoD", 60_000, 300, src="Pinned", bytes=256, call=(8100, 50))
    t.collective("ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)", 70_000, 6000, elements=1024)
    return read(str(t.write(tmp_path / "t.json")))


def test_kinds_add_up_to_all_device_time(mixed: Capture) -> None:
    # GIVEN work of every sort, two kernels of one operator side by side
    found = answer(mixed)
    kinds = found.table("kinds").set_index("id")
    # THEN each part holds its plain sum, and together they are all device time to the nanosecond
    assert kinds["device_ns"].to_dict() == {
        "gemm": 14_000, "(no cost model)": 5000, "(communication)": 6000, "(copies over a link)": 300, at.NO_OPERATOR: 3000, at.BEFORE: 2000,
    }  # fmt: skip
    assert kinds["device_ns"].sum() == found.facts["device_ns"] == mixed.device["duration_ns"].sum() == 30_300
    assert kinds["share"].sum() == pytest.approx(1.0)
    # AND the limit and the efficiency of a kind are over the union of its intervals: 9 us and 4 us
    small = max(2 * 512**3 / 989.4e12, 3 * 2 * 512**2 / 3350e9) * 1e9
    assert kinds.loc["gemm", "sol_ns"] == round(LIMIT + small)
    assert kinds.loc["gemm", "efficiency"] == pytest.approx((LIMIT + small) / 13_000)
    assert kinds.loc["gemm", "achieved_flop_per_s"] == pytest.approx((MM + 2 * 512**3) / 13e-6)
    assert (kinds.loc["gemm", "calls"], kinds.loc["gemm", "modelled_share"]) == (2, 1.0)
    assert found.facts["apart_ns"] == 6300 and found.facts["unmodelled_ns"] == 16_300


@pytest.mark.parametrize(
    ("direction", "time", "names"),
    [("forward", 10_000 + 5000 + 300, ["aten::mm", "my::op", "aten::copy_"]), ("backward", 4000, ["aten::mm"])],
)
def test_one_direction_counts_its_pass_alone(mixed: Capture, direction: str, time: int, names: list[str]) -> None:
    # GIVEN one pass THEN only its operators and their time are there, also by kind, and a notice says what belongs to no pass
    found = answer(mixed, direction=direction)
    own = [name for name in found.table("ops")["name"] if name.startswith(("aten", "my"))]
    assert own == names
    assert found.facts["device_ns"] == found.table("kinds")["device_ns"].sum() == time
    assert any("belong to no pass" in notice.text for notice in found.notices)
    assert at.BEFORE not in found.table("ops")["name"].tolist()
    figure = found.section("roofline")
    assert isinstance(figure, FigureSection) and f"{direction} pass" in figure.title


def test_both_passes_are_the_whole(mixed: Capture) -> None:
    flop = {d: answer(mixed, direction=d).facts["total_flop"] for d in ("both", "forward", "backward")}
    assert flop == {"both": MM + 2 * 512**3, "forward": MM, "backward": 2 * 512**3}


def test_what_has_no_model_says_what_is_missing(mixed: Capture) -> None:
    table = answer(mixed).table("unmodelled")
    row = table[table["name"] == "my::op"].iloc[0]
    assert (row["calls"], row["measured_ns"], row["input_shapes"]) == (1, 5000, "8")
    assert "no cost model" in row["why"]
    assert table["measured_ns"].is_monotonic_decreasing


def test_everything_modeled_says_so(tmp_path: Path) -> None:
    t = TraceBuilder()
    _mm(t, 0, 2000, 10_000)
    section = answer(read(str(t.write(tmp_path / "t.json")))).section("unmodelled")
    assert isinstance(section, TableSection)
    assert section.data["name"] == [] and section.empty == "Everything is modeled."


def test_top_rows_and_the_rest_are_the_whole(tmp_path: Path) -> None:
    # GIVEN products of 10, 20, 30 and 40 us: the larger their size, the nearer to the limit
    t = TraceBuilder()
    for i, side in enumerate((256, 512, 1024, 4096)):
        t.op("aten::mm", 1000 * i, 900, shapes=[[side, side]] * 2, types=[BF16, BF16])
        t.launch("gemm", at=1000 * i + 100, start=100_000 * (i + 1), duration=10_000 * (i + 1))
    capture = read(str(t.write(tmp_path / "t.json")))
    # WHEN the two with most time above their limit are asked for: those of 1024 (27.8 us above) and 512 (19.7)
    found = answer(capture, top="2")
    table, section = found.table("ops"), found.section("ops")
    # THEN the others stand in one last row, so that the time still adds up, and the heading counts them
    assert table["input_shapes"].tolist() == ["1024×1024 1024×1024", "512×512 512×512", ""]
    assert table["measured_ns"].tolist() == [30_000, 20_000, 50_000]
    assert isinstance(section, TableSection) and section.last == ["(rows not shown)"]
    assert section.subtitle == "showing 2 of 4 rows, 50.0\u202f% of their time"
    assert section.total is not None and section.total["measured_ns"] == 100_000
    figure = found.section("roofline")
    assert isinstance(figure, FigureSection) and len(figure.notes) == 2
    # AND a share works the same way: 10 us are 10 %
    assert answer(capture, least_share="0.15").table("ops")["measured_ns"].tolist() == [40_000, 30_000, 20_000, 10_000]
    assert answer(capture, least_share="0.15").table("ops")["name"].iloc[-1] == "(rows not shown)"
    assert "(rows not shown)" not in answer(capture, top="9").table("ops")["name"].tolist()


@pytest.mark.parametrize(("field", "value"), [("top", "-1"), ("least_share", "1.5"), ("least_share", "-0.1"), ("top", "many"), ("by", "colour")])
def test_a_parameter_out_of_range_is_named(capture: Capture, field: str, value: str) -> None:
    with pytest.raises(BadQuery) as error:
        capture.analyze("roofline", **{field: value})
    assert error.value.field == field


def test_an_l2_roof_needs_its_bandwidth(capture: Capture) -> None:
    assert any("L2 bandwidth" in notice.text for notice in answer(capture, level="l2").notices)
    assert not any("L2" in notice.text for notice in answer(capture).notices)


def test_work_from_before_the_window_says_so(tmp_path: Path) -> None:
    # GIVEN a recorded product, a kernel like its own launched before the recording began, and one that is like nothing recorded
    t = TraceBuilder()
    for _ in range(50):
        t.number("correlation")
    _mm(t, 1000, 20_000, 10_000)
    t.kernel("gemm", 100, 9000, correlation=3)
    t.kernel("strange", 12_000, 700, correlation=4)
    found = answer(read(str(t.write(tmp_path / "t.json"))))
    table = found.table("ops").set_index("id")
    # THEN the first stands in a row of its own with the same work, marked, and the second remains without an owner
    early = next(key for key in table.index if key.endswith(" | before the window"))
    assert (table.loc[early, "measured_ns"], table.loc[early, "flop"]) == (9000, MM)
    assert table.loc[early, "flags"] == "estimated, before the window"
    assert table.loc[at.BEFORE, "measured_ns"] == 700
    assert table["measured_ns"].sum() == found.facts["device_ns"] == found.table("kinds")["device_ns"].sum() == 19_700
    notice = next(notice.text for notice in found.notices if "before the recording began" in notice.text)
    assert notice.startswith("9.00\u202fµs were launched") and "700\u202fns more match no recorded call" in notice


def test_the_chart_counts_what_it_draws(mixed: Capture) -> None:
    # GIVEN two products and two operators without a limit THEN two of four rows are in the chart
    figure = answer(mixed).section("roofline")
    assert isinstance(figure, FigureSection)
    assert len(figure.notes) == 2 and "2 of 4 rows" in figure.subtitle


# -- the program, its steps and its use of the device ------------------------------------------------------------------


def test_the_program_has_a_point_of_its_own_and_one_per_step(capture: Capture) -> None:
    # GIVEN two steps with a product of 10 and of 30 us, and a fill of 2 us in the second
    figure = answer(capture).section("roofline")
    assert isinstance(figure, FigureSection)
    trace = next(t for t in figure.figure["data"] if t.get("name") == "program")  # type: ignore[attr-defined]
    found = {text[3 : text.index("</b>")]: (x, y) for text, x, y in zip(trace["hovertext"], trace["x"], trace["y"], strict=True)}
    data = 6 * 1024**2
    # THEN the whole is all matrix work over all bytes and all modeled time, as in the total row
    assert found["whole program"] == (pytest.approx(2 * MM / (2 * data + 8192)), pytest.approx(2 * MM / 42e-6))
    total = answer(capture).section("ops").total  # type: ignore[union-attr]
    assert found["whole program"] == (pytest.approx(total["intensity_flop_per_byte"]), pytest.approx(total["achieved_flop_per_s"]))
    assert found["step 0"] == (pytest.approx(MM / data), pytest.approx(MM / 10e-6))
    assert found["step 1"] == (pytest.approx(MM / (data + 8192)), pytest.approx(MM / 32e-6))
    assert found["average of 2 complete steps"] == found["whole program"]
    # AND with one step there is the whole alone; with rows by step the steps are rows
    for query in ({"step": "1"}, {"by": "step"}):
        figure = answer(capture, **query).section("roofline")
        assert isinstance(figure, FigureSection)
        trace = next(t for t in figure.figure["data"] if t.get("name") == "program")  # type: ignore[attr-defined]
        assert len(trace["x"]) == 1, query


def test_use_of_the_device_over_the_steps(capture: Capture) -> None:
    # GIVEN two steps of 90 us with a product each, the first behind work of 3 us that was launched before the recording
    facts = answer(capture).facts
    time = int(str(facts["steps_ns"]))
    assert time == 2 * 90_000 - 3_001  # the work before runs from 1 ns to 3.001 us
    assert facts["mfu"] == pytest.approx(2 * MM / 989.4e12 / (time / 1e9))
    assert facts["hfu"] == facts["mfu"]
    assert facts["bandwidth_utilisation"] == pytest.approx((2 * 6 * 1024**2 + 8192) / 3350e9 / (time / 1e9))


def test_no_steps_no_utilization(mixed: Capture) -> None:
    assert not {"mfu", "hfu", "bandwidth_utilisation", "steps_ns"} & set(answer(mixed).facts)


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("layer", ["Block", "(outside every module)"]),
        ("step", ["step 1", "step 0"]),
        ("dtype", ["bf16", "(no type recorded)"]),
        ("kind", ["gemm", "other"]),
    ],
)
def test_more_ways_to_make_rows(capture: Capture, by: str, names: list[str]) -> None:
    found = answer(capture, by=by)
    table = found.table("ops")
    assert table["name"].tolist() == [*names, at.NO_OPERATOR, at.BEFORE]
    assert table["measured_ns"].sum() == 54_000 and table["flop"].sum() == 2 * MM
    assert found.facts == answer(capture).facts


def test_rows_lead_to_the_pages_that_hold_them(capture: Capture) -> None:
    wanted = {"op": ("operators", "aten::mm"), "kernel": ("kernels", "gemm"), "module": ("modules", "Block_0"), "phase": ("phases", "forward")}
    for by, (page, name) in wanted.items():
        table = answer(capture, by=by).section("ops")
        assert isinstance(table, TableSection)
        assert (table.row_links["0"].analysis, table.row_links["0"].query) == (page, {"find": name})
    table = answer(capture).section("ops")
    assert isinstance(table, TableSection)
    link = table.cell_links["main_kernel"]["0"]
    assert (link.analysis, link.query) == ("kernels", {"find": "gemm"})


def test_no_measured_time_no_efficiency(tmp_path: Path) -> None:
    # GIVEN a product whose kernel has a duration of 0
    t = TraceBuilder()
    _mm(t, 0, 2000, 0)
    _mm(t, 2000, 5000, 10_000, kernel="other")
    t.op("aten::bmm", 4000, 900, shapes=[[1, 1024, 1024]] * 2, types=[BF16, BF16])
    t.launch("nothing", at=4100, start=30_000, duration=0)
    found = answer(read(str(t.write(tmp_path / "t.json"))))
    table = found.table("ops").set_index("name")
    assert table["efficiency"].isna()["aten::bmm"] and table["wasted_ns"].isna()["aten::bmm"]
    # AND a row with one timed call has the efficiency of that call
    assert table.loc["aten::mm", "efficiency"] == pytest.approx(LIMIT / 10_000)
    assert found.facts["efficiency"] == pytest.approx(LIMIT / 10_000)


def test_a_flag_names_its_cause(tmp_path: Path) -> None:
    # GIVEN a product of 1024^3 in 1 us: 2.2 times the peak of bf16, more than the narrower fp8 explains with its clock at 10 %
    t = TraceBuilder()
    _mm(t, 0, 2000, 1000)
    found = answer(read(str(t.write(tmp_path / "t.json"))))
    row, table = found.table("ops").iloc[0], found.section("ops")
    assert row["cause"].startswith("likely computed in fp8") and isinstance(table, TableSection)
    assert row["cause"] in table.marks["efficiency"]["0"].why
    assert answer(read(str(_slow(tmp_path)))).table("ops")["cause"].tolist() == [""]


def _slow(folder: Path) -> Path:
    t = TraceBuilder()
    _mm(t, 0, 2000, 10_000)
    return t.write(folder / "slow.json")
