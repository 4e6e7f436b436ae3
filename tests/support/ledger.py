"""A ledger with its stacks, to count what a function does, and sums over what it recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Counting:
    """Everything that a sampled step needs, without a tracker."""

    def __init__(self, *models: Any, timed: bool = True) -> None:
        from tb_sol_plugin.capture.functional_patcher import FunctionalPatcher
        from tb_sol_plugin.capture.layer_hooks import LayerSOLHooks
        from tb_sol_plugin.capture.loop.guard import Clock
        from tb_sol_plugin.capture.loop.labels import Labels
        from tb_sol_plugin.capture.loop.phases import PhaseStack
        from tb_sol_plugin.capture.work.ledger import Ledger

        self.labels, self.clock, self.models, self.timed = Labels(), Clock(), models, timed
        self.hooks = LayerSOLHooks(self.labels, self.clock)
        self.patcher = FunctionalPatcher(self.labels)
        self.phases = PhaseStack(self.labels, self.clock)
        self.ledger = Ledger(self.labels)

    @contextmanager
    def on(self) -> Iterator[Any]:
        """Labels and counting for a `with` block, which starts from nothing."""
        self.ledger.clear()
        for model in self.models:
            self.hooks.attach(model)
        try:
            with self.mode() as mode:
                yield mode
        finally:
            self.hooks.remove()

    def mode(self) -> Any:
        from tb_sol_plugin.capture.work.ledger import LedgerMode

        return LedgerMode(
            self.ledger, self.hooks.stack, self.phases, self.patcher.stack, self.clock, self.timed, compiled=self.hooks.compiled
        )

    def run(self, function: Callable[[], Any]) -> Any:
        with self.on():
            return function()

    @property
    def records(self) -> list[Any]:
        layers = {label: layer for label, (layer, _) in self.hooks.supported.items()}
        return self.ledger.records(layers.get)

    def flop(self, **fields: object) -> int:
        """Matrix FLOP of the records with these values, unknown ones left out."""
        return sum(r.flops or 0 for r in self.select(**fields))

    def calls(self, name: str = "", **fields: object) -> int:
        return sum(r.count for r in self.select(**({"name": f"aten::{name}"} if name else {}), **fields))

    def select(self, **fields: object) -> list[Any]:
        return [r for r in self.records if all(getattr(r, key) == value for key, value in fields.items())]

    def ops(self, **fields: object) -> dict[str, int]:
        """Calls by name of operator, without `aten::`."""
        out: dict[str, int] = {}
        for r in self.select(**fields):
            name = r.name.removeprefix("aten::")
            out[name] = out.get(name, 0) + r.count
        return out


def torch_flop(function: Callable[[], Any]) -> int:
    """What torch's own FlopCounterMode counts."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        function()
    return int(counter.get_total_flops())
