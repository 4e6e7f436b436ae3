"""Whose a memory event is: what ran around it on its thread, at its time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.trees.module_tree import phase_name
from tb_sol_plugin.metrics.trees.phases import STEP, phase_tree
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables.arrays import Ints, Rows

# -- The line of a program that asked for memory ---------------------------------------------------------------------
# out of call stacks, the innermost that is not torch's own.


_TORCH: Final = re.compile(
    r"(?:^|/)torch/(?:_[^/]*|nn|autograd|optim|utils|cuda|xpu|mps|cpu|distributed|profiler|amp|fx|jit|func|ao|testing|functional\.py|"
    r"storage\.py|serialization\.py|random\.py|overrides\.py|library\.py|__init__\.py)(?:/|$)"
)
_PASSING: Final = re.compile(r"(?:^|/)(?:contextlib|functools|threading|runpy|concurrent/futures/\w+|importlib/\S+)\.py$|^<")
_FRAME: Final = re.compile(r"^(?P<file>.*?)\(\d+\): ", re.DOTALL)
PYTHON: Final = (".py", ".ipynb", ".pyx")
MOST_LINES: Final = 64
"""Frames of one stack that are said."""


def is_users(file: str) -> bool:
    """Whether a file holds lines of the program and not of torch or of python's plumbing (wrappers, threads)."""
    return not _TORCH.search(file) and not _PASSING.search(file)


def is_users_frame(name: str) -> bool:
    """The same of a python frame as a profiler writes it: `model.py(7): forward`."""
    match = _FRAME.match(name)
    return match is not None and is_users(match["file"])


def frames(text: str) -> list[tuple[str, int, str]]:
    """(file, line, function) of a call stack of `memory_events` or `memory_blocks`, innermost first; none where it cannot be read."""
    try:
        found = json.loads(text) if text else []
    except ValueError:
        return []
    return [(str(f[0]), int(f[1]), str(f[2])) for f in found if isinstance(f, list) and len(f) == 3]


def frame_text(frame: tuple[str, int, str]) -> str:
    """`model.py(7): forward`, as a profiler writes python frames; the part of the path in front of installed packages is left out."""
    file, line, function = frame
    for package in ("site-packages/", "dist-packages/"):
        file = file.rpartition(package)[2]
    return f"{file}({line}): {function}" if line >= 0 else f"{file}: {function}"


def own_line(text: str) -> str:
    """The innermost line of the program in a call stack; without one the innermost python line, else the innermost frame; "" of none."""
    every = frames(text)
    python = [f for f in every if f[0].endswith(PYTHON)]
    for found in ([f for f in python if is_users(f[0])], python, every):
        if found:
            return frame_text(found[0])
    return ""


def stack_text(text: str) -> str:
    """A call stack as lines, innermost first."""
    every = frames(text)
    more = len(every) - MOST_LINES
    return "\n".join([frame_text(f) for f in every[:MOST_LINES]] + [f"… {more:,} more"] * (more > 0))


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


# -- The outermost phases of a recording as marks on an axis of time -------------------------------------------------


def outer_phases(capture: Capture) -> pd.DataFrame:
    """User ranges with no other around them but a step, on the thread that has most of them: name, start_ns, end_ns, in order of time."""
    return memo(capture, ("memory.outer_phases",), lambda: _outer(capture))


def _outer(capture: Capture) -> pd.DataFrame:
    h = at.host(capture)
    rows = np.flatnonzero(h.kind == S.ANNOTATION)
    if not len(rows):
        return pd.DataFrame({"name": np.zeros(0, object), "start_ns": np.zeros(0, np.int64), "end_ns": np.zeros(0, np.int64)})
    step = arrays.where(capture.host["name"], lambda name: phase_name(name) == STEP)
    above = at.nearest(capture, S.ANNOTATION, rows, strict=True)
    rows = rows[((above < 0) | step[above.clip(0)]) & ~step[rows]]
    if len(rows):
        rows = rows[h.thread[rows] == np.bincount(h.thread[rows].clip(0)).argmax()]
    names = [phase_name(str(n)) for n in arrays.pick(capture.host["name"], rows)]
    return pd.DataFrame({"name": np.array(names, object), "start_ns": h.start[rows], "end_ns": h.stop[rows]})
