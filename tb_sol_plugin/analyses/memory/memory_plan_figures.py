"""Other layouts at a glance: the fullest stage by tensor and pipeline parallel size, and whether that fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tb_sol_plugin.analyses.memory.memory_plan_query import FACTS
from tb_sol_plugin.analyses.memory.memory_plan_tables import GIB, Plan, Verdict
from tb_sol_plugin.cost.transformer.memory import Stage
from tb_sol_plugin.cost.transformer.query import Spread
from tb_sol_plugin.metrics.memory.labels import gib as gib_of
from tb_sol_plugin.model import figure as fig
from tb_sol_plugin.model.figure import light
from tb_sol_plugin.model.report import FactsSection, FigureSection, make_facts
from tb_sol_plugin.units import digits, human, number, scale_of

# -- What each stage holds, as stacked bars beside the memory of the device ------------------------------------------


PARTS: Final = (
    ("parameters", "compute"), ("gradients", "communication"), ("master weights", "conv"), ("optimizer state", "norm"),
    ("activations", "attention"), ("logits", "elementwise"), ("base", "host"),
)  # fmt: skip
"""Name and color of what a stage holds, in the order in which it is stacked."""
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
    title = f"Stage {most.stage}, the fullest" if len(plan.stages) > 1 else "The only stage"
    return make_facts(
        "parts",
        title,
        shown,
        FACTS,
        subtitle=both(total),
        style="split",
        colors={n: token for n, (_, token) in zip(NAMES, PARTS, strict=True) if n in shown},
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


LOOKS: Final[Mapping[Verdict | None, tuple[str, str]]] = {
    "fits": ("accent-bg", "accent"), "tight": ("surface", "warn"), "too large": ("sunken", "error"), None: ("sunken", "ink-2"),
}  # fmt: skip
"""Fill, and outline and ink, of a square by its verdict."""
WORDS: Final[Mapping[Verdict | None, str]] = {"fits": "fits", "tight": "fits tightly", "too large": "too large", None: "memory unknown"}


def glance(plan: Plan, found: Sequence[tuple[Spread, Verdict | None]], keys: Sequence[str]) -> FigureSection:
    """Squares by TP and PP, of the present micro-batch and recomputation. found: layouts with their verdicts; keys: of their rows."""
    now = plan.layout
    own = [(one, fits, key) for (one, fits), key in zip(found, keys, strict=True)
           if (one.micro_batch, one.recompute) == (now.micro_batch, now.recompute)]  # fmt: skip
    least = min((one.largest_bytes for one, _, _ in own), default=1)
    factor, unit = scale_of(float(least), "B")
    data: list[fig.Plain] = []
    for verdict, (ground, ink) in LOOKS.items():
        part = [(one, key) for one, fits, key in own if fits == verdict]
        if not part:
            continue
        here = [(one.tp, one.pp) == (now.tp, now.pp) for one, _ in part]
        shown = [number(one.largest_bytes / factor, digits(one.largest_bytes / factor)) for one, _ in part]
        data.append({
            "type": "scatter", "mode": "markers+text", "name": WORDS[verdict], "x": [str(one.pp) for one, _ in part],
            "y": [str(one.tp) for one, _ in part], "customdata": [key for _, key in part], "text": shown,
            "textfont": {"size": 11.5, "color": light(ink)},
            "marker": {"symbol": "square", "size": 40, "color": light(ground), "line": {
                "width": [3.0 if h else 1.0 for h in here], "color": light(ink),
            }},
            "hoverinfo": "text",
            "hovertext": [
                f"<b>TP {one.tp}, PP {one.pp}, DP {one.dp}</b>{', as now' if h else ''}<br>{both(one.largest_bytes)}, {WORDS[verdict]}"
                for (one, _), h in zip(part, here, strict=True)
            ],
        })  # fmt: skip
    tp, pp = ([str(n) for n in sorted({getattr(one, name) for one, _, _ in own})] for name in ("tp", "pp"))
    x = fig.axis("pipeline stages", type="category", categoryorder="array", categoryarray=pp, range=[-0.6, len(pp) - 0.4], showgrid=False)
    y = fig.axis("tensor parallel", type="category", categoryorder="array", categoryarray=tp, range=[-0.6, len(tp) - 0.4], showgrid=False)
    devices = f"{human(now.world, 'count')} device{'s' * (now.world != 1)}"
    fitting = sum(fits in ("fits", "tight") for _, fits, _ in own)
    return FigureSection(
        id="glance",
        title=f"Fullest stage in {unit}, by layout",
        subtitle=f"{devices}, micro-batch {now.micro_batch}, {now.recompute}; red: too large",
        figure=fig.figure(data, x=x, y=y, margin={"l": 58, "r": 14, "t": 10, "b": 46}),
        summary=f"{fitting} of {len(own)} ways to spread the model over {devices} fit {plan.device.name}.",
        table="layouts",
        span=5,
        height=max(210, 90 + 46 * len(tp)),
    )
