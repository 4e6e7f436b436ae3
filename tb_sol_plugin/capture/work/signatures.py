"""Describes an operator call without its tensors: a key to count alike calls by, and the texts that a profiler would record.

`call_key` runs in every call of a sampled step and is written for speed; `describe` runs once per distinct key. Neither keeps a tensor.
The texts are those of a trace of `torch.profiler(record_shapes=True)`: one entry per argument of the operator's schema, defaults filled
in. There are two differences. Numbers with a fraction are left out, for they change from step to step and no cost depends on them.
A list of tensors has the types of its elements (a trace says `TensorList`), also one whose
elements are optional, unless some are missing (a trace says nothing of such lists).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor
from torch.nn import Parameter

from tb_sol_plugin.capture.work.costs import CallCost, cost_of
from tb_sol_plugin.capture.work.operators import OpInfo

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
    """A call whose work does not follow from sizes and types; the text says why."""


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
    """Calls that are alike: the operator, what it was given and what it returned, as JSON texts in the order of its schema.

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
    """The four texts of one argument, as values."""

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
