"""The exclusive split of a step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.metrics.time import breakdown as P
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts


@pytest.fixture
def capture() -> Capture:
    """One step [0,200) with the step's own range, a load, a call and an operator on the host and five kinds of device work."""
    host = [
        ("ProfilerStep#3", S.ANNOTATION, 0, 190),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", S.ANNOTATION, 0, 50),
        ("aten::add", S.OPERATOR, 60, 60),
        ("cudaLaunchKernel", S.CALL, 110, 20),
        ("Profiler overhead", S.OTHER, 180, 10),
    ]
    device = [  # kind, start, duration, communication, copy kernel
        (S.KERNEL, 40, 20, False, False),
        (S.MEMCPY, 50, 20, False, False),
        (S.MEMSET, 65, 10, False, False),
        (S.KERNEL, 70, 20, True, False),
        (S.KERNEL, 90, 5, False, True),
    ]
    name, kind, start, duration = zip(*host, strict=True)
    d = list(zip(*device, strict=True))
    return Capture(
        Facts("test", "x", 0, vendor="nvidia", extent_ns=(0, 260)),
        {
            "host": S.HOST.frame({"name": list(name), "kind": kind, "start_ns": start, "duration_ns": duration}),
            "device": S.DEVICE.frame({"kind": d[0], "start_ns": d[1], "duration_ns": d[2], "communication": d[3], "copy_kernel": d[4]}),
            "steps": S.STEPS.frame({
                "number": [3, 4], "host_start_ns": [0, 190], "host_end_ns": [190, 260], "start_ns": [0, 200], "end_ns": [200, 260],
                "device_events": [5, 0], "complete": [True, False],
            }),
        },
    )  # fmt: skip


def test_the_split_of_a_step_by_hand(capture):
    first = P.split_steps(capture).iloc[0]
    expected = {
        "kernel_ns": 20,  # [40,60)
        "memcpy_ns": 15,  # [60,70) and the copy kernel [90,95)
        "memset_ns": 5,  # [70,75)
        "communication_ns": 15,  # [75,90)
        "runtime_ns": 20,  # [110,130)
        "dataloader_ns": 40,  # [0,40)
        "cpu_exec_ns": 15,  # [95,110); the step's own range and overhead are no operators
        "other_ns": 70,  # [130,200)
    }
    assert {k: first[k] for k in P.CATEGORIES} == expected
    assert sum(expected.values()) == first["duration_ns"] == 200
    assert (first["step"], first["host_ns"], bool(first["complete"])) == (3, 190, True)


def test_an_empty_step_is_all_other_time(capture):
    second = P.split_steps(capture).iloc[1]
    assert second["other_ns"] == second["duration_ns"] == 60 and not second["complete"]


def test_the_average_adds_up_in_whole_ns(capture):
    # GIVEN 200 and 61 ns: the mean 130.5 rounds to 130; kernel 20 // 2 = 10 …; other takes what is left
    frame = P.split_windows(capture, [0, 200], [200, 261]).assign(duration_ns=[200, 61])
    found = P.average(frame)
    assert found["kernel_ns"] == 10 and found["memcpy_ns"] == 7
    assert sum(found[c] for c in P.CATEGORIES) == found["duration_ns"] == 130


@given(st.integers(0, 260), st.integers(0, 120))
def test_the_parts_of_any_window_add_up_to_its_length(start, length):
    found = P.split_windows(TWO, [start], [start + length]).iloc[0]
    assert found.sum() == length and (found >= 0).all()


TWO = Capture(Facts("test", "x", 0), {
    "host": S.HOST.frame({
        "name": ["a", "enumerate(DataPipe)#X"], "kind": [S.FRAME, S.OPERATOR], "start_ns": [10, 90], "duration_ns": [100, 60],
    }),
    "device": S.DEVICE.frame({"kind": [S.KERNEL, S.MEMCPY], "start_ns": [0, 30], "duration_ns": [35, 70]}),
})  # fmt: skip
