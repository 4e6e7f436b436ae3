"""The page that compares two runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.cli.command import main
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.model.report import FactsSection, FigureSection, FindingsSection, Report, TableSection, UnavailableReport
from tests.conftest import ROOT
from tests.support.compared import Job, trace

NAME = "worker0.1700000000000000000.pt.trace.json.gz"


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base, a run with a kernel that takes twice as long, one that is like the base, a short one, and one of other operators.

    Steps end with a call that waits for the device, but for `again`.
    """
    folder = tmp_path_factory.mktemp("logs")
    jobs = {
        "base": Job(waits=True), "slow": Job(scale={"aten::gelu": 2.0}, waits=True), "again": Job(), "short": Job(steps=2, scale={"aten::mm": 1.5}),
        "other": Job(steps=2, ops={"aten::mm": "mine::product", "aten::_softmax": "mine::other", "aten::gelu": "mine::third"}),
    }  # fmt: skip
    for seed, (name, job) in enumerate(jobs.items()):
        trace(job, seed).write(folder / name / NAME)
    return folder


def compare(logdir: Path, other: str, **query: str) -> Report:
    found = sol.open(str(logdir), run="base").analyze("compare", other_run=other, **query)
    assert isinstance(found, Report)
    return found


def section(found: Report, name: str) -> TableSection:
    return next(s for s in found.sections if s.id == name and isinstance(s, TableSection))


def test_a_slower_run(logdir: Path) -> None:
    # GIVEN a kernel that takes twice as long, once in each of six layers
    found = compare(logdir, "slow")
    # THEN the headline says by how much and because of what, and the numbers agree
    assert "% longer** than one of `base`" in found.headline and "`aten::gelu`" in found.headline.lower(), found.headline
    assert found.facts["verdict"] == "worse" and found.facts["samples_a"] == found.facts["samples_b"] == 11
    change = found.facts["change"]
    assert isinstance(change, float) and change == pytest.approx(360 / 4_600, abs=0.02)
    rows = found.table("rows").set_index("name")
    assert rows["delta_ns"].idxmax() == "aten::gelu" and rows.loc["aten::gelu", "verdict"] == "worse"
    assert rows.loc["aten::mm", "match"] == "same"
    # AND the parts of the difference add up to it, the row below each part too
    table = found.table("waterfall")
    top = table[table["parent"].isna()]
    total = section(found, "waterfall").total
    assert total is not None and top["delta_ns"].sum() == total["delta_ns"]
    below = table[table["parent"] == "path:kernel_ns"]["delta_ns"].sum()
    assert below == table.set_index("id").loc["path:kernel_ns", "delta_ns"]
    assert next(s for s in found.sections if isinstance(s, FigureSection)).summary.startswith("The mean step goes from")
    assert found.table("causes")["kind"].tolist() == ["slower same kernel"]


def test_the_steps_stand_beside_each_other(logdir: Path) -> None:
    # GIVEN two steps of the same operators, of which one takes twice as long THEN all go together, and those stand there that changed
    found = compare(logdir, "slow")
    assert (found.facts["matched_time_share_a"], found.facts["matched_time_share_b"]) == (1.0, 1.0)
    assert found.facts["matched_same"] == 30 and found.facts["only_a"] == found.facts["only_b"] == 0
    tree = found.table("tree")
    gelu = tree[tree["name"] == "aten::gelu"]
    assert len(gelu) == 6 and set(gelu["match"]) == {"same"} and (gelu["time_b"] - gelu["time_a"] == gelu["delta_ns"]).all()
    assert gelu["delta_ns"].sum() == pytest.approx(360_000, rel=0.1)
    # AND of other operators the tree is not offered unless it is asked for
    for by, shown in (("auto", False), ("tree", True)):
        found = compare(logdir, "other", by=by)
        assert any(s.id == "tree" for s in found.sections) is shown and any("mostly different operators" in n.text for n in found.notices) is not shown
    assert {"only base", "only other"} <= set(found.table("tree")["match"])
    findings = next(s for s in compare(logdir, "slow").sections if isinstance(s, FindingsSection))
    assert [f.rule for f in findings.findings] == ["regression"] and "aten::gelu" in findings.findings[0].evidence


def test_two_paths_are_compared_in_one_call(logdir: Path) -> None:
    found = sol.compare(str(logdir / "base"), str(logdir / "slow"), by="kernel")
    assert isinstance(found, Report) and found.facts == compare(logdir, "slow", by="kernel").facts
    assert found.table("rows")["name"][0] == "gelu_kernel"
    opened = sol.compare(sol.open(str(logdir), run="base"), sol.open(str(logdir), run="slow"), by="kernel")
    assert isinstance(opened, Report) and opened.facts == found.facts


def test_an_equal_run_has_no_cause(logdir: Path) -> None:
    found = compare(logdir, "again")
    assert "within the noise" in found.headline or "as long" in found.headline
    assert not any(s.id == "causes" for s in found.sections)


def test_too_few_steps_are_said(logdir: Path) -> None:
    found = compare(logdir, "short", by="kernel")
    assert "Too few steps" in found.headline and any("Record at least 5" in n.text for n in found.notices)
    assert found.facts["verdict"] == "unknown" and set(found.table("rows")["verdict"]) == {"unknown"}


def test_rows_that_were_not_recorded(logdir: Path) -> None:
    found = compare(logdir, "slow", by="module")
    assert section(found, "rows").empty == "Not both recordings have rows by module."
    assert any("No rows by module" in n.text for n in found.notices)


