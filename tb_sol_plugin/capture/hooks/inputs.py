"""Sizes of the inputs of the outermost modules in a sampled step, and which of their calls evaluate in a loop that trains."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import torch

from tb_sol_plugin.capture.loop.guard import Clock
from tb_sol_plugin.capture.loop.labels import NONE
from tb_sol_plugin.capture.loop.phases import PhaseStack

DEPTH: Final = 3
"""How deep tensors are looked for in a model's inputs."""
EVALUATION: Final = "evaluation"
"""Phase of calls that train nothing, of a model that is trained, where the script has no phase of its own around them."""


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

    def __call__(self, module: object, args: tuple[object, ...], kwargs: dict[str, object], *output: object) -> None:
        if torch.jit.is_tracing() or torch.compiler.is_compiling():
            return
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
