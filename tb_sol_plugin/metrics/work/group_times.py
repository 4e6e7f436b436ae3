"""Rows of the roofline that take the time of a whole phase, step or module, where single calls have none (a SOL capture of a GPU)."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cost.roofline import TOLERATED, ratio
from tb_sol_plugin.metrics.label_times import module_device_ns, module_names, phase_self_ns
from tb_sol_plugin.metrics.names import phase_name
from tb_sol_plugin.metrics.phases import phase_tree
from tb_sol_plugin.metrics.scope import Scope
from tb_sol_plugin.metrics.source import on_cpu, step_time
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays

LAUNCH_BOUND_NS: Final = 20_000
"""Events on a stream say little about ranges with less than 20 µs per call: what they measure is how fast the host launches."""
LAUNCH_BOUND: Final = "launch-bound timing"


def group_times(capture: Capture, part: Scope, by: str, direction: str) -> dict[str, float]:
    """Time in ns by the name of a row, on a device or on the CPU; names of which some part was not timed are left out.

    Phases less the phases inside; modules only forward and on a device, as only that was timed.
    """
    if by == "phase":
        tree = phase_tree(capture)
        rows = np.flatnonzero(tree.node >= 0)
        names = arrays.pick(capture.host["name"], rows)
        word = {int(node): phase_name(str(name)) for node, name in zip(tree.node[rows].tolist(), names.tolist(), strict=True)}
        return _known(word, phase_self_ns(capture, part))
    if by == "step":
        table = capture.tables["iterations"]
        own = dict(zip(table["number"].tolist(), table["device_ns"].tolist(), strict=True))
        out = {}
        for row, step in zip(part.rows, part.steps, strict=True):
            usual = step_time(capture, (row,))
            time = np.nan if usual is None else usual.median_ns if on_cpu(capture) else usual.device_ns
            out[f"step {step}"] = float(time if time == time else own.get(step, np.nan))
        return {name: ns for name, ns in out.items() if ns == ns}
    if by == "module" and direction == "forward":
        return _known(dict(enumerate(module_names(capture))), module_device_ns(capture, part))
    return {}


def _known(word: dict[int, str], time: npt.NDArray[np.float64]) -> dict[str, float]:
    out: dict[str, float] = {}
    for node, name in word.items():
        out[name] = out.get(name, 0.0) + float(time[node])
    return {name: ns for name, ns in out.items() if ns == ns and ns > 0}


def with_group_times(frame: pd.DataFrame, times: dict[str, float]) -> pd.DataFrame:
    """`frame` (rows of `work.rows.rows` without times) with those of `times`, and what follows from them; longest first."""
    name = frame["name"].tolist()
    time = np.array([times.get(str(n), np.nan) for n in name], np.float64)
    sol, data = frame["sol_ns"].to_numpy(dtype=np.float64), frame["bytes"].to_numpy(dtype=np.float64)
    flop, vector = frame["flop"].to_numpy(dtype=np.float64), frame["flop_vector"].to_numpy(dtype=np.float64)
    work = np.where(flop > 0, flop, np.where(vector > 0, vector, np.nan))
    efficiency = ratio(sol, time)
    short = time < LAUNCH_BOUND_NS * frame["calls"].to_numpy(dtype=np.float64)
    flags = [
        ", ".join(filter(None, (str(f), LAUNCH_BOUND if s else ""))) for f, s in zip(frame["flags"].tolist(), short.tolist(), strict=True)
    ]
    out = frame.assign(
        measured_ns=time,
        known_ns=time,
        wasted_ns=time - sol,
        efficiency=efficiency,
        flagged=np.nan_to_num(efficiency) > TOLERATED,
        flags=flags,
        share=ratio(time, np.full(len(time), np.nansum(time))),
        achieved_flop_per_s=ratio(work, time / 1e9),
        achieved_bytes_per_s=ratio(data, time / 1e9),
    )
    return out.sort_values(["measured_ns", "sol_ns"], ascending=False, kind="stable", ignore_index=True)
