"""What `tb-sol analyze NAME FILE` printed is printed again as long as nothing around the file has changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tb_sol_plugin.cli import kept, main
from tb_sol_plugin.model import answer
from tests.support.trace_builder import TraceBuilder


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TB_SOL_CACHE_DIR", str(tmp_path / "cache"))
    return record(tmp_path / "logs" / "job" / "w.pt.trace.json", "gemm")


def record(path: Path, kernel: str) -> Path:
    t = TraceBuilder()
    t.step(1, 0, 50_000)
    t.op("aten::mm", 0, 900, shapes=[[2048, 2048], [2048, 2048]], types=["c10::BFloat16", "c10::BFloat16"])
    t.launch(kernel, at=100, start=2_000, duration=10_000)
    path.parent.mkdir(parents=True, exist_ok=True)
    t.write(path)
    return path


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the analyses that were computed."""
    names: list[str] = []
    collect = answer.collect

    def counted(request: answer.AnalysisRequest, source: object = None) -> answer.Inputs:
        names.append(request.name)
        return collect(request, source)  # type: ignore[arg-type]

    monkeypatch.setattr(answer, "collect", counted)
    return names


def printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main(["analyze", *map(str, arguments)]) == 0
    found = capsys.readouterr()
    assert found.err == ""
    return found.out


def test_the_second_time_is_the_first_again(file: Path, computed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    first = printed(capsys, "roofline", file)
    assert computed == ["roofline"] and json.loads(first)["analysis"] == "roofline"
    assert printed(capsys, "roofline", file) == printed(capsys, "roofline", file, "--format", "json") == first
    assert computed == ["roofline"]
    # THEN other forms, other questions, and a run without a cache are computed
    printed(capsys, "kernels", file)
    printed(capsys, "roofline", file, "--format", "csv", "--section", "ops")
    assert printed(capsys, "roofline", file, "--no-cache") == first
    assert computed == ["roofline", "kernels", "roofline", "roofline"]


def test_whatever_changes_around_the_file_makes_it_anew(
    file: Path, computed: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = printed(capsys, "roofline", file)

    def changed() -> str:
        computed.clear()
        again = printed(capsys, "roofline", file)
        assert computed == ["roofline"]
        return again

    # WHEN a device file appears two folders above, or is named in the environment
    devices = file.parent.parent / "sol_devices.json"
    devices.write_text(json.dumps([{"key": "H100_SXM", "bf16_tensor_tflops": 494.7}]))
    assert changed() != first
    devices.unlink()
    monkeypatch.setenv("TB_SOL_DEVICES", str(devices))
    changed()
    monkeypatch.delenv("TB_SOL_DEVICES")
    # WHEN another file comes to lie beside it, the file is another one of the same size and time, the code is another
    record(file.with_name("other.pt.trace.json"), "other")
    assert changed() == first
    before = file.stat()
    record(file, "mmeg")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    changed()
    monkeypatch.setattr(kept, "code_state", lambda: "other")
    changed()


def test_a_damaged_report_is_made_anew(file: Path, computed: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first = printed(capsys, "kernels", file)
    (part,) = (tmp_path / "cache" / kept.FOLDER).rglob("*.part")
    body = bytearray(part.read_bytes())
    body[-5] ^= 4
    part.write_bytes(body)
    assert printed(capsys, "kernels", file) == first and computed == ["kernels"] * 2


def test_it_is_printed_without_the_libraries_that_compute_it(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = printed(capsys, "kernels", file)
    code = (
        "import atexit, gc, sys; from tb_sol_plugin.cli import main; atexit.register(lambda: print(gc.get_freeze_count(), file=sys.stderr))\n"
        "main(); sys.exit(' '.join(sorted({'pandas', 'numpy', 'numba', 'pyarrow', 'fsspec'} & set(sys.modules))) or 0)"
    )
    # in a process of its own, whose path is that of this one: it is part of what the report was made from
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}

    def run() -> tuple[str, str, int]:
        """What is printed, the libraries that were loaded, and the objects that the end of the process does not look at."""
        given = [sys.executable, "-c", code, "analyze", "kernels", str(file)]
        done = subprocess.run(given, capture_output=True, text=True, check=False, env=env)
        *loaded, frozen = done.stderr.split("\n")[:-1]
        return done.stdout, "".join(loaded), int(frozen)

    # WHEN it is asked from the tables that are kept, and again THEN nothing is compiled or loaded for the first, and nothing computes the second
    assert run()[:2] == (first, "numpy pandas pyarrow")
    stdout, loaded, frozen = run()
    assert (stdout, loaded) == (first, "") and frozen > 1_000


def test_nothing_is_kept_of_a_folder_or_where_there_is_no_cache(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept.printed(["kernels", str(file)]) is not None
    for given in (["kernels"], ["kernels", str(file.parent)], ["kernels", str(file), "--step", "1"], ["kernels", "s3://bucket/x.json"]):
        assert kept.printed(given) is None
    monkeypatch.setattr(kept, "MOST_BESIDE", 0)
    assert kept.printed(["kernels", str(file)]) is None
    monkeypatch.undo()
    monkeypatch.setenv("TB_SOL_CACHE_DIR", "")
    assert kept.printed(["kernels", str(file)]) is None
