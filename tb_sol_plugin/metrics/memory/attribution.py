"""Attributes the memory in use at a moment to categories, modules, operators, lines of the program or phases.

It works for every source of a curve. The rows add up to the level of the curve exactly; what no row explains is a row of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.metrics.memory.categories import NAMES, categories, own_line, owners, stack_text
from tb_sol_plugin.metrics.memory.curves import Curves, whole
from tb_sol_plugin.metrics.memory.sources import curve_from
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.trees.module_tree import module_instance
from tb_sol_plugin.metrics.trees.phases import phase_tree
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.tables.table import Table, as_table

# -- Memory in use at one moment, as rows that add up to it ----------------------------------------------------------


By: TypeAlias = Literal["category", "module", "operator", "frame", "phase"]
GROUPINGS: Final[tuple[By, ...]] = ("category", "module", "operator", "frame", "phase")
BEFORE: Final = "allocated before the window"
UNKNOWN: Final = "unknown"
COLUMNS: Final = ("name", "bytes", "allocations", "share", "estimated", "kind", "host_row", "stack")
FLAGGED_SHARE: Final = 0.05
"""A note reports unknown memory above this share of what was in use."""
NEGATIVE: Final = "more is found than was in use: something is counted twice, or events are missing"



@dataclass(frozen=True)
class Attribution:
    """The memory in use at time_ns, of one curve, attributed by one grouping.

    total: bytes in use then, the level of the curve. rows: name, bytes, allocations (-1 unknown), share (of total; NaN where total is 0),
    estimated (whether the name is one), kind (row; before: was there before the recording began, whose it is was not recorded; unknown:
    the rest), host_row (of the largest allocation; -1 none), stack (its call stack as lines, "" none).
    Rows stand largest first, then before, then unknown, which is always there.
    rows["bytes"] sums to total exactly: unknown is what is left, and negative where rows count too much.
    notes: what to know, one sentence each.
    """

    time_ns: int
    total: int
    rows: pd.DataFrame
    notes: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many of the rows are groups: the first ones."""
        return int((self.rows["kind"].to_numpy() == "row").sum())

    @property
    def unknown(self) -> int:
        """Bytes of the row unknown."""
        return int(self.rows["bytes"].to_numpy()[self.rows["kind"].to_numpy() == "unknown"].sum())


@dataclass(frozen=True)
class Groups:
    """Bytes per name before they are compared with the total: one entry per name. The last three may be left out."""

    names: list[str]
    bytes: Ints
    allocations: Ints
    estimated: npt.NDArray[np.bool_] | None = None
    host_row: Ints | None = None
    stacks: Sequence[str] | None = None


NOTHING: Final = Groups([], np.zeros(0, np.int64), np.zeros(0, np.int64))


def attribution_rows(
    time_ns: int, total: int, groups: Groups, *, before: int = 0, before_allocations: int = -1, notes: tuple[str, ...] = ()
) -> Attribution:
    """Makes the rows: the groups, largest first, then what was there before (left out where 0), then the rest."""
    count = len(groups.names)
    order = np.argsort(-groups.bytes, kind="stable")
    rest = int(total) - int(groups.bytes.sum()) - int(before)
    estimated = groups.estimated if groups.estimated is not None else np.zeros(count, bool)
    host_row = groups.host_row if groups.host_row is not None else np.full(count, -1, np.int64)
    stacks = groups.stacks if groups.stacks is not None else [""] * count
    more = [(name, int(size), calls, kind)
            for name, size, calls, kind in ((BEFORE, before, before_allocations, "before"), (UNKNOWN, rest, -1, "unknown"))
            if kind == "unknown" or size]  # fmt: skip
    own = order.tolist()
    size = np.append(groups.bytes[order], [one[1] for one in more])
    texts = {
        "name": [groups.names[i] for i in own] + [one[0] for one in more], "kind": ["row"] * count + [one[3] for one in more],
        "stack": [stacks[i] for i in own] + [""] * len(more),
    }  # fmt: skip
    name, kind, stack = (pd.Series(values, dtype=object) for values in texts.values())
    rows = as_table(pd.DataFrame({
        "name": name, "bytes": size, "allocations": np.append(groups.allocations[order], [one[2] for one in more]),
        "share": size / total if total else np.full(len(size), np.nan),
        "estimated": np.append(estimated[order], np.zeros(len(more), bool)), "kind": kind,
        "host_row": np.append(host_row[order], np.full(len(more), -1)), "stack": stack,
    }, copy=False))  # fmt: skip
    sentences = list(notes)
    if rest < 0:
        sentences.append(NEGATIVE)
    elif total > 0 and rest > FLAGGED_SHARE * total:
        sentences.append(f"{rest / total:.0%} of what was in use is unknown")
    return Attribution(int(time_ns), int(total), rows, tuple(sentences))


