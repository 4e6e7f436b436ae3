"""What a step query selects."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.time import scope as of_time
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tb_sol_plugin.model.query import Query


@pytest.fixture
def three_steps() -> Capture:
    """Steps 7, 8, 9 of 100 ns on the host; one kernel each, one launched before the window, one outside every step."""
    return Capture(
        Facts("test", "x.json", 0, extent_ns=(0, 400)),
        {
            "steps": S.STEPS.frame({
                "number": [7, 8, 9], "host_start_ns": [10, 110, 210], "host_end_ns": [110, 210, 310],
                "start_ns": [10, 130, 210], "end_ns": [130, 210, 340], "complete": [True, True, False],
            }),
            "device": S.DEVICE.frame({"start_ns": [0, 20, 120, 220, 380], "duration_ns": [5, 110, 10, 120, 5], "step": [-1, 0, 1, 2, -1]}),
            "host": S.HOST.frame({"start_ns": [5, 10, 110, 200, 309, 310], "duration_ns": [1, 1, 1, 1, 1, 1]}),
        },
    )  # fmt: skip


def test_the_scope_without_a_query_selects_every_row(three_steps):
    found = scope(three_steps, Query())
    assert found.device.all() and found.host.all()
    assert (found.window_ns, found.steps, found.step_count, found.label) == ((0, 400), (7, 8, 9), 3, "whole recording")
    assert found.whole


def test_the_scope_of_a_step_selects_what_it_launched(three_steps):
    # WHEN step 7 is asked for THEN its kernel counts although it ends after the host's step, and the window says so
    found = scope(three_steps, Query(step="7"))
    assert found.device.tolist() == [False, True, False, False, False]
    assert found.host.tolist() == [False, True, False, False, False, False]
    assert (found.window_ns, found.step_count, found.label) == ((10, 130), 1, "step 7, 1 of 3")


@pytest.mark.parametrize("text", ["8-9", "9-8", " 8 – 9 ", "8:12"])
def test_the_scope_of_a_range_selects_its_steps(three_steps, text):
    found = scope(three_steps, Query(step=text))
    assert found.device.tolist() == [False, False, True, True, False]
    assert found.host.tolist() == [False, False, True, True, True, False]
    assert (found.window_ns, found.steps, found.label) == ((130, 340), (8, 9), "steps 8–9, 2 of 3")


@pytest.mark.parametrize(
    ("text", "hint"), [("6", "recorded: 7–9"), ("20-30", "recorded: 7–9"), ("seven", "12-15"), ("1-2-3", "12-15"), ("-1", "12-15")]
)
def test_an_unknown_step_names_the_field_and_what_there_is(three_steps, text, hint):
    with pytest.raises(BadQuery) as error:
        scope(three_steps, Query(step=text))
    assert error.value.field == "step" and hint in error.value.hint


def test_without_steps_the_recording_is_one():
    # GIVEN a recording with the one pseudo-step
    capture = Capture(
        Facts("test", "x", 0, pseudo_step=True),
        {"steps": S.STEPS.frame({"number": [-1], "start_ns": [0], "end_ns": [9]}),
         "device": S.DEVICE.frame({"start_ns": [3], "duration_ns": [6], "step": [0]})},
    )  # fmt: skip
    found = scope(capture, Query())
    assert (found.window_ns, found.steps, found.step_count) == ((3, 9), (), 1)
    with pytest.raises(BadQuery, match="no step 0"):
        scope(capture, Query(step="0"))


def test_an_empty_capture_has_an_empty_window():
    found = scope(Capture(Facts("test", "x", 0), {}), Query())
    assert found.window_ns == (0, 0) and found.window_length_ns == 0 and found.step_count == 1


def test_the_scope_of_a_query_is_kept_with_the_capture(three_steps):
    assert scope(three_steps, Query(step="8")) is scope(three_steps, Query(step=" 8 "))
    calls = []
    assert [memo(three_steps, "k", lambda: calls.append(1) or 4) for _ in range(2)] == [4, 4]
    assert calls == [1]


INTERVAL = st.tuples(st.integers(0, 60), st.integers(0, 20))


@given(
    st.lists(INTERVAL, min_size=1, max_size=5),
    st.lists(st.lists(st.integers(0, 90), max_size=60), min_size=1, max_size=3),
    st.integers(0, 4),
)
def test_rows_of_steps_are_those_that_start_in_one_of_them(steps: list[tuple[int, int]], threads: list[list[int]], left_out: int) -> None:
    # GIVEN steps in any order, over each other or empty, and rows of threads in order of their start
    begin, end = np.array([b for b, _ in steps], np.int64), np.array([b + n for b, n in steps], np.int64)
    rows = [(thread, start) for thread, starts in enumerate(threads) for start in sorted(starts)]
    host = S.HOST.frame({"thread": np.array([t for t, _ in rows], np.int32), "start_ns": np.array([s for _, s in rows], np.int64)})
    table = S.STEPS.frame({"number": np.arange(len(steps)), "host_start_ns": begin, "host_end_ns": end})
    capture = Capture(Facts("kineto", "made", 0), {"host": host, "steps": table})
    chosen = np.array([i for i in range(len(steps)) if i != left_out], np.int64)
    # WHEN those of some steps are asked for THEN each row that starts in one of them is there, and no other
    expected = [any(begin[i] <= start < end[i] for i in chosen.tolist()) for _, start in rows]
    assert of_time._in_steps(capture, chosen).tolist() == expected
