"""On another device: the limits of the recorded work on another device, or with its matrix work in another type.

A bound, not a forecast: the least time in which a device could do this work. Limits are those of the roofline; work without a cost
model, communication, and copies over a link are in no row.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import pandas as pd

from tb_sol_plugin.devices.catalog import known_keys
from tb_sol_plugin.devices.catalog import table as device_table
from tb_sol_plugin.devices.limits import device_for, why_no_limits
from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.errors import BadQuery, Unavailable
from tb_sol_plugin.metrics.report.notes import edge_notices, source_notices
from tb_sol_plugin.metrics.time.scope import Scope, has_ledger, is_capture, scope, step_time
from tb_sol_plugin.metrics.work import other_device as W
from tb_sol_plugin.metrics.work.columns import ranked
from tb_sol_plugin.model import figure as fig
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.columns import number_of, plain_list
from tb_sol_plugin.model.figure import escape, light
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import (
    Column,
    Fact,
    FactsSection,
    FigureSection,
    Link,
    Mark,
    Notice,
    Report,
    Scalar,
    Sort,
    TableSection,
    make_facts,
    make_table,
)
from tb_sol_plugin.tables.arrays import Floats, codes, factorize, labels, whole_or_none
from tb_sol_plugin.units import capitalized, human, side_by_side

WELL_KNOWN: Final = ("H100_SXM", "H200", "B200", "A100_SXM_80", "L40S", "MI300X", "RTX_4090", "L4")
"""Devices that the comparison always lists, beside the recorded and the chosen one."""
TITLE: Final = "On another device"
NO_LIMIT: Final = "the device has no rate for a type in it, or its limits are unknown"
BOUND_ONLY: Final = "A bound, not a forecast: the least time in which the device could do this work."

_VALUES: Final = (
    Column("calls", "Calls", "count", "Modeled calls per step."),
    Column(
        "measured_ns",
        "Measured",
        "ns",
        "Time of these calls per step, as recorded (host time without device work).",
        "bar",
        color="bar-ink",
    ),
    Column("share", "Share", "ratio", "Measured time over that of all modeled calls.", "share", rank=2),
    Column("sol_ns", "Limit here", "ns", "Least time on the recorded device, in the recorded types.", missing=NO_LIMIT),
    Column("sol_then_ns", "Limit there", "ns", "Least time on the chosen device, in the chosen type.", missing=NO_LIMIT),
    Column("ratio", "Here ÷ there", "", "Limit here over limit there: above 1 the bound there is lower.", missing=NO_LIMIT),
    Column("headroom", "Measured ÷ there", "", "Measured time over the limit there.", rank=2, missing=NO_LIMIT),
    Column("bound", "Bound here", "", "What sets the larger part of the limit here.", "badge", missing=NO_LIMIT),
    Column("bound_then", "Bound there", "", "What sets the larger part of the limit there.", "badge", missing=NO_LIMIT),
    Column("lacking", "No rate for", "", "Types of matrix work that the chosen device has no rate for.", rank=3),
)
PHASES: Final = (Column("name", "Phase", "", "Phase right below the step, or the pass where no phases were recorded.", "code"), *_VALUES)
KINDS: Final = (Column("name", "Kind", "", "Kind of work.", "symbol"), *_VALUES)
OPERATORS: Final = (
    Column("name", "Operator", "", "Operator that carries the work, and the type it computes in.", "code"),
    *_VALUES,
)
DEVICES: Final = (
    Column("device", "Device", "", "Key of the device limits.", "code"),
    Column("name", "Name", "", "Name of the device.", rank=2),
    Column("sol_ns", "Limit of a step", "ns", "Least time of the modeled work of a step on this device.", "bar", color="accent"),
    Column("ratio", "Here ÷ there", "", "Limit of the recorded device in the recorded types over this limit."),
    Column("headroom", "Measured ÷ there", "", "Measured time of the modeled work over this limit.", rank=2),
    Column("compute_share", "Compute", "ratio", "Part of the limit that arithmetic sets; the rest is memory traffic.", "share", rank=2),
    Column("peak_flop_per_s", "Dense peak", "FLOP/s", "Dense peak of the type that holds most matrix work.", rank=2, missing="no rate"),
    Column("bandwidth_bytes_per_s", "Memory", "B/s", "Memory bandwidth.", rank=2, missing="unknown"),
    Column("note", "Note", "", "Which device this is here, or why it has no limit.", "text"),
)
FACTS: Final = (
    Fact("device", "Here", "", "Device that was recorded, or whose limits were chosen for it."),
    Fact("device_then", "There", "", "Device asked about."),
    Fact("dtype", "Type there", "", "Type asked about for eligible matrix work."),
    Fact("step_ns", "Step, measured", "ns", "Measured time of a step; of everything recorded where no step was."),
    Fact("measured_ns", "Modeled work, measured", "ns", "Time of the modeled calls of a step."),
    Fact("sol_ns", "Limit here", "ns", "Their limit on the recorded device, in the recorded types."),
    Fact("sol_then_ns", "Limit there", "ns", "Their limit on the chosen device, in the chosen type."),
    Fact("ratio", "Here ÷ there", "", "Limit here over limit there."),
    Fact("modelled_share", "Covered", "ratio", "Part of the time of all calls that these rows cover."),
    Fact("uncovered_ns", "In no row", "ns", "Time of a step in no row: no cost model, communication, copies over a link."),
    Fact("changed_share", "Changes its type", "ratio", "Part of the measured time whose matrix work changes its type."),
)  # fmt: skip
MOST_OPERATORS: Final = 20
FAR: Final = 100
"""From so many times the limit on, the measured time is not a matter of a device's peaks."""


