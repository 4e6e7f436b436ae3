"""Finds what delays a job of many ranks: late ranks and hosts, uneven work, slow links, small collectives, communication in the open.

    context = rank_context(job)                  # None where the job cannot be replayed as it was recorded
    found = rank_findings(context)               # the largest saving first

Each saving is the difference of two replays of the job: as it was, and with the cause gone; per step, at most. Savings of late ranks and of
uneven work add up: each is replayed without the ones before it. Those of links and of communication are replayed alone.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics.ranks import links, reports
from tb_sol_plugin.metrics.ranks.calls import Calls
from tb_sol_plugin.metrics.ranks.exposed import KINDS as PARALLELISM
from tb_sol_plugin.metrics.ranks.group_kinds import GroupKind, group_kinds
from tb_sol_plugin.metrics.ranks.job import Job
from tb_sol_plugin.metrics.ranks.own_time import CAUSES, HAND_OVER_NS
from tb_sol_plugin.metrics.ranks.pipeline import Pipeline, by_stage, ends_text, pipeline
from tb_sol_plugin.metrics.ranks.stragglers import CAUSE_WORDS, Suspect, without
from tb_sol_plugin.metrics.ranks.summary import DTYPES, KINDS
from tb_sol_plugin.metrics.rules.engine import Answer, Finding, Rule, RuleContext, Subject, count_text, ids_of, rule, run, time_text
from tb_sol_plugin.model import report
from tb_sol_plugin.tables.arrays import Floats, Ints
from tb_sol_plugin.units import human

LEAST: Final = 0.01
"""Smallest saving shown, as a part of the step."""
UNEVEN_LEAST: Final = 0.03
"""The same of uneven work: the noise of many ranks costs a percent by itself."""
OPEN: Final = 0.1
"""Part of the step that a kind of parallelism communicates in the open, from which it is reported."""
SMALL_SHARE: Final = 0.3
"""Part of the transfers of a curve that are below its half size, from which they are reported."""
BELOW: Final = 0.6
"""Bus bandwidth over the peak below which a link is reported, and how many half sizes its collectives have at least."""
FAR: Final = 8.0
STAGE_LEAST: Final = 1.03
"""Computation of the longest stage over the mean of all, from which it is reported."""
MOST_NAMED: Final = 2
"""Hosts or ranks with a slow link that are named; of more in common nothing is known."""
UNEVEN: Final = 1.3
"""Most over mean of what members of an all_to_all hold, from which it is reported."""

CURES: Final = {
    "kernel": "nvidia-smi -q -d CLOCK,POWER,PERFORMANCE  # compare with another rank; else give all ranks batches of equal work",
    "dataloader": "DataLoader(..., num_workers=8, prefetch_factor=4, pin_memory=True)  # and look at the storage of that rank",
    "host": "gc.disable(), numactl --cpunodebind=<node of its GPU>  # and look for other processes on its host",
    "copy": "pin_memory=True, non_blocking=True  # and bind the process to the socket of its GPU",
    "comm": "open the collectives of that rank: it waits for another group",
    "other": "open the timeline of that rank",
}
"""What helps a rank that is late, by cause."""
ON_HOST: Final = "py-spy dump --pid <pid>, OMP_NUM_THREADS, numactl --cpunodebind  # or give all ranks batches of equal work"
"""The same where its computation runs on the host."""
BETWEEN_STEPS: Final = "logging, checkpoints and evaluation of this rank alone: in a thread (dcp.async_save), or less often"
"""The same where it is late at the start of a step."""
OVERLAP: Final = {
    "TP": "sequence parallelism with --tp-comm-overlap, or torch._inductor.config._micro_pipeline_tp = True",
    "CP": "a ring (cp_comm_type='p2p'), which exchanges the next block while it computes one",
    "EP": "overlap the dispatch with shared experts, or fewer experts per token across hosts",
    "PP": "more micro-batches, or an interleaved schedule",
    "DP": "DistributedDataParallel(..., bucket_cap_mb=100, gradient_as_bucket_view=True), or --overlap-grad-reduce",
    "sharded DP": "set_modules_to_forward_prefetch(...), set_modules_to_backward_prefetch(...), or larger units of fully_shard",
}
"""What hides the communication of a kind of parallelism."""


@dataclass
class RankContext(RuleContext):
    """A job that the replay reproduces. kinds: parallelism of its groups."""

    subject: ClassVar[Subject] = "ranks"
    job: Job
    kinds: tuple[GroupKind, ...]

    def large_enough(self, found: Finding) -> bool:
        return found.saving >= LEAST * self.step_ns

    @property
    def step_ns(self) -> float:
        """Length of a step: of the job over its steps."""
        return self.job.model.span_ns / self.job.steps

    @cached_property
    def sizes(self) -> links.Sizes:
        """Sizes of the collectives that are replayed."""
        return links.sizes_of(self.job.model.waits, self.kinds)

    @cached_property
    def curves(self) -> list[links.Curve]:
        """Message curves that tell alpha from bandwidth."""
        return [c for c in links.curves(self.job.model.waits, self.sizes) if not c.why_not]

    @cached_property
    def exposed(self) -> pd.DataFrame:
        """Exposed communication by rank, step and parallelism."""
        return self.job.exposed(self.kinds)

    @cached_property
    def pipeline(self) -> Pipeline | None:
        """The pipeline of the job, None where it has none."""
        return pipeline(self.job.waits)

    @cached_property
    def stages(self) -> pd.DataFrame | None:
        """Means of each stage of the pipeline; None without one, or without a complete step."""
        return by_stage(self.pipeline) if self.pipeline is not None and len(self.pipeline.rows) else None

    @cached_property
    def culprits(self) -> list[tuple[int, int]]:
        """(rank, cause) of the late ranks and hosts that are reported."""
        out: dict[tuple[int, int], None] = {}
        for host in self.job.stragglers.hosts[:1]:
            out |= dict.fromkeys((at, host.cause) for at in host.ranks)
        out |= dict.fromkeys((one.at, one.cause) for one in reports.worth(self.job))
        return list(out)

    @cached_property
    def late(self) -> list[tuple[Suspect, float]]:
        """Ranks that the others wait for, and what the job saves without each, besides the host and the ranks before it, ns.

        Asked first once slow hosts are reported: what a host is reported for is not reported of its ranks.
        """
        job = self.job
        whole = {(at, host.cause) for host in job.stragglers.hosts[:1] for at in host.ranks if self.reported}
        found, before = [], float(sum(f.saving for f in self.reported) * job.steps)
        for one in reports.worth(job):
            saved = one.together_ns - before
            if (one.at, one.cause) not in whole and saved >= LEAST * job.model.span_ns:
                before = one.together_ns
                found.append((one, saved))
        return found

    def saved(self, transfer_ns: Floats | Ints) -> int:
        """Returns what a step takes less with other transfers. transfer_ns: of each collective of the model's waits, ns."""
        model = self.job.model
        return round((model.unchanged_ns - model.run(model.own_ns, model.transfers(transfer_ns))) / self.job.steps)


