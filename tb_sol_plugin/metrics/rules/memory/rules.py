"""Finds what could free memory: fragmentation, leaks, gradients, job layout, the module of the peak, pinned memory of the host."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Final, TypeAlias

import numpy as np
import pandas as pd

from tb_sol_plugin.cost.inputs import first_dtype
from tb_sol_plugin.metrics.memory.allocations import modules_of
from tb_sol_plugin.metrics.memory.attribution import attribution, groupings_of, live_at
from tb_sol_plugin.metrics.memory.categories import NAMES, categories
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.fragmentation import fragmentation
from tb_sol_plugin.metrics.memory.leaks import Leak, per_step, records_of
from tb_sol_plugin.metrics.memory.replay import devices
from tb_sol_plugin.metrics.memory.summary import allocator_setting
from tb_sol_plugin.metrics.rules.engine import Answer, Finding, Missing, rule
from tb_sol_plugin.metrics.rules.memory.context import (
    HOW,
    OPTIMIZER,
    WIDTHS,
    MemoryContext,
    bytes_in,
    header_text,
    last_parts,
    layout,
    numbers_in,
    parts_of,
    planned,
    planned_number,
)
from tb_sol_plugin.metrics.rules.memory.pieces import allocation_pieces, part_pieces, pieces
from tb_sol_plugin.metrics.time.attribution import where_named
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import only_row
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.units import human

# -- limits ----------------------------------------------------------------------------------------------------------


GAP_SHARE: Final = 0.2
"""Reserved at most beyond in use at most, of reserved: from here on it is far above."""
GAP_BYTES: Final = 64 << 20
"""The same in bytes: the allocator keeps some of it in any context."""
ONE_MODULE: Final = 0.33
"""Share of the peak that one module allocated, from which it is reported."""
FEWEST_MODULES: Final = 3
"""Modules that hold memory at the peak; of fewer, one always holds most."""
UNSHARDED: Final = 0.9
"""Numbers in a state of the optimizer over parameters of this rank: from here on it is not divided."""
OPTIMIZER_SHARE: Final = 0.05
"""Share of the peak from which sharding the optimizer state is reported."""
PLACED_SHARE: Final = 0.01
"""Of the peak: an embedding or a head on the wrong stage."""
GRADIENTS_SHARE: Final = 0.02
"""Of the peak: gradients that live on between steps."""
GRADIENT_STEPS: Final = 0.8
"""Part of the steps that begin with gradients: fewer are the middle of an accumulation."""
PINNED_BYTES: Final = 64 << 20
"""Pinned memory per step from which on it matters whether copies use it."""
PINNED_USED: Final = 0.5
"""Part of it that copies to the device read: from here on it is used."""
LEAK_STEPS: Final = 1000
LEAK_MATTERS: Final = 0.01
"""Of the peak, that a leak adds in LEAK_STEPS steps: with less it stands on its own page alone."""


@rule(
    "reserved_above_use", title="The allocator holds far more than the program uses", page="memory_findings", label="Fragmentation",
    color="idle",
)  # fmt: skip
def reserved_above_use(context: MemoryContext) -> Answer:
    """Finds what was reserved at most above what was in use at most: another allocation pattern would not need it."""
    reserved, used = context.room.max_reserved.bytes, context.room.max_allocated.bytes
    if context.memory.host:
        return None
    if reserved is None or used is None:
        return Missing(why_unknown(context), "record with profile(profile_memory=True), or store an allocator snapshot")
    gap = reserved - used
    if gap < GAP_BYTES or gap < GAP_SHARE * reserved:
        return None
    found = next((f for c in context.memory.curves if (f := fragmentation(context.capture, c)) is not None), None)
    evidence = [f"The allocator reserved {human(reserved, 'B')} at most, {human(used, 'B')} were in use at most."]
    blocks = found.heap if found is not None else None
    if found is not None and found.share is not None and found.peak_gap >= 0:
        evidence.append(f"At the peak {human(found.peak_gap, 'B')} of {human(found.reserved_at_peak, 'B')} lay unused.")
    fix = allocator_setting(context.capture.facts.vendor, "expandable_segments:True")
    if blocks is not None:
        evidence.append(
            f"In the snapshot {human(blocks.split, 'B')} are free beside blocks in use; the largest free block is "
            f"{human(blocks.largest, 'B')}."
        )
        if blocks.private > blocks.split:
            fix = "torch.cuda.graph(graph, pool=first.pool())"
            evidence.append(f"Private pools, as those of CUDA graphs, keep {human(blocks.private, 'B')} of it: let graphs share one pool.")
        elif blocks.expandable:
            fix = "torch.cuda.empty_cache()  # once, after the first steps"
            evidence.append("Segments are expandable already: what the first steps needed once can be given back.")
    levels = pieces(("reserved", "in use"), ("reserved at most", "in use at most"), [reserved, used], [reserved, -used], gap)
    return Finding(evidence=" ".join(evidence), saving=gap, share=context.share(gap), fix=fix, pieces=levels)


def why_unknown(context: MemoryContext) -> str:
    """Returns why what is reserved or in use is unknown."""
    return context.room.max_reserved.why if context.room.max_reserved.bytes is None else context.room.max_allocated.why


@rule(
    "leak", title="Memory in use grows from step to step",
    fix="total_loss += loss.item()  # no tensors in lists, logs and sums over steps", page="memory_findings", label="Step by step",
    color="memcpy",
)  # fmt: skip
def leak(context: MemoryContext) -> Answer:
    """Finds growth of the least memory of each step, with who leaves memory behind."""
    found = context.leak
    if found.verdict in ("few", "no_steps"):
        return Missing(found.words, found.hint)
    if not found.found:
        return None
    first, last = found.steps.loc[~found.steps["warm"], "step"].to_numpy()[[0, -1]].tolist()
    evidence = [f"In {found.used} steps ({first} to {last}) it grows by {human(round(found.slope), 'B')} per step, R² {found.r2:.2f}."]
    for by in ("module", "operator", "frame", "category"):
        rows = found.evidence[found.evidence["by"] == by]
        if len(rows):
            top = rows.iloc[0]
            word = {"frame": "line", "category": "category"}.get(by, by)
            evidence.append(f"{word.capitalize()} `{top['name']}` leaves {human(int(top['per_step']), 'B')} behind per step.")
    left = context.room.left.bytes
    if left is not None and found.slope > 0:
        evidence.append(f"Memory is full after {human(max(int(left / found.slope), 0), 'count')} more steps.")
    return Finding(evidence=" ".join(evidence), saving=found.growth, share=context.share(found.growth), pieces=_growth(context, found))


def _growth(context: MemoryContext, found: Leak) -> pd.DataFrame:
    """Returns a row per step of the line: the least in use in it, and by how much the line has grown since the one before."""
    steps = found.steps[~found.steps["warm"].to_numpy(dtype=bool)]
    rise = np.diff(steps["fitted"].to_numpy(np.float64), prepend=float(steps["fitted"].iloc[0]))
    time = np.maximum(steps["start_ns"].to_numpy() - context.capture.facts.extent_ns[0], -1)
    names = [f"step {n}" for n in steps["step"].tolist()]
    return pieces("step", names, steps["least"].to_numpy(), rise, found.growth, time_ns=time)


# -- gradients -------------------------------------------------------------------------------------------------------


MOST_STEPS: Final = 24
"""Steps that are read; of more, evenly spread ones."""
FEWEST: Final = 2
AGREES: Final = 0.01
"""Two sources that differ by less agree."""
GRADIENTS_HOW: Final = "record several steps with profile(profile_memory=True) and call prof.step()"


@rule(
    "gradients_kept", title="Gradients stay in memory between steps",
    fix="optimizer.zero_grad(set_to_none=True)  # right after optimizer.step()", page="memory", label="Memory by category",
    color="norm",
)  # fmt: skip
def gradients_kept(context: MemoryContext) -> Answer:
    """Finds gradients in use at the begin of nearly every step: by category at that moment, else by the records at step ends."""
    if context.trains is False:
        return None
    for curve in context.memory.curves:
        if curve.source != "recorder" and "category" in groupings_of(context.capture, curve):
            found = at_begin(context, curve)
            if found is not None:
                guess = curve.source == "events" and not _agrees(found[0], _sizes(at_end(context)))
                return _judged(context, found[0], partial(_at_moment, context, curve), found[1], estimated=guess)
    last = at_end(context)
    if last is not None:
        return _judged(context, last.to_numpy(), partial(_in_record, context), last.index.to_numpy(), estimated=True, at="end")
    return Missing("gradients at the begin of a step were not recorded", GRADIENTS_HOW)


def at_begin(context: MemoryContext, curve: Curves) -> tuple[Ints, Ints] | None:
    """Returns bytes of gradients as each step begins, and when; the first step is left out. None where there are too few steps."""
    steps = per_step(context.capture, curve)["start_ns"].to_numpy()[1:]
    if len(steps) < FEWEST:
        return None
    sampled = steps[np.unique(np.linspace(0, len(steps) - 1, min(len(steps), MOST_STEPS)).astype(np.int64))]
    sizes = [_bytes_of(attribution(context.capture, curve, "category", int(t)).rows) for t in sampled.tolist()]
    return np.array(sizes, np.int64), sampled


def at_end(context: MemoryContext) -> pd.Series | None:
    """Returns bytes of gradients by record (its number) at the end of iterations whose record holds parameters and gradients."""
    number = context.memory.number if not context.memory.host else -1
    own = records_of(context.capture, number) if number >= 0 else _of_host(context)
    own = own[own["iteration"].to_numpy() > 0]
    parts = context.capture.tables[S.MEMORY_PARTS.name]
    gradient = arrays.where(parts["category"], lambda c: c == "grads")
    records = own[np.isin(own.index.to_numpy(), parts["record"].to_numpy()[gradient])]
    if len(records) < FEWEST:
        return None
    out: pd.Series = parts[gradient].groupby("record")["bytes"].sum().loc[records.index].astype(np.int64)
    return out


def _sizes(found: pd.Series | None) -> Ints | None:
    return None if found is None else found.to_numpy()


def _at_moment(context: MemoryContext, curve: Curves, time_ns: int, size: int) -> pd.DataFrame:
    """Returns the gradients in use at a moment: each allocation where a trace estimates them from these, else their sum."""
    if curve.source == "events":
        capture, device = context.capture, next(d for d in devices(context.capture) if d.label == curve.device)
        live = live_at(capture, curve, time_ns)
        live = live.loc[categories(capture, device)["category"].to_numpy()[live.index.to_numpy()] == NAMES.index("grads")]
        if int(live["bytes"].sum()) == size:
            return allocation_pieces(capture, curve, live, size)
    return pieces("gradients", ["in use as the step begins"], [size], [size], size, time_ns=[time_ns - context.capture.facts.extent_ns[0]])


def _in_record(context: MemoryContext, record: int, size: int) -> pd.DataFrame:
    found = parts_of(context.capture, record)
    return part_pieces(found[(found["category"] == "grads").to_numpy()], size)


def _agrees(begin: Ints, end: Ints | None) -> bool:
    """Returns whether what a trace takes for gradients is what the program found, so that it is no estimate."""
    return end is not None and abs(float(np.median(begin)) - float(np.median(end))) <= AGREES * float(np.median(end))


def _of_host(context: MemoryContext) -> pd.DataFrame:
    table = context.capture.tables[S.MEMORY_RECORDS.name]
    return table[(table["device"].to_numpy() < 0) & ~arrays.where(table["since"], lambda s: s == "phase")]


def _bytes_of(rows: pd.DataFrame) -> int:
    return int(rows.loc[(rows["kind"] == "row") & (rows["name"] == "grads"), "bytes"].sum())


def _judged(
    context: MemoryContext, found: Ints, rows_of: Callable[[int, int], pd.DataFrame], places: Ints, *, estimated: bool, at: str = "begin"
) -> Answer:
    """Returns the finding of the usual step, the one in the middle by size. rows_of: its pieces, by place and size."""
    there = np.flatnonzero(found > 0)
    if len(there) < GRADIENT_STEPS * len(found):
        return None
    usual = int(there[np.argsort(found[there], kind="stable")[(len(there) - 1) // 2]])
    size = int(found[usual])
    share = context.share(size)
    if share is not None and share < GRADIENTS_SHARE:
        return None
    evidence = f"{human(size, 'B')} of gradients are in use at the {at} of {len(there)} of {len(found)} steps."
    more = (
        " Freed before the forward pass, they do not meet its activations at the peak." if at == "begin" else
        " Unless the next step frees them before its forward pass, they meet its activations at the peak."
    )  # fmt: skip
    by, held = {"by": "category"}, rows_of(int(places[usual]), size)
    return Finding(evidence=evidence + more, saving=size, share=share, query=by, candidate=estimated, pieces=held)


# -- layout ----------------------------------------------------------------------------------------------------------


SHARDED: Final = re.compile(r"FullyShardedDataParallel|FSDP|DeepSpeedEngine|Stage3")
"""Classes of wrappers whose own parameters are a shard already."""
EMBEDDING: Final = re.compile(r"(?:^|[._])(?:embed\w{0,400}|tok_embeddings|word_embeddings|wte|token_embedding\w{0,400})$")
POSITIONS: Final = re.compile(r"pos|wpe|rotary|type")
HEAD: Final = re.compile(r"(?:^|[._])(?:lm_head|output_layer|output|head|unembed\w{0,400}|embed_out)$")
WHOLE: Final = 0.95
"""Of all numbers of an embedding: it is not divided."""
DIVIDE: Final = "ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW)  # or fully_shard(model), --use-distributed-optimizer"


@rule(
    "optimizer_unsharded", title="Every rank keeps the whole state of the optimizer", fix=DIVIDE, page="memory_expected",
    label="Expected and actual", color="conv",
)  # fmt: skip
def optimizer_unsharded(context: MemoryContext) -> Answer:
    """Finds that every rank keeps all of the optimizer's state, though ranks of a data parallel group hold the same parameters."""
    parts, job = last_parts(context), layout(context.capture)
    if job.dp is None or job.dp <= 1 or context.trains is False or _sharded(context):
        return None
    if parts is None:
        return Missing("what the optimizer holds was not recorded", HOW)
    size = bytes_in(parts, *OPTIMIZER)
    state = next((n for c in ("exp_avg", "master_weights", "other_optimizer") if (n := numbers_in(parts, c))), None)
    trained = header_text(context.capture, "model.trainable")
    every = float(trained) if trained.isdigit() else numbers_in(parts, "params")
    if not size or state is None or not every or state < UNSHARDED * every:
        return None
    saving = round(size * (1 - 1 / job.dp))
    share = context.share(saving)
    if share is not None and share < OPTIMIZER_SHARE:
        return None
    group = f"{job.dp} ranks of the data parallel group" if job.recorded else f"{job.dp} ranks of the job"
    evidence = (
        f"The optimizer holds {human(size, 'B')} here, {human(state, 'count')} numbers per kind of state for {human(every, 'count')} "
        f"parameters: all of it, on each of the {group}. Divided among them it is {human(size - saving, 'B')}."
    )
    guess = "" if job.recorded else " That all ranks are data parallel is a guess: groups were not recorded."
    rows = part_pieces(parts[parts["category"].isin(OPTIMIZER)], saving, 1 - 1 / job.dp)
    return Finding(evidence=evidence + guess, saving=saving, share=share, candidate=not job.recorded, pieces=rows)


