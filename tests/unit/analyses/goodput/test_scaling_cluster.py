"""The cluster page: jobs from folders of runs, sums that add up, terms that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.cost.goodput.model import PerfParams, accum_time, optim_time
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.model.answer import reducer_of
from tb_sol_plugin.model.report import Report, UnavailableReport, encode
from tests.support.scaling_runs import step_trace, write_run

FAST = PerfParams(0.1, 0.01, 0.02, 0.001, 0.01, 0.001, 2.0)
SLOW = PerfParams(0.1, 0.01, 2.0, 0.1, 1.0, 0.1, 1.0)


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("jobs")
    for name, true in (("fast", FAST), ("slow", SLOW)):
        for n, r, b in ((1, 1, 32), (1, 2, 32), (1, 4, 32), (1, 2, 16)):
            write_run(root / name / f"{r}-{b}", nodes=n, replicas=r, batch=b, accum_s=float(accum_time(true, b)),
                      optim_s=float(optim_time(true, n, r, b)), steps=2)  # fmt: skip
    write_run(root / "lone" / "1", nodes=1, replicas=1, batch=32, accum_s=0.4, optim_s=0.4, steps=2)
    return root


def asked(logdir: Path, **query: object) -> Report:
    with pytest.warns(UserWarning, match="runs here"):
        run = sol.open(str(logdir))
    report = run.analyze("scaling_cluster", **query)
    assert isinstance(report, Report), report
    return report


def test_the_job_that_scales_gets_more(logdir: Path) -> None:
    # GIVEN a job that scales, one that hardly does and one measured with one count WHEN both share two nodes of four devices
    # THEN the first gets more, nothing is given twice, sums add up, and the third is left out with the reason
    report = asked(logdir, nodes=2, per_node=4, copies=1, hours=0)
    jobs = report.table("jobs").set_index("job")
    assert set(jobs.index) == {"fast", "slow"} and jobs.loc["fast", "replicas"] > jobs.loc["slow", "replicas"]
    assert jobs["replicas"].sum() == report.facts["devices_used"] <= 8
    assert jobs["speedup"].sum() == pytest.approx(report.facts["sum_speedup"])
    assert report.table("left_out")["job"].tolist() == ["lone"] and "one count" in report.table("left_out")["why"].iloc[0]
    assert any("simulation" in n.text for n in report.notices)
    sizes = report.table("sizes")
    assert sizes["speedup"].is_monotonic_increasing and sizes.loc[sizes["nodes"] == 2, "speedup"].iloc[0] == pytest.approx(jobs["speedup"].sum())


def test_the_replay_runs_the_same_jobs_twice(logdir: Path) -> None:
    report = asked(logdir, nodes=2, per_node=4, copies=1, hours=2, arrivals=5, work=1, asked=2)
    replayed = report.table("replay").set_index("policy")
    assert replayed["arrived"].nunique() == 1 and (replayed["ended"] == replayed["arrived"]).all()
    ratio = replayed.loc["as many as asked for", "mean_ns"] / replayed.loc["replicas adapted", "mean_ns"]
    assert report.facts["mean_time_ratio"] == pytest.approx(ratio) and replayed.loc["as many as asked for", "restarts"] == 0
    encode(report)


def test_a_thousand_nodes_are_allocated_within_their_devices(logdir: Path) -> None:
    report = asked(logdir, nodes=1000, per_node=8, copies=32, hours=0)
    assert report.facts["jobs"] == 64 and report.facts["devices_used"] <= 8000  # type: ignore[operator]


@pytest.mark.parametrize(
    "query", [{"nodes": 0}, {"penalty": 100}, {"fairness": 0}, {"copies": 200}, {"hours": 1000}, {"arrivals": 9000}], ids=lambda q: next(iter(q))
)
def test_invalid_queries_are_refused_with_a_hint(logdir: Path, query: dict[str, int]) -> None:
    with pytest.raises(BadQuery) as error:
        asked(logdir, **query)
    assert error.value.field in query and error.value.hint


def test_no_job_says_what_to_record(tmp_path: Path) -> None:
    write_run(tmp_path / "run", nodes=1, replicas=1, batch=32, accum_s=0.4, optim_s=0.4, steps=2)
    found = sol.open(str(tmp_path), cache=False).analyze("scaling_cluster")
    assert isinstance(found, UnavailableReport) and "one count of replicas" in found.because and found.record_it_with


def test_runs_of_several_jobs_in_one_folder_are_several_jobs(tmp_path: Path) -> None:
    # GIVEN two jobs of two runs each in one folder, told apart by the width of their model alone, and a fifth run with a guessed batch
    for name, true, width in (("fast", FAST, 1024), ("slow", SLOW, 2048)):
        for r in (1, 4):
            write_run(tmp_path / f"{name}-{r}", nodes=1, replicas=r, batch=32, accum_s=float(accum_time(true, 32)),
                      optim_s=float(optim_time(true, 1, r, 32)), steps=2, width=width)  # fmt: skip
    for r in (1, 4):
        t = step_trace(accum_ns=300_000_000, optim_ns=310_000_000, replicas=r, batch=0, width=64)
        t.op("aten::embedding", 1_000, 1_000, shapes=[[100, 16], [16, 4]], types=["float", "long"])
        t.write(tmp_path / f"unsure-{r}" / "w.1700000000000000000.pt.trace.json.gz")
    # WHEN both share a cluster THEN each job is fitted by itself, and the one of guessed batch sizes is left out with the reason
    report = asked(tmp_path, nodes=1, per_node=8, copies=1, hours=0)
    jobs = report.table("jobs").set_index("job")
    assert set(jobs.index) == {"fast-1", "slow-1"} and jobs.loc["fast-1", "replicas"] > jobs.loc["slow-1", "replicas"]
    left = report.table("left_out").set_index("job")["why"]
    assert list(left.index) == ["unsure-1"] and "is guessed" in left["unsure-1"]


def test_both_pages_share_the_reduction_of_a_recording() -> None:
    # GIVEN two pages whose parts the same function makes THEN a worker is opened once for both; other pages have parts of their own
    assert reducer_of("scaling", {}).key == reducer_of("scaling_cluster", {}).key
    assert len({reducer_of(name, {}).key for name in ("scaling", "memcpy_ranks", "memory_ranks", "memory_compare")}) == 4
