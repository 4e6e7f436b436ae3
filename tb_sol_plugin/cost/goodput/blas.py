"""Limits the threads of the linear algebra below scipy while a fit runs.

A search over seven parameters factorizes matrices of 40 rows and less, some thousand times a second. OpenBLAS wakes a thread for each,
which costs more than the work: a fit takes twice as long on a quiet machine, and 25 times on one whose cores have other work.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

_NAMES: Final = tuple(f"{prefix}openblas_{{}}_num_threads{ending}" for prefix in ("scipy_", "") for ending in ("", "64_"))
"""What OpenBLAS calls its two functions in the wheels of scipy, old and new, and in distributions."""
_lock: Final = threading.Lock()
_inside = 0
_before = 0


@contextmanager
def one_thread() -> Iterator[None]:
    """Lets scipy's OpenBLAS use one thread inside the block, and as many as before after the last of several blocks at once.

    Without effect where scipy is built with something else, or the library cannot be asked.
    """
    global _inside, _before
    functions = _threads()
    if functions is None:
        yield
        return
    get, set_to = functions
    with _lock:
        if not _inside:
            _before = get()
            set_to(1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                set_to(_before)


@cache
def _threads() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """Returns the functions that tell and set the number of threads, found in a module of scipy that is linked to the library."""
    from scipy.linalg import cython_blas

    try:
        linked = ctypes.CDLL(cython_blas.__file__)
    except OSError:
        return None
    for name in _NAMES:
        get, set_to = (getattr(linked, name.format(verb), None) for verb in ("get", "set"))
        if get is not None and set_to is not None:
            get.argtypes, get.restype, set_to.argtypes, set_to.restype = [], ctypes.c_int, [ctypes.c_int], None
            return get, set_to
    return None
