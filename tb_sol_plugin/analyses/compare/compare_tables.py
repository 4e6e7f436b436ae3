"""Tables and the figure of the comparison of two runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.analyses.compare.compare_tree_tables import FACTS as TREE_FACTS
from tb_sol_plugin.metrics.compare.causes import Cause, Hidden
from tb_sol_plugin.metrics.compare.differences import (
    BASES,
    BUSY,
    OTHERS,
    PATH,
    RESIDUE,
    SLOW,
    STEP,
    Bar,
    MetricChange,
    Rows,
    Side,
    Waterfall,
)
from tb_sol_plugin.metrics.compare.samples import METRICS as KNOWN
from tb_sol_plugin.metrics.compare.samples import text_of
from tb_sol_plugin.metrics.critical.parts import PARTS as ON_PATH
from tb_sol_plugin.metrics.report.settings import named
from tb_sol_plugin.metrics.time import breakdown as P
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.report import (
    Column,
    Fact,
    FactsSection,
    FigureSection,
    Link,
    Mark,
    Scalar,
    Sort,
    TableSection,
    TreeSpec,
    make_facts,
    make_table,
)
from tb_sol_plugin.tables.arrays import Floats
from tb_sol_plugin.units import how_many, human, signed, signed_percent

SAYS_NOTHING: Final = ("steps recorded",)
FEW: Final = "fewer than 5 steps on a side"
NOT_THERE: Final = "only on one side"
PARTS: Final = {
    SLOW: ("Slow steps", "ink-3"), STEP: ("Step", "bar-ink"), BUSY[0]: ("Device busy", "compute"), BUSY[1]: ("Rest of the step", "ink-3"),
} | {n: (label, color) for n, (label, color, _) in P.PARTS.items()} | {f"{PATH}{n}": part[:2] for n, part in ON_PATH.items()}
"""Label and color of a bar."""
BELOW: Final = {OTHERS: "all others", RESIDUE: "what these do not add up to"}

METRICS: Final = (
    Column("metric", "Metric", doc="what is compared, per step", show="text"),
    Column("change", "Change", "ratio", "median of B over that of A, less one", missing="0 in A"),
    Column("low", "From", "ratio", "lower end of the 95 % interval of the change", missing=FEW, rank=2),
    Column("high", "To", "ratio", "upper end of the 95 % interval of the change", missing=FEW, rank=2),
    Column("verdict", "Verdict", doc="worse or better: the interval is without 0, or there was none before; same: within 1 %; "
           "unknown: too few steps", show="badge"),
    Column("outcome", "In words", doc="slower, faster, more, less, no change; no change shown: within the noise", show="text", rank=3),
    Column("a_text", "A", doc="median of A", show="text"),
    Column("b_text", "B", doc="median of B", show="text"),
    Column("detectable", "Detectable", "ratio", "the least change that these steps could have shown", missing=FEW, rank=2),
    Column("a", "A, number", doc="median of A, in ns, bytes or a count", rank=3),
    Column("b", "B, number", doc="median of B, in ns, bytes or a count", rank=3),
    Column("name", "Id", doc="name for `tb-sol check --metric`", show="code", rank=3),
)  # fmt: skip
CAUSES: Final = (
    Column("cause", "Cause", doc="what changed, where and by how much", show="text"),
    Column("delta_ns", "Difference", "ns", "of the mean step, B less A"),
    Column("share", "Of the change", "ratio", "part of the difference of the mean step; above 100 % where others go the other way"),
    Column("kind", "Kind", doc="what sort of change it is", show="badge"),
    Column("name", "Of", doc="operator, kernel or part of the step", show="code", rank=3),
)
WATERFALL: Final = (
    Column("bar", "Part", doc="a part of the step; below it the rows that it consists of", show="tree"),
    Column("delta_ns", "Difference", "ns", "of the mean step, B less A; the parts add up to it"),
    Column("share", "Of the step", "ratio", "over the mean step of A"),
    Column("low_ns", "From", "ns", "lower end of the 95 % interval", missing=FEW, rank=2),
    Column("high_ns", "To", "ns", "upper end of the 95 % interval", missing=FEW, rank=2),
    Column("because", "Meaning", doc="what the part is, where its name does not say it", show="text", rank=2),
    Column("id", "Id", doc="of the row", rank=3),
    Column("parent", "Parent", doc="id of the part that it is a part of", rank=3),
)
ROWS: Final = (
    Column("name", "Name", doc="matched by its name", show="code"),
    Column("delta_ns", "Difference", "ns", "time per step, B less A"),
    Column("delta_pct", "Of it", "ratio", "difference over the time of A", missing=NOT_THERE),
    Column("verdict", "Verdict", doc="worse, better: at most 5 % of these are chance; same: below a thousandth of the step", show="badge"),
    Column("match", "In", doc="same: on both sides; renamed: spelled nearly alike and called as often, a guess", show="badge"),
    Column("time_a", "A", "ns", "time per step of A", missing=NOT_THERE),
    Column("time_b", "B", "ns", "time per step of B", missing=NOT_THERE),
    Column("calls_a", "Calls A", "", "calls per step of A", missing=NOT_THERE),
    Column("calls_b", "Calls B", "", "calls per step of B", missing=NOT_THERE),
    Column("calls_effect_ns", "By calls", "ns", "what more or fewer calls of the mean length take", rank=2),
    Column("work_effect_ns", "By work", "ns", "what more or less work per call takes at A's speed; 0 where no cost model knows it", rank=2),
    Column("speed_effect_ns", "By speed", "ns", "what longer or shorter calls take; with the two before it is the difference", rank=2),
    Column("low_ns", "From", "ns", "lower end of the 95 % interval of the difference", missing=FEW, rank=3),
    Column("high_ns", "To", "ns", "upper end of the 95 % interval of the difference", missing=FEW, rank=3),
    Column("was", "Before", doc="name in A of a row that has another one in B", show="code", rank=3),
    Column("of", "Kind", doc="kind of work of a kernel", show="text", rank=3),
    Column("abs_delta_ns", "Size of it", "ns", "size of the difference, whatever its sign", rank=3),
)  # fmt: skip
HIDDEN: Final = (
    Column("name", "What", doc="part of the step, or the row that changed most in it", show="code"),
    Column("delta_ns", "Difference", "ns", "per step, B less A"),
    Column("because", "Why the step does not show it", doc="it cancels with others, or runs behind other work", show="text"),
)
FACTS: Final = (
    Fact("outcome", "A step is", "", "slower, faster, no change, no change shown (within the noise), or too few steps to tell"),
    Fact("change", "Step", "ratio", "median step of B over that of A, less one"),
    Fact("low", "", "ratio", "lower end of its 95 % interval"),
    Fact("high", "", "ratio", "upper end of its 95 % interval"),
    Fact("detectable", "Detectable", "ratio", "the least change of the step that these steps could have shown"),
    Fact("verdict", "Verdict", "", "worse, better, same, inconclusive, or unknown with too few steps"),
    Fact("step_ns_a", "", "ns", "median step of A"),
    Fact("step_ns_b", "", "ns", "median step of B"),
    Fact("samples_a", "Steps", "count", "complete steps of A that are compared"),
    Fact("samples_b", "Steps there", "count", "complete steps of B that are compared"),
    Fact("device_busy_change", "Device busy", "ratio", "change of the time in which the device works"),
    Fact("idle_change", "Device idle", "ratio", "change of the rest of the step"),
    Fact("launches_change", "Device events", "ratio", "change of the number of kernels, copies and sets of a step"),
)  # fmt: skip


def how_many_steps(side: Side) -> str:
    """Returns `12 steps`."""
    return how_many(sum(len(run.steps) for run in side.runs), "step")


def facts(a: Side, b: Side, metrics: Sequence[MetricChange], more: Mapping[str, Scalar]) -> FactsSection:
    """Builds the tiles: how the step, the device's time and the number of its events changed. more: facts that no tile shows."""
    found = {m.name: m for m in metrics}
    step = found["step_time"]
    change = step.change
    values: dict[str, Scalar] = {
        "outcome": step.outcome, "change": change.change, "device_busy_change": None, "idle_change": None, "launches_change": None,
        "detectable": change.detectable if min(change.samples) >= 5 else None, "verdict": step.verdict, "samples_a": change.samples[0],
        "samples_b": change.samples[1], "low": change.low, "high": change.high, "step_ns_a": _whole(change.a),
        "step_ns_b": _whole(change.b),
    }  # fmt: skip
    notes = {}
    if change.low is not None and change.high is not None and step.verdict != "unknown":
        notes["outcome"] = f"95 % interval {signed_percent(change.low)} to {signed_percent(change.high)}"
    for metric, fact in (("step_time", "change"), ("device_busy", "device_busy_change"), ("idle", "idle_change"),
                         ("launches", "launches_change")):  # fmt: skip
        one = found.get(metric)
        if one is not None:
            values[fact] = one.change.change
            if one.change.a is not None and one.change.b is not None:
                notes[fact] = f"{text_of(one.change.a, one.unit)} → {text_of(one.change.b, one.unit)}"
    values |= more
    tiles = "outcome", "change", "device_busy_change", "idle_change", "launches_change", "detectable"
    shown = [n for n in tiles if values[n] is not None]
    return make_facts(
        "facts", "Difference", values, (*FACTS, *TREE_FACTS), style="tiles", notes=notes, hidden=[n for n in values if n not in shown],
        subtitle=f"{b.name} less {a.name}",
    )  # fmt: skip


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def metrics_table(a: Side, b: Side, metrics: Sequence[MetricChange]) -> TableSection:
    """Builds the metrics of both sides."""
    known = {m.name: m.change for m in metrics}
    few = {m.name for m in metrics if m.verdict == "unknown"}
    frame = pd.DataFrame({
        "metric": [KNOWN[m.name].label for m in metrics], "change": [m.change.change for m in metrics],
        "low": [None if m.name in few else m.change.low for m in metrics],
        "high": [None if m.name in few else m.change.high for m in metrics],
        "verdict": [m.verdict for m in metrics], "outcome": [m.outcome for m in metrics],
        "a_text": [_text(m.change.a, m.unit) for m in metrics],
        "b_text": [_text(m.change.b, m.unit) for m in metrics],
        "detectable": [None if m.name in few else known[m.name].detectable for m in metrics], "a": [m.change.a for m in metrics],
        "b": [m.change.b for m in metrics], "name": [m.name for m in metrics],
    }, dtype=object)  # fmt: skip
    return make_table(
        "metrics", "Numbers of a step", frame, named(METRICS, (a.name, b.name)), key="name", span=12,
        subtitle=f"medians over {how_many_steps(a)} of {a.name} and {how_many_steps(b)} of {b.name}",
        footer="Counts and bytes are nearly free of noise and are compared as they are.",
    )  # fmt: skip


