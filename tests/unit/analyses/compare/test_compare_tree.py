"""The table of two aligned steps: layers that are alike are one row, and guesses say why."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tb_sol_plugin.analyses.compare.compare_tree_tables import executions, tree_table
from tb_sol_plugin.metrics.compare.alignment import Nodes, Trees, aligned
from tests.unit.metrics.compare.test_alignment import layer, op, tree


def timed(side: Nodes, ns: dict[str, int]) -> Nodes:
    """Gives operators times of their own by name, all else none."""
    side.times[:] = [ns.get(name, 0) for name in side.name]
    return side


def table(a: Nodes, b: Nodes) -> pd.DataFrame:
    return pd.DataFrame(tree_table(("A", "B"), aligned(a, b), device=True, steps=(1, 1)).data).set_index("id")


def test_layers_that_are_alike_are_one_row() -> None:
    # GIVEN 24 layers in an encoder whose gelu takes 30 us in place of 10, in the eighth 90, of which the last lacks its norm
    names = ["mm", "gelu", "norm"]
    layers = [layer(i, *(names if i < 23 else names[:2])) for i in range(24)]
    a, b = (timed(tree(("Encoder[0]", layers), op("loss")), ns) for ns in (
        {"aten::mm": 50_000, "aten::gelu": 10_000, "aten::norm": 5_000, "aten::loss": 20_000},
        {"aten::mm": 50_000, "aten::gelu": 30_000, "aten::norm": 5_000, "aten::loss": 20_000},
    ))  # fmt: skip
    b.times[[i for i, n in enumerate(b.name) if n == "aten::gelu"][7]] = 90_000
    found = table(a, b)
    # THEN 22 of them are one row with sums of all, those that differ stand by themselves, and nothing is lost
    encoder = found.index[found["name"] == "Encoder[0]"][0]
    below = found[found["parent"] == encoder].set_index("name")
    assert below.index.tolist() == ["Layer 22×", "Layer[7]", "Layer[23]"]
    assert below["delta_ns"].tolist() == [22 * 20_000, 80_000, 20_000] and below["time_a"].tolist() == [22 * 65_000, 65_000, 60_000]
    folded = found[found["parent"] == found.index[found["name"] == "Layer 22×"][0]].set_index("name")
    assert folded.loc["aten::gelu", "time_b"] == 22 * 30_000
    assert found.loc[encoder, "time_b"] == int(b.times.sum()) - 20_000
    assert found[found["parent"].isna()]["delta_ns"].sum() == int(np.sum(b.times) - np.sum(a.times))


def test_layers_within_layers() -> None:
    # GIVEN two stages of three layers each, all alike THEN they are one row of one row, with the sums of six
    stage = ("Stage[0]", [layer(i, "mm") for i in range(3)]), ("Stage[1]", [layer(i, "mm") for i in range(3)])
    a, b = (timed(tree(*stage), {"aten::mm": ns}) for ns in (10_000, 20_000))
    found = table(a, b).set_index("name")
    assert found["delta_ns"].to_dict() == {"Stage 2×": 60_000, "Layer 3×": 60_000, "aten::mm": 60_000}


def test_guesses_say_why() -> None:
    a = timed(tree(op("mm"), op("add"), op("norm"), op("relu"), op("scaled_matmul")), {"aten::add": 10_000, "aten::norm": 10_000})
    b = timed(tree(op("mm"), ("fused::add_norm", ()), op("relu"), op("scaled_matmul2")), {"fused::add_norm": 50_000, "aten::scaled_matmul2": 9_000})
    why = table(a, b).set_index("name")
    assert why.loc["fused::add_norm", ["match", "because", "was"]].tolist() == [
        "fused", "in the place of these; no inputs were recorded", "aten::add, aten::norm",
    ]  # fmt: skip
    assert why.loc["aten::scaled_matmul2", ["match", "because"]].tolist() == ["renamed", "in the same place, spelled nearly alike"]
    a.inputs[2], b.inputs[2] = (4096, 4096), (4096,)
    assert table(a, b).set_index("name").loc["fused::add_norm", "because"] == "in the place of these; what it takes, these take too"


def test_both_steps_in_order_of_execution() -> None:
    # GIVEN a step whose copy is gone in the other, where an operator is new and one takes longer inside of another, with short ones between them
    linear = ("aten::linear", (op("addmm"),))
    a = timed(tree(op("mm"), op("copy"), op("gelu"), op("tiny"), op("little"), layer(0, "norm"), linear),
              {"aten::mm": 50_000, "aten::copy": 7_000, "aten::gelu": 9_000, "aten::tiny": 20, "aten::norm": 3_000, "aten::addmm": 30_000})
    b = timed(tree(op("mm"), op("gelu"), op("tiny"), op("little"), op("new"), layer(0, "norm"), linear),
              {"aten::mm": 50_000, "aten::gelu": 9_000, "aten::tiny": 30, "aten::new": 4_000, "aten::norm": 3_000, "aten::addmm": 45_000})
    found = executions(("A", "B"), Trees(aligned(a, b), True, (1, 1)))
    assert found is not None
    figure, rows = found[0], pd.DataFrame(found[1].data)
    # THEN both stand in one order, each time once, and what accumulates ends with the difference of both
    assert [*zip(rows["name"], rows["match"], rows["delta_ns"], strict=True)] == [
        ("aten::mm", "both", 0), ("aten::copy", "only A", -7_000), ("aten::gelu", "both", 0), ("(2 short ones)", "both", 10),
        ("aten::new", "only B", 4_000), ("aten::norm", "both", 0), ("aten::linear", "both", 15_000),
    ]  # fmt: skip
    assert rows["accumulated_delta_ns"].tolist() == [0, -7_000, -7_000, -6_990, -2_990, -2_990, 12_010]
    assert rows["accumulated_a"].iloc[-1] == a.times.sum() and rows["accumulated_b"].iloc[-1] == b.times.sum()
    assert rows["time_b"].isna().tolist() == [False, True, *[False] * 5] and rows["time_a"].isna().sum() == 1
    assert "A takes 99.02" in figure.summary.replace("\u202f", " ")
    # AND without time there is nothing to draw
    assert executions(("A", "B"), Trees(aligned(*(timed(tree(op("mm")), {}) for _ in "ab")), True, (1, 1))) is None
