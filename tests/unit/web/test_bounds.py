"""No answer is larger than 20 MB, and what it leaves out is said in it; small answers are as they were."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.model.report import Column, FigureSection, Link, Report, TableSection, UnavailableReport, encode
from tb_sol_plugin.web import listings, tables, wire
from tb_sol_plugin.web.bounds import MOST_ANSWER, bounded
from tb_sol_plugin.web.listings import within
from tests.support.trace_builder import TraceBuilder


def _table(rows: int, text: str = "", **more: object) -> TableSection:
    names = [f"{text}{i}" for i in range(rows)]
    return TableSection(
        id="rows", title="Rows", columns=[Column("name", "Name", show="code"), Column("n", "N")],
        data={"name": names, "n": list(range(rows))}, key="name", row_links={str(i): Link("kernels") for i in range(0, rows, 1000)}, **more,
    )  # fmt: skip


def _report(*sections: object) -> Report:
    return Report(analysis="a", title="A", sections=[*sections])


def _figure(points: int, text: str = "") -> FigureSection:
    return FigureSection(
        id="figure", title="Figure", figure={"data": [{"x": list(range(points)), "customdata": [f"{text}{i}" for i in range(points)]}]}
    )


def test_a_report_that_fits_is_the_plain_one() -> None:
    # GIVEN reports of tables and figures WHEN bounded, whole or in pages THEN nothing differs from the plain JSON
    for report in (_report(), _report(_table(10)), _report(_table(1_000), _figure(10))):
        assert bounded(report) == encode(report) == tables.in_pages(report, "v")[0]


def test_a_whole_table_above_the_bound_has_its_first_rows_and_says_how_many_are_missing() -> None:
    # GIVEN a table of 600,000 rows of 60 characters WHEN sent whole THEN below 20 MB, the first rows, and the rest is counted
    body = bounded(_report(_figure(3), _table(600_000, "k" * 60)))
    assert MOST_ANSWER / 2 < len(body) <= MOST_ANSWER
    found = json.loads(body)
    figure, table = found["sections"]
    kept = len(table["data"]["n"])
    assert table["data"]["n"] == list(range(kept)) and table["truncated"] == 600_000 - kept and "error" not in figure
    assert max(map(int, table["row_links"])) < kept
    assert f"{600_000 - kept:,} of 600,000 rows of “Rows”" in found["notices"][-1]["text"]


def test_long_texts_are_cut_in_the_middle_and_stay_different() -> None:
    # GIVEN 50 rows whose names share 1 MB and differ at one place in the middle
    names = ["a" * 500_000 + str(i) + "b" * 500_000 for i in range(50)]
    table = TableSection(id="rows", title="Rows", columns=[Column("name", "Name")], data={"name": names}, key="name")
    # WHEN sent whole and in pages THEN all rows are there, each with its own short name
    for body in (bounded(_report(table)), tables.in_pages(_report(table), "v")[0]):
        found = json.loads(body)
        assert len(body) < 1_000_000
        assert len(set(found["sections"][0]["data"]["name"])) == 50 and "50 texts" in found["notices"][-1]["text"]


def test_a_figure_above_the_bound_is_left_out_with_a_sentence_and_the_rest_stays() -> None:
    # GIVEN a figure of a million named points beside a table WHEN sent in pages THEN the table is there, and a sentence stands for the figure
    body, _ = tables.in_pages(_report(_figure(1_000_000, "n" * 30), _table(5_000)), "v")
    found = json.loads(body)
    figure, table = found["sections"]
    assert len(body) < MOST_ANSWER and table["pages"]["rows"] == 5_000
    assert "MB, more than an answer may have" in figure["error"] and "“Figure”" in found["notices"][-1]["text"]


def test_what_has_no_answer_has_no_pages() -> None:
    # GIVEN a report that is not available WHEN put in pages THEN it is sent as it is
    missing = UnavailableReport(analysis="a", title="A", because="nothing", record_it_with="")
    assert tables.in_pages(missing, "v") == (encode(missing), {})


def test_of_too_many_runs_the_first_are_listed_and_the_others_counted() -> None:
    # GIVEN 30 runs of 4 workers with long names WHEN they may have so many bytes
    runs = [wire.Run(f"run{i:02}", [wire.Worker(f"{k}" * 100, None, []) for k in range(4)]) for i in range(30)]
    whole = len(encode_all(runs))
    assert within(runs, whole + 30) == (runs, [])
    for most in (0, 100, whole // 30 - 100, whole // 2, whole - 100):
        found, said = within(runs, most)
        # THEN the answer fits, what is there is the beginning, and the rest is counted
        shown = [worker for run in found for worker in run.workers]
        assert len(encode_all(found)) <= most + 2
        assert shown == [worker for run in runs for worker in run.workers][: len(shown)]
        assert said[0].startswith(f"{120 - len(shown)} of 120 workers are not listed") and len(said) == 1
    assert len(shown) > 110


def test_of_too_many_steps_the_first_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a recording of nine steps, where five may be listed WHEN its analyses are listed THEN five steps come with them
    trace = TraceBuilder()
    for number in range(9):
        trace.step(number, number * 1_000, 900)
    capture = ingest.read(str(trace.write(tmp_path / "w.pt.trace.json")))
    monkeypatch.setattr(listings, "MOST_STEPS", 5)
    assert [step.number for step in listings.offered_analyses(capture).steps] == [0, 1, 2, 3, 4]


def encode_all(runs: list[wire.Run]) -> bytes:
    return msgspec.json.encode(runs)
