"""Fits the model of goodput to the points of all recordings and of the files in their folders."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

import msgspec
import numpy as np

from tb_sol_plugin.cost.goodput.confidence import Bootstrap, LeftOut, bootstrap, leave_one_out
from tb_sol_plugin.cost.goodput.fit import Fit, fit, plain_objective
from tb_sol_plugin.cost.goodput.fit import points as usable
from tb_sol_plugin.cost.goodput.model import accum_time, optim_time
from tb_sol_plugin.errors import BadInput, BadQuery, Unavailable
from tb_sol_plugin.metrics.goodput import points as G
from tb_sol_plugin.metrics.goodput.job import difference, unproven
from tb_sol_plugin.metrics.goodput.part import ScalingPart
from tb_sol_plugin.metrics.goodput.points import Point, combined, of_run
from tb_sol_plugin.metrics.goodput.predict import Prediction, ResolvedTerms, TermsQuery, resolve_terms
from tb_sol_plugin.model.recordings import RecordingReduction, ReducedFacts, Sidecar
from tb_sol_plugin.tables.arrays import Floats
from tb_sol_plugin.units import how_many, human

RECORD: Final = (
    "record a few steps of one or more configurations with the profiler and record the batch size with "
    "prof.add_metadata_json('atomic_bsz', '32'), or call profile_step_start and profile_step_commit of tb_sol_plugin.capture in the loop"
)
MOST_RUNS: Final = 1_024
"""Runs whose points are remembered."""
FAR_OFF: Final = 0.1
"""An error of the fit at one point beyond which nothing is recommended."""
FITTING: Final = 20_000
RESAMPLING: Final = 15_000
LEAVING_OUT: Final = 5_000
"""Evaluations of the objective that a page spends on its fit, on 200 resampled fits, on all fits without one configuration: some 0.1 ms
each, and somewhat more than noisy points of 36 configurations take."""


@dataclass(frozen=True)
class Gathered:
    """The points of a job and the fit to them.

    points: all of them, used or not. fit: None where no point can be used. silent: runs that are left out or give no point -> why.
    chosen: the run whose job it is, "" where there is none. doubts: why nothing is recommended, each with what to record; empty where
    the fit is worth it. boot, left_out, plain: how far it can be trusted; resampled only then.
    """

    points: tuple[Point, ...]
    prediction: Prediction | None
    settled: ResolvedTerms | None
    boot: Bootstrap | None
    left_out: tuple[LeftOut, ...]
    plain: float | None
    biased: bool
    silent: dict[str, str]
    chosen: str = ""
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def used(self) -> tuple[Point, ...]:
        """Points that the fit takes, in order."""
        return tuple(p for p in self.points if p.used)

    @property
    def fit(self) -> Fit | None:
        """The fit to them."""
        return self.prediction.fit if self.prediction is not None else None


def _by_run(workers: Sequence[RecordingReduction[ScalingPart]], wanted: Sequence[str]) -> dict[str, list[RecordingReduction[ScalingPart]]]:
    """Sort recordings by run, those of the wanted runs or of all. BadQuery for a run that is not there."""
    own_of: dict[str, list[RecordingReduction[ScalingPart]]] = {}
    for w in workers:
        if not wanted or w.run in wanted:
            own_of.setdefault(w.run, []).append(w)
    unknown = [name for name in wanted if name not in own_of]
    if unknown:
        raise BadQuery(f"no run {unknown[0]!r} here", hint=f"there is: {', '.join([*{w.run for w in workers}][:8])}", field="runs")
    return own_of


def gather(
    workers: Sequence[RecordingReduction[ScalingPart]],
    files: Sequence[Sidecar],
    *,
    runs: str = "",
    path: str = "",
    terms: TermsQuery | None = None,
    sure: bool = True,
) -> Gathered:
    """Fits the model to the points of one job: of its runs, of the files in their folders and of the one at `path`.

    The job is that of the run that is shown, else of the first one; `runs` (separated by commas, "" all) names those that may be of it. A
    run is taken where its model, device and optimizer prove that it is of the job; one that is named, where nothing speaks against it.
    terms: what was chosen. sure: how far the fit can be trusted is estimated too. Unavailable where there is no point at all, with the
    reasons of the runs; BadQuery for a run that is not there.
    """
    wanted = [name.strip() for name in runs.split(",") if name.strip()]
    own_of = _by_run(workers, wanted)
    chosen, notes = _chosen(own_of, named=bool(wanted))
    apart, more = others(own_of, chosen, named=bool(wanted))
    notes += more
    silent = dict(apart)
    points, parts = _of_job(own_of, silent)
    given, more = _given(files, path, set(own_of) - set(apart))
    notes += more
    points += [
        replace(p, used=False, why=apart[p.run]) if p.run in apart else p
        for p in given.points
        if not (wanted and p.run) or p.run in wanted
    ]
    points = combined(points)
    if not points:
        reasons = list(dict.fromkeys(silent.values()))
        why_none = silent.get(chosen) or (reasons[0] if len(reasons) == 1 else "no recording here has the times of steps")
        raise Unavailable(why_none, hint=RECORD)
    used = tuple(p for p in points if p.used)
    for name in {p.run for p in used}:
        silent.pop(name, None)  # its own recordings give no point, a file does
    if not used:
        return Gathered(tuple(points), None, None, None, (), None, False, silent, chosen, notes=tuple(notes))
    settled = resolve_terms(used, parts, given, terms or TermsQuery())
    rows = tuple((*p.key, p.accum_step_time, p.optim_step_time) for p in used)
    made = _fit(rows)
    left, plain = _left_out(rows) if sure else ((), None)
    doubts = (*guesses(used), *misfits(used, made, left))
    boot = _resampled(rows) if sure and not doubts else None
    biased = settled.origin["grads"] == "recorded" and all(p.biased for p in parts if p.sqr is not None)
    return Gathered(
        tuple(points), Prediction(made, settled.terms), settled, boot, left, plain, biased, silent, chosen, doubts, tuple(notes)
    )


def _of_job(
    own_of: Mapping[str, Sequence[RecordingReduction[ScalingPart]]], silent: dict[str, str]
) -> tuple[list[Point], list[ScalingPart]]:
    """Returns the points of all runs that are not silent, and their parts without steps; adds to `silent` those that give no point."""
    points: list[Point] = []
    parts: list[ScalingPart] = []
    for name, own in own_of.items():
        if name in silent:
            continue
        found, why, reduced = _RUNS.of(name, own)
        points += found
        parts += reduced
        if not found and any(w.state != "waiting" for w in own):
            silent[name] = why[0] if why else "nothing of it could be read"
    return points, parts


def _chosen(runs: Mapping[str, Sequence[RecordingReduction[ScalingPart]]], *, named: bool) -> tuple[str, list[str]]:
    """Returns the run whose job is fitted, and notes: the one that is shown, else the first that could be read, else the first; "" without
    any. named: a person named the runs, and the one that is shown may not be among them.
    """
    shown = [name for name, own in runs.items() if any(w.shown for w in own)]
    read = [name for name, own in runs.items() if any(w.state == "read" for w in own)]
    chosen = next(iter((*shown, *read, *runs)), "")
    apart = named and not shown
    return chosen, [f"The fit is of the job of `{chosen}`, the first of the runs that were named, whatever run is shown."] if apart else []


# -- Runs of one job --------------------------------------------------------------------------------------------------


def others(
    runs: Mapping[str, Sequence[RecordingReduction[ScalingPart]]], chosen: str, *, named: bool = False
) -> tuple[dict[str, str], list[str]]:
    """Returns runs that are not proven to be of one job with the chosen one -> why, and notes on those that are taken without a proof.

    A run's model, device and optimizer are those of its first worker that could be read. Runs still being read stand in neither. named: a
    person named the runs, which will do where nothing known differs.
    """
    first = {name: found for name, own in runs.items() if (found := _first_read(own)) is not None}
    if chosen not in first:  # it was not read, or cannot be: nothing is known to be of its job
        waits = any(w.state == "waiting" for w in runs.get(chosen, ()))
        because = f"`{chosen}` {'is still being' if waits else 'could not be'} read: what is one job with it is not known"
        return {name: because for name in first if name != chosen}, []
    mine, facts = first[chosen]
    out: dict[str, str] = {}
    notes: list[str] = []
    for name, (its, its_facts) in first.items():
        if name == chosen:
            continue
        why = difference(its.job, its_facts, mine.job, facts, chosen)
        missing = "" if why else unproven(its.job, its_facts, mine.job, facts, chosen)
        if why or (missing and not named):
            out[name] = why or missing
        elif missing:
            notes.append(f"`{name}` is taken because it was named: {missing}.")
    return out, notes


def _first_read(own: Sequence[RecordingReduction[ScalingPart]]) -> tuple[ScalingPart, ReducedFacts] | None:
    read = next((w for w in sorted(own, key=lambda w: w.order) if w.state == "read"), None)
    return (read.reduced, read.facts) if read is not None and read.facts is not None else None


def alike(one: RecordingReduction[ScalingPart], chosen: RecordingReduction[ScalingPart]) -> bool:
    """Whether a recording may be of one job with one of the chosen run: only then further ranks of its run are worth reading."""
    if one.facts is None or chosen.facts is None:
        return False
    return not difference(one.reduced.job, one.facts, chosen.reduced.job, chosen.facts, chosen.run)


def jobs(workers: Sequence[RecordingReduction[ScalingPart]]) -> list[list[str]]:
    """Returns runs in groups of one job each, in order of their first run; a run without proof is a group of its own."""
    left = _by_run(workers, ())
    out = []
    while left:
        chosen = next(iter(left))
        not_its, _ = others(left, chosen)
        out.append([name for name in left if name not in not_its])
        left = {name: own for name, own in left.items() if name in not_its}
    return out


# -- Whether a fit is worth a recommendation --------------------------------------------------------------------------


def errors(used: Sequence[Point], made: Fit) -> tuple[Floats, Floats]:
    """Returns predicted over measured, less 1, of the step and of a micro-step without synchronization, per point."""
    nodes, replicas, batch = (np.array([getattr(p, n) for p in used], float) for n in ("num_nodes", "num_replicas", "atomic_bsz"))
    step, alone = np.array([p.optim_step_time for p in used]), np.array([p.accum_step_time for p in used])
    off = np.asarray(optim_time(made.params, nodes, replicas, batch)) / step - 1
    return off, np.asarray(accum_time(made.params, batch)) / alone - 1


def largest_error(used: Sequence[Point], made: Fit) -> tuple[float, str, Point]:
    """Returns the largest error of the fit without its sign, of what, and the point."""
    found = []
    for words, off in zip(("step", "micro-step without synchronization"), errors(used, made), strict=True):
        place = int(np.argmax(np.abs(off)))
        found.append((abs(float(off[place])), words, used[place]))
    return max(found, key=lambda one: one[0])


def guesses(used: Sequence[Point]) -> list[str]:
    """Returns what forbids a recommendation because batch sizes are guessed, with what to record instead."""
    hollow = [p for p in used if p.batch_guessed]
    if not hollow:
        return []
    names = list(dict.fromkeys(f"`{p.run}`" for p in hollow if p.run))
    where = f" of {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}" if names else ""
    return [
        f"the batch size{where} is guessed, not recorded: record it with `prof.add_metadata_json('atomic_bsz', '32')`, or with "
        "`profile_step_start(atomic_bsz)`"
    ]


def misfits(used: Sequence[Point], made: Fit, left: Sequence[LeftOut] = ()) -> list[str]:
    """Returns what forbids a recommendation because the fit is off at a point, with what to measure again: what agrees least with the
    fit of all others (left), where that is far off.
    """
    far, words, p = largest_error(used, made)
    if far <= FAR_OFF:
        return []
    where = f"{how_many(p.num_replicas, 'replica')} on {how_many(p.num_nodes, 'node')} with {p.atomic_bsz} samples each"
    again = "Record more steps of that configuration"
    off = [
        (max(abs(math.log1p(error)) for error in (e.accum_error, e.optim_error)), e) for e in left if min(e.accum_error, e.optim_error) > -1
    ]
    furthest, odd = max(off, key=lambda one: one[0], default=(0.0, None))
    if odd is not None and furthest > math.log1p(FAR_OFF):
        again = f"What agrees least with the others is {odd.num_replicas} × {odd.atomic_bsz:.0f} samples: measure it again"
    return [
        f"the fit is off by up to {human(far, 'ratio')} (the {words} of {where}), more than {human(FAR_OFF, 'ratio')}: a measurement is "
        f"odd, or the job does not follow the model. {again}"
    ]


Run = tuple[list[Point], list[str], list[ScalingPart]]


class _Runs:
    """Points of runs whose parts were put together before: going over a thousand workers for a changed term would take seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[object, ...], Run] = {}

    def of(self, name: str, own: Sequence[RecordingReduction[ScalingPart]]) -> Run:
        """Returns (points, why there are none, the parts without their steps) of one run."""
        key = (name, *((w.worker, w.order, w.state, w.key, w.problem) for w in own))
        sure = all(w.key or w.state != "read" for w in own)
        with self._lock:
            known = self._known.get(key) if sure else None
        if known is None:
            points, why = of_run(name, own)
            slim = [msgspec.structs.replace(w.reduced, steps=()) for w in own if w.state == "read"]
            known = (points, why, slim)
            with self._lock:
                while len(self._known) >= MOST_RUNS:
                    self._known.pop(next(iter(self._known)))
                self._known |= {key: known} if sure else {}
        return known


