"""LAYER 1: FLOP and byte models per operator kind and roofline arithmetic; pure functions over shapes and dtypes.

`model_for(name)` is the model of an operator, `estimate(name, inputs)` its work. What has no model is None, never 0.
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
)
from tb_sol_plugin.cost.explain import why_not
from tb_sol_plugin.cost.inputs import Inputs
from tb_sol_plugin.cost.model import CONVENTION, Cost, Direction, Kind, Model, find, registered

__all__ = ["CONVENTION", "FAMILIES", "Cost", "Direction", "Inputs", "Kind", "Model", "estimate", "explain", "model_for", "registered"]

FAMILIES = (gemm, conv, attention_aten, attention_engines, norm, elementwise, movement, gathering, lists, custom)
"""The modules that register models; importing them fills the registry."""


def model_for(name: str) -> Model | None:
    """The cost model of an operator name as recorded; None where there is none."""
    return find(name)


def estimate(name: str, inputs: Inputs) -> Cost | None:
    """The work of one call; None where there is no model or the recorded inputs do not suffice."""
    model = find(name)
    answer = None if model is None else model.formula(inputs)
    return None if answer is None or (answer.flop is answer.flop_vector is answer.bytes is None) else answer


def explain(name: str, inputs: Inputs) -> str:
    """Why a call has no full cost, for people: no model, or which recorded size, type or value is missing. "" if it has one."""
    model = find(name)
    return "no cost model" if model is None else why_not(model.formula, inputs)
