"""Selects the part of a recording that a query names: the device rows, the host rows, the window and the steps."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.requirements import MEMORY_KINDS
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Mask

# -- Where the work of a capture comes from --------------------------------------------------------------------------
# the operators of a trace, the ledger of a SOL capture, or a trace with a SOL capture beside it.
#
# A profile of Proton has a ledger too: kernels summed over the whole profile, by scope, with device times and without any event.
#
# A SOL capture counts the work of its sampled iterations at the operators themselves, forward and backward, and knows the module and the
# phase of every call. It holds no events of single operators: on a CPU the time of each kind of call, on other devices that of whole
# phases and modules.


Rows = npt.NDArray[np.int64]

SOL_CAPTURE: Final = "sol_capture"
PROTON: Final = "proton"
Source = Literal["trace", "capture", "both"]
MOST_CALLS: Final = 2_000_000
"""Calls whose work is read; of more, those of the last sampled iterations."""
DIFFERS: Final = 0.1
"""A sampled iteration that lasts so much longer or shorter than the others is reported."""


def source_of(capture: Capture) -> Source:
    """Returns what the work of the pages is made from."""
    if capture.facts.source in (SOL_CAPTURE, PROTON):
        return "capture"
    return "both" if len(capture.tables["ledger"]) else "trace"


def engine_of(capture: Capture) -> str:
    """Returns the serving engine whose annotations the steps of a recording are, "" without one."""
    return memo(capture, ("engine_of",), lambda: next((str(name) for name in capture.steps["engine"].unique() if name), ""))


def is_capture(capture: Capture) -> bool:
    """Returns whether this is a SOL capture alone: no operator events, the work in its ledger."""
    return capture.facts.source == SOL_CAPTURE


def is_uncounted(capture: Capture) -> bool:
    """Returns whether this is a SOL capture of which no iteration was sampled: times are there, its work is not known."""
    return is_capture(capture) and not bool(capture.tables["iterations"]["sampled"].to_numpy().any()) and not len(capture.tables["ledger"])


def is_profile(capture: Capture) -> bool:
    """Returns whether this is a profile without events: device time and stated work by kernel and scope."""
    return capture.facts.source == PROTON


def is_memory(capture: Capture) -> bool:
    """Returns whether this is a recording of memory alone: a timeline of a profiler or a snapshot of an allocator."""
    return capture.facts.source in MEMORY_KINDS


def has_ledger(capture: Capture) -> bool:
    """Returns whether any work was counted: by a SOL capture, alone or beside a trace, or in a profile."""
    return len(capture.tables["ledger"]) > 0


def on_cpu(capture: Capture) -> bool:
    """Returns whether a SOL capture was made on a CPU, where single calls are timed."""
    return not capture.facts.devices


def calls_timed(capture: Capture) -> bool:
    """Returns whether times of single calls of a SOL capture are those of the program.

    They are not on a device, nor where compiled code ran eagerly.
    """
    ledger = capture.tables["ledger"]
    return bool(np.isfinite(ledger["time_ns"].to_numpy(dtype=np.float64)).any()) and not ledger["compiled"].to_numpy(dtype=bool).any()


def counted_steps(capture: Capture) -> Rows:
    """Returns rows of `steps` of a SOL capture whose work is counted: all sampled ones, the last where they hold more than MOST_CALLS.

    Those that evaluated the model too are left out where others did not: no other iteration does their work.
    """

    def make() -> Rows:
        ledger = capture.tables["ledger"]
        steps = np.arange(len(capture.steps), dtype=np.int64)
        own = ledger["step"].to_numpy().astype(np.int64)
        evaluates = evaluating_steps(capture)
        use = own >= 0
        calls = np.bincount(own[use], ledger["count"].to_numpy().clip(min=0)[use], minlength=len(steps))
        kept = np.cumsum(calls[::-1])[::-1] <= MOST_CALLS
        if len(kept):
            kept[-1] = True
        return steps[kept & ~evaluates] if (kept & ~evaluates).any() else steps[kept]

    return memo(capture, ("source.steps",), make)


def evaluating_steps(capture: Capture) -> Mask:
    """Returns which rows of `steps` of a SOL capture trained and evaluated the model in one iteration."""
    table = capture.tables["iterations"]
    numbers = table["number"].to_numpy()[table["evaluation_ns"].to_numpy() > 0]
    return np.isin(capture.steps["number"].to_numpy(), numbers)


class StepTime(Struct, frozen=True):
    """Lengths of the iterations that were not sampled, but do the same work as the sampled ones.

    median_ns: of their host time; device_ns: of their device time, NaN where it was not measured. count: how many there are.
    sampled_ns, sampled_device_ns: mean over the sampled iterations. each_ns: host median of the iterations like it, per sampled one.
    """

    median_ns: float
    device_ns: float
    count: int
    sampled_ns: float
    sampled_device_ns: float
    each_ns: tuple[float, ...]

    @property
    def length_ns(self) -> float:
        """The device's time where it was measured, else the host's."""
        return self.device_ns if self.device_ns == self.device_ns else self.median_ns

    @property
    def ratio(self) -> float:
        """Sampled over unsampled, NaN where one of them is unknown."""
        return self.sampled_ns / self.median_ns if self.median_ns else float("nan")


def step_time(capture: Capture, rows: tuple[int, ...]) -> StepTime | None:
    """Returns how long the steps `rows` take while nothing is counted; None where no such iteration was recorded.

    Iterations of one signature do the same work; of one without, nothing is known. Of each step counts the median of its kind, of the
    whole their mean.
    """
    return memo(capture, ("source.step_time", rows), lambda: _step_time(capture, rows))


def unsampled_alike(capture: Capture, rows: tuple[int, ...]) -> list[Rows] | None:
    """Returns per step of `rows` the numbers of the iterations that were not sampled and had inputs of the same sizes.

    None where one has none.
    """
    table = capture.tables["iterations"]
    if not len(table) or not rows:
        return None
    number = table["number"].to_numpy()
    signature = arrays.codes(table["signature"])
    plain = ~table["sampled"].to_numpy() & (number > 0) & arrays.where(table["signature"], bool)
    out = []
    for step in capture.steps["number"].to_numpy()[list(rows)].tolist():
        here = np.flatnonzero(number == step)
        alike = plain & (signature == signature[here[-1]]) if len(here) else np.zeros(len(number), bool)
        if not alike.any():
            return None
        out.append(number[alike].astype(np.int64))
    return out


def _step_time(capture: Capture, rows: tuple[int, ...]) -> StepTime | None:
    alike = unsampled_alike(capture, rows)
    if alike is None:
        return None
    table = capture.tables["iterations"]
    number = table["number"].to_numpy()
    duration = table["duration_ns"].to_numpy(dtype=np.float64)
    device = table["device_ns"].to_numpy(dtype=np.float64)
    median, on_device, own, own_device = [], [], [], []
    for step, numbers in zip(capture.steps["number"].to_numpy()[list(rows)].tolist(), alike, strict=True):
        same = np.isin(number, numbers) & ~table["sampled"].to_numpy()
        here = np.flatnonzero(number == step)[-1]
        median.append(float(np.median(duration[same])))
        known = same & np.isfinite(device)
        on_device.append(float(np.median(device[known])) if known.any() else np.nan)
        own.append(float(duration[here]))
        own_device.append(float(device[here]))
    count = len(np.unique(np.concatenate(alike)))
    mean = [float(np.mean(values)) for values in (median, on_device, own, own_device)]
    return StepTime(mean[0], mean[1], count, mean[2], mean[3], tuple(median))


class Scope(Struct, frozen=True):
    """A selection of steps, resolved against one capture.

    device: per device row, whether its launch starts in a selected step; all rows for the whole recording, so work launched
    before the window or outside every step is in it too. host: per host row, whether it starts in a selected step (host bounds).
    The whole of a SOL capture are the steps whose work is read.
    window_ns: first start and last end of the selected steps (GPU-aware bounds), or the extent of the recording.
    rows: rows of `steps`; for the whole recording all recorded steps. steps: their numbers.
    step_count: what to divide by for a per-step average: 1 where no step was recorded. whole: no step was asked for.
    """

    device: Mask
    host: Mask
    window_ns: tuple[int, int]
    rows: tuple[int, ...]
    steps: tuple[int, ...]
    step_count: int
    label: str
    whole: bool

    @property
    def window_length_ns(self) -> int:
        return self.window_ns[1] - self.window_ns[0]


def scope(capture: Capture, query: Query) -> Scope:
    """Returns the part of `capture` that `query.step` names: "" (whole recording), "12" or "12-15". BadQuery for an unknown step."""
    return memo(capture, ("scope", query.step.strip()), lambda: _scope(capture, query.step.strip()))


def _scope(capture: Capture, text: str) -> Scope:
    steps = capture.steps
    numbers = steps["number"].to_numpy()
    recorded = np.flatnonzero(numbers >= 0) if not capture.facts.pseudo_step else np.zeros(0, np.int64)
    on_host = np.ones(len(capture.host), bool)
    if is_capture(capture) and len(recorded):
        recorded = counted_steps(capture)
        on_host = _in_steps(capture, recorded)
    if not text:
        return Scope(
            np.ones(len(capture.device), bool),
            on_host,
            extent(capture),
            tuple(recorded.tolist()),
            tuple(numbers[recorded].tolist()),
            max(len(recorded), 1),
            "whole recording",
            True,
        )
    low, high = step_bounds(text)
    chosen = recorded[(numbers[recorded] >= low) & (numbers[recorded] <= high)]
    if not len(chosen):
        hint = f"recorded: {_span(numbers[recorded])}" if len(recorded) else "this recording has no steps; leave step empty"
        raise BadQuery(f"no step {text}", hint=hint, field="step")
    return Scope(
        _of_steps(capture, chosen),
        _in_steps(capture, chosen),
        (int(steps["start_ns"].to_numpy()[chosen].min()), int(steps["end_ns"].to_numpy()[chosen].max())),
        tuple(chosen.tolist()),
        tuple(numbers[chosen].tolist()),
        len(chosen),
        f"{'step' if len(chosen) == 1 else 'steps'} {_span(numbers[chosen])}, {len(chosen)} of {len(recorded)}",
        False,
    )


def _in_steps(capture: Capture, rows: npt.NDArray[np.int64]) -> Mask:
    """Returns per host row whether it starts within the host bounds of one of some steps."""
    start, end = iv.union(*(capture.steps[c].to_numpy()[rows] for c in ("host_start_ns", "host_end_ns")))
    begins = memo(capture, ("scope.threads",), lambda: _begins(capture))
    at = capture.host["start_ns"].to_numpy()
    if len(start) * len(begins) > len(at):
        return _starts_inside(at, start, end)
    out = np.zeros(len(at), np.bool_)  # the rows of a thread are in order: those of a step are found, not looked for
    for first, last in pairwise([*begins, len(at)]):
        there = at[first:last]
        for low, high in zip(there.searchsorted(start).tolist(), there.searchsorted(end).tolist(), strict=True):
            out[first + low : first + high] = True
    return out


def _begins(capture: Capture) -> list[int]:
    """Returns the first host row of each thread."""
    thread = capture.host["thread"].to_numpy()
    return [*([0] if len(thread) else []), *(np.flatnonzero(thread[1:] != thread[:-1]) + 1).tolist()]


def _of_steps(capture: Capture, rows: npt.ArrayLike) -> Mask:
    """Returns per device row whether it is of one of some steps."""
    out = np.zeros(len(capture.device), np.bool_)
    out[device_rows(capture, rows)] = True
    return out


def device_rows(capture: Capture, rows: npt.ArrayLike) -> Rows:
    """Returns the device rows of some steps, step by step; `rows` are those of `steps`."""
    order, first = memo(capture, ("scope.device_rows",), lambda: _by_step(capture))
    wanted = np.asarray(rows, np.int64)
    return order[arrays.ranges(first[wanted], first[wanted + 1] - first[wanted])].astype(np.int64)


def _by_step(capture: Capture) -> tuple[npt.NDArray[np.int32], Rows]:
    """Returns (device rows by step, those of no step first; where each step begins in it, and where the last ends)."""
    step = capture.device["step"].to_numpy()
    order = np.argsort(step, kind="stable").astype(np.int32)
    return order, np.searchsorted(step[order], np.arange(len(capture.steps) + 1))


def in_steps(capture: Capture, where: Scope) -> Mask:
    """Returns device rows of a selection that its steps launched; all of them where no step was recorded."""
    return where.device & _of_steps(capture, where.rows) if where.rows else where.device


def complete_steps(capture: Capture, where: Scope) -> Scope:
    """Returns a selection without its incomplete steps, for averages per step; as it is where no step or no other one was recorded."""
    complete = capture.steps["complete"].to_numpy()[list(where.rows)]
    if complete.all() or not complete.any():
        return where
    rows = np.array(where.rows, np.int64)[complete]
    low, high = capture.steps["start_ns"].to_numpy()[rows].min(), capture.steps["end_ns"].to_numpy()[rows].max()
    return replace(
        where, device=where.device & _of_steps(capture, rows), host=where.host & _in_steps(capture, rows),
        window_ns=(int(low), int(high)), rows=tuple(rows.tolist()), steps=tuple(capture.steps["number"].to_numpy()[rows].tolist()),
        step_count=len(rows), whole=False,
    )  # fmt: skip


def work_of_steps(capture: Capture, where: Scope) -> Scope:
    """Returns a selection without device work of no step, for averages per step; as it is where no step or no device work was recorded."""
    if not where.rows or not where.whole or not len(capture.device):
        return where
    return replace(where, device=in_steps(capture, where), whole=False)


def before_steps(capture: Capture, where: Scope) -> Mask:
    """Returns device rows launched before the first recorded step, where the selection holds that step; they are in no step.

    Of a recording that begins in the middle of a step these are the rest of its work, most of it launched before the recording.
    """
    if 0 not in where.rows:
        return np.zeros(len(capture.device), bool)

    def make() -> Mask:
        first = int(capture.steps["start_ns"].to_numpy()[0])
        return np.asarray((capture.device["step"].to_numpy() < 0) & (capture.device["start_ns"].to_numpy() < first), np.bool_)

    return memo(capture, ("scope.before_steps",), make)


def extent(capture: Capture) -> tuple[int, int]:
    """Returns the first start and last end of everything recorded; (0, 0) for nothing. Uses the tables where the facts give none."""
    if capture.facts.extent_ns != (0, 0):
        return capture.facts.extent_ns
    starts, ends = [], []
    for table in (capture.host, capture.device):
        if len(table):
            start = table["start_ns"].to_numpy()
            starts.append(int(start.min()))
            ends.append(int((start + table["duration_ns"].to_numpy()).max()))
    return (min(starts), max(ends)) if starts else (0, 0)


def step_bounds(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,18})(?:\s*[-–:]\s*(\d{1,18}))?", text)
    if found is None:
        raise BadQuery(f"not a step: {text!r}", hint="give one step as 12 or a range as 12-15", field="step")
    low = int(found[1])
    high = int(found[2]) if found[2] else low
    return min(low, high), max(low, high)


def _span(numbers: npt.NDArray[np.int64]) -> str:
    low, high = int(numbers.min()), int(numbers.max())
    return str(low) if low == high else f"{low}–{high}"


def _starts_inside(at: npt.NDArray[np.int64], start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> Mask:
    """Returns per point, whether some interval `[start, end)` holds it."""
    order = np.argsort(start, kind="stable")
    first, reach = start[order], np.maximum.accumulate(end[order])
    slot = np.searchsorted(first, at, side="right") - 1
    return np.asarray((slot >= 0) & (at < reach[np.maximum(slot, 0)]), np.bool_)
