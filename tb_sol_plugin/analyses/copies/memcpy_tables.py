"""The host calls behind the copies: which functions, how often, how long they held a thread, and what they moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.devices.limits import why_no_limits
from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.metrics.copies import bandwidth, blocking, groups, records
from tb_sol_plugin.metrics.copies.exposure import ALL
from tb_sol_plugin.metrics.copies.records import COLORS, DIRECTIONS, NAMES, memory_text
from tb_sol_plugin.metrics.rules.copies import rules_off
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.attribution import device_count
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import (
    AnySection,
    Column,
    Fact,
    FactsSection,
    FigureSection,
    Link,
    Mark,
    Notice,
    OnTimeline,
    Scalar,
    Sort,
    TableSection,
    make_facts,
    make_table,
)
from tb_sol_plugin.tables.arrays import Places
from tb_sol_plugin.units import capitalized, human, humans

NONE: Final = "moves nothing by itself"
CALL_COLUMNS: Final = (
    Column("api", "Call", doc="function, without version and stream suffixes", show="code"),
    Column("family", "Family", doc="runtime, driver or HIP", missing="another library", rank=2),
    Column("what", "What", doc="copy, set, prefetch, advise; other: another call that copies are joined to, such as a graph launch"),
    Column("waits", "By its name", doc="whether its name says that it returns at once", missing="not known from its name", rank=2),
    Column("calls", "Calls", "count", "calls of this function"),
    Column("host_ns", "Host time", "ns", "plain sum of their durations on the host, the drain of a stream included",
           show="bar", color="host"),
    Column("mean_ns", "Mean", "ns", "host time over calls", per="call"),
    Column("waited", "Held the host", "count", "calls that returned after their last copy had ended"),
    Column("copies", "Copies", "count", "copies and sets joined to these calls"),
    Column("without_device", "Without copy", "count", "calls that no copy is joined to; prefetch and advice never have one", rank=2),
    Column("bytes", "Bytes", "B", "bytes of those copies, as far as recorded", missing=NONE),
    Column("device_ns", "On device", "ns", "plain sum of the durations of those copies", missing=NONE),
    Column("managed", "Managed", "count", "copies with an end in unified memory", rank=3),
)  # fmt: skip


def calls_section(capture: Capture, where: Scope) -> list[TableSection]:
    """Returns the table of calls in the selection; none where no such call was recorded."""
    found = blocking.calls(capture, where.host)
    if not len(found["api"]):
        return []
    calls, host_ns, copied = found["calls"], found["host_ns"], found["copies"].tolist()
    frame: groups.Columns | dict[str, list[Scalar]] = found | {
        "mean_ns": np.round(host_ns / calls).astype(np.int64),
        "family": [f or None for f in found["family"].tolist()],
        "waits": [{1: "returns at once", 0: "waits"}.get(a) for a in found["is_async"].tolist()],
        "bytes": [None if b != b else int(b) for b in found["bytes"].tolist()],
        "device_ns": [t if many else None for t, many in zip(found["device_ns"].tolist(), copied, strict=True)],
    }
    return [
        make_table(
            "calls",
            "Host calls",
            frame,
            CALL_COLUMNS,
            key="api",
            subtitle=where.label,
            sort=Sort("host_ns"),
            filters=["what"],
            footer="Host time is the thread's, the drain of a stream included. A runtime call and the driver call inside of it are two "
            "rows: their times do not add up.",
        )
    ]


# -- Per step ---------------------------------------------------------------------------------------------------------
# how much of the copies hides behind computation, how much lies bare, and what hiding it could save.


MOST_BARS: Final = 400
"""Steps drawn; of more, the one with the most exposed time stands for its neighbors."""
MOST_ROWS: Final = 2000
STEP_COLUMNS: Final = (
    Column("step", "Step", doc="number of the step"),
    Column("count", "Copies", "count", "copies and sets that the step launched"),
    Column("union_ns", "Union", "ns", "time in which at least one of them runs, per device: hidden + exposed", rank=2),
    Column("hidden_ns", "Hidden", "ns", "the part of it behind kernels that are no communication"),
    Column("exposed_ns", "Exposed", "ns", "the rest of it", show="bar", color="memcpy"),
    Column("idle_exposed_ns", "Exposed, idle", "ns", "exposed, and behind no communication either", rank=2),
    Column("share", "Of step", "ratio", "exposed over the length of the step on all devices with copies: what hiding it could save at most",
           show="share"),
    Column("step_ns", "Step time", "ns", "length of the step", rank=2),
    Column("start_ns", "Start", "ns", "start of the step, since the start of the recording", rank=3),
)  # fmt: skip
PARTS: Final = (
    ("hidden_ns", "Behind computation", "memcpy", 0.3),
    ("talk_ns", "Exposed, behind communication", "communication", 1.0),
    ("idle_exposed_ns", "Exposed, nothing else runs", "memcpy", 1.0),
)


def sections(capture: Capture, steps: pd.DataFrame, where: Scope, worst: int | None) -> list[AnySection]:
    """Returns a figure and a table, one bar and one row per step; none with less than two steps. steps: `exposure.per_step`."""
    row = steps["step"].to_numpy()
    there = np.flatnonzero((steps["direction"].to_numpy() == ALL) & (row >= 0) & np.isin(row, where.rows))
    if len(where.rows) < 2 or not len(there):
        return []
    table = _every(capture, steps, there, where)
    return [_figure(table, capture, worst), _step_table(table, capture, worst)]


def _every(capture: Capture, steps: pd.DataFrame, there: Places, where: Scope) -> groups.Columns:
    """Returns one row per selected step, in order of time; a step without copies has zeros: it is known to have none.

    there: the rows of `steps` that are of a selected step.
    """
    start, end, number = (capture.steps[c].to_numpy() for c in ("start_ns", "end_ns", "number"))
    rows = np.array(where.rows, np.int64)
    place = np.full(len(start), -1, np.int64)
    place[steps["step"].to_numpy()[there]] = there
    own = place[rows]
    out: groups.Columns = {
        name: np.where(own >= 0, steps[name].to_numpy()[own], 0)
        for name in ("count", "union_ns", "hidden_ns", "exposed_ns", "idle_exposed_ns", "share")
    }
    return out | {
        "share": np.nan_to_num(out["share"]), "step_ns": end[rows] - start[rows], "start_ns": start[rows],
        "talk_ns": out["exposed_ns"] - out["idle_exposed_ns"], "row": rows,
        "step": np.array([str(n) for n in number[rows].tolist()], object),
    }  # fmt: skip


def _figure(table: groups.Columns, capture: Capture, worst: int | None) -> FigureSection:
    drawn = _thinned(table)
    top = float((drawn["hidden_ns"] + drawn["exposed_ns"]).max())
    factor, unit = F.time_scale(top)
    x = drawn["step"].tolist()
    data: list[F.Plain] = []
    for column, name, color, opacity in PARTS:
        if not drawn[column].any():
            continue
        data.append({
            "type": "bar", "name": name, "x": x, "y": (drawn[column] / factor).tolist(), "customdata": x,
            "marker": {"color": F.light(color), "opacity": opacity}, "hovertext": humans(drawn[column].tolist(), "ns"),
            "hovertemplate": f"<b>Step %{{x}}</b><br>{name.lower()}: %{{hovertext}}<extra></extra>",
        })  # fmt: skip
    notes: list[F.Plain] = []
    at = np.flatnonzero(drawn["row"] == worst)[:1].tolist() if worst is not None else []
    for one in at:
        top_of = float(drawn["hidden_ns"][one] + drawn["exposed_ns"][one]) / factor
        notes.append({
            "x": x.index(x[one]), "y": top_of, "text": "<b>worst</b>",
            "showarrow": False, "yanchor": "bottom", "yshift": 2, "font": {"size": 11.5, "color": F.light("accent")},
        })  # fmt: skip
    order: F.Plain = {"type": "category", "categoryorder": "array", "categoryarray": x, "nticks": 14}
    steps, exposed = len(table["row"]), int(table["exposed_ns"].mean())
    share = float(table["exposed_ns"].sum() / max(table["step_ns"].sum(), 1))
    several = device_count(capture) > 1
    saving = f"hiding all of it could save {human(exposed, 'ns')} per step at most, {human(share, 'ratio')} of it"
    return FigureSection(
        id="exposure",
        title="Exposed copies step by step",
        subtitle="union of the copies of each step, summed over devices" if several else saving,
        span=7,
        height=300,
        table="per_step",
        figure=F.figure(
            data,
            x=F.axis("step") | order,
            y=F.axis(f"copies, {unit}", rangemode="tozero", range=[0, top / factor * 1.12] if top else [0, 1]),
            barmode="stack",
            showlegend=True,
            annotations=notes,
        ),
        summary=f"{human(exposed, 'ns')} of copies per step are exposed in the mean of {human(steps, 'count')} steps"
        + (f"; the most, {human(int(drawn['exposed_ns'][at[0]]), 'ns')}, in step {x[at[0]]}." if at else "."),
    )


def _thinned(table: groups.Columns) -> groups.Columns:
    """Keeps at most MOST_BARS steps: of each run of neighbors the one with the most exposed time."""
    count = len(table["row"])
    if count <= MOST_BARS:
        return table
    bucket = np.arange(count) * MOST_BARS // count
    order = np.lexsort((-table["exposed_ns"], bucket))
    first = np.sort(order[np.unique(bucket[order], return_index=True)[1]])
    return {name: values[first] for name, values in table.items()}


def _step_table(table: groups.Columns, capture: Capture, worst: int | None) -> AnySection:
    shown = {name: values[:MOST_ROWS] for name, values in table.items()}
    complete = capture.steps["complete"].to_numpy()[shown["row"]]
    marks = {str(i): Mark("incomplete", "the recording cuts this step") for i in np.flatnonzero(~complete).tolist()}
    links = {str(i): Link("memcpy", {"step": s}, f"the copies of step {s}") for i, s in enumerate(shown["step"].tolist())}
    number = int(capture.steps["number"].to_numpy()[worst]) if worst is not None else None
    return make_table(
        "per_step",
        "Steps",
        shown,
        STEP_COLUMNS,
        key="step",
        subtitle="",
        span=5,
        sort=Sort("step", descending=False),
        marks={"step_ns": marks} if marks else {},
        row_links=links,
        cell_links={"step": links},
        timeline=OnTimeline("step_ns", "start_ns", "step_ns"),
        links=[Link("memcpy", {"step": str(number)}, f"Worst: step {number}")] if number is not None else [],
        truncated=len(table["row"]) - len(shown["row"]),
        footer="Copies belong to the step that launched them. Exposed time is at most what hiding could save.",
    )


# -- Copies that were only counted ------------------------------------------------------------------------------------
# those a SOL capture or Proton counted; beside a trace, how the two differ.


COUNTED_CARD: Final = {
    "count": ("Copies", "count", "copies"),
    "bytes": ("Bytes", "B", "bytes of the copies whose size is known"),
    "blocking": ("Host waits", "count", "copies that the host waited for"),
    "time_ns": ("Time", "ns", "time on the device"),
    "bandwidth_bytes_per_s": ("Bandwidth", "B/s", "bytes over time"),
}
"""What a direction's card says: label, unit, definition."""


