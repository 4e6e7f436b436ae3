"""How long each step takes and where its time goes.

The bounds of a step follow the device: a step begins no earlier than its predecessor ends and lasts until the last device
work it launched is done. A recording that begins in the middle of a step holds the rest of its work: the first recorded step
begins when that ends, and it counts in no step. Time is split by priority, device work first and then the host, into parts that
exclude each other and add up to the step.

Of a SOL capture these are the sampled steps, on the host and beside their limits: it holds no events to split them by.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from msgspec.structs import replace

from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics.report.notes import edge_notices
from tb_sol_plugin.metrics.time import breakdown as P
from tb_sol_plugin.metrics.time.scope import Scope, before_steps, is_capture, is_profile, is_uncounted, scope
from tb_sol_plugin.metrics.work.columns import MODELED, NO_MODEL, ranked
from tb_sol_plugin.metrics.work.step_limits import LIMITS, StepLimits
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import (
    Column,
    Fact,
    FactsSection,
    FigureSection,
    Link,
    Mark,
    Notice,
    OnTimeline,
    Report,
    Scalar,
    Sort,
    make_facts,
    make_table,
)
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.series import thinned
from tb_sol_plugin.tables.table import as_table, frame_of
from tb_sol_plugin.units import capitalized, human, side_by_side

NOTHING: Final = ("no event with a duration in this recording", "record at least one step")


class StepsQuery(Query, kw_only=True, frozen=True):
    """communication_rule: wide counts every known collective and peer kernel, narrow only nccl, rccl and cross_device_reduce"""

    communication_rule: Literal["wide", "narrow"] = "wide"


WHOLE: Final = "whole trace"
"""The name of the one pseudo-step of a recording without ProfilerStep."""

MAIN: Final = ("kernel_ns", "memcpy_ns", "communication_ns", "dataloader_ns", "cpu_exec_ns")
"""Parts that are shown at once; the others where there is room."""
NO_EVENTS: Final = "a SOL capture has no events to derive it from"
MFU: Final = "no matrix work, or no peak for its type"
COLUMNS: Final = (
    Column("step", "Step", doc="number in ProfilerStep#N; the whole trace where no step was recorded", show="code"),
    Column("start_ns", "Start", "ns", "since the start of the recording; not before earlier work ends", rank=2),
    Column("duration_ns", "Duration", "ns", "from the start to the last device work launched in the step", show="bar", color="bar-ink"),
    Column("complete", "Complete", doc="false for a last step without device work, or with less than 80 % of the previous step's", rank=2),
    Column("sol_ns", "Limit", "ns", "least time of the modeled work that the step launched, on this device", missing=NO_MODEL),
    Column("sol_ratio", "Speed of light", "ratio", "limit over the duration", show="efficiency", missing=NO_MODEL),
    Column("device_share", "Device busy", "ratio", "kernels, copies, sets and communication over the duration", show="share"),
    *(
        Column(
            name, label, "ns", f"{doc}; exclusive, the parts of a row add up to its duration", color=color, rank=1 if name in MAIN else 2)
        for name, (label, color, doc) in P.PARTS.items()
    ),
    Column(
        "mfu", "MFU", "ratio", "matrix work over duration times dense peak, without work that is done again", show="share", rank=2,
        missing=MFU,
    ),
    Column("hfu", "HFU", "ratio", "the same with all work that ran", show="share", rank=3, missing=MFU),
    Column(
        "bandwidth_utilisation", "Bandwidth", "ratio", "least memory traffic over duration times bandwidth", show="share", rank=3,
        missing=NO_MODEL,
    ),
    MODELED,
    Column("device_events", "Device events", "count", "device events launched inside the step", rank=2),
    Column("host_ns", "Host", "ns", "the step's own length on the host", rank=2),
)  # fmt: skip
FACTS: Final = (
    Fact("duration_ns", "Average step", "ns", "average step, over the complete steps"),
    *(Fact(name, label, "ns", f"{doc}; average of the complete steps", color) for name, (label, color, doc) in P.PARTS.items()),
    Fact("steps", "Steps", "count", "steps in the selection; 0 where none was recorded"),
    Fact("complete_steps", "Complete", "count", "those that the average is over"),
    Fact("fastest_ns", "Fastest", "ns", "shortest complete step"),
    Fact("slowest_ns", "Slowest", "ns", "longest complete step"),
    Fact("spread", "Spread", "ratio", "slowest less fastest, over the average"),
    Fact("device_share", "Device busy", "ratio", "average share of a step in which the device works"),
    Fact("before_ns", "Launched before", "ns", "time of device work launched before the first step: in no step and in no average"),
    Fact("before_events", "Events before", "count", "device events launched before the first step"),
    Fact("sol_ns", "Limit", "ns", "least time of the modeled work of a step, average of the complete steps"),
    Fact("sol_ratio", "Speed of light", "ratio", "limits over durations of the complete steps"),
    Fact("mfu", "MFU", "ratio", "model FLOP utilization over the complete steps: matrix work over time times dense peak, without "
         "work that is done again: of fused attention, twice the forward for the backward pass"),
    Fact("hfu", "HFU", "ratio", "the same with all work that ran, recomputed forward calls and scores too"),
    Fact("bandwidth_utilisation", "Bandwidth utilization", "ratio", "least memory traffic over time times bandwidth, over the complete "
         "steps"),
)  # fmt: skip


@analysis(
    title="Steps",
    question="How long is a step, and where does it go?",
    group="Time",
    order=10,
    requirements=("program",),
    query=StepsQuery,
    tables={"steps": COLUMNS},
    facts=FACTS,
)
def run(capture: Capture, query: StepsQuery) -> Report:
    where = scope(capture, query)
    split = P.split_steps(capture, rule=query.communication_rule)
    chosen = list(where.rows) if where.rows else slice(None)
    columns: dict[str, Any] = {str(name): split[name].to_numpy()[chosen] for name in split.columns}
    length = columns["duration_ns"]
    if int(length.sum()) <= 0:
        because, hint = (capture.missing("steps") or ("", ""))[:2] if is_profile(capture) else NOTHING
        raise Unavailable(because, hint=hint)
    device = np.sum([columns[name] for name in P.CATEGORIES[:4]], axis=0)
    labels = [WHOLE if n < 0 else n for n in columns["step"].tolist()]
    columns |= _against(capture, where, length.tolist(), query.device_limits)
    columns |= {"step": np.array(labels, object), "device_share": device / np.where(length > 0, length, np.nan)}
    frame = as_table(frame_of(columns))
    complete = frame["complete"].to_numpy()
    over = frame if complete.all() or not complete.any() else frame[complete]
    means = P.average(over)
    device_share = sum(means[n] for n in P.CATEGORIES[:4]) / means["duration_ns"] if means["duration_ns"] else None
    of = _of(frame, over)
    total: dict[str, Scalar] = {c.name: None for c in COLUMNS}
    total |= {"step": f"average of {of}", **means, "device_share": device_share, "device_events": round(over["device_events"].mean())}
    total["host_ns"] = round(over["host_ns"].mean())
    limits = _average(capture, over, query.device_limits)
    total |= {name: limits[name] for name in LIMITS}
    marks = {
        str(i): Mark("incomplete", "recorded in part; left out of the average") for i, done in enumerate(complete.tolist()) if not done
    }
    if is_capture(capture):
        return _of_capture(capture, where, frame, over, total, limits, sampled=not is_uncounted(capture))
    return Report(
        analysis="steps",
        title="Steps",
        headline=_headline(means, of, where, limits),
        notices=_notices(capture, frame) + edge_notices(capture, where),
        sections=[
            _split(means, of),
            _figure(frame),
            _facts(where, over, device_share, limits, _before(capture, where)),
            make_table(
                "steps",
                "Steps",
                frame,
                COLUMNS if limits["sol_ns"] is not None else [ranked(c, 3) if c.name in LIMITS else c for c in COLUMNS],
                key="step",
                subtitle=f"{where.label}; exclusive parts by priority, left to right",
                total=total,
                marks={"step": marks} if marks else {},
                sort=Sort("start_ns", False),
                timeline=OnTimeline("step", "start_ns", "duration_ns"),
                footer="Speed of light is the limit over the duration: waiting, copies over a link and communication are not in the limit. "
                "The first row is the average over the complete steps. Kernels outrank copies, copies outrank sets, device work "
                "outranks the host: a part is only what nothing before it covers.",
            ),
        ],
    )


NOT_SPLIT: Final = ("device_share", *P.PARTS, "device_events", "host_ns", "modelled_share")
"""Columns that need events, or say nothing without them."""


def _of_capture(
    capture: Capture, where: Scope, frame: pd.DataFrame, over: pd.DataFrame, total: dict[str, Scalar], limits: dict[str, Scalar],
    *, sampled: bool,
) -> Report:
    """Returns the sampled steps of a SOL capture (all, where none was sampled): their length and their limit, without parts."""
    word = "sampled step" if sampled else "step"
    count = f"{len(over)} {word}{'' if len(over) == 1 else 's'}"
    mean = human(round(float(over["duration_ns"].mean())), "ns")
    every = len(capture.tables["iterations"])
    last = "that were recorded" if every == len(frame) else f"at the end, of {human(every, 'count')} iterations, whose inputs have one size"
    whose = "whose work was counted" if sampled else f"{last}; the work of none was counted"
    text = f"A {word} takes **{mean}**" + (f", average of {count}." if len(over) > 1 else ".")
    if isinstance(limits["sol_ns"], int):
        text += f" Its work could take {human(limits['sol_ns'], 'ns')} at the limits of the device."
    hidden = (*NOT_SPLIT, *(LIMITS if limits["sol_ns"] is None else ()))
    shown = frame.assign(**{name: pd.Series([None] * len(frame), dtype=object, index=frame.index) for name in NOT_SPLIT})
    facts = _facts(where, over, None, limits, {"before_ns": None, "before_events": None})
    facts.labels["complete_steps"] = "Sampled" if sampled else "Recorded"
    facts.hidden.append("steps")
    columns = [replace(ranked(c, 3), missing=NO_EVENTS) if c.name in hidden else c for c in COLUMNS]
    return Report(
        analysis="steps",
        title="Steps",
        headline=text,
        notices=[
            Notice(
                f"These are the steps {whose}, by the clock of the host.", "info", Link("iterations", {}, "All iterations")
            )
        ],
        sections=[
            _limits_figure(frame, word),
            facts,
            make_table(
                "steps",
                "Steps",
                shown,
                columns,
                key="step",
                subtitle=where.label,
                total=total | {"step": f"average of {count}"} | dict.fromkeys(NOT_SPLIT),
                sort=Sort("start_ns", False),
                footer="Speed of light is the limit over the duration: waiting and communication are not in the limit.",
            ),
        ],
    )


MOST_BARS: Final = 1000


def _drawn(frame: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Returns the steps to draw, of many the shortest and longest of each stretch, and words for that."""
    rows = thinned(np.arange(len(frame)), [frame["duration_ns"].to_numpy(dtype=np.int64)], MOST_BARS)
    if len(rows) == len(frame):
        return frame, ""
    return frame.iloc[rows], f"; the shortest and longest of each stretch, {human(len(rows), 'count')} of {human(len(frame), 'count')}"


