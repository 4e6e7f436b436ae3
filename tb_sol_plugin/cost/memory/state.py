"""Bytes per parameter: of parameters, gradients and optimizer state, and what of it data parallel ranks divide among themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tb_sol_plugin.cost.memory.layout import Layout, Number, Optimizer

STATE: Final[dict[Optimizer, int]] = {"adam": 8, "adam8bit": 2, "sgd": 0, "sgd_momentum": 4, "lion": 4}
"""Bytes of optimizer state per parameter beside a master weight: two FP32 moments, two in 8 bits, none, one, one."""
WIDTH: Final[dict[Number, int]] = {"bf16": 2, "fp16": 2, "fp32": 4}


@dataclass(frozen=True)
class PerParameter:
    """Bytes per parameter of a rank, as fractions where data parallel ranks divide them. gradient: as the backward pass writes it.

    main_gradient: the FP32 copy that is reduced and given to the optimizer. master: the FP32 weight the optimizer updates.
    """

    parameter: float
    gradient: float
    main_gradient: float
    master: float
    optimizer: float

    @property
    def total(self) -> float:
        return self.parameter + self.gradient + self.main_gradient + self.master + self.optimizer


def per_parameter(layout: Layout, ranks: int = 0) -> PerParameter:
    """Bytes per parameter. ranks: that divide the sharded parts (0: dp × cp).

    bf16: 2 + main gradient 4 + master 4 + state; gradients go straight into the main gradient. fp16: 2 + 2, main gradient 4, master 4,
    state. fp32: 4 + 4 + state. The distributed optimizer divides master and state (with fp16 the main gradient too, which it makes).
    """
    d = ranks or layout.dp * layout.cp
    shard = ("none", "optimizer", "gradients", "full").index(layout.sharding)
    of_optimizer, of_gradients, of_parameters = (1 / d if shard >= level else 1.0 for level in (1, 2, 3))
    width, state = WIDTH[layout.number], STATE[layout.optimizer]
    if layout.number == "fp32":
        return PerParameter(4 * of_parameters, 4 * of_gradients, 0.0, 0.0, state * of_optimizer)
    if layout.number == "bf16":
        return PerParameter(width * of_parameters, 0.0, 4 * of_gradients, 4 * of_optimizer, state * of_optimizer)
    return PerParameter(width * of_parameters, 2 * of_gradients, 4 * of_optimizer, 4 * of_optimizer, state * of_optimizer)


def formula(layout: Layout) -> str:
    """The bytes per parameter as an expression: `6 + 12/d`."""
    one, many = per_parameter(layout, 1).total, per_parameter(layout, 1 << 40).total
    whole, divided = round(many), round(one - many)
    return " + ".join([*[str(whole)] * bool(whole or not divided), *[f"{divided}/d"] * bool(divided)])
