"""Other layouts at a glance: the fullest stage by tensor and pipeline parallel size, and whether that fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tb_sol_plugin.analyses.memory_plan.figure import both
from tb_sol_plugin.analyses.memory_plan.plan import Plan, Verdict
from tb_sol_plugin.cost.transformer.search import Spread
from tb_sol_plugin.model import figure as fig
from tb_sol_plugin.model.figure import light
from tb_sol_plugin.model.report import FigureSection
from tb_sol_plugin.units import digits, human, number, scale_of

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