def _text(value: float | None, unit: str) -> str | None:
    return None if value is None else text_of(value, unit)


def causes_table(causes: Sequence[Cause], found: Waterfall) -> TableSection:
    """Builds the causes, the largest first."""
    frame = pd.DataFrame({
        "cause": [c.plain for c in causes], "delta_ns": [c.delta_ns for c in causes],
        "share": [c.share for c in causes],
        "kind": [c.kind.replace("_", " ") for c in causes], "name": [c.name for c in causes],
    })  # fmt: skip
    explained = sum(c.share for c in causes)
    total = signed(found.b_ns - found.a_ns, "ns")
    spread = "" if explained >= 0.5 else " They explain less than half of it: the change is spread over many rows."
    links = {str(i): Link(c.analysis, {"find": c.name} if c.analysis in ("operators", "kernels") else {}) for i, c in enumerate(causes)}
    return make_table(
        "causes", "Causes", frame, CAUSES, key="name", row_links=links,
        subtitle="parts of the step that changed the way the step did, the largest first",
        footer=f"The mean step changed by {total}.{spread}",
    )  # fmt: skip


def hidden_table(hidden: Sequence[Hidden]) -> TableSection:
    """Builds what changed without changing the step."""
    frame = pd.DataFrame({
        "name": [PARTS[h.name][0] if h.name in PARTS else h.name for h in hidden], "delta_ns": [h.delta_ns for h in hidden],
        "because": [h.because for h in hidden],
    })  # fmt: skip
    return make_table(
        "hidden", "Hidden changes", frame, HIDDEN, key="name", subtitle="a hundredth of the step or more, which the step does not show",
    )  # fmt: skip


