"""Which copies block the host, for how long, and for how much of it the device is idle."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.metrics.copies.blocking import REASONS
from tb_sol_plugin.tables import intervals as iv
from tests.support.copy_findings import US, found, steps, with_blocking
from tests.support.trace_builder import TraceBuilder

# direction, source, destination, bytes, api, call start us, call us; the copy runs in [100, 102) us
NOT_BLOCKING = [
    ("HtoD", "Pinned", "Device", 1024, "cudaMemcpyAsync", 90, 5),  # returns before the copy runs
    ("DtoH", "Device", "Pinned", 1024, "cudaMemcpyAsync", 40, 52),  # outlasts the copy by 50 us: not more
    ("DtoH", "Device", "Pinned", 1024, "cudaMemcpyAsync", 99, 2.999),  # ends 1 ns before the copy does
    ("DtoD", "Device", "Device", 1024, "cudaMemcpy", 40, 200),  # inside of the device the host never waits
    ("DtoD", "Device", "Device", 1024, "cudaMemcpyAsync", 40, 200),
    ("DtoD", "Device", "Device", 1024, "hipMemcpyWithStream", 40, 200),
    ("PtoP", "Device", "Device", 1024, "cudaMemcpyPeer", 40, 200),
    ("HtoD", "Pageable", "Device", 1024, "cudaGraphLaunch", 40, 200),  # no copy call
    ("HtoD", "Pinned", "Device", 1024, "cuMemcpyHtoDAsync_v2", 90, 5),
    ("HtoD", "Host", "Device", 1024, "hipMemcpyAsync", 90, 5),  # AMD's tracer does not tell pageable memory
    ("Odd", "", "", 1024, "cudaMemcpy", 90, 5),  # ends not known, and its times show no wait
]
BLOCKING = [
    ("pageable", ("HtoD", "Pageable", "Device", 1024, "cudaMemcpyAsync", 90, 5)),
    ("pageable", ("DtoH", "Device", "Pageable", 1024, "cudaMemcpyAsync", 90, 5)),
    ("pageable", ("HtoH", "Pageable", "Pinned", 1024, "cudaMemcpyAsync", 90, 5)),
    ("sync_api", ("HtoD", "Pinned", "Device", 1024, "cudaMemcpy", 90, 5)),
    ("sync_api", ("HtoD", "Pageable", "Device", 1024, "cudaMemcpy", 90, 5)),
    ("sync_api", ("DtoH", "Device", "Pinned", 1024, "cuMemcpyDtoH_v2_ptds", 90, 5)),
    ("sync_api", ("DtoH", "Device", "Host", 1024, "hipMemcpyWithStream", 90, 5)),
    ("sync_api", ("HtoH", "Pinned", "Pinned", 1024, "cudaMemcpyAsync", 90, 5)),
    ("sync_api", ("DtoD", "Managed", "Device", 1024, "cudaMemcpyAsync", 90, 5)),
    ("waits", ("DtoH", "Device", "Pinned", 1024, "cudaMemcpyAsync", 40, 52.001)),  # outlasts the copy by 50.001 us
    ("waits", ("DtoH", "Device", "Pinned", 1024, "cudaMemcpyAsync", 99, 3)),  # ends with the copy
    ("waits", ("Odd", "", "", 1024, "cudaMemcpy", 99, 4)),
]


def one(direction: str, src: str, dst: str, size: int, api: str, at: float, length: float, *, under: str = "") -> TraceBuilder:
    t = steps(1)
    if under:
        t.op(under, 10 * US, 500 * US)
    t.op("aten::copy_", 11 * US, 400 * US)
    t.copy(direction, 100 * US, 2 * US, bytes=size, src=src, dst=dst, call=(int(at * US), round(length * US)), api=api)
    return t


@pytest.mark.parametrize("row", NOT_BLOCKING)
def test_copies_that_do_not_block_the_host(row: tuple, tmp_path: Path) -> None:  # type: ignore[type-arg]
    got = with_blocking(one(*row), tmp_path)
    assert got["reason"].tolist() == [""] and got[["host_ns", "lost_ns", "idle_ns", "from_ns", "until_ns"]].to_numpy().sum() == 0


@pytest.mark.parametrize(("reason", "row"), BLOCKING)
def test_copies_that_block_the_host(reason: str, row: tuple, tmp_path: Path) -> None:  # type: ignore[type-arg]
    got = with_blocking(one(*row), tmp_path)
    length = round(row[6] * US)
    assert got["reason"].tolist() == [reason] and reason in REASONS
    assert got["host_ns"].tolist() == got["lost_ns"].tolist() == [length]


@pytest.mark.parametrize(
    ("size", "operator", "reason"),
    [
        (64, "aten::item", "tiny_read"),
        (65, "aten::item", "pageable"),
        (8, "aten::_local_scalar_dense", "tiny_read"),
        (8, "aten::nonzero", "tiny_read"),
        (1, "aten::is_nonzero", "tiny_read"),
        (8, "aten::masked_select", "tiny_read"),
        (8, "aten::_unique2", "tiny_read"),
        (1, "aten::equal", "tiny_read"),
        (8, "aten::to", "pageable"),
        (8, "aten::item_of_another", "pageable"),
    ],
)
def test_a_copy_of_at_most_64_bytes_in_a_reading_operator_is_a_tiny_read(size: int, operator: str, reason: str, tmp_path: Path) -> None:
    got = with_blocking(one("DtoH", "Device", "Pageable", size, "cudaMemcpyAsync", 90, 20, under=operator), tmp_path)
    assert got["reason"].tolist() == [reason]


def test_amds_tracer_has_the_reading_of_a_value_inside_of_the_device(tmp_path: Path) -> None:
    row = ("DtoD", "Device", "Device", 1, "hipMemcpyWithStream", 90, 20)
    assert with_blocking(one(*row, under="aten::_local_scalar_dense"), tmp_path)["reason"].tolist() == ["tiny_read"]
    assert with_blocking(one(*row, under="aten::nonzero"), tmp_path)["reason"].tolist() == [""]  # may be a copy of its own


@pytest.mark.parametrize(
    ("api", "kind", "reason"),
    [("cudaMemset", "Managed", "managed_set"), ("cudaMemset", "Pinned", "managed_set"), ("cudaMemset", "Device", ""),
     ("cudaMemsetAsync", "Managed", "")],
)  # fmt: skip
def test_synchronous_sets_of_host_or_unified_memory_block_the_host(api: str, kind: str, reason: str, tmp_path: Path) -> None:
    t = steps(1)
    number = t.call(api, 40 * US, 200 * US, flow=True)
    t.memset(100 * US, 2 * US, bytes=1024, correlation=number, kind=kind)
    assert with_blocking(t, tmp_path)["reason"].tolist() == [reason]


def waited(*, between: str = "", sync_at: int = 96, sync_for: int = 10, stream: int = 7) -> TraceBuilder:
    """A pinned copy [100, 102) us by a call [90, 95), then a wait for its stream; `between` is launched between the two."""
    t = steps(1)
    t.copy("DtoH", 100 * US, 2 * US, bytes=4 * 1024, dst="Pinned", call=(90 * US, 5 * US))
    if between:
        t.launch(between, at=95_200, start=103 * US, duration=US, call_duration=300)
    number = t.call("cudaStreamSynchronize", sync_at * US, sync_for * US)
    t.sync("Stream Synchronize", sync_at * US, sync_for * US, stream=stream, correlation=number)
    return t


def test_a_wait_right_after_a_copy_that_holds_its_end_counts_for_it(tmp_path: Path) -> None:
    got = with_blocking(waited(), tmp_path)
    # 5 us of the call and 10 us of the wait
    assert got[["reason", "host_ns", "lost_ns"]].to_numpy().tolist() == [["waits", 15 * US, 15 * US]]
    assert (got["from_ns"][0], got["until_ns"][0]) == (90 * US, 106 * US) and got["wait"][0] >= 0


@pytest.mark.parametrize(
    "other",
    [{"between": "kernel"}, {"sync_at": 103}, {"sync_for": 5}, {"stream": 8}],
    ids=["a kernel is launched between", "it begins after the copy has ended", "it returns before", "it waits for another stream"],
)
def test_waits_that_are_not_for_the_copy_do_not_count(other: dict, tmp_path: Path) -> None:  # type: ignore[type-arg]
    assert with_blocking(waited(**other), tmp_path)["reason"].tolist() == [""]


def test_time_of_the_host_between_the_call_and_its_wait_is_not_blocked(tmp_path: Path) -> None:
    # GIVEN a copy [100, 102) us by a call [20, 25), the wait for it at [60, 106), and no other work of the device until 300 us
    t = steps(1)
    t.copy("DtoH", 100 * US, 2 * US, bytes=4096, dst="Pinned", call=(20 * US, 5 * US))
    t.call("cudaStreamSynchronize", 60 * US, 46 * US)
    t.launch("b", at=250 * US, start=300 * US, duration=100 * US)
    got = with_blocking(t, tmp_path)
    assert got["host_ns"].tolist() == [51 * US]
    # THEN idle: 5 us of the call, 40 us of the wait before the copy and 4 after it, and of the time after that 2: no longer than it held
    assert got["idle_ns"].tolist() == [51 * US] and got["idle_until_ns"].tolist() == [108 * US]
    # AND a finding takes the same time
    assert iv.length(found(t, tmp_path)["small_to_host"].spans) == 51 * US


def test_one_wait_counts_for_one_copy(tmp_path: Path) -> None:
    # GIVEN two pinned copies and one wait for both
    t = steps(1)
    t.copy("DtoH", 100 * US, 2 * US, bytes=4096, dst="Pinned", call=(80 * US, 5 * US))
    t.copy("DtoH", 102 * US, 2 * US, bytes=4096, dst="Pinned", call=(90 * US, 5 * US))
    t.call("cudaDeviceSynchronize", 96 * US, 10 * US)
    got = with_blocking(t, tmp_path)
    assert got["reason"].tolist() == ["", "waits"] and got["lost_ns"].tolist() == [0, 15 * US]


def test_the_host_may_lose_time_on_two_threads_but_each_moment_of_one_once(tmp_path: Path) -> None:
    # GIVEN on one thread a driver call [92, 98) inside of a runtime call [90, 100), both of which copied; on another a call [90, 100)
    t = steps(1)
    for start, api, call, thread in (
        (200, "cudaMemcpy", (90, 10), 1),
        (203, "cuMemcpyHtoD_v2", (92, 6), 1),
        (206, "cudaMemcpy", (90, 10), 2),
    ):
        t.copy("HtoD", start * US, US, bytes=64, src="Pinned", call=(call[0] * US, call[1] * US), thread=thread, api=api, stream=thread)
    got = with_blocking(t, tmp_path)
    assert got["host_ns"].tolist() == [10 * US, 6 * US, 10 * US] and got["lost_ns"].tolist() == [10 * US, 0, 10 * US]


def drained(*, call: tuple[int, int], following: tuple[int, int], first: int = 300) -> TraceBuilder:
    """A kernel [10, first) us, a read [first + 2, first + 4) by `call`, the next kernel launched and started at `following` us."""
    t = steps(1)
    t.launch("a", at=0, start=10 * US, duration=(first - 10) * US)
    t.copy("DtoH", (first + 2) * US, 2 * US, bytes=4096, dst="Pageable", call=(call[0] * US, call[1] * US))
    t.launch("b", at=following[0] * US, start=following[1] * US, duration=(1000 - following[1]) * US)
    return t


@pytest.mark.parametrize(
    ("trace", "idle"),
    [
        # held [100, 305): idle [304, 305), and [305, 360) until the next launch, at 350, has arrived; the 2 us before are a hand-over
        ({"call": (100, 205), "following": (350, 360)}, 56),
        # held only for 20 us [285, 305): 1 us meanwhile, and no more than 19 of the 55 us after it
        ({"call": (285, 20), "following": (350, 360)}, 20),
        # the next kernel was launched by another thread before the host went on: the gap after 305 has another cause
        ({"call": (100, 205), "following": (304, 360)}, 1),
        # there is work right after the copy: nothing is lost
        ({"call": (100, 205), "following": (20, 304)}, 0),
    ],
)
def test_the_device_idles_while_the_host_is_blocked(trace: dict, idle: int, tmp_path: Path) -> None:  # type: ignore[type-arg]
    assert with_blocking(drained(**trace), tmp_path)["idle_ns"].tolist() == [idle * US]


def test_without_host_events_no_copy_blocks(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.copy("DtoH", 0, 5, bytes=4, dst="Pageable")
    got = with_blocking(t, tmp_path)
    assert got["reason"].tolist() == [""] and got["wait"].tolist() == [-1]


COPIES = st.lists(
    st.tuples(
        st.sampled_from([("HtoD", "Pageable", "Device"), ("DtoH", "Device", "Pageable"), ("DtoH", "Device", "Pinned"), ("DtoD", "Device", "Device")]),
        st.integers(0, 900), st.integers(0, 60), st.integers(0, 900), st.integers(0, 150), st.integers(1, 2),
        st.sampled_from(["cudaMemcpyAsync", "cudaMemcpy"]), st.booleans(),
    ),
    max_size=10,
)  # fmt: skip


@settings(max_examples=30)
@given(COPIES, st.lists(st.tuples(st.integers(0, 900), st.integers(1, 80)), max_size=6))
def test_each_blocked_moment_counts_once(copies: list[tuple], kernels: list[tuple[int, int]]) -> None:  # type: ignore[type-arg]
    # GIVEN any copies of two threads, each with a stream of its own, and any kernels
    t = TraceBuilder()
    t.step(1, 0, 1_000)
    for (direction, src, dst), start, length, call, call_length, thread, api, sync in copies:
        t.copy(direction, start, length, bytes=128, src=src, dst=dst, call=(call, call_length), thread=thread, stream=thread, api=api)
        if sync:
            t.call("cudaStreamSynchronize", call + call_length + 5, 40, thread=thread)
    for start, length in kernels:
        t.kernel("k", start, length)
    with tempfile.TemporaryDirectory() as folder:
        got = with_blocking(t, Path(folder))
    mine = got[got["reason"] != ""]
    # THEN the time lost is, thread by thread, every nanosecond in which a call or a counted wait of that thread runs
    lost = 0
    for thread in (1, 2):
        clock = np.zeros(2_000, bool)
        for i in mine.index:
            if mine["stream"][i] == thread:
                clock[mine["call_start_ns"][i] : mine["call_start_ns"][i] + mine["call_ns"][i]] = True
                if mine["wait"][i] >= 0:
                    clock[mine["until_ns"][i] - 40 : mine["until_ns"][i]] = True
        lost += int(clock.sum())
    assert mine["lost_ns"].sum() == lost and (mine["lost_ns"] <= mine["host_ns"]).all()
    # AND the device is never idle for longer than the host was held, nor while anything runs
    busy = np.zeros(2_000, bool)
    for start, length in zip([*got["start_ns"], *(k[0] for k in kernels)], [*got["duration_ns"], *(k[1] for k in kernels)], strict=True):
        busy[start : start + length] = True
    reach = np.zeros(2_000, bool)
    for first, last in zip(mine["from_ns"], mine["idle_until_ns"], strict=True):
        reach[first:last] = True
    assert mine["idle_ns"].sum() <= (reach & ~busy).sum()
    assert (mine["idle_ns"] <= mine["until_ns"] - mine["from_ns"]).all()