def _limits_figure(frame: pd.DataFrame, word: str) -> FigureSection:
    """Draws a bar per step of a SOL capture: its limit, and the time above it. word: what such a step is called."""
    frame, left = _drawn(frame)
    time = frame["duration_ns"].to_numpy(dtype=np.float64)
    limit = frame["sol_ns"].to_numpy(dtype=np.float64)
    divisor, unit = F.time_scale(float(time.max()))
    names = [str(n) for n in frame["step"]]
    known = bool(np.isfinite(limit).any())
    least = np.minimum(np.nan_to_num(limit), time)
    parts = (("Limit", "accent", least), ("Above the limit", "bar-ink", time - least)) if known else (("Step", "bar-ink", time),)
    data: list[F.Plain] = [
        {
            "type": "bar",
            "name": label,
            "x": names,
            "y": (values / divisor).tolist(),
            "marker": F.fill(color),
            "customdata": names,
            "hoverinfo": "text",
            "hovertext": [f"<b>{label}</b>, step {n}<br>{human(float(v), 'ns')}" for n, v in zip(names, values.tolist(), strict=True)],
        }
        for label, color, values in parts
    ]
    slowest = int(time.argmax())
    x = F.axis("step", type="category", gridcolor="rgba(0,0,0,0)", nticks=24, tickangle=0)
    return FigureSection(
        id="bars",
        title=f"{capitalized(word)}s",
        subtitle=("limit, and time above it" if known else "no limits are known") + left,
        span=8,
        height=320,
        table="steps",
        figure=F.figure(data, x=x, y=F.axis(unit), barmode="stack", bargap=0.3, showlegend=known),
        summary=f"The longest {word} is {names[slowest]}, {human(round(float(time[slowest])), 'ns')}.",
    )