def _lines(found: Waterfall) -> list[tuple[str, str, Bar]]:
    """Returns (id, parent, bar) of every bar and of what it consists of, down to the last level."""

    def below(above: str, bars: Sequence[Bar]) -> list[tuple[str, str, Bar]]:
        out = []
        for i, bar in enumerate(bars):
            key = f"{above}/{i}" if above else bar.name
            out += [(key, above, bar), *below(key, bar.parts)]
        return out

    return below("", found.bars)


def label(bar: Bar) -> str:
    """Returns what a bar is called."""
    return PARTS[bar.name][0] if bar.name in PARTS else BELOW.get(bar.name, bar.name)


def waterfall_table(a: Side, b: Side, found: Waterfall) -> TableSection:
    """Builds the difference of the mean step in parts that add up to it."""
    lines = _lines(found)
    total = found.b_ns - found.a_ns
    frame = pd.DataFrame({
        "bar": [label(bar) for _, _, bar in lines], "delta_ns": [bar.delta_ns for _, _, bar in lines],
        "share": [bar.delta_ns / found.a_ns if found.a_ns else None for _, _, bar in lines],
        "low_ns": [_whole(bar.low_ns) for _, _, bar in lines], "high_ns": [_whole(bar.high_ns) for _, _, bar in lines],
        "because": [bar.because for _, _, bar in lines], "id": [key for key, _, _ in lines],
        "parent": [parent or None for _, parent, _ in lines],
    }, dtype=object)  # fmt: skip
    return make_table(
        "waterfall", f"Difference of the mean step, {BASES[found.basis]}", frame, WATERFALL, key="id", tree=TreeSpec(),
        subtitle=f"from {human(found.a_ns, 'ns')} of {a.name} to {human(found.b_ns, 'ns')} of {b.name}; the parts add up to it exactly",
        total={"bar": "mean step", "delta_ns": total, "share": total / found.a_ns if found.a_ns else None},
    )  # fmt: skip


