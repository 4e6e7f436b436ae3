"""What one operator call looks like, without its tensors: a key to count alike calls by, and the texts that a profiler would record.

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

from tb_sol_plugin.capture.costs import CallCost, cost_of, has_model

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
_FRACTIONS: Final = frozenset(("aten::arange", "aten::linspace", "aten::logspace", "aten::range"))
"""Operators whose result has a size that follows from numbers with a fraction."""
VARIANTS: Final = 1000
"""Keys of one operator that are told apart by numbers; later ones are taken together where only numbers differ."""
LIST_LENGTH: Final = 10_000
"""Longest list that is written out."""

Part = object
"""A piece of a key: hashable, and no tensor."""


class Odd(Exception):
    """A call that cannot be told by sizes and types; the text says why."""


class OpInfo:
    """What is known of an operator before any call of it.

    name: as a trace has it (`aten::mm`). call: what runs it. free: does no work (views, allocations). communication: a collective.
    made_of_others: only calls other operators. opens: those that it calls are counted in its place. fractions: numbers with a fraction
    are part of its key.
    """

    __slots__ = (
        "arguments", "call", "communication", "fractions", "free", "full_name", "func", "made_of_others", "name", "opens",
        "written",
    )  # fmt: skip

    def __init__(self, func: Callable[..., object]) -> None:
        schema = func._schema  # type: ignore[attr-defined]
        self.func: object = func  # kept, so that no other operator gets its id
        self.name: str = schema.name
        self.call: Callable[..., object] = func._op if type(func) is torch._ops.OpOverload else func  # type: ignore[attr-defined]
        self.arguments: list[tuple[str, str, object]] = [(a.name, str(a.type), a.default_value) for a in schema.arguments]
        self.written = frozenset(i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write)
        space = self.name.partition("::")[0]
        self.communication = space in COMMUNICATION
        self.made_of_others = _has_kernel(self.name, schema.overload_name, "CompositeImplicitAutograd", func)
        unknown = self.name in HOLDERS or space not in _TORCH_SPACES
        self.opens = not self.communication and (self.made_of_others or (unknown and not has_model(self.name)))
        self.free = self.name in FREE or space == "profiler" or (not self.made_of_others and _is_view(schema))
        self.fractions = self.name in _FRACTIONS
        self.full_name = f"{self.name}.{schema.overload_name}" if schema.overload_name else self.name

    @classmethod
    def of_higher_order(cls, func: object) -> OpInfo | None:
        """Of an operator that takes functions (`flex_attention`); None if no cost model knows it."""
        name = f"higher_order::{getattr(func, '__name__', '')}"
        if not has_model(name):
            return None
        out = cls.__new__(cls)
        out.func, out.call, out.name, out.full_name = func, func, name, name  # type: ignore[assignment]
        out.arguments, out.written = [(str(at), "Any", None) for at in range(4)], frozenset()
        out.communication = out.made_of_others = out.opens = out.free = out.fractions = False
        return out

    def run_open(self, kernel: object, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Runs the kernel that `can_open` found, or takes a composite apart."""
        if self.made_of_others:
            return self.func.decompose(*args, **kwargs)  # type: ignore[attr-defined]
        return self.func._op_dk(kernel, *args, **kwargs)  # type: ignore[attr-defined]


COMMUNICATION: Final = frozenset(("c10d", "_c10d_functional", "c10d_functional", "_c10d_functional_autograd", "symm_mem", "_dtensor"))
"""Namespaces of collectives."""
HOLDERS: Final = frozenset(
    (
        "aten::_transformer_encoder_layer_fwd", "aten::_native_multi_head_attention", "aten::_cdist_forward", "aten::_cdist_backward",
        "aten::_embedding_bag_backward", "aten::linalg_inv_ex", "aten::linalg_solve_triangular", "aten::_sparse_mm_reduce_impl",
    )
)  # fmt: skip
"""Operators that hold others which have models, where their own work has none. Those of other packages are taken to be such as well."""
_TORCH_SPACES: Final = frozenset(("aten", "prim", "prims", "profiler", "quantized", "mkldnn", "mkl", "onednn", "inductor"))
FREE: Final = frozenset(
    f"aten::{name}"
    for name in (
        "view", "t", "detach", "detach_", "_unsafe_view", "transpose", "expand", "permute", "unbind", "split", "split_with_sizes",
        "select", "slice", "as_strided", "unsqueeze", "squeeze", "alias", "lift_fresh", "t_", "transpose_", "squeeze_", "unsqueeze_",
        "as_strided_", "set_", "_reshape_alias", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk", "is_same_size", "sym_size",
        "sym_stride", "sym_numel", "sym_storage_offset", "size", "stride", "is_pinned", "record_stream", "is_coalesced", "_coalesced_",
        "_has_compatible_shallow_copy_type", "_has_same_storage_numel", "_assert_async", "_linalg_check_errors", "_version",
        "requires_grad_", "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_",
        "_empty_affine_quantized", "_efficientzerotensor", "_local_scalar_dense", "_sparse_coo_tensor_with_dims_and_tensors",
        "_sparse_compressed_tensor_unsafe", "_sparse_csr_tensor_unsafe",
    )
)  # fmt: skip
"""Operators that look at a tensor, make a view of it or room for one, or read one number off it."""

