"""What steps leave behind: memory allocated in one step and still in use after the last, by who asked for it.

Somebody who leaves some in nearly every step is the cause of a growth. What the last step leaves is no evidence: its gradients and results
have had no next step in which they are freed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.memory.choose import number_of
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.lines import own_line
from tb_sol_plugin.metrics.memory.lives import lives
from tb_sol_plugin.metrics.memory.owners import owners
from tb_sol_plugin.metrics.memory.per_step import extremes, records_of, step_of
from tb_sol_plugin.metrics.names import module_instance
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints

OFTEN: Final = 0.8
"""Part of the steps in which somebody leaves memory behind, from which on it is evidence."""
FEWEST_WALKS: Final = 3
MOST: Final = 12
"""Rows of evidence per grouping."""
COLUMNS: Final = ("by", "name", "per_step", "bytes", "steps", "of_steps", "allocations")
NONE: Final = np.zeros(0, np.int64)
BY: Final = ("module", "operator", "frame")


@dataclass(frozen=True)
class Survivors:
    """groups: by (module, operator, frame or category), name, per_step (mean bytes left per step), bytes (of all steps), steps (in which it
    left some), of_steps (that were looked at), allocations (-1 unknown). left: bytes per step, empty where addresses are unknown."""

    groups: pd.DataFrame
    left: Ints


def nobody() -> pd.DataFrame:
    """A table of evidence without rows."""
    return pd.DataFrame({c: pd.Series(dtype=object if c in ("by", "name") else np.int64) for c in COLUMNS})


def survivors(capture: Capture, curve: Curves, steps: pd.DataFrame) -> Survivors:
    """Of the steps of a curve (start_ns, end_ns, in order)."""
    found = lives(capture, curve) if len(steps) else None
    if found is None:
        return Survivors(_growing(curve, steps) if len(steps) else nobody(), NONE)
    if not found["known"].any():
        return Survivors(nobody(), NONE)
    step = step_of(steps, found["start_ns"].to_numpy())
    last = int(steps["end_ns"].to_numpy()[-1])
    keep = (step >= 0) & found["known"].to_numpy() & (found["row"].to_numpy() >= 0) & (found["end_ns"].to_numpy() >= last)
    row, size, step = found["row"].to_numpy()[keep], found["bytes"].to_numpy()[keep], step[keep]
    named = _of_events(capture, row) if curve.source == "events" else _of_history(capture, row)
    groups = [_often(by, code, names, size, step, len(steps)) for by, code, names in named if (code >= 0).any()]
    return Survivors(_joined(groups), _per_step(size, step, len(steps)))


def _of_events(capture: Capture, row: Ints) -> list[tuple[str, Ints, list[str]]]:
    """Per grouping the code of each allocation's owner (-1 none) and the names of the codes. row: of `memory`."""
    if not len(capture.host):
        return []
    own = owners(capture)
    every = arrays.codes(capture.host["name"])
    names = [str(n) for n in capture.host["name"].cat.categories]
    out = []
    for by in BY:
        host = own[by].to_numpy()[row]
        out.append((by, np.where(host >= 0, every[host.clip(0)], -1), [module_instance(n) for n in names] if by == "module" else names))
    return out


def _of_history(capture: Capture, row: Ints) -> list[tuple[str, Ints, list[str]]]:
    """The same of entries of an allocator's history, which knows lines of the program alone."""
    stacks = capture.tables[S.MEMORY_EVENTS.name]["frames"]
    code = arrays.codes(stacks)[row]
    names = [""] * len(stacks.cat.categories)
    for one in np.unique(code[code >= 0]).tolist():
        names[one] = own_line(str(stacks.cat.categories[one]))
    return [("frame", np.where(np.array([*(bool(n) for n in names), False])[code], code, -1), names)]


