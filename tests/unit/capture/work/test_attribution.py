"""Backward work is credited to the module, function and phase of its forward operator."""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tb_sol_plugin.capture.work import attribution  # noqa: E402
from tests.support.ledger import Counting  # noqa: E402


class Pair(nn.Module):
    """Two linear layers with different amounts of work: 2·rows·8·8 and 2·rows·8·3 FLOP forward."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.b(self.a(x).relu())


def a(rows):
    return 2 * rows * 8 * 8


def b(rows):
    return 2 * rows * 8 * 3


def test_gradient_accumulation_counts_each_micro_batch():
    model = Pair()
    counting = Counting(model)

    def step():
        for rows in (2, 3, 5):
            model(torch.randn(rows, 8)).sum().backward()

    counting.run(step)
    assert counting.flop(module_context="a", direction="bwd") == a(10)
    assert counting.flop(module_context="b", direction="bwd") == 2 * b(10)
    # AND gradients are added up in the second and third micro batch, 4 parameters each, under the modules that own them
    assert counting.ops(module_context="a", direction="bwd")["add_"] == counting.ops(module_context="b", direction="bwd")["add_"] == 2 * 2
    assert counting.select(module_context="", direction="bwd", name="aten::add_") == []


def test_several_forward_passes_before_one_backward():
    model = Pair()
    counting = Counting(model)

    def step():
        with counting.phases.phase("one"):
            first = model(torch.randn(2, 8)).sum()
        with counting.phases.phase("two"):
            second = model(torch.randn(3, 8)).sum()
        with counting.phases.phase("back"):
            (first + second).backward()

    counting.run(step)
    # THEN each part carries the phase of its forward, and the one that ran it
    for phase, rows in (("one", 2), ("two", 3)):
        assert counting.flop(module_context="b", direction="bwd", phase="back", forward_phase=phase) == 2 * b(rows)
        assert counting.flop(module_context="b", direction="fwd", phase=phase) == b(rows)
    assert counting.flop(direction="bwd") == counting.flop(direction="bwd", phase="back")


def test_a_second_backward_over_a_kept_graph_counts_again():
    model = Pair()
    counting = Counting(model)

    def step():
        loss = model(torch.randn(2, 8)).sum()
        loss.backward(retain_graph=True)
        loss.backward()

    counting.run(step)
    assert counting.flop(module_context="b", direction="bwd") == 4 * b(2)
    assert counting.flop(module_context="b", direction="fwd") == b(2)


def test_work_without_gradients_between_layers_does_not_take_their_backward():
    # GIVEN work that makes no node of autograd, in another module, right after a layer
    class Watched(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.monitor, self.b = nn.Linear(8, 8), nn.Linear(8, 100), nn.Linear(8, 3)

        def forward(self, x):
            h = self.a(x)
            with torch.no_grad():
                self.monitor(h)
            return self.b(h)

    model = Watched()
    counting = Counting(model)
    counting.run(lambda: model(torch.randn(2, 8, requires_grad=True)).sum().backward())
    assert counting.flop(module_context="a", direction="bwd") == 2 * a(2)
    assert counting.flop(module_context="monitor", direction="bwd") == 0
    assert counting.flop(module_context="b", direction="bwd") == 2 * b(2)


def test_views_at_the_end_of_a_module_are_credited_to_it():
    # GIVEN a module that ends in an expansion, whose backward is a sum
    class Wide(nn.Module):
        def forward(self, x):
            return x.expand(16, 8)

    model = nn.Sequential(Wide(), nn.Linear(8, 3))
    counting = Counting(model)
    counting.run(lambda: model(torch.randn(1, 8, requires_grad=True)).sum().backward())
    assert counting.ops(module_context="0", direction="bwd") == {"sum": 1}


def test_custom_functions_are_credited_by_the_number_of_their_node():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx, gradient):
            x, w = ctx.saved_tensors
            return gradient @ w.t(), x.t() @ gradient

    class Quiet(torch.autograd.Function):  # its forward calls nothing
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            return gradient @ torch.ones(8, 8)

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(8, 8))

        def forward(self, x):
            return Quiet.apply(Double.apply(x, self.w))

    model = nn.Sequential(nn.Linear(8, 8), Own(), nn.Linear(8, 3))
    counting = Counting(model)
    counting.run(lambda: model(torch.randn(2, 8)).sum().backward())
    assert counting.flop(module_context="1", direction="fwd") == a(2)
    assert counting.flop(module_context="1", direction="bwd") == 3 * a(2)  # two products of Double, one of Quiet
    assert counting.flop(module_context="2", direction="bwd") == 2 * b(2)
    assert counting.flop(module_context="", direction="bwd") == 0


def test_double_backward_stays_with_the_module():
    # GIVEN y = x·Wᵀ of one layer, g = dy/dx by a pass that makes a graph, and a second pass through g
    layer = nn.Linear(8, 3, bias=False)
    counting = Counting(layer)

    def step():
        x = torch.randn(2, 8, requires_grad=True)
        (gradient,) = torch.autograd.grad(layer(x).pow(2).sum(), x, create_graph=True)
        gradient.pow(2).sum().backward()

    counting.run(step)
    # THEN nothing of it is outside the layer, is forward again, or is recomputation: 1 product forward,
    # 1 for dy/dx, and in the second pass 2 for g = dy·W and 2 for y = x·Wᵀ
    assert counting.flop(direction="fwd") == counting.flop(direction="fwd", module_context="Linear") == b(2)
    assert counting.flop(direction="bwd") == counting.flop(direction="bwd", module_context="Linear") == 5 * b(2)
    assert counting.flop(is_recompute=True) == 0


def test_a_gradient_inside_of_forward_is_backward_work():
    # GIVEN a model of a force: its output is the gradient of an inner layer
    class Force(nn.Module):
        def __init__(self):
            super().__init__()
            self.energy = nn.Linear(8, 8)

        def forward(self, x):
            (force,) = torch.autograd.grad(self.energy(x).pow(2).sum(), x, create_graph=True)
            return force

    model = Force()
    counting = Counting(model)
    counting.run(lambda: model(torch.randn(2, 8, requires_grad=True)).sum().backward())
    assert counting.flop(direction="fwd") == a(2)
    assert counting.flop(direction="bwd") == counting.flop(direction="bwd", module_context="energy") == 5 * a(2)
    assert counting.flop(is_recompute=True) == 0


def test_hooks_on_tensors_and_parameters_are_backward_work_of_their_place():
    model = Pair()
    weight = torch.randn(8, 8)
    model.a.weight.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", p.grad @ weight))
    counting = Counting(model)

    def step():
        h = model.a(torch.randn(2, 8))
        h.register_hook(lambda gradient: gradient @ weight)
        model.b(h).sum().backward()

    counting.run(step)
    # THEN the product on the gradient of the weight belongs to `a` (2·8·8·8), and that on the gradient of h to the node it leads to
    extra = 2 * 8 * 8 * 8
    assert counting.flop(module_context="a", direction="bwd") == a(2) + a(2) + extra
    assert counting.flop(module_context="b", direction="bwd") == 2 * b(2)


def test_an_optimizer_in_backward_is_credited_to_the_module_of_the_parameter():
    model = Pair()
    optimizers = {p: torch.optim.SGD([p], lr=0.1, momentum=0.9) for p in model.parameters()}

    def update(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(update)
    model(torch.randn(2, 8)).sum().backward()
    counting = Counting(model)
    counting.run(lambda: model(torch.randn(2, 8)).sum().backward())
    assert counting.ops(module_context="b", direction="bwd")["mul_"] == 2  # momentum of weight and bias
    assert counting.select(direction="bwd", name="aten::mul_", module_context="") == []


def test_backward_on_another_thread_finds_the_labels_of_the_forward_thread():
    # GIVEN a forward on this thread, and backward on another one that has the mode as well and has run something before
    model = Pair()
    other = nn.Linear(5, 5)
    counting = Counting(model, other)

    with counting.on() as mode:
        with counting.phases.phase("forward"):
            loss = model(torch.randn(2, 8)).sum()

        def run():
            with mode:
                loss.backward()

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert counting.flop(module_context="b", direction="bwd", forward_phase="forward") == 2 * b(2)
    assert counting.flop(module_context="a", direction="bwd") == a(2)
    assert not counting.ledger.lost


def test_forward_on_threads_without_the_mode_is_said():
    # GIVEN replicas that run on threads of their own, as data parallelism does, which a dispatch mode does not follow
    models = [Pair(), Pair()]
    counting = Counting(*models)
    with counting.on():
        results = [None, None]

        def run(at):
            results[at] = models[at](torch.randn(2, 8)).sum()

        threads = [threading.Thread(target=run, args=(at,)) for at in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (results[0] + results[1]).backward()
    # THEN their backward is counted without a module, and the reason is there
    assert counting.flop(direction="fwd") == 0
    assert counting.flop(direction="bwd", module_context="") == counting.flop(direction="bwd") == 2 * (a(2) + 2 * b(2))
    assert counting.ledger.lost["backward of work that was not recorded"] > 0


def test_threads_that_train_at_once_do_not_mix_their_numbers():
    # GIVEN one mode, entered on two threads whose sequence numbers overlap, and models of different sizes
    models = [Pair(), nn.Sequential(nn.Linear(8, 5), nn.Linear(5, 7), nn.Linear(7, 2))]
    counting = Counting(*models)
    barrier = threading.Barrier(2, timeout=60)

    with counting.on() as mode:

        def work(model, rows):
            with mode:
                for _ in range(15):
                    barrier.wait()
                    with counting.phases.phase(f"rows {rows}"):
                        loss = model(torch.randn(rows, 8)).sum()
                    barrier.wait()
                    loss.backward()

        threads = [threading.Thread(target=work, args=(model, rows)) for model, rows in zip(models, (2, 3), strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert counting.flop(module_context="a", direction="bwd") == 15 * a(2)
    assert counting.flop(module_context="b", direction="bwd", forward_phase="rows 2") == 15 * 2 * b(2)
    for name, work_ in (("0", 8 * 5), ("1", 2 * 5 * 7), ("2", 2 * 7 * 2)):
        assert counting.flop(module_context=name, direction="bwd", forward_phase="rows 3") == 15 * 2 * 3 * work_
    assert not counting.ledger.lost


def test_a_thread_of_autograd_inherits_phase_and_labels(monkeypatch):
    # GIVEN what torch does on a GPU: nodes run on a thread of its own, with the modes of the thread that called backward, and no labels
    from torch.utils import _python_dispatch

    from tb_sol_plugin.capture.work import ledger

    model = Pair()
    counting = Counting(model)
    matrix = torch.randn(8, 8)
    find = ledger.current_node
    at_work = threading.local()
    monkeypatch.setattr(ledger, "current_node", lambda: getattr(at_work, "node", None) or find())

    with counting.on() as mode:

        def elsewhere(gradient):
            node = find()

            def run():
                at_work.node = node
                _python_dispatch._push_mode(mode)
                try:
                    with torch.no_grad():
                        matrix @ matrix
                    with torch.enable_grad():
                        matrix @ matrix  # as a checkpointed function would
                finally:
                    _python_dispatch._pop_mode()

            thread = threading.Thread(target=run)
            thread.start()
            thread.join()

        with counting.phases.phase("forward"):
            out = model.b(model.a(torch.randn(2, 8)))
            out.register_hook(elsewhere)
        with counting.phases.phase("backward"):
            torch.autograd.backward([out], [torch.ones(2, 3)])
        # THEN records in the middle of the step have it as well
        assert counting.flop(name="aten::mm", direction="bwd", module_context="b") == 2 * b(2) + 2 * 8**3
    one = 2 * 8**3
    assert counting.flop(module_context="b", direction="bwd", phase="backward", forward_phase="forward") == 2 * b(2) + one
    assert counting.flop(module_context="b", is_recompute=True, phase="backward") == one
    assert not counting.ledger.lost


def test_backward_of_what_was_not_recorded_is_counted_without_a_module_and_said():
    # GIVEN a forward before the step began
    model = Pair()
    counting = Counting(model)
    loss = model(torch.randn(2, 8)).sum()
    counting.run(loss.backward)
    assert counting.flop(direction="bwd", module_context="") == counting.flop() == a(2) + 2 * b(2)
    assert set(counting.ledger.lost) == {"backward of work that was not recorded"}


def test_no_label_of_an_earlier_step_is_used():
    # GIVEN a step that is counted, then a forward that is not, then a backward that is
    model = Pair()
    counting = Counting(model)
    counting.run(lambda: model(torch.randn(2, 8)).sum().backward())
    loss = model(torch.randn(2, 8)).sum()
    counting.run(loss.backward)
    assert {r.module_context for r in counting.records} == {""}


def test_work_at_the_end_of_a_pass_is_backward_work():
    # GIVEN what data parallelism does: a callback that torch runs once all gradients are there
    from torch.autograd import Variable

    model = Pair()
    matrix = torch.randn(8, 8)

    def queue(gradient):
        Variable._execution_engine.queue_callback(lambda: matrix @ matrix)
        return gradient

    counting = Counting(model)

    def step():
        out = model(torch.randn(2, 8))
        out.register_hook(queue)
        out.sum().backward()

    counting.run(step)
    assert counting.flop(module_context="", direction="bwd") == 2 * 8 * 8 * 8
    assert counting.flop(module_context="", direction="fwd") == 0


def test_a_backward_that_fails_leaves_the_stacks_clean():
    model = Pair()
    counting = Counting(model)

    def fail(gradient):
        raise ValueError("stop")

    with counting.on() as mode:
        out = model(torch.randn(2, 8))
        out.register_hook(fail)
        with pytest.raises(ValueError, match="stop"):
            out.sum().backward()
        assert mode.attribution.running == [] and mode.attribution.thread_state().passes == []
        assert counting.hooks.stack.open == [] and counting.phases.open == []
        matrix = torch.randn(4, 4)
        matrix @ matrix
    assert counting.flop(direction="fwd", module_context="") == 2 * 4 * 4 * 4


@pytest.fixture
def engine():
    """torch's own entry to the engine: a mode whose iteration an earlier test ended on another thread is taken off first."""
    for left in list(attribution._attached):
        left.detach()
    return torch.autograd._engine_run_backward


