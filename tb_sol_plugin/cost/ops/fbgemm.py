"""Sparse features and embedding tables of recommendation models (FBGEMM, as torchrec calls it).

Several tables stand in one flat array; D_offsets[T + 1] holds where the columns of each of T tables start in the pooled result
[B, total D]. A lookup reads a row per index, sums them per bag and writes the result. Widths of single tables are values, not sizes:
each index is taken as wide as the average table, never more than the whole array, and marked. Where neither the width nor the result
is recorded there is no answer.
Source: argument order of fbgemm_gpu's operators (0.4 to 1.0), as recorded.
Limits: the state of a fused optimizer is counted where it is an argument.
"""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Tensor, size_of
from tb_sol_plugin.cost.model import Cost, Direction, model, pattern, unknown
from tb_sol_plugin.cost.ops.pointwise import count, like, moved, read

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
def bucketize(call: Inputs) -> Cost | None:
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
