"""Whatever a recording holds, findings stay within the time there is, and say the same twice."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.metrics.rules.engine import combined_ns
from tb_sol_plugin.metrics.rules.time import RULES, time_findings
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.time.waterfall import waterfall
from tb_sol_plugin.model.query import Query
from tests.support.findings import assert_disjoint
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back

SIZES = st.sampled_from([[64, 64], [7, 64], [64, 4095], [2, 64, 64], [0, 3], [], [8, 16, 16, 16]])
NAMES = st.sampled_from(
    ["aten::mm", "aten::bmm", "aten::_softmax", "aten::_softmax_backward_data", "aten::add", "aten::mul", "aten::copy_", "aten::addcdiv_",
     "aten::mean", "aten::cat", "aten::linear", "aten::mkldnn_convolution", "aten::item", "unknown::op"]
)  # fmt: skip
KERNELS = st.sampled_from(
    ["ampere_sgemm_128x128_nn", "nvjet_tst_64x16_64x16_2x4_h_bz_TNT", "nchwToNhwcKernel", "ncclDevKernel_AllReduce", "k", "_MT9x9x9_"]
)
CALLS = st.lists(
    st.tuples(
        NAMES, KERNELS, st.lists(SIZES, max_size=4), st.sampled_from(["float", "c10::BFloat16", "long int", "odd"]),
        st.integers(0, 200_000), st.integers(0, 100_000), st.sampled_from([7, 20]), st.booleans(),
    ),
    max_size=16,
)  # fmt: skip


@settings(max_examples=25)
@given(CALLS, st.booleans(), st.booleans(), st.booleans())
def test_findings_stay_within_the_time_there_is(calls: list[tuple], stepped: bool, optimizer: bool, device: bool) -> None:  # type: ignore[type-arg]
    # GIVEN any calls with any sizes, kernels that begin and end anywhere, with or without a step, an optimizer and a device
    t = TraceBuilder(device="NVIDIA H100 80GB HBM3" if device else "")
    if stepped:
        t.step(1, 0, 4_000_000)
    if optimizer:
        t.annotation("Optimizer.step#AdamW.step", 0, 2_000_000)
    for i, (name, kernel, shapes, dtype, delay, duration, stream, waits) in enumerate(calls):
        at = 10_000 * i
        t.op(name, at, 9_000, shapes=shapes, types=[dtype] * len(shapes), strides=[[1] * len(s) for s in shapes])
        if waits:
            t.call("cudaStreamSynchronize", at + 5_000, 3_000)
        if device:
            t.launch(kernel, at=at + 1_000, start=at + delay, duration=duration, stream=stream)
    with tempfile.TemporaryDirectory() as folder:
        c = read_back(t, Path(folder))
    part = scope(c, Query())
    fall = waterfall(c, part)
    found = time_findings(c, part, fall)
    # THEN each is known, has words, and saves something; together they save at most the step
    assert {f.id for f in found} <= set(RULES)
    assert all(f.saving > 0 and f.title and f.evidence and f.fix and "nan" not in f.evidence for f in found)
    assert combined_ns(found) <= fall.total_ns / fall.steps + len(found)
    assert_disjoint(found)
    taken = np.zeros(len(fall.work.ops))
    for f in found:
        np.add.at(taken, f.rows, f.claimed)
    assert (taken <= fall.work.ops["device_sum_ns" if device else "measured_ns"].to_numpy() + 1).all()
    assert [f.id for f in found] == [f.id for f in sorted(found, key=lambda f: (f.candidate, -f.saving))]
