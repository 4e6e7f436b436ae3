"""What is wrong with copies: one recording above and one below each threshold."""

from __future__ import annotations

import numpy as np
import pytest

from tb_sol_plugin.metrics.memcpy import candidates, records
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts

US = 1000


def recording(rows) -> Capture:
    """rows: (direction, source, destination, bytes, device start us, duration us, call name, call start us, call us)."""
    c = list(zip(*rows, strict=True))
    return Capture(
        Facts("test", "x", 0, vendor="nvidia"),
        {
            "host": S.HOST.frame({
                "name": ["aten::copy_", *c[6]], "kind": [S.OPERATOR] + [S.CALL] * len(rows), "start_ns": [0, *(int(t * US) for t in c[7])],
                "duration_ns": [10**9, *(int(t * US) for t in c[8])],
            }),
            "device": S.DEVICE.frame({
                "kind": [S.MEMSET if d == "Memset" else S.MEMCPY for d in c[0]], "direction": list(c[0]), "src_kind": list(c[1]),
                "dst_kind": list(c[2]), "bytes": c[3], "start_ns": [int(t * US) for t in c[4]], "duration_ns": [int(t * US) for t in c[5]],
                "call": np.arange(1, len(rows) + 1), "operator": [0] * len(rows), "device": [0] * len(rows), "stream": [7] * len(rows),
            }),
        },
    )  # fmt: skip


def found(capture):
    return records.copies(capture, np.ones(len(capture.device), bool))


@pytest.mark.parametrize(
    ("row", "blocks"),
    [
        (("HtoD", "Pinned", "Device", 1024, 100, 2, "cudaMemcpyAsync", 90, 5), False),  # returns before the copy runs
        (("HtoD", "Pageable", "Device", 1024, 100, 2, "cudaMemcpyAsync", 90, 5), True),  # pageable end
        (("HtoD", "Pinned", "Device", 1024, 100, 2, "cudaMemcpy", 90, 5), True),  # synchronous call
        (("DtoH", "Device", "Pinned", 1024, 100, 2, "cudaMemcpyAsync", 40, 53), True),  # outlasts the copy by 51 us
        (("DtoH", "Device", "Pinned", 1024, 100, 2, "cudaMemcpyAsync", 40, 52), False),  # by 50 us: not more
        (("DtoH", "Device", "Host", 1024, 100, 2, "hipMemcpyWithStream", 99, 4), True),  # ends after the copy
        (("DtoH", "Device", "Pinned", 1024, 100, 2, "cudaGraphLaunch", 40, 200), False),  # no copy call
        (("Memset", "", "Device", 1024, 100, 2, "cudaMemsetAsync", 40, 200), False),  # a set
    ],
)
def test_what_blocks(row, blocks):
    capture = recording([row])
    assert candidates.blocking(capture, found(capture))["blocks"].tolist() == [blocks]


def test_small_copies_to_the_host_cost_the_length_of_their_calls():
    # GIVEN two .item() reads in two steps, whose calls drain the stream for 300 and 500 us
    rows = [("DtoH", "Device", "Pageable", 4, 1000 * i, 2, "cudaMemcpyAsync", 1000 * i - n + 3, n) for i, n in ((1, 300), (2, 500))]
    capture = recording(rows)
    (one,) = candidates.findings(capture, found(capture), 2)
    # THEN 800 us over two steps, the longest 500
    assert (one.rule, one.saving_ns, one.worst_ns, one.host, len(one.rows)) == ("small_to_host", 400 * US, 500 * US, True, 2)
    assert candidates.parents(capture, found(capture), one.rows) == ["aten::copy_"]
    assert candidates.kinds(found(capture), one.rows) == "Device → Pageable"


def test_the_host_saves_no_more_than_the_device_waits():
    # GIVEN a window of 1000 us, a memset that keeps the device busy for 900 of it, and an .item() whose call waits 950 us for both
    rows = [
        ("Memset", "", "Device", 1 << 20, 0, 900, "cudaMemsetAsync", 0, 2),
        ("DtoH", "Device", "Pageable", 4, 940, 2, "cudaMemcpyAsync", 2, 950),
    ]
    capture = recording(rows)
    # WHEN its saving is bounded THEN by the 98 us without work and the 2 us of the copy, and it is told
    idle = candidates.idle_ns(capture, (0, 1000 * US))
    assert idle == 98 * US
    (one,) = candidates.findings(capture, found(capture), 1, idle)
    assert (one.rule, one.saving_ns, one.worst_ns, one.behind_work) == ("small_to_host", 100 * US, 950 * US, True)
    # AND a call that is shorter than that stays whole
    brief = recording([rows[0], (*rows[1][:7], 930, 60)])
    (one,) = candidates.findings(brief, found(brief), 1, idle)
    assert (one.saving_ns, one.behind_work) == (60 * US, False)


def test_a_large_exposed_copy_saves_its_exposed_time():
    rows = [("HtoD", "Pinned", "Device", 8 << 20, 100, 400, "cudaMemcpyAsync", 10, 5)]
    capture = recording(rows)
    (one,) = candidates.findings(capture, found(capture), 1)
    assert (one.rule, one.direction, one.saving_ns) == ("exposed", "HtoD", 400 * US)
    short = recording([("HtoD", "Pinned", "Device", 8 << 20, 100, 100, "cudaMemcpyAsync", 10, 5)])
    assert candidates.findings(short, found(short), 1) == []


def tiny(count: int) -> Capture:
    """`count` device copies of 1 KiB, and enough larger ones to fit 2 us + bytes / 100 GB/s."""
    sizes = [1024] * count + [32 << 10] * 3 + [512 << 10] * 3
    return recording(
        [("DtoD", "Device", "Device", b, 100 * i, 2 + b / 100e3, "cudaMemcpyAsync", 100 * i - 50, 2) for i, b in enumerate(sizes)]
    )


def test_many_tiny_copies_save_their_latencies():
    (one,) = candidates.findings(tiny(29), found(tiny(29)), 1)
    # 29 + 3 copies below 64 KiB: 31 of 32 latencies of about 2 us
    assert (one.rule, len(one.rows)) == ("tiny", 32)
    assert one.saving_ns == pytest.approx(31 * 2 * US, rel=0.05)
    assert candidates.findings(tiny(28), found(tiny(28)), 1) == []


def test_without_a_host_nothing_blocks():
    capture = Capture(
        Facts("test", "x", 0), {"device": S.DEVICE.frame({"kind": [S.MEMCPY], "direction": ["DtoH"], "start_ns": [0], "duration_ns": [5]})}
    )
    assert candidates.findings(capture, found(capture), 1) == []
