"""Normalisation: vector FLOP per element, inputs and outputs once, statistics and parameters where they are there.

Forward in training 8 FLOP per element, backward twice that; with fixed statistics 2 forward (one scale, one shift) and 4 backward.
Statistics that a forward pass keeps are FP32 at least. Gradients that `output_mask` leaves out are neither computed nor written;
the FLOP of a backward pass stay 16 per element as long as the input gradient is asked for, else 8.
Source: counts per element of the definitions (mean, variance, normalise, scale and shift), Ioffe and Szegedy (2015), Ba et al. (2016).
Limits: a kernel that reads its input twice moves more than this; other tools count 5 per element.
"""

from __future__ import annotations

from math import prod
from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Tensor, size_of
from tb_sol_plugin.cost.model import Cost, Direction, model
from tb_sol_plugin.cost.parts import count, like, read, vector, wide

FORWARD: Final = 8
BACKWARD: Final = 16
FIXED: Final = 2
FIXED_BACKWARD: Final = 4
SOFTMAX: Final = 5
SOFTMAX_BACKWARD: Final = 4


def normal(x: Tensor, per_element: int, traffic: list[int | None], direction: Direction = "fwd", reason: str = "") -> Cost:
    """A cost of kind norm: operations per element of x, and bytes."""
    return vector(x.dtype, per_element * x.numel, *traffic, kind="norm", direction=direction, reason=reason)


def _rows(call: Inputs, at: int, x: Tensor, *parameters: Tensor | None) -> int | None:
    """Rows that are normalised, from `normalized_shape` or else from the size of a parameter."""
    shape = call.ints(at)
    width = prod(shape) if shape is not None else next((p.numel for p in parameters if p is not None and p.numel), 0)
    return x.numel // width if width > 0 else None


def _layer(call: Inputs, x: Tensor | None, weight: Tensor | None, bias: Tensor | None, statistics: int) -> Cost | None:
    if x is None:
        return None
    rows = _rows(call, 1, x, weight, bias)
    reason = "" if rows is not None else "normalised sizes not recorded: statistics left out"
    kept = [wide(x, statistics * rows)] if rows is not None else []
    return normal(x, FORWARD, [x.bytes, like(x), *read(weight, bias), *kept], reason=reason)


@model("aten::native_layer_norm", kind="norm")
def native_layer_norm(call: Inputs) -> Cost | None:
    """native_layer_norm(x, shape, weight, bias, eps): mean and 1/std per row are written; 8 n FLOP."""
    return _layer(call, call.tensor(0), call.tensor(2), call.tensor(3), 2)


@model("aten::layer_norm", kind="norm", wrapper=True)
def layer_norm(call: Inputs) -> Cost | None:
    """layer_norm(x, shape, weight, bias, eps, cudnn), where no native one was recorded below it."""
    return native_layer_norm(call)


@model("aten::_fused_rms_norm", kind="norm")
def fused_rms_norm(call: Inputs) -> Cost | None:
    """_fused_rms_norm(x, shape, weight, eps): 1/rms per row is written; 8 n FLOP."""
    return _layer(call, call.tensor(0), call.tensor(2), None, 1)


@model("aten::rms_norm", kind="norm", wrapper=True)
def rms_norm(call: Inputs) -> Cost | None:
    """rms_norm(x, shape, weight, eps), where the parts were not recorded below it. One fused pass: statistics are kept."""
    return fused_rms_norm(call)


@model("aten::native_group_norm", kind="norm")
def native_group_norm(call: Inputs) -> Cost | None:
    """native_group_norm(x, weight, bias, N, C, HxW, groups, eps): mean and 1/std per sample and group; 8 n FLOP."""
    x, batch, groups = call.tensor(0), count(call, 3), count(call, 6)
    if x is None:
        return None
    kept = [wide(x, 2 * batch * groups)] if batch is not None and groups is not None else []
    reason = "" if kept else "groups not recorded: statistics left out"
    return normal(x, FORWARD, [x.bytes, like(x), *read(call.tensor(1), call.tensor(2)), *kept], reason=reason)


@model("aten::group_norm", kind="norm", wrapper=True)
def group_norm(call: Inputs) -> Cost | None:
    """group_norm(x, groups, weight, bias, ...), where no native one was recorded below it."""
    x, groups = call.tensor(0), count(call, 1)
    if x is None:
        return None
    kept = [wide(x, 2 * x.shape[0] * groups)] if groups is not None and x.shape else []
    reason = "" if kept else "groups not recorded: statistics left out"
    return normal(x, FORWARD, [x.bytes, like(x), *read(call.tensor(2), call.tensor(3)), *kept], reason=reason)


