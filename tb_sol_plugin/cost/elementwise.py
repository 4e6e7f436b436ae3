"""Elementwise operations: one vector FLOP per element of the broadcast result, each operand read and the result written once."""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Tensor, broadcast, size_of, total, wider
from tb_sol_plugin.cost.model import Cost, Direction, model

UNARY: Final = (
    "abs", "acos", "acosh", "alias_copy", "angle", "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil", "celu", "clamp",
    "clamp_max", "clamp_min", "clip", "cos", "cosh", "deg2rad", "digamma", "elu", "erf", "erfc", "erfinv", "exp", "exp2", "expm1",
    "floor", "frac", "gelu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "i0", "isfinite", "isinf", "isnan", "leaky_relu",
    "lgamma", "log", "log10", "log1p", "log2", "log_sigmoid_forward", "logical_not", "logit", "mish", "nan_to_num", "neg", "positive",
    "rad2deg", "reciprocal", "relu", "relu6", "round", "rsqrt", "rsub", "selu", "sgn", "sigmoid", "sign", "signbit", "silu", "sin",
    "sinc", "sinh", "softplus", "softshrink", "sqrt", "square", "tan", "tanh", "threshold", "trunc", "tril", "triu", "flip", "roll",
    "nan_to_num_",
)  # fmt: skip
BINARY: Final = (
    "add", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "copysign", "div", "divide",
    "eq", "floor_divide", "fmax", "fmin", "fmod", "ge", "greater", "greater_equal", "gt", "hypot", "ldexp", "le", "less", "less_equal",
    "logaddexp", "logical_and", "logical_or", "logical_xor", "lt", "maximum", "minimum", "mul", "multiply", "ne", "not_equal", "pow",
    "remainder", "sub", "subtract", "true_divide", "xlogy", "__and__", "__or__", "__xor__", "polar", "complex", "prelu",
)  # fmt: skip
COMPARE: Final = frozenset(
    ("eq", "ge", "greater", "greater_equal", "gt", "le", "less", "less_equal", "lt", "ne", "not_equal", "logical_and", "logical_or",
    "logical_xor", "logical_not", "isfinite", "isinf", "isnan", "signbit")
)  # fmt: skip
MOVES: Final = frozenset(("alias_copy", "tril", "triu", "flip", "roll", "positive"))


def pointwise(
    operands: list[Tensor],
    *,
    out_dtype: str = "",
    per_element: int = 1,
    in_place: bool = False,
    direction: Direction = "fwd",
    extra: list[int | None] | None = None,
) -> Cost | None:
    """The cost of one operation per element of the broadcast result. In place the target is read and written."""
    shape = broadcast(*(t.shape for t in operands)) if operands else None
    if shape is None:
        return None
    # a scalar tensor takes part in arithmetic without widening the type
    dtype = wider(*([t.dtype for t in operands if t.shape] or [t.dtype for t in operands]))
    elements = 1
    for size in shape:
        elements *= size
    written = size_of(operands[0].numel, operands[0].dtype) if in_place else size_of(elements, out_dtype or dtype)
    return Cost(
        flop_vector=per_element * elements, bytes=total(*(t.bytes for t in operands), written, *(extra or ())), dtype=dtype,
        kind="elementwise", direction=direction,
    )  # fmt: skip


def _operands(call: Inputs, count: int) -> list[Tensor]:
    return [t for t in (call.tensor(i) for i in range(count)) if t is not None]


def _register_plain(names: tuple[str, ...], arity: int) -> None:
    for name in dict.fromkeys(n.removesuffix("_") if not n.endswith("__") else n for n in names):
        compare = name in COMPARE
        work = 0 if name in MOVES else 1

        def out_of_place(
            call: Inputs, arity: int = arity, compare: bool = compare, work: int = work, divides: bool = name in ("div", "true_divide")
        ) -> Cost | None:
            operands = _operands(call, arity)
            integers = divides and operands and all(t.dtype.startswith(("int", "uint", "bool")) for t in operands)
            return pointwise(operands, out_dtype="bool" if compare else "fp32" if integers else "", per_element=work)

        def in_place(call: Inputs, arity: int = arity, work: int = work) -> Cost | None:
            return pointwise(_operands(call, arity), in_place=True, per_element=work) if call.tensor(0) is not None else None

        model(f"aten::{name}", f"prims::{name}", kind="elementwise")(out_of_place)
        model(f"aten::{name}_", kind="elementwise")(in_place)


