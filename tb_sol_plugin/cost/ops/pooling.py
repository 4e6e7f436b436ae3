"""Pooling: prod(kernel) FLOP per result; input read, result written; a maximum keeps an int64 place per result.

A kernel that overlaps reads its input from the cache again, so each element counts once. Without the recorded kernel, only the
input counts: a lower bound.
Source: the definition: prod(kernel) operations per result.
Limits: kernels at the border count in full.

Resampling of images and volumes: input read, result written; FLOP per result by the taps of the filter (2 per tap).

Nearest has no arithmetic, linear 2 taps per dimension, cubic 4 per dimension. The antialiased forms take more taps when they shrink;
counted like the plain ones: a lower bound. A result that is much smaller than its input does not read all of it: at most the taps.
Source: the definition of the filters.
Limits: taps at the border count in full.
"""

from __future__ import annotations

from math import prod
from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Tensor, size_of
from tb_sol_plugin.cost.model import Cost, model
from tb_sol_plugin.cost.ops.conv import out_spatial
from tb_sol_plugin.cost.ops.pointwise import like, read, repeated, vector

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


# -- Resampling of images and volumes --------------------------------------------------------------------------------


LINEAR, CUBIC = 2, 4


def _sizes(call: Inputs, x: Tensor, dims: int) -> tuple[int, ...] | None:
    """The spatial sizes of the result, as given or from factors per dimension."""
    size = call.ints(1)
    if size is not None:
        return size if len(size) == dims and min(size, default=0) >= 0 else None
    factors = next((v for v in call.values if isinstance(v, tuple) and len(v) == dims and all(isinstance(f, int | float) for f in v)), None)
    if factors is None:
        return None
    return tuple(int(n * float(f)) for n, f in zip(x.shape[-dims:], factors, strict=True) if isinstance(f, int | float))


def _resampled(call: Inputs, dims: int, taps: int) -> Cost | None:
    x = call.tensor(0)
    size = _sizes(call, x, dims) if x is not None and len(x.shape) == dims + 2 else None
    if x is None or size is None:
        return None
    out = prod(x.shape[:-dims]) * prod(size)
    reads = min(x.unique, out * taps**dims)
    return vector(x.dtype, 2 * taps**dims * out if taps > 1 else 0, size_of(reads, x.dtype), size_of(out, x.dtype))


@model("aten::upsample_nearest1d", "aten::_upsample_nearest_exact1d", kind="elementwise")
def nearest1d(call: Inputs) -> Cost | None:
    """upsample_nearest1d(x, size, factors)."""
    return _resampled(call, 1, 1)


@model("aten::upsample_nearest2d", "aten::_upsample_nearest_exact2d", kind="elementwise")
def nearest2d(call: Inputs) -> Cost | None:
    """upsample_nearest2d(x, size, factors)."""
    return _resampled(call, 2, 1)


@model("aten::upsample_nearest3d", "aten::_upsample_nearest_exact3d", kind="elementwise")
def nearest3d(call: Inputs) -> Cost | None:
    """upsample_nearest3d(x, size, factors)."""
    return _resampled(call, 3, 1)


@model("aten::upsample_linear1d", kind="elementwise")
def linear1d(call: Inputs) -> Cost | None:
    """upsample_linear1d(x, size, align_corners, factors): 4 FLOP per result."""
    return _resampled(call, 1, LINEAR)


@model("aten::upsample_bilinear2d", "aten::_upsample_bilinear2d_aa", kind="elementwise")
def bilinear(call: Inputs) -> Cost | None:
    """upsample_bilinear2d(x, size, align_corners, factors): 8 FLOP per result."""
    return _resampled(call, 2, LINEAR)


@model("aten::upsample_trilinear3d", kind="elementwise")
def trilinear(call: Inputs) -> Cost | None:
    """upsample_trilinear3d(x, size, align_corners, factors): 16 FLOP per result."""
    return _resampled(call, 3, LINEAR)


