"""What copies of memory cost, and whether they use the link.

Copies are told by direction and by kind of memory. Bandwidth is bytes over time of the copies that carry bytes; the share of
the link counts copies of at least 1 MiB only, because smaller ones are bound by latency. A copy is hidden while a kernel that
is no communication runs on the same device, and exposed otherwise. Sets of memory have a card of their own.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.analyses import analysis
from tb_sol_plugin.analyses.memcpy import of_captures
from tb_sol_plugin.analyses.memcpy.parts import COLORS, NAMES, bandwidth_section, findings_section
from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics.memcpy import groups, link, records, sizes
from tb_sol_plugin.metrics.scope import Scope, scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.devices.limits import device_for, why_no_limits
from tb_sol_plugin.model.report import (
    AnySection,
    Column,
    FactsSection,
    Link,
    Mark,
    Notice,
    Report,
    Scalar,
    Sort,
    make_table,
    plain_list,
)
from tb_sol_plugin.model.selection import Query
from tb_sol_plugin.units import human


class MemcpyQuery(Query, kw_only=True, frozen=True):
    """by: what the rows of the table are: directions, or each direction by kind of memory, stream, step, module or phase"""

    by: Literal["direction", "kind", "stream", "step", "module", "phase"] = "direction"


CARD: Final = {
    "count": ("Copies", "count", "copies"),
    "bytes": ("Bytes", "B", "bytes of the copies that carry a size"),
    "time_ns": ("Time", "ns", "plain sum of durations"),
    "bandwidth_bytes_per_s": ("Bandwidth", "B/s", "bytes over time of the copies that carry a size"),
    "link_share": ("Of its limit", "ratio", "bandwidth of copies of at least 1 MiB over the limit of the link or memory"),
    "exposed_ns": ("Exposed", "ns", "union of the copies less kernels that are no communication"),
}
"""What a direction's card says: label, unit, definition."""
FIT: Final = {"latency_ns": "fitted time of an empty copy", "rate_bytes_per_s": "fitted bandwidth of an endless copy"}


def _fact(direction: str, name: str) -> str:
    return f"{direction.lower().replace(' ', '_')}_{name}"


