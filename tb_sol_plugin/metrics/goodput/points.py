"""Makes points for the model of step time: one per configuration of a run, from traces, records and files that a person writes."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

import msgspec
import numpy as np

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.goodput.part import Counted, ScalingPart, Step
from tb_sol_plugin.model.recordings import RecordingReduction
from tb_sol_plugin.tables.arrays import Floats

Source: TypeAlias = Literal["given", "recorded", "trace", "capture"]
SOURCES: Final[tuple[Source, ...]] = ("given", "recorded", "trace", "capture")
"""Of one configuration in one run the first of these is used."""
STANDS: Final[dict[Source, str]] = {
    "given": "what was given", "recorded": "what was recorded", "trace": "the trace", "capture": "the capture",
}  # fmt: skip
FAR: Final = 5.0
"""Steps that lie this many median absolute deviations from the median are left out."""
ALIKE: Final = 0.01
"""Where most steps last exactly as long, those that differ by more than this part of it are left out."""
SHORTEST: Final = 1e-9
LONGEST: Final = 1e7
"""Seconds of a step."""
CONTRARY: Final = 1.1
"""A micro-step without synchronization that lasts so many times one with it contradicts it; below, the difference is noise."""


@dataclass(frozen=True)
class Point:
    """One configuration as measured. Times in seconds.

    accum_step_time: of a micro-step that only accumulates; optim_step_time: of one that reduces gradients and updates; sync_time: the
    part of that which nothing hides. steps: that update; accumulating: that do not. outliers: steps left out. guessed: what was worked
    out rather than recorded, in words. used: whether the fit may take it; why: why not.
    """

    run: str
    num_nodes: int
    num_replicas: int
    atomic_bsz: int
    accum_step_time: float
    optim_step_time: float
    sync_time: float
    steps: int
    accumulating: int
    source: Source
    outliers: int = 0
    guessed: tuple[str, ...] = ()
    used: bool = True
    why: str = ""

    @property
    def key(self) -> tuple[int, int, int]:
        """(nodes, replicas, samples per micro-step and replica)."""
        return self.num_nodes, self.num_replicas, self.atomic_bsz

    @property
    def batch_guessed(self) -> bool:
        """Whether the batch size was derived from an input rather than recorded."""
        return any(words.startswith("batch size") for words in self.guessed)


def of_run(run: str, workers: Sequence[RecordingReduction[ScalingPart]]) -> tuple[list[Point], list[str]]:
    """Returns points of one run, and why it gives none (or fewer), as text."""
    parts = [(w, w.reduced) for w in sorted(workers, key=lambda w: w.order) if w.state == "read"]
    broken = [w.problem for w in workers if w.state in ("failed", "lacking") and w.problem]
    if not parts:
        return [], broken[:1]
    recorded = _recorded(run, [p for _, p in parts])
    reasons: list[str] = []
    return [*recorded, *_traced(run, parts, reasons)], reasons if not recorded else []


def _recorded(run: str, parts: Sequence[ScalingPart]) -> list[Point]:
    """Makes points from the sums that the program kept: each rank has its own, the slowest represents a configuration.

    Steps whose wait for gradients is known take precedence over others of the same configuration.
    """
    slowest: dict[tuple[int, int, int], Counted] = {}
    for part in parts:
        for c in part.counted:
            if c.optim_count <= 0:
                continue
            key = c.num_nodes, c.num_replicas, c.atomic_bsz
            if key not in slowest or _precedence(c) > _precedence(slowest[key]):
                slowest[key] = c
    out = []
    for key, c in sorted(slowest.items()):
        optim, guessed = c.optim_step_time / c.optim_count, ""
        if c.optim_sync_time is not None:
            sync = c.optim_sync_time / c.optim_count
            accum = (c.accum_step_time + c.optim_step_time - c.optim_sync_time) / (c.accum_count + c.optim_count)
        elif c.accum_count:
            accum = c.accum_step_time / c.accum_count
            sync, guessed = max(optim - accum, 0.0), "synchronization: the step less one that only accumulates"
        else:
            accum, sync = optim, 0.0
            guessed = "" if key[1] == 1 else "synchronization: not recorded, its time is taken as 0"
        words = (guessed,) if guessed else ()
        out.append(checked(Point(run, *key, accum, optim, sync, c.optim_count, c.accum_count, "recorded", 0, words)))
    return out


def _precedence(c: Counted) -> tuple[bool, float]:
    return c.optim_sync_time is not None, c.optim_step_time / c.optim_count


def _traced(run: str, parts: Sequence[tuple[RecordingReduction[ScalingPart], ScalingPart]], reasons: list[str]) -> list[Point]:
    """Makes points from steps in traces: of each step the slowest rank, of the steps of one batch size the median."""
    stepping = [(w, p) for w, p in parts if p.steps]
    if not stepping:
        reasons.append("no finished step beyond the first one: call prof.step() after every iteration, and record several")
        return []
    guessed: list[str] = []
    size = _size(stepping, guessed, reasons)
    if size is None:
        return []
    batches = [p for _, p in stepping if p.batch]
    batch = batches[0] if batches else None
    source: Source = "capture" if all(w.facts is not None and w.facts.source == "sol_capture" for w, _ in stepping) else "trace"
    out = []
    for one, own in sorted(_by_batch([p for _, p in stepping], guessed, reasons).items()):
        words = [f"batch size: {batch.batch_source}"] if batch is not None and batch.batch_guessed and one == batch.batch else []
        point = _median(run, (*size, one), own, (*guessed, *words), reasons, source)
        out += [point] if point is not None else []
    return out


def _by_batch(parts: Sequence[ScalingPart], guessed: list[str], reasons: list[str]) -> dict[int, list[list[Step]]]:
    """Returns steps of all ranks by their batch size, each a list of its steps by rank.

    A step has one number in all ranks, and what not all have is left out; where they share less than half of their numbers, steps are
    matched from the last one on. A step whose batch size is not known or differs between ranks is none of a configuration.
    """
    every = [{s.number: (s, s.batch or p.batch) for s in p.steps} for p in parts]
    shared = set(every[0]).intersection(*every[1:])
    if 2 * len(shared) >= min(len(own) for own in every):
        rows = [[own[number] for own in every] for number in sorted(shared)]
    else:
        guessed.append("steps: ranks number them differently, matched from the last one on")
        ordered = [[own[number] for number in sorted(own)] for own in every]
        shortest = min(len(own) for own in ordered)
        rows = [list(row) for row in zip(*(own[-shortest:] for own in ordered), strict=True)]
    out: dict[int, list[list[Step]]] = defaultdict(list)
    mixed = unknown = 0
    for row in rows:
        sizes = {batch for _, batch in row if batch}
        mixed += len(sizes) > 1
        unknown += not sizes
        if len(sizes) == 1:
            out[sizes.pop()].append([s for s, _ in row])
    if mixed and not out:
        reasons.append("ranks ran different batch sizes in the same step, which is no configuration of the model")
    elif unknown and not out:
        reasons.append("the batch size is not known: prof.add_metadata_json('atomic_bsz', '32') records it")
    return out


def _size(
    stepping: Sequence[tuple[RecordingReduction[ScalingPart], ScalingPart]], guessed: list[str], reasons: list[str]
) -> tuple[int, int] | None:
    """Returns (nodes, replicas): as the program recorded them, else replicas of the world's size, and nodes as host names."""
    replicas = max(p.replicas for _, p in stepping)
    ranks = {w.rank if w.rank is not None else w.worker for w, _ in stepping}
    world = max((w.facts.world_size or 0 for w, _ in stepping if w.facts is not None), default=0)
    if not replicas:
        if not world:
            world = len(ranks)
            if world > 1 or any(s.reduces for _, p in stepping for s in p.steps):
                guessed.append("replicas: as many as there are recordings")
        model = max(max(p.tensor, 1) * max(p.pipeline, 1) for _, p in stepping)
        if world % model:
            reasons.append(f"{world} ranks are no multiple of tensor x pipeline parallel size {model}")
            return None
        replicas = world // model
    nodes = max(p.nodes for _, p in stepping)
    if not nodes:
        hosts = {p.host for _, p in stepping if p.host}
        nodes = max(len(hosts), 1)
        if replicas > 1:
            from_files = any(p.host_guessed for _, p in stepping)
            guessed += _guess_of_nodes(len(ranks), world, named=bool(hosts), from_files=from_files)
    return min(nodes, replicas), replicas


