"""Operations that move data: no FLOP, each element read and written once; and reductions, which read all and write few.

Copies between host and device are bound by the link, not by device memory: whoever knows the direction decides that.
"""

from __future__ import annotations

from math import prod

from tb_sol_plugin.cost.conv import out_spatial
from tb_sol_plugin.cost.inputs import Inputs, Tensor, broadcast, size_of, total
from tb_sol_plugin.cost.model import Cost, Direction, model


def _moved(*traffic: int | None, dtype: str, flop: int = 0, direction: Direction = "fwd", reason: str = "") -> Cost:
    return Cost(
        flop_vector=flop, bytes=total(*traffic), dtype=dtype, kind="other", direction=direction, estimated=bool(reason), reason=reason
    )


@model("aten::copy_", "aten::_copy_from", kind="other")
def copy_(call: Inputs) -> Cost | None:
    """copy_(target, source): the unique elements of the source read, the target written."""
    target, source = call.tensor(0), call.tensor(1)
    if target is None or source is None:
        return None
    return _moved(source.bytes, size_of(target.numel, target.dtype), dtype=target.dtype)


@model("aten::clone", "aten::contiguous", kind="other", wrapper=True)
def clone(call: Inputs) -> Cost | None:
    """clone(x), where no copy was recorded below it."""
    x = call.tensor(0)
    return None if x is None else _moved(x.bytes, size_of(x.numel, x.dtype), dtype=x.dtype)


@model("aten::fill_", "aten::zero_", kind="other")
def fill(call: Inputs) -> Cost | None:
    """fill_(x, value): written once."""
    x = call.tensor(0)
    return None if x is None else _moved(size_of(x.numel, x.dtype), dtype=x.dtype)


@model("aten::normal_", "aten::uniform_", "aten::random_", "aten::bernoulli_", "aten::exponential_", kind="other")
def random(call: Inputs) -> Cost | None:
    """uniform_(x, from, to): written once."""
    return fill(call)


