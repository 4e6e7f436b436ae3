"""Summarizes one rank for comparisons over ranks: its steps, its collectives and what each waited for, its process groups.

A summary is made of one recording alone. Everything over ranks (matching, clocks, waits, stragglers) is made of summaries, so a recording
is read once. Times are ns of the rank's own clock since `origin_ns`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cost.inputs import size_of
from tb_sol_plugin.cost.ops.collectives import collective_kind, element_type
from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.copies import bandwidth
from tb_sol_plugin.metrics.ranks.batches import COALESCED, Batch, Batches, Message, batches, unnamed
from tb_sol_plugin.metrics.ranks.by_name import totals_of
from tb_sol_plugin.metrics.ranks.on_host import OnHost, on_host, only_group
from tb_sol_plugin.metrics.ranks.own_time import CAUSES, Activity, Dependencies, Pieces, Work, dependencies, exposed
from tb_sol_plugin.metrics.ranks.process_groups import Group, arguments, group_key, groups_of
from tb_sol_plugin.metrics.ranks.roots import roots
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time import breakdown as B
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints, Mask
from tb_sol_plugin.tables.packed import Columns, Packed, pack

KINDS: Final = (
    "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "barrier", "broadcast", "reduce", "gather", "scatter", "send", "recv",
    "p2p_batch", "unknown",
)  # fmt: skip
SYNC: Final = 5
"""The first so many kinds need data of every member on every member: none ends before the last has begun."""
SEND, RECV, BATCH, UNKNOWN = (KINDS.index(kind) for kind in ("send", "recv", "p2p_batch", "unknown"))
P2P: Final = (SEND, RECV, BATCH)
"""Kinds between pairs of ranks. A batch that only sends to one rank, or only receives from one, is a send or a receive."""
ROOTED: Final = (KINDS.index("broadcast"), KINDS.index("scatter"))
"""Kinds whose data comes from one member, which is their `source`."""
DTYPES: Final = (
    "fp32", "fp16", "bf16", "fp64", "int64", "int32", "int16", "int8", "uint8", "bool", "uint16", "uint32", "uint64", "fp8_e4m3",
    "fp8_e5m2", "complex32", "complex64", "complex128",
)  # fmt: skip
ALGORITHMS: Final = (
    "", "RING_LL", "RING_LL128", "RING_SIMPLE", "TREE_LL", "TREE_LL128", "TREE_SIMPLE", "NVLS", "COLLNET", "PAT", "RING", "TREE",
    "SENDRECV",
)  # fmt: skip
"""Algorithm and protocol, as kernels name them; "" where they do not."""

OWN: Final = tuple(f"pre_{cause}_ns" for cause in CAUSES)
ROWS: Final[dict[str, str]] = {
    "step": "i8", "group": "i4", "kind": "i1", "dtype": "i1", "algorithm": "i1", "uneven": "?", "stream": "i8", "seq": "i8", "source": "i4",
    "target": "i4", "start_ns": "i8", "duration_ns": "i8", "launch_ns": "i8", "bytes_in": "i8", "bytes_out": "i8", "exposed_ns": "i8",
    **dict.fromkeys(OWN, "i8"), "pred_row": "i4", "stream_row": "i4", "stream_lag_ns": "i8", "slack_ns": "i8",
    "parts": "i4", "batch": "i4", "event": "i8",
}  # fmt: skip
"""Columns of collectives, in order of start. step: number, -1 unknown. group: place in `groups`, -1 unknown. seq, source, target (ranks;
the source of ROOTED is their root), launch_ns, bytes: -1 unknown. slack_ns: as `Dependencies` has it. parts: calls that went out together
as this one. batch: place in `batches` of the parts of a BATCH, -1 of other kinds. event: row of the device table."""
PEERS: Final[dict[str, str]] = {"step": "i8", "group": "i4", "place": "i4", "bytes": "i8"}
"""Columns of what uneven all_to_all send, summed by step, group and receiver: its place among the ranks of the group."""
MOST_MEMBERS: Final = 16_384
MOST_PEERS: Final = 20_000
"""Members of a group whose shares are read, and rows of shares that a summary keeps; of more it keeps none, and says so (`peers_left`)."""
PIECES: Final[dict[str, str]] = {"row": "i4", "offset_ns": "i8", "length_ns": "i8"}
STEPS: Final[dict[str, str]] = {
    "step": "i8", "start_ns": "i8", "duration_ns": "i8", "complete": "?", **dict.fromkeys(B.CATEGORIES, "i8"),
    "collectives_ns": "i8", "exposed_communication_ns": "i8", "idle_ns": "i8",
}  # fmt: skip
ENGINE: Final = "autograd::engine::evaluate_function"
"""What the names of functions of the backward pass begin with."""
MOST_ROWS: Final = 20_000
"""Collectives of a rank that are kept; of more those of a few steps."""
KEPT_STEPS: Final = 3


class RankSummary(msgspec.Struct, frozen=True):
    """What is known of one rank.

    first_ns, last_ns: of its recording. kernel_ns, communication_ns, exposed_communication_ns, idle_ns: of the device over the recording.
    link_bytes_per_s, link: what its device's links carry one way, and what they are; None and "" unknown. left_out: collectives that are
    not in `rows`, since there are too many. peers: bytes that uneven all_to_all send, as PEERS names them; None without any, or where there
    are too many (peers_left). totals, names: time on the device by what it did, as `by_name.totals_of` returns them. host_only: a backend
    of the host ran the collectives (gloo), and `kernel_ns` is time of operators. batches: what the calls of kind BATCH send and receive.
    """

    device: str
    origin_ns: int
    absolute: bool
    first_ns: int
    last_ns: int
    kernel_ns: int
    communication_ns: int
    exposed_communication_ns: int
    idle_ns: int
    groups: tuple[Group, ...]
    steps: Packed
    rows: Packed
    pieces: Packed
    link_bytes_per_s: float | None = None
    link: str = ""
    left_out: int = 0
    peers: Packed | None = None
    peers_left: bool = False
    totals: Packed | None = None
    names: tuple[str, ...] = ()
    host_only: bool = False
    batches: tuple[Batch, ...] = ()

    @property
    def window_ns(self) -> int:
        """Length of the recording."""
        return self.last_ns - self.first_ns


def summary_of_rank(capture: Capture, query: Query) -> RankSummary:
    """Reduces a recording to a summary: of what its device ran, else its host. Unavailable where neither ran collectives."""
    device = capture.device
    rows = np.flatnonzero((B.classes(capture) == B.COMMUNICATION) & (device["duration_ns"].to_numpy() > 0))
    if not len(rows):
        found = on_host(capture, _loads(capture))
        if found is None:
            hint = "record a step of a job of several ranks"
            raise Unavailable("no collective ran on a device or its host in this recording", hint=hint)
        return _of_host(capture, found)
    rows = rows[np.argsort(device["start_ns"].to_numpy()[rows], kind="stable")]
    layers = B.layers(capture, np.ones(len(device), np.bool_))
    batched = batches(capture, rows, arguments(capture, rows) >= 0)
    groups, group = groups_of(capture, rows, batched.first)
    columns = _described(capture, rows, group) | {"event": rows, "parts": np.ones(len(rows), np.int64)}
    columns, of_batches = with_batches(columns, batched, _coalesced_pairs(capture, rows, columns, groups), [g.size for g in groups])
    rooted = np.flatnonzero(np.isin(columns["kind"], ROOTED) & (columns["source"] < 0))
    if len(rooted):
        columns["source"][rooted] = roots(capture, rows[rooted], group[rooted], [g.ranks for g in groups])
    groups = _with_backward(capture, columns, groups)
    peers = peers_of(columns, _splits(capture, rows))
    timed, pieces = _timed(capture, rows, columns["kind"] == SEND)
    columns, pieces = joined(columns | timed, pieces, device["operator"].to_numpy()[rows])
    totals, names = totals_of(capture)
    first, last = capture.facts.extent_ns
    link = bandwidth.peaks(device_for(capture, query.device_limits)).get("PtoP", (None, ""))
    return summary(
        columns, pieces, groups=groups, steps=_steps(capture),
        device=next((d.name for d in capture.facts.devices if d.name), ""), origin_ns=capture.facts.origin_ns,
        absolute=capture.facts.absolute, first_ns=first, last_ns=last, kernel_ns=iv.length(layers.computation),
        communication_ns=iv.length(layers.communication), exposed_communication_ns=iv.length(layers.exclusive[1]),
        link_bytes_per_s=link[0], link=link[1], peers=peers, totals=totals, names=names,
        batches=of_batches, idle_ns=iv.length(iv.gaps(layers.busy, int(layers.busy[0][0]), int(layers.busy[1][-1]))),
    )  # fmt: skip


def summary(columns: Columns, pieces: Pieces, *, groups: Sequence[Group], steps: Columns, **more: Any) -> RankSummary:
    """Returns a summary of columns as ROWS, PIECES and STEPS name them. more: other fields of the summary; peers as PEERS names them."""
    kept = _kept(columns, steps)
    left = len(kept) - int(kept.sum())
    if left:
        columns, pieces = only_rows(columns, pieces, kept)
    peers = more.pop("peers", None)
    if peers is not None and len(peers["step"]):
        more |= {"peers": pack(peers, PEERS)} if len(peers["step"]) <= MOST_PEERS else {"peers_left": True}
    return RankSummary(
        groups=tuple(groups), steps=pack(steps, STEPS), rows=pack(columns, ROWS), pieces=pack(pieces._asdict(), PIECES), left_out=left,
        **more,
    )  # fmt: skip


def _kept(columns: Columns, steps: Columns) -> Mask:
    """Returns the collectives that are kept: all, or of more than MOST_ROWS those of the complete steps in the middle."""
    step = columns["step"]
    if len(step) <= MOST_ROWS:
        return np.ones(len(step), np.bool_)
    complete = np.sort(steps["step"][steps["complete"]])
    middle = max((len(complete) - KEPT_STEPS) // 2, 0)
    found = np.isin(step, complete[middle : middle + KEPT_STEPS])
    if 0 < int(found.sum()) <= MOST_ROWS:
        return np.asarray(found, np.bool_)
    return np.arange(len(step)) < MOST_ROWS


def only_rows(columns: Columns, pieces: Pieces, kept: Mask) -> tuple[Columns, Pieces]:
    """Returns the collectives that are kept; what one of them waited for and is not kept is not known."""
    place = np.full(len(kept) + 1, -1, np.int64)
    place[np.flatnonzero(kept)] = np.arange(int(kept.sum()))
    out = {name: column[kept] for name, column in columns.items()}
    out |= {name: place[out[name]] for name in ("pred_row", "stream_row")}
    some = kept[pieces.row]
    return out, Pieces(place[pieces.row[some]], pieces.offset_ns[some], pieces.length_ns[some])


def _of_host(capture: Capture, found: OnHost) -> RankSummary:
    """Reduces a recording whose collectives a backend of the host ran."""
    count, activity = len(found.rows), found.activity
    kind = arrays.per_text(capture.host["name"], found.rows, kind_of, np.int64)
    begin = int(found.work.start[0])
    depends = dependencies(found.work, found.thread, kind == SEND, found.kernels, activity, begin)
    pieces = exposed(found.work, activity.compute)
    unknown = np.full(count, -1, np.int64)
    at_step = capture.steps["number"].to_numpy()
    place = np.searchsorted(capture.steps["host_start_ns"].to_numpy(), found.work.start, side="right") - 1
    inside = (place >= 0) & (found.work.start < capture.steps["host_end_ns"].to_numpy()[np.maximum(place, 0)])
    group = only_group(capture)
    columns = timed_columns(found.work, found.thread, depends, pieces) | {
        "step": np.where(inside, at_step[np.maximum(place, 0)], -1), "group": np.zeros(count, np.int64) if group else unknown, "kind": kind,
        **dict.fromkeys(("dtype", "seq", "source", "target", "bytes_in", "bytes_out"), unknown), "algorithm": np.zeros(count, np.int64),
        "uneven": np.zeros(count, np.bool_), "parts": np.ones(count, np.int64), "batch": unknown,
        "event": found.rows,
    }  # fmt: skip
    first, last = capture.facts.extent_ns
    alone = iv.subtract(activity.communication, activity.compute)
    busy = iv.merge(activity.communication, activity.compute)
    groups = [Group(group_key(group[2], group[1], "no. 1"), *group)] if group else []
    return summary(
        columns, pieces, groups=groups, steps=_host_steps(capture, activity), device="", origin_ns=capture.facts.origin_ns,
        absolute=capture.facts.absolute, first_ns=first, last_ns=last, kernel_ns=iv.length(activity.compute),
        communication_ns=iv.length(activity.communication), exposed_communication_ns=iv.length(alone),
        idle_ns=iv.length(iv.gaps(busy, int(busy[0][0]), int(busy[1][-1]))), host_only=True,
    )  # fmt: skip


def _host_steps(capture: Capture, activity: Activity) -> Columns:
    """Returns the steps of a recording without a device, as STEPS names them."""
    steps = capture.steps[capture.steps["number"].to_numpy() >= 0]
    start, end = steps["host_start_ns"].to_numpy(), steps["host_end_ns"].to_numpy()
    alone = iv.subtract(activity.communication, activity.compute)
    own = {
        "kernel_ns": activity.compute, "communication_ns": alone, "collectives_ns": activity.communication,
        "exposed_communication_ns": alone,
    }  # fmt: skip
    busy = iv.merge(activity.communication, activity.compute)
    parts = {name: iv.overlap_with(start, end, spans) for name, spans in own.items()}
    idle = end - start - iv.overlap_with(start, end, busy)
    return {name: np.zeros(len(steps), np.int64) for name in STEPS} | parts | {
        "step": steps["number"].to_numpy(), "start_ns": start, "duration_ns": end - start, "complete": steps["complete"].to_numpy(),
        "idle_ns": idle, "other_ns": idle,
    }  # fmt: skip


def joined(columns: Columns, pieces: Pieces, record: Ints) -> tuple[Columns, Pieces]:
    """Returns collectives that went out together as one: those in a row on one stream with one number in their group.

    record: of each, the host row that recorded it. Several records are parts, whose sizes add up; kernels of one record are one part.
    The one that remains lasts from the first start to the last end.
    """
    alike = [columns[name].astype(np.int64) for name in ("group", "seq", "kind", "source", "target")]
    order = np.lexsort((columns["start_ns"], columns["stream"]))
    follows = np.zeros(len(order), np.bool_)
    same = [column[order][1:] == column[order][:-1] for column in (*alike, columns["stream"].astype(np.int64))]
    follows[1:] = np.logical_and.reduce(same) & (columns["seq"][order][1:] >= 0) & (columns["group"][order][1:] >= 0)
    if not follows.any():
        return columns, pieces
    run = np.cumsum(~follows) - 1
    head = np.empty(len(order), np.int64)
    head[order] = order[np.flatnonzero(~follows)][run]
    end = columns["start_ns"] + columns["duration_ns"]
    new = np.ones(len(order), np.bool_)
    new[order[1:]] = ~follows[1:] | (record[order][1:] != record[order][:-1]) | (record[order][1:] < 0)
    out = {name: np.array(column) for name, column in columns.items()}
    last = np.zeros(len(order), np.int64)
    np.maximum.at(last, head, end)
    kept = head == np.arange(len(order))
    out["duration_ns"] = np.where(kept, last - columns["start_ns"], columns["duration_ns"])
    for name, each in (("exposed_ns", columns["exposed_ns"]), ("parts", new), *((n, columns[n] * new) for n in ("bytes_in", "bytes_out"))):
        total = np.zeros(len(order), np.int64)
        np.add.at(total, head, each)
        unknown = np.zeros(len(order), np.bool_)
        np.logical_or.at(unknown, head, each < 0)
        out[name] = np.where(unknown, -1, total)
    for name in ("pred_row", "stream_row"):
        out[name] = np.where(columns[name] >= 0, head[np.maximum(columns[name], 0)], -1)
    moved = columns["start_ns"][pieces.row] - columns["start_ns"][head[pieces.row]]
    shifted = Pieces(head[pieces.row], pieces.offset_ns + moved, pieces.length_ns)
    place = np.lexsort((shifted.offset_ns, shifted.row))
    return only_rows(out, Pieces(*(column[place] for column in shifted)), kept)


# -- When ------------------------------------------------------------------------------------------------------------


def work_of(capture: Capture, rows: Ints) -> Work:
    """Returns start, end and launch of device rows; launch -1 where none is recorded."""
    launch = at.launches(capture)
    start = capture.device["start_ns"].to_numpy()[rows]
    end = start + capture.device["duration_ns"].to_numpy()[rows]
    return Work(start, end, np.where(launch.call[rows] >= 0, launch.time[rows], -1))


def _timed(capture: Capture, rows: Ints, sends: Mask) -> tuple[Columns, Pieces]:
    """Returns the columns of time of collectives, and their exposed stretches, each by what else its device does."""
    device = capture.device["device"].to_numpy()
    found = [_on_device(capture, np.flatnonzero(device[rows] == one), rows, sends, int(one)) for one in np.unique(device[rows]).tolist()]
    out: Columns = {}
    place = np.concatenate([mine for mine, _, _ in found])
    for name in found[0][1]:
        column = np.concatenate([columns[name] for _, columns, _ in found])
        out[name] = np.empty_like(column)
        out[name][place] = column
    pieces = [np.concatenate(parts) for parts in zip(*(p for _, _, p in found), strict=True)]
    order = np.lexsort((pieces[1], pieces[0]))
    return out, Pieces(*(column[order] for column in pieces))


def _on_device(capture: Capture, mine: Ints, every: Ints, sends: Mask, device: int) -> tuple[Ints, Columns, Pieces]:
    """Returns (places of the collectives of one device among all, their columns, their exposed stretches)."""
    rows, on_it = every[mine], capture.device["device"].to_numpy() == device
    kind = B.classes(capture)
    kernels = np.flatnonzero(on_it & (kind == B.COMPUTATION))
    kernels = kernels[np.argsort(capture.device["start_ns"].to_numpy()[kernels], kind="stable")]
    layers, waits = B.layers(capture, on_it), B.gaps(capture, on_it)
    waits = waits[waits["cause"] == B.CAUSES.index("host_wait")]
    start = waits["start_ns"].to_numpy()
    idle = iv.union(start, start + waits["duration_ns"].to_numpy())
    begin = _begin(capture, int(every[0]))
    idle = iv.merge(idle, _before_first(capture, np.flatnonzero(on_it), begin))
    activity = Activity(layers.computation, layers.memcpy, layers.communication, _loads(capture), idle)
    own = work_of(capture, rows)
    stream = capture.device["stream"].to_numpy()[rows]
    found = dependencies(own, stream, sends[mine], work_of(capture, kernels), activity, begin)
    pieces = exposed(own, layers.computation)
    columns = timed_columns(own, stream, found, pieces)
    for name in ("pred_row", "stream_row"):
        columns[name] = np.where(columns[name] >= 0, mine[np.maximum(columns[name], 0)], -1)
    return mine, columns, Pieces(mine[pieces.row], pieces.offset_ns, pieces.length_ns)


def _before_first(capture: Capture, rows: Ints, begin: int) -> iv.Spans:
    """Returns when a device waits for its host before its first event: that was launched after `begin`. rows: its events."""
    first = work_of(capture, rows[[int(capture.device["start_ns"].to_numpy()[rows].argmin())]])
    late = (first.launch > begin) & (first.start > begin)
    return np.full(int(late.sum()), begin, np.int64), first.start[late]


def _begin(capture: Capture, row: int) -> int:
    """Returns when the step of the first collective begins, where all of that is recorded; else when that collective does."""
    step = int(capture.device["step"].to_numpy()[row])
    if step >= 0 and bool(capture.steps["complete"].to_numpy()[step]) and int(capture.steps["number"].to_numpy()[step]) >= 0:
        return int(capture.steps["start_ns"].to_numpy()[step])
    return int(capture.device["start_ns"].to_numpy()[row])


def _loads(capture: Capture) -> iv.Spans:
    """Returns when the program loads its next batch, as `split_windows` tells it."""

    def make() -> iv.Spans:
        h = at.host(capture)
        rows = B.loading_rows(capture, S.OPERATOR, S.ANNOTATION, S.FRAME, S.MODULE)
        return iv.union(h.start[rows], h.stop[rows])

    return memo(capture, ("ranks.loads",), make)


def timed_columns(rows: Work, stream: Ints, found: Dependencies, pieces: Pieces) -> Columns:
    """Returns the columns of time of collectives, as ROWS names them."""
    length = np.zeros(len(rows.start), np.int64)
    np.add.at(length, pieces.row, pieces.length_ns)
    return {
        "stream": stream, "start_ns": rows.start, "duration_ns": rows.end - rows.start, "launch_ns": rows.launch, "exposed_ns": length,
        **{name: found.own_ns[:, i] for i, name in enumerate(OWN)}, "pred_row": found.pred_row, "stream_row": found.stream_row,
        "stream_lag_ns": found.stream_lag_ns, "slack_ns": found.slack_ns,
    }  # fmt: skip


def _steps(capture: Capture) -> Columns:
    """Returns the steps of a recording as STEPS names them; none where it has no steps of its own."""
    frame = B.split_steps(capture)
    frame = frame[frame["step"].to_numpy() >= 0]
    start = frame["start_ns"].to_numpy()
    end = start + frame["duration_ns"].to_numpy()
    layers = B.layers(capture, np.ones(len(capture.device), np.bool_))
    _, alone, _ = layers.exclusive
    return {name: frame[name].to_numpy() for name in ("step", "start_ns", "duration_ns", "complete", *B.CATEGORIES)} | {
        "collectives_ns": iv.overlap_with(start, end, layers.communication),
        "exposed_communication_ns": iv.overlap_with(start, end, alone),
        "idle_ns": end - start - iv.overlap_with(start, end, layers.busy),
    }


# -- What ------------------------------------------------------------------------------------------------------------


def _described(capture: Capture, rows: Ints, group: Ints) -> Columns:
    """Returns the columns of collectives that say what they are. group: place of each one's group, -1 unknown."""
    table, arg = capture.tables["collectives"], arguments(capture, rows)
    has, safe = arg >= 0, np.maximum(arg, 0)
    step = capture.device["step"].to_numpy()[rows]
    number = capture.steps["number"].to_numpy()

    def taken(column: str) -> Ints:
        return np.where(has, table[column].to_numpy()[safe], -1) if len(table) else np.full(len(rows), -1, np.int64)

    kind = _kinds(capture, rows, arg)
    dtype, size = _element(table, arg)
    sizes = [np.where((size > 0) & (elements >= 0), elements * size, -1) for elements in (taken("in_elements"), taken("out_elements"))]
    return {
        "step": np.where(step >= 0, number[np.maximum(step, 0)], -1) if len(number) else np.full(len(rows), -1, np.int64),
        "group": group, "kind": kind, "dtype": dtype,
        "algorithm": arrays.per_text(capture.device["name"], rows, algorithm_of, np.int64), "uneven": _uneven(table, arg),
        "seq": taken("sequence"), "source": taken("source_rank"), "target": taken("target_rank"), "bytes_in": sizes[0],
        "bytes_out": sizes[1],
    }  # fmt: skip