def sum_by_name(
    code: Ints, names: list[str], size: Ints, host_row: Ints | None = None, *, estimated: npt.NDArray[np.bool_] | None = None,
    stacks: Sequence[str] | None = None,
) -> Groups:  # fmt: skip
    """Adds up allocations by name. code: per allocation the position in `names`; names that hold nothing are left out.

    host_row: per allocation; of a name that of its largest. estimated: per allocation; of a name whether any is. stacks: per name.
    """
    count = len(names)
    total, calls = np.zeros(count, np.int64), np.bincount(code, minlength=count).astype(np.int64)
    np.add.at(total, code, size)
    guess = np.zeros(count, bool)
    if estimated is not None:
        np.logical_or.at(guess, code, estimated)
    rows = np.full(count, -1, np.int64)
    if host_row is not None:
        order = np.argsort(size, kind="stable")
        rows[code[order]] = host_row[order]
    kept = np.flatnonzero(calls)
    of = [stacks[i] for i in kept.tolist()] if stacks is not None else None
    return Groups([names[i] for i in kept.tolist()], total[kept], calls[kept], guess[kept], rows[kept], of)


# -- Attribution from an allocator's snapshot, at any moment of its history -------------------------------------------
# worked back from the blocks at its end.


NO_LINE: Final = "(no call stack)"


@dataclass(frozen=True)
class AllocationHistory:
    """Allocations of one device with their place in its history: one entry per allocation.

    first: entry that allocated it, -1 before the history. stop: entry after which it is gone, -1 never. bytes: that were asked for.
    stack: code of its call stack in `texts`, -1 unknown: freed in the history, allocated before it.
    """

    first: Ints
    stop: Ints
    bytes: Ints
    stack: Ints
    texts: tuple[str, ...]

    def at(self, place: int) -> npt.NDArray[np.intp]:
        """Returns the positions of the allocations that are live after entry `place` (-1: before the first)."""
        return np.flatnonzero((self.first <= place) & ((self.stop < 0) | (self.stop > place)))


def allocation_history(capture: Capture, device: int) -> AllocationHistory:
    """Returns every allocation that the history or the blocks of a device name."""
    return memo(capture, ("memory.allocation_history", device), lambda: _allocation_history(capture, device))


