"""Compiled models under labels: the sampled step runs eagerly and is labeled, all others run the same compiled code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from typing import Any

import pytest

from tb_sol_plugin.capture.loop.guard import Clock
from tb_sol_plugin.capture.loop.labels import Labels

torch = pytest.importorskip("torch", reason="compiles models of PyTorch")
if find_spec("torch._dynamo") is None:  # looked for, not imported: 2 s that only these tests should pay
    pytest.skip("this torch has no compiler", allow_module_level=True)
if not hasattr(torch.compiler, "set_stance"):
    pytest.skip("this torch cannot run compiled code eagerly for a while", allow_module_level=True)
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from tb_sol_plugin.capture.functional_patcher import PATCHED, FunctionalPatcher  # noqa: E402
from tb_sol_plugin.capture.layer_hooks import LayerSOLHooks  # noqa: E402
from tb_sol_plugin.capture.work import compiling  # noqa: E402
from tb_sol_plugin.capture.work.compiling import CompiledEagerly, force_eager, release_eager  # noqa: E402

nn = torch.nn
@pytest.fixture(autouse=True)
def no_compiled_code_of_others() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    assert stance() == "default"


def stance() -> str:
    return str(torch._dynamo.eval_frame._stance.stance)


class Watched(TorchDispatchMode):
    """Counts the operators that come through."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += 1
        return func(*args, **(kwargs or {}))


class Compiler:
    """A backend that counts how often it compiles and how often its code runs."""

    def __init__(self, backend: str) -> None:
        self.backend, self.compiled, self.ran = backend, 0, 0

    def __call__(self, graph: Any, inputs: Any) -> Callable[..., Any]:
        self.compiled += 1
        made = torch._dynamo.lookup_backend(self.backend)(graph, inputs)

        def run(*args: Any) -> Any:
            self.ran += 1
            return made(*args)

        return run


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        y = torch.matmul(torch.softmax(x @ x.transpose(-2, -1), -1), x)
        return self.down(torch.relu(self.up(self.norm(y)))) + x


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Block(), Block()

    def forward(self, x: Any) -> Any:
        return self.b(self.a(x))


def model() -> Any:
    torch.manual_seed(0)
    return Model()


CALLS = ["a", "a.norm", "a.up", "a.down", "b", "b.norm", "b.up", "b.down"]


def by_function(plain: Any, backend: Any) -> Any:
    return torch.compile(plain, backend=backend)


def by_method(plain: Any, backend: Any) -> Any:
    plain.compile(backend=backend)
    return plain


def by_part(plain: Any, backend: Any) -> Any:
    """The first block only."""
    plain.a = torch.compile(plain.a, backend=backend)
    return plain


class Loop:
    """Steps of a compiled model, sampled ones under all that a sampled step brings: hooks, replaced functions, maybe a dispatch mode."""

    def __init__(self, made: Any, compiler: Any, *, mode: bool, parts: str = "hooks functions") -> None:
        self.model, self.compiler, self.mode, self.parts = made, compiler, mode, parts
        self.hooks = LayerSOLHooks(Labels(), Clock())
        self.patcher = FunctionalPatcher(self.hooks.labels)
        self.x = torch.linspace(-1, 1, 2 * 4 * 8).view(2, 4, 8)
        self.seen = 0

    def run(self) -> tuple[Any, Any]:
        for p in self.model.parameters():
            p.grad = None
        out = self.model(self.x)
        out.square().mean().backward()
        return out.detach().clone(), [p.grad.clone() for p in self.model.parameters()]

    def sampled(self) -> tuple[Any, Any]:
        watched = Watched() if self.mode else None
        if "hooks" in self.parts:
            self.hooks.attach(self.model)
        if "functions" in self.parts:
            self.patcher.install()
        with watched or nullcontext():
            out = self.run()
        self.patcher.uninstall()
        self.hooks.end_step()
        self.hooks.remove()
        self.seen = watched.seen if watched else 0
        return out


