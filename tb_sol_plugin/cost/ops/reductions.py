"""Reductions and scans: every element read once, the result written; one FLOP per input element.

The size of the result follows from the reduced dimensions, which are recorded as texts (`"[-1]"`). Without them it is left out and
the cost marked as a lower bound.
Source: one operation per input element.
Limits: partial results of a reduction in several passes are not counted.

Softmax: 5 FLOP per element forward (maximum, subtract, exponent, add up, divide), 4 backward; scores read and written once.

Source: one operation per step of the numerically safe softmax; other tools count 3 per element.
Limits: a kernel that reads its scores twice moves more than this.

Losses. A loss with reduction writes one number, without one as many as it has elements; a gradient is as large as the input.

FLOP per element: 3 for losses of a difference (subtract, square or abs, add up), 4 for those with logarithms.
Source: the definitions of the losses in PyTorch's documentation.
Limits: targets that are ignored count like the others.
"""

from __future__ import annotations

from math import prod
from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Tensor, broadcast, size_of, wider
from tb_sol_plugin.cost.model import Cost, Direction, model, unknown
from tb_sol_plugin.cost.ops.norm import SOFTMAX, SOFTMAX_BACKWARD, normal
from tb_sol_plugin.cost.ops.pointwise import axis, count, floating, given, like, moved, pointwise, read, reduced, vector


def _reduce(
    call: Inputs, dims: tuple[int, ...] | None, *, whole: bool = False, out_dtype: str = "", indices: bool = False, results: int = 1
) -> Cost | None:
    """x reduced over dims. whole: this form of the call reduces everything. indices: an int64 place comes with each result."""
    x = call.tensor(0)
    if x is None:
        return None
    out = reduced(x, None if whole else dims)
    if out is None:
        return unknown("sizes contradict: a reduced dimension is not one of the input's")
    known = whole or call.has_values
    written = [size_of(results * out, out_dtype or x.dtype), 8 * out if indices else 0] if known else []
    reason = "" if known else "reduced dimensions not recorded: result left out, a lower bound"
    return vector(x.dtype, x.numel, x.bytes, *written, reason=reason)


def _summed(x: Tensor | None, dtype: str) -> str:
    """The type of a sum: as requested, int64 for integers and booleans."""
    return dtype or ("int64" if x is not None and x.dtype and not floating(x.dtype) else "")


@model("aten::sum", "aten::mean", kind="elementwise")
def sum_or_mean(call: Inputs) -> Cost | None:
    """sum(x, dtype) or sum(x, dim, keepdim, dtype)."""
    whole = len(call.slots) < 3
    return _reduce(call, call.ints(1), whole=whole, out_dtype=_summed(call.tensor(0), call.dtype(1 if whole else 3)))


@model("aten::nansum", "aten::nanmean", kind="elementwise")
def nansum(call: Inputs) -> Cost | None:
    """nansum(x, dim, keepdim, dtype)."""
    return _reduce(call, call.ints(1), out_dtype=_summed(call.tensor(0), call.dtype(3)))


@model("prims::sum", "prims::prod", "prims::amax", "prims::amin", kind="elementwise")
def prims_reduce(call: Inputs) -> Cost | None:
    """prims::sum(x, dims)."""
    return _reduce(call, call.ints(1))


@model("aten::prod", kind="elementwise")
def product(call: Inputs) -> Cost | None:
    """prod(x, dtype) or prod(x, dim, keepdim, dtype)."""
    whole = len(call.slots) < 3
    return _reduce(call, call.ints(1), whole=whole, out_dtype=_summed(call.tensor(0), call.dtype(1 if whole else 3)))


@model("aten::amax", "aten::amin", "aten::logsumexp", kind="elementwise")
def reduce_dims(call: Inputs) -> Cost | None:
    """amax(x, dim, keepdim): all dimensions where the list is empty."""
    return _reduce(call, call.ints(1))


