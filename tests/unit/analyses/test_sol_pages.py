"""Every page of SOL captures, whatever they hold: it answers, or says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.model.registry import registry
from tb_sol_plugin.model.report import Report, UnavailableReport, encode
from tests.support.check_capture import check_capture
from tests.support.sol_builder import CUDA, SolBuilder, small


def unsampled() -> SolBuilder:
    """Two iterations, of which none was sampled."""
    b = SolBuilder()
    forward = b.phase("forward")
    for number in (0, 1):
        b.iteration(number, number * 1_000, 1_000, phases=[b.time(forward, number * 1_000 + 100, 500)])
    return b


def empty() -> SolBuilder:
    """A header alone."""
    return SolBuilder()


def gpu() -> SolBuilder:
    """A GPU: no call timed."""
    b = small(device=CUDA, time_source="event")
    for r in b.records:
        if r["kind"] == "ledger":
            r["rows"] = [[*row[:7], None] for row in r["rows"]]  # type: ignore[misc,union-attr,index]
    return b


def odd() -> SolBuilder:
    """Work without labels, work no model knows, a module that was never called, a phase without ranges, calls of zero length."""
    b = SolBuilder(device={"type": "xpu", "name": "something new"}, model=None)
    lone = b.module("lone", "Lone")
    ghost = b.phase("ghost/inside")
    mm = b.sig("aten::mm", [[8, 8], [8, 8]], flop=1024, bytes=768)
    unknown = b.sig("mine::op", [[3], [[1], [2]]], flop=None, flop_vector=None, bytes=None, dtype="", work="mystery")
    none = b.sig("aten::add", [], flop=None, flop_vector=None, bytes=None, dtype="")
    huge = b.sig("aten::mm", [[2**40, 2**40], [2**40, 2**40]], flop=1e30, bytes=1e20)
    b.iteration(7, 0, 0, rows=[b.row(mm), b.row(unknown, count=3, time_ns=0)])
    b.iteration(
        8, 10, 1_000,
        rows=[b.row(mm, module=lone, phase=ghost, time_ns=10), b.row(unknown, module=lone), b.row(none, phase=ghost, flags=15, time_ns=5),
              b.row(huge, count=2, time_ns=1), b.row(mm, count=0, time_ns=0)],
    )  # fmt: skip
    return b


CASES = {"small": small, "gpu": gpu, "unsampled": unsampled, "empty": empty, "odd": odd}


@pytest.mark.parametrize("name", list(CASES))
def test_every_page_answers_or_says_why_not(tmp_path: Path, name: str) -> None:
    # GIVEN a SOL capture WHEN every analysis is asked, as matched and against a chosen device
    b = CASES[name]()
    (tmp_path / "run").mkdir()
    c = check_capture(b.write(tmp_path / "run"), tmp_path / "cache")
    for page in registry():
        if "device_limits" not in {f.name for f in registry()[page].fields}:
            continue  # asked by check_capture
        # THEN it answers in the contract's shape, without NaN, or names what is missing
        answer = c.analyze(page, device_limits="H100_SXM")
        assert encode(answer) and (answer.available or (answer.because and answer.record_it_with)), page  # type: ignore[union-attr]


def test_without_a_sampled_iteration_work_is_unknown_and_not_zero(tmp_path: Path) -> None:
    # GIVEN a capture of two iterations of which none was sampled
    c = sol.open_capture(str(unsampled().write(tmp_path)))
    overview, steps, phases, findings = (c.analyze(name) for name in ("overview", "steps", "phases", "findings"))
    assert isinstance(overview, Report) and isinstance(steps, Report) and isinstance(phases, Report)
    # THEN no page shows its work as 0, or its steps as sampled
    assert overview.facts["step_ns"] == 1_000
    assert [overview.facts[n] for n in ("matrix_flop", "matrix_flop_per_s", "operator_calls")] == [None, None, None]
    assert "No iteration was sampled" in overview.headline and "No operator" not in overview.headline
    assert "the work of no iteration was counted" in overview.headline
    assert "sampled step" not in steps.headline and "of none was counted" in steps.notices[0].text
    assert phases.table("phases")["ops"].isna().all()
    # AND nothing is said of what to fix, but how to record it
    assert isinstance(findings, UnavailableReport) and findings.because == "the work of no iteration was counted yet"


def test_iterations_of_other_batch_sizes_are_no_slower_ones(tmp_path: Path) -> None:
    # GIVEN 40 iterations of 4 samples that take 1 ms and 40 of 8 that take 2 ms; none was sampled
    b, start = SolBuilder(mode="off"), 0
    for number in range(80):
        large = number >= 40
        length = (2_000_000 if large else 1_000_000) + number % 3 * 1_000
        b.iteration(number, start, length, batch=8 if large else 4, tokens=number, signature="")
        start += length
    c = sol.open_capture(str(b.write(tmp_path)))
    overview, steps, iterations = (c.analyze(name) for name in ("overview", "steps", "iterations"))
    assert isinstance(overview, Report) and isinstance(steps, Report) and isinstance(iterations, Report)
    # THEN nothing is called slower, and the step of each size is told
    assert iterations.headline.replace("\u202f", " ").endswith(
        "it is stable. The batch size changes: 1.00 ms for 4, 2.00 ms for 8 samples."
    )
    # AND the steps are the last ones of one size, and say so; their rate is that of the size, and the time recorded is that of all
    assert overview.facts["step_ns"] == pytest.approx(2_001_000, abs=100) and "8 samples" not in overview.headline
    assert overview.facts["samples_per_s"] == pytest.approx(8 / 2.001e-3, rel=1e-3)
    assert overview.facts["window_ns"] == start
    assert "40 steps" in steps.headline and "of 80 iterations" in steps.notices[0].text.replace("\u202f", " ")
    # AND no part of the step is made up: there is neither a bar of a step that was not counted nor an empty table
    assert [s.id for s in overview.sections] == ["answer", "device"]


@pytest.mark.parametrize("query", [{"direction": "forward"}, {"direction": "backward"}, {"merge": "on"}, {"width": "flop"}])
def test_modules_answer_every_direction_merge_and_width(tmp_path: Path, query: dict[str, str]) -> None:
    for name in ("small", "gpu", "odd"):
        (tmp_path / name).mkdir()
        answer = sol.open_capture(str(CASES[name]().write(tmp_path / name))).analyze("modules", **query)
        assert encode(answer)


@pytest.mark.parametrize("step", ["1", "0", "99"])
def test_the_step_field_chooses_an_iteration(tmp_path: Path, step: str) -> None:
    # GIVEN a capture whose sampled iteration on the timeline is 1
    from tb_sol_plugin.errors import BadQuery

    c = sol.open_capture(str(small().write(tmp_path / small().name)))
    for page in ("overview", "phases", "modules", "roofline", "whatif"):
        if step == "1":
            assert c.analyze(page, step=step).available
        else:  # iteration 0 carries one-time costs and is not on the timeline
            with pytest.raises(BadQuery):
                c.analyze(page, step=step)


def test_before_the_first_iteration_has_ended_pages_say_so(tmp_path: Path) -> None:
    # GIVEN a header alone WHEN the overview is asked THEN it says what it waits for, without empty charts; others name the counting
    capture = sol.open_capture(str(empty().write(tmp_path / "a_rank0_1_1700000000000000000.sol.jsonl")))
    overview = capture.analyze("overview")
    assert isinstance(overview, Report) and overview.headline.startswith("No iteration has ended yet")
    assert [section.id for section in overview.sections] == ["device"]
    for name in ("roofline", "modules", "whatif"):
        lack = capture.analyze(name)
        assert isinstance(lack, UnavailableReport) and lack.because == "the work of no iteration was counted yet", name


def test_the_overview_tells_of_a_file_that_was_cut(tmp_path: Path) -> None:
    # GIVEN a capture, and the same cut within its last line WHEN the overview is asked for THEN of the second one it says so, with a way on
    path = small().write(tmp_path)
    notices = []
    for text in (path.read_bytes(), path.read_bytes()[:-20]):
        path.write_bytes(text)
        report = sol.open_capture(str(path)).analyze("overview")
        assert isinstance(report, Report)
        notices.append([n for n in report.notices if "ends early" in n.text])
    assert notices[0] == [] and len(notices[1]) == 1
    (notice,) = notices[1]
    assert notice.level == "warn" and notice.link is not None and notice.link.analysis == "health"


def test_a_table_of_a_page_that_cannot_be_says_why(tmp_path: Path) -> None:
    # GIVEN a capture, for which there is no page of kernels WHEN a table of it is asked for THEN the reason is raised, not an AttributeError
    report = sol.open_capture(str(small().write(tmp_path))).analyze("kernels")
    assert isinstance(report, UnavailableReport)
    for ask in (report.table, report.figure):
        with pytest.raises(Unavailable) as found:
            ask("kernels")
        assert report.because in found.value.message and found.value.hint == report.record_it_with
