"""Batch sizes that are proposed from a known model of goodput, within limits, and what changes once one is applied."""

from __future__ import annotations

import json
import math

import pytest

from tb_sol_plugin.capture.goodput.state import Counts, Key
from tb_sol_plugin.capture.goodput.steps import StepRecorder

torch = pytest.importorskip("torch", reason="scales learning rates")
from tb_sol_plugin.capture import AdaptiveBatchSize, ElasticSampler  # noqa: E402
from tb_sol_plugin.capture.goodput.adaptive import lr_factor  # noqa: E402

# 10 ms and 1 ms per sample; the noise is worth many times the first batch size: large batches are good
PERF = (0.01, 0.001, 1e-8, 1e-8, 1e-8, 1e-8, 1.0)


def made(*, ran=8, most=256, bounds=(1, 64), accumulation=True, noise=(1.0, 100.0), memory=None, optimizer=None, rule=None, batch=8):
    steps = StepRecorder()
    steps.set_replicas(1, 1)
    steps.set_batch_sizes(8, most, bounds, accumulation)
    steps.state.perf_params = PERF
    steps.state.profile[Key(1, 1, ran)] = Counts(0.0, 0, 1.0, 0.0, 10, 10, 1.0)
    if noise:
        steps.set_grad_params(*noise)
    sampler = ElasticSampler(1000, batch)
    return AdaptiveBatchSize(sampler, optimizer, rule=rule, memory=memory or (lambda: None), steps=steps), sampler, steps


def test_the_best_sizes_are_those_of_the_goodput_function_and_nothing_changes():
    # GIVEN a fit, 64 samples of a micro-step tried WHEN asked THEN the proposal is the optimum of the same function
    adaptive, sampler, steps = made(ran=64)
    found, goodput = adaptive.propose(), steps.goodput_fn()
    best = goodput.optimize(1, 1, 256, (1, 64), True, strict=True)
    assert (found.goodput, found.atomic_bsz, found.accum_steps) == tuple(best) and found.batch_size > 8
    assert found.gain == pytest.approx(best.goodput / goodput.evaluate(1, 1, 8, 0)) and found.gain > 1
    assert found.lr_factor == pytest.approx(found.batch_size / 8 * goodput.efficiency(found.batch_size))
    # AND nothing has changed
    assert (sampler.batch_size, sampler.accum_steps, adaptive.applied, adaptive.factor(64)) == (8, 0, False, 1.0)


def test_limits_by_hand():
    # GIVEN 8 samples tried THEN a micro-step has at most twice as many
    found = made(ran=8)[0].propose()
    assert found.atomic_bsz == 16 and found.limit == "the largest one tried" and found.accum_steps > 0
    # GIVEN 100 bytes between steps and 2,660 at the peak of 64 samples, 40 a sample, where 1,000 may be had: (900 - 100)/40 = 20
    for usable, most, limit in ((1000, 20, "memory"), (10_000, 32, "local_bsz_bounds")):
        adaptive = made(ran=64, bounds=(1, 32), memory=lambda usable=usable: (100, 2660, usable))[0]
        assert adaptive._most() == (usable * 0.9 - 100) // 40
        found = adaptive.propose()
        assert most - 2 < found.atomic_bsz <= most and found.limit == limit
    # AND the total has its own
    found = made(ran=64, most=24, bounds=None)[0].propose()
    assert found.batch_size <= 24 and found.limit == ""
    # AND without accumulation there is none
    adaptive, sampler, _ = made(ran=64, accumulation=False)
    sampler.num_replicas = 2
    assert adaptive.propose().accum_steps == 0


def test_sizes_that_are_as_good_stay():
    # GIVEN gradients without noise: a larger batch is worth nothing WHEN asked THEN the sizes are those now
    found = made(ran=64, noise=(1.0, 0.0), accumulation=False)[0].propose()
    assert (found.atomic_bsz, found.accum_steps, found.gain, found.lr_factor) == (8, 0, 1.0, 1.0)
    # AND sizes below the first batch size are no choice
    assert made(ran=64, batch=4)[0].propose().gain == math.inf


