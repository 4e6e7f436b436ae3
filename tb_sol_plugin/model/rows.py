"""Chooses, orders, counts and sums the rows of one table, and cuts them into pages: the rules of the page's own tables, over columns.

Rows are named by their place in the table of the report, whatever order they are shown in.

    rows = TableRows(section)
    rows.page(Choice(find="gemm", sort=Sort("total_ns")), offset=200, limit=100)
"""

from __future__ import annotations

import math
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.model.columns import Distinct, Indices, Mask, Numbers, Spelled, Values, as_distinct, columned, text_of
from tb_sol_plugin.model.report import Column, Link, Mark, Scalar, Sort, TablePage, TablePages, TableSection
from tb_sol_plugin.model.row_links import RowLinks
from tb_sol_plugin.model.tree_rows import Tree
from tb_sol_plugin.tables.arrays import stable_order

V = TypeVar("V")

TEXTUAL: Final = frozenset({"text", "code", "symbol", "tree", "shapes", "badge"})
"""Ways to show a column that make it a text: it is searched, and ordered as people count (2 before 10)."""
ADDED_UP: Final = frozenset({"number", "bar", "stack", "share"})
SPACE: Final = "\t\n\x0b\x0c\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
"""White space as the page's language has it, for a class of a regular expression."""
_WORDS: Final = re.compile(f"[^{SPACE}]+")
KEPT: Final = 8
"""Orders, and filters, of a table that are remembered."""
SAMPLE: Final = 64
SPELLED: Final = 200
"""Rows whose texts are spelled to know how wide all are, where nearly each has its own."""
LOOKED_AT: Final = 1_000
"""Values of a column that are looked at to know how wide all are; of numbers the smallest and the largest, too."""
MOST_VALUES: Final = 200
"""Distinct values of a column that a reader is offered to filter by."""


class Bounds(Struct, frozen=True):
    """Numbers that pass: above `above` and below `below`, None for no bound; an unknown number never passes."""

    above: float | None = None
    below: float | None = None


class Choice(Struct, frozen=True):
    """Which rows, in which order. keep: texts of values by column; none for a column: all. picked: row keys; None: all.

    base, toggled: of a tree without filters, what is open: `d` its heaviest branches, `a` all, `n` none; rows of these ids the other way.
    """

    sort: Sort | None = None
    find: str = ""
    keep: tuple[tuple[str, tuple[str, ...]], ...] = ()
    ranges: tuple[tuple[str, Bounds], ...] = ()
    picked: frozenset[str] | None = None
    base: str = "d"
    toggled: frozenset[str] = frozenset()

    @property
    def words(self) -> tuple[str, ...]:
        """The words of `find`, in lower case; a row has to hold each of them in some textual column."""
        return tuple(dict.fromkeys(_WORDS.findall(self.find.lower())))

    @property
    def filters(self) -> bool:
        """Whether rows are left out at all."""
        return bool(self.words or any(v for _, v in self.keep) or self.ranges or self.picked is not None)


