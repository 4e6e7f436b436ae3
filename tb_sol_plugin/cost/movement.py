"""Operations that move data: no FLOP, each element read once and written once.

Copies between host and device are bound by the link, not by device memory: whoever knows the direction decides that. Views,
and `to` or `contiguous` (which move nothing themselves: a copy below them does), have no model.
Source: native_functions.yaml of PyTorch for the positions.
Limits: a layout that reads or writes in pieces of less than a cache sector moves more.
"""

from __future__ import annotations

from math import prod

from tb_sol_plugin.cost.inputs import Inputs, Tensor, size_of
from tb_sol_plugin.cost.model import Cost, model
from tb_sol_plugin.cost.parts import axis, count, like, moved, read, repeated


@model("aten::copy_", "aten::_copy_from", "aten::copy", kind="other")
def copy_(call: Inputs) -> Cost | None:
    """copy_(target, source): the unique elements of the source read, the target written."""
    target, source = call.tensor(0), call.tensor(1)
    if target is None or source is None:
        return None
    return moved(target.dtype, source.bytes, like(target))


@model("aten::clone", "aten::lift_fresh_copy", kind="other", wrapper=True)
def clone(call: Inputs) -> Cost | None:
    """clone(x), where no copy was recorded below it: the unique elements read, every element written."""
    x = call.tensor(0)
    return None if x is None else moved(x.dtype, x.bytes, like(x))


@model("aten::_to_copy", kind="other", wrapper=True)
def to_copy(call: Inputs) -> Cost | None:
    """_to_copy(x, dtype, ...), where no copy was recorded below it: read in its type, written in the given one."""
    x = call.tensor(0)
    if x is None:
        return None
    dtype = call.dtype(1) or x.dtype
    return moved(dtype, x.bytes, like(x, dtype))


@model("aten::permute_copy", "aten::t_copy", "aten::transpose_copy", "aten::view_copy", "aten::_reshape_copy", "aten::expand_as_copy",
       "aten::unsqueeze_copy", "aten::squeeze_copy", "aten::pixel_shuffle", "aten::pixel_unshuffle", "aten::channel_shuffle",
       "aten::native_channel_shuffle", "aten::flip", "aten::fliplr", "aten::flipud", "aten::roll", "aten::rot90", "aten::tril",
       "aten::triu",       "aten::view_as_real_copy", "aten::view_as_complex_copy", "aten::fft_fftshift",
       "aten::fft_ifftshift", kind="other")  # fmt: skip
def rearranged(call: Inputs) -> Cost | None:
    """flip(x, dims), tril(x, diagonal), a transposing copy: every element read and written once."""
    x = call.tensor(0)
    return None if x is None else moved(x.dtype, x.bytes, like(x))


@model("aten::tril_", "aten::triu_", kind="other")
def tril_(call: Inputs) -> Cost | None:
    """tril_(x, diagonal): in place; counted as one pass over x."""
    return rearranged(call)


@model("aten::expand_copy", "aten::repeat", "aten::tile", kind="other")
def repeat(call: Inputs) -> Cost | None:
    """repeat(x, times): x read once, the result written. `expand_copy` names the sizes of the result instead, -1 to keep one."""
    x, times = call.tensor(0), call.ints(1)
    if x is None or times is None:
        return None
    out = x.numel * prod(times)
    return moved(x.dtype, x.bytes, size_of(out, x.dtype)) if out >= 0 else None


@model("aten::repeat_interleave", kind="other")
def repeat_interleave(call: Inputs) -> Cost | None:
    """repeat_interleave(x, times, dim): exact for one number of times; for a tensor of them, x and the counts read: a lower bound."""
    x, times, counts = call.tensor(0), count(call, 1), call.tensor(1)
    if x is None:
        return None
    if times is not None:
        return moved(x.dtype, x.bytes, size_of(x.numel * times, x.dtype))
    return moved(x.dtype, *read(x, counts), reason="size of the result depends on the data: left out, a lower bound")


@model("aten::constant_pad_nd", "aten::reflection_pad1d", "aten::reflection_pad2d", "aten::reflection_pad3d", "aten::replication_pad1d",
       "aten::replication_pad2d", "aten::replication_pad3d", kind="other")  # fmt: skip
def pad(call: Inputs) -> Cost | None:
    """constant_pad_nd(x, pad, value): x read, the padded result written. Pairs of sides from the last dimension on, negative crops."""
    x, out = call.tensor(0), _padded(call.tensor(0), call.ints(1))
    if x is None or out is None:
        return None
    return moved(x.dtype, size_of(min(x.unique, out), x.dtype), size_of(out, x.dtype))


@model("aten::pad", "aten::_pad_enum", "aten::_pad_circular", kind="other", wrapper=True)
def pad_wrapper(call: Inputs) -> Cost | None:
    """pad(x, pad, mode, value), where nothing below it was recorded."""
    return pad(call)


