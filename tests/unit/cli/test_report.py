"""`tb-sol report`: the order of the story, the waterfall as text, and the console form of the limits."""

from __future__ import annotations

import io
import re

import pandas as pd
import pytest
from rich.console import Console

import tb_sol_plugin as sol
from tb_sol_plugin.cli.markdown import MOST_BYTES, _within, report_markdown, story_markdown
from tb_sol_plugin.cli.report import print_story, sol_lines, waterfall
from tb_sol_plugin.cli.text import findings
from tb_sol_plugin.metrics.report.console import UNATTRIBUTED, ConsoleReport, console_report
from tb_sol_plugin.metrics.rules.engine import Finding as RuleFinding
from tb_sol_plugin.metrics.rules.engine import ranked, to_report
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.work.sums import NO_PHASE
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import Column, FindingsSection, Report, TableSection
from tests.conftest import ROOT

SAMPLES = ROOT / "samples"
LLM = SAMPLES / "simulated_gpu_llm" / "rank0_4000.1700000000000000000.pt.trace.json.gz"


def rows(*values: tuple[str, float, float, float, float | None]) -> pd.DataFrame:
    """name, operations, limit in ms, share, measured in ms."""
    names, ops, limits, shares, times = zip(*values, strict=True)
    measured = [t * 1e6 if t is not None else float("nan") for t in times]
    sol_ns = [x * 1e6 for x in limits]
    efficiency = [a / b if b == b else float("nan") for a, b in zip(sol_ns, measured, strict=True)]
    return pd.DataFrame({"name": names, "ops": ops, "sol_ns": sol_ns, "share": shares, "measured_ns": measured, "efficiency": efficiency})


REPORT = ConsoleReport(
    "H100_SXM", 450.0, 12.34e6, 14.9e6, 1, False,
    (
        ("By Layer Type", rows(("TEDotProductAttention", 160.0, 8.50, 0.689, 10.2))),
        ("By Operator", rows(("F.embedding", 20.0, 0.05, 0.004, 0.06), ("untimed", 2.5, 0.01, 0.001, None))),
        ("By Phase", rows(("(no phase)", 50.0, 0.74, 0.06, 0.8))),
    ),
)  # fmt: skip


def test_the_console_form_is_the_documented_one() -> None:
    # GIVEN the groups of the documented example THEN the lines are those, character for character
    lines = sol_lines(REPORT, width=120)
    assert lines[0] == lines[2] == lines[-1] == "=" * 90
    assert lines[1] == "                           SOL (Speed of Light) Analysis"
    assert lines[3].startswith("Device: H100_SXM | Ops: 450 | Total: 12.34 ms estimated")
    assert lines[4] == "-" * 90 and lines[5] == "By Layer Type:"
    assert lines[6] == "  TEDotProductAttention                         160 ops,     8.50 ms ( 68.9%) [meas: 10.2ms, eff: 83.3%]"
    assert "  F.embedding                                    20 ops,     0.05 ms (  0.4%) [meas: 0.06ms, eff: 83.3%]" in lines
    assert "  (no phase)                                     50 ops,     0.74 ms (  6.0%) [meas: 0.8ms, eff: 92.5%]" in lines
    # AND without a measured time there is no bracket
    assert "  untimed                                       2.5 ops,     0.01 ms (  0.1%)" in lines


def test_a_limit_below_a_millisecond_is_in_microseconds() -> None:
    # GIVEN limits of 27.4 µs in all, one of them 1 ns THEN no row reads as nothing
    views = (("By Operator", rows(("aten::addmm", 26.0, 0.0274, 0.999, 0.3072), ("aten::eq", 1.0, 1e-6, 0.001, 0.0054))),)
    lines = sol_lines(ConsoleReport("H100_SXM", 27.0, 27_401.0, 312_600.0, 1, True, views), 120)
    assert lines[3] == "Device: H100_SXM | Ops: 27 | Total: 27.40 µs estimated per step [meas: 312.6µs, eff: 8.8%]"
    assert "  aten::addmm                                    26 ops,    27.40 µs ( 99.9%) [meas: 307.2µs, eff: 8.9%]" in lines
    assert "  aten::eq                                        1 ops,   < 0.01 µs (  0.1%) [meas: 5.4µs, eff: 0.0%]" in lines


