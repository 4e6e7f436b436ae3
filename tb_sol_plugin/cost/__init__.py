"""LAYER 1: FLOP and byte models per operator kind and roofline arithmetic; pure functions over shapes and dtypes.

`model_for(name)` is the model of an operator, `estimate(name, inputs)` its work, `explain(name, inputs)` why it has none. What has no
model is None, never 0. Other packages bring models of their own, see `plugins`.
"""

from __future__ import annotations

from tb_sol_plugin.cost import (
    attention_aten,
    attention_engines,
    conv,
    custom,
    elementwise,
    gathering,
    gemm,
    lists,
    movement,
    norm,
    plugins,
    quantised,
    recurrent,
    serving,
)
from tb_sol_plugin.cost.explain import why_not
from tb_sol_plugin.cost.inputs import Inputs
from tb_sol_plugin.cost.model import CONVENTION, Cost, Direction, Kind, Model, find, model, pattern, registered, unknown

__all__ = [
    "CONVENTION", "FAMILIES", "Cost", "Direction", "Inputs", "Kind", "Model", "estimate", "explain", "model", "model_for", "pattern",
    "registered", "unknown",
]  # fmt: skip

FAMILIES = (
    gemm, quantised, serving, conv, recurrent, attention_aten, attention_engines, norm, elementwise, movement, gathering, lists, custom,
)  # fmt: skip
"""The modules that register models; importing them fills the registry."""


def model_for(name: str) -> Model | None:
    """The cost model of an operator name as recorded; None where there is none."""
    plugins.load()
    return find(name)


def estimate(name: str, inputs: Inputs) -> Cost | None:
    """The work of one call; None where there is no model or the recorded inputs do not suffice."""
    found = model_for(name)
    answer = None if found is None else plugins.run(found, inputs)
    return None if answer is None or (answer.flop is answer.flop_vector is answer.bytes is None) else answer


def explain(name: str, inputs: Inputs) -> str:
    """Why a call has no full cost, for people: no model, or which recorded size, type or value is missing. "" if it has one."""
    found = model_for(name)
    return "no cost model" if found is None else why_not(lambda call: plugins.run(found, call), inputs)
