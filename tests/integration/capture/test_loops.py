"""Plain, mixed-precision, accumulating and checkpointed loops: the work is that of the architecture, and the numbers are untouched."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.support.sol_reading import only
from tests.support.training_loops import FORWARD, phase, plain, run, same, tokens_of_toy, toy

torch = pytest.importorskip("torch", reason="records training loops")


def loss_of(model: Any, tokens: Any) -> Any:
    return torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


def autocast(scaler_enabled: bool) -> Any:
    scaler = torch.amp.GradScaler("cpu", enabled=scaler_enabled)

    def step(model: Any, optimizer: Any, tracker: Any) -> Any:
        with phase(tracker, "forward"), torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model, tokens_of_toy())
        with phase(tracker, "backward"):
            scaler.scale(loss).backward()
        with phase(tracker, "optimizer"):
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def accumulating(model: Any, optimizer: Any, tracker: Any) -> Any:
    for _ in range(3):
        with phase(tracker, "forward"):
            loss = loss_of(model, tokens_of_toy()) / 3
        with phase(tracker, "backward"):
            loss.backward()
    with phase(tracker, "optimizer"):
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss


def both(tmp_path: Path, step: Any, model: Any, **options: Any) -> None:
    """Run the loop untracked and tracked on copies of a model; the results must be equal bit for bit."""
    untracked = run(copy.deepcopy(model), step)
    assert same(run(model, step, logdir=tmp_path, **options), untracked)


def test_a_plain_loop_has_the_work_of_the_closed_form(tmp_path: Path) -> None:
    # GIVEN the toy WHEN three steps are trained, every one sampled THEN losses and parameters are those of an untracked run
    both(tmp_path, plain, toy())
    recorded = only(tmp_path)
    # AND each step has the FLOP of the closed form, forward in "forward", twice that in "backward", none without a module
    assert recorded.sampled == [0, 1, 2] and recorded.closed
    for n in recorded.sampled:
        assert recorded.flop(n, backward=False) == FORWARD
        assert recorded.flop(n) == 3 * FORWARD
        assert {row.phase for row in recorded.ledgers[n] if row.flop} == {"forward", "backward"}
        assert {row.forward_phase for row in recorded.ledgers[n] if row.flop and row.backward} == {"forward"}
        assert recorded.flop(n, module="") == 0
        assert not any(s.get("lost") for s in recorded.steps)
    # AND the phases lie inside the step, one after the other
    for n, step in enumerate(recorded.steps):
        times = recorded.phase_times[n]
        assert [name for name, *_ in times] == ["forward", "backward", "optimizer"]
        assert all(a[1] + a[2] <= b[1] for a, b in itertools.pairwise(times))
        assert times[0][1] >= step["start_ns"] and times[-1][1] + times[-1][2] <= step["start_ns"] + step["duration_ns"]


def test_linear_layers_cost_twice_as_much_backward(tmp_path: Path) -> None:
    # GIVEN a tracked step of the toy WHEN its FLOP are summed per layer THEN backward of every layer is twice its forward
    run(toy(), plain, steps=2, logdir=tmp_path)
    recorded = only(tmp_path)
    names = {row.module[-1] for row in recorded.ledgers[1] if row.flop and row.sig["op"] in ("aten::mm", "aten::addmm")}
    assert len(names) == 4 * 5 + 1
    for name in names:
        forward, backward = (
            sum(r.flop or 0 for r in recorded.ledgers[1] if r.module and r.module[-1] == name and r.backward is b) for b in (False, True)
        )
        assert backward == 2 * forward > 0, name


@pytest.mark.parametrize("scaler", [False, True])
def test_autocast_has_products_in_bf16(tmp_path: Path, scaler: bool) -> None:
    # GIVEN autocast to bf16 with a gradient scaler on or off WHEN tracked THEN same bits, same FLOP, and the products are bf16
    both(tmp_path, autocast(scaler), toy())
    recorded = only(tmp_path)
    assert recorded.flop(1) == 3 * FORWARD
    assert {row.sig["dtype"] for row in recorded.ledgers[1] if row.flop} == {"bf16"}


def test_accumulated_gradients_have_the_work_of_all_batches(tmp_path: Path) -> None:
    # GIVEN three batches per step WHEN tracked THEN a step has three times the work, in the same rows
    both(tmp_path, accumulating, toy())
    recorded = only(tmp_path)
    assert recorded.flop(1) == 9 * FORWARD
    # AND each phase is there once per batch, and all of them are of one iteration
    assert [name for name, *_ in recorded.phase_times[1]] == ["forward", "backward"] * 3 + ["optimizer"]
    assert len(recorded.steps) == 3


class Checkpointed(torch.nn.Module):
    """The toy whose blocks run again in the backward pass."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.inner, self.reentrant = toy(), reentrant

    def forward(self, tokens: Any) -> Any:
        from torch.utils.checkpoint import checkpoint

        x = self.inner.embed(tokens)
        for block in self.inner.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.inner.head(self.inner.norm(x))


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_counts_the_second_forward_apart(tmp_path: Path, reentrant: bool) -> None:
    # GIVEN the toy with every block checkpointed WHEN tracked THEN same bits
    both(tmp_path, plain, Checkpointed(reentrant))
    recorded = only(tmp_path)
    head = 2 * 128 * 128 * 1000
    for n in recorded.sampled:
        # AND forward and backward count what they count without checkpoints; the second forward of the blocks is counted apart.
        # Without reentry the last product of a block is not run again: nothing saved comes after it (early stop).
        assert recorded.flop(n, backward=False, recompute=False) == FORWARD
        assert recorded.flop(n, backward=True) == 2 * FORWARD
        down = 2 * 128 * 512 * 128
        assert recorded.flop(n, recompute=True) == FORWARD - head - (0 if reentrant else 4 * down)
        # AND every product, also a repeated one, has its layer
        assert recorded.flop(n, module="") == 0
        again = [row for row in recorded.ledgers[n] if row.recompute]
        assert again and not any(row.backward for row in again) and {row.phase for row in again} == {"backward"}
        assert all(any(name.startswith("inner.blocks") for name in row.module) for row in again if row.flop)


