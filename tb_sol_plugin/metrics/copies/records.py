"""Makes records of copies and sets of memory: one row each, with what hides it, what launched it and what it belongs to.

A copy is a device event of kind copy or set, or a kernel that the driver runs to copy (direction "copy kernel").
A copy of a graph belongs to the launch of that graph: its call is the graph launch, its owners are those around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import kept_with, memo
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.breakdown import COMMUNICATION, COMPUTATION, classes
from tb_sol_plugin.metrics.trees.phases import device_owners
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, larger_than_memory
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables import intervals as I
from tb_sol_plugin.tables.arrays import Ints, Mask, Objects, Rows
from tb_sol_plugin.tables.table import Table, as_table, frame_of

COPY_KERNEL: Final = "copy kernel"
DIRECTIONS: Final = ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "Memset", COPY_KERNEL, "Unknown")
"""In order of display."""
EDGES: Final = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20)
"""Upper ends of the size bins, inclusive."""
BINS: Final = ("≤ 4 KiB", "4–64 KiB", "64 KiB–1 MiB", "1–16 MiB", "16–256 MiB", "> 256 MiB")

COPY_API: Final = re.compile(r"^(?:cuda|hip|cu)Mem(cpy|set|Prefetch|Advise)")
"""A call that moves or sets memory, or advises where it should be; the group is which of these."""
_SUFFIX: Final = re.compile(r"(?:_v\d{1,9}|_ptds|_ptsz){1,9}$")
_ASYNC: Final = re.compile(r"Async", re.IGNORECASE)
_ARRAY: Final = re.compile(r"\b(?:Ato[HDA]|[HD]toA)\b", re.IGNORECASE)
_PLACED: Final = re.compile(r"^(?P<file>.*)\((?P<line>\d+)\): (?P<function>.*)$", re.DOTALL)
"""How the profiler writes a Python frame that has a file: `train.py(42): step`."""
_LINE: Final = re.compile(r"\(\d+\): ")
"""What every such name holds, and no other."""


def copies(capture: Capture, rows: Mask) -> pd.DataFrame:
    """Returns the copies and sets among some device rows (a mask over `device`), in order of start.

    What: row (of `device`), direction, src_kind, dst_kind (texts, "" unknown), array (an end is a CUDA array, which counts as host
    or device memory), src_device, dst_device (ids; -1 the host, or unknown), device, context, stream, start_ns, duration_ns,
    bytes (-1 not recorded), oversize (more bytes than the device has memory: recorded, but impossible), graph_node (-1),
    graph (launched by a graph launch).
    Overlap, of the copy alone: hidden_ns (overlapped by a kernel other than communication) + exposed_ns = duration_ns;
    idle_exposed_ns (overlapped by no kernel at all).
    Launch: link (index into `S.LINKS`), call (host row, -1), call_name (as recorded, "" none), api (the same without version and
    stream suffixes), family ("runtime", "driver", "hip", "" other), is_async (1 yes; 0: the call is a copy or set by a name
    without Async; -1 no call), call_start_ns, call_ns (-1 no call).
    Owners: operator, module (host rows), frame (host row of the innermost Python frame that has a file, see `frame_text`),
    phase_node (node of the phase tree), step (row of `steps`); each -1 where there is none.
    """
    whole = memo(capture, ("copies",), lambda: _copies(capture))
    keep = rows[whole["row"].to_numpy()]
    if keep.all():
        return whole
    last: list[tuple[Mask, Table]] = memo(capture, ("copies.selected",), list)
    if not last or not np.array_equal(last[0][0], keep):  # analyses of one selection follow each other
        last[:] = [(keep, as_table(whole[keep].reset_index(drop=True)))]
    return last[0][1]


def _copies(capture: Capture) -> Table:
    device = capture.device
    kind = device["kind"].to_numpy()
    row = np.flatnonzero((kind != S.KERNEL) | device["copy_kernel"].to_numpy())
    direction, src, dst = (texts(device[c], row) for c in ("direction", "src_kind", "dst_kind"))
    direction[kind[row] == S.KERNEL] = COPY_KERNEL
    direction[direction == ""] = "Unknown"
    where, start, duration = (device[c].to_numpy()[row] for c in ("device", "start_ns", "duration_ns"))
    hidden, overlapped = (covered(capture, where, start, start + duration, communication=c) for c in (False, True))
    source, target = _ends(capture, row, direction, where)
    size = device["bytes"].to_numpy()[row]
    array = arrays.per_text(device["name"], row, lambda name: _ARRAY.search(name) is not None) | (src == "Array") | (dst == "Array")
    columns = {
        "row": row, "direction": direction, "src_kind": src, "dst_kind": dst, "array": array & (kind[row] == S.MEMCPY),
        "src_device": source, "dst_device": target, "device": where, **_plain(device, row, "context", "stream"),
        "start_ns": start, "duration_ns": duration, "bytes": size,
        "oversize": _oversize(capture, direction, where, size),
        **_plain(device, row, "graph_node", "graph"),
        "hidden_ns": hidden, "exposed_ns": duration - hidden, "idle_exposed_ns": duration - overlapped,
        **_plain(device, row, "link"), **_launch(capture, row), **_plain(device, row, "operator", "module"),
        "frame": _frames(capture, device["call"].to_numpy()[row]), "phase_node": device_owners(capture).node[row],
        **_plain(device, row, "step"),
    }  # fmt: skip
    return as_table(frame_of(columns))  # texts shared between rows stay shared


def _oversize(capture: Capture, direction: Objects, device: Ints, size: Ints) -> Mask:
    memories = [one.memory_bytes for one in capture.facts.devices if one.memory_bytes > 0]
    if int(size.max(initial=0)) <= min(memories, default=2**63):
        return np.zeros(len(size), np.bool_)
    return larger_than_memory(pd.DataFrame({"direction": direction, "device": device, "bytes": size}), capture.facts.devices)


def _plain(device: pd.DataFrame, row: npt.NDArray[np.intp], *names: str) -> dict[str, npt.NDArray[np.generic]]:
    return {name: device[name].to_numpy()[row] for name in names}


def _ends(capture: Capture, row: npt.NDArray[np.intp], direction: npt.NDArray[np.object_], device: Ints) -> tuple[Ints, Ints]:
    """Returns the devices a copy goes from and to: of peer copies as recorded, else the device it ran on where that end is a device."""
    source = np.where(np.isin(direction, ("DtoH", "DtoD", COPY_KERNEL)), device, -1)
    target = np.where(np.isin(direction, ("HtoD", "DtoD", "Memset", COPY_KERNEL)), device, -1)
    peers = capture.tables[S.PEERS.name]
    if len(peers):
        place = np.full(len(capture.device), -1, np.int64)
        place[row] = np.arange(len(row))
        at_copy = place[peers["device"].to_numpy()]
        good = at_copy >= 0
        source[at_copy[good]] = peers["from_device"].to_numpy()[good]
        target[at_copy[good]] = peers["to_device"].to_numpy()[good]
    return source, target


def _launch(capture: Capture, row: npt.NDArray[np.intp]) -> dict[str, npt.NDArray[np.generic]]:
    call = capture.device["call"].to_numpy()[row]
    has = call >= 0
    if not len(capture.host):
        call, has = np.full(len(row), -1, np.int32), np.zeros(len(row), bool)
    out: dict[str, npt.NDArray[np.generic]] = {"call": call}
    safe = np.maximum(call, 0)
    text = arrays.coded(capture.host["name"])
    codes = text.codes[safe] if len(capture.host) else np.zeros(len(row), np.int64)
    used, place = arrays.in_order(np.where(has, codes, -1).astype(np.int64))
    known = text.categories
    names = ["" if c < 0 else str(known[c]) for c in used.tolist()]
    for column, function in (("call_name", str), ("api", api_name), ("family", family_of)):
        out[column] = np.array([function(n) for n in names], object)[place] if len(row) else np.zeros(0, object)
    waits = np.array([0 if waits_by_name(n) else 1 for n in names], np.int8)
    out["is_async"] = np.where(has, waits[place], -1).astype(np.int8) if len(row) else np.zeros(0, np.int8)
    for column, name in (("call_start_ns", "start_ns"), ("call_ns", "duration_ns")):
        value = capture.host[name].to_numpy()
        out[column] = np.where(has, value[safe], -1) if len(value) else np.full(len(row), -1, np.int64)
    return out


def api_name(call: str) -> str:
    """Returns a call's name without its version and its kind of default stream: `cuMemcpyHtoDAsync_v2_ptsz` is `cuMemcpyHtoDAsync`."""
    return _SUFFIX.sub("", call)


