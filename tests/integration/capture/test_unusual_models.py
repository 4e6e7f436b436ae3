"""Models and values that break simple recorders: work is recorded or counted as unknown, and the training step never notices."""

from __future__ import annotations

import copy
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tb_sol_plugin as sol
from tests.support.sol_reading import Recorded, only
from tests.support.training_loops import run, same

torch = pytest.importorskip("torch", reason="records training loops")
from torch import nn  # noqa: E402

X = torch.linspace(-1, 1, 8 * 16).view(8, 16)
LINEAR = 2 * 8 * 16 * 16
"""FLOP of a product of X with a 16 x 16 weight."""


def regress(output: Callable[[Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """A training step on the mean square of what `output(model)` gives."""

    def step(model: Any, optimizer: Any, tracker: Any) -> Any:
        loss = output(model).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def check(tmp_path: Path, model: Any, output: Callable[[Any], Any]) -> Recorded:
    """Train untracked and tracked: equal bits, a closed file, no note of an error."""
    step = regress(output)
    untracked = run(copy.deepcopy(model), step)
    assert same(run(model, step, logdir=tmp_path), untracked)
    recorded = only(tmp_path)
    assert recorded.closed and recorded.sampled == [0, 1, 2]
    assert not any("error" in code for code in recorded.notes), recorded.note_texts
    return recorded


class Shared(nn.Module):
    """One layer used twice and known by two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16, bias=False)
        self.second = self.first

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x).relu())


def test_a_shared_module_counts_once_per_call(tmp_path: Path) -> None:
    # GIVEN a layer that runs twice per step WHEN tracked THEN two products forward, and three backward: the input needs no gradient
    recorded = check(tmp_path, Shared(), lambda m: m(X))
    assert recorded.flop(2, backward=False) == 2 * LINEAR and recorded.flop(2, backward=True) == 3 * LINEAR
    assert recorded.header["model"]["parameters"] == 256  # type: ignore[index,call-overload]


def test_tied_weights(tmp_path: Path) -> None:
    # GIVEN an embedding whose weight is also the head's WHEN tracked THEN the parameters are counted once and the product per use
    model = nn.ModuleDict({"embed": nn.Embedding(16, 16), "head": nn.Linear(16, 16, bias=False)})
    model["head"].weight = model["embed"].weight
    tokens = torch.arange(8)
    recorded = check(tmp_path, model, lambda m: m["head"](m["embed"](tokens)))
    assert recorded.flop(1) == 3 * LINEAR
    assert recorded.header["model"]["parameters"] == 256  # type: ignore[index,call-overload]


def test_a_loop_without_a_model(tmp_path: Path) -> None:
    # GIVEN a function of plain tensors WHEN tracked without a model THEN its work is there, outside of modules
    w = torch.ones(16, 16, requires_grad=True)
    with sol.capture(str(tmp_path), every_n_steps=1) as tracker:
        for _ in range(2):
            (X @ w).sum().backward()
            tracker.step()
    recorded = only(tmp_path)
    assert recorded.flop(1) == 2 * LINEAR and recorded.flop(1, module="") == 2 * LINEAR


class Cube(torch.autograd.Function):
    """x^3 with a product in its backward pass that only the function knows of."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.save_for_backward(x, w)
        return (x @ w) ** 3

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, w = ctx.saved_tensors
        inner = grad * 3 * (x @ w) ** 2
        return inner @ w.t(), x.t() @ inner


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(16) / 2)

    def forward(self, x: Any) -> Any:
        return Cube.apply(x, self.weight)


def test_a_custom_autograd_function(tmp_path: Path) -> None:
    # GIVEN a function with one product forward and three backward WHEN tracked THEN each is on its side, and of the module that applied it
    recorded = check(tmp_path, Custom(), lambda m: m(X))
    assert recorded.flop(1, backward=False) == LINEAR and recorded.flop(1, backward=True) == 3 * LINEAR
    assert recorded.flop(1, module="") == 0


def test_a_gradient_of_a_gradient(tmp_path: Path) -> None:
    # GIVEN a penalty on the gradient of the input (double backward) WHEN tracked THEN same bits, and every product is counted
    model = nn.Linear(16, 16, bias=False)

    def penalty(m: Any) -> Any:
        x = X.clone().requires_grad_(True)
        (gradient,) = torch.autograd.grad(m(x).square().sum(), x, create_graph=True)
        return gradient

    recorded = check(tmp_path, model, penalty)
    # y = x W': one product forward. g = 2 y W: one in the first backward. Then two for each of the two products, as all of their
    # factors need gradients: g's for y and W, y's for x and W.
    assert recorded.flop(1, backward=False) == LINEAR and recorded.flop(1, backward=True) == 5 * LINEAR


@dataclass
class Answer:
    hidden: Any
    loss: Any = None


Pair = namedtuple("Pair", ["left", "right"])


class Returns(nn.Module):
    """A layer that returns its result inside something else."""

    def __init__(self, wrap: Callable[[Any], Any]) -> None:
        super().__init__()
        self.inner, self.wrap = nn.Linear(16, 16, bias=False), wrap

    def forward(self, x: Any) -> Any:
        return self.wrap(self.inner(x))


class Outer(nn.Module):
    def __init__(self, wrap: Callable[[Any], Any], take: Callable[[Any], Any]) -> None:
        super().__init__()
        self.body, self.take = Returns(wrap), take

    def forward(self, x: Any) -> Any:
        return self.take(self.body(x))


@pytest.mark.parametrize(
    ("wrap", "take"),
    [
        (lambda y: {"y": y, "nothing": None}, lambda o: o["y"]),
        (lambda y: Answer(y), lambda o: o.hidden),
        (lambda y: Pair(y, 3), lambda o: o.left),
        (lambda y: [[y], "text", None], lambda o: o[0][0]),
        (lambda y: lambda: y, lambda o: o()),
    ],
    ids=["dict", "dataclass", "namedtuple", "list", "closure"],
)
def test_outputs_that_are_no_tensors(tmp_path: Path, wrap: Any, take: Any) -> None:
    # GIVEN a module that returns its tensor inside of another object WHEN tracked THEN what it returns is not touched
    assert check(tmp_path, Outer(wrap, take), lambda m: m(X)).flop(1) == 2 * LINEAR


def test_a_module_that_returns_nothing_and_one_that_takes_keywords(tmp_path: Path) -> None:
    # GIVEN a module that only writes into its argument, and one called with keywords alone
    class Writes(nn.Module):
        def forward(self, x: Any) -> None:
            x.add_(1)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.writes = nn.Linear(16, 16), Writes()

        def forward(self, *, scale: float, x: Any) -> Any:
            y = self.layer(input=x) * scale
            assert self.writes(y) is None
            return y

    # WHEN tracked THEN in-place work counts and nothing breaks
    recorded = check(tmp_path, Model(), lambda m: m(scale=0.5, x=X))
    assert recorded.flop(1) == 2 * LINEAR
    assert recorded.calls(1)["aten::add_"] >= 1


def test_in_place_activations(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(inplace=True), nn.Linear(16, 16))
    recorded = check(tmp_path, model, lambda m: m(X))
    assert recorded.calls(1)["aten::relu_"] == 1 and recorded.flop(1) == 5 * LINEAR


def test_complex_values(tmp_path: Path) -> None:
    # GIVEN a spectral layer (FFT, complex weights) WHEN tracked THEN same bits; a complex multiply-add counts as one, as in FlopCounterMode
    class Spectral(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.eye(9, dtype=torch.complex64) * (1 + 0.5j))

        def forward(self, x: Any) -> Any:
            return torch.fft.irfft(torch.fft.rfft(x) @ self.weight, n=16)

    recorded = check(tmp_path, Spectral(), lambda m: m(X))
    products = [row for row in recorded.ledgers[1] if row.op == "aten::mm"]
    # 8 x 9 @ 9 x 9 forward, and the same for each of weight and spectrum backward (the spectrum needs no gradient: X is given)
    assert sum(row.flop for row in products) == 2 * 2 * 8 * 9 * 9 and {row.sig["dtype"] for row in products} == {"complex64"}


def test_quantized_layers(tmp_path: Path) -> None:
    # GIVEN a model with a quantized middle, which only runs forward
    class Quantized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x: Any) -> Any:
            q = torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
            return self.layer(q.dequantize() + torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255))

    recorded = check(tmp_path, Quantized(), lambda m: m(X))
    assert recorded.flop(1) == 2 * LINEAR


