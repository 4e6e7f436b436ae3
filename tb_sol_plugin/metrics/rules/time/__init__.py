"""What could make a step shorter: each finding with its evidence in numbers and the time that it could save, at most.

Savings are per step. Rules run from the most specific to the most general over one ledger of time, so two findings never claim the
same nanosecond: their savings add up to at most the step. A finding with less than `LEAST` of the step is not worth a reader's time
and is left out. `docs/findings.md` describes every rule.
"""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.rules.engine import Finding, Rule, ids_of, run
from tb_sol_plugin.metrics.rules.time.context import TimeContext, time_context
from tb_sol_plugin.metrics.rules.time.fusion import fusable_chains, unfused_attention, unfused_optimizer
from tb_sol_plugin.metrics.rules.time.idle import device_allocation, handover, host_sync, host_wait, input_wait, launch_bound, warm_up
from tb_sol_plugin.metrics.rules.time.layout import channels_first, layout_kernels, permuting_copies, weight_casts
from tb_sol_plugin.metrics.rules.time.matmul import (
    behind_the_best,
    fp32_matrix,
    misaligned_products,
    plain_units,
    slower_kernel,
    unfilled_tiles,
)
from tb_sol_plugin.metrics.rules.time.remainder import above_limit, recompute
from tb_sol_plugin.metrics.rules.time.transfers import communication, copies, copies_inside, other_copies
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.time.waterfall import Waterfall
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture

NEEDS_TIMES: Final = "Findings need the time of single operators, which this SOL capture does not hold: record a profiler trace."
_WORK: Final[tuple[Rule[TimeContext], ...]] = (
    recompute,
    unfused_attention,
    unfused_optimizer,
    layout_kernels,
    channels_first,
    weight_casts,
    copies_inside,
    fusable_chains,
    permuting_copies,
    fp32_matrix,
    plain_units,
    slower_kernel,
    misaligned_products,
    unfilled_tiles,
    behind_the_best,
    above_limit,
)
"""Rules over the time of operator calls, the most specific first. The optimizer also takes the idle time inside it."""
_COUNTED: Final[tuple[Rule[TimeContext], ...]] = (recompute, channels_first, weight_casts, permuting_copies, fp32_matrix, above_limit)
"""Rules for a SOL capture: those that need neither the order of calls nor kernels."""
_IDLE: Final[tuple[Rule[TimeContext], ...]] = (warm_up, device_allocation, copies, host_sync, launch_bound, handover, host_wait)
"""Rules over the device's idle time, after the input pipeline has taken its part."""

RULES: Final = tuple(dict.fromkeys(ids_of((input_wait, *_IDLE, communication, other_copies, *_WORK))))
"""Every finding by its stable id."""


def time_findings(capture: Capture, part: Scope, fall: Waterfall) -> list[Finding]:
    """All findings worth showing, the largest saving first. The result is shared: do not change it."""
    spec = fall.work.spec
    key = ("time_findings", part.label, part.rows, part.window_ns, spec.fingerprint if spec is not None else "")
    return memo(capture, key, lambda: _findings(capture, part, fall))


def _findings(capture: Capture, part: Scope, fall: Waterfall) -> list[Finding]:
    if not fall.total_ns or not fall.work.timed:
        return []
    context = time_context(capture, part, fall)
    rules = (input_wait, *_WORK) if context.on_host else (input_wait, *_WORK, *_IDLE, communication, other_copies)
    if fall.work.from_ledger:
        rules = _COUNTED
    elif not (capture.host["kind"].to_numpy() == S.OPERATOR).any() and not fall.stepped:
        rules = ()  # nothing tells what the program does: a few kernels or calls alone are no ground for advice
    return run(rules, context)[0]