def _sharded(context: MemoryContext) -> bool:
    if planned(context.capture, "sharding") not in ("", "none"):
        return True
    classes = context.capture.tables["labels"]["class_name"].cat.categories
    return any(SHARDED.search(str(c)) for c in (*classes, header_text(context.capture, "model.class")))


@rule("vocabulary_misplaced", "vocabulary_undivided", page="memory_expected", label="Expected and actual", color="conv")
def vocabulary_misplaced(context: MemoryContext) -> Answer:
    """Finds a token embedding behind the first stage, a head before the last; one that is whole though its stage divides tensors."""
    job, parts = layout(context.capture), last_parts(context)
    piped, tp = job.stages is not None and job.stages > 1, job.tp or 1
    if (context.capture.facts.world_size or 1) <= 1 or (parts is not None and not piped and tp <= 1):
        return None
    if parts is None:
        return Missing("what modules hold was not recorded", HOW)
    own = parts[parts["module"] != ""]
    sums = own.groupby("module", sort=False)["bytes"].sum()
    weights = own[own["category"] == "params"].groupby("module", sort=False)["bytes"].sum()
    embeddings, heads = _vocabulary(sums, weights)
    if piped and job.stage is None:
        return Missing("the stage of this rank was not recorded", HOW)
    out = []
    wrong = _on_the_wrong_stage(embeddings, heads, job.stage or 0, job.stages or 1) if piped else []
    if wrong:
        out.append(_misplaced(context, wrong, own, job.stage or 0, job.stages or 1))
    whole = [m for m in (*embeddings, *heads) if m not in wrong and _is_whole(context, own, m)] if tp > 1 else []
    if whole:
        out.append(_undivided(context, whole, own, tp))
    return [f for f in out if f.share is None or f.share >= PLACED_SHARE]


