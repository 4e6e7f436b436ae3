"""Keeps what is derived of a recording, of a large one within bounds: what takes little time to make again, for its size, goes first."""

from __future__ import annotations

import gc
import threading
import time
import types
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

import numpy as np
import pandas as pd

T = TypeVar("T")

BOUNDED_FROM: Final = 500_000
"""Rows of host and device from which on results are bounded: all that is derived of fewer takes 300 MB."""
BYTES_PER_ROW: Final = 440
"""Bytes of results that a bounded recording keeps for each row, seven tenths of what all analyses derive of it."""
LEFT: Final = 0.9
"""Share of the bound that is kept where results exceed it, so that room is made for more than the next one."""
FEW: Final = 100
"""Members up to which all of a list or dictionary are looked through. Of more they are where the first one may hold arrays."""
MANY: Final = 1000
"""Members above which none is."""
MEMBER: Final = 100
"""Bytes that a member counts which is not looked through."""


def limit_of(rows: int) -> int:
    """Returns bytes of results that a recording keeps; 0 for all of them."""
    return BYTES_PER_ROW * rows if rows >= BOUNDED_FROM else 0


class Origin:
    """What results are derived of: a recording. Results that refer to one do not hold it."""


class _Clock(threading.local):
    """Processor time that a thread spent on results within the one it makes, seconds."""

    within: float = 0.0


class _Made:
    """What is known of a result: seconds that making it took, without others; the answer that used it last; its arrays, and the answer
    before which they were looked at.
    """

    __slots__ = ("arrays", "looked", "seconds", "used")

    def __init__(self, seconds: float, answer: int) -> None:
        self.seconds, self.used, self.looked = seconds, answer, answer
        self.arrays: dict[int, int] | None = None

    def value(self, size: int, answer: int) -> float:
        """Returns what keeping its bytes is worth: seconds per byte, less with each answer that did not use it."""
        return self.seconds / (size * (1 + answer - self.used))


