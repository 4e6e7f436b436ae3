"""From the measured step to the speed of light: the parts are exclusive and add up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.metrics.time.breakdown import COMMUNICATION, COMPUTATION, MEMCPY
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.time.waterfall import Waterfall, exclusive_parts, waterfall
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables import intervals as iv
from tests.support.captures import capture
from tests.support.recordings import JSON, over, path_of
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back, training

EVENTS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.sampled_from([COMPUTATION, COMMUNICATION, MEMCPY])), max_size=25)


def of(c: Capture, **query: str) -> Waterfall:
    asked = Query(**query)
    return waterfall(c, scope(c, asked), asked.device_limits)


def parts(f: Waterfall) -> int:
    return sum(f.measured_parts.values())


@given(EVENTS, st.integers(0, 40), st.integers(1, 60))
def test_exclusive_parts_equal_a_bitmap(rows: list[tuple[int, int, int]], low: int, length: int) -> None:
    # GIVEN events of three layers and a window WHEN each nanosecond goes to the first layer that covers it
    start, size, layer = (np.array([r[i] for r in rows], np.int64) for i in range(3))
    own, busy = exclusive_parts(start, start + size, layer.astype(np.int8), iv.one(low, low + length))
    left = set(range(low, low + length))
    for level in (COMPUTATION, COMMUNICATION, MEMCPY):
        bits = {t for s, n, k in rows if k == level for t in range(s, s + n)} & left
        # THEN the layer's rows own exactly these
        assert own[layer == level].sum() == len(bits)
        left -= bits
    assert iv.length(busy) == length - len(left) and (own >= 0).all()


@pytest.fixture
def loading(tmp_path: Path) -> Capture:
    """One step [0, 1000) us: loads [0, 400), a pageable copy [400, 450), addmm [500, 700), a kernel without model [700, 760),
    an all-reduce [740, 850) of which 90 are exposed; idle else."""
    t = TraceBuilder()
    t.step(3, 0, 1_000_000)
    t.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 400_000)
    t.copy("HtoD", 400_000, 50_000, bytes=500_000, src="Pageable", call=(395_000, 2_000))
    t.op("aten::addmm", 450_000, 30_000, shapes=[[512], [512, 512], [512, 512]], types=["float"] * 3)
    t.launch("ampere_sgemm", at=455_000, start=500_000, duration=200_000)
    t.launch("mystery", at=600_000, start=700_000, duration=60_000)
    t.launch("ncclDevKernel_AllReduce_Sum_f32", at=650_000, start=740_000, duration=110_000, stream=20)
    return read_back(t, tmp_path)


def test_every_part_of_the_waterfall_by_hand(loading: Capture) -> None:
    f = of(loading)
    assert (f.total_ns, f.steps, f.stepped) == (1_000_000, 1, True)
    assert f.input_wait_ns == 400_000 and f.exposed_copies_ns == 50_000
    assert f.kind_ns["gemm"] == 200_000 and f.unmodelled_ns == 60_000
    assert f.exposed_communication_ns == 90_000
    # idle is [450, 500) and [850, 1000)
    assert f.host_wait_ns == 200_000 and f.busy_ns == 400_000
    assert parts(f) == f.total_ns
    # the product: 2 * 512**3 FLOP at the FP32 vector rate of an H100 (66.9 TFLOP/s) takes 4 012.5 ns; 4 194 304 + 2 048 bytes fewer than that
    assert f.limit_ns["gemm"] == pytest.approx(2 * 512**3 / 66.9e12 * 1e9, rel=1e-3)
    assert f.ratio == pytest.approx(f.limit_ns["gemm"] / 1_000_000)
    # kernel time with a model: 200 of 260
    assert f.modeled_kernel_share == pytest.approx(200 / 260)


def test_chosen_limits_replace_the_matched_ones(loading: Capture) -> None:
    # GIVEN an A100 as the device to compare with (19.5 TFLOP/s in FP32) THEN the limit is longer in that proportion
    slow, fast = of(loading, device_limits="A100_SXM_80"), of(loading)
    assert slow.limit_ns["gemm"] / fast.limit_ns["gemm"] == pytest.approx(66.9 / 19.5, rel=1e-2)


def test_an_incomplete_step_is_left_out_where_there_are_others(tmp_path: Path) -> None:
    # GIVEN two steps with device work and a third, empty one
    t = training(steps=2)
    t.step(9, 2_000_000, 700_000)
    f = of(read_back(t, tmp_path))
    assert f.steps == 2 and f.total_ns == 2 * 999_000


def test_without_a_device_the_host_is_split_and_there_is_no_ratio(tmp_path: Path) -> None:
    # GIVEN one step [0, 1000) of the host with a batch [0, 100) that adds for 50, an add [100, 300) without sizes and a linear [400, 900)
    # around a product [450, 850)
    t = TraceBuilder(device="")
    t.step(1, 0, 1_000)
    t.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 100)
    t.op("aten::add", 10, 50)
    t.op("aten::add", 100, 200)
    t.op("aten::linear", 400, 500)
    t.op("aten::mm", 450, 400, shapes=[[64, 64], [64, 64]], types=["float", "float"])
    f = of(read_back(t, tmp_path))
    # THEN loading 100, the product 400, an operator without a model 200, the linear's own 100, and 200 outside every operator
    assert (f.input_wait_ns, f.kind_ns["gemm"], f.unmodelled_ns, f.framework_ns, f.outside_ns) == (100, 400, 200, 100, 200)
    assert parts(f) == f.total_ns == 1_000
    assert f.busy_ns == 700 and f.ratio is None and f.modeled_kernel_share == pytest.approx(400 / 600)


def test_a_measured_cpu_has_a_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a product of 2 * 64**3 FLOP on a CPU of 10 GFLOP/s and 100 GB/s: 52 428.8 ns at its limit, by far more than its bytes take
    t = TraceBuilder(device="")
    t.step(1, 0, 1_000_000)
    t.op("aten::mm", 0, 400_000, shapes=[[64, 64], [64, 64]], types=["float", "float"])
    cpu = DeviceSpec(key="CPU", name="a CPU", vendor="cpu", matrix={"fp32": 1e10}, vector={"fp32": 1e10}, memory_bandwidth=1e11)
    monkeypatch.setattr("tb_sol_plugin.metrics.time.waterfall.device_for", lambda capture, limits: cpu)
    f = of(read_back(t, tmp_path))
    assert f.sol_ns == pytest.approx(2 * 64**3 / 1e10 * 1e9) and f.ratio == pytest.approx(0.0524288)
    assert f.limits.compute == f.sol_ns and f.limits.memory == 0.0


def test_limits_are_split_by_what_bounds_them(tmp_path: Path) -> None:
    # GIVEN a product that computes longest (2 * 4096**3 FLOP in BF16) and an add that reads and writes 3 * 2 * 4096**2 bytes
    t = TraceBuilder()
    t.step(1, 0, 1_000_000)
    t.op("aten::mm", 0, 10_000, shapes=[[4096, 4096], [4096, 4096]], types=["c10::BFloat16"] * 2)
    t.launch("gemm", at=1_000, start=20_000, duration=200_000)
    t.op("aten::add", 20_000, 10_000, shapes=[[4096, 4096], [4096, 4096], []], types=["c10::BFloat16", "c10::BFloat16", "Scalar"])
    t.launch("add", at=21_000, start=220_000, duration=50_000)
    f = of(read_back(t, tmp_path))
    # THEN the first counts as compute-bound (989.4 TFLOP/s), the other as memory-bound (3.35 TB/s)
    assert f.limits.compute == pytest.approx(2 * 4096**3 / 989.4e12 * 1e9, rel=1e-3)
    assert f.limits.memory == pytest.approx(3 * 2 * 4096**2 / 3.35e12 * 1e9, rel=1e-3)
    assert f.limits.compute + f.limits.memory + f.limits.again == pytest.approx(f.sol_ns) and f.limits.again == 0.0
    # at the 794 TFLOP/s that products reach on an H100 the first takes longer, the second does not
    assert f.limits.achievable == pytest.approx(2 * 4096**3 / 794e12 * 1e9 + f.limits.memory, rel=1e-3)


def test_the_limit_of_work_on_two_devices_is_shared_by_them(tmp_path: Path) -> None:
    # GIVEN two devices that run one product of 2 * 512**3 FLOP each, [100, 300) and [150, 350) us
    t = TraceBuilder(devices=2)
    t.step(1, 0, 1_000_000)
    for device in range(2):
        at = device * 10_000
        t.op("aten::mm", at, 5_000, shapes=[[512, 512], [512, 512]], types=["float", "float"])
        t.launch("gemm", at=at + 1_000, start=100_000 + 50_000 * device, duration=200_000, device=device, stream=7 + device)
    f = of(read_back(t, tmp_path))
    # THEN any of them is busy for 250 us, and each has one product to do at its limit
    assert f.devices == 2 and f.busy_ns == 250_000 and parts(f) == f.total_ns
    assert f.sol_ns == pytest.approx(2 * 512**3 / 66.9e12 * 1e9, rel=1e-3)


def test_a_device_with_little_to_do_does_not_halve_the_limit_of_the_other(tmp_path: Path) -> None:
    # GIVEN a product on the first device, and a quarter of it on the second at the same time
    t = TraceBuilder(devices=2)
    t.step(1, 0, 1_000_000)
    for device, rows in enumerate((512, 128)):
        at = device * 10_000
        t.op("aten::mm", at, 5_000, shapes=[[rows, 512], [512, 512]], types=["float", "float"])
        t.launch("gemm", at=at + 1_000, start=100_000, duration=200_000 // (device + 1), device=device, stream=7 + device)
    f = of(read_back(t, tmp_path))
    # THEN the step can be no shorter than what the first has to do
    limits = [2 * rows * 512 * 512 / 66.9e12 * 1e9 for rows in (512, 128)]
    assert f.devices == 2 and f.parallel == pytest.approx(sum(limits) / limits[0], rel=1e-3)
    assert f.sol_ns == pytest.approx(limits[0], rel=1e-3)


@over(JSON)
def test_parts_add_up_on_every_recorded_run(name: str) -> None:
    # GIVEN a recording that can be read WHEN its time is split THEN each nanosecond is in one part, whole and step by step
    c = capture(path_of(name))
    whole = of(c)
    assert parts(whole) == whole.total_ns and min(whole.measured_parts.values()) >= 0
    assert sum(whole.again_ns.values()) <= sum(whole.kind_ns.values())
    split = whole.limits.compute + whole.limits.memory + whole.limits.again
    assert split == pytest.approx(whole.sol_ns)
    for number in c.steps["number"].to_numpy()[:3].tolist():
        if number >= 0 and not c.facts.pseudo_step:
            one = of(c, step=str(number))
            assert parts(one) == one.total_ns and min(one.measured_parts.values()) >= 0, number


@pytest.mark.real
def test_a_run_without_shapes_has_no_limits(traces: Path) -> None:
    assert of(capture(traces / "hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz")).ratio is None
