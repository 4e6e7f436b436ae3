"""Joins the tables of allocator snapshots and memory timelines to the trace or SOL log of the same process, on one clock.

Both must say when they were in time since 1970: times become those of the capture. Without that nothing is joined, for levels of one
would stand over the steps of the other at the wrong place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.recordings import SNAPSHOT, TIMELINE, WORDS
from tb_sol_plugin.tables.arrays import Ints

if TYPE_CHECKING:
    from tb_sol_plugin.model.capture import Capture


# -- Kinds of recordings that hold memory alone, and what to call them. Light ----------------------------------------


TABLES: Final = {SNAPSHOT: (S.MEMORY_EVENTS.name, S.MEMORY_BLOCKS.name), TIMELINE: (S.MEMORY_TIMELINE.name,)}
CPU: Final = 0
SAME_NS: Final = 1_000
"""Times of one event in a trace and in its timeline differ by less: both are cut to microseconds in some versions."""
SAME_SHARE: Final = 0.5
"""Part of a timeline's times that must be those of memory events of a device, for it to be that device's."""


def joined_files(capture: Capture) -> dict[str, str]:
    """Returns the file of every kind of memory recording that is joined to a capture."""
    metadata = capture.facts.metadata
    return {what: metadata[what] for what in TABLES if what in metadata}


def with_memory(capture: Capture, found: dict[str, Capture], *, attached_state: str, problems: tuple[str, ...] = ()) -> Capture:
    """Returns the capture with the tables of a snapshot and of a timeline of its worker in place of those joined before.

    found: by SNAPSHOT and TIMELINE, of known times as the capture. attached_state: of all that is joined, see `Capture.attached_state`.
    problems: of those that cannot be read or do not belong, for the warnings.
    """
    from tb_sol_plugin.model.capture import Capture, notes_of

    own = {name for names in TABLES.values() for name in names}
    tables = {name: table for name, table in capture.tables.items() if name not in own}
    metadata = {k: v for k, v in capture.facts.metadata.items() if k.partition(".")[0] not in TABLES}
    notes = []
    for what, other in found.items():
        metadata[what] = other.facts.file
        for name in TABLES[what]:
            tables[name] = _moved(capture, other, other.tables[name])
        if what == TIMELINE:
            table = tables[S.MEMORY_TIMELINE.name]
            device = device_of(capture, table["time_ns"].to_numpy())
            tables[S.MEMORY_TIMELINE.name] = table.assign(device=pd.Categorical([device] * len(table)))
        notes += [f"{WORDS[what]}: {line}" for line in notes_of(other)]
    kept = tuple(line for line in capture.facts.attached_notes if not line.startswith(tuple(f"{word}: " for word in WORDS.values())))
    warnings = [w for w in capture.facts.warnings if not w.startswith(NOT_JOINED)] + [NOT_JOINED + line for line in problems]
    facts = msgspec.structs.replace(capture.facts, metadata=metadata, attached_notes=kept + tuple(notes), warnings=tuple(warnings))
    return Capture(
        facts, tables, run=capture.run, worker=capture.worker, span=capture.span, devices=capture.devices, attached_state=attached_state
    )


NOT_JOINED: Final = "memory beside this recording is not shown with it: "


def _moved(capture: Capture, other: Capture, table: pd.DataFrame) -> pd.DataFrame:
    """Returns a table with its times on the clock of the capture; -1 stays unknown."""
    if "time_ns" not in table:
        return table
    time = table["time_ns"].to_numpy()
    return table.assign(time_ns=np.where(time >= 0, on_its_clock(capture, time + (other.facts.origin_ns - capture.facts.origin_ns)), -1))


def on_its_clock(capture: Capture, time: Ints) -> Ints:
    """Returns times of a clock that never stands still, less the capture's origin, as times of the capture.

    The clock of a SOL capture stands still while the recorder works; a moment within such a rest is its end.
    """
    from tb_sol_plugin.model.capture import own_work_until

    table = capture.tables[S.ITERATIONS.name]
    if capture.facts.source != "sol_capture" or not len(table):
        return time
    start = np.sort(table["start_ns"].to_numpy())
    stood = own_work_until(capture, start)
    row = np.searchsorted(start + stood, time, side="right") - 1
    following = np.r_[start[1:], np.iinfo(np.int64).max]
    moved = time - np.where(row >= 0, stood[row.clip(0)], 0)
    return np.asarray(np.minimum(moved, np.where(row >= 0, following[row.clip(0)], start[0])), np.int64)


def device_of(trace: Capture, time: Ints) -> str:
    """Returns the device of a trace whose memory events stand at these times: `cpu`, `device 0`; "" where none fits.

    A timeline does not name its device, but it is made out of the same events.
    """
    table = trace.tables[S.MEMORY.name]
    own = np.unique(time)
    best, share = "", SAME_SHARE
    pairs = table[["device_type", "device_id"]].drop_duplicates()
    for kind, number in zip(pairs["device_type"].tolist(), pairs["device_id"].tolist(), strict=True):
        here = (table["device_type"].to_numpy() == kind) & (table["device_id"].to_numpy() == number)
        event = np.sort(table["time_ns"].to_numpy()[here])
        after = np.searchsorted(event, own - SAME_NS)
        same = (after < len(event)) & (event[after.clip(0, len(event) - 1)] <= own + SAME_NS)
        if len(own) and float(same.mean()) >= share:
            best, share = ("cpu" if kind == CPU else f"device {number}"), float(same.mean())
    return best


def spans_of(capture: Capture) -> tuple[int, int]:
    """Returns the first and last moment of a capture in ns since 1970."""
    low, high = capture.facts.extent_ns
    return capture.facts.origin_ns + low, capture.facts.origin_ns + high
