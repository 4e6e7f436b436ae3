"""Splits the steps of pipeline stages into computation and bubble, and compares the bubble with that of the schedule.

A stage is the place of a rank in its pipeline group. Its bubble is the part of a step in which it neither computes nor copies, nor
communicates inside its stage: it waits for other stages, or is idle.

    bubble of the schedule = (p - 1) / (v m) x work of the stage that has most

with p stages, m micro-batches and v virtual stages per rank (Narayanan et al. 2021, section 2.2); work is computation and what
communication inside the stage adds to it. Micro-batches are what stage 0 sends forward, or what a later stage receives.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.ranks.by_name import BY, TOTALS
from tb_sol_plugin.metrics.ranks.calls import Calls
from tb_sol_plugin.metrics.ranks.exposed import exposed_by_class
from tb_sol_plugin.metrics.ranks.summary import P2P
from tb_sol_plugin.metrics.ranks.waiting import Waits
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask
from tb_sol_plugin.tables.packed import unpack
from tb_sol_plugin.units import human

WARMUP, STEADY, COOLDOWN, INSIDE = range(4)
"""What a call is to the pipeline: the first receive of a step from an earlier stage; other sends and receives; collectives over several
stages; all else."""
MOST_STAGES: Final = 4_096
BUBBLES: Final = ("bubble_warmup_ns", "bubble_steady_ns", "bubble_cooldown_ns")
"""Parts of the bubble; they add up to `bubble_ns`."""
ENDS: Final = {
    "embedding_ns": re.compile(r"^(?!.*rotary).*embedding", re.IGNORECASE),
    "head_ns": re.compile(
        r"(?:lm|output|language_model)_?head(?!_?model)|logits|(?:^|\.)output_layer|cross_?entropy"
        r"|(?:ForCausalLM|LMHeadModel)_\d+\.\w*Linear_\d+$", re.IGNORECASE,
    ),
}  # fmt: skip
"""Modules that only the first or the last stage has, by their paths; a rotary embedding is in every layer.

The head of a model of transformers is a plain Linear: the only one that its `...ForCausalLM` or `...LMHeadModel` holds directly.
"""


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A pipeline: its stages, and what each rank did in each complete step.

    stages: how many there are. virtual: parts of the model on each rank; 1 where two stages leave it open. stage: of each rank, -1 for one
    that is in no pipeline. rows: one per rank and step: at, step, stage, micro_batches (0 unknown), duration_ns, compute_ns, inside_ns
    (exposed communication inside the stage), bubble_ns and its parts BUBBLES; ns, of the step. ends: one per rank: at, and per step the
    time of kernels in the modules of ENDS, NaN where none is among the modules with the most time.
    """

    stages: int
    virtual: int
    stage: Ints
    rows: pd.DataFrame
    ends: pd.DataFrame


def pipeline(waited: Waits) -> Pipeline | None:
    """Returns the pipeline of a job; None where no group sends and receives between stages."""
    calls = waited.found.calls
    stages = _stages(calls)
    if stages is None:
        return None
    stage, ends = stages.of(calls.ranks), _sides(calls, stages)
    forward = _forward(ends, stages.number)
    each = exposed_by_class(waited, _classes(calls, stage, forward))
    rows = _rows(calls, stage, each)
    count, virtual = _micro_batches(calls, stage, ends[0], forward)
    key = pd.MultiIndex.from_arrays([rows["at"], rows["step"]])
    rows["micro_batches"] = count.reindex(key).fillna(0).to_numpy(np.int64) // virtual
    return Pipeline(stages.number, virtual, stage, rows, _ends_of_model(calls, np.flatnonzero(stage >= 0)))


class _Stages(NamedTuple):
    """Stages of ranks, also of those without a recording. ranks: ascending, each once. number: of stages."""

    ranks: Ints
    stage: Ints
    number: int

    def of(self, rank: Ints) -> Ints:
        """Returns the stage of ranks by their numbers, -1 where they have none."""
        place = np.minimum(np.searchsorted(self.ranks, rank), len(self.ranks) - 1)
        return np.where(self.ranks[place] == rank, self.stage[place], -1)


