"""The console report, character by character."""

from __future__ import annotations

import pytest

from tb_sol_plugin.capture.report.analysis import Analysis, analyze, carry
from tb_sol_plugin.capture.report.console import amount, console_report, shortened
from tb_sol_plugin.capture.work.sums import Group
from tests.support.sol_step import device, gpu, op, records, step

FORM = """\
==========================================================================================
                           SOL (Speed of Light) Analysis
==========================================================================================
Device: H100_SXM | Ops: 450 | Total: 12.34 ms estimated
------------------------------------------------------------------------------------------
By Layer Type:
  TEDotProductAttention                         160 ops,     8.50 ms ( 68.9%) [meas: 10.2ms, eff: 83.3%]
------------------------------------------------------------------------------------------
By Function:
  F.embedding                                    20 ops,     0.05 ms (  0.4%) [meas: 0.06ms, eff: 83.3%]
------------------------------------------------------------------------------------------
By Phase:
  (no phase)                                     50 ops,     0.74 ms (  6.0%) [meas: 0.8ms, eff: 92.5%]
=========================================================================================="""


def group(name: str, count: int, estimated_ms: float | None, measured_ms: float | None, whole_ms: float | None = 12.34) -> Group:
    estimated = None if estimated_ms is None else 1e3 * estimated_ms
    measured = None if measured_ms is None else 1e3 * measured_ms
    share = None if estimated_ms is None or whole_ms is None else estimated_ms / whole_ms
    both = None not in (estimated, measured)
    return Group(
        name, count, estimated_us=estimated, share=share, measured_us=measured,
        timed_us=measured if both else None, timed_estimate_us=estimated if both else None,
    )  # fmt: skip


def test_the_report_has_its_documented_form() -> None:
    analysis = Analysis(
        iteration=100,
        device="H100_SXM",
        total=group("total", 450, 12.34, None),
        layers=[group("TEDotProductAttention", 160, 8.50, 10.2)],
        functions=[group("F.embedding", 20, 0.05, 0.06)],
        phases=[group("(no phase)", 50, 0.74, 0.80)],
        top=[],
    )
    assert console_report(analysis) == FORM


def test_the_report_of_a_whole_step() -> None:
    # GIVEN the step by hand, each of its figures a thousand times as large, so that µs read as ms
    rows = records()[:5]
    for row in rows:
        row.flops, row.flops_vector, row.bytes = (None if v is None else 1000 * v for v in (row.flops, row.flops_vector, row.bytes))
        row.measured_time_us = 1000 * (row.measured_time_us or 0)

    lines = console_report(analyze(rows, step(), device())).splitlines()

    assert lines[3] == "Device: ROUND | Ops: 9 | Total: 90.00 ms estimated"
    assert lines[5:9] == [
        "By Layer Type:",
        "  Linear                                          7 ops,    70.00 ms ( 77.8%) [meas: 110.0ms, eff: 63.6%]",
        "  (unattributed)                                  1 ops,    12.00 ms ( 13.3%) [meas: 10.0ms, eff: 120.0%]",
        "  LayerNorm                                       1 ops,     8.00 ms (  8.9%) [meas: 16.0ms, eff: 50.0%]",
    ]
    assert lines[10:13] == [
        "By Function:",
        "  F.linear                                        3 ops,    30.00 ms ( 33.3%) [meas: 60.0ms, eff: 50.0%]",
        "  F.layer_norm                                    1 ops,     8.00 ms (  8.9%) [meas: 16.0ms, eff: 50.0%]",
    ]
    assert lines[14:18] == [
        "By Phase:",
        "  train/backward                                  5 ops,    50.00 ms ( 55.6%) [meas: 70.0ms, eff: 71.4%]",
        "  train/forward                                   3 ops,    28.00 ms ( 31.1%) [meas: 56.0ms, eff: 50.0%]",
        "  (no phase)                                      1 ops,    12.00 ms ( 13.3%) [meas: 10.0ms, eff: 120.0%]",
    ]
    assert lines[19:] == [
        "* (unattributed), (no phase): above the limit: data that stayed in cache, or a wrong type",
        "  or peak.",
        "=" * 90,
    ]


def test_groups_without_time_end_after_the_share() -> None:
    text = console_report(analyze(records(timed=False), step(), gpu()))
    assert "  Linear                                          7 ops,     0.07 ms ( 77.8%)\n" in text
    assert "meas" not in text


def test_without_limits_there_are_dashes_and_one_reason() -> None:
    text = console_report(analyze(records(), step(), None, reason="a CPU has no fixed peak"))

    assert "Device: no limits | Ops: 10 | Total: — ms estimated\n" in text
    assert "  Linear                                          7 ops,        — ms (    —%) [meas: 0.1ms]\n" in text
    assert text.count("a CPU has no fixed peak") == 1
    assert "* Work: 7.00 GFLOP matrix, 2.00 MFLOP vector, 55.0 MB.\n" in text
    assert "eff" not in text


@pytest.mark.parametrize(("ms", "shown"), [(0.1, "0.1ms"), (0.0999, "0.10ms"), (0.004, "0.00ms"), (12345.67, "12345.7ms")])
def test_measured_times_have_one_decimal_from_a_tenth_of_a_ms(ms: float, shown: str) -> None:
    text = console_report(Analysis(0, "X", group("total", 1, 1.0, None), [group("a", 1, 1.0, ms)], [], [], []))
    assert f"[meas: {shown}, eff: " in text


def test_a_step_that_was_not_counted_reports_the_last_one_that_was() -> None:
    last = analyze(records(), step(100), device())
    for iterations, words in ((1, "1 iteration ago"), (30, "30 iterations ago")):
        text = console_report(carry(last, step(100 + iterations)))
        note = f"* Counted and timed in iteration 100, {words}."
        assert note in text
        assert [line for line in text.splitlines() if line != note] == console_report(last).splitlines()


def test_names_are_shortened_in_the_middle() -> None:
    assert shortened("a" * 40) == "a" * 40
    assert shortened("rl_timing/compute-logprobs/" + "x" * 30 + "/forward") == "rl_timing/compute-...xxxxxxxxxxx/forward"
    assert len(shortened("rl_timing/compute-logprobs/" + "x" * 300)) == 40
    assert shortened("two\nlines\t and blanks") == "two lines and blanks"


def test_a_line_break_in_a_name_makes_no_line() -> None:
    rows = [op(flops=10, bytes=1, phase="a\n" + "=" * 90)]
    lines = console_report(analyze(rows, step(), device())).splitlines()
    assert lines.count("=" * 90) == 3


def test_many_groups_are_cut_off_with_their_number() -> None:
    rows = [op(flops=10, bytes=1, phase=f"phase {n}") for n in range(75)]
    text = console_report(analyze(rows, step(), device()))
    assert "  ... and 15 more\n" in text and text.count("phase ") == 60


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "—"), (0, "0 FLOP"), (7, "7 FLOP"), (999, "999 FLOP"), (753_008_640, "753 MFLOP"), (999_600_000, "1.00 GFLOP"), (99_000_000, "99.0 MFLOP"), (2 * 10**21, "2000 EFLOP")],
)
def test_amounts_have_a_prefix_and_a_unit(value: int | None, text: str) -> None:
    assert amount(value, "FLOP") == text
