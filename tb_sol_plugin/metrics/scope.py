"""What part of a recording a query looks at: the device rows, the host rows, the window and the steps."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics import memo, source
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables.arrays import Mask


@dataclass(frozen=True)
class Scope:
    """A selection of steps, resolved against one capture.

    device: per device row, whether its launch starts in a selected step; all rows for the whole recording, so work launched
    before the window or outside every step is in it too. host: per host row, whether it starts in a selected step (host bounds).
    The whole of a SOL capture are the steps whose work is looked at.
    window_ns: first start and last end of the selected steps (GPU-aware bounds), or the extent of the recording.
    rows: rows of `steps`; for the whole recording all recorded steps. steps: their numbers.
    step_count: what to divide by for a per-step average: 1 where no step was recorded. whole: no step was asked for.
    """

    device: Mask
    host: Mask
    window_ns: tuple[int, int]
    rows: tuple[int, ...]
    steps: tuple[int, ...]
    step_count: int
    label: str
    whole: bool

    @property
    def window_length_ns(self) -> int:
        return self.window_ns[1] - self.window_ns[0]


def scope(capture: Capture, query: Query) -> Scope:
    """The part of `capture` that `query.step` names: "" (whole recording), "12" or "12-15". BadQuery for an unknown step."""
    return memo(capture, ("scope", query.step.strip()), lambda: _scope(capture, query.step.strip()))


def _scope(capture: Capture, text: str) -> Scope:
    steps = capture.steps
    numbers = steps["number"].to_numpy()
    recorded = np.flatnonzero(numbers >= 0) if not capture.facts.pseudo_step else np.zeros(0, np.int64)
    on_host = np.ones(len(capture.host), bool)
    if source.is_capture(capture) and len(recorded):
        recorded = source.steps_looked_at(capture)
        on_host = _in_steps(capture, recorded)
    if not text:
        return Scope(
            np.ones(len(capture.device), bool),
            on_host,
            extent(capture),
            tuple(recorded.tolist()),
            tuple(numbers[recorded].tolist()),
            max(len(recorded), 1),
            "whole recording",
            True,
        )
    low, high = _bounds(text)
    chosen = recorded[(numbers[recorded] >= low) & (numbers[recorded] <= high)]
    if not len(chosen):
        hint = f"recorded: {_span(numbers[recorded])}" if len(recorded) else "this recording has no ProfilerStep; leave step empty"
        raise BadQuery(f"no step {text}", hint=hint, field="step")
    return Scope(
        np.isin(capture.device["step"].to_numpy(), chosen),
        _in_steps(capture, chosen),
        (int(steps["start_ns"].to_numpy()[chosen].min()), int(steps["end_ns"].to_numpy()[chosen].max())),
        tuple(chosen.tolist()),
        tuple(numbers[chosen].tolist()),
        len(chosen),
        f"{'step' if len(chosen) == 1 else 'steps'} {_span(numbers[chosen])}, {len(chosen)} of {len(recorded)}",
        False,
    )


def _in_steps(capture: Capture, rows: npt.NDArray[np.int64]) -> Mask:
    """Per host row whether it starts within the host bounds of one of some steps."""
    start, end = (capture.steps[c].to_numpy()[rows] for c in ("host_start_ns", "host_end_ns"))
    return _starts_inside(capture.host["start_ns"].to_numpy(), start, end)


def in_steps(capture: Capture, where: Scope) -> Mask:
    """Device rows of a selection that its steps launched; all of them where no step was recorded."""
    return where.device & np.isin(capture.device["step"].to_numpy(), where.rows) if where.rows else where.device


def extent(capture: Capture) -> tuple[int, int]:
    """First start and last end of everything recorded; (0, 0) for nothing. Uses the tables where the facts give none."""
    if capture.facts.extent_ns != (0, 0):
        return capture.facts.extent_ns
    starts, ends = [], []
    for table in (capture.host, capture.device):
        if len(table):
            start = table["start_ns"].to_numpy()
            starts.append(int(start.min()))
            ends.append(int((start + table["duration_ns"].to_numpy()).max()))
    return (min(starts), max(ends)) if starts else (0, 0)


def _bounds(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,18})(?:\s*[-–:]\s*(\d{1,18}))?", text)
    if found is None:
        raise BadQuery(f"not a step: {text!r}", hint="give one step as 12 or a range as 12-15", field="step")
    low = int(found[1])
    high = int(found[2]) if found[2] else low
    return min(low, high), max(low, high)


def _span(numbers: npt.NDArray[np.int64]) -> str:
    low, high = int(numbers.min()), int(numbers.max())
    return str(low) if low == high else f"{low}–{high}"


def _starts_inside(at: npt.NDArray[np.int64], start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> Mask:
    """Per point, whether some interval `[start, end)` holds it."""
    order = np.argsort(start, kind="stable")
    first, reach = start[order], np.maximum.accumulate(end[order])
    slot = np.searchsorted(first, at, side="right") - 1
    return np.asarray((slot >= 0) & (at < reach[np.maximum(slot, 0)]), np.bool_)
