"""Finds the ranges that a training loop names: annotations right below its steps, or the outermost ones where no step was recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_sol_plugin.metrics.timeline.events import column_text
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture

MOST: Final = 2_000


@dataclass(frozen=True)
class Band:
    """A range on the host, ns."""

    label: str
    start_ns: int
    end_ns: int
    depth: int


def bands(capture: Capture) -> list[Band]:
    """Returns the ranges in order of time; of more than MOST the longest."""
    host = capture.host
    if not len(host):
        return []
    annotation = host["kind"].to_numpy() == S.ANNOTATION
    steps = capture.steps["host"].to_numpy()
    steps = steps[steps >= 0]
    parent = host["parent"].to_numpy()
    if len(steps):
        above = np.zeros(len(host), np.bool_)
        above[steps] = True
        rows = np.flatnonzero(annotation & (parent >= 0) & above[np.maximum(parent, 0)])
    else:
        rows = np.flatnonzero(annotation & (parent < 0))
    start, duration = host["start_ns"].to_numpy()[rows], host["duration_ns"].to_numpy()[rows]
    keep = np.sort(np.argsort(-duration, kind="stable")[:MOST])
    return [Band(column_text(host, "name", int(rows[i])), int(start[i]), int(start[i] + duration[i]), 0) for i in keep.tolist()]
