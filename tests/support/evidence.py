"""Follows the link of every finding of a recording and counts what it opens."""

from __future__ import annotations

import re

import pytest

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.time.waterfall import waterfall
from tb_sol_plugin.model import report as R
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.web.tables import split_list
from tests.support.captures import answered

WEIGHTS = {"calls": "saving_ns", "gaps": "duration_ns", "events": "saving_ns"}
"""Tables that a finding about time opens, with the column of what it takes."""


def tables_of(report: R.Report) -> dict[str, R.TableSection]:
    return {s.id: s for s in report.sections if isinstance(s, R.TableSection)}


def cards_of(report: R.Report, section: str = "") -> list[R.Finding]:
    return [f for s in report.sections if isinstance(s, R.FindingsSection) and section in ("", s.id) for f in s.findings]


def followed(c: Capture, link: R.Link) -> R.Report:
    opened = answered(c, link.analysis, **link.query)
    assert isinstance(opened, R.Report), link
    return opened


def page(c: Capture, name: str) -> R.Report | None:
    try:
        made = answered(c, name)
    except BadQuery:
        return None
    return made if isinstance(made, R.Report) else None


def summed(table: R.TableSection, column: str) -> float:
    """The sum of a column, which the table must say adds up; no row is left out, none stands there twice."""
    ids = table.data["id"]
    assert len(ids) == len(set(ids)) and not table.truncated
    assert column in table.adds or not ids
    return sum(float(v) for v in table.data[column])  # type: ignore[arg-type]


def check_findings(c: Capture) -> set[str]:
    """Asserts that every finding of every subject opens rows that make up what it claims; returns their names."""
    return {card.rule for card in (*check_times(c), *check_copies(c), *check_memory(c))}


def check_times(c: Capture) -> list[R.Finding]:
    made = page(c, "findings") if len(c.device) or len(c.host) else None
    if made is None:
        return []
    steps = waterfall(c, scope(c, Query())).steps
    for card in (cards := cards_of(made, "levers")):
        assert card.rows is not None, card.rule
        opened = followed(c, card.rows)
        assert [(f.rule, f.saving_ns) for f in cards_of(opened)] == [(card.rule, card.saving_ns)]
        tables = tables_of(opened)
        taken = sum(summed(t, WEIGHTS[name]) for name, t in tables.items())
        assert card.saving_ns is not None
        takes = card.saving_ns if card.removed_ns is None else card.removed_ns
        assert card.saving_ns <= takes
        rows = sum(len(t.data["id"]) for t in tables.values())
        assert abs(taken - takes * steps) <= steps + rows / 2, (card.rule, taken, takes, steps)
        check_words(card, rows)
        check_link(c, card, tables)
    return cards


def check_link(c: Capture, card: R.Finding, tables: dict[str, R.TableSection]) -> None:
    """The link to another page keeps rows of a table by their values: each value stands there, and those of the roofline are its calls'."""
    assert card.link is None or "find" not in card.link.query, card.rule
    kept = {k: v for k, v in card.link.query.items() if k.startswith("t.")} if card.link is not None else {}
    if card.link is None or not kept:
        return
    ((where, text),) = kept.items()
    _, table, _, column = where.split(".")
    opened = tables_of(followed(c, R.Link(card.link.analysis, {k: v for k, v in card.link.query.items() if k not in kept})))[table]
    wanted = split_list(text)
    at = [i for i, v in enumerate(opened.data[column]) if v in wanted]
    assert {opened.data[column][i] for i in at} == set(wanted), (card.rule, card.link)
    if card.link.analysis == "roofline" and "calls" in tables:
        late = " (before the window)"
        assert {str(opened.data["name"][i]).removesuffix(late) for i in at} == set(tables["calls"].data["name"]), card.rule
        assert sum(int(opened.data["calls"][i] or 0) for i in at) >= len(tables["calls"].data["id"])  # type: ignore[arg-type]


def check_copies(c: Capture) -> list[R.Finding]:
    made = page(c, "memcpy_findings") if len(c.device) else None
    if made is None:
        return []
    patterns = tables_of(made)["patterns"].data
    claimed = {r: (n, b) for r, n, b in zip(*(patterns[k] for k in ("rule", "count", "bytes")), strict=True)}
    for card in (cards := cards_of(made)):
        assert card.link is not None and card.link.analysis == "memcpy_findings", card.rule
        table = tables_of(followed(c, card.link))["evidence"]
        count, size = claimed[card.link.query["rule"]]
        summed(table, "duration_ns")
        assert len(table.data["id"]) == count, card.rule
        assert sum(int(v or 0) for v in table.data["bytes"]) == (size or 0), card.rule  # type: ignore[arg-type]
    return cards


def check_memory(c: Capture) -> list[R.Finding]:
    made = page(c, "memory_findings")
    if made is None:
        return []
    every = cards_of(made)
    for card in every:
        assert card.rows is not None, card.rule
        opened = followed(c, card.rows)
        assert [(f.rule, f.saving_bytes) for f in cards_of(opened)] == [(card.rule, card.saving_bytes)]
        table = tables_of(opened)["pieces"]
        assert summed(table, "saving_bytes") == card.saving_bytes, card.rule
        assert all(int(b) >= 0 for b in table.data["bytes"]), card.rule  # type: ignore[arg-type]
        check_words(card, len(table.data["id"]))
    return every


def check_words(card: R.Finding, rows: int) -> None:
    """The link says how many rows there are."""
    assert card.rows is not None
    text = re.sub(r"[\s,\u202f\u2009]", "", card.rows.label.replace("One", "1").replace("one", "1"))
    assert sum(int(n) for n in re.findall(r"\d+", text)) == pytest.approx(rows, rel=1e-3), card.rows.label
