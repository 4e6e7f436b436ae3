"""Selection of the timeline: what lies in a window of time on some tracks, added up.

Times are cut to the window. Device time is a union over the chosen streams; groups hold plain sums, with their distribution.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar, Final, Literal

import msgspec
import numpy as np

from tb_sol_plugin.errors import BadQuery, Unavailable
from tb_sol_plugin.metrics.time.breakdown import device_word
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.timeline.events import CATEGORIES, OPERATOR, OTHER, SHOWN
from tb_sol_plugin.metrics.timeline.selection import Selection, named_tracks, select
from tb_sol_plugin.metrics.timeline.timeline import Layout, timeline_of
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import (
    Column,
    Fact,
    FactsSection,
    Link,
    OnTimeline,
    Report,
    Scalar,
    Sort,
    TableSection,
    make_facts,
    make_table,
)
from tb_sol_plugin.model.row_links import RowLinks
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.units import human

MOST_LINKS: Final = 4_096
"""Links that are kept: who moves an area asks for nearly the same rows again."""
PAGES: Final = {
    "compute": "kernels", "communication": "kernels", "memcpy": "memcpy", "memset": "memcpy", "module": "modules", "annotation": "phases",
}  # fmt: skip
_KINDS: Final = np.array([kind for kind, _, _ in CATEGORIES], object)
_COLORS: Final = np.array([color for _, _, color in SHOWN], object)
FACTS: Final = (
    Fact("compute_ns", "Compute", "ns", "kernels that are neither communication nor copies, and sets of memory", "compute"),
    Fact("communication_ns", "Exposed communication", "ns", "communication that no computation hides", "communication"),
    Fact("copies_ns", "Exposed copies", "ns", "copies that neither computation nor communication hides", "memcpy"),
    Fact("idle_ns", "Idle", "ns", "no chosen stream is busy", "idle"),
    Fact("start_ns", "Begins at", "ns", "since the start of the recording"),
    Fact("duration_ns", "Length", "ns", "of the window"),
    Fact("events", "Events", "count", "on the chosen tracks, cut ones too"),
    Fact("host_busy_ns", "Host busy", "ns", "time in which any chosen thread is inside an event"),
    Fact("device_busy_ns", "Device busy", "ns", "union over the chosen streams"),
    Fact("device_idle_ns", "Device idle", "ns", "the rest of the window; of tracks without a stream it is not known"),
    Fact("largest_gap_ns", "Longest gap", "ns", "longest stretch in which no chosen stream of a device is busy"),
)  # fmt: skip
GROUPS: Final = (
    Column("name", "Name", "", "name of the events, kind of work, or track", "code"),
    Column("category", "Kind", "", "kind of work", "badge", rank=2),
    Column("count", "Events", "count", "events in the window, cut ones too"),
    Column("total_ns", "Time", "ns", "sum of their times in the window; nested events count on every level", "bar", color_by="color"),
    Column("share", "Share", "ratio", "of the window", "share", rank=2),
    Column("self_ns", "Self", "ns", "without the time of events directly inside", rank=2),
    Column("mean_ns", "Mean", "ns", "time per event", per="call"),
    Column("min_ns", "Shortest", "ns", "the shortest event", rank=3, per="call"),
    Column("p50_ns", "Median", "ns", "half of the events are at most so long", rank=2, per="call"),
    Column("p95_ns", "95 %", "ns", "95 of 100 events are at most so long", rank=2, per="call"),
    Column("max_ns", "Longest", "ns", "the longest event", rank=2, per="call"),
    Column("device_total_ns", "Device time launched", "ns", "device time of all that was launched inside", rank=2,
           missing="not a host event"),
    Column("color", "Color", "", "member of the palette", rank=3),
)  # fmt: skip
TRACKS: Final = (
    Column("path", "Track", "", "worker, process or device, thread or stream", "code"),
    Column("kind", "Kind", "", "thread, stream, ranges, waiting or instants", "badge"),
    Column("events", "Events", "count", "in the window"),
    Column("busy_ns", "Busy", "ns", "union of the events of the track", "bar", color="bar-ink"),
    Column("busy_share", "Busy share", "ratio", "of the window", "share"),
)
GAPS: Final = (
    Column("device", "Device", "", "index of the device", rank=2),
    Column("start_ns", "Begins at", "ns", "since the start of the recording"),
    Column("duration_ns", "Gap", "ns", "no chosen stream of the device is busy", "bar", color="idle"),
    Column("host_event", "Host meanwhile", "", "innermost event in the middle of the gap, on the thread that launches most",
           "code", missing="no host event"),
    Column("host_thread", "Thread", "", "of that event", rank=2, missing="no host event"),
)  # fmt: skip
COUNTERS: Final = (
    Column("counter", "Counter", "", "what is counted", "text"),
    Column("unit", "Unit", "", "of the values", "text"),
    Column("first", "First", "", "value at the begin of the window"),
    Column("last", "Last", "", "value at its end"),
    Column("min", "Lowest"),
    Column("max", "Highest"),
    Column("delta", "Change", "", "last less first"),
)


class SelectionQuery(Query, kw_only=True, frozen=True):
    """start_ns: begin of the window, ns since the start of the recording ("" = that of the step, or of everything)
    end_ns: its end
    tracks: numbers and ranges of tracks as 0-5,9, or paths with `;` between them ("" = all threads and streams)
    lay: how tracks are arranged, for their numbers and paths; compact: the streams of a device are one track
    group_by: what one row of the groups is
    clip: count only the part of an event inside the window
    """

    start_ns: int | None = None
    end_ns: int | None = None
    tracks: str = ""
    lay: Layout = "process"
    group_by: Literal["name", "category", "track"] = "name"
    clip: bool = True

    ONE_OFF: ClassVar[tuple[str, ...]] = ("start_ns", "end_ns", "tracks")


@analysis(
    title="Selection",
    question="What lies in a part of the timeline?",
    group="Time",
    order=3,
    requirements=("events",),
    query=SelectionQuery,
    tables={"groups": GROUPS, "tracks": TRACKS, "gaps": GAPS, "counters": COUNTERS},
    facts=FACTS,
    under="timeline",
)
def run(capture: Capture, query: SelectionQuery) -> Report:
    shown = timeline_of(capture, query.lay)
    if not len(shown.events):
        raise Unavailable("no event with a time in this recording", hint="record at least one step")
    low, high = scope(capture, query).window_ns
    begin = low if query.start_ns is None else query.start_ns
    end = high if query.end_ns is None else query.end_ns
    if end == begin and query.end_ns is None:
        raise Unavailable("the chosen step has no length", hint="choose another step, or a window with start_ns and end_ns")
    if end <= begin:
        raise BadQuery("the window ends before it begins", hint="give end_ns after start_ns", field="end_ns")
    tracks = named_tracks(shown, query.tracks)
    chosen = select(shown, begin, end, tracks, clip=query.clip)
    gaps = chosen.gaps()
    values = _values(chosen, gaps)
    found = (_split(values), _facts(values), _groups(chosen, query.group_by), _gaps(gaps), _busy(chosen), _counters(chosen))
    headline = _headline(capture, chosen, values)
    chosen.let_go()
    return Report(
        analysis="timeline_selection",
        title="Selection",
        headline=headline,
        sections=[s for s in found if s],
    )


def _values(chosen: Selection, gaps: dict[str, list[Any]]) -> dict[str, Scalar]:
    length = chosen.end - chosen.begin
    streams = any(chosen.timeline.tracks[t].kind == "stream" for t in chosen.tracks)
    layers = chosen.device_layers
    compute, communication, copies = (iv.length(iv.clip(one, chosen.begin, chosen.end)) for one in layers.exclusive)
    busy = compute + communication + copies
    known: dict[str, Scalar] = {
        "compute_ns": compute, "communication_ns": communication, "copies_ns": copies, "idle_ns": length - busy, "device_busy_ns": busy,
        "device_idle_ns": length - busy, "largest_gap_ns": max(gaps["duration_ns"], default=0),
    }  # fmt: skip
    return {
        **(known if streams else dict.fromkeys(known)),
        "start_ns": chosen.begin,
        "duration_ns": length,
        "events": sum(chosen.counts.values()),
        "host_busy_ns": chosen.host_busy_ns if chosen.has_host or not streams else None,
    }


def _headline(capture: Capture, chosen: Selection, values: dict[str, Scalar]) -> str:
    length, busy = int(values["duration_ns"] or 0), values["device_busy_ns"]
    text = f"**{human(length, 'ns')}** with {human(sum(chosen.counts.values()), 'count')} events"
    if not isinstance(busy, int):
        return text + "."
    return f"{text}: the {device_word(capture)} is busy for {human(busy / length, 'ratio')} of it."


def _split(values: dict[str, Scalar]) -> FactsSection | None:
    parts = ("compute_ns", "communication_ns", "copies_ns", "idle_ns")
    length = int(values["duration_ns"] or 0)
    if values["compute_ns"] is None or not length:
        return None
    notes = {n: human(int(values[n] or 0) / length, "ratio") for n in parts}
    return make_facts(
        "split", "Device time", {n: values[n] for n in parts}, FACTS, style="split", notes=notes, span=12,
        subtitle=f"exclusive parts of {human(length, 'ns')}, over the chosen streams",
    )  # fmt: skip


def _facts(values: dict[str, Scalar]) -> FactsSection:
    names = ("start_ns", "duration_ns", "events", "host_busy_ns", "device_busy_ns", "device_idle_ns", "largest_gap_ns")
    hidden = [n for n in names if values[n] is None]
    return make_facts("facts", "Selection", {n: values[n] for n in names}, FACTS, style="tiles", span=12, hidden=hidden)


def _groups(chosen: Selection, by: Literal["name", "category", "track"]) -> TableSection:
    (frame, left), shown = chosen.groups(by), chosen.timeline
    category, group = frame["category"], frame["group"]
    labels = {
        "name": shown.events.names.text, "category": [label for _, label, _ in CATEGORIES], "track": [t.path for t in shown.tracks],
    }[by]  # fmt: skip
    kinds, names = _KINDS[category].tolist(), list(map(labels.__getitem__, group.tolist()))
    device = frame["device_total_ns"].astype(object)
    device[(category < OPERATOR) | (category > OTHER)] = None
    columns = {
        **{c: frame[c] for c in ("count", "total_ns", "self_ns", "mean_ns", "min_ns", "p50_ns", "p95_ns", "max_ns")},
        "name": names,
        "category": kinds,
        "color": _COLORS[shown.events.names.shown[group] if by == "name" else category].tolist(),
        "share": frame["total_ns"] / (chosen.end - chosen.begin),
        "device_total_ns": device.tolist(),
    }
    return make_table(
        "groups", {"name": "By name", "category": "By kind of work", "track": "By track"}[by], columns, GROUPS, sort=Sort("total_ns"),
        filters=["category"] if by == "name" else [], adds=["count", "self_ns"], empty="No event in this selection.",
        footer=f"{left:,} more with less time" if left else "",
        row_links=_links(kinds, names) if by == "name" else {},
    )  # fmt: skip


def _links(categories: list[str], names: list[str]) -> RowLinks:
    def plain() -> dict[str, object]:
        return dict(zip(map(str, range(len(names))), map(_plain_link, categories, names), strict=True))

    return RowLinks(np.ones(len(names), np.bool_), lambda i: _link(categories[i], names[i]), plain)


@lru_cache(maxsize=MOST_LINKS)
def _link(category: str, name: str) -> Link:
    """Returns the page that holds events of that name."""
    found = PAGES.get(category, "operators")
    return Link(found, {} if found == "memcpy" else {"find": name}, "Open its page")


@lru_cache(maxsize=MOST_LINKS)
def _plain_link(category: str, name: str) -> msgspec.Raw:
    """Returns the same as JSON."""
    return msgspec.Raw(msgspec.json.encode(_link(category, name)))


def _gaps(gaps: dict[str, list[Any]]) -> TableSection | None:
    if not gaps["start_ns"]:
        return None
    texts = {c: [text or None for text in gaps[c]] for c in ("host_event", "host_thread")}
    return make_table("gaps", "Longest gaps", {**gaps, **texts}, GAPS, sort=Sort("duration_ns"),
                      subtitle="no chosen stream of the device is busy",
                      timeline=OnTimeline("start_ns", "start_ns", "duration_ns"))  # fmt: skip


def _busy(chosen: Selection) -> TableSection:
    return make_table("tracks", "Tracks", chosen.busy(), TRACKS, sort=Sort("busy_ns"), empty="No track was chosen.")


def _counters(chosen: Selection) -> TableSection | None:
    rows = chosen.counters()
    return make_table("counters", "Counters", rows, COUNTERS) if rows["counter"] else None
