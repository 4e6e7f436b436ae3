"""Gives the device events that a graph replayed the operators, sizes, frames and modules of the calls that were captured into the graph.

Below the call that launched a graph the rows that stood around its captured launches are put into the host table, once per launch: they
took no time there, and take none here. Every replayed event keeps its own time and its launch; what it belongs to changes, no sum does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.graph_capture import (
    CapturedRows,
    Graph,
    GraphSet,
)
from tb_sol_plugin.model.graph_find import Launch, Names, find_all, launches_of
from tb_sol_plugin.model.recordings import EAGER_RUN, GRAPH_CAPTURE
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Coded, Ints, Mask

NOT_USED: Final = "a recording of graph captures is not used: "
MOST_ROWS: Final = 500_000
"""Host rows put below graph launches; where they would be more, python frames are left out."""
MOST_WITHOUT_FRAMES: Final = 4_000_000
"""Without frames too there are no more: graphs that were launched later keep no names."""


def with_graphs(capture: Capture, sets: Sequence[GraphSet], *, problems: Sequence[str] = ()) -> Capture:
    """Returns the recording with what its graph replays are aligned with; itself, with a warning, where none of them is.

    sets: graphs of the recordings of captures at hand. problems: of such recordings that cannot be used, for the warnings.
    """
    launches = launches_of(capture)
    find_all(launches, sets, Names(capture, sets))
    used = {one.set.file for one in launches if one.set is not None}
    warnings = [w for w in capture.facts.warnings if not w.startswith(NOT_USED)] + [NOT_USED + line for line in problems]
    warnings += [NOT_USED + line for line in _unused(launches, [*dict.fromkeys(s.file for s in sets if s.file not in used)])]
    tables = dict(capture.tables)
    if used:
        tables |= _grafted(capture, launches)
        left = sum(len(_graph_of(one).rows) for one in launches if one.set is not None) - int(tables[S.GRAPH_LAUNCHES.name]["rows"].sum())
        if left:
            warnings.append(f"{left:,} Python frames of captured graphs are left out: replays have operators and modules, and no stacks")
    elif launches:
        tables[S.GRAPH_LAUNCHES.name] = _table(capture, launches, {}, np.arange(len(capture.host)))
    metadata = {k: v for k, v in capture.facts.metadata.items() if k not in (GRAPH_CAPTURE, EAGER_RUN)}
    metadata |= _files_in_use(launches, sets)
    facts = msgspec.structs.replace(capture.facts, metadata=metadata, warnings=tuple(warnings))
    return Capture(facts, tables, run=capture.run, worker=capture.worker, span=capture.span, devices=capture.devices)


def _files_in_use(launches: Sequence[Launch], sets: Sequence[GraphSet]) -> dict[str, str]:
    """Returns the files whose names are used, in order: of captures and of eager runs."""
    out = {}
    for key, eager in ((GRAPH_CAPTURE, False), (EAGER_RUN, True)):
        files = {one.set.file for one in launches if one.set is not None and one.set.eager == eager}
        if files:
            out[key] = ", ".join(file for file in dict.fromkeys(s.file for s in sets) if file in files)
    return out


MOST_UNUSED: Final = 3
"""Recordings that are named one by one where they are of no use; an engine may write one per batch."""


def _unused(launches: Sequence[Launch], files: Sequence[str]) -> list[str]:
    """Returns why recordings are not used: nothing where every launch has its names from others, as of other batches."""
    if not launches:
        return [f"{file}: nothing here was launched by a graph" for file in files[:MOST_UNUSED]]
    first = next((one for one in launches if one.set is None), None)
    if first is None:
        return []
    count = f"none of the {len(launches):,} graph launches here has its names"
    why = f"; {first.why}" if first.why else ""
    more = len(files) - MOST_UNUSED
    return [f"{file}: {count}{why}" for file in files[:MOST_UNUSED]] + ([f"{more:,} more: {count} either"] if more > 0 else [])


# -- new tables ---------------------------------------------------------------------------------------------------------


class _Copies(NamedTuple):
    """A graph as it is put below its launches. rows: host rows of its recording. around: per captured launch its place in them, -1.

    parent, depth, end: within `rows`. at: launches, by their place in the list of all.
    """

    set: GraphSet
    rows: Ints
    around: Ints
    parent: Ints
    at: list[int]


def _grafted(capture: Capture, launches: list[Launch]) -> dict[str, pd.DataFrame]:
    """Returns the tables that change."""
    copies = _copies(capture, launches)
    size = np.zeros(len(launches), np.int64)
    for one in copies:
        size[one.at] = len(one.rows)
    calls = np.array([one.host for one in launches], np.int64)
    added = np.zeros(len(capture.host) + 1, np.int64)
    added[calls + 1] = size
    moved = np.cumsum(added)[:-1] + np.arange(len(capture.host))  # new place of each host row
    base = moved[calls] + 1
    host, kinds = _host(capture, launches, copies, moved, base, size)
    replays, owners = _replays(capture, launches, copies, moved, base, kinds)
    tables = _moved_tables(capture, moved)
    tables["host"] = host
    tables["device"] = _replaced(tables["device"], owners | _launch_sizes(capture, launches, copies))
    for name, columns in (
        ("operators", ("external_id", "shapes", "types", "strides", "concrete", "extra")),
        ("frames", ("python_id", "python_parent_id", "module_id")),
    ):
        tables[name] = _with_rows(tables[name], S.ALL[name], columns, copies, base)
    tables[S.REPLAYS.name] = replays
    tables[S.GRAPH_LAUNCHES.name] = _table(capture, launches, {place: int(n) for place, n in enumerate(size.tolist())}, moved)
    return tables


def _copies(capture: Capture, launches: list[Launch]) -> list[_Copies]:
    """Returns each graph that was found with its launches, python frames left out where all would be too many rows."""
    by_graph: dict[int, list[int]] = {}
    for place, one in enumerate(launches):
        if one.graph is not None:
            by_graph.setdefault(id(one.graph), []).append(place)
    whole = sum(len(_graph_of(launches[at[0]]).rows) * len(at) for at in by_graph.values())
    out, left = [], MOST_WITHOUT_FRAMES
    for at in by_graph.values():
        first = launches[at[0]]
        assert first.set is not None
        graph = _graph_of(first)
        rows, around, parent = graph.rows, graph.around, graph.parent
        if whole > MOST_ROWS:
            rows, around, parent = _without_frames(first.set.capture, graph)
            fit = left // max(len(rows), 1)
            for place in at[fit:]:
                launches[place].set = launches[place].graph = None
                launches[place].why = f"more than {MOST_WITHOUT_FRAMES:,} rows of captured graphs are not kept"
            at = at[:fit]
            left -= len(rows) * len(at)
        if at:
            out.append(_Copies(first.set, rows, around, parent, at))
    return out


def _graph_of(one: Launch) -> Graph:
    assert one.graph is not None
    return one.graph


def _without_frames(capture: CapturedRows, graph: Graph) -> tuple[Ints, Ints, Ints]:
    keep = capture.host["kind"].to_numpy()[graph.rows] != S.FRAME
    up = np.where(keep, np.arange(len(keep)), graph.parent)  # of a frame what is above it, until that is none
    for row in range(len(keep)):  # parents stand first
        if not keep[row] and up[row] >= 0:
            up[row] = up[up[row]]
    place = np.append(np.where(keep, np.cumsum(keep) - 1, -1), -1)
    around, parent = (place[np.where(rows >= 0, up[rows], -1)] for rows in (graph.around, graph.parent))
    return graph.rows[keep], around, parent[keep]


def _host(
    capture: Capture, launches: list[Launch], copies: list[_Copies], moved: Ints, base: Ints, size: Ints
) -> tuple[pd.DataFrame, npt.NDArray[np.int8]]:
    """Returns the host table with the rows of captures below their launches, and the kind of each row."""
    old = capture.host
    total = len(old) + int(size.sum())
    columns: dict[str, Any] = {}
    for name, declared in S.HOST.fields.items():
        if declared.dtype == "category":
            columns[name] = _Text(old[name], total, moved)
        else:
            columns[name] = np.zeros(total, declared.dtype)
            columns[name][moved] = old[name].to_numpy()
    parent, end = old["parent"].to_numpy(), old["end"].to_numpy()
    columns["parent"][moved] = np.where(parent >= 0, moved[np.maximum(parent, 0)], -1)
    columns["end"][moved] = np.append(moved, total)[end]
    calls = np.array([one.host for one in launches], np.int64)
    thread, start, depth = (old[name].to_numpy()[calls] for name in ("thread", "start_ns", "depth"))
    for one in copies:
        source, count = one.set.capture.host, len(one.rows)
        first = base[one.at]
        at = (first[:, None] + np.arange(count)).ravel()
        level = np.zeros(count, np.int64)
        last = np.searchsorted(one.rows, source["end"].to_numpy()[one.rows], side="left")
        for row in range(count):  # parents stand first
            level[row] = level[one.parent[row]] + 1 if one.parent[row] >= 0 else 0
        many = len(one.at)
        columns["name"].put(at, source["name"], np.tile(one.rows, many))
        columns["category"].put(at, source["category"], np.tile(one.rows, many))
        columns["kind"][at] = np.tile(source["kind"].to_numpy()[one.rows], many)
        columns["thread"][at] = np.repeat(thread[one.at], count)
        columns["start_ns"][at] = np.repeat(start[one.at], count)
        above = first[:, None] + np.where(one.parent >= 0, one.parent, -1)[None, :]  # -1: the row before the first, the launch
        columns["parent"][at] = above.ravel()
        columns["depth"][at] = (depth[one.at].astype(np.int64)[:, None] + 1 + level).ravel()
        columns["end"][at] = (first[:, None] + last).ravel()
        columns["index"][at] = -1
    return S.HOST.frame({name: c.column() if isinstance(c, _Text) else c for name, c in columns.items()}), columns["kind"]


class _Text:
    """A dictionary-encoded column that grows by texts of other recordings."""

    def __init__(self, old: pd.Series, total: int, moved: Ints) -> None:
        text = arrays.coded(old)
        self._places = {str(name): place for place, name in enumerate(text.categories)}
        self._codes = np.full(total, -1, np.int32)
        self._codes[moved] = text.codes

    def put(self, at: Ints, source: pd.Series, rows: Ints) -> None:
        """Sets rows `at` to the texts of `rows` of another column."""
        text = arrays.coded(source)
        code = text.codes[rows]
        table = np.full(len(text.categories) + 1, -1, np.int32)
        for used in np.unique(code[code >= 0]).tolist():
            table[used] = self._places.setdefault(str(text.categories[used]), len(self._places))
        self._codes[at] = table[code]

    def column(self) -> Coded:
        return pd.Categorical.from_codes(self._codes, dtype=pd.CategoricalDtype(pd.Index(list(self._places), dtype=object)), validate=False)


def _replays(
    capture: Capture, launches: list[Launch], copies: list[_Copies], moved: Ints, base: Ints, kinds: npt.NDArray[np.int8]
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Returns (table of replays, new owners of all device rows)."""
    device = capture.device
    owners = {}
    for name in ("operator", "module", "annotation"):
        old = device[name].to_numpy()
        owners[name] = np.where(old >= 0, moved[np.maximum(old, 0)], -1).astype(np.int32)
    rows, origins = [], []
    for one in copies:
        nearest = {name: _nearest(kinds[base[one.at[0]] + np.arange(len(one.rows))] == kind, one.parent) for name, kind in _OWNERS}
        for place in one.at:
            launch = launches[place]
            around = one.around[launch.aligned.place]
            has = around >= 0
            events = launch.events[has]
            rows.append(events)
            origins.append(base[place] + around[has])
            for name, own in nearest.items():
                found = own[around[has]]
                owners[name][events[found >= 0]] = base[place] + found[found >= 0]
    table = {"device": np.concatenate(rows) if rows else np.zeros(0), "origin": np.concatenate(origins) if origins else np.zeros(0)}
    order = np.argsort(table["device"], kind="stable")
    return S.REPLAYS.frame({name: values[order] for name, values in table.items()}), owners


