"""Work of operator calls by phase: each call counts once, at the innermost phase around the launch of its device work.

A call that a SOL capture counted carries its phase itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.trees.phases import STEP, device_owners, phase_tree
from tb_sol_plugin.metrics.work.sums import Calls, calls_of, subtree_sums, sums
from tb_sol_plugin.model.capture import Capture

Nodes = npt.NDArray[np.int32]
NO_PHASE: Final = "(no phase)"


@dataclass(frozen=True)
class PhaseWork:
    """node: per call its phase node, -1 outside every phase. own, inclusive: sums of VALUES per node, and `ops`, calls with a limit."""

    calls: Calls
    node: Nodes
    own: pd.DataFrame
    inclusive: pd.DataFrame


def phase_work(capture: Capture, part: Scope, limits: str = "") -> PhaseWork:
    """Work per node of `phase_tree`. A call without device work belongs to the phase around itself."""
    calls = calls_of(capture, part, limits)
    tree = phase_tree(capture)
    size = len(tree.name)
    node = nodes_of(capture, calls)
    own = sums(calls.values, node, size)
    limited = (node >= 0) & np.isfinite(calls.values["sol_ns"])
    own["ops"] = np.bincount(node[limited], minlength=size).astype(np.float64)
    return PhaseWork(calls, node, own, subtree_sums(own, tree.end))


def in_a_phase(paths: list[str]) -> npt.NDArray[np.bool_]:
    """Per phase node, and once more for -1, whether work there is in a phase of the program: a step is none."""
    return np.array([*(path != STEP for path in paths), False], bool)


def nodes_of(capture: Capture, calls: Calls) -> Nodes:
    """Phase node per call, -1 outside every phase."""

    def make() -> Nodes:
        owner = calls.done.owner
        first = np.full(len(calls.done.ops), -1, np.int32)
        rows = np.flatnonzero(owner >= 0)[::-1]
        if len(rows):
            first[owner[rows]] = device_owners(capture).node[rows]
        host = calls.done.ops["host"].to_numpy()
        around, _ = at.annotation_around(capture, host)
        counted = (host < 0) & (calls.done.ops["annotation"].to_numpy() >= 0)
        around = np.where(counted, calls.done.ops["annotation"].to_numpy(), around)
        tree = phase_tree(capture)
        by_host = np.where(around >= 0, tree.node[np.maximum(around, 0)], -1) if len(tree.node) else np.full(len(host), -1)
        return np.where((first >= 0) & ~counted, first, by_host).astype(np.int32)

    return memo(capture, ("phase_work.nodes",), make)[calls.rows]
