"""Copies in groups, with what hides them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.metrics.memcpy import groups, link, records, sizes
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tb_sol_plugin.model.devices.table import DeviceSpec

MIB = 1 << 20
ROWS = [  # kind, direction, source, destination, start, duration, bytes, stream, step, copy kernel
    (S.MEMCPY, "HtoD", "Pageable", "Device", 0, 100, 1000, 7, 0, False),
    (S.MEMCPY, "HtoD", "Pinned", "Device", 50, 100, 4 * MIB, 8, 0, False),
    (S.MEMCPY, "DtoH", "Device", "Pageable", 200, 10, -1, 7, 1, False),
    (S.MEMCPY, "DtoD", "Device", "Device", 300, 0, 64, 7, 1, False),
    (S.MEMCPY, "PtoP", "Device", "Device", 310, 20, 2 * MIB, 9, 1, False),
    (S.MEMCPY, "Unknown", "", "", 340, 5, 5, 7, -1, False),
    (S.MEMSET, "Memset", "", "Device", 350, 10, 512, 7, -1, False),
    (S.KERNEL, "", "", "", 370, 30, -1, 7, 1, True),
    (S.KERNEL, "", "", "", 80, 40, -1, 10, 0, False),  # computes over [80,120)
]


@pytest.fixture
def capture() -> Capture:
    """Eight copies of every sort, a kernel that hides part of the first two, and a collective over [200,205)."""
    c = list(zip(*ROWS, strict=True))
    frame = {
        "kind": [*c[0], S.KERNEL], "direction": [*c[1], ""], "src_kind": [*c[2], ""], "dst_kind": [*c[3], ""], "start_ns": [*c[4], 200],
        "duration_ns": [*c[5], 5], "bytes": [*c[6], -1], "stream": [*c[7], 11], "step": [*c[8], 1], "copy_kernel": [*c[9], False],
        "communication": [False] * 9 + [True], "device": [0] * 10, "link": [0] * 5 + [S.NO_RECORD, S.BEFORE_WINDOW] + [0] * 3,
        "module": [2, 2, -1, -1, -1, -1, -1, -1, -1, -1],
    }  # fmt: skip
    host = S.HOST.frame({"name": ["a", "b", "nn.Module: Net_0"], "kind": [0, 0, S.MODULE], "start_ns": [0, 1, 2], "duration_ns": [1, 1, 1]})
    steps = S.STEPS.frame(
        {"number": [40, 41], "start_ns": [0, 200], "end_ns": [200, 400], "host_start_ns": [0, 200], "host_end_ns": [200, 400]}
    )
    return Capture(Facts("test", "x", 0, vendor="nvidia"), {"device": S.DEVICE.frame(frame), "host": host, "steps": steps})


def everything(capture: Capture) -> np.ndarray:
    return np.ones(len(capture.device), bool)


def test_directions_by_hand(capture):
    table = groups.table(capture, everything(capture), "direction").set_index("direction")
    assert table.index.tolist() == ["HtoD", "DtoH", "DtoD", "PtoP", "Memset", "copy kernel", "Unknown"]
    up = table.loc["HtoD"]
    assert (up["count"], up["bytes"], up["time_ns"], up["src_kind"]) == (2, 1000 + 4 * MIB, 200, "Pageable, Pinned")
    # the union is [0,150); the kernel hides [80,120) of it, although both copies overlap there
    assert (up["union_ns"], up["hidden_ns"], up["exposed_ns"]) == (150, 40, 110)
    assert up["bandwidth_bytes_per_s"] == pytest.approx((1000 + 4 * MIB) / 200e-9)
    assert (up["large_count"], up["large_bytes_per_s"]) == (1, pytest.approx(4 * MIB / 100e-9))


def test_missing_bytes_are_unknown_not_zero(capture):
    table = groups.table(capture, everything(capture), "direction").set_index("direction")
    down = table.loc["DtoH"]
    assert np.isnan(down["bytes"]) and down["without_bytes"] == 1 and np.isnan(down["bandwidth_bytes_per_s"])
    # zero time has no rate either
    assert np.isnan(table.loc["DtoD", "bandwidth_bytes_per_s"]) and table.loc["DtoD", "bytes"] == 64


def test_communication_hides_nothing_but_keeps_the_device_busy(capture):
    down = groups.table(capture, everything(capture), "direction").set_index("direction").loc["DtoH"]
    assert (down["hidden_ns"], down["exposed_ns"], down["idle_exposed_ns"]) == (0, 10, 5)


@pytest.mark.parametrize("by", ["direction", "kind", "stream", "step", "module", "phase"])
def test_every_grouping_has_the_same_sums(capture, by):
    table = groups.table(capture, everything(capture), by)
    assert (table["count"].sum(), table["bytes"].sum(), table["time_ns"].sum()) == (8, 6 * MIB + 1000 + 64 + 5 + 512, 275)
    assert (table["hidden_ns"] + table["exposed_ns"] == table["union_ns"]).all()
    assert table["share"].sum() == pytest.approx(1)


def test_groups_have_names_and_reasons(capture):
    def names(by):
        return set(groups.table(capture, everything(capture), by)["group"])

    assert names("step") == {"40", "41", "(no launch record)", "(launched before the window)"}
    assert names("module") == {"Net_0", "(no module)", "(no launch record)", "(launched before the window)"}
    assert names("stream") == {"stream 7", "stream 8", "stream 9"}
    kinds = groups.table(capture, everything(capture), "kind")
    assert kinds[kinds["direction"] == "HtoD"][["src_kind", "dst_kind"]].to_numpy().tolist() == [
        ["Pageable", "Device"],
        ["Pinned", "Device"],
    ]


def test_devices_hide_only_their_own_copies():
    # GIVEN a copy on device 0 and a kernel at the same time on device 1
    capture = Capture(Facts("test", "x", 0), {"device": S.DEVICE.frame({
        "kind": [S.MEMCPY, S.KERNEL], "direction": ["HtoD", ""], "device": [0, 1], "start_ns": [0, 0], "duration_ns": [10, 10],
    })})  # fmt: skip
    table = groups.table(capture, everything(capture), "direction")
    assert table["exposed_ns"].tolist() == [10]


EVENT = st.tuples(
    st.sampled_from([S.KERNEL, S.MEMCPY]), st.sampled_from(["HtoD", "DtoH"]), st.integers(0, 1), st.integers(0, 40), st.integers(0, 20)
)


@given(st.lists(EVENT, min_size=1, max_size=12))
def test_hidden_and_exposed_match_a_bitmap(events):
    kind, direction, device, start, duration = (list(x) for x in zip(*events, strict=True))
    direction = ["" if k == S.KERNEL else d for k, d in zip(kind, direction, strict=True)]
    capture = Capture(Facts("test", "x", 0), {"device": S.DEVICE.frame({
        "kind": kind, "direction": direction, "device": device, "start_ns": start, "duration_ns": duration, "stream": [0] * len(kind),
    })})  # fmt: skip
    for row in groups.table(capture, everything(capture), "direction").to_dict("records"):
        hidden = exposed = 0
        for one in (0, 1):
            work, copy = np.zeros(64, bool), np.zeros(64, bool)
            for k, d, i, a, n in zip(kind, direction, device, start, duration, strict=True):
                if i == one and (k == S.KERNEL or d == row["direction"]):
                    (work if k == S.KERNEL else copy)[a : a + n] = True
            hidden, exposed = hidden + int((copy & work).sum()), exposed + int((copy & ~work).sum())
        assert (row["hidden_ns"], row["exposed_ns"]) == (hidden, exposed)


def test_the_histogram_has_inclusive_upper_ends(capture):
    frame = pd.DataFrame(
        {"direction": ["HtoD"] * 5, "bytes": [4096, 4097, 1 << 28, (1 << 28) + 1, -1], "duration_ns": [10, 10, 10, 10, 10]}
    )
    found = sizes.sizes(frame)
    assert found["bin"].tolist() == [0, 1, 4, 5] and found["count"].sum() == 4 and len(records.BINS) == len(records.EDGES) + 1


def test_limits_come_from_the_device():
    spec = DeviceSpec(key="x", name="x", memory_bandwidth=2e12, pcie_bytes_per_s=31.5e9, link_bytes_per_s=300e9, link_kind="nvlink")
    found = link.peaks(spec)
    assert found["DtoD"] == (1e12, "memory / 2") and found["HtoD"][0] == found["DtoH"][0] == 31.5e9
    assert found["PtoP"] == (300e9, "NVLink") and "HtoH" not in found
    assert link.peaks(None) == {}


def test_the_fit_recovers_latency_and_rate():
    # GIVEN copies that take 2 us plus bytes over 25 GB/s, in four bins, with slow ones among them
    size = np.repeat([1024, 32 << 10, 1 << 19, 8 << 20], 10)
    exact = 2000 + size / 25.0
    slow = np.where(np.arange(40) % 10 == 0, 1.0, 1.5)
    frame = pd.DataFrame({"direction": "HtoD", "bytes": size, "duration_ns": np.round(exact * slow).astype(np.int64)})
    t0, rate = link.latency_fit(frame, "HtoD")
    assert t0 == pytest.approx(2000, rel=0.01) and rate == pytest.approx(25e9, rel=0.01)
    assert link.latency_fit(frame[frame["bytes"] < 1 << 19], "HtoD") is None


def test_no_copy_gives_an_empty_table():
    capture = Capture(Facts("test", "x", 0), {"device": S.DEVICE.frame({"kind": [S.KERNEL], "start_ns": [0], "duration_ns": [1]})})
    assert len(groups.table(capture, everything(capture), "direction")) == 0