@pytest.mark.parametrize(
    ("backend", "compile_", "sampled_first"),
    [
        ("eager", by_function, True), ("eager", by_function, False), ("eager", by_method, True), ("eager", by_part, False),
        ("aot_eager", by_function, False), ("aot_eager", by_method, False), ("aot_eager", by_part, True),
    ],
)  # fmt: skip
def test_unsampled_steps_run_the_same_compiled_code(backend: str, compile_: Any, sampled_first: bool) -> None:
    # GIVEN a compiled model
    torch._dynamo.utils.counters.clear()
    compiler = Compiler(backend)
    loop = Loop(compile_(model(), compiler), compiler, mode=False)
    plain = Loop(model(), None, mode=False).run()
    # WHEN sampled and unsampled steps alternate, the sampled ones with a dispatch mode and without
    ran = []
    for sampled, mode in [
        (sampled_first, False), (sampled_first, True), (False, False), (False, False), (True, False), (False, False), (True, True), (False, False),
    ]:  # fmt: skip
        before, loop.mode = compiler.ran, mode
        out, gradients = loop.sampled() if sampled else loop.run()
        ran.append((sampled, compiler.ran - before))
        # THEN the output and gradients are those of the plain model
        assert torch.equal(out, plain[0]) and all(torch.equal(a, b) for a, b in zip(gradients, plain[1], strict=True))
        # AND what was sampled was labeled, as of a compiled region, without times
        if sampled:
            assert (loop.seen > 50) == mode
            labeled = {loop.hooks.labels.known[label].name for label in loop.hooks.compiled}
            assert labeled == {*CALLS[:4]} if compile_ is by_part else labeled == {"Model", *CALLS}
            timed = {loop.hooks.labels.known[call[0]].name for call in loop.hooks.calls}
            assert timed == ({*CALLS[4:]} if compile_ is by_part else set())
            assert not loop.hooks.lost
    # AND each unsampled step runs the compiled code, each sampled one runs none of it
    assert ran == [(sampled, 0 if sampled else 1) for sampled, _ in ran]
    # AND it was compiled once, without a break
    assert compiler.compiled == 1
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert not torch._dynamo.utils.counters["graph_break"] and not torch._dynamo.utils.counters["recompiles"]


@pytest.mark.parametrize(("parts", "sampled_first"), [("hooks", True), ("functions", False)])
def test_each_part_alone_leaves_compiled_code_as_it_is(parts: str, sampled_first: bool) -> None:
    compiler = Compiler("eager")
    loop = Loop(by_function(model(), compiler), compiler, mode=False, parts=parts)
    for sampled in [sampled_first, False, True, False]:
        loop.sampled() if sampled else loop.run()
    assert compiler.compiled == 1


def test_code_that_compiles_in_spite_of_it_compiles_without_a_trace_of_ours() -> None:
    # GIVEN a training loop that lets code compile again in the middle of a sampled step
    hooks = LayerSOLHooks(Labels(), Clock())
    patcher = FunctionalPatcher(hooks.labels)
    made, compiler = model(), Compiler("eager")
    hooks.attach(made)
    patcher.install()
    torch.compiler.set_stance("default")
    # WHEN it compiles one graph, or none at all
    x = torch.ones(2, 4, 8)
    with torch.no_grad():
        result = torch.compile(made, backend=compiler, fullgraph=True)(x)
        patcher.uninstall()
        hooks.remove()
        # THEN it works as without us, and nothing was labeled
        assert torch.equal(result, made(x))
    assert (compiler.compiled, compiler.ran) == (1, 1) and not hooks.calls and not hooks.labels.known[len(PATCHED) :]


def test_a_plain_function_that_is_compiled_runs_eagerly_meanwhile() -> None:
    # GIVEN a compiled function, of which no model knows
    compiler = Compiler("eager")
    f = torch.compile(lambda x: torch.matmul(x, x).relu(), backend=compiler)
    x = torch.ones(2, 2)
    f(x)
    # WHEN it is called in a sampled step of something else
    patcher = FunctionalPatcher(Labels())
    patcher.install()
    with Watched() as watched:
        f(x)
    patcher.uninstall()
    f(x)
    # THEN it was seen there, and is compiled as before
    assert watched.seen >= 2 and (compiler.compiled, compiler.ran) == (1, 2)


