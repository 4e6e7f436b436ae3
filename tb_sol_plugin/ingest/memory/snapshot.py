"""Reads snapshots of torch's caching allocator (`torch.cuda.memory._dump_snapshot`): the blocks of its segments, and its history.

A snapshot is a pickle of lists and dicts, read without running it (`pickles`). `segments` is the state at the moment of the
dump, `device_traces` a history per device, of which the allocator keeps the latest entries only (`max_entries`). Sizes in the
history are those that the program asked for, before the allocator rounds them up; blocks carry both. Older versions of torch leave
out times, addresses of blocks, requested sizes and pools: these are unknown, but for addresses, which follow from the order of blocks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from sys import getsizeof
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.errors import BadInput, NotATrace
from tb_sol_plugin.ingest import limits
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.ingest.memory import pickles
from tb_sol_plugin.ingest.memory.pickles import Plain
from tb_sol_plugin.ingest.source import Progress, Report, Source
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tb_sol_plugin.tables.arrays import Ints

SOURCE: Final = "memory_snapshot"
STATES: Final = {
    "active_allocated": "active_allocated", "active_awaiting_free": "active_awaiting_free",
    "active_pending_free": "active_awaiting_free", "inactive": "inactive",
}  # fmt: skip
SHARE: Final = 16
"""One part in so many of the limit of text: all of it is kept."""
LESS: Final = "keep a shorter history: torch.cuda.memory._record_memory_history(max_entries=100000)"
LEAST: Final = 8
"""Bytes of a file that each block or entry of the history takes, and more: a file with more of them refers to the same ones again."""
MOST_FRAMES: Final = 256
"""Frames of one call stack that are kept, from the innermost on."""
MOST_TEXT: Final = 256 << 20
"""Bytes of distinct call stacks that are kept."""
SINCE_1970: Final = 10**14
"""A time in microseconds from here on is one since 1970."""
LATEST_US: Final = 9 * 10**15
MOST_BYTES: Final = 1 << 52
DUMP: Final = 'dump it anew: torch.cuda.memory._dump_snapshot("memory.pickle")'
_FLAGS: Final[dict[str, bool | None]] = dict.fromkeys(("record_shapes", "profile_memory", "with_modules"), False)

Codes = npt.NDArray[np.int32]
Entry = dict[object, Plain]


def read(path: str, *, fs_options: dict[str, object] | None = None, progress: Report | None = None) -> Capture:
    """Read one snapshot (local path or fsspec URL). BadInput where it is damaged or refused, NotATrace where it is another pickle."""
    with Source(path, fs_options, share=SHARE, hint=LESS) as source:
        data = _all_of(source, progress)
        name, size, broken = source.name, source.size, source.truncated
    if broken:
        raise BadInput(f"this memory snapshot cannot be read: {broken}", hint=pickles.AGAIN, file=name)
    value = pickles.load(data, file=name, what="memory snapshot", largest=len(data))
    text = len(data)
    del data
    if progress is not None:
        progress(Progress(size, size, 0, "linking"))
    return capture_of(value, file=name, size=size, text=text)


def _all_of(source: Source, progress: Report | None) -> bytes:
    blocks = []
    for block in source.blocks():
        blocks.append(block)
        if progress is not None:
            progress(Progress(source.position, source.size, 0, "reading"))
    return b"".join(blocks)


def capture_of(value: Plain, *, file: str, size: int = 0, text: int = 1 << 30) -> Capture:
    """Returns the Capture of a loaded snapshot: a dict with `segments` and `device_traces`, or a list of segments as older versions
    gave. text: bytes of the pickle, in proportion to which its rows and call stacks may be.
    """
    health, stacks = Health(), _Stacks(min(MOST_TEXT, 64 * text + (16 << 20)))
    if isinstance(value, list):
        value = {"segments": value}
    if not isinstance(value, dict) or not ("segments" in value or "device_traces" in value):
        raise NotATrace("this pickle is no memory snapshot: it has neither segments nor a history", hint=DUMP, file=file)
    _check_rows(value, text, file)
    segments = _entries(value.get("segments"), "segment that cannot be read", health)
    blocks, of_blocks = _blocks(segments, stacks, health)
    devices, history = _history(value.get("device_traces"), health)
    time_us = _in_order(_times(history, health), devices, health)
    notes = _entries(value.get("external_annotations"), "annotation that cannot be read", health)
    note_us = _times(notes, health)
    known = np.concatenate([time_us[time_us >= 0], note_us[note_us >= 0]])
    origin = int(known.min()) * 1000 if len(known) else 0
    events, of_events = _events(history, devices, np.where(time_us >= 0, time_us * 1000 - origin, -1), stacks, health)
    if stacks.dropped:
        health.add("call stack left out", stacks.dropped, effect="shown without its frames: there are too many")
    if stacks.cut:
        health.add("call stack cut short", stacks.cut, effect=f"its outermost frames are left out: {MOST_FRAMES} are kept")
    if not len(of_blocks) and not len(of_events):
        raise BadInput("this memory snapshot is empty: no memory of a device was held", hint=_EMPTY, file=file)
    categories = stacks.categories()
    in_history, in_blocks = (pd.Categorical.from_codes(codes, categories=categories) for codes in (of_events, of_blocks))
    tables = {
        S.MEMORY_EVENTS.name: S.MEMORY_EVENTS.frame({**events, "frames": in_history}),
        S.MEMORY_BLOCKS.name: S.MEMORY_BLOCKS.frame({**blocks, "frames": in_blocks}),
        S.INSTANTS.name: _annotations(notes, np.where(note_us >= 0, note_us * 1000 - origin, -1)),
    }
    extent = int(known.max()) * 1000 - origin if len(known) else 0
    return Capture(
        Facts(
            source=SOURCE,
            file=file,
            size=size,
            total_events=len(history) + len(tables[S.MEMORY_BLOCKS.name]),
            origin_ns=origin,
            absolute=origin // 1000 >= SINCE_1970,
            extent_ns=(0, extent),
            flags={**_FLAGS, "with_stack": any(text not in ("", "[]") for text in categories)},
            metadata=_metadata(value, segments, tables),
            pseudo_step=True,
        ),
        tables | {"issues": health.table()},
    )


_EMPTY: Final = "call torch.cuda.memory._record_memory_history() before the model is made, and dump while it is in use"


def _check_rows(value: Entry, text: int, file: str) -> None:
    """Raises BadInput where lists that are there once are referred to so often that more rows follow than the file has room for."""
    segments, traces = ([v for v in found if v] if isinstance(found := value.get(k), list) else [] for k in ("segments", "device_traces"))
    lists = [*(s.get("blocks") for s in segments if isinstance(s, dict)), *traces, value.get("external_annotations"), segments]
    rows = sum(len(found) for found in lists if isinstance(found, list))
    limits.check(limits.ROWS, rows, limits.most(limits.ROWS, 10), file, LESS)
    if rows > max(text // LEAST, 1000):
        raise BadInput(f"this memory snapshot is refused: its {rows:,} rows are the same few, over and over", hint=pickles.SAFE, file=file)


def _metadata(value: Entry, segments: Sequence[Entry], tables: dict[str, pd.DataFrame]) -> dict[str, str]:
    """Counts, and the allocator's settings that are plain values."""
    settings = value.get("allocator_settings")
    kept = {str(k): v for k, v in settings.items() if isinstance(v, str | int | float | bool)} if isinstance(settings, dict) else {}
    out = {
        "segments": str(len(segments)),
        "blocks": str(len(tables[S.MEMORY_BLOCKS.name])),
        "history": str(len(tables[S.MEMORY_EVENTS.name])),
    }
    return out | ({"allocator_settings": json.dumps(kept, separators=(",", ":"))[:2000]} if kept else {})