@model("aten::constant_pad_nd", kind="other")
def pad(call: Inputs) -> Cost | None:
    """constant_pad_nd(x, pad, value): x read, the padded result written."""
    x, sides = call.tensor(0), call.ints(1)
    if x is None or sides is None or len(sides) % 2 or len(sides) // 2 > len(x.shape):
        return None
    shape = list(x.shape)
    for at in range(len(sides) // 2):
        shape[-1 - at] += sides[2 * at] + sides[2 * at + 1]
    return _moved(x.bytes, size_of(max(prod(shape), 0), x.dtype), dtype=x.dtype)


@model("aten::embedding", kind="other")
def embedding(call: Inputs) -> Cost | None:
    """embedding(table[V, D], indices): one row read and written per index, not the whole table."""
    table, indices = call.tensor(0), call.tensor(1)
    if table is None or indices is None or len(table.shape) != 2:
        return None
    rows = size_of(indices.numel * table.shape[1], table.dtype)
    return _moved(rows, rows, indices.bytes, dtype=table.dtype)


@model("aten::embedding_dense_backward", kind="other")
def embedding_backward(call: Inputs) -> Cost | None:
    """embedding_dense_backward(grad, indices, rows, padding, scale): the whole table is zeroed, touched rows are read and written."""
    grad, indices, rows = call.tensor(0), call.tensor(1), call.value(2)
    if grad is None or indices is None or not isinstance(rows, int) or not grad.shape:
        return None
    whole = size_of(rows * grad.shape[-1], grad.dtype)
    return _moved(grad.bytes, indices.bytes, whole, grad.bytes, dtype=grad.dtype, flop=grad.numel, direction="bwd")


@model("aten::index_select", kind="other")
def index_select(call: Inputs) -> Cost | None:
    """index_select(x, dim, index): the chosen slices read and written. Without the dim, the first one is taken."""
    x, index = call.tensor(0), call.tensor(2)
    if x is None or index is None or not x.shape:
        return None
    dim = call.value(1)
    known = isinstance(dim, int) and -len(x.shape) <= dim < len(x.shape)
    along = x.shape[dim] if isinstance(dim, int) and known else x.shape[0]
    chosen = size_of(x.numel // along * index.numel if along else 0, x.dtype)
    reason = "" if known or len(x.shape) == 1 else "dimension not recorded: the first assumed"
    return _moved(chosen, chosen, index.bytes, dtype=x.dtype, reason=reason)


@model("aten::gather", kind="other")
def gather(call: Inputs) -> Cost | None:
    """gather(x, dim, index): one element read and written per index."""
    x, index = call.tensor(0), call.tensor(2)
    if x is None or index is None:
        return None
    chosen = size_of(index.numel, x.dtype)
    return _moved(chosen, chosen, index.bytes, dtype=x.dtype)


@model("aten::scatter_add_", "aten::scatter_add", "aten::index_add_", kind="other")
def scatter_add(call: Inputs) -> Cost | None:
    """scatter_add_(x, dim, index, source): source and index read, touched elements read and written; the copy form copies x first."""
    x, index, source = call.tensor(0), call.tensor(2), call.tensor(3)
    if x is None or index is None or source is None:
        return None
    return _moved(source.bytes, index.bytes, 2 * (size_of(source.numel, x.dtype) or 0), dtype=x.dtype, flop=source.numel)


@model("aten::index_copy_", kind="other")
def index_copy(call: Inputs) -> Cost | None:
    """index_copy_(x, dim, index, source)."""
    x, index, source = call.tensor(0), call.tensor(2), call.tensor(3)
    if x is None or index is None or source is None:
        return None
    return _moved(source.bytes, index.bytes, size_of(source.numel, x.dtype), dtype=x.dtype)


@model("aten::nll_loss_forward", "aten::nll_loss2d_forward", kind="other")
def nll_loss(call: Inputs) -> Cost | None:
    """nll_loss_forward(scores[B, V], target[B], ...): one score per target."""
    scores, target = call.tensor(0), call.tensor(1)
    if scores is None or target is None:
        return None
    return _moved(size_of(target.numel, scores.dtype), target.bytes, dtype=scores.dtype, flop=target.numel)


@model("aten::nll_loss_backward", "aten::nll_loss2d_backward", kind="other")
def nll_loss_backward(call: Inputs) -> Cost | None:
    """nll_loss_backward(grad, scores, target, ...): the gradient is zeroed, then one element per target written."""
    scores, target = call.tensor(1), call.tensor(2)
    if scores is None or target is None:
        return None
    return _moved(
        size_of(scores.numel, scores.dtype), size_of(target.numel, scores.dtype), target.bytes, dtype=scores.dtype, direction="bwd"
    )


def _reduced(x: Tensor, dims: tuple[int, ...] | None, keep_all: bool) -> int:
    """Elements of the result of a reduction over dims (all where dims is empty or None)."""
    if keep_all or dims is None or not dims:
        return 1
    gone = {d % len(x.shape) for d in dims if x.shape and -len(x.shape) <= d < len(x.shape)}
    return prod(size for at, size in enumerate(x.shape) if at not in gone)


def _reduction(call: Inputs, dims_at: int, *, forms: int, out_dtype: str = "", indices: bool = False) -> Cost | None:
    """x reduced over the dims at `dims_at`; a call with fewer than `forms` arguments reduces everything."""
    x = call.tensor(0)
    if x is None:
        return None
    over_all = len(call.slots) < forms
    known = over_all or call.has_values
    out = _reduced(x, call.ints(dims_at), over_all)
    written = size_of(out, out_dtype or x.dtype)
    reason = "" if known else "reduced dimensions not recorded: result left out, a lower bound"
    return Cost(
        flop_vector=x.numel, bytes=total(x.bytes, *([written] if known else []), *([8 * out] if indices and known else [])), dtype=x.dtype,
        kind="elementwise", estimated=bool(reason), reason=reason,
    )  # fmt: skip


@model("aten::sum", "aten::mean", "aten::nansum", kind="elementwise")
def sum_or_mean(call: Inputs) -> Cost | None:
    """sum(x, dtype) or sum(x, dim, keepdim, dtype)."""
    given = call.dtype(3 if len(call.slots) > 2 else 1)
    return _reduction(call, 1, forms=3, out_dtype=given)


@model("aten::amax", "aten::amin", "aten::logsumexp", "aten::all", "aten::any", "aten::prod", "aten::count_nonzero", kind="elementwise")
def reduce_dims(call: Inputs) -> Cost | None:
    """amax(x, dim, keepdim), all(x) or all(x, dim, keepdim)."""
    return _reduction(call, 1, forms=2)


@model("aten::var", "aten::std", "aten::var_mean", "aten::std_mean", kind="elementwise")
def variance(call: Inputs) -> Cost | None:
    """var(x, dim, correction, keepdim)."""
    return _reduction(call, 1, forms=3)


@model("aten::argmax", "aten::argmin", kind="elementwise")
def arg_reduce(call: Inputs) -> Cost | None:
    """argmax(x, dim, keepdim): the result is int64."""
    x, cost = call.tensor(0), _reduction(call, 1, forms=2, out_dtype="int64")
    return cost if x is not None else None


@model("aten::max", "aten::min", kind="elementwise")
def max_or_min(call: Inputs) -> Cost | None:
    """max(x), max(x, dim, keepdim) with indices, or max(x, other) elementwise."""
    x, other = call.tensor(0), call.tensor(1)
    if x is not None and other is not None:
        shape = broadcast(x.shape, other.shape)
        if shape is None:
            return None
        out = prod(shape)
        return Cost(flop_vector=out, bytes=total(x.bytes, other.bytes, size_of(out, x.dtype)), dtype=x.dtype, kind="elementwise")
    return _reduction(call, 1, forms=2, indices=len(call.slots) > 2)


@model("aten::linalg_vector_norm", "aten::norm", kind="elementwise")
def vector_norm(call: Inputs) -> Cost | None:
    """linalg_vector_norm(x, order, dim, keepdim, dtype)."""
    return _reduction(call, 2, forms=3)


@model("aten::linalg_norm", kind="elementwise", wrapper=True)
def linalg_norm(call: Inputs) -> Cost | None:
    """linalg_norm(x, order, dim, keepdim, dtype)."""
    return _reduction(call, 2, forms=3)


@model("aten::cumsum", "aten::cumprod", "aten::logcumsumexp", kind="elementwise")
def cumulative(call: Inputs) -> Cost | None:
    """cumsum(x, dim, dtype): as many results as inputs."""
    x = call.tensor(0)
    if x is None:
        return None
    return Cost(flop_vector=x.numel, bytes=total(x.bytes, size_of(x.numel, call.dtype(2) or x.dtype)), dtype=x.dtype, kind="elementwise")


def _pool(call: Inputs, *, indices: bool) -> Cost | None:
    x, kernel = call.tensor(0), call.ints(1)
    if x is None or kernel is None or len(kernel) not in (1, 2, 3):
        return None
    dims = max(len(kernel), 2 if len(x.shape) > 3 else 1)
    wide = kernel * dims if len(kernel) == 1 else kernel
    stride, padding = call.ints(2) or wide, call.ints(3) or (0,)
    dilation = (call.ints(4) if indices else None) or (1,)
    full = [v * dims if len(v) == 1 else v for v in (stride, padding, dilation)]
    if len(x.shape) <= dims or any(len(v) != dims for v in full) or min(full[0]) < 1:
        return None
    spatial = out_spatial(x.shape[-dims:], wide, full[0], full[1], full[2])
    if min(spatial) < 0:
        return None
    out = prod(x.shape[:-dims]) * prod(spatial)
    kept = [8 * out] if indices else []
    return Cost(flop_vector=prod(wide) * out, bytes=total(x.bytes, size_of(out, x.dtype), *kept), dtype=x.dtype, kind="elementwise")


@model("aten::max_pool2d_with_indices", "aten::max_pool3d_with_indices", kind="elementwise")
def max_pool(call: Inputs) -> Cost | None:
    """max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil): an int64 index per result."""
    return _pool(call, indices=True)


@model("aten::avg_pool2d", "aten::avg_pool3d", kind="elementwise")
def avg_pool(call: Inputs) -> Cost | None:
    """avg_pool2d(x, kernel, stride, padding, ...)."""
    return _pool(call, indices=False)


@model("aten::max_pool2d_with_indices_backward", kind="elementwise")
def max_pool_backward(call: Inputs) -> Cost | None:
    """max_pool2d_with_indices_backward(grad, x, kernel, ..., indices): the input itself is not read, its gradient is written."""
    grad, x, indices = call.tensor(0), call.tensor(1), call.tensor(7)
    if grad is None or x is None:
        return None
    kept = indices.bytes if indices is not None else 8 * grad.numel
    return Cost(
        flop_vector=grad.numel, bytes=total(grad.bytes, kept, size_of(x.numel, x.dtype)), dtype=x.dtype, kind="elementwise", direction="bwd"
    )


@model("aten::_adaptive_avg_pool2d", "aten::adaptive_avg_pool2d", kind="elementwise", wrapper=True)
def adaptive_pool(call: Inputs) -> Cost | None:
    """adaptive_avg_pool2d(x, size): every element is read once."""
    x, size = call.tensor(0), call.ints(1)
    if x is None or size is None or len(x.shape) < 3:
        return None
    out = prod(x.shape[:-2]) * prod(size * 2 if len(size) == 1 else size)
    return Cost(flop_vector=x.numel, bytes=total(x.bytes, size_of(out, x.dtype)), dtype=x.dtype, kind="elementwise")
