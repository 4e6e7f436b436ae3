"""Collects records in columns: labels, signatures, iterations, ledger rows, times, memory and copies; ids become rows."""

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
from tb_sol_plugin.ingest.sol import records as R
from tb_sol_plugin.ingest.sol.records import Number, amount, shown, text_of
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables.arrays import Floats, Ints

# -- records of memory: what cannot be is unknown, and counted -------------------------------------------------------


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

    def add(self, record: R.Memory, offset: int, labels: LabelRows, number: int) -> None:
        """Adds one record: a row for its device, one for each other device that it found tensors on, one for each phase with a peak."""
        where = f"line {number}"
        time_ns = amount(record.time_ns, -FARTHEST)
        if time_ns != time_ns or abs(time_ns + offset) > FARTHEST:
            self.health.add("memory record without a time", 1, where)
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
                self.health.add("peak memory below current memory", 1, where)
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
        """Returns the row of a new record; -1 where there are too many."""
        if len(self._tag) >= MOST_RECORDS:
            self.health.add("memory records beyond the limit")
            return -1
        self._tag.append(self._tags[tag])
        self._since.append(self._sinces[since])
        for name, column in self._records.items():
            column.append(values.get(name, -1))
        return len(self._tag) - 1

    def _add_parts(
        self, rows: Sequence[R.PartRow], tag: str, since: str, common: dict[str, int], own: int, labels: LabelRows, number: int
    ) -> None:
        if len(self._parts["record"]) + len(rows) > MOST_PARTS:
            self.health.add("memory breakdown rows beyond the limit", len(rows), f"line {number}")
            return
        modules = labels(_ids([row[2] for row in rows]), "module", number) if rows else ()
        of_device = {common["device"]: own}
        for (category, dtype, _, device, tensors, size, view), module in zip(rows, modules, strict=True):
            sizes = [self._bytes(value, number) for value in (tensors, size, view)]
            if category not in CATEGORIES or -1 in sizes:
                self.health.add("impossible memory breakdown", 1, f"line {number}: {shown(category)}")
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
        """Returns a number of bytes; -1 unknown."""
        found = amount(value)
        if found < MOST_BYTES:
            return int(found)
        self.health.add("impossible number of bytes of memory", int(value is not None), f"line {number}: {shown(value)}")
        return -1

    def _device(self, value: Number, number: int) -> int:
        found = amount(value, -1.0) if value is not None else -1.0
        if found < HIGHEST_DEVICE:
            return int(found)
        self.health.add("memory of an impossible device index", 1, f"line {number}: {shown(value)}")
        return HOST

    def tables(self) -> dict[str, pd.DataFrame]:
        """Returns both tables."""
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
    """Returns ids of labels, -1 for none, NaN for what is larger than any float."""
    return np.array([-1.0 if value is None else amount(value, -math.inf) for value in values], np.float64)


# -- copies ----------------------------------------------------------------------------------------------------------


