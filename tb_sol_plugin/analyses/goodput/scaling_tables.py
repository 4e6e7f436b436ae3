"""The tables of the scaling page: points beside the fit, what it predicts, its parameters, the terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, Literal

import numpy as np
import pandas as pd

from tb_sol_plugin.cost.goodput.confidence import band
from tb_sol_plugin.cost.goodput.model import PerfParams, accum_time, optim_time
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.goodput.fit import Gathered
from tb_sol_plugin.metrics.goodput.points import Point
from tb_sol_plugin.metrics.goodput.predict import Prediction, TermsQuery, splits_by_count
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import Column, Fact, Mark, Sort, TableSection, make_table
from tb_sol_plugin.units import how_many, human

# -- Query and columns ------------------------------------------------------------------------------------------------


class ScalingQuery(Query, kw_only=True, frozen=True):
    """Under which terms the fitted model is asked. What is left open is as recorded, or follows from the points.

    runs: names of the runs that may be of the job, separated by commas ("" = those in one folder with the run that is shown)
    per_node: replicas that fill a node
    max_replicas: largest count of replicas to look at
    init_batch: total batch size that the job was made for, at which a sample is worth most
    max_batch: largest total batch size
    min_micro: smallest micro-batch of a replica
    max_micro: largest micro-batch of a replica, as memory allows
    accumulation: whether gradients may be accumulated over several micro-batches
    share: a further replica pays while it brings at least this part of what one replica does, in %
    price: of one device and hour, in whatever currency ("" = costs are not shown)
    grad_sqr: squared norm of the gradient, for statistical efficiency
    grad_var: variance of the gradient, for statistical efficiency
    points: a JSON or CSV file of points on this machine, beside those of the recordings
    """

    runs: str = ""
    per_node: int | None = None
    max_replicas: int | None = None
    init_batch: int | None = None
    max_batch: int | None = None
    min_micro: int | None = None
    max_micro: int | None = None
    accumulation: Literal["", "yes", "no"] = ""
    share: float = 50.0
    price: float | None = None
    grad_sqr: float | None = None
    grad_var: float | None = None
    points: str = ""

    LOCAL: ClassVar[tuple[str, ...]] = ("points",)
    LABELS: ClassVar[dict[str, str]] = {
        "per_node": "Replicas per node", "max_replicas": "Replicas at most", "init_batch": "Initial batch", "max_batch": "Batch at most",
        "min_micro": "Micro-batch from", "max_micro": "Micro-batch to", "share": "Pays from, %", "price": "Price per device hour",
        "grad_sqr": "Gradient norm²", "grad_var": "Gradient variance",
    }  # fmt: skip
    GROUPS: ClassVar[dict[str, tuple[str, ...]]] = {
        "Job": ("max_replicas", "per_node", "max_batch", "max_micro", "accumulation", "init_batch", "min_micro"),
        "Worth": ("share", "price", "grad_sqr", "grad_var", "runs"),
    }
    SELDOM: ClassVar[tuple[str, ...]] = ("init_batch", "min_micro", "grad_sqr", "grad_var", "runs")
    SLIDERS: ClassVar[dict[str, tuple[str, ...]]] = {
        "per_node": ("1", "2", "4", "8", "16"),
        "max_replicas": ("2", "4", "8", "16", "32", "64", "128", "256", "512", "1024"),
        "share": ("10.0", "20.0", "30.0", "40.0", "50.0", "60.0", "70.0", "80.0", "90.0"),
    }


POINTS: Final = (
    Column("run", "Run", doc="run that it was measured in", show="code", missing="given without a run"),
    Column("num_nodes", "Nodes", doc="nodes that the replicas ran on"),
    Column("num_replicas", "Replicas", doc="data-parallel replicas of the whole model"),
    Column("atomic_bsz", "Micro-batch", doc="samples of one micro-step on one replica"),
    Column("accum_measured_ns", "Without sync", "ns", "a micro-step without the wait for gradients, as measured"),
    Column("accum_predicted_ns", "Fit", "ns", "the same as the fit gives it", rank=2, missing="the point is not used, or there is no fit"),
    Column("optim_measured_ns", "Step", "ns", "a micro-step that reduces gradients and updates, as measured", show="bar", color="bar-ink"),
    Column("optim_predicted_ns", "Fit", "ns", "the same as the fit gives it", missing="there is no fit"),
    Column("residual", "Fit − measured", "ratio", "predicted step over measured step, less 1", missing="there is no fit"),
    Column("left_out_error", "Without it", "ratio", "the same where the fit did not see this configuration", rank=2,
           missing="without it a parameter would not be known, it is not used, or time was over"),
    Column("sync_ns", "Sync", "ns", "the wait for gradients, the part of their reduction behind which nothing is computed", rank=2),
    Column("steps", "Steps", "count", "steps that update", rank=2, missing="given, not recorded"),
    Column("accum_steps", "Accumulating", "count", "steps that only accumulate", rank=3, missing="given, not recorded"),
    Column("outliers", "Outliers", "count", "steps far from the median, left out", rank=3),
    Column("source", "From", doc="recorded by the program, read off a trace or the iterations of a SOL capture, or given by a person",
           show="badge"),
    Column("guessed", "Guessed", doc="what was derived rather than recorded", show="text", rank=2, missing="nothing"),
    Column("why", "Not used", doc="why the fit does not take it", show="text", missing="it is used"),
    Column("id", "Id", doc="stable key of the row", rank=3),
)  # fmt: skip
PREDICTIONS: Final = (
    Column("num_nodes", "Nodes", doc="nodes, filled one after the other"),
    Column("num_replicas", "Replicas", doc="data-parallel replicas"),
    Column("atomic_bsz", "Micro-batch", doc="samples of a micro-step on a replica, at the best", missing="no batch size can be run"),
    Column("accum_steps", "Accumulation", doc="micro-steps besides the one that updates", missing="no batch size can be run"),
    Column("total_batch", "Total batch", "count", "samples of a step over all replicas", missing="no batch size can be run"),
    Column("step_ns", "Step", "ns", "time of a whole step, accumulation included", missing="no batch size can be run"),
    Column("throughput", "Samples per s", doc="samples per second, whatever they are worth", missing="no batch size can be run"),
    Column("efficiency", "Worth", "ratio", "what a sample is worth, against one at the initial batch size", "share",
           missing="gradient statistics are not known"),
    Column("goodput", "Goodput per s", doc="samples per second times their statistical efficiency", show="bar", color="accent",
           missing="no batch size can be run"),
    Column("goodput_low", "From", doc="in 90 % of the fits to resampled points at least", rank=2, missing="too few points for a band"),
    Column("goodput_high", "To", doc="in 90 % of the fits to resampled points at most", rank=2, missing="too few points for a band"),
    Column("speedup", "Speedup", doc="goodput over that of one replica at its best", missing="one replica alone cannot be run"),
    Column("scaling_efficiency", "Per replica", "ratio", "speedup over replicas", "share", missing="one replica alone cannot be run"),
    Column("gain", "Gain", "ratio", "what each replica added here brings, in parts of one replica", missing="the first"),
    Column("cost", "Cost per M samples", doc="price of a million samples at full statistical efficiency", missing="no price is given"),
    Column("observed", "Ran", doc="whether as many replicas ran on as many nodes", show="badge", rank=2),
    Column("id", "Id", doc="stable key of the row", rank=3),
)  # fmt: skip
PARAMETERS: Final = (
    Column("name", "Parameter", doc="of the model of step time", show="code"),
    Column("value", "Value", doc="in the unit of the next column", missing="the points do not determine it"),
    Column("unit", "Unit", doc="of the value", show="text"),
    Column("low", "From", doc="in 90 % of the fits to resampled points at least", missing="not determined, or too few points"),
    Column("high", "To", doc="in 90 % of the fits to resampled points at most", missing="not determined, or too few points"),
    Column("meaning", "Meaning", doc="what it stands for", show="text"),
    Column("rule", "Why not known", doc="what is missing, and what was taken in its place", show="text", missing="it is known"),
)
TERMS: Final = (
    Column("name", "Term", doc="under which the model is asked", show="text"),
    Column("value", "Value", doc="what is used", show="text", missing="not known"),
    Column("origin", "From", doc="where the value is from", show="text"),
)
LEFT_OUT: Final = (
    Column("run", "Run", doc="run that gives no point of the job", show="code"),
    Column("why", "Not fitted", doc="in what it differs from the run that is chosen, what would prove that both are one job, or why it "
           "has no point", show="text"),
)  # fmt: skip
NAMES: Final = ("alpha_c", "beta_c", "alpha_n", "beta_n", "alpha_r", "beta_r", "gamma")
FACTS: Final = (
    Fact("objective", "Objective", "", "what the fit makes small: error of the logarithms of both times, and small terms for overlap "
         "and slope"),
    Fact("reference_objective", "Plain search", "", "the same as a single search by slope from one fixed start reaches it"),
    Fact("alpha_c", "alpha_c, s", "", "seconds of a micro-step that do not depend on its batch; null where the points do not determine "
         "it"),
    Fact("beta_c", "beta_c, s", "", "seconds of a micro-step per sample; null where not determined"),
    Fact("alpha_n", "alpha_n, s", "", "seconds of synchronizing two replicas on different nodes; null where not determined"),
    Fact("beta_n", "beta_n, s", "", "seconds more for every further replica across nodes; null where not determined"),
    Fact("alpha_r", "alpha_r, s", "", "seconds of synchronizing two replicas on one node; null where not determined"),
    Fact("beta_r", "beta_r, s", "", "seconds more for every further replica on a node; null where not determined"),
    Fact("gamma", "", "", "overlap of computing and synchronizing: 1 none, 10 all but complete; null where not determined"),
    Fact("points", "Points", "count", "points that the fit uses"),
    Fact("points_left_out", "Left out", "count", "points that it does not"),
    Fact("runs_left_out", "Runs left out", "count", "runs that are not proven to be of the job, or give no point"),
    Fact("median_error", "Error of the fit", "ratio", "median of the fit's relative error of the step time"),
    Fact("best_replicas", "Adding pays up to", "count", "replicas up to which adding pays"),
    Fact("best_batch", "Total batch there", "count", "total batch size with the highest goodput there"),
    Fact("best_goodput", "Samples per s there", "", "goodput there, samples per second"),
    Fact("best_speedup", "Speedup there", "", "that over one replica at its best"),
    Fact("cost_per_million", "Cost per M samples", "", "price of a million samples at full statistical efficiency there"),
)  # fmt: skip


def wanted(query: ScalingQuery) -> TermsQuery:
    """Returns what the query chose. BadQuery for what cannot be."""
    for name in ("per_node", "max_replicas", "init_batch", "max_batch", "min_micro", "max_micro"):
        value = getattr(query, name)
        if value is not None and not 0 < value < 2**31:
            raise BadQuery(f"{name} is {value}", hint="give a count above 0", field=name)
    if not 0 <= query.share <= 100:
        raise BadQuery(f"share is {query.share:g} %", hint="give 0 to 100", field="share")
    if query.price is not None and not 0 <= query.price < 1e9:
        raise BadQuery(f"price is {query.price:g}", hint="give the price of one device for an hour", field="price")
    low, high = query.min_micro or 0, query.max_micro or 0
    if low and high and low > high:
        raise BadQuery(f"micro-batches from {low} to {high}", hint="let the first be the smaller", field="min_micro")
    if query.init_batch and query.max_batch and query.init_batch > query.max_batch:
        raise BadQuery(f"initial batch {query.init_batch} above the largest, {query.max_batch}", hint="raise max_batch", field="max_batch")
    return TermsQuery(
        initial=query.init_batch or 0, most=query.max_batch or 0, low=low, high=high,
        accumulation={"yes": True, "no": False}.get(query.accumulation), per_node=query.per_node or 0, replicas=query.max_replicas or 0,
        share=query.share / 100, sqr=query.grad_sqr, var=query.grad_var,
    )  # fmt: skip


MEANING: Final = {
    "alpha_c": "computing, whatever the batch", "beta_c": "computing, per sample", "alpha_n": "synchronizing across nodes",
    "beta_n": "per further replica across nodes", "alpha_r": "synchronizing on a node", "beta_r": "per further replica on a node",
    "gamma": "overlap: 1 none of the wait hides, 10 nearly all",
}  # fmt: skip


def point_id(p: Point) -> str:
    """Returns the key of a point: run, nodes, replicas, micro-batch, source."""
    return f"{p.run}|{p.num_nodes}|{p.num_replicas}|{p.atomic_bsz}|{p.source}"


def _measured(every: Sequence[Point]) -> pd.DataFrame:
    """Returns one row per point: where it is from, its configuration, its times in ns."""
    return pd.DataFrame({
        "run": [p.run or None for p in every],
        "num_nodes": [int(p.num_nodes) for p in every], "num_replicas": [int(p.num_replicas) for p in every],
        "atomic_bsz": [int(p.atomic_bsz) for p in every], "accum_measured_ns": [p.accum_step_time * 1e9 for p in every],
        "optim_measured_ns": [p.optim_step_time * 1e9 for p in every],
        "sync_ns": [p.sync_time * 1e9 for p in every], "steps": [p.steps or None for p in every],
        "accum_steps": [p.accumulating if p.steps else None for p in every],
        "outliers": [p.outliers for p in every],
        "source": [p.source for p in every], "guessed": ["; ".join(p.guessed) or None for p in every],
        "why": [p.why or None for p in every], "id": [point_id(p) for p in every],
    })  # fmt: skip


def points(found: Gathered) -> TableSection:
    """Builds the table of all points, those that are not used last."""
    every = found.points
    nodes, replicas, batch = (np.array([getattr(p, n) for p in every], float) for n in ("num_nodes", "num_replicas", "atomic_bsz"))
    optim = np.array([p.optim_step_time for p in every])
    frame = _measured(every)
    frame["accum_predicted_ns"] = frame["optim_predicted_ns"] = frame["residual"] = frame["left_out_error"] = np.nan
    fits = (nodes >= 1) & (replicas >= nodes) & (batch >= 1)
    if found.fit is not None and fits.any():
        params = found.fit.params
        accum_fit, optim_fit = accum_time(params, batch[fits]), optim_time(params, nodes[fits], replicas[fits], batch[fits])
        frame.loc[fits, "accum_predicted_ns"], frame.loc[fits, "optim_predicted_ns"] = accum_fit * 1e9, optim_fit * 1e9
        with np.errstate(divide="ignore", invalid="ignore"):
            frame.loc[fits, "residual"] = np.where(optim[fits] > 0, optim_fit / optim[fits] - 1, np.nan)
        errors = {(e.num_nodes, e.num_replicas, int(e.atomic_bsz)): e.optim_error for e in found.left_out}
        frame["left_out_error"] = [errors.get(p.key, np.nan) if p.used else np.nan for p in every]
    guessed = {str(i): Mark("estimated", "; ".join(p.guessed)) for i, p in enumerate(every) if p.guessed}
    batches = {k: m for k, m in guessed.items() if "batch size" in m.why}
    unused = [point_id(p) for p in every if not p.used]
    return make_table(
        "points", "Measured", frame, POINTS, key="id", sort=Sort("num_replicas", descending=False), last=unused,
        subtitle="one row per configuration of a run: times are medians over steps, of each step the slowest rank",
        marks={"atomic_bsz": batches} if batches else {}, filters=["source"],
        footer="Residuals above 0: the fit is slower than what was measured.",
    )  # fmt: skip


def bands(found: Gathered, prediction: Prediction) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns (low, high) of the goodput of the best way to run each count; None without resampled fits."""
    best = prediction.best
    runs = np.isfinite(best["goodput"])
    if found.boot is None or not found.boot.samples or not runs.any():
        return None

    def predict(params: PerfParams) -> np.ndarray:
        n, r, b, k = (best[name][runs] for name in ("nodes", "replicas", "atomic", "accum"))
        total = k * accum_time(params, b) + optim_time(params, n, r, b)
        return np.asarray(r * b * (k + 1) / total * best["efficiency"][runs])

    low, high = np.full(len(runs), np.nan), np.full(len(runs), np.nan)
    low[runs], high[runs] = band(found.boot.samples, predict)
    return low, high


