"""Describes an operator call without its tensors: a key to count alike calls by, and the texts that a profiler would record.

`call_key` runs in every call of a sampled step and is written for speed; `describe` runs once per distinct key. Neither keeps a tensor.
The texts are those of a trace of `torch.profiler(record_shapes=True)`: one entry per argument of the operator's schema, defaults filled
in. There are two differences. Numbers with a fraction are left out, for they change from step to step and no cost depends on them.
A list of tensors has the types of its elements (a trace says `TensorList`), also one whose
elements are optional, unless some are missing (a trace says nothing of such lists).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import torch
from torch import Tensor
from torch.nn import Parameter

from tb_sol_plugin.capture.work.costs import CallCost, cost_of
from tb_sol_plugin.capture.work.operators import KeyFunction, OpInfo

_TYPES: Final = {
    "float64": "double", "float32": "float", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "int64": "long int", "int32": "int",
    "int16": "short int", "int8": "signed char", "uint8": "unsigned char", "uint16": "short unsigned int", "uint32": "unsigned int",
    "uint64": "long unsigned int", "bool": "bool", "complex32": "c10::complex<c10::Half>", "complex64": "c10::complex<float>",
    "complex128": "c10::complex<double>", "float8_e4m3fn": "c10::Float8_e4m3fn", "float8_e5m2": "c10::Float8_e5m2",
    "float8_e4m3fnuz": "c10::Float8_e4m3fnuz", "float8_e5m2fnuz": "c10::Float8_e5m2fnuz", "float8_e8m0fnu": "c10::Float8_e8m0fnu",
    "float4_e2m1fn_x2": "c10::Float4_e2m1fn_x2", "qint8": "c10::qint8", "quint8": "c10::quint8", "qint32": "c10::qint32",
}  # fmt: skip
"""Names of element types as a trace writes them."""
_NUMBERS: Final = (
    "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64", "complex128", "bool", "qint8",
    "quint8", "qint32", "bfloat16", "quint4x2", "quint2x4", "bits1x8", "bits2x4", "bits4x2", "bits8", "bits16", "float8_e5m2",
    "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "uint16", "uint32", "uint64",
)  # fmt: skip
"""Element types by their number (c10::ScalarType)."""
_LATER: Final = {"float8_e8m0fnu": 44, "float4_e2m1fn_x2": 45}
_LAYOUTS: Final = {
    "strided": 0, "sparse_coo": 1, "sparse_csr": 2, "_mkldnn": 3, "sparse_csc": 4, "sparse_bsr": 5, "sparse_bsc": 6, "jagged": 7,
}  # fmt: skip
_FORMATS: Final = {"contiguous_format": 0, "preserve_format": 1, "channels_last": 2, "channels_last_3d": 3}
VARIANTS: Final = 1000
"""Keys of one operator that differ by numbers only; later ones are taken together where only numbers differ."""
LIST_LENGTH: Final = 10_000
"""Longest list that is written out."""

Part = object
"""A piece of a key: hashable, and no tensor."""


class Odd(Exception):
    """Gives the reason why the work of a call does not follow from its sizes and types."""


def call_key(info: OpInfo, args: Sequence[object], kwargs: dict[str, object] | None) -> tuple[Part, ...]:
    """Makes a key that is equal for calls whose cost is equal. Raises whatever a tensor without sizes raises when it is asked."""
    out: tuple[Part, ...] = (info,)
    last: object = None
    for a in args:
        kind = type(a)
        if kind is Tensor or kind is Parameter:
            strides = a.stride()  # type: ignore[attr-defined]
            if last is None:
                cpu = a.is_cpu  # type: ignore[attr-defined]
                out += (a.shape, a.dtype, strides, cpu)  # type: ignore[attr-defined]
                if not cpu:
                    out += (a.is_meta,)  # type: ignore[attr-defined]
            elif a is last:
                out += (a.shape, a.dtype, strides, Ellipsis)  # type: ignore[attr-defined]
            else:
                out += (a.shape, a.dtype, strides)  # type: ignore[attr-defined]
            if 0 in strides or not strides:
                out += (a.layout,)  # type: ignore[attr-defined]
            last = a
        elif kind is int or a is None:
            out += (a,)
        else:
            more: list[Part] = []
            _add_other(more.append, a, kind, info.fractions)
            out += tuple(more)
    if kwargs:
        more = []
        for name, a in kwargs.items():
            more.append(name)
            _add_other(more.append, a, type(a), info.fractions)
        out += tuple(more)
    return out


def _add_other(add: Callable[[Part], None], a: object, kind: type, fractions: bool) -> None:
    """Adds what is no plain tensor or integer; also those, where they stand in lists and keywords."""
    if kind is list or kind is tuple:
        add(kind)
        if a and isinstance(a[0], Tensor):  # type: ignore[index]
            add(a[0].is_cpu)  # type: ignore[index]
        for item in a:  # type: ignore[attr-defined]
            kind = type(item)
            if kind is int:
                add(item)
            elif kind is Tensor or kind is Parameter:
                strides = item.stride()
                add(item.shape)
                add(item.dtype)
                add(strides)
                if 0 in strides or not strides:
                    add(item.layout)
            else:
                _add_other(add, item, kind, fractions)
        add(kind)
    elif kind is bool:
        add("True" if a else "False")
    elif kind is float:
        add(a if fractions else kind)
    elif kind in _PLAIN:
        add(a)
    elif isinstance(a, Tensor):
        add(a.shape)
        add(a.dtype)
        add(a.stride())
        add(a.layout)
        add(a.is_cpu)
    else:
        add(kind)


def coarse_key(info: OpInfo, args: Sequence[object], kwargs: dict[str, object] | None) -> tuple[Part, ...]:
    """Makes a key that leaves numbers out, for operators that are called with ever new ones."""
    named = tuple((kwargs or {}).values())
    values = [a for a in (*args, *named) if type(a) is not int and type(a) is not float]
    return (*call_key(info, values, None), "any numbers")


def odd_key(info: OpInfo, args: Sequence[object], kwargs: dict[str, object] | None) -> tuple[Part, ...]:
    """Makes a key for calls that `call_key` cannot read: tensors without strides or without sizes."""
    out: list[Part] = [info, "odd"]
    for a in (*args, *(kwargs or {}).values()):
        for item in a if isinstance(a, list | tuple) else (a,):
            if isinstance(item, Tensor):
                nested = item.is_nested
                out += ["nested" if nested else tuple(map(int, item.shape)), item.dtype, item.layout, item.is_meta]
            elif isinstance(item, torch.SymInt | torch.SymFloat | torch.SymBool):
                raise Odd("symbolic sizes")
            else:
                _add_other(out.append, item, type(item), info.fractions)
    return tuple(out)


_PLAIN: Final = frozenset((int, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format))


def devices_of(value: object) -> set[str]:
    """Collects the kinds of devices that the tensors in nested lists, tuples and dictionaries are on."""
    if isinstance(value, Tensor):
        return {value.device.type}
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return set().union(*(devices_of(one) for one in inner))


class Signature:
    """Describes calls that are alike: the operator, its arguments and results, as JSON texts in the order of its schema.

    shapes, types, strides, concrete: `Input Dims`, `Input type`, `Input Strides`, `Concrete Inputs` of a trace. out_shapes, out_types: of
    the results, lists of tensors nested. stride0: per tensor argument which of its dimensions have stride 0. twice: positions of tensors
    that stand at an earlier position already. odd: why its sizes say nothing about its work, "" if they do. The cost is worked out by the
    cost models on first request; None stands for unknown.
    """

    __slots__ = (
        "communication", "concrete", "cost", "id", "odd", "op", "out_shapes", "out_types", "shapes", "stride0", "strides", "twice", "types",
    )  # fmt: skip

    def __init__(self, op: str, *, communication: bool = False) -> None:
        self.id = -1
        self.op = op
        self.communication = communication
        self.shapes = self.types = self.strides = self.concrete = self.out_shapes = self.out_types = "[]"
        self.stride0: tuple[tuple[bool, ...], ...] = ()
        self.twice: tuple[int, ...] = ()
        self.odd = ""
        self.cost: CallCost | None = None

    def forget_sizes(self, odd: str) -> None:
        """Forgets the sizes: they say nothing about the work of these calls."""
        self.odd = odd
        self.shapes = self.types = self.strides = self.concrete = "[]"
        self.stride0 = self.twice = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """All that distinguishes it from other signatures."""
        return self.op, self.shapes, self.types, self.strides, self.concrete, self.out_shapes, self.out_types, self.odd, str(self.twice)

    @property
    def known(self) -> CallCost:
        """The cost of one call."""
        if self.cost is None:
            self.cost = cost_of(self)
        return self.cost

    @property
    def flop(self) -> int | None:
        return self.known.flop

    @property
    def flop_vector(self) -> int | None:
        return self.known.flop_vector

    @property
    def bytes(self) -> int | None:
        return self.known.bytes

    @property
    def dtype(self) -> str:
        return self.known.dtype

    @property
    def kind(self) -> str:
        return self.known.kind

    @property
    def direction(self) -> str:
        return self.known.direction

    @property
    def estimated(self) -> bool:
        return self.known.estimated

    @property
    def reason(self) -> str:
        return self.known.reason


class _Entry:
    """Has the four texts of one argument, as values."""

    __slots__ = ("concrete", "shape", "strides", "type")

    def __init__(self, shape: object = (), type_: object = "", strides: object = (), concrete: str = "") -> None:
        self.shape, self.type, self.strides, self.concrete = shape, type_, strides, concrete


def describe(info: OpInfo, args: Sequence[object], kwargs: dict[str, object] | None, *, numbers: bool = True) -> Signature:
    """Makes the signature of a call, without its results (`with_results`). Raises Odd for calls that do no work on a real device.

    numbers: whether single numbers are written out.
    """
    out = Signature(info.name, communication=info.communication)
    entries: list[_Entry] = []
    stride0: list[tuple[bool, ...]] = []
    twice: list[int] = []
    seen: list[Tensor] = []
    for at, (name, type_, default) in enumerate(info.arguments):
        value = args[at] if at < len(args) else kwargs[name] if kwargs and name in kwargs else default
        if isinstance(value, Tensor):
            why = _check(value)
            out.odd = out.odd or why
            entries.append(_Entry() if why else _tensor(value))
            if not why:
                if at not in info.written and any(value is other for other in seen):
                    twice.append(at)
                seen.append(value)
                stride0.append(tuple(step == 0 and size > 1 for step, size in zip(_strides(value), value.shape, strict=False)))
        else:
            entries.append(_value(value, type_, info, out))
    out.shapes = _json([e.shape for e in entries])
    out.types = _json([e.type for e in entries])
    out.strides = _json([e.strides for e in entries])
    out.concrete = _json([e.concrete if numbers or e.type != "Scalar" else "" for e in entries])
    out.stride0, out.twice = tuple(stride0), tuple(twice)
    return out


def with_results(signature: Signature, result: object) -> None:
    """Adds sizes and types of what the call returned."""
    results = result if isinstance(result, tuple) else (result,)
    shapes: list[object] = []
    types: list[object] = []
    for one in results:
        if isinstance(one, list | tuple):
            tensors = [t for t in one if isinstance(t, Tensor)]
            shapes.append([_sizes(t) for t in tensors])
            types.append([type_name(t) for t in tensors])
        elif isinstance(one, Tensor):
            shapes.append(_sizes(one))
            types.append(type_name(one))
        else:
            shapes.append([])
            types.append("")
    signature.out_shapes, signature.out_types = _json(shapes), _json(types)


def _check(tensor: Tensor) -> str:
    """Says why the work of a tensor does not follow from its sizes; "" if it does. Raises Odd where there is no device to work."""
    if tensor.is_meta:
        raise Odd("tensors without data (meta)")
    if tensor.is_nested:
        return "nested tensor"
    if tensor.layout is not torch.strided and tensor.layout is not getattr(torch, "_mkldnn", None):
        return "sparse tensor"
    return ""


def _tensor(tensor: Tensor) -> _Entry:
    return _Entry(_sizes(tensor), type_name(tensor), _strides(tensor))


def _sizes(tensor: Tensor) -> list[int]:
    return [] if tensor.is_nested else [int(size) for size in tensor.shape]


def _strides(tensor: Tensor) -> list[int]:
    return [int(step) for step in tensor.stride()] if tensor.layout is torch.strided else []


def type_name(tensor: Tensor) -> str:
    """Names the element type of a tensor as a trace does; its own name where a trace has none."""
    name = str(tensor.dtype).rpartition(".")[2]
    return _TYPES.get(name, name)


def _value(value: object, type_: str, info: OpInfo, out: Signature) -> _Entry:
    """Makes the texts of an argument that is no tensor."""
    kind = type(value)
    if value is None:
        return _Entry()
    if kind is list or kind is tuple:
        return _list(value, type_, info, out)  # type: ignore[arg-type]
    if "Tensor" in type_ and kind in (bool, int, float, complex):
        # A Python number beside a tensor is a tensor without dimensions to the operator.
        return _Entry((), {bool: "bool", int: "long int", float: "double", complex: "c10::complex<double>"}[kind], ())
    if kind is torch.dtype:
        return _Entry((), "Scalar", (), _number(str(value).rpartition(".")[2]))
    if kind is torch.layout or kind is torch.memory_format:
        name = str(value).rpartition(".")[2]
        return _Entry((), "Scalar", (), str({**_LAYOUTS, **_FORMATS}.get(name, "")))
    text = _scalar(value, info.fractions)
    return _Entry() if text is None else _Entry((), "Scalar", (), text)


def _list(value: Sequence[object], type_: str, info: OpInfo, out: Signature) -> _Entry:
    tensors = [item for item in value if isinstance(item, Tensor)]
    if tensors or type_ == "List[Tensor]":
        for tensor in tensors:
            out.odd = out.odd or _check(tensor)
        if len(tensors) != len(value) or out.odd or len(tensors) > LIST_LENGTH:
            return _Entry()
        return _Entry([_sizes(t) for t in tensors], [type_name(t) for t in tensors], [_strides(t) for t in tensors])
    if "Tensor" in type_ or len(value) > LIST_LENGTH:
        return _Entry()
    texts = [_scalar(item, info.fractions) for item in value]
    if None in texts or any(text == "" for text in texts):
        return _Entry((), "ScalarList", (), "")
    return _Entry((), "ScalarList", (), f"[{', '.join(text for text in texts if text)}]")


def _scalar(value: object, fractions: bool) -> str | None:
    """Formats a number as a trace writes it, "" for one with a fraction, None for what is no number."""
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _fraction(value) if fractions else ""
    return "" if isinstance(value, complex) else None


def _fraction(value: float) -> str:
    return f"{int(value)}." if value.is_integer() and abs(value) < 1e15 else f"{value:.17g}"


def _number(name: str) -> str:
    return str(_NUMBERS.index(name)) if name in _NUMBERS else str(_LATER.get(name, ""))


def _json(value: object) -> str:
    return json.dumps(value)


# -- Key functions: what a repeated call is recognized by, one for each sort of arguments, made as text at its first call ----------------
# What an operator is given differs little from call to call: two tensors; a tensor and a number. A function that is made for just that
# asks each argument for what counts and nothing else, in half the time and a third of the code that `call_key` takes, which reads
# anything. Its answer is one number, so that a call is recognized by one lookup, not by comparing a dozen objects that lie anywhere.
#
# The number is the hash, of 64 bits, of all that `call_key` reads and of the labels. Python's hashes of negative and of very large
# integers are not all different, so those count by their text. Two of a million different calls have the same number with a probability
# below 1e-7.


MOST_KEY_FUNCTIONS: Final = 2000
"""Sorts of arguments that functions are made for; `call_key` reads others."""
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
        if len(_made) >= MOST_KEY_FUNCTIONS:
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
