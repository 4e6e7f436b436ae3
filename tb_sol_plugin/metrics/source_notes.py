"""What a page says about the source of its work: which iterations were counted, what the recorder lost, how normal their times are."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_sol_plugin.metrics import source
from tb_sol_plugin.metrics.profile_notes import profile_notices
from tb_sol_plugin.metrics.scope import Scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Link, Notice
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.units import human

MOST_NAMED: Final = 6
MOST_WARNINGS: Final = 3
LOST: Final = "not recorded: "
"""How the reader begins the reason of what the recorder could not count or time."""
WORKLESS: Final = ("tensors without data",)
"""Beginnings of reasons that cost no work: sharded models try sizes on tensors without data. Trace health lists them."""


def source_notices(capture: Capture, part: Scope) -> list[Notice]:
    """Of a SOL capture: its sampled iterations and what holds for them; of a profile that it holds sums. Nothing for a trace."""
    if not source.is_capture(capture):
        return profile_notices(capture)
    out = [Notice(_what(capture, part), "info", Link("iterations"))]
    out += [Notice(text, "warn", Link("health")) for text in _lost(capture)]
    usual = source.step_time(capture, part.rows)
    if usual is not None and abs(usual.ratio - 1) > source.DIFFERS:
        out.append(Notice(_differs(usual), "info", Link("iterations")))
    return out


def sampled_words(capture: Capture, part: Scope) -> str:
    """`sampled iteration 100`, `3 sampled iterations`."""
    count = len(part.steps)
    return f"sampled iteration {part.steps[0]}" if count == 1 else f"{human(count, 'count')} sampled iterations"


def _what(capture: Capture, part: Scope) -> str:
    table = capture.tables["iterations"]
    every = len(table)
    if not len(capture.tables["ledger"]):
        return "This is a SOL capture in which no iteration has been sampled yet: times of phases, no work."
    if not part.rows:
        return "This is a SOL capture. No sampled iteration of it stands on the timeline: all work in it is shown together."
    names = [str(n) for n in part.steps]
    listed = ", ".join(names) if len(names) <= MOST_NAMED else f"{', '.join(names[: MOST_NAMED - 2])} … {names[-1]}"
    of = f"{human(len(names), 'count')} of {human(every, 'count')} recorded"
    timed = "operators are timed by the wall clock" if source.calls_timed(capture) else "operators are not timed one by one"
    left = _left_out(capture)
    word = "iteration" if len(names) == 1 else "iterations"
    return f"This is a SOL capture: work counted in sampled {word} {listed} ({of}); {timed}.{left}"


def _left_out(capture: Capture) -> str:
    """Sampled iterations whose work is not looked at, in a sentence of its own."""
    lost = len(capture.steps) - len(source.steps_looked_at(capture))
    if lost <= 0:
        return ""
    most = human(source.MOST_CALLS, "count")
    return f" {human(lost, 'count')} earlier sampled ones are left out: together they hold more than {most} calls."


def _lost(capture: Capture) -> list[str]:
    out = [f"{text[0].upper()}{text[1:]}." for text in capture.facts.warnings if text][:MOST_WARNINGS]
    issues = capture.tables["issues"]
    reasons = arrays.pick(issues["reason"], np.arange(len(issues))).tolist()
    found = [(r.removeprefix(LOST), int(n)) for r, n in zip(reasons, issues["count"].tolist(), strict=True) if r.startswith(LOST)]
    found = [(reason, n) for reason, n in found if not reason.startswith(WORKLESS)]
    if found:
        said = ", ".join(f"{human(n, 'count')} × {reason}" for reason, n in found[:MOST_WARNINGS])
        out.append(f"Some work or times were not recorded: {said}.")
    return out


def _differs(usual: source.StepTime) -> str:
    others = "the one other" if usual.count == 1 else f"the {human(usual.count, 'count')} others"
    own, other = human(round(usual.sampled_ns), "ns"), human(round(usual.median_ns), "ns")
    return (
        f"A sampled iteration lasts {own}, {others} of the same inputs {other}"
        f"{' (median)' if usual.count > 1 else ''}: ranges on the host are those of the sampled ones, a step is as long as the others."
    )
