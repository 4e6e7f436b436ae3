"""TorchScript beside a sampled step: it compiles neither our hooks nor our functions, but what it would find without them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from torch import nn

Function = Callable[..., object]

_lock: Final = threading.Lock()
_users: Final[set[int]] = set()
_replaced: Final[list[tuple[Function, Function]]] = []
"""While hooks are hidden: torch's function, and ours in its place."""


# --- Functions ---


def know(replacement: Function, original: Function) -> None:
    """Lets TorchScript take a function for the builtin that it replaces."""
    table = _builtins()
    name = None if table is None else table.get(id(original))
    if table is not None and name is not None:
        table[id(replacement)] = name


def forget(replacement: Function) -> None:
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
    """From now on `torch.jit.script` does not see hooks of this class, until every user has called `show_hooks`."""
    with _lock:
        _users.add(id(user))
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
        _users.discard(id(user))
        if _users or not _replaced:
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
