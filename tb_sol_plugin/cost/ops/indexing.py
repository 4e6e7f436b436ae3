"""Operations that pick, place or order elements. Where the result depends on the data, what is known is a lower bound.

Picked elements are read and written once (read at most once per element of the source), indices read once; the rest of the source
is not touched. Forms that add up read and write their target and count one FLOP per added element; forms that are not in place copy the
target first.
Source: native_functions.yaml of PyTorch for the positions.
Limits: rows narrower than a cache sector move whole sectors; masks have results that depend on the data.

Embeddings: the rows that indices name, at most the whole table. Which indices repeat is not known: each counts as a row.
Only the dense gradient is written (zeroed) as a whole, whatever the indices.
Source: native_functions.yaml of PyTorch for the positions.
Limits: rows that repeat may come from the cache, which makes this an upper bound of the reads.

Sparse features and embedding tables of recommendation models (FBGEMM, as torchrec calls it).

Several tables stand in one flat array; D_offsets[T + 1] holds where the columns of each of T tables start in the pooled result
[B, total D]. A lookup reads a row per index, sums them per bag and writes the result. Widths of single tables are values, not sizes:
each index is taken as wide as the average table, never more than the whole array, and marked. Where neither the width nor the result
is recorded there is no answer.
Source: argument order of fbgemm_gpu's operators (0.4 to 1.0), as recorded.
Limits: the state of a fused optimizer is counted where it is an argument.
"""

from __future__ import annotations

from math import prod
from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Tensor, broadcast, size_of
from tb_sol_plugin.cost.model import Cost, Direction, model, pattern, unknown
from tb_sol_plugin.cost.ops.pointwise import axis, count, like, moved, read

INDICES: Final = "indices taken as int64 over the first dimensions: their types are not recorded"
MASKS: Final = "indices may be masks, whose result depends on the data: it is left out, a lower bound"
UNKNOWN: Final = "sizes of the indices not recorded: only the values are counted, a lower bound"
SEVERAL_PASSES: Final = "one pass over the data counted: a lower bound"
DEPENDS: Final = "size of the result depends on the data: left out, a lower bound"


@model("aten::sort", "aten::argsort", "aten::msort", kind="other")
def sort(call: Inputs) -> Cost | None:
    """sort(x, dim, descending): values and int64 places written."""
    x = call.tensor(0)
    return None if x is None else moved(x.dtype, x.bytes, like(x), 8 * x.numel, reason=SEVERAL_PASSES)


@model("aten::topk", kind="other")
def topk(call: Inputs) -> Cost | None:
    """topk(x, k, dim, ...): k values and int64 places along one dimension, the last one by default."""
    x, k, dim = call.tensor(0), count(call, 1), call.value(2)
    if x is None or k is None or not x.shape:
        return None
    along = axis(x, -1 if dim is None else dim)
    if along is None or k > x.shape[along]:
        return None
    out = x.numel // x.shape[along] * k if x.shape[along] else 0
    return moved(x.dtype, x.bytes, size_of(out, x.dtype), 8 * out, reason=SEVERAL_PASSES)


@model("aten::nonzero", "aten::masked_select", "aten::argwhere", "aten::unique_dim", "aten::_unique", "aten::_unique2",
       "aten::unique_consecutive", "aten::unique_dim_consecutive", kind="other")  # fmt: skip
def depends_on_data(call: Inputs) -> Cost | None:
    """nonzero(x), masked_select(x, mask): the input (and mask) read; the result depends on the data and is left out."""
    x, mask = call.tensor(0), call.tensor(1)
    return None if x is None else moved(x.dtype, *(read(mask) if mask is not None else read(x)), reason=DEPENDS)


@model("aten::bincount", "aten::histc", kind="other")
def bincount(call: Inputs) -> Cost | None:
    """bincount(x): x read; the counts depend on the data and are left out; n FLOP."""
    x = call.tensor(0)
    return None if x is None else moved(x.dtype, x.bytes, flop=x.numel, reason=DEPENDS)