class _Recent(Generic[V]):
    """Keeps the values that were used last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, V] = OrderedDict()

    def get(self, name: Hashable, make: Callable[[], V]) -> V:
        """Returns the value of a name, made where it is not there; two threads may make it at once."""
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name]
        made = make()
        with self._lock:
            self._kept[name] = made
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return made


# -- One table --------------------------------------------------------------------------------------------------------


class TableRows:
    """The rows of one table. Orders and filters that were used last are remembered; several threads may ask.

    points: keys of its rows in figures; an answer says which of them pass. Of a tree that shows filters whole, with what is above the rows
    that pass; no sums are made of it, since a row holds those below.
    """

    def __init__(self, section: TableSection, points: Mapping[str, Collection[str]] | None = None, version: str = "") -> None:
        self.id, self.key, self.version = section.id, section.key, version
        self.columns = {c.name: c for c in section.columns}
        self.size = max((len(v) for v in section.data.values()), default=0)
        self.values = {c.name: columned(section.data[c.name] if section.data.get(c.name) else [None] * self.size) for c in section.columns}
        self.of = self.size + section.truncated
        self.default = section.sort
        self.points = points or {}
        self._marks, self._cell_links, self._row_links = section.marks, section.cell_links, section.row_links
        self._outside = self._rows_with(section.last)
        self._unscaled = self._rows_with(section.apart)
        self.tree = self._tree(section)
        self._filters = section.filters
        self._orders: _Recent[Indices] = _Recent()
        self._masks: _Recent[Mask] = _Recent()
        self.additive = {} if self.tree else self._additive(section.total) | {name: False for name in section.adds if self._adds(name)}

    @property
    def nbytes(self) -> int:
        """Bytes that it holds, with the orders and filters it may remember."""
        sparse = 0 if isinstance(self._row_links, RowLinks) else len(self._row_links)
        sparse += sum(map(len, self._marks.values())) + sum(map(len, self._cell_links.values()))
        sparse += self.tree.nbytes // 200 if self.tree else 0
        return sum(v.nbytes for v in self.values.values()) + KEPT * 9 * self.size + 200 * sparse + 4096

    def _tree(self, section: TableSection) -> Tree | None:
        if section.tree is None:
            return None
        every = np.arange(self.size)
        none: list[Scalar] = [None] * self.size
        ids, above = (self.values[n].at(every) if n in self.values else none for n in (section.tree.id, section.tree.parent))
        tree = Tree([str(i) if v is None else text_of(v) for i, v in enumerate(ids)], [None if v is None else text_of(v) for v in above])
        self._outside &= tree.up < 0
        return tree

    def _rows_with(self, keys: Collection[str]) -> Mask:
        if not keys or self.key not in self.values:
            return np.zeros(self.size, dtype=bool)
        return self.values[self.key].texts_in(frozenset(keys))

    # -- which rows, in which order

    def rows(self, choice: Choice) -> Indices:
        """Returns the rows that pass, in order: unknown values last in both directions, equal ones as in the report, those outside the
        sum at the end. BadQuery names a column that is not there.
        """
        order = self._ordered(choice.sort or self.default)
        if not choice.filters and self.tree is None:
            return order
        return order[(self.tree.seen(self._open(choice)) if self.tree and not choice.filters else self._passing(choice))[order]]

    def _open(self, choice: Choice) -> Mask:
        """Returns the open branches of a tree; with filters those that hold a row to show."""
        tree = self.tree
        assert tree is not None
        if choice.filters:
            return tree.parents_of(self._passing(choice))
        natural = np.full(self.size, choice.base == "a") if choice.base in "an" else self._masks.get("open", lambda: self._heaviest(tree))
        return tree.toggled(natural, choice.toggled)

    def _heaviest(self, tree: Tree) -> Mask:
        plain = next((name for name, c in self.columns.items() if c.show not in TEXTUAL), "")
        column = self.values.get(self.default.column if self.default else plain)
        weight = np.where(column.known, column.values, 0).astype(np.float64) if isinstance(column, Numbers) else np.zeros(self.size)
        return tree.heaviest(weight, np.flatnonzero((tree.up < 0) & ~self._outside))

    def _ordered(self, sort: Sort | None) -> Indices:
        if sort is not None and sort is self.default and sort.column not in self.columns:
            sort = None
        return self._orders.get(sort, lambda: self._order(sort))

    def _order(self, sort: Sort | None) -> Indices:
        inside = np.flatnonzero(~self._outside)
        if sort is not None:
            column = self._column(sort.column, "sort")
            ranks = column.ranks(self.columns[sort.column].show in TEXTUAL)[inside]
            known = column.known[inside]
            sorted_ = stable_order(-ranks[known] if sort.descending else ranks[known])
            inside = np.concatenate([inside[known][sorted_], inside[~known]])
        flat = np.concatenate([inside, np.flatnonzero(self._outside)])
        return self.tree.order(flat) if self.tree else flat

    def _passing(self, choice: Choice) -> Mask:
        return self._masks.get((choice.words, choice.keep, choice.ranges, choice.picked), lambda: self._pass(choice))

    def _pass(self, choice: Choice) -> Mask:
        out = np.ones(self.size, dtype=bool)
        for name, texts in choice.keep:
            if texts:
                out &= self._column(name, "keep").texts_in(frozenset(texts))
        for name, bounds in choice.ranges:
            out &= _within(self._column(name, "range"), bounds)
        if choice.picked is not None:
            out &= self._rows_with(choice.picked)
        for word in choice.words:
            out &= self._holding(word)
        return self.tree.kept(out) if self.tree else out

    def _holding(self, word: str) -> Mask:
        out = np.zeros(self.size, dtype=bool)
        for name, column in self.columns.items():
            values = self.values[name]
            if column.show in TEXTUAL:
                found = as_distinct(values)
                out |= found.rows_of([word in text_of(v).lower() for v in found.values])
        return out

    def _column(self, name: str, field: str) -> Values:
        if name not in self.values:
            raise BadQuery(f"no column {name[:40]!r} in table {self.id!r}", hint=f"there is: {', '.join(self.columns)}", field=field)
        return self.values[name]

    # -- sums

    def _additive(self, total: Mapping[str, Scalar] | None) -> dict[str, bool]:
        """Returns the columns whose rows add up to their total: for them a sum over some of the rows means something.

        The value says whether the rows outside the sum are in this total nevertheless.
        """
        out: dict[str, bool] = {}
        for column in self.columns.values() if total else ():
            for rows, outside in ((np.flatnonzero(~self._outside), False), (np.arange(self.size), True)):
                values = self._numbers(column.name, rows)
                if column.name not in out and adds_up(column, values, (total or {}).get(column.name)):
                    out[column.name] = outside
        return out

    def _adds(self, name: str) -> bool:
        """Returns whether every row that counts has a number: a sum that lacks some would be none of the shown rows."""
        column = self.values.get(name)
        return isinstance(column, Numbers) and bool(column.known[~self._outside].all())

    def _numbers(self, name: str, rows: Indices) -> npt.NDArray[np.int64] | npt.NDArray[np.float64]:
        """Returns what is known of a column of numbers."""
        column = self.values[name]
        return column.values[rows[column.known[rows]]] if isinstance(column, Numbers) else np.zeros(0)

    def _sum(self, name: str, rows: Indices) -> int | float | None:
        """Returns the sum of what is known of a column; None where nothing is."""
        return summed(self._numbers(name, rows))

    def sums(self, rows: Indices) -> dict[str, Scalar]:
        """Returns the sums of the additive columns over some rows, those outside the sum left out."""
        inside = rows[~self._outside[rows]]
        return {name: self._sum(name, rows if outside else inside) for name, outside in self.additive.items()}

    # -- pages

    def page(self, choice: Choice, *, offset: int = 0, limit: int = 100, key: str = "") -> TablePage:
        """Returns `limit` rows from `offset` on, with the count and the sums of all that pass.

        key: of a row to find: `at` is its place in the order, and the page begins around it; a row that does not pass comes at the end.
        """
        rows = self.rows(choice)
        at = None
        more: list[int] = []
        if key:
            named = np.flatnonzero(self._rows_with((key,)))[:1]
            place = np.flatnonzero(np.isin(rows, named))
            at = int(place[0]) if len(place) else None
            offset = max(0, at - limit // 2) if at is not None else 0
            more = named.tolist() if at is None else []
        chosen = rows[offset : offset + limit]
        passing = {}
        if choice.filters and not self.tree:
            through = frozenset(self._keys(rows)) if self.points else frozenset()
            passing = {name: [k for k in keys if k in through] for name, keys in self.points.items()}
        page = self._of_rows(chosen, more, TablePage(
            table=self.id, version=self.version, offset=offset, length=len(chosen), count=len(rows), of=self.of, at=at,
            sums=self.sums(rows) if choice.filters else {}, passing=passing,
        ))  # fmt: skip
        return page if self.tree is None else self._of_branches(self.tree, page, choice, more)

    def _of_branches(self, tree: Tree, page: TablePage, choice: Choice, more: Sequence[int]) -> TablePage:
        """Adds what a reader needs to draw rows of a tree."""
        rows, open_ = np.array(page.rows, dtype=np.int64), self._open(choice)
        above, named = tree.up[rows], next((n for n, c in self.columns.items() if c.show == "tree"), self.key)
        texts = [None if v is None else text_of(v) for v in self.values[named].at(np.maximum(above, 0))] if named in self.values else []
        branch = open_ if choice.filters else tree.branch
        return msgspec.structs.replace(
            page,
            shown=page.count,
            count=page.count if choice.filters else self.size,
            depth=tree.depth[rows].tolist(),
            branch=(branch[rows].astype(np.int64) + open_[rows]).tolist(),
            above=[t if a >= 0 else None for t, a in zip(texts, above.tolist(), strict=False)],
            path=tree.path(more[0]) if more else [],
        )

    def _of_rows(self, chosen: Indices, more: Sequence[int], page: TablePage) -> TablePage:
        rows = np.concatenate([chosen, np.array(more, dtype=np.int64)])
        names = [str(r) for r in rows.tolist()]
        return msgspec.structs.replace(
            page,
            rows=rows.tolist(),
            data={name: column.at(rows) for name, column in self.values.items()},
            marks=_some_of_each(self._marks, names),
            cell_links=_some_of_each(self._cell_links, names),
            row_links={n: self._row_links[n] for n in names if n in self._row_links},
        )

    def _keys(self, rows: Indices) -> list[str]:
        return [text_of(k) for k in self.values[self.key].at(rows)] if self.key in self.values else []

    def pages(self, page: TablePage) -> TablePages:
        """Returns what stands in a report for all rows: a first page, and what a reader's column widths, units and filters need."""
        return TablePages(
            rows=self.size, version=self.version, page=page, additive=list(self.additive),
            profile={name: self._profile(column) for name, column in self.columns.items()},
            full={c.name: self._largest_stack(c) for c in self.columns.values() if c.show == "stack" and c.parts},
            values={name: self._counts(name) for name in self._filters if name in self.values and self._offered(name)},
            partial=self._partial(),
        )  # fmt: skip

    @cached_property
    def _scaled(self) -> Indices:
        """Rows by which columns are scaled."""
        return np.flatnonzero(~self._unscaled)

    def _profile(self, column: Column) -> list[Scalar]:
        """Returns some values of a column that stand for all: numbers spread over their sizes, else a text as long as nearly all are."""
        values, scaled = self.values[column.name], self._scaled
        if isinstance(values, Spelled) or (isinstance(values, Distinct) and len(values.values) > LOOKED_AT):
            values = as_distinct(values.at(scaled[:: max(len(scaled) // SPELLED, 1)]))
            scaled = np.arange(len(values))
        if isinstance(values, Distinct):
            sizes = np.array([*(len(v) if type(v) is str else len(text_of(v)) for v in values.values), 0])
            if not values.values:
                return []
            some = scaled[:: max(len(scaled) // LOOKED_AT, 1)]
            many = np.bincount(sizes[values.codes[some]])  # rows by the length of their text
            typical = int(np.searchsorted(np.cumsum(many), math.ceil(0.97 * (len(some) - 1)), side="right")) if len(some) else 0
            longer = np.flatnonzero(sizes[:-1] >= typical)
            near = longer[sizes[longer] == sizes[longer].min()] if len(longer) else np.flatnonzero(sizes[:-1] == sizes.max())
            return [values.values[int(near[-1])]]
        known = values.values if len(scaled) == self.size and values.known.all() else values.values[scaled[values.known[scaled]]]
        if len(known) > LOOKED_AT:
            some = np.arange(0, len(known), len(known) // LOOKED_AT)
            known = known[np.append(some, [int(known.argmin()), int(known.argmax())])]
        elif known is values.values:
            known = known.copy()
        if known.min(initial=0) < 0:
            known = known[np.argsort(np.abs(known), kind="stable")]
        else:
            known.sort()
        known = known[known != 0] if (known != 0).any() else known[:1]
        n = len(known)
        if n <= SAMPLE:
            return known.tolist()  # type: ignore[no-any-return]
        spread = np.interp(np.arange(SAMPLE + 1), [0, SAMPLE // 4, SAMPLE // 2, SAMPLE], [0, n >> 2, n >> 1, n - 1])
        places = np.rint(spread).astype(np.int64)
        broken = np.flatnonzero(known != np.rint(known))
        return known[np.concatenate([places, broken[:1]]) if len(broken) else places].tolist()  # type: ignore[no-any-return]

    def _largest_stack(self, column: Column) -> float:
        parts = [v for v in map(self.values.get, column.parts) if isinstance(v, Numbers)]
        total = sum((np.where(v.known, v.values, 0).astype(np.float64) for v in parts), np.zeros(self.size))
        return float(total[~self._unscaled].max(initial=0.0))

    def _offered(self, name: str) -> bool:
        """Whether a reader can filter by the values of a column: they are few for the rows there are."""
        column = self.values[name]
        if isinstance(column, Numbers):
            distinct = len(np.unique(column.values[column.known]))
        else:
            known = column.different if isinstance(column, Spelled) else None
            distinct = len(as_distinct(column).values) if known is None else known
        return 1 < distinct <= 0.6 * self.size

    def _counts(self, name: str) -> list[tuple[str, int]]:
        """Returns the most frequent values of a column with how often each is there; rows outside the sum do not count."""
        column = self.values[name]
        inside = np.flatnonzero(~self._outside)
        if isinstance(column, Distinct):
            codes = column.codes[inside]
            times = np.bincount(codes[codes >= 0], minlength=len(column.values)).tolist()
            found = Counter({text_of(v): n for v, n in zip(column.values, times, strict=True) if n})
        else:
            found = Counter(text_of(v) for v in column.at(inside) if v is not None)
        return sorted(found.items(), key=lambda item: (-item[1], item[0].encode("utf-16-be", "surrogatepass")))[:MOST_VALUES]

    def _partial(self) -> list[str]:
        """Returns the keys of points in figures whose row has an efficiency of only a part of it."""
        shown = set().union(*self.points.values()) if self.points else set()
        names = [c.name for c in self.columns.values() if c.show == "efficiency"]
        rows = [int(at) for name in names for at, mark in self._marks.get(name, {}).items() if mark.state == "partial" and at != "total"]
        return [k for k in self._keys(np.array(rows, dtype=np.int64)) if k in shown] if shown and rows else []

    def records(self, rows: Indices, names: Sequence[str], step: int = 2000) -> Iterator[list[tuple[Scalar, ...]]]:
        """Returns the values of some columns in rows, a few thousand at a time. BadQuery names a column that is not there."""
        columns = [self._column(name, "columns") for name in names]
        parts = (rows[start : start + step] for start in range(0, len(rows), step))
        return (list(zip(*(c.at(part) for c in columns), strict=True)) for part in parts)


def summed(values: npt.NDArray[np.int64] | npt.NDArray[np.float64]) -> int | float | None:
    """Returns the sum of numbers, exact for whole ones; None of none."""
    if not len(values):
        return None
    if values.dtype == np.float64:
        return math.fsum(values.tolist())
    return sum(values.tolist()) if float(np.abs(values.astype(np.float64)).sum()) >= 2**62 else int(values.sum())


def adds_up(column: Column, values: npt.NDArray[np.int64] | npt.NDArray[np.float64], total: Scalar) -> bool:
    """Returns whether a total is the plain sum of its column: not a mean, a rate, a union or a count of distinct things.

    Two values other than 0 prove it. Whole numbers may each be rounded, as long as that makes no more than a hundred-thousandth.
    """
    if column.show not in ADDED_UP or column.per or isinstance(total, bool) or not isinstance(total, int | float):
        return False
    if (column.unit in ("ratio", "%") and column.show != "share") or np.count_nonzero(values) < 2:
        return False
    off, size = abs(float(summed(values) or 0) - float(total)), abs(float(total))
    rounded = 0.5 * len(values) if values.dtype == np.int64 else 0.0
    return off <= max(1e-9 * size, 1e-12, min(rounded, 1e-5 * size))


def _within(column: Values, bounds: Bounds) -> Mask:
    if not isinstance(column, Numbers):
        column = as_distinct(column)
        return column.rows_of([isinstance(v, int | float) and not isinstance(v, bool) and _inside(v, bounds) for v in column.values])
    out = column.known.copy()
    if bounds.above is not None:
        out &= column.values > bounds.above
    if bounds.below is not None:
        out &= column.values < bounds.below
    return out


def _inside(value: float, bounds: Bounds) -> bool:
    return (bounds.above is None or value > bounds.above) and (bounds.below is None or value < bounds.below)


M = TypeVar("M", Mark, Link)


def _some_of_each(sparse: Mapping[str, Mapping[str, M]], names: Sequence[str]) -> dict[str, dict[str, M]]:
    """Returns the entries of some rows, by column."""
    found = {column: {n: entries[n] for n in names if n in entries} for column, entries in sparse.items()}
    return {column: entries for column, entries in found.items() if entries}
