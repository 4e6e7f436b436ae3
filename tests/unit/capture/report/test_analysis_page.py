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
from tb_sol_plugin.metrics.report.console import console_report
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.work.work import work
from tb_sol_plugin.model.query import Query

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


class OwnAttention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(16, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).view(2, 8, 3, 2, 8).permute(2, 0, 3, 1, 4)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 8, 16)


class Blocks(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own, self.theirs, self.norm = OwnAttention(), torch.nn.MultiheadAttention(16, 2, batch_first=True), torch.nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x + self.own(x))
        return x + self.theirs(x, x, x, need_weights=False)[0]


def test_the_console_of_the_loop_and_the_report_name_the_same_layers(tmp_path: Path) -> None:
    # GIVEN attention of a class of one's own and of torch, counted in a loop
    model, x = Blocks(), torch.ones(2, 8, 16)
    with SOLTracker(logdir=str(tmp_path), every_n_steps=1, device="H100_SXM", tensorboard=False, wandb=False, console=False) as tracker:
        tracker.initialize(model)
        for _ in range(3):
            model(x).sum().backward()
            tracker.step()
        assert tracker.analysis is not None
        live = {group.name: group.count for group in tracker.analysis.layers}
    # WHEN the report reads the file THEN both name the same layers, attention too, with as many operations
    capture = read(str(next(tmp_path.glob("*.sol.jsonl"))))
    report = console_report(capture, scope(capture, Query()))
    assert report is not None
    layers = dict(report.views)["By Layer Type"].set_index("name")["ops"].to_dict()
    assert layers == live and {"OwnAttention", "MultiheadAttention", "Linear", "LayerNorm"} <= set(live)
