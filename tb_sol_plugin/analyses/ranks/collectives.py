"""How fast the collectives of a job are on their links, and how much of their time is waiting for the rank that comes last.

Calls of different ranks that are one collective are matched. The last member to come waits for nobody: its duration is the transfer, what
the others take longer is their wait. Bandwidth is of transfers alone: algorithm bandwidth is the sum of sizes over the sum of
transfers, bus bandwidth that times the factor by which the best algorithm loads a link (2 (n - 1) / n of an all_reduce, as
nccl-tests has it). The message curve tells what a call costs by itself (alpha) from what its bytes cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.ranks import links, reports
from tb_sol_plugin.metrics.ranks import sections as R
from tb_sol_plugin.metrics.ranks.comparison import Ranks
from tb_sol_plugin.metrics.ranks.group_kinds import ACROSS, GroupKind, group_kinds, told
from tb_sol_plugin.metrics.ranks.job import Job
from tb_sol_plugin.metrics.ranks.summary import DTYPES, KINDS, RankSummary
from tb_sol_plugin.metrics.ranks.traffic import traffic
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.recordings import RecordingReduction
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import AnySection, Column, Fact, FigureSection, Mark, Report, Scalar, Sort, TableSection, make_table
from tb_sol_plugin.tables.arrays import Ints, Mask, whole_numbers
from tb_sol_plugin.units import capitalized, human, scale_of

MOST_RANKS: Final = 256
"""Ranks up to which who sends to whom is drawn by rank; of more by host."""
POINTS: Final = 2_000
"""Collectives that the figure draws at most."""


class CollectivesQuery(Query, kw_only=True, frozen=True):
    """group_kind: collectives of groups that serve this parallelism alone (TP, DP, ...)
    group: those of groups whose description or ranks hold this text
    ranks: those with one of these ranks, as 0-7,12
    groups: parallelism of groups by their description, as mesh_inner:TP,mesh_outer:DP
    nic_bytes_per_s: what the network carries for one rank, one way, bytes/s (0 = the best that was observed)
    """

    group_kind: str = ""
    group: str = ""
    ranks: str = ""
    groups: str = ""
    nic_bytes_per_s: float = 0.0


NO_CLOCK: Final = "the clocks of the hosts cannot be compared"
NO_WAIT: Final = "one member recorded alone, its root is not recorded, or its members disagree"
INSTANCE_COLUMNS: Final = (
    Column("group", "Group", doc="its description and ranks", show="text"),
    Column("kind", "Collective", doc="what it does", show="badge"),
    Column("peers", "Peers", doc="who sends to whom; of a batch of sends and receives (`p2p_batch`) of the rank that comes first",
           show="text", missing="no send or receive"),
    Column("seq", "Seq", doc="its number in the group, as recorded", missing="not recorded", rank=2),
    Column("step", "Step", doc="number of the step", missing="outside of every step"),
    Column("present", "Present", "count", "members that are recorded and matched", rank=2),
    Column("size", "Size", "count", "members of its group", missing="not recorded", rank=2),
    Column("dtype", "Type", doc="of its elements", show="badge", rank=2, missing="not recorded"),
    Column("bytes", "Bytes", "B", "size that its bandwidth is quoted for", missing="not recorded"),
    Column("transfer_ns", "Transfer", "ns", "duration of the member that came last", missing=NO_WAIT),
    Column("wait_ns", "Wait", "ns", "what its members waited for the last one, summed", show="bar", color="communication", missing=NO_WAIT),
    Column("late_rank", "Late rank", doc="the rank that the others waited for", missing=NO_WAIT),
    Column("lateness_ns", "Late by", "ns", "median duration less the shortest", missing=NO_WAIT, rank=3),
    Column("exposed_wait_ns", "Exposed wait", "ns", "wait of all members while nothing computes", missing=NO_WAIT),
    Column("exposed_transfer_ns", "Exposed transfer", "ns", "transfer of all members while nothing computes", missing=NO_WAIT,
           rank=2),
    Column("slack_ns", "Slack", "ns", "how long computation went on from when a member could start until it had to wait, the least of its "
           "members", rank=2, missing="computation waited for it on no member"),
    Column("required_bandwidth_bytes_per_s", "Needed", "B/s", "bus bandwidth at which the slack would hide it; above what the link carries "
           "nothing can", rank=2, missing="nothing waited for it, or there was no slack at all"),
    Column("parts", "Parts", "count", "calls that went out together as this one", rank=3),
    Column("start_skew_ns", "Starts apart", "ns", "last start less the first on the aligned clocks", rank=2, missing=NO_CLOCK),
    Column("end_skew_ns", "Ends apart", "ns", "last end less the first on the aligned clocks", rank=3, missing=NO_CLOCK),
    Column("status", "Status", doc="complete; partial: members are missing, the transfer is an upper bound; alone: no other "
           "rank's call is matched with it, as of a batch with several ranks; inconsistent: members "
           "name different kinds, types or sizes; apart: its ends are too far apart", show="badge"),
)  # fmt: skip
SIZE_COLUMNS: Final = (
    Column("kind", "Collective", doc="what it does", show="badge"),
    Column("group_kind", "Parallelism", doc="what its group serves", show="badge", missing="not known"),
    Column("level", "Across", doc=ACROSS, show="badge"),
    Column("size", "Ranks", "count", "members of the group"),
    Column("dtype", "Type", doc="of its elements", show="badge", rank=2, missing="not recorded"),
    Column("bytes", "Bytes", "B", "of one collective"),
    Column("count", "Count", "count", "collectives that can be compared: whole, even, of a known size"),
    Column("transfer_ns", "Transfer", "ns", "sum of their transfers", show="bar", color="communication"),
    Column("wait_ns", "Wait", "ns", "sum of the waits of all members"),
    Column("algorithm_bandwidth_bytes_per_s", "Algorithm", "B/s", "sum of sizes over sum of transfers", rank=2),
    Column("bus_bandwidth_bytes_per_s", "Bus", "B/s", "algorithm bandwidth times the factor of the collective"),
    Column("peak_bytes_per_s", "Peak", "B/s", "what the link carries one way", rank=2, missing="not known"),
    Column("peak_source", "Peak from", doc="where that is from", show="text", rank=2, missing="not known"),
    Column("efficiency", "Efficiency", "ratio", "bus bandwidth over peak", "efficiency", missing="the peak is not known"),
)
CURVE_COLUMNS: Final = (
    Column("level", "Across", doc=ACROSS, show="badge"),
    Column("kind", "Collective", doc="what it does", show="badge"),
    Column("size", "Ranks", "count", "members of the group"),
    Column("algorithm", "Algorithm", doc="algorithm and protocol, from the kernel's name", show="badge", missing="not named"),
    Column("alpha_ns", "Alpha", "ns", "what a call takes whatever its size", missing="not identifiable"),
    Column("bytes_per_s", "Bandwidth", "B/s", "by which its time grows with bytes on the link", missing="not identifiable"),
    Column("half_size_bytes", "Half size", "B", "bytes on the link at which alpha is half of the time", missing="not identifiable"),
    Column("residual", "Residual", "ns", "median distance from the curve", rank=2, missing="not identifiable"),
    Column("instances", "Collectives", "count", "that it is fitted to"),
    Column("identifiable", "Identified", doc="whether its collectives tell alpha from bandwidth", rank=2),
    Column("missing", "Missing", doc="what is missing for a curve", show="text", missing="nothing"),
)
PEER_COLUMNS: Final = (
    Column("source", "From", doc="rank that sends"),
    Column("target", "To", doc="rank that receives"),
    Column("bytes", "Bytes", "B", "of both below, in all steps that are shown", show="bar", color="communication"),
    Column("send_bytes", "Sent", "B", "by sends"),
    Column("all_to_all_bytes", "all_to_all", "B", "by all_to_all: its recorded shares, else equal ones"),
)
FACTS: Final = (
    *R.FACTS,
    Fact("collectives", "Collectives", "count", "different collectives of the job, matched over its ranks"),
    Fact("transfer_ns", "Transfer", "ns", "of all of them, each once"),
    Fact("wait_ns", "Waiting", "ns", "of all members for the last one"),
    Fact("wait_share", "", "ratio", "waits over waits and transfers of all members"),
    Fact("exposed_wait_ns", "Exposed wait", "ns", "waits of all members while nothing computes"),
    Fact("exposed_transfer_ns", "Exposed transfer", "ns", "transfers of all members while nothing computes"),
    Fact("inconsistent", "", "count", "collectives whose members name different kinds, types or sizes"),
)


@analysis(
    scope="ranks",
    title="Collectives",
    question="Do collectives wait for late ranks, or for the network?",
    group="Run",
    order=4,
    query=CollectivesQuery,
    tables={"by_size": SIZE_COLUMNS, "curves": CURVE_COLUMNS, "instances": INSTANCE_COLUMNS, "peers": PEER_COLUMNS, "left_out": R.LEFT_OUT},
    facts=FACTS,
    under="ranks",
    reduce=reports.SUMMARIES,
)
def run(workers: Sequence[RecordingReduction[RankSummary]], query: CollectivesQuery) -> Report:
    stated, chosen_ranks = told(query.groups), reports.with_ranks(query.ranks)
    found, job = reports.read_job(workers, query)
    kinds = group_kinds(job.calls, stated)
    sections: list[AnySection] = []
    chosen = _chosen(job, kinds, query, chosen_ranks)
    if len(job.calls):
        sizes = links.sizes_of(job.waits, kinds)
        sizes = sizes._replace(usable=sizes.usable & chosen)
        curves = links.curves(job.waits, sizes)
        sections = [
            _tiles(found, job, chosen), *_figure(job, sizes, curves), _size_table(job, kinds, sizes, query), _curve_table(curves),
            _instance_table(job, sizes, chosen, query), *_peers(job, chosen_ranks),
        ]  # fmt: skip
    return Report(
        analysis="collectives", title="Collectives", headline=R.incomparable(found) or _headline(job, chosen),
        notices=reports.notices(found, job), sections=[*sections, *R.left_out(found)],
    )  # fmt: skip


def _chosen(job: Job, kinds: Sequence[GroupKind], query: CollectivesQuery, ranks: Ints | None) -> Mask:
    """Returns the collectives that a query chooses."""
    found, calls = job.found, job.calls
    out = np.ones(len(found), np.bool_)
    of = calls.group_of_channel[found.channel] if len(found) else np.zeros(0, np.int64)
    if query.group_kind.strip():
        wanted = query.group_kind.strip().lower()
        out &= np.array([k.kind.lower() == wanted for k in kinds] or [False], np.bool_)[of]
    if query.group.strip():
        text = query.group.strip().lower()
        out &= np.array([text in g.label.lower() for g in calls.groups] or [False], np.bool_)[of]
    if ranks is not None and len(found):
        has = np.isin(calls.ranks, ranks)[calls.at[found.rows]]
        out &= np.asarray(found.most(has), np.bool_)
    return out


# -- Tables -----------------------------------------------------------------------------------------------------------


def _sums(job: Job, values: Ints) -> Ints:
    """Returns the sum of each collective over its members, -1 where one is not known. values: of each call, -1 unknown."""
    found = job.found
    own = values[found.rows]
    total = np.zeros(len(found), np.int64)
    np.add.at(total, found.number, np.maximum(own, 0))
    return np.where(np.asarray(found.least(own), np.int64) >= 0, total, -1) if len(found) else total


def _known(values: np.ndarray) -> pd.Series:  # type: ignore[type-arg]
    """Returns whole numbers, None for those below 0."""
    return pd.Series([v if v >= 0 else None for v in values.tolist()], dtype=object)


def status_of(job: Job) -> list[str]:
    """Returns what can be said of each collective in one word."""
    found = job.found
    rules = [found.inconsistent, found.present == 1, job.waits.apart, found.present < found.size]
    return np.select(rules, ["inconsistent", "alone", "apart", "partial"], "complete").tolist()  # type: ignore[no-any-return]


def peers_of(job: Job) -> list[str | None]:
    """Returns who sends to whom in each collective as its first call records it; None of other kinds."""
    calls, first = job.calls, job.found.first
    out: list[str | None] = [None] * len(first)
    sent = calls.messages
    low, high = np.searchsorted(sent.row, first), np.searchsorted(sent.row, first, side="right")
    for place in np.flatnonzero(high > low).tolist():
        ends = zip(sent.source[low[place] : high[place]].tolist(), sent.target[low[place] : high[place]].tolist(), strict=True)
        partner = int(calls.partner[first[place]])
        between = f"{calls.ranks[calls.at[first[place]]]} and {partner}" if partner >= 0 else "not recorded"
        out[place] = ", ".join(_pair(*pair) or between for pair in dict.fromkeys(ends))
    return out


def _pair(source: int, target: int) -> str:
    """Returns who sends to whom, "" where neither is known."""
    return " to ".join(str(rank) if rank >= 0 else "unknown" for rank in (source, target)) if max(source, target) >= 0 else ""


def slack_of(job: Job) -> Ints:
    """Returns the least slack of each collective over the members on which computation waited for it, -1 where it did on none."""
    found = job.found
    own = job.calls["slack_ns"][found.rows]
    most = np.iinfo(np.int64).max
    least = np.asarray(found.least(np.where(own >= 0, own, most)), np.int64)
    return np.where(least < most, least, -1)


def _instance_table(job: Job, sizes: links.Sizes, chosen: Mask, query: CollectivesQuery) -> TableSection:
    found, calls, waited = job.found, job.calls, job.waits
    first = found.first
    of = calls.group_of_channel[found.channel] if len(found) else np.zeros(0, np.int64)
    dtype = [DTYPES[d] if d >= 0 else None for d in calls["dtype"][first].tolist()]
    names = [g.label for g in calls.groups]
    frame = pd.DataFrame({
        "group": [names[i] for i in of.tolist()], "kind": [KINDS[k] for k in calls["kind"][first].tolist()],
        "seq": _known(calls["seq"][first]), "step": _known(calls["step"][first]), "present": found.present, "size": _known(found.size),
        "dtype": pd.Series(dtype, dtype=object),
        "bytes": _known(sizes.size), "transfer_ns": _known(waited.transfer_ns), "late_rank": _known(waited.late_rank),
        "lateness_ns": _known(waited.lateness_ns), "wait_ns": _known(_sums(job, waited.wait_of_call)),
        "start_skew_ns": whole_numbers(waited.start_skew_ns), "end_skew_ns": whole_numbers(waited.end_skew_ns),
        "exposed_wait_ns": _known(_sums(job, waited.exposed_wait)), "exposed_transfer_ns": _known(_sums(job, waited.exposed_transfer)),
        "status": status_of(job),
    })  # fmt: skip
    frame["peers"] = pd.Series(peers_of(job), dtype=object)
    slack = slack_of(job)
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = np.where((slack > 0) & (sizes.size > 0), sizes.size * sizes.factor / slack * 1e9, np.nan)
    frame["slack_ns"], frame["required_bandwidth_bytes_per_s"], frame["parts"] = _known(slack), needed, calls["parts"][first]
    peak = links.peaks(waited, sizes, links.link_of(calls.summaries), max(query.nic_bytes_per_s, 0.0))
    known = {level: one.bytes_per_s for level, one in peak.items() if one.bytes_per_s is not None and not one.observed}
    too_much = (needed > np.array([known.get(level, np.inf) for level in sizes.level.tolist()], np.float64))[chosen]
    frame = frame[chosen].reset_index(drop=True)
    above = Mark("flagged", "more than the link carries: computation cannot hide it")
    bound = Mark("estimated", "at most: members are not recorded")
    marks = {
        "transfer_ns": {str(i): bound for i in np.flatnonzero((frame["status"] == "partial").to_numpy()).tolist()[:1_000]},
        "required_bandwidth_bytes_per_s": {str(i): above for i in np.flatnonzero(too_much).tolist()[:1_000]},
    }
    hidden = frozenset() if frame["peers"].notna().any() else frozenset({"peers"})
    return make_table(
        "instances", "Collectives", frame, R.columns_of(INSTANCE_COLUMNS, [True], hidden), sort=Sort("wait_ns"), marks=marks,
        filters=["kind", "status"],
        empty="No collective names its group or its ranks: nothing can be matched.",
        footer="Waits and transfers need no common clock. What is exposed is summed over the members.",
    )  # fmt: skip


def _size_table(job: Job, kinds: Sequence[GroupKind], sizes: links.Sizes, query: CollectivesQuery) -> TableSection:
    link = links.link_of(job.calls.summaries)
    frame = links.by_size(job.waits, kinds, sizes, links.peaks(job.waits, sizes, link, max(query.nic_bytes_per_s, 0.0)))
    for name in ("group_kind", "dtype", "peak_source"):
        frame[name] = pd.Series([text or None for text in frame[name].tolist()], dtype=object)
    return make_table(
        "by_size", "By size", frame, SIZE_COLUMNS, sort=Sort("transfer_ns"), filters=["kind", "level"],
        empty="No collective of a known size has all of its members recorded.",
        subtitle="bandwidth of transfers alone: waits for late ranks are no part of it",
    )  # fmt: skip


def _curve_table(curves: Sequence[links.Curve]) -> TableSection:
    frame = pd.DataFrame({
        "level": [c.level for c in curves], "kind": [c.kind for c in curves], "size": [c.size for c in curves],
        "algorithm": pd.Series([c.algorithm or None for c in curves], dtype=object),
        "alpha_ns": whole_numbers([c.alpha_ns for c in curves]),
        "bytes_per_s": [c.bytes_per_s for c in curves], "half_size_bytes": whole_numbers([c.half_size_bytes for c in curves]),
        "residual": whole_numbers([c.residual_ns for c in curves]), "instances": [c.instances for c in curves],
        "identifiable": [not c.why_not for c in curves], "missing": pd.Series([c.why_not or None for c in curves], dtype=object),
    })  # fmt: skip
    return make_table(
        "curves", "Message curves", frame, CURVE_COLUMNS, sort=Sort("instances"),
        subtitle="transfer = alpha + bytes on the link / bandwidth", empty="No collective of a known size has all of its members recorded.",
    )  # fmt: skip


def _figure(job: Job, sizes: links.Sizes, curves: Sequence[links.Curve]) -> list[FigureSection]:
    """Draws transfers over bytes on the link, and the curves through them."""
    some = np.flatnonzero(sizes.usable)
    if not len(some):
        return []
    some = some[np.unique(np.linspace(0, len(some) - 1, min(len(some), POINTS)).astype(np.int64))]
    wire = sizes.size * sizes.factor
    kind = job.calls["kind"][job.found.first]
    tokens = ("communication", "compute", "memcpy", "attention", "norm", "other")
    data: list[F.Plain] = []
    for place, one in enumerate(np.unique(kind[some]).tolist()):
        mine = some[kind[some] == one]
        text = [f"<b>{KINDS[one]}</b>, {human(float(w), 'B')} on the link<br>{human(float(t), 'ns')}"
                for w, t in zip(wire[mine].tolist(), job.waits.transfer_ns[mine].tolist(), strict=True)]  # fmt: skip
        data.append({
            "type": "scatter", "mode": "markers", "name": KINDS[one].replace("_", " "), "x": wire[mine].tolist(),
            "y": (job.waits.transfer_ns[mine] / 1e3).tolist(), "hovertext": text, "hoverinfo": "text",
            "marker": {"size": 6, "opacity": 0.6, "symbol": list(F.MARKS.values())[place % 6], "color": F.light(tokens[place % 6])},
        })  # fmt: skip
    for curve in curves:
        if curve.why_not:
            continue
        x = np.geomspace(max(wire[some].min(), 1.0), wire[some].max(), 60)
        y = (curve.alpha_ns + x / curve.bytes_per_s * 1e9) / 1e3
        data.append({
            "type": "scatter", "mode": "lines", "name": f"{curve.level}, {human(curve.size, 'count')} ranks",
            "x": x.tolist(), "y": y.tolist(), "line": {"color": F.light("ink-2"), "width": 1.4, "dash": "dash"},
            "hoverinfo": "name", "showlegend": False,
        })  # fmt: skip
    drawn = F.figure(
        data, x=F.axis("bytes on the link", **F.sizes(float(wire[some].min()), float(wire[some].max()))),
        y=F.axis("transfer, µs", type="log"), showlegend=len(np.unique(kind[some])) > 1, legend={"orientation": "h", "y": 1.12, "x": 0},
    )  # fmt: skip
    return [FigureSection(
        id="curves_figure", title="Transfer by size", subtitle="each point is one collective; dashed: alpha + bytes / bandwidth",
        figure=drawn, height=320, table="curves",
        summary=f"Transfers of {human(len(some), 'count')} collectives over their bytes on the link.",
    )]  # fmt: skip


# -- Summary ----------------------------------------------------------------------------------------------------------


def _totals(job: Job, chosen: Mask) -> dict[str, int]:
    waited = job.waits
    rows = chosen[job.found.number] if len(job.found) else np.zeros(0, np.bool_)
    calls = job.found.rows[rows]
    own = [waited.wait_ns[rows], waited.exposed_wait[calls], waited.exposed_transfer[calls]]
    wait, exposed_wait, exposed_transfer = (int(v[v >= 0].sum()) for v in own)
    transfer = waited.transfer_ns[chosen]
    known = waited.wait_ns[rows] >= 0
    return {
        "transfer": int(transfer[transfer >= 0].sum()), "wait": wait, "exposed_wait": exposed_wait, "exposed_transfer": exposed_transfer,
        "all": int(job.calls["duration_ns"][calls][known].sum()), "known": int(known.sum()),
    }  # fmt: skip


def _peers(job: Job, chosen: Ints | None) -> list[AnySection]:
    """Returns who sends how much to whom, as a matrix and a table; nothing without sends and all_to_all. chosen: ranks; None: all."""
    frame = traffic(job.calls)
    if chosen is not None:
        frame = frame[np.isin(frame["source"], chosen) | np.isin(frame["target"], chosen)].reset_index(drop=True)
    if not len(frame):
        return []
    frame["bytes"] = frame["send_bytes"] + frame["all_to_all_bytes"]
    left = any(one.peers_left for one in job.calls.summaries)
    text = "of some ranks the shares of their all_to_all are too many to keep" if left else "what a rank keeps for itself is left out"
    table = make_table("peers", "From rank to rank", frame, PEER_COLUMNS, sort=Sort("bytes"), footer=f"{capitalized(text)}.")
    return [*_matrix(job, frame), table]


def _matrix(job: Job, frame: pd.DataFrame) -> list[FigureSection]:
    """Draws bytes from rank to rank; of many ranks from host to host."""
    calls = job.calls
    ranks = np.unique(np.concatenate((frame["source"], frame["target"])))
    names, place = [str(r) for r in ranks.tolist()], {rank: i for i, rank in enumerate(ranks.tolist())}
    by_host = len(ranks) > MOST_RANKS and 1 < len(calls.domains) <= MOST_RANKS
    if by_host:
        host = dict(zip(calls.ranks.tolist(), calls.domain.tolist(), strict=True))
        names, place = [*calls.domains, "not recorded"], {rank: host.get(rank, len(calls.domains)) for rank in ranks.tolist()}
    if len(names) > MOST_RANKS + 1:
        return []
    z = np.zeros((len(names), len(names)))
    np.add.at(z, tuple(np.array([place[r] for r in frame[end].tolist()]) for end in ("source", "target")), frame["bytes"].to_numpy())
    scale, unit = scale_of(float(z.max()), "B")
    text = [[f"<b>{F.escape(a)} to {F.escape(b)}</b><br>{human(v, 'B')}" for b, v in zip(names, line, strict=True)]
            for a, line in zip(names, z.tolist(), strict=True)]  # fmt: skip
    data: list[F.Plain] = [{
        "type": "heatmap", "x": names, "y": names, "z": [[v / scale if v else None for v in line] for line in z.tolist()], "zmin": 0,
        "zmax": float(z.max()) / scale, "text": text, "hoverinfo": "text", "hoverongaps": False,
        "colorscale": [[0, F.light("accent-bg")], [0.5, F.light("accent-line")], [1, F.light("accent")]],
        "colorbar": {"thickness": 8, "len": 0.9, "outlinewidth": 0, "title": {"text": unit, "font": {"size": 11.5}},
                     "tickfont": {"size": 11, "color": F.light("ink-3")}},
    }]  # fmt: skip
    what = "host" if by_host else "rank"
    drawn = F.figure(
        data, x=F.axis(f"to {what}", type="category", showgrid=False, nticks=24), margin={"l": 90, "r": 8, "t": 10, "b": 46},
        y=F.axis(f"from {what}", type="category", showgrid=False, autorange="reversed", nticks=24),
    )  # fmt: skip
    top = np.unravel_index(int(z.argmax()), z.shape)
    return [FigureSection(
        id="peers_figure", title=f"From {what} to {what}", subtitle="bytes of sends and all_to_all", figure=drawn, table="peers",
        height=int(min(max(200, 90 + 16 * len(names)), 560)),
        summary=f"Most bytes go from {what} {names[int(top[0])]} to {what} {names[int(top[1])]}: {human(float(z.max()), 'B')}.",
    )]  # fmt: skip


def _headline(job: Job, chosen: Mask) -> str:
    total = _totals(job, chosen)
    if not total["known"]:
        return "No collective of these ranks is matched with one of another rank: how long they wait is not known."
    share = total["wait"] / max(total["all"], 1)
    what = f"**{human(share, 'ratio')}** of the time in collectives is waiting for the rank that comes last"
    if share > 0.5:
        return f"{what}: see to the late ranks, not the network."
    return f"{what}; the rest, {human(total['all'] - total['wait'], 'ns')} over all ranks, is transfer."


def _tiles(found: Ranks[RankSummary], job: Job, chosen: Mask) -> AnySection:
    total = _totals(job, chosen)
    known = total["known"] > 0
    values: dict[str, Scalar] = {
        **R.facts(found), "collectives": int(chosen.sum()), "transfer_ns": total["transfer"] if known else None,
        "wait_ns": total["wait"] if known else None, "wait_share": total["wait"] / total["all"] if total["all"] else None,
        "exposed_wait_ns": total["exposed_wait"] if known else None, "exposed_transfer_ns": total["exposed_transfer"] if known else None,
        "inconsistent": int((job.found.inconsistent & chosen).sum()),
    }  # fmt: skip
    notes = {"workers_read": R.read_note(found), "wait_ns": "summed over members", "exposed_wait_ns": "while nothing computes"}
    shown = ("workers_read", "collectives", "wait_ns", "exposed_wait_ns", "exposed_transfer_ns")
    return R.tiles(values, FACTS, title="Collectives", shown=shown, notes=notes)
