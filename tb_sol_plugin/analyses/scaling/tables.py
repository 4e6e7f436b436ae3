"""The tables of the scaling page: points beside the fit, what it predicts, its parameters, the terms."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.analyses.scaling.query import NAMES, PARAMETERS, POINTS, PREDICTIONS, TERMS
from tb_sol_plugin.cost.goodput.fit import band
from tb_sol_plugin.cost.goodput.model import PerfParams, accum_time, optim_time
from tb_sol_plugin.metrics.goodput.fit import Gathered
from tb_sol_plugin.metrics.goodput.points import Point
from tb_sol_plugin.metrics.goodput.predict import Outlook, of_counts
from tb_sol_plugin.model.report import Mark, Sort, TableSection, make_table
from tb_sol_plugin.units import human, number

MEANING: Final = {
    "alpha_c": "computing, whatever the batch", "beta_c": "computing, per sample", "alpha_n": "synchronising across nodes",
    "beta_n": "per further replica across nodes", "alpha_r": "synchronising on a node", "beta_r": "per further replica on a node",
    "gamma": "overlap: 1 none of the wait hides, 10 nearly all",
}  # fmt: skip


def point_id(p: Point) -> str:
    """Key of a point: run, nodes, replicas, micro-batch, source."""
    return f"{p.run}|{p.num_nodes}|{p.num_replicas}|{p.atomic_bsz}|{p.source}"


def points(found: Gathered) -> TableSection:
    """All points, those that are not used last."""
    every, made = found.points, found.fit
    nodes, replicas, batch = (np.array([getattr(p, n) for p in every], float) for n in ("num_nodes", "num_replicas", "atomic_bsz"))
    optim = np.array([p.optim_step_time for p in every])
    frame = pd.DataFrame({
        "run": [p.run or None for p in every], "num_nodes": nodes.astype(int), "num_replicas": replicas.astype(int),
        "atomic_bsz": batch.astype(int), "accum_measured_ns": [p.accum_step_time * 1e9 for p in every],
        "optim_measured_ns": [p.optim_step_time * 1e9 for p in every],
        "sync_ns": [p.sync_time * 1e9 for p in every], "steps": [p.steps or None for p in every],
        "accum_steps": [p.accumulating if p.steps else None for p in every],
        "outliers": [p.outliers for p in every],
        "source": [p.source for p in every], "guessed": ["; ".join(p.guessed) or None for p in every],
        "why": [p.why or None for p in every], "id": [point_id(p) for p in every],
    })  # fmt: skip
    frame["accum_predicted_ns"] = frame["optim_predicted_ns"] = frame["residual"] = frame["left_out_error"] = np.nan
    fits = (nodes >= 1) & (replicas >= nodes) & (batch >= 1)
    if made is not None and fits.any():
        accum_fit, optim_fit = accum_time(made.params, batch[fits]), optim_time(made.params, nodes[fits], replicas[fits], batch[fits])
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


def bands(found: Gathered, outlook: Outlook) -> tuple[np.ndarray, np.ndarray] | None:
    """(low, high) of the goodput of the best way to run each count; None without resampled fits."""
    best = outlook.best
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


def gains(outlook: Outlook) -> np.ndarray:
    """What each replica added from one allocation to the next brings, in parts of one replica; NaN for the first."""
    r, s = outlook.best["replicas"], outlook.best["speedup"]
    return np.concatenate([[np.nan], np.diff(s) / np.diff(r)])


def predictions(found: Gathered, outlook: Outlook, price: float | None) -> TableSection:
    """Every allocation at its best batch size."""
    best = outlook.best
    runs = np.isfinite(best["goodput"])
    ran = {(p.num_nodes, p.num_replicas) for p in found.used}
    most = max(r for _, r in ran)
    nodes, replicas = best["nodes"].astype(int), best["replicas"].astype(int)
    total = replicas * best["atomic"] * (best["accum"] + 1)
    step = np.full(len(runs), np.nan)
    step[runs] = total[runs] / best["throughput"][runs]
    low, high = bands(found, outlook) or (np.full(len(runs), np.nan),) * 2
    known = outlook.terms.grads is not None
    frame = pd.DataFrame({
        "num_nodes": nodes, "num_replicas": replicas, "atomic_bsz": np.where(runs, best["atomic"], np.nan),
        "accum_steps": np.where(runs, best["accum"], np.nan), "total_batch": np.where(runs, total, np.nan), "step_ns": step * 1e9,
        "throughput": best["throughput"], "efficiency": best["efficiency"] if known else np.full(len(runs), np.nan),
        "goodput": best["goodput"], "goodput_low": low, "goodput_high": high, "speedup": np.where(runs, best["speedup"], np.nan),
        "scaling_efficiency": np.where(runs, best["speedup"] / replicas, np.nan), "gain": gains(outlook),
        "cost": cost_per_million(best["goodput"], replicas, price), "id": [f"{n}|{r}" for n, r in zip(nodes, replicas, strict=True)],
        "observed": ["ran" if (n, r) in ran else "between" if r <= most else "beyond" for n, r in zip(nodes, replicas, strict=True)],
    })  # fmt: skip
    beyond = {str(i): Mark("estimated", "; ".join(why)) for i, why in enumerate(of_counts(found.used, outlook)) if why}
    stop = outlook.stop
    many = f"{human(int(replicas[stop]), 'count')} replica{'s' if replicas[stop] != 1 else ''}"
    said = f"Adding pays up to {many}." if stop >= 0 else "Nothing can be run under these terms."
    columns = [c for c in PREDICTIONS if c.name != "cost" or price is not None]
    return make_table(
        "predictions", "What the fit predicts", frame, columns, key="id", sort=Sort("num_replicas", descending=False),
        subtitle="each count of replicas at its best batch size",
        marks=dict.fromkeys(("step_ns", "goodput", "throughput", "speedup", "scaling_efficiency", "gain"), beyond) if beyond else {},
        footer=said,
    )  # fmt: skip


def cost_per_million(goodput: np.ndarray, replicas: np.ndarray, price: float | None) -> np.ndarray:
    """Price of a million samples of full worth: devices times price per hour over samples per hour."""
    if price is None:
        return np.full(len(goodput), np.nan)
    return np.asarray(replicas * price / 3600 / goodput * 1e6)


def parameters(found: Gathered) -> TableSection:
    """The seven parameters, with no number where the points do not determine one."""
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


def terms(found: Gathered) -> TableSection:
    """Under which terms the model is asked, and who says so."""
    assert found.settled is not None
    t, origin = found.settled.terms, found.settled.origin
    grads = f"norm² {t.grads.sqr:.4g}, variance {t.grads.var:.4g}" if t.grads is not None else None
    rows = [
        ("Initial batch", human(t.initial, "count"), origin["initial"]), ("Batch at most", human(t.most, "count"), origin["most"]),
        ("Micro-batch", f"{human(t.low, 'count')} to {human(t.high, 'count')}", f"{origin['low']}; {origin['high']}"),
        ("Accumulation", "yes" if t.accumulation else "no", origin["accumulation"]),
        ("Replicas per node", human(t.per_node, "count"), origin["per_node"]),
        ("Replicas at most", human(t.replicas, "count"), origin["replicas"]),
        ("Gradient statistics", grads, origin["grads"] or "not recorded: a sample counts the same in every batch"),
        ("A replica pays from", f"{number(t.share * 100, 0)} % of one", "chosen"),
    ]
    return make_table(
        "terms", "Terms", pd.DataFrame(rows, columns=["name", "value", "origin"]), TERMS, key="name",
        subtitle="what may be run, and what it is worth", span=6,
    )  # fmt: skip
