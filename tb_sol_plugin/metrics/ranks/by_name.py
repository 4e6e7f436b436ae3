"""Sums what the device of one rank does in each step, by phase, module, operator and kernel, and compares these sums over ranks.

Ranks of one role do the same work: where one of them takes longer in a kernel, its data, its shapes or its device differ. That costs the
job only as far as other ranks waited for it, so the time lost is at most what collectives were late by in which it came last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time import breakdown as B
from tb_sol_plugin.metrics.time.kernels import short_kernel_names
from tb_sol_plugin.metrics.trees.module_tree import ModuleTree, module_instance, module_tree
from tb_sol_plugin.metrics.trees.phases import device_owners, phase_tree
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Mask
from tb_sol_plugin.tables.packed import Columns, Packed, pack, unpack

By: TypeAlias = Literal["phase", "module", "operator", "kernel"]
BY: Final[tuple[By, ...]] = ("phase", "module", "operator", "kernel")
TOTALS: Final[dict[str, str]] = {"by": "i1", "name": "i4", "step": "i8", "total_ns": "i8"}
"""Columns of sums: place in BY, place in the names, number of the step, time on the device. One row per name and step that has some."""
MOST_NAMES: Final = 40
"""Names of a kind that are kept: those with the most time."""
MOST_STEPS: Final = 64
"""Complete steps whose sums are kept: those in the middle."""
LONGEST: Final = 200
"""Characters of a name that are kept."""


def totals_of(capture: Capture) -> tuple[Packed, tuple[str, ...]]:
    """Returns the sums of TOTALS over complete steps, of kernels of computation and copies, and the names."""
    device = capture.device
    step = device["step"].to_numpy()
    number = capture.steps["number"].to_numpy()
    whole = np.flatnonzero(capture.steps["complete"].to_numpy() & (number >= 0))
    middle = max((len(whole) - MOST_STEPS) // 2, 0)
    rows = np.flatnonzero(np.isin(step, whole[middle : middle + MOST_STEPS]) & (B.classes(capture) != B.COMMUNICATION))
    names: list[str] = []
    parts: list[Columns] = []
    for place, by in enumerate(BY if len(rows) else ()):
        code, texts = _named(capture, rows, by)
        known = code >= 0
        found = totals(code[known], number[step[rows[known]]], device["duration_ns"].to_numpy()[rows[known]])
        parts.append({"by": np.full(len(found["step"]), place), **found, "name": found["name"] + len(names)})
        used, again = np.unique(found["name"], return_inverse=True)
        parts[-1]["name"] = again.reshape(-1) + len(names)
        names += [texts[i][:LONGEST] for i in used.tolist()]
    columns = {name: np.concatenate([p[name] for p in parts]) if parts else np.zeros(0, np.int64) for name in TOTALS}
    return pack(columns, TOTALS), tuple(names)


def totals(name: Ints, step: Ints, duration: Ints) -> Columns:
    """Returns sums by name and step, of the names with the most time. name, step, duration: of each event."""
    if not len(name):
        return {column: np.zeros(0, np.int64) for column in ("name", "step", "total_ns")}
    whole = np.bincount(name, duration)
    kept = np.isin(name, np.argsort(-whole, kind="stable")[:MOST_NAMES])
    code, first = arrays.factorize([name[kept].astype(np.int64), step[kept].astype(np.int64)])
    total = np.zeros(len(first), np.int64)
    np.add.at(total, code, duration[kept])
    return {"name": name[kept][first].astype(np.int64), "step": step[kept][first].astype(np.int64), "total_ns": total}


def _named(capture: Capture, rows: Ints, by: By) -> tuple[Ints, Sequence[str]]:
    """Returns (the name of each device row, -1 without one; the texts of names)."""
    device = capture.device
    if by == "kernel":
        short = short_kernel_names(capture)
        texts = [str(one) for one in device["name"].cat.categories]
        return arrays.codes(device["name"])[rows].astype(np.int64), [short.get(one, one) for one in texts]
    if by == "phase":
        tree = phase_tree(capture)
        return device_owners(capture).node[rows].astype(np.int64), tree.path
    host = device[by].to_numpy()[rows].astype(np.int64)
    if by == "operator":
        texts = [str(one) for one in capture.host["name"].cat.categories]
        return np.where(host >= 0, arrays.codes(capture.host["name"])[np.maximum(host, 0)], -1), texts
    return _modules(capture, rows, host)


def _modules(capture: Capture, rows: Ints, around: Ints) -> tuple[Ints, Sequence[str]]:
    """Returns the module of device rows: that around the launch, of backward work that of its forward operator."""
    tree = module_tree(capture)
    if not (capture.host["kind"].to_numpy() == S.MODULE).any():
        return np.full(len(rows), -1, np.int64), ()
    operator = capture.device["operator"].to_numpy()[rows]
    calls, place = np.unique(operator, return_inverse=True)
    forward, _ = at.module_forward_rows(capture, np.maximum(calls, 0))
    linked = np.where(calls >= 0, at.nearest(capture, S.MODULE, forward), -1)[place.reshape(-1)]
    call = np.where(around >= 0, around, linked)
    return np.where(call >= 0, tree.node[np.maximum(call, 0)], -1).astype(np.int64), memo(capture, ("ranks.modules",), lambda: _paths(tree))


def _paths(tree: ModuleTree) -> list[str]:
    """Returns the path of each module, by names from the outermost one on; of a long one its end."""
    out: list[str] = []
    for name, parent in zip(map(module_instance, tree.name), tree.parent.tolist(), strict=True):
        out.append(f"{out[parent]}.{name}"[-LONGEST:] if parent >= 0 else name)
    return out


# -- Over ranks --------------------------------------------------------------------------------------------------------


def imbalance(
    tables: Sequence[Packed | None], names: Sequence[Sequence[str]], by: By, role: Ints, late_ns: pd.Series, steps: Sequence[Ints]
) -> pd.DataFrame:
    """Returns how uneven ranks are in each name, those first that cost most.

    tables, names: sums of each rank, as `totals_of` returns them. role: of each rank; ranks of one role are compared. late_ns: by place of
    a rank and step, how long others waited in collectives in which it came last. steps: of each rank, that are compared. Columns: name,
    role, ranks (that have it), min_ns, median_ns, max_ns (per step: means over the steps that a rank has), max_at (place of the rank),
    imbalance (max over median), lost_ns (sum over steps of the largest less the median, at most what the others waited for that rank in
    that step).
    """
    ranks = enumerate(zip(tables, names, steps, strict=True))
    frames = [_of_rank(table, own, place, by, chosen) for place, (table, own, chosen) in ranks if table is not None]
    every = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=["at", "name", "step", "total_ns"])
    columns = ["name", "role", "ranks", "min_ns", "median_ns", "max_ns", "max_at", "imbalance", "lost_ns"]
    if not len(every):
        return pd.DataFrame(columns=columns)
    every["role"] = role[every["at"].to_numpy(np.int64)]
    mean = every.groupby(["role", "name", "at"], sort=True)["total_ns"].mean().reset_index()
    grouped = mean.groupby(["role", "name"])["total_ns"]
    out = grouped.agg(ranks="size", min_ns="min", median_ns="median", max_ns="max").reset_index()
    out["max_at"] = mean["at"].to_numpy()[grouped.idxmax().to_numpy()]
    out = out[out["ranks"] > 1]
    if not len(out):
        return pd.DataFrame(columns=columns)
    out["imbalance"] = out["max_ns"] / out["median_ns"].where(out["median_ns"] > 0)
    out["lost_ns"] = pd.Series(_lost(every, late_ns).reindex(pd.MultiIndex.from_frame(out[["role", "name"]])).to_numpy(), index=out.index)
    return out.sort_values(["lost_ns", "max_ns"], ascending=False, kind="stable", ignore_index=True)[columns]


def _of_rank(table: Packed, names: Sequence[str], place: int, by: By, steps: Ints) -> pd.DataFrame:
    found = unpack(table, TOTALS)
    mine: Mask = np.asarray((found["by"] == BY.index(by)) & np.isin(found["step"], steps), np.bool_)
    texts: npt.NDArray[Any] = np.array(names, object)
    return pd.DataFrame({
        "at": place, "name": texts[found["name"][mine]], "step": found["step"][mine], "total_ns": found["total_ns"][mine],
    })  # fmt: skip


def _lost(every: pd.DataFrame, late_ns: pd.Series) -> pd.Series:
    """Returns the time lost by role and name."""
    keys = ["role", "name", "step"]
    grouped = every.groupby(keys)["total_ns"]
    top = every.loc[grouped.idxmax()].set_index(keys)
    over = top["total_ns"] - grouped.median()
    late = late_ns.reindex(pd.MultiIndex.from_arrays([top["at"], top.index.get_level_values("step")])).fillna(0).to_numpy()
    return pd.Series(np.minimum(over.to_numpy(np.float64), late), index=top.index).groupby(level=["role", "name"]).sum()