@model("aten::bucketize", kind="other")
def bucketize(call: Inputs) -> Cost | None:
    """bucketize(x, boundaries, out_int32, right): one place per element; boundaries read once."""
    return _places(call.tensor(0), call.tensor(1), call)


@model("aten::searchsorted", kind="other")
def searchsorted(call: Inputs) -> Cost | None:
    """searchsorted(sorted, x, out_int32, ...): like bucketize, with the sorted values first."""
    return _places(call.tensor(1), call.tensor(0), call)


def _places(x: Tensor | None, edges: Tensor | None, call: Inputs) -> Cost | None:
    """A binary search per element; argument 2 says whether places have 4 bytes or 8."""
    if x is None or edges is None:
        return None
    steps = max((edges.shape[-1] if edges.shape else 1).bit_length(), 1)
    return moved(x.dtype, *read(x, edges), (4 if call.flag(2) else 8) * x.numel, flop=steps * x.numel)


@model("aten::isin", kind="other")
def isin(call: Inputs) -> Cost | None:
    """isin(x, values): one boolean per element: one pass, a lower bound."""
    x, values = call.tensor(0), call.tensor(1)
    return None if x is None or values is None else moved(x.dtype, *read(x, values), x.numel, reason=SEVERAL_PASSES)


def _picked(x: Tensor, indices: tuple[Tensor, ...]) -> int | None:
    """Elements that integer indices over the first dimensions pick: their broadcast shape times the dimensions that have none.

    An index as large as the dimensions it stands for may be a mask, whose result depends on the data: None.
    """
    if not indices or len(indices) > len(x.shape) or any(i.shape and i.shape == x.shape[: len(i.shape)] for i in indices):
        return None
    shape = broadcast(*(i.shape for i in indices))
    return None if shape is None else prod(shape) * prod(x.shape[len(indices) :])


@model("aten::index", "aten::_unsafe_index", kind="other")
def index(call: Inputs) -> Cost | None:
    """index(x, indices): the picked elements read and written, indices read (int64, their type is not recorded).

    What may be a mask reads one byte per element at least. Indices whose sizes are not recorded leave nothing to count: no answer.
    """
    x, indices = call.tensor(0), call.tensors(1)
    if x is None or not indices:
        return None
    out = _picked(x, indices)
    if out is None:
        return moved(x.dtype, sum(i.numel for i in indices), reason=MASKS)
    return moved(x.dtype, size_of(min(out, x.unique), x.dtype), size_of(out, x.dtype), 8 * sum(i.numel for i in indices), reason=INDICES)


def _index_put(call: Inputs, *, copies: bool) -> Cost | None:
    x, indices, values = call.tensor(0), call.tensors(1), call.tensor(2)
    if x is None or values is None:
        return None
    base = [x.bytes, like(x)] if copies else []
    adds = bool(call.flag(3))
    out = _picked(x, indices) if indices else None
    if out is None:
        known = like(values, x.dtype) if not indices or values.numel > 1 else 0
        reason = MASKS if indices else UNKNOWN
        mask = sum(i.numel for i in indices)
        return moved(x.dtype, *base, values.bytes, known, mask, flop=values.numel if adds else 0, reason=reason)
    written = size_of(out, x.dtype)
    again = [written] if adds else []
    return moved(
        x.dtype, *base, values.bytes, written, *again, 8 * sum(i.numel for i in indices), flop=out if adds else 0, reason=INDICES
    )


@model("aten::_index_put_impl_", "aten::index_put_", kind="other", wrapper=True)
def index_put_(call: Inputs) -> Cost | None:
    """index_put_(x, indices, values, accumulate): values and indices read, elements written; read too when accumulated.

    Without the sizes of the indices, or where they may be masks, the values read and written once are what is known.
    """
    return _index_put(call, copies=False)