def _batch(call: Inputs, training: bool | None, *, channels: int | None = None) -> Cost | None:
    """(x, weight, bias, running_mean, running_var, ...): training reads and writes the running statistics and saves its own."""
    x = call.tensor(0)
    if x is None or len(x.shape) < 2:
        return None
    running = read(call.tensor(3), call.tensor(4))
    traffic = [x.bytes, like(x), *read(call.tensor(1), call.tensor(2)), *running]
    if training is False:
        return normal(x, FIXED, traffic)
    saved = wide(x, 2 * (x.shape[1] if channels is None else channels))
    return normal(
        x, FORWARD, [*traffic, *running, saved], reason="" if training else "training or not was not recorded: training assumed"
    )


@model("aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm", kind="norm")
def native_batch_norm(call: Inputs) -> Cost | None:
    """cudnn_batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps): 8 n FLOP in training, 2 n else."""
    return _batch(call, call.flag(5))


@model("aten::_native_batch_norm_legit", "aten::_native_batch_norm_legit_functional", kind="norm")
def batch_norm_legit(call: Inputs) -> Cost | None:
    """_native_batch_norm_legit(x, weight, bias, [running_mean, running_var,] training, momentum, eps)."""
    return _batch(call, call.flag(5 if len(call.slots) > 6 else 3))


@model("aten::_batch_norm_with_update", "aten::_batch_norm_with_update_functional", kind="norm")
def batch_norm_training(call: Inputs) -> Cost | None:
    """_batch_norm_with_update(x, weight, bias, running_mean, running_var, momentum, eps): always training."""
    return _batch(call, True)


@model("aten::_native_batch_norm_legit_no_training", "aten::_batch_norm_no_update", kind="norm")
def batch_norm_fixed(call: Inputs) -> Cost | None:
    """_batch_norm_no_update(x, weight, bias, running_mean, running_var, momentum, eps): fixed statistics, 2 n FLOP."""
    return _batch(call, False)


@model("aten::batch_norm", "aten::_batch_norm_impl_index", kind="norm", wrapper=True)
def batch_norm(call: Inputs) -> Cost | None:
    """batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps, cudnn), where nothing below it is known."""
    return _batch(call, call.flag(5))


@model("aten::instance_norm", kind="norm", wrapper=True)
def instance_norm(call: Inputs) -> Cost | None:
    """instance_norm(x[N, C, ...], weight, bias, running_mean, running_var, use_input_stats, ...): a batch norm of N C channels."""
    x = call.tensor(0)
    return _batch(call, call.flag(5), channels=prod(x.shape[:2])) if x is not None and len(x.shape) > 2 else None


@model("aten::batch_norm_stats", kind="norm")
def batch_norm_stats(call: Inputs) -> Cost | None:
    """batch_norm_stats(x, eps): x read, mean and 1/std per channel written; 4 n FLOP (synchronised batch norm, first half)."""
    x = call.tensor(0)
    return normal(x, 4, [x.bytes, wide(x, 2 * x.shape[1])]) if x is not None and len(x.shape) > 1 else None


@model("aten::batch_norm_elemt", kind="norm")
def batch_norm_elemt(call: Inputs) -> Cost | None:
    """batch_norm_elemt(x, weight, bias, mean, invstd, eps): 4 n FLOP (synchronised batch norm, second half)."""
    x = call.tensor(0)
    return None if x is None else normal(x, 4, [x.bytes, like(x), *read(*(call.tensor(i) for i in (1, 2, 3, 4)))])


@model("aten::batch_norm_backward_reduce", kind="norm")
def batch_norm_backward_reduce(call: Inputs) -> Cost | None:
    """batch_norm_backward_reduce(grad, x, mean, invstd, weight, ...): both read, four sums per channel written; 8 n FLOP."""
    grad, x = call.tensor(0), call.tensor(1)
    if grad is None or x is None or len(x.shape) < 2:
        return None
    return normal(x, 8, [grad.bytes, x.bytes, *read(call.tensor(2), call.tensor(3)), wide(x, 4 * x.shape[1])], "bwd")