def _kinds(capture: Capture, rows: Ints, arg: Ints) -> npt.NDArray[np.int64]:
    """Returns the kind of each collective: of its recorded name, else of the ranges around its launch, else of its kernel."""
    device, host = capture.device, capture.host["name"]
    out = arrays.per_text(device["name"], rows, kind_of, np.int64)
    for column in ("operator", "annotation"):
        around = device[column].to_numpy()[rows].astype(np.int64)
        some = np.flatnonzero(around >= 0)
        named = arrays.per_text(host, around[some], kind_of, np.int64)
        out[some] = np.where(named != UNKNOWN, named, out[some])
    table = capture.tables["collectives"]
    some = np.flatnonzero(arg >= 0)
    if len(some):
        named = arrays.per_text(table["name"], arg[some], kind_of, np.int64)
        out[some] = np.where(named != UNKNOWN, named, out[some])
    return np.asarray(out, np.int64)


def with_batches(columns: Columns, found: Batches, pairs: Mask, sizes: Sequence[int]) -> tuple[Columns, tuple[Batch, ...]]:
    """Returns columns with what kernels without arguments send and receive, and the batches of those of kind BATCH.

    pairs: those that exchange something with the other rank of their group of two, of which nothing else is known. sizes: members of each
    group. Sends alone, to one rank, are one send of all their bytes; receives alike.
    """
    out = {name: np.array(column, np.int64) if name in _OF_BATCH else column for name, column in columns.items()}
    out["batch"] = np.full(len(found.place), -1, np.int64)
    kept: dict[Batch, int] = {}
    for row in np.flatnonzero((found.place >= 0) | pairs).tolist():
        place, group = int(found.place[row]), int(out["group"][row])
        batch = found.found[place] if place >= 0 else (Message(-1, None, -1),)
        sent, received = ([m.bytes for m in batch if m.receives is way] for way in (False, True))
        peers = {m.peer for m in batch}
        one = len(peers) == 1 and (-1 not in peers or len(batch) == 1 or (group >= 0 and sizes[group] == 2))
        known = len(sent) + len(received) == len(batch)
        out["bytes_in"][row], out["bytes_out"][row] = (sum(part) if known and -1 not in part else -1 for part in (sent, received))
        out["dtype"][row] = DTYPES.index(found.dtype[place]) if place >= 0 and found.dtype[place] in DTYPES else -1
        out["parts"][row], out["kind"][row] = len(batch), BATCH
        if one and len(sent) == len(batch):
            out["kind"][row], out["target"][row], out["bytes_out"][row] = SEND, *peers, out["bytes_in"][row]
        elif one and len(received) == len(batch):
            out["kind"][row], out["source"][row], out["bytes_in"][row] = RECV, *peers, out["bytes_out"][row]
        else:
            out["batch"][row] = kept.setdefault(batch, len(kept))
    return out, tuple(kept)