def gains(prediction: Prediction) -> np.ndarray:
    """Returns what each replica added from one allocation to the next brings, in parts of one replica; NaN for the first."""
    r, s = prediction.best["replicas"], prediction.best["speedup"]
    return np.concatenate([[np.nan], np.diff(s) / np.diff(r)])


def predictions(found: Gathered, prediction: Prediction, price: float | None) -> TableSection:
    """Builds the table of every allocation at its best batch size."""
    best = prediction.best
    runs = np.isfinite(best["goodput"])
    ran = {(p.num_nodes, p.num_replicas) for p in found.used}
    most = max(r for _, r in ran)
    nodes, replicas = best["nodes"].astype(int), best["replicas"].astype(int)
    total = replicas * best["atomic"] * (best["accum"] + 1)
    step = np.full(len(runs), np.nan)
    step[runs] = total[runs] / best["throughput"][runs]
    low, high = bands(found, prediction) or (np.full(len(runs), np.nan),) * 2
    known = prediction.terms.grads is not None
    frame = pd.DataFrame({
        "num_nodes": nodes, "num_replicas": replicas, "atomic_bsz": np.where(runs, best["atomic"], np.nan),
        "accum_steps": np.where(runs, best["accum"], np.nan), "total_batch": np.where(runs, total, np.nan), "step_ns": step * 1e9,
        "throughput": best["throughput"], "efficiency": best["efficiency"] if known else np.full(len(runs), np.nan),
        "goodput": best["goodput"], "goodput_low": low, "goodput_high": high, "speedup": np.where(runs, best["speedup"], np.nan),
        "scaling_efficiency": np.where(runs, best["speedup"] / replicas, np.nan), "gain": gains(prediction),
        "cost": cost_per_million(best["goodput"], replicas, price), "id": [f"{n}|{r}" for n, r in zip(nodes, replicas, strict=True)],
        "observed": ["ran" if (n, r) in ran else "between" if r <= most else "beyond" for n, r in zip(nodes, replicas, strict=True)],
    })  # fmt: skip
    beyond = {str(i): Mark("estimated", "; ".join(why)) for i, why in enumerate(splits_by_count(found.used, prediction)) if why}
    stop = prediction.stop
    many = how_many(int(replicas[stop]), "replica")
    text = f"Adding pays up to {many}." if stop >= 0 else "Nothing can be run under these terms."
    columns = [c for c in PREDICTIONS if c.name != "cost" or price is not None]
    return make_table(
        "predictions", "What the fit predicts", frame, columns, key="id", sort=Sort("num_replicas", descending=False),
        subtitle="each count of replicas at its best batch size",
        marks=dict.fromkeys(("step_ns", "goodput", "throughput", "speedup", "scaling_efficiency", "gain"), beyond) if beyond else {},
        footer=text,
    )  # fmt: skip


