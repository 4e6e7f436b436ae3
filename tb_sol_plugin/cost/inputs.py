"""Reads the recorded arguments of one operator call as tensors and values.

A recorder writes four parallel lists: sizes, type names, strides and concrete values. Old ones lack the last two.
Texts are read by a literal parser: nothing from a file is ever evaluated, and `"False"` is false.
"""

from __future__ import annotations

import re
from math import prod
from typing import Final, NamedTuple, TypeAlias

import msgspec

from tb_sol_plugin.cached import cached_property

Value: TypeAlias = "bool | int | float | str | tuple[Value, ...] | None"

BITS: Final = {
    "fp64": 64, "fp32": 32, "tf32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "fp8_e4m3": 8, "fp8_e5m2": 8, "e8m0": 8, "fp4x2": 8,
    "int64": 64, "int32": 32, "int16": 16, "int8": 8, "uint64": 64, "uint32": 32, "uint16": 16, "uint8": 8, "bool": 8,
    "complex32": 32, "complex64": 64, "complex128": 128,
    "opaque8": 8, "opaque16": 16, "opaque32": 32, "opaque64": 64, "opaque128": 128,
}  # fmt: skip
"""Bits per stored element. `opaque16` is any type of that size. `fp4x2` is a byte that holds two FP4 numbers."""

_TYPES: Final = {
    "c10::BFloat16": "bf16", "c10::Half": "fp16", "at::Half": "fp16", "at::BFloat16": "bf16", "float": "fp32", "double": "fp64",
    "long int": "int64", "long": "int64", "long long": "int64", "__int64": "int64", "int": "int32", "short": "int16",
    "short int": "int16", "signed char": "int8", "unsigned char": "uint8", "char": "int8", "bool": "bool", "unsigned short": "uint16",
    "short unsigned int": "uint16", "long unsigned int": "uint64",
    "unsigned int": "uint32", "unsigned long": "uint64", "unsigned long long": "uint64", "c10::Float8_e4m3fn": "fp8_e4m3",
    "c10::Float8_e4m3fnuz": "fp8_e4m3", "c10::Float8_e5m2": "fp8_e5m2", "c10::Float8_e5m2fnuz": "fp8_e5m2",
    "c10::Float8_e8m0fnu": "e8m0", "c10::Float4_e2m1fn_x2": "fp4x2", "c10::complex<c10::Half>": "complex32",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128", "c10::qint8": "int8", "c10::quint8": "uint8",
    "c10::qint32": "int32",
}  # fmt: skip
"""Type names as recorded. Names that are not here are no tensor (`Scalar`, `Int`, `GenericList`, ``) or unknown."""

_NOT_TENSORS: Final = frozenset(
    ("", "Scalar", "ScalarList", "Int", "Double", "Bool", "GenericList", "Device", "String", "None", "Generator", "IntList")
)

SCALAR_TYPES: Final = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "fp16", 6: "fp32", 7: "fp64", 8: "complex32", 9: "complex64",
    10: "complex128", 11: "bool", 15: "bf16", 23: "fp8_e5m2", 24: "fp8_e4m3", 25: "fp8_e5m2", 26: "fp8_e4m3", 27: "uint16", 28: "uint32",
    29: "uint64", 44: "e8m0", 45: "fp4x2",
}  # fmt: skip
"""ScalarType numbers as they stand in concrete inputs (`dtype=15`)."""


class Tensor(NamedTuple):
    """A tensor argument. dtype is a short name (`bf16`), "" where the type name is not known. strides None: not recorded."""

    shape: tuple[int, ...]
    dtype: str = ""
    strides: tuple[int, ...] | None = None

    @property
    def numel(self) -> int:
        """Elements; 1 for a scalar tensor."""
        return prod(self.shape)

    @property
    def unique(self) -> int:
        """Elements that stand in memory: a dimension of stride 0 is one element wide."""
        if self.strides is None or len(self.strides) != len(self.shape):
            return self.numel
        return prod(1 if stride == 0 and size > 1 else size for size, stride in zip(self.shape, self.strides, strict=True))

    @property
    def bytes(self) -> int | None:
        """Bytes of the unique elements; None where the type is unknown."""
        return size_of(self.unique, self.dtype)


Slot: TypeAlias = "Tensor | tuple[Tensor, ...] | None"


def size_of(elements: int, dtype: str) -> int | None:
    """Returns bytes of `elements` of `dtype`; None where the type is unknown."""
    bits = BITS.get(dtype)
    return None if bits is None else (elements * bits + 7) // 8


def total(*parts: int | None) -> int | None:
    """Sum; None if any part is unknown."""
    known = [p for p in parts if p is not None]
    return sum(known) if len(known) == len(parts) else None


class Launch(NamedTuple):
    """A kernel that a call launched. grid: its blocks in x, y, z; () where they are not recorded."""

    kernel: str
    grid: tuple[int, ...] = ()


