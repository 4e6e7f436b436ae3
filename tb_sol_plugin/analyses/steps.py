"""How long each step takes and where its time goes.

The bounds of a step follow the device: a step begins no earlier than its predecessor ends and lasts until the last device
work it launched is done. Its time is split by priority, device work first and then the host, into parts that exclude each
other and add up to the step.
"""

from __future__ import annotations

from typing import Final, Literal

import pandas as pd

from tb_sol_plugin.analyses import analysis
from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics import step_split as P
from tb_sol_plugin.metrics.scope import Scope, scope
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Column, FactsSection, FigureSection, Link, Mark, Notice, Report, Scalar, Sort, make_table
from tb_sol_plugin.model.selection import Query
from tb_sol_plugin.units import human


class StepsQuery(Query, kw_only=True, frozen=True):
    """communication_rule: wide counts every known collective and peer kernel, narrow only nccl, rccl and cross_device_reduce"""

    communication_rule: Literal["wide", "narrow"] = "wide"


WHOLE: Final = "whole trace"
"""The name of the one pseudo-step of a recording without ProfilerStep."""

PARTS: Final = {
    "kernel_ns": ("Kernels", "compute", "kernels that are neither communication nor copies, over all streams and devices"),
    "memcpy_ns": ("Copies", "memcpy", "copies not behind kernels"),
    "memset_ns": ("Memset", "memset", "sets of memory not behind kernels or copies"),
    "communication_ns": ("Communication", "communication", "communication kernels not behind other device work"),
    "runtime_ns": ("Runtime calls", "bar-ink", "runtime and driver calls while the device does nothing"),
    "dataloader_ns": ("DataLoader", "host", "loading of the next batch that nothing above hides"),
    "cpu_exec_ns": ("CPU execution", "line-strong", "operators, annotations and python frames that nothing above hides"),
    "other_ns": ("Other", "idle", "nothing recorded runs"),
}
"""Label, colour and definition of each exclusive part, in order of priority."""

COLUMNS: Final = (
    Column("step", "Step", doc="number in ProfilerStep#N; the whole trace where no step was recorded", show="code"),
    Column("start_ns", "Start", "ns", "since the start of the recording; not before the previous step's end", rank=2),
    Column("duration_ns", "Duration", "ns", "from the start to the last device work launched in the step", show="bar", color="bar-ink"),
    Column("complete", "Complete", doc="false for a last step without device work, or with less than 80 % of the previous step's", rank=2),
    *(
        Column(name, label, "ns", f"{doc}; exclusive, the parts of a row add up to its duration", color=color)
        for name, (label, color, doc) in PARTS.items()
    ),
    Column("device_share", "Device busy", "ratio", "kernels, copies, sets and communication over the duration", show="share"),
    Column("device_events", "Device events", "count", "device events launched inside the step", rank=2),
    Column("host_ns", "Host", "ns", "the step's own length on the host", rank=2),
)
FACTS: Final = {
    "duration_ns": "average step, over the complete steps",
    **{name: f"{doc}; average of the complete steps" for name, (_, _, doc) in PARTS.items()},
    "steps": "steps in the selection; 0 where none was recorded",
    "complete_steps": "those that the average is over",
    "fastest_ns": "shortest complete step",
    "slowest_ns": "longest complete step",
    "spread": "slowest less fastest, over the average",
    "device_share": "average share of a step in which the device works",
}


@analysis(
    title="Steps",
    question="How long is a step, and where does it go?",
    group="Time",
    order=10,
    query=StepsQuery,
    tables={"steps": COLUMNS},
    facts=FACTS,
)
def run(capture: Capture, query: StepsQuery) -> Report:
    where = scope(capture, query)
    frame = P.split_steps(capture, rule=query.communication_rule)
    if where.rows:
        frame = frame.iloc[list(where.rows)].reset_index(drop=True)
    if not len(frame) or int(frame["duration_ns"].sum()) <= 0:
        raise Unavailable("no event with a duration in this recording", hint="record at least one step")
    over = frame[frame["complete"]] if frame["complete"].any() else frame
    means = P.average(over)
    labels = [WHOLE if n < 0 else n for n in frame["step"].tolist()]
    frame = frame.assign(
        step=pd.Series(labels, dtype=object), device_share=_device(frame) / frame["duration_ns"].where(frame["duration_ns"] > 0)
    )
    device_share = sum(means[n] for n in P.CATEGORIES[:4]) / means["duration_ns"] if means["duration_ns"] else None
    of = _of(frame, over)
    total: dict[str, Scalar] = {c.name: None for c in COLUMNS}
    total |= {"step": f"average of {of}", **means, "device_share": device_share, "device_events": round(over["device_events"].mean())}
    total["host_ns"] = round(over["host_ns"].mean())
    marks = {
        str(i): Mark("incomplete", "recorded in part; left out of the average") for i, done in enumerate(frame["complete"]) if not done
    }
    return Report(
        analysis="steps",
        title="Steps",
        headline=_headline(means, of, where),
        notices=_notices(capture, frame),
        sections=[
            _split(means, of),
            _figure(frame),
            _facts(where, over, device_share),
            make_table(
                "steps",
                "Steps",
                frame,
                COLUMNS,
                key="step",
                subtitle=f"{where.label}; exclusive parts by priority, left to right",
                total=total,
                marks={"step": marks} if marks else {},
                sort=Sort("start_ns", False),
                footer="The first row is the average over the complete steps. Kernels outrank copies, copies outrank sets, device work "
                "outranks the host: a part is only what nothing before it covers.",
            ),
        ],
    )


