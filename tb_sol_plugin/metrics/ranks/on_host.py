"""Finds the collectives of a backend that runs on the host (gloo, MPI, UCC): ranges of its threads, and the calls that asked for them.

What a device does elsewhere, operators do there: a rank computes while an operator runs on another thread than those of the backend. Sizes
are not known: recorders write the arguments of a range, which are its alone, without its group.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np

from tb_sol_plugin.cost.ops.collectives import collective_kind
from tb_sol_plugin.metrics.ranks.own_time import Activity, Work
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, members
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints

RANGE: Final = re.compile(r"(gloo|mpi|ucc):\w")
CALL: Final = "c10d::"


class OnHost(NamedTuple):
    """Collectives of the host: their host rows in order of start, their times, threads, and computation of all other threads.

    kernels: operators, which are launched when they begin.
    """

    rows: Ints
    work: Work
    thread: Ints
    kernels: Work
    activity: Activity


def on_host(capture: Capture, loads: iv.Spans) -> OnHost | None:
    """Returns the collectives of the host, None where there are none. loads: when the program loads its next batch."""
    h = at.host(capture)
    rows = at.named(capture, S.ANNOTATION, lambda name: RANGE.match(name) is not None and collective_kind(name) is not None)
    rows = rows[h.stop[rows] > h.start[rows]]
    if not len(rows):
        return None
    rows = rows[np.argsort(h.start[rows], kind="stable")]
    calls = at.named(capture, S.OPERATOR, lambda name: name.startswith(CALL))
    work = Work(h.start[rows], h.stop[rows], _launches(capture, rows, calls))
    operators = np.setdiff1d(at.of_kind(capture, S.OPERATOR), calls)
    operators = operators[~np.isin(h.thread[operators], h.thread[rows])]
    operators = operators[np.argsort(h.start[operators], kind="stable")]
    kernels = Work(h.start[operators], h.stop[operators], h.start[operators])
    compute = iv.union(kernels.start, kernels.end)
    activity = Activity(compute, iv.empty(), iv.union(work.start, work.end), loads, iv.empty())
    return OnHost(rows, work, h.thread[rows].astype(np.int64), kernels, activity)


def _launches(capture: Capture, rows: Ints, calls: Ints) -> Ints:
    """Returns when each range was asked for: by the calls of its kind in their order; -1 where these do not fit."""
    h = at.host(capture)
    out = np.full(len(rows), -1, np.int64)
    names = [collective_kind(str(name)) for name in capture.host["name"].cat.categories]
    code = arrays.codes(capture.host["name"])
    kind_of_row, kind_of_call = (np.array([names[c] or "" for c in code[some].tolist()], object) for some in (rows, calls))
    for kind in set(kind_of_row.tolist()):
        asked = np.sort(h.start[calls[kind_of_call == kind]])
        mine = np.flatnonzero(kind_of_row == kind)
        mine = mine[h.start[rows[mine]] >= asked[0]] if len(asked) else mine[:0]
        if len(mine) == len(asked) and (asked <= h.start[rows[mine]]).all():
            out[mine] = asked
    return out


def only_group(capture: Capture) -> tuple[str, str, str, int] | None:
    """Returns (name, description, ranks, size) of the group of collectives without arguments: the only one of the header, by ranks.

    None where groups of different ranks are named.
    """
    table = capture.tables["process_groups"]
    listed = {members.text_of(np.sort(members.members_of(str(text)))) for text in table["ranks"].tolist()}
    if len(listed) != 1:
        return None
    ranks = listed.pop()
    return str(table["name"].iloc[0]), str(table["description"].iloc[0]), ranks, len(members.members_of(ranks))
