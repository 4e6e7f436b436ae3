"""Links device work to its launch and its operators, backward to forward, work to steps. A link adds a column, it never removes a row.

Order: correlation first; a flow only where a device event has no correlation; then containment of the launch on its
own thread. The external id is not used: in half of the recorders it equals the correlation and matches by chance.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.ingest.columns import Array
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.ingest.kineto import rules
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.engines import PATTERNS, Iteration, iteration_of
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables.arrays import Ints, Rows
from tb_sol_plugin.tables.table import frame_of

WRAPPER = "autograd::engine::evaluate_function"


class Host:
    """Numpy views of the host table that linking needs."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.kind = frame["kind"].to_numpy()
        self.thread = frame["thread"].to_numpy()
        self.start = frame["start_ns"].to_numpy()
        self.end_time = self.start + frame["duration_ns"].to_numpy()
        self.parent = frame["parent"].to_numpy()
        self.names = np.asarray(frame["name"].cat.categories, object)
        self.code = frame["name"].cat.codes.to_numpy()

    def matching(self, pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
        """Returns rows whose name the pattern matches at its start; tested once per distinct name."""
        good = np.zeros(len(self.names) + 1, np.bool_)  # the last for none
        good[self._used] = [bool(pattern.match(name)) for name in self.names[self._used].tolist()]
        return np.asarray(good[self.code], np.bool_)

    @cached_property
    def _used(self) -> npt.NDArray[np.intp]:
        """Codes of the names that rows have: most may be those of other tables."""
        return arrays.in_use(self.code, len(self.names))

    def find(self, thread: Rows, time: Ints, mask: npt.NDArray[np.bool_]) -> Rows:
        """Returns the deepest row of `mask` that starts exactly at (thread, time); -1 if none."""
        rows = np.flatnonzero(mask)
        out = np.full(len(time), -1, np.int32)
        if len(rows) == 0 or len(time) == 0:
            return out
        low = min(int(self.start[rows].min()), int(time.min()))
        span = max(int(self.start[rows].max()), int(time.max())) - low + 1
        begun, moment = self.start[rows] - low, time - low
        if span * (int(max(self.thread[rows].max(), thread.max())) + 1) >= 2**62:  # decades apart: moments by number instead
            moments, number = np.unique(np.concatenate([begun, moment]), return_inverse=True)
            begun, moment, span = number[: len(begun)], number[len(begun) :], len(moments)
        keys = self.thread[rows].astype(np.int64) * span + begun
        wanted = thread.astype(np.int64) * span + moment
        place = np.searchsorted(keys, wanted, "right") - 1
        good = place >= 0
        good[good] = keys[place[good]] == wanted[good]
        out[good] = rows[place[good]]
        return out


def launches(
    host: Host, calls: pd.DataFrame, device: dict[str, Array], flows: pd.DataFrame, health: Health
) -> tuple[Rows, npt.NDArray[np.int8]]:
    """Returns (host row of the launching call, link method) per device event."""
    correlation = np.asarray(device["correlation"], np.int64)
    count = len(correlation)
    call = np.full(count, -1, np.int32)
    link = np.full(count, S.NO_RECORD, np.int8)
    rows = calls["host"].to_numpy()
    ids = calls["correlation"].to_numpy()
    known = ids > 0
    rows, ids = rows[known], ids[known]
    if len(ids):
        order = arrays.stable_order(ids)
        first = np.ones(len(ids), bool)
        first[1:] = np.diff(ids[order]) != 0
        if not first.all():  # of several calls of one number the one that begins first
            order = arrays.lex_order(ids, host.start[rows])
        rows, ids = rows[order], ids[order]
        health.add("two calls with one correlation", int((~first).sum()))
        inside = np.zeros(len(ids), bool)
        inside[1:] = ~first[1:] & (host.start[rows[1:]] < host.end_time[rows[:-1]])  # a driver call within that of the runtime
        rows, ids = rows[~inside], ids[~inside]
        place = np.minimum(np.searchsorted(ids, correlation), len(ids) - 1)
        found = (correlation > 0) & (ids[place] == correlation)
        again = np.flatnonzero(found & (np.searchsorted(ids, correlation, "right") - 1 > place))
        if len(again):
            moment = np.asarray(device["start"], np.int64)[again]
            place[again] = _last_before(ids, host.start[rows], correlation[again], moment, place[again])
        call[found] = rows[place[found]]
        link[found] = S.BY_CORRELATION
        link[~found & (correlation > 0) & (correlation < ids[0])] = S.BEFORE_WINDOW
    loose = np.flatnonzero(correlation <= 0)
    if len(loose) and len(flows):
        _by_flow(host, device, flows, loose, call, link)
    return call, link


def _last_before(ids: Ints, begun: Ints, wanted: Ints, moment: Ints, first: Ints) -> Ints:
    """Returns the place of the last call of each id that begins before a moment; where none does, that of the first one.

    ids, begun: of calls, by id and then by start. first: place of the first call of each wanted id.
    """
    moments, rank = np.unique(np.concatenate((begun, moment)), return_inverse=True)
    distinct, number = np.unique(ids, return_inverse=True)
    key = number * len(moments) + rank[: len(ids)]
    found = np.searchsorted(key, np.searchsorted(distinct, wanted) * len(moments) + rank[len(ids) :], "right") - 1
    return np.maximum(found, first)


def _by_flow(host: Host, device: dict[str, Array], flows: pd.DataFrame, loose: Ints, call: Rows, link: npt.NDArray[np.int8]) -> None:
    # a flow whose id is the correlation of a device event is that event's, whatever else starts at the same moment
    taken = np.isin(flows["id"].to_numpy(), np.unique(device["correlation"]))  # -1, no id, is the correlation of the loose ones
    kind = among(flows["category"], rules.LAUNCH_FLOWS) & (flows["id"].to_numpy() != -1) & ~taken
    pairs = flow_pairs(flows[kind & among(flows["phase"], ("s",))], flows[kind & among(flows["phase"], ("f",))], "nearest")
    pairs = pairs.drop_duplicates("time_ns_f", keep=False).sort_values("time_ns_f")
    if pairs.empty:
        return
    ends, start = pairs["time_ns_f"].to_numpy(np.int64), np.asarray(device["start"], np.int64)[loose]
    place = np.minimum(np.searchsorted(ends, start), len(ends) - 1)
    good = ends[place] == start
    chosen = pairs.iloc[place[good]]
    rows = host.find(chosen["thread_s"].to_numpy(np.int32), chosen["time_ns_s"].to_numpy(np.int64), host.kind == S.CALL)
    targets = loose[good]
    has = rows >= 0
    call[targets[has]] = rows[has]
    link[targets[has]] = S.BY_FLOW


def among(column: pd.Series, names: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """Returns which rows of a dictionary-encoded column hold one of `names`; tested once per distinct value."""
    text = arrays.coded(column)
    good = np.array([one in names for one in text.categories.tolist()], np.bool_)
    return good[text.codes] if len(text) else np.zeros(0, bool)


def flow_pairs(starts: pd.DataFrame, ends: pd.DataFrame, direction: Literal["backward", "nearest"]) -> pd.DataFrame:
    """Returns each end of a flow with its start, columns suffixed `_s` and `_f`. Where an id is used again, the start next to the end
    (`nearest`) or the last one before it (`backward`) is meant."""
    if starts["id"].is_unique:
        start, end = _matches(starts["id"].to_numpy(), ends["id"].to_numpy())
        sides = ((starts, "_s", start), (ends, "_f", end))
        columns = {c + suffix: side[c].array[rows] for side, suffix, rows in sides for c in side.columns if c != "id"}
        return frame_of(columns)
    left = ends.rename(columns={c: c + "_f" for c in ends.columns if c != "id"}).sort_values("time_ns_f", kind="stable")
    right = starts.rename(columns={c: c + "_s" for c in starts.columns if c != "id"}).sort_values("time_ns_s", kind="stable")
    found = pd.merge_asof(left, right, left_on="time_ns_f", right_on="time_ns_s", by="id", direction=direction)
    return found[found["time_ns_s"].notna()]


def _matches(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Returns (places in `left`, places in `right`) of pairs of equal ids, by the place in `left`, then in `right`. `left` are distinct."""
    order = np.argsort(right, kind="stable")
    first = np.searchsorted(right[order], left)
    count = np.searchsorted(right[order], left, "right") - first
    place = arrays.ranges(first, count)
    return np.repeat(np.arange(len(left)), count), order[place]


def owners(host: Host, call: Rows) -> dict[str, Rows]:
    """Returns innermost operator, module and annotation around each launch (host rows, -1 none)."""
    has = call >= 0
    time = np.zeros(len(call), np.int64)
    time[has] = host.start[call[has]]
    return {
        name: tree.nearest(host.kind == kind, host.parent, host.end_time, call, time)
        for name, kind in (("operator", S.OPERATOR), ("module", S.MODULE), ("annotation", S.ANNOTATION))
    }


def communication(
    host: Host, device: pd.DataFrame, annotation: Rows, operator: Rows
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Returns (wide, narrow) communication flags of device events: by kernel name, and (wide) by the range around the launch."""
    text = arrays.coded(device["name"])
    kernel = device["kind"].to_numpy() == S.KERNEL
    if not len(kernel):
        return np.zeros(0, bool), np.zeros(0, bool)
    used = arrays.in_use(text.codes, len(text.categories))  # most names are those of other tables
    names = arrays.spelled(text.categories, used)
    wider = {int(used[i]): names[i] for i in rules.communicating(names)}
    narrower = [code for code, name in wider.items() if rules.NARROW.search(name)]  # what the narrow pattern matches, the wide one does
    wide, narrow = (arrays.having(text.codes, [*found], len(text.categories)) & kernel for found in (wider, narrower))
    inside = host.matching(rules.COMMUNICATION_RANGE)
    for owner in (annotation, operator):
        has = owner >= 0
        if has.any() and len(inside):
            wide[has] |= inside[owner[has]] & kernel[has]
    return wide, narrow


def steps(host: Host, frame: pd.DataFrame, device: pd.DataFrame, extent: tuple[int, int]) -> tuple[pd.DataFrame, Rows]:
    """Returns (steps table, step row per device event). Without ProfilerStep iterations of a serving engine are steps; one pseudo-step
    over the whole extent where there are none either.

    A step begins no earlier than the work before it ends. Before the first recorded step that is all work launched earlier, in the
    recording or before it began: it belongs to no step. Other work without a recorded launch belongs to the step in whose time it starts.
    """
    rows, number = _numbered(host)
    serving = not len(rows)
    if serving:
        rows = _iterations(host)
        number = np.arange(1, len(rows) + 1)
    device_start = device["start_ns"].to_numpy()
    device_end = device_start + device["duration_ns"].to_numpy()
    call = device["call"].to_numpy()
    if len(rows) == 0:
        low, high = extent
        table = S.STEPS.frame(
            {
                "number": [-1],
                "name": pd.Categorical(["whole trace"]),
                "host": [-1],
                "host_start_ns": [low],
                "host_end_ns": [high],
                "start_ns": [low],
                "end_ns": [high],
                "device_events": [len(device)],
                "complete": [True],
            }
        )
        return table, np.zeros(len(device), np.int32)
    start, end = host.start[rows], host.end_time[rows]
    linked = call >= 0
    launch = np.where(linked, host.start[np.maximum(call, 0)], device_start)
    place = np.searchsorted(start, launch, "right") - 1
    inside = (place >= 0) & (launch < end[np.maximum(place, 0)])
    step = np.where(inside & linked, place, -1).astype(np.int32)
    if (end[:-1] > start[1:]).any():  # steps within steps: the one that starts last among those that hold the launch
        for i in range(len(rows)):
            step[linked & ~inside & (launch >= start[i]) & (launch < end[i])] = i
    count = np.bincount(step[step >= 0], minlength=len(rows))
    last = np.zeros(len(rows), np.int64)
    np.maximum.at(last, step[step >= 0], device_end[step >= 0])
    ends = np.maximum(end, last)
    before = np.where(linked, launch < start[0], _launched_before(device, int(start[0])))
    earlier = int(device_end[before].max()) if before.any() else np.iinfo(np.int64).min
    reach = np.maximum.accumulate(np.concatenate([[earlier], ends]))  # work of a step may outlast the next step's: no moment in two
    starts = np.maximum(start, reach[:-1])
    ends = np.maximum(ends, starts)
    place = np.searchsorted(starts, device_start, "right") - 1
    by_time = ~linked & ~before & (place >= 0) & (device_start < ends[np.maximum(place, 0)])
    step[by_time] = place[by_time].astype(np.int32)
    complete = np.ones(len(rows), bool)
    if len(device):
        complete = count > 0
        if serving:
            complete &= ~_cut(count, [iteration_of(str(host.names[code])) for code in host.code[rows]])
        elif len(rows) > 1 and count[-1] < 0.8 * count[-2]:
            complete[-1] = False
    table = S.STEPS.frame(
        {
            "number": number,
            "name": frame["name"].iloc[rows].array,
            "host": rows,
            "host_start_ns": start,
            "host_end_ns": end,
            "start_ns": starts,
            "end_ns": ends,
            "device_events": count,
            "complete": complete,
            **(_read_from(host, rows) if serving else {}),
        }
    )
    return table, step


def _numbered(host: Host) -> tuple[Ints, Ints]:
    """Returns (rows of `ProfilerStep#N` by start, their numbers); of several of one number the longest."""
    names = [rules.STEP.match(n) for n in host.names]
    number_of = np.fromiter((int(m.group(1)) if m and len(m.group(1)) < 18 else -1 for m in names), np.int64, len(names))
    numbers = number_of[host.code] if len(host.code) else np.zeros(0, np.int64)
    rows = np.flatnonzero((numbers >= 0) & ((host.kind == S.ANNOTATION) | (host.kind == S.OPERATOR)))
    if len(rows):
        order = np.lexsort((-(host.end_time[rows] - host.start[rows]), numbers[rows]))
        rows = rows[order]
        rows = rows[np.concatenate([[True], numbers[rows][1:] != numbers[rows][:-1]])]
        rows = rows[np.argsort(host.start[rows], kind="stable")]
    return rows, numbers[rows]


def _iterations(host: Host) -> Ints:
    """Returns the annotations of one serving engine's iterations by start; one inside of another is part of that."""
    engines = [found.engine if (found := iteration_of(str(name))) is not None else "" for name in host.names]
    used = {engines[code] for code in np.unique(host.code[host.kind == S.ANNOTATION]).tolist()}
    chosen = next((p.engine for p in PATTERNS if p.engine in used), None)
    if chosen is None:
        return np.zeros(0, np.int64)
    mask = (host.kind == S.ANNOTATION) & np.array([engine == chosen for engine in engines])[host.code]
    rows = np.flatnonzero(mask).astype(np.int64)
    rows = rows[tree.nearest(mask, host.parent, host.end_time, host.parent[rows], host.start[rows]) < 0]
    return rows[np.argsort(host.start[rows], kind="stable")]


def _cut(count: Ints, found: list[Iteration | None]) -> npt.NDArray[np.bool_]:
    """Returns whether the first or the last iteration has less than 0.8 of the device events of the nearest one like it."""
    cut = np.zeros(len(count), np.bool_)
    alike = [(one.kind, one.batch) if one is not None else None for one in found]
    for end, others in ((0, range(1, len(count))), (len(count) - 1, range(len(count) - 2, -1, -1))):
        near = next((place for place in others if alike[place] == alike[end]), None)
        if near is not None and count[end] < 0.8 * count[near]:
            cut[end] = True
    return cut


def _read_from(host: Host, rows: Ints) -> dict[str, object]:
    """Returns what the annotations of iterations say of each."""
    found = [one for code in host.code[rows].tolist() if (one := iteration_of(str(host.names[code]))) is not None]
    texts = {name: pd.Categorical([getattr(one, name) for one in found]) for name in ("engine", "kind")}
    return texts | {
        name: np.array([getattr(one, name) for one in found], np.int64)
        for name in ("requests", "context_tokens", "generation_tokens", "batch", "key_tokens")
    }


def _launched_before(device: pd.DataFrame, first_step_ns: int) -> npt.NDArray[np.bool_]:
    """Returns device events without a recorded launch that were launched before the first step.

    They start before it, or were launched before the recording: their correlation is lower than every recorded one, and as a stream keeps
    the order of its launches, no event with a recorded launch starts before them on their stream.
    """
    start, linked = device["start_ns"].to_numpy(), device["call"].to_numpy() >= 0
    before = ~linked & ((device["link"].to_numpy() == S.BEFORE_WINDOW) | (start < first_step_ns))
    if before.any():
        stream = device.groupby(["device", "stream"], sort=False).ngroup().to_numpy()
        first = np.full(int(stream.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(first, stream[linked], start[linked])
        before &= start <= first[stream]
    return np.asarray(before, np.bool_)


def backward(host: Host, operators: pd.DataFrame, flows: pd.DataFrame) -> pd.DataFrame:
    """Links from forward operators to backward roots: by autograd flows where the file has them, else by sequence number."""
    sequence = np.full(len(host.kind), -1, np.int64)
    forward_thread = np.zeros(len(host.kind), np.int64)
    rows = operators["host"].to_numpy()
    sequence[rows] = operators["sequence"].to_numpy()
    forward_thread[rows] = operators["forward_thread"].to_numpy()
    by_flow = _backward_flows(host, flows, sequence)
    by_number = _backward_numbers(host, sequence, forward_thread, by_flow[1])
    forward, root = (np.concatenate(both) for both in zip(by_flow, by_number, strict=True))
    method = np.repeat(np.array([0, 1], np.int8), [len(by_flow[0]), len(by_number[0])])
    _, first = arrays.numbered(forward.astype(np.int64) * (len(host.kind) + 1) + root)  # of equal pairs the first stays
    return S.BACKWARD.frame({"forward": forward[first], "backward": root[first], "method": method[first]})


def _lift(host: Host, rows: Rows) -> Rows:
    """Returns the evaluate_function wrapper around a backward operator, or the operator itself."""
    wrapper = host.matching(re.compile(re.escape(WRAPPER)))
    up = host.parent[rows]
    return np.where((up >= 0) & wrapper[np.maximum(up, 0)], up, rows).astype(np.int32)


_NONE: Final = (np.zeros(0, np.int32), np.zeros(0, np.int32))


def _backward_flows(host: Host, flows: pd.DataFrame, sequence: Ints) -> tuple[Rows, Rows]:
    """Returns (forward operators, their backward roots) by autograd flows."""
    if flows.empty:
        return _NONE
    kind = among(flows["category"], rules.AUTOGRAD_FLOWS) & (flows["id"].to_numpy() != -1)
    if not kind.any():
        return _NONE
    columns = {name: flows[name].to_numpy() for name in ("id", "thread", "time_ns")}
    halves = (kind & among(flows["phase"], (phase,)) for phase in ("s", "f"))
    starts, ends = (frame_of({name: values[half] for name, values in columns.items()}) for half in halves)
    pairs = flow_pairs(starts, ends, "backward")
    if pairs.empty:
        return _NONE
    operator = host.kind == S.OPERATOR
    numbered = operator & (sequence >= 0)
    sides = []
    for suffix in ("_s", "_f"):
        thread, time = pairs["thread" + suffix].to_numpy(np.int32), pairs["time_ns" + suffix].to_numpy(np.int64)
        row = host.find(thread, time, numbered)
        rest = row < 0
        if rest.any():
            row[rest] = host.find(thread[rest], time[rest], operator)
        sides.append(row)
    good = (sides[0] >= 0) & (sides[1] >= 0)
    return sides[0][good], _lift(host, sides[1][good])


def _backward_numbers(host: Host, sequence: Ints, forward_thread: Ints, done: Rows) -> tuple[Rows, Rows]:
    """Returns (forward operators, their backward roots) by sequence number. done: roots that need none.

    A root belongs to the latest forward operator of its number before it on the thread that its forward thread number stands for.
    """
    operator = (host.kind == S.OPERATOR) & (sequence >= 0)
    is_backward = operator & (forward_thread > 0)
    inner = np.flatnonzero(is_backward)
    if len(inner) == 0:
        return _NONE
    up = host.parent[inner]
    nested = (up >= 0) & is_backward[np.maximum(up, 0)] & (sequence[np.maximum(up, 0)] == sequence[inner])
    roots = inner[~nested]
    roots = roots[~np.isin(roots, done)]
    forwards = np.flatnonzero(operator & (forward_thread <= 0))
    forwards = forwards[np.isin(sequence[forwards], sequence[roots])]
    if len(roots) == 0 or len(forwards) == 0:
        return _NONE
    numbers, number = arrays.in_order(np.concatenate([sequence[forwards], sequence[roots]]))
    moments, moment = arrays.in_order(host.start[np.concatenate([forwards, roots])])
    threads, thread = arrays.in_order(host.thread[forwards].astype(np.int64))
    # thread, sequence number and moment as one number: of their places, so that it stays small
    mine, others = number * len(moments), slice(len(forwards), None)
    every = len(numbers) * len(moments)
    key = thread * every + (mine + moment)[: len(forwards)]
    order = arrays.stable_order(key)
    key, forwards = key[order], forwards[order]
    found: list[tuple[Ints, Ints, Ints]] = []
    for one in range(len(threads)):
        least = one * every + mine[others]
        last = np.searchsorted(key, least + moment[others]) - 1  # begins before the root
        has = np.flatnonzero((last >= 0) & (key[np.maximum(last, 0)] >= least))
        found.append((forwards[last[has]], roots[has], np.full(len(has), one)))
    forward, root, at = (np.concatenate(column) for column in zip(*found, strict=True))
    meant = np.flatnonzero(at == _home_threads(forward_thread[root], at, host.start[forward]))
    meant = meant[np.argsort(root[meant], kind="stable")]
    return forward[meant].astype(np.int32), root[meant].astype(np.int32)


def _home_threads(number: Ints, thread: Ints, begun: Ints) -> Ints:
    """Returns per candidate of a root the OS thread that the root's forward thread number stands for: the one most of its roots have a
    candidate on.

    Threads that count alike (replicas that run the same model) are given out in order of their first operator, each once.
    number: of the root of each candidate. thread, begun: of the candidate.
    """
    numbers, place = arrays.in_order(number)
    width = int(thread.max(initial=0)) + 1
    pairs, of = arrays.in_order(place * width + thread)
    votes, first, most = np.bincount(of), np.full(len(pairs), np.iinfo(np.int64).max), np.zeros(len(numbers), np.int64)
    np.minimum.at(first, of, begun)
    np.maximum.at(most, pairs // width, votes)
    best = np.flatnonzero(votes == most[pairs // width])
    best = best[np.lexsort((first[best], pairs[best] // width, -votes[best]))]
    home = np.full(len(numbers), -1, np.int64)
    used: set[int] = set()
    for one, own in groupby(pairs[best].tolist(), lambda pair: pair // width):
        those = [pair % width for pair in own]
        home[one] = next((t for t in those if t not in used), those[0])
        used.add(int(home[one]))
    return np.asarray(home[place], np.int64)
