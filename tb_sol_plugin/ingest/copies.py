"""Copies and sets of memory: where they go, between which kinds of memory and which devices; and what about them cannot be.

What contradicts itself is counted, never mended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.devices.spec import DeviceProps
from tb_sol_plugin.ingest import rules
from tb_sol_plugin.ingest.columns import Array, Interner
from tb_sol_plugin.ingest.decode import Columns
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.oversize import larger_than_memory
from tb_sol_plugin.tables.arrays import Ints, Mask

AGREE: Final = 0.02
"""How far a recorded bandwidth may lie from bytes over time before it counts as a contradiction."""


def describe(columns: Columns, raw: dict[str, Array]) -> tuple[dict[str, object], Mask]:
    """(columns direction, src_kind, dst_kind and copy_kernel of the device table, whether a row is a set), from the columns as read.

    Worked out once per distinct (kind, name, recorder's kind). Some recorders file sets of memory under copies.
    """
    names = list(columns.names)
    kind, name, said = (np.asarray(raw[k]).astype(np.int64) for k in ("kind", "name", "copy_kind"))
    shown, remap = columns.texts.compact()
    texts = [str(t) for t in shown]
    said = remap[said].astype(np.int64)
    key = (kind * (len(names) + 1) + name) * (len(texts) + 1) + said
    distinct, first, place, often = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    directions, sources, targets = Interner(), Interner(), Interner()
    codes = np.zeros((3, len(distinct)), np.int32)
    copy_kernel, fill = np.zeros(len(distinct), bool), np.zeros(len(distinct), bool)
    directions[""], sources[""], targets[""] = 0, 0, 0
    for i, row in enumerate(first.tolist()):
        text = str(names[int(name[row])])
        if kind[row] == S.KERNEL:
            copy_kernel[i] = bool(rules.COPY_KERNEL.search(text))
            continue
        found = rules.copy_of(text, kind[row] == S.MEMSET, texts[int(said[row])])
        codes[:, i] = directions[found[0]], sources[found[1]], targets[found[2]]
        fill[i] = found[0] == "Memset"
        if disagree(text, texts[int(said[row])]):
            columns.health.add("copy whose name and kind disagree", int(often[i]), text)
    columns_of = {
        "direction": directions.categorical(codes[0][place]),
        "src_kind": sources.categorical(codes[1][place]),
        "dst_kind": targets.categorical(codes[2][place]),
        "copy_kernel": copy_kernel[place],
    }
    return columns_of, fill[place]


def peers(columns: Columns, order: Ints) -> pd.DataFrame:
    """Copies between devices with the devices that they name, in order of the device table."""
    raw = columns.peers.take()
    if not raw:
        return S.PEERS.empty()
    rows = order[np.asarray(raw["device"])].astype(np.int32)
    by_row = np.argsort(rows, kind="stable")
    return S.PEERS.frame(
        {"device": rows[by_row], "from_device": np.asarray(raw["from_device"])[by_row], "to_device": np.asarray(raw["to_device"])[by_row]}
    )


def observe(device: pd.DataFrame, devices: Sequence[DeviceProps], health: Health) -> None:
    """Health lines of the copies and sets in the finished device table; `devices` as the header lists them."""
    rows = np.flatnonzero(device["kind"].to_numpy() != S.KERNEL)
    if not len(rows):
        return
    copies = device.iloc[rows]
    direction = copies["direction"].astype(object).to_numpy()
    for reason, mask in (
        ("unknown copy direction", direction == "Unknown"),
        ("copy without bytes", copies["bytes"].to_numpy() < 0),
        ("copy larger than its device's memory", larger_than_memory(copies, devices)),
        ("copy without a stream", copies["stream"].to_numpy() < 0),
        ("recorded bandwidth disagrees with bytes over time", _contradicts(copies)),
    ):
        if mask.any():
            health.add(reason, int(mask.sum()), str(copies["name"].iloc[int(np.argmax(mask))]))


def _contradicts(copies: pd.DataFrame) -> Mask:
    """Copies whose recorded bandwidth is more than 2 % off bytes over time, by more than the clock's resolution explains.

    Recorders divide by the duration before they round it for the file: with a clock of whole microseconds a short copy says nothing.
    """
    size, time = copies["bytes"].to_numpy(np.float64), copies["duration_ns"].to_numpy(np.float64)
    said = copies["bandwidth"].to_numpy()  # GB/s, which is bytes per ns
    whole = (copies["duration_ns"].to_numpy() % 1000 == 0).all() and (copies["start_ns"].to_numpy() % 1000 == 0).all()
    resolution = 1000.0 if whole else 1.0
    checked = (size > 0) & (time > 0) & (said > 0)
    with np.errstate(invalid="ignore"):
        return np.asarray(checked & (np.abs(said * time - size) > AGREE * size + said * resolution), np.bool_)


def disagree(name: str, kind: str) -> bool:
    """Whether a copy's name and what its recorder says beside it spell two directions."""
    by_name, beside = rules.direction_of(name), rules.direction_of(kind)
    return "Unknown" not in (by_name, beside) and bool(by_name and beside) and by_name != beside
