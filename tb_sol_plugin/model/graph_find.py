"""Finds which captured graph, or which eager work, each graph launch of a recording replayed, by batch and by names."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.engines import UNKNOWN, iteration_of
from tb_sol_plugin.model.graph_capture import (
    FULL,
    PIECEWISE,
    Aligned,
    Graph,
    GraphSet,
    align,
    graph_names,
    narrowed,
    place_pieces,
    replayed_name,
)
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables.arrays import Ints

_SHOWN: Final = 60
OUTSIDE: Final = -1
"""Root of the launches in no iteration and no step: nothing tells which of them belong together."""


@dataclass
class Launch:
    """One graph launch of the recording of replays. events: its device rows by start. set, graph, aligned: what it was found to be.

    root: host row of the annotation of its iteration, -2 less its step where no annotation is around it, OUTSIDE where neither is.
    """

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


def launches_of(capture: Capture) -> list[Launch]:
    """Returns the graph launches that replayed device events, with the iteration around each."""
    rows = np.flatnonzero(capture.device["graph"].to_numpy())
    call = capture.device["call"].to_numpy()[rows]
    order = np.argsort(call, kind="stable")  # device rows stand by start
    rows, call = rows[order], call[order]
    bounds = [0, *(np.flatnonzero(call[1:] != call[:-1]) + 1).tolist(), len(call)]
    made = [Launch(int(call[i]), rows[i:j], -1) for i, j in itertools.pairwise(bounds) if j > i]
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
    of_root: dict[int, list[Launch]] = {}
    for one, root, step in zip(made, roots.tolist(), _steps(capture, start[calls]).tolist(), strict=True):
        one.root = root if root >= 0 else -2 - step if step >= 0 else OUTSIDE
        found = iteration_of(str(text.categories[text.codes[root]])) if root >= 0 else None
        one.batch = found.batch if found is not None else UNKNOWN
        one.order = len(of_root.setdefault(one.root, []))
        of_root[one.root].append(one)
    for own in of_root.values():
        for one in own:
            one.of_root = len(own)
    return made


def _steps(capture: Capture, at: Ints) -> Ints:
    """Returns the recorded step that holds each time, -1 none; a recording without steps, which is one whole, has none."""
    begin, end = (capture.steps[name].to_numpy() for name in ("host_start_ns", "host_end_ns"))
    if not len(begin):
        return np.full(len(at), -1, np.int64)
    place = np.searchsorted(begin, at, side="right") - 1
    row = np.maximum(place, 0)
    return np.where((place >= 0) & (at < end[row]) & (capture.steps["number"].to_numpy()[row] >= 0), place, -1)


class Names:
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
        self._placed: dict[tuple[bytes, tuple[int, ...], int], list[int] | None] = {}

    def aligned(self, events: Ints, graph: Graph) -> Aligned:
        """Returns the alignment of some device rows with what a graph holds."""
        own, streams = self._of_event[self._code[events]], self._stream[events]
        several = bool((streams != streams[0]).any())
        key = (own.tobytes(), streams.tobytes() if several else b"", id(graph))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = align(own, streams, self.of_graph[id(graph)])
        return found

    def pieces(self, launches: Sequence[Launch], graph: Graph) -> list[int] | None:
        """Returns where the graphs of one iteration begin in what ran eagerly, see `place_pieces`."""
        own = [self._of_event[self._code[one.events]] for one in launches]
        key = (b"".join(codes.tobytes() for codes in own), tuple(map(len, own)), id(graph))
        if key not in self._placed:
            self._placed[key] = place_pieces(own, self.of_graph[id(graph)])
        return self._placed[key]

    def own_part(self, graph: Graph, found: Aligned) -> tuple[Graph, Aligned]:
        """Returns the launches of a graph from the first to the last that is aligned, and their alignment; the same object each time."""
        low, high = int(found.place.min()), int(found.place.max()) + 1
        key = (id(graph), low, high)
        if key not in self._parts:
            self._parts[key] = narrowed(graph, low, high)
        return self._parts[key], Aligned(found.how, found.place - low)

    def shown(self, row: int) -> str:
        return _short(self.text[self._code[row]])


def find_all(launches: Sequence[Launch], sets: Sequence[GraphSet], names: Names) -> None:
    """Finds the graphs of all launches: among captures, which say more; else among what ran eagerly."""
    captured, eager = [s for s in sets if not s.eager], [s for s in sets if s.eager]
    named = any(graph_names(graph) for one in captured for graph in one.graphs)
    of_root: dict[int, list[Launch]] = {}
    for one in launches:
        _find(one, captured, names)
        of_root.setdefault(one.root, []).append(one)
    for own in of_root.values() if eager else ():
        without = [one for one in own if one.set is None]
        before = [one.why if named else "" for one in without]
        if own[0].root == OUTSIDE:
            for one in without:
                _find(one, eager, names)
        elif len(own) > 1 and len(without) == len(own):
            _find_pieces(own, eager, names)
        elif len(own) == 1 and without:
            _find(own[0], eager, names)
        for one, why in zip(without, before, strict=True):
            one.why = "" if one.set is not None else why or one.why


def _find(one: Launch, sets: Sequence[GraphSet], names: Names) -> None:
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


def _find_pieces(own: Sequence[Launch], sets: Sequence[GraphSet], names: Names) -> None:
    """Finds the graphs that one iteration launches in one eager run of its batch; all of them or none."""
    chosen, why = _choice(own[0], sets)
    found = [(one, graph, places) for one in chosen for graph in one.graphs if (places := names.pieces(own, graph)) is not None]
    batches = sorted({one.batch for one, _, _ in found})
    if own[0].batch == UNKNOWN and len(batches) > 1:
        why, found = f"eager runs of batches {batches[0]} and {batches[1]} have its names, and no iteration tells its batch", []
    elif not found and not why:
        where = _where(chosen[0]) if len(chosen) == 1 else f"{len(chosen):,} eager runs"
        why = f"its iteration launches {len(own):,} graphs, and {where} does not tell by names alone where each begins"
    for one in own:
        one.why = why
    for one, place in zip(own, found[0][2], strict=True) if found else ():
        one.set, one.why = found[0][0], ""
        one.graph, one.aligned = names.own_part(found[0][1], Aligned(1, place + np.arange(len(one.events))))


def _scattered(place: Ints) -> bool:
    """Whether most of the launches between the first and the last of some are left out: any kernels stand somewhere in a long run."""
    return int(place.max() - place.min()) + 1 > 2 * len(place)


def _in_question(one: Launch, candidate: GraphSet) -> Sequence[Graph]:
    """Returns the graphs that a launch may be of: its own piece; of FULL all, its own place first where there are as many launches."""
    graphs = candidate.graphs
    if candidate.mode == PIECEWISE and len(graphs) > 1:
        return (graphs[one.order],)
    if len(graphs) == one.of_root:
        return (graphs[one.order], *(g for k, g in enumerate(graphs) if k != one.order))
    return graphs


def _choice(one: Launch, sets: Sequence[GraphSet]) -> tuple[list[GraphSet], str]:
    """Returns the sets that a launch may be of, and why there is none: the smallest batch captured at or above its own, FULL where its
    iteration launches one graph.
    """
    if not sets:
        return [], ""
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


def _differs(one: Launch, candidate: GraphSet, graph: Graph, found: Aligned, names: Names) -> str:
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
