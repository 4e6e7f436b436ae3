"""Allocates the devices of a cluster to several jobs: the allocation of the highest total speedup, by integer programming.

A job's score is speedup x share x nodes: share, of the cluster's devices, is what one replica takes; nodes, those of the cluster. A job
that runs and is given something else is scored x (1 - penalty), for the time a restart costs. The sum over jobs is made as large as
can be, or for another p the mean ((1/J) sum speedup^p)^(1/p): the smaller p, the more evenly.

A job runs on part of one node, or on equal parts of several; at most one job of the second kind per node. Jobs alike are counted, not
told apart, so that the size of the problem does not grow with their number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.tables.arrays import Floats

T = TypeVar("T")

# -- Jobs on nodes ---------------------------------------------------------------------------------------------------


Seats: TypeAlias = dict[int, int]
"""Devices that a job holds, by node."""


class Demand(NamedTuple):
    """What a job is to hold: `part` devices on each of `nodes` nodes (0: nothing), and where it sits now, if it may stay there."""

    nodes: int
    part: int
    now: Seats


class Pattern(NamedTuple):
    """A node of so many devices: the part of a job on several nodes (0: none), and the parts of jobs that run on it alone."""

    devices: int
    slice: int
    parts: tuple[int, ...]


@lru_cache(64)
def sizes(devices: tuple[int, ...]) -> tuple[int, ...]:
    """Returns parts that a node may be divided into: all up to 8 devices, beyond that 1, 2, 3, 4, 6, 8, 12, 16, … and whole nodes."""
    most = max(devices)
    if most <= 8:
        return tuple(range(1, most + 1))
    steps = {1, 2, 3, *(2**k for k in range(2, most.bit_length())), *(3 * 2**k for k in range(1, most.bit_length()))}
    whole = {part for d in devices for part in (d, d // 2)}
    return tuple(sorted(s for s in steps | whole if 0 < s <= most))


@lru_cache(64)
def patterns(devices: tuple[int, ...]) -> tuple[Pattern, ...]:
    """Returns all ways to divide a node of each size so that no part could be added."""
    allowed = sizes(devices)
    out = []
    for d in sorted(set(devices)):
        for slice_ in (0, *(s for s in allowed if s <= d)):
            out += [Pattern(d, slice_, parts) for parts in _fills(d - slice_, allowed)]
    return tuple(out)


def _fills(room: int, allowed: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Yields multisets of allowed sizes that add up to the room; 1 is always allowed."""
    if room == 0:
        return [()]
    out: list[tuple[int, ...]] = []
    for largest in allowed:
        if largest <= room:
            smaller = tuple(s for s in allowed if s <= largest)
            out += [(largest, *rest) for rest in _fills(room - largest, smaller)]
    return out


def place(
    demands: Sequence[Demand], devices: Sequence[int], packing: Sequence[tuple[Pattern, int]], *, moves: bool = True
) -> tuple[list[Seats], list[int]]:
    """Returns the seats of each job, and the places in the list of those that found none.

    Jobs that may stay do; the rest goes where it fits best, and with `moves` moves smaller jobs out of the way where it must. Where that
    leaves a job without a place, all are placed anew after `packing`: nodes divided in such a way, and how many.
    """
    seats, lost = _one_by_one(demands, devices, moves)
    if lost and packing:
        anew, none = _after(demands, devices, packing)
        if len(none) < len(lost):
            return anew, none
    return seats, lost


def _moved_away(alone: Mapping[int, int], short: int, below: int | None) -> list[int]:
    """Returns jobs of one node that make `short` devices free, the smallest first. below: only those with fewer devices."""
    out = []
    for job, devices in sorted(alone.items(), key=lambda item: item[1]):
        if short <= 0:
            break
        if below is None or devices < below:
            out.append(job)
            short -= devices
    return out


