"""The sample of copies that go wrong, as a first user reads it: every planted problem is found at its place, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.model.report import Report
from tests.support.captures import capture, report

FOLDER = Path(__file__).resolve().parents[2] / "samples" / "simulated_copies"
TRUTH: dict[str, dict[str, Any]] = json.loads((FOLDER / "truth.json").read_text())
RULES = {
    "hidden_transfer": "exposed_HtoD", "coalescable": "coalescable_HtoD", "redundant": "redundant_upload", "ping_pong": "ping_pong",
    "peer_through_host": "through_host", "layout": "duplicate_copies", "tiny": "tiny_HtoD", "tiny_read": "scalar_reads",
    "managed": "managed_copies",
}  # fmt: skip
"""The product's rule for what was planted, where its copies are just those."""
HELD = {
    "pageable_loader": "Pageable memory", "tiny_read": "Reads a value", "sync_api": "Synchronous call", "waits": "The host waits for it",
    "managed": "Synchronous call", "managed_set": "Set of host memory", "redundant": "Pageable memory",
}  # fmt: skip
WIDER = {"pageable_loading", "blocking_to_host", "blocking_to_device", "exposed_DtoH"}
"""Findings that gather several of the planted copies, or the host's side of them."""
each_rank = pytest.mark.parametrize("worker", sorted(TRUTH))


def path_of(worker: str) -> Path:
    (path,) = FOLDER.glob(f"{worker}.*.json.gz")
    return path


def line(planted: dict[str, Any]) -> str:
    """`hooks.py(23): log_loss` as the pages say it: `hooks.py:23 log_loss`."""
    file, _, rest = str(planted["line"]).partition("(")
    number, _, function = rest.partition("): ")
    return f"{file}:{number} {function}"


@each_rank
@pytest.mark.parametrize("name", RULES)
def test_what_was_planted_is_found_and_proven(worker: str, name: str) -> None:
    # GIVEN a problem of this rank WHEN its rule is asked for the copies behind it
    c, planted = capture(path_of(worker)), TRUTH[worker]["planted"].get(name)
    if planted is None:
        found = report(c, "memcpy_findings").table("patterns")["rule"].tolist()
        assert RULES[name] not in found, "a problem that this rank does not have"
        return
    rows = report(c, "memcpy_findings", rule=RULES[name]).table("evidence")
    # THEN these are the planted copies, all of them and no others, of their size and at their line, over six steps
    assert len(rows) == 6 * planted["per_step"]
    assert set(rows["bytes"]) == {planted["bytes"]} and set(rows["frame"]) == {line(planted)}
    assert set(rows["direction"]) == ({"HtoD", "DtoH"} if planted["direction"] == "both" else {planted["direction"]})
    if "module" in planted:
        assert all(str(m).startswith(planted["module"]) for m in rows["module"])


@each_rank
def test_nothing_else_is_found(worker: str) -> None:
    # GIVEN all findings of a rank THEN each is a planted one, or gathers planted ones
    found = set(report(capture(path_of(worker)), "memcpy_findings").table("patterns")["rule"])
    planted = {RULES[n] for n in TRUTH[worker]["planted"] if n in RULES}
    assert planted <= found <= planted | WIDER
    assert "pageable_loading" in found


@each_rank
@pytest.mark.parametrize("name", HELD)
def test_the_host_waits_for_the_planted_reasons(worker: str, name: str) -> None:
    # GIVEN a copy that blocks the host WHEN the page lists what blocked it THEN it stands there with its reason, line and calls
    planted = TRUTH[worker]["planted"][name]
    rows = report(capture(path_of(worker)), "memcpy_findings").table("blocking")
    mine = rows[(rows["frame"] == line(planted)) & (rows["direction"] == planted["direction"]) & (rows["reason"] == HELD[name])]
    assert mine["count"].tolist() == [6] and mine["bytes"].tolist() == [6 * planted["bytes"]]


@each_rank
def test_what_the_recording_lacks_is_said(worker: str) -> None:
    # GIVEN one copy without a size, one launched before the recording, one after the last step
    c = capture(path_of(worker))
    rows = report(c, "memcpy_copies", most="200000").table("copies")
    assert rows["bytes"].isna().sum() == 1 == report(c, "memcpy").facts["without_bytes"]
    outside = rows[~rows["step"].str.isdigit()]
    assert outside["frame"].tolist()[-1] == "checkpoint.py:19 save" and rows["api"].isna().sum() == 1
    # AND copies of the graph are told apart, one per step
    assert rows["graph_node"].notna().sum() == 6


def test_copies_between_devices() -> None:
    # GIVEN rank 3, which copies from its second device over NVLink WHEN the page is asked THEN these copies stand against that link
    c = capture(path_of("rank3_4003"))
    row = report(c, "memcpy").table("copies").set_index("direction").loc["PtoP"]
    assert (row["count"], row["bytes"], row["limit_bytes_per_s"]) == (6, 6 * 4 << 20, 450e9)
    copies = report(c, "memcpy_copies", direction="PtoP").table("copies")
    assert set(zip(copies["src_device"], copies["dst_device"], strict=True)) == {("1", "0")}
    # AND rank 2, which has two devices and no such copy, says that none was recorded, not that there was none
    other = capture(path_of("rank2_4002")).analyze("memcpy")
    assert isinstance(other, Report) and "PtoP" not in set(other.table("copies")["direction"])
    assert "ot recorded" in json.dumps([str(s) for s in other.sections])


def test_the_slow_rank_is_named() -> None:
    # GIVEN four ranks, of which rank 1 copies to its device at 1 / 1.7 of the speed WHEN they are compared
    answer = sol.open(str(FOLDER)).analyze("memcpy_ranks")
    assert isinstance(answer, Report)
    (row,) = (r for r in answer.table(answer_table(answer)).to_dict("records") if r["direction"] == "HtoD")
    # THEN it is named, with the spread of bandwidth; ranks 2 and 3 differ by what they copy besides
    assert row["longest_rank"] == row["slowest_rank"] == "rank 1"
    assert row["bandwidth_spread"] == pytest.approx(1.7, rel=0.02) and 1.55 < row["imbalance"] < 1.7
    assert "rank 1" in answer.headline


def answer_table(answer: Report) -> str:
    """The table of directions: the first that has a column of the longest rank."""
    return next(s.id for s in answer.sections if "longest_rank" in {c.name for c in getattr(s, "columns", ())})


def test_the_way_around_by_the_host_names_the_device_it_should_go_to() -> None:
    # GIVEN rank 2, which copies from device 1 over the host to device 0 WHEN the fix is shown THEN it goes to device 0
    table = report(capture(path_of("rank2_4002")), "memcpy_findings").table("patterns").set_index("rule")
    assert table.loc["through_host", "fix"].startswith("tensor.to('cuda:0'") and "access_peer(1, 0)" in table.loc["through_host", "fix"]


def test_a_rank_that_may_not_have_recorded_copies_between_devices_is_not_0() -> None:
    # GIVEN rank 2, with two devices and no copy between them in the file WHEN ranks are compared THEN their median is not known
    answer = sol.open(str(FOLDER)).analyze("memcpy_ranks")
    assert isinstance(answer, Report)
    (row,) = (r for r in answer.table(answer_table(answer)).to_dict("records") if r["direction"] == "PtoP")
    assert row["time_median_ns"] != row["time_median_ns"] or row["time_median_ns"] is None