_OF_BATCH: Final = ("kind", "bytes_in", "bytes_out", "dtype", "parts", "source", "target")


def _coalesced_pairs(capture: Capture, rows: Ints, columns: Columns, groups: Sequence[Group]) -> Mask:
    """Returns which rows are kernels of batches between the two ranks of a group, as the range around their launch says."""
    some = np.flatnonzero(unnamed(capture, rows) & (columns["kind"] == UNKNOWN) & (columns["group"] >= 0))
    some = some[np.array([groups[g].size == 2 for g in columns["group"][some].tolist()], np.bool_)]
    around = capture.device["annotation"].to_numpy()[rows[some]].astype(np.int64)
    some = some[around >= 0]
    out = np.zeros(len(rows), np.bool_)
    out[some] = arrays.per_text(capture.host["name"], around[around >= 0], lambda name: name == COALESCED)
    return out


def kind_of(name: str) -> int:
    """Returns the place in KINDS of what a recorded name speaks of."""
    kind = collective_kind(name)
    return KINDS.index(kind) if kind is not None else UNKNOWN


def algorithm_of(kernel: str) -> int:
    """Returns the place in ALGORITHMS of what the name of a kernel says, 0 where it says nothing."""
    plain = kernel.upper()
    found = [i for i, name in enumerate(ALGORITHMS) if name and name in plain]
    return max(found, key=lambda i: len(ALGORITHMS[i]), default=0)


