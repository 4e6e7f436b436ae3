"""Events of a chunk into columns. The only place that sees one Python object per event, a megabyte at a time.

`Decoder` is the interface a faster decoder has to offer: bytes of complete events in, columns out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Raw

from tb_sol_plugin.ingest import events as E
from tb_sol_plugin.ingest import repair, rules
from tb_sol_plugin.ingest.columns import Buffer, Interner, RawInterner, TextInterner, floats, integers, nanoseconds
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.model import schemas as S

T = TypeVar("T")
Ints = npt.NDArray[np.int64]


class Decoder(Protocol):
    """Adds the events of `chunk` (a JSON array of complete events) to `columns`; returns how many entries it held.

    Raises msgspec.DecodeError, and has added nothing, where the chunk is not a valid array of events.
    """

    def __call__(self, chunk: bytes, columns: Columns) -> int: ...


class Columns:
    """Everything read so far: one Buffer per bucket, shared interners, health."""

    def __init__(self) -> None:
        self.health = Health()
        self.names, self.categories = Interner(), Interner()
        self.threads: Interner = Interner()
        self.shapes, self.types, self.strides, self.concrete, self.extra = (RawInterner() for _ in range(5))
        self.grids, self.instants = RawInterner(), RawInterner()
        self.texts = TextInterner()
        self.host, self.operators, self.calls, self.frames = Buffer(), Buffer(), Buffer(), Buffer()
        self.device, self.collectives, self.sync, self.annotations = Buffer(), Buffer(), Buffer(), Buffer()
        self.flows, self.memory, self.instant = Buffer(), Buffer(), Buffer()
        self.begin_end: list[tuple[str, str, str | None, int, int, int]] = []
        self.meta: list[tuple[str, object, object, str]] = []
        self.counts: dict[tuple[str | None, str], int] = {}
        self.total = 0

    def thread(self, process: object, thread: object) -> int:
        """Code of a (pid, tid); numbers written as text are the same thread."""
        return self.threads[(_id(process), _id(thread))]


def _id(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value)


def decode(chunk: bytes, columns: Columns) -> int:
    """The msgspec decoder: typed events, arguments typed by bucket."""
    add_events(E.events_decoder.decode(chunk), columns)
    return columns.total


def add_events(batch: Sequence[E.Event], columns: Columns) -> None:
    """Sort a batch into buckets and add each bucket's columns."""
    first = columns.total
    columns.total += len(batch)
    groups: dict[tuple[str, str | None], list[int]] = {}
    for i, event in enumerate(batch):
        key = (event.ph, event.cat)
        found = groups.get(key)
        if found is None:
            groups[key] = [i]
        else:
            found.append(i)
    for (phase, category), members in groups.items():
        count_key = (category, phase)
        columns.counts[count_key] = columns.counts.get(count_key, 0) + len(members)
        which = rules.bucket(phase, category)
        add = _ADDERS.get(which)
        if add is not None:
            add([batch[i] for i in members], np.asarray(members, np.int64) + first, columns)
        elif which == rules.UNKNOWN_PHASE:
            columns.health.add("unknown phase", len(members), f"ph {phase!r}")
        elif which == rules.BEGIN_END:
            _begin_end([batch[i] for i in members], members, first, columns)


# -- complete events ------------------------------------------------------------------------------------------


def _placed(batch: list[E.Event], index: Ints, columns: Columns) -> tuple[list[E.Event], Ints, Ints, Ints]:
    """Events that have a place in time, with start and duration in ns (duration 0 where missing or negative)."""
    health = columns.health
    start, given = nanoseconds([e.ts for e in batch], health)
    if not given.all():
        missing = np.flatnonzero(~given)
        health.add("complete event without ts", len(missing), batch[int(missing[0])].name)
        batch = [e for e, ok in zip(batch, given.tolist(), strict=True) if ok]
        index, start = index[given], start[given]
    duration, known = nanoseconds([e.dur for e in batch], health)
    if not known.all():
        health.add("complete event without dur", int((~known).sum()), batch[int(np.argmin(known))].name)
    negative = duration < 0
    if negative.any():
        health.add("negative duration", int(negative.sum()), batch[int(np.argmax(negative))].name)
        duration = np.where(negative, 0, duration)
    over = start > 2**62 - duration if len(start) else negative
    if over.any():
        health.add("time out of range", int(over.sum()), batch[int(np.argmax(over))].name)
        duration = np.where(over, 0, duration)
    return batch, index, start, duration


