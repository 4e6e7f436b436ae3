"""Finds what optimizers hold by the names of their attributes; Megatron, Apex and DeepSpeed are never imported.

What a tensor of an optimizer is, in this order:

1. Under a name of MASTERS, or as `main_param` of a parameter, or in the state under a name of STATE_MASTERS: a master weight.
2. In `param_groups`, while it shares no storage with a parameter of the model, is of 32 bits or more and the model has parameters of
   16 bits or less: a master weight. In any other case it is a parameter.
3. In the state: `exp_avg`, `exp_avg_sq`, or else other state.

A master weight that lies in the storage of a parameter (an FP32 parameter is its own master) is that parameter, and counts as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tb_sol_plugin.capture.loop.header import known
from tb_sol_plugin.capture.memory.storages import is_tensor

INSIDE: Final = (
    "optimizer", "optimizers", "chained_optimizers", "sub_optimizers", "_optimizer", "_optimizers", "base_optimizer", "inner_optimizer",
    "optim",
)  # fmt: skip
"""Under these names an optimizer holds others, and a trainer or engine its own: `.optim` of ZeroRedundancyOptimizer."""
MASTERS: Final = (
    "shard_fp32_from_float16_groups", "fp32_from_float16_groups", "shard_fp32_groups",  # Megatron
    "param_to_fp32_param", "param_to_main_param",  # Megatron, with a part of the optimizer on the host
    "fp32_from_fp16_groups", "all_fp32_from_fp16_params",  # Apex: FP16_Optimizer, amp
    "single_partition_of_fp32_groups", "fp32_partitioned_groups_flat", "fp32_groups_flat_partition", "fp32_groups_flat",  # DeepSpeed
    "master_params", "main_params", "fp32_params",
)  # fmt: skip
STATE_MASTERS: Final = ("master_param", "master_params", "master_weight", "master", "main_param", "fp32_param")
MODEL_SIDE: Final = {
    "model_float16_groups": "shard_fp32_from_float16_groups",
    "float16_groups": "fp32_from_float16_groups",
    "fp16_groups": "fp32_from_fp16_groups",
    "all_fp16_params": "all_fp32_from_fp16_params",
}
"""Lists of parameters of the model, and the lists of their masters in the same order."""
PARAMETERS: Final = (
    "bit16_groups_flat", "fp16_groups_flat", "bf16_groups_flat", "fp16_partitioned_groups_flat", "param_data",
)  # fmt: skip
"""Flat copies of the parameters of a model."""
MAIN_GRADIENTS: Final = ("fp32_groups_gradients_flat", "fp32_groups_gradient_flat_partition", "fp32_groups_gradients")
GRADIENTS: Final = ("averaged_gradients", "ipg_buffer", "grad_partitions_flat_buffer")
"""FP32 and other gradients that DeepSpeed's optimizers hold."""
BUFFERS: Final = ("buffers", "expert_parallel_buffers", "per_model_buffers", "grad_buffers", "_grad_buffers")
"""Where Megatron's data parallel models and optimizers keep flat buffers."""
HIDDEN: Final = ("_amp_stash",)
"""Apex keeps its masters one object further."""
DEEPEST: Final = 8
MOST: Final = 256
"""Optimizers in one another, and all of them."""


def optimizers_in(thing: object) -> list[object]:
    """An optimizer with all that it wraps or chains, outermost first; each once. Lists and dicts of them too."""
    found: list[object] = []
    todo: list[tuple[object, int]] = [(thing, 0)]
    seen: set[int] = set()
    while todo and len(seen) < MOST:
        one, depth = todo.pop(0)
        if one is None or id(one) in seen or depth > DEEPEST or isinstance(one, (str, bytes, int, float)) or is_tensor(one):
            continue
        seen.add(id(one))
        if isinstance(one, Mapping):
            todo += [(inner, depth + 1) for inner in list(one.values())[:MOST]]
        elif isinstance(one, (list, tuple)):
            todo += [(inner, depth + 1) for inner in one[:MOST]]
        else:
            found.append(one)
            todo += [(inner, depth + 1) for name in INSIDE if (inner := attribute(one, name)) is not None and not callable(inner)]
    return found


