"""Labels, colors and sizes as the pages about memory show them."""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.units import NARROW, digits, human, number

GIB: Final = 1 << 30
CATEGORIES: Final[dict[str, tuple[str, str]]] = {
    "before": ("allocated before the window", "host"),
    "params": ("parameters", "compute"),
    "parameter": ("parameters", "compute"),
    "buffers": ("buffers", "DtoD"),
    "master_weights": ("master weights", "conv"),
    "exp_avg": ("optimizer: first moment", "norm"),
    "exp_avg_sq": ("optimizer: second moment", "eff-25"),
    "other_optimizer": ("optimizer: other", "eff-50"),
    "main_grads": ("main gradients", "memset"),
    "optimizer": ("optimizer state", "norm"),
    "optimizer_state": ("optimizer state", "norm"),
    "grads": ("gradients", "communication"),
    "gradient": ("gradients", "communication"),
    "activations": ("activations", "attention"),
    "activation": ("activations", "attention"),
    "inputs": ("inputs", "elementwise"),
    "input": ("inputs", "elementwise"),
    "temporary": ("temporary", "DtoH"),
    "autograd_detail": ("detail of autograd", "HtoD"),
    "unknown": ("unknown", "idle"),
}
"""Label and color of what memory is for, in the order in which the stack is drawn from below."""


def label(category: str) -> str:
    return CATEGORIES[category][0] if category in CATEGORIES else category.replace("_", " ")


def color(category: str) -> str:
    return CATEGORIES[category][1] if category in CATEGORIES else "other"


def gib(size: int | None) -> str:
    """Returns a size in GiB with its unit, in MiB or bytes where that is little: `1.95 GiB`; "" unknown."""
    if size is None:
        return ""
    factor, name = (GIB, "GiB") if abs(size) >= GIB / 10 else (1 << 20, "MiB") if abs(size) >= 1 << 18 else (1, "")
    return f"{number(size / factor, digits(size / factor))}{NARROW}{name}" if name else ""


def since(ns: int, origin: int) -> str:
    """Returns a moment as text, counted from `origin`: `46.5 ms`."""
    return human(ns - origin, "ns")


def setting(value: object) -> str:
    """Returns a setting of a plan as it is typed: `true`, `8192`."""
    return str(value).lower() if isinstance(value, bool) else str(value)
