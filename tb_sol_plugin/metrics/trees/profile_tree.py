"""Builds the tree of scopes of a profile without events (Proton): launches, device time and stated work of each scope."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec import Struct

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.work.sums import Calls, calls_of, sums
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats

Nodes = npt.NDArray[np.int64]

SEPARATOR: Final = "/"
OUTSIDE: Final = "(outside every scope)"


class ScopeTree(Struct, frozen=True):
    """One entry per row of `labels`, a parent before what is inside it.

    path: names from the outermost scope down, made unique. parent: -1 at a root.
    """

    name: list[str]
    path: list[str]
    parent: Nodes


def scope_tree(capture: Capture) -> ScopeTree:
    """Returns the scopes of a profile; modules and operators of an exported one are scopes too."""
    return memo(capture, ("profile.scopes",), lambda: _tree(capture))


def _tree(capture: Capture) -> ScopeTree:
    table = capture.tables[S.LABELS.name]
    parent = table["parent"].to_numpy().astype(np.int64)
    name = [str(n) for n in arrays.pick(table["name"], np.arange(len(table))).tolist()]
    path: list[str] = []
    seen: dict[str, int] = {}
    for row, above in enumerate(parent.tolist()):
        own = f"{path[above]}{SEPARATOR}{name[row]}" if above >= 0 else name[row]
        seen[own] = seen.get(own, 0) + 1
        path.append(own if seen[own] == 1 else f"{own} #{seen[own]}")  # levels of a scope are bounded by the reader
    return ScopeTree(name, path, parent)


def innermost(table: pd.DataFrame) -> Nodes:
    """Returns per row of `ledger` or `copies` the innermost of its labels, -1 none: the one defined last, as parents come first."""
    module, phase, function = (table[c].to_numpy().astype(np.int64) for c in ("module", "phase", "function"))
    return np.maximum(np.maximum(module, phase), function)


class ScopeWork(Struct, frozen=True):
    """Work and time per scope of a profile.

    own, inclusive: per scope sums of `work.sums.VALUES` and launches, device_sum_ns (kernels and copies), copies_ns, copies.

    The last row of `own` is the work outside every scope; `inclusive` has none. calls: the rows of work; node: their scope, -1.
    """

    calls: Calls
    node: Nodes
    own: pd.DataFrame
    inclusive: pd.DataFrame


def scope_work(capture: Capture, part: Scope, limits: str = "") -> ScopeWork:
    """Returns work and time of every scope."""
    tree = scope_tree(capture)
    size = len(tree.name)
    calls = calls_of(capture, part, limits)
    node = innermost(capture.tables[S.LEDGER.name])[calls.ops["ledger"].to_numpy()]
    own = sums(calls.values, np.where(node < 0, size, node), size + 1)
    copies = capture.tables[S.COPIES.name]
    at = innermost(copies)
    at = np.where(at < 0, size, at)
    moved = np.nan_to_num(copies["time_ns"].to_numpy(dtype=np.float64))
    time = np.nan_to_num(calls.ops["measured_ns"].to_numpy(dtype=np.float64))
    own["launches"] = np.bincount(np.where(node < 0, size, node), calls.ops["launches"].to_numpy(), size + 1)
    own["copies"] = np.bincount(at, copies["count"].to_numpy(), size + 1)
    own["copies_ns"] = np.bincount(at, moved, size + 1)
    own["device_sum_ns"] = np.bincount(np.where(node < 0, size, node), time, size + 1) + own["copies_ns"].to_numpy()
    return ScopeWork(calls, node, own, _inclusive(own.iloc[:size], tree.parent))


def _inclusive(own: pd.DataFrame, parent: Nodes) -> pd.DataFrame:
    """Returns sums over each subtree, NaN where nothing in it has a value."""
    out: dict[str, Floats] = {}
    up = parent.tolist()
    for name in own.columns:
        values = own[name].to_numpy(dtype=np.float64).tolist()
        for row in range(len(values) - 1, -1, -1):
            above = up[row]
            if above >= 0 and values[row] == values[row]:
                values[above] = values[row] if values[above] != values[above] else values[above] + values[row]
        out[name] = np.array(values, np.float64)
    return pd.DataFrame(out)
