"""Answers kept in memory: least recently used go first, bounded by bytes, computed once however many ask at a time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class Memo(Generic[V]):
    """`get(key, make)` returns what `make` returned for that key before, or calls it. Errors of `make` are not kept.

    size: bytes of a value, for the limit. The value used last stays even where it alone is above the limit.
    """

    def __init__(self, limit_bytes: int, size: Callable[[V], int]) -> None:
        self._limit = limit_bytes
        self._size = size
        self._kept: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._total = 0
        self._lock = threading.Lock()
        self._making: dict[Hashable, threading.Lock] = {}

    def peek(self, key: Hashable) -> V | None:
        """The value if it is there; counts as a use."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of `key`, made by `make` if it is not there; only one thread makes it."""
        found = self.peek(key)
        if found is not None:
            return found
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            found = self.peek(key)
            if found is None:
                try:
                    found = make()
                    self.put(key, found)
                finally:
                    with self._lock:
                        self._making.pop(key, None)
            return found

    def put(self, key: Hashable, value: V) -> None:
        """Keep a value, letting older ones go."""
        size = self._size(value)
        with self._lock:
            old = self._kept.pop(key, None)
            self._total -= old[1] if old else 0
            self._kept[key] = (value, size)
            self._total += size
            while self._total > self._limit and len(self._kept) > 1:
                _, (_, freed) = self._kept.popitem(last=False)
                self._total -= freed

    def drop(self, key: Hashable) -> None:
        """Let a value go."""
        with self._lock:
            old = self._kept.pop(key, None)
            self._total -= old[1] if old else 0

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def total_bytes(self) -> int:
        return self._total