def rows_table(a: Side, b: Side, found: Rows | None, by: str) -> TableSection:
    """Builds the rows of a grouping on both sides, those that changed most first."""
    title = {"copy": "Copies by direction", "kind": "Kinds of kernels"}.get(by, f"{by.capitalize()}s")
    columns = named(ROWS, (a.name, b.name))
    if found is None:
        frame = pd.DataFrame(columns=[c.name for c in ROWS])
        return make_table("rows", title, frame, columns, key="name", empty=f"Not both recordings have rows by {by}.")
    device = found.time == "device"
    before, after = (found.device_a, found.device_b) if device else (found.host_a, found.host_b)
    sides = {"same": "same", "renamed": "renamed", "only_a": f"only {a.name}", "only_b": f"only {b.name}"}
    frame = pd.DataFrame({
        "name": found.name, "delta_ns": found.delta_ns, "delta_pct": _ratio(found.delta_ns.astype(np.float64), before),
        "verdict": found.verdict, "match": [sides[m] for m in found.match],
        "time_a": _where(found, before, "only_b"), "time_b": _where(found, after, "only_a"),
        "calls_a": _where(found, found.calls_a, "only_b"), "calls_b": _where(found, found.calls_b, "only_a"),
        "calls_effect_ns": found.calls_effect_ns, "work_effect_ns": found.work_effect_ns, "speed_effect_ns": found.speed_effect_ns,
        "was": [w or None for w in found.was],
        "low_ns": found.low_ns, "high_ns": found.high_ns, "of": found.of, "abs_delta_ns": np.abs(found.delta_ns),
    })  # fmt: skip
    cut = "" if not any(found.cut) else " The smallest are added up in one row."
    what = "time on the device" if device else "time on the host, without what is inside"
    marks = {"name": {str(i): Mark("partial", "many small rows together") for i, n in enumerate(found.name) if n.startswith("(smaller")}}
    return make_table(
        "rows", title, frame, columns, key="name", sort=Sort("abs_delta_ns"), subtitle=f"{what}, per step",
        filters=["verdict", "match"], marks={k: v for k, v in marks.items() if v},
        footer=f"By calls, by work and by speed add up to the difference.{cut}",
    )  # fmt: skip


def _ratio(delta: Floats, of: Floats) -> Floats:
    return np.asarray(np.divide(delta, of, out=np.full(len(delta), np.nan), where=of > 0), np.float64)


def _where(found: Rows, values: Floats, unless: str) -> Floats:
    """Returns values, NaN in rows that only the other side has."""
    return np.asarray(np.where(np.array([m == unless for m in found.match], np.bool_), np.nan, values), np.float64)


# -- The figure -------------------------------------------------------------------------------------------------------


ROW_PX: Final = 34
CLOSE: Final = 0.25
"""Differences below this part of the step are drawn on an axis that begins near them."""