_RUNS: Final = _Runs()


@lru_cache(maxsize=16)
def _resampled(rows: tuple[tuple[float, ...], ...]) -> Bootstrap:
    """Fits resampled points within the evaluations of a page; kept, as a changed term changes none."""
    return bootstrap(_fit(rows), evaluations=RESAMPLING)


@lru_cache(maxsize=16)
def _left_out(rows: tuple[tuple[float, ...], ...]) -> tuple[tuple[LeftOut, ...], float | None]:
    """Fits the points without each configuration, and once by the plain search, within the evaluations of a page."""
    kept, _ = usable(*np.array(rows, float).T)
    left = leave_one_out(_fit(rows), evaluations=LEAVING_OUT)
    return tuple(left), plain_objective(kept, evaluations=LEAVING_OUT)


@lru_cache(maxsize=16)
def _fit(rows: tuple[tuple[float, ...], ...]) -> Fit:
    """Fits the model to rows of (configuration, step times), once for every page that shows it."""
    return fit(*np.array(rows, float).T, evaluations=FITTING)


def _given(files: Sequence[Sidecar], path: str, runs: set[str]) -> tuple[G.PointsFile, list[str]]:
    """Returns points of all files, and what is wrong with them; other values are those of the last file that has them.

    A file that is named takes precedence over those in the folders of runs, and these over scalars of TensorBoard.
    """
    notes: list[str] = []
    out = G.PointsFile()
    named = G.parse(_read(path), os.path.basename(path)) if path else None
    for one in sorted(files, key=lambda one: one.text.startswith('{"scalars"'), reverse=True):
        if one.problem:
            notes.append(f"{one.file}: {one.problem}")
            continue
        if one.run and one.run not in runs:
            continue
        try:
            found = G.parse(one.text, one.file)
        except BadQuery as error:
            notes.append(f"{error.message} ({error.hint})")
            continue
        out = _over(out, replace(found, points=tuple(replace(p, run=p.run or one.run) for p in found.points)))
    out = _over(out, named) if named is not None else out
    return out, [*notes, *out.bad]


