"""How long the stages of a pipeline wait for each other, and which stage sets the pace.

The bubble of a stage is the part of a step in which it neither computes nor copies, nor communicates inside the stage. It is warm-up until
the first activations arrive, cool-down in collectives over several stages (which wait for the others to finish), and steady otherwise. The
bubble of the schedule is (p - 1) / (v m) of the work of the stage that has most: with p stages, m micro-batches and v virtual stages
(Narayanan et al. 2021). What is above it comes from stages that differ, from transfers between stages, and from late ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.ranks import reports
from tb_sol_plugin.metrics.ranks import sections as R
from tb_sol_plugin.metrics.ranks.comparison import Ranks
from tb_sol_plugin.metrics.ranks.pipeline import ENDS, Pipeline, by_stage, ends_text, pipeline
from tb_sol_plugin.metrics.ranks.summary import RankSummary
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.recordings import RecordingReduction
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import AnySection, Column, Fact, FigureSection, Report, Scalar, Sort, TableSection, make_table
from tb_sol_plugin.tables.arrays import whole_numbers
from tb_sol_plugin.units import human, scale_of

NO_BATCHES: Final = "sends and receives name no ranks"
NO_MODULE: Final = "no such module is recorded among those with the most time"
PARTS: Final = (
    Column("duration_ns", "Step", "ns", "length of the step, mean over its ranks"),
    Column("compute_ns", "Computation", "ns", "union of its kernels", show="bar", color="compute"),
    Column("inside_ns", "Inside", "ns", "exposed communication between ranks of the stage"),
    Column("bubble_ns", "Bubble", "ns", "neither: waiting for other stages, or idle"),
    Column("bubble_warmup_ns", "Warm-up", "ns", "of that, until the first activations of the step have arrived"),
    Column("bubble_steady_ns", "Steady", "ns", "of that, between: other sends and receives, and idle time"),
    Column("bubble_cooldown_ns", "Cool-down", "ns", "of that, in collectives over several stages: waiting until the others are done"),
)
BY_STAGE: Final = (
    Column("stage", "Stage", doc="place in the pipeline group"),
    Column("ranks", "Ranks", "count", "ranks of the stage that are recorded"),
    Column("micro_batches", "Micro-batches", "count", "per step: activations that pass the stage", missing=NO_BATCHES),
    *PARTS,
    Column("model_bubble_ns", "By schedule", "ns", "bubble of the schedule if all stages were as long as the longest", missing=NO_BATCHES),
    Column("per_micro_batch_ns", "Per micro-batch", "ns", "computation per micro-batch", missing=NO_BATCHES),
    Column("embedding_ns", "Embedding", "ns", "of a step, kernels of modules that are called an embedding", missing=NO_MODULE),
    Column("head_ns", "Head", "ns", "of a step, kernels of modules that are called a head, output layer, logits or cross entropy",
           missing=NO_MODULE),
    Column("of_mean", "Of the mean", "ratio", "computation per micro-batch over the mean of all stages"),
)  # fmt: skip
BY_STEP: Final = (
    Column("stage", "Stage", doc="place in the pipeline group"), Column("step", "Step", doc="number of the step"),
    Column("micro_batches", "Micro-batches", "count", "activations that pass the stage", missing=NO_BATCHES), *PARTS,
)  # fmt: skip
FACTS: Final = (
    *R.FACTS,
    Fact("stages", "Stages", "count", "places of the pipeline"),
    Fact("virtual_stages", "", "count", "parts of the model on each rank"),
    Fact("micro_batches", "Micro-batches", "count", "per step"),
    Fact("bubble_ns", "Bubble", "ns", "of a step, mean over stages"),
    Fact("bubble_share", "", "ratio", "that over the length of the step"),
    Fact("model_bubble_ns", "By schedule", "ns", "bubble of the schedule"),
    Fact("stage_imbalance", "Longest stage", "ratio", "computation per micro-batch of the stage that has most, over the mean of all"),
)


@analysis(
    scope="ranks",
    title="Pipeline",
    question="How long do pipeline stages wait for each other?",
    group="Run",
    order=6,
    query=Query,
    tables={"by_stage": BY_STAGE, "stages": BY_STEP, "left_out": R.LEFT_OUT},
    facts=FACTS,
    under="ranks",
    reduce=reports.SUMMARIES,
)
def run(workers: Sequence[RecordingReduction[RankSummary]], query: Query) -> Report:
    ranks, job = reports.read_job(workers, query)
    found = pipeline(job.waits) if len(job.calls) else None
    sections: list[AnySection] = []
    headline = "No ranks of this job send activations to each other: it has no pipeline, or its sends and receives name no group."
    if found is not None:
        table = by_stage(found)
        sections = [_tiles(ranks, found, table), *_figure(table), *_tables(found, table)]
        headline = _headline(found, table)
    return Report(
        analysis="pipeline", title="Pipeline", headline=R.incomparable(ranks) or headline, notices=reports.notices(ranks, job),
        sections=[*sections, *R.left_out(ranks)],
    )  # fmt: skip


def _headline(found: Pipeline, table: pd.DataFrame) -> str:
    if not len(table):
        return "No complete step was recorded: what its stages wait is not known."
    bubble, step = float(table["bubble_ns"].mean()), float(table["duration_ns"].mean())
    text = f"Stages wait **{human(bubble, 'ns')}** of a step of {human(step, 'ns')}, {human(bubble / step, 'ratio')}"
    model = float(table["model_bubble_ns"].max())
    if model == model:
        batches = human(int(table["micro_batches"].max()), "count")
        text += f"; the schedule alone, {human(found.stages, 'count')} stages and {batches} micro-batches, takes {human(model, 'ns')}"
    longest = table.iloc[int(table["of_mean"].to_numpy().argmax())]
    more = float(longest["of_mean"]) - 1
    if more <= 0.01:
        return f"{text}. Its stages are even."
    text += f". Stage **{int(longest['stage'])}** sets the pace: it computes {human(more, 'ratio')} longer than the mean"
    return f"{text}{ends_text(longest)}."


def _tables(found: Pipeline, table: pd.DataFrame) -> list[TableSection]:
    table = table.copy()
    each = found.rows.groupby(["stage", "step"])[[*(c.name for c in PARTS), "micro_batches"]].mean().reset_index()
    for frame in (table, each):
        batches = frame["micro_batches"].to_numpy(np.float64)
        frame["micro_batches"] = whole_numbers(np.where(batches > 0, batches, np.nan))
        for column in (c.name for c in BY_STAGE if c.unit == "ns" and c.name in frame):
            frame[column] = whole_numbers(frame[column])
    hidden = frozenset(name for name in ENDS if table[name].isna().all())
    return [
        make_table("by_stage", "By stage", table, R.columns_of(BY_STAGE, [True], hidden), key="stage",
                   sort=Sort("stage", descending=False),
                   empty="No complete step was recorded.", subtitle="per step, mean over its ranks"),
        make_table("stages", "By stage and step", each, BY_STEP, sort=Sort("bubble_ns"), empty="No complete step was recorded."),
    ]  # fmt: skip


def _figure(table: pd.DataFrame) -> list[FigureSection]:
    """Draws a bar per stage: computation, communication inside, and the three parts of its bubble."""
    if not len(table):
        return []
    scale, unit = scale_of(float(table["duration_ns"].max()), "ns")
    parts = (
        ("compute_ns", "computation", "compute"), ("inside_ns", "communication inside", "communication"),
        ("bubble_warmup_ns", "warm-up", "line-strong"), ("bubble_steady_ns", "steady", "host"),
        ("bubble_cooldown_ns", "cool-down", "ink-3"),
    )  # fmt: skip
    names = [f"stage {s}" for s in table["stage"].tolist()]
    data: list[F.Plain] = [{
        "type": "bar", "orientation": "h", "name": name, "y": names, "x": (table[column] / scale).tolist(), "marker": F.fill(token),
        "hoverinfo": "text",
        "hovertext": [f"<b>{stage}</b>, {name}<br>{human(float(v), 'ns')}" for stage, v in zip(names, table[column].tolist(), strict=True)],
    } for column, name, token in parts]  # fmt: skip
    drawn = F.figure(
        data, x=F.axis(f"of a step, {unit}"), y=F.axis("", type="category", showgrid=False, autorange="reversed", nticks=24),
        barmode="stack", showlegend=True, legend={"orientation": "h", "y": 1.12, "x": 0, "traceorder": "normal"},
        margin={"l": 90, "r": 14, "t": 10, "b": 46},
    )  # fmt: skip
    return [FigureSection(
        id="stages_figure", title="Stages", subtitle="mean step of each; gray: bubble", figure=drawn,
        height=min(120 + 26 * len(table), 620), table="by_stage", summary="Computation, communication and bubble of each pipeline stage.",
    )]  # fmt: skip


def _tiles(ranks: Ranks[RankSummary], found: Pipeline, table: pd.DataFrame) -> AnySection:
    known = len(table) > 0
    bubble, step = (float(table[name].mean()) if known else 0.0 for name in ("bubble_ns", "duration_ns"))
    model, batches = (float(table[name].max()) if known else float("nan") for name in ("model_bubble_ns", "micro_batches"))
    values: dict[str, Scalar] = {
        **R.facts(ranks), "stages": found.stages, "virtual_stages": found.virtual,
        "micro_batches": round(batches) if batches == batches else None, "bubble_ns": round(bubble) if known else None,
        "bubble_share": bubble / step if known else None, "model_bubble_ns": round(model) if model == model else None,
        "stage_imbalance": float(table["of_mean"].max()) if known else None,
    }  # fmt: skip
    notes = {"workers_read": R.read_note(ranks), "bubble_ns": "mean over stages", "stage_imbalance": "of the mean"}
    shown = ("workers_read", "stages", "micro_batches", "bubble_ns", "model_bubble_ns", "stage_imbalance")
    return R.tiles(values, FACTS, title="Pipeline", shown=shown, notes=notes)
