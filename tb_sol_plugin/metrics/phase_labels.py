"""The phases that a SOL capture names, as nodes of the phase tree of a capture: of its own, or of the trace beside it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.names import phase_parts
from tb_sol_plugin.metrics.phases import STEP, below, phase_tree
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays

Nodes = npt.NDArray[np.int64]


def phase_nodes(capture: Capture) -> Nodes:
    """Per row of `labels` the node of the phase tree that a phase is, -1 for others and for phases of no range."""
    return memo(capture, ("label_times.phases",), lambda: _phase_nodes(capture))


def label_paths(capture: Capture) -> list[tuple[str, ...]]:
    """Per row of `labels` the levels of a phase below its step, () for other labels. Parents stand before what is inside them."""

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
