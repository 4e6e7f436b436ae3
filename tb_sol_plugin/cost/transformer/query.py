"""Builds a model and a layout from names and values (strings of a command line or of an address, or plain values), and the other layouts.

The names are the fields of `Model` (or `preset`), and `seq, micro_batch, microbatches, tp, pp, vpp, dp, cp, ep, etp, world,
sequence_parallel, recompute, dtype, optimizer, sharding, distributed_optimizer, embedding_placement, head_placement` of a layout. None and
"" are left out.
`others` yields the bytes of the first, a middle and the last stage of each other layout of the same devices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias, get_args

from tb_sol_plugin.cost.transformer.memory import (
    PRESETS,
    Layout,
    Model,
    Number,
    Optimizer,
    Placement,
    Recompute,
    Sharding,
    activations_of_a_sample,
    expert_tensor_size,
    in_flight,
    logits,
    stage,
)
from tb_sol_plugin.errors import BadQuery

Values: TypeAlias = Mapping[str, str | int | bool | None]

DEFAULT_PRESET: Final = "llama-7b"
NEEDED: Final = ("hidden", "layers", "vocab", "ffn", "heads")
"""Sizes without which a model is not described."""
MODEL_NUMBERS: Final[dict[str, tuple[int, int]]] = {
    "hidden": (1, 1 << 20), "layers": (1, 4096), "vocab": (1, 1 << 27), "ffn": (1, 1 << 23), "heads": (1, 1 << 14),
    "kv_heads": (0, 1 << 14), "channels": (0, 1 << 14), "experts": (0, 4096), "experts_per_token": (1, 4096),
    "shared_experts": (0, 4096), "dense_layers": (0, 4096), "dense_ffn": (0, 1 << 23), "positions": (0, 1 << 27), "q_rank": (0, 1 << 20),
    "kv_rank": (0, 1 << 20), "rope_channels": (0, 1 << 14),
}  # fmt: skip
"""Least and most of each size of a model."""
LAYOUT_NUMBERS: Final[dict[str, tuple[int, int]]] = {
    "seq": (1, 1 << 27), "micro_batch": (1, 1 << 16), "microbatches": (0, 1 << 20), "tp": (1, 4096), "pp": (1, 4096), "vpp": (1, 4096),
    "dp": (1, 1 << 20), "cp": (1, 4096), "ep": (1, 4096), "etp": (0, 4096),
}  # fmt: skip
WORLD: Final = (1, 1 << 20)
MODEL_FLAGS: Final = ("gated", "rms_norm", "tied", "bias", "qkv_bias", "qk_norm")
WORDS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "recompute": ("recompute", get_args(Recompute)),
    "dtype": ("number", get_args(Number)),
    "optimizer": ("optimizer", get_args(Optimizer)),
    "sharding": ("sharding", get_args(Sharding)),
    "embedding_placement": ("embedding_placement", get_args(Placement)),
    "head_placement": ("head_placement", get_args(Placement)),
}
"""Of a choice: the field of `Layout` that it sets, and its values."""
NAMES: Final = (
    "preset", *MODEL_NUMBERS, *MODEL_FLAGS, *LAYOUT_NUMBERS, "world", "sequence_parallel", "distributed_optimizer", *WORDS,
)  # fmt: skip
"""All names of a query."""
_FLAGS: Final = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def model_and_layout(values: Values, *, base: Model | None = None, layout: Layout | None = None) -> tuple[Model, Layout]:
    """Returns the model and the layout that `values` describe; what they leave out is that of the preset, else of `base` and `layout`.

    Without a preset and without `base` it is LLaMA-7B, unless sizes are given: then all of `NEEDED` must be. Names that are not
    in `NAMES` are ignored. BadQuery where a value does not fit or two contradict each other; whether the layout can run the
    model is another question (`possible.problems`).
    """
    given = {name: value for name, value in values.items() if value is not None and str(value).strip() != ""}
    return _model(given, base), _layout(given, layout or Layout())


def _model(given: Values, base: Model | None) -> Model:
    sizes: dict[str, int | bool] = {name: _number(given, name, limits) for name, limits in MODEL_NUMBERS.items() if name in given}
    sizes |= {name: _flag(given, name) for name in MODEL_FLAGS if name in given}
    name = str(given.get("preset", "")).strip().lower()
    if name and name not in PRESETS:
        raise BadQuery(f"no preset {name[:40]!r}", hint=f"there are: {', '.join(PRESETS)}", field="preset")
    if name or base is not None:
        return replace(PRESETS[name] if name or base is None else base, **sizes)  # type: ignore[arg-type]
    if not set(sizes) & set(NEEDED):
        return replace(PRESETS[DEFAULT_PRESET], **sizes)  # type: ignore[arg-type]
    lacking = [n for n in NEEDED if n not in sizes]
    if lacking:
        names = ", ".join(lacking)
        raise BadQuery(
            f"a model without a preset needs {names} too", hint=f"give {names}, or a preset to take them from: {', '.join(PRESETS)}",
            field=lacking[0],
        )  # fmt: skip
    return Model(**sizes)  # type: ignore[arg-type]


def _layout(given: Values, base: Layout) -> Layout:
    parts: dict[str, object] = {name: _number(given, name, limits) for name, limits in LAYOUT_NUMBERS.items() if name in given}
    parts |= {part: _word(given, name, words) for name, (part, words) in WORDS.items() if name in given}
    if "sequence_parallel" in given:
        parts["sequence_parallel"] = _flag(given, "sequence_parallel")
    if "distributed_optimizer" in given:
        parts["sharding"] = _sharding(given, base)
    out = replace(base, **parts)  # type: ignore[arg-type]
    return _over_the_world(given, out) if "world" in given else out


def _sharding(given: Values, base: Layout) -> Sharding:
    """Returns the distributed optimizer is the first of the kinds of sharding: it goes with every one but none."""
    wanted: Sharding = _word(given, "sharding", get_args(Sharding)) if "sharding" in given else base.sharding  # type: ignore[assignment]
    if _flag(given, "distributed_optimizer"):
        if "sharding" in given and wanted == "none":
            raise BadQuery(
                "distributed_optimizer is on and sharding is none", hint="leave one of them out, or say sharding = optimizer",
                field="sharding",
            )  # fmt: skip
        return "optimizer" if wanted == "none" else wanted
    if "sharding" in given and wanted != "none":
        raise BadQuery(
            f"distributed_optimizer is off and sharding is {wanted}, which divides optimizer state", hint="leave one of them out",
            field="sharding",
        )  # fmt: skip
    return "none"


def _over_the_world(given: Values, layout: Layout) -> Layout:
    """Returns the data parallel size that fills a number of devices, unless it is asked for too: then both must agree."""
    world, copy = _number(given, "world", WORLD), layout.tp * layout.pp * layout.cp
    product = "tp × pp × cp" if layout.cp > 1 else "tp × pp"
    if world % copy:
        near = " or ".join(str(n) for n in sorted({max(world // copy, 1) * copy, math.ceil(world / copy) * copy}))
        raise BadQuery(f"{world} devices do not divide into copies of {copy} ({product})", hint=f"nearest: world = {near}", field="world")
    if "dp" in given and layout.dp * copy != world:
        raise BadQuery(
            f"{product} × dp is {copy * layout.dp}, not {world}", hint=f"leave dp or world out, or say dp = {world // copy}", field="dp"
        )
    return replace(layout, dp=world // copy)


def _number(given: Values, name: str, limits: tuple[int, int]) -> int:
    least, most = limits
    try:
        number = int(str(given[name]).strip()) if not isinstance(given[name], bool) else least - 1
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise BadQuery(f"{name} does not fit: {str(given[name])[:40]!r}", hint=f"give a whole number from {least} to {most}", field=name)
    return number


def _flag(given: Values, name: str) -> bool:
    found = _FLAGS.get(str(given[name]).strip().lower())
    if found is None:
        raise BadQuery(f"{name} does not fit: {str(given[name])[:40]!r}", hint="give true or false", field=name)
    return found


def _word(given: Values, name: str, words: tuple[str, ...]) -> str:
    word = str(given[name]).strip().lower()
    if word not in words:
        raise BadQuery(f"{name} does not fit: {str(given[name])[:40]!r}", hint=f"choose one of {', '.join(words)}", field=name)
    return word


# -- whether a layout can run a model --------------------------------------------------------------------------------


FARTHEST: Final = 4096
"""How far from a value the nearest possible ones are looked for."""


@dataclass(frozen=True)
class Problem:
    """field: the name of what is to be changed (as in `NAMES`). why: what is wrong. near: possible values beside the present one."""

    field: str
    why: str
    near: tuple[int, ...] = ()

    @property
    def remedy(self) -> str:
        """What to do, in one line."""
        if not self.near:
            return f"change {self.field}"
        return f"nearest possible: {self.field} = {' or '.join(str(n) for n in self.near)}"


@dataclass(frozen=True)
class _Rule:
    """holds: whether a layout is possible, as far as this rule knows. words: what to say where it is not."""

    field: str
    holds: Callable[[Model, Layout], bool]
    words: Callable[[Model, Layout], str]


def _kv(model: Model) -> int:
    return model.kv_heads or model.heads


def _sequence(layout: Layout) -> int:
    """Returns what the tokens of a sequence are divided by."""
    return layout.cp * (layout.tp if layout.sequence_parallel else 1)


RULES: Final[tuple[_Rule, ...]] = (
    _Rule("heads", lambda m, x: bool(m.channels) or m.hidden % m.heads == 0,
          lambda m, x: f"hidden = {m.hidden} does not divide over {m.heads} heads"),
    _Rule("kv_heads", lambda m, x: m.heads % _kv(m) == 0,
          lambda m, x: f"{m.heads} heads do not share {_kv(m)} key and value heads evenly"),
    _Rule("tp", lambda m, x: m.heads % x.tp == 0, lambda m, x: f"{m.heads} heads do not divide over tp = {x.tp}"),
    _Rule("tp", lambda m, x: _kv(m) % x.tp == 0 or x.tp % _kv(m) == 0,
          lambda m, x: f"{_kv(m)} key and value heads and tp = {x.tp} do not divide"),
    _Rule("tp", lambda m, x: bool(m.experts) or m.ffn % x.tp == 0,
          lambda m, x: f"a feed-forward of {m.ffn} does not divide over tp = {x.tp}"),
    _Rule("tp", lambda m, x: not (m.experts and m.dense_layers) or (m.dense_ffn or m.ffn) % x.tp == 0,
          lambda m, x: f"the feed-forward of {m.dense_ffn or m.ffn} of the first layers does not divide over tp = {x.tp}"),
    _Rule("bias", lambda m, x: not (m.bias and m.experts), lambda m, x: "biases of experts are not part of a plan"),
    _Rule("q_rank", lambda m, x: bool(m.kv_rank) or not m.q_rank, lambda m, x: "q_rank is of latent attention, which needs kv_rank"),
    _Rule("rope_channels", lambda m, x: bool(m.kv_rank) or not m.rope_channels,
          lambda m, x: "rope_channels are of latent attention, which needs kv_rank"),
    _Rule("pp", lambda m, x: m.layers % x.pp == 0, lambda m, x: f"{m.layers} layers do not divide over pp = {x.pp}"),
    _Rule("vpp", lambda m, x: x.vpp == 1 or x.pp > 1, lambda m, x: "vpp needs more than one pipeline stage"),
    _Rule("vpp", lambda m, x: m.layers % x.pp != 0 or m.layers // x.pp % x.vpp == 0,
          lambda m, x: f"the {m.layers // x.pp} layers of a stage do not divide over vpp = {x.vpp} chunks"),
    _Rule("seq", lambda m, x: x.seq % _sequence(x) == 0,
          lambda m, x: f"a sequence of {x.seq} does not divide over {_sequence(x)} ranks (cp{' × tp' if x.sequence_parallel else ''})"),
    _Rule("ep", lambda m, x: x.ep == 1 or m.experts > 0, lambda m, x: f"ep = {x.ep} needs a model with experts"),
    _Rule("ep", lambda m, x: m.experts % x.ep == 0, lambda m, x: f"{m.experts} experts do not divide over ep = {x.ep}"),
    _Rule("ep", lambda m, x: not m.experts or x.dp * x.cp * x.tp % (x.ep * expert_tensor_size(x)) == 0,
          lambda m, x: f"the {x.dp * x.cp * x.tp} ranks of a stage do not divide into groups of ep × etp = {x.ep * expert_tensor_size(x)}"),
    _Rule("etp", lambda m, x: not m.experts or m.ffn % expert_tensor_size(x) == 0,
          lambda m, x: f"an expert's feed-forward of {m.ffn} does not divide over etp = {expert_tensor_size(x)}"),
    _Rule("experts_per_token", lambda m, x: not m.experts or m.experts_per_token <= m.experts,
          lambda m, x: f"a token cannot go through {m.experts_per_token} of {m.experts} experts"),
)  # fmt: skip
"""What must divide, in the order in which it is said."""


def problems(model: Model, layout: Layout) -> list[Problem]:
    """Returns why a layout cannot run a model, with the nearest values that could; empty where it can."""
    wrong = [rule for rule in RULES if not rule.holds(model, layout)]
    return [Problem(rule.field, rule.words(model, layout), _near(rule.field, model, layout)) for rule in wrong]


def possible(model: Model, layout: Layout) -> bool:
    """Whether a layout can run a model."""
    return all(rule.holds(model, layout) for rule in RULES)


def choices(field: str, model: Model, layout: Layout, candidates: Iterable[int]) -> tuple[int, ...]:
    """Returns those of `candidates` that a size of the layout could have, all else as it is."""
    return _choices(field, model, layout, tuple(candidates))


@lru_cache(256)
def _choices(field: str, model: Model, layout: Layout, candidates: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(v for v in candidates if possible(model, replace(layout, **{field: v})))  # type: ignore[arg-type]


def must_be_possible(model: Model, layout: Layout) -> None:
    """Raise BadQuery with what is wrong and its remedy where a layout cannot run a model."""
    found = problems(model, layout)
    if not found:
        return
    first = found[0]
    shown = [p for p in found if p.field == first.field]
    if first.near:  # what the remedy mends too is not said
        model, layout = _with(model, layout, first.field, first.near[0])
        shown += problems(model, layout)
    else:
        shown = found
    raise BadQuery(
        "; ".join(dict.fromkeys(p.why for p in shown)), hint="; ".join(dict.fromkeys(p.remedy for p in shown)), field=first.field
    )


def _with(model: Model, layout: Layout, field: str, value: int) -> tuple[Model, Layout]:
    """Returns both, with one size of either changed."""
    if hasattr(model, field):
        return replace(model, **{field: value}), layout  # type: ignore[arg-type]
    return model, replace(layout, **{field: value})  # type: ignore[arg-type]


def _near(field: str, model: Model, layout: Layout) -> tuple[int, ...]:
    """Returns the possible values right below and right above the present one, as far as the rules of this field go."""
    own = [rule for rule in RULES if rule.field == field]
    now: int = getattr(model, field, None) or getattr(layout, field, None) or expert_tensor_size(layout)

    def fits(value: int) -> bool:
        changed = _with(model, layout, field, value)
        return all(rule.holds(*changed) for rule in own)

    below = next((v for v in range(now - 1, max(now - FARTHEST, 0), -1) if fits(v)), None)
    above = next((v for v in range(now + 1, now + FARTHEST) if fits(v)), None)
    return tuple(v for v in (below, above) if v is not None)


# -- the same model on the same devices, in every other layout -------------------------------------------------------
# State does not depend on the micro-batch and activations are in proportion to it, so that what one sample takes is made once per tensor
# and pipeline parallel size; the rest is a sum.


MICRO_BATCHES: Final = (1, 2, 4, 8)
MOST_WAYS: Final = 600
"""Ways to divide devices into tensor and pipeline parallel ranks that are looked at: more than there are of any 4 096 devices."""
KINDS: Final[tuple[Recompute, ...]] = get_args(Recompute)


class Spread(NamedTuple):
    """One layout. microbatches: 0 for as many as there are stages. middle_bytes: of the second stage, the fullest of those between the
    ends; None without one. imbalance: the largest of the three over the smallest."""

    tp: int
    pp: int
    vpp: int
    dp: int
    micro_batch: int
    microbatches: int
    recompute: Recompute
    first_bytes: int
    middle_bytes: int | None
    last_bytes: int
    largest_bytes: int
    imbalance: float


def layouts(model: Model, layout: Layout, world: int, micro_batches: tuple[int, ...] = MICRO_BATCHES) -> list[Spread]:
    """Returns every possible (tp, pp, dp, micro-batch, recompute) on `world` devices; all else as in `layout`.

    With a number of microbatches the samples of a step stay the same, and layouts that cannot divide them are left out. Chunks per stage
    (vpp) are 1 where those of `layout` do not fit. Of more than `MOST_WAYS` ways to choose tp and pp, those with the smallest tp.
    """
    sizes = sorted({*micro_batches, layout.micro_batch})
    samples = layout.microbatches * layout.micro_batch * layout.dp
    rows: list[Spread] = []
    for one in itertools.islice(_spread(model, layout, world), MOST_WAYS):
        places = sorted({0, min(1, one.pp - 1), one.pp - 1})
        state = [stage(model, one, k).state_bytes for k in places]
        counts = {size: _microbatches(samples, size, one.dp) for size in sizes}
        held = {n: [in_flight(replace(one, microbatches=n), k) for k in places] for n in set(counts.values()) if n is not None}
        head = [logits(model, replace(one, micro_batch=1), k) for k in places]
        for kind in KINDS:
            sample = [activations_of_a_sample(model, replace(one, recompute=kind), k) for k in places]
            for size, count in counts.items():
                if count is None:
                    continue
                parts = zip(state, sample, held[count], head, strict=True)
                total = [fixed + round(size * (p.each * n + p.once)) + size * h for fixed, p, n, h in parts]
                middle = total[1] if len(total) > 2 else None
                most = max(total)
                ends = (total[0], middle, total[-1], most, most / min(total))
                rows.append(Spread(one.tp, one.pp, one.vpp, one.dp, size, count, kind, *ends))
    return rows


def _spread(model: Model, layout: Layout, world: int) -> Iterator[Layout]:
    """Yields possible layouts of a model over `world` devices, by tp, then pp."""
    over = divisors(world // layout.cp) if world % layout.cp == 0 else []
    pps = [n for n in over if model.layers % n == 0]
    for tp in (n for n in over if model.heads % n == 0):
        for pp in pps:
            if (world // layout.cp) % (tp * pp):
                continue
            one = replace(layout, tp=tp, pp=pp, dp=world // layout.cp // tp // pp)
            if one.vpp > 1 and (pp == 1 or model.layers % (pp * one.vpp)):
                one = replace(one, vpp=1)
            if possible(model, one):
                yield one


def _microbatches(samples: int, size: int, dp: int) -> int | None:
    """Returns microbatches that keep the samples of a step; 0 where their number is left open, None where they do not divide."""
    if not samples:
        return 0
    return samples // (size * dp) if samples % (size * dp) == 0 else None


def divisors(number: int) -> list[int]:
    """Returns all divisors, smallest first."""
    low = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*low, *(number // n for n in low)})
