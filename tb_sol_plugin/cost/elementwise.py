"""Elementwise operations: one vector FLOP per element of the broadcast result, each operand read and the result written once.

A transcendental function counts as one operation. Operands that a stride of 0 expands count with the elements that stand in
memory; in place the target is read and written. Comparisons give booleans, functions of integers FP32.
Source: one operation per result, the convention of roofline literature (Williams et al., 2009).
Limits: a transcendental function takes more instructions than one.
"""

from __future__ import annotations

from math import prod
from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Tensor, broadcast, size_of, total, wider
from tb_sol_plugin.cost.model import Cost, Direction, model
from tb_sol_plugin.cost.parts import floating, given

UNARY: Final = (
    "abs", "absolute", "acos", "acosh", "alias_copy", "angle", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "asin",
    "asinh", "atan", "atanh", "bitwise_not", "ceil", "celu", "clamp_max", "clamp_min", "conj_physical", "cos", "cosh", "deg2rad",
    "digamma", "elu", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "fix", "floor", "frac", "gelu", "hardshrink", "hardsigmoid",
    "hardswish", "hardtanh", "i0", "isfinite", "isinf", "isnan", "isneginf", "isposinf", "leaky_relu", "lgamma", "log", "log10", "log1p",
    "log2", "logical_not", "logit", "mish", "mvlgamma", "nan_to_num", "neg", "negative", "polygamma", "positive", "rad2deg", "reciprocal",
    "relu", "relu6", "round", "rsqrt", "selu", "sgn", "sigmoid", "sign", "signbit", "silu", "sin", "sinc", "sinh", "softplus",
    "softshrink", "special_i0e", "special_i1", "special_log_ndtr", "special_ndtri", "sqrt", "square", "tan", "tanh", "threshold", "trunc",
)  # fmt: skip
BINARY: Final = (
    "add", "arctan2", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "complex",
    "copysign", "div", "divide", "eq", "float_power", "floor_divide", "fmax", "fmin", "fmod", "gcd", "ge", "greater", "greater_equal",
    "gt", "heaviside", "hypot", "igamma", "igammac", "lcm", "ldexp", "le", "less", "less_equal", "logaddexp", "logaddexp2", "logical_and",
    "logical_or", "logical_xor", "lt", "maximum", "minimum", "mul", "multiply", "ne", "nextafter", "not_equal", "polar", "pow", "prelu",
    "_prelu_kernel", "remainder", "rsub", "special_xlog1py", "special_zeta", "sub", "subtract", "true_divide", "xlogy", "__and__",
    "__or__", "__xor__", "__lshift__", "__rshift__", "__iand__", "__ior__", "__ixor__", "isclose",
)  # fmt: skip
TERNARY: Final = ("addcmul", "addcdiv", "clamp", "clip", "lerp")
COMPARE: Final = frozenset(
    ("eq", "ge", "greater", "greater_equal", "gt", "le", "less", "less_equal", "lt", "ne", "not_equal", "logical_and", "logical_or",
    "logical_xor", "logical_not", "isfinite", "isinf", "isnan", "isneginf", "isposinf", "signbit", "isclose")
)  # fmt: skip
TO_FLOAT: Final = frozenset(
    ("acos", "acosh", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "asin", "asinh", "atan", "atanh", "cos", "cosh",
    "deg2rad", "digamma", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "i0", "lgamma", "log", "log10", "log1p", "log2", "logit",
    "rad2deg", "reciprocal", "rsqrt", "sigmoid", "sin", "sinc", "sinh", "sqrt", "tan", "tanh", "div", "divide", "true_divide", "atan2",
    "arctan2", "xlogy")
)  # fmt: skip
"""Functions whose result of integers is FP32."""
MOVES: Final = frozenset(("alias_copy", "positive", "conj_physical"))
"""Names that only copy."""


