"""The totals that a training loop is told are those that the page reads from the capture file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin.capture import SOLTracker
from tb_sol_plugin.capture.report.analysis import scalars
from tb_sol_plugin.devices.files import book_of, parse
from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.work.work import work

torch = pytest.importorskip("torch", reason="runs a small model")

ROW = {"key": "LAB_CPU", "vendor": "cpu", "fp32_matrix_tflops": 0.1, "fp32_vector_tflops": 0.05, "mem_bw_gb_per_s": 15, "provenance": "measured"}


def test_the_loop_and_the_page_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN limits beside the recordings, and three counted iterations of a small model
    monkeypatch.setenv("TB_SOL_DEVICES", "")
    (tmp_path / "sol_devices.json").write_text(json.dumps([ROW]), encoding="utf-8")
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.LayerNorm(128), torch.nn.Linear(128, 8))
    told = []
    with SOLTracker(logdir=str(tmp_path), every_n_steps=1, tensorboard=False, wandb=False, console=False) as tracker:
        tracker.initialize(model)
        for n in range(3):
            with tracker.phase("train"):
                model(torch.ones(32, 64)).sum().backward()
            tracker.log_analysis(n)
            assert tracker.analysis is not None
            told.append(scalars(tracker.analysis))

    # WHEN the page reads the file under the same limits
    (path,) = tmp_path.glob("*.sol.jsonl")
    capture = read(str(path))
    capture.devices = book_of([("logdir", parse((tmp_path / "sol_devices.json").read_bytes(), "sol_devices.json"))])
    spec = device_for(capture)
    assert spec is not None and spec.key == "LAB_CPU"
    ops = work(capture, spec).ops

    # THEN each iteration but the first, which the page leaves out, has the same operations, FLOP, bytes and least time;
    # 2 * 32 * (64 * 128 + 128 * 8) FLOP forward, and in the backward pass two products of each size less the gradient of the input
    step = ops["step"].to_numpy()
    assert set(step) == {0, 1}
    for n, values in enumerate(told[1:]):
        mine = ops[step == n]
        assert values["sol/total_ops"] == len(mine)
        assert values["sol/total_tflops"] == pytest.approx(np.nansum(mine["flop"]) / 1e12, rel=1e-12)
        assert values["sol/total_memory_gb"] == pytest.approx(np.nansum(mine["bytes"]) / 1e9, rel=1e-12)
        assert values["sol/estimated_time_ms"] == pytest.approx(np.nansum(mine["sol_ns"]) / 1e6, rel=1e-9)
        assert values["sol/total_tflops"] == (2 * 32 * (64 * 128 + 128 * 8) * 3 - 2 * 32 * 64 * 128) / 1e12
        assert values["sol_phase/train/count"] == values["sol/total_ops"]
