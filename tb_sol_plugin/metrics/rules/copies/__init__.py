"""Finds what is wrong with the copies of a recording: evidence, what fixing it could save, and one line that does.

    found = copy_findings(capture, where, bandwidth.peaks(spec))      # where: metrics.time.scope.scope(capture, query)
    cards = [to_report(f, step_ns=step_ns(capture, where), pages=registry()) for f in found]

Rules run from the most specific to the most general; a copy stands in one finding. Savings are per step and at most: `critical.replayed`
replays them. Copies outside of
every step are no part of a step's findings. Numbers stand in `thresholds`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.copies import records
from tb_sol_plugin.metrics.copies.blocking import blocking
from tb_sol_plugin.metrics.copies.thresholds import DEFAULT, Thresholds
from tb_sol_plugin.metrics.rules.copies import patterns as P
from tb_sol_plugin.metrics.rules.copies.context import CopyColumns, CopyContext
from tb_sol_plugin.metrics.rules.engine import Finding, Rule, ids_of, run
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.time.waterfall import windows_of
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints

_PROVEN: Final = (P.pageable_loading, P.managed)
_AROUND: Final = (P.ping_pong, P.through_host)
_OTHERS: Final = (P.gradients, P.graph_inputs, P.duplicates, P.tiny, P.coalescable, P.exposed)
_ORDER: Final[tuple[Rule[CopyContext], ...]] = (*_AROUND, P.redundant, *_PROVEN, P.waiting, *_OTHERS)
"""From the most specific to the most general: the copies of a finding are offered to no later rule."""
KEYS: Final = ids_of((P.waiting, *_PROVEN, P.redundant, *_AROUND, *_OTHERS))
"""Every finding by its stable name: rules that report each direction on its own have one per direction."""
RULES: Final = tuple(dict.fromkeys(next((k.removesuffix(f"_{d}") for d in P.MOVES if k.endswith(f"_{d}")), k) for k in KEYS))
"""Every rule by its stable name, without the direction."""
Asked: TypeAlias = Callable[[str, bool], bool]
"""Whether findings of a direction are asked for, about the host or not."""
KNOWN_KINDS: Final = ("Pageable", "Pinned", "Managed", "Managed Static")
"""Kinds of memory that only a recorder which knows them writes."""


def copy_findings(capture: Capture, where: Scope, limits: dict[str, tuple[float, str]], thresholds: Thresholds = DEFAULT) -> list[Finding]:
    """Returns the findings of a selection, the largest saving first; those that save less than 0.1 % of a step are left out.

    limits: as `bandwidth.peaks` gives them. `rows` of a finding are positions in `records.copies(capture, where.device)`.
    """
    key = ("copies.findings", where.label, where.rows, where.window_ns, tuple(sorted(limits.items())), thresholds)
    return list(memo(capture, key, lambda: findings_without(capture, where, limits, thresholds)))


def step_ns(capture: Capture, where: Scope) -> float:
    """Returns the mean length of the steps that savings are counted per; of the whole window where no step was recorded."""
    windows, rows = windows_of(capture, where)
    return iv.length(windows) / max(len(rows), 1)


def rules_off(capture: Capture, where: Scope) -> str:
    """Returns why the rules that need the kinds of memory report nothing, "" where they do."""
    found = records.copies(capture, where.device)
    ends = {name: found[name].to_numpy(object) for name in ("direction", "src_kind", "dst_kind")}
    crosses = arrays.each(ends.pop("direction"), ("HtoD", "DtoH", "HtoH").__contains__)
    if not crosses.any() or any(arrays.each(kinds[crosses], KNOWN_KINDS.__contains__).any() for kinds in ends.values()):
        return ""
    who = {"amd": "AMD's tracer does", "xpu": "Intel's tracer does"}.get(capture.facts.vendor, "This recorder did")
    return f"{who} not record whether memory is pinned, pageable or unified: rules that need the kind of memory are off."


def findings_without(
    capture: Capture, where: Scope, limits: dict[str, tuple[float, str]], thresholds: Thresholds = DEFAULT, *,
    claimed: Ints | None = None, taken: iv.Spans | None = None, asked: Asked = lambda direction, host: True,
) -> list[Finding]:  # fmt: skip
    """Returns the findings of a selection without copies and time that findings of another subject hold: `claimed` rows, `taken` spans.

    asked: those of which directions, about the host or not, are returned.
    """
    found = records.copies(capture, where.device)
    if not len(found) or not iv.length(windows_of(capture, where)[0]):
        return []
    context = copy_context(capture, where, limits, thresholds, claimed=claimed, taken=taken)
    context.asked = asked
    code, names = context.columns.directions
    there = [names[i] for i in np.flatnonzero(np.bincount(code[context.inside], minlength=len(names))).tolist()]
    if not any(asked(direction, host) and context.can_find(direction, host) for direction in there for host in (False, True)):
        return []
    return [f for f in run(_ORDER, context)[0] if asked(f.direction, f.host)]


def copy_context(
    capture: Capture, where: Scope, limits: dict[str, tuple[float, str]], thresholds: Thresholds = DEFAULT, *,
    claimed: Ints | None = None, taken: iv.Spans | None = None,
) -> CopyContext:  # fmt: skip
    """Returns the context of rules about copies, without the copies and the time that other findings hold."""
    windows, rows = windows_of(capture, where)

    def make() -> CopyColumns:
        return CopyColumns(capture, records.copies(capture, where.device), bool(where.rows))

    columns = memo(capture, ("copies.columns", where.label, where.rows, where.window_ns), make)
    found = columns.copies
    inside = np.isin(found["step"].to_numpy(), rows) if rows else np.ones(len(found), bool)
    if claimed is not None:
        inside[claimed] = False
    free = windows if taken is None else iv.subtract(windows, taken)
    waits = blocking(capture, found, thresholds)
    return CopyContext(capture, where, columns, waits, limits, thresholds, inside, windows, max(len(rows), 1), free)
