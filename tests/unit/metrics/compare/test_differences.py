"""Two sides against each other: differences that add up to the nanosecond, and causes that are those that were planted."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.metrics.compare.causes import Cause, causes_of, hidden_changes
from tb_sol_plugin.metrics.compare.causes import compared as compare_all
from tb_sol_plugin.metrics.compare.differences import Bar, Rows, Side, Waterfall, metrics_of, rows_of, waterfall_of
from tb_sol_plugin.metrics.compare.findings import findings_of
from tb_sol_plugin.metrics.compare.matching import Named, renamed
from tb_sol_plugin.metrics.compare.samples import GROUPINGS, LAUNCH, MOST_ROWS, OTHER, Grouping, Samples, per_step, samples_of
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables.arrays import rounded
from tests.support.compared import Job, recording


@lru_cache(maxsize=32)
def samples(seed: int, **changes: object) -> Samples:
    return samples_of(recording(replace(Job(), **changes), seed), Query())  # type: ignore[arg-type]


def planted(seed: int = 1, **changes: object) -> Side:
    frozen = {k: v for k, v in changes.items() if not isinstance(v, dict)}
    found = samples(seed, **frozen) if len(frozen) == len(changes) else samples_of(recording(Job(**changes), seed), Query())  # type: ignore[arg-type]
    return Side("B", [found])


BASE = Side("A", [samples(0)])


def compared(a: Side, b: Side) -> tuple[Waterfall, dict[str, Rows | None], list[Cause]]:
    rows = {by: rows_of(a, b, by) for by in (*GROUPINGS, LAUNCH)}
    falls = waterfall_of(a, b, rows)
    return falls, rows, causes_of(falls, rows, metrics_of(a, b))


def added(bars: tuple[Bar, ...]) -> int:
    """Sum of bars; those below each add up to it."""
    for bar in bars:
        assert not bar.parts or added(bar.parts) == bar.delta_ns, bar.name
    return sum(bar.delta_ns for bar in bars)


PLANTED = {
    "a kernel takes twice as long": ({"scale": {"aten::gelu": 2.0}}, "slower_same_kernel", "aten::gelu", 6 * 60_000),
    "another kernel": ({"kernels": {"aten::_softmax": "softmax_v2"}, "scale": {"aten::_softmax": 1.5}}, "substitution", "aten::_softmax",
                       6 * 60_000),
    "one more launch per layer": ({"more": {"aten::add": 1}}, "more_calls", "aten::add", 6 * 40_000),
    "a new operator": ({"more": {"aten::_softmax": 2}}, "more_calls", "aten::_softmax", 12 * 120_000),
    "a call that waits": ({"syncs": 1}, "sync_added", "syncs", 300_000),
    "memory from the driver": ({"mallocs": 2}, "memory_pressure", "allocations", 400_000),
    "slow input": ({"loading_us": 800}, "dataloader", "DataLoader", 600_000),
    "more copies": ({"copies": 12}, "copy", "HtoD", 10 * 30_000),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_change_is_named_first(name: str) -> None:
    # GIVEN a recording with one change WHEN it is set against the one without
    changes, kind, of, amount = PLANTED[name]
    falls, _, causes = compared(BASE, planted(**changes))  # type: ignore[arg-type]
    # THEN the first cause is that change, by its size within the noise of 1 %, and the parts add up
    assert causes and (causes[0].kind, causes[0].name) == (kind, of), causes
    assert causes[0].delta_ns == pytest.approx(amount, abs=0.02 * falls.b_ns)
    assert added(falls.bars) == falls.b_ns - falls.a_ns
    # AND what is swapped is swapped in sign
    back, _, causes = compared(planted(**changes), BASE)  # type: ignore[arg-type]
    assert [b.delta_ns for b in back.bars] == [-b.delta_ns for b in falls.bars] and causes[0].delta_ns < 0


def test_overlap_that_was_lost() -> None:
    # GIVEN an all-reduce that ran behind the layers, and one as long that runs after them THEN the schedule is named, not the communication
    a, b = Side("A", [samples(0, reduce_us=900)]), planted(1, reduce_us=900, reduce_behind=False)
    both = compare_all(a, b)
    assert (both.causes[0].kind, both.causes[0].name) == ("schedule", "communication") and "less of it behind other work" in both.causes[0].sentence
    assert both.causes[0].delta_ns == pytest.approx(910_000, rel=0.1)
    rules = [f.rule for f in findings_of(both, ("A", "B"), ({}, {}))]
    assert rules[:2] in (["regression", "overlap-lost"], ["overlap-lost", "regression"])
    # AND one that takes longer is communication
    longer = compare_all(Side("A", [samples(0, reduce_us=900, reduce_behind=False)]), planted(1, reduce_us=1_500, reduce_behind=False))
    assert longer.causes[0].kind == "communication"


def test_findings_of_a_comparison() -> None:
    def rules(b: Side, a: Side = BASE, settings: tuple[dict[str, str], dict[str, str]] = ({}, {})) -> dict[str, str]:
        return {f.rule: f"{f.title}: {f.evidence}" for f in findings_of(compare_all(a, b), ("A", "B"), settings)}

    # GIVEN each change THEN its finding, and none of equal ones; a faster step is an improvement
    assert not rules(BASE)
    waits = rules(planted(syncs=1))
    assert set(waits) == {"regression", "sync-added"} and "1 call more per step to wait" in waits["regression"]
    assert set(rules(BASE, planted(syncs=1))) == {"improvement"}
    # another kernel, which is told by what its name keeps between releases
    old, new = ({"aten::mm": f"sm{arch}_xmma_gemm_f32f32_tn_n_tilesize128x128x8"} for arch in (80, 90))
    swapped = rules(planted(kernels=new, scale={"aten::mm": 1.2}), planted(0, kernels=old))
    assert "in the place of sm80_xmma_gemm" in swapped["kernel-substituted"]
    clock = rules(planted(by_layer=True, clock=1.06), Side("A", [samples(0, by_layer=True)]))
    assert set(clock) == {"regression", "device-speed"} and "not the code" in clock["device-speed"]
    # as much kernel time in twice the launches
    calls = rules(planted(more={"aten::add": 1, "aten::gelu": 1}, scale={"aten::add": 0.5, "aten::gelu": 0.5}))
    assert "32 → 44 device events per step" in calls["calls-grew"]
    # faster kernels that slower loading cancels
    hidden = rules(planted(1, loading_us=361, noise=0.001), planted(0, scale={"aten::gelu": 2.0}, loading_us=1, noise=0.001))
    assert set(hidden) == {"hidden-win"}
    differ = rules(BASE, settings=({"with_stack": "yes"}, {"with_stack": "no"}))
    assert differ == {"not-comparable": "The two were recorded with different settings of the profiler: with_stack yes and no"}


def test_bars_of_kernels_go_down_to_the_operator_and_have_intervals() -> None:
    # GIVEN a slower kernel of one operator THEN its bar stands below the kernels, the kernel below it, each with an interval around it
    falls, rows, _ = compared(BASE, planted(scale={"aten::gelu": 2.0}))
    bar = next(b for b in falls.bars if b.name == "kernel_ns")
    gelu = bar.parts[0]
    assert gelu.name == "aten::gelu" and [p.name for p in gelu.parts] == ["gelu_kernel"] and gelu.parts[0].delta_ns == gelu.delta_ns
    assert gelu.low_ns is not None and gelu.low_ns < 360_000 < gelu.high_ns  # type: ignore[operator]
    # AND the interval of a sum is that of the sums of each draw: of parts that go up and down together it is about the sum of their widths
    found = rows["launch"]
    assert found is not None
    whole, each = found.interval(range(len(found))), [found.interval([i]) for i in range(len(found))]
    assert whole[0] is not None and whole[0] < found.delta_ns.sum() < whole[1]  # type: ignore[operator]
    assert whole[1] - whole[0] == pytest.approx(sum(high - low for low, high in each), rel=0.25)  # type: ignore[operator, misc]
    assert all(b.low_ns is not None for b in bar.parts) and [b.low_ns for b in falls.bars].count(None) == 0


def test_another_clock_is_no_fault_of_the_code() -> None:
    # GIVEN every kernel of 30 takes 6 % longer THEN that is one cause, and no kernel is named
    a, b = Side("A", [samples(0, by_layer=True)]), Side("B", [samples(1, by_layer=True, clock=1.06)])
    _, _, causes = compared(a, b)
    assert [c.kind for c in causes] == ["device_speed"] and "another clock" in causes[0].sentence
    # AND one kernel that takes longer is not taken for a clock
    _, _, causes = compared(a, planted(by_layer=True, scale={"aten::mm": 1.2}))
    assert causes[0].kind == "slower_same_kernel" and causes[0].name == "aten::mm"


def test_a_recording_against_itself() -> None:
    falls, rows, causes = compared(BASE, Side("B", BASE.runs))
    assert not causes and added(falls.bars) == 0 == falls.b_ns - falls.a_ns
    assert all(b.delta_ns == 0 for b in falls.bars)
    for found in rows.values():
        assert found is None or (not found.delta_ns.any() and set(found.match) == {"same"} and set(found.verdict) == {"same"})
    assert {m.verdict for m in metrics_of(BASE, BASE)} <= {"same", "inconclusive"}


def test_what_was_not_there_before_is_more() -> None:
    # GIVEN blocking calls and exposed communication of which A has none THEN they are more, though a change from nothing is no part of it
    found = {m.name: m for m in metrics_of(BASE, planted(syncs=3, reduce_us=400, reduce_behind=False))}
    assert [(found[n].change.change, found[n].verdict, found[n].outcome) for n in ("syncs", "exposed_communication")] == [(None, "worse", "more")] * 2
    # AND what neither has is the same, and what went is less
    back = {m.name: m for m in metrics_of(planted(syncs=3), BASE)}
    assert back["exposed_communication"].outcome == "no change" and (back["syncs"].change.change, back["syncs"].outcome) == (-1.0, "less")


def test_two_recordings_of_the_same_job_have_no_cause() -> None:
    for seed in range(2, 6):
        falls, _, causes = compared(BASE, planted(seed))
        assert not causes and added(falls.bars) == falls.b_ns - falls.a_ns


def test_rows_say_what_is_due_to_calls_and_what_to_speed() -> None:
    # GIVEN `aten::add` is called twice as often, as fast as before, and `aten::gelu` takes twice as long
    _, rows, _ = compared(BASE, planted(more={"aten::add": 1}, scale={"aten::gelu": 2.0}))
    found = rows["operator"]
    assert found is not None and found.time == "device"
    add, gelu = found.name.index("aten::add"), found.name.index("aten::gelu")
    assert found.calls_a[add] == 6 and found.calls_b[add] == 12 and found.calls_a[gelu] == found.calls_b[gelu]
    assert (found.calls_effect_ns + found.work_effect_ns + found.speed_effect_ns == found.delta_ns).all()
    assert found.calls_effect_ns[add] == pytest.approx(6 * 40_000, rel=0.03) and abs(found.speed_effect_ns[add]) < 0.1 * found.delta_ns[add]
    assert found.calls_effect_ns[gelu] == 0 and found.speed_effect_ns[gelu] == pytest.approx(6 * 60_000, rel=0.05)
    assert found.verdict[add] == found.verdict[gelu] == "worse"


def test_a_larger_batch_is_work_and_no_slower_kernel() -> None:
    # GIVEN a batch of twice the size, and a product that is slower besides
    a = Side("A", [samples(0, batch=1)])
    _, _, causes = compared(a, Side("B", [samples(1, batch=2)]))
    assert causes[0].kind == "more_work" and "do 2.00 times the work in as many calls" in causes[0].sentence, causes
    _, rows, _ = compared(a, planted(batch=2, scale={"aten::mm": 1.5}))
    found = rows["operator"]
    assert found is not None
    mm, gelu = found.name.index("aten::mm"), found.name.index("aten::gelu")
    # THEN 64 x 512 x 512 products each, 6 a step, take 6 x 400 us: twice as many take as much again, and the rest is speed
    assert found.work_a[mm] == 6 * 2 * 64 * 512 * 512 and found.work_b[mm] == 2 * found.work_a[mm]
    assert found.work_effect_ns[mm] == pytest.approx(6 * 400_000, rel=0.03) and found.speed_effect_ns[mm] == pytest.approx(6 * 400_000, rel=0.08)
    assert found.work_effect_ns[gelu] == pytest.approx(found.delta_ns[gelu], rel=0.05)
    assert (found.calls_effect_ns + found.work_effect_ns + found.speed_effect_ns == found.delta_ns).all()
    # AND without shapes nothing is said of work
    assert not compared(BASE, planted(scale={"aten::mm": 1.5}))[1]["operator"].work_effect_ns.any()  # type: ignore[union-attr]


def test_names_that_a_release_changes() -> None:
    # GIVEN a kernel for another architecture, and an operator of another vendor THEN rows are of the same thing
    a = planted(0, kernels={"aten::mm": "sm80_xmma_gemm_f32f32_tn_n_tilesize128x128x8"}, ops={"aten::_softmax": "aten::cudnn_convolution"})
    b = planted(1, kernels={"aten::mm": "sm90_xmma_gemm_f32f32_tn_n_tilesize256x128x8"}, ops={"aten::_softmax": "aten::miopen_convolution"},
                scale={"aten::mm": 1.2})  # fmt: skip
    _, rows, causes = compared(a, b)
    kernels, operators = rows["kernel"], rows["operator"]
    assert kernels is not None and operators is not None and {"only_a", "only_b"}.isdisjoint({*kernels.match, *operators.match})
    row = kernels.match.index("renamed")
    assert "sm80" in kernels.was[row] and "sm90" in kernels.name[row] and kernels.delta_ns[row] == pytest.approx(6 * 80_000, rel=0.1)
    assert operators.was[operators.name.index("aten::miopen_convolution")] == "aten::cudnn_convolution"
    # AND the cause is the other kernel
    assert causes[0].kind == "substitution" and "sm90" in causes[0].sentence


def test_an_operator_in_place_of_two() -> None:
    # GIVEN one operator that does what two did, slower
    fused = {"ops": {"aten::add": "", "aten::native_layer_norm": "fused::add_norm"}, "scale": {"aten::native_layer_norm": 2.0}}
    _, _, causes = compared(BASE, planted(**fused))  # type: ignore[arg-type]
    assert causes[0].kind == "fused" and "likely in place of `aten::native_layer_norm`, `aten::add`, 6 calls and 12 calls" in causes[0].sentence
    assert causes[0].delta_ns == pytest.approx(6 * (180 - 90 - 40) * 1_000, rel=0.2)


def test_names_are_not_guessed_where_several_would_do() -> None:
    def named(*names: str, calls: float = 2.0) -> dict[str, Named]:
        return {n: Named("", calls, 1.0) for n in names}

    assert renamed(named("aten::add_.Tensor"), named("aten::add.out"), "operator") == {"aten::add.out": "aten::add_.Tensor"}
    assert renamed(named("gemm_64x64", "gemm_128x64"), named("gemm_256x64"), "kernel") == {}
    assert renamed(named("Net/Encoder/LayerNorm"), named("Net/Encoder/RMSNorm"), "module") == {}
    assert renamed(named("Net/Encoder/Attention"), named("Net/Encoders/Attention"), "module") == {"Net/Encoders/Attention": "Net/Encoder/Attention"}
    # AND what two names begin with says nothing of what they end with
    node = "autograd::engine::evaluate_function: "
    assert renamed(named(f"{node}SplitBackward0"), named(f"{node}CompiledFunctionBackward"), "operator") == {}
    # AND what is called more often is another thing
    assert renamed(named("Net/Encoder/Attention"), named("Net/Encoders/Attention", calls=3.0), "module") == {}


def test_changes_that_the_step_does_not_show() -> None:
    # GIVEN slower kernels and faster loading that cancel THEN the step is as long, and both are said
    both = planted(1, scale={"aten::gelu": 2.0}, loading_us=1, noise=0.001)
    a = planted(0, loading_us=361, noise=0.001)
    rows = {by: rows_of(a, both, by) for by in GROUPINGS}
    found = hidden_changes(waterfall_of(a, both, rows), rows, metrics_of(a, both))
    assert [h.name for h in found] and {h.name for h in found} == {"kernel_ns", "dataloader_ns"}
    assert [h.delta_ns for h in found] == pytest.approx([360_000, -360_000], abs=20_000) or found[0].delta_ns < 0
    assert not compared(a, both)[2]


def test_slow_steps_are_a_part_of_their_own() -> None:
    # GIVEN the same steps, two of them slow THEN the difference is theirs
    slow = msgspec.structs.replace(BASE.runs[0], values={**BASE.runs[0].values}, parts={**BASE.runs[0].parts})
    times = np.array(slow.values["step_time"])
    times[[3, 7]] *= 2
    slow = msgspec.structs.replace(slow, values={**slow.values, "step_time": tuple(times.tolist())})
    falls, _, causes = compared(BASE, Side("B", [slow]))
    assert falls.bars[0].name == "slow_steps" and falls.bars[0].delta_ns == pytest.approx(falls.b_ns - falls.a_ns, rel=0.1)
    assert added(falls.bars) == falls.b_ns - falls.a_ns and not causes


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=9))
def test_whole_numbers_add_up(values: list[float]) -> None:
    array = np.array(values)
    total = round(float(array.sum()))
    found = rounded(array, total)
    assert found.sum() == total and (np.abs(found - array) <= 1 + 1e-6 * array.sum() + len(values)).all()


@given(
    st.lists(st.lists(st.integers(0, 10**9), min_size=8, max_size=8), min_size=2, max_size=7),
    st.lists(st.lists(st.integers(0, 10**9), min_size=8, max_size=8), min_size=2, max_size=7),
)
def test_any_difference_adds_up(a: list[list[int]], b: list[list[int]]) -> None:
    # GIVEN any steps of eight parts THEN the parts of the difference add up to that of the mean step
    from tb_sol_plugin.metrics.compare.samples import PARTS

    def side(name: str, steps: list[list[int]]) -> Side:
        parts = {p: tuple(s[i] for s in steps) for i, p in enumerate(PARTS)}
        return Side(name, [Samples("kineto", tuple(range(len(steps))), {"step_time": tuple(map(sum, steps))}, parts, (), {}, 0, None, {})])

    falls = waterfall_of(side("A", a), side("B", b), {})
    assert added(falls.bars) == falls.b_ns - falls.a_ns
    assert falls.a_ns == round(sum(map(sum, a)) / len(a)) and falls.b_ns == round(sum(map(sum, b)) / len(b))


def test_samples_are_small_and_hold_everything() -> None:
    # GIVEN a recording of 12 steps THEN the first is left out, and rows of every grouping add up to the device's time
    found = BASE.runs[0]
    assert found.warm == 1 and found.steps == tuple(range(2, 13)) and found.incomplete == 0
    assert set(found.groupings) == {"operator", "kernel", "kind", "phase", "copy", "launch"}
    device = {by: per_step(g, "device", 11).sum(0) for by, g in found.groupings.items()}
    assert (device["operator"] == device["kernel"] + device["copy"]).all() and (device["kind"] == device["kernel"]).all()
    assert (device["launch"] == device["kernel"]).all()
    assert len(msgspec.msgpack.encode(found)) < 40_000
    assert set(found.values) == {
        "step_time", "device_busy", "kernel_time", "exposed_communication", "exposed_memcpy", "idle", "host_time", "dataloader", "launches",
        "syncs", "allocations", "copied_bytes",
    }  # fmt: skip
    assert set(found.values["launches"]) == {32} and set(found.values["copied_bytes"]) == {2 << 20}


def test_more_names_than_rows_are_added_up() -> None:
    # GIVEN a recording with a name per launch THEN the smallest are one row, and the sums stay
    from tests.support.trace_builder import TraceBuilder

    t = TraceBuilder()
    t.step(1, 0, 10_000_000)
    for i in range(MOST_ROWS + 50):
        t.launch(f"kernel_{i:04d}", at=1_000 + i * 1_000, start=20_000 + i * 10_000, duration=1_000 + i)
    found = samples_of(_read(t), Query()).groupings["kernel"]
    assert len(found.names) == MOST_ROWS + 1 and found.names[-1] == OTHER and found.cut == 50
    assert per_step(found, "device", 1)[-1, 0] == sum(1_000 + i for i in range(50)) and per_step(found, "calls", 1)[-1, 0] == 50


def _read(t: object):  # type: ignore[no-untyped-def]
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from tb_sol_plugin.ingest import read

    with TemporaryDirectory() as folder:
        return read(str(t.write(Path(folder) / "worker0.1700000000000000000.pt.trace.json.gz")))  # type: ignore[attr-defined]


def test_a_grouping_that_one_side_lacks_is_none() -> None:
    bare = msgspec.structs.replace(BASE.runs[0], groupings={})
    assert rows_of(BASE, Side("B", [bare]), "operator") is None and isinstance(BASE.runs[0].groupings["operator"], Grouping)
    falls, _, causes = compared(BASE, Side("B", [bare]))
    assert added(falls.bars) == falls.b_ns - falls.a_ns and not causes
