"""What a reader should know before the numbers of the copies: sizes and limits that are missing, and limits that cannot be right."""

from __future__ import annotations

from typing import Final, Literal

import pandas as pd

from tb_sol_plugin.devices.limits import why_no_limits
from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.metrics.copies import bandwidth
from tb_sol_plugin.metrics.copies.records import NAMES
from tb_sol_plugin.metrics.rules.copies import rules_off
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Link, Notice
from tb_sol_plugin.units import human

VERDICTS: Final[dict[str, Literal["info", "warn"]]] = {"wrong": "warn", "cache": "info", "slow": "info", "pageable": "info"}
"""How loud each verdict on a limit is."""


def notices(
    capture: Capture, found: pd.DataFrame, directions: pd.DataFrame, limits: bandwidth.Limits, where: Scope, step: str,
    spec: DeviceSpec | None,
) -> list[Notice]:
    """The notices of a selection.

    found: its copies; directions: `groups.table` by direction. spec: the device, None without known limits.
    """
    out: list[Notice] = []
    without = int(directions["without_bytes"].sum())
    at = {"step": step} if step else {}
    if without:
        verb = "carries" if without == 1 else "carry"
        text = f"{human(without, 'count')} of {human(len(found), 'count')} copies {verb} no size: the time counts, the bytes are unknown."
        out.append(Notice(text, "info", Link("memcpy_copies", {"size": "unknown"} | at, "These copies")))
    if directions["oversize"].any():
        many = int(directions["oversize"].sum())
        text = f"{human(many, 'count')} copies are larger than the memory of their device: their sizes cannot be right."
        out.append(Notice(text, "warn", Link("memcpy_copies", {"first": "bytes"} | at, "The largest copies")))
    if spec is None:
        out.append(Notice(f"No limits to compare with: {why_no_limits(capture)}.", "info"))
    for said in bandwidth.evidence(found, limits, spec):
        query = {"direction": said.direction, "min_bytes": str(bandwidth.LARGE)} | at
        text = f"{NAMES[said.direction]}: {said.text[0].lower() + said.text[1:]}"
        out.append(Notice(text, VERDICTS[said.verdict], Link("memcpy_copies", query, "These copies")))
    off = rules_off(capture, where)
    if off:
        out.append(Notice(off, "info"))
    return out
