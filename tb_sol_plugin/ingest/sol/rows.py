"""Records of memory to the tables MEMORY_RECORDS and MEMORY_PARTS: what cannot be is unknown, and counted."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.ingest.columns import Interner
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.ingest.kineto.decode import FARTHEST
from tb_sol_plugin.ingest.sol.records import CopyRow, Memory, Number, PartRow, amount, shown
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables.arrays import Floats, Ints

LabelRows: TypeAlias = "Callable[[Floats, str, int], Ints]"
"""Rows of labels by their ids, their sort and the number of the line."""

AMOUNTS: Final = ("total", "device_used", "process_used", "allocated", "reserved", "max_allocated", "max_reserved")
CATEGORIES: Final = ("params", "buffers", "grads", "main_grads", "master_weights", "exp_avg", "exp_avg_sq", "other_optimizer")
SINCE: Final = ("process", "reset", "iteration", "phase")
MOST_RECORDS: Final = 200_000
MOST_PARTS: Final = 1_000_000
"""Rows of the two tables; later ones are left out."""
MOST_PHASES: Final = 1000
"""Phases of one record."""
MOST_BYTES: Final = 2**53
HIGHEST_DEVICE: Final = 1 << 16
HOST: Final = -1
_TEXT: Final = 200
_NUMBERS: Final = ("iteration", "time_ns", "device", *AMOUNTS, "phase")


class MemoryRows:
    """Rows of both tables so far."""

    def __init__(self, health: Health) -> None:
        self.health = health
        self._tags, self._sinces, self._categories, self._dtypes = Interner(), Interner(), Interner(), Interner()
        self._tag, self._since = array("i"), array("i")
        self._records = {name: array("q") for name in _NUMBERS}
        self._parts = {name: array("q") for name in ("record", "category", "dtype", "module", "tensors", "bytes", "view_bytes")}

    def add(self, record: Memory, offset: int, labels: LabelRows, number: int) -> None:
        """One record: a row for its device, one for each other device that it found tensors on, one for each phase with a peak."""
        where = f"line {number}"
        time_ns = amount(record.time_ns, -FARTHEST)
        if time_ns != time_ns or abs(time_ns + offset) > FARTHEST:
            self.health.add("memory at no time", 1, where)
            return
        iteration = amount(record.iteration)
        common = {
            "iteration": int(iteration) if iteration < 2**62 else -1,
            "time_ns": int(time_ns) + offset,
            "device": self._device(record.device, number),
        }
        values = {name: self._bytes(getattr(record, name), number) for name in AMOUNTS}
        for most, now in (("max_allocated", "allocated"), ("max_reserved", "reserved")):
            if record.since in (None, "", "process") and -1 < values[most] < values[now]:
                self.health.add("largest use of memory below the present one", 1, where)
                values[most] = -1
        phase = int(labels(_ids([record.phase]), "phase", number)[0])
        tag = (record.tag or "")[:_TEXT]
        since = record.since if record.since in SINCE else "process"
        own = self._put(tag, since, {**common, **values, "phase": phase})
        if own < 0:
            return
        self._add_parts(record.parts or [], tag, since, common, own, labels, number)
        for reason, count in (record.left_out or {}).items():
            found = amount(count)
            self.health.add("tensor that the recorder could not count", int(found) if found < 2**53 else 1, shown(reason))
        self.health.add("memory that the recorder could not read", int(bool(record.problem)), f"{where}: {shown(record.problem or '')}")
        rows = (record.phases or [])[:MOST_PHASES]
        ids = labels(_ids([row[0] for row in rows]), "phase", number) if rows else ()
        for (_, allocated, reserved), label in zip(rows, ids, strict=True):
            peaks = {"max_allocated": self._bytes(allocated, number), "max_reserved": self._bytes(reserved, number)}
            self._put(tag, "phase", {**common, **peaks, "phase": int(label)})

    def _put(self, tag: str, since: str, values: dict[str, int]) -> int:
        """The row of a new record; -1 where there are too many."""
        if len(self._tag) >= MOST_RECORDS:
            self.health.add("records of memory beyond the most that are kept")
            return -1
        self._tag.append(self._tags[tag])
        self._since.append(self._sinces[since])
        for name, column in self._records.items():
            column.append(values.get(name, -1))
        return len(self._tag) - 1

    def _add_parts(
        self, rows: Sequence[PartRow], tag: str, since: str, common: dict[str, int], own: int, labels: LabelRows, number: int
    ) -> None:
        if len(self._parts["record"]) + len(rows) > MOST_PARTS:
            self.health.add("parts of memory beyond the most that are kept", len(rows), f"line {number}")
            return
        modules = labels(_ids([row[2] for row in rows]), "module", number) if rows else ()
        of_device = {common["device"]: own}
        for (category, dtype, _, device, tensors, size, view), module in zip(rows, modules, strict=True):
            sizes = [self._bytes(value, number) for value in (tensors, size, view)]
            if category not in CATEGORIES or -1 in sizes:
                self.health.add("part of memory that cannot be", 1, f"line {number}: {shown(category)}")
                continue
            if sizes[2] > sizes[1]:
                self.health.add("tensors larger than their storages", 1, f"line {number}: {category}")
                sizes[2] = sizes[1]
            at = self._device(device, number) if sizes[0] else common["device"]
            if at not in of_device:
                of_device[at] = self._put(tag, since, {**common, "device": at})
            if of_device[at] < 0:
                continue
            codes = of_device[at], self._categories[category], self._dtypes[dtype[:_TEXT]], int(module)
            for column, value in zip(self._parts.values(), (*codes, *sizes), strict=True):
                column.append(value)

    def _bytes(self, value: Number, number: int) -> int:
        """A number of bytes; -1 unknown."""
        found = amount(value)
        if found < MOST_BYTES:
            return int(found)
        self.health.add("impossible number of bytes of memory", int(value is not None), f"line {number}: {shown(value)}")
        return -1

    def _device(self, value: Number, number: int) -> int:
        found = amount(value, -1.0) if value is not None else -1.0
        if found < HIGHEST_DEVICE:
            return int(found)
        self.health.add("memory of a device that cannot be", 1, f"line {number}: {shown(value)}")
        return HOST

    def tables(self) -> dict[str, pd.DataFrame]:
        """Both tables."""
        numbers = {name: np.array(column, np.int64) for name, column in self._records.items()}
        parts = {name: np.array(column, np.int64) for name, column in self._parts.items()}
        return {
            S.MEMORY_RECORDS.name: S.MEMORY_RECORDS.frame(
                {
                    **numbers,
                    "tag": self._tags.categorical(np.array(self._tag, np.int32)),
                    "since": self._sinces.categorical(np.array(self._since, np.int32)),
                    "phase": numbers["phase"].astype(np.int32),
                }
            ),
            S.MEMORY_PARTS.name: S.MEMORY_PARTS.frame(
                {
                    **parts,
                    "record": parts["record"].astype(np.int32),
                    "module": parts["module"].astype(np.int32),
                    "category": self._categories.categorical(parts["category"].astype(np.int32)),
                    "dtype": self._dtypes.categorical(parts["dtype"].astype(np.int32)),
                }
            ),
        }


def _ids(values: Sequence[int | None]) -> Floats:
    """Ids of labels, -1 for none, NaN for what is larger than any float."""
    return np.array([-1.0 if value is None else amount(value, -math.inf) for value in values], np.float64)


# -- copies ----------------------------------------------------------------------------------------------------------


DIRECTIONS: Final = ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "Memset", "copy kernel", "Unknown")
MOST_ROWS: Final = 500_000
"""Rows kept; of a longer recording the latest."""
MOST_COPIES: Final = 10_000_000
"""Copies of one row; no step has as many alike."""
_WIDTH: Final = 15


class CopyRows:
    """Rows of all iterations so far; `iterations` had their copies counted, also where there were none."""

    def __init__(self, health: Health) -> None:
        self.health = health
        self.iterations = 0
        self.dropped = 0
        self._texts = Interner()
        self._directions = Interner()
        self._pieces: list[Floats] = []
        self._first = self._count = 0

    def add(self, instance: int, rows: Sequence[CopyRow], labels: LabelRows, number: int) -> None:
        """The rows of one iteration."""
        self.iterations += 1
        if not rows:
            return
        out = np.array([self._row(row, instance) for row in rows], np.float64)
        for place, what in ((7, "module"), (8, "phase"), (9, "function")):
            out[:, place] = labels(out[:, place], what, number)
        count, size, without, blocking = (out[:, i] for i in (10, 11, 12, 13))
        good = (count >= 1) & (count <= MOST_COPIES)
        self._note("copies in an impossible number", ~good, number)
        odd = good & ~(size < MOST_BYTES)
        self._note("impossible number of bytes of copies", odd, number)
        unsized = np.minimum(np.where(odd, count, np.nan_to_num(without)), count)
        self._note("more copies without a size than copies", good & (without > count), number)
        wrong = good & (blocking > count)
        self._note("more waiting copies than copies", wrong, number)
        out[:, 11], out[:, 12] = np.where(odd, 0, size), unsized
        out[:, 13] = np.where(wrong | np.isnan(blocking), -1, blocking)
        self._put(out[good])

    def _row(self, row: CopyRow, instance: int) -> list[float]:
        op, direction, src, dst, src_device, dst_device, _, module, phase, function, count, size, without, blocking, call_ns = row
        known = direction if direction in DIRECTIONS else "Unknown"
        self.health.add("copies of a direction this reader does not know", int(known != direction), direction[:80])
        call = amount(call_ns)
        return [
            instance, self._texts[op[:_TEXT]], self._directions[known], self._texts[src[:_TEXT]], self._texts[dst[:_TEXT]],
            _device(src_device), _device(dst_device), module, phase, function, amount(count), amount(size), amount(without),
            amount(blocking), call if call < FARTHEST else np.nan,
        ]  # fmt: skip

    def _note(self, reason: str, where: npt.NDArray[np.bool_], number: int) -> None:
        self.health.add(reason, int(where.sum()), f"line {number}")

    def _put(self, piece: Floats) -> None:
        self._pieces.append(piece)
        self._count += len(piece)
        while self._count > MOST_ROWS and self._first < len(self._pieces) - 1:
            old = len(self._pieces[self._first])
            self._pieces[self._first] = np.zeros((0, _WIDTH))
            self._first += 1
            self._count -= old
            self.dropped += old

    def instances(self) -> Ints:
        """The instance of each row."""
        self._pieces = [np.concatenate(self._pieces) if self._pieces else np.zeros((0, _WIDTH))]
        self._first = 0
        return np.asarray(self._pieces[0][:, 0].astype(np.int64))

    def table(self, keep: npt.NDArray[np.bool_], number: Ints, step: Ints) -> pd.DataFrame:
        """COPIES of the rows to keep. number, step: of each of those rows."""
        rows = self._pieces[0][keep]
        whole = rows[:, :14].astype(np.int64)
        texts = {name: self._texts.categorical(whole[:, i].astype(np.int32)) for name, i in (("name", 1), ("src_kind", 3), ("dst_kind", 4))}
        return S.COPIES.frame(
            {
                "iteration": number,
                "step": step.astype(np.int32),
                **texts,
                "direction": self._directions.categorical(whole[:, 2].astype(np.int32)),
                **{name: whole[:, i] for name, i in (("src_device", 5), ("dst_device", 6), ("count", 10), ("bytes", 11))},
                "without_bytes": whole[:, 12],
                "time_ns": np.full(len(rows), np.nan),
                "call_ns": rows[:, 14],
                "blocking": whole[:, 13],
                **{name: whole[:, i].astype(np.int32) for name, i in (("module", 7), ("phase", 8), ("function", 9))},
            }
        )


def _device(value: float | None) -> float:
    found = amount(value)
    return float(int(found)) if found < HIGHEST_DEVICE else -1.0
