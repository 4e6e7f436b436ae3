"""Describes operators before any call of them: their arguments, whether they do work, whether they are made of other operators."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final, TypeAlias

import torch
from torch import Tensor

from tb_sol_plugin.capture.work.copies import MOVERS, Mover
from tb_sol_plugin.capture.work.costs import COLLECTIVES, has_model

_FRACTIONS: Final = frozenset(("aten::arange", "aten::linspace", "aten::logspace", "aten::range"))
"""Operators whose result has a size that follows from numbers with a fraction."""
_WHOLE: Final = frozenset(("List[int]", "Optional[List[int]]", "List[bool]", "Optional[List[bool]]"))
"""Types of lists, as a schema has them, whose elements are of one kind and count by their values."""


KeyFunction: TypeAlias = "Callable[..., Hashable]"
"""(arguments, named ones or None, OpInfo, module, phase, forward phase, function, flags) -> what a call is known again by.

Raises what a tensor raises that is asked for sizes it does not have, and what comes of arguments that it was not made for."""


def no_key(*_: object) -> Hashable:
    """Raises KeyError: the key function of an operator that was not called yet."""
    raise KeyError


class OpInfo:
    """Describes an operator before any call of it.

    name: as a trace has it (`aten::mm`). call: what runs it. free: does no work (views, allocations). communication: a collective.
    made_of_others: only calls other operators. opens: those that it calls are counted in its place.
    fractions: numbers with a fraction are part of its key. moves: finds the copies of a call, None if it never copies.
    key_of, key_of_named: the key functions of its last call without and with named arguments. lists: all lists
    that it takes are of whole numbers, or of truths.
    """

    __slots__ = (
        "arguments", "call", "communication", "fractions", "free", "full_name", "func", "key_of", "key_of_named", "lists",
        "made_of_others", "moves", "name", "opens", "written",
    )  # fmt: skip

    def __init__(self, func: Callable[..., object]) -> None:
        schema = func._schema  # type: ignore[attr-defined]
        self.func: object = func  # kept, so that no other operator gets its id
        self.name: str = schema.name
        self.call: Callable[..., object] = func._op if type(func) is torch._ops.OpOverload else func  # type: ignore[attr-defined]
        self.arguments: list[tuple[str, str, object]] = [(a.name, str(a.type), a.default_value) for a in schema.arguments]
        self.written = frozenset(i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write)
        space = self.name.partition("::")[0]
        self.communication = space in COLLECTIVES
        self.made_of_others = _has_kernel(self.name, schema.overload_name, "CompositeImplicitAutograd", func)
        unknown = self.name in CALL_OTHERS or space not in _TORCH_SPACES
        self.opens = not self.communication and (self.made_of_others or (unknown and not has_model(self.name)))
        self.free = self.name in FREE or space == "profiler" or (not self.made_of_others and _is_view(schema))
        self.moves: Mover | None = MOVERS.get(self.name)
        self.fractions = self.name in _FRACTIONS
        self.lists = all(kind in _WHOLE for _, kind, _ in self.arguments if "List" in kind)
        self.key_of: KeyFunction = no_key
        self.key_of_named: KeyFunction = no_key
        self.full_name = f"{self.name}.{schema.overload_name}" if schema.overload_name else self.name

    @classmethod
    def of_higher_order(cls, func: object) -> OpInfo | None:
        """Describes an operator that takes functions (`flex_attention`); None if no cost model knows it."""
        name = f"higher_order::{getattr(func, '__name__', '')}"
        if not has_model(name):
            return None
        out = cls.__new__(cls)
        out.func, out.call, out.name, out.full_name = func, func, name, name  # type: ignore[assignment]
        out.arguments, out.written = [(str(at), "Any", None) for at in range(4)], frozenset()
        out.moves = None
        out.communication = out.made_of_others = out.opens = out.free = out.fractions = out.lists = False
        out.key_of = out.key_of_named = no_key
        return out

    def run_open(self, kernel: object, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Runs the kernel that `can_open` found, or takes a composite apart that is written in Python."""
        if kernel is True:
            return self.func.decompose(*args, **kwargs)  # type: ignore[attr-defined]
        return self.func._op_dk(kernel, *args, **kwargs)  # type: ignore[attr-defined]


CALL_OTHERS: Final = frozenset(
    (
        "aten::_transformer_encoder_layer_fwd", "aten::_native_multi_head_attention", "aten::_cdist_forward", "aten::_cdist_backward",
        "aten::_embedding_bag_backward", "aten::linalg_inv_ex", "aten::linalg_solve_triangular", "aten::_sparse_mm_reduce_impl",
    )
)  # fmt: skip
"""Operators that call others which have cost models, where their own work has none. So are those of other packages."""
FILLS: Final = frozenset(
    f"aten::{name}" for name in ("zeros", "zero_", "zeros_like", "ones", "full", "fill_", "new_zeros", "copy_", "_to_copy", "clone")
)
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
    """Returns whether all its results share memory with its arguments, unwritten."""
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
    """Finds the kernel that runs a call by its parts (True: that of a composite in Python), None if it cannot be taken apart.

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
        return _composite(info) if info.made_of_others and not devices else None
    device = devices.pop().upper()
    own = torch._C._dispatch_has_kernel_for_dispatch_key
    if info.made_of_others:
        return None if hasattr(torch._C.DispatchKey, device) and own(info.full_name, device) else _composite(info)
    # Only a key that the kernel was registered for itself: a kernel in Python that is run by any other one crashes (torch 2.13).
    for key in (device, "CompositeExplicitAutograd"):
        if hasattr(torch._C.DispatchKey, key) and own(info.full_name, key):
            return getattr(torch._C.DispatchKey, key)
    return None


def _composite(info: OpInfo) -> object:
    """Finds the kernel in C++, which is what runs without us; torch has some in Python as well, that may take another way."""
    name = "CompositeImplicitAutograd"
    in_cpp = torch._C._dispatch_has_kernel_for_dispatch_key(info.full_name, name)
    return getattr(torch._C.DispatchKey, name) if in_cpp else True