def test_without_a_fit_or_statistics_there_is_none_and_the_reason_is_logged(caplog):
    adaptive, _, steps = made(noise=None)
    assert adaptive.propose() is None and "watch_gradients" in caplog.text
    adaptive, _, steps = made(bounds=(200, 256), memory=lambda: (0, 80, 100))  # 9 samples fit
    assert adaptive.propose() is None and "none from init_batch_size 8 to 256 fits" in caplog.text
    adaptive, _, steps = made()
    steps.goodput_fn = lambda **_: 1 / 0
    assert adaptive.propose() is None and "ZeroDivisionError" in caplog.text


def test_factors_by_hand():
    # AdaScale with variance 3 and norm 1 at four times the batch: (3 + 1)/(3/4 + 1) = 16/7; no noise: 1; noise alone: 4
    assert lr_factor("adascale", 4.0, 1.0, 3.0) == pytest.approx(16 / 7)
    assert lr_factor("adascale", 4.0, 1.0, 0.0) == 1.0 and lr_factor("adascale", 4.0, 0.0, 3.0) == 4.0
    assert lr_factor("adascale", 4.0, 0.0, 0.0) == 1.0 and lr_factor("square_root", 4.0, 1.0, 3.0) == 2.0
    with pytest.raises(ValueError, match="rule"):
        made(rule="linear")


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_an_applied_size_scales_the_rates_of_steps_of_that_size(kind):
    # GIVEN an optimizer with two groups and a scheduler
    params = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizer = getattr(torch.optim, kind)([{"params": params[:1], "lr": 0.1}, {"params": params[1:], "lr": 0.2}])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    adaptive, sampler, _ = made(ran=64, optimizer=optimizer)
    assert adaptive.rule == ("square_root" if kind == "AdamW" else "adascale")
    batches = iter(sampler)

    def train():
        next(batches)
        while not sampler.last:
            sampler.advance()
            next(batches)
        for p in params:
            p.grad = torch.ones(1)
        optimizer.step()
        scheduler.step()
        sampler.advance()

    next(batches)  # an update of the old size is given out
    proposal = adaptive.propose()
    # WHEN applied THEN its step keeps its rate, the next one has another, and the scheduler sees its own
    within = []
    adaptive.apply(proposal)
    optimizer.register_step_pre_hook(lambda o, *_: within.append([g["lr"] for g in o.param_groups]))
    for p in params:
        p.grad = torch.ones(1)
    optimizer.step()
    sampler.advance()
    scheduler.step()
    train()
    factor = adaptive.factor(proposal.batch_size)
    assert factor == pytest.approx(proposal.lr_factor) and factor > 1
    assert within[0] == pytest.approx([0.1, 0.2]) and within[1] == pytest.approx([0.05 * factor, 0.1 * factor])
    assert [g["lr"] for g in optimizer.param_groups] == pytest.approx([0.025, 0.05]) and scheduler.get_last_lr() == pytest.approx([0.025, 0.05])
    # AND its state goes through JSON, and a restart scales on
    adaptive.remove()
    again, sampler, _ = made(batch=proposal.atomic_bsz, optimizer=optimizer)
    again.load_state_dict(json.loads(json.dumps(adaptive.state_dict())))
    assert again.factor(proposal.batch_size) == factor and len(again._handles) == 2
    again.remove()


def test_a_step_that_fails_leaves_the_rates_as_they_were_at_the_next():
    p = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([p], 0.1)
    adaptive, _, _ = made(ran=64, optimizer=optimizer)
    adaptive.apply(adaptive.propose())
    p.grad = torch.ones(1)
    with pytest.raises(ZeroDivisionError):
        optimizer.step(lambda: 1 / 0)
    optimizer.step()
    assert optimizer.param_groups[0]["lr"] == 0.1
    # AND a run without the helper is not touched
    adaptive.remove()
    assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks
