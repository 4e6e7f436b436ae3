"""Reads off the names and sizes of a transformer's parameters what its configuration does not state: biases, norms of heads, positions.

A fact is one where every layer agrees; where they differ, or a name is not known, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from tb_sol_plugin.capture.memory.plan import Found

QKV: Final = frozenset((
    "q_proj", "k_proj", "v_proj", "qkv_proj", "c_attn", "qkv", "query_key_value", "linear_qkv", "query", "key", "value", "Wqkv",
    "wq", "wk", "wv", "linear_q_proj",
))  # fmt: skip
OUT: Final = frozenset(("o_proj", "out_proj", "c_proj", "dense", "linear_proj", "wo"))
UP: Final = frozenset((
    "up_proj", "gate_proj", "gate_up_proj", "c_fc", "fc1", "linear_fc1", "dense_h_to_4h", "w1", "w3",
))  # fmt: skip
DOWN: Final = frozenset(("down_proj", "c_proj", "fc2", "linear_fc2", "dense_4h_to_h", "w2"))
"""Names of the matrices of an attention and of a feed-forward in Hugging Face, Megatron, GPT-2 and nanoGPT, and LLaMA."""
THIRD: Final = frozenset(("gate_proj", "gate_up_proj", "w3"))
"""Of a feed-forward that has three matrices."""
SINGLE: Final = frozenset(("c_fc", "fc1", "dense_h_to_4h", "w1", "up_proj"))
"""Of one that has two, if it has none of THIRD. That of Megatron is one matrix either way."""
HEAD_NORMS: Final = (frozenset(("q_norm", "k_norm")), frozenset(("q_layernorm", "k_layernorm")))
TOKENS: Final = frozenset(("wte", "embed_tokens", "word_embeddings", "tok_embeddings", "embed_in"))
POSITIONS: Final = frozenset(("wpe", "position_embeddings", "embed_positions"))
HEADS: Final = frozenset(("lm_head", "output_layer", "embed_out", "output"))
WHERE: Final = "parameters"
Outside: TypeAlias = "tuple[str, str, object]"
"""Name of a module, name of the parameter in it, and the parameter."""


@dataclass
class _Block:
    """Has the matrices of one module by name, with whether they have a bias, and its norms by name, with the sizes of their parameters."""

    matrices: dict[str, bool] = field(default_factory=dict)
    norms: dict[str, list[int]] = field(default_factory=dict)


def of_parameters(parameters: Iterable[tuple[str, object]], known: Found) -> Found:
    """Returns the facts {name: (value, where it is from)}. parameters: with their names, those of one object under each of its names."""
    hidden = _known(known, "hidden")
    blocks, outside, widths = _sorted(parameters, hidden)
    attention = [one for one in blocks.values() if QKV & one.matrices.keys()]
    forward = [one for one in blocks.values() if UP & one.matrices.keys()]
    out = _of_biases(attention, forward, known) | _of_head_norms(attention, known) | _of_embeddings(outside, hidden)
    third = {bool(THIRD & one.matrices.keys()) for one in forward}
    if third == {True} or (third == {False} and all(SINGLE & one.matrices.keys() for one in forward)):
        out["gated"] = (True in third, WHERE)
    if len(widths) == 1:
        out["ffn"] = (widths.pop(), WHERE)
    return out


def _sorted(parameters: Iterable[tuple[str, object]], hidden: int | None) -> tuple[dict[str, _Block], list[Outside], set[int]]:
    """Returns blocks of layers by name, what stands outside of the layers, and the widths of feed-forwards."""
    blocks: dict[str, _Block] = {}
    outside: list[Outside] = []
    widths: set[int] = set()
    for name, parameter in parameters:
        *path, leaf = name.split(".")
        if leaf in UP | DOWN:  # the matrices of all experts as one parameter
            path, leaf = [*path, leaf], "weight"
        elif leaf.removesuffix("_bias") in UP | DOWN:
            path, leaf = [*path, leaf.removesuffix("_bias")], "bias"
        if not path:
            continue
        module = path[-1]
        if not any(part.isdecimal() for part in path):
            outside.append((module, leaf, parameter))
            continue
        block = blocks.setdefault(".".join(path[:-1]), _Block())
        if module in QKV | OUT | UP | DOWN:
            block.matrices[module] = block.matrices.get(module, False) or leaf == "bias"
            widths |= _other(parameter, hidden) if module in SINGLE and leaf == "weight" and hidden is not None else set()
        elif "norm" in module.lower():
            block.norms.setdefault(module, []).append(_elements(parameter))
    return blocks, outside, widths


def _of_biases(attention: Sequence[_Block], forward: Sequence[_Block], known: Found) -> Found:
    """Returns which matrices have biases, where that is one of the three ways that a plan can have them."""
    parts = (
        {bias for one in attention for name, bias in one.matrices.items() if name in QKV},
        {bias for one in attention for name, bias in one.matrices.items() if name in OUT},
        {bias for one in forward for name, bias in one.matrices.items() if name in UP | DOWN},
    )
    if any(len(part) != 1 for part in parts):
        return {}
    qkv, out, matrices = (part.pop() for part in parts)
    if (out, matrices) not in ((qkv, qkv), (False, False)) or (matrices and "experts" in known):
        return {}
    return {"bias": (matrices, WHERE), "qkv_bias": (qkv and not matrices, WHERE)}


def _of_head_norms(attention: Sequence[_Block], known: Found) -> Found:
    """Returns whether the queries and keys of a head have a norm of their own. Norms of latent attention are others."""
    if not attention or "kv_rank" in known:
        return {}
    if all(not one.norms for one in attention):
        return {"qk_norm": (False, WHERE)}
    hidden, heads, channels = (_known(known, name) for name in ("hidden", "heads", "channels"))
    channels = channels or (hidden // heads if hidden and heads else None)
    if all(one.norms.keys() in HEAD_NORMS and all(sizes == [channels] for sizes in one.norms.values()) for one in attention):
        return {"qk_norm": (True, WHERE)}
    return {}


def _of_embeddings(outside: Sequence[Outside], hidden: int | None) -> Found:
    """Returns learned positions, none of them where every matrix outside of the layers has a name that says otherwise; and if the head is
    the embedding."""
    matrices = [(module, parameter) for module, leaf, parameter in outside if leaf != "bias" and len(_shape(parameter)) > 1]
    tokens, positions, heads = ([one for module, one in matrices if module in names] for names in (TOKENS, POSITIONS, HEADS))
    out: Found = {}
    if len(tokens) != 1 or len(tokens) + len(positions) + len(heads) != len(matrices):
        return out
    if not positions:
        out["positions"] = (0, WHERE)
    elif len(positions) == 1 and _shape(positions[0])[1] == hidden:
        out["positions"] = (_shape(positions[0])[0], WHERE)
    if len(heads) == 1 and _shape(heads[0]) == _shape(tokens[0]):
        out["tied"] = (heads[0] is tokens[0], WHERE)
    return out


def _other(parameter: object, hidden: int) -> set[int]:
    """Returns the size of a matrix that is not the hidden one; none where it may be a part of it."""
    shape = _shape(parameter)
    if getattr(parameter, "tensor_model_parallel", False) or len(shape) != 2 or hidden not in shape:
        return set()
    return {shape[1] if shape[0] == hidden else shape[0]}


def _shape(parameter: object) -> tuple[int, ...]:
    return tuple(map(int, getattr(parameter, "shape", ())))


def _elements(parameter: object) -> int:
    out = 1
    for size in _shape(parameter):
        out *= size
    return out


def _known(known: Mapping[str, tuple[object, str]], name: str) -> int | None:
    value = known.get(name, (None, ""))[0]
    return value if isinstance(value, int) else None
