"""Sizes of the inputs of the outermost modules, and which of their calls evaluate in a loop that trains."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import torch

from tb_sol_plugin.capture.layer_hooks import OwnHook
from tb_sol_plugin.capture.loop.guard import Clock
from tb_sol_plugin.capture.loop.labels import NONE
from tb_sol_plugin.capture.loop.phases import PhaseStack
from tb_sol_plugin.capture.work import dispatch

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

DEPTH: Final = 3
"""How deep tensors are looked for in a model's inputs."""
EVALUATION: Final = "evaluation"
"""Phase of calls that train nothing, of a model that is trained, where the script has no phase of its own around them."""


_is_tracing: Final[Callable[[], bool]] = getattr(torch._C, "_is_tracing", torch.jit.is_tracing)
"""What `torch.jit.is_tracing` asks, without two calls in Python on the way."""


class InputSizes:
    """Notes the sizes of the inputs of the outermost modules, and tells evaluation from training. Keeps no tensors.

    It is the hook before their calls, and the one behind them, which also runs when a call raised.

    A call under `no_grad` or `inference_mode`, or of a model in `eval()`, trains nothing. In an iteration that trains as well such calls
    are evaluation: they are no part of its signature, samples and tokens, and their time is kept apart.

    samples, tokens: of calls that train on a batch of token ids, [samples, length] integers; None where there is no such call.
    ids: (samples, length) of each such call. calls: sizes of the calls that train; apart: of the others.
    """

    def __init__(self, clock: Clock, phases: PhaseStack) -> None:
        self._clock, self._phases = clock, phases
        self._trains = False
        self.clear()

    def clear(self) -> None:
        """Forget what was noted."""
        self.calls: list[tuple[object, ...]] = []
        self.apart: list[tuple[object, ...]] = []
        self.samples: int | None = None
        self.tokens: int | None = None
        self.ids: list[tuple[int, int]] = []
        self._depth = self._apart_ns = 0
        self._since: int | None = None
        self._until = 0
        self._pushed = False

    def __call__(self, module: object, args: tuple[object, ...], *rest: object) -> None:
        """Note a call: rest has keyword arguments, and what it returned once it did. A hook that another thread takes off has less."""
        if torch.jit.is_tracing() or torch.compiler.is_compiling() or not rest:
            return
        kwargs, *output = rest
        if output:
            self._ended()
            return
        training = torch.is_grad_enabled() and bool(getattr(module, "training", False))
        with contextlib.suppress(Exception):  # a tensor without sizes (nested, not materialized) is left out
            tensors = list(tensors_in([args, kwargs], DEPTH))
            (self.calls if training else self.apart).append(tuple((tuple(map(int, t.shape)), str(t.dtype)) for t in tensors))
            if tensors and training:
                ids = tensors[0]
                if ids.ndim == 2 and ids.dtype in (torch.int64, torch.int32):
                    self.samples = (self.samples or 0) + int(ids.shape[0])
                    self.tokens = (self.tokens or 0) + int(ids.numel())
                    self.ids.append((int(ids.shape[0]), int(ids.shape[1])))
        if self._depth == 0:
            self._begins(training)
        self._depth += 1

    def _ended(self) -> None:
        if not self._depth:
            return
        self._depth -= 1
        if self._depth == 0 and self._since is not None:
            self._until = self._clock.now()
            if self._pushed:
                self._pushed = False
                self._phases.pop()

    def _begins(self, training: bool) -> None:
        if training:
            self._trains = True
            self._close()
            return
        if self._since is None:
            self._since = self._clock.now()
        if self._trains and self._phases.top == NONE:
            self._pushed = True
            self._phases.push(EVALUATION)

    def _close(self) -> None:
        if self._since is not None:
            self._apart_ns += max(self._until - self._since, 0)
            self._since = None

    @property
    def evaluation_ns(self) -> int:
        """Time from the first to the last call of each stretch of evaluation; 0 in an iteration that does not train, or does only that."""
        self._close()
        return self._apart_ns if self.calls else 0

    @property
    def signature(self) -> str:
        calls = self.calls or self.apart
        return short_hash(calls) if calls else ""

    def __deepcopy__(self, memo: object) -> Callable[..., object]:
        return _NOTHING

    def __reduce__(self) -> tuple[object, ...]:
        return getattr, (contextlib.nullcontext, "__exit__")


