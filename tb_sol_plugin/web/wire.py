"""Declares the shapes of the answers that are not reports (names and numbers only, never a path), and writes table sections as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tb_sol_plugin.devices.spec import DeviceProps
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.model.capture import Facts
from tb_sol_plugin.model.columns import Distinct, Numbers
from tb_sol_plugin.model.report import Link, Report, Scalar, TableSection
from tb_sol_plugin.redact import text


class ErrorBody(msgspec.Struct, omit_defaults=True):
    """code: stable word. message: what is wrong. hint: what to do. field: the parameter. file: the recording. id: of a logged fault.

    now: name of the state that there is now, where another one was asked for: the fingerprint of a timeline.
    """

    code: str
    message: str
    hint: str = ""
    field: str = ""
    file: str = ""
    id: str = ""
    now: str = ""


class LoadProgress(msgspec.Struct, omit_defaults=True):
    """bytes of total are of the stored file; queue_position 0 is being read, 1 is next. of: the baseline that is read, "" what is shown."""

    bytes: int
    total: int
    events: int
    stage: str
    elapsed_s: float
    queue_position: int
    of: str = ""


class Error(msgspec.Struct, omit_defaults=True):
    """Every answer that is not a success. progress only with `still_loading`."""

    error: ErrorBody
    progress: LoadProgress | None = None


class RecordingFacts(msgspec.Struct):
    """What is known of a recording once it was read; metadata is an allowlist."""

    source: str
    total_events: int
    absolute: bool
    origin_ns: int
    extent_ns: tuple[int, int]
    vendor: str
    devices: tuple[DeviceProps, ...]
    flags: dict[str, bool | None]
    versions: dict[str, str]
    rank: int | None
    world_size: int | None
    backend: str
    host_name: str
    metadata: dict[str, str]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    truncated: bool


class Companion(msgspec.Struct):
    """The other recording of the same worker: of a trace its SOL capture, of a SOL capture its trace, of memory alone what bears it."""

    worker: str
    span: str
    file: str


class Span(msgspec.Struct):
    """One file. name is its id in requests, label what a person calls it; mtime in seconds since the epoch.

    kind: kineto (a profiler trace), sol_capture, proton (a profile), memory_snapshot or memory_timeline. companion: the
    other recording of the same worker; a trace is shown with what its SOL capture counted.
    """

    name: str
    label: str
    file: str
    size: int
    mtime: float
    state: str
    kind: str = "kineto"
    companion: Companion | None = None
    error: ErrorBody | None = None
    facts: RecordingFacts | None = None


class Worker(msgspec.Struct):
    """rank: from the recording once read, else from the name; null where neither says."""

    name: str
    rank: int | None
    spans: list[Span]


class Run(msgspec.Struct):
    name: str
    workers: list[Worker]


class RunSummary(msgspec.Struct):
    """What is known of a run without opening it; null is unknown. mtime: of its file; recorded: when its recording begins; both in seconds
    since the epoch. device: its name. step_ns: mean step, of the whole recording where `whole`; ratio: of the speed of light, estimated
    where only a part is modeled; both from the last overview of it.
    """

    run: str
    mtime: float
    recorded: float | None = None
    device: str = ""
    step_ns: float | None = None
    whole: bool = False
    ratio: float | None = None
    estimated: bool = False


class Summaries(msgspec.Struct):
    """One per run, in the order of the runs; runs beyond the first 500 have none."""

    runs: list[RunSummary]


class Hit(msgspec.Struct):
    """Something a search found. kind: finding, kernel, operator or module. ns: its time, null unknown; note: what time that is.

    link: where it is shown.
    """

    kind: str
    name: str
    ns: int | None
    note: str
    link: Link


class Found(msgspec.Struct):
    """The largest hits of each kind, and how many of each there are."""

    query: str
    hits: list[Hit]
    counts: dict[str, int]


class Rejected(msgspec.Struct):
    """A file that was looked into and not taken: what it is and why."""

    file: str
    size: int
    what: str
    note: str


class Scan(msgspec.Struct):
    """files: all that were met, unrelated: those whose name was enough. stopped: why it ended early."""

    state: str
    files: int
    unrelated: int
    directories: int
    elapsed_ms: int
    roots: list[str]
    stopped: str | None
    errors: list[str]


class Features(msgspec.Struct):
    """original: the recordings' own bytes can be fetched. bind_all: anybody on the network can ask."""

    original: bool
    bind_all: bool
    version: str


class Runs(msgspec.Struct):
    """notes: what the reader should know of the server itself (a cache that cannot be written). captures: files and folders of graph
    captures, of which one can be chosen to name what graph launches replay.
    """

    scan: Scan
    runs: list[Run]
    rejected: list[Rejected]
    features: Features
    notes: list[str]
    captures: list[str]


