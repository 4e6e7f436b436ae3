"""Several jobs on one cluster: who should get how many devices, and what a larger cluster would bring. A simulation.

A job is a folder of runs, or a run that lies in none; each is fitted as on the page Scaling. Allocations make the sum of speedups (or
another mean of them) large, with at most one job per node that spans nodes. The replay lets jobs arrive at random and compares adapting
replicas with fixed ones. Nothing here was measured on a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pandas as pd

from tb_sol_plugin.cost.goodput.cluster import Allocation, Cluster, Job, allocate
from tb_sol_plugin.cost.goodput.simulate import Arrivals, JobClass, Replayed, arrivals, replay
from tb_sol_plugin.errors import BadQuery, Unavailable
from tb_sol_plugin.metrics.goodput.fit import RECORD, gather
from tb_sol_plugin.metrics.goodput.fit import jobs as jobs_of
from tb_sol_plugin.metrics.goodput.part import ScalingPart, part
from tb_sol_plugin.metrics.goodput.points import FILES
from tb_sol_plugin.metrics.goodput.predict import Prediction, TermsQuery
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.figure import escape
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.recordings import RecordingReduction, Sidecar
from tb_sol_plugin.model.registry import Reduction, analysis
from tb_sol_plugin.model.report import (
    AnySection,
    Column,
    Fact,
    FactsSection,
    FieldNow,
    FigureSection,
    Mark,
    Notice,
    Report,
    Scalar,
    Sort,
    make_facts,
    make_table,
)
from tb_sol_plugin.units import human

# -- Query and columns ------------------------------------------------------------------------------------------------


class ScalingClusterQuery(Query, kw_only=True, frozen=True):
    """A cluster, and the jobs of the logdir on it.

    nodes: nodes of the cluster
    per_node: devices of a node
    copies: how many of each job there are
    fairness: p of the mean of speedups that is made large: 1 the sum, below 0 those that gain least count most
    penalty: what a job loses for being moved or resized, in %
    arrivals: jobs that arrive in an hour, in the replay
    hours: of arrivals in the replay (0 = no replay)
    work: hours that a job would take on one replica, on average, in the replay
    asked: replicas of a job where nobody adapts them, in the replay
    """

    nodes: int = 4
    per_node: int = 8
    copies: int = 0
    fairness: float = 1.0
    penalty: float = 10.0
    arrivals: float = 10.0
    hours: float = 4.0
    work: float = 8.0
    asked: int = 8

    LABELS: ClassVar[dict[str, str]] = {
        "per_node": "Devices per node", "copies": "Copies of each job", "fairness": "Fairness, p", "penalty": "Restart penalty, %",
        "arrivals": "Arrivals per hour", "hours": "Hours of arrivals", "work": "Work of a job, hours on one", "asked": "Replicas if fixed",
    }  # fmt: skip
    SLIDERS: ClassVar[dict[str, tuple[str, ...]]] = {
        "nodes": ("1", "2", "4", "8", "16", "32", "64", "128", "256", "512", "1000"), "per_node": ("1", "2", "4", "8", "16"),
        "copies": ("1", "2", "4", "8", "16", "32"), "fairness": ("-10.0", "-2.0", "-1.0", "0.5", "1.0", "2.0"),
    }  # fmt: skip
    GROUPS: ClassVar[dict[str, tuple[str, ...]]] = {
        "Cluster": ("nodes", "per_node", "copies", "fairness", "penalty"),
        "Replay": ("arrivals", "hours", "work", "asked"),
    }
    SELDOM: ClassVar[tuple[str, ...]] = ("penalty",)


JOBS: Final = (
    Column("job", "Job", doc="folder of runs, or run, that the job is fitted to", show="code"),
    Column("nodes", "Nodes", doc="nodes that it gets"),
    Column("replicas", "Replicas", doc="replicas that it gets"),
    Column("batch", "Total batch", "count", "its best total batch size there", missing="it gets nothing"),
    Column("speedup", "Speedup", doc="goodput over that on one replica", show="bar", color="accent"),
    Column("per_replica", "Per replica", "ratio", "speedup over replicas", "share", missing="it gets nothing"),
    Column("seats", "Where", doc="devices on each node", show="text", missing="nowhere"),
    Column("id", "Id", doc="stable key of the row", rank=3),
)  # fmt: skip
SIZES: Final = (
    Column("nodes", "Nodes", doc="nodes of a cluster like this one"),
    Column("devices", "Devices", "count", "its devices"),
    Column("used", "In use", "count", "devices that the best allocation uses"),
    Column("speedup", "Sum of speedups", doc="over all jobs", show="bar", color="accent"),
    Column("gain", "Per device added", doc="what each device more brings to the sum", missing="the first"),
)
REPLAYED: Final = (
    Column("policy", "Policy", doc="how devices are given out", show="text"),
    Column("arrived", "Arrived", "count", "jobs that arrived"),
    Column("ended", "Ended", "count", "of these, jobs that ended within the time simulated"),
    Column("mean_ns", "Mean time", "ns", "from arrival to end, of the jobs that ended", show="bar", color="bar-ink", missing="none ended"),
    Column("median_ns", "Median", "ns", "the same, the median", missing="none ended"),
    Column("p95_ns", "95 %", "ns", "the same: 95 % of them ended sooner", missing="none ended"),
    Column("restarts", "Restarts", "count", "in all"),
    Column("use", "In use", "ratio", "devices in use, on average over the time simulated", "share"),
)
LEFT: Final = (
    Column("job", "Job", doc="left out", show="code"),
    Column("why", "Why", doc="what it lacks", show="text"),
)
FACTS: Final = (
    Fact("jobs", "Jobs", "count", "jobs on the cluster"),
    Fact("devices", "Devices", "count", "devices of the cluster"),
    Fact("devices_used", "Devices in use", "count", "devices that the allocation uses"),
    Fact("sum_speedup", "Sum of speedups", "", "sum of speedups over all jobs"),
    Fact("fitness", "Mean speedup", "", "p-mean of the speedups"),
    Fact("waiting", "Waiting", "count", "jobs that get nothing"),
    Fact("mean_time_ratio", "Fixed ÷ adapted time", "", "mean time from arrival to end with fixed replicas over that with adapted ones; "
         "null unless all jobs end in both"),
)  # fmt: skip


TITLE: Final = "Cluster"
MOST_JOBS: Final = 256
MOST_ARRIVALS: Final = 3_000
MOST_DRAWN: Final = 64
SIMULATED: Final = Mark("estimated", "simulated with the fits of the jobs")
COLORS: Final = ("compute", "communication", "attention", "conv", "norm", "elementwise", "DtoH", "other")


@dataclass(frozen=True)
class Found:
    """One job of the logdir: its name and what its fit says."""

    name: str
    prediction: Prediction


@analysis(
    scope="runs",
    title=TITLE,
    question="Which job should get how many devices of a cluster?",
    group="Experimental",
    order=31,
    query=ScalingClusterQuery,
    tables={"jobs": JOBS, "sizes": SIZES, "replay": REPLAYED, "left_out": LEFT},
    facts=FACTS,
    reduce=Reduction(part, fields=(), sol_log=True, files=FILES),
)
def run(workers: Sequence[RecordingReduction[ScalingPart]], files: Sequence[Sidecar], query: ScalingClusterQuery) -> Report:
    _check(query)
    jobs, left = _jobs(workers, files, query)
    if not jobs:
        why = next(iter(left.values()), "no recording here has the times of steps")
        raise Unavailable(f"no job can be fitted: {why}", hint=RECORD)
    copies = query.copies or max(1, 4 // len(jobs))
    names = [j.name if copies == 1 else f"{j.name} #{i + 1}" for j in jobs for i in range(copies)]
    owners = [j for j in jobs for _ in range(copies)]
    if len(names) > MOST_JOBS:
        raise BadQuery(f"{len(names)} jobs", hint=f"choose fewer copies: {MOST_JOBS} jobs at most", field="copies")
    cluster = Cluster.alike(query.nodes, query.per_node)
    on_it = [
        Job(name=name, speedup=o.prediction.speedup, max_replicas=min(cluster.total, o.prediction.terms.replicas))
        for name, o in zip(names, owners, strict=True)
    ]
    made = allocate(on_it, cluster, p=query.fairness, penalty=query.penalty / 100)
    sections: list[AnySection] = [_tiles(made, cluster, query), _seats(made, names, owners, jobs, cluster), _table(made, names, owners)]
    sizes = _sizes(on_it, query)
    sections += [_sizes_figure(sizes, query), make_table(
        "sizes", "Clusters of other sizes", sizes, SIZES, key="nodes", sort=Sort("nodes", descending=False), span=6,
        subtitle="the same jobs on clusters of as many devices per node",
    )]  # fmt: skip
    replayed = _replayed(jobs, query) if query.hours > 0 and query.arrivals > 0 else None
    if replayed is not None:
        sections += _replay_sections(replayed, cluster)
        facts = sections[0]
        assert isinstance(facts, FactsSection)
        facts.values["mean_time_ratio"] = _ratio(replayed)
    if left:
        frame = pd.DataFrame({"job": list(left), "why": list(left.values())})
        sections.append(make_table("left_out", "Jobs left out", frame, LEFT, key="job", subtitle="they are on no cluster here"))
    notices = [Notice("A simulation: fits of recorded jobs on a cluster that does not exist. Nothing here was measured.", "info")]
    notices += [Notice(n) for n in made.notes]
    return Report(
        analysis="scaling_cluster", title=TITLE, headline=_headline(made, names, cluster), notices=notices, sections=sections,
        fields={"copies": FieldNow(str(copies))},
    )  # fmt: skip


def _check(query: ScalingClusterQuery) -> None:
    for name, most in (("nodes", 1000), ("per_node", 64), ("asked", 4096)):
        if not 1 <= getattr(query, name) <= most:
            raise BadQuery(f"{name} is {getattr(query, name)}", hint=f"give 1 to {most}", field=name)
    if not 0 <= query.penalty < 100:
        raise BadQuery(f"penalty is {query.penalty:g} %", hint="give 0 up to below 100", field="penalty")
    if query.fairness == 0 or not -100 <= query.fairness <= 100:
        raise BadQuery(f"fairness is {query.fairness:g}", hint="give -100 to 100, and not 0", field="fairness")
    for name, least, highest in (("copies", 0.0, 256.0), ("hours", 0.0, 168.0), ("work", 0.01, 1e4), ("arrivals", 0.0, 1e4)):
        if not least <= getattr(query, name) <= highest:
            raise BadQuery(f"{name} is {getattr(query, name):g}", hint=f"give {least:g} to {highest:g}", field=name)
    if query.arrivals * query.hours > MOST_ARRIVALS:
        raise BadQuery(
            f"{query.arrivals * query.hours:,.0f} jobs in the replay", hint=f"choose fewer: {MOST_ARRIVALS:,} at most", field="arrivals"
        )


def _jobs(
    workers: Sequence[RecordingReduction[ScalingPart]], files: Sequence[Sidecar], query: ScalingClusterQuery
) -> tuple[list[Found], dict[str, str]]:
    """Returns jobs that can be fitted, and why the others cannot. The runs of a job lie in one folder, and are proven to be of it."""
    folders: dict[str, list[RecordingReduction[ScalingPart]]] = {}
    for w in workers:
        folders.setdefault(w.run.rpartition("/")[0], []).append(w)
    runs: dict[str, list[str]] = {}
    for folder, there in folders.items():
        groups = jobs_of(there)
        runs |= {(folder or own[0]) if len(groups) == 1 else own[0]: own for own in groups}
    out: list[Found] = []
    left: dict[str, str] = {}
    terms = TermsQuery(per_node=query.per_node, replicas=query.nodes * query.per_node)
    for name, own in runs.items():
        of_job = [w for w in workers if w.run in own]
        try:
            found = gather(of_job, files if len(runs) == 1 else [f for f in files if f.run in own], terms=terms, sure=False)
        except Unavailable as error:
            left[name] = error.message
            continue
        if found.prediction is None:
            left[name] = next(p.why for p in found.points)
        elif len({p.num_replicas for p in found.used}) < 2:
            left[name] = "measured with one count of replicas: what a further one brings is not known"
        elif found.doubts:
            left[name] = found.doubts[0]
        else:
            out.append(Found(name, found.prediction))
    return out, left


def _headline(made: Allocation, names: list[str], cluster: Cluster) -> str:
    waiting = sum(s.replicas == 0 for s in made.shapes)
    reached = human(float(made.speedups.sum()), "")
    text = f"{human(len(names), 'count')} jobs on {human(cluster.total, 'count')} devices reach **{reached} times** one device"
    rest = f"; {human(waiting, 'count')} wait" if waiting else ""
    unused = cluster.total - made.devices
    return f"{text}{rest}." + (f" {human(unused, 'count')} devices would bring nothing more." if unused else "")


def _tiles(made: Allocation, cluster: Cluster, query: ScalingClusterQuery) -> FactsSection:
    values: dict[str, Scalar] = {
        "sum_speedup": float(made.speedups.sum()), "fitness": made.mean if np.isfinite(made.mean) else None, "devices_used": made.devices,
        "jobs": len(made.shapes), "waiting": sum(s.replicas == 0 for s in made.shapes), "mean_time_ratio": None, "devices": cluster.total,
    }  # fmt: skip
    return make_facts(
        "answer", "Answer", values, FACTS, weight="headline", style="tiles", hidden=["devices"],
        marks={"sum_speedup": SIMULATED, "fitness": SIMULATED},
        notes={"devices_used": f"of {human(cluster.total, 'count')}", "fitness": f"p = {query.fairness:g}",
               "mean_time_ratio": "from arrival to end, in the replay"},
    )  # fmt: skip


def _table(made: Allocation, names: list[str], owners: list[Found]) -> AnySection:
    rows = []
    for name, owner, shape, seats, speedup in zip(names, owners, made.shapes, made.seats, made.speedups.tolist(), strict=True):
        batch = None
        if shape.replicas:
            t = owner.prediction.terms
            best = owner.prediction.goodput.optimize(shape.nodes, shape.replicas, t.most, (t.low, t.high), t.accumulation, strict=True)
            batch = int(shape.replicas * best.atomic_bsz * (best.accum_steps + 1)) or None
        where = ", ".join(f"node {n}: {d}" for n, d in sorted(seats.items()))
        each = speedup / shape.replicas if shape.replicas else None
        rows.append((name, shape.nodes, shape.replicas, batch, speedup, each, where or None, name))
    frame = pd.DataFrame(rows, columns=[c.name for c in JOBS])
    frame["batch"], frame["per_replica"] = pd.to_numeric(frame["batch"]), pd.to_numeric(frame["per_replica"])
    return make_table(
        "jobs", "Allocation", frame, JOBS, key="id", sort=Sort("speedup"), span=6,
        subtitle="makes the mean of speedups large; at most one job per node spans nodes",
    )  # fmt: skip


def _seats(made: Allocation, names: list[str], owners: list[Found], jobs: list[Found], cluster: Cluster) -> FigureSection:
    """Draws nodes as bars, the jobs on each stacked, colored by kind of job."""
    nodes = min(len(cluster.devices), MOST_DRAWN)
    place = {j.name: i for i, j in enumerate(jobs)}
    data: list[F.Plain] = []
    for name, owner, seats in zip(names, owners, made.seats, strict=True):
        bars = {n: d for n, d in seats.items() if n < nodes}
        if not bars:
            continue
        data.append({
            "type": "bar", "orientation": "h", "y": [f"node {n}" for n in bars], "x": list(bars.values()), "customdata": [name] * len(bars),
            "marker": {**F.fill(COLORS[place[owner.name] % len(COLORS)]), "line": {"width": 1.2, "color": F.light("surface")}},
            "hoverinfo": "text", "hovertext": [f"<b>{escape(name)}</b><br>{d} devices on node {n}" for n, d in bars.items()],
            "text": [escape(name) if d * 14 >= len(name) else "" for d in bars.values()], "textposition": "inside",
            "insidetextanchor": "middle",
        })  # fmt: skip
    order = [f"node {n}" for n in range(nodes)]
    y = F.axis(type="category", categoryorder="array", categoryarray=order, autorange="reversed", showgrid=False)
    more = f", the first {nodes} of {len(cluster.devices)} nodes" if nodes < len(cluster.devices) else ""
    return FigureSection(
        id="seats", title="Who sits where", subtitle=f"devices of each node{more}", span=6, table="jobs",
        figure=F.figure(data, x=F.axis("devices", range=[0, max(cluster.devices) * 1.02]), y=y, barmode="stack", bargap=0.25),
        height=max(160, min(40 + 26 * nodes, 620)),
        summary=f"{made.devices} of {cluster.total} devices are given to {sum(s.replicas > 0 for s in made.shapes)} jobs.",
    )  # fmt: skip


def _sizes(jobs: list[Job], query: ScalingClusterQuery) -> pd.DataFrame:
    counts = sorted({1, max(query.nodes // 4, 1), max(query.nodes // 2, 1), query.nodes, min(2 * query.nodes, 1000)})
    found = [(n, allocate(jobs, Cluster.alike(n, query.per_node), p=query.fairness)) for n in counts]
    speedups = np.array([float(a.speedups.sum()) for _, a in found])
    devices = np.array([n * query.per_node for n, _ in found])
    gain = np.concatenate([[np.nan], np.diff(speedups) / np.diff(devices)]) if len(found) > 1 else np.array([np.nan])
    return pd.DataFrame({
        "nodes": [n for n, _ in found], "devices": devices, "used": [a.devices for _, a in found], "speedup": speedups, "gain": gain,
    })  # fmt: skip


def _sizes_figure(sizes: pd.DataFrame, query: ScalingClusterQuery) -> FigureSection:
    x, y = sizes["devices"].tolist(), sizes["speedup"].tolist()
    data: list[F.Plain] = [
        {"type": "scatter", "mode": "lines", "x": x, "y": x, "line": {"color": F.light("ink-3"), "width": 1, "dash": "2px,4px"},
         "hoverinfo": "skip"},
        {"type": "scatter", "mode": "lines+markers", "x": x, "y": y, "line": {"color": F.light("accent"), "width": 2},
         "marker": {"size": 8, "color": F.light("accent")}, "customdata": sizes["nodes"].tolist(), "hoverinfo": "text",
         "hovertext": [f"<b>{n} nodes</b><br>sum of speedups {human(v, '')}" for n, v in zip(sizes["nodes"].tolist(), y, strict=True)]},
    ]  # fmt: skip
    return FigureSection(
        id="over_sizes", title="What a larger cluster brings", subtitle="sum of speedups of the same jobs; dotted: one per device", span=6,
        figure=F.figure(data, x=F.axis("devices"), y=F.axis("sum of speedups", range=[0, max(y) * 1.3 or 1])), height=280, table="sizes",
        summary=f"Sum of speedups over the size of the cluster, at {query.per_node} devices a node.",
    )  # fmt: skip


def _replayed(jobs: list[Found], query: ScalingClusterQuery) -> tuple[Replayed, Replayed]:
    """Returns the same arrivals with replicas adapted, and with as many for each as it asks for."""
    cluster = Cluster.alike(query.nodes, query.per_node)
    classes = [
        JobClass(name=j.name, speedup=j.prediction.speedup, max_replicas=min(cluster.total, j.prediction.terms.replicas), hours=query.work,
                 requested=min(query.asked, cluster.total)) for j in jobs
    ]  # fmt: skip
    came: Arrivals = arrivals(classes, per_hour=query.arrivals, hours=query.hours)
    length = query.hours + 20 * query.work
    adapted = replay(classes, cluster, came, hours=length, policy="goodput", p=query.fairness)
    return adapted, replay(classes, cluster, came, hours=length, policy="fixed", p=query.fairness)


def _replay_sections(two: tuple[Replayed, Replayed], cluster: Cluster) -> list[AnySection]:
    rows = []
    for one, words in zip(two, WORDS, strict=True):
        took = (one.end_s - one.arrivals.time_s)[np.isfinite(one.end_s)] * 1e9
        known = len(took) > 0
        rows.append({
            "policy": words, "arrived": len(one.arrivals.time_s), "ended": one.ended, "mean_ns": took.mean() if known else np.nan,
            "median_ns": np.median(took) if known else np.nan, "p95_ns": np.quantile(took, 0.95) if known else np.nan,
            "restarts": int(one.restarts.sum()), "use": float(one.devices.mean() / cluster.total) if len(one.devices) else np.nan,
        })  # fmt: skip
    table = make_table(
        "replay", "Replay of arrivals", pd.DataFrame(rows), REPLAYED, key="policy", span=12,
        subtitle="the same jobs, arriving at random times with random work, under two policies",
        footer="The seed is fixed: the same question gives the same jobs.",
    )  # fmt: skip
    last = max(float(t.time_s[-1]) if len(t.time_s) else 0.0 for t in two)
    data: list[F.Plain] = []
    for one, words, token, dash in zip(two, WORDS, ("accent", "ink-2"), ("solid", "5px,4px"), strict=True):
        keep = np.unique(np.linspace(0, max(len(one.time_s) - 1, 0), 600).astype(int)) if len(one.time_s) else np.zeros(0, int)
        hours, waiting = (one.time_s[keep] / 3600).tolist(), (one.running + one.waiting)[keep].tolist()
        data.append({
            "type": "scatter", "mode": "lines", "x": hours, "y": waiting, "name": words, "hoverinfo": "text",
            "line": {"color": F.light(token), "width": 1.8, "dash": dash, "shape": "hv"},
            "hovertext": [f"<b>{words}</b><br>{h:.1f} h: {w} jobs in the cluster" for h, w in zip(hours, waiting, strict=True)],
        })  # fmt: skip
    figure = FigureSection(
        id="queue", title="Jobs in the cluster over time", subtitle="solid: replicas adapted, dashed: as many as each asks for", span=12,
        figure=F.figure(data, x=F.axis("hours", range=[0, last / 3600 or 1]), y=F.axis("jobs running or waiting", rangemode="tozero")),
        height=280, table="replay", summary="Jobs that run or wait over time, with replicas adapted and with fixed ones.",
    )  # fmt: skip
    return [figure, table]


def _ratio(two: tuple[Replayed, Replayed]) -> float | None:
    adapted, fixed = two
    every = len(adapted.arrivals.time_s)
    if not every or adapted.ended < every or fixed.ended < every:
        return None
    return fixed.mean_time_s / adapted.mean_time_s


WORDS: Final = ("replicas adapted", "as many as asked for")
"""The two policies of the replay."""
