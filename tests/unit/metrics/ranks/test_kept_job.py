"""Jobs that are kept on disk: every page is the same from them as from the reductions, and what is damaged is made again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tb_sol_plugin.metrics.ranks import job as J
from tb_sol_plugin.metrics.ranks.calls import Member
from tb_sol_plugin.model.answer import AnalysisRequest, from_ranks
from tb_sol_plugin.model.recordings import RecordingReduction, ReducedFacts
from tb_sol_plugin.model.registry import get
from tb_sol_plugin.model.report import Report, encode
from tb_sol_plugin.store.reductions import JobFiles
from tests.support.rank_factory import Job, Slow, simulate

PAGES = ("ranks", "stragglers", "imbalance", "collectives", "parallelism", "groups", "pipeline", "clocks")
SLOW = (Slow(1, "dataloader", 3e6), Slow(6, "host", 1.5e6))
JOBS = {
    "stages": Job(tp=2, pp=2, dp=2, layers=2, steps=3, micro_batches=2, stragglers=SLOW),
    "alone": Job(dp=4, layers=3, steps=3, stragglers=SLOW[:1]),
}


@pytest.fixture(autouse=True)
def small_jobs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(J, "LEAST_KEPT", 1)


def recordings(members: list[Member], place: JobFiles | None) -> list[RecordingReduction[msgspec.Struct]]:
    out = []
    for one in members:
        body = msgspec.msgpack.encode(one.summary)
        facts = ReducedFacts("kineto", one.rank, len(members), one.host, "nvidia", ("NVIDIA H100 80GB HBM3",), 0, True, (0, 1))
        out.append(RecordingReduction(
            f"w{one.rank}", "1", f"{one.rank}.json", "read", one.rank, facts, key=f"key{one.rank}", body=lambda body=body: body,
            decode=get("ranks").reduction.decode, place=place,
        ))  # fmt: skip
    return out


def pages(found: list[RecordingReduction[msgspec.Struct]]) -> list[bytes]:
    """All pages, two of them of one step as well, as a server sends them: of a process that knows nothing of the job yet."""
    out = []
    for name in PAGES:
        for raw in ({}, {"step": "1"}) if name in ("ranks", "parallelism") else ({},):
            J._JOBS.clear()
            report = from_ranks(AnalysisRequest(name, raw), found).report()
            assert isinstance(report, Report)
            out.append(encode(report))
    return out


@pytest.mark.parametrize("which", list(JOBS))
def test_every_page_is_the_same_from_a_job_that_was_kept(which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a job, in one case with a rank that no collective joins to the others
    members = simulate(JOBS[which]).members()
    if which == "alone":
        members[3] = replace_rows(members[3])
    plain = pages(recordings(members, None))
    # WHEN it is kept THEN pages are the same bytes from what was just made and from what another process finds
    place = JobFiles(tmp_path)
    assert pages(recordings(members, place)) == plain
    monkeypatch.setattr(J, "_made", lambda chosen: pytest.fail("made again"))
    assert pages(recordings(members, place)) == plain


def replace_rows(one: Member) -> Member:
    """The same rank with groups of its own."""
    groups = tuple(msgspec.structs.replace(g, key=f"other {g.key}") for g in one.summary.groups)
    return one._replace(summary=msgspec.structs.replace(one.summary, groups=groups))


def test_a_damaged_job_is_made_again_and_one_of_other_recordings_is_another(tmp_path: Path) -> None:
    members, place = simulate(JOBS["alone"]).members(), JobFiles(tmp_path)
    found = recordings(members, place)
    J._JOBS.clear()
    made = J.job_of(J.ranks_of_run(found))
    files = list((tmp_path / "jobs").rglob("*.part"))
    assert len(files) == 1
    # GIVEN a file with one byte changed THEN it is not believed, and is written once more
    body = bytearray(files[0].read_bytes())
    body[len(body) // 2] ^= 1
    files[0].write_bytes(body)
    J._JOBS.clear()
    again = J.job_of(J.ranks_of_run(found))
    assert again.waits.transfer_ns.tolist() == made.waits.transfer_ns.tolist() and files[0].read_bytes() != bytes(body)
    # AND while a rank is being read nothing is kept: the next moment it is another job
    waiting = [*found[:3], RecordingReduction("w3", "1", "3.json", "waiting", 3)]
    J._JOBS.clear()
    J.job_of(J.ranks_of_run(waiting))
    assert list((tmp_path / "jobs").rglob("*.part")) == files
    # AND a recording that was made anew is another job
    J._JOBS.clear()
    J.job_of(J.ranks_of_run([*found[:3], replace(found[3], key="new")]))
    assert len(list((tmp_path / "jobs").rglob("*.part"))) == 2


def test_a_kept_job_holds_arrays_that_nobody_can_change(tmp_path: Path) -> None:
    found = recordings(simulate(JOBS["alone"]).members(), JobFiles(tmp_path))
    J._JOBS.clear()
    job = J.job_of(J.ranks_of_run(found))
    assert not job.waits.start_ns.flags.writeable and job.waits.start_ns.flags.aligned
    with pytest.raises(ValueError, match="read-only"):
        job.calls.columns["start_ns"][0] = 1
    assert np.array_equal(job.calls.end, job.calls.start + job.calls["duration_ns"])


@pytest.mark.parametrize("state", ["failed", "lacking"])
def test_a_run_of_which_nothing_could_be_read_is_a_job_without_calls(state: str) -> None:
    # GIVEN two recordings of a run that could not be read, or hold no collectives WHEN their job is asked for THEN it has no calls
    broken = [RecordingReduction(f"w{i}", "1", f"{i}.json", state, i, problem="cut") for i in range(2)]  # type: ignore[arg-type]
    job = J.job_of(J.ranks_of_run(broken))
    assert len(job.calls) == 0 and job.recordings == ()
