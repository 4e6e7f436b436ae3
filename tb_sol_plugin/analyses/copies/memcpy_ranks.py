"""Which rank copies more, or slower, than the others.

One row per rank and direction, and one per direction over all ranks: the imbalance is the largest value over the median. Numbers that
are compared are per step, because ranks may have recorded different numbers of steps. A rank that is far from the others is marked
(robust z-score above 3.5 and more than 2 % from the median); of fewer than five ranks none is. Every rank is read once, where it is
needed; until all are read the page shows those that are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics.copies import counted, groups, records
from tb_sol_plugin.metrics.copies.blocking import blocking
from tb_sol_plugin.metrics.copies.records import COLORS, DIRECTIONS, NAMES
from tb_sol_plugin.metrics.ranks import sections as R
from tb_sol_plugin.metrics.ranks.comparison import Comparison, Measure, Ranks, Spread, frame_of, known, ranks_of
from tb_sol_plugin.metrics.ranks.sections import TITLE, RankAxis, axis_of, farthest, hover_head, marks, median_line, name_note
from tb_sol_plugin.metrics.time.attribution import device_count
from tb_sol_plugin.metrics.time.scope import in_steps, scope
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.columns import number_of
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.recordings import RecordingReduction
from tb_sol_plugin.model.registry import Reduction, analysis
from tb_sol_plugin.model.report import (
    AnySection,
    Column,
    Fact,
    FactsSection,
    FigureSection,
    Mark,
    Notice,
    Report,
    Scalar,
    Sort,
    TableSection,
    make_table,
)
from tb_sol_plugin.tables.arrays import Floats, whole_numbers
from tb_sol_plugin.units import capitalized, human, scale_of

# -- Reduction of one rank --------------------------------------------------------------------------------------------
# a few numbers per direction of its copies.


class DirectionCopies(msgspec.Struct, frozen=True):
    """What copies of one direction add up to in the selection. None is unknown.

    bytes: of the copies that carry a size, sized_ns their time. time_ns: plain sum of durations. hidden_ns + exposed_ns: union of the
    copies per device. lost_ns: host time that those took which blocked the host, each nanosecond of a thread once; waits: how many did.
    in_steps_…: the same of the copies that steps launched; of all of them where no step was recorded.
    """

    direction: str
    count: int
    bytes: int | None
    without_bytes: int
    time_ns: int | None
    sized_ns: int | None
    hidden_ns: int | None
    exposed_ns: int | None
    lost_ns: int | None
    waits: int | None
    in_steps_count: int
    in_steps_bytes: int | None
    in_steps_time_ns: int | None
    in_steps_exposed_ns: int | None
    in_steps_lost_ns: int | None


class RankCopies(msgspec.Struct, frozen=True):
    """What is compared of one rank.

    steps: what per-step numbers divide by; 0 where no step was recorded. window_ns: length of the selection.

    events: the copies were recorded as device events; else they were counted, and most of their times are not known.
    devices: on which copies or kernels ran.
    """

    steps: int
    window_ns: int
    events: bool
    devices: int
    directions: tuple[DirectionCopies, ...]


def copies_of_rank(capture: Capture, query: Query) -> RankCopies:
    """Sums the copies of one recording by direction."""
    where = scope(capture, query)
    if not len(capture.device) and counted.has(capture):
        rows = counted.table(capture, "direction", where)
        found = tuple(_counted_direction(dict(zip(rows.columns, row, strict=True))) for row in rows.itertuples(index=False, name=None))
        return RankCopies(counted.iterations(capture, where), where.window_length_ns, False, 0, found)
    copies = records.copies(capture, where.device)
    blocked = blocking(capture, copies)
    table = groups.table(capture, where.device, "direction")
    directions, size, duration = (copies[c].to_numpy() for c in ("direction", "bytes", "duration_ns"))
    lost, waits = blocked["lost_ns"].to_numpy(), blocked["reason"].to_numpy(object) != ""
    hidden, exposed = (dict(zip(table["direction"].tolist(), table[c].tolist(), strict=True)) for c in ("hidden_ns", "exposed_ns"))
    has_host = len(capture.host) > 0
    inside = in_steps(capture, where)
    launched = inside[copies["row"].to_numpy()]
    some = table if launched.all() else groups.table(capture, inside, "direction")
    exposed_in_steps = dict(zip(some["direction"].tolist(), some["exposed_ns"].tolist(), strict=True))
    out = []
    for name in table["direction"].tolist():
        subset = directions == name
        sized = subset & (size >= 0)
        out.append(DirectionCopies(
            name, int(subset.sum()), int(size[sized].sum()) if sized.any() else None, int((subset & (size < 0)).sum()),
            int(duration[subset].sum()), int(duration[sized].sum()) if sized.any() else None,
            hidden[name], exposed[name],
            int(lost[subset].sum()) if has_host else None, int((subset & waits).sum()) if has_host else None,
            int((subset & launched).sum()), int(size[sized & launched].sum()) if sized.any() else None,
            int(duration[subset & launched].sum()), exposed_in_steps.get(name, 0), int(lost[subset & launched].sum()) if has_host else None,
        ))  # fmt: skip
    steps = where.step_count if where.steps else 0
    return RankCopies(steps, where.window_length_ns, True, device_count(capture), tuple(out))


def _counted_direction(row: dict[str, object]) -> DirectionCopies:
    """Returns one direction of counted copies: they were not timed, so what hides them and what they cost the host is not known."""
    time, rate = _whole(row["time_ns"]), row["bandwidth_bytes_per_s"]
    size = _whole(row["bytes"])
    sized = round(size / rate * 1e9) if size and isinstance(rate, float) and rate > 0 else None
    count, without = int(str(row["count"])), int(str(row["without_bytes"]))
    waits = _whole(row["blocking"])
    return DirectionCopies(str(row["direction"]), count, size, without, time, sized, None, None, None, waits, count, size, time, None, None)


def _whole(value: object) -> int | None:
    return round(value) if isinstance(value, int | float) and math.isfinite(value) else None


PEERS: Final = "PtoP"
MEASURES: Final = {
    "time": Measure("time_per_step_ns", "ns", "time per step", 100e3),
    "exposed": Measure("exposed_per_step_ns", "ns", "exposed time per step", 100e3),
    "bytes": Measure("bytes_per_step", "B", "bytes per step"),
    "bandwidth": Measure("bandwidth_bytes_per_s", "B/s", "bandwidth"),
    "host": Measure("host_per_step_ns", "ns", "host time blocked per step", 100e3),
}
"""By the query field `what`."""

CopyRanks: TypeAlias = Comparison[RankCopies]
_PER_STEP: Final = {
    "count_per_step": "in_steps_count", "bytes_per_step": "in_steps_bytes", "time_per_step_ns": "in_steps_time_ns",
    "exposed_per_step_ns": "in_steps_exposed_ns", "host_per_step_ns": "in_steps_lost_ns",
}  # fmt: skip
_FRACTIONS: Final = ("count_per_step", "bandwidth_bytes_per_s")
"""Columns that are not rounded."""


def times_text(ratio: float) -> str:
    """Returns a ratio with two decimals below 100, else rounded: `1.61`, `5 449`."""
    return f"{ratio:.2f}" if ratio < 100 else human(round(ratio), "count")


def compare(ranks: Ranks[RankCopies], parts: list[RankCopies], what: str) -> CopyRanks:
    """Returns copies of the ranks by direction, compared by `what` (a key of MEASURES). parts: of `ranks.read`."""
    frame = _columns(parts)
    directions = tuple(d for d in DIRECTIONS if d in set(frame["direction"]))
    frame["group"] = [directions.index(d) for d in frame["direction"]]
    return Comparison(ranks, frame, directions, MEASURES[what], frozenset({PEERS}))


def _columns(parts: list[RankCopies]) -> pd.DataFrame:
    """Returns one row per rank and direction in which any rank copies, `recorded` where this one does.

    A rank without copies in a direction has 0 of everything and no bandwidth. Copies between devices are unknown where none was
    recorded: profilers may leave them out.
    """
    found = frame_of(((at, one) for at, copies_of_rank in enumerate(parts) for one in copies_of_rank.directions), DirectionCopies)
    numbers = [c for c in DirectionCopies.__struct_fields__ if c != "direction"]
    found = found.astype(dict.fromkeys(("at", *numbers), np.float64)).assign(recorded=True)
    directions = [d for d in DIRECTIONS if d in set(found["direction"])]
    every = pd.MultiIndex.from_product([range(len(parts)), directions], names=["at", "direction"])
    frame = found.set_index(["at", "direction"]).reindex(every).reset_index()
    at = frame["at"].to_numpy(np.int64)
    frame["recorded"] = frame["recorded"].to_numpy(object) == True  # noqa: E712
    unknown = (frame["direction"] == PEERS).to_numpy() & np.array([p.events for p in parts], bool)[at]
    frame.loc[~frame["recorded"].to_numpy() & ~unknown, numbers] = 0.0
    frame["steps"] = np.array([p.steps for p in parts], np.int64)[at]
    for name, of in _PER_STEP.items():
        frame[name] = frame[of] / np.maximum(frame["steps"], 1)
    moved = (frame["bytes"] > 0) & (frame["sized_ns"] > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        frame["bandwidth_bytes_per_s"] = np.where(moved, frame["bytes"] / frame["sized_ns"] * 1e9, np.nan)
    return frame


def any_compared(ranks: CopyRanks) -> bool:
    """Returns whether the compared value is known for any rank."""
    return bool(np.isfinite(ranks.counted()).any()) or not ranks.groups


def rows_to_list(ranks: CopyRanks) -> list[int]:
    """Returns rows of the table of ranks: those of the directions in which a rank copies."""
    return [int(i) for i in np.flatnonzero(ranks.frame["recorded"])]


def displayed(ranks: CopyRanks) -> pd.DataFrame:
    """Returns the table of ranks without the columns that name a rank."""
    frame = ranks.frame.iloc[rows_to_list(ranks)].reset_index(drop=True)
    numbers = [c for c in (*DirectionCopies.__struct_fields__[1:10], *_PER_STEP) if c not in _FRACTIONS]
    return frame.assign(**{c: whole_numbers(frame[c]) for c in numbers})


def mean(ranks: CopyRanks, column: str) -> float | None:
    """Returns the mean over ranks of the sum over directions, of the ranks that know it for any direction; None where none does."""
    values, copies = ranks.matrix(column), ranks.matrix("count") > 0
    knows = ~copies.any(axis=0) | (copies & np.isfinite(values)).any(axis=0)
    if not values.size or not knows.any():
        return None
    return float(np.nansum(values[:, knows]) / int(knows.sum()))


def per_step_text(parts: list[RankCopies]) -> str:
    """Returns the words for what numbers are divided by."""
    return "per step" if any(p.steps for p in parts) else "in the recording"


def peers_unknown(ranks: CopyRanks, parts: list[RankCopies]) -> bool:
    """Returns whether copies between devices may be missing: several devices ran, and none was recorded."""
    several = max((p.devices for p in parts), default=0) > 1 or (ranks.ranks.world_size or len(ranks.ranks.read)) > 1
    return several and any(p.events for p in parts) and PEERS not in ranks.groups


class MemcpyRanksQuery(Query, kw_only=True, frozen=True):
    """what: what ranks are compared by, per step: time of copies, the part that nothing hides, bytes, bandwidth, host time they held"""

    what: Literal["time", "exposed", "bytes", "bandwidth", "host"] = "time"


RANK_COLUMNS: Final = (
    Column("rank", "Rank", doc="rank, as recorded or from the name of the worker", missing="not known"),
    Column("direction", "Direction", doc="direction of the copies", show="symbol"),
    Column("of_median", "× median", doc="the compared value per step over the median of all ranks in this direction",
           missing="the median is 0, or the value is not known"),
    Column("count_per_step", "Copies per step", doc="copies over steps"),
    Column("bytes_per_step", "Bytes per step", "B", "bytes of the copies that carry a size, over steps", missing="no copy carries a size"),
    Column("time_per_step_ns", "Time per step", "ns", "plain sum of durations, over steps", show="bar", color_by="direction",
           missing="counted, not timed"),
    Column("bandwidth_bytes_per_s", "Bandwidth", "B/s", "bytes over time of copies that carry a size", missing="no size or time recorded"),
    Column("exposed_per_step_ns", "Exposed per step", "ns", "union of the copies that no kernel but communication hides, over steps",
           show="bar", color_by="direction", missing="counted, not timed"),
    Column("host_per_step_ns", "Host blocked per step", "ns", "host time of copies that blocked the host, over steps", rank=2,
           missing="no host events were recorded"),
    Column("waits", "Waits", "count", "copies that blocked the host", rank=3, missing="not known"),
    Column("steps", "Steps", "count", "steps that per-step numbers divide by; 0: none was recorded, numbers are of the whole recording",
           rank=2),
    Column("count", "Copies", "count", "copies in the selection", rank=3),
    Column("bytes", "Bytes", "B", "bytes of the copies that carry a size", rank=3, missing="no copy carries a size"),
    Column("without_bytes", "Without size", "count", "copies whose size was not recorded; their time counts", rank=3),
    Column("time_ns", "Time", "ns", "plain sum of durations", rank=3, missing="counted, not timed"),
    Column("hidden_ns", "Hidden", "ns", "union of the copies behind kernels that are no communication", rank=3,
           missing="counted, not timed"),
    Column("exposed_ns", "Exposed", "ns", "the rest of that union", rank=3, missing="counted, not timed"),
    Column("worker", "Worker", doc="name of the worker", show="code", rank=2),
    Column("id", "Id", doc="stable key of the row", rank=3),
)  # fmt: skip
DIRECTION_COLUMNS: Final = (
    Column("direction", "Direction", doc="direction of the copies", show="symbol"),
    Column("ranks", "Ranks", "count", "ranks that copy in this direction"),
    Column("time_median_ns", "Median time", "ns", "per step, over all ranks", missing="not recorded, or not timed"),
    Column("time_max_ns", "Longest", "ns", "time per step of the rank that copies longest", missing="not recorded, or not timed"),
    Column("longest_rank", "Rank", doc="the rank that copies longest", missing="all alike, or not timed"),
    Column("imbalance", "Imbalance", doc="time per step, largest over median", missing="not recorded, or the median is 0"),
    Column("excess_ns", "Above median", "ns", "time per step, largest less median", show="bar", color_by="direction",
           missing="not recorded, or not timed"),
    Column("exposed_excess_ns", "Exposed above", "ns", "exposed time per step, largest less median", missing="not recorded, or not timed"),
    Column("exposed_rank", "Rank", doc="the rank with the most exposed time", rank=2, missing="all alike, or not timed"),
    Column("bytes_imbalance", "Bytes, × median", doc="bytes per step, largest over median", missing="no size known, or the median is 0"),
    Column("bandwidth_bytes_per_s", "Bandwidth", "B/s", "all bytes over all time of the copies that carry a size", rank=2,
           missing="no size or time recorded"),
    Column("slowest_bytes_per_s", "Slowest", "B/s", "bandwidth of the rank with the lowest", missing="no size or time recorded"),
    Column("slowest_rank", "Rank", doc="the rank with the lowest bandwidth", missing="all alike, or no size or time recorded"),
    Column("bandwidth_spread", "Median / slowest", doc="bandwidth, median over lowest", rank=2, missing="no size or time recorded"),
)  # fmt: skip
FACTS: Final = (
    *R.FACTS,
    Fact("count_per_step", "", "", "copies per step, mean over ranks"),
    Fact("time_per_step_ns", "Copies per step", "ns", "time of the copies per step, mean over ranks"),
    Fact("bytes_per_step", "", "B", "bytes per step, mean over ranks"),
    Fact("imbalance", "Imbalance", "", "time per step, largest over median, in the direction with the largest difference"),
    Fact("excess_ns", "Above the median", "ns", "the difference: largest less median"),
    *(Fact(f"{d.lower().replace(' ', '_')}_imbalance", "", "", f"{name}: time per step, largest over median") for d, name in NAMES.items()),
)  # fmt: skip
EVEN: Final = 1.1
"""Up to this imbalance ranks are even."""


@analysis(
    scope="ranks",
    title="Ranks",
    question="Does one rank copy more, or slower, than the others?",
    group="Speed of light",
    order=24,
    requirements=("device_events",),
    counted=counted.has,
    query=MemcpyRanksQuery,
    tables={"directions": DIRECTION_COLUMNS, "ranks": RANK_COLUMNS, "left_out": R.LEFT_OUT},
    facts=FACTS,
    under="memcpy",
    reduce=Reduction(copies_of_rank),
)
def run(workers: Sequence[RecordingReduction[RankCopies]], query: MemcpyRanksQuery) -> Report:
    found = ranks_of(workers, lambda w: w.reduced.window_ns)
    parts = [w.reduced for w in found.read]
    ranks = compare(found, parts, query.what)
    if not any_compared(ranks):  # copies that were counted have no times
        ranks = compare(found, parts, "bytes")
    rows = rows_to_list(ranks)
    if not rows and not found.excluded:
        raise Unavailable("no copy in any of the workers", hint="record a part of the job that moves data")
    unknown = peers_unknown(ranks, parts)
    directions = _directions(ranks, peers_unknown=unknown)
    sections: list[AnySection] = [_tiles(ranks, _values(ranks, directions))]
    if rows:
        sections += [panels(ranks), _direction_table(directions), _rank_table(ranks, rows, query)]
    sections += R.left_out(found)
    return Report(
        analysis="memcpy_ranks",
        title="Ranks",
        headline=_headline(ranks, directions, per_step_text(parts)),
        notices=[*R.notices(found), *_notices(ranks, parts, peers_unknown=unknown)],
        sections=sections,
    )


def _directions(ranks: CopyRanks, *, peers_unknown: bool) -> pd.DataFrame:
    """Returns one row per direction, over the ranks; a row without numbers for copies between devices that no rank recorded."""
    time, exposed, size, rate = (ranks.spread(MEASURES[what].column) for what in ("time", "exposed", "bytes", "bandwidth"))
    moved = ranks.sums(("bytes", "sized_ns"))
    with np.errstate(divide="ignore", invalid="ignore"):
        over_all = np.where((moved["sized_ns"] > 0) & (moved["bytes"] > 0), moved["bytes"] / moved["sized_ns"] * 1e9, np.nan)
        slower = np.where(rate["least"] > 0, rate["median"] / rate["least"], np.nan)
    frame = pd.DataFrame({
        "direction": list(ranks.groups), "ranks": (ranks.matrix("count") > 0).sum(axis=1),
        "time_median_ns": whole_numbers(time["median"]), "time_max_ns": whole_numbers(time["most"]), "longest_rank": time["most_rank"],
        "imbalance": time["imbalance"], "excess_ns": whole_numbers(time["excess"]),
        "exposed_excess_ns": whole_numbers(exposed["excess"]), "exposed_rank": exposed["most_rank"],
        "bytes_imbalance": size["imbalance"], "bandwidth_bytes_per_s": over_all,
        "slowest_bytes_per_s": rate["least"], "slowest_rank": rate["least_rank"], "bandwidth_spread": slower,
    }, dtype=object)  # fmt: skip
    return pd.concat([frame, pd.DataFrame([{"direction": PEERS}])], ignore_index=True) if peers_unknown else frame


def _direction_table(directions: pd.DataFrame) -> TableSection:
    why = Mark("unknown", "not recorded: several devices ran, and the profiler may leave out copies between them")
    unknown = directions.index[directions["ranks"].isna()].tolist()
    return make_table(
        "directions", "Directions", directions, DIRECTION_COLUMNS, key="direction", subtitle="over the ranks, per step",
        sort=Sort("excess_ns"),
        marks={"ranks": {str(i): why for i in unknown}} if unknown else {},
        footer="Imbalance is the largest value over the median of the ranks. A rank without copies in a direction counts as 0; "
        "between devices it is unknown. "
        "Bandwidth is bytes over time, never a mean of rates.",
    )  # fmt: skip


def _rank_table(ranks: CopyRanks, rows: list[int], query: MemcpyRanksQuery) -> TableSection:
    who, frame = R.identity(ranks, rows), displayed(ranks)
    frame = frame.assign(**who, id=[f"{worker}|{d}" for worker, d in zip(who["worker"], frame["direction"], strict=True)])
    step = {"step": query.step} if query.step else {}
    requested = [{"by": "kind", "find": direction} | step for direction in frame["direction"]]
    links = R.row_links(ranks, rows, analysis="memcpy", label="the copies of this rank", query=requested)
    marks = R.row_marks(ranks, rows, "other ranks in this direction")
    sizeless = {str(i): Mark("lower_bound", f"{n} copies carry no size") for i, n in enumerate(frame["without_bytes"]) if n}
    marks |= {"bytes_per_step": sizeless, "bytes": sizeless}
    return make_table(
        "ranks", "Ranks", frame, R.columns_of(RANK_COLUMNS, who["rank"].notna().tolist()), key="id",
        subtitle=f"compared by {ranks.measure.label}",
        sort=Sort("of_median", descending=ranks.measure != MEASURES["bandwidth"]), filters=["direction"],
        marks={name: found for name, found in marks.items() if found}, row_links=links, cell_links={"rank": links, "worker": links},
        footer="A rank opens its copies in that direction.",
    )  # fmt: skip


def _values(ranks: CopyRanks, directions: pd.DataFrame) -> dict[str, Scalar]:
    worst = R.largest(directions, "excess_ns")
    time, size = mean(ranks, "time_per_step_ns"), mean(ranks, "bytes_per_step")
    values: dict[str, Scalar] = {
        **R.facts(ranks.ranks), "count_per_step": mean(ranks, "count_per_step"),
        "time_per_step_ns": None if time is None else round(time), "bytes_per_step": None if size is None else round(size),
        "imbalance": worst["imbalance"] if worst is not None else None, "excess_ns": worst["excess_ns"] if worst is not None else None,
    }  # fmt: skip
    for direction, value in zip(directions["direction"], directions["imbalance"], strict=True):
        values[f"{direction.lower().replace(' ', '_')}_imbalance"] = known(value)
    return values


def _tiles(ranks: CopyRanks, facts: dict[str, Scalar]) -> FactsSection:
    notes = {"workers_read": R.read_note(ranks.ranks), "imbalance": "longest time over median"}
    notes |= {"excess_ns": "per step, longest rank", "time_per_step_ns": "mean over ranks"}
    shown = ("workers_read", "imbalance", "excess_ns", "time_per_step_ns")
    return R.tiles(facts, FACTS, title="Over the ranks", shown=shown, notes=notes)


def _headline(ranks: CopyRanks, directions: pd.DataFrame, per_step_text: str) -> str:
    worst = R.largest(directions, "excess_ns")
    many = f"{human(ranks.ranks.compared, 'count')} ranks"
    if alone := R.incomparable(ranks.ranks):
        return alone
    if worst is None:
        return _moved_headline(ranks, many, per_step_text)
    name, times = NAMES[str(worst["direction"])], worst["imbalance"]
    if isinstance(times, int | float) and times <= EVEN:
        return f"{capitalized(many)} copy alike: in no direction does one take more than {max(times, 1.0):.2f} times the median."
    above = human(number_of(worst["excess_ns"]), "ns")
    ratio = f", {times_text(times)} times the median" if isinstance(times, int | float) else ""
    longest = human(number_of(worst["time_max_ns"]), "ns")
    return f"{name}: **{worst['longest_rank']}** copies for {longest} {per_step_text}{ratio} of {many}: {above} more."


def _moved_headline(ranks: CopyRanks, many: str, per_step_text: str) -> str:
    """Returns the headline where no time is known: the rank that moves more bytes than the others."""
    spreads = {d: ranks.spread_of(d, MEASURES["bytes"].column) for d in ranks.groups}
    sized = {d: s for d, s in spreads.items() if s.excess is not None and s.median}
    if not sized:
        return f"Neither the time nor the size of the copies of {many} is known."
    worst = max(sized, key=lambda d: sized[d].excess or 0.0)
    most, times = sized[worst], sized[worst].imbalance or 1.0
    if times <= EVEN:
        return f"{many} move alike many bytes: in no direction does one move more than {times:.2f} times the median."
    moves = f"**{most.most_rank}** moves {human(most.most, 'B')} {per_step_text}"
    return f"{NAMES[worst]}: {moves}, {times_text(times)} times the median of {many}."


def _notices(ranks: CopyRanks, parts: Sequence[RankCopies], *, peers_unknown: bool) -> list[Notice]:
    out = []
    counted_only = sum(not p.events for p in parts)
    if counted_only:
        who = "The copies were" if counted_only == len(parts) else f"Those of {human(counted_only, 'count')} workers were"
        out.append(Notice(f"{who} counted at the operators, not recorded: how long they take is not known.", "info"))
    without = sum(p.steps == 0 for p in parts)
    if without and without < len(parts):
        out.append(Notice(
            f"{human(without, 'count')} of {human(len(parts), 'count')} workers recorded no step: their numbers are of the whole "
            "recording, and do not compare with those per step.",
        ))  # fmt: skip
    if peers_unknown and all(w.state != "waiting" for w in ranks.ranks.excluded):
        out.append(Notice("No worker recorded a copy between devices; the profiler may leave them out. Unknown, not zero.", "info"))
    if PEERS in ranks.groups:
        silent = int(np.isnan(ranks.matrix("count")[ranks.groups.index(PEERS)]).sum())
        if silent:
            text = f"{human(silent, 'count')} of {human(ranks.ranks.compared, 'count')} ranks recorded no copy between devices"
            out.append(Notice(f"{text}; the profiler may leave them out. Theirs are unknown, not zero.", "info"))
    return out


# -- Panels of ranks --------------------------------------------------------------------------------------------------
# one panel per direction, a bar or point per rank, the median as a line.


PANELS: Final = 5
PANEL_PX: Final = 92
GAP_PX: Final = 34
"""Between panels, where the title of the next one is."""
TOP_PX: Final = 26
BOTTOM_PX: Final = 46


def panels(ranks: CopyRanks) -> FigureSection:
    """Draws the compared value of every rank, largest directions first, and no more than five."""
    measure, values = ranks.measure, ranks.matrix()
    sums = dict(zip(ranks.groups, np.nansum(values, axis=1).tolist(), strict=True))
    first = sorted(sums, key=lambda d: -sums[d])[:PANELS]
    shown = [at for at, d in enumerate(ranks.groups) if d in first and np.isfinite(values[at]).any()]
    if not shown:
        summary = f"The {measure.label} is not known for any rank."
        return FigureSection(id="panels", title=TITLE, figure=F.figure([]), summary=summary, height=120, table="ranks")
    axis = axis_of(ranks)
    data: list[F.Plain] = []
    layout: F.Plain = {}
    notes: list[F.Plain] = []
    room = PANEL_PX * len(shown) + GAP_PX * (len(shown) - 1)
    gap, high = GAP_PX / room, PANEL_PX / room
    for at, group in enumerate(shown):
        n = "" if at == 0 else str(at + 1)
        largest = float(np.nanmax(values[group]))
        factor, unit = F.time_scale(largest) if measure.unit == "ns" else scale_of(largest, measure.unit)
        top, peak = 1 - at * (high + gap), largest / factor
        layout[f"xaxis{n}"] = axis.layout(last=at == len(shown) - 1) | {"anchor": f"y{n}"} | ({"matches": "x"} if n else {})
        layout[f"yaxis{n}"] = F.axis(
            unit, domain=[max(top - high, 0.0), top], anchor=f"x{n}", range=[0 if axis.bars else -0.06 * peak, 1.25 * peak or 1], nticks=4
        )
        axes: F.Plain = {"xaxis": f"x{n}", "yaxis": f"y{n}"} if n else {}
        drawn, names = _panel(ranks, axis, group, factor, axes)
        data += drawn + axis.excluded(axes, 0.06 * peak)
        title = f"<b>{NAMES[ranks.groups[group]]}</b>{_median_text(ranks, ranks.groups[group])}"
        notes.append({
            "xref": "paper", "yref": "paper", "x": 0, "y": top, "xanchor": "left", "yanchor": "bottom", "showarrow": False,
            "text": title, "font": {"size": 12, "color": F.light("ink-2")},
        })  # fmt: skip
        notes += [note | {"xref": f"x{n}", "yref": f"y{n}"} for note in names]
    figure = F.figure(data, annotations=notes, margin={"l": 64, "r": 18, "t": TOP_PX, "b": BOTTOM_PX}, bargap=0)
    plain = figure["layout"]
    assert isinstance(plain, dict)
    plain |= layout
    return FigureSection(
        id="panels", title=TITLE, subtitle=f"{measure.label}; the line is the median of the ranks", figure=figure,
        summary=_summary(ranks, [ranks.groups[group] for group in shown]), table="ranks", height=TOP_PX + BOTTOM_PX + room,
    )  # fmt: skip


def _panel(ranks: CopyRanks, axis: RankAxis, group: int, factor: float, axes: F.Plain) -> tuple[list[F.Plain], list[F.Plain]]:  # type: ignore[type-arg]
    """Returns (bars or points and the median, names of the outliers beside theirs) of one direction."""
    direction, raw, outliers = ranks.groups[group], ranks.matrix()[group], ranks.outlier_matrix()[group]
    copies = ranks.matrix("count")[group] > 0
    workers = [w.worker for w, counts in zip(ranks.ranks.read, ranks.ranks.counts.tolist(), strict=True) if counts]
    values, unit = raw / factor, ranks.measure.unit
    amount = [human(v * factor, unit) if some else "no copy in this direction" for v, some in zip(values.tolist(), copies, strict=True)]
    points = marks(
        axis, values, outliers=outliers, name=NAMES[direction], token=COLORS.get(direction, "other"), symbol=F.symbol(direction),
        hover=[f"{hover_head(axis, i, '', outlier=bool(outliers[i]))}<br>{NAMES[direction]}: {text}" for i, text in enumerate(amount)],
        keys=[f"{worker}|{direction}" if some else "" for worker, some in zip(workers, copies.tolist(), strict=True)],
        width=min(0.72, 0.045 * axis.length), axes=axes,
    )  # fmt: skip
    median = ranks.spread_of(direction).median
    line = median_line(axis.ends, [None if median is None else median / factor] * 2, "ink-3", axes)
    return [points, line] if axis.bars else [line, points], _names(axis, values, farthest(_away(raw), outliers))


def _away(values: Floats) -> Floats:
    """Returns the distance of values from their median."""
    return np.asarray(np.abs(values - np.nanmedian(values)), np.float64)


def _names(axis: RankAxis, values: Floats, chosen: list[int]) -> list[F.Plain]:  # type: ignore[type-arg]
    """Names of ranks beside their points, on the side where there is room."""
    right = float(axis.x.min()) + 0.85 * float(np.ptp(axis.x))
    sides: list[F.Plain] = [
        {"xanchor": "right", "xshift": -5} if float(axis.x[i]) > right else {"xanchor": "left", "xshift": 5} for i in chosen
    ]
    return [name_note(axis, i, float(values[i])) | side for i, side in zip(chosen, sides, strict=True)]


def _median_text(ranks: CopyRanks, direction: str) -> str:
    """Returns the rest of a panel's title: the median, and how far the largest (of bandwidth the smallest) is from it."""
    found, unit = ranks.spread_of(direction), ranks.measure.unit
    if ranks.measure == MEASURES["bandwidth"]:
        times = found.median / found.least if found.median is not None and found.least else None
        return f"  median {human(found.median, 'B/s')}" + (f", slowest 1/{times:.2f} of it" if times is not None and times > 1.005 else "")
    more = f", largest {times_text(found.imbalance)} times" if found.imbalance is not None and found.imbalance > 1.005 else ""
    return f"  median {human(None if found.median is None else round(found.median), unit)}{more}"


def _summary(ranks: CopyRanks, shown: list[str]) -> str:
    unit, label = ranks.measure.unit, ranks.measure.label
    lowest = ranks.measure == MEASURES["bandwidth"]

    def text(direction: str, found: Spread) -> str:
        side, edge, rank = ("lowest", found.least, found.least_rank) if lowest else ("highest", found.most, found.most_rank)
        return f"{NAMES[direction].lower()}: median {human(found.median, unit)}, {side} {human(edge, unit)} ({rank})"

    parts = [text(direction, ranks.spread_of(direction)) for direction in shown]
    return f"{capitalized(label)} of {ranks.ranks.compared} ranks. " + "; ".join(parts) + "."
