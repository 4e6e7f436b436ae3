"""Single copies: each with its time, size, rate, and who launched it.

The copies that a row of another table stands for, or any choice of them by direction, memory, device, owner or size. A page shows
so many of them, the first in time or the largest; sums are over all that were chosen. Shares of the limit are told for copies of at
least 1 MiB only: smaller ones are bound by latency.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.errors import BadQuery, Unavailable
from tb_sol_plugin.metrics.copies import bandwidth, exposure, groups, records
from tb_sol_plugin.metrics.copies.blocking import REASONS, blocking
from tb_sol_plugin.metrics.copies.groups import CopyChoice, choice_text, chosen
from tb_sol_plugin.metrics.time.scope import Scope, scope
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import (
    Column,
    Fact,
    FactsSection,
    FigureSection,
    Link,
    Mark,
    Notice,
    OnTimeline,
    Report,
    Scalar,
    Sort,
    make_facts,
    make_table,
)
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Objects, Places, or_none
from tb_sol_plugin.tables.series import thinned
from tb_sol_plugin.tables.table import as_table
from tb_sol_plugin.units import human, humans

MOST: Final = 200_000
"""Rows that one answer may hold."""
POINTS: Final = 4_000
"""Copies that the figure draws one by one."""


class MemcpyCopiesQuery(CopyChoice, kw_only=True, frozen=True):
    """held: only copies that blocked the host: for any reason, or for one
    first: which copies stand in the table where there are more than `most`: the first in time, or the largest
    most: rows in the table at most, up to 200 000
    """

    held: Literal["", "any", "tiny_read", "sync_api", "pageable", "waits", "managed_set"] = ""
    first: Literal["time", "duration", "exposed", "bytes", "call"] = "time"
    most: int = 2000


FACTS: Final = (
    Fact("count", "Copies", "count", "copies and sets that were chosen"),
    Fact("bytes", "Bytes", "B", "their bytes, as far as recorded"),
    Fact("without_bytes", "Without a size", "count", "those whose size was not recorded"),
    Fact("time_ns", "Time, sum", "ns", "plain sum of their durations"),
    Fact("union_ns", "Union", "ns", "time in which at least one of them runs, per device"),
    Fact("hidden_ns", "Hidden", "ns", "the part of that union behind kernels that are no communication"),
    Fact("exposed_ns", "Exposed", "ns", "the rest of that union"),
    Fact("bandwidth_bytes_per_s", "Bandwidth", "B/s", "bytes over time of those that carry a size"),
    Fact("call_ns", "Host calls", "ns", "plain sum of the host calls that launched them; one call of several copies counts once"),
    Fact("held", "Blocking", "count", "those that blocked the host"),
    Fact("lost_ns", "Host blocked", "ns", "time in which they blocked the host, each nanosecond of a thread once"),
)  # fmt: skip
NO_CALL: Final = "no host call was recorded for this copy"
COLUMNS: Final = (
    Column("start_ns", "Start", "ns", "start on the device, since the recording began"),
    Column("in_step_ns", "In step", "ns", "start since the host began its step", rank=2, missing="launched outside every step"),
    Column("step", "Step", doc="step that launched it, or why there is none", rank=2),
    Column("direction", "Direction", doc="where to where; copy kernel: a copy the driver runs as a kernel", show="symbol"),
    Column("kinds", "Memory", doc="kinds of the source and destination memory as recorded", missing="not recorded"),
    Column("bytes", "Bytes", "B", "size of the copy", missing="the recording has no size of this copy"),
    Column("duration_ns", "Time", "ns", "duration on the device", show="bar", color_by="direction"),
    Column("bandwidth_bytes_per_s", "Bandwidth", "B/s", "bytes over time", missing="no size or no time recorded"),
    Column(
        "link_share", "Of limit", "ratio", "bandwidth over the limit of the link or memory; from 1 MiB on", show="efficiency", rank=2,
        missing="below 1 MiB (latency bound), or no limit known",
    ),
    Column("hidden_ns", "Hidden", "ns", "part of it behind kernels that are no communication", rank=2),
    Column("exposed_ns", "Exposed", "ns", "the rest of it", show="bar", color_by="direction"),
    Column("device", "Device", doc="device of the copy", rank=3),
    Column("stream", "Stream", doc="stream of the copy", rank=2),
    Column("api", "Call", doc="host call that launched it", show="code", missing=NO_CALL),
    Column("call_ns", "Call time", "ns", "length of that host call; a graph launch is listed for each of its copies", missing=NO_CALL),
    Column("reason", "Held the host", doc="why the host could not go on while it ran, if it could not", missing="the host went on"),
    Column(
        "host_ns", "Held for", "ns", "length of its call, and of a wait for it that follows at once", rank=2, missing="the host went on"
    ),
    Column("operator", "Operator", doc="innermost operator around the launch", show="code", missing="no operator around the launch"),
    Column("module", "Module", doc="innermost module call around the launch, or why there is none", show="code", rank=2),
    Column("frame", "Python line", doc="innermost python line around the launch", show="code", rank=2, missing="no python line recorded"),
    Column("phase", "Phase", doc="innermost phase around the launch, or why there is none", rank=3),
    Column("graph_node", "Graph node", doc="node of the graph that holds it", rank=3, missing="not part of a graph"),
    Column("src_device", "From device", doc="device that it reads from", rank=3, missing="the host, or not recorded"),
    Column("dst_device", "To device", doc="device that it writes to", rank=3, missing="the host, or not recorded"),
    Column("id", "Id", doc="place of its event in the table of device events", rank=3),
)  # fmt: skip


@analysis(
    title="Single copies",
    question="Which copies exactly, when, how fast, and who launched them?",
    group="Speed of light",
    order=22,
    requirements=("device_events",),
    query=MemcpyCopiesQuery,
    tables={"copies": COLUMNS},
    facts=FACTS,
    under="memcpy",
)
def run(capture: Capture, query: MemcpyCopiesQuery) -> Report:
    if not 1 <= query.most <= MOST:
        raise BadQuery(f"most is {query.most}", hint=f"give a number from 1 to {MOST}", field="most")
    where = scope(capture, query)
    everything = records.copies(capture, where.device)
    if not len(everything) and not len(records.copies(capture, np.ones(len(capture.device), bool))):
        raise Unavailable("no copy in this recording", hint="record a part of the job that moves data")
    held = blocking(capture, everything)
    meant = chosen(capture, everything, query)
    if query.held:
        reason = held["reason"].to_numpy(object)
        meant &= (reason != "") if query.held == "any" else (reason == query.held)
    found, why = _some(everything, held, None if meant.all() else np.flatnonzero(meant))
    limits = bandwidth.peaks(device_for(capture, query.device_limits))
    shown, why_shown = _some(found, why, _shown(found, query))
    frame = _frame(capture, shown, why_shown, limits)
    facts = _facts(capture, found, why)
    left = len(found) - len(shown)
    marks = {
        str(i): Mark("flagged", "faster than the assumed limit: the link assumption is wrong")
        for i, share in enumerate(frame["link_share"].tolist()) if share > 1.05
    }  # fmt: skip
    what = ", ".join(t for t in (choice_text(query), _reasons_text(query)) if t)
    table = make_table(
        "copies",
        "Single copies",
        frame,
        _columns(query, frame),
        key="id",
        subtitle=", ".join(t for t in (what, where.label) if t),
        sort=Sort("start_ns", descending=False) if query.first == "time" else Sort(_ORDER[query.first]),
        filters=[] if query.direction else ["direction"],
        adds=["bytes", "duration_ns", "hidden_ns", "exposed_ns"],
        timeline=OnTimeline("start_ns", "start_ns", "duration_ns", capture.facts.extent_ns[0]),
        marks={"link_share": marks} if marks else {},
        truncated=left,
        footer=(f"{human(left, 'count')} more copies are not shown; `most` asks for more, `first` for others. " if left else "")
        + "Hidden and exposed are of each copy alone; copies that run side by side count twice in their sums, and once in the facts above.",
        empty=f"No copy fits: {what}. {human(len(everything), 'count')} copies without this choice."
        if what
        else "No copy was launched in this selection.",
    )
    return Report(
        analysis="memcpy_copies",
        title="Single copies",
        headline=_headline(facts, what, where),
        notices=[Notice("Choices narrow this table.", "info", Link("memcpy_copies", {"step": query.step}, "All copies"))]
        if what and not len(found)
        else [],
        sections=[_facts_section(facts), _scatter(capture, shown, left), table],
    )


def _columns(query: MemcpyCopiesQuery, frame: groups.Columns) -> tuple[Column, ...]:
    """Returns the columns; what the choice makes equal in every row is hidden, Python lines, where recorded, stand before operators."""
    ranks = {"frame": 1, "operator": 2} if any(v is not None for v in frame["frame"].tolist()) else {}
    same = {n for n in ("direction", "kinds", "device", "stream", "operator", "module", "frame") if getattr(query, n) not in ("", None)}
    ranks |= dict.fromkeys(same, 3)
    return tuple(msgspec.structs.replace(c, rank=ranks[c.name]) if c.name in ranks else c for c in COLUMNS)


def _reasons_text(query: MemcpyCopiesQuery) -> str:
    """Returns the choice of reasons in words for a heading."""
    if not query.held:
        return ""
    return "that blocked the host" if query.held == "any" else f"that blocked the host ({REASONS[query.held].lower()})"


_ORDER: Final = {"duration": "duration_ns", "exposed": "exposed_ns", "bytes": "bytes", "call": "call_ns"}


def _shown(found: pd.DataFrame, query: MemcpyCopiesQuery) -> Places | None:
    """Returns the copies that stand in the table, in order of time; None for all."""
    if len(found) <= query.most:
        return None
    if query.first == "time":
        return np.arange(query.most)
    return np.sort(np.argsort(-found[_ORDER[query.first]].to_numpy(), kind="stable")[: query.most])


def _some(found: pd.DataFrame, held: pd.DataFrame, rows: Places | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns some rows of copies and of how they blocked the host; None for all."""
    if rows is None:
        return found, held
    return as_table(found.iloc[rows].reset_index(drop=True)), as_table(held.iloc[rows].reset_index(drop=True))