COPIES: Final = frozenset(("aten::copy_", "aten::_to_copy"))
"""Operators that may move data between devices."""


def _is_view(schema: torch._C.FunctionSchema) -> bool:
    """Whether all that it returns shares memory with what it was given, unwritten."""
    returns = [r.alias_info for r in schema.returns]
    given = [a.alias_info for a in schema.arguments if a.alias_info is not None]
    return bool(returns) and all(a is not None and not a.is_write for a in returns) and not any(a.is_write for a in given)


def _has_kernel(name: str, overload: str, key: str, func: object) -> bool:
    full = f"{name}.{overload}" if overload else name
    try:
        if torch._C._dispatch_has_kernel_for_dispatch_key(full, key):
            return True
    except (RuntimeError, AttributeError):
        return False
    return getattr(torch._C.DispatchKey, key, None) in getattr(func, "py_kernels", ())


def can_open(info: OpInfo, args: Sequence[object]) -> object:
    """Which kernel runs a call by its parts (True: that of a composite), None if it cannot be taken apart.

    All tensors have to be dense ones of one device, and a composite has to have no kernel of its own for that device.
    """
    devices = set()
    for a in args:
        for item in a if isinstance(a, list | tuple) else (a,):
            if isinstance(item, Tensor):
                if item.layout is not torch.strided or item.is_nested or item.is_quantized or item.is_meta:
                    return None
                devices.add(item.device.type)
    if len(devices) != 1:
        return True if info.made_of_others and not devices else None
    device = devices.pop().upper()
    own = torch._C._dispatch_has_kernel_for_dispatch_key
    if info.made_of_others:
        return None if hasattr(torch._C.DispatchKey, device) and own(info.full_name, device) else True
    # Only a key that the kernel was registered for itself: a kernel in Python that is run by any other one crashes (torch 2.13).
    for key in (device, "CompositeExplicitAutograd"):
        if hasattr(torch._C.DispatchKey, key) and own(info.full_name, key):
            return getattr(torch._C.DispatchKey, key)
    return None


def call_key(info: OpInfo, args: Sequence[object], kwargs: dict[str, object] | None) -> tuple[Part, ...]:
    """A key that is equal for calls whose cost is equal. Raises whatever a tensor without sizes raises when it is asked."""
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
    """A key that leaves numbers out, for operators that are called with ever new ones."""
    named = tuple((kwargs or {}).values())
    values = [a for a in (*args, *named) if type(a) is not int and type(a) is not float]
    return (*call_key(info, values, None), "any numbers")


def odd_key(info: OpInfo, args: Sequence[object], kwargs: dict[str, object] | None) -> tuple[Part, ...]:
    """A key for calls that `call_key` cannot read: tensors without strides or without sizes."""
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
    """Kinds of devices that the tensors in nested lists, tuples and dictionaries are on."""
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
        """Makes it one whose sizes say nothing about its work."""
        self.odd = odd
        self.shapes = self.types = self.strides = self.concrete = "[]"
        self.stride0 = self.twice = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """All that tells it from other signatures."""
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
    """The signature of a call, without its results (`with_results`). Raises Odd for calls that do no work on a real device.

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
    """Why the sizes of a tensor do not tell its work; "" if they do. Raises Odd where there is no device to work."""
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
    """The element type of a tensor as a trace names it; its own name where a trace has none."""
    name = str(tensor.dtype).rpartition(".")[2]
    return _TYPES.get(name, name)


def _value(value: object, type_: str, info: OpInfo, out: Signature) -> _Entry:
    """The texts of an argument that is no tensor."""
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
    """A number as a trace writes it, "" for one with a fraction, None for what is no number."""
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
