"""Names the modules of a model, and finds those that are layers of a supported type. Needs no torch.

Names are those of `named_modules()`, less what wrappers put into them (`module.` of data parallelism, `_orig_mod.` of torch.compile …).
The outermost module has the name of its class. Layers are recognized by class names, so that no library has to be
imported for them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tb_sol_plugin.capture.operation_registry import OpType

if TYPE_CHECKING:
    from torch import nn

Layer = tuple[str, OpType]
"""Type of a layer as reports name it, and the kind of its main work."""

SUPPORTED: Final[dict[str, OpType]] = {
    "Linear": OpType.MATMUL,
    "TELinear": OpType.MATMUL,
    "TELayerNormLinear": OpType.MATMUL,
    "TELayerNormMLP": OpType.MATMUL,
    "TEDotProductAttention": OpType.ATTENTION,
    "Embedding": OpType.EMBEDDING,
    "LayerNorm": OpType.LAYERNORM,
    "RMSNorm": OpType.LAYERNORM,
}
"""Layer types of the reports. The two fused ones have a normalization in addition to their products."""

_ALSO: Final[dict[str, tuple[str, ...]]] = {
    "Linear": (
        "ColumnParallelLinear", "RowParallelLinear", "LinearBase", "ReplicatedLinear",
        "MergedColumnParallelLinear", "QKVParallelLinear", "Conv1D", "QuantLinear", "QuantizedLinear", "WQLinear", "WQLinear_GEMM",
        "WQLinear_GEMV", "HQQLinear", "Linear8bitLt", "Linear4bit", "LinearFP4", "LinearNF4", "Float8Linear", "FP8Linear", "BitLinear",
        "EetqLinear", "QLinear",
    ),
    "TELinear": ("TEColumnParallelLinear", "TERowParallelLinear", "TEGroupedLinear", "GroupedLinear"),
    "TELayerNormLinear": ("TELayerNormColumnParallelLinear", "LayerNormLinear"),
    "TELayerNormMLP": ("LayerNormMLP",),
    "TEDotProductAttention": ("DotProductAttention",),
    "Embedding": ("VocabParallelEmbedding",),
    "LayerNorm": ("FusedLayerNorm", "MixedFusedLayerNorm", "FastLayerNorm"),
    "RMSNorm": ("FusedRMSNorm", "MixedFusedRMSNorm"),
}  # fmt: skip
_LAYER_TYPES: Final = {name: name for name in SUPPORTED} | {name: layer for layer, names in _ALSO.items() for name in names}
_ENDINGS: Final = ("RMSNorm", "LayerNorm")

_WRAPPERS: Final = {
    "OptimizedModule": "_orig_mod",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "ActivationWrapper": "_checkpoint_wrapped_module",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
    "_FabricModule": "_forward_module",
    **dict.fromkeys(
        (
            "DistributedDataParallel", "DataParallel", "Float16Module", "FP16_Module", "DeepSpeedEngine",
            "TorchFullyShardedDataParallel", "_BaseDataParallel",
        ),
        "module",
    ),
}  # fmt: skip
"""Classes that only wrap a model, and the name of their attribute that is the model."""


@dataclass(frozen=True, slots=True)
class Place:
    """Describes one module. children: has modules of its own. lowest: of a supported type, with no supported layer below.

    compiled: runs as part of a region of torch.compile. holds_compiled: some module below it does.
    """

    module: nn.Module
    name: str
    class_name: str
    layer: Layer | None
    children: bool
    lowest: bool
    compiled: bool
    holds_compiled: bool


def layer_of(classes: Iterable[str], *, children: bool = False) -> Layer | None:
    """Return the layer type of a module by the names of its class and base classes, nearest first; None where it is no supported layer.

    The first known name decides, whatever the class does: a class of one's own called `Linear` is a `Linear`. Without a known name a
    class that ends in `RMSNorm` or `LayerNorm` (`LlamaRMSNorm`) is one, if it has no `children`.
    """
    names = tuple(classes)
    for name in names:
        known = _LAYER_TYPES.get(name)
        if known is not None:
            return known, SUPPORTED[known]
    if not children and names:
        for ending in _ENDINGS:
            if names[0].endswith(ending):
                return ending, OpType.LAYERNORM
    return None


def layer_of_module(module: object) -> Layer | None:
    """Return the layer type of a module. Transformer Engine's own `Linear` is a `TELinear`."""
    kinds = type(module).__mro__
    found = layer_of((kind.__name__ for kind in kinds), children=bool(getattr(module, "_modules", None)))
    if found is not None and found[0] == "Linear":
        nearest = next((kind for kind in kinds if kind.__name__ in _LAYER_TYPES), object)
        if nearest.__module__.startswith("transformer_engine."):
            return "TELinear", OpType.MATMUL
    return found


def class_name_of(module: object) -> str:
    """Return the class name of a module; of one that FSDP2 has given a class of its own (`FSDPLinear`) the class it had before."""
    kinds = [kind.__name__ for kind in type(module).__mro__]
    if len(kinds) > 2 and kinds[1] == "FSDPModule" and kinds[0] == "FSDP" + kinds[2]:
        return kinds[2]
    return kinds[0]


