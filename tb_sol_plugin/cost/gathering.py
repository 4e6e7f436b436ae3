"""Operations that pick, order or resample elements. Where the result depends on the data, what is known is a lower bound."""

from __future__ import annotations

from math import prod
from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Tensor, broadcast, size_of, total
from tb_sol_plugin.cost.model import Cost, Direction, Kind, model

INDICES: Final = "indices taken as int64 over the first dimensions: their types are not recorded"
SEVERAL_PASSES: Final = "one pass over the data counted: a lower bound"


def _cost(x: Tensor, *traffic: int | None, flop: int = 0, kind: Kind = "other", direction: Direction = "fwd", reason: str = "") -> Cost:
    return Cost(
        flop_vector=flop, bytes=total(*traffic), dtype=x.dtype, kind=kind, direction=direction, estimated=bool(reason), reason=reason
    )


@model("aten::sort", "aten::argsort", "aten::msort", kind="other")
def sort(call: Inputs) -> Cost | None:
    """sort(x, dim, descending): values and int64 indices written."""
    x = call.tensor(0)
    return None if x is None else _cost(x, x.bytes, size_of(x.numel, x.dtype), 8 * x.numel, reason=SEVERAL_PASSES)


@model("aten::topk", kind="other")
def topk(call: Inputs) -> Cost | None:
    """topk(x, k, dim, ...): k values and int64 indices along one dimension, the last one by default."""
    x, k, dim = call.tensor(0), call.value(1), call.value(2)
    if x is None or not isinstance(k, int) or not x.shape:
        return None
    along = dim if isinstance(dim, int) and -len(x.shape) <= dim < len(x.shape) else -1
    out = x.numel // x.shape[along] * k if x.shape[along] else 0
    return _cost(x, x.bytes, size_of(out, x.dtype), 8 * out, reason=SEVERAL_PASSES)


@model("aten::nonzero", "aten::masked_select", "aten::unique_dim", "aten::_unique2", kind="other")
def depends_on_data(call: Inputs) -> Cost | None:
    """nonzero(x): the result depends on the data and is left out."""
    x = call.tensor(0)
    return None if x is None else _cost(x, x.bytes, reason="size of the result depends on the data: left out, a lower bound")


def _picked(x: Tensor, indices: tuple[Tensor, ...]) -> int | None:
    """Elements that integer indices over the first dimensions pick: their broadcast shape times the dimensions that have none.

    An index as large as the dimensions it stands for may be a mask, whose result depends on the data: None.
    """
    if not indices or len(indices) > len(x.shape) or any(i.shape and i.shape == x.shape[: len(i.shape)] for i in indices):
        return None
    shape = broadcast(*(i.shape for i in indices))
    return None if shape is None else prod(shape) * prod(x.shape[len(indices) :])


@model("aten::index", kind="other")
def index(call: Inputs) -> Cost | None:
    """index(x, indices): the picked elements read and written, indices read (int64, their type is not recorded)."""
    x, indices = call.tensor(0), call.tensors(1)
    if x is None:
        return None
    out = _picked(x, indices)
    if out is None:
        return None
    picked = size_of(out, x.dtype)
    return _cost(x, picked, picked, 8 * sum(i.numel for i in indices), reason=INDICES)


@model("aten::_index_put_impl_", "aten::index_put_", kind="other", wrapper=True)
def index_put(call: Inputs) -> Cost | None:
    """index_put_(x, indices, values, accumulate): values and indices read, elements written; read too when accumulated."""
    x, indices, values = call.tensor(0), call.tensors(1), call.tensor(2)
    if x is None or values is None:
        return None
    out = _picked(x, indices)
    if out is None:
        return None
    written = size_of(out, x.dtype)
    again = [written] if call.flag(3) else []
    return _cost(x, values.bytes, written, *again, 8 * sum(i.numel for i in indices), flop=out if call.flag(3) else 0, reason=INDICES)


@model("aten::scatter_", "aten::scatter", kind="other")
def scatter(call: Inputs) -> Cost | None:
    """scatter_(x, dim, index, source or value): one element per index written."""
    x, at, source = call.tensor(0), call.tensor(2), call.tensor(3)
    if x is None or at is None:
        return None
    read = size_of(at.numel, source.dtype) if source is not None else 0
    return _cost(x, at.bytes, read, size_of(at.numel, x.dtype))


def _resampled(x: Tensor | None, size: tuple[int, ...] | None, per_element: int) -> Cost | None:
    if x is None or not size or len(size) >= len(x.shape):
        return None
    out = prod(x.shape[: -len(size)]) * prod(size)
    return _cost(x, x.bytes, size_of(out, x.dtype), flop=per_element * out, kind="elementwise")


@model(
    "aten::upsample_nearest1d",
    "aten::upsample_nearest2d",
    "aten::upsample_nearest3d",
    "aten::_upsample_nearest_exact2d",
    kind="elementwise",
)
def nearest(call: Inputs) -> Cost | None:
    """upsample_nearest2d(x, size, ...)."""
    return _resampled(call.tensor(0), call.ints(1), 0)


@model(
    "aten::upsample_linear1d", "aten::upsample_bilinear2d", "aten::_upsample_bilinear2d_aa", "aten::upsample_bicubic2d", kind="elementwise"
)
def interpolated(call: Inputs) -> Cost | None:
    """upsample_bilinear2d(x, size, ...): counted as one operation per result."""
    return _resampled(call.tensor(0), call.ints(1), 1)


@model("aten::_adaptive_avg_pool2d_backward", "aten::avg_pool2d_backward", "aten::max_pool3d_with_indices_backward", kind="elementwise")
def pool_backward(call: Inputs) -> Cost | None:
    """avg_pool2d_backward(grad, x, ...): the gradient read, one as large as the input written."""
    grad, x = call.tensor(0), call.tensor(1)
    if grad is None or x is None:
        return None
    return _cost(x, grad.bytes, size_of(x.numel, x.dtype), flop=x.numel, kind="elementwise", direction="bwd")
