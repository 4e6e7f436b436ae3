"""The scaling page: from a file of points, from runs, from both; what cannot be known; what a server refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.cli import main
from tb_sol_plugin.cost.goodput.fit import Budget
from tb_sol_plugin.cost.goodput.model import PerfParams, accum_time, optim_time
from tb_sol_plugin.errors import BadInput, BadQuery
from tb_sol_plugin.metrics.goodput import fit as goodput
from tb_sol_plugin.model.answer import answer_query
from tb_sol_plugin.model.report import FactsSection, Report, TableSection, UnavailableReport, encode
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.reductions import MadeReduction, WantedReduction
from tests.support.scaling_runs import step_trace, write_run

TRUE = PerfParams(0.12, 0.0056, 0.4, 0.025, 0.07, 0.0024, 1.8)
PLACES = ((1, 1), (1, 2), (1, 4), (2, 4), (2, 8), (4, 16))


def lists(places: tuple[tuple[int, int], ...] = PLACES, batches: tuple[int, ...] = (32, 64, 128)) -> dict[str, list[float]]:
    rows = [(n, r, b) for n, r in places for b in batches]
    return {
        "num_nodes": [n for n, _, _ in rows], "num_replicas": [r for _, r, _ in rows], "atomic_bsz": [b for _, _, b in rows],
        "accum_step_time": [float(accum_time(TRUE, b)) for _, _, b in rows],
        "optim_step_time": [float(optim_time(TRUE, n, r, b)) for n, r, b in rows],
    }  # fmt: skip


def points(folder: Path, **more: object) -> str:
    path = folder / "points.json"
    path.write_text(json.dumps(lists(**{k: v for k, v in more.items() if k in ("places", "batches")})  # type: ignore[arg-type]
                               | {k: v for k, v in more.items() if k not in ("places", "batches")}))  # fmt: skip
    return str(path)


def asked(path: str, **query: object) -> Report:
    found = answer_query("scaling", {"points": path} | {k: str(v) for k, v in query.items()})
    assert isinstance(found, Report)
    return found


def test_clean_points_give_back_their_model(tmp_path: Path) -> None:
    # GIVEN points made of known parameters WHEN asked THEN the parameters come back, and the plain search does no better
    report = asked(points(tmp_path))
    for name, value in TRUE._asdict().items():
        assert report.facts[name] == pytest.approx(value, rel=1e-3)
    assert report.facts["objective"] <= report.facts["reference_objective"] * 1.001  # type: ignore[operator]
    table = report.table("points")
    assert table["residual"].abs().max() < 1e-6 and table["why"].isna().all() and report.facts["median_error"] < 1e-6  # type: ignore[operator]
    encode(report)


def test_predictions_are_the_model_at_the_best_batch(tmp_path: Path) -> None:
    # GIVEN micro-batches up to 128 and a total of 1024 at most WHEN asked THEN each row is the model at its own batch, within the bounds
    table = asked(points(tmp_path), max_batch=1024, price=3.6, grad_sqr=1, grad_var=2000, init_batch=32).table("predictions")
    assert table["num_replicas"].iloc[-1] == 64 and (table["total_batch"].dropna() <= 1024).all() and (table["atomic_bsz"].dropna() <= 128).all()
    for row in table.dropna(subset=["atomic_bsz"]).itertuples():
        step = row.accum_steps * float(accum_time(TRUE, row.atomic_bsz)) + float(optim_time(TRUE, row.num_nodes, row.num_replicas, row.atomic_bsz))
        assert row.step_ns == pytest.approx(step * 1e9, rel=1e-3)
        worth = (2000 + 1) / (2000 + row.total_batch / 32)
        assert row.efficiency == pytest.approx(worth) and row.goodput == pytest.approx(row.total_batch / step * worth, rel=1e-3)
        assert row.cost == pytest.approx(row.num_replicas * 3.6 / 3600 / row.goodput * 1e6)
    assert table["scaling_efficiency"].iloc[0] == pytest.approx(1.0)


def test_one_point_shows_no_curve_and_says_what_to_measure(tmp_path: Path) -> None:
    # GIVEN one configuration WHEN asked THEN no prediction over replicas, no parameter that it does not determine, and what to run next
    report = asked(points(tmp_path, places=((1, 1),), batches=(32,)))
    assert report.facts["best_replicas"] is None and report.facts["alpha_r"] is None and report.facts["gamma"] is None
    assert {s.id for s in report.sections} & {"grid", "curves", "gain", "split", "predictions"} == set()
    assert "cannot be known" in report.headline and any("two replicas on one node" in n.text for n in report.notices)
    rules = report.table("parameters").set_index("name")
    assert rules["value"].isna()["alpha_n"] and "needs > 1 node" in rules.loc["alpha_n", "rule"]


def test_runs_of_a_logdir_and_a_file_in_it_give_points(tmp_path: Path) -> None:
    # GIVEN three runs, a broken file and a correction of one of the runs WHEN the logdir is asked THEN all stand in the table, each with
    # where it is from, and the correction stands for its run
    for n, r in ((1, 1), (1, 2), (2, 4)):
        for b in (32, 64):
            write_run(tmp_path / f"{n}x{r}-{b}", nodes=n, replicas=r, batch=b, accum_s=float(accum_time(TRUE, b)),
                      optim_s=float(optim_time(TRUE, n, r, b)), steps=2)  # fmt: skip
    given = rows(*clean((1, 2, 32), (4, 8, 32)))
    (tmp_path / "sol_scaling.json").write_text(json.dumps(given | {"run": ["1x2-32", None]}))
    (tmp_path / "sol_scaling.csv").write_text("nothing\n")
    with pytest.warns(UserWarning, match="runs here"):
        run = sol.open(str(tmp_path), cache=False)
    report = run.analyze("scaling")
    assert isinstance(report, Report)
    table = report.table("points")
    assert len(table) == 8 and table["source"].value_counts().to_dict() == {"trace": 6, "given": 2}
    left = table[table["why"].notna()]
    assert left["run"].tolist() == ["1x2-32"] and left["source"].tolist() == ["trace"] and "given" in left["why"].iloc[0]
    assert any("sol_scaling.csv" in n.text for n in report.notices)
    # AND some runs alone
    assert len(run.analyze("scaling", runs="1x1-32,1x1-64").table("points")) == 3
    with pytest.raises(BadQuery, match="no run"):
        run.analyze("scaling", runs="elsewhere")


def test_recordings_without_steps_say_what_to_record(tmp_path: Path) -> None:
    from tests.support.trace_builder import TraceBuilder

    t = TraceBuilder()
    t.op("aten::mm", 0, 1000)
    t.write(tmp_path / "w.pt.trace.json.gz")
    report = sol.open(str(tmp_path), cache=False).analyze("scaling")
    assert isinstance(report, UnavailableReport) and "prof.step()" in report.because and "profile_step_start" in report.record_it_with
    assert isinstance(answer_query("scaling", {}), UnavailableReport)


@pytest.mark.parametrize(
    "query",
    [{"share": "150"}, {"price": "-1"}, {"min_micro": "64", "max_micro": "32"}, {"init_batch": "512", "max_batch": "256"}, {"max_replicas": "0"}],
    ids=lambda q: next(iter(q)),
)
def test_contradicting_terms_are_refused_with_a_hint(tmp_path: Path, query: dict[str, str]) -> None:
    with pytest.raises(BadQuery) as error:
        asked(points(tmp_path), **query)
    assert error.value.hint and error.value.field in query


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        asked(str(tmp_path / "none.json"))


def test_hints_for_a_scheduler_have_their_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN points, gradient statistics and bounds WHEN exported THEN the keys a supervisor takes, norm holding the squared norm
    path = points(tmp_path, grad_params={"sqr": 2.0, "var": 5.0}, init_batch_size=32, max_batch_size=1024, atomic_bsz_range=[8, 128])
    assert main(["analyze", "scaling", "--points", path, "--format", "file", "--section", "sched_hints"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {
        "initBatchSize", "localBszBounds", "globalBatchSize", "maxBatchSize", "maxProfiledReplicas", "gradientAccumulation", "gradParams",
        "perfParams",
    }  # fmt: skip
    assert found["gradParams"] == {"norm": 2.0, "var": 5.0} and found["localBszBounds"] == [8, 128] and found["maxProfiledReplicas"] == 16
    assert list(found["perfParams"]) == list(TRUE._fields) and found["perfParams"]["gamma"] == pytest.approx(1.8, rel=1e-3)
    assert main(["analyze", "scaling", "--points", path, "--format", "file", "--section", "other"]) == 1


def test_the_command_line_takes_a_file_of_points(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "scaling", "--points", points(tmp_path), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["analysis"] == "scaling" and {s["id"] for s in answer["sections"]} >= {"points", "predictions", "numbers"}


def rows(*rows: tuple[float, ...]) -> dict[str, list[float]]:
    names = ("num_nodes", "num_replicas", "atomic_bsz", "accum_step_time", "optim_step_time")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def clean(*keys: tuple[int, int, int]) -> list[tuple[float, ...]]:
    return [(n, r, b, float(accum_time(TRUE, b)), float(optim_time(TRUE, n, r, b))) for n, r, b in keys]


GRID = [(1, r, b) for r in (1, 2, 4) for b in (16, 32)]


def of(tmp_path: Path, *points: tuple[float, ...], **query: object) -> Report:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(rows(*points)))
    return asked(str(path), **query)


def marked(report: Report) -> dict[str, str]:
    """Key of each prediction that is marked -> why."""
    section = next(s for s in report.sections if s.id == "predictions")
    assert isinstance(section, TableSection)
    keys = report.table("predictions")["id"].tolist()
    return {keys[int(row)]: mark.why for row, mark in section.marks.get("goodput", {}).items()}


def said(report: Report) -> str:
    return " ".join([report.headline, *(n.text for n in report.notices)])


def test_without_a_second_node_the_answer_is_at_best_and_marked(tmp_path: Path) -> None:
    # GIVEN points on one node alone WHEN asked for two nodes THEN what is recommended there is said to be so at best, with the reason, the
    # parameters across nodes have no number anywhere but in the hints, and the table says so of them
    report = of(tmp_path, *clean(*GRID))
    assert "at best" in report.headline and "synchronizing across nodes was never observed" in said(report)
    assert report.facts["alpha_n"] is None and report.facts["beta_n"] is None and report.facts["alpha_r"] == pytest.approx(0.07, rel=1e-3)
    names = report.table("parameters").set_index("name")
    assert names["value"].isna()[["alpha_n", "beta_n"]].all() and names["low"].isna()[["alpha_n", "beta_n"]].all()
    parameters = next(s for s in report.sections if s.id == "parameters")
    assert "hints hold all seven" in parameters.footer  # type: ignore[union-attr]
    marks = marked(report)
    assert "1|4" not in marks and "never observed" in marks["2|8"] and "more replicas than the 4" in marks["2|8"]
    # AND within what ran nothing is marked
    whole = of(tmp_path, *clean(*GRID, (2, 8, 16), (2, 8, 32), (4, 16, 16)), max_replicas=16)
    assert marked(whole) == {}
    assert "extrapolated" not in said(whole)


def test_a_larger_micro_batch_than_ran_is_extrapolated(tmp_path: Path) -> None:
    report = of(tmp_path, *clean(*GRID), max_micro=128, max_replicas=4)
    assert "a larger micro-batch than the 32 that ran" in marked(report)["1|2"] and "extrapolated" in said(report)
    curves = next(s for s in report.sections if s.id == "curves").figure["data"]  # type: ignore[union-attr]
    lines = [d for d in curves if "beyond what ran" in d.get("name", "")]
    assert lines and all(d["line"]["dash"] == "5px,4px" and any(v is not None for v in d["y"]) for d in lines)


def test_points_that_contradict_each_other_or_the_model_are_named(tmp_path: Path) -> None:
    # GIVEN one configuration measured with 0.31 and 0.9 s WHEN asked THEN both are named
    report = of(tmp_path, *clean((1, 1, 32), (1, 2, 16)), (1, 2, 32, 0.3, 0.31), (1, 2, 32, 0.3, 0.9))
    assert "2 replicas on 1 node with 32 samples each: 310.0\u202fms and 900.0\u202fms" in said(report)
    # AND one that lasts a hundred times what the others say is what agrees least with them
    report = of(tmp_path, *clean((1, 1, 16), (1, 1, 32), (1, 2, 32), (1, 4, 16)), (1, 8, 32, 0.3, 30.0))
    assert "the fit is off by up to" in said(report) and "agrees least with the others is 8 × 32 samples" in said(report)


@pytest.mark.parametrize(
    ("point", "why"),
    [((1, 2, 32, -0.1, 0.2), "not above 0"), ((1, 2, 32, 0.1, 0.0), "not above 0"), ((1, 2, 0, 0.1, 0.2), "batch size"),
     ((1, 2, 32, 0.3, 0.2), "contradict"), ((3, 2, 32, 0.1, 0.2), "more nodes"), ((1, 2, 32, 1e300, 1e300), "seconds are meant")],
    ids=["negative", "zero", "no batch", "sync below zero", "nodes", "huge"],
)  # fmt: skip
def test_a_point_that_cannot_be_is_shown_with_its_reason_and_no_number_comes_of_it(tmp_path: Path, point: tuple[float, ...], why: str) -> None:
    report = of(tmp_path, point)
    assert report.headline.startswith("No point can be used") and why in report.headline
    assert [s.id for s in report.sections] == ["points"] and why in report.table("points")["why"].iloc[0]
    with_others = of(tmp_path, *clean(*GRID), point)
    assert with_others.facts["points_left_out"] == 1 and with_others.facts["gamma"] == pytest.approx(1.8, rel=1e-3)


def test_a_negative_gradient_norm_says_what_it_means(tmp_path: Path) -> None:
    report = of(tmp_path, *clean(*GRID), grad_sqr=-3.0, grad_var=10.0)
    assert "below 0 (\u22123.00)" in said(report) and report.table("predictions")["efficiency"].dropna().eq(1.0).all()


def test_gradient_statistics_of_tensorboard_are_taken(tmp_path: Path) -> None:
    # GIVEN runs, and scalars of the noise of their gradients in an event file of one of them WHEN asked THEN goodput is worked out with
    # them; a file of statistics alone stands over it
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    for r in (1, 2):
        write_run(tmp_path / f"{r}", nodes=1, replicas=r, batch=32, accum_s=0.3, optim_s=0.3 + 0.02 * (r - 1), steps=2)
    writer = EventFileWriter(str(tmp_path / "2"))
    values = [Summary.Value(tag=f"adaptdl/grad_{n}", simple_value=v) for n, v in (("sqr", 1.0), ("var", 2000.0))]
    writer.add_event(Event(step=9, summary=Summary(value=values)))
    writer.close()
    with pytest.warns(UserWarning, match="runs here"):
        run = sol.open(str(tmp_path), cache=False)
    report = run.analyze("scaling")
    terms = report.table("terms").set_index("name").loc["Gradient statistics"]
    assert terms["value"] == "norm² 1, variance 2000" and "adaptdl/grad_sqr" in terms["origin"]
    two = report.table("predictions").set_index("num_replicas").loc[2]
    assert two["efficiency"] == pytest.approx(2001 / (2000 + two["total_batch"] / 32))
    (tmp_path / "sol_scaling.json").write_text('{"grad_params": {"norm": 4.0, "var": 8.0}}')
    origin = run.analyze("scaling").table("terms").set_index("name").loc["Gradient statistics"]
    assert origin["value"] == "norm² 4, variance 8" and origin["origin"] == "given"


def test_runs_in_one_folder_are_one_job(tmp_path: Path) -> None:
    # GIVEN two jobs in folders of their own and a run beside them WHEN asked from each THEN the points are those of its own folder
    for name, n, r, accum in (("a/1", 1, 1, 0.3), ("a/2", 1, 2, 0.3), ("b/1", 1, 1, 0.9), ("alone", 1, 4, 0.5)):
        write_run(tmp_path / name, nodes=n, replicas=r, batch=32, accum_s=accum, optim_s=accum + 0.02 * (r - 1), steps=2)

    def runs(run: str, **query: object) -> set[str]:
        report = sol.open(str(tmp_path), run=run, cache=False).analyze("scaling", **query)
        assert isinstance(report, Report)
        return set(report.table("points")["run"])

    assert runs("a/1") == {"a/1", "a/2"} and runs("b/1") == {"b/1"} and runs("alone") == {"alone"}
    assert runs("alone", runs="a/2,alone") == {"a/2", "alone"}


def test_a_run_on_another_device_is_left_out_with_its_reason(tmp_path: Path) -> None:
    # GIVEN two runs on an H100 and one on an MI300X WHEN asked THEN the last is in no point, also where it is named
    from tests.support import scaling_runs
    from tests.support.trace_builder import TraceBuilder

    for name, r in (("one", 1), ("two", 2)):
        write_run(tmp_path / name, nodes=1, replicas=r, batch=32, accum_s=0.3, optim_s=0.3 + 0.02 * (r - 1), steps=2)
    other = scaling_runs.step_trace(accum_ns=10**8, optim_ns=10**8, replicas=1, batch=32, steps=2)
    other.header["deviceProperties"] = TraceBuilder(device="AMD Instinct MI300X").header["deviceProperties"]
    other.write(tmp_path / "amd" / "rank0.1700000000000000000.pt.trace.json.gz")
    run = sol.open(str(tmp_path), run="one", cache=False)
    report = run.analyze("scaling")
    assert isinstance(report, Report)
    assert set(report.table("points")["run"]) == {"one", "two"}
    assert any("`amd` (it ran on AMD Instinct MI300X" in n.text for n in report.notices)
    named = run.analyze("scaling", runs="one,amd")
    assert isinstance(named, Report) and set(named.table("points")["run"]) == {"one"}
    assert named.table("left_out")["run"].tolist() == ["amd"] and named.facts["runs_left_out"] == 1


# -- Runs of one job, and when nothing is recommended ----------------------------------------------------------------


def write(folder: Path, replicas: int, batch: int = 32, **options: Any) -> None:
    """Writes a run whose times are those of `TRUE`."""
    accum, optim = float(accum_time(TRUE, batch)), float(optim_time(TRUE, 1, replicas, batch))
    write_run(folder, nodes=1, replicas=replicas, batch=batch, accum_s=accum, optim_s=optim, steps=2, **options)


def analyzed(root: Path, run: str, **query: object) -> Report:
    found = sol.open(str(root), run=run, cache=False).analyze("scaling", **query)
    assert isinstance(found, Report)
    return found


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five runs in one folder: two of one model, one twice as wide, one with another optimizer, one that shows no model."""
    root = tmp_path_factory.mktemp("mixed")
    for name, replicas, options in (
        ("one", 1, {}), ("two", 2, {}), ("wide", 4, {"width": 2048}), ("sgd", 4, {"optimizer": "SGD"}), ("bare", 8, {"width": 0}),
    ):  # fmt: skip
        write(root / name, replicas, **options)
    return root