def _element(table: Any, arg: Ints) -> tuple[Ints, Ints]:
    """Returns (place in DTYPES, bytes of an element) of each collective; -1 where it is not known."""
    code, size = np.full(len(arg), -1, np.int64), np.full(len(arg), -1, np.int64)
    some = np.flatnonzero(arg >= 0)
    if len(some):
        names = {name: i for i, name in enumerate(DTYPES)}
        code[some] = arrays.per_text(table["dtype"], arg[some], lambda n: names.get(element_type(n), -1), np.int64)
        size[some] = arrays.per_text(table["dtype"], arg[some], lambda n: size_of(1, element_type(n)) or -1, np.int64)
    return code, size


def _uneven(table: Any, arg: Ints) -> Mask:
    """Returns which collectives name different sizes per peer."""
    out = np.zeros(len(arg), np.bool_)
    some = np.flatnonzero(arg >= 0)
    for column in ("in_split", "out_split") if len(some) else ():
        out[some] |= arrays.per_text(table[column], arg[some], lambda text: len(set(text.strip("[] ").split(","))) > 1)
    return out


def _splits(capture: Capture, rows: Ints) -> npt.NDArray[np.object_]:
    """Returns the sizes per peer that each collective sends, as recorded; "" where none are."""
    table, arg = capture.tables["collectives"], arguments(capture, rows)
    out = np.full(len(rows), "", object)
    some = arg >= 0
    if some.any():
        out[some] = table["in_split"].astype(object).to_numpy()[arg[some]]
    return out


