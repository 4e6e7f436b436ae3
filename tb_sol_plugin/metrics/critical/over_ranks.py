"""Tells waiting for other ranks from transfer, in the communication on the critical path of one rank, by the summaries of all ranks.

In a collective that needs data of every member the last one to come waits for nobody: what the others take longer is their wait, and comes
first. It is known where all ranks of the run were read. On one rank alone a collective is a block of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.critical.path import PLACE, Path
from tb_sol_plugin.metrics.ranks.job import Job, job_of, ranks_of_run
from tb_sol_plugin.metrics.ranks.summary import KINDS, RankSummary
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.recordings import RecordingReduction
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Rows


@dataclass(frozen=True, eq=False)
class RankWaits:
    """How long the communication of one rank waited for others.

    wait_ns: of each device row of its recording, -1 unknown. call: the call of the job that each row is, -1 none.
    """

    job: Job
    wait_ns: Ints
    call: Rows


def rank_waits(capture: Capture, ranks: Sequence[RecordingReduction[RankSummary]]) -> RankWaits | None:
    """Returns the waits of the rank that a capture is of; None where the job has not that recording, or no wait of it is known."""
    known = ranks_of_run(ranks)
    job = job_of(known) if known.compared > 1 else None
    if job is None or (capture.worker, capture.span) not in job.recordings:
        return None
    calls, at = job.calls, job.recordings.index((capture.worker, capture.span))
    mine = np.flatnonzero((calls.at == at) & (job.waits.wait_of_call >= 0))
    row = calls["event"][mine].astype(np.int64)
    start, duration = (capture.device[c].to_numpy() for c in ("start_ns", "duration_ns"))
    there = (row >= 0) & (row < len(start))
    mine, row = mine[there], row[there]
    same = (start[row] == calls.start[mine] - calls.shift_ns[at]) & (duration[row] == calls["duration_ns"][mine])
    mine, row = mine[same], row[same]
    if not len(mine):
        return None
    wait, call = np.full(len(start), -1, np.int64), np.full(len(start), -1, np.int32)
    wait[row], call[row] = job.waits.wait_of_call[mine], mine
    return RankWaits(job, wait, call)


def told_apart(capture: Capture, path: Path, waits: RankWaits) -> Path:
    """Returns a path on which communication is first waiting for other ranks and then transfer, where that is known."""
    some = np.flatnonzero((path.kind == PLACE["communication"]) & (path.device >= 0))
    some = some[waits.wait_ns[path.device[some]] >= 0]
    row = path.device[some]
    until = capture.device["start_ns"].to_numpy()[row] + waits.wait_ns[row]
    waiting = np.zeros(len(path.kind), np.int64)
    waiting[some] = np.clip(until - path.start[some], 0, path.duration[some])
    kind = path.kind.copy()
    kind[some] = np.where(waiting[some] < path.duration[some], PLACE["communication_transfer"], PLACE["communication_wait"])
    both = (waiting > 0) & (waiting < path.duration)
    of = np.repeat(np.arange(len(kind)), np.where(both, 2, 1))
    second = np.flatnonzero(np.append(of[1:] == of[:-1], False)) + 1  # place of the transfer, after its wait
    columns = {f.name: getattr(path, f.name)[of] for f in fields(path) if f.name not in ("kind", "ends", "begin", "end", "rows")}
    kinds = kind[of]
    kinds[second - 1] = PLACE["communication_wait"]
    cut = waiting[of[second]]
    columns["duration"][second - 1] = cut
    columns["duration"][second] -= cut
    columns["start"][second] += cut
    return replace(path, kind=kinds, **columns)


def collectives_on(path: Path, waits: RankWaits) -> pd.DataFrame:
    """Returns the collectives on a path that was told apart, in order: one row per event whose wait is known.

    Columns: device (row), step (row of `steps`), call, kind, group and seq (None unknown), time_ns (on the path), path_wait_ns,
    path_transfer_ns (parts of it), late (call of the rank that the others waited for, -1 unknown).
    """
    parts = [PLACE["communication_wait"], PLACE["communication_transfer"]]
    some = np.flatnonzero(np.isin(path.kind, parts))
    code, first = arrays.factorize([path.step[some], path.device[some]]) if len(some) else (some, some)
    order = np.argsort(path.start[some[first]], kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    code, first = place[code], some[first][order]
    wait, transfer = (
        arrays.exact_sums(code, np.where(path.kind[some] == part, path.duration[some], 0), len(first)) for part in parts
    )
    calls, found = waits.job.calls, waits.job.found
    call = waits.call[path.device[first]].astype(np.int64)
    late = np.full(len(calls), -1, np.int64)
    last = waits.job.waits.late
    known = last[found.number] >= 0
    late[found.rows[known]] = found.rows[last[found.number[known]]]
    group, seq = calls["group"][call], calls["seq"][call]
    return pd.DataFrame({
        "device": path.device[first], "step": path.step[first], "call": call,
        "kind": pd.Series([KINDS[k].replace("_", " ") for k in calls["kind"][call].tolist()], dtype=object),
        "group": pd.Series([calls.groups[g].label if g >= 0 else None for g in group.tolist()], dtype=object),
        "seq": pd.Series([n if n >= 0 else None for n in seq.tolist()], dtype=object),
        "time_ns": wait + transfer, "path_wait_ns": wait, "path_transfer_ns": transfer, "late": late[call],
    })  # fmt: skip
