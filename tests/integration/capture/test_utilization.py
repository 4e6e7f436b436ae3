"""MFU and HFU of fused attention in closed form, by every way to them: the recorder's own, its file, a profiler's trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="records training loops")
import tb_sol_plugin as sol  # noqa: E402  (needs torch)
from tb_sol_plugin.metrics.work.sums import performed  # noqa: E402
from tb_sol_plugin.metrics.work.work import work  # noqa: E402
from tests.support.torch_models import recorded, transformer  # noqa: E402

LIMITS = str(Path(__file__).resolve().parents[3] / "samples" / "sol_devices.json")
BATCH, LENGTH, LAYERS, WIDTH, HEADS, HIDDEN, VOCAB = 2, 24, 2, 32, 4, 96, 40
ROWS = BATCH * LENGTH
LINEAR = LAYERS * 2 * ROWS * (4 * WIDTH * WIDTH + 2 * WIDTH * HIDDEN) + 2 * ROWS * WIDTH * VOCAB
"""Forward products: q, k, v and o, up and down of each block, and the head."""
PRODUCT = LAYERS * 2 * BATCH * HEADS * (LENGTH * LENGTH // 2) * (WIDTH // HEADS)
"""One of the products of attention over half of the pairs: two forward, four backward, and the scores once more."""
MODEL, HARDWARE = 3 * LINEAR + 6 * PRODUCT, 3 * LINEAR + 7 * PRODUCT


def job() -> Any:
    model = transformer(
        layers=LAYERS, width=WIDTH, heads=HEADS, kv_heads=HEADS, hidden=HIDDEN, vocab=VOCAB, gated=False, causal=True, fused=True
    )
    tokens = torch.randint(0, VOCAB, (BATCH, LENGTH))

    def step() -> None:
        torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()

    return model, step


def test_the_file_and_the_recorder_take_twice_the_forward_for_mfu_and_what_ran_for_hfu(tmp_path: Path) -> None:
    # GIVEN a decoder with fused attention WHEN each iteration of it is counted
    model, step = job()
    options: dict[str, Any] = {"console": False, "tensorboard": False, "wandb": False, "every_n_steps": 1, "device": LIMITS}
    with sol.capture(str(tmp_path), model=model, **options) as tracker:
        for _ in range(3):
            step()
            tracker.step()
        found = tracker.analysis
    # THEN the recorder's own figures are in the ratio of the closed forms: all of the work is of one type
    assert found is not None and found.total.flops == HARDWARE
    assert found.mfu is not None and found.hfu is not None and found.mfu / found.hfu == pytest.approx(MODEL / HARDWARE)
    # AND the file says the same on every page
    (capture,) = sol.open(str(tmp_path)).captures
    iterations = capture.analyze("iterations").table("iterations")
    last = iterations.iloc[-1]
    assert (last["flop"], last["recompute_flop"]) == (MODEL, PRODUCT)
    assert last["mfu"] / last["hfu"] == pytest.approx(MODEL / HARDWARE)
    for page in ("overview", "roofline"):
        values = next(s.values for s in capture.analyze(page).sections if "mfu" in (getattr(s, "values", None) or {}))
        assert values["mfu"] / values["hfu"] == pytest.approx(MODEL / HARDWARE), page


def test_a_trace_of_the_same_work_has_the_same_figures(tmp_path: Path) -> None:
    # GIVEN a recording of torch.profiler of the same step WHEN its work is summed
    _, step = job()
    done = performed(recorded(step, tmp_path))
    # THEN what ran, and what of it is done again, are the closed forms
    assert (done.flop.sum(), done.again.sum()) == (HARDWARE, PRODUCT)


def test_counted_every_pair_both_double(tmp_path: Path) -> None:
    # GIVEN a file WHEN attention is counted with every pair THEN what is done again grows with it
    model, step = job()
    with sol.capture(str(tmp_path), model=model, console=False, tensorboard=False, wandb=False, every_n_steps=1) as tracker:
        for _ in range(2):
            step()
            tracker.step()
    (capture,) = sol.open(str(tmp_path)).captures
    done = performed(work(capture, dense=True).ops)
    assert (done.flop.sum(), done.again.sum()) == (3 * LINEAR + 14 * PRODUCT, 2 * PRODUCT)