def _stages(calls: Calls) -> _Stages | None:
    """Returns the stages: places in the groups whose members send to each other. None where there are none."""
    pairs = np.isin(calls["kind"], P2P) & (calls["group"] >= 0)
    groups = [calls.groups[number].ranks for number in np.unique(calls["group"][pairs]).tolist()]
    groups = [ranks for ranks in groups if 2 <= len(ranks) <= MOST_STAGES]
    if not groups:
        return None
    ranks, last = np.unique(np.concatenate(groups[::-1]), return_index=True)  # a rank of several groups has its place in the last one
    stage = np.concatenate([np.arange(len(one)) for one in groups[::-1]])[last]
    return _Stages(ranks, stage, max(map(len, groups)))


def _sides(calls: Calls, stages: _Stages) -> tuple[Ints, Ints]:
    """Returns (stage that sends, stage that receives) of each message; -1 where a rank is not known or has no stage."""
    return stages.of(calls.messages.source), stages.of(calls.messages.target)


def _forward(ends: tuple[Ints, Ints], stages: int) -> Mask:
    """Returns the messages of activations: to the next stage, or from the last one to the first; of gradients not."""
    source, target = ends
    wraps = (source == stages - 1) & (target == 0)
    return np.asarray((source >= 0) & (target >= 0) & ((target == source + 1) | (wraps & (stages > 2))), np.bool_)


def _classes(calls: Calls, stage: Ints, forward: Mask) -> Ints:
    """Returns what each call is to the pipeline. forward: of each message."""
    out = np.full(len(calls), INSIDE, np.int64)
    spans = np.zeros(len(calls.groups) + 1, np.bool_)
    for number, group in enumerate(calls.groups):
        there = stage[np.isin(calls.ranks, group.ranks)]
        spans[number] = len(np.unique(there[there >= 0])) > 1
    out[spans[calls["group"]]] = COOLDOWN
    pair = np.isin(calls["kind"], P2P)
    out[pair] = STEADY
    row = calls.messages.row
    first = row[forward & ~calls.messages.sends & (stage[calls.at[row]] > 0) & (calls["step"][row] >= 0)]
    first = first[np.lexsort((calls.start[first], calls["step"][first], calls.at[first]))]
    opens = np.ones(len(first), np.bool_)
    opens[1:] = (np.diff(calls.at[first]) != 0) | (np.diff(calls["step"][first]) != 0)
    out[first[opens]] = WARMUP
    return out


def _micro_batches(calls: Calls, stage: Ints, source: Ints, forward: Mask) -> tuple[pd.Series, int]:  # type: ignore[type-arg]
    """Returns (activations that pass a stage per rank and step: stage 0 sends them, the others receive them; virtual stages)."""
    row, sends = calls.messages.row, calls.messages.sends
    own = stage[calls.at[row]]
    there = np.where(own == 0, sends & (source == 0), ~sends & (source == own - 1)) & forward
    wraps = forward & (own == 0) & ~sends
    frame = pd.DataFrame({"at": calls.at[row[there]], "step": calls["step"][row[there]]})
    passed = int((there & (own == 0)).sum())
    again = int(wraps.sum())
    virtual = round(passed / (passed - again)) if 0 < again < passed else 1
    return frame.groupby(["at", "step"]).size(), max(virtual, 1)


