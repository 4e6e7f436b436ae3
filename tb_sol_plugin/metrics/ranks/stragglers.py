"""Finds the ranks that delay a job, why, and what each costs.

From the last end of the job backwards, always to the rank that the others waited for, leads one path that tiles the time of the job: own
time of one rank, transfer, own time of the next. What the own time of a rank on that path is above that of its peers at the same place
of the program is its excess; what it costs says the replay with that excess taken away. Two stragglers may hide each other: then
one alone saves nothing, both together do. Counting who comes last would blame ranks that were held up themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics.ranks.calls import Calls, sums_by_step
from tb_sol_plugin.metrics.ranks.comparison import OUTLIER_SCORE
from tb_sol_plugin.metrics.ranks.own_time import CAUSES
from tb_sol_plugin.metrics.ranks.replay import Model
from tb_sol_plugin.metrics.ranks.summary import P2P, RECV, SEND
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask
from tb_sol_plugin.tables.grouped import quantiles
from tb_sol_plugin.tables.packed import Columns

Persistence: TypeAlias = Literal["systematic", "intermittent", "single"]

CAUSE_WORDS: Final = {
    "kernel": "compute", "comm": "other communication", "copy": "copy", "dataloader": "dataloader", "host": "host", "other": "unknown",
}  # fmt: skip
LATE_START_WORDS: Final = "late start"
CANDIDATES: Final = 8
"""Suspects whose cost is replayed."""
LEAST_SHARE: Final = 0.002
"""Of the time of the job that a suspect's excess is, on the path or off it."""
HOST_SHARE: Final = 0.01
"""The same of a rank that is slow together with its host."""
SYSTEMATIC: Final = 0.8
INTERMITTENT: Final = 0.2
STEPS_TO_TELL: Final = 3
"""Complete steps from which on a suspect may be called systematic."""
ON_PATH: Final = 0.005
"""Part of a step that a rank's excess in it is at least, for the step to count as held up by it."""
LATE_START: Final = 0.8
"""Part of a rank's excess that lies before the first collectives of its steps, from which on it starts its steps late."""
MOST_BEFORE: Final = 0.5
"""Where peers do more than this part of their own time before the first collectives of steps, these tell nothing about starts."""
ONE_FACTOR: Final = 0.02
"""Half of the own times of a rank are within this of one multiple of its peers': its device is slower as a whole."""
RATIO_PARTS: Final = 1_000_000


@dataclass(frozen=True, eq=False)
class Peers:
    """What peers do at the same place of the program: of each call the median own time by cause, the mean of its computation, ns, and of
    how many calls.

    Peers are ranks with groups of the same descriptions and sizes, at the same place of a pipeline. role: of each rank. Own times are set
    against those that begin at the same place of the program, where two ranks have such.
    """

    role: Ints
    median_ns: Ints
    mean_compute_ns: Floats
    count: Ints

    def excess(self, calls: Calls) -> Ints:
        """Returns own time above that of peers, by call and cause; 0 where a call has no peers."""
        out = calls.own - self.median_ns
        out[self.count <= 1] = 0
        return out


class Path(NamedTuple):
    """Calls on the path from the first to the last: rows of the table, own time before each, its transfer (and hand-over), ns."""

    row: Ints
    own_ns: Ints
    transfer_ns: Floats


@dataclass(frozen=True)
class Suspect:
    """A rank (place in `calls.ranks`) with a cause (place in CAUSES).

    path_excess_ns: own time above that of peers on the path; total_excess_ns: anywhere. saved_ns: how much shorter the job is without it;
    together_ns: without it and all suspects before it. steps: complete steps that it delays. factor: own time of the cause over
    that of peers. uniform: whether all its kernels are slower by that factor. late_start: whether it is idle before the first collectives
    of its steps, and nowhere else above its peers.
    """

    at: int
    cause: int
    path_excess_ns: int
    total_excess_ns: int
    saved_ns: float
    together_ns: float
    steps: int
    factor: float
    uniform: bool
    late_start: bool = False

    @property
    def words(self) -> str:
        """What a page calls its cause."""
        return LATE_START_WORDS if self.late_start else CAUSE_WORDS[CAUSES[self.cause]]