def _on_the_wrong_stage(embeddings: list[str], heads: list[str], stage: int, stages: int) -> list[str]:
    """Returns embeddings behind the first stage, but for one that the last stage shares as its head, and heads before the last."""
    first, last = stage == 0, stage == stages - 1
    return [m for m in embeddings if not first and not (last and not heads)] + [m for m in heads if not last]


def _undivided(context: MemoryContext, whole: list[str], parts: pd.DataFrame, tp: int) -> Finding:
    """Returns the finding about modules that hold the whole vocabulary on each of `tp` tensor parallel ranks."""
    own = parts[parts["module"].isin(whole)]
    sums = own.groupby("module", sort=False)["bytes"].sum()
    saving = round(int(own["bytes"].sum()) * (1 - 1 / tp))
    return Finding(
        rule="vocabulary_undivided", title="Embedding or head is not divided among tensor parallel ranks",
        evidence=f"{_named(whole, sums)} hold the whole vocabulary on each of {tp} tensor parallel ranks.",
        fix="VocabParallelEmbedding, ColumnParallelLinear with vocabulary-parallel cross entropy",
        saving=saving, share=context.share(saving), pieces=part_pieces(own, saving, 1 - 1 / tp),
    )  # fmt: skip


def _vocabulary(sums: pd.Series, weights: pd.Series) -> tuple[list[str], list[str]]:
    """Returns modules with parameters that are a token embedding, and those that are an output head."""
    weighted = [m for m in sums.index if weights.get(m, 0) > 0]
    embeddings = [m for m in weighted if EMBEDDING.search(m) and not POSITIONS.search(m.rpartition(".")[2])]
    return embeddings, [m for m in weighted if HEAD.search(m)]


