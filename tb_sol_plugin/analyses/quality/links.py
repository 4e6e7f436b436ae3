"""Links: how device events found the call that launched them, and backward operators their forward.

A link adds an owner and never removes an event: device work that was launched before the window or has no launch record stays in
every device total, in a row of its own.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.breakdown import spans_of
from tb_sol_plugin.metrics.time.scope import Scope, scope
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import Column, Fact, FactsSection, Link, Notice, Report, TableSection, make_facts, make_table
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.units import human

METHOD_COLUMNS = (
    Column("method", "Launch found by", "", "How the device event found the call that launched it.", "text"),
    Column("events", "Events", "count", "Device events linked this way."),
    Column("kernels", "Kernels", "count", "Kernels among them.", rank=2),
    Column("copies", "Copies and sets", "count", "Copies and sets of memory among them.", rank=2),
    Column("graph", "By a graph", "count", "Events that a graph launch started.", rank=2),
    Column("time_ns", "Device time", "ns", "Sum of their durations.", "bar", color="compute"),
    Column("busy_ns", "Busy", "ns", "Union of their intervals.", rank=2),
    Column("share", "Share", "ratio", "Their part of the sum of all durations.", "share"),
    Column("with_operator", "In an operator", "count", "Events whose launch lies in an operator."),
    Column("with_module", "In a module", "count", "Events whose launch lies in a module call.", rank=2),
    Column("with_phase", "In a phase", "count", "Events whose launch lies in a user range.", rank=2),
)
BACKWARD_COLUMNS = (
    Column(
        "method", "Forward found by", "", "An autograd flow recorded in the file, or the sequence number and the forward thread.", "text"
    ),
    Column("links", "Links", "count", "Links from a forward operator to a backward root."),
    Column("forward_operators", "Forward operators", "count", "Distinct forward operators."),
    Column("backward_roots", "Backward roots", "count", "Distinct backward roots."),
)
FLOW_COLUMNS = (
    Column("category", "Flow", "", "Category of the flow as recorded.", "code"),
    Column("starts", "Starts", "count", "Halves with phase s."),
    Column("ends", "Ends", "count", "Halves with phase f."),
    Column("pairs", "Pairs", "count", "Ids that have both halves."),
)

FACTS: Final = (
    Fact("device_events", "Device events", "count", "Device events in the selection."),
    Fact("linked_device_events", "With a launch", "count", "Device events whose launch was found."),
    Fact("before_window_events", "Launched before the window", "count", "Device events launched before the recording began."),
    Fact("before_window_ns", "Their device time", "ns", "Sum of their durations."),
    Fact("no_record_events", "No launch record", "count", "Device events without a launch record for another reason."),
    Fact("busy_ns", "Device busy", "ns", "Union of the intervals of all device events."),
    Fact("busy_without_before_window_ns", "Busy without work launched before", "ns", "The same without the events launched before the "
         "recording began."),
    Fact("sequence_numbers_with_backward", "Backward sequence numbers", "count", "Distinct sequence numbers of autograd's "
         "evaluate_function operators."),
    Fact("backward_linked", "With a forward operator", "count", "Those of them that lead to a forward operator."),
    Fact("fwdbwd_flow_pairs", "Autograd flow pairs", "count", "Autograd flows with both halves in the file."),
    Fact("backward_links", "Forward to backward links", "count", "Links from forward operators to backward roots; several may share an "
         "end."),
    Fact("gradient_accumulation", "Gradient accumulation", "count", "evaluate_function operators without a sequence number: gradient "
         "accumulation, owned by the step."),
)  # fmt: skip
_FORWARD_BACKWARD = ("fwdbwd", "forward_backward")


@analysis(
    title="Links",
    question="How sure is it what launched what?",
    group="foot",
    order=10,
    under="health",
    requirements=("host_events", "events"),
    query=Query,
    tables={"methods": METHOD_COLUMNS, "backward": BACKWARD_COLUMNS, "flows": FLOW_COLUMNS},
    facts=FACTS,
)
def links(capture: Capture, query: Query) -> Report:
    """Returns counts and device time by how the launch was found; forward to backward; flows as recorded."""
    part = scope(capture, query)
    facts = _facts(capture, part)
    report = Report(analysis="links", title="Links", headline=_headline(facts))
    if facts["before_window_events"]:
        report.notices.append(
            Notice(
                f"{human(facts['before_window_events'], 'count')} device events were launched before the recording began; "
                "they are in every device total.",
                "info",
                Link("gpu_breakdown", {"scope": "linked"}, "Without them"),
            )
        )
    report.sections = [_facts_section(facts), _methods(capture, part), _backward(capture), _flows(capture)]
    return report


def _facts(capture: Capture, part: Scope) -> dict[str, int | None]:
    device = capture.device
    link = device["link"].to_numpy()
    before = part.device & (link == S.BEFORE_WINDOW)
    none = part.device & (link == S.NO_RECORD)
    values: dict[str, int | None] = {
        "device_events": int(part.device.sum()),
        "linked_device_events": int((part.device & ~before & ~none).sum()),
        "before_window_events": int(before.sum()),
        "before_window_ns": int(device["duration_ns"].to_numpy()[before].sum()),
        "no_record_events": int(none.sum()),
        "busy_ns": iv.length(spans_of(capture, part.device)),
        "busy_without_before_window_ns": iv.length(spans_of(capture, part.device & ~before)),
    }
    if not len(device):
        values = dict.fromkeys(values)
        values["device_events"] = values["linked_device_events"] = 0
    return (
        values
        | _sequence_numbers(capture)
        | {
            "fwdbwd_flow_pairs": sum(int(row["pairs"]) for row in _flow_rows(capture) if row["category"] in _FORWARD_BACKWARD),
            "backward_links": len(capture.tables["backward"]),
        }
    )


def _sequence_numbers(capture: Capture) -> dict[str, int | None]:
    """Returns numbers carried by evaluate_function operators, and how many of them lead to a forward operator."""
    operators = capture.tables["operators"]
    host, sequence = operators["host"].to_numpy(), operators["sequence"].to_numpy()
    wrappers = at.named(capture, S.OPERATOR, lambda name: name.startswith("autograd::engine::evaluate_function"))
    linked = np.zeros(len(capture.host), bool)
    linked[capture.tables["backward"]["backward"].to_numpy()] = True
    root = at.mask_of(capture, wrappers)[host] & (sequence >= 0)
    numbered = np.zeros(len(capture.host), bool)
    numbered[host[sequence >= 0]] = True
    return {
        "sequence_numbers_with_backward": len(pd.unique(sequence[root])),
        "backward_linked": len(pd.unique(sequence[root & linked[host]])),
        "gradient_accumulation": int((~numbered[wrappers]).sum()),
    }


def _flow_rows(capture: Capture) -> list[dict[str, str | int]]:
    return memo(capture, "flow rows", lambda: _count_flows(capture.tables["flows"]))


def _count_flows(flows: pd.DataFrame) -> list[dict[str, str | int]]:
    category, phase, ids = flows["category"].cat, flows["phase"].cat, flows["id"].to_numpy()
    category_code, phase_code = category.codes.to_numpy(), phase.codes.to_numpy()
    begins, finishes = (phase_code == (phase.categories.get_loc(p) if p in phase.categories else -2) for p in ("s", "f"))
    out: list[dict[str, str | int]] = []
    for code in sorted(np.unique(category_code).tolist(), key=lambda c: str(category.categories[c])):
        own = category_code == code
        starts, ends = ids[own & begins], ids[own & finishes]
        one, first = arrays.numbered(np.concatenate((starts, ends)))
        begun, ended = (np.bincount(part, minlength=len(first)) > 0 for part in (one[: len(starts)], one[len(starts) :]))
        pairs = int(np.count_nonzero(begun & ended))
        out.append({"category": str(category.categories[code]), "starts": len(starts), "ends": len(ends), "pairs": pairs})
    return out


def _headline(facts: dict[str, int | None]) -> str:
    events, linked = facts["device_events"] or 0, facts["linked_device_events"] or 0
    numbers, found = facts["sequence_numbers_with_backward"] or 0, facts["backward_linked"] or 0
    backward = f"{human(found, 'count')} of {human(numbers, 'count')} backward sequence numbers lead to their forward operator."
    if not events:
        return (
            f"No device activity was recorded; **{backward[:-1]}**." if numbers else "No device activity and no backward pass was recorded."
        )
    device = f"**{human(linked / events, 'ratio')}** of {human(events, 'count')} device events found their launch"
    return f"{device}; {backward}" if numbers else f"{device}; no backward pass was recorded."


def _facts_section(facts: dict[str, int | None]) -> FactsSection:
    return make_facts("facts", "Counts", facts, FACTS)


def _methods(capture: Capture, part: Scope) -> TableSection:
    device = capture.device
    link, duration, kind = (device[c].to_numpy() for c in ("link", "duration_ns", "kind"))
    whole = int(duration[part.device].sum())
    rows: list[dict[str, Any]] = []
    for code, name in enumerate(S.LINKS):
        mask = part.device & (link == code)
        own = np.flatnonzero(mask)
        time = int(duration[own].sum())
        rows.append(
            {
                "method": name,
                "events": len(own),
                "kernels": int((kind[own] == S.KERNEL).sum()),
                "copies": int((kind[own] != S.KERNEL).sum()),
                "graph": int(device["graph"].to_numpy()[own].sum()),
                "time_ns": time,
                "busy_ns": iv.length(spans_of(capture, mask)) if len(own) else 0,
                "share": time / whole if whole else None,
                "with_operator": int((device["operator"].to_numpy()[own] >= 0).sum()),
                "with_module": int((device["module"].to_numpy()[own] >= 0).sum()),
                "with_phase": int((device["annotation"].to_numpy()[own] >= 0).sum()),
            }
        )
    sums = ("events", "kernels", "copies", "graph", "time_ns", "with_operator", "with_module", "with_phase")
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return make_table(
        "methods",
        "Device events by link",
        columns,
        METHOD_COLUMNS,
        key="method",
        total={"method": "All", **{c: sum(row[c] for row in rows) for c in sums}},
        footer="Correlation is the id that the recorder gives to a launch and to the work it starts.",
    )


def _backward(capture: Capture) -> TableSection:
    table = capture.tables["backward"]
    rows = []
    for code, name in enumerate(("flow", "sequence number")):
        own = table["method"].to_numpy() == code
        forward, backward = (len(pd.unique(table[end].to_numpy()[own])) for end in ("forward", "backward"))
        rows.append({"method": name, "links": int(own.sum()), "forward_operators": forward, "backward_roots": backward})
    columns = {c.name: [row[c.name] for row in rows] for c in BACKWARD_COLUMNS}
    return make_table("backward", "Forward to backward", columns, BACKWARD_COLUMNS, key="method", span=6)


def _flows(capture: Capture) -> TableSection:
    columns = {c.name: [row[c.name] for row in _flow_rows(capture)] for c in FLOW_COLUMNS}
    return make_table("flows", "Flows as recorded", columns, FLOW_COLUMNS, key="category", span=6, empty="This file holds no flow.")
