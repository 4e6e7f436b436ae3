"""Operations over lists of tensors: concatenation, foreach operations and fused optimizers.

A recorder writes the sizes of a list but not its element type. It is given as a hint from elsewhere, and then marked as such.
"""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Tensor, size_of, total
from tb_sol_plugin.cost.model import Cost, model, pattern

FROM_KERNEL: Final = "element type of the list not recorded: read from the name of its kernel"


def _reason(call: Inputs) -> str:
    return FROM_KERNEL if call.hint else ""


def _written(tensors: tuple[Tensor, ...]) -> list[int | None]:
    return [size_of(t.numel, t.dtype) for t in tensors]


@model("aten::cat", "aten::_cat", kind="other")
def cat(call: Inputs) -> Cost | None:
    """cat(tensors, dim): everything read and written once."""
    parts = call.tensors(0)
    if not parts:
        return None
    return Cost(
        bytes=total(*(p.bytes for p in parts), *_written(parts)), dtype="" if parts[0].dtype.startswith("opaque") else parts[0].dtype,
        kind="other", estimated=bool(call.hint),
        reason=_reason(call),
    )  # fmt: skip


@model("aten::stack", kind="other", wrapper=True)
def stack(call: Inputs) -> Cost | None:
    """stack(tensors, dim)."""
    return cat(call)


@pattern(r"aten::_foreach_\w+", kind="elementwise")
def foreach(call: Inputs) -> Cost | None:
    """_foreach_add_(targets, others, ...): every list read; the first one written in place, or as many new elements.

    `_foreach_norm` writes one number per tensor, `_foreach_copy_` does not read its target, `_foreach_zero_` reads nothing.
    """
    return _foreach(call, in_place=True)


def _foreach(call: Inputs, *, in_place: bool) -> Cost | None:
    lists = [call.tensors(at) for at in range(len(call.slots)) if call.tensors(at)]
    if not lists:
        return None
    elements = sum(t.numel for t in lists[0])
    traffic = [t.bytes for tensors in lists for t in tensors] + (_written(lists[0]) if in_place else [])
    return Cost(
        flop_vector=elements * max(len(lists) - 1, 1), bytes=total(*traffic), dtype=lists[0][0].dtype,
        kind="elementwise", estimated=bool(call.hint), reason=_reason(call),
    )  # fmt: skip


@model("aten::_foreach_norm", kind="elementwise")
def foreach_norm(call: Inputs) -> Cost | None:
    """_foreach_norm(tensors, order): one number per tensor."""
    return _foreach(call, in_place=False)


@model("aten::_foreach_zero_", kind="other")
def foreach_zero(call: Inputs) -> Cost | None:
    """_foreach_zero_(tensors): written once."""
    parts = call.tensors(0)
    if not parts:
        return None
    return Cost(bytes=total(*_written(parts)), dtype=parts[0].dtype, kind="other", estimated=bool(call.hint), reason=_reason(call))


@model("aten::_foreach_copy_", kind="other")
def foreach_copy(call: Inputs) -> Cost | None:
    """_foreach_copy_(targets, sources): sources read, targets written; list types may differ, the hint is taken for both."""
    targets, sources = call.tensors(0), call.tensors(1)
    if not targets or not sources:
        return None
    return Cost(
        bytes=total(*(s.bytes for s in sources), *_written(targets)), dtype=targets[0].dtype, kind="other", estimated=True,
        reason=_reason(call) or "types of the lists assumed equal",
    )  # fmt: skip


def _optimizer(call: Inputs, read: tuple[int, ...], written: tuple[int, ...], per_parameter: int) -> Cost | None:
    parameters = call.tensors(0)
    if not parameters:
        return None
    traffic = [t.bytes for at in read for t in call.tensors(at)] + [b for at in written for b in _written(call.tensors(at))]
    return Cost(
        flop_vector=per_parameter * sum(t.numel for t in parameters), bytes=total(*traffic), dtype=parameters[0].dtype, kind="elementwise",
        estimated=bool(call.hint), reason=_reason(call),
    )  # fmt: skip


@model("aten::_fused_adam_", "aten::_fused_adamw_", kind="elementwise")
def fused_adam(call: Inputs) -> Cost | None:
    """_fused_adam_(parameters, gradients, m, v, max_v, steps, ...): 7 arrays in all, 12 FLOP per parameter."""
    return _optimizer(call, (0, 1, 2, 3, 4), (0, 2, 3, 4), 12)


@model("aten::_fused_sgd_", kind="elementwise")
def fused_sgd(call: Inputs) -> Cost | None:
    """_fused_sgd_(parameters, gradients, momentum, ...): 3 arrays and 2 FLOP per parameter, 5 and 4 with momentum."""
    return _optimizer(call, (0, 1, 2), (0, 2), 4 if call.tensors(2) else 2)
