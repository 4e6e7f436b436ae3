"""A recording as a Hatchet profile: sums as recorded, copies by name, places by module or phase, and what other tools read in it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.cli import export
from tb_sol_plugin.errors import BadQuery, Unavailable
from tb_sol_plugin.ingest.proton import decode
from tb_sol_plugin.metrics.hatchet import CHOICES, Tree, chunks, hatchet
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tests.conftest import ROOT
from tests.support.hatchet_library import hatchet_library
from tests.support.proton_profile import serving, write
from tests.support.trace_builder import TraceBuilder

FOLDERS = ("simulated_gpu_train", "simulated_gpu_llm", "simulated_copies")
SAMPLES = sorted(path for folder in FOLDERS for path in (ROOT / "samples" / folder).glob("*.pt.trace.json.gz"))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A step with a product in a phase, every direction of copy, a copy without bytes, a copy of the graph, work of before."""
    t = TraceBuilder(device="NVIDIA H100 80GB HBM3")
    t.step(1, 0, 100_000)
    t.annotation("forward", 1_000, 30_000)
    t.op("aten::mm", 2_000, 5_000, shapes=[[64, 32], [32, 16]], types=["c10::BFloat16", "c10::BFloat16"])
    t.launch("gemm_a", at=2_500, start=10_000, duration=3_000, stream=7)
    t.launch("gemm_b", at=3_500, start=14_000, duration=1_000, stream=7)
    t.copy("HtoD", 20_000, 500, bytes=4096, src="Pageable", dst="Device", call=(15_000, 50))
    t.copy("HtoD", 21_000, 700, bytes=8192, src="Pinned", dst="Device", call=(16_000, 50))
    t.copy("DtoH", 40_000, 300, bytes=64, src="Device", dst="Pinned", call=(35_000, 50))
    return t.write(tmp_path / "w.1700000000000000000.pt.trace.json.gz")


def parsed(capture: Capture, by: str = "auto") -> tuple[dict, dict]:
    root, devices = json.loads(b"".join(hatchet(capture, by)))
    return root, devices


def frames(root: dict) -> list[tuple[tuple[str, ...], dict]]:
    """(names from the root down, frame): a plain walk."""
    out, stack = [], [((), root)]
    while stack:
        above, frame = stack.pop()
        path = (*above, frame["frame"]["name"])
        out.append((path, frame))
        stack += [(path, child) for child in reversed(frame["children"])]
    return out


def sums(root: dict) -> Counter[str]:
    return Counter(sum((Counter({k: v for k, v in f["metrics"].items() if not isinstance(v, str)}) for _, f in frames(root)), Counter()))


def recorded_copies(capture: Capture) -> dict[str, tuple[int, int, int]]:
    """Copies, bytes and copies without a size by direction, counted from the events one by one."""
    out: dict[str, tuple[int, int, int]] = {}
    moves = capture.device[capture.device["kind"] != S.KERNEL]
    for direction, size in zip(moves["direction"].astype(str), moves["bytes"].tolist(), strict=True):
        count, total, bare = out.get(direction, (0, 0, 0))
        out[direction] = count + 1, total + max(size, 0), bare + (size < 0)
    return out


def counted_copies(capture: Capture) -> dict[str, tuple[int, int, int]]:
    out: dict[str, tuple[int, int, int]] = {}
    for row in capture.tables["copies"][["direction", "count", "bytes", "without_bytes"]].itertuples(index=False):
        before = out.get(str(row[0]), (0, 0, 0))
        out[str(row[0])] = before[0] + row[1], before[1] + row[2], before[2] + row[3]
    return out


def test_frames_stand_where_their_launch_was(trace: Path) -> None:
    # GIVEN a trace without modules WHEN exported THEN by phase: phase, operator, kernel; copies by direction and kinds of memory
    root, devices = parsed(ingest.read(str(trace)))
    found = {" > ".join(path): frame for path, frame in frames(root)}
    mm = found["ROOT > ProfilerStep > forward > aten::mm > gemm_a"]
    assert mm["frame"]["type"] == "kernel" and mm["metrics"]["time (ns)"] == 3_000 and mm["metrics"]["count"] == 1
    assert mm["metrics"]["device_id"] == "0" and mm["metrics"]["device_type"] == "CUDA"
    pinned = found["ROOT > ProfilerStep > forward > Memcpy HtoD (Pinned -> Device)"]
    assert pinned["frame"]["type"] == "memcpy" and pinned["metrics"]["bytes"] == 8192 and pinned["metrics"]["time (ns)"] == 700
    assert found["ROOT > ProfilerStep > Memcpy DtoH (Device -> Pinned)"]["metrics"]["bytes"] == 64
    assert devices == {"CUDA": {"0": {"arch": "90", "num_sms": 132}}}, "what a trace does not say is left out"
    # AND the product's 2 x 64 x 32 x 16 = 65,536 FLOP are shared 3 to 1 by time
    other = found["ROOT > ProfilerStep > forward > aten::mm > gemm_b"]
    assert mm["metrics"]["flops16"] == 49_152 and other["metrics"]["flops16"] == 16_384
    # AND its traffic, 2 x (64 x 32 + 32 x 16 + 64 x 16) = 7,168 bytes, likewise
    assert mm["metrics"]["bytes"] == 5_376 and other["metrics"]["bytes"] == 1_792


@pytest.mark.parametrize("by", ["module", "phase", "operator"])
def test_every_tree_has_the_same_sums(trace: Path, by: str) -> None:
    # GIVEN one recording WHEN exported by module, phase and operator THEN time, launches and bytes are those of the events
    capture = ingest.read(str(trace))
    total = sums(parsed(capture, by)[0])
    assert total["time (ns)"] == 5_500 and total["count"] == 5 and total["bytes"] == 4096 + 8192 + 64 + 7_168 and total["flops16"] == 65_536


