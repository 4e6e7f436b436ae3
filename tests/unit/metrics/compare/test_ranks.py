"""Several ranks of a run as one: each step is that of its slowest rank."""

from __future__ import annotations

import msgspec
import numpy as np

from tb_sol_plugin.metrics.compare.ranks import slowest
from tb_sol_plugin.metrics.compare.samples import Grouping, Samples, pack, per_step


def rank(times: dict[int, int], names: tuple[str, ...], peak: int, rows: tuple[int, ...] | None = None) -> Samples:
    """A rank whose kernel i takes (i + 1) times the step, once; rows: places of steps that have rows."""
    places = rows if rows is not None else tuple(range(len(times)))
    step = np.array(list(times.values()), np.int64)
    device = np.array([(i + 1) * step[list(places)] for i in range(len(names))], "<i8")
    ones = np.ones_like(device)
    grouping = Grouping(names, ("",) * len(names), pack(ones), pack(0 * ones), pack(device))
    values = {"step_time": tuple(times.values()), "peak_memory": (peak,) * len(times)}
    return Samples("kineto", tuple(times), values, {"kernel_ns": tuple(times.values())}, places, {"kernel": grouping}, 0, None, {})


def test_each_step_is_that_of_its_slowest_rank() -> None:
    # GIVEN two ranks that are slower in turn, one of which has a step more, and kernels of which one is theirs alone
    a, b = rank({3: 10, 4: 50, 5: 7}, ("mm", "add"), 100), rank({4: 20, 5: 90}, ("mm", "all_reduce"), 300)
    found = slowest([a, b])
    # THEN step 4 is that of the first, step 5 that of the second, with their rows; memory is the most of both
    assert found.samples.steps == (4, 5) and found.samples.values == {"step_time": (50, 90), "peak_memory": (300, 300)}
    assert found.samples.parts == {"kernel_ns": (50, 90)}
    kernels = found.samples.groupings["kernel"]
    assert kernels.names == ("mm", "add", "all_reduce")
    assert per_step(kernels, "device", 2).tolist() == [[50, 90], [100, 0], [0, 180]]
    assert per_step(kernels, "calls", 2).tolist() == [[1, 1], [1, 0], [0, 1]]
    # AND one rank is itself
    assert slowest([a]).samples == a and slowest([a]).rank == 0


def test_a_step_without_rows_of_its_slowest_rank() -> None:
    # GIVEN rows of other steps of each rank THEN those of steps whose slowest rank has them
    a, b = rank({1: 5, 2: 6, 3: 7}, ("mm",), 1, rows=(0, 2)), rank({1: 9, 2: 1, 3: 2}, ("mm",), 1, rows=(1, 2))
    found = slowest([a, b])
    assert found.samples.row_steps == (2,) and per_step(found.samples.groupings["kernel"], "device", 1).tolist() == [[7]] and found.rank == 0


def test_ranks_without_a_step_in_common() -> None:
    # GIVEN ranks of other steps, or of none THEN the one with the longest median stands for all
    a, b = rank({1: 5, 2: 6}, ("mm",), 1), rank({7: 9, 8: 9}, ("mm",), 1)
    assert slowest([a, b]) == (b, 1)
    whole = [msgspec.structs.replace(rank({-1: t}, ("mm",), 1)) for t in (5, 3)]
    assert slowest(whole) == (whole[0], 0)
