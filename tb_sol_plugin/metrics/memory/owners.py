"""Whose a memory event is: what ran around it on its thread, at its time."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import attribution as at
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory.lines import is_users_frame
from tb_sol_plugin.metrics.phases import phase_tree
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables.arrays import Ints, Rows

_PLACED: Final = re.compile(r"^.*\(\d+\): .*$", re.DOTALL)
"""A python frame that stands in a file; built-in functions have neither file nor line."""


def owners(capture: Capture) -> pd.DataFrame:
    """Per row of `memory`: around, operator, module, frame, line (host rows), phase_node, step; -1 none.

    around is the deepest host row that holds its time; frame the innermost python function, line the innermost that is the program's
    own and not torch's.

    In the backward pass the module is that of the forward operator, and user ranges are those of the thread that issued it.
    """
    return memo(capture, ("memory.owners",), lambda: _owners(capture))


def _owners(capture: Capture) -> pd.DataFrame:
    table = capture.tables["memory"]
    time, thread = table["time_ns"].to_numpy(), table["thread"].to_numpy()
    h = at.host(capture)
    rows = np.full(len(table), -1, np.int32)
    if len(h.start):
        for one in np.unique(thread[thread >= 0]).tolist():
            here = thread == one
            rows[here] = at.row_at(capture, one, time[here])
        rows = tree.nearest(np.ones(len(h.start), bool), h.parent, h.stop, rows, time)
    operator = at.nearest(capture, S.OPERATOR, rows, time)
    module = at.nearest(capture, S.MODULE, rows, time)
    forward, _ = at.module_forward_rows(capture, rows, time)
    module = np.where((module < 0) & (forward >= 0), at.nearest(capture, S.MODULE, forward), module).astype(np.int32)
    around, _ = at.annotation_around(capture, rows, time)
    phases = phase_tree(capture)
    node = np.where(around >= 0, phases.node[around.clip(0)], -1) if len(phases.node) else np.full(len(table), -1)
    frame = _frames(capture, rows, time, lambda name: _PLACED.match(name) is not None)
    own = _frames(capture, rows, time, is_users_frame)
    return pd.DataFrame({
        "around": rows, "operator": operator, "module": module, "frame": frame, "line": np.where(own >= 0, own, frame),
        "phase_node": node.astype(np.int32), "step": steps_at(capture, time),
    })  # fmt: skip


def _frames(capture: Capture, rows: Rows, time: Ints, test: Callable[[str], bool]) -> Rows:
    h = at.host(capture)
    if not len(h.start) or not (h.kind == S.FRAME).any():
        return np.full(len(rows), -1, np.int32)
    placed = (h.kind == S.FRAME) & arrays.where(capture.host["name"], test)
    return tree.nearest(placed, h.parent, h.stop, rows, time)


def steps_at(capture: Capture, time: Ints) -> npt.NDArray[np.int32]:
    """Row of `steps` that holds each time on the host, -1 outside every step."""
    steps = capture.steps
    if not len(steps):
        return np.full(len(time), -1, np.int32)
    start, end = steps["host_start_ns"].to_numpy(), steps["host_end_ns"].to_numpy()
    order = np.argsort(start, kind="stable")
    found = np.searchsorted(start[order], time, side="right") - 1
    row = order[found.clip(0)]
    return np.where((found >= 0) & (time < end[row]), row, -1).astype(np.int32)
