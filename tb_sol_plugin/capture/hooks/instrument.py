"""Instruments the model and torch for a sampled step: label hooks, function labels, the dispatch mode."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, Literal

import torch
from torch.utils import _python_dispatch

from tb_sol_plugin.capture.functional_patcher import PATCHED, FunctionalPatcher
from tb_sol_plugin.capture.hooks.closed_forms import Form, function_forms, layer_forms, signature_of
from tb_sol_plugin.capture.hooks.inputs import InputSizes, short_hash
from tb_sol_plugin.capture.layer_hooks import Call, LayerSOLHooks, Site
from tb_sol_plugin.capture.loop.guard import Clock
from tb_sol_plugin.capture.loop.labels import NONE, Labels
from tb_sol_plugin.capture.loop.phases import PhaseStack
from tb_sol_plugin.capture.loop.schedule import CopyRow
from tb_sol_plugin.capture.operation_registry import OpRecord, OpType
from tb_sol_plugin.capture.report.output import Rows
from tb_sol_plugin.capture.work import attribution
from tb_sol_plugin.capture.work.attribution import Attribution, Row, RowKey, ThreadState, current_node
from tb_sol_plugin.capture.work.compiling import CompiledEagerly, can_run_eagerly
from tb_sol_plugin.capture.work.copies import CopyCounts
from tb_sol_plugin.capture.work.costs import op_type_of
from tb_sol_plugin.capture.work.ledger import UNTIMED, Ledger, LedgerMode
from tb_sol_plugin.capture.work.signatures import Signature
from tb_sol_plugin.capture.work.sums import LazySequence
from tb_sol_plugin.format import BACKWARD, COMPILED, ESTIMATED, RECOMPUTE

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from tb_sol_plugin.capture.loop.timing import EventPool


# -- Counts work by hooks and replaced functions where a dispatch mode cannot be used --------------------------------
# the fallback mode.
#
# Each call of a supported layer, and of a replaced function that is in no such layer and no other replaced function, is written into the
# ledger in closed form. Everything else is not seen: `a @ b`, methods of tensors, functions imported by name, the optimizer, elementwise
# work. The backward pass is not seen either; that of each recorded call is taken to follow, is marked as estimated, and is counted when a
# backward pass begins.


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


# -- Layers that call a library of their own (Transformer Engine, quantized kernels), which a dispatch mode does not see ----------------


MATRIX: Final = (OpType.MATMUL, OpType.ATTENTION, OpType.CONV)
"""Kinds of operators of which a layer calls one at least, if a dispatch mode sees its work."""


class OpaqueLayers(HooksMode):
    """Adds the work of layers that a dispatch mode does not see to the ledger. It is entered before the dispatch mode, and left after it.

    Their work is taken in closed form, as in the fallback mode, and marked as estimated. Whether a layer is one of them shows at the end
    of the step: no matrix product or attention was counted under its label. Forward and backward are distinguished.
    """

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


@dataclass
class Collected:
    """Has what was counted in a sampled step.

    signature: of the sizes of the models' inputs; where no model was called, of the matrix work, without any of all work; "" for nothing.
    copies: rows as `format.COPY_ROW` names them, None where copies were not counted.
    """

    rows: Rows
    records: Sequence[OpRecord]
    calls: list[Call]
    lost: Counter[str]
    signature: str
    copies: list[CopyRow] | None = None


def modes_on_stack() -> list[object]:
    """Return the dispatch modes that are entered on this thread, outermost first."""
    look = getattr(_python_dispatch, "_get_current_dispatch_mode_stack", None)
    return list(look()) if look is not None else []


def dispatch_possible() -> bool:
    """Return whether this torch lets work be counted by a dispatch mode. The names are private to torch, so their presence is checked."""
    return attribution.available() and all(hasattr(_python_dispatch, name) for name in ("TorchDispatchMode", "_pop_mode", "_push_mode"))


class Instrumentation:
    """Puts hooks, function labels and the counting mode in place for a sampled step, and takes them back.

    mode: dispatch or hooks, as it is in use. copies: of the step, None where they are not counted (not wanted, or no dispatch mode).
    It is entered and left on one thread; `leave` puts things back in any state, as often as it is called.
    """

    def __init__(
        self, labels: Labels, clock: Clock, phases: PhaseStack, mode: Literal["auto", "dispatch", "hooks"],
        note: Callable[[str, str], None], *, copies: bool = True,
    ) -> None:  # fmt: skip
        self.labels, self.clock, self.phases, self._note = labels, clock, phases, note
        self.mode = "hooks" if mode == "hooks" else "dispatch"
        if self.mode == "dispatch" and not dispatch_possible():
            self.mode = "hooks"
            note("mode", "this torch has no usable dispatch mode; work is estimated from hooks instead")
        self.hooks = LayerSOLHooks(labels, clock)
        self.patcher = FunctionalPatcher(labels)
        self.ledger = Ledger(labels)
        self.copies = CopyCounts() if copies and self.mode == "dispatch" else None
        self.sizes = InputSizes(clock, phases)
        self.on = False
        self._open = contextlib.ExitStack()
        self._eagerly = CompiledEagerly()
        self._thread = 0
        self._counting: LedgerMode | None = None
        self._left_behind: list[tuple[int, LedgerMode]] = []
        self.replays = 0

    def here(self) -> bool:
        """Return whether the calling thread is the one that entered."""
        return threading.get_ident() == self._thread

    def enter(self, model: object, roots: list[object], events: EventPool | None, *, layers: bool) -> bool:
        """Put everything in place for one step; False, with nothing in place, where that cannot be now.

        model: as it was given, so that several have different names; roots: the modules in it. layers: whether events are
        recorded around the calls of modules.
        """
        self._remove_left_behind()
        if self.mode == "dispatch" and modes_on_stack():
            self._note("other_mode", "another dispatch mode is active where a sampled step begins; a later one is sampled")
            return False
        if not can_run_eagerly():
            self._note("compiled", "this torch cannot run compiled code eagerly for a step (2.6 and later can); nothing is counted")
            return False
        self._thread = threading.get_ident()
        self.clear()
        self.hooks.events = events if layers else None
        self.on = True
        try:
            self._open.enter_context(self._eagerly)
            self._open.callback(self.hooks.remove)
            self.hooks.attach(model)
            for root in roots:
                self._hook_sizes(root)
            self._open.callback(self.patcher.uninstall)
            self.patcher.install()
            self._count_replays()
            self._count(timed=events is None)
        except BaseException:
            self.leave()
            raise
        return True

    @property
    def saw_compiled(self) -> bool:
        """Whether a part of the last sampled step is compiled: a module of the model, or whatever else called compiled code."""
        return self.hooks.saw_compiled or self._eagerly.ran

    def _hook_sizes(self, model: object) -> None:
        register = getattr(model, "register_forward_pre_hook", None)
        if register is not None and not isinstance(model, torch.jit.ScriptModule):
            before: RemovableHandle = register(self.sizes, with_kwargs=True)
            self._open.callback(before.remove)
            after: RemovableHandle = model.register_forward_hook(self.sizes, with_kwargs=True, always_call=True)  # type: ignore[attr-defined]
            self._open.callback(after.remove)

    def _count(self, *, timed: bool) -> None:
        if self.mode == "hooks":
            self._open.enter_context(HooksMode(self.ledger, self.hooks, self.patcher, self.phases, self.clock, timed))
            return
        self._open.enter_context(OpaqueLayers(self.ledger, self.hooks, self.patcher, self.phases, self.clock))
        if self._counting is None:  # one for all steps: it knows the operators it has met
            self._counting = LedgerMode(
                self.ledger, self.hooks.stack, self.phases, self.patcher.stack, self.clock, timed, compiled=self.hooks.compiled,
                copies=self.copies,
            )  # fmt: skip
        mode = self._counting
        mode.timed = timed
        mode.__enter__()
        self._open.callback(self._exit_mode, mode)

    def _exit_mode(self, mode: LedgerMode) -> None:
        """Leave our mode, and no other: those that were entered after it and are still open stay in their order."""
        if not self.here():
            mode.ledger = Ledger(self.labels)  # what it sees from now on is nobody's
            mode.copies = None
            mode.let_go()
            self._counting = None
            self._left_behind.append((self._thread, mode))
            self._note("threads", "a sampled step ended on another thread than it began on, where its work was counted")
            return
        stack = modes_on_stack()
        if not any(one is mode for one in stack):
            self.ledger.lost["the counting mode was taken off by somebody else"] += 1
            return
        above = []
        while stack[-1] is not mode:
            above.append(stack.pop())
            _python_dispatch._pop_mode()
        mode.__exit__(None, None, None)
        for one in reversed(above):
            _python_dispatch._push_mode(one)

    def _remove_left_behind(self) -> None:
        """Take off the modes that were left behind on this thread."""
        for entry in [entry for entry in self._left_behind if entry[0] == threading.get_ident()]:
            self._left_behind.remove(entry)
            self._thread = entry[0]
            self._exit_mode(entry[1])

    def _count_replays(self) -> None:
        """Count replays of CUDA graphs, whose kernels are not seen here."""
        graph = getattr(torch.cuda, "CUDAGraph", None)
        replay = vars(graph).get("replay") if graph is not None else None
        if replay is None:
            return

        def counted(graph: torch.cuda.CUDAGraph) -> None:
            self.replays += 1
            replay(graph)

        torch.cuda.CUDAGraph.replay = counted

        def restore() -> None:
            if vars(torch.cuda.CUDAGraph).get("replay") is counted:
                torch.cuda.CUDAGraph.replay = replay

        self._open.callback(restore)

    def leave(self) -> None:
        """Take everything back. What was recorded stays until the next `enter`."""
        if self._left_behind:
            thread = self._thread
            self._remove_left_behind()
            self._thread = thread
        if self.on:
            try:
                self._open.close()  # each part is taken back even if another one fails
            finally:
                self.on = False

    def clear(self) -> None:
        """Forget what was recorded."""
        self.ledger.clear()
        if self.copies is not None:
            self.copies.clear()
        self.hooks.clear()
        self.sizes.clear()
        self.replays = 0

    def records(self, rows: Mapping[RowKey, Row] | None = None) -> list[OpRecord]:
        """Return the ledger as records. rows: a part of it."""
        layers = {label: layer for label, (layer, _) in self.hooks.supported.items()}
        records = self.ledger.records(layers.get, rows)
        return with_sources(records) if self.mode == "hooks" else records

    def collect(self, *, compiled: bool) -> Collected:
        """Return what the step left, after `leave`. compiled: the model is compiled, so that times of this step are not its own."""
        self.hooks.end_step()
        self.patcher.end_step()
        lost = self.ledger.lost + self.hooks.lost
        copies = None
        if self.copies is not None:
            lost += self.copies.lost
            copies = self.copies.records(timed=not compiled)
        if self.replays:
            lost["replays of CUDA graphs, whose work is unknown"] = self.replays
        self.ledger.settle()
        rows = dict(self.ledger.rows)  # the next step has lists of its own
        untimed = {key: [row[0], -1] for key, row in rows.items()} if compiled else rows
        records = LazySequence(lambda: self.records(untimed))
        if compiled:
            rows = _as_compiled(rows)
        counted: dict[tuple[int, ...], Sequence[int]] = dict(rows.items())
        signature = self.sizes.signature
        if not signature and rows:
            signature = short_hash(self._products(rows) or sorted((key[0], value[0]) for key, value in rows.items()))
        return Collected(Rows(self.ledger.signatures, counted, lost), records, list(self.hooks.calls), lost, signature, copies)

    def _products(self, rows: dict[RowKey, Row]) -> list[tuple[int, int]]:
        """Return (signature, calls) of the matrix work.

        An optimizer that makes its state in the first iteration changes only other work.
        """
        calls: Counter[int] = Counter()
        for key, (count, _) in rows.items():
            calls[key[0]] += count
        return sorted((number, count) for number, count in calls.items() if self.ledger.signatures[number].flop)


def _as_compiled(rows: dict[RowKey, Row]) -> dict[RowKey, Row]:
    """Return the rows without times. Where no row is known to be of a compiled module, all are taken to be."""
    all_of_them = 0 if any(key[5] & COMPILED for key in rows) else COMPILED
    return {(key[0], key[1], key[2], key[3], key[4], key[5] | all_of_them): [count, -1] for key, (count, _) in rows.items()}
