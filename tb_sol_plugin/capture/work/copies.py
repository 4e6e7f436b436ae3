"""Counts copies between memories as the dispatcher sees them: direction, kinds of memory, bytes, and whether the host waits.

Counted is what leaves one place for another unchanged:

    copy_, _to_copy (`to`, `cpu`, `cuda`), _copy_from, _foreach_copy_     between two memories, and within one
    clone (`contiguous`)                                                  within one memory
    _pin_memory                                                           from pageable to pinned memory of the host
    _local_scalar_dense (`item`, `float`, `if tensor:`)                   one number that the host reads off a device
    nonzero, masked_select, unique, bincount, equal, index by a mask …    a number that the host reads inside of them: how many there are
    index by a tensor of the host                                         the index, which goes to the device

Views, copies of nothing and `to` that returns what it was given are none. A conversion within one memory (`half()`) computes and is none;
neither are sets (`zero_`, `fill_`), which are kernels. Copies inside other operators, in C++ code that does not go through the dispatcher
(collectives, CUDA graphs) and on other threads (the `pin_memory` thread of a DataLoader) are not seen.

Bytes are those that pass between the memories. Where elements are converted on the way, torch converts on the host, unless
non_blocking, which is when the device does it; so 4 bytes per element cross from float32 on the host to float16 on the device with
non_blocking, and 2 without. A copy that cannot be made in one piece (a conversion, different layouts) goes through a pageable buffer of the
host, even if the memory that it is from is pinned.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import torch
from torch import Tensor

from tb_sol_plugin.capture.loop.schedule import CopyRow

HTOD, DTOH, DTOD, PTOP, HTOH, COPY_KERNEL = "HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "copy kernel"
"""Directions. A copy kernel copies within a device element by element, since the layouts differ; DtoD needs none."""
PAGEABLE, PINNED, DEVICE, UNKNOWN = "Pageable", "Pinned", "Device", ""
HOST: Final = -1
"""Index of the host in place of a device's."""
UNSIZED: Final = -1
"""Bytes of a copy whose size is not known from its arguments."""
WAITS, RUNS_ON, UNSURE = 1, 0, -1
"""Whether the host waits for a copy."""
MOST_KEYS: Final = 20_000
"""Distinct rows of an iteration; copies beyond are lost."""

Pinned: TypeAlias = "Callable[[Tensor], bool]"
Args: TypeAlias = "Sequence[object]"
Kwargs: TypeAlias = "Mapping[str, object] | None"


class Crossing(NamedTuple):
    """Describes one copy. src_device, dst_device: HOST or the index. bytes: UNSIZED where unknown. non_blocking: as it was called.

    blocks: WAITS, RUNS_ON or UNSURE.
    """

    direction: str
    src_kind: str
    dst_kind: str
    src_device: int
    dst_device: int
    non_blocking: bool
    blocks: int
    bytes: int


CopyKey: TypeAlias = "tuple[str, str, str, str, int, int, bool, int, int, int, int]"
"""Copies that are counted together: operator as a trace has it (`aten::copy_`), the fields of a Crossing but its bytes, then labels:
module, phase, function, -1 none."""


class CopyCounts:
    """Counts the copies of one iteration by key: [copies, bytes, copies without a size, ns inside the calls on the host; -1 not known].

    pinned: asked whether a tensor of the host lies in pinned memory. lost: what could not be counted, by reason.
    """

    def __init__(self, pinned: Pinned | None = None) -> None:
        self.rows: dict[CopyKey, list[int]] = {}
        self.lost: Counter[str] = Counter()
        self._pinned = pinned or is_pinned
        self._lock = threading.RLock()  # a signal may come in between, and copy

    def clear(self) -> None:
        """Forget the iteration."""
        self.rows.clear()
        self.lost.clear()

    def records(self, *, timed: bool) -> list[CopyRow]:
        """Returns the rows of the iteration, largest first. timed: the calls took the time that they take outside of a sampled step."""
        with self._lock:
            rows = [_row(key, row, timed) for key, row in self.rows.items()]
        return sorted(rows, key=_largest_first)

    def add(self, op: str, mover: Mover, args: Args, kwargs: Kwargs, result: object, call_ns: int, labels: tuple[int, int, int]) -> None:
        """Count the copies of one call that has returned. labels: module, phase, function. Its time is shared out evenly."""
        found = list(mover(args, kwargs, result, self._pinned))
        if not found:
            return
        share, rest = divmod(call_ns, len(found))
        rows = self.rows
        with self._lock:
            for one in found:
                size = one[-1]
                key = (op, *one[:-1], *labels)
                row = rows.get(key)
                if row is None:
                    if len(rows) >= MOST_KEYS:
                        self.lost["too many distinct copies"] += 1
                        continue
                    row = rows[key] = [0, 0, 0, 0]
                row[0] += 1
                if size >= 0:
                    row[1] += size
                else:
                    row[2] += 1
                row[3] += share + rest
                rest = 0