def rank_context(job: Job, kinds: tuple[GroupKind, ...] | None = None) -> RankContext | None:
    """Returns what the rules look at; None where no replay tells what something costs. kinds: None as the groups show them."""
    if not len(job.calls) or not job.joined.any() or not job.model.exact:
        return None
    return RankContext(job, group_kinds(job.calls) if kinds is None else kinds)


def rank_findings(context: RankContext) -> list[Finding]:
    """Returns what delays a job, the largest saving first. Of late ranks, which save together, the first comes first."""
    return run(_RULES, context)[0]


def job_findings(job: Job) -> list[Finding]:
    """Returns the same of a job whose groups serve what they seem to; none where no replay tells what something costs."""

    def make() -> list[dict[str, Any]]:
        context = rank_context(job)
        found = rank_findings(context) if context is not None else []
        return [{name: dict(value) if name == "query" else value for name, value in _words(one)} for one in found]

    return [Finding(**one) for one in job.recalled("findings", make)]


def _words(one: Finding) -> list[tuple[str, Any]]:
    """Returns the fields of a finding over ranks: it has no rows of a recording."""
    return [(f.name, getattr(one, f.name)) for f in fields(one) if f.compare and f.name != "names"]


INCONSISTENT: Final = "ranks_inconsistent_collective"


