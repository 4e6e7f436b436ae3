"""Normalisation and softmax: vector FLOP per element, inputs and outputs once, statistics and parameters where they are there.

Forward in training 8 FLOP per element, backward twice that; batch norm with fixed statistics 2 (one scale, one shift).
Softmax 5 per element forward, 4 backward.
"""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Tensor, size_of, total
from tb_sol_plugin.cost.model import Cost, Direction, model

FORWARD: Final = 8
BACKWARD: Final = 16
FIXED: Final = 2
SOFTMAX: Final = 5
SOFTMAX_BACKWARD: Final = 4


def _of(x: Tensor, per_element: int, traffic: list[int | None], direction: Direction = "fwd", reason: str = "") -> Cost:
    return Cost(
        flop_vector=per_element * x.numel, bytes=total(*traffic), dtype=x.dtype, kind="norm", direction=direction,
        estimated=bool(reason), reason=reason,
    )  # fmt: skip


def _read(*tensors: Tensor | None) -> list[int | None]:
    return [t.bytes for t in tensors if t is not None]


def _wide(x: Tensor, elements: int) -> int | None:
    """Statistics are kept in at least FP32."""
    return size_of(elements, "fp64" if x.dtype == "fp64" else "fp32")


def _rows(call: Inputs, at: int, x: Tensor, *parameters: Tensor | None) -> int | None:
    """Rows that are normalised, from `normalized_shape` or else from the size of a parameter."""
    shape = call.ints(at)
    width = 1
    for size in shape or ():
        width *= size
    if shape is None:
        given = next((p.numel for p in parameters if p is not None and p.numel), 0)
        width = given
    return x.numel // width if width else None


def _layer(call: Inputs, x: Tensor | None, weight: Tensor | None, bias: Tensor | None, statistics: int) -> Cost | None:
    if x is None:
        return None
    rows = _rows(call, 1, x, weight, bias)
    reason = "" if rows is not None else "normalised sizes not recorded: statistics left out"
    kept = [_wide(x, statistics * rows)] if rows is not None else []
    return _of(x, FORWARD, [x.bytes, size_of(x.numel, x.dtype), *_read(weight, bias), *kept], reason=reason)


@model("aten::native_layer_norm", kind="norm")
def native_layer_norm(call: Inputs) -> Cost | None:
    """native_layer_norm(x, shape, weight, bias, eps): mean and 1/std per row are written."""
    return _layer(call, call.tensor(0), call.tensor(2), call.tensor(3), 2)


@model("aten::layer_norm", kind="norm", wrapper=True)
def layer_norm(call: Inputs) -> Cost | None:
    """layer_norm(x, shape, weight, bias, eps, cudnn), where no native one was recorded below it."""
    return native_layer_norm(call)


@model("aten::_fused_rms_norm", kind="norm")
def fused_rms_norm(call: Inputs) -> Cost | None:
    """_fused_rms_norm(x, shape, weight, eps): 1/rms per row is written."""
    return _layer(call, call.tensor(0), call.tensor(2), None, 1)


@model("aten::rms_norm", kind="norm", wrapper=True)
def rms_norm(call: Inputs) -> Cost | None:
    """rms_norm(x, shape, weight, eps)."""
    return fused_rms_norm(call)


@model("aten::native_group_norm", kind="norm")
def native_group_norm(call: Inputs) -> Cost | None:
    """native_group_norm(x, weight, bias, N, C, HxW, groups, eps): mean and 1/std per sample and group."""
    x = call.tensor(0)
    if x is None:
        return None
    batch, groups = call.value(3), call.value(6)
    known = isinstance(batch, int) and isinstance(groups, int)
    kept = [_wide(x, 2 * int(str(batch)) * int(str(groups)))] if known else []
    reason = "" if known else "groups not recorded: statistics left out"
    return _of(x, FORWARD, [x.bytes, size_of(x.numel, x.dtype), *_read(call.tensor(1), call.tensor(2)), *kept], reason=reason)


@model("aten::group_norm", kind="norm", wrapper=True)
def group_norm(call: Inputs) -> Cost | None:
    """group_norm(x, groups, weight, bias, ...)."""
    x, groups = call.tensor(0), call.value(1)
    if x is None:
        return None
    kept = [_wide(x, 2 * x.shape[0] * groups)] if isinstance(groups, int) and x.shape else []
    return _of(x, FORWARD, [x.bytes, size_of(x.numel, x.dtype), *_read(call.tensor(2), call.tensor(3)), *kept])


