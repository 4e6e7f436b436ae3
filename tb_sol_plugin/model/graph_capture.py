"""Finds in a recording of graph captures what each graph holds, and aligns what a graph replayed with it by names.

While a stream is captured its launches do not run: they become nodes of a graph. The recording of that time has their calls with the
operators, modules and frames around them. A recording of the replays has the kernels and the one call that launched the graph. Neither
has an id that the other knows: order and names decide, never a position alone.

CUPTI does not write which kernel a captured call launches. There, and where no capture was recorded, what ran eagerly stands in for it:
an iteration without graphs, or the warm-up that an engine runs before it captures. Its kernels have names and calls.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pandas as pd

from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.engines import iteration_of
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Mask, Rows

if TYPE_CHECKING:
    from tb_sol_plugin.model.capture import Capture

FULL: Final = "FULL"
PIECEWISE: Final = "PIECEWISE"
COPY: Final = "a copy"
SET: Final = "a memset"
"""What copies and sets are called where names are compared: calls do not say in which direction they copy."""
UNNAMED: Final = ""

_BEGIN: Final = re.compile(r"\w*StreamBeginCapture")
_END: Final = re.compile(r"\w*StreamEndCapture")
_GRAPH: Final = re.compile(r"\w*GraphLaunch")
_DISPATCH: Final = re.compile(r"\w*?(?:Launch|Memcpy|Memset)")
_ANNOTATION: Final = re.compile(r"capture_(\d{1,15})_([A-Za-z]{1,20})$")
_FILL: Final = re.compile(r"__amd_rocclr_fill", re.IGNORECASE)
_FIRST_DIMENSION: Final = re.compile(r"\[\[(\d{1,15})[,\]]")


@dataclass(frozen=True)
class Graph:
    """What one stream capture put into a graph.

    names: per captured launch the kernel, COPY, SET or UNNAMED. around: per captured launch the place in `rows` of the innermost
    operator, module, annotation or frame that began inside of the capture; -1 none. calls: per captured launch the host row of its call.
    rows: host rows of the recording that stand around captured launches, ascending. parent: place in `rows`, -1 at a root. nested: graph
    launches inside, of which no name is known.
    """

    names: tuple[str, ...]
    around: Ints
    calls: Ints
    rows: Ints
    parent: Ints
    nested: int = 0


@dataclass(frozen=True)
class CapturedRows:
    """Host rows of a recording of captures that its graphs use, and what is known of them; the rest of the recording can be let go.

    Tables as in a capture, of these rows alone; `host` columns in them are rows of this host table, whose `end` is too.
    """

    host: pd.DataFrame
    tables: dict[str, pd.DataFrame]


@dataclass(frozen=True)
class GraphSet:
    """Graphs that were captured for one batch and mode: one for FULL, one per piece for PIECEWISE.

    batch: -1 unknown. estimated: batch and mode are guessed from the operators. eager: the graphs are kernels that ran eagerly.
    """

    capture: CapturedRows = field(repr=False)
    file: str
    batch: int
    mode: str
    graphs: tuple[Graph, ...]
    estimated: bool = False
    eager: bool = False


class Stated(NamedTuple):
    """What is said of a capture besides its events."""

    batch: int
    mode: str


def stated_in(text: str, files: Iterable[str]) -> dict[str, Stated]:
    """Returns what an `execution_details.json` says of each file: a list of `{file, batch_size, mode}`. ValueError where it is none.

    Files that it names more than once are left out: each of their captures has to say itself what it is for.
    """
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("no JSON") from None
    if not isinstance(rows, list):
        raise ValueError("no list of {file, batch_size, mode}")
    wanted = set(files)
    found: dict[str, list[Stated]] = {}
    for row in rows:
        name = str(row.get("file", "")).replace("\\", "/").rpartition("/")[2] if isinstance(row, dict) else ""
        batch = row.get("batch_size") if isinstance(row, dict) else None
        if name in wanted and isinstance(batch, int) and not isinstance(batch, bool) and 0 < batch < 2**40:
            found.setdefault(name, []).append(Stated(batch, mode_of(str(row.get("mode", "")))))
    return {name: one[0] for name, one in found.items() if len(one) == 1}


def mode_of(text: str) -> str:
    """Returns PIECEWISE or FULL; what SGLang calls DECODE is the latter."""
    return PIECEWISE if text.upper() == PIECEWISE else FULL


def graph_sets(capture: Capture, file: str, stated: Stated | None = None) -> tuple[list[GraphSet], int]:
    """Returns (the graphs of a recording of captures by batch and mode, stream captures without an end or without a launch)."""
    host = _Host(capture)
    windows, lost = _windows(host)
    graphs = [(begin, _graph(host, low, high)) for begin, low, high in windows]
    there = [(begin, graph) for begin, graph in graphs if graph.names or graph.nested]
    sets: dict[tuple[int, str, bool], list[Graph]] = {}
    rest: list[tuple[int, Graph]] = []
    for begin, graph in there:
        said = _annotated(host, begin) or stated
        if said is None:
            rest.append((begin, graph))
        else:
            sets.setdefault((said.batch, said.mode, False), []).append(graph)
    if rest:
        key = (_guessed_batch(capture, [g for _, g in rest]), FULL if len(rest) == 1 else PIECEWISE, True)
        sets.setdefault(key, []).extend(graph for _, graph in rest)
    rows, own_rows = _kept(capture, [graph for own in sets.values() for graph in own])
    made = [
        GraphSet(rows, file, batch, mode, tuple(own_rows[id(graph)] for graph in own), guess)
        for (batch, mode, guess), own in sorted(sets.items())
    ]
    return made, lost + len(graphs) - len(there)


def _kept(capture: Capture, graphs: Sequence[Graph]) -> tuple[CapturedRows, dict[int, Graph]]:
    """Returns (the host rows that some graphs use, the graphs on these rows by the id of the old ones)."""
    rows = np.unique(np.concatenate([np.zeros(0, np.int64), *(part for graph in graphs for part in (graph.rows, graph.calls))]))
    host = _rows_of(capture.host, rows)
    host = host.assign(end=np.searchsorted(rows, host["end"].to_numpy()).astype(np.int32))
    tables = {}
    for name in ("operators", "frames", "calls"):
        table = capture.tables[name]
        own = table["host"].to_numpy()
        at = np.searchsorted(rows, own)
        there = np.flatnonzero(np.append(rows, -1)[at] == own)
        tables[name] = _rows_of(table, there).assign(host=at[there].astype(np.int32))
    places = (
        (id(graph), replace(graph, rows=np.searchsorted(rows, graph.rows), calls=np.searchsorted(rows, graph.calls))) for graph in graphs
    )
    return CapturedRows(host, tables), dict(places)


def _rows_of(table: pd.DataFrame, rows: Ints) -> pd.DataFrame:
    """Returns some rows of a table, and of its texts those that they use."""
    out = table.iloc[rows].reset_index(drop=True)
    texts = [str(name) for name in out if isinstance(out[name].dtype, pd.CategoricalDtype)]
    return out.assign(**{name: out[name].cat.remove_unused_categories() for name in texts})


MOST_EAGER: Final = 200
"""Eager iterations of a recording that are looked at."""
MOST_ALIKE: Final = 4
"""Eager iterations of one batch that are kept, of different kernels each."""


def eager_sets(capture: Capture, file: str, stated: Stated | None = None) -> list[GraphSet]:
    """Returns what ran eagerly in a recording, as graphs: iterations of an engine, else steps; where streams were captured in it, what ran
    before each on its thread, for the batch of that capture. Before the pieces of a batch it is the whole iteration that they are cut
    from, see `place_pieces`.
    """
    host = _Host(capture)
    host.name_by_events(capture)
    out: dict[int, dict[tuple[str, ...], Graph]] = {}
    for batch, low, high in _eager_stretches(host, capture, stated)[:MOST_EAGER]:
        graph = _graph(host, low, high)
        alike = out.setdefault(batch, {})
        if any(graph.names) and len(alike) < MOST_ALIKE:
            alike.setdefault(graph.names, graph)
    rows, own = _kept(capture, [graph for alike in out.values() for graph in alike.values()])
    return [
        GraphSet(rows, file, batch, FULL, (own[id(graph)],), eager=True) for batch, alike in sorted(out.items()) for graph in alike.values()
    ]


def _eager_stretches(host: _Host, capture: Capture, stated: Stated | None) -> list[tuple[int, int, int]]:
    """Returns (batch, first row, row after the last) of what may have run eagerly as a whole; -1 for an unknown batch."""
    windows, _ = _windows(host)
    if windows:
        out, thread, after, before = [], -1, 0, None
        for begin, _, end in windows:
            if host.thread[begin] != thread:
                thread = host.thread[begin]
                after, before = int(np.searchsorted(host.thread, thread)), None
            said = _annotated(host, begin) or stated
            if said is None or said.mode == FULL or said != before:
                out.append((-1 if said is None else said.batch, after, begin))
            after, before = end + 1, said
        return out
    below = capture.host["end"].to_numpy()
    named = {code: iteration_of(name) for code, name in enumerate(host.names)}
    roots = np.flatnonzero((host.kind == S.ANNOTATION) & np.isin(host.code, [code for code, one in named.items() if one is not None]))
    if len(roots):
        found = [(named[int(host.code[row])], row) for row in roots.tolist()]
        return [(one.batch, row + 1, int(below[row])) for one, row in found if one is not None]
    steps = capture.steps["host"].to_numpy()
    return [(-1, row + 1, int(below[row])) for row in steps[steps >= 0].tolist()]


class _Host:
    """Columns of the host table of a recording of captures."""

    def __init__(self, capture: Capture) -> None:
        table = capture.host
        self.kind, self.thread = table["kind"].to_numpy(), table["thread"].to_numpy()
        self.start, self.parent = table["start_ns"].to_numpy(), table["parent"].to_numpy()
        self.stop = self.start + table["duration_ns"].to_numpy()
        text = arrays.coded(table["name"])
        self.code, self.names = text.codes, [str(name) for name in text.categories]
        calls = capture.tables["calls"]
        kernels = arrays.coded(calls["kernel"])
        self.kernel_names = [*(str(name) for name in kernels.categories), UNNAMED]
        self.kernel = np.full(len(table), -1, np.int32)
        self.kernel[calls["host"].to_numpy()] = kernels.codes
        is_call = self.kind == S.CALL
        self.begins, self.ends, self.graphs = (is_call & self._named(p) for p in (_BEGIN, _END, _GRAPH))
        self.dispatches = is_call & self._named(_DISPATCH) & ~self.graphs

    def name_by_events(self, capture: Capture) -> None:
        """Gives each call the name of the first device event that it or a call inside of it launched."""
        device = capture.device
        call = device["call"].to_numpy()
        rows = np.flatnonzero((call >= 0) & ~device["graph"].to_numpy())
        text = arrays.coded(device["name"])
        key = text.codes[rows].astype(np.int64) * 8 + device["kind"].to_numpy()[rows] * 2 + device["copy_kernel"].to_numpy()[rows]
        code, first = arrays.numbered(key)
        kinds, copies = (device[name].to_numpy() for name in ("kind", "copy_kernel"))
        names = [replayed_name(str(text.categories[text.codes[row]]), int(kinds[row]), bool(copies[row])) for row in rows[first].tolist()]
        self.kernel_names = [*names, UNNAMED]
        self.kernel = np.full(len(self.kind), -1, np.int32)
        at = call[rows]
        while len(at):
            self.kernel[at[::-1]] = code[::-1]
            above = self.parent[at]
            up = (above >= 0) & self.dispatches[np.maximum(above, 0)] & (self.kernel[np.maximum(above, 0)] < 0)
            at, code = above[up], code[up]

    def _named(self, pattern: re.Pattern[str]) -> Mask:
        good = np.fromiter((pattern.match(name) is not None for name in self.names), bool, len(self.names))
        return np.asarray(good[self.code], np.bool_) if len(self.code) else np.zeros(0, np.bool_)


def _windows(host: _Host) -> tuple[list[tuple[int, int, int]], int]:
    """Returns ((row of the call that begins a capture, first row after it, row of the call that ends it), those without an end).

    One inside another is part of that.
    """
    out: list[tuple[int, int, int]] = []
    open_ones: list[int] = []
    lost = 0
    thread = -1
    for row in np.flatnonzero(host.begins | host.ends).tolist():
        if host.thread[row] != thread:
            lost += len(open_ones)
            open_ones, thread = [], host.thread[row]
        if host.begins[row]:
            open_ones.append(row)
        elif open_ones:
            begin = open_ones.pop()
            while out and out[-1][0] > begin:
                out.pop()
            low = begin + 1 + int(np.searchsorted(host.start[begin + 1 : row], host.stop[begin]))
            out.append((begin, low, row))
    return out, lost + len(open_ones)


def _graph(host: _Host, low: int, high: int) -> Graph:
    """Returns what the rows [low, high) of a thread put into a graph."""
    rows = low + np.flatnonzero(host.dispatches[low:high])
    above = host.parent[rows]
    rows = rows[~((above >= low) & host.dispatches[np.maximum(above, 0)])]  # a driver call inside of a runtime call is the same launch
    names = tuple(_name_of(host, row) for row in rows.tolist())
    around = _up(host, host.parent[rows], low)
    keep = np.zeros(max(high - low, 0), np.bool_)
    at = np.unique(around[around >= low])
    while len(at):
        keep[at - low] = True
        at = np.unique(_up(host, host.parent[at], low))
        at = at[at >= low]
        at = at[~keep[at - low]]
    kept = low + np.flatnonzero(keep)
    place = np.full(max(high - low, 0) + 1, -1, np.int64)
    place[kept - low] = np.arange(len(kept))
    return Graph(
        names,
        place[np.where(around >= low, around - low, -1)],
        rows,
        kept,
        place[_or_none(_up(host, host.parent[kept], low), low)],
        int(host.graphs[low:high].sum()),
    )


def _or_none(rows: Rows, low: int) -> Ints:
    return np.where(rows >= low, rows - low, -1).astype(np.int64)


def _up(host: _Host, rows: Rows, low: int) -> Rows:
    """Returns each row or the innermost one above it that is no call; -1 where that began before `low`."""
    rows = np.where(rows >= low, rows, -1)
    while len(calls := np.flatnonzero((rows >= 0) & (host.kind[np.maximum(rows, 0)] == S.CALL))):
        above = host.parent[rows[calls]]
        rows[calls] = np.where(above >= low, above, -1)
    return rows


def _name_of(host: _Host, row: int) -> str:
    name = host.names[host.code[row]]
    return host.kernel_names[host.kernel[row]] or (COPY if "Memcpy" in name else SET if "Memset" in name else UNNAMED)


def _annotated(host: _Host, row: int) -> Stated | None:
    """Returns what the innermost annotation `capture_<batch>_<mode>` around a row says."""
    while row >= 0:
        if host.kind[row] == S.ANNOTATION and (found := _ANNOTATION.match(host.names[host.code[row]])):
            return Stated(int(found[1]), mode_of(found[2]))
        row = int(host.parent[row])
    return None


def _guessed_batch(capture: Capture, graphs: Sequence[Graph]) -> int:
    """Returns the most common first dimension of the operators around captured launches; -1 where no sizes were recorded."""
    operators = capture.operator_of_host[np.concatenate([graph.rows for graph in graphs])]
    shapes = arrays.coded(capture.tables["operators"]["shapes"])
    codes, count = np.unique(shapes.codes[operators[operators >= 0]], return_counts=True)
    votes: Counter[int] = Counter()
    for code, often in zip(codes.tolist(), count.tolist(), strict=True):
        if found := _FIRST_DIMENSION.match(str(shapes.categories[code])):
            votes[int(found[1])] += often
    return max(votes, key=lambda size: (votes[size], -size)) if votes else -1


# -- alignment -------------------------------------------------------------------------------------------------------


def narrowed(graph: Graph, low: int, high: int) -> Graph:
    """Returns the captured launches from `low` up to `high` of a graph, with the rows around them alone."""
    keep = np.zeros(len(graph.rows), np.bool_)
    at = np.unique(graph.around[low:high])
    at = at[at >= 0]
    while len(at):
        keep[at] = True
        at = np.unique(graph.parent[at])
        at = at[at >= 0]
        at = at[~keep[at]]
    place = np.append(np.where(keep, np.cumsum(keep) - 1, -1), -1)  # the last for none
    around, parent = place[graph.around[low:high]], place[graph.parent[keep]]
    return Graph(graph.names[low:high], around, graph.calls[low:high], graph.rows[keep], parent, graph.nested)


def graph_names(graph: Graph) -> bool:
    """Whether the name of a kernel that went into a graph is known."""
    return not {*graph.names} <= {COPY, SET, UNNAMED}


def replayed_name(name: str, kind: int, copy_kernel: bool) -> str:
    """Returns what a device event is called where it is compared with captured launches."""
    if kind == S.MEMCPY or copy_kernel:
        return COPY
    return SET if kind == S.MEMSET or _FILL.match(name) else name


class Aligned(NamedTuple):
    """An alignment of one replay. how: index into ALIGNMENTS, -1 none. place: per event its captured launch; none: the events that
    agree, in order, from the first on.
    """

    how: int
    place: Ints


def align(events: Ints, streams: Ints, launches: Ints) -> Aligned:
    """Aligns the events of one replay, by start, with the launches of a capture, in order; both as codes of names.

    A code below zero is equal to none. In this order: same names in the same order; the same with launches before and behind, the last
    such run; a forward scan that leaves out launches and never events; the same names in another order, then the n-th of each name; per
    stream first in first out, where several could take a launch the one that goes on longest.
    """
    if len(events) == len(launches) and len(events) and bool((events == launches).all()) and bool((events >= 0).all()):
        return Aligned(0, np.arange(len(events)))
    run = _run_of(events, launches)
    if run >= 0:
        return Aligned(1, np.arange(run, run + len(events)))
    scanned = _scan(events.tolist(), launches.tolist())
    if len(scanned) == len(events) > 0:
        return Aligned(1, np.asarray(scanned, np.int64))
    if len(events) == len(launches) and bool((np.sort(events) == np.sort(launches)).all()) and bool((events >= 0).all()):
        place = np.empty(len(events), np.int64)
        place[np.argsort(events, kind="stable")] = np.argsort(launches, kind="stable")
        return Aligned(2, place)
    by_stream = _by_stream(events, streams, launches)
    if by_stream is not None:
        return Aligned(3, by_stream)
    return Aligned(-1, np.asarray(scanned, np.int64))


def _run_of(events: Ints, launches: Ints) -> int:
    """Returns where the last run of launches begins that is the same as the events, of more launches than events; -1 none."""
    if not len(events) or len(events) >= len(launches) or bool((events < 0).any()):
        return -1
    return _last(events, launches)


def _last(events: Ints, launches: Ints) -> int:
    """Returns where the last run of launches begins that is the same as the events, -1 where there is none."""
    text, wanted = (np.ascontiguousarray(codes, np.int64).tobytes() for codes in (launches, events))
    at = text.rfind(wanted)
    while at > 0 and at % 8:
        at = text.rfind(wanted, 0, at + len(wanted) - 1)
    return at // 8 if at >= 0 else -1


def _first(events: Ints, launches: Ints, low: int) -> int:
    """Returns where the first run of launches from `low` on begins that is the same as the events, -1 where there is none."""
    text, wanted = (np.ascontiguousarray(codes, np.int64).tobytes() for codes in (launches, events))
    at = text.find(wanted, 8 * low)
    while at >= 0 and at % 8:
        at = text.find(wanted, at + 1)
    return at // 8 if at >= 0 else -1


def place_pieces(pieces: Sequence[Ints], launches: Ints) -> list[int] | None:
    """Returns where each piece of an iteration begins in what ran eagerly: each in a row, one behind the other, all as codes of names.

    The last such places; an eager run may hold an iteration more than once. None where there are none, where names leave a choice among
    several, and where most launches between the first and the last piece are of none.
    """
    if not pieces or any(not len(piece) or bool((piece < 0).any()) for piece in pieces):
        return None
    found = _pieces_before(pieces, launches, len(launches))
    if found is None:
        return None
    end = found[-1] + len(pieces[-1])
    if end - found[0] > 2 * sum(map(len, pieces)):
        return None
    at = found[0]
    for piece, place in zip(pieces, found, strict=True):  # within these ends there is no other way
        if _first(piece, launches, at) != place:
            return None
        at = place + len(piece)
    other = _pieces_before(pieces, launches, end - 1)
    low = 0 if other is None else other[-1] + len(pieces[-1])
    if low > found[0] or 0 <= _first(pieces[0], launches, low) < found[0]:
        return None
    return found


def _pieces_before(pieces: Sequence[Ints], launches: Ints, end: int) -> list[int] | None:
    """Returns the last places of some pieces, one behind the other, before `end`; None where there are none."""
    out = []
    for piece in reversed(pieces):
        end = _last(piece, launches[:end])
        if end < 0:
            return None
        out.append(end)
    return out[::-1]


def _scan(events: list[int], launches: list[int]) -> list[int]:
    """Returns the place of each event among the launches, up to the first event that comes nowhere after the one before."""
    out: list[int] = []
    at = 0
    for event in events:
        if event < 0:
            break
        try:
            at = launches.index(event, at) + 1
        except ValueError:
            break
        out.append(at - 1)
    return out


def _by_stream(events: Ints, streams: Ints, launches: Ints) -> Ints | None:
    """Returns the place of each event where every stream keeps the order of the launches; None where they do not fit."""
    names = np.unique(streams)
    if len(names) < 2 or bool((events < 0).any()):
        return None
    queues = [np.flatnonzero(streams == name) for name in names]
    left = [events[queue].tolist() for queue in queues]
    head = [0] * len(queues)
    order = launches.tolist()
    out = np.full(len(events), -1, np.int64)
    for place, name in enumerate(order):
        able = [k for k in range(len(queues)) if head[k] < len(left[k]) and left[k][head[k]] == name]
        if not able:
            continue
        k = able[0] if len(able) == 1 else max(able, key=lambda k: (_run(left[k], head[k], order, place), -k))
        out[queues[k][head[k]]] = place
        head[k] += 1
    return out if bool((out >= 0).all()) else None


def _run(queue: list[int], head: int, order: list[int], place: int) -> int:
    """Returns how many names from here on are the same in a stream and among the launches."""
    count = 0
    while head + count < len(queue) and place + count < len(order) and queue[head + count] == order[place + count]:
        count += 1
    return count
