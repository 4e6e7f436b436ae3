"""The host calls behind the copies: which functions, how often, how long they held a thread, and what they moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.devices.limits import why_no_limits
from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics.copies import bandwidth, blocking, counted, groups, records
from tb_sol_plugin.metrics.copies.exposure import ALL
from tb_sol_plugin.metrics.copies.records import COLORS, DIRECTIONS, NAMES, copies, memory_text
from tb_sol_plugin.metrics.report.notes import profile_notices
from tb_sol_plugin.metrics.rules.copies import rules_off
from tb_sol_plugin.metrics.rules.copies.counted import CountedPattern, counted_patterns
from tb_sol_plugin.metrics.time.scope import Scope, in_steps, scope
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import (
    AnySection,
    Column,
    Fact,
    FactsSection,
    FigureSection,
    Finding,
    FindingsSection,
    Link,
    Mark,
    Notice,
    Report,
    Scalar,
    Sort,
    TableSection,
    make_facts,
    make_table,
    plain_list,
)
from tb_sol_plugin.tables.arrays import whole_numbers
from tb_sol_plugin.units import capitalized, human

NONE: Final = "moves nothing by itself"
CALL_COLUMNS: Final = (
    Column("api", "Call", doc="function, without version and stream suffixes", show="code"),
    Column("family", "Family", doc="runtime, driver or HIP", missing="another library", rank=2),
    Column("what", "What", doc="copy, set, prefetch, advise; other: another call that copies are joined to, such as a graph launch"),
    Column("waits", "By its name", doc="whether its name says that it returns at once", missing="its name does not tell", rank=2),
    Column("calls", "Calls", "count", "calls of this function"),
    Column("host_ns", "Host time", "ns", "plain sum of their durations on the host, the drain of a stream included",
           show="bar", color="host"),
    Column("mean_ns", "Mean", "ns", "host time over calls"),
    Column("waited", "Held the host", "count", "calls that returned after their last copy had ended"),
    Column("copies", "Copies", "count", "copies and sets joined to these calls"),
    Column("without_device", "Without copy", "count", "calls that no copy is joined to; prefetch and advice never have one", rank=2),
    Column("bytes", "Bytes", "B", "bytes of those copies, as far as recorded", missing=NONE),
    Column("device_ns", "On device", "ns", "plain sum of the durations of those copies", missing=NONE),
    Column("managed", "Managed", "count", "copies with an end in unified memory", rank=3),
)  # fmt: skip


def calls_section(capture: Capture, where: Scope) -> list[TableSection]:
    """The table of calls in the selection; none where no such call was recorded."""
    found = blocking.calls(capture, where.host)
    if not len(found):
        return []
    nothing = found["copies"].to_numpy() == 0
    frame = found.assign(
        mean_ns=(found["host_ns"] / found["calls"]).round().astype("int64"),
        family=pd.Series([f or None for f in found["family"]], dtype=object),
        waits=pd.Series([{1: "returns at once", 0: "waits"}.get(a) for a in found["is_async"].tolist()], dtype=object),
        bytes=pd.Series([None if b != b else int(b) for b in found["bytes"]], dtype=object),
        device_ns=pd.Series([None if n else int(t) for t, n in zip(found["device_ns"], nothing, strict=True)], dtype=object),
    )
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


# -- Step by step ----------------------------------------------------------------------------------------------------
# how much of the copies hides behind computation, how much lies bare, and what hiding it could save.


MOST_BARS: Final = 400
"""Steps drawn; of more, the one with the most exposed time stands for its neighbours."""
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
)  # fmt: skip
PARTS: Final = (
    ("hidden_ns", "Behind computation", "memcpy", 0.3),
    ("talk_ns", "Exposed, behind communication", "communication", 1.0),
    ("idle_exposed_ns", "Exposed, nothing else runs", "memcpy", 1.0),
)


def sections(capture: Capture, steps: pd.DataFrame, where: Scope, worst: int | None) -> list[AnySection]:
    """A figure and a table, one bar and one row per step; none with less than two steps. steps: `exposure.per_step`."""
    mine = steps[(steps["direction"] == ALL) & (steps["step"] >= 0)]
    mine = mine[mine["step"].isin(where.rows)] if where.rows else mine.iloc[:0]
    if len(where.rows) < 2 or not len(mine):
        return []
    table = _every(capture, mine, where)
    return [_figure(table, capture, worst), _step_table(table, capture, worst)]


def _every(capture: Capture, mine: pd.DataFrame, where: Scope) -> pd.DataFrame:
    """One row per selected step, in order of time; a step without copies has zeros: it is known to have none."""
    bounds = capture.steps["end_ns"].to_numpy() - capture.steps["start_ns"].to_numpy()
    rows = np.array(where.rows, np.int64)
    out = mine.set_index("step").reindex(rows)
    for name in ("count", "union_ns", "hidden_ns", "exposed_ns", "idle_exposed_ns"):
        out[name] = out[name].fillna(0).astype(np.int64)
    out["step_ns"], out["share"] = bounds[rows], out["share"].fillna(0.0)
    out["talk_ns"] = out["exposed_ns"] - out["idle_exposed_ns"]
    out["row"] = rows
    out["step"] = [str(n) for n in capture.steps["number"].to_numpy()[rows].tolist()]
    return out.reset_index(drop=True)


def _figure(table: pd.DataFrame, capture: Capture, worst: int | None) -> FigureSection:
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
            "marker": {"color": F.light(color), "opacity": opacity}, "hovertext": [human(int(v), "ns") for v in drawn[column]],
            "hovertemplate": f"<b>Step %{{x}}</b><br>{name.lower()}: %{{hovertext}}<extra></extra>",
        })  # fmt: skip
    notes: list[F.Plain] = []
    at = drawn[drawn["row"] == worst] if worst is not None else drawn.iloc[:0]
    if len(at):
        top_of = float((at["hidden_ns"] + at["exposed_ns"]).iloc[0]) / factor
        notes.append({
            "x": x.index(str(at["step"].iloc[0])), "y": top_of, "text": "<b>worst</b>",
            "showarrow": False, "yanchor": "bottom", "yshift": 2, "font": {"size": 11.5, "color": F.light("accent")},
        })  # fmt: skip
    order: F.Plain = {"type": "category", "categoryorder": "array", "categoryarray": x, "nticks": 14}
    steps, exposed, share = len(table), int(table["exposed_ns"].mean()), float(table["exposed_ns"].sum() / max(table["step_ns"].sum(), 1))
    several = int(capture.device["device"].nunique()) > 1
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
        summary=f"{human(exposed, 'ns')} of copies per step lie bare in the mean of {human(steps, 'count')} steps"
        + (f"; the most, {human(int(at['exposed_ns'].iloc[0]), 'ns')}, in step {at['step'].iloc[0]}." if len(at) else "."),
    )


def _thinned(table: pd.DataFrame) -> pd.DataFrame:
    """At most MOST_BARS steps: of each run of neighbours the one with the most exposed time."""
    if len(table) <= MOST_BARS:
        return table
    bucket = np.arange(len(table)) * MOST_BARS // len(table)
    order = np.lexsort((-table["exposed_ns"].to_numpy(), bucket))
    first = np.unique(bucket[order], return_index=True)[1]
    return table.iloc[np.sort(order[first])].reset_index(drop=True)


def _step_table(table: pd.DataFrame, capture: Capture, worst: int | None) -> AnySection:
    shown = table.iloc[:MOST_ROWS].reset_index(drop=True)
    complete = capture.steps["complete"].to_numpy()
    marks = {str(i): Mark("incomplete", "the recording cuts this step") for i, row in enumerate(shown["row"]) if not complete[row]}
    links = {str(i): Link("memcpy", {"step": s}, f"the copies of step {s}") for i, s in enumerate(shown["step"])}
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
        links=[Link("memcpy", {"step": str(number)}, f"Worst: step {number}")] if number is not None else [],
        truncated=len(table) - len(shown),
        footer="Copies belong to the step that launched them. Exposed time is at most what hiding could save.",
    )


# -- The page of copies where none was recorded as an event ----------------------------------------------------------
# those a SOL capture or Proton counted; beside a trace, how the two differ.


GROUPS: Final = {
    "device": Column("device", "Device", doc="device of the copy, or both of a peer copy"),
    "step": Column("step", "Step", doc="iteration in which the copies were counted"),
    "module": Column("module", "Module", doc="innermost module around the call", show="code"),
    "phase": Column("phase", "Phase", doc="innermost phase around the call"),
    "operator": Column("operator", "Operator", doc="operator that copies", show="code"),
}
NO_TIME: Final = "no time on the device"
_HEAD: Final = (
    Column("direction", "Direction", show="symbol",
           doc="HtoD, DtoH, DtoD, PtoP, HtoH; copy kernel: a kernel copies within a device, since the layouts differ"),
    Column("src_kind", "From", doc="kind of the source memory", missing="not known"),
    Column("dst_kind", "To", doc="kind of the destination memory", missing="a number that the host reads inside an operator"),
)  # fmt: skip
_VALUES: Final = (
    Column("count", "Copies", "count", "copies", show="bar", color_by="direction"),
    Column("bytes", "Bytes", "B", "bytes that crossed, of the copies whose size is known", show="bar", color_by="direction",
           missing="the size of no copy of this row is known"),
    Column("bytes_per_step", "Bytes per step", "B", "bytes over the steps in which copies were counted", missing="no size known"),
    Column("without_bytes", "Without size", "count", "copies whose size is not known", rank=3),
    Column("bytes_share", "Of bytes", "ratio", "bytes over the bytes of all rows", show="share", rank=2),
    Column("blocking", "Host waits", "count", "copies that the host waited for, by what is known of the memory and the call",
           missing="not known"),
    Column("call_ns", "Host in calls", "ns", "time of the host inside the calls, while copies were counted", missing="not timed"),
    Column("time_ns", "Time", "ns", "time on the device, sum", show="bar", color_by="direction", missing=NO_TIME),
    Column("mean_ns", "Mean", "ns", "time over copies", rank=3, missing=NO_TIME),
    Column("share", "Share", "ratio", "time over the time of all rows", show="share", rank=3, missing=NO_TIME),
    Column("bandwidth_bytes_per_s", "Bandwidth", "B/s", "bytes over time", rank=2, missing=NO_TIME),
    Column("id", "Id", doc="stable key of the row", rank=3),
)  # fmt: skip
COUNTED_COLUMNS: Final = (_HEAD[0], *GROUPS.values(), *_HEAD[1:], *_VALUES)
BESIDE: Final = (
    Column("direction", "Direction", doc="direction of the copies", show="symbol"),
    Column("counted", "Counted per step", doc="copies per step that the SOL capture counted at the operators"),
    Column("recorded", "Recorded per step", doc="copies per step that the trace holds", missing="the profiler leaves them out"),
    Column("counted_bytes", "Bytes counted", "B", "per step, of those whose size is known", missing="none has a known size"),
    Column("recorded_bytes", "Bytes recorded", "B", "per step, of those that carry a size", missing="none carries a size"),
    Column("reason", "Where they differ", doc="what may explain a difference"),
)
TABLES: Final = {"counted": COUNTED_COLUMNS, "beside": BESIDE}
"""Columns by section."""
COUNTED_CARD: Final = {
    "count": ("Copies", "count", "copies"),
    "bytes": ("Bytes", "B", "bytes of the copies whose size is known"),
    "blocking": ("Host waits", "count", "copies that the host waited for"),
    "time_ns": ("Time", "ns", "time on the device"),
    "bandwidth_bytes_per_s": ("Bandwidth", "B/s", "bytes over time"),
}
"""What a direction's card says: label, unit, definition."""
UNTIMED: Final = ("blocking", "time_ns", "bandwidth_bytes_per_s")
"""Values that a card leaves out where they are not known."""


