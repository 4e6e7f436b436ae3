"""Exposed communication by parallelism, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tb_sol_plugin.metrics.ranks.exposed import KINDS, exposed_by_kind
from tb_sol_plugin.metrics.ranks.group_kinds import GroupKind
from tb_sol_plugin.metrics.ranks.job import job_of_members
from tb_sol_plugin.metrics.ranks.own_time import Pieces
from tests.support.rank_factory import Job, simulate

TP, DP, OTHER = (KINDS.index(name) for name in ("TP", "DP", "other"))


def test_a_moment_of_two_kinds_is_shared() -> None:
    # GIVEN one rank with a step of [0, 100) and two calls: [10, 40) of TP, of which [10, 20) waits, and [25, 58) of an unknown kind; nothing
    # computes but in [30, 35) and after 55
    waits = job_of_members(simulate(Job(dp=1, tp=2, layers=1, steps=1)).members()[:1]).waits
    calls = waits.found.calls
    columns = {name: column[:2].copy() for name, column in calls.columns.items()}
    columns |= {"start_ns": np.array([10, 25]), "duration_ns": np.array([30, 33]), "group": np.array([0, -1])}
    pieces = Pieces(np.array([0, 0, 1, 1]), np.array([0, 25, 0, 10]), np.array([20, 5, 5, 20]))
    step = {"step": [7], "start_ns": [0], "duration_ns": [100], "complete": [True], "exposed_communication_ns": [40]}
    few = replace(
        calls, at=calls.at[:2], columns=columns, pieces=pieces, steps=({k: np.array(v) for k, v in step.items()},), groups=calls.groups[:1]
    )
    few.__dict__.pop("end", None)
    made = replace(waits, found=replace(waits.found, calls=few, rows=np.array([0]), begin=np.array([0, 1])), wait_ns=np.array([10]))
    found = exposed_by_kind(made, (GroupKind("TP", "stated", "", "inside"),)).set_index("kind")
    # THEN TP has [10, 25) alone, half of [25, 30) and of [35, 40), the odd ns first; the other half of those and [40, 55) are the other's
    assert found.loc[TP].tolist() == [0, 7, 30, 15 + 3 + 3, 10] and found.loc[OTHER].tolist() == [0, 7, 33, 2 + 2 + 15, 0]
    # WHEN stretches are binned, so that they come to more THEN parts still add up to the exposed time of the step
    step["exposed_communication_ns"] = [30]
    binned = replace(made, found=replace(made.found, calls=replace(few, steps=({k: np.array(v) for k, v in step.items()},))))
    assert exposed_by_kind(binned, (GroupKind("TP", "stated", "", "inside"),))["exposed_ns"].sum() == 30
