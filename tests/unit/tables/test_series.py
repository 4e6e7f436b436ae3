"""Slopes and changes of level: exact lines and steps, outliers that must not count, noise in which nothing may be found."""

from __future__ import annotations

import numpy as np
import pytest

from tb_sol_plugin.tables import series


def ramp(size: int) -> np.ndarray:
    return np.arange(size, dtype=np.float64)


def test_the_slope_of_a_line_is_that_of_the_line() -> None:
    # GIVEN y = 1000 + 2x WHEN its slope is taken THEN it and its interval are 2, and every later stretch is higher
    x = ramp(50)
    found = series.slope(x, 1000 + 2 * x)
    assert found is not None
    assert (found.value, found.low, found.high, found.rising) == (2.0, 2.0, 2.0, 1.0)
    assert found.sure


def test_spikes_do_not_tilt_a_slope() -> None:
    # GIVEN a flat series of 5 with every ninth point at 500 WHEN its slope is taken THEN it is 0: the middle of all slopes is one between equals
    y = np.full(90, 5.0)
    y[::9] = 500.0
    found = series.slope(ramp(90), y)
    assert found is not None and found.value == 0.0 and not found.sure


def test_the_slope_is_the_median_over_all_pairs() -> None:
    # GIVEN ten points WHEN their slope is taken THEN it is the median of the 45 slopes between them, worked out one by one
    y = np.array([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0])
    slow = np.median([(y[j] - y[i]) / (j - i) for i in range(10) for j in range(i + 1, 10)])
    found = series.slope(ramp(10), y)
    assert found is not None and found.value == pytest.approx(float(slow))
    rising = sum(y[j] > y[i] for i in range(10) for j in range(i + 1, 10))
    moved = sum(y[j] != y[i] for i in range(10) for j in range(i + 1, 10))
    assert found.rising == pytest.approx(rising / moved)


def test_few_points_have_no_slope_and_no_change() -> None:
    assert series.slope(ramp(9), ramp(9)) is None
    assert series.changes(ramp(9)) == []


@pytest.mark.parametrize("at", [20, 37, 80])
def test_a_step_is_found_where_it_is(at: int) -> None:
    # GIVEN 100 points at 10, from `at` on at 11 WHEN changes are looked for THEN there is one, at that point, by a tenth
    y = np.where(ramp(100) < at, 10.0, 11.0)
    (found,) = series.changes(y)
    assert (found.at, found.before, found.after, found.since, found.until) == (at, 10.0, 11.0, 0, 100)
    assert found.share == pytest.approx(0.1)


def test_a_step_in_a_long_noisy_series_is_found_to_the_point() -> None:
    # GIVEN 40 000 points with 1 % of noise and a rise by 8 % at 12 345 WHEN changes are looked for THEN it is found within a few points
    random = np.random.default_rng(3)
    y = np.where(ramp(40_000) < 12_345, 100.0, 108.0) * (1 + 0.01 * random.standard_normal(40_000))
    (found,) = series.changes(y)
    assert abs(found.at - 12_345) <= 2
    assert found.share == pytest.approx(0.08, abs=0.002)


def test_a_rise_that_goes_away_has_an_end() -> None:
    # GIVEN a level that is a fifth higher from 120 to 239 of 400 WHEN changes are looked for THEN both ends are told
    x = ramp(400)
    y = np.where((x >= 120) & (x < 240), 12.0, 10.0)
    up, down = series.changes(y)
    assert (up.at, up.until, down.at, down.since) == (120, 240, 240, 120)
    assert up.share == pytest.approx(0.2) and down.share == pytest.approx(10 / 12 - 1)


def test_noise_spikes_and_tiny_steps_are_no_change() -> None:
    # GIVEN noise alone, spikes alone, and a step of 2 % WHEN changes are looked for THEN there is none
    for seed in range(20):
        random = np.random.default_rng(seed)
        assert series.changes(100 * (1 + 0.02 * random.standard_normal(300))) == []
    spiky = np.full(300, 10.0)
    spiky[::13] = 90.0
    assert series.changes(spiky) == []
    assert series.changes(np.where(ramp(300) < 150, 100.0, 102.0)) == []


def test_a_line_is_no_step() -> None:
    # GIVEN a line and a step WHEN both are compared with what was found in them THEN the line fits the line, and the levels the step
    x = ramp(200)
    line, step = 100 + 0.2 * x, np.where(x < 100, 100.0, 140.0)
    for y, straight in ((line, True), (step, False)):
        found, cuts = series.slope(x, y), series.changes(y)
        assert found is not None and cuts
        assert series.drifts(x, y, found, cuts) is straight
