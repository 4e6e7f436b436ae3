"""The rows that a finding opens: following its link, their parts add up to the saving that the finding states."""

from __future__ import annotations

import pytest

from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics.rules.engine import Finding
from tb_sol_plugin.metrics.rules.time import time_findings
from tb_sol_plugin.metrics.time.scope import extent, is_profile, scope
from tb_sol_plugin.metrics.time.waterfall import waterfall
from tb_sol_plugin.model import report as R
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.web.tables import MOST_BYTES, in_pages
from tests.support.captures import capture
from tests.support.recordings import SAMPLES, TRACES, over, path_of

FEW = [n for n in SAMPLES if "simulated_memory" not in n and "rank1" not in n and "rank2" not in n]
WEIGHTS = {"calls": "saving_ns", "gaps": "duration_ns", "events": "saving_ns"}


def tables_of(report: R.Report) -> dict[str, R.TableSection]:
    return {s.id: s for s in report.sections if isinstance(s, R.TableSection)}


def parts_of(found: Finding) -> dict[str, tuple[int, float]]:
    """Rows and time of each kind that a finding says it takes its saving from."""
    return {
        "calls": (len(found.rows), float(found.claimed.sum())),
        "gaps": (len(found.idle[0]), float(iv.length(found.idle))),
        "events": (len(found.events), float(found.events_ns.sum())),
    }


def found_in(c: Capture) -> tuple[list[Finding], int]:
    part = scope(c, Query())
    if is_profile(c):
        return [], 1
    fall = waterfall(c, part)
    return time_findings(c, part, fall), fall.steps


def check_rows_of(c: Capture, found: Finding, card: R.Finding, steps: int) -> None:
    parts = parts_of(found)
    total = sum(ns for _, ns in parts.values())
    assert round(total / steps) == pytest.approx(found.saving, abs=2), (found.id, parts)
    assert card.rows is not None, found.id
    assert card.rows.analysis == "findings"
    opened = c.analyze(card.rows.analysis, **card.rows.query)
    assert isinstance(opened, R.Report)
    (cards,) = (s for s in opened.sections if isinstance(s, R.FindingsSection))
    assert [f.rule for f in cards.findings] == [card.rule]
    assert cards.findings[0].saving_ns == card.saving_ns
    tables = tables_of(opened)
    assert set(tables) == {name for name, (count, _) in parts.items() if count}
    for name, table in tables.items():
        count, ns = parts[name]
        ids = table.data["id"]
        assert len(ids) == len(set(ids)) == count and not table.truncated, (found.id, name)
        shown = sum(float(v) for v in table.data[WEIGHTS[name]])  # type: ignore[arg-type]
        assert shown == pytest.approx(ns, abs=len(ids)), (found.id, name)
        assert set(table.adds) >= {WEIGHTS[name]}


@over(FEW, TRACES)
def test_the_rows_that_a_finding_opens_add_up_to_its_saving(name: str) -> None:
    # GIVEN a recording, its findings and their cards
    c = capture(path_of(name))
    found, steps = found_in(c)
    if not found:
        return
    try:
        page = c.analyze("findings")
    except Unavailable:
        return
    assert isinstance(page, R.Report)
    (section,) = (s for s in page.sections if isinstance(s, R.FindingsSection) and s.id == "levers")
    cards = {f.rule: f for f in section.findings}

    # WHEN the link of each is followed THEN the opened tables hold exactly the rows, and their parts make the saving
    assert set(cards) == {f.id for f in found}
    for one in found:
        check_rows_of(c, one, cards[one.id], steps)


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


@over(FEW, TRACES)
def test_a_finding_about_copies_opens_exactly_its_copies(name: str) -> None:
    # GIVEN the findings of the page about copies, if it has any
    c = capture(path_of(name))
    if not len(c.device):
        return
    page = c.analyze("memcpy_findings")
    if not isinstance(page, R.Report):
        return
    (section,) = (s for s in page.sections if isinstance(s, R.FindingsSection))
    counts = dict(zip(*(tables_of(page)["patterns"].data[k] for k in ("rule", "count")), strict=True))

    # WHEN the link of each is followed THEN the table of evidence holds its copies, none left out
    for card in section.findings:
        assert card.link is not None and card.link.analysis == "memcpy_findings", card.rule
        opened = c.analyze(card.link.analysis, **card.link.query)
        assert isinstance(opened, R.Report)
        table = tables_of(opened)["evidence"]
        assert len(table.data["id"]) == len(set(table.data["id"])) == counts[card.link.query["rule"]], card.rule
        assert not table.truncated
