"""Convolutions: 2 x multiply-adds forward, the same again for each gradient that the output mask asks for.

FLOP: 2 x prod(weight[1:]) per result element forward, per input element when transposed; a depthwise or grouped one reads in / groups
channels. Bytes: input, weight and bias read, result written; backward, the gradient of the result read once, the weight for the input
gradient, the input for the weight gradient, each gradient written. A bias counts as bytes, and is one where argument 2 has sizes.
Results are not recorded: their sizes follow from stride, padding and dilation; without concrete inputs from the backward call of the
same sizes, else they are unknown. Source: direct convolution; equal to torch.utils.flop_counter except that the counter takes the
weight gradient of a grouped convolution for a dense one. Limits: Winograd and FFT need fewer operations, and may pass the limit;
quantized convolutions (packed weights) have no model.
"""

from __future__ import annotations

from math import prod
from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Tensor, compute_dtype, size_of, total
from tb_sol_plugin.cost.model import Cost, model, unknown

GRADIENT_PLACES: Final = {
    "aten::convolution_backward": (1, 2, 0), "aten::cudnn_convolution_backward": (0, 2, 1), "aten::miopen_convolution_backward": (0, 2, 1),
}  # fmt: skip
"""Where a backward call has its input, weight and the gradient of the result."""
GRADIENT_CALLS: Final = {
    name: tuple(f"{name}_{part}" for part in ("input", "weight", "bias"))
    for name in ("aten::cudnn_convolution_backward", "aten::miopen_convolution_backward")
}
"""Backward calls that made each gradient by a call of its own; the first convolution of a network made none of its input."""
NO_GEOMETRY: Final = "stride, padding and dilation not recorded"
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


def _spatial(
    x: Tensor,
    weight: Tensor,
    stride: tuple[int, ...] | None,
    padding: tuple[int, ...] | None,
    dilation: tuple[int, ...] | None,
    *,
    transposed: bool,
    output_padding: tuple[int, ...] | None,
) -> tuple[int, ...] | None:
    """Return the spatial sizes of the result as the arguments give them; None where one of them is not recorded."""
    dims = len(weight.shape) - 2
    steps, pads, gaps = _spread(stride, dims), _spread(padding, dims), _spread(dilation, dims)
    if steps is None or pads is None or gaps is None or min(steps) <= 0:
        return None
    over = _spread(output_padding, dims) or ()
    return out_spatial(x.shape[-dims:], weight.shape[2:], steps, pads, gaps, transposed=transposed, output_padding=over)


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
    groups: int | None = None,
    result: tuple[int, ...] | None = None,
) -> Cost | None:
    """x[N, C, ...] (batch may be left out) with weight[out, in/groups, ...], or [in, out/groups, ...] when transposed."""
    if x is None or weight is None or len(weight.shape) < 3 or len(x.shape) < len(weight.shape) - 1:
        return None
    given = x.shape[1 - len(weight.shape)]
    if groups is None and not transposed and weight.shape[1]:
        groups = given // weight.shape[1]
    channels = weight.shape[0] if transposed else weight.shape[1] * (groups or 0)
    if channels != given:
        return unknown(f"sizes contradict: {given} input channels, a weight for {channels}")
    dims = len(weight.shape) - 2
    reason = ""
    spatial = _spatial(x, weight, stride, padding, dilation, transposed=transposed, output_padding=output_padding)
    if spatial is None and result is not None and len(result) == len(x.shape):
        spatial, reason = result[-dims:], FROM_BACKWARD
    if spatial is None:
        return unknown(NO_GEOMETRY)
    if min(spatial) <= 0 and x.numel:
        return unknown("sizes contradict: the kernel is larger than its input")
    if transposed and groups is None:
        return unknown(NO_GEOMETRY)
    batch = prod(x.shape[: -dims - 1])
    out = batch * (weight.shape[1] * (groups or 1) if transposed else weight.shape[0]) * prod(max(n, 0) for n in spatial)
    macs = x.numel * prod(weight.shape[1:]) if transposed else out * prod(weight.shape[1:])
    read = [x.bytes, weight.bytes, *([bias.bytes] if bias is not None and bias.shape else [])]
    return Cost(
        flop=2 * macs, bytes=total(*read, size_of(out, x.dtype)), dtype=compute_dtype(x, weight), kind="conv", estimated=bool(reason),
        reason=reason,
    )  # fmt: skip


def _one(value: tuple[int, ...] | None) -> int | None:
    return value[0] if value and value[0] > 0 else None