FACTS: Final = {
    "count": "copies and sets in the selection",
    "bytes": "their bytes, as far as recorded",
    "without_bytes": "copies whose size was not recorded",
    "time_ns": "plain sum of their durations",
    "exposed_ns": "exposed time of all directions, summed",
    "hidden_ns": "hidden time of all directions, summed",
    "steps": "steps the per-step figures divide by",
    "time_per_step_ns": "time over steps",
    "exposed_per_step_ns": "exposed time over steps",
    **{_fact(d, n): f"{NAMES[d]}: {doc}" for d in records.DIRECTIONS for n, (_, _, doc) in CARD.items()},
    **{_fact(d, n): f"{NAMES[d]}: {doc}" for d in records.DIRECTIONS for n, doc in FIT.items()},
}
NO_SIZE: Final = "no copy of this row carries a size"
GROUP: Final = {
    "stream": Column("stream", "Stream", doc="stream of the copy, with its device where there are several", show="code"),
    "step": Column("step", "Step", doc="step that launched the copy, or why there is none"),
    "module": Column("module", "Module", doc="innermost module call around the launch, or why there is none", show="code"),
    "phase": Column("phase", "Phase", doc="innermost phase around the launch, or why there is none"),
}
HEAD: Final = (
    Column(
        "direction", "Direction", doc="HtoD, DtoH, DtoD, HtoH, PtoP, Memset; copy kernel: a copy the driver runs as a kernel", show="symbol"
    ),
    Column("src_kind", "From", doc="kind of the source memory as recorded", missing="not recorded"),
    Column("dst_kind", "To", doc="kind of the destination memory as recorded", missing="not recorded"),
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
SIZES: Final = (
    Column("direction", "Direction", doc="direction of the copies", show="symbol"),
    Column("size", "Size", doc="size of one copy; the upper end belongs to the bin"),
    Column("count", "Copies", "count", "copies of that size", show="bar", color_by="direction"),
    Column("bytes", "Bytes", "B", "their bytes"),
    Column("time_ns", "Time", "ns", "plain sum of their durations", show="bar", color_by="direction"),
    Column("bandwidth_bytes_per_s", "Bandwidth", "B/s", "bytes over time", missing="no time was recorded"),
)


def columns(by: str) -> tuple[Column, ...]:
    """Columns of the table for one way of grouping; where another label stands, the kinds of memory move to the column chooser."""
    if by not in GROUP:
        return (*HEAD, *VALUES)
    kinds = tuple(msgspec.structs.replace(c, rank=3) for c in HEAD[1:])
    return (HEAD[0], GROUP[by], *kinds, *VALUES)


@analysis(
    title="Memory copies",
    question="What do copies cost, and do they use the link?",
    group="Speed of light",
    order=20,
    needs=("moves",),
    query=MemcpyQuery,
    tables={"copies": (HEAD[0], *GROUP.values(), *HEAD[1:], *VALUES), "sizes": SIZES, **of_captures.TABLES},
    facts=FACTS | of_captures.FACTS,
)
def run(capture: Capture, query: MemcpyQuery) -> Report:
    if of_captures.opens(capture):
        return of_captures.report(capture, query, query.by)
    where = scope(capture, query)
    found = records.copies(capture, where.device)
    if not len(found) and not len(records.copies(capture, np.ones(len(capture.device), bool))):
        raise Unavailable("no copy in this recording", hint="record a part of the job that moves data")
    spec = device_for(capture, query.device_limits)
    limits = link.peaks(spec)
    unsure = set(spec.unverified) if spec is not None else set()
    directions = _limited(groups.table(capture, where.device, "direction"), limits)
    frame = directions if query.by == "direction" else _limited(groups.table(capture, where.device, query.by), limits)
    frame = _keyed(frame, query.by)
    fits = {d: fit for d in directions["direction"] if (fit := link.latency_fit(found, d)) is not None}
    totals = _totals(directions, where)
    cards = _cards(capture, directions, limits)
    sections: list[AnySection] = [
        *cards,
        bandwidth_section(found, limits, fits, keyed=query.by == "direction"),
        findings_section(capture, found, where, limits),
        make_table(
            "copies",
            f"Copies by {query.by if query.by != 'kind' else 'direction and kind of memory'}",
            frame,
            columns(query.by),
            key="id",
            subtitle=where.label,
            total=_total_row(totals, query.by),
            sort=Sort("time_ns"),
            marks=_marks(frame, unsure),
            filters=["direction", *([query.by] if query.by in GROUP else []), *(["src_kind", "dst_kind"] if query.by == "kind" else [])],
            row_links=_links(frame, query),
            footer="Bandwidth is bytes over time, never a mean of rates. Hidden + exposed is the union of the copies of a row; copies "
            "that run side by side count once there, and in Time each.",
            empty="No copy was launched in this selection.",
        ),
        make_table(
            "sizes",
            "Copies by size",
            sizes.sizes(found).assign(size=lambda t: [records.BINS[b] for b in t["bin"]]),
            SIZES,
            subtitle="copies that carry a size",
            span=8,
            footer="KiB and MiB are binary.",
        ),
        _facts(totals, fits),
    ]
    return Report(
        analysis="memcpy",
        title="Memory copies",
        headline=_headline(directions, totals, where),
        notices=_notices(capture, directions, totals, spec is not None, where),
        sections=sections,
    )


def _limited(table: pd.DataFrame, limits: dict[str, tuple[float, str]]) -> pd.DataFrame:
    limit = np.array([limits[d][0] if d in limits else np.nan for d in table["direction"]], np.float64)
    return table.assign(limit_bytes_per_s=limit, link_share=table["large_bytes_per_s"].to_numpy(np.float64) / limit)


def _keyed(table: pd.DataFrame, by: str) -> pd.DataFrame:
    """With the label in a column named after the grouping, null for unknown kinds, and a key per row."""
    kinds = {c: [t or None for t in table[c]] for c in ("src_kind", "dst_kind")}
    parts = {"direction": ["direction"], "kind": ["direction", "src_kind", "dst_kind"]}.get(by, ["direction", "group"])
    key = ["|".join(t) for t in zip(*(table[c].astype(str) for c in parts), strict=True)]
    size = pd.Series([int(b) if b == b else None for b in table["bytes"]], dtype=object)
    out = table.assign(id=key, bytes=size, **{c: pd.Series(v, dtype=object) for c, v in kinds.items()})
    return out.rename(columns={"group": by}) if by in GROUP else out


def _totals(directions: pd.DataFrame, where: Scope) -> dict[str, Scalar]:
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
        "time_per_step_ns": round(time / steps) if steps else None,
        "exposed_per_step_ns": round(exposed / steps) if steps else None,
    }