def test_a_recording_without_a_device() -> None:
    # GIVEN two recordings of a CPU, of the same network with another layout of its images
    found = sol.open(str(ROOT / "samples" / "cpu_cnn"), run="baseline").analyze("compare", other_run="channels_last")
    assert isinstance(found, Report) and found.facts["launches_change"] is None
    # THEN operators are compared by their time on the host
    assert section(found, "rows").subtitle.startswith("time on the host")
    assert found.table("rows").set_index("name").loc["aten::max_pool2d_with_indices", "delta_ns"] < 0


def test_there_is_nothing_to_compare_with(tmp_path: Path) -> None:
    path = trace(Job(steps=2)).write(tmp_path / "one" / NAME)
    found = sol.open(str(path)).analyze("compare")
    assert isinstance(found, UnavailableReport) and found.record_it_with


def test_the_difference_goes_by_the_critical_path_where_there_is_one_to_rest_on(logdir: Path) -> None:
    # GIVEN two loops whose paths are known THEN the difference is split by them, exclusive parts are there to choose, and both add up to the same
    found, plain = compare(logdir, "slow"), compare(logdir, "slow", basis="exclusive")
    assert section(found, "waterfall").title.endswith("by parts of the critical path") and found.headline == plain.headline
    assert section(plain, "waterfall").title.endswith("by exclusive parts of the step")
    for one in (found, plain):
        table, total = one.table("waterfall"), section(one, "waterfall").total
        assert total is not None and table[table["parent"].isna()]["delta_ns"].sum() == total["delta_ns"]
    assert section(found, "waterfall").total == section(plain, "waterfall").total and not any("critical path" in n.text for n in found.notices)
    # AND where a loop waits for the device without a call that says so, exclusive parts take its place, and why is said
    unseen = compare(logdir, "again")
    assert section(unseen, "waterfall").title.endswith("by exclusive parts of the step")
    said = next(n.text for n in unseen.notices if "critical path" in n.text)
    assert "% of the steps of again nothing is recorded on the host while the device works" in said and said.endswith("exclusive parts of the step.")


def test_any_page_against_a_baseline(logdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN a kernel that takes twice as long WHEN its page is set against the base THEN it stands first, with what it was
    found = sol.open(str(logdir), run="slow").analyze("kernels", against="base")
    assert isinstance(found, Report) and "% longer** than one of `base`" in found.notices[0].text
    link = found.notices[0].link
    assert link is not None and (link.analysis, link.query["run"], link.query["other_run"]) == ("compare", "base", "slow")
    rows = found.table("kernels").sort_values("total_ns_delta", ascending=False)
    assert rows["name"].iloc[0] == "gelu_kernel" and rows["total_ns_change"].iloc[0] == pytest.approx(1.0, abs=0.02)
    assert (rows["total_ns"] - rows["total_ns_base"] == rows["total_ns_delta"]).all()
    # AND it says how sure that is: of the row, and of the numbers that the page is about
    verdicts = rows.set_index("name")["total_ns_verdict"].to_dict()
    assert verdicts["gelu_kernel"] == "worse" and "worse" not in {v for n, v in verdicts.items() if n != "gelu_kernel"}
    assert rows["total_ns_low"].iloc[0] < 360_000 < rows["total_ns_high"].iloc[0]
    row = found.sections[0]
    assert isinstance(row, FactsSection) and row.title == "Against base" and list(row.labels.values()) == ["Step", "Kernels", "Device events"]
    assert str(row.values["verdict_step_time"]).startswith("slower, +") and str(row.values["verdict_kernel_time"]).startswith("more, +")
    assert row.values["verdict_launches"] == "no change" and "95 % interval" in row.notes["verdict_kernel_time"]
    # AND of a run that is like the base that no change is shown, of one of two steps that these are too few
    same, few = (sol.open(str(logdir), run=n).analyze("idle", against="base").facts for n in ("again", "short"))  # type: ignore[union-attr]
    assert same["verdict_step_time"] in ("no change", "no change shown") and few["verdict_step_time"] == "too few steps to tell"
    # AND a run of two steps is set against the last two of the other, by its path as by its name
    path = str(logdir / "base" / NAME)
    short = sol.open(str(logdir), run="short").analyze("operators", against=path)
    assert isinstance(short, Report) and "1–2 of short and 11–12 of " in short.notices[1].text
    assert short.table("operators").set_index("id").loc["aten::gelu", "calls_delta"] == 0
    # AND the terminal says the same as a notebook; a page that compares by itself takes no baseline
    assert main(["analyze", "kernels", str(logdir), "--run", "slow", "--against", "base", "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("short_name,name,calls,calls_base,calls_delta,calls_change,total_ns,total_ns_base,")
    with pytest.raises(BadQuery, match="compares by itself"):
        sol.open(str(logdir), run="slow").analyze("trend", against="base")
    # AND the page that compares has the direction of the others there: from the baseline to the run that is shown
    turned = sol.open(str(logdir), run="slow").analyze("compare", against="base")
    assert isinstance(turned, Report) and turned.headline == found.notices[0].text and turned.facts == compare(logdir, "slow").facts
    assert turned.fields["other_run"].value == "base"
    assert next(c for c in section(turned, "rows").columns if c.name == "delta_ns").doc == "time per step, slow less base"
