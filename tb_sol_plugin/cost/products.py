"""Reads sizes and alignment of a matrix product from the arguments of its call."""

from __future__ import annotations

from math import gcd, prod
from typing import Final, NamedTuple

from tb_sol_plugin.cost.inputs import BITS, Inputs, Tensor

OPERANDS: Final = {
    "aten::mm": 0, "aten::bmm": 0, "aten::matmul": 0, "aten::_scaled_mm": 0, "aten::_int_mm": 0, "aten::linear": 0,
    "aten::addmm": 1, "aten::addmm_": 1, "aten::baddbmm": 1, "aten::baddbmm_": 1, "aten::_addmm_activation": 1,
}  # fmt: skip
"""Place of the first of the two matrices."""
ALIGNED: Final = 16
"""Matrix units load 16 bytes at a time: 8 elements of FP16 or BF16, 4 of TF32, 16 of FP8 (NVIDIA's guide to matrix products)."""


class Product(NamedTuple):
    """Has the sizes of `batch` products of m×k by k×n. aligned: bytes that divide the distance between rows of every matrix, at most 16.

    odd: the sizes that are not aligned, as written (`n 50257`).
    """

    batch: int
    m: int
    n: int
    k: int
    aligned: int
    odd: str


def product(name: str, call: Inputs) -> Product | None:
    """Returns the sizes of a matrix product; None where the call is none or its sizes are not recorded."""
    at = OPERANDS.get(name)
    if at is None:
        return None
    a, b = call.tensor(at), call.tensor(at + 1)
    if a is None or b is None or len(a.shape) < 2 or len(b.shape) < 2 or a.dtype not in BITS:
        return None
    transposed = name == "aten::linear"
    k, n = (b.shape[-1], b.shape[-2]) if transposed else b.shape[-2:]
    if a.shape[-1] != k:
        return None
    batch = prod(a.shape[:-2]) if len(b.shape) > 2 else 1
    m = a.shape[-2] if len(b.shape) > 2 else prod(a.shape[:-1])
    steps = [("rows of the first", a, _step(a)), ("rows of the second", b, _step(b)), ("rows of the result", a, n)]
    found = [(gcd(step * BITS[a.dtype] // 8, ALIGNED), what, step) for what, _, step in steps if step > 1]
    least = min((f[0] for f in found), default=ALIGNED)
    odd = next((f"{step} elements between {what}" for size, what, step in found if size == least and least < ALIGNED), "")
    return Product(batch, m, n, k, least, odd)


def _step(t: Tensor) -> int:
    """Returns elements from one row (or column, where these are the dense ones) to the next; without strides the row's length."""
    rows, columns = t.shape[-2:]
    if t.strides is None or len(t.strides) != len(t.shape):
        return columns
    down, across = t.strides[-2:]
    if across == 1 or columns == 1:
        return down if rows > 1 else 0
    return across if down == 1 and columns > 1 else 0
