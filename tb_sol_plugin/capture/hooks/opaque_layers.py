"""Counts layers that call a library of their own (Transformer Engine, quantized kernels), which a dispatch mode does not see.

Their work is taken in closed form, as in the fallback mode, and marked as estimated. Whether a layer is one of them shows at the end of
the step: no matrix product or attention was counted under its label. Forward and backward are distinguished.
"""

from __future__ import annotations

from collections import Counter

from tb_sol_plugin.capture.hooks.fallback import HooksMode
from tb_sol_plugin.capture.layer_hooks import Site
from tb_sol_plugin.capture.loop.labels import NONE
from tb_sol_plugin.capture.operation_registry import OpType
from tb_sol_plugin.capture.work.attribution import Row, RowKey
from tb_sol_plugin.capture.work.costs import op_type_of
from tb_sol_plugin.capture.work.ledger import UNTIMED
from tb_sol_plugin.capture.work.signatures import Signature
from tb_sol_plugin.format import BACKWARD, ESTIMATED

MATRIX = (OpType.MATMUL, OpType.ATTENTION, OpType.CONV)


class OpaqueLayers(HooksMode):
    """Adds the work of such layers to the ledger. It is entered before the dispatch mode, and left after it."""

    def __enter__(self) -> OpaqueLayers:
        self._rows: dict[RowKey, Row] = {}
        self.hooks.recorder = self
        return self

    def __exit__(self, *exception: object) -> None:
        self.hooks.recorder = None
        if self._rows:
            seen = {direction: self._seen(direction) for direction in (0, BACKWARD)}
            self._follow()
            for key, (count, time_ns) in self._rows.items():
                if key[1] not in seen[key[5] & BACKWARD]:
                    self.ledger.add_row((*key[:5], key[5] | ESTIMATED), count, time_ns)
        self._rows = {}
        self._expected.clear()
        self._without_gradient.clear()

    def _follow(self) -> None:
        """Add the backward of what ran forward, in the phase where the dispatch mode saw the backward of that phase.

        None if it saw none.
        """
        phases: dict[int, Counter[int]] = {}
        for (_, _, phase, forward_phase, _, flags), (count, _) in self.ledger.rows.items():
            if flags & BACKWARD:
                phases.setdefault(forward_phase, Counter())[phase] += count
        every = sum(phases.values(), Counter())
        for (signature, module, forward_phase, function, flags), count in self._expected.items() if every else ():
            phase = phases.get(forward_phase, every).most_common(1)[0][0]
            self._add_row((signature, module, phase, forward_phase, function, flags), count, UNTIMED)

    def layer_call(
        self, site: Site, label: int, args: tuple[object, ...], kwargs: dict[str, object], result: object, duration_ns: int
    ) -> None:
        if opaque(site):
            super().layer_call(site, label, args, kwargs, result, duration_ns)

    def _add_row(self, key: RowKey, count: int, time_ns: int) -> None:
        row = self._rows.setdefault(key, [0, 0])
        row[0] += count
        row[1] = UNTIMED  # a host's time of the whole layer, whose other operators are timed on their own

    def _seen(self, direction: int) -> set[int]:
        """Return the labels of modules with matrix work in this direction, and of all modules around them."""
        out: set[int] = set()
        for key in self.ledger.rows:
            module = key[1]
            if key[5] & BACKWARD == direction and module not in out and _is_matrix(self.ledger.signatures[key[0]]):
                while module != NONE and module not in out:
                    out.add(module)
                    module = self.ledger.labels.known[module].parent
        return out


def opaque(site: Site) -> bool:
    """Return whether a layer may call a library of its own: one that multiplies, and whose forward is not that of torch."""
    layer = site.place.layer
    if layer is None or layer[1] not in MATRIX:
        return False
    forward = getattr(type(site.place.module), "forward", None)
    return not str(getattr(forward, "__module__", "")).startswith("torch.nn.")


def _is_matrix(signature: Signature) -> bool:
    cost = signature.known
    return bool(cost.flop) if cost.flop is not None else op_type_of(signature.op, cost.kind) in MATRIX
