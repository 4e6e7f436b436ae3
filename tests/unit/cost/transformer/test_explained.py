"""The formulas that are shown, worked out from their own text and inputs, against the figures themselves."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.cost.transformer.explain import Formula, explained
from tb_sol_plugin.cost.transformer.memory import PRESETS, Layout, Model, stages
from tb_sol_plugin.cost.transformer.query import possible

LLAMA = PRESETS["llama-7b"]


def worked_out(one: Formula) -> float:
    """What a reader gets who types the formula, with the inputs as they are written."""
    inputs = {name: float(value) for name, _, value in (part.partition(" = ") for part in one.put_in.split(", "))}
    text = one.formula.replace("·", "*").replace("²", "**2").replace("−", "-")
    unused = set(inputs) - set(re.findall(r"[A-Za-z]+", text))
    assert not unused, f"{one.figure}: {unused} stand among the inputs of {one.formula}"
    return float(eval(text, {"__builtins__": {}, "min": min}, inputs))


MODELS = [
    *PRESETS.values(), replace(LLAMA, tied=True), replace(LLAMA, channels=160), replace(LLAMA, experts=8),
    replace(LLAMA, experts=4, experts_per_token=1, kv_heads=4, tied=True),
    *(replace(PRESETS["deepseek-v3"], layers=32, dense_layers=n) for n in (0, 3, 9)), replace(PRESETS["deepseek-v3"], layers=32, q_rank=0),
    replace(LLAMA, experts=8, dense_layers=3, kv_heads=4, channels=64),
]  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(
    st.sampled_from(MODELS), st.sampled_from([1, 2, 4, 16]), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2]), st.sampled_from([1, 2]),
    st.sampled_from(["none", "selective", "full"]), st.sampled_from(["bf16", "fp16", "fp32"]),
    st.sampled_from(["none", "optimizer", "gradients", "full"]), st.booleans(), st.sampled_from([0, 2]),
    st.sampled_from(["own", "all", "all_full"]), st.sampled_from([1, 2]), st.sampled_from(["adam", "sgd", "adam8bit"]),
)  # fmt: skip
def test_every_formula_gives_its_figure(
    model: Model, tp: int, pp: int, vpp: int, cp: int, recompute: str, number: str, sharding: str, parallel: bool, m: int, head: str, ep: int,
    optimizer: str,
) -> None:
    layout = Layout(
        tp=tp, pp=pp, vpp=vpp if pp > 1 else 1, cp=cp, dp=4, recompute=recompute, number=number, sharding=sharding, optimizer=optimizer,
        sequence_parallel=parallel, microbatches=m, head_placement=head, micro_batch=2, ep=ep if model.experts else 1,
    )  # type: ignore[arg-type]  # fmt: skip
    if not possible(model, layout):
        return
    found = explained(model, layout, range(pp))
    for one in found:
        assert worked_out(one) == pytest.approx(one.result, rel=1e-8, abs=1.5), f"{one.figure}: {one.formula}"
    totals = [one.result for one in found if one.figure == "Total"]
    assert totals == [s.total_bytes for s in stages(model, layout)]


def test_the_text_of_the_worked_example():
    # GIVEN LLaMA-7B on TP2 PP2 WHEN the first stage is explained THEN each line reads as in the literature
    first = {one.figure: one for one in explained(LLAMA, Layout(tp=2, pp=2), [0])}
    assert first["A layer, N"].result == 202_383_360
    assert first["Parameters, P"].formula == "L/pp · ((A + F)/tp + n) + h · V/tp"
    assert first["State, W"].formula == "18 · P"
    assert first["Activations of a layer, l"].formula == "s · b · h · (18 + 4 · f/h)/tp"
    assert first["Activations, R"].put_in == "L = 32, pp = 2, H = 2, l = 120586240, s = 2048, b = 1, h = 4096, tp = 2"
    assert "Logits and their gradient in FP32, Z" not in first
