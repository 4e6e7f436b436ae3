"""Makes the scalars of iterations, and writes them into an event file on a thread of its own, at most once a second."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from tb_sol_plugin.capture.loop.guard import Guard
    from tb_sol_plugin.capture.loop.labels import Labels
    from tb_sol_plugin.capture.loop.schedule import StepRecord
    from tb_sol_plugin.capture.report.analysis import Analysis
    from tb_sol_plugin.capture.report.events import EventFile, Floats, Ints

FLUSH_SECONDS: Final = 1.0
MOST_WAITING: Final = 65536
"""Iterations that may wait; of more, the oldest are dropped. A thousand steps a second wait a second."""
LONGEST: Final = 200
"""Characters of a phase's name in the name of a metric."""


class Alike(NamedTuple):
    """What iterations have in common: samples and tokens, and the analysis of the sampled one whose work is theirs; None unknown.

    compiled: they were sampled by running compiled code eagerly, so that their times are not those of the program.
    """

    batch: int | None
    tokens: int | None
    sample: Analysis | None
    compiled: bool = False


Row: TypeAlias = "tuple[Any, ...]"
"""Number, start, ns that it took, own work inside and before; with phases the number again, then label, start and ns of each.

What it and its phases took is the device's time where that was measured, else the host's; None unknown. Flat, since thousands may wait.
"""
HEAD: Final = 6
"""Numbers of a row before its phases."""
Plain: TypeAlias = "tuple[int, Row, Alike]"
"""When an iteration ended by `perf_counter_ns`, its times, and what it shares with others."""


class Entry(NamedTuple):
    """An iteration of which more is known. device_ns: its time on the device. found: its own analysis; tables: they are due."""

    plain: Plain
    device_ns: int | None
    found: Analysis | None
    tables: bool


def row_of(step: StepRecord) -> Row:
    """Returns the times of an iteration."""
    device = step.device_ns
    spent = step.duration_ns if device is None else device
    out: list[int | None] = [step.iteration, step.start_ns, spent, step.overhead_ns, step.before_ns]
    if step.phase_times:
        out.append(step.iteration)
    for label, start, on_host, on_device, _ in step.phase_times:
        out += (label, start, on_host if device is None else on_device)
    return tuple(out)


def of_iteration(plain: Plain, labels: Labels) -> dict[str, float]:
    """Returns step time, tokens and samples a second, MFU, HFU and the times of phases, by name; what is not known is left out.

    A phase has the time of all its ranges, with the phases inside it.
    """
    _, row, alike = plain
    if alike.compiled:
        return {}
    spent = row[2]
    out: dict[str, float] = {}
    if spent > 0:
        out["sol/step_time_ms"] = spent / 1e6
        for name, factor in _rates(alike).items():
            out[name] = factor / spent
    of_phase: dict[int, int | None] = {}
    for label, ns in zip(row[HEAD::3], row[HEAD + 2 :: 3], strict=True):
        before = of_phase.get(label, 0)
        of_phase[label] = None if before is None or ns is None else before + ns
    for label, ns in of_phase.items():
        if ns is not None:
            out[_phase_tag(labels, label)] = ns / 1e6
    return out


def _rates(alike: Alike) -> dict[str, float]:
    """Returns the scalars that are a factor over the ns of an iteration, with that factor."""
    out: dict[str, float] = {}
    if alike.tokens is not None:
        out["sol/tokens_per_s"] = alike.tokens * 1e9
    if alike.batch is not None:
        out["sol/samples_per_s"] = alike.batch * 1e9
    if alike.sample is not None and alike.sample.model_us is not None and alike.sample.hardware_us is not None:
        out["sol/mfu_pct"] = alike.sample.model_us * 1e5
        out["sol/hfu_pct"] = alike.sample.hardware_us * 1e5
    return out


def _phase_tag(labels: Labels, label: int) -> str:
    return f"sol_phase/{' '.join(labels.known[label].name.split())[:LONGEST]}/time_ms"


def of_iterations(rows: Ints, alike: Alike, labels: Labels) -> dict[str, Floats]:
    """Returns the same in columns, of iterations that share `alike` and have the same phases in the same order, none of them of 0 ns.

    rows: [iterations, numbers of a `Row`].
    """
    if alike.compiled:
        return {}
    spent = rows[:, 2]
    out = {"sol/step_time_ms": spent / 1e6}
    for name, factor in _rates(alike).items():
        out[name] = factor / spent
    of_phase: dict[int, Ints] = {}
    for at in range(HEAD, rows.shape[1], 3):
        label, ns = int(rows[0, at]), rows[:, at + 2]
        of_phase[label] = of_phase[label] + ns if label in of_phase else ns
    for label, ns in of_phase.items():
        out[_phase_tag(labels, label)] = ns / 1e6
    return out


