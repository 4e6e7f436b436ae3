"""The rows that a finding opens: following its link, their parts add up to what the finding claims."""

from __future__ import annotations

from tb_sol_plugin.metrics.time.scope import extent
from tb_sol_plugin.model import report as R
from tb_sol_plugin.web.tables import MOST_BYTES, in_pages
from tests.support.captures import capture
from tests.support.evidence import check_findings, tables_of
from tests.support.recordings import SAMPLES, TRACES, over, path_of

FEW = [n for n in SAMPLES if "simulated_memory" not in n and "rank1" not in n and "rank2" not in n]


@over(FEW, TRACES)
def test_the_rows_that_a_finding_opens_make_up_what_it_claims(name: str) -> None:
    # GIVEN a recording WHEN the link of each finding is followed THEN calls, gaps, events and pieces of memory are its saving, copies are
    # as many and as large as it says, and no row is left out
    check_findings(capture(path_of(name)))


@over(FEW, TRACES)
def test_every_idle_gap_is_a_row_and_their_sum_is_the_idle_time_by_cause(name: str) -> None:
    # GIVEN the breakdown of a recording with device work
    c = capture(path_of(name))
    if not len(c.device):
        return
    page = c.analyze("gpu_breakdown")
    if not isinstance(page, R.Report):
        return
    tables = tables_of(page)
    causes, single = tables["idle"], tables["single_gaps"]

    # WHEN the single gaps are counted and summed
    rows = len(single.data["id"])
    gaps = sum(int(v or 0) for v in causes.data["gaps"])  # type: ignore[arg-type]
    idle = sum(int(v or 0) for v in causes.data["idle_ns"])  # type: ignore[arg-type]
    length = [int(v) for v in single.data["duration_ns"]]  # type: ignore[arg-type]

    # THEN they are the gaps that the table of causes counts, the longest first, none left out
    assert rows == gaps == len(set(single.data["id"])) and not single.truncated
    assert length == sorted(length, reverse=True)
    low, high = extent(c)
    assert all(0 <= ns <= high - low for ns in length)
    assert sum(length) == idle
    by_cause = dict.fromkeys(causes.data["cause"], 0)
    for cause, ns in zip(single.data["cause"], length, strict=True):
        by_cause[cause] += ns
    assert list(by_cause.values()) == causes.data["idle_ns"]
    # AND with large tables in pages the answer stays below its limit
    assert len(in_pages(page, "v")[0]) <= MOST_BYTES
