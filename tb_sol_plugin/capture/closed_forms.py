"""The operators that a layer or function comes down to, forward and backward, from sizes alone.

The fallback mode writes these into the ledger where the real ones cannot be watched. They are the leaves of torch's own decomposition
(a Linear with bias is one addmm of two dimensions), so that the cost models answer as for watched ones. Sizes of matrix products:
[m, k] x [k, n], 2 m k n FLOP.
"""

from __future__ import annotations

import json
import math
from typing import NamedTuple

from tb_sol_plugin.capture.signatures import Signature

Sizes = tuple[int, ...]


class Given(NamedTuple):
    """A tensor argument: sizes, element type as a trace names it. turned: its last two dimensions are swapped in memory."""

    sizes: Sizes
    type: str
    turned: bool = False


Argument = Given | str | None
"""A tensor, a value as a trace writes it (`[128]` is a list), or nothing."""


class Form(NamedTuple):
    """One call of an operator. What it is given, and the sizes of its results in the type of its first tensor. Hashable."""

    op: str
    given: tuple[Argument, ...]
    results: tuple[Sizes, ...]
    backward: bool = False


class Needs(NamedTuple):
    """Which gradients the backward pass makes: of the first and second tensor of a product, or of input and parameters of a layer."""

    first: bool = False
    second: bool = False


def product(m: int, k: int, n: int, type_: str, *, batch: int | None = None, bias: bool = False, turned: bool = False) -> Form:
    """[m, k] x [k, n], `batch` times; with a bias added to it. turned: the second one lies in memory as [n, k]."""
    if batch is not None:
        first, second = Given((batch, m, k), type_), Given((batch, k, n), type_, turned)
        return Form("aten::bmm", (first, second), ((batch, m, n),))
    given = Given((m, k), type_), Given((k, n), type_, turned)
    if bias:
        return Form("aten::addmm", (Given((n,), type_), *given, "1", "1"), ((m, n),))
    return Form("aten::mm", given, ((m, n),))


def products(
    m: int, k: int, n: int, type_: str, needs: Needs, *, batch: int | None = None, bias: bool = False, turned: bool = False
) -> list[Form]:
    """A product and those of its backward pass: dA [m, k] = dC x B^T, dB [k, n] = A^T x dC, each with the FLOP of the forward."""
    out = [product(m, k, n, type_, batch=batch, bias=bias, turned=turned)]
    if needs.first:
        out.append(product(m, n, k, type_, batch=batch)._replace(backward=True))
    if needs.second:
        out.append(product(n if turned else k, m, k if turned else n, type_, batch=batch)._replace(backward=True))
    return out


def matmul(a: Sizes, b: Sizes, type_: str, needs: Needs) -> list[Form]:
    """torch.matmul: vectors count as matrices with a 1; a second matrix without batch is one product; batches are broadcast."""
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
    """The common size of two shapes."""
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    padded = (1,) * (len(longer) - len(shorter)) + shorter
    return tuple(y if x == 1 else x for x, y in zip(longer, padded, strict=True))


def einsum(equation: str, a: Sizes, b: Sizes, type_: str, needs: Needs) -> list[Form]:
    """Two operands as one batched product: letters of both and the result are the batch, of both only are summed over.

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
    """Normalisation over the last `normalized` dimensions. needs.second: the gradient of the weight."""
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
    """needs.second: the gradient of the table."""
    looked, taken = Given(indices, index_type), (*indices, width)
    out = [Form("aten::embedding", (Given((rows, width), type_), looked, "-1", "False", "False"), (taken,))]
    if needs.second:
        given = Given(taken, type_), looked, str(rows), "-1", "False"
        out.append(Form("aten::embedding_dense_backward", given, ((rows, width),), backward=True))
    return out


def attention(q: Sizes, k: Sizes, v: Sizes, type_: str, needs: Needs, *, causal: bool) -> list[Form]:
    """Fused attention of [batch, heads, length, width]; its backward computes the scores again (2.5 times the forward)."""
    gq, gk, gv = Given(q, type_), Given(k, type_), Given(v, type_)
    result = (*q[:-1], v[-1])
    rows = Given(q[:-1], "float")
    out = [Form("aten::_scaled_dot_product_flash_attention", (gq, gk, gv, "", str(causal), "False", None), (result, q[:-1]))]
    if any(needs):
        given = Given(result, type_), gq, gk, gv, Given(result, type_), rows, None, None, "", "", "", str(causal), None, None, None
        out.append(Form("aten::_scaled_dot_product_flash_attention_backward", given, (q, k, v), backward=True))
    return out


def signature_of(form: Form) -> Signature:
    """The form as the ledger keeps calls: the texts that a trace would have."""
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
    if given.turned:
        sizes[-1], sizes[-2] = sizes[-2], sizes[-1]
    steps = [math.prod(sizes[at + 1 :]) for at in range(len(sizes))]
    if given.turned:
        steps[-1], steps[-2] = steps[-2], steps[-1]
    return steps
