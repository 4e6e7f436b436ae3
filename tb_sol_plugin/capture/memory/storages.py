"""Sums the bytes of tensors by the storages that they lie in: each byte belongs to the first tensor that covers it.

A storage is known by its device, its address and its size. Of a tensor only these numbers are kept, never the tensor.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

MOST_TENSORS: Final = 500_000
"""Tensors of one walk; more are counted as left out."""
FLATTEN: Final = 4
"""Tensors within tensors (sharded and quantized ones) that are followed."""
NAMES: Final = {
    "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "fp8", "float8_e4m3fnuz": "fp8",
    "float8_e5m2": "fp8", "float8_e5m2fnuz": "fp8",
}  # fmt: skip
"""Short names of types; the others have those of torch."""
WHOLE_HOST: Final = -1


class Extent(NamedTuple):
    """Locates the numbers of a tensor in its storage. first, past: bytes in its storage; view_bytes: its elements times their size.

    device: index, -1 the host. storage_bytes: of the whole storage at `address`.
    """

    device: int
    address: int
    storage_bytes: int
    first: int
    past: int
    view_bytes: int
    dtype: str


class Row(NamedTuple):
    """Names the category, dtype, module (a label or -1) and device that tensors are summed up by."""

    category: str
    dtype: str
    module: int
    device: int


class Sum(NamedTuple):
    """Sums tensors. tensors: that cover bytes of their own. bytes: of storages; view_bytes: of the tensors themselves."""

    tensors: int
    bytes: int
    view_bytes: int


class _Storage:
    """Tracks what is covered of one storage: intervals that do not overlap, in order, and bytes by row in order of the first claim."""

    __slots__ = ("firsts", "pasts", "rows", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.firsts: list[int] = []
        self.pasts: list[int] = []
        self.rows: dict[Row, int] = {}

    def cover(self, first: int, past: int) -> int:
        """Cover an interval; returns the bytes of it that nothing covered before."""
        low, high = bisect_left(self.pasts, first), bisect_right(self.firsts, past)
        fresh = past - first
        for k in range(low, high):
            fresh -= max(0, min(past, self.pasts[k]) - max(first, self.firsts[k]))
        if low < high:
            first, past = min(first, self.firsts[low]), max(past, self.pasts[high - 1])
        self.firsts[low:high], self.pasts[low:high] = [first], [past]
        return fresh


class Storages:
    """Sums over tensors. left_out: why tensors were not counted, and how many."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        self._known: dict[tuple[int, int, int], _Storage] = {}
        self._counts: dict[Row, list[int]] = {}
        self._met = 0

    def add(self, tensor: object, category: str, module: int = -1) -> None:
        """Count a tensor, or those it is made of, as part of a category. Bytes that are counted already stay where they are."""
        for extent in self._extents(tensor):
            row = Row(category, extent.dtype, module, extent.device)
            counts = self._counts.setdefault(row, [0, 0])
            key = extent.device, extent.address, extent.storage_bytes
            storage = self._known.get(key)
            if storage is None:
                storage = self._known[key] = _Storage(extent.storage_bytes)
            fresh = storage.cover(extent.first, extent.past) if extent.past > extent.first else 0
            if fresh:
                storage.rows[row] = storage.rows.get(row, 0) + fresh
                counts[0] += 1
                counts[1] += min(fresh, extent.view_bytes)

    def has_seen(self, tensor: object) -> bool:
        """Return whether a storage of the tensor has been met; False where it has none."""
        return any((e.device, e.address, e.storage_bytes) in self._known for e in self._extents(tensor, count=False))

    def sums(self) -> dict[Row, Sum]:
        """Sum by row. `bytes` add up to the sizes of all storages: what no tensor covers of one (padding) is its row's where it has one
        row, else it is of the category that met it first, without a module."""
        sizes: dict[Row, int] = dict.fromkeys(self._counts, 0)
        for storage in self._known.values():
            if not storage.rows:
                continue
            for row, covered in storage.rows.items():
                sizes[row] += covered
            first = next(iter(storage.rows))
            rest = storage.size - sum(storage.rows.values())
            owner = first if len(storage.rows) == 1 else first._replace(module=-1)
            if rest:
                sizes[owner] = sizes.get(owner, 0) + rest
        return {row: Sum(self._counts.get(row, (0, 0))[0], size, self._counts.get(row, (0, 0))[1]) for row, size in sizes.items() if size}

    def _extents(self, tensor: object, *, count: bool = True) -> Iterator[Extent]:
        try:
            for plain in _parts(tensor, FLATTEN):
                if count:
                    self._met += 1
                    if self._met > MOST_TENSORS:
                        self.left_out["too many tensors"] += 1
                        return
                why = _unreal(plain)
                if why:
                    self.left_out[why] += count
                else:
                    yield _extent(plain)
        except (RuntimeError, NotImplementedError, TypeError, ValueError, AttributeError) as error:
            self.left_out[f"a tensor without a storage ({type(error).__name__})"] += count


def is_tensor(thing: object) -> bool:
    """Return whether it is a tensor of torch."""
    import torch

    return isinstance(thing, torch.Tensor)


def _parts(tensor: object, depth: int) -> Iterator[object]:
    """Yield the plain tensors that a tensor is made of: the local part of a sharded one, values and indices of a sparse one."""
    import torch

    if not isinstance(tensor, torch.Tensor):
        return
    special = depth > 0 and type(tensor) not in (torch.Tensor, torch.nn.Parameter)
    inner, local = getattr(type(tensor), "__tensor_flatten__", None), getattr(tensor, "_local_tensor", None) if special else None
    if special and inner is not None:
        for name in inner(tensor)[0]:
            yield from _parts(getattr(tensor, name), depth - 1)
    elif isinstance(local, torch.Tensor):
        yield from _parts(local, depth - 1)
    elif tensor.layout == torch.sparse_coo:
        yield from (tensor._indices(), tensor._values())
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        yield from (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        yield from (tensor.ccol_indices(), tensor.row_indices(), tensor.values())
    else:
        yield tensor


def _unreal(tensor: object) -> str:
    """Return why a tensor has no memory; "" if it has."""
    if type(tensor).__name__ == "FakeTensor":
        return "tensors without data (fake)"
    if tensor.device.type == "meta":  # type: ignore[attr-defined]
        return "tensors without data (meta)"
    return ""


def _extent(tensor: object) -> Extent:
    import torch

    assert isinstance(tensor, torch.Tensor)
    storage = tensor.untyped_storage()
    size, width = storage.nbytes(), tensor.element_size()
    spans = [(n - 1) * abs(step) for n, step in zip(tensor.shape, tensor.stride(), strict=True)]
    past = sum(spans) + 1 if tensor.numel() else 0
    first = tensor.storage_offset() * width
    device = tensor.device
    name = str(tensor.dtype).removeprefix("torch.")
    index = WHOLE_HOST if device.type == "cpu" else device.index or 0
    inside = min(first, size), min(first + past * width, size)  # a storage that was freed is of size 0
    return Extent(index, storage.data_ptr(), size, *inside, min(tensor.numel() * width, size), NAMES.get(name, name))
