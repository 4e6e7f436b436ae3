"""One strong assertion for any recording: `check_capture(path)` loads it and holds every invariant the product promises."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.critical.changes import Change, outcome
from tb_sol_plugin.metrics.critical.graph import graph_of
from tb_sol_plugin.metrics.critical.items import slack_of
from tb_sol_plugin.metrics.critical.parts import PARTS
from tb_sol_plugin.metrics.critical.path import path_of
from tb_sol_plugin.metrics.critical.window import window_of_steps
from tb_sol_plugin.metrics.memory.budget import budget, totals
from tb_sol_plugin.metrics.time.scope import complete_steps
from tb_sol_plugin.metrics.time.scope import scope as scope_of
from tb_sol_plugin.metrics.trees.modules import work_of
from tb_sol_plugin.metrics.work.counted import COLLECTIVE, counted_rows, ledger_costs
from tb_sol_plugin.metrics.work.sums import phase_work
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import registry
from tb_sol_plugin.model.report import Report, UnavailableReport, encode
from tb_sol_plugin.store.cache import Cache
from tb_sol_plugin.web.tables import MOST_BYTES, in_pages
from tb_sol_plugin.web.wire import csv_of
from tests.support.captures import alone, answered, report
from tests.support.profile_sums import sums_of_profile

KINDS = {"facts", "table", "figure", "findings", "timeline"}
UNITS = {"", "ns", "B", "FLOP", "B/s", "FLOP/s", "FLOP/B", "count", "ratio", "%", "MHz"}


def check_capture(path: Path, cache: Path) -> Capture:
    """Load `path` and assert everything below; `cache` is an empty folder for the round trip."""
    c = alone(path)
    host_tree_is_whole(c)
    links_point_where_they_say(c)
    budgets_add_up(c)
    for name in registry():
        answer = answered(c, name)
        is_contract_shaped(name, answer)
        if isinstance(answer, Report) and name in SUMS and not _of_events(c, name):
            SUMS[name](c)
    if c.facts.source == "proton":
        sums_of_profile(c)
    survives_the_cache(c, cache)
    return c


def budgets_add_up(c: Capture) -> None:
    """Categories of memory add up to what is in use at every record, and that is what the record says."""
    found, whole = budget(c), totals(c)
    assert found.groupby("record")["bytes"].sum().reindex(whole["record"]).tolist() == whole["total"].tolist()
    for record, of, total in zip(whole["record"], whole["of"].astype(str), whole["total"], strict=True):
        assert of == "parts" or c.tables["memory_records"][of].iloc[record] == total


# -- tables -----------------------------------------------------------------------------------------------------


def host_tree_is_whole(c: Capture) -> None:
    """Parents stand before their children on the same thread and contain their start; subtrees are ranges."""
    host = c.host
    parent, end, thread = (host[k].to_numpy() for k in ("parent", "end", "thread"))
    start, depth = host["start_ns"].to_numpy(), host["depth"].to_numpy()
    rows = np.arange(len(host))
    assert (host["duration_ns"] >= 0).all() and (end > rows).all() and (end <= len(host)).all()
    child = parent >= 0
    up = parent[child]
    assert (up < rows[child]).all() and (thread[up] == thread[child]).all()
    assert (end[up] >= end[child]).all(), "a subtree lies within its parent's"
    assert (start[up] <= start[child]).all() and (depth[child] == depth[up] + 1).all() and (depth[~child] == 0).all()
    assert len(np.unique(host["index"])) == len(host), "no event stands twice"


def links_point_where_they_say(c: Capture) -> None:
    """Every device event is kept with one way of linking, and what it names has the right kind."""
    device, host = c.device, c.host
    kind, names = host["kind"].to_numpy(), ("operator", "module", "annotation")
    linked = device["link"].isin([S.BY_CORRELATION, S.BY_FLOW]).to_numpy()
    call = device["call"].to_numpy()
    assert (call[linked] >= 0).all() and (call[~linked] < 0).all(), "a launch is known exactly where there is a link"
    assert (kind[call[linked]] == S.CALL).all()
    for name, wanted in zip(names, (S.OPERATOR, S.MODULE, S.ANNOTATION), strict=True):
        rows = device[name].to_numpy()
        assert (kind[rows[rows >= 0]] == wanted).all()
        assert (rows[~linked] < 0).all(), f"without a launch there is no {name}"
    assert (device["duration_ns"] >= 0).all() and len(np.unique(device["index"])) == len(device)


# -- reports ----------------------------------------------------------------------------------------------------


def is_contract_shaped(name: str, answer: Report | UnavailableReport) -> None:
    """JSON without NaN in the contract's shape, at most a megabyte with its tables in pages, and CSV that parses to the same table."""
    text = encode(answer).decode()
    if len(text) > MOST_BYTES and isinstance(answer, Report):
        assert len(in_pages(answer, "")[0]) <= MOST_BYTES, f"{name}: too much for one answer"
    plain = json.loads(text, parse_constant=lambda word: _fail(f"{name}: {word} in the JSON"))
    assert plain["analysis"] == name and plain["title"] and isinstance(plain["available"], bool)
    if not plain["available"]:
        assert plain["because"] and plain["record_it_with"], f"{name}: unavailable without a reason or a remedy"
        return
    assert isinstance(plain["selection"], dict) and plain["sections"], f"{name}: an empty report"
    seen = [s["id"] for s in plain["sections"]]
    assert len(seen) == len(set(seen)), f"{name}: section ids {seen}"
    for section in plain["sections"]:
        assert section["kind"] in KINDS and section["title"] is not None
        if section["kind"] == "table":
            _table_is_shaped(name, section)
        if section["kind"] == "facts":
            assert all(isinstance(v, str | int | float | bool) or v is None for v in section["values"].values())
            assert set(section["units"].values()) <= UNITS
    assert isinstance(answer, Report)
    _csv_parses(name, answer)


