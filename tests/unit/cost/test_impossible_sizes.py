"""Sizes that no device can hold, symbols in place of sizes: unknown with a reason, never a number, never an error."""

from __future__ import annotations

import json

import pytest

from tb_sol_plugin.cost import IMPOSSIBLE, Inputs, estimate, explain
from tb_sol_plugin.cost.inputs import readable_shapes


def call(*shapes: list[object], dtype: str = "c10::BFloat16") -> Inputs:
    return Inputs(json.dumps(shapes), json.dumps([dtype] * len(shapes)))


@pytest.mark.parametrize("size", [2**63, 10**30, 10**200])
@pytest.mark.parametrize("name", ["aten::mm", "aten::add", "aten::_softmax", "aten::cat", "triton_poi_fused_add_0"])
def test_a_size_beyond_int64_is_no_size(name: str, size: int) -> None:
    # GIVEN a size that no tensor can have THEN there is no cost, and the reason names the argument
    assert estimate(name, call([size, size], [size, size])) is None
    assert explain(name, call([size, size], [size, size]))


def test_work_that_no_device_can_do() -> None:
    # GIVEN sizes that each fit an integer, 2 x 2^40 x 2^40 FLOP as a product THEN the reason says so
    huge = call([2**40, 1], [1, 2**40])
    assert estimate("aten::mm", huge) is None and explain("aten::mm", huge) == IMPOSSIBLE
    # AND the largest products of today still count: 2 x 131072^3 = 4.5e15
    most = estimate("aten::mm", call([131_072, 131_072], [131_072, 131_072]))
    assert most is not None and most.flop == 2 * 131_072**3


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ([["s0", 64], [64, 64]], "s0×64 64×64"),
        ([["s0 + 1", 4], []], "s0 + 1×4"),
        ([[[3, "s1"], []], [2]], "[3×s1, 1] 2"),
        ([[10**40, 2]], "1" + "0" * 18 + "…×2"),
        ([[-1]], "-1"),
    ],
)
def test_sizes_are_shown_as_recorded(shapes: list[object], text: str) -> None:
    assert readable_shapes(json.dumps(shapes)) == text
