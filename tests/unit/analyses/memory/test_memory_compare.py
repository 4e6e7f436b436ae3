"""Memory of two recordings beside each other: differences add up, names are matched, what is chosen or missing is said."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tb_sol_plugin as sol
from tb_sol_plugin.analyses.memory.memory_compare_tables import REST, Line, ReducedMemory, Row, differences, grouping
from tb_sol_plugin.cli import command
from tb_sol_plugin.errors import BadQuery, NotFound
from tb_sol_plugin.model.answer import AnalysisRequest, answer_capture, from_pair
from tb_sol_plugin.model.recordings import Compared, Missing, RecordingReduction
from tb_sol_plugin.model.registry import get
from tb_sol_plugin.model.report import FieldNow, FigureSection, Report, TableSection, UnavailableReport, encode
from tb_sol_plugin.units import NARROW
from tests.support.captures import capture
from tests.support.memory_ranks import MB, rank_trace

GB = 1_000_000_000


def row(name: str, size: int, kind: str = "row", *, many: int = 1, guess: bool = False) -> Row:
    return Row(name, size, many, kind, guess)


def part_of(*rows: Row, **changed: object) -> ReducedMemory:
    """What adds up to the peak, by category; one step of 100 ns that reaches it after 50."""
    peak = sum(r.bytes for r in rows)
    line = Line((0, 50, 90), 100, (0, peak, 0), (peak, peak, peak), 3)
    plain: dict[str, object] = {
        "device": "CUDA 0", "source": "memory events of the trace", "relative": False, "peak": peak, "reserved": peak + GB,
        "reserved_at_peak": peak + GB, "fragmentation": GB, "before": 0, "end": 0, "capacity": 80 * GB, "left": 79 * GB - peak, "growth": 0.0,
        "failures": 0, "held": {"category": rows}, "notes": {"category": ()}, "whole": msgspec.structs.replace(line, step=None),
        "of_step": line, "setting": {"world size": "4"},
    }  # fmt: skip
    return ReducedMemory(**{**plain, **changed})  # type: ignore[arg-type]


def side(name: str, part: ReducedMemory, chosen: str = "") -> Compared[msgspec.Struct]:
    body = msgspec.msgpack.encode(part)
    pair = get("memory_compare").reduction
    return Compared(name, name, RecordingReduction("rank0", "1", f"{name}.json", "read", 0, body=lambda: body, decode=pair.decode), chosen)


def asked(a: ReducedMemory, b: ReducedMemory, **raw: str) -> Report:
    found = from_pair(AnalysisRequest("memory_compare", raw), side("old", a), side("new", b), {}).report()
    assert isinstance(found, Report)
    encode(found)
    return found


def said(text: str) -> str:
    return text.replace(NARROW, " ")


# -- rows ---------------------------------------------------------------------------------------------------------


def test_rows_are_matched_by_name_and_add_up() -> None:
    # GIVEN parameters in both, an optimizer that shrinks, activations in the first only and inputs in the second only
    a = (row("params", 10), row("optimizer", 60, many=6), row("activations", 5, guess=True), row("unknown", 3, "unknown"))
    b = (row("params", 10), row("optimizer", 20, many=2), row("inputs", 1), row("unknown", 0, "unknown"))
    t = differences(a, b, "category").frame.set_index("name")
    # THEN each stands once, largest difference first
    assert t.index.tolist() == ["optimizer state", "activations", "unknown", "inputs", "parameters"]
    assert t["delta"].tolist() == [-40, -5, -3, 1, 0] and t["only"].tolist() == ["both", "a", "both", "b", "both"]
    assert (t.loc["optimizer state", "allocations_a"], t.loc["optimizer state", "allocations_b"]) == (6, 2)
    assert t.loc["activations", "allocations_b"] == 0 and t["estimated"].tolist() == [False, True, False, False, False]
    assert (t["a"].sum(), t["b"].sum(), t["delta"].sum()) == (78, 31, 31 - 78)


def test_a_program_name_like_a_kind_is_its_own() -> None:
    # GIVEN a module that is called `unknown` THEN it is not the rest
    t = differences((row("unknown", 5), row("unknown", 2, "unknown")), (row("unknown", 7, "unknown"),), "module").frame
    assert sorted(zip(t["kind"], t["delta"].tolist(), strict=True)) == [("row", -5), ("unknown", 5)]


def test_a_list_that_was_cut_hides_no_difference() -> None:
    # GIVEN a list that was cut at 50 bytes, and rest rows of 30 WHEN the other names something of 8 bytes, and something of 90
    a = (row("big", 100), row("cut", 50), row("smaller ones", 30, REST, many=-1))
    b = (row("big", 100), row("cut", 50), row("little", 8), row("new", 90))
    t = differences(a, b, "module").frame.set_index("name")
    # THEN the small one may be among the rest and is added to it, the large one cannot be
    assert t["delta"].to_dict() == {"new": 90, "smaller ones": 8 - 30, "big": 0, "cut": 0}
    assert "little" not in t.index and t["a"].sum() == 180 and t["b"].sum() == 248


names = st.sampled_from(["a", "b", "c", "d", "e", "unknown", "smaller ones"])
lists = st.lists(st.tuples(names, st.integers(1, 99)), max_size=7, unique_by=lambda r: r[0])


@given(lists, lists, st.integers(0, 50), st.integers(-20, 50))
@settings(max_examples=60, deadline=None)
def test_sums_are_exact_whatever_is_listed(x: list[tuple[str, int]], y: list[tuple[str, int]], rest: int, unknown: int) -> None:
    # GIVEN any two lists, with a rest and a negative unknown THEN both columns add up as they did, and so does the difference
    a = (*(row(*r) for r in x), *([row("smaller ones", rest, REST)] if rest else []), row("unknown", unknown, "unknown"))
    b = (*(row(*r) for r in y), row("unknown", 4, "unknown"))
    t = differences(a, b, "module").frame
    sums = sum(r.bytes for r in a), sum(r.bytes for r in b)
    assert (t["a"].sum(), t["b"].sum(), t["delta"].sum()) == (*sums, sums[1] - sums[0])
    assert t["key"].is_unique and (t["abs_delta"] == t["delta"].abs()).all()


def test_the_grouping_is_one_that_both_know() -> None:
    x, y = part_of(row("a", 1)), part_of(row("a", 1), held={"module": (row("m", 1),)}, notes={"module": ()})
    both = part_of(row("a", 1), held={"category": (), "module": ()}, notes={"category": (), "module": ()})
    assert grouping(both, both, "auto") == ("category", "") and grouping(both, both, "module") == ("module", "")
    assert grouping(both, y, "auto") == ("module", "")
    assert grouping(both, x, "frame") == ("category", "Not both recordings can be grouped by frame; both can by category.")
    assert grouping(x, y, "auto")[0] == "" and grouping(x, y, "frame")[0] == ""


# -- reports ------------------------------------------------------------------------------------------------------

A = part_of(row("params", 10 * GB), row("optimizer", 60 * GB), row("activations", 5 * GB))
B = part_of(row("params", 10 * GB), row("optimizer", 20 * GB), row("activations", 6 * GB), growth=-2e6)


def test_the_headline_names_the_difference_of_the_peaks() -> None:
    # GIVEN 75 GB and 36 GB at the peaks THEN 39 GB less, 52 %, nearly all of it of the optimizer
    found = asked(A, B)
    assert said(found.headline) == (
        "`new` uses **39.00 GB less** at its peak than `old`: 36.00 GB instead of 75.00 GB, 52.0 %. Most of it: optimizer state 40.00 GB."
    )
    facts = found.facts
    assert (facts["peak_delta_bytes"], facts["reserved_delta_bytes"], facts["left_delta_bytes"]) == (-39 * GB, -39 * GB, 39 * GB)
    assert facts["growth_delta_bytes"] == -2e6 and facts["peak_ratio"] == 36 / 75 and facts["other_run"] == "new"
    # AND the other way round it is more
    assert said(asked(B, A).headline).startswith("`old`") is False and "**39.00 GB more**" in said(asked(B, A).headline)
    assert said(asked(A, A).headline) == "`new` and `old` use the same at their peaks: 75.00 GB."
    # AND the first tile says it in the words of all comparisons
    assert [said(str(asked(*pair).facts["outcome"])) for pair in ((A, B), (A, A))] == ["less, −52.0 %", "no change"]


def test_tables_and_figures_of_two_recordings() -> None:
    found = asked(A, B)
    held = found.section("held")
    assert isinstance(held, TableSection) and held.total is not None
    assert (held.total["a"], held.total["b"], held.total["delta"]) == (75 * GB, 36 * GB, -39 * GB)
    assert [c.label for c in held.columns[:4]] == ["Category", "Difference", "old", "new"]
    numbers = found.table("numbers").set_index("measure")
    assert numbers.loc["In use at most"].tolist() == [-39 * GB, -39 / 75, 75 * GB, 36 * GB]
    # AND the largest differences are bars around zero, the largest on top (last), keys as in the table
    figure = found.section("changed")
    assert isinstance(figure, FigureSection)
    (bars,) = figure.figure["data"]  # type: ignore[misc]
    assert bars["x"] == [1, -40] and bars["customdata"] == ["row:activations", "row:optimizer"]
    assert set(bars["customdata"]) <= set(held.data["key"])
    # AND curves are those of the steps with the peaks, drawn to the end of each
    curves = found.section("curves")
    assert isinstance(curves, FigureSection) and curves.subtitle.startswith("step 3 of old and step 3 of new")
    lines = {d["name"]: d for d in curves.figure["data"]}  # type: ignore[attr-defined]
    assert lines["old"]["x"] == [0, 50, 90, 100] and lines["old"]["y"] == [0, 75, 0, 0] and lines["new"]["y"] == [0, 36, 0, 0]
    assert lines["old, reserved"]["y"] == [75, 75, 75, 75]


def test_where_nothing_differs_no_empty_figure_is_drawn() -> None:
    # GIVEN a recording beside its like WHEN compared THEN there is no figure of differences, and the table still has its rows
    found = asked(part_of(row("parameters", 100)), part_of(row("parameters", 100)))
    assert "changed" not in [s.id for s in found.sections] and found.table("held")["delta"].tolist()[0] == 0


def test_curves_may_begin_together() -> None:
    # GIVEN one recording without steps THEN both are drawn whole, from their begin on, whatever is asked
    whole = Line((0, 500), 600, (7 * GB, 9 * GB), None, None)
    found = asked(A, msgspec.structs.replace(B, of_step=None, whole=whole)).section("curves")
    assert isinstance(found, FigureSection) and found.subtitle.startswith("old and new")
    lines = {d["name"]: d for d in found.figure["data"]}  # type: ignore[attr-defined]
    assert lines["new"]["x"] == [0, 500, 600] and "new, reserved" not in lines


def test_what_was_made_otherwise_is_said() -> None:
    # GIVEN other sizes of jobs, other sources, totals missing, failures THEN a line each; a rank's own place is no difference to mention
    other = msgspec.structs.replace(
        B,
        setting={"world size": "8", "pipeline stage": "1 of 2", "torch": "2.9"},
        source="records of the program",
        relative=True,
        failures=2,
    )
    texts = " ".join(
        n.text for n in asked(msgspec.structs.replace(A, setting={"world size": "4", "pipeline stage": "0 of 2"}), other).notices
    )
    assert "world size 4 and 8" in texts and "pipeline" not in texts and "torch" not in texts
    assert asked(A, other).facts["outcome"] is None  # a change since the begin is no level
    assert "of different sources" in texts and "holds no totals" in texts and "2 allocations failed in `new`." in texts
    table = asked(A, other).table("settings").set_index("setting")
    assert table.loc["world size", "same"] == "differs" and table.loc[["torch"], "a"].isna().all()


def test_numbers_that_one_side_lacks_are_unknown() -> None:
    found = asked(A, msgspec.structs.replace(B, reserved=None, growth=None, left=None))
    assert found.facts["reserved_delta_bytes"] is None and found.facts["growth_delta_bytes"] is None
    assert found.table("numbers").set_index("measure")["delta"].isna().tolist() == [False, True, False, False, False, True, False] + 5 * [
        True
    ]


def test_recordings_without_a_common_grouping_say_so() -> None:
    # GIVEN a source that knows categories and one that knows lines THEN numbers and curves stand, and a line says what is missing
    found = asked(A, part_of(row("train.py", GB), held={"frame": (row("train.py", GB),)}, notes={"frame": ()}))
    assert [s.id for s in found.sections] == ["facts", "curves", "operators", "allocations", "numbers", "settings"]
    assert any("No grouping is known of both" in n.text for n in found.notices)


def test_names_of_recordings_are_escaped() -> None:
    found = from_pair(AnalysisRequest("memory_compare", {}), side("<b>", A), side("n`ew", part_of(row("<i>x</i>", GB))), {}).report()
    assert isinstance(found, Report)
    curves = found.section("curves")
    assert isinstance(curves, FigureSection)
    assert all("<b><b>" not in str(n["text"]) for n in curves.figure["layout"]["annotations"])  # type: ignore[index]


# -- the other side -----------------------------------------------------------------------------------------------


def test_a_side_without_a_part_is_named() -> None:
    stands = {"other_run": FieldNow("new", ("old", "new"))}
    lacking = Compared("new", "new", RecordingReduction("rank0", "1", "f", "lacking", 0, problem="nothing of memory", hint="record it",
                                            missing=Missing("nothing of memory", "record it", "memory=True")))  # fmt: skip
    found = from_pair(AnalysisRequest("memory_compare", {}), side("old", A), lacking, stands).report()  # type: ignore[arg-type]
    assert isinstance(found, UnavailableReport) and found.because == "new: nothing of memory" and found.argument == "memory=True"
    assert json.loads(encode(found))["fields"] == {"other_run": {"value": "new", "values": ["old", "new"]}}
    # AND a step that it does not have is a wrong question
    wrong = Compared(
        "new",
        "new",
        RecordingReduction("rank0", "1", "f", "lacking", 0, missing=Missing("no step 9", "recorded: 1", error=True, field="step")),
    )
    with pytest.raises(BadQuery, match="new: no step 9"):
        from_pair(AnalysisRequest("memory_compare", {"step": "9"}), side("old", A), wrong, stands).report()  # type: ignore[arg-type]


def test_how_it_was_chosen_is_said() -> None:
    found = from_pair(
        AnalysisRequest("memory_compare", {}), side("old", A), side("new", B, "the same worker of another run"), {}
    ).report()
    assert isinstance(found, Report)
    assert found.notices[0].text == "Beside it stands `new`, the same worker of another run. Another one can be chosen."


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of two ranks: 500 MB at the peaks of the first, 300 of the second, whose rank 1 has 200 more."""
    folder = tmp_path_factory.mktemp("logs")
    for run, peaks in (("job/a", (500, 500)), ("job/b", (300, 500))):
        for rank, peak in enumerate(peaks):
            rank_trace(rank, 2, peak=peak * MB).write(folder / run / f"rank{rank}.1700000000000000000.pt.trace.json.gz")
    return folder