def _allocation_history(capture: Capture, device: int) -> AllocationHistory:
    events, blocks = capture.tables[S.MEMORY_EVENTS.name], capture.tables[S.MEMORY_BLOCKS.name]
    events, blocks = events[events["device"] == device], blocks[blocks["device"] == device]
    gain = arrays.where(events["action"], lambda a: a == "alloc")
    free = arrays.where(events["action"], lambda a: a == "free_requested")
    address = events["address"].to_numpy()
    size = events["bytes"].to_numpy().clip(min=0)
    use = np.flatnonzero(gain | free)
    order = use[np.argsort(address[use], kind="stable")]
    same = np.r_[address[order][1:] == address[order][:-1], False] if len(order) else np.zeros(0, bool)
    begins = gain[order]
    nxt = np.where(same, np.r_[order[1:], -1] if len(order) else order, -1)
    starts = order[begins]
    stop = nxt[begins]
    ended = np.zeros(len(events), bool)  # frees whose allocation the history holds
    followed = stop[stop >= 0]
    ended[followed[free[followed]]] = True
    alone = np.flatnonzero(free & ~ended)
    open_at = set(address[starts[stop < 0]].tolist())
    state = arrays.where(blocks["state"], lambda s: s == "active_allocated") if len(blocks) else np.zeros(0, bool)
    at = blocks["address"].to_numpy()
    older = np.flatnonzero(state & ~np.fromiter((a in open_at for a in at.tolist()), bool, len(at)))
    requested = np.where(blocks["requested"].to_numpy() >= 0, blocks["requested"].to_numpy(), blocks["bytes"].to_numpy()).clip(min=0)
    names: dict[str, int] = {}
    of_events = _codes(events["frames"], names)
    of_blocks = _codes(blocks["frames"], names)
    none = np.full(len(alone), -1, np.int64)
    return AllocationHistory(
        first=np.concatenate([starts, none, np.full(len(older), -1, np.int64)]),
        stop=np.concatenate([stop, alone, np.full(len(older), -1, np.int64)]),
        bytes=np.concatenate([size[starts], size[alone], requested[older]]),
        stack=np.concatenate([of_events[starts], none, of_blocks[older]]),
        texts=tuple(names),
    )


def _codes(column: pd.Series, names: dict[str, int]) -> Ints:
    """Returns per row the number of its text in `names`, which grows."""
    every = [*(str(text) for text in column.cat.categories), ""]
    of = np.array([names.setdefault(text, len(names)) for text in every], np.int64)
    return of[arrays.codes(column)]


def by_line(capture: Capture, device: int, place: int) -> tuple[Groups, int]:
    """Returns (live allocations by the line of the program, bytes of those allocated before whose stack is unknown).

    Both are as after entry `place`.
    """
    every = allocation_history(capture, device)
    alive = every.at(place)
    known = alive[every.stack[alive] >= 0]
    stack = every.stack[known]
    seen, inverse = np.unique(stack, return_inverse=True)
    lines = [own_line(every.texts[i]) or NO_LINE for i in seen.tolist()]
    names: dict[str, int] = {}
    of_stack = np.array([names.setdefault(text, len(names)) for text in lines], np.int64)
    code = of_stack[inverse] if len(seen) else np.zeros(0, np.int64)
    size = every.bytes[known]
    largest = [""] * len(names)
    for i in np.argsort(size, kind="stable").tolist():
        largest[int(code[i])] = every.texts[int(stack[i])]
    groups = sum_by_name(code, list(names), size, stacks=[stack_text(text) for text in largest])
    return groups, int(every.bytes[alive].sum()) - int(size.sum())


def freed_from_before(capture: Capture, device: int, place: int) -> int:
    """Returns bytes from before the history that were freed up to entry `place`."""
    every = allocation_history(capture, device)
    gone = (every.first < 0) & (every.stop >= 0) & (every.stop <= place)
    return int(every.bytes[gone].sum())


# -- Attribution from a timeline and from the records of a program -----------------------------------------------------


TIMELINE: Final = {
    "parameter": "params", "optimizer_state": "optimizer", "input": "inputs", "temporary": "temporary", "activation": "activations",
    "gradient": "grads", "autograd_detail": "autograd_detail",
}  # fmt: skip
"""Categories of a timeline by their names here; what it calls unknown is the rest."""
NO_MODULE: Final = "(no module)"


def of_timeline(curve: Curves, position: int) -> Groups:
    """Returns categories of a timeline's curve at one of its points."""
    found = {TIMELINE[name]: int(level[position]) for name, level in curve.categories.items() if name in TIMELINE}
    sizes = {name: size for name, size in found.items() if size}
    return Groups(list(sizes), np.array(list(sizes.values()), np.int64), np.full(len(sizes), -1, np.int64))


def lowest_levels(curve: Curves) -> dict[str, int]:
    """Returns the lowest level of each category of a timeline: what was there before and is never freed.

    The first level would not do: it holds what was allocated at the very first moment too.
    """
    return {TIMELINE[name]: int(level.min()) for name, level in curve.categories.items() if name in TIMELINE and len(level)}


