"""Optimizer steps that are not fused: many kernels over the parameters, or lists of them, where one pass would do.

A fused step reads parameter, gradient and state once and writes parameter and state once: 7 arrays for Adam and its kin
(p, g, m, v read; p, m, v written), 5 for SGD with momentum, 3 without.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cost.inputs import BITS, Inputs, Tensor
from tb_sol_plugin.metrics import attribution as at
from tb_sol_plugin.metrics.breakdown import device_word
from tb_sol_plugin.metrics.levers.case import Case
from tb_sol_plugin.metrics.levers.lever import Lever, took
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables import arrays as texts
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints, Mask
from tb_sol_plugin.units import human

STEP: Final = re.compile(r"^Optimizer\.step#(\w+)\.step$")
FUSED: Final = re.compile(r"_fused_|[Ff]used_?(Adam|SGD|LAMB|Lion|Adagrad)|multi_tensor_(adam|sgd|lamb)|^triton_|DeepSpeedCPUAdam")
"""Names of operators and kernels that do the whole update in one pass."""
HAS_FUSED: Final = ("Adam", "AdamW", "SGD", "Adagrad")
"""Optimizers of torch.optim with `fused=True`."""
LAUNCH_GAP_NS: Final = 200_000
"""More idle time per kernel than 200 µs has another cause than launching it."""
LEAST_CALLS: Final = 8
"""Fewer operator calls per step than this are as good as fused."""


def unfused_optimizer(case: Case) -> Lever | None:
    """Time of the optimizer's calls above one pass over its arrays, and the device's idle time inside it."""
    h = at.host(case.capture)
    name = case.capture.host["name"]
    steps = np.flatnonzero((h.kind == S.ANNOTATION) & texts.where(name, lambda n: STEP.match(n) is not None))
    steps = steps[iv.overlap_with(h.start[steps], h.stop[steps], case.fall.windows) > 0]
    if not len(steps):
        return None
    inside = _inside(case, steps)
    if (inside & (h.kind == S.OPERATOR) & texts.where(name, lambda n: FUSED.search(n) is not None)).any():
        return None
    host = case.ops["host"].to_numpy()
    rows = np.flatnonzero((host >= 0) & inside[np.maximum(host, 0)] & (case.left > 0))
    kernels = _kernels(case, inside)
    count = len(rows) if case.on_host else len(kernels)
    if len(rows) < LEAST_CALLS * len(steps):
        return None
    if len(kernels) and texts.where(case.capture.device["name"], lambda n: FUSED.search(n) is not None)[kernels].any():
        return None
    (full,), _ = texts.largest([name], steps, np.ones(len(steps)))
    kind = next(iter(STEP.findall(full)), "")
    spent = float(case.left[rows].sum())
    arrays, elements, size = _parameters(case, rows)
    spec = case.spec
    bandwidth = spec.memory_bandwidth if spec is not None else None
    limit = arrays * size / bandwidth * 1e9 / case.fall.parallel if bandwidth and size else None
    claimed = np.zeros(len(rows))
    if limit is not None and spent > limit:
        claimed = case.claim(rows, case.left[rows] * (1 - limit / spent))
    idle = _launch_gaps(case, iv.union(h.start[steps], h.stop[steps]), len(kernels))
    if not claimed.any() and not idle:
        return None
    each = human(round(count / len(steps)), "count")
    evidence = f"`{kind}` updates its parameters with {each} {'operators' if case.on_host else 'kernels'} a step, {took(spent)}"
    if limit:
        size_each = human(round(elements / case.fall.steps), "count")
        evidence += f"; one pass over {arrays} arrays of {size_each} elements has a limit of {took(limit)}"
    if idle:
        evidence += f"; the {device_word(case.capture)} idles {took(idle)} meanwhile"
    return Lever(
        "unfused_optimizer",
        "The optimizer takes many passes over its parameters",
        evidence + ".",
        case.each(float(claimed.sum()) + idle),
        f"torch.optim.{kind}(model.parameters(), fused=True)" if kind in HAS_FUSED else "step = torch.compile(optimizer.step)",
        "elementwise",
        "phases",
        "The optimizer among the phases",
        find="Optimizer",
        rows=rows if claimed.any() else rows[:0],
        claimed=claimed if claimed.any() else claimed[:0],
    )


def _launch_gaps(case: Case, inside: iv.Spans, kernels: int) -> int:
    """The device's idle time inside the optimizer, where it is short enough per kernel to come from launching many; else 0."""
    if case.on_host or not kernels:
        return 0
    idle = iv.length(iv.intersect(case.idle, inside))
    return case.claim_idle(inside) if idle <= LAUNCH_GAP_NS * kernels else 0


def _inside(case: Case, steps: npt.NDArray[np.intp]) -> Mask:
    """Per host row whether it lies below one of some host rows."""
    end = at.host(case.capture).end
    level = np.zeros(len(end) + 1, np.int64)
    np.add.at(level, steps, 1)
    np.subtract.at(level, end[steps], 1)
    return np.asarray(np.cumsum(level[:-1]) > 0)


def _kernels(case: Case, inside: Mask) -> npt.NDArray[np.intp]:
    """Device rows with own time that were launched inside."""
    if case.on_host:
        return np.zeros(0, np.intp)
    call = case.capture.device["call"].to_numpy()
    return np.flatnonzero((call >= 0) & inside[np.maximum(call, 0)] & (case.fall.own > 0))


def _parameters(case: Case, rows: Ints) -> tuple[int, int, int]:
    """(arrays that one pass moves, elements of all parameters over all steps, their bytes); (0, 0, 0) where sizes are not recorded.

    `addcdiv_` runs once per parameter and marks Adam and its kin; `mul_` without it the momentum of SGD; else `add_` is all there is.
    """
    code, read = case.by_signature(rows)
    calls = np.bincount(code, minlength=len(read)).tolist()
    _, first = np.unique(code, return_index=True)
    types = texts.pick(case.ops["dtype"], rows[first]).tolist()  # of lists the type is not recorded: the one that the cost model took
    for verb, arrays in (("addcdiv", 7), ("mul", 5), ("add", 3)):
        name = re.compile(rf"aten::(_foreach_)?{verb}_?")
        found = [
            (n * t.numel, t.dtype or dtype)
            for n, dtype, (operator, call) in zip(calls, types, read, strict=True)
            if name.fullmatch(operator)
            for t in _first(call)
        ]
        elements = sum(n for n, _ in found)
        if elements:
            return arrays, elements, sum(n * BITS.get(dtype, 32) // 8 for n, dtype in found)
    return 0, 0, 0


def _first(call: Inputs) -> tuple[Tensor, ...]:
    """The tensors that a call updates."""
    one = call.tensor(0)
    return (one,) if one is not None else call.tensors(0)
