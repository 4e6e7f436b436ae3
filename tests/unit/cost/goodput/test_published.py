"""Fits, evaluations and searches against a file of reference values, made with another implementation of the same model."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin.cost.goodput import GoodputFunction, GradParams, PerfParams, SpeedupFunction, fit, objective
from tb_sol_plugin.cost.goodput.fit import EVALUATIONS
from tb_sol_plugin.cost.goodput.model import accum_time, optim_time

FILE = Path(os.environ.get("TB_SOL_GOODPUT_REFERENCE", Path(__file__).resolve().parents[5] / "shared" / "specs" / "goodput_oracle.json"))
FIELDS = ("num_nodes", "num_replicas", "atomic_bsz", "accum_step_time", "optim_step_time")

pytestmark = [pytest.mark.real, pytest.mark.skipif(not FILE.is_file(), reason=f"no reference values at {FILE}; set TB_SOL_GOODPUT_REFERENCE")]


@pytest.fixture(scope="module")
def values():
    return json.loads(FILE.read_text())


def test_every_fit_is_as_good_as_the_reference(values):
    assert len(values["fit_cases"]) == 10
    for case in values["fit_cases"]:
        found = fit(*(case[name] for name in FIELDS), evaluations=EVALUATIONS // 4)
        # our objective is that of the file, at the file's parameters and at ours
        at_reference = objective(PerfParams(*case["fitted_params"]), found.points)
        assert at_reference == pytest.approx(case["objective_at_fit"], rel=1e-9, abs=1e-12), case["name"]
        assert found.objective == objective(found.params, found.points) <= 1.001 * case["objective_at_fit"], case["name"]
        # and no worse than a patient search
        if "reference_multistart" in case:
            assert found.objective <= 1.001 * case["reference_multistart"]["objective"], case["name"]
        if case["name"] in ("full_P1", "full_P2", "full_P3"):
            n, r, b, a, o = (np.array(case[name], float) for name in FIELDS)
            assert np.abs(accum_time(found.params, b) / a - 1).max() < 0.01
            assert np.abs(optim_time(found.params, n, r, b) / o - 1).max() < 0.01
            assert tuple(found.params) == pytest.approx(case["true_params"], rel=1e-3)


def test_every_evaluated_point(values):
    fn = GoodputFunction(values["fit_cases"][0]["true_params"], GradParams(sqr=1.0, var=2000.0), 128)
    for cell in values["evaluate_P1_g2_init128"]:
        where = (cell["num_nodes"], cell["num_replicas"], cell["atomic_bsz"], cell["accum_steps"])
        assert fn.throughput(*where) == pytest.approx(cell["throughput"], rel=1e-9)
        assert fn.efficiency(where[1] * where[2] * (where[3] + 1)) == pytest.approx(cell["efficiency"], rel=1e-9)
        assert fn(*where) == pytest.approx(cell["goodput"], rel=1e-9)


def test_every_best_batch_size_and_speedup(values):
    cells = 0
    for case in values["optimize_cases"]:
        fn = GoodputFunction(case["perf"], GradParams(case["grad_sqr"], case["grad_var"]), case["init_batch_size"])
        limits = (case["max_batch_size"], tuple(case["atomic_bsz_range"]), case["accumulation"])
        best = fn.optimize(case["num_nodes"], case["num_replicas"], *limits)
        assert best.atomic_bsz.tolist() == case["atomic_bsz"] and best.accum_steps.tolist() == case["accum_steps"]
        assert best.goodput == pytest.approx(case["goodput"], rel=1e-9)
        assert SpeedupFunction(fn, *limits)(case["num_nodes"], case["num_replicas"]) == pytest.approx(case["speedup"], rel=1e-9)
        cells += len(best.goodput)
    assert cells == 48