class WhatifQuery(Query, kw_only=True, frozen=True):
    """What if.

    device: device limits to ask about, as KEY, KEY@1410MHz or KEY+sparse ("" = the lowest limit; for another type the same device)
    dtype: type for matrix products, convolutions and attention that it can stand for; recorded leaves every type as it is
    """

    device: str = ""
    dtype: W.Dtype = "recorded"

    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {"device": ("", *known_keys())}


@analysis(
    title=TITLE,
    question="How fast could this be on another device or in another type?",
    group="Speed of light",
    order=15,
    requirements=("operators", "shapes"),
    counted=has_ledger,
    query=WhatifQuery,
    tables={"phases": PHASES, "devices": DEVICES, "kinds": KINDS, "operators": OPERATORS},
    facts=FACTS,
)
def whatif(capture: Capture, query: WhatifQuery) -> Report:
    """Measured time, the limit here and the limit there, by phase, kind and operator; and the limit of a step on well-known devices."""
    part = scope(capture, query)
    chosen = W.selected(capture, part, query.device_limits)
    if not len(chosen.ops):
        raise Unavailable("no operator of this selection has a cost model and a measured time", hint="profile(record_shapes=True)")
    here = chosen.calls.done.spec
    host_only = chosen.calls.done.by_host_time
    if host_only and here is not None and here.vendor != "cpu":
        here = None
    there = _there(capture, query) if query.device else here
    now = W.limits(chosen.demand, here) if here is not None else None
    devices = _devices(chosen, here, there, now, query)
    if not query.device and (query.dtype == "recorded" or here is None):
        there = _alternative(devices, here)
    then = W.limits(chosen.demand, there, query.dtype) if there is not None else None
    keys = {"phases": chosen.phase, "kinds": pd.Categorical(chosen.ops["kind"]), "operators": _operators(chosen.ops)}
    frames = {n: W.rows(k, chosen.ops, now, then, chosen.steps) for n, k in keys.items()}
    lacking = W.total(then, chosen.steps).lacking if then is not None else ""
    values = _values(chosen, frames["phases"], now, then, here, there, query)
    report = Report(
        analysis="whatif", title=TITLE, headline=_headline(values, devices, there, lacking, whose=_whose(capture, part), host=host_only)
    )
    report.notices = _notices(capture, part, chosen, values, here, there, query)
    named = {"phases": "By pass" if chosen.by_pass else "By phase", "kinds": "By kind", "operators": "By operator"}
    each = "per step" if part.rows else "sums; no step was recorded"
    report.sections = [
        _device_table(devices, query, each),
        limit_bars(frames["phases"], _short(here), _there_words(here, there, query), named["phases"].lower()),
        _facts(values),
        _table("phases", named["phases"], PHASES, frames["phases"], values, each),
        _table("kinds", named["kinds"], KINDS, frames["kinds"], values, each),
        _table("operators", named["operators"], OPERATORS, frames["operators"], values, each, MOST_OPERATORS),
    ]
    return report


