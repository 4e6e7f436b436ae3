"""Rows of the module tables that are no module: what a module launches itself, and device work of no module, by the reason."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.cost.roofline import ratio
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.trees.label_times import module_calls, module_device_ns
from tb_sol_plugin.metrics.trees.module_tree import labels_alone
from tb_sol_plugin.metrics.trees.modules import OUTSIDE as NO_NODE
from tb_sol_plugin.metrics.trees.modules import OWN, Direction, MergedRow, ModuleWork
from tb_sol_plugin.metrics.work.ownership import recomputed
from tb_sol_plugin.metrics.work.sums import VALUES, ratios, sums
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables.arrays import Mask

OUTSIDE: Final = "(outside every module)"
ACCUMULATION: Final = "(gradient accumulation)"
_WHOLE: Final = ("flop", "backward_flop", "operator_ns", "bytes", "sol_ns", "measured_ns", "wasted_ns")


def with_ratios(frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` (VALUES and time_ns) with what `ratios` makes of its sums and modelled_share; sums as whole numbers, None unknown."""
    out = ratios(frame)
    time = out["time_ns"].to_numpy(dtype=np.float64)
    out["modelled_share"] = ratio(np.nan_to_num(out["modelled_sum_ns"].to_numpy(dtype=np.float64)), time)
    out["operator_ns"] = out["owned_sum_ns"]
    return out.assign(**{n: pd.Series([round(v) if v == v else None for v in out[n].tolist()], dtype=object) for n in _WHOLE})


def with_label_times(
    capture: Capture, part: Scope, nodes: pd.DataFrame, rows: list[MergedRow], frame: pd.DataFrame, direction: Direction
) -> pd.DataFrame:
    """Rows of a SOL capture with the forward device time that was measured around modules; unknown where one of a row was not.

    Where modules are known by labels alone, calls are those that were timed, and the host has no time.
    Where no call has a time of its own, the forward pass also gets its efficiency from it.
    """
    if labels_alone(capture):
        calls = module_calls(capture, part)[nodes["node"].to_numpy()]
        count = [calls[list(row.nodes)].sum() for row in rows]
        known = pd.Series([int(n) if n == n else None for n in count], dtype=object, index=frame.index)
        frame = frame.assign(calls=known, host_total_ns=None, host_self_ns=None)
    each = module_device_ns(capture, part)[nodes["node"].to_numpy()]
    time = np.array([each[list(row.nodes)].sum() for row in rows], np.float64)
    if not np.isfinite(time).any():
        return frame
    shown = pd.Series([round(v) if v == v else None for v in time.tolist()], dtype=object, index=frame.index)
    out = frame.assign(device_total_ns=shown)
    if direction == "forward" and not frame["measured_ns"].notna().any():
        sol = pd.to_numeric(frame["sol_ns"]).to_numpy(dtype=np.float64)
        wasted = pd.Series([round(v) if v == v else None for v in (time - sol).tolist()], dtype=object, index=frame.index)
        out = out.assign(time_ns=shown, efficiency=ratio(sol, time), wasted_ns=wasted)
    return out


def with_self_rows(
    capture: Capture, work: ModuleWork, nodes: pd.DataFrame, rows: list[MergedRow], frame: pd.DataFrame, whole: int
) -> pd.DataFrame:
    """After each row with modules inside, a row `self: bmm, softmax` for the work of the module itself, backward work included.

    Its time is the row's less that of the rows inside, its work that of the calls that belong to the module and to none inside.
    """
    if not len(capture.device):
        return frame
    time = pd.to_numeric(frame["time_ns"]).to_numpy(dtype=np.int64)
    position = {key: i for i, key in enumerate(frame["id"].tolist())}
    up = np.array([position.get(p, -1) if p is not None else -1 for p in frame["parent"].tolist()], np.int64)
    inside = at.sum_by(up, time, len(frame))
    own = np.maximum(time - inside, 0)
    chosen = np.flatnonzero(np.isin(np.arange(len(frame)), up) & (own > 0))
    if not len(chosen):
        return frame
    named = _self_names(work, nodes, rows)
    part = frame.iloc[chosen]
    extra = pd.DataFrame({name: part[OWN + name].to_numpy(dtype=np.float64) for name in VALUES})
    extra = with_ratios(extra.assign(time_ns=own[chosen]))
    extra = extra.assign(
        id=[f"{key}/self" for key in part["id"]],
        parent=part["id"].tolist(),
        name=[f"self: {named.get(int(i), 'launched by the module itself')}" for i in chosen],
        share=own[chosen] / whole if whole else np.nan,
        _at=chosen + 0.5,
        **{name: part[name].tolist() for name in ("class_name", "instances", "calls", "device_self_ns")},
    )
    extra["device_total_ns"] = extra["device_self_ns"]
    extra["backward_device_ns"] = None
    columns = [*frame.columns, "_at"]
    out = pd.concat([frame.astype(object).assign(_at=range(len(frame))), extra.reindex(columns=columns).astype(object)], ignore_index=True)
    return out.sort_values("_at", kind="stable", ignore_index=True).drop(columns="_at")