def _facts(capture: Capture, found: pd.DataFrame, held: pd.DataFrame) -> dict[str, Scalar]:
    size, time = found["bytes"].to_numpy(), found["duration_ns"].to_numpy()
    known = size >= 0
    parts = exposure.union_parts(capture, np.zeros(len(found), np.int64), found, 1)
    rate = float(bandwidth.rate(size[known].sum(keepdims=True), time[known].sum(keepdims=True))[0]) if known.any() else np.nan
    call, first = np.unique(found["call"].to_numpy(), return_index=True)
    call_ns = found["call_ns"].to_numpy()[first[call >= 0]]
    return {
        "count": len(found),
        "bytes": int(size[known].sum()) if known.any() else None,
        "without_bytes": int((~known).sum()),
        "time_ns": int(time.sum()),
        **{n: int(parts[n][0]) for n in ("union_ns", "hidden_ns", "exposed_ns")},
        "bandwidth_bytes_per_s": rate if np.isfinite(rate) else None,
        "call_ns": int(call_ns.sum()) if len(call_ns) else None,
        "held": int((held["reason"].to_numpy(object) != "").sum()),
        "lost_ns": int(held["lost_ns"].to_numpy().sum()),
    }


def _facts_section(facts: dict[str, Scalar]) -> FactsSection:
    order = (
        "count", "bytes", "time_ns", "bandwidth_bytes_per_s", "hidden_ns", "exposed_ns", "union_ns", "lost_ns", "call_ns", "held",
        "without_bytes",
    )  # fmt: skip
    marks = {}
    if facts["without_bytes"] and facts["bytes"] is not None:
        marks["bytes"] = Mark("lower_bound", f"{facts['without_bytes']} copies carry no size")
    notes = {
        "bytes": f"{human(int(facts['without_bytes']), 'count')} without a size" if facts["without_bytes"] else "",
        "lost_ns": f"by {human(int(facts['held'] or 0), 'count')} of them" if facts["held"] else "by none of them",
    }
    return make_facts(
        "facts",
        "",
        {n: facts[n] for n in order},
        FACTS,
        style="tiles",
        weight="headline",
        marks=marks,
        notes={n: s for n, s in notes.items() if s},
        hidden=["union_ns", "call_ns", "held", "without_bytes"],
    )