def records_with_parts(capture: Capture, device: int) -> Ints:
    """Returns rows of `memory_records` of a device that list what memory is for, in order of time."""
    records, parts = capture.tables[S.MEMORY_RECORDS.name], capture.tables[S.MEMORY_PARTS.name]
    rows = np.unique(parts["record"].to_numpy()).astype(np.int64)
    rows = rows[(rows >= 0) & (rows < len(records))]
    rows = rows[records["device"].to_numpy()[rows] == device]
    return np.asarray(rows[np.argsort(records["time_ns"].to_numpy()[rows], kind="stable")], np.int64)


def nearest(capture: Capture, rows: Ints, time_ns: int) -> int:
    """Returns the one of `rows` of memory_records that is nearest to a time, the earlier of two."""
    time = capture.tables[S.MEMORY_RECORDS.name]["time_ns"].to_numpy()[rows]
    return int(rows[int(np.argmin(np.abs(time - time_ns)))])


def of_record(capture: Capture, record: int, by: By) -> Groups:
    """Returns the parts of one record by category or module; tensors stand for allocations."""
    parts = capture.tables[S.MEMORY_PARTS.name]
    own = np.flatnonzero(parts["record"].to_numpy() == record)
    size, tensors = parts["bytes"].to_numpy()[own], parts["tensors"].to_numpy()[own]
    if by == "category":
        names = [str(c) for c in parts["category"].cat.categories]
        code = arrays.codes(parts["category"])[own]
    else:
        label = parts["module"].to_numpy()[own].astype(np.int64)
        names = [module_instance(n) for n in arrays.pick(capture.tables["labels"]["name"], np.arange(len(capture.tables["labels"])))]
        code = np.where((label >= 0) & (label < len(names)), label, -1)
        seen: dict[str, int] = {}  # two labels of one name are one row
        of = np.array([seen.setdefault(name, len(seen)) for name in names], np.int64)
        code, names = np.where(code >= 0, of[code.clip(0)], -1) if len(of) else code, list(seen)
    code = np.where(code >= 0, code, len(names))
    out = sum_by_name(code, [*names, NO_MODULE], size)
    count = np.zeros(len(names) + 1, np.int64)
    np.add.at(count, code, tensors)
    tensors = count[np.unique(code)]
    kept = np.flatnonzero(out.bytes)  # tensors in storages that another row counts hold nothing
    return Groups([out.names[i] for i in kept.tolist()], out.bytes[kept], tensors[kept])


def when(capture: Capture, record: int, time_ns: int) -> tuple[str, ...]:
    """Returns a note on when the record was made, where that is another moment."""
    records = capture.tables[S.MEMORY_RECORDS.name]
    away = int(records["time_ns"].to_numpy()[record]) - int(time_ns)
    if not away:
        return ()
    tag = str(arrays.pick(records["tag"], [record])[0])
    return (f"parts as the record {tag!r} found them, {abs(away) / 1e6:,.1f} ms {'later' if away > 0 else 'earlier'}",)


# -- What memory in use at a moment of a trace was for ---------------------------------------------------------------
# as a timeline or a recorder beside the trace saw it, else as its events suggest.


ESTIMATED: Final = "estimated from what ran when memory was allocated and freed; store a memory timeline beside the trace to measure it"
ESTIMATED_REST: Final = "activations, inputs and what passes are estimated from what ran when memory was allocated and freed"
MEASURED: Final = "categories as the memory timeline of this worker has them"
PASSING: Final = ("activations", "inputs", "temporary", "autograd_detail")
"""What a recorder that looks at parameters, gradients and optimizers does not see."""


def by_estimated_category(capture: Capture, device: R.Device, live: pd.DataFrame) -> Groups:
    """Groups allocations by their likely category. live: rows of `replay.allocations`, none from before."""
    found, rows = categories(capture, device), live.index.to_numpy()
    code = found["category"].to_numpy()[rows].astype(np.int64)
    around = owners(capture)["around"].to_numpy()[live["row"].to_numpy()].astype(np.int64)
    every = sum_by_name(code, list(NAMES), live["bytes"].to_numpy(), around, estimated=found["estimated"].to_numpy()[rows])
    return _only(every, [name for name in every.names if name != "unknown"])