def _table_is_shaped(name: str, section: dict[str, object]) -> None:
    columns, data = section["columns"], section["data"]
    assert isinstance(columns, list) and isinstance(data, dict)
    where = f"{name}.{section['id']}"
    for column in columns:
        assert {"name", "label", "unit", "doc"} <= set(column) and column["unit"] in UNITS, where
        assert column["doc"] or column["unit"] == "", f"{where}.{column['name']} has no sentence"
    assert list(data) == [c["name"] for c in columns], where
    lengths = {len(v) for v in data.values()}
    assert len(lengths) <= 1, f"{where}: columns of different lengths {lengths}"
    key = section.get("key")
    if key:
        keys = [str(k) for k in data[str(key)]]
        assert len(keys) == len(set(keys)), f"{where}: the key {key} is not unique"
    tree = section.get("tree")
    if isinstance(tree, dict):
        ids = data[tree["id"]]
        assert len(ids) == len(set(ids)), f"{where}: ids are not unique"
        assert set(data[tree["parent"]]) - {None} <= set(ids), f"{where}: a parent that is no row"


def _csv_parses(name: str, answer: Report) -> None:
    from tb_sol_plugin.model.report import TableSection

    for section in answer.sections:
        if isinstance(section, TableSection):
            rows = list(csv.reader(io.StringIO(csv_of(answer, section.id), newline="")))
            assert rows[0] == [c.name for c in section.columns]
            count = len(next(iter(section.data.values()), []))
            assert len(rows) == count + 1 and {len(r) for r in rows} == {len(section.columns)}, f"{name}.{section.id}"


def _fail(message: str) -> None:
    raise AssertionError(message)


# -- parts sum to wholes ----------------------------------------------------------------------------------------