def _fact(direction: str, name: str) -> str:
    return f"{direction.lower().replace(' ', '_')}_{name}"


def _card_facts(direction: str, card: Mapping[str, tuple[str, str, str]]) -> list[Fact]:
    """Returns what a direction's card says, as facts of that direction."""
    name, color = NAMES.get(direction, direction), COLORS.get(direction, "other")
    return [Fact(_fact(direction, n), label, unit, f"{name}: {doc}", color) for n, (label, unit, doc) in card.items()]


# -- The table of copies, grouped one way -----------------------------------------------------------------------------
# columns, keys, marks, and the link of each row to its single copies.


NO_SIZE: Final = "no copy of this row carries a size"
GROUP: Final = {
    "device": Column("device", "Device", doc="device of the copy"),
    "stream": Column("stream", "Stream", doc="stream of the copy, with its device where there are several"),
    "step": Column("step", "Step", doc="step that launched the copy, or why there is none"),
    "phase": Column("phase", "Phase", doc="innermost phase around the launch, or why there is none"),
    "module": Column("module", "Module", doc="innermost module call around the launch, or why there is none", show="code"),
    "operator": Column("operator", "Operator", doc="innermost operator around the launch, or why there is none", show="code"),
    "frame": Column("frame", "Python line", doc="innermost python line around the launch, or why there is none", show="code"),
}
HEAD: Final = (
    Column(
        "direction", "Direction", doc="HtoD, DtoH, DtoD, HtoH, PtoP, Memset; copy kernel: a copy the driver runs as a kernel", show="symbol"
    ),
    Column("kinds", "Memory", doc="kinds of the source and destination memory as recorded", missing="not recorded"),
    Column("src_kind", "From", doc="kind of the source memory as recorded", missing="not recorded", rank=3),
    Column("dst_kind", "To", doc="kind of the destination memory as recorded", missing="not recorded", rank=3),
)
VALUES: Final = (
    Column("count", "Copies", "count", "copies"),
    Column("bytes", "Bytes", "B", "bytes of the copies that carry a size", missing=NO_SIZE),
    Column("without_bytes", "Without size", "count", "copies whose size was not recorded; their time counts", rank=3),
    Column("time_ns", "Time", "ns", "plain sum of durations", show="bar", color_by="direction"),
    Column("share", "Share", "ratio", "time over the time of all rows", show="share", rank=2),
    Column("bytes_share", "Of bytes", "ratio", "bytes over the bytes of all rows", show="share", rank=3),
    Column("mean_ns", "Mean", "ns", "time over copies", rank=2, per="call"),
    Column("median_ns", "Median", "ns", "half of the copies are shorter", rank=3, per="call"),
    Column("p95_ns", "p95", "ns", "95 % of the copies take no longer (nearest rank)", rank=3, per="call"),
    Column("bandwidth_bytes_per_s", "Bandwidth", "B/s", "bytes over time of copies that carry a size", missing="no size or time recorded"),
    Column("large_bytes_per_s", "From 1 MiB", "B/s", "the same over copies of at least 1 MiB", rank=3, missing="no copy of at least 1 MiB"),
    Column(
        "link_share", "Of limit", "ratio", "bandwidth of copies of at least 1 MiB over the limit of the link or memory", show="efficiency",
        missing="all below 1 MiB (latency bound), or no limit known",
    ),
    Column("limit_bytes_per_s", "Limit", "B/s", "what the link or memory can do in this direction", rank=2, missing="no limit known"),
    Column("hidden_ns", "Hidden", "ns", "union of the copies behind kernels that are no communication, per device"),
    Column("exposed_ns", "Exposed", "ns", "the rest of that union", show="bar", color_by="direction"),
    Column("idle_exposed_ns", "Exposed, idle", "ns", "exposed, and behind no communication either", rank=2),
    Column("union_ns", "Union", "ns", "time in which at least one copy of the row runs, per device: hidden + exposed", rank=3),
    Column("id", "Id", doc="stable key of the row", rank=3),
)  # fmt: skip
ALL_COLUMNS: Final = (HEAD[0], *GROUP.values(), *HEAD[1:], *VALUES)
"""The columns of all groupings."""


