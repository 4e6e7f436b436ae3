"""Resampling of images and volumes: input read, result written; FLOP per result by the taps of the filter (2 per tap).

Nearest has no arithmetic, linear 2 taps per dimension, cubic 4 per dimension. The antialiased forms take more taps when they shrink;
counted like the plain ones: a lower bound. A result that is much smaller than its input does not read all of it: at most the taps.
Source: the definition of the filters.
Limits: taps at the border count in full.
"""

from __future__ import annotations

from math import prod

from tb_sol_plugin.cost.inputs import Inputs, Tensor, size_of
from tb_sol_plugin.cost.model import Cost, model
from tb_sol_plugin.cost.parts import like, read, vector

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