def family_of(call: str) -> str:
    """Returns runtime, driver or hip by the prefix of a call's name; "" for others."""
    if call.startswith("cuda"):
        return "runtime"
    if call.startswith("hip"):
        return "hip"
    return "driver" if re.match(r"cu[A-Z]", call) else ""


def waits_by_name(call: str) -> bool:
    """Returns whether a call copies or sets memory, and its name is not that of an asynchronous call.

    `hipMemcpyWithStream` keeps the order of its stream and waits. Advice does no work to wait for. A synchronous set of device memory
    returns early all the same: whether a call blocked the host follows from its times.
    """
    found = COPY_API.match(call)
    return found is not None and found[1] != "Advise" and _ASYNC.search(call) is None


def _frames(capture: Capture, call: Rows) -> Rows:
    """Returns the innermost Python frame around each call that has a file: built-in methods have neither file nor line."""
    h = at.host(capture)
    if not len(h.start) or not len(at.of_kind(capture, S.FRAME)):
        return np.full(len(call), -1, np.int32)
    placed = at.mask_of(capture, at.named(capture, S.FRAME, lambda name: _LINE.search(name) is not None))
    return tree.nearest(placed, h.parent, h.stop, call, h.start[np.maximum(call, 0)], h.end)


def frame_text(capture: Capture, rows: npt.ArrayLike) -> npt.NDArray[np.object_]:
    """Returns Python frames (host rows) as `train.py:42 step`; "" for -1, the recorded name for a frame without a file."""
    row = np.asarray(rows, np.int64)
    out = np.full(len(row), "", object)
    has = row >= 0
    if has.any():
        out[has] = arrays.per_text(capture.host["name"], row[has], frame_name, object)
    return out


