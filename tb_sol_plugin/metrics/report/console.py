"""Makes the speed-of-light analysis a console report: layers, operators and phases of one step.

Every operation with a limit counts once in each view, so the rows of a view add up to the total: by the class of the innermost module
around it, by operator, by innermost phase.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.time.waterfall import windows_of
from tb_sol_plugin.metrics.trees.phases import STEP, phase_tree
from tb_sol_plugin.metrics.work.sums import NO_PHASE, calls_of, nodes_of, ratios, sums
from tb_sol_plugin.model.capture import Capture

UNATTRIBUTED: Final = "(unattributed)"


@dataclass(frozen=True)
class ConsoleReport:
    """The tables of the console report.

    device: key of the limits. ops: operations with a limit. sol_ns: their limit. Both per step where steps were recorded.

    views: title and rows, each with name, ops, sol_ns, share (of sol_ns), measured_ns, efficiency, flags; largest limit first,
    what belongs to no group last.
    """

    device: str
    ops: float
    sol_ns: float
    measured_ns: float
    steps: int
    stepped: bool
    views: tuple[tuple[str, pd.DataFrame], ...]


def console_report(capture: Capture, part: Scope, limits: str = "") -> ConsoleReport | None:
    """Returns the report over the complete steps of a selection; None where nothing has a limit."""
    calls = calls_of(capture, part, limits)
    spec = calls.done.spec
    _, rows = windows_of(capture, part)
    use = np.isfinite(calls.values["sol_ns"])
    if rows:
        use &= calls.ops["step"].isin(rows).to_numpy()
    if spec is None or not use.any():
        return None
    steps = max(len(rows), 1)
    values = {name: column[use] for name, column in calls.values.items()}
    tree = phase_tree(capture)
    paths = np.array([*(NO_PHASE if p == STEP else p.removeprefix(f"{STEP}/") for p in tree.path), NO_PHASE], object)
    node = nodes_of(capture, calls)[use]
    layer = calls.ops["layer"].astype(str).to_numpy(dtype=object)[use]
    layer = np.where(layer == "", UNATTRIBUTED, layer)
    names = calls.ops["name"].astype(str).to_numpy(dtype=object)[use]
    views = (("By Layer Type", layer, UNATTRIBUTED), ("By Operator", names, ""), ("By Phase", paths[node], NO_PHASE))
    tables = [(title, _rows(keys, values, last, steps)) for title, keys, last in views]
    return ConsoleReport(
        spec.key if spec.key != "unknown" else spec.name,
        float(use.sum()) / steps,
        float(values["sol_ns"].sum()) / steps,
        float(values["measured_ns"].sum()) / steps,
        steps,
        bool(rows),
        tuple((title, frame) for title, frame in tables if set(frame["name"]) - {UNATTRIBUTED, NO_PHASE}),
    )


def _rows(keys: npt.NDArray[np.object_], values: dict[str, npt.NDArray[np.float64]], last: str, steps: int) -> pd.DataFrame:
    codes, names = pd.factorize(keys)
    frame = ratios(sums(values, codes, len(names)))
    whole = float(frame["sol_ns"].sum())
    frame = frame.assign(
        name=np.asarray(names, object),
        ops=np.bincount(codes, minlength=len(names)) / steps,
        share=frame["sol_ns"] / whole if whole else np.nan,
        sol_ns=frame["sol_ns"] / steps,
        measured_ns=frame["measured_ns"] / steps,
    )
    frame["_last"] = frame["name"] == last
    frame = frame.sort_values(["_last", "sol_ns"], ascending=[True, False], kind="stable", ignore_index=True)
    return frame[["name", "ops", "sol_ns", "share", "measured_ns", "efficiency", "flags"]]