def _misplaced(context: MemoryContext, wrong: list[str], parts: pd.DataFrame, stage: int, stages: int) -> Finding:
    own = parts[parts["module"].isin(wrong)]
    sums = own.groupby("module", sort=False)["bytes"].sum()
    size, parameters = int(own["bytes"].sum()), bytes_in(own, "params")
    rest = "the rest gradients and state of the optimizer" if size > parameters else "without gradients and state of the optimizer"
    evidence = (
        f"This rank is stage {stage} of 0 to {stages - 1}. {_named(wrong, sums)}: {human(parameters, 'B')} of parameters, {rest} as far as "
        "they are known by module. An embedding belongs to the first stage, a head to the last."
    )
    return Finding(
        title="A stage holds an embedding or head that it does not need", evidence=evidence, saving=size, share=context.share(size),
        fix="GPTModel(..., pre_process=(stage == 0), post_process=(stage == last))", pieces=part_pieces(own, size),
    )  # fmt: skip


def _named(modules: list[str], sums: pd.Series) -> str:
    return ", ".join(f"`{m}` ({human(int(sums[m]), 'B')})" for m in modules)


def _is_whole(context: MemoryContext, parts: pd.DataFrame, module: str) -> bool:
    vocab, hidden = (planned_number(context.capture, n) for n in ("vocab", "hidden"))
    own = numbers_in(parts[parts["module"] == module], "params")
    return bool(vocab and hidden and own is not None and own >= WHOLE * vocab * hidden)


