"""Builds the tables of a Capture from the columns of a trace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.devices.spec import DeviceProps
from tb_sol_plugin.ingest.columns import Array, Buffer, Interner, identity
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.ingest.kineto import link, rules
from tb_sol_plugin.ingest.kineto.columns import Columns
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import larger_than_memory
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables.arrays import Ints, Mask
from tb_sol_plugin.tables.schema import Schema
from tb_sol_plugin.tables.table import frame_of
from tb_sol_plugin.units import human

# -- Copies and sets of memory ---------------------------------------------------------------------------------------
# where they go, between which kinds of memory and which devices; and what about them cannot be.
#
# What contradicts itself is counted, never mended.


AGREE: Final = 0.02
"""How far a recorded bandwidth may lie from bytes over time before it counts as a contradiction."""


def describe(columns: Columns, raw: dict[str, Array]) -> tuple[dict[str, object], Mask]:
    """Returns (columns direction, src_kind, dst_kind and copy_kernel of the device table, whether a row is a set), from the columns as
    read.

    Worked out once per distinct (kind, name, recorder's kind). Some recorders file sets of memory under copies.
    """
    names = list(columns.names)
    kind, name, copy_kind = (np.asarray(raw[k]).astype(np.int64) for k in ("kind", "name", "copy_kind"))
    shown, remap = columns.texts.compact()
    texts = [str(t) for t in shown]
    copy_kind = remap[copy_kind].astype(np.int64)
    key = (kind * (len(names) + 1) + name) * (len(texts) + 1) + copy_kind
    distinct, place = arrays.in_order(key)
    first, often = arrays.first_of(place, len(distinct)), np.bincount(place, minlength=len(distinct))
    directions, sources, targets = Interner(), Interner(), Interner()
    codes = np.zeros((3, len(distinct)), np.int32)
    copy_kernel, fill = np.zeros(len(distinct), bool), np.zeros(len(distinct), bool)
    directions[""], sources[""], targets[""] = 0, 0, 0
    kernels = np.flatnonzero(kind[first] == S.KERNEL)
    copy_kernel[kernels[rules.copying([str(names[i]) for i in name[first[kernels]].tolist()])]] = True
    for i in np.flatnonzero(kind[first] != S.KERNEL).tolist():
        row = int(first[i])
        text = str(names[int(name[row])])
        found = rules.copy_of(text, kind[row] == S.MEMSET, texts[int(copy_kind[row])])
        codes[:, i] = directions[found[0]], sources[found[1]], targets[found[2]]
        fill[i] = found[0] == "Memset"
        if disagree(text, texts[int(copy_kind[row])]):
            columns.health.add("copy whose name and kind disagree", int(often[i]), text)
    columns_of = {
        "direction": directions.categorical(codes[0][place]),
        "src_kind": sources.categorical(codes[1][place]),
        "dst_kind": targets.categorical(codes[2][place]),
        "copy_kernel": copy_kernel[place],
    }
    return columns_of, fill[place]


def peers(columns: Columns, order: Ints) -> pd.DataFrame:
    """Returns copies between devices with the devices that they name, in order of the device table."""
    raw = columns.peers.take()
    if not raw:
        return S.PEERS.empty()
    rows = order[np.asarray(raw["device"])].astype(np.int32)
    by_row = np.argsort(rows, kind="stable")
    return S.PEERS.frame(
        {"device": rows[by_row], "from_device": np.asarray(raw["from_device"])[by_row], "to_device": np.asarray(raw["to_device"])[by_row]}
    )


def observe_copies(device: pd.DataFrame, devices: Sequence[DeviceProps], health: Health) -> None:
    """Adds health lines of the copies and sets in the finished device table; `devices` as the header lists them."""
    rows = np.flatnonzero(device["kind"].to_numpy() != S.KERNEL)
    if not len(rows):
        return
    read = ("name", "direction", "bytes", "stream", "device", "start_ns", "duration_ns", "bandwidth")
    copies = frame_of({name: device[name].array[rows] for name in read})
    for reason, mask in (
        ("unknown copy direction", link.among(copies["direction"], ("Unknown",))),
        ("copy without bytes", copies["bytes"].to_numpy() < 0),
        ("copy larger than its device's memory", larger_than_memory(copies, devices)),
        ("copy without a stream", copies["stream"].to_numpy() < 0),
        ("recorded bandwidth disagrees with bytes over time", _contradicts(copies)),
    ):
        if mask.any():
            health.add(reason, int(mask.sum()), str(copies["name"].iloc[int(np.argmax(mask))]))


def _contradicts(copies: pd.DataFrame) -> Mask:
    """Returns copies whose recorded bandwidth is more than 2 % off bytes over time, by more than the clock's resolution explains.

    Recorders divide by the duration before they round it for the file: with a clock of whole microseconds a short copy says nothing.
    """
    size, time = copies["bytes"].to_numpy(np.float64), copies["duration_ns"].to_numpy(np.float64)
    recorded = copies["bandwidth"].to_numpy()  # GB/s, which is bytes per ns
    whole = (copies["duration_ns"].to_numpy() % 1000 == 0).all() and (copies["start_ns"].to_numpy() % 1000 == 0).all()
    resolution = 1000.0 if whole else 1.0
    checked = (size > 0) & (time > 0) & (recorded > 0)
    with np.errstate(invalid="ignore"):
        return np.asarray(checked & (np.abs(recorded * time - size) > AGREE * size + recorded * resolution), np.bool_)


def disagree(name: str, kind: str) -> bool:
    """Whether a copy's name and what its recorder says beside it spell two directions."""
    by_name, by_kind = rules.direction_of(name), rules.direction_of(kind)
    return "Unknown" not in (by_name, by_kind) and bool(by_name and by_kind) and by_name != by_kind


GRAPH = re.compile(r"(cuda|hip|cu)GraphLaunch")
RANK_OF_KIND = np.zeros(len(S.HOST_KINDS), np.int8)
RANK_OF_KIND[[S.ANNOTATION, S.MODULE, S.FRAME, S.OPERATOR, S.CALL, S.OTHER]] = [0, 1, 1, 2, 3, 4]
"""Of two host events with one start and one end, which is the outer one (lower)."""


# -- host -----------------------------------------------------------------------------------------------------


def pair_begin_end(columns: Columns) -> None:
    """Pairs B and E events (files edited by other tools) per thread into complete host events."""
    if not columns.begin_end:
        return
    stacks: dict[int, list[tuple[str, str | None, int, int]]] = {}
    done: list[tuple[str, str | None, int, int, int, int]] = []
    lonely = 0
    for phase, name, category, thread, at, index in sorted(columns.begin_end, key=lambda row: (row[3], row[4], row[5])):
        stack = stacks.setdefault(thread, [])
        if phase == "B":
            stack.append((name, category, at, index))
        elif stack:
            begun, kind, start, first = stack.pop()
            done.append((begun, kind, thread, start, at - start, first))
        else:
            lonely += 1
    for thread, stack in stacks.items():
        lonely += len(stack)
        done.extend((name, category, thread, start, 0, first) for name, category, start, first in stack)
    columns.health.add("begin or end event without its partner", lonely)
    columns.begin_end.clear()
    done.sort(key=lambda row: row[5])  # of two with one start and one end, the outer one began first
    device = [row for row in done if rules.bucket("X", row[1]) == rules.DEVICE]
    done = [row for row in done if rules.bucket("X", row[1]) != rules.DEVICE]
    if device:
        _begun_device_work(columns, device)
    if not done:
        return
    kinds = {rules.HOST_OPERATOR: S.OPERATOR, rules.HOST_ANNOTATION: S.ANNOTATION, rules.HOST_CALL: S.CALL, rules.HOST_FRAME: S.FRAME}
    columns.host.add(
        name=columns.names.codes([d[0] for d in done]),
        category=columns.categories.codes([d[1] or "unknown" for d in done]),
        kind=np.asarray([kinds.get(rules.bucket("X", d[1]), S.OTHER) for d in done], np.int8),
        thread=np.asarray([d[2] for d in done], np.int32),
        start=np.asarray([d[3] for d in done], np.int64),
        duration=np.asarray([d[4] for d in done], np.int64),
        index=np.asarray([d[5] for d in done], np.int64),
    )


def _begun_device_work(columns: Columns, done: list[tuple[str, str | None, int, int, int, int]]) -> None:
    """Returns device events written as B and E: on the device and stream of their (pid, tid), without what `args` would say."""
    keys = [(str(k[0]), str(k[1])) for k in columns.threads.distinct if isinstance(k, tuple)]
    places = [(_number_at_end(key[0]), _number_at_end(key[1])) for key in (keys[row[2]] for row in done)]
    count = len(done)
    ints: dict[str, Array] = {
        name: np.full(count, -1, np.int64)
        for name in ("correlation", "external_id", "bytes", "registers", "shared_memory", "context", "graph_node")
    }
    floats: dict[str, Array] = {name: np.full(count, np.nan) for name in ("bandwidth", "blocks_per_sm", "warps_per_sm", "occupancy")}
    kinds = [S.MEMCPY if "memcpy" in (d[1] or "").lower() else S.MEMSET if "memset" in (d[1] or "").lower() else S.KERNEL for d in done]
    columns.device.add(
        name=columns.names.codes([d[0] for d in done]),
        category=columns.categories.codes([d[1] or "" for d in done]),
        kind=np.asarray(kinds, np.int8),
        device=np.asarray([p[0] for p in places], np.int64),
        stream=np.asarray([p[1] for p in places], np.int64),
        start=np.asarray([d[3] for d in done], np.int64),
        duration=np.asarray([d[4] for d in done], np.int64),
        copy_kind=columns.texts.codes([b""] * count),
        grid=columns.grids.codes([b""] * count),
        block=columns.grids.codes([b""] * count),
        index=np.asarray([d[5] for d in done], np.int64),
        **ints,
        **floats,
    )


def _number_at_end(text: str) -> int:
    """Returns 7 of "7" and of "stream 7"; -1 without a number."""
    tail = text.rpartition(" ")[2]
    return int(tail) if tail.isdigit() and len(tail) < 18 else -1


def host(columns: Columns, origin: int) -> tuple[dict[str, object], Ints]:
    """Returns (columns of the host table in preorder, new row of every row as read)."""
    raw = columns.host.take()
    if not raw:
        return {
            n: getattr(S.HOST.empty()[n], "array", None) if f.dtype == "category" else np.zeros(0, f.dtype)
            for n, f in S.HOST.fields.items()
        }, np.zeros(0, np.int64)
    thread, start, duration, kind = (np.asarray(raw[k]) for k in ("thread", "start", "duration", "kind"))
    order = tree.preorder(thread, start, start + duration, RANK_OF_KIND[kind])
    thread, start, duration = thread[order], start[order], duration[order]
    parent, depth, end, clipped = tree.nest(thread, start, start + duration)
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return {
        "name": columns.names.categorical(np.asarray(raw["name"])[order]),
        "category": columns.categories.categorical(np.asarray(raw["category"])[order]),
        "kind": kind[order],
        "thread": thread,
        "start_ns": start - origin,
        "duration_ns": duration,
        "parent": parent,
        "depth": depth,
        "end": end,
        "clipped": clipped,
        "index": np.asarray(raw["index"])[order],
    }, back


def remapped(buffer: Buffer, old_to_new: Ints) -> dict[str, Array]:
    """Returns a side table whose `host` column names host rows, in order of those rows."""
    raw = buffer.take()
    if not raw:
        return {}
    host = old_to_new[np.asarray(raw["host"])]
    order = np.argsort(host, kind="stable")
    return {"host": host[order].astype(np.int32), **{k: v[order] for k, v in raw.items() if k != "host"}}


# -- device ---------------------------------------------------------------------------------------------------


def device(columns: Columns, origin: int, view: link.Host, tables: dict[str, pd.DataFrame]) -> tuple[dict[str, object], pd.DataFrame, Ints]:
    """Returns (columns of the device table less `step`, a frame of them for linking, new row of every row as read)."""
    raw = columns.device.take()
    if not raw:
        empty = S.DEVICE.empty()
        return (
            {n: empty[n].array if f.dtype == "category" else empty[n].to_numpy() for n, f in S.DEVICE.fields.items()},
            empty,
            np.zeros(0, np.int64),
        )
    order = arrays.lex_order(np.asarray(raw["start"]), np.asarray(raw["index"]))
    once: dict[tuple[str, str], Array] = {}
    for name in raw:  # one after the other: the column as it was read goes as soon as the one in order is there
        column = np.asarray(raw[name])
        raw[name] = _constant(column, once) if _is_constant(column) else column[order]
    raw["start"] = raw["start"] - origin
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    call, method = link.launches(view, tables["calls"], raw, tables["flows"], columns.health)
    owner = link.owners(view, call)
    graph_call = view.matching(GRAPH)
    graph = (call >= 0) & (graph_call[np.maximum(call, 0)] if len(graph_call) else False)
    described, fill = describe(columns, raw)
    out: dict[str, object] = {
        "name": columns.names.categorical(raw["name"]),
        "category": columns.categories.categorical(raw["category"]),
        "kind": np.where(fill, S.MEMSET, raw["kind"]).astype(np.int8),
        "device": raw["device"],
        "stream": raw["stream"],
        "start_ns": raw["start"],
        "duration_ns": raw["duration"],
        "copy_kernel": described.pop("copy_kernel"),
        "correlation": raw["correlation"],
        "external_id": raw["external_id"],
        "bytes": raw["bytes"],
        "bandwidth": raw["bandwidth"],
        **described,
        "grid": columns.grids.categorical(raw["grid"]),
        "block": columns.grids.categorical(raw["block"]),
        "registers": raw["registers"],
        "shared_memory": raw["shared_memory"],
        "blocks_per_sm": raw["blocks_per_sm"],
        "warps_per_sm": raw["warps_per_sm"],
        "occupancy_pct": raw["occupancy"],
        "context": raw["context"],
        "graph_node": raw["graph_node"],
        "call": call,
        "link": method,
        "graph": graph,
        **owner,
        "index": raw["index"],
    }
    frame = S.DEVICE.frame(out)
    out["communication"], out["communication_narrow"] = link.communication(view, frame, owner["annotation"], owner["operator"])
    return out, frame, back


def _is_constant(column: Array) -> bool:
    """Whether a column says the same of every row, as of what no tracer recorded."""
    if column.dtype.kind == "f" and np.isnan(column[0]):
        return bool(np.isnan(column[-1]) and np.isnan(column).all())
    return bool(column[0] == column[-1] and (column == column[0]).all())


def _constant(column: Array, once: dict[tuple[str, str], Array]) -> Array:
    """Returns a column of one value: columns of one type and value are one array, which cannot be written to."""
    key = column.dtype.str, repr(column[0])
    if key not in once:
        once[key] = np.full(len(column), column[0])
        once[key].flags.writeable = False
    return once[key]


def collectives(columns: Columns, order: Ints) -> pd.DataFrame:
    raw = columns.collectives.take()
    if not raw:
        return S.COLLECTIVES.empty()
    device = order[np.asarray(raw.pop("device"))].astype(np.int32)
    return S.COLLECTIVES.frame({"device": device, **_of_texts(columns, raw, S.COLLECTIVES)})


def messages(columns: Columns, old_to_new: Ints) -> pd.DataFrame:
    raw = remapped(columns.messages, old_to_new)
    return S.MESSAGES.frame(_of_texts(columns, raw, S.MESSAGES)) if raw else S.MESSAGES.empty()


def _of_texts(columns: Columns, raw: dict[str, Array], schema: Schema) -> dict[str, object]:
    """Returns columns as they are, codes of texts as categories."""
    text = columns.texts.categorical
    return {name: text(column) if schema.fields[name].dtype == "category" else column for name, column in raw.items()}


# -- small tables ---------------------------------------------------------------------------------------------


def threads(columns: Columns) -> pd.DataFrame:
    process_names, labels, thread_names = {}, {}, {}
    known = cache(lambda text: identity(text.encode()))  # an MTIA recording names its few processes and threads 186,000 times
    for kind, pid, tid, text in columns.meta:
        process = known(pid)
        if kind == "process_name":
            process_names[process] = text
        elif kind == "process_labels":
            labels[process] = text
        else:
            thread_names[(process, known(tid))] = text
    keys = [(str(k[0]), str(k[1])) for k in columns.threads.distinct if isinstance(k, tuple)]
    names = [" ".join(dict.fromkeys(t for t in (process_names.get(p, ""), labels.get(p, "")) if t)) for p, _ in keys]
    return S.THREADS.frame(
        {
            "process": arrays.few_texts([p for p, _ in keys]),
            "thread": arrays.few_texts([t for _, t in keys]),
            "process_name": arrays.few_texts(names),
            "thread_name": arrays.few_texts([thread_names.get(k, "") for k in keys]),
        }
    )


def flows(columns: Columns, origin: int) -> pd.DataFrame:
    raw = columns.flows.take()
    if not raw:
        return S.FLOWS.empty()
    cat = columns.categories.categorical
    return S.FLOWS.frame(
        {
            "category": cat(raw["category"]),
            "phase": cat(raw["phase"]),
            "id": raw["id"],
            "thread": raw["thread"],
            "time_ns": raw["time"] - origin,
        }
    )


def memory(columns: Columns, origin: int) -> pd.DataFrame:
    raw = columns.memory.take()
    if not raw:
        return S.MEMORY.empty()
    time_ns = np.asarray(raw.pop("time")) - origin
    order = arrays.lex_order(time_ns, np.asarray(raw["index"]))
    return S.MEMORY.frame({"time_ns": time_ns[order], **{k: v[order] for k, v in raw.items()}})


def sync(columns: Columns, origin: int) -> pd.DataFrame:
    raw = columns.sync.take()
    if not raw:
        return S.SYNC.empty()
    return S.SYNC.frame(
        {
            "name": columns.names.categorical(raw["name"]),
            "device": raw["device"],
            "stream": raw["stream"],
            "start_ns": raw["start"] - origin,
            "duration_ns": raw["duration"],
            "correlation": raw["correlation"],
            "event_record_correlation": raw["event_record"],
            "wait_on_stream": raw["wait_on_stream"],
        }
    )


def device_annotations(columns: Columns, origin: int) -> pd.DataFrame:
    raw = columns.annotations.take()
    if not raw:
        return S.ANNOTATIONS_DEVICE.empty()
    return S.ANNOTATIONS_DEVICE.frame(
        {
            "name": columns.names.categorical(raw["name"]),
            "device": raw["device"],
            "stream": raw["stream"],
            "start_ns": raw["start"] - origin,
            "duration_ns": raw["duration"],
            "external_id": raw["external_id"],
        }
    )


def instants(columns: Columns, origin: int) -> pd.DataFrame:
    raw = columns.instant.take()
    if not raw:
        return S.INSTANTS.empty()
    cat = columns.categories.categorical
    return S.INSTANTS.frame(
        {
            "name": columns.names.categorical(raw["name"]),
            "category": cat(raw["category"]),
            "phase": cat(raw["phase"]),
            "thread": raw["thread"],
            "time_ns": raw["time"] - origin,
            "args": columns.instants.categorical(raw["args"]),
        }
    )


def categories(columns: Columns) -> pd.DataFrame:
    items = sorted(columns.counts.items(), key=lambda item: (-item[1], str(item[0])))
    return S.CATEGORIES.frame(
        {
            "category": arrays.few_texts(["" if c is None else c for (c, _), _ in items]),
            "phase": arrays.few_texts([p for (_, p), _ in items]),
            "count": [n for _, n in items],
        }
    )


def extent(view: link.Host, device: dict[str, object]) -> tuple[int, int]:
    """Returns the first start and last end over complete host and device events."""
    start, duration = np.asarray(device["start_ns"]), np.asarray(device["duration_ns"])
    lows = [int(a.min()) for a in (view.start, start) if len(a)]
    highs = [int(a.max()) for a in (view.end_time, start + duration) if len(a)]
    return (min(lows), max(highs)) if lows else (0, 0)


def observe(columns: Columns, tables: dict[str, pd.DataFrame], view: link.Host) -> None:
    """Adds health lines that only the finished tables show."""
    health, device = columns.health, tables["device"]
    clipped = tables["host"]["clipped"].to_numpy()
    health.add(
        "overlaps its enclosing event", int(clipped.sum()), str(view.names[view.code[int(np.argmax(clipped))]]) if clipped.any() else ""
    )
    zero = int((tables["host"]["duration_ns"].to_numpy() == 0).sum() + (device["duration_ns"].to_numpy() == 0).sum())
    health.add("zero-length event", zero)
    method = device["link"].to_numpy()
    for code in (S.BEFORE_WINDOW, S.NO_RECORD):
        rows = np.flatnonzero(method == code)
        if len(rows):
            health.add(S.LINKS[code], len(rows), str(device["name"].iloc[int(rows[0])]))
    health.add("starts before its launch", *_early(device, view))
    health.add("GPU copy of a user annotation", len(tables["annotations_device"]))
    health.add("same-stream overlap", _stream_overlaps(device))
    if len(device):
        steps = tables["steps"]
        lost = np.flatnonzero((steps["device_events"].to_numpy() == 0) & (steps["number"].to_numpy() >= 0))
        health.add("step without device events", len(lost), str(steps["name"].iloc[int(lost[0])]) if len(lost) else "")


def _early(device: pd.DataFrame, view: link.Host) -> tuple[int, str]:
    """Returns (device events that start before the call that launched them begins, the one that does most with how much)."""
    call = device["call"].to_numpy()
    rows = np.flatnonzero(call >= 0)
    early = view.start[call[rows]] - device["start_ns"].to_numpy()[rows]
    count = int((early > 0).sum())
    if not count:
        return 0, ""
    most = int(early.argmax())
    return count, f"{human(int(early[most]), 'ns')} before: {device['name'].iloc[int(rows[most])]}"


def observe_memory(memory: pd.DataFrame, health: Health) -> None:
    """Counts totals of memory that are below what the events before them have allocated and not freed: one of the two is wrong."""
    code, _ = arrays.factorize([arrays.numbered(memory[name].to_numpy())[0] for name in ("device_type", "device_id")])
    for own in np.split(arrays.stable_order(code), np.cumsum(np.bincount(code))[:-1]):
        change, total = np.cumsum(memory["bytes"].to_numpy()[own]), memory["total_allocated"].to_numpy()[own]
        made = change - np.minimum.accumulate(np.minimum(change, 0))
        health.add("memory total below what was allocated", int(((total >= 0) & (total < made)).sum()))


def _stream_overlaps(device: pd.DataFrame) -> int:
    """Counts device events that start before the previous event of their stream has ended."""
    if device.empty:
        return 0
    start = device["start_ns"].to_numpy()
    order = arrays.lex_order(device["device"].to_numpy(), device["stream"].to_numpy(), start)
    d, s = device["device"].to_numpy()[order], device["stream"].to_numpy()[order]
    begin, end = start[order], (start + device["duration_ns"].to_numpy())[order]
    same = (d[1:] == d[:-1]) & (s[1:] == s[:-1])
    return int((same & (begin[1:] < end[:-1])).sum())
