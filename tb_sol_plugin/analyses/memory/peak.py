"""The table of what held memory at one moment."""

from __future__ import annotations

from typing import Final

import pandas as pd

from tb_sol_plugin.metrics.memory.attribution import By, Holders
from tb_sol_plugin.metrics.memory.labels import color, gib, label, since
from tb_sol_plugin.model.report import Column, Link, Mark, Sort, TableSection, make_table
from tb_sol_plugin.units import human

BYS: Final[dict[str, tuple[str, str]]] = {
    "category": ("What for", "by what it is for"),
    "module": ("Module", "by the module that allocated it"),
    "operator": ("Operator", "by the operator that allocated it"),
    "frame": ("Python line", "by the line of the program that allocated it"),
    "phase": ("Phase", "by the phase in which it was allocated"),
}
MOST: Final = 500
"""Rows of the table; what is left out stands in one row before the last two."""
COLUMNS: Final = (
    Column("name", "Held by", doc="what holds it; last what was there before, and the rest", show="code"),
    Column("bytes", "In use", "B", "bytes in use at that moment", show="bar", color_by="color"),
    Column("share", "Share", "ratio", "bytes over all that was in use then", show="share"),
    Column("allocations", "Allocations", "count", "how many make up these bytes", missing="not told by this source"),
    Column("kind", "Kind", doc="row; before: in use before the recording began; unknown: the rest of what was in use", rank=3),
    Column("color", "Colour", doc="colour of the row", rank=3),
)  # fmt: skip


def section(found: Holders, by: By, origin: int, *, at_peak: bool, why: str, query: dict[str, str]) -> TableSection:
    """Rows add up to what was in use exactly. why: of a grouping that this source cannot answer, "" where it can."""
    frame = _bounded(found.rows)
    frame = frame.assign(
        color=[color(str(n)) if by == "category" and k == "row" else {"before": "host", "unknown": "idle"}.get(str(k), "compute")
               for n, k in zip(frame["name"], frame["kind"], strict=True)],
    )  # fmt: skip
    if by == "category":
        frame["name"] = [label(str(n)) for n in frame["name"]]
    frame["allocations"] = frame["allocations"].astype(object).where(frame["allocations"] >= 0, None)
    marks: dict[str, dict[str, Mark]] = {"bytes": {}, "name": {}}
    for i, (guess, size, kind) in enumerate(zip(frame["estimated"], frame["bytes"], frame["kind"], strict=True)):
        if guess:
            marks["name"][str(i)] = Mark("estimated", "worked out from where and when it was allocated")
        if kind == "unknown" and (size < 0 or (found.total and size > 0.05 * found.total)):
            text = "more is told than was in use: something counts twice" if size < 0 else "more than 5 % of what was in use"
            marks["bytes"][str(i)] = Mark("flagged", text)
    last = [str(n) for n, k in zip(frame["name"], frame["kind"], strict=True) if k != "row"]
    columns = [Column("name", BYS[by][0], doc=COLUMNS[0].doc, show="text" if by in ("category", "phase") else "code"), *COLUMNS[1:]]
    moment = f"at the peak, {since(found.time_ns, origin)}" if at_peak else f"at {since(found.time_ns, origin)}"
    size = human(found.total, "B")
    return make_table(
        "peak", "What holds memory", frame, columns, key="name",
        subtitle=f"{moment}: {size}{f' ({gib(found.total)})' if gib(found.total) else ''}, {BYS[by][1]}",
        total={"name": "in use", "bytes": found.total, "share": 1.0 if found.total else None},
        last=last,
        sort=Sort("bytes"), marks={n: m for n, m in marks.items() if m},
        footer=" ".join([why, *(f"{n[0].upper()}{n[1:]}." for n in found.notes)]).strip(),
        links=[] if at_peak else [Link("memory", query, "At the peak")],
    )  # fmt: skip


def _bounded(rows: pd.DataFrame) -> pd.DataFrame:
    """The largest rows; the others as one, so that the sum stays."""
    own = rows["kind"].to_numpy() == "row"
    if int(own.sum()) <= MOST:
        whole: pd.DataFrame = rows.reset_index(drop=True)
        return whole
    shown, rest = rows[own].iloc[: MOST - 1], rows[own].iloc[MOST - 1 :]
    one = {
        "name": f"{human(len(rest), 'count')} more", "bytes": int(rest["bytes"].sum()), "allocations": int(rest["allocations"].sum()),
        "share": float(rest["share"].sum()), "estimated": bool(rest["estimated"].any()), "kind": "row", "host_row": -1,
    }  # fmt: skip
    out: pd.DataFrame = pd.concat([shown, pd.DataFrame([one]), rows[~own]], ignore_index=True)
    return out
