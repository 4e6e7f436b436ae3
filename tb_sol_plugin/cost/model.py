"""Defines what a cost model answers, registers models by operator name, and explains why one has no answer for a call.

Convention `tbsol-1`: one multiply-add is 2 FLOP; bias adds are bytes, not FLOP; matrix and vector operations are counted apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final, Literal, TypeAlias

import msgspec

from tb_sol_plugin.cost.inputs import Inputs, Slot, Tensor, Value

CONVENTION: Final = "tbsol-1"

Kind: TypeAlias = Literal["gemm", "attention", "conv", "norm", "elementwise", "other"]
Direction: TypeAlias = Literal["fwd", "bwd"]


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Work of one call.

    flop: matrix class (GEMM, convolution, attention; causal-aware). flop_dense: the same with causal pairs at full cost. flop_again: the
    part of flop that the call computes a second time (the scores, in the backward pass of fused attention).
    flop_vector: elementwise, norms, reductions. bytes: least traffic to device memory, inputs read and outputs written once.
    None is unknown; 0 means that there is none. dtype: what the matrix or vector units compute in, "" unknown.
    estimated, reason: a shape, type or mask had to be assumed.
    """

    flop: int | None = 0
    flop_dense: int | None = None
    flop_again: int = 0
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
    """Returns the answer of a formula that can say why it has none (`sizes contradict: K 64 and 128`)."""
    return Cost(flop=None, flop_vector=None, bytes=None, reason=reason)


Formula: TypeAlias = Callable[[Inputs], "Cost | None"]


class Model(msgspec.Struct, frozen=True):
    """A formula. wrapper: the operator only calls others; it owns work just where these explain less of its time.

    plugin: name of the entry point that brought it, "" for a built-in one.
    """

    formula: Formula
    kind: Kind
    wrapper: bool = False
    plugin: str = ""


_MODELS: Final[dict[str, Model]] = {}
_PATTERNS: Final[list[tuple[re.Pattern[str], Model]]] = []
_OVERRIDES: Final[list[tuple[re.Pattern[str], Model]]] = []
"""Patterns that stand before the names, because they replace."""


def model(*names: str, kind: Kind, wrapper: bool = False, replace: bool = False) -> Callable[[Formula], Formula]:
    """Register a formula for operator names (exactly as recorded).

    replace: take the place of a model that the name has. Without it such a name raises ValueError.
    """

    def register(formula: Formula) -> Formula:
        for name in names:
            if not replace and (name in _MODELS or (_loading and find(name) is not None)):
                raise ValueError(f"two cost models for {name}: replace=True takes the place of the other")
            _MODELS[name] = Model(formula, kind, wrapper, _loading)
        find.cache_clear()
        return formula

    return register


def pattern(regex: str, *, kind: Kind, wrapper: bool = False, replace: bool = False) -> Callable[[Formula], Formula]:
    """Register a formula for names that match a regular expression as a whole.

    A name with a model of its own and a pattern registered earlier come first, unless `replace`.
    """

    def register(formula: Formula) -> Formula:
        entry = (re.compile(regex), Model(formula, kind, wrapper, _loading))
        if replace:
            _OVERRIDES.insert(0, entry)
        else:
            _PATTERNS.append(entry)
        find.cache_clear()
        return formula

    return register


@lru_cache(maxsize=4096)
def find(name: str) -> Model | None:
    """Returns the model of an operator name; None where there is none."""
    for regex, found in _OVERRIDES:
        if regex.fullmatch(name):
            return found
    if name in _MODELS:
        return _MODELS[name]
    return next((m for regex, m in _PATTERNS if regex.fullmatch(name)), None)


def registered() -> tuple[str, ...]:
    """Returns every registered name, sorted; patterns are left out."""
    return tuple(sorted(_MODELS))


def everything() -> tuple[tuple[str, bool, Model], ...]:
    """Returns (name or regular expression, whether it is a name, model) of the whole registry, in the order it is searched."""
    rows = [(regex.pattern, False, found) for regex, found in _OVERRIDES]
    rows += [(name, True, found) for name, found in _MODELS.items()]
    return (*rows, *((regex.pattern, False, found) for regex, found in _PATTERNS))


_loading = ""


