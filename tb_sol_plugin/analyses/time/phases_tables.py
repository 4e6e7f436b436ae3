"""Tables of the phases: the tree, and every operation once at its innermost phase, in the manner of the console report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

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
from tb_sol_plugin.metrics.work.sums import NO_PHASE, PhaseWork, in_a_phase, marks_of, ratios, sums
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import Column, Fact, Report, Sort, TableSection, TreeSpec, make_facts, make_table
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import whole_numbers
from tb_sol_plugin.units import human

ROWS_OUTSIDE: Final = "(outside every phase)"
DEVICE: Final = ("device_ns", "device_sum_ns", "compute_ns", "exposed_communication_ns", "exposed_memcpy_ns", "by_time_ns")
TIMES: Final = ("host_ns", "host_self_ns", *DEVICE)
USUAL: Final = "usual_ns"
"""Column of a SOL capture alone."""
COUNTS: Final = ("count", "ops", "device_events")
WORK: Final = ("flop", "bytes", "sol_ns", "measured_ns", "wasted_ns")


def tree_rows(capture: Capture, part: Scope, frame: pd.DataFrame, work: PhaseWork, divide: int) -> tuple[pd.DataFrame, list[str]]:
    """(rows of the tree with their work, then device work of no phase by reason; ids of the latter). All but ratios over `divide`."""
    if source.is_capture(capture):
        node, usual = frame["node"].to_numpy(), usual_phase_ns(capture, part)
        other = usual.host_ns[node] * part.step_count if usual is not None else np.nan
        frame = frame.assign(device_ns=phase_device_ns(capture, part)[node], usual_ns=other)
    frame = _with_longest(capture, part, frame)
    path = dict(zip(frame["node"].tolist(), frame["path"].tolist(), strict=True))
    inside = work.inclusive.drop(columns="ops").iloc[frame["node"].to_numpy()].reset_index(drop=True)
    out = pd.concat([frame.reset_index(drop=True), inside], axis=1)
    out = _with_ratios(out)
    if not work.calls.done.timed:
        out = _over_phase_time(out, phase_time_ns(capture, part))
    out = out.assign(id=frame["path"], parent=pd.Series([path.get(p) for p in frame["parent"].tolist()], dtype=object))
    outside = outside_rows(capture, part, work)
    if len(outside):
        out = pd.concat([out.astype(object), outside.reindex(columns=out.columns).astype(object)], ignore_index=True)
    for name in (*TIMES, *WORK, *([USUAL] if USUAL in out else [])):
        out[name] = pd.Series([None if v is None or v != v else round(v / divide) for v in out[name].tolist()], dtype=object)
    for name in COUNTS:
        out[name] = per_step(out[name].tolist(), divide)
    if source.is_uncounted(capture):
        out["ops"] = None
    if not len(capture.device):
        for name in (*DEVICE, "device_events"):
            if name != "device_ns" or not source.is_capture(capture):
                out[name] = None
    return out, outside["id"].tolist() if len(outside) else []


def _with_longest(capture: Capture, part: Scope, frame: pd.DataFrame) -> pd.DataFrame:
    """Returns rows of phases with the columns of LONGEST: of the longest range of each."""
    tree, h = phase_tree(capture), at.host(capture)
    rows = np.flatnonzero(part.host & (tree.node >= 0)) if len(tree.node) else np.zeros(0, np.int64)
    found = longest(tree.node[rows], h.start[rows], h.duration[rows], len(tree.path))
    return frame.assign(**{name: values.take(frame["node"].to_numpy()).set_axis(frame.index) for name, values in found.items()})


def per_step(counts: list[float], steps: int) -> pd.Series:
    """Returns counts over `steps`, whole ones as integers; None unknown."""
    known = [None if v is None or v != v else v / steps for v in counts]
    return pd.Series([int(v) if v is not None and v == int(v) else v for v in known], dtype=object)


def _over_phase_time(frame: pd.DataFrame, time: npt.NDArray[np.float64]) -> pd.DataFrame:
    """Returns efficiency over the time of each whole phase (per node, ns), where single calls have none."""
    sol, own = frame["sol_ns"].to_numpy(dtype=np.float64), time[frame["node"].to_numpy()]
    return frame.assign(wasted_ns=own - sol, efficiency=ratio(sol, own))


def _with_ratios(frame: pd.DataFrame) -> pd.DataFrame:
    covered = np.nan_to_num(frame["modelled_sum_ns"].to_numpy(dtype=np.float64))
    return ratios(frame).assign(modelled_share=ratio(covered, frame["device_sum_ns"].to_numpy(dtype=np.float64)))


def outside_rows(capture: Capture, part: Scope, work: PhaseWork) -> pd.DataFrame:
    """Returns device work of no phase, by reason, with the work of its calls."""
    device = capture.device
    start, duration = device["start_ns"].to_numpy(), device["duration_ns"].to_numpy()
    kind = classes(capture)
    everything = layers(capture, part.device)
    behind = iv.merge(everything.computation, everything.communication)
    reasons = at.unowned(capture, np.where(part.device, device_owners(capture).node, 0).astype(np.int32), ROWS_OUTSIDE)
    rows: list[dict[str, object]] = []
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
            return pd.DataFrame()
        rows = [{"id": ROWS_OUTSIDE, "parent": None, "path": ROWS_OUTSIDE, "name": ROWS_OUTSIDE, "device_sum_ns": np.nan}]
    owner = work.calls.done.owner
    of_call = np.zeros(len(work.calls.done.ops), np.int64)
    known = np.flatnonzero((owner >= 0) & (reason >= 0))[::-1]
    of_call[owner[known]] = reason[known]
    values = sums(work.calls.values, np.where(alone, of_call[work.calls.rows], -1), len(rows))
    return _with_ratios(pd.concat([pd.DataFrame(rows), values], axis=1))


def once(work: PhaseWork, paths: list[str], divide: int) -> pd.DataFrame:
    """Returns every operation once, at its innermost phase, largest limit first, those of no phase (in a step, or in none) last.

    Columns: id, phase, ops (calls with a limit), sol_ns, share (of all limits), measured_ns, wasted_ns, efficiency, flags.
    """
    node = np.where(in_a_phase(paths)[work.node], work.node, len(paths))
    values = sums(work.calls.values, node, len(paths) + 1)
    limited = np.isfinite(work.calls.values["sol_ns"])
    frame = ratios(values).assign(phase=[*paths, NO_PHASE], ops=np.bincount(node[limited], minlength=len(paths) + 1))
    frame["last"] = np.arange(len(frame)) == len(paths)
    frame = frame[frame["ops"].to_numpy() > 0].sort_values(["last", "sol_ns"], ascending=[True, False], kind="stable", ignore_index=True)
    short = [p.removeprefix(f"{STEP}/") for p in frame["phase"].tolist()]
    frame = frame.assign(
        id=frame["phase"], phase=short, share=ratio(frame["sol_ns"].to_numpy(), np.full(len(frame), frame["sol_ns"].sum()))
    )
    for name in ("sol_ns", "measured_ns", "wasted_ns"):
        frame[name] = whole_numbers(frame[name] / divide)
    return frame


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