def _fact(direction: str, name: str) -> str:
    return f"{direction.lower().replace(' ', '_')}_{name}"


def _card_facts(direction: str, card: Mapping[str, tuple[str, str, str]]) -> list[Fact]:
    """What a direction's card says, as facts of that direction."""
    name, color = NAMES.get(direction, direction), COLORS.get(direction, "other")
    return [Fact(_fact(direction, n), label, unit, f"{name}: {doc}", color) for n, (label, unit, doc) in card.items()]


TITLES: Final = {
    "reads": "The host reads numbers off the device",
    "pageable_HtoD": "Copies to the device come from pageable memory",
    "pageable_DtoH": "Copies to the host go to pageable memory",
    "blocking_HtoD": "Copies to the device are asked to block",
    "blocking_DtoH": "Copies to the host are asked to block",
    "layout": "Tensors are copied into another layout",
}
FIXES: Final = {
    "reads": "total += loss.detach(); read total.item() once per report",
    "pageable_HtoD": "DataLoader(pin_memory=True); tensor.to(device, non_blocking=True)",
    "pageable_DtoH": "pinned.copy_(tensor, non_blocking=True); event.synchronize() when needed",
    "blocking_HtoD": "tensor.to(device, non_blocking=True)",
    "blocking_DtoH": "pinned.copy_(tensor, non_blocking=True); event.synchronize() when needed",
    "layout": "keep one layout: no contiguous(), one memory_format for model and input",
}
CALLED: Final = "Counted as they were called: copies inside of operators, graphs and collectives and those of other threads are not here."
PROFILED: Final = "Sums of a profile: how long a single copy took, and what hid it, is in a trace."


