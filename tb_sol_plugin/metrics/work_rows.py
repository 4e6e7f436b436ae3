"""Rows of the roofline: calls grouped by operator, module, phase or kernel, with rates and efficiencies."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cost.roofline import ratio
from tb_sol_plugin.metrics.names import module_instance, phase_name
from tb_sol_plugin.metrics.work import Work, group
from tb_sol_plugin.model.capture import Capture

Mask = npt.NDArray[np.bool_]
By: TypeAlias = Literal["op_shape", "op", "module", "phase", "kernel"]

OUTSIDE_MODULE: Final = "(outside every module)"
OUTSIDE_PHASE: Final = "(outside every phase)"
_KEYS: Final = {"op_shape": ["name", "shapes", "dtype", "direction"], "op": ["name"]}


def rows(capture: Capture, done: Work, ops: pd.DataFrame, by: By, chosen: Mask) -> pd.DataFrame:
    """Rows of the roofline table, longest first. ops: the calls of the selection. chosen: per device row, whether it is selected.

    Columns: id, name, input_shapes, dtype, direction, kind, bound, flags, reason, estimated, flagged and the sums and ratios of
    `metrics.work.group`, with share, intensity_flop_per_byte, achieved_flop_per_s and achieved_bytes_per_s. NaN is unknown.
    """
    if by == "kernel" and not done.by_host_time:
        ops = _kernels(capture, done, chosen)
    elif by in ("module", "phase"):
        ops = ops.assign(name=_around(capture, ops, by))
    frame = group(ops, _KEYS.get(by, ["name"]))
    if by != "op_shape":
        frame = frame.assign(shapes="", dtype=_joined(ops, frame, "dtype"), direction=_joined(ops, frame, "direction"))
    frame["kind"] = _main_kind(ops, frame, _KEYS.get(by, ["name"]))
    work_done = np.where(frame["flop"].to_numpy() > 0, frame["flop"].to_numpy(), frame["flop_vector"].to_numpy())
    work_done = np.where(work_done > 0, work_done, np.nan)
    known = frame["known_ns"].to_numpy() / 1e9
    data = frame["bytes"].to_numpy()
    frame = frame.assign(
        name=frame["name"].astype(str),
        input_shapes=frame["shapes"].astype(str),
        vector_flop=frame["flop_vector"],
        dtype=frame["dtype"].astype(str),
        direction=frame["direction"].astype(str),
        bound=frame["bound"].astype(str),
        intensity_flop_per_byte=ratio(work_done, data),
        achieved_flop_per_s=ratio(work_done, known),
        achieved_bytes_per_s=ratio(data, known),
        share=ratio(frame["measured_ns"].to_numpy(), np.full(len(frame), frame["measured_ns"].sum())),
        flags=_flags(ops, frame),
    )
    split = by == "op_shape"
    frame["id"] = (
        (frame["name"] + " | " + frame["input_shapes"] + " | " + frame["dtype"] + " | " + frame["direction"]) if split else frame["name"]
    )
    return frame.sort_values("measured_ns", ascending=False, kind="stable").reset_index(drop=True)


def _kernels(capture: Capture, done: Work, chosen: Mask) -> pd.DataFrame:
    """Device rows as calls: a kernel takes the part of its operator's work that its time is of the operator's time."""
    device = capture.device
    rows = np.flatnonzero(chosen & (done.owner >= 0))
    owner = done.owner[rows]
    duration = device["duration_ns"].to_numpy()[rows].astype(np.float64)
    ops = done.ops.iloc[owner].reset_index(drop=True)
    piece = ratio(duration, ops["device_sum_ns"].to_numpy(dtype=np.float64))
    scaled = {c: ops[c].to_numpy(dtype=np.float64) * piece for c in ("flop", "flop_vector", "bytes", "sol_ns")}
    names = pd.Categorical.from_codes(device["name"].cat.codes.to_numpy()[rows], device["name"].cat.categories)
    several = ops["device_events"].to_numpy() > 1
    return ops.assign(
        name=names,
        measured_ns=duration,
        **scaled,
        estimated=ops["estimated"].to_numpy() | (several & ops["modelled"].to_numpy()),
        reason=np.where(several, "work of the operator shared among its kernels by time", ops["reason"].astype(str)),
    )


def _around(capture: Capture, ops: pd.DataFrame, by: str) -> pd.Categorical:
    names = capture.host["name"].cat.categories
    clean, none = (module_instance, OUTSIDE_MODULE) if by == "module" else (phase_name, OUTSIDE_PHASE)
    words = np.array([*(clean(str(n)) for n in names), none], object)
    rows = ops["module" if by == "module" else "annotation"].to_numpy()
    codes = np.append(capture.host["name"].cat.codes.to_numpy().astype(np.int64), -1)
    return pd.Categorical(words[codes[rows]])


def _joined(ops: pd.DataFrame, frame: pd.DataFrame, column: str) -> list[str]:
    """Per row the distinct values of a column among its calls."""
    pairs = ops[["name", column]].drop_duplicates().astype(str)
    found: dict[str, list[str]] = {}
    for name, value in zip(pairs["name"], pairs[column], strict=True):
        if value:
            found.setdefault(name, []).append(value)
    return [", ".join(sorted(found.get(name, []))) for name in frame["name"].astype(str)]


def _main_kind(ops: pd.DataFrame, frame: pd.DataFrame, keys: list[str]) -> list[str]:
    """Per row the kind that holds most of its time."""
    by_kind = ops.groupby([*keys, "kind"], observed=True, sort=False)["measured_ns"].sum().reset_index()
    best = by_kind.sort_values("measured_ns", ascending=False, kind="stable").drop_duplicates(keys)
    merged = frame[keys].astype(str).merge(best.astype({**dict.fromkeys(keys, str), "kind": str}), on=keys, how="left")
    return [str(k) for k in merged["kind"]]


def _flags(ops: pd.DataFrame, frame: pd.DataFrame) -> list[str]:
    links = set(ops.loc[ops["link"].to_numpy(), "name"].astype(str))
    out = []
    for name, over, guessed, known in zip(frame["name"].astype(str), frame["flagged"], frame["estimated"], frame["known_ns"], strict=True):
        words = [w for w, on in (("above limit", over), ("estimated", guessed), ("link", name in links and not known)) if on]
        out.append(", ".join(words))
    return out