def _headline(directions: pd.DataFrame, totals: dict[str, Scalar], where: Scope) -> str:
    if not totals["count"]:
        return "No copy was launched in this selection."
    several = len(where.steps) > 1
    per = "_per_step" if several else ""
    time, exposed = (human(int(totals[f"{n}{per}_ns"] or 0), "ns") for n in ("time", "exposed"))
    first = directions.iloc[int(directions["time_ns"].to_numpy().argmax())]
    rate, share = float(first["bandwidth_bytes_per_s"]), float(first["link_share"])
    fast = f" at {human(rate, 'B/s')}" if np.isfinite(rate) else ""
    of = f", {human(share, 'ratio')} of its limit from 1 MiB on" if np.isfinite(share) else ""
    most = f"Most is {NAMES[str(first['direction'])].lower()}{fast}{of}."
    return f"All copies together take **{time}**{' per step' if several else ''}, {exposed} of it exposed. {most}"


def _notices(capture: Capture, directions: pd.DataFrame, totals: dict[str, Scalar], limited: bool, where: Scope) -> list[Notice]:
    out: list[Notice] = []
    without = int(totals["without_bytes"] or 0)
    if without:
        text = f"{human(without, 'count')} of {human(int(totals['count'] or 0), 'count')} copies carry no size: "
        out.append(Notice(text + "their time counts, their bytes are unknown.", "info", Link("health", {}, "Trace health")))
    if not limited:
        out.append(Notice(f"No limits to compare with: {why_no_limits(capture)}.", "info"))
    over = directions.loc[directions["link_share"] > 1.05, "direction"].tolist()
    if over:
        names = ", ".join(NAMES[d].lower() for d in over)
        out.append(Notice(f"Faster than the assumed limit ({names}): the link assumption is wrong. Choose other device limits.", "warn"))
    if capture.facts.vendor == "amd" and directions["direction"].isin(["HtoD", "DtoH"]).any():
        out.append(Notice("This tracer does not tell pinned from pageable host memory.", "info"))
    return out


def _cards(capture: Capture, directions: pd.DataFrame, limits: dict[str, tuple[float, str]]) -> list[AnySection]:
    cards = [_card(str(row["direction"]), row, limits) for _, row in directions.iterrows()]
    cards += _peer_card(capture, directions)
    for section, span in zip(cards, spans(len(cards)), strict=True):
        section.span = span
    return [*cards]


