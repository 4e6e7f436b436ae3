"""Sizes of inputs in iterations that are not sampled: other sizes are other work, and nothing stays on the model."""

from __future__ import annotations

import copy
import io
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

import tb_sol_plugin as sol
from tests.support.captures import report
from tests.support.sol_reading import only

torch = pytest.importorskip("torch", reason="tracks training loops")
from tb_sol_plugin.capture.hooks import inputs  # noqa: E402  (needs torch)
from tb_sol_plugin.capture.hooks.inputs import InputWatch  # noqa: E402
from tb_sol_plugin.capture.loop.schedule import Schedule  # noqa: E402
from tb_sol_plugin.capture.tracker import SOLTracker  # noqa: E402

QUIET: dict[str, Any] = {"tensorboard": False, "wandb": False, "console": False}


class Net(torch.nn.Module):
    """Takes token ids by position, and anything else by name."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = torch.nn.Embedding(32, 16), torch.nn.Linear(16, 32)

    def forward(self, ids: Any, mask: Any = None, **more: Any) -> Any:
        out = self.head(self.embed(ids))
        return out if mask is None else out * mask[..., None]


def ids(samples: int, length: int = 16) -> Any:
    return torch.arange(samples * length).view(samples, length) % 32


def run(tracker: SOLTracker, model: Any, batches: list[int]) -> None:
    for samples in batches:
        model(ids(samples)).sum().backward()
        tracker.step()


def test_a_large_batch_between_samples_is_other_work(tmp_path: Path) -> None:
    # GIVEN batches of 8, and three of 512 between two samples
    model = Net()
    with SOLTracker(every_n_steps=10, logdir=str(tmp_path), device="H100_SXM", **QUIET) as t:
        t.initialize(model)
        run(t, model, [8] * 14 + [512] * 3 + [8] * 5 + [512] + [8] * 2)
    recorded = only(tmp_path)
    small, large = (recorded.steps[at]["signature"] for at in (13, 14))
    # THEN they are no work of the same sizes, and have their samples and tokens; the second of them is sampled
    assert small and large and small != large
    assert [s["signature"] for s in recorded.steps] == [small] * 14 + [large] * 3 + [small] * 5 + [large] + [small] * 2
    assert [s["batch"] for s in recorded.steps[13:18]] == [8, 512, 512, 512, 8] and recorded.steps[14]["tokens"] == 512 * 16
    assert recorded.sampled == [0, 1, 10, 15, 20]
    assert recorded.flop(15) == 64 * recorded.flop(10)
    # AND the page knows the work of each but the first of them, which came before it was counted
    (path,) = tmp_path.glob("*.sol.jsonl")
    table = report(sol.open_capture(str(path)), "iterations").table("iterations").set_index("iteration")
    assert table["work"][[13, 15, 16, 17, 22]].tolist() == ["repeated", "sampled", "repeated", "repeated", "repeated"]
    assert table["work"][14] not in ("sampled", "repeated") and table["flop"].isna()[14]
    assert table["flop"][22] == recorded.flop(15) and table["flop"][17] == recorded.flop(10)


def test_the_live_figures_go_back_to_the_work_of_a_size_that_comes_again() -> None:
    model, found = Net(), []
    with SOLTracker(every_n_steps=10, device="H100_SXM", **QUIET) as t:
        t.initialize(model)
        for samples in [8] * 12 + [512] * 3 + [8] * 2:
            model(ids(samples)).sum().backward()
            t.step()
            assert t.analysis is not None
            found.append((t.analysis.iteration, t.analysis.total.flops))
    assert found[14][1] == 64 * found[11][1] and found[16] == (16, found[11][1])


def test_signatures_are_those_of_sampled_iterations() -> None:
    # GIVEN inputs in tuples, lists, dicts, by name, of several types and without any tensor
    x = torch.zeros(4, 8)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((ids(2),), {}), ((ids(2), torch.ones(2, 16)), {}), ((ids(3),), {"mask": torch.ones(3, 16), "more": [x, {"deep": (x, 1)}]}),
        ((ids(1),), {"flag": True, "none": None, "map": OrderedDict(a=x.half())}),
    ]  # fmt: skip
    model = Net()
    with SOLTracker(every_n_steps=1, **QUIET) as t:
        t.initialize(model)
        for training in (True, False):
            watch = InputWatch()
            watch.attach([model.train(training)])
            for args, kwargs in calls:
                t.start_step()
                model(*args, **kwargs)
                seen = t.instrumentation.sizes
                # THEN both ways say the same of them, alone and together
                assert watch.inputs() == (seen.signature, seen.samples, seen.tokens) or not training
                assert inputs.inputs_of(watch.seen)[0] == seen.signature
                watch.seen.clear()
            watch.remove()


def test_evaluation_is_no_part_of_the_sizes() -> None:
    seen = [(True, torch.Size((2, 16)), torch.int64), (False, torch.Size((64, 16)), torch.int64)]
    assert inputs.inputs_of(seen) == inputs.inputs_of(seen[:1]) != inputs.inputs_of(seen[1:])
    assert inputs.inputs_of(seen[1:])[1:] == (None, None)


def test_sizes_that_never_come_again_do_not_have_each_iteration_sampled() -> None:
    model = Net()
    sampled = []
    with SOLTracker(every_n_steps=20, **QUIET) as t:
        t.initialize(model)
        for samples in range(1, 101):
            sampled.append(t.sampled)
            model(ids(samples)).sum().backward()
            t.step()
    # THEN in 100 iterations 6 are sampled by the schedule, 4 at once as of a new size, and one more each 20
    assert sum(sampled) == 6 + 4 + 4
    schedule = Schedule(0, report=1)
    schedule.unseen()
    assert not schedule.owed


def test_the_hook_leaves_nothing_behind_and_hinders_nobody(tmp_path: Path) -> None:
    model = Net()
    tracker = SOLTracker(every_n_steps=100, logdir=str(tmp_path), **QUIET)
    tracker.initialize(model)
    run(tracker, model, [8] * 5)
    # GIVEN a model in the middle of a run: one hook, on the outermost module
    assert [m for m in model.modules() if m._forward_pre_hooks] == [model]
    # WHEN it is copied, pickled, scripted and traced THEN all of that works, and the copies have no hook that does anything
    twin = copy.deepcopy(model)
    twin(ids(2))
    assert not twin._forward_pre_hooks
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(ids(2)), model(ids(2)))
    torch.jit.script(torch.nn.Sequential(model.head))
    scripted = torch.jit.script(torch.nn.Sequential(model.embed))
    assert torch.equal(scripted(ids(2)), model.embed(ids(2)))
    # AND another model takes its place, and its end takes it off
    other = Net()
    tracker.initialize(other)
    run(tracker, other, [8] * 3)
    assert not model._forward_pre_hooks and other._forward_pre_hooks
    tracker.close()
    assert not other._forward_pre_hooks and not other._forward_pre_hooks_with_kwargs


def test_a_watched_model_is_scripted() -> None:
    model = torch.nn.Linear(4, 4)
    with SOLTracker(every_n_steps=100, **QUIET) as t:
        t.initialize(model)
        for _ in range(4):
            model(torch.ones(2, 4)).sum().backward()
            t.step()
        assert model._forward_pre_hooks
        assert torch.equal(torch.jit.script(model)(torch.ones(2, 4)), model(torch.ones(2, 4)))


def test_a_compiled_model_has_no_hook() -> None:
    model = Net()
    with SOLTracker(every_n_steps=100, **QUIET) as t:
        t.initialize(torch.compile(model, backend="eager"))
        for _ in range(4):
            model(ids(2)).sum().backward()
            t.step()
            assert t.sampled or not model._forward_pre_hooks
    watch = InputWatch()
    watch.attach([model])
    # AND one that is compiled later runs as it did, without a break
    whole = torch.compile(model, backend="eager", fullgraph=True)
    assert torch.equal(whole(ids(2)), model(ids(2)))
    watch.remove()


def test_an_iteration_without_end_keeps_little() -> None:
    model = Net()
    watch = InputWatch()
    watch.attach([model])
    model.embed, model.head = torch.nn.Identity(), torch.nn.Identity()
    for _ in range(inputs.MOST_CALLS + 10):
        model(1)
    assert len(watch.seen) == inputs.MOST_CALLS and watch.inputs() is None
    watch.remove()


def test_training_is_the_same_with_the_hook() -> None:
    found = []
    for tracked in (False, True):
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters())
        with SOLTracker(every_n_steps=7 if tracked else 0, **QUIET) as t:
            t.initialize(model)
            for at in range(30):
                model(ids(2 + at % 3)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                t.step()
        found.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
