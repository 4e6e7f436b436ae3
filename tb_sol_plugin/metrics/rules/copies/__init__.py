"""What is wrong with the copies of a recording: each finding with its evidence, what fixing it could save, and one line that does.

    found = copy_findings(capture, where, link.peaks(spec))           # where: metrics.scope.scope(capture, query)
    cards = [as_finding(f, step_ns(capture, where)) for f in found]   # for a FindingsSection
    combined_ns(found)                                                # its `combined_ns`: rules can touch the same time

Rules, one file for each or a few: `waiting` (copies that hold the host), `small`, `again`, `within`, `memory`, `exposed`. Savings are
per step and at most. Copies outside of every step are no part of a step's findings. Numbers stand in `thresholds`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.copies import records
from tb_sol_plugin.metrics.copies.blocking import blocking
from tb_sol_plugin.metrics.copies.thresholds import DEFAULT, Thresholds
from tb_sol_plugin.metrics.rules.copies.context import Case
from tb_sol_plugin.metrics.rules.copies.patterns import (
    HIDE,
    MOVES,
    coalescable,
    duplicates,
    exposed,
    gradients,
    graph_inputs,
    managed,
    pageable_loading,
    ping_pong,
    redundant,
    through_host,
    tiny,
    waiting,
)
from tb_sol_plugin.metrics.rules.engine import CopyFinding, as_finding, combined_ns
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.time.waterfall import windows_of
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Mask

__all__ = ["KEYS", "RULES", "CopyFinding", "as_finding", "combined_ns", "copy_findings", "rules_off", "step_ns"]

RULES: Final = (
    "scalar_reads", "small_to_host", "blocking_to_host", "blocking_to_device", "blocking_sets", "blocking_other", "pageable_loading",
    "managed_copies", "redundant_upload", "ping_pong", "through_host", "duplicate_copies", "gradient_copies", "graph_inputs", "tiny",
    "coalescable", "exposed",
)  # fmt: skip
"""Every rule by its stable name, as in `CopyFinding.rule`."""
SEVERAL: Final = ("tiny", "coalescable", "exposed")
"""Rules that speak for each direction on its own."""
KEYS: Final = tuple(
    key for rule in RULES for key in ([f"{rule}_{d}" for d in (MOVES if rule != "exposed" else tuple(HIDE))] if rule in SEVERAL else [rule])
)
"""Every `CopyFinding.key` that there can be."""
TOLD: Final = ("Pageable", "Pinned", "Managed", "Managed Static")
"""Kinds of memory that only a recorder which knows them writes."""


def copy_findings(
    capture: Capture, where: Scope, limits: dict[str, tuple[float, str]], thresholds: Thresholds = DEFAULT
) -> list[CopyFinding]:
    """The findings of a selection, the largest saving first; those that save less than 0.1 % of a step are left out.

    limits: as `link.peaks` gives them. `rows` of a finding are positions in `records.copies(capture, where.device)`.
    """
    key = ("copies.findings", where.label, where.rows, where.window_ns, tuple(sorted(limits.items())), thresholds)
    return list(memo(capture, key, lambda: _findings(capture, where, limits, thresholds)))


def step_ns(capture: Capture, where: Scope) -> float:
    """Mean length of the steps that savings are told per; of the whole window where no step was recorded."""
    windows, rows = windows_of(capture, where)
    return iv.length(windows) / max(len(rows), 1)


def rules_off(capture: Capture, where: Scope) -> str:
    """Why the rules that need the kinds of memory say nothing, "" where they speak."""
    found = records.copies(capture, where.device)
    if not found["direction"].isin(["HtoD", "DtoH", "HtoH"]).any():
        return ""
    told = found.loc[found["direction"].isin(["HtoD", "DtoH", "HtoH"]), ["src_kind", "dst_kind"]]
    if told.isin(TOLD).any(axis=None):
        return ""
    who = {"amd": "AMD's tracer does", "xpu": "Intel's tracer does"}.get(capture.facts.vendor, "This recorder did")
    return f"{who} not tell pinned from pageable or unified memory: rules that rest on the kind of memory are off."


def _findings(capture: Capture, where: Scope, limits: dict[str, tuple[float, str]], thresholds: Thresholds) -> list[CopyFinding]:
    found = records.copies(capture, where.device)
    windows, rows = windows_of(capture, where)
    if not len(found) or not iv.length(windows):
        return []
    inside = np.isin(found["step"].to_numpy(), rows) if rows else np.ones(len(found), bool)
    held = blocking(capture, found, thresholds)
    case = Case(capture, where, found, held, limits, thresholds, inside, windows, max(len(rows), 1))
    proven = pageable_loading(case) + managed(case)
    apart = _rows_of(proven, len(found))
    packed, around = tiny(case), ping_pong(case) + through_host(case)
    out = [
        *proven, *waiting(case, apart), *around, *redundant(case, _rows_of(around, len(found))), *duplicates(case), *gradients(case),
        *graph_inputs(case), *packed, *coalescable(case, packed), *exposed(case, apart),
    ]  # fmt: skip
    least = thresholds.least_share * iv.length(windows) / case.steps
    return sorted((f for f in out if f.saving_ns >= least), key=lambda f: -f.saving_ns)


def _rows_of(found: list[CopyFinding], size: int) -> Mask:
    """The copies of some findings."""
    out = np.zeros(size, np.bool_)
    for f in found:
        out[f.rows] = True
    return out
