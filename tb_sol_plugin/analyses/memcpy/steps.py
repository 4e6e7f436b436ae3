"""Step by step: how much of the copies hides behind computation, how much lies bare, and what hiding it could save."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.copies.exposure import ALL
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import AnySection, Column, FigureSection, Link, Mark, Sort, make_table
from tb_sol_plugin.units import human

MOST_BARS: Final = 400
"""Steps drawn; of more, the one with the most exposed time stands for its neighbours."""
MOST_ROWS: Final = 2000
COLUMNS: Final = (
    Column("step", "Step", doc="number of the step"),
    Column("count", "Copies", "count", "copies and sets that the step launched"),
    Column("union_ns", "Union", "ns", "time in which at least one of them runs, per device: hidden + exposed", rank=2),
    Column("hidden_ns", "Hidden", "ns", "the part of it behind kernels that are no communication"),
    Column("exposed_ns", "Exposed", "ns", "the rest of it", show="bar", color="memcpy"),
    Column("idle_exposed_ns", "Exposed, idle", "ns", "exposed, and behind no communication either", rank=2),
    Column("share", "Of step", "ratio", "exposed over the length of the step on all devices with copies: what hiding it could save at most",
           show="share"),
    Column("step_ns", "Step time", "ns", "length of the step", rank=2),
)  # fmt: skip
PARTS: Final = (
    ("hidden_ns", "Behind computation", "memcpy", 0.3),
    ("talk_ns", "Exposed, behind communication", "communication", 1.0),
    ("idle_exposed_ns", "Exposed, nothing else runs", "memcpy", 1.0),
)


def sections(capture: Capture, steps: pd.DataFrame, where: Scope, worst: int | None) -> list[AnySection]:
    """A figure and a table, one bar and one row per step; none with less than two steps. steps: `exposure.per_step`."""
    mine = steps[(steps["direction"] == ALL) & (steps["step"] >= 0)]
    mine = mine[mine["step"].isin(where.rows)] if where.rows else mine.iloc[:0]
    if len(where.rows) < 2 or not len(mine):
        return []
    table = _every(capture, mine, where)
    return [_figure(table, capture, worst), _table(table, capture, worst)]


def _every(capture: Capture, mine: pd.DataFrame, where: Scope) -> pd.DataFrame:
    """One row per selected step, in order of time; a step without copies has zeros: it is known to have none."""
    bounds = capture.steps["end_ns"].to_numpy() - capture.steps["start_ns"].to_numpy()
    rows = np.array(where.rows, np.int64)
    out = mine.set_index("step").reindex(rows)
    for name in ("count", "union_ns", "hidden_ns", "exposed_ns", "idle_exposed_ns"):
        out[name] = out[name].fillna(0).astype(np.int64)
    out["step_ns"], out["share"] = bounds[rows], out["share"].fillna(0.0)
    out["talk_ns"] = out["exposed_ns"] - out["idle_exposed_ns"]
    out["row"] = rows
    out["step"] = [str(n) for n in capture.steps["number"].to_numpy()[rows].tolist()]
    return out.reset_index(drop=True)


def _figure(table: pd.DataFrame, capture: Capture, worst: int | None) -> FigureSection:
    drawn = _thinned(table)
    top = float((drawn["hidden_ns"] + drawn["exposed_ns"]).max())
    factor, unit = F.time_scale(top)
    x = drawn["step"].tolist()
    data: list[F.Plain] = []
    for column, name, color, opacity in PARTS:
        if not drawn[column].any():
            continue
        data.append({
            "type": "bar", "name": name, "x": x, "y": (drawn[column] / factor).tolist(), "customdata": x,
            "marker": {"color": F.light(color), "opacity": opacity}, "hovertext": [human(int(v), "ns") for v in drawn[column]],
            "hovertemplate": f"<b>Step %{{x}}</b><br>{name.lower()}: %{{hovertext}}<extra></extra>",
        })  # fmt: skip
    notes: list[F.Plain] = []
    at = drawn[drawn["row"] == worst] if worst is not None else drawn.iloc[:0]
    if len(at):
        top_of = float((at["hidden_ns"] + at["exposed_ns"]).iloc[0]) / factor
        notes.append({
            "x": x.index(str(at["step"].iloc[0])), "y": top_of, "text": "<b>worst</b>",
            "showarrow": False, "yanchor": "bottom", "yshift": 2, "font": {"size": 11.5, "color": F.light("accent")},
        })  # fmt: skip
    order: F.Plain = {"type": "category", "categoryorder": "array", "categoryarray": x, "nticks": 14}
    steps, exposed, share = len(table), int(table["exposed_ns"].mean()), float(table["exposed_ns"].sum() / max(table["step_ns"].sum(), 1))
    several = int(capture.device["device"].nunique()) > 1
    saving = f"hiding all of it could save {human(exposed, 'ns')} per step at most, {human(share, 'ratio')} of it"
    return FigureSection(
        id="exposure",
        title="Exposed copies step by step",
        subtitle="union of the copies of each step, summed over devices" if several else saving,
        span=7,
        height=300,
        table="per_step",
        figure=F.figure(
            data,
            x=F.axis("step") | order,
            y=F.axis(f"copies, {unit}", rangemode="tozero", range=[0, top / factor * 1.12] if top else [0, 1]),
            barmode="stack",
            showlegend=True,
            annotations=notes,
        ),
        summary=f"{human(exposed, 'ns')} of copies per step lie bare in the mean of {human(steps, 'count')} steps"
        + (f"; the most, {human(int(at['exposed_ns'].iloc[0]), 'ns')}, in step {at['step'].iloc[0]}." if len(at) else "."),
    )


def _thinned(table: pd.DataFrame) -> pd.DataFrame:
    """At most MOST_BARS steps: of each run of neighbours the one with the most exposed time."""
    if len(table) <= MOST_BARS:
        return table
    bucket = np.arange(len(table)) * MOST_BARS // len(table)
    order = np.lexsort((-table["exposed_ns"].to_numpy(), bucket))
    first = np.unique(bucket[order], return_index=True)[1]
    return table.iloc[np.sort(order[first])].reset_index(drop=True)


def _table(table: pd.DataFrame, capture: Capture, worst: int | None) -> AnySection:
    shown = table.iloc[:MOST_ROWS].reset_index(drop=True)
    complete = capture.steps["complete"].to_numpy()
    marks = {str(i): Mark("incomplete", "the recording cuts this step") for i, row in enumerate(shown["row"]) if not complete[row]}
    links = {str(i): Link("memcpy", {"step": s}, f"the copies of step {s}") for i, s in enumerate(shown["step"])}
    number = int(capture.steps["number"].to_numpy()[worst]) if worst is not None else None
    return make_table(
        "per_step",
        "Steps",
        shown,
        COLUMNS,
        key="step",
        subtitle="",
        span=5,
        sort=Sort("step", descending=False),
        marks={"step_ns": marks} if marks else {},
        row_links=links,
        cell_links={"step": links},
        links=[Link("memcpy", {"step": str(number)}, f"Worst: step {number}")] if number is not None else [],
        truncated=len(table) - len(shown),
        footer="Copies belong to the step that launched them. Exposed time is at most what hiding could save.",
    )
