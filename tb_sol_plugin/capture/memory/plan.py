"""Finds the sizes and the layout of a model in training, as the memory plan names them, for the memory that it should need.

Each value comes from a place that states it: the script, an argument of Megatron, the configuration of the model, the groups of
processes, the tensors themselves, or the sizes of what the model is called with. Nothing is guessed; what is not certain is left out.
Names are those of `format.PLAN`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tb_sol_plugin.capture.hooks.module_names import places, wrapped_as
from tb_sol_plugin.capture.loop.header import value_or_none
from tb_sol_plugin.capture.memory.model_state import attribute, instance_attribute, optimizers_in
from tb_sol_plugin.capture.memory.plan_parameters import of_parameters
from tb_sol_plugin.format import PLAN

Value: TypeAlias = "int | bool | str"
Found: TypeAlias = "dict[str, tuple[Value, str]]"
"""{name: (value, where it is from)}."""

GIVEN: Final = "told"
LARGEST: Final = 1 << 40
_TEXT: Final = 80
_WRAPPED: Final = 8

NUMBERS: Final[dict[str, tuple[str, ...]]] = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "num_layers", "n_layer"),
    "vocab": ("padded_vocab_size", "vocab_size"),
    "ffn": ("ffn_hidden_size", "intermediate_size", "n_inner"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_query_groups", "num_key_value_heads"),
    "channels": ("qk_nope_head_dim", "kv_channels", "head_dim"),
    "experts": ("num_moe_experts", "num_local_experts", "num_experts", "n_routed_experts"),
    "experts_per_token": ("moe_router_topk", "num_experts_per_tok"),
    "shared_experts": ("n_shared_experts",),
    "dense_layers": ("first_k_dense_replace",),
    "tp": ("tensor_model_parallel_size",),
    "pp": ("pipeline_model_parallel_size",),
    "vpp": ("virtual_pipeline_model_parallel_size",),
    "dp": ("data_parallel_size",),
    "cp": ("context_parallel_size",),
    "ep": ("expert_model_parallel_size",),
    "etp": ("expert_tensor_parallel_size",),
    "seq": ("seq_length",),
    "micro_batch": ("micro_batch_size",),
}
"""Names of whole numbers in the configurations of Megatron and Hugging Face."""
LATENT: Final[dict[str, tuple[str, ...]]] = {
    "kv_rank": ("kv_lora_rank",),
    "q_rank": ("q_lora_rank",),
    "rope_channels": ("qk_rope_head_dim", "qk_pos_emb_head_dim"),
}
"""The same of latent attention. Megatron has them for every model: they count where it says `multi_latent_attention`."""
OF_EXPERTS: Final = ("moe_ffn_hidden_size", "moe_intermediate_size")
"""Width of an expert, where that of the feed-forward is the one of layers without."""
WORLD: Final = ("tp", "pp", "dp", "cp")
"""Groups whose sizes multiply to the number of processes."""
GROUPED: Final = (*WORLD, "ep")
OPTIMIZERS: Final[dict[str, tuple[str, ...]]] = {
    "adam": ("Adam", "AdamW", "FusedAdam", "DeepSpeedCPUAdam", "CPUAdam", "HybridAdam", "DistributedFusedAdam"),
    "adam8bit": ("Adam8bit", "AdamW8bit", "PagedAdam8bit", "PagedAdamW8bit"),
    "lion": ("Lion", "FusedLion", "DeepSpeedCPULion"),
}
"""Optimizers by the names of their classes."""
DISTRIBUTED: Final = ("DistributedOptimizer", "ZeroRedundancyOptimizer", "DistributedFusedAdam")
"""Optimizers whose state data parallel ranks divide among them."""
ZERO: Final = ("none", "optimizer", "gradients", "full")
"""What is divided, by the stage of DeepSpeed's ZeRO."""
GATED: Final = ("gate_proj", "gate_up_proj")
"""Names of a third matrix of a feed-forward."""
_DTYPES: Final = {"torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32"}