def _launch_sizes(capture: Capture, launches: list[Launch], copies: list[_Copies]) -> dict[str, Coded]:
    """Returns the columns `grid` and `block` of all device rows: where a replay has none, those that its launch was captured with."""
    out = {}
    for name in ("grid", "block"):
        old = capture.device[name]
        text = _Text(old, len(old), np.arange(len(old)))
        missing = ~arrays.where(old, bool)
        for one in copies:
            calls = one.set.capture.tables["calls"]
            rows = np.searchsorted(calls["host"].to_numpy(), _graph_of(launches[one.at[0]]).calls)
            events = np.concatenate([launches[k].events for k in one.at])
            places = np.concatenate([launches[k].aligned.place for k in one.at])
            own = missing[events]
            text.put(events[own], calls[name], rows[places[own]])
        out[name] = text.column()
    return out


_OWNERS: Final = (("operator", S.OPERATOR), ("module", S.MODULE), ("annotation", S.ANNOTATION))


def _nearest(mask: Mask, parent: Ints) -> Ints:
    """Returns per row itself or the innermost row of the mask above it, -1 none; parents stand first."""
    out = np.where(mask, np.arange(len(mask)), -1)
    for row in range(len(mask)):
        if out[row] < 0 and parent[row] >= 0:
            out[row] = out[parent[row]]
    return out


