"""What can be asked of the scaling page, and what its tables hold."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.goodput.terms import Wanted
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import Column


class ScalingQuery(Query, kw_only=True, frozen=True):
    """Under which terms the fitted model is asked. What is left open is as recorded, or follows from the points.

    runs: names of the runs to take, separated by commas ("" = those in one folder with the run that is shown, and of one model and device)
    per_node: replicas that fill a node
    max_replicas: largest count of replicas to look at
    init_batch: total batch size that the job was made for, at which a sample is worth most
    max_batch: largest total batch size
    min_micro: smallest micro-batch of a replica
    max_micro: largest micro-batch of a replica, as memory allows
    accumulation: whether gradients may be accumulated over several micro-batches
    share: a further replica pays while it brings at least this part of what one replica does, in %
    price: of one device and hour, in whatever currency ("" = costs are not shown)
    grad_sqr: squared norm of the gradient, for statistical efficiency
    grad_var: variance of the gradient, for statistical efficiency
    points: a JSON or CSV file of points on this machine, beside those of the recordings
    """

    runs: str = ""
    per_node: int | None = None
    max_replicas: int | None = None
    init_batch: int | None = None
    max_batch: int | None = None
    min_micro: int | None = None
    max_micro: int | None = None
    accumulation: Literal["", "yes", "no"] = ""
    share: float = 50.0
    price: float | None = None
    grad_sqr: float | None = None
    grad_var: float | None = None
    points: str = ""

    LOCAL: ClassVar[tuple[str, ...]] = ("points",)
    LABELS: ClassVar[dict[str, str]] = {
        "per_node": "Replicas per node", "max_replicas": "Replicas at most", "init_batch": "Initial batch", "max_batch": "Batch at most",
        "min_micro": "Micro-batch from", "max_micro": "Micro-batch to", "share": "Pays from, %", "price": "Price per device hour",
        "grad_sqr": "Gradient norm²", "grad_var": "Gradient variance",
    }  # fmt: skip
    GROUPS: ClassVar[dict[str, tuple[str, ...]]] = {
        "Job": ("max_replicas", "per_node", "max_batch", "max_micro", "accumulation", "init_batch", "min_micro"),
        "Worth": ("share", "price", "grad_sqr", "grad_var", "runs"),
    }
    SELDOM: ClassVar[tuple[str, ...]] = ("init_batch", "min_micro", "grad_sqr", "grad_var", "runs")
    SLIDERS: ClassVar[dict[str, tuple[str, ...]]] = {
        "per_node": ("1", "2", "4", "8", "16"),
        "max_replicas": ("2", "4", "8", "16", "32", "64", "128", "256", "512", "1024"),
        "share": ("10.0", "20.0", "30.0", "40.0", "50.0", "60.0", "70.0", "80.0", "90.0"),
    }


POINTS: Final = (
    Column("run", "Run", doc="run that it was measured in", show="code", missing="given without a run"),
    Column("num_nodes", "Nodes", doc="nodes that the replicas ran on"),
    Column("num_replicas", "Replicas", doc="data-parallel replicas of the whole model"),
    Column("atomic_bsz", "Micro-batch", doc="samples of one micro-step on one replica"),
    Column("accum_measured_ns", "Without sync", "ns", "a micro-step without the wait for gradients, as measured"),
    Column("accum_predicted_ns", "Fit", "ns", "the same as the fit gives it", rank=2, missing="the point is not used, or there is no fit"),
    Column("optim_measured_ns", "Step", "ns", "a micro-step that reduces gradients and updates, as measured", show="bar", color="bar-ink"),
    Column("optim_predicted_ns", "Fit", "ns", "the same as the fit gives it", missing="there is no fit"),
    Column("residual", "Fit − measured", "ratio", "predicted step over measured step, less 1", missing="there is no fit"),
    Column("left_out_error", "Without it", "ratio", "the same where the fit did not see this configuration", rank=2,
           missing="without it a parameter would not be known, it is not used, or time was over"),
    Column("sync_ns", "Sync", "ns", "the wait for gradients, the part of their reduction behind which nothing is computed", rank=2),
    Column("steps", "Steps", "count", "steps that update", rank=2, missing="given, not recorded"),
    Column("accum_steps", "Accumulating", "count", "steps that only accumulate", rank=3, missing="given, not recorded"),
    Column("outliers", "Outliers", "count", "steps far from the median, left out", rank=3),
    Column("source", "From", doc="recorded by the program, read off a trace or the iterations of a SOL capture, or given by a person",
           show="badge"),
    Column("guessed", "Guessed", doc="what was worked out rather than told", show="text", rank=2, missing="nothing"),
    Column("why", "Not used", doc="why the fit does not take it", show="text", missing="it is used"),
    Column("id", "Id", doc="stable key of the row", rank=3),
)  # fmt: skip
PREDICTIONS: Final = (
    Column("num_nodes", "Nodes", doc="nodes, filled one after the other"),
    Column("num_replicas", "Replicas", doc="data-parallel replicas"),
    Column("atomic_bsz", "Micro-batch", doc="samples of a micro-step on a replica, at the best", missing="no batch size can be run"),
    Column("accum_steps", "Accumulation", doc="micro-steps beside the one that updates", missing="no batch size can be run"),
    Column("total_batch", "Total batch", "count", "samples of a step over all replicas", missing="no batch size can be run"),
    Column("step_ns", "Step", "ns", "time of a whole step, accumulation included", missing="no batch size can be run"),
    Column("throughput", "Samples per s", doc="samples per second, whatever they are worth", missing="no batch size can be run"),
    Column("efficiency", "Worth", "ratio", "what a sample is worth, against one at the initial batch size", "share",
           missing="gradient statistics are not known"),
    Column("goodput", "Goodput per s", doc="samples per second times what they are worth", show="bar", color="accent",
           missing="no batch size can be run"),
    Column("goodput_low", "From", doc="in 90 % of the fits to resampled points at least", rank=2, missing="too few points for a band"),
    Column("goodput_high", "To", doc="in 90 % of the fits to resampled points at most", rank=2, missing="too few points for a band"),
    Column("speedup", "Speedup", doc="goodput over that of one replica at its best", missing="one replica alone cannot be run"),
    Column("scaling_efficiency", "Per replica", "ratio", "speedup over replicas", "share", missing="one replica alone cannot be run"),
    Column("gain", "Gain", "ratio", "what each replica added here brings, in parts of one replica", missing="the first"),
    Column("cost", "Cost per M samples", doc="price of a million samples of full worth", missing="no price is given"),
    Column("observed", "Ran", doc="whether as many replicas ran on as many nodes", show="badge", rank=2),
    Column("id", "Id", doc="stable key of the row", rank=3),
)  # fmt: skip
PARAMETERS: Final = (
    Column("name", "Parameter", doc="of the model of step time", show="code"),
    Column("value", "Value", doc="in the unit of the next column", missing="the points do not determine it"),
    Column("unit", "Unit", doc="of the value", show="text"),
    Column("low", "From", doc="in 90 % of the fits to resampled points at least", missing="not determined, or too few points"),
    Column("high", "To", doc="in 90 % of the fits to resampled points at most", missing="not determined, or too few points"),
    Column("meaning", "Meaning", doc="what it stands for", show="text"),
    Column("rule", "Why not known", doc="what is missing, and what was taken in its place", show="text", missing="it is known"),
)
TERMS: Final = (
    Column("name", "Term", doc="under which the model is asked", show="text"),
    Column("value", "Value", doc="what is used", show="text", missing="not known"),
    Column("origin", "From", doc="who says so", show="text"),
)
NAMES: Final = ("alpha_c", "beta_c", "alpha_n", "beta_n", "alpha_r", "beta_r", "gamma")
FACTS: Final = {
    "objective": "what the fit makes small: error of the logarithms of both times, and small terms for overlap and slope",
    "reference_objective": "the same as a single search by slope from one fixed start reaches it",
    "alpha_c": "seconds of a micro-step that do not depend on its batch; null where the points do not determine it",
    "beta_c": "seconds of a micro-step per sample; null where not determined",
    "alpha_n": "seconds of synchronising two replicas on different nodes; null where not determined",
    "beta_n": "seconds more for every further replica across nodes; null where not determined",
    "alpha_r": "seconds of synchronising two replicas on one node; null where not determined",
    "beta_r": "seconds more for every further replica on a node; null where not determined",
    "gamma": "overlap of computing and synchronising: 1 none, 10 all but complete; null where not determined",
    "points": "points that the fit uses",
    "points_left_out": "points that it does not",
    "median_error": "median of the fit's relative error of the step time",
    "best_replicas": "replicas up to which adding pays",
    "best_batch": "total batch size with the highest goodput there",
    "best_goodput": "goodput there, samples per second",
    "best_speedup": "that over one replica at its best",
    "cost_per_million": "price of a million samples of full worth there",
}


def wanted(query: ScalingQuery) -> Wanted:
    """What was chosen. BadQuery for what cannot be."""
    for name in ("per_node", "max_replicas", "init_batch", "max_batch", "min_micro", "max_micro"):
        value = getattr(query, name)
        if value is not None and not 0 < value < 2**31:
            raise BadQuery(f"{name} is {value}", hint="give a count above 0", field=name)
    if not 0 <= query.share <= 100:
        raise BadQuery(f"share is {query.share:g} %", hint="give 0 to 100", field="share")
    if query.price is not None and not 0 <= query.price < 1e9:
        raise BadQuery(f"price is {query.price:g}", hint="give the price of one device for an hour", field="price")
    low, high = query.min_micro or 0, query.max_micro or 0
    if low and high and low > high:
        raise BadQuery(f"micro-batches from {low} to {high}", hint="let the first be the smaller", field="min_micro")
    if query.init_batch and query.max_batch and query.init_batch > query.max_batch:
        raise BadQuery(f"initial batch {query.init_batch} above the largest, {query.max_batch}", hint="raise max_batch", field="max_batch")
    return Wanted(
        initial=query.init_batch or 0, most=query.max_batch or 0, low=low, high=high,
        accumulation={"yes": True, "no": False}.get(query.accumulation), per_node=query.per_node or 0, replicas=query.max_replicas or 0,
        share=query.share / 100, sqr=query.grad_sqr, var=query.grad_var,
    )  # fmt: skip
