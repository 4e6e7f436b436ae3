"""Elementwise operations: one vector FLOP per element of the broadcast result, each operand read and the result written once.

A transcendental function counts as one operation. Operands that a stride of 0 expands count with the elements that stand in
memory; in place the target is read and written. Comparisons give booleans, functions of integers FP32.
Source: one operation per result, the convention of roofline literature (Williams et al., 2009).
Limits: a transcendental function takes more instructions than one.

Gradients of activations, gated activations and dropout. One FLOP per element, however complicated the function.

A gradient reads the incoming gradient and what the forward pass saved (its input or its result) and writes one of the same size.
Source: derivatives of the functions as PyTorch computes them, one operation each.
Limits: a transcendental function takes more instructions than one.

Operations over lists of tensors: concatenation and foreach operations.

A recorder writes the sizes of a list but not its element type. It is given as a hint from elsewhere, and then marked as such.
Source: native_functions.yaml of PyTorch for the positions.
Limits: without a hint a list has no bytes.

What the vector models share: a cost from its traffic, and sizes of results.

Fused optimizers over lists of parameters, gradients and state. Every array is read once, those that change written once.

FLOP per parameter: SGD 2, with momentum 4; Adagrad 6; Adam and AdamW 12 (moments 6, bias correction and step 6). With FP32 state,
Adam moves 28 bytes per parameter. Lists carry no element type: it is read from the name of the kernel, one type for all lists.
Source: the update rules: Kingma and Ba, Adam (2014); Loshchilov and Hutter, AdamW (2017); Duchi et al., Adagrad (2011).
Limits: a master copy in another type counts in the one type of the lists.
"""

from __future__ import annotations

from math import prod
from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Tensor, broadcast, size_of, total, wider
from tb_sol_plugin.cost.model import Cost, Direction, Kind, model, pattern, unknown

# -- what the vector models share ------------------------------------------------------------------------------------


def vector(
    dtype: str, flop: int | None, *traffic: int | None, kind: Kind = "elementwise", direction: Direction = "fwd", reason: str = ""
) -> Cost:
    """Vector work: `flop` operations and the sum of `traffic` in bytes (None if any part is). A reason marks it as estimated.

    Recorded values that give a part a negative size, or one that no memory holds, contradict the call: then nothing is known.
    """
    if any(part is not None and not 0 <= part < 2**63 for part in (flop, *traffic)):
        return unknown("recorded values contradict each other: a size that cannot be")
    return Cost(
        flop_vector=flop, bytes=total(*traffic), dtype="" if dtype.startswith("opaque") else dtype, kind=kind, direction=direction,
        estimated=bool(reason), reason=reason,
    )  # fmt: skip


def moved(dtype: str, *traffic: int | None, flop: int = 0, direction: Direction = "fwd", reason: str = "") -> Cost:
    """Data movement: bytes, and no FLOP unless elements are added up on the way."""
    return vector(dtype, flop, *traffic, kind="other", direction=direction, reason=reason)


def read(*tensors: Tensor | None) -> list[int | None]:
    """Bytes of each tensor that is there, each element in memory once."""
    return [t.bytes for t in tensors if t is not None]


def like(x: Tensor, dtype: str = "") -> int | None:
    """Bytes of a full result as large as x, in the type of x unless another is given."""
    return size_of(x.numel, dtype or x.dtype)


def wide(x: Tensor, elements: int) -> int | None:
    """Bytes of statistics, which are kept in FP32 at least."""
    return size_of(elements, "fp64" if x.dtype == "fp64" else "fp32")


def given(call: Inputs, *at: int) -> list[Tensor]:
    """The tensors at these positions that are there."""
    return [t for t in (call.tensor(i) for i in at) if t is not None]


def count(call: Inputs, at: int) -> int | None:
    """A recorded whole number of at least 0; None where there is none (a boolean is none)."""
    value = call.value(at)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def floating(dtype: str) -> bool:
    """Whether an element type is a real or complex float; unknown types count as such."""
    return not dtype.startswith(("int", "uint", "bool"))


def axis(x: Tensor, dim: object) -> int | None:
    """A dimension as a place from 0, None if it is not one of x. A scalar has one dimension."""
    rank = max(len(x.shape), 1)
    return dim % rank if isinstance(dim, int) and not isinstance(dim, bool) and -rank <= dim < rank else None


def reduced(x: Tensor, dims: tuple[int, ...] | None) -> int | None:
    """Elements left after a reduction over dims; all dims where they are None or empty; None where they are none of x's."""
    if not dims:
        return 1
    gone = [axis(x, d) for d in dims]
    if None in gone:
        return None
    return prod(size for at, size in enumerate(x.shape) if at not in gone)


def repeated(values: tuple[int, ...] | None, dims: int) -> tuple[int, ...] | None:
    """One number per dimension: a single one stands for all; None if the count does not fit."""
    if values is None:
        return None
    full = values * dims if len(values) == 1 else values
    return full if len(full) == dims else None


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


# -- activations -----------------------------------------------------------------------------------------------------


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
    """silu_and_mul(out[..., d], x[..., 2d]): x read, out written; 1 FLOP per element of x. Scales of a quantized result are read."""
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