@dataclass
class PlanFacts:
    """Collects what is known. given: values that the script passed. args: its parsed arguments, of which only the sizes are kept."""

    given: Found = field(default_factory=dict)
    args: Found = field(default_factory=dict)
    unknown: tuple[str, ...] = ()

    def add_given(self, values: object) -> None:
        """Take the values that the script passed. Names that are no fields of the plan, and values that cannot be, are in `unknown`."""
        pairs = value_or_none(lambda: list(values.items())) if isinstance(values, Mapping) else None
        for name, value in pairs or ():
            plain = _plain(value)
            if str(name) in PLAN and plain is not None:
                self.given[str(name)] = (plain, GIVEN)
            else:
                self.unknown += (str(name)[:_TEXT],)

    def read_args(self, args: object) -> None:
        """Take the sizes that parsed arguments have, if they are those of a script of Megatron."""
        if args is not None and _number(_lookup(args, "num_layers")) is not None and _number(_lookup(args, "hidden_size")) is not None:
            self.args = value_or_none(lambda: _of_args(args)) or {}

    def found(
        self,
        models: Sequence[object],
        *,
        groups: Mapping[str, Sequence[int]],
        world: int,
        optimizer: object = None,
        inputs: Iterable[tuple[int, int]] = (),
    ) -> dict[str, list[Value]]:
        """Return {name: [value, its source]}. groups: {name: [rank, size]}; inputs: [samples, length] of each call in one iteration."""
        if not self.args:
            self.read_args(value_or_none(_args_of_megatron))
        sources: tuple[Callable[[], Found], ...] = (
            lambda: _of_groups(groups),
            lambda: self.args,
            lambda: _of_configs(models),
            lambda: _of_modules(models),
            lambda: _of_tensors(models),
            lambda: _of_optimizer(models, optimizer),
        )
        out: Found = dict(self.given)
        for source in sources:
            out = (value_or_none(source) or {}) | out
        out = (value_or_none(lambda: _of_names(models, out)) or {}) | out
        out = (value_or_none(lambda: _of_inputs(list(inputs), out)) or {}) | out
        out = (value_or_none(lambda: _of_world(out, groups, world, models)) or {}) | out
        return {name: list(out[name]) for name in PLAN if name in out}


# --- Configurations ---


