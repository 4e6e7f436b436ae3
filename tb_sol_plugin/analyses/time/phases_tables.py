"""Tables of the phases: the tree, and every operation once at its innermost phase, in the manner of the console report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cost.roofline import ratio
from tb_sol_plugin.metrics.report.longest import longest
from tb_sol_plugin.metrics.report.notes import profile_notices
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time import scope as source
from tb_sol_plugin.metrics.time.breakdown import COMMUNICATION, COMPUTATION, MEMCPY, classes, layers
from tb_sol_plugin.metrics.time.scope import Scope, scope
from tb_sol_plugin.metrics.trees.label_times import phase_device_ns, phase_time_ns, usual_phase_ns
from tb_sol_plugin.metrics.trees.phases import STEP, device_owners, phase_tree
from tb_sol_plugin.metrics.trees.profile_tree import OUTSIDE, ScopeWork, scope_tree, scope_work
from tb_sol_plugin.metrics.work.columns import ranked
from tb_sol_plugin.metrics.work.sums import NO_PHASE, VALUES, PhaseWork, in_a_phase, marks_of, ratios, ratios_of, summed
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.columns import plain_list
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import Column, Fact, Report, Sort, TableSection, TreeSpec, make_facts, make_table
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Floats, whole_or_none
from tb_sol_plugin.units import human

ROWS_OUTSIDE: Final = "(outside every phase)"
DEVICE: Final = ("device_ns", "device_sum_ns", "compute_ns", "exposed_communication_ns", "exposed_memcpy_ns", "by_time_ns")
TIMES: Final = ("host_ns", "host_self_ns", *DEVICE)
USUAL: Final = "usual_ns"
"""Column of a SOL capture alone."""
COUNTS: Final = ("count", "ops", "device_events")
WORK: Final = ("flop", "bytes", "sol_ns", "measured_ns", "wasted_ns")


Columns: TypeAlias = dict[str, list[Any]]
"""Values of a row at the same place of each column, None unknown."""


def tree_rows(capture: Capture, part: Scope, frame: pd.DataFrame, work: PhaseWork, divide: int) -> tuple[Columns, list[str]]:
    """(rows of the tree with their work, then device work of no phase by reason; ids of the latter). All but ratios over `divide`."""
    node = frame["node"].to_numpy()
    found: dict[str, object] = {str(name): frame[name] for name in frame.columns}
    if source.is_capture(capture):
        usual = usual_phase_ns(capture, part)
        found["device_ns"] = phase_device_ns(capture, part)[node]
        found[USUAL] = usual.host_ns[node] * part.step_count if usual is not None else np.full(len(node), np.nan)
    sums = {name: work.inside[name][node] for name in VALUES}
    found |= _longest(capture, part, node)
    found |= _with_ratios(sums, frame["device_sum_ns"].to_numpy(dtype=np.float64))
    if not work.calls.done.timed:
        found |= _over_phase_time(sums["sol_ns"], phase_time_ns(capture, part)[node])
    out: Columns = {name: plain_list(values) for name, values in found.items()}
    path = dict(zip(out["node"], out["path"], strict=True))
    out |= {"id": out["path"], "parent": [path.get(p) for p in out["parent"]]}
    outside = outside_rows(capture, part, work)
    reasons = outside["id"] if outside else []
    if outside:
        out = {name: [*values, *outside.get(name, [None] * len(reasons))] for name, values in out.items()}
    for name in (*TIMES, *WORK, *([USUAL] if USUAL in out else [])):
        out[name] = [None if v is None else round(v / divide) for v in out[name]]
    for name in COUNTS:
        out[name] = per_step(out[name], divide)
    unknown = ["ops"] if source.is_uncounted(capture) else []
    if not len(capture.device):
        unknown += [n for n in (*DEVICE, "device_events") if n != "device_ns" or not source.is_capture(capture)]
    return out | {name: [None] * len(out["id"]) for name in unknown}, reasons


def _longest(capture: Capture, part: Scope, node: npt.NDArray[np.integer]) -> dict[str, pd.arrays.IntegerArray]:
    """Returns the columns of LONGEST for nodes: of the longest range of each."""
    tree, h = phase_tree(capture), at.host(capture)
    rows = np.flatnonzero(part.host & (tree.node >= 0)) if len(tree.node) else np.zeros(0, np.int64)
    found = longest(tree.node[rows], h.start[rows], h.duration[rows], len(tree.path))
    return {name: values.take(node) for name, values in found.items()}


def per_step(counts: Sequence[float | None], steps: int) -> list[float | None]:
    """Returns counts over `steps`, whole ones as integers; None unknown."""
    known = [None if v is None else v / steps for v in counts]
    return [int(v) if v is not None and v == int(v) else v for v in known]


def _over_phase_time(sol: Floats, own: Floats) -> dict[str, Floats]:
    """Returns efficiency over the time of each whole phase (ns), where single calls have none."""
    return {"wasted_ns": own - sol, "efficiency": ratio(sol, own)}


def _with_ratios(sums: dict[str, Floats], device_sum_ns: Floats) -> dict[str, npt.NDArray[Any]]:
    """Returns VALUES with what follows from them."""
    return sums | ratios_of(sums) | {"modelled_share": ratio(np.nan_to_num(sums["modelled_sum_ns"]), device_sum_ns)}


def outside_rows(capture: Capture, part: Scope, work: PhaseWork) -> Columns:
    """Returns device work of no phase, by reason, with the work of its calls; nothing where there is none."""
    device = capture.device
    start, duration = device["start_ns"].to_numpy(), device["duration_ns"].to_numpy()
    kind = classes(capture)
    everything = layers(capture, part.device)
    behind = iv.merge(everything.computation, everything.communication)
    reasons = at.unowned(capture, np.where(part.device, device_owners(capture).node, 0).astype(np.int32), ROWS_OUTSIDE)
    rows: list[dict[str, Any]] = []
    reason = np.full(len(device), -1, np.int64)
    for i, (name, mask) in enumerate(reasons):
        reason[mask] = i
        spans = {
            k: iv.union(start[mask & (kind == k)], (start + duration)[mask & (kind == k)]) for k in (COMPUTATION, COMMUNICATION, MEMCPY)
        }
        rows.append(
            {
                "id": name,
                "parent": None,
                "path": name,
                "name": name,
                "device_events": int(mask.sum()),
                "device_sum_ns": int(duration[mask].sum()),
                "device_ns": iv.length(iv.merge(*spans.values())),
                "compute_ns": iv.length(spans[COMPUTATION]),
                "exposed_communication_ns": iv.length(iv.subtract(spans[COMMUNICATION], everything.computation)),
                "exposed_memcpy_ns": iv.length(iv.subtract(spans[MEMCPY], behind)),
            }
        )
    alone = work.node < 0
    if not rows:
        if not alone.any() or len(device):
            return {}
        rows = [{"id": ROWS_OUTSIDE, "parent": None, "path": ROWS_OUTSIDE, "name": ROWS_OUTSIDE, "device_sum_ns": None}]
    owner = work.calls.done.owner
    of_call = np.zeros(len(work.calls.done.ops), np.int64)
    known = np.flatnonzero((owner >= 0) & (reason >= 0))[::-1]
    of_call[owner[known]] = reason[known]
    values = summed(work.calls.values, np.where(alone, of_call[work.calls.rows], -1), len(rows))
    found = _with_ratios(values, np.array([row["device_sum_ns"] for row in rows], np.float64))
    return {name: [row[name] for row in rows] for name in rows[0]} | {name: plain_list(column) for name, column in found.items()}


def once(work: PhaseWork, paths: list[str], divide: int) -> Columns:
    """Returns every operation once, at its innermost phase, largest limit first, those of no phase (in a step, or in none) last.

    Columns: id, phase, ops (calls with a limit), sol_ns, share (of all limits), measured_ns, wasted_ns, efficiency, flags.
    """
    node = np.where(in_a_phase(paths)[work.node], work.node, len(paths))
    sums = summed(work.calls.values, node, len(paths) + 1)
    ops = np.bincount(node[np.isfinite(work.calls.values["sol_ns"])], minlength=len(paths) + 1)
    rows = np.flatnonzero(ops)
    rows = rows[np.lexsort((-sums["sol_ns"][rows], rows == len(paths)))]
    found: dict[str, npt.NDArray[Any]] = {name: values[rows] for name, values in (sums | ratios_of(sums)).items()}
    found["share"] = ratio(found["sol_ns"], np.full(len(rows), np.nansum(found["sol_ns"])))
    found |= {name: whole_or_none(found[name] / divide) for name in ("sol_ns", "measured_ns", "wasted_ns")}
    names = [(*paths, NO_PHASE)[row] for row in rows.tolist()]
    words: Columns = {"id": names, "phase": [name.removeprefix(f"{STEP}/") for name in names], "ops": per_step(ops[rows].tolist(), divide)}
    return words | {name: plain_list(values) for name, values in found.items()}


# -- The phases of a profile without events ---------------------------------------------------------------------------
# its scopes, with launches, device time and the work that launch hooks stated.


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


def report(capture: Capture, query: Query, columns: Sequence[Column], facts: Sequence[Fact]) -> Report:
    """Returns the page of phases of a profile."""
    done = scope_work(capture, scope(capture, query), query.device_limits)
    rows = scope_rows(capture, done)
    return Report(
        analysis="phases",
        title="Phases",
        headline=_headline(rows),
        notices=profile_notices(capture),
        sections=[
            _table(rows, columns),
            make_facts("facts", "Counts", {"phases": int((rows["id"] != OUTSIDE).sum())}, facts, labels={"phases": "Scopes"}),
        ],
    )


def scope_rows(capture: Capture, done: ScopeWork) -> pd.DataFrame:
    """Returns one row per scope in preorder, then what ran outside of all: id, parent, name, path, ops (launches), times and work."""
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
    """Returns the column in the words of a profile."""
    if column.name == "device_sum_ns":
        column = msgspec.structs.replace(column, show="bar", color="compute")
    label, doc = WORDED.get(column.name, (column.label, column.doc))
    return msgspec.structs.replace(column, label=label, doc=doc)


def _host(capture: Capture, size: int) -> np.ndarray:
    """Returns time of each scope on the host, where the profiler took it."""
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
    text = f"**{top['name']}** takes {human(int(top['device_sum_ns'] or 0), 'ns')} on the device, {share} of the profile"
    efficiency = float(top["efficiency"])
    return f"{text}; its work with a limit runs at {human(efficiency, 'ratio')} of it." if efficiency == efficiency else f"{text}."


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