DIRECTIONS: Final = ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "Memset", "copy kernel", "Unknown")
MOST_COPY_ROWS: Final = 500_000
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

    def add(self, instance: int, rows: Sequence[R.CopyRow], labels: LabelRows, number: int) -> None:
        """Adds the rows of one iteration."""
        self.iterations += 1
        if not rows:
            return
        out = np.array([self._row(row, instance) for row in rows], np.float64)
        for place, what in ((7, "module"), (8, "phase"), (9, "function")):
            out[:, place] = labels(out[:, place], what, number)
        count, size, without, blocking = (out[:, i] for i in (10, 11, 12, 13))
        good = (count >= 1) & (count <= MOST_COPIES)
        self._note("impossible number of copies", ~good, number)
        odd = good & ~(size < MOST_BYTES)
        self._note("impossible number of bytes of copies", odd, number)
        unsized = np.minimum(np.where(odd, count, np.nan_to_num(without)), count)
        self._note("more copies without a size than copies", good & (without > count), number)
        wrong = good & (blocking > count)
        self._note("more waiting copies than copies", wrong, number)
        out[:, 11], out[:, 12] = np.where(odd, 0, size), unsized
        out[:, 13] = np.where(wrong | np.isnan(blocking), -1, blocking)
        self._put(out[good])

    def _row(self, row: R.CopyRow, instance: int) -> list[float]:
        op, direction, src, dst, src_device, dst_device, _, module, phase, function, count, size, without, blocking, call_ns = row
        known = direction if direction in DIRECTIONS else "Unknown"
        self.health.add("copies of an unknown direction", int(known != direction), direction[:80])
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
        while self._count > MOST_COPY_ROWS and self._first < len(self._pieces) - 1:
            old = len(self._pieces[self._first])
            self._pieces[self._first] = np.zeros((0, _WIDTH))
            self._first += 1
            self._count -= old
            self.dropped += old

    def instances(self) -> Ints:
        """Returns the instance of each row."""
        self._pieces = [np.concatenate(self._pieces) if self._pieces else np.zeros((0, _WIDTH))]
        self._first = 0
        return np.asarray(self._pieces[0][:, 0].astype(np.int64))

    def table(self, keep: npt.NDArray[np.bool_], number: Ints, step: Ints) -> pd.DataFrame:
        """Returns the table COPIES of the rows to keep. number, step: of each of those rows."""
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


HIGHEST_ID: Final = 1 << 24
HIGHEST_AMOUNT: Final = 1e24
"""FLOP or bytes that no call has."""
MOST_CALLS: Final = 10_000_000
"""Calls of one row; no step has as many alike."""
MOST_LEDGER_ROWS: Final = 2_000_000
MOST_PHASE_TIMES: Final = 4_000_000
MOST_MODULE_TIMES: Final = 1_000_000
"""Rows kept of ledgers, of phase times and of module times; of a longer recording the latest."""
MOST_REASONS: Final = 50
WHATS: Final = ("module", "phase", "function")
_LARGEST: Final = 2**62


class Ids:
    """Ids of one file to rows; -1 for none and for what is not defined."""

    def __init__(self) -> None:
        self._rows = np.full(1024, -1, np.int32)

    def put(self, number: int, row: int) -> int:
        """Bind an id; returns the row it had, -1. ValueError for an id that is out of range."""
        if not 0 <= number < HIGHEST_ID:
            raise ValueError(number)
        if number >= len(self._rows):
            more = np.full(max(number + 1 - len(self._rows), len(self._rows)), -1, np.int32)
            self._rows = np.concatenate([self._rows, more])
        before, self._rows[number] = int(self._rows[number]), row
        return before

    def row(self, number: int) -> int:
        """Returns the row of one id."""
        return int(self._rows[number]) if 0 <= number < len(self._rows) else -1

    def rows(self, ids: Floats) -> Ints:
        """Returns row per id."""
        good = (ids >= 0) & (ids < len(self._rows))
        return np.where(good, self._rows[np.where(good, ids, 0).astype(np.int64)], -1).astype(np.int64)


