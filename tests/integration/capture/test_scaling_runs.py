"""A job trained by one replica and by two, recorded by the library: the page of scaling has its points, its fit and its hints at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.model.report import Report
from tests.integration.capture.scaling_replicas import STEPS
from tests.support.forked import python
from tests.support.sol_workers import finished

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("scaling")
    module = "tests.integration.capture.scaling_replicas"
    for ranks in (1, 2):
        job = [python("-m", module, rank, ranks, root / f"meeting{ranks}", root / "logs" / f"{ranks}_replicas") for rank in range(ranks)]
        finished(job, 300)
    return root / "logs"


def test_two_jobs_give_points_a_fit_and_hints_without_a_manual_step(logdir: Path) -> None:
    # GIVEN one replica and two, each with batches of 4 and 8, four steps of each WHEN the logdir is asked THEN four recorded points of four
    # steps are fitted, and what one node cannot tell has no number
    with pytest.warns(UserWarning, match="runs here"):
        report = sol.open(str(logdir), cache=False).analyze("scaling")
    assert isinstance(report, Report)
    table = report.table("points")
    used = table[table["why"].isna()]
    keys = [tuple(k) for k in used[["run", "num_nodes", "num_replicas", "atomic_bsz"]].to_numpy().tolist()]
    assert sorted(keys) == [("1_replicas", 1, 1, 4), ("1_replicas", 1, 1, 8), ("2_replicas", 1, 2, 4), ("2_replicas", 1, 2, 8)]
    assert used["source"].eq("recorded").all() and used["steps"].eq(STEPS).all() and used["guessed"].isna().all()
    assert (used["sync_ns"] >= 0).all() and (used["sync_ns"] < used["optim_measured_ns"]).all() and (used["accum_measured_ns"] > 0).all()
    assert report.facts["points"] == 4 and report.facts["alpha_n"] is None and report.facts["beta_r"] is None
    assert isinstance(report.facts["alpha_c"], float) and isinstance(report.facts["objective"], float)
    terms = report.table("terms").set_index("name")
    assert terms.loc["Initial batch", "origin"] == "recorded" and terms.loc["Gradient statistics", "origin"] == "recorded"
    hints = json.loads(report.file("sched_hints").text)
    assert (hints["initBatchSize"], hints["maxBatchSize"], hints["localBszBounds"], hints["maxProfiledReplicas"]) == (4, 64, [1, 32], 2)
    assert hints["gradParams"] is not None and len(hints["perfParams"]) == 7
    # AND what the recordings say of their own iterations stands beside it, not in the fit
    other = table[table["why"].notna()]
    assert set(other["source"]) <= {"capture"} and all("recorded" in why for why in other["why"])