def _entries(value: Plain, otherwise: str, health: Health) -> list[Entry]:
    if not isinstance(value, list):
        return []
    out = [entry for entry in value if isinstance(entry, dict)]
    health.add(otherwise, len(value) - len(out), effect="skipped")
    return out


def _blocks(segments: Sequence[Entry], stacks: _Stacks, health: Health) -> tuple[dict[str, object], Codes]:
    """Returns columns of MEMORY_BLOCKS, and the codes of its call stacks."""
    owner: list[int] = []
    blocks: list[Entry] = []
    for row, segment in enumerate(segments):
        found = _entries(segment.get("blocks"), "block that cannot be read", health)
        blocks += found
        owner += [row] * len(found)
    of = np.array(owner, np.int64)
    each = {name: _ints(segments, name, health)[of] for name in ("device", "address", "stream")}
    before = [_older(block) for block in blocks]  # what versions before 2.1 say of a block stands in its first entry of `history`
    size = _sizes(blocks, "size", health)
    whole = _whole(_sizes(segments, "total_size", health), of, size, health)
    requested = _sizes(blocks, "requested_size", health)
    requested = np.where(requested >= 0, requested, _sizes(before, "real_size", health))
    address = _ints(blocks, "address", health)
    first = np.r_[True, of[1:] != of[:-1]] if len(of) else np.zeros(0, bool)
    ahead = np.cumsum(size.clip(min=0)) - size.clip(min=0)
    within = ahead - ahead[first][np.cumsum(first) - 1] if len(of) else ahead
    address = np.where(address >= 0, address, np.where(each["address"] >= 0, each["address"] + within, -1))
    states = [STATES.get(_word(block.get("state")), "") for block in blocks]
    health.add("block in an unknown state", states.count(""), effect="in no sum of what is in use")
    odd = (requested > size) & (size >= 0)
    health.add("block smaller than its requested size", int(odd.sum()), effect="kept as recorded")
    kinds = [_word(s.get("segment_type")) for s in segments]
    pools = [_pool(s.get("segment_pool_id")) for s in segments]
    columns: dict[str, object] = {
        "device": each["device"],
        "segment": each["address"],
        "segment_bytes": whole[of],
        "segment_type": [kinds[row] for row in owner],
        "pool": [pools[row] for row in owner],
        "stream": each["stream"],
        "address": address,
        "bytes": size,
        "requested": requested,
        "state": states,
    }
    return columns, stacks.codes([b.get("frames", old.get("frames")) for b, old in zip(blocks, before, strict=True)])