def _of_args(args: object) -> Found:
    """Return the facts of Megatron's arguments. A number of query groups counts only where groups are in use."""
    out = _named(args, "args")
    if not _lookup(args, "group_query_attention"):
        out.pop("kv_heads", None)
    untied = _lookup(args, "untie_embeddings_and_output_weights")
    if isinstance(untied, bool):
        out["tied"] = (not untied, "args.untie_embeddings_and_output_weights")
    if isinstance(swiglu := _lookup(args, "swiglu"), bool):
        out["gated"] = (swiglu, "args.swiglu")
    if isinstance(distributed := _lookup(args, "use_distributed_optimizer"), bool):
        out["sharding"] = ("optimizer" if distributed else "none", "args.use_distributed_optimizer")
    if (kind := str(_lookup(args, "optimizer"))) == "adam":
        out["optimizer"] = (kind, "args.optimizer")
    whole, micro, dp = (_number(_lookup(args, name)) for name in ("global_batch_size", "micro_batch_size", "data_parallel_size"))
    if whole and micro and dp and whole % (micro * dp) == 0:
        out["microbatches"] = (whole // (micro * dp), "args.global_batch_size")
    return out


def _args_of_megatron() -> object:
    """Return the arguments that a running Megatron keeps."""
    for name in ("megatron.training.global_vars", "megatron.global_vars"):
        if name in sys.modules:
            return sys.modules[name].get_args()
    return None


def _of_configs(models: Sequence[object]) -> Found:
    """Return the facts of the configuration of the first model that has one. Megatron's models have some sizes themselves."""
    for model in models:
        for one in _inside(model):
            config = _lookup(one, "config")
            if config is None or _number(_first(config, NUMBERS["layers"])[0]) is None:
                continue
            out = _named(config, "config")
            wide = _number(_lookup(config, "n_embd"))
            if wide and "ffn" not in out and _has(config, "n_inner"):  # as GPT-2 has it where it is not given
                out["ffn"] = (4 * wide, "4 × config.n_embd")
            size = _number(_lookup(one, "vocab_size"))
            if size:
                out.setdefault("vocab", (size, "model.vocab_size"))
            for name, holder, where in (("tie_word_embeddings", config, "config"), ("share_embeddings_and_output_weights", one, "model")):
                if isinstance(shared := _lookup(holder, name), bool):
                    out.setdefault("tied", (shared, f"{where}.{name}"))
            return out
    return {}


def _named(config: object, where: str) -> Found:
    """Return what both kinds of configurations name alike."""
    out: Found = {}
    for name, spellings in NUMBERS.items():
        value, spelling = _first(config, spellings)
        if (number := _number(value)) is not None:
            out[name] = (number, f"{where}.{spelling}")
    width, spelling = _first(config, OF_EXPERTS)
    if "experts" in out and (number := _number(width)) is not None:
        out |= {"dense_ffn": out["ffn"]} if "ffn" in out and "dense_layers" in out else {}
        out["ffn"] = (number, f"{where}.{spelling}")
    out |= _latent(config, where)
    if isinstance(parallel := _lookup(config, "sequence_parallel"), bool):
        out["sequence_parallel"] = (parallel, f"{where}.sequence_parallel")
    if isinstance(gated := _lookup(config, "gated_linear_unit"), bool):
        out["gated"] = (gated, f"{where}.gated_linear_unit")
    if (norm := str(_lookup(config, "normalization"))) in ("RMSNorm", "LayerNorm"):
        out["rms_norm"] = (norm == "RMSNorm", f"{where}.normalization")
    if (recompute := _lookup(config, "recompute_granularity")) in ("full", "selective"):
        out["recompute"] = (str(recompute), f"{where}.recompute_granularity")
    elif _has(config, "recompute_granularity") and recompute is None:
        fused = _lookup(config, "use_flash_attn") is True or "flash" in str(_lookup(config, "attention_backend"))
        reason = "attention keeps no scores" if fused else "nothing is recomputed"
        out["recompute"] = ("selective" if fused else "none", f"{where}: {reason}")
    return out


def _latent(config: object, where: str) -> Found:
    """Return the facts of latent attention; {} of other attention."""
    stated = _lookup(config, "multi_latent_attention")
    if stated is False or (stated is None and not _has(config, "qk_nope_head_dim")):
        return {}
    out: Found = {}
    spellings = LATENT if stated is None else {**LATENT, "channels": ("qk_head_dim",)}
    for name, known in spellings.items():
        value, spelling = _first(config, known)
        if (number := _number(value)) is not None:
            out[name] = (number, f"{where}.{spelling}")
    return out


# --- Processes ---


def _of_groups(groups: Mapping[str, Sequence[int]]) -> Found:
    return {name: (int(groups[name][1]), "process groups") for name in GROUPED if name in groups and int(groups[name][1]) > 0}


def _of_world(out: Found, groups: Mapping[str, Sequence[int]], world: int, models: Sequence[object]) -> Found:
    """Return sizes that follow from the number of processes: of one all are 1, as are those next to groups that fill the world."""
    if world == 1:
        return dict.fromkeys(GROUPED, (1, "one process"))
    if not groups and any(type(one).__name__ == "DistributedDataParallel" for model in models for one in _inside(model)):
        group = next((_lookup(one, "process_group") for model in models for one in _inside(model) if _has(one, "process_group")), None)
        size = _number(value_or_none(lambda: group.size()))  # type: ignore[attr-defined]
        out = out | ({"dp": (size, "process group of DistributedDataParallel")} if size else {})
    filled = 1
    for name in WORLD:
        filled *= int(out[name][0]) if name in out else 1
    rest: Found = dict.fromkeys(WORLD, (1, f"the other groups fill {world} processes")) if filled == world else {}
    return rest | ({"dp": out["dp"]} if "dp" in out else {})


# --- Modules, tensors, optimizer, inputs ---


def _of_modules(models: Sequence[object]) -> Found:
    """Norms of one sort, and feed-forwards whose third matrix has its usual name."""
    out: Found = {}
    found = [place for model in models for place in value_or_none(lambda model=model: places(model)) or ()]  # type: ignore[misc]
    norms = Counter("RMSNorm" if "RMSNorm" in kind else "LayerNorm" for place in found if "Norm" in (kind := _layer(place.layer)))
    if len(norms) == 1:
        (kind,) = norms
        out["rms_norm"] = (kind == "RMSNorm", "norms of the model")
    if any(place.name.rpartition(".")[2] in GATED for place in found):
        out["gated"] = (True, "feed-forwards of the model")
    return out


def _layer(layer: object) -> str:
    return str(layer[0]) if isinstance(layer, tuple) else ""


def _of_tensors(models: Sequence[object]) -> Found:
    """Return the type that most bytes of the parameters have, and whether they are divided among ranks."""
    widths: Counter[str] = Counter()
    sharded = False
    for model in models:
        for parameter in value_or_none(lambda model=model: list(model.parameters())) or ():  # type: ignore[attr-defined,misc]
            widths[_DTYPES.get(str(parameter.dtype), "")] += parameter.numel() * parameter.element_size()
            sharded = sharded or _divided(parameter)
    out: Found = {}
    if widths and (most := widths.most_common(1)[0])[0] and 2 * most[1] > sum(widths.values()):
        out["dtype"] = (most[0], "parameters")
    if sharded or any("FullyShardedDataParallel" in type(one).__name__ for model in models for one in _inside(model)):
        out["sharding"] = ("full", "parameters")
    return out


def _of_names(models: Sequence[object], out: Found) -> Found:
    """Return what the parameters of the model say of its layers. Those of a chunk or stage say it of these alone, which are all alike."""
    named = (value_or_none(lambda model=model: list(model.named_parameters(remove_duplicate=False))) for model in models)  # type: ignore[attr-defined,misc]
    return of_parameters([pair for pairs in named for pair in pairs or ()], out)


def _divided(parameter: object) -> bool:
    """Return whether a parameter is sharded over another dimension of its mesh than that of tensor parallel ranks."""
    spread, names = _lookup(parameter, "placements"), _lookup(_lookup(parameter, "device_mesh"), "mesh_dim_names")
    if not isinstance(spread, tuple):
        return False
    named = [str(name) for name in names] if isinstance(names, tuple) else [""] * len(spread)
    return any(type(one).__name__ == "Shard" and name not in ("tp", "tensor") for one, name in zip(spread, named, strict=False))


def _of_optimizer(models: Sequence[object], optimizer: object) -> Found:
    out: Found = {}
    stage = next((s for m in models if (s := _number(value_or_none(lambda m=m: m.zero_optimization_stage()), least=0)) is not None), None)  # type: ignore[attr-defined,misc]
    if stage is not None and stage < len(ZERO):
        out["sharding"] = (ZERO[stage], "ZeRO stage")
    for one in optimizers_in(list(models) if optimizer is None else optimizer):
        name = type(one).__name__
        if name in DISTRIBUTED:
            out.setdefault("sharding", ("optimizer", name))
        kind = next((kind for kind, names in OPTIMIZERS.items() if name in names), "")
        if name in ("SGD", "FusedSGD"):
            groups = attribute(one, "param_groups")
            momentum = groups[0].get("momentum") if isinstance(groups, list) and groups and isinstance(groups[0], Mapping) else None
            kind = "" if momentum is None else "sgd_momentum" if momentum else "sgd"
        if kind:
            out.setdefault("optimizer", (kind, name))
    return out


def _of_inputs(inputs: Sequence[tuple[int, int]], out: Found) -> Found:
    """Return sizes that all calls of the iteration have alike; with the sequence divided over ranks (cp), the whole."""
    if len(set(inputs)) != 1:
        return {}
    samples, length = inputs[0]
    found: Found = {"micro_batch": (samples, "inputs")}
    if "vpp" not in out or out["vpp"][0] == 1:  # with chunks of a stage each of them is called
        found["microbatches"] = (len(inputs), "inputs")
    if "cp" not in out or out["cp"][0] == 1:
        found["seq"] = (length, "inputs")
    return found


# --- Reading ---


def _inside(model: object) -> Iterator[object]:
    """Yield a model and what it wraps, outermost first."""
    for _ in range(_WRAPPED):
        yield model
        name = value_or_none(lambda model=model: wrapped_as(model))  # type: ignore[misc]
        held = instance_attribute(model, "_modules") if name else None
        inner = held.get(name) if isinstance(held, Mapping) else None
        if inner is None:
            return
        model = inner


def _has(thing: object, name: str) -> bool:
    return bool(name in thing if isinstance(thing, Mapping) else value_or_none(lambda: hasattr(thing, name)))


def _lookup(thing: object, name: str) -> object:
    """Return an entry of a dict or an attribute of anything else; None where there is none, and where asking fails."""
    return value_or_none(lambda: thing.get(name)) if isinstance(thing, Mapping) else attribute(thing, name)


def _first(config: object, names: Iterable[str]) -> tuple[object, str]:
    """Return the value of the first name that has one, and the name."""
    return next(((value, name) for name in names if (value := _lookup(config, name)) is not None), (None, ""))


def _number(value: object, least: int = 1) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and least <= value < LARGEST else None


def _plain(value: object) -> Value | None:
    """Return what stands for itself in the file: a flag, a whole number, a word."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value[:_TEXT] or None
    return _number(value, least=0)
