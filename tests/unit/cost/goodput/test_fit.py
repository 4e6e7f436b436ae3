"""Fits of points made from known parameters, with and without noise, of too few points, and of points that cannot be."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.cost.goodput import PerfParams, fit, fit_perf_params, objective
from tb_sol_plugin.cost.goodput.fit import EVALUATIONS, FIRST, Budget, LogObjective, Search, identify, plain_objective, single
from tb_sol_plugin.cost.goodput.model import accum_time, optim_time
from tests.unit.cost.goodput import reference as R


def worst(params, rows):
    """The largest relative error of a predicted time."""
    n, r, b, a, o = (np.array(c, float) for c in R.columns(rows))
    return max(np.abs(accum_time(params, b) / a - 1).max(), np.abs(optim_time(params, n, r, b) / o - 1).max())


@pytest.mark.parametrize(("true", "at_true"), [(R.P1, 0.00069082), (R.P2, 0.00016025), (R.P3, 0.00902623)])
def test_clean_points_give_their_parameters_back(true, at_true):
    # GIVEN 36 configurations without noise WHEN fitted THEN the parameters are those they were made of, with a fifth of the budget
    rows = R.rows(true)
    found = fit(*R.columns(rows), evaluations=EVALUATIONS // 5)
    assert found.objective <= at_true * 1.001 and worst(found.params, rows) < 1e-4
    assert tuple(found.params) == pytest.approx(true, rel=1e-3)
    assert found.rules == found.warnings == found.dropped == () and all(found.identified.values())
    assert fit_perf_params(*R.columns(rows)) == found.params


@pytest.mark.parametrize(
    ("grid", "reference", "unknown"),
    [
        ([(1, r, b) for r in (1, 2, 4, 8) for b in (16, 32, 64)], 0.00066, {"alpha_n", "beta_n"}),
        ([(1, 1, 32), (1, 2, 32), (1, 4, 32), (2, 8, 32)], 0.00004, set(PerfParams._fields)),
        ([(1, r, b) for r in (1, 2) for b in (16, 32)], 0.00064, {"alpha_n", "beta_n", "beta_r"}),
        ([(1, 1, 32)], 0.02000005, set(PerfParams._fields)),
    ],
    ids=["one node", "one batch size", "two replicas", "one point"],
)
def test_too_few_points_fit_as_well_as_they_can_and_say_what_is_missing(grid, reference, unknown):
    # GIVEN points that leave parameters open WHEN fitted THEN times are met, the objective is the published one (as rounded there)
    rows = R.rows(R.P1, grid)
    found = fit(*R.columns(rows))
    assert worst(found.params, rows) < 1e-4 and found.objective <= reference + 5e-6
    assert found.objective == pytest.approx(R.objective(found.params, rows), rel=1e-6, abs=1e-7)
    # AND what they do not determine is not shown as a number
    assert {name for name, value in found.known.items() if value is None} == unknown and found.rules


def test_rules_as_text_and_what_a_fit_takes_instead():
    only = fit(*R.columns(R.rows(R.P1, [(1, 1, 32)])))
    assert only.params.alpha_c == pytest.approx(R.accum(R.P1, 32) / 2)
    assert "beta_n not observed: needs > 2 replicas on > 1 node" in only.rules
    assert "gamma not observed: needs > 1 replica" in only.rules
    # GIVEN one node only WHEN fitted THEN the network between nodes is taken to be a tenth slower than that within
    one = fit(*R.columns(R.rows(R.P1, [(1, r, b) for r in (1, 2, 4, 8) for b in (16, 32, 64)]))).params
    assert one.alpha_n == pytest.approx(1.1 * one.alpha_r) and one.beta_n == pytest.approx(1.1 * one.beta_r)
    assert one.alpha_r == pytest.approx(0.07, rel=1e-3)
    # GIVEN two nodes of one replica each and no more WHEN fitted THEN alpha_n is known, and neither beta
    two = fit(*R.columns(R.rows(R.P1, [(1, 1, 16), (1, 1, 64), (2, 2, 16), (2, 2, 64)])))
    assert two.known["alpha_n"] == pytest.approx(0.4, rel=1e-2)
    assert [two.known[name] for name in ("beta_n", "alpha_r", "beta_r")] == [None] * 3
    # GIVEN several nodes always with 8 replicas WHEN fitted THEN alpha_n and beta_n are not told apart, those of one node are
    eight = fit(*R.columns(R.rows(R.P1, [(1, 2, 16), (1, 4, 64), (1, 4, 16), (2, 8, 16), (2, 8, 64)])))
    assert eight.known["alpha_n"] is None and eight.known["beta_n"] is None and eight.known["alpha_r"] is not None


@pytest.mark.parametrize("sigma", [1e-3, 1e-2])
def test_a_thousand_noisy_points_fit_no_worse_than_the_truth(sigma):
    for seed in (1,) if sigma < 0.005 else (2,):
        true = R.random_params(seed)
        rows = R.rows(true, R.random_grid(1000, seed), sigma, seed)
        found = fit(*R.columns(rows))
        assert R.objective(found.params, rows) <= 1.1 * R.objective(true, rows) and not found.dropped
        assert found.objective == pytest.approx(R.objective(found.params, rows), rel=1e-9)


def test_few_noisy_points_of_many_jobs_fit_no_worse_than_the_truth():
    for seed in range(3):
        true = R.random_params(seed)
        rows = R.rows(true, sigma=0.02, seed=seed)
        found = fit(*R.columns(rows))
        assert R.objective(found.params, rows) <= R.objective(true, rows) * 1.001


def test_the_order_of_points_does_not_matter():
    rows = R.rows(R.P3, sigma=0.02)
    found = fit(*R.columns(rows))
    for seed in (1,):
        mixed = random.Random(seed).sample(rows, len(rows))
        assert fit(*R.columns(mixed)).params == found.params


def test_the_slope_is_that_of_differences():
    # GIVEN noisy points WHEN the objective is differenced at random places THEN its gradient is that, rounded off or not
    rows = R.rows(R.P1, sigma=0.02)
    used = fit(*R.columns(rows)).points
    value = LogObjective(used)
    rng = np.random.default_rng(1)
    for smooth in (0.0, 1e-2):
        for _ in range(5):
            z = np.append(rng.uniform(-6, 0, 6), rng.uniform(1.2, 6))
            assert value(z, 0.0)[0] == pytest.approx(objective(PerfParams(*np.exp(z[:6]), z[6]), used), rel=1e-12)
            for i in range(7):
                step = np.zeros(7)
                step[i] = 1e-6
                assert value(z, smooth)[1][i] == pytest.approx(
                    (value(z + step, smooth)[0] - value(z - step, smooth)[0]) / 2e-6, rel=1e-4, abs=1e-8
                )


def test_points_that_cannot_be_are_left_out_with_a_reason():
    good = R.rows(R.P1)
    nan = float("nan")
    bad = [
        (1, 2, 32, -0.1, 0.3), (1, 2, 32, 0.2, 0.0), (2, 1, 32, 0.2, 0.3), (1, 2, nan, 0.2, 0.3), (1, 2, 0, 0.2, 0.3),
        (1.5, 2, 32, 0.2, 0.3), (1, nan, 32, 0.2, 0.3), (1, 2, 32, nan, 0.3), (1, 2, 32, 0.2, float("inf")),
    ]  # fmt: skip
    found = fit(*R.columns(bad + good))
    assert found.params == fit(*R.columns(good)).params and len(found.points) == 36
    assert [d.place for d in found.dropped] == list(range(9))
    assert [d.reason for d in found.dropped] == [
        "time of a step without synchronization not above 0: the wait for synchronization is longer than the step",
        "time of a step not above 0", "needs 1 <= nodes <= replicas", "batch size missing", "batch size not above 0",
        "nodes and replicas must be whole numbers", "number of nodes or replicas missing", "step time missing", "step time missing",
    ]  # fmt: skip
    # AND a value missing as None is missing; none left is an error that says why
    with pytest.raises(ValueError, match="no usable point among 1: batch size missing"):
        fit([1], [1], [None], [0.1], [0.1])
    with pytest.raises(ValueError, match="no usable point among 0"):
        fit([], [], [], [], [])


def test_contradictions_are_said():
    # GIVEN synchronized steps that are shorter than the others WHEN fitted THEN it fits, and says so
    rows = [(n, r, b, a, a * 0.8) for n, r, b, a, _ in R.rows(R.P1)]
    assert "36 of 36 points took less time with synchronization than without, by more than 5 %" in fit(*R.columns(rows)).warnings
    # GIVEN a network as fast as nothing WHEN fitted THEN it is said that the points show none of it
    rows = [(n, r, b, a, a) for n, r, b, a, _ in R.rows(R.P1)]
    assert fit(*R.columns(rows)).warnings == tuple(
        f"{name} is next to nothing: the points show none of it" for name in ("alpha_n", "beta_n", "alpha_r", "beta_r")
    )


def test_what_ends_a_fit_leaves_the_best_so_far_and_a_warning():
    # GIVEN 500 noisy points WHEN 200 evaluations are allowed THEN the fit is worse than a whole one, better than its start, and says so
    rows = R.rows(R.P1, R.random_grid(500, 1), 0.05)
    found = fit(*R.columns(rows), evaluations=200)
    assert "the fit was ended after 200 evaluations: a better one may exist" in found.warnings
    assert fit(*R.columns(rows)).objective <= found.objective < objective(FIRST, found.points)
    # AND the wall time ends it likewise
    found = fit(*R.columns(rows), limit_s=0.0)
    assert any("ended after 0 s" in w for w in found.warnings) and np.isfinite(found.objective)


times = st.floats(1e-9, 1e9)


@settings(max_examples=12)
@given(st.lists(st.tuples(st.integers(1, 64), st.integers(1, 64), st.floats(1, 1e6), times, times), min_size=1, max_size=8))
def test_no_valid_points_make_a_fit_fail(points):
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        found = fit(*R.columns([(n, n * m, b, a, o) for n, m, b, a, o in points]), evaluations=300)
    assert np.isfinite(found.objective) and np.isfinite(found.params).all()
    assert min(found.params[:6]) >= 1e-8 and 1 <= found.params.gamma <= 10 and len(found.points) == len(points)


@given(
    st.sampled_from([(1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (8, 64)]), st.integers(1, 4096), st.floats(1e-3, 10.0), st.floats(1.002, 50.0)
)
def test_a_single_configuration_is_met_exactly_and_no_search_does_better(job, size, accum, times):
    # GIVEN one configuration whose step takes longer with synchronization (one replica: as long) WHEN fitted THEN both times are met
    optim = accum * times if job[1] > 1 else accum
    made = fit(*job, size, accum, optim)
    assert accum_time(made.params, size) == pytest.approx(accum, rel=1e-9)
    assert optim_time(made.params, *job, size) == pytest.approx(optim, rel=1e-6, abs=2e-8)  # a network is held at 1e-8 s or more
    # AND a search by slope from the first start, which the closed form replaces, ends no lower
    used = made.points
    value, _ = Search(used, identify(used), Budget(20_000, 60.0)).run(FIRST)
    assert made.objective <= value * 1.001 + 2e-5  # the logarithm of a time 0.002 % off
    assert plain_objective(used) is None


def test_a_single_configuration_needs_no_scipy():
    # The import alone is a quarter of a second, and most recordings are of one configuration.
    code = "import sys; from tb_sol_plugin.cost.goodput.fit import fit; fit(1, 4, 32, 0.17, 0.2); sys.exit('scipy.optimize' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_single_configuration_that_hides_its_network_is_searched():
    # GIVEN a step that takes no longer with synchronization THEN the optimum weighs alpha against its slope: no closed form
    assert single(fit(1, 4, 32, 0.17, 0.17).points) is None
    assert single(fit([1, 1], [1, 2], [32, 32], [0.1, 0.1], [0.1, 0.12]).points) is None
