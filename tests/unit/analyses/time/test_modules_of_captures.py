"""The modules page of SOL captures and of traces without modules beside one: names in the model, work and times by iteration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin.analyses.time.modules_tables import below, node_names, row_names
from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.trees.modules import merge_siblings, module_times
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import FigureSection, TableSection, UnavailableReport
from tests.support.captures import report
from tests.support.sol_builder import CUDA, SolBuilder, small
from tests.support.trace_builder import TraceBuilder

TOTAL = 22_528
"""Matrix FLOP of a sampled iteration of `small`."""
MODULES = ["mlp", "mlp.fc1", "mlp.fc2"]


def trace(folder: Path, *, number: int = 2, modules: bool = False, device: bool = False) -> Capture:
    """One step with one product of 64 x 64, in a module or in none."""
    t = TraceBuilder(device="NVIDIA H100 80GB HBM3") if device else TraceBuilder()
    t.step(number, 0, 1_000_000)
    if modules:
        t.module("Net_0", 5_000, 500_000, module_id=1)
    t.op("aten::mm", 10_000, 300_000, shapes=[[64, 64], [64, 64]], types=["float", "float"])
    if device:
        t.launch("gemm", at=20_000, start=40_000, duration=200_000)
    return read(str(t.write(folder / "worker0.1700000000000000000.pt.trace.json")))


def joined(folder: Path, b: SolBuilder, **options: object) -> Capture:
    return trace(folder, **options).with_ledger(read(str(b.write(folder / b.name))))  # type: ignore[arg-type]


def test_a_trace_without_modules_has_those_of_the_capture_beside_it(tmp_path: Path) -> None:
    # GIVEN step 2 of a trace, whose inputs had the sizes of the sampled iteration 1
    answer = report(joined(tmp_path, small()), "modules")
    rows = answer.table("modules").set_index("name")
    # THEN the tree is that of the capture's labels, with iteration 1's work: fc1 2 x 8 192, fc2 3 x 2 048, and all in the model
    assert rows["flop"].to_dict() == {"mlp": TOTAL, "fc1": 16_384, "fc2": 6_144, "(outside every module)": 0}
    assert rows["backward_flop"].tolist()[:3] == [12_288, 8_192, 4_096]
    assert rows["bytes"].to_dict() == {"mlp": 12_160, "fc1": 7_168, "fc2": 4_992, "(outside every module)": 15_360}
    # AND their calls, and the time of their operators: 0.4 + 0.8 ms and 0.2 + 2 x 0.3 ms, 0.1 ms outside; no time of the host
    assert rows["calls"].tolist()[:3] == [1, 1, 1] and rows["host_total_ns"].isna().all()
    assert rows["operator_ns"].to_dict() == {"mlp": 2_000_000, "fc1": 1_200_000, "fc2": 800_000, "(outside every module)": 100_000}
    # AND the page says where they come from, in a notice, above the tables and in the words of the columns
    (notice,) = answer.notices
    assert "iteration 1 of the SOL capture" in notice.text and "with_stack=True" in notice.text and notice.level == "info"
    table, classes = answer.section("modules"), answer.section("classes")
    assert isinstance(table, TableSection) and isinstance(classes, TableSection)
    assert all("iteration 1 of the SOL capture" in c.doc for c in (*table.columns, *classes.columns) if c.unit)
    assert table.subtitle.startswith("of iteration 1 of the SOL capture")
    assert answer.facts["flop"] == TOTAL and answer.facts["calls"] == 3
    assert classes.data["class_name"] == ["MLP", "Linear"] and classes.data["flop"] == [TOTAL, TOTAL]
    assert "2 `Linear` modules" in answer.headline


def test_each_pass_and_each_step_of_such_a_trace(tmp_path: Path) -> None:
    c = joined(tmp_path, small())
    forward, backward = (report(c, "modules", direction=d).table("modules")["flop"].tolist() for d in ("forward", "backward"))
    # THEN forward work inside the model is 10 240, backward work 12 288, and the two passes make up the whole
    assert forward[:3] == [10_240, 8_192, 2_048] and backward[:3] == [12_288, 8_192, 4_096]
    assert forward[0] + backward[0] == TOTAL
    assert report(c, "modules", step="2").table("modules")["flop"].tolist() == report(c, "modules").table("modules")["flop"].tolist()
    assert not isinstance(c.analyze("modules", merge="on"), UnavailableReport)


@pytest.mark.parametrize("device", [False, True])
def test_without_an_iteration_of_the_same_sizes_the_last_sampled_one_is_shown_with_a_warning(tmp_path: Path, device: bool) -> None:
    b = SolBuilder(device=CUDA, time_source="event") if device else SolBuilder()
    layer = b.module("net", "Linear")
    mm = b.sig("aten::mm", [[8, 8], [8, 8]], flop=1024, bytes=768)
    for number, count in ((0, 1), (3, 2), (7, 5)):
        b.iteration(number, 10_000 * number, 9_000, rows=[b.row(mm, module=layer, count=count)], signature=f"size {number}")
    answer = report(joined(tmp_path, b, device=device), "modules")
    assert answer.table("modules")["flop"].tolist()[0] == 5 * 1024
    (notice,) = answer.notices
    assert notice.level == "warn" and "iteration 7" in notice.text and "last one" in notice.text
    # AND calls that the recorder did not time are unknown, not none
    assert answer.table("modules")["calls"].isna().all()


def test_on_a_device_only_modules_without_others_inside_have_a_time(tmp_path: Path) -> None:
    # GIVEN a capture of a GPU: no operator is timed, the two layers have events of 540 and 360 us around their forward pass
    b = small(device=CUDA, time_source="event")
    for record in b.records:
        for row in record.get("rows", []):  # type: ignore[union-attr]
            if record["kind"] == "ledger":
                row[7] = None  # type: ignore[index, call-overload]
            elif record["kind"] == "module_time" and row[0] != 2:  # type: ignore[index, call-overload]
                row[3] = int(0.9 * row[2])  # type: ignore[index, call-overload, operator, arg-type]
    c = joined(tmp_path, b, device=True)
    rows = report(c, "modules", direction="forward").table("modules").set_index("name")
    assert rows["operator_ns"].isna().all() and rows["device_total_ns"].dropna().to_dict() == {"fc1": 540_000, "fc2": 360_000}
    assert rows["efficiency"].notna().tolist()[:3] == [False, True, True]


@pytest.mark.parametrize(("steps", "words"), [(2, "iterations 1, 2"), (5, "5 iterations from 1 to 5")])
def test_several_steps_take_the_iterations_of_their_own_numbers(tmp_path: Path, steps: int, words: str) -> None:
    # GIVEN a trace of steps 1, 2, …, each of inputs of its own size, and the same iterations sampled with 1, 2, … products
    b = SolBuilder()
    layer = b.module("net", "Linear")
    mm = b.sig("aten::mm", [[8, 8], [8, 8]], flop=1024, bytes=768)
    t = TraceBuilder()
    b.iteration(0, 0, 9_000, rows=[b.row(mm, module=layer, count=100)], signature="first")
    for n in range(1, steps + 1):
        t.step(n, 1_000_000 * n, 900_000)
        t.op("aten::mm", 1_000_000 * n + 10_000, 300_000)
        b.iteration(n, 10_000 * n, 9_000, rows=[b.row(mm, module=layer, count=n)], signature=f"size {n}")
    c = read(str(t.write(tmp_path / "worker0.1700000000000000000.pt.trace.json"))).with_ledger(read(str(b.write(tmp_path / b.name))))
    answer = report(c, "modules")
    assert words in answer.notices[0].text and "steps" not in answer.notices[0].text
    assert answer.table("modules")["flop"].tolist()[0] == 1024 * steps * (steps + 1) // 2
    # AND one of them alone has its own
    assert report(c, "modules", step="2").table("modules")["flop"].tolist()[0] == 2 * 1024


def test_steps_that_no_sampled_iteration_is_like_are_told(tmp_path: Path) -> None:
    # GIVEN steps 1 and 2 of a trace, of which only the second had inputs of sizes that were sampled
    b = SolBuilder()
    layer = b.module("net", "Linear")
    mm = b.sig("aten::mm", [[8, 8], [8, 8]], flop=1024, bytes=768)
    for n, size, count in ((0, "a", 100), (1, "b", 0), (2, "c", 0), (3, "c", 7)):
        b.iteration(n, 10_000 * n, 9_000, rows=[b.row(mm, module=layer, count=count)] if count else None, signature=size)
    t = TraceBuilder()
    for n in (1, 2):
        t.step(n, 1_000_000 * n, 900_000)
        t.op("aten::mm", 1_000_000 * n + 10_000, 300_000)
    c = read(str(t.write(tmp_path / "worker0.1700000000000000000.pt.trace.json"))).with_ledger(read(str(b.write(tmp_path / b.name))))
    answer = report(c, "modules")
    assert answer.table("modules")["flop"].tolist()[0] == 7 * 1024
    assert "iteration 3" in answer.notices[0].text and "1 of its 2 steps" in answer.notices[0].text
    # AND the other step alone has the last sampled one, with a warning
    assert report(c, "modules", step="1").notices[0].level == "warn"


def test_work_of_an_iteration_without_a_record_of_its_own_is_shown(tmp_path: Path) -> None:
    b = SolBuilder()
    layer = b.module("net", "Linear")
    b.iteration(1, 0, 9_000, rows=[b.row(b.sig("aten::mm", [[8, 8], [8, 8]], flop=1024, bytes=768), module=layer)])
    b.records = [record for record in b.records if record["kind"] != "step"]
    answer = report(joined(tmp_path, b), "modules")
    assert answer.table("modules")["flop"].tolist()[0] == 1024 and answer.notices[0].level == "warn"


def test_a_trace_with_modules_of_its_own_keeps_them(tmp_path: Path) -> None:
    c = joined(tmp_path, small(), modules=True)
    alone = trace(tmp_path, modules=True)
    for query in ({}, {"merge": "on"}):
        one, two = (report(x, "modules", **query) for x in (c, alone))
        assert one.section("modules").data == two.section("modules").data  # type: ignore[union-attr]
        assert one.headline == two.headline and one.section("modules").data["name"][0] == "Net_0"  # type: ignore[union-attr]


def test_a_trace_beside_a_capture_without_modules_says_how_to_record_them(tmp_path: Path) -> None:
    b = SolBuilder()
    b.iteration(1, 0, 9_000, rows=[b.row(b.sig("aten::mm", [[8, 8], [8, 8]], flop=1024, bytes=768))])
    answer = joined(tmp_path, b).analyze("modules")
    assert isinstance(answer, UnavailableReport) and answer.argument == "with_stack=True"


def test_work_without_products_has_a_headline(tmp_path: Path) -> None:
    b = SolBuilder()
    norm = b.module("norm", "LayerNorm")
    b.iteration(
        1, 0, 9_000, rows=[b.row(b.sig("aten::add", [[8], [8]], flop=0, bytes=96, work="elementwise"), module=norm)], signature="8x16"
    )
    assert report(joined(tmp_path, b), "modules").headline == "No matrix work was counted in modules."


# -- names --------------------------------------------------------------------------------------------------------


def layered() -> SolBuilder:
    """Three blocks `net.blocks.k` of `norm`, `mlp` (`0` and `2`), called at 0 in steps of 10 us; the model `net` around them."""
    b = SolBuilder()
    mm = b.sig("aten::mm", [[8, 8], [8, 8]], flop=1024, bytes=768)
    root = b.module("net", "Net")
    rows, times = [], [b.time(root, 0, 90_000)]
    for k in range(3):
        block = b.module(f"net.blocks.{k}", "Block", root)
        mlp = b.module(f"net.blocks.{k}.mlp", "Sequential", block)
        times += [b.time(block, 10_000 * k + 1_000, 9_000), b.time(mlp, 10_000 * k + 2_000, 7_000)]
        for i, at in (("0", 3_000), ("2", 5_000)):
            layer = b.module(f"net.blocks.{k}.mlp.{i}", "Linear", mlp)
            times.append(b.time(layer, 10_000 * k + at, 1_000))
            rows.append(b.row(mm, module=layer, time_ns=900))
    b.iteration(1, 0, 100_000, rows=rows, modules=times)
    return b


def test_the_tree_of_a_capture_has_the_names_of_the_model(tmp_path: Path) -> None:
    c = read(str(layered().write(tmp_path / layered().name)))
    answer = report(c, "modules")
    rows = answer.table("modules")
    # THEN a name is what the parent's does not say, the class stands beside it, the key counts instances as in a trace
    assert rows["name"].tolist()[:6] == ["net", "blocks.0", "mlp", "0", "2", "blocks.1"]
    assert rows["class_name"].tolist()[:6] == ["Net", "Block", "Sequential", "Linear", "Linear", "Block"]
    assert rows["id"].tolist()[3] == "Net_0/Block_0/Sequential_0/Linear_0" and rows["qualified_name"].tolist()[3] == "net.blocks.0.mlp.0"
    section, icicle = answer.section("modules"), answer.section("icicle")
    assert isinstance(section, TableSection) and isinstance(icicle, FigureSection)
    assert {column.name: column.rank for column in section.columns}["class_name"] == 1
    assert icicle.figure["data"][0]["labels"][:3] == ["net", "blocks.0", "mlp"]  # type: ignore[index]
    assert "<b>blocks.0</b> Block<br>" in icicle.figure["data"][0]["hovertext"][1]  # type: ignore[index]
    # AND merged siblings are named by what they share
    merged = report(c, "modules", merge="on").table("modules")
    assert merged["name"].tolist()[:4] == ["net", "blocks.0–2 3×", "mlp 3×", "0 + 2 6×"]
    assert merged["id"].tolist()[1] == "Net_0/Block×3"
    assert merged["qualified_name"].tolist()[1] == "net.blocks.0, net.blocks.1, net.blocks.2"
    # AND the roofline has the whole names
    names = set(report(c, "roofline", by="module").table("ops")["name"])
    assert names == {f"net.blocks.{k}.mlp.{i}" for k in range(3) for i in (0, 2)}


def test_names_of_merged_rows(tmp_path: Path) -> None:
    c = read(str(layered().write(tmp_path / layered().name)))
    nodes = module_times(c, scope(c, Query()))
    rows = merge_siblings(nodes)
    count = len(nodes)
    assert [len(r.nodes) for r in rows] == [1, 3, 3, 6]
    # GIVEN other names for the same tree THEN: too many are the class, unknown ones the recorder's, a foreign parent hides nothing
    assert row_names(rows, [f"n{i}x" for i in range(count)])[3] == "Linear 6×"
    assert row_names(rows, [f"layers.{3 * i}" for i in range(count)])[1] == "layers.3 + layers.15 + layers.27 3×"
    assert node_names(nodes, [""] * count) == nodes["name"].tolist()
    assert below("shared.fc", "decoder") == "shared.fc" and below("blocks.10", "blocks.1") == "blocks.10"


# -- phases and labels --------------------------------------------------------------------------------------------


def test_all_numbers_of_the_phases_are_per_step(tmp_path: Path) -> None:
    # GIVEN two sampled iterations, 1 and 2, of the same work
    b = small()
    ledger = next(r for r in b.records if r["kind"] == "ledger" and r["iteration"] == 1)
    b.records.append(dict(ledger, iteration=2))
    next(r for r in b.records if r["kind"] == "step" and r["iteration"] == 2)["sampled"] = True
    c = read(str(b.write(tmp_path / b.name)))
    whole, each = (report(c, "phases", per=per).table("phases").set_index("name") for per in ("all", "step"))
    # THEN per step every count is half of the sum: 2 ranges, 4 calls forward; 7 calls in a step
    assert (whole["count"]["forward"], whole["ops"]["forward"], each["count"]["forward"], each["ops"]["forward"]) == (2, 4, 1, 2)
    assert [each[name]["ProfilerStep"] for name in ("count", "ops", "flop")] == [1, 7, TOTAL]


def test_work_in_no_phase_has_the_word_of_the_console(tmp_path: Path) -> None:
    b = small(device=CUDA, time_source="event")
    answer = report(read(str(b.write(tmp_path / b.name))), "phases")
    once = answer.table("once").set_index("phase")
    assert list(once.index) == ["train/backward", "train/forward", "(no phase)"] and once["ops"].tolist() == [3, 2, 2]
    section = answer.section("once")
    assert isinstance(section, TableSection) and section.last == ["(no phase)"]


def test_backward_work_by_the_phase_of_its_forward_operator_and_by_function(tmp_path: Path) -> None:
    # GIVEN 10 240 FLOP forward and 12 288 backward, all of F.linear called in train/forward, and two adds in neither
    b = small()
    c = read(str(b.write(tmp_path / b.name)))

    def flop(by: str, **query: str) -> dict[str, int]:
        rows = report(c, "roofline", by=by, **query).table("ops")
        return dict(zip(rows["name"].tolist(), rows["flop"].tolist(), strict=True))

    assert flop("phase") == {"train/backward": 12_288, "train/forward": 10_240, "ProfilerStep": 0}
    assert flop("forward_phase") == {"train/forward": TOTAL, "(outside every phase)": 0}
    assert flop("forward_phase", direction="backward") == {"train/forward": 12_288}
    assert flop("function") == {"F.linear": TOTAL, "(outside every function)": 0}
    table = report(c, "roofline", by="function").section("ops")
    assert isinstance(table, TableSection) and table.title == "Functions"


@pytest.mark.parametrize("by", ["forward_phase", "function"])
def test_a_trace_records_neither_the_forward_phase_nor_the_function_of_a_call(tmp_path: Path, by: str) -> None:
    for c in (trace(tmp_path), joined(tmp_path, small())):
        answer = c.analyze("roofline", by=by)
        assert isinstance(answer, UnavailableReport) and "trace does not record" in answer.because


def test_sums_over_the_tree_are_those_of_the_ledger(tmp_path: Path) -> None:
    c = joined(tmp_path, small())
    ledger = c.tables["ledger"]
    own = ledger[ledger["iteration"] == 1]
    rows = report(c, "modules").table("modules")
    top = rows[rows["parent"].isna()]
    for name in ("flop", "bytes"):
        assert np.nansum(top[name].to_numpy(float)) == np.nansum(own[name].to_numpy(float) * own["count"].to_numpy())
