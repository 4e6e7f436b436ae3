"""How a number went from run to run, and which run changed it.

Every run of the logdir is one value: the median over its complete steps, of the worker whose steps take longest. Runs stand in the order
in which they were recorded where all of them say when that was, else by their names. A change is marked where the values before and after
it differ more than chance explains, and the last run before it is compared with the first after it, for the cause.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.compare import change as C
from tb_sol_plugin.metrics.compare.causes import Cause, compared
from tb_sol_plugin.metrics.compare.differences import Side, changed
from tb_sol_plugin.metrics.compare.gate import is_exact, is_rate, unit_of, values_of, wanted_of
from tb_sol_plugin.metrics.compare.history import LEAST_RUNS, Changed, changes_of, found_in, in_order
from tb_sol_plugin.metrics.compare.ranks import slowest
from tb_sol_plugin.metrics.compare.samples import METRICS, Samples, samples_of, text_of
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.recordings import RecordingReduction, Sidecar, natural
from tb_sol_plugin.model.registry import Reduction, analysis
from tb_sol_plugin.model.report import (
    Column,
    Fact,
    FactsSection,
    FigureSection,
    Link,
    Notice,
    Report,
    Scalar,
    TableSection,
    make_facts,
    make_table,
)
from tb_sol_plugin.units import how_many, number

Metric = Literal[
    "step_time", "device_busy", "kernel_time", "exposed_communication", "exposed_memcpy", "idle", "host_time", "dataloader", "launches",
    "syncs", "allocations", "copied_bytes", "peak_memory", "efficiency", "mfu",
]  # fmt: skip



class TrendQuery(Query, kw_only=True, frozen=True):
    """metric: what is shown of each run
    row: in place of it the time per step of a row, as `operator:aten::mm`, `kernel:NAME`, `module:PATH` or `phase:PATH` ("" = the metric)
    only: names of runs that are taken, with * for any text ("" = all), as `nightly*`
    pattern: regular expression (RE2): runs with names in which it is found, in the order of its first group, as `batch-(\\d+)` ("" = all)
    """

    metric: Metric = "step_time"
    row: str = ""
    only: str = ""
    pattern: str = ""

    @property
    def shown(self) -> str:
        """Name of what is shown."""
        return self.row.strip() or self.metric


MOST_PATTERN: Final = 100
MANY_RUNS: Final = 100
FEWER_DRAWS: Final = 400
"""Draws of the bootstrap for each of more runs than `MANY_RUNS`."""
FEW: Final = "fewer than 5 steps"
RUNS: Final = (
    Column("run", "Run", doc="name of the run", show="code"),
    Column("value", "Median", doc="median over its complete steps", show="text"),
    Column("change", "To the one before", "ratio", "change to the run before", missing="the first one"),
    Column("low", "From", "ratio", "lower end of the 95 % interval of that change", missing=FEW, rank=2),
    Column("high", "To", "ratio", "upper end of the 95 % interval of that change", missing=FEW, rank=2),
    Column("verdict", "Verdict", doc="worse, better than the run before: its interval is without 0", show="badge", missing="the first"),
    Column("samples", "Steps", "count", "complete steps that were compared"),
    Column("worker", "Worker", doc="the slowest most often: a step is as long as that of its slowest worker", show="code", rank=2),
    Column("workers", "Workers", "count", "workers of the run that were read", rank=2),
    Column("place", "Place", doc="what the first group of the pattern found in the name", show="code", rank=3, missing="no pattern"),
    Column("part", "Part", "count", "of the history, from one change to the next", rank=3),
    Column("number", "Number", doc="the median in ns, bytes or a count", rank=3),
)
CHANGES: Final = (
    Column("at_run", "From", doc="first run with the other value", show="code"),
    Column("change", "Change", "ratio", "median of the runs after over that of the runs before, less one"),
    Column("before", "Before", doc="median of the runs before", show="text"),
    Column("after", "After", doc="median of the runs after", show="text"),
    Column("p", "Chance", "ratio", "how often values in random order differ as much at any place"),
    Column("cause", "Cause", doc="largest between the last run before and the first after", show="text", missing="no more than noise"),
)
FACTS: Final = (
    Fact("runs", "Runs", "count", "runs in the history"),
    Fact("changes", "Changes", "count", "runs from which on the number is another one"),
    Fact("first", "First", "", "median of the first run"),
    Fact("last", "Last", "", "median of the last run"),
    Fact("change", "From first to last", "ratio", "change from the first run to the last"),
)


@dataclass(frozen=True)
class One:
    """A run of the history. workers: how many were read. worker: the slowest most often. samples: of the slowest one of each step.

    place: what the pattern found in its name; "" without one.
    """

    run: str
    worker: str
    workers: int
    samples: Samples
    began_ns: int | None
    place: str = ""

    def steps(self, metric: str) -> C.Values:
        """Returns a metric, or the time of a row, per step; none where the run does not know it."""
        found = values_of(Side(self.run, [self.samples]), metric)
        return found[0] if found else np.zeros(0)

    def value(self, metric: str) -> float | None:
        """Returns the median over its steps."""
        known = self.steps(metric)
        return float(np.median(known)) if len(known) else None


@analysis(
    scope="runs",
    title="History",
    question="Which run made it faster or slower?",
    group="Run",
    order=6,
    requirements=("program",),
    query=TrendQuery,
    tables={"runs": RUNS, "changes": CHANGES},
    facts=FACTS,
    under="compare",
    reduce=Reduction(samples_of, fields=("step", "device_limits"), version=7),
)
def run(workers: Sequence[RecordingReduction[Samples]], files: Sequence[Sidecar], query: TrendQuery) -> Report:
    wanted_of([query.shown])  # BadQuery where there is no such number or kind of row
    every, by_time = _history(workers, query.only, query.pattern)
    of_each = [(one, one.value(query.shown)) for one in every]
    known, values = [one for one, value in of_each if value is not None], [value for _, value in of_each if value is not None]
    label = _label(query.shown)
    notices = _notices(workers, every, known, query, by_time)
    if len(known) < 2:
        why = f"{how_many(len(known), 'run')} here know it" if len(known) != 1 else "one run here knows it"
        return Report(
            analysis="trend", title="History", headline=f"{label}: a history takes two runs or more, and {why}.", notices=notices,
            sections=[_runs(known, values, [], query.shown)],
        )  # fmt: skip
    changes = changes_of(values)
    causes = [_cause(known[c.at - 1], known[c.at]) for c in changes]
    return Report(
        analysis="trend", title="History", headline=_headline(known, values, changes, causes, query.shown), notices=notices,
        sections=[_tiles(known, values, changes, query.shown), _figure(known, values, changes, query.shown),
                  *([_changes(known, changes, causes, query.shown)] if changes else []), _runs(known, values, changes, query.shown)],
    )  # fmt: skip


def _history(workers: Sequence[RecordingReduction[Samples]], only: str, regex: str) -> tuple[list[One], bool]:
    """Returns the runs in order, and whether that is the order of time, or of what a regular expression finds in their names."""
    places = found_in(sorted({one.run for one in workers}), regex) if regex else None
    found: dict[str, list[tuple[str, Samples, int | None]]] = {}
    pattern = only.strip()[:MOST_PATTERN]
    for one in workers:
        if one.state != "read" or (pattern and not fnmatch.fnmatchcase(one.run, pattern)) or (places is not None and one.run not in places):
            continue
        samples = one.reduced
        found.setdefault(one.run, []).append((one.worker, samples, samples.began_ns))
    out = []
    for name, group in found.items():
        joined = slowest([g[1] for g in group])
        starts = [g[2] for g in group if g[2] is not None]
        place = places[name] if places is not None else ""
        out.append(One(name, group[joined.rank][0], len(group), joined.samples, min(starts) if starts else None, place))
    by_time = all(one.began_ns is not None for one in out)
    out.sort(key=lambda one: (one.began_ns or 0, natural(one.run)) if by_time else (0, natural(one.run)))
    if places is not None:
        keys = dict(zip((one.run for one in out), in_order([one.place for one in out]), strict=True))
        out.sort(key=lambda one: keys[one.run])  # of one place in order of time
        return out, True
    return out, by_time


def _cause(before: One, after: One) -> Cause | None:
    a, b = Side(before.run, [before.samples]), Side(after.run, [after.samples])
    return next(iter(compared(a, b).causes), None)


def _label(metric: str) -> str:
    return METRICS[metric].label if metric in METRICS else metric[:MOST_PATTERN]


def _text(value: float, metric: str) -> str:
    return text_of(value, unit_of(metric))


def _headline(
    known: Sequence[One], values: Sequence[float], changes: Sequence[Changed], causes: Sequence[Cause | None], metric: str
) -> str:
    label, first, last = _label(metric), known[0], known[-1]
    if changes:
        i = max(range(len(changes)), key=lambda k: abs(changes[k].change or 0.0))
        at, cause = changes[i], causes[i]
        part = f"{number(100 * abs(at.change), 1)} % " if at.change is not None else ""
        side = "more" if at.after > at.before else "less"
        because = f": {cause.sentence}" if cause is not None else ""
        sizes = f"{_text(at.before, metric)} before and {_text(at.after, metric)} after"
        return f"{label}: **{part}{side} since `{_name(known[at.at])}`**, {sizes}{because}."
    few = f" Fewer than {LEAST_RUNS} runs: where it changed is not looked for." if len(known) < LEAST_RUNS else " No run changed it."
    return f"{label}: {_text(values[0], metric)} in `{_name(first)}`, {_text(values[-1], metric)} in `{_name(last)}`.{few}"


def _name(one: One) -> str:
    """Returns the name of a run without what would end the mark around it."""
    return one.run.replace("`", "'")


def _tiles(known: Sequence[One], values: Sequence[float], changes: Sequence[Changed], metric: str) -> FactsSection:
    shown: dict[str, Scalar] = {
        "runs": len(known), "changes": len(changes) if len(known) >= LEAST_RUNS else None,
        "change": values[-1] / values[0] - 1 if values[0] else None, "first": _text(values[0], metric), "last": _text(values[-1], metric),
    }  # fmt: skip
    return make_facts(
        "facts", _label(metric), shown, FACTS, style="tiles", notes={"first": known[0].run, "last": known[-1].run},
        hidden=[n for n, v in shown.items() if v is None],
    )  # fmt: skip


def _parts(count: int, changes: Sequence[Changed]) -> list[int]:
    return [sum(c.at <= i for c in changes) for i in range(count)]


def _runs(known: Sequence[One], values: Sequence[float], changes: Sequence[Changed], metric: str) -> TableSection:
    rows: list[dict[str, Scalar]] = []
    before: tuple[Side, C.Values] | None = None
    for one, value, part in zip(known, values, _parts(len(known), changes), strict=True):
        side, steps = Side(one.run, [one.samples]), one.steps(metric)
        row: dict[str, Scalar] = {
            "run": one.run, "value": _text(value, metric), "change": None, "low": None, "high": None, "verdict": None,
            "samples": len(steps), "worker": one.worker, "workers": one.workers, "place": one.place or None, "part": part + 1,
            "number": value,
        }  # fmt: skip
        if before is not None:
            draws = FEWER_DRAWS if len(known) > MANY_RUNS else 0
            found = changed(metric, [before[1]], [steps], (before[0], side), draws=draws)
            verdict = C.seen(C.turned(found) if is_rate(metric) else found, least=1 if is_exact(metric) else C.LEAST_STEPS)
            few = verdict == "unknown"
            row |= {"change": found.change, "verdict": verdict, "low": None if few else found.low, "high": None if few else found.high}
        rows.append(row)
        before = side, steps
    frame = {c.name: [row.get(c.name) for row in rows] for c in RUNS}
    links = {str(i): Link("overview", {"run": one.run, "worker": one.worker}) for i, one in enumerate(known)}
    return make_table("runs", "Runs", frame, RUNS, key="run", row_links=links, subtitle="in order", empty="No run here knows it.")


def _changes(known: Sequence[One], changes: Sequence[Changed], causes: Sequence[Cause | None], metric: str) -> TableSection:
    frame = pd.DataFrame({
        "at_run": [known[c.at].run for c in changes], "change": [c.change for c in changes],
        "before": [_text(c.before, metric) for c in changes], "after": [_text(c.after, metric) for c in changes],
        "p": [c.p for c in changes],
        "cause": [None if c is None else c.sentence.replace("`", "") for c in causes],
    }, dtype=object)  # fmt: skip
    links = {
        str(i): Link("compare", {"run": known[c.at - 1].run, "worker": known[c.at - 1].worker, "other_run": known[c.at].run})
        for i, c in enumerate(changes)
    }
    return make_table(
        "changes", "Changes", frame, CHANGES, key="at_run", row_links=links,
        subtitle="runs from which on it is another one; Enter compares the last run before with the first after",
    )  # fmt: skip


def _figure(known: Sequence[One], values: Sequence[float], changes: Sequence[Changed], metric: str) -> FigureSection:
    unit = unit_of(metric)
    scale, name = F.time_scale(max(values)) if unit == "ns" else (0.01, "%") if unit == "ratio" else (1.0, unit if unit != "count" else "")
    spread = [np.percentile(one.steps(metric), [25, 75]).tolist() for one in known]
    place = list(range(len(known)))
    sizes = [f"{_text(v, metric)}, {how_many(len(one.samples.steps), 'step')}" for one, v in zip(known, values, strict=True)]
    hover = [f"<b>{F.escape(one.run)}</b><br>{size}" for one, size in zip(known, sizes, strict=True)]
    data: list[F.Plain] = [{
        "type": "scatter", "mode": "lines+markers", "x": place, "y": [v / scale for v in values], "customdata": [one.run for one in known],
        "line": {"color": F.light("compute"), "width": 1.6}, "marker": {"size": 7, "color": F.light("compute")},
        "name": F.escape(_label(metric)), "hoverinfo": "text", "hovertext": hover,
        "error_y": {
            "type": "data", "symmetric": False, "array": [(s[1] - v) / scale for s, v in zip(spread, values, strict=True)],
            "arrayminus": [(v - s[0]) / scale for s, v in zip(spread, values, strict=True)], "thickness": 1, "width": 3,
            "color": F.light("ink-3"),
        },
    }]  # fmt: skip
    notes: list[F.Plain] = [{
        "x": c.at - 0.5, "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False, "font": {"size": 12, "color": F.light("ink-2")},
        "text": f"<b>{'+' if (c.change or 0) > 0 else '−'}{number(100 * abs(c.change or 0), 1)} %</b>",
    } for c in changes]  # fmt: skip
    lines: list[F.Plain] = [{
        "type": "line", "x0": c.at - 0.5, "x1": c.at - 0.5, "y0": 0, "y1": 1, "yref": "paper",
        "line": {"color": F.light("accent"), "width": 1.4, "dash": "4px,3px"},
    } for c in changes]  # fmt: skip
    step = max(1, len(known) // 16)
    ticks = place[::step]
    names = [F.escape(F.cut(known[i].place or known[i].run, 16)) for i in ticks]
    return FigureSection(
        id="history", title=_label(metric), height=340, table="runs",
        subtitle="median of each run; bars: middle half of its steps; dashed: another value from there on",
        figure=F.figure(
            data, x=F.axis("run", tickvals=ticks, ticktext=names, showgrid=False),
            y=F.axis(name or F.escape(_label(metric)), rangemode="tozero"), shapes=lines, annotations=notes,
            margin={"l": 62, "r": 18, "t": 26, "b": 70},
        ),
        summary=f"{_label(metric)}: from {_text(values[0], metric)} to {_text(values[-1], metric)} over {len(known)} runs.",
    )  # fmt: skip


def _notices(
    workers: Sequence[RecordingReduction[Samples]], every: Sequence[One], known: Sequence[One], query: TrendQuery, by_time: bool
) -> list[Notice]:
    out = []
    failed = [w for w in workers if w.state in ("failed", "lacking")]
    if failed:
        first = failed[0]
        why = first.problem or (first.missing.because if first.missing is not None else "")
        out.append(Notice(f"{how_many(len(failed), 'recording')} left out; {first.file}: {why}."))
    if len(known) < len(every):
        out.append(Notice(f"{how_many(len(every) - len(known), 'run')} do not have this number and are left out.", "info"))
    if every and not by_time:
        out.append(Notice("Not every run says when it was recorded: they stand in the order of their names.", "info"))
    if query.pattern and not every:
        shown = query.pattern[:MOST_PATTERN].replace("`", "'")
        out.append(Notice(f"The pattern `{shown}` is found in no name of a run."))
    elif query.only and not every:
        out.append(Notice(f"No run has a name like `{query.only[:MOST_PATTERN]}`."))
    return out
