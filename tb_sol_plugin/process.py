"""Settings of a process that runs nothing but this program: the command line, `tb-sol serve` and the workers that read files.

Inside TensorBoard, a notebook or a training script `claim` is never called, and nothing here but `give_back` has an effect.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress

COLLECT_AFTER = (50_000, 20, 50)
"""New objects before a garbage collection, and collections before a wider one. Python's own 700 and 10 cost a tenth of a start."""

ARENAS = 1
"""Arenas of glibc that memory of all threads comes from. `give_back` leaves the end of any but the first: tens of MB after a sum."""
_M_ARENA_MAX = -8
"""Number of that setting in glibc's malloc.h."""

_claimed = False


def claim() -> None:
    """Says that this process is ours: garbage is collected less often, compiled loops are loaded without linear algebra, and threads share
    one pool of memory.
    """
    global _claimed
    _claimed = True
    gc.set_threshold(*COLLECT_AFTER)
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, ARENAS)


def is_ours() -> bool:
    """Whether `claim` was called in this process."""
    return _claimed


def keep_loaded() -> None:
    """Takes what is loaded by now out of garbage collection: a full one costs 0.1 s for modules and compiled loops, which all stay.

    Python collects several times as it ends: call it before.
    """
    if _claimed:
        gc.freeze()


def give_back() -> None:
    """Gives memory that is free inside of the process back to the system, where the C library is one that keeps it (glibc)."""
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
