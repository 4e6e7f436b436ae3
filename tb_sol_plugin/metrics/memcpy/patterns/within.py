"""Copies inside of a device: the same bytes back to back, gradients that are stored by copying, inputs that a graph has copied in."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.memcpy.patterns.case import Case
from tb_sol_plugin.metrics.memcpy.patterns.finding import CopyFinding
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv


def duplicates(case: Case) -> list[CopyFinding]:
    """Copies of the same size by the same chain of operators (`contiguous`, `clone`, `copy_`) with nothing between them on their stream.

    Told where those of one chain take more than 5 % of the step; the saving is their exposed time.
    """
    named = case.under(operator=r"aten::(contiguous|clone|copy_)$")
    rows = np.flatnonzero(case.inside & (case.direction == "DtoD") & (case.bytes > 0) & named)
    if len(rows) < 2:
        return []
    at = case.position[rows]
    rows, at = rows[np.argsort(at)], np.sort(at)
    lane = case.found[["device", "stream"]].to_numpy()[rows]
    same = (np.diff(at) == 1) & (lane[1:] == lane[:-1]).all(axis=1) & (case.bytes[rows][1:] == case.bytes[rows][:-1])
    same &= (case.path[rows][1:] == case.path[rows][:-1]) & (case.step[rows][1:] == case.step[rows][:-1])
    rows = rows[np.append(same, False) | np.insert(same, 0, False)]
    if not len(rows):
        return []
    code, _ = pd.factorize(case.path[rows])
    least = case.at.layout_share * iv.length(case.windows)
    enough = np.flatnonzero(np.bincount(code, case.duration[rows]) > least)
    large = [g for g in enough.tolist() if iv.length(_time(case, rows[code == g])) > least]
    rows = np.sort(rows[np.isin(code, large)])
    return case.finding(
        "duplicate_copies", rows, "The same bytes are copied inside of the device again and again",
        "# one layout from the producer on: leave out .contiguous() and .clone() where the reader takes strided tensors",
        spans=case.on_device(rows), candidate=True, note="one size and one chain of operators, back to back",
    )  # fmt: skip


def _time(case: Case, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> iv.Spans:
    return iv.intersect(iv.union(case.start[rows], case.end[rows]), case.windows)


def gradients(case: Case) -> list[CopyFinding]:
    """Copies inside of `AccumulateGrad`: into the buckets of data parallelism, or because a gradient cannot be taken as it is."""
    stored = case.under(operator=r"(autograd::engine::\S+ )?torch::autograd::AccumulateGrad")
    rows = np.flatnonzero(case.inside & (case.direction == "DtoD") & stored)
    if not len(rows):
        return []
    cloned = case.under(operator=r"aten::clone$")[rows]
    time = case.duration[rows]
    if 2 * int(time[cloned].sum()) > int(time.sum()):
        title = "Gradients are cloned when they are stored"
        fix = "# give backward dense gradients in their parameter's layout: no .expand(), .t() or channels_last on one side only"
        note = "a gradient in another layout than its parameter, or one that others hold, is cloned"
    else:
        title = "Gradients are copied again when they are accumulated"
        parallel = _has(case, "DistributedDataParallel")
        fix = "DistributedDataParallel(model, gradient_as_bucket_view=True)" if parallel else "optimizer.zero_grad(set_to_none=True)"
        note = "data parallelism copies each into a bucket" if parallel else "each is copied into the one that is there"
    return case.finding("gradient_copies", rows, title, fix, spans=case.on_device(rows), candidate=True, note=note)


def graph_inputs(case: Case) -> list[CopyFinding]:
    """Copies that a compiled function makes before it launches its graph: inputs go to the place where the graph reads them.

    Its clones are results that must outlive the next launch, and no inputs.
    """
    if not _has(case, "cudaGraphLaunch") and not _has(case, "hipGraphLaunch"):
        return []
    mask = case.inside & (case.direction == "DtoD") & case.under(operator=r"CompiledFunction(Backward)?$")
    mask &= case.under(operator=r"aten::copy_$") & ~case.under(operator=r"aten::clone$")
    rows = np.flatnonzero(mask & ~case.found["graph"].to_numpy())
    return case.finding(
        "graph_inputs", rows, "Inputs are copied to where a graph reads them",
        "torch._dynamo.mark_static_address(tensor)  # parameters and buffers that stay where they are need no copy",
        spans=case.on_device(rows), candidate=True, note="copies of a compiled function outside of its graph",
    )  # fmt: skip


def _has(case: Case, start: str) -> bool:
    return bool(arrays.where(case.capture.host["name"], lambda n: n.startswith(start)).any()) if len(case.capture.host) else False
