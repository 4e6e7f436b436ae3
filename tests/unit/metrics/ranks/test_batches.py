"""Batches of sends and receives: who exchanges what is recorded on the host, and both ends of a batch are one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin.analyses.ranks.collectives import peers_of
from tb_sol_plugin.metrics.ranks.calls import Member, calls_of
from tb_sol_plugin.metrics.ranks.job import job_of_members
from tb_sol_plugin.metrics.ranks.matching import matched
from tb_sol_plugin.metrics.ranks.pipeline import by_stage, pipeline
from tb_sol_plugin.metrics.ranks.summary import BATCH, KINDS, RankSummary
from tb_sol_plugin.metrics.ranks.traffic import traffic
from tests.support import batched_pipeline as B
from tests.support.trace_builder import TraceBuilder
from tests.unit.metrics.ranks.test_summary import summarized


@pytest.mark.parametrize("offset", [0, 300_000, 1_000_000_000])
@pytest.mark.parametrize("cut", [0, 5])
def test_both_ends_of_each_batch_are_one(offset: int, cut: int, tmp_path: Path) -> None:
    # GIVEN three steps of a pipeline of four stages on hosts whose clocks differ, recordings cut at different batches
    made = B.pipeline(stages=4, micro_batches=6, steps=3)
    calls = calls_of(made.members(tmp_path, cut=cut, offset=offset))
    found = matched(calls)
    # THEN every batch is matched with its other end, and with nothing else
    true = []
    for stage in range(4):
        lost = (stage * 7 % (cut + 1), stage * 5 % (cut + 1)) if cut else (0, 0)
        true += made.calls[stage][lost[0] : len(made.calls[stage]) - lost[1]]
    number = np.array([one.instance for one in true])
    assert not found.because and len(found.rows) == len(calls) == len(true)
    assert (found.least(number[found.rows]) == found.most(number[found.rows])).all() and len(found) == len(set(number.tolist()))
    assert not found.inconsistent.any() and (found.present == np.bincount(number)[number[found.first]]).all()
    # AND those that go both ways are batches, others sends and receives
    kinds = [KINDS[k] for k in calls["kind"].tolist()]
    assert kinds == ["p2p_batch" if c.sends and c.receives else "send" if c.sends else "recv" for c in true]
    assert [len(one) for one in calls.batches] == [2] * len(calls.batches)


def test_waits_bytes_and_stages_are_those_of_the_job(tmp_path: Path) -> None:
    made = B.pipeline(stages=3, micro_batches=4, steps=3)
    job = job_of_members(made.members(tmp_path))
    true = [one for stage in made.calls for one in stage]
    # a batch that goes both ways needs no clock: the later end has the transfer, the other one its wait
    both = job.calls["kind"] == BATCH
    wait = np.array([one.wait_ns for one in true])
    assert both.sum() == 2 * sum(c.sends and c.receives for c in made.calls[1])
    assert (job.waits.wait_of_call[both] == wait[both]).all() and set(job.waits.transfer_ns[job.found.sync].tolist()) == {B.TRANSFER}
    # every neighbor sends one activation or gradient per micro-batch and step
    frame = traffic(job.calls)
    pairs = {(s, t): n for s, t, n in zip(frame["source"], frame["target"], frame["send_bytes"], strict=True)}
    assert pairs == dict.fromkeys(((0, 1), (1, 0), (1, 2), (2, 1)), 4 * 3 * B.BYTES)
    found = pipeline(job.waits)
    assert found is not None and (found.stages, found.virtual) == (3, 1)
    assert by_stage(found)["micro_batches"].tolist() == [4, 4, 4]


def test_the_table_names_who_sends_to_whom(tmp_path: Path) -> None:
    ring, _, _ = read(batch(("send", 2), ("recv", 0), ("recv", None), ranks=[0, 1, 2]), tmp_path)
    two, _, _ = read(batch(ranks=[0, 1], rank=0), tmp_path)
    many = job_of_members([Member(1, "a", ring)])
    assert peers_of(many) == [None, "1 to 2, 0 to 1, unknown to 1"]
    assert peers_of(job_of_members([Member(0, "a", two)])) == [None, "0 and 1"]
    made = B.pipeline(stages=2, micro_batches=2, steps=1)
    assert set(peers_of(job_of_members(made.members(tmp_path)))) == {"0 to 1", "1 to 0", "0 to 1, 1 to 0"}


def batch(*parts: tuple[str, int | None], ranks: list[int], more: int = 0, coalesced: bool = True, rank: int = 1) -> TraceBuilder:
    """One batch. more: kernels that follow it at once."""
    t = TraceBuilder(rank=rank, world_size=8)
    t.collective("allreduce", 500, 100, elements=8, stream=20, group_size=len(ranks), args={
        "Process Group Name": "3", "Process Group Description": "PIPELINE_MODEL_PARALLEL_GROUP", "Process Group Ranks": str(ranks)})  # fmt: skip
    for number, (name, peer) in enumerate(parts):
        B.recorded(t, name, peer, at=1_000 + 200 * number, ranks=ranks)
    if coalesced:
        t.annotation("nccl:coalesced", 8_900, 600)
    for number in range(more + 1):
        t.launch(B.KERNEL, at=9_000 + 100 * number, start=20_000 * (number + 1), duration=5_000, call_duration=50, stream=20)
    return t


def read(t: TraceBuilder, folder: Path) -> tuple[RankSummary, list[str], list[int]]:
    found, rows = summarized(t, folder)
    return found, [KINDS[k] for k in rows["kind"].tolist()][1:], rows["parts"].tolist()[1:]


def test_several_peers_are_one_row_with_all_of_them(tmp_path: Path) -> None:
    ring = batch(("send", 2), ("recv", 0), ranks=[0, 1, 2])
    found, kinds, parts = read(ring, tmp_path)
    assert kinds == ["p2p_batch"] and parts == [2]
    assert [(m.peer, m.receives, m.bytes) for m in found.batches[0]] == [(2, False, B.BYTES), (0, True, B.BYTES)]
    # its rank is matched with no other one, and what it sends is counted
    calls = calls_of([Member(1, "a", found)])
    assert matched(calls).present.tolist() == [1, 1] and not calls.sync[1]
    assert traffic(calls).to_numpy().tolist() == [[1, 2, B.BYTES, 0]]


def test_one_way_to_one_rank_is_a_send_of_all_bytes(tmp_path: Path) -> None:
    found, kinds, parts = read(batch(("send", 2), ("send", 2), ranks=[0, 1, 2]), tmp_path)
    rows = calls_of([Member(1, "a", found)])
    assert (kinds, parts, found.batches) == (["send"], [2], ())
    assert (rows["source"][1], rows["target"][1], rows["bytes_in"][1]) == (1, 2, 2 * B.BYTES)


def test_the_other_rank_of_two_and_no_guess_among_more(tmp_path: Path) -> None:
    # GIVEN recorders that name no peer, or record no part at all
    for parts in ((("send", None), ("recv", None)), ()):
        found, kinds, _ = read(batch(*parts, ranks=[0, 1]), tmp_path)
        calls = calls_of([Member(1, "a", found)])
        # THEN in a group of two it is the other one, what goes which way only as recorded
        assert kinds == ["p2p_batch"] and {m.peer for m in calls.batches[0]} == {0} and calls.partner[1] == 0
        assert bool(calls.sync[1]) == bool(parts) and len(traffic(calls)) == bool(parts)
    found, kinds, _ = read(batch(("send", None), ("recv", None), ranks=[0, 1, 2]), tmp_path)
    calls = calls_of([Member(1, "a", found)])
    assert kinds == ["p2p_batch"] and {m.peer for m in calls.batches[0]} == {-1} and not len(traffic(calls))


@pytest.mark.parametrize("what", ["two kernels", "two groups", "another thread", "not coalesced"])
def test_what_is_not_sure_stays_unknown(what: str, tmp_path: Path) -> None:
    t = batch(("send", 2), ("recv", 2), ranks=[0, 1, 2], more=what == "two kernels", coalesced=False)
    if what == "two groups":
        B.recorded(t, "send", 5, at=2_000, ranks=[1, 5], group="4")
    elif what == "another thread":
        t = batch(ranks=[0, 1, 2])
        B.recorded(t, "send", 2, at=1_000, ranks=[0, 1, 2])
        t.events[-1]["tid"] = 99
    elif what == "not coalesced":
        t = batch(ranks=[0, 1], coalesced=False)
    found, kinds, _ = read(t, tmp_path)
    assert set(kinds) == {"unknown"} and found.batches == ()


def test_odd_numbers_of_recorders_are_unknown(tmp_path: Path) -> None:
    t = batch(("send", -7), ("recv", 4_000_000_000_000), ranks=[0, 1, 4_000_000_000_000])
    for event in t.events:
        if event["name"] == "record_param_comms":
            event["args"]["In msg nelems"] = (1 << 63) - 1  # type: ignore[index,call-overload]
    found, kinds, _ = read(t, tmp_path)
    calls = calls_of([Member(1, "a", found)])
    assert kinds == ["p2p_batch"] and {m.bytes for m in found.batches[0]} == {-1} and calls.batches[0][0].peer == -1
    assert pipeline(job_of_members([Member(1, "a", found)]).waits) is not None and not len(traffic(calls))


def test_ends_that_disagree_are_not_matched(tmp_path: Path) -> None:
    # GIVEN that one rank sends and receives in one batch, the other one twice as much
    one, _, _ = read(batch(("send", 2), ("recv", 2), ranks=[1, 2]), tmp_path)
    other, _, _ = read(batch(("send", 1), ("recv", 1), ("send", 1), ("recv", 1), ranks=[1, 2], rank=2), tmp_path)
    calls = calls_of([Member(1, "a", one), Member(2, "a", other)])
    found = matched(calls)
    assert found.present[calls["kind"][found.first] == BATCH].max() == 1 and "at no shift" in "".join(found.because.values())