def peers_of(columns: Columns, splits: npt.NDArray[np.object_]) -> Columns:
    """Returns what uneven all_to_all send to each member of their groups, as PEERS names it. splits: of each collective, as recorded."""
    sends = columns["uneven"] & (columns["kind"] == KINDS.index("all_to_all")) & (columns["bytes_in"] > 0) & (columns["group"] >= 0)
    found: dict[tuple[int, int], npt.NDArray[np.float64]] = {}
    some = np.flatnonzero(sends)
    own = (columns[name][some].tolist() for name in ("step", "group", "bytes_in"))
    for step, group, size, text in zip(*own, splits[some].tolist(), strict=True):
        split = split_of(str(text))
        if split is None:
            continue
        known = found.get((step, group))
        sent = split * (size / split.sum())
        found[step, group] = sent if known is None or len(known) != len(sent) else known + sent
    count = [len(sent) for sent in found.values()]
    return {
        "step": np.repeat([step for step, _ in found], count).astype(np.int64),
        "group": np.repeat([group for _, group in found], count).astype(np.int64),
        "place": np.concatenate([np.arange(n) for n in count] or [np.zeros(0, np.int64)]),
        "bytes": np.rint(np.concatenate([*found.values()] or [np.zeros(0)])).astype(np.int64),
    }  # fmt: skip


