"""What a page says first of a profile without events."""

from __future__ import annotations

import numpy as np

from tb_sol_plugin.metrics import source
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Link, Notice
from tb_sol_plugin.units import human


def profile_notices(capture: Capture) -> list[Notice]:
    """That it holds sums, and how its device was found. Nothing for other recordings."""
    if not source.is_profile(capture):
        return []
    table, copies = capture.tables[S.LEDGER.name], capture.tables[S.COPIES.name]
    launches = int(table["count"].to_numpy().clip(min=0).sum())
    moved = int(copies["count"].to_numpy().sum())
    held = f"{human(launches, 'count')} launches" + (f" and {human(moved, 'count')} copies" if moved else "")
    text = (
        f"Proton profile: {held} summed by kernel and scope, no single events. Times are plain sums on the device; "
        "what ran at the same time counts twice."
    )
    out = [Notice(text, "info", Link("health"))]
    said = [w for w in capture.facts.warnings if w]
    out += [Notice(f"{w[0].upper()}{w[1:]}.", "info") for w in said[:2]]
    if len(table) and not np.isfinite(table[["flop", "bytes"]].to_numpy(dtype=np.float64)).any():
        lack = "No launch hook stated any work: there is time, and no limit to hold it against."
        out.append(Notice(lack, "info"))
    return out