@model("aten::convolution", "aten::_convolution", "aten::convolution_overrideable", kind="conv", wrapper=True)
def convolution(call: Inputs) -> Cost | None:
    """convolution(x 0, w 1, bias 2, stride 3, padding 4, dilation 5, transposed 6, output_padding 7, groups 8). Owns the work only
    where no kernel of a backend was recorded below it."""
    if call.flag(6) is None:
        return None if call.tensor(0) is None or call.tensor(1) is None else unknown(NO_GEOMETRY)
    return _forward(
        call.tensor(0), call.tensor(1), call.tensor(2), call.ints(3), call.ints(4), call.ints(5), transposed=bool(call.flag(6)),
        output_padding=call.ints(7), groups=_one(call.ints(8)),
    )  # fmt: skip


@model("aten::conv1d", "aten::conv2d", "aten::conv3d", "mkldnn_prepacked::conv2d_run", kind="conv", wrapper=True)
def conv_nd(call: Inputs) -> Cost | None:
    """conv2d(x 0, w 1, bias 2, stride 3, padding 4, dilation 5, groups 6); padding may be a word (`same`), then it is left to the
    leaf."""
    return _forward(call.tensor(0), call.tensor(1), call.tensor(2), call.ints(3), call.ints(4), call.ints(5), groups=_one(call.ints(6)))


@model("aten::conv_transpose1d", "aten::conv_transpose2d", "aten::conv_transpose3d", kind="conv", wrapper=True)
def conv_transpose(call: Inputs) -> Cost | None:
    """conv_transpose2d(x 0, w 1, bias 2, stride 3, padding 4, output_padding 5, groups 6, dilation 7)."""
    return _forward(
        call.tensor(0), call.tensor(1), call.tensor(2), call.ints(3), call.ints(4), call.ints(7), transposed=True,
        output_padding=call.ints(5), groups=_one(call.ints(6)),
    )  # fmt: skip


@model("aten::cudnn_convolution", kind="conv")
def cudnn(call: Inputs) -> Cost | None:
    """cudnn_convolution(x 0, w 1, padding 2, stride 3, dilation 4, groups 5, ...)."""
    return _forward(
        call.tensor(0), call.tensor(1), None, call.ints(3), call.ints(2), call.ints(4), groups=_one(call.ints(5)), result=call.result
    )


@model(
    "aten::miopen_convolution", "aten::mkldnn_convolution", "aten::miopen_depthwise_convolution", "aten::_mps_convolution",
    "mkldnn::_convolution_pointwise", "mkldnn::_convolution_pointwise_", kind="conv",
)  # fmt: skip
def miopen(call: Inputs) -> Cost | None:
    """miopen_convolution(x 0, w 1, bias 2, padding 3, stride 4, dilation 5, groups 6, ...)."""
    return _forward(
        call.tensor(0), call.tensor(1), call.tensor(2), call.ints(4), call.ints(3), call.ints(5), groups=_one(call.ints(6)),
        result=call.result,
    )  # fmt: skip


@model("aten::cudnn_convolution_relu", "aten::miopen_convolution_relu", kind="conv")
def with_relu(call: Inputs) -> Cost | None:
    """cudnn_convolution_relu(x 0, w 1, bias 2, stride 3, padding 4, dilation 5, groups 6)."""
    return conv_nd(call)


@model("aten::cudnn_convolution_add_relu", "aten::miopen_convolution_add_relu", kind="conv")
def with_add(call: Inputs) -> Cost | None:
    """cudnn_convolution_add_relu(x 0, w 1, z 2, alpha 3, bias 4, stride 5, padding 6, dilation 7, groups 8): z is read as well."""
    found = _forward(call.tensor(0), call.tensor(1), call.tensor(4), call.ints(5), call.ints(6), call.ints(7), groups=_one(call.ints(8)))
    z = call.tensor(2)
    if found is None or found.flop is None:
        return found
    return Cost(flop=found.flop, bytes=total(found.bytes, None if z is None else z.bytes), dtype=found.dtype, kind="conv")


@model("aten::cudnn_convolution_transpose", kind="conv")
def cudnn_transpose(call: Inputs) -> Cost | None:
    """cudnn_convolution_transpose(x 0, w 1, padding 2, output_padding 3, stride 4, dilation 5, groups 6, ...)."""
    return _forward(
        call.tensor(0), call.tensor(1), None, call.ints(4), call.ints(2), call.ints(5), transposed=True, output_padding=call.ints(3),
        groups=_one(call.ints(6)),
    )  # fmt: skip


