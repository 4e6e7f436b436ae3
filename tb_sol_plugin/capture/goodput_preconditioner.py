"""The scale that Adam and its kin divide gradients by: sqrt(v) + eps, v without its bias towards 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

FIRST: Final = 5
"""Updates before v says something."""


class Preconditioner:
    """Of an optimizer whose state has `exp_avg_sq`; of any other, and before its fifth update, it leaves gradients as they are.

    on: whether it divides; it changes between updates only.
    """

    def __init__(self, optimizer: Optimizer | None) -> None:
        self._optimizer = optimizer
        self._group = {} if optimizer is None else {p: group for group in optimizer.param_groups for p in group["params"]}
        self._updates: int | None = None
        self.on = False
        self.passed()

    def over(self, grad: Tensor, p: Tensor | None) -> Tensor:
        """A gradient, or one of its shape, over the scale of its parameter."""
        if not self.on or p is None or self._optimizer is None:
            return grad
        state, group = self._optimizer.state.get(p), self._group.get(p)
        square = None if state is None else state.get("exp_avg_sq")
        if square is None or group is None or square.shape != grad.shape:
            return grad
        unbiased: Any = 1 - group["betas"][1] ** state["step"]
        return grad / ((square / unbiased).sqrt() + group["eps"])  # type: ignore[no-any-return]

    def passed(self) -> None:
        """An update has ended, or there were some before this began."""
        if self._optimizer is None:
            return
        if self._updates is not None:
            self._updates += 1
        else:
            for p, group in self._group.items():
                state = self._optimizer.state.get(p) or {}
                if "exp_avg_sq" in state and "step" in state and "betas" in group and "eps" in group:
                    self._updates = int(state["step"])
                    break
        self.on = self._updates is not None and self._updates >= FIRST
