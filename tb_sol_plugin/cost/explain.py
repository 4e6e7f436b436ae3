"""Why a cost model gives no answer for a call: which recorded size, type or value it asked for and did not find."""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Slot, Tensor, Value
from tb_sol_plugin.cost.model import Cost, Formula

NO_SIZES: Final = "no sizes recorded"
_MOST: Final = 40
"""Characters of a text out of the file that a reason repeats."""


class _Asked(Inputs):
    """The same arguments; remembers which positions a formula looks at."""

    def __init__(self, call: Inputs) -> None:
        self.__dict__.update(call.__dict__)
        self.__dict__.pop("values", None)
        self.asked: dict[int, None] = {}
        self.asked_lists: dict[int, None] = {}
        self.asked_values: dict[int, None] = {}

    def tensor(self, at: int) -> Tensor | None:
        self.asked[at] = None
        return super().tensor(at)

    def tensors(self, at: int) -> tuple[Tensor, ...]:
        self.asked_lists[at] = None
        return super().tensors(at)

    def value(self, at: int) -> Value:
        self.asked_values[at] = None
        return super().value(at)


def why_not(formula: Formula, call: Inputs) -> str:
    """One plain sentence, "" where the formula knows traffic and, for matrix work, what it computes in."""
    watched = _Asked(call)
    answer = formula(watched)
    if answer is not None and answer.bytes is not None and (answer.dtype or not answer.flop):
        return ""
    listed = "TensorList" in call.types
    if not listed and not any(isinstance(s, list) and s for s in call.shapes) and not any(map(_is_tensor, call.slots)):
        return NO_SIZES
    if answer is not None and answer.reason and answer.flop is None:
        return answer.reason
    return _what_is_missing(call, watched, answer)


def _what_is_missing(call: Inputs, watched: _Asked, answer: Cost | None) -> str:
    """Say which of the arguments that a formula read has no type or no sizes. answer: what the formula returned."""
    places = [*watched.asked, *(at for at in watched.asked_lists if at not in watched.asked)] or list(range(len(call.slots)))
    if answer is not None:
        return next(filter(None, (_type_missing(call, at) for at in places)), "an element type is not known")
    missing = [at for at in places if at >= len(call.slots) or not _is_tensor(call.slots[at])]
    found = next((_unreadable(call, at) for at in missing if _unreadable(call, at)), "")
    if found:
        return found
    if missing and missing[0] < 2 and not any(call.types[missing[0] : missing[0] + 1]):
        return f"sizes of argument {missing[0]} not recorded"
    if watched.asked_values and not call.has_values:
        return "values of the arguments not recorded"
    return f"sizes do not fit the model: {_sizes(call)}"


def _is_tensor(slot: Slot) -> bool:
    return isinstance(slot, Tensor) or bool(slot)


def _unreadable(call: Inputs, at: int) -> str:
    """What is wrong with the sizes of an argument that has none, "" for one that may just not have been given."""
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
