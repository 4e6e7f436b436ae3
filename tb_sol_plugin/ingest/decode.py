"""Events of a chunk into columns.

`Decoder` is what a decoder has to offer: text that starts at event level in, batches out.
"""

from __future__ import annotations

from typing import Protocol

from tb_sol_plugin.ingest import batch as B
from tb_sol_plugin.ingest import rules
from tb_sol_plugin.ingest.columns import Buffer, ExtraInterner, Interner, RawInterner, TextInterner, ThreadInterner
from tb_sol_plugin.ingest.health import Health


class Decoder(Protocol):
    """Cuts complete events out of text.

    `text` starts at event level of a JSON array. `sink` gets the complete events in file order, in one batch or more;
    nothing is given for the event that is cut off at the end. Returns how far it got and why it stopped there.
    """

    def feed(self, text: bytes, sink: B.Sink) -> B.Fed: ...


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
        self.host, self.operators, self.calls, self.frames = Buffer(), Buffer(), Buffer(), Buffer()
        self.device, self.collectives, self.sync, self.annotations = Buffer(), Buffer(), Buffer(), Buffer()
        self.peers = Buffer()
        self.flows, self.memory, self.instant = Buffer(), Buffer(), Buffer()
        self.begin_end: list[tuple[str, str, str | None, int, int, int]] = []
        self.meta: list[tuple[str, str, str, str]] = []
        self.counts: dict[tuple[str | None, str], int] = {}
        self.total = 0

    def add(self, batch: B.Batch) -> None:
        """Sort a batch into buckets and add each bucket's columns."""
        from tb_sol_plugin.ingest.buckets import ADDERS, Group, begin_end

        batch.health = self.health
        first = self.total
        self.total += batch.count
        for phase, category, rows in batch.groups():
            self.counts[(category, phase)] = self.counts.get((category, phase), 0) + len(rows)
            which = rules.bucket(phase, category)
            group = Group(batch, phase, category, rows, first)
            if which in ADDERS:
                self.health.add("arguments that are not an object", batch.odd_args(rows))
                if which not in (rules.FLOW, rules.MEMORY_OR_INSTANT):
                    self.health.add("event without a name", batch.unnamed(rows))
                ADDERS[which](group, self)
            elif which == rules.BEGIN_END:
                begin_end(group, self)
            elif which == rules.UNKNOWN_PHASE:
                self.health.add("unknown phase", len(rows), f"ph {phase!r}")
