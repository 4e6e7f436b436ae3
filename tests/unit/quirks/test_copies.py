"""Spellings of copies that other recorders use, and vendors told from what is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin.ingest.kineto.rules import copy_of
from tests.support.captures import report
from tests.support.check_capture import check_capture
from tests.support.trace_builder import Raw, TraceBuilder

SPELLED = [
    ("Memcpy HtoD (Pinned -> Device)", "", ("HtoD", "Pinned", "Device")),
    ("Memcpy HtoA (Pinned -> Array)", "", ("HtoD", "Pinned", "Array")),
    ("Memcpy AtoH (Array -> Pinned)", "", ("DtoH", "Array", "Pinned")),
    ("Memcpy HtoH (Pageable -> Pinned)", "", ("HtoH", "Pageable", "Pinned")),
    ("Memcpy PtoP (Device -> Device)", "", ("PtoP", "Device", "Device")),
    ("Memcpy DtoD (Managed -> Device)", "", ("DtoD", "Managed", "Device")),
    ("Memcpy M2D (Memory -> Device)", "", ("HtoD", "Memory", "Device")),
    ("Memory copy D2M", "", ("DtoH", "", "")),
    ("zeCommandListAppendMemoryCopy(D2M)", "", ("DtoH", "", "")),
    ("zeCommandListAppendMemoryCopy(M2M)", "", ("HtoH", "", "")),
    ("Memcpy(H2D)", "", ("HtoD", "", "")),
    ("CopyHostToDevice", "", ("HtoD", "", "")),
    ("dma_request", "DEVICE_TO_HOST", ("DtoH", "", "")),
    ("copy", "HtoD", ("HtoD", "", "")),
    ("Memcpy <unknown> (Unknown -> Managed)", "", ("Unknown", "Unknown", "Managed")),
    ("Memcpy S2M (Shared -> Memory)", "", ("Unknown", "Shared", "Memory")),
]


@pytest.mark.parametrize(("name", "kind", "expected"), SPELLED)
def test_directions_as_recorders_spell_them(name: str, kind: str, expected: tuple[str, str, str]) -> None:
    assert copy_of(name, False, kind) == expected


def test_copies_of_no_bytes_and_bandwidth_that_is_not_available(tmp_path: Path) -> None:
    # GIVEN a copy of 0 bytes in 50 ns, one of 4,096 in 100 ns with the bandwidth N/A, one without bytes in 30 ns
    t = TraceBuilder()
    t.copy("HtoD", 0, 50, bytes=0)
    t.copy("HtoD", 100, 100, bytes=4_096)
    args = t.events[-1]["args"]
    assert isinstance(args, dict)
    args["memory bandwidth (GB/s)"] = Raw("N/A")
    t.copy("HtoD", 300, 30)
    row = report(check_capture(t.write(tmp_path / "w.1.pt.trace.json"), tmp_path / "c"), "memcpy").table("copies").iloc[0]
    # WHEN summed THEN 180 ns, 4,096 bytes, one without; bandwidth over those with bytes: 4,096 B / 150 ns
    assert (row["count"], row["time_ns"], row["bytes"], row["without_bytes"]) == (3, 180, 4_096, 1)
    assert row["bandwidth_bytes_per_s"] == pytest.approx(4_096 / 150e-9)


@pytest.mark.parametrize(
    ("category", "call", "vendor"),
    [
        ("privateuse1_runtime", "customLaunch", "other"), ("privateuse1_runtime", "aclrtLaunchKernel", "other"),
        ("xpu_runtime", "urEnqueueKernelLaunch", "xpu"), ("cuda_driver", "cuLaunchKernelEx", "nvidia"),
        ("cuda_runtime", "hipExtModuleLaunchKernel", "amd"),
    ],
)  # fmt: skip
def test_a_vendor_is_not_guessed_from_two_letters(tmp_path: Path, category: str, call: str, vendor: str) -> None:
    # GIVEN a recording without versions and device names, one launch through `call`
    t = TraceBuilder(device="")
    t.op("aten::mm", 0, 1_000)
    t.launch("k", at=10, start=100, duration=50, api=call, api_category=category)
    c = check_capture(t.write(tmp_path / "w.1.pt.trace.json"), tmp_path / "c")
    # THEN the vendor is told, and the launch linked whatever the category's prefix
    assert c.facts.vendor == vendor and c.device["operator"].tolist() == [0]
