"""Shares what the pages of ranks have in common: their query, which job they are of, what they say of clocks and of ranks left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.ranks import sections as R
from tb_sol_plugin.metrics.ranks.comparison import Ranks
from tb_sol_plugin.metrics.ranks.job import Job, host_in, job_of, ranks_of_run, within
from tb_sol_plugin.metrics.ranks.own_time import CAUSES
from tb_sol_plugin.metrics.ranks.stragglers import CAUSE_WORDS, Suspect
from tb_sol_plugin.metrics.ranks.summary import RankSummary, summary_of_rank
from tb_sol_plugin.metrics.ranks.waiting import unrecorded
from tb_sol_plugin.metrics.time.scope import step_bounds
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.recordings import RecordingReduction
from tb_sol_plugin.model.registry import Reduction
from tb_sol_plugin.model.report import Notice
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.units import human

ONE_PERCENT: Final = 0.01
SUMMARIES: Final[Reduction[Query, RankSummary]] = Reduction(summary_of_rank, fields=("device_limits",), version=4)
"""What every page of ranks takes from each recording: they share what was reduced."""


def read_job(workers: Sequence[RecordingReduction[RankSummary]], query: Query) -> tuple[Ranks[RankSummary], Job]:
    """Returns the recordings of a run by rank, and the job that they are of, in the steps that a query names."""
    found = ranks_of_run(workers)
    job = job_of(found)
    chosen = query.step.strip()
    return found, within(job, *step_bounds(chosen)) if chosen and len(job.calls) else job


def notices(ranks: Ranks[RankSummary], job: Job) -> list[Notice]:
    """Reports ranks that are missing, twice or without a match, ranks that are assumed, calls left out, and clocks that do not compare."""
    out = R.notices(ranks)
    if job.assumed.any():
        who = human(int(job.assumed.sum()), "count")
        out.append(Notice(f"{who} recordings name no rank, neither inside nor in their file names: they are numbered in order of names."))
    if any(one.facts is not None and not one.facts.host_name and host_in(one.worker) for one in ranks.read):
        why = "ranks whose workers have the same name before their process id are taken to share one"
        out.append(Notice(f"Recordings name no host: {why}.", "info"))
    alone = job.calls.ranks[job.alone]
    if len(alone) and len(job.calls.ranks) > 1:
        some = ", ".join(map(str, alone[: R.NAMED].tolist())) + (" …" if len(alone) > R.NAMED else "")
        out.append(Notice(
            f"No collective of rank {some} could be matched with one of another rank: it was recorded at another time, or belongs to "
            "another job. It is not compared."
        ))  # fmt: skip
    late = unrecorded(job.waits) if not any(one.state == "waiting" for one in ranks.excluded) else None
    if late is not None and late.ranks and late.wait_ns >= ONE_PERCENT * job.model.span_ns:
        group = job.calls.groups[int(job.calls.group_of_channel[late.channel])].label
        who = f"rank {late.ranks[0]} is" if len(late.ranks) == 1 else f"ranks {', '.join(map(str, late.ranks[: R.NAMED]))} are"
        out.append(Notice(
            f"A late rank is not recorded: all recorded members of {group} waited {human(late.wait_ns / job.steps, 'ns')} per step, in "
            f"{human(late.collectives, 'count')} collectives; {who} missing there. Record it to see why."
        ))  # fmt: skip
    moved = job.calls.ranks[job.renumbered != 0] if len(job.renumbered) else alone[:0]
    if len(moved):
        which = f"{R.ranks_named(moved.tolist())} {'numbers its' if len(moved) == 1 else 'number their'}"
        out.append(Notice(f"{which} steps otherwise than most ranks: here they have the numbers that most have.", "info"))
    left = job.calls.left_out
    if left:
        out.append(Notice(f"{human(left, 'count')} collectives of other steps are left out: there are too many to compare.", "info"))
    if job.clocks.jump_ns.any():
        which = ", ".join(np.array(job.calls.domains)[job.clocks.jump_ns != 0][: R.NAMED].tolist())
        out.append(Notice(
            f"A clock was set while it recorded, by more than a millisecond: {which}. Its times after that are moved; own times across it "
            "are off."
        ))  # fmt: skip
    if job.clocks.worst == "none" and len(job.calls.domains) > 1:
        out.append(Notice(
            "The clocks of the hosts are not aligned: no collective that all members wait in joins them all. "
            "Waits, late ranks and transfers need no clock; skews and waits of sends and receives are not known.", "info",
        ))  # fmt: skip
    elif job.clocks.worst == "poor":
        out.append(Notice("The clocks of the hosts are known too roughly: skews and waits of sends and receives are not known.", "info"))
    return out


def rank_text(job: Job, at: int) -> str:
    """Returns `rank 5 on node0`."""
    domain = job.calls.domains[int(job.calls.domain[at])]
    name = f"rank {int(job.calls.ranks[at])}"
    return name if domain.startswith("rank ") else f"{name} on {domain}"


def worth(job: Job) -> tuple[Suspect, ...]:
    """Returns the suspects up to the last one that costs one percent of the job, alone or together with those before."""
    span, count, before = job.model.span_ns, 0, 0.0
    for place, one in enumerate(job.stragglers.suspects, 1):
        if max(one.saved_ns, one.together_ns - before) >= ONE_PERCENT * span:
            count = place
        before = max(before, one.together_ns)
    return job.stragglers.suspects[:count]


def verdict(job: Job) -> str:
    """Returns one sentence: which rank or host delays the others, why, and how much shorter a step is without that."""
    ranks = human(len(job.calls.ranks), "count")
    if not job.joined.any():
        return f"No collective of these {ranks} ranks could be matched, so who waits for whom is not known."
    ranks = human(int(job.joined.sum()), "count")
    if not job.model.exact:
        return f"The replay of these {ranks} ranks differs from what was recorded: no straggler is named."
    found, hosts = worth(job), job.stragglers.hosts
    if not found:
        return f"No rank delays the others: without its own delays none of {ranks} would make a step 1 % shorter."
    first = found[0]
    if hosts and hosts[0].saved_ns > first.saved_ns:
        host = hosts[0]
        who = f"**{job.calls.domains[host.domain]}**"
        cause = f"{CAUSE_WORDS[CAUSES[host.cause]]}, {human(len(host.ranks), 'count')} of its ranks"
        return f"{who} delays the other hosts ({cause}): {_without_that(job, host.saved_ns)}."
    name, cause = rank_text(job, first.at), first.words
    text = f"**R{name[1:]}** delays the other ranks ({cause}): {_without_that(job, first.saved_ns)}."
    if len(found) > 1:
        who = f"{rank_text(job, found[1].at)} ({found[1].words})"
        more = f" and {human(len(found) - 2, 'count')} more" if len(found) > 2 else ""
        text += f" Without {who}{more} as well it is {human(found[-1].together_ns / job.steps, 'ns')} shorter."
    return text


def _without_that(job: Job, saved_ns: float) -> str:
    less, share = human(saved_ns / job.steps, "ns"), human(saved_ns / job.model.span_ns, "ratio")
    return f"without that a step is **{less}** shorter, {share} of it"


def evidence(job: Job, one: Suspect) -> str:
    """Returns what shows that a suspect is one."""
    steps = job.stragglers.steps
    cause = CAUSES[one.cause]
    more = f"{human(one.total_excess_ns / job.steps, 'ns')} per step more than its peers"
    in_steps = f"in {one.steps} of {len(steps)} steps" if len(steps) else "outside of complete steps"
    if cause == "kernel" and one.factor == one.factor:
        how = "all kernels by one factor: its clock, or what else runs there" if one.uniform else "some kernels alone: other data or shapes"
        return f"{more}, {one.factor:.2f} times theirs, {in_steps}; {how}"
    if one.late_start:
        return f"{more}, {in_steps}: idle before the first collective, on time in the others"
    words = {
        "dataloader": "loading its next batch", "host": "idle until its host launches the next work", "copy": "copying",
        "comm": "in collectives of other groups", "other": "idle for a reason that is not recorded", "kernel": "computing",
    }  # fmt: skip
    return f"{more}, {words[cause]}, {in_steps}"


def with_ranks(text: str) -> Ints | None:
    """Returns ranks listed as `0-7,12`, None for an empty text. BadQuery where it lists none."""
    if not text.strip():
        return None
    out: list[int] = []
    for part in text.split(","):
        low, high = _ends(part.strip())
        out += range(low, high + 1)
    return np.array(sorted(set(out)), np.int64)


def ranks_text(ranks: Ints) -> str:
    """Returns ascending ranks as `with_ranks` reads them."""
    parts = np.split(ranks, np.flatnonzero(np.diff(ranks) != 1) + 1) if len(ranks) else []
    return ",".join(f"{one[0]}-{one[-1]}" if len(one) > 1 else str(one[0]) for one in parts)


def _ends(part: str) -> tuple[int, int]:
    """Returns the ends of `5` or `0-7`. BadQuery for anything else, and for more ranks than a job has."""
    low, dash, high = part.partition("-")
    if not low.isdigit() or len(low) > 7 or (dash and (not high.isdigit() or len(high) > 7)):
        raise BadQuery(f"not ranks: {part[:40]!r}", hint="give ranks as 0-7,12", field="ranks")
    ends = int(low), int(high) if dash else int(low)
    return min(ends), max(ends)
