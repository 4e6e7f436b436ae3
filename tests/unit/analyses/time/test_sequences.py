"""Frequent sequences: numbers of a trace that is written here."""

from __future__ import annotations

from pathlib import Path

import tb_sol_plugin as sol
from tb_sol_plugin.model.report import Report
from tests.support.graphs import LAYER, capture_window, pair, replay
from tests.support.trace_builder import TraceBuilder


def test_layers_of_replays_are_found_with_and_without_their_names(tmp_path: Path) -> None:
    # GIVEN two replays of a graph of four layers of 3, 2 and 1 us, the recording of its capture beside them
    captured, replayed = TraceBuilder(device="AMD Instinct MI300X"), TraceBuilder(device="AMD Instinct MI300X")
    capture_window(captured, [LAYER] * 4, 0)
    replay(replayed, [LAYER] * 4, 0, 10_000)
    replay(replayed, [LAYER] * 4, 40_000, 50_000)
    path = pair(tmp_path / "run", captured, replayed)
    c = sol.open_capture(str(path), cache=False)
    answer = c.analyze("sequences")
    assert isinstance(answer, Report)
    # THEN the layer occurs 4 times per iteration and takes all of the kernel time, 6 us each
    facts = answer.facts
    assert facts["layer_kernels"] == 3 and facts["layer_count"] == 8 and facts["layer_ns"] == 6_000 and facts["layer_share"] == 1.0
    assert "**8 times**, 4 per step" in answer.headline and "looks like a layer, or several" in answer.headline
    (row,) = answer.table("sequences").to_dict("records")
    assert (row["kernels"], row["count"], row["total_ns"], row["gap_ns"], row["start_ns"], row["span_ns"]) == (3, 8, 48_000, 0, 10_000, 6_000)
    assert (row["first_operator"], row["last_operator"], row["first_module"]) == ("aten::mm", "aten::add", "Layer")
    assert row["sequence"] == "gemm → attention → add"
    # AND its kernels are listed with their means
    table = answer.table("kernels").to_dict("records")
    assert [(r["position"], r["operator"], r["mean_ns"]) for r in table] == [
        ("1", "aten::mm", 3_000), ("2", "vllm::unified_attention_with_output", 2_000), ("3", "aten::add", 1_000),
    ]  # fmt: skip
    # AND of a sequence that there is not in this selection those of the first are
    assert c.analyze("sequences", sequence=9).table("kernels")["position"].tolist() == ["1", "2", "3"]
    # AND without the recording of the capture the same layers show, without operators
    bare = sol.open_capture(str(path.rename(tmp_path / "alone.pt.trace.json")), cache=False).analyze("sequences")
    (row,) = bare.table("sequences").to_dict("records")
    assert (row["kernels"], row["count"], row["first_operator"], row["first_module"]) == (3, 8, None, None)


def test_kernels_that_repeat_nothing_have_no_sequence(tmp_path: Path) -> None:
    t = TraceBuilder()
    for k in range(5):
        t.kernel(f"k{k}", 1_000 + 2_000 * k, 1_000)
    answer = sol.open_capture(str(t.write(tmp_path / "w.pt.trace.json")), cache=False).analyze("sequences")
    assert isinstance(answer, Report) and "occurs twice" in answer.headline and not len(answer.table("sequences"))
