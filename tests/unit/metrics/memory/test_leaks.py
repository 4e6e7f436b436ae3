"""Growth from step to step: the verdict against what is no leak, the line against a closed form, and who leaves memory behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.ingest.memory.snapshot import capture_of
from tb_sol_plugin.metrics.memory import leaks as L
from tb_sol_plugin.metrics.memory.curves import whole
from tb_sol_plugin.metrics.memory.leaks import per_step
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tests.support.memory_snapshot import snapshot
from tests.support.memory_steps import BEFORE, training


def verdict(levels: list[float]) -> str:
    return L.judge_growth(np.arange(len(levels), dtype=float), np.array(levels, float))[3]


@pytest.mark.parametrize(("levels", "said"), [
    ([0, 1, 2, 3, 4], "leak"),  # five steps are enough
    ([0, 1, 2, 3], "few"),
    ([5] * 8, "none"),
    ([5, 4, 3, 2, 1, 0], "none"),
    ([0, 8, 8, 8, 8, 8], "warm_up"),  # the state of an optimizer appears in the first step
    ([0, 80, 81, 82, 83, 84, 85], "leak"),  # and then it grows
    ([0, 80, 81, 82, 83], "few"),
    ([1, 2, 3, 4] * 3, "falls_back"),  # sawtooth
    ([0, 3, 1, 4, 2, 5, 3, 6, 4, 7], "unsteady"),  # a rising one
    ([0, 1, 2, 3, 4, 5, 5, 5], "levels_off"),  # R² 0.94, but it ends
    ([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3], "leak"),  # in stairs
    ([min(i, 50) for i in range(400)], "levels_off"),  # a cache fills
    ([i // 40 for i in range(400)], "leak"),
])  # fmt: skip
def test_the_verdict_of_growth_patterns(levels: list[float], said: str) -> None:
    assert verdict(levels) == said


@given(st.integers(1, 10**6), st.integers(0, 10**9), st.integers(7, 60))
@settings(max_examples=100, deadline=None)
def test_a_straight_growth_is_always_a_leak_with_its_slope(slope: int, base: int, count: int) -> None:
    # GIVEN base + slope x step WHEN judged THEN it is a leak of that slope, with R² 1
    x = np.arange(count, dtype=float)
    _, found, r2, said = L.judge_growth(x, base + slope * x)
    assert said == "leak" and found == pytest.approx(slope, rel=1e-6) and r2 == pytest.approx(1)


@given(st.integers(2, 6), st.integers(3, 8), st.integers(1, 1000))
@settings(max_examples=60, deadline=None)
def test_a_sawtooth_is_never_a_leak(length: int, teeth: int, height: int) -> None:
    assert verdict([height * (i % length) for i in range(length * teeth)]) != "leak"


def test_noise_without_growth_is_no_leak_in_twenty_draws() -> None:
    for seed in range(20):
        noise = np.random.default_rng(seed).normal(1e9, 1e6, 40)
        assert verdict(noise.tolist()) in ("none", "unsteady", "falls_back", "levels_off")


def test_the_line_is_that_of_numpy() -> None:
    # GIVEN numbers WHEN fitted THEN slope and R² are those of numpy's polynomial fit and correlation
    x, y = np.array([1.0, 2, 4, 7, 9]), np.array([3.0, 1, 8, 9, 20])
    slope, r2 = L.line_through(x, y)
    assert slope == pytest.approx(np.polyfit(x, y, 1)[0]) and r2 == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2)


def test_a_leak_in_a_trace_is_named_by_module_operator_and_line(tmp_path: Path) -> None:
    # GIVEN 8 steps that leave 3,000 B behind in `Cache_0`, with gradients that the next step frees WHEN judged
    c = training(tmp_path, [3_000] * 8)
    found = L.leak(c, whole(c)[0])
    # THEN it is 3,000 B per step exactly; the least of step i is what the steps before left
    assert found.found and found.slope == pytest.approx(3_000) and found.r2 == pytest.approx(1) and found.growth == 7 * 3_000
    assert found.steps["least"].tolist() == [BEFORE + 3_000 * i for i in range(8)]
    assert found.steps["most"].tolist() == [BEFORE + 3_000 * (i + 1) + 502_000 for i in range(8)]
    # AND module, operator and line that leave it are named; the gradients, which only the last step keeps, are not
    e = found.evidence.set_index("by")
    assert e["name"].to_dict() == {"module": "Cache_0", "operator": "aten::cat", "frame": "cache.py(7): forward"}
    assert e["per_step"].tolist() == [3_000] * 3 and e["steps"].tolist() == [7] * 3 and e["of_steps"].tolist() == [7] * 3
    assert found.steps["left"].tolist() == [3_000.0] * 7 + [5_000.0]  # the last step's gradients are still there


def test_the_state_of_an_optimizer_is_no_leak(tmp_path: Path) -> None:
    # GIVEN 8 steps, of which the first makes a state of 600,000 B WHEN judged THEN that is warm-up, and nobody is named
    c = training(tmp_path, [0] * 8, state=600_000)
    found = L.leak(c, whole(c)[0])
    assert found.verdict == "warm_up" and not found.found and not len(found.evidence)
    assert found.steps["warm"].tolist() == [True] + [False] * 7


def test_a_leak_beside_the_state_of_an_optimizer_is_found(tmp_path: Path) -> None:
    c = training(tmp_path, [3_000] * 8, state=600_000)
    found = L.leak(c, whole(c)[0])
    assert found.found and found.slope == pytest.approx(3_000) and found.used == 7


def test_four_steps_or_none_give_no_verdict(tmp_path: Path) -> None:
    c = training(tmp_path, [3_000] * 4)
    found = L.leak(c, whole(c)[0])
    assert found.verdict == "few" and "more steps" in found.hint
    # GIVEN a snapshot, which has no steps THEN it says that it cannot
    one = capture_of(snapshot(), file="m")
    found = L.leak(one, whole(one)[0])
    assert found.verdict == "no_steps" and "prof.step()" in found.hint and found.growth == 0


def history(grows: bool) -> Capture:
    """A history of 6 steps of 1 ms: in each 7,000 B by line 5, kept or freed, and 900 B by line 9, freed; steps are those of a trace."""
    frames = [[{"filename": "/x/train.py", "line": n, "name": "f"}] for n in (5, 9)]
    entries = []
    for i in range(6):
        at = 1_000_000 + i * 1_000
        entries.append({"action": "alloc", "addr": 1000 + i, "size": 7_000, "stream": 0, "time_us": at + 100, "frames": frames[0]})
        entries.append({"action": "alloc", "addr": 5, "size": 900, "stream": 0, "time_us": at + 200, "frames": frames[1]})
        entries.append({"action": "free_requested", "addr": 5, "size": 900, "stream": 0, "time_us": at + 300, "frames": []})
        if not grows:
            entries.append({"action": "free_requested", "addr": 1000 + i, "size": 7_000, "stream": 0, "time_us": at + 400, "frames": []})
    c = capture_of({"segments": [], "device_traces": [entries]}, file="m")
    start = np.array([i * 1_000_000 - 50_000 for i in range(6)], np.int64)
    steps = S.STEPS.frame({"number": np.arange(6), "host_start_ns": start, "host_end_ns": start + 999_000, "name": ["s"] * 6})
    return Capture(Facts("memory_snapshot", "m", 0), c.tables | {"steps": steps})


def test_a_history_with_the_steps_of_a_trace_names_the_line() -> None:
    # GIVEN a snapshot beside a trace WHEN judged THEN the growth is that of the line, in levels of change
    c = history(grows=True)
    found = L.leak(c, whole(c)[0])
    assert found.found and found.slope == pytest.approx(7_000)
    assert found.evidence[["by", "name", "per_step"]].values.tolist() == [["frame", "/x/train.py(5): f", 7_000]]
    c = history(grows=False)
    assert L.leak(c, whole(c)[0]).verdict == "none"


def test_a_timeline_names_the_category() -> None:
    # GIVEN a timeline whose optimizer state grows by 100 B a step, and whose activations come and go
    time = np.repeat(np.arange(6) * 1_000, 3) + np.tile([0, 100, 500], 6)
    category = ["optimizer_state", "activation", "activation"] * 6
    size = [v for i in range(6) for v in (1_000 + 100 * i, 9_000, 0)]
    start = np.arange(6) * 1_000
    tables = {
        "memory_timeline": S.MEMORY_TIMELINE.frame({"time_ns": time, "device": ["cuda:0"] * 18, "category": category, "bytes": size}),
        "steps": S.STEPS.frame({"number": np.arange(6), "host_start_ns": start, "host_end_ns": start + 1_000, "name": ["s"] * 6}),
    }
    c = Capture(Facts("memory_timeline", "m", 0), tables)
    found = L.leak(c, whole(c)[0])
    assert found.found and found.slope == pytest.approx(100)
    assert found.evidence[["by", "name", "per_step"]].values.tolist() == [["category", "optimizer_state", 100]]


def recorded(levels: list[int], every: int = 10, parts: bool = False) -> Capture:
    """Records of a program every so many iterations; parts: what the optimizer holds is the level less 5,000 B."""
    number = np.arange(len(levels)) * every
    tables = {"memory_records": S.MEMORY_RECORDS.frame({
        "device": [0] * len(levels), "iteration": number, "time_ns": number * 1_000, "allocated": levels, "since": ["process"] * len(levels),
    })}  # fmt: skip
    if parts:
        rows = np.repeat(np.arange(len(levels)), 2)
        tables["memory_parts"] = S.MEMORY_PARTS.frame({
            "record": rows, "category": ["params", "other_optimizer"] * len(levels), "dtype": ["fp32"] * len(rows), "module": [-1] * len(rows),
            "tensors": [1] * len(rows), "bytes": [v for n in levels for v in (5_000, n - 5_000)], "view_bytes": [0] * len(rows),
        })  # fmt: skip
    return Capture(Facts("sol_capture", "x", 0), tables)


def test_records_over_hundreds_of_iterations_show_slow_growth() -> None:
    # GIVEN 60 records, one every 10 iterations, growing by 40 B each WHEN judged THEN it is 4 B per iteration
    c = recorded([10_000 + 40 * i for i in range(60)], parts=True)
    found = L.leak(c, whole(c)[0])
    assert found.found and found.slope == pytest.approx(4) and found.used == 54 and found.growth == pytest.approx(4 * 530)
    # AND the walk says that the optimizer grows, the parameters do not
    assert found.evidence[["name", "per_step"]].values.tolist() == [["other_optimizer", 4]]


def test_peaks_since_the_process_began_are_no_peaks_of_iterations() -> None:
    # GIVEN maxima of the whole process WHEN asked for the most of each iteration THEN it is unknown
    c = recorded([1, 2, 3])
    assert per_step(c, whole(c)[0])["most"].tolist() == [-1] * 3


def test_records_without_iterations_have_no_steps() -> None:
    c = recorded([1, 2, 3])
    table = c.tables["memory_records"].assign(iteration=-1)
    one = Capture(c.facts, {"memory_records": table})
    found = L.leak(one, whole(one)[0])
    assert found.verdict == "no_steps" and "memory_every" in found.hint
