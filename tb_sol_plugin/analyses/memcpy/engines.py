"""What the engines of a device do in one step: compute, communication, and one lane per direction of copies; exposed copies stand out."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.copies import exposure, records
from tb_sol_plugin.metrics.copies.records import COLORS, NAMES
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import AnySection, Column, FigureSection, Link, make_table
from tb_sol_plugin.units import human

TITLES: Final = {exposure.COMPUTE_LANE: "Computation", exposure.COMMUNICATION_LANE: "Communication", **NAMES}
PAINT: Final = {exposure.COMPUTE_LANE: "compute", exposure.COMMUNICATION_LANE: "communication", **COLORS}
COLUMNS: Final = (
    Column("lane", "Engine", doc="computation, communication, or a direction of copies", show="symbol", color_by="member"),
    Column("union_ns", "Runs", "ns", "time in which at least one event of the lane runs in the window"),
    Column("hidden_ns", "Hidden", "ns", "the part of it behind computation", missing="neither hidden nor exposed"),
    Column("exposed_ns", "Exposed", "ns", "the rest of it", missing="neither hidden nor exposed"),
    Column("member", "Colour", doc="colour of the lane", rank=3),
)
LANE_PX: Final = 40
LEAST: Final = 1 / 1200
"""Shapes are drawn at least this part of the window wide, so that a short copy can be seen."""


def sections(capture: Capture, found: pd.DataFrame, where: Scope, worst: int | None) -> list[AnySection]:
    """The lanes of the worst step, or of the whole selection where no step is the worst, drawn and as sums; nothing without copies there.

    found: the copies of the selection. worst: row of `steps`.
    """
    window, number = _window(capture, found, where, worst)
    lanes = exposure.lanes(capture, window)
    if lanes is None:
        return []
    totals = lanes.totals.set_index("lane")
    order = totals.index.tolist()
    factor, unit = F.time_scale(float(window[1] - window[0]))
    labels = [_label(name, totals.loc[name]) for name in order]
    data: list[F.Plain] = []
    for name, label in zip(order, labels, strict=True):
        shapes = lanes.shapes[lanes.shapes["lane"] == name].reset_index(drop=True)
        texts = _texts(capture, shapes, name)
        copies = name not in (exposure.COMPUTE_LANE, exposure.COMMUNICATION_LANE)
        data.append(_bars(name, label, shapes, texts, window, factor, opacity=0.32 if copies else 1.0))
        bare = lanes.exposed[lanes.exposed["lane"] == name].reset_index(drop=True)
        if len(bare):
            inside = np.searchsorted(shapes["start_ns"].to_numpy(), bare["start_ns"].to_numpy(), side="right") - 1
            data.append(_bars(name, label, bare, [texts[max(i, 0)] for i in inside.tolist()], window, factor, opacity=1.0))
    what = f"step {number}" if number is not None else f"the {where.label}" if where.whole else where.label
    which = f"device {lanes.device}, one of {lanes.devices} with copies; " if lanes.devices > 1 else ""
    drawn = FigureSection(
        id="engines",
        title=f"Engines in {what}",
        span=8,
        table="lanes",
        subtitle=f"{which}{'most exposed; ' if number is not None and len(where.rows) > 1 else ''}"
        "strong: exposed, pale: behind computation",
        height=70 + LANE_PX * len(order),
        figure=F.figure(
            data,
            x=F.axis(f"{unit} from {_hms(window[0])}", range=[0, (window[1] - window[0]) / factor], showgrid=True),
            y=F.axis(showgrid=False, fixedrange=True, range=[len(order) - 0.5, -0.5])
            | {"type": "category", "categoryorder": "array", "categoryarray": labels},
            barmode="overlay",
            bargap=0.35,
            margin={"l": 176, "r": 14, "t": 6, "b": 44},
        ),
        summary=f"Copies of {what} run for {human(lanes.union_ns, 'ns')}, {human(lanes.exposed_ns, 'ns')} of it behind no computation, in "
        f"{human(window[1] - window[0], 'ns')}.",
        links=[Link("memcpy_copies", {"step": str(number)}, "Its copies")] if number is not None else [],
    )
    return [drawn, _table(lanes.totals, what, window[1] - window[0])]


def _table(totals: pd.DataFrame, what: str, length: int) -> AnySection:
    """The sums of the lanes, clipped to the window; computation and communication are neither hidden nor exposed."""
    frame = totals.assign(lane=[TITLES.get(n, n) for n in totals["lane"]], member=[PAINT.get(n, "other") for n in totals["lane"]])
    for name in ("hidden_ns", "exposed_ns"):
        frame[name] = pd.Series([t if t >= 0 else None for t in totals[name].tolist()], dtype=object)
    return make_table(
        "lanes", "Lanes", frame, COLUMNS, key="lane", subtitle=f"of {human(length, 'ns')}", span=4,
        footer="A lane is a union: what runs side by side in it counts once, whichever step launched it.",
    )  # fmt: skip


def _window(capture: Capture, found: pd.DataFrame, where: Scope, worst: int | None) -> tuple[tuple[int, int], int | None]:
    """From where to where, and the number of the step: its bounds, and what its own copies reach beyond them."""
    if worst is None:
        return where.window_ns, None
    mine = found[found["step"] == worst]
    low, high = (int(capture.steps[c].to_numpy()[worst]) for c in ("start_ns", "end_ns"))
    if len(mine):
        low = min(low, int(mine["start_ns"].min()))
        high = max(high, int((mine["start_ns"] + mine["duration_ns"]).max()))
    number = int(capture.steps["number"].to_numpy()[worst])
    return (low, high), number if number >= 0 and not capture.facts.pseudo_step else None


def _hms(at: int) -> str:
    """Where the window begins, in words."""
    return f"{human(at, 'ns')} into the recording" if at else "the start of the recording"


def _label(name: str, total: pd.Series[int]) -> str:
    exposed, union = int(total["exposed_ns"]), int(total["union_ns"])
    told = "hidden" if not exposed else "all exposed" if exposed == union else f"{human(exposed, 'ns')} exposed"
    said = human(union, "ns") if exposed < 0 else f"{human(union, 'ns')}, {told}"
    return f"{TITLES.get(name, name)}<br><span style='font-size:10.5px'>{said}</span>"


def _bars(
    name: str, label: str, spans: pd.DataFrame, texts: list[str], window: tuple[int, int], factor: float, *, opacity: float
) -> F.Plain:
    start, end = spans["start_ns"].to_numpy() - window[0], spans["end_ns"].to_numpy() - window[0]
    length = np.maximum(end - start, (window[1] - window[0]) * LEAST)
    return {
        "type": "bar", "orientation": "h", "name": TITLES.get(name, name), "y": [label] * len(spans), "base": (start / factor).tolist(),
        "x": (length / factor).tolist(), "marker": {"color": F.light(PAINT.get(name, "other")), "opacity": opacity, "line": {"width": 0}},
        "hovertext": texts, "hovertemplate": "%{hovertext}<extra></extra>", "showlegend": False,
    }  # fmt: skip


def _texts(capture: Capture, shapes: pd.DataFrame, lane: str) -> list[str]:
    """What hovering a shape says: a single copy by name, size, rate and operator; merged ones by their sums."""
    if lane in (exposure.COMPUTE_LANE, exposure.COMMUNICATION_LANE):
        return [f"<b>{TITLES[lane]}</b><br>{human(int(b - a), 'ns')}" for a, b in zip(shapes["start_ns"], shapes["end_ns"], strict=True)]
    row = shapes["row"].to_numpy().astype(np.int64)
    single = np.maximum(row, 0)
    names = records.texts(capture.device["name"], single)
    operator = capture.device["operator"].to_numpy()[single]
    owners = records.texts(capture.host["name"], np.maximum(operator, 0)) if len(capture.host) else np.full(len(row), "", object)
    out = []
    for at, name, op, owner, count, size, busy in zip(
        row.tolist(),
        names.tolist(),
        operator.tolist(),
        owners.tolist(),
        *(shapes[c].tolist() for c in ("count", "bytes", "busy_ns")),
        strict=True,
    ):
        head = _plain(str(name)) if at >= 0 else f"{human(count, 'count')} copies, too close to tell apart"
        rate = f" at {human(size / busy * 1e9, 'B/s')}" if size > 0 and busy > 0 else ""
        much = f"{human(size, 'B')}{rate}, " if size >= 0 else "no size recorded, "
        by = f"<br>{_plain(str(owner))}" if at >= 0 and op >= 0 and owner else ""
        out.append(f"<b>{head}</b><br>{much}{human(busy, 'ns')}{by}")
    return out


def _plain(name: str) -> str:
    """A recorded name as text of a figure: nothing of it is markup."""
    text = name if len(name) <= 80 else name[:50] + "…" + name[-29:]
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
