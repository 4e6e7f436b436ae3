"""Waits, the replay and the stragglers that it finds, against jobs whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tb_sol_plugin.metrics.ranks.calls import calls_of
from tb_sol_plugin.metrics.ranks.clocks import clocks
from tb_sol_plugin.metrics.ranks.job import job_of_members, ranks_of_run
from tb_sol_plugin.metrics.ranks.matching import matched
from tb_sol_plugin.metrics.ranks.own_time import CAUSES
from tb_sol_plugin.metrics.ranks.replay import model_of
from tb_sol_plugin.metrics.ranks.reports import notices
from tb_sol_plugin.metrics.ranks.stragglers import Stragglers, Suspect, robust_z, stragglers
from tb_sol_plugin.metrics.ranks.waiting import Waits, believed, unrecorded, waits
from tb_sol_plugin.model.recordings import RecordingReduction
from tests.support.rank_factory import Job, Made, Slow, simulate, without

JOB = Job(tp=8, dp=4, layers=6, steps=4)


def waited(made: Made, order: list[int] | None = None) -> Waits:
    found = matched(calls_of(made.members(order or ())))
    return waits(found, clocks(found))


def found_in(made: Made) -> Stragglers:
    return stragglers(model_of(waited(made)))


def named(found: Stragglers) -> list[tuple[int, str]]:
    return [(int(found.calls.ranks[s.at]), CAUSES[s.cause]) for s in found.suspects]


def first(found: Stragglers) -> Suspect:
    return found.suspects[0]


@pytest.mark.parametrize("job", [JOB, Job(tp=2, pp=2, dp=4, layers=3, micro_batches=4), Job(dp=16, layers=6, steps=3, blocking=True)])
def test_transfer_and_wait_are_the_duration_and_near_the_truth(job: Job) -> None:
    made = simulate(job)
    w = waited(made)
    found, rows = w.found, w.found.rows
    sync = found.sync[found.number]
    # GIVEN every kind that all members wait in THEN transfer and wait add up to each member's duration exactly
    duration = found.calls["duration_ns"][rows]
    assert (w.transfer_ns[found.number][sync] + w.wait_ns[sync] == duration[sync]).all()
    # AND waits are those that were made, within the microseconds in which members leave a collective
    error = np.abs(w.wait_ns - made.truth.wait_ns[rows])[sync]
    assert np.percentile(error, 50) < 1_500 and np.percentile(error, 99) < 10_000
    # AND the rank that all waited for is the one that was last, where it was last by more than that
    clear = sync & (w.lateness_ns[found.number] > 20_000)
    assert (w.late_rank[found.number] == made.truth.late[rows])[clear].all()
    assert not w.apart.any() and believed(found, w) is found
    # AND what is exposed has both parts, exactly
    known = w.exposed_wait >= 0
    assert (w.exposed_wait + w.exposed_transfer == found.calls["exposed_ns"])[known].all() and known[rows[sync]].all()
    assert (w.exposed_transfer[known] >= 0).all() and (w.exposed_wait[known] <= w.wait_of_call[known]).all()


def test_a_receive_waits_for_its_send_where_clocks_are_good() -> None:
    made = simulate(Job(tp=2, pp=2, dp=4, layers=3, micro_batches=4))
    w = waited(made)
    pairs = ~w.found.calls.sync[w.found.rows]
    assert pairs.any() and np.percentile(np.abs(w.wait_ns - made.truth.wait_ns[w.found.rows])[pairs], 99) < 10_000
    # WHEN the clocks cannot be told THEN neither can these waits, nor skews
    alone = replace(w.clocks, grade=tuple("none" for _ in w.clocks.grade))
    unknown = waits(w.found, alone)
    assert (
        (unknown.wait_ns[pairs] == -1).all()
        and np.isnan(unknown.start_skew_ns).all()
        and (unknown.wait_ns[~pairs] == w.wait_ns[~pairs]).all()
    )


@pytest.mark.parametrize("cause", ["compute", "host", "dataloader"])
@pytest.mark.parametrize("job", [JOB, Job(dp=8, layers=6, steps=4), Job(tp=2, pp=2, dp=4, layers=3, steps=4, micro_batches=4)])
def test_a_straggler_is_found_with_its_cause_and_cost(job: Job, cause: str) -> None:
    # GIVEN one slow rank
    slow = replace(job, stragglers=(Slow(5, cause, 1.15 if cause == "compute" else 4e6),))  # type: ignore[arg-type]
    made = simulate(slow)
    found = found_in(made)
    model = found.model
    # THEN the replay of the job as it is takes as long as it did, and the path tiles that
    assert model.exact and abs(model.unchanged_ns / model.span_ns - 1) < 1e-3
    assert found.path.own_ns.sum() + found.path.transfer_ns.sum() == pytest.approx(model.span_ns, rel=1e-3)
    # AND that rank is the suspect, for that cause, in every step; no other rank costs 1 %
    assert named(found)[0] == (5, {"compute": "kernel"}.get(cause, cause))
    assert found.persistence(first(found)) == "systematic"
    assert all(s.saved_ns < 0.01 * model.span_ns for s in found.suspects[1:] if s.at != 5)
    # AND what it costs is what the same job takes less without it
    truth = made.truth.span_ns - simulate(without(slow, 5)).truth.span_ns
    assert first(found).saved_ns == pytest.approx(truth, rel=0.02)
    if cause == "compute":
        assert first(found).factor == pytest.approx(1.15, abs=0.005) and first(found).uniform


@pytest.mark.parametrize("cause", ["compute", "dataloader"])
@pytest.mark.parametrize("job", [
    Job(dp=8, layers=6, steps=4, bucket_bytes=512 << 20),
    Job(dp=16, layers=6, steps=3),
    Job(pp=2, dp=4, layers=3, steps=3, micro_batches=4, bucket_bytes=256 << 20),
])  # fmt: skip
def test_what_a_straggler_costs_is_exact_where_buckets_queue(job: Job, cause: str) -> None:
    # GIVEN reductions of gradients that pile up behind each other, later than the computation of all ranks but the slow one
    slow = replace(job, stragglers=(Slow(5, cause, 1.15 if cause == "compute" else 4e6),))  # type: ignore[arg-type]
    made = simulate(slow)
    found = found_in(made)
    assert (found.calls["stream_lag_ns"] >= 0).any()
    # THEN what the rank costs is what the same job takes less without it: in the first step, too, where no collective came before
    truth = made.truth.span_ns - simulate(without(slow, 5)).truth.span_ns
    assert int(found.calls.ranks[first(found).at]) == 5 and first(found).saved_ns == pytest.approx(truth, rel=0.02)


def test_clocks_that_are_off_by_microseconds_do_not_make_another_rank_the_last() -> None:
    # GIVEN ranks whose devices' clocks differ by 30 us and that no collective inside one host joins
    slow = Job(dp=16, layers=6, steps=3, blocking=True, device_ns=30_000.0, stragglers=(Slow(5, "compute", 1.03),))
    made = simulate(slow)
    found = found_in(made)
    truth = made.truth.span_ns - simulate(without(slow, 5)).truth.span_ns
    assert found.model.exact and first(found).saved_ns == pytest.approx(truth, rel=0.02)


def test_an_even_job_has_no_suspects() -> None:
    found = found_in(simulate(JOB))
    assert found.model.exact and all(s.saved_ns < 0.01 * found.model.span_ns for s in found.suspects)


def test_a_hidden_straggler_saves_only_together_with_the_first() -> None:
    # GIVEN a slow input of 6 ms before which a host stall of 3 ms on another rank hides
    slow = replace(JOB, stragglers=(Slow(5, "dataloader", 6e6), Slow(20, "host", 3e6)))
    made = simulate(slow)
    found = found_in(made)
    assert named(found)[:2] == [(5, "dataloader"), (20, "host")]
    one, two = found.suspects[:2]
    alone = made.truth.span_ns - simulate(without(slow, 5)).truth.span_ns
    both = made.truth.span_ns - simulate(without(slow, 5, 20)).truth.span_ns
    assert one.saved_ns == pytest.approx(alone, rel=0.02) and two.together_ns == pytest.approx(both, rel=0.02)
    assert two.saved_ns == pytest.approx(0, abs=1e5) and two.path_excess_ns <= 0.01 * found.model.span_ns


def test_a_host_that_is_slow_as_a_whole_is_one() -> None:
    # GIVEN all eight ranks of the second host compute 10 % longer THEN none of them alone costs much, the host does
    slow = replace(JOB, stragglers=tuple(Slow(rank, "compute", 1.1) for rank in range(8, 16)))
    made = simulate(slow)
    found = found_in(made)
    host = found.hosts[0]
    truth = made.truth.span_ns - simulate(replace(slow, stragglers=())).truth.span_ns
    assert (found.calls.domains[host.domain], CAUSES[host.cause], host.ranks) == ("node1", "kernel", tuple(range(8, 16)))
    assert host.saved_ns == pytest.approx(truth, rel=0.03) and max(s.saved_ns for s in found.suspects) < 0.2 * truth
    assert not found_in(simulate(replace(JOB, stragglers=(Slow(5, "compute", 1.1),)))).hosts


def test_one_stall_is_single() -> None:
    found = found_in(simulate(replace(JOB, stragglers=(Slow(5, "host", 8e6, step=2),))))
    assert named(found)[0] == (5, "host") and found.persistence(first(found)) == "single"


def test_who_comes_last_is_not_who_is_slow() -> None:
    # GIVEN a slow rank of a tensor-parallel group THEN its seven neighbors come last to the groups of DP as often as it does, and have no excess
    made = simulate(replace(JOB, blocking=True, stragglers=(Slow(5, "host", 4e6),)))
    found = found_in(made)
    assert found.arrived_last[:8].max() > 0 and {rank for rank, _ in named(found) if rank < 8} == {5}


def test_numbers_do_not_change_with_the_order_of_files_or_the_clocks() -> None:
    slow = replace(JOB, stragglers=(Slow(5, "dataloader", 6e6), Slow(20, "host", 3e6)))
    made = simulate(slow)
    plain = found_in(made)
    mixed = stragglers(model_of(waited(made, np.random.default_rng(2).permutation(32).tolist())))
    made.offset += 3_600_000_000_000
    shifted = found_in(made)
    for other in (mixed, shifted):
        assert named(other) == named(plain)
        assert [s.saved_ns for s in other.suspects] == pytest.approx([s.saved_ns for s in plain.suspects], abs=50)


def test_a_cut_job_with_missing_ranks_still_names_its_straggler() -> None:
    found = found_in(simulate(replace(JOB, steps=6, cut=15, missing=(9, 17), stragglers=(Slow(5, "dataloader", 6e6),))))
    assert named(found)[0] == (5, "dataloader") and found.model.complete


def test_waits_prove_a_late_rank_that_is_not_recorded() -> None:
    # GIVEN rank 5 of 16, 3 ms late in each of four steps, without a recording THEN all others of its group waited so long for it
    job = Job(tp=8, dp=2, layers=4, steps=4)
    late = replace(job, missing=(5,), stragglers=(Slow(5, "dataloader", 3e6),))
    made = job_of_members(simulate(late).members())
    found = unrecorded(made.waits)
    assert found is not None and found.ranks == (5,) and found.collectives == 4 and found.wait_ns == pytest.approx(12e6, rel=0.01)
    assert any("A late rank is not recorded" in n.text and "rank 5 is missing" in n.text for n in notices(ranks_of_run([]), made))
    # AND not while recordings are being read, of which its may be one
    assert not any("late rank" in n.text for n in notices(ranks_of_run([RecordingReduction("rank5", "1", "", "waiting", 5)]), made))
    # AND nothing of the kind where it is on time, where it is another one, recorded, that is late, or where all are recorded
    for other in (replace(job, missing=(5,)), replace(late, missing=(6,)), replace(job, missing=(5,), imbalance=0.05), job):
        assert unrecorded(job_of_members(simulate(other).members()).waits) is None


def test_robust_z_by_hand() -> None:
    # GIVEN 1 2 3 4 100: median 3, deviations 2 1 0 1 97, their median 1 THEN 0.6745 * 97 / 1 = 65.4; of four values nobody is far
    z = robust_z(np.array([1.0, 2.0, 3.0, 4.0, 100.0, 1.0, 2.0, 3.0, 9.0]), np.array([0] * 5 + [1] * 4))
    assert z[4] == pytest.approx(65.4265) and z[2] == 0 and np.isnan(z[5:]).all()
