"""Numbers the events of all tables of a recording in one row of ids, with their times, their names and what kind of work they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.time.breakdown import classes
from tb_sol_plugin.metrics.time.kernel_names import KEPT, kinds_of, plain_name
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Rows

Ids = npt.NDArray[np.uint32]

TABLES: Final = ("host", "device", "annotations_device", "sync", "instants")
"""Ids begin with the rows of the first table, go on with those of the second, and so on."""

COMPUTE, COMMUNICATION, MEMCPY, MEMSET = range(4)
OPERATOR, ANNOTATION, CALL, FRAME, MODULE, OTHER = range(4, 10)
SYNC, INSTANT = 10, 11

CATEGORIES: Final = (
    ("compute", "Compute", "compute"),
    ("communication", "Communication", "communication"),
    ("memcpy", "Copies", "memcpy"),
    ("memset", "Memset", "memset"),
    ("operator", "Operators", "host"),
    ("annotation", "Annotations", "accent"),
    ("call", "Runtime and driver calls", "host"),
    ("frame", "Python functions", "line-strong"),
    ("module", "Modules", "accent"),
    ("other", "Other host events", "other"),
    ("sync", "Synchronization", "idle"),
    ("instant", "Instants", "warn"),
)
"""Name, label, member of the palette."""
KERNELS: Final = (
    ("gemm", "GEMM", "gemm"),
    ("attention", "Attention", "attention"),
    ("conv", "Convolution", "conv"),
    ("norm", "Norm and softmax", "norm"),
    ("elementwise", "Elementwise", "elementwise"),
    ("other_kernel", "Other kernels", "other"),
)
"""What computation is drawn as, by the kind of kernel: name, label, member of the palette, which is the kind's own name."""
SHOWN: Final = CATEGORIES + KERNELS
MOST_READ: Final = 2_000_000
"""Characters of kernels' names in all that are read for their kinds and short forms."""
HOST_CATEGORY: Final = np.array([OPERATOR, ANNOTATION, CALL, FRAME, MODULE, OTHER], np.uint8)
"""By kind of a host row."""
OF_TABLE: Final = {"annotations_device": ANNOTATION, "sync": SYNC, "instants": INSTANT}
"""Of tables whose rows are of one category."""


@dataclass(frozen=True)
class Names:
    """Distinct pairs of name and category. text: names; category: index into CATEGORIES per name."""

    text: list[str]
    category: npt.NDArray[np.uint8]

    @cached_property
    def shown(self) -> npt.NDArray[np.uint8]:
        """What each is drawn as, index into SHOWN: its category, and of computation the kind of kernel, as the page of kernels judges it.

        Of more or longer names than are read at once, computation remains what it is.
        """
        mine = np.flatnonzero(self.category == COMPUTE)
        if not len(mine) or len(mine) > KEPT or sum(len(self.text[i]) for i in mine.tolist()) > MOST_READ:
            return self.category
        places = {kind: len(CATEGORIES) + i for i, (_, _, kind) in enumerate(KERNELS)}
        out = self.category.copy()
        out[mine] = [places.get(kind, places["other"]) for kind in kinds_of([plain_name(self.text[i]) for i in mine.tolist()])]
        return out


