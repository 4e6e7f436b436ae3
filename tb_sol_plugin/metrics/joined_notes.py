"""What a page says of a trace with a SOL capture beside it: where its work comes from, and whether the two agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_sol_plugin.metrics import source
from tb_sol_plugin.metrics.scope import Scope
from tb_sol_plugin.metrics.work.calls import Work
from tb_sol_plugin.metrics.work.joined import COUNTED, EXPLAINED
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Link, Notice
from tb_sol_plugin.units import human

WHOLE: Final = 0.95
"""Part of the device's own work with a model from which a trace should explain all that was counted."""


@dataclass(frozen=True)
class Check:
    """Matrix FLOP of the matched steps of a selection: explained by the trace itself, counted by the SOL capture, recomputed work left out.

    taken: of the counted, what calls of unnamed time stand for. steps: matched steps; iterations: those whose work they do.
    whole: the trace has a cost model for nearly all of its own work, so that both should be equal.
    """

    explained: float
    counted: float
    taken: float
    steps: int
    iterations: tuple[int, ...]
    whole: bool

    @property
    def agree(self) -> bool:
        """Whether the trace explains what was counted, where it should."""
        return not self.whole or abs(self.explained - self.counted) <= (1 - EXPLAINED) * self.counted


def check_of(capture: Capture, done: Work, part: Scope) -> Check | None:
    """The comparison over the selected steps; None where no step of theirs has an iteration of the same work."""
    steps = [s for s in done.match.steps if s.row in part.rows] if done.match is not None else []
    if not steps:
        return None
    ops = done.ops
    inside = np.isin(ops["step"].to_numpy(), [s.row for s in steps])
    own = inside & ~(ops["link"] | ops["collective"]).to_numpy() & (ops["name"] != COUNTED).to_numpy()
    time = ops["measured_ns" if done.by_host_time else "device_sum_ns"].to_numpy(dtype=np.float64)
    spent = float(time[own].sum())
    taken = ops["flop"].to_numpy(dtype=np.float64)[inside & (ops["name"] == COUNTED).to_numpy()]
    return Check(
        explained=sum(sum(s.explained.values()) for s in steps),
        counted=sum(s.counted for s in steps),
        taken=float(taken.sum()),
        steps=len(steps),
        iterations=tuple(sorted({s.iteration for s in steps})),
        whole=not len(taken) and bool(spent) and float(time[own & ops["modelled"].to_numpy()].sum()) >= WHOLE * spent,
    )


def joined_notices(capture: Capture, done: Work, part: Scope) -> list[Notice]:
    """Nothing for a trace alone and for a SOL capture alone."""
    if source.source_of(capture) != "both":
        return []
    name = (capture.facts.metadata.get("sol_capture", "") or "a SOL capture of this run").replace("\\", "/").rpartition("/")[2]
    found = check_of(capture, done, part)
    if found is None:
        why = "no iteration with inputs of the same sizes was sampled" if part.rows else "this trace has no steps"
        return [Notice(f"Work and times are those of this trace. The SOL capture {name} beside it is not used: {why}.", "info")]
    where = f"iteration{'s' if len(found.iterations) > 1 else ''} {', '.join(map(str, found.iterations))}"
    if found.taken:
        each = human(round(found.taken / found.steps), "FLOP")
        text = f"{each} of matrix work per step that this trace does not name are those that the SOL capture {name} counted in {where}"
        return [Notice(f"{text}. All times are those of this trace.", "info", Link("roofline", {"by": "phase"}))]
    if not found.agree:
        one, two = (human(round(v / found.steps), "FLOP") for v in (found.explained, found.counted))
        return [Notice(f"This trace explains {one} of matrix work per step, the SOL capture {name} counted {two} ({where}).", "warn")]
    if abs(found.explained - found.counted) <= (1 - EXPLAINED) * found.counted:
        return [Notice(f"Work and times are those of this trace. The SOL capture {name} beside it counted the same work.", "info")]
    one, two = (human(round(v / found.steps), "FLOP") for v in (found.explained, found.counted))
    text = f"Work and times are those of this trace. It explains {one} of matrix work per step"
    return [Notice(f"{text}, the SOL capture {name} beside it counted {two} ({where}).", "info")]
