"""Marks of a phase for profilers that watch the process: an NVTX range, and a range in a running torch.profiler.

Without a profiler a mark costs a test of one variable.
"""

from __future__ import annotations

import sys
from typing import Protocol


class _Open(Protocol):
    def __exit__(self, kind: object, error: object, trace: object, /) -> object: ...


Mark = tuple[bool, "_Open | None"]
"""An open mark: whether an NVTX range was pushed, and the open range of torch.profiler."""


def profiler_active() -> bool:
    """True while a torch profiler records in this process. Never loads torch."""
    module = sys.modules.get("torch.autograd.profiler")
    if module is None:
        return False
    return bool(getattr(module, "_is_profiler_enabled", False))


def nvtx_usable() -> bool:
    """True if a CUDA device is in use, so that NVTX ranges make sense. Never loads torch, never initialises CUDA."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    try:
        return bool(cuda is not None and cuda.is_initialized() and hasattr(cuda, "nvtx"))
    except Exception:
        return False


def open_mark(name: str, nvtx: bool) -> Mark | None:
    """Open the ranges of a phase; None where nobody listens."""
    module = sys.modules.get("torch.autograd.profiler")
    listening = module is not None and getattr(module, "_is_profiler_enabled", False)
    if not (nvtx or listening):
        return None
    pushed, found = False, None
    if nvtx:
        sys.modules["torch"].cuda.nvtx.range_push(name)
        pushed = True
    if listening and module is not None:
        found = module.record_function(name)
        found.__enter__()
    return pushed, found


def close_mark(mark: Mark | None) -> None:
    """Close what `open_mark` opened."""
    if mark is None:
        return
    pushed, found = mark
    if found is not None:
        found.__exit__(None, None, None)
    if pushed:
        sys.modules["torch"].cuda.nvtx.range_pop()
