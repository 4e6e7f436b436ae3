"""Copies in groups, with what hides them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.copies import groups
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tests.support.odd_copies import COPIES, recording

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


def test_groups_by_direction_by_hand(capture):
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
    st.sampled_from([S.KERNEL, S.MEMCPY, S.MEMCPY, S.MEMSET]), st.sampled_from(["HtoD", "DtoH", "DtoD"]), st.integers(0, 1),
    st.integers(0, 50), st.integers(0, 20), st.booleans(),
)  # fmt: skip


def bitmaps(rows: list[tuple[int, str, int, int, int, bool]], one: int) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """(nanoseconds per direction, under work, under any kernel) of a device, marked one by one."""
    copied: dict[str, np.ndarray] = {}
    work, busy = np.zeros(80, bool), np.zeros(80, bool)
    for kind, direction, device, start, duration, communication in rows:
        if device != one:
            continue
        if kind == S.KERNEL:
            busy[start : start + duration] = True
            if not communication:
                work[start : start + duration] = True
        else:
            copied.setdefault(direction, np.zeros(80, bool))[start : start + duration] = True
    return copied, work, busy


@settings(max_examples=30)
@given(st.lists(EVENT, min_size=1, max_size=12))
def test_hidden_and_exposed_match_a_bitmap(events):
    # GIVEN any copies and kernels, collectives among them, on two devices
    rows = [(k, "Memset" if k == S.MEMSET else "" if k == S.KERNEL else d, *rest) for k, d, *rest in events]
    kind, direction, device, start, duration, communication = (list(x) for x in zip(*rows, strict=True))
    capture = Capture(Facts("test", "x", 0), {"device": S.DEVICE.frame({
        "kind": kind, "direction": direction, "device": device, "start_ns": start, "duration_ns": duration, "stream": [0] * len(kind),
        "communication": [k == S.KERNEL and c for k, c in zip(kind, communication, strict=True)],
    })})  # fmt: skip
    table = groups.table(capture, everything(capture), "direction")
    whole = groups.overall(capture, everything(capture))
    wanted = {d: [0, 0, 0, 0] for d in direction if d}
    all_of = [0, 0, 0, 0]

    def add(to: list[int], copy: np.ndarray, work: np.ndarray, busy: np.ndarray) -> None:
        for i, part in enumerate((copy, copy & work, copy & ~work, copy & ~busy)):
            to[i] += int(part.sum())

    for one in (0, 1):
        copied, work, busy = bitmaps(rows, one)
        for d, copy in copied.items():
            add(wanted[d], copy, work, busy)
        add(all_of, np.any([np.zeros(80, bool), *copied.values()], axis=0), work, busy)
    # THEN per direction and for all, to the nanosecond: the union, the hidden part and the rest of it
    names = ["union_ns", "hidden_ns", "exposed_ns", "idle_exposed_ns"]
    assert {r["direction"]: [r[n] for n in names] for r in table.to_dict("records")} == wanted
    assert [whole[n] for n in names] == all_of and whole["hidden_ns"] + whole["exposed_ns"] == whole["union_ns"]
    # and the parts by device add up to the whole, as the union is one per device
    parts = groups.table(capture, everything(capture), "device")
    assert parts["union_ns"].sum() == table["union_ns"].sum() and parts["exposed_ns"].sum() == table["exposed_ns"].sum()


BY = ["direction", "kind", "device", "stream", "step", "phase", "module", "operator", "frame"]


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    return read(str(recording().write(tmp_path_factory.mktemp("odd") / "worker0.1.pt.trace.json")))


@pytest.mark.parametrize("by", BY)
def test_sums_of_every_grouping_are_the_sums_of_the_recording(odd, by):
    # GIVEN a copy of every sort WHEN grouped THEN the parts are the whole
    table = groups.table(odd, everything(odd), by)
    count, size, time = len(COPIES), sum(max(c.bytes, 0) for c in COPIES), sum(c.duration for c in COPIES)
    assert (table["count"].sum(), table["bytes"].sum(), table["time_ns"].sum()) == (count, size, time)
    assert (table["without_bytes"].sum(), table["oversize"].sum()) == (sum(c.bytes < 0 for c in COPIES), 1)
    assert (table["share"].sum(), table["bytes_share"].sum()) == (pytest.approx(1), pytest.approx(1))
    # the copies do not overlap, so their union is their time; 350 ns of the first run behind the kernel
    assert (table["union_ns"].sum(), table["hidden_ns"].sum(), table["exposed_ns"].sum()) == (time, 350, time - 350)
    # and every direction has the same sums in every grouping
    for direction, part in table.groupby("direction"):
        mine = [c for c in COPIES if c.direction == direction]
        assert (part["count"].sum(), part["time_ns"].sum()) == (len(mine), sum(c.duration for c in mine))


def test_labels_of_every_grouping(odd):
    def names(by):
        return set(groups.table(odd, everything(odd), by)["group"])

    lost = {"(no launch record)", "(launched before the window)"}
    assert names("device") == {"device 0", "device 1"}
    assert names("stream") == {
        "device 0, stream 0", "device 0, stream 7", "device 0, (stream not recorded)", "device 1, stream 7",
    }  # fmt: skip
    assert names("operator") == {"aten::copy_", "(no operator)"} | lost
    assert names("module") == {"Net_0", "(no module)"} | lost
    assert names("frame") == {"train.py:42 step"} | lost
    assert names("phase") == {"ProfilerStep/load"} | lost
    assert names("step") == {"1"}  # those without a launch by their time on the device
    assert names("direction") == names("kind") == {""}


def test_a_recording_without_frames_says_so(capture):
    assert set(groups.table(capture, everything(capture), "frame")["group"]) == {
        "(no python frames recorded)", "(no launch record)", "(launched before the window)",
    }  # fmt: skip


def test_figures_of_a_group_by_hand(odd):
    table = groups.table(odd, everything(odd), "kind").set_index(["direction", "src_kind", "dst_kind"])
    pinned = table.loc[("HtoD", "Pinned", "Device")]
    # 2 MiB in 1.9 us; 1,001 and 1,002 B in 0.5 us each; 1e12 B in 1.9 us; none in 0.5 us; twice 100,000 B in 1 us
    size = (2 << 20) + 1_001 + 1_002 + 10**12 + 200_000
    assert (pinned["count"], pinned["bytes"], pinned["without_bytes"], pinned["oversize"]) == (7, size, 1, 1)
    assert (pinned["time_ns"], pinned["mean_ns"], pinned["median_ns"], pinned["p95_ns"]) == (7_300, 1_043, 1_000, 1_900)
    assert pinned["bandwidth_bytes_per_s"] == pytest.approx(size / 6_800e-9)
    assert (pinned["large_count"], pinned["large_bytes"]) == (2, (2 << 20) + 10**12)
    assert table.loc[("DtoH", "Device", "Pageable")].isna()["bytes"]


@pytest.mark.parametrize("by", BY)
@settings(max_examples=10)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 2), st.integers(0, 2), st.integers(-1, 9), st.integers(0, 30)), max_size=12))
def test_parts_add_up_over_every_grouping(by, events):
    # GIVEN copies anywhere: device, step (-1 outside), stream, bytes (-1 none), time
    device, step, stream, size, time = (list(x) for x in zip(*events, strict=True)) if events else ([], [], [], [], [])
    capture = Capture(Facts("test", "x", 0), {
        "device": S.DEVICE.frame({
            "kind": [S.MEMCPY] * len(device), "direction": [("HtoD", "DtoH")[d % 2] for d in device], "device": device, "step": step,
            "stream": stream, "bytes": size, "duration_ns": time, "start_ns": list(range(len(device))), "call": [-1] * len(device),
            "operator": [-1] * len(device), "module": [-1] * len(device),
        }),
        "steps": S.STEPS.frame({"number": [1, 2, 3], "start_ns": [0, 10, 20], "end_ns": [10, 20, 30]}),
    })  # fmt: skip
    table = groups.table(capture, everything(capture), by)
    assert table["count"].sum() == len(device) and table["time_ns"].sum() == sum(time)
    assert table["bytes"].fillna(0).sum() == sum(max(s, 0) for s in size)
    assert table["without_bytes"].sum() == sum(s < 0 for s in size)
    assert (table["hidden_ns"] + table["exposed_ns"] == table["union_ns"]).all()
    assert (table["bytes"].isna() == (table["without_bytes"] == table["count"])).all()


def test_no_copy_gives_an_empty_table():
    capture = Capture(Facts("test", "x", 0), {"device": S.DEVICE.frame({"kind": [S.KERNEL], "start_ns": [0], "duration_ns": [1]})})
    assert len(groups.table(capture, everything(capture), "direction")) == 0
