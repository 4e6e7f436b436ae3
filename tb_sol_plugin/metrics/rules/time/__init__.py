"""Finds what could make a step shorter: each finding with its evidence in numbers and the time that it could save, at most.

Savings are per step. Rules run from the most specific to the most general over one ledger of time, so two findings never claim the
same nanosecond: their savings add up to at most the step. A finding with less than `LEAST` of the step is too small to show
and is left out. `docs/findings.md` describes every rule.
"""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.metrics import memo_under
from tb_sol_plugin.metrics.rules.engine import Finding, Rule, ids_of, run
from tb_sol_plugin.metrics.rules.time import collectives, first_use, fusion, host_code, idle, layout, matmul, remainder
from tb_sol_plugin.metrics.rules.time.context import TimeContext, time_context
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.time.waterfall import Waterfall
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture

NEEDS_TIMES: Final = "Findings need the time of single operators, which this SOL capture does not hold: record a profiler trace."
_WORK: Final[tuple[Rule[TimeContext], ...]] = (
    remainder.recompute, fusion.unfused_attention, fusion.unfused_optimizer, layout.layout_kernels, layout.channels_first,
    layout.weight_casts, idle.copies_inside, fusion.fusable_chains, layout.permuting_copies, matmul.fp32_matrix,
    matmul.fp32_kernels, matmul.plain_units, matmul.slower_kernel, matmul.misaligned_products, matmul.unfilled_tiles,
    matmul.behind_the_best, remainder.above_limit,
)  # fmt: skip
"""Rules over the time of operator calls, the most specific first. The optimizer also takes the idle time inside it."""
_COUNTED: Final[tuple[Rule[TimeContext], ...]] = (
    remainder.recompute, layout.channels_first, layout.weight_casts, layout.permuting_copies, matmul.fp32_matrix, remainder.above_limit,
)  # fmt: skip
"""Rules for a SOL capture: those that need neither the order of calls nor kernels."""
_IDLE: Final[tuple[Rule[TimeContext], ...]] = (
    collectives.buffer_broadcasts, first_use.warm_up, first_use.device_allocation, idle.copies, idle.host_sync, idle.launch_bound,
    idle.handover, host_code.operator_wait, host_code.python_wait, idle.host_wait,
)  # fmt: skip
"""Rules over the device's idle time, after the input pipeline has taken its part."""

_LINKS: Final[tuple[Rule[TimeContext], ...]] = (collectives.tiny_all_reduces, idle.communication, idle.other_copies)
"""Rules over communication and copies while nothing computes."""

RULES: Final = tuple(dict.fromkeys(ids_of((idle.input_wait, *_IDLE, *_LINKS, *_WORK))))
"""Every finding by its stable id."""


def time_findings(capture: Capture, part: Scope, waterfall: Waterfall) -> list[Finding]:
    """Returns all findings that are large enough, the largest saving first. The result is shared: do not change it."""
    key = ("time_findings", part.label, part.rows, part.window_ns)
    return memo_under(capture, waterfall.work.spec, key, lambda: _findings(capture, part, waterfall))


def _findings(capture: Capture, part: Scope, waterfall: Waterfall) -> list[Finding]:
    if not waterfall.total_ns or not waterfall.work.timed:
        return []
    context = time_context(capture, part, waterfall)
    rules = (
        (idle.input_wait, *_WORK) if context.on_host else (idle.input_wait, *_WORK, *_IDLE, *_LINKS)
    )
    if waterfall.work.from_ledger:
        rules = _COUNTED
    elif not (capture.host["kind"].to_numpy() == S.OPERATOR).any() and not waterfall.stepped:
        rules = ()  # nothing tells what the program does: a few kernels or calls alone are no ground for advice
    return run(rules, context)[0]
