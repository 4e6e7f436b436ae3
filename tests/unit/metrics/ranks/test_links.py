"""Groups and their parallelism, bandwidth by size and message curves, against jobs whose links are known."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.ranks.calls import calls_of
from tb_sol_plugin.metrics.ranks.clocks import clocks
from tb_sol_plugin.metrics.ranks.group_kinds import group_kinds, layout, told
from tb_sol_plugin.metrics.ranks.links import LEVELS, Peak, by_size, curves, huber, peaks, sizes_of
from tb_sol_plugin.metrics.ranks.matching import matched
from tb_sol_plugin.metrics.ranks.summary import ROWS, algorithm_of, kind_of, split_of
from tb_sol_plugin.metrics.ranks.traffic import traffic
from tb_sol_plugin.metrics.ranks.waiting import Waits, waits
from tb_sol_plugin.tables.packed import pack, unpack
from tests.support.rank_factory import Job, Made, simulate


def waited(made: Made) -> Waits:
    found = matched(calls_of(made.members()))
    return waits(found, clocks(found))


def test_the_curve_of_a_link_is_that_of_the_slowest_host() -> None:
    # GIVEN 16 hosts of two ranks, 21 GB/s and 35 us, one host at half of that, buckets of 4 to 32 MiB
    made = simulate(Job(tp=2, dp=16, ranks_per_host=2, layers=4, steps=8, slow_hosts=((3, 0.5),)))
    w = waited(made)
    kinds = group_kinds(w.found.calls)
    sizes = sizes_of(w, kinds)
    found = {(c.level, c.size): c for c in curves(w, sizes)}
    # THEN B is that of the slow host within 5 %, alpha within 20 us, half of the time is alpha at alpha * B
    one = found["between", 16]
    assert one.bytes_per_s == pytest.approx(10.5e9, rel=0.05) and one.alpha_ns == pytest.approx(35_000, abs=20_000)
    assert one.half_size_bytes == pytest.approx(35_000 * 10.5, rel=0.2) and one.instances == 64 and one.algorithm == "RING_LL"
    # AND one size alone, or few collectives, identify nothing and say what is missing
    assert found["inside", 2].why_not == "1 size, 3 are needed" and found["mixed", 32].why_not == "8 collectives, 20 are needed"
    # AND bandwidth is sizes over transfers, the bus one times 2 (n - 1) / n, its peak the link inside, what was observed between
    table = by_size(w, kinds, sizes, peaks(w, sizes, Peak(450e9, "NVLink"), 0.0)).set_index(["level", "bytes"])
    big = table.loc[("between", 32 << 20)]
    assert big["algorithm_bandwidth_bytes_per_s"] == pytest.approx((32 << 20) * big["count"] / big["transfer_ns"] * 1e9)
    assert big["bus_bandwidth_bytes_per_s"] == pytest.approx(big["algorithm_bandwidth_bytes_per_s"] * 2 * 15 / 16)
    assert big["peak_source"].startswith("observed") and 0.95 < big["efficiency"] <= 1.02
    inside = table.loc[("inside", 4 << 20)]
    assert (inside["peak_bytes_per_s"], inside["peak_source"], inside["group_kind"]) == (450e9, "NVLink", "TP")
    # AND a network that is given is the peak between hosts
    given = peaks(w, sizes, Peak(450e9, "NVLink"), 25e9)
    assert given[LEVELS.index("between")] == Peak(25e9, "given as nic_bytes_per_s") == given[LEVELS.index("mixed")]


def test_many_small_calls_do_not_lower_the_observed_ceiling() -> None:
    # GIVEN a pipeline that sends 4 MiB a hundred times as often as its stages reduce 32 MiB between the same hosts
    w = waited(simulate(Job(pp=2, dp=8, ranks_per_host=1, layers=1, steps=4, micro_batches=8, buckets=1)))
    sizes = sizes_of(w, group_kinds(w.found.calls))
    table = by_size(w, group_kinds(w.found.calls), sizes, peaks(w, sizes, Peak(None, ""), 0.0))
    assert len(table[table["bytes"] == 32 << 20]) == 1 and (table["efficiency"].dropna() <= 1.02).all()


def test_what_lacks_members_is_in_no_bandwidth() -> None:
    w = waited(simulate(Job(tp=2, dp=4, missing=(5,))))
    sizes = sizes_of(w, group_kinds(w.found.calls))
    assert sizes.usable.any() and (w.found.present == w.found.size)[sizes.usable].all()


def test_few_odd_points_do_not_move_a_curve() -> None:
    # GIVEN 40 points on 10 us + x / 2 GB/s, of which four took a millisecond longer
    x = np.tile([1e5, 1e6, 4e6, 1e7], 10)
    y = 10_000 + x / 2.0
    y[::11] += 1e6
    alpha, rate, residual = huber(x, y)
    assert alpha == pytest.approx(10_000, abs=1_000) and rate == pytest.approx(2e9, rel=0.01) and residual < 1_000


@pytest.mark.parametrize(
    ("description", "kind"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP", "TP"), ("DATA_PARALLEL_GROUP", "DP"), ("DATA_PARALLEL_GROUP_WITH_CP", "joint"), ("mesh_tp", "TP"),
        ("mesh_dp_shard", "DP"), ("PIPELINE_MODEL_PARALLEL_GROUP", "PP"), ("EXPERT_MODEL_PARALLEL_GROUP", "EP"), ("mesh_cp", "CP"),
        ("EXPERT_DATA_PARALLEL_GROUP", "expert DP"), ("CONTEXT_PARALLEL_GROUP", "CP"), ("EMBEDDING_GROUP", "embedding"),
        ("TENSOR_AND_CONTEXT_PARALLEL_GROUP", "joint"), ("POSITION_EMBEDDING_GROUP", "embedding"),
    ],
)  # fmt: skip
def test_descriptions_name_the_parallelism(description: str, kind: str) -> None:
    members = simulate(Job(tp=2, dp=1, layers=1)).members()
    renamed = [
        m._replace(
            summary=msgspec.structs.replace(
                m.summary, groups=tuple(msgspec.structs.replace(g, description=description) for g in m.summary.groups)
            )
        )
        for m in members
    ]
    found = group_kinds(calls_of(renamed))[0]
    assert (found.kind, found.confidence) == (kind, "stated")


def test_what_groups_are_used_for_where_nothing_describes_them() -> None:
    # GIVEN a pipeline, tensor parallelism inside of hosts and data parallelism between them, all described as "undefined"
    members = [
        m._replace(
            summary=msgspec.structs.replace(
                m.summary, groups=tuple(msgspec.structs.replace(g, description="undefined") for g in m.summary.groups)
            )
        )
        for m in simulate(Job(tp=2, pp=2, dp=2, ranks_per_host=2, layers=1, micro_batches=2)).members()
    ]
    calls = calls_of(members)
    found = {
        (calls.groups[i].ranks.tolist()[1] - calls.groups[i].ranks.tolist()[0], len(calls.groups[i].ranks)): k
        for i, k in enumerate(group_kinds(calls))
    }
    # THEN sends and receives are a pipeline, neighbors on one host a guess at tensor parallelism, the rest is not known, with the reason
    assert (found[4, 2].kind, found[4, 2].confidence, found[4, 2].level) == ("PP", "inferred", "between")
    assert (found[1, 2].kind, found[1, 2].confidence, found[1, 2].level) == ("TP", "guess", "inside")
    assert (found[2, 2].kind, found[2, 2].evidence) == ("", "the description 'undefined' names none")
    assert (found[1, 8].kind, found[1, 8].evidence, found[1, 8].level) == ("", "contains every rank of the job", "mixed")
    # WHEN a query states one THEN it stands above all
    assert {k.kind for k in group_kinds(calls, told("undefined:EP"))} == {"EP"}
    assert layout(calls, group_kinds(calls)) is None


def test_a_layout_multiplies_to_the_job() -> None:
    calls = calls_of(simulate(Job(tp=2, cp=2, pp=2, dp=2, layers=1)).members())
    assert layout(calls, group_kinds(calls)) == {"TP": 2, "CP": 2, "PP": 2, "DP": 2}


@pytest.mark.parametrize("text", ["mesh", ":TP", "mesh:XP", "a:TP,b"])
def test_kinds_that_cannot_be_stated(text: str) -> None:
    with pytest.raises(BadQuery, match="no kinds of groups"):
        told(text)


def test_names_of_kernels_and_calls() -> None:
    names = ("nccl:all_reduce", "ncclDevKernel_SendRecv(x)", "_allgather_base", "reduce_scatter_tensor_coalesced", "barrier", "recv 0<-1")
    assert [kind_of(n) for n in names] == [0, 12, 2, 1, 4, 10]
    kernels = ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", "ncclDevKernel_AllGather_RING_LL128(x)", "ncclDevKernel_SendRecv(x)", "gemm")
    assert [algorithm_of(n) for n in kernels] == [1, 2, 12, 0]


def test_who_sends_how_much_to_whom() -> None:
    # GIVEN an all_to_all of four ranks whose last one gets twice as much, two layers of two steps of 8 MiB THEN each sends 1, 1, 1, 2 fifths
    job = Job(dp=4, layers=2, steps=2, experts=2.0)
    members = simulate(job).members()
    found = traffic(calls_of(members)).set_index(["source", "target"])["all_to_all_bytes"]
    whole = 2 * 2 * 2 * job.activation_bytes
    assert len(found) == 12 and found[0, 3] == pytest.approx(whole * 2 / 5, rel=1e-4) == found[2, 3] and found[3, 0] == pytest.approx(whole / 5, rel=1e-4)
    # WHEN the shares are equal THEN they need not be recorded; a rank without a recording receives alone
    plain = [m._replace(summary=msgspec.structs.replace(m.summary, peers=None, rows=pack(unpack(m.summary.rows, ROWS) | {
        "uneven": np.zeros(m.summary.rows.count, np.bool_)}, ROWS))) for m in members[:3]]  # fmt: skip
    even = traffic(calls_of(plain)).set_index(["source", "target"])["all_to_all_bytes"]
    assert even[0, 1] == even[2, 3] == whole // 4 and len(even) == 9
    # AND sends are by their ranks, both ways between two stages
    pairs = traffic(calls_of(simulate(Job(tp=2, pp=2, dp=1, layers=2, steps=2, micro_batches=3)).members()))
    assert pairs[["source", "target"]].values.tolist() == [[0, 2], [1, 3], [2, 0], [3, 1]]
    assert set(pairs["send_bytes"]) == {2 * 3 * job.activation_bytes} and not pairs["all_to_all_bytes"].any()
    # AND texts that are no sizes are none
    assert split_of("[3, 5]").tolist() == [3, 5]  # type: ignore[union-attr]
    assert all(split_of(text) is None for text in ("[]", "[1]", "[0, 0]", "[1, -2]", "[1, ...]", "[" + "1, " * 20_000 + "1]", "ü" * 20_000))
