"""The command line: what goes to stdout, what to stderr, with which exit status."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import fsspec
import pytest
from rich.console import Console

from tb_sol_plugin.cli import command as cli
from tb_sol_plugin.cli import doctor
from tb_sol_plugin.cli import text as cli_text
from tb_sol_plugin.model.registry import registry
from tb_sol_plugin.model.report import Column, FactsSection, Mark, Report, Sort, TableSection, TreeSpec
from tests.conftest import ROOT
from tests.support.graphs import replay
from tests.support.tiny import EVENTS, trace
from tests.support.trace_builder import TraceBuilder

Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return trace(tmp_path / "logs" / "job" / "rank0.1.pt.trace.json.gz")


def run(*arguments: object) -> int:
    try:
        return cli.main([str(a) for a in arguments])
    except SystemExit as end:
        return int(end.code or 0)


# -- analyze ---------------------------------------------------------------------------------------------------------


def test_analyze_prints_the_json_of_the_report(file: Path, capsys: Capsys) -> None:
    # GIVEN a recording with one kernel of 30 µs WHEN its breakdown is asked for THEN contract-shaped JSON on stdout, nothing on stderr
    assert run("analyze", "gpu_breakdown", file) == 0
    out, err = capsys.readouterr()
    body = json.loads(out, parse_constant=lambda c: pytest.fail(c))
    assert err == "" and body["analysis"] == "gpu_breakdown" and body["available"] is True and body["title"]
    assert body["selection"] == {"worker": "rank0", "span": "1"}
    (devices,) = [s for s in body["sections"] if s["id"] == "devices"]
    assert devices["kind"] == "table" and set(devices["columns"][1]) >= {"name", "label", "unit", "doc"}
    at = devices["data"]["device"].index("all")
    assert devices["data"]["total_ns"][at] == devices["data"]["busy_ns"][at] == 30_000


@pytest.mark.parametrize("name", list(registry()))
@pytest.mark.parametrize("form", ["json", "csv", "text"])
def test_every_analysis_in_every_format(file: Path, capsys: Capsys, name: str, form: str) -> None:
    status = run("analyze", name, file, "--format", form)
    out, err = capsys.readouterr()
    assert status in (0, 3)
    if status == 0:
        assert out and err == ""
        assert "NaN" not in out and "Infinity" not in out
    elif form == "json":
        assert json.loads(out)["available"] is False and err == ""
    else:
        assert out == "" and err.count("\n") == 1


@pytest.mark.parametrize("what", ["logdir", "run", "file", "url", "memory"])
def test_a_path_may_be_a_logdir_a_run_a_file_or_a_url(file: Path, capsys: Capsys, what: str) -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe("/cli/job/rank0.json", json.dumps({"traceEvents": EVENTS}).encode())
    paths = {"logdir": file.parent.parent, "run": file.parent, "file": file, "url": f"file://{file}", "memory": "memory://cli/job"}
    assert run("analyze", "health", paths[what]) == 0
    body = json.loads(capsys.readouterr().out)
    (facts,) = [s for s in body["sections"] if s["kind"] == "facts" and "total_events" in s["values"]]
    assert facts["values"]["total_events"] == 3
    fs.store.clear()


def test_query_fields_are_flags_in_both_spellings(file: Path, capsys: Capsys) -> None:
    for flag in ("--communication-rule", "--communication_rule"):
        assert run("analyze", "gpu_breakdown", file, flag, "narrow") == 0
        assert json.loads(capsys.readouterr().out)["selection"]["communication_rule"] == "narrow"


def test_no_query_field_hides_a_flag_of_ours() -> None:
    for item in registry().values():
        assert not {f.name for f in item.fields} & set(cli.OWN_FLAGS), item.name


def test_one_section_is_printed_as_csv(file: Path, capsys: Capsys) -> None:
    assert run("analyze", "gpu_breakdown", file, "--format", "csv", "--section", "devices") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert rows[0]["device"] == "all" and rows[0]["busy_ns"] == "30000"


def test_unavailable_is_status_3(tmp_path: Path, capsys: Capsys) -> None:
    # GIVEN a recording without device events WHEN a device analysis is asked for THEN status 3 and why
    path = trace(tmp_path / "cpu.json", EVENTS[:1])
    assert run("analyze", "gpu_breakdown", path) == 3
    body = json.loads(capsys.readouterr().out)
    assert body["available"] is False and body["because"] and body["record_it_with"] and "sections" not in body


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["analyze"], 2, "NAME"),
        (["analyze", "nope", "x"], 2, "nope"),
        (["analyze", "health"], 2, "PATH"),
        (["analyze", "health", "/not/there"], 1, "no such file"),
        (["analyze", "gpu_breakdown", "FILE", "--scope", "some"], 2, "some"),
        (["analyze", "gpu_breakdown", "FILE", "--step", "x y"], 2, "step"),
        (["analyze", "health", "FILE", "--color", "red"], 2, "color"),
        (["analyze", "health", "FILE", "--format", "csv", "--section", "nope"], 2, "nope"),
        (["analyze", "health", "FILE", "--worker", "nope"], 1, "nope"),
        (["analyze", "health", "LOGDIR", "--run", "nope"], 1, "nope"),
        (["analyze", "health", "EMPTY"], 1, "no recording found"),
        (["analyze", "health", "BROKEN"], 1, "broken.json"),
        (["nope"], 2, "nope"),
        ([], 2, "COMMAND"),
        (["report", "/not/there"], 1, "no such file"),
        (["serve", "/not/there"], 1, "no such directory"),
        (["serve", ".", "--load-seconds", "-1"], 2, "from 0 to a billion"),
        (["serve", ".", "--memory-gb", "nan"], 2, "from 0 to a billion"),
    ],
)
def test_errors_are_one_line_on_stderr(file: Path, tmp_path: Path, capsys: Capsys, arguments: list[str], status: int, words: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.json").write_bytes(b"\x00\x01\x02")
    places = {"FILE": file, "LOGDIR": file.parent.parent, "EMPTY": tmp_path / "empty", "BROKEN": tmp_path / "broken.json"}
    assert run(*(places.get(a, a) for a in arguments)) == status
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and words in err and "Traceback" not in err
    assert str(tmp_path) not in err


def test_several_runs_and_workers_are_mentioned(file: Path, capsys: Capsys) -> None:
    trace(file.parent / "rank1.1.pt.trace.json")
    trace(file.parent.parent / "other" / "x.json")
    assert run("analyze", "health", file.parent.parent) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["selection"]["run"] == "job" and "2 runs here, showing job" in err and "2 recordings" in err
    assert run("analyze", "health", file.parent.parent, "--run", "job", "--worker", "rank1", "--span", "1") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["selection"] == {"run": "job", "worker": "rank1", "span": "1"} and err == ""


def test_the_module_runs_and_a_closed_pipe_is_no_crash(file: Path) -> None:
    command = f"{sys.executable} -m tb_sol_plugin.cli analyze health {file} | head -c 1"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "{" and "Traceback" not in done.stderr


# -- report, doctor, serve -------------------------------------------------------------------------------------------


def test_report_tells_the_whole_story(file: Path, capsys: Capsys) -> None:
    assert run("report", file) == 0
    out, err = capsys.readouterr()
    assert err == "" and "rank0" in out
    for item in registry().values():
        if item.name != "links" and item.scope == "capture":  # the story of one recording
            assert item.title in out, item.name
    assert "failed" not in out


def test_report_of_a_serving_trace_tells_its_iterations_too(tmp_path: Path, capsys: Capsys) -> None:
    # GIVEN decode of an engine, its graph 300 us late WHEN reported THEN serving is told with its findings, kinds and parts, not as one line
    replay(t := TraceBuilder(), [(("aten::mm", "gemm", 400_000),)], 0, 301_000)
    assert run("report", str(t.write(tmp_path / "w.pt.trace.json"))) == 0
    out = capsys.readouterr().out
    story, pages = out.split("Every page in a sentence")
    for text in ("A decode iteration takes", "Graphs start long after they are launched", "By kind", "What the device time is spent on"):
        assert text in story and text not in pages


def test_names_from_a_recording_do_not_steer_the_terminal(tmp_path: Path, capsys: Capsys) -> None:
    # GIVEN an operator and a kernel whose names hold escape sequences WHEN shown as text THEN none of them arrives
    name = "\x1b]0;owned\x07\x1b[2J[red]x[/red]\u202egpj"
    events = [{**e, "name": name} if e["cat"] != "cuda_runtime" else e for e in EVENTS]
    path = trace(tmp_path / "a.json", events)
    for command in (["report", path], ["analyze", "kernels", path, "--format", "text"], ["analyze", "operators", path, "--format", "text"]):
        run(*command)
        out = capsys.readouterr().out
        assert "\x1b" not in out and "\x07" not in out and "\u202e" not in out
    assert "[red]x[/red]" in out


def test_doctor_says_what_was_found_and_what_not(file: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    (file.parent / "config.json").write_text('{"a": 1}')
    (file.parent / "broken.pt.trace.json").write_bytes(b"\x00\x01")
    monkeypatch.setattr(doctor, "_installed", lambda out: 0)
    assert run("doctor", file.parent.parent) == 1
    out = capsys.readouterr().out
    assert "2 recordings in 1 run (" in out and "3 events" in out and "config.json" in out and "broken" in out
    assert "cache" in out and "devices known" in out


def test_doctor_knows_a_missing_package(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: "" if name == "pyarrow" else "1")
    run("doctor")
    assert "pyarrow         MISSING" in capsys.readouterr().out


def _has_children(pid: int) -> bool:
    """Whether a process of this Linux machine has started another one."""
    for found in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if found.read_text(errors="replace").rpartition(")")[2].split()[1] == str(pid):
                return True
    return False


def test_serve_listens_and_answers(file: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tb_sol_plugin.cli", "serve", str(file.parent.parent), "--port", "0", "--memory-gb", "2", "--load-seconds", "600"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ},
        # a background job of a shell ignores Ctrl-C, and so would its children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        # a process that will read starts while the browser loads the page: before anything is asked
        waited_until = time.monotonic() + 60
        while sys.platform == "linux" and not _has_children(process.pid):
            assert time.monotonic() < waited_until
            time.sleep(0.01)
        with urllib.request.urlopen(f"{address}api/v1/analysis/health?run=job&wait=30", timeout=120) as reply:
            assert json.load(reply)["available"] is True
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 0 and "Traceback" not in err


# -- text ------------------------------------------------------------------------------------------------------------


def shown(report: Report, **more: int) -> str:
    out = Console(width=120, record=True, file=io.StringIO(), color_system=None)
    cli_text.print_report(out, report, **more)
    return out.export_text()


def test_a_table_has_one_unit_per_column_and_keeps_its_order() -> None:
    # GIVEN times of 1.5 ms, 20 µs and 300 ns, an unknown, a total, rows that come last
    columns = [Column("name", "Name"), Column("t", "Time", "ns"), Column("share", "Share", "ratio"), Column("hid", "Hidden", rank=3)]
    table = TableSection(
        id="t", title="T", columns=columns, key="name", sort=Sort("t"), last=["(none)"],
        data={"name": ["a", "(none)", "c", "d"], "t": [20_000, 9_000_000, 1_500_000, None], "share": [0.5, 0.1, 0.25, None], "hid": [1, 2, 3, 4]},
        total={"name": "All", "t": 10_520_000}, marks={"t": {"2": Mark("estimated", "why")}},
    )  # fmt: skip
    lines = [
        line.split()
        for line in shown(Report(analysis="x", title="X", headline="**3** rows", sections=[table])).splitlines()
        if line.strip()
    ]
    assert ["Name", "Time", "ms", "Share", "%"] in lines
    names = [line[0] for line in lines]
    assert names.index("All") < names.index("c") < names.index("a") < names.index("d") < names.index("(none)")
    assert ["c", "≈", "1.50", "25.0"] in lines and ["a", "0.02", "50.0"] in lines and ["d", "—", "—"] in lines
    assert ["3", "rows"] in lines and "Hidden" not in str(lines)


def test_columns_of_times_have_one_unit_and_zero_is_zero() -> None:
    # GIVEN a step of 4.43 ms, its limit of 27.4 µs, no communication, and a mean call of 3 µs
    columns = [Column("t", "Time", "ns"), Column("c", "Comm.", "ns"), Column("s", "Limit", "ns"), Column("m", "Mean", "ns", per="call")]
    table = TableSection(id="t", title="T", columns=columns, key="t", data={"t": [4_430_000], "c": [0], "s": [27_370], "m": [3_000]})
    lines = [line.split() for line in shown(Report(analysis="x", title="X", headline="", sections=[table])).splitlines()]
    # THEN the first three are in ms, with the digits of each, and the call in its own unit
    assert ["Time", "ms", "Comm.", "ms", "Limit", "ms", "Mean", "µs"] in lines
    assert ["4.43", "0", "0.0274", "3.00"] in lines


def test_rates_of_a_link_keep_their_digits_beside_those_of_a_memory() -> None:
    # GIVEN two rates of a memory and two of links WHEN shown THEN all in GB/s; two of a memory alone in TB/s
    columns = [Column("name", "Name"), Column("rate", "Rate", "B/s")]
    for rates, unit, first in (([1.753e12, 1.39e12, 39.2e9, 11.06e9], "GB/s", "1753.0"), ([1.753e12, 1.39e12], "TB/s", "1.75")):
        table = TableSection(
            id="t", title="T", columns=columns, key="name", sort=Sort("rate"), data={"name": list("abcd")[: len(rates)], "rate": rates}
        )
        lines = [line.split() for line in shown(Report(analysis="x", title="X", sections=[table])).splitlines()]
        assert ["Name", "Rate", unit] in lines and "".join(next(x for x in lines if x[:1] == ["a"])[1:]).replace("\u202f", "") == first
        assert unit == "TB/s" or ["d", "11.1"] in lines


def test_a_tree_is_indented_and_long_tables_say_so() -> None:
    columns = [Column("name", "Name", show="tree"), Column("id", "Id"), Column("parent", "Parent")]
    data: dict[str, list[str | int | float | bool | None]] = {"name": ["root", "child", "leaf"], "id": [0, 1, 2], "parent": [None, 0, 1]}
    text = shown(
        Report(analysis="x", title="X", sections=[TableSection(id="t", title="T", columns=columns, data=data, tree=TreeSpec())]), rows=2
    )
    assert "\n   child" in text and "leaf" not in text and "2 of 3 rows" in text


def test_facts_carry_units_and_unknowns() -> None:
    facts = FactsSection(
        id="f", title="F", values={"busy_ns": 1_500_000, "gone": None, "on": True, "secret": 1}, units={"busy_ns": "ns"},
        labels={"busy_ns": "Busy"}, hidden=["secret"],
    )  # fmt: skip
    text = shown(Report(analysis="x", title="X", sections=[facts]))
    assert "1.50\u202fms" in text and "Gone  —" in text and "yes" in text and "Secret" not in text


def test_no_line_ends_within_a_number_or_before_its_unit() -> None:
    # GIVEN a sentence of times above a thousand WHEN it is printed at any width THEN each stays on one line, with its no-break spaces
    text = "it idles " + " and ".join(["**1\u202f068\u202fms**"] * 12)
    for width in range(30, 60):
        out = cli_text.Terminal(width=width, record=True, file=io.StringIO(), color_system=None)
        out.print(cli_text.prose(text))
        lines = out.export_text().splitlines()
        assert sum(line.count("1\u202f068\u202fms") for line in lines) == 12 and len(lines) > 2


def test_a_long_name_keeps_both_ends() -> None:
    name = "void " + "x" * 100 + "_float32"
    assert cli_text.shortened(name).startswith("void x") and cli_text.shortened(name).endswith("_float32")
    assert len(cli_text.shortened(name)) == cli_text.LONGEST


# -- over the workers of a run ---------------------------------------------------------------------------------------


def test_ranks_of_a_run_are_compared_in_every_format(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a run of twelve workers WHEN it is asked for THEN JSON, CSV and text tell all of them, whatever --worker says
    from tests.support.ranks import write_run

    folder = write_run(tmp_path / "job")
    assert run("analyze", "memcpy_ranks", folder) == 0
    out, err = capsys.readouterr()
    body = json.loads(out)
    assert err == "" and next(s for s in body["sections"] if s["id"] == "facts")["values"]["workers_read"] == 10
    assert run("analyze", "memcpy_ranks", folder, "--worker", "rank7", "--format", "csv", "--section", "ranks") == 0
    assert len(list(csv.reader(io.StringIO(capsys.readouterr().out)))) == 21
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert run("analyze", "memcpy_ranks", folder, "--format", "text", "--what", "exposed", "--no-cache") == 0
    out, err = capsys.readouterr()
    assert "Workers left out" in out and "rank8" in out and "Host to device: rank 7" in out
    assert "reading worker 1 of 12" in err and err.endswith("\r\033[K")


def test_one_file_is_too_few_ranks_to_compare(tmp_path: Path, capsys: Capsys) -> None:
    from tests.support.ranks import rank_trace

    assert run("analyze", "memcpy_ranks", rank_trace(0).write(tmp_path / "rank0.json"), "--format", "text") == 3
    assert "one worker here" in capsys.readouterr().err


def test_everything_that_can_be_asked_is_on_one_page(capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN `tb-sol --help-all` WHEN printed THEN every command with its flags, every analysis with its options and columns is there
    assert cli.main(["--help-all"]) == 0
    page = capsys.readouterr().out
    for name in cli.COMMANDS:
        assert f"COMMAND tb-sol {name}\n" in page
    for name, item in registry().items():
        assert f"ANALYSIS {name}: {item.title}. " in page
    for text in ("--html FILE", "--metric", "--section ID", "column total_ns [ns]: ", "option --group-by (", "4  check: regression"):
        assert text in page
    assert page.count("option --device-limits") == 1


def test_help_of_analyze_has_a_line_of_each_and_imports_none(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN the registry WHEN help is asked for without it THEN a line per analysis stands there, with its title and question
    every = {name: f"{item.title}: {item.question}" for name, item in registry().items()}
    assert cli.listed() == every
    monkeypatch.setitem(sys.modules, "tb_sol_plugin.model.registry", None)
    assert run("analyze", "--help") == 0
    page = capsys.readouterr().out
    assert all(f"  {name:<18} {text}\n" in page for name, text in every.items())
    # AND without a name the status is that of bad usage
    assert run("analyze") == 2 and "NAME" in capsys.readouterr().err
