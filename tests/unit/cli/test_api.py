"""What a notebook calls: opening runs, files and URLs, analyses as objects, errors with a remedy."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import fsspec
import pandas as pd
import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.errors import BadInput, BadQuery, NotFound
from tb_sol_plugin.model.report import Report, UnavailableReport
from tests.conftest import ROOT
from tests.support.tiny import EVENTS, trace


def test_open_a_run_and_ask(tmp_path: Path) -> None:
    for worker in ("rank10", "rank2"):
        trace(tmp_path / "job" / f"{worker}.1.pt.trace.json.gz")
    run = sol.open(tmp_path)  # type: ignore[arg-type]
    assert run.name == "job" and [c.worker for c in run.captures] == ["rank2", "rank10"]
    report = run.captures[0].analyze("gpu_breakdown", communication_rule="narrow")
    assert isinstance(report, Report)
    table = report.table("devices")
    assert isinstance(table, pd.DataFrame) and table.attrs["units"]["busy_ns"] == "ns"
    assert report.facts["busy_ns"] == 30_000 and report.units["busy_ns"] == "ns"
    assert isinstance(report.findings, list)


def test_open_one_file_and_an_address(tmp_path: Path) -> None:
    capture = sol.open_capture(str(trace(tmp_path / "odd name.json")))
    assert capture.facts.total_events == 3 and capture.worker == "odd name"
    fs = fsspec.filesystem("memory")
    fs.pipe("/nb/job/a.json", json.dumps({"traceEvents": EVENTS}).encode())
    assert sol.open("memory://nb").captures[0].facts.total_events == 3
    assert sol.open_capture("memory://nb/job/a.json").facts.total_events == 3
    fs.store.clear()


def test_several_runs_warn_and_can_be_chosen(tmp_path: Path) -> None:
    for name in ("b", "a"):
        trace(tmp_path / name / "x.json")
    with pytest.warns(UserWarning, match="opened 'a'"):
        assert sol.open(str(tmp_path)).name == "a"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sol.open(str(tmp_path), run="b").name == "b"
    with pytest.raises(NotFound, match="no run 'c'"):
        sol.open(str(tmp_path), run="c")
    with pytest.raises(BadInput, match="more than one"):
        sol.open_capture(str(tmp_path))


def test_what_cannot_be_opened_says_why(tmp_path: Path) -> None:
    for path in (str(tmp_path), str(tmp_path / "no"), "memory://nothing/here", "nope://x/y"):
        with pytest.raises((BadInput, ValueError)) as error:
            sol.open(path)
        assert str(tmp_path) not in str(error.value)


def test_a_wrong_analysis_name_or_field_is_an_error(tmp_path: Path) -> None:
    capture = sol.open_capture(str(trace(tmp_path / "a.json", EVENTS[:1])))
    with pytest.raises(NotFound):
        capture.analyze("nope")
    with pytest.raises(BadQuery):
        capture.analyze("health", color="red")
    assert isinstance(capture.analyze("kernels"), UnavailableReport)


def test_cache_false_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TB_SOL_CACHE_DIR", str(tmp_path / "cache"))
    path = str(trace(tmp_path / "a.json"))
    assert len(sol.open(path, cache=False).captures) == 1
    assert not (tmp_path / "cache").exists()
    assert len(sol.open(path).captures) == 1
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_the_registry_is_described_whatever_was_imported_before() -> None:
    # the package `analyses` and the function `analyses` share their name: with and without an import of the package they give the answer
    for before in ("sol.analyses", "from tb_sol_plugin.analyses.time import kernels"):
        code = f"import tb_sol_plugin as sol; {before}; print('kernels' in sol.analyses())"
        assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout == "True\n"
    every = sol.analyses()
    assert set(every["gpu_breakdown"]["columns"]) == set(every["gpu_breakdown"]["sections"])
    assert {"step", "device_limits", "scope"} <= {f.name for f in every["gpu_breakdown"]["fields"]}


def test_importing_the_package_is_cheap() -> None:
    code = "import sys, tb_sol_plugin; print([m for m in ('numpy', 'pandas', 'flask', 'tensorboard', 'msgspec') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_ranks_of_a_run_are_compared_without_keeping_captures(tmp_path: Path) -> None:
    # GIVEN a run of twelve workers, two of them broken WHEN it is asked THEN all others answer, none is kept open, and parts are kept
    from tests.support.ranks import write_run

    folder = write_run(tmp_path / "job")
    run = sol.open(str(folder))
    first = run.analyze("memcpy_ranks")
    assert len(first.table("ranks")) == 20 and "captures" not in run.__dict__  # type: ignore[union-attr]
    assert sol.open(str(folder)).analyze("memcpy_ranks", what="bytes").facts == first.facts  # type: ignore[union-attr]
    # GIVEN an analysis of one capture THEN the run answers with its first, and opens that alone
    assert run.analyze("memcpy").facts["count"] == run.open(run.recordings[0]).analyze("memcpy").facts["count"]  # type: ignore[union-attr]
    assert "captures" not in run.__dict__
