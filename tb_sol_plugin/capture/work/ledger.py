"""Counts every ATen call of a sampled step that does work under its labels: the ledger.

In the step a call is only recognized and counted; its cost is worked out later, once per distinct signature.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from threading import get_ident
from time import perf_counter_ns
from typing import Final, TypeAlias, no_type_check

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tb_sol_plugin.capture.loop.guard import Clock
from tb_sol_plugin.capture.loop.labels import NONE, Labels, Stack
from tb_sol_plugin.capture.loop.phases import PhaseStack
from tb_sol_plugin.capture.operation_registry import OpRecord, Shape
from tb_sol_plugin.capture.work.attribution import (
    Attribution,
    Context,
    ForwardLabels,
    Row,
    RowKey,
    ThreadState,
    current_node,
    next_number,
)
from tb_sol_plugin.capture.work.copies import CopyCounts
from tb_sol_plugin.capture.work.costs import data_type_of, op_type_of
from tb_sol_plugin.capture.work.dispatch import restore_rule_lookup, shorten_rule_lookup
from tb_sol_plugin.capture.work.operators import COPIES, FILLS, OpInfo, can_open
from tb_sol_plugin.capture.work.signatures import (
    FAILURES,
    VARIANTS,
    Odd,
    Signature,
    call_key,
    coarse_key,
    describe,
    devices_of,
    key_function,
    odd_key,
    with_results,
)
from tb_sol_plugin.format import BACKWARD, COMPILED, ESTIMATED, RECOMPUTE

# -- Rows of the ledger as records that reports and scripts read -----------------------------------------------------


def record(
    signature: Signature, key: tuple[int, int, int, int, int, int], row: Sequence[int], labels: Labels,
    supported: Callable[[int], str | None],
) -> OpRecord:  # fmt: skip
    """Makes the record of one row; its work is that of all its calls.

    key: as `format.LEDGER_ROW`, up to the flags. row: calls, and their time in ns (-1 not timed).
    """
    _, module, phase, forward_phase, function, flags = key
    count, time_ns = row[0], row[1]
    cost = signature.known
    layer, layer_type = _layer(module, labels, supported)
    return OpRecord(
        name=signature.op,
        op_type=op_type_of(signature.op, cost.kind),
        input_shapes=list(_shapes(signature.shapes, signature.types)),
        output_shapes=list(_shapes(signature.out_shapes, signature.out_types)),
        input_dtypes=list(_dtypes(signature.types)),
        stride0_mask=list(signature.stride0),
        dtype=data_type_of(cost.dtype),
        flops=None if cost.flop is None else cost.flop * count,
        flops_vector=None if cost.flop_vector is None else cost.flop_vector * count,
        bytes=None if cost.bytes is None else cost.bytes * count,
        count=count,
        direction="bwd" if flags & BACKWARD else "fwd",
        is_recompute=bool(flags & RECOMPUTE),
        layer_name=layer,
        layer_type=layer_type,
        func_name=_name(function, labels),
        phase=_name(phase, labels) or "(no phase)",
        module_context=_name(module, labels),
        measured_time_us=None if time_ns < 0 else time_ns / 1000,
        source="hook" if flags & ESTIMATED else "dispatch",
        estimated=bool(flags & ESTIMATED) or cost.estimated,
        forward_phase=_name(forward_phase, labels),
        reason=cost.reason,
        compiled=bool(flags & COMPILED),
        flops_again=cost.flop_again * count,
        module_class="" if module == NONE else labels.known[module].class_name,
    )


def _name(label: int, labels: Labels) -> str:
    return "" if label == NONE else labels.known[label].name


def _layer(module: int, labels: Labels, supported: Callable[[int], str | None]) -> tuple[str, str]:
    """Returns name and type of the innermost supported layer around a module, itself included."""
    while module != NONE:
        layer_type = supported(module)
        if layer_type:
            return labels.known[module].name, layer_type
        module = labels.known[module].parent
    return "", ""


@lru_cache(maxsize=65536)
def _shapes(shapes: str, types: str) -> tuple[Shape, ...]:
    """Returns the sizes of tensors only, those in lists too."""
    out: list[Shape] = []
    for shape, kind in zip(json.loads(shapes), json.loads(types), strict=False):
        if isinstance(kind, list):
            out += [tuple(one) for one in shape]
        elif kind not in ("", "Scalar", "ScalarList"):
            out.append(tuple(shape))
    return tuple(out)


@lru_cache(maxsize=65536)
def _dtypes(types: str) -> tuple[str, ...]:
    out: list[str] = []
    for kind in json.loads(types):
        if isinstance(kind, list):
            out += kind
        elif kind not in ("", "Scalar", "ScalarList"):
            out.append(kind)
    return tuple(out)


SIGNATURES: Final = 200_000
"""Distinct signatures of a tracker; calls beyond are lost."""
INFOS: Final[dict[int, OpInfo]] = {}
"""What is known of operators, by id."""
New: TypeAlias = "tuple[tuple[object, ...], Signature] | None"
"""A key, and the signature that it will stand for once the call has returned; None where there is none."""
UNTIMED: Final = -1
HOST_WORK: Final = "work of the host, beside that of the device"


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
        self.places: dict[Hashable, RowKey] = {}
        """The row of a call by its key."""
        self.variants: Counter[str] = Counter()
        """Keys by operator."""
        self.parts: list[dict[RowKey, Row]] = []
        """Rows of further threads, until they are added to `rows`."""
        self._texts: dict[tuple[str, ...], int] = {}
        self.lock = threading.Lock()

    def clear(self) -> None:
        """Forgets rows and losses of the iteration; signatures stay."""
        for rows in (self.rows, *self.parts):
            rows.clear()
        self.lost.clear()

    def part(self) -> dict[RowKey, Row]:
        """Makes the rows of one more thread."""
        made: dict[RowKey, Row] = {}
        self.parts.append(made)
        return made

    def settle(self) -> None:
        """Adds the rows of further threads to `rows`."""
        for part in self.parts:
            while part:
                key, (count, time_ns) = part.popitem()
                self.add_row(key, count, time_ns)

    def add(self, key: tuple[object, ...], signature: Signature) -> int | str:
        """Returns the id of a signature under a key; a text if there is no room for it. Signatures with the same texts are one."""
        with self.lock:
            known = self.ids.get(key)
            if known is not None:
                return known
            texts = signature.texts
            number = self._texts.get(texts)
            if number is None:
                if len(self.signatures) >= SIGNATURES:
                    return "too many distinct calls"
                number = self._texts[texts] = signature.id = len(self.signatures)
                self.signatures.append(signature)
            self.variants[signature.op] += 1
            self.ids[key] = number
            return number

    def add_row(self, key: RowKey, count: int, time_ns: int) -> None:
        """Adds calls to a row. time_ns: of all of them, -1 not timed."""
        row = self.rows.get(key)
        if row is None:
            self.rows[key] = [count, time_ns]
        else:
            row[0] += count
            row[1] = UNTIMED if UNTIMED in (row[1], time_ns) else row[1] + time_ns

    def records(self, supported: Callable[[int], str | None], rows: Mapping[RowKey, Row] | None = None) -> list[OpRecord]:
        """Makes records of the rows of the iteration, or of some others.

        supported: layer type of a module's label, None where it is no supported layer.
        """
        if rows is None:
            self.settle()
            rows = self.rows
        return [record(self.signatures[key[0]], key, row, self.labels, supported) for key, row in tuple(rows.items())]


class LedgerMode(TorchDispatchMode):  # type: ignore[misc]
    """Counts calls while it is entered. An error of its own is counted in `ledger.lost` and does not reach the training loop.

    modules, phases, functions: the stacks of labels. timed: whether the host's time of each call is that of its work (CPU). compiled:
    labels of modules that belong to a compiled region, which runs eagerly while this mode is on. copies: where copies between memories
    are counted as well, None: they are not; it may be changed at any time.
    """

    supports_higher_order_operators = True

    def __init__(
        self, ledger: Ledger, modules: Stack, phases: PhaseStack, functions: Stack, clock: Clock, timed: bool = True,
        *, compiled: set[int] | frozenset[int] = frozenset(), copies: CopyCounts | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._ledger, self.clock, self.timed, self.compiled, self.copies = ledger, clock, timed, compiled, copies
        self.attribution = Attribution(ledger.labels, modules, phases, functions, ledger.lost)
        self._places, self._local = ledger.places, self.attribution.local
        self._opened: dict[tuple[object, ...], object] = {}
        """Kernels of operators that are counted by their parts, by the key of a call."""
        self._entered, self._gone = 0, False
        self._home: ThreadState | None = None
        """The state of the thread that entered last, whose number `_thread` is."""
        self._thread = 0

    @property
    def ledger(self) -> Ledger:
        """Where calls are counted; another one may be set at any time."""
        return self._ledger

    @ledger.setter
    def ledger(self, ledger: Ledger) -> None:
        for thread in self.attribution.threads:
            thread.rows = ledger.rows if thread.rows is self._ledger.rows else ledger.part()
        self._ledger, self._places, self.attribution.lost = ledger, ledger.places, ledger.lost

    def __enter__(self) -> LedgerMode:
        super().__enter__()
        if not self._entered:
            self._local = self.attribution.local
            self.attribution.attach()
            shorten_rule_lookup(LedgerMode)
        self._entered += 1
        state = self.attribution.thread_state()
        if state is None:
            state = self.attribution.add_thread(self._ledger.part() if self.attribution.threads else self._ledger.rows)
        self._home, self._thread = state, get_ident()
        return self

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        if self._entered == 1:
            self.let_go()
            self._gone = False
            self._ledger.settle()
            self._ledger.parts.clear()
            self.attribution.clear()
            self._home, self._thread = None, 0
        self._entered -= 1

    def let_go(self) -> None:
        """Takes back what it changed in torch for all threads. The mode itself stays on the thread that entered it until that exits it."""
        if self._entered and not self._gone:
            self._gone = True
            restore_rule_lookup()
            self.attribution.detach()

    def _state(self) -> ThreadState:
        return self.attribution.thread_state() or self.attribution.add_thread(self._ledger.part())

    @no_type_check  # what is not known of a name in one branch is not asked for there
    def _count(self, func, types, args=(), kwargs=None):
        # Every call of a sampled step comes through here: each name that is looked up costs some ns, each function tens of them.
        try:
            info = INFOS[id(func)]
            state = self._home if get_ident() == self._thread else self._local.state
        except (KeyError, AttributeError):
            info, state = self._info(func), self._state()
        if (types or info is None) and (info is None or not _ordinary(types)):
            return self._unusual(info, func, types, args, kwargs or {})
        number = next_number()
        if info.free and number == state.number:
            if info.moves is not None:
                return self._read(info, args, kwargs or {}, state)
            return info.call(*args, **kwargs) if kwargs else info.call(*args)
        node = current_node()
        here = node is None and not state.in_backward
        if here:
            modules, functions, phases = state.modules, state.functions, state.phases
            module = modules[-1] if modules else NONE
            function = functions[0] if functions else NONE
            phase = phases[-1] if phases else NONE
            forward_phase, flags = NONE, 0
            if number - state.number == 1:
                state.forward_labels[state.number] = module, phase, function
                state.number = number
            elif number != state.number:
                state.note(number, (module, phase, function))
        if info.free:
            if not here:
                self._note(state, node)
            if info.moves is not None:
                return self._read(info, args, kwargs or {}, state)
            return info.call(*args, **kwargs) if kwargs else info.call(*args)
        began = perf_counter_ns()
        try:
            if not here:
                flags = None
                module, phase, forward_phase, function, flags = state.labels_in_backward(node)
            if self.compiled and module in self.compiled:
                flags |= COMPILED
            key_of = info.key_of_named if kwargs else info.key_of
            number = key_of(args, kwargs, info, module, phase, forward_phase, function, flags)
            place = self._places[number]
        except Exception as problem:
            place = None
            if flags is None:
                self._lose(problem)
        if place is None:
            labels = None if flags is None else (module, phase, forward_phase, function, flags)
            return self._other(info, args, kwargs, state, labels, began)
        row = state.rows.get(place)
        call = info.call
        if kwargs:
            start = perf_counter_ns()
            result = call(*args, **kwargs)
        else:
            start = perf_counter_ns()
            result = call(*args)
        end = perf_counter_ns()
        if row is None:
            state.rows[place] = [1, end - start if self.timed else UNTIMED]
        else:
            row[0] += 1
            if self.timed:
                row[1] += end - start
        self.clock.own_ns += start - began
        if info.moves is not None:
            self._copied(info, args, kwargs, result, end - start, (module, phase, function))
        return result

    def _other(
        self, info: OpInfo, args: tuple[object, ...], kwargs: dict[str, object] | None, state: ThreadState, labels: Context | None,
        began: int,
    ) -> object:  # fmt: skip
        """Runs and counts a call whose key function did not recognize it.

        labels: None if they could not be found; then it is not counted. began: when the work for it did.
        """
        opens: object = None
        new: New = None
        place: RowKey | None = None
        number: Hashable = None
        signature: int | str | None = ""
        if labels is not None:
            try:
                number = self._key(info, args, kwargs, labels)
                place = self._places.get(number)
                if place is None:
                    signature, new, opens = self._unknown(info, args, kwargs)
            except Exception as problem:
                self._lose(problem)
        labels = labels or (NONE, NONE, NONE, NONE, 0)
        if opens is not None:
            self.clock.own_ns += perf_counter_ns() - began
            return self._open(info, opens, args, kwargs or {}, state, labels)
        start = perf_counter_ns()
        result = info.call(*args, **kwargs) if kwargs else info.call(*args)
        end = perf_counter_ns()
        if place is not None:
            self._row(state, place, end - start)
        else:
            place = self._add(signature, new, (args, kwargs), result, state, labels, end - start)
            if place is not None and number is not None and len(self._places) < SIGNATURES:
                self._places[number] = place
        if info.moves is not None:
            self._copied(info, args, kwargs, result, end - start, (labels[0], labels[1], labels[3]))
        self.clock.own_ns += start - began + perf_counter_ns() - end
        return result

    def _key(self, info: OpInfo, args: Sequence[object], kwargs: dict[str, object] | None, labels: Context) -> Hashable:
        """Computes the key of a call, None if its arguments have none. Its operator uses this key function from now on."""
        key_of = key_function(info, args, kwargs) or _full_key
        if kwargs:
            info.key_of_named = key_of
        else:
            info.key_of = key_of
        try:
            return key_of(args, kwargs, info, *labels)
        except FAILURES:
            return None

    def _unknown(self, info: OpInfo, args: Sequence[object], kwargs: dict[str, object] | None) -> tuple[int | str | None, New, object]:
        """Finds the signature of a call; of a new one its key and signature to be; of an operator counted by its parts its kernel."""
        try:
            key = call_key(info, args, kwargs)
        except (RuntimeError, TypeError, NotImplementedError):
            key = odd_key(info, args, kwargs)
        signature = self._ledger.ids.get(key)
        if signature is not None:
            return signature, None, None
        opens: object = None
        if info.opens:
            opens = self._opened.get(key)
            if opens is None:
                opens = self._opened[key] = can_open(info, args)
        many = self._ledger.variants[info.name] >= VARIANTS
        if many:
            key = coarse_key(info, args, kwargs)
            signature = self._ledger.ids.get(key)
        if opens is not None or signature is not None:
            return signature, None, opens
        return None, (key, describe(info, args, kwargs, numbers=not many)), None

    def _add(
        self, signature: int | str | None, new: New, given: object, result: object, state: ThreadState, labels: Context, call_ns: int
    ) -> RowKey | None:  # fmt: skip
        """Counts a call that has returned, and returns its row; None where it is not counted, whose reason is noted."""
        if signature is None:
            signature = "" if new is None else self._made(*new, given, result)
        if isinstance(signature, int):
            place = (signature, *labels)
            self._row(state, place, call_ns)
            return place
        if signature:
            self._ledger.lost[signature] += 1
        return None

    def _row(self, state: ThreadState, place: RowKey, call_ns: int) -> None:
        row = state.rows.setdefault(place, [0, 0 if self.timed else UNTIMED])
        row[0] += 1
        if self.timed:
            row[1] += call_ns

    def _copied(
        self, info: OpInfo, args: Sequence[object], kwargs: dict[str, object] | None, result: object, call_ns: int, labels: ForwardLabels
    ) -> None:  # fmt: skip
        """Count the copies of a call between memories, if it made any."""
        if self.copies is not None and info.moves is not None:
            try:
                self.copies.add(info.name, info.moves, args, kwargs, result, call_ns, labels)
            except Exception as problem:
                self.copies.lost[f"a copy could not be read: {type(problem).__name__}"] += 1

    def _read(self, info: OpInfo, args: Sequence[object], kwargs: dict[str, object], state: ThreadState) -> object:
        """Run an operator that does no work but lets the host read off a device."""
        if args and getattr(args[0], "is_cpu", False):
            return info.call(*args, **kwargs)
        start = perf_counter_ns()
        result = info.call(*args, **kwargs)
        end = perf_counter_ns()
        if self.copies is not None:
            try:
                node = current_node()
                forward = node is None and not state.passes
                module, phase, _, function, _ = state.labels_of_forward() if forward else state.labels_in_backward(node)
                self._copied(info, args, kwargs, result, end - start, (module, phase, function))
            except Exception as problem:
                self.copies.lost[f"a copy could not be read: {type(problem).__name__}"] += 1
            self.clock.own_ns += perf_counter_ns() - end
        return result

    def _info(self, func: object) -> OpInfo | None:
        """Returns what is known of an operator; None for those of higher order that have no cost model."""
        info = INFOS.get(id(func))
        if info is not None:
            return info
        try:
            info = OpInfo(func) if isinstance(func, torch._ops.OpOverload) else OpInfo.of_higher_order(func)
        except Exception as problem:
            info = None
            self._lose(problem)
        if info is not None:
            INFOS[id(func)] = info
        return info

    def _unusual(
        self, info: OpInfo | None, func: Callable[..., object], types: Sequence[type], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:  # fmt: skip
        """Runs operators of higher order, and calls with tensors of classes that take calls apart themselves."""
        if info is None:
            self._ledger.lost[f"operator of higher order: {getattr(func, '__name__', func)}"] += 1
            return func(*args, **kwargs)
        if any(kind.__name__ in _UNREAL for kind in types):
            if not info.free:
                self._ledger.lost["tensors without data (fake)"] += 1
            return func(*args, **kwargs)
        return NotImplemented  # the class turns this into calls of plain tensors, which come here again

    def _open(
        self, info: OpInfo, kernel: object, args: tuple[object, ...], kwargs: dict[str, object], state: ThreadState, place: Context
    ) -> object:  # fmt: skip
        """Runs an operator that calls others in such a way that those are counted. The kernel is the one that runs without this mode."""
        before = -1 if info.made_of_others else self._worked(state)
        start = perf_counter_ns()
        torch._C._push_on_torch_dispatch_stack(self)  # inside, calls come to this mode again
        try:
            result = info.run_open(kernel, args, kwargs)
        finally:
            torch._C._pop_torch_dispatch_stack(None)
        end = perf_counter_ns()
        if before >= 0 and before == self._worked(state):  # no work was seen inside: it is an operator like any other
            try:
                new: New = odd_key(info, args, kwargs), describe(info, args, kwargs)
            except Exception as problem:
                new = None
                self._lose(problem)
            self._add(None, new, (args, kwargs), result, state, place, end - start)
            self.clock.own_ns += perf_counter_ns() - end
        return result

    def _worked(self, state: ThreadState) -> int:
        """Counts the calls of this thread that do more than fill and copy."""
        known = self._ledger.signatures
        return sum(row[0] for key, row in tuple(state.rows.items()) if known[key[0]].op not in FILLS)

    def _note(self, state: ThreadState, node: object) -> None:
        try:
            state.note_node(node)
        except Exception as problem:
            self._lose(problem)

    def _made(self, key: tuple[object, ...], signature: Signature, given: object, result: object) -> int | str:
        """Returns the id of a new signature, once the call has returned; a text where such calls are not counted."""
        try:
            with_results(signature, result)
            if not self.timed:
                devices = devices_of((given, result))
                if devices <= {"cpu"}:
                    self._ledger.ids[key] = HOST_WORK
                    return HOST_WORK
                if "cpu" in devices and signature.op in COPIES:
                    signature.forget_sizes("copy between host and device")
            return self._ledger.add(key, signature)
        except Exception as problem:
            self._lose(problem)
            return ""

    def _lose(self, problem: Exception) -> None:
        self._ledger.lost[str(problem) if isinstance(problem, Odd) else f"a call could not be read: {type(problem).__name__}"] += 1


def _full_key(args: Sequence[object], kwargs: dict[str, object] | None, info: OpInfo, *labels: int) -> Hashable:
    """Returns the key of any call: all that `call_key` reads, and its labels."""
    return *call_key(info, args, kwargs), labels


def _keep_compiler_out() -> None:
    """Keeps torch.compile out of our code and of what it calls.

    torch does so by wrapping the method of the class body, which costs microseconds per call and loads the compiler. Where this torch
    can mark the code itself (2.7 and later), the plain method takes the place of the wrapped one.
    """
    try:
        from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
    except ImportError:
        LedgerMode.__torch_dispatch__ = torch._disable_dynamo(LedgerMode._count, recursive=True)  # type: ignore[method-assign]
        return
    set_code_exec_strategy(LedgerMode._count.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))
    LedgerMode.__torch_dispatch__ = LedgerMode._count  # type: ignore[method-assign]


_keep_compiler_out()

_UNREAL: Final = frozenset(("FakeTensor", "FunctionalTensor"))


def _ordinary(types: Sequence[type]) -> bool:
    """Returns whether none of these classes of tensors wants to handle operators itself."""
    return all(kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__ for kind in types)  # type: ignore[attr-defined]
