"""Makes the scalars of iterations, and writes them into an event file on a thread of its own, at most once a second."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from tb_sol_plugin.capture.loop.guard import Guard
    from tb_sol_plugin.capture.loop.labels import Labels
    from tb_sol_plugin.capture.report.analysis import Analysis

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


Times: TypeAlias = "Sequence[tuple[object, ...]]"
"""Label, start, duration and device's time of phases, as `TIME_ROW` or as they are while an iteration runs."""
Plain: TypeAlias = "tuple[int, int, int, Times, Alike]"
"""When it ended by `perf_counter_ns`, number, duration in ns, phases, and what it shares with others."""


class Entry(NamedTuple):
    """An iteration of which more is known. device_ns: its time on the device. found: its own analysis; tables: they are due."""

    plain: Plain
    device_ns: int | None
    found: Analysis | None
    tables: bool


def of_iteration(plain: Plain, device_ns: int | None, labels: Labels) -> dict[str, float]:
    """Returns step time, tokens and samples a second, MFU, HFU and the times of phases, by name; what is not known is left out.

    Times are the device's where it was timed, else the host's. A phase has the time of all its ranges, with the phases inside it.
    """
    _, _, duration_ns, times, alike = plain
    spent = duration_ns if device_ns is None else device_ns
    out: dict[str, float] = {}
    if spent > 0 and not alike.compiled:
        out["sol/step_time_ms"] = spent / 1e6
        if alike.tokens is not None:
            out["sol/tokens_per_s"] = alike.tokens * 1e9 / spent
        if alike.batch is not None:
            out["sol/samples_per_s"] = alike.batch * 1e9 / spent
        if alike.sample is not None and alike.sample.model_us is not None and alike.sample.hardware_us is not None:
            out["sol/mfu_pct"] = alike.sample.model_us * 1e5 / spent
            out["sol/hfu_pct"] = alike.sample.hardware_us * 1e5 / spent
    of_phase: dict[int, int | None] = {}
    for label, _, on_host, on_device, *_ in times:
        one = on_host if device_ns is None else on_device if isinstance(on_device, int) else None
        before = of_phase.get(label, 0)  # type: ignore[call-overload]
        of_phase[label] = None if before is None or one is None else before + one  # type: ignore[index]
    known = labels.known
    for number, ns in of_phase.items():
        if ns is not None and not alike.compiled:
            out[f"sol_phase/{' '.join(known[number].name.split())[:LONGEST]}/time_ms"] = ns / 1e6
    return out


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
        for _ in range(len(self._waiting)):
            one = self._waiting.popleft()
            entry = one if isinstance(one, Entry) else Entry(one, None, None, False)
            wall = now - (since - entry.plain[0]) / 1e9
            file.add_scalars(self._scalars(entry), entry.plain[1], wall)
            if entry.tables and entry.plain[4].sample is not None:
                self._add_tables(file, entry)
        file.write()

    def _scalars(self, entry: Entry) -> Mapping[str, float]:
        """Returns all scalars of an iteration. Those that follow from a sampled one are worked out once."""
        from tb_sol_plugin.capture.report.analysis import AGE, scalars, totals

        _, number, _, _, alike = entry.plain
        own = of_iteration(entry.plain, entry.device_ns, self._labels)
        if entry.found is not None:
            return {**scalars(entry.found), **own}
        if alike.sample is None:
            return own
        key, shared = self._kept
        if key is not alike.sample:
            shared = totals(alike.sample, None)
            self._kept = alike.sample, shared
        out = {**shared, **own}
        if entry.device_ns is not None:
            out |= totals(alike.sample, entry.device_ns)
        out[AGE] = number - alike.sample.iteration
        return out

    def _add_tables(self, file: object, entry: Entry) -> None:
        from tb_sol_plugin.capture.report.loggers import add_tables

        found = entry.found or entry.plain[4].sample
        if found is not None:
            add_tables(found, entry.plain[1], file.add_text, age=entry.plain[1] - found.iteration)  # type: ignore[attr-defined]
