"""Compiles loops over arrays and keeps them on disk: beside the package, in the user's cache folder, else in a private temporary folder.

numba is imported with the first loop that runs compiled: of a small table many loops run in numpy or as plain Python, and a command that
needs no other is done in the time that the import would take.

numba refuses at import a function whose compiled form it can keep nowhere: the folder of the package and the user's cache folder are both
read-only (an installation of another user, a container without a home). Such processes share a folder of the system's temporary one that
this user alone may open; without that, each compiles for itself, some ten seconds, and says so once.
"""

from __future__ import annotations

import importlib
import logging
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, update_wrapper
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.process import is_ours, without

log = logging.getLogger(__name__)


_making = threading.RLock()
SETTINGS: Final = ".numba_config.yaml"
"""Where numba finds its settings, in the folder where the process runs."""
IMPORT: Final = 10
"""Times as much as a loaded loop that the import of numba costs, which the first loop of a process that is loaded pays."""


class Loop:
    """A loop that is compiled, or loaded as it was compiled before, when it is called first.

    py_func: the plain function. plain: what runs in its place where loading does not pay.
    """

    def __init__(self, function: Callable[..., Any], *, forceinline: bool, plain: Callable[..., Any] | None = None) -> None:
        self.py_func = function
        self._plain = plain or function
        self._options = {"nogil": True, "forceinline": forceinline}
        self._made: Any = None
        self._ran_plain = 0
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        return (self._made or self._make())(*arguments)

    @property
    def signatures(self) -> list[Any]:
        """The types of arguments that it has been compiled or loaded for in this process."""
        return self._made.signatures if self._made else []

    @property
    def loaded(self) -> bool:
        """Whether it has been compiled or loaded in this process, for any types of arguments."""
        return self._made is not None and bool(self._made.overloads)

    def of(self, size: int, pays: int) -> Any:
        """Returns the compiled loop where it is loaded already, or `size` is above `pays`, where loading it pays; else the plain one.

        A process that has run the plain one over as much, in small pieces, loads it too; `IMPORT` times as much before numba is there.
        """
        if size > pays or self._ran_plain > (1 if "numba" in sys.modules else IMPORT) * pays or self.loaded:
            return self
        self._ran_plain += size
        return self._plain

    @property
    def _numba_type_(self) -> Any:
        """What numba takes this for where another loop calls it."""
        return (self._made or self._make())._numba_type_

    def _make(self) -> Any:
        """Returns numba's own form of the loop; threads that ask at the same time get the same one."""
        with _making:
            if self._made is None:
                self._made = _jit(self.py_func, self._options)
            return self._made


def compiled(*, forceinline: bool = False, plain: Callable[..., Any] | None = None) -> Callable[[Callable[..., Any]], Any]:
    """Returns the decorator of a compiled loop that runs without the interpreter lock.

    forceinline: callers take in its body. plain: returns the same in numpy, for few rows (default: the loop as it is written).
    """
    return lambda function: Loop(function, forceinline=forceinline, plain=plain)


def _jit(function: Callable[..., Any], options: dict[str, bool]) -> Any:
    """Returns a function as numba compiles it, kept on disk where that can be."""
    import_numba()
    from numba import njit

    if is_ours():
        _load_alone()
    try:
        if not _homeless():
            return njit(cache=True, **options)(function)
    except (RuntimeError, OSError):  # numba 0.59 to 0.68: "cannot cache function 'nest': no locator available for file"
        pass
    folder = private_folder()
    try:
        if folder:
            with _kept_in(folder):
                return njit(cache=True, **options)(function)
    except (RuntimeError, OSError) as error:
        log.debug("%s", error)
    _note_lost()
    return njit(**options)(function)