_HOST_ROWS: Final = {
    "device": ("call",),
    "operators": ("host",),
    "calls": ("host",),
    "frames": ("host",),
    "steps": ("host",),
    "backward": ("forward", "backward"),
    "ledger": ("module_host", "phase_host"),
}
"""Columns that hold host rows, but for owners of device rows."""


def _moved_tables(capture: Capture, moved: Ints) -> dict[str, pd.DataFrame]:
    out = {}
    for name, columns in _HOST_ROWS.items():
        table = capture.tables[name]
        values = {column: table[column].to_numpy() for column in columns}
        places = {column: np.where(rows >= 0, moved[np.maximum(rows, 0)], -1).astype(np.int32) for column, rows in values.items()}
        out[name] = _replaced(table, places)
    return out


def _replaced(table: pd.DataFrame, columns: dict[str, Any]) -> pd.DataFrame:
    """Returns a table with other columns under some names; the rest is not copied."""
    out = table.copy(deep=False)
    for name, values in columns.items():
        out[name] = values
    return out


def _with_rows(table: pd.DataFrame, schema: Any, columns: Sequence[str], copies: list[_Copies], base: Ints) -> pd.DataFrame:
    """Returns a side table of host rows with those of captured graphs, in order of host rows. Other columns are as of none."""
    hosts, sources = [table["host"].to_numpy()], []
    for one in copies:
        source = one.set.capture.tables[schema.name]
        own = source["host"].to_numpy()
        place = np.searchsorted(own, one.rows)
        there = np.flatnonzero(np.append(own, -1)[place] == one.rows)
        hosts.append((base[one.at][:, None] + there).ravel())
        sources.append((source, np.tile(place[there], len(one.at))))
    host = np.concatenate(hosts)
    order = np.argsort(host, kind="stable")
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    out: dict[str, Any] = {"host": host[order].astype(np.int32)}
    for name, declared in schema.fields.items():
        if name == "host":
            continue
        done = len(table)
        if declared.dtype == "category":
            text = _Text(table[name], len(host), back[:done])
            for source, rows in sources:
                text.put(back[done : done + len(rows)], source[name], rows)
                done += len(rows)
            out[name] = text.column()
        else:
            out[name] = np.full(len(host), -1, declared.dtype)
            out[name][back[:done]] = table[name].to_numpy()
            for source, rows in sources:
                if name in columns:
                    out[name][back[done : done + len(rows)]] = source[name].to_numpy()[rows]
                done += len(rows)
    return pd.DataFrame(schema.frame(out))


def _table(capture: Capture, launches: list[Launch], rows: dict[int, int], moved: Ints) -> pd.DataFrame:
    """Returns one row per graph launch, in order of time."""
    duration = capture.device["duration_ns"].to_numpy()
    return S.GRAPH_LAUNCHES.frame(
        {
            "host": [int(moved[one.host]) for one in launches],
            "rows": [rows.get(place, 0) for place in range(len(launches))],
            "events": [len(one.events) for one in launches],
            "device_ns": [int(duration[one.events].sum()) for one in launches],
            "how": [one.aligned.how if one.set is not None else -1 for one in launches],
            "batch": [one.batch for one in launches],
            "captured_batch": [one.set.batch if one.set is not None and not one.set.eager else -1 for one in launches],
            "mode": pd.Categorical([one.set.mode if one.set is not None and not one.set.eager else "" for one in launches]),
            "file": pd.Categorical([one.set.file if one.set is not None else "" for one in launches]),
            "eager": [one.set is not None and one.set.eager for one in launches],
            "why": pd.Categorical([one.why for one in launches]),
        }
    )
