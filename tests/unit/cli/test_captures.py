"""The command line on logdirs with SOL captures: what is listed, shown by default, told in a report, and said where nothing is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tb_sol_plugin.cli import command, doctor, main
from tests.support.sol_builder import SolBuilder, small
from tests.support.tiny import trace

Capsys = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TB_SOL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    """`alone` with a SOL capture that has a note; `both` with a trace of the same process beside one."""
    root = tmp_path / "logs"
    b = small()
    b.note("shared", "two modules share a name", 3)
    b.write(root / "alone" / b.name)
    b = small()
    b.write(root / "both" / b.name)
    trace(root / "both" / "node1_4242.1700000000000000000.pt.trace.json")
    return root


def test_doctor_counts_kinds_and_says_what_each_holds(logdir: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a logdir with two SOL captures, a trace, and a file of another version WHEN it is examined
    odd = SolBuilder(version=[9, 0])
    odd.write(logdir / "newer" / odd.name)
    monkeypatch.setattr(doctor, "_installed", lambda out: 0)
    status = main(["doctor", str(logdir)])
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    # THEN kinds are counted, iterations told, notes repeated, and what does not open is said
    assert any("4 recordings: 1 trace, 3 SOL captures in 3 runs" in line for line in lines)
    assert any(line.startswith("alone node1_rank0") and "SOL capture" in line and "3 iterations, 2 sampled" in line for line in lines)
    assert any(line.startswith("both node1_4242") and "trace + SOL capture" in line and "events, 3 iterations, 2 sampled" in line for line in lines)
    assert any("two modules share a name (3 times)" in line for line in lines)
    assert status == 1 and any(line.startswith("newer") and "9" in line for line in lines)


def test_a_trace_is_shown_rather_than_its_sol_log(logdir: Path, capsys: Capsys) -> None:
    # GIVEN both of one worker WHEN no worker is named THEN the trace is shown, with the capture's iterations
    assert main(["analyze", "iterations", str(logdir / "both")]) == 0
    out, err = capsys.readouterr()
    assert "showing worker node1_4242" in err and json.loads(out)["selection"]["worker"] == "node1_4242"
    assert json.loads(out)["headline"].startswith("3 iterations, 2 sampled")


def test_the_latest_span_is_shown_as_on_the_page(logdir: Path, capsys: Capsys) -> None:
    # GIVEN three traces of the capture's process WHEN no span is named, with and without the worker's name
    worker = "node1_4242"
    for start in ("1700000000000000100", "1700000000000000200"):
        trace(logdir / "both" / f"{worker}.{start}.pt.trace.json")
    for named in ([], ["--worker", worker]):
        assert main(["analyze", "overview", str(logdir / "both"), *named]) == 0
        # THEN the latest is: the page begins there too
        assert json.loads(capsys.readouterr().out)["selection"]["span"] == "1700000000000000200"


def test_iterations_as_text(logdir: Path, capsys: Capsys) -> None:
    assert main(["analyze", "iterations", str(logdir / "alone"), "--format", "text"]) == 0
    out = capsys.readouterr().out
    assert "3 iterations, 2 sampled: a step takes 8.00 ms (median)." in out.replace("\u202f", " ")
    assert "Step time ms" in out and "first" in out


def test_the_report_of_a_sol_log_groups_what_was_not_recorded(logdir: Path, capsys: Capsys) -> None:
    # GIVEN a SOL capture WHEN its report is printed THEN it says what it holds, has a line for iterations, and names alike lacks once
    assert main(["report", str(logdir / "alone")]) == 0
    out = capsys.readouterr().out.replace("\u202f", " ")
    assert "records, 3 iterations, 2 sampled" in out
    assert any(line.startswith("Iterations") and "3 iterations, 2 sampled" in line for line in out.splitlines())
    assert out.count("the job ran on a CPU: it has no kernels") == 1
    assert "GPU breakdown, Idle, Launches, Kernels, Frequent sequences, Waits and patterns, Single copies, Sizes: not available" in out
    assert "Memory copies: not available, copies were not counted" in out


def test_a_folder_without_recordings_names_both_ways_to_record(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN an empty logdir WHEN it is examined or asked THEN both ways to record stand there
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(doctor, "_installed", lambda out: 0)
    assert main(["doctor", str(tmp_path / "empty")]) == 1
    assert main(["report", str(tmp_path / "empty")]) == 1
    for text in capsys.readouterr():
        assert "tensorboard_trace_handler" in text and "tb_sol_plugin.capture(logdir, model=model)" in text


def test_a_trace_alone_is_status_3_with_the_call(tmp_path: Path, capsys: Capsys) -> None:
    assert command.main(["analyze", "iterations", str(trace(tmp_path / "w.json")), "--format", "text"]) == 3
    assert "sol.capture(logdir, model=model)" in capsys.readouterr().err