def _one_by_one(demands: Sequence[Demand], devices: Sequence[int], moves: bool) -> tuple[list[Seats], list[int]]:
    free = np.array(devices)
    spread = np.zeros(len(devices), bool)  # holds part of a job on several nodes
    seats: list[Seats] = [{} for _ in demands]
    alone: list[dict[int, int]] = [{} for _ in devices]  # jobs that sit on this node only, and their devices
    queue = []
    for i, demand in enumerate(demands):
        if demand.nodes and demand.now and len(demand.now) == demand.nodes and all(k < len(devices) for k in demand.now):
            _sit(i, demand.now, seats, free, spread, alone)
        elif demand.nodes:
            queue.append(i)
    if (free < 0).any():  # they claim more devices than there are
        return _one_by_one([d._replace(now={}) for d in demands], devices, moves)
    lost = []
    queue.sort(key=lambda i: (demands[i].nodes > 1, demands[i].part, demands[i].nodes))
    while queue:
        i = queue.pop()
        nodes, part, _ = demands[i]
        usable = ~spread if nodes > 1 else np.ones(len(free), bool)
        fits = np.flatnonzero(usable & (free >= part))
        if len(fits) < nodes:  # make room: nodes from which the fewest devices have to move
            movable = np.array([sum(d for d in on.values() if nodes > 1 or d < part) for on in alone])
            room = np.flatnonzero(usable & (free + (movable if moves else 0) >= part))
            if len(room) < nodes:
                lost.append(i)
                continue
            short = np.maximum(part - free[room], 0)
            fits = room[np.argsort(short, kind="stable")][:nodes]
            for k in fits:
                for other in _moved_away(alone[k], part - int(free[k]), part if nodes == 1 else None):
                    free[k] += alone[k].pop(other)
                    seats[other] = {}
                    queue.append(other)
            queue.sort(key=lambda i: (demands[i].nodes > 1, demands[i].part, demands[i].nodes))
        else:
            fits = fits[np.argsort(free[fits], kind="stable")][:nodes]  # the fullest that still have room
        _sit(i, {int(k): part for k in fits}, seats, free, spread, alone)
    return seats, lost


def _sit(i: int, where: Seats, seats: list[Seats], free: np.ndarray, spread: np.ndarray, alone: list[dict[int, int]]) -> None:
    seats[i] = dict(where)
    for k, part in where.items():
        free[k] -= part
        if len(where) > 1:
            spread[k] = True
        else:
            alone[k][i] = part


def _after(demands: Sequence[Demand], devices: Sequence[int], packing: Sequence[tuple[Pattern, int]]) -> tuple[list[Seats], list[int]]:
    """Returns all placed anew on nodes divided as planned."""
    nodes_of: dict[int, list[int]] = {}
    for k, d in enumerate(devices):
        nodes_of.setdefault(d, []).append(k)
    slots: dict[int, list[int]] = {}
    slices: dict[int, list[int]] = {}
    for way, count in packing:
        for _ in range(count):
            node = nodes_of[way.devices].pop()
            if way.slice:
                slices.setdefault(way.slice, []).append(node)
            for part in way.parts:
                slots.setdefault(part, []).append(node)
    seats: list[Seats] = [{} for _ in demands]
    lost = []
    for i, (nodes, part, _) in enumerate(demands):
        room = slices.get(part, []) if nodes > 1 else slots.get(part, [])
        if len(room) < nodes:
            lost.append(i)
            continue
        for _ in range(nodes):
            seats[i][room.pop()] = part
    return seats, lost


PENALTY: Final = 0.1
"""What a restart takes off a job's score."""
WAITING: Final = 0.01
"""What a job without devices counts as for p <= 0, where a speedup of 0 would hide all others."""
NODES: Final = 1000
"""Of the tree that branch and bound searches for one allocation, at the most: a thousand jobs on a thousand machines need one."""
LIMIT_S: Final = 300.0
"""The last resort of a machine that has all but stopped. What ends a search in time is its number of nodes, so that the same jobs get the
same answer on every machine."""


class Shape(NamedTuple):
    """What a job holds: replicas, in equal parts on so many nodes. (0, 0): nothing."""

    nodes: int
    replicas: int


