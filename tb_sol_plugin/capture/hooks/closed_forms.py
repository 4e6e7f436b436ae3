"""Gives the operators that a layer or function comes down to, forward and backward, from sizes alone.

The fallback mode writes these into the ledger where the real ones cannot be observed. They are the leaves of torch's own decomposition
(a Linear with bias is one addmm of two dimensions), so that the cost models answer as for observed ones. Sizes of matrix products:
[m, k] x [k, n], 2 m k n FLOP.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import torch

from tb_sol_plugin.capture.work.signatures import Signature, type_name

Sizes = tuple[int, ...]


class Given(NamedTuple):
    """Describes a tensor argument: sizes, element type as a trace names it. transposed: its last two dimensions are swapped in memory."""

    sizes: Sizes
    type: str
    transposed: bool = False


Argument = Given | str | None
"""A tensor, a value as a trace writes it (`[128]` is a list), or nothing."""


class Form(NamedTuple):
    """Describes one call of an operator: its arguments, and the sizes of its results in the type of its first tensor. Hashable."""

    op: str
    given: tuple[Argument, ...]
    results: tuple[Sizes, ...]
    backward: bool = False


class Needs(NamedTuple):
    """Names the gradients of the backward pass: of the first and second tensor of a product, or of input and parameters of a layer."""

    first: bool = False
    second: bool = False


def product(m: int, k: int, n: int, type_: str, *, batch: int | None = None, bias: bool = False, transposed: bool = False) -> Form:
    """Describes [m, k] x [k, n], `batch` times; with a bias added to it. transposed: the second one lies in memory as [n, k]."""
    if batch is not None:
        first, second = Given((batch, m, k), type_), Given((batch, k, n), type_, transposed)
        return Form("aten::bmm", (first, second), ((batch, m, n),))
    given = Given((m, k), type_), Given((k, n), type_, transposed)
    if bias:
        return Form("aten::addmm", (Given((n,), type_), *given, "1", "1"), ((m, n),))
    return Form("aten::mm", given, ((m, n),))


def products(
    m: int, k: int, n: int, type_: str, needs: Needs, *, batch: int | None = None, bias: bool = False, transposed: bool = False
) -> list[Form]:
    """Lists a product and those of its backward pass: dA [m, k] = dC x B^T, dB [k, n] = A^T x dC, each with the FLOP of the forward."""
    out = [product(m, k, n, type_, batch=batch, bias=bias, transposed=transposed)]
    if needs.first:
        out.append(product(m, n, k, type_, batch=batch)._replace(backward=True))
    if needs.second:
        out.append(product(n if transposed else k, m, k if transposed else n, type_, batch=batch)._replace(backward=True))
    return out


def matmul(a: Sizes, b: Sizes, type_: str, needs: Needs) -> list[Form]:
    """Lists the products of torch.matmul: a vector is a matrix with a 1; a second matrix without batch is one product; batches match."""
    if not a or not b:
        raise ValueError("a product of scalars")
    m, k = (1, a[0]) if len(a) == 1 else (a[-2], a[-1])
    n = 1 if len(b) == 1 else b[-1]
    if len(b) <= 2:
        return products(math.prod(a[:-2]) * m, k, n, type_, needs)
    if len(a) <= 2:
        return products(m, k, math.prod(b[:-2]) * n, type_, needs)
    return products(m, k, n, type_, needs, batch=math.prod(broadcast(a[:-2], b[:-2])))


def broadcast(a: Sizes, b: Sizes) -> Sizes:
    """Returns the common size of two shapes."""
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    padded = (1,) * (len(longer) - len(shorter)) + shorter
    return tuple(y if x == 1 else x for x, y in zip(longer, padded, strict=True))


def einsum(equation: str, a: Sizes, b: Sizes, type_: str, needs: Needs) -> list[Form]:
    """Lists the one batched product of two operands: letters of both and the result are the batch, of both only are summed.

    Raises ValueError for repeated letters within an operand, and for `...`.
    """
    left, _, out = equation.replace(" ", "").partition("->")
    first, _, second = left.partition(",")
    if "." in equation or len(first) != len(a) or len(second) != len(b) or len({*first}) < len(a) or len({*second}) < len(b):
        raise ValueError("an einsum of unusual form")
    if "->" not in equation:
        out = "".join(sorted(letter for letter in {*first, *second} if (first + second).count(letter) == 1))
    size = dict(zip(first + second, a + b, strict=True))
    both = {*first} & {*second}
    batch = math.prod(size[x] for x in both if x in out)
    k = math.prod(size[x] for x in both if x not in out)
    m, n = (math.prod(size[x] for x in own if x not in both and x in out) for own in (first, second))
    return products(m, k, n, type_, needs, batch=batch)


def layer_norm(x: Sizes, normalized: int, type_: str, needs: Needs, *, weight: bool, bias: bool, rms: bool = False) -> list[Form]:
    """Lists a normalization over the last `normalized` dimensions and its backward. needs.second: the gradient of the weight."""
    inner, rows = x[len(x) - normalized :], (*x[: len(x) - normalized], *(1,) * normalized)
    sizes = json.dumps(list(inner))
    w, b = Given(inner, type_) if weight else None, Given(inner, type_) if bias else None
    own = Given(x, type_)
    kept = Given(rows, type_)
    mask = f"[{needs.first}, {needs.second and weight}{'' if rms else f', {needs.second and bias}'}]"
    if rms:
        out = [Form("aten::_fused_rms_norm", (own, sizes, w, ""), (x, rows))]
        grad = Form("aten::_fused_rms_norm_backward", (own, own, sizes, kept, w, mask), (x, inner), backward=True)
    else:
        out = [Form("aten::native_layer_norm", (own, sizes, w, b, ""), (x, rows, rows))]
        grad = Form("aten::native_layer_norm_backward", (own, own, sizes, kept, kept, w, b, mask), (x, inner, inner), backward=True)
    return [*out, grad] if any(needs) else out


def softmax(x: Sizes, dim: int, type_: str, needs: Needs, *, log: bool = False) -> list[Form]:
    name = "aten::_log_softmax" if log else "aten::_softmax"
    own = Given(x, type_)
    out = [Form(name, (own, str(dim), "False"), (x,))]
    if needs.first:
        out.append(Form(f"{name}_backward_data", (own, own, str(dim), ""), (x,), backward=True))
    return out


def embedding(rows: int, width: int, indices: Sizes, type_: str, index_type: str, needs: Needs) -> list[Form]:
    """Lists a lookup in a table and its backward. needs.second: the gradient of the table."""
    lookup, result = Given(indices, index_type), (*indices, width)
    out = [Form("aten::embedding", (Given((rows, width), type_), lookup, "-1", "False", "False"), (result,))]
    if needs.second:
        given = Given(result, type_), lookup, str(rows), "-1", "False"
        out.append(Form("aten::embedding_dense_backward", given, ((rows, width),), backward=True))
    return out


def attention(q: Sizes, k: Sizes, v: Sizes, type_: str, needs: Needs, *, causal: bool) -> list[Form]:
    """Lists fused attention of [batch, heads, length, width]; its backward computes the scores again (2.5 times the forward)."""
    gq, gk, gv = Given(q, type_), Given(k, type_), Given(v, type_)
    result = (*q[:-1], v[-1])
    rows = Given(q[:-1], "float")
    out = [Form("aten::_scaled_dot_product_flash_attention", (gq, gk, gv, "", str(causal), "False", None), (result, q[:-1]))]
    if any(needs):
        given = Given(result, type_), gq, gk, gv, Given(result, type_), rows, None, None, "", "", "", str(causal), None, None, None
        out.append(Form("aten::_scaled_dot_product_flash_attention_backward", given, (q, k, v), backward=True))
    return out


def signature_of(form: Form) -> Signature:
    """Returns the form as the ledger keeps calls: the texts that a trace would have."""
    out = Signature(form.op)
    tensors = [one if isinstance(one, Given) else None for one in form.given]
    out.shapes = json.dumps([list(one.sizes) if one else [] for one in tensors])
    out.types = json.dumps([one.type if isinstance(one, Given) else _kind(one) for one in form.given])
    out.strides = json.dumps([_strides(one) if one else [] for one in tensors])
    out.concrete = json.dumps([one if isinstance(one, str) else "" for one in form.given])
    out.out_shapes = json.dumps([list(sizes) for sizes in form.results])
    type_ = next((one.type for one in tensors if one), "")
    out.out_types = json.dumps([type_] * len(form.results))
    out.stride0 = tuple((False,) * len(one.sizes) for one in tensors if one)
    return out


def _kind(value: str | None) -> str:
    return "" if value is None else "ScalarList" if value.startswith("[") else "Scalar"


def _strides(given: Given) -> list[int]:
    sizes = list(given.sizes)
    if given.transposed:
        sizes[-1], sizes[-2] = sizes[-2], sizes[-1]
    steps = [math.prod(sizes[at + 1 :]) for at in range(len(sizes))]
    if given.transposed:
        steps[-1], steps[-2] = steps[-2], steps[-1]
    return steps


# -- form_reading ----------------------------------------------------------------------------------------------------
# Everything here raises ValueError, with a reason for people, for calls that cannot be derived from their sizes.


Tensor: Final = torch.Tensor
Arguments = tuple[object, ...]
Named = Mapping[str, object]


# --- Layers ---


def layer_forms(layer: str, module: object, args: Arguments, kwargs: Named, result: object) -> list[Form]:
    """Lists the operators of one call of a supported layer, by its type."""
    return _LAYERS[layer](module, args, kwargs, result)


def _linear_layer(module: object, args: Arguments, kwargs: Named, result: object) -> list[Form]:
    x, y = _tensor(_first(args, kwargs)), _result(result)
    has_bias = isinstance(getattr(module, "bias", None), Tensor) and not isinstance(result, tuple)
    return _linear(x, y, bias=has_bias, weight_grad=_trains(module), type_=_multiplies(module, y))


def _multiplies(module: object, y: torch.Tensor) -> str:
    """Returns the type that a layer multiplies in: that of its result, unless Transformer Engine says that it is at work in 8 bits."""
    return "c10::Float8_e4m3fn" if getattr(module, "fp8", None) is True else type_name(y)


def _linear(x: torch.Tensor, y: torch.Tensor, *, bias: bool, weight_grad: bool, type_: str) -> list[Form]:
    """Lists y = x W^T: rows are those of the larger side, for either may be the part of a sequence that this rank computes."""
    if not x.ndim or not y.ndim:
        raise ValueError("a layer of scalars")
    k, n = int(x.shape[-1]), int(y.shape[-1])
    m = max(x.numel() // k if k else 0, y.numel() // n if n else 0)
    return products(m, k, n, type_, Needs(x.requires_grad, weight_grad), bias=bias, transposed=True)


def _norm_layer(module: object, args: Arguments, kwargs: Named, result: object, *, rms: bool = False) -> list[Form]:
    x = _tensor(_first(args, kwargs))
    weight = isinstance(getattr(module, "weight", None), Tensor)
    bias = isinstance(getattr(module, "bias", None), Tensor)
    shape = getattr(module, "normalized_shape", None)
    return layer_norm(
        _sizes(x), len(shape) if isinstance(shape, (tuple, list, torch.Size)) else 1, type_name(x), Needs(x.requires_grad, _trains(module)),
        weight=weight, bias=bias, rms=rms,
    )  # fmt: skip


def _rms_layer(module: object, args: Arguments, kwargs: Named, result: object) -> list[Form]:
    return _norm_layer(module, args, kwargs, result, rms=True)


def _norm_linear_layer(module: object, args: Arguments, kwargs: Named, result: object) -> list[Form]:
    x = _tensor(_first(args, kwargs))
    return _fused_norm(module, x) + _linear_layer(module, (x,), {}, result)


def _norm_mlp_layer(module: object, args: Arguments, kwargs: Named, result: object) -> list[Form]:
    """Lists normalization, [m, k] x [k, f], activation, [m, h] x [h, n]; of a gated activation f is 2 h."""
    x, y = _tensor(_first(args, kwargs)), _result(result)
    up, down = getattr(module, "fc1_weight", None), getattr(module, "fc2_weight", None)
    if not isinstance(up, Tensor) or not isinstance(down, Tensor):
        raise ValueError("a fused MLP without the weights of both layers")
    k, f, h = int(x.shape[-1]), int(up.shape[0]), int(down.shape[-1])
    m = max(x.numel() // max(1, k), y.numel() // max(1, int(y.shape[-1])))
    type_, gradient = _multiplies(module, y), _trains(module)
    needs = Needs(x.requires_grad or gradient, gradient)
    first = products(m, k, f, type_, needs, transposed=True)
    second = products(m, h, int(down.shape[0]), type_, needs, transposed=True)
    return _fused_norm(module, x) + first + second


def _fused_norm(module: object, x: torch.Tensor) -> list[Form]:
    needs = Needs(x.requires_grad, _trains(module))
    rms = str(getattr(module, "normalization", "")).lower() == "rmsnorm"
    return layer_norm(_sizes(x), 1, type_name(x), needs, weight=True, bias=not rms, rms=rms)


def _embedding_layer(module: object, args: Arguments, kwargs: Named, result: object) -> list[Form]:
    indices, table = _tensor(_first(args, kwargs)), getattr(module, "weight", None)
    if not isinstance(table, Tensor):
        raise ValueError("a table that is no tensor")
    return _embedding(indices, table)


def _embedding(indices: torch.Tensor, table: torch.Tensor) -> list[Form]:
    if table.ndim != 2:
        raise ValueError("a table that is no matrix")
    rows, width = _sizes(table)
    return embedding(rows, width, _sizes(indices), type_name(table), type_name(indices), Needs(False, table.requires_grad))


def _attention_layer(module: object, args: Arguments, kwargs: Named, result: object) -> list[Form]:
    """Lists attention as Transformer Engine and Megatron call it: [length, batch, heads, width] unless the layer says otherwise."""
    q, k, v = (_tensor(_argument(args, kwargs, at, name)) for at, name in enumerate(("query_layer", "key_layer", "value_layer")))
    layout = str(kwargs.get("qkv_format") or getattr(module, "qkv_format", None) or "sbhd")
    if layout not in ("sbhd", "bshd") or any(one.ndim != 4 for one in (q, k, v)):
        raise ValueError(f"attention over {layout}, whose lengths are not in its sizes")
    order = (1, 2, 0, 3) if layout == "sbhd" else (0, 2, 1, 3)
    mask = kwargs.get("attn_mask_type") or getattr(module, "attn_mask_type", "")
    needs = Needs(any(one.requires_grad for one in (q, k, v)))
    transposed = [tuple(int(one.shape[at]) for at in order) for one in (q, k, v)]
    return attention(transposed[0], transposed[1], transposed[2], type_name(q), needs, causal="causal" in str(getattr(mask, "name", mask)))


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
    """Lists the operators of one call of a replaced function, by its name (`F.linear`)."""
    read = _torch_embedding if name == "torch.embedding" else _FUNCTIONS[name.partition(".")[2]]
    return read(args, kwargs, result)


def _f_linear(args: Arguments, kwargs: Named, result: object) -> list[Form]:
    x, w = _tensor(_argument(args, kwargs, 0, "input")), _tensor(_argument(args, kwargs, 1, "weight"))
    bias = isinstance(_argument(args, kwargs, 2, "bias"), Tensor)
    y = _result(result)
    return _linear(x, y, bias=bias, weight_grad=w.requires_grad, type_=type_name(y))


def _f_matmul(args: Arguments, kwargs: Named, result: object, *, at: int = 0) -> list[Form]:
    """Lists the product of the tensors at `at` and after it."""
    names = ("input", "other") if at == 0 else ("mat1", "mat2")
    a, b = _tensor(_argument(args, kwargs, at, names[0])), _tensor(_argument(args, kwargs, at + 1, names[1]))
    return matmul(_sizes(a), _sizes(b), type_name(_result(result)), Needs(a.requires_grad, b.requires_grad))


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
    return einsum(equation, _sizes(a), _sizes(b), type_name(_result(result)), Needs(a.requires_grad, b.requires_grad))


def _f_softmax(args: Arguments, kwargs: Named, result: object, *, log: bool = False) -> list[Form]:
    x, y = _tensor(_argument(args, kwargs, 0, "input")), _result(result)
    dim = _argument(args, kwargs, 1, "dim")
    at = dim if isinstance(dim, int) else -1
    return softmax(_sizes(x), at, type_name(y), Needs(x.requires_grad), log=log)


def _f_log_softmax(args: Arguments, kwargs: Named, result: object) -> list[Form]:
    return _f_softmax(args, kwargs, result, log=True)


def _f_layer_norm(args: Arguments, kwargs: Named, result: object) -> list[Form]:
    x, shape = _tensor(_argument(args, kwargs, 0, "input")), _argument(args, kwargs, 1, "normalized_shape")
    weight, bias = _argument(args, kwargs, 2, "weight"), _argument(args, kwargs, 3, "bias")
    needs = Needs(x.requires_grad, isinstance(weight, Tensor) and weight.requires_grad)
    dims = len(shape) if isinstance(shape, (tuple, list, torch.Size)) else 1
    return layer_norm(
        _sizes(x), dims, type_name(x), needs, weight=isinstance(weight, Tensor), bias=isinstance(bias, Tensor)
    )  # fmt: skip


def _f_embedding(args: Arguments, kwargs: Named, result: object) -> list[Form]:
    return _embedding(_tensor(_argument(args, kwargs, 0, "input")), _tensor(_argument(args, kwargs, 1, "weight")))


def _torch_embedding(args: Arguments, kwargs: Named, result: object) -> list[Form]:
    """Lists a lookup of torch.embedding, which takes the table first; F.embedding takes the indices first."""
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
    """Returns the input of a layer: its first argument, or the first tensor among those by name."""
    return args[0] if args else next((one for one in kwargs.values() if isinstance(one, Tensor)), None)


def _tensor(value: object) -> torch.Tensor:
    """Returns a dense tensor with a device; of one that is sharded over ranks the part of this rank. ValueError for anything else."""
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
    """Returns whether the layer's own parameters get gradients."""
    parameters = getattr(module, "_parameters", None) or {}
    return any(one is not None and one.requires_grad for one in parameters.values())
