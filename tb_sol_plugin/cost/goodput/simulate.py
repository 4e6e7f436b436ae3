"""Simulates a cluster over time: jobs arrive, are allocated again and again, and end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cost.goodput.cluster import IDLE, Cluster, Demand, Job, Seats, Shape, allocate, place
from tb_sol_plugin.tables.arrays import Floats

Policy: TypeAlias = Literal["goodput", "fixed"]
SEED: Final = 20211


@dataclass(frozen=True, kw_only=True)
class JobClass:
    """Jobs alike. weight: how often they arrive among the classes. hours: mean work on one replica. requested: replicas when fixed."""

    name: str
    speedup: Callable[[Floats, Floats], float | Floats]
    max_replicas: int
    weight: float = 1.0
    hours: float = 8.0
    requested: int = 8
    replica_devices: int = 1


@dataclass(frozen=True)
class Arrivals:
    """One entry per job, by time of arrival (s): class, and work in seconds on one replica."""

    time_s: Floats
    job_class: npt.NDArray[np.int64]
    work_s: Floats


@dataclass(frozen=True)
class Replayed:
    """One entry per job: first start and end in seconds (NaN: not within the time), restarts.

    One entry per interval, from its start at time_s: devices in use, jobs that run and that wait, the sum of speedups. work_s: what was
    done, in seconds on one replica.
    """

    policy: Policy
    arrivals: Arrivals
    start_s: Floats
    end_s: Floats
    restarts: npt.NDArray[np.int64]
    time_s: Floats
    devices: npt.NDArray[np.int64]
    running: npt.NDArray[np.int64]
    waiting: npt.NDArray[np.int64]
    speedup: Floats
    work_s: float

    @property
    def ended(self) -> int:
        """Jobs that ended within the time."""
        return int(np.isfinite(self.end_s).sum())

    @property
    def mean_time_s(self) -> float:
        """Mean seconds from arrival to end of the jobs that ended; NaN if none did. To compare only where all ended, see `ended`."""
        ended = np.isfinite(self.end_s)
        return float((self.end_s - self.arrivals.time_s)[ended].mean()) if ended.any() else float("nan")


def arrivals(classes: Sequence[JobClass], *, per_hour: float, hours: float, seed: int = SEED) -> Arrivals:
    """Returns jobs at independent random times; work scatters log-normally (sigma 1) around each class's mean. A seed gives the same
    jobs.
    """
    rng = np.random.default_rng(seed)
    count = int(rng.poisson(per_hour * hours))
    weights = np.array([c.weight for c in classes], float)
    of = rng.choice(len(classes), size=count, p=weights / weights.sum())
    mean = np.array([c.hours for c in classes])[of] * 3600
    return Arrivals(np.sort(rng.uniform(0, hours * 3600, count)), of.astype(np.int64), mean * rng.lognormal(-0.5, 1.0, count))


def replay(
    classes: Sequence[JobClass],
    cluster: Cluster,
    jobs: Arrivals,
    *,
    hours: float,
    policy: Policy = "goodput",
    p: float = 1.0,
    interval_s: float = 300.0,
    restart_s: float = 30.0,
) -> Replayed:
    """Returns the cluster until all jobs ended, `hours` at the most. restart_s: a job that starts or restarts does nothing for so long.

    Devices of a job that ends fall free at the end of its interval. One step of all jobs at once per interval.
    """
    size = len(jobs.time_s)
    left, rate, pause = jobs.work_s.copy(), np.zeros(size), np.zeros(size)
    start, end = np.full(size, np.nan), np.full(size, np.nan)
    restarts, used = np.zeros(size, np.int64), np.zeros(size, np.int64)
    shapes: list[Shape] = [IDLE] * size
    seats: list[Seats] = [{} for _ in range(size)]
    active: list[int] = []
    arrived, changed = 0, False
    times = np.arange(0, hours * 3600, interval_s)
    series = np.zeros((4, len(times)))
    for step, now in enumerate(times.tolist()):
        if arrived == size and not active:
            times, series = times[:step], series[:, :step]
            break
        while arrived < size and jobs.time_s[arrived] <= now:
            active.append(arrived)
            arrived, changed = arrived + 1, True
        if changed and active:
            given = _goodput if policy == "goodput" else _fixed
            for i, shape, seat, speedup in given(classes, cluster, jobs, active, shapes, seats, p):
                if shape != shapes[i] or seat != seats[i]:
                    restarts[i] += shapes[i] != IDLE and shape != IDLE
                    pause[i] = restart_s
                if shape != IDLE and np.isnan(start[i]):
                    start[i] = now
                shapes[i], seats[i], rate[i] = shape, seat, speedup
                used[i] = sum(seat.values())
        here = np.array(active, np.int64)
        running = rate[here] > 0
        series[:, step] = used[here].sum(), running.sum(), (~running).sum(), rate[here].sum()
        works = np.maximum(interval_s - pause[here], 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.where(running, pause[here] + left[here] / rate[here], np.inf)
        done = ends <= interval_s
        end[here[done]] = now + ends[done]
        left[here] = np.maximum(left[here] - works * rate[here], 0)
        left[here[done]] = 0
        pause[here] = np.maximum(pause[here] - interval_s, 0)
        changed = bool(done.any())
        for i in here[done].tolist():
            shapes[i], seats[i], rate[i], used[i] = IDLE, {}, 0.0, 0
        active = here[~done].tolist()
    used_, running_, waiting_ = series[:3].astype(np.int64)
    return Replayed(policy, jobs, start, end, restarts, times, used_, running_, waiting_, series[3], float((jobs.work_s - left).sum()))
_Given: TypeAlias = list[tuple[int, Shape, Seats, float]]


def _goodput(
    classes: Sequence[JobClass], cluster: Cluster, jobs: Arrivals, active: list[int], shapes: list[Shape], seats: list[Seats], p: float
) -> _Given:
    found = []
    for i in active:
        c = classes[jobs.job_class[i]]
        found.append(
            Job(
                name=c.name, speedup=c.speedup, max_replicas=c.max_replicas, replica_devices=c.replica_devices,
                current=shapes[i], seats=seats[i],
            )
        )  # fmt: skip
    given = allocate(found, cluster, p=p)
    return list(zip(active, given.shapes, given.seats, given.speedups.tolist(), strict=True))


def _fixed(
    classes: Sequence[JobClass], cluster: Cluster, jobs: Arrivals, active: list[int], shapes: list[Shape], seats: list[Seats], p: float
) -> _Given:
    """Places jobs in order of arrival, until one does not fit: whole nodes for a job larger than a node."""
    most = max(cluster.devices)
    wanted, demands = [], []
    free = cluster.total - sum(sum(seats[i].values()) for i in active)
    blocked = False
    for i in active:
        c = classes[jobs.job_class[i]]
        nodes = -(-c.requested * c.replica_devices // most)
        shape = Shape(nodes, nodes * (most // c.replica_devices) if nodes > 1 else c.requested)
        devices = shape.replicas * c.replica_devices
        if shapes[i] == IDLE:
            blocked = blocked or devices > free
            shape = IDLE if blocked else shape
            free -= 0 if blocked else devices
        wanted.append(shape)
        demands.append(Demand(shape.nodes, devices // nodes if shape.nodes else 0, seats[i]))
    found, without = place(demands, cluster.devices, [], moves=False)
    lost = set(without)
    out: _Given = []
    for at, (i, shape, seat) in enumerate(zip(active, wanted, found, strict=True)):
        kept = IDLE if at in lost else shape
        speedup = float(classes[jobs.job_class[i]].speedup(*np.array(kept, float))) if kept != IDLE else 0.0
        out.append((i, kept, seat, speedup))
    return out
