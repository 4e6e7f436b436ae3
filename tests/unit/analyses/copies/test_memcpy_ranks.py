"""Ranks beside each other: every number of a run of twelve workers, worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.model.report import FigureSection, Report, TableSection, UnavailableReport, encode
from tb_sol_plugin.web.wire import csv_of
from tests.support.ranks import BACK_BYTES, BACK_NS, READ, UPLOAD_BYTES, rank_trace, write_run


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("logs") / "job")


@pytest.fixture(scope="module")
def report(run_folder: Path) -> Report:
    found = sol.open(str(run_folder), cache=False).analyze("memcpy_ranks")
    assert isinstance(found, Report)
    return found


def test_the_table_has_a_row_per_rank_and_direction(report: Report) -> None:
    # GIVEN nine readable ranks and the second file of rank 3 THEN two rows each, numbers per step
    t = report.table("ranks")
    assert len(t) == 20 and set(t["rank"]) == set(READ)
    slow = t[(t["rank"] == 7) & (t["direction"] == "HtoD")].iloc[0]
    # two steps of 1 MB in 400 us, of which 10 us lie behind the kernel
    assert (slow["count"], slow["count_per_step"], slow["steps"], slow["bytes"], slow["bytes_per_step"]) == (2, 1.0, 2, 2_000_000, 1_000_000)
    assert (slow["time_ns"], slow["time_per_step_ns"], slow["hidden_ns"], slow["exposed_ns"], slow["exposed_per_step_ns"]) == (
        800_000, 400_000, 20_000, 780_000, 390_000,
    )  # fmt: skip
    assert slow["bandwidth_bytes_per_s"] == UPLOAD_BYTES / 400e-6 and slow["of_median"] == 10.0  # 400 us over 40 us
    back = t[(t["rank"] == 0) & (t["direction"] == "DtoH")].iloc[0]
    assert (back["time_per_step_ns"], back["bytes_per_step"], back["of_median"]) == (BACK_NS, BACK_BYTES, 1.0)


def test_directions_over_the_ranks(report: Report) -> None:
    # GIVEN nine ranks that count: eight uploads of 40 us, one of 400 THEN median 40, imbalance 10, and 360 us above the median
    t = report.table("directions").set_index("direction")
    up = t.loc["HtoD"]
    assert (up["ranks"], up["time_median_ns"], up["time_max_ns"], up["imbalance"], up["excess_ns"]) == (9, 40_000, 400_000, 10.0, 360_000)
    assert up["longest_rank"] == "rank 7" == up["slowest_rank"] == up["exposed_rank"] and up["exposed_excess_ns"] == 360_000
    assert up["bytes_imbalance"] == 1.0 and up["slowest_bytes_per_s"] == 2.5e9 and up["bandwidth_spread"] == 10.0
    # all bytes over all time: 9 ranks x 1 MB per (8 x 40 + 400) us
    assert up["bandwidth_bytes_per_s"] == pytest.approx(9e6 / 720e-6)
    assert (t.loc["DtoH", "imbalance"], t.loc["DtoH", "excess_ns"]) == (1.0, 0)
    assert t.loc["DtoH", ["longest_rank", "slowest_rank", "exposed_rank"]].isna().all()  # all alike: nobody is named


def test_peer_copies_are_unknown_where_none_was_recorded(report: Report) -> None:
    # GIVEN thirteen ranks, each with a device, and no peer copy THEN their row is there without a number, and says why
    section = report.section("directions")
    assert isinstance(section, TableSection)
    at = section.data["direction"].index("PtoP")
    assert all(values[at] is None for name, values in section.data.items() if name != "direction")
    assert section.marks["ranks"][str(at)].state == "unknown"
    assert any("Unknown, not zero" in n.text for n in report.notices)


def test_broken_missing_and_doubled_ranks_are_named(report: Report) -> None:
    # THEN broken workers are listed with reasons, missing ranks by number, the rank that is there twice by its workers
    t = report.table("left_out")
    assert t["worker"].tolist() == ["rank8", "rank9"] and all(t["why"]) and t["rank"].tolist() == [8, 9]
    text = " ".join(n.text for n in report.notices)
    assert "2 workers of 12 left out" in text and "Ranks 5 and 12 of 13 have no recording" in text
    assert "Rank 3 is there twice: `again_rank3`, `rank3`; `rank3`, which recorded for longer" in text
    facts = report.facts
    assert (facts["workers"], facts["workers_read"], facts["ranks_present"], facts["world_size"], facts["ranks_missing"]) == (12, 10, 9, 13, 2)


def test_the_rank_that_is_there_twice_counts_once(report: Report) -> None:
    # GIVEN 90 us in the second file of rank 3 THEN its rows are shown and marked, and no median knows of them
    section = report.section("ranks")
    assert isinstance(section, TableSection)
    second = [str(i) for i, w in enumerate(section.data["worker"]) if w == "again_rank3"]
    assert len(second) == 2 and set(section.marks["rank"]) == set(second)
    assert section.data["time_per_step_ns"][int(second[0])] in (90_000, BACK_NS)


def test_the_rank_far_from_the_others_is_marked_and_named(report: Report) -> None:
    section = report.section("ranks")
    assert isinstance(section, TableSection)
    marked = [section.data["id"][int(i)] for i in section.marks["of_median"]]
    assert marked == ["rank7|HtoD"]
    assert report.headline.startswith("Host to device: **rank 7** copies for 400.0") and "10.00 times the median of 9 ranks" in report.headline
    assert report.facts["imbalance"] == 10.0 == report.facts["htod_imbalance"] and report.facts["excess_ns"] == 360_000


def test_rows_lead_to_the_copies_of_their_worker(report: Report) -> None:
    section = report.section("ranks")
    assert isinstance(section, TableSection)
    for i, key in enumerate(section.data["id"]):
        link = section.row_links[str(i)]
        assert link.analysis == "memcpy" and f"{link.query['worker']}|{link.query['find']}" == key
        assert link.query["span"] == "1700000000000000000"


def test_the_figure_has_a_place_for_each_rank_with_a_recording_and_for_no_other(report: Report) -> None:
    figure = report.section("panels")
    assert isinstance(figure, FigureSection) and figure.table == "ranks"
    points = next(t for t in figure.figure["data"] if t["name"] == "Host to device")  # type: ignore[attr-defined]
    # GIVEN ranks 5 and 12 without a file THEN neither is on the axis, and the ranks after 5 stand one place to the left of their number
    recorded = [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
    axes = [v for k, v in figure.figure["layout"].items() if k.startswith("xaxis")]  # type: ignore[attr-defined]
    assert axes and all(a["ticktext"] == [str(r) for r in recorded] and a["tickvals"] == list(range(11)) for a in axes)
    assert all(a["range"] == [-0.5, 10.5] for a in axes) and axes[-1]["title"]["text"] == "rank (those with a recording)"
    assert [recorded[int(x)] for x in points["x"]] == list(READ) and points["y"] == [400.0 if r == 7 else 40.0 for r in READ]
    # THEN a recording that cannot be read has a cross that says why
    absent = next(t for t in figure.figure["data"] if t["name"] == "left out")  # type: ignore[attr-defined]
    assert [recorded[x] for x in absent["x"]] == [8, 9] and "rank 8" in absent["hovertext"][0] and "empty" in absent["hovertext"][1]


@pytest.mark.parametrize(
    ("what", "of_median"), [("time", 10.0), ("exposed", 13.0), ("bytes", 1.0), ("bandwidth", 0.1), ("host", None)]
)
def test_ranks_are_compared_by_each_measure(run_folder: Path, what: str, of_median: float | None) -> None:
    # GIVEN exposed 390 us over 30, equal bytes, 2.5 GB/s over 25, and no host time held by any (so the median is 0)
    found = sol.open(str(run_folder), cache=False).analyze("memcpy_ranks", what=what)
    assert isinstance(found, Report) and json.loads(encode(found), parse_constant=pytest.fail)["available"]
    t = found.table("ranks")
    value = t[(t["worker"] == "rank7") & (t["direction"] == "HtoD")]["of_median"].iloc[0]
    assert value is None if of_median is None else value == pytest.approx(of_median)


def test_a_chosen_step_compares_its_copies_alone(run_folder: Path) -> None:
    # GIVEN step 2, which the second file of rank 3 does not have THEN it is left out with that reason, the others are there
    found = sol.open(str(run_folder), cache=False).analyze("memcpy_ranks", step=2)
    assert isinstance(found, Report)
    t = found.table("left_out").set_index("worker")
    assert t.loc["again_rank3", "why"] == "no step 2" and set(found.table("ranks")["steps"]) == {1}


def test_a_step_that_nobody_has_is_a_bad_query(run_folder: Path) -> None:
    with pytest.raises(BadQuery, match="no step 99"):
        sol.open(str(run_folder), cache=False).analyze("memcpy_ranks", step=99)


def test_a_run_of_one_worker_says_how_to_record_more(tmp_path: Path) -> None:
    rank_trace(0, world=1).write(tmp_path / "one" / "rank0.1.pt.trace.json")
    run = sol.open(str(tmp_path / "one"), cache=False)
    for found in (run.analyze("memcpy_ranks"), run.captures[0].analyze("memcpy_ranks")):
        assert isinstance(found, UnavailableReport)
        assert "one worker here" in found.because and "tensorboard_trace_handler" in found.argument


def test_even_ranks_are_called_even(tmp_path: Path) -> None:
    for rank in range(6):
        rank_trace(rank, upload_ns=40_000 + rank * 500, world=6).write(tmp_path / "even" / f"rank{rank}.1.pt.trace.json")
    found = sol.open(str(tmp_path / "even"), cache=False).analyze("memcpy_ranks")
    assert isinstance(found, Report) and found.headline.startswith("6 ranks copy alike")  # 42.5 over a median of 41.25: 1.03
    assert "1.03 times" in found.headline and "of_median" not in found.section("ranks").marks  # type: ignore[union-attr]
    assert "left_out" not in [s.id for s in found.sections]


def test_workers_without_ranks_keep_their_names(tmp_path: Path) -> None:
    # GIVEN names without a rank, markup in one, and no header THEN they stand by name, escaped in the figure
    for name in ("host_12", "host_2", "a<b>c"):
        made = rank_trace(0, world=3)
        del made.header["distributedInfo"]
        made.write(tmp_path / "odd" / f"{name}.1.pt.trace.json")
    found = sol.open(str(tmp_path / "odd"), cache=False).analyze("memcpy_ranks")
    assert isinstance(found, Report)
    t = found.table("ranks")
    assert list(dict.fromkeys(t["worker"])) == ["a<b>c", "host_2", "host_12"] and t["rank"].isna().all()
    table = found.section("ranks")
    assert isinstance(table, TableSection) and [(c.name, c.rank) for c in table.columns[:2]] == [("worker", 1), ("rank", 3)]
    section = found.section("panels")
    assert isinstance(section, FigureSection) and isinstance(section.figure["data"], list)
    shown = str([trace.get("hovertext") for trace in section.figure["data"]]) + str(section.figure["layout"])
    assert "<b>c" not in shown and "a&lt;b&gt;c" in shown


def test_a_worker_without_device_lacks_what_is_compared(tmp_path: Path) -> None:
    # GIVEN two ranks with copies and one that recorded the host alone THEN that one is left out with what to record
    for rank in range(2):
        rank_trace(rank, world=3).write(tmp_path / "mixed" / f"rank{rank}.1.pt.trace.json")
    from tests.support.trace_builder import TraceBuilder

    host = TraceBuilder(device="", rank=2, world_size=3)
    host.op("aten::mm", 0, 100)
    host.write(tmp_path / "mixed" / "rank2.1.pt.trace.json")
    found = sol.open(str(tmp_path / "mixed"), cache=False).analyze("memcpy_ranks")
    assert isinstance(found, Report)
    row = found.table("left_out").iloc[0]
    assert row["worker"] == "rank2" and "no device activity" in row["why"] and "CUDA" in row["hint"]


def test_the_table_of_ranks_exports_as_csv(report: Report) -> None:
    lines = csv_of(report, "ranks").splitlines()
    assert lines[0].startswith("rank,direction,of_median,count_per_step") and len(lines) == 21


def test_the_columns_stand_in_the_registry(report: Report) -> None:
    known = {name: {c.name for c in columns} for name, columns in sol.analyses()["memcpy_ranks"]["columns"].items()}
    for section in report.sections:
        if isinstance(section, TableSection):
            assert set(section.data) == known[section.id]
    assert set(report.facts) <= set(sol.analyses()["memcpy_ranks"]["facts"])


def counted_ranks(folder: Path) -> Path:
    """SOL captures of three ranks that counted uploads of 10 MB in each of two steps after the first, rank 2 of 25 MB."""
    from tests.support.sol_builder import SolBuilder

    for rank in range(3):
        b = SolBuilder(rank=rank, world_size=4, copies=True)
        add = b.sig("aten::add", [[4]], [[4]], work="elementwise")
        for step in range(3):
            b.iteration(step, step * 1_000_000, 1_000_000, rows=[b.row(add)])
            size = 25_000_000 if rank == 2 else 10_000_000
            upload = ["aten::_to_copy", "HtoD", "Pinned", "Device", -1, 0, False, -1, -1, -1, 1, size, 0, 1, 5000]
            b.records.append({"kind": "copies", "iteration": step, "rows": [upload]})
        b.close(3)
        b.write(folder / b.name)
    return folder


def test_counted_copies_of_ranks_are_compared_by_bytes(tmp_path: Path) -> None:
    # GIVEN three of four ranks with SOL captures alone WHEN compared by time, which nobody knows THEN bytes are compared, times are unknown
    found = sol.open(str(counted_ranks(tmp_path / "job")), cache=False).analyze("memcpy_ranks")
    assert isinstance(found, Report) and json.loads(encode(found))["available"]
    t = found.table("ranks").sort_values("rank")
    assert t["count"].tolist() == [2, 2, 2] and t["bytes_per_step"].tolist() == [10_000_000, 10_000_000, 25_000_000]
    assert t["of_median"].tolist() == [1.0, 1.0, 2.5] and t["steps"].tolist() == [2, 2, 2] and t["waits"].tolist() == [2, 2, 2]
    assert t[["time_ns", "exposed_ns", "hidden_ns", "host_per_step_ns"]].isna().all(axis=None)
    assert found.headline == "Host to device: **rank 2** moves 25.00\u202fMB per step, 2.50 times the median of 3 ranks."
    text = " ".join(n.text for n in found.notices)
    assert "counted at the operators" in text and "Rank 3 of 4 has no recording" in text and "Unknown, not zero" not in text
    assert found.facts["time_per_step_ns"] is None and found.facts["imbalance"] is None
    assert found.table("directions")["bytes_imbalance"].tolist() == [2.5]
    figure = found.section("panels")
    assert isinstance(figure, FigureSection) and "bytes per step" in figure.subtitle


def test_traces_beside_their_sol_captures_count_once(tmp_path: Path) -> None:
    # GIVEN traces of ranks 0 to 2 and the SOL captures of the same ranks in one folder THEN there are three workers, not six
    folder = counted_ranks(tmp_path / "job")
    for rank in range(3):
        rank_trace(rank, world=3).write(folder / f"rank{rank}.1.pt.trace.json")
    found = sol.open(str(folder), cache=False).analyze("memcpy_ranks")
    assert isinstance(found, Report) and found.facts["workers"] == 3
    assert set(found.table("ranks")["worker"]) == {"rank0", "rank1", "rank2"}


def test_peer_copies_of_one_rank_say_nothing_of_the_others(tmp_path: Path) -> None:
    # GIVEN three ranks of which only the first recorded a copy between devices, of 50 us in its only step
    for rank in range(3):
        t = rank_trace(rank, steps=1, world=3)
        if rank == 0:
            t.copy("PtoP", 900_000, 50_000, src="Device", dst="Device", bytes=1 << 20, call=(890_000, 5_000), stream=9)
        t.write(tmp_path / "job" / f"rank{rank}.1.pt.trace.json")
    found = sol.open(str(tmp_path / "job"), cache=False).analyze("memcpy_ranks")
    # THEN the others are unknown, no zero: there is no median, nobody lies above it, and the page says so
    assert isinstance(found, Report)
    row = found.table("directions").set_index("direction").loc["PtoP"]
    assert (row["ranks"], row["time_max_ns"]) == (1, 50_000)
    assert row[["time_median_ns", "imbalance", "excess_ns", "exposed_excess_ns", "bytes_imbalance", "longest_rank"]].isna().all()
    assert found.table("ranks").set_index("id")["of_median"].isna().to_dict()["rank0|PtoP"]
    assert "2 of 3 ranks recorded no copy between devices" in " ".join(n.text for n in found.notices)
    figure = found.section("panels")
    assert isinstance(figure, FigureSection) and "peer to peer: median —, highest 50.0" in figure.summary.lower()


def test_means_over_ranks_leave_out_those_whose_copies_were_only_counted(tmp_path: Path) -> None:
    # GIVEN rank 2 as a SOL capture, which times nothing, ranks 0 and 1 as traces: 40 us up and 10 us back in each step
    folder = counted_ranks(tmp_path / "job")
    for rank in range(2):
        rank_trace(rank, world=3).write(folder / f"rank{rank}.1.pt.trace.json")
    found = sol.open(str(folder), cache=False).analyze("memcpy_ranks")
    # THEN the mean time is that of the two that know it, the mean of bytes that of all three
    assert isinstance(found, Report) and set(found.table("ranks")["rank"]) == {0, 1, 2}
    assert found.facts["time_per_step_ns"] == 50_000
    assert found.facts["bytes_per_step"] == round((2 * (UPLOAD_BYTES + BACK_BYTES) + 25_000_000) / 3)