@model("aten::batch_norm_backward_elemt", kind="norm")
def batch_norm_backward_elemt(call: Inputs) -> Cost | None:
    """batch_norm_backward_elemt(grad, x, mean, invstd, weight, sum_dy, sum_dy_xmu, count): 8 n FLOP."""
    grad, x = call.tensor(0), call.tensor(1)
    if grad is None or x is None:
        return None
    return normal(x, 8, [grad.bytes, x.bytes, like(x), *read(*(call.tensor(i) for i in (2, 3, 4, 5, 6)))], "bwd")


def backward(
    call: Inputs, x: Tensor | None, grad: Tensor | None, saved: tuple[int, ...], parameters: tuple[Tensor | None, ...], mask_at: int,
    per_element: int = BACKWARD,
) -> Cost | None:  # fmt: skip
    """Gradient, input, weight (the first parameter) and saved statistics read; input gradient and one per parameter written.

    mask_at: place of the output mask, (input, weight, bias) or (input, weight); where it is not recorded, everything is asked for.
    """
    if x is None or grad is None:
        return None
    mask = call.flags(mask_at) if mask_at >= 0 else None
    wanted = (mask or ()) + (True,) * (3 - len(mask or ()))
    written = [like(x)] if wanted[0] else []
    written += [size_of(p.numel, p.dtype) for p, on in zip(parameters, wanted[1:], strict=False) if p is not None and on]
    traffic = [grad.bytes, x.bytes, *written, *read(*(call.tensor(i) for i in saved), parameters[0])]
    return normal(x, per_element if wanted[0] else per_element // 2, traffic, "bwd")


@model("aten::native_layer_norm_backward", kind="norm")
def layer_norm_backward(call: Inputs) -> Cost | None:
    """native_layer_norm_backward(grad, x, shape, mean, rstd, weight, bias, mask): 16 n FLOP."""
    return backward(call, call.tensor(1), call.tensor(0), (3, 4), (call.tensor(5), call.tensor(6)), 7)


@model("aten::_fused_rms_norm_backward", kind="norm")
def rms_norm_backward(call: Inputs) -> Cost | None:
    """_fused_rms_norm_backward(grad, x, shape, rstd, weight, mask): 16 n FLOP."""
    return backward(call, call.tensor(1), call.tensor(0), (3,), (call.tensor(4),), 5)


@model("aten::native_group_norm_backward", kind="norm")
def group_norm_backward(call: Inputs) -> Cost | None:
    """native_group_norm_backward(grad, x, mean, rstd, weight, N, C, HxW, groups, mask): weight and bias are of one size."""
    weight = call.tensor(4)
    return backward(call, call.tensor(1), call.tensor(0), (2, 3), (weight, weight), 9)


@model("aten::native_batch_norm_backward", "aten::batch_norm_backward", kind="norm")
def batch_norm_backward(call: Inputs) -> Cost | None:
    """native_batch_norm_backward(grad, x, weight, running_mean, running_var, mean, invstd, training, eps, mask).

    16 n FLOP and the saved statistics in training; 4 n and the running ones where it was not.
    """
    fixed, weight = call.flag(7) is False, call.tensor(2)
    return backward(
        call, call.tensor(1), call.tensor(0), (3, 4) if fixed else (5, 6), (weight, weight), 9, FIXED_BACKWARD if fixed else BACKWARD
    )


@model("aten::cudnn_batch_norm_backward", "aten::miopen_batch_norm_backward", kind="norm")
def vendor_batch_norm_backward(call: Inputs) -> Cost | None:
    """cudnn_batch_norm_backward(x, grad, weight, running_mean, running_var, mean, var, eps, ...): 16 n FLOP, all gradients."""
    weight = call.tensor(2)
    return backward(call, call.tensor(0), call.tensor(1), (5, 6), (weight, weight), -1)


@model("aten::_weight_norm_interface", "aten::_weight_norm", kind="norm")
def weight_norm(call: Inputs) -> Cost | None:
    """_weight_norm_interface(v, g, dim): w = g v / |v|; v and g read, w and one norm per element of g written; 3 n FLOP."""
    v, g = call.tensor(0), call.tensor(1)
    return None if v is None or g is None else normal(v, 3, [v.bytes, g.bytes, like(v), wide(g, g.numel)])


@model("aten::_weight_norm_interface_backward", kind="norm")
def weight_norm_backward(call: Inputs) -> Cost | None:
    """_weight_norm_interface_backward(grad, v, g, norms, dim): gradients of v and g written; 6 n FLOP."""
    grad, v, g, norms = (call.tensor(i) for i in range(4))
    if grad is None or v is None or g is None:
        return None
    return normal(v, 6, [*read(grad, v, g, norms), like(v), like(g)], "bwd")