def columns(by: groups.By) -> tuple[Column, ...]:
    """Returns the columns of the table for one way of grouping; where another label stands, the kinds of memory may hide first."""
    if by not in GROUP:
        return (*HEAD, *VALUES)
    return (HEAD[0], GROUP[by], msgspec.structs.replace(HEAD[1], rank=2), *HEAD[2:], *VALUES)


def limited(sums: groups.Columns, limits: dict[str, tuple[float, str]]) -> groups.Columns:
    """Returns sums of groups with `limit_bytes_per_s` and `link_share`."""
    limit = np.array([limits[d][0] if d in limits else np.nan for d in sums["direction"].tolist()], np.float64)
    return sums | {"limit_bytes_per_s": limit, "link_share": sums["large_bytes_per_s"] / limit}


def breakdown_section(
    capture: Capture, found: pd.DataFrame, table: groups.Columns, by: groups.By, totals: dict[str, Scalar], where: Scope,
    unsure: set[str], step: str,
) -> TableSection:  # fmt: skip
    """The table section. found: the copies that `table` (with limits) groups by `by`. unsure: directions whose limit is not confirmed."""
    frame = _keyed(table, by)
    queries = groups.of_rows(capture, found, table, by, step)
    links = {str(i): Link("memcpy_copies", query, "these copies one by one") for i, query in enumerate(queries)}
    return make_table(
        "copies",
        f"Copies by {'direction and kind of memory' if by == 'kind' else 'python line' if by == 'frame' else by}",
        frame,
        columns(by),
        key="id",
        subtitle=where.label,
        total=_total(totals, by),
        sort=Sort("time_ns"),
        marks=_marks(frame, unsure),
        filters=["direction", *([by] if by in GROUP else []), *(["src_kind", "dst_kind"] if by == "kind" else [])],
        row_links=links,
        cell_links={"count": links},
        footer="Bandwidth is bytes over time, never a mean of rates. Hidden + exposed is the union of the copies of a row; copies "
        "that run side by side count once there, and in Time each.",
        empty="No copy was launched in this selection.",
    )


