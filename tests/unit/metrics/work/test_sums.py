"""MFU, HFU and bandwidth utilization against values worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tb_sol_plugin.devices.catalog import table
from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.time.kernels import groups, parts_of
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.trees.modules import module_times
from tb_sol_plugin.metrics.trees.phases import phase_tree
from tb_sol_plugin.metrics.work.sums import calls_of, marks_of, phase_work, ratios, subtree_sums, sums, utilization
from tb_sol_plugin.metrics.work.work import work
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import Report
from tests.support.trace_builder import TraceBuilder

H100 = table()["H100_SXM"]


def _ops(*rows: tuple[float | None, float | None, str, bool]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["flop", "bytes", "dtype", "recompute"])
    again = np.where(frame["recompute"], frame["flop"], 0.0)
    return frame.assign(dtype=frame["dtype"].astype("category"), modeled=True, flop_again=again)


def test_recomputed_work_counts_in_hfu_alone() -> None:
    # GIVEN 989.4e9 FLOP in BF16 (1 ms at the peak of 989.4 TFLOP/s), a third of it again, over 4 ms
    ops = _ops((989.4e9, 3.35e9, "bf16", False), (329.8e9, 3.35e9, "bf16", True))
    used = utilization(ops, H100, 4_000_000)
    assert used.mfu == pytest.approx(1 / 4)
    assert used.hfu == pytest.approx((1 + 1 / 3) / 4)
    # 6.7 GB at 3.35 TB/s are 2 ms
    assert used.bandwidth_utilisation == pytest.approx(0.5)
    assert (used.model_flop, used.recompute_flop, used.dtype) == (989_400_000_000, 329_800_000_000, "bf16")


def test_scores_that_fused_attention_computes_again_count_in_hfu_alone(tmp_path: Path) -> None:
    # GIVEN causal attention of 2 x 8 heads, 1024 x 1024 pairs, heads of 64, forward and backward, in a step of 1 ms
    sizes = [[2, 8, 1024, 64]] * 3
    t = TraceBuilder()
    t.annotation("ProfilerStep#1", 0, 1000)
    t.op("aten::_scaled_dot_product_flash_attention", 10, 100, shapes=[*sizes, [], []], types=[BF16] * 3 + ["Scalar"] * 2, concrete=["", "", "", "0.", "True"])
    t.launch("flash_fwd", at=20, start=50, duration=100)
    grown = [*[[2, 8, 1024, 64]] * 5, [2, 8, 1024], [], [], [], [], [], []]
    t.op(
        "aten::_scaled_dot_product_flash_attention_backward", 200, 100, shapes=grown, types=[BF16] * 5 + ["float"] + ["Scalar"] * 6,
        concrete=["", "", "", "", "", "", "", "", "1024", "1024", "0.", "True"],
    )  # fmt: skip
    t.launch("flash_bwd", at=210, start=300, duration=700)
    capture = read(str(t.write(tmp_path / "flash.json")))
    # WHEN the use of the device is worked out
    used = utilization(work(capture, H100).ops, H100, 1_000_000)
    # THEN a product over half of the pairs is 2 x 2 x 8 x 2^19 x 64 FLOP: two forward and four backward for MFU, two and five for HFU
    product = 2 * 2 * 8 * (1024 * 1024 // 2) * 64
    assert (used.model_flop, used.recompute_flop) == (6 * product, product)
    assert used.mfu == pytest.approx(6 * product / 989.4e12 / 1e-3) and used.hfu == pytest.approx(7 * product / 989.4e12 / 1e-3)
    # AND with every pair both are twice as much
    dense = utilization(work(capture, H100, dense=True).ops, H100, 1_000_000)
    assert (dense.model_flop, dense.recompute_flop) == (12 * product, 2 * product)


def test_types_are_summed_as_time_at_their_own_peak() -> None:
    # GIVEN 1 ms of BF16 work and 1 ms of TF32 work (494.7 TFLOP/s), over 4 ms of two devices
    ops = _ops((989.4e9, None, "bf16", False), (494.7e9, None, "tf32", False))
    used = utilization(ops, H100, 4_000_000, devices=2)
    assert used.mfu == used.hfu == pytest.approx(0.25)
    assert used.bandwidth_utilisation is None


def test_utilization_is_unknown_without_work_peak_or_time() -> None:
    ops = _ops((1e12, 1e9, "bf16", False))
    assert utilization(ops, None, 1000).mfu is None
    assert utilization(ops, None, 1000).model_flop == 1_000_000_000_000
    assert utilization(ops, H100, 0).mfu is None
    assert utilization(_ops((None, 1e9, "bf16", False)), H100, 1_000_000).mfu is None
    # a type without a peak is in no ratio, and counted apart
    mixed = utilization(_ops((989.4e9, None, "bf16", False), (7e9, None, "complex64", False)), H100, 1_000_000)
    assert mixed.mfu == pytest.approx(1.0)
    assert mixed.without_peak_flop == 7_000_000_000


# -- Work summed over groups of calls, and what follows from the sums: by operator, kernel, module and phase ---------


BF16 = "c10::BFloat16"
BACKWARD = 99
PRODUCT = 2 * 4096**3 / 989.4e12 * 1e9
"""Limit of a 4096 cubed BF16 product on an H100: 138.9 us, set by arithmetic."""
ADD = 3 * 2 * 4096**2 / 3350e9 * 1e9
"""Limit of adding two BF16 tensors of 4096 x 4096: 30.05 us, set by memory."""


def product(t: TraceBuilder, at: int, start: int, times: list[int], *, thread: int | None = None, **more: int) -> None:
    t.op("aten::mm", at, 900, shapes=[[4096, 4096], [4096, 4096]], types=[BF16, BF16], thread=thread, **more)  # type: ignore[arg-type]
    for i, time in enumerate(times):
        t.launch(f"gemm{i}", at=at + 100 + 200 * i, start=start, duration=time, thread=thread)
        start += time


def add(t: TraceBuilder, at: int, start: int, time: int, *, thread: int | None = None) -> None:
    t.op("aten::add", at, 400, shapes=[[4096, 4096], [4096, 4096], []], types=[BF16, BF16, "Scalar"], thread=thread)
    t.launch("add", at=at + 100, start=start, duration=time, thread=thread)


def opened(t: TraceBuilder, folder: Path) -> Capture:
    return read(str(t.write(folder / "t.pt.trace.json")))


@pytest.fixture
def run(tmp_path: Path) -> Capture:
    """forward: Net_0 with Linear_0 (a product of 200 us) and an add of its own (40 us); loss: an operator that no model knows (10 us)."""
    t = TraceBuilder()
    t.annotation("forward", 0, 10_000)
    t.module("Net_0", 100, 8_000, module_id=1)
    t.module("Linear_0", 200, 2_000, module_id=2)
    product(t, 300, 100_000, [150_000, 50_000])
    add(t, 3_000, 400_000, 40_000)
    t.annotation("loss", 11_000, 1_000)
    t.op("my::loss", 11_100, 800)
    t.launch("odd", at=11_200, start=500_000, duration=10_000)
    return opened(t, tmp_path)


def test_values_and_ratios_of_groups(run: Capture) -> None:
    # GIVEN the three calls in one group THEN limit and time are of the two with a limit, the device time is of all three
    calls = calls_of(run, scope(run, Query()))
    total = ratios(sums(calls.values, np.zeros(3, int), 1)).iloc[0]
    assert total["flop"] == 2 * 4096**3 and total["sol_ns"] == pytest.approx(PRODUCT + ADD)
    assert (total["measured_ns"], total["modelled_sum_ns"], total["owned_sum_ns"]) == (240_000, 240_000, 250_000)
    assert total["wasted_ns"] == pytest.approx(240_000 - PRODUCT - ADD)
    assert total["efficiency"] == pytest.approx((PRODUCT + ADD) / 240_000)
    assert (total["bound"], total["flags"], total["recompute_share"]) == ("compute", "", 0.0)
    # AND a group without a limit has none, rather than zero
    none = ratios(sums(calls.values, np.array([-1, -1, 0]), 1)).iloc[0]
    assert np.isnan(none["sol_ns"]) and np.isnan(none["efficiency"]) and none["bound"] not in ("compute", "memory")


def test_a_limit_above_the_measured_time_is_flagged_and_kept(tmp_path: Path) -> None:
    # GIVEN a product that claims 100 us, below the 138.9 us of its limit
    t = TraceBuilder()
    product(t, 0, 10_000, [100_000])
    row = ratios(sums(calls_of(c := opened(t, tmp_path), scope(c, Query())).values, np.zeros(1, int), 1)).iloc[0]
    assert row["efficiency"] == pytest.approx(PRODUCT / 100_000) and row["flags"] == "above limit" and row["wasted_ns"] < 0
    assert marks_of([row["efficiency"]], [row["flags"]])["0"].state == "flagged"


def test_marks_say_partial_and_estimated() -> None:
    marks = marks_of([0.5, 0.5, 0.5, None], ["", "estimated", "", ""], [0.5, 1.0, 1.0, 0.1])
    assert {row: mark.state for row, mark in marks.items()} == {"0": "partial", "1": "estimated"}


def test_sums_over_subtrees_keep_unknown_apart_from_zero() -> None:
    # GIVEN a root with two leaves, one of unknown value, and a second root that knows nothing
    import pandas as pd

    own = pd.DataFrame({"x": [1.0, np.nan, 4.0, np.nan]})
    assert subtree_sums(own, np.array([3, 2, 3, 4], np.int32))["x"].tolist()[:3] == pytest.approx([5.0, np.nan, 4.0], nan_ok=True)
    assert np.isnan(subtree_sums(own, np.array([3, 2, 3, 4], np.int32))["x"][3])


def test_a_kernel_takes_its_part_of_the_operators_work(run: Capture) -> None:
    # GIVEN a product run by kernels of 150 and 50 us, and an add by one of 40
    done = work(run, device_for(run))
    device = run.device
    table = pd.DataFrame(groups(run, np.ones(len(device), bool), "name", done)).set_index("name")
    # THEN they share the limit as 3 to 1, estimated; the add's own is exact; the unknown operator's kernel has none
    assert table.loc["gemm0", "sol_ns"] == pytest.approx(0.75 * PRODUCT) and table.loc["gemm1", "sol_ns"] == pytest.approx(0.25 * PRODUCT)
    assert table.loc["add", "sol_ns"] == pytest.approx(ADD) and np.isnan(table.loc["odd", "sol_ns"])
    assert table["flags"].to_dict() == {"gemm0": "estimated", "gemm1": "estimated", "add": "", "odd": ""}
    assert np.nansum(table["sol_ns"]) == pytest.approx(PRODUCT + ADD) and table["measured_ns"].sum() == 240_000
    # AND the arrays stand for any device rows
    part = parts_of(done, device["duration_ns"].to_numpy(), np.flatnonzero(device["name"].astype(str).to_numpy() == "add"))
    assert part["bytes"].tolist() == [3 * 2 * 4096**2]


def test_inclusive_work_of_a_module_is_its_own_and_that_below(run: Capture) -> None:
    nodes = pd.DataFrame(module_times(run, scope(run, Query()))).set_index("name")
    assert nodes["sol_ns"].to_dict() == {"Net_0": pytest.approx(PRODUCT + ADD), "Linear_0": pytest.approx(PRODUCT)}
    assert nodes["own_sol_ns"].to_dict() == {"Net_0": pytest.approx(ADD), "Linear_0": pytest.approx(PRODUCT)}
    # AND the page adds what lies outside: rows without a parent hold all limits and all device time
    answer = run.analyze("modules", merge="on")
    assert isinstance(answer, Report)
    table = answer.table("modules").set_index("name")
    assert table.loc["self: add", "sol_ns"] == round(ADD) and table.loc["self: add", "time_ns"] == 40_000
    tops = table[table["parent"].isna()]
    assert tops["time_ns"].sum() == 250_000 and tops["sol_ns"].dropna().sum() == pytest.approx(PRODUCT + ADD, abs=2)
    assert table.loc["(outside every module)", "time_ns"] == 10_000


def test_work_of_a_phase_is_that_of_the_calls_in_it(run: Capture) -> None:
    found = phase_work(run, scope(run, Query()))
    by_path = dict(zip(phase_tree(run).path, found.own["sol_ns"], strict=True))
    assert by_path["forward"] == pytest.approx(PRODUCT + ADD) and np.isnan(by_path["loss"])
    answer = run.analyze("phases")
    assert isinstance(answer, Report)
    once = answer.table("once")
    assert once[["phase", "ops", "sol_ns", "measured_ns", "share"]].values.tolist() == [["forward", 2, round(PRODUCT + ADD), 240_000, 1.0]]
    assert once["wasted_ns"].tolist() == [round(240_000 - PRODUCT - ADD)]


def test_forward_work_run_again_is_forward_and_counted_as_recomputed(tmp_path: Path) -> None:
    # GIVEN a checkpointed product (150 us) whose backward node runs the product again (160 us, no module recorded on that thread) and
    # then a product of its own (170 us)
    t = TraceBuilder()
    t.module("Block_0", 0, 5_000, module_id=1)
    t.op("CheckpointFunction", 100, 3_000, sequence=5)
    product(t, 200, 100_000, [150_000], sequence=6)
    back = {"thread": BACKWARD, "sequence": 5, "forward_thread": 1}
    t.op("autograd::engine::evaluate_function: CheckpointFunctionBackward", 20_000, 9_000, **back)  # type: ignore[arg-type]
    t.op("CheckpointFunctionBackward", 20_010, 8_900, **back)  # type: ignore[arg-type]
    product(t, 20_100, 300_000, [160_000], thread=BACKWARD, sequence=9)
    inner = {"thread": BACKWARD, "sequence": 9, "forward_thread": BACKWARD}
    t.op("autograd::engine::evaluate_function: MmBackward0", 24_000, 4_000, **inner)  # type: ignore[arg-type]
    product(t, 25_000, 500_000, [170_000], thread=BACKWARD)
    c = opened(t, tmp_path)
    part = scope(c, Query())
    both, forward, backward = (pd.DataFrame(module_times(c, part, d)).set_index("name").loc["Block_0"] for d in ("both", "forward", "backward"))  # type: ignore[arg-type]
    # THEN of three products two are forward work, and one of these is recomputed; the time of the latter is no backward time
    assert both["flop"] == 3 * 2 * 4096**3 and forward["flop"] == 2 * 2 * 4096**3 and backward["flop"] == 2 * 4096**3
    assert both["recompute_ns"] == 160_000 == forward["recompute_ns"] and np.nan_to_num(backward["recompute_ns"]) == 0
    assert (both["device_total_ns"], both["again_device_ns"], both["backward_device_ns"]) == (150_000, 160_000, 170_000)
    answer = c.analyze("modules")
    assert isinstance(answer, Report)
    row = answer.table("modules").set_index("name").loc["Block_0"]
    assert row["time_ns"] == 480_000 and row["recompute_share"] == pytest.approx(160 / 480)
    assert answer.facts["recompute_ns"] == 160_000 and answer.facts["outside_ns"] == 0
    # AND the operators page says so too
    operators = c.analyze("operators")
    assert isinstance(operators, Report)
    assert operators.table("operators").set_index("name").loc["aten::mm", "recompute_share"] == pytest.approx(160 / 480)


def test_work_from_before_the_window_counts_in_its_own_row(tmp_path: Path) -> None:
    # GIVEN two products recorded whole, and a kernel of their name, grid and block whose launch lies before the window
    t = TraceBuilder()
    t.kernel("gemm0", 0, 150_000, correlation=1)
    for i in range(2):
        product(t, 1_000 * (i + 1), 200_000 * (i + 1), [150_000])
    c = opened(t, tmp_path)
    roofline = c.analyze("roofline")
    operators = c.analyze("operators")
    assert isinstance(operators, Report) and isinstance(roofline, Report)
    table = operators.table("operators").set_index("name")
    known = roofline.facts["sol_ns"]
    # THEN the row of that kernel carries what the roofline gives it, and both pages agree
    assert operators.facts["sol_ns"] == known == pytest.approx(table["sol_ns"].dropna().sum(), abs=2)
    assert table.loc["(launched before the window)", "sol_ns"] == pytest.approx(PRODUCT, abs=1)
    assert table.loc["(launched before the window)", "flags"] == "estimated"
