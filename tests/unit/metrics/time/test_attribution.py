"""Device work credited to host rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back, training

ROWS = st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 60), st.integers(0, 25)), max_size=30)


@given(ROWS)
def test_union_by_equals_a_bitmap_per_group(rows: list[tuple[int, int, int]]) -> None:
    # GIVEN intervals in groups, some outside every group WHEN the union is taken per group THEN it covers the bits a bitmap has set
    group, start, length = (np.array([r[i] for r in rows], np.int64) for i in range(3))
    got = at.union_by(group, start, start + length, 4)
    for g in range(4):
        bits = {t for code, s, n in rows if code == g for t in range(s, s + n)}
        assert got[g] == len(bits)


def test_union_by_works_where_groups_times_extent_do_not_fit_in_64_bits() -> None:
    # GIVEN an extent of 2**61 ns and five groups: keys of group * extent would overflow
    far = 2**61
    group = np.arange(5, dtype=np.int64)
    start = np.array([0, far, 5, 0, far - 10], np.int64)
    # WHEN each group has one interval of 7 THEN each union is 7
    assert at.union_by(group, start, start + 7, 5).tolist() == [7] * 5
    # AND WHEN each but the last has a second one that begins 3 later THEN it is 10
    again, later = np.append(group, group[:4]), np.append(start, start[:4] + 3)
    assert at.union_by(again, later, later + 7, 5).tolist() == [10] * 4 + [7]


def test_sum_by_leaves_out_what_has_no_group() -> None:
    assert at.sum_by(np.array([0, -1, 0, 2]), np.array([1, 50, 2, 4], np.int64), 3).tolist() == [3, 0, 4]


def host_row(c: Capture, name: str, nth: int = 0) -> int:
    return int(np.flatnonzero((c.host["name"].astype(str) == name).to_numpy())[nth])


def test_self_time_counts_children_of_the_named_kinds_only_and_is_never_negative(tmp_path: Path) -> None:
    # GIVEN an operator of 100 with a python frame of 80 in it, in the frame an operator of 30 that launches with a call of 10,
    # and a child operator that ends 20 after its parent
    t = TraceBuilder()
    t.op("outer", 0, 100)
    t.frame("f.py(1): f", 10, 80)
    t.op("inner", 20, 30)
    t.call("cudaLaunchKernel", 25, 10)
    t.op("late", 90, 30)
    c = read_back(t, tmp_path)
    own = at.self_among(c, (S.OPERATOR,))
    # WHEN only operators are children THEN outer keeps 100 - 30 - the 10 of `late` that lie inside it
    assert own[host_row(c, "outer")] == 60 and own[host_row(c, "inner")] == 30
    # AND with calls taken off inner keeps 20; the frame itself is no operator and has none
    with_calls = at.self_among(c, (S.OPERATOR, S.CALL))
    assert with_calls[host_row(c, "inner")] == 20 and with_calls[host_row(c, "f.py(1): f")] == 0
    assert with_calls.min() >= 0


def test_rows_inside_a_backward_root_lead_to_the_forward_operator(tmp_path: Path) -> None:
    # GIVEN a training step whose backward runs on another thread
    c = read_back(training(steps=1), tmp_path)
    inner = np.array([host_row(c, "aten::mm", 0), host_row(c, "aten::relu")])
    forward, root = at.forward_rows(c, inner)
    # WHEN the first matrix product of the backward pass is looked up THEN it belongs to the addmm of the SECOND linear (number 1)
    assert forward[0] == host_row(c, "aten::addmm", 1)
    assert str(c.host["name"].iloc[root[0]]).startswith("autograd::engine::evaluate_function")
    # AND a forward operator has no backward root around it
    assert forward[1] == root[1] == -1


def test_the_issuing_thread_and_the_range_open_at_that_time(tmp_path: Path) -> None:
    c = read_back(training(steps=1), tmp_path)
    h = at.host(c)
    mm = host_row(c, "aten::mm")
    # GIVEN operators of an autograd thread WHEN its issuer is asked THEN it is the thread of the forward operators
    assert at.issuing_threads(c) == {int(h.thread[mm]): int(h.thread[host_row(c, "aten::relu")])}
    found, by_time = at.annotation_around(c, np.array([mm, host_row(c, "aten::relu")]))
    # THEN work of the autograd thread belongs to `## backward ##` by time, work of the main thread to `## forward ##` by containment
    assert [str(c.host["name"].iloc[r]) for r in found] == ["## backward ##", "## forward ##"]
    assert by_time.tolist() == [True, False]


def test_row_at_before_the_first_row_is_none(tmp_path: Path) -> None:
    c = read_back(training(steps=1), tmp_path)
    thread = int(at.host(c).thread[host_row(c, "aten::mm")])
    first = host_row(c, "autograd::engine::evaluate_function: AddmmBackward0")
    assert at.row_at(c, thread, [0, int(at.host(c).start[first])]).tolist() == [-1, first]


@pytest.mark.parametrize("few", [0, arrays.FEW_CODES])
def test_rows_of_a_kind_by_name_are_those_that_the_whole_table_has(few: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a training trace with operators, calls, ranges and frames, few names looked for one by one and many at once
    monkeypatch.setattr(arrays, "FEW_CODES", few)
    c = read_back(training(), tmp_path)
    names, kinds = c.host["name"].astype(str), c.host["kind"].to_numpy()
    for kind in (S.OPERATOR, S.CALL, S.ANNOTATION, S.FRAME):
        for word in ("a", "Launch", "Profiler", "nothing has this"):
            # WHEN rows of a kind are asked for by their name
            found = at.named(c, kind, lambda name, word=word: word in name)  # type: ignore[misc]
            # THEN they are those of a look at every row, in order
            assert found.tolist() == np.flatnonzero((kinds == kind) & names.str.contains(word, regex=False)).tolist()
    # AND a name is known to be there or not without a kind
    assert at.any_named(c, lambda name: "Launch" in name) == names.str.contains("Launch").any()
    assert not at.any_named(c, "nothing has this".__eq__)


def test_calls_that_launch_are_each_counted_once(tmp_path: Path) -> None:
    # GIVEN a training trace
    c = read_back(training(), tmp_path)
    # WHEN the launching calls are asked for, THEN they are the distinct calls of the device table
    call = c.device["call"].to_numpy()
    assert at.launching_calls(c).tolist() == sorted(set(call[call >= 0].tolist()))
