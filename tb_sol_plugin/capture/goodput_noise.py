"""The gradient noise scale: how much of a gradient is signal, from gradients of parts of a batch and from that of the whole.

For `count` gradients of equal parts, local = mean of their squared norms, total = squared norm of their mean, M/M0 = scale:

    sqr = (count total - local) / (count - 1),  var = (local - total) scale / (count - 1)

Both are without bias where the parts are independent (McCandlish et al., An Empirical Model of Large-Batch Training, 2018, appendix A),
var at the batch size M0. Averages over steps forget with 0.999^scale per step; their bias towards 0 at the start is taken out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

SMOOTHING: Final = 0.999


@dataclass
class Averages:
    """sqr, var: per group of the optimizer. biased: of differences of successive steps. preconditioned: of g over the optimizer's scale.

    updates: steps taken in; skipped: not finite.
    """

    sqr: list[float] = field(default_factory=list)
    var: list[float] = field(default_factory=list)
    weight: float = 0.0
    biased: bool = False
    preconditioned: bool = False
    updates: int = 0
    skipped: int = 0

    def update(
        self,
        local: Sequence[float],
        total: Sequence[float],
        count: int,
        scale: float,
        *,
        biased: bool = False,
        preconditioned: bool = False,
    ) -> bool:
        """Take one step in; False where its gradients are not finite, or there is but one part. Another way of measuring begins anew."""
        if count < 2 or scale <= 0 or not all(math.isfinite(v) for v in (*local, *total)):
            self.skipped += 1
            return False
        if biased != self.biased or preconditioned != self.preconditioned or len(local) != len(self.sqr):
            self.sqr, self.var, self.weight = [0.0] * len(local), [0.0] * len(local), 0.0
            self.biased, self.preconditioned = biased, preconditioned
        keep = SMOOTHING**scale
        for i, (one, whole) in enumerate(zip(local, total, strict=True)):
            self.sqr[i] = keep * self.sqr[i] + (1 - keep) * (count * whole - one) / (count - 1)
            self.var[i] = keep * self.var[i] + (1 - keep) * (one - whole) * scale / (count - 1)
        self.weight = keep * self.weight + 1 - keep
        self.updates += 1
        return True

    def grad_params(self) -> tuple[float, float] | None:
        """(sqr, var), summed over groups; None before the first step. Either may be below 0."""
        if self.weight <= 0:
            return None
        return math.fsum(self.sqr) / self.weight, math.fsum(self.var) / self.weight

    def state(self) -> dict[str, object]:
        """As JSON holds it."""
        return dict(asdict(self))

    @classmethod
    def of(cls, state: dict[str, object]) -> Averages:
        """From `state`; fresh ones where it is none."""
        new = cls()
        sqr, var, weight = state.get("sqr"), state.get("var"), state.get("weight")
        lists = isinstance(sqr, list) and isinstance(var, list) and len(sqr) == len(var)
        if lists and isinstance(weight, float) and 0 < weight <= 1 and all(isinstance(v, float) and math.isfinite(v) for v in [*sqr, *var]):  # type: ignore[misc]
            new.sqr, new.var, new.weight = list(sqr), list(var), weight  # type: ignore[call-overload]
            new.biased, new.preconditioned = state.get("biased") is True, state.get("preconditioned") is True
        return new
