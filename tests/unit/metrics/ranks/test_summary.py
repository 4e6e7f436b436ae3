"""What is summarized of one rank: groups by what recorders write of them, kinds, sizes, and what is left out of long recordings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics.ranks import summary as S
from tb_sol_plugin.metrics.ranks.calls import Member, calls_of
from tb_sol_plugin.metrics.ranks.group_kinds import group_kinds
from tb_sol_plugin.metrics.ranks.job import job_of_members
from tb_sol_plugin.metrics.ranks.matching import matched
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables.packed import unpack
from tests.support.rank_factory import Job, simulate
from tests.support.trace_builder import TraceBuilder


def summarized(t: TraceBuilder, folder: Path) -> tuple[S.RankSummary, dict[str, Any]]:
    found = S.summary_of_rank(ingest.read(str(t.write(folder / "rank.pt.trace.json"))), Query())
    return found, unpack(found.rows, S.ROWS)


def named(name: str, description: str, ranks: str, **more: Any) -> dict[str, Any]:
    return {"Process Group Name": name, "Process Group Description": description, "Process Group Ranks": ranks, **more}


def test_groups_by_whatever_names_their_ranks(tmp_path: Path) -> None:
    # GIVEN a group whose list is whole, one whose list is cut and stands in the header, one with a start and a stride alone, a second one
    # of the same ranks and description, and a kernel without arguments on the stream of the first
    t = TraceBuilder(rank=8, world_size=64)
    ranks = list(range(0, 64, 8))
    t.header["distributedInfo"] = {
        "rank": 8,
        "world_size": 64,
        "pg_config": [{"pg_name": "5", "pg_desc": "mesh_dp", "ranks": ranks, "pg_size": 8}],
    }
    t.collective("allreduce", 1_000, 500, elements=8, stream=20, group_size=2, args=named("1", "mesh_tp", "[9, 8]", Seq=4))
    t.collective("allreduce", 2_000, 500, elements=8, stream=21, group_size=8, args=named("5", "", "[0, 8, ..., 56]"))
    t.collective("_allgather_base", 3_000, 500, elements=8, out_elements=32, stream=21, group_size=4, args=named(
        "7", "mesh_cp", "", **{"Global rank start": 8, "Global rank stride": 1}))  # fmt: skip
    t.collective("allreduce", 4_000, 500, elements=8, stream=21, group_size=2, args=named("2", "mesh_tp", "[8, 9]"))
    t.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 5_000, 500, stream=20)
    t.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 6_000, 500, stream=21)
    found, rows = summarized(t, tmp_path)
    # THEN each is known by its ranks; the two alike are told apart by their order; the last kernel could be of three groups, so of none
    assert [(g.description, g.ranks, g.size) for g in found.groups] == [
        ("mesh_tp", "8:1:2", 2), ("mesh_dp", "0:8:8", 8), ("mesh_cp", "8:1:4", 4), ("mesh_tp", "8:1:2", 2),
    ]  # fmt: skip
    assert len({g.key for g in found.groups}) == 4 and rows["group"].tolist() == [0, 1, 2, 3, 0, -1]
    assert rows["seq"].tolist() == [4, -1, -1, -1, -1, -1] and [S.KINDS[k] for k in rows["kind"].tolist()][2] == "all_gather"
    assert rows["bytes_in"].tolist() == [32, 32, 32, 32, -1, -1] and rows["bytes_out"][2] == 128
    assert rows["step"].tolist() == [-1] * 6 and found.steps.count == 0


def test_a_communicator_tells_groups_apart_and_calls_by_the_range_around_them(tmp_path: Path) -> None:
    # GIVEN two communicators over the same ranks, the second seen first on the other rank THEN keys go with communicators
    def one(order: tuple[str, str], folder: Path) -> S.RankSummary:
        t = TraceBuilder(rank=0, world_size=2)
        for i, communicator in enumerate(order):
            t.collective(
                "allreduce", 1_000 * (i + 1), 500, elements=8, args=named("0", "x", "[0, 1]", **{"Comms Id": communicator})
            )
        return summarized(t, folder)[0]

    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    first, second = one(("17", "99"), tmp_path / "a"), one(("99", "17"), tmp_path / "b")
    assert [g.key for g in first.groups] == [g.key for g in second.groups][::-1]
    # AND a kernel named SendRecv is what the range around its launch says
    t = TraceBuilder(rank=0, world_size=2)
    t.annotation("nccl:all_to_all", 900, 2_000)
    t.launch("ncclDevKernel_SendRecv(x)", at=1_000, start=1_500, duration=500, stream=20)
    t.launch("ncclDevKernel_SendRecv(x)", at=5_000, start=5_500, duration=500, stream=20)
    assert [S.KINDS[k] for k in summarized(t, tmp_path)[1]["kind"].tolist()] == ["all_to_all", "unknown"]


def test_a_number_of_each_call_makes_no_group_of_it(tmp_path: Path) -> None:
    # GIVEN two groups, and a hash of group and sequence number with each call, as PyTorch writes it THEN these are two groups on each rank
    members = []
    for rank in range(2):
        t = TraceBuilder(rank=rank, world_size=2)
        for i in range(6):
            name, seq = str(i % 2), i // 2
            args = named(name, f"group {name}", "[0, 1]", **{"Comms Id": str(hash((name, seq))), "Seq": seq})
            t.collective("allreduce", 1_000 * (i + 1), 500, elements=8, args=args)
        members.append(Member(rank, f"node{rank}", summarized(t, tmp_path)[0]))
    assert [[g.name for g in m.summary.groups] for m in members] == [["0", "1"]] * 2
    found = matched(calls_of(members))
    assert found.present.tolist() == [2] * 6 and len(found.calls.groups) == 2


def test_a_pair_without_ranks_is_the_other_one_of_its_group(tmp_path: Path) -> None:
    # GIVEN rank 3 sends within a group of two, and names no peers THEN it sends to the other one, and that one receives from it
    members = []
    for rank, kind in ((3, "send"), (7, "recv")):
        t = TraceBuilder(rank=rank, world_size=8)
        t.collective(kind, 1_000, 500, elements=8, args=named("4", "PIPELINE", "[3, 7]", Seq=1))
        members.append(Member(rank, f"node{rank}", summarized(t, tmp_path)[0]))
    calls = calls_of(members)
    assert calls["source"].tolist() == [3, 3] and calls["target"].tolist() == [7, 7]
    assert matched(calls).present.tolist() == [2]


def test_of_too_many_calls_those_of_a_few_steps_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN room for 60 calls, and nine steps of 18 THEN the three in the middle are kept, and what is left out is counted
    job = Job(tp=2, dp=2, layers=4, steps=9, buckets=1)
    whole = unpack(simulate(job).summary(0).rows, S.ROWS)
    monkeypatch.setattr(S, "MOST_ROWS", 60)
    found = simulate(job).summary(0)
    rows = unpack(found.rows, S.ROWS)
    assert sorted(set(rows["step"].tolist())) == [3, 4, 5] and found.left_out == len(whole["step"]) - len(rows["step"]) > 0
    kept = np.isin(whole["step"], [3, 4, 5])
    assert (rows["start_ns"] == whole["start_ns"][kept]).all()
    # AND what one waited for is the same call as before, or not known where that is left out
    same = rows["pred_row"][1:] + np.flatnonzero(kept)[0] == whole["pred_row"][kept][1:]
    assert same.all() and rows["pred_row"][0] == -1
    # AND a hostile recording of one endless step keeps so many
    monkeypatch.setattr(S, "MOST_ROWS", 5)
    assert simulate(job).summary(0).rows.count == 5


def test_a_rank_without_collectives_says_so(tmp_path: Path) -> None:
    t = TraceBuilder(rank=0, world_size=2)
    t.launch("gemm", at=0, start=500, duration=100)
    with pytest.raises(Unavailable, match="no collective ran on a device"):
        summarized(t, tmp_path)


def test_odd_arguments_are_not_known(tmp_path: Path) -> None:
    # GIVEN a type that is none, elements below 0, uneven splits, a list of ranks that is text THEN nothing is made up
    t = TraceBuilder(rank=0, world_size=2)
    t.collective("all_to_allv", 1_000, 500, elements=-4, dtype="Wide", args={"In split size": "[3, 5]", **named("9", "x", "all")})
    t.collective("wait", 2_000, 500, elements=8, args=named("9", "x", json.dumps([]), Seq="later"))
    found, rows = summarized(t, tmp_path)
    assert rows["bytes_in"].tolist() == [-1, 32] and rows["dtype"].tolist()[0] == -1 and rows["uneven"].tolist() == [True, False]
    assert {g.ranks for g in found.groups} == {""} and rows["seq"].tolist() == [-1, -1]


def test_collectives_that_went_out_together_are_one(tmp_path: Path) -> None:
    # GIVEN two kernels of one number from two records, the second of which starts behind computation, and a third of the next number
    t = TraceBuilder(rank=0, world_size=2)
    for at, seq in ((1_000, 3), (2_000, 3), (4_000, 4)):
        t.op("record_param_comms", at - 50, 40)
        correlation = t.call("cudaLaunchKernelExC", at - 40, 20, flow=True)
        t.collective("allreduce", at, 500, elements=8, stream=20, correlation=correlation, args=named("1", "mesh_dp", "[0, 1]", Seq=seq))
    t.kernel("gemm", 2_100, 300, stream=7)
    found, rows = summarized(t, tmp_path)
    # THEN they are one, of two parts: from the first start to the last end, with the sum of sizes and of what is exposed
    assert rows["seq"].tolist() == [3, 4] and rows["parts"].tolist() == [2, 1] and rows["bytes_in"].tolist() == [64, 32]
    assert rows["duration_ns"].tolist() == [1_500, 500] and rows["exposed_ns"].tolist() == [700, 500]
    pieces = unpack(found.pieces, S.PIECES)
    assert pieces["row"].tolist() == [0, 0, 0, 1] and pieces["offset_ns"].tolist() == [0, 1_000, 1_400, 0]
    assert rows["pred_row"].tolist() == [-1, 0]


def test_slack_is_what_computation_left(tmp_path: Path) -> None:
    # GIVEN a collective that starts at 1000 us and is waited for from 1805 us on, one waited for at once, one that nothing waits for
    t = TraceBuilder(rank=0, world_size=2)
    for at, long, stream in ((1_000, 1_000, 20), (3_000, 500, 20), (4_000, 100, 21)):
        correlation = t.call("cudaLaunchKernelExC", at * 1_000 - 20, 10, flow=True)
        t.collective(
            "allreduce", at * 1_000, long * 1_000, elements=8, stream=stream, correlation=correlation, args=named("1", "dp", "[0, 1]")
        )
    for at, long in ((0, 900), (1_100, 700), (2_010, 900), (3_520, 1_000)):
        t.launch("gemm", at=max(at - 1_990, 0) * 1_000, start=(at + 5) * 1_000, duration=long * 1_000, stream=7)
    assert summarized(t, tmp_path)[1]["slack_ns"].tolist() == [805_000, 0, -1]


def test_collectives_of_gloo_are_ranges_of_its_threads(tmp_path: Path) -> None:
    # GIVEN two ranks without a device: operators on one thread, ranges of gloo on another; rank 1 computes 3 ms longer
    members = []
    for rank, much in ((0, 0), (1, 3_000_000)):
        t = TraceBuilder(rank=rank, world_size=2, header={"host_name": "vm"})
        t.header["distributedInfo"] = {
            "rank": rank, "world_size": 2, "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}],
        }  # fmt: skip
        for number, begin in enumerate((0, 10_000_000)):
            t.step(number, begin, 10_000_000)
            t.op("aten::mm", begin + 100_000, 1_000_000 + much)
            t.op("c10d::allreduce_", begin + 1_150_000 + much, 10_000)
            t.annotation("gloo:all_reduce", begin + 1_200_000 + much, 3_500_000 - much, thread=77)
        found, rows = summarized(t, tmp_path)
        members.append(Member(rank, "vm", found))
    assert found.host_only and [(g.description, g.ranks) for g in found.groups] == [("default_pg", "0:1:2")]
    assert rows["step"].tolist() == [0, 1] and rows["launch_ns"].tolist() == [4_150_000, 14_150_000]
    assert rows["bytes_in"].tolist() == [-1, -1] and rows["duration_ns"].tolist() == [500_000] * 2
    # THEN they match, wait for rank 1, and steps have what operators and collectives take
    job = job_of_members(members)
    assert job.found.present.tolist() == [2, 2] and job.waits.late_rank.tolist() == [1, 1] and job.waits.transfer_ns.tolist() == [500_000] * 2
    steps = unpack(found.steps, S.STEPS)
    assert steps["kernel_ns"].tolist() == [4_000_000] * 2 and steps["exposed_communication_ns"].tolist() == [500_000] * 2
    assert steps["idle_ns"].tolist() == [5_500_000] * 2


@pytest.mark.parametrize("recorded", [True, False])
def test_gradients_that_the_backward_pass_reduces_are_data_parallelism(tmp_path: Path, recorded: bool) -> None:
    # GIVEN two buckets of 4 MB that hooks of the backward pass reduce, a loss of 4 bytes outside of it, and a group that reduces in both
    t = TraceBuilder(rank=0, world_size=4)

    def reduce(at: int, elements: int, group: str, ranks: str, *, backward: bool) -> None:
        if backward and recorded:
            t.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", at, 900, thread=7)
        t.op("c10d::allreduce_", at + 10, 800, thread=7 if backward else None)
        correlation = t.call("cudaLaunchKernelExC", at + 20, 50, thread=7 if backward else None, flow=True)
        t.collective("allreduce", at + 200, 300, elements=elements, group_size=4, correlation=correlation, args=named(group, "default_pg", ranks))

    for i in range(2):
        reduce(2_000 + 2_000 * i, 1_000_000, "0", "[0, 1, 2, 3]", backward=True)
        reduce(10_000 + 4_000 * i, 1_000_000, "1", "[0, 2]", backward=bool(i))
    reduce(20_000, 1, "0", "[0, 1, 2, 3]", backward=False)
    found, _ = summarized(t, tmp_path)
    # THEN all but the loss is of the backward pass: the first group is data parallelism; the other one may be anything, as where no
    # function of the backward pass is recorded
    assert [g.backward for g in found.groups] == ([pytest.approx(8_000_000 / 8_000_004), 0.5] if recorded else [None, None])
    kinds = group_kinds(calls_of([Member(0, "a", found), Member(1, "b", found), Member(2, "c", found), Member(3, "d", found)]))
    assert [(k.kind, k.confidence) for k in kinds] == [("DP", "inferred") if recorded else ("", "unknown"), ("", "unknown")]