def _padded(x: Tensor | None, sides: tuple[int, ...] | None) -> int | None:
    if x is None or sides is None or len(sides) % 2 or len(sides) // 2 > len(x.shape):
        return None
    shape = list(x.shape)
    for at in range(len(sides) // 2):
        shape[-1 - at] += sides[2 * at] + sides[2 * at + 1]
    return prod(shape) if min(shape, default=0) >= 0 else None


@model("aten::reflection_pad1d_backward", "aten::reflection_pad2d_backward", "aten::reflection_pad3d_backward",
       "aten::replication_pad1d_backward", "aten::replication_pad2d_backward", "aten::replication_pad3d_backward",
       kind="other")  # fmt: skip
def pad_backward(call: Inputs) -> Cost | None:
    """reflection_pad2d_backward(grad, x, pad): the gradient read and added up into one like x; one FLOP per element of the gradient."""
    grad, x = call.tensor(0), call.tensor(1)
    if grad is None or x is None:
        return None
    return moved(grad.dtype, grad.bytes, like(x, grad.dtype), flop=grad.numel, direction="bwd")


def _placed_back(call: Inputs, sizes_at: int) -> Cost | None:
    grad, sizes = call.tensor(0), call.ints(sizes_at)
    if grad is None:
        return None
    whole = size_of(prod(sizes), grad.dtype) if sizes is not None and min(sizes, default=0) >= 0 else grad.bytes
    reason = "" if sizes is not None else "size of the whole not recorded: only the part is counted, a lower bound"
    return moved(grad.dtype, grad.bytes, whole, grad.bytes, direction="bwd", reason=reason)


@model("aten::slice_backward", "aten::select_backward", "aten::diagonal_backward", "aten::unfold_backward", kind="other")
def slice_backward(call: Inputs) -> Cost | None:
    """slice_backward(grad, sizes, ...): the whole is zeroed, then the gradient copied into its part."""
    return _placed_back(call, 1)


@model("aten::slice_scatter", "aten::select_scatter", "aten::diagonal_scatter", "aten::as_strided_scatter", kind="other")
def slice_scatter(call: Inputs) -> Cost | None:
    """slice_scatter(x, source, ...): x copied, then the source copied into its part."""
    x, source = call.tensor(0), call.tensor(1)
    if x is None or source is None:
        return None
    return moved(x.dtype, x.bytes, like(x), source.bytes, like(source, x.dtype))


@model("aten::unfold_copy", "aten::im2col", kind="other")
def im2col(call: Inputs) -> Cost | None:
    """im2col(x[N, C, H, W], kernel, dilation, padding, stride): x read, N C prod(kernel) L elements written."""
    x = call.tensor(0)
    if x is None or len(x.shape) not in (3, 4):
        return None
    kernel, dilation, padding, stride = (repeated(call.ints(i), 2) for i in (1, 2, 3, 4))
    if kernel is None or dilation is None or padding is None or stride is None or min(stride) < 1:
        return None
    blocks = prod(
        (size + 2 * p - d * (k - 1) - 1) // s + 1 for size, k, d, p, s in zip(x.shape[-2:], kernel, dilation, padding, stride, strict=True)
    )
    out = prod(x.shape[:-2]) * prod(kernel) * blocks
    return moved(x.dtype, x.bytes, size_of(out, x.dtype)) if blocks >= 0 else None


@model("aten::col2im", kind="other")
def col2im(call: Inputs) -> Cost | None:
    """col2im(x[N, C k, L], size, kernel, ...): columns read and added up into N C prod(size) elements; one FLOP per column element."""
    x, size, kernel = call.tensor(0), repeated(call.ints(1), 2), repeated(call.ints(2), 2)
    if x is None or size is None or kernel is None or len(x.shape) < 2 or prod(kernel) < 1:
        return None
    out = prod(x.shape[:-1]) // prod(kernel) * prod(size)
    return moved(x.dtype, x.bytes, size_of(out, x.dtype), flop=x.numel)


@model("aten::diag_embed", "aten::diag", "aten::block_diag", kind="other")
def diag_embed(call: Inputs) -> Cost | None:
    """diag_embed(x): x read, the square matrix written. `diag` of a matrix reads its diagonal."""
    x = call.tensor(0)
    if x is None or not x.shape:
        return None
    if len(x.shape) == 2 and len(call.slots) == 2:
        side = size_of(min(x.shape), x.dtype)
        return moved(x.dtype, side, side)
    return moved(x.dtype, x.bytes, size_of(x.numel * x.shape[-1], x.dtype))


@model("aten::one_hot", kind="other", wrapper=True)
def one_hot(call: Inputs) -> Cost | None:
    """one_hot(x, classes): int64 results, zeroed and one per row set; with classes -1 the largest value decides: unknown."""
    x, classes = call.tensor(0), count(call, 1)
    if x is None or classes is None:
        return None
    return moved("int64", x.bytes, 8 * x.numel * classes, 8 * x.numel)


@model("aten::take_along_dim", kind="other", wrapper=True)
def take_along_dim(call: Inputs) -> Cost | None:
    """take_along_dim(x, indices, dim), where no gather was recorded below it."""
    x, index = call.tensor(0), call.tensor(1)
    if x is None or index is None or (call.value(2) is not None and axis(x, call.value(2)) is None):
        return None
    return moved(x.dtype, size_of(min(index.numel, x.unique), x.dtype), size_of(index.numel, x.dtype), index.bytes)
