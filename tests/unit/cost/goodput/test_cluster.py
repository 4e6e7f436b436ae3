"""Allocations against all that are possible on small clusters; what holds on large ones; the replay against sums by hand."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from tb_sol_plugin.cost.goodput import (
    Cluster,
    GoodputFunction,
    Job,
    JobClass,
    Shape,
    SpeedupFunction,
    allocate,
    arrivals,
    over_sizes,
    replay,
)
from tb_sol_plugin.cost.goodput.cluster import Demand, Pattern, patterns, place
from tests.unit.cost.goodput import reference as R

SPEEDUPS = [
    SpeedupFunction(GoodputFunction(p, g, 128), 8192, (16, 256), True) for p in (R.P1, R.P2) for g in ((1.0, 2000.0), (0.00136, 0.000502))
]


def checked(jobs, cluster, found):
    """An allocation fits: no node gives more than it has, one job of several nodes per node, seats are what shapes say."""
    held, spread = Counter(), Counter()
    for job, shape, seats in zip(jobs, found.shapes, found.seats, strict=True):
        assert len(seats) == shape.nodes and sum(seats.values()) == shape.replicas * job.replica_devices and len(set(seats.values())) <= 1
        assert shape == (0, 0) or job.min_replicas <= shape.replicas <= job.max_replicas
        held.update(seats)
        spread.update(list(seats) if shape.nodes > 1 else [])
    assert all(held[k] <= cluster.devices[k] for k in held) and max(spread.values(), default=0) <= 1
    assert found.devices == sum(held.values())
    return found


def every(jobs, most):
    """All shapes that each job could have on two nodes."""
    own = [(0, 0), *((1, r) for r in range(1, most + 1)), *((2, 2 * k) for k in range(1, most + 1))]
    return itertools.product(*[[s for s in own if s[1] <= job.max_replicas] for job in jobs])


def fits(shapes, most):
    """Whether shapes fit on two nodes: tried out."""
    spread = [r // 2 for n, r in shapes if n == 2]
    if len(spread) > 1:
        return False
    room = most - sum(spread)
    sizes = [r for n, r in shapes if n == 1]
    return any(
        all(sum(s for s, side in zip(sizes, sides, strict=True) if side == k) <= room for k in (0, 1))
        for sides in itertools.product((0, 1), repeat=len(sizes))
    )


@pytest.mark.parametrize("p", [1.0, 0.5, 0.0, -1.0])
def test_no_allocation_on_two_small_nodes_is_better(p):
    # GIVEN four jobs on two nodes of four WHEN all allocations are tried THEN none has a higher p-mean
    jobs = [Job(name=str(i), speedup=s, max_replicas=8) for i, s in enumerate(SPEEDUPS)]
    cluster = Cluster.alike(2, 4)
    found = checked(jobs, cluster, allocate(jobs, cluster, p=p))

    def mean(shapes):
        values = np.array([float(job.speedup(*shape)) for job, shape in zip(jobs, shapes, strict=True)])
        values = values if p > 0 else np.maximum(values, 0.01)
        return np.exp(np.log(values).mean()) if p == 0 else np.mean(values**p) ** (1 / p)

    best = max(mean(shapes) for shapes in every(jobs, 4) if fits(shapes, 4))
    assert found.mean == pytest.approx(best, rel=1e-3) and found.mean == pytest.approx(mean(found.shapes))
    # AND the score is the sum of speedups by hand: a replica's share is 1/8, there are 2 nodes
    assert found.score == pytest.approx(sum(float(j.speedup(*s)) for j, s in zip(jobs, found.shapes, strict=True)) / 8 * 2)


def test_a_restart_must_be_worth_its_penalty():
    # GIVEN a job on half of the only node, whose speedup grows by 5 % with the other half
    table = {(1, 1): 1.0, (1, 2): 1.05}

    def slow(n, r):
        return np.vectorize(lambda a, b: table.get((a, b), 0.0))(n, r)

    held = Job(name="held", speedup=slow, max_replicas=2, current=Shape(1, 1), seats={0: 1})
    # WHEN a restart costs 10 % THEN it stays; 4 %: it grows, and is charged; started anew it is not
    stays = allocate([held], Cluster((2,)))
    assert stays.shapes == ((1, 1),) and stays.restarts == (False,) and stays.score == pytest.approx(1.0 / 2)
    grows = allocate([held], Cluster((2,)), penalty=0.04)
    assert grows.shapes == ((1, 2),) and grows.restarts == (True,) and grows.score == pytest.approx(1.05 * 0.96 / 2)
    fresh = allocate([Job(name="new", speedup=slow, max_replicas=2)], Cluster((2,)))
    assert fresh.shapes == ((1, 2),) and fresh.restarts == (False,) and fresh.score == pytest.approx(1.05 / 2)


def test_limits_of_jobs_and_odd_clusters():
    jobs = [
        Job(name="wide", speedup=SPEEDUPS[0], max_replicas=64, min_replicas=12),
        Job(name="two devices each", speedup=SPEEDUPS[2], max_replicas=3, replica_devices=2),
        Job(name="one", speedup=SPEEDUPS[1], max_replicas=1),
    ]
    for devices in ((8, 8, 4), (8,), (1, 1), (16, 16), (3, 3, 3, 3)):
        found = checked(jobs, Cluster(devices), allocate(jobs, Cluster(devices)))
        assert found.devices > 0 and (found.shapes[0] == (0, 0) or found.shapes[0].replicas >= 12)
    assert allocate([], Cluster((4,))).shapes == ()
    with pytest.raises(ValueError, match=r"penalty must lie in \[0, 1\), not 1"):
        allocate(jobs, Cluster((8,)), penalty=1)
    with pytest.raises(ValueError, match="a cluster needs nodes"):
        allocate(jobs, Cluster(()))


def test_a_thousand_machines_are_allocated_then_again_with_few_moves():
    # GIVEN 1000 jobs on 1000 nodes of 8 WHEN allocated THEN it fits, all is used, with few nodes of the search tree
    cluster = Cluster.alike(1000, 8)
    jobs = [Job(name=str(i), speedup=SPEEDUPS[i % 4], max_replicas=512) for i in range(1000)]
    first = checked(jobs, cluster, allocate(jobs, cluster, nodes=10))
    assert first.devices == 8000 and not first.notes
    # WHEN 30 leave and 60 come THEN few of the others restart; with nothing changed none does
    held = [
        Job(name=j.name, speedup=j.speedup, max_replicas=512, current=s, seats=q)
        for j, s, q in zip(jobs, first.shapes, first.seats, strict=True)
    ]
    same = checked(held, cluster, allocate(held, cluster))
    assert not any(same.restarts) and same.seats == first.seats
    after = held[30:] + [Job(name="new", speedup=SPEEDUPS[i % 4], max_replicas=512) for i in range(60)]
    found = checked(after, cluster, allocate(after, cluster))
    assert sum(found.restarts) < 150 and sum(s != (0, 0) for s in found.shapes) >= 1000


def test_what_ends_a_search_is_said():
    # GIVEN a search that may look at no node, or take no time WHEN allocated THEN all stays as it is, with the reason
    jobs = [Job(name=str(i), speedup=SPEEDUPS[i % 4], max_replicas=512) for i in range(100)]
    for how, why in (({"nodes": 0}, "0 nodes of the search tree"), ({"limit_s": 0.0}, "0 s")):
        found = allocate(jobs, Cluster.alike(100, 8), **how)
        assert found.notes == (f"no allocation was found within {why}: all stays as it is",) and found.devices == 0


def test_larger_clusters_add_less():
    jobs = [Job(name=str(i), speedup=SPEEDUPS[1], max_replicas=64) for i in range(6)]
    found = over_sizes(jobs, (1, 2, 4, 8), 8)
    means = [a.mean for _, a in found]
    assert means == sorted(means) and means[1] - means[0] > means[3] - means[2]


def test_ways_to_divide_a_node():
    # GIVEN nodes of 3 WHEN divided THEN by hand: 111, 21, 3; with a part of a job on several nodes: 1+11, 1+2, 2+1, 3
    assert set(patterns((3, 3))) == {
        Pattern(3, 0, (1, 1, 1)), Pattern(3, 0, (2, 1)), Pattern(3, 0, (3,)),
        Pattern(3, 1, (1, 1)), Pattern(3, 1, (2,)), Pattern(3, 2, (1,)), Pattern(3, 3, ()),
    }  # fmt: skip
    # partitions of 8 are 22; those of 0 to 8 with one part set apart are 1 + 1 + 2 + 3 + 5 + 7 + 11 + 15 = 45
    assert len(patterns((8,))) == 22 + 45


def test_places_keep_who_can_stay_and_move_the_smaller():
    # GIVEN two nodes of four with a job of 2 on each WHEN one of 4 comes THEN one of the two moves to the other's node
    demands = [Demand(1, 2, {0: 2}), Demand(1, 2, {1: 2}), Demand(1, 4, {})]
    seats, lost = place(demands, (4, 4), [])
    assert lost == [] and sorted(map(str, seats)) in (["{0: 2}", "{0: 2}", "{1: 4}"], ["{0: 4}", "{1: 2}", "{1: 2}"])
    # AND without moves it waits
    assert place(demands, (4, 4), [], moves=False)[1] == [2]
    # GIVEN seats on a node that is gone, or more than there is WHEN placed THEN they are placed anew
    assert place([Demand(1, 2, {9: 2})], (4,), []) == ([{0: 2}], [])
    assert place([Demand(1, 3, {0: 3}), Demand(1, 3, {0: 3})], (4, 4), [])[1] == []


CLASSES = [JobClass(name="a", speedup=SPEEDUPS[0], max_replicas=16, hours=2), JobClass(name="b", speedup=SPEEDUPS[1], max_replicas=8, hours=1)]


def test_one_job_alone_takes_its_work_over_its_speedup():
    jobs = arrivals(CLASSES[:1], per_hour=1, hours=3, seed=3)
    assert len(jobs.time_s) >= 1
    one = type(jobs)(jobs.time_s[:1] * 0, jobs.job_class[:1], np.array([7200.0]))
    # GIVEN two hours of work on 8 devices of a node, 30 s to start WHEN replayed THEN it ends after 30 s + work / speedup
    for policy in ("goodput", "fixed"):
        found = replay(CLASSES[:1], Cluster.alike(1, 8), one, hours=4, policy=policy)
        assert found.end_s[0] == pytest.approx(30 + 7200 / float(SPEEDUPS[0](1, 8)))
        assert found.ended == 1 and found.work_s == pytest.approx(7200) and found.restarts[0] == 0
        assert found.devices.tolist() == [8] * 4 and found.mean_time_s == found.end_s[0]


@pytest.mark.parametrize("policy", ["goodput", "fixed"])
def test_all_work_is_done_once(policy):
    cluster = Cluster.alike(4, 4)
    jobs = arrivals(CLASSES, per_hour=6, hours=6)
    found = replay(CLASSES, cluster, jobs, hours=100, policy=policy)
    assert found.ended == len(jobs.time_s) and found.work_s == pytest.approx(jobs.work_s.sum())
    assert (found.devices <= 16).all() and (found.start_s >= jobs.time_s).all() and (found.end_s > found.start_s).all()
    # AND speedup over time adds up to the work, but for starts and the last part of an interval
    assert found.work_s <= (found.speedup * 300).sum() <= 1.5 * found.work_s
    # AND nothing runs longer than the simulation: cut short, the rest is not ended
    cut = replay(CLASSES, cluster, jobs, hours=3, policy=policy)
    assert cut.ended < found.ended and np.isnan(cut.end_s).sum() == len(jobs.time_s) - cut.ended and len(cut.time_s) == 36


def test_the_same_seed_gives_the_same_jobs():
    a, b, c = (arrivals(CLASSES, per_hour=5, hours=50, seed=s) for s in (1, 1, 2))
    assert (a.time_s == b.time_s).all() and (a.work_s == b.work_s).all() and len(a.time_s) != len(c.time_s)
    # AND about as many come as said, with the work said
    many = arrivals(CLASSES[:1], per_hour=200, hours=100)
    assert len(many.time_s) == pytest.approx(20_000, rel=0.05) and many.work_s.mean() == pytest.approx(7200, rel=0.05)
