"""Softmax: 5 FLOP per element forward (maximum, subtract, exponent, add up, divide), 4 backward; scores read and written once.

Source: one operation per step of the numerically safe softmax; other tools count 3 per element.
Limits: a kernel that reads its scores twice moves more than this.
"""

from __future__ import annotations

from tb_sol_plugin.cost.inputs import Inputs, size_of
from tb_sol_plugin.cost.model import Cost, model
from tb_sol_plugin.cost.norm import SOFTMAX, SOFTMAX_BACKWARD, normal
from tb_sol_plugin.cost.parts import like, read


@model("aten::_softmax", "aten::_log_softmax", "aten::_safe_softmax", kind="norm")
def softmax(call: Inputs) -> Cost | None:
    """_softmax(x, dim, half_to_float): the result is FP32 when half_to_float; 5 n FLOP."""
    x = call.tensor(0)
    return None if x is None else normal(x, SOFTMAX, [x.bytes, size_of(x.numel, "fp32" if call.flag(2) is True else x.dtype)])


@model("aten::softmax", "aten::log_softmax", "aten::special_softmax", "aten::special_log_softmax", kind="norm", wrapper=True)
def softmax_wrapper(call: Inputs) -> Cost | None:
    """softmax(x, dim, dtype), where no softmax was recorded below it."""
    x = call.tensor(0)
    return None if x is None else normal(x, SOFTMAX, [x.bytes, size_of(x.numel, call.dtype(2) or x.dtype)])


@model("aten::_softmax_backward_data", "aten::_log_softmax_backward_data", kind="norm")
def softmax_backward(call: Inputs) -> Cost | None:
    """_softmax_backward_data(grad, out, dim, input_dtype): both read, the gradient written; 4 n FLOP."""
    grad, out = call.tensor(0), call.tensor(1)
    if grad is None or out is None:
        return None
    return normal(grad, SOFTMAX_BACKWARD, [grad.bytes, out.bytes, size_of(grad.numel, call.dtype(3) or grad.dtype)], "bwd")


@model("aten::_masked_softmax", kind="norm")
def masked_softmax(call: Inputs) -> Cost | None:
    """_masked_softmax(x, mask, dim, type): 5 n FLOP."""
    x, mask = call.tensor(0), call.tensor(1)
    return None if x is None else normal(x, SOFTMAX, [*read(x, mask), like(x)])


@model("aten::_masked_softmax_backward", kind="norm")
def masked_softmax_backward(call: Inputs) -> Cost | None:
    """_masked_softmax_backward(grad, out, mask, dim): 4 n FLOP."""
    grad, out, mask = (call.tensor(i) for i in range(3))
    return None if grad is None or out is None else normal(grad, SOFTMAX_BACKWARD, [*read(grad, out, mask), like(grad)], "bwd")


@model("ScaledUpperTriangMaskedSoftmax", "ScaledSoftmax", kind="norm")
def scaled_softmax(call: Inputs) -> Cost | None:
    """ScaledUpperTriangMaskedSoftmax(x, scale): one fused pass over the whole square; 6 n FLOP."""
    x = call.tensor(0)
    return None if x is None else normal(x, SOFTMAX + 1, [x.bytes, like(x)])


@model("ScaledMaskedSoftmax", kind="norm")
def scaled_masked_softmax(call: Inputs) -> Cost | None:
    """ScaledMaskedSoftmax(x, mask, scale): 6 n FLOP."""
    x, mask = call.tensor(0), call.tensor(1)
    return None if x is None else normal(x, SOFTMAX + 1, [*read(x, mask), like(x)])