def fixed(values: npt.ArrayLike, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Returns values as a compiled loop takes what it only reads: contiguous, of one type, read-only.

    pandas hands out arrays of which some may be written to and some not; numba compiles and loads a loop once for each mixture of them.
    """
    if type(values) is np.ndarray and (values.dtype.type is dtype or values.dtype == dtype) and values.flags.c_contiguous:
        if not values.flags.writeable:
            return values
        out = values.view()
    else:
        out = np.ascontiguousarray(values, dtype).view()
    out.setflags(write=False)
    return out


@cache
def import_numba() -> None:
    """Imports numba; in a process that is ours without YAML and scipy, which it needs for a settings file and to tell scipy's version.

    Both stay importable: by other threads meanwhile, and by everyone afterwards.
    """
    if not is_ours():
        importlib.import_module("numba")
        return
    with without("scipy") if os.path.isfile(SETTINGS) else without("scipy", "yaml"):
        importlib.import_module("numba")


@cache
def _load_alone() -> None:
    """Lets numba load what it kept on disk without what it needs to compile: 0.15 s for all the functions and operators that it knows.

    Only for a process that is ours. What is not on disk is compiled as before: numba gets ready for that by itself, without `scipy.linalg`.
    Loading is under its lock, so that no other thread compiles meanwhile. What is loaded has its own copy of numba's functions of
    reference counts, and finds the rest by name. Costs nothing where numba has changed: then it loads as before.
    """
    try:
        from llvmlite.binding import add_symbol
        from numba.core.caching import Cache
        from numba.core.cpu import CPUContext
        from numba.core.runtime._nrt_python import c_helpers

        load, ready, register = Cache.load_overload, CPUContext.refresh, CPUContext.load_additional_registries
        helpers = {name if name.startswith("_") else f"NRT_{name}": address for name, address in c_helpers.items()}
    except (ImportError, AttributeError) as error:
        log.debug("%r", error)
        return

    def load_overload(self: Any, signature: Any, context: Any) -> Any:
        CPUContext.refresh = add_helpers
        try:
            return load(self, signature, context)
        except Exception as error:  # numba has changed
            log.debug("%r", error)
        finally:
            CPUContext.refresh = ready
        return load(self, signature, context)

    def add_helpers(context: Any) -> None:
        while helpers:
            add_symbol(*helpers.popitem())

    def load_additional_registries(context: Any) -> Any:
        without_linear_algebra()
        return register(context)

    Cache.load_overload = load_overload
    CPUContext.load_additional_registries = load_additional_registries


@cache
def without_linear_algebra() -> None:
    """Keeps numba from loading `scipy.linalg` when it compiles: 0.2 s and 15 MB for matrix products, of which no loop here has one.

    Only for a process that is ours: `np.cov` and `np.corrcoef` are not there for compiled functions after this. Costs nothing where numba
    has changed: then `scipy.linalg` is loaded as before.
    """
    try:
        import numba.np.linalg as linear_algebra

        look = linear_algebra.ensure_blas
        linear_algebra.ensure_blas = _absent
        try:
            importlib.import_module("numba.np.arraymath")
        finally:
            linear_algebra.ensure_blas = look
    except (ImportError, AttributeError) as error:
        log.debug("%s", error)


def _absent() -> None:
    raise ImportError("this process multiplies no matrices in compiled loops")


def _homeless() -> bool:
    """Whether this user has no home: numba would then make a folder named `~` where the process runs."""
    from numba import config

    return not config.CACHE_DIR and not os.path.isabs(os.path.expanduser("~"))


@contextmanager
def _kept_in(folder: str) -> Iterator[None]:
    """Lets numba keep what is decorated inside the block in a folder; what others decorate goes where it went."""
    from numba import config

    before, config.CACHE_DIR = config.CACHE_DIR, folder
    try:
        yield
    finally:
        config.CACHE_DIR = before


@cache
def private_folder() -> str:
    """Returns a folder for compiled loops in the system's temporary one, made if need be; "" where there is none that is safe.

    Compiled code is run as it is found: the folder must be no link, and belong to this user alone.
    """
    if not hasattr(os, "getuid"):
        return ""
    folder = os.path.join(tempfile.gettempdir(), f"tb-sol-compiled-{os.getuid()}")
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    except OSError:
        return ""
    try:
        found = os.lstat(folder)
    except OSError:
        return ""
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077 or not os.access(folder, os.W_OK | os.X_OK):
        log.warning("%s is not this user's alone: compiled loops are not kept there", folder)
        return ""
    log.info("compiled loops are kept in %s: neither the package nor the user's cache folder can be written to", folder)
    return folder


@cache
def _note_lost() -> None:
    """Logs once per process that compiled loops are not kept."""
    log.warning("compiled loops cannot be kept: every process compiles them anew; set NUMBA_CACHE_DIR to a folder to write to")