def _shape(one: Plain | Entry) -> tuple[int, int] | None:
    """Returns what plain iterations share that may be written together; None of one that is written alone."""
    return None if isinstance(one, Entry) else (id(one[2]), len(one[1]))


class ScalarLog:
    """Keeps the iterations that ended, and writes their scalars on a thread, at most once a second.

    add: takes an iteration; it is called while training waits, and does nothing but keep it. The file is made by the first flush.
    """

    def __init__(self, folder: str, labels: Labels, guard: Guard) -> None:
        self._folder, self._labels, self._guard = folder, labels, guard
        self._waiting: deque[Plain | Entry] = deque(maxlen=MOST_WAITING)
        self.add: Callable[[Plain | Entry], None] = self._waiting.append
        self._pid = os.getpid()
        self._file: object = None
        self._kept: tuple[Analysis | None, dict[str, float]] = None, {}
        self._flushing = threading.Lock()
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="tb-sol-scalars", daemon=True).start()

    def _run(self) -> None:
        while not self._ended.wait(FLUSH_SECONDS):
            self.flush()

    def flush(self) -> None:
        """Writes what waits. Never raises."""
        if self._waiting and os.getpid() == self._pid:
            with self._flushing:
                self._guard.attempt("tensorboard", self._write, None)

    def close(self) -> None:
        """Writes the rest and ends the thread."""
        self._ended.set()
        self.flush()
        file = self._file
        if file is not None and os.getpid() == self._pid:
            self._guard.attempt("tensorboard", file.close, None)  # type: ignore[attr-defined]

    def _write(self) -> None:
        from tb_sol_plugin.capture.report.events import EventFile

        if self._file is None:
            self._file = EventFile(self._folder)
        file = self._file
        assert isinstance(file, EventFile)
        since, now = time.perf_counter_ns(), time.time()
        waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        for shape, some in groupby(waiting, _shape):
            run = [*some]
            if shape is None or not self._write_run(file, run, since, now):  # type: ignore[arg-type]
                for one in run:
                    entry = one if isinstance(one, Entry) else Entry(one, None, None, False)
                    file.add_scalars(self._scalars(entry), entry.plain[1][0], now - (since - entry.plain[0]) / 1e9)
                    if entry.tables and entry.plain[2].sample is not None:
                        self._add_tables(file, entry)
        file.write()

    def _write_run(self, file: EventFile, run: Sequence[Plain], since: int, now: float) -> bool:
        """Writes plain iterations of the same `_shape` at once. False where some of their times are unknown; then nothing has happened."""
        import numpy as np

        from tb_sol_plugin.capture.report.analysis import AGE

        try:
            rows = np.array([row for _, row, _ in run], np.int64)
        except (TypeError, OverflowError):  # an unknown time, or the number of an iteration that is beyond 64 bits
            return False
        if (rows[:, 2] <= 0).any():
            return False
        alike = run[0][2]
        ended = np.array([ended for ended, _, _ in run], np.int64)
        walls = now - (since - ended) / 1e9
        phases = rows[:, HEAD::3]
        cuts = [0, *(np.flatnonzero((phases[1:] != phases[:-1]).any(axis=1)) + 1).tolist(), len(rows)]
        for first, end in pairwise(cuts):
            some = rows[first:end]
            found: dict[str, Any] = {**self._shared(alike), **of_iterations(some, alike, self._labels)}
            if alike.sample is not None:
                found[AGE] = some[:, 0] - alike.sample.iteration
            values = np.empty((len(some), len(found)))
            for at, column in enumerate(found.values()):
                values[:, at] = column
            file.add_events([*found], some[:, 0], walls[first:end], values)
        return True

    def _shared(self, alike: Alike) -> Mapping[str, float]:
        """Returns the scalars that follow from the sampled iteration, which are worked out once."""
        from tb_sol_plugin.capture.report.analysis import totals

        key, shared = self._kept
        if alike.sample is not None and key is not alike.sample:
            shared = totals(alike.sample, None)
            self._kept = alike.sample, shared
        return {} if alike.sample is None else shared

    def _scalars(self, entry: Entry) -> Mapping[str, float]:
        """Returns all scalars of an iteration."""
        from tb_sol_plugin.capture.report.analysis import AGE, scalars, totals

        alike = entry.plain[2]
        own = of_iteration(entry.plain, self._labels)
        if entry.found is not None:
            return {**scalars(entry.found), **own}
        if alike.sample is None:
            return own
        out = {**self._shared(alike), **own}
        if entry.device_ns is not None:
            out |= totals(alike.sample, entry.device_ns)
        out[AGE] = entry.plain[1][0] - alike.sample.iteration
        return out

    def _add_tables(self, file: EventFile, entry: Entry) -> None:
        from tb_sol_plugin.capture.report.loggers import add_tables

        found = entry.found or entry.plain[2].sample
        if found is not None:
            number = entry.plain[1][0]
            add_tables(found, number, file.add_text, age=number - found.iteration)