def waterfall_figure(a: Side, b: Side, found: Waterfall) -> FigureSection:
    """Draws the way from A's mean step to B's: a bar for each part, beginning where the one above ends."""
    scale, unit = F.time_scale(float(max(found.a_ns, found.b_ns, 1)))
    bars = sorted((bar for bar in found.bars if bar.delta_ns), key=lambda bar: -abs(bar.delta_ns))
    names = [F.escape(F.cut(a.name, 28)), *(PARTS[bar.name][0] for bar in bars), F.escape(F.cut(b.name, 28))]
    rows = list(range(len(names)))
    data = [_bar(0, 0.0, found.a_ns, scale, "bar-ink", f"<b>{names[0]}</b><br>mean step {human(found.a_ns, 'ns')}", SLOW)]
    notes = [_note(0, found.a_ns / scale, f"<b>{human(found.a_ns, 'ns')}</b>")]
    at = found.a_ns
    for row, bar in enumerate(bars, 1):
        low = min(at, at + bar.delta_ns)
        text = f"<b>{PARTS[bar.name][0]}</b><br>{signed(bar.delta_ns, 'ns')} per step"
        data.append(_bar(row, low / scale, abs(bar.delta_ns), scale, PARTS[bar.name][1], text, bar.name))
        notes.append(_note(row, (low + abs(bar.delta_ns)) / scale, f"<b>{signed(bar.delta_ns, 'ns')}</b>"))
        at += bar.delta_ns
    data.append(_bar(rows[-1], 0.0, found.b_ns, scale, "bar-ink", f"<b>{names[-1]}</b><br>mean step {human(found.b_ns, 'ns')}", SLOW))
    notes.append(_note(rows[-1], found.b_ns / scale, f"<b>{human(found.b_ns, 'ns')}</b>"))
    if found.a_ns:  # at the right edge, and last: where the figure is narrow there is no room for them
        at_edge: F.Plain = {"xref": "paper", "xanchor": "right", "xshift": 0}
        notes += [_note(row, 1, signed_percent(bar.delta_ns / found.a_ns)) | at_edge for row, bar in enumerate(bars, 1)]
    way = np.cumsum([found.a_ns, *(bar.delta_ns for bar in bars)])
    least, reach = float(way.min()) / scale, max(float(way.max()), 1.0) / scale
    near = reach - least < CLOSE * reach and reach > least  # else the differences would be too small to see
    begin = max(0.0, least - (reach - least)) if near else 0.0
    figure = F.figure(
        data, x=F.axis(f"mean step, {unit}", range=[begin, begin + 1.5 * (reach - begin)]),
        y=F.axis("", tickvals=rows, ticktext=[f"<b>{n}</b>" if i in (0, rows[-1]) else n for i, n in enumerate(names)], showgrid=False,
                 autorange="reversed", tickfont={"size": 12, "color": F.light("ink")}),
        barmode="overlay", annotations=notes, meta={"labels": "by importance"}, margin={"l": 150, "r": 14, "t": 8, "b": 46},
    )  # fmt: skip
    most = f"; most of it {PARTS[bars[0].name][0]}, {signed(bars[0].delta_ns, 'ns')}" if bars else ""
    return FigureSection(
        id="falls", title=f"From {a.name} to {b.name}, {BASES[found.basis]}", figure=figure, table="waterfall",
        height=70 + ROW_PX * max(len(rows), 3),
        subtitle=f"each bar is what a part of the step takes more or less; they add up{'; the axis does not begin at 0' if begin else ''}",
        summary=f"The mean step goes from {human(found.a_ns, 'ns')} to {human(found.b_ns, 'ns')}{most}.",
    )  # fmt: skip


def _bar(row: int, left: float, length_ns: int, scale: float, color: str, hover: str, key: str) -> F.Plain:
    return {
        "type": "bar", "orientation": "h", "y": [row], "x": [length_ns / scale], "base": [left], "width": 0.62, "marker": F.fill(color),
        "customdata": [key], "hoverinfo": "text", "hovertext": [hover],
    }  # fmt: skip


def _note(row: int, x: float, text: str) -> F.Plain:
    return {
        "x": x, "y": row, "text": text, "showarrow": False, "xanchor": "left", "yanchor": "middle", "xshift": 6,
        "font": {"size": 12, "color": F.light("ink-2")},
    }  # fmt: skip
