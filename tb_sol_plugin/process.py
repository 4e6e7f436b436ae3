"""Settings of a process that runs nothing but this program: the command line, `tb-sol serve` and the workers that read files.

Inside TensorBoard, a notebook or a training script `claim` is never called, and nothing here but `give_back` has an effect.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import NoReturn

COLLECT_AFTER = (50_000, 20, 50)
"""New objects before a garbage collection, and collections before a wider one. Python's own 700 and 10 cost a tenth of a start."""

STARTING = (500_000, 20, 50)
"""The same until what a process needs is loaded: modules are no garbage, and looking at them costs a twentieth of the start."""

ARENAS = 1
"""Arenas of glibc that memory of all threads comes from. `give_back` leaves the end of any but the first: tens of MB after a sum."""
KEPT_FREE = 256 << 20
"""Free bytes at the end of the heap up to which glibc keeps them for the next arrays, until `give_back`. By itself it keeps some MB: each
page of the others is made anew, which takes 2 µs in a virtual machine, a tenth of the time of all pages of a trace.
"""
ROOM = 64 << 20
"""Bytes of memory that are made ahead of time: reading a trace of 50 MB and its pages take as many."""
GROWN_BY = 16 << 20
"""Bytes by which the heap grows at least."""
ON_HEAP = 32 << 20
"""Bytes of an array up to which it comes from the heap; a larger one is mapped alone, each time of new pages. The most that glibc takes."""
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8
"""Numbers of these settings in glibc's malloc.h."""

BLAS_THREADS = "OPENBLAS_NUM_THREADS"
"""Variable of the environment that OpenBLAS reads when numpy is imported: the threads it starts. They take a fifth of that import, and no
matrix here is large enough to be shared among them.
"""

HUGE_PAGES = "NUMPY_MADVISE_HUGEPAGE"
"""Variable of the environment that numpy reads when it is imported: whether it asks for pages of 2 MB for arrays above 4 MB. The kernel
clears such a page whole for each column that lives for one sum: a seventh of the time of the analyses of a trace of 1 GB.
"""

_claimed = False


def claim() -> None:
    """Says that this process is ours: garbage is collected less often, compiled loops are loaded without linear algebra, threads share one
    pool of memory, which keeps more of what is free, and numpy asks for no huge pages and no threads. Call it before numpy is imported.
    """
    global _claimed
    _claimed = True
    gc.set_threshold(*STARTING)
    os.environ.setdefault(HUGE_PAGES, "0")
    os.environ.setdefault(BLAS_THREADS, "1")
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            mallopt = ctypes.CDLL(None).mallopt
            of = {_M_ARENA_MAX: ARENAS, _M_TRIM_THRESHOLD: KEPT_FREE, _M_TOP_PAD: GROWN_BY, _M_MMAP_THRESHOLD: ON_HEAP}
            for setting, value in of.items():
                mallopt(setting, value)


def import_libraries() -> None:
    """Imports numpy, and pandas in a process that is ours without pyarrow. Call it where the stack of calls is short.

    Deep in the imports of our modules Python 3.11 goes over the end of a block of its stack thousands of times, and gets a new block from
    the system each time: 3,500 in numpy alone, 0.02 s. pandas loads pyarrow's functions for texts and columns of Arrow, 0.05 s, of which no
    table here is made; it stays importable.
    """
    importlib.import_module("numpy")
    with without("pyarrow") if _claimed else nullcontext():
        importlib.import_module("pandas")


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Lets this thread find inside the block that packages are not installed; other threads and everyone afterwards can import them."""
    finder = _Hidden(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Hidden:
    """Finds that packages are not there, for the thread that made it."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names, self._thread = names, threading.get_ident()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in self._names and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is left out", name=name)


def is_ours() -> bool:
    """Whether `claim` was called in this process."""
    return _claimed


def keep_loaded() -> None:
    """Takes what is loaded by now out of garbage collection: a full one costs 0.1 s for modules and compiled loops, which all stay.

    Python collects several times as it ends: call it before.
    """
    if _claimed:
        gc.freeze()
        gc.set_threshold(*COLLECT_AFTER)


def end(status: int) -> NoReturn:
    """Ends this process without taking its modules apart, 0.03 s with those of an analysis: the system takes back their memory at once.

    Threads are waited for, what is registered for the end of the process runs, and output is written, as at any end.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # both as `multiprocessing` ends its processes
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except Exception:  # Python says what is wrong with the output, or has changed
        sys.exit(status)
    os._exit(status)


def make_room() -> None:
    """Has the system make memory for the arrays of a first recording before it is asked for: some ten thousand pages, 2 to 3 µs each.

    Call it where nothing waits: in a server that has started, in a process that will read. In one that is not ours it does nothing.
    """
    if _claimed:
        blocks = [bytearray(ON_HEAP // 2) for _ in range(ROOM // (ON_HEAP // 2))]
        del blocks


def give_back() -> None:
    """Gives memory that is free inside of the process back to the system, where the C library is one that keeps it (glibc)."""
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