def _guess_of_nodes(ranks: int, world: int, *, named: bool, from_files: bool) -> list[str]:
    """Returns what a number of nodes that was counted by host names rests on; nothing where every rank names its host."""
    if ranks < world:
        return [f"nodes: host names of {ranks} of {world} ranks"]
    if not named:
        return ["nodes: no host is named, taken as one"]
    return ["nodes: from the names of the files"] if from_files else []


def _median(
    run: str, key: tuple[int, int, int], steps: Sequence[Sequence[Step]], guessed: tuple[str, ...], reasons: list[str], source: Source
) -> Point | None:
    """Takes the median over steps of one configuration. steps: of each, one entry per rank; the slowest rank represents it."""
    slowest = [max(ranks, key=lambda s: s.duration_ns) for ranks in steps]
    rows = [(s.duration_ns, s.sync_ns, any(r.reduces for r in ranks)) for s, ranks in zip(slowest, steps, strict=True)]
    several = key[1] > 1
    updating = [r for r in rows if r[2]] if several and any(r[2] for r in rows) else rows
    only = [r for r in rows if not r[2]] if several and any(r[2] for r in rows) else []
    if several and not any(r[2] for r in rows):
        guessed = (*guessed, "synchronization: no reduction of gradients is recorded, its time is taken as 0")
    optim, far = _without_outliers(np.array([r[0] for r in updating], float))
    sync = np.array([r[1] for r in updating], float)
    alone = np.concatenate([np.array([r[0] for r in only], float), np.array([r[0] for r in updating], float) - sync])
    alone, far_too = _without_outliers(alone)
    if not len(optim) or not len(alone):
        reasons.append("no step is left")
        return None
    step = float(np.median(optim))
    point = Point(
        run, *key, min(float(np.median(alone)), step) / 1e9, step / 1e9, float(np.median(sync)) / 1e9,
        len(updating), len(only), source, max(far, far_too), guessed,
    )  # fmt: skip
    return checked(point)


