"""State of the optimizer that every rank of a data parallel group keeps whole, and embeddings or heads on stages that need none."""

from __future__ import annotations

import re
from typing import Final

import pandas as pd

from tb_sol_plugin.metrics.memory.rules.case import Answer, Case, Lack, MemoryFinding
from tb_sol_plugin.metrics.memory.rules.limits import OPTIMIZER_SHARE, PLACED_SHARE, UNSHARDED
from tb_sol_plugin.metrics.memory.rules.walked import HOW, OPTIMIZER, bytes_in, layout, numbers_in, planned, planned_number, told_of, walked
from tb_sol_plugin.units import human

SHARDED: Final = re.compile(r"FullyShardedDataParallel|FSDP|DeepSpeedEngine|Stage3")
"""Classes of wrappers whose own parameters are a shard already."""
EMBEDDING: Final = re.compile(r"(?:^|[._])(?:embed\w*|tok_embeddings|word_embeddings|wte|token_embedding\w*)$")
POSITIONS: Final = re.compile(r"pos|wpe|rotary|type")
HEAD: Final = re.compile(r"(?:^|[._])(?:lm_head|output_layer|output|head|unembed\w*|embed_out)$")
WHOLE: Final = 0.95
"""Of all numbers of an embedding: it is not divided."""
DIVIDE: Final = "ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW)  # or fully_shard(model), --use-distributed-optimizer"


def optimizer_unsharded(case: Case) -> Answer:
    """Every rank keeps all of the optimizer's state, though ranks of a data parallel group hold the same parameters."""
    parts, job = walked(case), layout(case.capture)
    if job.dp is None or job.dp <= 1 or case.trains is False or _sharded(case):
        return None
    if parts is None:
        return Lack("optimizer_unsharded", "what the optimizer holds was not recorded", HOW)
    size = bytes_in(parts, *OPTIMIZER)
    state = next((n for c in ("exp_avg", "master_weights", "other_optimizer") if (n := numbers_in(parts, c))), None)
    trained = told_of(case.capture, "model.trainable")
    every = float(trained) if trained.isdigit() else numbers_in(parts, "params")
    if not size or state is None or not every or state < UNSHARDED * every:
        return None
    saving = round(size * (1 - 1 / job.dp))
    share = case.share(saving)
    if share is not None and share < OPTIMIZER_SHARE:
        return None
    group = f"{job.dp} ranks of the data parallel group" if job.told else f"{job.dp} ranks of the job"
    said = (
        f"The optimizer holds {human(size, 'B')} here, {human(state, 'count')} numbers per kind of state for {human(every, 'count')} "
        f"parameters: all of it, on each of the {group}. Divided among them it is {human(size - saving, 'B')}."
    )
    guess = "" if job.told else " That all ranks are data parallel is a guess: groups were not recorded."
    return MemoryFinding(
        "optimizer_unsharded", "Every rank keeps the whole state of the optimizer", said + guess, DIVIDE, saving, share,
        "memory_expected", "Expected and actual", candidate=not job.told, color="conv",
    )  # fmt: skip


def _sharded(case: Case) -> bool:
    if planned(case.capture, "sharding") not in ("", "none"):
        return True
    classes = case.capture.tables["labels"]["class_name"].cat.categories
    return any(SHARDED.search(str(c)) for c in (*classes, told_of(case.capture, "model.class")))


def vocabulary_misplaced(case: Case) -> Answer:
    """A token embedding behind the first stage, a head before the last; one that is whole though its stage divides tensors."""
    job, parts = layout(case.capture), walked(case)
    piped = job.stages is not None and job.stages > 1
    if (case.capture.facts.world_size or 1) <= 1 or (parts is not None and not piped and (job.tp or 1) <= 1):
        return None
    if parts is None:
        return Lack("vocabulary_misplaced", "what modules hold was not recorded", HOW)
    own = parts[parts["module"] != ""]
    sums = own.groupby("module", sort=False)["bytes"].sum()
    weights = own[own["category"] == "params"].groupby("module", sort=False)["bytes"].sum()
    embeddings = [m for m in sums.index if EMBEDDING.search(m) and not POSITIONS.search(m.rpartition(".")[2]) and weights.get(m, 0) > 0]
    heads = [m for m in sums.index if HEAD.search(m) and weights.get(m, 0) > 0]
    if piped and job.stage is None:
        return Lack("vocabulary_misplaced", "the stage of this rank was not recorded", HOW)
    wrong, out = [], []
    if piped:
        first, last = job.stage == 0, job.stage == (job.stages or 0) - 1
        wrong = [m for m in embeddings if not first and not (last and not heads)] + [m for m in heads if not last]
    if wrong:
        out.append(_misplaced(case, wrong, sums, weights, job.stage or 0, job.stages or 1))
    tp = job.tp or 1
    whole = [m for m in (*embeddings, *heads) if m not in wrong and _is_whole(case, own, m)] if tp > 1 else []
    if whole:
        size = int(sums[whole].sum())
        saving = round(size * (1 - 1 / tp))
        said = f"{_named(whole, sums)} hold the whole vocabulary on each of {tp} tensor parallel ranks."
        out.append(MemoryFinding(
            "vocabulary_undivided", "Embedding or head is not divided among tensor parallel ranks", said,
            "VocabParallelEmbedding, ColumnParallelLinear with vocabulary-parallel cross entropy", saving, case.share(saving),
            "memory_expected", "Expected and actual", color="conv",
        ))  # fmt: skip
    return [f for f in out if f.share is None or f.share >= PLACED_SHARE]


def _misplaced(case: Case, wrong: list[str], sums: pd.Series, weights: pd.Series, stage: int, stages: int) -> MemoryFinding:
    size, bare = int(sums[wrong].sum()), int(weights[wrong].sum())
    rest = "the rest gradients and state of the optimizer" if size > bare else "without gradients and state of the optimizer"
    said = (
        f"This rank is stage {stage} of 0 to {stages - 1}. {_named(wrong, sums)}: {human(bare, 'B')} of parameters, {rest} as far as they "
        "are told by module. An embedding belongs to the first stage, a head to the last."
    )
    return MemoryFinding(
        "vocabulary_misplaced", "A stage holds an embedding or head that it does not need", said,
        "GPTModel(..., pre_process=(stage == 0), post_process=(stage == last))", size, case.share(size),
        "memory_expected", "Expected and actual", color="conv",
    )  # fmt: skip


def _named(modules: list[str], sums: pd.Series) -> str:
    return ", ".join(f"`{m}` ({human(int(sums[m]), 'B')})" for m in modules)


def _is_whole(case: Case, parts: pd.DataFrame, module: str) -> bool:
    vocab, hidden = (planned_number(case.capture, n) for n in ("vocab", "hidden"))
    own = numbers_in(parts[parts["module"] == module], "params")
    return bool(vocab and hidden and own is not None and own >= WHOLE * vocab * hidden)
