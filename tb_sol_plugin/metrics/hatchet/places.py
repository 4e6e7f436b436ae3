"""Where the frames of device work stand: below the modules, the phases or the operator around their launch, or a reason why not."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.trees.label_times import module_names
from tb_sol_plugin.metrics.trees.module_tree import module_tree
from tb_sol_plugin.metrics.trees.phases import device_owners, phase_tree
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture

By: TypeAlias = Literal["module", "phase", "operator"]

OUTSIDE = {"module": "(outside every module)", "phase": "(outside every phase)", "operator": "(no operator)"}


class Places(NamedTuple):
    """node: per device row its place, -1 none. name, parent: per place; a parent stands before what is inside it."""

    node: npt.NDArray[np.int64]
    name: list[str]
    parent: list[int]
    kind: str


def default_by(capture: Capture) -> By:
    """By module where any was recorded, else by phase, else by operator."""
    kind = capture.host["kind"].to_numpy()
    if (kind == S.MODULE).any():
        return "module"
    return "phase" if (kind == S.ANNOTATION).any() else "operator"


def places(capture: Capture, by: By) -> Places:
    """The places of all device rows. Backward work stands in the module of its forward operator."""
    if by == "operator":
        return Places(np.full(len(capture.device), -1, np.int64), [], [], "operator")
    if by == "phase":
        phases = phase_tree(capture)
        return Places(device_owners(capture).node.astype(np.int64), phases.name, phases.parent.tolist(), "phase")
    tree = module_tree(capture)
    own = capture.device["module"].to_numpy()
    lost = np.flatnonzero(own < 0)
    forward, _ = at.module_forward_rows(capture, capture.device["operator"].to_numpy()[lost])
    row = own.copy()
    row[lost] = at.nearest(capture, S.MODULE, forward)
    node = np.append(tree.node, -1)[row].astype(np.int64)
    return Places(node, module_names(capture), tree.parent.tolist(), "module")


def reasons(capture: Capture) -> npt.NDArray[np.object_]:
    """Per device row why it has no launch here, "" where it has one."""
    link = capture.device["link"].to_numpy()
    return np.select([link == S.BEFORE_WINDOW, link == S.NO_RECORD], [at.BEFORE, at.NO_RECORD], "").astype(object)
