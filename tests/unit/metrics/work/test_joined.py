"""A trace beside a SOL capture: what the trace cannot name takes the work that the capture counted in that phase."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.time.waterfall import waterfall
from tb_sol_plugin.metrics.trees.phases import phase_tree
from tb_sol_plugin.metrics.work.joined import COUNTED, iterations_of
from tb_sol_plugin.metrics.work.sums import phase_work
from tb_sol_plugin.metrics.work.work import work
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tests.support.captures import report
from tests.support.sol_builder import CUDA, SolBuilder
from tests.support.trace_builder import TraceBuilder

FORWARD = 4_000_000_000  # 2 x 1000 x 1000 x 2000
BACKWARD = 8_000_000_000
BF16 = {"types": ["c10::BFloat16", "c10::BFloat16"]}
SIZES = {"shapes": [[1000, 1000], [1000, 2000]], **BF16}


def trace(
    folder: Path, *, forward: bool = False, backward: bool = False, number: int = 5, device: str = "NVIDIA H100 80GB HBM3"
) -> Capture:
    """One step of 1 ms: a product of 200 µs in train/forward, 300 µs of a replayed graph in train/backward, 10 µs in no phase.

    forward, backward: whether the products there were recorded with sizes (the backward one is then no graph).
    """
    t = TraceBuilder(device=device)
    t.step(number, 0, 1_000_000)
    t.annotation("train/forward", 10_000, 300_000)
    t.op("aten::mm", 20_000, 30_000, **(SIZES if forward else {}))
    t.launch("gemm_bf16", at=25_000, start=40_000, duration=200_000)
    t.annotation("train/backward", 320_000, 400_000)
    if backward:
        t.op("aten::mm", 330_000, 30_000, shapes=[[1000, 2000], [2000, 2000]], **BF16)
        t.launch("gemm_bf16", at=335_000, start=340_000, duration=300_000)
    else:
        graph = t.call("cudaGraphLaunch", 330_000, 5_000)
        t.kernel("gemm_bf16", 340_000, 200_000, correlation=graph)
        t.kernel("elementwise", 540_000, 100_000, correlation=graph)
    t.op("aten::add_", 800_000, 20_000)
    t.launch("add_kernel", at=805_000, start=820_000, duration=10_000)
    return read(str(t.write(folder / "worker0.1700000000000000000.pt.trace.json")))


def counted(folder: Path, *, forward: float = FORWARD, backward: float = BACKWARD, signature: str = "8", again: float = 0.0) -> Capture:
    """Iterations 0 to 9, of which 0 and 4 are sampled: two products of `forward` / 2 and one of `backward` FLOP in BF16."""
    b = SolBuilder(device=CUDA, time_source="event")
    first, second = b.phase("train/forward"), b.phase("train/backward")
    mm = b.sig("aten::mm", [[1000, 1000], [1000, 1000]], flop=forward / 2, bytes=6e6, dtype="bf16")
    back = b.sig("aten::mm", [[1000, 2000], [2000, 2000]], flop=backward, bytes=2e7, dtype="bf16")
    more = b.sig("aten::mm", [[7, 7], [7, 7]], flop=again, bytes=1e3, dtype="bf16")
    add = b.sig("aten::add_", [[1000]], flop=0, flop_vector=1000, bytes=12_000, work="elementwise")
    for number in range(10):
        rows = [
            b.row(mm, phase=first, count=2), b.row(back, phase=second, forward_phase=first, flags=1), b.row(add),
            *([b.row(more, phase=second, flags=2)] if again else []),
        ]  # fmt: skip
        b.iteration(number, number * 1_000_000, 1_000_000, rows=rows if number in (0, 4) else None, signature=signature)
    b.close(10)
    return read(str(b.write(folder / b.name)))


def joined(folder: Path, capture: Capture | None = None, **named: bool) -> Capture:
    """Both, as the store hands them out."""
    return trace(folder, **named).with_ledger(capture if capture is not None else counted(folder))


def rest(capture: Capture) -> dict[str, tuple[float, int]]:
    """(FLOP, time) of the rows of counted work by phase."""
    done = work(capture)
    rows = done.ops[done.ops["name"] == COUNTED]
    names = capture.host["name"].astype(str).to_numpy()[rows["annotation"].to_numpy()]
    return {n: (f, int(t)) for n, f, t in zip(names.tolist(), rows["flop"].tolist(), rows["measured_ns"].tolist(), strict=True)}


def test_a_trace_without_sizes_takes_the_work_of_each_phase(tmp_path: Path) -> None:
    # GIVEN a trace without any sizes beside a capture of the same run WHEN its work is asked for
    c = joined(tmp_path)
    # THEN each phase's unnamed device time has the matrix work counted there; what is in no phase did none and stays unknown
    assert rest(c) == {"train/forward": (FORWARD, 200_000), "train/backward": (BACKWARD, 300_000)}
    ops = work(c, device_for(c)).ops
    assert ops.loc[ops["name"] == "aten::add_", "modeled"].tolist() == [False]
    # AND its limit is that of the arithmetic: 4e9 FLOP at 989.4e12 FLOP/s, marked estimated, without bytes
    row = ops[ops["name"] == COUNTED].iloc[0]
    assert row["sol_ns"] == pytest.approx(4e9 / 989.4e12 * 1e9) and row["bound"] == "compute"
    assert row["estimated"] and "iteration 4" in row["reason"] and np.isnan(row["bytes"])
    # AND iteration 4 was taken, the nearest to step 5 that is not the first
    assert iterations_of(c) == {0: 4}


def test_joining_counted_work_changes_no_device_time(tmp_path: Path) -> None:
    c = joined(tmp_path)
    done = work(c)
    assert done.device_ns == 510_000 and int(done.ops["device_sum_ns"].sum()) + done.unowned_ns == 510_000
    assert done.unowned_ns == 0, "the graph's kernels belong to the counted work now"
    assert np.bincount(done.owner, minlength=len(done.ops)).tolist() == done.ops["device_events"].tolist()


def test_sums_by_phase_are_those_of_the_roofline(tmp_path: Path) -> None:
    c = joined(tmp_path)
    # GIVEN the work by phase and the whole of the roofline THEN both hold all of it
    found = phase_work(c, scope(c, Query()))
    by_path = dict(zip(phase_tree(c).path, found.own["flop"].tolist(), strict=True))
    assert by_path["ProfilerStep/train/forward"] == FORWARD and by_path["ProfilerStep/train/backward"] == BACKWARD
    assert report(c, "roofline").facts["total_flop"] == FORWARD + BACKWARD
    rows = report(c, "roofline", by="phase").table("ops").set_index("name")
    assert rows.loc["train/forward", "flop"] == FORWARD and rows.loc["train/backward", "measured_ns"] == 300_000


def test_a_trace_that_names_all_its_work_does_not_change(tmp_path: Path) -> None:
    # GIVEN an eager trace with sizes, alone and beside a capture WHEN the work of both is compared THEN not a number differs
    alone = trace(tmp_path, forward=True, backward=True)
    both = joined(tmp_path, forward=True, backward=True)
    assert rest(both) == {}
    a, b = (work(c, device_for(c)) for c in (alone, both))
    assert a.ops.equals(b.ops) and a.owner.tolist() == b.owner.tolist() and b.match is not None
    assert [s.missing for s in b.match.steps] == [0.0]


def test_work_that_the_trace_names_is_subtracted_from_the_counted_work(tmp_path: Path) -> None:
    # GIVEN a forward pass with sizes and a replayed backward pass THEN only the latter takes counted work
    c = joined(tmp_path, forward=True)
    assert rest(c) == {"train/backward": (BACKWARD, 300_000)}
    # AND of a phase with some sizes only what is missing: the capture saw 6e9 in the forward pass, the trace names 4e9 of it there
    other = tmp_path / "more"
    other.mkdir()
    c = joined(other, counted(other, forward=6e9), forward=True)
    assert rest(c) == {"train/backward": (BACKWARD, 300_000)}, "no unnamed device time is left in the forward pass"


def test_the_rests_are_never_more_than_the_step_misses(tmp_path: Path) -> None:
    # GIVEN a trace that explains 4e9 in the forward pass where the capture counted 1e9 there and 8e9 in the backward pass
    c = joined(tmp_path, counted(tmp_path, forward=1e9), forward=True)
    # THEN the backward pass gets 9e9 - 4e9 = 5e9, not 8e9
    assert rest(c) == {"train/backward": (5e9, 300_000)}


def test_recomputed_work_is_left_out(tmp_path: Path) -> None:
    c = joined(tmp_path, counted(tmp_path, again=3e9))
    assert rest(c)["train/backward"] == (BACKWARD, 300_000)


def test_inputs_of_other_sizes_take_nothing(tmp_path: Path) -> None:
    # GIVEN a capture whose iteration of the traced step had other sizes than every sampled one
    c = counted(tmp_path)
    table = c.tables["iterations"].copy()
    table["signature"] = table["signature"].cat.add_categories(["16"])
    table.loc[table["number"] == 5, "signature"] = "16"
    other = Capture(c.facts, {**c.tables, "iterations": table})
    # THEN no work is known for it
    joint = trace(tmp_path).with_ledger(other)
    assert iterations_of(joint) == {} and rest(joint) == {} and work(joint).match is None


@pytest.mark.parametrize(("other", "wanted"), [("8", {0: 9}), ("16", {})])
def test_a_step_of_unknown_sizes_takes_work_that_all_iterations_share(tmp_path: Path, other: str, wanted: dict[int, int]) -> None:
    # GIVEN a traced step that the capture does not number, and sampled iterations of one signature, or of two
    c = counted(tmp_path)
    table = c.tables["iterations"].copy()
    if other not in table["signature"].cat.categories:
        table["signature"] = table["signature"].cat.add_categories([other])
    table.loc[table["number"] == 9, ["signature", "sampled"]] = [other, True]
    ledger = c.tables["ledger"]
    more = ledger[ledger["iteration"] == 4].assign(iteration=9)
    tables = {**c.tables, "iterations": table, "ledger": pd.concat([ledger, more], ignore_index=True)}
    joint = trace(tmp_path, number=1_000).with_ledger(Capture(c.facts, tables))
    # THEN it takes the nearest where that does not matter, and none where it does
    assert iterations_of(joint) == wanted


def test_a_phase_that_the_trace_does_not_know_goes_to_the_step(tmp_path: Path) -> None:
    # GIVEN a trace whose only range is the step: all of the unnamed time shares all of the work
    t = TraceBuilder()
    t.step(5, 0, 1_000_000)
    graph = t.call("cudaGraphLaunch", 10_000, 5_000)
    t.kernel("gemm", 20_000, 600_000, correlation=graph)
    alone = read(str(t.write(tmp_path / "worker0.1700000000000000000.pt.trace.json")))
    c = alone.with_ledger(counted(tmp_path))
    assert rest(c) == {"ProfilerStep#5": (FORWARD + BACKWARD, 600_000)}


def test_the_waterfall_and_the_utilizations_hold_the_counted_work(tmp_path: Path) -> None:
    c = joined(tmp_path)
    fall = waterfall(c, scope(c, Query()))
    assert sum(fall.measured_parts.values()) == fall.total_ns == 1_000_000
    assert fall.kind_ns["other"] == 500_000 and fall.unmodelled_ns == 10_000
    assert fall.sol_ns == pytest.approx(12e9 / 989.4e12 * 1e9)
    mfu = report(c, "roofline").facts["mfu"]
    assert mfu == pytest.approx(12e9 / 989.4e12 / 1e-3)


def test_rows_by_kernel_get_no_counted_work(tmp_path: Path) -> None:
    # GIVEN a graph of a product and an elementwise kernel THEN neither is said to have done the product
    c = joined(tmp_path)
    kernels = report(c, "kernels").table("kernels").set_index("name")
    assert kernels["flop"].isna().all()
    assert report(c, "roofline", by="kernel").table("ops")["flop"].isna().all()


def test_a_trace_of_the_host_gets_counted_work_too(tmp_path: Path) -> None:
    # GIVEN a CPU trace without sizes: 30 µs of aten::mm in the forward pass, 20 µs outside, nothing in the backward pass
    t = TraceBuilder(device="")
    t.step(5, 0, 1_000_000)
    t.annotation("train/forward", 10_000, 300_000)
    t.annotation("train/backward", 320_000, 400_000)
    t.op("aten::mm", 20_000, 30_000)
    t.op("aten::add_", 800_000, 20_000)
    alone = read(str(t.write(tmp_path / "worker0.1700000000000000000.pt.trace.json")))
    c = alone.with_ledger(counted(tmp_path))
    assert rest(c) == {"train/forward": (FORWARD, 30_000)}
    fall = waterfall(c, scope(c, Query()))
    assert fall.kind_ns["other"] == 30_000 and fall.unmodelled_ns == 20_000 and sum(fall.measured_parts.values()) == 1_000_000
    assert np.nansum(fall.work.values["owned_sum_ns"]) == 50_000
