"""Rotary position embedding: 3 FLOP per turned element; queries and keys read and written, one row of the table per position.

Source: Su et al., RoFormer (2021): two multiplications and one addition per element.
Limits: the sine and cosine tables are taken as computed before.
"""

from __future__ import annotations

from tb_sol_plugin.cost.inputs import Inputs, Tensor, size_of
from tb_sol_plugin.cost.model import Cost, Direction, model
from tb_sol_plugin.cost.ops.pointwise import count, like, read, vector


def _turned(tensors: list[Tensor], *table: int | None, direction: Direction = "fwd") -> Cost | None:
    if not tensors:
        return None
    return vector(
        tensors[0].dtype, 3 * sum(t.numel for t in tensors), *read(*tensors), *(like(t) for t in tensors), *table, direction=direction
    )


def _there(*tensors: Tensor | None) -> list[Tensor]:
    return [t for t in tensors if t is not None]


@model("_C::rotary_embedding", "_C::batched_rotary_embedding", "sgl_kernel::rotary_embedding", kind="elementwise")
def rotary(call: Inputs) -> Cost | None:
    """rotary_embedding(positions, query, key, head_size, cos_sin[P, R], neox): in place, one table row per position.

    Only R columns of each head turn; the rest of the query is not touched where the head is wider and its size is recorded.
    """
    positions, query, key, table = call.tensor(0), call.tensor(1), call.tensor(2), call.tensor(4)
    if positions is None or query is None or table is None or not table.shape:
        return None
    head, width = count(call, 3), table.shape[-1]
    share = (width, head) if head is not None and head > width > 0 else (1, 1)
    parts = [Tensor((t.numel * share[0] // share[1],), t.dtype) for t in _there(query, key)]
    return _turned(parts, positions.bytes, size_of(min(positions.numel, table.numel // max(width, 1)) * width, table.dtype))


@model("sgl_kernel::apply_rope_pos_ids_cos_sin_cache", "flashinfer::apply_rope_pos_ids_cos_sin_cache", kind="elementwise")
def rope_cached(call: Inputs) -> Cost | None:
    """apply_rope_pos_ids_cos_sin_cache(q, k, q_out, k_out, table[P, R], positions, ...): one table row per position."""
    query, key, table, positions = call.tensor(0), call.tensor(1), call.tensor(4), call.tensor(5)
    if query is None or table is None or positions is None or not table.shape:
        return None
    return _turned(_there(query, key), positions.bytes, size_of(positions.numel * table.shape[-1], table.dtype))


@model("aiter::rope_cached_positions_2c_fwd_impl", "aiter::rope_cached_2c_fwd_impl", kind="elementwise")
def rope_two(call: Inputs) -> Cost | None:
    """rope_cached_positions_2c_fwd_impl(out_x, out_y, x, y, cos, sin, positions, ...): two tensors turned into new ones."""
    x, y = call.tensor(2), call.tensor(3)
    positions = call.tensor(6)
    if x is None or y is None:
        return None
    rows = [_rows(call.tensor(at), positions) for at in (4, 5)]
    return _turned([x, y], *rows, *read(positions))


@model("aiter::rope_cached_positions_fwd_impl", "aiter::rope_cached_fwd_impl", kind="elementwise")
def rope_one(call: Inputs) -> Cost | None:
    """rope_cached_fwd_impl(out, x, cos, sin, [positions,] ...): one tensor turned into a new one."""
    x, positions = call.tensor(1), call.tensor(4)
    if x is None:
        return None
    return _turned([x], *(_rows(call.tensor(at), positions) for at in (2, 3)), *read(positions))


def _rows(table: Tensor | None, positions: Tensor | None) -> int | None:
    """Bytes of the table rows that positions pick; the whole table without positions."""
    if table is None:
        return 0
    if positions is None or not table.shape:
        return table.bytes
    return size_of(min(positions.numel * table.shape[-1], table.numel), table.dtype)


@model("aiter::rope_fwd_impl", "FusedRoPEFunc", "ApplyRotaryEmb", "ApplyRotaryEmbQKV_", "ApplyRotaryEmbKV_", kind="elementwise")
def rope_function(call: Inputs) -> Cost | None:
    """ApplyRotaryEmb(x, cos, sin, ...), FusedRoPEFunc(x, frequencies, ...); aiter::rope_fwd_impl names its result first.

    The tables are read as they stand. In packed QKV the values are not turned: counted as a whole, since the split is not recorded.
    """
    first = call.tensor(0)
    if first is None:
        return None
    second = call.tensor(1)
    shifted = second is not None and second.shape == first.shape and len(first.shape) > 2
    x = second if shifted and second is not None else first
    tables = [t for t in (call.tensor(2 if shifted else 1), call.tensor(3 if shifted else 2)) if t is not None and t.numel <= x.numel]
    return _turned([x], *read(*tables))


@model("LigerRopeFunction", kind="elementwise")
def rope_pair(call: Inputs) -> Cost | None:
    """LigerRopeFunction(q, k, cos, sin, ...): both turned."""
    query, key = call.tensor(0), call.tensor(1)
    return None if query is None or key is None else _turned([query, key], *read(call.tensor(2), call.tensor(3)))


@model("LigerRopeFunctionBackward", "ApplyRotaryEmbBackward", "FusedRoPEFuncBackward", kind="elementwise")
def rope_backward(call: Inputs) -> Cost | None:
    """ApplyRotaryEmbBackward(gradients): turned back; the tables are not recorded and left out."""
    found = _turned(call.flat, direction="bwd")
    if found is None:
        return None
    return vector(found.dtype, found.flop_vector, found.bytes, direction="bwd", reason="tables not recorded: left out, a lower bound")
