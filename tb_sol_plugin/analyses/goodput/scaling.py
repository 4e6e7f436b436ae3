"""How throughput and goodput grow with replicas and batch size, where adding stops paying, and what to measure next.

Points are step times of one configuration each (nodes, replicas, micro-batch): as the program recorded them, as traces of the logdir show
them, or as a person gives them in `sol_scaling.json` or `sol_scaling.csv` beside the runs. A model of seven parameters is fitted to them;
what the points do not determine is not shown as a number. Goodput is throughput times what a sample is worth at a batch size, which
needs gradient statistics; without them it is throughput.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tb_sol_plugin.analyses.goodput import scaling_figures, scaling_tables
from tb_sol_plugin.analyses.goodput.scaling_tables import (
    FACTS,
    LEFT_OUT,
    NAMES,
    PARAMETERS,
    POINTS,
    PREDICTIONS,
    TERMS,
    ScalingQuery,
    wanted,
)
from tb_sol_plugin.errors import BadQuery, Unavailable
from tb_sol_plugin.metrics.goodput.fit import RECORD, Gathered, alike, errors, gather, hints, largest_error
from tb_sol_plugin.metrics.goodput.job import PROOF
from tb_sol_plugin.metrics.goodput.part import ScalingPart, part
from tb_sol_plugin.metrics.goodput.points import FILES, contrary
from tb_sol_plugin.metrics.goodput.predict import Prediction, Run, extrapolation, measure_next, unknown
from tb_sol_plugin.model.recordings import RecordingReduction, Sidecar
from tb_sol_plugin.model.registry import Reduction, analysis
from tb_sol_plugin.model.report import AnySection, FactsSection, FieldNow, Mark, Notice, Report, ReportFile, Scalar, make_facts
from tb_sol_plugin.units import how_many, human

TITLE = "Scaling"


def alone(query: ScalingQuery) -> Report:
    """Returns the report of a file of points alone."""
    if not query.points:
        raise Unavailable("no recording and no file of points", hint=f"name a logdir, or points=FILE.json; {RECORD}")
    return _report(_gathered((), (), query), query)


def choose(names: Sequence[str], shown: str, query: ScalingQuery) -> Sequence[str]:
    """Returns runs of one job: those that are named, else those that lie in one folder with the run that is shown."""
    wanted_names = [n.strip() for n in query.runs.split(",") if n.strip()]
    if wanted_names:
        unknown = [n for n in wanted_names if n not in names]
        if unknown:
            raise BadQuery(f"no run {unknown[0]!r} here", hint=f"there is: {', '.join([*names][:8])}", field="runs")
        return wanted_names
    folder = (shown or next(iter(names), "")).rpartition("/")[0]
    return [n for n in names if n.rpartition("/")[0] == folder]


@analysis(
    scope="runs",
    title=TITLE,
    question="Which batch size, how many devices, and where does adding stop paying?",
    group="Run",
    order=30,
    query=ScalingQuery,
    tables={"points": POINTS, "predictions": PREDICTIONS, "parameters": PARAMETERS, "terms": TERMS, "left_out": LEFT_OUT},
    facts=FACTS,
    reduce=Reduction(part, fields=(), sol_log=True, files=FILES, choose=choose, alike=alike, without_recording=alone),
)
def run(workers: Sequence[RecordingReduction[ScalingPart]], files: Sequence[Sidecar], query: ScalingQuery) -> Report:
    return _report(_gathered(workers, files, query), query)


def _gathered(workers: Sequence[RecordingReduction[ScalingPart]], files: Sequence[Sidecar], query: ScalingQuery) -> Gathered:
    reading = any(w.state == "waiting" for w in workers)  # an answer for a moment is worth no test of its fit
    return gather(workers, files, runs=query.runs, path=query.points, terms=wanted(query), sure=not reading)


def _report(found: Gathered, query: ScalingQuery) -> Report:
    prediction = found.prediction
    sections: list[AnySection]
    if prediction is None:
        why = next(p.why for p in found.points)
        headline = f"No point can be used: {why}."
        sections = [scaling_tables.points(found), *scaling_tables.left_out(found)]
        return Report(analysis="scaling", title=TITLE, headline=headline, notices=_notices(found), sections=sections)
    sections = [_tiles(found, prediction, query)]
    if recommends(found):
        sections += [
            draw(found, prediction)
            for draw in (scaling_figures.heat, scaling_figures.curves, scaling_figures.speedup, scaling_figures.split)
        ]
    sections += [
        scaling_figures.measured(found),
        scaling_figures.residuals(found),
        *scaling_figures.overlap(found),
        scaling_tables.parameters(found),
    ]
    if recommends(found):
        sections.append(scaling_tables.predictions(found, prediction, query.price))
    sections += [scaling_tables.points(found), *scaling_tables.left_out(found), scaling_tables.terms(found), _numbers(found)]
    return Report(
        analysis="scaling", title=TITLE, headline=_headline(found, prediction), notices=_notices(found), sections=sections,
        fields=_stand(found, prediction), files=[ReportFile("sched_hints", "Hints for a scheduler", "sched_hints.json", hints(found))],
    )  # fmt: skip


def _stand(found: Gathered, prediction: Prediction) -> dict[str, FieldNow]:
    """Returns how the fields stand that a reader left open."""
    t = prediction.terms
    grads = {"grad_sqr": FieldNow(f"{t.grads.sqr:.6g}"), "grad_var": FieldNow(f"{t.grads.var:.6g}")} if t.grads is not None else {}
    runs = tuple(dict.fromkeys(p.run for p in found.points if p.run))
    return {
        "per_node": FieldNow(str(t.per_node)), "max_replicas": FieldNow(str(t.replicas)), "init_batch": FieldNow(str(t.initial)),
        "max_batch": FieldNow(str(t.most)), "min_micro": FieldNow(str(t.low)), "max_micro": FieldNow(str(t.high)),
        "accumulation": FieldNow("yes" if t.accumulation else "no"), "runs": FieldNow(values=runs), **grads,
    }  # fmt: skip


def recommends(found: Gathered) -> bool:
    """Whether the points are worth a recommendation: of several counts of replicas, with recorded batch sizes, and as the fit has them."""
    return found.prediction is not None and not found.doubts and len({p.num_replicas for p in found.used}) > 1


def _headline(found: Gathered, prediction: Prediction) -> str:
    first = measure_next(found.points)
    if len({p.num_replicas for p in found.used}) < 2:
        return f"What a further replica brings cannot be known from one count of replicas. Measure next: **{first[0]}**." if first else ""
    if found.doubts:
        return f"**No recommendation**: {found.doubts[0]}."
    if prediction.stop < 0:
        return "No count of replicas can be run under these terms: the bounds of the micro-batch and the total batch leave nothing."
    run = prediction.at(prediction.stop)
    how = f"{how_many(run.replicas, 'replica')} with {human(run.atomic, 'count')} samples each"
    how += f" in {run.accum + 1} micro-steps" if run.accum else ""
    text = f"Run **{how}** (total batch {human(run.total, 'count')}): {human(run.speedup, '')} times one replica"
    if unknown(prediction.fit, run.nodes, run.replicas):
        return f"{text} **at best**: the points do not show what synchronizing so many costs, and it counts as little."
    if prediction.pays_on:
        return f"{text}. Adding replicas still pays at the largest count examined."
    if run.replicas == 1:
        text = f"**One replica** with {human(run.atomic, 'count')} samples"
    return f"{text}. {_further(prediction)}"


def _further(prediction: Prediction) -> str:
    """Returns what the next allocation brings, as the figure has it, and whether a larger one pays all the same."""
    run, after = prediction.at(prediction.stop), prediction.at(prediction.next)
    added = after.replicas - run.replicas
    each = human((after.speedup - run.speedup) / added, "ratio")
    share = human(prediction.terms.share, "ratio")
    text = f"{'One more brings' if added == 1 else f'Each of the next {added} brings'} {each} of one, less than {share}"
    if prediction.later < 0:
        return f"{text}."
    last = prediction.at(prediction.later)
    mean = human((last.speedup - run.speedup) / (last.replicas - run.replicas), "ratio")
    return f"{text}; up to {human(last.replicas, 'count')} replicas each added one brings {mean} on average."


def _notices(found: Gathered) -> list[Notice]:
    out = [Notice(note) for note in found.notes]
    made, settled = found.fit, found.settled
    if made is not None and settled is not None:
        out += [Notice(f"No recommendation: {doubt}.", "warn") for doubt in found.doubts[0 if _lone(found) else 1 :]]
        todo = measure_next(found.points)
        if todo and not found.doubts:  # a doubt says itself what to measure first
            out.append(Notice(f"To know more of the model, measure next: {'; '.join(todo)}.", "info"))
        if settled.terms.grads is None:
            out.append(Notice(
                "No gradient statistics are recorded: every sample counts the same, whatever the batch size, and larger batches look "
                "better than they are. `profile_step_commit` with gradient statistics records them, or give grad_sqr and grad_var.", "warn",
            ))  # fmt: skip
        elif found.biased:
            out.append(Notice("Gradient statistics are from differences of successive steps of one replica: they are biased.", "warn"))
        out += [Notice(w) for w in made.warnings]
        out += _of_gradients(found)
        out += _of_answer(found)
        out += _of_points(found)
        out += _of_confidence(found)
    if found.chosen in found.silent:
        out.append(Notice(f"The run that was chosen, `{found.chosen}`, gives no point: {found.silent[found.chosen]}.", "warn"))
    elif found.chosen:
        runs = len({p.run for p in found.used if p.run})
        out.append(Notice(f"The fit is of the job of `{found.chosen}`: {how_many(runs, 'run')}. The field Runs names others.", "info"))
    if found.silent:
        names = list(found.silent)
        shown = ", ".join(f"`{n}` ({found.silent[n]})" for n in names[:4])
        rest = f" and {len(names) - 4} more, listed below" if len(names) > 4 else ""
        proof = f" Proof of one job: {PROOF}." if any("nothing proves" in why for why in found.silent.values()) else ""
        out.append(Notice(f"No point from {shown}{rest}.{proof}", "info"))
    return out


def _of_gradients(found: Gathered) -> list[Notice]:
    grads = found.settled.terms.grads if found.settled is not None else None
    if grads is None or min(grads) >= 0:
        return []
    what = "squared norm" if grads.sqr < 0 else "variance"
    means = "every sample counts the same, whatever the batch size" if grads.sqr < 0 else "a larger batch is worth no more than a small one"
    return [Notice(
        f"The {what} of the gradient comes out below 0 ({human(min(grads))}): too few steps to separate it from noise. It counts as 0, "
        f"so that {means}.", "warn",
    )]  # fmt: skip


def _of_answer(found: Gathered) -> list[Notice]:
    """Returns what the recommendation rests on, where that is more than the points."""
    prediction = found.prediction
    if prediction is None or prediction.stop < 0 or not recommends(found):
        return []
    out = []
    run = prediction.at(prediction.stop)
    reasons = extrapolation(found.used, prediction.fit, run.nodes, run.replicas, run.atomic)
    if reasons:
        out.append(Notice(f"What is recommended is extrapolated: {'; '.join(reasons)}.", "warn"))
    if run.replicas > 1 and run.speedup > 1.05 * run.replicas:
        one = prediction.at(0)
        out.append(Notice(
            f"Several replicas bring more than their number: one alone runs {human(one.total, 'count')} samples a step under these terms, "
            "and larger batches cost less time per sample.", "info",
        ))  # fmt: skip
    return out


def _of_points(found: Gathered) -> list[Notice]:
    """Returns where points contradict each other."""
    out = []
    pairs = contrary(found.points)
    for fast, slow in pairs[:3]:
        n, r, b = fast.key
        a, z = human(fast.optim_step_time * 1e9, "ns"), human(slow.optim_step_time * 1e9, "ns")
        names = " and ".join(f"`{p.run}`" for p in (fast, slow) if p.run)
        out.append(Notice(
            f"{r} replica{'s' if r > 1 else ''} on {n} node{'s' if n > 1 else ''} with {b} samples each: {a} and {z} a step were "
            f"measured{f' in {names}' if names else ''}. Both count, and the fit lies between.", "warn",
        ))  # fmt: skip
    return out


def _of_confidence(found: Gathered) -> list[Notice]:
    late = sum(e.because.startswith("not reached") for e in found.left_out)
    out = []
    if late:
        every = human(len(found.left_out), "count")
        done = len(found.left_out) - late
        out.append(Notice(f"The error without a configuration is known of {done} of {every}: the others would take too long.", "info"))
    if found.boot is not None and found.boot.ended:
        out.append(Notice(f"Bands are of {len(found.boot.samples)} resampled fits, not of 200: more would take too long.", "info"))
    return out


def _lone(found: Gathered) -> bool:
    return len({p.num_replicas for p in found.used}) < 2


def _tiles(found: Gathered, prediction: Prediction, query: ScalingQuery) -> FactsSection:
    known_best = recommends(found)
    best: Run | None = prediction.at(prediction.stop) if known_best and prediction.stop >= 0 else None
    cost = None
    if best is not None and query.price is not None:
        cost = float(scaling_tables.cost_per_million(np.array([best.goodput]), np.array([best.replicas]), query.price)[0])
    known = prediction.terms.grads is not None
    values: dict[str, Scalar] = {
        "best_replicas": best.replicas if best else None, "best_batch": best.total if best else None,
        "best_goodput": best.goodput if best else None, "best_speedup": best.speedup if best else None, "cost_per_million": cost,
        "median_error": float(np.median(np.abs(errors(found.used, prediction.fit)[0]))), "points": len(found.used),
        "runs_left_out": len(found.silent),
    }  # fmt: skip
    if query.price is None:
        del values["cost_per_million"]
    made = found.fit
    assert made is not None
    lone = Mark("unknown", "the points are of one count of replicas" if _lone(found) or not found.doubts else found.doubts[0])
    marks = {} if known_best else dict.fromkeys(("best_replicas", "best_batch", "best_goodput", "best_speedup"), lone)
    reasons = extrapolation(found.used, made, best.nodes, best.replicas, best.atomic) if best is not None else ()
    if reasons:
        marks |= {n: Mark("estimated", "; ".join(reasons)) for n in ("best_goodput", "best_speedup", "cost_per_million") if n in values}
    return make_facts(
        "answer", "Answer", values, FACTS, labels={} if known else {"best_goodput": "Samples per s there"},
        weight="headline", style="tiles", marks=marks, hidden=[n for n, v in values.items() if v is None],
        notes=(_best_notes(best, prediction) if best else {}) | {
            "median_error": f"median of the step time; the largest is {human(largest_error(found.used, made)[0], 'ratio')}",
            "points": _unused(found),
            "runs_left_out": "of another job, or without a point",
            "cost_per_million": "samples of full worth",
        },
    )  # fmt: skip


def _best_notes(best: Run, prediction: Prediction) -> dict[str, str]:
    """Returns what stands below the numbers of the best run."""
    known = prediction.terms.grads is not None
    return {
        "best_replicas": "replicas" + (", the largest examined" if prediction.pays_on else ""),
        "best_batch": f"{best.atomic} per micro-step",
        "best_goodput": f"each worth {human(best.efficiency, 'ratio')}" if known else "samples all worth the same",
        "best_speedup": f"{human(best.speedup / best.replicas, 'ratio')} per replica",
    }


def _unused(found: Gathered) -> str:
    """Returns `6 more of the same configurations`, `2 left out`: what is said of the points that the fit does not take."""
    there = {p.key for p in found.used}
    left = [p for p in found.points if not p.used]
    if left and all(p.key in there for p in left):
        return f"{human(len(left), 'count')} more measure the same configurations"
    return f"{human(len(left), 'count')} left out"


def _numbers(found: Gathered) -> FactsSection:
    """Builds the fit in numbers, for scripts."""
    made = found.fit
    assert made is not None
    values: dict[str, Scalar] = {
        "objective": made.objective, "reference_objective": found.plain, **{n: made.known[n] for n in NAMES},
        "points_left_out": len(found.points) - len(found.used),
    }  # fmt: skip
    marks = {n: Mark("unknown", next((r for r in made.rules if n in r), "not determined")) for n in NAMES if made.known[n] is None}
    if found.plain is None and len(made.points) == 1:
        marks["reference_objective"] = Mark("unknown", "one configuration is met exactly, without a search")
    return make_facts("numbers", "The fit in numbers", values, FACTS, span=6, hidden=[n for n in NAMES if n in marks], marks=marks)


__all__ = ["ScalingQuery", "run"]
