"""Decodes each kind of event (operators, calls, kernels, copies, memory) into columns."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.ingest.columns import (
    Array,
    Buffer,
    Codes,
    ExtraInterner,
    Interner,
    RawInterner,
    TextInterner,
    ThreadInterner,
    plain_text,
)
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.ingest.kineto import decode as B
from tb_sol_plugin.ingest.kineto import rules
from tb_sol_plugin.ingest.kineto import scan as K
from tb_sol_plugin.ingest.kineto.decode import Batch
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables.arrays import Ints

# -- Events of a chunk into columns ----------------------------------------------------------------------------------
# `Decoder` is what a decoder has to offer: text that starts at event level in, batches out.


class Decoder(Protocol):
    """Cuts complete events out of text.

    `text` starts at event level of a JSON array. `sink` gets the complete events in file order, in one batch or more;
    nothing is given for the event that is cut off at the end. With `damage` entries that are no events are passed over and counted.
    Returns how far it got and why it stopped there.
    """

    def feed(self, text: bytes | memoryview, sink: B.Sink, damage: B.Damage | None = None) -> B.Fed: ...


class Columns:
    """Everything read so far: one Buffer per bucket, shared interners, health."""

    def __init__(self) -> None:
        self.health = Health()
        self.names, self.categories = Interner(), Interner()
        self.threads = ThreadInterner()
        self.shapes, self.types, self.strides, self.concrete = (RawInterner() for _ in range(4))
        self.extra = ExtraInterner()
        self.grids, self.instants = RawInterner(), RawInterner()
        self.texts, self.kernels = TextInterner(), TextInterner()
        self._read = [1.0]
        self.host, self.operators, self.calls, self.frames = (self._buffer() for _ in range(4))
        self.device, self.collectives, self.sync, self.annotations = (self._buffer() for _ in range(4))
        self.peers, self.flows, self.memory, self.instant = (self._buffer() for _ in range(4))
        self.messages = self._buffer()
        self.begin_end: list[tuple[str, str, str | None, int, int, int]] = []
        self.meta: list[tuple[str, str, str, str]] = []
        self.counts: dict[tuple[str | None, str], int] = {}
        self.total = 0
        self.clock: tuple[int, int] | None = None

    def _buffer(self) -> Buffer:
        read = self._read  # not of the columns themselves: they would hold each other, and a million names, until garbage is looked for
        return Buffer(lambda: read[0])

    def read(self, share: float) -> None:
        """Takes in how much of the file is read by now, of 1."""
        self._read[0] = share

    def add(self, batch: B.Batch) -> None:
        """Sort a batch into buckets and add each bucket's columns."""

        batch.health = self.health
        self.clock = self.clock or batch.near()
        batch.clock = self.clock or batch.clock
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
        batch.release()


LARGEST = 2**46
"""Bytes (64 TiB) past which the size of a copy is no size: sums of them stay within int64."""


class Group(NamedTuple):
    """Events of one phase and category: `rows` of a batch whose first event is number `first` of the file."""

    batch: Batch
    phase: str
    category: str | None
    rows: Ints
    first: int

    def only(self, keep: npt.NDArray[np.bool_]) -> Group:
        return self._replace(rows=self.rows[keep])

    def ints(self, key: str, old: str = "") -> Ints:
        """Returns an argument as int64, -1 missing; `old` is the spelling of older recorders."""
        found = self.batch.ints(key, self.rows)
        return np.where(found < 0, self.batch.ints(old, self.rows), found) if old and self.batch.has(old) else found

    def floats(self, key: str) -> npt.NDArray[np.float64]:
        return self.batch.floats(key, self.rows)

    def codes(self, key: str, interner: RawInterner) -> Codes:
        return self.batch.codes(key, self.rows, interner)

    def names(self, columns: Columns) -> Codes:
        return self.batch.names(self.rows, columns.names)

    def threads(self, columns: Columns) -> Codes:
        return self.batch.threads(self.rows, columns.threads)

    def places(self) -> Ints:
        return self.rows + self.first

    def one_name(self, columns: Columns, place: int) -> str:
        code = self.batch.names(self.rows[place : place + 1], columns.names)[0]
        return str(list(columns.names)[int(code)])


Adder = Callable[[Group, Columns], None]