class Inputs:
    """The arguments of one call by position. Positions past the end are None."""

    def __init__(
        self, shapes: str, types: str, strides: str = "", concrete: str = "", *, hint: str = "", result: tuple[int, ...] | None = None,
        extra: str = "", around: str = "", below: tuple[str, ...] = (), launched: tuple[Launch, ...] = (),
    ) -> None:  # fmt: skip
        """The four lists as JSON texts.

        hint: element type of tensor lists, whose types are not recorded. result: sizes of the result where they are known from
        elsewhere. A model that uses either says so in its `reason`. extra: further recorded fields as a JSON object.
        around: name of an annotation around the call that tells lengths. below: of the operators that tell which gradients a call made,
        those that were recorded inside it. launched: of the operators that read them, the kernels that tell sizes.
        """
        self.name = ""
        """Of the operator; set by whoever asks for the cost."""
        self._concrete, self._extra = concrete, extra
        self.hint = hint
        self.result = result
        self.around, self.below, self.launched = around, below, launched
        self.shapes, self.types = _json_list(shapes), _json_list(types)
        self.slots = _slots(self.shapes, self.types, _json_list(strides), hint)

    def metadata(self, key: str) -> str | int | float | None:
        """Returns a further recorded field (`kernel_flop` of a compiled kernel): text or number, None if there is none."""
        try:
            fields = msgspec.json.decode(self._extra) if self._extra else {}
        except (msgspec.DecodeError, RecursionError):
            return None
        value = fields.get(key) if isinstance(fields, dict) else None
        return value if isinstance(value, str | int | float) else None

    def tensor(self, at: int) -> Tensor | None:
        """Returns the tensor at a position, None if there is none."""
        slot = self.slots[at] if 0 <= at < len(self.slots) else None
        return slot if isinstance(slot, Tensor) else None

    def tensors(self, at: int) -> tuple[Tensor, ...]:
        """Returns the tensor list at a position, empty if there is none."""
        slot = self.slots[at] if at < len(self.slots) else None
        return slot if isinstance(slot, tuple) and not isinstance(slot, Tensor) else ()

    @property
    def flat(self) -> list[Tensor]:
        """Every tensor, lists opened."""
        out: list[Tensor] = []
        for slot in self.slots:
            if isinstance(slot, Tensor):
                out.append(slot)
            elif slot is not None:
                out.extend(slot)
        return out

    @cached_property
    def values(self) -> tuple[Value, ...]:
        """Concrete values by position; empty if the recorder wrote none."""
        return tuple(literal(v) if isinstance(v, str) else None for v in _json_list(self._concrete))

    @property
    def has_values(self) -> bool:
        """Whether concrete values were recorded."""
        return bool(self.values)

    def value(self, at: int) -> Value:
        """Returns the concrete value at a position, None if it was not recorded or left out."""
        return self.values[at] if 0 <= at < len(self.values) else None

    def flag(self, at: int) -> bool | None:
        """Returns a boolean argument; None if it was not recorded. `"False"` is false, `1` is true."""
        value = self.value(at)
        return bool(value) if isinstance(value, bool | int) else None

    def ints(self, at: int) -> tuple[int, ...] | None:
        """Returns a list of integers (a single one counts as a list of one); None if it was not recorded."""
        value = self.value(at)
        if isinstance(value, int) and not isinstance(value, bool):
            return (value,)
        if isinstance(value, tuple):
            found = tuple(int(v) for v in value if isinstance(v, int | float))
            return found if len(found) == len(value) else None
        return None

    def flags(self, at: int) -> tuple[bool, ...] | None:
        """Returns a list of booleans; None if it was not recorded."""
        value = self.value(at)
        return tuple(bool(v) for v in value) if isinstance(value, tuple) and all(isinstance(v, bool | int) for v in value) else None

    def dtype(self, at: int) -> str:
        """Returns a dtype argument, "" if it was not given or not recorded."""
        value = self.value(at)
        return SCALAR_TYPES.get(value, "") if isinstance(value, int) and not isinstance(value, bool) else ""