def _whole(total: Ints, of: Ints, size: Ints, health: Health) -> Ints:
    """Returns bytes of each segment; of one that does not say, those of its blocks, which fill it; -1 where one of them is unknown."""
    blocks, unknown = np.zeros(len(total), np.int64), np.zeros(len(total), bool)
    np.add.at(blocks, of, size.clip(min=0))
    np.logical_or.at(unknown, of, size < 0)
    health.add("segment without a size", int((total < 0).sum()), effect="as large as its blocks")
    return np.where(total >= 0, total, np.where(unknown, -1, blocks))


def _older(block: Entry) -> Entry:
    history = block.get("history")
    first = history[0] if isinstance(history, list) and history else None
    return first if isinstance(first, dict) else {}


def _pool(value: Plain) -> str:
    """Returns `0,0` is the common pool, others belong to graphs; "" unknown."""
    if isinstance(value, tuple | list) and len(value) == 2:
        return ",".join(str(v) for v in value if type(v) is int)
    return str(value) if isinstance(value, int) else ""


def _history(value: Plain, health: Health) -> tuple[Ints, list[Entry]]:
    """Returns (device of each entry, entries) of the histories of all devices, one after the other, each in its order."""
    entries: list[Entry] = []
    counts = []
    for trace in value if isinstance(value, list) else []:
        found = _entries(trace, "entry of the history that cannot be read", health)
        counts.append(len(found))
        entries += found
    return np.repeat(np.arange(len(counts), dtype=np.int64), counts), entries


def _events(history: Sequence[Entry], devices: Ints, time_ns: Ints, stacks: _Stacks, health: Health) -> tuple[dict[str, object], Codes]:
    """Returns columns of MEMORY_EVENTS, and the codes of its call stacks."""
    actions = [_word(entry.get("action")) for entry in history]
    health.add("entry of the history without an action", actions.count(""), effect="in no sum")
    columns: dict[str, object] = {
        "device": devices,
        "action": actions,
        "address": _ints(history, "addr", health),
        "bytes": _sizes(history, "size", health),
        "device_free": _sizes(history, "device_free", health),
        "stream": _ints(history, "stream", health),
        "time_ns": time_ns,
    }
    return columns, stacks.codes([entry.get("frames") for entry in history])


