"""Iterations: the whole training loop, how long each turn took, and how far from its limit it ran.

The recorder times every iteration and counts the work of a few. An iteration in between is credited with the work of the last
sampled one whose inputs had the same sizes; where the sizes differ its work is unknown.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd

from tb_sol_plugin.analyses.time import iterations_figures as chart
from tb_sol_plugin.analyses.time.iterations_figures import by_phase
from tb_sol_plugin.analyses.time.iterations_tables import COLUMNS, FACTS, Told, chosen_rows, facts, headline, table, totals
from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.errors import BadQuery, Unavailable
from tb_sol_plugin.metrics.time.iterations import Iterations, iterations, phase_times, thinned, trend
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import AnySection, Link, Notice, Report
from tb_sol_plugin.units import human


class IterationsQuery(Query, kw_only=True, frozen=True):
    """Iterations.

    metric: what the upper panel shows: step time, tokens or samples a second, or the recorder's own work
    first: number of the first iteration to look at
    last: number of the last
    signature: only iterations whose inputs have these sizes, as the column Inputs marks them
    most: rows of the table at most; 0 for all
    """

    metric: Literal["time", "tokens", "samples", "recorder"] = "time"
    first: int | None = None
    last: int | None = None
    signature: str = ""
    most: int = 1000


@analysis(
    title="Iterations",
    question="Does the job get slower, and how far from the limit is every iteration?",
    group="Time",
    order=12,
    requirements=("iterations",),
    query=IterationsQuery,
    tables={"iterations": COLUMNS},
    facts=FACTS,
)
def run(capture: Capture, query: IterationsQuery) -> Report:
    """The trend of the job, the phases over it, and the iterations as a table."""
    spec = device_for(capture, query.device_limits)
    fits = spec is None or spec.vendor == "cpu" or bool(capture.facts.devices) or len(capture.device) > 0
    every = iterations(capture, spec if fits else None)
    frame = _part(every, query)
    if query.most < 0:
        raise BadQuery("parameter 'most' does not fit", hint="give 0 for all, or a number of rows", field="most")
    told = Told.of(frame, trend(frame))
    column = chart.METRICS[query.metric][0]
    if not np.isfinite(frame[column].to_numpy(dtype=np.float64)).any():
        hint = (
            "give tracker.step() the number of tokens and the batch size"
            if query.metric in ("tokens", "samples")
            else "choose another metric"
        )
        raise Unavailable(f"no {chart.METRICS[query.metric][2].lower()} in this recording", hint=hint)
    at = np.union1d(thinned(frame[column].to_numpy(dtype=np.float64), chart.POINTS), np.flatnonzero(frame["sampled"])[: chart.MARKS])
    tiles, numbers = facts(told)
    sections: list[AnySection] = [tiles, chart.over_time(frame, at.astype(np.int64), told.trend, query.metric)]
    stacked = by_phase(frame, phase_times(capture, frame))
    sections += [stacked, numbers] if stacked is not None else [numbers]
    rows = chosen_rows(frame, query.most)
    about = _about(frame, query)
    part = frame.iloc[rows].reset_index(drop=True)
    sections.append(table(part, len(frame), totals(told, frame), quiet=_quiet(frame), about=about))
    report = Report(analysis="iterations", title="Iterations", headline=headline(told, frame), sections=sections)
    report.notices = _notices(capture, query, frame, every, fits=fits)
    return report


def _part(every: Iterations, query: IterationsQuery) -> pd.DataFrame:
    """The iterations that the query asks for. BadQuery where it asks for none."""
    frame = every.frame
    low, high = query.first, query.last
    if low is not None and high is not None and high < low:
        raise BadQuery("the last iteration lies before the first", hint="give first <= last", field="last")
    number = frame["number"]
    keep = (number >= low if low is not None else True) & (number <= high if high is not None else number == number)
    if query.signature:
        known = [str(s) for s in frame["signature"].cat.categories]
        if query.signature not in known:
            raise BadQuery(f"no inputs {query.signature[:80]!r}", hint=f"recorded: {', '.join(known[:8])}", field="signature")
        keep &= frame["signature"] == query.signature
    if not keep.any():
        span = f"recorded: {number.min()}–{number.max()}" if len(frame) else "no iteration was recorded"
        raise BadQuery("no iteration in this range", hint=span, field="first" if low is not None else "last")
    return frame if keep.all() else frame[keep].reset_index(drop=True)


def _about(frame: pd.DataFrame, query: IterationsQuery) -> str:
    number = frame["number"]
    text = f"{human(int(number.min()), 'count')} to {human(int(number.max()), 'count')}"
    return text + (f", inputs {query.signature}" if query.signature else "")


def _quiet(frame: pd.DataFrame) -> tuple[str, ...]:
    """Columns that say nothing here: only through the chooser."""
    out = [n for n in ("device_ns", "tokens_per_s", "samples_per_s", "sol_ns", "sol_ratio", "mfu", "flop") if not frame[n].notna().any()]
    out += ["host_ns"] if not frame["device_ns"].notna().any() else []
    out += ["signature"] if frame["signature"].nunique() < 2 else []
    out += ["unknown"] if not (frame["unknown"] > 0).any() else []
    return tuple(out)


def _notices(capture: Capture, query: IterationsQuery, frame: pd.DataFrame, every: Iterations, *, fits: bool) -> list[Notice]:
    out: list[Notice] = []
    if query.step:
        out.append(Notice("This page is about all iterations, not about the selected steps; `first` and `last` narrow it.", "info"))
    if not fits:
        out.append(
            Notice("The chosen limits are those of a GPU, and this job ran on a CPU: no ratio to them is made.", "info", Link("whatif"))
        )
    if every.recorded_limits:
        out.append(Notice("Limits are those that the recorder used: this page has none for the device.", "info"))
    lost = int((frame["age"] < 0).sum())
    if lost and lost < len(frame):
        out.append(
            Notice(
                f"{human(lost, 'count')} iterations have inputs of a size that no iteration before them was sampled with: "
                "their work is not known.",
                "info",
            )
        )
    if frame["eager"].any():
        out.append(
            Notice(
                "The model is compiled. A sampled iteration runs it eagerly to count its work, so its time is no measure of the compiled "
                "model: ratios stand at the iterations between.",
                "info",
            )
        )
    missing = int(frame["missing"].sum())
    if missing:
        out.append(Notice(f"{human(missing, 'count')} iterations are not in the file.", "warn", Link("health", {}, "Trace health")))
    return out
