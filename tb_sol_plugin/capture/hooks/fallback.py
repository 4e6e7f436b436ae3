"""Counts work by hooks and replaced functions where a dispatch mode cannot be used: the fallback mode.

Each call of a supported layer, and of a replaced function that is in no such layer and no other replaced function, is written into the
ledger in closed form. Everything else is not seen: `a @ b`, methods of tensors, functions imported by name, the optimizer, elementwise
work. The backward pass is not seen either; that of each recorded call is taken to follow, is marked as estimated, and is counted when a
backward pass begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from time import perf_counter_ns
from typing import Final

import torch

from tb_sol_plugin.capture.functional_patcher import PATCHED, FunctionalPatcher
from tb_sol_plugin.capture.hooks.closed_forms import Form, function_forms, layer_forms, signature_of
from tb_sol_plugin.capture.layer_hooks import LayerSOLHooks, Site
from tb_sol_plugin.capture.loop.guard import Clock
from tb_sol_plugin.capture.loop.labels import NONE
from tb_sol_plugin.capture.loop.phases import PhaseStack
from tb_sol_plugin.capture.operation_registry import OpRecord, OpType
from tb_sol_plugin.capture.work.attribution import Attribution, RowKey, ThreadState, current_node
from tb_sol_plugin.capture.work.ledger import UNTIMED, Ledger
from tb_sol_plugin.format import BACKWARD, COMPILED, ESTIMATED, RECOMPUTE

COVERED: Final[dict[str, frozenset[OpType]]] = {
    "Linear": frozenset((OpType.MATMUL,)),
    "TELinear": frozenset((OpType.MATMUL,)),
    "TELayerNormLinear": frozenset((OpType.MATMUL, OpType.LAYERNORM)),
    "TELayerNormMLP": frozenset((OpType.MATMUL, OpType.LAYERNORM)),
    "TEDotProductAttention": frozenset((OpType.MATMUL, OpType.SOFTMAX, OpType.ATTENTION)),
    "Embedding": frozenset((OpType.EMBEDDING,)),
    "LayerNorm": frozenset((OpType.LAYERNORM,)),
    "RMSNorm": frozenset((OpType.LAYERNORM,)),
}
"""Functions of these kinds are not counted inside a layer of the type: its own record holds their work."""


class HooksMode:
    """Fills a ledger from hooks and replaced functions from enter to exit; both must be in place.

    timed: whether the host's time of a call is that of its work (CPU). Errors of its own are counted in `ledger.lost`.
    """

    def __init__(
        self, ledger: Ledger, hooks: LayerSOLHooks, patcher: FunctionalPatcher, phases: PhaseStack, clock: Clock, timed: bool = True
    ) -> None:
        self.ledger, self.hooks, self.patcher, self.phases, self.clock, self.timed = ledger, hooks, patcher, phases, clock, timed
        self._attribution = Attribution(ledger.labels, hooks.stack, phases, patcher.stack, ledger.lost)
        self._expected: Counter[tuple[int, int, int, int, int]] = Counter()
        """Backward rows whose pass has not begun: signature, module, phase of the forward, function, flags."""
        self._without_gradient: Counter[tuple[object, int]] = Counter()

    def __enter__(self) -> HooksMode:
        self.hooks.recorder = self.patcher.recorder = self
        self._attribution.attach(self._backward_begins)
        return self

    def __exit__(self, *exception: object) -> None:
        self._attribution.detach()
        self._attribution.clear()
        self.hooks.recorder = self.patcher.recorder = None
        self._expected.clear()  # of what is left, no backward pass was run
        self._without_gradient.clear()

    # --- Calls ---

    def layer_call(
        self, site: Site, label: int, args: tuple[object, ...], kwargs: dict[str, object], result: object, duration_ns: int
    ) -> None:
        """Count a call of a lowest supported layer that has ended. label: its own. One that an exception ended is not counted."""
        layer = site.place.layer
        if layer is None or result is None or self.patcher.stack.open:
            return
        name = layer[0]
        self._record(site, label, NONE, result, duration_ns, lambda: layer_forms(name, site.place.module, args, kwargs, result))

    def function_call(self, name: str, args: tuple[object, ...], kwargs: dict[str, object], result: object, duration_ns: int) -> None:
        """Count a call of a replaced function that is in no other one and has ended; its label is still open."""
        began = perf_counter_ns()
        layer = self.hooks.lowest_layer()
        if layer is None or PATCHED[name] not in COVERED[layer]:
            function = self.patcher.stack.open[0]
            self._record(
                name, self.hooks.stack.top, function, result, duration_ns, lambda: function_forms(name, args, kwargs, result)
            )  # fmt: skip
        self.clock.own_ns += perf_counter_ns() - began

    def _record(self, who: object, module: int, function: int, result: object, duration_ns: int, forms: Callable[[], list[Form]]) -> None:
        try:
            self._count(who, module, function, forms(), duration_ns, _has_gradient(result))
        except Exception as problem:
            name = who if isinstance(who, str) else who.place.class_name if isinstance(who, Site) else ""
            self.ledger.lost[f"a call of {name} could not be read: {problem or type(problem).__name__}"] += 1

    def _count(self, who: object, module: int, function: int, forms: list[Form], duration_ns: int, gradient: bool) -> None:
        again = RECOMPUTE if current_node() is not None else 0
        flags = COMPILED if module in self.hooks.compiled else 0
        phase = self.phases.top
        forward = [form for form in forms if not form.backward]
        time = duration_ns if self.timed and len(forward) == 1 else UNTIMED
        ids = [self._id(form) for form in forms]
        for form, known in zip(forms, ids, strict=True):
            if isinstance(known, str):
                self.ledger.lost[known] += 1
            elif not form.backward:
                self._add_row((known, module, phase, NONE, function, flags | again), 1, time)
        # A checkpointed call runs twice. Its backward follows the run that had gradients: the first one, unless that was without.
        seen = (who, ids[0] if isinstance(ids[0], int) else NONE)
        if not gradient:
            self._without_gradient[seen] += 1
        elif not again or self._without_gradient[seen] > 0:
            if again:
                self._without_gradient[seen] -= 1
            for form, known in zip(forms, ids, strict=True):
                if form.backward and isinstance(known, int):
                    self._expected[known, module, phase, function, flags | BACKWARD | ESTIMATED] += 1

    def _add_row(self, key: RowKey, count: int, time_ns: int) -> None:
        self.ledger.add_row(key, count, time_ns)

    def _id(self, form: Form) -> int | str:
        known = self.ledger.ids.get(form)
        return self.ledger.add(form, signature_of(form)) if known is None else known

    # --- Backward ---

    def _backward_begins(self) -> ThreadState:
        """Count the backward of all recorded calls in the phase that runs now."""
        expected, self._expected = self._expected, Counter()
        phase = self.phases.top
        for (known, module, forward_phase, function, flags), count in expected.items():
            key: RowKey = (known, module, phase, forward_phase, function, flags)
            self._add_row(key, count, UNTIMED)
        state: ThreadState | None = getattr(self._attribution.local, "state", None)
        return self._attribution.add_thread({}) if state is None else state


def _has_gradient(result: object) -> bool:
    """Return whether a result takes part in a backward pass."""
    if isinstance(result, torch.Tensor):
        return bool(result.requires_grad)
    return isinstance(result, (tuple, list)) and any(_has_gradient(one) for one in result)


def with_sources(records: list[OpRecord]) -> list[OpRecord]:
    """Set the source of the records of this mode: `hook` of a layer or `patch` of a function."""
    for one in records:
        one.source = "patch" if one.func_name else "hook"
    return records
