"""The roofline of single records: worked out by hand, and the same as the page's arithmetic over arrays."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from tb_sol_plugin.capture.device_specs import PEAK_OF, device_spec
from tb_sol_plugin.capture.operation_registry import BoundType, CapturedFunctionalOp, CapturedOp, DataType, OpRecord, OpType
from tb_sol_plugin.capture.roofline import FLAGS, Precision, current_precision, roofline
from tb_sol_plugin.cost.roofline import limit
from tb_sol_plugin.devices.limits import overridden
from tests.support.sol_step import device, gpu, op


def test_a_compute_bound_operation() -> None:
    # GIVEN 2 GFLOP and 10 MB in 40 µs at 100 TFLOP/s and 1 TB/s
    result = roofline(op(flops=2_000_000_000, bytes=10_000_000, measured_time_us=40.0, count=2), device())

    # THEN 20 µs of arithmetic exceed 10 µs of traffic; 200 FLOP/B are above the ridge of 100; half the limit
    assert result.estimated_time_us == pytest.approx(20.0)
    assert result.bound_type is BoundType.COMPUTE_BOUND
    assert result.arithmetic_intensity == 200.0
    assert result.ridge_point == 100.0
    assert result.achieved_flops == pytest.approx(50e12)
    assert result.efficiency == pytest.approx(0.5)
    assert (result.peak_used, result.bandwidth_used, result.flags) == (100e12, 1e12, [])


def test_a_memory_bound_operation_without_matrix_work() -> None:
    # GIVEN an addition of 1 MFLOP on the vector units and 12 MB
    result = roofline(op("aten::add", OpType.ELEMENTWISE, flops_vector=1_000_000, bytes=12_000_000), device())

    # THEN traffic sets the limit, and its intensity is that of vector work
    assert result.estimated_time_us == pytest.approx(12.0)
    assert result.bound_type is BoundType.MEMORY_BOUND
    assert result.arithmetic_intensity == pytest.approx(1 / 12)
    assert result.ridge_point == 5.0
    assert (result.efficiency, result.achieved_flops) == (None, None)


def test_nothing_is_cut_off_above_the_limit() -> None:
    over = roofline(op(flops=2_000_000_000, bytes=0, measured_time_us=10.0), device())
    barely = roofline(op(flops=2_000_000_000, bytes=0, measured_time_us=20 / 1.02), device())

    assert over.efficiency == pytest.approx(2.0) and over.flags == ["above_limit"]
    assert barely.efficiency == pytest.approx(1.02) and barely.flags == []


@pytest.mark.parametrize(
    ("record", "flag"),
    [
        (op(flops=None, flops_vector=None, bytes=None), "no_model"),
        (op("aten::add", OpType.ELEMENTWISE, flops_vector=10, bytes=None), "no_model"),
        (op(flops=100, bytes=10, dtype=DataType.FP16), "no_peak"),
        (op(flops=100, bytes=10, estimated=True), "estimated"),
        (op(flops=100, bytes=None), "estimated"),
        (op(flops=100, bytes=10, is_recompute=True), "recompute"),
        (op(flops=100, bytes=10, compiled=True), "eager_capture"),
    ],
)
def test_what_a_reader_must_know_of_an_operation_is_a_flag(record: OpRecord, flag: str) -> None:
    assert roofline(record, device()).flags == [flag]
    assert flag in FLAGS


def test_unknown_work_and_missing_limits_have_no_estimate() -> None:
    for record, spec in [
        (op(flops=None, flops_vector=None, bytes=None, measured_time_us=5.0), device()),
        (op("aten::add", OpType.ELEMENTWISE, flops_vector=10, bytes=None, measured_time_us=5.0), device()),
        (op(flops=100, bytes=10, dtype=DataType.FP16, measured_time_us=5.0), device()),
        (op(flops=100, bytes=10, measured_time_us=5.0), None),
    ]:
        result = roofline(record, spec)
        assert (result.estimated_time_us, result.bound_type, result.efficiency) == (None, BoundType.UNKNOWN, None)


def test_views_take_no_time_and_have_no_bound() -> None:
    result = roofline(op("aten::view", OpType.MEMORY), device())
    assert (result.estimated_time_us, result.bound_type, result.flags) == (0.0, BoundType.UNKNOWN, [])


def test_a_time_of_zero_is_no_time() -> None:
    assert roofline(op(flops=100, bytes=10, measured_time_us=0.0), device()).efficiency is None


def test_events_around_short_work_measure_the_launch() -> None:
    # GIVEN three calls in 59 µs, and in 60 µs
    short, long = (op(flops=100, bytes=10, count=3, measured_time_us=time) for time in (59.0, 60.0))

    assert roofline(short, gpu(), events=True).flags == ["launch_bound_timing"]
    assert roofline(long, gpu(), events=True).flags == []
    assert roofline(short, gpu()).flags == []


def test_sparse_peaks_only_where_they_are_assumed() -> None:
    record = op(flops=2_000_000_000, bytes=0)
    assert roofline(record, device()).estimated_time_us == pytest.approx(20.0)
    sparse = roofline(record, device(assume_sparsity=True))
    assert sparse.estimated_time_us == pytest.approx(10.0) and sparse.flags == ["sparse"]


def test_an_unconfirmed_peak_is_flagged_where_it_sets_the_limit() -> None:
    spec = device(unverified=frozenset({DataType.BF16}))
    assert roofline(op(flops=2_000_000_000, bytes=0), spec).flags == ["unverified_peak"]
    assert roofline(op(flops=1, bytes=1_000_000), spec).flags == []


@pytest.mark.parametrize(
    ("precision", "kind", "peak"),
    [
        (Precision("highest", True), OpType.MATMUL, 10e12),
        (Precision("high"), OpType.MATMUL, 50e12),
        (Precision("medium"), OpType.ATTENTION, 50e12),
        (Precision("high", False), OpType.CONV, 10e12),
        (Precision("highest", True), OpType.CONV, 50e12),
    ],
)
def test_fp32_products_run_in_tf32_where_torch_says_so(precision: Precision, kind: OpType, peak: float) -> None:
    record = op(kind=kind, dtype=DataType.FP32, flops=1_000_000, bytes=0)
    assert roofline(record, gpu(), precision=precision).peak_used == peak
    assert roofline(record, gpu(vendor="amd"), precision=precision).peak_used == 10e12
    assert roofline(record, device(), precision=precision).peak_used == 10e12


def test_tf32_is_no_matter_of_other_types_and_of_vector_work() -> None:
    high = Precision("high", True)
    assert roofline(op(flops=100, bytes=0), gpu(), precision=high).peak_used == 100e12
    assert roofline(op("aten::add", OpType.ELEMENTWISE, dtype=DataType.FP32, flops_vector=9, bytes=0), gpu(), precision=high).peak_used == 5e12


def test_the_precision_of_this_process() -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_float32_matmul_precision()
    try:
        for wanted in ("highest", "high", "medium"):
            torch.set_float32_matmul_precision(wanted)
            assert current_precision().matmul == wanted
    finally:
        torch.set_float32_matmul_precision(before)
    assert current_precision().cudnn_tf32 == torch.backends.cudnn.allow_tf32


def test_records_of_layers_and_functions() -> None:
    # GIVEN a Linear of 2 GFLOP, and a softmax whose FLOP run on the vector units
    linear = CapturedOp("net.a", "Linear", OpType.MATMUL, [(8, 4)], [(8, 8)], DataType.BF16, 40.0, "train", 2_000_000_000, 10_000_000)
    softmax = CapturedFunctionalOp("F.softmax", OpType.SOFTMAX, [(8, 4)], [(8, 4)], DataType.BF16, None, "train", "net", 10_000_000, 1_000_000)

    assert roofline(linear, device()).efficiency == pytest.approx(0.5)
    assert roofline(softmax, device()).estimated_time_us == pytest.approx(2.0)


@pytest.mark.parametrize("key", ["H100_SXM", "MI300X", "V100", "RTX_4090", "A100_SXM_80@1200MHz"])
def test_roofline_of_records_equals_that_of_the_page(key: str) -> None:
    """Random work, with gaps, through both: the arrays of `cost.roofline` with the peaks of the page, and record by record."""
    rng = random.Random(7)
    types = [*PEAK_OF, DataType.OTHER, DataType.INT64, DataType.BOOL]
    names = {**PEAK_OF, DataType.OTHER: "", DataType.INT64: "int64", DataType.BOOL: "bool"}

    def amount(high: float) -> int | None:
        return None if rng.random() < 0.15 else 0 if rng.random() < 0.2 else round(10 ** rng.uniform(0, high))

    rows = [op(dtype=rng.choice(types), flops=amount(13), flops_vector=amount(11), bytes=amount(10)) for _ in range(400)]
    spec = device_spec(key)
    plain, _, tail = key.partition("@")
    page = overridden(plain)
    if tail:
        from tb_sol_plugin.devices.expression import Expression, apply

        page = apply(page, Expression(plain, 1200.0))
    assert spec is not None

    def column(field: str) -> np.ndarray:
        return np.array([math.nan if getattr(r, field) is None else getattr(r, field) for r in rows], float)

    peak = np.array([page.matrix_peak(names[r.dtype]) or math.nan for r in rows])
    vector = np.array([page.vector_peak(names[r.dtype]) or math.nan for r in rows])
    wanted, bound = limit(column("flops"), column("flops_vector"), column("bytes"), peak, vector, page.memory_bandwidth or math.nan)

    for row, ns, side in zip(rows, wanted.tolist(), bound.tolist(), strict=True):
        result = roofline(row, spec)
        if math.isnan(ns):
            assert result.estimated_time_us is None
        else:
            assert result.estimated_time_us is not None
            assert result.estimated_time_us * 1e3 == pytest.approx(ns, rel=1e-12, abs=1e-12)
        assert result.bound_type is [BoundType.UNKNOWN, BoundType.COMPUTE_BOUND, BoundType.MEMORY_BOUND][side]
