"""Layouts that cannot run a model, and the nearest ones that can."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.cost.transformer.memory import PRESETS, Layout
from tb_sol_plugin.cost.transformer.query import must_be_possible, possible, problems
from tb_sol_plugin.errors import BadQuery

LLAMA, LLAMA_70B = PRESETS["llama-7b"], PRESETS["llama-70b"]
EXPERTS = replace(LLAMA, experts=8)


@pytest.mark.parametrize(("model", "layout", "field", "word", "near"), [
    (LLAMA, Layout(pp=5), "pp", "32 layers", (4, 8)),
    (LLAMA, Layout(pp=64), "pp", "32 layers", (32,)),
    (LLAMA, Layout(tp=3), "tp", "32 heads", (2, 4)),
    (LLAMA_70B, Layout(tp=12), "tp", "64 heads", (8, 16)),
    (replace(LLAMA, ffn=11009), Layout(tp=2), "tp", "feed-forward", (1,)),
    (replace(LLAMA, vocab=50257), Layout(tp=2), "vocab", "pad", (50304,)),
    (replace(LLAMA, vocab=50257, heads=96, hidden=9216, ffn=9216), Layout(tp=12), "vocab", "pad", (50304,)),
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
        not model.heads % tp and (not kv % tp or not tp % kv) and not model.ffn % tp and not model.vocab % tp
        and not model.layers % (pp * vpp) and (vpp == 1 or pp > 1) and not 2048 % (cp * tp)
    )  # fmt: skip
    assert possible(model, layout) == divides == (not problems(model, layout))
