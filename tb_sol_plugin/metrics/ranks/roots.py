"""Finds the rank that a broadcast or scatter comes from: PyTorch records it with the operator that asked for it, not with its kernel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, members
from tb_sol_plugin.tables.arrays import Ints

_ROOT: Final = re.compile(r'"Rank":"?(\d{1,9})\b')


def roots(capture: Capture, rows: Ints, group: Ints, ranks: Sequence[str]) -> Ints:
    """Returns the number of the rank that each device row comes from, -1 not recorded. Only for kinds that have such a rank.

    group: place of the group of each row, -1 unknown. ranks: of each group, as `tables.members` writes them. Recorded is the place in the
    group, whose ranks PyTorch sorts.
    """
    operator = capture.device["operator"].to_numpy()[rows].astype(np.int64)
    named = np.where(operator >= 0, capture.operator_of_host[np.maximum(operator, 0)], -1) if len(capture.host) else operator
    out = np.full(len(rows), -1, np.int64)
    some = np.flatnonzero((named >= 0) & (group >= 0))
    place = arrays.per_text(capture.tables["operators"]["extra"], named[some], _place, np.int64)
    for one in np.unique(group[some]).tolist():
        known = members.members_of(ranks[one])
        mine = some[(group[some] == one) & (place >= 0) & (place < len(known))]
        out[mine] = known[place[np.searchsorted(some, mine)]]
    return out


def _place(extra: str) -> int:
    found = _ROOT.search(extra)
    return int(found.group(1)) if found is not None else -1
