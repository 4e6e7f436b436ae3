"""Assigns device time that a SOL capture measured between two events of a stream to phases, modules and steps.

Where single operators are not timed (any device but a CPU), these are the only device times there are. They span from the first to the
last work of a range, so idle time in between is in them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec import Struct

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.time.scope import Scope, on_cpu, unsampled_alike
from tb_sol_plugin.metrics.trees.module_tree import ModuleTree, module_tree, phase_parts
from tb_sol_plugin.metrics.trees.phases import STEP, below, phase_tree
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats

# -- The phases that a SOL capture names, as nodes of the phase tree of a capture ------------------------------------
# of its own, or of the trace beside it.


Nodes = npt.NDArray[np.int64]


def phase_nodes(capture: Capture) -> Nodes:
    """Returns per row of `labels` the node of the phase tree that a phase is, -1 for others and for phases of no range."""
    return memo(capture, ("label_times.phases",), lambda: _phase_nodes(capture))


def label_paths(capture: Capture) -> list[tuple[str, ...]]:
    """Returns per row of `labels` the levels of a phase below its step, () for other labels. Parents stand before what is inside them."""

    def make() -> list[tuple[str, ...]]:
        labels = capture.tables["labels"]
        out: list[tuple[str, ...]] = []
        what, name = (arrays.pick(labels[c], np.arange(len(labels))) for c in ("what", "name"))
        for row, up in enumerate(labels["parent"].tolist()):
            around = out[up] if 0 <= up < row else ()
            out.append(below(around, phase_parts(str(name[row]))) if what[row] == "phase" else ())
        return out

    return memo(capture, ("label_times.paths",), make)


def _phase_nodes(capture: Capture) -> Nodes:
    tree = phase_tree(capture)
    place = {path: node for node, path in enumerate(tree.path)}
    out = []
    for path in label_paths(capture):
        plain = "/".join(path)
        out.append(place.get(f"{STEP}/{plain}", place.get(plain, -1)) if path else -1)
    return np.array(out, np.int64)


def phase_device_ns(capture: Capture, part: Scope) -> Floats:
    """Returns the device time per node of the phase tree over the selected steps, NaN where some range of it was not timed.

    Of a step the time of its iteration; of a level that only names make, the sum of the levels below. Counting slows the host down, and
    with it a device that waits for it: where iterations of the same inputs were not sampled, it is their mean, as often as there are steps.
    A phase that only sampled ones have takes the same part of these.
    """
    own, usual = _sampled_device_ns(capture, part), usual_phase_ns(capture, part)
    if usual is None:
        return own
    steps = [node for node, path in enumerate(phase_tree(capture).path) if path == STEP and own[node] > 0]
    shorter = usual.device_ns[steps[0]] * len(part.rows) / own[steps[0]] if steps else 1.0
    own = own * (shorter if np.isfinite(shorter) else 1.0)
    return np.where(np.isfinite(usual.device_ns), usual.device_ns * len(part.rows), own)


def _sampled_device_ns(capture: Capture, part: Scope) -> Floats:
    tree = phase_tree(capture)
    total, ranges = _sums(capture, part, phase_nodes(capture), len(tree.name))
    iterations = capture.tables["iterations"]
    selected = np.isin(iterations["number"].to_numpy(), part.steps)
    steps = [node for node, path in enumerate(tree.path) if path == STEP]
    total[steps], ranges[steps] = iterations["device_ns"].to_numpy(dtype=np.float64)[selected].sum(), selected.sum()
    for node in reversed(range(len(total))):
        inside = tree.parent == node
        if not ranges[node] and inside.any():
            total[node] = total[inside].sum()
    return np.where((ranges > 0) | np.isin(np.arange(len(total)), tree.parent), total, np.nan)


def phase_time_ns(capture: Capture, part: Scope) -> Floats:
    """Returns the time that the work of a whole phase is compared with: its device time.

    On a CPU it is its host time in iterations that were not sampled.
    """
    usual = usual_phase_ns(capture, part)
    if on_cpu(capture):
        return np.full(len(phase_tree(capture).name), np.nan) if usual is None else usual.host_ns * len(part.rows)
    return phase_device_ns(capture, part)


def phase_self_ns(capture: Capture, part: Scope) -> Floats:
    """Returns the same times less those of the phases inside, NaN where one of them was not timed."""
    tree = phase_tree(capture)
    total = phase_time_ns(capture, part)
    out = total.copy()
    for node, up in enumerate(tree.parent.tolist()):
        if up >= 0:
            out[up] -= total[node]
    return np.where(out >= 0, out, np.nan)


class Usual(Struct, frozen=True):
    """Per node of the phase tree its time in one iteration in which nothing was counted, NaN where it is not known."""

    host_ns: Floats
    device_ns: Floats


def usual_phase_ns(capture: Capture, part: Scope) -> Usual | None:
    """Returns times of phases while nothing is counted, in iterations of the same inputs as the selected steps; None where there are none.

    The median over those in which the phase ran (the first of a compiled program may compile in it); of steps with inputs of several sizes
    the mean of these. A level that only names make has the sum of the levels below.
    """
    return memo(capture, ("label_times.usual", part.rows), lambda: _usual(capture, part))


def _usual(capture: Capture, part: Scope) -> Usual | None:
    alike = unsampled_alike(capture, part.rows)
    if alike is None:
        return None
    tree, nodes = phase_tree(capture), phase_nodes(capture)
    times, iterations = capture.tables["label_times"], capture.tables["iterations"]
    node = nodes[times["label"].to_numpy()] if len(nodes) else np.zeros(0, np.int64)
    distinct = {tuple(numbers.tolist()): numbers for numbers in alike}
    weight = {key: sum(1 for numbers in alike if tuple(numbers.tolist()) == key) / len(alike) for key in distinct}
    plain = ~iterations["sampled"].to_numpy()
    out = []
    for column in ("duration_ns", "device_ns"):
        whole = np.zeros(len(tree.name))
        for key, numbers in distinct.items():
            use = np.flatnonzero((node >= 0) & np.isin(times["iteration"].to_numpy(), numbers))
            ranges = pd.DataFrame(
                {
                    "node": node[use],
                    "iteration": times["iteration"].to_numpy()[use],
                    "ns": times[column].to_numpy(dtype=np.float64)[use],
                }
            )
            found = ranges.assign(lost=ranges["ns"].isna()).groupby(["node", "iteration"]).sum()
            each = found["ns"].where(found["lost"] == 0).groupby("node").median()
            one = np.full(len(tree.name), np.nan)
            one[each.index.to_numpy()] = each.to_numpy()
            steps = iterations[column].to_numpy(dtype=np.float64)[plain & np.isin(iterations["number"].to_numpy(), numbers)]
            one[[place for place, path in enumerate(tree.path) if path == STEP]] = np.median(steps)
            for place in reversed(range(len(one))):
                inside = tree.parent == place
                if np.isnan(one[place]) and inside.any() and not (node == place).any():
                    one[place] = np.nansum(one[inside]) if np.isfinite(one[inside]).any() else np.nan
            whole += weight[key] * one
        out.append(whole)
    return Usual(out[0], out[1])


def module_device_ns(capture: Capture, part: Scope) -> Floats:
    """Returns forward device time per node of the module tree, NaN where a call of it was not timed."""
    node, up = module_nodes(capture), capture.tables["labels"]["parent"].to_numpy()
    inside = (up >= 0) & (node[np.maximum(up, 0)] == node)  # of itself: that time is in the outer call's
    total, calls = _sums(capture, part, np.where(inside, -1, node), len(module_tree(capture).name))
    return np.where(calls > 0, total, np.nan)


def module_calls(capture: Capture, part: Scope) -> Floats:
    """Returns timed calls per node of the module tree, NaN where none was timed."""
    _, calls = _sums(capture, part, module_nodes(capture), len(module_tree(capture).name))
    return np.where(calls > 0, calls, np.nan)


def module_nodes(capture: Capture) -> Nodes:
    """Returns per row of `labels` the node of the module tree that a module is, -1 for others and for modules that no call tells."""
    return memo(capture, ("label_times.modules",), lambda: _module_nodes(capture, module_tree(capture)))


def _module_nodes(capture: Capture, tree: ModuleTree) -> Nodes:
    """Returns the module node of each label: that which work is credited to, else that of the one call that starts when its range does."""
    labels, times, ledger = capture.tables["labels"], capture.tables["label_times"], capture.tables["ledger"]
    if tree.of_label is not None:
        return tree.of_label[:-1].astype(np.int64)
    out = np.full(len(labels), -1, np.int64)
    own, row = ledger["module"].to_numpy(), ledger["module_host"].to_numpy()
    use = (own >= 0) & (row >= 0)
    out[own[use]] = tree.node[row[use]]
    lost = arrays.where(labels["what"], "module".__eq__) & (out < 0)
    ranges = np.flatnonzero(lost[times["label"].to_numpy()] & np.isin(times["iteration"].to_numpy(), capture.steps["number"].to_numpy()))
    label, first = np.unique(times["label"].to_numpy()[ranges], return_index=True)
    calls = np.flatnonzero(tree.node >= 0)
    start = capture.host["start_ns"].to_numpy()[calls]
    calls = calls[np.argsort(start, kind="stable")]
    start = np.sort(start)
    for name, at in zip(label.tolist(), times["start_ns"].to_numpy()[ranges[first]].tolist(), strict=True):
        low, high = (int(np.searchsorted(start, at, side=side)) for side in ("left", "right"))  # type: ignore[call-overload]
        wanted = str(arrays.pick(labels["class_name"], [name])[0])
        nodes = {int(n) for n in tree.node[calls[low:high]].tolist() if tree.class_name[n] == wanted}
        if len(nodes) == 1:
            out[name] = nodes.pop()
    up = labels["parent"].to_numpy()
    for inner in reversed(range(len(out))):  # what is inside tells what is around it
        if out[inner] >= 0 and up[inner] >= 0 and out[up[inner]] < 0:
            out[up[inner]] = tree.parent[out[inner]]
    return out


def module_names(capture: Capture) -> list[str]:
    """Returns per node of the module tree what a list calls it: its name in the model, the recorder's number where that is not known."""
    return [name or number for name, number in zip(qualified_names(capture), module_tree(capture).name, strict=True)]


