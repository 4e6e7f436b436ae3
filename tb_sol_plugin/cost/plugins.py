"""Loads cost models of other packages, found through the entry point group `tb_sol_plugin.cost_models`.

An entry point names a module, whose import registers models, or a callable, which is called without arguments:

    from tb_sol_plugin.cost import Cost, Inputs, model

    @model("my_ext::gemm", kind="gemm")
    def gemm(call: Inputs) -> Cost | None: ...

A plugin that cannot be loaded, and a formula that fails, cost themselves only: a warning names them, the operator has no model.
"""

from __future__ import annotations

import math
import threading
import warnings
from importlib.metadata import EntryPoint, entry_points
from typing import Final

import msgspec

from tb_sol_plugin.cost.inputs import Inputs
from tb_sol_plugin.cost.model import Cost, Model, everything, registering, unknown

GROUP: Final = "tb_sol_plugin.cost_models"


class Plugin(msgspec.Struct, frozen=True):
    """An entry point. models: names and patterns it registered. error: why it could not be loaded, "" if it was."""

    name: str
    value: str
    models: tuple[str, ...] = ()
    error: str = ""


_LOCK: Final = threading.RLock()
_LOADED: Final[list[Plugin]] = []
_STATE: Final = {"started": False}


def load() -> tuple[Plugin, ...]:
    """Load every installed plugin, once per process, in order of their names; warns of each that fails.

    Other threads wait for the first one. A plugin that asks for a cost while it is loaded sees what is registered by then.
    """
    with _LOCK:
        if not _STATE["started"]:
            _STATE["started"] = True
            for point in sorted(entry_points(group=GROUP), key=lambda p: (p.name, p.value)):
                _LOADED.append(_load(point))
        return tuple(_LOADED)


def forget() -> None:
    """Look for plugins again at the next use; what they registered stays."""
    with _LOCK:
        _STATE["started"] = False
        _LOADED.clear()


def _load(point: EntryPoint) -> Plugin:
    try:
        with registering(point.name):
            found = point.load()
            if callable(found):
                found()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        warnings.warn(f"cost models of the plugin {point.name!r} ({point.value}) are left out: {reason}", RuntimeWarning, stacklevel=3)
        return Plugin(point.name, point.value, error=reason)
    return Plugin(point.name, point.value, tuple(name for name, _, model in everything() if model.plugin == point.name))


def run(model: Model, call: Inputs) -> Cost | None:
    """Returns the answer of a model, checked: one that fails, or gives work that is no number of at least 0, has none."""
    try:
        found = model.formula(call)
    except Exception as error:
        return _failed(model, f"{type(error).__name__}: {error}")
    if found is None:
        return None
    if not isinstance(found, Cost):
        return _failed(model, f"its answer is a {type(found).__name__}, not a Cost")
    for name in ("flop", "flop_dense", "flop_again", "flop_vector", "bytes"):
        value = getattr(found, name)
        if value is not None and not _sane(value):
            return _failed(model, f"{name} is {value!r}")
    return found


def _sane(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _failed(model: Model, reason: str) -> Cost:
    name = getattr(model.formula, "__name__", "a formula")
    of = f"the plugin {model.plugin!r}" if model.plugin else model.formula.__module__
    warnings.warn(f"cost model {name} of {of} failed: {reason}", RuntimeWarning, stacklevel=3)
    return unknown(f"the cost model {name} failed: {reason[:120]}")