@pytest.mark.parametrize(
    ("chosen", "fitted"), [("one", {"one", "two"}), ("two", {"one", "two"}), ("wide", {"wide"}), ("sgd", {"sgd"}), ("bare", {"bare"})]
)
def test_only_runs_of_the_job_of_the_chosen_run_are_fitted_and_it_is_among_them(mixed: Path, chosen: str, fitted: set[str]) -> None:
    # GIVEN runs of several jobs in one folder WHEN one is chosen THEN the fit is of its job, and every other run is counted and has its reason
    report = analyzed(mixed, chosen)
    assert set(report.table("points")["run"]) == fitted
    left = report.table("left_out").set_index("run")["why"]
    assert set(left.index) == {"one", "two", "wide", "sgd", "bare"} - fitted and report.facts["runs_left_out"] == len(left)
    assert any(f"of the job of `{chosen}`: {len(fitted)} run" in n.text for n in report.notices)
    if chosen == "one":
        assert "2048" in left["wide"] and left["sgd"] == "its optimizer is SGD, that of `one` AdamW"
        assert "nothing proves" in left["bare"] and "record_shapes=True" in said(report)


def test_a_named_run_without_proof_is_taken_with_a_note_and_one_of_another_job_is_not(mixed: Path) -> None:
    report = analyzed(mixed, "one", runs="one,bare,wide")
    assert set(report.table("points")["run"]) == {"one", "bare"} and report.table("left_out")["run"].tolist() == ["wide"]
    assert "`bare` is taken because it was named" in said(report) and "whatever run is shown" not in said(report)
    # AND where the run that is shown is not among those named, that is said
    report = analyzed(mixed, "one", runs="wide,sgd")
    assert "of the job of `sgd`, the first of the runs that were named, whatever run is shown" in said(report)
    assert set(report.table("points")["run"]) == {"sgd"} and report.table("left_out")["run"].tolist() == ["wide"]