def inconsistent_collectives(job: Job) -> report.Finding | None:
    """Returns a finding about collectives whose members name different kinds, types or sizes; None without any.

    It saves no time that can be told: it is a bug of the job, or members that were matched by their order ran different programs.
    """
    found, calls = job.found, job.calls
    wrong = np.flatnonzero(found.inconsistent)
    if not len(wrong):
        return None
    first = int(wrong[0])
    rows = found.rows[found.begin[first] : found.begin[first + 1]]
    said = [_named(calls, row) for row in rows.tolist()]
    other = next((i for i, text in enumerate(said) if text != said[0]), 0)
    group = calls.groups[int(calls.group_of_channel[found.channel[first]])].label
    step, seq = int(calls["step"][rows[0]]), int(calls["seq"][rows[0]])
    which = ", ".join(text for text, known in ((f"number {seq}", seq >= 0), (f"step {step}", step >= 0)) if known)
    ranks, where = calls.ranks[calls.at[rows]], f"{group}{f' ({which})' if which else ''}"
    return report.Finding(
        rule=INCONSISTENT, title="Members of a collective name different kinds, types or sizes",
        evidence=f"{human(len(wrong), 'count')} of {human(len(found), 'count')} collectives; the first one is of {where}: rank {ranks[0]} "
        f"calls {said[0]}, rank {ranks[other]} {said[other]}. Its wait and transfer are not known.",
        fix="TORCH_DISTRIBUTED_DEBUG=DETAIL  # every collective is checked over its ranks before it runs",
        link=report.Link("collectives", {"group": group}, "Collectives"), color="communication",
    )  # fmt: skip


def _named(calls: Calls, row: int) -> str:
    """Returns what a call says that it is: its kind, type and size."""
    dtype, size = int(calls["dtype"][row]), int(max(calls["bytes_in"][row], calls["bytes_out"][row]))
    parts = [KINDS[int(calls["kind"][row])], DTYPES[dtype] if dtype >= 0 else "", f"of {human(size, 'B')}" if size >= 0 else ""]
    return " ".join(part for part in parts if part)


# -- Late ranks and hosts ------------------------------------------------------------------------------------------------


@rule("slow_host", page="stragglers", label="Stragglers", color="host")
def slow_host(context: RankContext) -> Answer:
    """A host of whose ranks half or more are late for one cause, where that costs more than any one of them."""
    job = context.job
    hosts, first = job.stragglers.hosts, reports.worth(job)[:1]
    if not hosts or (first and hosts[0].saved_ns <= first[0].saved_ns):
        return None
    host = hosts[0]
    cause = CAUSES[host.cause]
    ranks = ", ".join(str(int(job.stragglers.calls.ranks[at])) for at in host.ranks[:8]) + (" …" if len(host.ranks) > 8 else "")
    return Finding(
        title=f"{job.stragglers.calls.domains[host.domain]} delays the other hosts: {CAUSE_WORDS[cause]}",
        evidence=f"{count_text(len(host.ranks), 'rank')} of it ({ranks}) take longer than their peers at the same place of the program.",
        saving=round(host.saved_ns / job.steps), fix=_cure(job, cause),
    )  # fmt: skip