def _growing(curve: Curves, steps: pd.DataFrame) -> pd.DataFrame:
    """Categories of a timeline whose least grows in nearly every step."""
    rows = []
    for name, level in curve.categories.items():
        least, _ = extremes(curve.time_ns, level, steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy())
        rise = np.diff(least)
        if len(rise) and float((rise > 0).mean()) >= OFTEN:
            rows.append(("category", name, round(float(rise.mean())), int(rise.sum()), int((rise > 0).sum()), len(rise), -1))
    return _joined([pd.DataFrame(rows, columns=list(COLUMNS))] if rows else [])


def parts_that_grow(capture: Capture, curve: Curves) -> pd.DataFrame:
    """Of a recorder: categories of what it walked over (with their module where one is named) that grow from record to record."""
    records = records_of(capture, number_of(curve.device))
    parts = capture.tables[S.MEMORY_PARTS.name]
    numbers = records.index.to_numpy()
    own = parts[np.isin(parts["record"].to_numpy(), numbers)]
    walked = np.unique(own["record"].to_numpy())
    if len(walked) < FEWEST_WALKS:
        return nobody()
    labels = capture.tables[S.LABELS.name]["name"]
    module = arrays.pick(labels, own["module"].to_numpy()) if len(labels) else np.full(len(own), "", object)
    names = np.array([f"{c}: {m}" if m else c for c, m in zip(own["category"].astype(str), module.tolist(), strict=True)], object)
    order = {int(r): i for i, r in enumerate(r for r in numbers.tolist() if r in set(walked.tolist()))}
    place = np.array([order[int(r)] for r in own["record"]], np.int64)
    step = records["iteration"].to_numpy()[np.isin(numbers, walked)]
    rows = []
    for name, found in pd.DataFrame({"name": names, "place": place, "bytes": own["bytes"].to_numpy()}).groupby("name", sort=True):
        level = np.bincount(found["place"], found["bytes"], minlength=len(order))
        rise = np.diff(level)
        if float((rise > 0).mean()) >= OFTEN:
            per = float(level[-1] - level[0]) / max(int(step[-1] - step[0]), 1)
            rows.append(("category", str(name), round(per), int(rise.sum()), int((rise > 0).sum()), len(rise), -1))
    return _joined([pd.DataFrame(rows, columns=list(COLUMNS))] if rows else [])


def _often(by: str, code: Ints, names: Sequence[str], size: Ints, step: Ints, count: int) -> pd.DataFrame:
    """Names that leave memory behind in nearly every step but the last."""
    early = (code >= 0) & (step < count - 1)
    texts_of: dict[str, int] = {}
    merged = np.array([texts_of.setdefault(n, len(texts_of)) for n in names], np.int64)[code[early]]
    pairs, first = np.unique(np.stack([merged, step[early]], axis=1), axis=0, return_index=True)
    seen = np.bincount(pairs[:, 0], minlength=len(texts_of)) if len(first) else np.zeros(len(texts_of), np.int64)
    total = np.zeros(len(texts_of), np.int64)
    np.add.at(total, merged, size[early])
    calls = np.bincount(merged, minlength=len(texts_of))
    looked = count - 1
    often = np.flatnonzero((seen >= max(OFTEN * looked, 2)) & (total > 0))
    often = often[np.argsort(-total[often], kind="stable")][:MOST]
    every = list(texts_of)
    return pd.DataFrame(
        [(by, every[i], round(int(total[i]) / looked), int(total[i]), int(seen[i]), looked, int(calls[i])) for i in often.tolist()],
        columns=list(COLUMNS),
    )


def _joined(groups: list[pd.DataFrame]) -> pd.DataFrame:
    kept = [g.sort_values("per_step", ascending=False, kind="stable") for g in groups if len(g)]
    return pd.concat(kept, ignore_index=True) if kept else nobody()


def _per_step(size: Ints, step: Ints, count: int) -> Ints:
    out = np.zeros(count, np.int64)
    np.add.at(out, step, size)
    return out
