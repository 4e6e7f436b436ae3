"""Measuring a CPU, keeping the row, and using it; device limits on the command line."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import pytest

from tb_sol_plugin.cli import command, doctor
from tb_sol_plugin.cli import doctor as cli_measure
from tb_sol_plugin.devices import measure
from tb_sol_plugin.devices.files import book_of, parse
from tb_sol_plugin.devices.measure import Measured, Rate, cache_bytes, copy_bytes, cpu_name, free_bytes, key_of, row_of
from tests.support.trace_builder import TraceBuilder

Capsys = pytest.CaptureFixture[str]
FOUND = Measured(
    "box.local", "Some CPU", 4, "torch 9.9", "2030-01-02",
    (
        Rate("fp32_product", "FP32 matrix product", 400e9, "FLOP/s", "1024"), Rate("fp64_product", "FP64 matrix product", 200e9, "FLOP/s", ""),
        Rate("bf16_product", "BF16 matrix product", 1.2345678e12, "FLOP/s", ""), Rate("elementwise", "FP32 elementwise", 30e9, "FLOP/s", ""),
        Rate("copy", "Copy", 33e9, "B/s", ""), Rate("read", "Read", 35.5e9, "B/s", ""),
    ),
)  # fmt: skip


def run(*arguments: object) -> int:
    return command.main([str(a) for a in arguments])


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measures for real, but hardly."""
    real = measure.measure
    monkeypatch.setattr(measure, "SIDES", (64,))
    monkeypatch.setattr(cli_measure, "measure", lambda tell: real(tell, seconds=0.001, largest_copy=1 << 20))


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config" / "devices.json"
    monkeypatch.setenv("TB_SOL_DEVICES", str(path))
    return path


def test_the_row_of_a_measurement() -> None:
    # GIVEN figures THEN the vector ceiling is what the vector units were seen to do, the memory ceiling the larger of copy and read
    row = row_of(FOUND)
    assert row["key"] == "cpu_box.local" and row["device_names"] == "box.local" and row["vendor"] == "cpu"
    assert (row["fp32_matrix_tflops"], row["fp32_vector_tflops"], row["bf16_tensor_tflops"]) == (0.4, 0.4, 1.235)
    assert (row["fp64_tensor_tflops"], row["fp64_vector_tflops"], row["mem_bw_gb_per_s"]) == (0.2, 0.2, 35.5)
    assert "2030-01-02" in str(row["notes"]) and "4 threads" in str(row["notes"]) and row["provenance"] == "measured"
    book = book_of([("user", parse(json.dumps([row]).encode(), "d.json"))])
    spec = book.specs["cpu_box.local"]
    assert book.notes() == [] and (spec.units, spec.matrix_peak("fp32"), spec.memory_bandwidth) == (4, 400e9, 35.5e9)
    assert set(spec.provenance.values()) == {"measured"} and spec.matrix_peak("fp16") is None
    assert row_of(FOUND, host="other")["key"] == "cpu_other"
    assert key_of("a b/ü") == "cpu_a_b_" and key_of("") == "cpu_here"


def test_every_figure_is_measured(quick: None) -> None:
    lines: list[str] = []
    found = cli_measure.measure(lines.append)
    names = [r.name for r in found.rates]
    assert names == ["fp32_product", "fp64_product", *(["bf16_product"] if "torch" in sys.modules else []), "elementwise", "copy", "read"]
    assert all(1e6 < r.value < 1e16 for r in found.rates) and len(lines) == len(names)
    assert found.host == socket.gethostname() and found.threads >= 1 and found.cpu


def test_numpy_measures_where_torch_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(measure, "SIDES", (64,))
    found = measure.measure(lambda _: None, seconds=0.001, largest_copy=1 << 20)
    assert found.library.startswith("numpy") and [r.name for r in found.rates][:3] == ["fp32_product", "fp64_product", "elementwise"]
    assert "bf16_tensor_tflops" not in row_of(found) and all(r.value > 1e6 for r in found.rates)