def cost_per_million(goodput: np.ndarray, replicas: np.ndarray, price: float | None) -> np.ndarray:
    """Returns the price of a million samples at full statistical efficiency: devices times price per hour over samples per hour."""
    if price is None:
        return np.full(len(goodput), np.nan)
    return np.asarray(replicas * price / 3600 / goodput * 1e6)


def parameters(found: Gathered) -> TableSection:
    """Builds the table of the seven parameters, with no number where the points do not determine one."""
    made = found.fit
    assert made is not None
    boot = found.boot
    rows = []
    for name in NAMES:
        value = made.known[name]
        low = high = None
        if value is not None and boot is not None and boot.samples:
            a, b = band(boot.samples, lambda p, name=name: getattr(p, name))  # type: ignore[misc]
            low, high = float(a), float(b)
        scale = 1.0 if name == "gamma" else 1e3
        rule = "; ".join(r for r in made.rules if name in r.partition(":")[0]) if value is None else ""
        rows.append({
            "name": name, "value": None if value is None else value * scale, "unit": "" if name == "gamma" else "ms",
            "low": None if low is None else low * scale, "high": None if high is None else high * scale, "meaning": MEANING[name],
            "rule": rule or None,
        })  # fmt: skip
    frame = pd.DataFrame(rows, columns=[c.name for c in PARAMETERS])
    for column in ("value", "low", "high"):
        frame[column] = pd.to_numeric(frame[column])
    columns = [c for c in PARAMETERS if c.name != "rule" or frame["rule"].notna().any()]
    return make_table(
        "parameters", "Parameters of the fit", frame, columns, key="name",
        subtitle="step = (compute^γ + network^γ)^(1/γ); compute = α_c + β_c b; network = α + β (replicas − 2)", span=6,
        footer="From and to: where nine of ten fits to resampled points lie."
        + ("" if all(made.identified.values()) else " Exported hints hold all seven, those without a value as the fit assumed them."),
    )  # fmt: skip


