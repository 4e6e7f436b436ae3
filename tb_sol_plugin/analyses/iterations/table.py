"""The table of iterations: columns, and which rows stand in it where there are too many for a page."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cost.roofline import TOLERATED
from tb_sol_plugin.metrics.time.iterations import thinned
from tb_sol_plugin.metrics.work.columns import ranked
from tb_sol_plugin.metrics.work.sums import FLAGGED
from tb_sol_plugin.model.report import Column, Mark, Sort, TableSection, make_table
from tb_sol_plugin.units import human

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
    Column("mfu", "MFU", "ratio", "Matrix work over step time times dense peak, without recomputed work.", "share", missing=MFU),
    Column("hfu", "HFU", "ratio", "The same with recomputed work.", "share", rank=3, missing=MFU),
    Column(
        "bandwidth_utilisation",
        "Bandwidth",
        "ratio",
        "Least memory traffic over step time times bandwidth.",
        "share",
        rank=3,
        missing=NO_LIMIT,
    ),
    Column("flop", "Model FLOP", "FLOP", "Matrix work without recomputed work.", rank=2, missing=NO_WORK),
    Column(
        "recompute_flop", "Recomputed", "FLOP", "Matrix work of forward calls that ran again in the backward pass.", rank=3, missing=NO_WORK
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
    """The section. frame: rows of `Iterations.frame` that are shown, of `all_of`; total: medians for the first row."""
    shown = frame.assign(
        iteration=frame["number"],
        start_ns=frame["since_ns"],
        work=np.select([frame["sampled"], frame["age"] >= 0], ["sampled", "repeated"], "unknown"),
        age=_age(frame),
        flags=_flags(frame),
        signature=frame["signature"].astype(object),
    )
    for name in ("time_ns", "host_ns", "device_ns", "sol_ns", "flop", "recompute_flop", "bytes", "ops", "unknown"):
        shown[name] = pd.Series([round(v) if v == v else None for v in frame[name].tolist()], dtype=object, index=frame.index)
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
