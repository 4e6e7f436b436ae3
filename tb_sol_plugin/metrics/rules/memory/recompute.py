"""Finds activations that recomputing would free: bytes by class of layers, and what running their forward work again costs.

Freed of n layers of one class are (1 - 1/n) of their activations: while one runs again, its own are there. The inputs of the layers stay,
so it is at most that. The cost is the measured time of the forward operators of these layers in a step, or their limit where no time
is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.metrics.memory.attribution import attribution
from tb_sol_plugin.metrics.memory.categories import NAMES, categories, owners
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.rules.engine import Answer, Finding, Missing, rule
from tb_sol_plugin.metrics.rules.memory.context import ACTIVATION_SHARE, FEWEST_LAYERS, LAYER_SHARE, MemoryContext, bytes_in, last_parts
from tb_sol_plugin.metrics.rules.memory.pieces import part_pieces, pieces
from tb_sol_plugin.metrics.trees.module_tree import module_tree
from tb_sol_plugin.metrics.work.work import Work, work
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Ints
from tb_sol_plugin.units import human

HOW: Final = "record a training step with profile(profile_memory=True, with_stack=True, record_shapes=True)"
COLUMNS: Final = ("class_name", "layers", "bytes", "saving_bytes", "cost_ns", "by_limit", "bytes_per_ms")


@dataclass(frozen=True)
class Recompute:
    """What recomputing activations would free and cost.

    activations: bytes in use as activations at the peak; forward_ns: forward work of a step, NaN unknown, by_limit: it is a limit.

    classes: COLUMNS by class of modules, modules inside of others of their class left out: layers (instances), bytes (activations made
    in them and below, in use at the peak), saving_bytes, cost_ns (NaN unknown), bytes_per_ms of the cost. layers: these instances:
    class_name, name, bytes.
    """

    activations: int
    forward_ns: float
    by_limit: bool
    classes: pd.DataFrame
    layers: pd.DataFrame


def recompute(capture: Capture, curve: Curves, limits: str = "") -> Recompute | None:
    """Weighs recomputing activations, by a curve of memory events; None where nothing in use at the peak was made by forward work."""
    return memo(capture, ("memory.recompute", curve.device, curve.source, limits), lambda: _recompute(capture, curve, limits))


def _recompute(capture: Capture, curve: Curves, limits: str) -> Recompute | None:
    device = next((d for d in R.devices(capture) if d.label == curve.device), None)
    if curve.source != "events" or device is None:
        return None
    r = R.replay(capture, device)
    found = R.allocations(capture, device)
    first, stop = found["first"].to_numpy(), found["stop"].to_numpy()
    place = r.peak
    activations = categories(capture, device)["category"].to_numpy() == NAMES.index("activations")
    activations &= (first >= 0) & (first <= place) & ((stop < 0) | (stop > place))
    if not activations.any():
        return None
    size = found["bytes"].to_numpy()[activations]
    made = work(capture, device_for(capture, limits))
    if not arrays.where(made.ops["direction"], lambda d: d == "bwd").any():
        return None  # without a backward pass nothing is kept for one
    time, by_limit, steps = _forward(capture, made)
    tree = module_tree(capture)
    count = len(tree.name)
    module = owners(capture)["module"].to_numpy()[found["row"].to_numpy()[activations]]
    module_bytes = _below(tree.end, _node(tree.node, module), size, count)
    rows = np.flatnonzero(time > 0)
    ns = time[rows] / steps
    cost = _below_floats(tree.end, _node(tree.node, made.ops["module"].to_numpy()[rows]), ns, count)
    total = float(ns.sum()) if len(rows) else np.nan
    outer = _outermost(tree.class_name, tree.parent, module_bytes)
    layers = pd.DataFrame({
        "class_name": [tree.class_name[n] for n in outer], "name": [tree.name[n] for n in outer], "bytes": module_bytes[outer],
        "cost_ns": cost[outer],
    })  # fmt: skip
    return Recompute(int(size.sum()), total, by_limit, _classes(layers, by_limit), layers)


def _forward(capture: Capture, made: Work) -> tuple[Floats, bool, int]:
    """Returns (ns per call, 0 for all but forward work, whether they are limits, steps that they are of)."""
    ops = made.ops
    forward = arrays.where(ops["direction"], lambda d: d == "fwd") & ~ops["recompute"].to_numpy()
    step = ops["step"].to_numpy()
    counted = forward & (step >= 0) if not capture.facts.pseudo_step and (forward & (step >= 0)).any() else forward
    steps = max(len(np.unique(step[counted])), 1) if not capture.facts.pseudo_step else 1
    by_limit = not made.timed
    column = ops["sol_ns" if by_limit else "measured_ns"].to_numpy(dtype=np.float64)
    return np.where(counted & np.isfinite(column), column, 0.0), by_limit, steps


def _node(node: npt.NDArray[np.int32], rows: npt.NDArray[np.integer]) -> Ints:
    """Returns the node of the tree per host row, -1 outside of every module."""
    known = rows >= 0
    return np.where(known, node[np.where(known, rows, 0)], -1).astype(np.int64) if len(node) else np.full(len(rows), -1, np.int64)


def _below(end: npt.NDArray[np.int32], node: Ints, values: Ints, count: int) -> Ints:
    """Sum per node of the tree over itself and what is below it."""
    own = np.zeros(count, np.int64)
    use = node >= 0
    np.add.at(own, node[use], values[use])
    total = np.r_[0, np.cumsum(own)]
    return np.asarray(total[end] - total[np.arange(count)], np.int64)


def _below_floats(end: npt.NDArray[np.int32], node: Ints, values: Floats, count: int) -> Floats:
    use = node >= 0
    total = np.r_[0.0, np.cumsum(np.bincount(node[use], values[use], minlength=count))]
    return np.asarray(total[end] - total[np.arange(count)], np.float64)


def _outermost(names: list[str], parent: npt.NDArray[np.int32], module_bytes: Ints) -> list[int]:
    """Returns the modules that hold activations, without those inside of others of their class."""
    inside: list[frozenset[str]] = []
    out = []
    for node, name in enumerate(names):
        above = inside[parent[node]] if parent[node] >= 0 else frozenset()
        inside.append(above if name in above else above | {name})
        if name not in above and module_bytes[node] > 0:
            out.append(node)
    return out


def _classes(layers: pd.DataFrame, by_limit: bool) -> pd.DataFrame:
    """Returns one row per class of modules that holds activations, the largest saving first."""
    sums = layers.groupby("class_name", sort=False).agg(n=("bytes", "size"), size=("bytes", "sum"), ns=("cost_ns", "sum"))
    rows = []
    for name, n, size, ns in sums.itertuples():
        saving = round(size * (1 - 1 / n))
        known = ns > 0  # work that no time is recorded of costs something
        rows.append((name, int(n), int(size), saving, ns if known else np.nan, by_limit, saving / (ns / 1e6) if known else np.nan))
    out = pd.DataFrame(rows, columns=list(COLUMNS))
    return out.sort_values(["saving_bytes", "cost_ns"], ascending=[False, True], kind="stable", ignore_index=True)


@rule(
    "activations_recompute", title="Activations hold a good part of the peak",
    fix="torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)", page="memory", label="Memory by category", color="compute",
    candidate=True,
)  # fmt: skip
def activations_recompute(context: MemoryContext) -> Answer:
    """Finds activations that hold a good part of the peak, made in layers of one class."""
    if context.trains is False:
        return None
    for curve in context.memory.curves:
        found = recompute(context.capture, curve, context.limits)
        if found is not None and len(found.classes):
            return _of_layers(context, curve, found)
    return _of_record(context)


def _of_layers(context: MemoryContext, curve: Curves, found: Recompute) -> Answer:
    if curve.peak <= 0 or found.activations < ACTIVATION_SHARE * curve.peak:
        return None
    fitting = found.classes[(found.classes["layers"] >= FEWEST_LAYERS) & (found.classes["bytes"] >= LAYER_SHARE * found.activations)]
    if not len(fitting):
        return None
    top = fitting.iloc[0]
    cost = float(top["cost_ns"])
    evidence = [
        f"Activations hold {human(found.activations, 'B')} of {human(curve.peak, 'B')} at the peak, "
        f"{human(int(top['bytes']), 'B')} of them made in {int(top['layers'])} layers `{top['class_name']}`."
    ]
    if cost == cost:
        word = "at least " if found.by_limit else ""
        evidence.append(f"Running their forward work again costs {word}{human(cost, 'ns')} per step.")
    best = found.classes[(found.classes["layers"] >= FEWEST_LAYERS) & found.classes["bytes_per_ms"].notna()]
    if len(best):
        most = best.iloc[int(best["bytes_per_ms"].to_numpy().argmax())]
        if most["class_name"] != top["class_name"]:
            evidence.append(
                f"`{most['class_name']}` alone frees {human(int(most['saving_bytes']), 'B')} for {human(float(most['cost_ns']), 'ns')}."
            )
    size = int(top["saving_bytes"])
    layers = found.layers[(found.layers["class_name"] == top["class_name"]).to_numpy()]
    held = layers["bytes"].to_numpy()
    rows = pieces("layer", layers["name"], held, held * (1 - 1 / len(held)), size, where=layers["class_name"])
    title = f"Activations of {top['class_name']} could be computed again instead of kept"
    return Finding(
        title=title, evidence=" ".join(evidence), saving=size, share=size / curve.peak, query={"by": "category"},
        cost_ns=cost if cost == cost else None, pieces=rows,
    )  # fmt: skip


def _of_record(context: MemoryContext) -> Answer:
    """Finds activations without modules: by category, or what a recorder's peak holds beside parameters, gradients and optimizer."""
    size, peak, evidence, counted = 0, context.peak, "", None
    timeline = context.curve_of("timeline")
    parts = last_parts(context)
    if timeline is not None:
        rows = attribution(context.capture, timeline, "category").rows
        size, peak = int(rows.loc[rows["name"] == "activations", "bytes"].sum()), timeline.peak
        evidence = f"Activations hold {human(size, 'B')} of {human(peak, 'B')} at the peak."
        counted = pieces("activations", ["in use at the peak"], [size], [size], size)
    elif parts is not None and context.peak > 0:
        lasting = bytes_in(parts, *parts["category"].unique())
        size = context.peak - lasting
        evidence = (
            f"Besides {human(lasting, 'B')} of parameters, gradients and optimizer {human(size, 'B')} are in use at the peak: activations "
            "for the most part."
        )
        held = parts.assign(bytes=-parts["bytes"])
        whole = pieces("in use", ["in use at the peak"], [peak], [peak], peak)
        counted = pd.concat([whole, part_pieces(held, size - peak)], ignore_index=True)
        counted = counted.assign(bytes=counted["bytes"].abs(), id=counted.index.astype(str))
    else:
        return Missing("what is in use at the peak was not recorded by category", HOW)
    if size < ACTIVATION_SHARE * peak or peak <= 0:
        return None
    made = work(context.capture, device_for(context.capture, context.limits))
    time, by_limit, steps = _forward(context.capture, made) if len(made.ops) else (np.zeros(0), False, 1)
    cost = float(time.sum()) / steps
    if cost > 0:
        word = "at least " if by_limit else ""
        evidence += f" All forward work of a step takes {word}{human(cost, 'ns')}: what recomputing everything costs."
    evidence += " Which layers hold them was not recorded."
    return Finding(evidence=evidence, saving=size, share=size / peak, query={"by": "category"}, cost_ns=cost or None, pieces=counted)