def _args(batch: list[E.Event], decoder: msgspec.json.Decoder[list[T]], one: Callable[[], T], columns: Columns) -> list[T]:
    """Typed arguments per event; events whose arguments are no object, or do not fit, are read one by one."""
    raws = [e.args or b"{}" for e in batch]
    try:
        return decoder.decode(b"[" + b",".join(raws) + b"]")
    except msgspec.DecodeError:
        out = []
        for raw in raws:
            try:
                out.append(decoder.decode(b"[" + bytes(raw) + b"]")[0])
            except msgspec.DecodeError:
                clean = repair.clean_args(bytes(raw))
                if clean is None:
                    columns.health.add("arguments that are not an object", 1, bytes(raw)[:80].decode("utf-8", "replace"))
                    out.append(one())
                else:
                    out.append(decoder.decode(b"[" + clean + b"]")[0])
        return out


def _host(kind: int) -> Callable[[list[E.Event], Ints, Columns], None]:
    def add(batch: list[E.Event], index: Ints, columns: Columns) -> None:
        batch, index, start, duration = _placed(batch, index, columns)
        if not batch:
            return
        category = batch[0].cat
        if category is None:
            columns.health.add("event without a category", len(batch), batch[0].name)
        kinds = np.full(len(batch), kind, np.int8)
        if category is not None and category.lower() == rules.LEGACY_OPERATOR and kind == S.OPERATOR:
            kinds[[bool(rules.LEGACY_ANNOTATION.match(e.name)) for e in batch]] = S.ANNOTATION
        row = columns.host.rows + np.arange(len(batch), dtype=np.int64)
        if kind == S.OPERATOR:
            _operator_args(batch, row, columns)
        elif kind == S.CALL:
            args = _args(batch, _CALLS, E.CallArgs, columns)
            columns.calls.add(host=row, correlation=integers([a.correlation for a in args]), external_id=_external(args), cbid=integers([a.cbid for a in args]))
        elif kind == S.FRAME:
            frames = _args(batch, _FRAMES, E.FrameArgs, columns)
            module = integers([a.module_id for a in frames])
            named = np.fromiter((e.name.startswith("nn.Module: ") for e in batch), bool, len(batch))
            kinds[(module >= 0) | named] = S.MODULE
            columns.frames.add(
                host=row, python_id=integers([a.python_id for a in frames]), python_parent_id=integers([a.parent_id for a in frames]), module_id=module
            )
        columns.host.add(
            name=columns.names.codes([e.name for e in batch]),
            category=np.full(len(batch), columns.categories["unknown" if category is None else category], np.int32),
            kind=kinds, thread=_threads(batch, columns), start=start, duration=duration, index=index,
        )  # fmt: skip

    return add


def _threads(batch: list[E.Event], columns: Columns) -> npt.NDArray[np.int32]:
    known = columns.threads
    pairs = [(e.pid, e.tid) for e in batch]
    distinct = {p: known[(_id(p[0]), _id(p[1]))] for p in set(pairs)}
    return np.fromiter((distinct[p] for p in pairs), np.int32, len(pairs))


def _external(args: Sequence[E.OperatorArgs | E.CallArgs | E.DeviceArgs]) -> Ints:
    return integers([a.external_id if a.external_id is not None else a.old_external_id for a in args])


def _operator_args(batch: list[E.Event], row: Ints, columns: Columns) -> None:
    args = _args(batch, _OPERATORS, E.OperatorArgs, columns)
    extra = [_extra(a) for a in args]
    columns.operators.add(
        host=row, sequence=integers([a.sequence for a in args]), forward_thread=integers([a.forward_thread for a in args]), external_id=_external(args),
        shapes=columns.shapes.codes([bytes(a.shapes or a.old_shapes) for a in args]), types=columns.types.codes([bytes(a.types) for a in args]),
        strides=columns.strides.codes([bytes(a.strides) for a in args]), concrete=columns.concrete.codes([bytes(a.concrete) for a in args]),
        extra=columns.extra.codes(extra),
    )  # fmt: skip


def _extra(a: E.OperatorArgs) -> bytes:
    if not (a.call_stack or a.module_hierarchy or a.kernel_backend or a.kernel_file or a.kernel_kwargs or a.kernel_name):
        return b""
    parts = [b'"' + key.encode() + b'":' + bytes(getattr(a, field)) for field, key in E.EXTRA_FIELDS if getattr(a, field)]
    return b"{" + b",".join(parts) + b"}"


