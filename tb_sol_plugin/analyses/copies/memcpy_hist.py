"""Copies by size, and how latency and bandwidth explain their times.

The histogram has one bar per size bin: how many copies, how many bytes and how much time. Where many copies stand in small bins and
the bytes in large ones, latency is what the small ones cost. The fit `t = t0 + bytes / bandwidth` goes through the fastest copies of
each bin, per direction and kind of memory; it needs three filled bins, and says why it is not known where it is not.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics.copies import bandwidth, records
from tb_sol_plugin.metrics.copies.bandwidth import sizes
from tb_sol_plugin.metrics.copies.groups import Columns
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import Column, Fact, FactsSection, FigureSection, Link, Mark, Notice, Report, Scalar, make_facts, make_table
from tb_sol_plugin.tables.arrays import exact_sums
from tb_sol_plugin.units import human, humans, scale_of


class MemcpyHistQuery(Query, kw_only=True, frozen=True):
    """The common fields alone."""


FACTS: Final = (
    Fact("sized", "Copies with a size", "count", "copies and sets that carry a size"),
    Fact("without_bytes", "Without a size", "count", "copies and sets whose size was not recorded: in no bin"),
    Fact("small", "At most 64 KiB", "count", "those of at most 64 KiB"),
    Fact("small_time_ns", "Time of those", "ns", "plain sum of the durations of those of at most 64 KiB"),
)  # fmt: skip
SIZES: Final = (
    Column("direction", "Direction", doc="direction of the copies", show="symbol"),
    Column("size", "Size", doc="size of one copy; the upper end belongs to the bin"),
    Column("count", "Copies", "count", "copies of that size", show="bar", color_by="direction"),
    Column("count_share", "Of copies", "ratio", "copies over all copies that carry a size", show="share", rank=2),
    Column("bytes", "Bytes", "B", "their bytes", show="bar", color_by="direction"),
    Column("bytes_share", "Of bytes", "ratio", "their bytes over the bytes of all", show="share", rank=2),
    Column("time_ns", "Time", "ns", "plain sum of their durations", show="bar", color_by="direction"),
    Column("time_share", "Of time", "ratio", "their time over the time of all that carry a size", show="share", rank=2),
    Column("mean_ns", "Mean", "ns", "time over copies", per="call"),
    Column("bandwidth_bytes_per_s", "Bandwidth", "B/s", "bytes over time", missing="no time was recorded"),
    Column("id", "Id", doc="stable key of the row", rank=3),
)
FITS: Final = (
    Column("direction", "Direction", doc="direction of the copies", show="symbol"),
    Column("kinds", "Memory", doc="kinds of the source and destination memory as recorded", missing="not recorded"),
    Column("copies", "Copies", "count", "copies that carry a size and a time"),
    Column("bins", "Bins", "count", "size bins that hold at least one of them; a fit needs three"),
    Column("latency_ns", "Latency", "ns", "fitted time of an empty copy", missing="no fit"),
    Column("rate_bytes_per_s", "Bandwidth", "B/s", "fitted bandwidth of an endless copy", missing="no fit"),
    Column("of_limit", "Of limit", "ratio", "fitted bandwidth over the limit", show="efficiency", missing="no fit, or no limit"),
    Column("residual", "Off by", "ratio", "root mean square of how far the bins lie from the fit, relative", missing="no fit"),
    Column("note", "Why not", doc="why latency and bandwidth are not known", show="text", missing="they are known"),
    Column("id", "Id", doc="stable key of the row", rank=3),
)  # fmt: skip
PANELS: Final = (("count", "copies", "count"), ("bytes", "bytes", "B"), ("time_ns", "time", "ns"))


@analysis(
    title="Sizes",
    question="How large are the copies, and what do latency and bandwidth cost them?",
    group="Speed of light",
    order=23,
    requirements=("device_events",),
    query=MemcpyHistQuery,
    tables={"sizes": SIZES, "fits": FITS},
    facts=FACTS,
    under="memcpy",
)
def run(capture: Capture, query: MemcpyHistQuery) -> Report:
    where = scope(capture, query)
    found = records.copies(capture, where.device)
    if not len(found) and not len(records.copies(capture, np.ones(len(capture.device), bool))):
        raise Unavailable("no copy in this recording", hint="record a part of the job that moves data")
    table = _sizes(found)
    without = int((found["bytes"].to_numpy() < 0).sum())
    fits = _fits(found, bandwidth.peaks(device_for(capture, query.device_limits)))
    step = {"step": query.step} if query.step else {}
    links = {
        str(i): Link("memcpy_copies", {"direction": d, "size": records.SIZES[b]} | step, "these copies")
        for i, (d, b) in enumerate(zip(table["direction"].tolist(), table["bin"].tolist(), strict=True)) if d in records.DIRECTIONS
    }  # fmt: skip
    small = table["bin"] <= 1
    facts: dict[str, Scalar] = {
        "sized": int(table["count"].sum()), "without_bytes": without, "small": int(table["count"][small].sum()),
        "small_time_ns": int(table["time_ns"][small].sum()),
    }  # fmt: skip
    notices = []
    if without:
        verb = "carries" if without == 1 else "carry"
        text = f"{human(without, 'count')} of {human(len(found), 'count')} copies {verb} no size: in no bin and in no fit."
        notices.append(Notice(text, "info", Link("memcpy_copies", {"size": records.SIZES[-1]} | step, "These copies")))
    over = {
        str(i): Mark("flagged", "faster than the assumed limit: the link assumption is wrong")
        for i, v in enumerate(fits["of_limit"])
        if v is not None and v > 1.05
    }
    fitted = {str(i): Mark("estimated", "fitted through the fastest copies of each size") for i in range(len(fits["id"]))}
    return Report(
        analysis="memcpy_hist",
        title="Sizes",
        headline=_headline(table, facts),
        notices=notices,
        sections=[
            _tiles(facts),
            _figure(table),
            make_table(
                "sizes",
                "Copies by size",
                table,
                SIZES,
                adds=["count", "bytes", "time_ns"],
                key="id",
                subtitle=where.label,
                filters=["direction"],
                row_links=links,
                cell_links={"count": links},
                footer="KiB and MiB are binary; the upper end belongs to the bin.",
                empty="No copy of this selection carries a size.",
            ),
            make_table(
                "fits",
                "Latency and bandwidth",
                fits,
                FITS,
                key="id",
                subtitle="t = latency + bytes / bandwidth",
                marks={n: m for n, m in (("of_limit", over), ("latency_ns", fitted), ("rate_bytes_per_s", fitted)) if m},
                footer="Fitted through the fastest tenth of each doubling of size. A copy of latency × bandwidth "
                "bytes is half as fast as the link.",
                empty="No copy of this selection carries a size and a time.",
            ),
        ],
    )


def _sizes(found: pd.DataFrame) -> Columns:
    table = sizes(found)
    for name, of in (("count_share", "count"), ("bytes_share", "bytes"), ("time_share", "time_ns")):
        whole = int(table[of].sum())
        table[name] = table[of] / whole if whole else np.full(len(table[of]), np.nan)
    bins = table["bin"].tolist()
    return table | {
        "size": np.array([records.bin_name(b) for b in bins], object),
        "mean_ns": np.rint(table["time_ns"] / table["count"]).astype(np.int64),
        "id": np.array([f"{d}|{b}" for d, b in zip(table["direction"].tolist(), bins, strict=True)], object),
    }


def _fits(found: pd.DataFrame, limits: bandwidth.Limits) -> dict[str, list[Any]]:
    """Returns one row per direction and kinds that have copies with a size and a time: the fit, or why there is none."""
    rows = []
    for fit in bandwidth.fits(found):
        of = fit.bytes_per_s / limits[fit.direction][0] if fit.direction in limits else np.nan
        rows.append({
            "direction": fit.direction, "kinds": records.memory_text(fit.direction, fit.src_kind, fit.dst_kind) or None,
            "copies": fit.copies, "bins": fit.bins, "latency_ns": fit.latency_ns, "rate_bytes_per_s": fit.bytes_per_s, "of_limit": of,
            "residual": fit.residual, "note": fit.why or None, "id": f"{fit.direction}|{fit.src_kind}|{fit.dst_kind}",
        })  # fmt: skip
    return {c.name: [_known(row[c.name]) for row in rows] for c in FITS}


def _known(value: Any) -> Scalar:
    return None if value != value else value


def _headline(table: Columns, facts: dict[str, Scalar]) -> str:
    if not len(table["bin"]):
        return "No copy of this selection carries a size."
    count, small, time = (int(facts[n] or 0) for n in ("sized", "small", "small_time_ns"))
    whole, moved = int(table["time_ns"].sum()), int(table["bytes"].sum())
    tail = ""
    if moved:
        part = int(table["bytes"][table["bin"] <= 1].sum()) / moved
        tail = f" and move {human(part, 'ratio')} of the bytes in {human(time / whole, 'ratio')} of the time" if whole else ""
    if not small:
        return f"None of the {human(count, 'count')} copies is smaller than 64 KiB."
    if small == count:
        return "The one copy is at most 64 KiB." if count == 1 else f"All **{human(count, 'count')}** copies are at most 64 KiB."
    return f"**{human(small, 'count')}** of {human(count, 'count')} copies are at most 64 KiB{tail}."


def _tiles(facts: dict[str, Scalar]) -> FactsSection:
    return make_facts("facts", "", facts, FACTS, style="tiles", weight="headline")


def _figure(table: Columns) -> FigureSection:
    """Draws three panels over the same size bins: copies, bytes and time, stacked by direction."""
    title = "How many, how much, how long"
    if not len(table["bin"]):
        return FigureSection(id="histogram", title=title, height=120, figure=F.figure([]), summary="No copy carries a size.", table="sizes")
    bins = [records.bin_name(b) for b in range(len(records.BINS))]
    across: list[F.Plain] = []
    up: list[F.Plain] = []
    data: list[F.Plain] = []
    at = table["bin"]
    of = {d: np.flatnonzero(table["direction"] == d) for d in records.DIRECTIONS}
    for panel, (column, name, unit) in enumerate(PANELS):
        suffix = str(panel + 1) if panel else ""
        top = float(np.bincount(at, table[column]).max())
        factor, text = F.time_scale(top) if unit == "ns" else scale_of(max(top, 1.0), "B") if unit == "B" else (1.0, "")
        low = panel * (1 + 0.06) / 3.12
        domain = [low, min(low + 0.3, 1.0)]
        across.append(F.axis(f"{name}, {text}" if text else name, domain=domain, anchor=f"y{suffix}", rangemode="tozero", nticks=5))
        order: F.Plain = {"type": "category", "categoryorder": "array", "categoryarray": bins, "autorange": "reversed"}
        up.append(F.axis(showticklabels=panel == 0, anchor=f"x{suffix}") | order)
        for direction, rows in of.items():
            if not len(rows):
                continue
            values = np.zeros(len(bins))
            values[at[rows]] = table[column][rows]
            data.append({
                "type": "bar", "orientation": "h", "name": records.NAMES[direction], "y": bins, "x": (values / factor).tolist(),
                "xaxis": f"x{suffix}", "yaxis": f"y{suffix}", "marker": F.fill(records.COLORS.get(direction, "other")),
                "showlegend": panel == 0,
                "customdata": [f"{direction}|{b}" for b in range(len(bins))],
                "hovertext": humans(values.astype(np.int64).tolist(), unit),
                "hovertemplate": f"<b>{records.NAMES[direction]}</b>, %{{y}}<br>%{{hovertext}}<extra></extra>",
            })  # fmt: skip
    by_bin = exact_sums(at, table["time_ns"], len(bins))
    filled = np.flatnonzero(np.bincount(at, minlength=len(bins)))
    most = int(filled[by_bin[filled].argmax()])
    return FigureSection(
        id="histogram",
        title=title,
        subtitle="copies that carry a size",
        height=280,
        table="sizes",
        figure=F.figure(
            data,
            x=across[0],
            y=up[0],
            xaxis2=across[1],
            yaxis2=up[1],
            xaxis3=across[2],
            yaxis3=up[2],
            barmode="stack",
            showlegend=True,
            margin={"l": 96, "r": 14, "t": 10, "b": 46},
        ),
        summary=f"Most time goes to copies of {records.bin_name(most)}: {human(int(by_bin.max()), 'ns')} of "
        f"{human(int(by_bin.sum()), 'ns')}.",
    )
