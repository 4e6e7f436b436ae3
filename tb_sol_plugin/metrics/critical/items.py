"""Adds up what lies on the critical path by kernel, operator, module, phase, thread or class, and replays what each would save."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.critical import passes
from tb_sol_plugin.metrics.critical.described import items_of_edges, totals_of
from tb_sol_plugin.metrics.critical.edges import KINDS
from tb_sol_plugin.metrics.critical.path import (
    CLASSES,
    LABELS,
    OF_KIND,
    PLACE,
    Path,
    device_classes,
    finals_of,
    host_classes,
    inside_ranges,
    path_of,
)
from tb_sol_plugin.metrics.critical.window import Window, pieces_of, window_of_steps
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, grouped
from tb_sol_plugin.tables.arrays import Ints, Rows
from tb_sol_plugin.tables.table import frame_of

By: TypeAlias = Literal["kernel", "operator", "module", "phase", "thread", "class"]
MOST_REPLAYED: Final = 50
"""Items whose saving is replayed: those with most time on the path."""
LEAST_REPLAYED: Final = 8
EDGES_REPLAYED: Final = 25_000_000
"""Edges that all these replays together go over, but for the first few."""
AT_ONCE: Final = 1 << 17
"""Edges whose items are looked up at once."""
NONE_OF: Final = {"operator": "(no operator)", "module": "(no module)", "phase": "(no phase)", "kernel": "(nothing recorded)"}


@dataclass(frozen=True)
class Keys:
    """What each piece of work counts for. names: by code. host, device: code of each row of these tables, of the host one more for none.

    latency: code of each class of time that is no work, -1 of the others.
    """

    names: pd.Index[str]
    host: Rows
    device: Rows
    latency: Ints

    def code(self, name: str) -> int | None:
        """Returns the code of a name, None where nothing is called so."""
        found = np.flatnonzero(np.asarray(self.names == name, np.bool_))  # an index of its texts would take as much memory again
        return int(found[0]) if len(found) else None


def keys_of(capture: Capture, by: By) -> Keys:
    """Returns what work on the path counts for."""
    return memo(capture, ("critical.keys", by), lambda: _keys(capture, by))


def _keys(capture: Capture, by: By) -> Keys:
    if by == "class":
        return Keys(
            pd.Index(list(LABELS.values())), host_classes(capture).astype(np.int32), device_classes(capture).astype(np.int32),
            np.arange(len(CLASSES)),
        )  # fmt: skip
    host = np.arange(len(capture.host))
    device = capture.device
    if by == "thread":
        labels, *places = threads_and_streams(capture)
        texts, (own, other) = pd.Index(labels), (place.astype(np.int64) for place in places)
    else:
        column = {"operator": "operator", "module": "module", "phase": "annotation"}.get(by)
        names = arrays.coded(capture.host["name"])
        texts = names.categories
        if column is None:
            more = arrays.coded(device["name"])
            own, other = names.codes[host].astype(np.int64), more.codes.astype(np.int64) + len(texts)
            texts = texts.append(more.categories)
        elif by == "phase":
            around, _ = at.annotation_around(capture, host)
            launch = at.launches(capture)
            of_device, _ = at.annotation_around(capture, launch.call, launch.time)
            own, other = _coded(names.codes, around), _coded(names.codes, of_device)
        else:
            around = at.nearest(capture, S.OPERATOR if by == "operator" else S.MODULE, host)
            own, other = _coded(names.codes, around), _coded(names.codes, device[column].to_numpy())
    none = len(texts)
    texts = texts.append(pd.Index([NONE_OF.get(by, "(none)"), *(f"({LABELS[name].lower()})" for name in CLASSES)]))
    own, other = (np.where(code < 0, none, code) for code in (np.append(own, -1), other))
    code, distinct = pd.factorize(texts)  # one text of two tables is one item
    short = code.astype(np.int32)
    latency = np.full(len(CLASSES), -1, np.int64)
    for name in (*OF_KIND.values(), "wait_overhead", "window", "unexplained"):
        latency[PLACE[name]] = code[none + 1 + PLACE[name]]
    return Keys(distinct, short[own], short[other], latency)


def _coded(codes: np.ndarray, rows: np.ndarray) -> Ints:
    """Returns the codes at rows, -1 for none."""
    if not len(codes):
        return np.full(len(rows), -1, np.int64)
    return np.where(rows >= 0, codes[np.maximum(rows, 0)].astype(np.int64), -1)


def threads_and_streams(capture: Capture) -> tuple[list[str], Rows, Rows]:
    """Returns (names of threads, then of streams; the place of each host row among them; that of each device row)."""

    def make() -> tuple[list[str], Rows, Rows]:
        table, device = capture.tables["threads"], capture.device
        texts = [f"thread {t}" for t in table["thread"].astype(str).tolist()]
        pair, first = arrays.factorize([arrays.numbered(device[c].to_numpy())[0] for c in ("device", "stream")])
        ids = (device[c].to_numpy()[first].tolist() for c in ("device", "stream"))
        texts += [f"device {d}, stream {s}" for d, s in zip(*ids, strict=True)]
        return texts, capture.host["thread"].to_numpy().astype(np.int32, copy=False), (pair + len(table)).astype(np.int32)

    return memo(capture, ("critical.tracks",), make)


def tracks_at(capture: Capture, host: npt.NDArray[np.integer], device: npt.NDArray[np.integer]) -> Rows:
    """Returns the place among `threads_and_streams` of each pair of a host and a device row, -1 none: the device's where there are both."""
    _, of_host, of_device = threads_and_streams(capture)
    out = np.full(len(host), -1, np.int32)
    for rows, places in ((host, of_host), (device, of_device)):
        some = np.flatnonzero(rows >= 0)
        out[some] = places[rows[some]]
    return out


