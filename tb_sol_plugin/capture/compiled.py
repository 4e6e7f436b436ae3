"""Compiled code while a step is sampled: it runs eagerly for that step, and is the same compiled code afterwards.

Left to itself, torch.compile gives up for good on every function that is called under a dispatch mode (torch 2.13: its frame is marked
to be skipped and stays eager for the rest of the process), and compiles again whatever is called with hooks or replaced functions.
"""

from __future__ import annotations

import sys
import threading
from contextlib import AbstractContextManager
from typing import Final

_lock: Final = threading.Lock()
_holders: Final[set[int]] = set()
_held: Final[list[tuple[AbstractContextManager[object], object]]] = []
"""While held: what ends it, and the compiler's stance as it was set."""


def possible() -> bool:
    """False where something is compiled that cannot be made to run eagerly (torch before 2.6): then nothing may be watched."""
    import torch

    return hasattr(torch.compiler, "set_stance") or not something_compiled()


def something_compiled() -> bool:
    """Whether torch.compile was used in this process; also True where that cannot be told."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    if frames is None:
        return False
    backends = getattr(frames, "cached_backends", None)
    # every optimizer of torch before 2.6 is kept from being compiled, which notes the backend None
    return not isinstance(backends, dict) or any(backend is not None and backend is not False for backend in backends.values())


def hold_eager(holder: object) -> None:
    """From now on compiled functions of the process run eagerly, and none is compiled, until every holder has released.

    Never raises: where there is no compiler for this Python or platform, nothing is compiled.
    """
    import torch

    with _lock:
        _holders.add(id(holder))
        make = getattr(torch.compiler, "set_stance", None)
        if make is None or _held:
            return
        try:
            _held.append((make("force_eager"), _stance()))
        except (ImportError, RuntimeError):
            return


def release_eager(holder: object) -> None:
    """Ends what `hold_eager` began, once no holder is left. A stance that somebody else has set since then stays."""
    with _lock:
        _holders.discard(id(holder))
        if _holders or not _held:
            return
        stance, ours = _held.pop()
        if _stance() is ours:
            stance.__exit__(None, None, None)


class CompiledEagerly:
    """Holds from enter to exit. It goes around hooks, replaced functions and the dispatch mode."""

    possible = staticmethod(possible)

    def __enter__(self) -> CompiledEagerly:
        hold_eager(self)
        return self

    def __exit__(self, *exception: object) -> None:
        release_eager(self)


def _stance() -> object:
    """The compiler's stance; None where this torch keeps it elsewhere."""
    return getattr(sys.modules.get("torch._dynamo.eval_frame"), "_stance", None)
