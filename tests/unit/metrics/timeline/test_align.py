"""Clocks of several recordings beside each other: a known offset is given back, what cannot be done says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.timeline import align
from tb_sol_plugin.metrics.timeline.timeline import Timeline, timeline_of
from tb_sol_plugin.metrics.timeline.workers import Workers
from tests.support.rank_factory import LEAD_NS, Job, simulate
from tests.support.trace_builder import TraceBuilder

BASE = 1_700_000_000_000_000_000


def worker(folder: Path, name: str, steps: list[int], first: int = 3, base_ns: int | None = BASE) -> Timeline:
    """A worker whose steps begin at some times."""
    t = TraceBuilder(base_ns=base_ns)
    t.op("before", 0, 5)
    for number, at in enumerate(steps, first):
        t.step(number, at, 900)
        t.op("aten::mm", at + 100, 200)
    t.op("after", steps[-1] + 2_000, 5)
    return timeline_of(ingest.read(str(t.write(folder / f"{name}.pt.trace.json"))))


def offsets(found: list[align.Alignment]) -> list[tuple[str, int, int | None]]:
    return [(a.method, a.offset_ns, a.uncertainty_ns) for a in found]


def test_a_known_offset_is_given_back(tmp_path: Path) -> None:
    # GIVEN two workers of one clock, the second of which began 1,500 ns later and whose steps start together
    both = [worker(tmp_path, "a", [2_000, 4_000, 6_000]), worker(tmp_path, "b", [500, 2_500, 4_500], base_ns=BASE + 1_500)]
    # THEN the clock says so, and so does any step, as surely as the other steps agree
    assert offsets(align.aligned(both)) == [("clock", 0, None), ("clock", 1_500, None)]
    for asked in ("step", "step:3", "step:5"):
        assert offsets(align.aligned(both, asked)) == [("step", 0, 0), ("step", 1_500, 0)]
    # AND each stands where it was put by hand, the first at 0
    assert offsets(align.aligned(both, "manual:-300,1200")) == [("manual", 0, None), ("manual", 1_500, None)]
    assert offsets(align.aligned(both, "none")) == [("none", 0, None), ("none", 0, None)]
    # AND time since 1970 is only known by the clock
    assert [Workers(both, align.aligned(both, asked)).origin_ns for asked in ("clock", "step")] == [both[0].capture.facts.origin_ns, None]


def test_steps_that_drift_say_how_sure_they_are(tmp_path: Path) -> None:
    # GIVEN a second worker whose steps start 1,000, 1,040, 1,100 and 1,300 ns earlier on its clock
    both = [worker(tmp_path, "a", [2_000, 4_000, 6_000, 8_000]), worker(tmp_path, "b", [1_000, 2_960, 4_900, 6_700])]
    # THEN the chosen step starts together, and half of the interquartile range (1,300 - 1,040, by rank) is the uncertainty
    assert offsets(align.aligned(both, "step:4")) == [("step", 0, 0), ("step", 1_040, 130)]


def test_without_a_base_time_clocks_are_unknown(tmp_path: Path) -> None:
    # GIVEN two workers of which one has no absolute time
    both = [worker(tmp_path, "a", [2_000]), worker(tmp_path, "b", [500], base_ns=None)]
    found = align.aligned(both)
    # THEN they are not aligned and it is said, the clock cannot be chosen, a step can: with nothing to say how sure it is
    assert offsets(found) == [("none", 0, None)] * 2 and "no absolute time" in found[0].text
    with pytest.raises(BadQuery, match="no absolute time"):
        align.aligned(both, "clock")
    assert offsets(align.aligned(both, "step")) == [("step", 0, None), ("step", 1_500, None)]
    assert {c.asked: c.why_not for c in align.choices(both)} == {
        "clock": "at least one file has no absolute time", "collective": "no collectives of these recordings were matched", "step": "",
        "manual": "", "none": "",
    }  # fmt: skip


def test_offsets_may_come_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN something that measures offsets by collectives, and then something that finds none
    both = [worker(tmp_path, "a", [2_000]), worker(tmp_path, "b", [500])]
    monkeypatch.setitem(align.MEASURED, "collective", lambda timelines: [(700, 0), (-50, 12)])
    assert offsets(align.aligned(both, "collective")) == [("collective", 750, 0), ("collective", 0, 12)]
    monkeypatch.setitem(align.MEASURED, "collective", lambda timelines: None)
    with pytest.raises(BadQuery, match="no collectives"):
        align.aligned(both, "collective")


@pytest.mark.parametrize(
    "asked",
    ["sideways", "clock:1", "step:9", "step:x", "step:٣", "manual", "manual:1", "manual:1,2,3", "manual:1,x", "manual:0," + "9" * 21, "x" * 9_999,
     f"manual:0,{10**17 + 1}"],
)  # fmt: skip
def test_what_cannot_be_asked_names_the_parameter(tmp_path: Path, asked: str) -> None:
    both = [worker(tmp_path, "a", [2_000]), worker(tmp_path, "b", [500])]
    with pytest.raises(BadQuery) as error:
        align.aligned(both, asked)
    assert error.value.field == "al" and error.value.hint


def test_a_single_recording_is_by_its_own_clock(tmp_path: Path) -> None:
    one = [worker(tmp_path, "a", [2_000])]
    assert offsets(align.aligned(one)) == [("clock", 0, 0)] and align.choices(one) == []


def test_matched_collectives_align_hosts(tmp_path: Path) -> None:
    # GIVEN four ranks on two hosts whose clocks are a second apart, with a norm over all of them
    made = simulate(Job(tp=2, dp=2, ranks_per_host=2, layers=4, steps=6, offset_ns=1e9, drift_ppm=0.0, device_ns=0.0))
    files = [made.trace(rank).write(tmp_path / f"rank{rank}.pt.trace.json.gz") for rank in range(4)]
    found = align.aligned([timeline_of(ingest.read(str(path))) for path in files], "collective")
    # THEN each stands where its first event truly was, within 5 us, and says how sure that is
    first = [float(made.kernels["launch"][made.kernels["rank"] == rank].min()) for rank in range(4)]
    local = [
        min(int(made.local(rank, at, device=False)), int(made.local(rank, made.step_at[0][rank] - LEAD_NS, device=False)))
        for rank, at in enumerate(first)
    ]
    true = [at + made.offset[rank // 2] for rank, at in enumerate(local)]
    assert [a.offset_ns for a in found] == pytest.approx([t - min(true) for t in true], abs=5_000)
    assert {a.method for a in found} == {"collective"} and all(a.uncertainty_ns is not None and a.uncertainty_ns < 20_000 for a in found)


def test_without_a_common_collective_there_is_no_such_choice(tmp_path: Path) -> None:
    one, other = Job(tp=2, dp=1, layers=1, steps=1), Job(tp=3, dp=1, layers=1, steps=1)
    traces = [simulate(one).trace(0), simulate(other).trace(1)]
    shown = [timeline_of(ingest.read(str(t.write(tmp_path / f"{i}.pt.trace.json")))) for i, t in enumerate(traces)]
    assert [c.why_not for c in align.choices(shown) if c.asked == "collective"] == ["no collectives of these recordings were matched"]
    with pytest.raises(BadQuery, match="no collectives"):
        align.aligned(shown, "collective")