def _keyed(table: groups.Columns, by: groups.By) -> dict[str, Any]:
    """Returns the table with the label in a column named after the grouping, null for unknown kinds, and a key per row."""
    parts = {"direction": ["direction"], "kind": ["direction", "src_kind", "dst_kind"]}.get(by, ["direction", "group"])
    text = {name: table[name].tolist() for name in ("direction", "src_kind", "dst_kind", "group")}
    keyed: dict[str, Any] = {
        "id": ["|".join(map(str, row)) for row in zip(*(text[c] for c in parts), strict=True)],
        "bytes": [int(b) if b == b else None for b in table["bytes"].tolist()],
        "kinds": [memory_text(d, a, b) or None for d, a, b in zip(text["direction"], text["src_kind"], text["dst_kind"], strict=True)],
        **{name: [t or None for t in text[name]] for name in ("src_kind", "dst_kind")},
        **({by: text["group"]} if by in GROUP else {}),
    }
    return table | keyed


def _total(totals: dict[str, Scalar], by: groups.By) -> dict[str, Scalar]:
    row: dict[str, Scalar] = {c.name: None for c in columns(by)}
    row |= {n: totals[n] for n in ("count", "bytes", "without_bytes", "time_ns", "exposed_ns", "hidden_ns")}
    return row | {"direction": "all", "share": 1.0 if totals["time_ns"] else None, "bytes_share": 1.0 if totals["bytes"] else None}