def is_module(thing: object) -> bool:
    """Return whether hooks can be put on it."""
    return hasattr(thing, "named_modules") and hasattr(thing, "_forward_pre_hooks")


def places(model: object) -> list[Place]:
    """Return all modules of a model in order, each object once under its first name; wrappers are left out.

    model: a module; several of them in a list or dictionary (their names then begin with position or key); the method of a module.
    Anything else has no modules: [].
    """
    out: list[Place] = []
    seen: set[int] = set()
    for prefix, root in _roots(model):
        out += _walk(root, prefix, seen)
    return out


def _roots(model: object) -> list[tuple[str, nn.Module]]:
    """Yields (prefix of names, outermost module) of each model."""
    if is_module(model):
        return [("", model)]  # type: ignore[list-item]
    if isinstance(model, Mapping):
        parts = [(str(key), one) for key, one in model.items()]
    elif isinstance(model, (list, tuple)):
        parts = [(str(k) if len(model) > 1 else "", one) for k, one in enumerate(model)]
    else:
        owner = getattr(model, "__self__", None)
        return [("", owner)] if is_module(owner) else []  # type: ignore[list-item]
    return [(".".join(filter(None, (key, prefix))), root) for key, one in parts for prefix, root in _roots(one)]


def wrapped_as(module: object) -> str | None:
    """Return the name of the attribute that is a wrapper's model; None if the module is none."""
    children = getattr(module, "_modules", None) or {}
    for kind in type(module).__mro__:
        key = _WRAPPERS.get(kind.__name__)
        if key is not None and children.get(key) is not None:
            return key
    return None


def _walk(root: nn.Module, prefix: str, seen: set[int]) -> list[Place]:
    met: list[tuple[nn.Module, str, bool, int]] = []  # module, name, compiled, number of the module around it
    todo: list[tuple[nn.Module, str, bool, int]] = [(root, prefix, False, -1)]
    while todo:
        module, name, compiled, above = todo.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        held = wrapped_as(module)
        compiled = compiled or _is_compiled(module)
        at = above
        if held is None:
            at = len(met)
            met.append((module, name, compiled, above))
        inside = compiled or type(module).__name__ == "OptimizedModule"
        todo += [
            (child, name if key == held else f"{name}.{key}" if name else key, inside if key == held or held is None else compiled, at)
            for key, child in reversed(_children(module))
        ]
    return list(_placed(met))


def any_compiled(model: object) -> bool:
    """Return whether one of `places(model)` is compiled, without making them: this is called after each sampled step."""
    modules = (module for _, root in _roots(model) for module in root.modules())
    return any(_is_compiled(module) or type(module).__name__ == "OptimizedModule" for module in modules)


def compiled_and_random(model: object, *, compiled: bool = False) -> bool:
    """Return whether a compiled part of the model draws random numbers in this mode, other ones than it would draw eagerly.

    compiled: compiled code runs the model, though no mark of it is on the model itself.
    Known are modules in training that drop something: those of torch, and those with a share of that name (`dropout`, `drop_path`,
    `attention_dropout`) above 0. Inductor draws numbers of its own unless `fallback_random` is set.
    """
    if not (compiled or any_compiled(model)) or getattr(sys.modules.get("torch._inductor.config"), "fallback_random", False):
        return False
    marked = any_compiled(model)
    return any((place.compiled or not marked) and place.module.training and _drops(place.module) for place in places(model))


def _drops(module: nn.Module) -> bool:
    if type(module).__name__.endswith("RReLU"):
        return True
    own = vars(module)
    shares = [own.get("p")] if "Drop" in type(module).__name__ else []
    shares += [value for name, value in own.items() if "drop" in name]
    return any(isinstance(share, (int, float)) and not isinstance(share, bool) and 0 < share <= 1 for share in shares)


def _is_compiled(module: nn.Module) -> bool:
    """Returns whether the module's call or its own `forward` was compiled in place."""
    own = vars(module).get("forward")
    return getattr(module, "_compiled_call_impl", None) is not None or hasattr(own, "_torchdynamo_orig_callable")


def _children(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Returns the modules of a module by name. A scripted module keeps them in a mapping of its own sort."""
    held = getattr(module, "_modules", None)
    return [] if held is None else [(key, child) for key, child in held.items() if is_module(child)]


def _placed(met: list[tuple[nn.Module, str, bool, int]]) -> Iterator[Place]:
    layers = [layer_of_module(module) for module, *_ in met]
    over_layer, over_compiled = [False] * len(met), [False] * len(met)
    for k in range(len(met) - 1, -1, -1):
        above = met[k][3]
        if above >= 0:
            over_layer[above] |= over_layer[k] or layers[k] is not None
            over_compiled[above] |= over_compiled[k] or met[k][2]
    for k, (module, name, compiled, _) in enumerate(met):
        lowest = layers[k] is not None and not over_layer[k]
        kind = class_name_of(module)
        yield Place(module, name or kind, kind, layers[k], bool(_children(module)), lowest, compiled, over_compiled[k])


def models_in(model: object) -> Iterator[object]:
    """Yield the models in nested lists and dicts; nothing for None."""
    if isinstance(model, Mapping):
        for one in model.values():
            yield from models_in(one)
    elif isinstance(model, (list, tuple)):
        for one in model:
            yield from models_in(one)
    elif model is not None:
        yield model
