"""What each allocation of a trace is for, estimated from what ran when it was made and when it was freed.

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

import re
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.metrics.memory.owners import owners
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables.arrays import Ints, Mask, Rows

NAMES: Final = ("params", "grads", "optimizer", "activations", "inputs", "temporary", "autograd_detail", "before", "unknown")
LABELS: Final = {
    "params": "parameters", "buffers": "buffers", "grads": "gradients", "main_grads": "main gradients", "master_weights": "master weights",
    "exp_avg": "optimizer: first moment", "exp_avg_sq": "optimizer: second moment", "other_optimizer": "optimizer: other",
    "optimizer": "optimizer state", "activations": "activations", "inputs": "inputs", "temporary": "temporary",
    "autograd_detail": "detail of autograd", "before": "allocated before the window", "unknown": "unknown",
}  # fmt: skip
"""Every category of any source, for a person."""
_CODE: Final = {name: i for i, name in enumerate(NAMES)}
NODE: Final = "autograd::engine::evaluate_function"
_OPTIMIZER: Final = re.compile(r"^Optimizer\.step#|(?:^|[^a-z])optimi[sz]er(?:[._/ -]?step)?(?:[^a-z]|$)", re.IGNORECASE)
_NOT_OPTIMIZER: Final = re.compile(r"zero_grad", re.IGNORECASE)
_LOADER: Final = re.compile(r"^enumerate\(DataLoader\)|(?:^|[^a-z])data_?loader(?:[^a-z]|$)", re.IGNORECASE)
_COPY: Final = ("aten::to", "aten::_to_copy", "aten::copy_", "aten::cuda", "aten::pin_memory")
_NEVER: Final = np.iinfo(np.int64).max


def categories(capture: Capture, device: R.Device) -> pd.DataFrame:
    """Per row of `replay.allocations`: category (code in NAMES) and estimated (whether the category is; `before` and `unknown` are not)."""
    return memo(capture, ("memory.categories", device), lambda: _categories(capture, device))


def _categories(capture: Capture, device: R.Device) -> pd.DataFrame:
    found = R.allocations(capture, device)
    out = np.full(len(found), _CODE["unknown"], np.int8)
    out[found["before"].to_numpy()] = _CODE["before"]
    made = np.flatnonzero((found["row"].to_numpy() >= 0) & found["paired"].to_numpy())
    if len(made) and len(capture.host):
        out[made] = _of_made(capture, device, found.iloc[made])
    return pd.DataFrame({"category": out, "estimated": (out != _CODE["before"]) & (out != _CODE["unknown"])})


def _of_made(capture: Capture, device: R.Device, made: pd.DataFrame) -> npt.NDArray[np.int8]:
    h = at.host(capture)
    own = owners(capture)
    around = own["around"].to_numpy()[made["row"].to_numpy()]
    start = made["start_ns"].to_numpy()
    end = np.where(made["last"].to_numpy() >= 0, made["end_ns"].to_numpy(), _NEVER)
    kinds = _kinds(capture)

    def within(mask: Mask) -> Rows:
        return tree.nearest(mask, h.parent, h.stop, around, start)

    node = within(kinds["node"])
    step = within(kinds["optimizer"])
    operator = _outermost(kinds["operator"], h, around, start)
    ends = _ends_of_passes(capture, kinds)
    of_pass = ends[np.searchsorted(ends, start, side="left").clip(0, max(len(ends) - 1, 0))] if len(ends) else np.full(len(start), _NEVER)
    steps = np.sort(h.stop[kinds["optimizer"]])
    after = np.searchsorted(steps, start, side="right")  # ends of optimizer steps up to its making
    kept = (end == _NEVER) & (after < len(steps))
    in_module = own["module"].to_numpy()[made["row"].to_numpy()] >= 0
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
        (~in_module & (start < _first_module_after(h, steps, after)), "inputs"),
        (copied & (host and len(capture.device) > 0), "unknown"),  # results that came back from the device
    ]
    out = np.select([mask for mask, _ in rules], [_CODE[name] for _, name in rules], _CODE["activations"])
    out[(out == _CODE["autograd_detail"]) & (end > of_pass)] = _CODE["grads"]
    return out.astype(np.int8)


def _kinds(capture: Capture) -> dict[str, Mask]:
    """Host rows that are nodes of the backward pass, operators that are none, optimizer steps and waits for data."""
    h = at.host(capture)
    name = capture.host["name"]
    node = (h.kind == S.OPERATOR) & arrays.where(name, lambda n: n.startswith(NODE))
    noted = h.kind == S.ANNOTATION
    return {
        "node": node,
        "operator": (h.kind == S.OPERATOR) & ~node,
        "optimizer": noted & arrays.where(name, lambda n: bool(_OPTIMIZER.search(n)) and not _NOT_OPTIMIZER.search(n)),
        "loader": noted & arrays.where(name, lambda n: bool(_LOADER.search(n))),
    }


def _first_module_after(h: at.Host, steps: Ints, after: Ints) -> Ints:
    """When the first module call after each number of optimizer steps begins; before all times where none does."""
    calls = np.sort(h.start[h.kind == S.MODULE])
    if not len(calls):
        return np.full(len(after), np.iinfo(np.int64).min)
    begun = np.r_[np.iinfo(np.int64).min, steps]
    place = np.searchsorted(calls, begun)
    first = np.where(place < len(calls), calls[place.clip(0, len(calls) - 1)], np.iinfo(np.int64).min)
    return np.asarray(first[after], np.int64)


def _named(capture: Capture, names: tuple[str, ...]) -> Mask:
    return arrays.where(capture.host["name"], lambda n: n in names)


def _outermost(mask: Mask, h: at.Host, rows: Rows, time: Ints) -> Rows:
    """The outermost host row of `mask` around each (row, time), -1 none."""
    out = tree.nearest(mask, h.parent, h.stop, rows, time)
    up = out
    while bool((up >= 0).any()):
        above = np.where(up >= 0, h.parent[up.clip(0)], -1).astype(np.int32)
        up = tree.nearest(mask, h.parent, h.stop, above, time)
        out = np.where(up >= 0, up, out).astype(np.int32)
    return out


def _ends_of_passes(capture: Capture, kinds: dict[str, Mask]) -> Ints:
    """Where each backward pass ends, ascending: nodes of autograd with no operator of the main thread outside of them in between.

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
