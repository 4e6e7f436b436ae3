"""Replaced functions of torch: what they are called, that they behave as before, and that the very objects come back."""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tb_sol_plugin.capture.loop.labels import NONE, Labels

torch = pytest.importorskip("torch", reason="replaces functions of PyTorch")
from torch.overrides import TorchFunctionMode  # noqa: E402

from tb_sol_plugin.capture.functional_patcher import PATCHED, FunctionalPatcher, captured_functional_ops  # noqa: E402
from tb_sol_plugin.capture.operation_registry import DataType, OpRecord, OpType  # noqa: E402

nn, F = torch.nn, torch.nn.functional
UNTOUCHED = ("gelu", "silu", "relu", "sigmoid", "tanh", "dropout", "scaled_dot_product_attention", "conv2d")


def place(title: str) -> tuple[Any, str]:
    holder, name = title.split(".")
    return (F if holder == "F" else torch), name


def now() -> dict[str, Any]:
    """The functions as they stand."""
    return {title: getattr(*place(title)) for title in PATCHED}


ORIGINAL = now()


@pytest.fixture
def patcher() -> Iterator[FunctionalPatcher]:
    made = FunctionalPatcher(Labels())
    yield made
    made.uninstall()
    assert same(ORIGINAL)


def same(functions: dict[str, Any]) -> bool:
    return all(getattr(*place(title)) is function for title, function in functions.items())


