"""Events of a chunk into columns. The only place that sees one Python object per event, a megabyte at a time.

`Decoder` is the interface a faster decoder has to offer: bytes of complete events in, columns out.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Raw

from tb_sol_plugin.ingest import events as E
from tb_sol_plugin.ingest import rules
from tb_sol_plugin.ingest.columns import Buffer, ExtraInterner, Interner, RawInterner, TextInterner
from tb_sol_plugin.ingest.health import Health

Ints = npt.NDArray[np.int64]


class Decoder(Protocol):
    """Adds the events of `chunk` (a JSON array of complete events) to `columns`.

    Raises msgspec.DecodeError, and has added nothing, where the chunk is not a valid array of events.
    """

    def __call__(self, chunk: bytes, columns: Columns) -> None: ...


class ThreadInterner(Interner):
    """(pid, tid) as written to a code; numbers written as text are the same thread. `distinct` holds the threads."""

    def __init__(self) -> None:
        super().__init__()
        self.distinct = Interner()

    def __missing__(self, key: object) -> int:
        process, thread = key if isinstance(key, tuple) else (key, None)
        code = self[key] = self.distinct[(identity(process), identity(thread))]
        return code


def identity(value: object) -> str:
    """pid or tid as the one text it is known by."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value)


class Columns:
    """Everything read so far: one Buffer per bucket, shared interners, health."""

    def __init__(self) -> None:
        self.health = Health()
        self.names, self.categories = Interner(), Interner()
        self.threads = ThreadInterner()
        self.shapes, self.types, self.strides, self.concrete = (RawInterner() for _ in range(4))
        self.extra = ExtraInterner()
        self.grids, self.instants = RawInterner(), RawInterner()
        self.texts = TextInterner()
        self.groups = Interner()
        self.host, self.operators, self.calls, self.frames = Buffer(), Buffer(), Buffer(), Buffer()
        self.device, self.collectives, self.sync, self.annotations = Buffer(), Buffer(), Buffer(), Buffer()
        self.flows, self.memory, self.instant = Buffer(), Buffer(), Buffer()
        self.begin_end: list[tuple[str, str, str | None, int, int, int]] = []
        self.meta: list[tuple[str, object, object, str]] = []
        self.counts: dict[tuple[str | None, str], int] = {}
        self.total = 0


class Batch(NamedTuple):
    """Events of one phase and category, column by column."""

    ph: tuple[str, ...]
    cat: tuple[str | None, ...]
    name: tuple[str, ...]
    pid: tuple[E.Number, ...]
    tid: tuple[E.Number, ...]
    ts: tuple[Raw, ...]
    dur: tuple[Raw, ...]
    id: tuple[E.Number, ...]
    args: tuple[Raw, ...]

    def take(self, rows: Ints) -> Batch:
        """The events at these places."""
        places = rows.tolist()
        if len(places) == 1:
            return Batch(*((column[places[0]],) for column in self))
        pick = itemgetter(*places)
        return Batch(*(pick(column) for column in self)) if places else Batch(*(() for _ in self))


def decode(chunk: bytes, columns: Columns) -> None:
    """The msgspec decoder: typed events, arguments typed by bucket."""
    add_events(E.events_decoder.decode(chunk), columns)


def add_events(events: Sequence[E.Event], columns: Columns) -> None:
    """Sort events into buckets and add each bucket's columns."""
    from tb_sol_plugin.ingest.buckets import ADDERS, begin_end

    if not events:
        return
    first = columns.total
    columns.total += len(events)
    batch = Batch(*zip(*map(msgspec.structs.astuple, events), strict=True))
    codes = columns.groups.codes(zip(batch.ph, batch.cat, strict=True))
    for code in np.unique(codes).tolist():
        rows = np.flatnonzero(codes == code)
        group = batch.take(rows) if len(rows) < len(events) else batch
        phase, category = group.ph[0], group.cat[0]
        columns.counts[(category, phase)] = columns.counts.get((category, phase), 0) + len(rows)
        which = rules.bucket(phase, category)
        if which in ADDERS:
            ADDERS[which](group, rows + first, columns)
        elif which == rules.BEGIN_END:
            begin_end(group, rows + first, columns)
        elif which == rules.UNKNOWN_PHASE:
            columns.health.add("unknown phase", len(rows), f"ph {phase!r}")