def test_an_efficiency_above_the_limit_is_flagged_and_not_cut() -> None:
    views = (("By Operator", rows(("aten::add", 3.0, 2.0, 1.0, 1.0))),)
    lines = sol_lines(ConsoleReport("H100_SXM", 3.0, 2e6, 1e6, 1, False, views), 120)
    assert "  aten::add                                       3 ops,     2.00 ms (100.0%) [meas: 1.0ms, eff: 200.0%] !" in lines
    assert lines[-1].startswith("! above the limit")


@pytest.mark.parametrize("width", [80, 90, 100, 140])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    told = console_report(c := sol.open_capture(str(LLM)), scope(c, Query()))
    assert told is not None
    assert max(len(line) for line in sol_lines(told, width, rows=6)) <= width


def test_every_view_adds_up_to_the_total() -> None:
    # GIVEN a step of the sample WHEN its work is told by layer, operator and phase THEN each view sums to the total
    c = sol.open_capture(str(LLM))
    told = console_report(c, scope(c, Query()))
    assert told is not None and [title for title, _ in told.views] == ["By Layer Type", "By Operator", "By Phase"]
    for _, frame in told.views:
        assert frame["sol_ns"].sum() == pytest.approx(told.sol_ns) and frame["ops"].sum() == pytest.approx(told.ops)
        assert frame["measured_ns"].sum() == pytest.approx(told.measured_ns) and frame["share"].sum() == pytest.approx(1.0)
    layers = told.views[0][1]["name"].tolist()
    assert layers[-1] == UNATTRIBUTED and layers[0] == "Linear" and NO_PHASE not in told.views[2][1]["name"].tolist()
    # AND rows that are not shown stand together in one line, so that the printed rows add up too
    short = [line for line in sol_lines(told, 120, rows=2) if " more)" in line]
    assert short and "ops," in short[0]


def test_without_limits_there_is_no_such_report() -> None:
    c = sol.open_capture(str(next((SAMPLES / "cpu_transformer").glob("*.gz"))))
    if c.analyze("roofline").facts["sol_ns"] is None:  # type: ignore[union-attr]
        assert console_report(c, scope(c, Query())) is None


def parts(*values: tuple[str, int]) -> TableSection:
    names, times = [n for n, _ in values], [t for _, t in values]
    columns = [Column("part", "Part"), Column("time_ns", "Time", "ns"), Column("share", "Share", "ratio")]
    data = {"part": names, "time_ns": times, "share": [t / times[0] for t in times]}
    return TableSection(id="parts", title="From measured to speed of light", columns=columns, data=data)  # type: ignore[arg-type]


def test_the_waterfall_goes_from_the_measured_time_down_to_the_limit() -> None:
    # GIVEN 10 ms, of which the device waits 5, loses 3 above its limits, and 2 are the limit
    lines = waterfall(parts(("Step", 10_000_000), ("Waits", 5_000_000), ("Above", 3_000_000), ("Speed of light", 2_000_000)), 78)
    first = 2 + len("Speed of light") + 2
    start = [next(i for i, mark in enumerate(line[first:]) if mark == "█") for line in lines]
    # THEN in the 40 characters of room each bar begins where the next one ends: at 0, 5, 2 and 0 of 10
    assert start == [0, 20, 8, 0]
    assert [line.count("█") for line in lines] == [40, 20, 12, 8]
    assert [line.replace("\u202f%", "").replace("\u202f", " ").split()[-3:] for line in lines] == [
        ["10.00", "ms", "100.0"], ["5.00", "ms", "50.0"], ["3.00", "ms", "30.0"], ["2.00", "ms", "20.0"],
    ]  # fmt: skip


