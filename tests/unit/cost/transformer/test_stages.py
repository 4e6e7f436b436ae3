"""Expected memory of pipeline stages, against figures worked out for LLaMA-7B and against sums by hand."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.analyses.memory.memory_plan_tables import CALLED
from tb_sol_plugin.cost.transformer.memory import (
    PRESETS,
    SOURCES,
    Layout,
    Model,
    Stage,
    dense_on,
    formula,
    in_flight,
    logits,
    parameters,
    per_parameter,
    stages,
    tables,
)
from tests.conftest import ROOT

LLAMA = PRESETS["llama-7b"]
TP2_PP2 = Layout(tp=2, pp=2)
GB, GIB, MIB = 1e9, float(1 << 30), 1 << 20


def fixed(stage: Stage) -> int:
    """Bytes that stay from step to step."""
    return stage.total_bytes - stage.activation_bytes - stage.logits_bytes


def test_sizes_of_the_presets():
    assert (LLAMA.layer, LLAMA.parameters) == (202_383_360, 6_738_415_616)
    assert PRESETS["llama-13b"].parameters == 13_015_864_320
    assert PRESETS["llama-70b"].parameters == 68_976_648_192
    assert round(PRESETS["gpt3-175b"].parameters / GB) == 175


PUBLISHED = {
    "llama3-8b": 8_030_261_248, "llama3-70b": 70_553_706_496, "llama3-405b": 405_853_388_800, "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704, "qwen2.5-7b": 7_615_616_512, "qwen2.5-72b": 72_706_203_648, "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264, "qwen3-30b-a3b": 30_532_122_624, "deepseek-v3": 671_026_404_352, "gpt2": 124_439_808,
    "gpt3-175b": 174_604_259_328,
}  # fmt: skip


def test_presets_have_the_parameters_of_the_published_weights():
    assert {name: PRESETS[name].parameters for name in PUBLISHED} == PUBLISHED


def config_of(transformers, name):
    """The configuration of a preset with few layers, as another library has it."""
    m = PRESETS[name]
    layers = 4 if m.dense_layers else 2
    if name.startswith("gpt"):
        return layers, transformers.GPT2Config(
            n_embd=m.hidden, n_layer=layers, n_head=m.heads, vocab_size=m.vocab, n_positions=m.positions, n_inner=m.ffn
        )
    sizes = {
        "hidden_size": m.hidden, "num_hidden_layers": layers, "num_attention_heads": m.heads, "num_key_value_heads": m.kv_heads or m.heads,
        "intermediate_size": m.dense_ffn or m.ffn, "vocab_size": m.vocab, "tie_word_embeddings": m.tied, "head_dim": m.head,
    }  # fmt: skip
    if name.startswith("deepseek"):
        del sizes["head_dim"]
        return layers, transformers.DeepseekV3Config(
            **sizes, moe_intermediate_size=m.ffn, n_routed_experts=m.experts, num_experts_per_tok=m.experts_per_token,
            n_shared_experts=m.shared_experts, first_k_dense_replace=m.dense_layers, q_lora_rank=m.q_rank, kv_lora_rank=m.kv_rank,
            qk_nope_head_dim=m.channels, qk_rope_head_dim=m.rope_channels, v_head_dim=m.channels,
        )  # fmt: skip
    if name.startswith("qwen3"):
        more = {"num_experts": m.experts, "moe_intermediate_size": m.ffn, "mlp_only_layers": []} if m.experts else {}
        return layers, (transformers.Qwen3MoeConfig if m.experts else transformers.Qwen3Config)(**sizes, **more)
    if name.startswith("qwen2"):
        return layers, transformers.Qwen2Config(**sizes)
    if m.experts:
        return layers, transformers.MixtralConfig(**sizes, num_local_experts=m.experts)
    return layers, transformers.LlamaConfig(**sizes)


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_are_as_large_as_the_models_that_a_library_builds(name):
    # GIVEN a configuration of those sizes WHEN another library builds the model without memory THEN it has as many parameters
    torch = pytest.importorskip("torch", reason="builds the model")
    transformers = pytest.importorskip("transformers", reason="knows the architecture")
    layers, config = config_of(transformers, name)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    assert sum(p.numel() for p in model.parameters()) == replace(PRESETS[name], layers=layers).parameters


def test_gpt3_by_the_closed_form_of_the_literature():
    # Narayanan et al. 2021, section 3.2: P = 12 L h² (1 + 13/(12 h) + (V + s)/(12 L h)), to which the final norm (2 h) comes
    layers, h, vocab, s = 96, 12288, 50257, 2048
    published = 12 * layers * h**2 + 13 * layers * h + (vocab + s) * h
    assert round(published / GB, 1) == 174.6
    assert PRESETS["gpt3-175b"].parameters == published + 2 * h


def test_each_preset_names_its_source():
    # GIVEN the table of presets in the document THEN it has all of them, with their parameters and where their sizes are published
    text = (ROOT / "docs" / "analyses" / "memory_plan.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.-]+)` \| ([^|]+) \| ([\d,]+) \| <(https://[^>]+)> \|$", text, re.MULTILINE)
    expected = {name: (CALLED[name], f"{m.parameters:,}", SOURCES[name]) for name, m in PRESETS.items()}
    assert {name: (called, count, source) for name, called, count, source in rows} == expected


def test_first_layers_without_experts_stand_on_the_first_stages():
    # GIVEN 8 layers of which 3 have no experts, on 4 stages of 2 layers, and of 2 chunks of one layer each
    model = replace(PRESETS["deepseek-v3"], layers=8)
    assert [dense_on(model, Layout(pp=4), k) for k in range(4)] == [2, 1, 0, 0]
    assert [dense_on(model, Layout(pp=4, vpp=2), k) for k in range(4)] == [1, 1, 1, 0]
    # THEN the stages together have all parameters
    for layout in (Layout(pp=4), Layout(pp=4, vpp=2), Layout(pp=2), Layout()):
        assert sum(s.parameters for s in stages(model, layout)) == model.parameters


def test_a_rank_of_deepseek_v3_by_hand():
    # GIVEN tp 8 and ep 64 with experts undivided, one stage WHEN its parameters are worked out by hand
    h, heads = 7168, 128
    divided = 1536 * heads * 192 + 512 * heads * 256 + heads * 128 * h
    whole = h * 1536 + h * (512 + 64) + 1536 + 512 + 2 * h
    expert, first = 3 * h * 2048, 3 * h * 18432
    dense = 61 * (divided // 8 + whole) + 3 * first // 8 + 58 * (expert // 8 + h * 256) + 2 * 129280 * h // 8 + h
    experts = 58 * 256 * expert // 64
    assert parameters(PRESETS["deepseek-v3"], Layout(tp=8, ep=64, etp=1, dp=8), 0) == (dense, experts)


def test_a_vocabulary_that_does_not_divide_is_padded():
    # GIVEN GPT-2 on two ranks THEN each has half of 50304 words, and on one all 50257
    gpt2 = PRESETS["gpt2"]
    assert tables(gpt2, Layout(tp=2), 0) == (50304 * 768 // 2, 0) and tables(gpt2, Layout(), 0) == (50257 * 768, 0)
    assert stages(gpt2, Layout())[0].parameters == gpt2.parameters == 124_439_808


def test_llama_70b_by_hand():
    # 80 layers: queries and output 2 h², keys and values of 8 of 64 heads h²/4, three matrices of the feed-forward, two norms
    h, f = 8192, 28672
    layer = 2 * h * h + 2 * h * h // 8 + 3 * h * f + 2 * h
    assert PRESETS["llama-70b"].parameters == 80 * layer + 2 * 32000 * h + h == 68_976_648_192


@pytest.mark.parametrize(
    ("embedding", "head", "parameters", "gb", "gib"),
    [
        ("own", "own", 1.6847, 30.32, 28.24),
        ("all", "all", 1.7502, 31.50, 29.34),
        ("all", "all_full", 1.8157, 32.68, 30.44),
        ("all_full", "all_full", 1.8813, 33.86, 31.54),
    ],
)
def test_placement_of_embedding_and_head_on_two_stages(embedding, head, parameters, gb, gib):
    for stage in stages(LLAMA, replace(TP2_PP2, embedding_placement=embedding, head_placement=head)):
        assert stage.parameters / GB == pytest.approx(parameters, abs=1e-4)
        assert fixed(stage) / GB == pytest.approx(gb, abs=0.01)
        assert fixed(stage) / GIB == pytest.approx(gib, abs=0.01)


def test_a_stage_without_embedding_and_head():
    # GIVEN three stages over 33 layers WHEN the middle one is looked at THEN it holds 11 layers, norms whole, the rest in halves
    (_, middle, _) = stages(replace(LLAMA, layers=33), Layout(tp=2, pp=3))
    assert middle.parameters == 11 * ((202_383_360 - 8192) // 2 + 8192)


@pytest.mark.parametrize(("d", "mib", "gb"), [(1, 28_919, 30.324), (2, 19_280, 20.216), (4, 14_460, 15.162), (8, 12_050, 12.635)])
def test_the_distributed_optimizer_divides_master_weights_and_state(d, mib, gb):
    most = stages(LLAMA, replace(TP2_PP2, dp=d, sharding="optimizer"))[0]
    assert fixed(most) / MIB == pytest.approx(mib, abs=1)
    assert fixed(most) / GB == pytest.approx(gb, abs=0.01)


@pytest.mark.parametrize(
    ("tp", "pp", "gb"), [(1, 1, 121.291), (2, 1, 60.648), (1, 2, 60.646), (4, 1, 30.326), (4, 2, 15.163), (8, 1, 15.166)]
)
def test_most_loaded_shard_of_other_layouts(tp, pp, gb):
    assert max(map(fixed, stages(LLAMA, Layout(tp=tp, pp=pp)))) / GB == pytest.approx(gb, abs=0.01)


@pytest.mark.parametrize(
    ("seq", "batch", "one", "two", "one_plain", "two_plain"),
    [(2048, 1, 1.934, 3.867, 3.109, 6.219), (2048, 4, 7.734, 15.469, 12.437, 24.874), (4096, 1, 3.867, 7.734, 6.219, 12.437)],
)
def test_activations_of_the_first_stage(seq, batch, one, two, one_plain, two_plain):
    for parallel, expected in ((True, (one, two)), (False, (one_plain, two_plain))):
        layouts = [replace(TP2_PP2, seq=seq, micro_batch=batch, microbatches=m, sequence_parallel=parallel) for m in (1, 2)]
        assert [stages(LLAMA, x)[0].activation_bytes / GB for x in layouts] == pytest.approx(expected, abs=0.01)


def test_logits_stand_on_the_last_stage_with_their_gradient():
    assert [logits(LLAMA, TP2_PP2, k) for k in (0, 1)] == [0, 2 * 4 * 2048 * 32000 // 2]
    assert logits(LLAMA, replace(TP2_PP2, head_placement="all_full"), 1) == 2 * 4 * 2048 * 32000


def test_key_and_value_heads_are_repeated_beyond_one_a_rank():
    # GIVEN 64 query heads over 8 key and value heads WHEN 16 ranks share a layer THEN each holds one whole key and value head
    model = PRESETS["llama-70b"]
    (stage,) = stages(model, Layout(tp=16))
    per_layer = 2 * 8192 * 8192 // 16 + 2 * 8192 * 128 + 3 * 8192 * 28672 // 16 + 2 * 8192
    assert stage.parameters == 80 * per_layer + 2 * 8192 * 32000 // 16 + 8192


def test_microbatches_in_flight():
    # GIVEN four stages of 1F1B with many microbatches THEN the first holds four, the last one
    assert [in_flight(Layout(pp=4, microbatches=16), k) for k in range(4)] == [4, 3, 2, 1]
    assert [in_flight(Layout(pp=4, microbatches=2), k) for k in range(4)] == [2, 2, 2, 1]
    # interleaved: the first stage holds 1 + (pp - 1) / (pp vpp) times what pp microbatches take
    assert in_flight(Layout(pp=4, vpp=2, microbatches=16), 0) == pytest.approx(4 * (1 + 3 / 8))


@pytest.mark.parametrize(
    ("number", "sharding", "text", "at_4"),
    [
        ("bf16", "none", "18", 18), ("bf16", "optimizer", "6 + 12/d", 9), ("fp16", "none", "20", 20), ("fp16", "optimizer", "4 + 16/d", 8),
        ("fp32", "none", "16", 16), ("fp32", "optimizer", "8 + 8/d", 10), ("bf16", "full", "18/d", 4.5),
    ],
)  # fmt: skip
def test_bytes_per_parameter(number, sharding, text, at_4):
    layout = Layout(number=number, sharding=sharding, dp=4)
    assert formula(layout) == text
    assert per_parameter(layout).total == at_4


def test_tied_weights_stand_on_both_ends_of_a_pipeline():
    tied = replace(LLAMA, tied=True)
    table = 4096 * 32000
    assert stages(tied, Layout())[0].parameters == stages(LLAMA, Layout())[0].parameters - table
    assert stages(tied, Layout(pp=2)) == stages(LLAMA, Layout(pp=2))


def test_recompute_trades_activations_for_work():
    none, selective, full = (stages(LLAMA, Layout(recompute=r))[0].activation_bytes for r in ("none", "selective", "full"))
    assert none - selective == 5 * 32 * 2048 * 2048 * 32  # scores: 5 a s² b per layer
    s_b_h = 2048 * 4096
    assert full == 2 * s_b_h * 32 + round(s_b_h * 28.75) + 8 * 2048 + s_b_h + 4 * s_b_h


def test_experts_are_divided_over_expert_parallel_ranks():
    mixed = replace(LLAMA, experts=8, layers=2)
    whole, halved = (stages(mixed, Layout(ep=n, dp=n))[0].parameters for n in (1, 2))
    assert whole - halved == 2 * 4 * 3 * 4096 * 11008


@given(st.sampled_from((1, 2, 4, 8)), st.sampled_from((1, 2, 4)), st.sampled_from(("own", "all")))
def test_parameters_over_all_ranks_are_those_of_the_model(tp, pp, placement):
    # GIVEN a placement of one copy each WHEN the ranks of a model are summed up THEN norms are counted tp times, all else once
    model = Model(hidden=512, layers=8, vocab=4096, ffn=1024, heads=8)
    layout = Layout(tp=tp, pp=pp, embedding_placement=placement, head_placement=placement)
    total = tp * sum(s.parameters for s in stages(model, layout))
    copies = pp if placement == "all" else 1
    norms = (2 * 8 + 1) * 512
    assert total == model.parameters + (tp - 1) * norms + (copies - 1) * 2 * 512 * 4096
