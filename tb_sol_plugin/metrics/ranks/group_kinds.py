"""Says which parallelism a process group serves, and between what its ranks lie: with the evidence for it.

The first that applies: what a query says; the description that Megatron or a device mesh gave the group; what it is used for; that its
ranks are neighbors on one host. The description `default_pg` or none proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.ranks.calls import Calls
from tb_sol_plugin.metrics.ranks.summary import KINDS, P2P
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.units import human

Confidence: TypeAlias = Literal["stated", "inferred", "guess", "unknown"]
Level: TypeAlias = Literal["inside", "between", "mixed", "unknown"]
"""inside: all ranks on one host. between: each on another one. mixed: several hosts with several ranks."""

DESCRIBED: Final[tuple[tuple[str, str], ...]] = (
    (r"^EXPERT_DATA", "expert DP"), (r"^EXPERT_(MODEL|TENSOR)", "EP"), (r"^TENSOR_AND_", "joint"), (r"^(POSITION_)?EMBEDDING", "embedding"),
    (r"^TENSOR_MODEL_PARALLEL|mesh_tp\b", "TP"), (r"^DATA_PARALLEL(?!.*_WITH_CP)|mesh_dp|mesh_\w*(replicate|shard)", "DP"),
    (r"^DATA_PARALLEL\w*_WITH_CP", "joint"), (r"^PIPELINE|mesh_pp\b", "PP"), (r"mesh_ep\b", "EP"), (r"^CONTEXT|mesh_cp\b", "CP"),
    (r"^MODEL_PARALLEL", "joint"),
)  # fmt: skip
"""What descriptions of groups begin with or hold, the longer ones first, and the parallelism that they name."""
NAMES: Final = ("TP", "CP", "EP", "PP", "DP", "sharded DP", "expert DP", "embedding", "joint", "other")
"""Kinds of parallelism, in the order in which time exposed under several is shared out."""
ACROSS: Final = "inside: one host; between: each rank on another one; mixed: several hosts with several ranks"
"""What a column of levels says."""
OF_BACKWARD: Final = 0.9
"""A group whose all_reduce have so much of their bytes in the backward pass reduces gradients."""
LAYOUT: Final = ("TP", "CP", "PP", "DP")


class GroupsQuery(Query, kw_only=True, frozen=True):
    """groups: parallelism of groups by their description, as mesh_inner:TP,mesh_outer:DP; it stands above what is found"""

    groups: str = ""


@dataclass(frozen=True)
class GroupKind:
    """The parallelism of a group ("" unknown), how sure that is and why, and between what its ranks lie."""

    kind: str
    confidence: Confidence
    evidence: str
    level: Level


def told(text: str) -> dict[str, str]:
    """Returns parallelism by name or description of groups, from `NAME:KIND,NAME:KIND`. BadQuery where it is not that."""
    out = {}
    for part in text.split(",") if text.strip() else ():
        name, colon, kind = part.strip().rpartition(":")
        if not colon or not name or kind not in NAMES:
            hint = f"give NAME:KIND, several with a comma between; kinds: {', '.join(NAMES)}"
            raise BadQuery(f"no kinds of groups {text[:60]!r}", hint=hint, field="groups")
        out[name] = kind
    return out


def group_kinds(calls: Calls, stated: Mapping[str, str] | None = None) -> tuple[GroupKind, ...]:
    """Returns the parallelism of each group. stated: by description, as a query says it."""
    uses = [set[int]() for _ in calls.groups]
    for number, kind in zip(*_pairs(calls), strict=True):
        uses[number].add(kind)
    return tuple(_kind(calls, i, uses[i], stated or {}) for i in range(len(calls.groups)))


def _pairs(calls: Calls) -> tuple[list[int], list[int]]:
    """Returns distinct pairs of group and kind of call."""
    some = calls["group"] >= 0
    pair = np.unique(calls["group"][some].astype(np.int64) * len(KINDS) + calls["kind"][some])
    return (pair // len(KINDS)).tolist(), (pair % len(KINDS)).tolist()


def _kind(calls: Calls, number: int, uses: set[int], stated: Mapping[str, str]) -> GroupKind:
    group, level = calls.groups[number], level_of(calls, number)
    text = group.description
    if text in stated:
        return GroupKind(stated[text], "stated", "given in the query", level)
    for pattern, kind in DESCRIBED:
        if re.search(pattern, text):
            return GroupKind(kind, "stated", "its description", level)
    if uses and uses <= {*P2P}:
        return GroupKind("PP", "inferred", "sends and receives alone", level)
    if KINDS.index("all_to_all") in uses:
        return GroupKind("EP", "inferred", "all_to_all", level)
    whole = len(group.ranks) > 1 and len(group.ranks) >= _world(calls)
    if {KINDS.index("all_gather"), KINDS.index("reduce_scatter")} <= uses and KINDS.index("all_reduce") not in uses:
        return GroupKind("sharded DP", "inferred", "all_gather and reduce_scatter, no all_reduce", level)
    if group.backward is not None and group.backward >= OF_BACKWARD:
        evidence = f"{human(group.backward, 'ratio')} of the bytes of its all_reduce are launched by the backward pass"
        return GroupKind("DP", "inferred", evidence, level)
    neighbors = len(group.ranks) > 1 and bool((np.diff(group.ranks) == 1).all())
    if level == "inside" and neighbors and not whole:
        return GroupKind("TP", "guess", "neighboring ranks of one host", level)
    why = "contains every rank of the job" if whole else f"the description {text!r} names none" if text else "no description is recorded"
    return GroupKind("", "unknown", why, level)


def _world(calls: Calls) -> int:
    """Returns how many ranks the job has: the largest rank that is named, and one."""
    return max([int(g.ranks.max()) for g in calls.groups if len(g.ranks)] + calls.ranks.tolist(), default=-1) + 1


def level_of(calls: Calls, number: int) -> Level:
    """Returns between what the ranks of a group lie; unknown where those that are recorded do not tell."""
    ranks: Ints = calls.groups[number].ranks
    place = np.flatnonzero(np.isin(calls.ranks, ranks))
    if not len(place):
        return "unknown"
    count = np.bincount(calls.domain[place])
    count = count[count > 0]
    if len(count) == 1:
        return "inside" if len(place) == len(ranks) else "unknown"
    return "between" if count.max() == 1 else "mixed"


def layout(calls: Calls, kinds: tuple[GroupKind, ...]) -> dict[str, int] | None:
    """Returns the sizes of TP, CP, PP and DP (1 where there is no such group); None where they do not multiply to the ranks of the job."""
    sizes = dict.fromkeys(LAYOUT, 1)
    for group, kind in zip(calls.groups, kinds, strict=True):
        name = "DP" if kind.kind == "sharded DP" else kind.kind
        if name in sizes:
            sizes[name] = max(sizes[name], group.size)
    return sizes if int(np.prod(list(sizes.values()))) == _world(calls) else None
