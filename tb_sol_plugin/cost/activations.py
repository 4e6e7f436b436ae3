"""Gradients of activations, gated activations and dropout. One FLOP per element, however complicated the function.

A gradient reads the incoming gradient and what the forward pass saved (its input or its result) and writes one of the same size.
Source: derivatives of the functions as PyTorch computes them, one operation each.
Limits: a transcendental function takes more instructions than one.
"""

from __future__ import annotations

from tb_sol_plugin.cost.elementwise import pointwise
from tb_sol_plugin.cost.inputs import Inputs, size_of
from tb_sol_plugin.cost.model import Cost, model, pattern
from tb_sol_plugin.cost.parts import given, like, read, vector


@model("aten::threshold_backward", "aten::gelu_backward", "aten::silu_backward", "aten::sigmoid_backward", "aten::tanh_backward",
       "aten::leaky_relu_backward", "aten::hardtanh_backward", "aten::hardswish_backward", "aten::hardsigmoid_backward",
       "aten::softplus_backward", "aten::mish_backward", "aten::hardshrink_backward", "aten::softshrink_backward", "aten::logit_backward",
       "aten::rrelu_with_noise_backward", "aten::relu_backward", "aten::infinitely_differentiable_gelu_backward",
       kind="elementwise")  # fmt: skip
def gradient(call: Inputs) -> Cost | None:
    """gelu_backward(grad, x, ...): both read, the gradient written; n FLOP."""
    operands = given(call, 0, 1)
    return pointwise(operands, direction="bwd") if len(operands) == 2 else None


@model("aten::elu_backward", kind="elementwise")
def elu_backward(call: Inputs) -> Cost | None:
    """elu_backward(grad, alpha, scale, input_scale, is_result, x): n FLOP."""
    operands = given(call, 0, 5)
    return pointwise(operands, direction="bwd") if len(operands) == 2 else None


@model("aten::_prelu_kernel_backward", kind="elementwise")
def prelu_backward(call: Inputs) -> Cost | None:
    """_prelu_kernel_backward(grad, x, weight): gradients of x and, elementwise, of the weight are written; 2 n FLOP."""
    operands = given(call, 0, 1, 2)
    return pointwise(operands, per_element=2, direction="bwd", extra=[like(operands[0])]) if len(operands) == 3 else None


@model("aten::log_sigmoid_forward", kind="elementwise")
def log_sigmoid(call: Inputs) -> Cost | None:
    """log_sigmoid_forward(x): the result; the buffer is empty on a GPU and left out."""
    return pointwise(given(call, 0))


@model("aten::log_sigmoid_backward", kind="elementwise")
def log_sigmoid_backward(call: Inputs) -> Cost | None:
    """log_sigmoid_backward(grad, x, buffer): n FLOP."""
    return gradient(call)


@model("aten::rrelu_with_noise", "aten::rrelu_with_noise_", kind="elementwise")
def rrelu(call: Inputs) -> Cost | None:
    """rrelu_with_noise(x, noise, ...): the noise is written, or read when not in training: one pass either way."""
    operands = given(call, 0, 1)
    return pointwise(operands) if len(operands) == 2 else None


@model("aten::glu", kind="elementwise")
def glu(call: Inputs) -> Cost | None:
    """glu(x, dim): one half gates the other: x read, half as much written; 1 FLOP per input element."""
    x = call.tensor(0)
    return None if x is None else vector(x.dtype, x.numel, x.bytes, size_of(x.numel // 2, x.dtype))


@model("aten::glu_backward", kind="elementwise")
def glu_backward(call: Inputs) -> Cost | None:
    """glu_backward(grad, x, dim): gradient (half the size) and x read, a gradient like x written; 1 FLOP per element of x."""
    grad, x = call.tensor(0), call.tensor(1)
    return None if grad is None or x is None else vector(x.dtype, x.numel, grad.bytes, x.bytes, like(x), direction="bwd")


@model("aten::native_dropout", "aten::_fused_dropout", kind="elementwise")
def native_dropout(call: Inputs) -> Cost | None:
    """native_dropout(x, p, train): result and a mask of one byte per element are written; 2 n FLOP."""
    x = call.tensor(0)
    return None if x is None else pointwise([x], per_element=2, extra=[x.numel])


@model("aten::dropout", "aten::feature_dropout", "aten::alpha_dropout", kind="elementwise", wrapper=True)
def dropout(call: Inputs) -> Cost | None:
    """dropout(x, p, train), where no native one was recorded below it. Outside training it does nothing: 0 FLOP and 0 bytes."""
    if call.flag(2) is False:
        return Cost(flop_vector=0, bytes=0, kind="elementwise")
    return native_dropout(call)


@model("aten::native_dropout_backward", "aten::_masked_scale", kind="elementwise")
def dropout_backward(call: Inputs) -> Cost | None:
    """native_dropout_backward(grad, mask, scale): both read, the gradient written; n FLOP."""
    operands = given(call, 0, 1)
    return pointwise(operands, out_dtype=operands[0].dtype, direction="bwd") if len(operands) == 2 else None


@pattern(r"(_C|sgl_kernel|flashinfer|aiter|vllm)::(silu|gelu|gelu_tanh|gelu_quick|fatrelu|swigluoai|mul_and_silu|scaled_silu)(_and_mul)?(_quant|_with_clamp)?",
         kind="elementwise")  # fmt: skip
def gated(call: Inputs) -> Cost | None:
    """silu_and_mul(out[..., d], x[..., 2d]): x read, out written; 1 FLOP per element of x. Scales of a quantised result are read."""
    out, x = call.tensor(0), call.tensor(1)
    if out is None or x is None:
        return None
    return vector(x.dtype, x.numel, *read(out, x, call.tensor(2)))


@model("_C::gelu_new", "_C::gelu_fast", "_C::gelu_quick", kind="elementwise")
def activation(call: Inputs) -> Cost | None:
    """gelu_new(out, x): x read, out written; n FLOP."""
    return gated(call)


@model("LigerSiLUMulFunction", "LigerGELUMulFunction", "SwiGLUFunction", kind="elementwise")
def gate_times_up(call: Inputs) -> Cost | None:
    """LigerSiLUMulFunction(a, b): both read, the product of act(a) and b written; 2 n FLOP."""
    operands = given(call, 0, 1)
    return pointwise(operands, per_element=2) if len(operands) == 2 else None


@model("LigerSiLUMulFunctionBackward", "LigerGELUMulFunctionBackward", "SwiGLUFunctionBackward", kind="elementwise")
def gate_times_up_backward(call: Inputs) -> Cost | None:
    """LigerSiLUMulFunctionBackward(grad): grad, a and b read, two gradients written, all as large as the recorded one; 4 n FLOP."""
    grad = call.tensor(0)
    if grad is None or len(given(call, 0, 1)) != 1:
        return None
    return vector(grad.dtype, 4 * grad.numel, *[grad.bytes] * 5, direction="bwd", reason="saved inputs taken as large as the gradient")