def test_files_beside_a_run_of_another_job_say_nothing_of_this_one(tmp_path: Path) -> None:
    # GIVEN two runs of one job, one of them without steps, and one of another; a file with points in each folder, and gradient statistics in
    # the one of the other job
    from tests.support.trace_builder import TraceBuilder

    write(tmp_path / "one", 1)
    write(tmp_path / "wide", 4, width=2048)
    t = TraceBuilder()
    t.op("aten::linear", 2_000, 3_000, shapes=[[32, 1024], [1024, 1024], [1024]], types=["float"] * 3)
    t.write(tmp_path / "two" / "w.1700000000000000000.pt.trace.json.gz")
    for name, key in (("two", (1, 2, 32)), ("wide", (1, 4, 32))):
        more = {"grad_params": {"sqr": 1.0, "var": 2.0}} if name == "wide" else {}
        (tmp_path / name / "sol_scaling.json").write_text(json.dumps(rows(*clean(key)) | more))
    # WHEN asked THEN the person's point of the run without steps counts, and nothing from the folder of the other job does
    report = analyzed(tmp_path, "one")
    table = report.table("points")
    assert set(zip(table["run"], table["source"], strict=True)) == {("one", "trace"), ("two", "given")} and table["why"].isna().all()
    assert report.table("left_out")["run"].tolist() == ["wide"] and "No gradient statistics" in said(report)


