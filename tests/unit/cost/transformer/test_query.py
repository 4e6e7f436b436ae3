"""Queries to a model and a layout: presets, sizes, what cannot be with the nearest values that could, and every other layout."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.cost.transformer.memory import PRESETS, Layout, Model, stages
from tb_sol_plugin.cost.transformer.query import (
    LAYOUT_NUMBERS,
    MODEL_NUMBERS,
    MOST_WAYS,
    NAMES,
    divisors,
    layouts,
    model_and_layout,
    must_be_possible,
    possible,
    problems,
)
from tb_sol_plugin.errors import BadQuery

SIZES = {"hidden": "1024", "layers": "12", "vocab": "50304", "ffn": "4096", "heads": "16"}


def test_an_empty_query_is_the_smallest_preset_on_one_device():
    assert model_and_layout({}) == (PRESETS["llama-7b"], Layout())
    assert model_and_layout({"hidden": "", "tp": None}) == (PRESETS["llama-7b"], Layout())


def test_sizes_over_a_preset_and_a_layout():
    # GIVEN a preset with one size changed, as strings, and a layout WHEN asked THEN only those differ
    model, layout = model_and_layout({
        "preset": "LLaMA-70B", "layers": "40", "tied": "true", "tp": "8", "pp": 2, "dtype": "fp16", "recompute": "full",
        "sequence_parallel": "false", "optimizer": "lion", "distributed_optimizer": "on", "head_placement": "all_full",
    })  # fmt: skip
    assert model == Model(hidden=8192, layers=40, vocab=32000, ffn=28672, heads=64, kv_heads=8, tied=True)
    assert layout == Layout(
        tp=8, pp=2, number="fp16", recompute="full", sequence_parallel=False, optimizer="lion", sharding="optimizer", head_placement="all_full"
    )


def test_a_model_of_its_own_needs_its_sizes():
    assert model_and_layout(SIZES)[0] == Model(hidden=1024, layers=12, vocab=50304, ffn=4096, heads=16)
    with pytest.raises(BadQuery) as error:
        model_and_layout({"hidden": "1024", "heads": "16"})
    assert "layers, vocab, ffn" in error.value.message and "llama-7b" in error.value.hint


def test_query_fields_override_what_was_recorded():
    own = Model(hidden=512, layers=4, vocab=1000, ffn=2048, heads=8, gated=False)
    model, layout = model_and_layout({"layers": "8", "dp": "4"}, base=own, layout=Layout(tp=2, sharding="full"))
    assert (model.hidden, model.layers, model.gated) == (512, 8, False)
    assert (layout.tp, layout.dp, layout.sharding) == (2, 4, "full")
    assert model_and_layout({"preset": "llama-13b"}, base=own)[0] == PRESETS["llama-13b"]


@pytest.mark.parametrize(("switch", "kind", "found"), [
    ("true", "", "optimizer"), ("false", "", "none"), ("", "gradients", "gradients"), ("true", "full", "full"), ("false", "none", "none"),
])  # fmt: skip
def test_the_distributed_optimizer_is_a_kind_of_sharding(switch, kind, found):
    assert model_and_layout({"distributed_optimizer": switch, "sharding": kind})[1].sharding == found


def test_the_world_gives_the_data_parallel_size():
    assert model_and_layout({"world": "64", "tp": "4", "pp": "2", "cp": "2"})[1].dp == 4
    assert model_and_layout({"world": "64", "tp": "4", "pp": "2", "dp": "8"})[1].dp == 8


@pytest.mark.parametrize(("values", "field", "words"), [
    ({"preset": "bert"}, "preset", "gpt3-175b"),
    ({"tp": "two"}, "tp", "whole number"),
    ({"tp": "0"}, "tp", "from 1 to 4096"),
    ({"tp": True}, "tp", "whole number"),
    ({"layers": "9" * 5000}, "layers", "4096"),
    ({"micro_batch": "1.5"}, "micro_batch", "whole number"),
    ({"tied": "maybe"}, "tied", "true or false"),
    ({"recompute": "some"}, "recompute", "none, selective, full"),
    ({"distributed_optimizer": "true", "sharding": "none"}, "sharding", "leave one"),
    ({"distributed_optimizer": "false", "sharding": "full"}, "sharding", "leave one"),
    ({"world": "10", "tp": "4"}, "world", "8 or 12"),
    ({"world": "2", "tp": "4"}, "world", "world = 4"),
    ({"world": "16", "tp": "4", "dp": "2"}, "dp", "dp = 4"),
])  # fmt: skip
def test_a_size_that_does_not_fit_names_the_field_and_the_remedy(values, field, words):
    with pytest.raises(BadQuery) as error:
        model_and_layout(values)
    assert error.value.field == field and words in error.value.hint


def test_every_size_of_model_and_layout_is_a_query_field():
    # sequence_parallel, dtype and the placements are named apart; no field of the two may be out of reach
    reach = {*NAMES, "number"}
    assert set(Model.__dataclass_fields__) <= reach and set(Layout.__dataclass_fields__) <= reach
    for name, (least, most) in (MODEL_NUMBERS | LAYOUT_NUMBERS).items():
        for value in (least, most):
            model, layout = model_and_layout({"preset": "llama-7b", name: str(value)})
            assert getattr(model, name, None) == value or getattr(layout, name) == value


LLAMA, LLAMA_70B = PRESETS["llama-7b"], PRESETS["llama-70b"]
EXPERTS = replace(LLAMA, experts=8)


@pytest.mark.parametrize(("model", "layout", "field", "word", "near"), [
    (LLAMA, Layout(pp=5), "pp", "32 layers", (4, 8)),
    (LLAMA, Layout(pp=64), "pp", "32 layers", (32,)),
    (LLAMA, Layout(tp=3), "tp", "32 heads", (2, 4)),
    (LLAMA_70B, Layout(tp=12), "tp", "64 heads", (8, 16)),
    (replace(LLAMA, ffn=11009), Layout(tp=2), "tp", "feed-forward", (1,)),
    (replace(EXPERTS, dense_layers=1, dense_ffn=11010), Layout(tp=4), "tp", "the first layers", (2,)),
    (replace(EXPERTS, bias=True), Layout(), "bias", "biases of experts", ()),
    (replace(LLAMA, q_rank=512), Layout(), "q_rank", "latent attention", ()),
    (replace(LLAMA, rope_channels=64), Layout(), "rope_channels", "latent attention", ()),
    (LLAMA, Layout(pp=2, vpp=3), "vpp", "16 layers of a stage", (2, 4)),
    (LLAMA, Layout(vpp=2), "vpp", "more than one pipeline stage", (1,)),
    (LLAMA, Layout(tp=2, seq=2047), "seq", "2 ranks", (2046, 2048)),
    (LLAMA, Layout(cp=4, seq=2046, sequence_parallel=False), "seq", "4 ranks (cp)", (2044, 2048)),
    (LLAMA, Layout(ep=2), "ep", "experts", (1,)),
    (EXPERTS, Layout(ep=3, dp=3), "ep", "8 experts", (1,)),
    (EXPERTS, Layout(ep=4, dp=2), "ep", "groups of ep × etp = 4", (2,)),
    (EXPERTS, Layout(etp=3, dp=3), "etp", "feed-forward of 11008", (2, 4)),
    (replace(EXPERTS, experts_per_token=9), Layout(), "experts_per_token", "9 of 8", (8,)),
    (replace(LLAMA, kv_heads=5), Layout(), "kv_heads", "5 key and value heads", (4, 8)),
    (replace(LLAMA, hidden=4097), Layout(), "heads", "4097", (17, 241)),
])  # fmt: skip
def test_what_does_not_divide_is_said_with_the_nearest_possible_values(model, layout, field, word, near):
    found = next(p for p in problems(model, layout) if p.field == field and word in p.why)
    assert found.near == near
    assert not possible(model, layout)
    for value in near:  # each is a remedy: what was wrong with this field is right then
        fixed = (replace(model, **{field: value}), layout) if hasattr(model, field) else (model, replace(layout, **{field: value}))
        assert field not in [p.field for p in problems(*fixed)]


def test_a_query_that_cannot_be_names_field_and_remedy():
    with pytest.raises(BadQuery) as error:
        must_be_possible(LLAMA, Layout(tp=3, pp=5))
    assert error.value.field == "tp"
    assert error.value.message.startswith("32 heads do not divide over tp = 3; ")
    assert "tp = 2 or 4" in error.value.hint and "pp = 4 or 8" in error.value.hint
    must_be_possible(LLAMA, Layout(tp=2, pp=2))


@pytest.mark.parametrize("layout", [Layout(tp=16), Layout(tp=8, pp=4, vpp=5), Layout(cp=2, dp=3)])
def test_possible_layouts_of_grouped_queries(layout):
    assert possible(LLAMA_70B, layout)


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 8), st.integers(1, 4), st.sampled_from(sorted(PRESETS)))
def test_what_divides_is_possible_and_nothing_else(tp, pp, vpp, cp, name):
    model, layout = PRESETS[name], Layout(tp=tp, pp=pp, vpp=vpp, cp=cp)
    kv = model.kv_heads or model.heads
    divides = (
        not model.heads % tp and (not kv % tp or not tp % kv) and not model.ffn % tp  # the vocabulary is padded
        and not model.layers % (pp * vpp) and (vpp == 1 or pp > 1) and not 2048 % (cp * tp)
    )  # fmt: skip
    assert possible(model, layout) == divides == (not problems(model, layout))


LLAMA = PRESETS["llama-7b"]


def test_divisors_come_in_order():
    assert divisors(1) == [1] and divisors(12) == [1, 2, 3, 4, 6, 12] and divisors(49) == [1, 7, 49]


def test_layouts_of_four_devices_by_hand():
    # GIVEN four devices WHEN LLaMA-7B is spread over them THEN tp x pp x dp = 4 in six ways, each with four micro-batches and three kinds
    frame = pd.DataFrame(layouts(LLAMA, Layout(), 4))
    ways = {(1, 1, 4), (1, 2, 2), (1, 4, 1), (2, 1, 2), (2, 2, 1), (4, 1, 1)}
    assert set(zip(frame["tp"], frame["pp"], frame["dp"], strict=True)) == ways and len(frame) == 6 * 4 * 3
    # and the one of the worked example: 30.32 GB of state and 3.867 GB of activations on the first stage
    one = frame[(frame["tp"] == 2) & (frame["pp"] == 2) & (frame["micro_batch"] == 1) & (frame["recompute"] == "selective")].iloc[0]
    assert one["first_bytes"] / 1e9 == pytest.approx(30.324 + 3.867, abs=0.01)
    assert frame["middle_bytes"].isna().tolist() == (frame["pp"] < 3).tolist()


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(sorted(PRESETS)), st.sampled_from([6, 8, 64]), st.sampled_from([0, 4]), st.sampled_from([1, 2]), st.booleans())
def test_every_row_is_what_the_stages_say(name, world, microbatches, vpp, parallel):
    model = PRESETS[name]
    asked = Layout(pp=2, dp=world // 2, vpp=vpp, microbatches=microbatches, sequence_parallel=parallel, sharding="optimizer")
    for row in layouts(model, asked, world, (1, 4)):
        own = replace(
            asked, tp=row.tp, pp=row.pp, dp=row.dp, vpp=row.vpp, micro_batch=row.micro_batch, microbatches=row.microbatches,
            recompute=row.recompute,
        )  # fmt: skip
        every = [s.total_bytes for s in stages(model, own)]
        assert own.world == world and (not microbatches or row.microbatches * row.micro_batch * row.dp == microbatches * world // 2)
        assert (row.first_bytes, row.last_bytes, row.largest_bytes) == (every[0], every[-1], max(every))
        if row.pp > 2:
            assert row.middle_bytes == max(every[1:-1])


def test_a_world_without_a_layout_and_a_large_one():
    assert layouts(LLAMA, Layout(cp=3), 4) == []
    # no number of devices up to 4 096 has more ways than are looked at: the most are those of 3 360 = 2^5 · 3 · 5 · 7, C(7, 2) · 3^3
    model = Model(hidden=5040 * 2, layers=10080, vocab=10080 * 5, ffn=10080 * 4, heads=10080, channels=1)
    whole = layouts(model, Layout(sequence_parallel=False), 3360, (1,))
    assert len({(s.tp, s.pp) for s in whole}) == 21 * 27 < MOST_WAYS
    assert len({(s.tp, s.pp) for s in layouts(model, Layout(sequence_parallel=False), 10080 * 10080, (1,))}) == MOST_WAYS
    many = layouts(PRESETS["gpt3-175b"], Layout(sequence_parallel=False), 3840)  # 2^8 · 3 · 5
    assert len(many) > 300
