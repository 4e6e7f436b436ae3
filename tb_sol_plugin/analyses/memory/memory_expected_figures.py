"""Expected and actual memory of each rank as two bars above each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tb_sol_plugin.analyses.memory.memory_expected_tables import ROWS_NAMES, Rank, Row
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.figure import escape, light
from tb_sol_plugin.model.report import FigureSection
from tb_sol_plugin.units import human, scale_of

COLORS: Final = {
    "parameters": "compute", "main_parameters": "conv", "gradients": "communication", "main_gradients": "DtoH", "optimizer_state": "norm",
    "activations": "attention", "logits": "elementwise",
}  # fmt: skip
REST: Final = "rest of the peak"
MOST: Final = 16
"""Ranks that are drawn."""


def _two_bars(own: Mapping[str, Row]) -> tuple[tuple[str, dict[str, int]], ...]:
    """Bytes of each part of a rank, as expected and as they are; what no part explains is the rest."""
    expected = {name: row.expected.bytes or 0 for name, row in own.items() if name in COLORS}
    actual = {name: row.held.bytes or 0 for name, row in own.items() if name in COLORS}
    rest = (own["total"].held.bytes or 0) - sum(actual.values())
    return ("expected", expected), ("actual", {**actual, REST: max(rest, 0)})


def bars(ranks: Sequence[Rank], rows: Sequence[Row]) -> FigureSection | None:
    """None where nothing is known of any rank."""
    shown = list(ranks)[:MOST]
    of = {(row.rank.worker.worker, row.name): row for row in rows}
    names: list[tuple[str, str]] = []
    lengths: list[dict[str, int]] = []
    for rank in shown:
        stage = f", stage {rank.expected.stage}" if rank.expected.layout is not None and rank.expected.layout.pp > 1 else ""
        for kind, sizes in _two_bars({name: of[rank.worker.worker, name] for name in (*COLORS, "total")}):
            names.append((f"{escape(rank.label)}{stage}", kind))
            lengths.append(sizes)
    totals = [sum(sizes.values()) for sizes in lengths]
    if not any(totals):
        return None
    factor, unit = scale_of(max(totals), "B")
    y = [[name for name, _ in names], [kind for _, kind in names]]
    data: list[F.Plain] = []
    for part, token in {**COLORS, REST: "idle"}.items():
        each = [one.get(part, 0) for one in lengths]
        if not any(each):
            continue
        label = ROWS_NAMES.get(part, part)
        data.append({
            "type": "bar", "orientation": "h", "name": label, "y": y, "x": [size / factor for size in each], "marker": F.fill(token),
            "hoverinfo": "text",
            "hovertext": [f"<b>{name}, {kind}</b><br>{label}: {human(size, 'B')}<br>in all: {human(total, 'B')}"
                          for (name, kind), size, total in zip(names, each, totals, strict=True)],
        })  # fmt: skip
    said = [f"  {human(total, 'B')}" if total else "  not known" for total in totals]
    data.append({
        "type": "scatter", "mode": "text", "y": y, "x": [total / factor for total in totals], "text": said, "showlegend": False,
        "textposition": "middle right", "textfont": {"size": 11.5, "color": light("ink-2")}, "hoverinfo": "skip", "cliponaxis": False,
    })  # fmt: skip
    left = f"; the first {MOST} of {len(ranks)} ranks" if len(ranks) > MOST else ""
    x = F.axis(unit, range=[0, max(totals) / factor * 1.16], rangemode="tozero")
    axis = F.axis(type="multicategory", autorange="reversed", showgrid=False, automargin=True, dividercolor=light("line"))
    margin = {"l": 90, "r": 14, "t": 10, "b": 46}
    figure = F.figure(data, x=x, y=axis, barmode="stack", bargap=0.3, showlegend=True, margin=margin)
    return FigureSection(
        id="bars", title="Expected and actual", subtitle=f"of each rank; parts that are not recorded are missing from its bar{left}",
        figure=figure, summary=_summary(names, totals), table="parts", height=80 + 30 * len(names),
    )  # fmt: skip


def _summary(names: Sequence[tuple[str, str]], totals: Sequence[int]) -> str:
    said = [f"{name}, {kind}: {human(total, 'B') if total else 'not known'}" for (name, kind), total in zip(names, totals, strict=True)]
    return "; ".join(said[:8]) + "."