def _frame(capture: Capture, shown: pd.DataFrame, held: pd.DataFrame, limits: dict[str, tuple[float, str]]) -> groups.Columns:
    size, time, start, row, call = (shown[name].to_numpy() for name in ("bytes", "duration_ns", "start_ns", "row", "call"))
    direction, reason = shown["direction"].to_numpy(object), held["reason"].to_numpy(object)
    rate = bandwidth.rate(np.maximum(size, 0), time)
    code, names = pd.factorize(direction)
    limit = np.array([limits[d][0] if d in limits else np.nan for d in names], np.float64)[code]
    step = shown["step"].to_numpy().astype(np.int64)
    begin = capture.steps["host_start_ns"].to_numpy()
    out: groups.Columns = {
        "start_ns": start - capture.facts.extent_ns[0],
        "in_step_ns": or_none(start - begin[np.maximum(step, 0)] if len(begin) else start, (step >= 0) & (not capture.facts.pseudo_step)),
        "step": groups.labels(capture, shown, "step"), "direction": direction, "kinds": records.memory_texts(shown),
        "bytes": or_none(size, size >= 0), "duration_ns": time, "bandwidth_bytes_per_s": rate,
        "link_share": np.where(size >= bandwidth.LARGE, rate / limit, np.nan),
        **{name: shown[name].to_numpy() for name in ("hidden_ns", "exposed_ns")},
        "api": records.in_words(shown["api"].to_numpy(object), str), "call_ns": or_none(shown["call_ns"].to_numpy(), call >= 0),
        "reason": records.in_words(reason, lambda r: REASONS.get(r, "")), "host_ns": or_none(held["host_ns"].to_numpy(), reason != ""),
        "operator": _owner(capture, shown["operator"].to_numpy(), str), "module": groups.labels(capture, shown, "module"),
        "frame": _owner(capture, shown["frame"].to_numpy(), records.frame_name), "phase": groups.labels(capture, shown, "phase"),
        "id": np.array([str(r) for r in row.tolist()], object),
    }  # fmt: skip
    return out | {
        name: records.numbers_in_words(shown[name].to_numpy()) for name in ("device", "stream", "graph_node", "src_device", "dst_device")
    }


