"""What the overview says of a SOL capture: its work as tiles where no limits are known, and its phases."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.analyses.overview.answer import Tiles, step_words
from tb_sol_plugin.cost.roofline import ratio
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.time.waterfall import Waterfall
from tb_sol_plugin.metrics.trees.label_times import phase_device_ns, phase_time_ns, usual_phase_ns
from tb_sol_plugin.metrics.trees.phase_work import phase_work
from tb_sol_plugin.metrics.trees.phases import STEP, phase_times
from tb_sol_plugin.metrics.work.sums import ratios
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Column, FactsSection, Link, Sort, TableSection, make_table
from tb_sol_plugin.units import human

MOST_PHASES: Final = 12
PHASE_COLUMNS: Final = (
    Column("phase", "Phase", "", "Path of the phase below the step.", "code"),
    Column("host_ns", "Host", "ns", "Sum of its ranges, per step, in iterations that were not sampled where there are any.", "bar",
           color="host"),
    Column("device_ns", "Device", "ns", "Time between the events around its ranges, likewise.", "bar", color="compute",
           missing="not timed"),
    Column("flop", "FLOP", "FLOP", "Matrix operations counted in it, per step.", missing="no work with a cost model"),
    Column("flop_share", "Of all", "ratio", "Its matrix operations over those of all phases.", "share", rank=2),
    Column("sol_ns", "Limit", "ns", "Least time of its work on this device, per step.", missing="no cost model, or unknown device limits"),
    Column("efficiency", "Efficiency", "ratio", "Limit over the time of its operators, of the device where these have none.", "efficiency",
           missing="no limit, or no time"),
)  # fmt: skip


def counted_tiles(capture: Capture, part: Scope, fall: Waterfall) -> FactsSection:
    """The answer of a SOL capture without limits."""
    ops = fall.work.ops[fall.inside]
    flop, vector = (float(np.nansum(ops[c].to_numpy(dtype=np.float64))) / fall.steps for c in ("flop", "flop_vector"))
    step = fall.total_ns / fall.steps
    tiles = Tiles()
    tiles.add("step_ns", round(step), "Step" if fall.stepped else "Recording", more=step_words(capture, part, fall))
    tiles.add("matrix_flop", round(flop), "Matrix work", note="per step" if fall.stepped else "")
    tiles.add("matrix_flop_per_s", flop / step * 1e9 if step else None, "Achieved")
    if fall.work.timed:
        tiles.add("operator_share", fall.busy_ns / fall.total_ns if fall.total_ns else None, "In operators")
    tiles.add("operator_calls", len(fall.work.ops), "Operator calls")
    tiles.add("vector_flop", round(vector))
    return tiles.section("Counted work", "tiles", {"matrix_flop": Link("roofline")})


def phase_table(capture: Capture, part: Scope, limits: str) -> TableSection:
    """Phases of a SOL capture per step: those with ranges of their own, the longest first."""
    frame = phase_times(capture, part)
    frame = frame[(frame["count"] > 0) & (frame["path"] != STEP)].reset_index(drop=True)
    work = phase_work(capture, part, limits)
    node = frame["node"].to_numpy()
    sums = ratios(work.inclusive.iloc[node].reset_index(drop=True))
    each = part.step_count
    host = frame["host_ns"].to_numpy(dtype=np.float64) / each
    device = phase_device_ns(capture, part)[node] / each
    usual = usual_phase_ns(capture, part)
    if usual is not None:
        host, device = usual.host_ns[node], np.where(np.isfinite(usual.device_ns[node]), usual.device_ns[node], device)
    sol = sums["sol_ns"].to_numpy(dtype=np.float64)
    flop = sums["flop"].to_numpy(dtype=np.float64)
    whole = float(np.nansum(work.calls.values["flop"]))
    out = pd.DataFrame(
        {
            "phase": [str(p).removeprefix(f"{STEP}/") for p in frame["path"]],
            "host_ns": _whole(host),
            "device_ns": _whole(device),
            "flop": _whole(flop / each),
            "flop_share": flop / whole if whole else np.nan,
            "sol_ns": _whole(sol / each),
            "efficiency": sums["efficiency"].to_numpy() if work.calls.done.timed else ratio(sol, phase_time_ns(capture, part)[node]),
        }
    ).sort_values("host_ns", ascending=False, kind="stable", ignore_index=True)
    every = len(out)
    quiet = {"device_ns"} if not out["device_ns"].notna().any() else set()
    quiet |= {"efficiency"} if not out["efficiency"].notna().any() else set()
    quiet |= {"sol_ns"} if not out["sol_ns"].notna().any() else set()
    return make_table(
        "phases",
        "Phases",
        out.head(MOST_PHASES),
        [msgspec.structs.replace(c, rank=3) if c.name in quiet else c for c in PHASE_COLUMNS],
        subtitle="per step" + (f", first {MOST_PHASES} of {human(every, 'count')}" if every > MOST_PHASES else ""),
        key="phase",
        sort=Sort("host_ns"),
        links=[Link("phases", label="Phases")],
        empty="No phase was named.",
        footer="A phase contains the phases inside it.",
    )


def _whole(values: np.ndarray) -> pd.Series:
    return pd.Series([round(v) if v == v else None for v in values.tolist()], dtype=object)
