"""A device in Python, for machines without one: its tensors hold a tensor of the host, and each operator runs on that.

Dispatch, autograd and copies are torch's own, so what sees a device's calls sees these. Importing this registers the device `toy` for the
rest of the process: run it in one of its own. Views share memory; strides of a view are not told (all tensors say they are contiguous).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("toy")

VIEWS = (
    "detach", "alias", "view", "_unsafe_view", "as_strided", "transpose.int", "t", "permute", "expand", "slice.Tensor", "select.int",
    "unsqueeze", "squeeze", "squeeze.dim", "_reshape_alias",
)  # fmt: skip


def wrap(data: torch.Tensor) -> torch.Tensor:
    """A tensor of the device with this data."""
    out: Any = torch._C._acc.create_empty_tensor(list(data.shape), data.dtype)
    out.of_host = data
    return out  # type: ignore[no-any-return]


def data(value: Any) -> Any:
    """The data of a tensor of the device; anything else as it is."""
    return value.of_host if isinstance(value, torch.Tensor) and value.device.type == "toy" else value


def _host(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) else data(value)


def run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Any operator, on the data."""
    on_host = tree_map(_host, (args, kwargs))
    out = op(*on_host[0], **on_host[1])
    arguments = op._schema.arguments
    written = [
        args[i] if i < len(args) else kwargs.get(a.name)
        for i, a in enumerate(arguments)
        if a.alias_info is not None and a.alias_info.is_write
    ]
    if written:
        return {0: None, 1: written[0]}.get(len(op._schema.returns), tuple(written))
    return tree_map(lambda v: wrap(v) if isinstance(v, torch.Tensor) else v, out)


def _empty(size: Any, dtype: Any = None, *_: Any, **__: Any) -> torch.Tensor:
    return wrap(torch.empty(size, dtype=dtype))


def _strided(size: Any, stride: Any, dtype: Any = None, *_: Any, **__: Any) -> torch.Tensor:
    return wrap(torch.empty_strided(size, stride, dtype=dtype))


def _copy(src: torch.Tensor, dst: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    data(dst).copy_(data(src))
    return dst


def _number(tensor: torch.Tensor) -> Any:
    return data(tensor).item()


def _viewed(op: Any) -> Any:
    return lambda *args, **kwargs: run(op, *args, **kwargs)


_aten = torch.library.Library("aten", "IMPL")
for _name, _kernel in (
    ("empty.memory_format", _empty), ("empty_strided", _strided), ("_copy_from", _copy), ("_local_scalar_dense", _number),
):  # fmt: skip
    _aten.impl(_name, _kernel, "PrivateUse1")
for _name in VIEWS:
    _op, _, _overload = _name.partition(".")
    _aten.impl(_name, _viewed(getattr(getattr(torch.ops.aten, _op), _overload or "default")), "PrivateUse1")
_all = torch.library.Library("_", "IMPL")
_all.fallback(run, "PrivateUse1")