def test_the_report_begins_with_the_step_time_and_nothing_fails() -> None:
    out = io.StringIO()
    print_story(Console(file=out, width=100, highlight=False), sol.open_capture(str(LLM)))
    text = out.getvalue()
    # GIVEN the sample THEN the sentence comes first, then the waterfall, the findings, the operators, the limits, and every other page
    marks = ["A step takes", "From measured to speed of light", "What to fix first", "above their limit", "SOL (Speed of Light) Analysis"]
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)
    assert "By Phase:" in text and "Every page in a sentence" in text and "failed" not in text
    assert max(len(line) for line in text.splitlines()) <= 100
    # AND other device limits change the numbers
    other = io.StringIO()
    print_story(Console(file=other, width=100, highlight=False), sol.open_capture(str(LLM)), device="B200")
    assert "Device: B200" in other.getvalue()


def test_possible_findings_stand_apart_below_the_proven_ones() -> None:
    # GIVEN a small proven finding and two large ones that are only likely
    found = [RuleFinding(evidence="e.", saving=s, rule=r, title=r, candidate=c) for r, s, c in (("b", 9, True), ("a", 1, False), ("c", 5, True))]
    cards = [to_report(f, pages=()) for f in ranked(found)]
    assert [c.rule for c in cards] == ["a", "b", "c"]
    # WHEN the terminal shows them
    out = Console(file=io.StringIO(), width=100)
    findings(out, FindingsSection(id="f", title="Findings", findings=cards))
    lines = out.file.getvalue().replace("e.", "").splitlines()  # type: ignore[attr-defined]
    # THEN one heading parts them, and each that is possible says so
    shown = [line.split("ns")[-1].strip() for line in lines if line.strip()]
    assert shown == ["a", "Possible, not proven", "Possible: b", "Possible: c"]


def test_the_story_as_markdown() -> None:
    # GIVEN a sample WHEN its story is written for a pull request THEN headline, waterfall, findings with code, five tables and versions are there
    text = story_markdown(sol.open_capture(str(LLM)), command="tb-sol report x --markdown")
    assert text.startswith("## ") and len(text.encode()) <= MOST_BYTES
    assert "of the speed of light" in text and "**From measured to speed of light" in text and text.count("<details>") == 5
    assert re.search(r"^1\. \*\*−.*s\*\* \(.*%\) ", text, re.MULTILINE) and re.search(r"^   `.*`$", text, re.MULTILINE)
    assert text.rstrip().endswith(": `tb-sol report x --markdown`") and "tb-sol" in text.splitlines()[-1]
    # AND every table is one: as many cells in each row as in its head, ten rows at most
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        lines = table.splitlines()
        assert {len(re.split(r"(?<!\\)\|", line)) for line in lines} == {len(lines[0].split("|"))}
    assert "10 of " in text


def test_names_of_a_recording_are_no_markup_of_markdown() -> None:
    # GIVEN a table and a headline of hostile names WHEN written THEN they are text, and a code span stays one
    name = "a|b <img src=x> [x](y) `c` *d* @team"
    section = TableSection(id="t", title=name, columns=[Column("n", "N"), Column("v", "V")], data={"n": [name, None], "v": [1, 2]}, key="n")
    report = Report(analysis="kernels", title="K", headline=f"**{name[:6]}** and `x|y` {name}", sections=[section])
    text = report_markdown(report)
    assert "<img" not in text and "[x](y)" not in text and "@team" not in text and "`x\\|y`" in text
    assert "a\\|b &lt;img" in text and "2 of 2" not in text


def test_a_long_story_is_cut_between_two_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tb_sol_plugin.cli.markdown.MOST_BYTES", 400)
    assert _within(["a" * 100, "b" * 90, "c" * 50], "foot") == "a" * 100 + "\n\n" + "b" * 90 + "\n\n" + "*More is left out here: GitHub shows no longer text.*\n\nfoot\n"
