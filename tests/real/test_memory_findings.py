"""What to free, of recordings made by others against the plain JSON, and of the simulated job against what was planted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.metrics.memory.fragmentation import fragmentation
from tb_sol_plugin.metrics.memory.sources import memories
from tb_sol_plugin.metrics.rules.memory import memory_context, memory_findings
from tb_sol_plugin.metrics.rules.memory.context import MemoryContext
from tb_sol_plugin.metrics.rules.memory.rules import GAP_BYTES, GAP_SHARE
from tests.real.test_memory_sources import WITH_TOTALS, plain_events

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "simulated_memory"


@pytest.mark.real
@pytest.mark.parametrize("name", sorted(WITH_TOTALS))
def test_reserved_and_in_use_are_those_of_the_plain_file(traces: Path, name: str) -> None:
    # GIVEN a trace, and the totals of its events from the plain JSON
    plain = next(events for (kind, _), events in plain_events(traces / name).items() if kind)
    top = max(plain, key=lambda e: e["Total Allocated"])
    first = {"Total Allocated": plain[0]["Total Allocated"] - plain[0]["Bytes"], "Total Reserved": plain[0]["Total Reserved"]}
    used, held = max(top["Total Allocated"], first["Total Allocated"]), max(e["Total Reserved"] for e in plain)
    # WHEN its memory is looked at THEN most reserved, most in use and what lay unused at the peak are those
    c = sol.open_capture(str(traces / name), cache=False)
    memory = next(m for m in memories(c) if not m.host)
    context = memory_context(c, memory)
    found = fragmentation(c, memory.best)
    assert context is not None and found is not None
    assert (context.room.max_reserved.bytes, context.room.max_allocated.bytes, context.room.base.bytes) == (held, used, None)
    assert found.peak_gap == (top if used == top["Total Allocated"] else first)["Total Reserved"] - used
    # AND the finding stands where it should, with that difference
    rules = {f.rule: f for f in memory_findings(context)[0]}
    far = held - used >= max(GAP_BYTES, GAP_SHARE * held)
    assert ("reserved_above_use" in rules) == far and (not far or rules["reserved_above_use"].saving == held - used)
    # AND an inference run is told nothing of gradients, optimizers and recomputation
    assert not {"gradients_kept", "optimizer_unsharded", "activations_recompute"} & set(rules)


def planted(run: str) -> dict[str, Any]:
    return dict(json.loads((SAMPLE / run / "truth.json").read_text()))


def contexts(run: str) -> dict[str, MemoryContext]:
    """Of each rank the trace with its SOL capture, and of rank 0 its snapshot, joined."""
    found = {c.worker: memory_context(c) for c in sol.open(str(SAMPLE), run=run, cache=False).captures if c.facts.source == "kineto"}
    return {worker: context for worker, context in found.items() if context is not None}


@pytest.fixture(scope="module")
def before() -> dict[str, MemoryContext]:
    return contexts("before")


def test_every_planted_problem_is_found_at_its_place(before: dict[str, MemoryContext]) -> None:
    # GIVEN a job whose stage 0 leaks and holds a head that it does not need, whose optimizer is whole and whose gradients stay
    assert len(before) == 4
    for worker, context in before.items():
        truth = planted("before")[worker]
        rules = {f.rule: f for f in memory_findings(context)[0]}
        held = truth["held"]
        state = sum(held[n] for n in ("master_weights", "exp_avg", "exp_avg_sq"))
        # THEN half of the optimizer's state on each rank of two replicas, to the byte but for its step counters
        assert rules["optimizer_unsharded"].saving == pytest.approx(state / 2, rel=1e-6) and not rules["optimizer_unsharded"].candidate
        assert rules["gradients_kept"].saving == held["grads"] and not rules["gradients_kept"].candidate
        if truth["leak"] is None:
            assert not context.leak.found and "leak" not in rules
        else:
            per_step = truth["leak"]["bytes_per_step"]
            assert context.leak.slope == pytest.approx(per_step, rel=1e-9) and f"`{truth['leak']['module']}`" in rules["leak"].evidence
            tops = context.leak.evidence.groupby("by")["per_step"].max()
            assert set(tops.index) >= {"module", "operator", "frame"} and (tops == per_step).all()
        assert ("vocabulary_misplaced" in rules) == (truth["stage"] == 0)


def test_headroom_is_what_the_records_tell(before: dict[str, MemoryContext]) -> None:
    # GIVEN context and communication beside the allocator WHEN asked THEN what is left is the device less both less the most reserved
    for worker, context in before.items():
        truth = planted("before")[worker]
        held = max(level[4] for level in truth["levels"])
        base = truth["context"] + truth["communication"]
        assert context.room.base.bytes == base and context.room.left.bytes == truth["total"] - base - held


def test_the_failed_allocation_is_told_as_it_was(before: dict[str, MemoryContext]) -> None:
    # GIVEN an allocation that failed on rank 0, and its snapshot WHEN told THEN sizes are those of the truth, and the heap adds up
    context, truth = before["sim0_rank0"], planted("before")["sim0_rank0"]
    last = context.room.failures[-1]
    assert (last.requested, last.free) == (truth["oom"]["bytes"], truth["oom"]["device_free"])
    assert "fragmented" in last.verdict and last.setting.endswith("expandable_segments:True") and last.where.startswith("evaluate.py")
    heap = next(f.heap for c in context.memory.curves if (f := fragmentation(context.capture, c)) is not None)
    snapshot = truth["snapshot"]
    assert heap is not None and (heap.reserved, heap.used, heap.largest) == tuple(snapshot[n] for n in ("reserved", "allocated", "largest_free"))
    assert heap.free == snapshot["cut_off"] == context.room.freeable.bytes and int(heap.pools["segments"].sum()) == snapshot["segments"]


def test_what_was_fixed_is_found_no_more() -> None:
    # GIVEN the job after the leak, the optimizer and the fragmentation were fixed THEN those findings are gone, the others stay
    for worker, context in contexts("after").items():
        rules = {f.rule for f in memory_findings(context)[0]}
        assert not rules & {"leak", "optimizer_unsharded"} and not context.room.failures and not context.leak.found
        assert "gradients_kept" in rules and ("vocabulary_misplaced" in rules) == (planted("after")[worker]["stage"] == 0)


def test_the_snapshot_file_alone_says_what_it_cannot() -> None:
    # GIVEN the snapshot of rank 0 alone WHEN opened THEN it has no steps, and says how to record them
    c = sol.open_capture(str(SAMPLE / "before" / "sim0_rank0.pickle.gz"), cache=False)
    context = memory_context(c)
    assert context is not None and context.leak.verdict == "no_steps"
    because = {x.rule: x for x in memory_findings(context)[1]}
    assert "prof.step()" in because["leak"].record_it_with