def _device(batch: list[E.Event], index: Ints, columns: Columns) -> None:
    batch, index, start, duration = _placed(batch, index, columns)
    if not batch:
        return
    category = batch[0].cat or ""
    args = _args(batch, _DEVICES, E.DeviceArgs, columns)
    kind = S.MEMCPY if "memcpy" in category.lower() else S.MEMSET if "memset" in category.lower() else S.KERNEL
    kinds = np.full(len(batch), kind, np.int8)
    size = [a.bytes for a in args]
    if category.lower() == "mtia_ccp_events":  # MTIA: copies are kernels-category events named dma_request
        dma = np.fromiter((bool(a.direction) for a in args), bool, len(args))
        kinds[dma] = S.MEMCPY
        size = [a.size if a.direction else a.bytes for a in args]
    stream = [a.stream if a.stream is not None else _stream(e.tid) for a, e in zip(args, batch, strict=True)]
    device = [a.device if a.device is not None else e.pid for a, e in zip(args, batch, strict=True)]
    collective = [i for i, a in enumerate(args) if a.collective]
    if collective:
        chosen = [args[i] for i in collective]
        texts = columns.texts
        columns.collectives.add(
            device=columns.device.rows + np.asarray(collective, np.int64),
            name=texts.codes([bytes(a.collective) for a in chosen]), dtype=texts.codes([bytes(a.dtype) for a in chosen]),
            in_elements=integers([a.in_elements for a in chosen]), out_elements=integers([a.out_elements for a in chosen]),
            group_size=integers([a.group_size for a in chosen]), process_group=texts.codes([bytes(a.process_group) for a in chosen]),
            description=texts.codes([bytes(a.process_group_description) for a in chosen]), ranks=texts.codes([bytes(a.ranks) for a in chosen]),
            in_split=texts.codes([bytes(a.in_split) for a in chosen]), out_split=texts.codes([bytes(a.out_split) for a in chosen]),
        )  # fmt: skip
    columns.device.add(
        name=columns.names.codes([e.name for e in batch]), category=np.full(len(batch), columns.categories[category], np.int32), kind=kinds,
        device=integers(device), stream=integers(stream), start=start, duration=duration, correlation=integers([a.correlation for a in args]),
        external_id=_external(args), bytes=integers(size), bandwidth=floats([a.bandwidth for a in args]),
        copy_kind=columns.texts.codes([bytes(a.direction or a.kind) for a in args]),
        grid=columns.grids.codes([bytes(a.grid) for a in args]), block=columns.grids.codes([bytes(a.block) for a in args]),
        registers=integers([a.registers for a in args]), shared_memory=integers([a.shared_memory for a in args]),
        blocks_per_sm=floats([a.blocks_per_sm for a in args]), warps_per_sm=floats([a.warps_per_sm for a in args]),
        occupancy=floats([a.occupancy for a in args]), context=integers([a.context for a in args]), graph_node=integers([a.graph_node for a in args]),
        index=index,
    )  # fmt: skip


def _stream(tid: object) -> int | None:
    """Old traces write `"stream 7"` as the thread; others the bare number."""
    text = _id(tid)
    tail = text.rpartition(" ")[2]
    return int(tail) if tail.isdigit() else None


def _sync(batch: list[E.Event], index: Ints, columns: Columns) -> None:
    batch, index, start, duration = _placed(batch, index, columns)
    if not batch:
        return
    args = _args(batch, _SYNCS, E.SyncArgs, columns)
    columns.sync.add(
        name=columns.names.codes([e.name for e in batch]), device=integers([a.device for a in args]), stream=integers([a.stream for a in args]),
        start=start, duration=duration, correlation=integers([a.correlation for a in args]),
        event_record=integers([a.event_record for a in args]), wait_on_stream=integers([a.wait_on_stream for a in args]),
    )  # fmt: skip


def _device_annotation(batch: list[E.Event], index: Ints, columns: Columns) -> None:
    batch, index, start, duration = _placed(batch, index, columns)
    if not batch:
        return
    args = _args(batch, _ANNOTATIONS, E.AnnotationArgs, columns)
    columns.annotations.add(
        name=columns.names.codes([e.name for e in batch]), start=start, duration=duration, external_id=integers([a.external_id for a in args]),
        device=integers([e.pid if isinstance(e.pid, int) else _stream(e.pid) for e in batch]), stream=integers([_stream(e.tid) for e in batch]),
    )  # fmt: skip


