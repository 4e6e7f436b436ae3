"""The program as one point: its totals, as the first row of the table and as marks of the chart."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.analyses.roofline.figure import Program
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Scalar, number_of
from tb_sol_plugin.tables.arrays import Floats
from tb_sol_plugin.units import human

MOST_STEPS: Final = 200


def total_row(frame: pd.DataFrame, facts: dict[str, Scalar]) -> dict[str, Scalar]:
    """Values of the total row: totals over totals, rates over the time that a model covers.

    FLOP of a rate are matrix FLOP, or vector FLOP where there are no others.
    """
    known = float(frame["known_ns"].sum())
    flop, data = number_of(facts["total_flop"]) or number_of(facts["total_vector_flop"]), number_of(facts["total_bytes"])
    return {
        "name": f"All {human(len(frame), 'count')} row{'s' if len(frame) != 1 else ''}",
        "calls": _sum(frame, "calls"),
        "sol_ns": facts["sol_ns"],
        "wasted_ns": _sum(frame, "wasted_ns"),
        "efficiency": facts["efficiency"],
        "compute_ns": _sum(frame, "compute_ns"),
        "memory_ns": _sum(frame, "memory_ns"),
        "flop": facts["total_flop"],
        "vector_flop": facts["total_vector_flop"],
        "bytes": facts["total_bytes"],
        "modelled_share": facts["modelled_share"],
        "intensity_flop_per_byte": flop / data if flop and data else None,
        "achieved_flop_per_s": flop / known * 1e9 if flop and known else None,
        "achieved_bytes_per_s": data / known * 1e9 if data and known else None,
    }


def program_points(capture: Capture, ops: pd.DataFrame) -> list[Program]:
    """The whole selection, first; where it has several steps also their average and each of them."""
    covered = ops["modelled"].to_numpy()
    out = [_point("whole program", "whole", ops, np.zeros(len(ops), np.int64), covered, 1)[0]]
    step = ops["step"].to_numpy().astype(np.int64)
    numbers = capture.steps["number"].to_numpy()
    complete = capture.steps["complete"].to_numpy() & (numbers >= 0)
    rows = np.unique(step[(step >= 0) & covered])
    rows = rows[complete[rows]] if len(rows) else rows
    if len(rows) < 2:
        return out
    inside = covered & np.isin(step, rows)
    count = human(len(rows), "count")
    out += _point(f"average of {count} complete steps", "average", ops, np.zeros(len(ops), np.int64), inside, 1, parts=len(rows))
    place = np.searchsorted(rows, np.where(inside, step, rows[0]))
    each = _point("", "step", ops, place, inside, len(rows))
    return out + [p._replace(label=f"step {numbers[row]}") for p, row in zip(each, rows.tolist(), strict=True)][:MOST_STEPS]


def _point(label: str, weight: str, ops: pd.DataFrame, code: npt.NDArray[np.integer], mask: npt.NDArray[np.bool_], size: int,
           *, parts: int = 1) -> list[Program]:  # fmt: skip
    def total(column: str) -> Floats:
        values = np.nan_to_num(ops[column].to_numpy(dtype=np.float64))
        return np.bincount(code[mask], values[mask], minlength=size).astype(np.float64) / parts

    flop, data, time, least = (total(c) for c in ("flop", "bytes", "measured_ns", "sol_ns"))
    vector = total("flop_vector")
    work = flop if flop.sum() > 0 else vector
    with np.errstate(divide="ignore", invalid="ignore"):
        intensity, rate = work / data, work / time * 1e9
    values = zip(time.tolist(), least.tolist(), intensity.tolist(), rate.tolist(), strict=True)
    return [Program(label, weight, *four) for four in values]


def _sum(frame: pd.DataFrame, column: str) -> int | None:
    values = frame[column].to_numpy(dtype=np.float64)
    good = np.isfinite(values)
    return round(float(values[good].sum())) if good.any() else None
