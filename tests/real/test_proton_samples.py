"""Profiles shipped as samples, and every recording through an export and back."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.metrics.hatchet import hatchet
from tb_sol_plugin.model import schemas as S
from tests.support.captures import alone, report
from tests.support.check_capture import check_capture
from tests.support.recordings import ROOT, TRACES, over, path_of


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("simulate_proton", ROOT / "samples" / "simulate_proton.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["decode.hatchet", "loop.chrome_trace"])
def test_samples_are_what_their_script_makes(name: str, tmp_path: Path) -> None:
    # GIVEN the script WHEN it runs again THEN the same bytes, which hold every promise
    script().main(tmp_path)
    shipped = ROOT / "samples" / "proton" / name
    assert (tmp_path / name).read_bytes() == shipped.read_bytes()
    check_capture(shipped, tmp_path / "cache")


def test_the_shares_that_were_planted_come_out() -> None:
    # GIVEN kernels whose times were made as their limit over a share WHEN the roofline is asked THEN those shares, to the rounding of ns
    capture = ingest.read(str(ROOT / "samples" / "proton" / "decode.hatchet"))
    rows = report(capture, "roofline", by="op", device_limits="H100_SXM").table("ops").set_index("name")["efficiency"]
    planted = {"_matmul_qkv": 0.72, "_matmul_up": 0.81, "_paged_attention_kernel": 0.58, "_softmax_kernel": 0.35, "_rotary_kernel": 0.30}
    assert rows[list(planted)].to_dict() == pytest.approx(planted, rel=2e-3)


@over(TRACES)
def test_a_recording_through_an_export_and_back(name: str, tmp_path: Path) -> None:
    # GIVEN a recording made by someone else WHEN exported and read again THEN copies, bytes, missing sizes and times are the same
    capture = alone(path_of(name))
    if not len(capture.device):
        pytest.skip("no device work")
    path = tmp_path / "x.hatchet"
    path.write_bytes(b"".join(hatchet(capture)))
    again = ingest.read(str(path))
    moves = capture.device[capture.device["kind"] != S.KERNEL]
    size = moves["bytes"].to_numpy()
    copies = again.tables["copies"]
    for direction in sorted({*moves["direction"].astype(str), *copies["direction"].astype(str)}):
        mine, theirs = (moves["direction"].astype(str) == direction).to_numpy(), (copies["direction"].astype(str) == direction).to_numpy()
        assert int(copies["count"][theirs].sum()) == int(mine.sum()), direction
        assert int(copies["bytes"][theirs].sum()) == int(size[mine].clip(min=0).sum()), direction
        assert int(copies["without_bytes"][theirs].sum()) == int((size[mine] < 0).sum()), direction
        assert round(float(copies["time_ns"][theirs].sum())) == int(moves["duration_ns"][mine].sum()), direction
    kernels = capture.device[capture.device["kind"] == S.KERNEL]
    assert int(again.tables["ledger"]["count"].sum()) == len(kernels)
    assert round(float(np.nansum(again.tables["ledger"]["time_ns"]))) == int(kernels["duration_ns"].sum())
