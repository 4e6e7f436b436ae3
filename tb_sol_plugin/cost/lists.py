"""Operations over lists of tensors: concatenation and foreach operations.

A recorder writes the sizes of a list but not its element type. It is given as a hint from elsewhere, and then marked as such.
Source: native_functions.yaml of PyTorch for the positions.
Limits: without a hint a list has no bytes.
"""

from __future__ import annotations

from math import prod
from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Tensor, size_of, total
from tb_sol_plugin.cost.model import Cost, model, pattern
from tb_sol_plugin.cost.parts import moved, vector

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