def _marks(frame: Mapping[str, Any], unsure: set[str]) -> dict[str, dict[str, Mark]]:
    out: dict[str, dict[str, Mark]] = {"bytes": {}, "link_share": {}, "limit_bytes_per_s": {}}
    rows = zip(*(list(frame[c]) for c in ("direction", "bytes", "without_bytes", "oversize", "link_share")), strict=True)
    for i, (direction, size, without, oversize, share) in enumerate(rows):
        if without and size is not None:
            out["bytes"][str(i)] = Mark("lower_bound", f"{without} copies carry no size")
        if oversize:
            out["bytes"][str(i)] = Mark(
                "flagged", f"{oversize} copies are larger than the memory of their device: their sizes cannot be right"
            )
        if share > 1.05:
            out["link_share"][str(i)] = Mark("flagged", "faster than the assumed limit: the link assumption is wrong")
        if direction in unsure:
            out["limit_bytes_per_s"][str(i)] = Mark("unverified", "this limit of the device table is not confirmed")
    return {name: marks for name, marks in out.items() if marks}


# -- Notices ----------------------------------------------------------------------------------------------------------
# sizes and limits that are missing, and limits that cannot be right.


VERDICTS: Final[dict[str, Literal["info", "warn"]]] = {"wrong": "warn", "cache": "info", "slow": "info", "pageable": "info"}
"""How loud each verdict on a limit is."""


def notices(
    capture: Capture,
    found: pd.DataFrame,
    directions: groups.Columns,
    limits: bandwidth.Limits,
    where: Scope,
    step: str,
    spec: DeviceSpec | None,
) -> list[Notice]:
    """Returns the notices of a selection.

    found: its copies; directions: `groups.sums` by direction. spec: the device, None without known limits.
    """
    out: list[Notice] = []
    without = int(directions["without_bytes"].sum())
    at = {"step": step} if step else {}
    if without:
        verb = "carries" if without == 1 else "carry"
        text = f"{human(without, 'count')} of {human(len(found), 'count')} copies {verb} no size: the time counts, the bytes are unknown."
        out.append(Notice(text, "info", Link("memcpy_copies", {"size": "unknown"} | at, "These copies")))
    if directions["oversize"].any():
        many = int(directions["oversize"].sum())
        text = f"{human(many, 'count')} copies are larger than the memory of their device: their sizes cannot be right."
        out.append(Notice(text, "warn", Link("memcpy_copies", {"first": "bytes"} | at, "The largest copies")))
    if spec is None:
        out.append(Notice(f"No limits to compare with: {why_no_limits(capture)}.", "info"))
    for check in bandwidth.evidence(found, limits, spec):
        query = {"direction": check.direction, "min_bytes": str(bandwidth.LARGE)} | at
        text = f"{NAMES[check.direction]}: {check.text[0].lower() + check.text[1:]}"
        out.append(Notice(text, VERDICTS[check.verdict], Link("memcpy_copies", query, "These copies")))
    off = rules_off(capture, where)
    if off:
        out.append(Notice(off, "info"))
    return out


