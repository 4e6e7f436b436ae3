"""The numbers of the page of iterations, and its sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.time.iterations import Course, counted, own_work
from tb_sol_plugin.model.report import FactsSection, Mark, Scalar
from tb_sol_plugin.units import human

FACTS: Final = {
    "median_ns": "Median step time of the iterations that were not sampled; of all where every one was. The first is left out.",
    "p95_ns": "Step time that 95 % of those iterations do not exceed.",
    "sol_ratio": "Limits over usual step times, of iterations whose work is known; usual is the median of those with inputs of one size.",
    "mfu": "Matrix work over usual step times times dense peak, without recomputed work.",
    "trend_ns": "Change of step time in 100 iterations: median of the slopes between all pairs of stretches (Theil-Sen).",
    "sampled": "Iterations whose work was counted.",
    "overhead_share": "Measured work of the recorder over all time of the job, that work included; the first iteration is left out.",
    "iterations": "Iterations recorded, in the selection.",
    "trend_low_ns": "Lower end of the 95 % interval of the trend.",
    "trend_high_ns": "Upper end of the 95 % interval of the trend.",
    "rising_share": "Share of pairs of stretches in which the later one is slower; 50 % where nothing changes.",
    "regression_iteration": "First iteration from which steps are lastingly slower (Pettitt's test, at least 3 %, chance below 1 %).",
    "regression_share": "Growth of the median step time there.",
    "sol_ns": "Average limit of an iteration, of those iterations whose work is known.",
    "hfu": "MFU with recomputed work.",
    "bandwidth_utilisation": "Least memory traffic over usual step times times bandwidth.",
    "tokens_per_s": "Tokens of those iterations over their time.",
    "samples_per_s": "Samples of those iterations over their time.",
    "sampled_median_ns": "Median step time of the sampled iterations, the first left out: counting costs time that cannot be taken off.",
    "overhead_sampled_share": "The same of sampled iterations, with what follows them: analysis, writing.",
    "overhead_between_share": "The same of iterations that were not sampled.",
    "overhead_once_ns": "Measured work of the recorder that arises once: setting up, and what the first iteration needs.",
    "signatures": "Different sizes of inputs.",
    "missing": "Numbers left out between the first and the last iteration.",
    "restarts": "Places where numbers begin anew.",
}


USED: Final = (
    "time_ns", "host_ns", "sol_ns", "matrix_ns", "matrix_again_ns", "sol_ratio", "mfu", "bandwidth_utilisation", "age",
    "batch", "tokens",
)  # fmt: skip
"""Columns of iterations that facts are made from."""


@dataclass(frozen=True)
class Told:
    """What is said of a selection.

    values: facts by name, None unknown. estimated: some of the work is taken from other iterations.
    """

    values: dict[str, Scalar]
    course: Course
    estimated: bool

    @staticmethod
    def of(frame: pd.DataFrame, found: Course) -> Told:
        slim = frame[list(USED)]
        rows = counted(frame)
        over = slim[rows]
        kind = frame["signature"].cat.codes.to_numpy()[rows]
        over = over.assign(usual_ns=over["time_ns"].groupby(kind).transform("median"))
        times = over["time_ns"].to_numpy()
        use, matrix, traffic = (over[over[n].notna()] for n in ("sol_ratio", "mfu", "bandwidth_utilisation"))
        sampled = slim[frame["sampled"] & (~frame["first"] | bool(frame["first"].all()))]
        own = own_work(frame)
        slope = found.slope
        change = found.change if found.change is not None and found.change.share > 0 else None
        number = frame["number"].to_numpy()
        of_change = int(number[found.rows[change.at]]) if change is not None else None
        values: dict[str, Scalar] = {
            "median_ns": round(found.level_ns) if found.level_ns == found.level_ns else None,
            "p95_ns": round(float(np.quantile(times, 0.95))) if len(times) else None,
            "sol_ratio": _over(use["sol_ns"], use["usual_ns"]),
            "mfu": _over(matrix["matrix_ns"], matrix["usual_ns"]),
            "trend_ns": slope.value * 100 if slope is not None else None,
            "sampled": int(frame["sampled"].sum()),
            "overhead_share": own.share,
            "iterations": len(frame),
            "trend_low_ns": slope.low * 100 if slope is not None else None,
            "trend_high_ns": slope.high * 100 if slope is not None else None,
            "rising_share": slope.rising if slope is not None else None,
            "regression_iteration": of_change,
            "regression_share": change.share if change is not None else None,
            "sol_ns": round(float(use["sol_ns"].mean())) if len(use) else None,
            "hfu": _over(matrix["matrix_again_ns"], matrix["usual_ns"]),
            "bandwidth_utilisation": _over(traffic["bandwidth_utilisation"] * traffic["time_ns"], traffic["usual_ns"]),
            "tokens_per_s": _rate(over, "tokens"),
            "samples_per_s": _rate(over, "batch"),
            "sampled_median_ns": round(float(sampled["time_ns"].median())) if len(sampled) else None,
            "overhead_sampled_share": own.sampled,
            "overhead_between_share": own.between,
            "overhead_once_ns": own.once_ns,
            "signatures": int(frame["signature"].nunique()),
            "missing": int(frame["missing"].sum()),
            "restarts": int(frame["restart"].sum()),
        }
        return Told(values, found, bool((use["age"] > 0).any()))


def _over(above: pd.Series, below: pd.Series) -> float | None:
    """Sum over sum; None without any."""
    whole = float(below.sum())
    return float(above.sum()) / whole if len(below) and whole > 0 else None


def _rate(over: pd.DataFrame, column: str) -> float | None:
    known = over[over[column].notna()]
    found = _over(known[column], known["time_ns"])
    return found * 1e9 if found is not None else None


LABELS: Final = {
    "median_ns": "Step time",
    "p95_ns": "95 % within",
    "sol_ratio": "Speed of light",
    "mfu": "MFU",
    "trend_ns": "Trend, in 100 iterations",
    "sampled": "Sampled",
    "overhead_share": "Recorder",
    "iterations": "Iterations",
    "trend_low_ns": "Trend, at least",
    "trend_high_ns": "Trend, at most",
    "rising_share": "Later is slower",
    "regression_iteration": "Slower since",
    "regression_share": "Slower by",
    "sol_ns": "Limit",
    "hfu": "HFU",
    "bandwidth_utilisation": "Bandwidth utilisation",
    "tokens_per_s": "Tokens/s",
    "samples_per_s": "Samples/s",
    "sampled_median_ns": "Step time, sampled",
    "overhead_sampled_share": "Recorder, sampled",
    "overhead_between_share": "Recorder, between",
    "overhead_once_ns": "Recorder, once",
    "signatures": "Sizes of inputs",
    "missing": "Missing",
    "restarts": "Restarts",
}
TILES: Final = ("median_ns", "p95_ns", "sol_ratio", "mfu", "trend_ns", "sampled", "overhead_share")


def facts(told: Told) -> tuple[FactsSection, FactsSection]:
    """(tiles at the top, the rest in a list beside the phases)."""
    values = told.values
    guess = Mark("estimated", "work of the last sampled iteration with inputs of the same size") if told.estimated else None
    marks = {
        n: guess for n in ("sol_ratio", "mfu", "hfu", "sol_ns", "bandwidth_utilisation") if guess is not None and values[n] is not None
    }
    rest = [n for n in values if n not in TILES]
    hidden = [
        n for n in rest if values[n] is None or (n in ("missing", "restarts") and not values[n]) or (n == "signatures" and values[n] == 1)
    ]
    hidden += ["hfu"] if values["hfu"] == values["mfu"] else []
    units = {
        n: "ns" if n.endswith("_ns") else "ratio" if n.endswith(("_share", "_ratio", "_utilisation")) or n in ("mfu", "hfu") else ""
        for n in values
    }
    units |= dict.fromkeys(("sampled", "iterations", "signatures", "missing", "restarts"), "count")

    def section(section_id: str, title: str, names: list[str], **more: object) -> FactsSection:
        return FactsSection(
            id=section_id,
            title=title,
            values={n: values[n] for n in names},
            units={n: units[n] for n in names},
            labels={n: LABELS[n] for n in names},
            docs={n: FACTS[n] for n in names},
            marks={n: m for n, m in marks.items() if n in names},
            **more,  # type: ignore[arg-type]
        )

    absent = [n for n in TILES if values[n] is None]
    return (
        section("answer", "The whole job", list(TILES), style="tiles", hidden=absent, notes=_notes(told)),
        section("facts", "More numbers", rest, span=4, hidden=hidden),
    )


def _notes(told: Told) -> dict[str, str]:
    values, slope = told.values, told.course.slope
    count, every = len(told.course.rows), int(told.values["iterations"] or 0)
    recorded = f"of {human(every, 'count')} iteration{'s' if every != 1 else ''}"
    notes = {"median_ns": f"median of {human(count, 'count')}", "sampled": recorded}
    if values["sol_ns"] is not None:
        notes["sol_ratio"] = f"limit {human(values['sol_ns'], 'ns')}"  # type: ignore[arg-type]
    if slope is not None:
        ends = f"{_signed(slope.low * 100)} to {_signed(slope.high * 100)}"
        notes["trend_ns"] = f"95 %: {ends}" if slope.sure else f"within chance: {ends}"
    if values["overhead_sampled_share"] is not None:
        notes["overhead_share"] = f"{human(values['overhead_sampled_share'], 'ratio')} of a sampled one"  # type: ignore[arg-type]
    return notes


def _signed(ns: float) -> str:
    return ("+" if ns > 0 else "") + human(ns, "ns")


def totals(told: Told, frame: pd.DataFrame) -> pd.Series:
    """The first row of the table: medians of times, and ratios of sums, over the iterations that count."""
    rows = counted(frame)
    values = told.values
    first: dict[str, Scalar] = {"iteration": "median"}
    for name in ("time_ns", "host_ns", "device_ns", "sol_ns", "flop", "recompute_flop", "bytes", "overhead_ns", "ops", "unknown"):
        known = frame[name][rows].dropna()
        first[name] = round(float(known.median())) if len(known) else None
    first |= {n: values[n] for n in ("sol_ratio", "mfu", "hfu", "bandwidth_utilisation", "tokens_per_s", "samples_per_s")}
    return pd.Series(first, dtype=object)


def headline(told: Told, frame: pd.DataFrame) -> str:
    """`4 000 iterations, 41 sampled: a step takes 12.3 ms (median), at 43 % of the speed of light; it takes 8 % longer since …`."""
    values = told.values
    count = f"{human(len(frame), 'count')} iteration{'' if len(frame) == 1 else 's'}, {human(int(frame['sampled'].sum()), 'count')} sampled"
    step, reached = values["median_ns"], values["sol_ratio"]
    if not isinstance(step, int):
        return f"{count}."
    about = "≈ " if told.estimated else ""
    at = f", at {about}**{human(reached, 'ratio')}** of the speed of light" if isinstance(reached, float) else ""
    median = " (median)" if len(frame) > 1 else ""
    return f"{count}: a step takes **{human(step, 'ns')}**{median}{at}{_course(told, frame)}."


def _course(told: Told, frame: pd.DataFrame) -> str:
    found = told.course
    change = found.change
    if change is not None:
        number = frame["number"].to_numpy()[found.rows]
        since, more = human(int(number[change.at]), "count"), "longer" if change.share > 0 else "less"
        grown = human(abs(change.share), "ratio")
        if change.until == len(found.rows):
            return f"; it takes **{grown} {more} since iteration {since}**"
        until = human(int(number[change.until - 1]), "count")
        return f"; it took {grown} {more} from iteration {since} to {until}"
    if found.growing and found.slope is not None and found.level_ns:
        share = human(abs(found.slope.value) * 100 / found.level_ns, "ratio")
        return f"; it {'grows' if found.slope.value > 0 else 'falls'} by **{share} every 100 iterations**"
    return "; it is steady" if found.steady else ""
