"""Work of a SOL capture: its ledger as calls, with sums that agree on every page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.time import scope as source
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.time.waterfall import waterfall
from tb_sol_plugin.metrics.trees.modules import module_times
from tb_sol_plugin.metrics.trees.phases import phase_times, phase_tree
from tb_sol_plugin.metrics.work.sums import calls_of, phase_work, ratios, sums
from tb_sol_plugin.metrics.work.unmodeled import unmodeled
from tb_sol_plugin.metrics.work.work import group, work
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tests.support.captures import report
from tests.support.sol_builder import CUDA, SolBuilder, small

FLOP = 22_528  # of one iteration of `small`
BYTES = 27_520


def opened(b: SolBuilder, folder: Path) -> Capture:
    return read(str(b.write(folder / b.name)))


def untimed(b: SolBuilder) -> SolBuilder:
    """The same as the recorder writes it on a GPU: no time of single calls, device times of ranges and iterations (90 % of the host's)."""
    for r in b.records:
        if r["kind"] == "ledger":
            r["rows"] = [[*row[:7], None] for row in r["rows"]]  # type: ignore[misc,union-attr,index]
        if r["kind"] == "step":
            r["device_ns"] = r["duration_ns"] * 9 // 10  # type: ignore[operator]
        if r["kind"] in ("phase_time", "module_time"):  # the module around others is not timed
            r["rows"] = [[*row[:3], row[2] * 9 // 10 if row[0] != 2 else None, row[4]] for row in r["rows"]]  # type: ignore[misc,union-attr,index,operator]
    return b


def on_a_slow_cpu(b: SolBuilder, folder: Path) -> Capture:
    """Opened beside a device file for its CPU: 1 GFLOP/s in FP32, 1 GB/s."""
    row = {
        "key": "slow",
        "name": "A CPU",
        "vendor": "cpu",
        "fp32_matrix_tflops": 0.001,
        "fp32_vector_tflops": 0.001,
        "mem_bw_gb_per_s": 1.0,
    }
    (folder / "sol_devices.json").write_text(json.dumps([row]))
    return sol.open_capture(str(b.write(folder / b.name)))


# -- calls ------------------------------------------------------------------------------------------------------


def test_a_row_of_the_ledger_is_as_many_calls_as_it_counts(tmp_path: Path) -> None:
    # GIVEN the second sampled iteration of a perceptron: five products, and an update that ran twice in 0.1 ms
    done = work(opened(small(), tmp_path))
    # THEN seven calls own all of it; iteration 0 carries one-time costs and is left out
    ops = done.ops
    assert len(ops) == 7 and done.from_ledger and done.by_host_time and done.timed
    assert ops["flop"].sum() == FLOP and ops["bytes"].sum() == BYTES and ops["flop_vector"].sum() == 1_280
    assert ops["measured_ns"].tolist() == [400_000, 200_000, 300_000, 300_000, 800_000, 50_000, 50_000]
    assert done.device_ns == 2_100_000 == done.modelled_ns
    assert ops["direction"].tolist() == ["fwd", "fwd", "bwd", "bwd", "bwd", "fwd", "fwd"]
    assert ops["layer"].tolist() == ["Linear"] * 5 + [""] * 2


def test_a_continued_recording_counts_both_sampled_iterations(tmp_path: Path) -> None:
    # GIVEN a continuation, which does not begin with the first iteration WHEN both its sampled iterations are looked at
    c = opened(small(part=1), tmp_path)
    whole, one = (calls_of(c, scope(c, Query(step=step))) for step in ("", "0"))
    # THEN the whole holds twice the work of one
    assert np.nansum(whole.values["flop"]) == 2 * FLOP and np.nansum(one.values["flop"]) == FLOP


def test_phases_modules_and_rows_hold_the_same_work(tmp_path: Path) -> None:
    c = opened(small(), tmp_path)
    part = scope(c, Query())
    # GIVEN the work by phase THEN forward 10 240, backward 12 288 FLOP, and the update in none below the step
    found = phase_work(c, part)
    own = dict(zip(phase_tree(c).path, np.nan_to_num(found.own["flop"]).tolist(), strict=True))
    assert own == {"ProfilerStep": 0, "ProfilerStep/train": 0, "ProfilerStep/train/forward": 10_240, "ProfilerStep/train/backward": 12_288}
    ops = dict(zip(phase_times(c, part)["path"], phase_times(c, part)["ops"], strict=True))
    assert ops == {"ProfilerStep": 7, "ProfilerStep/train": 5, "ProfilerStep/train/forward": 2, "ProfilerStep/train/backward": 3}
    # AND by module: each Linear has its forward and twice that backward, but for the input of the first, which needs no gradient
    nodes = pd.DataFrame(module_times(c, part)).set_index("name")
    assert nodes["flop"].to_dict() == {"MLP_0": FLOP, "Linear_0": 16_384, "Linear_1": 6_144}
    assert nodes["backward_flop"].to_dict() == {"MLP_0": 12_288, "Linear_0": 8_192, "Linear_1": 4_096}
    assert pd.DataFrame(module_times(c, part, "forward")).set_index("name")["flop"].to_dict() == {"MLP_0": 10_240, "Linear_0": 8_192, "Linear_1": 2_048}
    # AND every grouping of the roofline adds up to the ledger
    for by in ("op_shape", "op", "kernel", "module", "layer", "phase", "step", "dtype", "kind"):
        t = report(c, "roofline", by=by).table("ops")
        assert t["flop"].sum() == FLOP and t["calls"].sum() == 7 and t["measured_ns"].sum() == 2_100_000, by


def test_modules_have_their_names_in_the_model(tmp_path: Path) -> None:
    t = report(opened(small(), tmp_path), "modules").table("modules")
    assert t["qualified_name"].fillna("").tolist() == ["mlp", "mlp.fc1", "mlp.fc2", ""]
    assert t["operator_ns"].tolist() == [2_000_000, 1_200_000, 800_000, 100_000]


def test_work_that_the_recorder_left_open_comes_from_the_sizes(tmp_path: Path) -> None:
    # GIVEN a recorder without cost models: a product of 64x32 @ 32x16 in FP32, and an operator that no model knows
    b = SolBuilder()
    mm = b.sig("aten::mm", [[64, 32], [32, 16]], [[64, 16]], flop=None, flop_vector=None, bytes=None, dtype="", work="")
    odd = b.sig("mine::op", [[8]], flop=None, flop_vector=None, bytes=None, dtype="", work="", reason="no formula")
    b.iteration(3, 0, 1_000, rows=[b.row(mm, time_ns=100), b.row(odd, time_ns=50)])
    done = work(opened(b, tmp_path))
    # THEN the product has 2 x 64 x 32 x 16 FLOP and 4 x (2048 + 512 + 1024) bytes; the other has its time and no work
    assert done.ops["flop"].tolist()[0] == 65_536 and done.ops["bytes"].tolist()[0] == 14_336
    assert done.ops["kind"].tolist() == ["gemm", "other"] and done.ops["dtype"].tolist() == ["fp32", "fp32"]
    assert done.ops["modeled"].tolist() == [True, False] and np.isnan(done.ops["flop"].iloc[1])
    assert done.modelled_share == pytest.approx(100 / 150)
    bare = unmodeled(opened(b, tmp_path), done, done.ops)
    assert bare[["name", "calls", "measured_ns", "why"]].to_numpy().tolist() == [["mine::op", 1, 50, "no formula"]]


def test_collectives_are_no_work_of_the_device(tmp_path: Path) -> None:
    b = SolBuilder()
    reduce = b.sig("c10d::allreduce_", [[[1000]]], flop=None, flop_vector=None, bytes=None, dtype="", work="")
    mm = b.sig("aten::mm", [[8, 8], [8, 8]], flop=1024, bytes=768)
    b.iteration(3, 0, 1_000, rows=[b.row(mm, time_ns=100), b.row(reduce, time_ns=300, count=2)])
    c = opened(b, tmp_path)
    assert work(c).ops["collective"].tolist() == [False, True, True] and not len(unmodeled(c, work(c), work(c).ops))
    fall = waterfall(c, scope(c, Query()))
    assert fall.exposed_communication_ns == 300 and fall.unmodelled_ns == 0 and fall.outside_ns == 600
    kinds = report(c, "roofline").table("kinds").set_index("name")["device_ns"].to_dict()
    assert kinds == {"GEMM": 100, "(communication)": 300}


def test_fp32_products_take_tf32_where_the_program_allowed_it(tmp_path: Path) -> None:
    for number, (matmul, cudnn, wanted) in enumerate((("high", False, "tf32"), ("highest", True, "fp32"))):
        b = small(device=CUDA, precision={"matmul": matmul, "cudnn_tf32": cudnn})
        (tmp_path / str(number)).mkdir()
        ops = work(opened(b, tmp_path / str(number))).ops
        assert ops.loc[ops["kind"] == "gemm", "dtype"].unique().tolist() == [wanted]
        assert ops.loc[ops["kind"] == "elementwise", "dtype"].unique().tolist() == ["fp32"]
    (tmp_path / "cpu").mkdir()
    cpu = work(opened(small(precision={"matmul": "high", "cudnn_tf32": True}), tmp_path / "cpu")).ops
    assert "tf32" not in cpu["dtype"].tolist(), "a CPU has none"


def test_of_very_many_calls_only_the_last_iterations_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN room for 10 calls and two iterations of 7
    monkeypatch.setattr(source, "MOST_CALLS", 10)
    c = opened(small(part=1), tmp_path)
    part = scope(c, Query())
    # THEN only the last is there: its work, its host time, and a notice that the other is left out
    assert part.steps == (1,) and len(work(c).ops) == 7
    assert module_times(c, part)["calls"].tolist() == [1, 1, 1]
    assert "1 earlier sampled" in report(c, "roofline").notices[0].text


# -- limits -----------------------------------------------------------------------------------------------------


def test_calls_on_a_measured_cpu_have_limits(tmp_path: Path) -> None:
    # GIVEN a CPU of 1 GFLOP/s and 1 GB/s: a product of 8 192 FLOP and 3 584 B takes 8 192 ns, one of 2 048 and 1 664 takes 2 048,
    # an update of 640 vector FLOP and 7 680 B takes 7 680
    c = on_a_slow_cpu(small(), tmp_path)
    spec = device_for(c)
    assert spec is not None and spec.vendor == "cpu"
    done = work(c, spec)
    assert done.ops["sol_ns"].tolist() == pytest.approx([8_192, 2_048, 2_048, 2_048, 8_192, 7_680, 7_680])
    assert done.ops["bound"].tolist() == ["compute"] * 5 + ["memory"] * 2
    # THEN the sums of every page are 22 528 + 15 360 = 37 888 ns of 2.1 ms
    facts = report(c, "roofline").facts
    assert (facts["sol_ns"], facts["measured_ns"]) == (37_888, 2_100_000)
    part = scope(c, Query())
    whole = phase_work(c, part).inclusive.iloc[0]
    assert whole["sol_ns"] == pytest.approx(37_888) and whole["measured_ns"] == 2_100_000
    nodes = report(c, "modules").table("modules")
    assert nodes["sol_ns"].tolist()[0] + nodes["sol_ns"].tolist()[-1] == 37_888
    # AND the waterfall adds up: 8 ms = 2.1 ms in operators + 5.9 ms outside
    fall = waterfall(c, part)
    assert fall.total_ns == 8_000_000 == sum(fall.measured_parts.values()) and fall.outside_ns == 5_900_000
    assert fall.sol_ns == pytest.approx(37_888) and fall.ratio == pytest.approx(37_888 / 8e6)
    # AND MFU is over the iteration that was not sampled, 8 ms too: 22 528 FLOP at 1 GFLOP/s
    assert facts["mfu"] == pytest.approx(22_528 / 8e6)


# -- unknown times ----------------------------------------------------------------------------------------------


def test_calls_without_a_time_have_limits_and_no_ratios(tmp_path: Path) -> None:
    # GIVEN a capture of a GPU: no call has a time
    c = opened(untimed(small(device=CUDA, time_source="event")), tmp_path)
    spec = device_for(c)
    assert spec is not None and spec.key == "H100_SXM"
    done = work(c, spec)
    assert not done.timed and not done.by_host_time and done.ops["measured_ns"].isna().all() and np.isfinite(done.ops["sol_ns"]).all()
    # THEN sums have limits, and times that are unknown rather than 0
    total = group(done.ops, np.zeros(7, np.int64)).iloc[0]
    assert total["sol_ns"] == pytest.approx(done.ops["sol_ns"].sum()) and total["bound"] == "memory"
    assert np.isnan(total["measured_ns"]) and np.isnan(total["efficiency"]) and np.isnan(total["wasted_ns"])
    row = ratios(sums(calls_of(c, scope(c, Query())).values, np.zeros(7, np.int64), 1)).iloc[0]
    assert row["bound"] == "memory" and np.isnan(row["efficiency"]) and np.isnan(row["owned_sum_ns"])
    facts = report(c, "roofline").facts
    assert facts["sol_ns"] == round(total["sol_ns"]) and facts["measured_ns"] is None and facts["modelled_share"] is None


def test_a_group_with_timed_and_untimed_calls_mixes_no_ratio(tmp_path: Path) -> None:
    # GIVEN two equal products of which one was timed, at 10 times its limit THEN the efficiency is 10 %, the limit that of both
    b = SolBuilder()
    mm = b.sig("aten::mm", [[8, 8], [8, 8]], flop=1024, bytes=768)
    b.iteration(3, 0, 100_000, rows=[b.row(mm, time_ns=10_240), b.row(mm, function=0)])
    c = on_a_slow_cpu(b, tmp_path)
    total = group(work(c, device_for(c)).ops, np.zeros(2, np.int64)).iloc[0]
    assert total["sol_ns"] == pytest.approx(2_048) and total["efficiency"] == pytest.approx(0.1)
    row = ratios(sums(calls_of(c, scope(c, Query())).values, np.zeros(2, np.int64), 1)).iloc[0]
    assert row["sol_ns"] == pytest.approx(2_048) and row["efficiency"] == pytest.approx(0.1) and row["wasted_ns"] == pytest.approx(9_216)


def test_phases_and_modules_take_the_time_between_their_events(tmp_path: Path) -> None:
    c = opened(untimed(small(device=CUDA, time_source="event")), tmp_path)
    # GIVEN device times of 90 % of the host's THEN the phases have them, the level between them their sum, the step its iteration's
    t = report(c, "phases").table("phases").set_index("path")
    assert t["device_ns"].to_dict() == {
        "ProfilerStep": 7_200_000, "ProfilerStep/train": 5_400_000,
        "ProfilerStep/train/forward": 1_800_000, "ProfilerStep/train/backward": 3_600_000,
    }  # fmt: skip
    sol = float(np.nansum(phase_work(c, scope(c, Query())).inclusive["sol_ns"].iloc[[2]]))
    assert t.loc["ProfilerStep/train/forward", "efficiency"] == pytest.approx(sol / 1_800_000)
    # AND that is another quantity than the efficiency of calls, so it has other words, on the overview too
    over_phases = {"efficiency": "Limit over phase time", "wasted_ns": "Phase time above limit"}
    for name, section, words in (("phases", "phases", over_phases), ("overview", "phases", over_phases), ("modules", "modules", {
        "efficiency": "Limit over module time", "wasted_ns": "Module time above limit",
    })):  # fmt: skip
        answer = report(c, name, **({"direction": "forward"} if name == "modules" else {}))
        labels = {column.name: column.label for s in answer.sections if s.id == section for column in getattr(s, "columns", ())}
        assert {n: label for n, label in labels.items() if n in words} == {n: w for n, w in words.items() if n in labels}, name
        assert "efficiency" in labels
    # AND on the roofline each phase is timed less those inside: 7.2 - 5.4 = 1.8 ms of the step itself
    rows = report(c, "roofline", by="phase").table("ops").set_index("name")["measured_ns"].to_dict()
    assert rows == {"train/forward": 1_800_000, "train/backward": 3_600_000, "ProfilerStep": 1_800_000}
    assert report(c, "roofline", by="step").table("ops")["measured_ns"].tolist() == [7_200_000]
    # AND only modules without others inside are timed, forward
    nodes = report(c, "modules", direction="forward").table("modules").set_index("name")
    assert nodes["device_total_ns"].tolist()[:3] == pytest.approx([float("nan"), 540_000, 360_000], nan_ok=True)
    assert pd.isna(nodes.loc["mlp", "efficiency"]) and nodes.loc["fc1", "efficiency"] > 0
    forward = report(c, "roofline", by="module", direction="forward").table("ops").set_index("name")["measured_ns"].dropna().to_dict()
    assert forward == {"mlp.fc1": 540_000, "mlp.fc2": 360_000}
    assert pd.isna(report(c, "modules").table("modules")["efficiency"]).all(), "backward work has no time"


def test_the_step_of_a_gpu_is_split_into_limit_and_rest(tmp_path: Path) -> None:
    c = opened(untimed(small(device=CUDA, time_source="event")), tmp_path)
    fall = waterfall(c, scope(c, Query()))
    # GIVEN the unsampled iteration of 7.2 ms on the device THEN that is the step, all of it unsplit
    assert fall.total_ns == 7_200_000 == fall.unsplit_ns == sum(fall.measured_parts.values())
    parts = report(c, "overview").table("parts")
    assert parts["time_ns"].iloc[1:].sum() == pytest.approx(7_200_000, abs=2)
    facts = report(c, "overview").facts
    assert facts["gpu_busy"] is None and facts["speed_of_light"] == pytest.approx(fall.sol_ns / 7.2e6)
    assert not c.analyze("findings").available


# -- words ------------------------------------------------------------------------------------------------------


def test_a_sampled_iteration_that_lasts_longer_is_reported(tmp_path: Path) -> None:
    # GIVEN a sampled iteration of 8 ms and another of the same inputs that took 5 ms
    b = small()
    for r in b.records:
        if r["kind"] == "step" and r["iteration"] == 2:
            r["duration_ns"] = 5_000_000
    c = opened(b, tmp_path)
    text = " ".join(n.text for n in report(c, "overview").notices)
    assert "8.00" in text and "5.00" in text
    # AND a step is as long as the latter: of 8 ms 2.1 were in operators and 5.9 outside, so of 5 ms these take 5/8
    fall = waterfall(c, scope(c, Query()))
    assert (fall.total_ns, fall.outside_ns) == (5_000_000, 3_687_500)
    usual = source.step_time(c, (0,))
    assert usual is not None and usual.median_ns == 5_000_000 and usual.ratio == pytest.approx(1.6)


def test_events_that_the_recorder_lost_are_reported(tmp_path: Path) -> None:
    b = small()
    for r in b.records:
        if r["kind"] == "step" and r["iteration"] == 1:
            r["lost"] = {"quantized tensor": 3}
    c = opened(b, tmp_path)
    assert any("3 × quantized tensor" in n.text for n in report(c, "roofline").notices)


def test_the_headline_says_what_was_counted(tmp_path: Path) -> None:
    assert "22.53" in report(opened(small(), tmp_path), "roofline").headline
    c = opened(small(), tmp_path)
    assert report(c, "phases").headline.startswith("**train/backward** takes 4.00")
    assert report(c, "modules").headline.startswith("Work in the 2 `Linear` modules is **100.0")


def test_recomputed_calls_count_at_the_node_of_their_module(tmp_path: Path) -> None:
    # GIVEN a block that runs again inside the backward pass, outside its model's call
    b = SolBuilder()
    forward, backward = b.phase("forward"), b.phase("backward")
    root = b.module("net", "Net")
    block = b.module("net.block", "Block", root)
    again = b.module("net.block", "Block")
    mm = b.sig("aten::mm", [[8, 8], [8, 8]], flop=1024, bytes=768)
    b.iteration(
        3, 0, 10_000,
        rows=[b.row(mm, module=block, phase=forward, time_ns=100), b.row(mm, module=again, phase=backward, flags=2, time_ns=100),
              b.row(mm, module=block, phase=backward, forward_phase=forward, flags=1, count=2, time_ns=200)],
        phases=[b.time(forward, 0, 4_000), b.time(backward, 4_000, 5_000)],
        modules=[b.time(root, 100, 3_000), b.time(block, 200, 2_000), b.time(again, 5_000, 1_000)],
    )  # fmt: skip
    c = opened(b, tmp_path)
    nodes = module_times(c, scope(c, Query()))
    # THEN it is one node below the model, called twice, with its forward work twice and its backward work once
    assert nodes["name"].tolist() == ["Net_0", "Block_0"] and nodes["calls"].tolist() == [1, 2]
    assert nodes["flop"].tolist() == [4_096, 4_096] and nodes["backward_flop"].tolist() == [2_048, 2_048]
    assert work(c).ops["recompute"].tolist() == [False, True, False, False]


def test_times_of_compiled_code_that_ran_eagerly_are_not_shown(tmp_path: Path) -> None:
    # GIVEN the same perceptron, compiled: its sampled iteration ran eagerly in 8 ms, the one after it compiled in 5 ms
    b = small()
    for r in b.records:
        if r["kind"] == "ledger":
            r["rows"] = [[*row[:5], row[5] | 8, *row[6:]] for row in r["rows"]]  # type: ignore[misc,union-attr,index,operator]
        if r["kind"] == "step" and r["iteration"] == 2:
            r["duration_ns"] = 5_000_000
    c = opened(b, tmp_path)
    done = work(c)
    # THEN its work is right, and no operator has a time
    assert done.ops["flop"].sum() == FLOP and not done.timed and done.ops["measured_ns"].isna().all()
    fall = waterfall(c, scope(c, Query()))
    assert fall.total_ns == 5_000_000 == fall.unsplit_ns
    # AND a phase is held against its host time in the compiled iteration: 2 and 4 ms
    assert report(c, "roofline", by="phase").table("ops").set_index("name")["measured_ns"].drop("ProfilerStep").to_dict() == {
        "train/forward": 2_000_000,
        "train/backward": 4_000_000,
    }
    assert any("compiled" in n.text for n in report(c, "overview").notices)


def test_operators_of_several_threads_share_their_step(tmp_path: Path) -> None:
    # GIVEN 2.1 ms of operators in a sampled step of 1 ms, and steps of 0.5 ms in which nothing is counted
    b = small()
    for r in b.records:
        if r["kind"] == "step":
            r["duration_ns"] = 500_000 if r["iteration"] == 2 else 1_000_000
    c = opened(b, tmp_path)
    parts = report(c, "overview").table("parts")
    # THEN the parts add up to the step, and none is outside of operators
    assert parts["time_ns"].iloc[1:].sum() == parts["time_ns"].iloc[0] == 500_000
    assert waterfall(c, scope(c, Query())).outside_ns < 10


@pytest.mark.parametrize("own", [False, True])
def test_calls_outside_the_model_without_work_of_their_own(tmp_path: Path, own: bool) -> None:
    # GIVEN a block that runs again outside its model's call; the recorder credits its work to the first call, or (own) it is called
    # there by the program itself, with forward work
    b = SolBuilder()
    root = b.module("net", "Net")
    block = b.module("net.block", "Block", root)
    alone = b.module("net.block", "Block")
    mm = b.sig("aten::mm", [[8, 8], [8, 8]], flop=1024, bytes=768)
    more = b.row(mm, module=alone, time_ns=100) if own else b.row(mm, module=block, flags=2, time_ns=100)
    b.iteration(
        3,
        0,
        10_000,
        rows=[b.row(mm, module=block, time_ns=100), more],
        modules=[b.time(root, 100, 3_000), b.time(block, 200, 2_000), b.time(alone, 5_000, 1_000)],
    )
    c = opened(b, tmp_path)
    nodes = module_times(c, scope(c, Query()))
    # THEN it is the same node where it runs again, and a node of its own where the program calls it
    assert nodes["name"].tolist() == (["Net_0", "Block_0", "Block_0"] if own else ["Net_0", "Block_0"])
    assert nodes["flop"].tolist() == ([1_024, 1_024, 1_024] if own else [2_048, 2_048])


@pytest.mark.parametrize("timed", [False, True])
def test_a_module_that_calls_itself_is_one_module(tmp_path: Path, timed: bool) -> None:
    # GIVEN a block that calls itself, with a product in either call, timed or known by its labels alone
    b = SolBuilder()
    outer = b.module("block", "Block")
    inner = b.module("block", "Block", outer)
    mm = b.sig("aten::mm", [[8, 8], [8, 8]], flop=1024, bytes=768)
    times = [b.time(outer, 100, 3_000, 900), b.time(inner, 200, 2_000, 600)] if timed else []
    b.iteration(3, 0, 10_000, rows=[b.row(mm, module=outer), b.row(mm, module=inner)], modules=times)
    c = opened(b, tmp_path)
    # THEN it is one row with both products, whose time is that of the outer call
    t = report(c, "modules").table("modules")
    assert t["id"].tolist() == ["Block_0"] and t["flop"].tolist() == [2_048]
    assert report(c, "roofline", by="module").table("ops")["flop"].tolist() == [2_048]
    if timed:
        assert t["calls"].tolist() == [2] and t["host_total_ns"].tolist() == [3_000] and t["device_total_ns"].tolist() == [900]


def test_modules_of_compiled_code_are_known_by_their_labels(tmp_path: Path) -> None:
    # GIVEN work in two layers of a model, of which no call was timed
    b = SolBuilder()
    root = b.module("net", "Net")
    layers = [b.module(f"net.{i}", "Linear", root) for i in range(2)]
    mm = b.sig("aten::mm", [[8, 8], [8, 8]], flop=1024, bytes=768)
    rows = [b.row(mm, module=layer, flags=8 | back, count=1 + back) for layer in layers for back in (0, 1)]
    b.iteration(3, 0, 10_000, rows=[*rows, b.row(mm, flags=8)])
    c = opened(b, tmp_path)
    # THEN the tree is that of the labels: 3 products in each layer, 6 in the model, one outside
    t = report(c, "modules").table("modules")
    assert t["id"].tolist() == ["Net_0", "Net_0/Linear_0", "Net_0/Linear_1", "(outside every module)"]
    assert t["name"].tolist() == ["net", "0", "1", "(outside every module)"]
    assert t["qualified_name"].fillna("").tolist() == ["net", "net.0", "net.1", ""]
    assert t["flop"].tolist() == [6_144, 3_072, 3_072, 1_024] and t["backward_flop"].fillna(0).tolist() == [4_096, 2_048, 2_048, 0]
    assert t["calls"].isna().all() and t["host_total_ns"].isna().all()
    rows_of = report(c, "roofline", by="module").table("ops").set_index("name")["flop"].to_dict()
    assert rows_of == {"net.0": 3_072, "net.1": 3_072, "(outside every module)": 1_024}
