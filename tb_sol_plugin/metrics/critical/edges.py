"""Names the edges of the graph of a recording, and holds them as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.tables.arrays import Ints, Mask, Rows

KINDS: Final = ("host", "launch", "stream", "event", "device", "sync", "queue_full", "handoff")
"""What an edge is, from -> to:

host        a thread's moment -> its next one: the program works in between, or waits
launch      start of a launching call -> start of its work on the device
stream      end of the work before it on its stream -> start; where both overlap, start -> start
event       work of another stream that an event, or the order of calls, makes it wait for -> start
device      start of an event of the device -> its end
sync        end of device work -> end of the call that waited for it
queue_full  end of device work -> end of a launch that found the queue full
handoff     a thread's moment -> the first one of another thread after its wait
"""
HOST, LAUNCH, STREAM, EVENT, DEVICE, SYNC, QUEUE_FULL, HANDOFF = range(8)
EVIDENCE: Final = ("recorded", "call order", "inferred")
"""How an edge is known: it is in the recording, follows from the order of calls, or is inferred from times."""
RECORDED, CALL_ORDER, INFERRED = range(3)


@dataclass(frozen=True)
class Edges:
    """Edges as columns. source, target: nodes. least: ns that each costs even where it is not the one that holds its target."""

    source: Rows
    target: Rows
    kind: npt.NDArray[np.int8]
    evidence: npt.NDArray[np.int8]
    least: Ints

    def __len__(self) -> int:
        return len(self.source)

    def kinds(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.int8]:
        """Returns the kind of each of some edges, -1 for none."""
        return _picked(self.kind, rows)

    def evidences(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.int8]:
        """Returns how each of some edges is known, -1 for none."""
        return _picked(self.evidence, rows)

    def at(self, rows: npt.NDArray[np.integer] | Mask) -> Edges:
        """Returns some of them."""
        return Edges(self.source[rows], self.target[rows], self.kind[rows], self.evidence[rows], self.least[rows])


def _picked(column: npt.NDArray[np.int8], rows: npt.NDArray[np.integer]) -> npt.NDArray[np.int8]:
    found: npt.NDArray[np.int8] = np.append(column, np.int8(-1))[rows]
    return found


def edges(
    source: npt.NDArray[np.integer], target: npt.NDArray[np.integer], kind: int, evidence: npt.NDArray[np.integer] | int,
    least: Ints | int,
) -> Edges:
    """Returns edges of one kind."""
    count = len(source)
    return Edges(
        source.astype(np.int32), target.astype(np.int32), np.full(count, kind, np.int8),
        np.broadcast_to(np.asarray(evidence, np.int8), count), np.broadcast_to(np.asarray(least, np.int64), count),
    )  # fmt: skip


def joined(parts: Sequence[Edges]) -> Edges:
    """Returns the edges of all parts."""
    return Edges(*(np.concatenate([getattr(p, c) for p in parts]) for c in ("source", "target", "kind", "evidence", "least")))  # type: ignore[arg-type]