def _breakdown(c: Capture) -> None:
    for scope in ("all", "linked"):
        for rule in ("wide", "narrow"):
            answer = answered(c, "gpu_breakdown", scope=scope, communication_rule=rule)
            if not isinstance(answer, Report):
                continue
            t = answer.table("devices")
            assert (t["total_ns"] == t["busy_ns"] + t["idle_ns"]).all()
            assert (t["busy_ns"] == t["computation_ns"] + t["exposed_communication_ns"] + t["exposed_memcpy_ns"]).all()
            assert (t["communication_ns"] == t["exposed_communication_ns"] + t["overlap_ns"]).all()
            assert (t["exposed_memcpy_ns"] <= t["memcpy_ns"]).all() and (t["idle_ns"] >= 0).all()
            whole = t[t["device"] == "all"].iloc[0]
            single = t[t["device"] != "all"]
            assert not len(single) or single["busy_ns"].max() <= whole["busy_ns"] <= single["busy_ns"].sum()


def _steps(c: Capture) -> None:
    t = report(c, "steps").table("steps")
    parts = ["kernel_ns", "memcpy_ns", "memset_ns", "communication_ns", "runtime_ns", "dataloader_ns", "cpu_exec_ns", "other_ns"]
    if c.facts.source == "sol_capture":  # whose steps hold ranges, and no operators that could fill them
        assert t[parts].isna().all(axis=None) and len(t) == len(c.steps)
        return
    assert (t[parts].sum(axis=1) == t["duration_ns"]).all(), "a step is the sum of its exclusive parts"
    assert (t[parts] >= 0).all(axis=None) and len(t) == len(c.steps)


def _kernels(c: Capture) -> None:
    duration = c.device.loc[c.device["kind"] == S.KERNEL, "duration_ns"]
    for by in ("name", "name_op", "properties"):
        t = report(c, "kernels", group_by=by).table("kernels")
        assert int(t["total_ns"].sum()) == int(duration.sum()) and int(t["calls"].sum()) == len(duration), by
        assert (t["min_ns"] <= t["mean_ns"] + 1e-6).all() and (t["mean_ns"] <= t["max_ns"] + 1e-6).all()


def _operators(c: Capture) -> None:
    whole = int(c.device["duration_ns"].sum())
    calls = int((c.host["kind"] == S.OPERATOR).sum())
    for by in ("name", "name_shape"):
        t = report(c, "operators", group_by=by).table("operators")
        if len(c.device):
            assert int(t["device_self_ns"].sum()) == whole, f"{by}: operators and the rows outside them hold all device work"
            filled = t[t["calls"].notna()]
            assert (filled["device_self_union_ns"] <= filled["device_self_ns"]).all()
            assert (filled["device_self_ns"] <= filled["device_total_ns"]).all()
        assert int(t["calls"].fillna(0).sum()) == calls
        assert (t["host_self_ns"].fillna(0) >= 0).all()


def _modules(c: Capture) -> None:
    t = report(c, "modules").table("modules")
    own = t[t["calls"].fillna(0) > 0]
    assert int(own["calls"].sum()) == int((c.host["kind"] == S.MODULE).sum())
    if len(c.device):
        facts = report(c, "modules").facts
        backward = int(facts["backward_ns"] or 0)  # credited to forward modules, each event once
        whole = int(c.device["duration_ns"].sum())
        outer = int(t.loc[t["parent"].isna(), "time_ns"].fillna(0).sum())
        assert outer == whole, "outermost modules, with what runs again in the backward pass, and the rows outside hold all device work"
        assert facts["recompute_ns"] or int(t["device_self_ns"].fillna(0).sum()) + backward == whole, (
            "modules, their backward and the rows outside hold all device work"
        )
    assert (own["host_self_ns"] >= 0).all() and (own["device_self_ns"].fillna(0) <= own["device_total_ns"].fillna(0)).all()


def _memcpy(c: Capture) -> None:
    copies = c.device[(c.device["kind"] != S.KERNEL) | c.device["copy_kernel"]]
    for by in ("direction", "kind", "stream"):
        t = report(c, "memcpy", by=by).table("copies")
        assert int(t["count"].sum()) == len(copies) and int(t["time_ns"].sum()) == int(copies["duration_ns"].sum()), by
        assert int(t["bytes"].fillna(0).sum()) == int(copies.loc[copies["bytes"] >= 0, "bytes"].sum())
        assert int(t["without_bytes"].sum()) == int((copies["bytes"] < 0).sum())


