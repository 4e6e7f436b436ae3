"""Operators, modules, phases, links, trace health and the overview: what they say about a recording one can add up on paper."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.registry import registry
from tb_sol_plugin.model.report import FactsSection, FigureSection, Report, TableSection, UnavailableReport, encode
from tb_sol_plugin.units import UNITS
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back, training

PAGES = ("operators", "modules", "phases", "links", "health", "overview")


def report(c: Capture, name: str, **query: str) -> Report:
    answer = c.analyze(name, **query)
    assert isinstance(answer, Report), answer
    return answer


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """Two steps; device work of 312 000 ns, 2 000 of it outside every operator."""
    return read_back(training(), tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def host_only(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """The same host events without any device activity."""
    t = training()
    t.header["deviceProperties"] = []
    t.events = [e for e in t.events if e.get("cat") not in ("kernel", "ac2g", "cuda_runtime")]
    return read_back(t, tmp_path_factory.mktemp("host"))


# -- every page ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["run", "host_only"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_plain_data_with_a_headline_and_declared_columns(name: str, which: str, request: pytest.FixtureRequest) -> None:
    # GIVEN a recording with or without a device WHEN the page is made
    answer = report(request.getfixturevalue(which), name)
    body = json.loads(encode(answer))
    # THEN it opens with a sentence, carries no NaN, and shows only columns, facts and units that the registry declares
    assert answer.headline.endswith(".") and b"NaN" not in encode(answer)
    item = registry()[name]
    for section in answer.sections:
        if isinstance(section, TableSection):
            declared = {c.name for c in item.tables[section.id]} | {"id"}
            assert {c.name for c in section.columns} <= declared and set(section.data) == {c.name for c in section.columns}
            assert all(c.doc and c.unit in UNITS for c in section.columns)
            lengths = {len(v) for v in section.data.values()}
            assert len(lengths) == 1
            if section.key:
                keys = section.data[section.key]
                assert len(set(keys)) == len(keys) and set(section.last) <= set(keys)
        if isinstance(section, FactsSection):
            assert (
                set(section.values) <= {f.name for f in item.facts}
                and set(section.units) == set(section.values)
                and set(section.units.values()) <= set(UNITS)
            )
        if isinstance(section, FigureSection):
            assert section.summary and section.figure["data"]
            if section.table:
                assert any(s.id == section.table for s in answer.sections)
    assert body["available"] is True


@pytest.mark.parametrize("name", PAGES)
def test_an_unknown_step_is_a_bad_query(run: Capture, name: str) -> None:
    if name == "health":  # about the whole file
        assert report(run, name, step="7").notices
        return
    with pytest.raises(BadQuery) as error:
        run.analyze(name, step="7")
    assert error.value.field == "step"


# -- operators ----------------------------------------------------------------------------------------------------


def test_device_self_of_all_rows_is_all_device_work(run: Capture) -> None:
    answer = report(run, "operators")
    table = answer.table("operators").set_index("name")
    # GIVEN per step addmm 40 000 + 20 000, mm 30 000 + 50 000, relu 10 000, add_ 5 000, and 1 000 of no operator
    got = table["device_self_ns"].to_dict()
    assert {k: got[k] for k in ("aten::addmm", "aten::mm", "aten::relu", "aten::add_", "(no operator)")} == {
        "aten::addmm": 120_000, "aten::mm": 160_000, "aten::relu": 20_000, "aten::add_": 10_000, "(no operator)": 2_000,
    }  # fmt: skip
    assert answer.facts["sum_device_self_ns"] == answer.facts["device_ns"] == table["device_self_ns"].sum() == 312_000
    # AND what an operator contains is in its total: linear holds addmm, the roots hold the products
    assert table.loc["aten::linear", ["calls", "device_self_ns", "device_total_ns"]].tolist() == [4, 0, 120_000]
    assert table.loc["autograd::engine::evaluate_function: AddmmBackward0", "device_total_ns"] == 160_000
    # AND host self leaves out operators and calls: addmm 20 000 - 4 000 each
    assert table.loc["aten::addmm", ["host_self_ns", "host_self_with_calls_ns"]].tolist() == [4 * 16_000, 4 * 20_000]
    assert answer.section("operators").last == ["(no operator)"]  # type: ignore[union-attr]


def test_an_operator_inside_itself_counts_an_event_once(tmp_path: Path) -> None:
    # GIVEN aten::div that calls aten::div, which launches a kernel of 70
    t = TraceBuilder()
    t.op("aten::div", 0, 1_000)
    t.op("aten::div", 100, 500)
    t.launch("k", at=200, start=300, duration=70)
    row = report(read_back(t, tmp_path), "operators").table("operators").set_index("name").loc["aten::div"]
    assert row[["calls", "device_self_ns", "device_total_ns", "launching_calls"]].tolist() == [2, 70, 70, 1]


def test_overlapping_events_of_a_call_are_a_union_and_a_sum(tmp_path: Path) -> None:
    # GIVEN one call with kernels [100, 200) and [150, 260), another with [300, 310)
    t = TraceBuilder()
    for at, kernels in ((0, ((100, 100), (150, 110))), (1_000, ((300, 10),))):
        t.op("aten::cat", at, 500)
        for i, (start, duration) in enumerate(kernels):
            t.launch("k", at=at + 10 + 20 * i, start=start, duration=duration, call_duration=5, stream=7 + i)
    row = report(read_back(t, tmp_path), "operators").table("operators").set_index("name").loc["aten::cat"]
    assert row[["device_self_ns", "device_self_union_ns"]].tolist() == [220, 170]


def test_grouping_by_shape_type_module_thread_and_phase(run: Capture) -> None:
    def split(by: str, column: str) -> dict[object, object]:
        t = report(run, "operators", group_by=by).table("operators")
        return t[t["name"] == "aten::addmm"].set_index(column)["device_self_ns"].to_dict()

    assert split("name_shape", "input_shapes") == {"8 4×16 16×8": 120_000}
    assert split("name_dtype", "dtype") == {"fp32": 120_000}
    assert split("name_module", "module") == {"Linear": 120_000}
    assert split("name_phase", "id") == {"aten::addmm forward": 120_000}
    # AND grouped by name alone a row of several shapes says how many
    t = report(run, "operators").table("operators").set_index("name")
    assert t.loc["aten::linear", "input_shapes"] == "4×16 8×16 8" and pd.isna(t.loc["aten::mm", "input_shapes"])


def test_work_from_before_the_window_has_its_row_and_a_notice(tmp_path: Path) -> None:
    # GIVEN a kernel whose correlation lies below that of every call
    t = TraceBuilder()
    t.kernel("old", 0, 300, correlation=1)
    t.op("aten::relu", 0, 100)
    t.launch("k", at=10, start=400, duration=100)
    answer = report(read_back(t, tmp_path), "operators")
    table = answer.table("operators").set_index("name")["device_self_ns"]
    assert table.to_dict() == {"aten::relu": 100, "(launched before the window)": 300}
    assert answer.facts["before_window_ns"] == 300 and "75.0\u202f%" in answer.notices[0].text


def test_the_figure_follows_the_measure(run: Capture) -> None:
    for measure, first in (("device_self", "aten::mm"), ("host_total", "autograd::engine::evaluate_function: AddmmBackward0")):
        figure = report(run, "operators", measure=measure).section("top")
        assert isinstance(figure, FigureSection)
        assert figure.figure["data"][0]["customdata"][0] == first  # type: ignore[index]


# -- modules ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("direction", "time"), [("forward", 140_000), ("backward", 160_000), ("both", 300_000)])
def test_modules_by_direction_and_the_rows_outside(run: Capture, direction: str, time: int) -> None:
    answer = report(run, "modules", direction=direction)
    table = answer.table("modules").set_index("name")
    assert table.loc["Net_0", ["time_ns", "device_total_ns", "backward_device_ns"]].tolist() == [time, 140_000, 160_000]
    # GIVEN 312 000 in all: outside are the optimizer's 10 000 and 2 000 of no operator, and backward work where it is not counted
    outside = table.loc["(outside every module)", "device_total_ns"]
    assert outside == 12_000 + (160_000 if direction == "forward" else 0)
    assert (answer.facts["instances"], answer.facts["calls"], answer.facts["classes"]) == (3, 6, 2)


def test_the_tree_keys_are_paths_and_the_icicle_carries_them(run: Capture) -> None:
    answer = report(run, "modules")
    table = answer.table("modules")
    assert table["id"].tolist()[:3] == ["Net_0", "Net_0/Linear_0", "Net_0/Linear_1"]
    assert answer.section("modules").data["parent"][:3] == [None, "Net_0", "Net_0"]  # type: ignore[union-attr]
    icicle = answer.section("icicle")
    assert isinstance(icicle, FigureSection)
    trace = icicle.figure["data"][0]  # type: ignore[index]
    assert trace["customdata"] == table["id"].tolist()[:3]
    # AND a parent is at least as wide as its children together
    widths = dict(zip(trace["labels"], trace["values"], strict=True))
    assert widths["Net_0"] >= widths["Linear_0"] + widths["Linear_1"]


def test_a_merged_tree_has_rows_for_what_a_module_launches_itself(run: Capture) -> None:
    table = report(run, "modules", merge="on").table("modules")
    assert table["name"].tolist() == ["Net_0", "self: relu", "Linear_0", "Linear_1", "(outside every module)"]
    assert table.set_index("name").loc["self: relu", ["parent", "device_self_ns"]].tolist() == ["Net_0", 20_000]


def test_gradient_accumulation_has_a_row_of_its_own(tmp_path: Path) -> None:
    # GIVEN a kernel of 400 launched while a gradient is added to its buffer, which leads to no forward operator
    t = training(steps=1)
    t.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 500_000, 10_000, thread=4243)
    t.launch("add", at=501_000, start=502_000, duration=400, thread=4243)
    c = read_back(t, tmp_path)
    table = report(c, "modules").table("modules").set_index("name")["device_self_ns"]
    assert table["(gradient accumulation)"] == 400 and table["(outside every module)"] == 6_000


def test_modules_without_stacks_are_unavailable_and_say_how_to_record_them(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.op("aten::relu", 0, 10)
    answer = read_back(t, tmp_path).analyze("modules")
    assert isinstance(answer, UnavailableReport) and "with_stack=True" in answer.record_it_with


# -- phases -------------------------------------------------------------------------------------------------------


def test_phases_per_step_and_the_row_outside(run: Capture) -> None:
    answer = report(run, "phases", per="step")
    table = answer.table("phases").set_index("path")
    # GIVEN two steps: times and counts are halved
    assert table.loc["ProfilerStep/backward", ["count", "host_ns", "device_sum_ns", "device_events"]].tolist() == [1, 400_000, 80_000, 2]
    assert table.loc["ProfilerStep/optimizer/step", "device_ns"] == 5_000
    assert answer.facts["by_time_ns"] == 160_000 and answer.facts["steps"] == 2
    assert table["device_sum_ns"].iloc[0] == 156_000


def test_the_average_step_adds_up_on_both_bars(run: Capture) -> None:
    section = report(run, "phases").section("average")
    assert isinstance(section, FigureSection)
    bars: dict[str, float] = {}
    for piece in section.figure["data"]:  # type: ignore[attr-defined]
        bars[piece["y"][0]] = bars.get(piece["y"][0], 0.0) + piece["x"][0]
    # GIVEN host steps of 999 000 ns, in microseconds on the axis
    assert bars["Host"] == pytest.approx(999.0) and bars["GPU"] == pytest.approx(999.0)


# -- links and health ---------------------------------------------------------------------------------------------


def test_links_of_a_training_run(run: Capture) -> None:
    answer = report(run, "links")
    assert answer.facts["sequence_numbers_with_backward"] == answer.facts["backward_linked"] == 4
    assert (answer.facts["fwdbwd_flow_pairs"], answer.facts["backward_links"], answer.facts["no_record_events"]) == (0, 4, 0)
    methods = answer.table("methods").set_index("method")
    assert methods.loc["correlation", ["events", "with_operator", "with_module", "time_ns"]].tolist() == [14, 12, 6, 312_000]
    assert answer.table("backward").set_index("method")["links"].to_dict() == {"flow": 0, "sequence number": 4}


def test_flow_pairs_need_both_halves(tmp_path: Path) -> None:
    t = training(steps=1)
    t.forward_backward(45_000, 405_000, backward_thread=4243)
    t._flow_half("s", "fwdbwd", 99, t.pid, t.thread, 100_000)
    answer = report(read_back(t, tmp_path), "links")
    assert answer.facts["fwdbwd_flow_pairs"] == 1
    flows = answer.table("flows").set_index("category")
    assert flows.loc["fwdbwd", ["starts", "ends", "pairs"]].tolist() == [2, 1, 1]


def test_gradient_accumulation_is_counted_apart(tmp_path: Path) -> None:
    t = training(steps=1)
    t.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 500_000, 1_000, thread=4243)
    facts = report(read_back(t, tmp_path), "links").facts
    assert (facts["gradient_accumulation"], facts["sequence_numbers_with_backward"]) == (1, 2)


def test_health_counts_the_whole_file(run: Capture) -> None:
    answer = report(run, "health")
    assert answer.facts["total_events"] == run.facts.total_events == answer.table("categories")["count"].sum()
    assert (answer.facts["device_events"], answer.facts["unlinked_device_events"], answer.facts["truncated"]) == (14, 0, False)
    recorded = answer.table("recorded").set_index("what")
    assert recorded.loc["Device activity", "recorded"] == "yes" and recorded.loc["Communication kernels", "recorded"] == "no"


def test_health_counts_oddities_alike_in_headline_badge_and_facts(tmp_path: Path) -> None:
    # GIVEN an event of zero length, which changes no number, and a kernel without a launch, which is in rows of its own
    t = training()
    t.op("aten::nothing", 1_000, 0)
    t.op("aten::negative", 2_000, -5)
    c = read_back(t, tmp_path)
    every = c.tables["issues"]["reason"].astype(str).tolist()
    assert "zero-length event" in every and len(every) > 1
    # THEN headline, badge, fact, and the overview count those that a reader should know of
    answer, count = report(c, "health"), registry()["health"].count
    assert count is not None and count(c) == answer.facts["issues"] == report(c, "overview").facts["oddities"] == len(every) - 1
    words = "one kind of oddity" if len(every) == 2 else f"{len(every) - 1} kinds of oddity"
    assert words in answer.headline and "without effect" in (answer.section("issues").subtitle or "")


def test_what_was_asked_for_and_is_not_there_is_not_said_to_be_left_out(tmp_path: Path) -> None:
    # GIVEN a recording with profile_memory that holds no memory event, and one without
    with_flag, without = TraceBuilder(header={"profile_memory": 1}), TraceBuilder(header={"profile_memory": 0})
    with_flag.op("aten::mm", 0, 1_000)
    without.op("aten::mm", 0, 1_000)
    asked, left_out = (read_back(t, tmp_path / n).missing("memory") for t, n in ((with_flag, "a"), (without, "b")))
    # THEN only of the second it is said that the flag was not set
    assert asked is not None and asked[0] == "recorded with profile_memory, but the file holds no memory events"
    assert left_out is not None and left_out[0] == "recorded without profile_memory"


def test_health_of_a_cut_file_says_so_first(tmp_path: Path) -> None:
    path = tmp_path / "worker0.1700000000000000000.pt.trace.json"
    path.write_bytes(training().data()[:9_000])
    from tb_sol_plugin.ingest import read

    answer = report(read(str(path)), "health")
    assert answer.facts["truncated"] is True and answer.headline.startswith("The file ends early")
    assert answer.notices[0].level == "warn"


# -- a recording of the host ------------------------------------------------------------------------------------


def test_a_recording_of_the_host_leaves_the_device_parts_out(host_only: Capture) -> None:
    assert report(host_only, "operators").table("operators")["device_self_ns"].isna().all()
    assert report(host_only, "phases").table("phases")["device_ns"].isna().all()
    assert report(host_only, "modules").facts["device_ns"] is None
