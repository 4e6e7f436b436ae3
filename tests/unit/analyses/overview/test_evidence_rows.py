"""The rows that a finding opens: following its link, their parts add up to what the finding claims."""

from __future__ import annotations

from tb_sol_plugin import analyses
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.time.scope import extent
from tb_sol_plugin.model import report as R
from tb_sol_plugin.model.rows import TableRows
from tb_sol_plugin.web.tables import MOST_BYTES, in_pages
from tests.support.captures import answered, capture
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
    page = answered(c, "gpu_breakdown")
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


NO_SUM = {
    ("memcpy", "calls"): "a runtime call and the driver call inside of it are two rows",
    ("memory_findings", "growth"): "an allocation stands in a row by module, one by operator and one by line",
    ("memory_findings", "layers"): "classes lie inside of each other",
    ("memory_findings", "findings_table"): "two findings can speak of the same memory",
    ("memcpy_findings", "patterns"): "savings share spans",
    ("findings", "findings"): "each saving is a replay of its own",
    ("iterations", "iterations"): "its first row is of medians, with which no sum compares",
    ("operators", "operators"): "on a recording of the host the bar holds what an operator calls; its own time adds up",
    ("memory_plan", "layouts"): "rows are alternatives",
    ("timeline_selection", "groups"): "nested events count on every level; their own time adds up",
    ("modules", "classes"): "classes lie inside of each other; what is their own adds up",
    ("serving", "phases_of_iteration"): "times are per iteration of each kind: those of two kinds do not add up",
    ("sequences", "sequences"): "a sequence can be a part of a longer one",
}
"""Tables with a filter whose bars do not add up, with the reason."""


@over([n for n in SAMPLES if n.endswith(("rank0_4000.1700000000000000000.pt.trace.json.gz",))][:2], TRACES)
def test_a_table_that_can_be_filtered_keeps_a_sum_of_its_bars(name: str) -> None:
    # GIVEN every page of a recording WHEN a flat table of it has filters and a column of bars THEN a choice of rows has the sum of these
    c = capture(path_of(name))
    for one in analyses():
        try:
            made = answered(c, one)
        except BadQuery:
            continue
        for table in tables_of(made).values() if isinstance(made, R.Report) else ():
            bars = {k.name for k in table.columns if k.show == "bar" and not k.per and k.unit in ("ns", "B", "count")}
            rows = TableRows(table, {}, "v")
            known = {b for b in bars if all(v is not None for v in table.data[b])}
            if table.tree or not table.filters or rows.size < 2 or not known or (one, table.id) in NO_SUM:
                continue
            assert known & set(rows.additive), (one, table.id, known)
