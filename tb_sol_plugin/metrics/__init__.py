"""LAYER 3: arithmetic that analyses share: DataFrames in, DataFrames out."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, TypeVar, cast

from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.model.capture import Capture

T = TypeVar("T")

_ABSENT: Final = object()
_BY_LIMITS: Final = ("results by device limits",)
"""Key under which a capture keeps, by device limits, the keys of what was derived from them."""
LARGE: Final = 1_000_000
"""Rows of a recording from which results under one set of device limits are kept: they take 60 MB per million, and half a second."""
SETS: Final = 4
"""Sets of device limits whose results a smaller recording keeps."""
_making_room = threading.Lock()


def memo(capture: Capture, key: Hashable, make: Callable[[], T]) -> T:
    """Returns what `make` answers, made once per capture and kept with it.

    `key` begins with the name of the deriving function, so that two of them never meet: `("scope", query.step)`.
    The result is shared: callers do not change it. What depends on device limits is kept by `memo_under`.
    """
    found = capture.memo.get(key, _ABSENT)
    if found is _ABSENT:
        found = capture.memo[key] = make()
    return cast(T, found)


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