def test_a_copy_is_larger_than_the_cache_and_smaller_than_the_memory() -> None:
    assert 0 < cache_bytes() < 1 << 34 and free_bytes() > 0 and cpu_name()
    assert copy_bytes() <= max(free_bytes() // 8 + (1 << 26), 1 << 20)
    assert copy_bytes(1 << 20) == 1 << 20


def test_measured_once_kept_used_and_repeated_on_request(quick: None, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    # GIVEN a device file with another row WHEN this machine is measured THEN its row is added beside it
    mine.parent.mkdir()
    mine.write_text('{"devices": [{"key": "H100_SXM", "mem_gb": 81}]}')
    assert run("doctor", "--measure") == 0
    out, err = capsys.readouterr()
    key = key_of(socket.gethostname())
    assert "Memory bandwidth" in out and "measured" in out and "FP32 matrix product" in err
    kept = json.loads(mine.read_text())
    assert [row["key"] for row in kept] == ["H100_SXM", key] and kept[0]["mem_gb"] == 81
    assert os.listdir(mine.parent) == ["devices.json"]
    # WHEN it is asked for again THEN nothing is measured, and how to do so is said
    assert run("doctor", "--measure") == 0
    out, err = capsys.readouterr()
    assert err == "" and "--again" in out and key in out and json.loads(mine.read_text()) == kept
    # and with --again the row is replaced
    assert run("doctor", "--measure", "--again") == 0
    assert [row["key"] for row in json.loads(mine.read_text())] == ["H100_SXM", key]
    # THEN a CPU recording of this machine has limits, one of another has none
    t = TraceBuilder(device="")
    t.op("aten::mm", 0, 10**9, shapes=[[64, 64], [64, 64]], types=["float", "float"])
    for host, known in ((socket.gethostname(), True), ("elsewhere", False)):
        trace = t.write(tmp_path / host / f"{host}_12.1700000000000.pt.trace.json")
        capsys.readouterr()
        assert run("analyze", "roofline", trace) == 0
        (facts,) = [s["values"] for s in json.loads(capsys.readouterr().out)["sections"] if s["id"] == "facts"]
        assert (facts["efficiency"] is not None) is known
    monkeypatch.setenv("COLUMNS", "200")
    assert run("doctor", tmp_path) in (0, 1)
    out = capsys.readouterr().out
    assert f"{key} (measured, devices.json)" in out and "no limits" in out


def test_a_row_is_written_to_the_named_file_under_the_named_host(quick: None, tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "new" / "sol_devices.json"
    assert run("doctor", "--measure", "--write", path, "--host", "lab box") == 0
    (row,) = json.loads(path.read_text())
    assert (row["key"], row["device_names"]) == ("cpu_lab_box", "lab box")
    assert "cpu_lab_box" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "content", "status", "words"),
    [
        (["--measure"], None, 1, "TB_SOL_DEVICES is empty"),
        (["--measure", "--write", "d.csv"], None, 1, "written as JSON"),
        (["--measure", "--write", "d.json"], "{", 1, "not JSON"),
        (["--measure", "--write", "d.json"], "3", 1, "no device file"),
        (["--measure", "--write", "d.json"], '{"devices": 3}', 1, "no device file"),
        (["--again"], None, 2, "belong to --measure"),
        (["--write", "d.json"], None, 2, "belong to --measure"),
    ],
)
def test_a_file_that_cannot_be_written_is_an_error_before_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys, arguments: list[str], content: str | None, status: int, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli_measure, "measure", lambda tell: pytest.fail("measured"))
    if content is not None:
        Path("d.json").write_text(content)
    assert run("doctor", *arguments) == status
    err = capsys.readouterr().err
    assert words in err and err.count("\n") == 1
    assert content is None or Path("d.json").read_text() == content


def test_a_folder_that_cannot_be_written_is_an_error_in_words(tmp_path: Path, capsys: Capsys, quick: None) -> None:
    (tmp_path / "file").write_text("")
    assert run("doctor", "--measure", "--write", tmp_path / "file" / "d.json") == 1
    assert "d.json: this device file cannot be read: Not a directory" in capsys.readouterr().err


# -- limits on the command line --------------------------------------------------------------------------------------


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    t = TraceBuilder()
    t.op("aten::mm", 0, 900, shapes=[[4096, 4096], [4096, 4096]], types=["c10::BFloat16", "c10::BFloat16"])
    t.launch("gemm", at=100, start=2000, duration=10_000)
    return t.write(tmp_path / "logs" / "job" / "w.json")


@pytest.mark.parametrize(
    ("limits", "name", "peak"),
    [
        ("", "H100 SXM", 989.4e12),
        ("H100_SXM@915MHz", "H100 SXM at 915 MHz", 494.7e12),
        ("+sparse", "H100 SXM, 2:4 sparse", 1978.8e12),
        ("FILE", "one", 100e12),
        ("FILE#A100", "A100 SXM 80 GB", 312e12),
    ],
)
def test_limits_by_key_expression_and_file(trace: Path, tmp_path: Path, capsys: Capsys, limits: str, name: str, peak: float) -> None:
    file = tmp_path / "one.json"
    file.write_text('[{"key": "one", "inherits": "H100_SXM", "bf16_tensor_tflops": 100}]')
    flags = ["--device-limits", limits.replace("FILE", str(file))] if limits else []
    assert run("analyze", "roofline", trace, *flags) == 0
    out, err = capsys.readouterr()
    (facts,) = [s["values"] for s in json.loads(out)["sections"] if s["id"] == "facts"]
    assert err == "" and facts["device"] == name
    assert facts["efficiency"] == pytest.approx(2 * 4096**3 / peak * 1e9 / 10_000)
    assert run("report", trace, *(["--device", flags[1]] if flags else [])) == 0


def test_a_wrong_device_file_is_reported_and_a_missing_one_is_an_error(trace: Path, tmp_path: Path, capsys: Capsys) -> None:
    (trace.parent.parent / "sol_devices.csv").write_text("key,mem_gb\nH100_SXM,x\n")
    assert run("analyze", "roofline", trace) == 0
    assert "sol_devices.csv, line 2, column mem_gb: x is not a positive number" in capsys.readouterr().err
    assert run("analyze", "roofline", trace, "--device-limits", tmp_path / "none.json") == 1
    err = capsys.readouterr().err
    assert "none.json: there is no such device file" in err and str(tmp_path) not in err
    assert run("serve", trace.parent, "--device", tmp_path / "none.json") == 1
    assert run("report", trace, "--device", "H999") == 2


def test_doctor_lists_device_files_their_faults_and_the_limits_of_each_recording(
    trace: Path, mine: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in ("_installed", "_entry_point", "_parts"):
        monkeypatch.setattr(doctor, part, lambda out: 0)
    root = trace.parent.parent
    monkeypatch.setenv("COLUMNS", "400")  # no path is broken over lines, however long the folder of the tests is
    assert run("doctor", root) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "devices.json: none (tb-sol doctor --measure" in out and "H100_SXM (exact)" in out
    (root / "sol_devices.json").write_text('[{"key": "ours", "inherits": "H200"}, {"key": "b", "mem_gb": -1}]')
    assert run("doctor", root) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "sol_devices.json (of the logdir): ours" in out and "row 2 (b), field mem_gb" in out and "ours (file, sol_devices.json)" in out
    assert run("doctor", root, "--device", "A100") == 1
    assert "A100_SXM_80 (override)" in " ".join(capsys.readouterr().out.split())
