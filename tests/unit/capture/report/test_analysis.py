"""The analysis of a step: every figure of one step worked out by hand, and sums that hold for any records."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.capture.device_specs import DeviceSpec
from tb_sol_plugin.capture.loop.labels import NONE, Labels
from tb_sol_plugin.capture.operation_registry import BoundType, DataType, OpRecord, OpType
from tb_sol_plugin.capture.report.analysis import Analysis, analyze, carry, times_of_layers, times_of_phases
from tb_sol_plugin.capture.roofline import Precision
from tb_sol_plugin.capture.work.sums import Group
from tests.support.sol_step import device, gpu, op, records, step


def by_name(groups: list[Group]) -> dict[str, Group]:
    return {group.name: group for group in groups}


def figures(group: Group) -> tuple[int, float | None, float | None, float | None]:
    """(operations, estimate in µs, measured µs, efficiency in %), rounded."""
    rounded = (group.estimated_us, group.measured_us, None if group.efficiency is None else 100 * group.efficiency)
    return (group.count, *(None if value is None else round(value, 2) for value in rounded))  # type: ignore[return-value]


# -- operations timed singly -------------------------------------------------------------------------------------------


def test_the_totals_of_the_step() -> None:
    total = analyze(records(), step(), device()).total

    # 20 + 40 + 8 + 10 + 12 = 90 µs; 40 + 50 + 16 + 20 + 10 + 5 = 141 µs, 5 of them of work that nobody knows
    assert figures(total) == (10, 90.0, 141.0, round(100 * 90 / 136, 2))
    assert (total.flops, total.flops_vector, total.bytes) == (7_000_000_000, 2_000_000, 55_000_000)
    assert (total.unknown, total.share, total.coverage) == (1, 1.0, 1.0)
    # 20 + 40 + 10 of the 90 µs are set by arithmetic
    assert total.compute_us == pytest.approx(70.0) and total.bound is BoundType.COMPUTE_BOUND


def test_every_operation_is_in_one_layer() -> None:
    layers = analyze(records(), step(), device()).layers

    assert [g.name for g in layers] == ["Linear", "(unattributed)", "LayerNorm"]
    assert [figures(g) for g in layers] == [(7, 70.0, 110.0, 63.64), (2, 12.0, 15.0, 120.0), (1, 8.0, 16.0, 50.0)]
    assert [g.share for g in layers] == pytest.approx([70 / 90, 12 / 90, 8 / 90])
    assert [g.bound for g in layers] == [BoundType.COMPUTE_BOUND, BoundType.MEMORY_BOUND, BoundType.MEMORY_BOUND]
    assert [g.flags for g in layers] == [("recompute",), ("above_limit", "no_model"), ()]


def test_phases_hold_everything_once_and_no_phase_stands_last() -> None:
    phases = analyze(records(), step(), device()).phases

    assert [g.name for g in phases] == ["train/backward", "train/forward", "(no phase)"]
    assert [figures(g) for g in phases] == [(5, 50.0, 70.0, 71.43), (3, 28.0, 56.0, 50.0), (2, 12.0, 15.0, 120.0)]


def test_no_phase_stands_last_also_where_it_is_largest() -> None:
    rows = [op(flops=9_000_000_000, bytes=0), op(flops=1, bytes=0, phase="a"), op(flops=2, bytes=0, phase="b")]
    assert [g.name for g in analyze(rows, step(), device()).phases] == ["b", "a", "(no phase)"]


def test_every_operation_is_also_grouped_by_its_function() -> None:
    functions = analyze(records(), step(), device()).functions

    assert [g.name for g in functions] == ["F.linear", "F.layer_norm"]
    assert [figures(g) for g in functions] == [(3, 30.0, 60.0, 50.0), (1, 8.0, 16.0, 50.0)]
    assert [g.share for g in functions] == pytest.approx([30 / 90, 8 / 90])


def test_utilization_of_the_matrix_units() -> None:
    found = analyze(records(), step(wall_us=200.0), device())

    # 2 + 4 GFLOP at 100 TFLOP/s are 60 µs of 200; with the recomputed GFLOP 70 µs
    assert found.mfu == pytest.approx(0.30)
    assert found.hfu == pytest.approx(0.35)


def test_utilization_sums_types_at_their_own_peaks() -> None:
    rows = [op(flops=1_000_000_000, bytes=0), op(flops=1_000_000_000, bytes=0, dtype=DataType.FP32), op(flops=5, bytes=0, dtype=DataType.FP16)]
    taken = step(wall_us=1000.0, device_us=900.0)
    assert analyze(rows, taken, gpu(), precision=Precision()).mfu == pytest.approx((10 + 100) / 1000)
    assert analyze(rows, taken, gpu(), precision=Precision("high")).mfu == pytest.approx((10 + 20) / 1000)


def test_the_longest_operations_are_ranked_by_their_estimates() -> None:
    top = analyze(records(), step(), device()).top

    assert [(o.rank, o.name, o.direction, o.layer_name) for o in top] == [
        (1, "aten::mm", "bwd", "net.a"),
        (2, "aten::mm", "fwd", "net.a"),
        (3, "aten::add", "fwd", ""),
        (4, "aten::mm", "fwd", "net.a"),
        (5, "aten::native_layer_norm", "fwd", "net.n"),
        (6, "my::op", "fwd", ""),
    ]
    first, last = top[0], top[-1]
    assert (first.count, first.flops, first.bytes, first.arithmetic_intensity) == (4, 4_000_000_000, 20_000_000, 200.0)
    assert (first.estimated_us, first.measured_us, first.bound) == (pytest.approx(40.0), 50.0, BoundType.COMPUTE_BOUND)
    assert first.efficiency == pytest.approx(0.8)
    assert (last.flops, last.estimated_us, last.efficiency, last.flags) == (None, None, None, ("no_model",))
    assert top[2].flags == ("above_limit",) and top[3].flags == ("recompute",)


def test_operations_that_differ_in_function_only_are_one() -> None:
    rows = [op(flops=10, bytes=10, func_name=name, forward_phase=name) for name in ("F.linear", "torch.mm")] + [op(flops=10, bytes=10, phase="a")]
    assert [(o.phase, o.count) for o in analyze(rows, step(), device()).top] == [("(no phase)", 2), ("a", 1)]


def test_fifty_operations_at_most() -> None:
    rows = [op(flops=1_000_000 * n, bytes=0, layer_name=str(n)) for n in range(1, 61)]
    top = analyze(rows, step(), device()).top
    assert len(top) == 50 and top[0].layer_name == "60" and top[-1].layer_name == "11"


# -- without limits, and limits of another device ----------------------------------------------------------------------


def test_without_limits_work_and_times_stay() -> None:
    found = analyze(records(), step(), None, reason="a CPU has no fixed peak")

    assert figures(found.total) == (10, None, 141.0, None)
    assert (found.total.flops, found.total.bytes, found.total.share) == (7_000_000_000, 55_000_000, None)
    assert (found.mfu, found.reason, found.device) == (None, "a CPU has no fixed peak", "")
    # sorted by time: 110, 16, 15; 70, 56 and (no phase)
    assert [g.name for g in found.layers] == ["Linear", "LayerNorm", "(unattributed)"]
    assert [g.name for g in found.phases] == ["train/backward", "train/forward", "(no phase)"]
    assert found.top[0].measured_us == 50.0


def test_times_of_the_cpu_are_not_set_against_limits_of_a_gpu() -> None:
    # GIVEN the limits of a GPU asked for in a run on the CPU
    found = analyze(records(), step(), gpu())

    # THEN both figures stand, and no ratio of them
    assert figures(found.total) == (10, 90.0, 141.0, None)
    assert (found.mfu, found.hfu) == (None, None)
    assert all(o.efficiency is None and "above_limit" not in o.flags for o in found.top)
    assert found.notes == ("the limits are those of ROUND, the times those of the CPU: no efficiency",)


def test_times_of_a_gpu_are_not_set_against_limits_of_a_cpu() -> None:
    found = analyze(records(timed=False), step(device_us=180.0), device())
    assert (found.total.measured_us, found.total.efficiency, found.mfu) == (None, None, None)


def test_no_records_are_no_work_known() -> None:
    found = analyze([], step(), device())
    assert figures(found.total) == (0, None, None, None)
    assert (found.layers, found.phases, found.functions, found.top, found.total.flops) == ([], [], [], [], None)


# -- times between events ----------------------------------------------------------------------------------------------


def by_events(**times: dict[str, float | None]) -> Analysis:
    """The step on a GPU: 180 µs between its own events."""
    return analyze(records(timed=False), step(device_us=180.0), gpu(), **times)  # type: ignore[arg-type]


def test_the_step_by_its_own_events() -> None:
    found = by_events()
    assert figures(found.total) == (10, 90.0, 180.0, 50.0)
    assert "launch_bound_timing" in found.total.flags  # 18 µs per operation
    assert (found.time_source, found.mfu) == ("event", pytest.approx(0.3))
    assert all(g.measured_us is None for g in (*found.layers, *found.functions, *found.phases))


def test_a_layer_is_judged_by_the_work_inside_its_events() -> None:
    # GIVEN 60 µs around the forward calls of net.a: 20 µs of its forward work, and 10 µs run again; its backward work lies outside
    linear = by_name(by_events(layer_times={"net.a": 60.0, "net.n": None}).layers)["Linear"]

    assert figures(linear) == (7, 70.0, 60.0, 50.0)
    assert linear.coverage == pytest.approx(30 / 70)
    assert linear.flags == ("recompute", "forward_only")


def test_a_layer_without_all_its_times_has_none() -> None:
    layers = by_name(by_events(layer_times={"net.a": 60.0, "net.n": None, "net.gone": 5.0}).layers)
    assert figures(layers["LayerNorm"]) == (1, 8.0, None, None)
    assert figures(layers["(unattributed)"]) == (2, 12.0, None, None)
    assert "net.gone" not in layers


def test_short_layers_measure_their_launch() -> None:
    layers = by_name(by_events(layer_times={"net.n": 19.0}).layers)
    assert layers["LayerNorm"].flags == ("launch_bound_timing",)


def test_phases_by_their_events_and_what_is_left_of_the_step() -> None:
    phases = by_name(by_events(phase_times={"train/forward": 56.0, "train/backward": 100.0}).phases)

    assert figures(phases["train/forward"]) == (3, 28.0, 56.0, 50.0)
    assert figures(phases["train/backward"]) == (5, 50.0, 100.0, 50.0)
    assert figures(phases["(no phase)"]) == (2, 12.0, 24.0, 50.0)  # 180 - 156


def test_what_is_left_of_the_step_is_unknown_where_a_phase_is() -> None:
    phases = by_name(by_events(phase_times={"train/forward": 56.0, "train/backward": None}).phases)
    assert phases["(no phase)"].measured_us is None and phases["train/backward"].measured_us is None
    assert by_name(by_events(phase_times={"train/forward": 56.0}).phases)["(no phase)"].measured_us is None


def test_a_phase_without_operations_keeps_its_time() -> None:
    phases = by_name(by_events(phase_times={"rollout": 44.0, "train/forward": 56.0, "train/backward": 80.0}).phases)
    assert figures(phases["rollout"]) == (0, None, 44.0, None)
    assert phases["(no phase)"].measured_us is None  # nothing is left


def test_times_of_a_compiled_model_run_eagerly_are_not_published() -> None:
    for rows, taken in [
        ([op(flops=2_000_000_000, bytes=0, compiled=True)], step(device_us=180.0)),
        ([op(flops=2_000_000_000, bytes=0)], step(device_us=180.0)),
    ]:
        taken.compiled = not rows[0].compiled
        found = analyze(rows, taken, gpu(), layer_times={"": 5.0}, phase_times={"(no phase)": 3.0})
        assert figures(found.total) == (1, 20.0, None, None)
        assert (found.mfu, found.step_us, found.phases[0].measured_us) == (None, None, None)
        assert len(found.notes) == 1 and "eagerly" in found.notes[0]


def test_no_time_of_a_step_with_compiled_work_is_compared_with_the_limits() -> None:
    rows = [op(flops=2_000_000_000, bytes=0, compiled=True, measured_time_us=99.0), op("aten::add", flops_vector=1, bytes=8_000_000, measured_time_us=16.0)]
    total = analyze(rows, step(), device()).total
    assert figures(total) == (2, 28.0, None, None)


def test_communication_has_time_and_no_limit_of_this_device() -> None:
    # GIVEN 20 µs of work in 40 µs, and 60 µs of a collective
    rows = [op(flops=2_000_000_000, bytes=0, measured_time_us=40.0), op("c10d::allreduce_", OpType.COMMUNICATION, measured_time_us=60.0)]
    total = analyze(rows, step(), device()).total

    # THEN its time stands in the sum and in no efficiency; its work is not unknown
    assert figures(total) == (2, 20.0, 100.0, 50.0)
    assert (total.unknown, total.flags) == (0, ("communication",))


# -- rows of times -----------------------------------------------------------------------------------------------------


def test_times_of_phases_are_their_own() -> None:
    # GIVEN train (100 µs) around forward (30 + 20 µs), and forward again at the root (5 µs)
    labels = Labels()
    train = labels.id_of("phase", NONE, "train")
    inner, outer = labels.id_of("phase", train, "forward"), labels.id_of("phase", NONE, "forward")
    rows = [(train, 0, 1, 100_000, 1), (inner, 0, 1, 30_000, 1), (inner, 0, 1, 20_000, 1), (outer, 0, 1, 5_000, 1)]

    assert times_of_phases(rows, labels) == {"train": 50.0, "forward": 55.0}


def test_a_phase_around_an_untimed_one_is_unknown() -> None:
    labels = Labels()
    train = labels.id_of("phase", NONE, "train")
    inner = labels.id_of("phase", train, "forward")
    assert times_of_phases([(train, 0, 1, 100_000, 1), (inner, 0, 1, None, 1)], labels) == {"train": None, "forward": None}
    assert times_of_phases([(train, 0, 1, 100_000, 1), (inner, 0, 1, 120_000, 1)], labels) == {"train": None, "forward": 120.0}


def test_a_layer_keeps_what_lies_inside_it_and_is_no_layer() -> None:
    # GIVEN a fused layer (100 µs) with a dropout (10) and, below an unnamed block, a Linear (40): all modules are timed
    labels = Labels()
    fused = labels.id_of("module", NONE, "mlp", "TELayerNormMLP")
    dropout = labels.id_of("module", fused, "mlp.dropout", "Dropout")
    block = labels.id_of("module", fused, "mlp.block", "Block")
    linear = labels.id_of("module", block, "mlp.block.fc", "Linear")
    rows = [(fused, 0, 1, 100_000, 1), (dropout, 0, 1, 10_000, 1), (block, 0, 1, 45_000, 1), (linear, 0, 1, 40_000, 1)]

    assert times_of_layers(rows, labels, {"mlp", "mlp.block.fc"}) == {"mlp": 60.0, "mlp.block.fc": 40.0}


# -- steps whose work was not counted ----------------------------------------------------------------------------------


def test_a_step_that_was_not_counted_has_the_work_of_one_that_was() -> None:
    last = by_events(phase_times={"train/forward": 56.0, "train/backward": 100.0})
    found = carry(last, step(12, device_us=120.0, wall_us=150.0), phase_times={"train/forward": 40.0, "train/backward": 60.0})

    assert (found.iteration, found.age, found.reported) == (12, 5, last)
    assert figures(found.total) == (10, 90.0, 120.0, 75.0)
    assert {g.name: figures(g) for g in found.phases} == {
        "train/forward": (3, 28.0, 40.0, 70.0),
        "train/backward": (5, 50.0, 60.0, 83.33),
        "(no phase)": (2, 12.0, 20.0, 60.0),
    }
    assert (found.layers, found.functions, found.top) == ([], [], [])
    assert found.mfu == pytest.approx(60 / 150)
    assert carry(found, step(13, device_us=120.0)).age == 6


def test_a_step_carried_over_on_a_cpu_has_no_times() -> None:
    found = carry(analyze(records(), step(), device()), step(8, wall_us=100.0))
    assert figures(found.total) == (10, 90.0, None, None)
    assert (found.mfu, found.time_source) == (pytest.approx(0.6), "")
    assert all(g.measured_us is None and "above_limit" not in g.flags for g in found.phases)


def test_a_step_of_a_compiled_model_carried_over_on_a_gpu_has_its_time() -> None:
    taken = step(device_us=500.0)
    taken.compiled = True
    found = carry(analyze([op(flops=2_000_000_000, bytes=0)], taken, gpu()), step(8, device_us=40.0, wall_us=50.0))
    assert figures(found.total) == (1, 20.0, 40.0, 50.0)
    assert found.mfu == pytest.approx(0.4)


# -- for any records ---------------------------------------------------------------------------------------------------

amounts = st.none() | st.integers(0, 10**13)
any_record = st.builds(
    OpRecord,
    name=st.sampled_from(["aten::mm", "aten::add", "my::op"]),
    op_type=st.sampled_from(OpType),
    dtype=st.sampled_from(DataType),
    input_shapes=st.just([(2, 3)]),
    flops=amounts,
    flops_vector=amounts,
    bytes=amounts,
    count=st.integers(1, 1000),
    direction=st.sampled_from(["fwd", "bwd"]),
    is_recompute=st.booleans(),
    layer_name=st.sampled_from(["", "a", "b"]),
    layer_type=st.sampled_from(["", "Linear", "Embedding"]),
    func_name=st.sampled_from(["", "F.linear"]),
    phase=st.sampled_from(["(no phase)", "p", "p/q"]),
    measured_time_us=st.none() | st.floats(0, 1e9),
    estimated=st.booleans(),
    compiled=st.booleans(),
)


def total_of(groups: list[Group], field: str) -> float:
    return math.fsum(getattr(g, field) or 0 for g in groups)


@settings(max_examples=150, deadline=None)
@given(st.lists(any_record, max_size=30), st.sampled_from([None, device(), gpu()]), st.none() | st.floats(1, 1e6))
def test_groups_sum_to_the_total(rows: list[OpRecord], spec: DeviceSpec | None, device_us: float | None) -> None:
    found = analyze(rows, step(device_us=device_us), spec, layer_times={"a": 3.0}, phase_times={"p": 4.0}, precision=Precision("high", True))

    for groups in (found.layers, found.phases):
        for field in ("count", "flops", "flops_vector", "bytes", "unknown"):
            assert total_of(groups, field) == (getattr(found.total, field) or 0)
        for field in ("estimated_us", "compute_us"):
            assert total_of(groups, field) == pytest.approx(getattr(found.total, field) or 0, rel=1e-12)
        if found.total.estimated_us:
            assert total_of(groups, "share") == pytest.approx(1.0)
        if found.time_source == "cpu":
            assert total_of(groups, "measured_us") == pytest.approx(found.total.measured_us or 0, rel=1e-12)
    assert found.total.count == sum(r.count for r in rows)
    assert total_of(found.functions, "count") == sum(r.count for r in rows if r.func_name)
    for group in (found.total, *found.layers, *found.functions, *found.phases):
        assert ("above_limit" in group.flags) == (group.efficiency is not None and group.efficiency > 1.02)
        assert group.efficiency is None or group.measured_us
    assert [o.rank for o in found.top] == list(range(1, len(found.top) + 1))
