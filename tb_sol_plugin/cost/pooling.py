"""Pooling: prod(kernel) FLOP per result; input read, result written; a maximum keeps an int64 place per result.

A kernel that overlaps reads its input from the cache again, so each element counts once. Without the recorded kernel, only the
input counts: a lower bound.
Source: the definition: prod(kernel) operations per result.
Limits: kernels at the border count in full.
"""

from __future__ import annotations

from math import prod
from typing import Final

from tb_sol_plugin.cost.conv import out_spatial
from tb_sol_plugin.cost.inputs import Inputs, Tensor, size_of
from tb_sol_plugin.cost.model import Cost, model
from tb_sol_plugin.cost.parts import like, read, repeated, vector

NO_KERNEL: Final = "kernel and stride not recorded: only the input counted, a lower bound"


def out_size(x: Tensor, dims: int, kernel: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...],
             dilation: tuple[int, ...], *, up: bool) -> tuple[int, ...] | None:  # fmt: skip
    """Spatial sizes of the result of a pooling window; `up` rounds up (ceil_mode), but a window must start inside the input."""
    floor = out_spatial(x.shape[-dims:], kernel, stride, padding, dilation)
    if min(floor) < 0:
        return None
    if not up:
        return floor
    out = []
    for size, k, s, p, d in zip(x.shape[-dims:], kernel, stride, padding, dilation, strict=True):
        found = -(-(size + 2 * p - d * (k - 1) - 1) // s) + 1
        out.append(found - 1 if (found - 1) * s >= size + p else found)
    return tuple(out)


def _pool(call: Inputs, dims: int, *, indices: bool) -> Cost | None:
    """(x, kernel, stride, padding, dilation, ceil) of a maximum, (x, kernel, stride, padding, ceil, ...) of a mean."""
    x = call.tensor(0)
    if x is None or len(x.shape) not in (dims + 1, dims + 2):
        return None
    kernel = repeated(call.ints(1), dims)
    if kernel is None:
        return None if call.has_values else vector(x.dtype, x.numel, x.bytes, reason=NO_KERNEL)
    ones, zeros = (1,) * dims, (0,) * dims
    stride, padding = repeated(call.ints(2) or kernel, dims), repeated(call.ints(3) or zeros, dims)
    dilation = repeated((call.ints(4) if indices else None) or ones, dims)
    if stride is None or padding is None or dilation is None or min(stride) < 1 or min(kernel) < 1:
        return None
    spatial = out_size(x, dims, kernel, stride, padding, dilation, up=call.flag(5 if indices else 4) is True)
    if spatial is None:
        return None
    out = prod(x.shape[:-dims]) * prod(spatial)
    return vector(x.dtype, prod(kernel) * out, x.bytes, size_of(out, x.dtype), 8 * out if indices else 0)


@model("aten::max_pool1d_with_indices", "aten::max_pool1d", kind="elementwise", wrapper=True)
def max_pool1d(call: Inputs) -> Cost | None:
    """max_pool1d(x, kernel, stride, padding, dilation, ceil), where nothing below it was recorded."""
    return _pool(call, 1, indices=True)


@model("aten::max_pool2d_with_indices", kind="elementwise")
def max_pool2d(call: Inputs) -> Cost | None:
    """max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil): an int64 place per result."""
    return _pool(call, 2, indices=True)


@model("aten::max_pool3d_with_indices", kind="elementwise")
def max_pool3d(call: Inputs) -> Cost | None:
    """max_pool3d_with_indices(x, kernel, stride, padding, dilation, ceil): an int64 place per result."""
    return _pool(call, 3, indices=True)


@model("aten::avg_pool1d", kind="elementwise", wrapper=True)
def avg_pool1d(call: Inputs) -> Cost | None:
    """avg_pool1d(x, kernel, stride, padding, ceil, ...), where nothing below it was recorded."""
    return _pool(call, 1, indices=False)


@model("aten::avg_pool2d", kind="elementwise")
def avg_pool2d(call: Inputs) -> Cost | None:
    """avg_pool2d(x, kernel, stride, padding, ceil, ...)."""
    return _pool(call, 2, indices=False)


@model("aten::avg_pool3d", kind="elementwise")
def avg_pool3d(call: Inputs) -> Cost | None:
    """avg_pool3d(x, kernel, stride, padding, ceil, ...)."""
    return _pool(call, 3, indices=False)


def _adaptive(call: Inputs, dims: int, *, indices: bool) -> Cost | None:
    """(x, size): every element is read once; a size that is None keeps the input's."""
    x, size = call.tensor(0), repeated(call.ints(1), dims)
    if x is None or size is None or len(x.shape) not in (dims + 1, dims + 2) or min(size) < 0:
        return None
    out = prod(x.shape[:-dims]) * prod(size)
    return vector(x.dtype, max(x.numel, out), x.bytes, size_of(out, x.dtype), 8 * out if indices else 0)


@model("aten::adaptive_avg_pool1d", kind="elementwise", wrapper=True)
def adaptive_avg_pool1d(call: Inputs) -> Cost | None:
    """adaptive_avg_pool1d(x, size), where nothing below it was recorded."""
    return _adaptive(call, 1, indices=False)


@model("aten::_adaptive_avg_pool2d", "aten::adaptive_avg_pool2d", kind="elementwise", wrapper=True)
def adaptive_avg_pool2d(call: Inputs) -> Cost | None:
    """adaptive_avg_pool2d(x, size): to one element it runs as a mean, which then owns the work."""
    return _adaptive(call, 2, indices=False)


@model("aten::_adaptive_avg_pool3d", "aten::adaptive_avg_pool3d", kind="elementwise", wrapper=True)
def adaptive_avg_pool3d(call: Inputs) -> Cost | None:
    """adaptive_avg_pool3d(x, size)."""
    return _adaptive(call, 3, indices=False)


@model("aten::adaptive_max_pool2d", kind="elementwise")
def adaptive_max_pool2d(call: Inputs) -> Cost | None:
    """adaptive_max_pool2d(x, size): an int64 place per result."""
    return _adaptive(call, 2, indices=True)


@model("aten::adaptive_max_pool3d", kind="elementwise")
def adaptive_max_pool3d(call: Inputs) -> Cost | None:
    """adaptive_max_pool3d(x, size): an int64 place per result."""
    return _adaptive(call, 3, indices=True)


@model("aten::max_pool2d_with_indices_backward", "aten::max_pool3d_with_indices_backward", "aten::adaptive_max_pool2d_backward",
       "aten::adaptive_max_pool3d_backward", kind="elementwise")  # fmt: skip
def max_pool_backward(call: Inputs) -> Cost | None:
    """max_pool2d_with_indices_backward(grad, x, ..., indices): the input itself is not read, its gradient is written.

    The int64 places are the last argument; one FLOP per element of the incoming gradient.
    """
    grad, x = call.tensor(0), call.tensor(1)
    if grad is None or x is None:
        return None
    last = call.tensor(len(call.slots) - 1)
    kept = last.bytes if last is not None and len(call.slots) > 2 else 8 * grad.numel
    return vector(x.dtype, grad.numel, grad.bytes, kept, like(x), direction="bwd")


@model("aten::avg_pool2d_backward", "aten::avg_pool3d_backward", "aten::_adaptive_avg_pool2d_backward",
       "aten::_adaptive_avg_pool3d_backward", kind="elementwise")  # fmt: skip
def avg_pool_backward(call: Inputs) -> Cost | None:
    """avg_pool2d_backward(grad, x, ...): the gradient read, one as large as the input written; one FLOP per element of it."""
    grad, x = call.tensor(0), call.tensor(1)
    if grad is None or x is None:
        return None
    return vector(x.dtype, x.numel, grad.bytes, like(x), direction="bwd")


@model("aten::max_unpool2d", "aten::max_unpool3d", kind="other")
def max_unpool(call: Inputs) -> Cost | None:
    """max_unpool2d(x, indices, size): the result zeroed, then one element per input placed."""
    x, indices, size = call.tensor(0), call.tensor(1), call.ints(2)
    if x is None or indices is None or not size or len(size) >= len(x.shape):
        return None
    out = prod(x.shape[: -len(size)]) * prod(size)
    return vector(x.dtype, 0, *read(x, indices), size_of(out, x.dtype), like(x), kind="other")
