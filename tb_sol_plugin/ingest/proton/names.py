"""Which frames are copies or sets of memory: by the type of the frame, or by its whole name. A kernel may have `memcpy` in its name."""

from __future__ import annotations

import re
from functools import cache
from typing import Final, NamedTuple

from tb_sol_plugin.ingest import rules

_TYPES: Final = {"memcpy": False, "gpu_memcpy": False, "memset": True, "gpu_memset": True}
_NAME: Final = re.compile(
    r"\[?(?:(?:cuda|hip|gpu|hsa)[ _]?)?(?:(memset|memory[ _]?fill|fillbuffer)|memcpy|memory[ _]?copy|copy)"
    r"[ _:]*([A-Za-z][\w-]*)?\s*(\(.*\))?\]?",
    re.IGNORECASE,
)
_ENDS: Final = re.compile(r"(?:memcpy|memory copy)(?:\s+\w+)?\s*\([^()]*->[^()]*\)", re.IGNORECASE)
"""`Memcpy XtoY (A -> B)`: a copy, whatever the kinds are called."""
_BARE: Final = re.compile(r"(?:[hdp]to[hdp]|(?:host|device|peer)[ _]?to[ _]?(?:host|device|peer))", re.IGNORECASE)


class Copied(NamedTuple):
    """As in the tables `device` and `copies`."""

    direction: str
    src_kind: str
    dst_kind: str


@cache
def copied(name: str, kind: str) -> Copied | None:
    """What a frame copies, by its name and the type of the frame; None where it is no copy. An unknown direction is `Unknown`."""
    if kind.lower() == "kernel":
        return None
    text = name.replace("-to-", "To").strip()
    found = _NAME.fullmatch(text)
    is_set = _TYPES.get(kind.lower(), False) or (found is not None and found[1] is not None)
    if kind.lower() not in _TYPES and not _BARE.fullmatch(text) and not _ENDS.fullmatch(text) and not (found and _says(found, text)):
        return None
    return Copied(*rules.copy_of(text, is_set, (found[2] or "") if found else ""))


def _says(found: re.Match[str], text: str) -> bool:
    """Whether a name of the right form says that it copies: a direction, or `memcpy` alone; `copy` and `memcpy_kernel` may be anything."""
    word = (found[2] or "").lower()
    if word and word != "unknown":
        return bool(rules.direction_of(found[2])) or (found[1] is not None and word in ("d8", "d16", "d32", "async", "device"))
    return not text.lower().lstrip("[").startswith("copy")