def _over(first: G.PointsFile, then: G.PointsFile) -> G.PointsFile:
    grads = then if then.sqr is not None and then.var is not None else first
    return G.PointsFile(
        (*first.points, *then.points), grads.sqr, grads.var, then.initial or first.initial, then.most or first.most,
        then.bounds if then.bounds[1] else first.bounds, then.accumulation if then.accumulation is not None else first.accumulation,
        grads.grads_from, (*first.bad, *then.bad),
    )  # fmt: skip


def _read(path: str) -> str:
    try:
        if os.path.getsize(path) > G.LARGEST:
            raise BadInput(f"larger than {G.LARGEST // 1024 // 1024} MiB", hint="a file of points is small", file=os.path.basename(path))
        with open(path, encoding="utf-8-sig") as stream:
            return stream.read()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "no text in UTF-8"
        raise BadInput(f"cannot be read: {why}", hint="give a JSON or CSV file of points", file=os.path.basename(path)) from None


# -- Scheduling hints of a job ---------------------------------------------------------------------------------------
# its sizes and its model of goodput, under the keys that AdaptDL's supervisor takes.


class GradHints(msgspec.Struct, forbid_unknown_fields=True):
    """Gradient statistics as AdaptDL's supervisor takes them.

    norm: the squared norm.
    """

    norm: float
    var: float


