"""The pages of ranks: their sentences, tables and figures over simulated jobs, and what they say where something is missing."""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.ranks import calls, reports
from tb_sol_plugin.metrics.ranks.calls import Member
from tb_sol_plugin.metrics.ranks.summary import STEPS
from tb_sol_plugin.model.answer import AnalysisRequest, from_ranks
from tb_sol_plugin.model.recordings import RecordingReduction, ReducedFacts
from tb_sol_plugin.model.registry import get
from tb_sol_plugin.model.report import FigureSection, FindingsSection, Report, UnavailableReport, encode
from tb_sol_plugin.tables.packed import unpack
from tb_sol_plugin.units import NARROW
from tests.support.rank_factory import Job, Slow, simulate

NAMES = ("ranks", "stragglers", "imbalance", "collectives", "parallelism", "groups", "pipeline", "clocks")
SAMPLE = Path(__file__).resolve().parents[4] / "samples" / "simulated_ranks"
JOB = Job(tp=8, dp=2, layers=4, steps=4, stragglers=(Slow(5, "dataloader", 3e6), Slow(12, "host", 1.5e6)))


def read(one: Member, name: str, world: int, *, numbered: bool = True) -> RecordingReduction[msgspec.Struct]:
    body = msgspec.msgpack.encode(one.summary)
    rank = one.rank if numbered else None
    facts = ReducedFacts("kineto", rank, world, one.host, "nvidia", ("NVIDIA H100 80GB HBM3",), 0, True, (0, 1))
    return RecordingReduction(
        f"w{one.rank}", "1", f"{one.rank}.json", "read", rank, facts, body=lambda: body, decode=get(name).reduction.decode
    )


def asked(name: str, members: Sequence[Member], *more: RecordingReduction[msgspec.Struct], world: int = 16, **raw: str) -> Report:
    found = from_ranks(AnalysisRequest(name, raw), [*(read(m, name, world) for m in members), *more]).report()
    assert isinstance(found, Report)
    encode(found)
    return found


def text(found: Report) -> str:
    return found.headline.replace(NARROW, " ")


@pytest.fixture(scope="module")
def members() -> list[Member]:
    return simulate(JOB).members()


def test_the_summary_names_the_rank_the_cause_and_the_cost(members: list[Member]) -> None:
    # GIVEN a slow input of 3 ms on rank 5 that hides a host stall of 1.5 ms on rank 12
    found = asked("ranks", members)
    # THEN removing the first leaves the second: 1.5 ms per step, both 3.0
    assert text(found).startswith("**Rank 5 on node0** delays the other ranks (dataloader): without that a step is **1.5")
    assert "Without rank 12 on node1 (host) as well" in text(found)
    table = found.table("ranks").set_index("rank")
    assert len(table) == 16 and table.loc[5, "cause"] == "dataloader" and table.loc[5, "persistence"] == "systematic"
    assert table.loc[5, "saved_ns"] == pytest.approx(6e6, rel=0.02) and table["saved_ns"].notna().sum() == 2
    assert table.loc[5, "path_excess_ns"] == pytest.approx(12e6, rel=0.01) and (table["status"] == "compared").all()
    # AND the late rank waits least, its neighbors most; rank and step have what is above peers
    assert table["exposed_wait_ns"].idxmin() == 5
    heat = found.table("heatmap").set_index(["rank", "step"])["value"]
    assert heat.loc[(5, 2)] == pytest.approx(3e6, rel=0.02) and heat.loc[(12, 1)] == pytest.approx(1.5e6, rel=0.02) and len(heat) == 64
    assert isinstance(found.section("heatmap_figure"), FigureSection)
    assert found.facts["saved_together_per_step_ns"] == pytest.approx(3e6, rel=0.02) and found.facts["collectives_matched"] == 1.0
    # AND what to fix leads to the evidence
    cards = found.section("findings")
    assert isinstance(cards, FindingsSection) and [(f.rule, f.link.analysis if f.link else "") for f in cards.findings] == [
        ("ranks_straggler", "stragglers"), ("ranks_straggler", "stragglers"),
    ]  # fmt: skip
    # AND steps can be chosen: the same per step
    part = asked("ranks", members, step="1-2")
    assert part.facts["saved_per_step_ns"] == pytest.approx(1.5e6, rel=0.05) and len(part.table("heatmap")) == 32
    with pytest.raises(BadQuery, match="no collective in step 9"):
        asked("ranks", members, step="9")