def by_timeline_category(timeline: Curves, time_ns: int, total: int, *, host: bool) -> Groups | None:
    """Returns categories of a timeline at a time, None where they do not fit into what was in use.

    host: totals leave out what was there before the recording, so that what a category holds all the time is taken off.
    """
    now = of_timeline(timeline, timeline.at(time_ns))
    size = now.bytes
    if host:
        always = lowest_levels(timeline)
        size = size - np.array([always[name] for name in now.names], np.int64)
    if int(size.sum()) > total:
        return None
    return _only(replace(now, bytes=size), [name for name, left in zip(now.names, size.tolist(), strict=True) if left])


def by_recorded_category(capture: Capture, device: int, time_ns: int, total: int, guess: Groups) -> tuple[Groups, tuple[str, ...]] | None:
    """Returns the parts of the record nearest to a time with the estimate of what passes; None without one, or where it does not fit.

    device: as records number it; none of the host, whose totals leave out what a record counts. guess: categories as estimated.
    """
    rows = records_with_parts(capture, device)
    if not len(rows):
        return None
    record = nearest(capture, rows, time_ns)
    seen, passing = of_record(capture, record, "category"), _only(guess, PASSING)
    if int(seen.bytes.sum()) + int(passing.bytes.sum()) > total:
        return None
    none = np.zeros(len(seen.names), bool)
    both = Groups(
        [*seen.names, *passing.names], np.r_[seen.bytes, passing.bytes], np.r_[seen.allocations, passing.allocations],
        np.r_[none, np.ones(len(passing.names), bool)],
        np.r_[np.full(len(seen.names), -1, np.int64), _or(passing.host_row, len(passing.names))],
    )  # fmt: skip
    return both, when(capture, record, time_ns)


def _or(rows: np.ndarray | None, count: int) -> np.ndarray:
    return rows if rows is not None else np.full(count, -1, np.int64)


def _only(groups: Groups, names: Sequence[str]) -> Groups:
    keep = np.flatnonzero([name in names for name in groups.names])
    return Groups(
        [groups.names[i] for i in keep.tolist()], groups.bytes[keep], groups.allocations[keep],
        groups.estimated[keep] if groups.estimated is not None else None,
        groups.host_row[keep] if groups.host_row is not None else None,
    )  # fmt: skip


# -- Attribution from a profiler's memory events, after one of them ---------------------------------------------------


OUTSIDE: Final[dict[By, str]] = {
    "operator": at.NO_OPERATOR,
    "module": "(no module)",
    "frame": "(no python line)",
    "phase": "(no phase)",
}
COLUMN: Final[dict[By, str]] = {"operator": "operator", "module": "module", "frame": "line", "phase": "phase_node"}
RELATIVE: Final = "levels are changes since the beginning: memory from before that was freed since counts negative"
NO_ADDRESSES: Final = "no addresses are recorded: what was freed when is unknown"


def groupings_of_events(capture: Capture, device: R.Device) -> tuple[By, ...]:
    """Returns groupings for which at least one allocation has an owner; none where lifetimes are unknown."""

    def make() -> tuple[By, ...]:
        found, own = R.allocations(capture, device), owners(capture)
        rows = found["row"].to_numpy()[found["paired"].to_numpy() & ~found["before"].to_numpy()]
        return tuple(by for by, column in COLUMN.items() if bool((own[column].to_numpy()[rows] >= 0).any()))

    return memo(capture, ("memory.groupings", device), make)


