"""By how much each event may be late without a longer step.

Slack of an event is what it may end later while the step ends as before: 0 on the critical path, unknown where nothing of the step waits
for it. An event of much slack gains nothing when it is faster. One nanosecond more than its slack makes the step longer.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.critical import passes
from tb_sol_plugin.metrics.critical.items import device_slack, slack_of
from tb_sol_plugin.metrics.critical.path import selected_path
from tb_sol_plugin.metrics.critical.window import window_of_steps
from tb_sol_plugin.metrics.report.gap_rows import from_step
from tb_sol_plugin.metrics.report.notes import edge_notices
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import Column, Fact, OnTimeline, Report, Scalar, Sort, make_facts, make_table
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.units import human

NOTHING_WAITS: Final = "nothing of the step waits for it"
EVENTS: Final = (
    Column("event", "No.", "count", "place in order of time", rank=3),
    Column("step", "Step", "", "step in which it begins", missing="outside every recorded step", rank=2),
    Column("name", "Event", "", "device event, operator or runtime call", "code"),
    Column("slack_ns", "Slack", "ns", "by how much it may end later without a longer step", "bar", color="accent", missing=NOTHING_WAITS),
    Column("duration_ns", "Length", "ns", "of the event", "bar", color="bar-ink"),
    Column("start_ns", "Start", "ns", "since the start of the recording"),
    Column("times", "Slack ÷ length", "", "above 1 it may take twice as long", rank=2, missing=NOTHING_WAITS),
    Column("on_path", "On the path", "", "it holds the end of its step"),
)
FACTS: Final = (
    Fact("events", "Events", "count", "device events, or operators and calls, that end in the steps"),
    Fact("on_path", "On the path", "count", "of these"),
    Fact("on_path_ns", "Their time", "ns", "sum of their lengths"),
    Fact("total_ns", "All time", "ns", "sum of the lengths of all"),
    Fact("slack_ns", "Median slack", "ns", "of those off the path that the step waits for"),
)


class SlackQuery(Query, kw_only=True, frozen=True):
    """side: events of the device, or operators and calls of the host; those of the host also where no device was recorded"""

    side: Literal["device", "host"] = "device"


@analysis(
    title="Slack",
    question="Which work may take longer without a longer step?",
    group="Time",
    order=9,
    requirements=("events", "program"),
    query=SlackQuery,
    tables={"events": EVENTS},
    facts=FACTS,
    under="critical_path",
)
def run(capture: Capture, query: SlackQuery) -> Report:
    where, path = selected_path(capture, query)
    window = window_of_steps(capture, where)
    nodes, side = window.graph.nodes, query.side if len(capture.device) else "host"
    if side == "device":
        ends, late = window.device_ends, device_slack(capture, where)
        table, rows = capture.device, nodes.device_rows(window.in_graph(ends)).astype(np.int32)
    else:
        ends = np.flatnonzero(window.happens)
        node = window.in_graph(ends).astype(np.int64)
        some = node < nodes.hosts
        some[some] = ~nodes.opens[node[some]] & np.isin(at.host(capture).kind[nodes.row[node[some]]], (S.OPERATOR, S.CALL))
        table, rows, ends = capture.host, nodes.row[node[some]], ends[some]
        late = slack_of(capture, where)[ends]
    start, length = (table[c].to_numpy()[rows] for c in ("start_ns", "duration_ns"))
    order = arrays.stable_order(start) if side == "device" else np.lexsort((rows, start))
    rows, ends, late, start, length = rows[order], ends[order], late[order], start[order], length[order]
    held = np.zeros(len(window.time), np.bool_)
    held[window.target[window.edge_places(path.edge[path.edge >= 0])]] = True
    on_path, known = held[ends], late < passes.NEVER
    off = known & ~on_path
    values: dict[str, Scalar] = {
        "events": len(rows), "on_path": int(on_path.sum()), "on_path_ns": int(length[on_path].sum()), "total_ns": int(length.sum()),
        "slack_ns": int(np.median(late[off])) if off.any() else None,
    }  # fmt: skip
    step, _ = from_step(capture, start)
    frame = {
        "event": np.arange(1, len(rows) + 1), "step": step, "name": arrays.at(table["name"], rows), "start_ns": start,
        "duration_ns": length, "slack_ns": _known(late, known), "on_path": on_path,
        "times": np.where(known & (length > 0), late / np.maximum(length, 1), np.nan),
    }  # fmt: skip
    what = "device events" if side == "device" else "operators and calls"
    share = human(int(on_path.sum()) / len(rows), "ratio") if len(rows) else "none"
    return Report(
        analysis="slack",
        title="Slack",
        headline=f"**{share}** of {human(len(rows), 'count')} {what} hold a step; the others may end later.",
        notices=edge_notices(capture, where),
        sections=[
            make_table(
                "events", "Events", frame, EVENTS, key="event", sort=Sort("slack_ns"), filters=["name", "on_path"], subtitle=where.label,
                adds=["duration_ns"], timeline=OnTimeline("start_ns", "start_ns", "duration_ns"),
                empty="No such event ends in these steps.",
            ),
            make_facts("facts", "Slack", values, FACTS, span=4),
        ],
    )  # fmt: skip


def _known(values: Ints, known: np.ndarray) -> pd.arrays.IntegerArray:
    """Returns whole numbers, none where they are not known."""
    return pd.arrays.IntegerArray(np.where(known, values, 0), ~known)
