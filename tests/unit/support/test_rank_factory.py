"""The generator of runs of many ranks: the same by seed, its summaries are what its traces give, its times are what a job says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.metrics.ranks.summary import KINDS, OWN, PIECES, ROWS, STEPS, RankSummary, summary_of_rank
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables.packed import unpack
from tests.support.rank_factory import Job, Slow, simulate

QUIET = {"jitter": 0.0, "completion_ns": 0.0, "offset_ns": 0.0, "drift_ppm": 0.0, "device_ns": 0.0}


@pytest.mark.parametrize("rank", [1, 2, 7])
def test_a_summary_is_that_of_its_trace(rank: int, tmp_path: Path) -> None:
    # GIVEN a job with every kind of group, a host stall and a slow input WHEN a rank is written as a trace, read and summarized
    slow = (Slow(1, "host", 3e6), Slow(2, "dataloader", 2e6))
    made = simulate(Job(tp=2, pp=2, dp=2, layers=2, steps=2, micro_batches=2, experts=1.5, stragglers=slow))
    read = summary_of_rank(ingest.read(str(made.trace(rank).write(tmp_path / f"rank{rank}.pt.trace.json"))), Query())
    quick = made.summary(rank)
    # THEN both have the same groups, calls, times to the nanosecond of rounding, exposed stretches, causes and steps
    assert read.groups == quick.groups
    assert (read.device, read.absolute, read.left_out) == (quick.device, quick.absolute, 0)
    one, other = unpack(read.rows, ROWS), unpack(quick.rows, ROWS)
    for name in set(ROWS) - {"event"}:
        mine = one[name] + (read.origin_ns - quick.origin_ns if name in ("start_ns", "launch_ns") else 0)
        first = 1 if name in OWN else 0  # before the first call a trace begins with the launch of its step
        assert np.abs(mine.astype(np.float64) - other[name])[first:].max() <= 1, name
    assert read.peers is not None and read.peers == quick.peers and not read.peers_left
    pieces = [unpack(s.pieces, PIECES) for s in (read, quick)]
    assert pieces[0]["row"].tolist() == pieces[1]["row"].tolist()
    assert np.abs(pieces[0]["length_ns"] - pieces[1]["length_ns"]).max() <= 1
    steps = [unpack(s.steps, STEPS) for s in (read, quick)]
    assert steps[0]["step"].tolist() == steps[1]["step"].tolist() and steps[0]["complete"].all() and steps[1]["complete"].all()
    assert np.abs(steps[0]["collectives_ns"] - steps[1]["collectives_ns"]).max() <= 10


def test_a_quiet_job_takes_what_its_parts_take() -> None:
    # GIVEN two ranks on one host, no noise, two layers of 1 ms forward and 2 ms backward, two buckets of 32 and 16 MiB, blocking
    job = Job(dp=2, layers=2, steps=1, buckets=2, blocking=True, **QUIET)  # type: ignore[arg-type]
    made = simulate(job)
    # THEN the step is 6 ms, the buckets at alpha + 2 (n - 1) / n bytes / B, the norm of 4 bytes, and the end comes before the optimizer
    bucket = [35_000 + size / 150e9 * 1e9 for size in (32 << 20, 16 << 20)]
    norm = 35_000 + 4 / 150e9 * 1e9
    assert made.truth.span_ns == pytest.approx(6_000_000 + sum(bucket) + norm)
    assert made.truth.step_ns == pytest.approx(6_500_000 + sum(bucket) + norm)
    assert [KINDS[int(k)] for k in unpack(made.summary(0).rows, ROWS)["kind"]] == ["all_reduce"] * 3
    # AND buckets that run behind the backward pass: the first ends before it does, the last alone is waited for
    hidden = simulate(Job(dp=2, layers=2, steps=1, buckets=2, **QUIET))  # type: ignore[arg-type]
    assert hidden.truth.span_ns == pytest.approx(6_000_000 + bucket[1] + norm)


def test_a_seed_decides_everything() -> None:
    def key(summaries: list[RankSummary]) -> list[object]:
        return [(s.rows.columns, s.steps.columns, s.groups) for s in summaries]

    job = Job(tp=2, dp=2, cut=5, missing=(3,))
    assert key(simulate(job).summaries()) == key(simulate(job).summaries())
    assert key(simulate(Job(tp=2, dp=2, cut=5, missing=(3,), seed=1)).summaries()) != key(simulate(job).summaries())
    assert simulate(job).ranks == [0, 1, 2]