def test_a_notebook_compares_two_runs(logdir: Path) -> None:
    # GIVEN a logdir of two runs WHEN one is opened THEN the other stands beside it, or what is named: run, rank, path, opened run
    a = sol.open(str(logdir), run="job/a", cache=False)

    def delta(**query: object) -> object:
        found = a.analyze("memory_compare", **query)  # type: ignore[arg-type]
        assert isinstance(found, Report)
        return found.facts["peak_delta_bytes"]

    assert delta() == -200 * MB == delta(other_run="job/b") == delta(other="job/b")
    assert delta(other_run="job/b", other_worker=1) == 0 == delta(other_run="job/a")
    b = logdir / "job" / "b"
    assert delta(other=str(b)) == -200 * MB == delta(other=sol.open(str(b), cache=False))
    assert delta(other=str(b / "rank1.1700000000000000000.pt.trace.json.gz")) == 0
    # AND a run opened by its own folder knows no other, but can be given one, of the same name even
    alone = sol.open(str(logdir / "job" / "a"), cache=False)
    found = alone.analyze("memory_compare", other=sol.open(str(logdir), run="job/a", cache=False))
    assert isinstance(found, Report) and found.facts["peak_delta_bytes"] == 0
    with pytest.raises(NotFound, match="no run 'job/x' here") as error:
        a.analyze("memory_compare", other="job/x")
    assert "job/a" in error.value.hint
    with pytest.raises(BadQuery, match="other"):
        a.analyze("kernels", other="job/b")


