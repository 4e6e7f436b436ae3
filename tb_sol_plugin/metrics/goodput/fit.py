"""Fits the model of goodput to the points of all recordings and of the files in their folders."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

import msgspec
import numpy as np

from tb_sol_plugin.cost.goodput.confidence import Bootstrap, LeftOut, bootstrap, leave_one_out
from tb_sol_plugin.cost.goodput.fit import Fit, fit, plain_objective
from tb_sol_plugin.cost.goodput.fit import points as usable
from tb_sol_plugin.errors import BadInput, BadQuery, Unavailable
from tb_sol_plugin.metrics.goodput import points as G
from tb_sol_plugin.metrics.goodput.part import ScalingPart
from tb_sol_plugin.metrics.goodput.points import Point, combined, of_run
from tb_sol_plugin.metrics.goodput.predict import Prediction, ResolvedTerms, TermsQuery, resolve_terms
from tb_sol_plugin.model.recordings import RecordingReduction, Sidecar
from tb_sol_plugin.units import human

RECORD: Final = (
    "record a few steps of one or more configurations with the profiler and record the batch size with "
    "prof.add_metadata_json('atomic_bsz', '32'), or call profile_step_start and profile_step_commit of tb_sol_plugin.capture in the loop"
)
MOST_RUNS: Final = 1_024
"""Runs whose points are remembered."""


@dataclass(frozen=True)
class Gathered:
    """The points of a job and the fit to them.

    points: all of them, used or not. fit: None where no point can be used. silent: runs that give no point -> why.
    """

    points: tuple[Point, ...]
    prediction: Prediction | None
    settled: ResolvedTerms | None
    boot: Bootstrap | None
    left_out: tuple[LeftOut, ...]
    plain: float | None
    biased: bool
    silent: dict[str, str]
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
    """Fits the model to the points of the runs named (separated by commas, "" all), of the files in their folders and of the one at `path`.

    terms: what was chosen. sure: how far the fit can be trusted is worked out too. Unavailable where there is no point at all, with the
    reasons of the runs; BadQuery for a run that is not there.
    """
    wanted = [name.strip() for name in runs.split(",") if name.strip()]
    own_of = _by_run(workers, wanted)
    points: list[Point] = []
    parts: list[ScalingPart] = []
    silent: dict[str, str] = {} if wanted else _others(own_of)
    notes: list[str] = []
    for name, own in own_of.items():
        if name in silent:
            continue
        found, why, reduced = _RUNS.of(name, own)
        points += found
        parts += reduced
        if not found and any(w.state != "waiting" for w in own):
            silent[name] = why[0] if why else "nothing of it could be read"
    given, more = _given(files, path, set(own_of))
    notes += more
    points += [p for p in given.points if not (wanted and p.run) or p.run in wanted]
    points = combined(points)
    if not points:
        reasons = list(dict.fromkeys(silent.values()))
        raise Unavailable(reasons[0] if len(reasons) == 1 else "no recording here has the times of steps", hint=RECORD)
    used = tuple(p for p in points if p.used)
    if not used:
        return Gathered(tuple(points), None, None, None, (), None, False, silent, tuple(notes))
    settled = resolve_terms(used, parts, given, terms or TermsQuery())
    made, boot, left, plain = _fitted(tuple((*p.key, p.accum_step_time, p.optim_step_time) for p in used), sure)
    biased = settled.origin["grads"] == "recorded" and all(p.biased for p in parts if p.sqr is not None)
    return Gathered(tuple(points), Prediction(made, settled.terms), settled, boot, left, plain, biased, silent, tuple(notes))


def _others(runs: dict[str, list[RecordingReduction[ScalingPart]]]) -> dict[str, str]:
    """Runs of another model, or on other devices, than most workers here are of, and in what they differ.

    What is not known differs from nothing. A run's devices and its model, identified by its parameters, are those of its first worker that
    could be read.
    """
    of: dict[str, tuple[tuple[str, ...], int]] = {}
    for name, own in runs.items():
        read = [w for w in own if w.state == "read"]
        if read and read[0].facts is not None:
            of[name] = read[0].facts.devices, max(w.reduced.parameters for w in read[:1])
    out: dict[str, str] = {}
    for at, words in ((0, "it ran on {}, the others on {}"), (1, "its model has {} parameters, that of the others {}")):
        left = {n: k for n, k in of.items() if n not in out}
        counts: Counter[object] = Counter()
        for name, key in left.items():
            if at == 0 or key[1]:
                counts[key[at]] += len(runs[name])
        if len(counts) < 2:
            continue
        most = counts.most_common(1)[0][0]
        for name, key in left.items():
            if (at == 0 or key[1]) and key[at] != most:
                names = [", ".join(k) or "a CPU" if at == 0 else human(k, "count") for k in (key[at], most)]  # type: ignore[arg-type, call-overload]
                out[name] = words.format(*names)
    return out


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
def _fitted(
    rows: tuple[tuple[float, ...], ...], sure: bool
) -> tuple[Fit, Bootstrap | None, tuple[LeftOut, ...], float | None]:
    """Returns the fit of these points, kept: a fit is asked for again with every change of a term, and stays the same."""
    made = _fit(rows)
    if not sure:
        return made, None, (), None
    kept, _ = usable(*np.array(rows, float).T)
    return made, bootstrap(made), tuple(leave_one_out(made)), plain_objective(kept)


@lru_cache(maxsize=16)
def _fit(rows: tuple[tuple[float, ...], ...]) -> Fit:
    """Fits the model to rows of (configuration, step times), once for every page that shows it."""
    return fit(*np.array(rows, float).T)


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
