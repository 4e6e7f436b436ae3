"""A way around a look-up that torch makes in Python for every call under a dispatch mode.

Before torch hands a call to a mode it asks whether somebody has registered a rule for that operator and the class of that mode
(`torch.library.register_torch_dispatch`). Nobody has for ours, but to find that out takes three functions and the entry of the operator,
all of them far away from what the step works on: half a microsecond of each call, and more behind kernels that fill the caches. While our
mode is on, the function that torch asks answers at once for our class; for all others it does what it did.

torch keeps the function itself, so its code is exchanged, and put back. Where the function is not the one that is known here, it is left
alone.
"""

from __future__ import annotations

import threading
from types import CodeType, FunctionType
from typing import Any, Final

singleton: Any = None
"""Stands for the name in torch's module, where the code below runs."""


def _find(op: Any, torch_dispatch_class: type, ours: type | None = None) -> object:
    if torch_dispatch_class is ours:
        return None
    return singleton.find(op.__qualname__).torch_dispatch_rules.find(torch_dispatch_class)


_KNOWN: Final = (2, {"singleton", "find", "__qualname__", "torch_dispatch_rules"})
"""Number of arguments and names in the code of the function that is replaced: those of torch 2.5 and later."""
_lock: Final = threading.Lock()
_users: Final[list[type]] = []
_original: Final[list[CodeType]] = []


def shorten(mode: type) -> None:
    """Answer at once for a class of modes. Each call of this needs one of `restore`; all of them are for the same class."""
    with _lock:
        _users.append(mode)
        function = _function()
        if len(_users) == 1 and function is not None and _fits(function):
            _original[:] = [function.__code__]
            function.__defaults__ = (mode,)  # first: the code that is there takes no notice of it
            function.__code__ = _find.__code__


def restore() -> None:
    """With the last one the function is as it was."""
    with _lock:
        if _users:
            _users.pop()
        function = _function()
        if not _users and _original and function is not None:
            if function.__code__ is _find.__code__:
                function.__code__ = _original[0]
                function.__defaults__ = None
            _original.clear()


def _function() -> FunctionType | None:
    try:
        from torch._library.simple_registry import find_torch_dispatch_rule
    except ImportError:
        return None
    return find_torch_dispatch_rule if type(find_torch_dispatch_rule) is FunctionType else None


def _fits(function: FunctionType) -> bool:
    code = function.__code__
    known = (code.co_argcount, {*code.co_names}) == _KNOWN
    return known and function.__defaults__ is None and not code.co_freevars and "singleton" in function.__globals__
