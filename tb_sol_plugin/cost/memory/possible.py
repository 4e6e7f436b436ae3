"""Whether a layout can run a model: what does not divide, and the nearest values that do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from tb_sol_plugin.cost.memory.layout import Layout, Model
from tb_sol_plugin.errors import BadQuery

FARTHEST: Final = 4096
"""How far from a value the nearest possible ones are looked for."""


@dataclass(frozen=True)
class Problem:
    """field: the name of what is to be changed (as in `asked.NAMES`). why: what is wrong. near: possible values beside the present one."""

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


def _etp(layout: Layout) -> int:
    return layout.etp or layout.tp


def _sequence(layout: Layout) -> int:
    """What the tokens of a sequence are divided by."""
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
    _Rule("vocab", lambda m, x: m.vocab % x.tp == 0,
          lambda m, x: f"a vocabulary of {m.vocab} does not divide over tp = {x.tp}; frameworks pad it"),
    _Rule("pp", lambda m, x: m.layers % x.pp == 0, lambda m, x: f"{m.layers} layers do not divide over pp = {x.pp}"),
    _Rule("vpp", lambda m, x: x.vpp == 1 or x.pp > 1, lambda m, x: "vpp needs more than one pipeline stage"),
    _Rule("vpp", lambda m, x: m.layers % x.pp != 0 or m.layers // x.pp % x.vpp == 0,
          lambda m, x: f"the {m.layers // x.pp} layers of a stage do not divide over vpp = {x.vpp} chunks"),
    _Rule("seq", lambda m, x: x.seq % _sequence(x) == 0,
          lambda m, x: f"a sequence of {x.seq} does not divide over {_sequence(x)} ranks (cp{' × tp' if x.sequence_parallel else ''})"),
    _Rule("ep", lambda m, x: x.ep == 1 or m.experts > 0, lambda m, x: f"ep = {x.ep} needs a model with experts"),
    _Rule("ep", lambda m, x: m.experts % x.ep == 0, lambda m, x: f"{m.experts} experts do not divide over ep = {x.ep}"),
    _Rule("ep", lambda m, x: not m.experts or x.dp * x.cp * x.tp % (x.ep * _etp(x)) == 0,
          lambda m, x: f"the {x.dp * x.cp * x.tp} ranks of a stage do not divide into groups of ep × etp = {x.ep * _etp(x)}"),
    _Rule("etp", lambda m, x: not m.experts or m.ffn % _etp(x) == 0,
          lambda m, x: f"an expert's feed-forward of {m.ffn} does not divide over etp = {_etp(x)}"),
    _Rule("experts_per_token", lambda m, x: not m.experts or m.experts_per_token <= m.experts,
          lambda m, x: f"a token cannot go through {m.experts_per_token} of {m.experts} experts"),
)  # fmt: skip
"""What must divide, in the order in which it is said."""


def problems(model: Model, layout: Layout) -> list[Problem]:
    """Why a layout cannot run a model, with the nearest values that could; empty where it can."""
    wrong = [rule for rule in RULES if not rule.holds(model, layout)]
    return [Problem(rule.field, rule.words(model, layout), _near(rule.field, model, layout)) for rule in wrong]


def possible(model: Model, layout: Layout) -> bool:
    """Whether a layout can run a model."""
    return all(rule.holds(model, layout) for rule in RULES)


def choices(field: str, model: Model, layout: Layout, candidates: Iterable[int]) -> tuple[int, ...]:
    """Those of `candidates` that a size of the layout could have, all else as it is."""
    return tuple(v for v in candidates if possible(model, replace(layout, **{field: v})))  # type: ignore[arg-type]


def must_be_possible(model: Model, layout: Layout) -> None:
    """Raise BadQuery with what is wrong and its remedy where a layout cannot run a model."""
    found = problems(model, layout)
    if not found:
        return
    first = found[0]
    said = [p for p in found if p.field == first.field]
    if first.near:  # what the remedy mends too is not said
        model, layout = _with(model, layout, first.field, first.near[0])
        said += problems(model, layout)
    else:
        said = found
    raise BadQuery(
        "; ".join(dict.fromkeys(p.why for p in said)), hint="; ".join(dict.fromkeys(p.remedy for p in said)), field=first.field
    )


def _with(model: Model, layout: Layout, field: str, value: int) -> tuple[Model, Layout]:
    """Both, with one size of either changed."""
    if hasattr(model, field):
        return replace(model, **{field: value}), layout  # type: ignore[arg-type]
    return model, replace(layout, **{field: value})  # type: ignore[arg-type]


def _near(field: str, model: Model, layout: Layout) -> tuple[int, ...]:
    """The possible values right below and right above the present one, as far as the rules of this field go; of a vocabulary, padded."""
    own = [rule for rule in RULES if rule.field == field]
    now: int = getattr(model, field, None) or getattr(layout, field, None) or _etp(layout)

    def fits(value: int) -> bool:
        changed = _with(model, layout, field, value)
        return all(rule.holds(*changed) for rule in own)

    if field == "vocab":
        step = math.lcm(128, layout.tp)
        return (-(-now // step) * step,)
    below = next((v for v in range(now - 1, max(now - FARTHEST, 0), -1) if fits(v)), None)
    above = next((v for v in range(now + 1, now + FARTHEST) if fits(v)), None)
    return tuple(v for v in (below, above) if v is not None)
