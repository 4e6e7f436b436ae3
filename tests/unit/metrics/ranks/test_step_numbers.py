"""Ranks that number their steps otherwise: the same job, the same late rank, and a notice; what does not tell is left as it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tb_sol_plugin.metrics.ranks.calls import Member, calls_of
from tb_sol_plugin.metrics.ranks.job import Job as Whole
from tb_sol_plugin.metrics.ranks.job import job_of_members, ranks_of_run
from tb_sol_plugin.metrics.ranks.matching import matched
from tb_sol_plugin.metrics.ranks.reports import notices
from tb_sol_plugin.metrics.ranks.step_numbers import renumbered, step_offsets
from tests.support.rank_factory import Job, Slow, simulate

JOB = Job(tp=2, dp=4, layers=3, steps=3, stragglers=(Slow(5, "dataloader", 3e6),))


def otherwise(members: list[Member], by: dict[int, int]) -> list[Member]:
    return renumbered(members, np.array([by.get(m.rank, 0) for m in members]))


def delays(job: Whole) -> list[tuple[int, float, int]]:
    return [(one.at, one.saved_ns, one.steps) for one in job.stragglers.suspects]


@pytest.mark.parametrize("by", [{5: 100}, {2: 100, 5: 7, 7: -0}, {0: 40, 1: 40, 2: 40}])
@pytest.mark.parametrize("seq", [True, False])
def test_steps_are_those_of_most_ranks(seq: bool, by: dict[int, int]) -> None:
    # GIVEN ranks that count their steps from elsewhere, with recorded numbers of calls and without
    members = simulate(replace(JOB, seq=seq)).members()
    plain, found = job_of_members(members), job_of_members(otherwise(members, by))
    # THEN they are matched, and the late rank costs the same in as many steps
    assert delays(found) == delays(plain) and found.steps == 3 and (found.found.present > 1).all()
    assert found.renumbered.tolist() == [-by.get(rank, 0) for rank in range(8)] and not plain.renumbered.any()
    # AND it is said
    text = " ".join(n.text for n in notices(ranks_of_run([]), found))
    assert "number their steps otherwise" in text or "numbers its steps otherwise" in text
    assert "steps otherwise" not in " ".join(n.text for n in notices(ranks_of_run([]), plain))


def test_recordings_that_begin_at_other_steps_are_left_as_they_are() -> None:
    # GIVEN recordings that were cut at different places THEN their steps have the same numbers already
    made = simulate(replace(JOB, layers=2, steps=6, cut=30))
    assert not job_of_members(made.members()).renumbered.any()


def test_collectives_that_contradict_each_other_move_no_step() -> None:
    # GIVEN a rank whose calls are of other steps, now one more, now two THEN nothing is made of it
    members = simulate(JOB).members()
    found = matched(calls_of(otherwise(members, {3: 50})))
    rows = np.flatnonzero(found.calls.at == 3)
    columns = dict(found.calls.columns)
    columns["step"] = np.array(columns["step"])
    columns["step"][rows[::2]] += 1
    assert step_offsets(replace(found, calls=replace(found.calls, columns=columns))).tolist() == [0] * 8
