"""The records of a capture file as plain JSON, those in packed records too. Knows only the documented format."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from typing import Any


def records_in(text: str | bytes) -> Iterator[dict[str, Any]]:
    """Records in their order; packed ones give those that they hold."""
    for line in (text.encode() if isinstance(text, str) else text).split(b"\n"):
        if line.strip():
            record = json.loads(line)
            if record["kind"] != "packed":
                yield record
                continue
            inner = zlib.decompress(base64.b64decode(record["data"], validate=True))
            assert len(inner) == record["bytes"] and inner.endswith(b"\n")
            yield from map(json.loads, inner.splitlines())