def _without_outliers(values: Floats) -> tuple[Floats, int]:
    """Returns (values without those far from the median, how many are left out)."""
    if len(values) < 3:
        return values, 0
    away = np.abs(values - np.median(values))
    mad = float(np.median(away))
    keep = away <= (FAR * mad if mad > 0 else ALIKE * float(np.median(values)))
    return values[keep], int((~keep).sum())


def checked(p: Point) -> Point:
    """Returns the point, left out of the fit where its numbers cannot be."""
    why = ""
    numbers = (p.accum_step_time, p.optim_step_time)
    if p.source != "given" and 0 < p.optim_step_time < p.sync_time * (1 - 1e-9):
        why = "synchronization lasts longer than the step"
    elif not all(np.isfinite(n) and n > 0 for n in numbers) or not np.isfinite(p.sync_time) or p.sync_time < 0:
        why = "a time is not above 0"
    elif not SHORTEST <= min(numbers) <= max(numbers) <= LONGEST:
        why = "a time is no step's: seconds are meant"
    elif p.accum_step_time > CONTRARY * p.optim_step_time:
        why = "without synchronization it lasts longer than with it: the two times contradict each other"
    elif p.num_nodes < 1:
        why = "it ran on no node"
    elif p.num_nodes > p.num_replicas:
        why = "more nodes than replicas"
    elif p.atomic_bsz < 1:
        why = "the batch size is not above 0"
    return replace(p, used=False, why=why) if why else p


