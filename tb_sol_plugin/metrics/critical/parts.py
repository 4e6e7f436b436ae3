"""Sums up the classes of the critical path into a few parts, per step and over steps, exact in sum."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.critical.path import CLASSES, KERNEL_KINDS, LABELS, PLACE, Path
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.tables.table import frame_of

PARTS: Final = {
    "host_ns": ("Host code", "host", "Python, operators and other code on the host", ("host_python", "host_operator", "host_other")),
    "runtime_ns": ("Runtime calls", "bar-ink", "runtime and driver calls that do not wait", ("host_runtime",)),
    "dataloader_ns": ("Data loading", "idle-hatch", "the host loads its next batch", ("dataloader",)),
    "latency_ns": ("Launches and gaps", "line-strong", "from a launch to its start, and between events of a stream",
                   ("launch", "kernel_gap")),
    "kernel_ns": ("Kernels", "compute", "kernels that are neither communication nor copies", tuple(f"kernel_{k}" for k in KERNEL_KINDS)),
    "communication_ns": ("Communication", "communication",
                         "communication kernels; with waiting for other ranks where that is not known by itself",
                         ("communication", "communication_transfer")),
    "rank_wait_ns": ("Waiting for ranks", "eff-50", "in collectives, until the last member came; known once all ranks of the run are read",
                     ("communication_wait",)),
    "copies_ns": ("Copies and sets", "memcpy", "copies and sets of memory", ("copy", "memset")),
    "wait_ns": ("Hand-overs", "norm", "waits for another stream or thread, and returns of calls that waited",
                ("event_wait", "sync_return", "wait_overhead", "handoff")),
    "unexplained_ns": ("Unexplained", "idle", "more than a launch, gap, wait or hand-over normally takes", ("unexplained",)),
    "window_ns": ("Not recorded", "sunken", "before the first or after the last recorded moment of the step", ("window",)),
}  # fmt: skip
"""Label, color, definition and classes of each part of the critical path; every class is in one."""


def class_sums(path: Path) -> Ints:
    """Returns ns of each class over all steps."""
    return arrays.exact_sums(path.kind, path.duration, len(CLASSES))


def mean_of(total: Ints, steps: int) -> Ints:
    """Returns sums over steps as means in whole ns, which add up to the mean of the whole."""
    return arrays.rounded(total / steps, round(int(total.sum()) / steps)) if len(total) else total


def steps_frame(path: Path) -> pd.DataFrame:
    """Returns one row per step: row (of `steps`), duration_ns, and its parts, which add up to it."""
    at = np.searchsorted(path.rows, path.step)
    size = len(CLASSES)
    of_class = arrays.exact_sums(at * size + path.kind, path.duration, len(path.rows) * size).reshape(-1, size)
    out = {"row": path.rows, "duration_ns": path.end - path.begin}
    for name, (*_, classes) in PARTS.items():
        out[name] = of_class[:, [PLACE[c] for c in classes]].sum(axis=1)
    return frame_of(out)


def _longest(path: Path, kind: int) -> int:
    """Returns the longest segment of a class that is there, of equal ones the last."""
    mine = np.flatnonzero(path.kind == kind)
    return int(mine[len(mine) - 1 - int(path.duration[mine][::-1].argmax())])


def classes_frame(path: Path) -> pd.DataFrame:
    """Returns one row per class on the path, in order of CLASSES: class, time_ns (mean per step), segments, share, inferred_ns, longest_ns,
    longest_start_ns."""
    steps = len(path.rows)
    total = class_sums(path)
    rows = np.flatnonzero(total)
    time = mean_of(total, steps)
    last = np.array([_longest(path, k) for k in rows.tolist()], np.int64)
    whole = max(int(total.sum()), 1)
    return frame_of({
        "class": [LABELS[CLASSES[k]] for k in rows.tolist()], "time_ns": time[rows], "share": total[rows] / whole,
        "segments": np.bincount(path.kind, minlength=len(CLASSES))[rows],
        "inferred_ns": arrays.exact_sums(path.kind, path.duration * path.inferred, len(CLASSES))[rows] // max(steps, 1),
        "longest_ns": path.duration[last], "longest_start_ns": path.start[last],
    })  # fmt: skip
