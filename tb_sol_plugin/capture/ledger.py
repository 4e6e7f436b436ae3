"""The ledger of a sampled step: every ATen call that does work, counted under its labels.

In the step a call is only recognised and counted; its cost is worked out later, once per distinct signature.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tb_sol_plugin.capture.attribution import Attribution, Row, RowKey, ThreadState, available, current_node, next_number
from tb_sol_plugin.capture.clock import Clock
from tb_sol_plugin.capture.labels import NONE, Labels, Stack
from tb_sol_plugin.capture.operation_registry import OpRecord
from tb_sol_plugin.capture.phases import PhaseStack
from tb_sol_plugin.capture.records import record
from tb_sol_plugin.capture.signatures import Odd, OpInfo, Signature, call_key, describe, with_results
from tb_sol_plugin.format import COMPILED

__all__ = ["Ledger", "LedgerMode", "Row", "RowKey", "Signature", "available"]

SIGNATURES: Final = 200_000
"""Distinct signatures of a tracker; calls beyond are lost."""
UNTIMED: Final = -1


class Ledger:
    """Calls of the current iteration by signature and labels.

    signatures: by id, for the life of the tracker. rows: of the iteration. lost: what could not be counted, by reason, with counts.
    """

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.signatures: list[Signature] = []
        self.rows: dict[RowKey, Row] = {}
        self.lost: Counter[str] = Counter()
        self.ids: dict[tuple[object, ...], int | str] = {}
        """Id of a signature by the key of a call; a text says why such calls are not counted."""
        self.lock = threading.Lock()

    def clear(self) -> None:
        """Forgets rows and losses of the iteration; signatures stay."""
        self.rows.clear()
        self.lost.clear()

    def add(self, key: tuple[object, ...], signature: Signature) -> int | str:
        """The id of a signature under a key; a text if there is no room for it."""
        with self.lock:
            known = self.ids.get(key)
            if known is not None:
                return known
            if len(self.signatures) >= SIGNATURES:
                return "too many distinct calls"
            signature.id = len(self.signatures)
            self.signatures.append(signature)
            self.ids[key] = signature.id
            return signature.id

    def add_row(self, key: RowKey, count: int, time_ns: int) -> None:
        """Adds calls to a row. time_ns: of all of them, -1 not timed."""
        row = self.rows.get(key)
        if row is None:
            self.rows[key] = [count, time_ns]
        else:
            row[0] += count
            row[1] = UNTIMED if UNTIMED in (row[1], time_ns) else row[1] + time_ns

    def records(self, supported: Callable[[int], str | None]) -> list[OpRecord]:
        """The rows of the iteration as records. supported: layer type of a module's label, None where it is no supported layer."""
        return [record(self.signatures[key[0]], key, row, self.labels, supported) for key, row in tuple(self.rows.items())]


