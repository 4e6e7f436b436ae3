"""The page of the kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest

from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.time import kernels as K
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tb_sol_plugin.model.registry import get
from tb_sol_plugin.model.report import encode
from tests.support.trace_builder import TraceBuilder

GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_x>(Params)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >(int)"


@pytest.fixture
def capture() -> Capture:
    """GEMM 4 times (10, 20, 30, 40 us; the last before the window, two from a graph), an add of 5 us twice (one without operator,
    one without launch record), a kernel no rule knows of 0 us, and a copy that is no kernel."""
    us = 1000
    return Capture(
        Facts("test", "x.json", 0, vendor="nvidia", extent_ns=(0, 300 * us)),
        {
            "host": S.HOST.frame({"name": ["aten::mm", "aten::add"], "start_ns": [0, 50], "duration_ns": [10, 10], "kind": [0, 0]}),
            "device": S.DEVICE.frame({
                "name": [GEMM, GEMM, GEMM, GEMM, ADD, ADD, "odd_kernel", "Memcpy HtoD (Pageable -> Device)"],
                "kind": [0, 0, 0, 0, 0, 0, 0, 1], "device": [0] * 8, "stream": [7, 7, 8, 7, 7, 7, 7, 7],
                "start_ns": [i * 20 * us for i in range(8)], "duration_ns": [n * us for n in (10, 20, 30, 40, 5, 5, 0, 100)],
                "operator": [0, 0, 1, -1, -1, -1, 1, -1], "graph": [True, True, False, False, False, False, False, False],
                "link": [0, 0, 1, S.BEFORE_WINDOW, 0, S.NO_RECORD, 0, 0],
                "grid": ["[1,1,1]", "[2,1,1]", "[1,1,1]", "[1,1,1]", "[1,1,1]", "[1,1,1]", "", ""],
                "block": ["[64,1,1]"] * 6 + ["", ""], "registers": [32] * 6 + [-1, -1],
                "occupancy_pct": [50.0, 20.0, np.nan, np.nan, np.nan, np.nan, np.nan, np.nan],
            }),
        },
    )  # fmt: skip


def test_groups_by_name_add_up_with_exact_statistics(capture):
    report = capture.analyze("kernels")
    table = report.table("kernels")
    first = table.iloc[0]
    assert (first["name"], first["short_name"]) == (GEMM, "cutlass_80_tensorop_bf16_s16816gemm_x")
    # 10, 20, 30, 40: sum 100, mean and median 25, p95 the fourth
    assert [first[c] for c in ("calls", "total_ns", "mean_ns", "median_ns", "p95_ns", "min_ns", "max_ns")] == [
        4, 100_000, 25_000, 25_000, 40_000, 10_000, 40_000,
    ]  # fmt: skip
    assert (first["streams"], first["graph_share"], first["linked_share"]) == (2, 0.3, 0.6)
    # occupancy (50 * 10 + 20 * 20) / 30 over the calls that carry it
    assert first["occupancy_pct"] == pytest.approx(30.0)
    assert table["total_ns"].sum() == report.facts["total_ns"] == 110_000
    assert report.section("kernels").total["calls"] == 7 == report.facts["count"]


def test_matrix_use_is_yes_no_or_unknown(capture):
    report = capture.analyze("kernels")
    table = report.table("kernels").set_index("short_name")
    assert table["tensor_core"].tolist() == [True, False, None]
    assert "16x8x16" in table["rule"].iloc[0] and table["unit"].iloc[0] == "Tensor Core (Ampere or newer)"
    assert report.facts["tensor_core_share"] == pytest.approx(100 / 110) and report.facts["tensor_core_unknown_ns"] == 0
    assert report.headline.replace("\u202f", " ") == (
        "One name takes 80 % of **110.0 µs** kernel time; the first is `cutlass_80_tensorop_bf16_s16816gemm_x` with 90.9 %. Tensor Cores run 90.9 %."
    )


@pytest.mark.parametrize("by", ["name", "name_op", "name_annotation", "properties"])
def test_every_grouping_adds_up_to_all_kernel_time(capture, by):
    table = capture.analyze("kernels", group_by=by).table("kernels")
    assert table["total_ns"].sum() == 110_000 and table["calls"].sum() == 7
    assert table["id"].is_unique


def test_kernels_without_an_operator_stand_in_rows_that_say_why(capture):
    report = capture.analyze("kernels", group_by="name_op")
    table = report.table("kernels")
    found = {(n, o): t for n, o, t in zip(table["short_name"].str[:7], table["operator"], table["total_ns"], strict=True)}
    assert found == {
        ("cutlass", "aten::mm"): 30_000, ("cutlass", "aten::add"): 30_000, ("cutlass", K.BEFORE_WINDOW): 40_000,
        ("vectori", K.NO_OPERATOR): 5_000, ("vectori", K.NO_LAUNCH): 5_000, ("odd_ker", "aten::add"): 0,
    }  # fmt: skip
    outside = table[table["operator"].isin(K.OUTSIDE)]
    assert report.section("kernels").last == outside["id"].tolist() and len(outside) == 3


def test_kernels_by_range_of_their_launch_or_of_the_device(tmp_path: Path) -> None:
    # GIVEN a kernel launched inside of two ranges, one without a launch record inside of the device's copies of two ranges, on one of two
    # streams, and one inside of none WHEN they are grouped THEN each has the innermost
    t = TraceBuilder()
    t.annotation("forward", 0, 100, gpu=(1_000, 500))
    t.annotation("layer", 10, 50, gpu=(1_100, 100))
    t.launch("launched", at=20, start=2_000, duration=10)
    for start, stream in ((1_120, 7), (1_300, 7), (1_120, 8), (1_700, 7)):
        t.kernel("found", start, 20, stream=stream)
    table = read(str(t.write(tmp_path / "w.pt.trace.json"))).analyze("kernels", group_by="name_annotation").table("kernels")
    assert {(n, a): c for n, a, c in zip(table["name"], table["annotation"], table["calls"], strict=True)} == {
        ("launched", "layer"): 1, ("found", "layer"): 1, ("found", "forward"): 1, ("found", K.NO_ANNOTATION): 2,
    }  # fmt: skip


def test_properties_that_were_not_recorded_are_null(capture):
    data = capture.analyze("kernels", group_by="properties").section("kernels").data
    assert len(data["name"]) == 7  # the two GEMM calls of aten::mm differ in their grid
    odd = data["name"].index("odd_kernel")
    assert [data[c][odd] for c in ("grid", "block", "registers", "shared_memory", "blocks_per_sm")] == [None] * 5
    assert set(data["grid"]) == {"[1,1,1]", "[2,1,1]", None}


def test_short_kernels_are_counted_below_the_threshold(capture):
    assert [capture.analyze("kernels").facts[n] for n in ("short_count", "short_ns")] == [3, 10_000]
    assert [capture.analyze("kernels", short_us="10.001").facts[n] for n in ("short_count", "short_ns")] == [4, 20_000]


def test_linked_leaves_out_what_has_no_launch(capture):
    facts = capture.analyze("kernels", scope="linked").facts
    # without the GEMM before the window and the add without a record
    assert (facts["count"], facts["total_ns"], facts["linked_share"], facts["short_count"]) == (5, 65_000, 1.0, 2)


def test_the_bars_follow_the_measure(capture):
    figure = go.Figure(capture.analyze("kernels", measure="calls").section("top").figure)
    assert list(figure.data[0].x) == [4, 2, 1]
    assert "&lt;4, at::native" in figure.data[0].hovertext[1]


def test_without_kernels_it_is_unavailable(capture):
    only_copies = Capture(capture.facts, {"device": capture.device[capture.device["kind"] == S.MEMCPY]})
    report = only_copies.analyze("kernels")
    assert not report.available and "only copies" in report.because


def test_every_column_and_fact_is_declared(capture):
    declared = {c.name for c in get("kernels").tables["kernels"]}
    for by in ("name", "name_op", "name_annotation", "properties"):
        report = capture.analyze("kernels", group_by=by)
        encode(report)
        assert {c.name for c in report.section("kernels").columns} <= declared
        assert set(report.facts) <= {f.name for f in get("kernels").facts}


def test_a_selection_without_kernels_says_so(capture):
    steps = S.STEPS.frame({"number": [1], "host_start_ns": [0], "host_end_ns": [9], "start_ns": [0], "end_ns": [9], "complete": [True]})
    report = Capture(capture.facts, {**capture.tables, "steps": steps}).analyze("kernels", step="1")
    assert report.headline == "No kernel time in this selection." and report.table("kernels").empty
