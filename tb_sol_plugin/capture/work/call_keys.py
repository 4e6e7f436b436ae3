"""Key functions compute what a repeated call is recognized by, one for each sort of arguments, made as text at its first call.

What an operator is given differs little from call to call: two tensors; a tensor and a number. A function that is made for just that asks
each argument for what counts and nothing else, in half the time and a third of the code that `signatures.call_key` takes, which reads
anything. Its answer is one number, so that a call is recognized by one lookup, not by comparing a dozen objects that lie anywhere.

The number is the hash, of 64 bits, of all that `call_key` reads and of the labels. Python's hashes of negative and of very large integers
are not all different, so those count by their text. Two of a million different calls have the same number with a probability below 1e-7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor
from torch.nn import Parameter

from tb_sol_plugin.capture.work.operators import KeyFunction, OpInfo

MOST: Final = 2000
"""Sorts of arguments that functions are made for; `signatures.call_key` reads others."""
FAILURES: Final = (AttributeError, TypeError, ValueError, KeyError, RuntimeError, NotImplementedError)
"""What a function raises of arguments that it was not made for, or that have no sizes."""

_made: Final[dict[tuple[object, ...], KeyFunction | None]] = {}


def key_function(info: OpInfo, args: Sequence[object], kwargs: Mapping[str, object] | None) -> KeyFunction | None:
    """Returns the key function for arguments of this sort; None where `signatures.call_key` must read them."""
    sort = (*map(_kind, args), *((name, _kind(value)) for name, value in (kwargs or {}).items()))
    if info.fractions or not info.lists:
        lists = [value for value in (*args, *(kwargs or {}).values()) if type(value) is list]
        if info.fractions or not all(map(_tensors, lists)):
            return None
    try:
        return _made[sort]
    except KeyError:
        if len(_made) >= MOST:
            return None
        made = _made[sort] = _make(args, kwargs or {}, number=len(_made))
        return made


def _kind(value: object) -> object:
    kind = type(value)
    if kind is Tensor or kind is Parameter:
        return Tensor
    if kind is list:
        return (list, Tensor) if _tensors(value) else (list, *{type(one) for one in value})  # type: ignore[arg-type, attr-defined]
    return kind


def _tensors(values: Sequence[object]) -> bool:
    return bool(values) and all(type(one) is Tensor or type(one) is Parameter for one in values)


def parts(tensors: Sequence[Tensor]) -> list[object]:
    """Lists what counts of the tensors in a list, one after the other."""
    out: list[object] = [tensors[0].is_cpu]
    for one in tensors:
        strides = one.stride()
        out += (one.shape, one.dtype, strides)
        if 0 in strides or not strides:
            out.append(one.layout)
    return out


def whole(numbers: Sequence[int]) -> Sequence[int | str]:
    """Returns whole numbers in a form whose hashes differ."""
    return numbers if not numbers or min(numbers) >= 0 else [*map(str, numbers)]


_VALUES: Final = {
    bool: "bool", str: "str", torch.dtype: "dtype", torch.device: "device", torch.layout: "layout",
    torch.memory_format: "memory_format",
}  # fmt: skip
"""Types whose values count as they are, by the name that the text has for them."""
_NAMES: Final = {
    "parts": parts, "whole": whole, "dtype": torch.dtype, "device": torch.device, "layout": torch.layout,
    "memory_format": torch.memory_format,
}  # fmt: skip


def _make(args: Sequence[object], kwargs: Mapping[str, object], *, number: int) -> KeyFunction | None:
    """Makes the key function for arguments like these; None where one of them is of another sort. number: part of its hashes alone."""
    lines = [f"{', '.join(f'a{at}' for at in range(len(args)))}, = args"] if args else ["if args: raise ValueError"]
    if kwargs:
        lines.append(f"if len(kwargs) != {len(kwargs)}: raise ValueError")
    lines += [f"a{at} = kwargs[{name!r}]" for at, name in enumerate(kwargs, len(args))]
    counts = ["info", str(number)]
    before = ""
    for at, value in enumerate((*args, *kwargs.values())):
        name, kind = f"a{at}", type(value)
        wrong = f"if type({name}) is not"
        if kind is Tensor or kind is Parameter:
            lines.append(f"s{at} = {name}.stride()")
            counts += [f"{name}.shape", f"{name}.dtype", f"s{at}", f"{name}.layout if 0 in s{at} or not s{at} else 0"]
            # Of several tensors the first one gives the device. That two are one is known of neighbors.
            counts.append(f"{name} is {before}" if before else f"{name}.is_cpu or ({name}.is_meta,)")
            before = name
        elif value is None:
            lines.append(f"if {name} is not None: raise TypeError")
        elif kind is list and _tensors(value):  # type: ignore[arg-type]
            lines.append(f"{wrong} list: raise TypeError")
            counts.append(f"*parts({name}), list")
        elif kind is list and value and {*map(type, value)} == {int}:  # type: ignore[call-overload]
            lines.append(f"{wrong} list: raise TypeError")
            counts.append(f"*whole({name}), list")
        elif kind is list and value and {*map(type, value)} == {bool}:  # type: ignore[call-overload]
            lines.append(f"{wrong} list: raise TypeError")
            counts.append(f"*{name}, list")
        elif kind is float:
            lines.append(f"{wrong} float: raise TypeError")
        elif kind is int:
            lines.append(f"{wrong} int: raise TypeError")
            counts.append(f"{name} if 0 <= {name} < {1 << 60} else str({name})")
        elif kind in _VALUES:
            lines.append(f"{wrong} {_VALUES[kind]}: raise TypeError")
            counts.append(name)
        else:
            return None
    labels = "module, phase, forward_phase, function, flags"
    body = "\n    ".join((*lines, f"return hash(({', '.join(counts)}, {labels}))"))
    space: dict[str, KeyFunction] = {}
    exec(f"def read(args, kwargs, info, {labels}):\n    {body}\n", dict(_NAMES), space)  # texts of our own, and names of a schema
    return space["read"]
