"""Serving: iterations by kind and batch against what the simulated sample holds, and against small recordings worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tb_sol_plugin as sol
from samples.simulate_serving import FOLDER, TRACE
from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics.rules.time.engine_fixes import custom_fix, eager_fix, expert_fix
from tb_sol_plugin.model.report import Report, UnavailableReport
from tests.support.captures import capture, report
from tests.support.graphs import LAYER, ROOT, replay
from tests.support.trace_builder import TraceBuilder

SAMPLE = Path(__file__).resolve().parents[4] / "samples" / FOLDER
TRUTH: dict[str, Any] = json.loads((SAMPLE / "truth.json").read_text())


@pytest.fixture
def served() -> Report:
    return report(capture(SAMPLE / TRACE), "serving")


def test_iterations_are_those_of_the_sample(served: Report) -> None:
    # GIVEN eleven iterations whose kind, tokens, graphs and times are known WHEN they are listed THEN each is as it was made
    table = served.table("iterations").astype(object)
    rows = table.where(table.notna(), None).to_dict("records")
    assert len(rows) == len(TRUTH["iterations"])
    for row, one in zip(rows, TRUTH["iterations"], strict=True):
        assert {n: row[n] for n in ("kind", "requests", "context_tokens", "generation_tokens", "batch", "captured_batch", "wall_ns")} == {
            n: one[n] for n in ("kind", "requests", "context_tokens", "generation_tokens", "batch", "captured_batch", "wall_ns")
        }
        assert row["graphs"] == one["mode"] and row["gap_ns"] == one["gap_before_ns"] and row["device_ns"] == one["device_ns"]
        padding = one["captured_batch"] / one["batch"] - 1 if one["captured_batch"] else None
        assert row["padding"] == (pytest.approx(padding) if padding is not None else None)


def test_sums_by_kind_and_by_batch(served: Report) -> None:
    of_kind = {r["kind"]: r for r in served.table("by_kind").to_dict("records")}
    for kind in ("prefill", "decode", "mixed"):
        own = [one for one in TRUTH["iterations"] if one["kind"] == kind]
        row, wall = of_kind[kind], sum(one["wall_ns"] for one in own)
        tokens = sum(one["context_tokens"] + one["generation_tokens"] for one in own)
        assert (row["iterations"], row["tokens"], row["wall_ns"]) == (len(own), tokens, round(wall / len(own)))
        assert row["tokens_per_s"] == pytest.approx(tokens / wall * 1e9)
        assert row["tokens_per_device_s"] == pytest.approx(tokens / sum(one["device_ns"] for one in own) * 1e9)
    batches = served.table("by_batch")
    assert batches["batch"].tolist() == [2, 6, 7, 8, 9, 12, 20] and batches["captured_batch"].tolist()[:-1] == [8, 8, 8, 8, 16, 16]
    assert batches["iterations"].tolist() == [2, 1, 1, 1, 1, 2, 1] and batches["captured_batch"].isna().tolist()[-1]


def test_facts(served: Report) -> None:
    # GIVEN the truth THEN the single values are those that it gives by hand: rates over all time, shares of it, ranks of decode
    every = TRUTH["iterations"]
    decode = sorted(one["wall_ns"] for one in every if one["kind"] == "decode")
    gaps = sum(one["gap_before_ns"] or 0 for one in every)
    passed = sum(one["wall_ns"] for one in every) + gaps
    facts = served.facts
    assert (facts["iterations"], facts["prefill_iterations"], facts["decode_iterations"], facts["mixed_iterations"]) == (11, 1, 9, 1)
    assert (facts["context_tokens"], facts["generation_tokens"]) == (340, 84)
    assert facts["generation_tokens_per_s"] == pytest.approx(84 / passed * 1e9)
    assert (facts["output_token_p50_ns"], facts["output_token_p95_ns"], facts["output_token_max_ns"]) == (decode[4], decode[8], decode[8])
    shares = [facts[f"{kind}_share"] for kind in ("prefill", "decode", "mixed", "between")]
    assert sum(shares) == pytest.approx(1) and facts["between_share"] == pytest.approx(gaps / passed)  # type: ignore[arg-type]
    replayed = sum(one["device_ns"] for one in TRUTH["launches"])
    assert facts["replayed_share"] == pytest.approx(replayed / TRUTH["device_ns"]) and facts["named_share"] == 1
    assert facts["graph_launch_ns"] == 2_000
    assert facts["compute_bound_batch"] == round(1_307.4e12 / 5.3e12)  # dense bf16 peak of the MI300X over its bandwidth


def test_what_the_device_time_is_spent_on(served: Report) -> None:
    # GIVEN a prefill of two layers THEN its parts are the sums of its operators, and all parts add up to the device time
    table = served.table("phases_of_iteration")
    prefill = table[table["kind"] == "prefill"].set_index("part")["device_ns"]
    assert set(prefill.index) == {"GEMM", "attention", "norm", "sampling"}
    assert prefill.sum() == TRUTH["iterations"][0]["device_ns"]
    decode = table[table["kind"] == "decode"]
    mean = sum(one["device_ns"] for one in TRUTH["iterations"] if one["kind"] == "decode") / 9
    assert decode["device_ns"].sum() == pytest.approx(mean, abs=4) and decode["share"].sum() == pytest.approx(1)


def test_one_kind_and_one_iteration() -> None:
    c = capture(SAMPLE / TRACE)
    assert report(c, "serving", kind="mixed").table("iterations")["iteration"].tolist() == [5]
    one = report(c, "serving", step="4", by="kind")
    assert one.facts["iterations"] == 1 and [s.id for s in one.sections][1:3] == ["facts", "by_kind"]
    with pytest.raises(Unavailable, match="no other iteration"):
        c.analyze("serving", kind="other").table("iterations")


def test_parts_of_replays_without_a_capture_are_told_by_kernels(tmp_path: Path) -> None:
    # GIVEN replayed kernels without operators WHEN their capture is not known THEN names of kernels tell what they are for
    t = TraceBuilder()
    t.annotation("step[DECODE bs=4]", 0, 9_000)
    correlation = t.call("cudaGraphLaunch", 100, 500)
    kernels = {
        "nvjet_tst_128x64": "GEMM", "fused_moe_kernel": "MoE", "flash_fwd_splitkv": "attention", "reshape_and_cache_flash": "KV-cache write",
        "rms_norm_kernel": "norm", "topk_topp": "sampling", "ncclDevKernel_AllReduce": "communication", "something": "other",
    }  # fmt: skip
    for k, name in enumerate(kernels):
        t.kernel(name, 1_000 * (k + 1), 100 * (k + 1), correlation=correlation)
    t.copy("DtoD", 9_500, 50, bytes=8, correlation=correlation)
    c = sol.open_capture(str(t.write(tmp_path / "w.pt.trace.json")), cache=False)
    answer = c.analyze("serving")
    parts = {r["part"]: r["device_ns"] for r in answer.table("phases_of_iteration").to_dict("records")}
    assert parts == {part: 100 * (k + 1) for k, part in enumerate(kernels.values())} | {"copies and sets": 50}
    # AND the iteration is known to have launched a graph, of an unknown batch, and the page says how to record the capture
    (row,) = answer.table("iterations").to_dict("records")
    assert row["graphs"] == "a graph" and row["captured_batch"] is None and answer.facts["named_share"] == 0
    assert any("--enable-profile-cuda-graph" in n.text for n in answer.notices)


def test_a_host_that_runs_ahead_is_told(tmp_path: Path) -> None:
    # GIVEN two iterations of 1 us whose device work takes 5 us each THEN tokens are counted over the time until the last is done
    t = TraceBuilder()
    for k in range(2):
        t.annotation("step[DECODE bs=4]", 2_000 * k, 1_000)
        t.launch("kernel", at=2_000 * k + 100, start=500 + 5_000 * k, duration=5_000)
    answer = sol.open_capture(str(t.write(tmp_path / "w.pt.trace.json")), cache=False).analyze("serving")
    assert "5.00 µs** of the device" in answer.headline.replace("\u202f", " ") and "which does not wait for it" in answer.headline
    assert answer.facts["generation_tokens_per_s"] == pytest.approx(8 / 10_500 * 1e9)


def test_numbers_that_exclude_each_other_are_told(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.annotation("execute_4_context_0(sq0sk0)_generation_9(sq9sk9)", 0, 1_000)
    answer = sol.open_capture(str(t.write(tmp_path / "w.pt.trace.json")), cache=False).analyze("serving")
    assert any("numbers exclude each other" in n.text for n in answer.notices)
    (row,) = answer.table("iterations").to_dict("records")
    assert row["batch"] is None and row["generation_tokens"] is None and answer.facts["generation_tokens_per_s"] is None


def test_a_recording_of_no_engine_has_no_such_page(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.step(1, 0, 5_000)
    t.launch("kernel", at=100, start=500, duration=100)
    answer = sol.open_capture(str(t.write(tmp_path / "w.pt.trace.json")), cache=False).analyze("serving")
    assert isinstance(answer, UnavailableReport) and "no iteration of a serving engine" in answer.because


# -- what to change ------------------------------------------------------------------------------------------------------


def findings(answer: Report) -> dict[str, Any]:
    return {f.rule: f for f in answer.findings}


def test_findings_of_the_sample(served: Report) -> None:
    # GIVEN gaps of 880 us before decode iterations in which the device rests, one eager decode of 20 requests, padded graphs
    found = findings(served)
    # THEN each is told with what it could save per iteration, at most that time
    gap = found["serving_gap"]
    assert gap.saving_ns == 880_000 / 11 and "iteration 11, 400.0" in gap.evidence and gap.fix == "vllm serve --async-scheduling"
    eager = found["serving_eager"]
    (one,) = [one for one in TRUTH["iterations"] if one["kind"] == "decode" and one["mode"] == "eager"]
    assert eager.saving_ns == round((one["wall_ns"] - one["device_ns"]) / 11) and "1 of 9 decode iterations" in eager.evidence
    assert "captured for up to 16" in eager.evidence
    padded = [one for one in TRUTH["iterations"] if one["kind"] == "decode" and one["captured_batch"]]
    asked, captured = sum(one["batch"] for one in padded), sum(one["captured_batch"] for one in padded)
    assert f"graphs for {captured} requests are replayed with {asked}" in found["serving_padding"].evidence
    assert "one for 8 with 2" in found["serving_padding"].evidence
    # AND a graph for 9 to 12 requests would take no less than that for 8; below 8 nothing bounds the time, of two times 2, 6 and 7
    mean = sum(one["device_ns"] for one in padded if one["captured_batch"] == 8) / sum(one["captured_batch"] == 8 for one in padded)
    above = sum(one["device_ns"] - mean for one in padded if one["captured_batch"] == 16)
    assert found["serving_padding"].saving_ns == round(above / 11) and "; 4 below the smallest" in found["serving_padding"].evidence
    assert found["serving_batch"].candidate and "up to 20 requests" in found["serving_batch"].evidence
    # AND no finding is made of a mixed iteration that is hardly longer, nor of names that are known
    assert not {"serving_prefill", "serving_unnamed"} & set(found)


def served_by(tmp_path: Path, *iterations: tuple[str, int, int, int], graph: bool = True) -> dict[str, Any]:
    """Findings of iterations (annotation, gap before, wall, device time), each with one kernel that a graph launches, or a call."""
    t = TraceBuilder()
    now = 0
    for name, gap, wall, busy in iterations:
        now += gap
        t.annotation(name, now, wall)
        correlation = t.call("cudaGraphLaunch" if graph else "cudaLaunchKernel", now + 100, 100)
        t.kernel("kernel", now + wall - busy, busy, correlation=correlation)
        now += wall
    return findings(sol.open_capture(str(t.write(tmp_path / "w.pt.trace.json")), cache=False).analyze("serving"))  # type: ignore[arg-type]


def test_prefill_that_holds_up_decode(tmp_path: Path) -> None:
    # GIVEN decode of 10 us, and a mixed iteration of 50 us THEN it holds tokens up by 40 us, 10 us of each of four iterations
    decode = ("step[DECODE bs=4]", 0, 10_000, 9_000)
    found = served_by(tmp_path, decode, decode, ("step[MIXED bs=5 toks=500]", 0, 50_000, 49_000), decode)
    assert found["serving_prefill"].saving_ns == 10_000 and "--chunked-prefill-size" in found["serving_prefill"].fix
    assert found["serving_unnamed"].evidence.startswith("100")


def test_sampling_on_the_host_is_told_apart_from_the_scheduler(tmp_path: Path) -> None:
    # GIVEN three decode iterations of 10 us with 9 us on the device, 6 us between them: 4 us of argmax without any call, then 2 us
    t = TraceBuilder()
    for k in range(3):
        t.annotation("step[DECODE bs=4]", 16_000 * k, 10_000)
        t.launch("kernel", at=16_000 * k + 100, start=16_000 * k + 1_000, duration=9_000)
        t.op("aten::argmax", 16_000 * k + 10_000, 4_000)
    # AND in the second also a sort of the device's, which launches a kernel
    t.op("aten::sort", 16_500, 400)
    t.launch("sort", at=16_550, start=25_900, duration=100)
    found = findings(sol.open_capture(str(t.write(tmp_path / "w.pt.trace.json")), cache=False).analyze("serving"))  # type: ignore[arg-type]
    # THEN 8 us of sampling within the iterations and what is between them, and 4 us of the scheduler, stand apart, per iteration
    assert found["serving_sampling"].saving_ns == round(8_000 / 3) and "for 8.00" in found["serving_sampling"].evidence
    assert found["serving_gap"].saving_ns == round(4_000 / 3)


def test_decode_on_a_cpu_has_no_device_and_the_time_of_its_operators(tmp_path: Path) -> None:
    # GIVEN a prefill of 20 us with a product of 12 us, and two decode iterations of 10 us 5 us apart, with products of 6 us and attention
    t = TraceBuilder(device="")
    for at, wall, name, product in ((0, 20_000, "step[EXTEND bs=2 toks=64]", 12_000), (25_000, 10_000, "step[DECODE bs=2]", 6_000),
                                    (40_000, 10_000, "step[DECODE bs=2]", 6_000)):  # fmt: skip
        t.annotation(name, at, wall)
        t.op("aten::mm", at + 100, product, shapes=[[64, 8], [8, 8]], types=["float", "float"])
        t.op("aten::scaled_dot_product_attention", at + 200 + product, 2_000)
    answer = sol.open_capture(str(t.write(tmp_path / "w.pt.trace.json")), cache=False).analyze("serving")
    # THEN nothing is said of a device, and no finding is made of one that waits
    assert answer.facts["busy_share"] is None and answer.facts["generation_tokens_per_device_s"] is None
    assert answer.facts["output_token_p50_ns"] == 10_000 and "device" not in answer.headline
    assert answer.table("by_kind")["device_ns"].tolist() == [None, None] and findings(answer) == {}  # type: ignore[arg-type]
    # AND the parts are those of the operators, per iteration
    parts = answer.table("phases_of_iteration").to_dict("records")
    assert {(r["kind"], r["part"]): r["device_ns"] for r in parts} == {
        ("prefill", "GEMM"): 12_000, ("prefill", "attention"): 2_000, ("decode", "GEMM"): 6_000, ("decode", "attention"): 2_000,
    }  # fmt: skip


def test_an_engine_that_keeps_its_device_busy_gets_no_advice_on_gaps(tmp_path: Path) -> None:
    # GIVEN look-alikes: gaps in which the device still works, decode that is eager throughout, a large batch THEN nothing is advised
    busy = ("step[DECODE bs=400]", 5_000, 10_000, 9_000)
    t = TraceBuilder()
    for k in range(4):
        t.annotation(busy[0], 15_000 * k, 10_000)
        t.launch("kernel", at=15_000 * k + 100, start=15_000 * k + 1_000, duration=14_900)
    assert findings(sol.open_capture(str(t.write(tmp_path / "a" / "w.pt.trace.json")), cache=False).analyze("serving")) == {}  # type: ignore[arg-type]
    assert served_by(tmp_path / "b", ("step[DECODE bs=400]", 0, 10_000, 9_990), ("step[DECODE bs=400]", 0, 10_000, 9_990), graph=False) == {}


def test_a_host_that_is_done_before_the_device_gives_no_rate(tmp_path: Path) -> None:
    # GIVEN a decode iteration of 8 requests, 20 us on the host, whose graph starts 300 us after its launch at 1 us and runs 400 us
    t = TraceBuilder()
    replay(t, [(("aten::mm", "gemm", 400_000),)], 0, 301_000)
    served = report(capture(t.write(tmp_path / "w.json")), "serving")
    # THEN its time is that of the device, and so is the rate; from the first launch on 700 us passed, and a bit
    assert served.facts["output_token_p50_ns"] == 400_000 and "20.00\u202fµs on the host" in served.headline
    (kind,) = served.table("by_kind").to_dict("records")
    assert kind["tokens_per_s"] == pytest.approx(8 / 400e-6) and kind["wall_ns"] == 20_000
    # AND the wait for the graph is told, as possible: one launch may be the first of its graph
    finding = next(f for f in served.findings if f.rule == "serving_launch")
    assert finding.saving_ns == 300_000 and finding.candidate and finding.share == pytest.approx(300 / 701)
    assert "up to 300.0\u202fµs after the call" in finding.evidence
    # AND where graphs start at once it is not
    t = TraceBuilder()
    replay(t, [(("aten::mm", "gemm", 400_000),)], 0, 2_000)
    assert not [f for f in report(capture(t.write(tmp_path / "soon.json")), "serving").findings if f.rule == "serving_launch"]


def test_a_recorded_loop_on_the_cpu_is_read_as_any_engine() -> None:
    # GIVEN the committed recording of a decode loop: four prompts of 48 tokens, then six tokens of each, compiled
    (path,) = (SAMPLE.parent / "cpu_decode").glob("*.gz")
    c = capture(path)
    served = report(c, "serving")
    rows = served.table("iterations").to_dict("records")
    # THEN its iterations are those of the loop, and its parts those of the model; nothing is said of a device that is not there
    assert [(r["kind"], r["requests"], r["context_tokens"] + r["generation_tokens"]) for r in rows] == [("prefill", 4, 192)] + [("decode", 4, 4)] * 6
    parts = served.table("phases_of_iteration")
    assert {"GEMM", "attention", "norm"} <= set(parts["part"]) and served.table("by_kind")["device_ns"].isna().all()
    assert served.facts["generation_tokens"] == 24 and served.facts["replayed_share"] is None
    # AND of two layers each iteration has attention twice
    calls = c.host.loc[c.host["name"].astype(str).str.match(r"aten::_?scaled_dot_product\w*_for_cpu$"), "start_ns"].to_numpy()
    begin = c.steps["host_start_ns"].to_numpy()
    assert np.bincount(np.searchsorted(begin, calls, side="right") - 1).tolist() == [2] * 7
    assert path.stat().st_size < 100_000


def test_a_prefill_alone_has_its_rate_in_the_headline(tmp_path: Path) -> None:
    # GIVEN 888 tokens in 20 us
    t = TraceBuilder()
    replay(t, [LAYER], 0, 10_000, root="execute_context_1(888_788544)_generation_0(0)")
    headline = report(capture(t.write(tmp_path / "w.json")), "serving").headline
    assert "A prefill iteration takes **20.00\u202fµs** (one recorded) for 888 tokens: **44\u202f400\u202f000 tokens/s**." in headline


def test_the_overview_says_that_its_means_mix_kinds(tmp_path: Path) -> None:
    # GIVEN the sample WHEN its overview is shown THEN it says which kinds, with the way to their table; of one kind it says nothing
    notices = report(capture(SAMPLE / TRACE), "overview").notices
    (one,) = [n for n in notices if n.link is not None and n.link.analysis == "serving"]
    assert one.text.startswith("Steps are iterations of inference: 9 decode, 1 prefill, 1 mixed.")
    assert not [n for n in report(capture(SAMPLE / TRACE), "overview", step="2-4").notices if "Means here" in n.text]


def test_advice_names_the_options_of_the_engine(tmp_path: Path) -> None:
    # GIVEN decode of vLLM whose kernels are launched one by one, each 90 us after the one before has ended
    t = TraceBuilder()
    t.annotation(ROOT, 0, 4_000_000)
    for k in range(20):
        at = 150_000 * k
        t.op("aten::relu", at, 100_000)
        t.launch("relu", at=at + 90_000, start=at + 95_000, duration=50_000)
    fixes = {f.rule: f.fix for f in report(capture(t.write(tmp_path / "w.json")), "overview").findings}
    # THEN the advice is of that engine: graphs for these batches, and not torch.compile
    assert "cudagraph_capture_sizes" in fixes["launch_bound"]
    # AND a replayed graph of 400 us with 20 us before it is not bound by its launches
    t = TraceBuilder()
    for k in range(12):
        replay(t, [(("aten::mm", "gemm", 400_000),)], 420_000 * k, 420_000 * k + 5_000)
    assert "launch_bound" not in {f.rule for f in report(capture(t.write(tmp_path / "graphs.json")), "overview").findings}
    # AND by name: experts, custom operators and PyTorch's own
    c = capture(SAMPLE / TRACE)
    assert "benchmark_moe.py --tune" in expert_fix(c, "vllm::moe_forward") and not expert_fix(c, "aten::mm")
    assert "custom_ops" in custom_fix(c, "_C::rotary_embedding") and not custom_fix(c, "aten::add") and not custom_fix(c, "triton_poi_fused_0")
    plain = capture(TraceBuilder().write(tmp_path / "plain.json"))
    assert "tune the tiles" in expert_fix(plain, "fused_moe_kernel") and "custom kernel" in custom_fix(plain, "aiter::rmsnorm") and not eager_fix(plain)
