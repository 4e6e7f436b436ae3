"""Where a rank stands in a job that splits its work: stage of the pipeline, part of tensors, replica, as the recorder wrote it."""

from __future__ import annotations

import re
from typing import Final

from tb_sol_plugin.model.capture import Capture

GROUPS: Final = ("pp", "tp", "dp", "ep", "cp")
_OF: Final = re.compile(r"(\d{1,9}) of (\d{1,9})")


def place(capture: Capture) -> dict[str, tuple[int, int]]:
    """(position, size) of a rank by group: pp, tp, dp, ep, cp, as far as the SOL capture of the worker says; {} where there is none."""
    out = {}
    for name in GROUPS:
        said = capture.facts.metadata.get(f"sol_capture.groups.{name}", "") or capture.facts.metadata.get(f"groups.{name}", "")
        found = _OF.fullmatch(said)
        if found is not None and int(found[1]) < int(found[2]):
            out[name] = int(found[1]), int(found[2])
    return out
