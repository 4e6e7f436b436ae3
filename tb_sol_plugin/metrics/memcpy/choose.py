"""Which copies are meant: a choice by direction, memory, device, owner or size, and the choice that a row of a grouped table stands for."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
import pandas as pd

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.memcpy import groups, words
from tb_sol_plugin.metrics.memcpy.records import DIRECTIONS
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Mask


class CopyChoice(Query, kw_only=True, frozen=True):
    """direction: only copies of this direction
    size: only copies of this size bin; the upper end belongs to it
    kinds: only between these kinds of memory, as "Pinned → Device" or "Pinned > Device"; "?" for a kind that was not recorded
    device: only copies of this device
    stream: only copies of this stream
    phase: only copies whose innermost phase is this, as the table by phase names it
    module: only copies whose innermost module call is this, as the table by module names it
    operator: only copies that this operator launched, as the table by operator names it
    frame: only copies that this python line launched, as the table by frame names it
    min_bytes: only copies of at least so many bytes
    max_bytes: only copies of at most so many bytes
    linked: whether the launch was recorded (yes), lies before the recording (before), or is missing (none)
    in_step: whether a step launched the copy
    """

    direction: Literal["", "HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "Memset", "copy kernel", "Unknown"] = ""
    size: Literal["", "to 4 KiB", "to 64 KiB", "to 1 MiB", "to 16 MiB", "to 256 MiB", "over 256 MiB", "unknown"] = ""
    kinds: str = ""
    device: int | None = None
    stream: int | None = None
    phase: str = ""
    module: str = ""
    operator: str = ""
    frame: str = ""
    min_bytes: int | None = None
    max_bytes: int | None = None
    linked: Literal["", "yes", "before", "none"] = ""
    in_step: Literal["", "yes", "no"] = ""


OWNERS: Final[tuple[groups.By, ...]] = ("phase", "module", "operator", "frame")
"""Fields that hold a label of the table grouped by the same name."""
_LINKED: Final = {"yes": (S.BY_CORRELATION, S.BY_FLOW), "before": (S.BEFORE_WINDOW,), "none": (S.NO_RECORD,)}


def chosen(capture: Capture, found: pd.DataFrame, choice: CopyChoice) -> Mask:
    """Per row of `found` (see `records.copies`) whether the choice means it. BadQuery for kinds that cannot be read."""
    keep = np.ones(len(found), np.bool_)
    if choice.direction:
        keep &= found["direction"].to_numpy() == choice.direction
    if choice.size:
        keep &= words.in_bin(found, choice.size)
    if choice.kinds:
        pair = words.kinds_of(choice.kinds)
        if pair is None:
            raise BadQuery(f"not two kinds of memory: {choice.kinds!r}", hint="give them as Pinned > Device", field="kinds")
        keep &= (found["src_kind"].to_numpy() == pair[0]) & (found["dst_kind"].to_numpy() == pair[1])
    for name in ("device", "stream"):
        value = getattr(choice, name)
        if value is not None:
            keep &= found[name].to_numpy() == value
    size = found["bytes"].to_numpy()
    if choice.min_bytes is not None:
        keep &= (size >= 0) & (size >= choice.min_bytes)
    if choice.max_bytes is not None:
        keep &= (size >= 0) & (size <= choice.max_bytes)
    if choice.linked:
        keep &= np.isin(found["link"].to_numpy(), _LINKED[choice.linked])
    if choice.in_step:
        keep &= (found["step"].to_numpy() >= 0) == (choice.in_step == "yes")
    for owner in OWNERS:
        label = getattr(choice, owner)
        if label:
            code, names = groups.coded(capture, found, owner)
            keep &= np.asarray(names == label, np.bool_)[code] if len(code) else keep
    return keep


def said(choice: CopyChoice) -> str:
    """The choice in words for a heading, "" where nothing is chosen: `host to device, Pinned → Device, stream 7`."""
    parts = [words.NAMES[choice.direction].lower()] if choice.direction else []
    parts += [choice.kinds] if choice.kinds else []
    parts += [{"unknown": "of unknown size"}.get(choice.size, choice.size)] if choice.size else []
    parts += [f"{n} {getattr(choice, n)}" for n in ("device", "stream") if getattr(choice, n) is not None]
    parts += [f"at least {choice.min_bytes} B"] if choice.min_bytes is not None else []
    parts += [f"at most {choice.max_bytes} B"] if choice.max_bytes is not None else []
    parts += [f"{n} {getattr(choice, n)}" for n in OWNERS if getattr(choice, n)]
    parts += (
        [{"yes": "launch recorded", "before": "launched before the recording", "none": "launch not recorded"}[choice.linked]]
        if choice.linked
        else []
    )
    parts += [{"yes": "in a step", "no": "outside every step"}[choice.in_step]] if choice.in_step else []
    return ", ".join(parts)


def of_rows(capture: Capture, found: pd.DataFrame, table: pd.DataFrame, by: groups.By, step: str = "") -> list[dict[str, str]]:
    """Per row of a table (see `groups.table`, made of the same copies) the query fields of a CopyChoice that mean exactly its copies.

    step: the step that the table is of, "" for all; it goes on unless the rows are steps themselves.
    """
    base = {"step": step} if step else {}
    out = [{"direction": d} | base if d in DIRECTIONS else dict(base) for d in table["direction"]]
    if by == "kind":
        for query, src, dst in zip(out, table["src_kind"], table["dst_kind"], strict=True):
            query["kinds"] = words.kinds_text(src or "", dst or "")
    elif by != "direction":
        code, names = groups.coded(capture, found, by)
        first = dict(zip(map(str, names.tolist()), arrays.first_of(code.astype(np.int64), len(names)).tolist(), strict=True))
        for query, text in zip(out, table["group"], strict=True):
            query |= _of_label(capture, found, by, str(text), first[str(text)])
    return out


def _of_label(capture: Capture, found: pd.DataFrame, by: groups.By, label: str, row: int) -> dict[str, str]:
    """What a label means, by one of the copies that carry it."""
    if by in OWNERS:
        return {by: label}
    if by in ("device", "stream"):
        names = ("device",) if by == "device" else ("device", "stream")
        return {n: str(int(found[n].iloc[row])) for n in names}
    at = int(found["step"].iloc[row])
    if at >= 0:
        number = int(capture.steps["number"].to_numpy()[at])
        return {"step": str(number)} if number >= 0 and not capture.facts.pseudo_step else {"in_step": "yes"}
    link = int(found["link"].iloc[row])
    return {"in_step": "no", "linked": {S.BEFORE_WINDOW: "before", S.NO_RECORD: "none"}.get(link, "yes")}