def contrary(points: Sequence[Point], *, times: float = 1.3) -> list[tuple[Point, Point]]:
    """Pairs of used points of one configuration whose steps differ by more than `times`: the fastest and the slowest of each."""
    by_key: dict[tuple[int, int, int], list[Point]] = defaultdict(list)
    for p in points:
        if p.used:
            by_key[p.key].append(p)
    ends = [(min(own, key=lambda p: p.optim_step_time), max(own, key=lambda p: p.optim_step_time)) for _, own in sorted(by_key.items())]
    return [(fast, slow) for fast, slow in ends if slow.optim_step_time > times * fast.optim_step_time]


def combined(points: Sequence[Point]) -> list[Point]:
    """Returns all points; of one configuration and run what was given takes precedence over what was recorded, and that over a trace."""
    best: dict[tuple[str, tuple[int, int, int]], int] = defaultdict(lambda: len(SOURCES))
    for p in points:
        if p.used:
            where = (p.run, p.key)
            best[where] = min(best[where], SOURCES.index(p.source))
    out = []
    for p in points:
        rank = best[p.run, p.key]
        behind = p.used and SOURCES.index(p.source) > rank
        out.append(replace(p, used=False, why=f"{STANDS[SOURCES[rank]]} stands for it") if behind else p)
    return out


# -- Points that a person writes down --------------------------------------------------------------------------------
# a small JSON or CSV file in the folder of the runs, or named on the command line.
#
# JSON holds lists of equal length (seconds), CSV the same names as columns. Only the first three and one of the times are needed:
#
#   {"num_nodes": [1, 2], "num_replicas": [4, 8], "atomic_bsz": [32, 32], "accum_step_time": [0.30, 0.30], "optim_step_time": [0.34, 0.41]}
#
# A list `run` names the run that a point is of: it then takes precedence over that run's recordings of the same configuration. JSON may
# also have `grad_params` ({"sqr", "var"}), `init_batch_size`, `max_batch_size`, `atomic_bsz_range` ([low, high]) and `accumulation`, with
# points or without. Gradient statistics may also be in scalars that the program wrote for TensorBoard.


SQR_TAG: Final = "adaptdl/grad_sqr"
VAR_TAG: Final = "adaptdl/grad_var"
FILES: Final = ("sol_scaling.json", "sol_scaling.csv", f"scalar:{SQR_TAG}", f"scalar:{VAR_TAG}")
"""Names under which it is found in the folder of the runs, and scalars of TensorBoard that have gradient statistics."""
NEEDED: Final = ("num_nodes", "num_replicas", "atomic_bsz", "optim_step_time")
LARGEST: Final = 4 * 1024 * 1024
"""Bytes of such a file at most."""
MOST: Final = 20_000
_HINT: Final = "lists num_nodes, num_replicas, atomic_bsz, accum_step_time, optim_step_time of equal length, times in seconds"


@dataclass(frozen=True)
class PointsFile:
    """What a file of points holds.

    points, and what else the file has; None and 0 are unknown. bad: rows that were left out, with the reason.

    grads_from: where sqr and var are from, in words.
    """

    points: tuple[Point, ...] = ()
    sqr: float | None = None
    var: float | None = None
    initial: int = 0
    most: int = 0
    bounds: tuple[int, int] = (0, 0)
    accumulation: bool | None = None
    grads_from: str = "given"
    bad: tuple[str, ...] = field(default=())


def parse(text: str, name: str) -> PointsFile:
    """Returns the file's points. name: for messages, and `.csv` at its end says what it is. BadQuery where it is no such file."""
    if len(text) > LARGEST:
        raise BadQuery(f"{name}: larger than {LARGEST // 1024 // 1024} MiB", hint=f"give {_HINT}", field="points")
    columns, rest = _csv(text, name) if name.lower().endswith(".csv") else _json(text, name)
    if not columns and rest != NOTHING:
        return PointsFile((), *rest)
    missing = [n for n in NEEDED if n not in columns]
    if missing:
        raise BadQuery(f"{name}: {', '.join(missing)} missing", hint=f"give {_HINT}", field="points")
    lengths = {len(v) for v in columns.values()}
    if len(lengths) != 1 or max(lengths) > MOST:
        why = f"more than {MOST:,} points" if len(lengths) == 1 else "its lists differ in length"
        raise BadQuery(f"{name}: {why}", hint=f"give {_HINT}", field="points")
    points, bad = [], []
    for i in range(lengths.pop()):
        row = {n: values[i] for n, values in columns.items()}
        try:
            points.append(_point(row))
        except ValueError as error:
            bad.append(f"{name}: point {i + 1}: {error}")
    return PointsFile(tuple(points), *rest, bad=tuple(bad))