def test_sparse_and_nested_tensors(tmp_path: Path) -> None:
    # GIVEN products with sparse matrices in two layouts, and a nested tensor
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)
            self.register_buffer("coo", torch.eye(8).to_sparse(), persistent=False)

        def forward(self, x: Any) -> Any:
            nested = torch.nested.nested_tensor([x[:3], x[3:]])
            y = torch.cat(list(self.layer(nested).unbind()))
            return torch.sparse.mm(self.coo, y) + torch.sparse.mm(torch.eye(8).to_sparse_csr(), y)

    # WHEN tracked THEN same bits, and the file is whole
    recorded = check(tmp_path, Odd(), lambda m: m(X))
    # AND nothing sparse is counted as a dense product: unknown, or the work of its elements
    assert all(row.flop in (None, 0) or row.flop <= LINEAR * row.count for row in recorded.ledgers[1])


def test_jagged_tensors(tmp_path: Path) -> None:
    # GIVEN nested tensors in the jagged layout, whose sizes are symbols WHEN tracked THEN same bits
    def output(m: Any) -> Any:
        return m(torch.nested.nested_tensor([X[:3], X[3:]], layout=torch.jagged)).values()

    check(tmp_path, nn.Linear(16, 16), output)


def test_fake_and_meta_tensors(tmp_path: Path) -> None:
    # GIVEN a loop that also asks for shapes on tensors without data, as planners of memory do
    from torch._subclasses.fake_tensor import FakeTensorMode

    def output(m: Any) -> Any:
        on_meta = copy.deepcopy(m).to("meta")
        assert on_meta(torch.empty(8, 16, device="meta")).shape == (8, 16)
        with FakeTensorMode(allow_non_fake_inputs=True):
            assert m(torch.empty(8, 16)).shape == (8, 16)
        return m(X)

    # WHEN tracked THEN same bits, and what ran on no data is no work
    recorded = check(tmp_path, nn.Linear(16, 16, bias=False), output)
    assert recorded.flop(1) == 2 * LINEAR


