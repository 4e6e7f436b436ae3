"""Keeps the processes of several recordings apart where they stand in one trace file: by numbers of their own, and by names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

_PROCESSES: Final = 10_000_000
"""More than there are process ids (4,194,304 at most): what those of two recordings are apart."""


@dataclass(frozen=True)
class Place:
    """Where a recording stands in a file of several: its processes are numbered apart and named after it, its times moved.

    number: among them; -1 alone in the file, with its processes as they are. offset_ns: added to its times.
    """

    number: int = -1
    label: str = ""
    offset_ns: int = 0

    def process(self, pid: str) -> str:
        """Returns the JSON of a process id, from that of the recording's own."""
        if self.number < 0:
            return pid
        if is_whole(pid) and 0 <= int(pid) < _PROCESSES:
            return str((self.number + 1) * _PROCESSES + int(pid))
        return json.dumps(f"{self.label} {json.loads(pid)}")

    def name(self, process: str, pid: str) -> str:
        """Returns the name of a process; "" for none. pid: JSON of the recording's own id."""
        return process if self.number < 0 else f"{self.label}: {process or json.loads(pid)}"


def is_whole(text: str) -> bool:
    """Whether a text is a whole number of a size that every reader knows exactly; `²` and `--5` are none."""
    return len(text) < 18 and text.isascii() and text.removeprefix("-").isdigit()
