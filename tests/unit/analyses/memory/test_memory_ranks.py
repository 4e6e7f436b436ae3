"""Memory of ranks beside each other: numbers worked out by hand, from traces and from parts made up."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.analyses.memory.memory_ranks import RankMemory
from tb_sol_plugin.model.answer import AnalysisRequest, from_ranks
from tb_sol_plugin.model.recordings import RecordingReduction
from tb_sol_plugin.model.registry import get
from tb_sol_plugin.model.report import FigureSection, Report, TableSection, UnavailableReport, encode
from tb_sol_plugin.units import NARROW
from tests.support.memory_ranks import DEVICE, MB, rank_trace, write_run
from tests.support.trace_builder import TraceBuilder

GB = 1_000_000_000


def worker(rank: int | None, name: str = "", **changed: object) -> RecordingReduction[msgspec.Struct]:
    """A worker that was read: 10 GB in use at most, 12 GB reserved, but for what is given."""
    plain: dict[str, object] = {
        "device": "CUDA 0", "source": "memory events of the trace", "relative": False, "window_ns": 1000, "peak": 10 * GB,
        "reserved": 12 * GB, "reserved_at_peak": 12 * GB, "fragmentation": 2 * GB, "before": 4 * GB, "end": 5 * GB, "capacity": 80 * GB,
        "base": 1 * GB, "left": 67 * GB, "at_most": None, "growth": 0.0, "verdict": "none", "failures": 0, "holder": "parameters",
        "held": 3 * GB, "stage": None, "stages": None,
    }  # fmt: skip
    body = msgspec.msgpack.encode(RankMemory(**{**plain, **changed}))  # type: ignore[arg-type]
    over = get("memory_ranks").reduction
    return RecordingReduction(name or f"rank{rank}", "1", f"{rank}.json", "read", rank, body=lambda: body, decode=over.decode)


def asked(parts: list[RecordingReduction[msgspec.Struct]], **raw: str) -> Report:
    found = from_ranks(AnalysisRequest("memory_ranks", raw), parts).report()
    assert isinstance(found, Report)
    encode(found)
    return found


def said(found: Report) -> str:
    """The headline with plain spaces."""
    return found.headline.replace(NARROW, " ")


def test_a_rank_that_uses_more_is_found_in_traces(tmp_path: Path) -> None:
    # GIVEN six ranks that use 500 MB at most, but rank 4, which uses 800 MB, each with 10 MB more reserved
    peaks = [500 * MB] * 6
    peaks[4] = 800 * MB
    found = sol.open(str(write_run(tmp_path / "job", peaks)), cache=False).analyze("memory_ranks")
    assert isinstance(found, Report)
    t = found.table("ranks").set_index("rank")
    # THEN 1.6 times the median, 300 MB above it, far from the others, and alone so
    assert t["peak"].tolist() == peaks and t.loc[4, "of_median"] == 1.6
    assert (t["reserved"] - t["peak"] == 10 * MB).all() and (t["before"] == 100 * MB).all() and (t["end"] == 100 * MB).all()
    assert (found.facts["imbalance"], found.facts["excess_bytes"], found.facts["peak_bytes"]) == (1.6, 300 * MB, 800 * MB)
    assert said(found) == "Most is in use on **rank 4**: **800.0 MB** at its peak, 1.60 times the median of 6 ranks: 300.0 MB more."
    section = found.section("ranks")
    assert isinstance(section, TableSection)
    row = str(section.data["worker"].index("rank4"))
    assert set(section.marks["of_median"]) == {row}
    # AND what is left is at most the device less what is reserved: the base was not recorded
    assert t.loc[4, "left"] == DEVICE - 810 * MB and section.marks["left"][row].state == "estimated"
    assert found.facts["left_bytes"] == DEVICE - 810 * MB
    # AND no stage is known: all are compared with all
    assert found.table("stages")["stage"].tolist() == ["all ranks"] and found.facts["stages"] is None


def test_ranks_of_nearly_equal_memory_are_called_alike(tmp_path: Path) -> None:
    found = sol.open(str(write_run(tmp_path / "job", [500 * MB, 505 * MB])), cache=False).analyze("memory_ranks")
    assert isinstance(found, Report)
    # median 502.5, largest 505
    assert said(found) == "2 ranks are alike: the memory in use at most is nowhere more than 1.00 times the median."


def test_stages_are_compared_with_themselves() -> None:
    # GIVEN two stages, of which the first uses 30 GB and the second 10, with one rank of the second at 13
    parts = [worker(r, peak=30 * GB, stage=0, stages=2) for r in range(5)] + [worker(5 + r, stage=1, stages=2) for r in range(5)]
    parts[7] = worker(7, peak=13 * GB, stage=1, stages=2)
    found = asked(parts)
    # THEN the rank stands out in its stage, though it uses less than half of what the first stage does
    t = found.table("ranks").set_index("rank")
    assert t.loc[7, "of_median"] == 1.3 and t.loc[0, "of_median"] == 1.0
    assert said(found) == (
        "Most is in use on **rank 0**: **30.00 GB** at its peak. "
        "Farthest from the ranks of stage 1 is **rank 7**: 13.00 GB, 1.30 times their median, 3.00 GB more."
    )
    stages = found.table("stages").set_index("stage")
    assert stages["median"].tolist() == [30 * GB, 10 * GB] and stages["excess"].tolist() == [0, 3 * GB]
    assert stages.loc["stage 1", "most_rank"] == "rank 7" and stages["most_rank"].isna().tolist() == [True, False]
    # AND the line of medians is broken between the stages
    figure = found.section("ranks_figure")
    assert isinstance(figure, FigureSection)
    (line,) = [d for d in figure.figure["data"] if d.get("name") == "median"]  # type: ignore[attr-defined]
    assert line["x"] == [-0.5, 4.5, None, 4.5, 9.5, None] and line["y"] == [30, 30, None, 10, 10, None]


def test_stages_that_are_known_of_some_ranks_only_are_not_compared() -> None:
    found = asked([worker(0, stage=0, stages=2), worker(1, stage=1, stages=2), worker(2)])
    assert found.table("stages")["stage"].tolist() == ["all ranks"]


@pytest.mark.parametrize(("what", "want"), [
    ("reserved", "**rank 1** holds 15.00 GB at most, 1.11 times the median of 2 ranks: 1.50 GB more."),  # (12 + 15) / 2 = 13.5
    ("fragmentation", "**rank 1** stands out: memory reserved and not in use at the peak 5.00 GB, 1.43 times the median of 2 ranks: 1.50 GB more."),
    ("growth", "**rank 1** stands out: growth of memory in use per step 40.00 MB, 2.00 times the median of 2 ranks: 20.00 MB more."),
    ("before", "2 ranks are alike: the memory in use before the window is nowhere more than 1.00 times the median."),
])  # fmt: skip
def test_ranks_are_compared_by_each_measure(what: str, want: str) -> None:
    other = worker(1, reserved=15 * GB, reserved_at_peak=15 * GB, fragmentation=5 * GB, growth=40e6, verdict="leak")
    found = asked([worker(0), other], what=what)
    assert said(found) == want and found.facts["growing"] == 1


def test_ranks_that_all_grow_are_not_called_alike() -> None:
    grows = {"growth": 40e6, "verdict": "leak"}
    found = asked([worker(0, **grows), worker(1, **grows)], what="growth")
    assert said(found) == "Memory in use grows from step to step on 2 of 2 ranks, by up to **40.00 MB** per step."


def test_what_is_not_known_is_no_number() -> None:
    # GIVEN ranks whose allocator tells nothing THEN what it holds, and what is left, is unknown, not 0
    nothing = dict.fromkeys(("reserved", "reserved_at_peak", "fragmentation", "left", "base", "capacity", "growth"))
    found = asked([worker(0, **nothing), worker(1, **nothing)], what="reserved")
    assert said(found) == "The memory reserved by the allocator at most of 2 ranks is not known."
    assert found.facts["left_bytes"] is None and found.facts["growing"] is None and found.facts["reserved_bytes"] is None
    figure = found.section("ranks_figure")
    assert isinstance(figure, FigureSection) and figure.figure["data"] == [] and "not known" in figure.summary


def test_missing_ranks_and_different_settings_are_named() -> None:
    # GIVEN failures, other sources, a rank twice, one that holds no totals, one that cannot be read
    parts = [
        worker(0, failures=2), worker(1, source="records of the program"), worker(1, "again", window_ns=5), worker(2, relative=True),
        RecordingReduction("rank3", "1", "3.json", "failed", 3, problem="cut", hint="copy it again"),
    ]  # fmt: skip
    found = asked(parts)
    texts = " ".join(n.text for n in found.notices)
    assert "2 allocations failed, on rank 0." in texts and "different sources" in texts and "changes since they began" in texts
    assert "Rank 1 is there twice" in texts and found.table("left_out")["worker"].tolist() == ["rank3"]
    assert found.facts["failures"] == 2 and len(found.table("ranks")) == 4
    assert found.notices[-3].link is not None and found.notices[-3].link.analysis == "memory_findings"


def test_names_of_workers_are_text() -> None:
    # GIVEN workers named like markup THEN nothing of it reaches the figure as such
    found = asked([worker(None, "<b>x</b>"), worker(None, "y&z", peak=40 * GB)])
    figure = found.section("ranks_figure")
    assert isinstance(figure, FigureSection)
    hover = [text for d in figure.figure["data"] for text in d.get("hovertext", ())]  # type: ignore[attr-defined]
    assert any("<b>&lt;b&gt;x&lt;/b&gt;</b>" in text for text in hover) and not any("<b>x" in text for text in hover)
    assert figure.figure["layout"]["xaxis"]["ticktext"] == ["&lt;b&gt;x&lt;/b&gt;", "y&amp;z"]  # type: ignore[index]


def test_a_thousand_ranks_are_points_in_a_small_answer() -> None:
    # GIVEN a thousand ranks of four stages WHEN they are compared THEN as points, in less than 800 kB
    parts = [worker(r, peak=(10 + r % 4) * GB + r * 1000, stage=r // 250, stages=4) for r in range(1000)]
    parts[500] = worker(500, peak=30 * GB, stage=2, stages=4)
    found = asked(parts)
    assert len(encode(found)) < 800_000
    assert "rank 500" in found.headline and len(found.table("stages")) == 4
    figure = found.section("ranks_figure")
    assert isinstance(figure, FigureSection)
    assert {d["type"] for d in figure.figure["data"]} == {"scatter"}  # type: ignore[attr-defined]
    assert len(parts[0].body()) < 1000


def test_a_run_without_memory_says_so(tmp_path: Path) -> None:
    for rank in (0, 1):
        t = TraceBuilder(rank=rank, world_size=2)
        t.op("aten::mm", 0, 10)
        t.write(tmp_path / "job" / f"rank{rank}.17.pt.trace.json.gz")
    found = sol.open(str(tmp_path / "job"), cache=False).analyze("memory_ranks")
    assert isinstance(found, UnavailableReport) and "profile_memory" in found.argument


def test_a_step_is_looked_at_alone(tmp_path: Path) -> None:
    # GIVEN ranks that keep 50 MB of each of three steps: peak of the first 550, of the last 650 (all but the freed 400 stays)
    for rank in (0, 1):
        t = rank_trace(rank, 2, peak=500 * MB, leak=50 * MB, steps=3)
        t.write(tmp_path / "job" / f"rank{rank}.17.pt.trace.json.gz")
    run = sol.open(str(tmp_path / "job"), cache=False)
    whole, first = run.analyze("memory_ranks"), run.analyze("memory_ranks", step="1")
    assert (whole.table("ranks")["peak"] == 650 * MB).all() and (first.table("ranks")["peak"] == 550 * MB).all()
    assert (whole.table("ranks")["end"] == 250 * MB).all() and (first.table("ranks")["end"] == 150 * MB).all()