class Collected:
    """What has been read so far. A file, or part of one, begins with `begin`: ids are its own."""

    def __init__(self) -> None:
        self.health = Health()
        self.labels = Labels(self.health)
        self.sigs = Signatures(self.health)
        self.iterations = Iterations(self.health)
        self.ledger = Rows(9, MOST_LEDGER_ROWS)
        self.copies = CopyRows(self.health)
        self.memory = MemoryRows(self.health)
        self.profile: tuple[R.Profile, int] | None = None
        self.phase_times = Rows(6, MOST_PHASE_TIMES)
        self.module_times = Rows(6, MOST_MODULE_TIMES)
        self.offset = 0

    def begin(self, offset: int) -> None:
        """Begins at a header: what follows has its own ids. offset: ns to add to its times."""
        self.labels.ids, self.sigs.ids, self.offset = Ids(), Ids(), offset
        self.iterations.forget()

    def add_ledger(self, iteration: int, rows: list[R.LedgerRow], number: int) -> None:
        """Adds rows of a ledger, as (instance, sig, module, phase, forward phase, function, flags, count, time)."""
        instance = self.iterations.instance(iteration, "ledger")
        if not rows:
            return
        table = _matrix([tuple(row) for row in rows])
        sig = self.sigs.ids.rows(table[:, 0])
        self.health.add("work of a signature that is not defined", int((sig < 0).sum()), f"line {number}")
        out = np.empty((len(table), 9))
        out[:, 0], out[:, 1] = instance, sig
        for place, what in ((1, "module"), (2, "phase"), (3, "phase"), (4, "function")):
            out[:, place + 1] = self._labels(table[:, place], what, number)
        out[:, 6] = np.where((table[:, 5] >= 0) & (table[:, 5] < 2**31), table[:, 5], 0)
        out[:, 7] = table[:, 6]
        time_ns = table[:, 7]
        wrong = (time_ns < 0) | (time_ns > FARTHEST)
        self.health.add("negative time", int((time_ns < 0).sum()), f"line {number}")
        out[:, 8] = np.where(wrong, np.nan, time_ns)
        good = (out[:, 7] >= 1) & (out[:, 7] <= MOST_CALLS)
        self.health.add("work with an impossible number of calls", int((~good).sum()), f"line {number}")
        self.ledger.add(out[good])

    def add_copies(self, iteration: int, rows: list[R.CopyRow], number: int) -> None:
        """Adds rows of counted copies; none at all says that there were none."""
        self.copies.add(self.iterations.instance(iteration, "copies"), rows, self._labels, number)

    def add_memory(self, record: R.Memory, number: int) -> None:
        """Adds a record of memory."""
        self.memory.add(record, self.offset, self._labels, number)

    def add_profile(self, record: R.Profile, number: int) -> None:
        """Sums since the process began: they stand for all before."""
        self.profile = record, number

    def add_times(self, iteration: int, rows: list[R.TimeRow], what: str, number: int) -> None:
        """Adds rows of times, as (instance, label, start, duration, device, count)."""
        instance = self.iterations.instance(iteration, what)
        if not rows:
            return
        table = _matrix([tuple(row) for row in rows])
        out = np.empty((len(table), 6))
        out[:, 0] = instance
        out[:, 1] = self._labels(table[:, 0], what, number)
        out[:, 2] = table[:, 1] + self.offset
        self.health.add("negative duration", int((table[:, 2] < 0).sum()), f"line {number}")
        out[:, 3] = np.maximum(table[:, 2], 0)
        out[:, 4] = np.where((table[:, 3] >= 0) & (table[:, 3] < FARTHEST), table[:, 3], np.nan)
        out[:, 5] = np.where((table[:, 4] >= 1) & (table[:, 4] < 2**53), table[:, 4], 1)
        placed = (np.abs(out[:, 2]) < FARTHEST) & (out[:, 3] < FARTHEST)
        self.health.add("time out of range", int((~placed).sum()), f"line {number}")
        named = out[:, 1] >= 0
        self.health.add("range without a label", int((placed & ~named).sum()), f"line {number}")
        (self.phase_times if what == "phase" else self.module_times).add(out[placed & named])

    def _labels(self, ids: Floats, what: str, number: int) -> Ints:
        rows = self.labels.ids.rows(ids)
        if (rows >= 0).any():
            rows = np.where(self.labels.is_a(rows, what), rows, -1)
        lost = (ids != -1) & (rows < 0)
        if lost.any():
            first = shown(ids[int(np.argmax(lost))])
            self.health.add(f"{what} that is not defined", int(lost.sum()), f"line {number}: id {first}")
        return rows


def _matrix(rows: list[tuple[object, ...]]) -> Floats:
    """Returns float64 per cell, NaN for null and for what is larger than any float."""
    try:
        return np.array(rows, np.float64)
    except OverflowError:
        return np.array([[amount(v, -np.inf) for v in row] for row in rows], np.float64)  # type: ignore[arg-type]


