"""What the device does over time, as a figure."""

from __future__ import annotations

import numpy as np

from tb_sol_plugin.metrics.time.breakdown import device_word, layers, use_over_time
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.time.waterfall import windows_of
from tb_sol_plugin.model import figure as fig
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.figure import light
from tb_sol_plugin.model.report import FigureSection, Link
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.units import NARROW, human


def use_figure(capture: Capture, part: Scope, bars: int = 120) -> FigureSection:
    """Stacked share of each class in equal slices of the selected steps, with the long gaps named."""
    windows, rows = windows_of(capture, part)
    low, high = (int(windows[0][0]), int(windows[1][-1])) if len(windows[0]) else part.window_ns
    everything = layers(capture, np.ones(len(capture.device), bool))
    frame = use_over_time(everything, (low, high), bars)
    factor, unit = fig.time_scale(high - low)
    width = (frame["end_ns"] - frame["start_ns"]).to_numpy(dtype=np.float64)
    middle = ((frame["start_ns"] + frame["end_ns"]).to_numpy() / 2 - low) / factor
    data = []
    named = (
        ("computation_ns", "compute", "compute"),
        ("exposed_communication_ns", "communication", "exposed communication"),
        ("exposed_memcpy_ns", "memcpy", "exposed copies"),
    )
    for column, token, words in named:
        values = frame[column].to_numpy()
        if not values.any():
            continue
        data.append(
            {
                "type": "bar",
                "x": middle.tolist(),
                "y": (100 * values / np.maximum(width, 1)).tolist(),
                "width": (0.9 * width / factor).tolist(),
                "marker": {"color": light(token), "line": {"width": 0}},
                "hoverinfo": "text",
                "hovertext": [
                    f"<b>{words}</b><br>{human(int(v), 'ns')} of {human(int(w), 'ns')}" for v, w in zip(values, width, strict=True)
                ],
            }
        )
    first, last = iv.gaps(everything.busy, low, high)
    long = np.flatnonzero(last - first >= 0.06 * (high - low))
    notes = [
        {
            "x": float((first[i] + last[i]) / 2 - low) / factor,
            "y": 50,
            "text": human(int(last[i] - first[i]), "ns"),
            "showarrow": False,
            "font": {"size": 11.5, "color": light("ink-3")},
        }
        for i in long.tolist()
    ]
    bands = [
        {
            "type": "rect",
            "x0": float(first[i] - low) / factor,
            "x1": float(last[i] - low) / factor,
            "y0": 0,
            "y1": 100,
            "layer": "below",
            "line": {"width": 0},
            "fillcolor": light("sunken"),
        }
        for i in long.tolist()
    ]
    starts = capture.steps["start_ns"].to_numpy()[list(rows)]
    if 1 < len(rows) <= 20:
        numbers = capture.steps["number"].to_numpy()[list(rows)]
        rule = {"color": light("line-strong"), "width": 1, "dash": "dot"}
        for at, number in zip(((starts - low) / factor).tolist(), numbers.tolist(), strict=True):
            bands.append({"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 104, "line": rule})
            label = {"x": at, "y": 104, "text": f"step {number}" if number == numbers[0] else str(number), "showarrow": False}
            notes.append({**label, "xanchor": "left", "yanchor": "bottom", "font": {"size": 11.5, "color": light("ink-3")}})
    x = fig.axis(f"{unit} since the start", range=[0, (high - low) / factor], showgrid=False)
    y = fig.axis("", range=[0, 114 if 1 < len(rows) <= 20 else 102], tickvals=[0, 50, 100], ticktext=["0", "50", f"100{NARROW}%"])
    unit_word = device_word(capture)
    busy = iv.length(iv.clip(everything.busy, low, high))
    share = human(busy / (high - low) if high > low else None, "ratio")
    span = f"{len(rows)} steps" if len(rows) > 1 else "the step" if rows else "the recording"
    return FigureSection(
        id="use",
        title=f"{unit_word[:1].upper()}{unit_word[1:]} use over time",
        subtitle=f"{span}, {human(int(width.mean()) if len(width) else None, 'ns')} per bar",
        figure=fig.figure(
            data, x=x, y=y, barmode="stack", bargap=0, annotations=notes, shapes=bands, margin={"l": 50, "r": 10, "t": 10, "b": 46}
        ),
        summary=f"Busy for {share} of {human(high - low, 'ns')}; {len(long)} gaps longer than 6 %.",
        span=8,
        height=270,
        links=[Link("gpu_breakdown", label="GPU breakdown")],
    )
