"""Iterations: the whole training loop, how long each turn took, and how far from its limit it ran.

The recorder times every iteration and counts the work of a few. An iteration in between is credited with the work of the last
sampled one whose inputs had the same sizes; where the sizes differ its work is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.analyses.time.iterations_tables import COLUMNS, FACTS, IterationSummary, chosen_rows, facts, headline, table, totals
from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.errors import BadQuery, Unavailable
from tb_sol_plugin.format import DOMINATES, STARTING
from tb_sol_plugin.metrics.time.iterations import (
    NO_PHASE,
    Iterations,
    PhaseTimes,
    Trend,
    counted,
    iterations,
    phase_times,
    startup,
    thinned,
    trend,
)
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import AnySection, FigureSection, Link, Notice, Report
from tb_sol_plugin.tables.arrays import Floats, Ints
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
    """Returns the trend of the job, the phases over it, and the iterations as a table."""
    spec = device_for(capture, query.device_limits)
    fits = spec is None or spec.vendor == "cpu" or bool(capture.facts.devices) or len(capture.device) > 0
    every = iterations(capture, spec if fits else None)
    frame = _part(every, query)
    if query.most < 0:
        raise BadQuery("parameter 'most' does not fit", hint="give 0 for all, or a number of rows", field="most")
    summary = IterationSummary.of(frame, trend(frame))
    column = METRICS[query.metric][0]
    if not np.isfinite(frame[column].to_numpy(dtype=np.float64)).any():
        hint = (
            "give tracker.step() the number of tokens and the batch size"
            if query.metric in ("tokens", "samples")
            else "choose another metric"
        )
        raise Unavailable(f"no {METRICS[query.metric][2].lower()} in this recording", hint=hint)
    at = np.union1d(thinned(frame[column].to_numpy(dtype=np.float64), POINTS), np.flatnonzero(frame["sampled"])[:MARKS])
    tiles, numbers = facts(summary)
    sections: list[AnySection] = [tiles, over_time(frame, at.astype(np.int64), summary.trend, query.metric)]
    stacked = by_phase(frame, phase_times(capture, frame))
    sections += [stacked, numbers] if stacked is not None else [numbers]
    rows = chosen_rows(frame, query.most)
    about = _about(frame, query)
    part = frame.iloc[rows].reset_index(drop=True)
    sections.append(table(part, len(frame), totals(summary, frame), quiet=_hidden_columns(frame), about=about))
    report = Report(analysis="iterations", title="Iterations", headline=headline(summary, frame), sections=sections)
    report.notices = _notices(capture, query, frame, every, fits=fits)
    return report


def _part(every: Iterations, query: IterationsQuery) -> pd.DataFrame:
    """Returns the iterations that the query asks for. BadQuery where it asks for none."""
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


def _hidden_columns(frame: pd.DataFrame) -> tuple[str, ...]:
    """Returns the columns that say nothing here and are hidden."""
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
    began = startup(every.frame)
    if began is not None and began[1] >= DOMINATES:
        out.append(
            Notice(
                f"Start-up dominates: the first {STARTING} iterations took {human(began[0], 'ns')} beyond usual ones, "
                f"{human(began[1], 'ratio')} of the run. Record more iterations before runs are compared by their whole time.",
                "info",
            )
        )
    missing = int(frame["missing"].sum())
    if missing:
        out.append(Notice(f"{human(missing, 'count')} iterations are not in the file.", "warn", Link("health", {}, "Trace health")))
    return out


# -- Step time over iterations ----------------------------------------------------------------------------------------
# step time, with speed of light and MFU below it.


POINTS: Final = 1000
"""Points of a line at most: more than the figure has pixels for."""
MARKS: Final = 300
TICKS: Final = 9
METRICS: Final = {
    "time": ("time_ns", "ns", "Step time"),
    "tokens": ("tokens_per_s", "", "Tokens/s"),
    "samples": ("samples_per_s", "", "Samples/s"),
    "recorder": ("overhead_ns", "ns", "Recorder's own work"),
}
"""Column, unit and label of what the upper panel can show."""
SHARES: Final = (("sol_ratio", "Speed of light", "accent"), ("mfu", "MFU", "compute"))


def bar_places(frame: pd.DataFrame) -> Ints:
    """Returns the places of iterations on the axis: their number, or their order where a restart brings numbers again."""
    number = frame["number"].to_numpy()
    return np.asarray(number if frame["life"].nunique() < 2 else np.arange(len(frame)), np.int64)


def across(frame: pd.DataFrame, place: Ints, **more: object) -> F.Plain:
    """Returns the axis of iterations; by order the ticks still say their numbers."""
    low, high = float(place.min()), float(place.max())
    pad = max((high - low) * 0.012, 0.5)
    title = "iteration"
    ends: F.Plain = {"range": [low - pad, high + pad], "tickformat": ",d"}
    if high - low < TICKS:
        ends["dtick"] = 1  # else ticks stand between whole numbers, and repeat them
    if frame["life"].nunique() > 1:
        rows = np.unique(np.linspace(0, len(frame) - 1, TICKS).astype(np.int64))
        ends |= {"tickvals": place[rows].tolist(), "ticktext": [human(int(n), "count") for n in frame["number"].to_numpy()[rows]]}
        title = "iteration, in order of time"
    return F.axis(title, **(ends | more))


@dataclass(frozen=True)
class _Panel:
    """Draws values of one unit over the iterations of `frame`, at `place`. scale: base units per unit of the axis. axes: "" or "2"."""

    frame: pd.DataFrame
    place: Ints
    label: str
    unit: str
    scale: float
    axes: str = ""

    def line(self, rows: Ints, values: Floats, color: str) -> F.Plain:
        """Returns a line with gaps where numbers are missing or begin anew, and where values are unknown. Points carry the keys of rows."""
        broken = self.frame["segment"].to_numpy()[rows]
        gaps = np.flatnonzero(np.diff(broken) != 0) + 1
        columns = (self._x(rows), self._y(values[rows]), self._keys(rows), self._hover(rows, values[rows]))
        for column in columns:
            for gap in reversed(gaps.tolist()):
                column.insert(gap, None)
        x, y, keys, texts = columns
        return {
            **self._common(self.label, x, y, keys, texts),
            "mode": "lines" if len(rows) > 1 else "markers",
            "line": {"color": F.light(color), "width": 1.4},
            "marker": {"size": 5, "color": F.light(color)},
            "connectgaps": False,
        }

    def points(
        self, rows: Ints, values: Floats, name: str, color: str, symbol: str, *, at: Floats | None = None, legend: bool = True
    ) -> F.Plain:
        """Returns marks at values; `at` gives other heights to draw them at."""
        heights = values[rows] if at is None else at[rows]
        return {
            **self._common(name, self._x(rows), self._y(heights), self._keys(rows), self._hover(rows, values[rows])),
            "mode": "markers",
            "showlegend": legend,
            "marker": {"size": 8, "symbol": symbol, "color": F.light(color), "line": {"width": 1, "color": F.light("surface")}},
        }

    def _common(self, name: str, x: list[object], y: list[object], keys: list[object], texts: list[object]) -> F.Plain:
        trace: F.Plain = {"type": "scatter", "name": name, "x": x, "y": y, "customdata": keys, "hoverinfo": "text", "hovertext": texts}
        return trace | ({"xaxis": f"x{self.axes}", "yaxis": f"y{self.axes}"} if self.axes else {})

    def _x(self, rows: Ints) -> list[object]:
        return list(self.place[rows].tolist())

    def _y(self, values: Floats) -> list[object]:
        return [v / self.scale if v == v else None for v in values.tolist()]

    def _keys(self, rows: Ints) -> list[object]:
        return [self.frame["id"].iat[row] for row in rows.tolist()]

    def _hover(self, rows: Ints, values: Floats) -> list[object]:
        number, sampled = self.frame["number"].to_numpy()[rows].tolist(), self.frame["sampled"].to_numpy()[rows].tolist()
        return [
            f"<b>Iteration {human(n, 'count')}</b>{', sampled' if counted_here else ''}<br>{self.label} {human(value, self.unit)}"
            for n, counted_here, value in zip(number, sampled, values.tolist(), strict=True)
        ]


def over_time(frame: pd.DataFrame, at: Ints, found: Trend, metric: str) -> FigureSection:
    """Draws two panels on one axis. at: rows of `frame` to draw lines through; sampled ones get a mark besides."""
    column, unit, label = METRICS[metric]
    values = frame[column].to_numpy(dtype=np.float64)
    sampled = frame["sampled"].to_numpy()
    usual = np.isfinite(values) & (counted(frame) | (sampled & ~frame["first"].to_numpy()))
    low, top = _range(values[usual] if usual.any() else values[np.isfinite(values)])
    factor, name = F.time_scale(top) if unit == "ns" else (1.0, "")
    place = bar_places(frame)
    panel = _Panel(frame, place, label, unit, factor)
    out = np.isfinite(values) & (values > top)
    held = np.where(out, np.nan, values)
    between = at[~sampled[at]] if (~sampled).sum() > 1 else at
    marked = at[sampled[at] & ~out[at] & np.isfinite(values[at])]
    marked = marked[thinned(values[marked], MARKS)]
    data = [panel.line(between, held, "bar-ink"), panel.points(marked, values, "Sampled", "bar-ink", "diamond")]
    if out[at].any():
        edge = np.full(len(values), top)
        data.append(panel.points(at[out[at]], values, "Beyond the axis", "warn", "triangle-up", at=edge))
    if frame["traced"].any():
        data.append(panel.points(np.flatnonzero(frame["traced"])[:MARKS], np.minimum(values, top), "In the trace", "attention", "square"))
    fit, notes = _fit(place, found, factor) if metric == "time" else ([], [])
    shares = [s for s in SHARES if np.isfinite(frame[s[0]].to_numpy(dtype=np.float64)).any()]
    y = F.axis(name if unit == "ns" else label.lower(), range=[low / factor, top * (1.04 if out[at].any() else 1.0) / factor])
    layout = _axes(frame, place, y, lower=bool(shares))
    highest = 0.0
    for share, words, color in shares:
        percent = np.where(frame["first"] & (len(frame) > 1), np.nan, frame[share].to_numpy(dtype=np.float64)) * 100
        highest = max(highest, float(np.nanmax(percent)) if np.isfinite(percent).any() else 0.0)
        own = at[sampled[at] & np.isfinite(percent[at])]
        below = _Panel(frame, place, words, "%", 1.0, "2")
        data.append(below.line(at, percent, color))
        data.append(below.points(own[thinned(percent[own], MARKS)], percent, words, color, "diamond", legend=False))
    if shares:
        layout["yaxis2"]["range"] = [0, 1.12 * highest or 1.0]
    figure = F.figure(
        [*data, *fit],
        x=layout.pop("xaxis"),
        y=layout.pop("yaxis"),
        showlegend=True,
        shapes=_breaks(frame, place),
        annotations=notes,
        margin={"l": 62, "r": 14, "t": 12, "b": 46},
        **layout,
    )
    few = len(at) < len(frame)
    drawn = f"; the shortest and longest of each stretch, {human(len(at), 'count')} of {human(len(frame), 'count')}" if few else ""
    return FigureSection(
        id="course",
        title=f"{label} over iterations",
        subtitle=f"{'speed of light and MFU below' if shares else 'no limits are known: no speed of light'}{drawn}",
        figure=figure,
        summary=f"{label} of {human(len(frame), 'count')} iterations, {human(int(sampled.sum()), 'count')} of them sampled; "
        f"median step {human(found.level_ns, 'ns')}.",
        table="iterations",
        height=430 if shares else 300,
    )


def _axes(frame: pd.DataFrame, place: Ints, y: F.Plain, *, lower: bool) -> dict[str, F.Plain]:
    """Returns axes of the upper panel, and those of the lower one, which share the iterations."""
    if not lower:
        return {"xaxis": across(frame, place), "yaxis": y}
    quiet: F.Plain = {"title": {"text": ""}, "showticklabels": False, "matches": "x2", "anchor": "y"}
    return {
        "xaxis": across(frame, place) | quiet,
        "yaxis": y | {"domain": [0.44, 1.0]},
        "xaxis2": across(frame, place, anchor="y2"),
        "yaxis2": F.axis("%", domain=[0.0, 0.36], anchor="x2"),
    }


def _range(values: Floats) -> tuple[float, float]:
    """Returns (low, top) of an axis: a few values far away do not press the others to a line; they are marked at the top instead."""
    if not len(values):
        return 0.0, 1.0
    most, usual = float(values.max()), float(np.quantile(values, 0.95))
    top = 1.08 * (most if most <= 3 * usual or usual <= 0 else 1.6 * usual)
    low = float(values.min())
    return (0.0 if low < 0.6 * top else max(low - 0.6 * (top - low), 0.0)), top if top > 0 else 1.0


def _breaks(frame: pd.DataFrame, place: Ints) -> list[F.Plain]:
    """Returns a dotted line where a restart brings an earlier number again."""
    line: F.Plain = {"color": F.light("ink-3"), "width": 1, "dash": "dot"}
    where: F.Plain = {"type": "line", "xref": "x", "yref": "paper", "y0": 0, "y1": 1, "layer": "below", "line": line}
    begun = place[1:][np.diff(frame["life"].to_numpy()) > 0][:50] - 0.5
    return [where | {"x0": x, "x1": x} for x in begun.tolist()]


def _fit(place: Ints, found: Trend, factor: float) -> tuple[list[F.Plain], list[F.Plain]]:
    """Returns lines and words of the levels around a lasting rise, of a slope, or of the median."""
    if len(found.rows) < 2:
        return [], []
    number = place[found.rows]
    last = len(number) - 1
    change, slope = found.change, found.slope
    color = "warn"
    if change is not None:
        pieces = [(a, b, ns, ns, human(round(ns), "ns")) for a, b, ns in (
            (change.since, change.at - 1, change.before), (change.at, change.until - 1, change.after)
        )]  # fmt: skip
    elif found.growing and slope is not None:
        middle = float(np.median(number))
        start, stop = (found.level_ns + slope.value * (float(number[i]) - middle) for i in (0, last))
        over = found.over_stretch(slope.value)
        pieces = [(0, last, start, stop, f"{'+' if over > 0 else ''}{human(over, 'ns')} in {found.stretch} iterations")]
    else:
        pieces, color = [(0, last, found.level_ns, found.level_ns, f"median {human(round(found.level_ns), 'ns')}")], "ink-3"
    lines: list[F.Plain] = []
    notes: list[F.Plain] = []
    for first, end, start, stop, words in pieces:
        xs = [int(number[first]), int(number[end])]
        stroke: F.Plain = {"color": F.light(color), "width": 1.6, "dash": "3px,3px"}
        hidden: F.Plain = {"type": "scatter", "mode": "lines", "hoverinfo": "skip", "showlegend": False}
        lines.append(hidden | {"x": xs, "y": [start / factor, stop / factor], "line": stroke})
        note: F.Plain = {
            "x": xs[1],
            "y": stop / factor,
            "text": words,
            "showarrow": False,
            "xanchor": "right",
            "yanchor": "bottom",
            "yshift": 4,
        }
        notes.append(note | {"font": {"size": 11.5, "color": F.light("ink-2")}, "bgcolor": F.light("surface"), "opacity": 0.85})
    return lines, notes


BARS: Final = 120
STRENGTH: Final = (1.0, 0.62, 0.4, 0.26)
"""Accent of the longest phases, so that neighbors differ."""


def by_phase(frame: pd.DataFrame, found: PhaseTimes) -> FigureSection | None:
    """A bar per iteration, or per stretch where there are many: time of each outermost phase, then what is outside. None without phases."""
    if not found.names:
        return None
    keep = np.flatnonzero(~frame["first"].to_numpy()) if (~frame["first"]).any() else np.arange(len(frame))
    begun = np.flatnonzero(np.diff(frame["segment"].to_numpy()[keep]) != 0) + 1
    even = np.linspace(0, len(keep), min(BARS, len(keep)) + 1).astype(np.int64)
    edges = np.unique(np.concatenate((even, begun[:BARS])))
    size = np.diff(edges)
    time = frame["time_ns"].to_numpy()[keep]
    number, place = frame["number"].to_numpy()[keep], bar_places(frame)[keep]
    slowest = [keep[a + int(np.nanargmax(time[a:b]))] for a, b in pairwise(edges.tolist())]
    keys = [frame["id"].iat[int(r)] for r in slowest]
    names = list(found.names[: len(STRENGTH)])
    rows = [found.times[i][keep] for i in range(len(names))]
    if len(found.names) > len(names):
        names.append(f"{len(found.names) - len(names)} other phases")
        rows.append(found.times[len(STRENGTH) :].sum(axis=0)[keep])
    inside = found.times.sum(axis=0)[keep]
    rest = np.clip(time - inside, 0.0, None)
    middle = [np.add.reduceat(values, edges[:-1]) / size for values in (*rows, rest)]
    whole = np.sum(middle, axis=0)
    factor, unit = F.time_scale(float(whole.max()) if len(whole) else 1.0)
    spans = [_span(int(number[a]), int(number[b - 1])) for a, b in pairwise(edges.tolist())]
    many = bool((size > 1).any())
    x: list[object] = [float(place[a] + place[b - 1]) / 2 for a, b in pairwise(edges.tolist())]
    width = [float(place[b - 1] - place[a] + 1) * 0.86 for a, b in pairwise(edges.tolist())]
    data: list[F.Plain] = []
    for i, (name, values) in enumerate(zip([*names, NO_PHASE], middle, strict=True)):
        if not values.any():
            continue
        last = name == NO_PHASE
        marker: F.Plain = F.fill("line-strong" if last else "host" if i >= len(STRENGTH) else "accent")
        marker["line"] = {"width": 0}
        if not last and i < len(STRENGTH):
            marker["opacity"] = STRENGTH[i]
        safe = F.escape(name)
        data.append(
            {
                "type": "bar",
                "name": name,
                "x": x,
                "y": (values / factor).tolist(),
                "width": width,
                "marker": marker,
                "customdata": keys,
                "hoverinfo": "text",
                "hovertext": _hover(safe, spans, values, whole, size),
            }
        )
    sums = [(float(values.sum()), name) for name, values in zip([*names, NO_PHASE], middle, strict=True)]
    summary = ", ".join(
        f"{name} {human(value / float(whole.sum()), 'ratio')}" for value, name in sorted(sums, reverse=True)[:4] if value > 0
    )
    first = "" if len(keep) == len(frame) else "; without the first iteration"
    stretch = (
        f"; a bar is the average of about {human(round(len(keep) / len(size)), 'count')} iterations, a click selects the longest"
        if many
        else ""
    )
    return FigureSection(
        id="phases",
        title="Phases over iterations",
        subtitle=f"{'device' if found.on_device else 'host'} time of the outermost phases{first}{stretch}",
        figure=F.figure(
            data,
            x=across(frame, bar_places(frame), gridcolor="rgba(0,0,0,0)"),
            y=F.axis(unit),
            barmode="stack",
            bargap=0,
            showlegend=True,
            margin={"l": 62, "r": 14, "t": 12, "b": 46},
        ),
        summary=f"Share of step time: {summary}.",
        table="iterations",
        span=8,
        height=320,
    )


def _span(low: int, high: int) -> str:
    return f"iteration {human(low, 'count')}" if low == high else f"iterations {human(low, 'count')}–{human(high, 'count')}"


def _hover(
    name: str, spans: list[str], values: npt.NDArray[np.float64], whole: npt.NDArray[np.float64], size: npt.NDArray[np.int64]
) -> list[str]:
    rows = zip(spans, values.tolist(), whole.tolist(), size.tolist(), strict=True)
    return [
        f"<b>{name}</b>, {span}<br>{human(v, 'ns')}{' on average' if n > 1 else ''}, {human(v / w if w else None, 'ratio')}"
        for span, v, w, n in rows
    ]
