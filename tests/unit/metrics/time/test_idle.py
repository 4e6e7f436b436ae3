"""Causes of idle time."""

from __future__ import annotations

import numpy as np

from tb_sol_plugin.metrics.time import breakdown
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts


def test_idle_time_by_cause_by_hand():
    # GIVEN on device 0 kernels [0,100) [200,300) [320,400) [500,600) [700,800), a zero-length one at 650, and device 1 apart;
    # launched at 0, 150 (after 100: host), 250 (before, gap 20: hand-over), 350 (before, gap 100: other), unknown
    capture = Capture(Facts("test", "x", 0), {
        "host": S.HOST.frame({"start_ns": [0, 150, 250, 350], "duration_ns": [1, 1, 1, 1]}),
        "device": S.DEVICE.frame({
            "device": [0, 1, 0, 0, 0, 0, 0], "kind": [0] * 7, "start_ns": [0, 40, 200, 320, 500, 650, 700],
            "duration_ns": [100, 10, 100, 80, 100, 0, 100], "call": [0, 0, 1, 2, 3, 3, -1],
        }),
    })  # fmt: skip
    found = breakdown.gaps(capture, np.ones(7, bool))
    # THEN four gaps on device 0 and none on device 1, each with the row that ends it
    assert found["start_ns"].tolist() == [100, 300, 400, 600]
    assert found["duration_ns"].tolist() == [100, 20, 100, 100]
    assert [breakdown.CAUSES[c] for c in found["cause"]] == ["host_wait", "kernel_wait", "other", "unknown"]
    assert found["next"].tolist() == [2, 3, 4, 6]
    assert breakdown.by_cause(found) == {"host_wait": 100, "kernel_wait": 20, "other": 100, "unknown": 100}
    assert breakdown.by_length(found, 100) == (20, 300)


def test_without_device_work_there_is_no_gap():
    capture = Capture(Facts("test", "x", 0), {})
    found = breakdown.gaps(capture, np.zeros(0, bool))
    assert len(found) == 0 and set(breakdown.by_cause(found).values()) == {0} and breakdown.by_length(found, 10) == (0, 0)
