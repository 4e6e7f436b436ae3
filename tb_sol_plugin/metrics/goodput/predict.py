"""Predicts goodput of replicas and batch sizes that were not run: curves, a grid, the best, and diminishing returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.cost.goodput.fit import Fit
from tb_sol_plugin.cost.goodput.model import GoodputFunction, GradParams, SpeedupFunction, accum_time, network_time, optim_time
from tb_sol_plugin.metrics.goodput.part import ScalingPart
from tb_sol_plugin.metrics.goodput.points import Point, PointsFile
from tb_sol_plugin.tables.arrays import Floats, Ints

GRID: Final = 24
"""Total batch sizes of the grid."""
COLUMNS: Final = 20
"""Counts of replicas of the grid."""
_EPS: Final = 1e-8


@dataclass(frozen=True)
class Terms:
    """Under which limits the model predicts. Batch sizes in samples.

    initial: total batch size that the job was made for. most: largest total one. low, high: bounds of a replica's micro-step.
    accumulation: whether micro-steps may be accumulated. per_node: replicas of a node. replicas: largest count considered.
    share: a further replica pays while it brings at least so much of what one replica does. grads: None where not known.
    """

    initial: int
    most: int
    low: int
    high: int
    accumulation: bool
    per_node: int
    replicas: int
    share: float = 0.5
    grads: GradParams | None = None

    def nodes(self, replicas: npt.ArrayLike) -> Ints:
        """Returns the nodes that so many replicas take, filled one after the other."""
        return np.asarray(-(-np.asarray(replicas, np.int64) // self.per_node), np.int64)

    @property
    def counts(self) -> Ints:
        """Allocations: every count on one node, then whole nodes."""
        one = np.arange(1, min(self.per_node, self.replicas) + 1)
        whole = np.arange(2 * self.per_node, self.replicas + 1, self.per_node)
        return np.concatenate([one, whole]).astype(np.int64)


@dataclass(frozen=True)
class Run:
    """One way to run: nodes, replicas, samples per micro-step and replica, steps of accumulation, and what the model predicts."""

    nodes: int
    replicas: int
    atomic: int
    accum: int
    goodput: float
    throughput: float
    efficiency: float
    speedup: float

    @property
    def total(self) -> int:
        """Total batch size."""
        return self.replicas * self.atomic * (self.accum + 1)


@dataclass(frozen=True)
class Grid:
    """Goodput over total batch sizes and counts of replicas.

    goodput[total][count]: NaN where that total batch size cannot be run on so many replicas.

    atomic, steps: the micro-batch and the steps of accumulation of each; their total is the row's, rounded up to whole samples.
    """

    counts: Ints
    totals: Floats
    goodput: Floats
    atomic: Floats
    steps: Floats


class Prediction:
    """The model of a fit under some terms."""

    def __init__(self, fit: Fit, terms: Terms) -> None:
        self.fit = fit
        self.terms = terms
        self.goodput = GoodputFunction(fit.params, terms.grads, terms.initial)  # totals above `most` are left out: strict
        self._limits = (max(terms.most, terms.initial), (terms.low, terms.high), terms.accumulation)
        self.speedup = SpeedupFunction(self.goodput, *self._limits, strict=True)

    @cached_property
    def best(self) -> dict[str, Floats]:
        """Per count of replicas its best batch size: replicas, nodes, atomic, accum, goodput, throughput, efficiency, speedup."""
        counts = self.terms.counts
        nodes = self.terms.nodes(counts)
        found = self.goodput.optimize(nodes, counts, *self._limits, strict=True)
        atomic, accum = np.asarray(found.atomic_bsz, float), np.asarray(found.accum_steps, float)
        value = np.asarray(found.goodput, float)
        runs = np.isfinite(value)
        throughput = np.full(len(counts), np.nan)
        if runs.any():
            throughput[runs] = self.goodput.throughput(nodes[runs], counts[runs], atomic[runs], accum[runs])
        return {
            "replicas": counts.astype(float), "nodes": nodes.astype(float), "atomic": atomic, "accum": accum, "goodput": value,
            "throughput": throughput, "efficiency": value / throughput, "speedup": np.asarray(self.speedup(nodes, counts), float),
        }  # fmt: skip

    def at(self, place: int) -> Run:
        """Returns the best way to run one of the counts."""
        b = {name: float(values[place]) for name, values in self.best.items()}
        return Run(
            nodes=int(b["nodes"]), replicas=int(b["replicas"]), atomic=int(b["atomic"]), accum=int(b["accum"]), goodput=b["goodput"],
            throughput=b["throughput"], efficiency=b["efficiency"], speedup=b["speedup"],
        )  # fmt: skip

    @cached_property
    def stop(self) -> int:
        """Place among the counts from which on a further replica brings less than `share` of one; -1 where none of them can be run.

        The gain is that in speedup from one allocation to the next, over the replicas that it adds. The last one if all pay.
        """
        runs = np.flatnonzero(np.isfinite(self.best["goodput"]))
        if not len(runs):
            return -1
        r, s = self.best["replicas"][runs], self.best["speedup"][runs]
        gains = np.diff(s) / np.diff(r)
        short = np.flatnonzero(gains < self.terms.share)
        return int(runs[short[0]] if len(short) else runs[-1])

    @property
    def next(self) -> int:
        """Place of the next larger allocation after `stop` that can be run; `stop` itself where there is none."""
        runs = np.flatnonzero(np.isfinite(self.best["goodput"]))
        return int(next(iter(runs[runs > self.stop]), self.stop))

    @property
    def pays_on(self) -> bool:
        """Whether adding still pays at the largest count considered."""
        runs = np.flatnonzero(np.isfinite(self.best["goodput"]))
        return len(runs) > 0 and self.stop == int(runs[-1])

    @cached_property
    def later(self) -> int:
        """Place of the largest count up to which replicas added after `stop` pay on average, where more than one does; else -1.

        The first ones across nodes can bring less than those after them.
        """
        if self.stop < 0:
            return -1
        r, s = self.best["replicas"], self.best["speedup"]
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = (s - s[self.stop]) / (r - r[self.stop])
        found = np.flatnonzero(np.isfinite(self.best["goodput"]) & (np.arange(len(r)) > self.stop) & (mean >= self.terms.share))
        return int(found[-1]) if len(found) else -1

    @cached_property
    def top(self) -> int:
        """Place of the count with the highest goodput, -1 where none can be run."""
        value = self.best["goodput"]
        return int(np.nanargmax(value)) if np.isfinite(value).any() else -1

    @cached_property
    def grid(self) -> Grid:
        """Goodput over replicas and total batch sizes, in equal ratios from the initial to the largest one."""
        t = self.terms
        counts = _few(t.counts)
        totals = np.geomspace(t.initial, max(t.most, t.initial), GRID) if t.most > t.initial else np.array([float(t.initial)])
        r, total = np.meshgrid(counts.astype(float), totals)
        share = total / r
        steps = np.ceil(share / t.high - _EPS) - 1 if t.accumulation else np.zeros_like(share)
        if t.accumulation:  # a lone replica needs two micro-steps for its statistics
            steps = np.where((r == 1) & (share > t.initial + _EPS), np.maximum(steps, 1), steps)
        whole = np.floor(max(t.most, t.initial) / (r * (steps + 1)) + _EPS)
        atomic = np.minimum(np.ceil(share / (steps + 1) - _EPS), whole)
        fits = (share >= 1 - _EPS) & (atomic >= max(t.low, 1)) & (atomic <= t.high) & (r * atomic * (steps + 1) >= t.initial)
        if not t.accumulation:
            fits &= (r > 1) | (total <= t.initial + 1)
        out = np.full(share.shape, np.nan)
        if fits.any():
            out[fits] = self.goodput.evaluate(t.nodes(r[fits].astype(np.int64)), r[fits], atomic[fits], steps[fits])
        return Grid(counts, totals, out, atomic, steps)

    def split(self, place: int) -> tuple[float, float, float]:
        """Returns (compute, network, step) in seconds of one updating micro-step of the best way to run a count."""
        b = self.best
        compute = accum_time(self.fit.params, b["atomic"][place])
        network = network_time(self.fit.params, b["nodes"][place], b["replicas"][place]) if b["replicas"][place] > 1 else 0.0
        step = optim_time(self.fit.params, b["nodes"][place], b["replicas"][place], b["atomic"][place])
        return float(compute), float(network), float(step)


def _few(counts: Ints) -> Ints:
    """Returns at most COLUMNS of the counts: the first ones, then in equal ratios; always the last."""
    if len(counts) <= COLUMNS:
        return counts
    wanted = np.geomspace(1, counts[-1], COLUMNS)
    return np.unique(counts[np.minimum(np.searchsorted(counts, wanted - _EPS), len(counts) - 1)])


# -- What a prediction takes for granted that the points do not show -------------------------------------------------
# more replicas or larger micro-batches than ran, unknown parameters.


def extrapolation(points: Sequence[Point], fit: Fit, nodes: int, replicas: int, atomic: int) -> tuple[str, ...]:
    """Returns how a configuration is outside the points of a fit, as text; empty where it is not."""
    out = []
    most, largest = max(p.num_replicas for p in points), max(p.atomic_bsz for p in points)
    if replicas > most:
        out.append(f"more replicas than the {most} that ran")
    if atomic > largest:
        out.append(f"a larger micro-batch than the {largest} that ran")
    return (*out, *unknown(fit, nodes, replicas))


def unknown(fit: Fit, nodes: int, replicas: int) -> tuple[str, ...]:
    """Returns what points do not determine of the synchronization of a configuration. A rate that is not observed counts as nothing."""
    if replicas < 2:
        return ()
    link, where = ("n", "across nodes") if nodes > 1 else ("r", "within a node")
    rules = [r.partition(":")[0] for r in fit.rules]
    if f"alpha_{link} not observed" in rules:
        return (f"synchronizing {where} was never observed",)
    if replicas > 2 and f"beta_{link} not observed" in rules:
        return (f"how synchronizing {where} grows with replicas was never observed",)
    return ()


def splits_by_count(points: Sequence[Point], prediction: Prediction) -> list[tuple[str, ...]]:
    """Returns the split of a micro-step for the best way to run each count of replicas; empty where it cannot be run."""
    b = prediction.best
    return [
        extrapolation(points, prediction.fit, int(n), int(r), int(a)) if g == g else ()
        for n, r, a, g in zip(b["nodes"], b["replicas"], b["atomic"], b["goodput"], strict=True)
    ]


# -- The terms under which a model predicts --------------------------------------------------------------------------
# as chosen, as recorded, or taken from the points, each with where it is from.


FURTHER: Final = 4
"""Unless a query names limits, predictions go to so many times the replicas and the total batch size of the points."""
MOST_REPLICAS: Final = 4096


@dataclass(frozen=True)
class TermsQuery:
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
class ResolvedTerms:
    """The terms of a fit with the origin of each.

    terms, and where each is from: name of a field of `Terms` -> words. memory: how the device's memory sets `high`, "" it does not.
    """

    terms: Terms
    origin: Mapping[str, str]
    memory: str = ""


def resolve_terms(points: Sequence[Point], parts: Sequence[ScalingPart], given: PointsFile, wanted: TermsQuery) -> ResolvedTerms:
    """Settles the terms for these points (at least one): as chosen, else as recorded or given, else by the points."""
    origin: dict[str, str] = {}

    def first(name: str, *choices: tuple[int, str]) -> int:
        value, words = next((v, w) for v, w in choices if v > 0)
        origin[name] = words
        return value

    totals = [p.num_replicas * p.atomic_bsz for p in points]
    batches = [p.atomic_bsz for p in points]
    recorded_low, recorded_high = max((p.bounds[0] for p in parts), default=0), max((p.bounds[1] for p in parts), default=0)
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
        "high", (wanted.high, "chosen"), (recorded_high, "recorded"), (given.bounds[1], "given"), (limit, memory),
        (max(batches), "the largest that ran"),
    )  # fmt: skip
    low = first("low", (wanted.low, "chosen"), (recorded_low, "recorded"), (given.bounds[0], "given"), (1, "any"))
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
    return ResolvedTerms(terms, origin, memory if origin["high"] == memory else "")


def memory_limit(seen: Sequence[tuple[int, int, int]]) -> tuple[int, str]:
    """Returns (largest micro-batch that fits by a straight line through reserved memory at two or more batch sizes, words).

    (0, "") unknown.

    seen: per worker samples of a micro-step, most bytes reserved on a device, the device's memory (0 or -1 unknown). An estimate.
    """
    known = [(b, used, total) for b, used, total in seen if b > 0 and used > 0 and total > 0]
    if len({b for b, _, _ in known}) < 2:
        return 0, ""
    n, sum_b, sum_used = len(known), sum(b for b, _, _ in known), sum(h for _, h, _ in known)
    spread = n * sum(b * b for b, _, _ in known) - sum_b**2
    slope = Fraction(n * sum(b * h for b, h, _ in known) - sum_b * sum_used, spread)  # least squares, exact in whole bytes
    room = min(t for _, _, t in known)
    if slope <= 0:
        return 0, ""
    most = int((room - (sum_used - slope * sum_b) / n) // slope)
    return (most, "estimated from the memory that two batch sizes reserved") if most >= 1 else (0, "")


def _batches_by_place(used: Sequence[Point]) -> dict[tuple[int, int], set[int]]:
    """Returns sizes of the micro-batch that were measured, by (nodes, replicas) of more than one replica."""
    out: dict[tuple[int, int], set[int]] = {}
    for p in used:
        if p.num_replicas > 1:
            out.setdefault((p.num_nodes, p.num_replicas), set()).add(p.atomic_bsz)
    return out


def _replicas_to_measure(within: Sequence[Point], several: Sequence[Point], most: int) -> list[str]:
    """Returns counts of replicas that are missing.

    within: points of several replicas on one node; several: of several nodes; most: replicas.
    """
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
    """Returns what to run next so that more of the model is known, the most informative first; empty where everything is."""
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