@rule("straggler", page="stragglers", label="Stragglers", color="host")
def straggler(context: RankContext) -> Answer:
    """Ranks that the others wait for, each with what it saves besides those before it."""
    return [_late(context.job, one, saved) for one, saved in context.late if not one.late_start]


@rule("late_start", page="stragglers", label="Stragglers", color="host")
def late_start(context: RankContext) -> Answer:
    """Ranks that are late at the start of their steps and on time from there on: what they do between steps."""
    return [_late(context.job, one, saved) for one, saved in context.late if one.late_start]


def _cure(job: Job, cause: str) -> str:
    """Returns what helps a rank that is late for a cause."""
    return ON_HOST if cause == "kernel" and all(s.host_only for s in job.calls.summaries) else CURES[cause]


def _late(job: Job, one: Suspect, saved_ns: float) -> Finding:
    name = reports.rank_text(job, one.at)
    when = job.stragglers.persistence(one)
    first = next((other for other in job.stragglers.suspects if other.saved_ns >= LEAST * job.model.span_ns), None)
    behind = reports.rank_text(job, first.at) if first is not None and first.at != one.at else "what else delays the job"
    hidden = f" Hidden behind {behind}: alone it would save nothing." if one.saved_ns < LEAST * job.model.span_ns else ""
    return Finding(
        title=f"R{name[1:]} {'starts its steps late' if one.late_start else f'delays the other ranks: {one.words}'}",
        evidence=f"{reports.evidence(job, one)}.{hidden}",
        saving=round(saved_ns / job.steps), fix=BETWEEN_STEPS if one.late_start else _cure(job, CAUSES[one.cause]),
        candidate=when == "single" and len(job.stragglers.steps) > 1,
    )  # fmt: skip


@rule("uneven_work", page="ranks", label="Rank by step", color="compute",
      title="Ranks take turns in coming last: their computation is uneven",
      fix="batches of equal work on all ranks: group by length, or pack sequences")  # fmt: skip
def uneven_work(context: RankContext) -> Answer:
    """Computation that differs between peers, no rank being the slow one: what even shares of the same work would save."""
    job = context.job
    stragglers, model = job.stragglers, job.model
    peers, kernel = stragglers.peers, CAUSES.index("kernel")
    own = without(stragglers, context.culprits)
    known = peers.count > 2
    even = own.copy()
    mine = stragglers.calls.own[:, kernel]
    slow = np.isin(stragglers.calls.at, [at for at, cause in context.culprits if cause == kernel])
    even[known & ~slow] += (peers.mean_compute_ns - mine)[known & ~slow]
    saving = (model.run(own) - model.run(np.maximum(even, 0.0))) / job.steps
    if saving < UNEVEN_LEAST * context.step_ns:
        return None
    above = np.abs(mine - peers.mean_compute_ns)[known].sum() / max(float(mine[known].sum()), 1.0)
    last = np.bincount(stragglers.calls.at[model.late[np.diff(model.begin) > 1]], minlength=len(stragglers.calls.ranks))
    share = float(last.max() / max(last.sum(), 1))
    return Finding(
        evidence=f"Computation between two collectives is {human(above, 'ratio')} off the mean of its peers; the rank that comes last most "
        f"often does so in {human(share, 'ratio')} of the collectives.",
        saving=round(saving), query={"what": "excess"},
    )  # fmt: skip


# -- Links ---------------------------------------------------------------------------------------------------------------