def _device(frame: pd.DataFrame) -> pd.Series[int]:
    return frame[list(P.CATEGORIES[:4])].sum(axis=1)


def _of(frame: pd.DataFrame, over: pd.DataFrame) -> str:
    if (over["step"] == WHOLE).any() or (over["step"] == -1).any():
        return "the whole trace"
    kind = "complete " if over["complete"].all() else "incomplete "
    return f"{len(over)} {kind}step{'' if len(over) == 1 else 's'}"


def _headline(means: dict[str, int], of: str, where: Scope) -> str:
    duration = means["duration_ns"]
    parts = sorted(((means[n], n) for n in PARTS if means[n] > 0), reverse=True)[:3]
    words = {"Other": "nothing recorded", "CPU execution": "CPU execution", "Runtime calls": "runtime calls", "DataLoader": "DataLoader"}
    said = [f"{human(ns / duration, 'ratio')} {words.get(PARTS[n][0], PARTS[n][0].lower())}" for ns, n in parts] if duration else []
    subject = "The whole trace takes" if not where.steps else "A step takes"
    average = f", average of {of}" if len(where.steps) > 1 else ""
    return f"{subject} **{human(duration, 'ns')}**{average}: {', '.join(said)}." if said else f"{subject} {human(duration, 'ns')}."


def _notices(capture: Capture, frame: pd.DataFrame) -> list[Notice]:
    out: list[Notice] = []
    if capture.facts.pseudo_step:
        out.append(
            Notice(
                "No ProfilerStep in this recording: the whole trace counts as one step. Call `prof.step()` after every iteration.", "info"
            )
        )
    cut = frame.loc[~frame["complete"], "step"].tolist()
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
    return FactsSection(
        id="average",
        title="Where a step goes",
        style="split",
        subtitle=f"exclusive parts of {human(duration, 'ns')}; average of {of}",
        values={n: means[n] for n in PARTS},
        units=dict.fromkeys(PARTS, "ns"),
        labels={n: label for n, (label, _, _) in PARTS.items()},
        colors={n: color for n, (_, color, _) in PARTS.items()},
        docs={n: FACTS[n] for n in PARTS},
        notes={n: human(means[n] / duration, "ratio") for n in PARTS} if duration else {},
    )


def _facts(where: Scope, over: pd.DataFrame, device_share: float | None) -> FactsSection:
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
    }
    labels = ("Average step", "Device busy", "Steps", "Complete", "Fastest", "Slowest", "Spread")
    return FactsSection(
        id="facts",
        title="Numbers",
        subtitle=where.label,
        span=4,
        values=values,
        units={n: "ns" if n.endswith("_ns") else "count" if n.endswith("steps") else "ratio" for n in values},
        labels=dict(zip(values, labels, strict=True)),
        docs={n: FACTS[n] for n in values},
    )


def _figure(frame: pd.DataFrame) -> FigureSection:
    divisor, unit = F.time_scale(float(frame["duration_ns"].max()))
    names = [str(n) for n in frame["step"]]
    share = frame["duration_ns"].where(frame["duration_ns"] > 0)
    data: list[F.Plain] = []
    for name, (label, color, _) in PARTS.items():
        if not frame[name].any():
            continue
        marker = F.fill(color)
        if color != "idle":
            hatch: F.Plain = {"shape": ["" if done else "/" for done in frame["complete"]], "size": 6, "solidity": 0.2}
            marker["pattern"] = hatch
        percent = (100 * frame[name] / share).fillna(0.0)
        data.append(
            {
                "type": "bar",
                "name": label,
                "x": names,
                "y": (frame[name].to_numpy() / divisor).tolist(),
                "marker": marker,
                "customdata": [[n, p] for n, p in zip(names, percent.tolist(), strict=True)],
                "hovertemplate": f"<b>{label}</b>, step %{{x}}<br>%{{y:.4~g}} {unit}, %{{customdata[1]:.1f}} %<extra></extra>",
            }
        )
    slowest = frame.iloc[int(frame["duration_ns"].to_numpy().argmax())]
    return FigureSection(
        id="bars",
        title="Steps",
        subtitle="exclusive parts; hatched: incomplete" if not frame["complete"].all() else "exclusive parts",
        span=8,
        height=320,
        table="steps",
        figure=F.figure(data, x=F.axis("step", type="category", gridcolor="rgba(0,0,0,0)"), y=F.axis(unit), barmode="stack", bargap=0.3),
        summary=f"The longest is {'the whole trace' if slowest['step'] == WHOLE else 'step ' + str(slowest['step'])}, "
        f"{human(int(slowest['duration_ns']), 'ns')}.",
    )