def qualified_names(capture: Capture) -> list[str]:
    """Returns per node of the module tree its name in the model (`layers.0.attn`), "" where it is not known."""

    def make() -> list[str]:
        out = [""] * len(module_tree(capture).name)
        names = arrays.pick(capture.tables["labels"]["name"], np.arange(len(capture.tables["labels"])))
        for label, node in enumerate(module_nodes(capture).tolist()):
            if node >= 0 and not out[node]:
                out[node] = str(names[label])
        return out

    return memo(capture, ("label_times.names",), make)


def _sums(capture: Capture, part: Scope, node_of: Nodes, size: int) -> tuple[Floats, Floats]:
    """Returns (device time, ranges) per node over the selected steps; NaN as soon as one range has none."""
    times = capture.tables["label_times"]
    use = np.isin(times["iteration"].to_numpy(), part.steps)
    node = node_of[times["label"].to_numpy()[use]] if len(node_of) else np.zeros(0, np.int64)
    value = times["device_ns"].to_numpy(dtype=np.float64)[use]
    count = times["count"].to_numpy(dtype=np.float64)[use]
    known = node >= 0
    return (
        np.bincount(node[known], value[known], minlength=size).astype(np.float64),
        np.bincount(node[known], count[known], minlength=size).astype(np.float64),
    )
