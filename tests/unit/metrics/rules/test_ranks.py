"""Findings over ranks: each in a job that has the cause, with what the same job saves without it, and silent in look-alikes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.analyses.ranks.ranks import heat_values
from tb_sol_plugin.metrics.ranks.calls import Member
from tb_sol_plugin.metrics.ranks.job import job_of_members
from tb_sol_plugin.metrics.ranks.summary import ROWS, summary_of_rank
from tb_sol_plugin.metrics.rules.engine import Finding
from tb_sol_plugin.metrics.rules.ranks import RULES, inconsistent_collectives, rank_context, rank_findings
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables.packed import pack, unpack
from tb_sol_plugin.units import NARROW
from tests.support.rank_factory import Job, Slow, simulate

JOB = Job(tp=8, dp=2, layers=4, steps=4)
LINKS = Job(cp=2, dp=4, ranks_per_host=1, layers=4, steps=4)
SMALL = Job(dp=8, layers=4, steps=4, small=60)
EXPERTS = Job(dp=8, layers=4, steps=4, experts=2.0)


def found_in(job: Job) -> dict[str, Finding]:
    context = rank_context(job_of_members(simulate(job).members()))
    assert context is not None
    found = rank_findings(context)
    assert {f.id.removeprefix("ranks_") for f in found} <= set(RULES) and all(f.saving > 0 and f.title and f.evidence and f.fix for f in found)
    return {f.rule: f for f in reversed(found)}


def per_step(job: Job, less: Job) -> float:
    """What a step of a job takes more than that of another one: the truth of a saving, ns."""
    return (simulate(job).truth.span_ns - simulate(less).truth.span_ns) / job.steps


def test_late_ranks_save_one_after_the_other() -> None:
    # GIVEN a slow input of 6 ms, behind which a host stall of 3 ms hides
    both = (Slow(5, "dataloader", 6e6), Slow(12, "host", 3e6))
    context = rank_context(job_of_members(simulate(replace(JOB, stragglers=both)).members()))
    assert context is not None
    first, second = [f for f in rank_findings(context) if f.rule == "straggler"]
    # THEN each has what it saves besides the one before it, as the same job has without them
    one, none = replace(JOB, stragglers=both[1:]), JOB
    assert first.title == "Rank 5 on node0 delays the other ranks: dataloader" and "num_workers" in first.fix and not first.candidate
    assert first.saving == pytest.approx(per_step(replace(JOB, stragglers=both), one), rel=0.03)
    assert second.title.startswith("Rank 12 on node1") and second.evidence.endswith("Hidden behind rank 5 on node0: alone it would save nothing.")
    assert second.saving == pytest.approx(per_step(one, none), rel=0.03)


def test_a_slow_host_is_one_finding() -> None:
    slow = replace(JOB, dp=3, stragglers=tuple(Slow(rank, "compute", 1.1) for rank in range(8, 16)))
    found = found_in(slow)
    assert found["slow_host"].title == "node1 delays the other hosts: compute" and not {"straggler", "uneven_work"} & set(found)
    assert found["slow_host"].saving == pytest.approx(per_step(slow, replace(slow, stragglers=())), rel=0.05)


def test_a_rank_that_starts_its_steps_late_is_not_slow_in_them() -> None:
    # GIVEN a rank whose host does something else for 4 ms before each step THEN that is what is said, with what the job saves without it
    late = replace(JOB, stragglers=(Slow(5, "start", 4e6),))
    found = found_in(late)
    one = found["late_start"]
    assert one.title == "Rank 5 on node0 starts its steps late" and "async_save" in one.fix and "straggler" not in found
    assert "in 4 of 4 steps" in one.evidence and "on time" in one.evidence
    assert one.saving == pytest.approx(per_step(late, JOB), rel=0.03) and not one.candidate
    # AND in one step alone it is possible only
    assert found_in(replace(JOB, stragglers=(Slow(5, "start", 4e6, 2),)))["late_start"].candidate
    # WHEN the host is late in the middle of steps, or loads before them, or all ranks are late, or clocks are apart, THEN none starts late
    for cause in ("host", "dataloader"):
        found = found_in(replace(JOB, stragglers=(Slow(5, cause, 4e6),)))  # type: ignore[arg-type]
        assert "late_start" not in found and "straggler" in found
    every = replace(JOB, stragglers=tuple(Slow(rank, "start", 4e6) for rank in range(JOB.world)), offset_ns=5e6)
    assert not {"late_start", "straggler", "slow_host"} & set(found_in(every))
    # AND it is told from computing that comes before the first of two collectives of a step only where there is something to tell it by
    bare = found_in(Job(dp=4, layers=1, steps=4, buckets=1, blocking=True, stragglers=(Slow(2, "start", 3e6),)))
    assert "late_start" not in bare and "straggler" in bare


def test_time_before_collectives_that_nothing_waits_for_is_counted_once(tmp_path: Path) -> None:
    # GIVEN gradients that are reduced in four buckets behind the backward pass, each of which begins where the last step's norm ended
    job = Job(dp=3, layers=4, steps=4, stragglers=(Slow(1, "start", 3e6),))
    made = simulate(job)
    read = [ingest.read(str(made.trace(rank).write(tmp_path / f"rank{rank}.json"))) for rank in range(3)]
    for members in (made.members(), [Member(rank, "node0", summary_of_rank(one, Query())) for rank, one in enumerate(read)]):
        found = job_of_members(members)
        # THEN a rank is above its peers by what it is late, in each step and in all, not by four times that, for that cause alone
        (one,) = found.stragglers.suspects
        assert one.total_excess_ns == pytest.approx(4 * 3e6, rel=0.05) and one.steps == 4 and one.at == 1 and not one.late_start
        assert one.saved_ns == pytest.approx(4 * per_step(job, replace(job, stragglers=())), rel=0.02)
        heat = heat_values(found, "excess")
        assert heat["value"][heat["at"] == 1].tolist() == pytest.approx([3e6] * 4, rel=0.1)


def test_uneven_data_is_no_late_rank() -> None:
    # GIVEN data of all ranks that differs by 10 % from step to step THEN nobody is late, an even share of it saves; noise of 0.5 % is nothing
    found = found_in(replace(JOB, dp=4, imbalance=0.1))
    assert set(found) == {"uneven_work"} and found["uneven_work"].saving == pytest.approx(per_step(
        replace(JOB, dp=4, imbalance=0.1), replace(JOB, dp=4)), rel=0.15)  # fmt: skip
    assert not found_in(replace(JOB, dp=4))


def test_a_slow_link_is_found_where_groups_differ_in_their_hosts() -> None:
    # GIVEN a host with half of the bandwidth, in two of six groups
    slow = replace(LINKS, slow_hosts=((3, 0.5),))
    found = found_in(slow)["slow_link"]
    assert found.title == "The link of node3 is slow" and found.evidence.startswith("2 of 6 groups have 50") and not found.candidate
    assert found.saving == pytest.approx(per_step(slow, LINKS), rel=0.05)
    # GIVEN two hosts that all groups contain, and one rank whose link is slow THEN the pair of ranks is named
    two = Job(tp=8, dp=2, layers=4, steps=3, slow_links=((3, 0.5),), bucket_bytes=128 << 20)
    pair = found_in(two)["slow_link"]
    assert pair.title == "The link of rank 3 or rank 11 is slow" and pair.evidence.startswith("1 of 8 groups has 50")
    assert pair.saving == pytest.approx(per_step(two, replace(two, slow_links=())), rel=0.05)
    # WHEN every group contains that host, or no link is slow THEN nothing is said
    assert "slow_link" not in found_in(Job(tp=2, dp=4, ranks_per_host=2, slow_hosts=((1, 0.5),))) and "slow_link" not in found_in(LINKS)


def test_large_collectives_far_below_their_link() -> None:
    # GIVEN reductions of 4 to 32 MB at 40 GB/s over links that carry 450 THEN they save what they do at 450; at 400 GB/s nothing is said
    job = Job(dp=8, layers=4, steps=6, blocking=True, inside=40e9)
    found = found_in(job)["link_below_peak"]
    assert found.title.replace(NARROW, " ") == "Large collectives reach 8.5 % of the link"
    assert found.saving == pytest.approx(per_step(job, replace(job, inside=450e9)), rel=0.1) and "450" in found.evidence
    assert "link_below_peak" not in found_in(replace(job, inside=400e9))


def test_members_that_disagree_are_reported_though_they_cost_no_time_that_is_known() -> None:
    # GIVEN rank 3 that reduces another number of bytes in one call
    made = simulate(Job(dp=4, layers=2, steps=2))
    members = made.members()
    assert inconsistent_collectives(job_of_members(members)) is None
    rows = {name: np.array(column) for name, column in unpack(members[3].summary.rows, ROWS).items()}
    rows["bytes_in"][1] *= 2
    members[3] = members[3]._replace(summary=msgspec.structs.replace(members[3].summary, rows=pack(rows, ROWS)))
    found = inconsistent_collectives(job_of_members(members))
    # THEN it says which ranks call what, and no saving
    assert found is not None and found.saving_ns is None and found.link is not None and found.link.query["group"] == "[0-3] DATA_PARALLEL_GROUP"
    said = found.evidence.replace(NARROW, " ")
    assert said.startswith(f"1 of {len(job_of_members(members).found)} collectives; the first one is of [0-3] DATA_PARALLEL_GROUP (number 2, step 0): rank 0 calls all_reduce bf16 of 16")
    assert "rank 3 all_reduce bf16 of 33" in said


def test_small_collectives_in_a_row_are_one() -> None:
    # GIVEN 60 reductions of 8 kB one after the other THEN 59 of 60 alphas of 35 us are saved; where computation lies between, nothing
    found = found_in(SMALL)["small_collectives"]
    assert found.candidate and found.saving == pytest.approx(59 * 35_000, rel=0.05)
    assert found.saving == pytest.approx(per_step(SMALL, replace(SMALL, small=1)), rel=0.05)
    assert "small_collectives" not in found_in(replace(JOB, activation_bytes=8192))


def test_unequal_shares_of_an_all_to_all() -> None:
    # GIVEN a rank that gets twice the tokens of the mean
    found = found_in(EXPERTS)["uneven_all_to_all"]
    assert "rank 7 has it most often" in found.evidence and found.query == {"ranks": "7"}
    assert found.saving == pytest.approx(per_step(EXPERTS, replace(EXPERTS, experts=1.0001)), rel=0.6)
    assert "uneven_all_to_all" not in found_in(replace(EXPERTS, experts=1.2))


def test_communication_in_the_open_by_its_parallelism() -> None:
    # GIVEN reductions that computation waits for THEN DP is reported; waits for a late rank are none of it
    job = Job(dp=16, layers=6, steps=3, blocking=True)
    found = found_in(job)["exposed_communication"]
    assert found.title.startswith("DP communication") and "bucket" in found.fix and found.color == "communication"
    late = replace(JOB, layers=8, buckets=1, stragglers=(Slow(5, "dataloader", 20e6),))
    assert set(found_in(late)) == {"straggler"}


def test_a_stage_that_is_longer_and_the_bubble_of_the_schedule() -> None:
    # GIVEN a pipeline of four stages, the second of which takes 1.2 times as long THEN equal stages of the same work save what they do
    even = Job(tp=2, pp=4, dp=2, layers=3, micro_batches=12)
    slow = replace(even, stragglers=tuple(Slow(rank, "compute", 1.2) for rank in range(4, 8)))
    found = found_in(slow)
    assert found["stage_imbalance"].title.startswith("Stage 1 of the pipeline") and "straggler" not in found
    equal = replace(even, stragglers=tuple(Slow(rank, "compute", 1.05) for rank in range(16)))
    assert found["stage_imbalance"].saving == pytest.approx(per_step(slow, equal), rel=0.05)
    # AND of even stages the schedule alone waits (4 - 1) / 12 of the work of a stage, half of which goes with 24 micro-batches
    found = found_in(even)
    assert set(found) == {"pipeline_bubble"} and found["pipeline_bubble"].candidate
    assert found["pipeline_bubble"].saving == pytest.approx(3 / 12 * 12 * 3 * 3e6 / 2, rel=0.15)
    assert "pipeline_bubble" not in found_in(replace(even, micro_batches=40, layers=1, steps=1))


def test_nothing_is_claimed_without_an_exact_replay() -> None:
    alone = job_of_members(simulate(JOB).members()[:1])
    assert rank_context(alone) is None and rank_context(job_of_members([])) is None
    documented = (Path(__file__).parents[4] / "docs" / "findings.md").read_text()
    assert all(f"| `ranks_{name}` |" in documented for name in RULES)
