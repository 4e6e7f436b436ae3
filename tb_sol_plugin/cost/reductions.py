"""Reductions and scans: every element read once, the result written; one FLOP per input element.

The size of the result follows from the reduced dimensions, which are recorded as texts (`"[-1]"`). Without them it is left out and
the cost marked as a lower bound.
Source: one operation per input element.
Limits: partial results of a reduction in several passes are not counted.
"""

from __future__ import annotations

from math import prod

from tb_sol_plugin.cost.elementwise import pointwise
from tb_sol_plugin.cost.inputs import Inputs, Tensor, broadcast, size_of
from tb_sol_plugin.cost.model import Cost, model, unknown
from tb_sol_plugin.cost.parts import axis, floating, given, read, reduced, vector


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


def _summed(x: Tensor | None, asked: str) -> str:
    """The type of a sum: as asked for, int64 for integers and booleans."""
    return asked or ("int64" if x is not None and x.dtype and not floating(x.dtype) else "")


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
