"""Time on a device by what it did: phases, modules with their backward work, operators, kernels; and what is left out of long recordings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.metrics.ranks import by_name as N
from tb_sol_plugin.tables.packed import pack, unpack
from tests.support.trace_builder import TraceBuilder


def test_totals_by_phase_module_operator_and_kernel(tmp_path: Path) -> None:
    # GIVEN two whole steps: a module's forward kernel, its backward kernel launched by an operator of another thread, a collective, a copy
    t = TraceBuilder(rank=0, world_size=2)
    for number, begin in enumerate((0, 100_000)):
        t.step(number, begin, 90_000)
        t.annotation("forward", begin + 1_000, 20_000)
        t.module("nn.Module: Linear_0", begin + 2_000, 10_000, module_id=1)
        t.op("aten::mm", begin + 3_000, 4_000, sequence=number + 1)
        t.launch("gemm", at=begin + 4_000, start=begin + 10_000, duration=5_000 + number)
        t.op("MmBackward0", begin + 30_000, 5_000, thread=9, sequence=number + 1, forward_thread=1)
        t.forward_backward(begin + 3_000, begin + 30_000, backward_thread=9)
        t.launch("gemm", at=begin + 31_000, start=begin + 40_000, duration=7_000, thread=9)
        t.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL()", at=begin + 50_000, start=begin + 51_000, duration=9_000, stream=20)
    packed, names = N.totals_of(ingest.read(str(t.write(tmp_path / "rank.pt.trace.json"))))
    rows = unpack(packed, N.TOTALS)
    found = {
        (N.BY[by], names[name], step): total
        for by, name, step, total in zip(*(rows[c].tolist() for c in N.TOTALS), strict=True)
    }
    # THEN each step has its own sums, and collectives are in none
    assert found[("kernel", "gemm", 0)] == 12_000 and found[("kernel", "gemm", 1)] == 12_001 and len([k for k in found if k[0] == "kernel"]) == 2
    assert found[("operator", "aten::mm", 1)] == 5_001 and found[("operator", "MmBackward0", 1)] == 7_000
    assert found[("module", "Linear_0", 0)] == 12_000 and found[("phase", "ProfilerStep/forward", 0)] == 5_000


def test_of_many_names_the_largest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(N, "MOST_NAMES", 2)
    found = N.totals(np.array([0, 1, 2, 0]), np.array([0, 0, 0, 1]), np.array([5, 9, 1, 3]))
    assert found["name"].tolist() == [0, 1, 0] and found["step"].tolist() == [0, 0, 1] and found["total_ns"].tolist() == [5, 9, 3]
    assert not len(N.totals(*(np.zeros(0, np.int64) for _ in range(3)))["step"])


def test_time_is_lost_only_as_far_as_others_waited() -> None:
    # GIVEN three ranks of one role and one of another; rank 2 takes 40 ns more in step 0, for which the others waited 25
    def of(*total: int) -> N.Packed:
        rows = {"by": np.full(len(total), 3), "name": np.zeros(len(total)), "step": np.arange(len(total)), "total_ns": np.array(total)}
        return pack(rows, N.TOTALS)

    tables = [of(100, 100), of(100, 102), of(140, 100), of(900)]
    late = pd.Series([25.0], index=pd.MultiIndex.from_arrays([[2], [0]]))
    steps = [np.arange(2)] * 4
    found = N.imbalance([*tables[:3], tables[3]], [["gemm"]] * 4, "kernel", np.array([0, 0, 0, 1]), late, steps)
    assert len(found) == 1 and found.iloc[0].to_dict() == {
        "name": "gemm", "role": 0, "ranks": 3, "min_ns": 100.0, "median_ns": 101.0, "max_ns": 120.0, "max_at": 2,
        "imbalance": 120 / 101, "lost_ns": 25.0,
    }  # fmt: skip
    # AND in the other step alone nobody waited; where nothing is known, nothing is made up
    assert N.imbalance(tables, [["gemm"]] * 4, "kernel", np.array([0, 0, 0, 1]), late, [np.array([1])] * 4)["lost_ns"].tolist() == [0.0]
    assert not len(N.imbalance([None], [()], "phase", np.zeros(1, np.int64), late, steps[:1]))
    assert not len(N.imbalance(tables[3:], [["gemm"]], "kernel", np.zeros(1, np.int64), late, steps[:1]))
