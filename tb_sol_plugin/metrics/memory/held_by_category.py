"""What memory in use at a moment of a trace was for: as a timeline or a recorder beside the trace saw it, else as its events suggest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.memory import held_by_parts as parts
from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.metrics.memory.categories import NAMES, categories
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.held import Groups, summed
from tb_sol_plugin.metrics.memory.owners import owners
from tb_sol_plugin.model.capture import Capture

ESTIMATED: Final = "estimated from what ran when memory was allocated and freed; store a memory timeline beside the trace to measure it"
ESTIMATED_REST: Final = "activations, inputs and what passes are estimated from what ran when memory was allocated and freed"
MEASURED: Final = "categories as the memory timeline of this worker has them"
PASSING: Final = ("activations", "inputs", "temporary", "autograd_detail")
"""What a recorder that looks at parameters, gradients and optimizers does not see."""


def estimated(capture: Capture, device: R.Device, lives: pd.DataFrame) -> Groups:
    """Allocations by their likely category. lives: rows of `replay.allocations`, none from before."""
    found = categories(capture, device).loc[lives.index]
    code = found["category"].to_numpy().astype(np.int64)
    around = owners(capture)["around"].to_numpy()[lives["row"].to_numpy()].astype(np.int64)
    every = summed(code, list(NAMES), lives["bytes"].to_numpy(), around, estimated=found["estimated"].to_numpy())
    return _only(every, [name for name in every.names if name != "unknown"])


def measured(timeline: Curves, time_ns: int, total: int, *, host: bool) -> Groups | None:
    """Categories of a timeline at a time, None where they do not fit into what was in use.

    host: totals leave out what was there before the recording, so that what a category holds all the time is taken off.
    """
    now = parts.of_timeline(timeline, timeline.at(time_ns))
    size = now.bytes
    if host:
        always = parts.held_throughout(timeline)
        size = size - np.array([always[name] for name in now.names], np.int64)
    if int(size.sum()) > total:
        return None
    return _only(replace(now, bytes=size), [name for name, left in zip(now.names, size.tolist(), strict=True) if left])


def recorded(capture: Capture, device: int, time_ns: int, total: int, guess: Groups) -> tuple[Groups, tuple[str, ...]] | None:
    """The parts of the record nearest to a time with the estimate of what passes; None without one, or where it does not fit.

    device: as records number it; none of the host, whose totals leave out what a record counts. guess: categories as estimated.
    """
    rows = parts.records_with_parts(capture, device)
    if not len(rows):
        return None
    record = parts.nearest(capture, rows, time_ns)
    seen, passing = parts.of_record(capture, record, "category"), _only(guess, PASSING)
    if int(seen.bytes.sum()) + int(passing.bytes.sum()) > total:
        return None
    none = np.zeros(len(seen.names), bool)
    both = Groups(
        [*seen.names, *passing.names], np.r_[seen.bytes, passing.bytes], np.r_[seen.allocations, passing.allocations],
        np.r_[none, np.ones(len(passing.names), bool)],
        np.r_[np.full(len(seen.names), -1, np.int64), _or(passing.host_row, len(passing.names))],
    )  # fmt: skip
    return both, parts.when(capture, record, time_ns)


def _or(rows: np.ndarray | None, count: int) -> np.ndarray:
    return rows if rows is not None else np.full(count, -1, np.int64)


def _only(groups: Groups, names: Sequence[str]) -> Groups:
    keep = np.flatnonzero([name in names for name in groups.names])
    return Groups(
        [groups.names[i] for i in keep.tolist()], groups.bytes[keep], groups.allocations[keep],
        groups.estimated[keep] if groups.estimated is not None else None,
        groups.host_row[keep] if groups.host_row is not None else None,
    )  # fmt: skip
