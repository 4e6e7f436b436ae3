"""Whatever copies a recording holds: findings stay within the step, together no more than apart, and name copies that are there."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.metrics.copies import records
from tb_sol_plugin.metrics.copies.thresholds import from_text
from tb_sol_plugin.metrics.rules.copies import findings_without, step_ns
from tb_sol_plugin.metrics.rules.engine import combined_ns, to_report
from tb_sol_plugin.metrics.rules.time import time_findings
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.time.waterfall import waterfall, windows_of
from tb_sol_plugin.model.query import Query
from tests.support.copy_findings import findings_of
from tests.support.findings import assert_disjoint
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back

ENDS = st.sampled_from(
    [("HtoD", "Pageable", "Device"), ("HtoD", "Pinned", "Device"), ("DtoH", "Device", "Pageable"), ("DtoH", "Device", "Pinned"),
     ("DtoD", "Device", "Device"), ("PtoP", "Device", "Device"), ("HtoH", "Pageable", "Pinned"), ("HtoD", "Managed", "Device"),
     ("Odd", "", "")]
)  # fmt: skip
OPERATORS = st.sampled_from(["aten::item", "aten::copy_", "aten::clone", "torch::autograd::AccumulateGrad", "CompiledFunction", ""])
COPIES = st.lists(
    st.tuples(
        ENDS, st.integers(0, 2_900_000), st.integers(0, 300_000), st.sampled_from([None, 0, 4, 4096, 70_000, 2 << 20]),
        st.one_of(st.none(), st.tuples(st.integers(0, 2_900_000), st.integers(0, 400_000))), OPERATORS, st.integers(0, 1),
        st.sampled_from(["cudaMemcpyAsync", "cudaMemcpy", "cuMemcpyHtoD_v2", "cudaGraphLaunch"]), st.booleans(),
    ),
    max_size=20,
)  # fmt: skip


@settings(max_examples=25)
@given(COPIES, st.lists(st.tuples(st.integers(0, 2_900_000), st.integers(0, 200_000), st.integers(0, 1)), max_size=8), st.integers(0, 3))
def test_findings_stay_within_the_step(copies: list[tuple], kernels: list[tuple[int, int, int]], steps: int) -> None:  # type: ignore[type-arg]
    # GIVEN any copies, with and without calls, inside and outside of steps, on two devices
    t = TraceBuilder(devices=2)
    for n in range(steps):
        t.step(n + 1, n * 1_000_000, 1_000_000)
    t.op("aten::relu", 0, 10)
    for (direction, src, dst), start, length, size, call, operator, device, api, sync in copies:
        if call is not None and operator:
            t.op(operator, max(call[0] - 10, 0), call[1] + 20)
        t.copy(direction, start, length, bytes=size, src=src, dst=dst, call=call, api=api, device=device)
        if call is not None and sync:
            t.call("cudaStreamSynchronize", sum(call), 30_000)
    for start, length, device in kernels:
        t.kernel("k", start, length, device=device)
    with tempfile.TemporaryDirectory() as folder:
        c = read_back(t, Path(folder))
    where = scope(c, Query())
    got = list(findings_of(c, limits={"HtoD": 30e9}).values())
    count = len(records.copies(c, where.device))
    step = step_ns(c, where)
    # THEN none saves more than a step, all together no more than a step and than their sum, and each names copies
    for f in got:
        assert 0 < f.saving <= step and to_report(f, pages=(), step_ns=step).share is not None
        assert len(f.rows) and len(np.unique(f.rows)) == len(f.rows) and f.rows.min() >= 0 and f.rows.max() < count
    together = combined_ns(got, max(len(windows_of(c, where)[1]), 1))
    assert together <= min(sum(f.saving for f in got), step)
    assert not got or together >= max(f.saving for f in got) - 1
    # AND who asks for one direction, about the host or not, gets those of all that are of it
    every = from_text("least_share=0")
    for kind in {(f.direction, f.host) for f in got} | {("DtoD", False), ("DtoD", True), ("HtoD", True)}:
        some = findings_without(c, where, {"HtoD": (30e9, "link")}, every, asked=lambda *asked, kind=kind: asked == kind)
        assert [(f.rule, f.saving) for f in some] == [(f.rule, f.saving) for f in got if (f.direction, f.host) == kind]
    # AND in the list of what to fix they share the step with all other findings
    fall = waterfall(c, where)
    everything = time_findings(c, where, fall)
    assert combined_ns(everything) <= fall.total_ns / fall.steps + len(everything)
    assert_disjoint(everything)
    # AND a copy stands in one finding
    rows = np.concatenate([f.rows for f in got]) if got else np.zeros(0)
    assert len(rows) == len(np.unique(rows))