def _owner(capture: Capture, row: npt.NDArray[np.int32], name_of: Callable[[str], str]) -> Objects:
    """Returns names of host rows, None for -1."""
    out = np.full(len(row), None, object)
    has = row >= 0
    if has.any():
        out[has] = arrays.per_text(capture.host["name"], row[has], lambda name: name_of(name) or None, object)
    return out


def _scatter(capture: Capture, shown: pd.DataFrame, left: int) -> FigureSection:
    """Draws when the shown copies ran, and for how long; the points carry the keys of their rows.

    Of more than `POINTS` those stand for all that bound them: by direction, of each equal part of the time the first, last, longest
    and shortest.
    """
    title = "When, and how long"
    took = shown["duration_ns"].to_numpy() > 0
    if not took.any():
        return FigureSection(id="when", title=title, height=120, figure=F.figure([]), summary="No copy to draw.", table="copies")
    duration, size, row, kind = (shown[n].to_numpy()[took] for n in ("duration_ns", "bytes", "row", "direction"))
    start = shown["start_ns"].to_numpy()[took] - capture.facts.extent_ns[0]
    first, last = int(start.min()), int(start.max())
    factor, unit = F.time_scale(float(last))
    data: list[F.Plain] = []
    drawn = 0
    code, names = pd.factorize(kind)
    number = {str(name): i for i, name in enumerate(names)}
    by_kind = [(d, np.flatnonzero(code == number[d])) for d in records.DIRECTIONS if d in number]
    for direction, moved in by_kind:
        if len(start) > POINTS:
            moved = moved[np.argsort(start[moved], kind="stable")]
            moved = moved[thinned(start[moved], [duration[moved]], POINTS // len(by_kind))]
        drawn += len(moved)
        color = records.COLORS.get(direction, "other")
        data.append({
            "type": "scatter", "mode": "markers", "name": records.NAMES[direction],
            "x": (start[moved] / factor).tolist(), "y": duration[moved].tolist(), "customdata": [str(r) for r in row[moved].tolist()],
            "marker": {"symbol": F.symbol(direction), "size": 8, "color": F.light(color), "opacity": 0.8,
                       "line": {"width": 0.8, "color": F.light("surface")}},
            "hovertext": _hover(size[moved], duration[moved], start[moved]),
            "hovertemplate": f"<b>{records.NAMES[direction]}</b><br>%{{hovertext}}<extra></extra>",
        })  # fmt: skip
    low, high = float(duration.min()), float(duration.max())
    pad = max((last - first) * 0.02, 1.0)
    every = f"the {human(len(shown), 'count')} shown copies" if left else f"{human(len(start), 'count')} copies"
    part = f"{human(drawn, 'count')} of {every}: by direction, of each small part of the time the first, last, longest and shortest"
    return FigureSection(
        id="when",
        title=title,
        subtitle=part if drawn < len(start) else every if left else "",
        height=260,
        table="copies",
        figure=F.figure(
            data,
            x=F.axis(f"start, {unit}", range=[(first - pad) / factor, (last + pad) / factor]),
            y=F.axis("duration", **F.decades(low, high, "ns"), range=[float(np.log10(low)) - 0.15, float(np.log10(high)) + 0.15]),
            showlegend=True,
            margin={"l": 70, "r": 14, "t": 10, "b": 46},
        ),
        summary=f"{human(len(start), 'count')} copies, {human(first, 'ns')} to {human(last, 'ns')}; the longest takes {human(high, 'ns')}.",
    )


def _hover(size: Ints, duration: Ints, at: Ints) -> list[str]:
    """Returns what hovering each copy says; all of them took time."""
    rate = np.full(len(size), "", object)
    rated = np.flatnonzero(size > 0)
    rate[rated] = [f", {text}" for text in humans((size[rated] / duration[rated] * 1e9).tolist(), "B/s")]
    much = [text if number >= 0 else "no size recorded" for text, number in zip(humans(size.tolist(), "B"), size.tolist(), strict=True)]
    parts = zip(much, rate.tolist(), humans(duration.tolist(), "ns"), humans(at.tolist(), "ns"), strict=True)
    return [f"{size_of}{fast}<br>{took} at {when}" for size_of, fast, took, when in parts]


def _headline(facts: dict[str, Scalar], what: str, where: Scope) -> str:
    count = int(facts["count"] or 0)
    if not count:
        return "No copy fits this choice." if what else "No copy was launched in this selection."
    size = f" of {human(int(facts['bytes']), 'B')} in all" if isinstance(facts["bytes"], int) else ""
    much = f"{size if count > 1 else ''} take{'s' if count == 1 else ''}"
    time, exposed = (human(int(facts[n] or 0), "ns") for n in ("time_ns", "exposed_ns"))
    shown = "all" if exposed == time else "none" if not facts["exposed_ns"] else exposed
    return f"**{human(count, 'count')}** {'copy' if count == 1 else 'copies'}{much} **{time}**, {shown} of it exposed."
