"""Sets the critical paths of two sides against each other: what holds the step, in place of what runs in it.

The critical path tiles each step exactly, so the differences of its parts add up to that of the step, and those of the operators in a part
add up to the part. Two equal steps may have quite different paths: parts are compared over all kept steps, never one against one.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from tb_sol_plugin.metrics.compare.differences import PATH, Side, Waterfall, rows_of, waterfall_of
from tb_sol_plugin.metrics.compare.samples import (
    BETWEEN,
    LAUNCH,
    MOST_ROWS,
    NAME,
    OTHER,
    Grouping,
    PathParts,
    Samples,
    owners_of,
    pack,
    samples_of,
)
from tb_sol_plugin.metrics.critical.graph import graph_of
from tb_sol_plugin.metrics.critical.items import item_codes, keys_of
from tb_sol_plugin.metrics.critical.parts import PARTS, steps_frame
from tb_sol_plugin.metrics.critical.path import PLACE, Path, path_of
from tb_sol_plugin.metrics.critical.replay import trust_of
from tb_sol_plugin.metrics.time.scope import complete_steps, is_capture, is_profile, scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.tables.intervals import overlap_with, union
from tb_sol_plugin.units import number

TRUSTED: Final = ("good", "fair")
"""Grades of a critical path that a comparison may rest on."""
MOST_SILENT: Final = 0.25
"""Of the steps: where the path is longer on a host of which nothing is recorded while the device works, the host waits unseen."""


def samples_with_path(capture: Capture, query: Query) -> Samples:
    """Returns the samples of a recording with the critical paths of their steps, where it has these."""
    found = samples_of(capture, query)
    return msgspec.structs.replace(found, path=path_parts(capture, query, found))


def path_parts(capture: Capture, query: Query, found: Samples) -> PathParts | None:
    """Returns the critical paths of the steps of samples by part and operator; None where there is none, or not of all of them."""
    if is_capture(capture) or is_profile(capture) or not len(graph_of(capture).time):
        return None
    where = complete_steps(capture, scope(capture, query))
    path = path_of(capture, where)
    frame = steps_frame(path)
    numbers = capture.steps["number"].to_numpy()[path.rows] if found.steps != (-1,) else np.array([-1])
    place = {int(n): i for i, n in enumerate(numbers.tolist())}
    if any(n not in place for n in found.steps):
        return None
    rows = np.array([place[n] for n in found.steps], np.int64)
    if frame["duration_ns"].to_numpy()[rows].tolist() != list(found.values["step_time"]):
        return None
    parts = {f"{PATH}{name}": tuple(frame[name].to_numpy()[rows].tolist()) for name in PARTS}
    items = _items(capture, path, rows[list(found.row_steps)])
    return PathParts(trust_of(capture, where).grade, parts, items, _silent(capture, path))


def _silent(capture: Capture, path: Path) -> float:
    """Returns in which part of the steps the path is on the host where nothing is recorded, while the device works."""
    total = int((path.end - path.begin).sum())
    own = path.kind == PLACE["host_other"]
    if not total or not len(capture.device) or not own.any():
        return 0.0
    begin = capture.device["start_ns"].to_numpy()
    busy = union(begin, begin + capture.device["duration_ns"].to_numpy())
    start = path.start[own]
    return int(overlap_with(start, start + path.duration[own], busy).sum()) / total


def _items(capture: Capture, path: Path, steps: Ints) -> Grouping:
    """Returns what each part of the path consists of, per step: kernels by module and operator, the rest by operator. steps: places in
    `path.rows`.
    """
    keys = keys_of(capture, "operator")
    code = item_codes(path, keys)
    names = len(keys.names)
    launches = owners_of(capture).get(LAUNCH)
    if launches is not None:
        runs = np.flatnonzero((path.device >= 0) & (keys.latency[path.kind] < 0))
        launch = launches.device[path.device[runs]]
        code[runs] = np.where(launch >= 0, names + launch, code[runs])
        names += launches.count
    of_class = np.zeros(len(PLACE), np.int64)
    parts = list(PARTS)
    for i, (*_, classes) in enumerate(PARTS.values()):
        of_class[[PLACE[c] for c in classes]] = i
    column = np.full(len(path.rows), -1, np.int64)
    column[steps] = np.arange(len(steps))
    at = column[np.searchsorted(path.rows, path.step)]
    inside = at >= 0
    pair, row = arrays.in_order(of_class[path.kind[inside]] * names + code[inside])
    total = arrays.exact_sums(row, path.duration[inside], len(pair))
    order = np.argsort(-total, kind="stable")
    keep, rest = order[:MOST_ROWS], order[MOST_ROWS:]
    part_of, name_of = pair // names, pair % names
    left = np.unique(part_of[rest])  # those beyond the largest together, per part
    target = np.zeros(len(pair), np.int64)
    target[keep] = np.arange(len(keep))
    target[rest] = len(keep) + np.searchsorted(left, part_of[rest])
    size = len(keep) + len(left)
    cell = target[row] * len(steps) + at[inside]
    time = arrays.exact_sums(cell, path.duration[inside], size * len(steps)).reshape(size, len(steps))
    calls = np.bincount(cell, minlength=size * len(steps)).astype(np.int64).reshape(size, len(steps))
    texts = [
        launches.name(i - len(keys.names)) if launches is not None and i >= len(keys.names) else str(keys.names[i])[:NAME]
        for i in name_of[keep].tolist()
    ]
    of = [f"{PATH}{parts[i]}" for i in (*part_of[keep].tolist(), *left.tolist())]
    shown = texts + [OTHER] * len(left)
    labels = [f"{part}{BETWEEN}{text}" for part, text in zip(of, shown, strict=True)]
    return Grouping(tuple(labels), tuple(of), pack(calls), pack(np.zeros_like(time)), pack(time), len(rest))


def why_no_path(a: Side, b: Side) -> str:
    """Returns why two sides have no paths to compare; "" where they have."""
    for side in (a, b):
        paths = [run.path for run in side.runs]
        if any(path is None for path in paths):
            return f"{side.name} has no critical path of all of its steps"
        poor = next((path.grade for path in paths if path is not None and path.grade not in TRUSTED), None)
        if poor is not None:
            return f"the critical path of {side.name} is graded {poor}"
        silent = max(path.silent for path in paths if path is not None)
        if silent > MOST_SILENT:
            part = f"for {number(100 * silent, 0)} % of the steps of {side.name}"
            return f"{part} nothing is recorded on the host while the device works, so what waits for what is not known"
    return ""


def waterfall_on_path(a: Side, b: Side) -> Waterfall:
    """Returns the difference of the mean step by parts of the critical path, of sides that both have one."""
    ours, theirs = (Side(side.name, [_on_path(run) for run in side.runs]) for side in (a, b))
    return waterfall_of(ours, theirs, {PATH: rows_of(ours, theirs, PATH)}, basis="path")


def _on_path(run: Samples) -> Samples:
    """Returns samples whose parts are those of the critical path."""
    assert run.path is not None
    return msgspec.structs.replace(run, parts=run.path.parts, groupings={PATH: run.path.items})