def _roofline(c: Capture) -> None:
    answer = report(c, "roofline")
    t = answer.table("ops")
    for name in ("flop", "bytes", "measured_ns", "sol_ns"):
        assert (t[name].dropna() >= 0).all(), name
    share = answer.facts.get("modelled_share")
    assert share is None or 0.0 <= float(share) <= 1.0 + 1e-9  # type: ignore[arg-type]
    unmodeled = answer.facts.get("unmodelled_ns")
    whole = int(c.device["duration_ns"].sum()) or int(c.host.loc[c.host["kind"] == S.OPERATOR, "duration_ns"].sum())  # CPU only: host time
    if c.facts.source == "sol_capture":
        whole = round(float(np.nansum(c.tables["ledger"]["time_ns"])))
        _ledger(c)
    assert unmodeled is None or 0 <= int(unmodeled) <= whole  # type: ignore[arg-type]


def _ledger(c: Capture) -> None:
    """Every grouping of the roofline, the phases and the modules hold the work of the ledger once."""
    part = scope_of(c, Query())
    ledger = ledger_costs(c)
    rows = counted_rows(c)
    known = ledger.usable[rows] & (np.nan_to_num(ledger.flop[rows]) > 0)
    collective = c.tables["ledger"]["name"].astype(str).str.match(COLLECTIVE.pattern).to_numpy()[rows]
    calls = c.tables["ledger"]["count"].to_numpy()[rows].clip(min=0)
    flop = float((np.nan_to_num(ledger.flop[rows]) * calls)[known & ~collective].sum())
    for by in ("op_shape", "op", "module", "layer", "phase", "step", "dtype", "kind"):
        t = report(c, "roofline", by=by).table("ops")
        assert int(t["calls"].sum()) == int(calls.sum()), by
        assert math.isclose(float(t["flop"].sum()), flop, rel_tol=1e-9, abs_tol=len(t)), by
    found = phase_work(c, part)
    alone = float(np.nansum(found.calls.values["flop"][found.node < 0]))
    assert math.isclose(float(np.nansum(found.own["flop"])) + alone, flop, rel_tol=1e-9)
    modules = work_of(c, part)
    outside = float(np.nansum(modules.calls.values["flop"][modules.node < 0]))
    assert math.isclose(float(np.nansum(modules.own["flop"])) + outside, flop, rel_tol=1e-9)


def _health(c: Capture) -> None:
    facts = report(c, "health").facts
    if c.facts.source == "sol_capture":
        assert facts["total_events"] == c.facts.total_events
        return
    t = report(c, "health").table("categories")
    assert int(facts["total_events"]) == int(t["count"].sum()) == c.facts.total_events  # type: ignore[arg-type]
    assert facts["device_events"] == len(c.device)
    assert int(facts["linked_device_events"]) + int(facts["unlinked_device_events"]) == len(c.device)  # type: ignore[arg-type]


