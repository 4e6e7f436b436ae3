"""Puts the collectives of all ranks of a job into one table of calls, with their groups, ranks and clock domains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics.ranks.batches import Batch
from tb_sol_plugin.metrics.ranks.own_time import Pieces
from tb_sol_plugin.metrics.ranks.summary import BATCH, OWN, P2P, PIECES, RECV, ROWS, SEND, STEPS, SYNC, RankSummary, only_rows
from tb_sol_plugin.tables import arrays, members
from tb_sol_plugin.tables.arrays import Ints, Mask
from tb_sol_plugin.tables.packed import Columns, Packed, unpack

MOST_CALLS: Final = 3_000_000
"""Calls of all ranks together that are compared: at 300 bytes each they take a gigabyte. Of more those of some steps are."""

NOTHING: Final = Packed(0, {})


class Member(NamedTuple):
    """One rank of the job. host: the machine that it ran on, whose clock it has; "" unknown.

    A rank whose host is not known, or whose times are not since 1970, has a clock of its own.
    """

    rank: int
    host: str
    summary: RankSummary


@dataclass(frozen=True)
class JobGroup:
    """A process group as all ranks name it. ranks: its members, ascending, empty where not known. size: -1 unknown.

    backward: part of the bytes of its all_reduce that the backward pass launches, the mean of its members; None not recorded.
    """

    key: str
    description: str
    ranks: Ints
    size: int
    backward: float | None = None

    @property
    def label(self) -> str:
        """What a table calls it: its ranks, by which groups of one description differ, and its description."""
        return f"[{members.ranges(self.ranks)}] {self.description or 'group'}" if len(self.ranks) else self.description or self.key


class Messages(NamedTuple):
    """Sends and receives, those of batches each by itself: row of the call, ranks that send and receive (-1 unknown), bytes (-1 unknown).

    sends: whether this end sends; False where that is not known.
    """

    row: Ints
    source: Ints
    target: Ints
    bytes: Ints
    sends: Mask


@dataclass(frozen=True, eq=False)
class Calls:
    """Collectives of all ranks, by rank and start; columns as `summary.ROWS` names them, and:

    at: place of the rank in `ranks`. group: place in `groups`, -1 unknown. start_ns: on the rank's own clock since `origin_ns`, the same
    for all ranks. pred_row, stream_row: rows of this table. batch: place in `batches`. pieces: exposed stretches, by row of this table.
    ranks: numbers of the ranks, ascending. shift_ns: what was added to the times of each rank's summary. domain: of each rank the place of
    its clock in `domains`. steps: of each rank, as `summary.STEPS` names them, start_ns since `origin_ns`; where calls were left out, those
    of which some were kept. summaries: of each rank, without what stands in the table. left_out: how many calls were, since there are too
    many.
    """

    ranks: Ints
    shift_ns: Ints
    domain: Ints
    domains: tuple[str, ...]
    origin_ns: int
    groups: tuple[JobGroup, ...]
    at: Ints
    columns: Columns
    pieces: Pieces
    steps: tuple[Columns, ...]
    summaries: tuple[RankSummary, ...]
    left_out: int = 0
    batches: tuple[Batch, ...] = ()

    def __getitem__(self, name: str) -> Any:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.at)

    @property
    def start(self) -> Ints:
        return np.asarray(self.columns["start_ns"], np.int64)

    @cached_property
    def end(self) -> Ints:
        return np.asarray(self.start + self.columns["duration_ns"], np.int64)

    @cached_property
    def own(self) -> Ints:
        """Own time before each call by cause, one row per call."""
        return np.stack([self.columns[name] for name in OWN], axis=1).astype(np.int64)

    @cached_property
    def _by_key(self) -> dict[str, Ints]:
        return {group.key: group.ranks for group in self.groups}

    def ranks_of(self, key: str) -> Ints:
        """Returns the ranks of a group by its key; none where they are not known."""
        return self._by_key.get(key, np.zeros(0, np.int64))

    @cached_property
    def sync(self) -> Mask:
        """Calls that no member leaves before the last one has come: also batches in which two ranks both send and receive."""
        both = np.array([len({m.receives for m in one} & {True, False}) == 2 for one in self.batches] + [False], np.bool_)
        exchange = both[self.columns["batch"]] & (self.partner >= 0)
        return np.asarray((self.columns["kind"] < SYNC) | exchange, np.bool_)

    @cached_property
    def partner(self) -> Ints:
        """The other rank of batches between two ranks; -1 of other calls, and of batches with several ranks or unknown ones."""
        peers = [{m.peer for m in one} for one in self.batches]
        only = [one.pop() if len(one) == 1 else -1 for one in peers]
        return np.array([*only, -1], np.int64)[self.columns["batch"]]

    @cached_property
    def channel(self) -> Ints:
        """What orders its calls by itself: a group for its collectives, two ranks of a group for what one sends to the other and for
        batches between them, a rank of a group for its batches with several; -1 unknown."""
        group = np.asarray(self.columns["group"], np.int64)
        kind, own = self.columns["kind"], self.ranks[self.at]
        batch, other = kind == BATCH, np.where(self.partner >= 0, self.partner, own)
        low = np.where(batch, np.minimum(own, other), self.columns["source"])
        high = np.where(batch, np.maximum(own, other), self.columns["target"])
        pair = np.isin(kind, P2P)
        known = pair & (group >= 0) & (low >= 0) & (high >= 0)
        out = np.where(pair, -1, group)
        if known.any():
            code, _ = arrays.factorize([column[known].astype(np.int64) for column in (group, low, high, batch)])
            out[known] = len(self.groups) + code
        return out

    @cached_property
    def messages(self) -> Messages:
        """All sends and receives, in order of their calls."""
        kind = self.columns["kind"]
        row = np.flatnonzero((kind == SEND) | (kind == RECV))
        source, target = (self.columns[name][row].astype(np.int64) for name in ("source", "target"))
        size = np.maximum(self.columns["bytes_in"], self.columns["bytes_out"])[row].astype(np.int64)
        parts = [Messages(row, source, target, size, np.asarray(kind[row] == SEND, np.bool_))]
        for number, batch in enumerate(self.batches):
            row = np.flatnonzero(self.columns["batch"] == number)
            own = self.ranks[self.at[row]]
            for one in batch:
                other, unknown = np.full(len(row), one.peer), np.full(len(row), -1)
                source, target = (unknown, unknown) if one.receives is None else (other, own) if one.receives else (own, other)
                parts.append(Messages(row, source, target, np.full(len(row), one.bytes), np.full(len(row), one.receives is False)))
        row, source, target, size = (np.concatenate([part[i] for part in parts]).astype(np.int64) for i in range(4))
        order = np.argsort(row, kind="stable")
        sends = np.concatenate([part.sends for part in parts])
        return Messages(row[order], source[order], target[order], size[order], sends[order])

    @property
    def channels(self) -> int:
        """How many channels there are."""
        return max(len(self.groups), int(self.channel.max(initial=-1)) + 1)

    @cached_property
    def group_of_channel(self) -> Ints:
        """The group of each channel."""
        out = np.arange(self.channels, dtype=np.int64)
        known = self.channel >= 0
        out[self.channel[known]] = self.columns["group"][known]
        return out

    @cached_property
    def size_of_channel(self) -> Ints:
        """Members of each channel; -1 unknown."""
        size = np.array([g.size for g in self.groups], np.int64)
        out = np.full(self.channels, 2, np.int64)
        out[: len(size)] = size
        several = (self.columns["kind"] == BATCH) & (self.partner < 0) & (self.channel >= 0)
        out[self.channel[several]] = -1
        return out


def sums_by_step(calls: Calls, values: Ints, known: Mask) -> Columns:
    """Returns sums of values of calls that are known, by rank and step. Columns: at (place of the rank), step, value; float64."""
    at, step = calls.at[known], calls["step"][known].astype(np.int64)
    code, first = arrays.factorize([at, step]) if len(at) else (at, at)
    return {"at": at[first], "step": step[first], "value": np.bincount(code, values[known], len(first))}


def only(calls: Calls, kept: Mask) -> Calls:
    """Returns some of the calls, with the steps that they are of; what a call waited for that is left out is not known."""
    place = np.where(kept, np.cumsum(kept) - 1, -1)
    columns = {name: column[kept] for name, column in calls.columns.items()}
    for name in ("pred_row", "stream_row"):
        columns[name] = np.where(columns[name] >= 0, place[np.maximum(columns[name], 0)], -1)
    columns["stream_lag_ns"] = np.where(columns["stream_row"] >= 0, columns["stream_lag_ns"], -1)
    some = kept[calls.pieces.row]
    pieces = Pieces(place[calls.pieces.row[some]], calls.pieces.offset_ns[some], calls.pieces.length_ns[some])
    numbers = np.unique(calls["step"][kept])
    steps = tuple({name: column[np.isin(one["step"], numbers)] for name, column in one.items()} for one in calls.steps)
    return replace(calls, at=calls.at[kept], columns=columns, pieces=pieces, steps=steps)


def calls_of(found: Sequence[Member]) -> Calls:
    """Returns one table of the collectives of all ranks. found: each rank once."""
    ordered = sorted(found, key=lambda m: m.rank)
    origin = min((m.summary.origin_ns for m in ordered if m.summary.absolute), default=0)
    begin = min((m.summary.origin_ns - origin + m.summary.first_ns for m in ordered if m.summary.absolute), default=0)
    names = [m.host if m.host and m.summary.absolute else f"rank {m.rank}" for m in ordered]
    domains = tuple(dict.fromkeys(names))
    ranks = np.array([m.rank for m in ordered], np.int64)
    groups = _Groups(ranks)
    parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in ROWS}
    pieces: list[list[npt.NDArray[Any]]] = [[] for _ in PIECES]
    chosen = _chosen_steps([m.summary for m in ordered])
    steps, counts, shifts, before, left_out = [], [], [], 0, 0
    for place, member in enumerate(ordered):
        own = member.summary
        shift = own.origin_ns - origin if own.absolute else begin - own.first_ns
        rows, kept, taken, left = _kept_of(own, chosen)
        count = len(rows["step"])
        rows |= {n: rows[n] + shift for n in ("start_ns",)} | {"launch_ns": np.where(rows["launch_ns"] >= 0, rows["launch_ns"] + shift, -1)}
        rows |= {n: np.where(rows[n] >= 0, rows[n] + before, -1) for n in ("pred_row", "stream_row")}
        rows["group"] = groups.numbers(own, rows["group"])
        rows |= groups.pairs(place, rows) | {"batch": groups.batches(place, own.batches, rows)}
        for name, column in rows.items():
            parts[name].append(column)
        for whole, name in zip(pieces, PIECES, strict=True):
            whole.append(kept[name].astype(np.int64) + (before if name == "row" else 0))
        steps.append(taken | {"start_ns": taken["start_ns"] + shift})
        counts.append(count)
        shifts.append(shift)
        before, left_out = before + count, left_out + left
    columns = {}
    for name in ROWS:  # each by itself: all of them twice would be what takes most memory here
        of_ranks = parts.pop(name)
        columns[name] = np.concatenate(of_ranks) if of_ranks else np.zeros(0, np.dtype(ROWS[name]))
    return Calls(
        ranks, np.array(shifts, np.int64), np.array([domains.index(n) for n in names], np.int64), domains, origin, groups.whole(),
        np.repeat(np.arange(len(ordered)), counts), columns, Pieces(*(np.concatenate(p) if p else np.zeros(0, np.int64) for p in pieces)),
        tuple(steps), tuple(msgspec.structs.replace(m.summary, rows=NOTHING, pieces=NOTHING) for m in ordered), left_out,
        tuple(groups.every),
    )  # fmt: skip


def _kept_of(own: RankSummary, chosen: Ints | None) -> tuple[Columns, Columns, Columns, int]:
    """Returns (calls of a rank, their exposed stretches, its steps, calls left out). chosen: steps whose calls are kept; None keeps all."""
    rows, pieces, steps = unpack(own.rows, ROWS), unpack(own.pieces, PIECES), unpack(own.steps, STEPS)
    left = own.left_out
    if chosen is not None:
        kept = np.isin(rows["step"], chosen)
        rows, some = only_rows(rows, Pieces(*(pieces[name] for name in PIECES)), kept)
        pieces, left = some._asdict(), left + int((~kept).sum())
    if left:
        there = np.isin(steps["step"], rows["step"])
        steps = {name: column[there] for name, column in steps.items()}
    return rows, pieces, steps, left


def _chosen_steps(found: Sequence[RankSummary]) -> Ints | None:
    """Returns the steps whose calls are kept: None for all; of more than MOST_CALLS as many complete ones in the middle as fit.

    That is one at least. Calls of recordings without steps are kept, whatever their number: each recording is bounded by itself.
    """
    if sum(one.rows.count for one in found) <= MOST_CALLS:
        return None
    number = np.concatenate([unpack(one.rows, {"step": ROWS["step"]})["step"] for one in found])
    numbers, count = np.unique(number, return_counts=True)
    steps = [unpack(one.steps, STEPS) for one in found]
    complete = np.isin(numbers, np.concatenate([s["step"][s["complete"]] for s in steps]))
    numbers, count = numbers[complete], count[complete]
    if not len(numbers):
        return None
    by_distance = np.argsort(np.abs(np.arange(len(numbers)) - len(numbers) // 2), kind="stable")
    fit = max(int((np.cumsum(count[by_distance]) <= MOST_CALLS).sum()), 1)
    return np.sort(numbers[by_distance[:fit]])


class _Groups:
    """Numbers the groups of all ranks."""

    def __init__(self, ranks: Ints) -> None:
        self.found: list[JobGroup] = []
        self._backward: dict[str, list[float]] = {}
        self._place: dict[str, int] = {}
        self._batch: dict[Batch, int] = {}
        self._ranks = ranks

    def numbers(self, own: RankSummary, local: npt.NDArray[np.integer]) -> Ints:
        """Returns the number of the group of each call of a rank."""
        place = []
        for one in own.groups:
            if one.key not in self._place:
                self._place[one.key] = len(self.found)
                known = members.members_of(one.ranks)
                self.found.append(JobGroup(one.key, one.description, known, len(known) or one.size))
            place.append(self._place[one.key])
            if one.backward is not None:
                self._backward.setdefault(one.key, []).append(one.backward)
        return np.asarray(np.array([*place, -1], np.int64)[local], np.int64)

    def whole(self) -> tuple[JobGroup, ...]:
        """Returns the groups with what all members know."""
        known = {key: sum(parts) / len(parts) for key, parts in self._backward.items()}
        return tuple(replace(one, backward=known.get(one.key)) for one in self.found)

    def pairs(self, place: int, rows: Columns) -> Columns:
        """Returns who sends and who receives. PyTorch records the other end alone: this one is the rank itself, where it is of the group.

        In a group of two the other end is known as well.
        """
        source, target = (rows[n].astype(np.int64) for n in ("source", "target"))
        rank = int(self._ranks[place])
        for kind, here, there in ((SEND, source, target), (RECV, target, source)):
            some = np.flatnonzero((rows["kind"] == kind) & (rows["group"] >= 0) & ((source < 0) | (target < 0)))
            for number in np.unique(rows["group"][some]).tolist():
                mine = some[rows["group"][some] == number]
                known = self.found[number].ranks
                if rank in known.tolist() or not len(known):
                    here[mine[there[mine] >= 0]] = rank
                if rank in known.tolist() and len(known) == 2:
                    here[mine], there[mine] = rank, int(known[known != rank][0])
        return {"source": source, "target": target}

    def batches(self, place: int, own: Sequence[Batch], rows: Columns) -> Ints:
        """Returns the number of the batch of each call of a rank. In a group of two the other rank is that of every part."""
        local, out = rows["batch"].astype(np.int64), np.full(len(rows["batch"]), -1, np.int64)
        some = np.flatnonzero(local >= 0)
        rank = int(self._ranks[place])
        for code, number in {(int(local[row]), int(rows["group"][row])) for row in some.tolist()}:
            known = self.found[number].ranks if number >= 0 else np.zeros(0, np.int64)
            batch = own[code]
            if len(known) == 2 and rank in known.tolist():
                other = int(known[known != rank][0])
                batch = tuple(msgspec.structs.replace(one, peer=other) if one.peer < 0 else one for one in batch)
            out[(local == code) & (rows["group"] == number)] = self._batch.setdefault(batch, len(self._batch))
        return out

    @property
    def every(self) -> list[Batch]:
        """The batches in order of their numbers."""
        return list(self._batch)
