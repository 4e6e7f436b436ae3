"""Replaces functions of torch while a step is sampled, so that work carries the name of the function that was called.

The outermost replaced function is the name: `F.embedding` calls `torch.embedding`, and is one call of `F.embedding`. Replaced functions
never count work. Not seen are functions that were imported by name before, methods of tensors, and `a @ b`.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from time import perf_counter_ns
from types import FunctionType, ModuleType
from typing import Final, Protocol, TypeAlias, cast

import torch
from torch.compiler import is_compiling
from torch.overrides import handle_torch_function, has_torch_function

from tb_sol_plugin.capture.loop.labels import NONE, Labels, Stack
from tb_sol_plugin.capture.operation_registry import CapturedFunctionalOp, OpRecord, OpType
from tb_sol_plugin.capture.work import dispatch
from tb_sol_plugin.capture.work.compiling import can_run_eagerly, force_eager, release_eager
from tb_sol_plugin.capture.work.sums import merged

PATCHED: Final[dict[str, OpType]] = {
    "torch.matmul": OpType.MATMUL,
    "torch.bmm": OpType.MATMUL,
    "torch.mm": OpType.MATMUL,
    "torch.addmm": OpType.MATMUL,
    "torch.baddbmm": OpType.MATMUL,
    "torch.einsum": OpType.MATMUL,
    "torch.softmax": OpType.SOFTMAX,
    "torch.layer_norm": OpType.LAYERNORM,
    "torch.embedding": OpType.EMBEDDING,
    "F.linear": OpType.MATMUL,
    "F.embedding": OpType.EMBEDDING,
    "F.layer_norm": OpType.LAYERNORM,
    "F.softmax": OpType.SOFTMAX,
    "F.log_softmax": OpType.SOFTMAX,
}
"""What is replaced, by the name that records carry, and the kind of its work. `F` is torch.nn.functional."""

Function: TypeAlias = Callable[..., object]


class Recorder(Protocol):
    """Receives the calls of replaced functions that are in no other one: the fallback mode, which counts them."""

    def function_call(self, name: str, args: tuple[object, ...], kwargs: dict[str, object], result: object, duration_ns: int) -> None: ...


class _Patch:
    """Describes one replaced function: where it stood, what stood there, what stands there now. live: installed."""

    __slots__ = ("live", "module", "name", "original", "replacement", "title")

    def __init__(self, title: str) -> None:
        place, self.name = title.split(".")
        self.title = title
        self.module: ModuleType = torch.nn.functional if place == "F" else torch
        self.original: Function = _bottom(getattr(self.module, self.name))
        self.replacement: Function = self.original
        self.live = False


_lock: Final = threading.Lock()


class FunctionalPatcher:
    """Replaces the functions of `PATCHED` from `install` to `uninstall`. Compiled functions run eagerly in between (see `compiled`).

    stack: open function labels of the calling thread. left: functions that another library has replaced over ours, so that ours had to
    stay below as one that only passes on. recorder: called for each outermost call; None in the usual mode.

    Several patchers may be installed at once and leave in any order; with the last one the very objects are back that were there before.
    """

    def __init__(self, labels: Labels, stack: Stack | None = None) -> None:
        self.labels = labels
        self.stack = Stack() if stack is None else stack
        self.left: Counter[str] = Counter()
        self.recorder: Recorder | None = None
        self._patches: dict[str, _Patch] = {}
        self.installed = False

    def install(self) -> None:
        """Replace the functions; a second call does nothing."""
        with _lock:
            if self.installed or not can_run_eagerly():
                return
            self.installed = True
            force_eager(self)
            for title in PATCHED:
                patch = self._patches.get(title)
                if patch is None:
                    patch = self._patches[title] = _Patch(title)
                    patch.replacement = self._replacement(patch)
                patch.original = _bottom(getattr(patch.module, patch.name))
                patch.live = True
                dispatch.register_builtin(patch.replacement, patch.original)
                setattr(patch.module, patch.name, patch.replacement)

    def uninstall(self) -> None:
        """Put back what was there; a second call does nothing. A function that other code has replaced since then stays theirs."""
        with _lock:
            if not self.installed:
                return
            self.installed = False
            release_eager(self)
            for title, patch in tuple(self._patches.items()):
                patch.live = False
                if not _take_out(patch):
                    self.left[title] += 1
                    del self._patches[title]  # theirs calls ours: never install it again, or the two would call each other
                    continue
                dispatch.unregister_builtin(patch.replacement)

    def end_step(self) -> None:
        """Empty the calling thread's stack."""
        self.stack.open.clear()

    def records(self, ledger: Iterable[OpRecord]) -> list[CapturedFunctionalOp]:
        """Return the ledger's records, summed up by function, module, phase and direction."""
        return captured_functional_ops(ledger)

    def _replacement(self, patch: _Patch) -> Function:
        stack = self.stack
        label = self.labels.id_of("function", NONE, patch.title)
        python = isinstance(patch.original, FunctionType) and patch.module is torch.nn.functional

        @functools.wraps(patch.original)
        def replaced(*args: object, **kwargs: object) -> object:
            original = patch.original
            if is_compiling() or not patch.live:
                return original(*args, **kwargs)
            # A function written in Python hands itself to `__torch_function__` under its global name, which is ours now.
            if python and has_torch_function((*args, *kwargs.values())):
                original = functools.partial(_overridden, original)
            open_ = stack.open
            if open_:
                return original(*args, **kwargs)
            open_.append(label)
            try:
                if self.recorder is None:
                    return original(*args, **kwargs)
                began = perf_counter_ns()
                result = original(*args, **kwargs)
                self.recorder.function_call(patch.title, args, kwargs, result, perf_counter_ns() - began)
                return result
            finally:
                open_.clear()

        replaced._sol_patch = patch  # type: ignore[attr-defined]
        if python:
            replaced.__prepare_scriptable__ = lambda: patch.original  # type: ignore[attr-defined]
        return cast("Function", replaced)


