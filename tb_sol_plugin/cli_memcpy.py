"""`tb-sol analyze memcpy --format text`: the short summary above the report, in the form of Proton's memory copies.

    Memory copy operations detected: 4
    - HostToDevice: 2 operations, total 8.0 MB
    - DeviceToHost: 1 operations, total 4.0 MB
    - DeviceToDevice: 1 operations, total 4.0 MB

`MB` is 1,048,576 bytes there; `--unit mb` makes it 1,000,000. Sets of memory are no copies. Copies that ran as a kernel (ROCm) are copies
whose direction is not recorded; those that a SOL capture counted stay within their device. A direction without a copy is left out. Copies
without a size are told behind the sum.
"""

from __future__ import annotations

import argparse
import math
from typing import Final

from tb_sol_plugin.metrics.copies import counted, records
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query

UNITS: Final = {"mib": float(1 << 20), "mb": 1e6}
"""Bytes of what is written `MB`."""
NOTES: Final = {"mib": "MB above is 1,048,576 bytes (--unit mb: 1,000,000), and 1,000,000 below.\n\n", "mb": ""}
"""What stands between the summary and the report, which counts in decimal units."""
WORDS: Final = {
    "HtoD": "HostToDevice", "DtoH": "DeviceToHost", "DtoD": "DeviceToDevice", "HtoH": "HostToHost", "PtoP": "PeerToPeer",
}  # fmt: skip
UNKNOWN: Final = "Unknown"
ORDER: Final = (*WORDS.values(), UNKNOWN)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The option of this summary."""
    text = "with text: what `MB` of the summary is: 1,048,576 bytes (mib, as Proton has it) or 1,000,000 (mb) (default: mib)"
    parser.add_argument("--unit", choices=tuple(UNITS), default="mib", help=text)


def summary(capture: Capture, query: Query, unit: str) -> str:
    """The lines of the summary, without an end of line behind the last."""
    found = totals(capture, query)
    lines = [f"Memory copy operations detected: {sum(count for count, _, _ in found.values())}"]
    for word in ORDER:
        count, size, bare = found.get(word, (0, 0, 0))
        if count:
            rest = f", {bare} carry no size" if bare else ""
            lines.append(f"- {word}: {count} operations, total {amount(size / UNITS[unit])} MB{rest}")
    return "\n".join(lines)


def totals(capture: Capture, query: Query) -> dict[str, tuple[int, int, int]]:
    """(copies, bytes, copies without a size) by direction in full words, sets left out."""
    where = scope(capture, query)
    out: dict[str, tuple[int, int, int]] = {}
    words = WORDS
    if len(capture.device):
        found = records.copies(capture, where.device)
        size = found["bytes"].to_numpy()
        rows = zip(found["direction"].tolist(), [1] * len(found), size.clip(min=0).tolist(), (size < 0).astype(int).tolist(), strict=True)
    else:
        words = WORDS | {records.COPY_KERNEL: WORDS["DtoD"]}
        table = counted.counted(capture, where)
        rows = zip(*(table[c].tolist() for c in ("direction", "count", "bytes", "without_bytes")), strict=True)
    for direction, count, data, bare in rows:
        if direction != "Memset":
            word = words.get(str(direction), UNKNOWN)
            before = out.get(word, (0, 0, 0))
            out[word] = before[0] + int(count), before[1] + int(data), before[2] + int(bare)
    return out


def amount(value: float) -> str:
    """One decimal, as Proton writes it; small amounts with two digits that count."""
    if value == 0 or value >= 0.05:
        return f"{value:.1f}"
    return f"{value:.{min(1 - math.floor(math.log10(value)), 9)}f}"
