"""Leaving configurations out, and drawing residuals anew."""

from __future__ import annotations

import time
from itertools import count

import numpy as np
import pytest

from tb_sol_plugin.cost.goodput import GoodputFunction, band, bootstrap, fit, leave_one_out
from tb_sol_plugin.cost.goodput.fit import plain_objective
from tests.unit.cost.goodput import reference as R


def test_clean_points_are_predicted_by_the_others():
    found = leave_one_out(fit(*R.columns(R.rows(R.P1))))
    assert [(c.num_nodes, c.num_replicas, c.atomic_bsz) for c in found] == sorted(R.GRID)
    assert all(not c.because and abs(c.optim_error) < 1e-4 and abs(c.accum_error) < 1e-6 for c in found)


def test_a_configuration_that_is_off_is_the_one_with_the_error():
    # GIVEN one configuration whose synchronized step takes 30 % longer than the model's WHEN left out THEN it is predicted 1/1.3 as long
    rows = R.rows(R.P1, R.GRID[:16])
    odd = 10
    rows[odd] = (*rows[odd][:4], rows[odd][4] * 1.3)
    found = {(c.num_nodes, c.num_replicas, c.atomic_bsz): c for c in leave_one_out(fit(*R.columns(rows)))}
    assert found[R.GRID[odd]].optim_error == pytest.approx(1 / 1.3 - 1, abs=0.01)
    assert all(abs(c.optim_error) < 0.1 for key, c in found.items() if key != R.GRID[odd])


def test_what_only_one_configuration_shows_is_not_predicted_without_it():
    grid = [(1, 1, 16), (1, 1, 64), (1, 2, 16), (1, 2, 64), (1, 4, 16), (2, 2, 16), (2, 2, 32)]
    found = {(c.num_nodes, c.num_replicas): c for c in leave_one_out(fit(*R.columns(R.rows(R.P1, grid))))}
    assert found[1, 4].because == "without it beta_r would not be known" and np.isnan(found[1, 4].optim_error)
    assert not found[1, 1].because and abs(found[1, 1].optim_error) < 1e-3
    (only,) = leave_one_out(fit([1, 1], [1, 1], [8, 8], [0.1, 0.1], [0.1, 0.1]))
    assert only.because == "the only configuration"


def test_bands_hold_the_truth_and_are_as_wide_as_the_noise_makes_them():
    # GIVEN noise of 2 % WHEN drawn 200 times THEN a 99 % band of throughput holds the true one, is no wider than 8 %
    true = GoodputFunction(R.P1, None, 16)
    n, r, b = [1, 1, 2, 4], [1, 8, 8, 32], [64, 64, 64, 64]
    fitted = fit(*R.columns(R.rows(R.P1, sigma=0.02)))
    drawn = bootstrap(fitted)
    assert len(drawn.samples) == 200 and not drawn.ended and drawn.widened == pytest.approx((72 / 65) ** 0.5)
    low, high = band(drawn.samples, lambda p: GoodputFunction(p, None, 16).throughput(n, r, b), level=0.99)
    assert (low <= true.throughput(n, r, b)).all() and (true.throughput(n, r, b) <= high).all()
    assert ((high - low) / low > 0.004).all() and ((high - low) / low < 0.08).all()
    # AND half the noise makes half the band, a narrower level a narrower band
    less = bootstrap(fit(*R.columns(R.rows(R.P1, sigma=0.01))), resamples=60)
    low1, high1 = band(less.samples, lambda p: GoodputFunction(p, None, 16).throughput(n, r, b), level=0.9)
    low2, high2 = band(drawn.samples[:60], lambda p: GoodputFunction(p, None, 16).throughput(n, r, b), level=0.9)
    assert ((high1 - low1) / (high2 - low2)).mean() == pytest.approx(0.5, abs=0.15)
    # AND the same seed draws the same
    assert bootstrap(fitted, resamples=5).samples == drawn.samples[:5] != bootstrap(fitted, resamples=5, seed=7).samples


def test_clean_points_have_bands_without_width_and_too_few_have_none():
    clean = bootstrap(fit(*R.columns(R.rows(R.P1))))
    assert len(clean.samples) == 200 and len(set(clean.samples)) == 1
    one = bootstrap(fit([1], [1], [8], [0.1], [0.1]))
    assert one.samples == () and one.because == "2 times leave nothing to compare with 2 free parameters"
    with pytest.raises(ValueError, match="no samples"):
        band(one.samples, lambda p: p.gamma)


def test_a_budget_of_evaluations_ends_both_at_the_same_place_every_time():
    # GIVEN noisy points WHEN few evaluations are allowed THEN what was reached by then is the beginning of what more of them reach
    fitted = fit(*R.columns(R.rows(R.P1, sigma=0.02)))
    whole, drawn = bootstrap(fitted, resamples=30), bootstrap(fitted, resamples=30, evaluations=700)
    assert drawn.ended == "700 evaluations" and 0 < len(drawn.samples) < 30 and drawn.samples == whole.samples[: len(drawn.samples)]
    assert bootstrap(fitted, resamples=30, evaluations=700) == drawn
    left, again = leave_one_out(fitted, evaluations=400), leave_one_out(fitted, evaluations=400)
    assert [c.because for c in left] == [c.because for c in again] == sorted(c.because for c in left)
    assert {c.because for c in left} == {"", "not reached within 400 evaluations"}
    assert plain_objective(fitted.points) is not None and plain_objective(fitted.points, evaluations=20) is None
    # AND with none at all there is nothing, and the reason
    none = bootstrap(fitted, evaluations=0)
    assert none.samples == () and none.because == "none was reached within 0 evaluations"


def test_the_wall_time_is_a_last_resort_that_says_so():
    fitted = fit(*R.columns(R.rows(R.P1, sigma=0.02)))
    drawn = bootstrap(fitted, limit_s=0.0)
    assert drawn.ended == "0 s" and drawn.samples == () and drawn.because == "none was reached within 0 s"
    assert {c.because for c in leave_one_out(fitted, limit_s=0.0)} == {"not reached within 0 s"}


@pytest.mark.parametrize("rows", [R.rows(R.P1, sigma=0.02), R.rows(R.P2, R.GRID[:9], 0.05)], ids=["many points", "few points"])
def test_a_slow_machine_gives_the_same_answer(rows, monkeypatch):
    # GIVEN points WHEN fitted twice, and once under a clock on which every look takes a millisecond (a machine hundreds of times slower)
    def answers():
        made = fit(*R.columns(rows))
        left = [(c.num_nodes, c.num_replicas, c.atomic_bsz, str(c.accum_error), str(c.optim_error), c.because) for c in leave_one_out(made)]
        return made.params, made.objective, made.warnings, bootstrap(made, resamples=20), left, plain_objective(made.points)

    first = answers()
    assert answers() == first
    monkeypatch.setattr(time, "perf_counter", count(0, 1e-3).__next__)
    # THEN all answers are the same, to the last bit
    assert answers() == first


def test_a_plain_search_that_leaves_its_bounds_by_rounding_gives_none() -> None:
    # GIVEN two points of four replicas, on one node and on two, from which the search steps below a bound by 1e-20 THEN there is no number
    made = fit([1, 2], [4, 4], [32, 32], [0.3, 0.3], [0.32, 0.32])
    assert plain_objective(made.points) is None
