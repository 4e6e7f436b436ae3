"""Runs that were recorded in turns are compared with their neighbors in time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from tb_sol_plugin.metrics.compare.differences import Side, pairs_of
from tb_sol_plugin.metrics.compare.gate import Verdict, check, noise_between, wanted_of
from tb_sol_plugin.metrics.compare.samples import Samples


def run(began_ns: int | None, level: float = 1e6, seed: int = 0) -> Samples:
    """A run of 12 steps around a length in ns."""
    times = np.round(level * (1 + 0.005 * np.random.default_rng(seed).normal(size=12))).astype(int).tolist()
    return Samples("kineto", tuple(range(12)), {"step_time": tuple(times)}, {}, (), {}, 0, None, {}, began_ns=began_ns)


def side(name: str, began: Sequence[int | None]) -> Side:
    return Side(name, [run(at) for at in began])


@pytest.mark.parametrize(
    ("a", "b", "pairs"),
    [
        ([1, 3, 5], [2, 4, 6], [(0, 0), (1, 1), (2, 2)]), ([6, 1], [2, 5], [(1, 0), (0, 1)]), ([1, 2], [3, 4], []), ([1], [2], []),
        ([1, 3], [2, 4, 6], []), ([1, None], [2, 3], []), ([1, 3], [1, 4], []),
    ],
)  # fmt: skip
def test_which_runs_stand_beside_each_other(a: list[int | None], b: list[int | None], pairs: list[tuple[int, int]]) -> None:
    assert pairs_of(side("A", a), side("B", b)) == pairs


def test_a_machine_that_drifts_hides_nothing_from_runs_in_turns() -> None:
    # GIVEN three pairs, each 5 % slower than the one before, and B 8 % slower in each WHEN they were recorded in turns THEN it is a regression
    a, b = (Side(n, [run(2 * i + k, 1e6 * (1 + 0.05 * i) * factor, 2 * i + k) for i in range(3)]) for n, k, factor in (("A", 0, 1.0), ("B", 1, 1.08)))
    found = check(a, b, wanted_of([]))
    assert found.outcome == "regression" and found.metrics[0].change is not None
    assert found.metrics[0].change.change == pytest.approx(0.08, abs=0.006)
    assert any("recorded in turns: compared within 3 pairs of neighbors" in line for line in found.warnings)
    # AND not where nothing tells the order, as of a stored baseline: the drift is then noise from run to run
    bare = [Side(s.name, [msgspec.structs.replace(r, began_ns=None) for r in s.runs]) for s in (a, b)]
    found = check(*bare, wanted_of([]))
    assert found.outcome == "inconclusive" and not any("in turns" in line for line in found.warnings)


def test_a_machine_of_two_speeds_is_compared_with_its_own() -> None:
    # GIVEN earlier runs of one state around 1 ms and 1.5 ms, and a base at the lower one
    history = Side("history", [run(None, level * (1 + 0.002 * seed), seed) for level in (1e6, 1.5e6) for seed in range(4)])
    base, noise = Side("A", [run(None, 1e6, 9)]), noise_between(history, ["step_time"])

    def judged(level: float) -> Verdict:
        return check(base, Side("B", [run(None, level, 10)]), wanted_of([]), between=noise, history=history)

    # THEN a candidate at the higher one is no regression, and it is said with which runs it was compared
    found = judged(1.505e6)
    assert found.outcome == "within" and found.metrics[0].change is not None and found.metrics[0].change.runs == (4, 1)
    said = "step_time: the candidate lies at the higher level of earlier runs, A at the other; compared with the 4 runs of its own"
    assert found.warnings[0] == said
    # AND what is slower than its own level is one, as is what is slower than the base at the base's level
    assert judged(1.7e6).outcome == "regression" and said in judged(1.7e6).warnings
    assert judged(1.1e6).outcome == "regression" and said not in judged(1.1e6).warnings
    # AND without a history nothing tells two speeds from a slower job
    assert check(base, Side("B", [run(None, 1.505e6, 10)]), wanted_of([])).outcome == "regression"
