"""Communication on the critical path of one rank, once all ranks of its run are known. Times in µs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.metrics.critical.over_ranks import rank_waits
from tb_sol_plugin.metrics.ranks.summary import RankSummary
from tb_sol_plugin.model.answer import AnalysisRequest, Run, answer
from tb_sol_plugin.model.recordings import RecordingReduction
from tb_sol_plugin.model.report import Report
from tb_sol_plugin.store.names import Root
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tests.support.trace_builder import TraceBuilder

US = 1_000
COMES = (200, 500)
"""When each rank comes to the collective that ends at 600 in each step of 1,000."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two ranks, two steps: a kernel from 20 on, then an all_reduce. The first one comes 300 before the second, the transfer takes 100."""
    for rank, comes in enumerate(COMES):
        t = TraceBuilder(rank=rank, world_size=2)
        for step in range(2):
            at = step * 1_000 * US
            t.step(step, at, 100 * US)
            t.launch("gemm_kernel", at=at + 10 * US, start=at + 20 * US, duration=(comes - 20) * US, call_duration=2 * US)
            call = t.call("cudaLaunchKernel", at + 30 * US, 2 * US, flow=True)
            t.collective("allreduce", at + comes * US, (600 - comes) * US, elements=8, stream=7, correlation=call, args={"Seq": step + 1})
        t.write(tmp_path / "run" / f"rank{rank}.1700000000000000000.pt.trace.json")
    return tmp_path


def asked(run: Run, rank: int, **raw: str) -> Report:
    found = answer(AnalysisRequest("critical_path", raw, run.recordings[rank], run.name), run.source)
    assert isinstance(found, Report)
    return found


def test_waiting_for_other_ranks_is_told_apart_once_they_are_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a run of which no page of ranks was opened THEN communication is one block, and the page says what tells it apart
    monkeypatch.setenv("TB_SOL_CACHE_DIR", str(folder / "cache"))
    run = sol.open(str(folder / "run"))
    alone = asked(run, 0)
    assert (alone.facts["communication_ns"], alone.facts.get("rank_wait_ns", 0)) == (400 * US, 0)
    assert alone.provisional  # a page asks for it again when it comes back from the pages of ranks
    assert any("contains waiting for other ranks" in n.text and n.link and n.link.analysis == "ranks" for n in alone.notices)
    # WHEN the ranks were compared THEN what the first one waited is apart, the classes still add up to the step
    run.analyze("stragglers")
    first, second = asked(run, 0), asked(run, 1)
    assert not first.provisional and not second.provisional
    assert (first.facts["rank_wait_ns"], first.facts["communication_ns"], first.facts["path_ns"]) == (300 * US, 100 * US, 600 * US)
    assert (second.facts.get("rank_wait_ns", 0), second.facts["communication_ns"]) == (0, 100 * US)
    assert "bound by **other ranks, 50.0\u202f%**" in first.headline and not any("contains" in n.text for n in first.notices)
    # AND what would shorten the step is told from the transfer, with the way to who holds it
    held = next(f for f in first.findings if f.rule == "communication-on-path")
    assert held.title == "Waiting for other ranks holds the step" and held.link is not None and held.link.analysis == "stragglers"
    assert held.evidence.startswith("50.0\u202f% of the critical path is waiting for other ranks, 16.7\u202f% transfer.") and not held.fix
    assert next(f for f in second.findings if f.rule == "communication-on-path").title == "Communication holds the step"
    own = first.table("classes").set_index("class")["time_ns"]
    assert own.sum() == 600 * US and (own["Waiting for other ranks"], own["Transfer between ranks"]) == (300 * US, 100 * US)
    segments = first.table("segments")
    begin, end = segments["start_ns"].to_numpy(), (segments["start_ns"] + segments["duration_ns"]).to_numpy()
    assert begin[1:][begin[1:] != end[:-1]].tolist() == [1_000 * US] and (begin[0], end[-1]) == (0, 1_600 * US)
    # AND each collective names the rank that came last, and opens what that one did: its kernel, from its own launch on
    table, section = first.table("collectives"), first.section("collectives")
    columns = ["step", "start_ns", "kind", "seq", "time_ns", "path_wait_ns", "path_transfer_ns", "late_rank"]
    assert table[columns].values.tolist() == [
        [0, 200 * US, "all reduce", 1, 400 * US, 300 * US, 100 * US, 1], [1, 1_200 * US, "all reduce", 2, 400 * US, 300 * US, 100 * US, 1],
    ]  # fmt: skip
    link = section.row_links["1"]
    assert (link.analysis, link.query["worker"], link.query["area"]) == ("timeline", run.recordings[1].worker, f"{600 * US}-{1_500 * US}")
    assert second.table("collectives")["late_rank"].isna().all() and not dict(second.section("collectives").row_links.items())


def test_ranks_of_which_none_could_be_read_tell_nothing(folder: Path) -> None:
    # GIVEN a run whose recordings failed or are still waiting WHEN the waits of one of its ranks are asked for THEN none is known
    capture = sol.open(str(folder / "run")).captures[0]
    ranks = [RecordingReduction[RankSummary](f"rank{i}", "1", "", state) for i, state in enumerate(("failed", "waiting"))]  # type: ignore[arg-type]
    assert rank_waits(capture, ranks) is None and rank_waits(capture, []) is None


def test_a_server_joins_what_it_has_and_reads_nothing_for_it(folder: Path) -> None:
    # GIVEN a server THEN the page of one rank makes no reduction; once the pages of ranks made them, it has another state and joins them
    store = Store([Root("", str(folder / "run"))], StoreOptions(cache_dir=str(folder / "cache")), ThreadPoolExecutor(1))
    try:
        shown, source = store.recordings(next(iter(store.listing(10.0)[1].runs)))[0], store.source(30.0)
        request = AnalysisRequest("critical_path", {}, shown)
        assert not source.known_ranks(request.joined).keys
        asked_for = answer(request, source)
        assert not source.known_ranks(request.joined).keys and "rank_wait_ns" not in {k for k, v in asked_for.facts.items() if v}
        answer(AnalysisRequest("stragglers", {}, shown), source)
        known = source.known_ranks(request.joined)
        assert len(known.keys) == 2 and [rank.key for rank in known.fetch()] == list(known.keys)
        assert answer(request, source).facts["rank_wait_ns"] == 300 * US
    finally:
        store.close()