Device: TypeAlias = dict[str, Any]
"""A row of the table of devices, by column."""


def _there(capture: Capture, query: WhatifQuery) -> DeviceSpec | None:
    """Returns the device asked about; a clock or sparsity alone changes the limits in use."""
    text = query.device.strip()
    requested = query.device_limits + text if text[:1] in "@+" else text
    try:
        return device_for(capture, requested)
    except BadQuery as error:
        raise BadQuery(error.message, hint=error.hint, field="device") from None


def _alternative(devices: list[Device], here: DeviceSpec | None) -> DeviceSpec | None:
    """Returns the device with the lowest limit that is not the recorded one, which it notes in the table; without one, the recorded one."""
    table = device_table()
    for one in devices:
        key = str(one["device"])
        if (here is None or key != here.key) and key in table and one["sol_ns"] is not None and not one["_lacks"]:
            one["note"] = "; ".join(filter(None, ["compared", one["note"]]))
            return table[key]
    return here


def _short(spec: DeviceSpec | None) -> str:
    return spec.name if spec is not None else "the recorded device"


def _there_words(here: DeviceSpec | None, there: DeviceSpec | None, query: WhatifQuery) -> str:
    """Returns the other side in words, "" where nothing was asked."""
    if there is None or (there is here and not query.device and query.dtype == "recorded"):
        return ""
    kind = "" if query.dtype == "recorded" else f" in {query.dtype}"
    return f"{there.name}{kind}"


# -- Numbers ----------------------------------------------------------------------------------------------------------


def _values(
    chosen: W.Selected,
    frame: W.Columns,
    now: W.Limits | None,
    then: W.Limits | None,
    here: DeviceSpec | None,
    there: DeviceSpec | None,
    query: WhatifQuery,
) -> dict[str, Scalar]:
    first, second = (W.total(x, chosen.steps) if x is not None else None for x in (now, then))
    sol, after = (x.sol_ns if x is not None else None for x in (first, second))
    timed = chosen.calls.done.timed
    measured = float(np.nansum(frame["measured_ns"]))
    time = np.nan_to_num(chosen.ops["measured_ns"].to_numpy(dtype=np.float64))
    spent = "measured_ns" if chosen.calls.done.by_host_time or chosen.calls.done.from_ledger else "device_sum_ns"
    covered = float(np.nansum(chosen.ops[spent].to_numpy(dtype=np.float64)))
    changed = time[W.eligible(chosen.ops, query.dtype)].sum() / time.sum() if timed else 0.0
    return {
        "device": here.name if here is not None else None,
        "device_then": there.name if there is not None else None,
        "dtype": query.dtype,
        "step_ns": round(chosen.window_ns / chosen.steps),
        "measured_ns": round(measured) if timed else None,
        "sol_ns": None if sol is None else round(sol),
        "sol_then_ns": None if after is None else round(after),
        "ratio": sol / after if sol is not None and after else None,
        "modelled_share": covered / chosen.spent_ns if chosen.spent_ns else None,
        "uncovered_ns": round(max(chosen.spent_ns - covered, 0) / chosen.steps) if timed else None,
        "changed_share": None if query.dtype == "recorded" or not timed else float(changed),
    }