class PerfHints(msgspec.Struct, forbid_unknown_fields=True):
    """The parameters of the model of step time, all seven as fitted."""

    alpha_c: float
    beta_c: float
    alpha_n: float
    beta_n: float
    alpha_r: float
    beta_r: float
    gamma: float


class SchedHints(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """The hints; what is not known has its default. A scheduler needs all seven parameters, also those that points leave open."""

    init_batch_size: int = 0
    local_bsz_bounds: tuple[int, int] | None = None
    global_batch_size: int | None = None
    max_batch_size: int = 0
    max_profiled_replicas: int = 0
    gradient_accumulation: bool = False
    grad_params: GradHints | None = None
    perf_params: PerfHints | None = None


def hints(found: Gathered) -> str:
    """Returns the hints of a fit as JSON, read back and checked."""
    assert found.prediction is not None
    t, fit = found.prediction.terms, found.prediction.fit
    made = SchedHints(
        init_batch_size=t.initial, local_bsz_bounds=(t.low, t.high), max_batch_size=t.most, gradient_accumulation=t.accumulation,
        max_profiled_replicas=max(p.num_replicas for p in found.used),
        grad_params=GradHints(max(t.grads.sqr, 0.0), max(t.grads.var, 0.0)) if t.grads is not None else None,
        perf_params=PerfHints(**fit.params._asdict()),
    )  # fmt: skip
    text = msgspec.json.encode(made)
    msgspec.json.decode(text, type=SchedHints)
    return msgspec.json.format(text, indent=2).decode()
