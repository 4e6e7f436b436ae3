"""Attributes device work to host events: by its launch, to the rows around the launch, and through backward links.

Sums are plain sums of durations unless a name says `union`. Rows are row numbers of the capture's host and device tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec import Struct

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints, Mask, Rows
from tb_sol_plugin.tables.compiled import fixed

Number = TypeVar("Number", np.int64, np.float64)
"""Integers stay integers, floats stay floats."""

NO_OPERATOR = "(no operator)"
BEFORE = "(launched before the window)"
NO_RECORD = "(no launch record)"


class Host(Struct, frozen=True):
    """Columns of the host table as arrays; `stop` is start + duration in ns.

    Rows from the capture of a graph, which take no time below its launch, stop a nanosecond after it starts: what is launched there lies in
    them.
    """

    kind: npt.NDArray[np.int8]
    thread: Rows
    start: Ints
    duration: Ints
    stop: Ints
    parent: Rows
    end: Rows


def host(capture: Capture) -> Host:
    """Returns the host table as arrays, once per capture."""

    def make() -> Host:
        t = capture.host
        start, duration = t["start_ns"].to_numpy(), t["duration_ns"].to_numpy()
        stop = start + duration
        captured = captured_rows(capture)
        stop[captured] = start[captured] + 1
        return Host(
            t["kind"].to_numpy(),
            t["thread"].to_numpy(),
            start,
            duration,
            stop,
            t["parent"].to_numpy(),
            t["end"].to_numpy(),
        )

    return memo(capture, ("attribution.host",), make)


def captured_rows(capture: Capture) -> Ints:
    """Returns the host rows that come from the capture of a graph, ascending; they stand below its launches and take no time."""

    def make() -> Ints:
        launches = capture.tables["graph_launches"]
        host, count = (launches[name].to_numpy().astype(np.int64) for name in ("host", "rows"))
        first = np.repeat(host + 1 - np.concatenate([[0], np.cumsum(count)[:-1]]), count) if len(host) else np.zeros(0, np.int64)
        return np.sort(first + np.arange(len(first)))

    return memo(capture, ("attribution.captured",), make)


def of_kind(capture: Capture, kind: int) -> Ints:
    """Returns the host rows of a kind, ascending; found once per capture."""
    return memo(capture, ("attribution.of_kind", kind), lambda: np.flatnonzero(is_of_kind(capture, kind)).astype(np.int64, copy=False))


def is_of_kind(capture: Capture, kind: int) -> Mask:
    """Returns per host row whether it is of a kind; found once per capture."""
    return memo(capture, ("attribution.is_of_kind", kind), lambda: fixed(host(capture).kind == kind, np.bool_))


def named(capture: Capture, kind: int, test: Callable[[str], bool]) -> Ints:
    """Returns the host rows of a kind whose name passes a test, ascending. Only names of that kind are asked about."""

    code, used, names = _names_of_kind(capture, kind)
    found = [number for number, name in zip(used, names, strict=True) if test(name)]
    if not found:
        return np.zeros(0, np.int64)
    return np.asarray(of_kind(capture, kind)[np.flatnonzero(arrays.having(code, found, used[-1] + 1))], np.int64)


def names_of(capture: Capture, kind: int) -> list[str]:
    """Returns the names of the host rows of a kind, each once."""
    return _names_of_kind(capture, kind)[2]


def _names_of_kind(capture: Capture, kind: int) -> tuple[npt.NDArray[np.integer], list[int], list[str]]:
    """Returns (code of the name per host row of the kind, codes in use, their names), found once per capture."""

    def make() -> tuple[npt.NDArray[np.integer], list[int], list[str]]:
        text = arrays.coded(capture.host["name"])
        code = text.codes[of_kind(capture, kind)]
        used = arrays.in_use(code, len(text.categories))
        return code, used.tolist(), arrays.spelled(text.categories, used)

    return memo(capture, ("attribution.names_of_kind", kind), make)


def any_named(capture: Capture, test: Callable[[str], bool]) -> bool:
    """Tells whether the name of any host row passes a test."""

    return any(map(test, _names(capture)[1]))


def where_named(capture: Capture, test: Callable[[str], bool]) -> Mask:
    """Returns per host row whether its name passes a test, which is asked once per name."""
    text = arrays.coded(capture.host["name"])
    return arrays.having(text.codes, [number for number, name in zip(*_names(capture), strict=True) if test(name)], len(text.categories))


def _names(capture: Capture) -> tuple[list[int], list[str]]:
    """Returns (codes of names that host rows have, ascending; their names), found once per capture."""

    def make() -> tuple[list[int], list[str]]:
        text = arrays.coded(capture.host["name"])
        used = arrays.in_use(text.codes, len(text.categories))
        return used.tolist(), arrays.spelled(text.categories, used)

    return memo(capture, ("attribution.names",), make)


def mask_of(capture: Capture, rows: npt.NDArray[np.integer]) -> Mask:
    """Returns per host row whether it is one of `rows`."""
    out = np.zeros(len(capture.host), np.bool_)
    out[rows] = True
    return out


def launching_calls(capture: Capture) -> Ints:
    """Returns the host rows that launch device work, ascending, each once."""

    def make() -> Ints:
        call = capture.device["call"].to_numpy()
        return np.flatnonzero(mask_of(capture, call[call >= 0]))

    return memo(capture, ("attribution.launching_calls",), make)


def device_count(capture: Capture) -> int:
    """Returns on how many devices the recording has events."""
    return memo(capture, ("attribution.devices",), lambda: len(pd.unique(capture.device["device"].to_numpy())))


class Launch(Struct, frozen=True):
    """Per device row: the launching call's host row (-1 none) and the moment the call starts (ns; 0 where there is none).

    Of what a graph replayed, where its capture is known: the row around the captured launch, below the call that launched the graph.
    """

    call: Rows
    time: Ints


def launches(capture: Capture) -> Launch:
    """Returns where and when each device event was launched."""

    def make() -> Launch:
        call = capture.device["call"].to_numpy()
        replays = capture.tables["replays"]
        if len(replays):
            call = call.copy()
            call[replays["device"].to_numpy()] = replays["origin"].to_numpy()
        h = host(capture)
        if not len(h.start):
            return Launch(np.full(len(call), -1, np.int32), np.zeros(len(call), np.int64))
        return Launch(call, np.where(call >= 0, h.start[np.maximum(call, 0)], 0))

    return memo(capture, ("attribution.launches",), make)


def in_order(capture: Capture) -> tuple[Ints, Ints]:
    """Returns (device rows in order of their start, those starts)."""

    def make() -> tuple[Ints, Ints]:
        start = capture.device["start_ns"].to_numpy()
        order = np.argsort(start, kind="stable")
        return order, start[order]

    return memo(capture, ("attribution.in_order",), make)


def nearest(capture: Capture, kind: int, rows: npt.ArrayLike, times: npt.ArrayLike | None = None, *, strict: bool = False) -> Rows:
    """Returns the innermost host row of a kind around each of `rows` at `times` (default: the row's own start); -1 gives -1.

    strict: among the ancestors only, without the row itself.
    """
    h = host(capture)
    from_rows = np.asarray(rows, np.int32)
    if not len(of_kind(capture, kind)):
        return np.full(len(from_rows), -1, np.int32)
    safe = np.maximum(from_rows, 0)
    at = h.start[safe] if times is None else np.asarray(times, np.int64)
    if strict:
        from_rows = np.where(from_rows >= 0, h.parent[safe], -1).astype(np.int32)
    return tree.nearest(is_of_kind(capture, kind), h.parent, h.stop, from_rows, at, h.end)


def self_among(capture: Capture, kinds: tuple[int, ...]) -> Ints:
    """Returns per host row of one of `kinds`: its duration less its children among those kinds, whatever stands between; else 0.

    A child that ends after its parent is clipped at the parent's end. Never negative. Unit ns.
    """
    return memo(capture, ("attribution.self_among", kinds), lambda: _self_among(capture, kinds))


def _self_among(capture: Capture, kinds: tuple[int, ...]) -> Ints:
    h = host(capture)
    mask = np.zeros(len(h.kind), np.bool_)
    for kind in kinds:  # few: quicker than looking each row up
        mask |= h.kind == kind
    rows = np.flatnonzero(mask).astype(np.int32)
    out = np.zeros(len(h.start), np.int64)
    if not len(rows):
        return out
    above = tree.nearest(mask, h.parent, h.stop, np.maximum(h.parent[rows], -1), h.start[rows], h.end)
    place = np.full(len(h.start) + 1, -1, np.int32)  # the last for none
    place[rows] = np.arange(len(rows), dtype=np.int32)
    parent = place[above]
    out[rows] = tree.self_time(h.start[rows], h.duration[rows], parent)
    return out


def inclusive(capture: Capture, rows: Rows, times: Ints, values: npt.NDArray[Number], group: Rows) -> npt.NDArray[Number]:
    """Sum of `values` per group over all groups around (row, time), each value once per group.

    rows: host row per value (-1 skipped). group: group per host row, -1 outside every group.
    """
    h = host(capture)
    if not len(h.start):
        return np.zeros(0, values.dtype)
    return cast(npt.NDArray[Number], tree.sum_to_ancestors(rows, times, values, h.parent, h.stop, h.end, group))


def sum_by(group: npt.ArrayLike, values: npt.NDArray[Number], size: int) -> npt.NDArray[Number]:
    """Sum of `values` per group 0..size-1; -1 is left out. Integers stay exact."""
    codes = np.asarray(group)
    keep = codes >= 0
    out = np.zeros(size, values.dtype)
    np.add.at(out, *((codes, values) if keep.all() else (codes[keep], values[keep])))
    return out


def union_by(group: npt.ArrayLike, start: Ints, stop: Ints, size: int) -> Ints:
    """Returns the length of the union of intervals per group 0..size-1, in ns; -1 is left out. O(n log n)."""
    codes = np.asarray(group, np.int64)
    out = np.zeros(size, np.int64)
    keep = np.flatnonzero((codes >= 0) & (stop > start))
    if not len(keep):
        return out
    alone = np.bincount(codes[keep], minlength=size)[codes[keep]] == 1
    out[codes[keep[alone]]] = (stop - start)[keep[alone]]
    keep = keep[~alone]
    if not len(keep):
        return out
    names, _, dense = arrays.ranked(codes[keep], size)
    first, last = start[keep], stop[keep]
    low, stride = int(first.min()), int(last.max()) - int(first.min()) + 1
    per_pass = max((2**62) // stride, 1)
    for begin in range(0, len(names), per_pass):
        use = (dense >= begin) & (dense < begin + per_pass)
        shift = (dense[use] - begin).astype(np.int64) * stride - low
        a, b = iv.union(first[use] + shift, last[use] + shift)
        np.add.at(out, names[begin + a // stride], b - a)
    return out


def backward_root(capture: Capture, rows: npt.ArrayLike, times: npt.ArrayLike | None = None) -> Rows:
    """Returns the innermost linked backward root around each host row, -1 where there is none."""
    h = host(capture)
    from_rows = np.asarray(rows, np.int32)
    roots = capture.tables["backward"]["backward"].to_numpy()
    if not len(h.start) or not len(roots):
        return np.full(len(from_rows), -1, np.int32)
    mask = np.zeros(len(h.start), bool)
    mask[roots] = True
    at = h.start[np.maximum(from_rows, 0)] if times is None else np.asarray(times, np.int64)
    return tree.nearest(mask, h.parent, h.stop, from_rows, at, h.end)


def forward_of(capture: Capture) -> Rows:
    """Returns per host row that is a linked backward root: the forward operator it belongs to, the latest to start; else -1."""

    def make() -> Rows:
        h = host(capture)
        links = capture.tables["backward"]
        forward, backward = links["forward"].to_numpy(), links["backward"].to_numpy()
        out = np.full(len(h.start), -1, np.int32)
        order = np.argsort(h.start[forward], kind="stable") if len(forward) else np.zeros(0, np.int64)
        out[backward[order]] = forward[order]
        return out

    return memo(capture, ("attribution.forward_of",), make)


def forward_rows(capture: Capture, rows: npt.ArrayLike, times: npt.ArrayLike | None = None) -> tuple[Rows, Rows]:
    """Returns (forward operator, backward root) for host rows that run inside a linked backward root; -1 for the others."""
    root = backward_root(capture, rows, times)
    forward = forward_of(capture)
    if not len(forward):
        return np.full(len(root), -1, np.int32), root
    return np.where(root >= 0, forward[np.maximum(root, 0)], -1).astype(np.int32), root


def module_forward_rows(capture: Capture, rows: npt.ArrayLike, times: npt.ArrayLike | None = None) -> tuple[Rows, Rows]:
    """Returns the same as `forward_rows`, but the forward operator is one with a module call around it, where there is any.

    A backward operator of recomputed forward work leads to the recomputed operator, which runs below another backward root, often
    on a thread without modules: what counts is the forward operator of that root.
    """
    forward, root = forward_rows(capture, rows, times)
    if not (host(capture).kind == S.MODULE).any():
        return forward, root
    outer = forward
    for _ in range(8):
        lost = (outer >= 0) & (nearest(capture, S.MODULE, outer) < 0)
        if not lost.any():
            break
        again, _ = forward_rows(capture, np.where(lost, outer, -1))
        outer = np.where(lost, again, outer).astype(np.int32)
    return np.where(outer >= 0, outer, forward).astype(np.int32), root


def union_per_operator(capture: Capture, where: Mask, *, whole: bool) -> Ints:
    """Returns per host row the union of the device events that it launched itself as innermost operator, among the device rows `where`; ns.

    whole: `where` is every row, so that the answer is kept.
    """

    def make() -> Ints:
        device = capture.device
        start = device["start_ns"].to_numpy()[where]
        return union_by(device["operator"].to_numpy()[where], start, start + device["duration_ns"].to_numpy()[where], len(capture.host))

    return memo(capture, ("attribution.union_per_operator",), make) if whole else make()


def unowned(capture: Capture, owner: Rows, inside: str) -> list[tuple[str, Mask]]:
    """Returns device rows without an owner, by reason: `inside` (launched outside every owner), before the window, no launch record.

    Reasons without a row are left out.
    """
    link = capture.device["link"].to_numpy()
    free = owner < 0
    masks = [
        (inside, free & (link != S.BEFORE_WINDOW) & (link != S.NO_RECORD)),
        (BEFORE, free & (link == S.BEFORE_WINDOW)),
        (NO_RECORD, free & (link == S.NO_RECORD)),
    ]
    return [(name, mask) for name, mask in masks if mask.any()]


def issuing_threads(capture: Capture) -> dict[int, int]:
    """Returns, for each thread that runs backward operators, the thread that most of their forward operators ran on, and not itself.

    Autograd runs the backward pass of a device on a thread of its own, without the caller's user ranges around it. Roots within
    another root do not count: activation checkpointing runs a forward pass again inside the backward pass, on its thread.
    """
    return memo(capture, ("attribution.issuing_threads",), lambda: _issuing_threads(capture))


def _issuing_threads(capture: Capture) -> dict[int, int]:
    h = host(capture)
    operators = capture.tables["operators"]
    own = operators["host"].to_numpy()[operators["forward_thread"].to_numpy() > 0]
    links = capture.tables["backward"]
    backward = links["backward"].to_numpy()
    links = links[backward_root(capture, h.parent[backward], h.start[backward]) < 0]
    out: dict[int, int] = {}
    for thread in np.unique(h.thread[own]).tolist() if len(own) else []:
        here = h.thread[links["backward"].to_numpy()] == thread
        forward = h.thread[links["forward"].to_numpy()[here]]
        others = forward[forward != thread]
        if 2 * len(others) > len(forward) and len(others):
            out[thread] = int(np.bincount(others).argmax())
        elif not len(forward):
            steps = capture.steps["host"].to_numpy()
            caller = h.thread[steps[steps >= 0]]
            if len(caller) and int(caller[0]) != thread:
                out[thread] = int(caller[0])
    return out


def annotation_of_operators(capture: Capture) -> Rows:
    """Returns the innermost user range around each operator of a recording, in order of their host rows, -1 none; found once."""
    return memo(capture, ("attribution.annotations",), lambda: annotation_around(capture, of_kind(capture, S.OPERATOR))[0])


def row_at(capture: Capture, thread: int, times: npt.ArrayLike) -> Rows:
    """Returns the last host row of a thread to start at or before each time, -1 before the first.

    Every row of the thread that holds the time is that row or one above it.
    """
    h = host(capture)
    low, high = (int(x) for x in np.searchsorted(h.thread, [thread, thread + 1]))
    found = np.searchsorted(h.start[low:high], np.asarray(times, np.int64), side="right") - 1
    return np.where(found >= 0, found + low, -1).astype(np.int32)


def annotation_around(
    capture: Capture, rows: npt.ArrayLike, times: npt.ArrayLike | None = None, *, strict: bool = False
) -> tuple[Rows, Mask]:
    """Returns (innermost user range around each host row, whether it was found by time on the thread that issued the backward pass).

    A row on an autograd thread without a range of that thread around it belongs to the range that was open on the issuing
    thread at that moment. strict: not the row itself.
    """
    h = host(capture)
    from_rows = np.asarray(rows, np.int32)
    found = nearest(capture, S.ANNOTATION, from_rows, times, strict=strict)
    by_time = np.zeros(len(found), bool)
    if not len(h.start):
        return found, by_time
    at = h.start[np.maximum(from_rows, 0)] if times is None else np.asarray(times, np.int64)
    threads = np.where(from_rows >= 0, h.thread[np.maximum(from_rows, 0)], -1)
    for thread, issuer in issuing_threads(capture).items():
        lost = np.flatnonzero((found < 0) & (threads == thread))
        if len(lost):
            found[lost] = nearest(capture, S.ANNOTATION, row_at(capture, issuer, at[lost]), at[lost])
            by_time[lost] = found[lost] >= 0
    return found, by_time