def _against(capture: Capture, where: Scope, lengths: list[int], limits: str) -> dict[str, pd.Series]:
    """Returns per step the limit of the work it launched, and what follows; of everything recorded where no step was.

    The calls are put in order of their steps once, so that all steps together cost one pass over the calls.
    """
    rows = list(where.rows) or [-1]
    part = StepLimits.of(capture, where, limits)
    found = [part.limits([] if row < 0 else [row], ns) for row, ns in zip(rows, lengths, strict=True)]
    return {name: pd.Series([one[name] for one in found], dtype=object) for name in LIMITS} | {"_row": pd.Series(rows)}


def _average(capture: Capture, over: pd.DataFrame, limits: str) -> dict[str, Scalar]:
    """Returns LIMITS over some steps: sums before ratios; the limit is per step."""
    rows = [int(r) for r in over["_row"]]
    part = StepLimits.of(capture, scope(capture, Query()), limits)
    return part.limits([] if -1 in rows else rows, int(over["duration_ns"].sum()), steps=len(over))


def _of(frame: pd.DataFrame, over: pd.DataFrame) -> str:
    if (over["step"] == WHOLE).any():
        return "the whole trace"
    kind = "complete " if over["complete"].all() else "incomplete "
    return f"{len(over)} {kind}step{'' if len(over) == 1 else 's'}"