def spans(count: int) -> list[int]:
    """Widths of a number of cards in the page's 12 columns: rows are filled, and no card is narrower than 2 or, alone, wider than 4."""
    if count <= 1:
        return [4] * count
    if count > 6:
        return spans((count + 1) // 2) + spans(count // 2)
    return [12 // count + (i < 12 % count) for i in range(count)]


def _card(direction: str, row: pd.Series[float], limits: dict[str, tuple[float, str]]) -> FactsSection:
    values = {_fact(direction, n): plain_list([row[n]])[0] for n in CARD}
    for name in ("count", "bytes", "time_ns", "exposed_ns"):
        value = values[_fact(direction, name)]
        values[_fact(direction, name)] = None if value is None else int(value)
    share, exposed, whole = values[_fact(direction, "link_share")], int(row["exposed_ns"]), int(row["union_ns"])
    notes = {_fact(direction, "exposed_ns"): f"{human(exposed / whole, 'ratio')} not hidden" if whole else ""}
    if direction in limits:
        peak, what = limits[direction]
        said = f"of {what}, {human(peak, 'B/s')}" if share is not None else "all below 1 MiB: latency bound"
        notes[_fact(direction, "link_share")] = said
    elif share is None:
        notes[_fact(direction, "link_share")] = "no limit known"
    marks = {}
    if row["without_bytes"] and values[_fact(direction, "bytes")] is not None:
        marks[_fact(direction, "bytes")] = Mark("lower_bound", f"{int(row['without_bytes'])} copies carry no size")
    if isinstance(share, float) and share > 1.05:
        marks[_fact(direction, "link_share")] = Mark("flagged", "faster than the assumed limit: the link assumption is wrong")
    return FactsSection(
        id=_fact(direction, "card"),
        title=NAMES.get(direction, direction),
        style="card",
        values=values,
        units={_fact(direction, n): u for n, (_, u, _) in CARD.items()},
        labels={_fact(direction, n): label for n, (label, _, _) in CARD.items()},
        docs={_fact(direction, n): FACTS[_fact(direction, n)] for n in CARD},
        colors=dict.fromkeys(values, COLORS.get(direction, "other")),
        notes={n: t for n, t in notes.items() if t},
        marks=marks,
    )


def _peer_card(capture: Capture, directions: pd.DataFrame) -> list[FactsSection]:
    """Peer copies may be left out by the profiler: with several devices and none recorded they are unknown, not zero."""
    if (directions["direction"] == "PtoP").any():
        return []
    used = int(capture.device["device"].nunique())
    ranks = capture.facts.world_size or 1
    if max(used, ranks) < 2:
        return []
    who = f"{ranks} ranks ran" if ranks > 1 else f"{used} devices ran"
    text = f"Not recorded. {who} and the file holds no peer copy; the profiler may leave them out. Unknown, not zero."
    return [FactsSection(id="ptop_card", title=NAMES["PtoP"], style="card", text=text)]


def _facts(totals: dict[str, Scalar], fits: dict[str, tuple[float, float]]) -> FactsSection:
    labels = {
        "count": "Copies and sets", "bytes": "Bytes", "without_bytes": "Without a size", "time_ns": "Time, sum", "exposed_ns": "Exposed",
        "hidden_ns": "Hidden", "steps": "Steps", "time_per_step_ns": "Time per step", "exposed_per_step_ns": "Exposed per step",
    }  # fmt: skip
    values: dict[str, Scalar] = {n: v for n, v in totals.items() if v is not None and (n != "steps" or v)}
    for direction, (latency, rate) in fits.items():
        for name, value, label in (("latency_ns", latency, "latency"), ("rate_bytes_per_s", rate, "rate")):
            values[_fact(direction, name)] = round(value)
            labels[_fact(direction, name)] = f"{NAMES[direction]}, {label}"
    fitted = [_fact(d, n) for d in fits for n in FIT]
    units = {n: "B/s" if n.endswith("bytes_per_s") else "ns" if n.endswith("_ns") else "B" if n == "bytes" else "count" for n in values}
    return FactsSection(
        id="facts",
        title="Numbers",
        span=4,
        values=values,
        units=units,
        labels={n: labels[n] for n in values},
        docs={n: FACTS[n] for n in values},
        marks=dict.fromkeys(fitted, Mark("estimated", "fitted through the fastest copies of each size")),
    )


def _total_row(totals: dict[str, Scalar], by: str) -> dict[str, Scalar]:
    row: dict[str, Scalar] = {c.name: None for c in columns(by)}
    row |= {n: totals[n] for n in ("count", "bytes", "without_bytes", "time_ns", "exposed_ns", "hidden_ns")}
    return row | {"direction": "all", "share": 1.0 if totals["time_ns"] else None, "bytes_share": 1.0 if totals["bytes"] else None}


def _marks(frame: pd.DataFrame, unsure: set[str]) -> dict[str, dict[str, Mark]]:
    out: dict[str, dict[str, Mark]] = {"bytes": {}, "link_share": {}, "limit_bytes_per_s": {}}
    column = {"HtoD": "pcie_gen", "DtoH": "pcie_gen", "DtoD": "mem_bw_gb_per_s", "Memset": "mem_bw_gb_per_s", "PtoP": "link_bidir_gb_per_s"}
    for i, (direction, size, without, share) in enumerate(
        zip(frame["direction"], frame["bytes"], frame["without_bytes"], frame["link_share"], strict=True)
    ):
        if without and size is not None:
            out["bytes"][str(i)] = Mark("lower_bound", f"{without} copies carry no size")
        if share > 1.05:
            out["link_share"][str(i)] = Mark("flagged", "faster than the assumed limit: the link assumption is wrong")
        if column.get(direction) in unsure:
            out["limit_bytes_per_s"][str(i)] = Mark("unverified", "this limit of the device table is not confirmed")
    return {name: marks for name, marks in out.items() if marks}


def _links(frame: pd.DataFrame, query: MemcpyQuery) -> dict[str, Link]:
    if query.by != "direction":
        return {}
    step = {"step": query.step} if query.step else {}
    names = frame["direction"].tolist()
    return {str(i): Link("memcpy", {"by": "kind", "find": d} | step, "by kind of memory") for i, d in enumerate(names)}