# -- A card per direction ---------------------------------------------------------------------------------------------
# how much, how long, how fast against its limit, how much of it exposed; what was not recorded; the sums.


CARD: Final = {
    "count": ("Copies", "count", "copies"),
    "bytes": ("Bytes", "B", "bytes of the copies that carry a size"),
    "time_ns": ("Time", "ns", "plain sum of durations"),
    "bandwidth_bytes_per_s": ("Bandwidth", "B/s", "bytes over time of the copies that carry a size"),
    "link_share": ("Of its limit", "ratio", "bandwidth of copies of at least 1 MiB over the limit of the link or memory"),
    "exposed_ns": ("Exposed", "ns", "union of the copies less kernels that are no communication"),
}
"""What a direction's card says: label, unit, definition."""
FIT: Final = {
    "latency_ns": ("latency", "ns", "fitted time of an empty copy"),
    "rate_bytes_per_s": ("rate", "B/s", "fitted bandwidth of an endless copy"),
}


FACTS: Final = (
    Fact("count", "Copies and sets", "count", "copies and sets in the selection"),
    Fact("bytes", "Bytes", "B", "their bytes, as far as recorded"),
    Fact("without_bytes", "Without a size", "count", "copies whose size was not recorded"),
    Fact("time_ns", "Time, sum", "ns", "plain sum of their durations"),
    Fact("exposed_ns", "Exposed", "ns", "exposed time of all directions, summed"),
    Fact("hidden_ns", "Hidden", "ns", "hidden time of all directions, summed"),
    Fact("steps", "Steps", "count", "steps the per-step figures divide by"),
    Fact("time_per_step_ns", "Time per step", "ns", "time of the copies that steps launched, over steps"),
    Fact("exposed_per_step_ns", "Exposed per step", "ns", "exposed time of the copies that steps launched, over steps"),
    *(fact for d in records.DIRECTIONS for fact in _card_facts(d, CARD)),
    *(
        Fact(_fact(d, n), f"{NAMES[d]}, {label}", unit, f"{NAMES[d]}: {doc}")
        for d in records.DIRECTIONS
        for n, (label, unit, doc) in FIT.items()
    ),
    *(fact for d in DIRECTIONS for fact in _card_facts(d, {"blocking": COUNTED_CARD["blocking"]})),
)  # fmt: skip


def cards(
    capture: Capture, found: pd.DataFrame, directions: groups.Columns, limits: dict[str, tuple[float, str]], step: str
) -> list[AnySection]:
    """Returns a card per direction that has copies, and one for each kind of transfer that the recorder may have left out.

    directions: `groups.sums` by direction with `link_share`. step: goes on to the links.
    """
    rows = [dict(zip(directions, row, strict=True)) for row in zip(*(v.tolist() for v in directions.values()), strict=True)]
    out: list[AnySection] = [_card(str(row["direction"]), row, limits, step) for row in rows]
    return [*out, *_peers(capture, directions), *_migrations(capture, found)]


def _card(direction: str, row: Mapping[str, Any], limits: dict[str, tuple[float, str]], step: str) -> FactsSection:
    values: dict[str, Scalar] = {_fact(direction, n): row[n] if np.isfinite(row[n]) else None for n in CARD}
    for name in ("count", "bytes", "time_ns", "exposed_ns"):
        value = values[_fact(direction, name)]
        values[_fact(direction, name)] = None if value is None else int(value)
    share, exposed, whole = values[_fact(direction, "link_share")], int(row["exposed_ns"]), int(row["union_ns"])
    notes = {_fact(direction, "exposed_ns"): f"{human(exposed / whole, 'ratio')} not hidden" if whole else ""}
    if direction in limits:
        peak, what = limits[direction]
        small = "all below 1 MiB: latency bound" if row["bytes"] == row["bytes"] else "no size recorded"
        notes[_fact(direction, "link_share")] = f"of {what}, {human(peak, 'B/s')}" if share is not None else small
    elif share is None:
        notes[_fact(direction, "link_share")] = "no limit known"
    marks = {}
    if row["without_bytes"] and values[_fact(direction, "bytes")] is not None:
        marks[_fact(direction, "bytes")] = Mark("lower_bound", f"{int(row['without_bytes'])} copies carry no size")
    if isinstance(share, float) and share > 1.05:
        marks[_fact(direction, "link_share")] = Mark("flagged", "faster than the assumed limit: the link assumption is wrong")
    query = {"direction": direction} | ({"step": step} if step else {})
    return make_facts(
        _fact(direction, "card"),
        NAMES.get(direction, direction),
        values,
        _card_facts(direction, CARD),
        style="card",
        span=2,
        notes={n: t for n, t in notes.items() if t},
        marks=marks,
        value_links={_fact(direction, "count"): Link("memcpy_copies", query, "these copies")},
    )