def _headline(means: dict[str, int], of: str, where: Scope, limits: dict[str, Scalar]) -> str:
    duration = means["duration_ns"]
    parts = sorted(((means[n], n) for n in P.PARTS if means[n] > 0), reverse=True)[:3]
    words = {"Other": "nothing recorded", "CPU execution": "CPU execution", "Runtime calls": "runtime calls", "DataLoader": "DataLoader"}
    text = [f"{human(ns / duration, 'ratio')} {words.get(P.PARTS[n][0], P.PARTS[n][0].lower())}" for ns, n in parts] if duration else []
    subject = "The whole trace takes" if not where.steps else "A step takes"
    average = f", average of {of}" if len(where.steps) > 1 else ""
    sol, reached = limits["sol_ns"], limits["sol_ratio"]
    takes, could = side_by_side([duration, sol if isinstance(sol, int) else None], "ns")
    first = f"{subject} **{takes}**{average}: {', '.join(text)}." if text else f"{subject} {takes}."
    if not isinstance(sol, int) or not isinstance(reached, float):
        return first
    partly = "" if float(limits["own_share"] or 0) >= 0.8 else "at least "
    return f"{first} Its work could take {partly}{could} at the limits of the device."


def _notices(capture: Capture, frame: pd.DataFrame) -> list[Notice]:
    out: list[Notice] = []
    if capture.facts.pseudo_step:
        out.append(
            Notice(
                "No ProfilerStep in this recording: the whole trace counts as one step. Call `prof.step()` after every iteration.", "info"
            )
        )
    cut = frame["step"].to_numpy()[~frame["complete"].to_numpy()].tolist()
    if cut and len(cut) == len(frame):
        out.append(
            Notice("Every step here is incomplete: the average is over incomplete steps.", "warn", Link("health", {}, "Trace health"))
        )
    elif cut:
        names = ", ".join(str(n) for n in cut[:8])
        verb = "is" if len(cut) == 1 else "are"
        out.append(
            Notice(f"Step {names} {verb} incomplete: shown, and left out of the average.", "info", Link("health", {}, "Trace health"))
        )
    return out


