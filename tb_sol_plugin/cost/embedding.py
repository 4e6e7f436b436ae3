"""Embeddings: the rows that indices name, at most the whole table. Which indices repeat is not known: each counts as a row.

Only the dense gradient is written (zeroed) as a whole, whatever the indices.
Source: native_functions.yaml of PyTorch for the positions.
Limits: rows that repeat may come from the cache, which makes this an upper bound of the reads.
"""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Tensor, size_of
from tb_sol_plugin.cost.model import Cost, model
from tb_sol_plugin.cost.parts import count, moved, read

ROWS: Final = "every index counted as a row of its own: repeated ones may still be in the cache"


def _rows(table: Tensor, indices: Tensor) -> int | None:
    """Bytes of the rows that are read: one per index, no row more than there are."""
    return size_of(min(indices.numel, table.shape[0]) * table.shape[1], table.dtype)


@model("aten::embedding", kind="other")
def embedding(call: Inputs) -> Cost | None:
    """embedding(table[V, D], indices): one row read and written per index, indices read."""
    table, indices = call.tensor(0), call.tensor(1)
    if table is None or indices is None or len(table.shape) != 2:
        return None
    return moved(table.dtype, _rows(table, indices), size_of(indices.numel * table.shape[1], table.dtype), indices.bytes)


@model("aten::embedding_dense_backward", kind="other")
def embedding_backward(call: Inputs) -> Cost | None:
    """embedding_dense_backward(grad, indices, rows, padding, scale): the whole table is zeroed, touched rows are read and written.

    One FLOP per element of the gradient. A row that several indices name is read and written once per table at least: touched rows
    are capped at the rows of the table.
    """
    grad, indices, rows = call.tensor(0), call.tensor(1), count(call, 2)
    if grad is None or indices is None or rows is None or not grad.shape:
        return None
    width = grad.shape[-1]
    whole, touched = size_of(rows * width, grad.dtype), size_of(min(indices.numel, rows) * width, grad.dtype)
    return moved(grad.dtype, grad.bytes, indices.bytes, whole, touched, touched, flop=grad.numel, direction="bwd")


@model("aten::embedding_backward", kind="other", wrapper=True)
def embedding_backward_wrapper(call: Inputs) -> Cost | None:
    """embedding_backward(grad, indices, rows, ...), where no dense one was recorded below it."""
    return embedding_backward(call)


@model("aten::_embedding_bag", "aten::_embedding_bag_forward_only", kind="other")
def embedding_bag(call: Inputs) -> Cost | None:
    """_embedding_bag(table[V, D], indices, offsets, scale, mode, sparse, weights, last_offset, ...): one result row per bag.

    A row read per index; the sum counts one FLOP per element, two with weights.
    """
    table, indices, offsets = call.tensor(0), call.tensor(1), call.tensor(2)
    if table is None or indices is None or offsets is None or len(table.shape) != 2:
        return None
    bags = max(offsets.numel - (1 if call.flag(7) else 0), 0)
    weights = call.tensor(6)
    work = indices.numel * table.shape[1] * (2 if weights is not None else 1)
    return moved(
        table.dtype, _rows(table, indices), *read(indices, offsets, weights), size_of(bags * table.shape[1], table.dtype), flop=work,
        reason=ROWS,
    )  # fmt: skip


@model("aten::embedding_bag", kind="other", wrapper=True)
def embedding_bag_wrapper(call: Inputs) -> Cost | None:
    """embedding_bag(table, indices, offsets, ...), where nothing below it was recorded."""
    return embedding_bag(call)


@model("aten::_embedding_bag_dense_backward", kind="other")
def embedding_bag_backward(call: Inputs) -> Cost | None:
    """_embedding_bag_dense_backward(grad[bags, D], indices, offset2bag, bag_size, maximum, rows, ...): the whole table is zeroed.

    The gradient row of a bag is read once; each index adds it to a row, capped at the rows of the table.
    """
    grad, indices, rows = call.tensor(0), call.tensor(1), count(call, 5)
    if grad is None or indices is None or len(grad.shape) != 2 or rows is None:
        return None
    width = grad.shape[1]
    whole, touched = size_of(rows * width, grad.dtype), size_of(min(indices.numel, rows) * width, grad.dtype)
    return moved(
        grad.dtype, *read(grad, indices, call.tensor(2)), whole, touched, touched, flop=indices.numel * width, direction="bwd"
    )


@model("aten::embedding_renorm_", kind="other")
def embedding_renorm(call: Inputs) -> Cost | None:
    """embedding_renorm_(table[V, D], indices, max_norm, type): touched rows read; writing them back depends on the data."""
    table, indices = call.tensor(0), call.tensor(1)
    if table is None or indices is None or len(table.shape) != 2:
        return None
    return moved(table.dtype, _rows(table, indices), indices.bytes, flop=2 * indices.numel * table.shape[1], reason=ROWS)