def left_out(found: Gathered) -> list[TableSection]:
    """Returns the table of runs that are left out, each with its reason; none where there is no such run."""
    if not found.silent:
        return []
    frame = pd.DataFrame({"run": list(found.silent), "why": list(found.silent.values())})
    return [make_table(
        "left_out", "Runs left out", frame, LEFT_OUT, key="run",
        subtitle=f"fitted is the job of {found.chosen}" if found.chosen else "",
    )]  # fmt: skip


def terms(found: Gathered) -> TableSection:
    """Builds the terms under which the model is asked, and where each is from."""
    assert found.settled is not None
    t, origin = found.settled.terms, found.settled.origin
    grads = f"norm² {t.grads.sqr:.4g}, variance {t.grads.var:.4g}" if t.grads is not None else None
    rows = [
        ("Initial batch", human(t.initial, "count"), origin["initial"]),
        ("Batch at most", human(t.most, "count"), origin["most"]),
        ("Micro-batch", f"{human(t.low, 'count')} to {human(t.high, 'count')}", f"{origin['low']}; {origin['high']}"),
        ("Accumulation", "yes" if t.accumulation else "no", origin["accumulation"]),
        ("Replicas per node", human(t.per_node, "count"), origin["per_node"]),
        ("Replicas at most", human(t.replicas, "count"), origin["replicas"]),
        ("Gradient statistics", grads, origin["grads"] or "not recorded: a sample counts the same in every batch"),
        ("A replica pays from", f"{human(t.share, 'ratio')} of one", "chosen"),
    ]
    return make_table(
        "terms", "Terms", pd.DataFrame(rows, columns=["name", "value", "origin"]), TERMS, key="name",
        subtitle="what may be run, and what it is worth", span=6,
    )  # fmt: skip
