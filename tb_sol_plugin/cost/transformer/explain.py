"""Explains every figure of expected memory as a formula, with what was put in and what came out.

A formula is written so that a person can work it out: `·` is a product, `²` a square; each symbol stands among the inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tb_sol_plugin.cost.transformer.memory import (
    SLACK,
    Layout,
    Model,
    dense_on,
    expert_ranks,
    formula,
    in_flight,
    logits,
    padded_vocab,
    parameters,
    per_layer,
    per_parameter,
    stage,
    tables,
)

Inputs: TypeAlias = Mapping[str, float]

PARTS: Final = (
    ("parameter", "Parameters"), ("gradient", "Gradients"), ("main_gradient", "Main gradients"), ("master", "Master weights"),
    ("optimizer", "Optimizer state"),
)  # fmt: skip
"""What there is per parameter: the field of `PerParameter`, its name."""


@dataclass(frozen=True)
class Formula:
    """figure: what it gives. stage: of which pipeline stage, None of the model. result in `unit`: count, or B."""

    figure: str
    stage: int | None
    formula: str
    inputs: Inputs
    result: float
    unit: str

    @property
    def put_in(self) -> str:
        """The inputs as text: `h = 4096, f = 11008`."""
        return ", ".join(f"{name} = {_number(value)}" for name, value in self.inputs.items())


def explained(model: Model, layout: Layout, which: Sequence[int]) -> list[Formula]:
    """Returns the formulas of the model, and those of the pipeline stages `which`."""
    return [*_of_the_model(model), *(one for k in which for one in _of_a_stage(model, layout, k))]


def _of_the_model(model: Model) -> Iterator[Formula]:
    yield from _attention(model)
    matrices = 3 if model.gated else 2
    biases = f" + {'2 · ' if model.gated else ''}{{}}" if model.bias else ""
    name = "Feed-forward of one expert, F" if model.experts else "Feed-forward of a layer, F"
    width: dict[str, float] = {"h": model.hidden, "f": model.ffn}
    yield Formula(name, None, f"{matrices} · h · f{biases.format('f')}", width, model.feed_forward, "count")
    yield _vectors(model)
    latent: dict[str, float] = {"U": model.latent} if model.latent else {}
    shared = {"A": model.attention, **latent, "n": model.vectors}
    start = "A + U" if latent else "A"
    if model.experts:
        parts: dict[str, float] = {**shared, "x": model.experts, "F": model.feed_forward, "h": model.hidden}
        parts |= {"y": model.shared_experts} if model.shared_experts else {}
        experts = "(x + y)" if model.shared_experts else "x"
        yield Formula("A layer, N", None, f"{start} + {experts} · F + x · h + n", parts, model.layer, "count")
    else:
        yield Formula("A layer, N", None, f"{start} + F + n", {**shared, "F": model.feed_forward}, model.layer, "count")
    inputs: dict[str, float] = {"L": model.layers, "N": model.layer, "h": model.hidden, "V": model.vocab}
    layers = "L · N"
    if model.without_experts:
        dense: dict[str, float] = {"h": model.hidden, "w": model.dense_ffn or model.ffn}
        yield Formula("Feed-forward of a first layer, G", None, f"{matrices} · h · w", dense, model.dense_feed_forward, "count")
        yield Formula("A first layer, M", None, f"{start} + G + n", {**shared, "G": model.dense_feed_forward}, model.dense_layer, "count")
        inputs |= {"u": model.without_experts, "M": model.dense_layer}
        layers = "(L − u) · N + u · M"
    inputs |= {"i": model.positions} if model.positions else {}
    text = f"{layers} + {'' if model.tied else '2 · '}h · V{' + h · i' if model.positions else ''} + {'h' if model.rms_norm else '2 · h'}"
    yield Formula("The model", None, text, inputs, model.parameters, "count")


def _attention(model: Model) -> Iterator[Formula]:
    g = model.kv_heads or model.heads
    name = "Attention of a layer, A"
    inputs: dict[str, float]
    if model.kv_rank:
        inputs = {"a": model.heads, "c": model.head, "r": model.rope_channels, "v": model.kv_rank, "h": model.hidden}
        inputs |= {"q": model.q_rank} if model.q_rank else {}
        text = f"{'q' if model.q_rank else 'h'} · a · (c + r) + 2 · v · a · c + a · c · h"
        yield Formula(name, None, text, inputs, model.attention, "count")
        down = {n: v for n, v in inputs.items() if n in "qvrh"}
        text = "h · (q + v + r)" if model.q_rank else "h · (v + r)"
        yield Formula("What is common to heads, U", None, text, down, model.latent, "count")
    elif model.channels or model.bias or model.qkv_bias:
        inputs = {"h": model.hidden, "c": model.head, "a": model.heads, "g": g}
        biases = " + c · (a + 2 · g)" if model.bias or model.qkv_bias else ""
        yield Formula(name, None, f"2 · h · c · (a + g){biases}", inputs, model.attention, "count")
    else:
        yield Formula(name, None, "2 · h² · (1 + g/a)", {"h": model.hidden, "g": g, "a": model.heads}, model.attention, "count")


def _vectors(model: Model) -> Formula:
    text, inputs = f"{2 if model.rms_norm else 4} · h", {"h": model.hidden}
    if model.bias:
        text += " + 2 · h"
    if model.qk_norm:
        text += " + 2 · c"
        inputs |= {"c": model.head}
    if model.kv_rank:
        text += " + q + v" if model.q_rank else " + v"
        inputs |= {"q": model.q_rank, "v": model.kv_rank} if model.q_rank else {"v": model.kv_rank}
    name = "Norms and biases of a layer, n" if model.bias else "Norms of a layer, n"
    return Formula(name, None, text, inputs, model.vectors, "count")


def _of_a_stage(model: Model, layout: Layout, k: int) -> Iterator[Formula]:
    done = stage(model, layout, k)
    yield _parameters(model, layout, k)
    yield from _state(model, layout, k)
    yield _held(layout, k)
    yield _layer(model, layout, k)
    if dense_on(model, layout, k):
        yield _layer(model, layout, k, dense=True)
    yield _activations(model, layout, k, done.activation_bytes)
    if done.logits_bytes:
        yield _logits(model, layout, k)
    parts = {"W": done.state_bytes, "R": done.activation_bytes} | ({"Z": done.logits_bytes} if done.logits_bytes else {})
    yield Formula("Total", k, " + ".join(parts), parts, done.total_bytes, "B")


def _parameters(model: Model, layout: Layout, k: int) -> Formula:
    g, tp, u = model.kv_heads or model.heads, layout.tp, dense_on(model, layout, k)
    inputs: dict[str, float] = {"L": model.layers, "pp": layout.pp, "A": model.attention, "n": model.vectors}
    attention, per = "A", "/tp" if tp > 1 else ""
    if tp > g:  # key and value heads are repeated
        inputs |= {"K": model.keys_and_values, "g": g}
        attention = "(A − K)"
    rest = (" + K/g" if tp > g else "") + (" + U" if model.latent else "") + " + n"
    inputs |= {"U": model.latent} if model.latent else {}

    def divided(added: str) -> str:
        if not added:
            return f"{attention}{per}"
        return f"({attention} + {added}){per}" if per else f"{attention} + {added}"

    only_dense = u == model.layers // layout.pp
    if not only_dense or not u:
        inputs |= {"F": model.feed_forward}
    if model.experts:
        body = f"{divided('y · F' if model.shared_experts else '')}{rest} + x · h + x · F/(ep · etp)"
        if not only_dense:
            inputs |= {"x": model.experts, "h": model.hidden, "ep": layout.ep, "etp": layout.etp or tp}
            inputs |= {"y": model.shared_experts} if model.shared_experts else {}
    else:
        body = f"{divided('F')}{rest}"
    if tp > 1:
        inputs["tp"] = tp
    text = f"L/pp · ({body})"
    if u:
        inputs |= {"u": u, "G": model.dense_feed_forward}
        first = f"u · ({divided('G')}{rest})"
        text = first if only_dense else f"(L/pp − u) · ({body}) + {first}"
        if only_dense:
            del inputs["L"], inputs["pp"]
    for count in tables(model, layout, k):
        if count:
            vocab = padded_vocab(model, layout)
            inputs |= {"h": model.hidden, "V": vocab}
            text += " + h · V/tp" if count < model.hidden * vocab else " + h · V"
    if k == 0 and model.positions:
        inputs |= {"h": model.hidden, "i": model.positions}
        text += " + h · i"
    if k == layout.pp - 1:
        inputs["h"] = model.hidden
        text += " + h" if model.rms_norm else " + 2 · h"
    return Formula("Parameters, P", k, text, inputs, sum(parameters(model, layout, k)), "count")


def _state(model: Model, layout: Layout, k: int) -> Iterator[Formula]:
    dense, experts = parameters(model, layout, k)
    ranks, of_experts = layout.dp * layout.cp, expert_ranks(layout)
    done, one, now = stage(model, layout, k), per_parameter(layout, 1), per_parameter(layout, 1 << 40)
    terms: list[str] = []
    for name, label in PARTS:
        each: float = getattr(one, name)
        if not each:
            continue
        divided = getattr(now, name) < each
        inputs: dict[str, float]
        if divided and experts:
            text, inputs = f"{each:g} · (D/d + E/e)", {"D": dense, "d": ranks, "E": experts, "e": of_experts}
        elif divided:
            text, inputs = f"{each:g} · P/d", {"P": dense, "d": ranks}
        else:
            text, inputs = f"{each:g} · P", {"P": dense + experts}
        terms.append(text)
        yield Formula(label, k, text, inputs, getattr(done, f"{name}_bytes"), "B")
    if experts:
        sums: dict[str, float] = {"P": dense + experts, "D": dense, "d": ranks, "E": experts, "e": of_experts}
        used = {n: v for n, v in sums.items() if any(n in t for t in terms)}
        yield Formula("State, W", k, " + ".join(terms), used, done.state_bytes, "B")
    else:
        text = formula(layout)
        used = {"P": float(dense)} | ({"d": float(ranks)} if "d" in text else {})
        text = f"({text}) · P" if "+" in text else f"{text} · P"
        yield Formula("State, W", k, text, used, done.state_bytes, "B")


def _held(layout: Layout, k: int) -> Formula:
    held = in_flight(layout, k)
    inputs: dict[str, float]
    if layout.vpp > 1:
        inputs = {"pp": layout.pp, "k": k, "vpp": layout.vpp}
        text = "(2 · (pp − k − 1) + (vpp − 1) · pp + 1) / vpp"
        if layout.microbatches:
            inputs["m"] = layout.microbatches
            text = "min(m · vpp, 2 · (pp − k − 1) + (vpp − 1) · pp + 1) / vpp"
    else:
        inputs = {"pp": layout.pp, "k": k}
        text = "pp − k"
        if layout.microbatches:
            inputs["m"] = layout.microbatches
            text = "min(m, pp − k)"
    return Formula("Microbatches held, H", k, text, inputs, held, "count")


def _tokens(layout: Layout) -> tuple[str, dict[str, float]]:
    """Returns `s · b` as text, and its inputs; with context parallel ranks each holds its part of the sequence."""
    inputs: dict[str, float] = {"s": layout.seq, "b": layout.micro_batch}
    return ("s · b", inputs) if layout.cp == 1 else ("s/cp · b", inputs | {"cp": layout.cp})


def _layer(model: Model, layout: Layout, k: int, *, dense: bool = False) -> Formula:
    tokens, inputs = _tokens(layout)
    inputs |= {"h": model.hidden}
    if layout.sequence_parallel:
        if dense:
            inputs |= {"w": model.dense_ffn or model.ffn}
            width = "w/h"
        elif model.experts and model.shared_experts:
            inputs |= {"f": model.ffn, "j": model.experts_per_token, "y": model.shared_experts}
            width = "(j + y) · f/h"
        elif model.experts:
            inputs |= {"f": model.ffn, "j": model.experts_per_token}
            width = "j · f/h"
        else:
            inputs |= {"f": model.ffn}
            width = "f/h"
        text = f"{tokens} · h · (18 + 4 · {width})" + ("/tp" if layout.tp > 1 else "")
        if layout.tp > 1:
            inputs |= {"tp": layout.tp}
    else:
        inputs |= {"tp": layout.tp}
        text = f"{tokens} · h · (10 + 24/tp) · {SLACK:g}"
    if layout.recompute == "none":
        inputs |= {"a": model.heads, "tp": layout.tp}
        length = "s" if layout.cp == 1 else "s/cp"
        text += f" + 5 · a · {length} · {tokens}/tp"
    if layout.number == "fp32":
        text = f"2 · ({text})"
    name = "Activations of a first layer, t" if dense else "Activations of a layer, l"
    return Formula(name, k, text, inputs, per_layer(model, layout, dense=dense), "B")


def _activations(model: Model, layout: Layout, k: int, result: int) -> Formula:
    tokens, inputs = _tokens(layout)
    parallel = layout.sequence_parallel and layout.tp > 1
    over = "/tp" if parallel else ""
    one, u = per_layer(model, layout), dense_on(model, layout, k)
    held: dict[str, float] = {"L": model.layers, "pp": layout.pp, "H": in_flight(layout, k), "l": one}
    if not u:
        text = f"L/pp · H · 2 · {tokens} · h{over} + l" if layout.recompute == "full" else "L/pp · H · l"
    else:
        other = per_layer(model, layout, dense=True)
        held |= {"t": other}
        text = f"L/pp · H · 2 · {tokens} · h{over} + {'l' if one >= other else 't'}"
        if layout.recompute != "full":
            held |= {"u": u}
            text = "H · ((L/pp − u) · l + u · t)"
        else:
            del held["t" if one >= other else "l"]
    if k == 0:
        text += f" + H · {tokens} · (8 + h)" + (over if layout.sequence_parallel else f" · {SLACK:g}")
    if k == layout.pp - 1:
        text += f" + 4 · {tokens} · h{over}"
    if "· h" in text or "+ h" in text:
        held |= inputs | {"h": model.hidden}
        if parallel:
            held |= {"tp": layout.tp}
    return Formula("Activations, R", k, text, held, result, "B")


def _logits(model: Model, layout: Layout, k: int) -> Formula:
    tokens, inputs = _tokens(layout)
    divided = layout.tp > 1 and layout.head_placement != "all_full"
    inputs |= {"V": padded_vocab(model, layout)} | ({"tp": layout.tp} if divided else {})
    return Formula(
        "Logits and their gradient in FP32, Z", k, f"2 · 4 · {tokens} · V{'/tp' if divided else ''}", inputs, logits(model, layout, k), "B"
    )


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:.10g}"