def items(capture: Capture, where: Scope, by: By, phase: str = "") -> pd.DataFrame:
    """Returns one row per item on the critical path of the steps of a selection, the one with most time first.

    phase: only those on the path inside of user ranges of this name; what they save is that of all of the item.

    Columns: name, kind (place in CLASSES of most of its time), time_ns (on the path, sum over the steps), segments, inferred_ns, total_ns
    (of all its events in the steps: device time and own time on the host; -1 of what is no work), slack_ns (median by which its events off
    the path may be late; -1 for none), saved_half_ns, saved_zero_ns (of all steps, by replay; -1 not replayed).
    """
    return memo(capture, ("critical.items", where.rows, by, phase), lambda: _items(capture, where, by, phase))


def item_codes(path: Path, keys: Keys) -> Ints:
    """Returns the item of each segment of a path, a place in `keys.names`."""
    works = keys.latency[path.kind] < 0
    code = np.where(works, 0, keys.latency[path.kind])
    on_device = works & (path.device >= 0)
    code[on_device] = keys.device[path.device[on_device]]
    on_host = works & ~on_device
    code[on_host] = keys.host[path.host[on_host]]
    return code


def _items(capture: Capture, where: Scope, by: By, phase: str) -> pd.DataFrame:
    window, path, keys = window_of_steps(capture, where), path_of(capture, where), keys_of(capture, by)
    path = inside_ranges(capture, path, phase) if phase else path
    code = item_codes(path, keys)
    if by == "class":
        code = path.kind.astype(np.int64)
    size = len(keys.names)
    time = arrays.exact_sums(code, path.duration, size)
    rows = np.flatnonzero(time > 0)
    rows = rows[np.argsort(-time[rows], kind="stable")]
    pair, of_pair = arrays.in_order(code * len(CLASSES) + path.kind)
    sums = arrays.exact_sums(of_pair, path.duration, len(pair))
    kind = np.zeros(size, np.int64)
    ascending = np.argsort(sums, kind="stable")
    kind[pair[ascending] // len(CLASSES)] = pair[ascending] % len(CLASSES)  # the class with most time is written last
    segments = np.bincount(code, minlength=size)
    inferred = arrays.exact_sums(code[path.inferred], path.duration[path.inferred], size)
    del code, of_pair  # as long as the path
    of_edge = edge_items(capture, window, keys, by)
    total, slack = _totals(capture, where, window, of_edge, size)
    replayed = _replayed(window, of_edge, rows)
    del of_edge  # as long as the graph
    half, zero = _saved(window, replayed, len(rows))
    return frame_of({
        "name": keys.names.take(rows).to_numpy(object), "kind": kind[rows], "time_ns": time[rows], "segments": segments[rows],
        "inferred_ns": inferred[rows], "total_ns": total[rows], "slack_ns": slack[rows], "saved_half_ns": half, "saved_zero_ns": zero,
    })  # fmt: skip


def edge_items(capture: Capture, window: Window, keys: Keys, by: By) -> npt.NDArray[np.integer]:
    """Returns the item that the time of each edge of a window counts for; -1 of waits of threads, and of time in which nothing was
    recorded. Kept are classes of the whole graph, which a byte each holds: others are made in less time than their memory is worth."""
    if by == "class" and window.edges is None:
        return memo(capture, ("critical.edge_classes",), lambda: _edge_items(window, keys).astype(np.int8))
    return _edge_items(window, keys)


def _edge_items(window: Window, keys: Keys) -> Rows:
    latency = np.full(len(KINDS), -1, np.int64)
    for kind, name in OF_KIND.items():
        latency[kind] = keys.latency[PLACE[name]]
    edges = (window.source, window.target, window.kind, window.lag)
    return items_of_edges(window.graph, edges, window.nodes, latency, keys.device, keys.host)


def _totals(capture: Capture, where: Scope, window: Window, of_edge: npt.NDArray[np.integer], size: int) -> tuple[Ints, Ints]:
    """Returns per item (time of its work in the steps, -1 of what is no work; median slack of what is not on the path, -1 none)."""
    total, known = np.zeros(size, np.int64), np.zeros(size, np.bool_)
    slack = slack_of(capture, where)
    device_slack(capture, where, slack)
    item, late = totals_of(window, of_edge, slack, total, known)
    del slack
    total[~known] = -1
    median = grouped.medians(item, late, size)
    return total, np.where(np.isfinite(median), np.nan_to_num(median), -1).astype(np.int64)


def slack_of(capture: Capture, where: Scope) -> Ints:
    """Returns by how much each node of the window of a selection may be late without a delay of the end of one of its steps."""
    finals = finals_of(capture, path_of(capture, where))
    return window_of_steps(capture, where).slack(finals.node, finals.at)


def device_slack(capture: Capture, where: Scope, slack: Ints | None = None) -> Ints:
    """Returns that of the `device_ends` of the window alone, which is kept. slack: that of each node, where it is known."""

    def make() -> Ints:
        every = slack_of(capture, where) if slack is None else slack
        return every[window_of_steps(capture, where).device_ends]

    return memo(capture, ("critical.device_slack", where.rows), make)


def _replayed(window: Window, of_edge: npt.NDArray[np.integer], rows: Ints) -> tuple[int, Ints, passes.Pieces]:
    """Returns (how many of the items at `rows` are replayed, which of these have any edge, what of the graph each takes)."""
    count = min(max(min(MOST_REPLAYED, EDGES_REPLAYED // max(window.size, 1)), LEAST_REPLAYED), len(rows))
    place = np.full(max(int(of_edge.max(initial=-1)), int(rows.max(initial=-1))) + 2, -1, np.int32)  # the last for none
    place[rows[:count]] = np.arange(count)
    item, there = np.empty(len(of_edge), np.int32), np.zeros(count + 1, np.bool_)
    for begin in range(0, len(item), AT_ONCE):  # numpy makes places of 8 bytes of those that it is given
        some = item[begin : begin + AT_ONCE]
        some[:] = place[of_edge[begin : begin + AT_ONCE]]
        there[some] = True
    return count, np.flatnonzero(there[:count]), pieces_of(window.part, window.lag, item, count)


def _saved(window: Window, replayed: tuple[int, Ints, passes.Pieces], size: int) -> tuple[Ints, Ints]:
    """Returns what the steps take less where each of `size` items takes half of its time, and none; -1 for those that are not replayed."""
    count, there, pieces = replayed
    half, zero = np.full(size, -1, np.int64), np.full(size, -1, np.int64)
    if len(there):
        less, nothing = window.moved_by_each_ns(pieces, count)
        half[there], zero[there] = less[there], nothing[there]
    return half, zero