IDLE: Final = Shape(0, 0)


@dataclass(frozen=True)
class Cluster:
    """Devices of each node."""

    devices: tuple[int, ...]

    @classmethod
    def alike(cls, nodes: int, devices: int) -> Cluster:
        """Makes a cluster of so many nodes with so many devices each."""
        return cls((devices,) * nodes)

    @property
    def total(self) -> int:
        return sum(self.devices)


@dataclass(frozen=True, kw_only=True)
class Job:
    """speedup: see `SpeedupFunction`. replica_devices: devices of one replica, all on one node. current, seats: what it holds now.

    seats: devices by node; without them, a job that keeps its shape is taken to keep its place.
    """

    name: str
    speedup: Callable[[Floats, Floats], float | Floats]
    max_replicas: int
    min_replicas: int = 1
    replica_devices: int = 1
    current: Shape = IDLE
    seats: Seats = field(default_factory=dict)


@dataclass(frozen=True)
class Allocation:
    """One entry per job, in their order: shape, seats (devices by node), speedup, score with the penalty, whether it must restart.

    score: the sum of scores. mean: the p-mean of speedups x (1 - penalty where restarted). devices: in use. notes: what to know.
    """

    shapes: tuple[Shape, ...]
    seats: tuple[Seats, ...]
    speedups: Floats
    scores: Floats
    restarts: tuple[bool, ...]
    score: float
    mean: float
    devices: int
    notes: tuple[str, ...]