@rule("slow_link", page="groups", label="Groups", color="communication", fix="ib_write_bw, ibstat, nvidia-smi nvlink -s  # on that host")
def slow_link(context: RankContext) -> Answer:
    """Groups that have less bandwidth than others of their kind, and the host that they have in common."""
    waited, found = context.job.model.waits, links.slow_links(context.job.model.waits, context.sizes)
    if not len(found.slow):
        return None
    calls = waited.found.calls
    ratio = np.where(found.of_fastest < links.SLOW, found.of_fastest, 1.0)[waited.found.channel]
    worst = float(found.of_fastest[found.slow].min())
    names = [calls.domains[h] for h in found.hosts] or [f"rank {r}" for r in found.ranks]
    few = " and ".join(names) if len(names) <= MOST_NAMED else ""
    many = int(np.isfinite(found.of_fastest).sum())
    where = f"{few} {'are' if len(names) > 1 else 'is'} in all of them, and in none of the fast ones" if few else (
        "no host and no pair of ranks is in all of them and in none of the fast ones")  # fmt: skip
    if few and len(names) > 1:
        where += "; which one, the recordings cannot tell"
    return Finding(
        title=f"The link of {few.replace(' and ', ' or ')} is slow" if few else "Some groups have a slow link",
        saving=context.saved(waited.transfer_ns * ratio), candidate=not few,
        evidence=f"{len(found.slow)} of {many} groups {'has' if len(found.slow) == 1 else 'have'} {human(worst, 'ratio')} of the "
        f"bandwidth of the fastest one: {where}.",
    )  # fmt: skip


@rule("link_below_peak", page="collectives", label="Collectives by size", color="communication",
      fix="NCCL_DEBUG=INFO  # which transport, algorithm and rings it chose; then the topology")  # fmt: skip
def link_below_peak(context: RankContext) -> Answer:
    """Large collectives that stay far below what the link is known to carry."""
    waited, sizes, job = context.job.model.waits, context.sizes, context.job
    limits = links.peaks(waited, sizes, links.link_of(job.calls.summaries), 0.0)
    found: list[Finding] = []
    wire = sizes.size * sizes.factor
    for curve in context.curves:
        peak = limits[links.LEVELS.index(curve.level)]
        if peak.bytes_per_s is None or peak.observed:
            continue
        mine = links.of_curve(waited, sizes, curve) & (wire > FAR * curve.half_size_bytes)
        if not mine.any():
            continue
        reached = wire[mine].sum() / waited.transfer_ns[mine].sum() * 1e9 / peak.bytes_per_s
        if reached >= BELOW:
            continue
        text = f"{curve.kind} of {curve.size} ranks on one host" if curve.level == "inside" else f"{curve.kind} of {curve.size} ranks"
        found.append(Finding(
            title=f"Large collectives reach {human(reached, 'ratio')} of the link",
            evidence=f"{count_text(int(mine.sum()), 'collective')} ({text}) far above their half size of "
            f"{human(curve.half_size_bytes, 'B')}; the link carries {human(peak.bytes_per_s, 'B/s')} ({peak.source}).",
            saving=context.saved(np.where(mine, waited.transfer_ns * reached, waited.transfer_ns)),
        ))  # fmt: skip
    return found


@rule("small_collectives", page="collectives", label="Message curves", color="communication", candidate=True,
      title="Small collectives follow each other: one for all of them would do",
      fix="one flat tensor: torch._foreach_*, larger buckets, or dist._coalescing_manager()")  # fmt: skip
def small_collectives(context: RankContext) -> Answer:
    """Runs of collectives below the half size of their curve, right after each other: each run as one."""
    waited, sizes = context.job.model.waits, context.sizes
    wire = np.where(sizes.usable, sizes.size * sizes.factor, 0.0)
    transfer = waited.transfer_ns.astype(np.float64)
    count, runs, share, alpha = 0, 0, 0.0, 0.0
    for curve in context.curves:
        of = links.of_curve(waited, sizes, curve)
        small = of & (wire < curve.half_size_bytes)
        part = waited.transfer_ns[small].sum() / max(int(waited.transfer_ns[of].sum()), 1)
        if part < SMALL_SHARE:
            continue
        run_of = _runs(context, np.flatnonzero(small))
        for rows in run_of:
            transfer[rows] = 0.0
            transfer[rows[0]] = min(float(waited.transfer_ns[rows].sum()), curve.alpha_ns + wire[rows].sum() / curve.bytes_per_s * 1e9)
        count += sum(map(len, run_of))
        runs += len(run_of)
        share, alpha = max(share, float(part)), max(alpha, curve.alpha_ns)
    if not runs:
        return None
    return Finding(
        evidence=f"{count_text(count, 'collective')} below the size at which half of the time is the call itself "
        f"({time_text(alpha)}) come in {count_text(runs, 'run')} without work between: {human(share, 'ratio')} of "
        "the transfers of their kind.",
        saving=context.saved(transfer),
    )  # fmt: skip


