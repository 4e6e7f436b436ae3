"""Takes hooks of the recorder off a model that is about to become CUDA graphs: torch refuses to graph a module with hooks."""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

from tb_sol_plugin.capture.loop.guard import log

NAME: Final = "make_graphed_callables"
STEPPED_ASIDE: Final = (
    "the recorder took its hooks off the model, since torch.cuda.make_graphed_callables refuses a module with hooks; an iteration that was "
    "being counted is given up, and the next one is counted. What a graph replays cannot be counted, and is unknown"
)

_watching: Final[weakref.WeakSet[GraphedCallables]] = weakref.WeakSet()
_replaced: Final[list[tuple[Any, Callable[..., object], Callable[..., object]]]] = []
"""Module, what stood there, and what stands there now."""
_lock: Final = threading.Lock()


class GraphedCallables:
    """Calls a function before `torch.cuda.make_graphed_callables` runs, from `watch` to `leave`, in a torch built with CUDA or ROCm.

    That function of torch is replaced as long as one of these watches. Not seen: who has imported it by name before, and the function of
    that name of another library.

    step_aside: takes all hooks off, and answers whether there were any.
    """

    def __init__(self, step_aside: Callable[[], bool], note: Callable[[str, str], None]) -> None:
        self._step_aside, self._note = step_aside, note
        self._warned = False

    def watch(self) -> None:
        """Begin. Begun before, this does nothing."""
        torch = sys.modules.get("torch")
        if torch is not None and torch.backends.cuda.is_built():
            with _lock:
                _watching.add(self)
                if not _replaced:
                    _replace(torch)

    def leave(self) -> None:
        """End."""
        with _lock:
            _watching.discard(self)
            if not _watching:
                _restore()

    def called(self) -> None:
        """Take the hooks off. Never raises."""
        try:
            if self._step_aside():
                self._note("graphed", STEPPED_ASIDE)
                if not self._warned:
                    self._warned = True
                    log.warning("SOL capture: %s", STEPPED_ASIDE)
        except Exception:
            log.debug("SOL capture: stepping aside for graphed callables failed", exc_info=True)


def _replace(torch: Any) -> None:
    for module in (torch.cuda, getattr(torch.cuda, "graphs", None)):
        original = getattr(module, NAME, None)
        if original is not None:
            replacement = _before(original)
            setattr(module, NAME, replacement)
            _replaced.append((module, original, replacement))


def _before(original: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(original)
    def make_graphed_callables(*args: object, **kwargs: object) -> object:
        for one in tuple(_watching):
            one.called()
        return original(*args, **kwargs)

    return make_graphed_callables


def _restore() -> None:
    for module, original, replacement in _replaced:
        if getattr(module, NAME, None) is replacement:
            setattr(module, NAME, original)
    _replaced.clear()
