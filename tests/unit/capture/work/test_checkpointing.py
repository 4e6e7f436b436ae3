"""Forward work that runs again in the backward pass is told apart, and belongs to the module that runs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint, checkpoint_sequential  # noqa: E402

from tests.support.ledger import Counting  # noqa: E402

ROWS = 4
ONE = 2 * ROWS * 8 * 8
"""FLOP of one Linear(8, 8) forward."""


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.down(self.up(x).relu())


class Model(nn.Module):
    """Blocks of two layers, of which those named are checkpointed."""

    def __init__(self, blocks=3, *, reentrant=False, early_stop=True, checkpointed=None):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.head = nn.Linear(8, 8)
        self.reentrant, self.checkpointed = reentrant, range(blocks) if checkpointed is None else checkpointed
        self.early_stop = early_stop

    def forward(self, x):
        for at, block in enumerate(self.blocks):
            if at not in self.checkpointed:
                x = block(x)
            elif self.reentrant:
                x = checkpoint(block, x, use_reentrant=True)
            else:
                x = checkpoint(block, x, use_reentrant=False, early_stop=self.early_stop)
        return self.head(x)


def count(model, *, x=None):
    counting = Counting(model)
    x = torch.randn(ROWS, 8, requires_grad=True) if x is None else x
    counting.run(lambda: model(x).sum().backward())
    assert counting.hooks.stack.open == []
    return counting


@pytest.mark.parametrize(("reentrant", "early_stop", "again"), [(True, True, 2), (False, False, 2), (False, True, 1)])
def test_recomputation_is_forward_work_of_its_module_again(reentrant, early_stop, again):
    # GIVEN three checkpointed blocks of two layers. With an early stop the run ends once the last saved tensor is there, which
    # for a last layer is its input: the product of `down` is not done again
    model = Model(reentrant=reentrant, early_stop=early_stop)
    counting = count(model)
    assert counting.flop(direction="fwd", is_recompute=False) == 7 * ONE
    assert counting.flop(direction="fwd", is_recompute=True) == 3 * again * ONE
    # AND backward is twice forward, as without checkpoints
    assert counting.flop(direction="bwd") == 14 * ONE
    for block in range(3):
        for name in ("up", "down"):
            layer = f"blocks.{block}.{name}"
            assert counting.flop(module_context=layer, direction="bwd") == 2 * ONE, layer
            assert counting.flop(module_context=layer, is_recompute=True) == (ONE if name == "up" or again == 2 else 0), layer
    assert counting.flop(direction="bwd", module_context="") == 0
    assert not counting.ledger.lost


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_module_that_runs_again_has_the_label_of_its_first_run(reentrant):
    model = Model(reentrant=reentrant)
    counting = count(model)
    labels = {key[1] for key in counting.ledger.rows if key[1] >= 0}
    # THEN every label hangs below the model, and no name has two
    assert {counting.labels.path(label)[0] for label in labels} == {"Model"}
    names = [counting.labels.known[label].name for label in labels]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("reentrant", [True, False])
def test_the_first_call_of_a_pass_may_be_recomputation(reentrant):
    # GIVEN a checkpointed block whose output is what backward starts from
    block = Block()

    class Only(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = block

        def forward(self, x):
            return checkpoint(self.block, x, use_reentrant=reentrant)

    model = Only()
    counting = Counting(model)
    x, gradient = torch.randn(ROWS, 8, requires_grad=True), torch.randn(ROWS, 8)
    counting.run(lambda: model(x).backward(gradient))
    assert counting.flop(is_recompute=True) == (2 if reentrant else 1) * ONE
    assert counting.flop(direction="bwd") == 4 * ONE
    assert {r.module_context for r in counting.select(is_recompute=True)} <= {"block", "block.up", "block.down"}


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_function_without_modules_is_told_as_well(reentrant):
    w = torch.randn(8, 8, requires_grad=True)
    counting = Counting()

    def step():
        x = torch.randn(ROWS, 8, requires_grad=True)
        checkpoint(lambda y: (y @ w).sin() @ w, x, use_reentrant=reentrant, **({} if reentrant else {"early_stop": False})).sum().backward()

    counting.run(step)
    assert counting.flop(direction="fwd", is_recompute=False) == 2 * ONE
    assert counting.flop(direction="fwd", is_recompute=True) == 2 * ONE
    assert counting.flop(direction="bwd") == 4 * ONE


@pytest.mark.parametrize("inner", [True, False])
@pytest.mark.parametrize("outer", [True, False])
def test_nested_checkpoints(outer, inner):
    # GIVEN a checkpoint inside of a checkpoint. The inner layer runs forward once, again for the outer run, and again for its own
    class Nested(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

        def inner(self, x):
            return checkpoint(self.b, x, use_reentrant=inner, **({} if inner else {"early_stop": False}))

        def forward(self, x):
            return checkpoint(lambda y: self.inner(self.a(y)), x, use_reentrant=outer, **({} if outer else {"early_stop": False})).sin()

    model = Nested()
    counting = count(model)
    assert counting.flop(direction="fwd", is_recompute=False) == 2 * ONE
    assert counting.flop(module_context="a", is_recompute=True) == ONE
    assert counting.flop(module_context="b", is_recompute=True) == 2 * ONE
    assert counting.flop(direction="bwd", module_context="a") == 2 * ONE
    assert counting.flop(direction="bwd", module_context="b") == 2 * ONE


def test_phases_of_recomputation():
    model = Model(1)
    counting = Counting(model)

    def step():
        with counting.phases.phase("forward"):
            loss = model(torch.randn(ROWS, 8)).sum()
        with counting.phases.phase("backward"):
            loss.backward()

    counting.run(step)
    assert {(r.phase, r.forward_phase) for r in counting.select(is_recompute=True)} == {("backward", "forward")}
    assert counting.flop(phase="backward", direction="bwd", module_context="blocks.0.up") == ONE
    assert {r.forward_phase for r in counting.select(direction="bwd") if r.module_context} == {"forward"}


def test_checkpoint_with_random_numbers_and_sequences():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)) for _ in range(4)))
    x = torch.randn(ROWS, 8, requires_grad=True)

    def run(counting=None):
        torch.manual_seed(1)
        model.zero_grad()
        step = lambda: checkpoint_sequential(model, 2, x, use_reentrant=False).sum().backward()
        step() if counting is None else counting.run(step)
        return [p.grad.clone() for p in model.parameters()]

    counting = Counting(model)
    plain, counted = run(), run(counting)
    assert all(torch.equal(a, b) for a, b in zip(plain, counted, strict=True))
    assert counting.flop(direction="bwd") == 8 * ONE
    # the second half runs without a checkpoint, the first one again, up to the dropout after its last layer
    assert counting.flop(is_recompute=True) == 2 * ONE


def test_selective_checkpointing():
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    def policy(context, op, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if op == torch.ops.aten.addmm.default else CheckpointPolicy.PREFER_RECOMPUTE

    block = Block()
    counting = Counting(block)
    x = torch.randn(ROWS, 8, requires_grad=True)
    plain = torch.autograd.grad(block(x).sum(), x)[0]

    def step():
        out = checkpoint(block, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(policy))
        return torch.autograd.grad(out.sin().sum(), x)[0], torch.autograd.grad(block(x).sum(), x)[0]

    with counting.on():
        _, again = step()
    assert torch.equal(plain, again)
    # THEN products are saved, not done again
    assert counting.flop(is_recompute=True) == 0
    assert counting.flop(direction="fwd") == 4 * ONE


def test_an_error_in_recomputation_leaves_the_stacks_clean():
    class Late(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.calls = nn.Linear(8, 8), 0

        def forward(self, x):
            self.calls += 1
            h = self.inner(x)
            if self.calls > 1:
                raise ValueError("second run")
            return h.relu()

    late = Late()

    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.late = late

        def forward(self, x):
            return checkpoint(self.late, x, use_reentrant=False, early_stop=False)

    model = Holder()
    counting = Counting(model)
    with counting.on() as mode:
        with pytest.raises(ValueError, match="second run"):
            model(torch.randn(ROWS, 8, requires_grad=True)).sum().backward()
        assert counting.hooks.stack.open == [] and mode.attribution.running == []


def test_double_backward_through_a_checkpoint():
    block = Block()
    counting = Counting(block)
    x = torch.randn(ROWS, 8, requires_grad=True)

    def step(function):
        (gradient,) = torch.autograd.grad(function(x).pow(2).sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.pow(2).sum(), block.up.weight)[0]

    plain = step(block)
    counting.run(lambda: step(block))
    backward = counting.flop(direction="bwd")
    got = counting.run(lambda: step(lambda y: checkpoint(block, y, use_reentrant=False, early_stop=False)))
    assert torch.allclose(plain, got)
    assert counting.flop(is_recompute=True) > 0
    assert counting.flop(direction="bwd") == backward
    assert counting.flop(direction="bwd", module_context="") == 0
