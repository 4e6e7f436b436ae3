"""LAYER 3: arithmetic that analyses share: DataFrames in, DataFrames out."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar, cast

from tb_sol_plugin.model.capture import Capture

T = TypeVar("T")


def memo(capture: Capture, key: Hashable, make: Callable[[], T]) -> T:
    """Returns what `make` answers, made once per capture and kept with it.

    `key` begins with the name of the deriving function, so that two of them never meet: `("scope", query.step)`.
    The result is shared: callers do not change it.
    """
    if key not in capture.memo:
        capture.memo[key] = make()
    return cast(T, capture.memo[key])