@model("aten::aminmax", "aten::_aminmax", kind="elementwise")
def aminmax(call: Inputs) -> Cost | None:
    """aminmax(x, dim, keepdim): two results."""
    return _reduce(call, call.ints(1), results=2)


@model("aten::all", "aten::any", kind="elementwise")
def all_or_any(call: Inputs) -> Cost | None:
    """all(x) or all(x, dim, keepdim): booleans."""
    return _reduce(call, call.ints(1), whole=len(call.slots) < 3, out_dtype="bool")


@model("aten::count_nonzero", kind="elementwise")
def count_nonzero(call: Inputs) -> Cost | None:
    """count_nonzero(x, dim): int64."""
    return _reduce(call, call.ints(1), out_dtype="int64")


@model("aten::var", "aten::std", kind="elementwise")
def variance(call: Inputs) -> Cost | None:
    """var(x, unbiased) or var(x, dim, correction, keepdim)."""
    return _reduce(call, call.ints(1), whole=len(call.slots) < 3)


@model("aten::var_mean", "aten::std_mean", kind="elementwise")
def variance_and_mean(call: Inputs) -> Cost | None:
    """var_mean(x, dim, correction, keepdim): two results."""
    return _reduce(call, call.ints(1), whole=len(call.slots) < 3, results=2)


@model("aten::argmax", "aten::argmin", kind="elementwise")
def arg_reduce(call: Inputs) -> Cost | None:
    """argmax(x, dim, keepdim): int64; over everything where dim is None."""
    return _reduce(call, call.ints(1), out_dtype="int64")


@model("aten::max", "aten::min", kind="elementwise")
def max_or_min(call: Inputs) -> Cost | None:
    """max(x), max(x, dim, keepdim) with indices, or max(x, other) elementwise."""
    if call.tensor(1) is not None:
        return pointwise(given(call, 0, 1))
    whole = len(call.slots) < 2
    return _reduce(call, call.ints(1), whole=whole, indices=not whole)


@model("aten::median", "aten::nanmedian", "aten::mode", kind="elementwise")
def median(call: Inputs) -> Cost | None:
    """median(x), or median(x, dim, keepdim) with indices: one pass over the data, a lower bound."""
    whole = len(call.slots) < 2
    return _reduce(call, call.ints(1) or (-1,), whole=whole, indices=not whole)


@model("aten::kthvalue", kind="elementwise")
def kthvalue(call: Inputs) -> Cost | None:
    """kthvalue(x, k, dim, keepdim) with indices: one pass over the data, a lower bound."""
    return _reduce(call, call.ints(2) or (-1,), indices=True)


@model("aten::linalg_vector_norm", kind="elementwise")
def vector_norm(call: Inputs) -> Cost | None:
    """linalg_vector_norm(x, order, dim, keepdim, dtype)."""
    return _reduce(call, call.ints(2), out_dtype=call.dtype(4))


@model("aten::linalg_norm", kind="elementwise", wrapper=True)
def linalg_norm(call: Inputs) -> Cost | None:
    """linalg_norm(x, order, dim, keepdim, dtype), where no vector norm was recorded below it."""
    return vector_norm(call)


@model("aten::norm", kind="elementwise")
def norm(call: Inputs) -> Cost | None:
    """norm(x, p[, dtype]) or norm(x, p, dim, keepdim[, dtype])."""
    whole = len(call.slots) < 4
    return _reduce(call, call.ints(2), whole=whole, out_dtype=call.dtype(2 if whole else 4))


@model("aten::frobenius_norm", kind="elementwise", wrapper=True)
def frobenius_norm(call: Inputs) -> Cost | None:
    """frobenius_norm(x, dim, keepdim)."""
    return _reduce(call, call.ints(1))


@model("aten::native_norm", kind="elementwise")
def native_norm(call: Inputs) -> Cost | None:
    """native_norm(x, p): one number."""
    return _reduce(call, None, whole=True)