def _rows(calls: Calls, stage: Ints, each: pd.DataFrame) -> pd.DataFrame:
    """Returns rows as `Pipeline.rows` has them, without micro-batches. each: exposed communication by class."""
    names = ("step", "duration_ns", "kernel_ns", "memcpy_ns", "memset_ns")
    parts = []
    for at, steps in enumerate(calls.steps):
        some = steps["complete"] & (stage[at] >= 0)
        parts.append(pd.DataFrame({"at": np.full(int(some.sum()), at), **{name: steps[name][some].astype(np.int64) for name in names}}))
    rows = pd.concat(parts, ignore_index=True)
    wide = each.pivot_table(index=["at", "step"], columns="kind", values="exposed_ns", aggfunc="sum", fill_value=0)
    key = pd.MultiIndex.from_arrays([rows["at"], rows["step"]])
    wide = wide.reindex(index=key, columns=range(INSIDE + 1), fill_value=0)
    exposed = wide.to_numpy(np.int64)
    busy = (rows["kernel_ns"] + rows["memcpy_ns"] + rows["memset_ns"]).to_numpy()
    bubble = np.maximum(rows["duration_ns"].to_numpy() - busy - exposed[:, INSIDE], exposed[:, WARMUP] + exposed[:, COOLDOWN])
    return pd.DataFrame({
        "at": rows["at"], "step": rows["step"], "stage": stage[rows["at"].to_numpy()], "duration_ns": rows["duration_ns"],
        "compute_ns": rows["kernel_ns"], "inside_ns": exposed[:, INSIDE], "bubble_ns": bubble, "bubble_warmup_ns": exposed[:, WARMUP],
        "bubble_steady_ns": bubble - exposed[:, WARMUP] - exposed[:, COOLDOWN], "bubble_cooldown_ns": exposed[:, COOLDOWN],
    })  # fmt: skip


def _ends_of_model(calls: Calls, places: Ints) -> pd.DataFrame:
    """Returns rows as `Pipeline.ends` has them, of the ranks at some places."""
    columns: dict[str, Floats] = {name: np.full(len(places), np.nan) for name in ENDS}
    for row, at in enumerate(places.tolist()):
        one = calls.summaries[at]
        if one.totals is None:
            continue
        table = unpack(one.totals, TOTALS)
        steps = len(np.unique(table["step"]))
        for column, pattern in ENDS.items():
            named = np.array([pattern.search(name) is not None for name in one.names], np.bool_)
            some = (table["by"] == BY.index("module")) & named[table["name"]]
            if some.any():
                columns[column][row] = table["total_ns"][some].sum() / steps
    return pd.DataFrame({"at": places, **columns})


def by_stage(found: Pipeline) -> pd.DataFrame:
    """Returns one row per stage: means of its ranks and steps, as `Pipeline.rows` names them, and ranks (how many), per_micro_batch_ns,
    of_mean (that over the mean of all stages; of the step where no micro-batches are recorded), model_bubble_ns, and those of ENDS.

    NaN are micro_batches, per_micro_batch_ns and model_bubble_ns where no micro-batches are recorded, those of ENDS without such a module.
    """
    names = ["duration_ns", "compute_ns", "inside_ns", "bubble_ns", *BUBBLES]
    rows = found.rows.groupby("stage")
    out = rows[names].mean()
    out["ranks"] = rows["at"].nunique()
    count = rows["micro_batches"].median()
    count = count.where(count > 0)
    out["micro_batches"] = count
    out["per_micro_batch_ns"] = out["compute_ns"] / count
    each = out["per_micro_batch_ns"] if count.notna().all() else out["compute_ns"]
    out["of_mean"] = each / each.mean()
    out[[*ENDS]] = found.ends.groupby(found.stage[found.ends["at"].to_numpy(np.int64)])[[*ENDS]].mean().reindex(out.index)
    work = float((out["compute_ns"] + out["inside_ns"]).max())
    out["model_bubble_ns"] = (found.stages - 1) / (found.virtual * count) * work
    return out.reset_index()


def ends_text(stage: pd.Series) -> str:  # type: ignore[type-arg]
    """Returns a half sentence about the embedding and the head of a row of `by_stage`, "" where neither is known."""
    named = [f"{human(float(stage[column]), 'ns')} in its {column.removesuffix('_ns')}" for column in ENDS if float(stage[column]) > 0]
    return f", {' and '.join(named)}" if named else ""
