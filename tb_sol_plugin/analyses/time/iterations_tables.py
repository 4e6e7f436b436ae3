"""The numbers of the page of iterations, and its sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cost.roofline import TOLERATED
from tb_sol_plugin.metrics.time.iterations import STRETCH, Trend, alike, counted, recorder_overhead, thinned
from tb_sol_plugin.metrics.work.columns import ranked
from tb_sol_plugin.metrics.work.sums import FLAGGED
from tb_sol_plugin.model.report import Column, Fact, FactsSection, Mark, Scalar, Sort, TableSection, make_facts, make_table
from tb_sol_plugin.tables.arrays import whole_numbers
from tb_sol_plugin.units import how_many, human, side_by_side, signed

FACTS: Final = (
    Fact("median_ns", "Step time", "ns", "Median step time of the iterations that were not sampled; of all where every one was. The "
         "first is left out."),
    Fact("p95_ns", "95 % within", "ns", "Step time that 95 % of those iterations do not exceed."),
    Fact("sol_ratio", "Speed of light", "ratio", "Limits over usual step times, of iterations whose work is known; usual is the median "
         "of those with inputs of one size."),
    Fact("mfu", "MFU", "ratio", "Matrix work over usual step times times dense peak, without work that is done again: of fused "
         "attention, twice the forward for the backward pass."),
    Fact("trend_ns", "Trend, in 100 iterations", "ns", "Change of step time in 100 iterations, or in all where there are fewer: median of "
         "the slopes between all pairs of stretches (Theil-Sen)."),
    Fact("sampled", "Sampled", "count", "Iterations whose work was counted."),
    Fact("overhead_share", "Recorder", "ratio", "Measured work of the recorder over all time of the job, that work included; the first "
         "iteration is left out."),
    Fact("iterations", "Iterations", "count", "Iterations recorded, in the selection."),
    Fact("trend_low_ns", "Trend, at least", "ns", "Lower end of the 95 % interval of the trend."),
    Fact("trend_high_ns", "Trend, at most", "ns", "Upper end of the 95 % interval of the trend."),
    Fact("rising_share", "Later is slower", "ratio", "Share of pairs of stretches in which the later one is slower; 50 % where nothing "
         "changes."),
    Fact("regression_iteration", "Slower since", "", "First iteration from which steps are lastingly slower (Pettitt's test, at least 3 "
         "%, chance below 1 %)."),
    Fact("regression_share", "Slower by", "ratio", "Growth of the median step time there."),
    Fact("sol_ns", "Limit", "ns", "Average limit of an iteration, of those iterations whose work is known."),
    Fact("hfu", "HFU", "ratio", "The same with all work that ran, recomputed forward calls and scores too."),
    Fact("bandwidth_utilisation", "Bandwidth utilization", "ratio", "Least memory traffic over usual step times times bandwidth."),
    Fact("tokens_per_s", "Tokens/s", "", "Tokens of those iterations over their time."),
    Fact("samples_per_s", "Samples/s", "", "Samples of those iterations over their time."),
    Fact("sampled_median_ns", "Step time, sampled", "ns", "Median step time of the sampled iterations, the first left out: counting "
         "costs time that cannot be taken off."),
    Fact("overhead_sampled_share", "Recorder, sampled", "ratio", "The same of sampled iterations, with what follows them: analysis, "
         "writing."),
    Fact("overhead_between_share", "Recorder, between", "ratio", "The same of iterations that were not sampled."),
    Fact("overhead_once_ns", "Recorder, once", "ns", "Measured work of the recorder that arises once: setting up, and what the first "
         "iteration needs."),
    Fact("signatures", "Sizes of inputs", "count", "Different sizes of inputs."),
    Fact("missing", "Missing", "count", "Numbers left out between the first and the last iteration."),
    Fact("restarts", "Restarts", "count", "Restarts: places where iteration numbers begin again."),
)  # fmt: skip


USED: Final = (
    "time_ns", "host_ns", "sol_ns", "matrix_ns", "matrix_again_ns", "sol_ratio", "mfu", "bandwidth_utilisation", "age",
    "batch", "tokens",
)  # fmt: skip
"""Columns of iterations that facts are made from."""


@dataclass(frozen=True)
class IterationSummary:
    """What is said of a selection.

    values: facts by name, None unknown. estimated: some of the work is taken from other iterations.
    """

    values: dict[str, Scalar]
    trend: Trend
    estimated: bool

    @staticmethod
    def of(frame: pd.DataFrame, found: Trend) -> IterationSummary:
        slim = frame[list(USED)]
        rows = counted(frame)
        over = slim[rows]
        kind = alike(frame)[rows]
        over = over.assign(usual_ns=over["time_ns"].groupby(kind).transform("median"))
        times = over["time_ns"].to_numpy()
        use, matrix, traffic = (over[over[n].notna()] for n in ("sol_ratio", "mfu", "bandwidth_utilisation"))
        sampled = slim[frame["sampled"] & (~frame["first"] | bool(frame["first"].all()))]
        own = recorder_overhead(frame)
        slope = found.slope
        change = found.change if found.change is not None and found.change.share > 0 else None
        number = frame["number"].to_numpy()
        of_change = int(number[found.rows[change.at]]) if change is not None else None
        values: dict[str, Scalar] = {
            "median_ns": round(found.level_ns) if found.level_ns == found.level_ns else None,
            "p95_ns": round(float(np.quantile(times, 0.95))) if len(times) else None,
            "sol_ratio": _over(use["sol_ns"], use["usual_ns"]),
            "mfu": _over(matrix["matrix_ns"], matrix["usual_ns"]),
            "trend_ns": found.over_stretch(slope.value) if slope is not None else None,
            "sampled": int(frame["sampled"].sum()),
            "overhead_share": own.share,
            "iterations": len(frame),
            "trend_low_ns": found.over_stretch(slope.low) if slope is not None else None,
            "trend_high_ns": found.over_stretch(slope.high) if slope is not None else None,
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
        return IterationSummary(values, found, bool((use["age"] > 0).any()))


def _over(above: pd.Series, below: pd.Series) -> float | None:
    """Returns sum over sum; None without any."""
    whole = float(below.sum())
    return float(above.sum()) / whole if len(below) and whole > 0 else None


def _rate(over: pd.DataFrame, column: str) -> float | None:
    known = over[over[column].notna()]
    found = _over(known[column], known["time_ns"])
    return found * 1e9 if found is not None else None


TILES: Final = ("median_ns", "p95_ns", "sol_ratio", "mfu", "trend_ns", "sampled", "overhead_share")


def facts(summary: IterationSummary) -> tuple[FactsSection, FactsSection]:
    """Builds the tiles at the top, and the rest as a list."""
    values = summary.values
    guess = Mark("estimated", "work of the last sampled iteration with inputs of the same size") if summary.estimated else None
    marks = {
        n: guess for n in ("sol_ratio", "mfu", "hfu", "sol_ns", "bandwidth_utilisation") if guess is not None and values[n] is not None
    }
    rest = [n for n in values if n not in TILES]
    hidden = [
        n for n in rest if values[n] is None or (n in ("missing", "restarts") and not values[n]) or (n == "signatures" and values[n] == 1)
    ]
    hidden += ["hfu"] if values["hfu"] == values["mfu"] else []

    absent = [n for n in TILES if values[n] is None]
    top, below = ({n: m for n, m in marks.items() if (n in TILES) == tile} for tile in (True, False))
    return (
        make_facts(
            "answer", "The whole job", {n: values[n] for n in TILES}, FACTS, style="tiles", hidden=absent, notes=_notes(summary), marks=top,
            labels={"trend_ns": f"Trend, in {how_many(summary.trend.stretch, 'iteration')}"},
        ),
        make_facts("facts", "More numbers", {n: values[n] for n in rest}, FACTS, span=4, hidden=hidden, marks=below),
    )


def _notes(summary: IterationSummary) -> dict[str, str]:
    values, slope = summary.values, summary.trend.slope
    count, every = len(summary.trend.rows), int(summary.values["iterations"] or 0)
    recorded = f"of {how_many(every, 'iteration')}"
    notes = {"median_ns": f"median of {human(count, 'count')}", "sampled": recorded}
    if values["sol_ns"] is not None:
        notes["sol_ratio"] = f"limit {human(values['sol_ns'], 'ns')}"  # type: ignore[arg-type]
    if slope is not None:
        ends = " to ".join(signed(summary.trend.over_stretch(end), "ns") for end in (slope.low, slope.high))
        notes["trend_ns"] = f"95 %: {ends}" if slope.sure else f"within chance: {ends}"
    if values["overhead_sampled_share"] is not None:
        notes["overhead_share"] = f"{human(values['overhead_sampled_share'], 'ratio')} of a sampled one"  # type: ignore[arg-type]
    return notes


def totals(summary: IterationSummary, frame: pd.DataFrame) -> pd.Series:
    """Returns the first row of the table: medians of times, and ratios of sums, over the iterations that count."""
    rows = counted(frame)
    values = summary.values
    first: dict[str, Scalar] = {"iteration": "median"}
    for name in ("time_ns", "host_ns", "device_ns", "sol_ns", "flop", "recompute_flop", "bytes", "overhead_ns", "ops", "unknown"):
        known = frame[name][rows].dropna()
        first[name] = round(float(known.median())) if len(known) else None
    first |= {n: values[n] for n in ("sol_ratio", "mfu", "hfu", "bandwidth_utilisation", "tokens_per_s", "samples_per_s")}
    return pd.Series(first, dtype=object)


def headline(summary: IterationSummary, frame: pd.DataFrame) -> str:
    """Returns `4 000 iterations, 41 sampled: a step takes 12.3 ms (median), at 43 % of the speed of light; it takes 8 % longer since …`."""
    values = summary.values
    count = f"{human(len(frame), 'count')} iteration{'' if len(frame) == 1 else 's'}, {human(int(frame['sampled'].sum()), 'count')} sampled"
    step, reached = values["median_ns"], values["sol_ratio"]
    if not isinstance(step, int):
        return f"{count}."
    about = "≈ " if summary.estimated else ""
    at = f", at {about}**{human(reached, 'ratio')}** of the speed of light" if isinstance(reached, float) else ""
    median = " (median)" if len(frame) > 1 else ""
    return f"{count}: a step takes **{human(step, 'ns')}**{median}{at}{_trend_text(summary, frame)}.{_batches(frame)}"


def _batches(frame: pd.DataFrame, most: int = 4) -> str:
    """Says how long a step of each batch size takes, where there are several."""
    over = frame[counted(frame) & frame["batch"].notna()]
    each = over.groupby("batch")["time_ns"].median()
    if len(each) < 2:
        return ""
    times = side_by_side(each.tolist()[:most], "ns")
    listed = [f"{time} for {human(size, 'count')}" for size, time in zip(each.index, times, strict=False)]
    more = f" and {how_many(len(each) - most, 'more size')}" if len(each) > most else ""
    return f" The batch size changes: {', '.join(listed)} samples{more}."


def _trend_text(summary: IterationSummary, frame: pd.DataFrame) -> str:
    found = summary.trend
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
        share = human(abs(found.over_stretch(found.slope.value)) / found.level_ns, "ratio")
        often = f"every {STRETCH} iterations" if found.stretch == STRETCH else f"over {how_many(found.stretch, 'iteration')}"
        return f"; it {'grows' if found.slope.value > 0 else 'falls'} by **{share} {often}**"
    return "; it is stable" if found.stable else ""


# -- The table of iterations ------------------------------------------------------------------------------------------
# columns, and which rows stand in it where there are too many for a page.


NO_WORK: Final = "no iteration with inputs of this size was sampled before"
NO_LIMIT: Final = "its work or the limits of the device are not known"
MFU: Final = "no matrix work, or no peak for its type"

COLUMNS: Final = (
    Column("id", "Key", "", "Key of the row: the number, with a count where a restart brings it again.", "code", rank=3),
    Column("iteration", "Iteration", "", "Number that the training loop gave it.", "code"),
    Column(
        "work",
        "Work",
        "",
        "sampled: counted here; repeated: that of the last sampled iteration with inputs of the same size; unknown: there is none.",
        "text",
    ),
    Column("start_ns", "Start", "ns", "Since the start of the first iteration, without the recorder's own work.", rank=2),
    Column(
        "time_ns",
        "Step time",
        "ns",
        "The device's time where it was measured, else the host's; without the recorder's own work.",
        "bar",
        color="bar-ink",
    ),
    Column("host_ns", "Host", "ns", "On the host, from the end of the iteration before; without the recorder's own work.", rank=2),
    Column(
        "device_ns",
        "Device",
        "ns",
        "Between two events on the device's stream.",
        rank=2,
        missing="not measured: only times of the host were recorded",
    ),
    Column("sol_ns", "Limit", "ns", "Least time of the counted work on this device.", missing=NO_LIMIT),
    Column("sol_ratio", "Speed of light", "ratio", "Limit over step time.", "efficiency", missing=NO_LIMIT),
    Column("mfu", "MFU", "ratio", "Matrix work over step time times dense peak, without work that is done again.", "share", missing=MFU),
    Column("hfu", "HFU", "ratio", "The same with all work that ran.", "share", rank=3, missing=MFU),
    Column(
        "bandwidth_utilisation",
        "Bandwidth",
        "ratio",
        "Least memory traffic over step time times bandwidth.",
        "share",
        rank=3,
        missing=NO_LIMIT,
    ),
    Column(
        "flop",
        "Model FLOP",
        "FLOP",
        "Matrix work without what is done again; of fused attention, twice the forward for the backward pass.",
        rank=2,
        missing=NO_WORK,
    ),
    Column(
        "recompute_flop",
        "Done again",
        "FLOP",
        "Matrix work that is done again in the backward pass: forward calls of checkpoints, the scores of fused attention.",
        rank=3,
        missing=NO_WORK,
    ),
    Column("bytes", "Bytes", "B", "Least memory traffic of the counted work.", rank=3, missing=NO_WORK),
    Column("tokens_per_s", "Tokens/s", "", "Tokens over step time.", rank=2, missing="no token count was given to the recorder"),
    Column("samples_per_s", "Samples/s", "", "Samples of the batch over step time.", rank=2, missing="no batch size was recorded"),
    Column("overhead_ns", "Recorder", "ns", "Measured work of the recorder itself, up to the start of the next; in no other time.", rank=2),
    Column("ops", "Calls", "count", "Operator calls counted.", rank=2, missing=NO_WORK),
    Column("unknown", "Unknown", "count", "Calls counted that no cost model explains.", rank=2, missing=NO_WORK),
    Column("signature", "Inputs", "", "Sizes of the model's inputs as a short mark: equal marks, equal work.", "code", rank=2),
    Column("age", "Work from", "count", "Iterations since the work was counted: 0 for a sampled one.", rank=2, missing=NO_WORK),
    Column(
        "flags",
        "Notes",
        "",
        "first: it carries one-time costs; restart: its number does not follow; missing: numbers left out before it; eager: compiled code "
        "ran eagerly while its work was counted; in the trace: a profiler recorded it.",
        "badge",
    ),
)
FOOTER: Final = (
    "≈ work of the last sampled iteration with inputs of the same size. "
    "The first row: medians, and ratios of sums, of the iterations between."
)
LEFT_OUT: Final = " Shown are the ends, sampled ones, restarts, and the shortest and longest of each stretch; most=0 gives all."
WORKED: Final = ("flop", "sol_ns", "sol_ratio", "mfu")
"""Columns whose values rest on the work of another iteration where the row was not sampled, as far as they carry a mark."""


def chosen_rows(frame: pd.DataFrame, most: int) -> npt.NDArray[np.int64]:
    """Rows of the table where there are more than `most` (0: no limit): first ones, restarts and gaps, those in a trace, sampled ones,
    then the shortest and the longest of even stretches. In order."""
    size = len(frame)
    if most <= 0 or size <= most:
        return np.arange(size)
    odd = frame["first"] | frame["restart"] | (frame["missing"] > 0) | frame["traced"]
    time = frame["time_ns"].to_numpy()
    parts = []
    for rows, room in (
        (np.flatnonzero(odd), most // 5),
        (np.flatnonzero(frame["sampled"]), 2 * most // 5),
        (np.arange(size), 2 * most // 5),
    ):
        parts.append(rows[thinned(time[rows], room)])
    return np.unique(np.concatenate(parts))[:most]


def table(frame: pd.DataFrame, all_of: int, total: pd.Series | None, *, quiet: tuple[str, ...], about: str) -> TableSection:
    """Builds the table. frame: rows of `Iterations.frame` that are shown, of `all_of`; total: medians for the first row."""
    shown = frame.assign(
        iteration=frame["number"],
        start_ns=frame["since_ns"],
        work=np.select([frame["sampled"], frame["age"] >= 0], ["sampled", "repeated"], "unknown"),
        age=_age(frame),
        flags=_flags(frame),
        signature=frame["signature"].astype(object),
    )
    for name in ("time_ns", "host_ns", "device_ns", "sol_ns", "flop", "recompute_flop", "bytes", "ops", "unknown"):
        shown[name] = whole_numbers(frame[name])
    left = all_of - len(frame)
    section = make_table(
        "iterations",
        "Iterations",
        shown,
        [ranked(c, 3) if c.name in quiet else c for c in COLUMNS],
        subtitle=about,
        key="id",
        total=None if total is None else {k: (None if v != v else v) for k, v in total.items()},
        sort=Sort("start_ns", False),
        truncated=left,
        filters=["work"],
        apart=frame.loc[frame["first"], "id"].tolist() if not frame["first"].all() else [],
        footer=FOOTER + (LEFT_OUT if left else ""),
    )
    section.marks = _marks(shown, section)
    return section


def _age(frame: pd.DataFrame) -> pd.Series:
    return pd.Series([v if v >= 0 else None for v in frame["age"].tolist()], dtype=object, index=frame.index)


def _flags(frame: pd.DataFrame) -> list[str]:
    columns = (frame[n].tolist() for n in ("first", "restart", "missing", "eager", "traced"))
    return [
        ", ".join(
            word
            for word, on in (
                ("restart", restart),
                ("first", first and not restart),
                (f"{human(missing, 'count')} missing", missing > 0),
                ("eager", eager),
                ("in the trace", traced),
            )
            if on
        )
        for first, restart, missing, eager, traced in zip(*columns, strict=True)
    ]


def _marks(frame: pd.DataFrame, section: TableSection) -> dict[str, dict[str, Mark]]:
    guessed = (frame["age"].map(lambda v: v is not None and v > 0)).to_numpy()
    repeated = Mark("estimated", "work of the last sampled iteration with inputs of the same size")
    over = Mark("flagged", FLAGGED)
    marks: dict[str, dict[str, Mark]] = {}
    for name in WORKED:
        values = section.data[name]
        own = {str(i): repeated for i in np.flatnonzero(guessed).tolist() if values[i] is not None}
        if name == "sol_ratio":
            own |= {str(i): over for i, v in enumerate(values) if isinstance(v, float) and v > TOLERATED}
        if own:
            marks[name] = own
    return marks
