"""Builds what every page about ranks shows: tiles, columns, marks, links, figures, notices, and the table of recordings left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.ranks.comparison import Comparison, Ranks
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.columns import plain_list
from tb_sol_plugin.model.report import (
    Column,
    Fact,
    FactsSection,
    Link,
    Mark,
    Notice,
    Scalar,
    TableSection,
    make_facts,
    make_table,
)
from tb_sol_plugin.tables.arrays import Floats, Mask
from tb_sol_plugin.units import human

P = TypeVar("P", bound=msgspec.Struct)

NAMED: Final = 8
"""Ranks or workers that a sentence names at most."""

LEFT_OUT: Final = (
    Column("worker", "Worker", doc="worker of the run that is in no number here", show="code"),
    Column("rank", "Rank", doc="its rank, as recorded or as its name says", missing="not known"),
    Column("file", "File", doc="its recording", show="code", missing="it has none"),
    Column("why", "Why", doc="why it is left out", show="text"),
    Column("hint", "What to do", doc="what would bring it in", show="text", missing="nothing"),
)
"""Columns of `left_out`."""
FACTS: Final = (
    Fact("workers", "", "count", "workers of the run"),
    Fact("workers_read", "Workers", "count", "those whose recording could be read"),
    Fact("ranks_present", "", "count", "different ranks among them"),
    Fact("world_size", "", "count", "ranks of the job, as recorded"),
    Fact("ranks_missing", "", "count", "ranks of the job without a recording here"),
)
"""Of every comparison of ranks, as `facts`."""


def facts(ranks: Ranks[P]) -> dict[str, Scalar]:
    """Returns values of FACTS."""
    return {
        "workers": ranks.total, "workers_read": len(ranks.read),
        "ranks_present": len({w.rank for w in ranks.read if w.rank is not None}), "world_size": ranks.world_size,
        "ranks_missing": len(ranks.missing) if ranks.world_size is not None else None,
    }  # fmt: skip


def stretch_link(recording: tuple[str, str], start_ns: int, end_ns: int, label: str) -> Link:
    """Returns the way to a stretch of the timeline of a recording, with room around it and its critical path drawn.

    recording: its worker and span. start_ns, end_ns: by its own clock.
    """
    room = max(3 * (end_ns - start_ns) // 2, 2_000)
    query = {"t": f"{max(start_ns - room, 0)}-{end_ns + room}", "area": f"{start_ns}-{max(end_ns, start_ns + 1)}", "cp": "1"}
    return Link("timeline", dict(zip(("worker", "span"), recording, strict=True)) | query, label)


def read_note(ranks: Ranks[P]) -> str:
    """Returns the note of the tile `workers_read`: of how many, and of a job of how many ranks."""
    job = f", job of {human(ranks.world_size, 'count')}" if ranks.world_size else ""
    return f"all read{job}" if len(ranks.read) == ranks.total else f"of {human(ranks.total, 'count')}{job}"


def tiles(
    values: Mapping[str, Scalar], known: Sequence[Fact], *, title: str, shown: Sequence[str], notes: Mapping[str, str],
    marks: Mapping[str, Mark] | None = None, weight: Literal["headline", "card"] = "card",
) -> FactsSection:  # fmt: skip
    """Returns facts of which the shown ones that have a value are tiles, in that order; the others are in the data alone."""
    tile = [name for name in shown if values[name] is not None]
    ordered = {name: values[name] for name in [*tile, *(n for n in values if n not in tile)]}
    return make_facts(
        "facts", title, ordered, known, style="tiles", weight=weight, notes={n: t for n, t in notes.items() if n in tile},
        marks=dict(marks or {}), hidden=[n for n in ordered if n not in tile],
    )  # fmt: skip


def columns_of(columns: Sequence[Column], numbered: Sequence[bool], hidden: frozenset[str] = frozenset()) -> list[Column]:
    """Returns columns of a table of ranks. numbered: of each row whether its rank is known; names of workers come first where one is not.

    hidden: columns that only the column chooser shows.
    """
    shown = {} if all(numbered) else {"worker": 1, "rank": 1 if any(numbered) else 3}
    found = [msgspec.structs.replace(c, rank=3 if c.name in hidden else shown.get(c.name, c.rank)) for c in columns]
    return found if all(numbered) else sorted(found, key=lambda c: c.name != "worker")


def identity(compared: Comparison[P], rows: Sequence[int]) -> pd.DataFrame:
    """Returns the rank and worker of rows of a comparison, and their measure over the median."""
    read = [compared.ranks.read[at] for at in compared.at[list(rows)].tolist()]
    return pd.DataFrame({
        "rank": pd.Series([w.rank for w in read], dtype=object), "worker": [w.worker for w in read],
        "of_median": compared.of_median()[list(rows)],
    })  # fmt: skip


def row_marks(compared: Comparison[P], rows: Sequence[int], among: str) -> dict[str, dict[str, Mark]]:
    """Returns marks of rows of a comparison: outliers, and recordings of a rank that another recording stands for.

    among: whom outliers are of.
    """
    far, counts = compared.outliers[list(rows)], compared.counts[list(rows)]
    outlier = Mark("flagged", f"far from the {among}")
    twice = Mark("flagged", "this rank is there more than once; another worker stands for it")
    return {
        "of_median": {str(i): outlier for i in np.flatnonzero(far).tolist()},
        "rank": {str(i): twice for i in np.flatnonzero(~counts).tolist()},
    }


def row_links(
    compared: Comparison[P], rows: Sequence[int], *, analysis: str, label: str, query: Sequence[Mapping[str, str]]
) -> dict[str, Link]:
    """Returns a link of each row to an analysis of its recording. query: of each row, further fields of the link."""
    read = [compared.ranks.read[at] for at in compared.at[list(rows)].tolist()]
    rows_of = enumerate(zip(read, query, strict=True))
    return {str(i): Link(analysis, {"worker": w.worker, "span": w.span, **more}, label) for i, (w, more) in rows_of}


def incomparable(ranks: Ranks[P]) -> str:
    """Returns the headline where fewer than two ranks were read; "" where they can be compared."""
    if not ranks.read:
        waiting = all(one.state == "waiting" for one in ranks.excluded)
        what = "has been read." if waiting else "can be compared so far: the table below says why."
        return f"None of {human(ranks.total, 'count')} workers {what}"
    if ranks.compared == 1:
        return f"One of {human(ranks.total, 'count')} workers has been read: nothing to compare it with."
    return ""


def largest(table: pd.DataFrame, column: str) -> dict[str, Scalar] | None:
    """Returns the row with the largest value of a column; None where none is known."""
    known = table[table[column].notna()]
    if not len(known):
        return None
    at = int(known[column].to_numpy(np.float64).argmax())
    return {str(name): plain_list(known[name])[at] for name in known}


def left_out(ranks: Ranks[P]) -> list[TableSection]:
    """Returns a table of the recordings that cannot be compared, none where all can. Its id is `left_out`, its columns are LEFT_OUT."""
    rows = [p for p in ranks.excluded if p.state != "waiting"]
    if not rows:
        return []
    frame = pd.DataFrame({
        "worker": [p.worker for p in rows], "rank": pd.Series([p.rank for p in rows], dtype=object),
        "file": [p.file or None for p in rows], "why": [p.problem for p in rows], "hint": [p.hint or None for p in rows],
    })  # fmt: skip
    return [make_table("left_out", "Workers left out", frame, LEFT_OUT, key="worker", subtitle="in no number on this page")]


def notices(ranks: Ranks[P]) -> list[Notice]:
    """Reports which ranks are missing, recorded more than once, or could not be read: a line each."""
    out = []
    failed = [p for p in ranks.excluded if p.state in ("failed", "lacking")]
    if failed:
        few = f"`{failed[0].worker}`: {failed[0].problem}" if len(failed) == 1 else _some([f"`{p.worker}`" for p in failed])
        who = f"{_workers(len(failed))} of {human(ranks.total, 'count')}"
        out.append(Notice(f"{who} left out of every number here: {few}. The table below says why."))
    if ranks.missing:
        verb = "has" if len(ranks.missing) == 1 else "have"
        out.append(Notice(f"{ranks_named(ranks.missing)} of {human(ranks.world_size, 'count')} {verb} no recording in this run.", "info"))
    counted = {w.worker for w, counts in zip(ranks.read, ranks.counts.tolist(), strict=True) if counts}
    for rank, workers in sorted(ranks.duplicates.items())[:NAMED]:
        one = next((w for w in workers if w in counted), "")
        which = f"; `{one}`, which recorded for longer, stands for it" if one else ""
        out.append(Notice(f"Rank {rank} is there {_times(len(workers))}: {_some([f'`{w}`' for w in workers])}{which}."))
    if len(ranks.world_sizes) > 1:
        sizes = " and ".join(human(w, "count") for w in ranks.world_sizes)
        out.append(Notice(f"The recordings name jobs of {sizes} ranks: this folder may hold more than one job."))
    return out


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED])
    return f"{shown} and {human(len(names) - NAMED, 'count')} more" if len(names) > NAMED else shown


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{human(count, 'count')} workers"


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


def ranks_named(ranks: Sequence[int]) -> str:
    """Returns `Rank 5`, `Ranks 3, 4 and 6 to 9`."""
    runs: list[tuple[int, int]] = []
    for rank in ranks:
        if runs and runs[-1][1] == rank - 1:
            runs[-1] = (runs[-1][0], rank)
        else:
            runs.append((rank, rank))
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    parts = [part for a, b in runs for part in ([str(a)] if a == b else [str(a), str(b)] if b == a + 1 else [f"{a} to {b}"])]
    if len(parts) > NAMED:
        return f"{human(len(ranks), 'count')} ranks ({', '.join(parts[:NAMED])} …)"
    return "Ranks " + (parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}")


# -- Figures with one value per rank ---------------------------------------------------------------------------------
# the axis of ranks, a bar or point per rank, medians, and crosses for ranks that are left out.


TITLE: Final = "Comparison of ranks"
BARS: Final = 100
"""Up to so many ranks have bars, more have points."""
FEW: Final = 24
"""Up to so many recordings without ranks have their names on the axis."""
NAMED_OUTLIERS: Final = 3
"""Outliers of a panel whose names are drawn."""


@dataclass(frozen=True, eq=False)
class RankAxis(Generic[P]):
    """The axis of ranks, which has a place for each rank that has a recording and for no other.

    x: of each rank that statistics are made of; ends: of the axis; bars: whether a rank is a bar or a point. places: of each rank with a
    recording where it is on the axis, its own number unless ranks between have no recording; empty where recordings are drawn by name.
    """

    ranks: Ranks[P]
    labels: tuple[str, ...]
    x: Floats
    ends: tuple[float, float]
    bars: bool
    places: Mapping[int, int]

    @property
    def length(self) -> float:
        """Of the axis, in ranks."""
        return self.ends[1] - self.ends[0]

    def layout(self, *, last: bool = True) -> F.Plain:
        """Returns the axis itself. last: the lowest of several panels, which alone has text."""
        numbered = self.ranks.numbered
        gaps = any(rank != at for rank, at in self.places.items())
        text = ("rank (those with a recording)" if gaps else "rank") if numbered and last else ""
        axis = F.axis(text, range=list(self.ends), showticklabels=last, tickformat="d")
        if self.length < 20:
            axis["dtick"] = 1
        if gaps:
            every = -(-len(self.places) // FEW)
            shown = list(self.places.items())[::every]
            axis |= {"tickvals": [at for _, at in shown], "ticktext": [str(rank) for rank, _ in shown]}
        elif not numbered:
            many = len(self.x) > FEW
            axis |= {"tickvals": [] if many else self.x.tolist(), "ticktext": [] if many else [short(n) for n in self.labels]}
        return axis

    def excluded(self, axes: F.Plain, height: float) -> list[F.Plain]:
        """Returns crosses where the recording of a rank cannot be compared; none where recordings are drawn by name."""
        shown = {w.rank for w in self.ranks.read}
        why: dict[int, str] = {}
        for one in self.ranks.excluded:
            if one.rank is not None and one.rank in self.places and one.state != "waiting" and one.rank not in shown:
                why.setdefault(one.rank, one.problem)
        if not why:
            return []
        ink = F.light("ink-3")
        return [{
            "type": "scatter", "mode": "markers", "name": "left out", "x": [self.places[r] for r in sorted(why)], "y": [height] * len(why),
            "hovertext": [f"<b>rank {r}</b><br>{F.escape(why[r])}" for r in sorted(why)], "hoverinfo": "text", "showlegend": False,
            "marker": {"symbol": "x-thin", "size": 7, "color": ink, "line": {"width": 1.4, "color": ink}}, **axes,
        }]  # fmt: skip


def axis_of(compared: Comparison[P]) -> RankAxis[P]:
    """Returns the axis of compared ranks: their numbers, or their order where a recording has no rank.

    Recordings that are not read yet have their place, so that the axis stays the same while ranks are being read.
    """
    ranks = compared.ranks
    own = [w.rank for w, counts in zip(ranks.read, ranks.counts.tolist(), strict=True) if counts]
    recorded = sorted({w.rank for w in (*ranks.read, *ranks.excluded) if w.rank is not None}) if ranks.numbered else []
    gaps = len(recorded) > 1 and recorded[-1] - recorded[0] >= len(recorded)
    places = {rank: i if gaps else rank for i, rank in enumerate(recorded)}
    x = np.array([places[r] for r in own if r is not None] if ranks.numbered else range(len(own)), np.float64)
    ends = list(places.values()) or x.tolist()
    low, high = float(ends[0]), float(ends[-1])
    pad = max((high - low) * 0.015, 0.5)
    return RankAxis(ranks, compared.labels, x, (low - pad, high + pad), max(len(x), ranks.total) <= BARS, places)


def marks(
    axis: RankAxis[P], values: Floats, *, outliers: Mask, hover: Sequence[str], keys: Sequence[str], name: str, token: str,
    width: float, symbol: str = "", axes: F.Plain | None = None,
) -> F.Plain:  # fmt: skip
    """Returns a bar or point per rank whose value is known. Outliers have a thicker edge.

    values, outliers, hover (HTML), keys (of rows of the table) are by rank of the axis. token: color. width: of a bar, in ranks.
    """
    known = np.flatnonzero(np.isfinite(values)).tolist()
    marker = F.fill(token)
    edge = marker["line"] if isinstance(marker["line"], dict) else {}
    thin = edge.get("width", 0.8) if axis.bars else 0
    marker["line"] = {
        "width": [1.8 if outliers[i] else thin for i in known],
        "color": [F.light("ink") if outliers[i] else edge.get("color") for i in known],
    }
    trace: F.Plain = {
        "name": name, "x": axis.x[known].tolist(), "y": values[known].tolist(), "customdata": [keys[i] for i in known],
        "hovertext": [hover[i] for i in known], "hoverinfo": "text", "marker": marker, **(axes or {}),
    }  # fmt: skip
    if axis.bars:
        return trace | {"type": "bar", "width": width}
    size = 6 if len(axis.x) <= 300 else 4
    marker |= {"opacity": 0.9, "size": [size + 4 if outliers[i] else size for i in known]} | ({"symbol": symbol} if symbol else {})
    return trace | {"type": "scatter", "mode": "markers"}


def median_line(x: Sequence[float | None], y: Sequence[float | None], ink: str, axes: F.Plain | None = None) -> F.Plain:
    """Returns a dashed line of medians; None breaks it."""
    line: F.Plain = {"color": F.light(ink), "width": 1.2, "dash": "dash"}
    trace: F.Plain = {"type": "scatter", "mode": "lines", "x": list(x), "y": list(y), "hoverinfo": "skip", "name": "median", "line": line}
    return trace | (axes or {})


def farthest(away: Floats, outliers: Mask) -> list[int]:
    """Returns positions of the outliers that are named: those that are farthest away."""
    at = np.flatnonzero(outliers)
    return [int(i) for i in at[np.argsort(-away[at], kind="stable")][:NAMED_OUTLIERS]]


def name_note(axis: RankAxis[P], at: int, y: float) -> F.Plain:
    """Returns the name of a rank above its bar or point."""
    font: F.Plain = {"size": 11, "color": F.light("ink")}
    return {"x": float(axis.x[at]), "y": y, "text": short(axis.labels[at]), "showarrow": False, "yanchor": "bottom", "font": font}


def hover_head(axis: RankAxis[P], at: int, more: str, *, outlier: bool) -> str:
    """Returns the first line of a rank's tooltip."""
    return f"<b>{F.escape(axis.labels[at])}</b>{more}{', far from the others' if outlier else ''}"


def short(name: str) -> str:
    """Returns a name for an axis, cut in the middle."""
    return F.escape(name if len(name) <= 14 else f"{name[:5]}…{name[-8:]}")
