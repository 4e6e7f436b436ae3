"""Defines a recording after ingest: immutable tables and facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.devices.spec import EMPTY, DeviceBook, DeviceProps, DeviceSpec
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.requirements import Requirement, missing
from tb_sol_plugin.model.results import Origin, Results, limit_of
from tb_sol_plugin.tables.table import StoredTable, StoredTables, Table, as_table, numbers_of

__all__ = ["Capture", "DeviceProps", "Facts"]

if TYPE_CHECKING:
    from tb_sol_plugin.model.report import Report, UnavailableReport


class Facts(msgspec.Struct, frozen=True):
    """What is known about a recording as a whole. None is unknown.

    origin_ns: what was taken off every time; absolute is True when origin_ns is epoch time (ranks can be aligned).
    extent_ns: first start and last end over all complete events. vendor: nvidia, amd, mtia, xpu, other or "" without device.
    flags: record_shapes, with_stack, profile_memory, with_flops, with_modules. metadata: an allowlist, already redacted.
    source: kineto (a profiler trace) or sol_capture. limits: those a SOL log was judged against while recording; of a trace those of
    the SOL log attached to it. attached_notes: warnings and issues of attached recordings (SOL log, memory), one line each.
    """

    source: str
    file: str
    size: int
    total_events: int = 0
    origin_ns: int = 0
    absolute: bool = False
    extent_ns: tuple[int, int] = (0, 0)
    vendor: str = ""
    devices: tuple[DeviceProps, ...] = ()
    flags: dict[str, bool | None] = {}
    versions: dict[str, str] = {}
    rank: int | None = None
    world_size: int | None = None
    backend: str = ""
    host_name: str = ""
    metadata: dict[str, str] = {}
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    truncated: bool = False
    pseudo_step: bool = False
    external_id_regime: int = 0
    limits: DeviceSpec | None = None
    attached_notes: tuple[str, ...] = msgspec.field(default=(), name="beside")


class Capture(Origin):
    """Holds the facts and tables of one opened recording. Tables are not to be changed; derive new frames.

    `run`, `worker` and `span` are the names the store gave it ("" when opened directly from a file). `devices` are the rows
    that device files add to the table of devices, as the store found them when it handed the capture out. `attached_state`
    names the recordings whose tables were joined to it, as the store knows them ("" none).
    """

    def __init__(
        self,
        facts: Facts,
        tables: Mapping[str, pd.DataFrame],
        *,
        run: str = "",
        worker: str = "",
        span: str = "",
        devices: DeviceBook = EMPTY,
        attached_state: str = "",
    ) -> None:
        self.facts: Facts = facts
        self.tables: Mapping[str, pd.DataFrame] = tables if isinstance(tables, StoredTables) else _all(tables)
        self.run = run
        self.worker = worker
        self.span = span
        self.devices = devices
        self.attached_state = attached_state
        self.unjoined: Capture | None = None
        """For `store`: this recording without what its graph launches replay, where that was put into its tables."""
        self.memo = Results(limit_of(self.rows(S.HOST.name) + self.rows(S.DEVICE.name)))
        """For `metrics`: results derived from the tables, by a key of the deriving function (see `metrics.memo`)."""

    def shrink(self) -> None:
        """Lets results of a large recording go where they exceed what is kept of one, and what was looked at of tables on disk.

        Call it after an answer.
        """
        self.let_go()
        if self.memo.limit:
            self.memo.shrink(() if isinstance(self.tables, StoredTables) else self.tables.values())

    def let_go(self) -> None:
        """Gives back the memory through which tables of a large recording on disk are seen, until they are looked at again."""
        if self.memo.limit and isinstance(self.tables, StoredTables):
            self.tables.let_go()

    def with_devices(self, devices: DeviceBook) -> Capture:
        """Returns the same recording with other rows of device files. Tables are shared; what was derived with the old rows is not."""
        made = Capture(
            self.facts, self.tables, run=self.run, worker=self.worker, span=self.span, devices=devices, attached_state=self.attached_state
        )
        made.unjoined = self.unjoined
        return made

    def with_ledger(self, other: Capture | None, *, attached_state: str = "", unread: str = "") -> Capture:
        """Returns this trace with labels, ledger, iterations, label times, records of memory of a SOL capture in place of its own; None:
        without.

        Times become those of this trace where both are known in time since 1970; else records of memory are left out. Rows of the
        ledger name the step of their iteration where the trace has that one too, and no host rows. `facts.metadata["sol_capture"]`
        is the file, `sol_capture.mode` and the like how it was made, `plan.hidden`, `groups.tp` and the like what was trained and
        how it was spread, `facts.attached_notes` its warnings. unread: of a SOL capture that cannot be read, for the warnings.
        """
        metadata = {k: v for k, v in self.facts.metadata.items() if k.partition(".")[0] not in _JOINED}
        tables = {name: table for name, table in self.tables.items() if name not in _OF_A_LEDGER}
        if other is not None:
            metadata["sol_capture"] = other.facts.file
            metadata |= {f"sol_capture.{k}": other.facts.metadata[k] for k in _HOW if k in other.facts.metadata}
            metadata |= {k: v for k, v in other.facts.metadata.items() if k.partition(".")[0] in _OF_A_MODEL}
            tables |= _as_seen_from(self, other)
            if not (self.facts.absolute and other.facts.absolute):  # records of memory have no place among the trace's times
                tables |= {name: S.ALL[name].empty() for name in (S.MEMORY_RECORDS.name, S.MEMORY_PARTS.name)}
        warnings = [w for w in self.facts.warnings if not w.startswith(_UNREAD)] + [_UNREAD + unread] * bool(unread)
        same = other is not None and bool(other.facts.devices) == bool(len(self.device))  # both of a device, or both of a CPU
        limits = other.facts.limits if other is not None and same else None
        notes = notes_of(other) if other is not None else ()
        facts = msgspec.structs.replace(self.facts, metadata=metadata, warnings=tuple(warnings), limits=limits, attached_notes=notes)
        return Capture(facts, tables, run=self.run, worker=self.worker, span=self.span, devices=self.devices, attached_state=attached_state)

    # -- tables -----------------------------------------------------------------------------------------------

    @property
    def host(self) -> pd.DataFrame:
        return self.tables["host"]

    @property
    def device(self) -> pd.DataFrame:
        return self.tables["device"]

    @property
    def steps(self) -> pd.DataFrame:
        return self.tables["steps"]

    def rows(self, table: str) -> int:
        """Returns how many rows a table has; one on disk is not made for that."""
        return self.tables.rows(table) if isinstance(self.tables, StoredTables) else len(self.tables[table])

    def column(self, table: str, name: str) -> pd.Series:
        """Returns a column of a table; of one on disk that nobody asked for yet, without the others."""
        return self.tables.column(table, name) if isinstance(self.tables, StoredTables) else self.tables[table][name]

    def numbers(self, table: str, name: str) -> npt.NDArray[Any]:
        """Returns the numbers of a column, of texts their codes (-1 none), as `column` does."""
        return self.tables.numbers(table, name) if isinstance(self.tables, StoredTables) else numbers_of(self.tables[table][name])

    @cached_property
    def operator_of_host(self) -> np.ndarray:
        """int32 per host row: its row in `operators`, -1 if it carries no arguments."""
        out = np.full(len(self.host), -1, np.int32)
        rows = self.tables["operators"]["host"].to_numpy()
        out[rows] = np.arange(len(rows), dtype=np.int32)
        return out

    # -- what was recorded ------------------------------------------------------------------------------------

    def missing(self, requirement: Requirement) -> tuple[str, str, str] | None:
        """Returns None if the recording has what is required; else (because, record it with, the argument to add)."""
        return missing(self, requirement)

    # -- analyses ---------------------------------------------------------------------------------------------

    def analyze(self, name: str, **query: object) -> Report | UnavailableReport:
        """Returns the Report of one analysis; query fields as keywords. NotFound or BadQuery on a wrong name or field."""
        from tb_sol_plugin.model.answer import answer_capture
        from tb_sol_plugin.model.query import as_text

        return answer_capture(name, self, {k: as_text(v) for k, v in query.items()})

    def show(self, name: str = "overview", **query: object) -> Report | UnavailableReport:
        """Returns the Report of one analysis, the overview where none is named: a notebook shows it where it ends a cell."""
        return self.analyze(name, **query)


def stored(there: Mapping[str, StoredTable], size: int, let_go: Callable[[], object]) -> StoredTables:
    """Returns the tables of a capture on disk, each made when it is asked for; those that are not there are empty. See `StoredTables`."""
    return StoredTables({name: there[name] if name in there else _without_rows(name) for name in S.ALL}, size, let_go)


@cache
def _without_rows(name: str) -> StoredTable:
    return StoredTable(0, partial(empty, name), lambda column: empty(name)[column], lambda column: numbers_of(empty(name)[column]))


def _all(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    return {name: as_table(tables[name]) if name in tables and len(tables[name]) else empty(name) for name in S.ALL}


@cache
def empty(name: str) -> Table:
    """Returns the table of a name without rows; all captures share it."""
    return as_table(S.ALL[name].empty())


_UNREAD = "the SOL log of this trace cannot be read: "
_HOW = ("mode", "every_n_steps", "time_source", "device.type")
_OF_A_MODEL = ("plan", "groups")
_JOINED = ("sol_capture", S.MEMORY_RECORDS.name, *_OF_A_MODEL)
_OF_A_LEDGER = (
    S.LABELS.name, S.LEDGER.name, S.ITERATIONS.name, S.LABEL_TIMES.name, S.COPIES.name, S.MEMORY_RECORDS.name, S.MEMORY_PARTS.name,
)  # fmt: skip


def _as_seen_from(trace: Capture, other: Capture) -> dict[str, pd.DataFrame]:
    """Returns the tables of a SOL capture, with the times and the steps of a trace."""
    tables = {name: other.tables[name] for name in _OF_A_LEDGER}
    shift = other.facts.origin_ns - trace.facts.origin_ns if trace.facts.absolute and other.facts.absolute else 0
    for name in (S.ITERATIONS.name, S.LABEL_TIMES.name):
        start = tables[name]["start_ns"].to_numpy()
        tables[name] = tables[name].assign(start_ns=start + shift + own_work_until(other, start))
    records = tables[S.MEMORY_RECORDS.name]
    time = records["time_ns"].to_numpy()
    tables[S.MEMORY_RECORDS.name] = records.assign(time_ns=time + shift + own_work_until(other, time))
    ledger = tables[S.LEDGER.name]
    numbers = trace.steps["number"].to_numpy()
    rows = {int(number): row for row, number in enumerate(numbers) if number >= 0}
    steps = _steps_of(ledger, rows)
    none = np.full(len(ledger), -1, np.int32)
    tables[S.LEDGER.name] = ledger.assign(step=steps, module_host=none, phase_host=none)
    tables[S.COPIES.name] = tables[S.COPIES.name].assign(step=_steps_of(tables[S.COPIES.name], rows))
    return tables


def _steps_of(table: pd.DataFrame, rows: Mapping[int, int]) -> np.ndarray:
    """Returns the step of each row by its iteration, -1 where the trace has none of that number."""
    return np.fromiter((rows.get(n, -1) for n in table["iteration"].tolist()), np.int32, len(table))


def own_work_until(capture: Capture, at: np.ndarray) -> np.ndarray:
    """Returns ns that the clock of a SOL capture stood still for the recorder's own work before the iterations in which the times `at` lie.

    Add it, and times of the capture are those of a clock that never stands still, as that of a trace.
    """
    table = capture.tables[S.ITERATIONS.name]
    start, before, inside = (table[name].to_numpy() for name in ("start_ns", "before_ns", "overhead_ns"))
    order = np.argsort(start, kind="stable")
    stood = np.cumsum(before[order] + inside[order]) - inside[order]
    row = np.searchsorted(start[order], at, side="right") - 1
    return np.where(row >= 0, stood[np.maximum(row, 0)], 0) if len(stood) else np.zeros(len(at), np.int64)


def recorded_ns(capture: Capture) -> int:
    """Returns ns from the first start to the last end; of a SOL capture over all iterations, since its events are those of a few."""
    table = capture.tables["iterations"]
    if capture.facts.source != "sol_capture" or not len(table):
        return capture.facts.extent_ns[1] - capture.facts.extent_ns[0]
    return int((table["start_ns"] + table["duration_ns"]).max()) - int(table["start_ns"].min())


def notes_of(other: Capture) -> tuple[str, ...]:
    """Returns the notes of a recording: its warnings, and the reasons in its table of issues, with how often each."""
    issues = other.tables["issues"]
    odd = zip(issues["reason"].astype(str).tolist(), issues["count"].tolist(), strict=True)
    return (*other.facts.warnings, *(f"{reason} ({count:,} times)" if count > 1 else reason for reason, count in odd))


def larger_than_memory(copies: pd.DataFrame, devices: Sequence[DeviceProps]) -> npt.NDArray[np.bool_]:
    """Returns copies and sets with an end on a device whose memory is smaller than they are; False where its memory is not known.

    copies: columns device, direction and bytes. Copies within the host, and those of unknown direction, can have any size.
    """
    room = np.full(len(copies), np.inf)
    for one in devices:
        if one.memory_bytes > 0:
            room[copies["device"].to_numpy() == one.id] = one.memory_bytes
    larger = np.asarray(copies["bytes"].to_numpy() > room, np.bool_)
    if larger.any():
        larger &= ~copies["direction"].isin(("HtoH", "Unknown")).to_numpy()
    return larger
