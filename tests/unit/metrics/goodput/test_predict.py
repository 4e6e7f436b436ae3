"""What a known model says: where adding stops paying, the best way to run, the grid against one evaluation at a time."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from tb_sol_plugin.cost.goodput import Fit, GoodputFunction, GradParams, PerfParams, points
from tb_sol_plugin.metrics.goodput.predict import Prediction, Terms

P1 = PerfParams(0.12, 0.0056, 0.4, 0.025, 0.07, 0.0024, 1.8)


def fitted(params: PerfParams) -> Fit:
    used, _ = points([1], [1], [64], [1.0], [1.0])
    return Fit(params, 0.0, used, dict.fromkeys(PerfParams._fields, True), (), (), (), 0.0)


def terms(**more: object) -> Terms:
    values = {"initial": 128, "most": 4096, "low": 16, "high": 256, "accumulation": True, "per_node": 4, "replicas": 32,
              "grads": GradParams(1.0, 2000.0)} | more  # fmt: skip
    return Terms(**values)  # type: ignore[arg-type]


def test_replicas_fill_one_node_before_the_next() -> None:
    # GIVEN 4 replicas a node and 16 at most THEN 1 to 4 on one node, then whole nodes
    t = terms(replicas=16)
    assert t.counts.tolist() == [1, 2, 3, 4, 8, 12, 16] and t.nodes(t.counts).tolist() == [1, 1, 1, 1, 2, 3, 4]


def test_adding_stops_paying_where_the_gain_falls_below_the_share() -> None:
    # GIVEN a model WHEN the gain of each allocation over the one before is worked out one by one THEN the stop is the last before it falls
    found = Prediction(fitted(P1), terms())
    one = GoodputFunction(P1, GradParams(1.0, 2000.0), 128)

    def value(r: int) -> float:
        return float(one.optimize(math.ceil(r / 4), r, 4096, (16, 256), True, strict=True).goodput)

    counts = found.terms.counts.tolist()
    gains = [(value(b) - value(a)) / value(1) / (b - a) for a, b in pairwise(counts)]
    first = next((i for i, g in enumerate(gains) if g < 0.5), len(gains))
    assert found.stop == first and 0 < first < len(gains)
    assert found.at(found.stop).speedup == pytest.approx(value(counts[first]) / value(1))
    assert not found.pays_on and found.top == int(np.argmax([value(c) for c in counts]))


def test_with_no_cost_of_communication_every_replica_pays() -> None:
    found = Prediction(fitted(PerfParams(0.1, 0.01, 1e-8, 1e-8, 1e-8, 1e-8, 1.0)), terms(grads=None))
    assert found.pays_on and found.at(found.stop).replicas == 32 and found.best["efficiency"] == pytest.approx(1.0)


def test_the_grid_is_the_model_at_each_cell() -> None:
    # GIVEN the grid WHEN each cell is worked out alone THEN they are equal, and cells that cannot be run are empty
    found = Prediction(fitted(P1), terms())
    g = found.grid
    one = GoodputFunction(P1, GradParams(1.0, 2000.0), 128)
    for i, total in enumerate(g.totals.tolist()):
        for j, r in enumerate(g.counts.tolist()):
            share = total / r
            k = max(math.ceil(share / 256 - 1e-8) - 1, 1 if r == 1 and share > 128 + 1e-8 else 0)
            b = min(math.ceil(share / (k + 1) - 1e-8), math.floor(terms().most / (r * (k + 1)) + 1e-8))
            can = share >= 1 and 16 <= b <= 256 and r * b * (k + 1) >= 128
            assert math.isnan(g.goodput[i, j]) != can
            if can:
                assert (g.atomic[i, j], g.steps[i, j]) == (b, k) and r * b * (k + 1) <= terms().most
                assert g.goodput[i, j] == pytest.approx(float(one(math.ceil(r / 4), r, b, k)), rel=1e-12)
    assert np.isnan(g.goodput).any() and np.isfinite(g.goodput).any()


def test_a_step_is_split_into_compute_and_network() -> None:
    # GIVEN gamma 1 THEN the step is the sum of both; one replica has no network
    found = Prediction(fitted(PerfParams(0.1, 0.01, 0.4, 0.02, 0.05, 0.01, 1.0)), terms(grads=None))
    compute, network, step = found.split(3)
    assert step == pytest.approx(compute + network) and network == pytest.approx(0.05 + 0.01 * 2)
    assert found.split(0)[1] == 0.0


def test_limits_that_no_batch_size_meets_give_no_prediction() -> None:
    # GIVEN micro-steps of 1000 samples at least and a total of 128 at most THEN nothing can be run, and nothing raises
    found = Prediction(fitted(P1), terms(low=1000, high=1000, most=128, accumulation=False, initial=64))
    assert found.stop == -1 and found.top == -1 and not found.pays_on
    assert np.isnan(found.grid.goodput).all()


def test_batches_within_a_limit_are_rounded_down_to_it_and_ties_take_the_smallest() -> None:
    # GIVEN 3 replicas, micro-steps of 100 samples at most and a total of 1000 at most WHEN the best is sought THEN it is
    # 4 micro-steps of 83, 996 samples, for the 1000 are no whole ones, and not a total of the grid further below
    goodput = GoodputFunction(PerfParams(0.1, 0.001, 1e-8, 1e-8, 5.0, 1e-8, 1.0), None, 10)
    best = goodput.optimize(1, 3, 1000, (1, 100), True, strict=True)
    assert (best.atomic_bsz, best.accum_steps) == (83, 3)
    # AND a lone replica stays at its initial batch; and where a larger batch wins less than a millionth, the smallest is taken: of b
    # samples it costs 2e-8 in b times 1e-3, a millionth at 20
    alone = GoodputFunction(PerfParams(0.1, 0.001, 1e-8, 1e-8, 1e-8, 1e-8, 1.0), None, 10).optimize(1, 1, 1000, (1, 100), False, strict=True)
    assert (alone.atomic_bsz, alone.accum_steps) == (10, 0)
    flat = GoodputFunction(PerfParams(1e-8, 0.001, 1e-8, 1e-8, 1e-8, 1e-8, 1.0), None, 10).optimize(1, 2, 1000, (1, 100), True, strict=True)
    assert 15 <= flat.atomic_bsz <= 20 and flat.accum_steps == 0


def test_a_dip_at_the_second_node_is_not_the_end_of_the_gain() -> None:
    # GIVEN a network across nodes that costs much for the second node and nothing more for those after it WHEN asked THEN adding stops
    # to pay at the full node, and up to the largest count each replica pays on average
    found = Prediction(fitted(PerfParams(0.1, 0.01, 1.2, 1e-8, 1e-8, 1e-8, 1.0)), terms(grads=None, accumulation=False, most=32 * 256))
    assert found.at(found.stop).replicas == 4 and not found.pays_on
    r, s = found.best["replicas"], found.best["speedup"]
    last = found.later
    assert last >= 0 and (s[last] - s[found.stop]) / (r[last] - 4) >= 0.5
    assert Prediction(fitted(PerfParams(0.1, 0.01, 1e-8, 1e-8, 1e-8, 1e-8, 1.0)), terms(grads=None)).later == -1
