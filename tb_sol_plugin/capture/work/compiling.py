"""Says where torch.compile is at work, lets compiled code run eagerly while it is counted, and keeps compilations out of traces.

Left to itself, torch.compile gives up for good on every function that is called under a dispatch mode (torch 2.13: its frame is marked
to be skipped and stays eager for the rest of the process), and compiles again whatever is called with hooks or replaced functions. While
a step is sampled, compiled code therefore runs eagerly, and is the same compiled code afterwards.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FunctionType
from typing import Any, Final, Literal

_lock: Final = threading.Lock()


# -- what is compiled ------------------------------------------------------------------------------------------------


def torch_compile_used() -> bool:
    """Returns whether torch.compile was used in this process; also True where that is unknown."""
    backends = _backends()
    # every optimizer of torch before 2.6 is kept from being compiled, which notes the backend None
    return not isinstance(backends, dict) or any(backend is not None and backend is not False for backend in backends.values())


def _backends() -> object:
    """Returns what the compiler was set up with so far; empty where it is not loaded, None where this torch keeps it elsewhere."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    return {} if frames is None else getattr(frames, "cached_backends", None)


def compilers_made() -> int:
    """Returns how often torch.compile was set up with a backend of its own so far; while it stays the same, nothing new was compiled."""
    backends = _backends()
    return len(backends) if isinstance(backends, dict) else -1


def compiled_around(modules: set[int]) -> Literal["", "wrapper", "function"]:
    """Returns what the script has compiled that may run these modules: a wrapper of one of them, a function of its own, or nothing.

    modules: ids. For a model that is tracked as it is, while its compiled wrapper or a compiled function that calls it is what runs. Looks
    through all objects of the process, some 0.1 s, only where torch.compile was used.
    """
    if not torch_compile_used():
        return ""
    found: Literal["", "wrapper", "function"] = ""
    for one in gc.get_objects():
        if type(one) is FunctionType:
            original = one.__dict__.get("_torchdynamo_orig_callable")
            if original is not None and not one.__dict__.get("_torchdynamo_disable") and not _is_torchs(original):
                found = "function"
        elif type(one).__name__ == "OptimizedModule" and any(id(module) in modules for module in one.modules()):
            return "wrapper"
    return found


def _is_torchs(function: object) -> bool:
    return str(getattr(function, "__module__", "") or "").partition(".")[0] == "torch"


# -- while a step is sampled -----------------------------------------------------------------------------------------


_eager_users: Final[set[int]] = set()
_stance_set: Final[list[tuple[AbstractContextManager[object], object]]] = []
"""While somebody uses it: what ends the stance, and the stance as it was set."""
_asked: Final[list[int]] = [0]
"""How often compiled code was called that ran eagerly instead."""
_replaced: Final[list[tuple[Callable[..., object], Callable[..., object]]]] = []
"""While the stance is set: torch's function that every call of compiled code asks what to run, and ours in its place."""


def can_run_eagerly() -> bool:
    """Returns whether compiled code can be made to run eagerly; where it cannot (torch before 2.6), nothing may be recorded."""
    import torch

    return hasattr(torch.compiler, "set_stance") or not torch_compile_used()


def force_eager(user: object) -> None:
    """Makes compiled functions of the process run eagerly, and lets none be compiled, until every user has called `release_eager`.

    Never raises: where there is no compiler for this Python or platform, nothing is compiled.
    """
    import torch

    with _lock:
        _eager_users.add(id(user))
        make = getattr(torch.compiler, "set_stance", None)
        if make is None or _stance_set:
            return
        try:
            _stance_set.append((make("force_eager"), _stance()))
        except (ImportError, RuntimeError):
            return
        _notice_calls()


def release_eager(user: object) -> None:
    """Ends what `force_eager` began, once no user is left. A stance that somebody else has set since then stays."""
    with _lock:
        _eager_users.discard(id(user))
        if _eager_users or not _stance_set:
            return
        stance, ours = _stance_set.pop()
        _stop_noticing()
        if _stance() is ours:
            stance.__exit__(None, None, None)


def _notice_calls() -> None:
    """Counts the calls of compiled code, wherever they are made from."""
    frames: Any = sys.modules.get("torch._dynamo.eval_frame")
    ask = getattr(frames, "_callback_from_stance", None)
    if type(ask) is not FunctionType:
        return

    def noticed(callback: object, *rest: object) -> object:
        if callback is not None and callback is not False:  # neither kept from being compiled, nor limited to what is compiled
            _asked[0] += 1
        return ask(callback, *rest)

    _replaced.append((ask, noticed))
    frames._callback_from_stance = noticed


def _stop_noticing() -> None:
    frames: Any = sys.modules.get("torch._dynamo.eval_frame")
    while _replaced:
        original, ours = _replaced.pop()
        if getattr(frames, "_callback_from_stance", None) is ours:
            frames._callback_from_stance = original


class CompiledEagerly:
    """Runs compiled functions eagerly from enter to exit. It goes around hooks, replaced functions and the dispatch mode.

    ran: whether there was compiled code to run since the last `enter`.
    """

    def __init__(self) -> None:
        self.ran = False
        self._before = 0

    def __enter__(self) -> CompiledEagerly:
        self.ran = False
        force_eager(self)
        self._before = _asked[0]
        return self

    def __exit__(self, *exception: object) -> None:
        self.ran = _asked[0] > self._before
        release_eager(self)


def _stance() -> object:
    """Returns the compiler's stance; None where this torch keeps it elsewhere."""
    return getattr(sys.modules.get("torch._dynamo.eval_frame"), "_stance", None)


# -- while an iteration is traced ------------------------------------------------------------------------------------


class CompilationStarts:
    """Calls a function as soon as torch.compile begins to compile something, from `watch` to `leave`.

    Recorded with its Python frames a compilation takes gigabytes, and hides the iteration that it happens in.
    """

    def __init__(self, begun: Callable[[], None]) -> None:
        self._begun = begun
        self._handler: Any = None

    def watch(self) -> None:
        """Begin. Does nothing where the compiler is not loaded, or this torch has no such callbacks."""
        self.leave()
        handler: Any = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
        if hasattr(handler, "register_start_callback"):
            self._handler = handler
            handler.register_start_callback(self._called)

    def leave(self) -> None:
        """End. Safe at any time, also from inside of the call."""
        handler, self._handler = self._handler, None
        if handler is not None:
            # a new list: torch may be walking through the present one
            handler.start_callbacks = [one for one in handler.start_callbacks if one != self._called]

    def _called(self, *_: object) -> None:
        self._begun()
