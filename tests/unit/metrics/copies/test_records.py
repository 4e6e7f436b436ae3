"""Every sort of copy through the real reader: each lands in its cell, with its launch and its owners; nothing is lost or guessed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.copies import records
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tests.support.odd_copies import APART, COPIES, FIRST, recording
from tests.support.trace_builder import TraceBuilder


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    return read(str(recording().write(tmp_path_factory.mktemp("odd") / "worker0.1.pt.trace.json")))


@pytest.fixture(scope="module")
def found(capture: Capture) -> pd.DataFrame:
    return records.copies(capture, np.ones(len(capture.device), bool))


def number(part: str) -> int:
    """The one copy whose name, call or arguments hold a text."""
    (only,) = [i for i, c in enumerate(COPIES) if part in f"{c.name} {c.call} {c.args}"]
    return only


def test_every_copy_has_its_direction_kinds_size_and_time(found: pd.DataFrame) -> None:
    # GIVEN one copy of every sort THEN all are there, in order, with direction, kinds, size and time
    got = found[["direction", "src_kind", "dst_kind", "bytes", "duration_ns"]].itertuples(index=False)
    assert [tuple(row) for row in got] == [(c.direction, c.src, c.dst, c.bytes, c.duration) for c in COPIES]
    assert np.diff(found["start_ns"]).tolist() == [APART] * (len(COPIES) - 1)


def test_array_ends_are_folded_and_flagged(found: pd.DataFrame) -> None:
    assert found.index[found["array"]].tolist() == [number("HtoA"), number("AtoA (")]


def test_copies_have_the_devices_of_both_ends(found: pd.DataFrame) -> None:
    # GIVEN copies on device 0, one peer copy from 1 to 0 that ran on 1, and one between peers that are not named
    ends = list(zip(found["src_device"], found["dst_device"], found["device"], strict=True))
    assert ends[0] == (-1, 0, 0)  # host to device
    assert ends[number("Device -> Pageable")] == (0, -1, 0)
    assert ends[4] == (0, 0, 0)  # inside the device
    assert ends[number("HtoH")] == (-1, -1, 0)
    assert ends[number("fromDevice")] == (1, 0, 1)
    assert ends[number("P2P")] == (-1, -1, 0)
    assert found["context"][number("fromDevice")] == 3 and found["context"][0] == 1


def test_copies_are_joined_to_their_call(capture: Capture, found: pd.DataFrame) -> None:
    # GIVEN the calls THEN each copy has its own, as recorded and without version and stream suffixes
    assert found["call_name"].tolist() == [c.call for c in COPIES]
    told = dict(zip(found["call_name"], zip(found["api"], found["family"], found["is_async"], strict=True), strict=True))
    assert told[""] == ("", "", -1)
    assert told["cudaMemcpyAsync"] == ("cudaMemcpyAsync", "runtime", 1)
    assert told["cudaMemcpy_ptds"] == ("cudaMemcpy", "runtime", 0)
    assert told["cuMemsetD32Async_ptsz"] == ("cuMemsetD32Async", "driver", 1)
    assert told["cuMemcpyAtoA_v2"] == ("cuMemcpyAtoA", "driver", 0)
    assert told["hipMemcpyWithStream"] == ("hipMemcpyWithStream", "hip", 0)  # ordered by a stream, and waits
    assert told["urEnqueueUSMMemcpy"] == ("urEnqueueUSMMemcpy", "", 1)
    assert told["cudaGraphLaunch"] == ("cudaGraphLaunch", "runtime", 1)
    has = found["call"] >= 0
    start = [FIRST + APART * i for i in range(len(COPIES))]
    low = found["start_ns"][0] - start[0] - 50  # what the reader took off every time
    assert (found["call_start_ns"][has] - low).tolist() == [s for s, c in zip(start, COPIES, strict=True) if c.call]
    assert found["call_ns"].tolist() == [(1_000 if c.call == "hipMemcpyWithStream" else 100) if c.call else -1 for c in COPIES]
    assert found["call_start_ns"][~has].tolist() == [-1, -1]
    assert capture.host["kind"].to_numpy()[found["call"][has]].tolist() == [S.CALL] * int(has.sum())


def test_copies_of_a_graph_belong_to_its_launch(found: pd.DataFrame) -> None:
    one = found.iloc[number("cudaGraphLaunch")]
    assert (one["graph"], one["graph_node"], one["call_name"]) == (True, 9, "cudaGraphLaunch")
    assert found["graph"].sum() == 1 and (found["graph_node"] >= 0).sum() == 1


def test_a_copy_without_a_launch_has_the_reason(found: pd.DataFrame) -> None:
    links = [S.LINKS[i] for i in found["link"]]
    assert links[number("999999")] == "no launch record"
    assert links[number("'correlation': 1}")] == "launched before the window"
    assert links.count("correlation") == len(COPIES) - 2


def test_copies_have_operator_module_phase_and_frame(capture: Capture, found: pd.DataFrame) -> None:
    # GIVEN even copies inside an operator of Net_0, odd ones in the step alone, all inside train.py line 42
    names = [str(n) for n in capture.host["name"]]
    even = np.array([i % 2 == 0 and bool(c.call) for i, c in enumerate(COPIES)])
    assert [names[r] if r >= 0 else "" for r in found["operator"]] == ["aten::copy_" if e else "" for e in even]
    assert [names[r] if r >= 0 else "" for r in found["module"]] == ["nn.Module: Net_0" if e else "" for e in even]
    # the innermost frame is a built-in method without a file: the line is that of the frame around it
    lines = records.frame_text(capture, found["frame"])
    assert lines.tolist() == ["train.py:42 step" if c.call else "" for c in COPIES]
    assert (found["phase_node"] >= 0).tolist() == [bool(c.call) for c in COPIES]
    assert found["step"].tolist() == [0] * len(COPIES)  # those without a launch by time


def test_kernels_of_the_same_device_hide_a_copy(found: pd.DataFrame) -> None:
    # GIVEN a kernel over [5000, 5400), the first copy over [5050, 6050) THEN 350 ns of it are hidden
    assert (found["hidden_ns"] + found["exposed_ns"] == found["duration_ns"]).all()
    first = found.iloc[0]
    assert (first["hidden_ns"], first["exposed_ns"], first["idle_exposed_ns"]) == (350, 650, 650)
    assert found["hidden_ns"].sum() == 350


def test_odd_values_are_counted_and_marked(capture: Capture, found: pd.DataFrame) -> None:
    # THEN sizes beyond the memory of the device are kept and marked, also not those within the host
    assert found.index[found["oversize"]].tolist() == [21] and found["bytes"][21] == 10**12
    issues = dict(zip(capture.tables["issues"]["reason"].astype(str), capture.tables["issues"]["count"], strict=True))
    told = {k: issues.get(k) for k in (
        "unknown copy direction", "copy without bytes", "copy with an impossible size", "copy larger than its device's memory",
        "copy without a stream", "recorded bandwidth disagrees with bytes over time", "copy whose name and kind disagree",
        "launched before the window",
    )}  # fmt: skip
    assert told == {
        "unknown copy direction": 1, "copy without bytes": 2, "copy with an impossible size": 1, "copy larger than its device's memory": 1,
        "copy without a stream": 1, "recorded bandwidth disagrees with bytes over time": 1, "copy whose name and kind disagree": 1,
        "launched before the window": 1,
    }  # fmt: skip
    assert all(capture.tables["issues"]["effect"].astype(str) != "")
    assert found["stream"].tolist().count(-1) == 1 and found["stream"].tolist().count(0) == 1


def test_sizes_beyond_any_memory_are_unknown(tmp_path: Path) -> None:
    # GIVEN sizes of 64 TiB, a byte more, and far more than 64 bits hold; sums of such would run over
    t = TraceBuilder()
    for i, size in enumerate((2**46, 2**46 + 1, 2**62 + 5, 2**70, 10**40)):
        t.copy("HtoD", 100 * i, 50, bytes=size, src="Pinned")
    c = read(str(t.write(tmp_path / "w.1.pt.trace.json")))
    found = records.copies(c, np.ones(5, bool))
    assert found["bytes"].tolist()[:3] == [2**46, -1, -1] and found["bytes"].max() == 2**46
    assert found["oversize"].tolist()[0] and c.tables["issues"]["reason"].astype(str).isin(["copy with an impossible size"]).any()


def test_fills_filed_under_copies_are_sets(capture: Capture) -> None:
    names = capture.device["name"].astype(str)
    assert capture.device["kind"][names == "FillBuffer"].tolist() == [S.MEMSET]


def test_a_clock_of_microseconds_contradicts_nothing_short(tmp_path: Path) -> None:
    # GIVEN whole microseconds: 30,000 B recorded at 20 GB/s took 1.5 us and show as 1 or 2; 3 MB at 20 GB/s show as 150, not 100
    t = TraceBuilder(origin_ns=0, base_ns=None)
    for at, time, size, said in ((0, 1, 30_000, 20.0), (10, 2, 30_000, 20.0), (100, 150, 3_000_000, 20.0), (400, 100, 3_000_000, 20.0)):
        args = {"device": 0, "stream": 7, "bytes": size, "memory bandwidth (GB/s)": said}
        name = "Memcpy HtoD (Pinned -> Device)"
        t.add({"ph": "X", "cat": "gpu_memcpy", "name": name, "pid": 0, "tid": 7, "ts": at, "dur": time, "args": args})  # type: ignore[dict-item]
    issues = read(str(t.write(tmp_path / "w.1.pt.trace.json"))).tables["issues"]
    told = dict(zip(issues["reason"].astype(str), issues["count"], strict=True))
    assert told["recorded bandwidth disagrees with bytes over time"] == 1


def test_a_selection_keeps_its_rows_and_the_records_stay_whole(capture: Capture, found: pd.DataFrame) -> None:
    rows = np.zeros(len(capture.device), bool)
    rows[found["row"].to_numpy()[3:5]] = True
    part = records.copies(capture, rows)
    pd.testing.assert_frame_equal(part, found.iloc[3:5].reset_index(drop=True))
    with pytest.raises(TypeError, match="not changed"):
        part["bytes"] = 0
    assert records.copies(capture, np.ones(len(capture.device), bool))["bytes"].tolist() == found["bytes"].tolist()


@pytest.mark.parametrize("host", [False, True])
def test_a_recording_without_host_or_without_copies(host: bool) -> None:
    tables = {"device": S.DEVICE.frame({"kind": [S.MEMCPY], "direction": ["HtoD"], "duration_ns": [5], "call": [-1]})}
    if host:
        tables = {"host": S.HOST.frame({"name": ["a"], "duration_ns": [1]})}
    empty = Capture(Facts("test", "x", 0), tables)
    got = records.copies(empty, np.ones(len(empty.device), bool))
    assert len(got) == (0 if host else 1)
    assert got["api"].tolist() == ([] if host else [""]) and got["is_async"].tolist() == ([] if host else [-1])


@pytest.mark.parametrize(
    ("call", "api", "family", "waits"),
    [
        ("cudaMemcpyAsync_ptsz", "cudaMemcpyAsync", "runtime", False), ("cudaMemcpy2DToArray", "cudaMemcpy2DToArray", "runtime", True),
        ("cudaMemcpyBatchAsync_v12080_ptsz", "cudaMemcpyBatchAsync", "runtime", False), ("cuMemcpy3DPeer_ptds", "cuMemcpy3DPeer", "driver", True),
        ("cudaMemPrefetchAsync_v2", "cudaMemPrefetchAsync", "runtime", False), ("cudaMemAdvise_v2", "cudaMemAdvise", "runtime", False),
        ("hipMemcpyDtoHAsync", "hipMemcpyDtoHAsync", "hip", False), ("cuMemsetD2D8Async", "cuMemsetD2D8Async", "driver", False),
        ("cudaLaunchKernel", "cudaLaunchKernel", "runtime", False), ("custom", "custom", "", False), ("", "", "", False),
    ],
)  # fmt: skip
def test_versions_and_suffixes_are_removed_from_names_of_calls(call: str, api: str, family: str, waits: bool) -> None:
    assert (records.api_name(call), records.family_of(call), records.waits_by_name(call)) == (api, family, waits)


def test_python_frames_are_written_as_file_and_line() -> None:
    assert records.frame_name("a/b c(7): f") == "a/b c:7 f"
    assert records.frame_name("<built-in method to of Tensor object at 0x7f>") == "<built-in method to of Tensor object at 0x7f>"
    assert re.search(r":\d+ ", records.frame_name("torch/nn/modules/module.py(1501): _call_impl"))
