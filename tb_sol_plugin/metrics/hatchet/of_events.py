"""Device events of a trace as frames: place, operator, then kernel or copy. Sums of time, count and bytes are those of the events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.cost.roofline import ratio
from tb_sol_plugin.metrics.hatchet.places import OUTSIDE, By, places, reasons
from tb_sol_plugin.metrics.hatchet.tree import HOST_TIME, TIME, WIDTHS, Number, Tree
from tb_sol_plugin.metrics.work.work import work
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Ints, factorize

TYPES: Final = {S.KERNEL: "kernel", S.MEMCPY: "memcpy", S.MEMSET: "memset"}


def copy_name(direction: str, source: str, target: str) -> str:
    """`Memcpy HtoD (Pinned -> Device)`, `Memset (Device)`; kinds that are not known are left out."""
    if direction == "Memset":
        return f"Memset ({target})" if target else "Memset"
    ends = f" ({source or 'Unknown'} -> {target or 'Unknown'})" if source or target else ""
    return f"Memcpy {direction or 'Unknown'}{ends}"


def add_device(tree: Tree, capture: Capture, by: By) -> None:
    """All device rows of `capture`, summed by place, operator, name, kinds of memory and device."""
    device = capture.device
    where = places(capture, by)
    why = reasons(capture)
    operator = device["operator"].to_numpy()
    names = capture.host["name"]
    called = np.where(operator >= 0, arrays.codes(names)[np.maximum(operator, 0)] if len(names) else -1, -1)
    reason, reason_words = pd.factorize(why)
    columns = [where.node, called, reason.astype(np.int64), device["kind"].to_numpy().astype(np.int64)]
    columns += [arrays.codes(device[c]) for c in ("direction", "src_kind", "dst_kind", "name")]
    kernel = device["kind"].to_numpy() == S.KERNEL
    columns[-1] = np.where(kernel, columns[-1], -1)  # copies go by what they are, kernels by their name
    columns += [device["device"].to_numpy()]
    code, first = factorize(columns)
    sums = _sums(capture, code, len(first))
    frames = _place_frames(tree, where.name, where.parent, where.kind)
    words = {c: arrays.pick(device[c], first) for c in ("direction", "src_kind", "dst_kind", "name")}
    kinds, ids = device["kind"].to_numpy()[first], device["device"].to_numpy()[first]
    categories = names.cat.categories
    for group, row in enumerate(first.tolist()):
        lost = str(reason_words[reason[row]])
        if lost:
            place = tree.at(0, lost, "scope")
        elif where.node[row] >= 0:
            place = frames(int(where.node[row]))
        else:
            place = tree.at(0, OUTSIDE[by], "scope") if by != "operator" or called[row] < 0 else 0
        if called[row] >= 0:
            place = tree.at(place, str(categories[called[row]]), "operator")
        kind = int(kinds[group])
        recorded = {c: str(values[group]) for c, values in words.items()}
        name = recorded["name"] if kind == S.KERNEL else copy_name(recorded["direction"], recorded["src_kind"], recorded["dst_kind"])
        frame = tree.at(place, name, TYPES[kind], str(max(int(ids[group]), 0)))
        tree.add(frame, {n: v[group] for n, v in sums.items()})


def _place_frames(tree: Tree, names: list[str], parent: list[int], kind: str) -> Callable[[int], int]:
    """A function that makes the frame of a place, with those around it, on first use."""
    made: dict[int, int] = {-1: 0}

    def frame(node: int) -> int:
        way = []
        while node not in made:
            way.append(node)
            node = parent[node]
        for inner in reversed(way):
            made[inner] = tree.at(made[parent[inner]], names[inner], kind)
        return made[way[0]] if way else made[node]

    return frame


def _sums(capture: Capture, code: Ints, size: int) -> dict[str, list[Number | None]]:
    """Per group its metrics, None where it has none."""
    device = capture.device
    duration, data = device["duration_ns"].to_numpy(), device["bytes"].to_numpy()
    moves = device["kind"].to_numpy() != S.KERNEL
    known = moves & (data >= 0)
    without_bytes = np.bincount(code[moves & ~known], minlength=size)
    time, copied = arrays.exact_sums(code, duration, size), arrays.exact_sums(code[known], data[known], size)
    own_bytes = np.bincount(code[known], minlength=size) > 0
    out: dict[str, list[Number | None]] = {
        TIME: time.tolist(),
        "count": np.bincount(code, minlength=size).tolist(),
        "without_bytes": [int(b) or None for b in without_bytes.tolist()],
    }
    work_bytes, flops = _work(capture, code, size)
    both = zip(copied.tolist(), own_bytes.tolist(), work_bytes.tolist(), strict=True)
    out["bytes"] = [int(of_copies) if own else _known(of_work) for of_copies, own, of_work in both]
    return out | {name: [_known(v) for v in values.tolist()] for name, values in flops.items()}


def _known(value: float) -> Number | None:
    return None if value != value or value <= 0 else round(value)


def _work(capture: Capture, code: Ints, size: int) -> tuple[Floats, dict[str, Floats]]:
    """(least traffic of the kernels of each group, FLOP by width): each kernel takes the part of its operator's work that its time is."""
    done = work(capture)
    rows = np.flatnonzero((done.owner >= 0) & (capture.device["kind"].to_numpy() == S.KERNEL)) if len(done.owner) else np.zeros(0, np.int64)
    at = done.owner[rows]
    ops = done.ops
    total = np.bincount(at, capture.device["duration_ns"].to_numpy()[rows], minlength=len(ops)).astype(np.float64)
    share = ratio(capture.device["duration_ns"].to_numpy()[rows].astype(np.float64), total[at])
    modeled = ops["modeled"].to_numpy()[at]
    flop, data = (np.where(modeled, ops[c].to_numpy(dtype=np.float64)[at] * share, np.nan) for c in ("flop", "bytes"))
    traffic = arrays.known_sums(code[rows], data, size)
    dtype = arrays.codes(ops["dtype"])[at]
    words = [str(w) for w in ops["dtype"].cat.categories]
    out: dict[str, Floats] = {}
    for index, word in enumerate(words):
        mine = (dtype == index) & (np.nan_to_num(flop) > 0)
        if mine.any():
            width = WIDTHS.get(word)
            name = f"flops{width}" if width else "flops"
            out[name] = out.get(name, 0.0) + np.nan_to_num(arrays.known_sums(code[rows][mine], flop[mine], size))
    guessed = ops["estimated"].to_numpy()[at] & (np.nan_to_num(flop) > 0)
    if guessed.any():
        out["flops_estimated"] = arrays.known_sums(code[rows][guessed], flop[guessed], size)
    return traffic, out


def add_host(tree: Tree, capture: Capture) -> None:
    """Operators of a recording without device work, by their time on the host."""
    ops = work(capture).ops
    code, first = factorize([arrays.codes(ops["name"]), arrays.codes(ops["dtype"])])
    names, dtypes = arrays.pick(ops["name"], first), arrays.pick(ops["dtype"], first)
    time = np.bincount(code, np.nan_to_num(ops["measured_ns"].to_numpy(dtype=np.float64)), len(first))
    flop, data = (arrays.known_sums(code, ops[c].to_numpy(dtype=np.float64), len(first)) for c in ("flop", "bytes"))
    count = np.bincount(code, minlength=len(first))
    for group, (name, dtype) in enumerate(zip(names.tolist(), dtypes.tolist(), strict=True)):
        width = WIDTHS.get(str(dtype))
        metrics = {HOST_TIME: round(float(time[group])), "count": int(count[group]), "bytes": _known(float(data[group]))}
        tree.add(tree.at(0, str(name), "operator"), {**metrics, f"flops{width or ''}": _known(float(flop[group]))})
