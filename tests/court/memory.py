"""Memory: what leaks, what is kept, what every rank holds, what the allocator holds."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tests.court.case import US, guilty, saves
from tests.support.copy_findings import MIB, steps
from tests.support.memory_steps import trained
from tests.support.trace_builder import TraceBuilder

GB: Final = 10**9
N: Final = 1_000_000_000
ADAM: Final = [("params", "fp32", "net", N, 4 * N), ("exp_avg", "fp32", "net", N, 4 * N), ("exp_avg_sq", "fp32", "net", N, 4 * N)]
Part = tuple[str, str, str, int, int]


def records(parts: list[Part], *, meta: dict[str, str], world: int = 1, peak: int = 20 * GB, reserved: int = 0, iterations: int = 1) -> Capture:
    """Memory records of one device as a SOL log has them. parts: (category, type, module, numbers, bytes) at each."""
    n = np.arange(iterations)
    table = S.MEMORY_RECORDS.frame({
        "device": [0] * iterations, "iteration": n, "time_ns": n * 1000, "allocated": [peak] * iterations, "since": ["process"] * iterations,
        "max_allocated": [peak] * iterations, "reserved": [reserved or peak] * iterations, "max_reserved": [reserved or peak] * iterations,
    })  # fmt: skip
    names = sorted({p[2] for p in parts})
    labels = S.LABELS.frame({"what": ["module"] * len(names), "parent": [-1] * len(names), "name": names, "class_name": names})
    rows = [(r, *p) for r in n.tolist() for p in parts]
    own = S.MEMORY_PARTS.frame({
        "record": [r[0] for r in rows], "category": [r[1] for r in rows], "dtype": [r[2] for r in rows],
        "module": [names.index(r[3]) for r in rows], "tensors": [1] * len(rows), "bytes": [r[5] for r in rows],
        "view_bytes": [r[4] * {"fp32": 4, "bf16": 2}[r[2]] for r in rows],
    })  # fmt: skip
    facts = Facts("sol_capture", "x", 0, world_size=world, rank=0, metadata=meta)
    return Capture(facts, {"memory_records": table, "memory_parts": own, "labels": labels})


DP: Final = {"groups.dp": "0 of 8"}


@guilty(memory_optimizer_unsharded=saves(7 * GB))
def every_rank_keeps_the_whole_optimizer() -> Capture:
    """8 GB of Adam's state for a billion parameters on each of 8 data parallel ranks, of 13 GB in use: 7 of 8 GB could go."""
    return records(ADAM, meta=DP, world=8, peak=13 * GB)


@guilty(memory_optimizer_unsharded=saves(7 * GB, possible=True))
def perhaps_every_rank_keeps_the_whole_optimizer() -> Capture:
    """The same where groups were not recorded: that all 8 ranks are data parallel is a guess."""
    return records(ADAM, meta={}, world=8, peak=13 * GB)


HIDDEN: Final = 131_072_000


def stage(number: int, module: str, meta: dict[str, str]) -> Capture:
    """A stage of four that holds a module of 131 M parameters in BF16, with 14 more bytes each of gradients and state."""
    parts = [(c, d, module, HIDDEN, b * HIDDEN) for c, d, b in (("params", "bf16", 2), ("main_grads", "fp32", 4), ("exp_avg", "fp32", 10))]
    return records(parts, meta={"groups.pp": f"{number} of 4", **meta}, world=4, peak=17 * HIDDEN)


@guilty(memory_vocabulary_misplaced=saves(16 * HIDDEN))
def a_head_lies_on_the_first_stage() -> Capture:
    """Stage 0 of 4 holds the head."""
    return stage(0, "lm_head", {})


@guilty(memory_vocabulary_undivided=saves(16 * HIDDEN // 2))
def a_head_is_not_divided() -> Capture:
    """The last stage holds the head, whole on each of two tensor parallel ranks."""
    return stage(3, "lm_head", {"groups.tp": "0 of 2", "plan.vocab": "32000", "plan.hidden": "4096"})


@guilty(memory_reserved_above_use=saves(2 * GB, says="expandable_segments"))
def the_allocator_holds_twice_what_is_used() -> Capture:
    """4 GB reserved, 2 GB in use at most, all of them parameters."""
    return records([("params", "bf16", "net", N, 2 * N)], meta={}, peak=2 * GB, reserved=4 * GB)


@guilty(memory_leak=saves(21_000, says="cache.py(7)"))
def a_list_keeps_tensors_of_every_step() -> TraceBuilder:
    """Eight steps leave 3,000 B each behind, in one line of one module."""
    return trained([3_000] * 8)


@guilty(memory_one_module=saves(800, possible=True))
def one_module_holds_the_peak() -> TraceBuilder:
    """Of 1,000 B in use one module allocated 800, two others 100 each."""
    t = TraceBuilder()
    total = 0
    for i, size in enumerate((100, 100, 800)):
        t.module(f"Linear_{i}", 1_000 * i, 900, module_id=i + 1)
        t.op("aten::mm", 1_000 * i + 100, 500)
        total += size
        t.memory(1_000 * i + 200, size, address=i + 1, allocated=total, reserved=total)
    return t


@guilty(memory_gradients_kept=saves(2 * GB, possible=None))
def gradients_live_from_step_to_step() -> Capture:
    """At the end of every one of eight iterations 2 GB of gradients are in use."""
    return records([("params", "bf16", "net", N, 2 * N), ("grads", "bf16", "net", N, 2 * N)], meta={}, peak=4 * GB, iterations=8)


@guilty(memory_activations_recompute=saves(18 * GB, possible=True))
def most_of_the_peak_is_no_parameter() -> Capture:
    """Of 20 GB in use at the peak 2 GB are parameters: the rest is activations for the most part, and nothing tells of which layers."""
    return records([("params", "bf16", "net", N, 2 * N)], meta={}, peak=20 * GB)


@guilty(memory_pinned_unused=saves(128 * MIB))
def batches_are_pinned_in_vain() -> TraceBuilder:
    """Two steps pin 128 MiB each, and copy it from pageable memory all the same, hidden behind a kernel."""
    t = steps(2)
    for n in range(2):
        z = 1000 * n * US
        t.launch("k", at=max(z - 50 * US, 0), start=z, duration=1000 * US)
        t.op("aten::_pin_memory", z + 10 * US, 50 * US, shapes=[[128 << 20]], types=["unsigned char"])
        t.memory(z + 20 * US, 1 << 30, address=n + 1, allocated=(n + 1) << 30, reserved=2 << 30)
        t.memory(z + 900 * US, -(1 << 30), address=n + 1, allocated=n << 30, reserved=2 << 30)
    return t