def test_the_engine_is_put_back_whatever_the_order(engine):
    # GIVEN two modes that are left in the order in which they were entered, and a wrapper that somebody else put over ours
    first, second = Counting(), Counting()
    one, two = first.mode().attribution, second.mode().attribution
    one.attach()
    two.attach()
    one.detach()
    assert torch.autograd._engine_run_backward is not engine
    two.detach()
    assert torch.autograd._engine_run_backward is engine
    one.attach()
    ours = torch.autograd._engine_run_backward
    calls = []

    def theirs(*args, **kwargs):
        calls.append(1)
        return ours(*args, **kwargs)

    torch.autograd._engine_run_backward = theirs
    try:
        one.detach()
        assert torch.autograd._engine_run_backward is theirs
        torch.ones(2, requires_grad=True).sum().backward()  # still works through ours
        assert calls == [1]
    finally:
        torch.autograd._engine_run_backward = engine


def test_without_torchs_private_names_it_says_so(monkeypatch):

    assert attribution.available()
    monkeypatch.delattr(torch._C, "_current_autograd_node")
    assert not attribution.available()


def test_without_the_engines_name_backward_is_still_credited(monkeypatch):
    # GIVEN a torch whose autograd starts its engine by another name
    engine = torch.autograd._engine_run_backward
    monkeypatch.setattr(torch.autograd, "backward", _renamed(torch.autograd.backward, engine))
    monkeypatch.delattr(torch.autograd, "_engine_run_backward")
    model = Pair()
    counting = Counting(model)
    counting.run(lambda: model(torch.randn(2, 8)).sum().backward())
    counting_again = counting.flop(module_context="b", direction="fwd")
    assert counting.flop(module_context="b", direction="bwd") == 2 * counting_again == 2 * b(2)
    counting.run(lambda: (model(torch.randn(2, 8)).sum().backward(), model(torch.randn(2, 8))))
    assert counting.flop(direction="fwd") == 2 * (a(2) + b(2))  # the forward after a backward is one


def _renamed(function, engine):
    import types

    made = types.FunctionType(function.__code__, {**function.__globals__, "_engine_run_backward": engine}, function.__name__)
    made.__defaults__, made.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return made


def test_layers_are_told_by_the_innermost_supported_one():
    class Odd(nn.Linear):
        def forward(self, x):
            return F.relu(super().forward(x))

    model = nn.Sequential(Odd(8, 8), nn.ReLU())
    counting = Counting(model)
    counting.run(lambda: model(torch.randn(2, 8)).sum().backward())
    assert {(r.layer_name, r.layer_type) for r in counting.select(module_context="0")} == {("0", "Linear")}
    assert {(r.layer_name, r.layer_type) for r in counting.select(module_context="1")} == {("", "")}
