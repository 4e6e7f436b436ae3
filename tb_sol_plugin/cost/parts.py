"""What the vector models share: a cost from its traffic, and sizes of results."""

from __future__ import annotations

from math import prod

from tb_sol_plugin.cost.inputs import Inputs, Tensor, size_of, total
from tb_sol_plugin.cost.model import Cost, Direction, Kind, unknown


def vector(
    dtype: str, flop: int | None, *traffic: int | None, kind: Kind = "elementwise", direction: Direction = "fwd", reason: str = ""
) -> Cost:
    """Vector work: `flop` operations and the sum of `traffic` in bytes (None if any part is). A reason marks it as estimated.

    Recorded values that give a part a negative size, or one that no memory holds, contradict the call: then nothing is known.
    """
    if any(part is not None and not 0 <= part < 2**63 for part in (flop, *traffic)):
        return unknown("recorded values contradict each other: a size that cannot be")
    return Cost(
        flop_vector=flop, bytes=total(*traffic), dtype="" if dtype.startswith("opaque") else dtype, kind=kind, direction=direction,
        estimated=bool(reason), reason=reason,
    )  # fmt: skip


def moved(dtype: str, *traffic: int | None, flop: int = 0, direction: Direction = "fwd", reason: str = "") -> Cost:
    """Data movement: bytes, and no FLOP unless elements are added up on the way."""
    return vector(dtype, flop, *traffic, kind="other", direction=direction, reason=reason)


def read(*tensors: Tensor | None) -> list[int | None]:
    """Bytes of each tensor that is there, each element in memory once."""
    return [t.bytes for t in tensors if t is not None]


def like(x: Tensor, dtype: str = "") -> int | None:
    """Bytes of a full result as large as x, in the type of x unless another is given."""
    return size_of(x.numel, dtype or x.dtype)


def wide(x: Tensor, elements: int) -> int | None:
    """Bytes of statistics, which are kept in FP32 at least."""
    return size_of(elements, "fp64" if x.dtype == "fp64" else "fp32")


def given(call: Inputs, *at: int) -> list[Tensor]:
    """The tensors at these positions that are there."""
    return [t for t in (call.tensor(i) for i in at) if t is not None]


def count(call: Inputs, at: int) -> int | None:
    """A recorded whole number of at least 0; None where there is none (a boolean is none)."""
    value = call.value(at)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def floating(dtype: str) -> bool:
    """Whether an element type is a real or complex float; unknown types count as such."""
    return not dtype.startswith(("int", "uint", "bool"))


def axis(x: Tensor, dim: object) -> int | None:
    """A dimension as a place from 0, None if it is not one of x. A scalar has one dimension."""
    rank = max(len(x.shape), 1)
    return dim % rank if isinstance(dim, int) and not isinstance(dim, bool) and -rank <= dim < rank else None


def reduced(x: Tensor, dims: tuple[int, ...] | None) -> int | None:
    """Elements left after a reduction over dims; all dims where they are None or empty; None where they are none of x's."""
    if not dims:
        return 1
    gone = [axis(x, d) for d in dims]
    if None in gone:
        return None
    return prod(size for at, size in enumerate(x.shape) if at not in gone)


def repeated(values: tuple[int, ...] | None, dims: int) -> tuple[int, ...] | None:
    """One number per dimension: a single one stands for all; None if the count does not fit."""
    if values is None:
        return None
    full = values * dims if len(values) == 1 else values
    return full if len(full) == dims else None
