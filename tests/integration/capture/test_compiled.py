"""torch.compile: sampled steps count the work by running eagerly, the other steps keep the compiled code; CUDA graphs are told apart."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.sol_reading import only
from tests.support.training_loops import FORWARD, phase, plain, run, same, toy

torch = pytest.importorskip("torch", reason="records training loops")
if find_spec("torch._dynamo") is None:  # looked for, not imported: 2 s that only these tests should pay
    pytest.skip("this torch cannot compile", allow_module_level=True)

if not hasattr(torch.compiler, "set_stance"):
    pytest.skip("compiled models are not sampled before torch 2.6", allow_module_level=True)
COMPILER = shutil.which(os.environ.get("CXX", "g++"))
BACKENDS = [
    "eager",
    "aot_eager",
    pytest.param("inductor", marks=pytest.mark.skipif(COMPILER is None, reason="inductor needs a C++ compiler")),
]


def one_block() -> Any:
    """A model that inductor compiles in seconds."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 32), torch.nn.LayerNorm(32))


def regress(model: Any, optimizer: Any, tracker: Any) -> Any:
    x = torch.linspace(-1, 1, 8 * 32).view(8, 32)
    with phase(tracker, "forward"):
        loss = model(x).square().mean()
    with phase(tracker, "backward"):
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


