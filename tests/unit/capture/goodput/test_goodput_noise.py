"""Statistics of gradients: formulas by hand, a known distribution, and hooks on small models against gradients worked out one by one."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from tb_sol_plugin.capture.goodput.gradients import Averages
from tb_sol_plugin.capture.goodput.steps import StepRecorder

torch = pytest.importorskip("torch", reason="measures gradients")
from tb_sol_plugin.capture.goodput.gradients import watch_gradients  # noqa: E402


def test_one_step_by_hand():
    # GIVEN two parts with gradients 3 and 1, a batch of twice M0: local (9 + 1)/2 = 5, total 2² = 4
    a = Averages()
    assert a.update([5.0], [4.0], 2, 2.0)
    # WHEN averaged THEN sqr = (2·4 - 5)/1 = 3, var = (5 - 4)·2/1 = 2, the first step whole
    assert a.grad_params() == pytest.approx((3.0, 2.0))
    # AND a second step weighs 1, the first 0.999²: by hand, with parts 1 and 1: sqr 1, var 0
    a.update([1.0], [1.0], 2, 2.0)
    keep = 0.999**2
    assert a.grad_params() == pytest.approx(((keep * 3 + 1) / (keep + 1), keep * 2 / (keep + 1)))


def test_groups_add_up_and_another_way_of_measuring_begins_anew():
    a = Averages()
    a.update([5.0, 1.0], [4.0, 1.0], 2, 1.0)
    assert a.grad_params() == pytest.approx((3.0 + 1.0, 1.0 + 0.0))
    a.update([5.0, 1.0], [4.0, 1.0], 2, 1.0, preconditioned=True)
    assert a.updates == 2 and a.weight == pytest.approx(0.001)
    # AND what is not finite, or is but one part, is left out
    assert not a.update([float("inf"), 1.0], [1.0, 1.0], 2, 1.0, preconditioned=True)
    assert not a.update([1.0, 1.0], [1.0, 1.0], 1, 1.0, preconditioned=True) and a.skipped == 2
    # AND its state goes through JSON
    assert Averages.of(json.loads(json.dumps(a.state()))).grad_params() == a.grad_params()
    for bad in ({}, {"sqr": 1}, {"sqr": ["x"], "var": [1.0], "weight": 0.5}, {"sqr": [1.0], "var": [1.0], "weight": 7.0}):
        assert Averages.of(bad).grad_params() is None


def test_a_known_distribution_is_found():
    # GIVEN gradients of single samples around (1, 2) with variance 3 in each of two directions: |G|² = 5, variance 6 per sample
    rng = random.Random(1)
    a = Averages()
    for _ in range(20_000):
        # WHEN 4 parts of 8 samples are measured, M0 = 16
        parts = [[rng.gauss(m, (3 / 8) ** 0.5) for m in (1, 2)] for _ in range(4)]
        mean = [sum(p[i] for p in parts) / 4 for i in (0, 1)]
        a.update([sum(x * x for p in parts for x in p) / 4], [sum(x * x for x in mean)], 4, 2.0)
    # THEN sqr is 5, and var 6/16, within what an average over 1/(1 - 0.998) steps scatters
    sqr, var = a.grad_params()
    assert sqr == pytest.approx(5, rel=0.05) and var == pytest.approx(6 / 16, rel=0.1)


def recorder(initial=8):
    steps = StepRecorder()
    steps.set_replicas(1, 1)
    steps.set_batch_sizes(initial)
    return steps


def small():
    return torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))


def model_and_data(micro):
    torch.manual_seed(1)
    model = small()
    return model, [[torch.randn(6, 5) for _ in range(micro)] for _ in range(9)]


def gradients(model, x):
    """Of a model like it, without hooks."""
    twin = small()
    twin.load_state_dict(model.state_dict())
    return torch.autograd.grad(twin(x).square().mean(), list(twin.parameters()))


def norm(grads, over=None):
    return sum(float(((g if over is None else g / o) ** 2).sum()) for g, o in zip(grads, over or grads, strict=True))


def train(model, optimizer, data, steps, *, divided=True, zero_first=False):
    """What a script does; the gradients that each micro-step had, worked out apart."""
    seen = []
    for batches in data:
        optimizer.zero_grad()
        seen.append([gradients(model, x) for x in batches])
        for k, x in enumerate(batches):
            steps.start(len(x))
            loss = model(x).square().mean()
            (loss / len(batches) if divided else loss).backward()
            if k == len(batches) - 1:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)  # too late to matter
                optimizer.step()
            steps.commit(k < len(batches) - 1)
    return seen


@pytest.mark.parametrize("divided", [True, False])
def test_micro_steps_of_one_replica(divided):
    # GIVEN three micro-steps of 6 samples per update, M0 = 8 WHEN trained THEN statistics are those of the gradients worked out apart
    model, data = model_and_data(3)
    steps = recorder()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watch = watch_gradients(model, optimizer, steps=steps, loss_divided=divided)
    expected = Averages()
    for micros in train(model, optimizer, data, steps, divided=divided):
        mean = [sum(parts) / 3 for parts in zip(*micros, strict=True)]
        expected.update([sum(map(norm, micros)) / 3], [norm(mean)], 3, 18 / 8)
    assert watch.averages.updates == 9 and not watch.averages.biased
    assert watch.averages.grad_params() == pytest.approx(expected.grad_params(), rel=1e-4)
    assert (steps.state.grad_sqr, steps.state.grad_var) == watch.averages.grad_params()


def test_a_penalty_on_gradients_counts_as_one_more_backward_pass():
    # GIVEN a watched model WHEN its gradients are asked for by torch.autograd.grad, and a loss with a penalty on them goes backward
    model, ((x,), *_) = model_and_data(1)
    steps = recorder()
    watch = watch_gradients(model, torch.optim.SGD(model.parameters(), 0.1), steps=steps)
    steps.start(len(x))
    loss = model(x).square().mean()
    grads = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    assert len(watch._local[0]) == 4
    (loss + sum(g.square().sum() for g in grads)).backward()
    # THEN the four parameters were measured twice
    assert len(watch._local[0]) == 8
    watch.remove()


def test_one_replica_alone_compares_successive_steps_and_says_so():
    model, data = model_and_data(1)
    steps = recorder()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watch = watch_gradients(model, optimizer, steps=steps)
    seen = [micros[0] for micros in train(model, optimizer, data, steps)]
    expected = Averages()
    for a, b in itertools.pairwise(seen):
        mean = [(x + y) / 2 for x, y in zip(a, b, strict=True)]
        expected.update([(norm(a) + norm(b)) / 2], [norm(mean)], 2, 2 * 6 / 8)
    assert watch.averages.updates == 8 and watch.averages.biased and steps.state.grad_biased
    assert watch.averages.grad_params() == pytest.approx(expected.grad_params(), rel=1e-4)
    # AND with every third update measured, pairs are still of successive ones: 2 and 3, 5 and 6 (the first has none before)
    steps = recorder()
    model, data = model_and_data(1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watch = watch_gradients(model, optimizer, steps=steps, every=3)
    seen = [micros[0] for micros in train(model, optimizer, data, steps)]
    expected = Averages()
    for a, b in ((seen[2], seen[3]), (seen[5], seen[6])):
        expected.update([(norm(a) + norm(b)) / 2], [norm([(x + y) / 2 for x, y in zip(a, b, strict=True)])], 2, 2 * 6 / 8)
    assert watch.averages.updates == 2 and watch.averages.grad_params() == pytest.approx(expected.grad_params(), rel=1e-4)


@pytest.mark.parametrize("kind", ["Adam", "AdamW"])
def test_after_five_updates_of_adam_its_scale_is_taken(kind):
    model, data = model_and_data(2)
    steps = recorder()
    optimizer = getattr(torch.optim, kind)(model.parameters(), 0.01, betas=(0.9, 0.95), eps=1e-6)
    watch = watch_gradients(model, optimizer, steps=steps)
    expected = Averages()
    square = [torch.zeros_like(p) for p in model.parameters()]
    for update in range(9):
        (micros,) = train(model, optimizer, data[update : update + 1], steps)
        mean = [sum(parts) / 2 for parts in zip(*micros, strict=True)]
        over = None
        if update >= 5:  # v as the optimizer has it, without its bias, as the textbook writes it
            square = [optimizer.state[p]["exp_avg_sq"].clone() for p in model.parameters()] if update == 0 else square
            over = [(v / (1 - 0.95**update)).sqrt() + 1e-6 for v in square]
        expected.update([sum(norm(m, over) for m in micros) / 2], [norm(mean, over)], 2, 12 / 8, preconditioned=update >= 5)
        square = [optimizer.state[p]["exp_avg_sq"].clone() for p in model.parameters()]
    assert watch.averages.preconditioned and watch.averages.grad_params() == pytest.approx(expected.grad_params(), rel=1e-4)


def test_groups_of_the_optimizer_add_up_to_the_whole():
    found = []
    for split in (False, True):
        model, data = model_and_data(2)
        steps = recorder()
        params = list(model.parameters())
        optimizer = torch.optim.SGD([{"params": params[:1]}, {"params": params[1:]}] if split else params, 0.1)
        watch = watch_gradients(model, optimizer, steps=steps)
        train(model, optimizer, data, steps)
        assert len(watch.averages.sqr) == 1 + split
        found.append(watch.averages.grad_params())
    assert found[0] == pytest.approx(found[1], rel=1e-4)


def test_hooks_change_nothing_and_go():
    losses = []
    for watched in (False, True):
        model, data = model_and_data(2)
        steps = recorder()
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        watch = watch_gradients(model, optimizer, steps=steps) if watched else None
        train(model, optimizer, data, steps)
        losses.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*losses, strict=True))
    watch.remove()
    assert not steps.on_commit and not model._forward_hooks and all(not p._backward_hooks for p in model.parameters())


def test_an_exception_in_training_and_one_in_a_hook(monkeypatch):
    model, data = model_and_data(1)
    steps = recorder()
    watch = watch_gradients(model, None, steps=steps)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    # GIVEN a backward pass that fails WHEN the next ones go well THEN they are measured
    steps.start(6)
    handle = next(model.parameters()).register_hook(lambda grad: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model(data[0][0]).square().mean().backward()
    handle.remove()
    steps.commit()
    train(model, optimizer, data, steps)
    assert watch.averages.updates >= 7
    # GIVEN a measurement that fails WHEN trained THEN training goes on without it
    monkeypatch.setattr(watch.averages, "update", lambda *_, **__: 1 / 0)
    train(model, optimizer, data, steps)
    assert not steps.on_commit and steps.state.profile[1, 1, 6].optim_count == 19


def test_without_the_first_batch_size_nothing_is_used():
    model, data = model_and_data(2)
    steps = StepRecorder()
    steps.set_replicas(1, 1)
    watch = watch_gradients(model, None, steps=steps)
    train(model, torch.optim.SGD(model.parameters(), 0.1), data, steps)
    assert watch.averages.updates == 0 and steps.state.grad_sqr is None


@pytest.mark.parametrize("micro", [1, 2])
def test_the_factor_of_a_scaler_is_taken_out(micro):
    # GIVEN a scaler whose factor doubles after each update WHEN trained THEN statistics are those without it
    found = []
    for scaled in (False, True):
        model, data = model_and_data(micro)
        steps = recorder()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=1, enabled=scaled)
        watch = watch_gradients(model, optimizer, steps=steps, scaler=scaler)
        for batches in data:
            optimizer.zero_grad()
            for k, x in enumerate(batches):
                steps.start(len(x))
                scaler.scale(model(x).square().mean() / micro).backward()
                if k == micro - 1:
                    scaler.step(optimizer)
                    scaler.update()
                steps.commit(k < micro - 1)
        found.append(watch.averages.grad_params())
    assert found[1] == pytest.approx(found[0], rel=1e-4) and watch.averages.updates >= 8


def test_a_sum_that_does_not_arrive_is_reported_as_what_it_is_and_measuring_goes_on_when_it_does(caplog):
    # GIVEN two replicas, and a sum of theirs that was sent a minute ago
    class Sum:
        shared, age, there = True, 61.0, False
        newest = oldest = 7
        gap = 2
        values, about = (5.0, 4.0), (2, 2.0, False, False)

        def done(self, seconds):
            return self.there

    model, _ = model_and_data(1)
    steps = recorder()
    steps.set_replicas(1, 2)
    watch = watch_gradients(model, None, steps=steps)
    watch._processes, sent = object(), Sum()
    watch._pending.append(sent)
    # WHEN updates begin THEN none is measured, and the log says once why
    watch._updates = 8
    for _ in range(3):
        watch._resolve()
        assert not watch._choose()
    assert caplog.text.count("for 61 s the sum over replicas of an update's gradients has not arrived") == 1 and "ended" not in caplog.text
    # AND once it is there, it counts, and the update that it names is measured
    sent.there = True
    watch._resolve()
    assert watch.averages.updates == 1 and not watch._choose()
    watch._updates = 9
    assert watch._choose() and steps.on_commit