def _runs(context: RankContext, small: Ints) -> list[Ints]:
    """Returns collectives of one channel and step that follow each other at once, two at least; in order."""
    waited = context.job.model.waits
    found = waited.found
    first = found.first[small]
    order = np.lexsort((found.calls.start[first], found.channel[small]))
    small, first = small[order], first[order]
    if len(small) < 2:
        return []
    apart = found.calls.start[first][1:] - found.calls.end[first][:-1]
    step = found.calls["step"][first]
    joined = (np.diff(found.channel[small]) == 0) & (np.diff(step) == 0) & (apart <= HAND_OVER_NS)
    return [part for part in np.split(small, np.flatnonzero(~joined) + 1) if len(part) > 1]


@rule("uneven_all_to_all", page="collectives", label="Collectives", color="communication",
      title="Members of an all_to_all get unequal shares",
      fix="an auxiliary loss for balance, a capacity per expert, or other places for the experts")  # fmt: skip
def uneven_all_to_all(context: RankContext) -> Answer:
    """all_to_all of which one member has far more bytes than the mean: what even shares would save."""
    waited = context.job.model.waits
    found = waited.found
    calls = found.calls
    some = (calls["kind"][found.first] == KINDS.index("all_to_all")) & (waited.transfer_ns > 0) if len(found) else np.zeros(0, np.bool_)
    if not some.any():
        return None
    held = np.maximum(calls["bytes_in"], calls["bytes_out"])[found.rows].astype(np.float64)
    ratio = np.asarray(found.most(held)) * found.present / np.maximum(np.bincount(found.number, held, len(found)), 1.0)
    wide = some & (np.asarray(found.least(held)) > 0) & (ratio > UNEVEN)
    if not wide.any():
        return None
    top = held == np.asarray(found.most(held))[found.number]
    rank, times = np.unique(calls.ranks[calls.at[found.rows[top & wide[found.number]]]], return_counts=True)
    most = int(rank[times.argmax()])
    return Finding(
        evidence=f"{count_text(int(wide.sum()), 'all_to_all', 'all_to_all')} in which the largest share is "
        f"{float(np.median(ratio[wide])):.2f} times the mean; rank {most} has it most often.",
        saving=context.saved(np.where(wide, waited.transfer_ns / ratio, waited.transfer_ns)), query={"ranks": str(most)},
    )  # fmt: skip


# -- Communication in the open ---------------------------------------------------------------------------------------------


@rule("exposed_communication", page="parallelism", label="Parallelism", color="communication")
def exposed_communication(context: RankContext) -> Answer:
    """Kinds of parallelism that communicate in the open for more than a tenth of the step: what is saved if all of it were hidden."""
    waited, exposed = context.job.model.waits, context.exposed
    if not len(exposed):
        return None
    steps = len(np.unique(exposed["at"] * (1 << 32) + exposed["step"]))
    total = exposed.groupby("kind")[["exposed_ns", "wait_ns"]].sum() / steps
    of = waited.found.calls.group_of_channel[waited.found.channel]
    served = np.array([k.kind or "other" for k in context.kinds] or ["other"], object)[of]
    found = []
    for code, wait, own in zip(total.index.tolist(), total["wait_ns"].tolist(), total["exposed_ns"].tolist(), strict=True):
        name, transfer = PARALLELISM[code], own - wait
        if transfer <= OPEN * context.step_ns:
            continue
        what = f"{name} communication" if name != "other" else "Communication of groups of no known parallelism"
        waits = f" Another {time_text(wait)} are waits for late ranks, no part of this saving." if wait > transfer / 10 else ""
        found.append(Finding(
            title=f"{what} is not hidden behind computation",
            evidence=f"On a mean rank {time_text(transfer)} of a step are transfers of it while nothing computes.{waits}",
            fix=OVERLAP.get(name, "start the collective earlier: async_op=True, and wait where its result is used"),
            saving=min(context.saved(np.where(served == name, 0.0, waited.transfer_ns)), round(transfer)),
        ))  # fmt: skip
    return found


