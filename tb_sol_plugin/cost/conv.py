"""Convolutions: 2 x multiply-adds forward, the same again for each gradient that the output mask asks for.

Results are not recorded: their sizes follow from stride, padding and dilation. Without concrete inputs they are unknown.
"""

from __future__ import annotations

from math import prod
from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Tensor, compute_dtype, size_of, total
from tb_sol_plugin.cost.model import Cost, model

GRADIENT_PLACES: Final = {
    "aten::convolution_backward": (1, 2, 0), "aten::cudnn_convolution_backward": (0, 2, 1), "aten::miopen_convolution_backward": (0, 2, 1),
}  # fmt: skip
"""Where a backward call has its input, weight and the gradient of the result."""
FROM_BACKWARD: Final = "stride and padding not recorded: size of the result taken from the backward call of the same sizes"


def result_sizes(name: str, call: Inputs) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
    """(x, weight, result) sizes that a backward call tells of its forward; None for other calls."""
    if name not in GRADIENT_PLACES:
        return None
    x, weight, grad = (call.tensor(at) for at in GRADIENT_PLACES[name])
    return None if x is None or weight is None or grad is None else (x.shape, weight.shape, grad.shape)


def _spread(values: tuple[int, ...] | None, dims: int) -> tuple[int, ...] | None:
    if values is None or len(values) not in (1, dims):
        return None
    return values * dims if len(values) == 1 else values


def out_spatial(
    x: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    *,
    transposed: bool = False,
    output_padding: tuple[int, ...] = (),
) -> tuple[int, ...]:
    """Spatial sizes of the result of a convolution or pooling over spatial sizes `x`."""
    extra = output_padding or (0,) * len(x)
    if transposed:
        return tuple(
            (n - 1) * s - 2 * p + d * (k - 1) + o + 1
            for n, k, s, p, d, o in zip(x, kernel, stride, padding, dilation, extra, strict=True)
        )  # fmt: skip
    return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(x, kernel, stride, padding, dilation, strict=True))


def _forward(
    x: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    stride: tuple[int, ...] | None,
    padding: tuple[int, ...] | None,
    dilation: tuple[int, ...] | None,
    *,
    transposed: bool = False,
    output_padding: tuple[int, ...] | None = None,
    groups: int = 1,
    result: tuple[int, ...] | None = None,
) -> Cost | None:
    """x[N, C, ...] (batch may be left out) with weight[out, in/groups, ...], or [in, out/groups, ...] when transposed."""
    if x is None or weight is None or len(weight.shape) < 3 or len(x.shape) < len(weight.shape) - 1:
        return None
    dims = len(weight.shape) - 2
    steps, pads, gaps = _spread(stride, dims), _spread(padding, dims), _spread(dilation, dims)
    reason = ""
    if steps is not None and pads is not None and gaps is not None and min(steps) > 0:
        over = _spread(output_padding, dims) or ()
        spatial = out_spatial(x.shape[-dims:], weight.shape[2:], steps, pads, gaps, transposed=transposed, output_padding=over)
    elif result is not None and len(result) == len(x.shape):
        spatial, reason = result[-dims:], FROM_BACKWARD
    else:
        return None
    if min(spatial) < 0:
        return None
    batch = prod(x.shape[: -dims - 1])
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    out = batch * channels * prod(spatial)
    macs = x.numel * prod(weight.shape[1:]) if transposed else out * prod(weight.shape[1:])
    read = [x.bytes, weight.bytes, *([bias.bytes] if bias is not None and bias.shape else [])]
    return Cost(
        flop=2 * macs, bytes=total(*read, size_of(out, x.dtype)), dtype=compute_dtype(x, weight), kind="conv", estimated=bool(reason),
        reason=reason,
    )  # fmt: skip


def _one(value: tuple[int, ...] | None) -> int:
    return value[0] if value else 1


@model("aten::convolution", "aten::_convolution", "aten::convolution_overrideable", kind="conv", wrapper=True)
def convolution(call: Inputs) -> Cost | None:
    """convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups). Bias is argument 2, if it has sizes."""
    if call.has_values and call.flag(6) is None:
        return None
    return _forward(
        call.tensor(0), call.tensor(1), call.tensor(2), call.ints(3), call.ints(4), call.ints(5), transposed=bool(call.flag(6)),
        output_padding=call.ints(7), groups=_one(call.ints(8)),
    )  # fmt: skip


@model("aten::conv1d", "aten::conv2d", "aten::conv3d", kind="conv", wrapper=True)
def conv_nd(call: Inputs) -> Cost | None:
    """conv2d(x, w, bias, stride, padding, dilation, groups); padding may be a word (`same`), then it is left to the leaf."""
    return _forward(call.tensor(0), call.tensor(1), call.tensor(2), call.ints(3), call.ints(4), call.ints(5), groups=_one(call.ints(6)))


@model("aten::conv_transpose1d", "aten::conv_transpose2d", "aten::conv_transpose3d", kind="conv", wrapper=True)
def conv_transpose(call: Inputs) -> Cost | None:
    """conv_transpose2d(x, w, bias, stride, padding, output_padding, groups, dilation)."""
    return _forward(
        call.tensor(0), call.tensor(1), call.tensor(2), call.ints(3), call.ints(4), call.ints(7), transposed=True,
        output_padding=call.ints(5), groups=_one(call.ints(6)),
    )  # fmt: skip


