"""What could make a step shorter: each lever with its evidence in numbers and the time that it could save, at most.

Savings are per step. Rules run from the most specific to the most general over one ledger of time (`case.Case`), so two levers never
claim the same nanosecond: their savings add up to at most the step. A lever with less than `LEAST` of the step is not worth a
reader's time and is left out. `docs/findings.md` describes every rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.rules.engine import LEAST, Lever, finding
from tb_sol_plugin.metrics.rules.time.context import Case, case
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
from tb_sol_plugin.metrics.rules.time.transfers import COPY_RULES, communication, copies, copies_inside, other_copies
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.time.waterfall import Waterfall
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture

__all__ = ["COPY_RULES", "LEAST", "NEEDS_TIMES", "RULES", "Lever", "combined_ns", "finding", "levers"]

NEEDS_TIMES: Final = "Findings need the time of single operators, which this SOL capture does not hold: record a profiler trace."
Rule = Callable[[Case], "Lever | list[Lever] | None"]
_WORK: Final[tuple[Rule, ...]] = (
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
_COUNTED: Final[tuple[Rule, ...]] = (recompute, channels_first, weight_casts, permuting_copies, fp32_matrix, above_limit)
"""Rules for a SOL capture: those that need neither the order of calls nor kernels."""
_IDLE: Final[tuple[Rule, ...]] = (warm_up, device_allocation, copies, host_sync, launch_bound, handover, host_wait)
"""Rules over the device's idle time, after the input pipeline has taken its part."""

RULES: Final = (
    "input_wait", "warm_up", "device_allocation", "host_sync", "launch_bound", "handover", "host_wait", "exposed_communication",
    "exposed_copies", "recompute", "unfused_attention", "unfused_optimizer", "layout_kernels", "channels_first",
    "weight_casts", "fusable_chains", "permuting_copies", "fp32_matrix", "plain_units", "slower_kernel", "misaligned_products",
    "small_products", "unfilled_tiles", "behind_the_best", "gemm_above_limit", "attention_above_limit", "conv_above_limit",
    "norm_above_limit", "elementwise_above_limit", "other_above_limit",
    *COPY_RULES,
)  # fmt: skip
"""Every rule by its stable id, as in `Lever.rule`."""


def levers(capture: Capture, part: Scope, fall: Waterfall) -> list[Lever]:
    """All levers worth showing, the largest saving first. The result is shared: do not change it."""
    spec = fall.work.spec
    key = ("levers", part.label, part.rows, part.window_ns, spec.fingerprint if spec is not None else "")
    return memo(capture, key, lambda: _levers(capture, part, fall))


def _levers(capture: Capture, part: Scope, fall: Waterfall) -> list[Lever]:
    if not fall.total_ns or not fall.work.timed:
        return []
    at = case(capture, part, fall)
    rules: tuple[Rule, ...] = (input_wait, *_WORK) if at.on_host else (input_wait, *_WORK, *_IDLE, communication, other_copies)
    if fall.work.from_ledger:
        rules = _COUNTED
    elif not (capture.host["kind"].to_numpy() == S.OPERATOR).any() and not fall.stepped:
        rules = ()  # nothing tells what the program does: a few kernels or calls alone are no ground for advice
    found: list[Lever] = []
    for rule in rules:
        answer = rule(at)
        found += answer if isinstance(answer, list) else [answer] if answer is not None else []
    least = LEAST * fall.total_ns / fall.steps
    kept = [f for f in found if f.saving_ns > 0 and f.saving_ns >= least]
    if fall.steps > 1:
        kept = [replace(f, evidence=f"In {fall.steps} steps: {f.evidence}") if not f.per_step else f for f in kept]
    return sorted(kept, key=lambda f: -f.saving_ns)


def combined_ns(found: list[Lever]) -> int:
    """What all of `found` could save together, per step and at most: no nanosecond stands in two of them."""
    return sum(f.saving_ns for f in found)