def _annotations(notes: Sequence[Entry], time_ns: Ints) -> pd.DataFrame:
    """Returns marks that the program set while the history was kept (name, stage), as instants."""
    keep = np.flatnonzero(time_ns >= 0).tolist()
    return S.INSTANTS.frame({
        "name": [_word(notes[i].get("name")) for i in keep],
        "category": ["memory annotation"] * len(keep),
        "phase": [_word(notes[i].get("stage")) for i in keep],
        "time_ns": time_ns[keep],
    })  # fmt: skip


def _ints(entries: Sequence[Entry], key: str, health: Health) -> Ints:
    """Returns a whole number per entry; -1 where it is not there, is none, or does not fit into 63 bits."""
    values = [entry.get(key, -1) for entry in entries]
    if set(map(type, values)) <= {int}:
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
    good = [v if type(v) is int and -(1 << 63) <= v < 1 << 63 else -1 for v in values]
    health.add("number that cannot be read", sum(v is not g and v is not None for v, g in zip(values, good, strict=True)), key, "unknown")
    return np.array(good, np.int64)


def _sizes(entries: Sequence[Entry], key: str, health: Health) -> Ints:
    """Returns bytes; -1 where they are not there, or are no size of any memory."""
    found = _ints(entries, key, health)
    wrong = (found < -1) | (found > MOST_BYTES)
    health.add("impossible memory size", int(wrong.sum()), key, "unknown")
    return np.where(wrong, -1, found)


def _times(entries: Sequence[Entry], health: Health) -> Ints:
    """Returns microseconds; -1 unknown."""
    found = _ints(entries, "time_us", health)
    wrong = (found < -1) | (found > LATEST_US)
    health.add("time out of range", int(wrong.sum()), effect="unknown")
    return np.where(wrong, -1, found)


def _in_order(time_us: Ints, devices: Ints, health: Health) -> Ints:
    """Returns times of histories, each in the order of its entries: one that is earlier than the entry ahead of it takes the time of that
    one.
    """
    out = time_us.copy()
    for device in np.unique(devices).tolist():
        own = devices == device
        if bool((time_us[own] >= 0).all()):  # with some unknown, entries stand in order without times
            out[own] = np.maximum.accumulate(time_us[own])
    health.add("entry of the history earlier than the one ahead of it", int((out != time_us).sum()), effect="takes the time of that one")
    return out


class _Stacks:
    """Call stacks as codes of their texts: JSON lists of [file, line, function], innermost first. Code 0 is "none"."""

    def __init__(self, most: int = MOST_TEXT) -> None:
        self._most = most
        self._known: dict[tuple[int, ...], int] = {}
        self._texts: dict[str, int] = {"": 0}
        self._frames: dict[int, list[str | int]] = {}
        self._size = 0
        self.dropped = 0
        self.cut = 0

    def codes(self, stacks: Sequence[Plain]) -> Codes:
        """Returns one code per stack. The stacks must stay alive: frames are told apart by identity first."""
        return np.fromiter((self._code(stack) for stack in stacks), np.int32, len(stacks))

    def categories(self) -> pd.Index:
        return pd.Index(list(self._texts), dtype=object)

    def _code(self, stack: Plain) -> int:
        if not isinstance(stack, list) or not stack:
            return 0
        if len(stack) > MOST_FRAMES:
            self.cut += 1
            stack = stack[:MOST_FRAMES]
        key = tuple(map(id, stack))
        code = self._known.get(key)
        if code is None:
            code = self._known[key] = self._new([self._frame(frame) for frame in stack])
        self.dropped += code < 0
        return max(code, 0)

    def _new(self, frames: list[list[str | int]]) -> int:
        text = json.dumps(frames, separators=(",", ":"), ensure_ascii=False)
        if text not in self._texts:
            if self._size + getsizeof(text) > self._most:
                return -1
            self._size += getsizeof(text)
            self._texts[text] = len(self._texts)
        return self._texts[text]

    def _frame(self, frame: Plain) -> list[str | int]:
        known = self._frames.get(id(frame))
        if known is None:
            found = frame if isinstance(frame, dict) else {}
            line = found.get("line")
            known = [_word(found.get("filename")), line if type(line) is int and abs(line) < 1 << 31 else -1, _word(found.get("name"))]
            self._frames[id(frame)] = known
        return known


def _word(value: Plain) -> str:
    return value[:1000].encode("utf-8", "replace").decode() if isinstance(value, str) else ""