def _self_names(work: ModuleWork, nodes: pd.DataFrame, rows: list[MergedRow], most: int = 3) -> dict[int, str]:
    """Per row the operators that own most of its own device time, `aten::` left out."""
    row_of_node = np.full(len(work.own) + 1, -1, np.int64)
    numbers = nodes["node"].to_numpy()
    for i, merged in enumerate(rows):
        row_of_node[numbers[list(merged.nodes)]] = i
    row = row_of_node[np.where(work.node >= 0, work.node, -1)]
    name = work.calls.ops["name"]
    time = pd.Series(work.calls.values["owned_sum_ns"]).groupby([row, name.cat.codes.to_numpy()]).sum()
    by_row: dict[int, dict[str, float]] = {}
    words = name.cat.categories
    for (place, code), value in zip(time.index.to_list(), time.to_list(), strict=True):
        if place >= 0 and value > 0:
            short = str(words[code]).rpartition("::")[2].lstrip("_")
            of = by_row.setdefault(int(place), {})
            of[short] = of.get(short, 0.0) + value
    return {i: ", ".join(sorted(of, key=lambda s: -of[s])[:most]) for i, of in by_row.items()}


def outside_rows(capture: Capture, part: Scope, work: ModuleWork, direction: Direction, whole: int) -> pd.DataFrame:
    """Device work of no module, a row per reason; work credited to a module through its forward operator is left out."""
    if not len(capture.device):
        return _outside_host(work)
    launch = at.launches(capture)
    owner = np.where(part.device, capture.device["module"].to_numpy(), 0)
    forward, _ = at.module_forward_rows(capture, launch.call, launch.time)
    credited = at.nearest(capture, S.MODULE, forward)
    if direction == "forward":
        operator = capture.device["operator"].to_numpy()
        credited = np.where((operator >= 0) & recomputed(capture)[np.maximum(operator, 0)], credited, -1) if len(capture.host) else credited
    owner = np.where(owner >= 0, owner, credited).astype(np.int32)
    duration = capture.device["duration_ns"].to_numpy()
    reasons = at.unowned(capture, owner, OUTSIDE)
    if direction != "forward":
        reasons = _accumulation_apart(capture, reasons)
    if not reasons:
        return pd.DataFrame()
    reason = np.full(len(owner), -1, np.int64)
    for i, (_, mask) in enumerate(reasons):
        reason[mask] = i
    names = [name for name, _ in reasons]
    time = at.sum_by(reason, duration, len(names))
    frame = pd.DataFrame(
        {
            "id": names,
            "parent": pd.Series([None] * len(names), dtype=object),
            "name": names,
            "class_name": "",
            "time_ns": time,
            "device_total_ns": time,
            "device_self_ns": time,
            "device_events": at.sum_by(reason, np.ones(len(reason), np.int64), len(names)),
            "share": time / whole if whole else np.nan,
        }
    )
    alone = work.node == NO_NODE
    code = np.where(alone, _reason_of_calls(work, reason)[work.calls.rows], -1)
    code = np.where(alone & (code < 0), 0, code)
    return with_ratios(pd.concat([frame, sums(work.calls.values, code, len(names))], axis=1))


def _reason_of_calls(work: ModuleWork, reason: np.ndarray) -> np.ndarray:
    """Per row of `Work.ops` the reason of its first device event without a module, -1 where it has none."""
    owner = work.calls.done.owner
    out = np.full(len(work.calls.done.ops), -1, np.int64)
    rows = np.flatnonzero((owner >= 0) & (reason >= 0))[::-1]
    out[owner[rows]] = reason[rows]
    return out


def _outside_host(work: ModuleWork) -> pd.DataFrame:
    """In a recording without device work: the limits of operators outside every module, where there are limits.

    Of a SOL capture their work too.
    """
    values = sums(work.calls.values, np.where(work.node == NO_NODE, 0, -1), 1)
    known = ("sol_ns", "flop", "bytes", "owned_sum_ns") if work.calls.done.from_ledger else ("sol_ns",)
    if not np.isfinite(values[list(known)].to_numpy(dtype=np.float64)).any():
        return pd.DataFrame()
    own = {"id": OUTSIDE, "parent": None, "name": OUTSIDE, "class_name": "", "time_ns": 0}
    return with_ratios(values.assign(**own)).assign(time_ns=None, modelled_share=None)


def _accumulation_apart(capture: Capture, reasons: list[tuple[str, Mask]]) -> list[tuple[str, Mask]]:
    """Gradient accumulation, which belongs to no forward operator, as a row of its own beside the rest of the work outside."""
    h = at.host(capture)
    wraps = arrays.where(capture.host["name"], lambda n: n.startswith("autograd::engine::evaluate_function") and "AccumulateGrad" in n)
    if not wraps.any():
        return reasons
    launch = at.launches(capture)
    inside = tree.nearest(wraps, h.parent, h.stop, launch.call, launch.time) >= 0
    inside &= ~capture.device["communication"].to_numpy()
    out: list[tuple[str, Mask]] = []
    for name, mask in reasons:
        parts = ((ACCUMULATION, mask & inside), (name, mask & ~inside)) if name == OUTSIDE else ((name, mask),)
        out += [(label, part) for label, part in parts if part.any()]
    return out
