"""Rows of the roofline against loops over calls, and against products worked out by hand."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import get_args

import msgspec
import numpy as np
import pandas as pd
import pytest
from msgspec.structs import replace

from tb_sol_plugin.devices.catalog import table
from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.trees.module_tree import module_instance, phase_name
from tb_sol_plugin.metrics.work.rows import BEFORE_WINDOW, By, rows
from tb_sol_plugin.metrics.work.work import Work, sides, work
from tb_sol_plugin.model.capture import Capture
from tests.conftest import ROOT
from tests.support.trace_builder import TraceBuilder

SAMPLE = ROOT / "samples" / "simulated_gpu_train"
BF16 = ["c10::BFloat16"] * 2
SIDE = 1024
FLOP = 2 * SIDE**3
BYTES = 3 * 2 * SIDE**2


@pytest.fixture(scope="module")
def sample() -> tuple[Capture, Work]:
    """A training run of two steps with modules, phases, a backward pass and collectives."""
    capture = read(str(sorted(SAMPLE.glob("rank0*.gz"))[0]))
    return capture, work(capture, table()["H100_SXM"])


def _products(folder: Path, *types: str) -> tuple[Capture, Work]:
    """One product of 1024^3 per type, of 10 us each."""
    t = TraceBuilder()
    for at, kind in enumerate(types):
        t.op("aten::mm", 1000 * at, 900, shapes=[[SIDE, SIDE], [SIDE, SIDE]], types=[kind, kind])
        t.launch(f"gemm_{at}", at=1000 * at + 100, start=100_000 + 20_000 * at, duration=10_000)
    capture = read(str(t.write(folder / "t.json")))
    return capture, work(capture, table()["H100_SXM"])


def _names(capture: Capture, ops: pd.DataFrame, by: str) -> list[str]:
    """What each call is grouped by, one call at a time."""
    host = capture.host["name"].astype(str).tolist()
    out = []
    for call in ops.itertuples():
        if by == "op_shape":
            out.append(" | ".join(str(v) for v in (call.name, call.shapes, call.dtype, call.direction)))
        elif by == "op":
            out.append(str(call.name))
        elif by == "module":
            out.append(module_instance(host[call.module]) if call.module >= 0 else "(outside every module)")
        elif by == "phase":
            out.append(phase_name(host[call.annotation]) if call.annotation >= 0 else "(outside every phase)")
        elif by == "layer":
            out.append(str(call.layer) or "(outside every module)")
        elif by == "dtype":
            out.append(str(call.dtype) or "(no type recorded)")
        elif by == "step":
            out.append(f"step {capture.steps['number'].iloc[call.step]}" if call.step >= 0 else "(outside every step)")
        else:
            out.append(str(call.kind))
    return out


@pytest.mark.parametrize("by", [by for by in get_args(By) if by != "kernel"])
def test_every_grouping_equals_a_loop_over_calls(sample: tuple[Capture, Work], by: By) -> None:
    # GIVEN the calls of a run, summed one by one
    capture, done = sample
    ops = done.ops
    wanted: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    kernels: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    types: dict[str, set[str]] = defaultdict(set)
    names = _names(capture, ops, by)
    for name, call in zip(names, ops.itertuples(), strict=True):
        wanted[name]["calls"] += 1
        wanted[name]["measured_ns"] += call.measured_ns
        types[name] |= {str(call.dtype)} - {""}
        for column in ("flop", "bytes", "sol_ns"):
            value = getattr(call, column)
            if value == value:
                wanted[name][column] += value
    device = capture.device["name"].astype(str).tolist()
    for event, (owner, duration) in enumerate(zip(done.owner.tolist(), capture.device["duration_ns"].tolist(), strict=True)):
        if owner >= 0:
            kernels[names[owner]][device[event]] += duration
    # WHEN they are grouped THEN every row holds the same sums, its types, and the kernel with most time
    frame = pd.DataFrame(rows(capture, done, ops, by)).set_index("id")
    assert set(frame.index) == set(wanted) and len(frame) == len(wanted)
    for name, sums in wanted.items():
        row = frame.loc[name]
        for column, value in sums.items():
            assert row[column] == pytest.approx(value), (name, column)
        assert kernels[name][row["main_kernel"]] == max(kernels[name].values())
        if by not in ("op_shape", "dtype"):
            assert row["dtype"] == ", ".join(sorted(types[name]))


@pytest.mark.parametrize("by", get_args(By))
def test_no_grouping_loses_time_or_work(sample: tuple[Capture, Work], by: By) -> None:
    capture, done = sample
    frame = pd.DataFrame(rows(capture, done, done.ops, by))
    for column in ("flop", "bytes", "sol_ns"):
        assert np.nansum(frame[column]) == pytest.approx(np.nansum(done.ops[column])), column
    time = "device_sum_ns" if by == "kernel" else "measured_ns"
    assert frame["measured_ns"].sum() == pytest.approx(done.ops[time].sum())
    assert frame["share"].sum() == pytest.approx(1.0)
    assert frame["id"].is_unique and frame["measured_ns"].is_monotonic_decreasing


def test_a_part_of_the_calls_gives_rows_of_that_part(sample: tuple[Capture, Work]) -> None:
    capture, done = sample
    half = done.ops[done.ops["direction"] == "bwd"]
    for by in get_args(By):
        frame = pd.DataFrame(rows(capture, done, half, by))
        assert np.nansum(frame["flop"]) == pytest.approx(np.nansum(half["flop"])), by
        assert set(frame["direction"]) == {"bwd"}
    assert not len(rows(capture, done, done.ops[:0], "kernel")["name"])


def test_rows_have_compute_and_memory_side_of_their_limit(tmp_path: Path) -> None:
    # GIVEN a product in bf16 and one in fp32 on a device of 989.4 and 66.9 TFLOP/s, 794 achievable in bf16, and 3350 GB/s
    capture, done = _products(tmp_path, "c10::BFloat16", "float")
    frame = pd.DataFrame(rows(capture, done, done.ops, "op_shape")).set_index("dtype")
    # THEN each side stands alone, in ns, and the limit is the larger
    assert frame.loc["bf16", "compute_ns"] == pytest.approx(FLOP / 989.4e12 * 1e9)
    assert frame.loc["bf16", "memory_ns"] == pytest.approx(BYTES / 3350e9 * 1e9)
    assert frame.loc["fp32", "compute_ns"] == pytest.approx(FLOP / 66.9e12 * 1e9)
    assert frame.loc["fp32", "memory_ns"] == pytest.approx(2 * BYTES / 3350e9 * 1e9)
    larger = np.maximum(frame["compute_ns"], frame["memory_ns"])
    assert frame["sol_ns"].to_numpy() == pytest.approx(larger.to_numpy())
    # AND only bf16 has an achievable rate; over both rows of one operator it counts for that part alone
    assert frame.loc["bf16", "eff_achievable"] == pytest.approx(FLOP / 794e12 * 1e9 / 10_000)
    assert np.isnan(frame.loc["fp32", "eff_achievable"])
    together = pd.DataFrame(rows(capture, done, done.ops, "op")).iloc[0]
    assert together["eff_achievable"] == pytest.approx(frame.loc["bf16", "eff_achievable"])
    assert (together["dtype"], together["calls"]) == ("bf16, fp32", 2)


def test_an_unknown_side_is_not_zero(tmp_path: Path) -> None:
    capture, done = _products(tmp_path, "c10::BFloat16")
    assert np.isnan(sides(done.ops, None).compute_ns).all()
    blind = msgspec.structs.replace(table()["H100_SXM"], memory_bandwidth=None)
    of = sides(work(capture, blind).ops, blind)
    assert np.isfinite(of.compute_ns).all() and np.isnan(of.memory_ns).all()


def test_recomputed_time_is_a_share_of_the_row(tmp_path: Path) -> None:
    # GIVEN two equal calls of which the second runs again inside the backward pass
    capture, done = _products(tmp_path, "c10::BFloat16", "c10::BFloat16")
    done = replace(done, ops=done.ops.assign(recompute=[False, True]))
    row = pd.DataFrame(rows(capture, done, done.ops, "op_shape")).iloc[0]
    assert (row["calls"], row["recompute"], row["flags"]) == (2, 0.5, "recompute")


def test_work_from_before_the_window_has_rows_of_its_own(tmp_path: Path) -> None:
    # GIVEN two equal calls of which the second is credited by likeness
    capture, done = _products(tmp_path, "c10::BFloat16", "c10::BFloat16")
    done = replace(done, ops=done.ops.assign(inferred=[False, True], estimated=[False, True]))
    for by in get_args(By):
        frame = pd.DataFrame(rows(capture, done, done.ops, by))
        early = frame[frame["inferred"]]
        assert len(early) == 1 and early["id"].iloc[0].endswith(f" | {BEFORE_WINDOW}"), by
        assert early["flags"].iloc[0] == f"estimated, {BEFORE_WINDOW}"
        assert frame["measured_ns"].sum() == 20_000


def test_all_kernels_of_a_flagged_row_are_named(tmp_path: Path) -> None:
    # GIVEN a product of 2.1 GFLOP within 1 us by two kernels, which no H100 can do, and one of 10 us
    t = TraceBuilder()
    t.op("aten::mm", 0, 900, shapes=[[SIDE, SIDE]] * 2, types=BF16)
    t.launch("transform", at=100, start=5000, duration=400)
    t.launch("main", at=300, start=6000, duration=600)
    t.op("aten::bmm", 2000, 900, shapes=[[1, SIDE, SIDE]] * 2, types=BF16)
    t.launch("slow", at=2100, start=9000, duration=10_000)
    capture = read(str(t.write(tmp_path / "t.json")))
    done = work(capture, table()["H100_SXM"])
    frame = pd.DataFrame(rows(capture, done, done.ops, "op")).set_index("name")
    assert frame["main_kernel"].to_dict() == {"aten::bmm": "slow", "aten::mm": "main"}
    assert set(frame.loc["aten::mm", "kernels"].split("\n")) == {"transform", "main"}
    assert frame.loc["aten::bmm", "kernels"] == ""
