"""What the names and sizes of parameters say of a transformer, and where they say nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tb_sol_plugin.capture.memory.plan_parameters import of_parameters

KNOWN: Any = {"hidden": (8, "config"), "heads": (2, "config")}
NANO = {
    "transformer.wte": (50, 8), "transformer.wpe": (16, 8), "transformer.h.0.ln_1": (8,), "transformer.h.0.attn.c_attn": (24, 8),
    "transformer.h.0.attn.c_proj": (8, 8), "transformer.h.0.mlp.c_fc": (32, 8), "transformer.h.0.mlp.c_proj": (8, 32),
    "transformer.ln_f": (8,),
}  # fmt: skip
LLAMA = {
    "model.embed_tokens": (50, 8), "model.layers.0.self_attn.q_proj": (8, 8), "model.layers.0.self_attn.o_proj": (8, 8),
    "model.layers.0.mlp.gate_proj": (20, 8), "model.layers.0.mlp.down_proj": (8, 20), "model.norm": (8,), "lm_head": (50, 8),
}  # fmt: skip
HEAD_NORMS = {"model.layers.0.self_attn.q_norm": (4,), "model.layers.0.self_attn.k_norm": (4,)}


def read(modules: dict[str, tuple[int, ...]], *biased: str, **more: Any) -> dict[str, Any]:
    """The facts of modules with a weight each. biased: ends of the names of those that have a bias; more: what is known beforehand."""
    pairs = []
    for name, shape in modules.items():
        pairs.append((f"{name}.weight", SimpleNamespace(shape=shape)))
        if biased and name.endswith(biased):
            pairs.append((f"{name}.bias", SimpleNamespace(shape=shape[:1])))
    found = of_parameters(pairs, KNOWN | more)
    assert {where for _, where in found.values()} <= {"parameters"}
    return {name: value for name, (value, _) in found.items()}


def test_a_model_in_the_shape_of_nanogpt() -> None:
    # GIVEN one without biases, and with them THEN width, positions and the kind of feed-forward are read off
    plain = {"ffn": 32, "positions": 16, "gated": False, "bias": False, "qkv_bias": False, "qk_norm": False}
    assert read(NANO) == plain
    assert read(NANO, "c_attn", "c_proj", "c_fc") == plain | {"bias": True}
    # AND a head that is the embedding, under both its names, is tied; another one is not
    pairs = [(f"{name}.weight", SimpleNamespace(shape=shape)) for name, shape in NANO.items()]
    head = pairs[0][1]
    assert of_parameters([*pairs, ("lm_head.weight", head)], KNOWN)["tied"] == (True, "parameters")
    assert of_parameters([*pairs, ("lm_head.weight", SimpleNamespace(shape=head.shape))], KNOWN)["tied"] == (False, "parameters")


@pytest.mark.parametrize(
    ("modules", "biased", "more", "expected"),
    [
        (LLAMA, (), {}, {"gated": True, "positions": 0, "tied": False, "bias": False, "qkv_bias": False, "qk_norm": False}),
        (LLAMA, ("q_proj",), {}, {"bias": False, "qkv_bias": True}),
        ({**LLAMA, **HEAD_NORMS}, (), {}, {"qk_norm": True}),
        ({**LLAMA, **HEAD_NORMS}, (), {"channels": (16, "config")}, {"qk_norm": None}),  # norms, but not of the channels of a head
        ({**LLAMA, **HEAD_NORMS}, ("k_norm",), {}, {"qk_norm": None}),
        ({**LLAMA, **HEAD_NORMS}, (), {"kv_rank": (4, "config")}, {"qk_norm": None}),
        (LLAMA, ("o_proj",), {}, {"bias": None, "qkv_bias": None}),  # as no plan has them
        ({**LLAMA, "model.layers.1.self_attn.q_proj": (8, 8)}, ("0.self_attn.q_proj",), {}, {"bias": None, "qkv_bias": None}),
        (LLAMA, ("_proj",), {"experts": (8, "config")}, {"bias": None}),
        ({**LLAMA, "model.rel_table": (9, 8)}, (), {}, {"positions": None, "tied": None}),  # a matrix of which nothing is known
        ({"layers.0.linear_qkv": (24, 8), "layers.0.linear_fc1": (64, 8)}, (), {}, {"gated": None, "bias": None, "ffn": None}),
        ({}, (), {}, {}),
    ],
)  # fmt: skip
def test_what_layers_agree_in_is_known_and_nothing_else(modules: Any, biased: Any, more: Any, expected: dict[str, Any]) -> None:
    found = read(modules, *biased, **more)
    assert {name: found.get(name) for name in expected} == expected


def test_experts_in_one_parameter_and_matrices_of_a_tensor_parallel_rank() -> None:
    # GIVEN the matrices of all experts as one parameter, with biases THEN no plan has them; without, they have none
    fused = {f"{name}.weight": SimpleNamespace(shape=shape) for name, shape in LLAMA.items() if ".mlp." not in name}
    fused |= {"model.layers.0.mlp.experts.gate_up_proj": SimpleNamespace(shape=(4, 8, 40))}
    assert of_parameters(fused.items(), KNOWN)["bias"] == (False, "parameters")
    fused["model.layers.0.mlp.experts.gate_up_proj_bias"] = SimpleNamespace(shape=(4, 40))
    assert "bias" not in of_parameters(fused.items(), KNOWN)
    # AND the width of a part of a matrix is not that of the feed-forward
    part = SimpleNamespace(shape=(16, 8), tensor_model_parallel=True)
    assert "ffn" not in of_parameters([("h.0.mlp.c_fc.weight", part)], KNOWN)