@model("aten::equal", "aten::allclose", "aten::dist", kind="elementwise")
def compare_all(call: Inputs) -> Cost | None:
    """equal(x, y): both read, one answer."""
    operands = given(call, 0, 1)
    shape = broadcast(*(t.shape for t in operands)) if len(operands) == 2 else None
    return None if shape is None else vector(operands[0].dtype, prod(shape), *read(*operands))


@model("aten::trace", kind="elementwise")
def trace(call: Inputs) -> Cost | None:
    """trace(x[M, N]): its diagonal read."""
    x = call.tensor(0)
    if x is None or len(x.shape) != 2:
        return None
    return vector(x.dtype, min(x.shape), size_of(min(x.shape) + 1, x.dtype))


def _scan(x: Tensor | None, dim: object, out_dtype: str = "", *, indices: bool = False) -> Cost | None:
    """As many results as inputs, in the type of x unless another is given; a dimension that is recorded must be one of x's."""
    if x is None or (dim is not None and axis(x, dim) is None):
        return None
    return vector(x.dtype, x.numel, x.bytes, size_of(x.numel, out_dtype or x.dtype), 8 * x.numel if indices else 0)


@model("aten::cumsum", "aten::cumprod", kind="elementwise")
def cumulative(call: Inputs) -> Cost | None:
    """cumsum(x, dim, dtype): as many results as inputs; int64 for integers."""
    return _scan(call.tensor(0), call.value(1), _summed(call.tensor(0), call.dtype(2)))


@model("aten::cumsum_", "aten::cumprod_", kind="elementwise")
def cumulative_(call: Inputs) -> Cost | None:
    """cumsum_(x, dim): in place."""
    return _scan(call.tensor(0), call.value(1))


@model("aten::logcumsumexp", "aten::_logcumsumexp", kind="elementwise")
def log_cumulative(call: Inputs) -> Cost | None:
    """logcumsumexp(x, dim)."""
    return _scan(call.tensor(0), call.value(1))


@model("aten::cummax", "aten::cummin", kind="elementwise")
def cumulative_extreme(call: Inputs) -> Cost | None:
    """cummax(x, dim): values and int64 places."""
    return _scan(call.tensor(0), call.value(1), indices=True)


# -- Softmax ---------------------------------------------------------------------------------------------------------


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


# -- losses ----------------------------------------------------------------------------------------------------------


NO_REDUCTION: Final = "reduction not recorded: one number assumed as result"


def _loss(call: Inputs, reduction_at: int, *, per_element: int, also: tuple[int, ...] = ()) -> Cost | None:
    """(x, target, ...): both and the optional weights read; the reduction is 0 none, 1 mean, 2 sum."""
    x, target = call.tensor(0), call.tensor(1)
    shape = broadcast(x.shape, target.shape) if x is not None and target is not None else None
    if x is None or target is None or shape is None:
        return None
    whole = Tensor(shape, wider(x.dtype, target.dtype))
    reduction = count(call, reduction_at)
    out = whole.numel if reduction == 0 else 1
    return vector(
        whole.dtype, per_element * whole.numel, *read(x, target, *given(call, *also)), size_of(out, whole.dtype),
        reason="" if reduction is not None else NO_REDUCTION,
    )  # fmt: skip


@model("aten::mse_loss", "aten::l1_loss", "aten::soft_margin_loss", kind="elementwise")
def difference(call: Inputs) -> Cost | None:
    """mse_loss(x, target, reduction): 3 n FLOP; x and target read, the result written. What it calls below belongs to it."""
    return _loss(call, 2, per_element=3)


@model("aten::smooth_l1_loss", "aten::huber_loss", kind="elementwise")
def smooth(call: Inputs) -> Cost | None:
    """smooth_l1_loss(x, target, reduction, beta): 3 n FLOP."""
    return _loss(call, 2, per_element=3)


@model("aten::binary_cross_entropy", kind="elementwise")
def binary_cross_entropy(call: Inputs) -> Cost | None:
    """binary_cross_entropy(x, target, weight, reduction): 4 n FLOP."""
    return _loss(call, 3, per_element=4, also=(2,))


