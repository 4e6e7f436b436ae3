"""The kernels of a profile without events: sums by name, or by name and scope."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.cost.roofline import ratio
from tb_sol_plugin.metrics.report.notes import profile_notices
from tb_sol_plugin.metrics.time.kernel_names import classify, short_name, unit_name
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.trees.profile_tree import OUTSIDE, innermost, scope_tree
from tb_sol_plugin.metrics.work.columns import ranked
from tb_sol_plugin.metrics.work.sums import calls_of, marks_of, ratios, sums
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import Column, Report, Scalar, Sort, TableSection, make_table
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import factorize
from tb_sol_plugin.units import capitalized, human

_WHOLE: Final = ("flop", "bytes", "sol_ns", "measured_ns", "wasted_ns")


def kernel_rows(capture: Capture, query: Query, *, by_scope: bool) -> pd.DataFrame:
    """One row per kernel (and scope, as `operator`), longest first.

    id, name, short_name, operator, calls, total_ns, share, mean_ns, tensor_core (True, False, None unknown), unit, rule, kind, and the
    work of `work.sums`. Frames that no launch belongs to (work that a scope states) are left out.
    """
    calls = calls_of(capture, scope(capture, query), query.device_limits)
    ran = np.flatnonzero(calls.ops["launches"].to_numpy() + np.nan_to_num(calls.ops["measured_ns"].to_numpy(dtype=np.float64)) > 0)
    names = calls.ops["name"]
    node = innermost(capture.tables[S.LEDGER.name])[calls.ops["ledger"].to_numpy()]
    keys = [arrays.codes(names)[ran], *([node[ran]] if by_scope else [])]
    code, first = factorize(keys)
    size = len(first)
    found = sums({n: v[ran] for n, v in calls.values.items()}, code, size)
    time = np.bincount(code, np.nan_to_num(calls.ops["measured_ns"].to_numpy(dtype=np.float64))[ran], size).astype(np.float64)
    launches = np.bincount(code, calls.ops["launches"].to_numpy()[ran], size).astype(np.float64)
    at = arrays.codes(names)[ran[first]]
    judged = classify(names, capture.facts.vendor).iloc[at].reset_index(drop=True)
    tree = scope_tree(capture)
    where = [OUTSIDE if n < 0 else tree.path[n] for n in node[ran[first]].tolist()]
    out = ratios(found).assign(
        name=judged["name"],
        short_name=[short_name(str(n)) for n in judged["name"]],
        operator=where,
        calls=launches.astype(np.int64),
        total_ns=np.rint(time).astype(np.int64),
        share=ratio(time, np.full(size, time.sum())),
        mean_ns=np.rint(ratio(time, launches)),
        tensor_core=pd.Series([None if t < 0 else bool(t) for t in judged["tensor_core"]], dtype=object),
        unit=judged["unit"],
        rule=judged["rule"],
        kind=judged["kind"],
        modelled_share=ratio(np.nan_to_num(found["modelled_sum_ns"].to_numpy()), time),
    )
    out["id"] = [f"{n} | {w}" for n, w in zip(out["name"], where, strict=True)] if by_scope else out["name"]
    for name in (*_WHOLE, "mean_ns"):
        out[name] = pd.Series([None if v is None or v != v else round(v) for v in out[name].tolist()], dtype=object)
    return out.sort_values(["total_ns", "id"], ascending=[False, True], kind="stable", ignore_index=True)


def report(capture: Capture, query: Query, columns: Sequence[Column], *, by_scope: bool) -> Report:
    """The page of kernels of a profile."""
    rows = kernel_rows(capture, query, by_scope=by_scope)
    return Report(
        analysis="kernels",
        title="Kernels",
        headline=_headline(capture, rows),
        notices=profile_notices(capture),
        sections=[_table(rows, columns, by_scope=by_scope)],
    )


def _headline(capture: Capture, rows: pd.DataFrame) -> str:
    total = int(rows["total_ns"].sum())
    if not total:
        return "No kernel time in this profile."
    first = rows.iloc[0]
    launches = human(int(rows["calls"].sum()), "count")
    said = f"Kernels take **{human(total, 'ns')}** in {launches} launches; the first is `{first['short_name'][:64]}` with "
    said += f"{human(float(first['share']), 'ratio')}."
    unit = unit_name(capture.facts.vendor)
    known = int(rows.loc[rows["tensor_core"].eq(True), "total_ns"].sum())
    unknown = int(rows.loc[rows["tensor_core"].isna(), "total_ns"].sum())
    if unknown >= 0.5 * total:
        return f"{said} No rule knows whether {unit}s run {human(unknown / total, 'ratio')} of it."
    return f"{said} {capitalized(unit)}s run {'at least ' if unknown >= 0.05 * total else ''}{human(known / total, 'ratio')}."


def _table(rows: pd.DataFrame, columns: Sequence[Column], *, by_scope: bool) -> TableSection:
    there = [c for c in columns if c.name in rows and (by_scope or c.name != "operator")]
    there = [ranked(c, 3) if not rows[c.name].notna().any() else c for c in there]
    known = [v for v in rows["sol_ns"] if v is not None]
    measured = sum(v for v in rows["measured_ns"] if v is not None)
    least = sum(s for s, m in zip(rows["sol_ns"], rows["measured_ns"], strict=True) if s is not None and m is not None)
    total: dict[str, Scalar] = {c.name: None for c in there}
    total |= {
        "short_name": "all kernels",
        "calls": int(rows["calls"].sum()),
        "total_ns": int(rows["total_ns"].sum()),
        "share": 1.0 if rows["total_ns"].sum() else None,
        "sol_ns": sum(known) if known else None,
        "measured_ns": measured or None,
        "wasted_ns": measured - least if measured else None,
        "efficiency": least / measured if measured else None,
    }
    section = make_table(
        "kernels",
        "Kernels",
        rows,
        there,
        key="id",
        subtitle=f"{human(len(rows), 'count')} groups; whole profile",
        total={c.name: total[c.name] for c in there},
        sort=Sort("total_ns"),
        filters=["short_name", "name", *(["operator"] if by_scope else []), "kind", "tensor_core"],
        footer="Sums over all launches. Work is what launch hooks stated. Matrix units are judged by name.",
        empty="No kernel was launched.",
    )
    marks = marks_of(section.data["efficiency"], section.data["flags"], section.data["modelled_share"])
    if marks:
        section.marks["efficiency"] = marks
    return section