@model("aten::miopen_convolution_transpose", "mkldnn::_convolution_transpose_pointwise", kind="conv")
def miopen_transpose(call: Inputs) -> Cost | None:
    """miopen_convolution_transpose(x 0, w 1, bias 2, padding 3, output_padding 4, stride 5, dilation 6, groups 7, ...)."""
    return _forward(
        call.tensor(0), call.tensor(1), call.tensor(2), call.ints(5), call.ints(3), call.ints(6), transposed=True,
        output_padding=call.ints(4), groups=_one(call.ints(7)),
    )  # fmt: skip


@model("aten::thnn_conv2d", "aten::_slow_conv2d_forward", "aten::slow_conv3d_forward", "aten::slow_conv3d", kind="conv")
def slow(call: Inputs) -> Cost | None:
    """_slow_conv2d_forward(x 0, w 1, kernel_size 2, bias 3, stride 4, padding 5)."""
    return _forward(call.tensor(0), call.tensor(1), call.tensor(3), call.ints(4), call.ints(5), (1,))


@model("aten::_nnpack_spatial_convolution", kind="conv")
def nnpack(call: Inputs) -> Cost | None:
    """_nnpack_spatial_convolution(x 0, w 1, bias 2, padding 3, stride 4)."""
    return _forward(call.tensor(0), call.tensor(1), call.tensor(2), call.ints(4), call.ints(3), (1,))


@model("aten::_conv_depthwise2d", "aten::conv_depthwise3d", "aten::slow_conv_dilated2d", "aten::slow_conv_dilated3d", kind="conv")
def depthwise(call: Inputs) -> Cost | None:
    """_conv_depthwise2d(x 0, w 1, kernel_size 2, bias 3, stride 4, padding 5, dilation 6)."""
    return _forward(call.tensor(0), call.tensor(1), call.tensor(3), call.ints(4), call.ints(5), call.ints(6))


@model("aten::slow_conv_transpose2d", "aten::slow_conv_transpose3d", kind="conv")
def slow_transpose(call: Inputs) -> Cost | None:
    """slow_conv_transpose2d(x 0, w 1, kernel_size 2, bias 3, stride 4, padding 5, output_padding 6, dilation 7)."""
    return _forward(
        call.tensor(0), call.tensor(1), call.tensor(3), call.ints(4), call.ints(5), call.ints(7), transposed=True,
        output_padding=call.ints(6), groups=1,
    )  # fmt: skip


@model("aten::conv_tbc", kind="conv")
def conv_tbc(call: Inputs) -> Cost | None:
    """conv_tbc(x[T,B,C] 0, w[k,C,out] 1, bias 2, padding 3): 2 B C out k per result in time."""
    x, weight, bias, pad = call.tensor(0), call.tensor(1), call.tensor(2), call.ints(3)
    if x is None or weight is None or len(x.shape) != 3 or len(weight.shape) != 3:
        return None
    if x.shape[2] != weight.shape[1]:
        return unknown(f"sizes contradict: {x.shape[2]} input channels, a weight for {weight.shape[1]}")
    if pad is None or len(pad) != 1:
        return unknown(NO_GEOMETRY)
    steps = x.shape[0] + 2 * pad[0] - weight.shape[0] + 1
    if steps <= 0:
        return unknown("sizes contradict: the kernel is larger than its input")
    out = steps * x.shape[1] * weight.shape[2]
    return Cost(
        flop=2 * out * weight.shape[0] * weight.shape[1], dtype=compute_dtype(x, weight), kind="conv",
        bytes=total(x.bytes, weight.bytes, 0 if bias is None else bias.bytes, size_of(out, x.dtype)),
    )  # fmt: skip


def _backward(
    grad: Tensor | None, x: Tensor | None, weight: Tensor | None, mask: tuple[bool, ...] | None, *, transposed: bool
) -> Cost | None:
    """dgrad and wgrad each cost what the forward costs; the bias gradient is one vector add per element of the gradient.

    The gradient of the result counts once however many gradients read it, as every tensor of one call does: bytes are a lower bound.
    """
    if grad is None or x is None or weight is None or len(weight.shape) < 3:
        return None
    place = 1 - len(weight.shape)
    if len(grad.shape) != len(x.shape) or len(x.shape) < -place or (x if transposed else grad).shape[place] != weight.shape[0]:
        return unknown("sizes contradict: gradient, input and weight")
    if grad.shape[: place - 1] != x.shape[: place - 1]:
        return unknown("sizes contradict: batches of gradient and input")
    wanted = (*mask, False, False, False)[:3] if mask is not None else (True, True, False)
    macs = (x.numel if transposed else grad.numel) * prod(weight.shape[1:])
    read = [*[grad] * any(wanted), *[weight] * wanted[0], *[x] * wanted[1]]
    traffic = [t.bytes for t in read]
    if wanted[0]:
        traffic.append(size_of(x.numel, x.dtype))
    if wanted[1]:
        traffic.append(size_of(weight.numel, weight.dtype))
    if wanted[2]:
        traffic.append(size_of(grad.shape[place], weight.dtype))
    return Cost(
        flop=2 * macs * (wanted[0] + wanted[1]), flop_vector=grad.numel if wanted[2] else 0, bytes=total(*traffic),
        dtype=compute_dtype(grad, weight), kind="conv", direction="bwd", estimated=mask is None,
        reason="" if mask is not None else "gradients asked for not recorded: input and weight assumed",
    )  # fmt: skip


