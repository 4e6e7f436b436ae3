"""Times the iterations of a serving engine: prefill, decode and mixed ones, the host between them, and what their device time is spent on.

Sums come before ratios. An iteration's wall time is that of its annotation on the host; its device time the union of the device events
that it launched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import memo_under
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.graph_launches import GraphLaunches, graph_launches
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.work.work import Work
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables.arrays import Ints, Mask

EAGER: Final = "eager"
PARTS: Final = (
    "attention", "GEMM", "MoE", "norm", "KV-cache write", "sampling", "communication", "copies and sets", "other",
)  # fmt: skip
"""What the device time of an iteration is spent on."""
_MOE: Final = re.compile(r"moe|fused_experts|expert", re.IGNORECASE)
_CACHE: Final = re.compile(r"reshape_and_cache|kv_?cache|store_cache|set_kv_buffer|concat_and_cache", re.IGNORECASE)
_ATTENTION: Final = re.compile(r"attention|flash|fmha|paged|mla_|ragged", re.IGNORECASE)
_NORM: Final = re.compile(r"norm", re.IGNORECASE)
_GEMM: Final = re.compile(r"gemm|Cijk|matmul|nvjet|cutlass|aten::(?:mm|addmm|bmm|linear)", re.IGNORECASE)
_SAMPLING: Final = re.compile(r"argmax|sort|top_?k|top_?p|softmax|multinomial|exponential_|sampl|gumbel", re.IGNORECASE)
_BY_NAME: Final = (
    ("KV-cache write", _CACHE), ("MoE", _MOE), ("attention", _ATTENTION), ("GEMM", _GEMM), ("norm", _NORM), ("sampling", _SAMPLING),
)  # fmt: skip
"""The part that a name speaks of, the first that matches; of an operator, and of a kernel without one."""


@dataclass(frozen=True)
class Serving:
    """Iterations of a selection.

    frame: one row per iteration in order of time: row (of `steps`), number, kind, requests, context_tokens, generation_tokens, batch,
    captured_batch (NaN unknown or eager), padding (captured over asked, less 1), graphs (FULL, PIECEWISE, a graph without a known capture,
    or EAGER), launches (of graphs), start_ns, wall_ns, length_ns and until_ns (of the step: until
    its device work has ended), device_ns (NaN without a device), sum_ns (plain sum of its device events), replayed_ns, named_ns
    (of replayed work with an operator), gap_ns (host time since the iteration before ended; NaN where that one is not recorded), sol_ns,
    measured_ns (of modeled work), modelled_share, complete. part: place in PARTS per device row. launched_ns, launch_ns: per graph launch
    of the selection the call's start, and the time from there to its first device event.
    """

    frame: pd.DataFrame
    part: npt.NDArray[np.int8]
    launched_ns: Ints
    launch_ns: Ints


def serving(capture: Capture, where: Scope, done: Work) -> Serving:
    """Returns the iterations of a selection; the recording has some."""
    return memo_under(capture, done.spec, ("serving", where.rows), lambda: _serving(capture, where, done))


def _serving(capture: Capture, where: Scope, done: Work) -> Serving:
    steps, device = capture.steps, capture.device
    count = len(steps)
    step, duration = device["step"].to_numpy(), device["duration_ns"].to_numpy()
    start = device["start_ns"].to_numpy()
    graph = device["graph"].to_numpy()
    named = graph & (device["operator"].to_numpy() >= 0)
    begin, end = steps["host_start_ns"].to_numpy(), steps["host_end_ns"].to_numpy()
    gap = np.append(np.nan, begin[1:] - end[:-1]) if count else np.zeros(0)
    launches = graph_launches(capture)
    captured = np.full(count, np.nan)
    for row, batch in zip(launches.step.tolist(), launches.captured.tolist(), strict=True):
        if row >= 0 and batch >= 0:
            captured[row] = np.fmax(captured[row], batch)
    asked = _known(steps["batch"])
    ops = done.ops
    of = ops["step"].to_numpy() if len(ops) else np.zeros(0, np.int64)
    modeled = ops["modeled"].to_numpy() & np.isfinite(ops["sol_ns"].to_numpy())
    measured = at.sum_by(np.where(modeled, of, -1), ops["measured_ns"].to_numpy(dtype=np.float64), count)
    frame = pd.DataFrame(
        {
            "row": np.arange(count),
            "number": steps["number"].to_numpy(),
            "kind": steps["kind"].astype(str),
            **{name: _known(steps[name]) for name in ("requests", "context_tokens", "generation_tokens")},
            "batch": asked,
            "captured_batch": captured,
            "padding": np.where(asked > 0, captured / np.where(asked > 0, asked, 1) - 1, np.nan),
            "graphs": _modes(launches, count),
            "launches": np.bincount(launches.step[launches.step >= 0], minlength=count),
            "start_ns": begin,
            "wall_ns": end - begin,
            "length_ns": steps["end_ns"].to_numpy() - steps["start_ns"].to_numpy(),
            "until_ns": steps["end_ns"].to_numpy(),
            "device_ns": at.union_by(step, start, start + duration, count) if len(device) else np.full(count, np.nan),
            "sum_ns": at.sum_by(step, duration, count),
            "replayed_ns": at.sum_by(np.where(graph, step, -1), duration, count),
            "named_ns": at.sum_by(np.where(named, step, -1), duration, count),
            "gap_ns": np.maximum(gap, 0),
            "sol_ns": np.where(measured > 0, at.sum_by(np.where(modeled, of, -1), ops["sol_ns"].to_numpy(), count), np.nan),
            "measured_ns": measured,
            "complete": steps["complete"].to_numpy(),
        }
    )
    share = np.divide(measured, frame["sum_ns"], out=np.full(count, np.nan), where=frame["sum_ns"].to_numpy() > 0)
    frame = frame.assign(modelled_share=share).iloc[list(where.rows)].reset_index(drop=True)
    inside = np.isin(launches.step, where.rows)
    return Serving(frame, parts(capture, done), launches.begun[inside], launches.latency[inside])


def _known(column: pd.Series) -> npt.NDArray[np.float64]:
    values = column.to_numpy(dtype=np.float64)
    return np.where(values < 0, np.nan, values)


def _modes(launches: GraphLaunches, count: int) -> list[str]:
    """Returns how each step launched its work: EAGER, the mode of its graphs, or "a graph" where their capture is not known."""
    out = [EAGER] * count
    for row, mode in zip(launches.step.tolist(), launches.mode, strict=True):
        if row >= 0 and out[row] in (EAGER, "a graph"):
            out[row] = mode or "a graph"
    return out


# -- what device time is spent on ----------------------------------------------------------------------------------------


def parts(capture: Capture, done: Work) -> npt.NDArray[np.int8]:
    """Returns the place in PARTS of every device row: by the operators around its launch, their kind of work, else by its own name."""
    device = capture.device
    out = np.full(len(device), PARTS.index("other"), np.int8)
    if not len(device):
        return out
    by_name = arrays.per_text(device["name"], np.arange(len(device)), _part_of, np.int8)
    operator = device["operator"].to_numpy()
    has = operator >= 0
    out[~has] = by_name[~has]
    rows = np.flatnonzero(has)
    if len(rows):
        own = arrays.per_text(capture.host["name"], operator[rows], _part_of, np.int8)
        owner = done.owner[rows] if len(done.owner) == len(device) else np.full(len(rows), -1)
        kinds = [*done.ops["kind"].cat.categories] if len(done.ops) else []
        kind = np.append(arrays.codes(done.ops["kind"]), -1)[owner] if kinds else np.full(len(rows), -1)
        of_kind = np.array([*(_OF_KIND.get(str(k), PARTS.index("other")) for k in kinds), PARTS.index("other")], np.int8)[kind]
        found = np.where(own == PARTS.index("other"), of_kind, own)
        found = np.where((found == PARTS.index("sampling")) & (device["module"].to_numpy()[rows] >= 0), PARTS.index("other"), found)
        for name, pattern in (("attention", _ATTENTION), ("MoE", _MOE)):
            found[_within(capture, rows, pattern) & (found != PARTS.index("KV-cache write"))] = PARTS.index(name)
        out[rows] = found
    out[device["kind"].to_numpy() != S.KERNEL] = PARTS.index("copies and sets")
    out[device["communication"].to_numpy()] = PARTS.index("communication")
    return out


_OF_KIND: Final = {"gemm": PARTS.index("GEMM"), "attention": PARTS.index("attention"), "norm": PARTS.index("norm")}


def parts_of_calls(done: Work) -> npt.NDArray[np.int8]:
    """Returns the place in PARTS of every row of `Work.ops`: by its operator's name, else by its kind of work."""
    other = PARTS.index("other")
    ops = done.ops
    own = arrays.per_text(ops["name"], np.arange(len(ops)), _part_of, np.int8)
    own = np.where((own == PARTS.index("sampling")) & (ops["module"].to_numpy() >= 0), other, own)
    of_kind = np.array([*(_OF_KIND.get(str(kind), other) for kind in ops["kind"].cat.categories), other], np.int8)
    return np.where(own == other, of_kind[arrays.codes(ops["kind"])], own).astype(np.int8)