def pointwise(
    operands: list[Tensor],
    *,
    out_dtype: str = "",
    per_element: int = 1,
    in_place: bool = False,
    direction: Direction = "fwd",
    extra: list[int | None] | None = None,
) -> Cost | None:
    """The cost of `per_element` operations per element of the broadcast result; None where sizes do not broadcast.

    out_dtype: of the result, by default the wider of the operands. in_place: the first operand is read and written. extra: more bytes.
    """
    shape = broadcast(*(t.shape for t in operands)) if operands else None
    if shape is None or (in_place and shape != operands[0].shape and prod(shape) != operands[0].numel):
        return None
    # a scalar tensor takes part in arithmetic without widening the type
    dtype = wider(*([t.dtype for t in operands if t.shape] or [t.dtype for t in operands]))
    elements = prod(shape)
    written = size_of(operands[0].numel, operands[0].dtype) if in_place else size_of(elements, out_dtype or dtype)
    return Cost(
        flop_vector=per_element * elements, bytes=total(*(t.bytes for t in operands), written, *(extra or ())), dtype=dtype,
        kind="elementwise", direction=direction,
    )  # fmt: skip


def _register_plain(names: tuple[str, ...], arity: int) -> None:
    places = tuple(range(arity))
    for name in names:

        def out_of_place(call: Inputs, name: str = name) -> Cost | None:
            """name(x, ...) elementwise over its tensor arguments, which broadcast; numbers among them are free."""
            operands = given(call, *places)
            to_float = name in TO_FLOAT and operands and not any(floating(t.dtype) for t in operands)
            result = "bool" if name in COMPARE else "fp32" if to_float else ""
            return pointwise(operands, out_dtype=result, per_element=0 if name in MOVES else 1)

        def in_place(call: Inputs, name: str = name) -> Cost | None:
            """name_(x, ...) elementwise, written over x."""
            operands = given(call, *places)
            return pointwise(operands, in_place=True, per_element=0 if name in MOVES else 1) if call.tensor(0) is not None else None

        if name.startswith("__i"):
            model(f"aten::{name}", kind="elementwise")(in_place)
            continue
        model(f"aten::{name}", kind="elementwise")(out_of_place)
        if not name.endswith("__"):
            model(f"prims::{name}", kind="elementwise")(out_of_place)
            model(f"aten::{name}_", kind="elementwise")(in_place)


_register_plain(UNARY, 1)
_register_plain(BINARY, 2)
_register_plain(TERNARY, 3)


@model("aten::where", "prims::where", kind="elementwise")
def where(call: Inputs) -> Cost | None:
    """where(condition, a, b): the result has the type of a and b. The form with one argument depends on the data: its input, at least."""
    condition, chosen = call.tensor(0), given(call, 1, 2)
    if condition is None:
        return None
    if not chosen and len(call.slots) == 1:
        return Cost(
            flop_vector=0, bytes=condition.bytes, dtype=condition.dtype, kind="elementwise", estimated=True,
            reason="size of the result depends on the data: left out, a lower bound",
        )  # fmt: skip
    if not chosen:
        return None
    return pointwise([condition, *chosen], out_dtype=wider(*(t.dtype for t in chosen)))


@model("aten::masked_fill", kind="elementwise")
def masked_fill(call: Inputs) -> Cost | None:
    """masked_fill(x, mask, value): x and mask read, the result written."""
    x, mask = call.tensor(0), call.tensor(1)
    return pointwise([x, mask], out_dtype=x.dtype) if x is not None and mask is not None else None


@model("aten::masked_fill_", kind="elementwise")
def masked_fill_(call: Inputs) -> Cost | None:
    """masked_fill_(x, mask, value): x read and written, mask read."""
    x, mask = call.tensor(0), call.tensor(1)
    return pointwise([x, mask], in_place=True) if x is not None and mask is not None else None


@model("aten::frexp", "aten::modf", kind="elementwise")
def two_results(call: Inputs) -> Cost | None:
    """frexp(x): mantissa and an int32 exponent."""
    x = call.tensor(0)
    return pointwise([x], extra=[4 * x.numel]) if x is not None else None


@model("aten::_amp_update_scale_", kind="elementwise")
def amp_update_scale(call: Inputs) -> Cost | None:
    """_amp_update_scale_(scale, growth_tracker, found_inf, ...): three numbers, two of them written back."""
    operands = given(call, 0, 1, 2)
    return pointwise(operands, in_place=True, extra=[4]) if len(operands) == 3 else None