@pytest.fixture(autouse=True)
def no_compiled_code_of_others() -> Any:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_model_is_counted_and_stays_compiled(tmp_path: Path, backend: str) -> None:
    # GIVEN a compiled model WHEN six steps run with steps 0, 1 and 4 sampled
    runs: list[object] = []

    def counting(graph: Any, inputs: Any) -> Any:
        made = torch._dynamo.lookup_backend(backend)(graph, inputs)

        def call(*args: Any) -> Any:
            runs.append(graph)
            return made(*args)

        return call

    model = torch.compile(one_block(), backend=counting)
    counters: list[int] = []

    def step(model: Any, optimizer: Any, tracker: Any) -> Any:
        loss = regress(model, optimizer, tracker)
        counters.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
        return loss

    losses, _ = run(model, step, steps=6, logdir=tmp_path, every_n_steps=4)
    recorded = only(tmp_path)
    # THEN the file says that the model is compiled, and its FLOP are those of the two layers: the input needs no gradient
    assert recorded.header["model"]["compiled"] is True  # type: ignore[index,call-overload]
    one = 2 * 8 * 32 * 64
    assert recorded.sampled == [0, 1, 4]
    for n in recorded.sampled:
        assert recorded.flop(n, backward=False) == 2 * one and recorded.flop(n) == 2 * one + 3 * one
    # AND the first unsampled step compiles one graph, which all later ones use: no break, no recompilation by the recorder
    assert counters == [0, 0, 1, 1, 1, 1] and len(runs) == 3
    assert sum(torch._dynamo.utils.counters["graph_break"].values()) == 0
    # AND the loss falls as it does untracked (a compiled step may round differently from an eager one)
    torch._dynamo.reset()
    untracked, _ = run(torch.compile(one_block(), backend=counting), regress, steps=6)
    for a, b in zip(losses, untracked, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


def test_compiled_equals_eager_in_flop_and_bits(tmp_path: Path) -> None:
    # GIVEN the toy compiled without code generation, so that it rounds as eager does
    untracked = run(toy(), plain)
    compiled = torch.compile(toy(), backend="aot_eager")
    # WHEN tracked THEN bits and FLOP are those of the eager one, and rows say that their region is compiled
    tracked = run(compiled, plain, logdir=tmp_path, every_n_steps=2)
    assert same(tracked, untracked)
    recorded = only(tmp_path)
    assert recorded.flop(1) == 3 * FORWARD and recorded.flop(1, module="") == 0
    from tb_sol_plugin.format import COMPILED

    assert all(row.flags & COMPILED for row in recorded.ledgers[1] if row.flop)


def own_random_numbers(graph: Any, inputs: Any) -> Any:
    """Stands for inductor: compiled code draws other random numbers than eager code, and another count of them."""
    made = torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    def call(*args: Any) -> Any:
        torch.rand(1)
        return made(*args)

    return call


def with_dropout(share: float = 0.3) -> Any:
    class Dropping(torch.nn.Module):  # the call of a module of torch's own is not compiled in place
        def __init__(self) -> None:
            super().__init__()
            self.block, self.drop = one_block(), torch.nn.Dropout(share)

        def forward(self, x: Any) -> Any:
            return self.drop(self.block(x))

    return Dropping()


@pytest.mark.parametrize("whole", [True, False])
def test_a_compiled_model_with_dropout_trains_as_without_the_recorder(tmp_path: Path, whole: bool) -> None:
    # GIVEN a model with dropout, compiled as a whole or in place WHEN recorded with the options as they are
    def made() -> Any:
        torch._dynamo.reset()
        model = with_dropout()
        if whole:
            return torch.compile(model, backend=own_random_numbers)
        model.compile(backend=own_random_numbers)
        return model

    untracked = run(made(), regress, steps=6)
    # THEN loss and weights are those of the untracked run, bit for bit; nothing was sampled, and the file says why
    assert same(run(made(), regress, steps=6, logdir=tmp_path / "a", every_n_steps=4), untracked)
    recorded = only(tmp_path / "a")
    assert recorded.sampled == [] and len(recorded.steps) == 6 and "random" in recorded.notes
    # AND who asks for the samples gets them, with other random numbers
    assert not same(run(made(), regress, steps=6, logdir=tmp_path / "b", every_n_steps=4, sample_random=True), untracked)
    assert only(tmp_path / "b").sampled == [0, 1, 4]


def test_only_dropout_that_drops_keeps_a_compiled_model_from_being_sampled() -> None:
    from tb_sol_plugin.capture.hooks.module_names import compiled_and_random

    class Attention(torch.nn.Module):
        def __init__(self, dropout: float) -> None:
            super().__init__()
            self.dropout_p = dropout

    # GIVEN eager models, compiled ones without dropout, with a share of 0, not in training, with dropout outside of the compiled part
    beside = torch.nn.Sequential(torch.compile(one_block()), torch.nn.Dropout(0.3))
    for model in (with_dropout(), torch.compile(one_block()), torch.compile(with_dropout(0)), torch.compile(with_dropout()).eval(), beside):
        assert not compiled_and_random(model)
    assert not compiled_and_random(torch.compile(Attention(0.0))) and not compiled_and_random(None)
    # THEN only those whose compiled part drops something are kept from it, until inductor draws what eager code draws
    dropping = [torch.compile(with_dropout()), [torch.compile(Attention(0.1))], torch.nn.Sequential(torch.compile(with_dropout()))]
    assert all(compiled_and_random(model) for model in dropping)
    config = pytest.importorskip("torch._inductor.config")
    with config.patch(fallback_random=True):
        assert not any(compiled_and_random(model) for model in dropping)


def test_a_model_compiled_before_tracking_is_seen_in_sampled_steps(tmp_path: Path) -> None:
    # GIVEN a model that ran compiled before it was tracked
    model = torch.compile(one_block(), backend="aot_eager")
    run(model, regress)
    # WHEN it is tracked THEN its work is counted all the same
    run(model, regress, logdir=tmp_path)
    assert only(tmp_path).flop(1) == 5 * 2 * 8 * 32 * 64


@pytest.mark.parametrize("compiled", [False, True])
def test_the_profiler_records_the_step_after_a_sampled_one(tmp_path: Path, compiled: bool) -> None:
    # GIVEN a loop that is tracked with a trace, steps 0, 1 and 4 sampled
    model = torch.compile(one_block(), backend="aot_eager") if compiled else one_block()
    untracked = run(model, regress, steps=8)
    torch._dynamo.reset()
    model = torch.compile(one_block(), backend="aot_eager") if compiled else one_block()
    # WHEN eight steps run THEN bits are the same
    assert same(run(model, regress, steps=8, logdir=tmp_path, every_n_steps=4, profile=True), untracked)
    # AND there are traces of unsampled steps, of the same worker
    import tb_sol_plugin as sol

    traces = sorted(tmp_path.glob("*.pt.trace.json*"))
    assert traces
    capture = next(c for c in sol.open(str(tmp_path)).captures if c.facts.source == "kineto")
    steps = set(capture.tables["steps"]["number"].astype(int))
    assert steps and not steps & set(only(tmp_path).sampled), steps


def test_a_graph_replay_is_work_of_unknown_size(tmp_path: Path) -> None:
    # GIVEN a loop that replays a CUDA graph in each step. There is no GPU here: the class is there, its replay is stood in for.
    class Graph(torch.cuda.CUDAGraph):  # type: ignore[misc]
        def __new__(cls) -> Any:
            return object.__new__(cls)

        def __init__(self) -> None:
            pass

    from unittest import mock

    def step(model: Any, optimizer: Any, tracker: Any) -> Any:
        graph.replay()
        return regress(model, optimizer, tracker)

    with mock.patch.object(torch.cuda.CUDAGraph, "replay", lambda self: None):
        graph = Graph()
        # WHEN it is tracked
        run(one_block(), step, logdir=tmp_path)
    # THEN the step counts what it saw, and says that a replay happened whose work it does not know
    recorded = only(tmp_path)
    assert recorded.flop(1) == 5 * 2 * 8 * 32 * 64
    assert any("graph" in reason for reason in recorded.steps[1]["lost"]), recorded.steps[1]  # type: ignore[union-attr]
