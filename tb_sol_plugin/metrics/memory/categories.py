"""Estimates what each allocation of a trace is for, from what ran when it was made and when it was freed.

A trace does not say what memory is for. These rules give it a likely name, and every such name is an estimate:

* made and freed inside one operator (below the nodes of autograd), or inside one optimizer step: `temporary`
* made while the data loader ran, by a copy to the device outside of every module, or in front of a step's first module call: `inputs`
* made in an optimizer step and kept after it: `optimizer`
* made in the backward pass: `grads` where it outlives the pass, `autograd_detail` where it does not
* on the host of a device, made by a copy outside of every module: results that came back, `unknown`
* made elsewhere by an operator: `activations`; what is never freed although an optimizer step ended since stays `unknown`
* there before the recording began: `before`; that will hold parameters

docs/memory.md says how far the estimate agrees with the categories that torch finds by following every tensor.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.trees.module_tree import phase_name
from tb_sol_plugin.metrics.trees.phases import STEP, phase_tree
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables.arrays import Ints, Mask, Objects, Rows
from tb_sol_plugin.tables.table import Table, as_table

# -- The line of a program that asked for memory ---------------------------------------------------------------------
# out of call stacks, the innermost that is not torch's own.


_TORCH: Final = re.compile(
    r"(?:^|/)torch/(?:_[^/]*|nn|autograd|optim|utils|cuda|xpu|mps|cpu|distributed|profiler|amp|fx|jit|func|ao|testing|functional\.py|"
    r"storage\.py|serialization\.py|random\.py|overrides\.py|library\.py|__init__\.py)(?:/|$)"
)
_PASSING: Final = re.compile(r"(?:^|/)(?:contextlib|functools|threading|runpy|concurrent/futures/\w{1,400}|importlib/\S{1,400})\.py$|^<")
_FRAME: Final = re.compile(r"^(?P<file>.*?)\(\d+\): ", re.DOTALL)
PYTHON: Final = (".py", ".ipynb", ".pyx")
MOST_LINES: Final = 64
"""Frames of one stack that are shown."""


def is_users(file: str) -> bool:
    """Returns whether a file holds lines of the program and not of torch or of python's plumbing (wrappers, threads)."""
    return not _TORCH.search(file) and not _PASSING.search(file)


def frames(text: str) -> list[tuple[str, int, str]]:
    """Returns (file, line, function) of a call stack of `memory_events` or `memory_blocks`, innermost first.

    Empty where it cannot be read.
    """
    try:
        found = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return []
    return [(str(f[0]), int(f[1]), str(f[2])) for f in found if isinstance(f, list) and len(f) == 3]


def frame_text(frame: tuple[str, int, str]) -> str:
    """Returns `model.py(7): forward`, as a profiler writes python frames.

    The part of the path in front of installed packages is left out.
    """
    file, line, function = frame
    for package in ("site-packages/", "dist-packages/"):
        file = file.rpartition(package)[2]
    return f"{file}({line}): {function}" if line >= 0 else f"{file}: {function}"


def own_line(text: str) -> str:
    """Returns the innermost line of the program in a call stack; without one the innermost python line, else the innermost frame.

    "" of none.
    """
    every = frames(text)
    python = [f for f in every if f[0].endswith(PYTHON)]
    for found in ([f for f in python if is_users(f[0])], python, every):
        if found:
            return frame_text(found[0])
    return ""


def stack_text(text: str) -> str:
    """Returns a call stack as lines, innermost first."""
    every = frames(text)
    more = len(every) - MOST_LINES
    return "\n".join([frame_text(f) for f in every[:MOST_LINES]] + [f"… {more:,} more"] * (more > 0))


# -- What ran around a memory event, on its thread and at its time ---------------------------------------------------


def owners(capture: Capture) -> Table:
    """Returns what ran around each row of `memory`: around, operator, module, frame, line (host rows), phase_node, step; -1 none.

    around is the deepest host row that holds its time; frame the innermost python function, line the innermost that is the program's
    own and not torch's.

    In the backward pass the module is that of the forward operator, and user ranges are those of the thread that issued it.
    """
    return memo(capture, ("memory.owners",), lambda: _owners(capture))


def _owners(capture: Capture) -> Table:
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
    frame, own = _frames(capture, rows, time)
    return as_table(pd.DataFrame({
        "around": rows, "operator": operator, "module": module, "frame": frame, "line": np.where(own >= 0, own, frame),
        "phase_node": node.astype(np.int32), "step": steps_at(capture, time),
    }, copy=False))  # fmt: skip


