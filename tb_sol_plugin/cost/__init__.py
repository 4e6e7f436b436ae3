"""Estimates FLOP and bytes of operators, and holds roofline arithmetic; pure functions over shapes and dtypes.

`model_for(name)` is the model of an operator, `estimate(name, inputs)` its work, `explain(name, inputs)` why it has none. What has no
model is None, never 0. Other packages bring models of their own, see `plugins`.
"""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.cost import plugins
from tb_sol_plugin.cost.inputs import Inputs
from tb_sol_plugin.cost.model import CONVENTION, Cost, Direction, Kind, Model, find, model, pattern, registered, unknown, why_not
from tb_sol_plugin.cost.ops import (
    attention,
    conv,
    experts,
    gemm,
    indexing,
    movement,
    norm,
    paged,
    pointwise,
    pooling,
    recurrent,
    reductions,
    serving,
    triton,
)

__all__ = [
    "CONVENTION", "FAMILIES", "Cost", "Direction", "Inputs", "Kind", "Model", "estimate", "explain", "model", "model_for", "pattern",
    "registered", "unknown",
]  # fmt: skip

FAMILIES = (
    gemm, serving, experts, conv, recurrent, attention, paged, norm, reductions, pointwise, movement, indexing, pooling, triton,
)  # fmt: skip
"""The modules that register models; importing them fills the registry."""


LARGEST: Final = 10**17
"""No call does more FLOP or moves more bytes: at the speed of today's fastest device it would run for minutes."""
IMPOSSIBLE: Final = "the recorded sizes are larger than any device can work on"


def model_for(name: str) -> Model | None:
    """Returns the cost model of an operator name as recorded; None where there is none."""
    plugins.load()
    return find(name)


def estimate(name: str, inputs: Inputs) -> Cost | None:
    """Returns the work of one call; None where there is no model or the recorded inputs do not suffice."""
    found, inputs.name = model_for(name), name
    answer = None if found is None else _run(found, inputs)
    return None if answer is None or (answer.flop is answer.flop_vector is answer.bytes is None) else answer


def explain(name: str, inputs: Inputs) -> str:
    """Returns why a call has no full cost, for people: no model, or which recorded size, type or value is missing. "" if it has one."""
    found, inputs.name = model_for(name), name
    return "no cost model" if found is None else why_not(lambda call: _run(found, call), inputs)


def _run(found: Model, inputs: Inputs) -> Cost | None:
    answer = plugins.run(found, inputs)
    if answer is not None and max(answer.flop or 0, answer.flop_dense or 0, answer.flop_vector or 0, answer.bytes or 0) > LARGEST:
        return unknown(IMPOSSIBLE)
    return answer