def test_metrics_are_numbers_and_the_root_has_each(trace: Path) -> None:
    # GIVEN an export THEN all metrics but the name of the device are numbers, and the root has a zero for each: Hatchet sums those up
    root, _ = parsed(ingest.read(str(trace)))
    every = {name for _, frame in frames(root) for name in frame["metrics"]} - {"device_id", "device_type"}
    assert set(root["metrics"]) == every and set(root["metrics"].values()) == {0}
    assert all(isinstance(v, int | float) for _, f in frames(root) for k, v in f["metrics"].items() if not k.startswith("device_"))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda p: p.parent.name + "/" + p.name[:24])
def test_a_round_trip_keeps_copies_and_times(sample: Path, tmp_path: Path) -> None:
    # GIVEN a recording WHEN exported and read again THEN copies, bytes and sizes that are missing are equal per direction, and so are times
    capture = ingest.read(str(sample))
    if not len(capture.device):
        pytest.skip("no device work")
    path = tmp_path / "x.hatchet"
    path.write_bytes(b"".join(hatchet(capture)))
    again = ingest.read(str(path))
    assert counted_copies(again) == recorded_copies(capture)
    kernels = capture.device[capture.device["kind"] == S.KERNEL]
    assert again.tables["ledger"]["count"].sum() == len(kernels)
    assert round(float(np.nansum(again.tables["ledger"]["time_ns"]))) == int(kernels["duration_ns"].sum())


@pytest.mark.parametrize("sample", SAMPLES[:3], ids=lambda p: p.name[:24])
def test_hatchet_reads_the_same_totals(sample: Path) -> None:
    # GIVEN an export WHEN Hatchet sums it up THEN the root has the time and the launches of all device events, and all bytes
    ht = hatchet_library()
    capture = ingest.read(str(sample))
    root, _ = parsed(capture)
    frame = ht.GraphFrame.from_literal([root])
    frame.update_inclusive_columns()
    first = frame.dataframe.iloc[0]
    assert int(first["time (ns) (inc)"]) == int(capture.device["duration_ns"].sum()) and int(first["count (inc)"]) == len(capture.device)
    assert int(first["bytes (inc)"]) == sums(root)["bytes"]


def test_a_profile_is_exported_as_it_was(tmp_path: Path) -> None:
    # GIVEN a profile of Proton WHEN exported THEN its frames, launches and amounts are those of the file, less the profiler's own
    root, devices = parsed(ingest.read(str(write(tmp_path / "p.hatchet", serving()))))
    found = {" > ".join(path): f["metrics"] for path, f in frames(root)}
    assert found["ROOT > forward > attention > _attn_fwd"] == {
        "time (ns)": 4_000_000, "count": 32, "bytes": 400_000_000, "flops16": 2_000_000_000_000, "device_id": "0", "device_type": "CUDA",
    }  # fmt: skip
    assert found["ROOT > load > Memcpy HtoD (Pageable -> Device)"]["without_bytes"] == 4
    assert not any("__proton" in name for name in found) and devices == {"CUDA": {"0": {"arch": "90", "num_sms": 132}}}


def test_counted_work_of_a_capture_is_exported_by_its_labels() -> None:
    # GIVEN a SOL capture of a CPU WHEN exported THEN operators stand below modules with calls, host time and work
    path = next((ROOT / "samples" / "capture_train").rglob("*.sol.jsonl*"))
    capture = ingest.read(str(path))
    root, devices = parsed(capture, "module")
    total = sums(root)
    assert devices == {} and total["count"] == int(capture.tables["ledger"].loc[capture.tables["ledger"]["step"] >= 0, "count"].sum())
    assert total["cpu_time (ns)"] > 0 and any(f["frame"]["type"] == "module" for _, f in frames(root))


def test_a_recording_of_the_host_has_operators_by_host_time() -> None:
    path = next((ROOT / "samples" / "cpu_transformer").rglob("*.json*"))
    root, devices = parsed(ingest.read(str(path)))
    assert devices == {} and sums(root)["cpu_time (ns)"] > 0 and "time (ns)" in root["metrics"]


def test_deep_trees_are_written_without_recursion() -> None:
    # GIVEN 50,000 scopes inside each other with a kernel at the bottom WHEN written THEN it reads back with all of them
    tree, place = Tree(), 0
    for level in range(50_000):
        place = tree.at(place, f"p{level}", "phase")
    tree.add(tree.at(place, "k", "kernel", "0"), {"time (ns)": 7, "count": 1})
    found = decode.decode_json(b"".join(chunks(tree, {}, "CUDA")).decode(), "x")
    frame, levels = found[0], 0  # type: ignore[index]
    while frame["children"]:
        (frame,), levels = frame["children"], levels + 1
    assert levels == 50_001 and frame["metrics"] == {"time (ns)": 7, "count": 1, "device_id": "0", "device_type": "CUDA"}


def test_what_cannot_be_exported_says_why(tmp_path: Path, trace: Path) -> None:
    with pytest.raises(BadQuery, match="no tree by 'kernel'"):
        hatchet(ingest.read(str(trace)), "kernel")
    empty = tmp_path / "e.1.pt.trace.json"
    empty.write_text('{"schemaVersion": 1, "traceEvents": []}')
    with pytest.raises(Unavailable, match="no work to export"):
        hatchet(ingest.read(str(empty)))


def test_the_command_line_offers_the_same_trees() -> None:
    assert export.BY == CHOICES
