"""The module tree: forward by containment, backward through links, equal siblings merged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.trees import module_tree as tree_of_modules
from tb_sol_plugin.metrics.trees.module_tree import module_tree
from tb_sol_plugin.metrics.trees.modules import by_class, class_rows, merge_siblings, merged_sums, module_times, unmerged
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tests.support.captures import report
from tests.support.trace_builder import TraceBuilder
from tests.support.training import BACKWARD_THREAD, read_back, training


def times(c: Capture, step: str = "") -> pd.DataFrame:
    return pd.DataFrame(module_times(c, scope(c, Query(step=step)))).set_index("name")


def test_forward_backward_and_host_time_of_a_training_run(tmp_path: Path) -> None:
    # GIVEN two steps; per step Linear_0 launches 40 000 forward and 50 000 backward, Linear_1 20 000 and 30 000, relu 10 000 in Net_0
    t = times(read_back(training(), tmp_path))
    # THEN each node sums its calls, and the parent holds its children
    assert t["calls"].tolist() == [2, 2, 2]
    assert t["device_total_ns"].to_dict() == {"Net_0": 140_000, "Linear_0": 80_000, "Linear_1": 40_000}
    assert t["device_self_ns"].to_dict() == {"Net_0": 20_000, "Linear_0": 80_000, "Linear_1": 40_000}
    assert t["backward_device_ns"].to_dict() == {"Net_0": 160_000, "Linear_0": 100_000, "Linear_1": 60_000}
    assert t["device_events"].to_dict() == {"Net_0": 6, "Linear_0": 2, "Linear_1": 2}
    assert t["host_total_ns"].to_dict() == {"Net_0": 400_000, "Linear_0": 100_000, "Linear_1": 100_000}
    assert t["host_self_ns"].to_dict() == {"Net_0": 200_000, "Linear_0": 100_000, "Linear_1": 100_000}


def test_one_of_two_equal_steps_has_half_of_the_time(tmp_path: Path) -> None:
    t = times(read_back(training(), tmp_path), step="1")
    assert t.loc["Net_0", ["calls", "device_total_ns", "backward_device_ns"]].tolist() == [1, 70_000, 80_000]


def test_flop_of_forward_and_backward_work_are_counted_separately(tmp_path: Path) -> None:
    # GIVEN addmm of 4x16 by 16x8: 2 * 4 * 16 * 8 = 1 024 FLOP a call; the backward products carry no shapes
    c = read_back(training(steps=1), tmp_path)
    whole = scope(c, Query())
    by = {d: pd.DataFrame(module_times(c, whole, d)).set_index("name")["flop"] for d in ("forward", "backward", "both")}  # type: ignore[arg-type]
    assert by["forward"]["Linear_0"] == 1_024 and by["forward"]["Net_0"] == 2_048 == by["both"]["Net_0"]
    assert np.isnan(by["backward"]["Net_0"])


def test_one_instance_called_from_two_places_is_two_nodes(tmp_path: Path) -> None:
    # GIVEN a shared module called under A_0 and under B_0, twice under the latter
    t = TraceBuilder()
    for parent, at, calls in (("A_0", 0, 1), ("B_0", 1_000, 2)):
        t.module(parent, at, 900, module_id=1 if parent == "A_0" else 2)
        for i in range(calls):
            t.module("Shared_7", at + 100 + 300 * i, 200, module_id=3)
    c = read_back(t, tmp_path)
    tree = module_tree(c)
    # THEN the tree has a node at each place, in preorder, and their calls add up to the instance's
    assert tree.name == ["A_0", "Shared_7", "B_0", "Shared_7"]
    assert tree.parent.tolist() == [-1, 0, -1, 2] and tree.end.tolist() == [2, 2, 4, 4] and tree.depth.tolist() == [0, 1, 0, 1]
    assert pd.DataFrame(module_times(c, scope(c, Query()))).groupby("name")["calls"].sum()["Shared_7"] == 3


def test_a_module_inside_itself_is_one_node_over_its_outermost_calls(tmp_path: Path) -> None:
    # GIVEN R_0 that calls itself twice, one of them with a third call and Linear_0 inside; kernels of 50 in Linear_0, 7 in the second call
    t = TraceBuilder()
    t.module("R_0", 0, 1_000, module_id=1)
    t.module("R_0", 100, 500, module_id=1)
    t.module("R_0", 110, 400, module_id=1)
    t.module("Linear_0", 150, 200, module_id=2)
    t.launch("k", at=200, start=1_300, duration=50)
    t.module("R_0", 700, 200, module_id=1)
    t.launch("k", at=800, start=1_400, duration=7)
    c = read_back(t, tmp_path)
    nodes = module_times(c, scope(c, Query()))
    # THEN the four calls are one node of 1 000 and 57, less Linear_0 its own
    assert nodes["name"].tolist() == ["R_0", "Linear_0"]
    assert nodes["calls"].tolist() == [4, 1] and nodes["device_events"].tolist() == [2, 1]
    assert nodes["host_total_ns"].tolist() == [1_000, 200] and nodes["host_self_ns"].tolist() == [800, 200]
    assert nodes["device_total_ns"].tolist() == [57, 50] and nodes["device_self_ns"].tolist() == [7, 50]
    # AND so is its class
    classes = pd.DataFrame(by_class(nodes, class_rows(nodes))).set_index("class_name")
    assert classes.loc["R", ["instances", "calls", "host_total_ns", "device_total_ns"]].tolist() == [1, 4, 1_000, 57]


def test_a_class_counts_a_module_that_lies_deeper_inside_itself_once(tmp_path: Path) -> None:
    # GIVEN R_0 of 1 000 with a kernel of 5, in it Other_0 with R_0 of 400 with a kernel of 50; beside it R_1 of 300 that holds R_2 of 200
    t = TraceBuilder()
    t.module("R_0", 0, 1_000, module_id=1)
    t.launch("k", at=10, start=2_000, duration=5)
    t.module("Other_0", 100, 700, module_id=2)
    t.module("R_0", 200, 400, module_id=1)
    t.launch("k", at=300, start=2_100, duration=50)
    t.module("R_1", 1_100, 300, module_id=3)
    t.module("R_2", 1_150, 200, module_id=4)
    c = read_back(t, tmp_path)
    nodes = module_times(c, scope(c, Query()))
    assert nodes["name"].tolist() == ["R_0", "Other_0", "R_0", "R_1", "R_2"]
    # THEN the class holds 1 000 + 300 + 200 of the host and 55 of the device, and of its own 300 + 400 + 100 + 200
    row = pd.DataFrame(by_class(nodes, class_rows(nodes))).set_index("class_name").loc["R"]
    assert (row["instances"], row["calls"], row["host_total_ns"], row["device_total_ns"]) == (3, 4, 1_500, 55)
    assert (row["host_self_ns"], row["device_self_ns"]) == (1_000, 55)
    # AND the sentence of the page has the time of each moment once: no class takes more than the whole
    assert report(c, "modules").headline.startswith("Work in the 2 `R` modules takes **100.0\u202f%** of the device time")


def test_recomputed_forward_inside_the_backward_pass_is_not_backward_of_the_outer_module(tmp_path: Path) -> None:
    # GIVEN activation checkpointing: the backward root of Block_0's operator calls Block_0 again (kernel of 70) and then runs 30 of its own
    t = TraceBuilder()
    t.module("Block_0", 0, 1_000, module_id=1)
    t.op("CheckpointFunction", 100, 500, sequence=5)
    t.launch("forward", at=150, start=200, duration=60)
    back = {"thread": BACKWARD_THREAD, "sequence": 5, "forward_thread": 1}
    t.op("autograd::engine::evaluate_function: CheckpointFunctionBackward", 2_000, 900, **back)
    t.op("CheckpointFunctionBackward", 2_010, 880, **back)
    t.module("Block_0", 2_050, 300, module_id=1, thread=BACKWARD_THREAD)
    t.launch("again", at=2_100, start=2_200, duration=70, thread=BACKWARD_THREAD)
    t.launch("gradient", at=2_500, start=2_600, duration=30, thread=BACKWARD_THREAD)
    c = read_back(t, tmp_path)
    row = pd.DataFrame(module_times(c, scope(c, Query()))).set_index("name").loc["Block_0"]
    # THEN forward holds both runs (60 + 70), backward only the gradient
    assert (row["calls"], row["device_total_ns"], row["backward_device_ns"]) == (2, 130, 30)


def test_a_module_run_again_on_the_autograd_thread_stays_at_its_place(tmp_path: Path) -> None:
    # GIVEN Net_0 with Block_0 with Linear_0 (40); below the backward node of Linear_0's operator Block_0 and Linear_0 run again (50),
    # and then the gradient (60)
    t = TraceBuilder()
    t.module("Net_0", 0, 1_000, module_id=1)
    t.module("Block_0", 100, 800, module_id=2)
    t.module("Linear_0", 200, 600, module_id=3)
    t.op("aten::linear", 300, 300, sequence=5)
    t.launch("forward", at=350, start=2_000, duration=40)
    back = {"thread": BACKWARD_THREAD, "sequence": 5, "forward_thread": 1}
    t.op("autograd::engine::evaluate_function: MmBackward0", 3_000, 2_000, **back)
    t.op("MmBackward0", 3_010, 1_900, **back)
    t.module("Block_0", 3_100, 900, module_id=2, thread=BACKWARD_THREAD)
    t.module("Linear_0", 3_200, 600, module_id=3, thread=BACKWARD_THREAD)
    t.launch("again", at=3_300, start=5_000, duration=50, thread=BACKWARD_THREAD)
    t.launch("gradient", at=4_500, start=6_000, duration=60, thread=BACKWARD_THREAD)
    c = read_back(t, tmp_path)
    # THEN there is one node a module, and what ran again is in every one of them, once
    assert module_tree(c).name == ["Net_0", "Block_0", "Linear_0"]
    nodes = times(c)
    assert nodes["calls"].tolist() == [1, 2, 2]
    assert nodes["device_total_ns"].tolist() == [40, 90, 90] and nodes["again_device_ns"].tolist() == [50, 0, 0]
    assert nodes["backward_device_ns"].tolist() == [60, 60, 60]


def test_a_backward_pass_run_inside_a_module_call_is_not_counted_twice(tmp_path: Path) -> None:
    # GIVEN Trainer_0 whose call runs forward of Layer_0 (40) and, on the same thread, its backward (25)
    t = TraceBuilder()
    t.module("Trainer_0", 0, 2_000, module_id=1)
    t.module("Layer_0", 100, 400, module_id=2)
    t.op("aten::addmm", 150, 200, sequence=3)
    t.launch("forward", at=200, start=250, duration=40)
    t.op("autograd::engine::evaluate_function: AddmmBackward0", 1_000, 500, sequence=3, forward_thread=1)
    t.op("AddmmBackward0", 1_010, 480, sequence=3, forward_thread=1)
    t.launch("gradient", at=1_100, start=1_200, duration=25)
    c = read_back(t, tmp_path)
    t2 = pd.DataFrame(module_times(c, scope(c, Query()))).set_index("name")
    # THEN for the trainer the gradient is in its own forward (it launched it), for the layer it is backward: both add up to 65
    assert t2.loc["Trainer_0", ["device_total_ns", "backward_device_ns"]].tolist() == [65, 0]
    assert t2.loc["Layer_0", ["device_total_ns", "backward_device_ns"]].tolist() == [40, 25]


@pytest.fixture
def stack(tmp_path: Path) -> Capture:
    """A stack of four equal layers with two linears each, between an embedding and two heads of one class."""
    t = TraceBuilder()
    t.module("Model_0", 0, 10_000, module_id=1)
    t.module("Embedding_0", 100, 100, module_id=2)
    for i in range(4):
        t.module(f"Layer_{i}", 1_000 * (i + 1), 800, module_id=10 + i)
        for j in range(2):
            t.module(f"Linear_{2 * i + j}", 1_000 * (i + 1) + 100 + 300 * j, 200, module_id=20 + 2 * i + j)
            t.launch("k", at=1_000 * (i + 1) + 150 + 300 * j, start=20_000 + 100 * (2 * i + j), duration=10 + i, call_duration=10)
    for i in range(2):
        t.module(f"Head_{i}", 8_000 + 500 * i, 300, module_id=50 + i)
    return read_back(t, tmp_path)


def test_equal_siblings_become_one_row_and_sums_stay(stack: Capture) -> None:
    nodes = module_times(stack, scope(stack, Query()))
    rows = merge_siblings(nodes)
    merged = merged_sums(nodes, rows)
    # GIVEN four equal layers WHEN merged THEN they are one row with its linears below; a pair of heads stays apart
    assert merged["name"].tolist() == ["Model_0", "Embedding_0", "Layer 4×", "Linear 8×", "Head_0", "Head_1"]
    assert merged["parent"].tolist() == [-1, 0, 0, 2, 0, 0] and merged["instances"].tolist() == [1, 1, 4, 8, 1, 1]
    # AND device time is 2 * (10 + 11 + 12 + 13) at every level
    assert merged["device_total_ns"].tolist() == [92, 0, 92, 92, 0, 0]
    assert merged["device_self_ns"].sum() == nodes["device_self_ns"].sum() == 92
    # AND without merging every node is a row under its own name
    plain = merged_sums(nodes, unmerged(nodes))
    assert plain["name"].tolist() == nodes["name"].tolist() and len(plain["name"]) == 16


def test_layers_of_different_structure_are_not_merged(tmp_path: Path) -> None:
    # GIVEN four layers of one class, one of which has an extra child
    t = TraceBuilder()
    t.module("Model_0", 0, 10_000, module_id=1)
    for i in range(4):
        t.module(f"Layer_{i}", 1_000 * (i + 1), 800, module_id=10 + i)
        if i == 2:
            t.module("Dropout_0", 1_000 * (i + 1) + 100, 100, module_id=30)
    nodes = module_times(c := read_back(t, tmp_path), scope(c, Query()))
    assert merged_sums(nodes, merge_siblings(nodes))["name"].tolist() == ["Model_0", "Layer 3×", "Layer_2", "Dropout_0"]


def test_classes_sum_over_instances(stack: Capture) -> None:
    nodes = module_times(stack, scope(stack, Query()))
    classes = pd.DataFrame(by_class(nodes, class_rows(nodes))).set_index("class_name")
    assert classes.loc["Linear", ["instances", "calls", "device_total_ns"]].tolist() == [8, 8, 92]


@given(st.lists(st.tuples(st.integers(-1, 30), st.integers(0, 3), st.integers(0, 9)), max_size=30))
def test_calls_of_a_very_deep_tree_are_the_nodes_that_those_of_a_flat_one_are(calls: list[tuple[int, int, int]]) -> None:
    # GIVEN calls inside each other, of some instances, at some times WHEN looked at level by level, and one by one
    parent, own, start = (np.array([call[i] for call in calls], np.int64) for i in range(3))
    parent = np.where(parent < len(calls), parent, -1)
    found = [part.tolist() for part in tree_of_modules._nodes(parent, own, start)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree_of_modules, "DEEP", -1)
        deep = [part.tolist() for part in tree_of_modules._nodes(parent, own, start)]
    # THEN the same calls are one node, under the same numbers
    assert deep == found
