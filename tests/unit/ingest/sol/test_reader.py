"""A SOL capture as the tables of a Capture: what stands on the timeline, work with its labels, facts, needs."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin import format as F
from tb_sol_plugin import ingest
from tb_sol_plugin.devices import limits as devices
from tb_sol_plugin.errors import BadInput, NotATrace
from tb_sol_plugin.ingest import classify
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tests.support.check_capture import host_tree_is_whole, survives_the_cache
from tests.support.sol_builder import CUDA, WALL_NS, SolBuilder, small

MS = 1_000_000


@pytest.fixture
def capture(tmp_path: Path) -> Capture:
    return ingest.read(str(small().write(tmp_path)))


def issues(c: Capture) -> dict[str, int]:
    table = c.tables["issues"]
    assert (table["effect"].astype(str) != "").all(), "every oddity says what it changes"
    return dict(zip(table["reason"].astype(str), table["count"].tolist(), strict=True))


def test_the_timeline_is_the_sampled_iteration_with_its_ranges(capture: Capture) -> None:
    # GIVEN three iterations of which the first two are sampled
    host = capture.host
    # THEN the second stands on the timeline: the first carries one-time costs
    rows = list(zip(host["name"].astype(str), host["kind"], host["start_ns"], host["duration_ns"], host["parent"], strict=True))
    assert rows == [
        ("ProfilerStep#1", S.ANNOTATION, 10 * MS, 8 * MS, -1),
        ("train/forward", S.ANNOTATION, 11 * MS, 2 * MS, 0),
        ("nn.Module: MLP_0", S.MODULE, 11_100_000, 1_800_000, 1),
        ("nn.Module: Linear_0", S.MODULE, 11_200_000, 600_000, 2),
        ("nn.Module: Linear_1", S.MODULE, 12_200_000, 400_000, 2),
        ("train/backward", S.ANNOTATION, 13 * MS, 4 * MS, 0),
    ]
    steps = capture.steps
    assert steps[["number", "host", "start_ns", "end_ns", "device_events"]].to_numpy().tolist() == [[1, 0, 10 * MS, 18 * MS, 0]]
    assert capture.facts.extent_ns == (10 * MS, 18 * MS) and not capture.facts.pseudo_step
    host_tree_is_whole(capture)


def test_the_ledger_names_operators_labels_and_host_rows(capture: Capture) -> None:
    ledger, labels = capture.tables["ledger"], capture.tables["labels"]
    names = labels["name"].astype(str).to_numpy()
    # GIVEN the six rows of iteration 1, THEN each has its operator, its cost per call, and rows of labels and of the timeline
    assert ledger["iteration"].tolist() == [1] * 6 and ledger["step"].tolist() == [0] * 6
    assert ledger["name"].astype(str).tolist() == ["aten::mm"] * 5 + ["aten::_foreach_add_"]
    assert ledger["shapes"].astype(str).iloc[0] == "[[8,16],[16,32]]" and ledger["out_shapes"].astype(str).iloc[0] == "[[8,32]]"
    assert (ledger["flop"] * ledger["count"]).sum() == 22_528 and (ledger["bytes"] * ledger["count"]).sum() == 27_520
    assert ledger["count"].tolist() == [1, 1, 1, 1, 1, 2] and ledger["time_ns"].sum() == 2_100_000
    assert names[ledger["module"].to_numpy()[:5]].tolist() == ["mlp.fc1", "mlp.fc2", "mlp.fc2", "mlp.fc2", "mlp.fc1"]
    assert ledger["direction"].tolist() == [0, 0, 1, 1, 1, 0]
    assert names[ledger["forward_phase"].to_numpy()[2:5]].tolist() == ["train/forward"] * 3
    assert names[ledger["function"].to_numpy()[:5]].tolist() == ["F.linear"] * 5
    assert ledger["module_host"].tolist() == [3, 4, 4, 4, 3, -1], "backward work is its module's; the optimizer has none"
    assert ledger["phase_host"].tolist() == [1, 1, 5, 5, 5, 0], "outside every phase it is the step's"


def test_all_iterations_and_their_phase_times_are_there(capture: Capture) -> None:
    table, times = capture.tables["iterations"], capture.tables["label_times"]
    assert table["number"].tolist() == [0, 1, 2] and table["sampled"].tolist() == [True, True, False]
    assert table["duration_ns"].tolist() == [10 * MS, 8 * MS, 8 * MS] and table["overhead_ns"].tolist() == [2 * MS, MS, 20_000]
    assert table["flop"].tolist()[:2] == [22_528.0] * 2 and np.isnan(table["flop"].iloc[2]) and table["ops"].tolist() == [7, 7, -1]
    assert table["batch"].tolist() == [8, 8, 8] and table["tokens"].tolist() == [-1, -1, -1]
    backward = times[times["label"] == 1]
    assert backward["iteration"].tolist() == [0, 1, 2] and backward["duration_ns"].tolist() == [5 * MS, 4 * MS, 4 * MS]


def test_facts_of_a_cpu_and_of_a_device(tmp_path: Path, capture: Capture) -> None:
    # GIVEN a capture made on a CPU, THEN it has no device, and time since 1970
    facts = capture.facts
    assert (facts.source, facts.vendor, facts.devices, facts.limits) == ("sol_capture", "", (), None)
    assert facts.absolute and facts.origin_ns == WALL_NS and facts.rank == 0 and facts.world_size == 1 and facts.host_name == "node1"
    assert facts.flags["record_shapes"] and facts.flags["with_modules"] and not facts.flags["with_stack"]
    assert facts.versions["torch_version"] == "2.6.0" and facts.versions["capture_format"] == "2.0"
    assert facts.metadata["model.parameters"] == "680" and facts.metadata["mode"] == "dispatch"
    assert capture.tables["issues"].empty and not facts.warnings and len(capture.device) == 0
    # GIVEN one made on a GPU, THEN its device is known, and the table's limits are found for it
    gpu = ingest.read(str(small(device=CUDA, time_source="event", cuda="12.4").write(tmp_path / "gpu.sol.jsonl")))
    assert gpu.facts.vendor == "nvidia" and gpu.facts.devices[0].name == "NVIDIA H100 80GB HBM3" and gpu.facts.devices[0].units == 132
    found = devices.device_for(gpu)
    assert found is not None and found.key == "H100_SXM" and found.source == "table"


def test_limits_in_use_while_recording_hold_where_nothing_else_is_known(tmp_path: Path) -> None:
    # GIVEN a device that no table names, and the limits that the recorder was given for it
    own = dict(CUDA) | {"name": "Prototype 9", "key": "proto9", "memory_bytes": None, "units": None}  # type: ignore[arg-type]
    c = ingest.read(str(small(device=own).write(tmp_path)))
    # THEN the page uses those, and says where they are from
    spec = devices.device_for(c)
    assert spec is not None and (spec.key, spec.source, spec.method) == ("proto9", "capture", "capture")
    assert spec.matrix["bf16"] == 989.4e12 and spec.memory_bandwidth == 3.35e12 and spec.vector["fp32"] == 66.9e12
    # AND a reader's choice goes first
    chosen = devices.device_for(c, "A100_SXM_80")
    assert chosen is None or chosen.key == "A100_SXM_80"


@pytest.mark.parametrize("need", ["device_events", "kernels", "operators", "shapes", "collectives", "backward", "copies", "memory"])
def test_what_a_sol_log_cannot_hold_names_how_to_record_it(capture: Capture, tmp_path: Path, need: str) -> None:
    # GIVEN a job on a GPU THEN a trace has what is missing, the one that is there or a new one
    because, hint, argument = ingest.read(str(small(device=CUDA).write(tmp_path))).missing(need) or ("", "", "")
    assert "in a SOL capture" in because and "profiler trace" in hint and argument
    # GIVEN a job on a CPU THEN no recording of it has kernels, and none is asked for
    because, hint, argument = capture.missing(need) or ("", "", "")
    if need in ("device_events", "kernels", "collectives", "copies"):
        assert because == "the job ran on a CPU: it has no kernels, and no copies of a device" and "profile" not in hint and not argument
    else:
        assert "in a SOL capture" in because and argument


def test_a_sol_log_meets_the_requirements_of_pages_on_steps_and_work(capture: Capture) -> None:
    assert [need for need in ("host_events", "modules", "annotations", "steps", "iterations", "work") if capture.missing(need)] == []


def test_a_capture_survives_the_cache(tmp_path: Path) -> None:
    survives_the_cache(ingest.read(str(small(device=CUDA).write(tmp_path))), tmp_path / "cache")


def test_recognized_by_content_whatever_its_name(tmp_path: Path) -> None:
    text = b"".join(small().lines())
    # GIVEN a capture under the names of other files
    for name in ("notes.json", "x.pt.trace.json", "plain", "a.sol.jsonl.gz"):
        (tmp_path / name).write_bytes(text)
        assert classify(text[:65536], name).kind == "sol_capture"
        # THEN it is read as what it is
        assert ingest.read(str(tmp_path / name)).facts.source == "sol_capture"
    (tmp_path / "packed.jsonl").write_bytes(gzip.compress(text))
    assert len(ingest.read(str(tmp_path / "packed.jsonl")).tables["ledger"]) == 6
    # AND a trace that speaks of captures is none
    assert classify(b'{"traceEvents": [], "note": "tb-sol-capture"}', "t.json").kind == "kineto"
    assert classify(b'{"a": 1}\n{"format": "tb-sol-capture"}', "t.jsonl").kind == "other_json"


def test_modules_are_numbered_by_class_in_order_of_first_call(tmp_path: Path) -> None:
    # GIVEN one module called from two places, and two others of the same class, called the other way round than they are defined
    b = SolBuilder()
    left, right = b.module("left", "Block"), b.module("right", "Block")
    late, early, shared, again = (
        b.module("late", "Linear", left), b.module("early", "Linear", left), b.module("shared", "Linear", left),
        b.module("shared", "Linear", right),
    )  # fmt: skip
    times = [b.time(left, 0, 400), b.time(right, 500, 400), b.time(late, 300, 50), b.time(early, 100, 50)]
    times += [b.time(shared, 200, 50), b.time(again, 600, 50)]
    b.iteration(0, 0, 1000, rows=[], modules=times)
    host = ingest.read(str(b.write(tmp_path))).host
    # THEN numbers follow the time of the first call, and the shared module has one
    assert host["name"].astype(str).tolist()[1:] == [
        "nn.Module: Block_0", "nn.Module: Linear_0", "nn.Module: Linear_1", "nn.Module: Linear_2", "nn.Module: Block_1",
        "nn.Module: Linear_1",
    ]  # fmt: skip


def test_work_of_a_module_without_a_range_belongs_to_the_one_around_it(tmp_path: Path) -> None:
    # GIVEN a module whose calls were summed up while recording, inside one that was timed
    b = SolBuilder()
    phase, outer = b.phase("train"), b.module("outer", "Net")
    inner = b.module("outer.inner", "Linear", outer)
    own = b.phase("inside", phase)
    mm = b.sig("aten::mm", [[2, 2], [2, 2]], [[2, 2]], flop=16, bytes=48)
    b.iteration(
        0, 0, 1000, rows=[b.row(mm, module=inner, phase=own), b.row(mm, module=outer)],
        phases=[b.time(phase, 0, 900)], modules=[b.time(outer, 10, 500), b.time(inner, 20, 300, count=40)],
    )  # fmt: skip
    c = ingest.read(str(b.write(tmp_path)))
    # THEN its work stands at that, and the sum is in the times of labels alone
    assert c.tables["ledger"]["module_host"].tolist() == [2, 2] and c.tables["ledger"]["phase_host"].tolist() == [1, 0]
    assert "nn.Module: Linear_0" not in set(c.host["name"].astype(str))
    assert c.tables["label_times"]["count"].tolist() == [1, 1, 40] and issues(c)["ranges summed up while recording"] == 1


def test_a_single_sampled_iteration_is_shown_though_it_is_the_first(tmp_path: Path) -> None:
    b = small()
    b.records = [r for r in b.records if r.get("iteration") in (None, 0)]
    c = ingest.read(str(b.write(tmp_path)))
    assert c.steps["number"].tolist() == [0] and len(c.tables["ledger"]) == 6


def test_a_resumed_run_leaves_out_its_own_first_iteration(tmp_path: Path) -> None:
    # GIVEN iterations 500 to 502, the first and the third sampled
    b = SolBuilder()
    mm = b.sig("aten::mm", [[2, 2], [2, 2]], [[2, 2]], flop=16, bytes=48)
    for number, rows in ((500, [b.row(mm)]), (501, None), (502, [b.row(mm)])):
        b.iteration(number, number * 1000, 900, rows=rows)
    c = ingest.read(str(b.write(tmp_path)))
    assert c.steps["number"].tolist() == [502] and c.tables["ledger"]["iteration"].tolist() == [502]


def test_without_a_sampled_iteration_the_latest_ones_stand_on_the_timeline(tmp_path: Path) -> None:
    # GIVEN 60 iterations with a phase each, none sampled
    b = SolBuilder(mode="off")
    phase = b.phase("train")
    for number in range(60):
        b.iteration(number, number * 1000, 900, phases=[b.time(phase, number * 1000 + 100, 500)])
    c = ingest.read(str(b.write(tmp_path)))
    # THEN the last 50 are shown with their phases, and work is missing with a reason
    assert c.steps["number"].tolist() == list(range(10, 60)) and len(c.host) == 100
    because, hint, _ = c.missing("work") or ("", "", "")
    assert because == "the work of no iteration was counted yet" and "every_n_steps" in hint


def test_totals_that_a_recorder_leaves_out_are_summed_from_its_ledger(tmp_path: Path) -> None:
    # GIVEN a ledger of 3 x 16 FLOP and one call without a cost, and a step record without totals
    b = SolBuilder()
    known = b.sig("aten::mm", [[2, 2], [2, 2]], [[2, 2]], flop=16, bytes=48)
    unknown = b.sig("my::op", [[2]], [[2]], flop=None, flop_vector=None, bytes=None)
    b.iteration(0, 0, 1000, rows=[b.row(known, count=3), b.row(unknown)])
    row = ingest.read(str(b.write(tmp_path))).tables["iterations"].iloc[0]
    assert (row["ops"], row["flop"], row["bytes"], row["unknown"]) == (4, 48.0, 144.0, 1)


def test_two_iterations_of_one_number_are_both_kept(tmp_path: Path) -> None:
    # GIVEN a loop that counts from 0 in every epoch
    b = SolBuilder()
    one, two = b.sig("aten::mm", [[2, 2], [2, 2]], flop=16), b.sig("aten::mm", [[4, 4], [4, 4]], flop=128)
    for start, number, sig in ((0, 0, one), (1000, 1, one), (2000, 0, one), (3000, 1, two)):
        b.iteration(number, start, 900, rows=[b.row(sig)])
    c = ingest.read(str(b.write(tmp_path)))
    # THEN all four are listed, the later ones stand on the timeline, and it is told
    assert c.tables["iterations"]["number"].tolist() == [0, 1, 0, 1]
    assert c.steps[["number", "start_ns"]].to_numpy().tolist() == [[0, 2000], [1, 3000]]
    assert c.tables["ledger"]["flop"].tolist() == [16.0, 128.0]
    assert issues(c)["iteration with the number of an earlier one"] == 1


def test_notes_lost_work_and_compiled_models_are_warnings(tmp_path: Path) -> None:
    b = SolBuilder()
    mm = b.sig("aten::mm", [[2, 2], [2, 2]], flop=16)
    b.note("continued", "continued in part 1")
    b.note("failed_board", "the token=abcdefgh1234 was refused", 3)
    b.iteration(0, 0, 1000, rows=[b.row(mm, flags=F.COMPILED | F.ESTIMATED | F.RECOMPUTE)], lost={"nested tensor": 4})
    c = ingest.read(str(b.write(tmp_path)))
    row = c.tables["ledger"].iloc[0]
    assert row["compiled"] and row["estimated"] and row["recompute"] and row["direction"] == 0
    assert any("compiled" in w for w in c.facts.warnings) and "continued in part 1" in c.facts.warnings
    assert any("(3 times)" in w and "abcdefgh1234" not in w for w in c.facts.warnings)
    assert issues(c) == {"not recorded: nested tensor": 4, "no close record": 1}


# -- files that hold little ------------------------------------------------------------------------------------


def test_a_header_alone_opens_and_says_that_nothing_is_finished(tmp_path: Path) -> None:
    c = ingest.read(str(SolBuilder().write(tmp_path)))
    assert c.facts.warnings == ("no finished iteration yet",) and c.facts.pseudo_step and len(c.steps) == 1
    assert issues(c) == {"no close record": 1}
    for need in ("iterations", "steps", "host_events"):
        assert (c.missing(need) or ("",))[0] == "no finished iteration yet"


def test_an_empty_file_and_text_are_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "a.sol.jsonl").write_bytes(b"")
    with pytest.raises(BadInput, match="has written nothing yet") as found:
        ingest.read(str(tmp_path / "a.sol.jsonl"))
    assert found.value.hint and found.value.file == "a.sol.jsonl"
    (tmp_path / "b.sol.jsonl").write_bytes(b"hello\nworld\n")
    with pytest.raises(NotATrace, match="no SOL capture"):
        ingest.read(str(tmp_path / "b.sol.jsonl"))
    with pytest.raises(BadInput, match="not there"):
        ingest.read(str(tmp_path / "c.sol.jsonl"))


@pytest.mark.parametrize("version", [[3, 0], [99], 4, [0, 9]])
def test_another_major_version_is_refused_by_name(tmp_path: Path, version: object) -> None:
    path = small(version=version).write(tmp_path)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"format \d+\.\d; this version reads 1\.x and 2\.x") as found:
        ingest.read(str(path))
    assert "tb-sol-plugin" in found.value.hint


@pytest.mark.parametrize("version", ["one", None, {}, [None], [True], float(2**70)])
def test_a_malformed_version_is_refused(tmp_path: Path, version: object) -> None:
    with pytest.raises(BadInput):
        ingest.read(str(small(version=version).write(tmp_path)))  # type: ignore[arg-type]


def test_a_newer_minor_version_is_read_without_what_is_new(tmp_path: Path) -> None:
    # GIVEN a file of version 1.7 with a new kind of record, new fields, and longer rows
    b = small(version=[1, 7], weather="fine")
    for record in b.records:
        record["mood"] = {"good": True}
        if record["kind"] == "ledger":
            record["rows"] = [[*row, "new"] for row in record["rows"]]  # type: ignore[union-attr]
    b.records.insert(5, {"kind": "energy", "joule": 3})
    c = ingest.read(str(b.write(tmp_path)))
    # THEN everything known is read, and the unknown kind is counted
    assert len(c.tables["ledger"]) == 6 and c.facts.versions["capture_format"] == "1.7"
    assert issues(c) == {"record of an unknown kind": 1}