@model("aten::cudnn_convolution", kind="conv")
def cudnn(call: Inputs) -> Cost | None:
    """cudnn_convolution(x, w, padding, stride, dilation, groups, ...)."""
    return _forward(
        call.tensor(0), call.tensor(1), None, call.ints(3), call.ints(2), call.ints(4), groups=_one(call.ints(5)), result=call.result
    )


@model("aten::miopen_convolution", "aten::mkldnn_convolution", "aten::miopen_depthwise_convolution", kind="conv")
def miopen(call: Inputs) -> Cost | None:
    """miopen_convolution(x, w, bias, padding, stride, dilation, groups, ...)."""
    return _forward(
        call.tensor(0), call.tensor(1), call.tensor(2), call.ints(4), call.ints(3), call.ints(5), groups=_one(call.ints(6)),
        result=call.result,
    )  # fmt: skip


@model("aten::cudnn_convolution_relu", "aten::miopen_convolution_relu", kind="conv")
def with_relu(call: Inputs) -> Cost | None:
    """cudnn_convolution_relu(x, w, bias, stride, padding, dilation, groups)."""
    return conv_nd(call)


@model("aten::cudnn_convolution_transpose", kind="conv")
def cudnn_transpose(call: Inputs) -> Cost | None:
    """cudnn_convolution_transpose(x, w, padding, output_padding, stride, dilation, groups, ...)."""
    return _forward(
        call.tensor(0), call.tensor(1), None, call.ints(4), call.ints(2), call.ints(5), transposed=True, output_padding=call.ints(3),
        groups=_one(call.ints(6)),
    )  # fmt: skip


@model("aten::miopen_convolution_transpose", kind="conv")
def miopen_transpose(call: Inputs) -> Cost | None:
    """miopen_convolution_transpose(x, w, bias, padding, output_padding, stride, dilation, groups, ...)."""
    return _forward(
        call.tensor(0), call.tensor(1), call.tensor(2), call.ints(5), call.ints(3), call.ints(6), transposed=True,
        output_padding=call.ints(4), groups=_one(call.ints(7)),
    )  # fmt: skip


@model("aten::thnn_conv2d", "aten::_slow_conv2d_forward", "aten::slow_conv3d_forward", "aten::slow_conv3d", kind="conv")
def slow(call: Inputs) -> Cost | None:
    """_slow_conv2d_forward(x, w, kernel_size, bias, stride, padding)."""
    return _forward(call.tensor(0), call.tensor(1), call.tensor(3), call.ints(4), call.ints(5), (1,))


@model("aten::_conv_depthwise2d", "aten::conv_depthwise3d", kind="conv")
def depthwise(call: Inputs) -> Cost | None:
    """_conv_depthwise2d(x, w, kernel_size, bias, stride, padding, dilation)."""
    return _forward(call.tensor(0), call.tensor(1), call.tensor(3), call.ints(4), call.ints(5), call.ints(6))


def _backward(
    grad: Tensor | None, x: Tensor | None, weight: Tensor | None, mask: tuple[bool, ...] | None, *, transposed: bool
) -> Cost | None:
    """dgrad and wgrad each cost what the forward costs; the bias gradient is one vector add per element of the gradient."""
    if grad is None or x is None or weight is None or len(weight.shape) < 3:
        return None
    wanted = (*mask, False, False, False)[:3] if mask is not None else (True, True, False)
    macs = (x.numel if transposed else grad.numel) * prod(weight.shape[1:])
    traffic: list[int | None] = []
    if wanted[0]:
        traffic += [grad.bytes, weight.bytes, size_of(x.numel, x.dtype)]
    if wanted[1]:
        traffic += [grad.bytes, x.bytes, size_of(weight.numel, weight.dtype)]
    if wanted[2]:
        channels = weight.shape[1] if transposed else weight.shape[0]
        traffic += [grad.bytes, size_of(channels, weight.dtype)]
    return Cost(
        flop=2 * macs * (wanted[0] + wanted[1]), flop_vector=grad.numel if wanted[2] else 0, bytes=total(*traffic),
        dtype=compute_dtype(grad, weight), kind="conv", direction="bwd", estimated=mask is None,
        reason="" if mask is not None else "gradients asked for not recorded: input and weight assumed",
    )  # fmt: skip


@model("aten::convolution_backward", "aten::convolution_backward_overrideable", kind="conv")
def convolution_backward(call: Inputs) -> Cost | None:
    """convolution_backward(grad, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask)."""
    return _backward(call.tensor(0), call.tensor(1), call.tensor(2), call.flags(10), transposed=bool(call.flag(7)))


@model("aten::cudnn_convolution_backward", kind="conv")
def cudnn_backward(call: Inputs) -> Cost | None:
    """cudnn_convolution_backward(x, grad, w, padding, stride, dilation, groups, benchmark, deterministic, allow_tf32, output_mask)."""
    return _backward(call.tensor(1), call.tensor(0), call.tensor(2), call.flags(len(call.slots) - 1), transposed=False)


@model("aten::mkldnn_convolution_backward", "aten::miopen_convolution_backward", kind="conv")
def miopen_backward(call: Inputs) -> Cost | None:
    """miopen_convolution_backward(x, grad, w, ..., output_mask)."""
    return _backward(call.tensor(1), call.tensor(0), call.tensor(2), call.flags(len(call.slots) - 1), transposed=False)