class LedgerMode(TorchDispatchMode):  # type: ignore[misc]
    """Counts calls while it is entered. An error of its own is counted in `ledger.lost` and does not reach the training loop.

    modules, phases, functions: the stacks of labels. timed: whether the host's time of each call is that of its work (CPU). compiled:
    labels of modules that belong to a compiled region, which runs eagerly while this mode is on.
    """

    supports_higher_order_operators = True

    def __init__(
        self, ledger: Ledger, modules: Stack, phases: PhaseStack, functions: Stack, clock: Clock, timed: bool = True,
        *, compiled: set[int] | frozenset[int] = frozenset(),
    ) -> None:  # fmt: skip
        super().__init__()
        self._ledger, self.clock, self.timed, self.compiled = ledger, clock, timed, compiled
        self.attribution = Attribution(ledger.labels, modules, phases, functions, ledger.lost)
        self._infos: dict[int, OpInfo] = {}
        self._entered = 0

    @property
    def ledger(self) -> Ledger:
        """Where calls are counted. Another one may be set at any time; what was counted by other threads goes to the one at the end."""
        return self._ledger

    @ledger.setter
    def ledger(self, ledger: Ledger) -> None:
        for thread in self.attribution.threads:
            if thread.rows is self._ledger.rows:
                thread.rows = ledger.rows
        self._ledger, self.attribution.lost = ledger, ledger.lost

    def __enter__(self) -> LedgerMode:
        super().__enter__()
        self._entered += 1
        if self._entered == 1:
            self.attribution.state(self._ledger.rows)
            self.attribution.watch(self._state)
        return self

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self._entered -= 1
        if self._entered == 0:
            self.attribution.unwatch()
            for thread in self.attribution.threads:
                if thread.rows is not self._ledger.rows:
                    for key, (count, time_ns) in thread.rows.items():
                        self._ledger.add_row(key, count, time_ns)
            self.attribution.forget()

    def _state(self) -> ThreadState:
        state: ThreadState | None = getattr(self.attribution.local, "state", None)
        return self.attribution.state({}) if state is None else state

    def _count(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        info = self._infos.get(id(func))
        if info is None:
            info = self._info(func)
        if info is None or (types and not _ORDINARY.issuperset(types)):
            return self._unusual(info, func, types, args, kwargs or {})
        try:
            state = self.attribution.local.state
        except AttributeError:
            state = self._state()
        if info.free:
            if next_number() != state.number:
                state.view()
            return info.call(*args, **kwargs) if kwargs else info.call(*args)
        began = perf_counter_ns()
        try:
            node = current_node()
            if node is None and not state.passes and not state.worker:
                modules, phases, functions = state.modules, state.phases, state.functions
                module = modules[-1] if modules else NONE
                phase = phases[-1] if phases else NONE
                function = functions[0] if functions else NONE
                forward_phase, flags = NONE, 0
                number = next_number()
                if number != state.number:
                    state.note(number, (module, phase, function))
            else:
                module, phase, forward_phase, function, flags = state.inside(node)
            if self.compiled and module in self.compiled:
                flags |= COMPILED
            key = call_key(info, args, kwargs)
            signature = self._ledger.ids.get(key)
            made = None
            if signature is None:
                if info.opens and _plain(args):
                    return self._open(info, args, kwargs or {})
                made = describe(info, args, kwargs)
        except Exception as problem:
            signature = made = None
            self._lose(problem)
        call = info.call
        start = perf_counter_ns()
        result = call(*args, **kwargs) if kwargs else call(*args)
        end = perf_counter_ns()
        if signature is None:
            signature = self._made(key, made, result) if made is not None else ""
        if type(signature) is int:
            rows = state.rows
            place = (signature, module, phase, forward_phase, function, flags)
            row = rows.get(place)
            if row is None:
                rows[place] = [1, end - start] if self.timed else [1, UNTIMED]
            else:
                row[0] += 1
                if self.timed:
                    row[1] += end - start
        elif type(signature) is str and signature:
            self._ledger.lost[signature] += 1
        self.clock.own_ns += start - began + perf_counter_ns() - end
        return result

    def _info(self, func: object) -> OpInfo | None:
        """What is known of an operator; None for those of higher order."""
        if not isinstance(func, torch._ops.OpOverload):
            return None
        info = self._infos[id(func)] = OpInfo(func)
        return info

    def _unusual(
        self, info: OpInfo | None, func: Callable[..., object], types: Sequence[type], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:  # fmt: skip
        """Operators of higher order, and tensors of classes that take calls apart themselves."""
        if info is None:
            self._ledger.lost[f"operator of higher order: {getattr(func, '__name__', func)}"] += 1
            return func(*args, **kwargs)
        if any(kind.__name__ in _UNREAL for kind in types):
            if not info.free:
                self._ledger.lost["tensors without data (fake)"] += 1
            return func(*args, **kwargs)
        return NotImplemented  # the class turns this into calls of plain tensors, which come here again

    def _open(self, info: OpInfo, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Runs an operator that is made of others in such a way that those are counted."""
        with self._again():
            return info.func.decompose(*args, **kwargs)  # type: ignore[attr-defined]

    @contextmanager
    def _again(self) -> Iterator[None]:
        """Inside, calls come to this mode again."""
        torch._C._push_on_torch_dispatch_stack(self)
        try:
            yield
        finally:
            torch._C._pop_torch_dispatch_stack()

    def _made(self, key: tuple[object, ...], signature: Signature, result: object) -> int | str:
        try:
            with_results(signature, result)
            return self._ledger.add(key, signature)
        except Exception as problem:
            self._lose(problem)
            return ""

    def _lose(self, problem: Exception) -> None:
        self._ledger.lost[str(problem) if isinstance(problem, Odd) else f"a call could not be read: {type(problem).__name__}"] += 1


# Set on the finished class: torch wraps the method of a class body to keep its compiler out, which costs half a microsecond per call.
LedgerMode.__torch_dispatch__ = LedgerMode._count  # type: ignore[method-assign]

_ORDINARY: Final = frozenset((torch.Tensor, torch.nn.Parameter))
_UNREAL: Final = frozenset(("FakeTensor", "FunctionalTensor"))


def _plain(args: tuple[object, ...]) -> bool:
    """Whether all tensors are ones that every operator works on alike: dense ones."""
    for a in args:
        if isinstance(a, torch.Tensor):
            if a.layout is not torch.strided or a.is_nested or a.is_quantized:
                return False
        elif isinstance(a, list | tuple) and not _plain(tuple(a)):
            return False
    return True