def _device_note(spec: DeviceSpec, here: DeviceSpec | None, *, chosen: bool, lacking: str) -> str:
    """Says of a device whether it is the recorded or the chosen one, and which of its rates is unknown."""
    out = []
    if spec is here:
        out.append("recorded" if here.method != "override" else "in use")
    if chosen:
        out.append("chosen")
    if lacking:
        out.append(f"no rate for {lacking}")
    elif spec.memory_bandwidth is None:
        out.append("memory bandwidth unknown")
    return ", ".join(out)


def _devices(
    chosen: W.Selected, here: DeviceSpec | None, there: DeviceSpec | None, now: W.Limits | None, query: WhatifQuery
) -> list[Device]:
    """Returns a row per device, lowest limit first, those without one last."""
    listed: dict[str, DeviceSpec] = {}
    for spec in (here, there):
        if spec is not None:
            listed.setdefault(spec.fingerprint, spec)
    known = {spec.key for spec in listed.values() if spec.method != "derived"}
    table = device_table()
    for key in WELL_KNOWN:
        if key in table and (key not in known or (there is not None and key == there.key and there.fingerprint != table[key].fingerprint)):
            listed.setdefault(table[key].fingerprint, table[key])
    before = W.total(now, chosen.steps).sol_ns if now is not None else None
    measured = float(np.nansum(chosen.ops["measured_ns"].to_numpy(dtype=np.float64))) / chosen.steps
    flop = np.nan_to_num(chosen.ops["flop"].to_numpy(dtype=np.float64))
    records: list[Device] = []
    for spec in listed.values():
        found = W.limits(chosen.demand, spec, query.dtype)
        whole = W.total(found, chosen.steps)
        limit = whole.sol_ns if spec.memory_bandwidth is not None else None
        main = _main_type(flop, found)
        note = _device_note(spec, here, chosen=bool(query.device) and spec is there, lacking=whole.lacking)
        records.append(
            {
                "device": _key_of(spec),
                "name": spec.name,
                "sol_ns": None if limit is None else round(limit),
                "ratio": before / limit if before is not None and limit else None,
                "headroom": measured / limit if limit and measured else None,
                "compute_share": whole.compute_share if limit is not None else None,
                "peak_flop_per_s": spec.matrix_peak(main) if main else None,
                "bandwidth_bytes_per_s": spec.memory_bandwidth,
                "note": note,
                "_lacks": bool(whole.lacking),
                "_unsure": spec.is_unverified(main) or "mem_bw_gb_per_s" in spec.unverified,
            }
        )
    records.sort(key=lambda record: math.inf if record["sol_ns"] is None else record["sol_ns"])
    return _first_of_each(records)


def _first_of_each(records: list[Device]) -> list[Device]:
    """Returns the first record of each device."""
    first = {record["device"]: record for record in reversed(records)}
    return [record for record in records if first[record["device"]] is record]


def _key_of(spec: DeviceSpec) -> str:
    return spec.key if spec.key != "unknown" else spec.name


def _main_type(flop: Floats, found: W.Limits) -> str:
    """Returns the type of most matrix work, "" without any; of equal ones the first by name."""
    if not flop.any():
        return ""
    names = (*found.types, "")
    total = np.bincount(np.where(found.dtype < 0, len(found.types), found.dtype), flop, minlength=len(names))
    return max(sorted(set(names)), key=lambda name: sum(t for n, t in zip(names, total.tolist(), strict=True) if n == name))


def _operators(ops: pd.DataFrame) -> pd.Categorical:
    """Returns per call its operator and the type it computes in, as a person reads them."""
    names, types = (ops[c].cat.categories.astype(str).tolist() for c in ("name", "dtype"))
    pair, first = factorize([codes(ops["name"]), codes(ops["dtype"])])
    texts = []
    for name, kind in zip(codes(ops["name"])[first].tolist(), codes(ops["dtype"])[first].tolist(), strict=True):
        texts.append(names[name] + (f" · {types[kind]}" if types[kind] else ""))
    return labels(pair, texts)


# -- Words ------------------------------------------------------------------------------------------------------------