def looks_like(thing: object) -> bool:
    """Whether it has what every optimizer has, or holds master weights as some wrapper does."""
    return isinstance(attribute(thing, "param_groups"), (list, tuple)) or any(True for _ in masters(thing))


def attribute(thing: object, name: str) -> object:
    """An attribute; None where there is none, and where asking fails."""
    return known(lambda: getattr(thing, name, None))


def own(thing: object, name: str) -> object:
    """What an object itself holds under a name, not what its class has under it."""
    return known(lambda: vars(thing).get(name))


def tensors_in(thing: object, depth: int = DEEPEST) -> Iterator[object]:
    """All tensors in nested lists, tuples and dicts, in order."""
    if is_tensor(thing):
        yield thing
    elif depth and isinstance(thing, Mapping):
        for inner in list(thing.values()):
            yield from tensors_in(inner, depth - 1)
    elif depth and isinstance(thing, (list, tuple, set, frozenset)):
        for inner in list(thing):
            yield from tensors_in(inner, depth - 1)


def group_parameters(optimizer: object) -> list[object]:
    """The tensors of its parameter groups."""
    groups = attribute(optimizer, "param_groups")
    if not isinstance(groups, (list, tuple)):
        return []
    return [tensor for group in groups if isinstance(group, Mapping) for tensor in tensors_in(group.get("params"))]


def states(optimizer: object) -> list[tuple[object, Mapping[object, object]]]:
    """(parameter, its state) as `optimizer.state` has them."""
    state = attribute(optimizer, "state")
    if not isinstance(state, Mapping):
        return []
    pairs = known(lambda: list(state.items())) or []
    return [(parameter, entries) for parameter, entries in pairs if isinstance(entries, Mapping)]


def masters(optimizer: object) -> Iterator[object]:
    """Tensors that stand where master weights stand."""
    for holder in (optimizer, *(attribute(optimizer, name) for name in HIDDEN)):
        for name in MASTERS:
            found = attribute(holder, name)
            if not callable(found):
                yield from tensors_in(found)


def pairs(optimizer: object) -> Iterator[tuple[object, object]]:
    """(parameter of the model, its master) where two lists run alike."""
    for holder in (optimizer, *(attribute(optimizer, name) for name in HIDDEN)):
        for ours, theirs in MODEL_SIDE.items():
            left, right = (_flat(attribute(holder, name)) for name in (ours, theirs))
            if len(left) == len(right):
                yield from ((a, b) for a, b in zip(left, right, strict=True) if is_tensor(a) and is_tensor(b))


def _flat(thing: object, depth: int = 4) -> list[object]:
    """Elements of nested lists, None among them, since they hold a place."""
    if isinstance(thing, (list, tuple)) and depth:
        return [one for inner in thing for one in _flat(inner, depth - 1)]
    return [] if isinstance(thing, (list, tuple)) else [thing]


def flat_buffers(thing: object) -> Iterator[tuple[str, object]]:
    """("param" or "grad", tensor) of the flat buffers that a model's wrapper or an optimizer holds."""
    for name in BUFFERS:
        for buffer in _objects(own(thing, name), DEEPEST):
            for kind, names in (("param", ("param_data",)), ("grad", ("grad_data",))):
                for inner in names:
                    tensor = attribute(buffer, inner)
                    if is_tensor(tensor):
                        yield kind, tensor
            if "grad_buffers" in name and is_tensor(attribute(buffer, "data")):
                yield "grad", attribute(buffer, "data")


def _objects(thing: object, depth: int) -> Iterator[object]:
    if depth and isinstance(thing, Mapping):
        for inner in list(thing.values())[:MOST]:
            yield from _objects(inner, depth - 1)
    elif depth and isinstance(thing, (list, tuple)):
        for inner in thing[:MOST]:
            yield from _objects(inner, depth - 1)
    elif thing is not None:
        yield thing
