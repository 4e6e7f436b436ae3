"""Gives the device events that a graph replayed the operators, sizes, frames and modules of the calls that were captured into the graph.

Below the call that launched a graph the rows that stood around its captured launches are put into the host table, once per launch: they
took no time there, and take none here. Every replayed event keeps its own time and its launch; what it belongs to changes, no sum does.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.engines import UNKNOWN, iteration_of
from tb_sol_plugin.model.graph_capture import (
    FULL,
    PIECEWISE,
    Aligned,
    CapturedRows,
    Graph,
    GraphSet,
    align,
    graph_names,
    narrowed,
    replayed_name,
)
from tb_sol_plugin.model.recordings import EAGER_RUN, GRAPH_CAPTURE
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables.arrays import Coded, Ints, Mask

NOT_USED: Final = "a recording of graph captures is not used: "
MOST_ROWS: Final = 500_000
"""Host rows put below graph launches; where they would be more, python frames are left out."""
MOST_WITHOUT_FRAMES: Final = 4_000_000
"""Without frames too there are no more: graphs that were launched later keep no names."""
_SHOWN: Final = 60


@dataclass
class _Launch:
    """One graph launch of the recording of replays. events: its device rows by start. set, graph, aligned: what it was found to be."""

    host: int
    events: Ints
    root: int
    order: int = 0
    of_root: int = 1
    batch: int = UNKNOWN
    set: GraphSet | None = None
    graph: Graph | None = None
    aligned: Aligned = field(default_factory=lambda: Aligned(-1, np.zeros(0, np.int64)))
    why: str = ""


def with_graphs(capture: Capture, sets: Sequence[GraphSet], *, problems: Sequence[str] = ()) -> Capture:
    """Returns the recording with what its graph replays are aligned with; itself, with a warning, where none of them is.

    sets: graphs of the recordings of captures at hand. problems: of such recordings that cannot be used, for the warnings.
    """
    launches = _launches(capture)
    _find_all(launches, sets, _Names(capture, sets))
    used = {one.set.file for one in launches if one.set is not None}
    warnings = [w for w in capture.facts.warnings if not w.startswith(NOT_USED)] + [NOT_USED + line for line in problems]
    warnings += [NOT_USED + _unused(file, launches) for file in dict.fromkeys(s.file for s in sets if s.file not in used)]
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


def _files_in_use(launches: Sequence[_Launch], sets: Sequence[GraphSet]) -> dict[str, str]:
    """Returns the files whose names are used, in order: of captures and of eager runs."""
    out = {}
    for key, eager in ((GRAPH_CAPTURE, False), (EAGER_RUN, True)):
        files = {one.set.file for one in launches if one.set is not None and one.set.eager == eager}
        if files:
            out[key] = ", ".join(file for file in dict.fromkeys(s.file for s in sets) if file in files)
    return out


def _unused(file: str, launches: Sequence[_Launch]) -> str:
    if not launches:
        return f"{file}: nothing here was launched by a graph"
    first = next((one for one in launches if one.why), launches[0])
    return f"{file}: none of the {len(launches):,} graph launches here has its names; {first.why or 'another recording has them'}"


# -- launches and their graphs ------------------------------------------------------------------------------------------


def _launches(capture: Capture) -> list[_Launch]:
    """Returns the graph launches that replayed device events, with the iteration around each."""
    rows = np.flatnonzero(capture.device["graph"].to_numpy())
    call = capture.device["call"].to_numpy()[rows]
    order = np.argsort(call, kind="stable")  # device rows stand by start
    rows, call = rows[order], call[order]
    bounds = [0, *(np.flatnonzero(call[1:] != call[:-1]) + 1).tolist(), len(call)]
    made = [_Launch(int(call[i]), rows[i:j], -1) for i, j in itertools.pairwise(bounds) if j > i]
    host = capture.host
    start = host["start_ns"].to_numpy()
    made.sort(key=lambda one: (int(start[one.host]), one.host))
    if not made:
        return made
    text = arrays.coded(host["name"])
    is_root = np.fromiter((iteration_of(str(name)) is not None for name in text.categories), bool, len(text.categories))
    mask = (host["kind"].to_numpy() == S.ANNOTATION) & is_root[text.codes]
    calls = np.array([one.host for one in made], np.int32)
    roots = tree.nearest(mask, host["parent"].to_numpy(), start + host["duration_ns"].to_numpy(), calls, start[calls])
    of_root: dict[int, list[_Launch]] = {}
    for one, root, step in zip(made, roots.tolist(), _steps(capture, start[calls]).tolist(), strict=True):
        one.root = root if root >= 0 else -2 - step
        found = iteration_of(str(text.categories[text.codes[root]])) if root >= 0 else None
        one.batch = found.batch if found is not None else UNKNOWN
        one.order = len(of_root.setdefault(one.root, []))
        of_root[one.root].append(one)
    for own in of_root.values():
        for one in own:
            one.of_root = len(own)
    return made


def _steps(capture: Capture, at: Ints) -> Ints:
    """Returns the recorded step that holds each time, -1 none."""
    begin, end = (capture.steps[name].to_numpy() for name in ("host_start_ns", "host_end_ns"))
    place = np.searchsorted(begin, at, side="right") - 1
    return np.where((place >= 0) & (at < end[np.maximum(place, 0)]), place, -1)


class _Names:
    """Names of replayed events and of captured launches as numbers, the same for the same name; alignments, once per kind of replay."""

    def __init__(self, capture: Capture, sets: Sequence[GraphSet]) -> None:
        numbers: dict[str, int] = {}
        self.of_graph: dict[int, Ints] = {}
        for graph in (graph for one in sets for graph in one.graphs):
            codes = [numbers.setdefault(name, len(numbers)) if name else -2 for name in graph.names]
            self.of_graph[id(graph)] = np.array(codes, np.int64)
        device = capture.device
        text = arrays.coded(device["name"])
        kind, copies = device["kind"].to_numpy(), device["copy_kernel"].to_numpy()
        key = text.codes.astype(np.int64) * 8 + kind * 2 + copies
        code, first = arrays.numbered(key)
        self.text = [
            replayed_name(str(text.categories[text.codes[row]]), int(kind[row]), bool(copies[row])) for row in first.tolist()
        ]
        self._of_event = np.array([numbers.get(name, -1) for name in self.text], np.int64)
        self._code = code
        self._stream = device["stream"].to_numpy()
        self._parts: dict[tuple[int, int, int], Graph] = {}
        self._known: dict[tuple[bytes, bytes, int], Aligned] = {}

    def aligned(self, events: Ints, graph: Graph) -> Aligned:
        """Returns the alignment of some device rows with what a graph holds."""
        own, streams = self._of_event[self._code[events]], self._stream[events]
        several = bool((streams != streams[0]).any())
        key = (own.tobytes(), streams.tobytes() if several else b"", id(graph))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = align(own, streams, self.of_graph[id(graph)])
        return found

    def own_part(self, graph: Graph, found: Aligned) -> tuple[Graph, Aligned]:
        """Returns the launches of a graph from the first to the last that is aligned, and their alignment; the same object each time."""
        low, high = int(found.place.min()), int(found.place.max()) + 1
        key = (id(graph), low, high)
        if key not in self._parts:
            self._parts[key] = narrowed(graph, low, high)
        return self._parts[key], Aligned(found.how, found.place - low)

    def shown(self, row: int) -> str:
        return _short(self.text[self._code[row]])


def _find_all(launches: Sequence[_Launch], sets: Sequence[GraphSet], names: _Names) -> None:
    """Finds the graphs of all launches: among captures, which say more; else among what ran eagerly."""
    captured, eager = [s for s in sets if not s.eager], [s for s in sets if s.eager]
    named = any(graph_names(graph) for one in captured for graph in one.graphs)
    for one in launches:
        _find(one, captured, names)
        if one.set is None and eager:
            why = one.why if named else ""
            _find(one, eager, names)
            one.why = "" if one.set is not None else why or one.why


def _find(one: _Launch, sets: Sequence[GraphSet], names: _Names) -> None:
    """Finds the graph of a launch among those of its batch, by names; else says what differs."""
    chosen, one.why = _choice(one, sets)
    ambiguous = one.batch == UNKNOWN and len({s.batch for s in chosen}) > 1
    best = -1
    for candidate in chosen:
        for graph in _in_question(one, candidate):
            found = names.aligned(one.events, graph)
            if found.how >= 0 and not (candidate.eager and _scattered(found.place)):
                if ambiguous and one.set is not None and one.set.batch != candidate.batch:
                    sizes = f"{one.set.batch} and {candidate.batch}"
                    one.set, one.graph, one.why = None, None, f"graphs of batches {sizes} have its names, and no iteration tells its batch"
                    return
                if one.set is None:
                    one.set, one.why = candidate, ""
                    one.graph, one.aligned = names.own_part(graph, found) if candidate.eager else (graph, found)
                break
            if len(found.place) > best:
                best = len(found.place)
                if one.set is None:
                    one.why = _differs(one, candidate, graph, found, names)
        if one.set is not None and not ambiguous:
            return


def _scattered(place: Ints) -> bool:
    """Whether most of the launches between the first and the last of some are left out: any kernels stand somewhere in a long run."""
    return int(place.max() - place.min()) + 1 > 2 * len(place)


def _in_question(one: _Launch, candidate: GraphSet) -> Sequence[Graph]:
    """Returns the graphs that a launch may be of: its own piece; of FULL all, its own place first where there are as many launches."""
    graphs = candidate.graphs
    if candidate.mode == PIECEWISE and len(graphs) > 1:
        return (graphs[one.order],)
    if len(graphs) == one.of_root:
        return (graphs[one.order], *(g for k, g in enumerate(graphs) if k != one.order))
    return graphs


def _choice(one: _Launch, sets: Sequence[GraphSet]) -> tuple[list[GraphSet], str]:
    """Returns the sets that a launch may be of, and why there is none: the smallest batch captured at or above its own, FULL where its
    iteration launches one graph.
    """
    if not sets:
        return [], ""
    if one.of_root > 1 and all(s.eager for s in sets):
        return [], f"its iteration launches {one.of_root:,} graphs, and what ran eagerly does not tell where each begins"
    if one.batch == UNKNOWN:
        found = list(sets)
    else:
        found = []
        modes = (FULL, PIECEWISE) if one.of_root == 1 else (PIECEWISE, FULL)
        for mode in modes:
            of_mode = [s for s in sets if s.mode == mode]
            fitting = [s.batch for s in of_mode if s.batch >= one.batch]
            found = [s for s in of_mode if s.batch == min(fitting)] if fitting else [s for s in of_mode if s.batch == UNKNOWN]
            if found:
                break
        if not found:
            most = max((s.batch for s in sets), default=UNKNOWN)
            return [], f"its batch of {one.batch:,} is larger than any that was captured, {most:,} at most"
    there = [s for s in found if s.mode == FULL or len(s.graphs) in (1, one.of_root)]
    if there:
        return there, ""
    pieces = f"{len(found[0].graphs):,} pieces were captured for batch {found[0].batch:,}"
    return [], f"its iteration launches {one.of_root:,} graphs where {pieces}"


def _differs(one: _Launch, candidate: GraphSet, graph: Graph, found: Aligned, names: _Names) -> str:
    """Returns the first difference of a replay and a graph."""
    agreed = len(found.place)
    text = f"the first {agreed:,} of its {len(one.events):,} events have the names of {_where(candidate)}"
    if agreed < len(one.events):
        after = int(found.place[-1]) + 1 if agreed else 0
        captured = repr(_short(graph.names[after]) or "a launch without a name") if after < len(graph.names) else "nothing more"
        text += f", then {names.shown(int(one.events[agreed]))!r} was replayed where {captured} was captured"
    if graph.names and not any(graph.names):
        text += "; the recording of captures does not name the kernels that its calls launch"
    if graph.nested:
        text += f"; {graph.nested:,} other graphs were launched while it was captured, and what they hold is not known"
    return text


def _where(one: GraphSet) -> str:
    if one.eager:
        return f"what ran eagerly {'at an unknown batch' if one.batch < 0 else f'at batch {one.batch:,}'} in {one.file}"
    return f"the {one.mode} graph {'of unknown batch' if one.batch < 0 else f'for batch {one.batch:,}'} in {one.file}"


def _short(name: str) -> str:
    return name if len(name) <= _SHOWN else name[: _SHOWN - 1] + "…"


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


def _grafted(capture: Capture, launches: list[_Launch]) -> dict[str, pd.DataFrame]:
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


def _copies(capture: Capture, launches: list[_Launch]) -> list[_Copies]:
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


def _graph_of(one: _Launch) -> Graph:
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
    capture: Capture, launches: list[_Launch], copies: list[_Copies], moved: Ints, base: Ints, size: Ints
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
    capture: Capture, launches: list[_Launch], copies: list[_Copies], moved: Ints, base: Ints, kinds: npt.NDArray[np.int8]
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


def _launch_sizes(capture: Capture, launches: list[_Launch], copies: list[_Copies]) -> dict[str, Coded]:
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


def _table(capture: Capture, launches: list[_Launch], rows: dict[int, int], moved: Ints) -> pd.DataFrame:
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
