"""Names of modules without what wrappers put into them, and layers told by class names."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tb_sol_plugin.capture.hooks.module_names import class_name_of, is_module, layer_of, layer_of_module, places
from tb_sol_plugin.capture.operation_registry import OpType

torch = pytest.importorskip("torch", reason="names modules of PyTorch")
nn = torch.nn


def names(model: object) -> list[str]:
    return [place.name for place in places(model)]


def small() -> Any:
    return nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.LayerNorm(4), nn.ReLU()))


@pytest.fixture
def group() -> Iterator[None]:
    """A process group of one."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_the_outermost_module_has_the_name_of_its_class_and_all_others_their_qualified_names() -> None:
    assert names(small()) == ["Sequential", "0", "1", "1.0", "1.1"]
    # A module that is one layer has a name, too
    assert names(nn.Linear(2, 2)) == ["Linear"]


def test_wrappers_leave_no_trace_in_names(group: None) -> None:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.nn.parallel import DistributedDataParallel

    plain = names(small())
    # GIVEN the same model in every wrapper, and in several at once
    assert names(DistributedDataParallel(small())) == plain
    assert names(nn.DataParallel(small())) == plain
    assert names(torch.compile(small(), backend="eager")) == plain
    assert names(torch.compile(DistributedDataParallel(small()), backend="eager")) == plain
    assert names(DistributedDataParallel(torch.compile(small(), backend="eager"))) == plain
    inner = small()
    inner[1] = checkpoint_wrapper(inner[1])
    assert names(inner) == plain
    inner[0] = torch.compile(inner[0], backend="eager")
    assert names(inner) == plain


def test_fsdp_of_both_kinds_keeps_names_and_classes(group: None) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    wrapped = FullyShardedDataParallel(small(), device_id=torch.device("cpu"), use_orig_params=True)
    assert names(wrapped) == names(small())
    fully_shard = pytest.importorskip("torch.distributed.fsdp", reason="needs FSDP2").__dict__.get("fully_shard")
    if fully_shard is None:
        pytest.skip("this torch has no fully_shard")
    model, mesh = small(), torch.distributed.init_device_mesh("cpu", (1,))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    assert type(model[0]).__name__ == "FSDPLinear"
    assert [(p.name, p.class_name) for p in places(model)][:2] == [("Sequential", "Sequential"), ("0", "Linear")]
    assert places(model)[1].layer == ("Linear", OpType.MATMUL)


def test_a_child_called_module_is_no_wrapper() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = nn.Linear(2, 2)

    assert names(Holder()) == ["Holder", "module"]

    # but in Megatron's wrapper for half precision, known by its name, it is
    Float16Module = type("Float16Module", (Holder,), {})
    assert names(Float16Module()) == ["Linear"]


def test_a_shared_module_has_its_first_name_only() -> None:
    shared = nn.Linear(2, 2)
    assert names(nn.ModuleDict({"a": shared, "b": nn.Sequential(shared)})) == ["ModuleDict", "a", "b"]
    # also when it is shared between models
    assert names([nn.Sequential(shared), nn.Sequential(shared, nn.ReLU())]) == ["0", "0.0", "1", "1.1"]


def test_several_models_have_different_names() -> None:
    assert names([small(), nn.Linear(1, 1)]) == ["0", "0.0", "0.1", "0.1.0", "0.1.1", "1"]
    assert names({"actor": nn.Linear(1, 1), "critic": nn.Sequential(nn.ReLU())}) == ["actor", "critic", "critic.0"]
    # a list of one, as pipelines without virtual stages have it, is that one
    assert names([small()]) == names(small())
    assert names(({"a": nn.ReLU()}, [nn.ReLU(), None])) == ["0.a", "1.0"]


@pytest.mark.parametrize("model", [None, abs, 3, "model", [], {}, object(), lambda x: x, [None, abs]])
def test_what_has_no_modules_has_no_places(model: object) -> None:
    assert places(model) == []


def test_the_method_of_a_module_stands_for_the_module() -> None:
    assert names(small().forward) == names(small())


def test_models_that_hold_themselves_and_deep_ones() -> None:
    # GIVEN a module below itself, and a chain deeper than Python recurses
    loop = nn.Sequential(nn.ReLU())
    loop.add_module("again", loop)
    assert names(loop) == ["Sequential", "0"]
    deep = nn.ReLU()
    for _ in range(1500):
        deep = nn.Sequential(deep)
    assert len(places(deep)) == 1501


def test_modules_of_a_scripted_model_are_found() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(nn.Sequential(nn.Linear(2, 2)))
    assert names(nn.Sequential(scripted)) == ["Sequential", "0", "0.0"]


def test_an_attribute_that_is_no_module_is_passed_over() -> None:
    model = nn.Sequential(nn.ReLU())
    model._modules["none"] = None
    model._modules["odd"] = "text"
    assert names(model) == ["Sequential", "0"]


# --- Layers ---