# -- The peak allocated by one module -------------------------------------------------------------------------------------


PEAK_HOW: Final = "record with profile(profile_memory=True, with_stack=True)"


@rule(
    "one_module", title="One module holds most of the peak", page="memory", label="In use at the peak", color="attention",
    candidate=True,
)  # fmt: skip
def one_module(context: MemoryContext) -> Answer:
    """Finds one module that holds a third of the peak or more: what it allocated itself, without the modules inside of it."""
    curve = next((c for c in context.memory.curves if c.source == "events" and "module" in groupings_of(context.capture, c)), None)
    if curve is None:
        return Missing("which module holds memory was not recorded", PEAK_HOW)
    found = attribution(context.capture, curve, "module")
    rows = [(str(n), b) for n, b in zip(*(found.rows[c].tolist() for c in ("name", "bytes")), strict=True)][: found.count]
    rows = [row for row in rows if not row[0].startswith("(")]
    if len(rows) < FEWEST_MODULES or found.total <= 0:
        return None
    (top, size), (second, next_size) = rows[:2]
    if size < ONE_MODULE * found.total:
        return None
    operators = attribution(context.capture, curve, "operator").rows
    evidence = (
        f"`{top}` holds {human(size, 'B')} of {human(found.total, 'B')} at the peak, the next one, `{second}`, {human(next_size, 'B')}. "
        f"Of all operators `{operators['name'].iloc[0]}` allocated most of the peak, {human(int(operators['bytes'].iloc[0]), 'B')}."
    )
    chunks = "torch.cat([module(part) for part in x.split(size)])  # in chunks"
    fix = "torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False)  # or in chunks" if context.trains else chunks
    its_row = only_row("peak", "name", top)
    held = _of_module(context.capture, curve, top, size)
    return Finding(evidence=evidence, saving=size, share=size / found.total, fix=fix, query={"by": "module", **its_row}, pieces=held)


