"""Device time of whole phases, modules and steps, as a SOL capture measured it between two events of the device's stream.

Where single operators are not timed (any device but a CPU), these are the only device times there are. They span from the first to the
last work of a range, so idle time in between is in them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics import memo, texts
from tb_sol_plugin.metrics.modules import ModuleTree, module_tree
from tb_sol_plugin.metrics.phase_labels import phase_nodes
from tb_sol_plugin.metrics.phases import STEP, phase_tree
from tb_sol_plugin.metrics.scope import Scope
from tb_sol_plugin.metrics.source import unsampled_alike
from tb_sol_plugin.model.capture import Capture

Floats = npt.NDArray[np.float64]
Nodes = npt.NDArray[np.int64]


def phase_device_ns(capture: Capture, part: Scope) -> Floats:
    """Device time per node of the phase tree over the selected steps, NaN where some range of it was not timed.

    Of a step the time of its iteration; of a level that only names make, the sum of the levels below.
    """
    tree = phase_tree(capture)
    total, ranges = _sums(capture, part, phase_nodes(capture), len(tree.name))
    iterations = capture.tables["iterations"]
    mine = np.isin(iterations["number"].to_numpy(), part.steps)
    steps = [node for node, path in enumerate(tree.path) if path == STEP]
    total[steps], ranges[steps] = iterations["device_ns"].to_numpy(dtype=np.float64)[mine].sum(), mine.sum()
    for node in reversed(range(len(total))):
        inside = tree.parent == node
        if not ranges[node] and inside.any():
            total[node] = total[inside].sum()
    return np.where((ranges > 0) | np.isin(np.arange(len(total)), tree.parent), total, np.nan)


def phase_self_ns(capture: Capture, part: Scope) -> Floats:
    """The same less the phases inside, NaN where one of them was not timed."""
    tree = phase_tree(capture)
    total = phase_device_ns(capture, part)
    out = total.copy()
    for node, up in enumerate(tree.parent.tolist()):
        if up >= 0:
            out[up] -= total[node]
    return np.where(out >= 0, out, np.nan)


@dataclass(frozen=True)
class Usual:
    """Per node of the phase tree its time in one iteration in which nothing was counted: mean over these, NaN where it is not known."""

    host_ns: Floats
    device_ns: Floats


def usual_phase_ns(capture: Capture, part: Scope) -> Usual | None:
    """Times of phases while nothing is counted, in iterations of the same inputs as the selected steps; None where there are none.

    Where the steps have inputs of several sizes, each counts as often as there are such steps.
    """
    alike = unsampled_alike(capture, part.rows)
    if alike is None:
        return None
    tree, nodes = phase_tree(capture), phase_nodes(capture)
    size = len(tree.name)
    times = capture.tables["label_times"]
    node = nodes[times["label"].to_numpy()] if len(nodes) else np.zeros(0, np.int64)
    iteration = times["iteration"].to_numpy()
    weight = np.zeros(len(times))
    for numbers in alike:
        weight += np.isin(iteration, numbers) / (len(numbers) * len(alike))
    use = (node >= 0) & (weight > 0)
    count = np.bincount(node[use], minlength=size)
    out = []
    for column in ("duration_ns", "device_ns"):
        value = times[column].to_numpy(dtype=np.float64)[use] * weight[use]
        total = np.bincount(node[use], value, minlength=size).astype(np.float64)
        for place in reversed(range(size)):
            inside = tree.parent == place
            if not count[place] and inside.any():
                total[place] = total[inside].sum()
        out.append(np.where((count > 0) | np.isin(np.arange(size), tree.parent), total, np.nan))
    return Usual(*out)


def module_device_ns(capture: Capture, part: Scope) -> Floats:
    """Forward device time per node of the module tree, NaN where a call of it was not timed (only modules without others inside are)."""
    tree = module_tree(capture)
    total, calls = _sums(capture, part, module_nodes(capture), len(tree.name))
    return np.where(calls > 0, total, np.nan)


def module_nodes(capture: Capture) -> Nodes:
    """Per row of `labels` the node of the module tree that a module is, -1 for others and for modules that no call tells."""
    return memo(capture, ("label_times.modules",), lambda: _module_nodes(capture, module_tree(capture)))


def _module_nodes(capture: Capture, tree: ModuleTree) -> Nodes:
    """By the calls whose start a label has: of the same place in the tree."""
    labels, times, host = capture.tables["labels"], capture.tables["label_times"], capture.host
    out = np.full(len(labels), -1, np.int64)
    calls = np.flatnonzero(tree.node >= 0)
    start = host["start_ns"].to_numpy()
    classes = np.array([tree.class_name[n] for n in tree.node[calls].tolist()], object)
    by_start: dict[tuple[int, str], list[int]] = {}
    for row, name in zip(calls.tolist(), classes.tolist(), strict=True):
        by_start.setdefault((int(start[row]), name), []).append(row)
    is_module = texts.where(labels["what"], "module".__eq__)
    class_of = texts.pick(labels["class_name"], np.arange(len(labels)))
    own = times["label"].to_numpy()
    for label, at in zip(own.tolist(), times["start_ns"].tolist(), strict=True):
        if 0 <= label < len(out) and is_module[label] and out[label] < 0:
            found = by_start.get((at, str(class_of[label])), [])
            if len(found) == 1:
                out[label] = tree.node[found[0]]
    ledger = capture.tables["ledger"]
    label, row = ledger["module"].to_numpy(), ledger["module_host"].to_numpy()
    use = (label >= 0) & (row >= 0)
    out[label[use]] = tree.node[row[use]]
    up = labels["parent"].to_numpy()
    for node in reversed(range(len(out))):  # what is inside tells what is around it
        if out[node] >= 0 and up[node] >= 0 and out[up[node]] < 0:
            out[up[node]] = tree.parent[out[node]]
    return out


def qualified_names(capture: Capture) -> list[str]:
    """Per node of the module tree its name in the model (`layers.0.attn`), "" where it is not known."""

    def make() -> list[str]:
        out = [""] * len(module_tree(capture).name)
        names = texts.pick(capture.tables["labels"]["name"], np.arange(len(capture.tables["labels"])))
        for label, node in enumerate(module_nodes(capture).tolist()):
            if node >= 0 and not out[node]:
                out[node] = str(names[label])
        return out

    return memo(capture, ("label_times.names",), make)


def _sums(capture: Capture, part: Scope, node_of: Nodes, size: int) -> tuple[Floats, Floats]:
    """(device time, ranges) per node over the selected steps; NaN as soon as one range has none."""
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
