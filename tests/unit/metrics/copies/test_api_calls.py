"""Calls that copy or set memory, with what they led to on the device."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.copies import blocking, records
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tests.support.odd_copies import COPIES, recording
from tests.support.trace_builder import TraceBuilder

PLAIN = {"cudaMemcpy_ptds": "cudaMemcpy", "cuMemcpyAtoA_v2": "cuMemcpyAtoA", "cuMemsetD32Async_ptsz": "cuMemsetD32Async"}


def everything(capture: Capture) -> np.ndarray:
    return np.ones(len(capture.host), bool)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    return read(str(recording().write(tmp_path_factory.mktemp("odd") / "worker0.1.pt.trace.json")))


@pytest.fixture(scope="module")
def calls(odd: Capture) -> pd.DataFrame:
    return pd.DataFrame(blocking.calls(odd, everything(odd))).set_index("api")


def test_every_function_with_its_calls_copies_bytes_and_times(calls: pd.DataFrame) -> None:
    # GIVEN a copy of every sort, one per call THEN each function has the sums of its copies
    wanted = Counter(PLAIN.get(c.call, c.call) for c in COPIES if c.call)
    assert calls["calls"].to_dict() == calls["copies"].to_dict() == wanted
    for api, row in calls.iterrows():
        mine = [c for c in COPIES if PLAIN.get(c.call, c.call) == api]
        sized = [c.bytes for c in mine if c.bytes >= 0]
        assert (row["device_ns"], row["without_bytes"]) == (sum(c.duration for c in mine), sum(c.bytes < 0 for c in mine))
        assert row["bytes"] == sum(sized) if sized else np.isnan(row["bytes"])
    assert calls["host_ns"].sum() == 100 * (len(calls.index.repeat(calls["calls"])) - 1) + 1_000
    assert calls["without_device"].sum() == 0


def test_calls_have_their_family_and_kind(calls: pd.DataFrame) -> None:
    told = {api: (row["family"], row["what"], row["is_async"]) for api, row in calls.iterrows()}
    assert told == {
        "cudaMemcpyAsync": ("runtime", "copy", 1), "cudaMemcpy": ("runtime", "copy", 0), "cudaMemcpyPeerAsync": ("runtime", "copy", 1),
        "cudaMemcpy2DToArrayAsync": ("runtime", "copy", 1), "cuMemcpyAtoA": ("driver", "copy", 0), "cudaMemset": ("runtime", "set", 0),
        "cuMemsetD32Async": ("driver", "set", 1), "hipMemcpyWithStream": ("hip", "copy", 0), "hipMemcpyAsync": ("hip", "copy", 1),
        "hipMemsetAsync": ("hip", "set", 1), "urEnqueueUSMMemcpy": ("", "other", -1), "cudaGraphLaunch": ("runtime", "other", -1),
    }  # fmt: skip


def test_managed_ends_and_calls_that_waited(calls: pd.DataFrame) -> None:
    assert calls["managed"].to_dict() == {**dict.fromkeys(calls.index, 0), "cudaMemcpyAsync": 1, "cudaMemset": 1}
    # a copy of no length is over before its call returns; hipMemcpyWithStream blocks the host for 1 us and its copy for half of it
    assert {api: n for api, n in calls["waited"].items() if n} == {"cudaMemcpyAsync": 1, "hipMemcpyWithStream": 1}


def test_what_is_joined_adds_up_to_the_copies_with_a_launch(odd: Capture, calls: pd.DataFrame) -> None:
    found = records.copies(odd, np.ones(len(odd.device), bool))
    linked = found[found["call"] >= 0]
    assert (calls["copies"].sum(), calls["device_ns"].sum()) == (len(linked), linked["duration_ns"].sum())


def test_versions_are_one_function_and_calls_without_device_work_are_counted(tmp_path: Path) -> None:
    # GIVEN prefetch and advice, a copy of no bytes that did nothing, two spellings of one function, a runtime call around a driver call
    t = TraceBuilder()
    t.call("cudaMemPrefetchAsync", 0, 10)
    t.call("cudaMemPrefetchAsync_v2", 100, 20)
    t.call("cudaMemAdvise", 200, 5)
    t.call("cudaMemcpyAsync", 300, 50)
    outer = t.call("cudaMemcpy", 1_000, 500)
    t.call("cuMemcpyHtoD_v2", 1_100, 300, category="cuda_driver")
    t.copy("HtoD", 1_150, 200, bytes=4_000, src="Pageable", correlation=outer)
    t.call("cudaLaunchKernel", 2_000, 10)
    t.op("cudaMemcpyAsync", 3_000, 10)  # an operator of that name is no call
    found = read(str(t.write(tmp_path / "w.1.pt.trace.json")))
    got = pd.DataFrame(blocking.calls(found, everything(found))).set_index("api")
    assert got.index.tolist() == ["cudaMemcpy", "cuMemcpyHtoD", "cudaMemcpyAsync", "cudaMemPrefetchAsync", "cudaMemAdvise"]
    assert got["calls"].tolist() == [1, 1, 1, 2, 1] and got["host_ns"].tolist() == [500, 300, 50, 30, 5]
    assert got["what"].tolist() == ["copy", "copy", "copy", "prefetch", "advise"]
    # the copy carries the number of the runtime call, so it is that one's
    assert got["copies"].tolist() == [1, 0, 0, 0, 0] and got["without_device"].tolist() == [0, 1, 1, 2, 1]
    assert got["waited"].tolist() == [1, 0, 0, 0, 0] and got["is_async"].tolist() == [0, 0, 1, 1, 1]
    assert np.isnan(got["bytes"].tolist()[1:]).all() and got["bytes"].iloc[0] == 4_000


def test_a_selection_counts_its_own_calls(odd: Capture) -> None:
    start = odd.host["start_ns"].to_numpy()
    middle = int(np.median(start))
    early, late = (blocking.calls(odd, mask) for mask in (start < middle, start >= middle))
    whole = blocking.calls(odd, everything(odd))
    for column in ("calls", "copies", "host_ns", "device_ns"):
        assert early[column].sum() + late[column].sum() == whole[column].sum()
    assert 0 < early["calls"].sum() < whole["calls"].sum()


def test_without_host_events_there_are_no_calls() -> None:
    capture = Capture(Facts("test", "x", 0), {"device": S.DEVICE.frame({"kind": [S.MEMCPY], "direction": ["HtoD"], "call": [-1]})})
    assert len(blocking.calls(capture, everything(capture))["api"]) == 0