def live_allocations(capture: Capture, device: R.Device, place: int) -> tuple[pd.DataFrame, int, tuple[str, ...]]:
    """Returns (rows of `allocations` made in the window that are live after event `place`, bytes from before the window, what to know)."""
    r = R.replay(capture, device)
    found = R.allocations(capture, device)
    first, stop = found["first"].to_numpy(), found["stop"].to_numpy()
    own = found["paired"].to_numpy() & (first >= 0)
    freed = found["before"].to_numpy() & (found["last"].to_numpy() <= place)
    before = (r.before if r.known else 0) - int(found["bytes"].to_numpy()[freed].sum())
    notes = [RELATIVE] * (not r.known and before < 0) + [NO_ADDRESSES] * (not bool(found["paired"].to_numpy().all()))

    def make() -> Table:
        rows = np.flatnonzero(own & (first <= place) & ((stop < 0) | (stop > place)))
        return as_table(pd.DataFrame({name: found[name].to_numpy()[rows] for name in found.columns}, index=rows, copy=False))

    live = memo(capture, ("memory.live_at_peak", device), make) if place == r.peak else make()
    return live, max(before, 0) if r.known else before, tuple(notes)  # below 0, totals contradict the frees: the rest says so


def grouped(capture: Capture, live: pd.DataFrame, by: By) -> Groups:
    """Groups rows of `allocations` by what ran when they were made. by: not category."""
    rows, size = live["row"].to_numpy(), live["bytes"].to_numpy()
    own = owners(capture)
    owner = own[COLUMN[by]].to_numpy()[rows].astype(np.int64)
    if by == "phase":
        names = phase_tree(capture).path
        around = own["around"].to_numpy()[rows].astype(np.int64)
        return sum_by_name(np.where(owner >= 0, owner, len(names)), [*names, OUTSIDE[by]], size, around)
    text = arrays.coded(capture.host["name"])
    code = np.where(owner >= 0, text.codes[owner], len(text.categories)) if len(text) else np.full(len(owner), len(text.categories))
    used, place = arrays.in_order(code.astype(np.int64))
    known = [str(name) for name in text.categories.take(used[used < len(text.categories)]).tolist()]
    names = [module_instance(name) for name in known] if by == "module" else known
    return sum_by_name(place, [*names, OUTSIDE[by]], size, owner)


EARLIER_THAN_HISTORY: Final = "what was allocated before the history and freed within it has no call stack"


def groupings_of(capture: Capture, curve: Curves) -> tuple[By, ...]:
    """Returns the groupings that the source of this curve, or what is joined to it, can answer."""
    if curve.source == "events":
        found = groupings_of_events(capture, _device(capture, curve))
        return ("category", *found) if found else ()
    if curve.source == "timeline":
        return ("category",)
    if curve.source == "snapshot":
        every = allocation_history(capture, _number(curve))
        has_stacks = any(every.texts[i] for i in np.unique(every.stack[every.stack >= 0]).tolist())
        known = not curve.relative and (curve_from(capture, curve, "timeline") or len(records_with_parts(capture, _number(curve))))
        return (*(("category",) if known else ()), *(("frame",) if has_stacks else ()))
    rows = records_with_parts(capture, _number(curve))
    return ("category", "module") if len(rows) else ()


def attribution(capture: Capture, curve: Curves, by: By, time_ns: int | None = None) -> Attribution:
    """Attribute what was in use at a time, after all events of that time; None: at the peak of the curve. ValueError for a wrong grouping.

    curve: of this capture; a part of one, or one with fewer points, is treated as if it were whole.
    """
    if by not in GROUPINGS:
        raise ValueError(f"no grouping {by!r}")
    full, place = _placed(capture, curve, time_ns)
    time = curve.peak_ns if time_ns is None else int(time_ns)
    level = int(full.allocated[place]) if full.allocated is not None else 0
    total = curve.peak if time_ns is None else level
    if curve.source == "events":
        return _of_events(capture, curve, by, time, total, place - 1)
    if curve.source == "timeline":
        return attribution_rows(time, total, of_timeline(full, place) if by == "category" else NOTHING)
    if curve.source == "snapshot":
        return _of_snapshot(capture, full, by, time, total, place - 1)
    return _of_records(capture, curve, by, time, total)