class Results(dict[object, object]):
    """Results by key. Of those that `timed` made, some go where their arrays exceed `limit` bytes; 0: none go.

    dropped: first parts of keys of results that went.
    """

    def __init__(self, limit: int = 0) -> None:
        super().__init__()
        self.limit = limit
        self.dropped: set[object] = set()
        self._made: dict[Hashable, _Made] = {}
        self._changed = False
        self._answers = 0
        self._tables: set[int] | None = None
        self._clock = _Clock()
        self._looking = threading.Lock()

    def __reduce__(self) -> tuple[type[Results], tuple[int]]:
        """Results do not go to another process: there they are made again."""
        return Results, (self.limit,)

    def timed(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns what `make` answers, kept under `key` with the processor time that it took in this thread."""
        clock = self._clock
        before, clock.within = clock.within, 0.0
        begin, within = time.thread_time(), 0.0
        try:
            made = make()
        finally:
            spent, within = time.thread_time() - begin, clock.within
            clock.within = before + spent
        self[key] = made
        self._made[key] = _Made(spent - within, self._answers)
        self._changed = True
        return made

    def used(self, key: Hashable) -> None:
        """Notes that a result was asked for."""
        known = self._made.get(key)
        if known is not None:
            known.used = self._answers

    def shrink(self, tables: Iterable[object] = ()) -> int:
        """Lets results go where they exceed the bound; returns their bytes. Call it after an answer: who has a result keeps it.

        tables: what stays whatever goes; arrays of it are of no result.
        """
        self._answers += 1
        if not self._changed or not self._looking.acquire(blocking=False):
            return 0
        try:
            self._changed = False
            if self._tables is None:
                self._tables = {one for table in tables for one in arrays_of(table)}
            if sum(self._sizes(anew=False).values()) <= self.limit:
                return 0
            sizes = self._sizes(anew=True)
            return self._let_go(sizes, sum(sizes.values()) - round(LEFT * self.limit))
        finally:
            self._looking.release()

    def _sizes(self, *, anew: bool) -> dict[int, int]:
        """Returns bytes of each array of the results, by identity, and notes those of each. anew: also of what was used since it was looked
        at, and may have grown.
        """
        every: dict[int, int] = {}
        parts: dict[int, dict[int, int]] = {}
        tables = self._tables or ()
        for key, known in list(self._made.items()):  # what others are made of comes first
            value = self.get(key)
            if value is None:
                self._made.pop(key, None)
                continue
            if known.arrays is None or (anew and known.looked <= known.used):
                known.arrays = {one: size for one, size in arrays_of(value, parts).items() if one not in tables}
                known.looked = self._answers
            parts[id(value)] = known.arrays
            every |= known.arrays
        return every

    def _let_go(self, sizes: dict[int, int], excess: int) -> int:
        """Drops results of the least value until arrays of `excess` bytes are free; returns how many bytes are.

        What others hold, too, stays until they go; where each of the rest holds what another one does, any of them goes.
        """
        known = [(key, made, made.arrays or {}) for key, made in list(self._made.items())]
        holders, who, own = dict.fromkeys(sizes, 0), dict.fromkeys(sizes, 0), [0] * len(known)
        for place, (_, _, arrays) in enumerate(known):
            for one in arrays:
                holders[one] += 1
                who[one] ^= place  # where one is left, its place
        for one, size in sizes.items():
            if holders[one] == 1:
                own[who[one]] += size
        left, freed = {place for place, (_, _, arrays) in enumerate(known) if arrays}, 0
        while left and freed < excess:
            values = {place: known[place][1].value(own[place], self._answers) for place in left if own[place]}
            gone = min(values, key=values.__getitem__) if values else min(left)
            left.discard(gone)
            key, _, arrays = known[gone]
            self._made.pop(key, None)
            self.pop(key, None)
            self.dropped.add(key[0] if isinstance(key, tuple) and key else key)
            for one in arrays:
                holders[one] -= 1
                who[one] ^= gone
                if holders[one] == 1:
                    own[who[one]] += sizes[one]
                elif not holders[one]:
                    freed += sizes[one]
        return freed


_LEAVES = (Origin, type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, str, bytes, int, float, type(None))
"""Types whose objects are not looked through: they hold no arrays of a result, or lead to all that is loaded."""


def arrays_of(value: object, parts: Mapping[int, Mapping[int, int]] = MappingProxyType({})) -> dict[int, int]:
    """Returns bytes of each array that an object holds, by identity; of views that of the array they are of.

    A recording is no part of it, nor is what lies in a file. parts: what was found in other objects, by identity.
    """
    found: dict[int, int] = {}
    seen: set[int] = set()
    left = [value]
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, _LEAVES):
            continue
        seen.add(id(one))
        if id(one) in parts and one is not value:
            found |= parts[id(one)]
        elif isinstance(one, np.ndarray):
            while isinstance(one.base, np.ndarray):
                one = one.base
            if one.flags.owndata:
                found[id(one)] = one.nbytes
        elif isinstance(one, pd.DataFrame | pd.Series):
            left += [block.values for block in one._mgr.blocks]  # type: ignore[union-attr]
            left += [one.index, one.__dict__.get("_derived"), one.__dict__.get("_plain")]
        elif isinstance(one, _LISTS) and len(one) > FEW and not _of_arrays(one):
            found[id(one)] = MEMBER * len(one)
        else:
            left += gc.get_referents(one)
    return found


_LISTS = (list, tuple, dict, set, frozenset)
_WITH_ARRAYS = (np.ndarray, pd.DataFrame, pd.Series, tuple)


def _of_arrays(values: Collection[object]) -> bool:
    """Whether the members of a long list or dictionary, by the first of them, may hold arrays, and are few enough to look at."""
    first = next(iter(values.values() if isinstance(values, dict) else values))
    return len(values) <= MANY and isinstance(first, _WITH_ARRAYS)