def _split(means: dict[str, int], of: str) -> FactsSection:
    duration = means["duration_ns"]
    return make_facts(
        "average",
        "Where a step goes",
        {n: means[n] for n in P.PARTS},
        FACTS,
        style="split",
        subtitle=f"exclusive parts of {human(duration, 'ns')}; average of {of}",
        notes={n: human(means[n] / duration, "ratio") for n in P.PARTS} if duration else {},
    )


def _before(capture: Capture, where: Scope) -> dict[str, Scalar]:
    """Returns time and number of the device events launched before the first step, None without any."""
    before = before_steps(capture, where)
    found = before.any()
    return {
        "before_ns": iv.length(P.spans_of(capture, before)) if found else None,
        "before_events": int(before.sum()) if found else None,
    }


def _facts(
    where: Scope, over: pd.DataFrame, device_share: float | None, limits: dict[str, Scalar], before: dict[str, Scalar]
) -> FactsSection:
    duration = over["duration_ns"]
    mean = float(duration.mean())
    values: dict[str, Scalar] = {
        "duration_ns": round(mean),
        "device_share": device_share,
        "steps": len(where.steps),
        "complete_steps": int(over["complete"].sum()) if where.steps else 0,
        "fastest_ns": int(duration.min()),
        "slowest_ns": int(duration.max()),
        "spread": (int(duration.max()) - int(duration.min())) / mean if mean else None,
        **{name: limits[name] for name in ("sol_ns", "sol_ratio", "mfu", "hfu", "bandwidth_utilisation")},
        **before,
    }
    hidden = [] if limits["hfu"] != limits["mfu"] else ["hfu"]
    return make_facts(
        "facts",
        "Numbers",
        values,
        FACTS,
        subtitle=where.label,
        span=4,
        hidden=[*hidden, *(n for n in values if values[n] is None)],
    )


def _figure(frame: pd.DataFrame) -> FigureSection:
    frame, left = _drawn(frame)
    divisor, unit = F.time_scale(float(frame["duration_ns"].max()))
    names = [str(n) for n in frame["step"]]
    duration = frame["duration_ns"].to_numpy()
    share = np.where(duration > 0, duration, np.nan)
    data: list[F.Plain] = []
    for name, (label, color, _) in P.PARTS.items():
        time = frame[name].to_numpy()
        if not time.any():
            continue
        marker = F.fill(color)
        if color != "idle":
            hatch: F.Plain = {"shape": ["" if done else "/" for done in frame["complete"]], "size": 6, "solidity": 0.2}
            marker["pattern"] = hatch
        percent = np.nan_to_num(100 * time / share)
        data.append(
            {
                "type": "bar",
                "name": label,
                "x": names,
                "y": (time / divisor).tolist(),
                "marker": marker,
                "customdata": [[n, p] for n, p in zip(names, percent.tolist(), strict=True)],
                "hovertemplate": f"<b>{label}</b>, step %{{x}}<br>%{{y:.4~g}} {unit}, %{{customdata[1]:.1f}} %<extra></extra>",
            }
        )
    slowest = frame.iloc[int(frame["duration_ns"].to_numpy().argmax())]
    return FigureSection(
        id="bars",
        title="Steps",
        subtitle=("exclusive parts; hatched: incomplete" if not frame["complete"].all() else "exclusive parts") + left,
        span=8,
        height=320,
        table="steps",
        figure=F.figure(data, x=F.axis("step", type="category", gridcolor="rgba(0,0,0,0)"), y=F.axis(unit), barmode="stack", bargap=0.3),
        summary=f"The longest is {'the whole trace' if slowest['step'] == WHOLE else 'step ' + str(slowest['step'])}, "
        f"{human(int(slowest['duration_ns']), 'ns')}.",
    )
