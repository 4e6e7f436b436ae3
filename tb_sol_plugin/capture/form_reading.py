"""What a call of a layer or function comes down to, read from its arguments and result. Keeps no tensors.

Everything here raises ValueError, with a reason for people, for calls that cannot be told from their sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch

from tb_sol_plugin.capture import closed_forms as forms
from tb_sol_plugin.capture.closed_forms import Form, Needs, Sizes
from tb_sol_plugin.capture.signatures import type_name

Tensor: Final = torch.Tensor
Arguments = tuple[object, ...]
Named = Mapping[str, object]


# --- Layers ---


def layer_forms(layer: str, module: object, args: Arguments, kwargs: Named, result: object) -> list[Form]:
    """The operators of one call of a supported layer, by its type."""
    return _LAYERS[layer](module, args, kwargs, result)


def _linear_layer(module: object, args: Arguments, kwargs: Named, result: object) -> list[Form]:
    x, y = _tensor(_first(args, kwargs)), _result(result)
    has_bias = isinstance(getattr(module, "bias", None), Tensor) and not isinstance(result, tuple)
    return _linear(x, y, bias=has_bias, weight_grad=_trains(module), type_=_multiplies(module, y))


def _multiplies(module: object, y: torch.Tensor) -> str:
    """The type that a layer multiplies in: that of its result, unless Transformer Engine says that it is at work in 8 bits."""
    return "c10::Float8_e4m3fn" if getattr(module, "fp8", None) is True else type_name(y)


def _linear(x: torch.Tensor, y: torch.Tensor, *, bias: bool, weight_grad: bool, type_: str) -> list[Form]:
    """y = x W^T: rows are those of the larger side, for either may be a part of a sequence that other ranks hold."""
    if not x.ndim or not y.ndim:
        raise ValueError("a layer of scalars")
    k, n = int(x.shape[-1]), int(y.shape[-1])
    m = max(x.numel() // k if k else 0, y.numel() // n if n else 0)
    return forms.products(m, k, n, type_, Needs(x.requires_grad, weight_grad), bias=bias, turned=True)


def _norm_layer(module: object, args: Arguments, kwargs: Named, result: object, *, rms: bool = False) -> list[Form]:
    x = _tensor(_first(args, kwargs))
    weight = isinstance(getattr(module, "weight", None), Tensor)
    bias = isinstance(getattr(module, "bias", None), Tensor)
    shape = getattr(module, "normalized_shape", None)
    return forms.layer_norm(
        _sizes(x), len(shape) if isinstance(shape, (tuple, list, torch.Size)) else 1, type_name(x), Needs(x.requires_grad, _trains(module)),
        weight=weight, bias=bias, rms=rms,
    )  # fmt: skip


def _rms_layer(module: object, args: Arguments, kwargs: Named, result: object) -> list[Form]:
    return _norm_layer(module, args, kwargs, result, rms=True)


def _norm_linear_layer(module: object, args: Arguments, kwargs: Named, result: object) -> list[Form]:
    x = _tensor(_first(args, kwargs))
    return _fused_norm(module, x) + _linear_layer(module, (x,), {}, result)


def _norm_mlp_layer(module: object, args: Arguments, kwargs: Named, result: object) -> list[Form]:
    """Normalisation, [m, k] x [k, f], activation, [m, h] x [h, n]; of a gated activation f is 2 h."""
    x, y = _tensor(_first(args, kwargs)), _result(result)
    up, down = getattr(module, "fc1_weight", None), getattr(module, "fc2_weight", None)
    if not isinstance(up, Tensor) or not isinstance(down, Tensor):
        raise ValueError("a fused MLP without the weights of both layers")
    k, f, h = int(x.shape[-1]), int(up.shape[0]), int(down.shape[-1])
    m = max(x.numel() // max(1, k), y.numel() // max(1, int(y.shape[-1])))
    type_, gradient = _multiplies(module, y), _trains(module)
    needs = Needs(x.requires_grad or gradient, gradient)
    first = forms.products(m, k, f, type_, needs, turned=True)
    second = forms.products(m, h, int(down.shape[0]), type_, needs, turned=True)
    return _fused_norm(module, x) + first + second


def _fused_norm(module: object, x: torch.Tensor) -> list[Form]:
    needs = Needs(x.requires_grad, _trains(module))
    rms = str(getattr(module, "normalization", "")).lower() == "rmsnorm"
    return forms.layer_norm(_sizes(x), 1, type_name(x), needs, weight=True, bias=not rms, rms=rms)


def _embedding_layer(module: object, args: Arguments, kwargs: Named, result: object) -> list[Form]:
    indices, table = _tensor(_first(args, kwargs)), getattr(module, "weight", None)
    if not isinstance(table, Tensor):
        raise ValueError("a table that is no tensor")
    return _embedding(indices, table)


def _embedding(indices: torch.Tensor, table: torch.Tensor) -> list[Form]:
    if table.ndim != 2:
        raise ValueError("a table that is no matrix")
    rows, width = _sizes(table)
    return forms.embedding(rows, width, _sizes(indices), type_name(table), type_name(indices), Needs(False, table.requires_grad))


def _attention_layer(module: object, args: Arguments, kwargs: Named, result: object) -> list[Form]:
    """Attention as Transformer Engine and Megatron call it: [length, batch, heads, width] unless the layer says otherwise."""
    q, k, v = (_tensor(_argument(args, kwargs, at, name)) for at, name in enumerate(("query_layer", "key_layer", "value_layer")))
    layout = str(kwargs.get("qkv_format") or getattr(module, "qkv_format", None) or "sbhd")
    if layout not in ("sbhd", "bshd") or any(one.ndim != 4 for one in (q, k, v)):
        raise ValueError(f"attention over {layout}, whose lengths are not in its sizes")
    order = (1, 2, 0, 3) if layout == "sbhd" else (0, 2, 1, 3)
    mask = kwargs.get("attn_mask_type") or getattr(module, "attn_mask_type", "")
    needs = Needs(any(one.requires_grad for one in (q, k, v)))
    turned = [tuple(int(one.shape[at]) for at in order) for one in (q, k, v)]
    return forms.attention(turned[0], turned[1], turned[2], type_name(q), needs, causal="causal" in str(getattr(mask, "name", mask)))


_LAYERS: Final[dict[str, Callable[[object, Arguments, Named, object], list[Form]]]] = {
    "Linear": _linear_layer,
    "TELinear": _linear_layer,
    "TELayerNormLinear": _norm_linear_layer,
    "TELayerNormMLP": _norm_mlp_layer,
    "TEDotProductAttention": _attention_layer,
    "Embedding": _embedding_layer,
    "LayerNorm": _norm_layer,
    "RMSNorm": _rms_layer,
}


# --- Functions ---


def function_forms(name: str, args: Arguments, kwargs: Named, result: object) -> list[Form]:
    """The operators of one call of a replaced function, by its name (`F.linear`)."""
    read = _torch_embedding if name == "torch.embedding" else _FUNCTIONS[name.partition(".")[2]]
    return read(args, kwargs, result)


def _f_linear(args: Arguments, kwargs: Named, result: object) -> list[Form]:
    x, w = _tensor(_argument(args, kwargs, 0, "input")), _tensor(_argument(args, kwargs, 1, "weight"))
    bias = isinstance(_argument(args, kwargs, 2, "bias"), Tensor)
    y = _result(result)
    return _linear(x, y, bias=bias, weight_grad=w.requires_grad, type_=type_name(y))


def _f_matmul(args: Arguments, kwargs: Named, result: object, *, at: int = 0) -> list[Form]:
    """The product of the tensors at `at` and after it."""
    names = ("input", "other") if at == 0 else ("mat1", "mat2")
    a, b = _tensor(_argument(args, kwargs, at, names[0])), _tensor(_argument(args, kwargs, at + 1, names[1]))
    return forms.matmul(_sizes(a), _sizes(b), type_name(_result(result)), Needs(a.requires_grad, b.requires_grad))


def _f_mm(args: Arguments, kwargs: Named, result: object) -> list[Form]:
    b = args[1] if len(args) > 1 else kwargs.get("mat2")
    return _f_matmul((_argument(args, kwargs, 0, "input"), b), {}, result)


def _f_addmm(args: Arguments, kwargs: Named, result: object) -> list[Form]:
    return _f_matmul(args, kwargs, result, at=1)


def _f_baddbmm(args: Arguments, kwargs: Named, result: object) -> list[Form]:
    named = {"mat1": kwargs.get("batch1"), "mat2": kwargs.get("batch2")}
    return _f_matmul(args, named, result, at=1)


def _f_einsum(args: Arguments, kwargs: Named, result: object) -> list[Form]:
    equation = _argument(args, kwargs, 0, "equation")
    operands = args[1:]
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    if not isinstance(equation, str) or len(operands) != 2:
        raise ValueError("an einsum that is not of two operands")
    a, b = (_tensor(one) for one in operands)
    return forms.einsum(equation, _sizes(a), _sizes(b), type_name(_result(result)), Needs(a.requires_grad, b.requires_grad))


def _f_softmax(args: Arguments, kwargs: Named, result: object, *, log: bool = False) -> list[Form]:
    x, y = _tensor(_argument(args, kwargs, 0, "input")), _result(result)
    dim = _argument(args, kwargs, 1, "dim")
    at = dim if isinstance(dim, int) else -1
    return forms.softmax(_sizes(x), at, type_name(y), Needs(x.requires_grad), log=log)


def _f_log_softmax(args: Arguments, kwargs: Named, result: object) -> list[Form]:
    return _f_softmax(args, kwargs, result, log=True)


def _f_layer_norm(args: Arguments, kwargs: Named, result: object) -> list[Form]:
    x, shape = _tensor(_argument(args, kwargs, 0, "input")), _argument(args, kwargs, 1, "normalized_shape")
    weight, bias = _argument(args, kwargs, 2, "weight"), _argument(args, kwargs, 3, "bias")
    needs = Needs(x.requires_grad, isinstance(weight, Tensor) and weight.requires_grad)
    dims = len(shape) if isinstance(shape, (tuple, list, torch.Size)) else 1
    return forms.layer_norm(
        _sizes(x), dims, type_name(x), needs, weight=isinstance(weight, Tensor), bias=isinstance(bias, Tensor)
    )  # fmt: skip


def _f_embedding(args: Arguments, kwargs: Named, result: object) -> list[Form]:
    return _embedding(_tensor(_argument(args, kwargs, 0, "input")), _tensor(_argument(args, kwargs, 1, "weight")))


def _torch_embedding(args: Arguments, kwargs: Named, result: object) -> list[Form]:
    """torch.embedding takes the table first, F.embedding the indices."""
    return _embedding(_tensor(_argument(args, kwargs, 1, "indices")), _tensor(_argument(args, kwargs, 0, "weight")))


_FUNCTIONS: Final[dict[str, Callable[[Arguments, Named, object], list[Form]]]] = {
    "linear": _f_linear,
    "matmul": _f_matmul,
    "mm": _f_mm,
    "bmm": _f_mm,
    "addmm": _f_addmm,
    "baddbmm": _f_baddbmm,
    "einsum": _f_einsum,
    "softmax": _f_softmax,
    "log_softmax": _f_log_softmax,
    "layer_norm": _f_layer_norm,
    "embedding": _f_embedding,
}


# --- Arguments ---


def _argument(args: Arguments, kwargs: Named, at: int, name: str) -> object:
    return args[at] if at < len(args) else kwargs.get(name)


def _first(args: Arguments, kwargs: Named) -> object:
    """The input of a layer: its first argument, or the first tensor among those by name."""
    return args[0] if args else next((one for one in kwargs.values() if isinstance(one, Tensor)), None)


def _tensor(value: object) -> torch.Tensor:
    """A dense tensor with a device; of one that is spread over ranks the part of this rank. Raises ValueError for anything else."""
    if not isinstance(value, Tensor):
        raise ValueError("no tensor where one is expected")
    part = getattr(value, "_local_tensor", None)
    tensor: torch.Tensor = part if isinstance(part, Tensor) else value
    if tensor.is_meta:
        raise ValueError("tensors without data (meta)")
    if tensor.is_nested or tensor.layout is not torch.strided:
        raise ValueError("a tensor that is not dense")
    return tensor.detach().requires_grad_() if tensor is not value and value.requires_grad else tensor


def _result(value: object) -> torch.Tensor:
    return _tensor(value[0] if isinstance(value, (tuple, list)) and value else value)


def _sizes(tensor: torch.Tensor) -> Sizes:
    return tuple(int(size) for size in tensor.shape)


def _trains(module: object) -> bool:
    """Whether the layer's own parameters get gradients."""
    parameters = getattr(module, "_parameters", None) or {}
    return any(one is not None and one.requires_grad for one in parameters.values())
