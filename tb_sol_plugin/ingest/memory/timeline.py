"""Reads memory timelines of `torch.profiler` (`export_memory_timeline`): bytes per category over time.

`.json` holds `[times, rows]`: a row has nine columns, the first 0, then the categories in the order of CATEGORIES, each the bytes held
from its time on; times are microseconds (nanoseconds in some versions). `.raw.json.gz` holds `[time in ns, action, bytes, category]`
per change, actions 1 there before, 2 made, 3 another version of it, 4 freed; time -1 is before the first. Neither names its device.
Rows are decoded a block at a time: memory does not grow with the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.errors import BadInput, NotATrace
from tb_sol_plugin.ingest import limits
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.ingest.source import Progress, Report, Source
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tb_sol_plugin.tables.arrays import Ints

SOURCE: Final = "memory_timeline"
CATEGORIES: Final = ("parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "autograd_detail", "unknown")
"""In the order of the columns and of the numbers in the raw form."""
THERE_BEFORE: Final = 1
MADE: Final = 2
NEW_VERSION: Final = 3
FREED: Final = 4
SHARE: Final = 16
"""One part in so many of the limit of text."""
LESS: Final = "record fewer steps"
SHORT: Final = 1 << 16
"""Bytes that no row of either form reaches."""
LONGEST: Final = 4 << 20
"""Bytes in which the form of a timeline shows."""
MOST_BYTES: Final = 1 << 48
"""Bytes that no memory has."""
LATEST_NS: Final = 1 << 62
IN_NS: Final = 10**17
"""A time since 1970 from here on is in nanoseconds, below in microseconds."""
SINCE_1970: Final = 10**14
"""A time in microseconds from here on is one since 1970."""
EXPORT: Final = 'write it anew: prof.export_memory_timeline("memory.json", device="cuda:0")'
_FLAGS: Final[dict[str, bool | None]] = {"record_shapes": True, "with_stack": True, "profile_memory": True}
"""What the export asks for."""

T = TypeVar("T")
Four: TypeAlias = tuple[int, int, int, int]
Nine: TypeAlias = tuple[int, int, int, int, int, int, int, int, int]
Decoder: TypeAlias = "msgspec.json.Decoder[list[Four]] | msgspec.json.Decoder[list[Nine]]"
_ROWS_OF_4 = msgspec.json.Decoder(list[Four])
_ROWS_OF_9 = msgspec.json.Decoder(list[Nine])
_NUMBERS = msgspec.json.Decoder(list[int])
_ROW = re.compile(rb"\[\s*\[([^\[\]]*)\]\s*(?:,\s*)?\[\s*(\[)?")


def read(path: str, *, fs_options: dict[str, object] | None = None, progress: Report | None = None) -> Capture:
    """Read one timeline (local path or fsspec URL). BadInput where it is damaged, NotATrace where it is something else."""
    health = Health()
    with Source(path, fs_options, share=SHARE, hint=LESS) as source:
        text = _Text(source, progress)
        raw = text.is_raw()
        rows = 0
        if raw:
            changes = text.rows(_ROWS_OF_4, 4)
            time, category, held, rows = _replayed(changes, health)
            origin, scale = (int(time.min()) if len(time) else 0), 1
        else:
            times, table = text.times(), text.rows(_ROWS_OF_9, 9)
            time, category, held, rows, scale = _of_rows(times, table, health)
            origin = int(time.min()) if len(time) else 0
        if source.truncated or text.cut:
            health.add("truncated file", 1, source.truncated or text.cut)
        name, size = source.name, source.size
    if not rows:
        raise BadInput("this memory timeline holds no rows", hint=EXPORT, file=name)
    epoch = origin // 1000 >= SINCE_1970
    table_ = S.MEMORY_TIMELINE.frame({
        "time_ns": time - origin,
        "device": pd.Categorical.from_codes(np.zeros(len(time), np.int32), categories=pd.Index([""], dtype=object)),
        "category": pd.Categorical.from_codes(category, categories=pd.Index(CATEGORIES, dtype=object)),
        "bytes": held,
    })  # fmt: skip
    last = int(time.max()) - origin if len(time) else 0
    facts = Facts(
        source=SOURCE,
        file=name,
        size=size,
        total_events=rows,
        origin_ns=origin,
        absolute=epoch,
        extent_ns=(0, last),
        flags=dict(_FLAGS),
        metadata={"form": "raw" if raw else "rows", "clock": "ns" if raw or scale == 1 else "us"},
        truncated=bool(text.cut),
        pseudo_step=True,
    )
    return Capture(facts, {S.MEMORY_TIMELINE.name: table_, "issues": health.table()})


class _Text:
    """The text of a timeline, taken from the front. cut: how it ended where it should not, "" where it is whole."""

    def __init__(self, source: Source, progress: Report | None) -> None:
        self._source, self._progress = source, progress
        self._blocks = source.blocks()
        self._buffer = b""
        self._taken = 0
        self.cut = ""
        self._more()
        self._buffer = self._buffer.removeprefix(b"\xef\xbb\xbf").lstrip()

    def _more(self) -> bool:
        block = next(self._blocks, b"")
        self._taken += len(block)
        self._buffer += block
        if self._progress is not None:
            self._progress(Progress(self._source.position, self._source.size, 0, "reading"))
        return bool(block)

    def is_raw(self) -> bool:
        """Whether rows of changes follow, not one list of times and one of rows."""
        while (match := _ROW.match(self._buffer)) is None:
            if len(self._buffer) >= SHORT and b"]" not in self._buffer[:SHORT] and self._buffer.startswith(b"["):
                return False  # a list of many times
            if re.match(rb"\[\s*\[[^\[\]]*\]\s*\]\s*$", self._buffer) is not None:
                return True  # one row alone
            if not self._buffer.startswith(b"[") or len(self._buffer) > LONGEST:
                raise NotATrace("this is no memory timeline", hint=EXPORT, file=self._source.name)
            if not self._more():
                closed = re.match(rb"\[\s*\[[^\[\]]*\]", self._buffer)
                if closed is None and b"[[" not in self._buffer.replace(b" ", b"")[:2]:
                    raise NotATrace("this is no memory timeline", hint=EXPORT, file=self._source.name)
                return closed is not None and closed.group().count(b",") == 3
        return match.group(2) is None and match.group(1).count(b",") == 3

    def times(self) -> Ints:
        """Returns the first inner list; what follows it stays."""
        parts = []
        while b"]" not in self._buffer:
            parts.append(self._buffer)
            self._buffer = b""
            if not self._more():
                self.cut = "ends among the times"
                return np.zeros(0, np.int64)
        end, _, self._buffer = self._buffer.partition(b"]")
        whole = b"".join([*parts, end])[1:]
        self._buffer = self._buffer.lstrip(b" \t\r\n,")
        return self._whole(self._decoded(_NUMBERS.decode, whole.strip() + b"]"))

    def rows(self, decoder: Decoder, width: int) -> Iterator[Ints]:
        """Yields the rows of the list that begins here, as arrays of shape (rows, width); rows behind a cut are left out."""
        self._buffer = self._buffer.lstrip()[1:]
        closed, rows, most = False, 0, limits.most(limits.ROWS, 10)
        while True:
            end = self._buffer.rfind(b"]") + 1
            if end:
                piece, self._buffer = self._buffer[:end].strip(b" \t\r\n,"), self._buffer[end:]
                surplus = piece.count(b"]") - piece.count(b"[")
                closed = closed or surplus > 0
                for _ in range(max(surplus, 0)):
                    piece = piece[:-1].rstrip() if piece.endswith(b"]") else piece
                piece = piece.strip(b" \t\r\n,")
                if piece:
                    found = self._array(decoder, b"[" + piece + b"]", width)
                    rows += len(found)
                    limits.check(limits.ROWS, rows, most, self._source.name, LESS)
                    yield found
            if len(self._buffer) > SHORT:
                raise BadInput("a row of this memory timeline does not end", hint=EXPORT, file=self._source.name)
            if not self._more():
                break
        if not closed:
            self.cut = self.cut or f"ends after {self._taken:,} characters, within a list"

    def _array(self, decoder: Decoder, text: bytes, width: int) -> Ints:
        return self._whole(self._decoded(decoder.decode, text)).reshape(-1, width)

    def _whole(self, values: object) -> Ints:
        try:
            return np.array(values, np.int64)
        except OverflowError:
            raise BadInput("a number in this memory timeline is larger than any memory", hint=EXPORT, file=self._source.name) from None

    def _decoded(self, decode: Callable[[bytes], T], text: bytes) -> T:
        try:
            return decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadInput(f"this memory timeline cannot be read: {error}", hint=EXPORT, file=self._source.name) from None


def _replayed(pieces: Iterator[Ints], health: Health) -> tuple[Ints, npt.NDArray[np.int8], Ints, int]:
    """Returns (time, category, bytes held from then on, changes) out of the changes of the raw form."""
    every = [p for p in pieces if len(p)]
    if not every:
        return _none()
    time, action, size, category = (np.concatenate([p[:, i] for p in every]) for i in range(4))
    known = (action >= THERE_BEFORE) & (action <= FREED)
    health.add("memory change of an unknown kind", int((~known).sum()), effect="skipped")
    wrong = (size < -MOST_BYTES) | (size > MOST_BYTES)
    health.add("impossible memory size", int((known & wrong).sum()), effect="skipped")
    known &= ~wrong
    time, action, size, category = time[known], action[known], size[known], category[known]
    if not len(time):
        return _none()
    wrong = ((action == FREED) & (size > 0)) | ((action <= MADE) & (size < 0))
    health.add("memory change whose sign contradicts its kind", int(wrong.sum()), effect="the kind decides")
    size = np.where(wrong, -size, size)
    category = _categories(category, health)
    later = time >= 0
    time = np.where(later, time, time[later].min() if later.any() else 0)
    order = np.argsort(time, kind="stable")
    t, c, held = _steps(time[order], category[order], size[order])
    health.add("memory below zero", int((held < 0).sum()), effect="shown as 0: more was freed than made")
    return t, c, held.clip(min=0), len(time)


def _steps(time: Ints, category: npt.NDArray[np.int8], change: Ints) -> tuple[Ints, npt.NDArray[np.int8], Ints]:
    """Returns changes in order of time as (time, category, bytes held from then on): one row per category and moment at which it
    changes.
    """
    order = np.lexsort((np.arange(len(time)), category))
    t, c, d = time[order], category[order], change[order]
    total = np.cumsum(d)
    first = np.r_[True, c[1:] != c[:-1]]
    before = (total - d)[first]
    held = total - before[np.cumsum(first) - 1]
    last = np.r_[(t[1:] != t[:-1]) | (c[1:] != c[:-1]), True]
    t, c, held = t[last], c[last], held[last]
    fresh = np.r_[True, (c[1:] != c[:-1]) | (held[1:] != held[:-1])]
    t, c, held = t[fresh], c[fresh], held[fresh]
    back = np.lexsort((c, t))
    return t[back], c[back].astype(np.int8), held[back]


def _of_rows(time: Ints, pieces: Iterator[Ints], health: Health) -> tuple[Ints, npt.NDArray[np.int8], Ints, int, int]:
    """Returns (time in ns, category, bytes held from then on, rows, ns per unit of the file's times) out of `[times, rows]`."""
    every = [p for p in pieces if len(p)]
    if not every or not len(time):
        return (*_none(), 1)
    rows = np.concatenate(every)
    whole = min(len(time), len(rows))
    health.add("times and rows in different numbers", abs(len(time) - len(rows)), effect="those without a partner are left out")
    time, rows = time[:whole], rows[:whole]
    health.add("row whose first column is not 0", int((rows[:, 0] != 0).sum()), effect="that column is not used")
    scale = 1 if float(np.median(time.astype(float))) >= IN_NS else 1000
    sound = np.abs(time.astype(float)) < LATEST_NS // scale
    health.add("time out of range", int((~sound).sum()), effect="its row is skipped")
    time, rows = time[sound], rows[sound]
    if not len(time):
        return (*_none(), 1)
    order = np.argsort(time, kind="stable")
    time, held = time[order], _possible(rows[order, 1:], health)
    fresh = np.empty(held.shape, bool)
    fresh[0] = True
    fresh[1:] = held[1:] != held[:-1]
    where, category = np.nonzero(fresh)
    return time[where] * scale, category.astype(np.int8), held[where, category], whole, scale


def _possible(held: Ints, health: Health) -> Ints:
    """Returns rows of categories in order of time; a number that no memory has is as in the row before, and 0 in the first."""
    wrong = (held < 0) | (held > MOST_BYTES)
    if not wrong.any():
        return held
    health.add("impossible memory size", int(wrong.sum()), effect="as in the row before")
    last = np.maximum.accumulate(np.where(wrong, -1, np.arange(len(held))[:, None]), axis=0)
    return np.where(last >= 0, np.take_along_axis(held, last.clip(0), axis=0), 0)


def _categories(found: Ints, health: Health) -> npt.NDArray[np.int8]:
    inside = (found >= 0) & (found < len(CATEGORIES))
    health.add("memory of an unknown category", int((~inside).sum()), effect="shown as unknown")
    return np.where(inside, found, len(CATEGORIES) - 1).astype(np.int8)


def _none() -> tuple[Ints, npt.NDArray[np.int8], Ints, int]:
    return np.zeros(0, np.int64), np.zeros(0, np.int8), np.zeros(0, np.int64), 0
