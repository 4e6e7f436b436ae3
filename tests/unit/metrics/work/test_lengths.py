"""Attention over a paged cache: the name of the step around it tells the lengths."""

from __future__ import annotations

from pathlib import Path

from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.work.work import work
from tests.support.trace_builder import TraceBuilder

STEP = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk{keys}sqsq32sqsk{keys})"
ATTENTION = "vllm::unified_attention_with_output"
ARGUMENTS = {"shapes": [[32, 64, 64], [32, 8, 64], [32, 8, 64], [32, 64, 64]], "types": ["c10::BFloat16"] * 4}


def test_equal_calls_in_steps_of_other_lengths_cost_differently(tmp_path: Path) -> None:
    # GIVEN the same call in two steps, within another range, and once outside every step
    t = TraceBuilder()
    for at, keys in ((0, 55_086), (10_000, 60_000)):
        t.annotation(STEP.format(keys=keys), at, 5000)
        t.annotation("layer", at + 100, 4000)
        t.op(ATTENTION, at + 200, 1000, **ARGUMENTS)
        t.launch("fmha", at=at + 300, start=at + 2000, duration=500)
    t.op(ATTENTION, 20_000, 1000, **ARGUMENTS)
    t.launch("fmha", at=20_300, start=22_000, duration=500)
    ops = work(read(str(t.write(tmp_path / "t.pt.trace.json")))).ops
    # THEN 2 x 64 heads x (64 + 64) x keys FLOP each; the last one is unknown
    assert ops["flop"].tolist()[:2] == [2 * 64 * 128 * 55_086, 2 * 64 * 128 * 60_000]
    assert ops["modeled"].tolist() == [True, True, False]
    assert ops["estimated"].tolist()[:2] == [True, True]