class SlowHost(NamedTuple):
    """A host of whose ranks at least half are slow for one cause.

    domain: place in `domains`. cause: place in CAUSES. ranks: places of those that are slow. saved_ns: what they cost together.
    """

    domain: int
    cause: int
    ranks: tuple[int, ...]
    saved_ns: float


def peers_of(calls: Calls) -> Peers:
    """Returns the peers of all calls."""
    role = _roles(calls)
    step = calls["step"].astype(np.int64)
    kind = np.where(calls["kind"] == RECV, SEND + 1, calls["kind"]).astype(np.int64)
    texts: dict[str, int] = {}
    description = np.array([texts.setdefault(g.description, len(texts)) for g in calls.groups] + [-1], np.int64)
    place = _ordinals(calls, step)
    columns = [role[calls.at], step + 1, place, kind, description[calls["group"]] + 1]
    median, mean, count = _medians(calls, columns)
    pred = calls["pred_row"]
    alike, _, of_alike = _medians(calls, [*columns, np.where(pred >= 0, place[pred], -1) + 1, np.where(pred >= 0, step[pred], -1) + 1])
    known = of_alike > 1
    np.copyto(median, alike, where=known[:, None])
    del alike
    _continue(calls, median, known)
    return Peers(role, median, mean, count)


def _medians(calls: Calls, columns: list[Ints]) -> tuple[Ints, Floats, Ints]:
    """Returns the median of own times, the mean of computation, and how many calls there are, of calls that are alike in some columns."""
    code, first = arrays.factorize(columns) if len(calls) else (np.zeros(0, np.int64), np.zeros(0, np.int64))
    count = np.bincount(code, minlength=len(first))
    median, of_code = np.empty((len(code), len(CAUSES)), np.int64), code.astype(np.int32)
    for i in range(len(CAUSES)):
        median[:, i] = quantiles(of_code, calls.own[:, i].copy(), count, (0.5,))[0][code]
    mean = np.bincount(code, calls.own[:, CAUSES.index("kernel")], len(first)) / np.maximum(count, 1)
    return median, mean[code], count[code]


def _continue(calls: Calls, median: Ints, known: Mask) -> None:
    """Changes medians of peers, of calls whose own time begins elsewhere than theirs (not known), to what the call before it has.

    A rank that comes last waits for none of the reductions of its gradients, its peers for the last ones: their own time begins later.
    What it does since the call before is as usual; what it computes, of a rank all of whose kernels are slower by one factor, less by that.
    """
    order = np.lexsort((calls.own.sum(axis=1), calls["pred_row"], calls.at))
    opens = np.ones(len(order), np.bool_)
    opens[1:] = (np.diff(calls.at[order]) != 0) | (np.diff(calls["pred_row"][order]) != 0)
    begin = np.maximum.accumulate(np.where(opens, np.arange(len(order)), 0))
    last = np.maximum.accumulate(np.where(known[order], np.arange(len(order)), -1))
    some = ~known[order] & (last >= begin)
    rows, before = order[some], order[last[some]]
    if not len(rows):
        return
    since = calls.own[rows] - calls.own[before]
    kernel = CAUSES.index("kernel")
    since[:, kernel] = np.rint(since[:, kernel] / _paces(calls, median, known)[calls.at[rows]])
    median[rows] = np.maximum(median[before] + since, 0)


def _paces(calls: Calls, median: Ints, known: Mask) -> Floats:
    """Returns the computation of each rank over that of its peers, where all of it is slower by one factor; 1 where it is not."""
    own, usual = calls.own[:, CAUSES.index("kernel")], median[:, CAUSES.index("kernel")]
    count = len(calls.ranks)
    out, longest = np.ones(count), np.zeros(count, np.int64)
    np.maximum.at(longest, calls.at[known], usual[known])
    some = known & (usual > 0) & (usual > 0.1 * longest[calls.at])
    at = calls.at[some]
    ratio = own[some] / usual[some]
    size = np.bincount(at, minlength=count)
    low, high = (q / RATIO_PARTS for q in quantiles(at.astype(np.int32), np.rint(ratio * RATIO_PARTS).astype(np.int64), size, (0.25, 0.75)))
    even = (size > 1) & (high - low <= 2 * ONE_FACTOR * np.bincount(at, ratio, count) / np.maximum(size, 1))
    out[even] = (np.bincount(at, own[some], count) / np.maximum(np.bincount(at, usual[some], count), 1))[even]
    return np.maximum(out, 1.0)


