"""The phases of a profile without events: its scopes, with launches, device time and the work that launch hooks stated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.cost.roofline import ratio
from tb_sol_plugin.metrics.report.notes import profile_notices
from tb_sol_plugin.metrics.time import scope as source
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.trees.profile_tree import OUTSIDE, ScopeWork, scope_tree, scope_work
from tb_sol_plugin.metrics.work.columns import ranked
from tb_sol_plugin.metrics.work.sums import marks_of, ratios
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import Column, FactsSection, Report, Sort, TableSection, TreeSpec, make_table
from tb_sol_plugin.units import human

SHOWN: Final = {"name": 1, "ops": 1, "device_sum_ns": 1, "flop": 1, "sol_ns": 1, "efficiency": 1, "host_ns": 2, "measured_ns": 2}
"""Columns of the page that a profile fills first, with their rank."""
WORDED: Final = {
    "name": ("Scope", "Name of the scope."),
    "ops": ("Launches", "Launches of kernels inside."),
    "device_sum_ns": ("Device", "Plain sum of the device time of kernels and copies inside."),
    "host_ns": ("Host", "Time of the scope on the host, where the profiler took it."),
}
"""Labels and definitions that differ from those of a trace."""
_WHOLE: Final = ("host_ns", "device_sum_ns", "flop", "bytes", "sol_ns", "measured_ns", "wasted_ns")


def report(capture: Capture, query: Query, columns: Sequence[Column], docs: dict[str, str]) -> Report:
    """The page of phases of a profile."""
    done = scope_work(capture, scope(capture, query), query.device_limits)
    rows = scope_rows(capture, done)
    return Report(
        analysis="phases",
        title="Phases",
        headline=_headline(rows),
        notices=profile_notices(capture),
        sections=[
            _table(rows, columns),
            FactsSection(
                id="facts",
                title="Counts",
                values={"phases": int((rows["id"] != OUTSIDE).sum())},
                units={"phases": "count"},
                labels={"phases": "Scopes"},
                docs={"phases": docs["phases"]},
            ),
        ],
    )


def scope_rows(capture: Capture, done: ScopeWork) -> pd.DataFrame:
    """One row per scope in preorder, then what ran outside of all: id, parent, name, path, ops (launches), times and work."""
    tree = scope_tree(capture)
    frame = pd.concat([done.inclusive, done.own.iloc[[-1]]], ignore_index=True)
    frame = ratios(frame)
    frame["id"] = frame["path"] = [*tree.path, OUTSIDE]
    frame["name"] = [*tree.name, OUTSIDE]
    frame["parent"] = pd.Series([*(tree.path[p] if p >= 0 else None for p in tree.parent.tolist()), None], dtype=object)
    frame["modelled_share"] = ratio(np.nan_to_num(frame["modelled_sum_ns"].to_numpy()), frame["device_sum_ns"].to_numpy())
    frame["ops"] = frame["launches"].round().astype(np.int64)
    frame["host_ns"] = _host(capture, len(tree.name))
    keep = np.ones(len(frame), bool)
    keep[-1] = bool(frame["launches"].iloc[-1] or frame["copies"].iloc[-1])
    for name in _WHOLE:
        frame[name] = pd.Series([None if v != v else round(v) for v in frame[name].tolist()], dtype=object)
    out: pd.DataFrame = frame[keep].reset_index(drop=True)
    return out


def _worded(column: Column) -> Column:
    """The column in the words of a profile."""
    if column.name == "device_sum_ns":
        column = msgspec.structs.replace(column, show="bar", color="compute")
    label, doc = WORDED.get(column.name, (column.label, column.doc))
    return msgspec.structs.replace(column, label=label, doc=doc)


def _host(capture: Capture, size: int) -> np.ndarray:
    """Time of each scope on the host, where the profiler took it."""
    out = np.full(size + 1, np.nan)
    table = capture.tables[S.LABEL_TIMES.name]
    if source.is_profile(capture) and len(table):
        out[table["label"].to_numpy()] = table["duration_ns"].to_numpy()
    return out


def _headline(rows: pd.DataFrame) -> str:
    tops = rows[[p is None for p in rows["parent"]]]
    whole = sum(int(v or 0) for v in tops["device_sum_ns"])
    named = tops[tops["id"] != OUTSIDE]
    if not len(named) or not whole:
        return "No scope of this profile holds device time."
    top = named.iloc[int(np.argmax([int(v or 0) for v in named["device_sum_ns"]]))]
    share = human(int(top["device_sum_ns"] or 0) / whole, "ratio")
    said = f"**{top['name']}** takes {human(int(top['device_sum_ns'] or 0), 'ns')} on the device, {share} of the profile"
    efficiency = float(top["efficiency"])
    return f"{said}; its work with a limit runs at {human(efficiency, 'ratio')} of it." if efficiency == efficiency else f"{said}."


def _table(rows: pd.DataFrame, columns: Sequence[Column]) -> TableSection:
    there = [c for c in columns if c.name in rows]
    shown = [_worded(ranked(c, SHOWN.get(c.name, 3) if rows[c.name].notna().any() else 3)) for c in there]
    section = make_table(
        "phases",
        "Scopes",
        rows,
        shown,
        subtitle="whole profile, each with what is inside",
        key="id",
        tree=TreeSpec(),
        sort=Sort("device_sum_ns"),
        last=[OUTSIDE] if OUTSIDE in rows["id"].tolist() else [],
        filters=["name"],
        footer="Device adds kernels and copies of the scope and of all inside it. Efficiency covers kernels whose work was stated.",
        empty="No scope was named.",
    )
    marks = marks_of(section.data["efficiency"], section.data["flags"], section.data["modelled_share"])
    if marks:
        section.marks["efficiency"] = marks
    return section