class Rows:
    """Pieces of a table of floats, one per record; the first column is their instance.

    Where there are too many rows the oldest pieces go: `dropped` counts their rows, `gone` lists their instances.
    """

    def __init__(self, width: int, most: int) -> None:
        self.width, self.most = width, most
        self._pieces: list[Floats] = []
        self._first = 0
        self.count = self.dropped = 0
        self.gone = array("q")

    def add(self, piece: Floats) -> None:
        """Append rows. Whole numbers up to 2**53 are exact."""
        self._pieces.append(piece)
        self.count += len(piece)
        while self.count > self.most and self._first < len(self._pieces) - 1:
            old = self._pieces[self._first]
            self._pieces[self._first] = np.zeros((0, self.width))
            self._first += 1
            self.count -= len(old)
            self.dropped += len(old)
            if len(old):
                self.gone.append(int(old[0, 0]))

    def take(self) -> Floats:
        """Returns all rows that are kept."""
        out = np.concatenate(self._pieces) if self._pieces else np.zeros((0, self.width))
        self._pieces = []
        return out


class Labels:
    """Labels by row, over all parts: those of one content are one row. `parent` holds rows, each lower than its own."""

    def __init__(self, health: Health) -> None:
        self.health = health
        self.ids = Ids()
        self.what, self.parent = array("b"), array("i")
        self.names, self.classes = Interner(), Interner()
        self.name, self.class_name = array("i"), array("i")
        self._known: dict[tuple[int, int, int, int], int] = {}
        self._views = np.zeros(0, np.int8)

    def add(self, label: R.Label, number: int) -> None:
        """Define a label."""
        if label.what not in WHATS:
            self.health.add("label of an unknown type", 1, f"line {number}: {shown(label.what)}")
            return
        parent = -1 if label.parent is None else label.parent
        above = self.ids.row(parent)
        if parent != -1 and above < 0:
            self.health.add("label whose parent is not defined before it", 1, f"line {number}: id {shown(label.id)}")
        names, classes = self.names[label.name or ""], self.classes[label.class_name or ""]
        key = (WHATS.index(label.what), above, names, classes)
        row = self._known.setdefault(key, len(self.what))
        if row == len(self.what):
            self.what.append(key[0])
            self.parent.append(above)
            self.name.append(names)
            self.class_name.append(classes)
        _define(self.ids, label.id, row, self.health, number)

    def is_a(self, rows: Ints, what: str) -> npt.NDArray[np.bool_]:
        """Returns which rows are labels of that sort."""
        if len(self._views) != len(self.what):
            self._views = np.array(self.what, np.int8)
        good: npt.NDArray[np.bool_] = (rows >= 0) & (self._views[np.maximum(rows, 0)] == WHATS.index(what))
        return good


def _define(ids: Ids, number: int, row: int, health: Health, line: int) -> None:
    try:
        before = ids.put(number, row)
    except ValueError:
        health.add("id out of range", 1, f"line {line}: {shown(number)}")
        return
    if before not in (-1, row):
        health.add("id defined twice", 1, f"line {line}: {number}")


class Signatures:
    """Signatures by row, over all parts."""

    TEXTS: Final = ("op", "shapes", "types", "strides", "concrete", "out_shapes", "dtype", "kind", "direction", "reason")
    AMOUNTS: Final = ("flop", "flop_vector", "bytes")

    def __init__(self, health: Health) -> None:
        self.health = health
        self.ids = Ids()
        self.interners = {name: Interner() for name in self.TEXTS}
        self.codes = {name: array("i") for name in self.TEXTS}
        self.amounts = {name: array("d") for name in self.AMOUNTS}
        self.estimated = array("b")
        self._known: dict[tuple[object, ...], int] = {}

    def add(self, sig: R.Sig, number: int) -> None:
        """Define a signature."""
        codes = tuple(self.interners[name][text_of(getattr(sig, name))] for name in self.TEXTS)
        amounts = []
        for name in self.AMOUNTS:
            given = getattr(sig, name)
            value = amount(given)
            value = value if value < HIGHEST_AMOUNT else np.nan
            if given is not None and value != value:
                self.health.add("impossible amount of work", 1, f"line {number}: {name} {shown(given)}")
            amounts.append(value)
        key = (*codes, *(None if a != a else a for a in amounts), bool(sig.estimated))
        row = self._known.setdefault(key, len(self.estimated))
        if row == len(self.estimated):
            for name, code in zip(self.TEXTS, codes, strict=True):
                self.codes[name].append(code)
            for name, value in zip(self.AMOUNTS, amounts, strict=True):
                self.amounts[name].append(value)
            self.estimated.append(bool(sig.estimated))
        _define(self.ids, sig.id, row, self.health, number)


