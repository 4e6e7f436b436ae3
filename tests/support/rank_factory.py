"""Makes runs of many ranks whose truth is known: a job of TP x CP x PP x DP ranks, simulated call by call, on hosts whose clocks differ.

    made = simulate(Job(tp=8, dp=16, layers=4, steps=3, stragglers=(Slow(5, "host", 2_000_000),)))
    summaries = made.summaries()                  # what `summary_of_rank` makes of each rank, without files
    made.write(folder)                            # Kineto traces, one per rank
    made.truth.wait_ns, made.truth.span_ns, ...   # per collective of each rank, in order of rank and start

Rank = tp + TP (cp + CP (dp + DP pp)). Per step and micro-batch each layer computes twice forward and twice backward, with an all_reduce of
TP after each and an all_gather (backward a reduce_scatter) of CP; stages of PP run 1F1B and send activations; during the last backward
pass buckets are reduced over DP, asynchronously unless `blocking`, and `small` more of 8 kB each, one after the other; then all ranks
reduce a norm, and the optimizer runs. `experts` above 1 has each layer exchange tokens over DP (all_to_all), of which the last rank of a group
gets so many times as many. `imbalance` is the deviation of the amount of data of a rank and step, as a part of it. All members of a
collective end together, a completion skew apart: at the latest start + alpha + wire bytes / B of the slowest member. The same seed gives
the same noise with and without stragglers, so that the saving of removing one is known.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from tb_sol_plugin.metrics.ranks import summary as S
from tb_sol_plugin.metrics.ranks.by_name import BY, TOTALS, totals
from tb_sol_plugin.metrics.ranks.calls import Member
from tb_sol_plugin.metrics.ranks.own_time import Activity, Work, dependencies, exposed
from tb_sol_plugin.metrics.ranks.process_groups import Group, group_key
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables import members
from tb_sol_plugin.tables.arrays import Floats, Ints
from tb_sol_plugin.tables.packed import Packed, pack
from tests.support.trace_builder import TraceBuilder

BASE_NS: Final = 1_700_000_000_000_000_000
START_NS: Final = 50_000_000
"""When the first step begins: recordings begin at 0."""
LEAD_NS: Final = 200_000
"""The host launches so long before its device gets there."""
GEMM: Final = "sm90_xmma_gemm_bf16"
SMALL_BYTES: Final = 8192
COMPUTE, TP, CP, PP, DP = 7, 20, 21, 22, 24
"""Streams."""
NAMES: Final = {
    "tp": "TENSOR_MODEL_PARALLEL_GROUP", "cp": "CONTEXT_PARALLEL_GROUP", "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
    "dp": "DATA_PARALLEL_GROUP", "world": "default_pg", "ep": "EXPERT_MODEL_PARALLEL_GROUP",
}  # fmt: skip
FACTORS: Final = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0, "send": 0.0}
KERNELS: Final = {
    "all_reduce": "AllReduce_Sum_bf16",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter_Sum_bf16",
    "all_to_all": "SendRecv",
    "send": "SendRecv",
}


class Slow(NamedTuple):
    """A straggler: `compute` multiplies all its kernels by `much`; the others add `much` ns to each step (or one step).

    `host` in the middle of the first pass, `start` before it, while the host does something that is not recorded, `dataloader` there too.
    """

    rank: int
    cause: Literal["compute", "host", "start", "dataloader"]
    much: float
    step: int = -1


@dataclass(frozen=True)
class Job:
    """What is simulated; times in ns, sizes in bytes, bandwidths in bytes per s."""

    tp: int = 1
    cp: int = 1
    pp: int = 1
    dp: int = 2
    ranks_per_host: int = 8
    layers: int = 4
    steps: int = 3
    micro_batches: int = 1
    buckets: int = 4
    blocking: bool = False
    small: int = 0
    experts: float = 1.0
    imbalance: float = 0.0
    layer_ns: float = 1_000_000.0
    optimizer_ns: float = 500_000.0
    jitter: float = 0.005
    activation_bytes: int = 4 << 20
    bucket_bytes: int = 32 << 20
    alpha_ns: float = 35_000.0
    inside: float = 150e9
    between: float = 21e9
    slow_hosts: tuple[tuple[int, float], ...] = ()
    slow_links: tuple[tuple[int, float], ...] = ()
    completion_ns: float = 1_000.0
    offset_ns: float = 300_000.0
    drift_ppm: float = 8.0
    device_ns: float = 8_000.0
    stragglers: tuple[Slow, ...] = ()
    seq: bool = True
    cut: int = 0
    missing: tuple[int, ...] = ()
    seed: int = 0

    @property
    def world(self) -> int:
        return self.tp * self.cp * self.pp * self.dp

    def host(self, rank: Any) -> Any:
        return rank // self.ranks_per_host


@dataclass
class _Calls:
    """Collectives as they happen: one entry per call and member."""

    parts: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))

    def add(self, **columns: Any) -> None:
        shape, size = np.shape(columns["rank"]), np.size(columns["rank"])
        for name, value in columns.items():
            given = np.asarray(value)
            if given.shape != shape:  # one value for all, mostly, of which a broadcast would take three times as long
                given = np.broadcast_to(given, shape) if given.ndim else np.full(shape, given)
            self.parts[name].append(given.reshape(size))

    def columns(self) -> dict[str, Any]:
        return {name: np.concatenate(parts) for name, parts in self.parts.items()}


class Simulator:
    """Runs a job call by call, all ranks at once."""

    def __init__(self, job: Job) -> None:
        self.job, self.random, self.uneven = job, np.random.default_rng(job.seed), np.random.default_rng([job.seed, 2])
        self.grid = np.arange(job.world).reshape(job.pp, job.dp, job.cp, job.tp)
        self.at = np.full(job.world, float(START_NS))
        self.handed = np.full(job.world, -1e18)
        """When the host was late last."""
        self.free = np.zeros(job.world)
        """When the stream of DP is free."""
        self.queued = np.full(job.world, float(START_NS))
        """When the work before is done, asynchronous buckets apart: these hold up the device, not the host that launches what follows."""
        self.calls, self.kernels, self.loads, self.stalls = (_Calls() for _ in range(4))
        self.step_at: list[Floats] = []
        self.step = 0
        self.seq: dict[tuple[Any, ...], int] = {}
        self.instances = 0
        self.groups: dict[tuple[str, int], tuple[int, ...]] = {}
        self.bandwidth = np.full(job.world, job.between)
        for host, factor in job.slow_hosts:
            self.bandwidth[job.host(np.arange(job.world)) == host] *= factor
        for rank, factor in job.slow_links:
            self.bandwidth[rank] *= factor
        self.pace = np.ones(job.world)
        for one in job.stragglers:
            if one.cause == "compute":
                self.pace[one.rank] = one.much

    def run(self) -> None:
        for step in range(self.job.steps):
            self.step = step
            self.step_at.append(self.at.copy())
            self.load = np.maximum(1 + self.job.imbalance * self.uneven.standard_normal(self.job.world), 0.1)
            self._delay("dataloader")
            self._delay("start")
            self._passes()
            self._norm()
            self._compute(self.grid, self.job.optimizer_ns)
        self.step_at.append(self.at.copy())

    # -- one step ----------------------------------------------------------------------------------------------

    def _passes(self) -> None:
        """Forward and backward passes of all stages, 1F1B, in an order in which what each needs is there."""
        job = self.job
        orders = [_one_f_one_b(stage, job.pp, job.micro_batches) for stage in range(job.pp)]
        sent: dict[tuple[int, str, int], Floats] = {}
        done = [0] * job.pp
        while any(done[s] < len(orders[s]) for s in range(job.pp)):
            for stage in range(job.pp):
                if done[stage] == len(orders[stage]):
                    continue
                which, micro = orders[stage][done[stage]]
                source = stage - 1 if which == "F" else stage + 1
                if 0 <= source < job.pp and (source, which, micro) not in sent:
                    continue
                if 0 <= source < job.pp:
                    self._receive(source, stage, sent[source, which, micro])
                if which == "F":
                    self._forward(stage, first=micro == 0)
                else:
                    self._backward(stage, last=micro == job.micro_batches - 1)
                target = stage + 1 if which == "F" else stage - 1
                if 0 <= target < job.pp:
                    sent[stage, which, micro] = self.at[self.grid[stage]].copy()
                done[stage] += 1

    def _forward(self, stage: int, *, first: bool) -> None:
        job, ranks = self.job, self.grid[stage]
        for layer in range(job.layers):
            if first and layer == job.layers // 2:
                self._delay("host", ranks)
            self._wait("cp", ranks, "all_gather", job.activation_bytes)
            if job.experts > 1:
                self._wait("dp", ranks, "all_to_all", 2 * job.activation_bytes, name="ep")
            for _ in range(2):
                self._compute(ranks, job.layer_ns / 2)
                self._wait("tp", ranks, "all_reduce", job.activation_bytes)

    def _backward(self, stage: int, *, last: bool) -> None:
        job, ranks = self.job, self.grid[stage]
        ends = []
        for layer in range(job.layers):
            for _ in range(2):
                self._compute(ranks, job.layer_ns)
                self._wait("tp", ranks, "all_reduce", job.activation_bytes)
            self._wait("cp", ranks, "reduce_scatter", job.activation_bytes)
            if last and job.dp > 1 and layer < job.buckets:
                size = job.bucket_bytes >> (layer % 4)
                if job.blocking:
                    self._wait("dp", ranks, "all_reduce", size)
                else:
                    ends.append(self._start_bucket(ranks, size))
        for _ in range(job.small if last and job.dp > 1 else 0):
            self._wait("dp", ranks, "all_reduce", SMALL_BYTES)
        for end in ends:
            self.at[ranks] = np.maximum(self.at[ranks], end)

    def _norm(self) -> None:
        if self.job.world > 1:
            self._collective("world", self.grid.reshape(1, -1), "all_reduce", 4, stream=DP)

    # -- calls -------------------------------------------------------------------------------------------------

    def _compute(self, ranks: Any, duration: float) -> None:
        flat = ranks.reshape(-1)
        long = duration * self.pace[flat] * self.load[flat] * (1 + self.job.jitter * self.random.standard_normal(len(flat)))
        start = self.at[flat]
        self.kernels.add(rank=flat, start=start, end=start + long, launch=np.maximum(start - LEAD_NS, self.handed[flat]))
        self.at[flat] = self.queued[flat] = start + long

    def _delay(self, cause: str, ranks: Any = None) -> None:
        for one in self.job.stragglers:
            if one.cause != cause or one.step not in (-1, self.step) or (ranks is not None and one.rank not in ranks):
                continue
            where, begin = np.array([one.rank]), self.at[[one.rank]]
            (self.loads if cause == "dataloader" else self.stalls).add(rank=where, start=begin, end=begin + one.much)
            self.at[one.rank] += one.much
            self.queued[one.rank] = self.at[one.rank]
            self.handed[one.rank] = self.at[one.rank] - 5_000

    def _rows(self, axis: str, ranks: Any) -> Any:
        """Groups of an axis within a stage: one row per group."""
        place = {"dp": 0, "cp": 1, "tp": 2}[axis]
        return np.moveaxis(ranks, place, -1).reshape(-1, ranks.shape[place])

    def _wait(self, axis: Literal["tp", "cp", "dp"], ranks: Any, kind: str, size: int, *, name: str = "") -> None:
        groups = self._rows(axis, ranks)
        if groups.shape[1] > 1:
            self._collective(name or axis, groups, kind, size, stream={"tp": TP, "cp": CP, "dp": DP}[axis])

    def _start_bucket(self, ranks: Any, size: int) -> Floats:
        groups = self._rows("dp", ranks)
        end = self._collective("dp", groups, "all_reduce", size, stream=DP, background=True)
        out = np.empty(self.job.world)
        out[groups] = end
        return out[ranks]

    def _collective(self, axis: str, groups: Any, kind: str, size: int, *, stream: int, background: bool = False) -> Floats:
        issued = self.at[groups]
        start = np.maximum(issued, self.free[groups]) if background else issued
        count = groups.shape[1]
        uneven = kind == "all_to_all"
        long = self.transfer(groups, size, FACTORS[kind] * (count - 1) / count * (self.job.experts if uneven else 1.0))
        end = (start.max(axis=1) + long)[:, None] + self.random.exponential(self.job.completion_ns, groups.shape)
        if stream == DP:
            self.free[groups] = end
        launch = np.maximum(self.queued[groups] - LEAD_NS, self.handed[groups])
        if not background:
            self.at[groups] = self.queued[groups] = end
        seq = np.array([self._seq((axis, tuple(g[:1]), len(g))) for g in groups])
        number = self._number(len(groups))
        for row in groups:
            self.groups.setdefault((axis, int(row[0])), tuple(row.tolist()))
        part = size // count
        sizes: tuple[Any, Any] = {"all_gather": (part, size), "reduce_scatter": (size, part)}.get(kind, (size, size))
        if uneven:
            tokens = np.full(groups.shape, size * (count - self.job.experts) / (count - 1))
            tokens[:, -1] = size * self.job.experts
            sizes = size, tokens.astype(np.int64) // 2 * 2
        self.calls.add(
            rank=groups, start=start, end=end, launch=launch, kind=S.KINDS.index(kind),
            axis=list(NAMES).index(axis), first=groups[:, :1], seq=seq[:, None], instance=number[:, None], stream=stream, step=self.step, uneven=uneven,
            bytes_in=sizes[0], bytes_out=sizes[1], source=-1, target=-1, transfer=long[:, None],
            wait=start.max(axis=1, keepdims=True) - start, late=groups[np.arange(len(groups)), start.argmax(axis=1)][:, None],
        )  # fmt: skip
        return end

    def _receive(self, source: int, target: int, sent: Floats) -> None:
        """Each rank of a stage receives what the rank of the stage before it has sent since `sent`."""
        senders, receivers = self.grid[source].reshape(-1), self.grid[target].reshape(-1)
        pairs = np.stack((senders, receivers), axis=1)
        start = np.stack((sent.reshape(-1), self.at[receivers]), axis=1)
        long = self.transfer(pairs, self.job.activation_bytes, 1.0)
        end = start.max(axis=1, keepdims=True) + long[:, None] + self.random.exponential(self.job.completion_ns, pairs.shape)
        self.at[receivers] = self.queued[receivers] = end[:, 1]
        number = self._number(len(pairs))
        seq = np.array([[self._seq(("p2p", rank)) for rank in pair] for pair in pairs.tolist()])  # each rank counts its own
        first = (pairs % (self.job.tp * self.job.cp * self.job.dp)).min(axis=1)
        for row, one in enumerate(first.tolist()):
            self.groups.setdefault(("pp", one), tuple(self.grid.reshape(self.job.pp, -1)[:, row].tolist()))
        for side, kind in enumerate(("send", "recv")):
            self.calls.add(
                rank=pairs[:, side], start=start[:, side], end=end[:, side], launch=np.maximum(start - LEAD_NS, self.handed[pairs])[:, side],
                kind=S.KINDS.index(kind), axis=list(NAMES).index("pp"), first=first, seq=seq[:, side], instance=number, stream=PP + side,
                step=self.step, uneven=False, bytes_in=self.job.activation_bytes, bytes_out=self.job.activation_bytes, source=pairs[:, 0],
                target=pairs[:, 1], transfer=long, wait=np.maximum(start[:, 1 - side] - start[:, side], 0), late=-1,
            )  # fmt: skip

    def transfer(self, groups: Any, size: int, factor: float) -> Floats:
        """Time of a call of each group: alpha + wire bytes / B, B of the slowest rank where a group has several hosts."""
        host = self.job.host(groups)
        inside = (host == host[:, :1]).all(axis=1)
        rate = np.where(inside, self.job.inside, self.bandwidth[groups].min(axis=1))
        return np.asarray(self.job.alpha_ns + size * factor / rate * 1e9, np.float64)

    def _seq(self, key: tuple[Any, ...]) -> int:
        self.seq[key] = self.seq.get(key, 0) + 1
        return self.seq[key]

    def _number(self, count: int) -> Ints:
        self.instances += count
        return np.arange(self.instances - count, self.instances)


def _one_f_one_b(stage: int, stages: int, micro_batches: int) -> list[tuple[str, int]]:
    warm = min(stages - stage - 1, micro_batches)
    order = [("F", i) for i in range(warm)]
    for i in range(micro_batches - warm):
        order += [("F", warm + i), ("B", i)]
    return order + [("B", i) for i in range(micro_batches - warm, micro_batches)]


class Truth(NamedTuple):
    """What is true of each collective kept, in order of rank and start, and of the clocks.

    instance: the same number for the members of one. offset_ns, drift: per host, taken off true times; device_ns: per rank. span_ns: of
    the whole job, from its first step to the last end.
    """

    rank: Ints
    instance: Ints
    wait_ns: Floats
    transfer_ns: Floats
    late: Ints
    start_ns: Floats
    end_ns: Floats
    offset_ns: Floats
    drift: Floats
    device_ns: Floats
    reference_ns: float
    span_ns: float
    step_ns: float


class Made:
    """A simulated job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        sim = Simulator(job)
        sim.run()
        self.groups, self.step_at = sim.groups, sim.step_at
        random = np.random.default_rng([job.seed, 1])
        hosts = -(-job.world // job.ranks_per_host)
        self.offset = random.standard_normal(hosts) * job.offset_ns
        self.drift = random.standard_normal(hosts) * job.drift_ppm * 1e-6
        device = random.standard_normal(job.world) * job.device_ns
        host = job.host(np.arange(job.world))
        self.device = device - (np.bincount(host, device) / np.bincount(host))[host]
        calls = sim.calls.columns()
        self.end = float(calls["end"].max())
        self.reference = (START_NS + self.end) / 2
        order = np.lexsort((calls["start"], calls["rank"]))
        calls = {name: column[order] for name, column in calls.items()}
        cut = random.integers(0, job.cut + 1, (job.world, 2)) if job.cut else np.zeros((job.world, 2), np.int64)
        place = np.arange(len(order)) - np.searchsorted(calls["rank"], calls["rank"])
        count = np.bincount(calls["rank"], minlength=job.world)
        kept = (place >= cut[calls["rank"], 0]) & (place < count[calls["rank"]] - cut[calls["rank"], 1])
        kept &= ~np.isin(calls["rank"], job.missing)
        self.calls = {name: column[kept] for name, column in (calls | {"place": place}).items()}
        self.kernels = _by_rank(sim.kernels)
        self.loads, self.stalls = _by_rank(sim.loads), _by_rank(sim.stalls)

    @cached_property
    def truth(self) -> Truth:
        c = self.calls
        step = (self.step_at[-1] - self.step_at[0]).max() / self.job.steps
        return Truth(
            c["rank"], c["instance"], c["wait"], c["transfer"], c["late"], c["start"], c["end"], self.offset, self.drift, self.device,
            self.reference, self.end - START_NS, float(step),
        )  # fmt: skip

    @property
    def ranks(self) -> list[int]:
        """Ranks that have a recording."""
        return [rank for rank in range(self.job.world) if rank not in self.job.missing]

    def local(self, rank: int, true: Any, *, device: bool = True) -> Ints:
        """True times on a rank's clock."""
        host = self.job.host(rank)
        shift = self.offset[host] + self.drift[host] * (true - self.reference) + (self.device[rank] if device else 0.0)
        return np.asarray(np.rint(true - shift), np.int64)

    def _of(self, columns: dict[str, Any], rank: int) -> dict[str, Any]:
        if not columns:
            return {"start": np.zeros(0), "end": np.zeros(0), "launch": np.zeros(0)}
        low, high = np.searchsorted(columns["rank"], (rank, rank + 1))
        return {name: column[low:high] for name, column in columns.items()}

    def summaries(self) -> list[S.RankSummary]:
        """What `summary_of_rank` makes of each rank that has a recording, without writing one."""
        return [self.summary(rank) for rank in self.ranks]

    def summary(self, rank: int) -> S.RankSummary:
        c, k = self._of(self.calls, rank), self._of(self.kernels, rank)
        whole = len(c["start"]) and c["place"][0] == 0
        first = START_NS if whole else int(c["start"][0]) - 1_000_000
        last = int(c["end"].max()) + 1_000
        inside = (k["start"] >= first) & (k["end"] <= last)
        rows = Work(self.local(rank, c["start"]), self.local(rank, c["end"]), self.local(rank, c["launch"], device=False))
        kernels = Work(*(self.local(rank, k[n][inside], device=n != "launch") for n in ("start", "end", "launch")))
        others = (self._of(self.loads, rank), self._of(self.stalls, rank))
        spans = [iv.union(self.local(rank, one["start"]), self.local(rank, one["end"])) for one in others]
        activity = Activity(iv.union(kernels.start, kernels.end), iv.empty(), iv.union(rows.start, rows.end), *spans)
        begin = int(self.local(rank, np.array([first]))[0])
        found = dependencies(rows, c["stream"], c["kind"] == S.SEND, kernels, activity, begin if whole else int(rows.start[0]))
        pieces = exposed(rows, activity.compute)
        groups, group = self._groups(rank, c)
        count = len(c["start"])
        columns = S.timed_columns(rows, c["stream"], found, pieces) | {
            "step": c["step"], "group": group, "kind": c["kind"], "dtype": np.full(count, S.DTYPES.index("bf16")),
            "algorithm": np.where((c["source"] >= 0) | c["uneven"], S.ALGORITHMS.index("SENDRECV"), S.ALGORITHMS.index("RING_LL")), "uneven": c["uneven"],
            "seq": c["seq"] if self.job.seq else np.full(count, -1), "source": np.where(c["kind"] == S.SEND, -1, c["source"]), "target": np.where(c["kind"] == S.RECV, -1, c["target"]),
            "bytes_in": c["bytes_in"], "bytes_out": c["bytes_out"], "event": np.arange(count),
            "parts": np.ones(count, np.int64), "batch": np.full(count, -1),
        }  # fmt: skip
        splits = np.array([json.dumps(_split(int(n), groups[g].size)) if u else "" for n, g, u in
                           zip(c["bytes_in"].tolist(), group.tolist(), c["uneven"].tolist(), strict=True)], object)  # fmt: skip
        end = int(max(rows.end.max(), kernels.end.max(initial=0)))
        compute, busy = activity.compute, iv.merge(activity.compute, activity.communication)
        return S.summary(
            columns, pieces, groups=groups, steps=self._steps(rank, activity, begin, end), device="NVIDIA H100 80GB HBM3", origin_ns=BASE_NS, peers=S.peers_of(columns, splits), link_bytes_per_s=450e9, link="NVLink",
            absolute=True, first_ns=begin, last_ns=end, kernel_ns=iv.length(compute), communication_ns=iv.length(activity.communication),
            exposed_communication_ns=iv.length(iv.subtract(activity.communication, compute)), idle_ns=end - begin - iv.length(busy),
            totals=self._totals(rank, k["start"][inside], kernels), names=(GEMM,),
        )  # fmt: skip

    def _totals(self, rank: int, true: Any, kernels: Work) -> Packed:
        """Time of kernels by step, as `by_name.totals_of` has it."""
        edge = np.array([at[rank] for at in self.step_at])
        own = totals(np.zeros(len(true), np.int64), np.searchsorted(edge, true, side="right") - 1, kernels.end - kernels.start)
        return pack({**own, "by": np.full(len(own["step"]), BY.index("kernel"))}, TOTALS)

    def _steps(self, rank: int, activity: Activity, begin: int, end: int) -> dict[str, Any]:
        edge = self.local(rank, np.array([at[rank] for at in self.step_at]))
        low, high = np.maximum(edge[:-1], begin), np.minimum(edge[1:], end)
        seen = high > low
        low, high = low[seen], high[seen]
        compute, alone = activity.compute, iv.subtract(activity.communication, activity.compute)
        out = {name: np.zeros(len(low), np.int64) for name in S.STEPS}
        busy = iv.merge(compute, activity.communication)
        out |= {
            "step": np.flatnonzero(seen), "start_ns": low, "duration_ns": high - low,
            "complete": (edge[:-1] >= begin - 1_000)[seen] & (edge[1:] <= end + self.job.optimizer_ns * 2)[seen],
            "kernel_ns": iv.overlap_with(low, high, compute), "communication_ns": iv.overlap_with(low, high, alone),
            "collectives_ns": iv.overlap_with(low, high, activity.communication), "exposed_communication_ns": iv.overlap_with(low, high, alone),
            "idle_ns": high - low - iv.overlap_with(low, high, busy),
        }  # fmt: skip
        return out

    def _groups(self, rank: int, c: dict[str, Any]) -> tuple[list[Group], Ints]:
        """Groups in order of first use, under names that mean something else on each rank."""
        code, first = np.unique(np.stack((c["axis"], c["first"])), axis=1, return_index=True)[:2]
        order = np.argsort(first)
        out, group = [], np.zeros(len(c["axis"]), np.int64)
        for place, at in enumerate(order.tolist()):
            axis, one = list(NAMES)[int(code[0, at])], int(code[1, at])
            group[(c["axis"] == code[0, at]) & (c["first"] == one)] = place
            ranks = members.text_of(self.groups[axis, one])
            key = group_key(ranks, NAMES[axis], "no. 1")
            out.append(Group(key, str((rank * 7 + place) % 50), NAMES[axis], ranks, len(self.groups[axis, one])))
        return out, group

    # -- as files ----------------------------------------------------------------------------------------------

    def write(self, folder: Path) -> Path:
        """Write a Kineto trace per rank, and `truth.json`; returns the folder."""
        for rank in self.ranks:
            self.trace(rank).write(folder / f"rank{rank}.{BASE_NS}.pt.trace.json.gz")
        t = self.truth
        truth = {
            "offset_ns": np.rint(t.offset_ns).tolist(), "drift_ppm": np.round(t.drift * 1e6, 3).tolist(),
            "device_ns": np.rint(t.device_ns).tolist(), "stragglers": [list(one) for one in self.job.stragglers],
            "slow_links": [list(one) for one in self.job.slow_links], "step_ns": round(t.step_ns),
            "saved_per_step_ns": {f"rank {one.rank}": self._saved(stragglers=tuple(s for s in self.job.stragglers if s != one))
                                  for one in self.job.stragglers} | {
                f"link of rank {rank}": self._saved(slow_links=tuple(one for one in self.job.slow_links if one[0] != rank))
                for rank, _ in self.job.slow_links},
        }  # fmt: skip
        (folder / "truth.json").write_text(json.dumps(truth))
        return folder

    def _saved(self, **less: Any) -> int:
        """What a step of this job takes more than that of the same job with other fields, ns."""
        return round((self.truth.span_ns - simulate(replace(self.job, **less)).truth.span_ns) / self.job.steps)

    def trace(self, rank: int) -> TraceBuilder:
        """One rank as a trace: kernels with their launches, loads as ranges of the DataLoader, steps."""
        c, k = self._of(self.calls, rank), self._of(self.kernels, rank)
        t = TraceBuilder(
            rank=rank, world_size=self.job.world, base_ns=BASE_NS, origin_ns=0, header={"host_name": f"node{self.job.host(rank)}"}
        )
        edges = np.array([at[rank] for at in self.step_at]) - LEAD_NS
        for number in range(self.job.steps):
            low, high = self.local(rank, edges[number : number + 2], device=False).tolist()
            t.step(number, low, high - low)
        loads = self._of(self.loads, rank)
        for low, high in zip(loads["start"].tolist(), loads["end"].tolist(), strict=True):
            begin, end = self.local(rank, np.array([low, high])).tolist()
            t.op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin, end - begin)
        for low, high, at in zip(*(k[n].tolist() for n in ("start", "end", "launch")), strict=True):
            begin, end = self.local(rank, np.array([low, high])).tolist()
            t.launch(GEMM, at=int(self.local(rank, at, device=False)), start=begin, duration=end - begin, stream=COMPUTE)
        groups, group = self._groups(rank, c)
        for at, row in enumerate(group.tolist()):
            self._call(t, rank, {name: column[at] for name, column in c.items()}, groups[row])
        return t

    def _call(self, t: TraceBuilder, rank: int, c: dict[str, Any], group: Group) -> None:
        kind = S.KINDS[int(c["kind"])]
        begin, end = self.local(rank, np.array([c["start"], c["end"]])).tolist()
        args: dict[str, Any] = {
            "Process Group Name": group.name, "Process Group Description": group.description,
            "Process Group Ranks": json.dumps(members.members_of(group.ranks).tolist()),
        }  # fmt: skip
        if self.job.seq:
            args["Seq"] = int(c["seq"])
        if c["uneven"]:
            args |= {"In split size": json.dumps(_split(int(c["bytes_in"]), group.size)), "Out split size": json.dumps(_split(int(c["bytes_out"]), group.size))}
        if c["source"] >= 0:
            args |= {"Dst Rank": int(c["target"])} if kind == "send" else {"Src Rank": int(c["source"])}
        name = KERNELS[kind if kind != "recv" else "send"]
        correlation = t.call("cudaLaunchKernelExC", int(self.local(rank, c["launch"], device=False)), 100, flow=True)
        t.collective(
            kind, begin, end - begin, elements=int(c["bytes_in"]) // 2, out_elements=int(c["bytes_out"]) // 2, dtype="BFloat16",
            group_size=group.size, stream=int(c["stream"]), correlation=correlation, args=args,
            kernel=f"ncclDevKernel_{name}_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        )  # fmt: skip

    def members(self, names: Sequence[int] = ()) -> list[Member]:
        """The ranks as a table of calls is made of; names: order in which they are handed over."""
        every = [Member(rank, f"node{self.job.host(rank)}", self.summary(rank)) for rank in self.ranks]
        return [every[i] for i in names] if len(names) else every


def _split(size: int, peers: int) -> list[int]:
    """Elements per peer, of which the last one gets twice as many as the others at least."""
    part = size // 2 // (peers + 1)
    return [part] * (peers - 1) + [size // 2 - part * (peers - 1)]


def _by_rank(calls: _Calls) -> dict[str, Any]:
    columns = calls.columns()
    if not columns:
        return {}
    order = np.lexsort((columns["start"], columns["rank"]))
    return {name: column[order] for name, column in columns.items()}


def simulate(job: Job) -> Made:
    """Runs a job."""
    return Made(job)


def without(job: Job, *ranks: int) -> Job:
    """The same job without the stragglers of some ranks."""
    return replace(job, stragglers=tuple(one for one in job.stragglers if one.rank not in ranks))
