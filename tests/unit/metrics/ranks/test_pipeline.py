"""Pipeline stages: bubbles of a noiseless 1F1B are those of its closed form, and a stage that is longer sets the pace."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from tb_sol_plugin.metrics.ranks.job import job_of_members
from tb_sol_plugin.metrics.ranks.pipeline import BUBBLES, Pipeline, by_stage, pipeline
from tests.support.rank_factory import Job, Slow, simulate

QUIET = Job(
    pp=4, dp=1, layers=2, steps=3, micro_batches=8, ranks_per_host=4, layer_ns=1e6, jitter=0.0, alpha_ns=0.0, completion_ns=1e-3,
    activation_bytes=2, optimizer_ns=0.0, drift_ppm=0.0, device_ns=0.0, offset_ns=0.0,
)  # fmt: skip


def found_in(job: Job) -> Pipeline:
    found = pipeline(job_of_members(simulate(job).members()).waits)
    assert found is not None
    return found


def test_bubbles_of_a_quiet_1f1b_are_those_of_its_schedule() -> None:
    # GIVEN four stages of two layers, forward 1 ms and backward 2 ms a layer, eight micro-batches
    found = found_in(QUIET)
    table = by_stage(found).set_index("stage")
    # THEN each stage computes 8 * 6 ms and waits (4 - 1) * 6 ms: stage s 2 s ms for its first activations, 4 s ms at the end
    assert table["compute_ns"].tolist() == pytest.approx([48e6] * 4, abs=20) and table["bubble_ns"].tolist() == pytest.approx([18e6] * 4, abs=50)
    assert table["bubble_warmup_ns"].tolist() == pytest.approx([0, 2e6, 4e6, 6e6], abs=50)
    assert table["bubble_cooldown_ns"].tolist() == pytest.approx([0, 4e6, 8e6, 12e6], abs=50)
    assert table["model_bubble_ns"].tolist() == pytest.approx([18e6] * 4, abs=20) and set(table["micro_batches"]) == {8.0}
    assert (found.stages, found.virtual) == (4, 1)
    # AND the parts of each rank and step add up to the nanosecond, to the step too
    rows = found.rows
    assert (rows[list(BUBBLES)].sum(axis=1) == rows["bubble_ns"]).all()
    assert (rows["compute_ns"] + rows["inside_ns"] + rows["bubble_ns"] == rows["duration_ns"]).all()


def test_communication_inside_a_stage_is_no_bubble() -> None:
    table = by_stage(found_in(Job(tp=2, pp=2, dp=2, layers=3, micro_batches=4)))
    assert (table["inside_ns"] > 1e6).all() and table["micro_batches"].tolist() == [4, 4] and table["ranks"].tolist() == [4, 4]
    slow = by_stage(found_in(replace(QUIET, stragglers=(Slow(1, "compute", 1.3),))))
    assert slow["of_mean"].tolist() == pytest.approx([1 / 1.075, 1.3 / 1.075, 1 / 1.075, 1 / 1.075], rel=1e-3)


def test_without_stages_there_is_no_pipeline() -> None:
    assert pipeline(job_of_members(simulate(Job(tp=2, dp=2)).members()).waits) is None
    # GIVEN sends and receives of which no group is known THEN there is none either
    members = [m._replace(summary=msgspec.structs.replace(m.summary, groups=tuple(msgspec.structs.replace(g, ranks="") for g in m.summary.groups)))
               for m in simulate(replace(QUIET, steps=1)).members()]  # fmt: skip
    assert pipeline(job_of_members(members).waits) is None


def test_interleaved_stages_are_counted() -> None:
    # GIVEN stage 0 of three sends each micro-batch to the next stage twice, since the last one sends it back once
    job = job_of_members(simulate(replace(QUIET, pp=3, ranks_per_host=3, steps=1)).members())
    calls = job.calls
    sent = np.flatnonzero((calls["kind"] == 9) & (calls["source"] == 1) & (calls["target"] == 2))
    assert len(sent) == 8
    more = {name: np.concatenate((column, column[:0])) for name, column in calls.columns.items()}
    half = np.flatnonzero((more["source"] == 1) & (more["target"] == 0) & (more["kind"] == 10))[:4]
    more["source"][half], more["target"][half] = 2, 0
    waits = replace(job.waits, found=replace(job.waits.found, calls=replace(calls, columns=more)))
    found = pipeline(waits)
    assert found is not None and found.virtual == 2 and set(found.rows["micro_batches"]) == {4}