# -- the rest -------------------------------------------------------------------------------------------------


def _flow(batch: list[E.Event], _: Ints, columns: Columns) -> None:
    time, given = nanoseconds([e.ts for e in batch], columns.health)
    columns.flows.add(
        category=np.full(len(batch), columns.categories[batch[0].cat or ""], np.int32),
        phase=np.full(len(batch), columns.categories[batch[0].ph], np.int32),
        id=integers([_number(e.id) for e in batch]), thread=_threads(batch, columns), time=np.where(given, time, -1),
    )  # fmt: skip


def _number(raw: Raw) -> int | str | None:
    text = bytes(raw).strip(b'"')
    if text.isdigit():
        return int(text)
    return text.decode("utf-8", "replace") or None


def _instant(batch: list[E.Event], index: Ints, columns: Columns) -> None:
    is_memory = [e.name == "[memory]" for e in batch]
    time, given = nanoseconds([e.ts for e in batch], columns.health)
    keep = np.asarray(is_memory) & given
    if keep.any():
        chosen = [e for e, k in zip(batch, keep.tolist(), strict=True) if k]
        args = _args(chosen, _MEMORIES, E.MemoryArgs, columns)
        columns.memory.add(
            time=time[keep], thread=_threads(chosen, columns), device_type=integers([a.device_type for a in args]),
            device_id=integers([a.device_id for a in args]), address=integers([a.address for a in args]), bytes=integers([a.bytes or 0 for a in args]),
            total_allocated=integers([a.total_allocated for a in args]), total_reserved=integers([a.total_reserved for a in args]), index=index[keep],
        )  # fmt: skip
    rest = [(e, t) for e, t, m, ok in zip(batch, time.tolist(), is_memory, given.tolist(), strict=True) if not m and ok]
    if rest:
        others = [e for e, _ in rest]
        columns.instant.add(
            name=columns.names.codes([e.name for e in others]), category=np.full(len(others), columns.categories[others[0].cat or ""], np.int32),
            phase=np.full(len(others), columns.categories[others[0].ph], np.int32), thread=_threads(others, columns),
            time=np.asarray([t for _, t in rest], np.int64), args=columns.instants.codes([bytes(e.args) for e in others]),
        )  # fmt: skip


def _meta(batch: list[E.Event], _: Ints, columns: Columns) -> None:
    wanted = [e for e in batch if e.name in ("process_name", "process_labels", "thread_name")]
    for event, args in zip(wanted, _args(wanted, _METAS, E.MetaArgs, columns), strict=True):
        text = args.name if args.name is not None else args.labels
        columns.meta.append((event.name, event.pid, event.tid, "" if text is None else str(text)))


def _begin_end(batch: list[E.Event], members: list[int], first: int, columns: Columns) -> None:
    time, given = nanoseconds([e.ts for e in batch], columns.health)
    for event, place, t, ok in zip(batch, members, time.tolist(), given.tolist(), strict=True):
        if ok:
            columns.begin_end.append((event.ph, event.name, event.cat, columns.thread(event.pid, event.tid), t, first + place))


_OPERATORS = msgspec.json.Decoder(list[E.OperatorArgs])
_CALLS = msgspec.json.Decoder(list[E.CallArgs])
_FRAMES = msgspec.json.Decoder(list[E.FrameArgs])
_DEVICES = msgspec.json.Decoder(list[E.DeviceArgs])
_SYNCS = msgspec.json.Decoder(list[E.SyncArgs])
_MEMORIES = msgspec.json.Decoder(list[E.MemoryArgs])
_METAS = msgspec.json.Decoder(list[E.MetaArgs])
_ANNOTATIONS = msgspec.json.Decoder(list[E.AnnotationArgs])

_ADDERS: dict[int, Callable[[list[E.Event], Ints, Columns], None]] = {
    rules.HOST_OPERATOR: _host(S.OPERATOR), rules.HOST_ANNOTATION: _host(S.ANNOTATION), rules.HOST_CALL: _host(S.CALL),
    rules.HOST_FRAME: _host(S.FRAME), rules.HOST_OTHER: _host(S.OTHER), rules.DEVICE: _device, rules.SYNC: _sync,
    rules.DEVICE_ANNOTATION: _device_annotation, rules.FLOW: _flow, rules.MEMORY_OR_INSTANT: _instant, rules.META: _meta,
}  # fmt: skip