@pytest.mark.parametrize("what", ["exposed_wait", "step"])
def test_the_heat_map_shows_other_measures(members: list[Member], what: str) -> None:
    assert asked("ranks", members, what=what).table("heatmap")["value"].min() > 0


def test_rows_of_the_heat_map_can_be_ordered_and_of_many_ranks_are_hosts_or_blocks(members: list[Member], monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(given: list[Member], **query: str) -> Any:
        figure = asked("ranks", given, **query).section("heatmap_figure")
        assert isinstance(figure, FigureSection)
        return figure.figure["data"][0]

    # GIVEN late ranks 5 and 12 of 16 on two hosts THEN rows are by rank, by host, or the largest first
    assert drawn(members)["y"] == drawn(members, order="host")["y"] == drawn(members, order="stage")["y"] == [f"rank {r}" for r in range(16)]
    assert drawn(members, order="value")["y"][:2] == ["rank 5", "rank 12"]
    apart = [m._replace(host=f"node{m.rank % 2}") for m in members]
    assert drawn(apart, order="host")["y"][:3] == ["rank 0", "rank 2", "rank 4"]
    # WHEN there are more ranks than rows THEN a row is a host, or a block of ranks where hosts are too many, with the largest and the median
    monkeypatch.setattr("tb_sol_plugin.analyses.ranks.ranks.MOST_ROWS", 8)
    hosts = drawn(members, order="value")
    assert hosts["y"] == ["node0", "node1"] and "largest 3.0" in hosts["text"][0][0] and "median" in hosts["text"][0][0]
    blocks = drawn([m._replace(host="") for m in members])
    assert blocks["y"][:2] == ["ranks 0 to 1", "ranks 2 to 3"] and len(blocks["y"]) == 8 and max(blocks["z"][2]) == max(map(max, blocks["z"]))


def test_a_row_of_many_ranks_opens_its_ranks(members: list[Member], monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a heat map of hosts and one of blocks of ranks THEN each row asks for its own ranks, whatever the order
    monkeypatch.setattr("tb_sol_plugin.analyses.ranks.ranks.MOST_ROWS", 8)
    apart = [m._replace(host=f"node{m.rank // 3 % 2}") for m in members]
    for given, row, ranks in ((apart, "node1", "3-5,9-11,15"), ([m._replace(host="") for m in members], "ranks 4 to 5", "4-5")):
        figure = asked("ranks", given, order="value").section("heatmap_figure")
        assert isinstance(figure, FigureSection) and figure.asks[row] == {"ranks": ranks} and "which a click shows" in figure.subtitle
        # WHEN these are asked for THEN there is a row per rank, the tables have them alone, and the job is that of all
        found = asked("ranks", given, ranks=ranks)
        shown, numbers = found.section("heatmap_figure"), [int(r) for r in found.table("ranks")["rank"]]
        assert isinstance(shown, FigureSection) and shown.figure["data"][0]["y"] == [f"rank {r}" for r in numbers]  # type: ignore[index]
        assert reports.ranks_text(np.array(numbers)) == ranks and set(found.table("heatmap")["rank"]) == set(numbers) and not shown.asks
        assert text(found) == text(asked("ranks", given)) and found.section("ranks").row_links["1"].query["worker"] == f"w{numbers[1]}"
    for wrong in ("99", "x"):
        with pytest.raises(BadQuery, match="rank"):
            asked("ranks", members, ranks=wrong)


def test_stragglers_have_evidence_and_a_path_that_adds_up(members: list[Member]) -> None:
    found = asked("stragglers", members)
    suspects, path = found.table("suspects"), found.table("path")
    assert suspects[["rank", "cause"]].values.tolist() == [[5, "dataloader"], [12, "host"]]
    assert "3.00 ms per step more than its peers, loading its next batch, in 4 of 4 steps" in suspects["evidence"][0].replace(NARROW, " ")
    assert suspects["saved_together_ns"][1] == pytest.approx(12e6, rel=0.02)
    # AND each leads to the critical path of its own recording
    opened = found.section("suspects").cell_links["rank"]
    assert [opened[i].analysis for i in ("0", "1")] == ["critical_path"] * 2 and opened["0"].query["worker"] != opened["1"].query["worker"]
    # the path tiles the time of the job, but for the microseconds in which members leave a collective
    assert path["local_ns"].sum() + path["transfer_ns"].sum() == pytest.approx(found.facts["span_ns"], rel=1e-3)
    assert found.facts["replay_ns"] == pytest.approx(found.facts["span_ns"], rel=1e-3)
    assert path.loc[path["excess_ns"].idxmax(), ["rank", "cause"]].tolist() == [5, "dataloader"]
    # AND each row opens its own time on the timeline of its rank, with the path of that rank
    section = found.section("path")
    for at, row in enumerate(path.itertuples()):
        link = section.row_links[str(at)]
        begin, end = map(int, link.query["area"].split("-"))
        assert (link.analysis, link.query["worker"], link.query["cp"]) == ("timeline", f"w{row.rank}", "1") and begin >= 0
        assert end - begin == row.local_ns or not row.local_ns


def test_work_that_takes_longer_on_one_rank_costs_what_the_others_wait() -> None:
    # GIVEN kernels of rank 3 that take 1.2 times as long: 4 layers of 1 + 2 ms, the optimizer 0.5 ms (the last one not recorded)
    job = Job(tp=2, dp=4, layers=4, steps=3, jitter=0.0, stragglers=(Slow(3, "compute", 1.2),))
    found = asked("imbalance", simulate(job).members(), world=8)
    row = found.table("rows").iloc[0]
    assert (row["name"], row["max_rank"], row["ranks"]) == ("sm90_xmma_gemm_bf16", 3, 8) and row["imbalance"] == pytest.approx(1.2, abs=1e-4)
    assert row["median_ns"] == pytest.approx(37e6 / 3, rel=1e-5) and row["max_ns"] == pytest.approx(1.2 * 37e6 / 3, rel=1e-5)
    assert row["lost_ns"] == pytest.approx(37e6 / 5, rel=0.03) and "1.20 times" in text(found)
    # AND where nothing differs, or nothing is known of a kind, the page says so
    assert "1 % of its time" in text(asked("imbalance", simulate(replace(job, stragglers=())).members(), world=8))
    assert "can be compared" in asked("imbalance", simulate(job).members(), world=8, by="module").headline


def test_collectives_by_size_and_one_by_one(members: list[Member]) -> None:
    found = asked("collectives", members)
    rows = found.table("instances")
    assert len(rows) == found.facts["collectives"] == 260 and set(rows["status"]) == {"complete"}
    assert rows.loc[rows["wait_ns"].idxmax(), "late_rank"] == 5
    # waits and transfers of all members are the durations of all members
    assert found.facts["wait_share"] == pytest.approx(
        found.facts["wait_ns"] / (found.facts["wait_ns"] + sum(rows["transfer_ns"] * rows["size"]))
    )
    sizes = found.table("by_size")
    assert sizes["count"].sum() == 260 and set(sizes["group_kind"].dropna()) == {"TP", "DP"}
    # AND a query chooses: by parallelism, group, ranks
    assert len(asked("collectives", members, group_kind="TP").table("instances")) == 2 * 64
    assert len(asked("collectives", members, group="default_pg").table("instances")) == 4
    assert set(asked("collectives", members, ranks="0-1", group_kind="dp").table("instances")["group"]) == {
        "[0, 8] DATA_PARALLEL_GROUP", "[1, 9] DATA_PARALLEL_GROUP",
    }  # fmt: skip
    with pytest.raises(BadQuery, match="not ranks"):
        asked("collectives", members, ranks="a-b")


def test_slack_says_what_computation_could_hide() -> None:
    # GIVEN buckets of 512, 256, 128, 64 MiB, one after each of four layers of 2 ms backward, on one stream: the first is hidden as a whole
    found = asked("collectives", simulate(Job(dp=4, layers=4, steps=1, bucket_bytes=512 << 20, jitter=0.0)).members(), world=4)
    rows = found.table("instances").sort_values("bytes", ascending=False)
    # THEN the second and third had the layers after them, the last one and the norm nothing; they need bytes 2 (4 - 1) / 4 in that time
    assert rows["slack_ns"].isna().tolist() == [True, False, False, False, False] and set(rows["parts"]) == {1}
    assert rows["slack_ns"].tolist()[1:] == pytest.approx([4e6, 2e6, 0, 0], rel=1e-3, abs=100)
    needed = rows["required_bandwidth_bytes_per_s"]
    assert needed.tolist()[1:3] == pytest.approx([(256 << 20) * 1.5 / 4e-3, (128 << 20) * 1.5 / 2e-3], rel=1e-3)


def test_what_costs_most_leads_even_where_it_is_no_late_rank() -> None:
    # GIVEN a slow link that costs more than a slow input
    slow = Job(tp=2, cp=2, pp=2, dp=4, layers=3, micro_batches=4, ranks_per_host=4, slow_hosts=((1, 0.5),),
               stragglers=(Slow(5, "dataloader", 3e6),))  # fmt: skip
    members = simulate(slow).members()
    found = asked("ranks", members, world=32)
    assert text(found).startswith("**The link of node1 is slow**: without that a step is at most **5.2")
    assert "**Rank 5 on node1** delays the other ranks (dataloader)" in text(found)
    # AND exposed communication by parallelism adds up to that of each step
    found = asked("parallelism", members, world=32)
    each, kinds = found.table("exposed"), found.table("by_kind").set_index("kind")
    exposed = each.groupby(["rank", "step"])["exposed_ns"].sum()
    known = {(m.rank, int(step)): ns for m in members for step, ns in zip(*(unpack(m.summary.steps, STEPS)[n].tolist() for n in
             ("step", "exposed_communication_ns")), strict=True)}  # fmt: skip
    assert exposed.to_dict() == known and (each["wait_ns"] <= each["exposed_ns"]).all() and (each["exposed_ns"] <= each["communication_ns"]).all()
    assert set(kinds.index) == {"TP", "CP", "PP", "DP", "other"} and kinds.loc["PP", "wait_ns"] > kinds.loc["PP", "transfer_ns"]
    assert "most of it for **PP**" in text(found) and found.facts["exposed_ns"] == pytest.approx(sum(known.values()) / len(known), abs=5)
    # AND what goes from rank to rank is drawn: activations and gradients
    found = asked("collectives", members, world=32, ranks="0")
    assert found.table("peers")[["source", "target"]].values.tolist() == [[0, 16], [16, 0]] and isinstance(found.section("peers_figure"), FigureSection)
    # AND its two stages wait for each other; a job of tensor and data parallelism alone has no stages
    found = asked("pipeline", members, world=32)
    stages = found.table("by_stage")
    assert stages["micro_batches"].tolist() == [4, 4] and found.facts["stage_imbalance"] == pytest.approx(1, abs=0.01)
    parts = stages[["bubble_warmup_ns", "bubble_steady_ns", "bubble_cooldown_ns"]].sum(axis=1)
    assert parts.tolist() == pytest.approx(stages["bubble_ns"].tolist(), abs=3) and "Its stages are even" in text(found)
    assert len(found.table("stages")) == 6 and "it has no pipeline" in asked("pipeline", simulate(JOB).members()).headline
    slow = simulate(Job(pp=2, dp=1, layers=2, micro_batches=2, stragglers=(Slow(1, "compute", 1.3),)))
    assert "Stage **1** sets the pace: it computes 13.0" in text(asked("pipeline", slow.members(), world=2))
    # AND the groups of the slow host are seen beside those of the others
    groups = asked("groups", members, world=32).table("groups").set_index("group")
    assert groups.loc["[0-12 by 4] DATA_PARALLEL_GROUP", "of_fastest"] == pytest.approx(0.5, abs=0.02) and groups["of_fastest"].isna().any()


def test_groups_and_clocks(members: list[Member]) -> None:
    assert "TP 8 × DP 2" in text(asked("groups", members))
    table = asked("groups", members).table("groups")
    assert len(table) == 11 and (table["instances"] == table["matched"]).all() and table["unmatched_because"].isna().all()
    found = asked("clocks", members)
    assert "2 hosts" in text(found) and "**good**" in text(found) and found.table("clocks")["grade"].tolist() == ["good", "good"]
    # AND of a recording of less than a second no drift is known, which is not 0
    assert found.table("clocks")["drift_ppm"].isna().all()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_missing_is_told(name: str, members: list[Member]) -> None:
    waiting = RecordingReduction[msgspec.Struct]("w1", "", "", "waiting", 1)
    # GIVEN none read yet, one read, a rank of another job, recordings without ranks THEN there is a report each, without a made-up number
    assert text(asked(name, [], waiting, waiting)).startswith("None of 2 workers")
    one = asked(name, members[:1], waiting)
    assert "One of 2 workers has been read" in text(one)
    if name == "collectives":
        assert one.facts["wait_ns"] is None and one.table("instances")["wait_ns"].isna().all()
    other = simulate(Job(tp=2, dp=1, layers=2, seed=5)).members()[0]
    strange = other._replace(rank=16, host="far", summary=msgspec.structs.replace(other.summary, groups=tuple(
        msgspec.structs.replace(g, key="elsewhere") for g in other.summary.groups)))  # fmt: skip
    found = asked(name, [*members, strange], world=17)
    assert any("No collective of rank 16 could be matched" in n.text for n in found.notices)
    if name in ("ranks", "stragglers"):  # it delays nobody, whatever its own times are
        assert text(found).startswith("**Rank 5 on node0** delays")
    if name == "ranks":
        row = found.table("ranks").set_index("rank").loc[16]
        assert row["status"] == "alone" and row[["path_excess_ns", "saved_ns", "cause"]].isna().all()
    unnumbered = from_ranks(AnalysisRequest(name, {}), [read(m, name, 16, numbered=False) for m in members]).report()
    assert isinstance(unnumbered, Report) and any("name no rank" in n.text for n in unnumbered.notices)


def test_a_slow_host_is_named_as_one() -> None:
    slow = replace(JOB, dp=3, stragglers=tuple(Slow(rank, "compute", 1.1) for rank in range(8, 16)))
    found = text(asked("stragglers", simulate(slow).members(), world=24))
    assert found.startswith("**node1** delays the other hosts (compute, 8 of its ranks): without that a step is **")


def test_too_many_calls_are_those_of_some_steps(members: list[Member], monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN 16 ranks of 21 calls in each of four steps, of which 700 are compared THEN two steps in the middle are, with the same costs
    monkeypatch.setattr(calls, "MOST_CALLS", 700)
    found = asked("ranks", members)
    assert found.facts["saved_per_step_ns"] == pytest.approx(1.5e6, rel=0.05) and set(found.table("heatmap")["step"]) == {1, 2}
    assert any("672 collectives of other steps are left out" in n.text for n in found.notices)


def test_an_even_job_has_no_culprit() -> None:
    assert "No rank delays the others" in text(asked("ranks", simulate(replace(JOB, stragglers=())).members()))


def test_the_sample_is_what_its_script_writes_and_gives_back_its_truth(tmp_path: Path) -> None:
    # GIVEN the simulated run of 16 ranks on two hosts THEN its script writes the same recordings today
    spec = importlib.util.spec_from_file_location("simulate_ranks", SAMPLE.parent / "simulate_ranks.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made = simulate(script.JOB)
    (file,) = SAMPLE.glob("rank11.*")
    assert json.loads(gzip.decompress(file.read_bytes())) == json.loads(
        gzip.decompress(made.trace(11).write(tmp_path / "rank11.1.pt.trace.json.gz").read_bytes())
    )
    # AND both causes are found in the files, each with what the same job takes less without it
    truth = json.loads((SAMPLE / "truth.json").read_text())["saved_per_step_ns"]
    found = sol.open(str(SAMPLE), cache=False).analyze("ranks")
    assert isinstance(found, Report)
    cards = found.section("findings")
    assert isinstance(cards, FindingsSection)
    link, late = cards.findings
    assert link.title == "The link of rank 3 or rank 11 is slow" and link.saving_ns == pytest.approx(truth["link of rank 3"], rel=0.02)
    assert late.title == "Rank 5 on node0 delays the other ranks: dataloader" and late.saving_ns == pytest.approx(truth["rank 5"], rel=0.02)
    # WHEN one rank is there alone THEN there is nothing to compare
    alone = sol.open(str(file), cache=False).analyze("ranks")
    assert isinstance(alone, UnavailableReport) and "compares the workers of a run" in alone.because


def test_hosts_are_those_of_the_names_of_workers_where_none_is_recorded(members: list[Member]) -> None:
    # GIVEN recordings without a host, named as tensorboard_trace_handler does THEN ranks of one machine share a clock, and it is said
    def named(name: str) -> Report:
        found = [replace(read(m._replace(host=""), "clocks", 16), worker=name.format(m.rank // 8, 4000 + m.rank)) for m in members]
        report = from_ranks(AnalysisRequest("clocks", {}), found).report()
        assert isinstance(report, Report)
        return report

    hosts = named("gpu-{}.cluster_{}")
    assert hosts.table("clocks")["domain"].tolist() == ["gpu-0.cluster", "gpu-1.cluster"] and any("name no host" in n.text for n in hosts.notices)
    # AND a name that is that of every machine, or of a rank, is none: each rank has a clock of its own
    for name in ("localhost_{1}", "rank_{1}", "w{1}"):
        alone = named(name)
        assert len(alone.table("clocks")) == 16 and not any("name no host" in n.text for n in alone.notices)
