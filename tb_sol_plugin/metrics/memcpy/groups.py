"""Copies in groups: how many, how large, how fast, and whether work hides them."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics.attribution import BEFORE, NO_RECORD
from tb_sol_plugin.metrics.memcpy.link import LARGE, rate
from tb_sol_plugin.metrics.memcpy.records import DIRECTIONS, Ints, copies, covered, texts
from tb_sol_plugin.metrics.names import module_instance
from tb_sol_plugin.metrics.phases import device_owners, phase_tree
from tb_sol_plugin.metrics.scope import Mask
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import intervals as I

By: TypeAlias = Literal["direction", "kind", "stream", "step", "module", "phase"]


def labels(capture: Capture, found: pd.DataFrame, by: By) -> npt.NDArray[np.object_]:
    """What each copy is grouped by besides its direction: text, "" for direction and kind."""
    row = found["row"].to_numpy()
    device = capture.device
    if by == "stream":
        many = found["device"].nunique() > 1
        return np.array([f"device {d}, stream {s}" if many else f"stream {s}" for d, s in _pairs(found)], object)
    if by == "step":
        step, numbers = device["step"].to_numpy()[row], capture.steps["number"].to_numpy()
        names = {i: str(n) if n >= 0 else "whole trace" for i, n in enumerate(numbers.tolist())}
        return _named(capture, row, step, names, "(outside every step)")
    if by == "module":
        module = device["module"].to_numpy()[row]
        used = np.unique(module[module >= 0])
        names = {i: module_instance(t) for i, t in zip(used.tolist(), texts(capture.host["name"], used).tolist(), strict=True)}
        return _named(capture, row, module, names, "(no module)")
    if by == "phase":
        node = device_owners(capture).node[row]
        return _named(capture, row, node, dict(enumerate(phase_tree(capture).path)), "(no phase)")
    return np.full(len(found), "", object)


def _pairs(found: pd.DataFrame) -> list[tuple[int, int]]:
    return list(zip(found["device"].tolist(), found["stream"].tolist(), strict=True))


def _named(capture: Capture, row: Ints, code: npt.NDArray[np.integer], names: dict[int, str], outside: str) -> npt.NDArray[np.object_]:
    link = capture.device["link"].to_numpy()[row]
    why = np.select([link == S.BEFORE_WINDOW, link == S.NO_RECORD], [BEFORE, NO_RECORD], outside).astype(object)
    inside = np.array([names.get(c, outside) for c in code.tolist()], object)
    return np.where(code >= 0, inside, why).astype(object) if len(row) else np.zeros(0, object)


def table(capture: Capture, rows: Mask, by: By) -> pd.DataFrame:
    """Copies in groups. Count, bytes and time add up to the same sums whatever `by` is.

    One row per direction (by direction: kinds joined), per direction and kinds (by kind), or per direction and label.
    Columns: direction, src_kind, dst_kind, group (the label), count, bytes (NaN where none was recorded), without_bytes,
    time_ns (plain sum), mean_ns, median_ns, p95_ns, share (of the time), bytes_share, bandwidth_bytes_per_s,
    large_count, large_bytes_per_s (copies of at least 1 MiB), union_ns (union per device, summed over devices), hidden_ns and
    exposed_ns (the part of that union behind a kernel that is no communication, and the rest: they add up to it),
    idle_exposed_ns (exposed, and behind no communication either).
    """
    found = copies(capture, rows)
    found["group"] = labels(capture, found, by)
    keys = ["direction", "src_kind", "dst_kind"] if by == "kind" else ["direction"] if by == "direction" else ["direction", "group"]
    grouped = found.groupby(keys, sort=False)
    code = grouped.ngroup().to_numpy().astype(np.int64)
    count = int(code.max()) + 1 if len(code) else 0
    first = np.unique(code, return_index=True)[1]
    out = found.iloc[first][["direction", "src_kind", "dst_kind", "group"]].reset_index(drop=True)
    if by != "kind":
        for c in ("src_kind", "dst_kind"):
            out[c] = _joined(code, found[c].to_numpy(object), count)
    out = out.assign(**_sums(code, found, count), **_overlap(capture, code, found, count))
    place = {d: i for i, d in enumerate(DIRECTIONS)}
    out["_place"] = [place.get(d, len(place)) for d in out["direction"]]
    order = ["_place", "time_ns"] if by in ("direction", "kind") else ["time_ns", "_place"]
    return out.sort_values(order, ascending=[c == "_place" for c in order], kind="stable", ignore_index=True).drop(columns="_place")


def _joined(code: Ints, text: npt.NDArray[np.object_], count: int) -> list[str]:
    seen: list[set[str]] = [set() for _ in range(count)]
    for c, t in set(zip(code.tolist(), text.tolist(), strict=True)):
        if t:
            seen[c].add(t)
    return [", ".join(sorted(s)) for s in seen]


def _sums(code: Ints, found: pd.DataFrame, count: int) -> dict[str, npt.NDArray[np.generic]]:
    duration, size = found["duration_ns"].to_numpy(), found["bytes"].to_numpy()
    known, large = size >= 0, size >= LARGE
    calls = np.bincount(code, minlength=count).astype(np.int64)
    time, known_bytes = _add(code, duration, count), _add(code[known], size[known], count)
    without = np.bincount(code[~known], minlength=count).astype(np.int64)
    order = np.lexsort((duration, code))
    begin = np.concatenate((np.zeros(1, np.int64), np.cumsum(calls)))[:-1]
    value = duration[order] if count else np.zeros(0, np.int64)
    total_time, total_bytes = int(time.sum()), int(known_bytes.sum())
    return {
        "count": calls,
        "bytes": np.where(without < calls, known_bytes.astype(np.float64), np.nan),
        "without_bytes": without,
        "time_ns": time,
        "mean_ns": (2 * time + calls) // (2 * np.maximum(calls, 1)),
        "median_ns": (value[begin + (calls - 1) // 2] + value[begin + calls // 2]) // 2,
        "p95_ns": value[begin + (95 * calls + 99) // 100 - 1],
        "share": time / total_time if total_time else np.full(count, np.nan),
        "bytes_share": known_bytes / total_bytes if total_bytes else np.full(count, np.nan),
        "bandwidth_bytes_per_s": rate(known_bytes, _add(code[known], duration[known], count)),
        "large_count": np.bincount(code[large], minlength=count).astype(np.int64),
        "large_bytes_per_s": rate(_add(code[large], size[large], count), _add(code[large], duration[large], count)),
    }


def _add(code: Ints, value: Ints, count: int) -> Ints:
    """Exact integer sums per code."""
    out = np.zeros(count, np.int64)
    np.add.at(out, code, value)
    return out


def _overlap(capture: Capture, code: Ints, found: pd.DataFrame, count: int) -> dict[str, Ints]:
    ids, device = np.unique(found["device"].to_numpy(), return_inverse=True)
    start = found["start_ns"].to_numpy()
    merged, first, last = I.union_within(code * max(len(ids), 1) + device, start, start + found["duration_ns"].to_numpy())
    group, where = merged // max(len(ids), 1), ids[merged % max(len(ids), 1)] if len(ids) else np.zeros(0, np.int64)
    union = _add(group, last - first, count)
    hidden = _add(group, covered(capture, where, first, last, communication=False), count)
    behind = _add(group, covered(capture, where, first, last, communication=True), count)
    return {"union_ns": union, "hidden_ns": hidden, "exposed_ns": union - hidden, "idle_exposed_ns": union - behind}