# -- operations over lists of tensors --------------------------------------------------------------------------------


FROM_KERNEL: Final = "element type of the list not recorded: read from the name of its kernel"
ONE_TYPE: Final = "types of the lists assumed equal"
TYPE_OF_RESULT: Final = "element type of the list not recorded: that of the result assumed"


def reason(call: Inputs) -> str:
    """Why a cost over lists is estimated, "" where no hint was used."""
    return FROM_KERNEL if call.hint else ""


def written(tensors: tuple[Tensor, ...]) -> list[int | None]:
    """Bytes of every element of every tensor."""
    return [size_of(t.numel, t.dtype) for t in tensors]


def lists(call: Inputs) -> list[tuple[Tensor, ...]]:
    """The tensor lists among the arguments, in order."""
    return [call.tensors(at) for at in range(len(call.slots)) if call.tensors(at)]


@model("aten::cat", "aten::_cat", "aten::concat", "aten::concatenate", kind="other")
def cat(call: Inputs) -> Cost | None:
    """cat(tensors, dim): everything read and written once."""
    parts = call.tensors(0)
    return moved(parts[0].dtype, *(p.bytes for p in parts), *written(parts), reason=reason(call)) if parts else None


@model("aten::stack", "aten::hstack", "aten::vstack", "aten::dstack", "aten::column_stack", kind="other", wrapper=True)
def stack(call: Inputs) -> Cost | None:
    """stack(tensors, dim), where no cat was recorded below it."""
    return cat(call)


@model("aten::flatten_dense_tensors", "aten::_flatten_dense_tensors", kind="other", wrapper=True)
def flatten(call: Inputs) -> Cost | None:
    """flatten_dense_tensors(tensors): a cat of all of them."""
    return cat(call)


@model("aten::_chunk_cat", "fsdp::chunk_cat", kind="other")
def chunk_cat(call: Inputs) -> Cost | None:
    """_chunk_cat(tensors, dim, chunks[, out]): parts read, result written; padding is left out where `out` is not recorded."""
    parts, out = call.tensors(0), call.tensor(3)
    if not parts:
        return None
    target = [size_of(out.numel, out.dtype)] if out is not None else written(parts)
    if out is not None and not parts[0].dtype:
        return moved(out.dtype, size_of(sum(p.numel for p in parts), out.dtype), *target, reason=TYPE_OF_RESULT)
    return moved(parts[0].dtype, *(p.bytes for p in parts), *target, reason=reason(call))


@model("aten::split_with_sizes_copy", "fsdp::split_with_sizes_copy", "aten::unbind_copy", "aten::split_copy", kind="other")
def split_copy(call: Inputs) -> Cost | None:
    """split_with_sizes_copy(x, sizes, dim, ...): x read, its parts written."""
    x = call.tensor(0)
    return None if x is None else moved(x.dtype, x.bytes, size_of(x.numel, x.dtype))


@model("fsdp::all_gather_copy_in", kind="other")
def all_gather_copy_in(call: Inputs) -> Cost | None:
    """all_gather_copy_in(shards, output, ...): the shards of this rank copied to their place in the output of the gather."""
    parts, out = call.tensors(0), call.tensor(1)
    if not parts:
        return None
    if out is not None and out.dtype:
        size = size_of(sum(p.numel for p in parts), out.dtype)
        return moved(out.dtype, size, size, reason=TYPE_OF_RESULT)
    return moved(parts[0].dtype, *(p.bytes for p in parts), *written(parts), reason=reason(call))


@model("aten::pad_sequence", kind="other", wrapper=True)
def pad_sequence(call: Inputs) -> Cost | None:
    """pad_sequence(tensors, ...): sequences read, a rectangle of the longest written."""
    parts = call.tensors(0)
    if not parts or not parts[0].shape:
        return None
    row = prod(parts[0].shape[1:])
    out = len(parts) * max(p.shape[0] if p.shape else 0 for p in parts) * row
    return moved(parts[0].dtype, *(p.bytes for p in parts), size_of(out, parts[0].dtype), reason=reason(call))



@pattern(r"aten::_foreach_\w+", kind="elementwise")
def foreach(call: Inputs) -> Cost | None:
    """_foreach_add_(targets, others, ...): every list read; the first one written in place, or as many new elements.

    One FLOP per element and further list, one for a single list. `_foreach_norm` writes one number per tensor, `_foreach_copy_` does
    not read its target, `_foreach_zero_` reads nothing. Numbers that are added count no bytes.
    """
    return _foreach(call, in_place=True)


def _foreach(call: Inputs, *, in_place: bool) -> Cost | None:
    found = lists(call)
    if not found:
        return None
    elements = sum(t.numel for t in found[0])
    traffic = [t.bytes for tensors in found for t in tensors] + (written(found[0]) if in_place else [])
    return vector(found[0][0].dtype, elements * max(len(found) - 1, 1), *traffic, reason=reason(call))


