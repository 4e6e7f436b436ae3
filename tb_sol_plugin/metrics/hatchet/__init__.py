"""A recording as a Hatchet profile, the form that Proton writes and that Hatchet and Proton's viewer read.

    [root, devices]; a frame: {"frame": {"name", "type"}, "metrics": {"time (ns)", "count", "bytes", ...}, "children": []}

Every kernel and copy of the device stands once, below the modules (or phases) and the operator around its launch; sums over the tree
are those of the recording. Copies are frames named `Memcpy HtoD (Pinned -> Device)`: the direction stands in the name, as metrics are
numbers. `flops8` to `flops64` and the `bytes` of kernels are those of the cost models; `flops_estimated` is the part of them that
rests on assumed sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias, get_args

from tb_sol_plugin.devices.match import match
from tb_sol_plugin.errors import BadQuery, Unavailable
from tb_sol_plugin.metrics.hatchet.of_events import add_device, add_host
from tb_sol_plugin.metrics.hatchet.of_ledger import add_copies, add_ledger
from tb_sol_plugin.metrics.hatchet.places import By, default_by
from tb_sol_plugin.metrics.hatchet.tree import Tree, chunks, device_type
from tb_sol_plugin.metrics.time import scope
from tb_sol_plugin.model.capture import Capture

Choice: TypeAlias = Literal["auto", "module", "phase", "operator"]
CHOICES: tuple[str, ...] = get_args(Choice)


def hatchet(capture: Capture, by: str = "auto") -> Iterator[bytes]:
    """The profile as JSON, piece by piece. BadQuery for an unknown `by`, Unavailable for a recording without any work."""
    if by not in CHOICES:
        raise BadQuery(f"no tree by {by[:40]!r}", hint=f"choose {', '.join(CHOICES)}", field="by")
    chosen: By = default_by(capture) if by == "auto" else by  # type: ignore[assignment]
    tree = Tree()
    if scope.is_profile(capture) or scope.is_capture(capture):
        labeled = "module" if by == "auto" and (capture.tables["ledger"]["module"].to_numpy() >= 0).any() else by
        add_ledger(tree, capture, labeled)
        add_copies(tree, capture, labeled)
    elif len(capture.device):
        add_device(tree, capture, chosen)
    elif len(capture.host):
        add_host(tree, capture)
    if len(tree.name) == 1:
        raise Unavailable("this recording holds no work to export", hint="record at least one step")
    kind = device_type(capture.facts.vendor)
    return chunks(tree, _devices(capture, tree, kind), kind)


def _devices(capture: Capture, tree: Tree, kind: str) -> dict[str, dict[str, dict[str, object]]]:
    """What is known of the devices with work, by type and index; unknown figures are left out."""
    known = {str(d.id): d for d in capture.facts.devices}
    out: dict[str, dict[str, object]] = {}
    for index in sorted({d for d in tree.device if d}, key=int):
        entry: dict[str, object] = {}
        props = known.get(index)
        if props is not None:
            spec = match(props, vendor=capture.facts.vendor, book=capture.devices) if kind == "HIP" else None
            arch = spec.compute_capability if spec is not None else props.compute_capability.replace(".", "") if kind == "CUDA" else ""
            entry = {name: value for name, value in (("arch", arch), ("num_sms", props.units)) if value}
        out[index] = entry
    return {kind: out} if out else {}