def _placed(group: Group, columns: Columns) -> tuple[Group, Ints, Ints]:
    """Returns events that have a place in time, with start and duration in ns (duration 0 where missing or negative)."""
    health = columns.health
    start, given = group.batch.times(K.TS, group.rows)
    if not given.all():
        health.add("complete event without ts", int((~given).sum()), group.one_name(columns, int(np.argmin(given))))
        group, start = group.only(given), start[given]
    duration, known = group.batch.times(K.DUR, group.rows)
    if not known.all():
        health.add("complete event without dur", int((~known).sum()), group.one_name(columns, int(np.argmin(known))))
    bad = duration < 0
    if bad.any():
        health.add("negative duration", int(bad.sum()), group.one_name(columns, int(np.argmax(bad))))
        duration = np.where(bad, 0, duration)
    return group, start, duration


def _host(kind: int) -> Adder:
    def add(group: Group, columns: Columns) -> None:
        group, start, duration = _placed(group, columns)
        count = len(start)
        if count == 0:
            return
        name = group.names(columns)
        if group.category is None:
            columns.health.add("event without a category", count, group.one_name(columns, 0))
        kinds = np.full(count, kind, np.int8)
        if kind == S.OPERATOR and (group.category or "").lower() == rules.LEGACY_OPERATOR:
            kinds[_matching(name, columns, lambda n: bool(rules.LEGACY_ANNOTATION.match(n)))] = S.ANNOTATION
        row = columns.host.rows + np.arange(count, dtype=np.int64)
        if kind == S.OPERATOR:
            _operator(group, row, columns)
            _messages(group, row, columns)
        elif kind == S.CALL:
            columns.calls.add(
                host=row,
                correlation=group.ints("correlation"),
                external_id=group.ints("External id", "external id"),
                cbid=group.ints("cbid"),
                kernel=group.codes("kernel", columns.kernels),
                grid=group.codes("grid", columns.grids),
                block=group.codes("block", columns.grids),
            )
        elif kind == S.FRAME:
            module = group.ints("Python module id")
            kinds[(module >= 0) | _matching(name, columns, lambda n: n.startswith("nn.Module: "))] = S.MODULE
            columns.frames.add(
                host=row,
                python_id=group.ints("Python id"),
                python_parent_id=group.ints("Python parent id"),
                module_id=module,
            )
        columns.host.add(
            name=name,
            category=np.full(count, columns.categories["unknown" if group.category is None else group.category], np.int32),
            kind=kinds,
            thread=group.threads(columns),
            start=start,
            duration=duration,
            index=group.places(),
        )

    return add


