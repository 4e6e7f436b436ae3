"""Times between device events, given to the groups whose work they enclose."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from tb_sol_plugin.capture.groups import NO_PHASE, UNATTRIBUTED, Group, Row, known_sum, measured
from tb_sol_plugin.capture.labels import NONE, Labels
from tb_sol_plugin.capture.step import TimeRow

K = TypeVar("K", bound=Hashable)


def layers_by_events(layers: Mapping[str, Group], rows: Sequence[Row], times: Mapping[str, float | None]) -> dict[str, Group]:
    """Layer types with the time of the forward calls of their modules, and the estimate of exactly the work inside these."""
    inside: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.record.direction == "fwd" and times.get(row.record.layer_name) is not None:
            inside.setdefault((row.record.layer_type or UNATTRIBUTED, row.record.layer_name), []).append(row)
    out = dict(layers)
    for kind, group in layers.items():
        mine = [(path, part) for (of, path), part in inside.items() if of == kind and kind != UNATTRIBUTED]
        if mine:
            time = math.fsum(times[path] or 0.0 for path, _ in mine)
            work = [row for _, part in mine for row in part]
            calls = sum(row.record.count for row in work)
            flags = {"forward_only"} if calls < group.count else set()
            out[kind] = measured(group, time, known_sum(row.result.estimated_time_us for row in work), calls, flags)
    return out


def phases_by_events(phases: Mapping[str, Group], times: Mapping[str, float | None], device_ns: int | None) -> dict[str, Group]:
    """Phases with their own times, and those that have time and no operation. device_ns: of the step."""
    out = dict(phases)
    every = {name: times.get(name) for name in (*times, *(p for p in phases if p != NO_PHASE))}
    for name, time in _phase_times(every, device_ns).items():
        if name in out or name != NO_PHASE:
            group = out.get(name) or Group(name, 0)
            out[name] = measured(group, time, group.estimated_us)
    return {name: group for name, group in out.items() if group.count or group.measured_us is not None}


def _phase_times(times: Mapping[str, float | None], device_ns: int | None) -> dict[str, float]:
    """Known times; `(no phase)` has what the step lasted beyond all phases, where all are known."""
    out = {name: time for name, time in times.items() if time is not None}
    if device_ns is not None and len(out) == len(times):
        left = device_ns / 1e3 - math.fsum(out.values())
        if left > 0:
            out[NO_PHASE] = left
    return out


def times_of_layers(rows: Iterable[TimeRow], labels: Labels, layers: Collection[str]) -> dict[str, float | None]:
    """Device time in µs of all calls of each of `layers` (`OpRecord.layer_name`), less that of other ones inside it.

    None where a call has no time. rows: of all modules; what lies inside a layer and is none itself belongs to the layer.
    """
    return _own_times(rows, labels, lambda name: name in layers)


def times_of_phases(rows: Iterable[TimeRow], labels: Labels) -> dict[str, float | None]:
    """Device time in µs by phase, less that of the phases inside it; None where it is not known."""
    return _own_times(rows, labels, lambda _: True)


def _own_times(rows: Iterable[TimeRow], labels: Labels, counts: Callable[[str], bool]) -> dict[str, float | None]:
    whole: dict[int, float | None] = {}
    for label, _, _, device_ns, _ in rows:
        if counts(labels.known[label].name):
            _add(whole, label, device_ns / 1e3 if device_ns is not None else None)
    inside: dict[int, float | None] = {}
    for label, time in whole.items():
        around = labels.known[label].parent
        while around != NONE and around not in whole:
            around = labels.known[around].parent
        if around != NONE:
            _add(inside, around, time)
    out: dict[str, float | None] = {}
    for label, time in whole.items():
        part = inside.get(label, 0.0)
        own = time - part if time is not None and part is not None else None
        _add(out, labels.known[label].name, own if own is None or own >= 0 else None)
    return out


def _add(out: dict[K, float | None], key: K, time: float | None) -> None:
    before = out.get(key, 0.0)
    out[key] = before + time if before is not None and time is not None else None
