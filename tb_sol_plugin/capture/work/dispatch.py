"""Makes dispatch modes quick and scripted code countable: around look-ups of torch and TorchScript.

Before torch hands a call to a mode it asks whether somebody has registered a rule for that operator and the class of that mode
(`torch.library.register_torch_dispatch`). Nobody has for ours, but to find that out takes three functions and the entry of the operator,
all of them far away from what the step works on: half a microsecond of each call, and more behind kernels that fill the caches. While our
mode is on, the function that torch asks answers at once for our class; for all others it does what it did.

torch keeps the function itself, so its code is exchanged, and put back. Where the function is not the one that is known here, it is left
alone.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from torch import nn


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


def shorten_rule_lookup(mode: type) -> None:
    """Answer at once for a class of modes. Each call of this needs one of `restore`; all of them are for the same class."""
    with _lock:
        _users.append(mode)
        function = _function()
        if len(_users) == 1 and function is not None and _fits(function):
            _original[:] = [function.__code__]
            function.__defaults__ = (mode,)  # first: the code that is there takes no notice of it
            function.__code__ = _find.__code__


def restore_rule_lookup() -> None:
    """Ends `shorten`; with the last one the function is as it was."""
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


# -- TorchScript during a sampled step -------------------------------------------------------------------------------
# it compiles neither our hooks nor our functions, but what it would find without them.


Function = Callable[..., object]

_scripted_users: Final[set[int]] = set()
_replaced: Final[list[tuple[Function, Function]]] = []
"""While hooks are hidden: torch's function, and ours in its place."""


# --- Functions ---


def register_builtin(replacement: Function, original: Function) -> None:
    """Lets TorchScript take a function for the builtin that it replaces."""
    table = _builtins()
    name = None if table is None else table.get(id(original))
    if table is not None and name is not None:
        table[id(replacement)] = name


def unregister_builtin(replacement: Function) -> None:
    """Ends `know`; needed before the function is freed, for the table knows it by its id."""
    table = _builtins()
    if table is not None:
        table.pop(id(replacement), None)


def _builtins() -> dict[int, str] | None:
    """TorchScript's names of torch functions by identity; None where this torch keeps them otherwise. Made at first use, of originals."""
    try:
        from torch.jit import _builtins

        table = _builtins._get_builtin_table()
    except (ImportError, AttributeError):
        return None
    return table if isinstance(table, dict) else None


# --- Hooks ---


def hide_hooks(user: object, kind: type) -> None:
    """Hides hooks of this class from `torch.jit.script`, until every user has called `show_hooks`."""
    with _lock:
        _scripted_users.add(id(user))
        if _replaced:
            return
        try:
            from torch.jit import _recursive

            original = _recursive.create_script_module
        except (ImportError, AttributeError):
            return

        @functools.wraps(original)
        def create_script_module(nn_module: nn.Module, *args: object, **kwargs: object) -> object:
            with _without(nn_module, kind):
                return original(nn_module, *args, **kwargs)

        _replaced.append((original, create_script_module))
        _recursive.create_script_module = create_script_module


def show_hooks(user: object) -> None:
    """Ends `hide_hooks` once no user is left. If somebody else has replaced the function since, ours stays below theirs."""
    with _lock:
        _scripted_users.discard(id(user))
        if _scripted_users or not _replaced:
            return
        original, ours = _replaced.pop()
        if torch.jit._recursive.create_script_module is ours:
            torch.jit._recursive.create_script_module = original


@contextmanager
def _without(model: nn.Module, kind: type) -> Iterator[None]:
    """Takes the hooks of a class off a model, and puts them back: before the others those that run before a call, behind them the rest."""
    taken: list[tuple[dict[int, object], int, object, bool]] = []
    for module in model.modules():
        for hooks, first in ((module._forward_pre_hooks, True), (module._forward_hooks, False)):
            taken += [(hooks, key, hook, first) for key, hook in hooks.items() if isinstance(hook, kind)]
    for hooks, key, _, _ in taken:
        del hooks[key]
    try:
        yield
    finally:
        for hooks, key, hook, first in reversed(taken):
            hooks[key] = hook
            hooks.move_to_end(key, last=not first)  # type: ignore[attr-defined]
