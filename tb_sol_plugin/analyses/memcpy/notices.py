"""What a reader should know before the numbers of the copies: sizes and limits that are missing, and limits that cannot be right."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.memcpy import link
from tb_sol_plugin.metrics.memcpy.patterns import rules_off
from tb_sol_plugin.metrics.memcpy.words import NAMES
from tb_sol_plugin.metrics.scope import Scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.devices.limits import why_no_limits
from tb_sol_plugin.model.report import Link, Notice
from tb_sol_plugin.units import human

OVER = 1.05
"""A share of the limit above this says that the limit is not the one of this link."""


def notices(
    capture: Capture,
    found: pd.DataFrame,
    directions: pd.DataFrame,
    limits: dict[str, tuple[float, str]],
    where: Scope,
    step: str,
    *,
    known: bool,
) -> list[Notice]:
    """The notices of a selection.

    found: its copies; directions: `groups.table` by direction with `link_share`; known: whether the device has limits.
    """
    out: list[Notice] = []
    without = int(directions["without_bytes"].sum())
    at = {"step": step} if step else {}
    if without:
        text = (
            f"{human(without, 'count')} of {human(len(found), 'count')} copies carry no size: their time counts, their bytes are unknown."
        )
        out.append(Notice(text, "info", Link("memcpy_copies", {"size": "unknown"} | at, "These copies")))
    if directions["oversize"].any():
        many = int(directions["oversize"].sum())
        text = f"{human(many, 'count')} copies are larger than the memory of their device: their sizes cannot be right."
        out.append(Notice(text, "warn", Link("memcpy_copies", {"first": "bytes"} | at, "The largest copies")))
    if not known:
        out.append(Notice(f"No limits to compare with: {why_no_limits(capture)}.", "info"))
    out += [_wrong_link(found, d, limits, at) for d in directions.loc[directions["link_share"] > OVER, "direction"].tolist()]
    off = rules_off(capture, where)
    if off:
        out.append(Notice(off, "info"))
    return out


def _wrong_link(found: pd.DataFrame, direction: str, limits: dict[str, tuple[float, str]], at: dict[str, str]) -> Notice:
    """The evidence against the assumed limit: how many large copies are faster, and how fast the fastest is."""
    peak, what = limits[direction]
    mine = found[(found["direction"] == direction) & (found["bytes"] >= link.LARGE) & (found["duration_ns"] > 0)]
    rate = link.rate(mine["bytes"].to_numpy(), mine["duration_ns"].to_numpy())
    many, fastest = int((rate > peak).sum()), float(np.nanmax(rate))
    text = (
        f"Link assumption wrong, {NAMES[direction].lower()}: {human(many, 'count')} of {human(len(mine), 'count')} copies from 1 MiB "
        f"on are faster than {what}, {human(peak, 'B/s')}; the fastest reaches {human(fastest, 'B/s')}. Choose other device limits."
    )
    return Notice(text, "warn", Link("memcpy_copies", {"direction": direction, "min_bytes": str(link.LARGE)} | at, "These copies"))