_register_plain(UNARY, 1)
_register_plain(BINARY, 2)
_register_plain(("addcmul", "addcdiv", "lerp"), 3)


@model("aten::where", "prims::where", kind="elementwise")
def where(call: Inputs) -> Cost | None:
    """where(condition, a, b): the result has the type of a and b. The form with one argument is data dependent."""
    condition, *values = (call.tensor(i) for i in range(3))
    chosen = [t for t in values if t is not None]
    if condition is None or not chosen:
        return None
    return pointwise([condition, *chosen], out_dtype=wider(*(t.dtype for t in chosen)))


@model("aten::masked_fill", kind="elementwise")
def masked_fill(call: Inputs) -> Cost | None:
    """masked_fill(x, mask, value)."""
    x, mask = call.tensor(0), call.tensor(1)
    return pointwise([x, mask], out_dtype=x.dtype) if x is not None and mask is not None else None


@model("aten::masked_fill_", kind="elementwise")
def masked_fill_(call: Inputs) -> Cost | None:
    """masked_fill_(x, mask, value): at most one write per element."""
    x, mask = call.tensor(0), call.tensor(1)
    return pointwise([x, mask], in_place=True) if x is not None and mask is not None else None


@model("aten::threshold_backward", "aten::gelu_backward", "aten::silu_backward", "aten::sigmoid_backward", "aten::tanh_backward",
       "aten::leaky_relu_backward", "aten::hardtanh_backward", "aten::hardswish_backward", "aten::hardsigmoid_backward",
       "aten::softplus_backward", "aten::mish_backward", kind="elementwise")  # fmt: skip
def gradient(call: Inputs) -> Cost | None:
    """gelu_backward(grad, x): both read, the gradient written."""
    return pointwise(_operands(call, 2), direction="bwd")


@model("aten::elu_backward", kind="elementwise")
def elu_backward(call: Inputs) -> Cost | None:
    """elu_backward(grad, alpha, scale, input_scale, is_result, x)."""
    operands = [t for t in (call.tensor(0), call.tensor(5)) if t is not None]
    return pointwise(operands, direction="bwd")


@model("aten::mse_loss_backward", "aten::smooth_l1_loss_backward", "aten::huber_loss_backward", "aten::binary_cross_entropy_backward",
       kind="elementwise")  # fmt: skip
def loss_gradient(call: Inputs) -> Cost | None:
    """mse_loss_backward(grad, x, target, reduction)."""
    operands = _operands(call, 3)
    return pointwise(operands, direction="bwd") if len(operands) == 3 else None


@model("aten::native_dropout", "aten::_fused_dropout", kind="elementwise")
def dropout(call: Inputs) -> Cost | None:
    """native_dropout(x, p, train): result and a mask of one byte per element are written."""
    x = call.tensor(0)
    return None if x is None else pointwise([x], per_element=2, extra=[x.numel])


@model("aten::native_dropout_backward", kind="elementwise")
def dropout_backward(call: Inputs) -> Cost | None:
    """native_dropout_backward(grad, mask, scale)."""
    operands = _operands(call, 2)
    return pointwise(operands, out_dtype=operands[0].dtype, direction="bwd") if len(operands) == 2 else None


@model("aten::glu", kind="elementwise")
def glu(call: Inputs) -> Cost | None:
    """glu(x, dim): one half gates the other."""
    x = call.tensor(0)
    if x is None:
        return None
    return Cost(flop_vector=x.numel, bytes=total(x.bytes, size_of(x.numel // 2, x.dtype)), dtype=x.dtype, kind="elementwise")


@model(
    "aten::mse_loss", "aten::l1_loss", "aten::smooth_l1_loss", "aten::huber_loss", "aten::binary_cross_entropy",
    "aten::binary_cross_entropy_with_logits", kind="elementwise", wrapper=True,
)  # fmt: skip
def loss(call: Inputs) -> Cost | None:
    """mse_loss(x, target, ...), where nothing below it was recorded: both read; the result is left out (one number, or one per element)."""
    operands = _operands(call, 2)
    if len(operands) != 2 or operands[0].shape != operands[1].shape:
        return None
    x, target = operands
    return Cost(
        flop_vector=3 * x.numel, bytes=total(x.bytes, target.bytes), dtype=wider(x.dtype, target.dtype), kind="elementwise", estimated=True,
        reason="result left out: a lower bound",
    )  # fmt: skip