def _roles(calls: Calls) -> Ints:
    """Returns the role of each rank: what groups it uses, and its place in those that send and receive."""
    pair = np.unique(calls["group"][np.isin(calls["kind"], P2P) & (calls["group"] >= 0)]).tolist()
    used: list[set[tuple[str, int, int]]] = [set() for _ in calls.ranks]
    seen = np.unique(calls.at * (len(calls.groups) + 1) + np.maximum(calls["group"], -1) + 1)
    for at, number in zip((seen // (len(calls.groups) + 1)).tolist(), (seen % (len(calls.groups) + 1) - 1).tolist(), strict=True):
        if number < 0:
            continue
        group = calls.groups[number]
        place = int(np.searchsorted(group.ranks, calls.ranks[at])) if number in pair and len(group.ranks) else -1
        used[at].add((group.description, group.size, place))
    names: dict[tuple[tuple[str, int, int], ...], int] = {}
    return np.array([names.setdefault(tuple(sorted(one)), len(names)) for one in used], np.int64)


def _ordinals(calls: Calls, step: Ints) -> Ints:
    """Returns the place of each call within its step on its rank: from the end where the begin of the step is not recorded."""
    launch = np.where(calls["launch_ns"] >= 0, calls["launch_ns"], calls.start)
    order = np.lexsort((launch, step, calls.at))
    at, number = calls.at[order], step[order]
    opens = np.ones(len(order), np.bool_)
    opens[1:] = (at[1:] != at[:-1]) | (number[1:] != number[:-1])
    run = np.cumsum(opens) - 1
    begin = np.flatnonzero(opens)
    size = np.diff(np.append(begin, len(order)))
    place = np.arange(len(order)) - begin[run]
    first = np.ones(len(begin), np.bool_)
    first[1:] = at[begin[1:]] != at[begin[:-1]]
    starts = zip(at[begin[first]].tolist(), number[begin[first]].tolist(), strict=True)
    whole = np.array([_is_complete(calls, rank, one) for rank, one in starts], np.bool_)
    cut = first.copy()
    cut[first] = ~whole
    out = np.empty(len(order), np.int64)
    out[order] = np.where(cut[run], (1 << 20) + size[run] - place, place)
    # a step that one rank has from its end is numbered so on all of them
    ended = np.unique(number[begin[cut]])
    both = np.isin(number, ended)
    out[order[both]] = ((1 << 20) + size[run] - place)[both]
    return out


def _is_complete(calls: Calls, at: int, step: int) -> bool:
    steps = calls.steps[at]
    return bool(steps["complete"][steps["step"] == step].any())


def path_of(model: Model) -> Path:
    """Returns the path that held the job from its first to its last collective."""
    calls = model.waits.found.calls
    if not len(calls):
        return Path(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    rows, transfers = [], []
    row = int(model.end_ns.argmax())
    pred, before = calls["pred_row"], calls["stream_row"]
    seen: set[int] = set()
    while row >= 0:
        one = int(model.number[row])
        if one in seen:
            break
        seen.add(one)
        ended, row = row, int(model.late[one])
        rows.append(row)
        queued = int(calls["stream_lag_ns"][row]) >= 0
        transfers.append(float(model.end_ns[ended] - model.start_ns[row]) + (float(calls["stream_lag_ns"][row]) if queued else 0.0))
        row = int(before[row]) if queued else int(pred[row])
    path = np.array(rows[::-1], np.int64)
    own = np.where(calls["stream_lag_ns"][path] >= 0, 0, calls.own[path].sum(axis=1))
    return Path(path, own, np.array(transfers[::-1], np.float64))


@dataclass(frozen=True, eq=False)
class Stragglers:
    """The path of a job, its suspects (those that save most first), hosts that are slow as a whole, and the excess of every rank."""

    model: Model
    peers: Peers
    path: Path
    suspects: tuple[Suspect, ...]
    hosts: tuple[SlowHost, ...] = ()

    @property
    def calls(self) -> Calls:
        return self.model.waits.found.calls

    def stretch(self, rows: Ints) -> tuple[Ints, Ints]:
        """Returns begin and end of some calls with the own time before each, ns of the clock of its rank since its origin.

        Own time begins where the collective that bound the rank ended. A call that waited for its stream has only itself.
        """
        calls = self.calls
        queued = calls["stream_lag_ns"][rows] >= 0
        shift = calls.shift_ns[calls.at[rows]]
        own = np.where(queued, 0, calls.own[rows].sum(axis=1))
        return calls.start[rows] - own - shift, np.where(queued, calls.end[rows], calls.start[rows]) - shift

    @cached_property
    def excess(self) -> Ints:
        """Own time above that of peers, by call and cause."""
        return self.peers.excess(self.calls)

    @cached_property
    def new_excess(self) -> Ints:
        """The part of it that no call of its rank before has: what is summed over calls is counted once."""
        return once(self.calls, self.excess)

    @cached_property
    def excess_by_step(self) -> Columns:
        """Own time above that of peers by rank and step, as `sums_by_step` has it; what other communication takes is left out."""
        each = self.new_excess.sum(axis=1) - self.new_excess[:, CAUSES.index("comm")]
        return sums_by_step(self.calls, each, self.peers.count > 1)

    @cached_property
    def path_excess(self) -> Ints:
        """The same on the path, by rank and cause."""
        return _summed(self.calls, self.path, self.excess)

    @cached_property
    def arrived_last(self) -> Ints:
        """Collectives that waited for each rank."""
        model = self.model
        shared = np.diff(model.begin) > 1
        return np.bincount(self.calls.at[model.late[shared]], minlength=len(self.calls.ranks))

    @cached_property
    def steps(self) -> Ints:
        """Numbers of the steps that are complete on some rank."""
        found = [s["step"][s["complete"]] for s in self.calls.steps]
        return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)

    def persistence(self, suspect: Suspect) -> Persistence | None:
        """Whether a suspect delays most steps, some, or one; None without complete steps."""
        count = len(self.steps)
        if not count:
            return None
        if suspect.steps <= 1 and count > 1:
            return "single"
        share = suspect.steps / count
        if share >= SYSTEMATIC and count >= STEPS_TO_TELL:
            return "systematic"
        return "intermittent" if share >= INTERMITTENT else "single"


def once(calls: Calls, values: Ints) -> Ints:
    """Returns own times (by call, and cause) without what a call before has of the same moment.

    Collectives that computation does not wait for, such as reductions of gradients, go out one after the other: the own time of each
    begins at the end of the same one.
    """
    order = np.lexsort((calls.own.sum(axis=1), calls["pred_row"], calls.at))
    same = (np.diff(calls.at[order]) == 0) & (np.diff(calls["pred_row"][order]) == 0)
    out = values.copy()
    out[order[1:][same]] -= values[order[:-1][same]]
    return out


def _summed(calls: Calls, path: Path, excess: Ints) -> Ints:
    out = np.zeros((len(calls.ranks), len(CAUSES)), np.int64)
    own = path.row[calls["stream_lag_ns"][path.row] < 0]
    np.add.at(out, calls.at[own], excess[own])
    return out


def stragglers(model: Model) -> Stragglers:
    """Returns the path and the suspects of a job."""
    calls = model.waits.found.calls
    peers = peers_of(calls)
    path = path_of(model)
    part = Stragglers(model, peers, path, ())
    if not len(calls) or not model.exact:
        return part
    total = np.zeros((len(calls.ranks), len(CAUSES)), np.int64)
    np.add.at(total, calls.at, part.new_excess)
    chosen = _candidates(part, total)
    saved = {one: model.unchanged_ns - model.run(without(part, [one])) for one in chosen}
    chosen.sort(key=lambda one: (-saved[one], -part.path_excess[one]))
    found, before, least = [], 0.0, LEAST_SHARE * model.span_ns
    for count, one in enumerate(chosen, 1):
        together = saved[one] if count == 1 else model.unchanged_ns - model.run(without(part, chosen[:count]))
        more, before = max(saved[one], together - before), max(before, together)
        if CAUSES[one[1]] == "comm" and more < least:
            continue  # another group held it: it costs nothing by itself
        factor, uniform = _factor(part, one)
        found.append(Suspect(
            *one, int(part.path_excess[one]), int(total[one]), saved[one], together, _held_up(part, one), factor, uniform,
            _starts_late(part, one),
        ))  # fmt: skip
    return Stragglers(model, peers, path, tuple(found), _slow_hosts(part, total))


def _slow_hosts(part: Stragglers, total: Ints) -> tuple[SlowHost, ...]:
    """Returns hosts of whose ranks, two at least, half or more are above their peers for one cause; those that cost most first.

    Of three steps or more a rank is above its peers in most: uneven data may hit half of a host's ranks by chance, in other steps others.
    """
    calls, model = part.calls, part.model
    above = total > HOST_SHARE * model.span_ns
    if len(part.steps) >= STEPS_TO_TELL:
        above &= _steps_above(part) >= SYSTEMATIC * len(part.steps)
    size = np.bincount(calls.domain, minlength=len(calls.domains))
    slow = np.stack([np.bincount(calls.domain, above[:, c], len(size)) for c in range(len(CAUSES))], axis=1).astype(np.int64)
    hosts = np.argwhere((slow >= 2) & (2 * slow >= size[:, None]) & (size[:, None] < len(calls.ranks)))
    found = []
    for domain, cause in hosts[np.argsort(-slow[tuple(hosts.T)], kind="stable")][:CANDIDATES].tolist():
        ranks = np.flatnonzero((calls.domain == domain) & above[:, cause]).tolist()
        saved = model.unchanged_ns - model.run(without(part, [(at, cause) for at in ranks]))
        found.append(SlowHost(domain, cause, tuple(ranks), saved))
    return tuple(sorted((h for h in found if h.saved_ns > LEAST_SHARE * model.span_ns), key=lambda h: -h.saved_ns))


def _steps_above(part: Stragglers) -> Ints:
    """Returns in how many complete steps each rank is above its peers, by rank and cause."""
    calls, count = part.calls, len(part.steps)
    place = np.minimum(np.searchsorted(part.steps, calls["step"]), count - 1)
    known = part.steps[place] == calls["step"]
    each = np.zeros((len(calls.ranks), count, len(CAUSES)), np.int64)
    np.add.at(each, (calls.at[known], place[known]), part.new_excess[known])
    return np.asarray((each > ON_PATH * part.model.span_ns / count).sum(axis=1), np.int64)


def _candidates(part: Stragglers, total: Ints) -> list[tuple[int, int]]:
    """Returns (rank, cause) of those with the largest excess on the path, and of those with the largest anywhere.

    Computation of which all ranks have now more, now less makes none of them a suspect: it must be far from that of peers.
    """
    least = LEAST_SHARE * part.model.span_ns
    kernel = CAUSES.index("kernel")
    usual = robust_z(total[:, kernel].astype(np.float64), part.peers.role) <= OUTLIER_SCORE
    out: dict[tuple[int, int], None] = {}
    for values in (part.path_excess, total):
        order = np.argsort(-values, axis=None, kind="stable")[:CANDIDATES]
        for at, cause in zip(*(x.tolist() for x in np.unravel_index(order, values.shape)), strict=True):
            if values[at, cause] > least and not (cause == kernel and usual[at]):
                out[at, cause] = None
    return list(out)


def without(part: Stragglers, suspects: Iterable[tuple[int, int]]) -> Floats:
    """Returns own times of all calls with those of suspects (rank, cause) at what their peers take."""
    own = part.model.own_ns.copy()
    for at, cause in suspects:
        mine = part.calls.at == at
        own[mine] -= part.excess[mine, cause]
    return np.maximum(own, 0.0)


def _held_up(part: Stragglers, one: tuple[int, int]) -> int:
    """Returns how many complete steps a suspect delays, by its excess on the path in each; off the path by its excess in each."""
    calls = part.calls
    at, cause = one
    rows = part.path.row[(calls.at[part.path.row] == at) & (calls["stream_lag_ns"][part.path.row] < 0)]
    excess = part.excess[:, cause]
    if not int(excess[rows].sum() > 0):
        rows, excess = np.flatnonzero(calls.at == at), part.new_excess[:, cause]
    step = calls["step"][rows]
    length = part.model.span_ns / max(len(part.steps), 1)
    return int(sum(int(excess[rows[step == n]].sum()) > ON_PATH * length for n in part.steps.tolist()))


def _starts_late(part: Stragglers, one: tuple[int, int]) -> bool:
    """Returns whether a suspect is idle before the first collectives of its steps, and as fast as its peers from there on.

    No clock is needed. Loading is no late start, nor is idle time that nobody else has a collective after, to tell it from.
    """
    calls, (at, cause) = part.calls, one
    mine = np.flatnonzero((calls.at == at) & (calls["step"] >= 0) & (part.peers.count > 1))
    if CAUSES[cause] not in ("host", "other") or not len(mine):
        return False
    order = mine[np.lexsort((calls.start[mine], calls["step"][mine]))]
    first = order[np.append(True, np.diff(calls["step"][order]) != 0)]
    median, excess = once(calls, part.peers.median_ns).sum(axis=1), part.new_excess[:, cause]
    before = int(median[first].sum())
    return bool(
        before <= MOST_BEFORE * int(median[mine].sum())
        and int(excess[first].sum()) >= LATE_START * int(np.maximum(excess[mine], 0).sum()) > 0
    )


def _factor(part: Stragglers, one: tuple[int, int]) -> tuple[float, bool]:
    """Returns (own time of a cause over that of peers, whether all of it is by one factor)."""
    at, cause = one
    mine = (part.calls.at == at) & (part.peers.count > 1)
    own, median = part.calls.own[mine, cause].astype(np.float64), part.peers.median_ns[mine, cause].astype(np.float64)
    if not median.sum():
        return float("nan"), False
    some = median > 0.1 * median.max()
    ratio = own[some] / median[some]
    low, high = np.percentile(ratio, (25, 75))
    return float(own.sum() / median.sum()), bool(len(ratio) > 1 and high - low <= ONE_FACTOR * ratio.mean() * 2)


def robust_z(values: Floats, code: Ints) -> Floats:
    """Returns 0.6745 (x - median) / MAD of each value among those with its code; NaN where the MAD is 0 or fewer than five are known."""
    count = int(code.max(initial=-1)) + 1
    known = np.isfinite(values)
    median = np.full(count, np.nan)
    median[:] = arrays.medians(code[known], values[known], count)
    away = np.abs(values - median[code])
    mad = arrays.medians(code[known], away[known], count)[code]
    enough = np.bincount(code[known], minlength=count)[code] >= 5
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(enough & (mad > 0), 0.6745 * (values - median[code]) / mad, np.nan)


def own_per_step(calls: Calls) -> Floats:
    """Returns the own time of each rank per complete step, other communication left out, ns; NaN without one."""
    out = np.full(len(calls.ranks), np.nan)
    own = once(calls, calls.own.sum(axis=1) - calls.own[:, CAUSES.index("comm")])
    first = np.searchsorted(calls.at, np.arange(len(calls.ranks) + 1)).tolist()
    for at, steps in enumerate(calls.steps):
        complete = steps["step"][steps["complete"]]
        if len(complete):
            rows = slice(first[at], first[at + 1])
            out[at] = own[rows][np.isin(calls["step"][rows], complete)].sum() / len(complete)
    return out