def _frames(capture: Capture, rows: Rows, time: Ints) -> tuple[Rows, Rows]:
    """Returns the innermost python frames around that stand in a file (built-in functions do not), and those of the program."""
    h = at.host(capture)
    if not len(at.of_kind(capture, S.FRAME)):
        return np.full(len(rows), -1, np.int32), np.full(len(rows), -1, np.int32)
    users: dict[str, bool] = {}

    def kind(name: str) -> int:
        """Returns 2 for a frame of the program, 1 for another one in a file, 0 for a built-in function."""
        match = _FRAME.match(name)
        if match is None:
            return 0
        file = match["file"]
        if file not in users:
            users[file] = is_users(file)
        return 1 + users[file]

    every = at.of_kind(capture, S.FRAME)
    kinds = arrays.per_text(capture.host["name"], every, kind, np.int8)
    out = []
    for least in (1, 2):  # those of the program are among the placed ones
        rows = tree.nearest(at.mask_of(capture, every[kinds >= least]), h.parent, h.stop, rows, time)
        out.append(rows)
    return out[0], out[1]


def steps_at(capture: Capture, time: Ints) -> npt.NDArray[np.int32]:
    """Returns the row of `steps` that holds each time on the host, -1 outside every step."""
    steps = capture.steps
    if not len(steps):
        return np.full(len(time), -1, np.int32)
    start, end = steps["host_start_ns"].to_numpy(), steps["host_end_ns"].to_numpy()
    order = np.argsort(start, kind="stable")
    found = np.searchsorted(start[order], time, side="right") - 1
    row = order[found.clip(0)]
    return np.where((found >= 0) & (time < end[row]), row, -1).astype(np.int32)


# -- The outermost phases of a recording as marks on an axis of time -------------------------------------------------


def outer_phases(capture: Capture) -> tuple[Objects, Ints, Ints]:
    """Returns (name, start ns, end ns) of user ranges with no other around them but a step, on the thread that has most of them, in order
    of time.
    """
    return memo(capture, ("memory.outer_phases",), lambda: _outer(capture))


def _outer(capture: Capture) -> tuple[Objects, Ints, Ints]:
    h = at.host(capture)
    rows = at.of_kind(capture, S.ANNOTATION)
    if not len(rows):
        return np.zeros(0, object), np.zeros(0, np.int64), np.zeros(0, np.int64)
    step = at.mask_of(capture, at.named(capture, S.ANNOTATION, lambda name: phase_name(name) == STEP))
    above = at.nearest(capture, S.ANNOTATION, rows, strict=True)
    rows = rows[((above < 0) | step[above.clip(0)]) & ~step[rows]]
    if len(rows):
        rows = rows[h.thread[rows] == np.bincount(h.thread[rows].clip(0)).argmax()]
    names = arrays.per_text(capture.host["name"], rows, phase_name, object)
    return names, h.start[rows], h.stop[rows]


NAMES: Final = ("params", "grads", "optimizer", "activations", "inputs", "temporary", "autograd_detail", "before", "unknown")
_CODE: Final = {name: i for i, name in enumerate(NAMES)}
NODE: Final = "autograd::engine::evaluate_function"
_OPTIMIZER: Final = re.compile(r"^Optimizer\.step#|(?:^|[^a-z])optimi[sz]er(?:[._/ -]?step)?(?:[^a-z]|$)", re.IGNORECASE)
_NOT_OPTIMIZER: Final = re.compile(r"zero_grad", re.IGNORECASE)
_LOADER: Final = re.compile(r"^enumerate\(DataLoader\)|(?:^|[^a-z])data_?loader(?:[^a-z]|$)", re.IGNORECASE)
_COPY: Final = ("aten::to", "aten::_to_copy", "aten::copy_", "aten::cuda", "aten::pin_memory")
_NEVER: Final = np.iinfo(np.int64).max


def categories(capture: Capture, device: R.Device) -> Table:
    """Returns, per row of `replay.allocations`, category (code in NAMES) and estimated (False also for `before` and `unknown`)."""
    return memo(capture, ("memory.categories", device), lambda: _categories(capture, device))


def _categories(capture: Capture, device: R.Device) -> Table:
    found = R.allocations(capture, device)
    out = np.full(len(found), _CODE["unknown"], np.int8)
    out[found["before"].to_numpy()] = _CODE["before"]
    made = np.flatnonzero((found["row"].to_numpy() >= 0) & found["paired"].to_numpy())
    if len(made) and len(capture.host):
        out[made] = _of_made(capture, device, found, made)
    estimated = (out != _CODE["before"]) & (out != _CODE["unknown"])
    return as_table(pd.DataFrame({"category": out, "estimated": estimated}, copy=False))


