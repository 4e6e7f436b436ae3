"""Copies of a sampled iteration in one sentence, for the reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tb_sol_plugin.capture.report_console import amount
from tb_sol_plugin.capture.step import CopyRow

WAYS: Final = {"HtoD": "to the device", "DtoH": "to the host", "PtoP": "between devices"}


def sentence(rows: Sequence[CopyRow]) -> str:
    """`Copies: 12 to the device (48.0 MB, 3 from pageable memory), 2 to the host (2 numbers read); the host waits for 5.`

    "" where nothing crosses between the host and a device, or between devices.
    """
    parts = []
    waits = 0
    for direction, words in WAYS.items():
        mine = [row for row in rows if row[1] == direction]
        if not mine:
            continue
        count, size = (sum(row[at] for row in mine) for at in (10, 11))  # type: ignore[misc]
        pageable = sum(row[10] for row in mine if "Pageable" in row[2:4])
        read = sum(row[10] for row in mine if direction == "DtoH" and not row[3])
        waits += sum(row[13] or 0 for row in mine)
        more = [amount(size, "B")] if size and read < count else []
        more += [f"{pageable} {'from' if direction == 'HtoD' else 'to'} pageable memory"] if pageable else []
        more += [f"{read} {'number' if read == 1 else 'numbers'} read"] if read else []
        parts.append(f"{count} {words}" + (f" ({', '.join(more)})" if more else ""))
    return f"Copies: {', '.join(parts)}; the host waits for {waits or 'none'}." if parts else ""
