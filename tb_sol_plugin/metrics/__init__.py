"""LAYER 3: arithmetic that analyses share: DataFrames in, DataFrames out."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Final, TypeVar, cast

import pandas as pd

from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables.table import Table

T = TypeVar("T")

_ABSENT: Final = object()
_BY_LIMITS: Final = ("results by device limits",)
"""Key under which a capture keeps, by device limits, the keys of what was derived from them."""
LARGE: Final = 1_000_000
"""Rows of a recording from which results under one set of device limits are kept: they take 60 MB per million, and half a second."""
APART: Final = 100_000
"""Rows of a recording from which two threads make results in less time than one: of a smaller one most of the time is Python's own."""
SETS: Final = 4
"""Sets of device limits whose results a smaller recording keeps."""
_making_room = threading.Lock()


class _Making:
    """Stands for a result while a thread makes it; others wait for the lock."""

    def __init__(self) -> None:
        self.lock = threading.RLock()


def memo(capture: Capture, key: Hashable, make: Callable[[], T]) -> T:
    """Returns what `make` answers, made once per capture and kept with it; threads that ask meanwhile wait for it.

    `key` begins with the name of the deriving function, so that two of them never meet: `("scope", query.step)`.
    The result is shared: callers do not change it. An error is the caller's alone: who waited makes it again. What depends on device limits
    is kept by `memo_under`. A large recording keeps as much as `Results` allow: what went is made again.
    """
    kept = capture.memo
    while True:
        found = kept.get(key, _ABSENT)
        if found is _ABSENT:
            found = kept.setdefault(key, _Making())
        if not isinstance(found, _Making):
            if kept.limit:
                kept.used(key)
            return cast(T, found)
        with found.lock:
            if kept.get(key) is not found:  # made, or given up, by the thread that had the lock
                continue
            try:
                if kept.limit:
                    return kept.timed(key, make)
                made = kept[key] = make()
            except BaseException:
                kept.pop(key, None)
                raise
            return made


def kept_with(table: pd.DataFrame, key: Hashable, make: Callable[[], T]) -> T:
    """Returns what `make` answers of a table, made once and kept with the table; of a frame, which may change, it is made each time."""
    if not isinstance(table, Table):
        return make()
    kept: dict[Hashable, object] = table.__dict__.setdefault("_derived", {})
    found = kept.get(key, _ABSENT)
    if found is _ABSENT:
        found = kept.setdefault(key, make())  # of two threads both get the first one
    return cast(T, found)


def meanwhile(capture: Capture, make: Callable[[], object]) -> None:
    """Starts a thread that makes results of a large recording which the caller asks for later, by `memo`; of a small one it does nothing.

    An error in it comes again to who asks for the result.
    """

    def run() -> None:
        with suppress(Exception):
            make()

    if len(capture.host) + len(capture.device) > APART:
        threading.Thread(target=run, name="tb-sol-meanwhile").start()  # no daemon: the process ends after it


def memo_under(capture: Capture, spec: DeviceSpec | None, key: tuple[Hashable, ...], make: Callable[[], T]) -> T:
    """Returns what `memo` does, of a result that depends on device limits: kept are those under the limits that were asked for last.

    Older ones go before new ones are made. spec: the limits, None without any; `key` need not name them.
    """
    limits = spec.fingerprint if spec is not None else ""
    whole = (*key, limits)
    with _making_room:
        kept = cast("OrderedDict[str, set[Hashable]]", capture.memo.setdefault(_BY_LIMITS, OrderedDict()))
        kept.setdefault(limits, set()).add(whole)
        kept.move_to_end(limits)
        while len(kept) > (1 if len(capture.host) + len(capture.device) > LARGE else SETS):
            for old in kept.popitem(last=False)[1]:
                capture.memo.pop(old, None)
    return memo(capture, whole, make)
