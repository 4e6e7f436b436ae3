"""What a page that was saved as one HTML file holds."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from typing import Any


def packed(file: bytes, name: str) -> bytes:
    """What a script of the file unpacks: data, tiles, plotly or page."""
    return gzip.decompress(base64.b64decode(re.findall(rb'id="tb-sol-%s"[^>]*>([^<]*)<' % name.encode(), file)[0]))


def inside(file: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    """Its answers by name, and what it shows first."""
    start = re.findall(rb'id="tb-sol-data" data-start="([^"]*)"', file)[0]
    return json.loads(packed(file, "data"))["answers"], json.loads(html.unescape(start.decode()))


def tiles_inside(file: bytes) -> list[tuple[int, dict[str, Any], bytes]]:
    """The tiles of its timeline: level, entry of the header, bytes."""
    return tiles_of(packed(file, "tiles"))


def tiles_of(data: bytes) -> list[tuple[int, dict[str, Any], bytes]]:
    """The same of the block that holds them."""
    out: list[tuple[int, dict[str, Any], bytes]] = []
    while data:
        size = int.from_bytes(data[:4], "little")
        answer, data = data[4 : 4 + size], data[4 + size :]
        assert answer[:4] == b"SLT1"
        base = 8 + int.from_bytes(answer[4:8], "little")
        header = json.loads(answer[8:base])
        ends = [block["offset"] for block in header["blocks"][1:]] + [len(answer) - base]
        out += [(header["z"], block, answer[base + block["offset"] : base + end]) for block, end in zip(header["blocks"], ends, strict=True)]
    return out