class Events:
    """The events of one recording by id."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.counts = [capture.rows(name) for name in TABLES]
        self.bases = np.concatenate(([0], np.cumsum(self.counts))).astype(np.int64)
        self.known: Callable[[], list[Ints] | None] = lambda: None
        """Returns `used` as it was kept, None without that: then all events are gone through."""

    def __len__(self) -> int:
        return int(self.bases[-1])

    def base(self, table: str) -> int:
        """Returns the id of the first row of a table."""
        return int(self.bases[TABLES.index(table)])

    def place(self, event: int) -> tuple[str, int]:
        """Returns table and row of an event. IndexError for an id that there is not."""
        if not 0 <= event < len(self):
            raise IndexError(event)
        table = int(np.searchsorted(self.bases, event, "right")) - 1
        return TABLES[table], event - int(self.bases[table])

    @cached_property
    def _times(self) -> list[tuple[Ints, Ints]]:
        out = []
        for name, rows in zip(TABLES, self.counts, strict=True):
            start = self.capture.numbers(name, "time_ns" if name == "instants" else "start_ns")
            out.append((start, np.zeros(rows, np.int64) if name == "instants" else self.capture.numbers(name, "duration_ns")))
        return out

    @cached_property
    def _codes(self) -> list[Rows]:
        return [self.capture.numbers(name, "name") for name in TABLES]

    def times(self, ids: Ids) -> tuple[Ints, Ints]:
        """Returns start and duration of events, ns."""
        if not len(ids):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        low, high = (int(np.searchsorted(self.bases, int(i), "right")) - 1 for i in (ids.min(), ids.max()))
        if low == high:  # the common case: a lane is of one table
            rows = ids - np.uint32(self.bases[low])
            start, duration = self._times[low]
            return start[rows], duration[rows]
        if 2 * len(ids) > int(self.bases[high + 1] - self.bases[low]):  # most of these tables: one column of them is made and read once
            rows = ids - np.uint32(self.bases[low])
            both = (np.concatenate(columns)[rows] for columns in zip(*self._times[low : high + 1], strict=True))
            return next(both), next(both)
        start, duration = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
        for table in range(low, high + 1):
            here = (ids >= self.bases[table]) & (ids < self.bases[table + 1])
            rows = ids[here] - np.uint32(self.bases[table])
            start[here], duration[here] = self._times[table][0][rows], self._times[table][1][rows]
        return start, duration

    def extent(self, ids: Ids) -> tuple[int, int]:
        """Returns the first start and the last end of events, at least one, none of them twice."""
        low, high = int(ids.min()), int(ids.max())
        table = int(np.searchsorted(self.bases, low, "right")) - 1
        if len(ids) == high - low + 1 and high < self.bases[table + 1]:  # all between two rows of a table: nothing is gathered
            rows = slice(low - int(self.bases[table]), high + 1 - int(self.bases[table]))
            start, duration = (column[rows] for column in self._times[table])
        else:
            start, duration = self.times(ids)
        return int(start.min()), int((start + duration).max())

    # -- names ---------------------------------------------------------------------------------------------------------

    @cached_property
    def used(self) -> list[Ints]:
        """Returns per table which pairs of name code and category its events have, as places in a matrix of both."""
        kept = self.known()
        return kept if kept is not None else [self._used(table) for table in range(len(TABLES))]

    def _used(self, table: int) -> Ints:
        column = arrays.coded(self.capture.tables[TABLES[table]]["name"])
        if not len(column.codes):
            return np.zeros(0, np.int64)
        rows = int(column.codes.max()) + 2  # tables share dictionaries: one of few names may use the first of a million
        kind, of_kind = self._kinds(table)
        key = column.codes.astype(np.int64) % rows * len(of_kind) + (kind if len(of_kind) > 1 else 0)
        word, kinds = np.divmod(np.flatnonzero(np.bincount(key, minlength=rows * len(of_kind))), len(of_kind))
        word[word == rows - 1] = len(column.categories)
        return np.unique(word * len(CATEGORIES) + of_kind[kinds])

    @cached_property
    def _coded(self) -> tuple[Names, list[npt.NDArray[np.int32]]]:
        """Returns the names, and per table the id by name code and kind, up to the last name in use; the last row of each stands for no
        name.
        """
        columns = [arrays.coded(self.capture.column(table, "name")) for table in TABLES]
        word, category = (np.concatenate(parts) for parts in zip(*(np.divmod(u, len(CATEGORIES)) for u in self.used), strict=True))
        ends = np.cumsum([len(u) for u in self.used])
        texts = np.concatenate([_spelled(c, w) for c, w in zip(columns, np.split(word, ends[:-1]), strict=True)])
        place, first = arrays.numbered(pd.factorize(texts)[0] * len(CATEGORIES) + category)
        lookups = []
        for table, column, used, own in zip(TABLES, columns, self.used, np.split(place, ends[:-1]), strict=True):
            code, kinds = np.divmod(used, len(CATEGORIES))
            last = int(code[code < len(column.categories)].max(initial=-1)) + 1
            lookup = np.full((last + 1, len(CATEGORIES)), -1, np.int32)
            lookup[np.minimum(code, last), kinds] = own
            lookups.append(np.ascontiguousarray(lookup[:, _category_of(table)]))
        return Names(texts[first].tolist(), category[first].astype(np.uint8)), lookups

    def _kinds(self, table: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
        """Returns the kind of each row of a table, as one value where it is the same for all, and the category of each kind.

        Of host events these are the kinds of the table itself: nothing is copied of them.
        """
        name, capture = TABLES[table], self.capture
        if name in OF_TABLE:
            return np.zeros(1, np.uint8), _category_of(name)
        if name == "host":
            return self._host_kind, _category_of(name)

        def made() -> npt.NDArray[np.uint8]:  # computation, communication, memcpy: as CATEGORIES begins
            return np.where(capture.numbers(name, "kind") == S.MEMSET, MEMSET, classes(capture)).astype(np.uint8)

        return memo(capture, ("timeline.category", table), made), _category_of(name)

    @cached_property
    def _host_kind(self) -> npt.NDArray[np.uint8]:
        return self.capture.numbers("host", "kind").view(np.uint8)

    @property
    def names(self) -> Names:
        return self._coded[0]

    def name_ids(self, ids: Ids) -> Rows:
        """Returns the place in `names` per event."""
        out = np.zeros(len(ids), np.int32)
        if not len(ids):
            return out
        low, high = (int(np.searchsorted(self.bases, int(i), "right")) - 1 for i in (ids.min(), ids.max()))
        for table in range(low, high + 1):
            here: slice | npt.NDArray[np.bool_] = slice(None)
            if low != high:
                here = (ids >= self.bases[table]) & (ids < self.bases[table + 1])
            out[here] = self._name_ids(table, ids[here] - np.uint32(self.bases[table]))
        return out

    def _name_ids(self, table: int, rows: npt.NDArray[np.integer]) -> Rows:
        lookup = self._coded[1][table]
        kind, of_kind = self._kinds(table)
        place = np.multiply(self._codes[table].take(rows), len(of_kind), dtype=np.intp)
        if len(of_kind) > 1:
            place += kind.take(rows)
        found: Rows = lookup.take(place, mode="wrap")  # from the end where there is no name
        return found

    def columns(self, table: str) -> tuple[Ints, Ints]:
        """Returns start and duration of the rows of a table, ns."""
        return self._times[TABLES.index(table)]

    def coded(self, table: str) -> tuple[Rows, npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
        """Returns of a table the name code (-1 none) and kind per row, the latter as one value where it is the same for all, and the
        place in `names` by both; its last row stands for no name, and -1 for a pair that no event has.
        """
        number = TABLES.index(table)
        return self._codes[number], self._kinds(number)[0], self._coded[1][number]


def _spelled(column: arrays.Coded, word: Ints) -> arrays.Objects:
    """Returns the texts of some codes, "" for one beyond them all."""
    out = np.full(len(word), "", object)
    known = word < len(column.categories)
    out[known] = arrays.spelled(column.categories, word[known])
    return out


def _category_of(table: str) -> npt.NDArray[np.uint8]:
    """Returns the category of each kind of row that a table has."""
    if table in OF_TABLE:
        return np.array([OF_TABLE[table]], np.uint8)
    return HOST_CATEGORY if table == "host" else np.arange(len(CATEGORIES), dtype=np.uint8)


def events_of(capture: Capture) -> Events:
    """Returns the events of a recording, numbered once."""
    return memo(capture, ("timeline.events",), lambda: Events(capture))


def column_text(frame: pd.DataFrame, column: str, row: int) -> str:
    """Returns the text of one cell of a dictionary-encoded column, "" for none."""
    coded = arrays.coded(frame[column])
    code = int(coded.codes[row])
    return str(coded.categories[code]) if code >= 0 else ""
