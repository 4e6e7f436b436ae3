"""Broadcasts and scatters come from the rank that the operator names, and all others wait for that one."""

from __future__ import annotations

from pathlib import Path

from tb_sol_plugin.metrics.ranks.calls import Calls, Member
from tb_sol_plugin.metrics.ranks.job import Job, job_of_members
from tests.support.trace_builder import TraceBuilder
from tests.unit.metrics.ranks.test_summary import named, summarized

RANKS = (3, 5, 7)
START = {3: 2_000, 5: 4_000, 7: 5_500}
END = 10_000


def job(folder: Path, *, root: int | None, name: str = "broadcast", hosts: tuple[str, ...] = ("a", "a", "a"), only: tuple[int, ...] = RANKS) -> Job:
    """One collective of a group of three, which all leave at the same time. root: its place in the group."""
    members = []
    for rank, host in zip(RANKS, hosts, strict=True):
        t = TraceBuilder(rank=rank, world_size=8)
        t.op("record_param_comms", 900, 500, args={} if root is None else {"Rank": root})
        call = t.call("cudaLaunchKernel", 1_000, 100, flow=True)
        group = named("4", "mesh", "[7, 3, 5]", Seq=1)
        t.collective(name, START[rank], END - START[rank], elements=8, group_size=3, correlation=call, args=group)
        if rank in only:
            members.append(Member(rank, host, summarized(t, folder)[0]))
    return job_of_members(members)


def sources(calls: Calls) -> list[int]:
    return [int(one) for one in calls["source"]]


def test_members_wait_for_the_root_and_no_other(tmp_path: Path) -> None:
    for name in ("broadcast", "scatter"):
        # GIVEN that the second rank of the group, which begins 2 us after the first, is the root
        found = job(tmp_path, root=1, name=name)
        assert sources(found.calls) == [5, 5, 5]
        # THEN the first waits these 2 us, the root and who comes after it for nothing, and the transfer is the least of what is left
        assert found.waits.wait_ns.tolist() == [2_000, 0, 0] and found.waits.transfer_ns.tolist() == [4_500]
        # AND nobody is late: the root has waited for none
        assert found.waits.late.tolist() == [-1]


def test_a_wait_is_at_most_as_long_as_the_call(tmp_path: Path) -> None:
    found = job(tmp_path, root=2)
    assert found.waits.wait_ns.tolist() == [3_500, 1_500, 0] and (found.waits.wait_ns <= found.calls["duration_ns"]).all()


def test_what_is_not_known_is_not_said(tmp_path: Path) -> None:
    # no root; a root that is no member; one without a recording; hosts whose clocks nothing joins; a kind whose root waits for all
    for found in (
        job(tmp_path, root=None), job(tmp_path, root=3), job(tmp_path, root=0, only=(5, 7)), job(tmp_path, root=1, hosts=("a", "b", "c")),
        job(tmp_path, root=1, name="reduce"), job(tmp_path, root=1, only=(5,)),
    ):  # fmt: skip
        assert set(found.waits.wait_ns.tolist()) == {-1} and found.waits.transfer_ns.tolist() == [-1]
