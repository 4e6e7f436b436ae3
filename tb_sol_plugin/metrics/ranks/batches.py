"""Finds what kernels without arguments send and receive: those of `batch_isend_irecv`, whose parts PyTorch records on the host alone.

Each send and receive of a batch is an operator by itself (`record_param_comms`), which ends before the call that launches the kernel of
the batch (ProcessGroupNCCL::endCoalescing; pytorch/pytorch#194693). So a kernel is of those that its thread recorded since it launched
the communication before.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import msgspec
import numpy as np

from tb_sol_plugin.cost.inputs import size_of
from tb_sol_plugin.cost.ops.collectives import collective_kind, element_type
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Mask

MOST_MESSAGES: Final = 4_096
"""Sends and receives of one batch that are told; one of more is not known."""
MOST_BYTES: Final = 1 << 48
"""A size above that is no size: sums of all parts of a batch are whole numbers of 64 bits."""
COALESCED: Final = "nccl:coalesced"
"""What PyTorch calls the range around the launch of a batch."""


class Message(msgspec.Struct, frozen=True, array_like=True):
    """A send or receive of a batch. peer: the rank at the other end, -1 unknown. receives: None unknown. bytes: -1 unknown."""

    peer: int
    receives: bool | None
    bytes: int


Batch: TypeAlias = tuple[Message, ...]


class Batches(NamedTuple):
    """What device rows send and receive.

    place: of each row its batch in `found`, -1 none. first: of each row the first row of the table `messages` that its batch is of, -1
    none. dtype: of each of `found` the type of its elements as recorded, "" where its parts differ.
    """

    place: Ints
    first: Ints
    found: tuple[Batch, ...]
    dtype: tuple[str, ...]


def batches(capture: Capture, rows: Ints, named: Mask) -> Batches:
    """Returns the batches of device rows in order of start. named: those that carry arguments of their own."""
    place, first = (np.full(len(rows), -1, np.int64) for _ in range(2))
    table = capture.tables["messages"]
    asked = unnamed(capture, rows) & ~named
    if not len(table) or not asked.any():
        return Batches(place, first, (), ())
    h, host = at.host(capture), table["host"].to_numpy()
    order = np.lexsort((h.start[host], h.thread[host]))
    low, high = _recorded_since(capture, rows, asked, host[order])
    texts = [arrays.codes(table[c])[order] for c in ("process_group", "process_group_description", "ranks")]
    group, _ = arrays.factorize([column.astype(np.int64) for column in texts])
    peer, receives, elements = (table[c].to_numpy()[order].tolist() for c in ("peer", "receives", "elements"))
    types = [element_type(str(text)) for text in table["dtype"].astype(object).to_numpy()[order].tolist()]
    known: dict[tuple[Batch, str], int] = {}
    for row, (begin, end) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        if not 0 < end - begin <= MOST_MESSAGES or (group[begin:end] != group[begin]).any():
            continue
        sizes = [size_of(n, kind) if n >= 0 else None for n, kind in zip(elements[begin:end], types[begin:end], strict=True)]
        parts = zip(peer[begin:end], receives[begin:end], sizes, strict=True)
        batch = tuple(Message(max(other, -1), way, -1 if size is None or size > MOST_BYTES else size) for other, way, size in parts)
        dtype = types[begin] if len(set(types[begin:end])) == 1 else ""
        place[row], first[row] = known.setdefault((batch, dtype), len(known)), order[begin]
    return Batches(place, first, tuple(batch for batch, _ in known), tuple(dtype for _, dtype in known))


def unnamed(capture: Capture, rows: Ints) -> Mask:
    """Returns which device rows are kernels that send and receive and were launched by themselves, not by a graph."""
    call, graph = capture.device["call"].to_numpy()[rows], capture.device["graph"].to_numpy()[rows]
    return np.asarray(arrays.per_text(capture.device["name"], rows, _sends_and_receives) & (call >= 0) & ~graph, np.bool_)


def _sends_and_receives(kernel: str) -> bool:
    return collective_kind(kernel) is None and ("sendrecv" in kernel.lower().replace("_", "") or "ncclDevKernel_Generic" in kernel)


def _recorded_since(capture: Capture, rows: Ints, asked: Mask, messages: Ints) -> tuple[Ints, Ints]:
    """Returns the range of `messages` that the thread of each row recorded since it launched the communication before.

    messages: host rows, by thread and start. The range is empty for rows that are not asked for, and where a second kernel follows that
    has none of its own: then it is not known which of the two has which.
    """
    h = at.host(capture)
    call = capture.device["call"].to_numpy()[rows].astype(np.int64)
    low, high = (np.zeros(len(rows), np.int64) for _ in range(2))
    launched = np.flatnonzero(call >= 0)
    thread = h.thread[call[launched]]
    for one in np.unique(thread[asked[launched]]).tolist():
        mine = launched[thread == one]
        mine = mine[np.argsort(h.start[call[mine]], kind="stable")]
        begin, end = np.searchsorted(h.thread[messages], (one, one + 1))
        until = begin + np.searchsorted(h.start[messages[begin:end]], h.start[call[mine]], side="right")
        since = np.concatenate(([begin], until[:-1]))
        shared = np.append((until[1:] == since[1:]) & asked[mine[1:]], False)
        told = asked[mine] & ~shared
        low[mine[told]], high[mine[told]] = since[told], until[told]
    return low, high
