"""The overview of a profile without events: how close its kernels run to their limits, which kernels and which scopes take the time."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.analyses.overview.answer import Tiles
from tb_sol_plugin.cost.roofline import TOLERATED
from tb_sol_plugin.devices.limits import why_no_limits
from tb_sol_plugin.metrics.report.overview import WRONG, a_device
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.time.waterfall import Waterfall
from tb_sol_plugin.metrics.trees.profile_tree import ScopeWork, scope_tree, scope_work
from tb_sol_plugin.metrics.work.sums import ratios
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Column, FactsSection, Link, Mark, Sort, TableSection, make_table
from tb_sol_plugin.units import human

MOST_SCOPES: Final = 12
WORDED: Final = {
    "name": ("Kernel", "Name of the kernel."),
    "calls": ("Launches", "Launches in the whole profile."),
    "phase": ("Scope", "Path of the scope."),
    "device_ns": ("Device", "Plain sum of the device time of kernels and copies inside."),
    "flop": ("FLOP", "Matrix operations that launch hooks stated for the kernels inside."),
    "sol_ns": ("Limit", "Least time of the stated work on this device."),
    "measured_ns": ("Time", "Device time of all its launches."),
}
"""Labels and definitions that differ from those of a trace."""
NOT_STATED: Final = "no launch hook stated any work"


def sentence(capture: Capture, fall: Waterfall) -> str:
    """How long the kernels run, and how long the same work takes at the limits of the device."""
    if not fall.total_ns:
        return "This profile holds no device time."
    spec, time = fall.work.spec, human(fall.total_ns, "ns")
    known = sum(fall.kind_ns.values())
    if spec is None:
        return f"Kernels take **{time}** in all. No limits: {why_no_limits(capture)}."
    if not known or not fall.has_limits:
        return f"Kernels take **{time}** in all; {NOT_STATED}, so there is no limit to hold it against."
    share = known / fall.total_ns
    part = "" if share > 0.95 else f"; {human(share, 'ratio')} of it is work that was stated"
    least = human(round(fall.sol_ns), "ns")
    return f"Kernels take **{time}** in all{part}; that work takes **{least}** at the limits of {a_device(spec)}."


def tiles(capture: Capture, fall: Waterfall) -> FactsSection:
    """Efficiency, time, rates and copies of the whole profile."""
    ops, out = fall.work.ops, Tiles()
    known = sum(fall.kind_ns.values())
    efficiency = fall.sol_ns / known if fall.has_limits and known else None
    share = known / fall.total_ns if fall.total_ns else None
    mark = Mark("flagged", WRONG) if efficiency is not None and efficiency > TOLERATED else None
    if mark is None and efficiency is not None and share is not None and share < 0.95:
        mark = Mark("partial", f"covers {human(share, 'ratio')} of the time of kernels")
    if efficiency is None:
        mark = Mark("unknown", NOT_STATED if fall.work.spec is not None else why_no_limits(capture))
    out.add("efficiency_while_busy", efficiency, "Efficiency", note=_over(fall.sol_ns, known) if efficiency is not None else "", mark=mark)
    out.add("kernel_sum_ns", fall.total_ns, "Kernel time", note=f"{human(int(ops['launches'].sum()), 'count')} launches")
    flop, data = (float(np.nansum(ops[c].to_numpy(dtype=np.float64))) for c in ("flop", "bytes"))
    out.add("matrix_flop", round(flop) if flop else None, "Stated work", note=f"{human(data, 'B')} moved" if data else "")
    rate = flop / known * 1e9 if flop and known else None
    out.add("matrix_flop_per_s", rate, "Achieved" if rate is not None else "")
    copies = capture.tables[S.COPIES.name]
    if len(copies):
        time = float(np.nansum(copies["time_ns"].to_numpy(dtype=np.float64)))
        size = int(copies["bytes"].to_numpy().sum())
        out.add("copies_sum_ns", round(time), "Copies", note=human(size, "B") if size else "")
    return out.section("Kernels of the profile", "tiles", {"matrix_flop": Link("roofline")})


def _over(least: float, time: int) -> str:
    return f"{human(round(least), 'ns')} / {human(time, 'ns')}"


def scope_table(capture: Capture, part: Scope, limits: str, columns: tuple[Column, ...]) -> TableSection:
    """Scopes with most device time, each with what is inside."""
    done: ScopeWork = scope_work(capture, part, limits)
    tree = scope_tree(capture)
    sums = ratios(done.inclusive)
    whole = float(np.nansum(done.calls.values["flop"]))
    flop = sums["flop"].to_numpy(dtype=np.float64)
    rows = pd.DataFrame(
        {
            "phase": tree.path,
            "host_ns": pd.Series([None] * len(tree.path), dtype=object),
            "device_ns": _whole(sums["device_sum_ns"].to_numpy(dtype=np.float64)),
            "flop": _whole(flop),
            "flop_share": flop / whole if whole else np.nan,
            "sol_ns": _whole(sums["sol_ns"].to_numpy(dtype=np.float64)),
            "efficiency": sums["efficiency"].to_numpy(),
        }
    ).sort_values("device_ns", ascending=False, kind="stable", ignore_index=True)
    every = len(rows)
    return make_table(
        "phases",
        "Scopes",
        rows.head(MOST_SCOPES),
        worded(tuple(c for c in columns if c.name != "host_ns")),
        subtitle="whole profile" + (f", first {MOST_SCOPES} of {human(every, 'count')}" if every > MOST_SCOPES else ""),
        key="phase",
        sort=Sort("device_ns"),
        links=[Link("phases", label="Phases")],
        empty="No scope was named: proton.scope(name) names parts of the program.",
        footer="A scope contains the scopes inside it. Device is the plain sum of its kernels and copies.",
    )


def worded(columns: tuple[Column, ...]) -> list[Column]:
    """Columns in the words of a profile."""
    return [msgspec.structs.replace(c, label=said[0], doc=said[1]) if (said := WORDED.get(c.name)) else c for c in columns]


def _whole(values: np.ndarray) -> pd.Series:
    return pd.Series([round(v) if v == v else None for v in values.tolist()], dtype=object)
