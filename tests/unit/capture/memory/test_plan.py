"""Sizes of a model and its layout in the header of a capture: each only where it stands in so many words, with where it stands."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tb_sol_plugin as sol  # noqa: E402
from tb_sol_plugin.capture.memory.plan import PlanFacts  # noqa: E402
from tb_sol_plugin.cost.transformer.memory import PRESETS, Model  # noqa: E402
from tb_sol_plugin.format import PLAN  # noqa: E402
from tests.support.torch_models import transformer  # noqa: E402

QUIET = {"tensorboard": False, "console": False, "wandb": False}


def found(*models, told=None, args=None, **more):
    """{name: value} and {name: where it is from}."""
    facts = PlanFacts()
    facts.add_given(told)
    facts.read_args(args)
    out = facts.found(list(models), **{"groups": {}, "world": 1, **more})
    assert json.loads(json.dumps(out)) == out and set(out) <= set(PLAN)
    return {name: value for name, (value, _) in out.items()}, {name: where for name, (_, where) in out.items()}


def with_config(**config) -> nn.Module:
    model = nn.Linear(2, 2)
    model.config = SimpleNamespace(**config)
    return model


LLAMA = {
    "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 32000, "intermediate_size": 11008, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": False,
}  # fmt: skip
MEGATRON = {
    "hidden_size": 4096, "num_layers": 32, "padded_vocab_size": 32128, "ffn_hidden_size": 11008, "num_attention_heads": 32,
    "num_query_groups": 1, "group_query_attention": False, "kv_channels": 128, "seq_length": 2048, "micro_batch_size": 2,
    "global_batch_size": 64, "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "data_parallel_size": 4,
    "context_parallel_size": 1, "expert_model_parallel_size": 1, "virtual_pipeline_model_parallel_size": None, "sequence_parallel": True,
    "recompute_granularity": "selective", "untie_embeddings_and_output_weights": True, "swiglu": True, "normalization": "RMSNorm",
    "use_distributed_optimizer": True, "optimizer": "adam", "num_experts": None,
}  # fmt: skip


def test_a_configuration_of_hugging_face() -> None:
    # GIVEN a model with one, in one process
    values, where = found(with_config(**LLAMA))
    # THEN its sizes are there under the names of the plan, with the field each stands in
    assert values == {
        "hidden": 4096, "layers": 32, "vocab": 32000, "ffn": 11008, "heads": 32, "kv_heads": 8, "channels": 128, "tied": False,
        "dtype": "fp32", "tp": 1, "pp": 1, "dp": 1, "cp": 1, "ep": 1,
    }  # fmt: skip
    assert (where["hidden"], where["tied"], where["tp"]) == ("config.hidden_size", "config.tie_word_embeddings", "one process")


def test_the_feed_forward_of_gpt2_where_it_is_not_given() -> None:
    values, where = found(with_config(n_embd=768, n_layer=12, n_head=12, vocab_size=50257, n_inner=None))
    assert values["ffn"] == 4 * 768 and where["ffn"] == "4 × config.n_embd"
    # AND of a configuration that has no such field it is unknown
    assert "ffn" not in found(with_config(n_embd=768, n_layer=12))[0]


DEEPSEEK = {
    "hidden_size": 7168, "num_hidden_layers": 61, "vocab_size": 129280, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "num_attention_heads": 128, "num_key_value_heads": 128, "head_dim": 64, "qk_head_dim": 192, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "q_lora_rank": 1536, "kv_lora_rank": 512, "n_routed_experts": 256, "num_experts_per_tok": 8,
    "n_shared_experts": 1, "first_k_dense_replace": 3, "tie_word_embeddings": False,
}  # fmt: skip


def test_a_configuration_with_latent_attention_and_experts() -> None:
    # GIVEN the published configuration of DeepSeek-V3 WHEN read THEN the plan has as many parameters as the preset
    values, where = found(with_config(**DEEPSEEK))
    own = {name: value for name, value in values.items() if name in Model.__dataclass_fields__}
    preset = PRESETS["deepseek-v3"]
    assert Model(**own).parameters == preset.parameters and Model(**own) == replace(preset, kv_heads=128)
    assert where["ffn"] == "config.moe_intermediate_size" and where["dense_ffn"] == "config.intermediate_size"
    # AND experts of Qwen3 are as wide as it says, and Megatron's sizes of latent attention count where that is on
    assert found(with_config(**{**LLAMA, "num_experts": 8, "moe_intermediate_size": 768}))[0]["ffn"] == 768
    megatron = {**MEGATRON, "kv_lora_rank": 32, "qk_head_dim": 128, "qk_pos_emb_head_dim": 64, "multi_latent_attention": False}
    assert "kv_rank" not in found(args=megatron)[0]
    assert found(args={**megatron, "multi_latent_attention": True, "kv_channels": 16})[0] | {"kv_rank": 32, "channels": 128} == found(
        args={**megatron, "multi_latent_attention": True, "kv_channels": 16}
    )[0]


def test_arguments_of_megatron() -> None:
    # GIVEN the arguments of LLaMA-7B on 16 ranks: 64 samples over 4 data parallel ranks in microbatches of 2 are 8
    values, where = found(args=SimpleNamespace(**MEGATRON), world=16)
    assert values == {
        "hidden": 4096, "layers": 32, "vocab": 32128, "ffn": 11008, "heads": 32, "channels": 128, "gated": True, "rms_norm": True,
        "tied": False, "seq": 2048, "micro_batch": 2, "microbatches": 8, "tp": 2, "pp": 2, "dp": 4, "cp": 1, "ep": 1,
        "sequence_parallel": True, "recompute": "selective", "optimizer": "adam", "sharding": "optimizer",
    }  # fmt: skip
    assert where["vocab"] == "args.padded_vocab_size" and where["microbatches"] == "args.global_batch_size"
    # AND a number of query groups counts where groups are in use
    assert found(args={**MEGATRON, "group_query_attention": True})[0]["kv_heads"] == 1
    # AND where nothing is recomputed, it depends on the attention whether it keeps its scores
    assert found(args={**MEGATRON, "recompute_granularity": None})[0]["recompute"] == "none"
    assert found(args={**MEGATRON, "recompute_granularity": None, "use_flash_attn": True})[0]["recompute"] == "selective"
    # AND arguments of another script say nothing
    assert found(args=SimpleNamespace(seq_length=5, optimizer="adam"))[0].keys() == {"tp", "pp", "dp", "cp", "ep"}


def test_megatron_that_runs_is_asked_for_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("megatron.training.global_vars")
    module.get_args = lambda: SimpleNamespace(**MEGATRON)
    monkeypatch.setitem(sys.modules, "megatron.training.global_vars", module)
    assert found(world=16)[0]["hidden"] == 4096
    module.get_args = lambda: 1 / 0
    assert "hidden" not in found(world=16)[0]


def test_a_configuration_of_megatron_and_what_its_model_holds() -> None:
    # GIVEN a model within wrappers, whose configuration has no vocabulary
    inner = with_config(hidden_size=64, num_layers=2, num_attention_heads=4, num_query_groups=2, gated_linear_unit=True,
                        normalization="RMSNorm", ffn_hidden_size=160, recompute_granularity=None, attention_backend="AttnBackend.flash")  # fmt: skip
    inner.vocab_size, inner.share_embeddings_and_output_weights = 512, True
    outer = nn.Module()
    outer.module = inner
    outer.__class__ = type("DistributedDataParallel", (nn.Module,), {})
    values, where = found(outer, world=4)
    assert (values["vocab"], values["tied"], values["kv_heads"], values["gated"], values["rms_norm"]) == (512, True, 2, True, True)
    assert values["recompute"] == "selective" and where["vocab"] == "model.vocab_size" and "tp" not in values


def test_what_is_told_comes_first_and_odd_names_are_noted() -> None:
    facts = PlanFacts()
    facts.add_given({"hidden": 128, "tp": 2, "recompute": "full", "colour": "red", "layers": 2.5, "heads": -1, "dp": 10**15})
    out = facts.found([with_config(**LLAMA)], groups={"tp": [0, 4], "pp": [1, 2]}, world=8)
    assert (out["hidden"], out["tp"], out["pp"]) == ([128, "told"], [2, "told"], [2, "process groups"])
    assert facts.unknown == ("colour", "layers", "heads", "dp") and out["layers"] == [32, "config.num_hidden_layers"]
    for odd in (None, 3, "hidden=3", [1]):
        other = PlanFacts()
        other.add_given(odd)
        assert other.given == {}


def test_groups_that_fill_the_world_leave_no_room_for_others() -> None:
    values, where = found(groups={"dp": [1, 4], "tp": [0, 2]}, world=8)
    assert {name: values[name] for name in ("tp", "pp", "dp", "cp")} == {"tp": 2, "pp": 1, "dp": 4, "cp": 1}
    assert where["pp"] == "the other groups fill 8 processes" and "ep" not in values  # experts may be divided over data parallel ranks
    # AND where they do not, the others are unknown
    assert set(found(groups={"tp": [0, 2]}, world=8)[0]) == {"tp"}


def test_tensors_norms_and_matrices_of_the_model() -> None:
    # GIVEN a decoder with RMS norms and gates in BF16
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.gate_proj = nn.RMSNorm(8), nn.Linear(8, 16)

    values, where = found(nn.ModuleList([Gated(), Gated()]).bfloat16())
    assert (values["rms_norm"], values["gated"], values["dtype"]) == (True, True, "bf16") and where["rms_norm"] == "norms of the model"
    # AND with norms of both sorts, or as many bytes of one type as of another, it is not certain
    mixed = nn.ModuleList([nn.RMSNorm(8), nn.LayerNorm(8)])
    assert "rms_norm" not in found(mixed)[0]
    half = nn.ModuleList([nn.Linear(4, 4, bias=False), nn.Linear(8, 4, bias=False).bfloat16()])
    assert "dtype" not in found(half)[0]


def test_optimizers_by_their_class() -> None:
    model = nn.Linear(2, 2)
    adam, plain = torch.optim.AdamW(model.parameters()), torch.optim.SGD(model.parameters(), lr=0.1)
    assert found(model, optimizer=adam)[0]["optimizer"] == "adam" and found(model, optimizer=plain)[0]["optimizer"] == "sgd"
    assert found(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))[0]["optimizer"] == "sgd_momentum"
    assert "optimizer" not in found(model, optimizer=torch.optim.Adagrad(model.parameters()))[0]
    # AND what wraps it says how its state is divided
    wrapped = type("DistributedOptimizer", (), {"optimizer": adam})()
    values, where = found(model, optimizer=[wrapped])
    assert (values["optimizer"], values["sharding"], where["sharding"]) == ("adam", "optimizer", "DistributedOptimizer")
    engine = SimpleNamespace(zero_optimization_stage=lambda: 2, optimizer=adam)
    assert found(engine)[0]["sharding"] == "gradients"


def test_fsdp2_divides_all(tmp_path: Path) -> None:
    fully_shard = getattr(pytest.importorskip("torch.distributed.fsdp"), "fully_shard", None)
    if fully_shard is None:
        pytest.skip("this torch has no fully_shard")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        model = nn.Linear(4, 4)
        fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (1,), mesh_dim_names=("dp",)))
        assert found(model)[0]["sharding"] == "full"
    finally:
        torch.distributed.destroy_process_group()
    assert "sharding" not in found(nn.Linear(4, 4))[0]


@pytest.mark.parametrize(
    ("inputs", "more", "expected"),
    [
        ([(2, 64)] * 3, {}, {"micro_batch": 2, "microbatches": 3, "seq": 64}),
        ([(2, 64), (2, 60)], {}, {}),
        ([], {}, {}),
        ([(2, 64)], {"told": {"cp": 2}}, {"micro_batch": 2, "microbatches": 1}),  # each rank is given a part of the sequence
        ([(2, 64)] * 4, {"told": {"vpp": 2}}, {"micro_batch": 2, "seq": 64}),  # each chunk is called
    ],
)
def test_sizes_of_inputs_where_all_calls_are_alike(inputs, more, expected) -> None:
    values, _ = found(inputs=inputs, **more)
    assert {name: values[name] for name in ("micro_batch", "microbatches", "seq") if name in values} == expected


def test_a_tracked_run_has_them_in_its_header(tmp_path: Path) -> None:
    # GIVEN a decoder that is called twice with 2 x 16 tokens per iteration, and told what it cannot show
    model = transformer(layers=1, width=16, heads=2, kv_heads=2, hidden=32, vocab=50, gated=False, causal=True, fused=True)
    optimizer = torch.optim.Adam(model.parameters())
    with sol.capture(str(tmp_path), model=model, optimizer=optimizer, plan={"hidden": 16, "nothing": 1}, **QUIET) as tracker:
        for _ in range(2):
            for _ in range(2):
                model(torch.zeros(2, 16, dtype=torch.long)).sum().backward()
            optimizer.step()
            tracker.step()
    (path,) = tmp_path.glob("*.sol.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    plan = lines[0]["plan"]
    assert plan["hidden"] == [16, "told"] and plan["seq"] == [16, "inputs"] and plan["microbatches"] == [2, "inputs"]
    assert plan["optimizer"] == ["adam", "Adam"] and plan["dtype"] == ["fp32", "parameters"] and plan["dp"] == [1, "one process"]
    assert any(one["kind"] == "note" and one["code"] == "plan" and "nothing" in one["text"] for one in lines)


def test_odd_models_raise_nothing() -> None:
    class Hostile:
        def __getattr__(self, name: str):
            raise RuntimeError(name)

    for odd in (Hostile(), None, 3, {"config": Hostile()}, with_config(num_layers="many"), with_config(num_layers=True)):
        assert "layers" not in found(odd, args=odd, told=None)[0]
