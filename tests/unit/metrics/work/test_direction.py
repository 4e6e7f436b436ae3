"""Forward, backward and recomputed work of steps recorded on the CPU with activation checkpointing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.work.work import Work, work

torch = pytest.importorskip("torch")

ROWS, WIDE, NARROW, BLOCKS = 32, 128, 64, 3
FORWARD = BLOCKS * 2 * 2 * ROWS * WIDE * NARROW
"""FLOP of two linear layers per block."""


def _recorded(path: Path, step: object, *, stack: bool = False) -> Work:
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, with_stack=stack)
    with profile as profiler:
        step()  # type: ignore[operator]
    profiler.export_chrome_trace(str(path))
    return work(read(str(path)))


def _sums(done: Work) -> tuple[int, int, int]:
    """(forward, recomputed, backward) matrix FLOP."""
    ops = done.ops[done.ops["flop"] > 0]
    backward, again = ops["direction"] == "bwd", ops["recompute"]
    assert not (backward & again).any()
    return tuple(int(ops.loc[mask, "flop"].sum()) for mask in (~backward & ~again, again, backward))  # type: ignore[return-value]


def _step(mode: str) -> None:
    from torch.utils.checkpoint import checkpoint

    nn = torch.nn
    blocks = [nn.Sequential(nn.Linear(NARROW, WIDE), nn.ReLU(), nn.Linear(WIDE, NARROW)) for _ in range(BLOCKS)]
    x = torch.randn(ROWS, NARROW, requires_grad=True)
    for block in blocks:
        x = x + (block(x) if mode == "none" else checkpoint(block, x, use_reentrant=mode == "reentrant"))
    x.sum().backward()


@pytest.mark.parametrize("stack", [False, True])
@pytest.mark.parametrize(("mode", "again"), [("none", 0), ("reentrant", FORWARD), ("non_reentrant", FORWARD)])
def test_checkpointed_blocks_run_forward_once_more(tmp_path: Path, mode: str, again: int, stack: bool) -> None:
    # GIVEN three blocks of two linear layers, with every input's gradient: backward is twice forward
    # WHEN they are recorded with either kind of checkpointing
    done = _recorded(tmp_path / "step.pt.trace.json", lambda: _step(mode), stack=stack)
    # THEN forward and backward are as without, and the forward work inside the backward pass stands apart
    assert _sums(done) == (FORWARD, again, 2 * FORWARD)


def test_a_differentiated_backward_pass_is_not_a_recomputed_one(tmp_path: Path) -> None:
    # GIVEN a gradient penalty: the operators of the first backward pass draw sequence numbers, over the sizes of the forward pass
    def step() -> None:
        x, w = (torch.randn(32, 32, requires_grad=True) for _ in range(2))
        (g,) = torch.autograd.grad((x @ w).tanh().sum(), x, create_graph=True)
        (g**2).sum().backward()

    done = _recorded(tmp_path / "step.pt.trace.json", step)
    # THEN one product is forward, the others are backward
    assert _sums(done)[1] == 0
    assert not done.ops["recompute"].any()
    assert _sums(done)[0] == 2 * 32**3
