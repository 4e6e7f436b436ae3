"""Which rank copies more, or slower, than the others.

One row per rank and direction, and one per direction over all ranks: the imbalance is the largest value over the median. Numbers that
are compared are per step, because ranks may have recorded different numbers of steps. A rank that is far from the others is marked
(robust z-score above 3.5 and more than 2 % from the median); of fewer than five ranks none is. Every rank is read once, where it is
needed; until all are read the page shows those that are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.analyses.copies.memcpy_ranks_figures import panels
from tb_sol_plugin.analyses.copies.memcpy_ranks_tables import MEASURES, PEERS, RankPart, Ranks, part, rows_of, times_text
from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics.copies import counted
from tb_sol_plugin.metrics.copies.records import NAMES
from tb_sol_plugin.metrics.ranks import peers
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.recordings import WorkerPart
from tb_sol_plugin.model.registry import over_workers
from tb_sol_plugin.model.report import (
    AnySection,
    Column,
    Fact,
    FactsSection,
    Link,
    Mark,
    Notice,
    Report,
    Scalar,
    Sort,
    make_facts,
    make_table,
    number_of,
    plain_list,
)
from tb_sol_plugin.units import human


class MemcpyRanksQuery(Query, kw_only=True, frozen=True):
    """what: what ranks are compared by, per step: time of copies, the part that nothing hides, bytes, bandwidth, host time they held"""

    what: Literal["time", "exposed", "bytes", "bandwidth", "host"] = "time"


RANKS: Final = (
    Column("rank", "Rank", doc="rank of the worker, as recorded or as its name says", missing="not known"),
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
    Column("host_per_step_ns", "Host held per step", "ns", "host time of copies that held the host, over steps", rank=2,
           missing="no host events were recorded"),
    Column("waits", "Waits", "count", "copies that held the host", rank=3, missing="not known"),
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
DIRECTIONS: Final = (
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
    Fact("workers", "", "count", "workers of the run"),
    Fact("workers_read", "Workers", "count", "those whose recording could be read"),
    Fact("ranks_present", "", "count", "different ranks among them"),
    Fact("world_size", "", "count", "ranks of the job, as the recordings say"),
    Fact("ranks_missing", "", "count", "ranks of the job without a recording here"),
    Fact("count_per_step", "", "", "copies per step, mean over ranks"),
    Fact("time_per_step_ns", "Copies per step", "ns", "time of the copies per step, mean over ranks"),
    Fact("bytes_per_step", "", "B", "bytes per step, mean over ranks"),
    Fact("imbalance", "Imbalance", "", "time per step, largest over median, in the direction with the largest difference"),
    Fact("excess_ns", "Above the median", "ns", "the difference: largest less median"),
    *(Fact(f"{d.lower().replace(' ', '_')}_imbalance", "", "", f"{name}: time per step, largest over median") for d, name in NAMES.items()),
)  # fmt: skip
EVEN: Final = 1.1
"""Up to this imbalance ranks are even."""


@over_workers(
    part=part,
    title="Ranks",
    question="Does one rank copy more, or slower, than the others?",
    group="Speed of light",
    order=24,
    needs=("device_events",),
    counted=counted.has,
    query=MemcpyRanksQuery,
    tables={"directions": DIRECTIONS, "ranks": RANKS, "left_out": peers.LEFT_OUT},
    facts=FACTS,
    icon="memcpy",
    under="memcpy",
)
def run(workers: Sequence[WorkerPart[RankPart]], query: MemcpyRanksQuery) -> Report:
    parts = {w.worker: w.part for w in workers if w.state == "read"}
    found = peers.crew(workers, lambda w: parts[w.worker].window_ns)
    what: str = query.what
    ranks = rows_of(found, parts, what)
    if not ranks.known(what):  # copies that were counted have no times
        what = "bytes"
        ranks = rows_of(found, parts, what)
    if not len(ranks.rows) and not found.without:
        raise Unavailable("no copy in any of the workers", hint="record a part of the job that moves data")
    directions = _directions(ranks)
    facts = _values(found, ranks, directions)
    links = _links(ranks, query)
    sections: list[AnySection] = [_tiles(facts)]
    if len(ranks.rows):
        sections += [
            panels(ranks, found, what),
            make_table(
                "directions",
                "Directions",
                directions,
                DIRECTIONS,
                key="direction",
                subtitle="over the ranks, per step",
                sort=Sort("excess_ns"),
                marks=_peer_marks(directions),
                footer="Imbalance is the largest value over the median of the ranks. A rank without copies in a direction counts as 0; "
                "between devices it is unknown. "
                "Bandwidth is bytes over time, never a mean of rates.",
            ),
            make_table(
                "ranks",
                "Ranks",
                ranks.rows,
                _rank_columns(ranks),
                key="id",
                subtitle=f"compared by {MEASURES[what].words}",
                sort=Sort("of_median", descending=what != "bandwidth"),
                filters=["direction"],
                marks=_marks(ranks),
                row_links=links,
                cell_links={"rank": links, "worker": links},
                footer="A rank opens its copies in that direction.",
            ),
        ]
    sections += peers.left_out(found)
    return Report(
        analysis="memcpy_ranks",
        title="Ranks",
        headline=_headline(found, ranks, directions),
        notices=[*peers.notices(found), *_notices(found, ranks, parts)],
        sections=sections,
    )


def _rank_columns(ranks: Ranks) -> list[Column]:
    """Workers without a rank are told by their names, which stand first."""
    ranked = ranks.rows["rank"].notna()
    if ranked.all():
        return list(RANKS)
    shown = {"worker": 1, "rank": 1 if ranked.any() else 3}
    columns = [msgspec.structs.replace(c, rank=shown.get(c.name, c.rank)) for c in RANKS]
    return sorted(columns, key=lambda c: c.name != "worker")


def _directions(ranks: Ranks) -> pd.DataFrame:
    """One row per direction, over the ranks that count; a row without numbers for peer copies that nobody recorded."""
    out: list[dict[str, object]] = []
    for direction in ranks.directions:
        time, exposed, size, rate = (ranks.spread(direction, what) for what in ("time", "exposed", "bytes", "bandwidth"))
        out.append({
            "direction": direction, "ranks": ranks.holders(direction),
            "time_median_ns": _whole(time.median), "time_max_ns": _whole(time.most), "longest_rank": _named(ranks, time.most_at, time),
            "imbalance": time.imbalance, "excess_ns": _whole(time.excess),
            "exposed_excess_ns": _whole(exposed.excess), "exposed_rank": _named(ranks, exposed.most_at, exposed),
            "bytes_imbalance": size.imbalance, "bandwidth_bytes_per_s": ranks.rate(direction),
            "slowest_bytes_per_s": rate.least, "slowest_rank": _named(ranks, rate.least_at, rate),
            "bandwidth_spread": rate.median / rate.least if rate.median is not None and rate.least else None,
        })  # fmt: skip
    if ranks.peers_unknown:
        out.append({"direction": "PtoP"})
    frame = pd.DataFrame(out, columns=[c.name for c in DIRECTIONS], dtype=object)
    return frame


def _named(ranks: Ranks, place: int, of: peers.Spread) -> str | None:
    """The rank at one end; nobody where all are alike."""
    return ranks.name_at(place) if of.most != of.least else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _values(found: peers.Crew[RankPart], ranks: Ranks, directions: pd.DataFrame) -> dict[str, Scalar]:
    worst = _worst(directions)
    values: dict[str, Scalar] = {
        "workers": found.total, "workers_read": len(found.read), "ranks_present": len({p.rank for p in found.read if p.rank is not None}),
        "world_size": found.world, "ranks_missing": len(found.missing) if found.world is not None else None,
        "count_per_step": ranks.mean("count_per_step"), "time_per_step_ns": _whole(ranks.mean("time_per_step_ns")),
        "bytes_per_step": _whole(ranks.mean("bytes_per_step")),
        "imbalance": worst["imbalance"] if worst is not None else None, "excess_ns": worst["excess_ns"] if worst is not None else None,
    }  # fmt: skip
    for direction, value in zip(directions["direction"], directions["imbalance"], strict=True):
        values[f"{direction.lower().replace(' ', '_')}_imbalance"] = value
    return values


def _worst(directions: pd.DataFrame) -> dict[str, Scalar] | None:
    """The row of the direction whose longest rank lies farthest above the median."""
    known = directions[directions["excess_ns"].notna()]
    if not len(known):
        return None
    at = int(known["excess_ns"].to_numpy(np.float64).argmax())
    return {str(name): plain_list(known[name])[at] for name in known}


def _tiles(facts: dict[str, Scalar]) -> FactsSection:
    shown = [name for name in ("workers_read", "imbalance", "excess_ns", "time_per_step_ns") if facts[name] is not None]
    read, total, world = facts["workers_read"], facts["workers"], facts["world_size"]
    notes = {"workers_read": f"of {human(number_of(total), 'count')}" + (f", job of {human(number_of(world), 'count')}" if world else "")}
    notes |= {"imbalance": "longest time over median", "excess_ns": "per step, longest rank", "time_per_step_ns": "mean over ranks"}
    if read == total:
        notes["workers_read"] = f"all read, job of {human(number_of(world), 'count')}" if world else "all read"
    ordered = {name: facts[name] for name in [*shown, *(n for n in facts if n not in shown)]}
    return make_facts(
        "facts", "Over the ranks", ordered, FACTS, style="tiles",
        notes={n: t for n, t in notes.items() if n in shown}, hidden=[n for n in ordered if n not in shown],
    )  # fmt: skip


def _headline(found: peers.Crew[RankPart], ranks: Ranks, directions: pd.DataFrame) -> str:
    worst = _worst(directions)
    many = f"{human(len(ranks.counting), 'count')} ranks"
    if not found.read:
        return f"None of {human(found.total, 'count')} workers has been read."
    if len(ranks.counting) == 1:
        return f"One of {human(found.total, 'count')} workers has been read: nothing to compare it with."
    if worst is None:
        return _moved(ranks, many)
    name, times = NAMES[str(worst["direction"])], worst["imbalance"]
    if isinstance(times, int | float) and times <= EVEN:
        return f"{many[0].upper()}{many[1:]} copy alike: in no direction does one take more than {max(times, 1.0):.2f} times the median."
    above = human(number_of(worst["excess_ns"]), "ns")
    ratio = f", {times_text(times)} times the median" if isinstance(times, int | float) else ""
    longest = human(number_of(worst["time_max_ns"]), "ns")
    return f"{name}: **{worst['longest_rank']}** copies for {longest} {ranks.per}{ratio} of {many}: {above} more."


def _moved(ranks: Ranks, many: str) -> str:
    """The headline where no time is known: who moves more bytes than the others."""
    spreads = {d: ranks.spread(d, "bytes") for d in ranks.directions}
    known = {d: s for d, s in spreads.items() if s.excess is not None and s.median}
    if not known:
        return f"Neither the time nor the size of the copies of {many} is known."
    worst = max(known, key=lambda d: known[d].excess or 0.0)
    most, times = known[worst], known[worst].imbalance or 1.0
    if times <= EVEN:
        return f"{many} move alike many bytes: in no direction does one move more than {times:.2f} times the median."
    name = ranks.name_at(most.most_at)
    return f"{NAMES[worst]}: **{name}** moves {human(most.most, 'B')} {ranks.per}, {times_text(times)} times the median of {many}."


def _notices(found: peers.Crew[RankPart], ranks: Ranks, parts: dict[str, RankPart]) -> list[Notice]:
    out = []
    counted_only = [w.worker for w in found.read if not parts[w.worker].events]
    if counted_only:
        who = "The copies were" if len(counted_only) == len(found.read) else f"Those of {human(len(counted_only), 'count')} workers were"
        out.append(Notice(f"{who} counted at the operators, not recorded: how long they take is not known.", "info"))
    without = [w.worker for w in found.read if parts[w.worker].steps == 0]
    if without and len(without) < len(found.read):
        out.append(Notice(
            f"{human(len(without), 'count')} of {human(len(found.read), 'count')} workers recorded no step: their numbers are of the whole "
            "recording, and do not compare with those per step.",
        ))  # fmt: skip
    if ranks.peers_unknown and all(w.state != "waiting" for w in found.without):
        out.append(Notice("No worker recorded a copy between devices; the profiler may leave them out. Unknown, not zero.", "info"))
    if PEERS in ranks.directions:
        silent = int(np.isnan(ranks.matrix["count"][ranks.directions.index(PEERS)]).sum())
        if silent:
            text = f"{human(silent, 'count')} of {human(len(ranks.counting), 'count')} ranks recorded no copy between devices"
            out.append(Notice(f"{text}; the profiler may leave them out. Theirs are unknown, not zero.", "info"))
    return out


def _peer_marks(directions: pd.DataFrame) -> dict[str, dict[str, Mark]]:
    why = Mark("unknown", "not recorded: several devices ran, and the profiler may leave out copies between them")
    rows = directions.index[directions["ranks"].isna()].tolist()
    return {"ranks": {str(i): why for i in rows}} if rows else {}


def _marks(ranks: Ranks) -> dict[str, dict[str, Mark]]:
    out: dict[str, dict[str, Mark]] = {"of_median": {}, "rank": {}, "bytes_per_step": {}, "bytes": {}}
    for i, (is_far, counts, without) in enumerate(zip(ranks.far, ranks.counts, ranks.rows["without_bytes"], strict=True)):
        if is_far:
            out["of_median"][str(i)] = Mark("flagged", "far from the other ranks in this direction")
        if not counts:
            out["rank"][str(i)] = Mark("flagged", "this rank is there more than once; another worker stands for it")
        if without:
            for name in ("bytes_per_step", "bytes"):
                out[name][str(i)] = Mark("lower_bound", f"{without} copies carry no size")
    return {name: marks for name, marks in out.items() if marks}


def _links(ranks: Ranks, query: MemcpyRanksQuery) -> dict[str, Link]:
    step = {"step": query.step} if query.step else {}
    rows = zip(ranks.rows["worker"], ranks.span, ranks.rows["direction"], strict=True)
    return {
        str(i): Link("memcpy", {"worker": worker, "span": span, "by": "kind", "find": direction} | step, "the copies of this rank")
        for i, (worker, span, direction) in enumerate(rows)
    }


__all__ = ["MemcpyRanksQuery", "run"]