@model("aten::index_put", "aten::_unsafe_index_put", kind="other", wrapper=True)
def index_put(call: Inputs) -> Cost | None:
    """index_put(x, indices, values, accumulate), where nothing below it was recorded: x is copied first."""
    return _index_put(call, copies=True)


@model("aten::index_select", kind="other")
def index_select(call: Inputs) -> Cost | None:
    """index_select(x, dim, index): the chosen slices read and written. Without the dim, the first one is taken."""
    x, index = call.tensor(0), call.tensor(2)
    if x is None or index is None:
        return None
    dim = call.value(1)
    along = axis(x, 0 if dim is None else dim)
    if along is None:
        return None
    size = x.shape[along] if x.shape else 1
    chosen = x.numel // size * index.numel if size else 0
    reason = "" if dim is not None or len(x.shape) < 2 else "dimension not recorded: the first assumed"
    return moved(x.dtype, size_of(min(chosen, x.unique), x.dtype), size_of(chosen, x.dtype), index.bytes, reason=reason)


@model("aten::gather", "aten::take", kind="other")
def gather(call: Inputs) -> Cost | None:
    """gather(x, dim, index), take(x, index): one element read and written per index."""
    x, index = call.tensor(0), call.tensor(2) or call.tensor(1)
    if x is None or index is None:
        return None
    return moved(x.dtype, size_of(min(index.numel, x.unique), x.dtype), size_of(index.numel, x.dtype), index.bytes)


@model("aten::gather_backward", "aten::index_select_backward", kind="other", wrapper=True)
def gather_backward(call: Inputs) -> Cost | None:
    """gather_backward(grad, x, dim, index, ...), where nothing below it was recorded: a zeroed gradient like x, and one add per element."""
    grad, x, index = call.tensor(0), call.tensor(1), call.tensor(3)
    if grad is None or x is None or index is None:
        return None
    touched = like(grad)
    return moved(grad.dtype, *read(grad, index), like(x, grad.dtype), touched, touched, flop=grad.numel, direction="bwd")


def _scatter(call: Inputs, *, copies: bool, adds: bool) -> Cost | None:
    """(x, dim, index, source or value): one element per index; the copy form copies x first."""
    x, index, source = call.tensor(0), call.tensor(2), call.tensor(3)
    if x is None or index is None:
        return None
    base = [x.bytes, like(x)] if copies else []
    taken = size_of(index.numel, source.dtype) if source is not None else 0
    touched = size_of(index.numel, x.dtype)
    return moved(x.dtype, *base, index.bytes, taken, touched, *([touched] if adds else []), flop=index.numel if adds else 0)


@model("aten::scatter_", kind="other")
def scatter_(call: Inputs) -> Cost | None:
    """scatter_(x, dim, index, source or value): one element per index written."""
    return _scatter(call, copies=False, adds=False)


@model("aten::scatter", kind="other")
def scatter(call: Inputs) -> Cost | None:
    """scatter(x, dim, index, source or value): x copied, then one element per index written."""
    return _scatter(call, copies=True, adds=False)


@model("aten::scatter_add_", "aten::scatter_reduce_", kind="other")
def scatter_add_(call: Inputs) -> Cost | None:
    """scatter_add_(x, dim, index, source): touched elements read and written; one FLOP per index."""
    return _scatter(call, copies=False, adds=True)


@model("aten::scatter_add", "aten::scatter_reduce", kind="other")
def scatter_add(call: Inputs) -> Cost | None:
    """scatter_add(x, dim, index, source): x copied first."""
    return _scatter(call, copies=True, adds=True)


def _along(call: Inputs, *, copies: bool, adds: bool) -> Cost | None:
    """(x, dim, index, source): one slice per index; the source has the size of all of them. The copy form copies x first."""
    x, index, source = call.tensor(0), call.tensor(2), call.tensor(3)
    if x is None or index is None or source is None:
        return None
    base = [x.bytes, like(x)] if copies else []
    touched = like(source, x.dtype)
    again = [touched] if adds else []
    return moved(x.dtype, *base, *read(source, index), touched, *again, flop=source.numel if adds else 0)