MOST_LETTERS: Final = 20
"""Of one size: 2^63 has 19 digits."""
_INTEGER: Final = re.compile(r"[+-]?\d{1,40}$")
_REAL: Final = re.compile(r"[+-]?(\d+(?:\.\d*)?|\.\d+)([eE][+-]?\d+)?$")
_WORDS: Final = {"": None, "None": None, "True": True, "False": False, "inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


def literal(text: str, *, depth: int = 0) -> Value:
    """Returns a recorded value: None, bool, int, float, a tuple for `[...]`, else the text itself. Nothing is evaluated."""
    text = text.strip()
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.match(text):
        return int(text)
    if _REAL.match(text):
        return float(text)
    if text[0] in "[(" and text[-1] in "])" and depth < 4:
        return tuple(literal(part, depth=depth + 1) for part in _parts(text[1:-1]))
    return text


def _parts(text: str) -> list[str]:
    parts, level, start = [], 0, 0
    for at, char in enumerate(text):
        level += (char in "[(") - (char in "])")
        if char == "," and level == 0:
            parts.append(text[start:at])
            start = at + 1
    tail = text[start:]
    return [*parts, tail] if tail.strip() else parts


def _json_list(text: str) -> list[object]:
    if not text:
        return []
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return []
    return value if isinstance(value, list) else []


def _slots(shapes: list[object], types: list[object], strides: list[object], hint: str) -> tuple[Slot, ...]:
    out: list[Slot] = []
    for at, shape in enumerate(shapes):
        kind = types[at] if at < len(types) else ""
        stride = strides[at] if at < len(strides) else None
        out.append(_slot(shape, kind, stride, hint))
    return tuple(out)


def _slot(shape: object, kind: object, stride: object, hint: str) -> Slot:
    if not isinstance(shape, list):
        return None
    if shape and isinstance(shape[0], list) and all(isinstance(s, list) for s in shape):
        kinds = kind if isinstance(kind, list) else [kind] * len(shape)
        steps = stride if isinstance(stride, list) and len(stride) == len(shape) else [None] * len(shape)
        tensors = [_tensor(s, k, t, hint) for s, k, t in zip(shape, kinds, steps, strict=False)]
        return tuple(t for t in tensors if t is not None)
    if not isinstance(kind, str) or kind in _NOT_TENSORS or kind == "TensorList":
        return None
    return _tensor(shape, kind, stride, hint)


def _tensor(shape: object, kind: object, stride: object, hint: str) -> Tensor | None:
    if not isinstance(shape, list):
        return None
    for size in shape:
        if type(size) is not int or not 0 <= size < 2**63:
            return None
    dtype = _TYPES.get(kind, hint if kind == "TensorList" else "") if isinstance(kind, str) else ""
    steps = tuple(stride) if isinstance(stride, list) and len(stride) == len(shape) and all(type(s) is int for s in stride) else None
    return Tensor(tuple(shape), dtype, steps)


_RANK: Final = {
    "bool": 0, "uint8": 1, "int8": 1, "int16": 2, "int32": 3, "int64": 4, "fp4x2": 5, "fp8_e4m3": 6, "fp8_e5m2": 6, "fp16": 7,
    "bf16": 7, "fp32": 8, "fp64": 9, "complex64": 10, "complex128": 11,
}  # fmt: skip


def wider(*dtypes: str) -> str:
    """Returns the dtype that a mix is computed in: floats over integers, then the wider; "" if any is unknown. FP16 with BF16 is FP32."""
    out = dtypes[0] if dtypes else ""
    for dtype in dtypes:
        if dtype not in _RANK or out not in _RANK:
            return ""
        if dtype != out and _RANK[dtype] == _RANK[out] == 7:
            out = "fp32"
        elif _RANK[dtype] > _RANK[out]:
            out = dtype
    return out


def compute_dtype(*tensors: Tensor) -> str:
    """Returns the peak that a matrix operation over these operands runs against: `fp8` and `fp4` by family, mixes at the wider one."""
    dtype = wider(*(t.dtype for t in tensors))
    return {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp4x2": "fp4"}.get(dtype, dtype)


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Returns the broadcast shape; None if the shapes do not fit."""
    length = max((len(s) for s in shapes), default=0)
    out = [1] * length
    for shape in shapes:
        for at, size in enumerate(reversed(shape)):
            place = length - 1 - at
            if size != 1 and out[place] not in (1, size):
                return None
            out[place] = size if size != 1 else out[place]
    return tuple(out)


def first_dtype(types: str) -> str:
    """Returns short name of the first tensor type in a recorded list of types, "" if there is none."""
    return next((_TYPES[t] for t in _json_list(types) if isinstance(t, str) and t in _TYPES), "")


def readable_shapes(shapes: str, *, most: int = 4) -> str:
    """Returns recorded sizes as a person reads them: `16×5185×64 16×64×5185`; scalars are left out, long lists are cut."""
    parts = []
    for shape in _json_list(shapes):
        if not isinstance(shape, list) or not shape:
            continue
        if not any(isinstance(size, list) for size in shape):
            parts.append(_by(shape))
        else:
            inner = [_by(one) or "1" for one in shape if isinstance(one, list)]
            parts.append(f"[{', '.join(inner[:most])}{f' … {len(inner)}' if len(inner) > most else ''}]")
    return " ".join(parts)


def _by(sizes: list[object]) -> str:
    """Returns sizes with a cross between; symbolic ones as they are written, what no size can be is cut."""
    texts = (str(size) for size in sizes)
    return "×".join(text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1] + "…" for text in texts)
