"""Totals of the roofline's selection and the limits in use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.analyses.roofline.columns import FACTS
from tb_sol_plugin.analyses.roofline.selection import Selection
from tb_sol_plugin.devices.limits import devices_in_use
from tb_sol_plugin.devices.spec import MATRIX_COLUMNS, DeviceSpec
from tb_sol_plugin.metrics.report.notes import check_of
from tb_sol_plugin.metrics.time import scope
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.time.waterfall import windows_of
from tb_sol_plugin.metrics.work.sums import utilisation
from tb_sol_plugin.metrics.work.work import Work
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import FactsSection, Mark, Scalar
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.units import human

PEAK: Final = "peak_flop_per_s_"
LABELS: Final = {
    "device": "Device limits",
    "limits_from": "Found by",
    "peak_flop_per_s": "Peak, main type",
    "peak_bytes_per_s": "Memory bandwidth",
    "achievable_flop_per_s": "Achievable, main type",
    "mfu": "MFU",
    "hfu": "HFU",
    "bandwidth_utilisation": "Bandwidth utilisation",
    "steps_ns": "Time of the steps",
    "total_flop": "Matrix work",
    "total_vector_flop": "Vector work",
    "total_bytes": "Memory traffic",
    "device_ns": "Device time",
    "measured_ns": "Time with a limit",
    "sol_ns": "Limit",
    "efficiency": "Efficiency",
    "modelled_share": "Modelled",
    "unmodelled_ns": "Not modelled",
    "no_operator_ns": "Launched by no operator",
    "apart_ns": "Communication, link copies",
    "explained_flop": "Explained by the trace, per step",
    "counted_flop": "Counted by the SOL capture, per step",
}
RATIOS: Final = ("mfu", "hfu", "bandwidth_utilisation", "efficiency", "modelled_share")
UNITS: Final = {
    "total_flop": "FLOP", "total_vector_flop": "FLOP", "total_bytes": "B", "peak_bytes_per_s": "B/s", "explained_flop": "FLOP",
    "counted_flop": "FLOP",
}  # fmt: skip
OF_A_TIME: Final = (
    "device_ns", "measured_ns", "sol_ns", "efficiency", "modelled_share", "unmodelled_ns", "apart_ns", "no_operator_ns",
)  # fmt: skip
"""Facts that are left out where they are unknown: without times of calls, without a device or its limits."""
UNVERIFIED: Final = Mark("unverified", "this figure of the device table is not confirmed")


def facts_of(capture: Capture, done: Work, chosen: Selection, part: Scope) -> dict[str, Scalar]:
    """Every fact by name. Sums before ratios; unknown is None."""
    spec, ops = done.spec, chosen.ops
    sol = ops["sol_ns"].to_numpy(dtype=np.float64)
    time = ops["measured_ns"].to_numpy(dtype=np.float64)
    timed = np.isfinite(sol) & (time > 0)
    measured, least = round(float(time[timed].sum())), float(sol[timed].sum())
    limited = timed | (np.isfinite(sol) & np.isnan(time))
    facts: dict[str, Scalar] = {
        "device": spec.name if spec else _recorded_name(capture, done),
        "limits_from": spec.method if spec else "none",
    }
    if spec is not None:
        main = main_dtype(ops)
        facts["peak_flop_per_s"] = spec.matrix_peak(main) if main else None
        facts |= {f"{PEAK}{dtype}": spec.matrix_peak(dtype) for dtype in MATRIX_COLUMNS if spec.matrix_peak(dtype) is not None}
        facts[f"{PEAK}vector"] = spec.vector_peak("")
        facts["peak_bytes_per_s"] = spec.memory_bandwidth
        if main and spec.achievable(main) is not None:
            facts["achievable_flop_per_s"] = spec.achievable(main)
        facts |= _use(capture, done, part, spec)
    facts |= {
        "total_flop": _total(ops, "flop"),
        "total_vector_flop": _total(ops, "flop_vector"),
        "total_bytes": _total(ops, "bytes"),
        "device_ns": None if done.by_host_time or not chosen.timed else chosen.whole_ns,
        "measured_ns": measured if timed.any() else None,
        "sol_ns": round(float(sol[limited].sum())) if limited.any() else None,
        "efficiency": least / measured if measured else None,
        "modelled_share": chosen.modelled_ns / chosen.whole_ns if chosen.whole_ns else None,
        "unmodelled_ns": chosen.whole_ns - chosen.modelled_ns if chosen.timed else None,
        "apart_ns": chosen.apart_ns if chosen.timed else None,
        "no_operator_ns": sum(chosen.outside.values()) if chosen.timed else None,
    }
    check = check_of(capture, done, part)
    if check is not None:
        facts |= {"explained_flop": round(check.explained / check.steps), "counted_flop": round(check.counted / check.steps)}
    return facts


def check_mark(capture: Capture, done: Work, part: Scope) -> Mark | None:
    """Where a trace that should explain all of its work differs from what the SOL capture beside it counted."""
    check = check_of(capture, done, part)
    if check is None or check.agree or not check.counted:
        return None
    part_of, word = human(abs(check.explained / check.counted - 1), "ratio"), "more" if check.explained > check.counted else "less"
    return Mark("flagged", f"{part_of} {word} than the SOL capture counted: one of them misses work, or counts some twice")


def _use(capture: Capture, done: Work, part: Scope, spec: DeviceSpec) -> dict[str, Scalar]:
    """MFU, HFU and bandwidth utilisation over the complete steps of the selection; nothing where no step was recorded.

    The steps of a SOL capture last as long as those of the same work in which nothing was counted, where there are any.
    """
    windows, rows = windows_of(capture, part)
    if not rows:
        return {}
    time = iv.length(windows)
    usual = scope.step_time(capture, rows) if done.from_ledger else None
    if usual is not None:
        time = round(usual.length_ns * len(rows))
    ops = done.ops[np.isin(done.ops["step"].to_numpy(), rows)]
    devices = max(len(np.unique(capture.device["device"].to_numpy())), 1)
    use = utilisation(ops, spec, time, devices=devices)
    return {"mfu": use.mfu, "hfu": use.hfu, "bandwidth_utilisation": use.bandwidth_utilisation, "steps_ns": time}


def _recorded_name(capture: Capture, done: Work) -> str:
    """What the recording calls a device without known limits."""
    names = sorted({props.name for props in devices_in_use(capture) if props.name})
    return "CPU" if done.by_host_time else ", ".join(names) or "unknown"


def _total(ops: pd.DataFrame, column: str) -> int | None:
    values = ops[column].to_numpy(dtype=np.float64)
    good = np.isfinite(values)
    return round(float(values[good].sum())) if good.any() else None


def dtypes_with(ops: pd.DataFrame, column: str) -> dict[str, float]:
    """Types that have work in a column of FLOP, with their sums, most first."""
    flop = np.nan_to_num(ops[column].to_numpy(dtype=np.float64))
    codes = ops["dtype"].cat.codes.to_numpy()
    words = [str(d) for d in ops["dtype"].cat.categories]
    sums = np.bincount(np.where(codes < 0, len(words), codes), flop, minlength=len(words) + 1)
    found = {word: float(total) for word, total in zip([*words, ""], sums.tolist(), strict=True) if total > 0}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def main_dtype(ops: pd.DataFrame) -> str:
    """The type that holds most of the matrix work, "" without any."""
    return next(iter(dtypes_with(ops, "flop")), "")


def facts_section(facts: dict[str, Scalar], spec: DeviceSpec | None, types: Sequence[str], check: Mark | None = None) -> FactsSection:
    """The facts with units, labels, and a mark on every figure of the device that is not confirmed. types: with matrix work, most first."""
    labels = LABELS | {name: f"Peak, {name.removeprefix(PEAK)}" for name in facts if name.startswith(PEAK)}
    marks: dict[str, Mark] = {} if check is None else {"explained_flop": check}
    main = types[0] if types else ""
    if spec is not None:
        for name in facts:
            dtype = name.removeprefix(PEAK)
            vector = dtype == "vector"
            if name.startswith(PEAK) and spec.is_unverified("fp32" if vector else dtype, vector=vector):
                marks[name] = UNVERIFIED
        if main and spec.is_unverified(main):
            marks["peak_flop_per_s"] = UNVERIFIED
        if "mem_bw_gb_per_s" in spec.unverified:
            marks["peak_bytes_per_s"] = UNVERIFIED
        if "achievable_bf16_tflops" in spec.unverified and "achievable_flop_per_s" in facts:
            marks["achievable_flop_per_s"] = UNVERIFIED
    used = {"vector", *types}  # the peak of the main type stands under the name of the type
    hidden = [name for name in facts if name.startswith(PEAK) and name.removeprefix(PEAK) not in used]
    hidden += [name for name in OF_A_TIME if facts.get(name) is None]
    if f"{PEAK}{main}" in facts or facts.get("peak_flop_per_s") is None:
        hidden.append("peak_flop_per_s")
    if facts.get("hfu") == facts.get("mfu") and "hfu" in facts:
        hidden.append("hfu")
    return FactsSection(
        id="facts",
        title="Limits and totals",
        values=facts,
        units={name: _unit(name) for name in facts},
        labels={name: labels[name] for name in facts},
        docs={name: FACTS[name] for name in facts},
        marks=marks,
        hidden=hidden,
    )


def _unit(name: str) -> str:
    if name in RATIOS:
        return "ratio"
    if name.startswith("peak_flop_per_s") or name == "achievable_flop_per_s":
        return "FLOP/s"
    return UNITS.get(name, "ns" if name.endswith("_ns") else "")
