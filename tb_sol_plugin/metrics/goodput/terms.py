"""The terms under which a fit is asked: as chosen, as recorded, or taken from the points, each with where it is from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from tb_sol_plugin.cost.goodput.model import GradParams
from tb_sol_plugin.metrics.goodput.part import ScalingPart
from tb_sol_plugin.metrics.goodput.points import Given, Point
from tb_sol_plugin.metrics.goodput.predict import Terms

FURTHER: Final = 4
"""Unless a query names limits, predictions go to so many times the replicas and the total batch size of the points."""
MOST_REPLICAS: Final = 4096


@dataclass(frozen=True)
class Wanted:
    """What a person chose; 0 and None leave it open."""

    initial: int = 0
    most: int = 0
    low: int = 0
    high: int = 0
    accumulation: bool | None = None
    per_node: int = 0
    replicas: int = 0
    share: float = 0.5
    sqr: float | None = None
    var: float | None = None


@dataclass(frozen=True)
class Settled:
    """terms, and where each is from: name of a field of `Terms` -> words. memory: how the device's memory sets `high`, "" it does not."""

    terms: Terms
    origin: Mapping[str, str]
    memory: str = ""


def settle(points: Sequence[Point], parts: Sequence[ScalingPart], given: Given, wanted: Wanted) -> Settled:
    """The terms for these points (at least one). What was chosen comes before what was recorded or given, and that before the points."""
    origin: dict[str, str] = {}

    def first(name: str, *choices: tuple[int, str]) -> int:
        value, words = next((v, w) for v, w in choices if v > 0)
        origin[name] = words
        return value

    totals = [p.num_replicas * p.atomic_bsz for p in points]
    batches = [p.atomic_bsz for p in points]
    low_told, high_told = max((p.bounds[0] for p in parts), default=0), max((p.bounds[1] for p in parts), default=0)
    initial = first(
        "initial", (wanted.initial, "chosen"), (max((p.initial for p in parts), default=0), "recorded"), (given.initial, "given"),
        (min(totals), "the smallest total batch size that ran"),
    )  # fmt: skip
    most = first(
        "most", (wanted.most, "chosen"), (max((p.most for p in parts), default=0), "recorded"), (given.most, "given"),
        (FURTHER * max(*totals, initial), f"{FURTHER} times the largest that ran"),
    )  # fmt: skip
    limit, memory = memory_limit([(p.batch, p.reserved, p.memory) for p in parts])
    high = first(
        "high", (wanted.high, "chosen"), (high_told, "recorded"), (given.bounds[1], "given"), (limit, memory),
        (max(batches), "the largest that ran"),
    )  # fmt: skip
    low = first("low", (wanted.low, "chosen"), (low_told, "recorded"), (given.bounds[0], "given"), (1, "any"))
    by_program = next((p.accumulation for p in parts if p.accumulation is not None), None)
    accumulation, origin["accumulation"] = next(
        (value, words)
        for value, words in ((wanted.accumulation, "chosen"), (by_program, "recorded"), (given.accumulation, "given"), (True, "allowed"))
        if value is not None
    )  # fmt: skip
    packed = max(-(-p.num_replicas // p.num_nodes) for p in points)
    one = max((p.num_replicas for p in points if p.num_nodes == 1), default=0)
    per_node = first("per_node", (wanted.per_node, "chosen"), (max(packed, one), "as many as ran on a node"))
    replicas = first(
        "replicas", (wanted.replicas, "chosen"), (FURTHER * max(p.num_replicas for p in points), f"{FURTHER} times the most that ran"),
    )  # fmt: skip
    surest_first = sorted(parts, key=lambda p: p.biased)
    recorded = next(((p.sqr, p.var) for p in surest_first if p.sqr is not None and p.var is not None), (None, None))
    grads, origin["grads"] = None, ""
    for sqr, var, words in ((wanted.sqr, wanted.var, "chosen"), (*recorded, "recorded"), (given.sqr, given.var, given.grads_from)):
        if grads is None and sqr is not None and var is not None:
            grads, origin["grads"] = GradParams(sqr, var), words
    terms = Terms(
        initial=initial, most=max(most, initial), low=low, high=max(high, low), accumulation=accumulation, per_node=per_node,
        replicas=min(replicas, MOST_REPLICAS), share=wanted.share, grads=grads,
    )  # fmt: skip
    return Settled(terms, origin, memory if origin["high"] == memory else "")


def memory_limit(seen: Sequence[tuple[int, int, int]]) -> tuple[int, str]:
    """(largest micro-batch that fits by a straight line through reserved memory at two or more batch sizes, words); (0, "") unknown.

    seen: per worker samples of a micro-step, most bytes held on a device, the device's memory (0 or -1 unknown). An estimate.
    """
    known = [(b, held, total) for b, held, total in seen if b > 0 and held > 0 and total > 0]
    if len({b for b, _, _ in known}) < 2:
        return 0, ""
    n, sum_b, sum_held = len(known), sum(b for b, _, _ in known), sum(h for _, h, _ in known)
    spread = n * sum(b * b for b, _, _ in known) - sum_b**2
    slope = Fraction(n * sum(b * h for b, h, _ in known) - sum_b * sum_held, spread)  # least squares, exact in whole bytes
    room = min(t for _, _, t in known)
    if slope <= 0:
        return 0, ""
    most = int((room - (sum_held - slope * sum_b) / n) // slope)
    return (most, "estimated from the memory that two batch sizes held") if most >= 1 else (0, "")


def _batches_by_place(used: Sequence[Point]) -> dict[tuple[int, int], set[int]]:
    """Sizes of the micro-batch that were measured, by (nodes, replicas) of more than one replica."""
    out: dict[tuple[int, int], set[int]] = {}
    for p in used:
        if p.num_replicas > 1:
            out.setdefault((p.num_nodes, p.num_replicas), set()).add(p.atomic_bsz)
    return out


def _replicas_to_measure(within: Sequence[Point], several: Sequence[Point], most: int) -> list[str]:
    """Counts of replicas that are missing. within: points of several replicas on one node; several: of several nodes; most: replicas."""
    out: list[str] = []
    if not several and not within:
        out.append("two replicas on one node")
    elif within and len({p.num_replicas for p in within}) == 1:
        known = within[0].num_replicas
        out.append(f"{2 * known if known <= 2 else 2} replicas on one node")
    if not several:
        out.append(f"{max(2 * most, 2)} replicas on two nodes")
    elif len({p.num_replicas for p in several}) == 1:
        out.append(f"{2 * several[0].num_replicas} replicas on several nodes")
    if several and not within and any(p.num_replicas > p.num_nodes for p in several):
        out.append("two replicas on one node")
    return out


def measure_next(points: Sequence[Point]) -> list[str]:
    """What to run next so that more of the model is known, the most informative first; empty where everything is."""
    used = [p for p in points if p.used]
    out: list[str] = []
    if not used:
        return ["one configuration: a few steps with the profiler, or with profile_step_start and profile_step_commit"]
    most = max(p.num_replicas for p in used)
    batch = max(p.atomic_bsz for p in used)
    several, within = [p for p in used if p.num_nodes > 1], [p for p in used if p.num_nodes == 1 and p.num_replicas > 1]
    one_batch = len({p.atomic_bsz for p in used}) == 1
    if one_batch:
        out.append(f"the same replicas with another batch per replica, such as {max(batch // 2, 1) if batch > 1 else 2}")
    out += _replicas_to_measure(within, several, most)
    by_place = _batches_by_place(used)
    if by_place and not one_batch and all(len(sizes) == 1 for sizes in by_place.values()):
        nodes, replicas = max(by_place)
        out.append(f"{replicas} replicas on {nodes} node{'s' if nodes > 1 else ''} with a second batch per replica")
    return out
