"""Step time, efficiency, goodput and the best batch size: published cells, a slow reference, and what holds for all parameters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.cost.goodput import GoodputFunction, GradParams, PerfParams, SpeedupFunction
from tb_sol_plugin.cost.goodput.model import accum_time, network_time, optim_time
from tests.unit.cost.goodput import reference as R

NOISY, CLEAN = GradParams(sqr=1.0, var=2000.0), GradParams(sqr=0.00136, var=0.000502)


@pytest.mark.parametrize(
    ("n", "r", "b", "k", "throughput", "efficiency", "goodput"),
    [
        (1, 1, 128, 0, 152.964, 1, 152.964),
        (1, 2, 64, 0, 262.996, 1, 262.996),
        (1, 4, 64, 1, 529.942, 0.998503, 529.148),
        (2, 8, 32, 3, 663.571, 0.996514, 661.258),
        (4, 32, 64, 0, 1604.692, 0.992560, 1592.752),
    ],
)
def test_published_cells(n, r, b, k, throughput, efficiency, goodput):
    fn = GoodputFunction(R.P1, NOISY, 128)
    assert fn.throughput(n, r, b, k) == pytest.approx(throughput, abs=5e-4)
    assert fn.efficiency(r * b * (k + 1)) == pytest.approx(efficiency, abs=5e-7)
    assert fn(n, r, b, k) == fn.evaluate(n, r, b, k) == pytest.approx(goodput, abs=5e-4)
    # AND the slow reference agrees to the last digits, and a scalar in gives a float out
    assert fn(n, r, b, k) == pytest.approx(R.goodput(R.P1, *NOISY, 128, n, r, b, k), rel=1e-12)
    assert type(fn(n, r, b, k)) is float


def test_step_time_worked_out_by_hand():
    # GIVEN gamma 2 and times of 3 and 4 s WHEN they overlap THEN the step takes 5 s, on one node and on two
    p = PerfParams(1.0, 0.5, 2.0, 0.5, 3.0, 0.5, 2.0)
    assert accum_time(p, 4) == 3.0
    assert optim_time(p, 2, 6, 4) == pytest.approx(5.0) and network_time(p, 2, 6) == 4.0
    assert optim_time(p, 1, 4, 4) == pytest.approx(5.0) and network_time(p, 1, 4) == 4.0
    # AND a lone replica waits for nobody; three accumulated steps and one synchronized make 14 s
    assert optim_time(p, 1, 1, 4) == pytest.approx(3.0)
    assert GoodputFunction(p, None, 1).throughput(2, 6, 4, 3) == pytest.approx(6 * 4 * 4 / (3 * 3.0 + 5.0))


def test_arrays_broadcast_and_keep_their_shape():
    fn = GoodputFunction(R.P2, NOISY, 16)
    n, b = np.array([[1], [2], [4]]), np.array([16, 32, 64, 128])
    found = fn(n, 8 * n, b, 1)
    assert found.shape == (3, 4)
    for i in range(3):
        for j in range(4):
            assert found[i, j] == pytest.approx(R.goodput(R.P2, *NOISY, 16, n[i, 0], 8 * n[i, 0], b[j], 1), rel=1e-12)


def test_what_cannot_be_says_both_values():
    fn = GoodputFunction(R.P1, NOISY, 128)
    with pytest.raises(ValueError, match=r"batch size is 64, below init_batch_size, which is 128"):
        fn(1, [4, 2], 32)
    with pytest.raises(ValueError, match=r"num_replicas is 2, below num_nodes, which is 3"):
        fn([1, 3], 2, 128)
    with pytest.raises(ValueError, match=r"num_nodes is 0, below 1"):
        fn(0, 2, 128)
    with pytest.raises(ValueError, match=r"max_batch_size is 64, below init_batch_size, which is 128"):
        fn.optimize(1, 1, 64)
    with pytest.raises(ValueError, match=r"atomic_bsz_range is \(32, 16\)"):
        fn.optimize(1, 1, 256, (32, 16))
    with pytest.raises(ValueError, match=r"init_batch_size must be above 0, not 0"):
        GoodputFunction(R.P1, NOISY, 0)


def test_efficiency_without_and_with_odd_statistics():
    # no statistics: 1 everywhere; no noise at all: a sample more is worth nothing; only noise: all are worth the same
    assert GoodputFunction(R.P1, None, 32).efficiency([32, 320]).tolist() == [1, 1]
    assert GoodputFunction(R.P1, (1.0, 0.0), 32).efficiency([32, 320]).tolist() == [1, 0.1]
    assert GoodputFunction(R.P1, (0.0, 1.0), 32).efficiency([32, 320]).tolist() == [1, 1]
    # nothing known of either, or an estimate below 0, which counts as 0
    assert GoodputFunction(R.P1, (0.0, 0.0), 32).efficiency([32, 320]).tolist() == [1, 0.1]
    assert GoodputFunction(R.P1, (-3.0, 1.0), 32).efficiency(320) == 1.0


params = st.builds(
    lambda times, gamma: PerfParams(*times, gamma),
    st.lists(st.floats(1e-8, 1e3), min_size=6, max_size=6),
    st.floats(1, 10),
)


@given(params, st.integers(1, 64), st.integers(1, 64), st.floats(1, 4096))
def test_a_step_takes_between_the_longer_part_and_both(p, n, per_node, b):
    compute, net = float(accum_time(p, b)), float(network_time(p, n, n * per_node))
    step = float(optim_time(p, n, n * per_node, b))
    assert max(compute, net) * (1 - 1e-12) <= step <= (compute + net) * (1 + 1e-12)
    # gamma 1: nothing hides
    assert float(optim_time(p._replace(gamma=1.0), n, n * per_node, b)) == pytest.approx(compute + net, rel=1e-12)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(1, 10_000), st.lists(st.floats(1, 1e6), min_size=2, max_size=20))
def test_efficiency_lies_above_0_up_to_1_and_never_rises(sqr, var, first, scales):
    found = GoodputFunction(R.P1, (sqr, var), first).efficiency(first * np.sort(scales))
    assert (found > 0).all() and (found <= 1).all() and (np.diff(found) <= 1e-15).all()
    assert GoodputFunction(R.P1, (sqr, var), first).efficiency(first) == 1.0


@settings(max_examples=60)
@given(params, st.integers(1, 300), st.booleans(), st.booleans(), st.integers(1, 40), st.integers(0, 200), st.integers(0, 5000))
def test_the_best_is_within_limits_and_beats_every_candidate(p, first, accumulation, strict, low, spread, more):
    # GIVEN any parameters and limits WHEN optimized over many allocations at once THEN nothing raises
    fn, most, high = GoodputFunction(p, NOISY, first), first + more, low + spread
    n, r = np.array([1, 1, 1, 2, 4, 7]), np.array([1, 2, 5, 8, 4, 50])
    best = fn.optimize(n, r, most, (low, high), accumulation, strict=strict)
    for i in range(6):
        value, b, k = best.goodput[i], best.atomic_bsz[i], best.accum_steps[i]
        one = fn.optimize(int(n[i]), int(r[i]), most, (low, high), accumulation, strict=strict)
        assert (one.atomic_bsz, one.accum_steps) == (b, k) and type(one.atomic_bsz) is int
        if b == 0:
            assert np.isnan(value) and np.isnan(one.goodput) and k == 0
            continue
        # AND what is found is within the range, at least M0, worth what it says
        assert low <= b <= high and r[i] * b * (k + 1) >= first and (accumulation or k == 0)
        assert value == pytest.approx(R.goodput(p, *NOISY, first, n[i], r[i], b, k), rel=1e-9)
        if strict:
            assert r[i] * b * (k + 1) <= most
        # AND no total batch size that divides evenly over r, fits without accumulation and is at an end of the range beats it by much
        if not accumulation and r[i] > 1 and not strict and most % r[i] == 0 and low <= most // r[i] <= high:
            assert value >= R.goodput(p, *NOISY, first, n[i], r[i], most // r[i], 0) * (1 - 1e-12)


def test_the_best_batch_size_in_published_cells():
    # GIVEN limits of 8192 in all and 16 to 256 per replica
    n, r = [1, 1, 1, 1, 2, 4], [1, 2, 4, 8, 16, 32]
    # WHEN gradients are clean THEN more is never worth it, and accumulation changes nothing
    for accumulation in (False, True):
        best = GoodputFunction(R.P1, CLEAN, 128).optimize(n, r, 8192, (16, 256), accumulation)
        assert best.atomic_bsz.tolist() == [128, 64, 32, 16, 31, 30] and best.accum_steps.tolist() == [0] * 6
        assert best.goodput[4:] == pytest.approx([194.15428065740576, 138.96671379232225], rel=1e-9)
    # WHEN they are noisy THEN it is, and a lone replica accumulates
    best = GoodputFunction(R.P2, NOISY, 128).optimize(n, r, 8192, (16, 256), True)
    assert best.atomic_bsz.tolist() == [254, 251, 247, 239, 256, 256] and best.accum_steps.tolist() == [2, 2, 2, 1, 1, 0]
    assert best.goodput[5] == pytest.approx(18755.42460407487, rel=1e-9)
    # AND without accumulation a lone replica stays at the first batch size
    assert GoodputFunction(R.P2, NOISY, 128).optimize(1, 1, 8192, (16, 256)).atomic_bsz == 128


def test_rounding_up_may_pass_the_limit_unless_strict():
    # GIVEN 3 replicas and at most 100 samples WHEN optimized THEN 34 each is 102; strict keeps to fewer, of which there are none from 100 on
    fn = GoodputFunction(R.P1, None, 100)
    assert fn.optimize(1, 3, 100).atomic_bsz == 34
    assert fn.optimize(1, 3, 100, strict=True).atomic_bsz == 0
    assert fn.optimize(1, 3, 110, strict=True).atomic_bsz == 36


def test_speedup_is_over_one_replica_at_its_best():
    class Counting(GoodputFunction):
        asked = 0

        def evaluate(self, *where):
            Counting.asked += 1
            return super().evaluate(*where)

    speedup = SpeedupFunction(Counting(R.P1, NOISY, 128), 8192, (16, 256))
    # GIVEN published cells WHEN asked twice THEN they are those, and the second time costs nothing
    expected = [1.0, 2.1467577534035183, 4.283828305851284, 8.52878836244717, 14.865019218121276, 25.9027212478024]
    for _ in range(2):
        assert speedup([1, 1, 1, 1, 2, 4], [1, 2, 4, 8, 16, 32]).tolist() == pytest.approx(expected, rel=1e-9)
    asked = Counting.asked
    assert speedup(2, 16) == pytest.approx(expected[4], rel=1e-9) and type(speedup(2, 16)) is float
    assert speedup(0, 0) == 0.0 and speedup([0, 1], [0, 1]).tolist() == [0.0, 1.0] and Counting.asked == asked
    # AND where no batch size fits, there is none; nor anything to compare with where one replica alone has none
    assert SpeedupFunction(GoodputFunction(R.P1, NOISY, 128), 128, (1, 128), strict=True)(1, [3, 8]).tolist()[0] == 0.0
    assert np.isnan(SpeedupFunction(GoodputFunction(R.P1, NOISY, 128), 256, (1, 64))(1, 4))
