"""Held by the allocator beyond what was ever in use, and growth from step to step."""

from __future__ import annotations

from tb_sol_plugin.metrics.memory.fragmentation import fragmentation
from tb_sol_plugin.metrics.memory.headroom import allocator_setting
from tb_sol_plugin.metrics.memory.rules.case import Answer, Case, Lack, MemoryFinding
from tb_sol_plugin.metrics.memory.rules.limits import GAP_BYTES, GAP_SHARE
from tb_sol_plugin.units import human


def reserved_above_use(case: Case) -> Answer:
    """What the allocator held at most, less what was in use at most: another allocation pattern would not need it."""
    held, used = case.room.max_reserved.bytes, case.room.max_allocated.bytes
    if case.memory.host:
        return None
    if held is None or used is None:
        return Lack("reserved_above_use", held_why(case), "record with profile(profile_memory=True), or store an allocator snapshot")
    gap = held - used
    if gap < GAP_BYTES or gap < GAP_SHARE * held:
        return None
    found = next((f for c in case.memory.curves if (f := fragmentation(case.capture, c)) is not None), None)
    said = [f"The allocator held {human(held, 'B')} at most, {human(used, 'B')} were in use at most."]
    blocks = found.heap if found is not None else None
    if found is not None and found.share is not None and found.peak_gap >= 0:
        said.append(f"At the peak {human(found.peak_gap, 'B')} of {human(found.reserved_at_peak, 'B')} lay unused.")
    fix = allocator_setting(case.capture.facts.vendor, "expandable_segments:True")
    if blocks is not None:
        said.append(
            f"In the snapshot {human(blocks.split, 'B')} are free beside blocks in use; the largest free block is "
            f"{human(blocks.largest, 'B')}."
        )
        if blocks.private > blocks.split:
            fix = "torch.cuda.graph(graph, pool=first.pool())"
            said.append(f"Private pools, as those of CUDA graphs, keep {human(blocks.private, 'B')} of it: let graphs share one pool.")
        elif blocks.expandable:
            fix = "torch.cuda.empty_cache()  # once, after the first steps"
            said.append("Segments are expandable already: what the first steps needed once can be given back.")
    return MemoryFinding(
        "reserved_above_use", "The allocator holds far more than the program uses", " ".join(said), fix, gap, case.share(gap),
        "memory_findings", "Fragmentation", color="idle",
    )  # fmt: skip


def held_why(case: Case) -> str:
    """Why what is reserved or in use is unknown."""
    return case.room.max_reserved.why if case.room.max_reserved.bytes is None else case.room.max_allocated.why


def leak(case: Case) -> Answer:
    """Growth of the least of each step, with who leaves memory behind."""
    found = case.leak
    if found.verdict in ("few", "no_steps"):
        return Lack("leak", found.words, found.hint)
    if not found.found:
        return None
    first, last = found.steps.loc[~found.steps["warm"], "step"].to_numpy()[[0, -1]].tolist()
    said = [f"In {found.used} steps ({first} to {last}) it grows by {human(round(found.slope), 'B')} per step, R² {found.r2:.2f}."]
    for by in ("module", "operator", "frame", "category"):
        rows = found.evidence[found.evidence["by"] == by]
        if len(rows):
            top = rows.iloc[0]
            word = {"frame": "line", "category": "category"}.get(by, by)
            said.append(f"{word.capitalize()} `{top['name']}` leaves {human(int(top['per_step']), 'B')} behind per step.")
    left = case.room.left.bytes
    if left is not None and found.slope > 0:
        said.append(f"Memory is full after {human(max(int(left / found.slope), 0), 'count')} more steps.")
    fix = "total_loss += loss.item()  # no tensors in lists, logs and sums over steps"
    return MemoryFinding(
        "leak", "Memory in use grows from step to step", " ".join(said), fix, found.growth,
        case.share(found.growth), "memory_findings", "Step by step", color="memcpy",
    )  # fmt: skip
