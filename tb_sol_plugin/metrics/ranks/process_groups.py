"""Tells the process groups of the collectives of one rank: each by a key that is the same on all of its ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, members
from tb_sol_plugin.tables.arrays import Ints


class Group(msgspec.Struct, frozen=True):
    """A process group as one rank names it.

    key: the same on all ranks, and for no other group: of its ranks, its description, and its communicator where that is recorded, else
    of how many with those ranks and that description came before. name: of this process alone. ranks: as `tables.members` writes them, ""
    unknown. size: -1 unknown. backward: part of the bytes of its all_reduce that the backward pass launches; None where that is not
    recorded.
    """

    key: str
    name: str
    description: str
    ranks: str
    size: int
    backward: float | None = None


def arguments(capture: Capture, rows: Ints) -> Ints:
    """Returns the row of `collectives` of each device row, -1 for none."""
    out = np.full(len(capture.device), -1, np.int64)
    table = capture.tables["collectives"]
    out[table["device"].to_numpy()] = np.arange(len(table))
    return out[rows]


def groups_of(capture: Capture, rows: Ints, message: Ints) -> tuple[list[Group], Ints]:
    """Returns the process groups of some collectives in order of first use, and the place of each one's group, -1 unknown.

    message: of each the row of `messages` that it is of, -1 none: it is of the group of that. A collective with neither that nor arguments
    is of the only group that its stream has, if there is one. Beside a sequence number newer PyTorch writes as "Comms Id" a hash of that
    and the group, which is another one for each collective.
    """
    table, arg = capture.tables["collectives"], arguments(capture, rows)
    group = np.full(len(rows), -1, np.int64)
    some = np.flatnonzero((arg >= 0) | (message >= 0))
    if not len(some):
        return [], group
    of_kernel = arg[some] >= 0
    chosen = table[[*_OF_GROUP]].iloc[arg[some][of_kernel]]
    if not of_kernel.all():
        of_host = capture.tables["messages"][[*_OF_GROUP]].iloc[message[some][~of_kernel]]
        order = np.argsort(np.concatenate((np.flatnonzero(of_kernel), np.flatnonzero(~of_kernel))))
        chosen = pd.concat([chosen, of_host], ignore_index=True).iloc[order]
    parts = [arrays.codes(chosen[c].astype("category")).astype(np.int64) for c in ("process_group", "process_group_description", "ranks")]
    parts += [chosen[c].to_numpy() for c in ("rank_start", "rank_stride", "group_size")]
    parts += [np.where(chosen["sequence"].to_numpy() < 0, arrays.codes(chosen["communicator"].astype("category")), -1)]
    group[some], first = arrays.factorize([*parts])
    header = _of_header(capture)
    before: dict[tuple[str, str], int] = {}
    found = [_group(one, header, before) for one in chosen.iloc[first].to_dict("records")]
    stream, streams = capture.device["stream"].to_numpy()[rows], group >= 0
    for one in np.unique(stream[~streams]).tolist():
        known = np.unique(group[(stream == one) & streams])
        if len(known) == 1:
            group[(stream == one) & ~streams] = known[0]
    return found, group


_OF_GROUP: Final = (
    "process_group", "process_group_description", "ranks", "rank_start", "rank_stride", "group_size", "sequence", "communicator",
)  # fmt: skip


def _of_header(capture: Capture) -> dict[str, tuple[str, str]]:
    """Returns (description, ranks) of the process groups of the header, by name."""
    table = capture.tables["process_groups"]
    columns = (table[c].tolist() for c in ("name", "description", "ranks"))
    return {str(name): (str(description), str(ranks)) for name, description, ranks in zip(*columns, strict=True)}


def _group(row: Mapping[Any, Any], header: dict[str, tuple[str, str]], before: dict[tuple[str, str], int]) -> Group:
    """Returns the group of a row of `collectives` or `messages`. before: of how many alike, counted on."""
    name, size = str(row["process_group"]), int(row["group_size"])
    described, in_header = header.get(name, ("", ""))
    listed = members.listed(str(row["ranks"]))
    ranks = members.text_of(np.sort(listed)) if listed is not None else ""
    if not ranks and in_header:
        ranks = members.text_of(np.sort(members.members_of(in_header)))
    if not ranks and row["rank_start"] >= 0 and row["rank_stride"] > 0 and size > 0:
        ranks = f"{int(row['rank_start'])}:{int(row['rank_stride'])}:{size}"
    description, communicator = str(row["process_group_description"]) or described, str(row["communicator"]) if row["sequence"] < 0 else ""
    same = (ranks or f"unknown {name}", description)
    number = before[same] = before.get(same, 0) + 1
    return Group(group_key(*same, communicator or f"no. {number}"), name, description, ranks, size)


def group_key(ranks: str, description: str, which: str) -> str:
    """Returns the identity of a process group: the same on all ranks whatever they call it. which: its communicator, or its number."""
    return hashlib.blake2b("\0".join((ranks, description, which)).encode(), digest_size=8).hexdigest()