@model("aten::convolution_backward", kind="conv")
def convolution_backward(call: Inputs) -> Cost | None:
    """convolution_backward(grad 0, x 1, w 2, bias_sizes 3, stride 4, padding 5, dilation 6, transposed 7, output_padding 8, groups 9,
    output_mask 10): the forward's FLOP for each of dx and dw that the mask asks for."""
    return _backward(call.tensor(0), call.tensor(1), call.tensor(2), call.flags(10), transposed=bool(call.flag(7)))


@model("aten::convolution_backward_overrideable", kind="conv")
def overrideable_backward(call: Inputs) -> Cost | None:
    """convolution_backward_overrideable(grad 0, x 1, w 2, stride 3, padding 4, dilation 5, transposed 6, output_padding 7, groups 8,
    output_mask 9)."""
    return _backward(call.tensor(0), call.tensor(1), call.tensor(2), call.flags(9), transposed=bool(call.flag(6)))


@model("aten::_slow_conv2d_backward", kind="conv")
def slow_backward(call: Inputs) -> Cost | None:
    """_slow_conv2d_backward(grad 0, x 1, w 2, kernel_size 3, stride 4, padding 5, output_mask 6)."""
    return _backward(call.tensor(0), call.tensor(1), call.tensor(2), call.flags(6), transposed=False)


@model("aten::cudnn_convolution_backward", "aten::mkldnn_convolution_backward", "aten::miopen_convolution_backward", kind="conv")
def cudnn_backward(call: Inputs) -> Cost | None:
    """cudnn_convolution_backward(x 0, grad 1, w 2, padding, stride, dilation, groups, ..., output_mask last), PyTorch before 1.11. Where
    the mask was not recorded, the calls inside tell which gradients were made."""
    mask = call.flags(len(call.slots) - 1)
    if mask is None and call.below:
        mask = tuple(name in call.below for name in GRADIENT_CALLS[call.name])
    return _backward(call.tensor(1), call.tensor(0), call.tensor(2), mask, transposed=False)


@model("aten::cudnn_convolution_backward_input", "aten::miopen_convolution_backward_input", kind="conv")
def input_gradient(call: Inputs) -> Cost | None:
    """cudnn_convolution_backward_input(sizes of x 0, grad 1, w 2, ...), PyTorch before 1.11: the forward's FLOP. Bytes where the sizes
    of x stand as a value."""
    sizes, grad, weight = call.ints(0), call.tensor(1), call.tensor(2)
    if grad is None or weight is None or len(weight.shape) < 3 or len(grad.shape) != len(weight.shape):
        return None
    written = size_of(prod(sizes), grad.dtype) if sizes is not None and min(sizes, default=0) >= 0 else None
    return Cost(
        flop=2 * grad.numel * prod(weight.shape[1:]), bytes=total(grad.bytes, weight.bytes, written), dtype=compute_dtype(grad, weight),
        kind="conv", direction="bwd",
    )  # fmt: skip


@model("aten::cudnn_convolution_backward_weight", "aten::miopen_convolution_backward_weight", kind="conv")
def weight_gradient(call: Inputs) -> Cost | None:
    """cudnn_convolution_backward_weight(sizes of w 0, grad 1, x 2, ...), PyTorch before 1.11: the forward's FLOP. The sizes of w must
    stand as a value."""
    sizes, grad, x = call.ints(0), call.tensor(1), call.tensor(2)
    if grad is None or x is None:
        return None
    if sizes is None or len(sizes) < 3 or min(sizes) < 0:
        return unknown("sizes of the weight not recorded")
    return Cost(
        flop=2 * grad.numel * prod(sizes[1:]), bytes=total(grad.bytes, x.bytes, size_of(prod(sizes), x.dtype)), kind="conv",
        dtype=compute_dtype(grad, x), direction="bwd",
    )  # fmt: skip