def _peers(capture: Capture, directions: groups.Columns) -> list[FactsSection]:
    """Returns the card of peer copies: profilers may leave them out, so with several devices and none recorded they are unknown."""
    if "PtoP" in directions["direction"]:
        return []
    used = device_count(capture)
    ranks = capture.facts.world_size or 1
    if max(used, ranks) < 2:
        return []
    who = f"{ranks} ranks ran" if ranks > 1 else f"{used} devices ran"
    text = f"Not recorded. {who} and the file holds no peer copy; the profiler may leave them out. Unknown, not zero."
    return [FactsSection(id="ptop_card", title=NAMES["PtoP"], style="card", span=2, text=text)]


def _migrations(capture: Capture, found: pd.DataFrame) -> list[FactsSection]:
    """Pages of unified memory that move on their own: no PyTorch trace holds them, so they are unknown where unified memory is used."""
    ends = records.memory_kinds(found).having(lambda _, *ends: any(end.startswith("Managed") for end in ends))
    requested = hints(capture)
    if not ends.any() and not requested:
        return []
    many = int(ends.sum())
    seen = [f"{human(many, 'count')} {'copy has' if many == 1 else 'copies have'} a managed end"] if many else []
    seen += [f"the program calls {' and '.join(f'`{a}`' for a in requested[:2])}"] if requested else []
    sentence = " and ".join(seen)
    text = f"Not recorded. {capitalized(sentence)}; the profiler holds no page migration and no page fault. Unknown, not zero."
    return [FactsSection(id="unified_card", title="Unified memory", style="card", span=2, text=text)]


def hints(capture: Capture) -> list[str]:
    """Names of the calls of the recording that prefetch unified memory or advise on it."""
    matches = ((name, records.COPY_API.match(name)) for name in at.names_of(capture, S.CALL))
    return sorted({records.api_name(name) for name, m in matches if m is not None and {"Prefetch", "Advise"} & {*m.groups()}})


def totals(directions: groups.Columns, launched: groups.Columns, where: Scope) -> dict[str, Scalar]:
    """Sums over all directions, and per step where steps were recorded. launched: the same table of the copies that steps launched."""
    time, exposed = int(directions["time_ns"].sum()), int(directions["exposed_ns"].sum())
    steps = where.step_count if where.steps else 0
    return {
        "count": int(directions["count"].sum()),
        "bytes": int(np.nansum(directions["bytes"])) if not np.isnan(directions["bytes"]).all() else None,
        "without_bytes": int(directions["without_bytes"].sum()),
        "time_ns": time,
        "exposed_ns": exposed,
        "hidden_ns": int(directions["hidden_ns"].sum()),
        "steps": steps,
        "time_per_step_ns": round(int(launched["time_ns"].sum()) / steps) if steps else None,
        "exposed_per_step_ns": round(int(launched["exposed_ns"].sum()) / steps) if steps else None,
    }


def numbers(found: dict[str, Scalar], fits: dict[str, tuple[float, float]]) -> FactsSection:
    """Builds the sums and the fitted latencies and rates as a list."""
    values: dict[str, Scalar] = {n: v for n, v in found.items() if v is not None and (n != "steps" or v)}
    for direction, (latency, rate) in fits.items():
        values |= {_fact(direction, "latency_ns"): round(latency), _fact(direction, "rate_bytes_per_s"): round(rate)}
    fitted = Mark("estimated", "fitted through the fastest copies of each size")
    return make_facts("facts", "Numbers", values, FACTS, marks={_fact(d, n): fitted for d in fits for n in FIT})