def opens(capture: Capture) -> bool:
    """Whether this page is the one to show: copies were counted, and none recorded as an event."""
    return counted.has(capture) and not len(capture.device)


def report(capture: Capture, query: Query, by: str) -> Report:
    """Counted copies. by: how the table groups them; what they do not know (streams, frames) is one group."""
    where = scope(capture, query)
    rows = counted.counted(capture, where)
    if not len(rows):
        raise Unavailable("no copy in the selected steps", hint="choose another step")
    directions = counted.table(capture, "direction", where)
    stepped = bool((rows["iteration"].to_numpy() >= 0).all())
    steps = counted.iterations(capture, where) if stepped else 0
    each = max(steps, 1)
    return Report(
        analysis="memcpy",
        title="Memory copies",
        headline=_headline(directions, steps),
        notices=[*profile_notices(capture), *_notices(capture, directions)],
        sections=[*_cards(directions), *_findings(capture, where, each), _counted_table(capture, where, by, each)],
    )


def _headline(directions: pd.DataFrame, steps: int) -> str:
    time = directions["time_ns"].to_numpy(np.float64)
    if np.isfinite(time).all():
        first = directions.iloc[int(time.argmax())]
        rate = float(first["bandwidth_bytes_per_s"])
        fast = f" at {human(rate, 'B/s')}" if np.isfinite(rate) else ""
        return f"All copies together take **{human(round(time.sum()), 'ns')}**. Most is {NAMES[str(first['direction'])].lower()}{fast}."
    each, per = max(steps, 1), " per step" if steps else ""
    moves = [
        f"{_moved(directions, direction, each)} {words}"
        for direction, words in (("HtoD", "to the device"), ("DtoH", "back to the host"), ("PtoP", "from device to device"))
        if (directions["direction"] == direction).any()
    ]
    if not moves:
        return f"No copy crosses to a device: {_number(directions['count'].sum() / each)}{per} within one memory."
    waits = directions["blocking"].to_numpy(np.float64)
    said = ""
    if np.isfinite(waits).all():
        said = f" The host waits for {_number(float(waits.sum()) / each)}{per}." if waits.any() else " The host waits for none of them."
    return f"Copies move {', '.join(moves)}{per}.{said}"


