"""Timeline: what happened then, on every thread and stream, from the whole recording down to one kernel.

Events too short to see are merged and counted, never left out. The page draws tiles that the server makes for its width; the report
names the window and the tracks to open with.
"""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics.time.breakdown import device_word
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.timeline.selection import Selection, everything, select
from tb_sol_plugin.metrics.timeline.timeline import timeline_of
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import Column, Fact, Report, Scalar, Sort, TimelineSection, make_facts, make_table
from tb_sol_plugin.units import capitalized, human

FACTS: Final = (
    Fact("events", "Events", "count", "complete events, instants, ranges and records of waiting: all of them are on the timeline"),
    Fact("tracks", "Tracks", "count", "threads, streams and counters"),
    Fact("lanes", "Lanes", "count", "lines of the tracks: a nested event stands one lane below the one around it"),
    Fact("overflow_events", "Events in overlap", "count", "events that overlap another one of their track without lying inside it: they "
         "stand on a lane of their own, none is hidden"),
    Fact("span_ns", "Recorded", "ns", "from the first start to the last end"),
    Fact("outliers", "Far events", "count", "events far outside of where 99.9 % of all are; the axis does not begin with them"),
)  # fmt: skip

TRACKS: Final = (
    Column("path", "Track", "", "worker, process or device, thread or stream", "code"),
    Column("kind", "Kind", "", "thread or stream", "badge"),
    Column("detail", "Holds", "", "work of most of a stream's time; the number of a thread", "text", rank=2),
    Column("lanes", "Lanes", "count", "lines of the track, by depth", rank=2),
    Column("events", "Events", "count", "in the window"),
    Column("launches", "Launches", "count", "device events that the thread launched, in the whole recording", rank=2),
    Column("busy_ns", "Busy", "ns", "union of the events of the track", "bar", color="bar-ink"),
    Column("busy_share", "Busy share", "ratio", "of the window", "share"),
)


class TimelineQuery(Query, kw_only=True, frozen=True):
    """step: the window to open with; "" for everything"""


@analysis(
    title="Timeline",
    question="What happened then?",
    group="Time",
    order=2,
    requirements=("events",),
    query=TimelineQuery,
    tables={"track_list": TRACKS},
    facts=FACTS,
)
def run(capture: Capture, query: TimelineQuery) -> Report:
    shown = timeline_of(capture)
    if not len(shown.events):
        raise Unavailable("no event with a time in this recording", hint="record at least one step")
    where = scope(capture, query)
    low, high, far = shown.focus()
    window = (low, high) if where.whole and far else where.window_ns
    values: dict[str, Scalar] = {
        "events": len(shown.events),
        "tracks": sum(1 for t in shown.tracks if t.lanes or t.series >= 0),
        "lanes": sum(t.lanes for t in shown.tracks),
        "overflow_events": shown.overflow,
        "span_ns": shown.span_ns,
        "outliers": sum(count for _, count in far),
    }
    opened = [] if where.whole and not far else list(window)
    chosen = select(shown, *window, everything(shown))
    rows = chosen.busy()
    of = [shown.tracks[i] for i in rows["track"]]
    rows |= {"detail": [t.detail for t in of], "lanes": [t.lanes for t in of], "launches": [t.launches for t in of]}
    headline = _headline(capture, where.label, chosen)
    chosen.let_go()
    return Report(
        analysis="timeline",
        title="Timeline",
        headline=headline,
        sections=[
            TimelineSection(
                id="timeline", title="", start_ns=opened[0] if opened else None, end_ns=opened[1] if opened else None, weight="full"
            ),
            make_table("track_list", "Rows", rows, TRACKS, sort=Sort("busy_ns"), span=8, empty="No thread and no stream is busy."),
            make_facts(
                "numbers", "Numbers", values, FACTS, span=4, hidden=[n for n in ("overflow_events", "outliers") if not values[n]],
            ),
        ],
    )  # fmt: skip


def _headline(capture: Capture, label: str, chosen: Selection) -> str:
    length = chosen.end - chosen.begin
    word, busy = device_word(capture), chosen.device_layers.busy_ns
    label = capitalized(label)
    if not len(capture.device) or length <= 0:
        return f"{label}: {human(length, 'ns')} of host activity; no device activity was recorded."
    gaps = chosen.gaps(1)
    text = f"{label}: the {word} is busy for **{human(busy / length, 'ratio')}** of {human(length, 'ns')}"
    if gaps["start_ns"] and gaps["host_event"][0]:
        return f"{text}; its longest gap is {human(gaps['duration_ns'][0], 'ns')}, while the host is in `{gaps['host_event'][0]}`."
    return text + "."