def _part_of(name: str) -> int:
    return next((PARTS.index(part) for part, pattern in _BY_NAME if pattern.search(name)), PARTS.index("other"))


def _within(capture: Capture, rows: npt.NDArray[np.integer], pattern: re.Pattern[str]) -> Mask:
    """Returns which device rows an operator of such a name is around."""
    named = at.named(capture, S.OPERATOR, lambda name: pattern.search(name) is not None)
    launch = at.launches(capture)
    h = at.host(capture)
    mask = at.mask_of(capture, named)
    return np.asarray(tree.nearest(mask, h.parent, h.stop, launch.call[rows], launch.time[rows], h.end) >= 0, np.bool_)


def took_ns(frame: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Returns how long each iteration took: its wall time, or that of the device where the host is done before it."""
    device = frame["device_ns"].to_numpy(dtype=np.float64)
    return np.asarray(np.fmax(frame["wall_ns"].to_numpy(dtype=np.float64), device), np.int64)


def passed_ns(frame: pd.DataFrame) -> tuple[int, int]:
    """Returns (time from the first iteration of a frame until the device work of the last has ended, the part of it between them), in ns.

    Of iterations that do not follow each other, the sum of the iterations and of the host time before each but the first.
    """
    inside = int(frame["wall_ns"].sum())
    gaps = int(np.nansum(frame["gap_ns"].to_numpy()[1:]))
    host_end = int((frame["start_ns"] + frame["wall_ns"]).max())
    return inside + gaps + max(int(frame["until_ns"].max()) - host_end, 0), gaps
