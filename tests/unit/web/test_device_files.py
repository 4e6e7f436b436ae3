"""A logdir's device file over HTTP: limits, efficiencies and notes follow it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient

from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.routes import create_app
from tests.support.trace_builder import TraceBuilder

DURATION = 10_000
FLOP = 2 * 2048**3
"""17.2 GFLOP in 10 us: 1.718e15 FLOP/s, far above any limit of an H100; what counts is how the limits move."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    t = TraceBuilder()
    t.op("aten::mm", 0, 900, shapes=[[2048, 2048], [2048, 2048]], types=["c10::BFloat16", "c10::BFloat16"])
    t.launch("gemm", at=100, start=2000, duration=DURATION)
    t.write(tmp_path / "logs" / "job" / "w.json")
    return tmp_path / "logs"


@pytest.fixture
def page(folder: Path, tmp_path: Path) -> Iterator[FlaskClient]:
    with ThreadPoolExecutor(1) as pool:
        yield create_app(
            Store(single(str(folder)), StoreOptions(cache_dir=str(tmp_path / "cache")), executor=pool), WebOptions()
        ).test_client()


def efficiency(page: FlaskClient, limits: str = "") -> float:
    answer = page.get(f"/api/v1/analysis/roofline?run=job&wait=20&device_limits={quote(limits)}")
    assert answer.status_code == 200, answer.get_json()
    (facts,) = [s for s in answer.get_json()["sections"] if s["id"] == "facts"]
    value = facts["values"]["efficiency"]
    assert isinstance(value, float)
    return value


def device(page: FlaskClient, limits: str = "") -> dict[str, object]:
    shown = page.get(f"/api/v1/analyses?run=job&wait=20&device_limits={quote(limits)}").get_json()["device"]
    assert isinstance(shown, dict)
    return shown


def test_the_file_of_a_logdir_changes_the_efficiency_of_its_runs(page: FlaskClient, folder: Path) -> None:
    # GIVEN the product on an H100: limit 2 x 2048^3 / 989.4e12 s
    assert efficiency(page) == pytest.approx(FLOP / 989.4e12 * 1e9 / DURATION)
    # WHEN a file halves the peak THEN the efficiency doubles, without a restart
    path = folder / "sol_devices.json"
    path.write_text(json.dumps([{"key": "H100_SXM", "bf16_tensor_tflops": 494.7}]))
    assert efficiency(page) == pytest.approx(FLOP / 494.7e12 * 1e9 / DURATION)
    assert efficiency(page, "H100_SXM@1830MHz+sparse") == pytest.approx(FLOP / 989.4e12 * 1e9 / DURATION)
    # WHEN it changes again, or goes, THEN the answers follow
    path.write_text(json.dumps([{"key": "ours", "inherits": "H100_SXM", "bf16_tensor_tflops": 100}]))
    os.utime(path, ns=(1, 1))
    assert efficiency(page) == pytest.approx(FLOP / 100e12 * 1e9 / DURATION)
    path.unlink()
    assert efficiency(page) == pytest.approx(FLOP / 989.4e12 * 1e9 / DURATION)


def test_every_figure_of_the_limits_says_where_it_is_from(page: FlaskClient, folder: Path) -> None:
    (folder / "sol_devices.json").write_text(json.dumps([{"key": "H100_SXM", "mem_bw_gb_per_s": 3000}]))
    shown = device(page)
    assert (shown["key"], shown["method"], shown["source"], shown["caution"]) == ("H100_SXM", "exact", "sol_devices.json", "")
    figures = {f["name"]: f for f in shown["figures"]}  # type: ignore[attr-defined]
    assert {f["provenance"] for f in figures.values()} == {"derived", "third_party", "user"}
    assert figures["mem_bw_gb_per_s"] == {
        "name": "mem_bw_gb_per_s", "label": "Memory bandwidth", "value": 3000e9, "unit": "B/s", "provenance": "user",
        "source": "sol_devices.json",
    }  # fmt: skip
    assert figures["bf16_tensor_tflops"]["source"].endswith("1,830 MHz")
    assert shown["unverified"] == [] and "link_bidir_gb_per_s" in device(page, "H100_PCIE")["unverified"]  # type: ignore[operator]


def test_rows_of_files_can_be_chosen_and_expressions_named(page: FlaskClient, folder: Path) -> None:
    items = [{"key": "ours", "inherits": "H100_SXM", "device_names": "x"}, {"key": "ours2", "inherits": "H200", "device_names": "y"}]
    (folder / "sol_devices.json").write_text(json.dumps(items))
    answer = page.get("/api/v1/analyses?run=job&wait=20").get_json()
    assert answer["devices"][:2] == ["ours", "ours2"] and "A100_SXM_80" in answer["devices"]
    assert device(page)["key"] == "H100_SXM"
    assert device(page, "ours2@915MHz")["key"] == "ours2@915MHz"
    wrong = page.get("/api/v1/analysis/roofline?run=job&device_limits=ours3&wait=20")
    assert wrong.status_code == 400 and wrong.get_json()["error"]["field"] == "device_limits"
    assert "ours" in wrong.get_json()["error"]["hint"]


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/hostname", "sol_devices.json", "file:///etc/passwd", "x.json#H100_SXM"])
def test_a_request_never_opens_a_file(page: FlaskClient, path: str) -> None:
    assert page.get(f"/api/v1/analysis/roofline?run=job&wait=20&device_limits={quote(path)}").status_code == 400


def test_faults_of_a_device_file_are_notes_without_a_path(page: FlaskClient, folder: Path) -> None:
    items = [{"key": "bad", "mem_gb": "<script>alert(1)</script>"}, {"key": "H100_SXM", "bf16_tensor_tflops": 494.7}]
    (folder / "sol_devices.json").write_text(json.dumps(items))
    assert efficiency(page) == pytest.approx(FLOP / 494.7e12 * 1e9 / DURATION)
    for answer in (page.get("/api/v1/runs"), page.get("/api/v1/health")):
        (note,) = answer.get_json()["notes"]
        assert note.startswith("sol_devices.json, row 1 (bad), field mem_gb: ") and str(folder) not in answer.get_data(as_text=True)
    for name in ("overview", "health"):
        notices = page.get(f"/api/v1/analysis/{name}?run=job&wait=20").get_json()["notices"]
        assert any("sol_devices.json, row 1 (bad)" in notice["text"] for notice in notices), name
    (folder / "sol_devices.json").write_bytes(b"\x80" * 100)
    assert "not UTF-8" in page.get("/api/v1/health").get_json()["notes"][0]
    assert efficiency(page) == pytest.approx(FLOP / 989.4e12 * 1e9 / DURATION)


def test_a_cpu_recording_under_the_limits_of_a_gpu_says_so(page: FlaskClient, folder: Path) -> None:
    t = TraceBuilder(device="")
    t.step(1, 0, 2_000_000)
    t.op("aten::mm", 0, 1_000_000, shapes=[[64, 64], [64, 64]], types=["float", "float"])
    t.write(folder / "host" / "w.json")
    page.post("/api/v1/rescan")
    report = page.get("/api/v1/analysis/overview?run=host&wait=20&device_limits=H100_SXM").get_json()
    assert "this work ran on a CPU, and H100 SXM are the limits of another kind of device" in report["headline"]
