"""What a cost model answers, and the registry of models by operator name.

Convention `tbsol-1`: one multiply-add is 2 FLOP; bias adds are bytes, not FLOP; matrix and vector operations are counted apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Final, Literal, TypeAlias

import msgspec

from tb_sol_plugin.cost.inputs import Inputs

CONVENTION: Final = "tbsol-1"

Kind: TypeAlias = Literal["gemm", "attention", "conv", "norm", "elementwise", "other"]
Direction: TypeAlias = Literal["fwd", "bwd"]


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Work of one call.

    flop: matrix class (GEMM, convolution, attention; causal-aware). flop_dense: the same with causal pairs at full cost.
    flop_vector: elementwise, norms, reductions. bytes: least traffic to device memory, inputs read and outputs written once.
    None is unknown; 0 means that there is none. dtype: what the matrix or vector units compute in, "" unknown.
    estimated, reason: a shape, type or mask had to be assumed.
    """

    flop: int | None = 0
    flop_dense: int | None = None
    flop_vector: int | None = 0
    bytes: int | None = None
    dtype: str = ""
    kind: Kind = "other"
    direction: Direction = "fwd"
    estimated: bool = False
    reason: str = ""


    @property
    def usable(self) -> bool:
        """Whether it says enough to place an operation: its traffic, or matrix work."""
        return self.bytes is not None or bool(self.flop)


def unknown(reason: str) -> Cost:
    """The answer of a formula that can say why it has none (`sizes contradict: K 64 and 128`)."""
    return Cost(flop=None, flop_vector=None, bytes=None, reason=reason)


Formula: TypeAlias = Callable[[Inputs], "Cost | None"]


class Model(msgspec.Struct, frozen=True):
    """A formula. wrapper: the operator only calls others; it owns work just where these explain less of its time."""

    formula: Formula
    kind: Kind
    wrapper: bool = False


_MODELS: Final[dict[str, Model]] = {}
_PATTERNS: Final[list[tuple[re.Pattern[str], Model]]] = []


def model(*names: str, kind: Kind, wrapper: bool = False) -> Callable[[Formula], Formula]:
    """Register a formula for operator names (exactly as recorded)."""

    def register(formula: Formula) -> Formula:
        for name in names:
            if name in _MODELS:
                raise ValueError(f"two cost models for {name}")
            _MODELS[name] = Model(formula, kind, wrapper)
        return formula

    return register


def pattern(regex: str, *, kind: Kind, wrapper: bool = False) -> Callable[[Formula], Formula]:
    """Register a formula for names that match a regular expression as a whole."""

    def register(formula: Formula) -> Formula:
        _PATTERNS.append((re.compile(regex), Model(formula, kind, wrapper)))
        return formula

    return register


@cache
def find(name: str) -> Model | None:
    """The model of an operator name; None where there is none."""
    if name in _MODELS:
        return _MODELS[name]
    return next((m for regex, m in _PATTERNS if regex.fullmatch(name)), None)


def registered() -> tuple[str, ...]:
    """Every registered name, sorted; patterns are left out."""
    return tuple(sorted(_MODELS))