def test_vmap_and_functional_call(tmp_path: Path) -> None:
    # GIVEN per-sample gradients by functional transforms WHEN tracked THEN same bits
    from torch.func import functional_call, grad, vmap

    def output(m: Any) -> Any:
        weights = dict(m.named_parameters())

        def loss(w: Any, x: Any) -> Any:
            return functional_call(m, w, (x[None],)).square().sum()

        each = vmap(grad(loss), in_dims=(None, 0))({k: v.detach() for k, v in weights.items()}, X)
        return m(X) + each["weight"].mean()

    recorded = check(tmp_path, nn.Linear(16, 16), output)
    assert recorded.flop(1) >= 2 * LINEAR


@pytest.mark.skipif(not hasattr(torch.compiler, "set_stance"), reason="before torch 2.6 no subclass can be made under a dispatch mode")
def test_a_tensor_subclass(tmp_path: Path) -> None:
    # GIVEN inputs of a class of its own WHEN tracked THEN same bits and the class survives
    class Named(torch.Tensor):
        pass

    def output(m: Any) -> Any:
        y = m(X.as_subclass(Named))
        assert isinstance(y, Named)
        return y.as_subclass(torch.Tensor)

    assert check(tmp_path, nn.Linear(16, 16), output).flop(1) == 2 * LINEAR


def test_a_fast_path_of_attention(tmp_path: Path) -> None:
    # GIVEN an encoder whose evaluation runs fused C++ code WHEN tracked without gradients
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 1).eval()

    def step(model: Any, optimizer: Any, tracker: Any) -> Any:
        with torch.inference_mode():
            return model(X[None]).mean()

    untracked = run(copy.deepcopy(model), step)
    assert same(run(model, step, logdir=tmp_path), untracked)
    # THEN the fused operator is there, as work of unknown size or modeled, never as nothing
    recorded = only(tmp_path)
    fused = [row for row in recorded.ledgers[1] if "transformer_encoder_layer" in row.op]
    assert (fused and all(row.sig["reason"] for row in fused if row.flop is None)) or recorded.flop(1) > 0


class TEDotProductAttention(nn.Module):
    """Has the name of a wrapper of Transformer Engine; its work is plain."""

    def forward(self, q: Any) -> Any:
        return nn.functional.scaled_dot_product_attention(q, q, q)


class TELayerNormLinear(nn.Module):
    """A fused layer by its name: norm and product."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.norm = nn.Parameter(torch.eye(16)), nn.Parameter(torch.ones(16))

    def forward(self, x: Any) -> tuple[Any, None]:
        return nn.functional.linear(nn.functional.layer_norm(x, (16,), self.norm), self.weight), None


class TEColumnParallelLinear(nn.Linear):
    """A class of Megatron that derives from a supported one."""


def test_layers_of_megatron_and_transformer_engine_by_name(tmp_path: Path) -> None:
    # GIVEN stand-ins with the names of fused layers WHEN tracked
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fused, self.attention, self.out = TELayerNormLinear(), TEDotProductAttention(), TEColumnParallelLinear(16, 16)

        def forward(self, x: Any) -> Any:
            y, _ = self.fused(x)
            return self.out(self.attention(y.view(1, 2, 8, 8)).reshape(8, 16))

    records: list[Any] = []

    def step(model: Any, optimizer: Any, tracker: Any) -> Any:
        loss = regress(lambda m: m(X))(model, optimizer, tracker)
        if tracker is not None:
            records[:] = tracker.records
        return loss

    model = Model()
    untracked = run(copy.deepcopy(model), step)
    assert same(run(model, step, logdir=tmp_path), untracked)
    # THEN work is credited to them by type, forward and backward, without an import of either package
    types = {r.layer_type: sum(x.flops or 0 for x in records if x.layer_type == r.layer_type) for r in records}
    assert types["TELayerNormLinear"] == 3 * LINEAR  # the norm in front of the product has a weight, so its output needs a gradient
    attention = 2 * 2 * 2 * 8 * 8 * 8  # 2 heads, two products of 8 x 8 x 8
    assert types["TEDotProductAttention"] >= 3 * attention
    assert types["TELinear"] == 3 * LINEAR
    import sys

    assert not any(name.startswith(("transformer_engine", "megatron")) for name in sys.modules)