@model("aten::_foreach_norm", kind="elementwise")
def foreach_norm(call: Inputs) -> Cost | None:
    """_foreach_norm(tensors, order): one FLOP per element, one number per tensor written."""
    found = call.tensors(0)
    cost = _foreach(call, in_place=False)
    if cost is None or cost.bytes is None or not found:
        return cost
    return vector(found[0].dtype, cost.flop_vector, cost.bytes, size_of(len(found), found[0].dtype), reason=reason(call))


@model("aten::_foreach_max", kind="elementwise")
def foreach_max(call: Inputs) -> Cost | None:
    """_foreach_max(tensors): one number per tensor, left out."""
    return _foreach(call, in_place=False)


@model("aten::_foreach_zero_", kind="other")
def foreach_zero(call: Inputs) -> Cost | None:
    """_foreach_zero_(tensors): written once."""
    parts = call.tensors(0)
    return moved(parts[0].dtype, *written(parts), reason=reason(call)) if parts else None


@model("aten::_foreach_copy_", kind="other")
def foreach_copy(call: Inputs) -> Cost | None:
    """_foreach_copy_(targets, sources): sources read, targets written; list types may differ, the hint is taken for both."""
    targets, sources = call.tensors(0), call.tensors(1)
    if not targets or not sources:
        return None
    return moved(targets[0].dtype, *(s.bytes for s in sources), *written(targets), reason=reason(call) or ONE_TYPE)


@model("aten::_amp_foreach_non_finite_check_and_unscale_", kind="elementwise")
def unscale(call: Inputs) -> Cost | None:
    """_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, inverse_scale): gradients read and written; 2 FLOP per element."""
    parts = call.tensors(0)
    if not parts:
        return None
    flop = 2 * sum(t.numel for t in parts)
    return vector(parts[0].dtype, flop, total(*(t.bytes for t in parts)), *written(parts), reason=reason(call))


# -- fused optimizers ------------------------------------------------------------------------------------------------


ADAM: Final = 12
SGD: Final = 2
SGD_MOMENTUM: Final = 4
ADAGRAD: Final = 6


def _optimizer(call: Inputs, read: tuple[int, ...], changed: tuple[int, ...], per_parameter: int) -> Cost | None:
    parameters = call.tensors(0)
    if not parameters:
        return None
    traffic = [t.bytes for at in read for t in call.tensors(at)] + [b for at in changed for b in written(call.tensors(at))]
    return vector(parameters[0].dtype, per_parameter * sum(t.numel for t in parameters), *traffic, reason=reason(call))


@model("aten::_fused_adam_", "aten::_fused_adamw_", kind="elementwise")
def fused_adam(call: Inputs) -> Cost | None:
    """_fused_adam_(parameters, gradients, m, v, max_v, steps, ...): 7 arrays in all, 9 with max_v; 12 FLOP per parameter."""
    return _optimizer(call, (0, 1, 2, 3, 4), (0, 2, 3, 4), ADAM)


@model("aten::_fused_sgd_", kind="elementwise")
def fused_sgd(call: Inputs) -> Cost | None:
    """_fused_sgd_(parameters, gradients, momentum, ...): 3 arrays and 2 FLOP per parameter, 5 and 4 with momentum."""
    return _optimizer(call, (0, 1, 2), (0, 2), SGD_MOMENTUM if call.tensors(2) else SGD)


@model("aten::_fused_adagrad_", kind="elementwise")
def fused_adagrad(call: Inputs) -> Cost | None:
    """_fused_adagrad_(parameters, gradients, sums, steps, ...): 5 arrays; 6 FLOP per parameter."""
    return _optimizer(call, (0, 1, 2), (0, 2), ADAGRAD)


MULTI_TENSOR: Final = "arrays of a multi-tensor kernel in the order of apex; one element type for all"


@pattern(r"(\w+::)?multi_tensor_(fused_)?adam\w*", kind="elementwise")
def multi_tensor_adam(call: Inputs) -> Cost | None:
    """multi_tensor_adam(chunk, flag, [gradients, parameters, m, v[, copies]], ...) as apex and Transformer Engine name it.

    Needs the four lists: gradients read, the others read and written, a fifth one (low-precision copies) written; 12 FLOP each.
    """
    found = lists(call)
    if len(found) not in (4, 5) or len({sum(t.numel for t in tensors) for tensors in found}) != 1:
        return None
    traffic = [t.bytes for tensors in found[:4] for t in tensors] + [b for tensors in found[1:] for b in written(tensors)]
    return vector(found[0][0].dtype, ADAM * sum(t.numel for t in found[0]), *traffic, reason=MULTI_TENSOR)


@pattern(r"(\w+::)?multi_tensor_(scale|axpby|l2norm)\w*", kind="elementwise")
def multi_tensor(call: Inputs) -> Cost | None:
    """multi_tensor_scale(chunk, flag, [in, out], scale): all but the last list read and the last written; `l2norm` only reads."""
    found = lists(call)
    if not found:
        return None
    reads = found if len(found) == 1 else found[:-1]
    traffic = [t.bytes for tensors in reads for t in tensors] + ([] if len(found) == 1 else written(found[-1]))
    return vector(found[0][0].dtype, 2 * sum(t.numel for t in found[0]), *traffic, reason=MULTI_TENSOR)