TRUTH = [
    (("Linear", "Module"), ("Linear", OpType.MATMUL)),
    (("NonDynamicallyQuantizableLinear", "Linear", "Module"), ("Linear", OpType.MATMUL)),
    (("ColumnParallelLinear", "Module"), ("Linear", OpType.MATMUL)),
    (("RowParallelLinear", "Module"), ("Linear", OpType.MATMUL)),
    (("Linear4bit", "Linear", "Module"), ("Linear", OpType.MATMUL)),
    (("Conv1D", "Module"), ("Linear", OpType.MATMUL)),
    (("TELinear", "Linear", "TransformerEngineBaseModule", "Module"), ("TELinear", OpType.MATMUL)),
    (("TEColumnParallelLinear", "TELinear", "Linear", "Module"), ("TELinear", OpType.MATMUL)),
    (("TERowParallelLinear", "TELinear", "Linear", "Module"), ("TELinear", OpType.MATMUL)),
    (("TEColumnParallelGroupedLinear", "TEGroupedLinear", "GroupedLinear", "Module"), ("TELinear", OpType.MATMUL)),
    (("TELayerNormColumnParallelLinear", "LayerNormLinear", "Module"), ("TELayerNormLinear", OpType.MATMUL)),
    (("LayerNormLinear", "Module"), ("TELayerNormLinear", OpType.MATMUL)),
    (("LayerNormMLP", "Module"), ("TELayerNormMLP", OpType.MATMUL)),
    (("TEDotProductAttention", "DotProductAttention", "Module"), ("TEDotProductAttention", OpType.ATTENTION)),
    (("DotProductAttention", "Module"), ("TEDotProductAttention", OpType.ATTENTION)),
    (("Embedding", "Module"), ("Embedding", OpType.EMBEDDING)),
    (("VocabParallelEmbedding", "Module"), ("Embedding", OpType.EMBEDDING)),
    (("FusedLayerNorm", "Module"), ("LayerNorm", OpType.LAYERNORM)),
    (("LlamaRMSNorm", "Module"), ("RMSNorm", OpType.LAYERNORM)),
    (("BertLayerNorm", "Module"), ("LayerNorm", OpType.LAYERNORM)),
    (("GroupNorm", "Module"), None),
    (("Conv2d", "_ConvNd", "Module"), None),
    (("MultiheadAttention", "Module"), None),
    (("Bilinear", "Module"), None),
    (("LlamaRotaryEmbedding", "Module"), None),
    ((), None),
]


@pytest.mark.parametrize(("classes", "layer"), TRUTH, ids=["-".join(classes[:1]) for classes, _ in TRUTH])
def test_a_layer_is_told_by_the_names_of_its_classes(classes: tuple[str, ...], layer: object) -> None:
    assert layer_of(classes) == layer


def test_an_unknown_class_with_modules_of_its_own_is_no_normalization() -> None:
    assert layer_of(("AttentionAndLayerNorm", "Module"), children=True) is None
    assert layer_of(("AttentionAndLayerNorm", "Module"), children=False) == ("LayerNorm", OpType.LAYERNORM)


def test_ones_own_class_called_linear_is_a_linear() -> None:
    # The documented rule: the name decides, the nearest first
    class Linear(nn.Module):
        pass

    class RMSNorm(Linear):
        pass

    assert layer_of_module(Linear()) == ("Linear", OpType.MATMUL)
    assert layer_of_module(RMSNorm()) == ("RMSNorm", OpType.LAYERNORM)


def test_the_linear_of_transformer_engine_is_known_by_its_package() -> None:
    Linear = type("Linear", (nn.Module,), {"__module__": "transformer_engine.pytorch.module.linear"})
    assert layer_of_module(Linear()) == ("TELinear", OpType.MATMUL)
    assert layer_of_module(nn.Linear(1, 1)) == ("Linear", OpType.MATMUL)


def test_quantized_and_lazy_linears_are_linears() -> None:
    assert layer_of_module(nn.LazyLinear(3)) == ("Linear", OpType.MATMUL)
    dynamic = pytest.importorskip("torch.ao.nn.quantized.dynamic", reason="needs quantized layers")
    assert layer_of_module(dynamic.Linear(2, 2)) == ("Linear", OpType.MATMUL)


def test_the_lowest_supported_layers_are_marked() -> None:
    # GIVEN a Linear that holds two others, as adapters do
    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base_layer, self.lora = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 1))

    found = {place.name: place for place in places(nn.Sequential(Linear(), nn.ReLU()))}
    assert [name for name, place in found.items() if place.lowest] == ["0.base_layer", "0.lora.0"]
    assert found["0"].layer == ("Linear", OpType.MATMUL) and found["1"].layer is None


def test_compiled_regions_are_marked() -> None:
    # GIVEN one compiled child by torch.compile, one by Module.compile
    model = nn.Sequential(nn.Sequential(nn.ReLU()), nn.ReLU(), torch.compile(nn.Sequential(nn.ReLU()), backend="eager"))
    model[0].compile(backend="eager")
    found = places(model)
    assert [(p.name, p.compiled) for p in found] == [
        ("Sequential", False), ("0", True), ("0.0", True), ("1", False), ("2", True), ("2.0", True),
    ]  # fmt: skip
    assert [p.name for p in found if p.holds_compiled] == ["Sequential", "0", "2"]


def test_a_forward_that_was_compiled_in_place_is_a_compiled_region() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Sequential(nn.ReLU()))
    model[1].forward = torch.compile(model[1].forward, backend="eager")
    assert [(p.name, p.compiled) for p in places(model)] == [("Sequential", False), ("0", False), ("1", True), ("1.0", True)]


def test_a_model_without_parameters_has_places() -> None:
    assert names(nn.Sequential(nn.ReLU(), nn.Dropout())) == ["Sequential", "0", "1"]
    assert is_module(nn.ReLU()) and not is_module(torch.relu) and class_name_of(nn.ReLU()) == "ReLU"
