"""A training step on the CPU: matrix FLOP of its recording equal what torch counts while it runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.work.work import work

torch = pytest.importorskip("torch")


def _step() -> None:
    """Convolutions (plain and transposed), linear layers, batched products and norms, forward and backward."""
    torch.manual_seed(0)
    nn = torch.nn
    front = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.ConvTranspose2d(8, 4, 2, stride=2, bias=False)
    )
    norm, wide, narrow = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16, bias=False)
    x = front(torch.randn(2, 3, 16, 16)).reshape(2, 64, 16)
    x = x + narrow(nn.functional.gelu(wide(norm(x))))
    scores = torch.softmax(x @ x.transpose(1, 2), -1)
    loss = (scores @ x).square().mean()
    loss.backward()


def test_matrix_work_of_a_recorded_step_is_what_torch_counts(tmp_path: Path) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        _step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        _step()
    path = tmp_path / "step.pt.trace.json"
    profiler.export_chrome_trace(str(path))
    done = work(read(str(path)))
    assert done.by_host_time
    total = done.ops["flop"].to_numpy()
    assert int(total[np.isfinite(total)].sum()) == counter.get_total_flops() > 0
    # both directions are there, and nearly all host time of the step has a model or is overhead of its own
    assert set(done.ops.loc[done.ops["flop"] > 0, "direction"]) == {"fwd", "bwd"}
    matrix = set(done.ops.loc[done.ops["flop"] > 0, "kind"].astype(str))
    assert matrix == {"gemm", "conv"}