def frame_name(name: str) -> str:
    """Returns `train.py(42): step`, as the profiler writes a python frame, as `train.py:42 step`; other names as they are."""
    found = _PLACED.match(name)
    return f"{found['file']}:{found['line']} {found['function']}" if found else name


def texts(column: pd.Series[str], row: npt.NDArray[np.intp]) -> npt.NDArray[np.object_]:
    text = arrays.coded(column)
    out: Objects = np.array([str(c) for c in text.categories] or [""], object)[text.codes[row]]
    return out


def in_words(values: Objects, function: Callable[[str], str]) -> Objects:
    """Returns what a function answers for each of some texts, asked once per distinct one; None for ""."""
    code, distinct = pd.factorize(values)
    return np.array([*(function(text) or None for text in distinct), None], object)[code]


def memory_texts(found: pd.DataFrame) -> Objects:
    """Returns `memory_text` of each copy; None for ""."""
    code, kinds = memory_kinds(found)
    return np.array([*(memory_text(*one) or None for one in kinds), None], object)[code]


class MemoryKinds(NamedTuple):
    """Between which kinds of memory copies go: a number per copy, and (direction, src_kind, dst_kind) of each number, by first use."""

    code: Ints
    kinds: list[tuple[str, str, str]]

    def having(self, test: Callable[[str, str, str], bool]) -> Mask:
        """Returns copies whose direction and kinds pass a test, which is asked once per combination."""
        return np.array([*(test(*one) for one in self.kinds), False], np.bool_)[self.code]

    def column(self, place: int) -> tuple[Ints, Objects]:
        """Returns (number per copy, texts by first use) of the direction (0), or of the kind of memory of one end (1, 2)."""
        texts = dict.fromkeys(one[place] for one in self.kinds)
        number = {text: i for i, text in enumerate(texts)}
        return np.array([number[one[place]] for one in self.kinds], np.int64)[self.code], np.array([*texts], object)