def _headline(values: dict[str, Scalar], devices: list[Device], there: DeviceSpec | None, lacking: str, *, whose: str, host: bool) -> str:
    sol, after = number_of(values["sol_ns"]), number_of(values["sol_then_ns"])
    best, least = _best(devices)
    takes, limit, then, lowest = side_by_side([number_of(values["measured_ns"]), sol, after, least], "ns")
    first = f"The modeled work {whose} takes {takes}"
    if values["measured_ns"] is None:
        first = f"The work {whose} was counted, its calls were not timed"
    if there is None or after is None:
        why = "no device is known or chosen" if there is None else f"the limits of {there.name} are not known in full"
        why = f"{there.name} has no rate for {lacking}" if there is not None and lacking else why
        return f"{first}; {why}" + (f". On {best} it takes **{lowest}** at the least." if best else ".")
    kind = "" if values["dtype"] == "recorded" else f" with matrix work in {values['dtype']}"
    if sol is None:
        on = " on the host" if host else " on a device whose limits are not known" if values["device"] is None else ""
        return f"{first}{on}; on {there.name}{kind} it takes **{then}** at the least."
    if values["device"] == values["device_then"] and not kind:
        other = f" and {lowest} on {best}" if best not in ("", there.name) else ""
        return f"{first}; its limit is **{limit}** on {there.name}{other}."
    return f"{first}; its limit is {limit} as recorded on {values['device']}, and **{then}** on {there.name}{kind}."


def _whose(capture: Capture, part: Scope) -> str:
    if not part.rows:
        return "recorded"
    return "of a sampled step" if is_capture(capture) and step_time(capture, part.rows) is not None else "of a step"


def _far_from(values: dict[str, Scalar], here: DeviceSpec | None, there: DeviceSpec | None, *, host: bool) -> Notice | None:
    """Says that no peak explains the measured time where it is very many times a device's limit; None where it is not, or on a host
    without limits, which is slower than the devices it is compared with."""
    spec, name = (here, "sol_ns") if here is not None else (there, "sol_then_ns")
    measured, least = number_of(values["measured_ns"]), number_of(values[name])
    if spec is None or measured is None or not least or measured < FAR * least or (host and here is None):
        return None
    times = human(round(measured / least), "count")
    return Notice(
        f"The measured time is {times} times the limit on {spec.name}. Peaks do not explain so much: small calls, launches or an emulated "
        "device may. The limits then say little about the time that another device would take."
    )


def _best(devices: list[Device]) -> tuple[str, float]:
    """Returns name and limit of the device with the lowest limit; "" where none has one."""
    known = [(float(one["sol_ns"]), str(one["name"])) for one in devices if one["sol_ns"] is not None]
    least, name = min(known, default=(0.0, ""))
    return name, least


def _notices(
    capture: Capture,
    part: Scope,
    chosen: W.Selected,
    values: dict[str, Scalar],
    here: DeviceSpec | None,
    there: DeviceSpec | None,
    query: WhatifQuery,
) -> list[Notice]:
    out: list[Notice] = []
    share, uncovered = number_of(values["modelled_share"]), number_of(values["uncovered_ns"])
    rest = ""
    if share is not None and share < 0.999:
        rest = f" {human(share, 'ratio')} of the time is covered; {human(uncovered, 'ns')}"
        rest += " is in no row: no cost model, communication, copies over a link."
    if there is not None and there is not here and (there.unverified or there.method == "derived"):
        rest += f" Some limits of {there.name} are not confirmed."
    out.append(Notice(BOUND_ONLY + rest, "info", Link("roofline")))
    out += source_notices(capture, part) + edge_notices(capture, part)
    if chosen.calls.done.by_host_time and not chosen.calls.done.from_ledger:
        out.append(Notice("No device work was recorded: measured is host time of the CPU.", "info"))
    if here is None:
        only = "So there is no limit here, only those of other devices." if there is not None else "Choose a device here."
        out.append(Notice(f"{capitalized(why_no_limits(capture))}. {only}", "info"))
    if far := _far_from(values, here, there, host=chosen.calls.done.by_host_time):
        out.append(far)
    if query.dtype != "recorded":
        sources = ", ".join(W.STANDS_FOR[query.dtype])
        changed = human(number_of(values["changed_share"]), "ratio")
        how_much = f", {changed} of the measured time" if values["changed_share"] is not None else ""
        size = "keep their size" if query.dtype == "tf32" else f"take {W.BYTES[query.dtype]} B an element"
        out.append(
            Notice(
                f"Matrix products, convolutions and attention in {sources} change to {query.dtype}{how_much}; their "
                f"tensors {size}. All other work keeps its type.",
                "info",
            )
        )
    return out


