"""Work of operator calls credited to module nodes: forward work by containment, backward work through its forward operator.

Every call counts at one node, the innermost; a node holds its own calls and those of the nodes below it. Forward work that runs again
inside the backward pass is forward work: of the module call around it, or where none was recorded there, of its forward operator's.
A call that a SOL capture counted carries its module itself, backward work that of its forward operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import attribution as at
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.scope import Scope
from tb_sol_plugin.metrics.work.sums import Calls, calls_of, subtree_sums, sums
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture

Direction = Literal["forward", "backward", "both"]
Nodes = npt.NDArray[np.int32]

OUTSIDE: Final = -1
LEFT_OUT: Final = -2


@dataclass(frozen=True)
class ModuleWork:
    """node: per call its node, OUTSIDE every module, or LEFT_OUT by the direction. own, inclusive: sums of VALUES per node."""

    calls: Calls
    node: Nodes
    own: pd.DataFrame
    inclusive: pd.DataFrame


def module_work(
    capture: Capture,
    part: Scope,
    of_host: Nodes,
    end: Nodes,
    direction: Direction = "both",
    limits: str = "",
    *,
    of_label: Nodes | None = None,
) -> ModuleWork:
    """Work per node. of_host: node per host row that is a module call, -1 for others; of_label in its place: per row of
    `labels`. end: one past the subtree, per node in preorder.

    forward: backward work of a trace counts outside, that of a ledger, which tells every call's direction, is left out; backward:
    forward work inside modules is left out, of a ledger all of it.
    """
    calls = calls_of(capture, part, limits)
    node, backward = _credited(capture, calls, of_host, of_label)
    if direction != "both" and (of_label is not None or calls.done.from_ledger):
        node = np.where(backward == (direction == "backward"), node, LEFT_OUT)
    elif direction == "forward":
        node = np.where(backward, OUTSIDE, node)
    elif direction == "backward":
        node = np.where(~backward & (node >= 0), LEFT_OUT, node)
    own = sums(calls.values, node, len(end))
    return ModuleWork(calls, node.astype(np.int32), own, subtree_sums(own, end))


def _credited(capture: Capture, calls: Calls, of_host: Nodes, of_label: Nodes | None) -> tuple[Nodes, npt.NDArray[np.bool_]]:
    """(node per call, whether it is backward work of that node)."""
    if of_label is not None:
        label = capture.tables["ledger"]["module"].to_numpy()[calls.ops["ledger"].to_numpy()]
        return of_label[label].astype(np.int32), calls.ops["direction"].cat.codes.to_numpy() == 1
    h = at.host(capture)
    if not len(h.start) or not len(of_host):
        return np.full(len(calls.host), OUTSIDE, np.int32), np.zeros(len(calls.host), bool)
    if calls.done.from_ledger:
        own = calls.ops["module"].to_numpy()
        return np.where(own >= 0, of_host[np.maximum(own, 0)], OUTSIDE).astype(np.int32), calls.ops["direction"].cat.codes.to_numpy() == 1
    around = at.nearest(capture, S.MODULE, calls.host)
    forward, root = at.module_forward_rows(capture, calls.host)
    linked = at.nearest(capture, S.MODULE, forward)
    again = calls.ops["recompute"].to_numpy() | (around > root)
    backward = (forward >= 0) & ~again
    row = np.where((linked >= 0) & (backward | (around < 0)), linked, around)
    device = _device_module(capture, calls)
    row = np.where((row >= 0) | (calls.host < 0), row, device)
    return np.where(row >= 0, of_host[np.maximum(row, 0)], OUTSIDE).astype(np.int32), backward


def _device_module(capture: Capture, calls: Calls) -> Nodes:
    """Per call the module call around the launch of its first device event, -1 where there is none."""

    def make() -> Nodes:
        owner = calls.done.owner
        out = np.full(len(calls.done.ops), -1, np.int32)
        rows = np.flatnonzero(owner >= 0)[::-1]
        out[owner[rows]] = capture.device["module"].to_numpy()[rows] if len(rows) else -1
        return out

    return memo(capture, ("module_work.device",), make)[calls.rows]