def _of_module(capture: Capture, curve: Curves, module: str, size: int) -> pd.DataFrame | None:
    """Returns the allocations of a module that are in use at the peak; None where they are not what it holds."""
    live = live_at(capture, curve)
    live = live.loc[modules_of(capture, live) == module]
    return allocation_pieces(capture, curve, live, size) if int(live["bytes"].sum()) == size else None


# -- Pinned memory of the host that no copy uses ---------------------------------------------------------------------
# No recording holds how much of the host's memory is pinned at a moment. What is known is what a step pins (`pin_memory` of this thread,
# as a SOL capture counts it or a trace shows it) and what copies read from pinned memory.


PINS: Final = ("aten::_pin_memory",)
NO_RECORD: Final = Missing(
    "what is pinned was not recorded: traces and snapshots hold the copies from pinned memory, not the memory itself",
    "count it: sol.capture(logdir, model=model, copies=True)",
)  # fmt: skip


@rule(
    "pinned_unused", title="Host memory is pinned and not copied from",
    fix="DataLoader(..., pin_memory=False)  # or .to(device, non_blocking=True) from it", page="memcpy", label="Memory copies",
    color="HtoD",
)  # fmt: skip
def pinned_unused(context: MemoryContext) -> Answer:
    """Finds host memory that is pinned per step, against what copies to the device read from pinned memory."""
    found = pinned_as_counted(context.capture) or pinned_as_traced(context.capture)
    if found is None:
        return NO_RECORD
    into, out, steps = found
    pinned, moved = int(into["bytes"].sum()), int(out["bytes"].sum())
    if pinned < PINNED_BYTES * steps or moved >= PINNED_USED * pinned:
        return None
    saving = round((pinned - moved) / steps)
    evidence = (
        f"{human(round(pinned / steps), 'B')} of the host's memory are pinned per step, and copies to the device read "
        f"{human(round(moved / steps), 'B')} from pinned memory. Pinned pages cannot be swapped, and pinning them takes time. What other "
        "threads pin is not recorded."
    )
    both = pd.concat([into, out], ignore_index=True)
    sign = np.repeat([1, -1], [len(into), len(out)]) / steps
    what = ["pinned"] * len(into) + ["copied from it"] * len(out)
    size = both["bytes"].to_numpy()
    return Finding(evidence=evidence, saving=saving, pieces=pieces(what, both["name"], size, size * sign, saving, time_ns=both["time_ns"]))


