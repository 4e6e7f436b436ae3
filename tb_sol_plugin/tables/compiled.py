"""Compiles loops over arrays, kept on disk where a place for them can be written, else for this process alone.

numba refuses at import a function whose compiled form it can keep nowhere: the folder of the package and the user's cache folder are both
read-only (an installation of another user, a container without a home). Such a process compiles for itself and says so once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

from numba import njit

log = logging.getLogger(__name__)


def compiled(*, forceinline: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Returns the decorator of a compiled loop that runs without the interpreter lock; forceinline: callers take in its body."""
    options = {"nogil": True, "forceinline": forceinline}

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except (RuntimeError, OSError) as error:  # numba 0.59 to 0.68: "cannot cache function 'nest': no locator available for file"
            _note(type(error).__name__)
            return njit(**options)(function)

    return decorate


@cache
def _note(kind: str) -> None:
    """Logs once per process that compiled loops are not kept."""
    log.warning("compiled loops cannot be kept (%s): every process compiles them anew; set NUMBA_CACHE_DIR to a folder to write to", kind)
