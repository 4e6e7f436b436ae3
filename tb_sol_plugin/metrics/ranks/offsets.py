"""Finds by how much the clocks of some recordings differ, from the collectives that they share: for the timeline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.ranks.calls import Member
from tb_sol_plugin.metrics.ranks.job import job_of_members
from tb_sol_plugin.metrics.ranks.summary import RankSummary, summary_of_rank
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query


def offsets_of(captures: Sequence[Capture]) -> list[tuple[int, int | None]] | None:
    """Returns (ns to add to the times of each recording, their standard deviation), of any common origin.

    None where a recording shares no collective with the others, two are of one rank, or the clocks of their hosts stay unknown. Of one
    host all have one clock, whose uncertainty is not known. A drift counts by half of the recording's length. A clock that was set while it
    recorded holds for the longer part; times of the other one are off by as much as it was set, which counts as uncertainty.
    """
    if len(captures) < 2 or not all(capture.device["communication"].to_numpy().any() for capture in captures):
        return None
    key = ("ranks.offsets", *(id(capture) for capture in captures))
    return memo(captures[0], key, lambda: _offsets(captures))


def _offsets(captures: Sequence[Capture]) -> list[tuple[int, int | None]] | None:
    try:
        found = [_summary(capture) for capture in captures]
    except Unavailable:
        return None
    given = [capture.facts.rank for capture in captures]
    ranks = [rank for rank in given if rank is not None]
    if ranks and (len(ranks) < len(given) or len(set(ranks)) < len(ranks)):
        return None
    own = ranks or list(range(len(captures)))
    return offsets_of_members([Member(rank, c.facts.host_name, summary) for rank, c, summary in zip(own, captures, found, strict=True)])


def offsets_of_members(members: Sequence[Member]) -> list[tuple[int, int | None]] | None:
    """Returns the same of summaries, of different ranks."""
    job = job_of_members(members)
    clock = job.clocks
    if job.alone.any() or clock.worst == "none":
        return None
    place = np.searchsorted(job.calls.ranks, [one.rank for one in members])
    out: list[tuple[int, int | None]] = []
    for at, one in zip(place.tolist(), members, strict=True):
        summary = one.summary
        domain = int(job.calls.domain[at])
        shift = int(job.calls.shift_ns[at])
        middle = (summary.first_ns + summary.last_ns) / 2 + shift
        drift = float(clock.drift[domain])
        offset = float(clock.offset_ns[domain]) + drift * (middle - clock.reference_ns)
        sigma = float(clock.sigma_ns[domain]) + abs(drift) * summary.window_ns / 2
        jump = float(clock.jump_ns[domain])
        if jump:
            offset += jump if middle > clock.jump_at_ns[domain] else 0.0
            sigma += abs(jump)
        out.append((shift + round(offset), round(sigma) if sigma == sigma else None))
    return out


def _summary(capture: Capture) -> RankSummary:
    return memo(capture, ("ranks.summary",), lambda: summary_of_rank(capture, Query()))
