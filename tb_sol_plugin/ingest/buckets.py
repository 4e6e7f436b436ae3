"""What each bucket of events adds to the columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from tb_sol_plugin.ingest import events as E
from tb_sol_plugin.ingest import repair, rules
from tb_sol_plugin.ingest.columns import floats, integers, nanoseconds
from tb_sol_plugin.ingest.decode import Batch, Columns, identity
from tb_sol_plugin.model import schemas as S

T = TypeVar("T", bound=msgspec.Struct)
Ints = npt.NDArray[np.int64]
Adder = Callable[[Batch, Ints, Columns], None]


def _placed(batch: Batch, index: Ints, columns: Columns) -> tuple[Batch, Ints, Ints, Ints]:
    """Events that have a place in time, with start and duration in ns (duration 0 where missing or negative)."""
    health = columns.health
    start, given = nanoseconds(batch.ts, health)
    if not given.all():
        health.add("complete event without ts", int((~given).sum()), batch.name[int(np.argmin(given))])
        batch = batch.take(np.flatnonzero(given))
        index, start = index[given], start[given]
    duration, known = nanoseconds(batch.dur, health)
    if not known.all():
        health.add("complete event without dur", int((~known).sum()), batch.name[int(np.argmin(known))])
    for reason, bad in (("negative duration", duration < 0), ("time out of range", start > 2**62 - np.maximum(duration, 0))):
        if bad.any():
            health.add(reason, int(bad.sum()), batch.name[int(np.argmax(bad))])
            duration = np.where(bad, 0, duration)
    return batch, index, start, duration


def _args(batch: Batch, decoder: msgspec.json.Decoder[list[T]], kind: type[T], columns: Columns) -> Any:
    """The arguments of all events as one object with the fields of `kind`, each a column (a tuple over the events).

    Events whose arguments are no object, or do not fit, are read one by one.
    """
    try:
        rows = decoder.decode(b"[" + b",".join(batch.args) + b"]")
    except msgspec.DecodeError:
        rows = [_one(bytes(raw), decoder, kind, columns) for raw in batch.args]
    return kind(*zip(*map(msgspec.structs.astuple, rows), strict=True))


def _one(raw: bytes, decoder: msgspec.json.Decoder[list[T]], kind: type[T], columns: Columns) -> T:
    clean = repair.clean_args(raw)
    if clean is None:
        columns.health.add("arguments that are not an object", 1, raw[:80].decode("utf-8", "replace"))
        return kind()
    return decoder.decode(b"[" + clean + b"]")[0]


def _threads(batch: Batch, columns: Columns) -> npt.NDArray[np.int32]:
    return columns.threads.codes(zip(batch.pid, batch.tid, strict=True))


def _external(new: Sequence[E.Number], old: Sequence[E.Number]) -> Ints:
    ids = integers(new)
    return np.where(ids < 0, integers(old), ids)


def _host(kind: int) -> Adder:
    def add(batch: Batch, index: Ints, columns: Columns) -> None:
        batch, index, start, duration = _placed(batch, index, columns)
        if not batch.name:
            return
        category = batch.cat[0]
        if category is None:
            columns.health.add("event without a category", len(index), batch.name[0])
        kinds = np.full(len(index), kind, np.int8)
        if category is not None and category.lower() == rules.LEGACY_OPERATOR and kind == S.OPERATOR:
            kinds[[bool(rules.LEGACY_ANNOTATION.match(name)) for name in batch.name]] = S.ANNOTATION
        row = columns.host.rows + np.arange(len(index), dtype=np.int64)
        if kind == S.OPERATOR:
            _operator(batch, row, columns)
        elif kind == S.CALL:
            a = _args(batch, _CALLS, E.CallArgs, columns)
            external = _external(a.external_id, a.old_external_id)
            columns.calls.add(host=row, correlation=integers(a.correlation), external_id=external, cbid=integers(a.cbid))
        elif kind == S.FRAME:
            f = _args(batch, _FRAMES, E.FrameArgs, columns)
            module = integers(f.module_id)
            kinds[(module >= 0) | np.fromiter((n.startswith("nn.Module: ") for n in batch.name), bool, len(index))] = S.MODULE
            columns.frames.add(host=row, python_id=integers(f.python_id), python_parent_id=integers(f.parent_id), module_id=module)
        columns.host.add(
            name=columns.names.codes(batch.name),
            category=np.full(len(index), columns.categories["unknown" if category is None else category], np.int32),
            kind=kinds,
            thread=_threads(batch, columns),
            start=start,
            duration=duration,
            index=index,
        )

    return add


def _operator(batch: Batch, row: Ints, columns: Columns) -> None:
    a = _args(batch, _OPERATORS, E.OperatorArgs, columns)
    shapes = list(map(bytes, a.shapes))
    if not any(shapes):
        shapes = list(map(bytes, a.old_shapes))
    rare = np.zeros(len(row), bool)
    for column in (a.module_hierarchy, a.kernel_backend, a.kernel_name, a.kernel_file, a.kernel_kwargs):
        rare |= np.fromiter(map(len, column), np.int64, len(row)) > 2  # "" is written by recorders that know no modules
    extra: list[object] = list(map(bytes, a.call_stack))
    for i in np.flatnonzero(rare).tolist():
        extra[i] = tuple((key, bytes(getattr(a, field)[i])) for field, key in E.EXTRA_FIELDS if len(getattr(a, field)[i]) > 0)
    columns.operators.add(
        host=row,
        sequence=integers(a.sequence),
        forward_thread=integers(a.forward_thread),
        external_id=_external(a.external_id, a.old_external_id),
        shapes=columns.shapes.codes(shapes),
        types=columns.types.codes(map(bytes, a.types)),
        strides=columns.strides.codes(map(bytes, a.strides)),
        concrete=columns.concrete.codes(map(bytes, a.concrete)),
        extra=columns.extra.codes(extra),
    )


def _device(batch: Batch, index: Ints, columns: Columns) -> None:
    batch, index, start, duration = _placed(batch, index, columns)
    if not batch.name:
        return
    category = (batch.cat[0] or "").lower()
    a = _args(batch, _DEVICES, E.DeviceArgs, columns)
    kind = S.MEMCPY if "memcpy" in category else S.MEMSET if "memset" in category else S.KERNEL
    kinds = np.full(len(index), kind, np.int8)
    size = integers(a.bytes)
    said = list(map(bytes, a.kind))
    if category == "mtia_ccp_events":  # MTIA writes copies as compute events named dma_request
        dma = np.fromiter(map(bool, a.direction), bool, len(index))
        kinds[dma] = S.MEMCPY
        size = np.where(dma, integers(a.size), size)
        said = list(map(bytes, a.direction))
    stream, device = integers(a.stream), integers(a.device)
    for column, fallback in ((stream, batch.tid), (device, batch.pid)):
        bare = np.flatnonzero(column < 0)
        if len(bare):
            # A thread that is a bare number is no stream: MTIA's DMA requests without `stream` stand on thread 801.
            told = column is device or category != "mtia_ccp_events"
            column[bare] = [trailing_number(fallback[i]) if told else -1 for i in bare.tolist()]
    if any(a.collective):
        _collective(a, columns)
    texts, grids = columns.texts, columns.grids
    columns.device.add(
        name=columns.names.codes(batch.name),
        category=np.full(len(index), columns.categories[batch.cat[0] or ""], np.int32),
        kind=kinds,
        device=device,
        stream=stream,
        start=start,
        duration=duration,
        correlation=integers(a.correlation),
        external_id=_external(a.external_id, a.old_external_id),
        bytes=size,
        bandwidth=floats(a.bandwidth),
        copy_kind=texts.codes(said),
        grid=grids.codes(map(bytes, a.grid)),
        block=grids.codes(map(bytes, a.block)),
        registers=integers(a.registers),
        shared_memory=integers(a.shared_memory),
        blocks_per_sm=floats(a.blocks_per_sm),
        warps_per_sm=floats(a.warps_per_sm),
        occupancy=floats(a.occupancy),
        context=integers(a.context),
        graph_node=integers(a.graph_node),
        index=index,
    )


def _collective(a: Any, columns: Columns) -> None:
    rows = np.flatnonzero(np.fromiter(map(bool, a.collective), bool, len(a.collective)))
    places, texts = rows.tolist(), columns.texts

    def text(column: Sequence[msgspec.Raw]) -> npt.NDArray[np.int32]:
        return texts.codes(bytes(column[i]) for i in places)

    columns.collectives.add(
        device=columns.device.rows + rows,
        name=text(a.collective),
        dtype=text(a.dtype),
        in_elements=integers(a.in_elements)[rows],
        out_elements=integers(a.out_elements)[rows],
        group_size=integers(a.group_size)[rows],
        process_group=text(a.process_group),
        description=text(a.process_group_description),
        ranks=text(a.ranks),
        in_split=text(a.in_split),
        out_split=text(a.out_split),
    )


def trailing_number(value: object) -> int:
    """7 of 7, "7" and "stream 7" (old traces name the thread so); -1 without a number."""
    tail = identity(value).rpartition(" ")[2]
    return int(tail) if tail.isdigit() and len(tail) < 18 else -1


def _sync(batch: Batch, index: Ints, columns: Columns) -> None:
    batch, index, start, duration = _placed(batch, index, columns)
    if not batch.name:
        return
    a = _args(batch, _SYNCS, E.SyncArgs, columns)
    columns.sync.add(
        name=columns.names.codes(batch.name),
        device=integers(a.device),
        stream=integers(a.stream),
        start=start,
        duration=duration,
        correlation=integers(a.correlation),
        event_record=integers(a.event_record),
        wait_on_stream=integers(a.wait_on_stream),
    )


def _device_annotation(batch: Batch, index: Ints, columns: Columns) -> None:
    batch, index, start, duration = _placed(batch, index, columns)
    if not batch.name:
        return
    a = _args(batch, _ANNOTATIONS, E.AnnotationArgs, columns)
    columns.annotations.add(
        name=columns.names.codes(batch.name),
        start=start,
        duration=duration,
        external_id=integers(a.external_id),
        device=np.fromiter(map(trailing_number, batch.pid), np.int64, len(index)),
        stream=np.fromiter(map(trailing_number, batch.tid), np.int64, len(index)),
    )


def _flow(batch: Batch, _: Ints, columns: Columns) -> None:
    time, given = nanoseconds(batch.ts, columns.health)
    columns.flows.add(
        category=np.full(len(time), columns.categories[batch.cat[0] or ""], np.int32),
        phase=np.full(len(time), columns.categories[batch.ph[0]], np.int32),
        id=integers(batch.id),
        thread=_threads(batch, columns),
        time=np.where(given, time, -1),
    )


def _instant(batch: Batch, index: Ints, columns: Columns) -> None:
    time, given = nanoseconds(batch.ts, columns.health)
    memory = np.fromiter((name == "[memory]" for name in batch.name), bool, len(time)) & given
    if memory.any():
        chosen = batch.take(np.flatnonzero(memory))
        a = _args(chosen, _MEMORIES, E.MemoryArgs, columns)
        columns.memory.add(
            time=time[memory],
            thread=_threads(chosen, columns),
            device_type=integers(a.device_type),
            device_id=integers(a.device_id),
            address=integers(a.address),
            bytes=integers(a.bytes),
            total_allocated=integers(a.total_allocated),
            total_reserved=integers(a.total_reserved),
            index=index[memory],
        )
    rest = given & ~memory
    if rest.any():
        others = batch.take(np.flatnonzero(rest))
        count = len(others.name)
        columns.instant.add(
            name=columns.names.codes(others.name),
            category=np.full(count, columns.categories[others.cat[0] or ""], np.int32),
            phase=np.full(count, columns.categories[others.ph[0]], np.int32),
            thread=_threads(others, columns),
            time=time[rest],
            args=columns.instants.codes(map(bytes, others.args)),
        )


def _meta(batch: Batch, _: Ints, columns: Columns) -> None:
    wanted = np.fromiter((n in ("process_name", "process_labels", "thread_name") for n in batch.name), bool, len(batch.name))
    if not wanted.any():
        return
    chosen = batch.take(np.flatnonzero(wanted))
    a = _args(chosen, _METAS, E.MetaArgs, columns)
    texts = [
        "" if name is None and label is None else str(label if name is None else name) for name, label in zip(a.name, a.labels, strict=True)
    ]  # type: ignore[arg-type]
    columns.meta.extend(zip(chosen.name, chosen.pid, chosen.tid, texts, strict=True))


def begin_end(batch: Batch, index: Ints, columns: Columns) -> None:
    """B and E events are kept until the end of the file, where they are paired per thread."""
    time, given = nanoseconds(batch.ts, columns.health)
    threads = _threads(batch, columns).tolist()
    for i in np.flatnonzero(given).tolist():
        columns.begin_end.append((batch.ph[i], batch.name[i], batch.cat[i], threads[i], int(time[i]), int(index[i])))


_OPERATORS = msgspec.json.Decoder(list[E.OperatorArgs])
_CALLS = msgspec.json.Decoder(list[E.CallArgs])
_FRAMES = msgspec.json.Decoder(list[E.FrameArgs])
_DEVICES = msgspec.json.Decoder(list[E.DeviceArgs])
_SYNCS = msgspec.json.Decoder(list[E.SyncArgs])
_MEMORIES = msgspec.json.Decoder(list[E.MemoryArgs])
_METAS = msgspec.json.Decoder(list[E.MetaArgs])
_ANNOTATIONS = msgspec.json.Decoder(list[E.AnnotationArgs])

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