def test_an_unsampled_step_leaves_model_and_torch_alone(tmp_path: Path) -> None:
    # GIVEN functions and hooks as they are before tracking
    model = toy()
    before = {name: getattr(torch.nn.functional, name) for name in ("linear", "layer_norm", "embedding", "softmax", "log_softmax")}
    seen: list[tuple[bool, bool, bool]] = []

    def step(model: Any, optimizer: Any, tracker: Any) -> Any:
        hooked = any(m._forward_hooks or m._forward_pre_hooks for m in model.modules() if m is not model) or bool(model._forward_hooks)
        patched = any(getattr(torch.nn.functional, name) is not f for name, f in before.items())
        mode = torch._C._len_torch_dispatch_stack() > 0
        seen.append((hooked, patched, mode))
        return plain(model, optimizer, tracker)

    # WHEN seven steps run with every third one sampled
    run(model, step, steps=7, logdir=tmp_path, every_n_steps=3)
    # THEN steps 0, 1, 3 and 6 are sampled, and only they have hooks, patches and a dispatch mode; sizes of inputs are noted at the root alone
    assert only(tmp_path).sampled == [0, 1, 3, 6]
    assert seen == [(n in (0, 1, 3, 6),) * 3 for n in range(7)]
    # AND afterwards everything is the very object it was
    assert all(getattr(torch.nn.functional, name) is f for name, f in before.items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert torch._C._len_torch_dispatch_stack() == 0


def test_an_exception_in_a_step_passes_and_leaves_nothing_behind(tmp_path: Path) -> None:
    # GIVEN a loop that fails in its second step, inside two nested phases; both steps are sampled
    done: list[int] = []

    def step(model: Any, optimizer: Any, tracker: Any) -> Any:
        if not done:
            done.append(1)
            return plain(model, optimizer, tracker)
        with phase(tracker, "forward"), phase(tracker, "forward/loss"):
            raise KeyError("from the loop")

    model = toy()
    # WHEN it runs THEN its own exception comes out, and hooks, mode and file are put away
    with pytest.raises(KeyError, match="from the loop"):
        run(model, step, logdir=tmp_path)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert torch._C._len_torch_dispatch_stack() == 0
    recorded = only(tmp_path)
    assert recorded.closed and len(recorded.steps) == 1