def test_of_one_capture_it_says_what_to_do(logdir: Path) -> None:
    found = answer_capture("memory_compare", capture(logdir / "job" / "a" / "rank0.1700000000000000000.pt.trace.json.gz"), {})
    assert isinstance(found, UnavailableReport) and "other_run" in found.record_it_with


def test_a_file_without_another_recording_says_so(logdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN one file and nothing beside it THEN the answer says so, in every face
    path = logdir / "job" / "a" / "rank0.1700000000000000000.pt.trace.json.gz"
    found = sol.open(str(path), cache=False).analyze("memory_compare")
    assert isinstance(found, UnavailableReport) and "two recordings" in found.because
    assert command.main(["analyze", "memory_compare", str(path), "--no-cache"]) == 3
    assert json.loads(capsys.readouterr().out)["available"] is False


def test_the_command_line_compares_two_runs(logdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN run and other run by name or by path THEN the same answer
    first = ["analyze", "memory_compare", str(logdir), "--run", "job/a", "--no-cache"]
    for more in (["--other-run", "job/b"], ["--other-run", str(logdir / "job" / "b")], []):
        assert command.main([*first, *more]) == 0
        assert json.loads(capsys.readouterr().out)["headline"].count("200.0") == 2  # of it all are activations
    assert command.main([*first, "--other-worker", "5"]) == 1
    assert "no worker '5' in this run (there is: rank0, rank1)" in capsys.readouterr().err
    assert (
        command.main(["analyze", "memory_compare", str(logdir / "job" / "b"), "--format", "csv", "--section", "numbers", "--no-cache"]) == 0
    )
    assert capsys.readouterr().out.splitlines()[1].startswith("In use at most,200000000,")
