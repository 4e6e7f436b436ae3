"""What agents are told: small answers whose numbers are those of the reports, each with its unit, its analysis and how much is shown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tb_sol_plugin.agent import answers
from tb_sol_plugin.agent.answers import Recordings, amount, explain, rows_of
from tb_sol_plugin.cli.command import main
from tb_sol_plugin.errors import BadQuery, NotFound
from tb_sol_plugin.model.registry import registry
from tb_sol_plugin.model.report import Column, TableSection
from tests.conftest import ROOT
from tests.support.tiny import EVENTS, trace

TRAIN = "simulated_gpu_train"


@pytest.fixture(scope="module")
def samples() -> Recordings:
    return Recordings(str(ROOT / "samples"))


def size(answer: dict[str, Any]) -> int:
    return len(json.dumps(answer, ensure_ascii=False, indent=2))


def test_every_analysis_answers_within_its_bound(samples: Recordings) -> None:
    # GIVEN every analysis of a sample WHEN asked THEN each answers or says what to record, in at most the usual number of characters
    listed = samples.list_analyses(TRAIN)
    assert listed["total"] == len(registry()) and size(listed) <= answers.USUAL
    for name in registry():
        if name in ("trend", "compare", "scaling", "scaling_cluster", "groups"):  # over other runs
            continue
        found = samples.analyze(name, TRAIN)
        assert size(found) <= answers.USUAL and found["analysis"] == name
        if found.get("available") is False:
            assert found["because"]
        elif "table" in found:
            table = found["table"]
            assert table["analysis"] == name and len(table["rows"]) <= table["passing_rows"] <= table["total_rows"]
            assert len(table["columns"]) <= answers.COLUMNS and all(len(row) == len(table["columns"]) for row in table["rows"])
            assert len(table["rows"]) <= answers.ROWS
    # AND asked for as much as there is, it stops at the hard limit and says so
    most = samples.analyze("operators", TRAIN, limit=10**6, most=10**9)
    assert answers.USUAL < size(most) <= answers.MOST and len(most["table"]["rows"]) > answers.ROWS
    assert most["table"]["truncated"] == (len(most["table"]["rows"]) < most["table"]["passing_rows"])


def test_rows_of_a_table(samples: Recordings) -> None:
    # GIVEN the kernels of a sample WHEN the longest three of a name are asked for THEN they are exact, read as a person does, and counted
    found = samples.analyze("kernels", TRAIN, table="kernels", columns=["name", "total_ns"], where={"name": "GEMM"}, sort="-total_ns", limit=1)
    report = samples.capture(TRAIN, "").analyze("kernels").table("kernels")
    of_name = report[report["name"].str.contains("gemm")].sort_values("total_ns", ascending=False)
    table = found["table"]
    assert table["rows"] == [[of_name["name"].iloc[0], of_name["total_ns"].iloc[0]]] and table["passing_rows"] == len(of_name)
    assert table["truncated"] and "limit" in table["more"] and "facts" not in found
    assert table["share_of_whole"] == {"total_ns": round(of_name["total_ns"].iloc[0] / report["total_ns"].sum(), 4)}
    assert [c["unit"] for c in table["columns"]] == ["", "ns"] and table["as_read"] == [["total_ns = 106.1\u202fµs"]]
    # AND numbers between bounds, and a text that nothing contains
    some = samples.analyze("kernels", TRAIN, table="kernels", where={"total_ns": "100000~200000"})["table"]
    assert some["passing_rows"] == int(((report["total_ns"] > 100_000) & (report["total_ns"] < 200_000)).sum()) > 0
    assert samples.analyze("kernels", TRAIN, table="kernels", where={"name": "no such kernel"})["table"]["rows"] == []


def test_unknown_stays_unknown_and_long_answers_are_cut() -> None:
    assert amount(None, "ns") == {"value": None, "text": "unknown"} and amount(1_500_000, "ns")["text"] == "1.50\u202fms"
    section = TableSection(
        id="t", title="T", columns=[Column("n", "N"), Column("v", "V", "ns")], data={"n": ["ü" * 20_000, "b"], "v": [None, 2]}, key="n"
    )
    rows = rows_of("x", section)["rows"]
    assert len(rows[0][0]) == answers.LONGEST + 1 and rows[0][1] is None
    cut = answers.cut({"table": {"rows": [["x" * 50]] * 400}}, 2_000, "table", "rows")
    assert size(cut) <= 2_200 and cut["table"]["truncated"] and "2,000 characters" in cut["table"]["more"] and cut["table"]["rows"]


def test_definitions_of_numbers() -> None:
    found = explain("MFU")
    assert found["definitions"][0]["name"] == "mfu" and "dense peak" in found["definitions"][0]["meaning"]
    with pytest.raises(NotFound, match=r"no number is called 'mf'.*"):
        explain("mf")


def test_what_to_record(samples: Recordings) -> None:
    # GIVEN a question that a recording has data for, and one that it has none for
    found = samples.recommend_recording("which memory copies are slow", TRAIN)["analyses"]
    assert found[0]["analysis"].startswith("memcpy") and found[0]["available"]
    lacking = samples.recommend_recording("serving: prefill and decode iterations of tokens", TRAIN)["analyses"]
    serving = next(one for one in lacking if one["analysis"] == "serving")
    assert not serving["available"] and serving["because"] and serving["record"]


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("nothing", {}),
        ("kernels", {"run": "../../etc"}),
        ("kernels", {"worker": "/etc/passwd"}),
        ("kernels", {"options": {"device_limits": "/etc/passwd"}}),
        ("kernels", {"options": {"group_by": "nothing"}}),
        ("kernels", {"options": {"nothing": "1"}}),
        ("kernels", {"table": "nothing"}),
        ("kernels", {"table": "kernels", "columns": ["nothing"]}),
        ("kernels", {"table": "kernels", "where": {"total_ns": "a~b"}}),
        ("kernels", {"table": "kernels", "sort": "-nothing"}),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, name: str, more: dict[str, Any]) -> None:
    here = Recordings(str(trace(tmp_path / "logs" / "run" / "a.json").parent.parent))
    trace(tmp_path / "outside" / "b.json", EVENTS)
    with pytest.raises((BadQuery, NotFound)):
        here.analyze(name, **more)
    with pytest.raises(NotFound):
        here.compare("run", "../outside")


def test_no_field_names_a_file_and_one_file_is_a_logdir(tmp_path: Path) -> None:
    here = Recordings(str(trace(tmp_path / "a.json")))
    local = [(item.name, field) for item in registry().values() for field in item.query.LOCAL]
    for name, field in local:
        with pytest.raises(BadQuery, match="names a file"):
            here.analyze(name, options={field: "/etc/passwd"})
    assert local and here.list_runs()["total"] == 1 and here.page("", "kernels").startswith("### Kernels")


def test_the_command_without_the_sdk_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace(tmp_path / "a.json")
    monkeypatch.setitem(sys.modules, "tb_sol_plugin.agent.server", None)
    assert main(["mcp", str(tmp_path)]) == 1 and 'pip install "tb_sol_plugin[mcp]"' in capsys.readouterr().err
    assert main(["mcp", str(tmp_path / "none")]) == 1 and "no such file" in capsys.readouterr().err