def _critical_path(c: Capture) -> None:
    graph, where = graph_of(c), complete_steps(c, scope_of(c, Query()))
    assert (graph.replay() == graph.time).all(), "replaying the unchanged graph gives every measured time"
    path = path_of(c, where)
    for row, begin, end in zip(path.rows.tolist(), path.begin.tolist(), path.end.tolist(), strict=True):
        mine = path.step == row
        start, length = path.start[mine], path.duration[mine]
        assert int(length.sum()) == end - begin and (length > 0).all(), "the critical path is as long as the step"
        assert (start[1:] == (start + length)[:-1]).all() and (not mine.any() or start[0] == begin), "its segments tile the step"
    slack, window = slack_of(c, where), window_of_steps(c, where)
    held = window.edge_places(path.edge[path.edge >= 0])
    assert (slack >= 0).all() and not slack[window.target[held]].any(), "slack is never negative, and 0 on the path"
    for change in ("kernels", "host"):
        same, less, none = (outcome(c, where, (Change(change=change, scale=scale),)) for scale in (1.0, 0.5, 0.0))  # type: ignore[arg-type]
        assert same.saved == 0 and (same.before == same.after).all(), "what stays as it is changes nothing"
        assert 0 <= less.saved <= none.saved == none.at_most <= less.window, "less time of a thing makes no step longer"
        assert int(less.before.sum()) == less.window and int(less.after.sum()) == less.window - less.saved, "classes add up to the step"
    several = Change(change="kernels"), Change(change="host"), Change(change="syncs"), Change(change="copies", remove=True)
    all_of_it, alone = outcome(c, where, several), [outcome(c, where, (one,)) for one in several]
    assert max(one.saved for one in alone) <= all_of_it.saved <= all_of_it.at_most <= all_of_it.window, "more changes save no less"
    assert int(all_of_it.after.sum()) == all_of_it.window - all_of_it.saved and (all_of_it.after >= 0).all(), "classes add up to the step"
    answer = report(c, "critical_path")
    facts, classes, items = answer.facts, answer.table("classes"), answer.table("items")
    assert int(classes["time_ns"].sum()) == facts["path_ns"] == facts["duration_ns"]
    assert sum(int(facts.get(name) or 0) for name in PARTS) == facts["path_ns"], "its parts add up to it"
    assert abs(int(items["time_ns"].sum()) - int(facts["path_ns"])) <= len(items), "items add up to it, but for rounding"
    saved, most = items["saved_half_ns"].dropna(), items["saved_zero_ns"].dropna()
    assert (saved >= 0).all() and (saved <= most).all() and (most <= facts["path_ns"]).all(), "no item saves more than there is"


def _idle(c: Capture) -> None:
    answer, whole = report(c, "idle"), report(c, "gpu_breakdown")
    causes, devices = answer.table("causes"), whole.table("devices").set_index("device")["idle_ns"]
    assert (causes["time_ns"] > 0).all() and int(causes["time_ns"].sum()) == int(whole.table("idle")["idle_ns"].sum())
    of_device = causes.groupby("device")["time_ns"].sum()
    assert (of_device <= devices[of_device.index]).all(), "time beside events without a length is in no gap"
    assert (answer.table("streams")["queue_mean"].dropna() >= 0).all(), "no queue is shorter than empty"


SUMS: dict[str, Callable[[Capture], None]] = {
    "gpu_breakdown": _breakdown, "steps": _steps, "kernels": _kernels, "operators": _operators, "modules": _modules, "memcpy": _memcpy,
    "roofline": _roofline, "health": _health, "critical_path": _critical_path, "idle": _idle,
}  # fmt: skip


# -- cache ------------------------------------------------------------------------------------------------------


def survives_the_cache(c: Capture, folder: Path) -> None:
    """Written and read back, facts and tables are equal, types included."""
    cache = Cache(folder)
    assert cache.save("k", c), "the capture could not be cached"
    back = cache.load("k")
    assert back is not None and back.facts == c.facts
    for name, table in c.tables.items():
        other = back.tables[name]
        assert list(other.columns) == list(table.columns) and len(other) == len(table), name
        for column in table.columns:
            mine, theirs = table[column], other[column]
            if isinstance(mine.dtype, pd.CategoricalDtype):
                assert mine.astype(object).fillna("").tolist() == theirs.astype(object).fillna("").tolist(), f"{name}.{column}"
            else:
                assert mine.dtype == theirs.dtype and np.array_equal(mine.to_numpy(), theirs.to_numpy(), equal_nan=mine.dtype.kind == "f")


OF_EVENTS = {"steps", "health"}
"""Sums over single events, which a SOL capture does not hold."""


def _of_events(c: Capture, name: str) -> bool:
    return c.facts.source in ("proton", "memory_timeline", "memory_snapshot") or (c.facts.source == "sol_capture" and name in OF_EVENTS)
