"""Groups copies: how many, how large, how fast, and whether work hides them."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.copies import records
from tb_sol_plugin.metrics.copies.bandwidth import LARGE, rate
from tb_sol_plugin.metrics.copies.exposure import union_parts
from tb_sol_plugin.metrics.copies.records import DIRECTIONS, copies, frame_name
from tb_sol_plugin.metrics.time.attribution import BEFORE, NO_OPERATOR, NO_RECORD
from tb_sol_plugin.metrics.trees.module_tree import module_instance
from tb_sol_plugin.metrics.trees.phases import phase_tree
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Mask, Objects, Places, exact_sums
from tb_sol_plugin.tables.table import Table

Columns: TypeAlias = dict[str, npt.NDArray[Any]]
By: TypeAlias = Literal["direction", "kind", "device", "stream", "step", "phase", "module", "operator", "frame"]

NO_STREAM: Final = "(stream not recorded)"
NO_DEVICE: Final = "(device not recorded)"
NO_FRAMES: Final = "(no python frames recorded)"
OUTSIDE: Final = {
    "step": "(outside every step)", "phase": "(no phase)", "module": "(no module)", "operator": NO_OPERATOR, "frame": "(no python frame)",
}  # fmt: skip
"""What a launch without an owner is grouped under."""


def labels(capture: Capture, found: pd.DataFrame, by: By, rows: Places | None = None) -> Objects:
    """Returns what each copy is grouped by besides its direction, as text: "" for direction and kind.

    An owner is the innermost one around the launch. Copies without one have a reason: launched outside of every owner, before the recording
    began, or without a launch record.
    """
    code, names = coded(capture, found, by, rows)
    return names[code] if len(code) else np.zeros(0, object)


def coded(capture: Capture, found: pd.DataFrame, by: By, rows: Places | None = None) -> tuple[npt.NDArray[np.intp], Objects]:
    """Returns `labels` as (index into the labels per copy, the labels, each once). rows: places of the copies meant, None for all."""
    if by in ("device", "stream"):
        return _places(found, with_stream=by == "stream")
    if by in ("direction", "kind"):
        return np.zeros(len(found), np.intp), np.array([""], object)
    owner, link = (found[name].to_numpy() for name in ("phase_node" if by == "phase" else by, "link"))
    if rows is not None:
        owner, link = owner[rows], link[rows]
    if by in ("module", "operator", "frame") and len(capture.host):
        owner = np.where(owner >= 0, arrays.coded(capture.host["name"]).codes[np.maximum(owner, 0)], -1)
    without = np.where(link == S.BEFORE_WINDOW, -2, np.where(link == S.NO_RECORD, -3, -1))
    used, code = arrays.in_order(np.where(owner < 0, without, owner).astype(np.int64))
    inside = used[used >= 0]
    outside = NO_FRAMES if by == "frame" and not (capture.host["kind"].to_numpy() == S.FRAME).any() else OUTSIDE[by]
    free = {-1: outside, -2: BEFORE, -3: NO_RECORD}
    names = np.array([free[u] for u in used[used < 0].tolist()] + _names(capture, inside, by), object)
    place, distinct = pd.factorize(names)  # calls of one operator or module are owners of one name
    return place[code] if len(code) else np.zeros(0, np.intp), distinct


def _names(capture: Capture, owner: Ints, by: By) -> list[str]:
    """Returns texts of steps (rows), phases (nodes), or names of host events (codes)."""
    if not len(owner):
        return []
    if by == "step":
        numbers = capture.steps["number"].to_numpy()[owner].tolist()
        return [str(n) if n >= 0 else "whole trace" for n in numbers]
    if by == "phase":
        path = phase_tree(capture).path
        return [path[n] for n in owner.tolist()]
    names = [str(n) for n in np.asarray(capture.host["name"].cat.categories, object)[owner]]
    return [module_instance(n) if by == "module" else frame_name(n) if by == "frame" else n for n in names]


def _places(found: pd.DataFrame, *, with_stream: bool) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.object_]]:
    device = found["device"].to_numpy()
    stream = found["stream"].to_numpy() if with_stream else np.zeros(len(found), np.int64)
    code, first = _together([pd.factorize(device)[0], pd.factorize(stream)[0]])
    pairs = list(zip(device[first].tolist(), stream[first].tolist(), strict=True))
    many = len({d for d, _ in pairs}) > 1

    def text(d: int, s: int) -> str:
        where = f"device {d}" if d >= 0 else NO_DEVICE
        if not with_stream:
            return where
        what = f"stream {s}" if s >= 0 else NO_STREAM
        return f"{where}, {what}" if many else what

    return code.astype(np.intp), np.array([text(d, s) for d, s in pairs], object)


def table(capture: Capture, rows: Mask, by: By) -> Table:
    """Returns `sums` as a table."""
    found = sums(capture, rows, by)
    return Table({name: pd.Series(v, dtype=object, copy=False) if v.dtype == object else v for name, v in found.items()})


def sums(capture: Capture, rows: Mask, by: By) -> Columns:
    """Sums copies in groups. Count, bytes and time add up to the same sums whatever `by` is.

    Arrays by name, an element per direction (by direction: kinds joined), per direction and kinds (by kind), or per direction and label.
    Columns: direction, src_kind, dst_kind, group (the label), count, bytes (NaN where none was recorded), without_bytes,
    oversize (copies larger than the memory of their device), time_ns (plain sum), mean_ns, median_ns, p95_ns, share (of the time),
    bytes_share, bandwidth_bytes_per_s, large_count, large_bytes, large_bytes_per_s (copies of at least 1 MiB), union_ns (union per
    device, summed over devices), hidden_ns and exposed_ns (the part of that union behind a kernel that is no communication, and the
    rest: they add up to it), idle_exposed_ns (exposed, and behind no communication either).
    """
    found = copies(capture, rows)
    label, names = coded(capture, found, by)
    texts = {name: found[name].to_numpy(object) for name in ("direction", "src_kind", "dst_kind")}
    direction, source, target = (records.memory_kinds(found).column(place) for place in range(3))
    code, first = _together([direction[0], source[0], target[0]] if by == "kind" else [direction[0], label])
    count = len(first)
    head: Columns = {name: values[first] for name, values in texts.items()}
    head["group"] = names[label[first]] if count else np.zeros(0, object)
    if by != "kind":
        for name, kind in (("src_kind", source), ("dst_kind", target)):
            head[name] = np.array(_joined(code, *kind, count), object)
    out: Columns = head | _sums(code, found, count) | union_parts(capture, code, found, count)
    order_of = {d: i for i, d in enumerate(DIRECTIONS)}
    place = np.array([order_of.get(d, len(order_of)) for d in out["direction"].tolist()], np.int64)
    longest = -out["time_ns"]
    order = np.lexsort((longest, place) if by in ("direction", "kind") else (place, longest))
    return {name: values[order] for name, values in out.items()}


def overall(capture: Capture, rows: Mask) -> dict[str, int]:
    """Returns union_ns, hidden_ns, exposed_ns and idle_exposed_ns of all copies and sets together, per device, summed over devices.

    Copies of two directions that run at once count once, so that these are at most the sums over directions.
    """
    found = copies(capture, rows)
    parts = union_parts(capture, np.zeros(len(found), np.int64), found, 1)
    return {name: int(value[0]) for name, value in parts.items()}


def _together(parts: list[npt.NDArray[np.intp]]) -> tuple[Ints, npt.NDArray[np.intp]]:
    """Returns (one code for the parts taken together, in order of first use; the first place of each)."""
    code = arrays.together(*parts)
    return code, arrays.first_of(code, int(code.max(initial=-1)) + 1)


def _joined(code: Ints, kind: npt.NDArray[np.intp], texts: npt.NDArray[np.object_], count: int) -> list[str]:
    """Returns per group its distinct texts but "", in order, with commas."""
    size = max(len(texts), 1)
    seen: list[list[str]] = [[] for _ in range(count)]
    for pair in np.unique(code * size + kind).tolist():
        if texts[pair % size]:
            seen[pair // size].append(str(texts[pair % size]))
    return [", ".join(sorted(s)) for s in seen]


def _sums(code: Ints, found: pd.DataFrame, count: int) -> Columns:
    duration, size = found["duration_ns"].to_numpy(), found["bytes"].to_numpy()
    known, large = size >= 0, size >= LARGE
    calls = np.bincount(code, minlength=count).astype(np.int64)
    time, known_bytes = exact_sums(code, duration, count), exact_sums(code[known], size[known], count)
    moved = exact_sums(code[large], size[large], count)
    without = np.bincount(code[~known], minlength=count).astype(np.int64)
    order = np.lexsort((duration, code))
    begin = np.concatenate((np.zeros(1, np.int64), np.cumsum(calls)))[:-1]
    value = duration[order] if count else np.zeros(0, np.int64)
    total_time, total_bytes = int(time.sum()), int(known_bytes.sum())
    return {
        "count": calls,
        "bytes": np.where(without < calls, known_bytes.astype(np.float64), np.nan),
        "without_bytes": without,
        "oversize": np.bincount(code[found["oversize"].to_numpy()], minlength=count).astype(np.int64),
        "time_ns": time,
        "mean_ns": (2 * time + calls) // (2 * np.maximum(calls, 1)),
        "median_ns": (value[begin + (calls - 1) // 2] + value[begin + calls // 2]) // 2,
        "p95_ns": value[begin + (95 * calls + 99) // 100 - 1],
        "share": time / total_time if total_time else np.full(count, np.nan),
        "bytes_share": known_bytes / total_bytes if total_bytes else np.full(count, np.nan),
        "bandwidth_bytes_per_s": rate(known_bytes, exact_sums(code[known], duration[known], count)),
        "large_count": np.bincount(code[large], minlength=count).astype(np.int64),
        "large_bytes": moved,
        "large_bytes_per_s": rate(moved, exact_sums(code[large], duration[large], count)),
    }


# -- Which copies are meant ------------------------------------------------------------------------------------------
# a choice by direction, memory, device, owner or size, and the choice that a row of a grouped table is of.


class CopyChoice(Query, kw_only=True, frozen=True):
    """A choice of copies by their properties; a field that is left out chooses all.

    direction: only copies of this direction
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


