"""Lists single allocations with their lifetimes, from memory events of a trace or from the history of an allocator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.metrics.memory.attribution import TIMELINE, lowest_levels, of_record, records_with_parts
from tb_sol_plugin.metrics.memory.categories import NAMES, categories, own_line, owners
from tb_sol_plugin.metrics.memory.curves import GAINS, Curves
from tb_sol_plugin.metrics.memory.replay import Device, replay
from tb_sol_plugin.metrics.memory.sources import curve_from, is_host, number_of
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.trees.module_tree import module_instance
from tb_sol_plugin.metrics.trees.phases import STEP, phase_tree
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables.arrays import Ints, Mask, Objects, Rows
from tb_sol_plugin.tables.table import Table, as_table

COLUMNS: Final = ("bytes", "start_ns", "end_ns", "known", "row", "free_row")
NEVER: Final = np.iinfo(np.int64).max


def allocations_of(capture: Capture, curve: Curves) -> Table | None:
    """Returns the allocations of a curve's source, in order of their first event; None where the source records none.

    bytes; start_ns, end_ns (-1: before the recording; NEVER: not freed while recording); known: whether both ends are recorded (where no
    addresses are recorded, an allocation has no end and a free no beginning); row, free_row: of `memory` or `memory_events`, -1 none.
    Shared: not to be changed.
    """
    if curve.source == "events":
        device = next(d for d in R.devices(capture) if d.label == curve.device)
        return memo(capture, ("memory.allocations_of", device), lambda: _frame(R.allocations(capture, device)))
    if curve.source == "snapshot" and len(capture.tables[S.MEMORY_EVENTS.name]):
        number = number_of(curve.device)
        return memo(capture, ("memory.allocations_of", number), lambda: _of_history(capture, number))
    return None


def _frame(found: pd.DataFrame) -> Table:
    first, last = found["first"].to_numpy(), found["last"].to_numpy()
    return as_table(pd.DataFrame({
        "bytes": found["bytes"].to_numpy(), "start_ns": np.where(first >= 0, found["start_ns"].to_numpy(), -1),
        "end_ns": np.where(last >= 0, found["end_ns"].to_numpy(), NEVER),
        "known": found["paired"].to_numpy() & ~found["reused"].to_numpy(), "row": found["row"].to_numpy(),
        "free_row": found["free_row"].to_numpy(),
    }, copy=False))  # fmt: skip


def _of_history(capture: Capture, number: int) -> Table:
    """Pairs the history of a snapshot in the same way: it differs in names only."""
    table = capture.tables[S.MEMORY_EVENTS.name]
    gains = np.array([GAINS.get(str(c), 0) for c in table["action"].cat.categories] + [0], np.int64)[arrays.codes(table["action"])]
    row = np.flatnonzero((table["device"].to_numpy() == number) & (gains != 0))
    time = table["time_ns"].to_numpy()[row]
    if (time < 0).any():  # without times entries stand one after the other, as in the curve
        own = np.flatnonzero(table["device"].to_numpy() == number)
        time = np.searchsorted(own, row).astype(np.int64)
    size = gains[row] * table["bytes"].to_numpy()[row].clip(min=0)
    address = table["address"].to_numpy()[row]
    none = np.full(len(row), -1, np.int64)
    replayed = R.Replay(R.Device(1, number), row, time, size, address, none, none, False, np.cumsum(size), -1, 0)
    return _frame(R.pair_allocations(replayed))


def allocations_in(found: pd.DataFrame, window: tuple[int, int] | None, least: int = 0) -> npt.NDArray[np.intp]:
    """Returns the positions of the allocations of at least so many bytes that begin or end in a window."""
    keep = found["bytes"].to_numpy() >= least
    if window is not None:
        start, end = found["start_ns"].to_numpy(), found["end_ns"].to_numpy()
        begins = (found["row"].to_numpy() >= 0) & (start >= window[0]) & (start <= window[1])
        ends = (found["free_row"].to_numpy() >= 0) & (end >= window[0]) & (end <= window[1])
        keep &= begins | ends
    return np.flatnonzero(keep)


def owner_names(capture: Capture, curve: Curves, found: pd.DataFrame) -> dict[str, npt.NDArray[Any]]:
    """Returns who made each of these allocations: operator, parent, module, phase, frame (texts, "" unknown), step (number, -1 none)."""
    row = found["row"].to_numpy()
    if curve.source != "events":
        stacks = arrays.pick(capture.tables[S.MEMORY_EVENTS.name]["frames"], row.clip(0)) if len(row) else np.zeros(0, object)
        code, distinct = pd.factorize(stacks)
        lines = np.array([own_line(str(text)) for text in distinct], object)
        none = np.full(len(row), "", object)
        frames = np.where(row >= 0, lines[code], "") if len(row) else none
        return dict.fromkeys(("operator", "parent", "module", "phase"), none) | {"frame": frames, "step": np.full(len(row), -1)}
    own = owners(capture)
    rows = {name: np.where(row >= 0, own[name].to_numpy()[row], -1) for name in ("operator", "module", "phase_node", "frame", "step")}
    parent = at.nearest(capture, S.OPERATOR, rows["operator"], strict=True)
    paths = np.array([*("" if p == STEP else p for p in phase_tree(capture).path), ""], object)
    numbers = np.append(capture.steps["number"].to_numpy(), -1)
    return {
        "operator": _names(capture, rows["operator"]), "parent": _names(capture, parent), "module": modules_of(capture, found),
        "phase": paths[rows["phase_node"]], "frame": _names(capture, rows["frame"]), "step": numbers[rows["step"]],
    }  # fmt: skip


def modules_of(capture: Capture, found: pd.DataFrame) -> Objects:
    """Returns the module that made each allocation of memory events, "" for none."""
    row = found["row"].to_numpy()
    return _names(capture, np.where(row >= 0, owners(capture)["module"].to_numpy()[row], -1), module_instance)


def _names(capture: Capture, row: npt.NDArray[np.integer], name_of: Callable[[str], str] = str) -> Objects:
    """Returns names of host rows, "" for -1."""
    out = np.full(len(row), "", object)
    has = row >= 0
    if has.any():
        out[has] = arrays.per_text(capture.host["name"], row[has], name_of, object)
    return out


def states(found: pd.DataFrame, window: tuple[int, int] | None) -> list[str]:
    """Returns what became of each allocation: freed, freed later (than the window), never freed, from before, unknown."""
    start, end = found["start_ns"].to_numpy(), found["end_ns"].to_numpy()
    begun = found["row"].to_numpy() >= 0
    low, high = window if window is not None else (np.iinfo(np.int64).min, NEVER - 1)
    tests = [~found["known"].to_numpy(), ~begun | (start < low), end == NEVER, end > high]
    states: list[str] = _STATES[np.select(tests, range(len(tests)), len(tests))].tolist()
    return states


_STATES: Final = np.array(["unknown", "from before", "never freed", "freed later", "freed"], object)


def lifetimes(found: pd.DataFrame) -> Ints:
    """Returns ns from allocation to free, -1 where one of them is not recorded."""
    start, end = found["start_ns"].to_numpy(), found["end_ns"].to_numpy()
    both = (found["row"].to_numpy() >= 0) & (found["free_row"].to_numpy() >= 0)
    return np.where(both, end - start, -1)


# -- Memory per operator ---------------------------------------------------------------------------------------------
# what its calls added to memory in use, and what they allocated, with what runs inside them and alone.
#
# Size increase is the sum of bytes of all events inside, allocations and frees; "self" counts the events whose innermost operator it is.


def by_operator(capture: Capture, device: Device, window: tuple[int, int] | None = None) -> Table:
    """Returns one row per operator name with a memory event of the device inside, and one with the name "" for events in no operator.

    name, calls (that start in the window; 0 of ""), size_increase, self_size_increase (bytes, frees count negative), allocations,
    self_allocations (events that allocate), allocated_bytes, self_allocated_bytes. window: start and end in ns of the events and calls to
    count, all if None.
    """
    return memo(capture, ("memory.operators", device, window), lambda: _by_operator(capture, device, window))


def _by_operator(capture: Capture, device: Device, window: tuple[int, int] | None) -> Table:
    r = replay(capture, device)
    keep: Mask = np.ones(len(r.row), bool) if window is None else (r.time_ns >= window[0]) & (r.time_ns <= window[1])
    row, size = r.row[keep], r.bytes[keep]
    owner = owners(capture)
    operator = owner["operator"].to_numpy()[row]
    time = capture.tables["memory"]["time_ns"].to_numpy()[row]
    names = len(capture.host["name"].cat.categories)
    gain = size > 0
    outside = operator < 0
    inside = _Operators(capture, operator, time)
    called = inside.name
    if window is not None:
        begin = at.host(capture).start[inside.rows]
        called = called[(begin >= window[0]) & (begin <= window[1])]
    out: dict[str, Ints] = {"calls": np.bincount(called, minlength=names).astype(np.int64)}
    own = np.append(inside.name, -1)[inside.place]
    both = inside.sums(np.where(gain, (1 << 32) + 1, 1), names)  # two counts in one number: a walk up the tree for each takes its time
    alone: dict[str, int] = {}
    for column, values in (("size_increase", size), ("allocations", gain.astype(np.int64)), ("allocated_bytes", np.where(gain, size, 0))):
        out[column] = both >> 32 if column == "allocations" else inside.sums(values, names)
        out[f"self_{column}"] = at.sum_by(own, values, names)
        alone[column] = int(values[outside].sum())
    kept = np.flatnonzero(both)
    columns: dict[str, npt.NDArray[Any]] = {"name": np.array(capture.host["name"].cat.categories.take(kept), object)}
    columns |= {k: v[kept] for k, v in out.items()}
    if outside.any():
        last: dict[str, Any] = {"name": "", "calls": 0} | alone | {f"self_{k}": v for k, v in alone.items()}
        columns = {name: np.append(values, np.array([last[name]], values.dtype)) for name, values in columns.items()}
    order = np.argsort(-columns["self_size_increase"], kind="stable")
    numbers = ("calls", "size_increase", "self_size_increase", "allocations", "self_allocations", "allocated_bytes", "self_allocated_bytes")
    texts = pd.Series(columns["name"][order], dtype=object)
    return as_table(pd.DataFrame({"name": texts, **{name: columns[name][order] for name in numbers}}, copy=False))


class _Tree(NamedTuple):
    """The operators of a recording as a tree of their own: most of the host's rows are others.

    place: of each host row, and -1 for row -1. name: code of each one's name. above: the one around it, -1 none. end: after those inside.
    """

    place: Rows
    name: Rows
    above: Rows
    end: Rows


def _tree(capture: Capture) -> _Tree:
    def make() -> _Tree:
        h, rows = at.host(capture), at.of_kind(capture, S.OPERATOR)
        place = np.full(len(h.start) + 1, -1, np.int32)  # the last for none
        place[rows] = np.arange(len(rows), dtype=np.int32)
        name = arrays.coded(capture.host["name"]).codes[rows].astype(np.int32)
        above = place[at.nearest(capture, S.OPERATOR, rows, strict=True)]
        return _Tree(place, name, above, np.cumsum(at.is_of_kind(capture, S.OPERATOR), dtype=np.int32)[h.end[rows] - 1])

    return memo(capture, ("memory.operator_tree",), make)


class _Operators:
    """Where some events stand among the operators of a recording.

    rows: host rows of these, ascending. name: code of the name per operator. place: the innermost operator around each event, -1 none.
    """

    def __init__(self, capture: Capture, row: Rows, time: Ints) -> None:
        self._tree = _tree(capture)
        self.rows, self.name, self.place = at.of_kind(capture, S.OPERATOR), self._tree.name, self._tree.place[row]
        self._time, self._stop = time, at.host(capture).stop[self.rows]

    def sums(self, values: Ints, names: int) -> Ints:
        """Returns the sum per name over the events inside its calls, each once."""
        found = tree.sum_to_ancestors(self.place, self._time, values, self._tree.above, self._stop, self._tree.end, self.name)
        return np.pad(found, (0, names - len(found)))


# -- What memory is for over time, of the memory events of a trace ---------------------------------------------------
# allocations added up by their category.


LASTING: Final = ("params", "buffers", "master_weights", "main_grads", "exp_avg", "exp_avg_sq", "other_optimizer")
"""Parts that a job holds from its first steps to its end."""


def with_categories(capture: Capture, curve: Curves) -> Curves:
    """Splits the whole curve of memory events into bytes by category at each point; they add up to what is in use, the rest is `unknown`.

    Other sources, curves without totals and recordings without addresses or categories as they are. Categories are those of the memory
    timeline of the same worker where it has one (`measured`); else those but `before` are estimates. What was there before is divided into
    the parts that a record of the program found until then.
    """
    if curve.source != "events" or curve.relative or curve.allocated is None:
        return curve
    timeline = curve_from(capture, curve, "timeline")
    seen = _measured(curve, timeline) if timeline is not None else None
    if seen is not None:
        return seen
    device = next(d for d in R.devices(capture) if d.label == curve.device)
    r, found = R.replay(capture, device), R.allocations(capture, device)
    if not len(found) or not bool(found["paired"].all()) or len(curve.time_ns) != len(r.row) + 1:
        return curve
    code = categories(capture, device)["category"].to_numpy()
    first, stop, size = found["first"].to_numpy(), found["stop"].to_numpy(), found["bytes"].to_numpy()
    levels: dict[str, Ints] = {}
    rest = curve.allocated.copy()
    before = NAMES.index("before")
    for i, name in enumerate(NAMES):
        own = code == i
        if name == "unknown" or not (own.any() or i == before):
            continue
        change = np.zeros(len(curve.time_ns), np.int64)  # one point more than events: that before them
        begun, ended = own & (first >= 0), own & (stop >= 0)
        np.add.at(change, first[begun] + 1, size[begun])
        np.subtract.at(change, stop[ended] + 1, size[ended])
        if i == before:
            change[0] += max(r.before, 0)
        levels[name] = np.cumsum(change)
        rest -= levels[name]
    if not is_host(curve.device):  # a host's totals leave out what a record counts
        levels |= _lasting(capture, device.id, int(curve.time_ns[0]), levels["before"])
    if levels.keys() <= {"before"}:  # nothing is known to be for anything
        return curve
    levels["unknown"] = rest
    if any(int(level.min()) < 0 for level in levels.values()):  # totals contradict the events: a stack would lie
        return curve
    return replace(curve, categories=levels)


def _lasting(capture: Capture, device: int, start_ns: int, before: Ints) -> dict[str, Ints]:
    """Divides what was there before: parts that last, as the last record until `start_ns` found them, and the rest of it. Empty where no
    record looked until then, or where more of it goes than they leave: then they were not all there."""
    rows = records_with_parts(capture, device)
    rows = rows[capture.tables[S.MEMORY_RECORDS.name]["time_ns"].to_numpy()[rows] <= start_ns]
    if not len(rows):
        return {}
    found = of_record(capture, int(rows[-1]), "category")
    size = {n: int(b) for n, b in zip(found.names, found.bytes.tolist(), strict=True) if n in LASTING and b > 0}
    if not size or sum(size.values()) > int(before.min()):
        return {}
    return {n: np.full(len(before), b, np.int64) for n, b in size.items()} | {"before": before - sum(size.values())}


def _measured(curve: Curves, timeline: Curves) -> Curves | None:
    """Returns categories of a timeline at the times of the curve; None where they do not fit into what was in use.

    A host's totals leave out what was there before the recording, so that what a category holds all the time is taken off.
    """
    assert curve.allocated is not None
    place = np.searchsorted(timeline.time_ns, curve.time_ns, side="right") - 1
    always = lowest_levels(timeline) if is_host(curve.device) else {}
    levels: dict[str, Ints] = {}
    rest = curve.allocated.copy()
    for name, level in timeline.categories.items():
        if name in TIMELINE:
            levels[TIMELINE[name]] = np.where(place >= 0, level[place.clip(0)] - always.get(TIMELINE[name], 0), 0)
            rest -= levels[TIMELINE[name]]
    levels["unknown"] = rest
    if any(int(level.min()) < 0 for level in levels.values()):
        return None
    return replace(curve, categories=levels, measured=True)
