"""The figures of the page: the least of each step with its line, and what the allocator holds beside what is in use."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.fragmentation import Fragmentation
from tb_sol_plugin.metrics.memory.leaks import Leak
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.report import FigureSection
from tb_sol_plugin.tables.series import thinned
from tb_sol_plugin.units import human, scale_of

MOST: Final = 1500
"""Points of a curve."""


def steps_figure(found: Leak) -> FigureSection:
    """Least in use per step, the line through it, steps of the warm-up apart."""
    table = found.steps
    x = table["step"].to_numpy()
    least, warm = table["least"].to_numpy(np.float64), table["warm"].to_numpy(dtype=bool)
    factor, unit = scale_of(max(float(least.max()), 1.0), "B")
    number = table["step"].astype(str).tolist()
    data: list[F.Plain] = []
    for name, use, symbol, color in (("least in use", ~warm, "circle", "compute"), ("warm-up", warm, "circle-open", "ink-3")):
        if use.any():
            data.append({
                "type": "scatter", "mode": "markers+lines" if name != "warm-up" and len(x) <= 400 else "markers", "name": name,
                "x": x[use].tolist(), "y": (least[use] / factor).tolist(), "marker": {"color": F.light(color), "symbol": symbol, "size": 6},
                "line": {"color": F.light(color), "width": 1}, "customdata": [n for n, u in zip(number, use.tolist(), strict=True) if u],
                "hovertext": [human(int(v), "B") for v in least[use]],
                "hovertemplate": f"<b>step %{{x}}</b><br>{name} %{{hovertext}}<extra></extra>",
            })  # fmt: skip
    line = table["fitted"].to_numpy(np.float64)
    use = np.isfinite(line)
    if use.any() and found.used > 1 and found.verdict != "few":
        data.append({
            "type": "scatter", "mode": "lines", "name": "line", "x": x[use][[0, -1]].tolist(), "y": (line[use][[0, -1]] / factor).tolist(),
            "line": {"color": F.light("accent"), "width": 1.6, "dash": "4px 3px"}, "hoverinfo": "skip",
        })  # fmt: skip
    judged = found.slope == found.slope and found.verdict != "few"
    said = f"{found.words}: {human(round(found.slope), 'B')} per step" if judged else found.words
    said += f", R² {found.r2:.2f}" if judged and found.r2 == found.r2 else ""
    every = max(-(-int(x[-1] - x[0]) // 10), 1)
    across = F.axis("step", dtick=every, tick0=int(x[0]), tickformat="d")
    return FigureSection(
        id="growth_figure", title="Step by step", subtitle=said, table="steps", height=280,
        figure=F.figure(data, x=across, y=F.axis(f"least in use, {unit}"), showlegend=False),
        summary=f"Least memory in use in {len(x)} steps: {said}.",
    )  # fmt: skip


def gap_figure(found: Fragmentation, curve: Curves, start_ns: int) -> FigureSection:
    """Reserved and in use over time; what lies between them is held and not in use."""
    keep = thinned(found.time_ns, [found.gap, found.reserved, found.allocated], MOST)
    time = (found.time_ns[keep] - start_ns).astype(np.float64)
    ns, unit = F.time_scale(float(time[-1]) if len(time) else 1.0)
    factor, size = scale_of(max(float(found.max_reserved), 1.0), "B")
    said = [human(int(v), "B") for v in found.gap[keep]]

    def line(name: str, level: np.ndarray, color: str, **more: object) -> F.Plain:
        return {
            "type": "scatter", "mode": "lines", "name": name, "x": (time / ns).tolist(), "y": (level[keep] / factor).tolist(),
            "line": {"shape": "hv", "width": 1.4, "color": F.light(color)},
            "hovertext": [f"{name} {human(int(v), 'B')}<br>held and not in use {g}" for v, g in zip(level[keep], said, strict=True)],
            "hovertemplate": "<b>%{x:.4~g} " + unit + "</b><br>%{hovertext}<extra></extra>", **more,
        }  # fmt: skip

    held = line("reserved", found.reserved, "ink-2", fill="tonexty", fillcolor=F.light("idle"))
    marks: list[F.Plain] = [
        {
            "x": (found.peak_ns - start_ns) / ns, "y": found.reserved_at_peak / factor, "text": f"at the peak {human(found.peak_gap, 'B')}",
            "showarrow": True, "arrowhead": 0, "ax": 0, "ay": -22, "arrowcolor": F.light("ink-3"),
            "font": {"size": 11, "color": F.light("ink-2")},
        }
    ]  # fmt: skip
    early = found.time_ns <= found.time_ns[0] + (found.time_ns[-1] - found.time_ns[0]) // 10  # below it stands the name of the line
    marks += [
        {
            "x": 0.004, "xref": "paper", "xanchor": "left", "y": float(level) / factor, "yanchor": side, "text": name,
            "showarrow": False, "font": {"size": 11, "color": F.light(color)},
        }
        for name, level, side, color in (
            ("reserved", found.reserved[0], "bottom", "ink-2"), ("in use", found.allocated[early].min(), "top", "compute"),
        )
    ]  # fmt: skip
    share = f", {human(found.share, 'ratio')} of reserved" if found.share is not None else ""
    return FigureSection(
        id="gap_figure", title="Held and not in use", height=280,
        subtitle=f"{human(found.peak_gap, 'B')} when most is in use{share}; {human(found.worst_gap, 'B')} at most",
        figure=F.figure(
            [line("in use", found.allocated, "compute"), held], x=F.axis(f"time, {unit}"), y=F.axis(size, rangemode="tozero"),
            annotations=marks, margin={"l": 58, "r": 14, "t": 26, "b": 46},
        ),
        summary=f"Of {human(found.max_reserved, 'B')} reserved at most, {human(found.worst_gap, 'B')} were not in use at the worst moment."
        + (" In use is counted as the program asked for it." if found.requested else ""),
    )  # fmt: skip
