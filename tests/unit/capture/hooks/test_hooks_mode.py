"""The fallback mode: layers and functions in closed form, each once; its forward equals what a dispatch mode counts."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tb_sol_plugin.capture.loop.guard import Clock
from tb_sol_plugin.capture.loop.labels import NONE, Labels
from tb_sol_plugin.format import BACKWARD, ESTIMATED, RECOMPUTE
from tests.support.toy import ATTENTION, FORWARD, LINEAR, fused_qkv, some_tokens

torch = pytest.importorskip("torch", reason="runs models of PyTorch")
from torch.utils._python_dispatch import _get_current_dispatch_mode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from tb_sol_plugin.capture.functional_patcher import PATCHED, FunctionalPatcher  # noqa: E402
from tb_sol_plugin.capture.hooks.instrument import HooksMode, with_sources  # noqa: E402
from tb_sol_plugin.capture.layer_hooks import LayerSOLHooks  # noqa: E402
from tb_sol_plugin.capture.loop.phases import PhaseStack  # noqa: E402
from tb_sol_plugin.capture.operation_registry import OpRecord, OpType  # noqa: E402
from tb_sol_plugin.capture.work.ledger import Ledger, LedgerMode  # noqa: E402

nn, F = torch.nn, torch.nn.functional


class Capture:
    """What one sampled step of a model left behind, by either mode."""

    def __init__(self, model: object, *, dispatch: bool = False, timed: bool = True) -> None:
        self.labels, self.clock = Labels(), Clock()
        self.ledger = Ledger(self.labels)
        self.phases = PhaseStack(self.labels, self.clock)
        self.hooks = LayerSOLHooks(self.labels, self.clock)
        self.patcher = FunctionalPatcher(self.labels)
        self.model, self.dispatch, self.timed = model, dispatch, timed

    @contextmanager
    def step(self) -> Iterator[Capture]:
        self.ledger.clear()
        self.hooks.attach(self.model)
        self.patcher.install()
        self.phases.begin_step(self.clock.now())
        mode = (
            LedgerMode(self.ledger, self.hooks.stack, self.phases, self.patcher.stack, self.clock)
            if self.dispatch
            else HooksMode(self.ledger, self.hooks, self.patcher, self.phases, self.clock, self.timed)
        )
        try:
            with mode:
                yield self
        finally:
            self.patcher.uninstall()
            self.hooks.remove()
            self.open = list(self.hooks.stack.open) + list(self.patcher.stack.open)
            self.hooks.end_step()

    @property
    def records(self) -> list[OpRecord]:
        return with_sources(self.ledger.records(self.hooks.layer_type))

    def flop(self, **where: object) -> int:
        """Sum of matrix FLOP of the records with these values; they are all known."""
        chosen = [r for r in self.records if all(getattr(r, name) == value for name, value in where.items())]
        assert all(r.flops is not None for r in chosen)
        return sum(r.flops or 0 for r in chosen)

    def count(self, *names: str, **where: object) -> Counter[Any]:
        """Calls by these fields."""
        out: Counter[Any] = Counter()
        for r in self.records:
            if all(getattr(r, name) == value for name, value in where.items()):
                out[tuple(getattr(r, name) for name in names) if len(names) > 1 else getattr(r, names[0])] += r.count
        return out

    def rows(self, *, flags: int) -> Counter[tuple[str, ...]]:
        """Calls by operator and all that a trace would say of their arguments and results."""
        out: Counter[tuple[str, ...]] = Counter()
        for key, (count, _) in self.ledger.rows.items():
            if key[5] == flags:
                s = self.ledger.signatures[key[0]]
                out[s.op, s.shapes, s.types, s.strides, s.concrete, s.out_shapes, s.out_types] += count
        return out


def captured(model: Any, run: Callable[[], object], *, dispatch: bool = False) -> Capture:
    capture = Capture(model, dispatch=dispatch)
    with capture.step():
        run()
    return capture


def train(model: Any, *inputs: Any) -> Callable[[], object]:
    return lambda: model(*inputs).square().mean().backward()


def no_losses(capture: Capture) -> bool:
    return not capture.ledger.lost and not capture.hooks.lost and capture.open == []


# --- Each once ---


def test_without_suppression_work_would_count_twice_and_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN every call of a replaced function counted, also inside another one, and every call of a layer
    calls: Counter[str] = Counter()

    def counting(title: str, original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[title] += 1
            return original(*args, **kwargs)

        return call

    for title in PATCHED:
        place, name = title.split(".")
        holder = F if place == "F" else torch
        monkeypatch.setattr(holder, name, counting(title, getattr(holder, name)))
    model = fused_qkv()
    layers = Counter(type(m).__name__ for m in model.modules() if isinstance(m, (nn.Linear, nn.LayerNorm, nn.Embedding)))
    model(some_tokens())
    # THEN these are the numbers that must not be added up: Linear twice, LayerNorm and Embedding three times
    assert layers == {"Linear": 17, "LayerNorm": 9, "Embedding": 1}
    assert calls == {
        "F.linear": 17, "F.layer_norm": 9, "torch.layer_norm": 9, "torch.matmul": 8, "torch.softmax": 4, "F.embedding": 1, "torch.embedding": 1,
    }  # fmt: skip


def test_with_it_each_counts_once() -> None:
    model = fused_qkv()
    with torch.no_grad():
        capture = captured(model, lambda: model(some_tokens()))
    assert capture.count("layer_type", "func_name", "source") == {
        ("Linear", "", "hook"): 17, ("LayerNorm", "", "hook"): 9, ("Embedding", "", "hook"): 1,
        ("", "torch.matmul", "patch"): 8, ("", "torch.softmax", "patch"): 4,
    }  # fmt: skip
    assert capture.flop() == FORWARD == 250_871_808
    assert capture.flop(layer_type="Linear") == LINEAR and capture.flop(func_name="torch.matmul") == ATTENTION
    assert no_losses(capture)


def test_forward_and_backward_are_those_of_a_dispatch_mode() -> None:
    # GIVEN the same step by both modes
    model = fused_qkv()
    hooks = captured(model, train(model, some_tokens()))
    dispatch = captured(model, train(model, some_tokens()), dispatch=True)
    # THEN forward rows are the same calls, to the letter of sizes, types and strides
    seen, estimated = dispatch.rows(flags=0), hooks.rows(flags=0)
    assert estimated and not estimated - seen
    ops = {row[0] for row in estimated}
    assert ops == {"aten::addmm", "aten::mm", "aten::bmm", "aten::native_layer_norm", "aten::_softmax", "aten::embedding"}
    assert estimated == Counter({row: count for row, count in seen.items() if row[0] in ops})
    # AND their FLOP and bytes, by kind
    kinds = (OpType.MATMUL, OpType.LAYERNORM, OpType.EMBEDDING, OpType.SOFTMAX)
    for direction in ("fwd", "bwd"):
        for kind in kinds:
            a = [r for r in hooks.records if r.op_type is kind and r.direction == direction]
            b = [r for r in dispatch.records if r.op_type is kind and r.direction == direction]
            assert sum(r.flops for r in a) == sum(r.flops for r in b), (direction, kind)  # type: ignore[misc]
            assert sum(r.count for r in a) == sum(r.count for r in b)
            assert sum(r.bytes for r in a) == sum(r.bytes for r in b)  # type: ignore[misc]
    # AND backward is marked, and twice the forward
    assert hooks.flop(direction="fwd") == FORWARD and hooks.flop(direction="bwd") == 2 * FORWARD
    assert all(r.estimated == (r.direction == "bwd") for r in hooks.records)


def test_the_numbers_are_those_of_torchs_own_counter() -> None:
    model = fused_qkv()
    with FlopCounterMode(display=False) as theirs:
        train(model, some_tokens())()
    assert captured(model, train(model, some_tokens())).flop() == theirs.get_total_flops() == 752_615_424


def test_a_second_step_counts_the_same() -> None:
    model = fused_qkv()
    capture = Capture(model)
    totals, sizes = [], []
    for _ in range(3):
        with capture.step():
            train(model, some_tokens())()
        totals.append((capture.flop(), sum(r.count for r in capture.records)))
        sizes.append((len(capture.ledger.signatures), len(capture.labels.known)))
    assert totals == [totals[0]] * 3 and sizes == [sizes[0]] * 3


def test_outputs_and_gradients_are_bitwise_the_same() -> None:
    def run(model: Any) -> list[Any]:
        out = model(some_tokens())
        out.square().mean().backward()
        return [out.detach(), *(p.grad for p in model.parameters())]

    plain, model, watched = run(fused_qkv()), fused_qkv(), []
    captured(model, lambda: watched.extend(run(model)))
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))


def test_no_dispatch_mode_is_entered() -> None:
    seen = []
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda *_: seen.append(_get_current_dispatch_mode()))
    captured(layer, lambda: layer(torch.ones(1, 2)))
    assert seen == [None]


# --- Suppression ---


def test_a_function_that_its_layer_does_not_cover_is_counted() -> None:
    # GIVEN a Linear that also makes a softmax and a normalization, and a LayerNorm that multiplies
    class Both(nn.Linear):
        def forward(self, x: Any) -> Any:
            return F.layer_norm(F.softmax(super().forward(x), dim=-1), [4])

    class Scaled(nn.LayerNorm):
        def forward(self, x: Any) -> Any:
            return torch.matmul(super().forward(x), x.t())

    model = nn.Sequential(Both(4, 4), Scaled(4))
    capture = captured(model, lambda: model(torch.ones(3, 4)))
    assert capture.count("name", "func_name", direction="fwd") == {
        ("aten::addmm", ""): 1, ("aten::_softmax", "F.softmax"): 1, ("aten::native_layer_norm", "F.layer_norm"): 1,
        ("aten::native_layer_norm", ""): 1, ("aten::mm", "torch.matmul"): 1,
    }  # fmt: skip
    # and inside the layers they belong to these
    assert capture.count("layer_type", op_type=OpType.SOFTMAX, direction="fwd") == {"Linear": 1}


def test_an_adapter_counts_by_its_inner_layers() -> None:
    # GIVEN a Linear that holds two others and adds what they make: only those are layers at work
    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base, self.lora = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False))

        def forward(self, x: Any) -> Any:
            return self.base(x) + self.lora(x)

    model = Linear()
    with torch.no_grad():
        capture = captured(model, lambda: model(torch.ones(5, 8)))
    assert capture.flop() == 2 * 5 * (8 * 8 + 8 * 2 + 2 * 8)
    assert capture.count("layer_name") == {"base": 1, "lora.0": 1, "lora.1": 1}


def test_functions_outside_of_layers_are_counted_where_they_are() -> None:
    # GIVEN nn.MultiheadAttention, whose projections are functions on weights and no calls of layers
    model = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.ones(2, 4, 8)
    capture = captured(model, lambda: model(x, x, x, need_weights=True))
    # THEN the in- and out-projection are counted under the module
    linear = 2 * (2 * 4) * 8 * (3 * 8) + 2 * (2 * 4) * 8 * 8
    assert capture.flop(func_name="F.linear", direction="fwd") == linear
    assert {r.module_context for r in capture.records} == {"MultiheadAttention"}


def test_a_functional_model_without_modules() -> None:
    w = torch.ones(4, 4, requires_grad=True)
    capture = captured(None, lambda: F.linear(torch.ones(2, 4), w).sum().backward())
    assert capture.count("name", "direction", "module_context") == {("aten::mm", "fwd", ""): 1, ("aten::mm", "bwd", ""): 1}


def test_shared_layers_count_per_use() -> None:
    layer = nn.Linear(4, 4, bias=False)
    model = nn.Sequential(layer, nn.Tanh(), layer, nn.Tanh(), layer)
    with torch.no_grad():
        capture = captured(model, lambda: model(torch.ones(2, 4)))
    assert capture.flop() == 3 * 2 * 2 * 4 * 4
    assert capture.count("layer_name") == {"0": 3}


# --- Backward ---


def linear_passes(*, input_grad: bool, weight_grad: bool = True, grad: bool = True, backward: bool = True) -> Capture:
    layer = nn.Linear(8, 16, bias=False)
    layer.requires_grad_(weight_grad)
    x = torch.ones(4, 8, requires_grad=input_grad)

    def run() -> None:
        with torch.set_grad_enabled(grad):
            y = layer(x).sum()
        if backward:
            y.backward()

    return captured(layer, run)


ONE = 2 * 4 * 8 * 16


def test_backward_of_a_linear_is_twice_its_forward() -> None:
    capture = linear_passes(input_grad=True)
    assert (capture.flop(direction="fwd"), capture.flop(direction="bwd")) == (ONE, 2 * ONE)
    # dX = dY W and dW = dY^T X
    assert sorted(r.input_shapes for r in capture.records if r.direction == "bwd") == [[(4, 16), (16, 8)], [(16, 4), (4, 8)]]


def test_and_once_its_forward_when_the_input_needs_no_gradient() -> None:
    capture = linear_passes(input_grad=False)
    assert capture.flop(direction="bwd") == ONE
    assert [r.input_shapes for r in capture.records if r.direction == "bwd"] == [[(16, 4), (4, 8)]]
    # also when only the weight is frozen
    assert linear_passes(input_grad=True, weight_grad=False).flop(direction="bwd") == ONE


def test_there_is_none_without_gradients_or_without_a_backward_pass() -> None:
    assert linear_passes(input_grad=True, grad=False, backward=False).flop() == ONE
    assert linear_passes(input_grad=True, backward=False).flop() == ONE


def test_backward_counts_in_the_phase_it_runs_in_and_remembers_the_other() -> None:
    layer = nn.Linear(8, 16)
    capture = Capture(layer)
    with capture.step():
        with capture.phases.phase("forward"):
            loss = layer(torch.ones(4, 8)).sum()
        with capture.phases.phase("backward"):
            loss.backward()
    assert capture.count("phase", "forward_phase", "direction") == {("forward", "", "fwd"): 1, ("backward", "forward", "bwd"): 1}


def test_gradient_accumulation_counts_each_pass() -> None:
    layer = nn.Linear(8, 16, bias=False)

    def run() -> None:
        for _ in range(3):
            layer(torch.ones(4, 8)).sum().backward()

    assert captured(layer, run).flop() == 3 * 2 * ONE


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_layer_counts_forward_twice_and_backward_once(reentrant: bool) -> None:
    layer = nn.Linear(8, 16, bias=False)
    x = torch.ones(4, 8, requires_grad=True)
    model = nn.Sequential(layer, nn.Tanh())
    capture = captured(model, lambda: checkpoint(model, x, use_reentrant=reentrant).sum().backward())
    assert capture.flop(direction="fwd", is_recompute=False) == ONE
    assert capture.flop(direction="fwd", is_recompute=True) == ONE
    assert capture.flop(direction="bwd") == 2 * ONE
    assert no_losses(capture)
    assert {key[5] for key in capture.ledger.rows} == {0, RECOMPUTE, BACKWARD | ESTIMATED}


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_and_gradient_accumulation(reentrant: bool) -> None:
    # GIVEN two passes: what the second backward counts is its own forward's, and nothing of the first recomputation
    model = nn.Sequential(nn.Linear(8, 16, bias=False), nn.Tanh())
    x = torch.ones(4, 8, requires_grad=True)

    def run() -> None:
        for _ in range(2):
            checkpoint(model, x, use_reentrant=reentrant).sum().backward()

    capture = captured(model, run)
    assert (capture.flop(direction="fwd"), capture.flop(direction="bwd")) == (2 * 2 * ONE, 2 * 2 * ONE)


def test_a_recomputation_that_stops_before_a_layer_works_counts_nothing_of_it() -> None:
    # GIVEN a checkpoint around one layer alone: its backward needs what goes in, not what comes out
    layer = nn.Linear(8, 16, bias=False)
    x = torch.ones(4, 8, requires_grad=True)
    both = [
        captured(layer, lambda: checkpoint(layer, x, use_reentrant=False).sum().backward(), dispatch=d) for d in (False, True)
    ]  # fmt: skip
    assert [one.flop(direction="fwd", op_type=OpType.MATMUL) for one in both] == [ONE, ONE]
    assert no_losses(both[0])


def test_a_forward_without_gradients_before_a_checkpointed_one_adds_no_backward() -> None:
    # GIVEN an evaluation of the same layer first: its run without gradients must not stand for a checkpoint's first run
    layer = nn.Linear(8, 16, bias=False)
    x = torch.ones(4, 8, requires_grad=True)

    def run() -> None:
        with torch.no_grad():
            layer(x)
        layer(x).sum().backward()

    assert captured(layer, run).flop() == 4 * ONE


# --- Fused layers of other libraries, by name ---


def transformer_engine(name: str, base: type = nn.Module, **methods: Any) -> Any:
    return type(name, (base,), methods)


def test_attention_of_transformer_engine_is_counted_fused() -> None:
    # GIVEN a layer of that name, which works with products and a softmax as its reference path does; [length, batch, heads, width]
    def forward(self: Any, query_layer: Any, key_layer: Any, value_layer: Any, **_: Any) -> Any:
        q, k, v = (t.permute(1, 2, 0, 3) for t in (query_layer, key_layer, value_layer))
        a = torch.bmm(torch.softmax(torch.bmm(q.flatten(0, 1), k.flatten(0, 1).mT), -1), v.flatten(0, 1))
        return a.view(*q.shape).permute(2, 0, 1, 3).flatten(2)

    layer = transformer_engine("TEDotProductAttention", forward=forward)()
    s, b, h, d = 16, 2, 4, 8
    q, k, v = (torch.randn(s, b, h, d, requires_grad=True) for _ in range(3))
    capture = captured(layer, lambda: layer(q, k, value_layer=v).sum().backward())
    # THEN its inner products count once, as attention over every pair: two products; backward makes five
    pairs = 2 * b * h * s * s * d
    assert capture.flop(direction="fwd") == 2 * pairs and capture.flop(direction="bwd") == 5 * pairs
    assert capture.count("op_type", "layer_type") == {(OpType.ATTENTION, "TEDotProductAttention"): 2}
    # and half of it with a causal mask
    layer.attn_mask_type = "causal"
    with torch.no_grad():
        assert captured(layer, lambda: layer(q, k, v)).flop() == pairs


def test_packed_sequences_are_not_guessed() -> None:
    layer = transformer_engine("DotProductAttention", forward=lambda self, q, k, v, **_: q)()
    layer.qkv_format = "thd"
    x = torch.ones(6, 2, 4)
    capture = captured(layer, lambda: layer(x, x, x))
    assert not capture.records
    assert capture.ledger.lost == {"a call of DotProductAttention could not be read: attention over thd, whose lengths are not in its sizes": 1}


def test_fused_layers_are_two_records_of_one_layer() -> None:
    # GIVEN normalization and product in one layer, whose result comes with a bias that is not added yet, as Megatron has it
    class LayerNormLinear(nn.Linear):
        normalization = "RMSNorm"

        def forward(self, x: Any) -> Any:
            return F.linear(F.layer_norm(x, [8]), self.weight), self.bias

    layer = LayerNormLinear(8, 16)
    x = torch.ones(3, 4, 8)
    with torch.no_grad():
        capture = captured(layer, lambda: layer(x))
    assert capture.count("name", "layer_type") == {
        ("aten::_fused_rms_norm", "TELayerNormLinear"): 1, ("aten::mm", "TELayerNormLinear"): 1
    }  # fmt: skip
    assert capture.flop() == 2 * 12 * 8 * 16
    (summed,) = capture.hooks.records(capture.records)
    assert (summed.layer_type, summed.op_type, summed.flops, summed.count, summed.source) == ("TELayerNormLinear", OpType.MATMUL, 2 * 12 * 8 * 16, 2, "hook")


def test_a_fused_gated_mlp() -> None:
    class LayerNormMLP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1_weight, self.fc2_weight = nn.Parameter(torch.ones(2 * 32, 8)), nn.Parameter(torch.ones(8, 32))

        def forward(self, x: Any) -> Any:
            a, b = F.linear(F.layer_norm(x, [8]), self.fc1_weight).chunk(2, -1)
            return F.linear(F.silu(a) * b, self.fc2_weight)

    layer = LayerNormMLP()
    capture = captured(layer, train(layer, torch.ones(3, 8)))
    one = 2 * 3 * 8 * 64 + 2 * 3 * 32 * 8
    assert capture.flop(direction="fwd") == one and capture.flop(direction="bwd") == 2 * one
    assert no_losses(capture)


def test_a_column_parallel_layer_over_parts_of_a_sequence() -> None:
    # GIVEN a layer whose input is a quarter of the rows that it gathers and multiplies
    class ColumnParallelLinear(nn.Linear):
        def forward(self, x: Any) -> Any:
            return F.linear(x.repeat(4, 1), self.weight, self.bias), None

    layer = ColumnParallelLinear(8, 16)
    with torch.no_grad():
        assert captured(layer, lambda: layer(torch.ones(4, 8))).flop() == 2 * 16 * 8 * 16


def test_a_quantized_layer_counts_by_what_goes_in_and_out() -> None:
    # GIVEN weights that are packed beyond recognition
    class Linear4bit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(64, 1, dtype=torch.uint8), requires_grad=False)

        def forward(self, x: Any) -> Any:
            return x.new_zeros(*x.shape[:-1], 16)

    layer = Linear4bit()
    assert captured(layer, lambda: layer(torch.ones(4, 8))).flop() == 2 * 4 * 8 * 16


# --- Functions against torch's own counter ---

A, B = (lambda *s: torch.ones(s)), (lambda *s: torch.ones(s))
PRODUCTS: dict[str, Callable[[], object]] = {
    "mm": lambda: torch.mm(A(3, 4), B(4, 5)),
    "mm by name": lambda: torch.mm(input=A(3, 4), mat2=B(4, 5)),
    "bmm": lambda: torch.bmm(A(2, 3, 4), B(2, 4, 5)),
    "addmm": lambda: torch.addmm(A(5), A(3, 4), B(4, 5), beta=2),
    "addmm by name": lambda: torch.addmm(A(5), mat1=A(3, 4), mat2=B(4, 5)),
    "baddbmm": lambda: torch.baddbmm(A(1, 3, 5), A(2, 3, 4), B(2, 4, 5)),
    "baddbmm by name": lambda: torch.baddbmm(A(1, 3, 5), batch1=A(2, 3, 4), batch2=B(2, 4, 5)),
    "matmul 2 2": lambda: torch.matmul(A(3, 4), B(4, 5)),
    "matmul 3 2": lambda: torch.matmul(A(2, 3, 4), B(4, 5)),
    "matmul 2 3": lambda: torch.matmul(A(3, 4), B(2, 4, 5)),
    "matmul 4 4": lambda: torch.matmul(A(2, 6, 3, 4), B(2, 6, 4, 5)),
    "matmul broadcast": lambda: torch.matmul(A(2, 1, 3, 4), B(6, 4, 5)),
    "matmul by name": lambda: torch.matmul(A(2, 3, 4), other=B(2, 4, 5)),
    "linear": lambda: F.linear(A(2, 3, 4), B(5, 4), A(5)),
    "linear without bias": lambda: F.linear(A(3, 4), weight=B(5, 4)),
    "einsum product": lambda: torch.einsum("ij,jk->ik", A(3, 4), B(4, 5)),
    "einsum batched": lambda: torch.einsum("bhqd, bhkd -> bhqk", A(2, 3, 4, 5), B(2, 3, 6, 5)),
    "einsum without result": lambda: torch.einsum("ij,jk", A(3, 4), B(4, 5)),
    "einsum of a list": lambda: torch.einsum("bij,bjk->bik", [A(2, 3, 4), B(2, 4, 5)]),
    "einsum turned": lambda: torch.einsum("bsd,edf->besf", A(2, 3, 4), B(6, 4, 5)),
}


@pytest.mark.parametrize("call", PRODUCTS)
def test_products_have_the_flop_that_torch_counts(call: str) -> None:
    with FlopCounterMode(display=False) as theirs:
        PRODUCTS[call]()
    capture = captured(None, PRODUCTS[call])
    assert capture.flop() == theirs.get_total_flops() > 0
    assert no_losses(capture)


@pytest.mark.parametrize(
    ("call", "flop"),
    [
        (lambda: torch.matmul(A(4), B(4)), 2 * 4),
        (lambda: torch.matmul(A(3, 4), B(4)), 2 * 3 * 4),
        (lambda: torch.matmul(A(4), B(2, 4, 5)), 2 * 2 * 4 * 5),
        (lambda: F.linear(A(4), B(5, 4)), 2 * 4 * 5),
        (lambda: torch.mm(A(0, 4), B(4, 5)), 0),
    ],
)
def test_products_of_vectors_and_of_nothing(call: Callable[[], object], flop: int) -> None:
    assert captured(None, call).flop() == flop


def test_backward_of_products_has_one_product_per_gradient() -> None:
    a, b = torch.ones(2, 3, 4, requires_grad=True), torch.ones(2, 4, 5)
    one = 2 * 2 * 3 * 4 * 5
    assert captured(None, lambda: torch.matmul(a, b).sum().backward()).flop() == 2 * one
    b.requires_grad_(True)
    assert captured(None, lambda: torch.bmm(a, b).sum().backward()).flop() == 3 * one


def published(name: str) -> Any:
    """Two layers of a published architecture, with attention by products."""
    transformers = pytest.importorskip("transformers", reason="builds models of published architectures")
    torch.manual_seed(0)
    if name == "llama":
        config = transformers.LlamaConfig(
            vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2
        )  # fmt: skip
    elif name == "gpt2":
        config = transformers.GPT2Config(vocab_size=128, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
    else:
        config = transformers.BertConfig(vocab_size=128, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    config._attn_implementation = "eager"
    kind = {"llama": "LlamaForCausalLM", "gpt2": "GPT2LMHeadModel", "bert": "BertForMaskedLM"}[name]
    return getattr(transformers, kind)(config).eval()


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert"])
def test_published_models_count_the_same_in_every_module(name: str) -> None:
    # GIVEN grouped keys and RMSNorm, Conv1D in place of Linear, an encoder with tied weights
    model, tokens = published(name), torch.arange(32).view(2, 16)
    both = [captured(model, lambda: model(input_ids=tokens, labels=tokens).loss.backward(), dispatch=d) for d in (False, True)]
    # THEN matrix FLOP are equal for each module and direction
    sums = []
    for capture in both:
        flop: Counter[tuple[str, str]] = Counter()
        for r in capture.records:
            flop[r.module_context, r.direction] += r.flops or 0
        sums.append({key: value for key, value in flop.items() if value})
        assert no_losses(capture)
    assert sums[0] == sums[1] and len(sums[0]) > 20


# --- Odd input ---

ODD: dict[str, Callable[[], object]] = {
    "meta": lambda: torch.mm(torch.ones(2, 2, device="meta"), torch.ones(2, 2, device="meta")),
    "sparse": lambda: torch.mm(torch.eye(2).to_sparse(), torch.ones(2, 2)),
    "einsum of three": lambda: torch.einsum("ij,jk,kl->il", A(2, 2), A(2, 2), A(2, 2)),
    "einsum with dots": lambda: torch.einsum("...ij,...jk->...ik", A(2, 2), A(2, 2)),
    "einsum of a diagonal": lambda: torch.einsum("ii,ij->j", A(2, 2), A(2, 2)),
}


@pytest.mark.parametrize("call", ODD)
def test_what_sizes_do_not_tell_is_counted_as_lost(call: str) -> None:
    capture = captured(None, ODD[call])
    assert not capture.records and sum(capture.ledger.lost.values()) == 1
    assert next(iter(capture.ledger.lost)).startswith("a call of torch.")


def test_layers_with_odd_arguments_do_not_fail() -> None:
    class Linear(nn.Module):
        def forward(self, x: Any) -> Any:
            return x

    class Embedding(nn.Module):
        def forward(self, **named: Any) -> Any:
            return {"out": named["i"]}

    model = nn.ModuleList([Linear(), Embedding()])
    capture = Capture(model)
    with capture.step():
        for odd in ("text", None, [1], torch.tensor(3.0), torch.ones(0), torch.ones(2, 2, device="meta")):
            model[0](odd)
        model[1](i=torch.ones(2))
    # THEN those without any answer are passed over, all others counted or said to be unreadable
    assert sum(capture.ledger.lost.values()) + sum(r.count for r in capture.records) == 6
    assert capture.flop() == 0


def test_an_exception_in_a_layer_counts_nothing_and_leaves_nothing() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(3, 3))
    capture = Capture(model)
    with capture.step(), pytest.raises(RuntimeError):
        model(torch.ones(1, 2))
    assert capture.count("layer_name") == {"0": 1} and capture.open == [] and no_losses(capture)


def test_dtypes_and_autocast() -> None:
    layer = nn.Linear(8, 8)

    def run() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
            layer(torch.ones(4, 8))

    capture = captured(layer, run)
    assert [(r.dtype.value, r.flops) for r in capture.records] == [("bf16", 2 * 4 * 8 * 8)]


def test_times_are_those_of_calls_where_the_host_computes() -> None:
    layer = nn.Linear(256, 256)
    capture = captured(layer, train(layer, torch.ones(64, 256)))
    times = {(r.direction, r.measured_time_us is not None) for r in capture.records}
    assert times == {("fwd", True), ("bwd", False)}
    # and no times where a device computes
    capture = Capture(layer, timed=False)
    with capture.step():
        layer(torch.ones(64, 256))
    assert [r.measured_time_us for r in capture.records] == [None]


def test_two_threads_at_once() -> None:
    # GIVEN two models that run at once on two threads, a hundred times
    models = {"a": nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), "b": nn.Sequential(nn.Sequential(nn.Linear(4, 8)))}
    capture = Capture(models)
    meet = threading.Barrier(2, timeout=120)

    def run(model: Any) -> None:
        meet.wait()
        for _ in range(100):
            with torch.no_grad():
                torch.softmax(model(torch.ones(2, 4)), -1)

    with capture.step():
        threads = [threading.Thread(target=run, args=(one,)) for one in models.values()]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    # THEN each layer is under its own model, and functions outside of models are under none
    assert capture.count("layer_name") == {"a.0": 100, "a.1": 100, "b.0.0": 100, "": 200}
    assert {capture.labels.path(key[1])[:1] for key in capture.ledger.rows if key[1] != NONE} == {("a",), ("b",)}
    assert no_losses(capture)


def test_a_second_attach_and_install_change_no_count() -> None:
    model = fused_qkv()
    capture = Capture(model)
    with capture.step():
        capture.hooks.attach(model)
        capture.patcher.install()
        with torch.no_grad():
            model(some_tokens())
    assert capture.flop() == FORWARD
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
