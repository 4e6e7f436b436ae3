"""The tables of the page: steps, who leaves memory behind, pools of the allocator, failed allocations, layers, what was not recorded."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.memory.expected import Batch
from tb_sol_plugin.metrics.memory.fragmentation import Heap
from tb_sol_plugin.metrics.memory.leaks import Leak
from tb_sol_plugin.metrics.memory.summary import Headroom
from tb_sol_plugin.metrics.rules.engine import Finding, Missing
from tb_sol_plugin.metrics.rules.memory.recompute import Recompute
from tb_sol_plugin.model.report import Column, Mark, Sort, TableSection, make_table
from tb_sol_plugin.units import human

MOST_STEPS: Final = 2000
"""Steps that the table shows at most: the last ones."""
OLD: Final = "not recorded by this version of torch"
NO_BLOCKS: Final = "no blocks recorded"
NO_COST: Final = "no time and no limit is known"
MOST_LAYERS: Final = 60
FREES: Final = (
    Column("title", "Finding", "", "the cause in words", "text"),
    Column("rule", "Rule", "", "stable name of the rule", "code", rank=2),
    Column("saving_bytes", "Frees", "B", "memory that fixing it could free, at most", "bar", color="compute"),
    Column("share", "Of the peak", "ratio", "that over the memory in use at the peak", "share",
           missing="memory of the host, more than was ever in use, or the peak is unknown"),
    Column("cost_ns", "Costs per step", "ns", "time that the fix adds to a step", missing="no cost in time, or not known"),
    Column("candidate", "Proof", "", "possible: the recording makes the cause likely but does not prove it", "text", rank=2),
    Column("fix", "Fix", "", "one line of code, or a hint", "code", rank=3),
    Column("evidence", "Evidence", "", "the numbers behind it", "text", rank=3),
)  # fmt: skip
STEPS: Final = (
    Column("step", "Step", "", "number of the step or iteration"),
    Column("least_bytes", "Least in use", "B", "least memory in use in the step: what outlives it"),
    Column("most_bytes", "Most in use", "B", "most memory in use in the step", missing="peaks of single iterations were not recorded"),
    Column("fitted_bytes", "Line", "B", "the line through the least of all steps", missing="left out of the line"),
    Column("left_bytes", "Left behind", "B", "allocated in this step and in use after the last one", missing="not looked at, or unknown"),
    Column("warm_up", "Warm-up", "", "whether the step is left out of the line as warm-up", "text", rank=2),
)
GROWTH: Final = (
    Column("name", "Who", "", "module, operator, python line or category", "code"),
    Column("by", "By", "", "what the row is", "badge"),
    Column("per_step_bytes", "Per step", "B", "bytes that it leaves behind per step, mean", "bar", color="memcpy"),
    Column("bytes", "In all", "B", "bytes of all these steps that are in use after the last"),
    Column("steps", "In steps", "count", "steps in which it leaves some, of those but the last"),
    Column("of_steps", "Of steps", "count", "steps that were looked at", rank=2),
    Column("allocations", "Allocations", "count", "allocations that are left", rank=2, missing="not recorded"),
    Column("id", "Id", "", "stable key of the row", rank=3),
)
POOLS: Final = (
    Column("pool", "Pool", "", "pool of segments; private ones belong to graphs and the like", "badge", missing=OLD),
    Column("kind", "Size class", "", "small: requests of up to 1 MiB; large: all others", missing="not recorded"),
    Column("stream", "Stream", "", "stream whose requests it serves"),
    Column("segments", "Segments", "count", "pieces that the allocator took from the device"),
    Column("reserved_bytes", "Reserved", "B", "bytes of its segments", "bar", color="compute"),
    Column("used_bytes", "In use", "B", "bytes of blocks in use"),
    Column("awaiting_bytes", "Awaiting", "B", "freed by the program, while a stream may still use them", rank=2),
    Column("free_bytes", "Free", "B", "bytes of free blocks"),
    Column("split_bytes", "Free in split segments", "B", "free next to blocks in use: not given back to the device", rank=2),
    Column("returnable_bytes", "Could go back", "B", "what torch.cuda.empty_cache() would give back to the device"),
    Column("largest_bytes", "Largest free block", "B", "the largest request that it can serve without another segment"),
    Column("rounding_bytes", "Rounding", "B", "blocks in use less what the program asked for", rank=2, missing=OLD),
    Column("id", "Id", "", "stable key of the row", rank=3),
)  # fmt: skip
FAILURES: Final = (
    Column("time_ns", "Time", "ns", "since the recording began"),
    Column("requested_bytes", "Asked for", "B", "size of the allocation that failed", missing="not recorded"),
    Column("device_free_bytes", "Free on the device", "B", "as the driver reported then", missing="not recorded"),
    Column("reserved_bytes", "Reserved", "B", "reserved by the allocator then", missing="not recorded"),
    Column("allocated_bytes", "In use", "B", "in use then", missing="the history does not reach back to it"),
    Column("unused_bytes", "Unused", "B", "free blocks that serve such a request, at the moment of the snapshot", missing=NO_BLOCKS),
    Column("largest_bytes", "Largest free block", "B", "the largest of them", missing=NO_BLOCKS),
    Column("where", "Requested by", "", "innermost line of the program", "code", missing="recorded without call stacks"),
    Column("verdict", "Why", "", "why it failed", "text"),
    Column("advice", "What helps", "", "what helps", "text", rank=2, missing="nothing can be said"),
    Column("setting", "Setting", "", "the line that helps, before the process starts", "code", rank=2, missing="no setting helps"),
    Column("stack", "Call stack", "", "all of it, innermost first", "text", rank=3, missing="recorded without call stacks"),
    Column("later", "Entries after it", "count", "entries of the history between it and the snapshot", rank=3),
    Column("id", "Id", "", "stable key of the row", rank=3),
)
LAYERS: Final = (
    Column("class_name", "Layer", "", "class of modules", "code"),
    Column("layers", "Instances", "count", "modules of it that hold activations at the peak, those inside of others of the class left out"),
    Column("bytes", "Activations", "B", "activations made in them and below, in use at the peak", "bar", color="compute"),
    Column("saving_bytes", "Frees", "B", "of n layers (1 - 1/n): one of them runs again at a time"),
    Column("cost_ns", "Costs per step", "ns", "forward work of these layers in a step", missing=NO_COST),
    Column("bytes_per_ms", "Frees per ms", "B", "what it frees for each millisecond that it costs", missing=NO_COST),
)
BATCHES: Final = (
    Column("batch", "Batch", "count", "samples of an iteration"),
    Column("peak_bytes", "Peak", "B", "most memory in use in iterations of that batch", "bar", color="compute"),
    Column("reserved_bytes", "Reserved", "B", "reserved by the allocator in them", missing="not recorded"),
    Column("iterations", "Iterations", "count", "iterations of that batch"),
)
MISSING: Final = (
    Column("rule", "Rule", "", "stable name of the rule that needs it", "code"),
    Column("because", "What is missing", "", "what the recording does not hold", "text"),
    Column("record_it_with", "How to record it", "", "how to record it", "text"),
)
PIECES: Final = (
    Column("what", "What", "", "what the row is", "badge"),
    Column("name", "Name", "", "operator, module, step or level", "code", missing="no operator around it"),
    Column("where", "Where", "", "module around it; of what the program recorded category and type", "code", missing="no module around it"),
    Column("time_ns", "Time", "ns", "when it was allocated or begins, since the recording began", missing="at no one time"),
    Column("bytes", "Bytes", "B", "its size"),
    Column("saving_bytes", "Frees", "B", "the part of it that the finding frees; below 0 for what stays in use", "bar", color="compute"),
    Column("id", "Id", "", "stable key of the row", rank=3),
)
TABLES: Final = {
    "findings_table": FREES, "pieces": PIECES, "failures": FAILURES, "growth": GROWTH, "steps": STEPS, "pools": POOLS, "layers": LAYERS,
    "batches": BATCHES, "missing": MISSING,
}  # fmt: skip


def findings_table(found: list[Finding]) -> TableSection:
    """Builds a table with one row per finding."""
    rows = [
        {
            "title": f.title, "rule": f.rule, "saving_bytes": f.saving, "share": f.share,
            "cost_ns": None if f.cost_ns is None else round(f.cost_ns), "candidate": "possible" if f.candidate else "", "fix": f.fix,
            "evidence": f.evidence,
        }
        for f in found
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=[c.name for c in FREES])
    return make_table(
        "findings_table", "The same as a table", frame, FREES, key="rule", sort=Sort("saving_bytes"),
        footer="Two findings can speak of the same memory: what they free does not add up.", empty="No finding.",
    )  # fmt: skip


def pieces_table(found: Finding) -> TableSection:
    """Builds the table of what a finding is counted from."""
    frame = found.pieces if found.pieces is not None else pd.DataFrame(columns=[c.name for c in PIECES])
    empty = {c for c in ("where", "time_ns") if frame[c].isna().all()}
    columns = [msgspec.structs.replace(c, rank=3) if c.name in empty else c for c in PIECES]
    return make_table(
        "pieces", "What the finding is counted from", frame, columns, key="id", sort=Sort("saving_bytes"), adds=["saving_bytes"],
        filters=["what", "name", "where"], footer=f"Together {human(found.saving, 'B')}." if len(frame) else "",
        empty="This recording does not show single rows behind it.",
    )  # fmt: skip


def steps_table(found: Leak) -> TableSection:
    """Builds the table of the least and the most of each step, with the line."""
    table = found.steps.tail(MOST_STEPS)
    frame = pd.DataFrame({
        "step": table["step"].astype(str), "least_bytes": table["least"], "most_bytes": _known(table["most"]),
        "fitted_bytes": [None if v != v else round(v) for v in table["fitted"].tolist()],
        "left_bytes": [None if v != v else int(v) for v in table["left"].tolist()],
        "warm_up": np.where(table["warm"].to_numpy(dtype=bool), "warm-up", ""),
    })  # fmt: skip
    empty = {c for c in ("most_bytes", "left_bytes") if frame[c].isna().all()}
    columns = [msgspec.structs.replace(c, rank=3) if c.name in empty else c for c in STEPS]
    return make_table(
        "steps", "Steps", frame, columns, key="step", subtitle=found.words, truncated=len(found.steps) - len(table),
        footer="The least of a step is what outlives it: activations and gradients come and go above it.", empty="No step was recorded.",
    )  # fmt: skip


def growth_table(found: Leak) -> TableSection:
    """Builds the table of what leaves memory behind."""
    table = found.evidence
    frame = pd.DataFrame({
        "name": table["name"], "by": table["by"], "per_step_bytes": table["per_step"], "bytes": table["bytes"], "steps": table["steps"],
        "of_steps": table["of_steps"], "allocations": _known(table["allocations"]),
        "id": [f"{b}|{n}" for b, n in zip(table["by"].tolist(), table["name"].tolist(), strict=True)],
    })  # fmt: skip
    return make_table(
        "growth", "Who leaves memory behind", frame, GROWTH, key="id", sort=Sort("per_step_bytes"), filters=["by", "name"],
        subtitle="allocated in one step and in use after the last, in nearly every step",
        footer="One allocation stands in a row by module, one by operator and one by line.",
        empty="Nobody is known to: allocations carry no owner or no address.",
    )  # fmt: skip


def pools_table(heap: Heap) -> TableSection:
    """Builds the table of the allocator by pool, stream and size class, with a total."""
    p = heap.pools
    frame = pd.DataFrame({
        "pool": [_pool(pool, private) for pool, private in zip(p["pool"].tolist(), p["private"].tolist(), strict=True)],
        "kind": [k or None for k in p["kind"].tolist()], "stream": p["stream"].astype(str), "segments": p["segments"],
        **{f"{n}_bytes": p[n] for n in ("reserved", "used", "awaiting", "free", "split", "returnable", "largest")},
        "rounding_bytes": _known(p["rounding"]),
        "id": [f"{a}|{b}|{c}" for a, b, c in zip(p["pool"].tolist(), p["stream"].tolist(), p["kind"].tolist(), strict=True)],
    })  # fmt: skip
    total = {
        "pool": "all", "segments": int(p["segments"].sum()), "reserved_bytes": heap.reserved, "used_bytes": heap.used,
        "awaiting_bytes": heap.awaiting, "free_bytes": heap.free, "split_bytes": heap.split, "returnable_bytes": heap.returnable,
        "largest_bytes": heap.largest, "rounding_bytes": heap.rounding if heap.rounding >= 0 else None,
    }  # fmt: skip
    pages = {str(i): Mark("estimated", "by whole pages of expandable segments") for i in range(len(p))}
    footer = "The state of the allocator at the snapshot. A request is served from blocks of its own pool, class and stream alone."
    if heap.other:
        footer += f" {human(heap.other, 'B')} of reserved memory are in no block of a known state."
    return make_table(
        "pools", "The allocator by pool", frame, POOLS, key="id", sort=Sort("reserved_bytes"), total=total,
        marks={"returnable_bytes": pages} if heap.expandable else {}, footer=footer,
    )  # fmt: skip


def _pool(pool: str, private: bool) -> str | None:
    return f"private {pool}" if private else "common" if pool else None


def failures_table(room: Headroom) -> TableSection:
    """Builds the table of allocations that failed, the last one first."""
    rows = [
        {
            "time_ns": f.time_ns, "requested_bytes": _or_none(f.requested), "device_free_bytes": _or_none(f.free),
            "reserved_bytes": _or_none(f.reserved), "allocated_bytes": _or_none(f.allocated), "unused_bytes": _or_none(f.unused),
            "largest_bytes": _or_none(f.largest), "where": f.where or None, "verdict": f.verdict, "advice": f.advice or None,
            "setting": f.setting or None, "stack": " < ".join(f.stack[:40]) or None, "later": f.later, "id": str(i),
        }
        for i, f in enumerate(room.failures)
    ]  # fmt: skip
    return make_table(
        "failures", "Allocations that failed", pd.DataFrame(rows, columns=[c.name for c in FAILURES]), FAILURES, key="id",
        sort=Sort("time_ns"), footer="Blocks are those of the snapshot; take it in an observer, and they are those of the failure.",
    )  # fmt: skip


def layers_table(found: Recompute) -> TableSection:
    """Builds the table of what recomputing each class of layers frees and costs."""
    frame = found.classes[found.classes["saving_bytes"].to_numpy() > 0].reset_index(drop=True)
    guessed = Mark("estimated", "what a trace's memory is for is estimated; inputs of the layers stay")
    marks = {"saving_bytes": {str(i): guessed for i in range(len(frame))}}
    if found.by_limit:
        least = Mark("lower_bound", "the limit of the work: it is not timed by operator")
        marks["cost_ns"] = {str(i): least for i in range(len(frame))}
    left_out = max(len(frame) - MOST_LAYERS, 0)
    return make_table(
        "layers", "What recomputing would free", frame.round({"cost_ns": 0, "bytes_per_ms": 0}).head(MOST_LAYERS), LAYERS,
        key="class_name", sort=Sort("saving_bytes"), marks=marks, truncated=left_out, filters=["class_name"],
        subtitle=f"{human(found.activations, 'B')} of activations at the peak",
        footer="Classes lie inside of each other: rows do not add up.",
    )  # fmt: skip


def batches_table(found: Batch) -> TableSection:
    """Builds the table of peaks by batch size."""
    frame = pd.DataFrame(
        [{"batch": p.batch, "peak_bytes": p.peak, "reserved_bytes": _or_none(p.reserved), "iterations": p.count} for p in found.points],
        columns=[c.name for c in BATCHES],
    )
    return make_table("batches", "Peaks by batch size", frame, BATCHES, key="batch", sort=Sort("batch", descending=False), span=6)


def missing_table(missing: list[Missing]) -> TableSection:
    """Builds the table of what rules would need."""
    frame = pd.DataFrame([{"rule": x.rule, "because": x.because, "record_it_with": x.record_it_with} for x in missing],
                         columns=[c.name for c in MISSING])  # fmt: skip
    return make_table("missing", "Not recorded", frame, MISSING, key="rule", subtitle="rules that cannot speak here, and what they need")


def _known(values: pd.Series) -> list[int | None]:
    return [_or_none(int(v)) for v in values.tolist()]


def _or_none(value: int) -> int | None:
    return value if value >= 0 else None