def _batch(call: Inputs, *, saved: bool = True) -> Cost | None:
    """(x, weight, bias, running_mean, running_var, training, ...): training reads and writes the running statistics and saves its own."""
    x = call.tensor(0)
    if x is None or len(x.shape) < 2:
        return None
    training = call.flag(5)
    traffic = [x.bytes, size_of(x.numel, x.dtype), *_read(*(call.tensor(i) for i in (1, 2, 3, 4)))]
    if training is False:
        return _of(x, FIXED, traffic)
    traffic += _read(call.tensor(3), call.tensor(4))
    if saved:
        traffic.append(_wide(x, 2 * x.shape[1]))
    return _of(x, FORWARD, traffic, reason="" if training else "training or not was not recorded: training assumed")


@model(
    "aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm", "aten::_native_batch_norm_legit",
    "aten::_batch_norm_with_update", kind="norm",
)  # fmt: skip
def native_batch_norm(call: Inputs) -> Cost | None:
    """cudnn_batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps)."""
    return _batch(call)


@model("aten::batch_norm", "aten::_batch_norm_impl_index", kind="norm", wrapper=True)
def batch_norm(call: Inputs) -> Cost | None:
    """batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps, cudnn)."""
    return _batch(call)


def _backward(
    call: Inputs, x: Tensor | None, grad: Tensor | None, read: tuple[int, ...], weight: Tensor | None, gradients: int
) -> Cost | None:
    """Gradient and input read, input gradient written; saved statistics and weight read, one gradient per parameter written."""
    if x is None or grad is None:
        return None
    parameters = [size_of(weight.numel, weight.dtype)] * gradients if weight is not None else []
    traffic = [grad.bytes, x.bytes, size_of(x.numel, x.dtype), *_read(*(call.tensor(i) for i in read)), *_read(weight), *parameters]
    return _of(x, BACKWARD, traffic, "bwd")


@model("aten::native_layer_norm_backward", kind="norm")
def layer_norm_backward(call: Inputs) -> Cost | None:
    """native_layer_norm_backward(grad, x, shape, mean, rstd, weight, bias, mask)."""
    return _backward(call, call.tensor(1), call.tensor(0), (3, 4), call.tensor(5), 2 if call.tensor(6) is not None else 1)


@model("aten::_fused_rms_norm_backward", kind="norm")
def rms_norm_backward(call: Inputs) -> Cost | None:
    """_fused_rms_norm_backward(grad, x, shape, rstd, weight, mask)."""
    return _backward(call, call.tensor(1), call.tensor(0), (3,), call.tensor(4), 1)


@model("aten::native_group_norm_backward", kind="norm")
def group_norm_backward(call: Inputs) -> Cost | None:
    """native_group_norm_backward(grad, x, mean, rstd, weight, N, C, HxW, groups, mask)."""
    return _backward(call, call.tensor(1), call.tensor(0), (2, 3), call.tensor(4), 2)


@model("aten::native_batch_norm_backward", kind="norm")
def batch_norm_backward(call: Inputs) -> Cost | None:
    """native_batch_norm_backward(grad, x, weight, running_mean, running_var, mean, invstd, training, eps, mask)."""
    return _backward(call, call.tensor(1), call.tensor(0), (5, 6), call.tensor(2), 2)


@model("aten::cudnn_batch_norm_backward", "aten::miopen_batch_norm_backward", kind="norm")
def vendor_batch_norm_backward(call: Inputs) -> Cost | None:
    """cudnn_batch_norm_backward(x, grad, weight, running_mean, running_var, mean, var, eps, ...)."""
    return _backward(call, call.tensor(0), call.tensor(1), (5, 6), call.tensor(2), 2)


@model("aten::_softmax", "aten::_log_softmax", "aten::_safe_softmax", kind="norm")
def softmax(call: Inputs) -> Cost | None:
    """_softmax(x, dim, half_to_float): the result is FP32 when half_to_float."""
    x = call.tensor(0)
    if x is None:
        return None
    return _of(x, SOFTMAX, [x.bytes, size_of(x.numel, "fp32" if call.flag(2) is True else x.dtype)])


@model("aten::softmax", "aten::log_softmax", kind="norm", wrapper=True)
def softmax_wrapper(call: Inputs) -> Cost | None:
    """softmax(x, dim, dtype)."""
    x = call.tensor(0)
    return None if x is None else _of(x, SOFTMAX, [x.bytes, size_of(x.numel, call.dtype(2) or x.dtype)])


@model("aten::_softmax_backward_data", "aten::_log_softmax_backward_data", kind="norm")
def softmax_backward(call: Inputs) -> Cost | None:
    """_softmax_backward_data(grad, out, dim, input_dtype)."""
    grad, out = call.tensor(0), call.tensor(1)
    if grad is None or out is None:
        return None
    return _of(grad, SOFTMAX_BACKWARD, [grad.bytes, out.bytes, size_of(grad.numel, call.dtype(3) or grad.dtype)], "bwd")