def _patch_of(function: object) -> _Patch | None:
    """Return the patch whose replacement this is. `functools.wraps` of others copies our mark, so it must be the very function."""
    patch = getattr(function, "_sol_patch", None)
    return patch if isinstance(patch, _Patch) and patch.replacement is function else None


def _bottom(function: Function) -> Function:
    """Return the function that a replacement out of use passes on to; any other function itself."""
    patch = _patch_of(function)
    while patch is not None and not patch.live:
        function = patch.original
        patch = _patch_of(function)
    return function


def _take_out(patch: _Patch) -> bool:
    """Remove a replacement from its place, or from below another one of ours; False if it is below one of other code."""
    if getattr(patch.module, patch.name) is patch.replacement:
        setattr(patch.module, patch.name, patch.original)
        return True
    above = _patch_of(getattr(patch.module, patch.name))
    while above is not None:
        if above.original is patch.replacement:
            above.original = patch.original
            return True
        above = _patch_of(above.original)
    return False


def _overridden(original: Function, *args: object, **kwargs: object) -> object:
    """Call a function whose arguments or mode override functions of torch, as the function itself would, but under its own name."""
    try:
        bound = inspect.signature(original).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return original(*args, **kwargs)
    bound.apply_defaults()
    required = [
        name for name, parameter in bound.signature.parameters.items() if parameter.default is inspect.Parameter.empty
    ]  # torch passes on these by position, all others by name
    values = bound.arguments
    relevant = tuple(value for value in values.values() if value is not None and not isinstance(value, (int, float, str)))
    return handle_torch_function(
        original, relevant, *(values[name] for name in required), **{name: values[name] for name in values if name not in required}
    )


def captured_functional_ops(records: Iterable[OpRecord]) -> list[CapturedFunctionalOp]:
    """Merges records that ran in replaced functions by function, module, phase, direction and recomputation, see `sums.merged`."""
    return [
        CapturedFunctionalOp(
            func_name=one.name[0],
            op_type=PATCHED.get(one.name[0], one.main.op_type),
            input_shapes=one.main.input_shapes,
            output_shapes=one.main.output_shapes,
            dtype=one.main.dtype,
            measured_time_us=one.measured_time_us,
            phase=one.main.phase,
            module_context=one.name[1],
            flops=one.flops,
            bytes=one.bytes,
            direction=one.main.direction,
            is_recompute=one.main.is_recompute,
            count=one.count,
            source=one.main.source,
            estimated=one.estimated,
        )
        for one in merged(records, lambda record: (record.func_name, record.module_context))
    ]