def _moved(directions: pd.DataFrame, direction: str, each: int) -> str:
    """Bytes of a direction, or the number of its copies where no size is known."""
    mine = directions[directions["direction"] == direction].iloc[0]
    size = float(mine["bytes"])
    return f"**{human(size / each, 'B')}**" if size > 0 else f"what {_number(float(mine['count']) / each)} of unknown size hold"


def _number(count: float) -> str:
    return f"**{human(round(count, 1), 'count')}** {'copy' if count == 1 else 'copies'}"


def _notices(capture: Capture, directions: pd.DataFrame) -> list[Notice]:
    said = []
    if directions["time_ns"].isna().all():
        said.append("These copies were counted at the operators: how many, how large, from where. A trace beside it says what they cost.")
    without = int(directions["without_bytes"].sum())
    if without:
        said.append(f"{human(without, 'count')} of {human(int(directions['count'].sum()), 'count')} have no known size.")
    if capture.tables["ledger"]["compiled"].any():
        said.append("Compiled regions ran eagerly while they were counted: compiled, they may copy less.")
    return [Notice(" ".join(said), "info")] if said else []


def _cards(directions: pd.DataFrame) -> list[AnySection]:
    out: list[AnySection] = [_counted_card(str(row["direction"]), row) for _, row in directions.iterrows()]
    for section, span in zip(out, _spans(len(out)), strict=True):
        section.span = span
    return out