def test_of_a_run_of_another_job_one_rank_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a job of one and of two nodes, and two runs of other jobs with two nodes each WHEN asked THEN both ranks of its own, and one of others
    from tb_sol_plugin.store import open as opening

    for name, nodes, options in (("a", 1, {}), ("b", 2, {}), ("other", 2, {"width": 2048}), ("third", 2, {"optimizer": "SGD"})):
        write_run(tmp_path / name, nodes=nodes, replicas=4, batch=32, accum_s=0.3, optim_s=0.32, steps=2, **options)
    made: list[str] = []
    whole = opening.make_reduction

    def counted(wanted: WantedReduction, options: StoreOptions) -> MadeReduction:
        made.append(wanted.recording.run)
        return whole(wanted, options)

    monkeypatch.setattr(opening, "make_reduction", counted)
    report = analyzed(tmp_path, "a")
    assert sorted(made) == ["a", "b", "b", "other", "third"]
    assert set(report.table("points")["run"]) == {"a", "b"} and report.facts["runs_left_out"] == 2


def test_a_guessed_batch_size_gives_no_recommendation_but_what_to_record(tmp_path: Path) -> None:
    # GIVEN runs of one and two replicas whose batch size is only seen in the input of an embedding
    for name, replicas in (("one", 1), ("two", 2)):
        t = step_trace(accum_ns=300_000_000, optim_ns=300_000_000 + 20_000_000 * (replicas - 1), replicas=replicas, batch=0)
        t.op("aten::embedding", 1_000, 1_000, shapes=[[100, 16], [16, 4]], types=["float", "long"])
        t.write(tmp_path / name / "w.1700000000000000000.pt.trace.json.gz")
    # WHEN asked THEN nothing is recommended or predicted, and the first sentence says what to record
    report = analyzed(tmp_path, "one")
    assert report.headline.startswith("**No recommendation**: the batch size of `one`, `two` is guessed") and "atomic_bsz" in report.headline
    assert not {s.id for s in report.sections} & {"grid", "curves", "gain", "split", "predictions"}
    assert all(report.facts[name] is None for name in ("best_replicas", "best_batch", "best_goodput", "best_speedup"))
    tiles = next(s for s in report.sections if s.id == "answer")
    assert "guessed" in tiles.marks["best_replicas"].why  # type: ignore[union-attr]
    # AND no tile or number of the fit is a dash: what is not known stands in the sentence and in the table of parameters
    for section in (s for s in report.sections if isinstance(s, FactsSection)):
        assert [n for n, v in section.values.items() if v is None] == [n for n in section.values if n in section.hidden], section.id