def live_at(capture: Capture, curve: Curves, time_ns: int | None = None) -> pd.DataFrame:
    """Returns the allocations of a curve of memory events that `attribution` groups: those in use at a time, None: at the peak."""
    return live_allocations(capture, _device(capture, curve), _placed(capture, curve, time_ns)[1] - 1)[0]


def _placed(capture: Capture, curve: Curves, time_ns: int | None) -> tuple[Curves, int]:
    """Returns the whole curve, and the place in it of a time (None: of the peak)."""
    full = next(c for c in whole(capture) if (c.device, c.source) == (curve.device, curve.source))
    return full, _peak(full, curve) if time_ns is None else full.at(int(time_ns))


def _peak(full: Curves, curve: Curves) -> int:
    """Returns the position in the whole curve of the level that is the peak of a part of it."""
    assert full.allocated is not None
    low = int(np.searchsorted(full.time_ns, curve.peak_ns, side="left"))
    high = int(np.searchsorted(full.time_ns, curve.peak_ns, side="right"))
    same = np.flatnonzero(full.allocated[low:high] == curve.peak)
    if len(same):
        return low + int(same[0])
    return max(low - 1, 0) if low and int(full.allocated[low - 1]) == curve.peak else full.at(curve.peak_ns)


def _device(capture: Capture, curve: Curves) -> R.Device:
    return next(d for d in R.devices(capture) if d.label == curve.device)


def _number(curve: Curves) -> int:
    """Returns `device 3` -> 3; -1 where the source names none."""
    last = curve.device.rpartition(" ")[2]
    return int(last) if last.isdigit() else -1


def _of_events(capture: Capture, curve: Curves, by: By, time: int, total: int, place: int) -> Attribution:
    device = _device(capture, curve)
    live, before, notes = live_allocations(capture, device, place)
    if by != "category":
        return attribution_rows(time, total, grouped(capture, live, by), before=before, notes=notes)
    timeline = curve_from(capture, curve, "timeline")
    seen = by_timeline_category(timeline, time, total, host=device.type == R.CPU) if timeline is not None else None
    if seen is not None:
        return attribution_rows(time, total, seen, notes=(*notes, MEASURED))
    guess = by_estimated_category(capture, device, live)
    found = by_recorded_category(capture, device.id, time, total, guess) if device.type != R.CPU else None
    if found is not None:
        return attribution_rows(time, total, found[0], notes=(*notes, *found[1], ESTIMATED_REST))
    return attribution_rows(time, total, guess, before=before, notes=(*notes, ESTIMATED))


def _of_snapshot(capture: Capture, full: Curves, by: By, time: int, total: int, place: int) -> Attribution:
    if by == "category" and not full.relative:
        return _joined_to_snapshot(capture, full, time, total)
    if by != "frame":
        return attribution_rows(time, total, NOTHING)
    groups, before = by_line(capture, _number(full), place)
    notes = [EARLIER_THAN_HISTORY] * bool(before)
    if full.relative:
        before = -freed_from_before(capture, _number(full), place)
        notes = [RELATIVE] * bool(before)
    return attribution_rows(time, total, groups, before=before, notes=tuple(notes))


def _joined_to_snapshot(capture: Capture, full: Curves, time: int, total: int) -> Attribution:
    """Attribute by category from a timeline or a recorder of the same worker: a snapshot does not record what memory is for."""
    timeline = curve_from(capture, full, "timeline")
    seen = by_timeline_category(timeline, time, total, host=False) if timeline is not None else None
    if seen is not None:
        return attribution_rows(time, total, seen, notes=(MEASURED,))
    found = by_recorded_category(capture, _number(full), time, total, NOTHING)
    return attribution_rows(time, total, found[0], notes=found[1]) if found is not None else attribution_rows(time, total, NOTHING)


def _of_records(capture: Capture, curve: Curves, by: By, time: int, total: int) -> Attribution:
    rows = records_with_parts(capture, _number(curve))
    if by not in ("category", "module") or not len(rows):
        return attribution_rows(time, total, NOTHING)
    record = nearest(capture, rows, time)
    return attribution_rows(time, total, of_record(capture, record, by), notes=when(capture, record, time))