# -- Pipeline ---------------------------------------------------------------------------------------------------------------


@rule("stage_imbalance", page="pipeline", label="Pipeline", color="compute",
      fix="move layers to other stages: --decoder-first-pipeline-num-layers, or a split of equal time")  # fmt: skip
def stage_imbalance(context: RankContext) -> Answer:
    """Stages whose computation differs: what equal stages with the same work would save."""
    found, table = context.pipeline, context.stages
    if found is None or table is None:
        return None
    of_mean = table["of_mean"].to_numpy()
    if of_mean.max() < STAGE_LEAST:
        return None
    model, calls = context.job.model, context.job.stragglers.calls
    factor = np.ones(found.stages + 1)
    factor[table["stage"].to_numpy()] = 1 / of_mean
    stage = found.stage[np.searchsorted(context.job.calls.ranks, calls.ranks)]
    own = model.own_ns + calls.own[:, CAUSES.index("kernel")] * (factor[stage] - 1)[calls.at]
    longest = table.iloc[int(of_mean.argmax())]
    return Finding(
        title=f"Stage {int(longest['stage'])} of the pipeline computes longer than the others",
        evidence=f"Its ranks compute {human(float(of_mean.max()) - 1, 'ratio')} longer than the mean of {found.stages} stages"
        f"{ends_text(longest)}; a stage waits {time_text(float(table['bubble_ns'].mean()))} per step on average.",
        saving=round((model.unchanged_ns - model.run(own)) / context.job.steps),
    )  # fmt: skip


@rule("pipeline_bubble", page="pipeline", label="Pipeline", color="idle", candidate=True,
      fix="more micro-batches of the same global batch, or virtual stages: --num-layers-per-virtual-pipeline-stage")  # fmt: skip
def pipeline_bubble(context: RankContext) -> Answer:
    """A schedule whose bubble is over a tenth of the step: half of it goes with twice as many micro-batches."""
    found, table = context.pipeline, context.stages
    if found is None or table is None or table["model_bubble_ns"].isna().all():
        return None
    bubble = float(table["model_bubble_ns"].max())
    if bubble < OPEN * context.step_ns:
        return None
    batches = int(table["micro_batches"].max())
    return Finding(
        title=f"{count_text(found.stages, 'pipeline stage')} share {count_text(batches, 'micro-batch', 'micro-batches')}",
        evidence=f"The schedule leaves each stage waiting {time_text(bubble)} of a step, measured are "
        f"{time_text(float(table['bubble_ns'].mean()))}; twice as many micro-batches, or two parts of the model per rank, halve that.",
        saving=round(min(bubble, float(table["bubble_ns"].min())) / 2),
    )  # fmt: skip


_RULES: Final[tuple[Rule[RankContext], ...]] = (
    slow_host, straggler, late_start, uneven_work, slow_link, link_below_peak, small_collectives, uneven_all_to_all, exposed_communication,
    stage_imbalance, pipeline_bubble,
)  # fmt: skip
RULES: Final = ids_of(_RULES)
"""Every finding about ranks by its stable name, as in `Finding.rule`."""
LATE: Final = ("slow_host", "straggler", "late_start")
"""Those that name late ranks."""
