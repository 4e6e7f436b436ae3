"""The page of iterations on captures whose every number is known.

Limits are those of an H100 SXM: 989.4 TFLOP/s dense in BF16. A step of `loop` does 4.947 TFLOP forward and backward (5 ms at that rate) and
0.9894 TFLOP again for checkpointing (1 ms): its limit is 6 ms. It takes 10 ms of device time where it is not sampled.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin import format as F
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import FactsSection, FigureSection, Report, TableSection, UnavailableReport, encode
from tb_sol_plugin.units import NARROW
from tb_sol_plugin.web.wire import csv_of
from tests.support.sol_builder import CUDA, SolBuilder, small
from tests.support.tiny import trace
from tests.support.trace_builder import TraceBuilder

MS = 1_000_000


def loop(
    numbers: Sequence[int] = range(40),
    *,
    every: int = 10,
    time: Callable[[int], int] = lambda i: 10 * MS,
    signature: Callable[[int], str] = lambda i: "a",
    gpu: bool = True,
    flags: int = 0,
) -> SolBuilder:
    """Iterations of 10 ms, sampled ones 12 ms, the first 500 ms; device times where `gpu`; two phases of 2 and 6 ms."""
    b = SolBuilder(device=CUDA, time_source="event", every_n_steps=every) if gpu else SolBuilder(every_n_steps=every)
    forward, backward = b.phase("forward"), b.phase("backward")
    inner = b.phase("attention", forward)
    sizes, types = [[4096, 4096], [4096, 4096]], ["c10::BFloat16"] * 2
    mm = b.sig("aten::mm", sizes, [[4096, 4096]], types=types, flop=2.4735e12, bytes=1e6, dtype="bf16")
    again = b.sig("aten::bmm", sizes, [[4096, 4096]], types=types, flop=0.9894e12, bytes=1e6, dtype="bf16")
    odd = b.sig("mine::scan", [[4096]], [[4096]], flop=None, flop_vector=None, bytes=None, dtype="fp32", work="other")
    at = 0
    for i, number in enumerate(numbers):
        sampled = number < 2 or number % every == 0
        long = 500 * MS if i == 0 else 12 * MS if sampled else time(number)
        rows = [
            b.row(mm, phase=forward, count=1, flags=flags),
            b.row(mm, phase=backward, forward_phase=forward, flags=F.BACKWARD),
            b.row(again, phase=backward, flags=F.RECOMPUTE),
            b.row(odd, count=3),
        ]
        b.iteration(
            number, at, long, rows=rows if sampled else None, device_ns=long if gpu else None, batch=4, tokens=1000,
            overhead_ns=2 * MS if sampled else 10_000, signature=signature(number),
            phases=[
                b.time(forward, at, 2 * MS, 2 * MS if gpu else None), b.time(inner, at + 1, MS, MS if gpu else None),
                b.time(backward, at + 2 * MS, 6 * MS, 6 * MS if gpu else None),
            ],
        )  # fmt: skip
        at += long
    b.close(len(numbers))
    return b


def opened(builder: SolBuilder, folder: Path) -> Capture:
    return sol.open_capture(str(builder.write(folder / builder.name)), cache=False)


def report(capture: Capture, **query: str) -> Report:
    answer = capture.analyze("iterations", **query)
    assert isinstance(answer, Report), answer
    return answer


def test_the_phases_of_a_capture_have_one_time_in_sentence_and_figure(tmp_path: Path) -> None:
    # GIVEN phases of 2 and 6 ms in steps of 10 ms, where sampled ones take twice as long
    b = SolBuilder(every_n_steps=10)
    forward, backward = b.phase("forward"), b.phase("backward")
    mm = b.sig("aten::mm", [[64, 64], [64, 64]], [[64, 64]], flop=524_288, bytes=49_152, dtype="fp32")
    at = 0
    for number in range(12):
        factor = 2 if number < 2 else 1
        rows = [b.row(mm, phase=backward, count=1, time_ns=1_000)] if number < 2 else None
        times = [b.time(forward, at, 2 * MS * factor), b.time(backward, at + 4 * MS, 6 * MS * factor)]
        b.iteration(number, at, 10 * MS * factor, rows=rows, signature="a", phases=times)
        at += 10 * MS * factor
    answer = opened(b, tmp_path).analyze("phases")
    assert isinstance(answer, Report)
    # THEN the headline, the figure and its subtitle speak of iterations that were not sampled
    assert "**backward** takes 6.00\u202fms on the host per step" in answer.headline
    figure = answer.section("average")
    assert isinstance(figure, FigureSection) and "backward 6.00\u202fms" in figure.summary
    assert figure.subtitle == "while nothing is counted, 10.00\u202fms"
    assert sum(piece["x"][0] for piece in figure.figure["data"]) == pytest.approx(10.0)  # type: ignore[attr-defined]


def test_work_of_sampled_iterations_stands_for_those_between(tmp_path: Path) -> None:
    # GIVEN 40 iterations, 0, 1, 10, 20 and 30 of them sampled WHEN the page is made
    answer = report(opened(loop(), tmp_path))
    facts, frame = answer.facts, answer.table("iterations").set_index("iteration")
    # THEN the 35 between take 10 ms and reach 6 ms of limit, 5 ms of it first work
    assert (facts["iterations"], facts["sampled"], facts["median_ns"], facts["p95_ns"]) == (40, 5, 10 * MS, 10 * MS)
    assert facts["sampled_median_ns"] == 12 * MS
    assert facts["sol_ns"] == pytest.approx(6 * MS, abs=1)
    assert (facts["sol_ratio"], facts["mfu"], facts["hfu"]) == (pytest.approx(0.6), pytest.approx(0.5), pytest.approx(0.6))
    assert facts["tokens_per_s"] == pytest.approx(100_000) and facts["samples_per_s"] == pytest.approx(400)
    # AND a row says whose work it has: its own, or that of an iteration so many before it
    assert (frame.loc[10, "work"], frame.loc[10, "age"], frame.loc[10, "sol_ratio"]) == ("sampled", 0, pytest.approx(0.5))
    assert (frame.loc[17, "work"], frame.loc[17, "age"], frame.loc[17, "sol_ratio"]) == ("repeated", 7, pytest.approx(0.6))
    assert frame.loc[17, ["flop", "recompute_flop", "ops", "unknown"]].tolist() == [4.947e12, 0.9894e12, 6, 3]
    table = answer.section("iterations")
    assert isinstance(table, TableSection)
    at = table.data["iteration"].index(17)
    assert table.marks["sol_ratio"][str(at)].state == "estimated" and str(table.data["iteration"].index(10)) not in table.marks["sol_ratio"]
    assert answer.headline.replace(NARROW, " ").startswith(
        "40 iterations, 5 sampled: a step takes **10.00 ms** (median), at ≈ **60.0 %** of the speed of light"
    )


def test_the_first_iteration_is_shown_and_in_no_median(tmp_path: Path) -> None:
    # GIVEN a first iteration of 500 ms WHEN only it is between others, or all others are left out THEN it counts where nothing else does
    capture = opened(loop(), tmp_path)
    first = report(capture).table("iterations").iloc[0]
    assert (first["time_ns"], first["flags"]) == (500 * MS, "first")
    assert report(capture).section("iterations").apart == ["0"]  # type: ignore[union-attr]
    assert report(capture, last="5").facts["median_ns"] == 10 * MS
    assert report(capture, last="0").facts["median_ns"] == 500 * MS


def test_start_up_that_dominates_a_short_run_is_said_to(tmp_path: Path) -> None:
    # GIVEN forty iterations: 500 ms, four sampled ones of 12 ms, and 35 of 10 ms WHEN opened
    texts = [n.text for n in report(opened(loop(), tmp_path / "short")).notices]
    # THEN the first three took 490 + 2 + 0 ms beyond usual ones of 898 ms in all; in a run of two hundred that is no longer said
    (said,) = [t for t in texts if "tart-up" in t]
    assert f"took 492.0{NARROW}ms beyond usual ones, 54.8{NARROW}% of the run" in said
    assert not [n for n in report(opened(loop(range(200)), tmp_path / "long")).notices if "tart-up" in n.text]


def test_the_ratio_of_the_job_goes_with_the_median(tmp_path: Path) -> None:
    # GIVEN steps of 10 ms with one of 200 ms, and steps of 20 ms with inputs of another size that are sampled too WHEN the page is made
    slow = {13, 14, 15, 20, 21}
    b = loop(time=lambda i: 200 * MS if i == 17 else 20 * MS if i in slow else 10 * MS, signature=lambda i: "b" if i in slow else "a")
    facts = report(opened(b, tmp_path)).facts
    # THEN the spike counts as 10 ms in the ratio and as 200 ms in the throughput: 31 iterations of 10 ms and one of 20 ms have work
    assert facts["sol_ratio"] == pytest.approx(32 * 6 / (31 * 10 + 20))
    assert facts["tokens_per_s"] == pytest.approx(35 * 1000 / (30 * 0.010 + 0.200 + 4 * 0.020))


def test_where_every_iteration_is_sampled_medians_are_over_them(tmp_path: Path) -> None:
    # GIVEN a capture with every_n_steps=1 WHEN the page is made THEN nothing is estimated, and the median is that of the sampled ones
    answer = report(opened(loop(range(5), every=1), tmp_path))
    assert (answer.facts["median_ns"], answer.facts["sampled"]) == (12 * MS, 5)
    assert "≈" not in answer.headline and not answer.section("iterations").marks  # type: ignore[union-attr]


def test_inputs_of_another_size_have_no_known_work(tmp_path: Path) -> None:
    # GIVEN iterations 5 and 15 with inputs of another size, which 20 has too WHEN the page is made
    odd = {5, 15, 20, 25}
    answer = report(opened(loop(signature=lambda i: "b" if i in odd else "a"), tmp_path))
    frame = answer.table("iterations").set_index("iteration")
    # THEN 5 and 15 are unknown, 25 takes its work from 20, and 21 from 10
    assert frame.loc[[5, 15], "work"].tolist() == ["unknown", "unknown"]
    assert frame.loc[[5, 15], ["sol_ratio", "flop", "age"]].isna().all().all()
    assert (frame.loc[25, "age"], frame.loc[21, "age"]) == (5, 11)
    assert any("2 iterations have inputs of a size" in n.text for n in answer.notices)
    # AND the filter by inputs keeps those alone
    assert report(opened(loop(signature=lambda i: "b" if i in odd else "a"), tmp_path), signature="b").facts["iterations"] == 4


def test_inputs_of_unknown_size_are_like_no_others(tmp_path: Path) -> None:
    # GIVEN a recording that does not know the sizes of its inputs WHEN the page is made THEN only sampled iterations have work
    frame = report(opened(loop(signature=lambda i: ""), tmp_path)).table("iterations").set_index("iteration")
    assert frame.index[frame["work"] == "sampled"].tolist() == [0, 1, 10, 20, 30] and set(frame["work"]) == {"sampled", "unknown"}
    assert frame.loc[10, "sol_ratio"] == pytest.approx(0.5) and frame.loc[[2, 11], ["flop", "sol_ratio"]].isna().all().all()


def test_compiled_work_counts_and_its_eager_time_does_not(tmp_path: Path) -> None:
    # GIVEN a compiled model, which runs eagerly while it is counted WHEN the page is made THEN only iterations between have a ratio
    answer = report(opened(loop(flags=F.COMPILED), tmp_path))
    frame = answer.table("iterations").set_index("iteration")
    assert frame.loc[[1, 10], ["sol_ratio", "mfu"]].isna().all().all() and frame.loc[10, "flop"] == 4.947e12
    assert frame.loc[11, "sol_ratio"] == pytest.approx(0.6)
    assert "eager" in frame.loc[10, "flags"] and any("compiled" in n.text for n in answer.notices)


def test_restarts_and_gaps_are_told(tmp_path: Path) -> None:
    # GIVEN numbers 0-9, then 14-19, then 12-21 again WHEN the page is made
    answer = report(opened(loop([*range(10), *range(14, 20), *range(12, 22)]), tmp_path))
    frame = answer.table("iterations").set_index("id")
    # THEN four are missing, a restart is named, its rows have names of their own, and its first iteration is in no median
    assert (answer.facts["missing"], answer.facts["restarts"]) == (4, 1)
    assert frame.loc["14", "flags"] == "4 missing" and frame.loc["12", "flags"] == "restart" and frame.loc["15 (2)", "iteration"] == 15
    assert frame.loc["20", "age"] == 0
    (figure,) = (s for s in answer.sections if isinstance(s, FigureSection) and s.id == "course")
    assert len(figure.figure["layout"]["shapes"]) == 1  # type: ignore[index]
    # AND where numbers come again, points stand in order of time: no two bars share a place, and no line or bar crosses a gap
    stacked = answer.section("phases")
    assert isinstance(stacked, FigureSection)
    bar = stacked.figure["data"][0]  # type: ignore[index]
    assert len(bar["x"]) == len(set(bar["x"])) == 24 and set(bar["width"]) == {0.86}
    line = figure.figure["data"][0]["x"]  # type: ignore[index]
    assert line.count(None) == 2
    # AND a filter that leaves the first row of a stretch out does not join what it parts
    half = report(
        opened(loop([*range(10), *range(14, 20)], signature=lambda i: "b" if i in (0, 14) else "a"), tmp_path / "h"), signature="a"
    )
    (part,) = (s for s in half.sections if isinstance(s, FigureSection) and s.id == "course")
    assert part.figure["data"][0]["x"].count(None) == 1  # type: ignore[index]


def test_a_lasting_rise_and_a_drift_are_told_apart(tmp_path: Path) -> None:
    # GIVEN steps that take 11 ms from iteration 45 on, steps that grow by 0.1 ms each, and steps that stay
    risen = report(opened(loop(range(100), time=lambda i: 10 * MS if i < 45 else 11 * MS), tmp_path / "a"))
    grown = report(opened(loop(range(120), time=lambda i: 10 * MS + i * 100_000), tmp_path / "b"))
    same = report(opened(loop(range(100)), tmp_path / "c"))
    fallen = report(opened(loop(range(100), time=lambda i: 10 * MS if i < 45 else 8 * MS), tmp_path / "d"))
    wild = report(opened(loop(range(30), time=lambda i: (i * 7 % 10 + 5) * MS), tmp_path / "e"))
    # THEN the first names the iteration and the growth, the second a slope, the third neither; a fall is no regression, and where
    # times scatter too much to tell nothing is said
    assert "20.0\u202f% less since iteration 45" in fallen.headline and fallen.facts["regression_iteration"] is None
    assert wild.headline.endswith("of the speed of light.")
    assert (risen.facts["regression_iteration"], risen.facts["regression_share"]) == (45, pytest.approx(0.1))
    assert "longer since iteration 45" in risen.headline
    assert grown.facts["regression_iteration"] is None and grown.facts["trend_ns"] == pytest.approx(10 * MS, rel=1e-6)
    assert "every 100 iterations" in grown.headline
    assert same.facts["trend_ns"] == 0 and same.headline.endswith("; it is stable.")


def test_no_trend_falls_by_more_than_a_step(tmp_path: Path) -> None:
    # GIVEN thirty steps, each 0.3 ms shorter than the one before: in 100 iterations they would fall by 30 ms of 15
    short = report(opened(loop(range(30), time=lambda i: 20 * MS - i * 300_000), tmp_path))
    # THEN the trend is stated over the iterations there are, and is smaller than a step
    trend, low, median = (float(short.facts[n]) for n in ("trend_ns", "trend_low_ns", "median_ns"))
    assert -median <= low <= trend < 0 and trend == pytest.approx(-300_000 * 28, rel=0.08)
    assert short.headline.endswith("iterations**.") and "falls by" in short.headline and "every 100" not in short.headline


def test_what_the_recorder_cost_is_over_the_time_of_the_job(tmp_path: Path) -> None:
    # GIVEN 2 ms of own work in each of five sampled iterations, 10 µs in the others WHEN the page is made THEN shares are over their times
    facts = report(opened(loop(), tmp_path)).facts
    assert facts["overhead_share"] == pytest.approx((4 * 2 + 35 * 0.01) / (4 * 14 + 35 * 10.01))
    assert facts["overhead_sampled_share"] == pytest.approx(2 / 14) and facts["overhead_between_share"] == pytest.approx(0.01 / 10.01)
    # AND that of the first iteration stands apart
    assert facts["overhead_once_ns"] == 2 * MS


def test_own_work_between_iterations_belongs_to_the_one_before(tmp_path: Path) -> None:
    # GIVEN 700 ms of own work before the first iteration, 90 after it, 5 after the second, 1 inside of the third
    b = SolBuilder(every_n_steps=1)
    mm = b.sig("aten::mm", [[8, 16], [16, 4]], [[8, 4]], flop=1024, bytes=896)
    for number, before, inside in ((0, 700, 2), (1, 90, 3), (2, 5, 1)):
        b.iteration(number, number * 10 * MS, 10 * MS, rows=[b.row(mm)], overhead_ns=inside * MS, before_ns=before * MS)
    b.close(3)
    answer = report(opened(b, tmp_path))
    # WHEN the page is made THEN each has what is inside of it and after it; setting up and the first iteration arise once
    assert answer.table("iterations")["overhead_ns"].tolist() == [92 * MS, 8 * MS, MS]
    assert answer.facts["overhead_once_ns"] == 792 * MS and answer.facts["overhead_share"] == pytest.approx(9 / 29)


def test_phases_are_stacked_with_the_rest_outside(tmp_path: Path) -> None:
    # GIVEN two outermost phases of 2 and 6 ms, one inside the first WHEN their bars are drawn
    figure = report(opened(loop(), tmp_path)).section("phases")
    assert isinstance(figure, FigureSection)
    bars = {t["name"]: t["y"] for t in figure.figure["data"]}  # type: ignore[attr-defined]
    # THEN the longest comes first, the inner one is not counted again, the rest is 2 ms (4 in a sampled one), and iteration 0 is left out
    assert list(bars) == ["backward", "forward", "(no phase)"]
    assert [len(y) for y in bars.values()] == [39, 39, 39]
    assert (bars["backward"][3], bars["forward"][3], bars["(no phase)"][3]) == (6.0, 2.0, 2.0)
    assert bars["(no phase)"][0] == pytest.approx(4.0)
    assert "device time" in figure.subtitle


def test_without_device_times_the_host_is_the_measure(tmp_path: Path) -> None:
    # GIVEN a recording of a CPU without measured limits WHEN the page is made THEN times are there, and no ratio is made up
    answer = report(opened(loop(gpu=False), tmp_path))
    assert answer.facts["median_ns"] == 10 * MS and "speed of light" not in answer.headline
    frame = answer.table("iterations")
    assert frame["device_ns"].isna().all() and frame["sol_ratio"].isna().all()
    # AND limits of a GPU make no ratio of the time of a CPU
    other = report(opened(loop(gpu=False), tmp_path), device_limits="H100_SXM")
    assert other.table("iterations")["sol_ratio"].isna().all() and any("ran on a CPU" in n.text for n in other.notices)


def test_a_part_of_the_job_and_another_metric(tmp_path: Path) -> None:
    capture = opened(loop(), tmp_path)
    # GIVEN a range WHEN it is asked for THEN only its iterations count, with the work of sampled ones before it
    part = report(capture, first="12", last="17", metric="tokens")
    assert part.facts["iterations"] == 6 and part.table("iterations")["age"].tolist() == [2, 3, 4, 5, 6, 7]
    figure = part.section("course")
    assert isinstance(figure, FigureSection) and figure.title == "Tokens/s over iterations"
    # AND what does not fit is refused by the name of its field
    for query, field in (
        ({"first": "9", "last": "3"}, "last"),
        ({"first": "99"}, "first"),
        ({"signature": "zz"}, "signature"),
        ({"most": "-1"}, "most"),
    ):
        with pytest.raises(BadQuery) as caught:
            report(capture, **query)
        assert caught.value.field == field


def test_a_metric_that_was_not_recorded_is_said_to_be_so(tmp_path: Path) -> None:
    # GIVEN a recording without token counts WHEN tokens are asked for THEN the answer says what to give the recorder
    answer = opened(small(), tmp_path).analyze("iterations", metric="tokens")
    assert isinstance(answer, UnavailableReport) and "tokens" in answer.because and "tracker.step()" in answer.record_it_with


def test_long_jobs_keep_their_extremes_and_say_what_is_left_out(tmp_path: Path) -> None:
    # GIVEN 4000 iterations with one of 90 ms and one of 3 ms WHEN the page is made
    odd = {1_234: 90 * MS, 2_345: 3 * MS}
    answer = report(opened(loop(range(4_000), every=500, time=lambda i: odd.get(i, 10 * MS)), tmp_path))
    table = answer.section("iterations")
    assert isinstance(table, TableSection)
    shown = table.data["iteration"]
    # THEN the table holds at most as many rows as asked for, with the ends, both odd ones and every sampled one, and counts the rest
    assert len(shown) <= 1000 and len(shown) + table.truncated == 4_000
    assert {0, 3_999, 1_234, 2_345, *range(0, 4_000, 500)} <= set(shown)
    # AND so does the figure, which stays small
    (figure,) = (s for s in answer.sections if isinstance(s, FigureSection) and s.id == "course")
    points = [x for t in figure.figure["data"] for x in t["x"]]  # type: ignore[attr-defined]
    assert {1_234, 2_345} <= set(points) and len(encode(answer)) < 2_000_000
    assert report(opened(loop(range(1200), every=500), tmp_path / "b"), most="0").section("iterations").truncated == 0  # type: ignore[union-attr]


def test_points_of_the_figures_are_rows_of_the_table(tmp_path: Path) -> None:
    # GIVEN a page of 40 iterations WHEN its figures are read THEN every key they carry names a row
    answer = report(opened(loop(), tmp_path))
    keys = set(answer.table("iterations")["id"])
    for section in answer.sections:
        if isinstance(section, FigureSection):
            assert section.table == "iterations" and section.summary
            told = {k for t in section.figure["data"] for k in t.get("customdata", []) if k is not None}  # type: ignore[attr-defined]
            assert told and told <= keys


def test_csv_holds_base_units(tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_of(report(opened(loop(), tmp_path)), "iterations"))))
    assert len(rows) == 40 and rows[17]["time_ns"] == "10000000" and float(rows[17]["sol_ratio"]) == pytest.approx(0.6)


def test_a_trace_alone_says_how_to_record(tmp_path: Path) -> None:
    # GIVEN a profiler trace WHEN the page is asked for THEN it is unavailable, with the call that makes it available
    answer = sol.open_capture(str(trace(tmp_path / "w.pt.trace.json")), cache=False).analyze("iterations")
    assert isinstance(answer, UnavailableReport) and "sol.capture" in answer.record_it_with and answer.argument.startswith("sol.capture(")


def test_a_trace_beside_it_marks_its_steps(tmp_path: Path) -> None:
    # GIVEN a trace whose one step lies in iteration 2 of a SOL capture WHEN both are read together THEN that iteration is marked
    t = TraceBuilder()
    t.step(7, 5_000, 1_000)
    t.op("aten::mm", 5_100, 100)
    recorded = sol.open_capture(str(t.write(tmp_path / "w.pt.trace.json")), cache=False)
    step = recorded.steps.iloc[0]
    b = SolBuilder(wall_ns=recorded.facts.origin_ns)
    start, end = int(step["host_start_ns"]), int(step["host_end_ns"])
    for number, (at, stop) in enumerate(((start - 300, start - 200), (start - 200, start), (start, end), (end, end + 100))):
        b.iteration(number, at, stop - at, rows=[] if number == 1 else None)
    joined = recorded.with_ledger(opened(b, tmp_path))
    answer = report(joined)
    frame = answer.table("iterations").set_index("iteration")
    assert frame["flags"].tolist() == ["first", "", "in the trace", ""]
    assert joined.facts.source == "kineto"


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_job_that_has_just_begun(tmp_path: Path, kept: int) -> None:
    # GIVEN the file of a job after one, two and three iterations, not closed WHEN the page is made THEN it says what there is
    b = loop(range(3))
    b.records = [r for r in b.records if r["kind"] != "close" and int(str(r.get("iteration") or 0)) < kept]
    answer = report(opened(b, tmp_path))
    assert answer.facts["iterations"] == kept and answer.facts["median_ns"] == {1: 500 * MS, 2: 12 * MS, 3: 10 * MS}[kept]
    assert answer.facts["trend_ns"] is None and len(encode(answer)) > 0


def test_no_iteration_yet_is_said_to_be_so(tmp_path: Path) -> None:
    answer = opened(SolBuilder(), tmp_path).analyze("iterations")
    assert isinstance(answer, UnavailableReport) and answer.because == "no finished iteration yet"


def test_hostile_names_of_phases_are_text_in_figures(tmp_path: Path) -> None:
    # GIVEN a phase called like a tag WHEN its bar is drawn THEN its words are escaped where markup would be read
    b = SolBuilder()
    odd = b.phase("<img src=x onerror=alert(1)> & more")
    for i in range(3):
        b.iteration(i, i * MS, MS, rows=[] if i < 2 else None, phases=[b.time(odd, i * MS, MS // 2)])
    figure = report(opened(b, tmp_path)).section("phases")
    assert isinstance(figure, FigureSection)
    hover = figure.figure["data"][0]["hovertext"][0]  # type: ignore[index]
    assert "<img" not in hover and "&lt;img src=x onerror=alert(1)&gt; &amp; more" in hover


def test_every_fact_is_documented_and_units_are_known(tmp_path: Path) -> None:
    answer = report(opened(loop(), tmp_path))
    for section in answer.sections:
        if isinstance(section, FactsSection):
            assert set(section.values) == set(section.units) == set(section.labels) == set(section.docs)