Pinning: TypeAlias = tuple[pd.DataFrame, pd.DataFrame, int]
"""What was pinned, and what copies to a device read from pinned memory (name, bytes, time_ns since the begin); number of steps."""


def pinned_as_counted(capture: Capture) -> Pinning | None:
    """Returns what a SOL capture counts; None where nothing was pinned."""
    table = capture.tables[S.COPIES.name]
    if not len(table):
        return None
    size = table["bytes"].to_numpy().clip(min=0)
    into = arrays.where(table["direction"], lambda d: d == "HtoH") & arrays.where(table["dst_kind"], lambda k: k == "Pinned")
    out = arrays.where(table["direction"], lambda d: d == "HtoD") & arrays.where(table["src_kind"], lambda k: k == "Pinned")
    if not size[into].sum():
        return None
    iteration = table["iteration"].to_numpy()
    names = np.array([f"iteration {n}" for n in iteration.tolist()], object)
    every = pd.DataFrame({"name": names, "bytes": size, "time_ns": -1})
    return every[into], every[out], max(len(np.unique(iteration[into])), 1)


def pinned_as_traced(capture: Capture) -> Pinning | None:
    """Returns the same of a trace: operators that pin, by their sizes, and device copies; None where none is recorded."""
    host, table = capture.host, capture.tables[S.OPERATORS.name]
    pins = np.zeros(0, np.int64)
    if len(table):
        pins = np.flatnonzero(where_named(capture, lambda n: n in PINS)[table["host"].to_numpy()])
    if not len(pins):
        return None
    shapes, types = arrays.pick(table["shapes"], pins), arrays.pick(table["types"], pins)
    sizes = [_bytes(str(s), str(t)) for s, t in zip(shapes, types, strict=True)]
    device = capture.device
    out = arrays.where(device["direction"], lambda d: d == "HtoD") & arrays.where(device["src_kind"], lambda k: k == "Pinned")
    steps = 1 if capture.facts.pseudo_step else max(len(capture.steps), 1)
    if not all(sizes):
        return None
    row, begin = table["host"].to_numpy()[pins], capture.facts.extent_ns[0]
    time = np.where(row >= 0, host["start_ns"].to_numpy()[row] - begin, -1)
    pinned = pd.DataFrame({"name": arrays.pick(host["name"], row), "bytes": sizes, "time_ns": time})
    read = device.loc[out, ["bytes", "start_ns"]]
    copied = pd.DataFrame({
        "name": arrays.pick(device["name"], np.flatnonzero(out)), "bytes": read["bytes"].to_numpy().clip(min=0),
        "time_ns": read["start_ns"].to_numpy() - begin,
    })  # fmt: skip
    return pinned, copied, steps


def _bytes(shapes: str, types: str) -> int:
    """Returns bytes of the first tensor, 0 unknown."""
    try:
        first = json.loads(shapes)[0]
    except (ValueError, IndexError, TypeError, KeyError, RecursionError):
        return 0
    width = WIDTHS.get(first_dtype(types), 0)
    return prod(int(n) for n in first) * width if isinstance(first, list) and all(isinstance(n, int) for n in first) else 0
