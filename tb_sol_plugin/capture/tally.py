"""The sums over the work of a step, by layer, function and phase; and the same again for a step that did the same work.

Nearly every sampled step of a training loop does the work of the one before. What does not depend on its times, the costs of its calls and
all sums over them, is kept for that case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final, TypeAlias, TypeVar, overload

from tb_sol_plugin.capture.device_specs import DeviceSpec
from tb_sol_plugin.capture.groups import NO_PHASE, UNATTRIBUTED, Group, Row, known_sum, row_of, shared, sum_of, with_times
from tb_sol_plugin.capture.operation_registry import OpRecord
from tb_sol_plugin.capture.roofline import Precision

T = TypeVar("T")
Picked: TypeAlias = "Callable[[Sequence[float | None]], Sequence[float | None]]"
Counted: TypeAlias = "Mapping[tuple[int, ...], Sequence[int]]"
"""Rows of a ledger: [calls, their time in ns, -1 not timed] by key."""
TOTAL, LAYERS, FUNCTIONS, PHASES = range(4)
_NAMES: Final[tuple[Callable[[OpRecord], str], ...]] = (
    lambda one: "total",
    lambda one: one.layer_type or UNATTRIBUTED,
    lambda one: one.func_name,
    lambda one: one.phase or NO_PHASE,
)
"""The name of a record's group, of each sort of groups; "" for none."""


class Later(Sequence[T]):
    """A sequence that is made when it is first looked at."""

    def __init__(self, make: Callable[[], Sequence[T]]) -> None:
        self._make: Callable[[], Sequence[T]] | None = make
        self._made: Sequence[T] = ()

    def made(self) -> Sequence[T]:
        """The sequence itself."""
        if self._make is not None:
            self._made, self._make = self._make(), None
        return self._made

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        return self.made()[at]

    def __len__(self) -> int:
        return len(self.made())

    def __iter__(self) -> Iterator[T]:
        return iter(self.made())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Tally:
    """Sums over operations.

    rows: each operation with its roofline. groups: of each sort (TOTAL, LAYERS, FUNCTIONS, PHASES) by name. timed: takes, from a list
    with an item per row, those of each group whose time counts, and those whose time can be set against an estimate; None without any.
    model_us, hardware_us: time of the matrix FLOP at the peaks, without and with recomputed work.
    """

    rows: Sequence[Row]
    groups: tuple[dict[str, Group], ...]
    timed: tuple[dict[str, tuple[Picked, Picked] | None], ...]
    model_us: float | None
    hardware_us: float | None

    @property
    def total(self) -> Group:
        return self.groups[TOTAL]["total"]

    def again(self, times: Sequence[float | None]) -> Tally:
        """The same work with other times in µs, known of the same rows."""
        rows = self.rows
        groups = tuple(
            {name: _timed(group, timed[name], times) for name, group in of.items()}
            for of, timed in zip(self.groups, self.timed, strict=True)
        )
        later = Later(lambda: [replace(row, measured_us=time) for row, time in zip(rows, times, strict=True)])
        return replace(self, rows=later, groups=groups)


def _timed(group: Group, picked: tuple[Picked, Picked] | None, times: Sequence[float | None]) -> Group:
    if picked is None:
        return group
    every, both = picked
    measured = known_sum(every(times))
    return with_times(group, measured, measured if both is every else known_sum(both(times)))


def _picked(rows: Sequence[Row], at: Sequence[int]) -> tuple[Picked, Picked] | None:
    """What takes the items of the rows at these places whose time counts, and of those whose time can be set against an estimate."""
    every = [n for n in at if rows[n].measured_us is not None]
    both = [n for n in every if rows[n].both]
    if not every:
        return None
    take = _taker(every)
    return take, take if both == every else _taker(both)


def _taker(at: Sequence[int]) -> Picked:
    if len(at) > 1:
        return itemgetter(*at)
    return lambda items: [items[n] for n in at]


def tally_of(records: Iterable[OpRecord], spec: DeviceSpec | None, precision: Precision, *, timed: bool, comparable: bool) -> Tally:
    """The sums over records. timed: their own times count; comparable: they are those of the device whose limits spec holds."""
    rows = [row_of(one, spec, precision, timed=timed, comparable=comparable) for one in records]
    groups, timings = [], []
    for name_of in _NAMES:
        places: dict[str, list[int]] = {}
        for at, row in enumerate(rows):
            name = name_of(row.record)
            if name:
                places.setdefault(name, []).append(at)
        timings.append({name: _picked(rows, mine) for name, mine in places.items()})
        groups.append({name: sum_of(name, [rows[at] for at in mine]) for name, mine in places.items()})
    whole = groups[TOTAL].setdefault("total", sum_of("total", [])).estimated_us
    groups = [{name: shared(group, whole) for name, group in of.items()} for of in groups]
    timings[TOTAL].setdefault("total", None)
    model = at_peak(row for row in rows if not row.record.is_recompute)
    return Tally(rows, tuple(groups), tuple(timings), model, at_peak(rows))


def at_peak(rows: Iterable[Row]) -> float | None:
    """Time in µs of the matrix FLOP at the peak of each type; those without a peak are left out, None without any."""
    return known_sum(row.record.flops / row.result.peak_used * 1e6 for row in rows if row.record.flops and row.result.peak_used)


class Repeats:
    """The tally of the last step, for one that did the same work under the same limits."""

    def __init__(self) -> None:
        self._keys: list[tuple[int, ...]] = []
        self._calls: list[tuple[int, bool]] = []
        self._under: tuple[object, ...] = ()
        self._tally: Tally | None = None
        self._layers: frozenset[str] = frozenset()

    def tally(
        self, counted: Counted, records: Sequence[OpRecord], spec: DeviceSpec | None, precision: Precision, *, timed: bool, comparable: bool
    ) -> Tally:  # fmt: skip
        """The tally of a step. records: of the rows that were counted, in their order; they are not looked at if the work is known."""
        under = spec, precision, timed, comparable
        if self._tally is not None and under == self._under and self._same(counted):
            if not timed:
                return self._tally
            rows = counted.values() if list(counted) == self._keys else [counted[key] for key in self._keys]
            return self._tally.again([row[1] / 1000 if row[1] > 0 else None for row in rows])
        made = tally_of(records, spec, precision, timed=timed, comparable=comparable)
        self._keys, self._calls, self._under = list(counted), _calls(counted.values()), under
        self._tally = made if len(records) == len(counted) else None
        self._layers = frozenset(one.layer_name for one in records if one.layer_type)
        return made

    def layers(self, counted: Counted, records: Sequence[OpRecord]) -> frozenset[str]:
        """Names of the supported layers that did the work."""
        if self._tally is not None and self._same(counted):
            return self._layers
        return frozenset(one.layer_name for one in records if one.layer_type)

    def _same(self, counted: Counted) -> bool:
        """Whether these are the calls of the step before, whatever time they took."""
        if len(counted) != len(self._keys):
            return False
        if list(counted) == self._keys:
            return _calls(counted.values()) == self._calls
        try:
            return _calls(counted[key] for key in self._keys) == self._calls
        except KeyError:
            return False


def _calls(rows: Iterable[Sequence[int]]) -> list[tuple[int, bool]]:
    """Calls of each row, and whether they took any time that was measured."""
    return [(row[0], row[1] > 0) for row in rows]
