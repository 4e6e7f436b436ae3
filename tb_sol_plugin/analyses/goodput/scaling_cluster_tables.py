"""What can be asked of the cluster simulation, and what its tables hold."""

from __future__ import annotations

from typing import ClassVar, Final

from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import Column, Fact


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