def _point(row: dict[str, object]) -> Point:
    nodes, replicas, batch = (_number(row, n) for n in NEEDED[:3])
    if any(v != round(v) for v in (nodes, replicas, batch)):
        raise ValueError("nodes, replicas and batch size must be whole numbers")
    if max(map(abs, (nodes, replicas, batch))) >= 2**31:
        raise ValueError("nodes, replicas or batch size is larger than any job's")
    optim = _number(row, "optim_step_time")
    measured = row.get("accum_step_time") not in (None, "")
    accum = _number(row, "accum_step_time") if measured else optim
    guessed = () if measured or replicas == 1 else ("time without synchronization: not given, taken as the step's",)
    run = str(row.get("run") or "")
    return checked(Point(run, int(nodes), int(replicas), int(batch), accum, optim, max(optim - accum, 0.0), 0, 0, "given", 0, guessed))


def _number(row: dict[str, object], name: str) -> float:
    value = row.get(name)
    try:
        found = float(str(value))
    except ValueError:
        raise ValueError(f"{name} is {str(value)[:40]!r}, no number") from None
    if not math.isfinite(found) or isinstance(value, bool):
        raise ValueError(f"{name} is {str(value)[:40]!r}, no number")
    return found


Rest = tuple[float | None, float | None, int, int, tuple[int, int], bool | None, str]
NOTHING: Final[Rest] = (None, None, 0, 0, (0, 0), None, "given")


def _csv(text: str, name: str) -> tuple[dict[str, list[object]], Rest]:
    try:
        rows = list(csv.DictReader(io.StringIO(text.lstrip("\ufeff")), strict=True))
    except csv.Error as error:
        raise BadQuery(f"{name}: {error}", hint=f"a header line with the names, then one line per point: {_HINT}", field="points") from None
    names = [n for n in (rows[0] if rows else {}) if n]
    return {n.strip(): [r.get(n) for r in rows] for n in names}, NOTHING


class _File(msgspec.Struct):
    num_nodes: list[float | None] = []
    num_replicas: list[float | None] = []
    atomic_bsz: list[float | None] = []
    accum_step_time: list[float | None] = []
    optim_step_time: list[float | None] = []
    run: list[str | None] = []
    grad_params: dict[str, float | None] | None = None
    scalars: dict[str, float] = {}
    init_batch_size: int | None = None
    max_batch_size: int | None = None
    atomic_bsz_range: tuple[int, int] | None = None
    accumulation: bool | None = None


def _json(text: str, name: str) -> tuple[dict[str, list[object]], Rest]:
    try:
        found = msgspec.json.decode(text, type=_File)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise BadQuery(f"{name}: {error}", hint=f"give {_HINT}", field="points") from None
    columns = {n: list(v) for n in (*NEEDED, "accum_step_time", "run") if (v := getattr(found, n))}
    grads = found.grad_params or {}
    sqr, var = grads.get("sqr", grads.get("norm")), grads.get("var")
    whole = (max(found.init_batch_size or 0, 0), max(found.max_batch_size or 0, 0))
    source = "given"
    if found.scalars and sqr is None and var is None:
        sqr, var, source = found.scalars.get(SQR_TAG), found.scalars.get(VAR_TAG), f"scalars {SQR_TAG} and {VAR_TAG}, their last values"
    return columns, (sqr, var, *whole, found.atomic_bsz_range or (0, 0), found.accumulation, source)