@pytest.mark.parametrize(("off", "recommended"), [(1.05, True), (1.5, False)])
def test_a_fit_that_is_off_by_more_than_a_tenth_gives_no_recommendation(tmp_path: Path, off: float, recommended: bool) -> None:
    rows_ = clean(*GRID)
    n, r, b, accum, optim = rows_[3]
    report = of(tmp_path, *rows_[:3], (n, r, b, accum, optim * off), *rows_[4:])
    worst = report.table("points")["residual"].abs().max()
    assert (worst <= 0.1) == recommended == (not report.headline.startswith("**No recommendation**"))
    if not recommended:  # AND the sentence and both figures have one number
        number = re.search(r"off by up to ([^(]+) \(", report.headline)
        assert number is not None and "measure it again" in report.headline
        tile = next(s for s in report.sections if s.id == "answer")
        assert tile.notes["median_error"] == f"median of the step time; the largest is {number[1]}"  # type: ignore[union-attr]
        for name in ("fit", "residuals"):
            assert f"The largest error is {number[1]}:" in next(s for s in report.sections if s.id == name).summary  # type: ignore[union-attr]


def test_the_sentence_and_the_figure_have_the_same_gain(tmp_path: Path) -> None:
    # GIVEN a job for which the second node brings little and the third more WHEN asked THEN the sentence has the number of the figure's bar,
    # and does not say that all further replicas bring little
    costly = PerfParams(0.1, 0.01, 0.2, 1e-5, 0.001, 1e-5, 1.0)
    keys = [(n, r, b) for n, r in ((1, 1), (1, 2), (1, 4), (2, 8), (3, 12)) for b in (16, 32)]
    rows_ = [(n, r, b, float(accum_time(costly, b)), float(optim_time(costly, n, r, b))) for n, r, b in keys]
    report = of(tmp_path, *rows_, max_replicas=32, max_batch=4096, share=60, accumulation="no")
    stop = report.facts["best_replicas"]
    assert stop == 4
    gain = next(s for s in report.sections if s.id == "gain")
    bars = gain.figure["data"][0]  # type: ignore[union-attr]
    after = list(bars["x"]).index("8")
    number = re.search(r"brings (.+?) of one", bars["hovertext"][after])
    assert number is not None and f"Each of the next 4 brings {number[1]} of one, less than 60.0\u202f%" in report.headline
    assert max(bars["y"][after:]) > 60 and "on average" in report.headline
    assert "falls below 60.0\u202f%" in gain.summary and "60.0\u202f%" in gain.subtitle  # type: ignore[union-attr]


def test_a_page_spends_a_bounded_number_of_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN thirteen noisy points, and thirteen that follow no model WHEN asked THEN the evaluations of all fits stay within those of a page
    taken = [0]
    whole = Budget.take

    def counted(self: Budget) -> None:
        taken[0] += 1
        whole(self)

    monkeypatch.setattr(Budget, "take", counted)
    keys = [(n, r, b) for n, r in ((1, 1), (1, 2), (1, 4), (2, 4), (2, 8), (4, 16)) for b in (32, 64)] + [(1, 2, 128)]
    for sigma, trusted in ((0.02, True), (2.0, False)):
        taken[0], noise = 0, np.exp(np.random.default_rng(0).normal(0, sigma, 13))
        noisy = [(n, r, b, accum * min(f, 1), optim * f) for (n, r, b, accum, optim), f in zip(clean(*keys), noise.tolist(), strict=True)]
        report = of(tmp_path, *noisy)
        assert taken[0] <= goodput.FITTING + 2 * goodput.LEAVING_OUT + (goodput.RESAMPLING if trusted else 0)
        # AND only a fit that is trusted is resampled
        assert ("predictions" in {s.id for s in report.sections}) == trusted == bool(report.table("parameters")["low"].notna().any())
