"""The figures of the scaling page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from tb_sol_plugin.analyses.goodput.scaling_tables import bands, gains, point_id
from tb_sol_plugin.cost.goodput.confidence import band
from tb_sol_plugin.cost.goodput.fit import Fit
from tb_sol_plugin.cost.goodput.model import accum_time, optim_time
from tb_sol_plugin.metrics.goodput.fit import Gathered, errors, largest_error
from tb_sol_plugin.metrics.goodput.points import Point
from tb_sol_plugin.metrics.goodput.predict import Prediction, extrapolation, splits_by_count
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.report import FigureSection
from tb_sol_plugin.units import how_many, human

MOST_BARS: Final = 24
NODE_COLORS: Final = ("compute", "communication", "attention", "conv", "norm", "DtoH")
NODE_MARKS: Final = ("circle", "diamond", "square", "triangle-up", "cross", "x")


def measured(found: Gathered) -> FigureSection:
    """Draws predicted over measured step, a point per configuration, colored by nodes; hollow where the batch size was guessed."""
    made, used = found.fit, found.used
    assert made is not None
    nodes, replicas, batch = (np.array([getattr(p, n) for p in used], float) for n in ("num_nodes", "num_replicas", "atomic_bsz"))
    series = (
        ("step", np.array([p.optim_step_time for p in used]), optim_time(made.params, nodes, replicas, batch), 10),
        ("without sync", np.array([p.accum_step_time for p in used]), accum_time(made.params, batch), 6),
    )
    longest = max(float(max(a.max(), b.max())) for _, a, b, _ in series) * 1e9
    shortest = min(float(min(a.min(), b.min())) for _, a, b, _ in series) * 1e9
    factor, unit = F.time_scale(longest)
    low, high = shortest / factor * 0.9, longest / factor * 1.1
    data: list[F.Plain] = [{
        "type": "scatter", "mode": "lines", "x": [low, high], "y": [low, high], "hoverinfo": "skip",
        "line": {"color": F.light("ink-3"), "width": 1.2, "dash": "4px,4px"},
    }]  # fmt: skip
    counts = sorted({int(n) for n in nodes})
    for words, at, predicted, size in series:
        for i, n in enumerate(counts):
            rows = [k for k in range(len(used)) if int(nodes[k]) == n]
            color, mark = F.light(NODE_COLORS[i % len(NODE_COLORS)]), NODE_MARKS[i % len(NODE_MARKS)]
            hollow = [used[k].batch_guessed for k in rows]
            data.append({
                "type": "scatter", "mode": "markers", "name": f"{n} nodes, {words}", "x": [float(at[k]) * 1e9 / factor for k in rows],
                "y": [float(predicted[k]) * 1e9 / factor for k in rows], "customdata": [point_id(used[k]) for k in rows],
                "marker": {"size": size, "symbol": [f"{mark}-open" if h else mark for h in hollow], "color": color, "opacity": 0.8,
                           "line": {"width": 0.8, "color": F.light("surface")}},
                "hoverinfo": "text",
                "hovertext": [
                    f"<b>{_replicas(used[k].num_replicas)} on {n} node{'s' if n > 1 else ''}, {used[k].atomic_bsz} each</b><br>"
                    f"{words}: {human(at[k] * 1e9, 'ns')} measured, {human(predicted[k] * 1e9, 'ns')} by the fit" for k in rows
                ],
            })  # fmt: skip
    wide = high / max(low, 1e-9) > 12
    kind: F.Plain = {"type": "log", "range": [math.log10(low), math.log10(high)]} if wide else {"range": [low, high]}
    named = "" if len(counts) < 2 else "; color and shape: nodes"
    return FigureSection(
        id="fit", title="Measured against the fit", subtitle=f"large: step, small: without sync{named}; hollow: batch size guessed",
        figure=F.figure(data, x=F.axis(f"measured, {unit}", **kind), y=F.axis(f"fit, {unit}", **kind)), span=6, height=330, table="points",
        summary=f"Fit against measured step times of {how_many(len(used), 'point')}. {_largest(used, made)}",
    )  # fmt: skip


def residuals(found: Gathered) -> FigureSection:
    """Draws the error of the fit at each configuration, over its step time."""
    made, used = found.fit, found.used
    assert made is not None
    nodes, step = np.array([p.num_nodes for p in used]), np.array([p.optim_step_time for p in used])
    factor, unit = F.time_scale(float(step.max()) * 1e9)
    off_step, off_alone = errors(used, made)
    series = (("step", off_step, 10), ("without sync", off_alone, 6))
    largest = max(float(np.abs(off).max()) for _, off, _ in series) * 100
    counts = sorted({int(n) for n in nodes})
    data: list[F.Plain] = []
    for words, off, size in series:
        for i, n in enumerate(counts):
            rows = [k for k in range(len(used)) if int(nodes[k]) == n]
            color, mark = F.light(NODE_COLORS[i % len(NODE_COLORS)]), NODE_MARKS[i % len(NODE_MARKS)]
            data.append({
                "type": "scatter", "mode": "markers", "name": f"{n} nodes, {words}", "x": [float(step[k]) * 1e9 / factor for k in rows],
                "y": [float(off[k]) * 100 for k in rows], "customdata": [point_id(used[k]) for k in rows], "hoverinfo": "text",
                "marker": {"size": size, "color": color, "opacity": 0.8, "line": {"width": 0.8, "color": F.light("surface")},
                           "symbol": [f"{mark}-open" if used[k].batch_guessed else mark for k in rows]},
                "hovertext": [
                    f"<b>{_replicas(used[k].num_replicas)} on {n} node{'s' if n > 1 else ''}, {used[k].atomic_bsz} each</b><br>"
                    f"{words}: the fit is {human(abs(float(off[k])), 'ratio')} {'slower' if off[k] > 0 else 'faster'}" for k in rows
                ],
            })  # fmt: skip
    return FigureSection(
        id="residuals", title="What the fit leaves", subtitle="fit over measured, less 1; large: step, small: without sync", span=6,
        height=330,
        figure=F.figure(data, x=F.axis(f"step as measured, {unit}", rangemode="tozero"),
                        y=F.axis("%", range=[-1.15 * max(largest, 0.1), 1.15 * max(largest, 0.1)], zeroline=True)),
        table="points", summary=f"Error of the fit at {how_many(len(used), 'point')}. {_largest(used, made)}",
    )  # fmt: skip


def _largest(used: Sequence[Point], made: Fit) -> str:
    """Returns the largest error of the fit, and where, as every text on the page has it."""
    far, words, p = largest_error(used, made)
    return f"The largest error is {human(far, 'ratio')}: the {words} of {_replicas(p.num_replicas)} with {p.atomic_bsz} samples each."


def overlap(found: Gathered) -> list[FigureSection]:
    """Returns a gauge of the overlap exponent, from none to all of the shorter time hidden; none where it is not known."""
    made = found.fit
    gamma = made.known["gamma"] if made is not None else None
    if gamma is None:
        return []
    hidden_percent = 100 * hidden(gamma)
    data: list[F.Plain] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [0, 100],
            "y": [0, 0],
            "hoverinfo": "skip",
            "line": {"color": F.light("idle"), "width": 10},
        },
    ]
    words = ""
    if found.boot is not None and found.boot.samples:
        low, high = band(found.boot.samples, lambda p: hidden(p.gamma))
        words = f"; nine of ten resampled fits: {human(float(low), 'ratio')} to {human(float(high), 'ratio')}"
        data.append({"type": "scatter", "mode": "lines", "x": [100 * float(low), 100 * float(high)], "y": [0, 0], "hoverinfo": "skip",
                     "line": {"color": F.light("accent-line"), "width": 10}})  # fmt: skip
    data.append({
        "type": "scatter", "mode": "markers", "x": [hidden_percent], "y": [0], "hoverinfo": "text",
        "marker": {"size": 16, "color": F.light("accent"), "line": {"width": 1.5, "color": F.light("surface")}},
        "hovertext": [f"<b>γ = {gamma:.2f}</b><br>{overlap_words(gamma)}{words}"],
    })  # fmt: skip
    return [FigureSection(
        id="overlap", title="Overlap of computing and synchronizing", span=6, height=130,
        subtitle=f"γ = {gamma:.2f}: {overlap_words(gamma)}{words}",
        figure=F.figure(data, x=F.axis("% hidden: 0 is γ = 1, 93 is γ = 10", range=[-2, 102], showgrid=False),
                        y=F.axis(range=[-1, 1], showgrid=False, showticklabels=False, zeroline=False)),
        summary=f"The overlap exponent is {gamma:.2f}: {overlap_words(gamma)}.",
    )]  # fmt: skip


def hidden(gamma: float) -> float:
    """Returns the share of the shorter of two equal times that hides behind the other."""
    return float(2 - 2 ** (1 / gamma))


def curves(found: Gathered, prediction: Prediction) -> FigureSection:
    """Draws throughput and goodput over replicas at the best batch size; dashed beyond what ran; the count up to which adding pays."""
    best = prediction.best
    runs = np.isfinite(best["goodput"])
    r = best["replicas"]
    far = np.array([bool(why) for why in splits_by_count(found.used, prediction)])
    next_to = far | np.append(far[1:], False) | np.append(False, far[:-1])
    known = prediction.terms.grads is not None
    data: list[F.Plain] = []
    around = bands(found, prediction)
    if around is not None and runs.sum() > 1:
        low, high = around
        xs = r[runs].tolist()
        data.append({
            "type": "scatter", "mode": "lines", "x": xs + xs[::-1], "y": high[runs].tolist() + low[runs][::-1].tolist(), "fill": "toself",
            "fillcolor": F.light("accent-bg"), "line": {"width": 0}, "hoverinfo": "skip", "opacity": 0.9,
        })  # fmt: skip
    ideal = best["goodput"][runs][0] / r[runs][0] * r if runs.any() else r * np.nan
    data.append(_line(r, ideal, "ink-3", "if every replica brought as much as the first", dash="2px,4px", width=1.0))
    lines = [("throughput", "ink-2", "samples per second")] if known else []
    for name, token, words in [*lines, ("goodput", "accent", "goodput" if known else "samples per second")]:
        inside, outside = np.where(runs & ~far, best[name], np.nan), np.where(runs & next_to, best[name], np.nan)
        data += [_line(r, inside, token, words), _line(r, outside, token, f"{words}, beyond what ran", dash="5px,4px")]
    notes: list[F.Plain] = []
    if prediction.stop >= 0:
        run = prediction.at(prediction.stop)
        data.append({
            "type": "scatter", "mode": "markers", "x": [run.replicas], "y": [run.goodput], "hoverinfo": "text",
            "hovertext": [
                f"<b>{run.replicas} replicas × {run.atomic}</b><br>{human(run.goodput, '')} per s, {human(run.speedup, '')}× one"
            ],
            "marker": {"size": 12, "color": F.light("accent"), "line": {"width": 1.5, "color": F.light("surface")}},
            "customdata": [f"{run.nodes}|{run.replicas}"],
        })  # fmt: skip
        words = "adding still pays" if prediction.pays_on else "adding pays up to here"
        notes.append({
            "x": run.replicas, "y": run.goodput, "text": f"{_replicas(run.replicas)}<br>{words}", "showarrow": True, "arrowhead": 0,
            "arrowcolor": F.light("ink-3"), "ax": 28, "ay": 34, "xanchor": "left", "align": "left",
            "font": {"size": 12, "color": F.light("ink")},
        })  # fmt: skip
    top = float(np.nanmax(best["throughput" if known else "goodput"])) if runs.any() else 1.0
    what = "Goodput" if known else "Throughput"
    return FigureSection(
        id="curves", title=f"{what} over replicas",
        subtitle=("solid: all samples, accent: times what they are worth; " if known else "") + "dashed beyond what ran, dotted: ideal",
        figure=F.figure(data, x=F.axis("replicas"), y=F.axis("samples per second", range=[0, top * 1.25]), annotations=notes),
        span=5, height=360, table="predictions",
        summary=f"{what} over replicas, each count at its best batch size. "
        + (f"Adding pays up to {_replicas(prediction.at(prediction.stop).replicas)}." if prediction.stop >= 0 else "Nothing can be run."),
    )  # fmt: skip


def _line(x: np.ndarray, y: np.ndarray, token: str, words: str, *, dash: str = "solid", width: float = 2.0) -> F.Plain:
    ok = np.isfinite(y)
    return {
        "type": "scatter", "mode": "lines", "x": x.tolist(), "y": [float(v) if k else None for v, k in zip(y, ok, strict=True)],
        "line": {"color": F.light(token), "width": width, "dash": dash}, "hoverinfo": "text", "name": words,
        "hovertext": [
            f"<b>{_replicas(int(a))}</b><br>{words}: {human(float(b), '')} per s" if k else "" for a, b, k in zip(x, y, ok, strict=True)
        ],
    }  # fmt: skip


def heat(found: Gathered, prediction: Prediction) -> FigureSection:
    """Draws goodput over replicas and total batch, the best of each count as a line, the recommended cell ringed."""
    grid = prediction.grid
    counts = [str(int(c)) for c in grid.counts]
    value = grid.goodput
    known = np.isfinite(value)
    top = float(np.nanmax(value)) if known.any() else 1.0
    batches = [float(t) for t in grid.totals]
    text = [[_cell(found, prediction, i, j) for j in range(len(counts))] for i in range(len(batches))]
    data: list[F.Plain] = [{
        "type": "heatmap", "x": counts, "y": [human(round(t), "count") for t in batches], "hoverongaps": False,
        "z": [[float(v) if k else None for v, k in zip(row, ok, strict=True)] for row, ok in zip(value, known, strict=True)],
        "zmin": 0, "zmax": top, "colorscale": [[0, F.light("sunken")], [0.5, F.light("accent-line")], [1, F.light("accent")]],
        "showscale": True, "colorbar": {"thickness": 8, "len": 0.9, "outlinewidth": 0, "title": {"text": "per s", "font": {"size": 11.5}},
                                        "tickfont": {"size": 11, "color": F.light("ink-3")}},
        "text": text, "hoverinfo": "text", "xgap": 1, "ygap": 1,
    }]  # fmt: skip
    ring = ""
    if prediction.terms.accumulation:
        ends = [prediction.terms.high * int(c) for c in grid.counts]
        rows = [(c, int(np.argmin(np.abs(np.log(grid.totals / end))))) for c, end in zip(counts, ends, strict=True)
                if grid.totals[0] <= end < grid.totals[-1]]  # fmt: skip
        data.append({
            "type": "scatter", "mode": "lines", "x": [c for c, _ in rows], "y": [human(round(batches[i]), "count") for _, i in rows],
            "line": {"color": F.light("ink-2"), "width": 1.4, "dash": "4px,3px", "shape": "hv"}, "hoverinfo": "skip",
        })  # fmt: skip
    if prediction.stop >= 0:
        run = prediction.at(prediction.stop)
        row = int(np.argmin(np.abs(np.log(grid.totals / run.total))))
        column = int(np.argmin(np.abs(grid.counts - run.replicas)))
        data.append({
            "type": "scatter", "mode": "markers", "x": [counts[column]], "y": [human(round(batches[row]), "count")], "hoverinfo": "text",
            "hovertext": [f"<b>{run.replicas} replicas × {run.atomic}{_accum(run.accum)}</b><br>{human(run.goodput, '')} per s"],
            "marker": {"size": 16, "symbol": "circle-open", "color": F.light("ink"), "line": {"width": 2.2, "color": F.light("ink")}},
        })  # fmt: skip
        ring = f" The ring is {_replicas(run.replicas)} with a total batch of {human(run.total, 'count')}."
    by_memory = ", by memory" if found.settled is not None and found.settled.memory else ""
    limit = f"; empty: cannot be run (micro-batch up to {prediction.terms.high}{by_memory})"
    limit += "; dashed: gradients are accumulated above" if prediction.terms.accumulation else ""
    what = "Goodput" if prediction.terms.grads is not None else "Samples per second"
    return FigureSection(
        id="grid", title=f"{what} over replicas and total batch", subtitle=f"samples per second; ring: where adding stops paying{limit}",
        figure=F.figure(data, x=F.axis("replicas", type="category", showgrid=False),
                        y=F.axis("total batch", type="category", showgrid=False, nticks=10), margin={"l": 62, "r": 8, "t": 10, "b": 46}),
        span=7, height=360, table="predictions", summary=f"{what} for each count of replicas and total batch size.{ring}",
    )  # fmt: skip


def _cell(found: Gathered, prediction: Prediction, row: int, column: int) -> str:
    """Returns what one cell of the grid says when it is pointed at."""
    grid = prediction.grid
    replicas, total = int(grid.counts[column]), human(round(float(grid.totals[row])), "count")
    if not np.isfinite(grid.goodput[row, column]):
        return f"<b>{_replicas(replicas)}, total batch {total}</b><br>cannot be run: micro-batch outside its bounds"
    atomic, steps = int(grid.atomic[row, column]), int(grid.steps[row, column])
    reached = human(replicas * atomic * (steps + 1), "count")
    why = extrapolation(found.used, prediction.fit, int(prediction.terms.nodes(replicas)), replicas, atomic)
    far = f"<br>extrapolated: {'; '.join(why)}" if why else ""
    value = human(float(grid.goodput[row, column]), "")
    return f"<b>{_replicas(replicas)} × {atomic}{_accum(steps)}, total batch {reached}</b><br>{value} per s{far}"


def _accum(steps: int) -> str:
    return f" × {steps + 1} micro-steps" if steps else ""


def split(found: Gathered, prediction: Prediction) -> FigureSection:
    """Draws computing and synchronizing of one updating micro-step, and what of both does not overlap."""
    counts = prediction.terms.counts
    runs = np.flatnonzero(np.isfinite(prediction.best["goodput"]))
    shown = runs if len(runs) <= MOST_BARS else np.unique(runs[np.linspace(0, len(runs) - 1, MOST_BARS).astype(int)])
    rows = [(int(counts[i]), *prediction.split(int(i))) for i in shown]
    longest = max((c + n for _, c, n, _ in rows), default=1e-9) * 1e9
    factor, unit = F.time_scale(longest)
    scale = 1e9 / factor
    x = [str(r) for r, *_ in rows]
    data: list[F.Plain] = [
        {"type": "bar", "name": "computing", "x": x, "y": [c * scale for _, c, _, _ in rows], "marker": F.fill("compute"),
         "hoverinfo": "text", "hovertext": [f"<b>{r} replicas</b><br>computing {human(c * 1e9, 'ns')}" for r, c, _, _ in rows]},
        {"type": "bar", "name": "synchronizing", "x": x, "y": [n * scale for _, _, n, _ in rows], "marker": F.fill("communication"),
         "hoverinfo": "text", "hovertext": [f"<b>{r} replicas</b><br>synchronizing {human(n * 1e9, 'ns')}" for r, _, n, _ in rows]},
        {"type": "scatter", "mode": "lines+markers", "name": "step", "x": x, "y": [s * scale for *_, s in rows], "hoverinfo": "text",
         "line": {"color": F.light("ink"), "width": 1.6}, "marker": {"size": 6, "color": F.light("ink")},
         "hovertext": [
             f"<b>{r} replicas</b><br>step {human(s * 1e9, 'ns')}: {human((c + n - s) * 1e9, 'ns')} of both overlap"
             for r, c, n, s in rows
         ]},
    ]  # fmt: skip
    made = found.fit
    assert made is not None
    gamma = made.known["gamma"]
    text = f"γ = {gamma:.2f}: {overlap_words(gamma)}" if gamma is not None else "overlap not known from these points"
    return FigureSection(
        id="split", title="Computing and synchronizing",
        subtitle=f"bars: each by itself; line: the step, shorter where they overlap; {text}",
        figure=F.figure(data, x=F.axis("replicas", type="category", showgrid=False), y=F.axis(unit), barmode="stack"), span=6, height=330,
        summary=f"Time of computing and of synchronizing in a step for each count of replicas; {text}.",
    )  # fmt: skip


def _replicas(count: int) -> str:
    return how_many(count, "replica")


def overlap_words(gamma: float) -> str:
    """Returns what the exponent means: the share of the shorter of two equal times that hides behind the other."""
    return f"of two equal times, {human(hidden(gamma), 'ratio')} of one hides behind the other"


def speedup(found: Gathered, prediction: Prediction) -> FigureSection:
    """Draws speedup over one replica, and what each replica added brings, with the share from which it pays."""
    best = prediction.best
    r = best["replicas"]
    gain = gains(prediction)
    ok = np.isfinite(gain)
    share = prediction.terms.share
    data: list[F.Plain] = [{
        "type": "bar", "x": [str(int(a)) for a in r[ok]], "y": (gain[ok] * 100).tolist(), "hoverinfo": "text",
        "marker": {"color": [F.light("bar-ink") if g >= share else F.light("idle") for g in gain[ok]], "line": {"width": 0}},
        "hovertext": [f"<b>up to {int(a)} replicas</b><br>each added one brings {human(float(g), 'ratio')} of one; "
                      f"speedup {human(float(s), '')}" for a, g, s in zip(r[ok], gain[ok], best["speedup"][ok], strict=True)],
        "customdata": [f"{int(n)}|{int(a)}" for n, a in zip(best["nodes"][ok], r[ok], strict=True)],
    }]  # fmt: skip
    shapes: list[F.Plain] = [{
        "type": "line", "x0": 0, "x1": 1, "xref": "paper", "y0": share * 100, "y1": share * 100,
        "line": {"color": F.light("accent"), "width": 1.4, "dash": "4px,3px"},
    }]  # fmt: skip
    falls = prediction.stop >= 0 and not prediction.pays_on
    return FigureSection(
        id="gain", title="What a further replica brings",
        subtitle=f"gain in speedup per replica added, in parts of one replica; line: pays from {human(share, 'ratio')}",
        figure=F.figure(
            data, x=F.axis("replicas", type="category", showgrid=False), y=F.axis("%", rangemode="tozero"), shapes=shapes
        ),
        span=6, height=330, table="predictions",
        summary=f"Gain per added replica over the count of replicas. It falls below {human(share, 'ratio')} "
        + (f"after {_replicas(prediction.at(prediction.stop).replicas)}." if falls else "nowhere here."),
    )  # fmt: skip