OWNERS: Final[tuple[By, ...]] = ("phase", "module", "operator", "frame")
"""Fields that hold a label of the table grouped by the same name."""
_LINKED: Final = {"yes": (S.BY_CORRELATION, S.BY_FLOW), "before": (S.BEFORE_WINDOW,), "none": (S.NO_RECORD,)}


def chosen(capture: Capture, found: pd.DataFrame, choice: CopyChoice) -> Mask:
    """Tells per row of `found` (see `records.copies`) whether the choice means it. BadQuery for kinds that cannot be read."""
    keep = np.ones(len(found), np.bool_)
    if choice.direction:
        keep &= found["direction"].to_numpy() == choice.direction
    if choice.size:
        keep &= records.in_bin(found, choice.size)
    if choice.kinds:
        pair = records.kinds_of(choice.kinds)
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
            code, names = coded(capture, found, owner)
            keep &= np.asarray(names == label, np.bool_)[code] if len(code) else keep
    return keep


def choice_text(choice: CopyChoice) -> str:
    """Returns the choice in words for a heading, "" where nothing is chosen: `host to device, Pinned → Device, stream 7`."""
    parts = [records.NAMES[choice.direction].lower()] if choice.direction else []
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


def of_rows(
    capture: Capture, found: pd.DataFrame, table: pd.DataFrame | Columns, by: By, step: str = ""
) -> list[dict[str, str]]:
    """Returns per row of a table (see `groups.sums`, of the same copies) the query fields of a CopyChoice that mean exactly its copies.

    step: the step that the table is of, "" for all; it goes on unless the rows are steps themselves.
    """
    base = {"step": step} if step else {}
    out = [{"direction": d} | base if d in DIRECTIONS else dict(base) for d in table["direction"]]
    if by == "kind":
        for query, src, dst in zip(out, table["src_kind"], table["dst_kind"], strict=True):
            query["kinds"] = records.kinds_text(src or "", dst or "")
    elif by != "direction":
        code, names = coded(capture, found, by)
        first = dict(zip(map(str, names.tolist()), arrays.first_of(code.astype(np.int64), len(names)).tolist(), strict=True))
        for query, text in zip(out, table["group"], strict=True):
            query |= _of_label(capture, found, by, str(text), first[str(text)])
    return out


def _of_label(capture: Capture, found: pd.DataFrame, by: By, label: str, row: int) -> dict[str, str]:
    """Returns what a label means, by one of the copies that carry it."""
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
