"""Counts the copies of a piece of a program, without a profiler and without a capture file.

    with MemcpyProbe(model) as probe:
        train_step()
    print(probe.summary())
    pandas.DataFrame(probe.table())

What is counted, and what cannot be seen, is described in `capture/work/copies.py`. Inside a SOL capture nothing of this is
needed: its sampled iterations count copies by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal

from tb_sol_plugin.capture.loop.guard import Clock, Guard
from tb_sol_plugin.capture.loop.labels import Labels
from tb_sol_plugin.capture.loop.phases import PhaseStack

if TYPE_CHECKING:
    from tb_sol_plugin.capture.hooks.instrument import Instrumentation
    from tb_sol_plugin.capture.loop.schedule import CopyRow

LINES: Final = {
    "HtoD": "HostToDevice", "DtoH": "DeviceToHost", "DtoD": "DeviceToDevice", "copy kernel": "DeviceToDevice", "HtoH": "HostToHost",
    "PtoP": "PeerToPeer",
}  # fmt: skip
"""Names of directions in the summary, in its order."""
UNITS: Final = {"mib": float(1 << 20), "mb": 1e6}
"""Bytes of what is written `MB`."""


@dataclass(frozen=True)
class CountedCopies:
    """Sums alike copies. bytes: of those with a known size; without_bytes: the others. blocking: the host waited for these, None unknown.

    call_ns: time of the host inside the calls, None where it says nothing (a compiled model, which ran eagerly). module, phase, function:
    as on pages, "" none. src_device, dst_device: index, -1 the host.
    """

    direction: str
    src_kind: str
    dst_kind: str
    src_device: int
    dst_device: int
    operator: str
    non_blocking: bool
    blocking: int | None
    count: int
    bytes: int
    without_bytes: int
    call_ns: int | None
    module: str
    phase: str
    function: str


class MemcpyProbe:
    """Counts copies between memories while it is entered; several `with` blocks add up.

    model: one or several (list, dict), for the names of modules; None counts without them. It costs what a sampled iteration of a SOL
    capture costs, so it is for a few iterations. On the thread that enters it, and on those that autograd runs for it, all operators are
    seen; what other threads do is not. A compiled model runs eagerly meanwhile. It never raises, and leaves nothing behind on exit.

    notes: why something was not counted, with how often. A second probe, or a sampled iteration, cannot run inside: a note says so.
    """

    def __init__(self, model: object = None) -> None:
        self.notes: dict[str, int] = {}
        self._model = model
        self._labels, self._clock = Labels(), Clock()
        self._guard = Guard(self._note, lambda reason: None)
        self._phases = PhaseStack(self._labels, self._clock, note=self._note)
        self._instrumentation: Instrumentation | None = None
        self._rows: dict[tuple[object, ...], list[int | None]] = {}
        self._depth = 0

    # -- running ----------------------------------------------------------------------------------------------

    def __enter__(self) -> MemcpyProbe:
        self._depth += 1
        if self._depth == 1:
            self._guard.attempt("probe", self._begin, None)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._guard.attempt("probe", self._finish, None)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Enter a phase for a `with` block; phases nest."""
        with self._phases.phase(name):
            yield

    def clear(self) -> None:
        """Forget what was counted."""
        self._rows.clear()
        self.notes.clear()
        if self._instrumentation is not None and self._instrumentation.copies is not None:
            self._instrumentation.copies.clear()

    def _begin(self) -> None:
        from tb_sol_plugin.capture.hooks.instrument import Instrumentation
        from tb_sol_plugin.capture.hooks.module_names import models_in

        if self._instrumentation is None:
            self._instrumentation = Instrumentation(self._labels, self._clock, self._phases, "dispatch", self._note)
        if self._instrumentation.copies is None:
            self._note("mode", "this torch has no usable dispatch mode: no copy can be counted")
            return
        self._phases.begin_step(self._clock.now())
        self._instrumentation.enter(self._model, list(models_in(self._model)), None, layers=False)

    def _finish(self) -> None:
        from tb_sol_plugin.capture.hooks.module_names import models_in
        from tb_sol_plugin.capture.loop.header import compiled

        instrumentation = self._instrumentation
        if instrumentation is None or not instrumentation.on:
            return
        instrumentation.leave()
        self._phases.end_step(self._clock.now())
        if instrumentation.copies is not None:
            self._add(instrumentation.copies.records(timed=not compiled(list(models_in(self._model)))))
            for reason, count in instrumentation.copies.lost.items():
                self.notes[reason] = self.notes.get(reason, 0) + count
            fakes = instrumentation.ledger.lost[FAKES]
            if fakes:
                self.notes[FAKES] = self.notes.get(FAKES, 0) + fakes
        instrumentation.clear()

    def _add(self, rows: list[CopyRow]) -> None:
        for row in rows:
            known = self._rows.setdefault(row[:10], [0, 0, 0, 0, 0])
            for at, value in enumerate(row[10:]):
                before = known[at]
                known[at] = None if before is None or value is None else before + value

    def _note(self, code: str, text: str) -> None:
        self.notes[text] = self.notes.get(text, 0) + 1

    # -- what was counted -------------------------------------------------------------------------------------

    def table(self) -> list[CountedCopies]:
        """Returns one row per sort of copy and place, the most bytes first. `pandas.DataFrame` takes it as it is."""
        out = []
        for key, (count, size, unsized, blocking, call_ns) in self._rows.items():
            op, direction, src, dst, src_device, dst_device, non_blocking, module, phase, function = key
            places = (self._name(label, whole) for label, whole in ((module, False), (phase, True), (function, False)))
            row = (direction, src, dst, src_device, dst_device, op, non_blocking, blocking, count, size, unsized, call_ns, *places)
            out.append(CountedCopies(*row))  # type: ignore[arg-type]
        return sorted(out, key=_largest_first)

    def _name(self, label: object, whole: bool) -> str:
        if not isinstance(label, int) or label < 0:
            return ""
        return "/".join(self._labels.path(label)) if whole else self._labels.known[label].name

    def summary(self, unit: Literal["mib", "mb"] = "mib") -> str:
        """Writes one line per direction, as Proton words it. unit: `mib` counts 1 048 576 bytes as one MB, `mb` 1 000 000.

        Memory copy operations detected: 2
        - HostToDevice: 1 operations, total 4.0 MB
        - DeviceToHost: 1 operations, total 4.0 MB
        """
        sums = dict.fromkeys(LINES.values(), (0, 0, 0))
        for row in self.table():
            line = LINES[row.direction]
            count, size, unsized = sums[line]
            sums[line] = count + row.count, size + row.bytes, unsized + row.without_bytes
        lines = [f"Memory copy operations detected: {sum(count for count, _, _ in sums.values())}"]
        for line, (count, size, unsized) in sums.items():
            if count:
                rest = f", {unsized} carry no size" if unsized else ""
                lines.append(f"- {line}: {count} operations, total {_amount(size / UNITS[unit])} MB{rest}")
        return "\n".join(lines)


def _amount(value: float) -> str:
    """Formats an amount with one decimal, a small one with two digits that count."""
    return f"{value:.1f}" if value == 0 or value >= 0.05 else f"{value:.{1 - math.floor(math.log10(value))}f}"


def _largest_first(row: CountedCopies) -> tuple[object, ...]:
    return -row.bytes, -row.count, row.direction, row.operator, row.src_kind, row.dst_kind, row.module, row.phase, row.function


FAKES: Final = "tensors without data (fake)"