def name_inside(patcher: FunctionalPatcher, call: Callable[[Any], object]) -> list[str]:
    """Names of the open functions at the time that a tensor of a class of its own meets torch."""
    seen: list[str] = []

    class Spy(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.extend(patcher.labels.known[label].name for label in patcher.stack.open)
            return func(*args, **(kwargs or {}))

    with Spy():
        call(torch.ones(2, 2))
    return seen


# --- On and off ---


def test_exactly_the_listed_functions_are_replaced(patcher: FunctionalPatcher) -> None:
    assert sorted(PATCHED) == sorted(
        [f"torch.{n}" for n in ("matmul", "bmm", "mm", "addmm", "baddbmm", "einsum", "softmax", "layer_norm", "embedding")]
        + [f"F.{n}" for n in ("linear", "embedding", "layer_norm", "softmax", "log_softmax")]
    )
    before = {name: getattr(F, name) for name in UNTOUCHED}
    patcher.install()
    assert all(getattr(*place(title)) is not function for title, function in ORIGINAL.items())
    assert all(getattr(F, name) is function for name, function in before.items())
    patcher.uninstall()
    assert same(ORIGINAL)


def test_install_twice_and_uninstall_once(patcher: FunctionalPatcher) -> None:
    patcher.install()
    mine = now()
    patcher.install()
    assert same(mine)
    patcher.uninstall()
    assert same(ORIGINAL)
    patcher.uninstall()
    assert same(ORIGINAL)


def test_step_after_step_the_same_replacements_come_and_go(patcher: FunctionalPatcher) -> None:
    patcher.install()
    mine = now()
    patcher.uninstall()
    patcher.install()
    assert same(mine)


@pytest.mark.parametrize("first_out", [0, 1])
def test_two_patchers_leave_in_any_order(first_out: int) -> None:
    # GIVEN two trackers' patchers, one over the other
    both = [FunctionalPatcher(Labels()), FunctionalPatcher(Labels())]
    for one in both:
        one.install()
    # WHEN one of them leaves
    both[first_out].uninstall()
    # THEN the other one still labels, alone
    stays = both[1 - first_out]
    seen: list[tuple[int, int]] = []

    class Spy(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append((len(stays.stack.open), len(both[first_out].stack.open)))
            return func(*args, **(kwargs or {}))

    x = torch.ones(1, 1)
    with Spy():
        torch.mm(x, x)
    # AND with it the originals are back
    stays.uninstall()
    assert same(ORIGINAL)
    assert seen == [(1, 0)]


def test_what_another_library_put_over_ours_stays_theirs(patcher: FunctionalPatcher) -> None:
    # GIVEN a library that wraps torch.matmul while ours is in place, as careful libraries do
    patcher.install()
    ours, calls = torch.matmul, []

    @functools.wraps(ours)
    def theirs(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return ours(*args, **kwargs)

    torch.matmul = theirs
    try:
        # WHEN we leave THEN theirs is in place, works, and ours below it does nothing any more
        patcher.uninstall()
        assert torch.matmul is theirs and patcher.left == {"torch.matmul": 1}
        assert same({title: function for title, function in ORIGINAL.items() if title != "torch.matmul"})
        x = torch.ones(2, 2)
        assert torch.equal(torch.matmul(x, x), x @ x) and calls == [1]
        # and a later sampled step goes around theirs, without the two calling each other for ever
        patcher.install()
        assert torch.equal(torch.matmul(x, x), x @ x) and calls == [1, 1]
        patcher.uninstall()
        assert torch.matmul is theirs
        # and when they leave, and put back what they found, a later step puts back the original
        torch.matmul = ours
        assert torch.equal(torch.matmul(x, x), x @ x)
        patcher.install()
        patcher.uninstall()
        assert torch.matmul is ORIGINAL["torch.matmul"]
    finally:
        torch.matmul = ORIGINAL["torch.matmul"]


# --- Labels ---

W = torch.ones(2, 2)
CALLS: dict[str, Callable[[Any], object]] = {
    "torch.matmul": lambda x: torch.matmul(x, W),
    "torch.mm": lambda x: torch.mm(x, W),
    "torch.bmm": lambda x: torch.bmm(x[None], W[None]),
    "torch.addmm": lambda x: torch.addmm(W, x, W),
    "torch.baddbmm": lambda x: torch.baddbmm(W[None], x[None], W[None]),
    "torch.einsum": lambda x: torch.einsum("ij,jk->ik", x, W),
    "torch.softmax": lambda x: torch.softmax(x, -1),
    "torch.layer_norm": lambda x: torch.layer_norm(x, [2]),
    "torch.embedding": lambda x: torch.embedding(x, torch.tensor([0])),
    "F.linear": lambda x: F.linear(x, W),
    "F.embedding": lambda x: F.embedding(torch.tensor([0]), x),
    "F.layer_norm": lambda x: F.layer_norm(x, [2]),
    "F.softmax": lambda x: F.softmax(x, dim=-1),
    "F.log_softmax": lambda x: F.log_softmax(x, -1),
}


@pytest.mark.parametrize("title", CALLS)
def test_work_inside_carries_the_name_of_the_outermost_function(patcher: FunctionalPatcher, title: str) -> None:
    x = torch.ones(2, 2)
    plain = CALLS[title](x)
    patcher.install()
    # F.embedding calls torch.embedding, F.layer_norm calls torch.layer_norm: one name each
    assert {*name_inside(patcher, CALLS[title])} == {title}
    assert patcher.stack.open == []
    # AND the result is the same, bit for bit
    assert torch.equal(CALLS[title](x), plain)


def test_a_function_label_is_one_however_it_is_reached(patcher: FunctionalPatcher) -> None:
    patcher.install()
    F.layer_norm(W, [2])
    F.layer_norm(W, [2])
    label = patcher.labels.id_of("function", NONE, "F.layer_norm")
    assert patcher.labels.known[label].parent == NONE and len(patcher.labels.known) == len(PATCHED)


def test_layers_reach_replaced_functions_but_names_bound_before_do_not(patcher: FunctionalPatcher) -> None:
    from torch.nn.functional import linear

    layer = nn.Linear(2, 2)
    patcher.install()
    assert {*name_inside(patcher, layer)} == {"F.linear"}
    assert not name_inside(patcher, lambda x: linear(x, W)) and not name_inside(patcher, lambda x: x @ W)


def test_an_exception_closes_the_label(patcher: FunctionalPatcher) -> None:
    patcher.install()
    for call in (lambda: F.linear(W, torch.ones(3, 5)), lambda: F.layer_norm(W), lambda: torch.mm(), lambda: F.softmax(W, dim=9)):
        with pytest.raises((RuntimeError, TypeError, IndexError)):
            call()
        assert patcher.stack.open == []


def test_errors_read_as_before(patcher: FunctionalPatcher) -> None:
    def message(call: Callable[[], object]) -> str:
        with pytest.raises((RuntimeError, TypeError)) as problem:
            call()
        return str(problem.value)

    bad = [lambda: F.linear(W, torch.ones(3, 5)), lambda: torch.mm("a", W), lambda: F.layer_norm(W, 3, 4, 5, 6, 7, 8), lambda: F.softmax()]
    before = [message(call) for call in bad]
    patcher.install()
    assert [message(call) for call in bad] == before


def test_threads_have_their_own_labels(patcher: FunctionalPatcher) -> None:
    patcher.install()
    depths: list[int] = []

    class Spy(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            thread = threading.Thread(target=lambda: depths.append(len(patcher.stack.open)))
            thread.start()
            thread.join()
            depths.append(len(patcher.stack.open))
            return func(*args, **(kwargs or {}))

    with Spy():
        torch.mm(W, W)
    assert depths == [0, 1]


def test_the_end_of_a_step_empties_the_stack(patcher: FunctionalPatcher) -> None:
    patcher.stack.open.append(0)
    patcher.end_step()
    assert patcher.stack.open == []


# --- As before in every other respect ---


@pytest.mark.parametrize("title", PATCHED)
def test_name_docs_and_signature_stay(patcher: FunctionalPatcher, title: str) -> None:
    patcher.install()
    ours, original = getattr(*place(title)), ORIGINAL[title]
    assert (ours.__name__, ours.__doc__, ours.__module__) == (original.__name__, original.__doc__, original.__module__)

    def signature(function: Any) -> Any:
        try:
            return inspect.signature(function)
        except ValueError:
            return "none"

    assert signature(ours) == signature(original)


def test_gradients_are_the_same(patcher: FunctionalPatcher) -> None:
    def run() -> list[Any]:
        torch.manual_seed(0)
        w, t = torch.randn(4, 4, requires_grad=True), torch.randn(7, 4, requires_grad=True)
        x = F.layer_norm(F.linear(F.embedding(torch.tensor([1, 3]), t), w), [4])
        y = torch.einsum("ij,kj->ik", F.softmax(x, dim=-1), w).log_softmax(-1) + F.log_softmax(torch.matmul(x, w), dim=-1)
        y.sum().backward()
        return [y.detach(), w.grad, t.grad]

    plain = run()
    patcher.install()
    assert all(torch.equal(a, b) for a, b in zip(plain, run(), strict=True))


class Dispatched(torch.Tensor):
    """A tensor class with a table of its own functions, as quantized tensors have."""

    table = {ORIGINAL[title]: title for title in PATCHED}
    log: list[tuple[str, int, tuple[str, ...]]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in cls.table:
            cls.log.append((cls.table[func], len(args), tuple(kwargs or ())))
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize("title", CALLS)
def test_tensor_classes_are_handed_the_original_functions(patcher: FunctionalPatcher, title: str) -> None:
    # GIVEN what such a class sees without us
    x = torch.ones(2, 2).as_subclass(Dispatched)
    Dispatched.log.clear()
    plain = CALLS[title](x)
    before = Dispatched.log.copy()
    # WHEN the functions are replaced THEN it sees the same objects with the same arguments, by position and by name
    patcher.install()
    Dispatched.log.clear()
    result = CALLS[title](x)
    assert Dispatched.log == before
    if title not in ("torch.einsum",):
        assert before[0][0] == title
    assert type(result) is type(plain) and torch.equal(result, plain)  # type: ignore[arg-type]


def test_modes_see_the_original_functions(patcher: FunctionalPatcher) -> None:
    seen: list[Any] = []

    class Spy(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    def calls() -> list[Any]:
        seen.clear()
        with Spy():
            for call in CALLS.values():
                call(W)
        return list(seen)

    before = calls()
    patcher.install()
    assert [a is b for a, b in zip(calls(), before, strict=True)] == [True] * len(before)


def test_fx_traces_the_originals(patcher: FunctionalPatcher) -> None:
    class Model(nn.Module):
        def forward(self, x: Any) -> Any:
            return F.softmax(torch.matmul(x, x), dim=-1)

    before = torch.fx.symbolic_trace(Model())
    patcher.install()
    after = torch.fx.symbolic_trace(Model())
    assert after.code == before.code
    assert [n.target for n in after.graph.nodes] == [n.target for n in before.graph.nodes]


def test_vmap_and_gradients_of_functions_pass_through(patcher: FunctionalPatcher) -> None:
    x = torch.arange(12.0).view(3, 2, 2)

    def run() -> list[Any]:
        return [
            torch.vmap(lambda a: F.linear(torch.matmul(a, W), W))(x),
            torch.func.grad(lambda a: F.softmax(torch.mm(a, W), dim=-1)[0, 0].sum())(x[0]),
            torch.func.jvp(lambda a: F.layer_norm(a, [2]), (x[0],), (x[1],))[1],
        ]

    before = run()
    patcher.install()
    assert all(torch.equal(a, b) for a, b in zip(run(), before, strict=True))
    assert patcher.stack.open == []


def test_scripts_compile_as_before(patcher: FunctionalPatcher) -> None:
    # GIVEN a function that uses replaced ones of every sort, written where torch can read it
    def scripted(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        y = F.layer_norm(F.linear(F.embedding(i, x), w), [2])
        y = torch.baddbmm(y[None], y[None], w[None])[0] + torch.addmm(w, y, torch.matmul(w, w))
        return torch.einsum("ij,jk->ik", F.softmax(y, dim=-1), torch.mm(w, torch.softmax(w, -1))) + F.log_softmax(y, dim=-1)

    i = torch.tensor([0, 1])
    plain = scripted(W, W, i)
    patcher.install()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        during = torch.jit.script(scripted)
        layers = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), nn.Softmax(-1)))
        patcher.uninstall()
        after = torch.jit.script(scripted)
    torch.testing.assert_close(during(W, W, i), plain)
    torch.testing.assert_close(after(W, W, i), plain)
    assert layers(W).shape == (2, 2)


def test_torchscripts_table_of_functions_is_as_before(patcher: FunctionalPatcher) -> None:
    from torch.jit import _builtins

    before = dict(_builtins._get_builtin_table())
    patcher.install()
    assert len(_builtins._get_builtin_table()) > len(before)
    patcher.uninstall()
    assert _builtins._get_builtin_table() == before


# --- Records ---


def test_records_are_the_ledger_by_function() -> None:
    rows = [
        OpRecord("aten::addmm", OpType.MATMUL, [(2, 3)], [(2, 4)], flops=48, bytes=100, func_name="F.linear", module_context="a", dtype=DataType.FP32),
        OpRecord("aten::addmm", OpType.MATMUL, [(2, 3)], [(2, 4)], flops=48, bytes=100, func_name="F.linear", module_context="b", dtype=DataType.FP32),
        OpRecord("aten::bmm", OpType.MATMUL, flops=8, bytes=5, func_name="torch.matmul", module_context="a", direction="bwd", count=2),
        OpRecord("aten::clone", OpType.MEMORY, flops=0, bytes=7, func_name="torch.matmul", module_context="a", direction="bwd", measured_time_us=1.0),
        OpRecord("aten::mul", OpType.ELEMENTWISE, func_name=""),
    ]
    first, second, third = captured_functional_ops(rows)
    assert (first.func_name, first.module_context, first.flops, first.op_type, first.dtype) == ("F.linear", "a", 48, OpType.MATMUL, DataType.FP32)
    assert second.module_context == "b"
    assert (third.func_name, third.direction, third.flops, third.bytes, third.count, third.measured_time_us) == ("torch.matmul", "bwd", 8, 12, 3, None)