class QueryField(msgspec.Struct):
    """page: what the page opens with. slider: values to step through. group: heading on the page. seldom: behind a button there.

    rows: of a list of rows, as JSON, the fields that each has; they are fields of the query, too.
    """

    name: str
    type: str
    default: str
    choices: tuple[str, ...]
    label: str
    doc: str
    page: str
    slider: tuple[str, ...] = ()
    group: str = ""
    seldom: bool = False
    rows: tuple[str, ...] = ()


class AnalysisInfo(msgspec.Struct):
    """available: the recording holds what it needs; if not: because, record_it_with and the argument to add.

    count: how many things the page has to tell (kinds of oddities), 0 where it does not count.
    under: the analysis that it is a further view of, "" for a page of its own.
    alone: it answers without a recording.
    compares: it can be set against a baseline.
    """

    name: str
    title: str
    question: str
    group: str
    order: int
    icon: str
    available: bool
    because: str
    record_it_with: str
    argument: str
    fields: list[QueryField]
    count: int = 0
    under: str = ""
    alone: bool = False
    compares: bool = False


class Step(msgspec.Struct):
    """Times in ns on the recording's own clock."""

    number: int
    name: str
    start_ns: int
    duration_ns: int
    complete: bool


class Figure(msgspec.Struct):
    """One figure of the limits. provenance: derived, third_party, unverified, measured or user. source: in words, or its arithmetic."""

    name: str
    label: str
    value: float
    unit: str
    provenance: str
    source: str


class Device(msgspec.Struct):
    """The limits used. method: how they were found. unverified: names of figures without a confirmed source.

    source: "table", or the name of the device file. caution: a sentence for a banner, "" where the limits are plain.
    """

    key: str
    name: str
    method: str
    unverified: list[str]
    source: str
    notes: str
    caution: str
    figures: list[Figure]


class Analyses(msgspec.Struct):
    """state: ready, or catalog where no recording was named (then all count as available). devices: keys to choose from. steps: the first
    100,000.

    failed: analyses that could not be loaded, and why; absent where all could. replays: whether graphs were launched. named_by: files
    that name what they replay.
    """

    state: str
    analyses: list[AnalysisInfo]
    steps: list[Step]
    device: Device | None
    device_note: str
    devices: list[str]
    failed: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    replays: bool = False
    named_by: str = ""


class Done(msgspec.Struct):
    """done: whether there was something to do. scan: the state afterwards."""

    done: bool
    scan: str = ""


class Health(msgspec.Struct):
    status: str
    version: str
    scan: str
    analyses: int
    notes: list[str]


def facts_of(facts: Facts) -> RecordingFacts:
    """Returns what may be sent of a recording's facts."""
    fields: Mapping[str, object] = {name: getattr(facts, name) for name in RecordingFacts.__struct_fields__}
    free = {name: tuple(text(line)[:2000] for line in getattr(facts, name)[:50]) for name in ("errors", "warnings")}
    return RecordingFacts(**{**fields, **free})  # type: ignore[arg-type]


# -- a table section as CSV: shown numbers in base units, unknown as an empty cell -----------------------------------


_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""The last four are the full-width signs, which spreadsheets read as the first four."""


def csv_of(report: Report, section_id: str = "") -> str:
    """Returns the named table; without a name the only one, or all of them, each under a line `# id`.

    Raises BadQuery where the report has no such table.
    """
    tables = [s for s in report.sections if isinstance(s, TableSection)]
    if section_id:
        chosen = [t for t in tables if t.id == section_id]
        if not chosen:
            raise BadQuery(f"no table {section_id!r} in this report", hint=f"there is: {', '.join(t.id for t in tables)}", field="section")
        return _one(chosen[0])
    if len(tables) == 1:
        return _one(tables[0])
    return "\r\n".join(f"# {table.id}\r\n{_one(table)}" for table in tables)


def _one(table: TableSection) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    names = [c.name for c in table.columns]
    writer.writerow(names)
    writer.writerows(zip(*(_cells(table.data[name]) for name in names), strict=True))
    return out.getvalue()


def _cells(values: Sequence[Scalar]) -> Iterable[Scalar]:
    """Returns the values of a column as cells; None is an empty one for the writer, too."""
    if isinstance(values, Numbers):
        return values
    if isinstance(values, Distinct):
        return Distinct(values.codes, [cell(v) for v in values.values])
    return map(cell, values)


def cell(value: Scalar) -> str | int | float:
    """Returns one value: text that a spreadsheet would run as a formula gets an apostrophe before it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(_FORMULA):
        return "'" + value
    return value
