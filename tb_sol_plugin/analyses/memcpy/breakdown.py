"""The table of copies, grouped one way: columns, keys, marks, and the link of each row to its single copies."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.copies import groups
from tb_sol_plugin.metrics.copies.records import memory_text
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Column, Link, Mark, Scalar, Sort, TableSection, make_table

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


def section(
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