# -- Sections ---------------------------------------------------------------------------------------------------------


def _table(
    section: str,
    title: str,
    columns: tuple[Column, ...],
    frame: W.Columns,
    values: dict[str, Scalar],
    each: str,
    most: int | None = None,
) -> TableSection:
    """Builds a table of rows. most: of the first so many of them."""
    count = len(frame["name"])
    shown: dict[str, object] = {column.name: frame[column.name][:most] for column in columns}
    shown |= {name: whole_or_none(frame[name][:most]) for name in ("measured_ns", "sol_ns", "sol_then_ns")}
    shown["calls"] = [round(v) if v.is_integer() else v for v in frame["calls"][:most].tolist()]
    sol, after, measured = (number_of(values[n]) for n in ("sol_ns", "sol_then_ns", "measured_ns"))
    more = f", first {most} of {count}" if most is not None and count > most else ""
    return make_table(
        section,
        title,
        shown,
        _shown(
            columns, sol is not None, after is not None and (values["dtype"] != "recorded" or values["device"] != values["device_then"])
        ),
        subtitle=f"{each}; {BOUND_ONLY[0].lower()}{BOUND_ONLY[1:-1]}{more}",
        key="name",
        sort=Sort("measured_ns" if measured is not None else "sol_ns"),
        adds=["calls", "measured_ns", "sol_ns", "sol_then_ns"],
        total={
            "name": "All modeled work",
            "calls": round(float(frame["calls"].sum())),
            "measured_ns": values["measured_ns"],
            "share": 1.0 if measured is not None else None,
            "sol_ns": values["sol_ns"],
            "sol_then_ns": values["sol_then_ns"],
            "ratio": sol / after if sol is not None and after else None,
            "headroom": measured / after if measured is not None and after else None,
        },
        filters=["name"],
    )


def _shown(columns: tuple[Column, ...], here: bool, asked: bool) -> list[Column]:
    """Hides columns with nothing to say: without a limit here, or without a question."""
    hidden_columns = set() if here else {"sol_ns", "ratio", "bound"}
    hidden_columns |= set() if asked else {"sol_then_ns", "ratio", "bound_then"}
    raised = {"headroom"} if asked and not here else set()
    return [ranked(c, 3) if c.name in hidden_columns else ranked(c, 1) if c.name in raised else c for c in columns]


def _device_table(devices: list[Device], query: WhatifQuery, each: str) -> TableSection:
    kind = "recorded types" if query.dtype == "recorded" else f"matrix work in {query.dtype}"
    unsure = Mark("unverified", "a figure of the device table behind it is not confirmed")
    marks = {str(i): unsure for i, one in enumerate(devices) if one["_unsure"] and one["sol_ns"]}
    columns = {c.name: _one_kind([one[c.name] for one in devices]) for c in DEVICES}
    section = make_table(
        "devices",
        "On other devices",
        columns,
        [ranked(c, 3) if c.name == "ratio" and all(one["ratio"] is None for one in devices) else c for c in DEVICES],
        subtitle=f"{each}; {kind}; dense peaks; a bound, not a forecast",
        key="device",
        sort=Sort("sol_ns", False),
        marks={"sol_ns": marks} if marks else {},
        footer="One device each, whatever the recorded run used; links between devices and to the host are not in it.",
    )
    query_of = {"dtype": query.dtype} if query.dtype != "recorded" else {}
    section.row_links = {
        str(row): Link("whatif", {"device": str(key)} | query_of, "By phase on this device")
        for row, key in enumerate(one["device"] for one in devices)
        if devices[row]["sol_ns"] is not None
    }
    return section


