"""The parts of an average step on the host."""

from __future__ import annotations

import pandas as pd

from tb_sol_plugin.metrics.trees.phases import STEP, host_shares


def test_a_level_that_only_names_make_gives_way_to_the_phases_in_it() -> None:
    # GIVEN two steps around `rl`, which no range has, with `rl/a` and `rl/b` in it
    frame = pd.DataFrame({
        "node": [0, 1, 2, 3], "parent": [-1, 0, 1, 1], "name": [STEP, "rl", "a", "b"],
        "path": [STEP, f"{STEP}/rl", f"{STEP}/rl/a", f"{STEP}/rl/b"], "count": [2, 0, 2, 2], "host_ns": [100, 90, 60, 30],
    })  # fmt: skip
    # WHEN the shares are asked THEN they are those of a and b, per step; with ranges of its own, `rl` is one
    assert [(s.name, s.host_ns) for s in host_shares(frame, 2)] == [("a", 30.0), ("b", 15.0)]
    assert [(s.name, s.host_ns) for s in host_shares(frame.assign(count=[2, 2, 2, 2]), 2)] == [("rl", 45.0)]


def test_a_level_next_to_other_phases_stays() -> None:
    # GIVEN two levels that only names make beside each other WHEN the shares are asked THEN both are there, so that the bar adds up
    frame = pd.DataFrame({
        "node": [0, 1, 2], "parent": [-1, 0, 0], "name": [STEP, "x", "y"], "path": [STEP, f"{STEP}/x", f"{STEP}/y"], "count": [1, 0, 0],
        "host_ns": [10, 6, 4],
    })  # fmt: skip
    assert [s.name for s in host_shares(frame, 1)] == ["x", "y"]