class InputWatch(OwnHook):
    """Notes the sizes of the inputs of the outermost modules in iterations that are not sampled: one hook per model, a µs or two per call.

    seen: of each call of the iteration whether it trains, and size and type of each of its tensors; at most MOST_CALLS. Keeps no tensors.
    """

    __slots__ = ("_handles", "_known", "seen")

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self._handles: list[RemovableHandle] = []
        self._known: dict[tuple[Seen, ...], Inputs] = {}

    @property
    def on(self) -> bool:
        """Whether the hooks are on a model."""
        return bool(self._handles)

    def attach(self, models: Sequence[object]) -> None:
        """Put a hook on each of these models that takes one."""
        for model in models:
            register = getattr(model, "register_forward_pre_hook", None)
            if register is not None and not isinstance(model, torch.jit.ScriptModule):
                self._handles.append(register(self, with_kwargs=True))
        if self._handles:
            dispatch.hide_hooks(self, OwnHook)

    def remove(self) -> None:
        """Take the hooks off, and forget what they noted."""
        for handle in self._handles:
            handle.remove()
        if self._handles:
            dispatch.show_hooks(self)
        self._handles.clear()
        self.seen.clear()

    def __call__(self, module: object, args: tuple[object, ...], kwargs: dict[str, object] | None = None) -> None:
        """Note a call. kwargs: None where another thread takes the hook off meanwhile."""
        if torch.compiler.is_compiling() or _is_tracing():
            return
        seen = self.seen
        if len(seen) >= MOST_CALLS:
            return
        try:  # a context manager, as in `InputSizes`, would be a third of the time of a call
            sizes: list[object] = [torch.is_grad_enabled() and bool(getattr(module, "training", False))]
            for one in (*args, *kwargs.values()) if kwargs else args:
                if isinstance(one, torch.Tensor):
                    sizes += (one.shape, one.dtype)
                elif one is not None:
                    for tensor in tensors_in(one, DEPTH - 2):
                        sizes += (tensor.shape, tensor.dtype)
            seen.append(tuple(sizes))
        except Exception:  # a tensor without sizes (nested, not materialized) is left out
            return

    def inputs(self) -> Inputs | None:
        """Return what the calls of the iteration say of its work; None where there were none, or too many."""
        if not self.seen or len(self.seen) >= MOST_CALLS:
            return None
        key = tuple(self.seen)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            found = self._known[key] = inputs_of(key)
        return found


Seen: TypeAlias = "tuple[object, ...]"
"""Of one call: whether it trains, then size and type of each tensor in turn."""
Inputs: TypeAlias = "tuple[str, int | None, int | None]"
"""Signature, samples and tokens of an iteration."""
MOST_CALLS: Final = 4096
MOST_KNOWN: Final = 256


def inputs_of(seen: Sequence[Seen]) -> Inputs:
    """Return signature, samples and tokens of calls as `InputSizes` has them for the same calls: of those that train, else of all."""
    calls = [call for call in seen if call[0]] or seen
    samples: int | None = None
    tokens: int | None = None
    listed = []
    for call in calls:
        try:
            sizes = [(tuple(map(int, shape)), dtype) for shape, dtype in zip(call[1::2], call[2::2], strict=True)]  # type: ignore[call-overload]
        except (TypeError, ValueError, RuntimeError):  # a size that is no number
            continue
        listed.append(tuple((shape, str(dtype)) for shape, dtype in sizes))
        if sizes and call[0] and len(sizes[0][0]) == 2 and sizes[0][1] in (torch.int64, torch.int32):
            rows, length = sizes[0][0]
            samples, tokens = (samples or 0) + rows, (tokens or 0) + rows * length
    return short_hash(listed), samples, tokens


_NOTHING: Final[Callable[..., object]] = contextlib.nullcontext.__exit__
"""Takes any arguments and does nothing: what becomes of our hook in a copy of a model. It is in every Python, so pickles can name it."""


def tensors_in(value: object, depth: int) -> Iterable[torch.Tensor]:
    """Yield the tensors in nested lists, tuples and mappings, down to `depth` levels below the outermost."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth >= 0 and isinstance(value, Mapping):
        for one in value.values():
            yield from tensors_in(one, depth - 1)
    elif depth >= 0 and isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_in(one, depth - 1)


def short_hash(value: object) -> str:
    """Return twelve hexadecimal digits that stand for the text of a value."""
    return hashlib.sha1(repr(value).encode(), usedforsecurity=False).hexdigest()[:12]
