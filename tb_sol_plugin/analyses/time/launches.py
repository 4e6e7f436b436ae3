"""What launches cost: calls that hand work to the device, how long it takes to start, how long queues are, and where calls are blocked.

The delay of a launch is the time from the start of its call to the start of its first work. It says what a launch takes only where the
stream had nothing to do: elsewhere the work waits for its turn. A launch is blocked where it finds the queue of its device full.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics.critical.launches import launches
from tb_sol_plugin.metrics.report.notes import edge_notices
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import Column, Fact, OnTimeline, Report, Scalar, Sort, make_facts, make_table
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.units import human

SLOW: Final = 5
SLOW_NS: Final = 30_000
"""A call is slow from so many times the median of its name on, and from so many ns."""
WORDS: Final = {"call": "call", "operator": "operator", "annotation": "range"}
DRY: Final = "no launch into an idle stream"
APART: Final = "its work starts before it: the clocks of device and host differ"
CALLS: Final = (
    Column("name", "Name", "", "runtime or driver call, or operator or user range around it", "code"),
    Column("count", "Launches", "count", "calls that launched work of the selection"),
    Column("call_ns", "Calls", "ns", "time of these calls on the host", "bar", color="bar-ink"),
    Column("device_ns", "Device", "ns", "sum of the device time that they launched", "bar", color="compute"),
    Column("delay_ns", "Launch delay", "ns", "median from a call to the start of its work, where its stream had nothing to do", missing=DRY,
           per="call"),
    Column("wait_ns", "To its start", "ns", "median from a call to the start of its work, of all launches that it starts after", rank=2,
           per="call", missing=APART),
    Column("queue_length", "Queue", "", "mean of what was launched to the device and had not started at the call"),
    Column("short", "Work shorter", "count", "launches whose work takes less time than the call", rank=2),
    Column("blocked_ns", "Blocked", "ns", "time of calls that found the queue of the device full"),
)  # fmt: skip
OUTLIERS: Final = (
    Column("start_ns", "Start", "ns", "since the start of the recording"),
    Column("name", "Call", "", "runtime or driver call", "code"),
    Column("call_ns", "Call", "ns", "time of the call on the host", "bar", color="bar-ink"),
    Column("times", "Times median", "", "that over the median of calls of its name"),
    Column("delay_ns", "To its start", "ns", "from the call to the start of its work", missing=APART),
    Column("queue_length", "Queue", "count", "launched to the device and not started at the call"),
    Column("blocked", "Blocked", "", "the queue of the device was full"),
    Column("operator", "Operator", "", "innermost operator around it", "code", missing="no operator around the call"),
)
FACTS: Final = (
    Fact("launches", "Launches", "count", "calls that launched work of the selection"),
    Fact("call_ns", "Calls", "ns", "time of these calls on the host"),
    Fact("delay_ns", "Launch delay", "ns", "median from a call to the start of its work, where its stream had nothing to do"),
    Fact("short", "Work shorter than its launch", "count", "launches whose work takes less time than the call"),
    Fact("blocked", "Blocked", "count", "launches that found the queue of their device full"),
    Fact("blocked_ns", "Blocked for", "ns", "time of these calls"),
    Fact("queue_max", "Longest queue", "count", "most of what was launched to a device and had not started at a call"),
)


class LaunchesQuery(Query, kw_only=True, frozen=True):
    """by: what the launches are summed up by: the call, the innermost operator or user range around it"""

    by: Literal["call", "operator", "annotation"] = "call"


@analysis(
    title="Launches",
    question="What do launches cost, and how far is the host ahead of the device?",
    group="Time",
    order=6,
    requirements=("device_events",),
    query=LaunchesQuery,
    tables={"calls": CALLS, "outliers": OUTLIERS},
    facts=FACTS,
    under="gpu_breakdown",
)
def run(capture: Capture, query: LaunchesQuery) -> Report:
    where = scope(capture, query)
    found = launches(capture, where.device)
    if not len(found):
        raise Unavailable("no launch of this work was recorded", hint="record the host too: ProfilerActivity.CPU")
    dry, blocked = (found[name].to_numpy() for name in ("dry", "blocked"))
    usual = int(np.median(found["delay_ns"].to_numpy()[dry])) if dry.any() else None
    values: dict[str, Scalar] = {
        "launches": len(found), "call_ns": int(found["call_ns"].to_numpy().sum()),
        "delay_ns": usual, "short": int(found["short"].to_numpy().sum()),
        "blocked": int(blocked.sum()), "blocked_ns": int(found["call_ns"].to_numpy()[blocked].sum()),
        "queue_max": int(found["queue_length"].to_numpy().max()),
    }  # fmt: skip
    delay = f", {human(usual, 'ns')} from a call to the start of its work on an idle stream" if usual else ""
    mean = human(int(values["call_ns"] or 0) / len(found), "ns")
    return Report(
        analysis="launches",
        title="Launches",
        headline=f"**{human(len(found), 'count')} launches** of {mean} on average{delay}; up to {values['queue_max']} wait in a queue.",
        notices=edge_notices(capture, where),
        sections=[
            make_table(
                "calls", f"By {WORDS[query.by]}", _grouped(capture, found, query.by), CALLS, key="name",
                sort=Sort("call_ns"), span=8, subtitle=where.label, adds=["count", "call_ns", "device_ns", "short", "blocked_ns"],
            ),
            make_facts("facts", "Launches", values, FACTS, span=4),
            make_table(
                "outliers", "Slow launches", _outliers(capture, found), OUTLIERS, sort=Sort("call_ns"),
                filters=["name", "blocked"], adds=["call_ns"], timeline=OnTimeline("start_ns", "start_ns", "call_ns"),
                subtitle=f"calls of {SLOW} times the median of their name and {human(SLOW_NS, 'ns')} at least", empty="No launch is slow.",
            ),
        ],
    )  # fmt: skip


def _grouped(capture: Capture, found: pd.DataFrame, by: str) -> dict[str, npt.NDArray[Any]]:
    rows = found[by].to_numpy()
    names = arrays.pick(capture.host["name"], rows)
    names[rows < 0] = f"(no {WORDS[by]})"
    code, distinct = pd.factorize(names)
    count = len(distinct)
    dry = found["dry"].to_numpy()
    sums = {c: arrays.exact_sums(code, found[c].to_numpy().astype(np.int64), count) for c in ("call_ns", "device_ns", "short")}
    blocked = arrays.exact_sums(code, found["call_ns"].to_numpy() * found["blocked"].to_numpy(), count)
    number = np.bincount(code, minlength=count)
    delays = found["delay_ns"].to_numpy()
    delay, known = arrays.medians(code[dry], delays[dry], count), delays >= 0
    return {
        "name": distinct, "count": number, **sums, "delay_ns": arrays.whole_or_none(delay),
        "wait_ns": arrays.whole_or_none(arrays.medians(code[known], delays[known], count)),
        "queue_length": np.bincount(code, found["queue_length"].to_numpy(), minlength=count) / number, "blocked_ns": blocked,
    }  # fmt: skip


def _outliers(capture: Capture, found: pd.DataFrame) -> dict[str, object]:
    code = arrays.coded(capture.host["name"]).codes[found["call"].to_numpy()]
    place, distinct = pd.factorize(code)
    length = found["call_ns"].to_numpy()
    times = length / np.maximum(arrays.medians(place, length, len(distinct))[place], 1)
    slow = np.flatnonzero((times >= SLOW) & (length >= SLOW_NS))
    names = ("start_ns", "call", "call_ns", "delay_ns", "queue_length", "blocked", "operator")
    some = {name: found[name].to_numpy()[slow] for name in names}
    return some | {
        "times": times[slow], "delay_ns": arrays.or_none(some["delay_ns"], some["delay_ns"] >= 0),
        "name": arrays.at(capture.host["name"], some["call"]), "operator": arrays.at(capture.host["name"], some["operator"]),
    }
