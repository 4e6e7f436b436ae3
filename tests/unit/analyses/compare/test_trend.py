"""The page of a history of runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.analyses.compare import trend as T
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.compare import change as C
from tb_sol_plugin.metrics.compare.samples import Samples
from tb_sol_plugin.model.recordings import RecordingReduction
from tb_sol_plugin.model.report import FigureSection, Report, TableSection
from tests.support.compared import Job, trace

NAME = "worker0.1700000000000000000.pt.trace.json.gz"


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten nightly runs, a kernel three times slower from the sixth on, and a run of another name."""
    folder = tmp_path_factory.mktemp("nightly")
    for night in range(1, 11):
        job = Job(steps=6, scale={"aten::gelu": 3.0} if night > 5 else {})
        trace(job, night).write(folder / f"nightly-{night}" / NAME)
    trace(Job(steps=6, clock=4.0), 99).write(folder / "other" / NAME)
    return folder


def history(logdir: Path, **query: str) -> Report:
    found = sol.open(str(logdir), run="nightly-1").analyze("trend", **query)
    assert isinstance(found, Report)
    return found


def test_the_run_that_changed_it_is_named_with_its_cause(logdir: Path) -> None:
    # GIVEN ten nights of which the sixth is slower WHEN they are taken by their names
    found = history(logdir, only="nightly-*")
    # THEN that night is named, by how much, and because of what
    assert found.facts["runs"] == 10 and found.facts["changes"] == 1
    assert "% more since `nightly-6`**" in found.headline and "`aten::gelu`" in found.headline
    changes = found.table("changes")
    assert changes["at_run"].tolist() == ["nightly-6"] and changes["change"][0] == pytest.approx(720 / 4_600, abs=0.03)
    runs = found.table("runs")
    assert runs["run"].tolist() == [f"nightly-{n}" for n in range(1, 11)] and runs["verdict"].tolist()[5] == "worse"
    assert runs["part"].tolist() == [1] * 5 + [2] * 5
    links = next(s for s in found.sections if s.id == "changes" and isinstance(s, TableSection)).row_links
    assert links["0"].analysis == "compare" and links["0"].query["run"] == "nightly-5" and links["0"].query["other_run"] == "nightly-6"
    figure = next(s for s in found.sections if isinstance(s, FigureSection))
    assert len(figure.figure["layout"]["shapes"]) == 1  # type: ignore[index, call-overload, arg-type]


def test_counts_do_not_change(logdir: Path) -> None:
    found = history(logdir, metric="launches", only="nightly-*")
    assert found.facts["changes"] == 0 and "No run changed it" in found.headline
    assert set(found.table("runs")["verdict"].dropna()) == {"same"}


def test_a_row_in_place_of_a_number(logdir: Path) -> None:
    # GIVEN the operator that got slower, and one that did not THEN the history of the one changes with that night, of the other never
    found = history(logdir, row="operator:aten::gelu", only="nightly-*")
    assert found.table("changes")["at_run"].tolist() == ["nightly-6"] and found.table("changes")["change"][0] == pytest.approx(2.0, abs=0.1)
    assert found.headline.startswith("operator:aten::gelu: **") and "% more since `nightly-6`" in found.headline
    assert history(logdir, row="operator:aten::mm", only="nightly-*").facts["changes"] == 0
    assert "takes two runs or more" in history(logdir, row="kernel:nothing").headline
    with pytest.raises(BadQuery, match="no metric 'color:red'"):
        history(logdir, row="color:red")


def test_nothing_matches_and_nothing_is_known(logdir: Path) -> None:
    found = history(logdir, only="weekly*")
    assert "takes two runs or more" in found.headline and any("No run has a name like" in n.text for n in found.notices)
    found = history(logdir, metric="peak_memory")
    assert "takes two runs or more" in found.headline and any("do not have this number" in n.text for n in found.notices)
    found = history(logdir, only="other")
    assert "one run here knows it" in found.headline


def test_few_runs_are_shown_without_a_search_for_changes(logdir: Path) -> None:
    found = history(logdir, only="nightly-[1-4]")
    assert found.facts["runs"] == 4 and found.facts["changes"] is None and "Fewer than 6 runs" in found.headline


def test_a_regular_expression_chooses_and_orders_runs(logdir: Path) -> None:
    # GIVEN runs nightly-1 to nightly-10 WHEN a pattern with a group takes some THEN they stand by the number that it finds, not by time or as text
    found = history(logdir, pattern=r"^nightly-(\d+)$")
    runs = found.table("runs")
    assert runs["run"].tolist() == [f"nightly-{n}" for n in range(1, 11)] and runs["place"].tolist() == [str(n) for n in range(1, 11)]
    assert found.table("changes")["at_run"].tolist() == ["nightly-6"]
    assert history(logdir, pattern="nightly-[1-4]$").table("runs")["place"].tolist() == [f"nightly-{n}" for n in range(1, 5)]
    # AND one that is found nowhere, that is none, or that would take long elsewhere is said
    assert any("is found in no name" in n.text for n in history(logdir, pattern="weekly").notices)
    with pytest.raises(BadQuery, match="is no regular expression: "):
        history(logdir, pattern="nightly-(")
    with pytest.raises(BadQuery, match="invalid perl operator"):
        history(logdir, pattern=r"(?<=nightly)-\d")


def test_many_runs_are_read_from_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN 1,000 runs of which the last 399 are 10 % slower, as they were reduced before WHEN their history is made THEN no recording is opened,
    # each run has its interval, from fewer draws, and the one that changed it is found
    steps = np.random.default_rng(2).normal(1e6, 5e3, (1_000, 8))
    steps[601:] *= 1.1
    runs = [
        RecordingReduction("worker0", "1", f"run-{i}", "read", run=f"run-{i}", body=lambda i=i: msgspec.msgpack.encode(one(steps[i], i)),
                           decode=msgspec.msgpack.Decoder(Samples).decode)
        for i in range(1_000)
    ]  # fmt: skip
    drawn: list[int] = []
    draw = C.drawn_steps
    monkeypatch.setattr(C, "drawn_steps", lambda count, draws, random: drawn.append(draws) or draw(count, draws, random))
    found = T.run(runs, [], T.TrendQuery())
    assert found.facts["runs"] == 1_000 and found.table("changes")["at_run"].tolist() == ["run-601"]
    assert found.table("runs")["verdict"][601] == "worse" and drawn.count(T.FEWER_DRAWS) == 2 * 999


def one(steps: np.ndarray, place: int) -> Samples:
    """A run of steps of some lengths."""
    times = tuple(int(v) for v in steps.tolist())
    return Samples("kineto", tuple(range(len(times))), {"step_time": times}, {}, (), {}, 0, None, {}, began_ns=1_000 * place)