def split_of(text: str) -> Ints | None:
    """Returns sizes per peer as a collective records them, `[3, 5]`; None where they are none, or cut short."""
    parts = text.strip("[] ").split(",")
    if not 2 <= len(parts) <= MOST_MEMBERS or not all(p.strip().isdecimal() and len(p.strip()) <= 15 for p in parts):
        return None
    found = np.array([int(p) for p in parts], np.int64)
    return found if int(found.sum()) > 0 else None


# -- Process groups ----------------------------------------------------------------------------------------------------


def _with_backward(capture: Capture, columns: Columns, groups: list[Group]) -> list[Group]:
    """Returns groups with how much of their all_reduce the backward pass launches, where the recording shows its functions."""
    engine = at.where_named(capture, lambda name: name.startswith(ENGINE))
    some = (columns["kind"] == KINDS.index("all_reduce")) & (columns["bytes_in"] > 0) & (columns["group"] >= 0)
    if not engine.any() or not some.any():
        return groups
    h, operator = at.host(capture), capture.device["operator"].to_numpy()[columns["event"][some]].astype(np.int32)
    inside = tree.nearest(engine, h.parent, h.stop, operator, h.start[np.maximum(operator, 0)], h.end) >= 0
    of, size = columns["group"][some], columns["bytes_in"][some]
    total = np.bincount(of, size, len(groups))
    share = np.bincount(of, size * (inside & (operator >= 0)), len(groups)) / np.maximum(total, 1)
    return [msgspec.structs.replace(g, backward=float(s)) if t else g for g, s, t in zip(groups, share, total, strict=True)]
