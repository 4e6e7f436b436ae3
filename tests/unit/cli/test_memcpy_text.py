"""The summary of copies above the text report, in the form that Proton's memory copies have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tb_sol_plugin.cli import command
from tests.support.proton_profile import kernel, root, scope, serving, write
from tests.support.trace_builder import TraceBuilder

MIB = 1 << 20


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert command.main(["analyze", "memcpy", *map(str, arguments), "--format", "text"]) == 0
    return capsys.readouterr().out


def trace(path: Path, *copies: tuple[str, int | None], sets: int = 0, kernels: tuple[str, ...] = (), device: str = "NVIDIA H100 80GB HBM3") -> Path:
    t = TraceBuilder(device=device)
    t.step(1, 0, 100_000)
    at = 1_000
    for direction, size in copies:
        t.copy(direction, at, 500, bytes=size, src="Pinned" if direction != "QtoZ" else "Q", dst="Device", call=(at - 500, 50))
        at += 1_000
    for _ in range(sets):
        t.memset(at, 100, bytes=64, call=(at - 500, 50))
        at += 1_000
    for name in kernels:
        t.launch(name, at=at - 500, start=at, duration=100)
        at += 1_000
    return t.write(path / "w.1700000000000000000.pt.trace.json")


def test_the_lines_are_those_of_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN two copies of 4 MiB to the device, one back, one inside of it, and two sets WHEN told as text
    file = trace(tmp_path, ("HtoD", 4 * MIB), ("HtoD", 4 * MIB), ("DtoH", 4 * MIB), ("DtoD", 4 * MIB), sets=2)
    # THEN exactly these lines, sets left out, then what their unit is, and the usual text
    assert said(capsys, file).startswith(
        "Memory copy operations detected: 4\n"
        "- HostToDevice: 2 operations, total 8.0 MB\n"
        "- DeviceToHost: 1 operations, total 4.0 MB\n"
        "- DeviceToDevice: 1 operations, total 4.0 MB\n"
        "\n"
        "MB above is 1,048,576 bytes (--unit mb: 1,000,000), and 1,000,000 below.\n"
        "\n"
        "Memory copies\n"
    )


@pytest.mark.parametrize(("unit", "total"), [("mib", "9.5"), ("mb", "10.0")])
def test_the_unit_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], unit: str, total: str) -> None:
    # GIVEN 10,000,000 bytes WHEN told THEN 9.5 in units of 1,048,576 bytes, 10.0 in units of 1,000,000
    out = said(capsys, trace(tmp_path, ("HtoD", 10_000_000)), "--unit", unit)
    assert out.splitlines()[1] == f"- HostToDevice: 1 operations, total {total} MB"
    assert ("1,048,576" in out) == (unit == "mib")


def test_every_direction_in_its_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN one copy of each direction, backwards WHEN told THEN in the document's order, what is not known last
    file = trace(tmp_path, *((d, MIB) for d in ("QtoZ", "PtoP", "HtoH", "DtoD", "DtoH", "HtoD")))
    lines = said(capsys, file).splitlines()[1:7]
    words = ("HostToDevice", "DeviceToHost", "DeviceToDevice", "HostToHost", "PeerToPeer", "Unknown")
    assert lines == [f"- {word}: 1 operations, total 1.0 MB" for word in words]


def test_copies_without_a_size_are_named_after_the_sum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = trace(tmp_path, ("HtoD", 2 * MIB), ("HtoD", None), ("DtoH", None))
    assert said(capsys, file).splitlines()[1:3] == [
        "- HostToDevice: 2 operations, total 2.0 MB, 1 carry no size", "- DeviceToHost: 1 operations, total 0.0 MB, 1 carry no size",
    ]  # fmt: skip


def test_small_sums_are_not_printed_as_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN 64 bytes WHEN told THEN with two digits that count: 64 / 1,048,576 = 0.000061
    assert said(capsys, trace(tmp_path, ("DtoH", 64))).splitlines()[1] == "- DeviceToHost: 1 operations, total 0.000061 MB"


def test_copies_that_ran_as_a_kernel_have_no_direction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN a copy that ROCm runs as a kernel, which says neither direction nor size WHEN told THEN it counts as unknown
    file = trace(tmp_path, ("HtoD", MIB), kernels=("__amd_rocclr_copyBuffer", "gemm"), device="AMD Instinct MI300X")
    assert said(capsys, file).splitlines()[:3] == [
        "Memory copy operations detected: 2", "- HostToDevice: 1 operations, total 1.0 MB",
        "- Unknown: 1 operations, total 0.0 MB, 1 carry no size",
    ]  # fmt: skip


def test_copies_counted_by_the_recorder_print_the_same_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN a profile with copies summed by frame WHEN told THEN by direction: 16 + 4 to the device, 64 MiB of known size
    out = said(capsys, write(tmp_path / "p.hatchet", serving()))
    assert out.splitlines()[:4] == [
        "Memory copy operations detected: 68", "- HostToDevice: 20 operations, total 64.0 MB, 4 carry no size",
        "- DeviceToHost: 16 operations, total 0.000061 MB",
        "- DeviceToDevice: 32 operations, total 64.0 MB",
    ]  # fmt: skip


def test_the_machine_readable_form_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN copies WHEN asked for as JSON THEN counts and bytes by direction stand in its facts, without a summary before them
    file = trace(tmp_path, ("HtoD", 4 * MIB), ("HtoD", 4 * MIB), ("DtoH", 4 * MIB))
    assert command.main(["analyze", "memcpy", str(file)]) == 0
    body = json.loads(capsys.readouterr().out)
    facts = {k: v for s in body["sections"] if s["kind"] == "facts" for k, v in s["values"].items()}
    assert (facts["htod_count"], facts["htod_bytes"], facts["dtoh_count"], facts["dtoh_bytes"]) == (2, 8 * MIB, 1, 4 * MIB)


def test_one_section_and_other_analyses_have_no_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = trace(tmp_path, ("HtoD", MIB), kernels=("k",))
    assert command.main(["analyze", "kernels", str(file), "--format", "text"]) == 0
    assert "operations detected" not in capsys.readouterr().out
    assert command.main(["analyze", "memcpy", str(file), "--format", "text", "--section", "facts"]) == 0
    assert "operations detected" not in capsys.readouterr().out


def test_without_device_work_there_is_an_explanation_and_no_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    t = TraceBuilder(device="")
    t.op("aten::mm", 0, 1_000)
    assert command.main(["analyze", "memcpy", str(t.write(tmp_path / "w.1.pt.trace.json")), "--format", "text"]) == 3
    out, err = capsys.readouterr()
    assert "detected" not in out + err and "not available" in out + err


def test_an_export_is_written_whole_or_not_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN a profile WHEN exported to a file THEN the file is the profile and nothing else lies beside it; to stdout likewise
    file = write(tmp_path / "in" / "p.hatchet", root(scope("a", [kernel("k", 5, 2)])))
    target = tmp_path / "out" / "x.hatchet"
    target.parent.mkdir()
    assert command.main(["export", "hatchet", str(file), "-o", str(target)]) == 0
    assert [p.name for p in target.parent.iterdir()] == ["x.hatchet"] and "wrote" in capsys.readouterr().err
    assert command.main(["export", "hatchet", str(file)]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(target.read_text())
    # AND where it cannot be written, or the form is unknown, one line says so
    assert command.main(["export", "hatchet", str(file), "-o", str(tmp_path / "no" / "x")]) == 2
    assert capsys.readouterr().err.startswith("tb-sol: cannot write")
    with pytest.raises(SystemExit):
        command.main(["export", "svg", str(file)])