class Iterations:
    """Iterations in the order of the file. An instance is the records of one iteration; a number may come again."""

    WHOLE: Final = ("number", "start_ns", "duration_ns", "batch", "tokens", "overhead_ns", "before_ns", "ops", "unknown", "evaluation_ns")
    FLOATS: Final = ("device_ns", "flop", "flop_vector", "bytes", "sol_ns")

    def __init__(self, health: Health) -> None:
        self.health = health
        self.whole = {name: array("q") for name in self.WHOLE}
        self.floats = {name: array("d") for name in self.FLOATS}
        self.sampled, self.reported, self.worked, self.compiled = array("b"), array("b"), array("b"), array("b")
        self.signatures = Interner()
        self.signature = array("i")
        self.lost: dict[str, int] = {}
        self._open: dict[int, tuple[int, set[str]]] = {}

    def forget(self) -> None:
        """Forgets the instances of iterations where another file begins: its records belong to no earlier instance."""
        self._open = {}

    def instance(self, iteration: int, record: str) -> int:
        """Returns the instance that a record of an iteration belongs to; a new one where it has such a record already."""
        found = self._open.get(iteration)
        if found is None or record in found[1]:
            found = (len(self.reported), set())
            if len(self._open) > 1000:
                self._open.clear()
            self._open[iteration] = found
            for whole in self.WHOLE:
                self.whole[whole].append(-1)
            for name in self.FLOATS:
                self.floats[name].append(np.nan)
            self.whole["number"][-1] = iteration if 0 <= iteration < _LARGEST else -1
            for flags in (self.sampled, self.reported, self.worked, self.compiled):
                flags.append(0)
            self.signature.append(self.signatures[""])
        found[1].add(record)
        if record == "ledger":
            self.worked[found[0]] = 1
        return found[0]

    def add(self, step: R.Step, offset: int, number: int) -> None:
        """Adds the step record of an iteration."""
        start, length = amount(step.start_ns, -FARTHEST), amount(step.duration_ns, -FARTHEST)
        if not 0 <= step.iteration < _LARGEST:
            self.health.add("iteration without a number", 1, f"line {number}: {shown(step.iteration)}")
            return
        if start != start or length != length or abs(start + offset) > FARTHEST or length > FARTHEST:
            self.health.add("iteration without its time", 1, f"line {number}: iteration {step.iteration}")
            return
        self.health.add("negative duration", int(length < 0), f"line {number}")
        at = self.instance(step.iteration, "step")
        self.reported[at], self.sampled[at], self.compiled[at] = 1, bool(step.sampled), bool(step.compiled)
        self.signature[at] = self.signatures[text_of(step.signature)[:200]]
        values = {"start_ns": int(start) + offset, "duration_ns": max(int(length), 0), "overhead_ns": _whole(step.overhead_ns, 0)}
        values |= {"before_ns": _whole(step.before_ns, 0), "evaluation_ns": max(_whole(step.evaluation_ns, 0), 0)}
        values |= {"batch": _whole(step.batch), "tokens": _whole(step.tokens)}
        totals = step.totals
        if totals is not None:
            values |= {"ops": _whole(totals.ops), "unknown": _whole(totals.unknown)}
            for name in ("flop", "flop_vector", "bytes", "sol_ns"):
                self.floats[name][at] = amount(getattr(totals, name))
        for name, value in values.items():
            self.whole[name][at] = value
        self.floats["device_ns"][at] = amount(step.device_ns)
        for reason, count in (step.lost or {}).items():
            known = reason if reason in self.lost or len(self.lost) < MOST_REASONS else "other reasons"
            self.lost[known] = self.lost.get(known, 0) + _whole(count, 0)


def _whole(value: float | None, none: int = -1) -> int:
    number = amount(value)
    return int(number) if number < _LARGEST else none