@model("aten::upsample_bicubic2d", "aten::_upsample_bicubic2d_aa", kind="elementwise")
def bicubic(call: Inputs) -> Cost | None:
    """upsample_bicubic2d(x, size, align_corners, factors): 32 FLOP per result."""
    return _resampled(call, 2, CUBIC)


def _backward(call: Inputs, taps: int) -> Cost | None:
    grad, sizes = call.tensor(0), call.ints(2)
    if grad is None or sizes is None or len(sizes) != len(grad.shape) or min(sizes, default=0) < 0:
        return None
    return vector(grad.dtype, 2 * taps * grad.numel, grad.bytes, size_of(prod(sizes), grad.dtype), direction="bwd")


@model("aten::upsample_nearest1d_backward", "aten::upsample_nearest2d_backward", "aten::upsample_nearest3d_backward",
       "aten::_upsample_nearest_exact1d_backward", "aten::_upsample_nearest_exact2d_backward", "aten::_upsample_nearest_exact3d_backward",
       kind="elementwise")  # fmt: skip
def nearest_backward(call: Inputs) -> Cost | None:
    """upsample_nearest2d_backward(grad, size, input sizes, ...): the gradient added up into one of the input's size; 2 FLOP per element."""
    return _backward(call, 1)


@model("aten::upsample_linear1d_backward", kind="elementwise")
def linear_backward(call: Inputs) -> Cost | None:
    """upsample_linear1d_backward(grad, size, input sizes, ...): 4 FLOP per element of the gradient."""
    return _backward(call, LINEAR)


@model("aten::upsample_bilinear2d_backward", "aten::_upsample_bilinear2d_aa_backward", kind="elementwise")
def bilinear_backward(call: Inputs) -> Cost | None:
    """upsample_bilinear2d_backward(grad, size, input sizes, ...): 8 FLOP per element of the gradient."""
    return _backward(call, LINEAR**2)


@model("aten::upsample_trilinear3d_backward", kind="elementwise")
def trilinear_backward(call: Inputs) -> Cost | None:
    """upsample_trilinear3d_backward(grad, size, input sizes, ...): 16 FLOP per element of the gradient."""
    return _backward(call, LINEAR**3)


@model("aten::upsample_bicubic2d_backward", "aten::_upsample_bicubic2d_aa_backward", kind="elementwise")
def bicubic_backward(call: Inputs) -> Cost | None:
    """upsample_bicubic2d_backward(grad, size, input sizes, ...): 32 FLOP per element of the gradient."""
    return _backward(call, CUBIC**2)


@model("aten::grid_sampler_2d", "aten::grid_sampler_3d", "aten::cudnn_grid_sampler", kind="elementwise")
def grid_sampler(call: Inputs) -> Cost | None:
    """grid_sampler_2d(x[N, C, H, W], grid[N, Ho, Wo, 2], mode, ...): linear taps per result, none for nearest (mode 1)."""
    x, grid = call.tensor(0), call.tensor(1)
    if x is None or grid is None or len(x.shape) != len(grid.shape) or len(x.shape) not in (4, 5):
        return None
    dims = len(x.shape) - 2
    out = x.shape[1] * grid.numel // max(grid.shape[-1], 1)
    mode = call.value(2)
    taps = 1 if mode == 1 else CUBIC**dims if mode == 2 else LINEAR**dims
    reads = size_of(min(x.unique, out * taps), x.dtype)
    return vector(x.dtype, 0 if taps == 1 else 2 * taps * out, reads, grid.bytes, size_of(out, x.dtype))


@model("aten::grid_sampler_2d_backward", "aten::grid_sampler_3d_backward", kind="elementwise")
def grid_sampler_backward(call: Inputs) -> Cost | None:
    """grid_sampler_2d_backward(grad, x, grid, ...): gradients of x (zeroed, then added up) and of the grid are written."""
    grad, x, grid = call.tensor(0), call.tensor(1), call.tensor(2)
    if grad is None or x is None or grid is None or len(x.shape) not in (4, 5):
        return None
    taps = LINEAR ** (len(x.shape) - 2)
    return vector(x.dtype, 4 * taps * grad.numel, *read(grad, x, grid), like(x), like(grid), direction="bwd")
