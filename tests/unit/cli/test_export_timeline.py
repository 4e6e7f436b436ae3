"""`tb-sol export timeline`: flags, whole files, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tb_sol_plugin.cli import command
from tests.support.trace_builder import TraceBuilder


def exported(source: Path, target: Path, *flags: str) -> list[dict[str, Any]]:
    assert command.main(["export", "timeline", str(source), "-o", str(target), "--no-cache", *flags]) == 0
    return json.loads(gzip.decompress(target.read_bytes()))["traceEvents"]  # type: ignore[no-any-return]


def test_flags_cut_events_and_leave_out_links(tmp_path: Path) -> None:
    # GIVEN a kernel from 2 to 7 us that a second one of its stream overlaps, each with its launch
    t = TraceBuilder()
    t.launch("gemm", at=0, start=2_000, duration=5_000)
    t.launch("beside", at=500, start=6_000, duration=3_000)
    source, target = t.write(tmp_path / "a.pt.trace.json"), tmp_path / "out.json.gz"
    # WHEN everything is exported THEN both launches have a link
    assert sum(e["ph"] == "s" for e in exported(source, target)) == 2
    # AND none with --no-flows; --clip cuts to the window, whole without
    assert not [e for e in exported(source, target, "--no-flows") if e["ph"] in "sf"]
    window = ("--start", "3000", "--end", "4000")
    assert [(e["ts"], e["dur"]) for e in exported(source, target, *window) if e["ph"] == "X"] == [(2.0, 5.0)]
    assert [(e["ts"], e["dur"]) for e in exported(source, target, *window, "--clip") if e["ph"] == "X"] == [(3.0, 1.0)]
    # AND --split-overlaps puts the second on a thread of its own
    assert {e["tid"] for e in exported(source, target, "--split-overlaps") if e.get("cat") == "kernel"} == {7, "stream 7 (2)"}


def test_what_is_not_there_is_refused_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    t = TraceBuilder()
    t.op("aten::mm", 0, 1_000)
    source, target = t.write(tmp_path / "a.pt.trace.json"), tmp_path / "out.json.gz"
    for flags in (["--tracks", "999"], ["--tracks", "no such row"], ["--start", "9", "--end", "3"]):
        assert command.main(["export", "timeline", str(source), "-o", str(target), "--no-cache", *flags]) == 2
        assert capsys.readouterr().err.startswith("tb-sol:") and not target.exists()
