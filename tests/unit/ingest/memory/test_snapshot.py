"""Allocator snapshots as tables: blocks, history, call stacks, older versions, damage."""

from __future__ import annotations

import copy
import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.errors import BadInput, NotATrace
from tb_sol_plugin.ingest import classify
from tb_sol_plugin.metrics.memory.curves import curves
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.scan import Heads, scan
from tests.support.check_capture import check_capture
from tests.support.memory_snapshot import MIB, T0, entry, snapshot, write


def read(folder: Path, value: object, protocol: int = 4) -> Capture:
    return ingest.read(str(write(folder / "memory.pickle", value, protocol)))


def issues(capture: Capture) -> dict[str, int]:
    table = capture.tables["issues"]
    return dict(zip(table["reason"].astype(str), table["count"].tolist(), strict=True))


def test_every_invariant_holds_for_a_snapshot(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    check_capture(write(tmp_path / "memory.pickle", snapshot()), tmp_path / "cache")


@pytest.mark.parametrize("protocol", range(6))
def test_blocks_and_history_stand_in_their_tables(tmp_path: Path, protocol: int) -> None:
    # GIVEN the snapshot of two devices, in each protocol WHEN read
    c = read(tmp_path, snapshot(), protocol)
    # THEN blocks have their sizes, what was asked for, and where they lie
    b = c.tables["memory_blocks"]
    assert b["device"].tolist() == [0, 0, 0, 0, 0, 1] and b["bytes"].sum() == 20 * MIB + 2 * MIB + 20 * MIB
    assert b["segment_bytes"].tolist() == [20 * MIB] * 2 + [2 * MIB] * 3 + [20 * MIB]
    assert b["requested"].tolist()[:4] == [3 * MIB - 100, 0, 500, 1000]
    assert b["state"].tolist()[2:4] == ["active_allocated", "active_awaiting_free"] and b["pool"].tolist()[-2:] == ["0,0", "0,1"]
    assert b["address"].tolist()[:2] == [0x7F0000000000, 0x7F0000000000 + 3 * MIB]
    # AND the history its entries in order, times from the first on, and the failed allocation what was free
    e = c.tables["memory_events"]
    assert e["action"].tolist()[:3] == ["segment_alloc", "alloc", "segment_alloc"] and len(e) == 8
    assert e["time_ns"].tolist() == [0, 10_000, 20_000, 25_000, 30_000, 40_000, 50_000, 15_000] and c.facts.origin_ns == T0 * 1000
    oom = e[e["action"] == "oom"]
    assert oom["bytes"].tolist() == [80 << 30] and oom["device_free"].tolist() == [6 * MIB] and oom["address"].tolist() == [-1]
    # AND call stacks are texts, innermost first
    assert json.loads(str(e["frames"].iloc[1])) == [["train.py", 12, "forward"], ["train.py", 40, "main"]]
    assert e["frames"].iloc[0] == "" and b["frames"].iloc[0] == e["frames"].iloc[1]
    # AND marks of the program are instants, settings are told
    assert c.tables["instants"]["name"].tolist() == ["step 1"] and c.tables["instants"]["time_ns"].tolist() == [5_000]
    assert "expandable_segments:False" in c.facts.metadata["allocator_settings"]
    assert c.facts.source == "memory_snapshot" and c.facts.total_events == 8 + 6 and not issues(c)


def test_sums_agree_with_another_reader(tmp_path: Path) -> None:
    # GIVEN the functions of torch for snapshots WHEN both add up what is active
    viz = pytest.importorskip("torch.cuda._memory_viz")
    value = snapshot()
    b = read(tmp_path, value).tables["memory_blocks"]
    active = b[b["state"] == "active_allocated"].groupby("segment")["bytes"].sum()
    for seg in value["segments"]:
        assert viz.calc_active(seg) == active.get(seg["address"], 0)
        assert seg["total_size"] == b[b["segment"] == seg["address"]]["bytes"].sum()


def test_a_snapshot_of_an_older_torch_has_unknown_values(tmp_path: Path) -> None:
    # GIVEN a list of segments as torch 1.13 gave: no addresses of blocks, sizes asked for in a history, no pool, no times
    old = [{"device": 0, "address": 1 << 20, "total_size": 2 * MIB, "stream": 0, "segment_type": "small", "blocks": [
        {"size": 512, "state": "active_allocated", "history": [{"addr": 1 << 20, "real_size": 400, "frames": [{"filename": "a.py", "line": 1, "name": "f"}]}]},
        {"size": 1024, "state": "inactive"},
    ]}]  # fmt: skip
    c = read(tmp_path, old, 2)  # and a pickle of a list is known by its name and by `segment_type` in it
    b = c.tables["memory_blocks"]
    # THEN addresses follow from the order, the size asked for is that of the history, else unknown
    assert b["address"].tolist() == [1 << 20, (1 << 20) + 512] and b["requested"].tolist() == [400, -1] and b["pool"].tolist() == ["", ""]
    assert json.loads(str(b["frames"].iloc[0])) == [["a.py", 1, "f"]] and len(c.tables["memory_events"]) == 0
    # AND a history without times keeps its order, without a place in time
    c = read(tmp_path, {"segments": old, "device_traces": [[{"action": "alloc", "addr": 5, "size": 7, "stream": 0}]]})
    assert c.tables["memory_events"]["time_ns"].tolist() == [-1] and c.facts.extent_ns == (0, 0) and not c.facts.absolute


def test_odd_values_are_counted_and_never_made_up(tmp_path: Path) -> None:
    # GIVEN entries of other kinds, texts as numbers, sizes no memory has, a block larger than asked for, lone surrogates
    value: dict[str, Any] = snapshot()
    value["segments"] += [7, {"blocks": [None, {"size": "x", "state": 5}]}]
    value["segments"][0]["blocks"][0]["requested_size"] = 30 * MIB
    value["device_traces"][0] += [None, entry("alloc", 1 << 64, -5, 60), {**entry("alloc", 1, 1 << 60, 0), "time_us": 1 << 62}, {}]
    value["device_traces"][0][1]["action"] = "al\ud800loc"
    c = read(tmp_path, value)
    # THEN each is unknown, and counted
    assert issues(c) == {
        "segment that cannot be read": 1, "block that cannot be read": 1, "entry of the history that cannot be read": 1,
        "number that cannot be read": 1 + 1, "impossible memory size": 2, "time out of range": 1,
        "block in an unknown state": 1, "block smaller than its requested size": 1, "entry of the history without an action": 1,
        "segment without a size": 1,
    }  # fmt: skip
    e = c.tables["memory_events"]
    assert e["address"].tolist()[7] == -1 and e["bytes"].tolist()[7:9] == [-1, -1] and e["time_ns"].tolist()[8] == -1
    assert e["action"].iloc[1] == "al?loc"


def test_long_and_looped_call_stacks_are_bounded(tmp_path: Path) -> None:
    # GIVEN a stack of 1,000 frames, one that holds itself, and a frame whose name is 100,000 characters
    value: dict[str, Any] = snapshot()
    loop: list[Any] = []
    loop.append(loop)
    deep = [{"filename": "a.py", "line": n, "name": "f"} for n in range(1000)]
    value["device_traces"][0] = [
        entry("alloc", 1, 1, 0, deep),
        entry("alloc", 2, 1, 1, loop),
        entry("alloc", 3, 1, 2, [{"name": "x" * 100_000}]),
    ]
    frames = read(tmp_path, value).tables["memory_events"]["frames"].astype(str).tolist()
    assert len(json.loads(frames[0])) == 256 and json.loads(frames[1]) == [["", -1, ""]] and len(frames[2]) < 1100


def test_a_logdir_finds_snapshots_by_content(tmp_path: Path) -> None:
    # GIVEN a snapshot, a zipped one and a pickle of something else WHEN the logdir is looked through
    write(tmp_path / "rank0.pickle", snapshot())
    (tmp_path / "rank1.pickle.gz").write_bytes(gzip.compress(pickle.dumps(snapshot())))
    write(tmp_path / "weights.pkl", {"state": 1})
    listing = scan(single(str(tmp_path)), StoreOptions(), Heads({}))
    (found,) = listing.runs.values()
    assert [(r.worker, r.span, r.kind) for r in found] == [("rank0", "default", "memory_snapshot"), ("rank1", "default", "memory_snapshot")]
    assert [r.file for r in listing.rejected] == ["weights.pkl"] and "never opened" in listing.rejected[0].note
    with pytest.raises(NotATrace):
        ingest.read(str(tmp_path / "weights.pkl"))


def test_an_empty_snapshot_says_how_to_fill_it(tmp_path: Path) -> None:
    # GIVEN a program that held no memory of a device (a run on the CPU) WHEN dumped and read THEN one sentence says so
    with pytest.raises(BadInput) as caught:
        read(tmp_path, {"segments": [], "device_traces": [[], []], "allocator_settings": {}})
    assert "no memory of a device" in caught.value.message and "_record_memory_history" in caught.value.hint


def test_a_cut_snapshot_is_one_error_wherever_it_is_cut(tmp_path: Path) -> None:
    # GIVEN a snapshot cut anywhere behind its first names WHEN read THEN it is a message, never a wrong table
    data = pickle.dumps(snapshot(), 4)
    assert classify(data, "x").kind == "memory_snapshot"
    path = tmp_path / "memory.pickle"
    for end in range(40, len(data), 37):
        path.write_bytes(data[:end])
        with pytest.raises(BadInput) as caught:
            ingest.read(str(path))
        assert caught.value.hint and caught.value.file == "memory.pickle"


def test_pages_say_what_a_snapshot_lacks(tmp_path: Path) -> None:
    answer = read(tmp_path, copy.deepcopy(snapshot())).analyze("overview")
    assert not answer.available and "a memory snapshot" in answer.because


def test_a_history_stays_in_the_order_of_its_entries(tmp_path: Path) -> None:
    # GIVEN an entry that says it was 24 us before the one ahead of it WHEN read THEN it takes the time of that one, and is counted
    value: dict[str, Any] = snapshot()
    value["device_traces"][0][3]["time_us"] -= 24
    c = read(tmp_path, value)
    own = c.tables["memory_events"]
    assert own.loc[own["device"] == 0, "time_ns"].tolist() == [0, 10_000, 20_000, 20_000, 30_000, 40_000, 50_000]
    assert issues(c) == {"entry of the history earlier than the one ahead of it": 1}


def test_a_segment_that_does_not_say_its_size_is_as_large_as_its_blocks(tmp_path: Path) -> None:
    # GIVEN a segment of 20 MiB without its size, one with a size that no memory has, and one of which a block's size is missing too
    value: dict[str, Any] = snapshot()
    first, second, third = value["segments"]
    del first["total_size"]
    second["total_size"] = 1 << 62
    third["total_size"] = None
    third["blocks"][0]["size"] = None
    # WHEN read THEN the first two are sums of their blocks, the third is unknown, and each is counted
    c = read(tmp_path, value)
    blocks = c.tables["memory_blocks"]
    assert blocks.groupby("segment")["segment_bytes"].first().tolist() == [20 * MIB, 2 * MIB, -1]
    assert issues(c)["segment without a size"] == 3 and issues(c)["impossible memory size"] == 1
    # AND what the allocator held is told of the device whose segments are known, and not of the other
    held = {curve.device: curve.reserved for curve in curves(c)}
    assert held["device 1"] is None and held["device 0"] is not None and int(held["device 0"][-1]) == 22 * MIB