@contextmanager
def registering(plugin: str) -> Iterator[None]:
    """Models registered inside belong to `plugin`. If it raises, none of them stay."""
    global _loading
    before = dict(_MODELS), list(_PATTERNS), list(_OVERRIDES)
    _loading = plugin
    try:
        yield
    except BaseException:
        _MODELS.clear()
        _MODELS.update(before[0])
        _PATTERNS[:], _OVERRIDES[:] = before[1], before[2]
        raise
    finally:
        _loading = ""
        find.cache_clear()


# -- why a model has no answer: which recorded size, type or value is missing ---------------------


NO_SIZES: Final = "no sizes recorded"
_MOST: Final = 40
"""Characters of a text out of the file that a reason repeats."""


class _RecordedReads(Inputs):
    """The same arguments; records which positions a formula reads."""

    def __init__(self, call: Inputs) -> None:
        self.__dict__.update(call.__dict__)
        self.__dict__.pop("values", None)
        self.read: dict[int, None] = {}
        self.read_lists: dict[int, None] = {}
        self.read_values: dict[int, None] = {}

    def tensor(self, at: int) -> Tensor | None:
        self.read[at] = None
        return super().tensor(at)

    def tensors(self, at: int) -> tuple[Tensor, ...]:
        self.read_lists[at] = None
        return super().tensors(at)

    def value(self, at: int) -> Value:
        self.read_values[at] = None
        return super().value(at)


def why_not(formula: Formula, call: Inputs) -> str:
    """Returns one plain sentence, "" where the formula knows traffic and, for matrix work, what it computes in."""
    reads = _RecordedReads(call)
    answer = formula(reads)
    if answer is not None and answer.bytes is not None and (answer.dtype or not answer.flop):
        return ""
    listed = "TensorList" in call.types
    if not listed and not any(isinstance(s, list) and s for s in call.shapes) and not any(map(_is_tensor, call.slots)):
        return NO_SIZES
    if answer is not None and answer.reason and answer.flop is None:
        return answer.reason
    return _what_is_missing(call, reads, answer)


def _what_is_missing(call: Inputs, reads: _RecordedReads, answer: Cost | None) -> str:
    """Say which of the arguments that a formula read has no type or no sizes. answer: what the formula returned."""
    places = [*reads.read, *(at for at in reads.read_lists if at not in reads.read)] or list(range(len(call.slots)))
    if answer is not None:
        return next(filter(None, (_type_missing(call, at) for at in places)), "an element type is not known")
    missing = [at for at in places if at >= len(call.slots) or not _is_tensor(call.slots[at])]
    found = next((_unreadable(call, at) for at in missing if _unreadable(call, at)), "")
    if found:
        return found
    if missing and missing[0] < 2 and not any(call.types[missing[0] : missing[0] + 1]):
        return f"sizes of argument {missing[0]} not recorded"
    if reads.read_values and not call.has_values:
        return "values of the arguments not recorded"
    return f"sizes do not fit the model: {_sizes(call)}"


def _is_tensor(slot: Slot) -> bool:
    return isinstance(slot, Tensor) or bool(slot)


def _unreadable(call: Inputs, at: int) -> str:
    """Returns what is wrong with the sizes of an argument that has none, "" for one that may just not have been given."""
    shape = call.shapes[at] if at < len(call.shapes) else []
    if at < len(call.types) and call.types[at] == "TensorList":
        return f"sizes of argument {at} (a tensor list) not recorded"
    return f"sizes of argument {at} not known: {_short(shape)}" if shape else ""


def _type_missing(call: Inputs, at: int) -> str:
    slot = call.slots[at] if at < len(call.slots) else None
    kind = call.types[at] if at < len(call.types) else ""
    if isinstance(slot, Tensor):
        if slot.dtype:
            return ""
        return f"element type of argument {at} not known: '{_short(kind)}'" if kind else f"element type of argument {at} not recorded"
    if slot and any(not tensor.dtype for tensor in slot):
        return f"element type of argument {at} (a tensor list) not recorded"
    return ""


def _short(value: object) -> str:
    text = str(value).replace("'", "")
    return text if len(text) <= _MOST else text[: _MOST - 1] + "…"


def _sizes(call: Inputs) -> str:
    text = ", ".join("×".join(map(str, t.shape)) or "scalar" for t in call.flat)
    return _short(text)