def test_torch_gives_up_compiling_code_that_it_meets_under_a_dispatch_mode() -> None:
    # The reason for all this: torch gives up on code that it meets under a dispatch mode. If this fails, torch has become better.
    compiler = Compiler("eager")
    f = torch.compile(lambda x: x.relu(), backend=compiler)
    x = torch.ones(2)
    with Watched():
        f(x)
    f(x)
    assert compiler.ran == 0


def test_models_that_are_compiled_during_a_sampled_step() -> None:
    # GIVEN a sampled step in which the model is compiled first
    compiler = Compiler("eager")
    plain = model()
    loop = Loop(plain, compiler, mode=True)
    run = loop.run

    def compile_and_run() -> Any:
        loop.model = torch.compile(plain, backend=compiler)
        return run()

    loop.run = compile_and_run  # type: ignore[method-assign]
    loop.sampled()
    # THEN it compiles at its first unsampled call
    assert compiler.compiled == 0
    loop.run = run  # type: ignore[method-assign]
    loop.run()
    loop.run()
    assert (compiler.compiled, compiler.ran) == (1, 2)


def test_hooks_that_were_copied_with_a_model_do_not_break_its_compilation() -> None:
    # GIVEN a copy made while hooks were on, compiled before its first call
    import copy

    hooks = LayerSOLHooks(Labels(), Clock())
    original = model()
    hooks.attach(original)
    twin = copy.deepcopy(original)
    hooks.remove()
    compiler = Compiler("eager")
    made = torch.compile(twin, backend=compiler, fullgraph=True)
    x = torch.ones(2, 4, 8)
    with torch.no_grad():
        assert torch.equal(made(x), original(x))
        made(x)
    assert (compiler.compiled, compiler.ran) == (1, 2)


# --- Holding ---


def test_code_runs_eagerly_until_every_user_has_released_it() -> None:
    a, b = object(), object()
    force_eager(a)
    force_eager(a)
    force_eager(b)
    assert stance() == "force_eager"
    release_eager(a)
    assert stance() == "force_eager"
    release_eager(b)
    assert stance() == "default"
    release_eager(b)
    assert stance() == "default"


def test_the_stance_of_the_training_loop_comes_back() -> None:
    with torch.compiler.set_stance("eager_on_recompile"):
        with CompiledEagerly():
            assert stance() == "force_eager"
        assert stance() == "eager_on_recompile"


def test_a_stance_that_the_training_loop_sets_meanwhile_stays() -> None:
    holder = CompiledEagerly()
    holder.__enter__()
    torch.compiler.set_stance("eager_on_recompile")
    holder.__exit__(None, None, None)
    assert stance() == "eager_on_recompile"
    torch.compiler.set_stance("default")


def test_no_hooks_are_put_on_where_compiled_code_cannot_run_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a torch without stances, and something compiled
    monkeypatch.delattr(torch.compiler, "set_stance")
    monkeypatch.setattr(torch._dynamo.eval_frame, "cached_backends", {1: "inductor"}, raising=False)
    hooks, patcher, layer = LayerSOLHooks(Labels(), Clock()), FunctionalPatcher(Labels()), nn.Linear(1, 1)
    before = torch.matmul
    # THEN neither hooks nor functions are put in place, and that is said
    assert not compiling.can_run_eagerly()
    assert hooks.attach(layer) == 0 and not layer._forward_hooks
    assert hooks.lost == {"compiled code cannot be watched by this torch (before 2.6)": 1}
    patcher.install()
    assert torch.matmul is before and not patcher.installed
    patcher.uninstall()
    hooks.remove()
    # AND with nothing compiled they are
    monkeypatch.setattr(torch._dynamo.eval_frame, "cached_backends", {}, raising=False)
    assert compiling.can_run_eagerly() and hooks.attach(layer) == 1
    hooks.remove()