def allocate(
    jobs: Sequence[Job], cluster: Cluster, *, p: float = 1.0, penalty: float = PENALTY, nodes: int = NODES, limit_s: float = LIMIT_S
) -> Allocation:
    """Returns the allocation of the highest score (p = 1) or p-mean. ValueError: a penalty outside [0, 1), or a cluster without devices.

    Within so many nodes of the search tree, to a thousandth; where that is not enough the best found, with a note. The wall time
    `limit_s` ends it as a last resort, with a note: then the answer may be another on another machine. Where jobs that keep their shape
    must move to make room, they count as restarted: the score is that of the places given in the end.
    """
    if not 0 <= penalty < 1:
        raise ValueError(f"penalty must lie in [0, 1), not {penalty}")
    if not cluster.devices or min(cluster.devices) < 1:
        raise ValueError("a cluster needs nodes, and each node a device")
    kinds = _kinds(jobs, cluster)
    notes: list[str] = []
    given, packing = _solve(kinds, cluster, p, penalty, nodes, limit_s, notes)
    shapes = [IDLE] * len(jobs)
    for kind, counts in zip(kinds, given, strict=True):
        for index, shape in kind.deal(counts):
            shapes[index] = shape
    demands = [
        Demand(shape.nodes, shape.replicas * job.replica_devices // max(shape.nodes, 1), job.seats if shape == job.current else {})
        for job, shape in zip(jobs, shapes, strict=True)
    ]
    seats, lost = place(demands, cluster.devices, packing)
    if lost:
        notes.append(f"{len(lost)} jobs found no place among the others and wait")
    for index in lost:
        shapes[index] = IDLE
    return _described(jobs, cluster, shapes, seats, p, penalty, notes)


def over_sizes(jobs: Sequence[Job], nodes: Iterable[int], devices: int, *, p: float = 1.0) -> list[tuple[int, Allocation]]:
    """Returns (nodes, allocation) for clusters of several sizes with so many devices per node: what a larger cluster would add."""
    return [(n, allocate(jobs, Cluster.alike(n, devices), p=p)) for n in nodes]


@dataclass
class _Kind:
    """Jobs alike but for what they hold now: their places in the list by shape held, and what each could be given."""

    example: Job
    placed: dict[Shape, list[int]]
    options: list[Shape]
    parts: list[int]
    speedups: Floats

    @cached_property
    def running(self) -> int:
        return sum(len(v) for shape, v in self.placed.items() if shape != IDLE)

    @property
    def waiting(self) -> int:
        return len(self.placed.get(IDLE, []))

    def deal(self, counts: dict[tuple[str, int], int]) -> list[tuple[int, Shape]]:
        """Returns (place in the list, shape) of every job that gets something, from counts by (keep, move or start; option)."""
        free = {shape: list(places) for shape, places in self.placed.items()}
        out = []
        for (what, option), count in counts.items():
            if what == "keep":
                shape = self.options[option]
                out += [(free[shape].pop(0), shape) for _ in range(count)]
        movers = [(i, shape) for shape, places in free.items() if shape != IDLE for i in places]
        starters = sorted(free.get(IDLE, []))
        for (what, option), count in counts.items():
            for _ in range(count if what != "keep" else 0):
                if what == "start":
                    out.append((starters.pop(0), self.options[option]))
                else:
                    out.append((movers.pop(0)[0], self.options[option]))
        return out


def _kinds(jobs: Sequence[Job], cluster: Cluster) -> list[_Kind]:
    found: dict[tuple[int, int, int, int], dict[Shape, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i, job in enumerate(jobs):
        found[id(job.speedup), job.max_replicas, job.min_replicas, job.replica_devices][job.current].append(i)
    out = []
    for placed in found.values():
        example = jobs[next(iter(placed.values()))[0]]
        options = _options(example, cluster, [shape for shape in placed if shape != IDLE])
        parts = [o.replicas * example.replica_devices // o.nodes for o in options]
        n, r = np.array(options, float).reshape(-1, 2).T
        speedups = np.nan_to_num(np.atleast_1d(example.speedup(n, r))) if options else np.zeros(0)
        out.append(_Kind(example, dict(placed), options, parts, speedups))
    return out


def _options(job: Job, cluster: Cluster, held: list[Shape]) -> list[Shape]:
    """Returns what a job could be given: any count on one node; on several, a whole or half node's worth on each; what jobs like it
    hold.
    """
    most = max(cluster.devices) // job.replica_devices
    low, high = max(job.min_replicas, 1), job.max_replicas
    out = {Shape(1, r) for r in range(low, min(high, most) + 1)}
    count = 2
    while count <= len(cluster.devices):
        out |= {Shape(count, count * part) for part in {most, most // 2} - {0} if low <= count * part <= high}
        count += max(1, count // 5)
    allowed = set(sizes(cluster.devices))
    out |= {s for s in held if s.nodes <= len(cluster.devices)}
    return sorted(s for s in out if s.replicas * job.replica_devices // s.nodes in allowed)


def _solve(
    kinds: list[_Kind], cluster: Cluster, p: float, penalty: float, most_nodes: int, limit_s: float, notes: list[str]
) -> tuple[list[dict[tuple[str, int], int]], list[tuple[Pattern, int]]]:
    """Counts by (keep, move or start; option) for each kind, and how many nodes are divided in which way."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    ways = patterns(cluster.devices)
    names: list[tuple[int, str, int]] = []
    gain: list[float] = []
    high: list[float] = []
    entries: list[tuple[int, int, float]] = []  # row, column, value
    limits: list[float] = []

    def row(limit: float) -> int:
        limits.append(limit)
        return len(limits) - 1

    singles = {size: row(0) for size in sizes(cluster.devices)}
    slices = {size: row(0) for size in sizes(cluster.devices)}
    nodes = {d: row(cluster.devices.count(d)) for d in set(cluster.devices)}
    for k, kind in enumerate(kinds):
        row_running, row_waiting = row(kind.running), row(kind.waiting)
        for option, (shape, part, speedup) in enumerate(zip(kind.options, kind.parts, kind.speedups, strict=True)):
            if speedup <= 0:
                continue
            held = len(kind.placed.get(shape, []))
            for what, most, factor in (("keep", held, 1.0), ("move", kind.running, 1 - penalty), ("start", kind.waiting, 1.0)):
                if most:
                    column = len(names)
                    names.append((k, what, option))
                    gain.append(_worth(speedup * factor, p) - _worth(0.0, p))
                    high.append(most)
                    entries.append((row_waiting if what == "start" else row_running, column, 1.0))
                    where = singles if shape.nodes == 1 else slices
                    entries.append((where[part], column, float(shape.nodes)))
    if p == 1:  # the score of the module's head; other p compare speedups as they are
        gain = [g * kinds[k].example.replica_devices for g, (k, _, _) in zip(gain, names, strict=True)]
    first = len(names)
    for column, way in enumerate(ways, first):
        entries.append((nodes[way.devices], column, 1.0))
        if way.slice:
            entries.append((slices[way.slice], column, -1.0))
        entries += [(singles[size], column, -float(way.parts.count(size))) for size in set(way.parts)]
        gain.append(0.0)
        high.append(float(cluster.devices.count(way.devices)))
    rows, columns, values = zip(*entries, strict=True)
    matrix = coo_array((values, (rows, columns)), shape=(len(limits), len(gain))).tocsr()
    # keeping more of a shape than hold it is ruled out by the bounds; what is equal in score goes to fewer devices
    found = milp(
        -np.array(gain), constraints=LinearConstraint(matrix, -np.inf, np.array(limits)), integrality=np.ones(len(gain)),
        bounds=Bounds(0, np.array(high)), options={"node_limit": most_nodes, "time_limit": limit_s, "mip_rel_gap": 1e-3},
    )  # fmt: skip
    out: list[dict[tuple[str, int], int]] = [{} for _ in kinds]
    ended = f"{limit_s:g} s" if "time limit" in str(found.message).lower() else f"{most_nodes:,} nodes of the search tree"
    if found.x is None:
        notes.append(f"no allocation was found within {ended}: all stays as it is")
        for kind, counts in zip(kinds, out, strict=True):
            counts |= {("keep", kind.options.index(s)): len(v) for s, v in kind.placed.items() if s in kind.options}
        return out, []
    if found.status != 0:
        notes.append(f"ended after {ended}: a better allocation may exist")
    chosen = np.round(found.x).astype(int)
    for (k, what, option), count in _used(names, chosen[:first].tolist()):
        out[k][what, option] = count
    return out, _used(ways, chosen[first:].tolist())


def _used(choices: Sequence[T], counts: Sequence[int]) -> list[tuple[T, int]]:
    """Returns the choices that were taken, with how often."""
    return [(one, n) for one, n in zip(choices, counts, strict=True) if n]


def _worth(speedup: float, p: float) -> float:
    """Returns what a speedup adds to the sum under a p-mean, rising with the speedup for every p."""
    if p > 0:
        return float(speedup**p)
    floored = max(speedup, WAITING)
    return float(np.log(floored) if p == 0 else -(floored**p))


def _described(
    jobs: Sequence[Job], cluster: Cluster, shapes: list[Shape], seats: list[Seats], p: float, penalty: float, notes: list[str]
) -> Allocation:
    n, r = np.array(shapes, float).reshape(-1, 2).T
    speedups = np.array([float(job.speedup(a, b)) if b else 0.0 for job, a, b in zip(jobs, n, r, strict=True)])
    restarts = tuple(
        job.current != IDLE and shape != IDLE and (shape != job.current or (bool(job.seats) and seat != job.seats))
        for job, shape, seat in zip(jobs, shapes, seats, strict=True)
    )
    penalized = speedups * np.where(restarts, 1 - penalty, 1.0)
    share = np.array([job.replica_devices for job in jobs], float) / cluster.total
    scores = penalized * share * len(cluster.devices)
    return Allocation(
        tuple(shapes), tuple(seats), speedups, scores, restarts, float(scores.sum()), _p_mean(penalized, p),
        sum(sum(s.values()) for s in seats), tuple(notes),
    )  # fmt: skip


def _p_mean(values: Floats, p: float) -> float:
    if not len(values):
        return 0.0
    floored = values if p > 0 else np.maximum(values, WAITING)
    return float(np.exp(np.log(floored).mean()) if p == 0 else np.mean(floored**p) ** (1 / p))