def _one_kind(values: list[Any]) -> list[Any]:
    """Returns values of a column: numbers all of one kind, as a reader of the report expects of it."""
    if all(v is None or isinstance(v, str) for v in values):
        return values
    return plain_list(np.array([np.nan if v is None else v for v in values]))


def _facts(values: dict[str, Scalar]) -> FactsSection:
    shown = {k: v for k, v in values.items() if v is not None}
    return make_facts("facts", "Here and there", values, FACTS, span=4, hidden=[n for n in values if n not in shown])


# -- Bars -------------------------------------------------------------------------------------------------------------
# per phase the measured time, the limit here and the limit there.


MOST_BARS: Final = 10


def limit_bars(frame: W.Columns, here: str, there: str, what: str) -> FigureSection:
    """Draws horizontal bars: measured, limit here and, where something was asked, limit there. here, there: names, "" for nothing asked."""
    count = len(frame["name"])
    names = [str(name) for name in frame["name"][:MOST_BARS].tolist()]
    drawn: dict[str, list[Any]] = {column: plain_list(frame[column][:MOST_BARS]) for column in ("measured_ns", "sol_ns", "sol_then_ns")}
    most = {column: max((v for v in values if v is not None), default=None) for column, values in drawn.items()}
    longest = max((v for column in ("sol_ns", "sol_then_ns") if (v := most[column]) is not None), default=0.0)
    longest = max(longest, 1.0 if most["measured_ns"] is None else most["measured_ns"])
    factor, unit = fig.time_scale(longest)
    measured = most["measured_ns"] is not None or not names
    series: list[tuple[str, str, str, float]] = [("measured", "measured_ns", "bar-ink", 1.0)] if measured else []
    if most["sol_ns"] is not None:
        series.append((f"limit, {here}", "sol_ns", "accent", 0.45 if there else 1.0))
    if there:
        series.append((f"limit, {there}", "sol_then_ns", "accent", 1.0))
    data: list[fig.Plain] = []
    for label, column, token, opacity in series:
        values = drawn[column]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": label,
                "y": names,
                "x": [None if v is None else v / factor for v in values],
                "customdata": names,
                "marker": {"color": light(token), "opacity": opacity, "line": {"width": 0}},
                "text": [f"no limit  {label}" if v is None else f"{human(round(v), 'ns')}  {label}" for v in values],
                "textposition": "outside",
                "textfont": {"size": 11.5, "color": light("ink-2")},
                "cliponaxis": False,
                "hoverinfo": "text",
                "hovertext": [
                    f"<b>{escape(n)}</b><br>{escape(label)}: {'not known' if v is None else human(round(v), 'ns')}"
                    for n, v in zip(names, values, strict=True)
                ],
            }
        )
    y = fig.axis(type="category", autorange="reversed", showgrid=False, tickfont={"family": fig.MONO, "size": 12}, automargin=True)
    x = fig.axis(unit, range=[0, longest / factor * 1.45])
    left = f", first {MOST_BARS} of {count}" if count > MOST_BARS else ""
    first = names[0] if names else ""
    summary = f"Measured time and limits {what}. The longest is {first}." if names else "No modeled work."
    return FigureSection(
        id="bars",
        title="Measured, and the least it could take",
        subtitle=f"{what}{left}; a bound, not a forecast",
        figure=fig.figure(data, x=x, y=y, barmode="group", bargap=0.32, bargroupgap=0.12, margin={"l": 120, "r": 14, "t": 10, "b": 46}),
        summary=summary,
        table="phases",
        span=8,
        height=max(180, 70 + 26 * len(series) * max(len(names), 1)),
    )
