"""Layers that call a library of their own: counted in closed form where the dispatch mode saw nothing, and only there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tb_sol_plugin.capture.loop.guard import Clock
from tb_sol_plugin.capture.loop.labels import Labels
from tb_sol_plugin.capture.operation_registry import OpRecord

torch = pytest.importorskip("torch", reason="runs models of PyTorch")
from tb_sol_plugin.capture.functional_patcher import FunctionalPatcher  # noqa: E402
from tb_sol_plugin.capture.hooks.instrument import OpaqueLayers  # noqa: E402
from tb_sol_plugin.capture.layer_hooks import LayerSOLHooks  # noqa: E402
from tb_sol_plugin.capture.loop.phases import PhaseStack  # noqa: E402
from tb_sol_plugin.capture.work.ledger import Ledger, LedgerMode  # noqa: E402

nn = torch.nn


class Library(torch.autograd.Function):
    """y = x W^T and its gradients by NumPy, of which torch sees nothing."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.save_for_backward(x, w)
        return torch.from_numpy(x.detach().numpy() @ w.detach().numpy().T)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        x, w = (t.detach().numpy() for t in ctx.saved_tensors)
        d = dy.contiguous().numpy()
        return torch.from_numpy(d @ w), torch.from_numpy(d.reshape(-1, d.shape[-1]).T @ x.reshape(-1, x.shape[-1]))


class TELinear(nn.Module):
    def __init__(self, k: int, n: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n, k))

    def forward(self, x: Any) -> Any:
        return Library.apply(x, self.weight), None


class Model(nn.Module):
    """One layer of the library between two of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.te, self.b = nn.Linear(8, 8, bias=False), TELinear(8, 16), nn.Linear(16, 4, bias=False)

    def forward(self, x: Any) -> Any:
        return self.b(self.te(self.a(x))[0])


def records(model: Any, run: Callable[[], object], *, supplement: bool = True) -> list[OpRecord]:
    labels, clock = Labels(), Clock()
    ledger, phases, hooks, patcher = Ledger(labels), PhaseStack(labels, clock), LayerSOLHooks(labels, clock), FunctionalPatcher(labels)
    phases.begin_step(0)
    hooks.attach(model)
    patcher.install()
    try:
        mode = LedgerMode(ledger, hooks.stack, phases, patcher.stack, clock)
        if supplement:
            with OpaqueLayers(ledger, hooks, patcher, phases, clock), mode:
                with phases.phase("forward"):
                    loss = run()
                with phases.phase("backward"):
                    if isinstance(loss, torch.Tensor) and loss.requires_grad:
                        loss.sum().backward()
        else:
            with mode:
                run().sum().backward()  # type: ignore[attr-defined]
    finally:
        patcher.uninstall()
        hooks.remove()
    assert not ledger.lost and not hooks.lost and hooks.recorder is None
    return ledger.records(hooks.layer_type)


def flop(rows: list[OpRecord]) -> dict[tuple[str, str, bool], int]:
    out: Counter[tuple[str, str, bool]] = Counter()
    for r in rows:
        out[r.layer_name, r.direction, r.estimated] += r.flops or 0
    return {key: value for key, value in out.items() if value}


X = torch.ones(2, 3, 8)
A, TE, B = 2 * 6 * 8 * 8, 2 * 6 * 8 * 16, 2 * 6 * 16 * 4


def test_the_work_of_a_library_is_added_once_and_marked() -> None:
    model = Model()
    # GIVEN that a dispatch mode alone misses the layer
    assert not any(name == "te" for name, *_ in flop(records(model, lambda: model(X), supplement=False)))
    # WHEN it is supplemented THEN forward, and twice that backward, are there, the rest is as counted
    rows = records(model, lambda: model(X))
    assert flop(rows) == {
        ("a", "fwd", False): A, ("a", "bwd", False): A, ("te", "fwd", True): TE, ("te", "bwd", True): 2 * TE,
        ("b", "fwd", False): B, ("b", "bwd", False): 2 * B,
    }  # fmt: skip
    # in the phases in which they ran
    assert {(r.phase, r.direction, r.source) for r in rows if r.layer_name == "te" and r.flops} == {
        ("forward", "fwd", "hook"), ("backward", "bwd", "hook")
    }  # fmt: skip
    assert {r.layer_type for r in rows if r.layer_name == "te"} == {"TELinear"}


def test_without_gradients_only_the_forward_is() -> None:
    model = Model()
    with torch.no_grad():
        assert flop(records(model, lambda: model(X))) == {("a", "fwd", False): A, ("te", "fwd", True): TE, ("b", "fwd", False): B}


def test_a_layer_that_torch_sees_is_not_added_to() -> None:
    # GIVEN a layer of that name, and one of somebody's own, whose products are torch's
    class Seen(TELinear):
        def forward(self, x: Any) -> Any:
            return nn.functional.linear(x, self.weight)

    class Linear(nn.Linear):
        def forward(self, x: Any) -> Any:
            return x @ self.weight.t()

    seen = type("TEColumnParallelLinear", (Seen,), {})(8, 16)
    model = nn.Sequential(seen, Linear(16, 4, bias=False))
    rows = records(model, lambda: model(X))
    assert not any(r.estimated for r in rows)
    assert flop(rows) == {("0", "fwd", False): TE, ("0", "bwd", False): TE, ("1", "fwd", False): B, ("1", "bwd", False): 2 * B}


def test_a_layer_of_which_only_the_backward_is_unseen() -> None:
    # GIVEN a forward by torch, a backward by a library
    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            ctx.save_for_backward(x, w)
            return x @ w.t()

        backward = Library.backward

    class TERowParallelLinear(TELinear):
        def forward(self, x: Any) -> Any:
            return Half.apply(x, self.weight)

    model = TERowParallelLinear(8, 16)
    x = X.clone().requires_grad_()
    assert flop(records(model, lambda: model(x))) == {
        ("TERowParallelLinear", "fwd", False): TE, ("TERowParallelLinear", "bwd", True): 2 * TE
    }  # fmt: skip


def test_layers_of_torch_are_not_read_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    # The closed form costs time, so it is made only where it may be needed
    import tb_sol_plugin.capture.hooks.instrument as hooks_ledger

    read: list[str] = []
    original = hooks_ledger.layer_forms
    monkeypatch.setattr(hooks_ledger, "layer_forms", lambda layer, *a: read.append(layer) or original(layer, *a))
    model = Model()
    records(model, lambda: model(X))
    assert read == ["TELinear"]
