"""A model and a layout from strings."""

from __future__ import annotations

import pytest

from tb_sol_plugin.cost.transformer.memory import PRESETS, Layout, Model
from tb_sol_plugin.cost.transformer.query import LAYOUT_NUMBERS, MODEL_NUMBERS, NAMES, asked
from tb_sol_plugin.errors import BadQuery

SIZES = {"hidden": "1024", "layers": "12", "vocab": "50304", "ffn": "4096", "heads": "16"}


def test_nothing_asked_is_the_smallest_preset_on_one_device():
    assert asked({}) == (PRESETS["llama-7b"], Layout())
    assert asked({"hidden": "", "tp": None}) == (PRESETS["llama-7b"], Layout())


def test_sizes_over_a_preset_and_a_layout():
    # GIVEN a preset with one size changed, as strings, and a layout WHEN asked THEN only those differ
    model, layout = asked({
        "preset": "LLaMA-70B", "layers": "40", "tied": "true", "tp": "8", "pp": 2, "dtype": "fp16", "recompute": "full",
        "sequence_parallel": "false", "optimizer": "lion", "distributed_optimizer": "on", "head_placement": "all_full",
    })  # fmt: skip
    assert model == Model(hidden=8192, layers=40, vocab=32000, ffn=28672, heads=64, kv_heads=8, tied=True)
    assert layout == Layout(
        tp=8, pp=2, number="fp16", recompute="full", sequence_parallel=False, optimizer="lion", sharding="optimizer", head_placement="all_full"
    )


def test_a_model_of_its_own_needs_its_sizes():
    assert asked(SIZES)[0] == Model(hidden=1024, layers=12, vocab=50304, ffn=4096, heads=16)
    with pytest.raises(BadQuery) as error:
        asked({"hidden": "1024", "heads": "16"})
    assert "layers, vocab, ffn" in error.value.message and "llama-7b" in error.value.hint


def test_what_a_recording_says_stands_below_what_is_asked():
    own = Model(hidden=512, layers=4, vocab=1000, ffn=2048, heads=8, gated=False)
    model, layout = asked({"layers": "8", "dp": "4"}, base=own, layout=Layout(tp=2, sharding="full"))
    assert (model.hidden, model.layers, model.gated) == (512, 8, False)
    assert (layout.tp, layout.dp, layout.sharding) == (2, 4, "full")
    assert asked({"preset": "llama-13b"}, base=own)[0] == PRESETS["llama-13b"]


@pytest.mark.parametrize(("switch", "kind", "found"), [
    ("true", "", "optimizer"), ("false", "", "none"), ("", "gradients", "gradients"), ("true", "full", "full"), ("false", "none", "none"),
])  # fmt: skip
def test_the_distributed_optimizer_is_a_kind_of_sharding(switch, kind, found):
    assert asked({"distributed_optimizer": switch, "sharding": kind})[1].sharding == found


def test_the_world_gives_the_data_parallel_size():
    assert asked({"world": "64", "tp": "4", "pp": "2", "cp": "2"})[1].dp == 4
    assert asked({"world": "64", "tp": "4", "pp": "2", "dp": "8"})[1].dp == 8


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
def test_what_does_not_fit_names_the_field_and_the_remedy(values, field, words):
    with pytest.raises(BadQuery) as error:
        asked(values)
    assert error.value.field == field and words in error.value.hint


def test_every_size_of_model_and_layout_can_be_asked_for():
    # sequence_parallel, dtype and the placements are named apart; no field of the two may be out of reach
    reach = {*NAMES, "number"}
    assert set(Model.__dataclass_fields__) <= reach and set(Layout.__dataclass_fields__) <= reach
    for name, (least, most) in (MODEL_NUMBERS | LAYOUT_NUMBERS).items():
        for value in (least, most):
            model, layout = asked({"preset": "llama-7b", name: str(value)})
            assert getattr(model, name, None) == value or getattr(layout, name) == value
