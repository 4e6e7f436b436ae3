"""Reads what a recording counts over time: memory of each device, and the counter samples of the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Ints

_CPU: Final = 0
"""Device type of host memory in a [memory] instant."""
MOST_SERIES: Final = 200
"""Counters that are shown; a file may name a new one in every sample."""
COARSE_COLUMNS: Final = ("time", "low", "high", "last", "at")
"""Of `Coarse`, in order."""
FEW_SAMPLES: Final = 2**16
"""Samples below which a counter has no coarse level."""
_NO_TIME: Final = np.zeros(0, np.int64)
_NO_VALUE: Final = np.zeros(0)
_ARGUMENT = msgspec.json.Decoder(dict[str, object])


@dataclass(frozen=True)
class Series:
    """Values over time: from each time on, until the next. label: of what. device: id, -1 the host or none.

    source: device type and id of memory, or the name of a counter of the file. extent: samples, first and last time, lowest and highest
    value. columns: returns times, ascending, and values. coarse: returns the same for wide views, None without.
    """

    label: str
    unit: str
    device: int
    source: tuple[int, int] | str
    extent: tuple[int, int, int, float, float]
    columns: Callable[[], tuple[Ints, Floats]]
    coarse: Callable[[], Coarse | None] = lambda: None

    @property
    def time_ns(self) -> Ints:
        return self.columns()[0]

    @property
    def value(self) -> Floats:
        return self.columns()[1]


def series(label: str, unit: str, device: int, time: Ints, value: Floats, source: tuple[int, int] | str = "") -> Series:
    """Returns a counter of at least one sample."""
    extent = (len(time), int(time[0]), int(time[-1]), float(value.min()), float(value.max()))
    return Series(label, unit, device, source, extent, lambda: (time, value))


@dataclass(frozen=True)
class Coarse:
    """A counter by buckets of `2^z` ns, of those with a sample: begin, lowest, highest and last value, place of the first sample."""

    z: int
    time: Ints
    low: Floats
    high: Floats
    last: Floats
    at: npt.NDArray[np.uint32]

    def bucketed(self, z: int, begin: int, end: int, most: int, samples: int) -> Buckets | None:
        """Returns what `bucketed` does; None in a window or at a level that needs single samples. samples: how many there are in all."""
        if z < self.z or (begin | end) & ((1 << self.z) - 1):
            return None
        low, high = (int(i) for i in np.searchsorted(self.time, (begin, end), "left"))
        before = float(self.last[low - 1]) if low else float("nan")
        if low == high:
            return Buckets(_NO_TIME, *(_NO_VALUE,) * 3, before, True)
        if (int(self.at[high]) if high < len(self.at) else samples) - int(self.at[low]) <= most:
            return None
        rows = slice(low, high)
        return _merged(self.time[rows], self.low[rows], self.high[rows], self.last[rows], z, before)


@dataclass(frozen=True)
class Buckets:
    """A stretch of a counter: times (ns), and the lowest, highest and last value from each on. before: value at its begin, NaN unknown.

    exact: every sample is a point of its own.
    """

    time_ns: Ints
    low: Floats
    high: Floats
    last: Floats
    before: float
    exact: bool


def series_of(capture: Capture) -> list[Series]:
    """Returns the counters of a recording, those of memory first."""
    return [*_memory(capture), *_samples(capture)][:MOST_SERIES]


def bucketed(counter: Series, z: int, begin: int, end: int, most: int = 1024) -> Buckets:
    """Returns a counter in a window: every sample where there are at most `most`, else lowest, highest and last per bucket of `2^z` ns."""
    coarse = counter.coarse()
    if coarse is not None and (found := coarse.bucketed(z, begin, end, most, counter.extent[0])) is not None:
        return found
    every, values = counter.columns()
    low, high = (int(i) for i in np.searchsorted(every, (begin, end), "left"))
    time, value = every[low:high], values[low:high]
    before = float(values[low - 1]) if low else float("nan")
    if high - low <= most:
        return Buckets(time, value, value, value, before, True)
    return _merged(time, value, value, value, z, before)


def _merged(time: Ints, lowest: Floats, highest: Floats, last: Floats, z: int, before: float) -> Buckets:
    """Returns samples, at least one, or finer buckets, by buckets of level z."""
    bucket = time >> z
    first = _firsts(bucket)
    ends = np.append(first[1:], len(time)) - 1
    return Buckets(
        bucket[first] << z, np.minimum.reduceat(lowest, first), np.maximum.reduceat(highest, first), last[ends], before, False
    )  # fmt: skip


def _firsts(bucket: Ints) -> Ints:
    return np.flatnonzero(np.append(True, bucket[1:] != bucket[:-1]))


def coarse_of(counter: Series, z: int) -> Coarse | None:
    """Returns a counter for wide views; None where its samples are so few that they are read themselves."""
    time, value = counter.columns()
    if len(time) < FEW_SAMPLES:
        return None
    made = _merged(time, value, value, value, z, float("nan"))
    return Coarse(z, made.time_ns, made.low, made.high, made.last, _firsts(time >> z).astype(np.uint32))


def _memory(capture: Capture) -> list[Series]:
    table = capture.tables["memory"]
    if not len(table):
        return []
    out = []
    kind, device = table["device_type"].to_numpy(), table["device_id"].to_numpy()
    for type_, number in sorted(set(zip(kind.tolist(), device.tolist(), strict=True)), key=lambda k: (k[0] == _CPU, k)):
        rows = np.flatnonzero((kind == type_) & (device == number))
        rows = rows[np.argsort(table["time_ns"].to_numpy()[rows], kind="stable")]
        where = "host memory" if type_ == _CPU else "memory"
        for column, word in (("total_allocated", "allocated"), ("total_reserved", "reserved")):
            value = table[column].to_numpy()[rows].astype(np.float64)
            known = value >= 0
            if known.any() and value[known].any():
                time = table["time_ns"].to_numpy()[rows[known]]
                out.append(series(f"{where} {word}", "B", -1 if type_ == _CPU else number, time, value[known], (type_, number)))
    return out


def _samples(capture: Capture) -> list[Series]:
    table = capture.tables["instants"]
    rows = np.flatnonzero(arrays.where(table["phase"], lambda phase: phase == "C")) if len(table) else np.zeros(0, np.int64)
    if not len(rows):
        return []
    rows = rows[np.argsort(table["time_ns"].to_numpy()[rows], kind="stable")]
    text = arrays.coded(table["args"])
    parsed = {code: values_of(str(text.categories[code])) for code in np.unique(text.codes[rows]).tolist() if code >= 0}
    names, time = arrays.coded(table["name"]), table["time_ns"].to_numpy()
    found: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
    for row, name, code in zip(rows.tolist(), names.codes[rows].tolist(), text.codes[rows].tolist(), strict=True):
        for key, value in parsed.get(code, {}).items():
            place = (str(names.categories[name]) if name >= 0 else "", key)
            if place not in found and len(found) >= MOST_SERIES:
                continue
            times, values = found.setdefault(place, ([], []))
            times.append(int(time[row]))
            values.append(value)
    return [
        series(name if key in ("value", name) else f"{name} {key}".strip(), "", -1, np.array(times, np.int64), np.array(values), name)
        for (name, key), (times, values) in found.items()
    ]


def values_of(text: str) -> dict[str, float]:
    """Returns the numbers among the arguments of a counter sample."""
    try:
        found = _ARGUMENT.decode(text)
    except msgspec.DecodeError:
        return {}
    out = {}
    for key, value in found.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300:
            out[key] = float(value)
    return out
