"""The icicle of the modules: a box per instance, as wide as its time, in the color of its efficiency."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.trees.modules import MergedRow
from tb_sol_plugin.model import figure as fig
from tb_sol_plugin.model.figure import efficiency_color, light
from tb_sol_plugin.model.report import FigureSection, Scalar
from tb_sol_plugin.units import capitalized, human

CHART_PIXELS: Final = 1150.0
"""Width of the icicle on a usual screen, to choose what its boxes say."""


def icicle(
    nodes: pd.DataFrame,
    time: pd.Series,
    rows: list[MergedRow],
    keys: list[str],
    asked: str,
    whole: int,
    *,
    names: list[str],
    limit: int = 1500,
) -> FigureSection:
    """Boxes for every node, the widest `limit` of them. With merged rows a box carries the key of its merged row.

    time: device time per node in the chosen direction. asked: device, host or flop. whole: all device time, ns. names: what a box is
    called, per node.
    """
    row_of = {n: i for i, row in enumerate(rows) for n in row.nodes}
    path: list[str] = []
    position = {int(n): i for i, n in enumerate(nodes["node"].tolist())}
    for i, (up, name) in enumerate(zip(nodes["parent"].tolist(), nodes["name"].tolist(), strict=True)):
        above = position.get(int(up), -1)
        path.append((path[above] + "/" if above >= 0 else "") + f"{name}#{i}")
    has_time = bool(time.sum())
    width = asked if asked != "device" or has_time else "host"
    values = {"device": time, "host": nodes["host_total_ns"], "flop": nodes["flop"]}[width]
    value = np.nan_to_num(values.to_numpy(dtype=np.float64))
    value = _bounded(nodes, position, value)
    shown = set(np.argsort(-value, kind="stable")[:limit][value[np.argsort(-value, kind="stable")[:limit]] > 0].tolist())
    sol, measured = nodes["sol_ns"].to_numpy(float), nodes["measured_ns"].to_numpy(float)
    unit = "FLOP" if width == "flop" else "ns"
    pixels = value / max(float(value[nodes["parent"].to_numpy() < 0].sum()), 1.0) * CHART_PIXELS
    boxes: dict[str, list[Scalar]] = {k: [] for k in ("ids", "labels", "parents", "values", "text", "hovertext", "customdata")}
    colors: list[str] = []
    for i in sorted(shown):
        efficiency = float(sol[i] / measured[i]) if measured[i] > 0 and np.isfinite(sol[i]) else None
        above = position.get(int(nodes["parent"].iloc[i]), -1)
        name = names[i]
        share = f", {human(value[i] / whole, 'ratio')} of device time" if whole and width == "device" else ""
        said = f"efficiency {human(efficiency, 'ratio')}" if efficiency is not None else "no cost model"
        boxes["ids"].append(path[i])
        boxes["parents"].append(path[above] if above in shown else "")
        boxes["labels"].append(name)
        boxes["values"].append(float(value[i]))
        boxes["text"].append(_box_text(name, efficiency, float(pixels[i])))
        kind = str(nodes["class_name"].iloc[i])
        titled = f"<b>{name}</b>" if name.startswith(kind) else f"<b>{name}</b> {kind}"
        boxes["hovertext"].append(f"{titled}<br>{human(float(value[i]), unit)}{share}<br>{said}")
        boxes["customdata"].append(keys[row_of[i]])
        colors.append(efficiency_color(efficiency))
    trace: fig.Plain = {
        "type": "icicle",
        **boxes,
        "branchvalues": "total",
        "marker": {"colors": colors, "line": {"width": 0.8, "color": light("surface")}},
        "textinfo": "text",
        "textfont": {"size": 11.5},
        "hoverinfo": "text",
        "tiling": {"orientation": "v", "pad": 0},
        "pathbar": {"visible": False},
        "root": {"color": "rgba(0,0,0,0)"},
        "sort": False,
    }
    lacking = " (no device time known)" if asked == "device" and width == "host" else ""
    words = {"device": "device time", "host": "host time", "flop": "FLOP"}[width]
    wide = [i for i in shown if pixels[i] >= 3]
    depth = int(nodes["depth"].to_numpy()[wide].max()) + 1 if wide else 1
    trace["maxdepth"] = depth
    left_out = int((value > 0).sum()) - len(shown)
    more = f"; {left_out} narrow boxes left out" if left_out > 0 else ""
    return FigureSection(
        id="icicle",
        title="Device time by module" if width == "device" else f"{capitalized(words)} by module",
        subtitle=f"width is {words}{lacking}, color is efficiency: orange far below its limit, blue at it, gray without a model{more}",
        figure=fig.figure([trace], margin={"l": 4, "r": 4, "t": 4, "b": 4}),
        summary=f"Boxes of {len(shown)} modules in {depth} levels, as wide as their {words}, colored by efficiency.",
        table="modules",
        height=min(60 + 38 * depth, 620),
    )


def _box_text(name: str, efficiency: float | None, pixels: float) -> str:
    """What fits in a box: name and efficiency, the name, its initial and number (`EncoderLayer_12` is L12, `layers.12` l12), nothing."""
    percent = human(efficiency, "ratio") if efficiency is not None else ""
    words = re.findall(r"[A-Z][a-z]*", name)
    number = name.rpartition("_")[2] if "_" in name else ""
    numbered = re.fullmatch(r"(?:.*\.)?([a-z])\w*\.(\d+)", name)
    short = f"{numbered[1]}{numbered[2]}" if numbered else f"{words[-1][0]}{number}" if words else ""
    for text in (f"{name}  {percent}".strip(), name, f"{short} {percent}".strip(), short):
        if text and len(text) * 6.6 + 8 < pixels:
            return text
    return ""


def _bounded(nodes: pd.DataFrame, position: dict[int, int], value: np.ndarray) -> np.ndarray:
    """Widths in which children never outgrow their parent, as a drawing of totals wants it: parents are raised to the sum."""
    below = np.zeros(len(value))
    out = value.copy()
    for i in reversed(range(len(value))):
        out[i] = max(out[i], below[i])
        up = position.get(int(nodes["parent"].iloc[i]), -1)
        if up >= 0:
            below[up] += out[i]
    return out
