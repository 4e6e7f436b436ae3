"""Which gradients a backward call made, where only the calls inside it tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.work.work import work
from tests.support.trace_builder import TraceBuilder

NAME = "aten::cudnn_convolution_backward"
ARGUMENTS = {"shapes": [[2, 3, 8, 8], [2, 8, 4, 4], [8, 3, 3, 3], [], []], "types": ["float", "float", "float", "GenericList", "GenericList"]}
MACS = 2 * 8 * 4 * 4 * 3 * 3 * 3
X, GRAD, WEIGHT = (4 * n for n in (2 * 3 * 8 * 8, 2 * 8 * 4 * 4, 8 * 3 * 3 * 3))


@pytest.mark.parametrize(
    ("inside", "products", "data", "estimated"),
    [
        (("input", "weight"), 2, GRAD + 2 * (X + WEIGHT), False),
        (("weight",), 1, GRAD + X + WEIGHT, False),  # the first convolution of a network: nothing asks for the gradient of the images
        (("input",), 1, GRAD + WEIGHT + X, False),
        ((), 2, GRAD + 2 * (X + WEIGHT), True),
    ],
)
def test_calls_inside_show_which_gradients_are_computed(inside: tuple[str, ...], products: int, data: int, estimated: bool, tmp_path: Path) -> None:
    # GIVEN a recording without values, so without the mask, beside a call of the same sizes that made both gradients
    t = TraceBuilder()
    for start, parts in ((0, inside), (10_000, ("input", "weight"))):
        t.op(NAME, start, 1000, **ARGUMENTS)
        for at, part in enumerate(parts):
            t.op(f"{NAME}_{part}", start + 100 + 400 * at, 300)
        t.launch("engine", at=start + 150, start=start + 2000, duration=500)
    # WHEN its work is counted THEN each gradient that was made is one product of the forward's size
    ops = work(read(str(t.write(tmp_path / "t.pt.trace.json")))).ops
    assert ops["flop"].tolist() == [products * 2 * MACS, 2 * 2 * MACS]
    assert ops["bytes"].tolist() == [data, GRAD + 2 * (X + WEIGHT)]
    assert ops["estimated"].tolist() == [estimated, False]
