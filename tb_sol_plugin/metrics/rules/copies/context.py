"""Holds the context of rules about copies: the copies of a selection, what blocked the host, and which time could be saved."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.copies.bandwidth import LARGE, latency_fit, rate
from tb_sol_plugin.metrics.copies.blocking import inside_rows
from tb_sol_plugin.metrics.copies.records import COLORS, busy, frame_text, kinds_text, memory_kinds
from tb_sol_plugin.metrics.copies.thresholds import Thresholds
from tb_sol_plugin.metrics.rules.engine import CaptureContext, Finding, Subject, count_text
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.breakdown import device_word, host_idle
from tb_sol_plugin.metrics.time.frames import program_frames
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.trees.module_tree import module_instance
from tb_sol_plugin.metrics.trees.phases import STEP, phase_tree
from tb_sol_plugin.metrics.work.ownership import above, outermost_operators
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints, Mask, Objects, Places
from tb_sol_plugin.units import capitalized, how_many, human

T = TypeVar("T")
PAGE: Final = "memcpy_findings"
"""The analysis that shows the copies behind a finding."""


@dataclass(frozen=True)
class CopyColumns:
    """What rules ask of the copies of a selection, whoever has claimed some of them: found once, shared by all contexts of the selection.

    copies: `records.copies` of the selection. stepped: it is of recorded steps.
    """

    capture: Capture
    copies: pd.DataFrame
    stepped: bool

    @cached_property
    def direction(self) -> Objects:
        return self.copies["direction"].to_numpy(object)

    @cached_property
    def directions(self) -> tuple[npt.NDArray[np.intp], list[str]]:
        """(code per copy, names) of the directions."""
        code, names = memory_kinds(self.copies).column(0)
        return code, names.tolist()

    def going(self, *directions: str) -> Mask:
        """Returns copies of some directions."""
        code, names = self.directions
        return np.array([*(n in directions for n in names), False], np.bool_)[code]

    @cached_property
    def bytes(self) -> Ints:
        return self.copies["bytes"].to_numpy()

    @cached_property
    def duration(self) -> Ints:
        return self.copies["duration_ns"].to_numpy()

    @cached_property
    def start(self) -> Ints:
        return self.copies["start_ns"].to_numpy()

    @cached_property
    def end(self) -> Ints:
        return self.start + self.duration

    @cached_property
    def exposed(self) -> Ints:
        return self.copies["exposed_ns"].to_numpy()

    @cached_property
    def device(self) -> npt.NDArray[np.integer]:
        return self.copies["device"].to_numpy()

    @cached_property
    def lane(self) -> Ints:
        """A number per device and stream."""
        return arrays.together(self.device, self.copies["stream"].to_numpy())

    @cached_property
    def module(self) -> npt.NDArray[np.integer]:
        return self.copies["module"].to_numpy()

    @cached_property
    def step(self) -> Ints:
        """Row of the step, -1 outside; a recording without steps is one."""
        steps = self.copies["step"].to_numpy().astype(np.int64)
        return steps if self.stepped else np.zeros(len(steps), np.int64)

    @cached_property
    def pageable(self) -> Mask:
        return memory_kinds(self.copies).having(lambda _, src, dst: "Pageable" in (src, dst))

    @cached_property
    def managed(self) -> Mask:
        return memory_kinds(self.copies).having(lambda _, src, dst: src.startswith("Managed") or dst.startswith("Managed"))

    @cached_property
    def path(self) -> Ints:
        """A number per chain of operators around the call: equal for equal names from the innermost to the outermost."""
        return self._paths(np.arange(len(self.copies)))

    @cached_property
    def uploads(self) -> tuple[Places, Ints]:
        """Copies to the device, and a number for the place in the program of each, alike for one chain of operators."""
        rows = np.flatnonzero(self.going("HtoD"))
        return rows, arrays.together(self._paths(rows))

    def _paths(self, rows: Places) -> Ints:
        h = at.host(self.capture)
        if not len(h.start):
            return np.zeros(len(rows), np.int64)
        name = arrays.coded(self.capture.host["name"]).codes
        row = self.copies["operator"].to_numpy()[rows].astype(np.int64)
        distinct, place = np.unique(row, return_inverse=True)
        code, left = np.zeros(len(distinct), np.int64), np.flatnonzero(distinct >= 0)
        row = distinct[left]
        while len(left):
            counts = h.kind[row] == S.OPERATOR
            with np.errstate(over="ignore"):
                code[left[counts]] = code[left[counts]] * 1_000_003 + name[row[counts]].astype(np.int64) + 1
            row = h.parent[row].astype(np.int64)
            left, row = left[row >= 0], row[row >= 0]
        return code[place.reshape(-1)]

    @cached_property
    def position(self) -> Ints:
        """Place of each copy among the events of the recording ordered by device, stream and start: neighbors follow each other."""
        return np.asarray(in_line(self.capture)[self.copies["row"].to_numpy()], np.int64)

    @cached_property
    def _known(self) -> dict[tuple[str, ...], object]:
        return {}

    def under(self, expression: str, kind: int) -> Mask:
        """Returns copies whose call lies inside of a host row of a kind whose name matches an expression from its start on."""
        if not len(self.capture.host):
            return np.zeros(len(self.copies), bool)

        def make() -> Mask:
            match = re.compile(expression).match
            rows = at.named(self.capture, kind, lambda n: match(n) is not None)
            none = np.zeros(len(self.copies), bool)
            return inside_rows(self.capture, self.copies, at.mask_of(self.capture, rows)) if len(rows) else none

        return self._once("under", expression, make=make)

    def fit(self, direction: str) -> tuple[float, float] | None:
        """Returns (latency in ns, bytes/s) of a direction, None where the copies do not show it."""
        return latency_fit(self.copies, direction)

    def _once(self, *key: str, make: Callable[[], T]) -> T:
        if key not in self._known:
            self._known[key] = make()
        return cast(T, self._known[key])


@dataclass
class CopyContext(CaptureContext):
    """The copies of a selection of one recording.

    columns: what does not depend on what was claimed; waits: `blocking` of the copies, in the same order. peaks: as `bandwidth.peaks` gives
    them. inside: copies that count, those of the selected steps (all where none was recorded) that no finding has claimed. windows:
    these steps in time. free: the parts of them that no finding has claimed. steps: what a saving divides by. asked: whether a finding
    of a direction, and about the host or not, is asked for; evidence for others is not written. counted: copies by which `once` is judged.
    """

    subject: ClassVar[Subject] = "copies"
    where: Scope
    columns: CopyColumns
    waits: pd.DataFrame
    peaks: dict[str, tuple[float, str]]
    thresholds: Thresholds
    inside: Mask
    windows: iv.Spans
    steps: int
    free: iv.Spans
    asked: Callable[[str, bool], bool] = lambda direction, host: True
    counted: Mask | None = None

    @property
    def copies(self) -> pd.DataFrame:
        """Rows of `records.copies`."""
        return self.columns.copies

    @cached_property
    def least(self) -> float:
        """Smallest saving that is shown, in ns per step: a thousandth of a step, or what the thresholds demand."""
        return self.thresholds.least_share * iv.length(self.windows) / self.steps

    def large_enough(self, found: Finding) -> bool:
        """Tells whether a finding saves enough to be shown."""
        return found.saving >= self.least

    def keep(self, found: Finding) -> None:
        """Notes a finding that is shown: its copies, and the time it would save, are offered to no later rule."""
        super().keep(found)
        self.inside[found.rows] = False
        self.free = iv.subtract(self.free, found.spans)

    def can_find(self, direction: str, host: bool) -> bool:
        """Tells whether a finding about copies of a direction, and about the host or not, could save enough to be shown.

        The host can only be held by those that block it; copies inside of a device hold no one else but where their memory is unified, so
        that no finding about them saves more than the time that they take.
        """
        rows = np.flatnonzero(self.inside & self.going(direction))
        if host:
            return bool((self.waits["reason"].to_numpy(object)[rows] != "").any())
        if direction != "DtoD" or self.managed[rows].any():
            return len(rows) > 0
        return int(self.duration[rows].sum()) // self.steps >= max(self.least, 1)

    # -- columns ----------------------------------------------------------------------------------------------

    @property
    def direction(self) -> Objects:
        return self.columns.direction

    @property
    def bytes(self) -> Ints:
        return self.columns.bytes

    @property
    def duration(self) -> Ints:
        return self.columns.duration

    @property
    def start(self) -> Ints:
        return self.columns.start

    @property
    def end(self) -> Ints:
        return self.columns.end

    @property
    def step(self) -> Ints:
        return self.columns.step

    @property
    def pageable(self) -> Mask:
        return self.columns.pageable

    @property
    def managed(self) -> Mask:
        return self.columns.managed

    @property
    def path(self) -> Ints:
        return self.columns.path

    @property
    def position(self) -> Ints:
        return self.columns.position

    def going(self, *directions: str) -> Mask:
        """Returns copies of some directions."""
        return self.columns.going(*directions)

    def under(self, *, operator: str = "", annotation: str = "") -> Mask:
        """Returns copies whose call lies inside of an operator, or of a user range, whose name matches an expression from its start on."""
        return self.columns.under(operator or annotation, S.OPERATOR if operator else S.ANNOTATION)

    @cached_property
    def once(self) -> Mask:
        """Copies to the device of data that is not moved in every step: parameters, constants, what is loaded when a program begins.

        With several steps: of a place in the program (chain of operators) and a size that come in fewer than half of them, in a step with
        over twice the bytes that this place usually has. Without a recorded step: of a place and a size that come in one go, without a
        kernel between. Of a single step nothing tells.
        """
        up, place = self.columns.uploads
        out = np.zeros(len(self.copies), np.bool_)
        if not len(up) or (self.where.rows and self.steps < 2):
            return out
        same = arrays.together(place, self.bytes[up])
        if not self.where.rows:
            device = self.capture.device
            kernels = np.sort(device["start_ns"].to_numpy()[device["kind"].to_numpy() == S.KERNEL])
            out[up] = _distinct(same, np.searchsorted(kernels, self.start[up]))[same] == 1
            return out
        inside = np.flatnonzero(self.settle()[up])
        rows, place, same = up[inside], place[inside], same[inside]
        _, step = np.unique(self.step[rows], return_inverse=True)
        often = _distinct(same, step, int(same.max(initial=0)) + 1)
        total = np.zeros((int(place.max(initial=0)) + 1, self.steps), np.int64)
        np.add.at(total, (place, step), np.maximum(self.bytes[rows], 0))
        more = total > 2 * np.median(total, axis=1, keepdims=True)
        out[rows] = (2 * often[same] < self.steps) & more[place, step]
        return out

    def settle(self) -> Mask:
        """Returns the copies by which `once` is judged, whenever it is asked for: those that no finding held when this was asked first."""
        if self.counted is None:
            self.counted = self.inside.copy()
        return self.counted

    def mostly_once(self, rows: Places) -> bool:
        """Tells whether most bytes of some copies are not moved in every step."""
        size = np.maximum(self.bytes[rows], 0)
        return bool(2 * int(size[self.once[rows]].sum()) > int(size.sum()))

    # -- time that could be saved -----------------------------------------------------------------------------

    def on_device(self, rows: Places) -> iv.Spans:
        """Returns when some copies run while no kernel of their device does, inside the free parts of the windows."""
        device = self.columns.device[rows]
        parts = []
        for one in np.unique(device).tolist():
            on_device = rows[device == one]
            parts.append(iv.subtract(iv.union(self.start[on_device], self.end[on_device]), busy(self.capture, one, communication=True)))
        return iv.intersect(iv.merge(*parts), self.free) if parts else iv.empty()

    def on_host(self, rows: Places) -> iv.Spans:
        """Returns when the device is idle because some copies block the host, inside the free parts of the windows."""
        start, pause, resume, until = (self.waits[c].to_numpy()[rows] for c in ("from_ns", "pause_ns", "resume_ns", "idle_until_ns"))
        blocked = iv.union(np.concatenate((start, resume)), np.concatenate((pause, until)))
        return iv.intersect(iv.intersect(host_idle(self.capture), blocked), self.free)

    def fit(self, direction: str) -> tuple[float, float] | None:
        """Returns (latency in ns, bytes/s) of a direction, None where the copies do not show it."""
        return self.columns.fit(direction)

    # -- findings ---------------------------------------------------------------------------------------------

    def saving(self, spans: iv.Spans, most_ns: float) -> int:
        """Returns what is saved per step where the time of `spans` is, and no more than `most_ns` over all steps."""
        return int(min(most_ns, iv.length(spans))) // self.steps

    def shows(self, spans: iv.Spans, most_ns: float = np.inf) -> bool:
        """Tells whether that is enough to be shown."""
        return self.saving(spans, most_ns) >= max(self.least, 1)

    def finding(
        self, rows: Places, *, spans: iv.Spans, most_ns: float = np.inf, note: str = "", direction: str = "", rule: str = "",
        title: str = "", fix: str = "", host: bool = False,
    ) -> Finding | None:  # fmt: skip
        """Returns a finding whose saving is the time of `spans`, and no more than `most_ns` over all steps; None where that is too little.

        It is possible, not proven, where most of what it is about is uploaded once: later steps may not pay for it.
        """
        saving = self.saving(spans, most_ns)
        if not len(rows) or not self.shows(spans, most_ns):
            return None
        main = direction or str(self.direction[rows[0]])
        told = evidence(self, rows, spans, note, host=host) if self.asked(main, host) else ""
        return Finding(
            evidence=told, saving=saving, rule=rule, title=title, fix=fix, page=PAGE,
            label="The copy" if len(rows) == 1 else how_many(len(rows), "copy", "copies"),
            color="host" if host else COLORS.get(main, "memcpy"),
            rows=rows, spans=spans, direction=main, host=host, candidate=main == "HtoD" and self.mostly_once(rows),
            host_ns=int(self.waits["lost_ns"].to_numpy()[rows].sum()) // self.steps,
        )  # fmt: skip


def _distinct(code: npt.NDArray[np.int64], value: npt.NDArray[np.integer], size: int = 0) -> npt.NDArray[np.int64]:
    """Returns how many distinct values each code comes with."""
    wide = int(value.max(initial=0)) + 2
    pairs = pd.unique(code * wide + value + 1) // wide
    return np.bincount(pairs, minlength=size or int(code.max(initial=-1)) + 1)


def in_line(capture: Capture) -> npt.NDArray[np.int64]:
    """Returns the place of each device row among all, ordered by device, stream and start."""

    def make() -> npt.NDArray[np.int64]:
        device = capture.device
        order = np.lexsort((device["start_ns"].to_numpy(), device["stream"].to_numpy(), device["device"].to_numpy()))
        out = np.empty(len(order), np.int64)
        out[order] = np.arange(len(order))
        return out

    return memo(capture, ("copies.in_line",), make)


# -- Evidence in words -----------------------------------------------------------------------------------------------
# how many copies, how large, between which kinds of memory, how long the host was blocked, and where in the program.


_ENGINE: Final = "autograd::engine::evaluate_function: "
def evidence(context: CopyContext, rows: Places, spans: iv.Spans, note: str, *, host: bool) -> str:
    """Returns one or two lines of evidence.

    spans: when the device does nothing but these copies, or idles for them. host: of a finding about the host.
    """
    capture, found, where = context.capture, context.copies, context.where
    steps = context.steps if where.rows else 0
    parts = [f"{often(len(rows), steps)}{_size(found, rows, steps)}{kinds(found, rows)}"]
    each = " per step" if where.rows else ""
    duration, blocked = context.duration[rows], context.waits["host_ns"].to_numpy()[rows]
    unit = device_word(capture)
    own = iv.union(context.start[rows], context.end[rows])
    alone_ns, run_ns = iv.length(spans) // context.steps, iv.length(iv.intersect(spans, own)) // context.steps
    if host:
        total = int(context.waits["lost_ns"].to_numpy()[rows].sum()) // context.steps
        idle = f"the {unit} has no work for {human(alone_ns, 'ns')} of that" if alone_ns < total else f"the {unit} has no work meanwhile"
        once = f", {human(int(blocked.max()), 'ns')} at most at once" if len(rows) > 1 else ""
        parts.append(f"the host is blocked for {human(total, 'ns')}{each}{once}; {idle}")
    else:
        longest = f", the longest {human(int(duration.max()), 'ns')}" if len(rows) > 1 else ""
        total = int(duration.sum()) // context.steps
        parts.append(f"{human(total, 'ns')}{each}{longest}")
        if run_ns < total:
            parts.append(f"nothing else runs for {human(run_ns, 'ns')} of that")
        if alone_ns > run_ns:
            parts.append(f"the {unit} idles another {human(alone_ns - run_ns, 'ns')}{each} while they hold the host")
    if note:
        parts.append(note)
    place = place_text(capture, found, rows, blocked if host else duration)
    text = "; ".join(parts) + (f". Most {place}." if place else ".")
    return capitalized(text)


def often(count: int, steps: int) -> str:
    """Returns `34 copies per step`, `3 copies in 5 steps`; without steps `34 copies`."""
    words = count_text(count, "copy", "copies")
    if not steps:
        return words
    if count < steps or (count % steps and count < 10 * steps):
        return f"{words} in {steps} steps" if steps > 1 else words
    each = round(count / steps)
    return f"{count_text(each, 'copy', 'copies')} per step"


def _size(found: pd.DataFrame, rows: Places, steps: int) -> str:
    size, duration = found["bytes"].to_numpy()[rows], found["duration_ns"].to_numpy()[rows]
    known = size >= 0
    if not known.any():
        return ""
    most, total = int(size[known].max()), int(size[known].sum())
    speed = rate(np.array([total]), np.array([int(duration[known].sum())]))[0]
    fast = f" at {human(float(speed), 'B/s')}" if most >= LARGE and np.isfinite(speed) else ""
    if len(rows) == 1:
        return f" of {human(most, 'B')}{fast}"
    together = f"{human(total // steps, 'B')} per step" if steps else f"{human(total, 'B')} in all"
    if int(size[known].min()) == most:
        return f" of {human(most, 'B')}{fast}" if len(rows) == steps else f" of {human(most, 'B')} each, {together}{fast}"
    return f" of up to {human(most, 'B')}, {together}{fast}"


def kinds(found: pd.DataFrame, rows: Places) -> str:
    """Returns `, Pinned → Device`; nothing where no kind was recorded, or more than two sorts."""
    code, known = memory_kinds(found)
    pairs = {known[i][1:] for i in np.flatnonzero(np.bincount(code[rows], minlength=len(known))).tolist()}
    texts = sorted(kinds_text(a, b) for a, b in pairs if a or b)
    return f", {' and '.join(texts)}" if 0 < len(texts) <= 2 else ""


def place_text(capture: Capture, found: pd.DataFrame, rows: Places, weight: npt.NDArray[np.int64]) -> str:
    """Returns where most of some copies come from: `` in `aten::item` of `Net_0` at train.py:12 step ``. "" where nothing is known."""
    if not len(capture.host):
        return ""
    host = capture.host["name"]
    operator, module, node, own, start = (
        found[c].to_numpy()[rows] for c in ("operator", "module", "phase_node", "frame", "call_start_ns")
    )
    outer, frame = outermost_operator(capture, operator), user_frames(capture, own, start)
    name = arrays.coded(host).codes
    group = arrays.together(*(np.where(row >= 0, name[row], -1) for row in (outer, module, frame)), node)
    total = np.bincount(group, weight.astype(np.float64) + 1e-9)
    at_row = int(np.flatnonzero(group == total.argmax())[0])
    parts = []
    if outer[at_row] >= 0:
        parts.append(f"in `{str(arrays.pick(host, [outer[at_row]])[0]).removeprefix(_ENGINE)}`")
    if module[at_row] >= 0:
        parts.append(f"of `{module_instance(str(arrays.pick(host, [module[at_row]])[0]))}`")
    elif node[at_row] >= 0:
        path = phase_tree(capture).path[int(node[at_row])]
        if path != STEP:
            parts.append(f"in {path.removeprefix(STEP + '/').rpartition('/')[2]}")
    if frame[at_row] >= 0:
        parts.append(f"at `{frame_text(capture, [frame[at_row]])[0]}`")
    return " ".join(parts)


def user_frames(capture: Capture, frame: npt.NDArray[np.integer], start: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns the host row of the innermost python frame around some calls that is no part of torch.

    Without one it is the innermost of any file, which is `frame`; -1 without that too. start: of each call, ns.
    """
    h = at.host(capture)
    own = frame.astype(np.int64)
    if not (own >= 0).any():
        return own
    better = tree.nearest(program_frames(capture), h.parent, h.stop, own.astype(np.int32), start, h.end)
    return np.asarray(np.where(better >= 0, better, own), np.int64)


def outermost_operator(capture: Capture, operator: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Returns the host row of the outermost operator around each of some operators' rows, -1 for -1."""
    return above(outermost_operators(capture), at.host(capture).end, operator)