def _row(key: CopyKey, row: Sequence[int], timed: bool) -> CopyRow:
    copies, size, unsized, call_ns = row
    op, direction, src_kind, dst_kind, src_device, dst_device, non_blocking, blocks, module, phase, function = key
    waited = None if blocks == UNSURE else copies * blocks
    ends = op, direction, src_kind, dst_kind, src_device, dst_device, non_blocking
    return (*ends, module, phase, function, copies, size, unsized, waited, call_ns if timed else None)


def _largest_first(row: CopyRow) -> tuple[object, ...]:
    return (-row[11], *row[:10])


def is_pinned(tensor: Tensor) -> bool:
    """Returns whether a tensor of the host lies in pinned memory."""
    return bool(tensor.is_pinned())


# -- what one copy is -------------------------------------------------------------------------------------------------


def crossing(src: Tensor, dst: Tensor, non_blocking: bool, pinned: Pinned = is_pinned) -> Crossing | None:
    """Classifies copying src over dst; None for what moves nothing, or computes. dst may be larger: src is then repeated."""
    if src is dst or src.is_meta or dst.is_meta or dst.numel() == 0:
        return None
    if src.device == dst.device or (src.is_cpu and dst.is_cpu):
        return _within_memory(src, dst, non_blocking, pinned) if src.dtype is dst.dtype else None
    if src.is_cpu or dst.is_cpu:
        return _host_and_device(src, dst, non_blocking, pinned)
    same_type = src.dtype is dst.dtype
    known = src.device.type in _CONVERTS
    size = dst.nbytes if _sized(src) and _sized(dst) and same_type else UNSIZED
    blocks = RUNS_ON if src.device.type == dst.device.type and known else UNSURE
    return Crossing(PTOP, DEVICE, DEVICE, src.get_device(), dst.get_device(), non_blocking, blocks, size)


def _within_memory(src: Tensor, dst: Tensor, non_blocking: bool, pinned: Pinned) -> Crossing:
    """Classifies a copy of one type within the host's memory, or within that of one device."""
    sized = _sized(src) and _sized(dst)
    size = dst.nbytes if sized else UNSIZED
    if dst.is_cpu:
        return Crossing(HTOH, _host_kind(src, pinned), _host_kind(dst, pinned), HOST, HOST, non_blocking, RUNS_ON, size)
    at = dst.get_device()
    direction = DTOD if sized and in_one_piece(src, dst) else COPY_KERNEL
    return Crossing(direction, DEVICE, DEVICE, at, at, non_blocking, RUNS_ON, size)


def _host_and_device(src: Tensor, dst: Tensor, non_blocking: bool, pinned: Pinned) -> Crossing:
    """Classifies a copy between the host and a device, whose elements may be converted on the way."""
    from_host, same_type = src.is_cpu, src.dtype is dst.dtype
    sized = _sized(src) and _sized(dst)
    known = (dst if from_host else src).device.type in _CONVERTS
    crosses = dst if from_host is not non_blocking else src
    size = dst.numel() * crosses.element_size() if sized and (same_type or known) else UNSIZED
    buffered = sized and not (same_type and in_one_piece(src, dst)) and not ((same_type or non_blocking) and _in_order(src, dst))
    kind = PAGEABLE if buffered else _host_kind(src if from_host else dst, pinned)
    blocks = WAITS if not non_blocking else RUNS_ON if kind == PINNED else WAITS if known else UNSURE
    if from_host:
        return Crossing(HTOD, kind, DEVICE, HOST, dst.get_device(), non_blocking, blocks, size)
    return Crossing(DTOH, DEVICE, kind, src.get_device(), HOST, non_blocking, blocks, size)