@model("aten::binary_cross_entropy_with_logits", kind="elementwise")
def with_logits(call: Inputs) -> Cost | None:
    """binary_cross_entropy_with_logits(x, target, weight, pos_weight, reduction): 4 n FLOP; several kernels, one pass counted."""
    return _loss(call, 4, per_element=4, also=(2, 3))


@model("aten::kl_div", kind="elementwise")
def kl_div(call: Inputs) -> Cost | None:
    """kl_div(x, target, reduction, log_target): 4 n FLOP."""
    return _loss(call, 2, per_element=4)


@model("aten::mse_loss_backward", "aten::l1_loss_backward", "aten::smooth_l1_loss_backward", "aten::huber_loss_backward",
       "aten::binary_cross_entropy_backward", "aten::soft_margin_loss_backward", "aten::kl_div_backward", kind="elementwise")  # fmt: skip
def loss_gradient(call: Inputs) -> Cost | None:
    """mse_loss_backward(grad, x, target, reduction): x and target read, a gradient like x written; n FLOP."""
    operands = given(call, 0, 1, 2)
    return pointwise(operands, direction="bwd") if len(operands) == 3 else None


@model("aten::cross_entropy_loss", kind="norm", wrapper=True)
def cross_entropy(call: Inputs) -> Cost | None:
    """cross_entropy_loss(logits[B, V, ...], target, ...), where neither softmax nor loss was recorded below it: 5 B V FLOP.

    Logits and targets read, the loss written; the log-probabilities in between could stay on the chip.
    """
    logits, target = call.tensor(0), call.tensor(1)
    if logits is None or target is None or not logits.shape:
        return None
    out = target.numel if count(call, 3) == 0 else 1
    return vector(logits.dtype, SOFTMAX * logits.numel, *read(logits, target, call.tensor(2)), size_of(out, logits.dtype), kind="norm")


def _nll(call: Inputs, direction: Direction = "fwd") -> Cost | None:
    scores, target = call.tensor(0), call.tensor(1)
    if scores is None or target is None:
        return None
    out = target.numel if count(call, 3) == 0 else 1
    return moved(
        scores.dtype, size_of(target.numel, scores.dtype), *read(target, call.tensor(2)), size_of(out, scores.dtype), flop=target.numel,
        direction=direction,
    )  # fmt: skip


@model("aten::nll_loss_forward", "aten::nll_loss2d_forward", kind="other")
def nll_loss_forward(call: Inputs) -> Cost | None:
    """nll_loss_forward(scores[B, V], target[B], weight, reduction, ignore): one score per target read, the loss written."""
    return _nll(call)


@model("aten::nll_loss", "aten::nll_loss2d", "aten::nll_loss_nd", kind="other", wrapper=True)
def nll_loss(call: Inputs) -> Cost | None:
    """nll_loss(scores, target, weight, reduction, ignore), where no forward was recorded below it."""
    return _nll(call)


@model("aten::nll_loss_backward", "aten::nll_loss2d_backward", kind="other")
def nll_loss_backward(call: Inputs) -> Cost | None:
    """nll_loss_backward(grad, scores, target, ...): the gradient is zeroed, then one element per target written."""
    scores, target = call.tensor(1), call.tensor(2)
    if scores is None or target is None:
        return None
    return moved(scores.dtype, like(scores), size_of(target.numel, scores.dtype), target.bytes, direction="bwd")


@model("LigerCrossEntropyFunction", "CrossEntropyFunction", kind="norm")
def liger_cross_entropy(call: Inputs) -> Cost | None:
    """LigerCrossEntropyFunction(logits[..., V], target, ...): the gradient is written over the logits in the forward pass; 7 B V FLOP."""
    logits, target = call.tensor(0), call.tensor(1)
    if logits is None or target is None or len(logits.shape) < 2:
        return None
    return vector(logits.dtype, 7 * logits.numel, *read(logits, target), like(logits), kind="norm")
