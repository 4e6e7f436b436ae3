"""A recorded training run of a known decoder against closed forms, and its peak against torch's own tracker."""

from __future__ import annotations

import gc
from functools import cache
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import tb_sol_plugin as sol  # noqa: E402
from tb_sol_plugin import ingest  # noqa: E402
from tb_sol_plugin.cost.transformer.memory import Layout, stages  # noqa: E402
from tb_sol_plugin.metrics.memory.budget import budget, totals  # noqa: E402
from tb_sol_plugin.metrics.memory.curves import curves  # noqa: E402
from tb_sol_plugin.model.report import Report  # noqa: E402
from tests.support.small_llama import MODEL, PARAMETERS, TENSORS, Masters, backward, small_llama  # noqa: E402

QUIET = {"tensorboard": False, "console": False, "wandb": False}
N = PARAMETERS


def recorded(folder: Path, model, optimizer, step):
    """The capture of two steps; the second one is looked at between its parts."""
    with sol.capture(str(folder), model=model, optimizer=optimizer, every_n_steps=0, **QUIET) as tracker:
        for k in range(2):
            backward(model)
            if k == 1 and not isinstance(optimizer, Masters):
                tracker.record_memory("look")
            step()
            if k == 1 and isinstance(optimizer, Masters):  # the masters' gradients are made within the step
                tracker.record_memory("look")
            optimizer.zero_grad()
            tracker.step()
    (path,) = folder.glob("*.sol.jsonl")
    return ingest.read(str(path))


def parts_of(capture) -> dict[str, int]:
    """Bytes by category of the one record, those of 0 left out; and the check that they add up."""
    found, whole = budget(capture), totals(capture)
    assert whole["record"].tolist() == [0] and int(found["bytes"].sum()) == int(whole["total"].iloc[0])
    held = {str(c): int(b) for c, b, known in zip(found["category"], found["bytes"], found["known"], strict=True) if known and b}
    assert held.pop("unknown") == int(whole["unknown"].iloc[0])
    return held


def test_fp32_with_adam(tmp_path: Path) -> None:
    # GIVEN the decoder in FP32 THEN it has as many parameters as the closed form says
    model = small_llama()
    assert sum(p.numel() for p in model.parameters()) == N == MODEL.parameters == 151_872 and len(list(model.parameters())) == TENSORS
    # WHEN it is trained with Adam THEN parameters, gradients and both moments take 4 bytes each, and every tensor has a count
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    held = parts_of(recorded(tmp_path, model, optimizer, optimizer.step))
    assert held == {"params": 4 * N, "grads": 4 * N, "exp_avg": 4 * N, "exp_avg_sq": 4 * N, "other_optimizer": 4 * TENSORS}
    # AND that is what is expected of one device
    (stage,) = stages(MODEL, Layout(number="fp32"))
    assert (stage.parameter_bytes, stage.gradient_bytes, stage.optimizer_bytes) == (4 * N, 4 * N, 8 * N)
    assert stage.master_bytes == stage.main_gradient_bytes == 0


def test_bf16_with_fp32_masters(tmp_path: Path) -> None:
    # GIVEN the decoder in BF16, Adam over FP32 copies of its parameters, and FP32 copies of its gradients
    model = small_llama(half=True)
    optimizer = Masters(model)
    capture = recorded(tmp_path, model, optimizer, optimizer.step)
    # THEN parameters and gradients take 2 bytes, all that the optimizer works with takes 4
    held = parts_of(capture)
    assert held == {
        "params": 2 * N, "grads": 2 * N, "main_grads": 4 * N, "master_weights": 4 * N, "exp_avg": 4 * N, "exp_avg_sq": 4 * N,
        "other_optimizer": 4 * TENSORS,
    }  # fmt: skip
    # AND that is what is expected of one device whose gradients are made in 16 bits
    (stage,) = stages(MODEL, Layout(number="fp16"))
    assert held["params"] == stage.parameter_bytes and held["grads"] == stage.gradient_bytes
    assert held["main_grads"] == stage.main_gradient_bytes and held["master_weights"] == stage.master_bytes
    assert held["exp_avg"] + held["exp_avg_sq"] == stage.optimizer_bytes


@cache
def peak_of_memtracker(half: bool) -> int:
    """Bytes in use at most in the second of two steps, as torch's own tracker has them, which sees the storages of all tensors."""
    tools = pytest.importorskip("torch.distributed._tools.mem_tracker", reason="MemTracker needs torch 2.5 or newer")
    model = small_llama(half=half)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    tracker = tools.MemTracker()
    tracker.track_external(model, optimizer)
    with tracker:
        for _ in range(2):
            backward(model)
            optimizer.step()
            optimizer.zero_grad()
            tracker.reset_mod_stats()
    found = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
    return next(size for kind, size in found.items() if str(getattr(kind, "value", kind)) == "Total")


@pytest.mark.parametrize("half", [False, True])
def test_the_peak_of_a_trace_is_that_of_memtracker(tmp_path: Path, half: bool) -> None:
    peak = peak_of_memtracker(half)
    gc.collect()  # what earlier profilers saw made should not be freed under the next one
    # GIVEN two steps, from the making of the model on, under the profiler, which sees what the allocator gives
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        model = small_llama(half=half)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        for _ in range(2):
            backward(model)
            optimizer.step()
            optimizer.zero_grad()
    profiler.export_chrome_trace(str(tmp_path / "a.pt.trace.json"))
    # THEN the peaks differ by less than 2 %. Totals of the host go on from one profiler to the next: what was there before is not ours
    (curve,) = curves(ingest.read(str(tmp_path / "a.pt.trace.json")))
    assert not curve.relative and curve.before >= 0
    assert curve.peak - curve.before == pytest.approx(peak, rel=0.02)
    # AND it is made of more than parameters and moments: each is 2 or 4 bytes
    assert peak > 3 * N * (2 if half else 4)


@pytest.mark.parametrize("half", [False, True])
def test_the_peak_of_a_tracked_run_is_that_of_memtracker(tmp_path: Path, half: bool) -> None:
    peak = peak_of_memtracker(half)
    gc.collect()
    # GIVEN a tracked run with records of memory and a trace of its third step, which sees nothing of what was made before
    model = small_llama(half=half)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    options = {"every_n_steps": 10, "memory": True, "memory_every": 1, "profile": True, "traces": 1, "trace_stacks": False}
    with sol.capture(str(tmp_path), model=model, optimizer=optimizer, **options, **QUIET) as tracker:
        for _ in range(4):
            backward(model)
            optimizer.step()
            optimizer.zero_grad()
            tracker.step()
    # WHEN both are read together THEN what the program counted and what the trace saw added is the peak, within 2 %, and marked so
    report = sol.open(str(tmp_path), cache=False).analyze("memory_expected")
    assert isinstance(report, Report)
    row = report.table("parts").set_index("part").loc["in use at most"]
    assert row["actual_bytes"] == report.facts["actual_bytes"] == pytest.approx(peak, rel=0.02)
    assert row["source"] == "records of the program and the trace"