def _in_order(src: Tensor, dst: Tensor) -> bool:
    """Returns whether the side on the host is read or written in the order of its elements, all of which are copied."""
    host = src if src.is_cpu else dst
    return host.is_contiguous() and (host is dst or bool(src.shape == dst.shape))


_CONVERTS: Final = frozenset(("cuda", "xpu"))
"""Devices whose way to convert elements in a copy is known. HIP devices are named cuda as well."""


def _sized(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_nested


def _host_kind(tensor: Tensor, pinned: Pinned) -> str:
    return PINNED if pinned(tensor) else PAGEABLE


def in_one_piece(src: Tensor, dst: Tensor) -> bool:
    """Returns whether both lie in memory without gaps and in the same order, so that they can be copied as one block."""
    if src.numel() != dst.numel():
        return False
    if src.is_contiguous() and dst.is_contiguous():
        return True
    source, target = ([(n, s) for n, s in zip(t.shape, t.stride(), strict=True) if n != 1] for t in (src, dst))
    if source != target:
        return False
    reach = 1
    for length, stride in sorted(source, key=_by_stride):
        if stride != reach:
            return False
        reach *= length
    return True


def _by_stride(dimension: tuple[int, int]) -> int:
    return dimension[1]


# -- operators ----------------------------------------------------------------------------------------------------------

Mover: TypeAlias = "Callable[[Args, Kwargs, object, Pinned], Iterable[Crossing]]"
"""The copies of a call, by its arguments and its result."""


def _given(args: Args, kwargs: Kwargs, at: int, name: str, otherwise: object = None) -> object:
    return args[at] if at < len(args) else (kwargs or {}).get(name, otherwise)


def _over(args: Args, kwargs: Kwargs, result: object, pinned: Pinned) -> Iterator[Crossing]:
    """Finds the copy of copy_(self, src, non_blocking)."""
    yield from _pair(_given(args, kwargs, 1, "src"), _given(args, kwargs, 0, "self"), _given(args, kwargs, 2, "non_blocking"), pinned)


def _from(args: Args, kwargs: Kwargs, result: object, pinned: Pinned) -> Iterator[Crossing]:
    """Finds the copy of _copy_from(self, dst, non_blocking)."""
    yield from _pair(_given(args, kwargs, 0, "self"), _given(args, kwargs, 1, "dst"), _given(args, kwargs, 2, "non_blocking"), pinned)


def _to(args: Args, kwargs: Kwargs, result: object, pinned: Pinned) -> Iterator[Crossing]:
    """Finds the copy of _to_copy and clone, whose result is new: it shares nothing with the argument, also on the same device."""
    yield from _pair(_given(args, kwargs, 0, "self"), result, (kwargs or {}).get("non_blocking"), pinned)


def _pins(args: Args, kwargs: Kwargs, result: object, pinned: Pinned) -> Iterator[Crossing]:
    """Finds the copy of _pin_memory(self)."""
    src = _given(args, kwargs, 0, "self")
    if isinstance(src, Tensor) and src.numel():
        size = src.numel() * src.element_size() if _sized(src) else UNSIZED
        yield Crossing(HTOH, _host_kind(src, pinned), PINNED, HOST, HOST, False, RUNS_ON, size)


def _each(args: Args, kwargs: Kwargs, result: object, pinned: Pinned) -> Iterator[Crossing]:
    """Finds the copies of _foreach_copy_(self, src, non_blocking)."""
    over, src = _given(args, kwargs, 0, "self", ()), _given(args, kwargs, 1, "src", ())
    non_blocking = _given(args, kwargs, 2, "non_blocking")
    for dst, one in zip(over, src, strict=False):  # type: ignore[call-overload]
        for found in _pair(one, dst, non_blocking, pinned):
            # one kernel copies all that lies on the device
            yield found._replace(direction=COPY_KERNEL) if found.direction == DTOD else found


def _pair(src: object, dst: object, non_blocking: object, pinned: Pinned) -> Iterator[Crossing]:
    if isinstance(src, Tensor) and isinstance(dst, Tensor):
        found = crossing(src, dst, bool(non_blocking), pinned)
        if found is not None:
            yield found


def _read(tensor: object, size: int = UNSIZED) -> Iterator[Crossing]:
    """Describes a read of the host from a device, for which it waits. Where to is torch's own affair."""
    if isinstance(tensor, Tensor) and tensor.device.type not in ("cpu", "meta"):
        yield Crossing(DTOH, DEVICE, UNKNOWN, tensor.get_device(), HOST, False, WAITS, size)


def _number(args: Args, kwargs: Kwargs, result: object, pinned: Pinned) -> Iterator[Crossing]:
    """Finds the read of _local_scalar_dense(self)."""
    tensor = _given(args, kwargs, 0, "self")
    yield from _read(tensor, tensor.element_size() if isinstance(tensor, Tensor) else UNSIZED)


def _counts(args: Args, kwargs: Kwargs, result: object, pinned: Pinned) -> Iterator[Crossing]:
    """Finds the read of operators whose result has a size that the host has to ask for, or that give the host an answer."""
    yield from _read(next(iter(args), None) if args else next(iter((kwargs or {}).values()), None))


def _repeats(args: Args, kwargs: Kwargs, result: object, pinned: Pinned) -> Iterator[Crossing]:
    """Finds the read of repeat_interleave(repeats, output_size)."""
    if (kwargs or {}).get("output_size") is None:
        yield from _read(_given(args, kwargs, 0, "repeats"))


def _indexed(args: Args, kwargs: Kwargs, result: object, pinned: Pinned) -> Iterator[Crossing]:
    """Finds the reads of index(self, indices): masks of the device are counted by the host, indices of the host go to the device."""
    tensor, indices = _given(args, kwargs, 0, "self"), _given(args, kwargs, 1, "indices", ())
    if not isinstance(tensor, Tensor) or tensor.device.type in ("cpu", "meta"):
        return
    for index in indices:  # type: ignore[attr-defined]
        if not isinstance(index, Tensor) or not index.numel():
            continue
        mask = index.dtype in (torch.bool, torch.uint8)
        if index.device.type == "cpu":
            size = UNSIZED if mask else index.numel() * index.element_size()
            kind = PAGEABLE if mask else _host_kind(index, pinned)
            yield Crossing(HTOD, kind, DEVICE, HOST, tensor.get_device(), False, WAITS, size)
        elif mask:
            yield from _read(index)


def _put(args: Args, kwargs: Kwargs, result: object, pinned: Pinned) -> Iterator[Crossing]:
    """Finds the reads of index_put_(self, indices, values, accumulate): one value under a mask is filled in, without counting."""
    values, accumulate = _given(args, kwargs, 2, "values"), _given(args, kwargs, 3, "accumulate")
    indices = _given(args, kwargs, 1, "indices", ())
    masks = [i for i in indices if isinstance(i, Tensor)]  # type: ignore[attr-defined]
    filled = isinstance(values, Tensor) and values.numel() == 1 and not accumulate and all(i.dtype is torch.bool for i in masks)
    if not filled:
        yield from _indexed(args, kwargs, result, pinned)


MOVERS: Final[dict[str, Mover]] = {
    "aten::copy_": _over,
    "aten::copy": _over,
    "aten::_to_copy": _to,
    "aten::clone": _to,
    "aten::_copy_from": _from,
    "aten::_copy_from_and_resize": _from,
    "aten::_foreach_copy_": _each,
    "aten::_pin_memory": _pins,
    "aten::_local_scalar_dense": _number,
    **dict.fromkeys(
        (
            "aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::_unique", "aten::unique_dim", "aten::unique_consecutive",
            "aten::unique_dim_consecutive", "aten::bincount", "aten::equal", "aten::_linalg_check_errors",
        ),
        _counts,
    ),
    "aten::repeat_interleave": _repeats,
    "aten::index": _indexed,
    "aten::index_put_": _put,
    "aten::index_put": _put,
    "aten::_index_put_impl_": _put,
}  # fmt: skip
"""Operators that may copy, by name without overload."""
NUMBERS: Final = "aten::_local_scalar_dense"
"""The operator behind `item()`."""