def memory_kinds(found: pd.DataFrame) -> MemoryKinds:
    """Returns the kinds of memory of copies, found once per table."""

    def make() -> MemoryKinds:
        ends = [found[name].to_numpy(object) for name in ("direction", "src_kind", "dst_kind")]
        code = arrays.together(*ends)
        first = arrays.first_of(code, int(code.max(initial=-1)) + 1)
        return MemoryKinds(code, list(zip(*(map(str, end[first].tolist()) for end in ends), strict=True)))

    return kept_with(found, "copies.memory_kinds", make)


def numbers_in_words(values: npt.NDArray[np.integer]) -> Objects:
    """Returns numbers of devices or streams as texts, None below 0."""
    number, distinct = pd.factorize(values)
    return np.array([*(str(v) if v >= 0 else None for v in distinct.tolist()), None], object)[number]


def covered(capture: Capture, device: Ints, start: Ints, end: Ints, *, communication: bool) -> Ints:
    """Returns the length of each interval that kernels of its own device cover: those that compute, or communication kernels too."""
    out = np.zeros(len(start), np.int64)
    if len(device) and (device == device[0]).all():
        return I.overlap_with(start, end, busy(capture, int(device[0]), communication=communication))
    for one in pd.unique(device).tolist():
        on_device = device == one
        out[on_device] = I.overlap_with(start[on_device], end[on_device], busy(capture, one, communication=communication))
    return out


def busy(capture: Capture, device: int, *, communication: bool) -> I.Spans:
    """Returns when kernels run on a device: those that compute, or communication kernels too."""

    def make() -> I.Spans:
        kind, is_kernel = classes(capture), capture.device["kind"].to_numpy() == S.KERNEL
        here = is_kernel & ((kind == COMPUTATION) | ((kind == COMMUNICATION) if communication else False))
        here &= capture.device["device"].to_numpy() == device
        start = capture.device["start_ns"].to_numpy()[here]
        return I.union(start, start + capture.device["duration_ns"].to_numpy()[here])

    return memo(capture, ("copies.busy", device, communication), make)


# -- words -----------------------------------------------------------------------------------------------------------


NAMES: Final = {
    "HtoD": "Host to device", "DtoH": "Device to host", "DtoD": "Device to device", "PtoP": "Peer to peer", "HtoH": "Host to host",
    "Memset": "Memset", COPY_KERNEL: "Copy kernels", "Unknown": "Direction unknown",
}  # fmt: skip
COLORS: Final = {"HtoD": "HtoD", "DtoH": "DtoH", "DtoD": "DtoD", "Memset": "Memset", "PtoP": "communication", COPY_KERNEL: "DtoD"}
"""Palette member per direction; others have the color of what has no class."""
ARROW: Final = " → "
SIZES: Final = ("to 4 KiB", "to 64 KiB", "to 1 MiB", "to 16 MiB", "to 256 MiB", "over 256 MiB", "unknown")
"""The size bins as a query names them, in the order of BINS; the last: copies without a size."""


def kinds_text(src: str, dst: str) -> str:
    """Returns `Pinned → Device`; `?` for an end whose kind was not recorded."""
    return f"{src or '?'}{ARROW}{dst or '?'}"


def memory_text(direction: str, src: str, dst: str) -> str:
    """Returns the kinds as a page shows them: both ends of a copy, the one that a set fills, "" where neither was recorded."""
    if direction == "Memset" and not src:
        return dst
    return kinds_text(src, dst) if src or dst else ""


def kinds_of(text: str) -> tuple[str, str] | None:
    """Returns the two kinds of `kinds_text`; `>` and `->` do for the arrow, and nothing for `?`. None for other texts."""
    parts = [part.strip() for part in re.split(r"→|->|>", text)]
    if len(parts) != 2:
        return None
    src, dst = ("" if p == "?" else p for p in parts)
    return src, dst


def in_bin(found: pd.DataFrame, name: str) -> npt.NDArray[np.bool_]:
    """Returns per copy whether its size is in the bin of that name (see SIZES)."""
    size = found["bytes"].to_numpy()
    if name == SIZES[-1]:
        return np.asarray(size < 0, np.bool_)
    at = np.searchsorted(np.array(EDGES), size, side="left")
    return np.asarray((size >= 0) & (at == SIZES.index(name)), np.bool_)


def bin_name(index: int) -> str:
    """Returns the bin as a page shows it: `64 KiB–1 MiB`."""
    return BINS[index]
