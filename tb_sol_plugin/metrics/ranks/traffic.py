"""Adds up the bytes that ranks send to each other: by sends, and by all_to_all, whose shares per peer are recorded or even."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.ranks.calls import Calls
from tb_sol_plugin.metrics.ranks.summary import KINDS, PEERS
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.tables.packed import unpack

ALL_TO_ALL: Final = KINDS.index("all_to_all")


def traffic(calls: Calls) -> pd.DataFrame:
    """Returns one row per pair of ranks, of which the first sends to the second: source, target (numbers), send_bytes, all_to_all_bytes.

    Bytes of the steps that the calls are of; what a rank keeps for itself is left out. A rank without a recording receives only. An
    all_to_all whose sizes per peer differ and are not recorded is in no row.
    """
    parts = [_sends(calls), _even(calls), _uneven(calls)]
    source, target, size, kind = (np.concatenate(column) for column in zip(*parts, strict=True))
    known = (source >= 0) & (target >= 0) & (source != target) & (size > 0)
    source, target, size, kind = (column[known] for column in (source, target, size, kind))
    code, first = arrays.factorize([source, target]) if len(source) else (source, source)
    total = np.zeros((len(first), 2), np.int64)
    np.add.at(total, (code, kind), size)
    return pd.DataFrame({
        "source": source[first], "target": target[first], "send_bytes": total[:, 0], "all_to_all_bytes": total[:, 1],
    })  # fmt: skip


def _sends(calls: Calls) -> tuple[Ints, ...]:
    """Returns what sends of known ranks and sizes send."""
    sent = calls.messages
    some = sent.sends
    return sent.source[some], sent.target[some], sent.bytes[some], np.zeros(int(some.sum()), np.int64)


def _even(calls: Calls) -> tuple[Ints, ...]:
    """Returns what all_to_all of equal shares send."""
    some = np.flatnonzero((calls["kind"] == ALL_TO_ALL) & ~calls["uneven"] & (calls["group"] >= 0) & (calls["bytes_in"] > 0))
    pair, first = arrays.factorize([calls.at[some], calls["group"][some].astype(np.int64)]) if len(some) else (some, some)
    total = np.zeros(len(first), np.int64)
    np.add.at(total, pair, calls["bytes_in"][some].astype(np.int64))
    source, target, size = [], [], []
    for at, number, sent in zip(calls.at[some[first]].tolist(), calls["group"][some[first]].tolist(), total.tolist(), strict=True):
        ranks = calls.groups[number].ranks
        if len(ranks) > 1:
            source.append(np.full(len(ranks), calls.ranks[at]))
            target.append(ranks)
            size.append(np.full(len(ranks), sent // len(ranks)))
    return _joined(source, target, size)


def _uneven(calls: Calls) -> tuple[Ints, ...]:
    """Returns what all_to_all of recorded shares send, in the steps whose calls are kept."""
    source, target, size = [], [], []
    steps = np.unique(calls["step"])
    for at, one in enumerate(calls.summaries):
        if one.peers is None:
            continue
        rows = unpack(one.peers, PEERS)
        members = [calls.ranks_of(group.key) for group in one.groups]
        for number in np.unique(rows["group"]).tolist():
            mine = (rows["group"] == number) & np.isin(rows["step"], steps) & (rows["place"] < len(members[number]))
            source.append(np.full(int(mine.sum()), calls.ranks[at]))
            target.append(members[number][rows["place"][mine]])
            size.append(rows["bytes"][mine].astype(np.int64))
    return _joined(source, target, size)


def _joined(*parts: list[Ints]) -> tuple[Ints, ...]:
    source, target, size = (np.concatenate([*part, np.zeros(0, np.int64)]).astype(np.int64) for part in parts)
    return source, target, size, np.ones(len(size), np.int64)