@model("aten::index_add_", "aten::index_reduce_", kind="other")
def index_add_(call: Inputs) -> Cost | None:
    """index_add_(x, dim, index, source): touched elements read and written; one FLOP per element of the source."""
    return _along(call, copies=False, adds=True)


@model("aten::index_add", "aten::index_reduce", kind="other")
def index_add(call: Inputs) -> Cost | None:
    """index_add(x, dim, index, source): x copied first."""
    return _along(call, copies=True, adds=True)


@model("aten::index_copy_", kind="other")
def index_copy_(call: Inputs) -> Cost | None:
    """index_copy_(x, dim, index, source): source read, slices written."""
    return _along(call, copies=False, adds=False)


@model("aten::index_copy", kind="other")
def index_copy(call: Inputs) -> Cost | None:
    """index_copy(x, dim, index, source): x copied first."""
    return _along(call, copies=True, adds=False)


@model("aten::index_fill_", kind="other")
def index_fill_(call: Inputs) -> Cost | None:
    """index_fill_(x, dim, index, value): the chosen slices written."""
    x, index, dim = call.tensor(0), call.tensor(2), call.value(1)
    along = axis(x, dim) if x is not None else None
    if x is None or index is None or along is None:
        return None
    size = x.shape[along] if x.shape else 1
    return moved(x.dtype, index.bytes, size_of(x.numel // size * index.numel if size else 0, x.dtype))


@model("aten::masked_scatter_", "aten::masked_scatter", kind="other")
def masked_scatter(call: Inputs) -> Cost | None:
    """masked_scatter_(x, mask, source): the mask read; what is copied depends on the data and is left out."""
    x, mask = call.tensor(0), call.tensor(1)
    return None if x is None or mask is None else moved(x.dtype, mask.bytes, reason=DEPENDS)


# -- embeddings ------------------------------------------------------------------------------------------------------


ROWS: Final = "every index counted as a row of its own: repeated ones may still be in the cache"


def _rows(table: Tensor, indices: Tensor) -> int | None:
    """Bytes of the rows that are read: one per index, no row more than there are."""
    return size_of(min(indices.numel, table.shape[0]) * table.shape[1], table.dtype)


@model("aten::embedding", kind="other")
def embedding(call: Inputs) -> Cost | None:
    """embedding(table[V, D], indices): one row read and written per index, indices read."""
    table, indices = call.tensor(0), call.tensor(1)
    if table is None or indices is None or len(table.shape) != 2:
        return None
    return moved(table.dtype, _rows(table, indices), size_of(indices.numel * table.shape[1], table.dtype), indices.bytes)


@model("aten::embedding_dense_backward", kind="other")
def embedding_backward(call: Inputs) -> Cost | None:
    """embedding_dense_backward(grad, indices, rows, padding, scale): the whole table is zeroed, touched rows are read and written.

    One FLOP per element of the gradient. A row that several indices name is read and written once per table at least: touched rows
    are capped at the rows of the table.
    """
    grad, indices, rows = call.tensor(0), call.tensor(1), count(call, 2)
    if grad is None or indices is None or rows is None or not grad.shape:
        return None
    width = grad.shape[-1]
    whole, touched = size_of(rows * width, grad.dtype), size_of(min(indices.numel, rows) * width, grad.dtype)
    return moved(grad.dtype, grad.bytes, indices.bytes, whole, touched, touched, flop=grad.numel, direction="bwd")


@model("aten::embedding_backward", kind="other", wrapper=True)
def embedding_backward_wrapper(call: Inputs) -> Cost | None:
    """embedding_backward(grad, indices, rows, ...), where no dense one was recorded below it."""
    return embedding_backward(call)


@model("aten::_embedding_bag", "aten::_embedding_bag_forward_only", kind="other")
def embedding_bag(call: Inputs) -> Cost | None:
    """_embedding_bag(table[V, D], indices, offsets, scale, mode, sparse, weights, last_offset, ...): one result row per bag.

    A row read per index; the sum counts one FLOP per element, two with weights.
    """
    table, indices, offsets = call.tensor(0), call.tensor(1), call.tensor(2)
    if table is None or indices is None or offsets is None or len(table.shape) != 2:
        return None
    bags = max(offsets.numel - (1 if call.flag(7) else 0), 0)
    weights = call.tensor(6)
    work = indices.numel * table.shape[1] * (2 if weights is not None else 1)
    return moved(
        table.dtype, _rows(table, indices), *read(indices, offsets, weights), size_of(bags * table.shape[1], table.dtype), flop=work,
        reason=ROWS,
    )  # fmt: skip


@model("aten::embedding_bag", kind="other", wrapper=True)
def embedding_bag_wrapper(call: Inputs) -> Cost | None:
    """embedding_bag(table, indices, offsets, ...), where nothing below it was recorded."""
    return embedding_bag(call)


@model("aten::_embedding_bag_dense_backward", kind="other")
def embedding_bag_backward(call: Inputs) -> Cost | None:
    """_embedding_bag_dense_backward(grad[bags, D], indices, offset2bag, bag_size, maximum, rows, ...): the whole table is zeroed.

    The gradient row of a bag is read once; each index adds it to a row, capped at the rows of the table.
    """
    grad, indices, rows = call.tensor(0), call.tensor(1), count(call, 5)
    if grad is None or indices is None or len(grad.shape) != 2 or rows is None:
        return None
    width = grad.shape[1]
    whole, touched = size_of(rows * width, grad.dtype), size_of(min(indices.numel, rows) * width, grad.dtype)
    return moved(
        grad.dtype, *read(grad, indices, call.tensor(2)), whole, touched, touched, flop=indices.numel * width, direction="bwd"
    )


@model("aten::embedding_renorm_", kind="other")
def embedding_renorm(call: Inputs) -> Cost | None:
    """embedding_renorm_(table[V, D], indices, max_norm, type): touched rows read; writing them back depends on the data."""
    table, indices = call.tensor(0), call.tensor(1)
    if table is None or indices is None or len(table.shape) != 2:
        return None
    return moved(table.dtype, _rows(table, indices), indices.bytes, flop=2 * indices.numel * table.shape[1], reason=ROWS)


# -- embedding tables of FBGEMM --------------------------------------------------------------------------------------


AVERAGE: Final = "rows taken as wide as the average table"
SOME_VALUES: Final = "how many values the chosen features hold is not recorded: left out, a lower bound"


def _lookup(
    weights: Tensor | None, d_offsets: Tensor | None, width: int | None, indices: Tensor | None, offsets: Tensor | None,
    scale: Tensor | None = None,
) -> Cost | None:  # fmt: skip
    """Pooled lookup: rows read, indices and offsets read, one result row of total D per bag written in FP32; one FLOP per element."""
    if weights is None or d_offsets is None or indices is None or offsets is None or d_offsets.numel < 2:
        return None
    tables = d_offsets.numel - 1
    if not width or (offsets.numel - 1) % tables:
        return unknown("width of the embedding tables not recorded")
    rows = indices.numel * width // tables
    return moved(
        weights.dtype, size_of(min(rows, weights.numel), weights.dtype), *read(indices, offsets, scale),
        size_of((offsets.numel - 1) // tables * width, "fp32"), flop=rows * (2 if scale is not None else 1), reason=AVERAGE,
    )  # fmt: skip


@model("fbgemm::split_embedding_codegen_forward_cpu", kind="other")
def forward_cpu(call: Inputs) -> Cost | None:
    """split_embedding_codegen_forward_cpu(weights, weight offsets, D_offsets, total_D, hash sizes, indices, offsets, mode, scale, ...)."""
    return _lookup(call.tensor(0), call.tensor(2), count(call, 3), call.tensor(5), call.tensor(6), call.tensor(8))


@pattern(r"fbgemm::split_embedding_codegen_lookup_\w+_function_cpu", kind="other", wrapper=True)
def lookup_cpu(call: Inputs) -> Cost | None:
    """..._function_cpu(weights, placements, weight offsets, D_offsets, total_D, max_D, hash sizes, bits, indices, offsets, mode, scale)."""
    return _lookup(call.tensor(0), call.tensor(3), count(call, 4), call.tensor(8), call.tensor(9), call.tensor(11))


@pattern(r"fbgemm::split_embedding_codegen_lookup_\w+_function", kind="other")
def lookup(call: Inputs) -> Cost | None:
    """..._function(host, device, managed and cached weights, placements, weight offsets, D_offsets, total_D, max_D, hash sizes, bits,
    indices, offsets, mode, scale, ...): the weights on the device are the second argument."""
    return _lookup(call.tensor(1), call.tensor(6), count(call, 7), call.tensor(11), call.tensor(12), call.tensor(14))


def _gradient(grad: Tensor | None, weights: Tensor | None, d_offsets: Tensor | None, indices: Tensor | None) -> tuple[int, int] | None:
    """(elements of the touched rows, elements per index): from the gradient's width, at most the whole array."""
    if grad is None or weights is None or d_offsets is None or indices is None or len(grad.shape) != 2 or d_offsets.numel < 2:
        return None
    rows = indices.numel * grad.shape[1] // (d_offsets.numel - 1)
    return min(rows, weights.numel), rows


@pattern(r"fbgemm::split_embedding_backward_codegen_rowwise_adagrad\w*_cpu", kind="other")
def backward_cpu(call: Inputs) -> Cost | None:
    """..._cpu(grad[B, total D], weights, placements, weight offsets, D_offsets, max_D, hash sizes, bits, indices, offsets, ...).

    Gradient and indices read, touched rows read and written; 4 FLOP per element (sum, square, scale, update).
    """
    grad, weights, indices = call.tensor(0), call.tensor(1), call.tensor(8)
    found = _gradient(grad, weights, call.tensor(4), indices)
    if found is None or weights is None:
        return None
    touched = size_of(found[0], weights.dtype)
    direction: Direction = "bwd"
    return moved(
        weights.dtype, *read(grad, indices, call.tensor(9)), touched, touched, flop=4 * found[1], direction=direction, reason=AVERAGE
    )


@model("fbgemm::split_embedding_codegen_grad_indice_weights_cpu", kind="other")
def scale_gradient_cpu(call: Inputs) -> Cost | None:
    """..._cpu(grad[B, total D], weights, weight offsets, D_offsets, indices, offsets, ...): one product of rows per index, 2 FLOP each."""
    grad, weights, indices = call.tensor(0), call.tensor(1), call.tensor(4)
    found = _gradient(grad, weights, call.tensor(3), indices)
    if found is None or weights is None or indices is None:
        return None
    return moved(
        weights.dtype, *read(grad, indices, call.tensor(5)), size_of(found[0], weights.dtype), size_of(indices.numel, "fp32"),
        flop=2 * found[1], direction="bwd", reason=AVERAGE,
    )  # fmt: skip


@model("fbgemm::permute_2D_sparse_data", "fbgemm::permute_sparse_features", "fbgemm::permute_1D_sparse_data", kind="other")
def permute_sparse(call: Inputs) -> Cost | None:
    """permute_2D_sparse_data(order[T'], lengths[T, B], values, weights, sum): chosen lengths and their values read and written.

    The number of values is the recorded sum, all of them where every feature is chosen once (T' = T is taken for that), else unknown.
    """
    order, lengths, values, weights = (call.tensor(i) for i in range(4))
    if order is None or lengths is None or values is None or not lengths.shape:
        return None
    chosen = size_of(order.numel * (lengths.numel // max(lengths.shape[0], 1)), lengths.dtype)
    total = count(call, 4)
    known = total if total is not None else values.numel if order.numel == lengths.shape[0] else None
    parts = [size_of(known or 0, t.dtype) for t in (values, weights) if t is not None]
    return moved(values.dtype, order.bytes, chosen, chosen, *parts, *parts, reason="" if known is not None else SOME_VALUES)


@model("fbgemm::block_bucketize_sparse_features", kind="other")
def fbgemm_bucketize(call: Inputs) -> Cost | None:
    """block_bucketize_sparse_features(lengths, values, with positions, in sequence, block sizes, ranks, weights, ...).

    Values read and written in new order, with an index each where positions or sequence are asked for; lengths per rank written.
    """
    lengths, values, weights = call.tensor(0), call.tensor(1), call.tensor(6)
    if lengths is None or values is None:
        return None
    ranks = count(call, 5)
    more = sum(like(values) or 0 for at in (2, 3) if call.flag(at))
    new = size_of(lengths.numel * ranks, lengths.dtype) if ranks else lengths.bytes
    reason = "" if ranks else "number of ranks not recorded: one assumed, a lower bound"
    return moved(
        values.dtype, *read(lengths, call.tensor(4), values, weights), new, *(like(t) for t in (values, weights) if t is not None), more,
        flop=2 * values.numel, reason=reason,
    )  # fmt: skip


@model("fbgemm::bounds_check_indices", kind="other")
def bounds_check(call: Inputs) -> Cost | None:
    """bounds_check_indices(rows per table, indices, offsets, mode, warnings, ...): indices and offsets read; one FLOP per index."""
    indices = call.tensor(1)
    return None if indices is None else moved(indices.dtype, *read(call.tensor(0), indices, call.tensor(2)), flop=indices.numel)


@model("fbgemm::asynchronous_complete_cumsum", "fbgemm::asynchronous_inclusive_cumsum", "fbgemm::asynchronous_exclusive_cumsum",
       "fb::asynchronous_complete_cumsum", kind="elementwise")  # fmt: skip
def cumsum(call: Inputs) -> Cost | None:
    """asynchronous_complete_cumsum(x[n]): x read, about as many sums written; n FLOP."""
    x = call.tensor(0)
    return None if x is None else moved(x.dtype, x.bytes, like(x), flop=x.numel)


@model("fbgemm::offsets_range", "fb::offsets_range", kind="other")
def offsets_range(call: Inputs) -> Cost | None:
    """offsets_range(offsets, n): offsets read, one place per value written."""
    offsets, size = call.tensor(0), count(call, 1)
    if offsets is None or size is None:
        return None
    return moved(offsets.dtype, offsets.bytes, size_of(size, offsets.dtype))


@model("fbgemm::permute_pooled_embs_auto_grad", "fbgemm::permute_pooled_embs", "fbgemm::recat_embedding_grad_output_mixed_D_batch",
       "fbgemm::recat_embedding_grad_output", "fbgemm::recat_embedding_grad_output_mixed_D", kind="other")  # fmt: skip
def permute_pooled(call: Inputs) -> Cost | None:
    """permute_pooled_embs(pooled[B, D], ...): columns in new order: everything read and written once."""
    x = call.tensor(0)
    return None if x is None else moved(x.dtype, x.bytes, like(x))


@pattern(r"torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction.*", kind="other")
def permute_pooled_backward(call: Inputs) -> Cost | None:
    """The gradient of permute_pooled_embs: permuted back."""
    x = call.tensor(0)
    return None if x is None else moved(x.dtype, x.bytes, like(x), direction="bwd")


@pattern(r"torch::autograd::CppNode<(.*::)?SplitLookupFunction_.*", kind="other", wrapper=True)
def lookup_backward(call: Inputs) -> Cost | None:
    """The gradient of a lookup records the incoming gradient [B, total D] only: the rows that are updated are unknown, so no answer."""
    return unknown("number of updated rows not recorded: only the incoming gradient is")