def _matching(name: Codes, columns: Columns, test: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
    """Returns which events' names pass a test, made once per distinct name of the group."""
    codes, place = _distinct(name)
    names = list(columns.names)
    return np.fromiter((test(str(names[c])) for c in codes.tolist()), bool, len(codes))[place]


def _operator(group: Group, row: Ints, columns: Columns) -> None:
    batch = group.batch
    columns.operators.add(
        host=row,
        sequence=group.ints("Sequence number"),
        forward_thread=group.ints("Fwd thread id"),
        external_id=group.ints("External id", "external id"),
        shapes=group.codes("Input Dims" if batch.has("Input Dims") or not batch.has("Input dims") else "Input dims", columns.shapes),
        types=group.codes("Input type", columns.types),
        strides=group.codes("Input Strides", columns.strides),
        concrete=group.codes("Concrete Inputs", columns.concrete),
        extra=_extra(group, columns),
    )


def _messages(group: Group, row: Ints, columns: Columns) -> None:
    """Adds sends and receives that host operators recorded: the kernel of a batch of them carries no arguments."""
    carries = group.batch.where("Collective name", group.rows)
    if not carries.any():
        return
    chosen, texts = group.only(carries), columns.texts
    name = chosen.codes("Collective name", texts)
    receives = name == texts[b'"recv"']
    some = receives | (name == texts[b'"send"'])
    if not some.any():
        return
    chosen, receives = chosen.only(some), receives[some]
    columns.messages.add(
        host=row[carries][some],
        receives=receives,
        peer=np.where(receives, chosen.ints("Src Rank"), chosen.ints("Dst Rank")),
        elements=chosen.ints("In msg nelems"),
        dtype=chosen.codes("dtype", texts),
        **_of_group(chosen, texts),
    )


def _of_group(chosen: Group, texts: TextInterner) -> dict[str, Array]:
    """Returns what is recorded of the process group of communication."""
    return {
        "group_size": chosen.ints("Group size"),
        "process_group": chosen.codes("Process Group Name", texts),
        "process_group_description": chosen.codes("Process Group Description", texts),
        "ranks": chosen.codes("Process Group Ranks", texts),
        "communicator": chosen.codes("Comms Id", texts),
        "sequence": chosen.ints("Seq"),
        "rank_start": chosen.ints("Global rank start"),
        "rank_stride": chosen.ints("Global rank stride"),
    }


def _extra(group: Group, columns: Columns) -> Codes:
    """Returns codes of the rarely recorded arguments, taken together: a tuple of (key, raw value) per event that has any."""
    recorded = [key for key in rules.EXTRA if group.batch.has(key) and group.batch.where(key, group.rows).any()]
    if not recorded:
        return np.full(len(group.rows), columns.extra[()], np.int32)
    raws = columns.grids
    parts = [group.codes(key, raws) for key in recorded]
    values, empty = list(raws), (b"", b'""', b"null")
    rows: Array
    place: Array
    if len(parts) == 1:
        distinct, place = _distinct(parts[0])
        rows = distinct[None]
    else:
        rows, place = np.unique(np.stack(parts), axis=1, return_inverse=True)
    keys = [
        tuple((key, values[code]) for key, code in zip(recorded, column, strict=True) if values[code] not in empty)
        for column in rows.T.tolist()
    ]
    return columns.extra.codes(keys)[place.reshape(-1)]


def _distinct(codes: Codes) -> tuple[Ints, Ints]:
    """Returns (distinct codes in order, place of each code in them), as `np.unique` does, without a sort."""
    here = np.zeros(int(codes.max()) + 1, bool)
    here[codes] = True
    distinct = np.flatnonzero(here)
    place = np.zeros(len(here), np.int64)
    place[distinct] = np.arange(len(distinct))
    return distinct, place[codes]


def _device(group: Group, columns: Columns) -> None:
    group, start, duration = _placed(group, columns)
    count = len(start)
    if count == 0:
        return
    batch, rows = group.batch, group.rows
    category = (group.category or "").lower()
    kind = S.MEMCPY if "memcpy" in category else S.MEMSET if "memset" in category else S.KERNEL
    kinds = np.full(count, kind, np.int8)
    spelled = group.codes("kind", columns.texts)
    mtia = category == "mtia_ccp_events"
    if mtia:  # MTIA writes copies as compute events named dma_request
        dma = batch.where("direction", rows)
        kinds[dma] = S.MEMCPY
        spelled = group.codes("direction", columns.texts)
    size = _sizes(group, columns, "bytes")
    if mtia:
        size = np.where(dma, _sizes(group, columns, "size"), size)
    stream, device = group.ints("stream"), group.ints("device", "inDevice")
    for column, which in ((stream, K.TID), (device, K.PID)):
        missing = np.flatnonzero(column < 0)
        # A thread that is a bare number is no stream there: MTIA's DMA requests without `stream` stand on thread 801.
        if len(missing) and (which == K.PID or not mtia):
            column[missing] = _trailing_numbers(batch, which, rows[missing])
    if batch.has("Collective name"):
        _collective(group, columns)
    if batch.has("fromDevice") or batch.has("toDevice"):
        _peers(group, columns)
    columns.device.add(
        name=group.names(columns),
        category=np.full(count, columns.categories[group.category or ""], np.int32),
        kind=kinds,
        device=device,
        stream=stream,
        start=start,
        duration=duration,
        correlation=group.ints("correlation"),
        external_id=group.ints("External id", "external id"),
        bytes=size,
        bandwidth=_plausible("memory bandwidth (GB/s)", 1e9, group, columns),
        copy_kind=spelled,
        grid=group.codes("grid", columns.grids),
        block=group.codes("block", columns.grids),
        registers=group.ints("registers per thread"),
        shared_memory=group.ints("shared memory"),
        blocks_per_sm=_plausible("blocks per SM", 1e9, group, columns),
        warps_per_sm=_plausible("warps per SM", 1e9, group, columns),
        occupancy=_plausible("est. achieved occupancy %", 100, group, columns),
        context=group.ints("context", "inContext"),
        graph_node=group.ints("graph node id"),
        index=group.places(),
    )


def _collective(group: Group, columns: Columns) -> None:
    carries = group.batch.where("Collective name", group.rows)
    if not carries.any():
        return
    chosen, texts = group.only(carries), columns.texts
    columns.collectives.add(
        device=columns.device.rows + np.flatnonzero(carries),
        name=chosen.codes("Collective name", texts),
        dtype=chosen.codes("dtype", texts),
        in_elements=chosen.ints("In msg nelems"),
        out_elements=chosen.ints("Out msg nelems"),
        in_split=chosen.codes("In split size", texts),
        out_split=chosen.codes("Out split size", texts),
        source_rank=chosen.ints("Src Rank"),
        target_rank=chosen.ints("Dst Rank"),
        **_of_group(chosen, texts),
    )


def _peers(group: Group, columns: Columns) -> None:
    """Adds copies between devices: CUPTI records them apart, with the device a copy leaves, the one it reaches and the one that copies."""
    named = group.batch.where("fromDevice", group.rows) | group.batch.where("toDevice", group.rows)
    if named.any():
        chosen = group.only(named)
        columns.peers.add(
            device=columns.device.rows + np.flatnonzero(named),
            from_device=chosen.ints("fromDevice"),
            to_device=chosen.ints("toDevice"),
        )


def _sizes(group: Group, columns: Columns, key: str) -> Ints:
    """Returns sizes of copies in bytes; -1 where none is recorded, and where it is negative or larger than any memory, which is counted."""
    size = group.floats(key)  # as integers, numbers of more than 62 bits would wrap
    bad = ((size < 0) & (size != -1)) | (size > LARGEST)
    if bad.any():
        columns.health.add("copy with an impossible size", int(bad.sum()), group.one_name(columns, int(np.argmax(bad))))
    return np.where(bad | np.isnan(size), -1, size).astype(np.int64)


def _plausible(key: str, most: float, group: Group, columns: Columns) -> npt.NDArray[np.float64]:
    """Returns an argument as float64 per event, NaN where it is missing, negative or above `most`; the last two are counted."""
    found = group.floats(key)
    wrong = (found < 0) | (found > most)
    if wrong.any():
        columns.health.add("number that no device has", int(wrong.sum()), key)
        found = np.where(wrong, np.nan, found)
    return found


def _trailing_numbers(batch: Batch, which: int, rows: Ints) -> Ints:
    """Returns 7 of 7, "7" and "stream 7" (old traces name the thread so); -1 without a number."""
    distinct, place = np.unique(batch.ordered(which, rows), return_inverse=True)
    tails = [plain_text(batch.raw.field(c)).rpartition(" ")[2] for c in distinct.tolist()]
    return np.asarray([int(t) if t.isdigit() and len(t) < 18 else -1 for t in tails], np.int64)[place]


def _sync(group: Group, columns: Columns) -> None:
    group, start, duration = _placed(group, columns)
    if len(start):
        columns.sync.add(
            name=group.names(columns),
            device=group.ints("device"),
            stream=group.ints("stream"),
            start=start,
            duration=duration,
            correlation=group.ints("correlation"),
            event_record=group.ints("wait_on_cuda_event_record_corr_id"),
            wait_on_stream=group.ints("wait_on_stream"),
        )


def _device_annotation(group: Group, columns: Columns) -> None:
    group, start, duration = _placed(group, columns)
    if len(start):
        columns.annotations.add(
            name=group.names(columns),
            start=start,
            duration=duration,
            external_id=group.ints("External id"),
            device=_trailing_numbers(group.batch, K.PID, group.rows),
            stream=_trailing_numbers(group.batch, K.TID, group.rows),
        )


def _flow(group: Group, columns: Columns) -> None:
    time, given = group.batch.times(K.TS, group.rows)
    columns.flows.add(
        category=np.full(len(time), columns.categories[group.category or ""], np.int32),
        phase=np.full(len(time), columns.categories[group.phase], np.int32),
        id=_flow_ids(group),
        thread=group.threads(columns),
        time=np.where(given, time, -1),
    )


def _flow_ids(group: Group) -> Ints:
    """Returns ids of flows: numbers as they are, other texts as a number below -1 made from the text; -1 where there is none."""
    ids = group.batch.numbers(K.ID, group.rows)
    without_id = np.flatnonzero(ids == -1)
    for i, raw in zip(without_id.tolist(), group.batch.raws(K.ID, group.rows[without_id]), strict=True):
        if raw not in (b"", b"null", b"-1", b'""'):
            ids[i] = -2 - (int.from_bytes(blake2b(raw, digest_size=8).digest(), "little") >> 2)
    return ids


def _instant(group: Group, columns: Columns) -> None:
    time, given = group.batch.times(K.TS, group.rows)
    name = group.names(columns)
    memory = (name == columns.names["[memory]"]) & given
    if memory.any():
        chosen = group.only(memory)
        columns.memory.add(
            time=time[memory],
            thread=chosen.threads(columns),
            device_type=chosen.ints("Device Type"),
            device_id=chosen.ints("Device Id"),
            address=chosen.ints("Addr"),
            bytes=_changed_bytes(chosen, columns),
            total_allocated=_total_bytes("Total Allocated", chosen, columns),
            total_reserved=_total_bytes("Total Reserved", chosen, columns),
            index=chosen.places(),
        )
    rest = given & ~memory
    if rest.any():
        others = group.only(rest)
        count = len(others.rows)
        columns.instant.add(
            name=name[rest],
            category=np.full(count, columns.categories[group.category or ""], np.int32),
            phase=np.full(count, columns.categories[group.phase], np.int32),
            thread=others.threads(columns),
            time=time[rest],
            args=columns.instants.codes(others.batch.raws(K.ARGS, others.rows)),
        )


MOST_MEMORY: Final = 1 << 48
"""Bytes that no memory has; sums of a million such numbers stay whole."""


def _changed_bytes(group: Group, columns: Columns) -> Ints:
    """Returns what each memory event gains or frees; 0 where that is not recorded, so that totals alone tell of it. A free of one byte is
    -1.
    """
    recorded = group.floats("Bytes")
    lost, wrong = np.isnan(recorded), np.abs(recorded) > MOST_MEMORY
    columns.health.add("memory event without a size", int(lost.sum()), effect="what is in use follows from totals alone")
    columns.health.add("impossible memory size", int(wrong.sum()), "Bytes", "unknown")
    return np.where(lost | wrong, 0, group.ints("Bytes"))


def _total_bytes(key: str, group: Group, columns: Columns) -> Ints:
    """Returns a total of memory per event; -1 where it is missing or no size of any memory."""
    recorded = group.floats(key)  # whole numbers beyond 62 bits are cut
    wrong = (recorded < -1) | (recorded > MOST_MEMORY)
    columns.health.add("impossible memory size", int(wrong.sum()), key, "unknown")
    return np.where(wrong | np.isnan(recorded), -1, group.ints(key))


def _meta(group: Group, columns: Columns) -> None:
    code = group.names(columns)
    names = np.asarray(list(columns.names), object)[code]
    wanted = np.isin(names, ["process_name", "process_labels", "thread_name"])
    if not wanted.any():
        return
    chosen = group.only(wanted)
    texts = columns.texts
    label, named = (chosen.codes(key, texts) for key in ("labels", "name"))
    values = [plain_text(v) if isinstance(v, bytes) else str(v) for v in texts]
    for kind, pid, tid, a, b in zip(
        names[wanted].tolist(),
        chosen.batch.raws(K.PID, chosen.rows),
        chosen.batch.raws(K.TID, chosen.rows),
        named.tolist(),
        label.tolist(),
        strict=True,
    ):
        columns.meta.append((kind, pid.decode("utf-8", "replace"), tid.decode("utf-8", "replace"), values[a] or values[b]))


def begin_end(group: Group, columns: Columns) -> None:
    """Keeps B and E events until the end of the file, where they are paired per thread."""
    time, given = group.batch.times(K.TS, group.rows)
    code, thread, index = group.names(columns).tolist(), group.threads(columns).tolist(), group.places().tolist()
    names = list(columns.names)
    for i in np.flatnonzero(given).tolist():
        columns.begin_end.append((group.phase, str(names[code[i]]), group.category, thread[i], int(time[i]), index[i]))


ADDERS: dict[int, Adder] = {
    rules.HOST_OPERATOR: _host(S.OPERATOR),
    rules.HOST_ANNOTATION: _host(S.ANNOTATION),
    rules.HOST_CALL: _host(S.CALL),
    rules.HOST_FRAME: _host(S.FRAME),
    rules.HOST_OTHER: _host(S.OTHER),
    rules.DEVICE: _device,
    rules.SYNC: _sync,
    rules.DEVICE_ANNOTATION: _device_annotation,
    rules.FLOW: _flow,
    rules.MEMORY_OR_INSTANT: _instant,
    rules.META: _meta,
}
