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


class _State(Protocol):
    _is_profiler_enabled: bool


class _Asked:
    """For a torch that does not keep the state of its profiler where this file looks for it."""

    @property
    def _is_profiler_enabled(self) -> bool:
        enabled = getattr(getattr(sys.modules.get("torch"), "autograd", None), "_profiler_enabled", None)
        return bool(enabled is not None and enabled())


def profiler_state() -> _State:
    """Whose `_is_profiler_enabled` says, at the cost of a look at a variable, whether a torch profiler records. Never loads torch."""
    module = sys.modules.get("torch.autograd.profiler")
    return module if hasattr(module, "_is_profiler_enabled") else _Asked()  # type: ignore[return-value]


def profiler_active() -> bool:
    """True while a torch profiler records in this process. Never loads torch."""
    return bool(profiler_state()._is_profiler_enabled)


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
    found = None
    if nvtx:
        sys.modules["torch"].cuda.nvtx.range_push(name)
    if profiler_active():
        found = sys.modules["torch.autograd.profiler"].record_function(name)
        found.__enter__()
    return (nvtx, found) if nvtx or found is not None else None


def close_mark(mark: Mark | None) -> None:
    """Close what `open_mark` opened."""
    if mark is None:
        return
    pushed, found = mark
    if found is not None:
        found.__exit__(None, None, None)
    if pushed:
        sys.modules["torch"].cuda.nvtx.range_pop()