def _counted_card(direction: str, row: pd.Series[float]) -> FactsSection:
    values = {n: plain_list([row[n]])[0] for n in COUNTED_CARD}
    for name in UNTIMED:
        if values[name] is None:
            del values[name]
    notes: dict[str, str] = {}
    call_ns = row["call_ns"]
    if "blocking" in values:
        held = f", {human(call_ns, 'ns')} in calls" if np.isfinite(call_ns) else ""
        notes[_fact(direction, "blocking")] = f"of {human(int(row['count']), 'count')}{held}"
    marks = {}
    if row["without_bytes"] and values["bytes"] is not None:
        marks[_fact(direction, "bytes")] = Mark("lower_bound", f"{int(row['without_bytes'])} copies have no known size")
    whole: dict[str, Scalar] = {
        _fact(direction, n): round(v) if isinstance(v, float) and n != "bandwidth_bytes_per_s" else v for n, v in values.items()
    }
    return make_facts(
        _fact(direction, "card"),
        NAMES.get(direction, direction),
        whole,
        _card_facts(direction, COUNTED_CARD),
        style="card",
        notes=notes,
        marks=marks,
    )


def _spans(count: int) -> list[int]:
    """Widths of the cards: up to four in a row, which they fill; one or two stay narrow."""
    if count <= 2:
        return [4] * count
    lines = -(-count // 4)
    each = [count // lines + (line < count % lines) for line in range(lines)]
    return [12 // n for n in each for _ in range(n)]


def _findings(capture: Capture, where: Scope, steps: int) -> list[AnySection]:
    """What counted copies tell; nothing at all where nobody knows of waiting and nothing else is to be told."""
    found = counted_patterns(capture, where)
    if not found and (counted.counted(capture, where)["blocking"].to_numpy() < 0).all():
        return []
    section = FindingsSection(
        id="findings",
        title="What to fix first",
        subtitle="what it would save cannot be told from counts",
        findings=[_finding(f, steps, where) for f in found],
        empty="The host waits for no counted copy.",
    )
    return [section]


def _finding(f: CountedPattern, steps: int, where: Scope) -> Finding:
    key = f.rule if f.rule in TITLES else f"{f.rule}_{f.direction}"
    per = " per step" if where.steps else ""
    size = f", {human(f.sized_bytes / steps, 'B')}" if f.sized_bytes and f.rule != "reads" else ""
    often = f"{human(round(f.copies / steps, 1), 'count')}{per or ' copies'}{size}"
    held = ""
    if np.isfinite(f.call_ns) and f.waits:
        held = f"; the calls held the host for {human(f.call_ns / steps, 'ns')}{per} while they were counted"
    elif np.isfinite(f.time_ns):
        held = f", {human(round(f.time_ns / steps), 'ns')}{per} on the device"
    places = []
    if f.operators:
        places.append(" and ".join(f"`{o}`" for o in f.operators))
    if f.modules:
        places.append("in " + " and ".join(f"`{m}`" for m in f.modules))
    if f.phases:
        places.append("phase " + " and ".join(f"`{p}`" for p in f.phases))
    source = f" Most {'in ' if not f.modules or f.operators else ''}{', '.join(places)}." if places else ""
    by = "module" if f.modules else "operator"
    return Finding(
        rule=f"copies_{f.rule}",
        title=TITLES[key],
        evidence=f"{often}{held}.{source}",
        fix=FIXES[key],
        link=Link("memcpy", {"by": by, "find": f.direction}, f"{human(f.copies, 'count')} copies"),
        color="host" if f.waits else COLORS.get(f.direction, "other"),
        candidate=f.candidate,
    )


def _counted_table(capture: Capture, where: Scope, by: str, steps: int) -> TableSection:
    frame = counted.table(capture, by, where)
    parts = {"direction": ["direction"], "kind": ["direction", "src_kind", "dst_kind"]}.get(by, ["direction", "group"])
    frame["id"] = ["|".join(t) for t in zip(*(frame[c].astype(str) for c in parts), strict=True)]
    total: dict[str, Scalar] = {c.name: None for c in COUNTED_COLUMNS}
    known = frame["bytes"].notna()
    whole = int(frame["bytes"][known].sum()) if known.any() else None
    total |= {"direction": "all", "count": int(frame["count"].sum()), "bytes": whole, "without_bytes": int(frame["without_bytes"].sum())}
    total |= {"bytes_per_step": None if whole is None else round(whole / steps), "bytes_share": 1.0 if whole else None}
    for name in ("blocking", "call_ns", "time_ns"):
        value = float(frame[name].sum(skipna=False)) if len(frame) else np.nan
        total[name] = round(value) if np.isfinite(value) else None
    total["share"] = 1.0 if total["time_ns"] else None
    frame["bytes_per_step"] = frame["bytes"] / steps
    marks: dict[str, dict[str, Mark]] = {"bytes": {}}
    for i, (size, without) in enumerate(zip(frame["bytes"], frame["without_bytes"], strict=True)):
        if without and size == size:
            marks["bytes"][str(i)] = Mark("lower_bound", f"{without} copies have no known size")
    for name in ("bytes", "bytes_per_step", "blocking", "call_ns", "time_ns", "mean_ns"):
        frame[name] = whole_numbers(frame[name])
    for name in ("src_kind", "dst_kind"):
        frame[name] = pd.Series([t or None for t in frame[name].tolist()], dtype=object)
    group = GROUPS.get(by)
    timed = bool(frame["time_ns"].notna().any())
    columns = _columns(by, timed=timed, called=bool(frame["call_ns"].notna().any()))
    words = "direction and kind of memory" if by == "kind" else by
    return make_table(
        "counted",
        f"Copies by {words}",
        frame if group is None else frame.rename(columns={"group": by}),
        columns,
        key="id",
        subtitle=f"{where.label}, {human(steps, 'count')} steps counted" if steps > 1 and where.whole else where.label,
        total={c.name: total.get(c.name) for c in columns},
        sort=Sort("time_ns" if timed else "bytes"),
        marks={n: m for n, m in marks.items() if m},
        filters=["direction", *([by] if group is not None else []), *(["src_kind", "dst_kind"] if by == "kind" else [])],
        footer=PROFILED if timed else CALLED,
        empty="No copy was counted.",
    )


def _columns(by: str, *, timed: bool, called: bool) -> tuple[Column, ...]:
    """timed: there are times on the device; called: of the host inside the calls. What is not there moves to the column chooser."""
    group = GROUPS.get(by)
    head = _HEAD if group is None else (_HEAD[0], group, *(msgspec.structs.replace(c, rank=3) for c in _HEAD[1:]))
    rank = {} if called else {"call_ns": 3, "blocking": 3}
    if timed:
        rank |= {"time_ns": 1, "bandwidth_bytes_per_s": 1, "share": 2, "bytes_per_step": 3}
    else:
        rank |= {"time_ns": 3, "bandwidth_bytes_per_s": 3}
    return tuple(msgspec.structs.replace(c, rank=rank.get(c.name, c.rank)) for c in (*head, *_VALUES))


# -- beside a trace -----------------------------------------------------------------------------------------------------


def beside(capture: Capture, where: Scope) -> TableSection | None:
    """What the SOL capture beside a trace counted against what the trace recorded, per step; None where there is no such capture."""
    if not counted.has(capture) or not len(capture.device) or not where.whole:
        return None
    ours = counted.table(capture, "direction").set_index("direction")
    found = copies(capture, in_steps(capture, where))
    each, traced = counted.iterations(capture), where.step_count
    rows = []
    for direction in ("HtoD", "DtoH", "DtoD", "PtoP"):
        mine = found[found["direction"] == direction]
        if direction not in ours.index and not len(mine):
            continue
        count = float(ours["count"].get(direction, 0)) / each
        sized = float(ours["bytes"].get(direction, 0)) / each
        known = mine[mine["bytes"] >= 0]
        left_out = direction == "PtoP" and not len(mine)  # unknown, not zero
        rows.append(
            {
                "direction": direction,
                "counted": round(count, 1),
                "recorded": None if left_out else round(len(mine) / traced, 1),
                "counted_bytes": None if np.isnan(sized) else round(sized),
                "recorded_bytes": None if left_out or (len(mine) and not len(known)) else round(int(known["bytes"].sum()) / traced),
                "reason": _why(direction, count, len(mine) / traced),
            }
        )
    if not rows:
        return None
    frame = pd.DataFrame(rows, columns=[c.name for c in BESIDE])
    for name in ("recorded", "counted_bytes", "recorded_bytes"):
        frame[name] = frame[name].astype(object).where(frame[name].notna(), None)
    return make_table(
        "beside",
        "Counted beside the trace",
        frame,
        BESIDE,
        key="direction",
        span=12,
        footer="The SOL capture counts calls in its sampled iterations, the trace records copies in others.",
    )


def _why(direction: str, ours: float, theirs: float) -> str | None:
    if abs(ours - theirs) < 0.5:
        return None
    if ours > theirs:
        if direction == "PtoP":
            return "the profiler leaves copies between devices out"
        return "the other iterations may copy less, or a copy was asked for that the trace does not show as one"
    return "made inside operators, by other threads or by code that does not go through the dispatcher"


# -- The table of copies, grouped one way ----------------------------------------------------------------------------
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
    Column("mean_ns", "Mean", "ns", "time over copies", rank=2),
    Column("median_ns", "Median", "ns", "half of the copies are shorter", rank=3),
    Column("p95_ns", "p95", "ns", "95 % of the copies take no longer (nearest rank)", rank=3),
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
    """Columns of the table for one way of grouping; where another label stands, the kinds of memory may hide first."""
    if by not in GROUP:
        return (*HEAD, *VALUES)
    return (HEAD[0], GROUP[by], msgspec.structs.replace(HEAD[1], rank=2), *HEAD[2:], *VALUES)


def limited(table: pd.DataFrame, limits: dict[str, tuple[float, str]]) -> pd.DataFrame:
    """A table of groups with `limit_bytes_per_s` and `link_share`."""
    limit = np.array([limits[d][0] if d in limits else np.nan for d in table["direction"]], np.float64)
    return table.assign(limit_bytes_per_s=limit, link_share=table["large_bytes_per_s"].to_numpy(np.float64) / limit)


def breakdown_section(
    capture: Capture, found: pd.DataFrame, table: pd.DataFrame, by: groups.By, totals: dict[str, Scalar], where: Scope,
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


def _keyed(table: pd.DataFrame, by: groups.By) -> pd.DataFrame:
    """With the label in a column named after the grouping, null for unknown kinds, and a key per row."""
    kinds = {c: [t or None for t in table[c]] for c in ("src_kind", "dst_kind")}
    parts = {"direction": ["direction"], "kind": ["direction", "src_kind", "dst_kind"]}.get(by, ["direction", "group"])
    key = ["|".join(t) for t in zip(*(table[c].astype(str) for c in parts), strict=True)]
    size = pd.Series([int(b) if b == b else None for b in table["bytes"]], dtype=object)
    ends = zip(table["direction"], table["src_kind"], table["dst_kind"], strict=True)
    pairs = [memory_text(d, a, b) or None for d, a, b in ends]
    text = {**kinds, "kinds": pairs}
    out = table.assign(id=key, bytes=size, **{c: pd.Series(v, dtype=object) for c, v in text.items()})
    return out.rename(columns={"group": by}) if by in GROUP else out


def _total(totals: dict[str, Scalar], by: groups.By) -> dict[str, Scalar]:
    row: dict[str, Scalar] = {c.name: None for c in columns(by)}
    row |= {n: totals[n] for n in ("count", "bytes", "without_bytes", "time_ns", "exposed_ns", "hidden_ns")}
    return row | {"direction": "all", "share": 1.0 if totals["time_ns"] else None, "bytes_share": 1.0 if totals["bytes"] else None}


def _marks(frame: pd.DataFrame, unsure: set[str]) -> dict[str, dict[str, Mark]]:
    out: dict[str, dict[str, Mark]] = {"bytes": {}, "link_share": {}, "limit_bytes_per_s": {}}
    rows = zip(*(frame[c] for c in ("direction", "bytes", "without_bytes", "oversize", "link_share")), strict=True)
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


# -- What a reader should know before the numbers of the copies ------------------------------------------------------
# sizes and limits that are missing, and limits that cannot be right.


VERDICTS: Final[dict[str, Literal["info", "warn"]]] = {"wrong": "warn", "cache": "info", "slow": "info", "pageable": "info"}
"""How loud each verdict on a limit is."""


def notices(
    capture: Capture,
    found: pd.DataFrame,
    directions: pd.DataFrame,
    limits: bandwidth.Limits,
    where: Scope,
    step: str,
    spec: DeviceSpec | None,
) -> list[Notice]:
    """The notices of a selection.

    found: its copies; directions: `groups.table` by direction. spec: the device, None without known limits.
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
    for said in bandwidth.evidence(found, limits, spec):
        query = {"direction": said.direction, "min_bytes": str(bandwidth.LARGE)} | at
        text = f"{NAMES[said.direction]}: {said.text[0].lower() + said.text[1:]}"
        out.append(Notice(text, VERDICTS[said.verdict], Link("memcpy_copies", query, "These copies")))
    off = rules_off(capture, where)
    if off:
        out.append(Notice(off, "info"))
    return out


# -- A card per direction --------------------------------------------------------------------------------------------
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
    capture: Capture, found: pd.DataFrame, directions: pd.DataFrame, limits: dict[str, tuple[float, str]], step: str
) -> list[AnySection]:
    """A card per direction that has copies, and one for each kind of transfer that the recorder may have left out.

    directions: `groups.table` by direction with `link_share`. step: goes on to the links.
    """
    out: list[AnySection] = [_card(str(row["direction"]), row, limits, step) for _, row in directions.iterrows()]
    return [*out, *_peers(capture, directions), *_migrations(capture, found)]


def _card(direction: str, row: pd.Series[float], limits: dict[str, tuple[float, str]], step: str) -> FactsSection:
    values = {_fact(direction, n): plain_list([row[n]])[0] for n in CARD}
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


def _peers(capture: Capture, directions: pd.DataFrame) -> list[FactsSection]:
    """Peer copies may be left out by the profiler: with several devices and none recorded they are unknown, not zero."""
    if (directions["direction"] == "PtoP").any():
        return []
    used = int(capture.device["device"].nunique())
    ranks = capture.facts.world_size or 1
    if max(used, ranks) < 2:
        return []
    who = f"{ranks} ranks ran" if ranks > 1 else f"{used} devices ran"
    text = f"Not recorded. {who} and the file holds no peer copy; the profiler may leave them out. Unknown, not zero."
    return [FactsSection(id="ptop_card", title=NAMES["PtoP"], style="card", span=2, text=text)]


def _migrations(capture: Capture, found: pd.DataFrame) -> list[FactsSection]:
    """Pages of unified memory that move on their own: no PyTorch trace holds them, so they are unknown where unified memory is used."""
    ends = np.zeros(len(found), np.bool_)
    for name in ("src_kind", "dst_kind"):
        code, kinds = pd.factorize(found[name])
        ends |= np.array([str(k).startswith("Managed") for k in kinds], np.bool_)[code]
    asked = hints(capture)
    if not ends.any() and not asked:
        return []
    many = int(ends.sum())
    seen = [f"{human(many, 'count')} {'copy has' if many == 1 else 'copies have'} a managed end"] if many else []
    seen += [f"the program calls {' and '.join(f'`{a}`' for a in asked[:2])}"] if asked else []
    said = " and ".join(seen)
    text = f"Not recorded. {capitalized(said)}; the profiler holds no page migration and no page fault. Unknown, not zero."
    return [FactsSection(id="unified_card", title="Unified memory", style="card", span=2, text=text)]


def hints(capture: Capture) -> list[str]:
    """Names of the calls of the recording that prefetch unified memory or advise on it."""
    names = capture.host["name"].cat.categories
    used = set(np.unique(capture.host["name"].cat.codes.to_numpy()[capture.host["kind"].to_numpy() == S.CALL]).tolist())
    named = (records.api_name(str(n)) for i, n in enumerate(names) if i in used and (m := records.COPY_API.match(str(n))) is not None
             and ({"Prefetch", "Advise"} & {*m.groups()}))  # fmt: skip
    return sorted(set(named))


def totals(directions: pd.DataFrame, launched: pd.DataFrame, where: Scope) -> dict[str, Scalar]:
    """Sums over all directions, and per step where steps were recorded. launched: the same table of the copies that steps launched."""
    time, exposed = int(directions["time_ns"].sum()), int(directions["exposed_ns"].sum())
    steps = where.step_count if where.steps else 0
    return {
        "count": int(directions["count"].sum()),
        "bytes": int(directions["bytes"].sum()) if directions["bytes"].notna().any() else None,
        "without_bytes": int(directions["without_bytes"].sum()),
        "time_ns": time,
        "exposed_ns": exposed,
        "hidden_ns": int(directions["hidden_ns"].sum()),
        "steps": steps,
        "time_per_step_ns": round(int(launched["time_ns"].sum()) / steps) if steps else None,
        "exposed_per_step_ns": round(int(launched["exposed_ns"].sum()) / steps) if steps else None,
    }


def numbers(found: dict[str, Scalar], fits: dict[str, tuple[float, float]]) -> FactsSection:
    """The sums and the fitted latencies and rates as a list."""
    values: dict[str, Scalar] = {n: v for n, v in found.items() if v is not None and (n != "steps" or v)}
    for direction, (latency, rate) in fits.items():
        values |= {_fact(direction, "latency_ns"): round(latency), _fact(direction, "rate_bytes_per_s"): round(rate)}
    fitted = Mark("estimated", "fitted through the fastest copies of each size")
    return make_facts("facts", "Numbers", values, FACTS, marks={_fact(d, n): fitted for d in fits for n in FIT})
