"""The page of a device's time."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.ingest import read
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tb_sol_plugin.model.registry import get
from tb_sol_plugin.model.report import FigureSection, encode
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back


@pytest.fixture
def capture() -> Capture:
    """One GPU over [0,1000): kernel [100,200), collective [150,300), copy [400,500) launched at 350, kernel [600,700) launched at 20,
    and 50 ns of work from before the window. One step, 7, over [0,600)."""
    return Capture(
        Facts("test", "x.json", 0, vendor="nvidia", extent_ns=(0, 1000)),
        {
            "host": S.HOST.frame({"start_ns": [10, 20, 350], "duration_ns": [5, 5, 5], "kind": [S.CALL] * 3}),
            "steps": S.STEPS.frame({
                "number": [7], "host_start_ns": [0], "host_end_ns": [500], "start_ns": [0], "end_ns": [600], "complete": [True],
            }),
            "device": S.DEVICE.frame({
                "kind": [S.KERNEL, S.KERNEL, S.KERNEL, S.MEMCPY, S.KERNEL], "device": [0] * 5, "start_ns": [0, 100, 150, 400, 600],
                "duration_ns": [50, 100, 150, 100, 100], "communication": [False, False, True, False, False], "call": [-1, 0, 1, 2, 1],
                "link": [S.BEFORE_WINDOW, 0, 0, 0, 0], "step": [-1, 0, 0, 0, 0],
            }),
        },
    )  # fmt: skip


def test_the_facts_and_the_row_all_agree(capture):
    report = capture.analyze("gpu_breakdown")
    # busy [0,50) [100,300) [400,500) [600,700) of [0,700)
    assert report.facts["busy_ns"] == 450 and report.facts["total_ns"] == 700 and report.facts["idle_ns"] == 250
    table = report.table("devices")
    everything = table[table["device"] == "all"].iloc[0]
    for name in ("busy_ns", "idle_ns", "computation_ns", "exposed_communication_ns", "exposed_memcpy_ns"):
        assert everything[name] == report.facts[name]
    assert report.facts["overlap_ratio"] == pytest.approx(50 / 150)
    assert report.units["busy_ns"] == "ns" and report.units["overlap_ratio"] == "ratio"
    assert table.attrs["units"]["busy_ns"] == "ns"
    # utilization is over the step's 600 ns: 350 of them
    assert report.facts["utilization"] == pytest.approx(350 / 600)


def test_idle_is_told_by_cause(capture):
    report = capture.analyze("gpu_breakdown", gap_us="0.1")
    # [50,100) before a kernel launched at 10: other; [300,400) before the copy launched at 350: host; [500,600): launched at 20: other
    assert (report.facts["host_wait_ns"], report.facts["other_wait_ns"], report.facts["unknown_wait_ns"]) == (100, 150, 0)
    assert (report.facts["short_gaps_ns"], report.facts["long_gaps_ns"]) == (50, 200)
    assert report.table("idle")["idle_ns"].sum() == 250
    assert report.headline.replace("\u202f", " ") == (
        "The GPU is busy **58.3 %** of the steps: 450 ns of the 700 ns from its first to its last event; "
        "it idles 250 ns, 150 ns of it with the next work already launched."
    )


def test_times_of_one_sentence_have_one_unit_and_the_whole_is_called_all(tmp_path):
    # GIVEN kernels of 20 and 30 µs, 4 ms apart, the second launched late
    t = TraceBuilder()
    t.launch("a", at=0, start=10_000, duration=20_000, call_duration=5_000)
    t.launch("b", at=4_000_000, start=4_030_000, duration=30_000, call_duration=5_000)
    # THEN busy and idle time stand beside the span in ms, and idle time of one cause is all of it
    assert read_back(t, tmp_path).analyze("gpu_breakdown").headline.replace("\u202f", " ").split(": ", 1)[1] == (
        "0.0500 ms of the 4.05 ms from its first to its last event; it idles 4.00 ms, "
        "all of it because the next work was launched too late."
    )


def test_one_page_has_one_utilization(capture):
    # GIVEN work before the step: 450 of 700 ns from the first event on, 350 of 600 ns in the step
    report = capture.analyze("gpu_breakdown")
    # THEN the only share of all work that the page states is that of the step; other lengths of busy time are in ns
    share = f"{100 * report.facts['utilization']:.1f}\u202f%"
    figure = next(s for s in report.sections if s.id == "use")
    assert share in report.headline and report.headline.count("%") == 1
    assert "%" not in figure.summary and "450\u202fns of the 1.00\u202fµs shown" in figure.summary
    assert figure.subtitle.startswith("10\u202fns per bar")  # 1,000 ns in 100 bars


def test_linked_and_step_leave_out_what_they_say(capture):
    assert capture.analyze("gpu_breakdown", scope="linked").facts["busy_ns"] == 400
    report = capture.analyze("gpu_breakdown", step="7")
    assert report.facts["device_events"] == 4 and report.facts["total_ns"] == 600
    assert not report.notices
    assert "launched before the recording" in capture.analyze("gpu_breakdown").notices[0].text


def test_a_step_without_device_work_says_so(capture):
    empty = Capture(capture.facts, {**capture.tables, "device": capture.device.assign(step=-1)})
    report = empty.analyze("gpu_breakdown", step="7")
    assert report.headline == "No GPU work was launched in this selection."
    assert report.facts["total_ns"] == 0 and report.facts["utilization"] == 0


def test_without_device_events_it_is_unavailable():
    report = Capture(Facts("test", "x", 0), {}).analyze("gpu_breakdown")
    assert not report.available and "no device activity" in report.because


def test_a_wrong_rule_names_the_choices(capture):
    with pytest.raises(BadQuery) as error:
        capture.analyze("gpu_breakdown", communication_rule="broad")
    assert error.value.field == "communication_rule" and "wide, narrow" in error.value.hint


def test_everything_is_declared_and_drawable(capture):
    two = Capture(capture.facts, {**capture.tables, "device": capture.device.assign(device=[0, 0, 1, 1, 1])})
    report = two.analyze("gpu_breakdown")
    encode(report)
    assert set(report.facts) <= {f.name for f in get("gpu_breakdown").facts}
    figures = [s for s in report.sections if isinstance(s, FigureSection)]
    assert [s.id for s in figures] == ["use", "bars"]
    for section in figures:
        go.Figure(section.figure)


def test_every_gap_is_a_row_with_its_time_cause_neighbors_call_operator_and_python_line(tmp_path):
    # GIVEN a step in which a kernel ends long before the program launches the next one, from an operator in a Python function
    trace = TraceBuilder()
    trace.step(3, 1_000, 20_000)
    trace.frame("train.py(12): step", 1_500, 12_000)
    trace.op("aten::mm", 2_000, 500)
    trace.launch("first", at=2_100, start=3_000, duration=1_000)
    trace.op("aten::add", 9_000, 500)
    trace.launch("second", at=9_100, start=10_000, duration=1_000)
    capture = read(str(trace.write(tmp_path / "worker.pt.trace.json")))

    # WHEN the single gaps are read
    table = next(s for s in capture.analyze("gpu_breakdown").sections if s.id == "single_gaps")

    # THEN the gap is one row: when it begins in its step, how long it is, why, and who ends it
    row = {name: values[0] for name, values in table.data.items()}
    assert len(table.data["id"]) == 1 and table.truncated == 0
    assert (row["step"], row["start_ns"], row["duration_ns"]) == ("3", 3_000, 6_000)
    assert row["cause"] == "Waits for the host"
    assert (row["previous"], row["next"], row["call"], row["operator"]) == ("first", "second", "cudaLaunchKernel", "aten::add")
    assert row["line"] == "train.py:12 step"


def test_every_gap_is_a_row_the_longest_first(capture):
    # GIVEN a recording with gaps of 50, 100 and 100 ns WHEN the page is made
    table = next(s for s in capture.analyze("gpu_breakdown").sections if s.id == "single_gaps")

    # THEN each is a row, and a choice of them has its sum
    assert table.data["duration_ns"] == [100, 100, 50] and not table.truncated and table.adds == ["duration_ns"]
    assert "in 3 gaps" in table.footer
    assert sorted(table.data["cause"])[-1] == "Waits for the host"
