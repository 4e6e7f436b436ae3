"""What a long read tells its caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec


class Progress(msgspec.Struct, frozen=True):
    """bytes_read of total_bytes are of the file as stored (compressed); events so far; stage: reading, linking, done."""

    bytes_read: int
    total_bytes: int
    events: int
    stage: str


Report: TypeAlias = Callable[[Progress], None]
"""Called a few times a second at most; raising from it cancels the read."""
