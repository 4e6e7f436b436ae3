"""What each stage holds, as stacked bars beside the memory of the device."""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.analyses.memory_plan.plan import GIB, Plan
from tb_sol_plugin.analyses.memory_plan.query import FACTS
from tb_sol_plugin.cost.transformer.memory import Stage
from tb_sol_plugin.metrics.memory.labels import gib as gib_of
from tb_sol_plugin.model import figure as fig
from tb_sol_plugin.model.figure import light
from tb_sol_plugin.model.report import FactsSection, FigureSection
from tb_sol_plugin.units import human, number

PARTS: Final = (
    ("parameters", "compute"), ("gradients", "communication"), ("master weights", "conv"), ("optimizer state", "norm"),
    ("activations", "attention"), ("logits", "elementwise"), ("base", "host"),
)  # fmt: skip
"""Name and colour of what a stage holds, in the order in which it is stacked."""
NAMES: Final = (
    "largest_parameter_bytes", "largest_gradient_bytes", "largest_master_bytes", "largest_optimizer_bytes", "largest_activation_bytes",
    "largest_logits_bytes", "base_bytes",
)  # fmt: skip
"""The same as facts of the fullest stage."""
MOST: Final = 32
"""Stages drawn, at most."""


def parts(stage: Stage, base: int) -> tuple[int, ...]:
    """Bytes of each of `PARTS`."""
    return (
        stage.parameter_bytes, stage.gradient_bytes + stage.main_gradient_bytes, stage.master_bytes, stage.optimizer_bytes,
        stage.activation_bytes, stage.logits_bytes, base,
    )  # fmt: skip


def bars(plan: Plan) -> FigureSection:
    """One bar per stage; the device's memory is a line."""
    shown = plan.stages[:MOST]
    names = [f"stage {s.stage}" for s in shown]
    values = [parts(s, plan.base.counted) for s in shown]
    totals = [sum(v) for v in values]
    longest = max(*totals, plan.device.memory or 0)
    data: list[fig.Plain] = []
    for i, (label, token) in enumerate(PARTS):
        sizes = [v[i] for v in values]
        if not any(sizes):
            continue
        data.append({
            "type": "bar", "orientation": "h", "name": label, "y": names, "x": [b / 1e9 for b in sizes], "marker": fig.fill(token),
            "customdata": [s.stage for s in shown], "hoverinfo": "text",
            "hovertext": [f"<b>{n}</b><br>{label}: {both(b)}<br>in all: {both(t)}" for n, b, t in zip(names, sizes, totals, strict=True)],
        })  # fmt: skip
    data.append({
        "type": "scatter", "mode": "text", "y": names, "x": [t / 1e9 for t in totals], "text": [f"  {human(t, 'B')}" for t in totals],
        "textposition": "middle right", "textfont": {"size": 11.5, "color": light("ink-2")}, "hoverinfo": "skip", "cliponaxis": False,
    })  # fmt: skip
    shapes, notes = _line(plan)
    left = f"; the first {MOST} of {len(plan.stages)} stages" if len(plan.stages) > MOST else ""
    x = fig.axis("GB", range=[0, longest / 1e9 * 1.16], rangemode="tozero")
    y = fig.axis(type="category", autorange="reversed", showgrid=False, automargin=True)
    largest = plan.largest
    return FigureSection(
        id="bars",
        title="What one rank of each stage holds",
        subtitle=f"expected, by closed form{left}",
        figure=fig.figure(
            data, x=x, y=y, barmode="stack", bargap=0.42, shapes=shapes, annotations=notes, margin={"l": 70, "r": 14, "t": 26, "b": 46}
        ),
        summary=f"Stage {largest.stage} holds most: {both(largest.total_bytes)}.",
        table="stages",
        span=7,
        height=max(210, 100 + 34 * len(shown)),
    )


def split(plan: Plan) -> FactsSection:
    """What the fullest stage holds, part by part: the legend of the bars, with numbers."""
    most = plan.largest
    sizes = dict(zip(NAMES, parts(most, plan.base.counted), strict=True))
    shown = {name: size for name, size in sizes.items() if size}
    total = most.total_bytes + plan.base.counted
    return FactsSection(
        id="parts",
        title=f"Stage {most.stage}, the fullest" if len(plan.stages) > 1 else "The only stage",
        subtitle=both(total),
        style="split",
        values=dict(shown),
        units=dict.fromkeys(shown, "B"),
        labels={n: label[:1].upper() + label[1:] for n, (label, _) in zip(NAMES, PARTS, strict=True) if n in shown},
        colors={n: token for n, (_, token) in zip(NAMES, PARTS, strict=True) if n in shown},
        docs={n: FACTS[n] for n in shown},
    )


def _line(plan: Plan) -> tuple[list[fig.Plain], list[fig.Plain]]:
    """The device's memory across all bars, with its name."""
    if plan.device.memory is None:
        return [], []
    at = plan.device.memory / 1e9
    line: fig.Plain = {
        "type": "line", "xref": "x", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1, "line": {"color": light("ink-2"), "width": 1.6},
    }  # fmt: skip
    text: fig.Plain = {
        "xref": "x", "yref": "paper", "x": at, "y": 1, "yanchor": "bottom", "xanchor": "right", "showarrow": False,
        "text": f"{plan.device.name}: {both(plan.device.memory)}", "font": {"size": 11.5, "color": light("ink-2")},
    }  # fmt: skip
    return [line], [text]


def both(size: int) -> str:
    """`34.2 GB (31.8 GiB)`: GB = 10^9 bytes, GiB = 2^30 bytes; in MiB where that is little: `46.9 MB (44.77 MiB)`."""
    gib = size / GIB
    if abs(gib) < 0.1:
        return f"{human(size, 'B')} ({gib_of(size)})"
    return f"{human(size, 'B')} ({number(gib, 1 if abs(gib) >= 10 else 2)}\u202fGiB)"
