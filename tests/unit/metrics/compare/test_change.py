"""How much a number changed, and whether it is more than noise: against closed forms, simulated noise and slow references."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.metrics.compare import change as C


def noisy(random: np.random.Generator, steps: int, runs: int, factor: float = 1.0) -> list[np.ndarray]:
    """Runs of steps with 1 % noise that hangs together (0.5), 5 % slow steps, and 0.4 % from run to run."""
    out = []
    for _ in range(runs):
        drift, values = random.normal(), np.empty(steps)
        for i in range(steps):
            drift = 0.5 * drift + np.sqrt(0.75) * random.normal()
            values[i] = factor * (1 + 0.01 * drift)
        slow = random.random(steps) < 0.05
        values[slow] *= 1 + random.random(int(slow.sum()))
        out.append(100e6 * values * (1 + 0.004 * random.normal()))
    return out


@pytest.mark.parametrize(
    ("runs_a", "runs_b", "steps", "true", "expected"),
    [(1, 1, 5, 0.0, 0.0), (1, 1, 5, 0.03, 0.03), (1, 1, 5, 0.06, 0.65), (1, 1, 30, 0.03, 0.03), (1, 1, 30, 0.06, 0.97), (5, 3, 10, 0.0, 0.0),
     (5, 3, 10, 0.04, 0.35), (5, 3, 10, 0.06, 0.99)],
)  # fmt: skip
def test_how_often_noise_is_called_a_regression(
    runs_a: int, runs_b: int, steps: int, true: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN simulated runs with a true change WHEN 60 pairs are judged at a limit of 3 %
    monkeypatch.setattr(C, "DRAWS", 300)
    random, worse = np.random.default_rng(7), 0
    for _ in range(60):
        found = C.change_of(noisy(random, steps, runs_a), noisy(random, steps, runs_b, 1 + true))
        worse += C.judged(found, 0.03) == "worse"
    # THEN the share called a regression is that of the prototype, within what 60 trials can show
    assert worse / 60 == pytest.approx(expected, abs=0.05 + 2 * np.sqrt(max(expected * (1 - expected), 0.01) / 60))


def test_the_change_is_that_of_the_medians_and_one_run_never_proves_less_than_the_floor() -> None:
    # GIVEN two runs without any noise inside
    found = C.change_of([np.full(20, 100.0)], [np.full(20, 101.0)])
    # THEN the interval is that of the noise from run to run: 1.96 * 0.5 % * sqrt(2)
    assert found.change == pytest.approx(0.01) and found.samples == (20, 20) and found.runs == (1, 1)
    assert found.detectable == pytest.approx(1.96 * 0.005 * np.sqrt(2))
    assert (C.judged(found, 0.03), C.judged(found, 0.0), C.seen(found)) == ("within", "inconclusive", "inconclusive")
    assert C.seen(C.change_of([np.full(20, 100.0)], [np.full(20, 105.0)])) == "worse"
    assert C.seen(C.change_of([np.full(20, 100.0)], [np.full(20, 95.0)])) == "better"
    assert C.seen(C.change_of([np.full(20, 100.0)], [np.full(20, 100.0)]), alike=0.02) == "same"


def test_runs_show_their_own_noise() -> None:
    # GIVEN three runs a side whose medians spread by 2 % THEN that spread stands in place of the floor
    runs = [np.full(10, v) for v in (98.0, 100.0, 102.0)]
    found = C.change_of(runs, runs)
    assert found.detectable is not None
    assert found.detectable > 1.96 * 0.02 * np.sqrt(2 / 3) * 0.99
    assert C.noise_between_runs(runs) == pytest.approx(0.02) and C.noise_between_runs(runs[:2]) == C.RUN_NOISE
    assert C.noise_between_runs([np.full(10, 100.0)] * 3) == C.LEAST_RUN_NOISE


def test_nothing_is_said_of_what_is_not_there() -> None:
    # GIVEN a side without steps, of zeros, of few steps
    assert C.change_of([], [np.ones(5)]).change is None
    assert C.change_of([np.zeros(5)], [np.ones(5)]).change is None and C.judged(C.change_of([np.zeros(5)], [np.ones(5)]), 0.1) == "unknown"
    assert C.change_of([np.zeros(5)], [np.zeros(5)]).change == 0.0
    assert C.seen(C.change_of([np.ones(4)], [np.full(4, 2.0)])) == "unknown"
    # AND a time never falls by more than all of it
    assert C.change_of([np.array([10.0, 10, 10, 1, 1])], [np.full(5, 1.0)]).low == -1.0


def test_counts_are_compared_as_they_are() -> None:
    found = C.exactly([np.array([100.0, 100.0, 300.0])], [np.array([101.0, 101.0])])
    assert (found.low, found.high) == (pytest.approx(0.01), pytest.approx(0.01))
    assert C.judged(found, 0.0) == "worse" and C.judged(found, 0.01 + 1e-9) == "within"
    assert C.exactly([np.zeros(3)], [np.zeros(3)]).change == 0.0 and C.exactly([np.zeros(3)], [np.ones(3)]).change is None


def test_how_many_more_steps_would_decide() -> None:
    # GIVEN 10 steps a side, half width 4 %, 2 % from the limit THEN four times as many are needed: 30 more
    found = C.Change(100.0, 105.0, 0.05, 0.01, 0.09, (10, 12), (1, 1))
    assert C.steps_to_decide(found, 0.03) == 30
    assert C.steps_to_decide(found, 0.05) is None
    assert C.steps_to_decide(C.Change(1.0, 1.0, 0.05, 0.04, 0.06, (10, 10), (1, 1)), 0.0) is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_discoveries_are_those_of_the_definition(p: list[float]) -> None:
    # the largest k with p(k) <= 0.05 k / n, and all up to it
    values = np.array(p)
    ranked = sorted(p)
    k = max((i + 1 for i, v in enumerate(ranked) if v <= 0.05 * (i + 1) / len(p)), default=0)
    assert int(C.discoveries(values).sum()) == k
    assert k == 0 or values[C.discoveries(values)].max() == ranked[k - 1]


@given(st.integers(1, 60))
def test_drawn_steps_follow_each_other_in_blocks(count: int) -> None:
    drawn = C.drawn_steps(count, 20, np.random.default_rng(1))
    block = max(1, round(count ** (1 / 3)))
    assert drawn.shape == (20, count) and drawn.min() >= 0 and drawn.max() < count
    for i in range(count):
        if i % block:
            assert (drawn[:, i] == drawn[:, i - 1] + 1).all()


def test_what_lowers_trust() -> None:
    assert C.autocorrelation(np.array([1.0, 2, 3, 4, 5, 6, 7, 8] * 4)) == pytest.approx(0.33, abs=0.1)
    assert C.autocorrelation(np.array([1.0, -1] * 10)) == pytest.approx(-0.95) and C.autocorrelation(np.ones(3)) is None
    assert C.has_trend(np.arange(20.0)) and not C.has_trend(np.random.default_rng(0).normal(size=50)) and not C.has_trend(np.arange(5.0))
    assert C.kept(np.array([100.0, 101, 99, 100, 180])).tolist() == [True, True, True, True, False]


def test_two_levels() -> None:
    # GIVEN numbers around 100 and around 110, in any order THEN these are the levels, and which is of which is known
    random = np.random.default_rng(1)
    values = np.where(np.arange(40) % 3 == 0, 110.0, 100.0) + random.normal(0, 0.5, 40)
    found = C.two_levels(values)
    assert found is not None and (round(found.low), round(found.high)) == (100, 110) and (found.is_high == (np.arange(40) % 3 == 0)).all()
    # AND not of one level, whatever its noise, of a few outliers, or of equal numbers
    assert sum(C.two_levels(random.normal(100, 1, n)) is not None for n in (6, 8, 12, 20, 40, 100) for _ in range(50)) <= 30
    assert C.two_levels(np.array([100.0] * 38 + [200.0] * 2)) is None and C.two_levels(np.full(20, 7.0)) is None


def test_runs_in_turns_on_a_machine_that_drifts(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a machine that gets slower by 4 % from pair to pair, and 20 times runs A, B, B, A, A, B of 12 steps THEN 6 % are proven within pairs,
    # which the drift hides otherwise, and no change is never called one above 3 %
    monkeypatch.setattr(C, "DRAWS", 300)
    random = np.random.default_rng(11)
    order = "ABBAAB"
    proven = {"pairs": 0, "all": 0, "none": 0}
    for _ in range(20):
        for true in (0.06, 0.0):
            sides: dict[str, list[np.ndarray]] = {"A": [], "B": []}
            for place, side in enumerate(order):
                level = 1e6 * (1 + 0.04 * (place // 2)) * (1 + (true if side == "B" else 0)) * (1 + 0.002 * random.normal())
                sides[side].append(level * (1 + 0.01 * random.normal(size=12)))
            pairs = C.change_of_pairs(sides["A"], sides["B"])
            if true:
                proven["pairs"] += C.judged(pairs, 0.03) == "worse"
                proven["all"] += C.judged(C.change_of(sides["A"], sides["B"]), 0.03) == "worse"
            else:
                proven["none"] += C.judged(pairs, 0.03) == "worse"
    assert proven["pairs"] >= 17 and proven["all"] <= 2 and proven["none"] == 0


def test_intervals_hold_the_true_change(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN runs of ten steps, 4 % slower, five a side WHEN 100 intervals of 95 % are made THEN 90 or more hold the 4 %
    monkeypatch.setattr(C, "DRAWS", 200)
    random, inside = np.random.default_rng(8), 0
    for _ in range(100):
        found = C.change_of(noisy(random, 10, 5), noisy(random, 10, 5, 1.04))
        assert found.low is not None and found.high is not None
        inside += found.low <= 0.04 <= found.high
    assert inside >= 90


def test_how_often_unchanged_runs_would_fail() -> None:
    # GIVEN runs that differ by 1 % WHEN 100,000 unchanged pairs are judged as a gate does THEN as many fail as is told, at several limits
    apart = 0.01 * np.sqrt(2) * np.random.default_rng(4).normal(size=100_000)
    for limit in (0.0, 0.005, 0.01):
        assert C.false_alarms(0.01, limit, (1, 1)) == pytest.approx((apart - 1.96 * 0.01 * np.sqrt(2) > limit).mean(), abs=0.002)
    assert C.false_alarms(0.01, 0.03, (3, 3)) < 1e-6 and C.false_alarms(0.0, 0.03, (1, 1)) == 0