def _of_made(capture: Capture, device: R.Device, found: pd.DataFrame, made: npt.NDArray[np.intp]) -> npt.NDArray[np.int8]:
    """Returns the category of each allocation at the places `made` of `found`."""
    h = at.host(capture)
    own = owners(capture)
    row, start = (found[name].to_numpy()[made] for name in ("row", "start_ns"))
    around = own["around"].to_numpy()[row]
    end = np.where(found["last"].to_numpy()[made] >= 0, found["end_ns"].to_numpy()[made], _NEVER)
    kinds = _kinds(capture)

    def within(mask: Mask) -> Rows:
        return tree.nearest(mask, h.parent, h.stop, around, start) if mask.any() else np.full(len(around), -1, np.int32)

    node = within(kinds["node"])
    step = within(kinds["optimizer"])
    operator = _outermost(kinds["operator"], h, around, start)
    ends = _ends_of_passes(capture, kinds)
    of_pass = ends[np.searchsorted(ends, start, side="left").clip(0, max(len(ends) - 1, 0))] if len(ends) else np.full(len(start), _NEVER)
    steps = np.sort(h.stop[kinds["optimizer"]])
    after = np.searchsorted(steps, start, side="right")  # ends of optimizer steps up to its making
    kept = (end == _NEVER) & (after < len(steps))
    in_module = own["module"].to_numpy()[row] >= 0
    brief = (operator >= 0) & (end <= h.stop[operator.clip(0)])
    in_step = (step >= 0) & (end <= h.stop[step.clip(0)])
    copied = (operator >= 0) & _named(capture, _COPY)[operator.clip(0)] & ~in_module & (node < 0)
    host = device.type == R.CPU
    rules: list[tuple[Mask, str]] = [
        (brief | in_step, "temporary"),
        (step >= 0, "optimizer"),
        (node >= 0, "autograd_detail"),
        (within(kinds["loader"]) >= 0, "inputs"),
        (copied & (not host), "inputs"),
        (kept | (operator < 0), "unknown"),
        (~in_module & (start < _first_module_after(capture, h, steps, after)), "inputs"),
        (copied & (host and len(capture.device) > 0), "unknown"),  # results that came back from the device
    ]
    out = np.select([mask for mask, _ in rules], [_CODE[name] for _, name in rules], _CODE["activations"])
    out[(out == _CODE["autograd_detail"]) & (end > of_pass)] = _CODE["grads"]
    return out.astype(np.int8)


def _kinds(capture: Capture) -> dict[str, Mask]:
    """Returns host rows that are nodes of the backward pass, operators that are none, optimizer steps and waits for data."""

    def named(kind: int, test: Callable[[str], bool]) -> Mask:
        return at.mask_of(capture, at.named(capture, kind, test))

    node = named(S.OPERATOR, lambda n: n.startswith(NODE))
    return {
        "node": node,
        "operator": at.is_of_kind(capture, S.OPERATOR) & ~node,
        "optimizer": named(S.ANNOTATION, lambda n: bool(_OPTIMIZER.search(n)) and not _NOT_OPTIMIZER.search(n)),
        "loader": named(S.ANNOTATION, lambda n: bool(_LOADER.search(n))),
    }


def _first_module_after(capture: Capture, h: at.Host, steps: Ints, after: Ints) -> Ints:
    """Returns when the first module call after each number of optimizer steps begins; before all times where none does."""
    calls = np.sort(h.start[at.of_kind(capture, S.MODULE)])
    if not len(calls):
        return np.full(len(after), np.iinfo(np.int64).min)
    begun = np.r_[np.iinfo(np.int64).min, steps]
    place = np.searchsorted(calls, begun)
    first = np.where(place < len(calls), calls[place.clip(0, len(calls) - 1)], np.iinfo(np.int64).min)
    return np.asarray(first[after], np.int64)


def _named(capture: Capture, names: tuple[str, ...]) -> Mask:
    return at.mask_of(capture, at.named(capture, S.OPERATOR, names.__contains__))


def _outermost(mask: Mask, h: at.Host, rows: Rows, time: Ints) -> Rows:
    """Returns the outermost host row of `mask` around each (row, time), -1 none."""
    out = tree.nearest(mask, h.parent, h.stop, rows, time)
    up = out
    while bool((up >= 0).any()):
        above = np.where(up >= 0, h.parent[up.clip(0)], -1).astype(np.int32)
        up = tree.nearest(mask, h.parent, h.stop, above, time)
        out = np.where(up >= 0, up, out).astype(np.int32)
    return out


def _ends_of_passes(capture: Capture, kinds: dict[str, Mask]) -> Ints:
    """Returns where each backward pass ends, ascending.

    A pass is nodes of autograd without an operator of the main thread outside of them in between.

    The main thread is the one with most operators outside of the backward pass; it waits while a pass runs on another one.
    """
    h = at.host(capture)
    node = np.flatnonzero(kinds["node"])
    if not len(node):
        return np.zeros(0, np.int64)
    inside = tree.nearest(kinds["node"], h.parent, h.stop, np.arange(len(h.start), dtype=np.int32), h.start) >= 0
    other = kinds["operator"] & ~inside
    if other.any():
        main = int(np.bincount(h.thread[other]).argmax())
        other &= h.thread == main
    between = np.sort(h.start[other])
    order = np.argsort(h.start[node], kind="stable")
    start, stop = h.start[node][order], np.maximum.accumulate(h.stop[node][order])
    broken = np.searchsorted(between, start[1:]) > np.searchsorted(between, start[:-1])
    last = np.r_[np.flatnonzero(broken), len(node) - 1]
    return np.asarray(stop[last], np.int64)
